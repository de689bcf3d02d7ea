"""The log of a Delta table, one file a version, for commits that only add and remove files.

Deltalake reloads the table's state for each commit, which is a line of text per file; so such commits are written here.
Knows names and lines, not the contents of the table or when a checkpoint is due.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

from anabranch.ledger import files
from anabranch.ledger.records import TableChange

FOLDER = "_delta_log"


def path(table: Path, version: int) -> Path:
    """The log file of a version of the table in a folder."""
    return table / FOLDER / f"{version:020}.json"


def is_at(table: Path, version: int | None) -> bool:
    """Whether a log ends at a version."""
    return version is not None and path(table, version).exists() and not path(table, version + 1).exists()


def append(table: Path, version: int, change: TableChange, now: int) -> None:
    """Write the next version of a log, without a sync; FileExistsError if another process has written it.

    The temporary file is in the folder of the table, where the next vacuum finds the leftovers of dead processes.
    """
    temporary = table / f"{files.TEMPORARY}{uuid.uuid4().hex}"
    try:
        temporary.write_text("".join(f"{line}\n" for line in _lines(change, now)), "utf-8")
        files.give_name(temporary, path(table, version))
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _lines(change: TableChange, now: int) -> Iterator[str]:
    done = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "engineInfo": "anabranch",
    }
    yield json.dumps({"commitInfo": done})
    for file in change.add:
        added = {
            "path": file.path,
            "partitionValues": {},
            "size": file.bytes,
            "modificationTime": now,
            "dataChange": True,
            "stats": json.dumps({"numRecords": file.rows}),
        }
        yield json.dumps({"add": added})
    for name in change.remove:
        yield json.dumps({"remove": {"path": name, "deletionTimestamp": now, "dataChange": True}})
