"""Tables of the ledger in the memory of the driver, for the nodes that are computed there run after run.

A table is loaded when it is first asked for; after that, only the files that are new. A table that is too large for
that is read from its files. The ledger is the truth: a table that has files it should not have is loaded anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.duck import connect, path_list, quoted
from anabranch.engine.core import Core
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Field
from anabranch.plan.views import duckdb_type

if TYPE_CHECKING:
    import duckdb

#: So many bytes of files are kept in memory at the most, of one table and of all.
MOST_OF_ONE, MOST_OF_ALL = 128 << 20, 512 << 20


@dataclass
class _Warm:
    name: str
    files: dict[str, DataFile]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


class Warm:
    """The warm tables of one home, and the DuckDB they are in. Used by whoever holds the commit lock."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._duck: duckdb.DuckDBPyConnection | None = None
        self._spill: Path | None = None
        self._tables: dict[tuple[str, tuple[Field, ...]], _Warm] = {}
        self._made = 0

    @property
    def duck(self) -> duckdb.DuckDBPyConnection:
        if self._duck is None:
            self._spill = self.core.ledger.stage()
            self._duck = connect(self._spill)
        return self._duck

    def close(self) -> None:
        if self._duck is not None and self._spill is not None:
            self._duck.close()
            shutil.rmtree(self._spill, ignore_errors=True)
            self._duck = None
            self._tables.clear()

    def merged(self, table: str, removed: Iterable[str], added: Iterable[DataFile]) -> None:
        """Files of a table were merged into others. If these hold the same rows, nothing has to be loaded."""
        gone, new = set(removed), {file.path: file for file in added}
        for key, warm in list(self._tables.items()):
            if key[0] != table or not gone <= warm.files.keys():
                continue
            before = sum(warm.files[path].rows for path in gone)
            if before == sum(file.rows for file in new.values()):
                warm.files = {path: file for path, file in warm.files.items() if path not in gone} | new

    def settle(self, snapshot: Snapshot) -> None:
        """Forget what has files that are not in the ledger: a commit that failed, or a merge that changed rows."""
        for key, warm in list(self._tables.items()):
            if not warm.files.keys() <= snapshot.files.get(key[0], {}).keys():
                self.duck.execute(f"DROP TABLE IF EXISTS {warm.name}")
                del self._tables[key]

    def relation(self, table: str, snapshot: Snapshot, fields: Sequence[Field]) -> str:
        """A table at a snapshot, with these columns, as a relation."""
        files = dict(snapshot.files.get(table, {}))
        if not files:
            return file_rows([], fields)
        key = (table, tuple(fields))
        warm = self._tables.get(key)
        ahead = warm is not None and not warm.files.keys() <= files.keys()  # asked for a version before the one loaded
        if ahead or not self._worth(files, warm):
            return file_rows(snapshot.table_paths(self.core.ledger, table), fields)
        new = [path for path in files if warm is None or path not in warm.files]
        folder = self.core.ledger.table_folder(table)
        if warm is None:
            self._made += 1
            warm = self._tables[key] = _Warm(f"warm_{self._made}", {})
            self.duck.execute(f"CREATE TABLE {warm.name} AS SELECT * FROM {file_rows([], fields)}")
        if new:
            found = file_rows([str(folder / path) for path in new], fields)
            self.duck.execute(f"INSERT INTO {warm.name} SELECT * FROM {found}")
            warm.files.update({path: files[path] for path in new})
        return warm.name

    def _worth(self, files: dict[str, DataFile], warm: _Warm | None) -> bool:
        size = sum(file.bytes for file in files.values())
        others = sum(each.bytes for each in self._tables.values() if each is not warm)
        return size <= MOST_OF_ONE and size + others <= MOST_OF_ALL


def file_rows(paths: list[str], fields: Sequence[Field]) -> str:
    """Files of rows as a relation with these columns."""
    if not paths:
        items = ", ".join(f"CAST(NULL AS {duckdb_type(field.type)}) AS {quoted(field.name)}" for field in fields)
        return f"(SELECT {items} WHERE false)"
    items = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in fields)
    return f"(SELECT {items} FROM read_parquet({path_list(paths)}, union_by_name = true))"
