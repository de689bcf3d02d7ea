"""Sinks that write files: one a version with the changes of it, or one file with the whole table.

A file gets its name when it is complete. The file of a version is the proof that the version was written; a whole table
can be written again without harm, so that it may be behind what it says, never ahead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.errors import SinkError
from anabranch.ledger import files
from anabranch.ledger.crash import reach
from anabranch.sinks.base import Folder, Owner, explained, repeated, with_version
from anabranch.sinks.formats import METADATA, encode, refuse_types
from anabranch.types import Field


class ChangeFiles:
    """`v000000000017.parquet` has the changes of version 17; the first file has the whole answer, as insertions."""

    whole = False

    def __init__(self, path: Path, owner: Owner, format: str) -> None:
        self.folder = Folder(path, owner)
        self.format = format
        self._name = re.compile(rf"v([0-9]{{12,}})\.{format}")

    def check(self, fields: Sequence[Field]) -> None:
        refuse_types(self.format, fields)
        self.folder.claim()

    def position(self) -> int | None:
        if not self.folder.marked():
            return None
        found = (self._name.fullmatch(path.name) for path in self.folder.path.iterdir())
        return max((int(match.group(1)) for match in found if match is not None), default=None)

    def tidy(self) -> None:
        self.folder.tidy()

    def start(self, version: int, rows: Any) -> None:
        with explained(self.folder.path):
            self.folder.mark()
        self.apply(version, rows)

    def apply(self, version: int, changes: Any) -> None:
        if changes.num_rows == 0:
            return
        path = self.folder.path / f"v{version:012d}.{self.format}"
        with explained(self.folder.path):
            self.folder.must_be_marked()
            if path.exists():
                return
            data = encode(with_version(changes, version), self.format, {"version": version})
            reach("before-sink-file")
            files.publish(path, data)
            files.sync_folder(path.parent)
            reach("after-sink-file")


class TableFile:
    """`table.parquet` is the whole table; `table.version` says at which version, as does the Parquet file itself."""

    whole = True

    def __init__(self, path: Path, owner: Owner, format: str) -> None:
        self.folder = Folder(path, owner)
        self.format = format
        self.table = path / f"table.{format}"
        self.version = path / "table.version"

    def check(self, fields: Sequence[Field]) -> None:
        refuse_types(self.format, fields)
        self.folder.claim()

    def position(self) -> int | None:
        if not self.folder.marked() or not self.table.exists():
            return None
        try:
            if self.format == "parquet":
                from pyarrow import parquet

                recorded = json.loads(parquet.read_metadata(self.table).metadata[METADATA])
            else:
                recorded = json.loads(self.version.read_bytes())
            return int(recorded["version"])
        except FileNotFoundError:
            return None  # killed before the version was noted: the table is written again
        except Exception as error:
            raise SinkError(
                f"{self.table} does not say which version it is of", hint="delete it, and it is written again"
            ) from error

    def tidy(self) -> None:
        self.folder.tidy()

    def start(self, version: int, rows: Any) -> None:
        recorded = {"version": version}
        with explained(self.folder.path):
            self.folder.mark()
            files.replace(self.table, encode(repeated(rows), self.format, recorded))
            reach("after-sink-file")
            files.replace(self.version, json.dumps(recorded).encode() + b"\n")

    def apply(self, version: int, changes: Any) -> None:
        raise AssertionError("a table is written as a whole")
