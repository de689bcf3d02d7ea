"""GROUP BY ALL, and * beside aggregates: the columns that they stand for."""

from __future__ import annotations

import pytest

from anabranch.plan.catalog import Catalog, Field, Stream, to_json
from anabranch.plan.in_full import in_full
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

FIELDS = (Field("k", "string"), Field("Group", "int"), Field("ts", "timestamp"))
STREAM = Stream("s", "s", "", FIELDS, "ts", None, None, None, None, {}, "all", False, 0)
CATALOG = Catalog({"s": to_json(STREAM)})


def planned(text: str) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    made, query = in_full(statement.text, statement.query, CATALOG)
    return query.span.of(made)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("SELECT k, count(*) FROM s GROUP BY ALL", "SELECT k, count(*) FROM s GROUP BY k"),
        (
            "SELECT upper(k) AS k, 1 AS one, ts, max(ts) FROM s GROUP BY ALL HAVING count(*) > 1",
            "SELECT upper(k) AS k, 1 AS one, ts, max(ts) FROM s GROUP BY upper(k), ts HAVING count(*) > 1",
        ),
        (
            "SELECT *, count(*) FROM s GROUP BY ALL",
            "SELECT `k`, `Group`, `ts`, count(*) FROM s GROUP BY `k`, `Group`, `ts`",
        ),
        (
            "SELECT * EXCEPT (TS), count(*) AS n FROM s GROUP BY k, `group`",
            "SELECT `k`, `Group`, count(*) AS n FROM s GROUP BY k, `group`",
        ),
        (
            "SELECT n + 1, sum(n) FROM (SELECT *, count(*) AS n FROM s GROUP BY k, `Group`, ts) GROUP BY ALL",
            "SELECT n + 1, sum(n) FROM (SELECT `k`, `Group`, `ts`, count(*) AS n FROM s GROUP BY k, `Group`, ts)"
            " GROUP BY n + 1",
        ),
        (
            "SELECT window_start, count(*) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY all",
            "SELECT window_start, count(*) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY window_start",
        ),
    ],
)
def test_columns_are_named(written: str, read: str) -> None:
    assert planned(written) == read


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, count(*) FROM s GROUP BY k",
        "SELECT * FROM s",
        "SELECT count(*) FROM s GROUP BY ALL",  # nothing to group by
        "SELECT 'x', count(*) FROM s GROUP BY ALL",
        "SELECT *, count(*) FROM s JOIN s AS t ON s.k = t.k GROUP BY ALL",  # which k?
        "SELECT k, count(*), rank() OVER (ORDER BY k) FROM s GROUP BY ALL",
        "SELECT *, count(*) FROM s LATERAL VIEW explode(array(1)) AS e GROUP BY ALL",
    ],
)
def test_what_is_not_certain_stays(text: str) -> None:
    assert planned(text) == text
