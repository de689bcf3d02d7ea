"""Aggregates over queries that only filter and project: what they are planned as, and that it gives the same."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan.catalog import Catalog, Field, Stream, Table, View, to_json
from anabranch.plan.flat import flat
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

S = (Field("k", "string"), Field("n", "int"), Field("m", "int"), Field("day", "int"), Field("ts", "timestamp"))
T = (Field("k", "string"), Field("label", "string"))


def _stream(name: str) -> Stream:
    return Stream(name, name, "", S, "ts", None, None, None, None, {}, "all", False, 0)


VIEW = View("v", "v", "SELECT k, n FROM s", "", S[:2], (), None, {}, {}, {}, "feed", "beginning")
CATALOG = Catalog(
    {each.id: to_json(each) for each in (_stream("s"), _stream("r"), Table("t", "t", "", T, None, {}, None), VIEW)}
)


def planned(text: str) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    made, query = flat(statement.text, statement.query, CATALOG)
    return query.span.of(made)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("SELECT k, sum(n) FROM (SELECT k, n FROM s) GROUP BY k", "SELECT k, sum(n) FROM s GROUP BY k"),
        (
            "SELECT x.k, sum(x.n) AS n FROM (SELECT s.k, n FROM s WHERE m > 0) AS x WHERE x.n < 9 OR k = 'a'"
            " GROUP BY x.k",
            "SELECT s.k AS `k`, sum(n) AS n FROM s WHERE (m > 0) AND (n < 9 OR k = 'a') GROUP BY s.k",
        ),
        (
            "WITH t AS (SELECT lower(k) AS name, n FROM s WHERE n > 0) SELECT name, sum(n) AS n FROM t WHERE n < 9"
            " GROUP BY name ORDER BY name LIMIT 3",
            "WITH t AS (SELECT 1) SELECT (lower(k)) AS `name`, sum(n) AS n FROM s WHERE (n > 0) AND (n < 9)"
            " GROUP BY (lower(k)) ORDER BY (lower(k)) LIMIT 3",
        ),
        (
            "SELECT max(c) FROM (SELECT b + 1 AS c FROM (SELECT n * 2 AS b FROM s WHERE n > 1) WHERE b < 8)",
            "SELECT max(((n * 2) + 1)) FROM s WHERE (n > 1) AND (((n * 2) < 8))",
        ),
        (
            "SELECT window_start, count(*) FROM (SELECT * FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) WHERE n > 0)"
            " GROUP BY window_start",
            "SELECT window_start, count(*) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) WHERE (n > 0) GROUP BY window_start",
        ),
        (
            "SELECT label, count(*) AS c FROM (SELECT label, s.n FROM s JOIN t ON s.k = t.k) GROUP BY label"
            " HAVING max(n) > 1",
            "SELECT label AS `label`, count(*) AS c FROM s JOIN t ON s.k = t.k GROUP BY label HAVING max(s.n) > 1",
        ),
        (
            "SELECT max(c) FROM (SELECT k, count(*) AS c FROM (SELECT k FROM s WHERE n > 0) GROUP BY k)",
            "SELECT max(c) FROM (SELECT k, count(*) AS c FROM s WHERE (n > 0) GROUP BY k)",
        ),
        (
            "SELECT sum(v) FROM (SELECT n AS v FROM s) HAVING sum(v) FILTER (WHERE v > 1) > 2",
            "SELECT sum(n) FROM s HAVING sum(n) FILTER (WHERE n > 1) > 2",
        ),
        (
            "SELECT k, count(*) FROM (SELECT k FROM s WHERE n > 0) GROUP BY k TRIGGER COUNTING 2",
            "SELECT k, count(*) FROM s WHERE (n > 0) GROUP BY k TRIGGER COUNTING 2",
        ),
    ],
)
def test_two_become_one(written: str, read: str) -> None:
    assert planned(written) == read


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, n FROM (SELECT k, n FROM s)",  # nothing is aggregated
        "SELECT k, sum(n) FROM (SELECT DISTINCT k, n FROM s) GROUP BY k",
        "SELECT k, sum(n) FROM (SELECT k, n FROM s ORDER BY n LIMIT 3) GROUP BY k",
        "SELECT k, sum(n) FROM (SELECT k, rank() OVER (ORDER BY n) AS n FROM s) GROUP BY k",
        "SELECT e, count(*) FROM (SELECT explode(array(n, m)) AS e FROM s) GROUP BY e",
        "SELECT k, sum(n) FROM (SELECT k, n FROM v) GROUP BY k",  # of a view its changes are there already
        "SELECT x.k, count(*) FROM (SELECT s.k FROM s JOIN r ON s.k = r.k) AS x GROUP BY x.k",  # a join of its own
        "SELECT k, count(*) FROM (SELECT k FROM s WHERE n IN (SELECT n FROM r)) GROUP BY k",
        # Names that would come to mean something else.
        "SELECT k, sum(v) AS n FROM (SELECT k, m AS v FROM s) GROUP BY k HAVING n > 1",
        "SELECT k, sum(v) AS v FROM (SELECT k, m AS v FROM s) GROUP BY k ORDER BY v",
        "SELECT m, count(*) AS c FROM (SELECT upper(k) AS name FROM s) GROUP BY name",
        "SELECT max(ts - INTERVAL 1 DAY) FROM (SELECT ts, n AS day FROM s)",
        "SELECT collect_list(struct(v)) AS c FROM (SELECT n AS v FROM s)",
        "SELECT `sum(v)` FROM (SELECT sum(v) FROM (SELECT n AS v FROM s))",
        "SELECT k FROM s WHERE n = (SELECT max(v) FROM (SELECT n AS v, k FROM s) AS x WHERE x.k = s.k)",
        "SELECT a, count(*) FROM (SELECT k AS a, n AS a FROM s) GROUP BY k",
        "SELECT c, count(*) FROM (SELECT k FROM s) AS x(c) GROUP BY c",
        "SELECT c, count(*) FROM (SELECT * FROM s JOIN t ON s.k = t.k) GROUP BY c",
        "SELECT window_start, count(*) FROM TUMBLE((SELECT ts FROM s), ts, INTERVAL 1 MINUTE) GROUP BY window_start",
    ],
)
def test_what_would_change_stays(text: str) -> None:
    assert planned(text) == text


COLUMNS = ("k", "n", "m", "s.k", "n AS v", "n + m AS v", "k AS m", "m AS k", "upper(k) AS k", "n * 2 AS n", "m AS n")
CONDITIONS = ("", " WHERE n > 0", " WHERE m = 1 OR n = 2", " WHERE k <> 'a'")
ABOVE = (
    "k, count(*) AS c FROM {} GROUP BY k",
    "k, sum(n) AS n FROM {} GROUP BY k",
    "n AS k, max(k) AS n FROM {} GROUP BY n",
    "k AS g, sum(v) AS v FROM {} WHERE v > 0 GROUP BY k",
    "x.k, sum(x.m) AS s FROM {} GROUP BY x.k HAVING max(m) > 0 OR k = 'b'",
    "count(*) AS c, max(v) AS v, min(x.n) AS n FROM {}",
    "upper(k) AS k, max(v + n) AS v FROM {} WHERE n = 1 OR v = 2 GROUP BY upper(k)",
    "max(c) AS c FROM (SELECT k, count(v) AS c FROM {} GROUP BY k)",
    "sum(n) FILTER (WHERE m > 0) AS f, k FROM {} GROUP BY k ORDER BY k, f",
    "k, sum(m) AS total FROM {} GROUP BY 1 HAVING total > 0",
)
VALUES = st.sampled_from([0, 1, 2, 3, None])
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "B", None]), VALUES, VALUES), max_size=10)


@settings(settings.get_profile("engine"), max_examples=60)
@given(
    columns=st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4),
    star=st.booleans(),
    conditions=st.lists(st.sampled_from(CONDITIONS), min_size=2, max_size=2),
    above=st.sampled_from(ABOVE),
    deeper=st.booleans(),
    rows=ROWS,
)
def test_it_gives_the_same(
    columns: list[str], star: bool, conditions: list[str], above: str, deeper: bool, rows: list[tuple[Any, ...]]
) -> None:
    below = f"(SELECT {'*' if star else ', '.join(columns)} FROM s{conditions[0]}) AS x"
    if deeper:
        below = f"(SELECT * FROM {below}{conditions[1]}) AS x"
    text = f"SELECT {above.format(below)}"
    with duckdb.connect() as duck:
        duck.sql("CREATE TABLE s (k VARCHAR, n INT, m INT, day INT, ts TIMESTAMP)")
        if rows:
            duck.executemany("INSERT INTO s (k, n, m) VALUES (?, ?, ?)", rows)
        try:
            wanted = duck.sql(text)
            answer = wanted.fetchall()
        except duckdb.Error:
            return  # a column that is not there, is there twice, or is no number
        made = duck.sql(planned(text).replace("`", '"'))
        assert made.columns == wanted.columns
        assert sorted(made.fetchall(), key=str) == sorted(answer, key=str), planned(text)
