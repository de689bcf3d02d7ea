"""Ledger tables in the memory of the driver, for nodes that are computed there in each run.

A table is loaded when it is first asked for; after that, only the files that are new. A table that is too large for
that is read from its files. The ledger is the truth: a table that has files it should not have is loaded anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.algebra.reach import Range
from anabranch.algebra.rules import highest
from anabranch.duck import Variable, connect, path_list, quoted, timestamp
from anabranch.engine.core import Core
from anabranch.engine.memory_budget import BUDGET, estimated
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.types import duckdb_type
from anabranch.types import Field

if TYPE_CHECKING:
    import duckdb

#: So many rows more than in the files do not cause a reload.
SURPLUS = 10_000

#: The column with the number of the load that added a row.
PART = "__part"


@dataclass(frozen=True)
class CachedRange:
    """The rows of an input that a join keeps in memory: those whose event time is `since` or later. None: all."""

    view: str
    input: str
    time: str
    since: int | None


@dataclass
class _CachedTable:
    name: str
    files: dict[str, DataFile]
    parts: dict[str, frozenset[int]]  # of each file, the loads that its rows came with
    since: int | None = None
    time: str = ""  # of a share, the column that `since` is about
    loads: int = 0
    surplus: int = 0  # rows that merges of the files have added up, and that are still here one by one

    def forget(self, path: str) -> None:
        del self.files[path], self.parts[path]


_Key = tuple[str, tuple[Field, ...], str, str]


class TableCache:
    """The cached tables of one home, and their DuckDB. Callers hold the commit lock."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._duck: duckdb.DuckDBPyConnection | None = None
        self._tables: dict[_Key, _CachedTable] = {}
        self._made = 0

    @property
    def duck(self) -> duckdb.DuckDBPyConnection:
        if self._duck is None:
            self._duck = connect()
        return self._duck

    def close(self) -> None:
        for key in self._tables:
            BUDGET.release((id(self), key))
        self._tables.clear()
        if self._duck is not None:
            self._duck.close()
            self._duck = None

    def merged(self, table: str, removed: Iterable[str], added: Iterable[DataFile]) -> None:
        """Files of a table were merged into others. These hold the same rows, or what changes add up to: either way
        nothing has to be loaded, until most of what is here is gone from the files, and it is much."""
        gone, new = set(removed), {file.path: file for file in added}
        for key, cached in list(self._tables.items()):
            if key[0] != table or not gone <= cached.files.keys():
                continue
            cached.surplus += sum(cached.files[path].rows for path in gone) - sum(file.rows for file in new.values())
            if cached.surplus > max(SURPLUS, sum(file.rows for file in cached.files.values())):
                continue
            parts = frozenset().union(*(cached.parts[path] for path in gone))
            for path in gone:
                cached.forget(path)
            cached.files.update(new)
            cached.parts.update(dict.fromkeys(new, parts))

    def add(
        self, table: str, snapshot: Snapshot, fields: Sequence[Field], files: Iterable[DataFile], rows: str
    ) -> None:
        """Files of a commit on its way are in a relation as well: what is in memory of their table takes them from it.

        `snapshot` is the one before the commit.
        """
        import duckdb

        key = (table, tuple(fields), "", "")
        cached = self._tables.get(key)
        if cached is None and not snapshot.files.get(table):
            cached = self._make(key, None)
        if cached is None or cached.files.keys() != snapshot.files.get(table, {}).keys():
            return
        new = {file.path: file for file in files}
        if self._fits(key, {**cached.files, **new}):
            try:
                self._load(cached, new, rows)
            except duckdb.Error:  # the files are there: this is only quicker
                self._forget(key)

    def settle(self, snapshot: Snapshot) -> None:
        """Forget what has files that are not in the ledger: a commit that failed, or merges that left little."""
        for key, cached in list(self._tables.items()):
            if not cached.files.keys() <= snapshot.files.get(key[0], {}).keys():
                self._forget(key)

    def relation(self, table: str, snapshot: Snapshot, fields: Sequence[Field]) -> str:
        """A table at a snapshot, with these columns, as a relation."""
        files = dict(snapshot.files.get(table, {}))
        if not files:
            return file_rows([], fields)
        held = self._held((table, tuple(fields), "", ""), files, None)
        return held or file_rows(snapshot.table_paths(self.core.ledger, table), fields)

    def within(self, share: CachedRange, table: str, snapshot: Snapshot, fields: Sequence[Field], times: Range) -> str:
        """The rows of a table whose event time is within bounds: those a join keeps, and from the files what it let go.

        What it keeps is what rows that come in time can meet; so the files are read for late rows only.
        """
        files = dict(snapshot.files.get(table, {}))
        key = (table, tuple(fields), share.view, share.input)
        known = self._tables.get(key)
        since = highest(share.since, known.since if known is not None else None)
        if known is not None and since is not None and since != known.since:
            self._let_go(known, since)
        low, high = times
        columns = ", ".join(quoted(field.name) for field in fields)
        held = None
        if since is not None:
            wanted = {path: file for path, file in files.items() if file.may_hold(since, None)}
            held = self._held(key, wanted, (share.time, since)) if wanted else file_rows([], fields)
        parts = []
        if held is not None:
            parts.append(f"SELECT {columns} FROM {held}{where_within(share.time, low, high)}")
        if held is None or low is None or since is None or low < since:
            least = since - 1 if held is not None and since is not None else high
            most = least if high is None or (least is not None and least < high) else high
            paths = snapshot.table_paths(self.core.ledger, table, low, None if most is None else most + 1)
            parts.append(f"SELECT {columns} FROM {file_rows(paths, fields)}{where_within(share.time, low, most)}")
        return f"({' UNION ALL '.join(parts)})"

    def keeps(self, view: str) -> bool:
        """Whether rows are in memory for the join of a view."""
        return any(key[2] == view for key in self._tables)

    def let_go(self, view: str, needed: Mapping[str, int]) -> None:
        """Evict the rows of a join's inputs that no row in time can join any more."""
        import duckdb

        for key, cached in list(self._tables.items()):
            since = needed.get(key[3]) if key[2] == view else None
            if since is not None and cached.time and (cached.since is None or cached.since < since):
                try:
                    self._let_go(cached, since)
                except duckdb.Error:  # it is all in the ledger
                    self._forget(key)

    def rows_of(self, view: str) -> int:
        """The number of rows in memory for the join of a view."""
        names = [cached.name for key, cached in self._tables.items() if key[2] == view]
        counts = [self.duck.execute(f"SELECT count(*) FROM {name}").fetchone() for name in names]
        return sum(count[0] for count in counts if count is not None)

    def _held(self, key: _Key, files: dict[str, DataFile], since: tuple[str, int] | None) -> str | None:
        """Files of a table from memory, even if others are loaded later; None if they have to be read."""
        table, fields, *_ = key
        cached = self._tables.get(key)
        new = [path for path in files if cached is None or path not in cached.files]
        beyond = [path for path in cached.files if path not in files] if cached is not None else []
        if new and beyond:
            return None
        if (new or cached is None) and not self._fits(key, files if cached is None else {**files, **cached.files}):
            if cached is not None:
                self._forget(key)
            return None
        if cached is None:
            cached = self._make(key, since)
        if new:
            folder = self.core.ledger.table_folder(table)
            found = file_rows([str(folder / path) for path in new], fields)
            where = where_within(since[0], since[1], None) if since is not None else ""
            self._load(cached, {path: files[path] for path in new}, f"{found}{where}")
        later = frozenset().union(*(cached.parts[path] for path in beyond))
        if any(later & cached.parts[path] for path in files):
            return None
        columns = ", ".join(quoted(field.name) for field in fields)
        without = f" AND {PART} NOT IN ({', '.join(map(str, sorted(later)))})" if later else ""
        return f"(SELECT {columns} FROM {cached.name} WHERE {PART} <= {cached.loads}{without})"

    def _forget(self, key: _Key) -> None:
        self.duck.execute(f"DROP TABLE IF EXISTS {self._tables.pop(key).name}")
        BUDGET.release((id(self), key))

    def _make(self, key: _Key, since: tuple[str, int] | None) -> _CachedTable:
        self._made += 1
        time, first = since if since is not None else ("", None)
        cached = self._tables[key] = _CachedTable(f"warm_{self._made}", {}, {}, first, time)
        empty = file_rows([], key[1])
        self.duck.execute(f"CREATE TEMP TABLE {cached.name} AS SELECT *, CAST(0 AS INTEGER) AS {PART} FROM {empty}")
        return cached

    def _load(self, cached: _CachedTable, files: dict[str, DataFile], rows: str) -> None:
        cached.loads += 1
        self.duck.execute(f"INSERT INTO {cached.name} SELECT *, {cached.loads} FROM {rows}")
        cached.files.update(files)
        cached.parts.update(dict.fromkeys(files, frozenset([cached.loads])))

    def _let_go(self, cached: _CachedTable, since: int) -> None:
        """Evict the rows that no row in time can join any more."""
        self.duck.execute(f"DELETE FROM {cached.name}{where_within(cached.time, None, since - 1)}")
        cached.since = since
        for path in [path for path, file in cached.files.items() if not file.may_hold(since, None)]:
            cached.forget(path)

    def _fits(self, key: _Key, files: Mapping[str, DataFile]) -> bool:
        """Whether the rows of files may fit in memory, by their numbers in the ledger, before they are loaded."""
        size = estimated(sum(file.rows for file in files.values()), (field.type for field in key[1]))
        return BUDGET.take((id(self), key), size, self.core.place.limits.held_bytes)


def where_within(time: str, low: int | None, high: int | None) -> str:
    """The condition that an event time is within bounds."""
    bounds = [f"{quoted(time)} >= {timestamp(str(low))}"] if low is not None else []
    bounds += [f"{quoted(time)} <= {timestamp(str(high))}"] if high is not None else []
    return f" WHERE {' AND '.join(bounds)}" if bounds else ""


def file_rows(paths: list[str] | Variable, fields: Sequence[Field]) -> str:
    """Files of rows as a relation with these columns."""
    if not paths:
        items = ", ".join(f"CAST(NULL AS {duckdb_type(field.type)}) AS {quoted(field.name)}" for field in fields)
        return f"(SELECT {items} WHERE false)"
    items = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in fields)
    return f"(SELECT {items} FROM read_parquet({path_list(paths)}, union_by_name = true))"
