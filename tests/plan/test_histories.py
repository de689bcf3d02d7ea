"""Histories of queries: at every moment, the rows that are there are those of the query over what came until then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from anabranch.duck import connect, counting_all
from anabranch.engine.frames import Frames
from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze
from anabranch.plan.catalog import Catalog, Field, Stream, Table, View, to_json
from anabranch.plan.histories import History, history
from anabranch.plan.local_histories import history_text, means_the_same
from anabranch.plan.scope import Unfit
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = (Field("id", "int"), Field("k", "string"), Field("v", "int"), Field("ts", "timestamp"))
T = (Field("id", "int"), Field("label", "string"))
TYPES = "id INT, k STRING, v INT, ts TIMESTAMP, _came BIGINT, _row_num BIGINT, _arrival_ts TIMESTAMP"


def _stream(name: str) -> Stream:
    return Stream(name, name, "", S, "ts", None, None, None, None, {}, "all", False, 0)


CATALOG = Catalog(
    {
        each.id: to_json(each)
        for each in (
            *map(_stream, "abc"),
            Table("t", "t", "", T, None, {}, None),
            Table("far", "far", "", T, None, {}, None, asked="it is large"),
            View("w", "w", "SELECT k FROM a", "", S[1:2], (), None, {}, {}, {}, "feed", "beginning"),
        )
    }
)


def made(text: str, analyze: Analyze | None = None) -> History:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    return history(statement.text, statement.query, Binder(statement.text, CATALOG, statement.query), analyze)


# ---------------------------------------------------------------------------------------------- texts

PLACES = "`{0}`.`id` AS `id`, `{0}`.`k` AS `k`, `{0}`.`v` AS `v`, `{0}`.`ts` AS `ts`, `{0}`._came AS __from"
A = f"SELECT {PLACES.format('a')}, CAST(NULL AS BIGINT) AS __to FROM a AS `a`"
X = f"SELECT {PLACES.format('x')}, CAST(NULL AS BIGINT) AS __to FROM b AS `x`"
OPEN = "CAST(NULL AS BIGINT) AS __to"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            "SELECT k, v + 1 AS more FROM a WHERE v > 0 OR k = 'x'",
            f"SELECT k AS `k`, v + 1 AS `more`, `a`._came AS __from, {OPEN} FROM a AS `a` WHERE (v > 0 OR k = 'x')",
        ),
        (
            "SELECT a.k, label FROM a JOIN b AS x USING (id) LEFT JOIN t ON a.id = t.id",
            f"SELECT a.k AS `k`, label AS `label`, greatest(`a`.__from, `x`.__from) AS __from, {OPEN}"
            f" FROM ({A}) AS `a` JOIN ({X}) AS x USING (id) LEFT JOIN t AS `t` ON a.id = t.id",
        ),
        (
            "SELECT DISTINCT k FROM a",
            f"SELECT `k`, min(__from) AS __from, {OPEN} FROM (SELECT k AS `k`, `a`._came AS __from, {OPEN} FROM"
            " a AS `a`) AS `__h` GROUP BY `k`",
        ),
    ],
)
def test_relations_are_replaced_by_their_histories(written: str, read: str) -> None:
    found = made(written)
    assert found.text == read
    assert found.appends


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("SELECT max(v) AS v, rank() OVER (ORDER BY v) AS n FROM a", "a window function beside an aggregate of all"),
        ("SELECT k, count(*) AS n FROM a GROUP BY ROLLUP (k)", "several sets of groups"),
        ("SELECT k FROM a WHERE v IN (SELECT v FROM b)", "a subquery in an expression"),
        ("SELECT k FROM w", "a view"),
        ("SELECT a.k FROM a JOIN far ON a.id = far.id", "a table that is asked by key"),
        ("SELECT a.k FROM a NATURAL JOIN b", "a NATURAL JOIN"),
        ("SELECT v + 1 FROM a", "a column without a name"),
        ("SELECT a.k, b.k FROM a JOIN b ON a.id = b.id", "two columns of one name"),
        ("SELECT k, first(v) AS v FROM a GROUP BY k", "first, which depends on the order of rows"),
        ("SELECT k FROM a WHERE ts < now()", "a function of the clock"),
        ("SELECT k FROM SLIDE_BY_ROW(a, ts, INTERVAL 5 SECONDS, 1 ROW)", "windows that depend on other rows around"),
    ],
)  # fmt: skip
def test_what_has_no_history_is_named(written: str, reason: str) -> None:
    with pytest.raises(Unfit) as caught:
        made(written)
    assert caught.value.args == (reason,)


# ---------------------------------------------------------------------------------------------- the law

COUNTS = "SELECT k, count(*) AS n, max(v) AS v FROM {} GROUP BY k"
LEFT = "SELECT a.k, b.v FROM a LEFT JOIN b ON a.id = b.id"
QUERIES = [
    # streams and inner joins
    "SELECT * FROM a WHERE v > 1",
    "SELECT a.k, b.* EXCEPT (k, ts), label FROM a JOIN b ON a.id = b.id AND a.v <= b.v LEFT JOIN t ON t.id = b.id",
    "SELECT x.k, x.v FROM (SELECT k, v FROM a UNION ALL SELECT k, id FROM b) AS x JOIN t ON x.v = t.id",
    # sets
    "SELECT DISTINCT k, v FROM a",
    "SELECT k FROM a UNION SELECT k FROM b",
    "SELECT k FROM a EXCEPT SELECT k FROM b",
    "SELECT k FROM a INTERSECT SELECT k FROM b",
    "SELECT k FROM a UNION ALL SELECT k FROM b INTERSECT SELECT k FROM c",
    "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
    "SELECT k, v FROM a INTERSECT ALL SELECT k, v FROM b",
    # joins of all kinds
    LEFT,
    "SELECT a.k, b.v, c.v AS w FROM a JOIN b ON a.k = b.k LEFT JOIN c ON b.id = c.id AND c.v > a.v WHERE a.v > 0",
    "SELECT a.k, b.v FROM a RIGHT JOIN b ON a.id = b.id",
    "SELECT id, a.v, b.v AS w FROM a FULL OUTER JOIN b USING (id)",
    "SELECT * FROM a LEFT SEMI JOIN b ON a.id = b.id",
    "SELECT k FROM a LEFT ANTI JOIN b ON a.id = b.id AND a.v < b.v",
    "SELECT t.label, a.v FROM t LEFT JOIN a ON a.id = t.id",
    "SELECT x.k, c.id FROM (SELECT k FROM a UNION ALL SELECT k FROM a) AS x LEFT JOIN c ON c.k = x.k",
    # aggregates
    COUNTS.format("a"),
    "SELECT count(*) AS n, sum(v) + 1 AS s FROM a WHERE v > 0",
    "SELECT a.k, v2 % 2 AS odd, sum(v2) FILTER (WHERE a.v > 0) AS s, count(*) AS n FROM a"
    " JOIN (SELECT id, v AS v2 FROM b) AS b ON a.id = b.id GROUP BY a.k, v2 % 2 HAVING n > 1 OR max(a.v) > 2",
    "SELECT k, count(DISTINCT v) AS n FROM a GROUP BY 1 HAVING count(*) > 1",
    "SELECT k, v FROM a GROUP BY k, v HAVING k <> 'x'",
    # nested ones
    f"SELECT DISTINCT k FROM ({LEFT}) AS x WHERE v IS NULL",
    f"SELECT k FROM ({COUNTS.format('a')}) AS x",
    f"SELECT n, count(*) AS m, sum(v) AS s FROM ({COUNTS.format('a')}) AS x GROUP BY n",
    f"SELECT count(*) AS m, max(n) AS n FROM ({COUNTS.format('a')}) AS x WHERE n > 1",
    "SELECT max(n) AS n FROM (SELECT a.k, count(b.v) AS n FROM a LEFT JOIN b ON a.id = b.id GROUP BY a.k) AS x",
    "SELECT k, v FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b) AS x EXCEPT SELECT k, v FROM c",
    f"SELECT k, n FROM ({COUNTS.format('a')}) AS x EXCEPT SELECT k, n FROM ({COUNTS.format('b')}) AS y",
    f"SELECT k, n FROM ({COUNTS.format('a')}) AS x INTERSECT SELECT k, n FROM ({COUNTS.format('b')}) AS y",
    f"SELECT a.k, a.v FROM a LEFT SEMI JOIN ({COUNTS.format('b')}) AS x ON a.k = x.k AND a.v <= x.n",
    f"SELECT a.k, x.n FROM a LEFT JOIN ({COUNTS.format('b')}) AS x ON a.k = x.k AND x.n < 3",
    f"SELECT x.k, y.k AS l, x.n, y.n AS m FROM ({COUNTS.format('a')}) AS x"
    f" FULL JOIN ({COUNTS.format('b')}) AS y ON x.k = y.k",
    f"SELECT a.k FROM a LEFT ANTI JOIN (SELECT k FROM ({COUNTS.format('b')}) AS z WHERE n = 2) AS x ON a.k = x.k",
]

#: Queries whose answer depends on an order: ties are broken by all columns, those of time first.
ORDERED = [
    # window functions
    "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, ts, id) AS n FROM a",
    "SELECT a.k, rank() OVER (PARTITION BY b.k ORDER BY a.v) AS n, count(*) OVER () AS m FROM a JOIN b ON a.id = b.id",
    "SELECT k, n FROM (SELECT k, row_number() OVER (PARTITION BY k, id ORDER BY ts, v) AS n FROM a) WHERE n < 3",
    "SELECT k, count(*) AS n, sum(count(*)) OVER (ORDER BY k) AS m FROM a GROUP BY k HAVING n > 1",
    "SELECT k, lag(id) OVER w AS l, sum(v) OVER w AS s FROM a WHERE v > 0 WINDOW w AS (PARTITION BY k ORDER BY v, ts)",
    "SELECT k, id FROM a QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts, k) = 2",
    f"SELECT k, n, rank() OVER (ORDER BY n DESC) AS r FROM ({COUNTS.format('a')}) AS x",
    "SELECT a.k, dense_rank() OVER (ORDER BY b.v) AS r FROM a LEFT JOIN b ON a.id = b.id",
    # the first rows
    "SELECT k, v FROM a ORDER BY v DESC NULLS FIRST, 1 NULLS LAST LIMIT 3",
    "SELECT k FROM a ORDER BY id % 2, v, ts LIMIT 2 OFFSET 1",
    "SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY sum(v) + n DESC, k LIMIT 1",
    "SELECT DISTINCT k FROM a ORDER BY k OFFSET 1",
    "SELECT k, id FROM a UNION SELECT k, v FROM b ORDER BY id, k LIMIT 3",
    "SELECT x.k, b.v FROM (SELECT k, id FROM a ORDER BY ts DESC, id, k, v LIMIT 2) AS x LEFT JOIN b ON b.id = x.id",
]


#: Queries that DuckDB says in other words.
OTHERS = {
    "SELECT count(k) AS n, sum(v) AS s FROM TUMBLE(a, DESCRIPTOR(row_num), 2 ROWS) GROUP BY window_start": (
        "SELECT count(k) AS n, sum(v) AS s FROM (SELECT *, row_number() OVER () - 1 AS n FROM a) GROUP BY n // 2"
    ),
    "SELECT k, v, window_end AS e FROM SLIDING(a PARTITION BY k, DESCRIPTOR(row_num), 2 ROWS, 4 ROWS)": (
        "SELECT k, v, unnest([n // 2 * 2 + 2, n // 2 * 2 + 4]) AS e FROM"
        " (SELECT *, row_number() OVER (PARTITION BY k) - 1 AS n FROM a)"
    ),
    "SELECT k, count(*) AS n FROM SESSION(a PARTITION BY k, ts, INTERVAL 5 SECONDS) GROUP BY k, window_start": (
        "SELECT k, count(*) AS n FROM (SELECT *, sum(b) OVER (PARTITION BY k ORDER BY ts RANGE UNBOUNDED PRECEDING)"
        " AS s FROM (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= INTERVAL 5 SECONDS THEN 0"
        " ELSE 1 END AS b FROM a)) GROUP BY k, s"
    ),
    "SELECT k, count(*) AS n FROM TUMBLE(a, ts, INTERVAL 10 SECONDS) GROUP BY k, window_start": (
        "SELECT k, count(*) AS n FROM a GROUP BY k, time_bucket(INTERVAL 10 SECONDS, ts)"
    ),
    "SELECT x.k, b.v FROM HOP(a, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) AS x LEFT JOIN b ON x.id = b.id": (
        "SELECT x.k, b.v FROM (SELECT * FROM a UNION ALL SELECT * FROM a) AS x LEFT JOIN b ON x.id = b.id"
    ),
    "SELECT second(window_start) AS s, n FROM TUMBLE((SELECT max(ts) AS ts, count(*) AS n FROM a GROUP BY k), ts,"
    " INTERVAL 10 SECONDS)": (
        "SELECT second(time_bucket(INTERVAL 10 SECONDS, ts)) AS s, n FROM (SELECT max(ts) AS ts, count(*) AS n FROM a"
        " GROUP BY k)"
    ),
    "SELECT k, e FROM a LATERAL VIEW explode(array(v, id)) AS e": "SELECT k, unnest([v, id]) AS e FROM a",
    "SELECT v, count(*) AS n FROM (SELECT id, max_by(v, ts) AS v, first(k) AS k FROM a GROUP BY id) GROUP BY v, k": (
        "SELECT v, count(*) AS n FROM (SELECT id, arg_max_null(v, (ts, id, k, v)) AS v, arg_min_null(k, (ts, id, k, v))"
        " AS k FROM a GROUP BY id) GROUP BY v, k"
    ),
}


def _rows(seed: int, before: int = 0) -> dict[str, list[tuple[Any, ...]]]:
    """A few rows of three streams, in the order in which they came; some are equal, some values are missing.

    So many of them came before the first moment that anybody asks about.
    """
    chance = random.Random(seed)
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in "abc"}
    for came in range(20):
        row = (chance.choice([1, 2, None]), chance.choice(["x", "y", None]), chance.choice([0, 1, 2, 3, None]))
        at = datetime(2026, 1, 1) + timedelta(seconds=chance.randrange(30))
        found[chance.choice("aaabbc")].append((*row, at, max(came - before, -1)))
    return found


LABELS = [(1, "one"), (1, "first"), (3, "three")]


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> list[dict[str, list[tuple[Any, ...]]]]:
    """Rows of which none came before, and rows of which some did."""
    found = [_rows(7), _rows(8, before=6)]
    for index, rows in enumerate(found):
        for name in "abc":
            numbered = [(*row, number, row[3]) for number, row in enumerate(rows[name])]
            spark.createDataFrame(numbered, TYPES).createOrReplaceTempView(f"histories_{index}_{name}")
        spark.createDataFrame(LABELS, "id INT, label STRING").createOrReplaceTempView(f"histories_{index}_t")
    return found


def _moments(query: str, rows: dict[str, list[tuple[Any, ...]]]) -> Iterator[tuple[int, Counter[tuple[Any, ...]]]]:
    """What the query gives over the rows until each moment."""
    query = query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI").replace("EXCEPT (k, ts)", "EXCLUDE (k, ts)")
    with duckdb.connect() as duck:
        duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        duck.execute("CREATE TABLE t (id INT, label VARCHAR)")
        duck.executemany("INSERT INTO t VALUES (?, ?)", LABELS)
        for name in "abc":
            duck.execute(f"CREATE TABLE {name} (id INT, k VARCHAR, v INT, ts TIMESTAMP)")
        for moment in range(-1, 20):
            for name, row in ((name, row) for name, each in rows.items() for row in each if row[-1] == moment):
                duck.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", row[:-1])
            yield moment, Counter(duck.sql(query).fetchall())


def rows_of(found: History, spark: SparkSession, index: int | str = 0) -> list[tuple[Any, ...]]:
    (statement,) = parse(found.text)
    assert isinstance(statement, SelectStatement)
    bound = Binder(statement.text, CATALOG, statement.query).bind()
    text = bound.text.text
    for placeholder, reference in bound.references.items():
        text = text.replace(f"`{placeholder}`", f"histories_{index}_{reference.target}")
    frame = spark.sql(text)
    assert frame.columns == [*found.columns, "__from", "__to"]
    rows = [tuple(row) for row in frame.collect()]
    assert not found.appends or all(row[-1] is None for row in rows)
    return rows


def check(query: str, found: list[tuple[Any, ...]], rows: dict[str, list[tuple[Any, ...]]], again: str = "") -> None:
    for moment, expected in _moments(again or query, rows):
        there = Counter(row[:-2] for row in found if row[-2] <= moment and (row[-1] is None or row[-1] > moment))
        assert there == expected, f"{query} at {moment}"
    ends = {(row[:-2], row[-1]) for row in found}
    assert not ends & {(row[:-2], row[-2]) for row in found}, f"{query}: something goes and comes again"


@pytest.mark.spark
@pytest.mark.parametrize(("place", "query"), [*enumerate(QUERIES)])
def test_at_every_moment_the_history_is_the_query(
    place: int, query: str, spark: SparkSession, tables: list[dict[str, list[tuple[Any, ...]]]]
) -> None:
    """For each moment, the rows of the history that are there are the query over the rows until then."""
    index = place % len(tables)
    check(query, rows_of(made(query), spark, index), tables[index])


@pytest.mark.spark
@pytest.mark.parametrize(("place", "query"), [*enumerate(ORDERED)])
def test_so_it_is_with_rows_in_an_order(
    place: int, query: str, spark: SparkSession, tables: list[dict[str, list[tuple[Any, ...]]]]
) -> None:
    index = place % len(tables)
    found = rows_of(made(query, Frames(spark).analyze), spark, index)
    check(query, found, tables[index])


@pytest.mark.spark
@pytest.mark.parametrize(("place", "query"), [*enumerate(OTHERS)])
def test_so_it_is_with_windows_and_rows_that_are_picked(
    place: int, query: str, spark: SparkSession, tables: list[dict[str, list[tuple[Any, ...]]]]
) -> None:
    index = place % len(tables)
    found = rows_of(made(query, Frames(spark).analyze), spark, index)
    check(query, found, tables[index], OTHERS[query])


# ---------------------------------------------------------------------------------------------- in DuckDB

#: What is in queries that DuckDB does not take in the same words.
DIFFERENT = ("%", "WINDOW", "QUALIFY")


@pytest.mark.parametrize(("place", "query"), [*enumerate([*QUERIES, *ORDERED])])
def test_so_it_is_in_duckdb(place: int, query: str) -> None:
    """A history that is written for Spark is the same in DuckDB's words."""
    rows = _rows(7 + place % 2, before=6 * (place % 2))
    (statement,) = parse(made(query).text)
    assert isinstance(statement, SelectStatement)
    bound = Binder(statement.text, CATALOG, statement.query).bind()
    text = history_text(bound.text.text, lambda each: bound.references[each].target)
    if any(word in query for word in DIFFERENT):
        assert text is None or '"WINDOW"' in text or '"QUALIFY"' in text  # which are no names, and DuckDB says so
        return
    assert text is not None
    with connect() as duck:
        for name, types in (*((name, TYPES) for name in "abc"), ("t", "id INT, label STRING")):
            duck.execute(f"CREATE TABLE {name} ({types})")
            values = LABELS if name == "t" else [(*row, number, row[3]) for number, row in enumerate(rows[name])]
            duck.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values[0]))})", values)
        with counting_all(duck, text):
            found = duck.sql(text).fetchall()
    check(query, found, rows)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT filter(xs, x -> x > 1) AS y FROM a",
        "SELECT greatest(k, v) AS y FROM a",
        "SELECT k, array_sort(collect_list(v)) AS y FROM a GROUP BY k",
        "SELECT k, y FROM a LATERAL VIEW explode(xs) `__parts` AS y",
        "SELECT CAST(__count AS INT) AS y FROM a",
    ],
)
def test_what_histories_are_written_with_is_not_for_the_queries_themselves(text: str) -> None:
    fields = (Field("k", "bigint"), Field("v", "bigint"), Field("xs", "array<bigint>"))
    assert not means_the_same(text, fields)
    assert history_text(text, lambda _: "a") is not None
