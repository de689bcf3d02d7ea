"""A live stream that is silent holds joins, unions and chunk joins only until it is idle; what it sends later corrects."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.plan.catalog import Stream
from anabranch.testing import FakeClock, Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
STREAM = """
CREATE STREAM {} (timestamp TIMESTAMP, value BIGINT, WATERMARK FOR timestamp ORDERED)
FROM rate(rows_per_second => 1) KEEP ALL
"""
WINDOW = "timestamp, INTERVAL 10 SECONDS"
VIEWS = {
    "united": f"SELECT window_end AS e, count(*) AS c FROM TUMBLE(both, {WINDOW}) GROUP BY window_start, window_end",
    "joined": f"""SELECT x.window_end AS e, count(*) AS c FROM TUMBLE(a, {WINDOW}) AS x JOIN TUMBLE(b, {WINDOW}) AS y
                  ON x.window_start = y.window_start AND x.window_end = y.window_end AND x.value = y.value
                  GROUP BY x.window_start, x.window_end""",
    "chunks": """SELECT window_end AS e, count(*) AS c FROM STREAM(a, 'CUT ON timestamp BY 10 SECS', 'BLOCK') x,
                 STREAM(b, 'CUT ON timestamp BY 10 SECS', 'BLOCK') y WHERE x.value = y.value""",
    "counted": """SELECT window_end AS e, count(*) AS c FROM STREAM(a, 'CUT BY 10 ROWS', 'BLOCK') x,
                 STREAM(b, 'CUT BY 10 ROWS', 'BLOCK') y WHERE x.value = y.value""",
    "changed": """SELECT window_end AS e, count(*) AS c FROM STREAM(a, 'CUT ON value CHANGE', 'BLOCK', 2) x,
                 STREAM(b, 'CUT ON value CHANGE', 'BLOCK', 2) y WHERE x.value = y.value""",
}  # fmt: skip


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def step(home: Harness, *names: str, silent: bool = False) -> None:
    """What a session that runs does for a stream: take what is there, or if its source is silent, let the clock speak."""
    capture = home.session._capture
    for stream in home.session._core.catalog().of(Stream):
        if stream.name in names:
            _ = (None if silent else capture.step(stream)) or capture.tick(stream)


def test_an_idle_stream_is_not_waited_for(tmp_path: Path, spark: SparkSession) -> None:
    clock = FakeClock(NOON)
    with Harness(tmp_path / "home", spark, clock=clock) as home:
        home.sql(";".join(STREAM.format(name) for name in "ab"))
        home.sql("CREATE VIEW both AS SELECT timestamp, value FROM a UNION ALL SELECT timestamp, value FROM b")
        for name, query in VIEWS.items():
            home.sql(f"CREATE VIEW {name} AS {query} EMIT ON WINDOW CLOSE")
        home.sql("CREATE VIEW alone AS SELECT window_end AS e, count(*) AS c"
                 f" FROM TUMBLE(a, {WINDOW}) GROUP BY window_start, window_end EMIT ON WINDOW CLOSE")  # fmt: skip

        def shown(view: str) -> list[tuple[float, int]]:
            return sorted(
                ((end - NOON).total_seconds() if isinstance(end, datetime) else end, count)
                for end, count in home.emitted(view)
            )

        step(home, "a", "b")
        clock.forward(12)
        step(home, "a", "b")
        clock.forward(20)
        step(home, "b")
        for view in VIEWS:
            print(view, shown(view))
        clock.forward(10)
        step(home, "b")
        step(home, "a", silent=True)
        home.reopen()
        for view in VIEWS:
            print(view, shown(view))
        print(home.query("SELECT kind, stream, view, progress, idle FROM sys.progress ORDER BY kind, stream, view"))
        step(home, "a")
        for view in VIEWS:
            print(view, shown(view))
        print(home.query("SELECT kind, stream, view, progress, idle, late_rows FROM sys.progress ORDER BY kind, stream, view"))
        print(home.query("SELECT * FROM sys.late_rows"))
        assert 0
