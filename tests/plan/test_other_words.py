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
    "SELECT *, (SELECT count(*) FROM b WHERE v > 0) + 1 AS n FROM a"
    " WHERE v > (SELECT min(v) FROM b) OR EXISTS (SELECT 1 FROM c WHERE v = 2)",
    "SELECT k, k IN (SELECT k FROM b) AS known, v NOT IN (SELECT v FROM c WHERE v > 0) AS other FROM a",
    "SELECT max(v) AS v, (SELECT max(v) FROM b) - count(*) AS d FROM a HAVING count(*) >= (SELECT count(*) FROM c)",
    "SELECT k, sum(v + (SELECT count(*) FROM b)) AS s FROM a GROUP BY k HAVING count(*) < (SELECT count(*) FROM b)",
    "SELECT a.k, b.v FROM a LEFT JOIN b ON a.id = b.id AND b.v >= (SELECT max(v) FROM c)",
    "SELECT (SELECT count(*) FROM a) AS n, (SELECT max(m) FROM (SELECT k, min(v) AS m FROM b GROUP BY k) AS x) AS m",
    # those that ask for columns around them
    "SELECT k, (SELECT count(*) FROM b WHERE b.v < a.v) AS n, (SELECT max(v) FROM b WHERE b.id = a.id) AS m FROM a",
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > a.v)"
    " OR NOT (v IN (SELECT v + 1 FROM b WHERE b.id = a.id) AND k = 'x')",
    "SELECT a.k, b.k AS l FROM a LEFT JOIN b ON a.id = b.id WHERE a.v > (SELECT count(*) FROM c WHERE c.v = b.v)",
    "SELECT DISTINCT k, (SELECT count(v) FILTER (WHERE v > a.v) FROM b JOIN c USING (v) WHERE b.k = a.k"
    " HAVING count(*) > a.v) AS n FROM a WHERE v >= (SELECT min(v) FROM b WHERE b.v > (SELECT min(v) FROM c))",
    # several sets of groups
    "SELECT k, v, count(*) AS n, grouping(v) AS g FROM a GROUP BY ROLLUP (k, v) HAVING count(*) > 0",
    "SELECT a.k, sum(b.v) AS s, grouping_id(a.k, b.v % 2) AS i, max(a.k) AS m FROM a LEFT JOIN b ON a.id = b.id"
    " GROUP BY CUBE (a.k, b.v % 2) HAVING count(*) > 1 OR a.k = 'x'",
    # columns that are common to relations, that have no name or that of another
    "SELECT * FROM a NATURAL LEFT JOIN (SELECT id, v AS w FROM b) AS x",
    "WITH y(l, id) AS (SELECT k, id FROM b) SELECT * FROM a FULL JOIN y USING (id)",
    "SELECT k, v + 1, k FROM a UNION ALL VALUES ('x', 1, 'y') UNION ALL SELECT 'z', 2, NULL",
]
#: Queries that DuckDB says in other words.
OTHERS = {
    "SELECT a.k, e, count(*) AS n FROM a LEFT JOIN b ON a.id = b.id LATERAL VIEW explode(array(a.v, b.v)) x AS e"
    " WHERE e > 0 OR a.k = 'x' GROUP BY a.k, e": (
        "SELECT k, e, count(*) AS n FROM (SELECT a.k, unnest([a.v, b.v]) AS e FROM a LEFT JOIN b ON a.id = b.id)"
        " WHERE e > 0 OR k = 'x' GROUP BY k, e"
    ),
    "SELECT k, explode(array(count(*), max(v))) AS e FROM a GROUP BY k HAVING count(*) > 1": (
        "SELECT k, unnest([count(*), max(v)]) AS e FROM a GROUP BY k HAVING count(*) > 1"
    ),
    "SELECT id, listagg(k, '+') AS l, string_agg(DISTINCT k) AS d, listagg(k) WITHIN GROUP (ORDER BY v DESC) AS o"
    " FROM a GROUP BY id": (
        "SELECT id, string_agg(k, '+' ORDER BY ts, k) AS l, string_agg(DISTINCT k, '' ORDER BY k) AS d,"
        " string_agg(k, '' ORDER BY v DESC NULLS LAST, k) AS o FROM a GROUP BY id"
    ),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    found = {name: _rows(*chosen) for name, chosen in SEEDS.items()}
    for key, rows in found.items():
        for name in "abc":
            numbered = [(*row, number, row[3]) for number, row in enumerate(rows[name])]
            spark.createDataFrame(numbered, TYPES).createOrReplaceTempView(f"histories_{key}_{name}")
        spark.createDataFrame(LABELS, "id INT, label STRING").createOrReplaceTempView(f"histories_{key}_t")
    return found


def told(query: str, analyze: Analyze) -> History:
    text, made = in_other_words(query, CATALOG, analyze)
    return history(text, made, Binder(text, CATALOG, made), analyze)


@pytest.mark.parametrize(("place", "query"), [*enumerate([*QUERIES, *OTHERS])])
def test_at_every_moment_other_words_say_the_same(
    place: int, query: str, spark: SparkSession, tables: dict[str, dict[str, list[tuple[Any, ...]]]]
) -> None:
    key = [*SEEDS][place % len(SEEDS)]
    check(query, rows_of(told(query, Frames(spark).analyze), spark, key), tables[key], OTHERS.get(query, ""))


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
