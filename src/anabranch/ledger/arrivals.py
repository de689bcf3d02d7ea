"""Pending data files: in a table's folder, but not in any record yet.

Knows where files go and which ones vacuum must spare. Knows nothing of commits.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.ledger import files
from anabranch.ledger.commit import checked
from anabranch.ledger.records import DataFile, Record, check_table_id
from anabranch.ledger.tables import DeltaTables, plain_schema, with_statistics

if TYPE_CHECKING:
    import pyarrow as pa

#: The number of rows of a written file, and the range of their times.
Written = tuple[int, int | None, int | None]


class Arrivals:
    """The pending files of one open home; any thread may add one."""

    def __init__(self, home: Path, tables: DeltaTables) -> None:
        self._home = home
        self._tables = tables
        #: Held by vacuum while it deletes, so that no file appears between listing and deleting.
        self.lock = threading.Lock()
        self._waiting: set[tuple[str, str]] = set()

    def stage(self) -> Path:
        folder = self._home / "staging" / uuid.uuid4().hex
        with files.explained("making a staging folder", self._home):
            folder.mkdir(parents=True)
        return folder

    def adopt(self, table_id: str, staged_file: Path, rows: int, low: int | None, high: int | None) -> DataFile:
        name, path = self._new(table_id)
        with files.explained(f"moving a file into table {table_id}", self._home):
            os.rename(staged_file, path)
            return DataFile(name, rows, path.stat().st_size, low, high)

    def write_arrow(self, table_id: str, table: pa.Table, low: int | None, high: int | None) -> DataFile:
        import pyarrow.parquet as parquet

        def write(path: Path) -> Written:
            plain = table.cast(plain_schema(table.schema), safe=False)
            parquet.write_table(plain, path, **parquet_options(plain.schema))
            return table.num_rows, low, high

        return self.write(table_id, write)

    def write(self, table_id: str, write: Callable[[Path], Written]) -> DataFile:
        name, path = self._new(table_id)
        try:
            with files.explained(f"writing a file of table {table_id}", self._home):
                rows, low, high = write(path)
                return DataFile(name, rows, path.stat().st_size, low, high)
        except BaseException:
            self.discard(table_id, name)
            raise

    def discard(self, table_id: str, name: str) -> None:
        if (table_id, name) in self._waiting:
            self._waiting.discard((table_id, name))
            with contextlib.suppress(OSError):
                (self._tables.path(table_id) / name).unlink(missing_ok=True)

    def of(self, table_id: str) -> set[str]:
        """The names of a table's pending files."""
        return {name for table, name in list(self._waiting) if table == table_id}

    def unsynced(self, record: Record) -> list[Path]:
        """The files that have to be synced before the record that adds them."""
        return [self._tables.path(table) / file.path for table, change in record.tables.items() for file in change.add]

    def arrived(self, record: Record) -> None:
        """Forget the pending files that a record adds."""
        for table, change in record.tables.items():
            for file in change.add:
                self._waiting.discard((table, file.path))

    def _new(self, table_id: str) -> tuple[str, Path]:
        folder = self._tables.path(checked(check_table_id, table_id))
        name = f"part-{uuid.uuid4().hex}.parquet"
        # Before the file exists, so that vacuum never takes it for a leftover.
        with self.lock, files.explained(f"making the folder of table {table_id}", self._home):
            self._waiting.add((table_id, name))
            folder.mkdir(parents=True, exist_ok=True)
        return name, folder / name


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Options for small Parquet files that are often read and soon merged.

    Without Arrow's own copy of the schema: every reader sees the Parquet types. Dictionaries pay only for texts: for
    numbers they double the time and save hardly a byte. Integers and times are close to their neighbours: delta
    encoding is faster to write and to read.
    """
    return {
        "compression": "snappy",
        "store_schema": False,
        "use_dictionary": [field.name for field in schema if str(field.type) in ("string", "large_string")],
        "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in schema if _counted(field.type)},
        "write_statistics": with_statistics(schema),
    }


def _counted(type: pa.DataType) -> bool:
    """Whether values of a type are stored as integers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(type) or pa.types.is_timestamp(type) or pa.types.is_date32(type))
