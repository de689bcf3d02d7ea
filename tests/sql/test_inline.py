"""A CTE that only passes a relation through is that relation; every other CTE is left alone."""

from __future__ import annotations

import pytest

from anabranch.algebra.progress import Delay
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.stored import to_json
from anabranch.sql import check
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement
from anabranch.types import Field

SECOND = 1_000_000
OBJECTS = (
    Stream("s", "s", "", (Field("ts", "timestamp"),), "ts", Delay(5 * SECOND), None, None, None, {}, "all", False),
    Table("t", "t", "", (Field("k", "string"),), None, {}, None),
)
CATALOG = Catalog({each.id: to_json(each) for each in OBJECTS})

#: The query of OctoSQL's own example.
GOALS = """\
WITH
  with_watermark AS (SELECT * FROM max_diff_watermark(source => TABLE(events), time_field => DESCRIPTOR(time),
                                                      offset => INTERVAL 5 SECONDS) e),
  with_tumble AS (SELECT * FROM tumble(source => TABLE(with_watermark), time_field => DESCRIPTOR(e.time),
                                       window_length => INTERVAL 1 MINUTE, offset => INTERVAL 0 SECONDS) e),
  counts_per_team AS (SELECT e.window_end, e.team, COUNT(*) as goals FROM with_tumble e GROUP BY e.window_end, e.team
                      TRIGGER ON WATERMARK)
SELECT * FROM counts_per_team cpt ORDER BY cpt.window_end ASC, cpt.goals DESC"""


def bound(text: str) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    return Binder(text, CATALOG, statement.query).bind().text.text.strip()


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ("WITH c AS (SELECT * FROM s) SELECT c.ts FROM c", "SELECT c.ts FROM `@s:s` AS `c`"),
        ("WITH c AS (SELECT x.* FROM s x) SELECT e.ts FROM c AS e", "SELECT e.ts FROM `@s:s` AS e"),
        ("WITH a AS (SELECT * FROM s), b AS (SELECT * FROM a) SELECT * FROM b", "SELECT * FROM `@s:s` AS `b`"),
        (
            "WITH a AS (SELECT 1 AS n), b AS (SELECT * FROM s), c AS (SELECT 2), d AS (SELECT * FROM s),"
            " e AS (SELECT * FROM t) SELECT * FROM a, b, c, d, e",
            "WITH a AS (SELECT 1 AS n), c AS (SELECT 2)"
            " SELECT * FROM a, `@s:s` AS `b`, c, `@s:s` AS `d`, `@t:t` AS `e`",
        ),
        (
            "WITH b AS (SELECT * FROM s), a AS (SELECT 1 AS n) SELECT * FROM a, b",
            "WITH a AS (SELECT 1 AS n) SELECT * FROM a, `@s:s` AS `b`",
        ),
        (
            "WITH c AS (SELECT * FROM s) SELECT (SELECT max(ts) FROM c) FROM (SELECT * FROM c) x",
            "SELECT (SELECT max(ts) FROM `@s:s` AS `c`) FROM (SELECT * FROM `@s:s` AS `c`) x",
        ),
        (
            "SELECT * FROM (WITH c AS (SELECT * FROM s) SELECT * FROM c UNION ALL SELECT * FROM c) x",
            "SELECT * FROM ( SELECT * FROM `@s:s` AS `c` UNION ALL SELECT * FROM `@s:s` AS `c`) x",
        ),
        ("WITH c AS (SELECT * FROM s) (SELECT * FROM c)", "(SELECT * FROM `@s:s` AS `c`)"),
    ],
)
def test_a_cte_that_passes_a_relation_through_is_that_relation(text: str, spark: str) -> None:
    assert bound(text) == spark


@pytest.mark.parametrize(
    "cte",
    [
        "c AS (SELECT ts FROM s)",
        "c AS (SELECT *, 1 AS one FROM s)",
        "c AS (SELECT * EXCEPT (ts) FROM s)",
        "c AS (SELECT DISTINCT * FROM s)",
        "c AS (SELECT * FROM s WHERE ts IS NULL)",
        "c AS (SELECT * FROM s LIMIT 1)",
        "c AS (SELECT * FROM s, t)",
        "c AS (SELECT * FROM s AS x(a))",
        "c(a) AS (SELECT * FROM s)",
        "c AS (SELECT * FROM s TABLESAMPLE (10 PERCENT))",
        "c AS (SELECT * FROM (SELECT * FROM s))",
        "c AS (SELECT * FROM s UNION ALL SELECT * FROM s)",
    ],
)
def test_a_cte_that_does_more_stays(cte: str) -> None:
    (statement,) = parse(f"WITH {cte} SELECT * FROM c")
    assert isinstance(statement, SelectStatement)
    assert [name for name, _ in statement.query.ctes] == ["c"]
    assert bound(f"WITH {cte} SELECT * FROM c").startswith("WITH c")


@pytest.mark.parametrize(
    "text",
    [
        # The same name means something else where the CTE is read.
        "WITH c AS (SELECT * FROM s), s AS (SELECT 1 AS n) SELECT * FROM c",
        # One that is read in an expression that is not looked into.
        "WITH c AS (SELECT * FROM s) SELECT ts FROM s ORDER BY (SELECT max(ts) FROM c)",
        # Windows of windows.
        "WITH c AS (SELECT * FROM TUMBLE(s, ts, INTERVAL 1 MINUTE))"
        " SELECT * FROM TUMBLE(c, window_time, INTERVAL 1 HOUR)",
    ],
)
def test_in_doubt_a_cte_stays(text: str) -> None:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    assert "c" in [name for name, _ in statement.query.ctes]


def test_windows_and_watermarks_go_with_the_relation() -> None:
    (statement,) = parse(GOALS)
    assert isinstance(statement, SelectStatement)
    query = statement.query
    assert [name for name, _ in query.ctes] == ["counts_per_team"]
    (select, _), (inner, _) = query.selects()
    (events,) = inner.relations
    assert events.window is not None and (events.window.kind, events.window.time_column) == ("tumble", "time")
    assert [mark.rule for mark in events.watermarks] == [Delay(5 * SECOND)]
    assert (str(events.name), events.exposed) == ("events", "e")
    assert [relation.exposed for relation in select.relations] == ["cpt"]
    made = "CREATE STREAM events (team STRING, time TIMESTAMP, WATERMARK FOR time AS time - INTERVAL 5 SECONDS);"
    assert check(f"{made} CREATE VIEW goals AS {GOALS}") == []
