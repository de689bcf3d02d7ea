"""What the tests of the ledger share: small tables, drafts, and a child process that can be killed at a crash
point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

import anabranch
from anabranch.ledger import Draft, Ledger, Record, StreamRun, TableChange

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "at": list(keys)}, schema=SCHEMA)


def insert(ledger: Ledger, keys: dict[str, list[int]], **more: object) -> Record:
    """Commit these keys, one new file a table; the table is made if need be."""
    changes = {
        table: TableChange(add=(ledger.write_arrow(table, rows(*values), min(values), max(values)),))
        for table, values in keys.items()
    }
    draft = Draft("insert", tables=changes, schemas=dict.fromkeys(keys, SCHEMA), **more)  # type: ignore[arg-type]
    return ledger.commit(draft)


def run(number: int, count: int = 1, **more: object) -> StreamRun:
    return StreamRun(run=number, rows=count, captured=[f"file-{number}"], **more)  # type: ignore[arg-type]


def keys_in(ledger: Ledger, table: str, version: int | None = None) -> list[int]:
    """The keys as our own readers see them: through the file list of the records."""
    import pyarrow.parquet as parquet

    paths = ledger.snapshot(version).table_paths(ledger, table)
    return sorted(key for path in paths for key in parquet.read_table(path)["k"].to_pylist())


def keys_in_delta(home: Path, table: str) -> list[int]:
    """The keys as another tool sees them: through the Delta log, by DuckDB."""
    import duckdb

    dataset = DeltaTable(str(home / "tables" / table)).to_pyarrow_dataset()
    connection = duckdb.connect()
    connection.register("dataset", dataset)
    return sorted(key for (key,) in connection.execute("SELECT k FROM dataset").fetchall())


def delta_files(home: Path, table: str) -> set[str]:
    return {uri.rsplit("/", 1)[-1] for uri in DeltaTable(str(home / "tables" / table)).file_uris()}


def data_files(home: Path, table: str) -> set[str]:
    return {path.name for path in (home / "tables" / table).glob("*.parquet")}


def child(code: str, home: Path, crash_at: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with `home` and this module's names; perhaps killed on the way."""
    environment = dict(os.environ)
    source = str(Path(anabranch.__path__[0]).parent)
    environment["PYTHONPATH"] = os.pathsep.join([source, str(Path(__file__).parent)])
    environment.pop("ANABRANCH_CRASH_AT", None)
    if crash_at is not None:
        environment["ANABRANCH_CRASH_AT"] = crash_at
    start = f"from pathlib import Path\nfrom ledger_help import *\nhome = Path({str(home)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", start + code], env=environment, capture_output=True, text=True, timeout=120
    )


def was_killed(done: subprocess.CompletedProcess[str]) -> bool:
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == -signal.SIGKILL
