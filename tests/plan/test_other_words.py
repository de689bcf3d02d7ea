"""Queries that have a history in other words: at every moment it is what DuckDB makes of the query as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from anabranch.engine.frames import Frames
from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze
from anabranch.plan.histories import History, history
from anabranch.plan.other_words import in_other_words
from anabranch.plan.scope import Unfit
from plan.test_histories import CATALOG, LABELS, TYPES, _rows, check, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Rows of streams that come in turn, many of them without missing values; of the second, some came before.
SEEDS = {"words": (396, 0), "others": (157, 4)}

QUERIES = [
    # subqueries that stand by themselves
    "SELECT k, v FROM a WHERE v > (SELECT min(v) FROM b)",
    "SELECT *, (SELECT count(*) FROM b WHERE v > 0) + 1 AS n FROM a",
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE v = 3) OR v = 0",
    "SELECT k, k IN (SELECT k FROM b) AS known, v NOT IN (SELECT v FROM c WHERE v > 0) AS other FROM a",
    "SELECT max(v) AS v, (SELECT max(v) FROM b) - count(*) AS d FROM a HAVING count(*) >= (SELECT count(*) FROM c)",
    "SELECT k, sum(v + (SELECT count(*) FROM b)) AS s FROM a GROUP BY k HAVING count(*) < (SELECT count(*) FROM b)",
    "SELECT a.k, b.v FROM a LEFT JOIN b ON a.id = b.id AND b.v >= (SELECT max(v) FROM c)",
    "SELECT (SELECT count(*) FROM a) AS n, (SELECT max(m) FROM (SELECT k, min(v) AS m FROM b GROUP BY k) AS x) AS m",
    # those that ask for columns around them
    "SELECT k, (SELECT count(*) FROM b WHERE b.v < a.v) AS n, (SELECT max(v) FROM b WHERE b.id = a.id) AS m FROM a",
    "SELECT k FROM a WHERE v = 3 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > a.v)",
    "SELECT k FROM a WHERE NOT (v IN (SELECT v + 1 FROM b WHERE b.id = a.id) AND k = 'x')",
    "SELECT a.k, b.k AS l FROM a LEFT JOIN b ON a.id = b.id WHERE a.v > (SELECT count(*) FROM c WHERE c.v = b.v)",
    "SELECT k, (SELECT count(v) FILTER (WHERE v > a.v) FROM b WHERE b.k = a.k HAVING count(*) > a.v) AS n FROM a",
    "SELECT DISTINCT k, (SELECT sum(x.v * y.v) FROM b AS x JOIN c AS y ON x.id = y.id WHERE x.k = a.k) AS n FROM a",
    "SELECT k FROM a WHERE v > (SELECT min(v) FROM b WHERE b.v > (SELECT min(v) FROM c WHERE c.id = b.id))",
    # several sets of groups
    "SELECT k, v, count(*) AS n, grouping(v) AS g FROM a GROUP BY ROLLUP (k, v)",
    "SELECT a.k, sum(b.v) AS s, grouping_id() AS i, max(a.k) AS m FROM a LEFT JOIN b ON a.id = b.id"
    " GROUP BY CUBE (a.k, b.v % 2) HAVING count(*) > 1 OR a.k = 'x'",
    "SELECT upper(k) AS u, count(v) AS n FROM a GROUP BY GROUPING SETS ((u), ()) HAVING n > 0",
]


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    found = {name: _rows(*chosen) for name, chosen in SEEDS.items()}
    for key, rows in found.items():
        for name in "abc":
            spark.createDataFrame(rows[name], TYPES).createOrReplaceTempView(f"histories_{key}_{name}")
        spark.createDataFrame(LABELS, "id INT, label STRING").createOrReplaceTempView(f"histories_{key}_t")
    return found


def told(query: str, analyze: Analyze) -> History:
    text, made = in_other_words(query, CATALOG, analyze)
    return history(text, made, Binder(text, CATALOG, made), analyze)


@pytest.mark.parametrize(("place", "query"), [*enumerate(QUERIES)])
def test_at_every_moment_other_words_say_the_same(
    place: int, query: str, spark: SparkSession, tables: dict[str, dict[str, list[tuple[Any, ...]]]]
) -> None:
    key = [*SEEDS][place % len(SEEDS)]
    check(query, rows_of(told(query, Frames(spark).analyze), spark, key), tables[key])


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT k FROM a WHERE v > (SELECT v FROM b WHERE b.k = a.k GROUP BY v)", "and groups its rows"),
        ("SELECT a.k FROM a FULL JOIN b ON a.v > (SELECT max(v) FROM c)", "in the condition of an outer join"),
    ],
)
def test_what_has_no_other_words_is_named(query: str, reason: str, spark: SparkSession) -> None:
    with pytest.raises(Unfit, match=reason):
        told(query, Frames(spark).analyze)


def test_a_subquery_with_two_rows_is_no_value(
    spark: SparkSession, tables: dict[str, dict[str, list[tuple[Any, ...]]]]
) -> None:
    found = told("SELECT k, (SELECT v FROM b WHERE b.v > a.v) AS v FROM a", Frames(spark).analyze)
    with pytest.raises(Exception, match="has more than one row"):
        rows_of(found, spark, "words")
