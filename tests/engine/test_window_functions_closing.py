"""EMIT ON WINDOW CLOSE with window functions: a row is shown once it is final, and at the end all rows are."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing import Harness, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
engine = settings(settings.get_profile("engine"), max_examples=1)

NOON = datetime(2026, 1, 1, 12)
LAG = 20  # seconds
BY = "PARTITION BY k ORDER BY ts"
ENDS = "timestamp_seconds(10 * (unix_seconds(ts) div 10 + 1))"

#: Queries, and whether they show rows before the end of the stream. {0} are rows with the ends of their windows.
QUERIES = {
    "back": (f"SELECT k, v, ts, lag(v, 2) OVER ({BY}) AS x, sum(v) OVER ({BY}) AS y FROM s", True),
    "within": (
        f"SELECT k, v, ts, sum(v) OVER ({BY} RANGE BETWEEN INTERVAL 5 SECONDS PRECEDING AND INTERVAL 7 SECONDS"
        " FOLLOWING) AS x FROM s",
        True,
    ),
    "first": (f"SELECT k, v, ts FROM (SELECT k, v, ts, row_number() OVER ({BY}) AS n FROM s) WHERE n = 1", True),
    "in_window": (
        "SELECT k, v, window_end, ntile(2) OVER (PARTITION BY k, window_end ORDER BY v) AS x,"
        f" row_number() OVER ({BY}) AS y FROM {{0}}",
        True,
    ),
    "next": (f"SELECT k, v, ts, lead(v) OVER ({BY}) AS x, last_value(v) OVER ({BY} ROWS BETWEEN CURRENT ROW AND 2"
             " FOLLOWING) AS y FROM s", False),
    "best": ("SELECT k, v, ts FROM (SELECT k, v, ts, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM s)"
             " WHERE n <= 2", False),
    "hidden_window": ("SELECT k, v, ts, ntile(2) OVER (PARTITION BY k, window_end ORDER BY v) AS x FROM {0}", True),
}  # fmt: skip


@engine
@given(st.integers(0, 10**6))
def test_a_row_is_shown_once_and_final(spark: SparkSession, seed: int) -> None:
    """Over rows on time, cut into runs at random, no row is taken back, and at the end the answer is Spark's."""
    chance = random.Random(seed)
    rows: list[Any] = []
    for number in range(16):  # no two rows have the same time or value
        late = NOON + timedelta(seconds=4 * number - chance.randint(0, LAG - 1), microseconds=number)
        rows.append((chance.choice("ab"), (7 * number) % 16, late))
    with Harness(None, spark) as home:
        home.sql(f"CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL {LAG} SECONDS)")
        for name, (query, _) in QUERIES.items():
            home.sql(f"CREATE VIEW {name} AS {query.format('TUMBLE(s, ts, INTERVAL 10 SECONDS)')} EMIT ON WINDOW CLOSE")
        left = list(rows)
        while left:
            size = chance.randint(1, 6)
            home.insert("s", left[:size])
            del left[:size]
        shown = {name: len(home.table(name)) for name in QUERIES}
        home.advance("s")
        assert home.query("SELECT sum(late_rows) FROM sys.runs") == [(0,)]
        spark.createDataFrame(rows, "k STRING, v INT, ts TIMESTAMP").createOrReplaceTempView("s")
        for name, (query, early) in QUERIES.items():
            answer = spark.sql(query.format(f"(SELECT *, {ENDS} AS window_end FROM s)")).collect()
            assert_same_rows(home.table(name), [tuple(row) for row in answer], f"{name} of {seed}")
            taken = [change for change in home.changes(name) if change.diff < 0]
            assert not taken, f"{name} of {seed} took back {taken}"
            assert bool(shown[name]) == early, f"{name} of {seed} showed {shown[name]} rows before the end"


def test_what_waits_for_the_end_says_so(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    query = f"SELECT k, ts, lead(v) OVER ({BY}) AS x FROM s EMIT ON WINDOW CLOSE"
    told = "emits at the end of its streams: its window functions look at rows that may still come"
    assert any(told in line for (line,) in home.query(f"EXPLAIN {query}"))
    assert f"v {told}" in (home.session.sql(f"CREATE VIEW v AS {query}").message or "")
