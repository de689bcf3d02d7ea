"""A process killed between the job of kernels and its commit: the run is made again, and nothing else is left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from crash_help import Processes, check_clean

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]


def test_killed_around_kernels(tmp_path: Path, processes: Processes) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    make = [
        f"CREATE STREAM r (k BIGINT, n BIGINT) FROM files(path => '{folder}/*.parquet', settle => '0s') KEEP ALL",
        "CREATE VIEW v AS SELECT k, count(*) AS c, sum(n) AS n FROM r GROUP BY k",
    ]
    settings = ["SET anabranch.backend = 'spark'", "SET anabranch.task_bytes = 1"]
    order = {"home": tmp_path / "home", "statements": [*settings, *make]}
    assert processes.run(order).clean
    take = {**order, "statements": [*settings, "SELECT count(*) FROM v"]}
    count = 0
    places = ("during-kernels", "after-kernels", "after-adopt:2", "after-files", "before-record")
    for number, place in enumerate(places):
        rows = range(count, count + 60)
        table = pa.table({"k": [n % 7 for n in rows], "n": list(rows)})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=20)
        count += 60
        killed = processes.run(take, crash_at=place)
        assert killed.killed, f"{place} was not reached: {killed.explain()}"
    where = "SELECT max(map_contains_key(milliseconds, 'partials kernel')) FROM sys.runs"
    questions = ["SELECT k, c, n FROM v ORDER BY k", "SELECT count(*), sum(n) FROM r", where]
    last = processes.run({**take, "after": questions})
    assert last.clean, last.explain()
    answer, kept, kernel = last.all("rows")
    assert answer == [[k, len(range(k, count, 7)), sum(range(k, count, 7))] for k in range(7)]
    assert kept == [[count, sum(range(count))]] and kernel == [[True]]
    check_clean(tmp_path / "home")


def test_killed_around_buckets(tmp_path: Path, processes: Processes) -> None:
    """A join whose changes come out of the job that reads a run, and an aggregate that has a job of its own."""
    make = [
        f"CREATE STREAM {name} (k BIGINT, n BIGINT, ts TIMESTAMP) WATERMARK FOR ts AS ts"
        f" FROM files(path => '{tmp_path / name}/*.parquet', settle => '0s')"
        for name in "ab"
    ]
    make += [
        "CREATE VIEW pairs AS SELECT a.k, a.n, b.n AS m FROM a JOIN b ON a.k = b.k AND b.ts >= a.ts EMIT CHANGES",
        "CREATE VIEW sums AS SELECT k, count(*) AS c, sum(n) AS n FROM a GROUP BY k EMIT CHANGES",
    ]
    for name in "ab":
        (tmp_path / name).mkdir()
    settings = ["SET anabranch.backend = 'spark'", "SET anabranch.bucket_rows = 1"]
    order = {"home": tmp_path / "home", "statements": [*settings, *make]}
    assert processes.run(order).clean
    take = {**order, "statements": [*settings, "SELECT count(*) FROM pairs"]}
    count = 0
    places = ("during-kernels:2", "after-kernels", "after-adopt:3", "after-files", "before-record")
    for number, place in enumerate(places):
        rows = range(count, count + 12)
        times = pa.array([n * 1_000_000 for n in rows], pa.timestamp("us", "UTC"))
        table = pa.table({"k": [n % 5 for n in rows], "n": list(rows), "ts": times})
        for name in "ab":
            parquet.write_table(table, tmp_path / name / f"{number}.parquet")
        count += 12
        killed = processes.run(take, crash_at=place)
        assert killed.killed, f"{place} was not reached: {killed.explain()}"
    questions = ["SELECT k, n, m FROM pairs ORDER BY n, m", "SELECT k, c, n FROM sums ORDER BY k"]
    last = processes.run({**take, "after": questions})
    assert last.clean, last.explain()
    pairs, sums = last.all("rows")
    assert pairs == [[n % 5, n, m] for n in range(count) for m in range(n, count, 5)]
    assert sums == [[k, len(range(k, count, 5)), sum(range(k, count, 5))] for k in range(5)]
    check_clean(tmp_path / "home")
