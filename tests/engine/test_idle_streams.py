"""A live stream that is silent holds joins, unions and chunk joins until it is idle; what it sends later corrects."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.engine import system
from anabranch.errors import AnabranchError
from anabranch.plan.definitions import Stream
from anabranch.testing import FakeClock, Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
STREAM = """
CREATE STREAM {} (timestamp TIMESTAMP, value BIGINT, WATERMARK FOR timestamp ORDERED)
FROM rate({}) KEEP ALL
"""
WINDOW = "timestamp, INTERVAL 10 SECONDS"
VIEWS = {
    "rest": f"SELECT window_end AS e, count(*) AS c FROM TUMBLE(trio, {WINDOW}) GROUP BY window_start, window_end",
    "united": f"SELECT window_end AS e, count(*) AS c FROM TUMBLE(both, {WINDOW}) GROUP BY window_start, window_end",
    "joined": f"""SELECT x.window_end AS e, count(*) AS c FROM TUMBLE(a, {WINDOW}) AS x JOIN TUMBLE(b, {WINDOW}) AS y
                  ON x.window_start = y.window_start AND x.window_end = y.window_end AND x.value = y.value
                  GROUP BY x.window_start, x.window_end""",
    "chunks": """SELECT window_end AS e, count(*) AS c FROM STREAM(a, 'CUT ON timestamp BY 10 SECS', 'BLOCK') x,
                 STREAM(b, 'CUT ON timestamp BY 10 SECS', 'BLOCK') y WHERE x.value = y.value""",
    "changed": """SELECT window_end AS e, count(*) AS c FROM STREAM(a, 'CUT ON value CHANGE', 'BLOCK', 2) x,
                 STREAM(b, 'CUT ON value CHANGE', 'BLOCK', 2) y WHERE x.value = y.value""",
}  # fmt: skip


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def step(home: Harness, *names: str, silent: bool = False) -> None:
    """What a session that runs does for a stream: take what is there; if its source is silent, let the clock speak."""
    capture = home.session._capture
    for stream in home.session._core.catalog().of(Stream):
        if stream.name in names:
            _ = (None if silent else capture.step(stream)) or capture.tick(stream)


def shown(home: Harness, view: str) -> dict[float, int]:
    """The windows that a view has shown: when each ends, in seconds or rows, and what is counted in it."""
    found = home.emitted(view)
    return {(end - NOON).total_seconds() if isinstance(end, datetime) else end: count for end, count in found}


def idle(home: Harness) -> list[str]:
    """The streams that sys.progress says are idle, without taking anything in before."""
    core = home.session._core
    rows = system.frame(core, "progress", core.snapshot()).where("idle").collect()
    return sorted(row["stream"] for row in rows)


def test_an_idle_stream_is_not_waited_for(tmp_path: Path, spark: SparkSession) -> None:
    clock = FakeClock(NOON)
    with Harness(tmp_path / "home", spark, clock=clock) as home:
        home.sql(";".join(STREAM.format(name, "rows_per_second => 1") for name in "ab"))
        home.sql(STREAM.format("few", "rows_per_second => 1, rows => 5"))
        step(home, "a", "b", "few")
        clock.forward(12)
        step(home, "a", "b")
        for name, other in (("both", "a"), ("trio", "few")):
            home.sql(f"CREATE VIEW {name} AS SELECT * FROM {other} UNION ALL SELECT * FROM b")
        for name, query in VIEWS.items():
            home.sql(f"CREATE VIEW {name} AS {query} EMIT ON WINDOW CLOSE")
        clock.forward(30)
        step(home, "b")
        tens = {name: shown(home, name) for name in ("united", "joined", "chunks", "rest")}
        assert tens == {"united": {10: 20}, "joined": {10: 10}, "chunks": {10: 10}, "rest": {}}
        assert list(shown(home, "changed")) == list(range(1, 12)), "the twelfth chunk of a may still grow"
        assert idle(home) == []
        step(home, "a", silent=True)
        assert idle(home) == ["a"]
        home.reopen()
        assert shown(home, "united") == {10: 20, 20: 12, 30: 10, 40: 10}
        for view in ("joined", "chunks"):
            assert shown(home, view) == {10: 10, 20: 2}, "what is there of the windows that are over"
        assert shown(home, "changed")[13] == 1
        step(home, "a")  # rows from 12 to 41, for windows that were shown
        assert shown(home, "united") == {10: 20, 20: 20, 30: 20, 40: 20}
        for view in ("joined", "chunks"):
            assert shown(home, view) == {10: 10, 20: 10, 30: 10, 40: 10}
        assert shown(home, "changed") == {1: 1, **dict.fromkeys(range(2, 42), 2)}
        assert idle(home) == []
        clock.forward(10)
        step(home, "b")
        assert max(shown(home, "united")) == 40, "a holds again"
        wanted = [(after(10), 15), *((after(second), 10) for second in range(20, 60, 10))]
        assert home.query("SELECT e, c FROM rest ORDER BY e") == wanted, "a query looks whether streams are silent, too"
        assert idle(home) == ["few"]
        late = home.query("SELECT view, sum(rows) FROM sys.late_rows GROUP BY view ORDER BY view")
        assert late == [(name, 28) for name in ("chunks", "joined", "united")]


def test_a_silent_stream_goes_on_by_the_clock_if_it_is_told_to(tmp_path: Path, spark: SparkSession) -> None:
    mark = "WATERMARK FOR timestamp ORDERED IDLE AFTER INTERVAL 20 SECONDS THEN BY CLOCK"
    clock = FakeClock(NOON)
    with Harness(tmp_path / "home", spark, clock=clock) as home:
        home.sql(STREAM.replace("WATERMARK FOR timestamp ORDERED", mark).format("a", "rows_per_second => 1"))
        query = f"SELECT window_end AS e, count(*) AS c FROM TUMBLE(a, {WINDOW}) GROUP BY window_start, window_end"
        home.sql(f"CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE")
        step(home, "a")
        clock.forward(15)
        step(home, "a")
        assert shown(home, "v") == {10: 10}
        clock.forward(19)
        step(home, "a", silent=True)
        assert shown(home, "v") == {10: 10}
        clock.forward(16)
        home.reopen()
        step(home, "a", silent=True)
        assert shown(home, "v") == {10: 10}, "15 seconds: the second window may still get rows"
        clock.forward(5)
        step(home, "a", silent=True)
        assert shown(home, "v") == {10: 10, 20: 5}
        step(home, "a")  # rows from 15 to 54, some for a window that was shown
        assert shown(home, "v")[20] == 10


def test_the_clock_is_for_live_streams(home: Harness) -> None:
    with pytest.raises(AnabranchError, match="do not arrive live"):
        home.sql("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts ORDERED IDLE AFTER '1 minute' THEN BY CLOCK)")
