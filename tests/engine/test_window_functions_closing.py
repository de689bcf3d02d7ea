"""EMIT ON WINDOW CLOSE with window functions: a row is shown once it is final, and at the end all rows are."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import NotSupported
from anabranch.testing import Harness, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
engine = settings(settings.get_profile("engine"), max_examples=1)

NOON = datetime(2026, 1, 1, 12)
LAG = 20  # seconds
MICROSECOND = timedelta(microseconds=1)
BY = "PARTITION BY k ORDER BY ts"
#: For Spark, what ties are broken by.
TIES = "{then}"
GROUPS = "SELECT k, max(v) AS v, count(*) AS n, window_end FROM {rows} GROUP BY k, window_end"
ENDS = "timestamp_seconds(10 * (unix_seconds(ts) div 10 + 1))"

Row = tuple[str, int, datetime]
#: The time that progress has to pass before a row is final, beside the rows there are; None: only the end will do.
Waits = Callable[[Row, list[Row]], datetime | None]


def own(row: Row, seen: list[Row]) -> datetime | None:
    return row[2]


def never(row: Row, seen: list[Row]) -> datetime | None:
    return None


def window_end(row: Row, seen: list[Row]) -> datetime:
    """A window is over when progress has come to its end."""
    return NOON + timedelta(seconds=10 * ((row[2] - NOON) // timedelta(seconds=10) + 1)) - MICROSECOND


def later(seconds: int) -> Waits:
    return lambda row, seen: row[2] + timedelta(seconds=seconds)


def next_row(number: int, by: Callable[[Row], object] = lambda row: row[0]) -> Waits:
    def waits(row: Row, seen: list[Row]) -> datetime | None:
        ordered = sorted((each for each in seen if by(each) == by(row)), key=lambda each: (each[2], each[0], each[1]))
        return dict(enumerate(each[2] for each in ordered)).get(ordered.index(row) + number)

    return waits


def next_group(row: Row, seen: list[Row]) -> datetime | None:
    ends = (window_end(each, seen) for each in seen if each[0] == row[0])
    return min((end for end in ends if end > window_end(row, seen)), default=None)


#: Queries, and what their rows wait for. {rows} are rows with the ends of their windows.
QUERIES: dict[str, tuple[str, list[Waits]]] = {
    "back": (f"SELECT k, v, ts, lag(v, 2) OVER ({BY}{TIES}) AS x, sum(v) OVER ({BY}) AS y FROM s", [own]),
    "within": (
        f"SELECT k, v, ts, sum(v) OVER ({BY} RANGE BETWEEN INTERVAL 5 SECONDS PRECEDING AND INTERVAL 7 SECONDS"
        " FOLLOWING) AS x FROM s",
        [later(7)],
    ),
    "first": (f"SELECT k, v, ts FROM (SELECT k, v, ts, row_number() OVER ({BY}{TIES}) AS n FROM s) WHERE n = 1", [own]),
    "in_window": (
        "SELECT k, v, window_end, ntile(2) OVER (PARTITION BY k, window_end ORDER BY v) AS x,"
        f" row_number() OVER ({BY}{TIES}) AS y FROM {{rows}}",
        [window_end],
    ),
    "hidden_window": (
        "SELECT k, v, ts, ntile(2) OVER (PARTITION BY k, window_end ORDER BY v) AS x FROM {rows}",
        [window_end],
    ),
    "best": (
        "SELECT k, v, ts FROM (SELECT k, v, ts, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM s)"
        " WHERE n <= 2",
        [never],
    ),
    "next": (
        f"SELECT v, ts, lead(v) OVER ({BY}{TIES}) AS x, last_value(v) OVER ({BY}{TIES} ROWS BETWEEN CURRENT ROW AND 2"
        " FOLLOWING) AS y FROM s",
        [next_row(2)],
    ),
    "mixed": (
        f"SELECT k, v, ts, lead(v, 3, -1) OVER (ORDER BY ts{TIES}) AS x, lead(v) OVER ({BY}{TIES}) AS y, sum(v) OVER"
        f" ({BY} RANGE BETWEEN CURRENT ROW AND INTERVAL 7 SECONDS FOLLOWING) AS z FROM s",
        [next_row(3, lambda row: ()), next_row(1), later(7)],
    ),
    "rising": (
        f"SELECT k, v, ts FROM (SELECT k, v, ts, lag(v, -1) OVER ({BY}{TIES}) AS x FROM s) WHERE x > v",
        [next_row(1)],
    ),
    "all_columns": (
        f"SELECT * FROM (SELECT k, v, ts, lead(v, 2) OVER ({BY}{TIES}) AS x FROM s) WHERE v <> 5",
        [next_row(2)],
    ),
    "named": (
        f"SELECT k, v, ts, sum(v) OVER w AS x FROM s WINDOW w AS ({BY}{TIES} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        [next_row(1)],
    ),
    "groups": (
        "SELECT k, max(v) AS v, window_end, lead(count(*)) OVER (PARTITION BY k ORDER BY window_end) AS x FROM {rows}"
        " GROUP BY k, window_end",
        [next_group],
    ),
    "over_groups": (
        f"SELECT k, v, window_end, lead(n) OVER (PARTITION BY k ORDER BY window_end) AS x FROM ({GROUPS})",
        [next_group],
    ),
    "over_window": (
        f"WITH g AS ({GROUPS}) SELECT k, v, window_end, ntile(2) OVER (PARTITION BY window_end ORDER BY v) AS x FROM g",
        [window_end],
    ),
    "best_of_window": (
        "SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY window_end ORDER BY v DESC) AS x"
        f" FROM ({GROUPS})) WHERE x = 1",
        [window_end],
    ),
    "over_key": (f"SELECT k, v, window_end, count(*) OVER (PARTITION BY k) AS x FROM ({GROUPS})", [never]),
    "over_all": (
        f"WITH g AS ({GROUPS}) SELECT k, v, window_end, sum(n) OVER () AS x, percent_rank() OVER (PARTITION BY k ORDER"
        " BY v) AS y FROM g",
        [never],
    ),
    "best_of_key": (
        "SELECT k, v, window_end FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS x"
        f" FROM ({GROUPS})) WHERE x = 1",
        [never],
    ),
    "above_key": (
        "SELECT window_end, max(v) AS v, sum(x) AS x FROM (SELECT v, window_end, count(*) OVER (PARTITION BY k) AS x"
        f" FROM ({GROUPS})) GROUP BY window_end",
        [never],
    ),
    "above_next": (
        "WITH g AS (SELECT v, window_end, lead(n) OVER (PARTITION BY k ORDER BY window_end) AS x"
        f" FROM ({GROUPS})) SELECT window_end, max(v) AS v, sum(x) AS x FROM g GROUP BY window_end",
        [never],
    ),
    "above_within": (
        "SELECT window_end, max(v) AS v, sum(x) AS x FROM (SELECT v, window_end, sum(n) OVER (PARTITION BY k ORDER BY"
        f" window_end RANGE BETWEEN CURRENT ROW AND INTERVAL 15 SECONDS FOLLOWING) AS x FROM ({GROUPS}))"
        " GROUP BY window_end",
        [lambda row, seen: window_end(row, seen) + timedelta(seconds=15)],
    ),
    "above_windows": (  # in windows of ten seconds, a row is followed by others for no longer than that
        "SELECT ts, max(v) AS v, sum(x) AS x FROM (SELECT ts, v, count(*) OVER (PARTITION BY k, window_end) AS x"
        " FROM {rows}) GROUP BY ts",
        [later(10)],
    ),
    "over_some": (
        f"SELECT k, v, ts, lead(v) OVER ({BY}{TIES}) AS x FROM (SELECT k, v, ts FROM s WHERE v % 4 > 0)",
        [next_row(1, lambda row: (row[0], row[1] % 4 > 0))],
    ),
    "twice": (
        f"SELECT k, v, ts, x, lead(x) OVER ({BY}{TIES}) AS y FROM"
        f" (SELECT k, v, ts, lead(v) OVER ({BY}{TIES}) AS x FROM s)",
        [never],
    ),
}


@engine
@given(st.integers(0, 10**6))
def test_a_row_is_shown_once_and_as_soon_as_it_is_final(spark: SparkSession, seed: int) -> None:
    names = ["in_window", "next", "mixed", "rising", "groups", "over_all"]
    check_rows_are_shown_when_final(spark, seed, names, smallest=4)


@engine
@given(st.integers(0, 10**6))
def test_groups_of_such_rows_are_shown_when_all_of_these_are_final(spark: SparkSession, seed: int) -> None:
    names = ["above_key", "above_next", "above_within", "above_windows"]
    check_rows_are_shown_when_final(spark, seed, names, smallest=4)


@pytest.mark.slow
@engine
@given(st.integers(0, 10**6))
def test_rows_of_all_queries_are_shown_as_soon_as_they_are_final(spark: SparkSession, seed: int) -> None:
    check_rows_are_shown_when_final(spark, seed, list(QUERIES), smallest=1)


def check_rows_are_shown_when_final(spark: SparkSession, seed: int, names: list[str], smallest: int) -> None:
    """Over rows on time, cut into runs at random, a row comes in the run that makes it final, none is taken back, and
    at the end the answer is Spark's."""
    queries = {name: QUERIES[name] for name in names}
    chance = random.Random(seed)
    rows: list[Row] = []
    for number in range(16):  # no two rows have the same value
        late = NOON + timedelta(seconds=4 * number - chance.randint(0, LAG - 1))
        rows.append((chance.choice("ab"), (7 * number) % 16, late))
    with Harness(None, spark) as home:
        home.sql(f"CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL {LAG} SECONDS)")
        for name, (query, _) in queries.items():
            text = query.format(rows="TUMBLE(s, ts, INTERVAL 10 SECONDS)", then="")
            home.sql(f"CREATE VIEW {name} AS {text} EMIT ON WINDOW CLOSE")
        runs: dict[int, int] = {}  # after how many rows, by version
        taken = 0
        while taken < len(rows):
            size = chance.randint(smallest, 6)
            home.insert("s", rows[taken : taken + size])
            taken = min(taken + size, len(rows))
            runs[home.session.version] = taken
        home.advance("s")
        assert home.query("SELECT sum(late_rows) FROM sys.runs") == [(0,)]
        spark.createDataFrame(rows, "k STRING, v INT, ts TIMESTAMP").createOrReplaceTempView("s")
        for name, (query, waits) in queries.items():
            text = query.format(rows=f"(SELECT *, {ENDS} AS window_end FROM s)", then=", k, v")
            answer = spark.sql(text)
            place = answer.columns.index("v")
            expected = [tuple(row) for row in answer.collect()]
            assert_same_rows(home.table(name), expected, f"{name} of {seed}")
            changes = home.changes(name)
            assert all(change.diff > 0 for change in changes), f"{name} of {seed} took rows back: {changes}"
            for version, count in runs.items():
                shown = {change.row[place] for change in changes if change.version <= version}
                final = final_values(rows[:count], waits) & {row[place] for row in expected}
                assert shown == final, f"{name} of {seed} after {count} rows"


def final_values(seen: list[Row], waits: list[Waits]) -> set[int]:
    """The values of the rows that are final beside the rows there are."""
    progress = max(row[2] for row in seen) - timedelta(seconds=LAG)
    times = {row[1]: [each(row, seen) for each in waits] for row in seen}
    return {value for value, needed in times.items() if all(time is not None and time < progress for time in needed)}


def test_what_rows_wait_for_is_said(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")

    def told(call: str, words: str) -> str:
        query = f"SELECT k, ts, {call} AS x FROM s EMIT ON WINDOW CLOSE"
        assert any(words in line for (line,) in home.query(f"EXPLAIN {query}"))
        return query

    end = "emits at the end of its streams: its window functions look at rows that may still come"
    query = told(f"ntile(2) OVER ({BY})", end)
    assert f"v {end}" in (home.session.sql(f"CREATE VIEW v AS {query}").message or "")
    told(f"lead(v) OVER ({BY})", "emits a row when progress is past the next row of its partition; late rows")
    told(
        f"lead(v, 2) OVER ({BY}) + sum(v) OVER ({BY} RANGE BETWEEN CURRENT ROW AND INTERVAL 5 SECONDS FOLLOWING)",
        "emits a row when progress is 5 seconds past it and past the 2nd next row of its partition; late rows",
    )


def test_rows_that_wait_show_what_they_wait_for(home: Harness) -> None:
    """Without it nothing tells which rows of an answer are final."""
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    groups = GROUPS.format(rows="TUMBLE(s, ts, INTERVAL 10 SECONDS)")
    for call in ("count(*) OVER (PARTITION BY k)", "lead(n) OVER (PARTITION BY k ORDER BY window_end)"):
        with pytest.raises(NotSupported, match="depend on rows that may still arrive, and no output column shows"):
            home.sql(f"CREATE VIEW v AS SELECT k, {call} AS x FROM ({groups}) EMIT ON WINDOW CLOSE")


def test_views_above_views_wait_for_what_these_look_at(home: Harness) -> None:
    """A row on time takes nothing back, however many views are between it and the one that waits."""
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 20 SECONDS)")
    rows = "TUMBLE(s, ts, INTERVAL 10 SECONDS)"
    home.sql(f"CREATE VIEW g AS SELECT k, count(*) AS n, window_start, window_end FROM {rows} GROUP BY ALL")
    home.sql("CREATE VIEW whole AS SELECT n, window_end, sum(n) OVER (PARTITION BY k) AS x FROM g")
    home.sql("CREATE VIEW shaped AS SELECT x + 0 AS x, window_end AS e FROM whole WHERE n > 0")
    message = home.session.sql(
        "CREATE VIEW ends AS SELECT e, sum(x) AS x FROM shaped GROUP BY e EMIT ON WINDOW CLOSE"
    ).message
    assert "ends emits at the end of its streams: its window functions look at rows that may still come" in str(message)
    home.sql("CREATE VIEW hops AS SELECT w.window_end AS e, sum(x) AS x FROM TUMBLE(shaped, e, INTERVAL 20 SECONDS)"
             " AS w GROUP BY w.window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    home.sql("CREATE VIEW starts AS SELECT w.window_end AS e, sum(n) AS x FROM TUMBLE(g, window_start, INTERVAL 5"
             " SECONDS) AS w GROUP BY w.window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    for key, second in (("a", 1), ("b", 25), ("a", 6), ("b", 29)):
        home.insert("s", [(key, second, NOON + timedelta(seconds=second))])
        assert [name for name in ("ends", "hops", "starts") if home.changes(name)] == [], second
        assert home.query("SELECT count(*) > 0 FROM sys.progress") == [(True,)]
    home.insert("s", [("b", 36, NOON + timedelta(seconds=36))])  # what starts before 5 has ended before 16
    assert home.table("starts") == [(NOON + timedelta(seconds=5), 2)]
    home.advance("s")
    assert all(change.diff > 0 for name in ("ends", "hops", "starts") for change in home.changes(name))
    ends = {10: 2, 30: 3, 40: 3}
    assert home.table("ends") == [(NOON + timedelta(seconds=end), x) for end, x in ends.items()]
    assert home.table("hops") == [(NOON + timedelta(seconds=end), x) for end, x in {20: 2, 40: 3, 60: 3}.items()]


def test_a_late_row_corrects_what_was_final(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql(f"CREATE VIEW w AS SELECT v, ts, lead(v) OVER ({BY}) AS x FROM s EMIT ON WINDOW CLOSE")
    at = [NOON + timedelta(seconds=second) for second in range(10)]
    home.insert("s", [("a", 1, at[1]), ("a", 5, at[5]), ("b", 9, at[9])])
    assert home.table("w") == [(1, at[1], 5)]
    home.insert("s", [("a", 3, at[3])])
    assert home.table("w") == [(1, at[1], 3), (3, at[3], 5)]
    home.reopen()
    home.advance("s")
    assert home.table("w") == [(1, at[1], 3), (3, at[3], 5), (5, at[5], None), (9, at[9], None)]
