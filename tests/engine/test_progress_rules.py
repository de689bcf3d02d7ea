"""Progress over runs, rule by rule: what rows move it, which of them are late, and windows that close key by key."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.algebra import progress as progress_algebra
from anabranch.errors import QueryFailed, SqlError
from anabranch.testing import FakeClock, Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
WINDOWS = "TUMBLE({}, ts, INTERVAL 10 SECONDS)"


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def progress(home: Harness, stream: str) -> datetime | None:
    ((bound,),) = home.query(f"SELECT progress FROM sys.progress WHERE kind = 'stream' AND stream = '{stream}'")
    return bound


def late(home: Harness, stream: str) -> list[int]:
    return [run["late_rows"] for run in home.runs(stream) if run["kind"] == "insert"]


def insert(home: Harness, stream: str, *rows: tuple[str | None, int]) -> None:
    home.insert(stream, [(key, after(seconds)) for key, seconds in rows])


def test_ordered_and_lagging_rows(home: Harness) -> None:
    home.sql("CREATE STREAM o (k STRING, ts TIMESTAMP, WATERMARK FOR ts ORDERED)")
    home.sql("CREATE STREAM l (k STRING, ts TIMESTAMP, WATERMARK FOR ts LAGGING 2 ROWS)")
    home.sql("CREATE STREAM whole (k STRING, ts TIMESTAMP, WATERMARK FOR ts LAGGING 2 ROWS)")
    rows = [("a", 1), ("a", 5), ("a", 5), ("a", 3), ("a", 9), ("a", 4)]
    for row in rows:
        insert(home, "o", row)
        insert(home, "l", row)
    insert(home, "whole", *rows)
    assert progress(home, "o") == after(9)
    assert late(home, "o") == [0, 0, 0, 1, 0, 1], "an equal time in the next run is not late"
    assert progress(home, "l") == progress(home, "whole") == after(5)
    assert late(home, "l") == [0, 0, 0, 0, 0, 1]


def test_a_bound_that_spark_computes(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS date_trunc('minute', ts))")
    home.sql("CREATE STREAM d (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS * 2)")
    for seconds in (61, 119, 30, 185):
        insert(home, "s", ("a", seconds))
        insert(home, "d", ("a", seconds))
    assert progress(home, "s") == after(180)
    assert late(home, "s") == [0, 0, 1, 0]
    assert progress(home, "d") == after(175)
    with pytest.raises(SqlError, match=r"not a time, but of type STRING") as raised:
        home.sql("CREATE STREAM x (ts TIMESTAMP, WATERMARK FOR ts AS CAST(ts AS STRING))")
    assert raised.value.text[raised.value.start : raised.value.end] == "CAST(ts AS STRING)"


def test_rows_that_mark_progress_are_no_data(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts FROM PUNCTUATION WHERE k = 'mark')")
    group = f"FROM {WINDOWS.format('s')} GROUP BY window_start, window_end"
    home.sql(f"CREATE VIEW v AS SELECT window_start, count(*) AS c {group} EMIT ON WINDOW CLOSE")
    home.sql(f"CREATE VIEW dropping AS SELECT window_start, count(*) AS c {group} EMIT ON WINDOW CLOSE LATE DROP")
    home.sql("CREATE VIEW n AS SELECT count(*) AS c FROM s")
    insert(home, "s", ("a", 1), ("b", 12))
    assert progress(home, "s") is None
    # The mark in the middle counts at the end of the run: what stands behind it is not late yet.
    insert(home, "s", ("a", 3), ("mark", 10), ("a", 4))
    assert progress(home, "s") == after(10)
    insert(home, "s", ("a", 5), ("a", 13))
    assert late(home, "s") == [0, 0, 1]
    assert home.table("n") == [(6,)]
    assert len(home.table("s")) == 6
    assert home.table("v") == [(after(0), 4)]
    assert home.table("dropping") == [(after(0), 3)]
    assert home.query("SELECT view, rows FROM sys.late_rows ORDER BY view") == [("dropping", 1), ("v", 1)]
    with pytest.raises(SqlError, match="this is not a condition, but of type INT"):
        home.sql("CREATE STREAM x (n INT, ts TIMESTAMP, WATERMARK FOR ts FROM PUNCTUATION WHERE n + 1)")


def test_marks_in_files_are_left_out_when_they_are_read_again(home: Harness, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [f"{key},{after(seconds):%Y-%m-%d %H:%M:%S}\n" for key, seconds in [("a", 1), ("mark", 10), ("b", 12)]]
    (tmp_path / "in" / "1.csv").write_text("".join([*lines, "b,not a time\n"]))
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP) WATERMARK FOR ts FROM PUNCTUATION WHERE k = 'mark'"
             f" FROM files(path => '{tmp_path}/in/*.csv')")  # fmt: skip
    home.sql("CREATE VIEW v AS SELECT k, count(*) AS c FROM s GROUP BY k")
    assert home.table("v") == [("a", 1), ("b", 1)]
    assert [key for key, _ in home.table("s")] == ["a", "b"]
    home.sql("CREATE VIEW again AS SELECT k, count(*) AS c FROM s GROUP BY k")
    assert home.table("again") == [("a", 1), ("b", 1)]
    ((rows, bad),) = home.query("SELECT rows, bad_rows FROM sys.progress WHERE kind = 'stream'")
    assert (rows, bad) == (2, 1)
    assert home.query("SELECT raw FROM sys.bad_rows") == [("b,not a time",)], "a mark is no bad row"


def test_windows_close_key_by_key(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts ORDERED PER KEY k)")
    group = f"FROM {WINDOWS.format('s')} GROUP BY window_start, window_end"
    home.sql(f"CREATE VIEW keyed AS SELECT window_start, k, count(*) AS c {group}, k EMIT ON WINDOW CLOSE")
    home.sql(f"CREATE VIEW all_keys AS SELECT window_start, count(*) AS c {group} EMIT ON WINDOW CLOSE")
    home.sql(
        "CREATE VIEW node AS SELECT window_start, k, count(*) + 0 AS c, max(ts) AS last"
        f" {group}, k HAVING count(*) > 0 EMIT ON WINDOW CLOSE"
    )
    insert(home, "s", ("a", 1), ("b", 2), (None, 3))
    insert(home, "s", ("a", 15))
    assert progress(home, "s") == after(2)
    assert home.table("keyed") == [(after(0), "a", 1)]
    assert home.query("SELECT window_start, k, c FROM node") == [(after(0), "a", 1)]
    assert home.table("all_keys") == []
    insert(home, "s", ("a", 4), ("b", 5))  # a is late, b is not
    assert late(home, "s") == [0, 0, 1]
    by_key = "SELECT partition, late_rows, ahead_rows FROM sys.progress WHERE kind = 'key' ORDER BY partition"
    assert home.query(by_key) == [(None, 0, 0), ("a", 1, 0), ("b", 0, 0)]
    assert home.table("keyed") == [(after(0), "a", 2)]
    assert home.query("SELECT window_start, k, c FROM node") == [(after(0), "a", 2)]
    insert(home, "s", ("b", 11), (None, 21))
    assert progress(home, "s") == after(11)
    assert home.table("keyed") == [(after(0), None, 1), (after(0), "a", 2), (after(0), "b", 2)]
    assert home.table("all_keys") == [(after(0), 5)]
    keys = home.query("SELECT partition, progress FROM sys.progress WHERE kind = 'key' ORDER BY partition")
    assert keys == [(None, after(21)), ("a", after(15)), ("b", after(11))]
    home.advance("s")
    assert home.emitted("keyed") == home.batch(f"SELECT window_start, k, count(*) AS c {group}, k", s=home.table("s"))
    assert len(home.table("node")) == len(home.table("keyed"))


def test_a_view_made_late_closes_key_by_key_too(home: Harness) -> None:
    home.sql("CREATE STREAM s (k INT, ts TIMESTAMP, WATERMARK FOR ts LAGGING 1 ROW PER KEY k)")
    home.insert("s", [(1, after(1)), (1, after(25)), (1, after(26)), (2, after(2))])
    assert progress(home, "s") is None, "one row of 2 says nothing"
    group = f"FROM {WINDOWS.format('s')} GROUP BY window_start, window_end, k"
    home.sql(f"CREATE VIEW v AS SELECT window_start, k, count(*) AS c {group} EMIT ON WINDOW CLOSE")
    assert home.table("v") == [(after(0), 1, 1)]
    home.reopen()
    home.insert("s", [(1, after(31)), (1, after(32))])
    assert home.table("v") == [(after(0), 1, 1), (after(20), 1, 2)]


def test_marks_by_key(home: Harness) -> None:
    home.sql(
        "CREATE STREAM s (k STRING, done BOOLEAN, ts TIMESTAMP, WATERMARK FOR ts FROM PUNCTUATION WHERE done PER KEY k)"
    )
    group = f"FROM {WINDOWS.format('s')} GROUP BY window_start, window_end, k"
    home.sql(f"CREATE VIEW v AS SELECT window_start, k, count(*) AS c {group} EMIT ON WINDOW CLOSE")
    home.insert("s", [("a", False, after(1)), ("b", None, after(2)), ("a", True, after(10))])
    assert (progress(home, "s"), home.table("v")) == (None, [(after(0), "a", 1)])
    home.insert("s", [(None, True, after(20))])
    assert (progress(home, "s"), home.table("v")) == (after(20), [(after(0), "a", 1), (after(0), "b", 1)])


def test_keys_idle_by_the_times_of_the_rows(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts ORDERED PER KEY k IDLE AFTER '1 minute')")
    insert(home, "s", ("a", 0), ("b", 0))
    insert(home, "s", ("a", 59))
    assert progress(home, "s") == after(0)
    insert(home, "s", ("a", 60))
    assert progress(home, "s") == after(60)


def test_keys_of_a_live_stream_idle_by_the_clock(tmp_path: Path, spark: SparkSession) -> None:
    clock = FakeClock(NOON)
    with Harness(tmp_path / "home", spark, clock=clock) as live:
        live.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT, WATERMARK FOR timestamp ORDERED PER KEY value"
                 " IDLE AFTER INTERVAL 5 SECONDS) FROM rate(rows_per_second => 1)")  # fmt: skip
        live.table("r")
        clock.forward(4)
        assert len(live.table("r")) == 4  # each row has a key of its own
        assert progress(live, "r") == after(0)
        clock.forward(5)
        live.table("r")
        assert progress(live, "r") == after(4)
        ((keys,),) = live.query("SELECT count(*) FROM sys.progress WHERE kind = 'key'")
        assert keys == 5, "those that are idle are forgotten"


def test_too_many_keys_are_an_error_that_says_so(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_algebra, "MOST_KEYS", 3)
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts ORDERED PER KEY k)")
    insert(home, "s", ("a", 0), ("b", 0), ("c", 0))
    with pytest.raises(QueryFailed, match=r"stream s: progress by key would keep 4 keys .* at most 3") as raised:
        insert(home, "s", ("d", 0))
    assert "IDLE AFTER" in (raised.value.hint or "")
    assert len(home.table("s")) == 3, "nothing of the run stays"
