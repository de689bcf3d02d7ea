"""Above its limits, the driver leaves all work that grows with the data to Spark, and nobody sees a difference."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from anabranch.testing import Harness

pytestmark = pytest.mark.spark

#: Nothing is small, and nothing fits.
NOTHING = dict.fromkeys(
    ("closing_rows", "changes_rows", "state_rows", "answer_rows", "pending_keys", "session_keys", "small_rows"), 0
) | dict.fromkeys(("run_bytes", "small_run_bytes", "held_bytes"), 0)
STREAM = "CREATE STREAM s (k STRING, g INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)"
HOP = "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 30 SECONDS, INTERVAL 1 MINUTE)"
VIEWS = {
    "live": "SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k EMIT CHANGES",
    "closed": f"SELECT window_end, k, count(*) AS c, avg(n) AS a FROM {HOP} GROUP BY window_start, window_end, k, g"
    " EMIT ON WINDOW CLOSE",
    "computed": f"SELECT window_start, upper(k) AS u, sum(n) + 1 AS x FROM {HOP} GROUP BY window_start, window_end,"
    " upper(k) EMIT ON WINDOW CLOSE",
    "sessions": "SELECT k, count(*) AS c, window_end FROM SESSION(s PARTITION BY k, ts, INTERVAL 7 SECONDS)"
    " GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE",
    "live_sessions": "SELECT k, sum(n) AS n, window_start FROM SESSION(s PARTITION BY k, ts, INTERVAL 7 SECONDS)"
    " GROUP BY k, window_start, window_end EMIT CHANGES",
    "counting": "SELECT k, count(*) AS c, max(n) AS m FROM s GROUP BY k TRIGGER COUNTING 2, ON END OF STREAM",
}


def at(seconds: int) -> datetime:
    return datetime(2026, 1, 1) + timedelta(seconds=seconds)


RUNS = [
    [("a", 1, 1, at(0)), ("b", None, 2, at(5)), (None, 1, 3, at(20)), ("a", 2, None, at(31))],
    [("a", 1, 5, at(75)), ("b", None, 7, at(65)), ("B", 3, 9, at(100))],
    [("b", None, 1, at(6)), (None, 1, 4, at(21)), ("c", 1, 6, at(12)), ("a", 1, -2, at(200))],  # three are late
]


def plain(query: str) -> str:
    return query.partition(" EMIT")[0].partition(" TRIGGER")[0]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_answers_above_every_limit(tmp_path: Path, spark: SparkSession) -> None:
    """Changes, closed windows, corrections, sessions and triggers, run by run: those of the driver, and the batch's."""
    found: list[Any] = []
    for limits in ({}, NOTHING):
        with Harness(tmp_path / str(len(limits)), spark) as home:
            home.sql("; ".join(["SELECT 1 AS one", *(f"SET anabranch.{name} = {n}" for name, n in limits.items())]))
            home.sql(STREAM)
            home.insert("s", RUNS[0])
            home.sql("; ".join(f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items()))
            for run in RUNS[1:]:
                home.insert("s", run)
            home.advance("s")
            late = home.query("SELECT view, window_start, rows FROM sys.late_rows ORDER BY ALL")
            found.append(({name: home.changes(name) for name in VIEWS}, late))
            if limits:
                home.compact()
                rows = [row for run in RUNS for row in run]
                assert {name: home.emitted(name) for name in VIEWS} == {
                    name: home.batch(plain(query), s=rows) for name, query in VIEWS.items()
                }
                told = "\n".join(row[0] for row in home.query("EXPLAIN ANALYZE closed"))
                assert "in kernels, 1 bucket: 8 rows are more than anabranch.closing_rows, 0" in told, told
    assert found[0] == found[1]


def test_a_day_closes_without_its_keys_on_the_driver(
    home: Harness, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two views on a day-long window over many keys: what comes to the driver is a row a window."""
    home.sql("SET anabranch.closing_rows = 100; SET anabranch.pending_keys = 100; SET anabranch.small_rows = 20")
    home.sql("CREATE STREAM s (k INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    day = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 DAY)"
    home.sql(f"CREATE VIEW direct AS SELECT window_start, k, sum(n) AS n FROM {day} GROUP BY window_start, k"
             " EMIT ON WINDOW CLOSE")  # fmt: skip
    home.sql(f"CREATE VIEW computed AS SELECT window_start, k, sum(n) * 2 AS n FROM {day}"
             " GROUP BY window_start, window_end, k EMIT ON WINDOW CLOSE")  # fmt: skip
    rows = [(key, n, at(60 * key + n)) for n in range(2) for key in range(400)]
    home.insert("s", rows[:500])
    home.insert("s", rows[500:])
    seen: list[int] = []
    for name in ("toArrow", "collect"):
        given = getattr(DataFrame, name)

        def counted(frame: DataFrame, given: Any = given) -> Any:
            result = given(frame)
            seen.append(len(result))
            return result

        monkeypatch.setattr(DataFrame, name, counted)
    monkeypatch.setattr(spark, "createDataFrame", None)
    home.advance("s", "2026-01-02 00:00:00")
    assert seen and max(seen) <= 21
    monkeypatch.undo()
    for view, said in (
        ("direct", "rows are more than anabranch.closing_rows, 100"),
        ("computed", "by Spark, what fires too: 400 keys are more than anabranch.pending_keys, 100"),
    ):
        assert any(said in line for (line,) in home.query(f"EXPLAIN ANALYZE {view}"))
    for view, query in (("direct", "sum(n)"), ("computed", "sum(n) * 2")):
        text = f"SELECT window_start, k, {query} AS n FROM {day} GROUP BY window_start, window_end, k"
        assert home.table(view) == home.batch(text, s=rows)
