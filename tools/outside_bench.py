"""Measures tables outside: what push-down spares, and how many keys are looked up in a second.

Of Postgres it starts a server; of SQLite and DuckDB it makes a file.

.venv/bin/python tools/outside_bench.py [--kind postgres] [--rows 10000000] [--keys 20000]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as parquet

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import anabranch
from sources import postgres_server
from sources.database_files import DatabaseFile

TIMES = 7
#: One row in 10^6 by a column without an index; one by the key; and what no database is told: all is loaded.
QUESTIONS = {"no index": "code = 77", "key": "id = 7777", "loading": "concat(CAST(code AS STRING), '') = '77'"}
#: A sum that is computed there, and one that Spark computes of what was loaded.
TOTALS = {"sum": "sum(code)", "sum of what is loaded": "sum(code % 1000000)"}
#: How a table of so many rows is made.
TABLES = {
    "postgres": (
        "CREATE TABLE big (id bigint primary key, code int, name text, amount numeric(12,2), at timestamptz)",
        "INSERT INTO big SELECT i, i::bigint * 7919 % 1000000, 'name ' || i, i * 0.01, timestamptz '2026-01-01'"
        " + i * interval '1 second' FROM generate_series(1, {}) i",
        "ANALYZE big",
    ),
    "sqlite": (
        "CREATE TABLE big (id INTEGER PRIMARY KEY, code INT, name TEXT, amount DECIMAL(12,2), at TIMESTAMP)",
        "INSERT INTO big WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {}) SELECT i,"
        " i * 7919 % 1000000, 'name ' || i, i / 100.0, datetime(1767225600 + i, 'unixepoch') FROM s",
    ),
    "duckdb": (
        "CREATE TABLE big (id BIGINT PRIMARY KEY, code INT, name VARCHAR, amount DECIMAL(12,2), moment TIMESTAMPTZ)",
        "INSERT INTO big SELECT i, i * 7919 % 1000000, 'name ' || i, i / 100, TIMESTAMPTZ '2026-01-01 00:00:00+00'"
        " + i * INTERVAL 1 SECOND FROM range(1, {} + 1) s(i)",
    ),
}


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """How long something takes: the median of some tries, after one that does not count."""
    taken = []
    for _ in range(times + (times > 1)):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return median(taken[times > 1 :])


def push_down(session: anabranch.Session, source: str) -> None:
    queries = {name: f"SELECT id, name, amount FROM {source} WHERE {test}" for name, test in QUESTIONS.items()}
    queries |= {name: f"SELECT count(*), {call} FROM {source} WHERE id > 9" for name, call in TOTALS.items()}
    taken = {
        name: seconds(lambda: session.sql(query).toArrow(), 1 if "load" in name else TIMES)  # noqa: B023
        for name, query in queries.items()
    }
    for name, each in taken.items():
        print(f"{name}: {each:.3f} s, {taken['loading'] / each:.1f} x loading", flush=True)


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


@contextmanager
def sources(kind: str, rows: int, folder: Path) -> Iterator[Callable[..., str]]:
    """How a query names the table, with options of its own."""
    statements = [each.format(rows) for each in TABLES[kind]]
    if kind != "postgres":
        file = DatabaseFile(kind, folder / "big.db")
        file.run(*statements)
        yield file.source
        return
    os.environ[postgres_server.VARIABLE] = postgres_server.PASSWORD
    with postgres_server.postgres_server() as server:
        server.run(*statements)
        yield server.source


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=tuple(TABLES), default="postgres")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=20_000)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        sources(given.kind, given.rows, Path(folder)) as source,
        anabranch.connect(Path(folder, "home")) as session,
    ):
        lookups(session, source(table="big", lookup="always"), given.rows, given.keys, Path(folder))
        push_down(session, source(table="big"))
