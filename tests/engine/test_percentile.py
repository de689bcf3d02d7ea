"""Progress by percentile over runs: rows count in the order in which they come, however they are cut into runs."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from anabranch.engine.scan import in_order
from anabranch.testing import FakeClock, Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 1, 1, 12)
#: Seconds after noon; taken anew after the 5th, 7th, 9th, ... row, the bound is 1, 2, 2, 4, 7, 7.
TIMES = [1, 0, 5, 3, 2, 2, 4, 1, 6, 8, 7, 9, 7, 8, 42]
WATERMARK = "WATERMARK FOR ts PERCENTILE 59.9 OF 5 ROWS EVERY 2 ROWS"


def after(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def progress(home: Harness, stream: str) -> datetime | None:
    ((bound,),) = home.query(f"SELECT progress FROM sys.progress WHERE stream = '{stream}' AND partition IS NULL")
    return bound


def rows(*columns: tuple[str, list[object]]) -> pa.Table:
    return pa.table(dict(columns))


def test_rows_of_files_come_in_the_order_of_the_files() -> None:
    origins = ["file:///in/b%20c.csv", "file:///in/b%20c.csv", "file:///in/a.csv", "file:///in/b%20c.csv"]
    table = rows(("time", [3, 1, 4, 2]), ("_origin", origins))
    assert in_order(table, [""], ["/in/a.csv", "/in/b c.csv"]) == {"": [4, 3, 1, 2]}
    assert in_order(table, [""], ()) == {"": [3, 1, 4, 2]}
    empty = table.slice(0, 0)
    assert in_order(empty, [""], ["/in/a.csv", "/in/b c.csv"]) == {"": []}


def test_rows_of_partitions_are_kept_apart() -> None:
    table = rows(("time", [3, 1, 4, 2]), ("_partition", ["1", "0", "1", "0"]))
    assert in_order(table, ["0", "1", "2"], ()) == {"0": [1, 2], "1": [3, 4], "2": []}


@pytest.mark.spark
def test_where_a_run_ends_makes_no_difference(home: Harness) -> None:
    home.sql(f"CREATE STREAM whole (n INT, ts TIMESTAMP, {WATERMARK})")
    home.sql(f"CREATE STREAM cut (n INT, ts TIMESTAMP) {WATERMARK}")
    home.sql("CREATE VIEW v AS SELECT window_start, count(*) AS c FROM TUMBLE(cut, ts, INTERVAL 2 SECONDS)"
             " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    home.insert("whole", [(n, after(time)) for n, time in enumerate(TIMES)])
    bounds = []
    for start, stop in [(0, 4), (4, 6), (6, 11), (11, 15)]:
        home.insert("cut", [(n, after(time)) for n, time in enumerate(TIMES[start:stop])])
        bounds.append(progress(home, "cut"))
    assert bounds == [None, after(1), after(4), after(7)]
    assert progress(home, "whole") == after(7)
    assert home.table("v") == [(after(0), 3), (after(2), 3), (after(4), 2)]
    assert sum(run["late_rows"] for run in home.runs("cut")) == 0


@pytest.mark.spark
def test_files_count_in_the_order_in_which_they_were_written(home: Harness, tmp_path: Path) -> None:
    # Spark reads the largest file first. The bound is the lesser of two rows, one after the other, and never goes back:
    # it can be 90 only where the second file goes over into the third.
    for number, times in enumerate([[1, 50], [60, 90], [91, 2, 2, 2, 2, 2]]):
        path = tmp_path / "in" / f"{9 - number}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{'x' * 50 * number},{after(time):%Y-%m-%d %H:%M:%S}\n" for time in times))
        os.utime(path, (number + 1, number + 1))
    mark = "WATERMARK FOR ts PERCENTILE 50 OF 2 ROWS"
    home.sql(f"CREATE STREAM f (k STRING, ts TIMESTAMP, {mark}) FROM files(path => '{tmp_path}/in/*.csv')")
    home.sql("CREATE VIEW v AS SELECT count(*) AS c FROM f")
    assert home.table("v") == [(10,)]
    assert progress(home, "f") == after(90)
    assert len([run for run in home.runs("f") if run["rows"]]) == 1
    home.sql(f"CREATE STREAM c (k STRING, ts TIMESTAMP, {mark})")
    home.sql(f"COPY c FROM '{tmp_path}/in/*.csv'")
    assert progress(home, "c") == after(90)


@pytest.mark.spark
def test_the_slowest_partition_holds_the_bound(tmp_path: Path, spark: SparkSession) -> None:
    clock = FakeClock(NOON)
    with Harness(tmp_path / "home", spark, clock=clock) as live:
        live.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT, WATERMARK FOR timestamp PERCENTILE 100 OF 3 ROWS)"
                 " FROM rate(rows_per_second => 1, partitions => 2)")  # fmt: skip
        live.table("r")
        clock.forward(10)
        assert len(live.table("r")) == 10
        # The lowest of the last three in each: seconds 4, 6 and 8, and seconds 5, 7 and 9.
        assert progress(live, "r") == after(4)
        partitions = live.query("SELECT partition, progress FROM sys.progress WHERE partition IS NOT NULL")
        assert sorted(partitions) == [("0", after(4)), ("1", after(5))]
