"""Sinks that write a Delta table: the changes, version by version, or the rows that the view shows.

A version of the view is one Delta commit, and the commit carries the version: rows and position come together. Delta
does not refuse a transaction that was there before, so the position is read from the log before each write; the home
has one writer, and that one writes its sinks one after the other.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.duck import connect, quoted
from anabranch.errors import SinkError
from anabranch.ledger import files
from anabranch.ledger.crash import reach
from anabranch.ledger.tables import with_statistics
from anabranch.sinks.base import Folder, Owner, Target, explained, repeated, with_version
from anabranch.sinks.kinds import folder_kind
from anabranch.types import Field

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

LOG = "_delta_log"
#: delta-rs takes paths for addresses, and fails over these.
ODD_SIGNS = "[]^|\\%"
#: A column for the name of a row's file; no view has one of this name.
FILE = "__anabranch_file"


class _Delta:
    """What both modes share: whose table it is, and which version is in it."""

    whole = False

    def __init__(self, path: Path, owner: Owner) -> None:
        self.folder = Folder(path, owner)
        self.owner = owner

    def check(self, fields: Sequence[Field]) -> None:
        odd = next((sign for sign in ODD_SIGNS if sign in str(self.folder.path)), None)
        if odd is not None:
            raise SinkError(
                f"a Delta table cannot be in {self.folder.path}: there is a {odd} in the path",
                hint="give a path without it",
            )
        self.folder.claim()

    def tidy(self) -> None:
        self.folder.tidy()

    def position(self) -> int | None:
        if not self.folder.marked():
            return None
        table = self._table()
        return None if table is None else self._written(table)

    def _table(self) -> DeltaTable | None:
        """The table as it is now; None before its first commit."""
        from deltalake import DeltaTable

        if not any((self.folder.path / LOG).glob("*.json")):
            return None
        return DeltaTable(str(self.folder.path))

    def _written(self, table: DeltaTable) -> int:
        """The version that the table says it is at: by its transaction, and by its last commits where it has none."""
        recorded = table.transaction_version(self.owner.application)
        if recorded is None:
            found = [each for each in table.history() if each.get("anabranch.sink") == self.owner.sink]
            recorded = max((int(each["anabranch.version"]) for each in found), default=None)
        if recorded is None:
            raise SinkError(
                f"the Delta table {self.folder.path} has no commit of this sink",
                hint="move it away, and the whole answer is written again; or drop the sink",
            )
        return int(recorded)

    def _properties(self, version: int) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata={"anabranch.sink": self.owner.sink, "anabranch.version": str(version)},
            app_transactions=[Transaction(self.owner.application, version)],
        )

    def _append(self, version: int, rows: Any, table: DeltaTable | None) -> None:
        from deltalake import write_deltalake

        reach("before-sink-commit")
        write_deltalake(
            str(self.folder.path) if table is None else table,
            rows,
            mode="error" if table is None else "append",
            commit_properties=self._properties(version),
        )
        self._sync()

    def _sync(self) -> None:
        """Bring the log to the disk; Delta leaves it to the system."""
        log = self.folder.path / LOG
        newest = max(log.glob("*.json"), default=None)
        if newest is not None:
            files.sync_file(newest)
        files.sync_folder(log)
        reach("after-sink-commit")

    def _begin(self, version: int) -> tuple[DeltaTable | None, bool]:
        """The table, and whether a version is in it already."""
        self.folder.must_be_marked()
        table = self._table()
        return table, table is not None and self._written(table) >= version


class DeltaChanges(_Delta):
    """A table of changes: the columns of the view, `_diff` and `_version`. The first commit has the whole answer."""

    def start(self, version: int, rows: Any) -> None:
        with explained(self.folder.path):
            self.folder.mark()
        self.apply(version, rows)

    def apply(self, version: int, changes: Any) -> None:
        with explained(self.folder.path):
            table, done = self._begin(version)
            if not done:
                self._append(version, with_version(changes, version), table)


class DeltaRows(_Delta):
    """A table with the rows that the view shows, each as often as the view shows it.

    Rows are matched whole: a change takes back exactly what was shown before, so that no key is needed. Only the files
    that hold a row that goes are written anew.
    """

    def start(self, version: int, rows: Any) -> None:
        with explained(self.folder.path):
            self.folder.mark()
            table, done = self._begin(version)
            if not done:
                self._append(version, repeated(rows), table)

    def apply(self, version: int, changes: Any) -> None:
        with explained(self.folder.path), contextlib.closing(connect()) as duck:
            table, done = self._begin(version)
            assert table is not None, "the answer comes first"
            if done:
                return
            names = [name for name in changes.column_names if name != "_diff"]
            columns = ", ".join(map(quoted, names))
            duck.register("changes", changes)
            duck.execute(
                f"CREATE TEMP TABLE net AS SELECT {columns}, CAST(sum(_diff) AS BIGINT) AS _diff FROM changes"
                f" GROUP BY {columns} HAVING sum(_diff) <> 0"
            )
            schema = changes.schema
            if duck.execute("SELECT count(*) FROM net WHERE _diff < 0").fetchall() == [(0,)]:
                added = _arrow(duck.sql(f"SELECT {columns}, _diff FROM net"), schema)
                if added.num_rows:
                    self._append(version, repeated(added), table)
                return
            self._rewrite(version, table, duck, names, schema)

    def _rewrite(self, version: int, table: DeltaTable, duck: Any, names: list[str], schema: Any) -> None:
        """One commit that takes out the files that hold a row that goes, and adds what is left of them."""
        # Addresses are quoted as in a browser; the files of this table are all in its folder.
        paths = [self._file(uri.rsplit("/", 1)[-1]) for uri in table.file_uris()]
        columns = ", ".join(map(quoted, names))
        alike = " AND ".join(f"live.{name} IS NOT DISTINCT FROM net.{name}" for name in map(quoted, names))
        touched: list[str] = []
        if paths:
            hit = duck.execute(
                f"SELECT DISTINCT live.{FILE} FROM read_parquet(?, filename = '{FILE}', union_by_name = true) live"
                f" JOIN net ON net._diff < 0 AND {alike}",
                [paths],
            ).fetchall()
            touched = sorted(str(path).rsplit("/", 1)[-1] for (path,) in hit)
        old = f"UNION ALL SELECT {columns}, 1 FROM read_parquet(?, union_by_name = true)" if touched else ""
        rows = _arrow(
            duck.sql(
                f"SELECT {columns}, CAST(sum(_diff) AS BIGINT) AS _diff FROM"
                f" (SELECT {columns}, _diff FROM net {old}) GROUP BY {columns} HAVING sum(_diff) <> 0",
                params=[[self._file(name) for name in touched]] if touched else [],
            ),
            schema,
        )
        if any(count < 0 for count in rows.column("_diff").to_pylist()):
            raise SinkError(
                f"the Delta table {self.folder.path} lacks rows that version {version} retracts:"
                " another process changed it",
                hint="restore it; or drop the sink, and recreate it with an empty folder",
            )
        self._replace(version, table, touched, repeated(rows))

    def _file(self, name: str) -> str:
        """A file of the table in DuckDB's spelling, in which stars and brackets in a folder's name are no pattern."""
        return re.sub(r"([*?\[])", r"[\1]", str(self.folder.path / name))

    def _replace(self, version: int, table: DeltaTable, touched: list[str], rows: Any) -> None:
        from deltalake.transaction import AddAction, RemoveAction
        from pyarrow import parquet

        now = int(time.time() * 1000)
        actions: list[Any] = [RemoveAction(name, True, now) for name in touched]
        if rows.num_rows:
            path = self.folder.path / f"part-{version:012d}-{uuid.uuid4().hex}.parquet"
            parquet.write_table(rows, path, compression="zstd", write_statistics=with_statistics(rows.schema))
            files.sync_file(path)
            stats = json.dumps({"numRecords": rows.num_rows})
            actions.insert(0, AddAction(path.name, path.stat().st_size, {}, now, True, stats))
        reach("before-sink-commit")
        table.create_write_transaction(
            actions, mode="append", schema=table.schema(), commit_properties=self._properties(version)
        )
        self._sync()


def _arrow(result: Any, schema: Any) -> Any:
    return result.to_arrow_table().cast(schema)


def _open(path: Path, options: Mapping[str, Any], owner: Owner) -> Target:
    return DeltaRows(path, owner) if options["mode"] == "table" else DeltaChanges(path, owner)


KINDS = (folder_kind("delta", "a Delta table", "delta(path => 'tables/totals', mode => 'table')", open=_open),)
