"""Measures tables of Postgres: what push-down spares, and how many keys are looked up in a second. Starts a server.

.venv/bin/python tools/outside_bench.py [--rows 10000000] [--keys 20000]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as parquet

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import anabranch
from sources import postgres_server

TIMES = 7
#: One row in 10^6 by a column without an index; one by the key; and what Postgres cannot be told: all is loaded.
QUESTIONS = {"no index": "code = 77", "key": "id = 7777", "loading": "concat(CAST(code AS STRING), '') = '77'"}


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """How long something takes: the median of some tries, after one that does not count."""
    taken = []
    for _ in range(times + (times > 1)):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return median(taken[times > 1 :])


def push_down(session: anabranch.Session, source: str) -> None:
    taken = {
        name: seconds(
            lambda: session.sql(f"SELECT id, name, amount FROM {source} WHERE {condition}").toArrow(),  # noqa: B023
            1 if name == "loading" else TIMES,
        )
        for name, condition in QUESTIONS.items()
    }
    for name, each in taken.items():
        print(f"{name}: {each:.3f} s, {taken['loading'] / each:.0f} x loading", flush=True)


def lookups(session: anabranch.Session, source: str, rows: int, keys: int, folder: Path) -> None:
    session.sql(f"CREATE TABLE big FROM {source}; CREATE STREAM s (id BIGINT, ts TIMESTAMP)")
    session.sql("CREATE VIEW v AS SELECT s.id, b.name, b.amount FROM s LEFT JOIN big b ON b.id = s.id")
    chance = random.Random(1)
    for number in range(TIMES + 1):
        ids = pa.array([chance.randrange(rows) + 1 for _ in range(keys)], pa.int64())
        times = pa.array([datetime(2026, 1, 1)] * keys, pa.timestamp("us", "UTC"))
        parquet.write_table(pa.table({"id": ids, "ts": times}), folder / f"{number}.parquet")
    time.sleep(3)  # files that were just written are waited for
    files = iter(sorted(folder.glob("*.parquet")))
    run = seconds(lambda: session.sql(f"COPY s FROM '{next(files)}'"), TIMES)
    read = seconds(lambda: session.sql("SELECT * FROM v").toArrow(), TIMES)
    print(f"runs of {keys:,} keys: {keys / run:,.0f} keys/s; then a SELECT of all {TIMES + 1} runs: {read:.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=20_000)
    given = parser.parse_args()
    os.environ[postgres_server.VARIABLE] = postgres_server.PASSWORD
    with postgres_server.postgres_server() as server, tempfile.TemporaryDirectory() as folder:
        server.run(
            "CREATE TABLE big (id bigint primary key, code int, name text, amount numeric(12,2), at timestamptz)",
            f"INSERT INTO big SELECT i, i::bigint * 7919 % 1000000, 'name ' || i, i * 0.01, timestamptz '2026-01-01'"
            f" + i * interval '1 second' FROM generate_series(1, {given.rows}) i",
            "ANALYZE big",
        )
        with anabranch.connect(Path(folder, "home")) as session:
            lookups(session, server.source(table="big", lookup="always"), given.rows, given.keys, Path(folder))
            push_down(session, server.source(table="big"))
