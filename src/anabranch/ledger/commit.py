"""The steps of a commit before its record: checks, and the Delta commits of the tables.

Knows drafts, snapshots and tables. The ledger publishes the record, or undoes the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed

from anabranch.errors import LedgerError
from anabranch.ledger import crash
from anabranch.ledger.records import (
    DataFile,
    Draft,
    Malformed,
    Record,
    TableChange,
    check_file_name,
    check_table_id,
    record_to_bytes,
)
from anabranch.ledger.snapshot import Snapshot, StreamState
from anabranch.ledger.tables import DeltaTables

#: More tables than this are committed to Delta in parallel.
_IN_TURN = 2


def checked(check: Callable[[str], str], name: str) -> str:
    """The name, if it passes the check; LedgerError otherwise."""
    try:
        return check(name)
    except Malformed as error:
        text = str(error)
        raise LedgerError(f"{text[0].upper()}{text[1:]}.", hint="use letters, digits, '_', '-', '.' and '='") from None


def prepare(draft: Draft, before: Snapshot, tables: DeltaTables, at: str, intent: str | None) -> Record:
    """The record of a draft, without what the Delta commits add.

    All refusals happen here, before a table is touched.
    """
    for table, change in draft.tables.items():
        _check_change(table, change, before.files.get(table), tables)
    for table in draft.schemas:
        checked(check_table_id, table)
    for name, run in draft.streams.items():
        dropped = name in draft.catalog and draft.catalog[name] is None
        done = StreamState() if dropped else before.streams.get(name, StreamState())
        if run.run != done.runs and not (run.run == done.runs - 1 and run.rows == 0):
            raise LedgerError(
                f"Run {run.run} of stream {name} cannot be committed: the next run is {done.runs}.",
                hint="a run below that is committed already; read the state again under the commit lock",
            )
    record = Record(
        version=before.version + 1,
        kind=draft.kind,
        at=at,
        streams=dict(draft.streams),
        tables=dict(draft.tables),
        catalog=dict(draft.catalog),
        applied=tuple(draft.applied),
        milliseconds=dict(draft.milliseconds),
        note=draft.note,
        intent=draft.intent or intent,
        bounds=dict(draft.bounds),
        ready=dict(draft.ready),
        passed=dict(draft.passed),
        backends=dict(draft.backends),
    )
    # Values that JSON cannot hold must be found now.
    record_to_bytes(record)
    return record


def with_commit(times: Mapping[str, float], took: float) -> dict[str, float]:
    """Milliseconds per phase with those of the commit, up to the writing of its record, if phases were measured.

    >>> with_commit({"partials": 20.0, "total": 20.0}, 5.0)
    {'partials': 20.0, 'commit': 5.0, 'total': 25.0}
    """
    if not times:
        return {}
    phases = {name: value for name, value in times.items() if name != "total"}
    return {**phases, "commit": round(took, 1), "total": round(times.get("total", 0.0) + took, 1)}


def _check_change(table: str, change: TableChange, live: dict[str, DataFile] | None, tables: DeltaTables) -> None:
    checked(check_table_id, table)
    if change.drop:
        if change.add or change.remove:
            raise LedgerError(f"Table {table} cannot be dropped and changed in one version.")
        if live is None:
            raise LedgerError(f"Table {table} cannot be dropped: there is no such table.")
        return
    folder = tables.path(table)
    there = live or {}
    for path in change.remove:
        if path not in there:
            raise LedgerError(
                f"File {path} cannot be removed from table {table}, which does not hold it.",
                hint="read the state again under the commit lock: another commit replaced the file",
            )
    names = [*change.remove, *(file.path for file in change.add)]
    if len(set(names)) != len(names):
        raise LedgerError(f"The commit names a file of table {table} twice.")
    for file in change.add:
        checked(check_file_name, file.path)
        if file.path in there:
            raise LedgerError(f"File {file.path} is in table {table} already.", hint="the commit was made before")
        try:
            size = (folder / file.path).stat().st_size
        except FileNotFoundError:
            raise LedgerError(
                f"There is no file {folder / file.path} to commit.", hint="adopt or write it first"
            ) from None
        if size != file.bytes:
            raise LedgerError(
                f"File {folder / file.path} has {size} bytes, and the commit says {file.bytes}.",
                hint="commit a file only once it is written",
            )


def touched(draft: Draft) -> list[str]:
    """The tables that a draft may change in Delta before its record."""
    dropped = {name for name, change in draft.tables.items() if change.drop}
    return [name for name in dict.fromkeys([*draft.tables, *draft.schemas]) if name not in dropped]


def commit_tables(draft: Draft, before: Snapshot, tables: DeltaTables) -> dict[str, TableChange]:
    """Commit to every Delta table of the draft; returns the change of each table for the record."""
    todo = touched(draft)
    done = {name: change for name, change in draft.tables.items() if change.drop}

    def commit_one(name: str) -> TableChange:
        change = draft.tables.get(name, TableChange())
        return tables.commit(name, change, draft.schemas.get(name), before)

    if len(todo) <= _IN_TURN:
        for name in todo:
            done[name] = commit_one(name)
            crash.reach("after-first-table-commit" if name == todo[0] else "after-next-table-commit")
    else:
        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="anabranch-commit") as pool:
            under_way = {pool.submit(commit_one, name): name for name in todo}
            for index, future in enumerate(as_completed(under_way)):
                done[under_way[future]] = future.result()
                crash.reach("after-first-table-commit" if index == 0 else "after-next-table-commit")
    # A schema without new columns is no change.
    return {name: change for name, change in done.items() if name in draft.tables or change.schema is not None}
