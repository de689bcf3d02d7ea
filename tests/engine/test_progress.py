"""Progress of live sources, with the clock set by hand: the slowest partition holds it, until it is idle."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.sources import rate
from anabranch.sources.base import Stretch
from anabranch.sources.rate import RateSource
from anabranch.testing import FakeClock, Harness, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
STREAM = """
CREATE STREAM r (timestamp TIMESTAMP, value BIGINT,
                 WATERMARK FOR timestamp AS timestamp - INTERVAL 2 SECONDS IDLE AFTER INTERVAL 30 SECONDS
                                                                           AHEAD AT MOST INTERVAL 5 MINUTES)
FROM rate({})
"""


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def live(tmp_path: Path, spark: SparkSession, clock: FakeClock) -> Iterator[Harness]:
    with Harness(tmp_path / "home", spark, clock=clock) as harness:
        yield harness


def progress(home: Harness) -> datetime | None:
    ((bound,),) = home.query("SELECT progress FROM sys.progress WHERE kind = 'stream'")
    return bound


def tick(home: Harness) -> None:
    """What a session that runs does while there is nothing to take in."""
    (stream,) = (each for each in home.session._core.catalog().objects.values() if each.kind == "stream")
    home.session._capture.tick(stream)


def test_rows_come_as_the_clock_moves(live: Harness, clock: FakeClock) -> None:
    live.sql(STREAM.format("rows_per_second => 2"))
    live.sql("CREATE VIEW v AS SELECT window_start, count(*) AS c FROM TUMBLE(r, timestamp, INTERVAL 5 SECONDS)"
             " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    assert live.table("r") == []
    clock.forward(6)
    assert [value for _, value in live.table("r")] == list(range(12))
    assert progress(live) == after(3.5)
    assert live.table("v") == []
    clock.forward(4)
    assert live.table("v") == [(after(0), 10)]
    assert live.table("v") == [(after(0), 10)]
    assert sum(run["rows"] for run in live.runs("r")) == 20
    assert all(run["late_rows"] == 0 for run in live.runs("r"))


def test_the_slowest_partition_holds_progress(live: Harness, clock: FakeClock) -> None:
    live.sql(STREAM.format("rows_per_second => 1, partitions => 2"))
    live.table("r")
    clock.forward(10)
    assert len(live.table("r")) == 10  # partition 0 has come to second 8, partition 1 to second 9
    assert progress(live) == after(8 - 2)
    partitions = live.query("SELECT partition, high FROM sys.progress WHERE partition IS NOT NULL ORDER BY partition")
    assert partitions == [("0", after(8)), ("1", after(9))]
    live.advance("r", after(15))
    clock.forward(10)
    counts = "SELECT partition, late_rows, ahead_rows, idle FROM sys.progress ORDER BY partition"
    assert live.query(counts) == [(None, 5, 0, False), ("0", 3, 0, None), ("1", 2, 0, None)]


def test_a_silent_partition_holds_progress_until_it_is_idle(live: Harness, clock: FakeClock) -> None:
    live.sql(STREAM.format("rows_per_second => 1, rows => 2, partitions => 3"))
    live.sql("CREATE VIEW v AS SELECT window_start, count(*) AS c FROM TUMBLE(r, timestamp, INTERVAL 1 SECOND)"
             " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    assert len(live.table("r")) == 2
    assert progress(live) is None
    clock.forward(29)
    tick(live)
    assert progress(live) is None
    clock.forward(1)
    tick(live)
    assert progress(live) == after(1 - 2)  # all are silent now: the furthest speaks for them
    kinds = [run["kind"] for run in live.runs("r")]
    assert kinds[-1] == "idle"
    tick(live)
    assert [run["kind"] for run in live.runs("r")] == kinds  # nothing moves, nothing is committed
    live.advance("r")
    assert live.table("v") == [(after(0), 1), (after(1), 1)]


def test_rows_far_ahead_of_the_clock_do_not_move_progress(live: Harness) -> None:
    live.sql(STREAM.format("rows_per_second => 1, rows => 1000"))
    live.sql("CREATE VIEW v AS SELECT count(*) AS c FROM r")
    assert live.table("v") == [(1000,)]  # they count all the same
    assert progress(live) == after(300 - 2)


Runs = list[list[float]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs of a live source that brings what a test says: the event times of each, in seconds after noon."""
    told: Runs = []

    class Told(RateSource):
        def next(self, position: Any, max_rows: int | None) -> Stretch | None:
            run = 0 if position is None else position["run"] + 1
            return Stretch({"run": run}, run, 16) if run < len(told) else None

        def read(self, captured: list[Any]) -> DataFrame:
            rows = [(int(second * 1_000_000), run) for run in captured for second in told[run]]
            start = f"unix_micros(TIMESTAMP '{NOON}')"
            return self.spark().createDataFrame(rows, "micros BIGINT, value BIGINT").selectExpr(
                f"timestamp_micros({start} + micros) AS timestamp", "value",
                "CAST(NULL AS STRING) AS _corrupt", "'told' AS _origin", "'0' AS _partition",
            )  # fmt: skip

    monkeypatch.setattr(rate, "RateSource", Told)
    return told


FAR = 365 * 24 * 3600.0
TENS = """SELECT window_start, count(*) AS c FROM TUMBLE(r, timestamp, INTERVAL 10 SECONDS)
          GROUP BY window_start, window_end"""
COUNTS = "SELECT progress, rows, late_rows, ahead_rows FROM sys.progress WHERE kind = 'stream'"


def test_one_row_far_ahead_makes_no_honest_row_late(live: Harness, clock: FakeClock, runs: Runs) -> None:
    live.sql(STREAM.format("rows_per_second => 1"))
    live.sql(f"CREATE VIEW v AS {TENS} EMIT ON WINDOW CLOSE")
    for run, bound in (([1, 8], 6), ([7, FAR, 9], 7), ([FAR], 7), ([8, 11], 9), ([9.5, 14], 12)):
        runs.append([float(second) for second in run])
        assert live.query(COUNTS)[0][0] == after(bound), run
        clock.forward(5)
    assert live.query(COUNTS) == [(after(12), 10, 0, 2)]
    assert live.table("v") == [(after(0), 6)]
    live.advance("r")
    rows = [(after(second), index) for index, run in enumerate(runs) for second in run]
    assert_same_rows(live.table("v"), live.batch(TENS, r=rows), "the row ahead counts all the same, in its own window")
    assert live.query("SELECT * FROM sys.late_rows") == []


def test_three_runs_of_nothing_but_rows_ahead_count(live: Harness, runs: Runs) -> None:
    live.sql(STREAM.format("rows_per_second => 1"))
    live.sql(f"CREATE VIEW v AS {TENS} EMIT ON WINDOW CLOSE")
    ahead = [FAR, FAR + 3]
    for run, bound in (([1.0], -1), (ahead, -1), (ahead, -1), ([2.0, FAR], 0), (ahead, 0), (ahead, 0)):
        runs.append(run)
        assert live.query(COUNTS)[0][0] == after(bound), "an honest row in between, and the count begins anew"
    assert live.table("v") == []
    live.reopen()
    runs.append(ahead)
    assert live.query(COUNTS) == [(after(FAR + 1), 13, 0, 11)], "the runs are counted across a restart"
    assert live.table("v") == [(after(0), 2)]
    runs.append([3.0])
    assert live.table("v") == [(after(0), 3)], "now it is the clock's rows that are late, and they correct"
    assert live.query(COUNTS) == [(after(FAR + 1), 14, 1, 11)]
    live.advance("r")
    rows = [(after(second), index) for index, run in enumerate(runs) for second in run]
    assert_same_rows(live.table("v"), live.batch(TENS, r=rows))


def test_a_stream_without_a_watermark_advances_by_hand_only(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT, ts TIMESTAMP)")
    home.insert("s", [(1, NOON)])
    assert progress(home) is None
    home.advance("s", after(60))
    assert progress(home) == after(60)
    home.sql("ADVANCE STREAM s TO TIMESTAMP '2026-01-01 11:00:00'")
    assert progress(home) == after(60)
