"""The Delta tables of a home, kept in step with the records.

The records are the truth; the Delta log of a table repeats it for other tools. So there are two operations: commit a
change to the Delta log, and bring the Delta log back in line with the records (`settle`). Deltalake and pyarrow are
imported when first needed: reading a home needs neither.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import LedgerError
from anabranch.ledger import delta_log, files
from anabranch.ledger.records import DataFile, TableChange
from anabranch.ledger.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

#: The longer the log since the last checkpoint, the slower a table opens. Deltalake writes a checkpoint after each
#: commit whose version, counted from 1, this divides.
CHECKPOINT_EVERY = 100
_SETTINGS: Mapping[str, str | None] = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    # Vacuum deletes files by the records: Delta's own list of deleted files is useless, and would grow with every run,
    # in its checkpoints and in memory.
    "delta.deletedFileRetentionDuration": "interval 5 minutes",
    "delta.logRetentionDuration": "interval 1 days",
}


class DeltaTables:
    """The Delta tables in one folder. Not thread-safe for one table; different tables may be used in parallel."""

    def __init__(self, folder: Path, now: Callable[[], int]) -> None:
        self.folder = folder
        self._now = now
        self._open: dict[str, DeltaTable] = {}
        #: The last Delta version of a table that is known to agree with the records.
        self._settled: dict[str, int] = {}
        #: The first version in the log of a table that may not be synced yet.
        self._unsynced: dict[str, int] = {}

    def path(self, table_id: str) -> Path:
        return self.folder / table_id

    def ids(self) -> list[str]:
        """The tables that have a folder."""
        try:
            return sorted(entry.name for entry in os.scandir(self.folder) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def commit(self, table_id: str, change: TableChange, schema: pa.Schema | None, before: Snapshot) -> TableChange:
        """Commit a change to the Delta log, to be synced with `unsynced`; returns the change for the record."""
        try:
            return self._commit(table_id, change, schema, before)
        except LedgerError:
            raise
        except Exception as error:
            if files.is_disk_full(error):
                raise
            # Another tool wrote to the table, or its log is damaged: the records decide.
            self.settle(table_id, before, thorough=True)
            try:
                return self._commit(table_id, change, schema, before)
            except Exception as again:
                raise self._failed(table_id, again) from again

    def settle(self, table_id: str, snapshot: Snapshot, thorough: bool = False) -> None:
        """Bring the Delta log of a table in line with the snapshot; does nothing if it agrees already.

        Unless `thorough`, a log that ends at the version of the last record is taken to be right without reading it.
        """
        live = snapshot.files.get(table_id)
        if live is None:
            self.forget(table_id)
            return
        version = snapshot.delta_versions.get(table_id)
        if version is not None and not thorough and delta_log.is_at(self.path(table_id), version):
            self._settled[table_id] = version
            return
        self._unsynced.setdefault(table_id, version or 0)
        schema = snapshot.schemas[table_id]
        try:
            table = self._fresh(table_id)
            if _comparable(json.loads(table.schema().to_json())) != _comparable(schema):
                # Columns of a commit that has no record: start over with the old ones, in the same log.
                self._create(table_id, schema, (), mode="overwrite")
                table = self._fresh(table_id)
        except Exception as error:
            if files.is_disk_full(error):
                raise
            # No log, or a damaged one.
            self.forget(table_id)
            self._unsynced[table_id] = 0
            self._create(table_id, schema, ())
            table = self._fresh(table_id)
        there = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
        missing = [file for name, file in live.items() if name not in there]
        surplus = sorted(there - live.keys())
        if missing or surplus:
            self._transact(table_id, [*map(self._add, missing), *map(self._remove, surplus)])
        self._settled[table_id] = self._open[table_id].version()

    def forget(self, table_id: str) -> None:
        """Delete the Delta log of a table, but not its data files."""
        self._open.pop(table_id, None)
        self._settled.pop(table_id, None)
        self._unsynced.pop(table_id, None)
        shutil.rmtree(self.path(table_id) / delta_log.FOLDER, ignore_errors=True)

    def unsynced(self, changes: Mapping[str, TableChange]) -> list[Path]:
        """The log files and folders to sync before the record of these changes: Deltalake leaves them in the system's
        cache, and a record must not outlive its log."""
        paths = []
        for table_id, change in changes.items():
            if change.delta_version is None:
                continue
            folder = self.path(table_id)
            versions = range(self._unsynced.get(table_id, change.delta_version), change.delta_version + 1)
            paths += [path for version in versions if (path := delta_log.path(folder, version)).exists()]
            paths += [folder / delta_log.FOLDER, folder]
        return paths

    def synced(self, changes: Mapping[str, TableChange]) -> None:
        """Note that the files that `unsynced` returned for changes are synced."""
        for table_id in changes:
            self._unsynced.pop(table_id, None)

    # ---- one commit

    def _commit(self, table_id: str, change: TableChange, schema: pa.Schema | None, before: Snapshot) -> TableChange:
        written: Mapping[str, Any] | None = None
        if table_id not in before.files:
            if schema is None:
                raise LedgerError(
                    f"Table {table_id} does not exist, and the commit has no schema to create it.",
                    hint="give the schema of a new table in Draft.schemas",
                )
            written = delta_schema(schema)
            # The log of a dropped table or of a failed commit may be left there.
            self.forget(table_id)
            self._unsynced[table_id] = 0
            self._create(table_id, written, change.add)
            version = self._fresh(table_id).version()
        else:
            if not delta_log.is_at(
                self.path(table_id), self._settled.get(table_id, before.delta_versions.get(table_id))
            ):
                # Another tool wrote to the table.
                self.settle(table_id, before)
            version = self._settled.get(table_id, before.delta_versions.get(table_id, -1))
            self._unsynced.setdefault(table_id, version + 1)
            wider = None if schema is None else _widened(table_id, before.schemas[table_id], delta_schema(schema))
            if wider is not None:
                written, columns = wider
                version = self._widen(table_id, columns)
            if change.add or change.remove:
                version = self._change(table_id, version + 1, change)
        self._settled[table_id] = version
        return TableChange(change.add, change.remove, version, schema=written)

    def _change(self, table_id: str, version: int, change: TableChange) -> int:
        """Add files to a table and remove others in a new version of it; returns the version.

        Through Deltalake for checkpoints, and where it has not read the log yet and so not checked it.
        """
        if table_id in self._open and (version + 1) % CHECKPOINT_EVERY:
            delta_log.append(self.path(table_id), version, change, self._now())
            return version
        return self._transact(table_id, [*map(self._add, change.add), *map(self._remove, change.remove)])

    def _create(self, table_id: str, schema: Mapping[str, Any], add: Iterable[DataFile], mode: str = "error") -> None:
        from deltalake import Schema
        from deltalake.transaction import create_table_with_add_actions

        self.path(table_id).mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            str(self.path(table_id)),
            Schema.from_json(json.dumps(schema)),
            list(map(self._add, add)),
            mode=mode,  # type: ignore[arg-type]
            configuration=_SETTINGS,
        )

    def _widen(self, table_id: str, columns: list[Any]) -> int:
        from deltalake import Schema

        table = self._current(table_id)
        there = {field.name for field in table.schema().fields}
        fresh = [column for column in columns if column["name"] not in there]
        if fresh:
            fields = Schema.from_json(json.dumps({"type": "struct", "fields": fresh})).fields
            table.alter.add_columns(list(fields))
            table.update_incremental()
        return table.version()

    def _transact(self, table_id: str, actions: list[AddAction | RemoveAction]) -> int:
        table = self._current(table_id)
        table.create_write_transaction(actions, mode="append", schema=table.schema())
        table.update_incremental()
        return table.version()

    def _add(self, file: DataFile) -> AddAction:
        from deltalake.transaction import AddAction

        return AddAction(file.path, file.bytes, {}, self._now(), True, json.dumps({"numRecords": file.rows}))

    def _remove(self, path: str) -> RemoveAction:
        from deltalake.transaction import RemoveAction

        return RemoveAction(path, True, self._now())

    def _current(self, table_id: str) -> DeltaTable:
        table = self._open.get(table_id)
        if table is None:
            return self._fresh(table_id)
        table.update_incremental()
        return table

    def _fresh(self, table_id: str) -> DeltaTable:
        from deltalake import DeltaTable

        table = DeltaTable(str(self.path(table_id)))
        self._open[table_id] = table
        return table

    def _failed(self, table_id: str, error: Exception) -> Exception:
        if isinstance(error, LedgerError | OSError) or files.is_disk_full(error):
            return error
        reason = (str(error).splitlines() or [""])[0]
        return LedgerError(
            f"The Delta table {self.path(table_id)} did not take the commit: {reason}",
            hint="nothing was committed; if another tool writes to that folder, stop it, and do it again",
        )


# ---- schemas


def delta_schema(schema: pa.Schema) -> dict[str, Any]:
    """Delta's JSON of an Arrow schema. All columns are nullable, so that columns can be added later."""
    import pyarrow as pa
    from deltalake import Schema

    fields = []
    for column in plain_schema(schema):
        try:
            fields += json.loads(Schema.from_arrow(pa.schema([column.with_nullable(True)])).to_json())["fields"]
        except Exception as error:
            raise LedgerError(
                f"Column {column.name} has type {column.type}, which a Delta table cannot hold.",
                hint="cast it to text, a number, a timestamp or a struct of these",
            ) from error
    return {"type": "struct", "fields": fields}


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of Delta's JSON, as in `Snapshot.schemas`."""
    import pyarrow as pa
    from deltalake import Schema

    return pa.schema(Schema.from_json(json.dumps(schema)).to_arrow())


def with_statistics(schema: pa.Schema) -> list[str]:
    """The columns for which a Parquet file may have minimum and maximum statistics.

    Arrow ignores NaN in these, which sorts above all numbers: a reader that uses them would skip rows with NaN.
    """
    import pyarrow as pa

    types = pa.types
    return [each.name for each in schema if not types.is_floating(each.type) and not types.is_nested(each.type)]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in types that every reader knows: timestamps in microseconds (UTC if zoned), no dictionaries."""
    import pyarrow as pa

    return pa.schema([column.with_type(_plain(column.type)) for column in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([column.with_type(_plain(column.type)) for column in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if types.is_unsigned_integer(kind):
        wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
        return wider[kind.bit_width]
    return kind


def _comparable(schema: Any) -> Any:
    """A schema without what may differ between writers of the same columns: nullability and metadata."""
    if isinstance(schema, Mapping):
        skipped = {"nullable", "metadata", "containsNull", "valueContainsNull"}
        return {key: _comparable(value) for key, value in schema.items() if key not in skipped}
    if isinstance(schema, list):
        return [_comparable(item) for item in schema]
    return schema


def _widened(table_id: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]] | None:
    """The old schema with the columns that only the new one has, and these columns; None if there are none."""
    known = {column["name"]: column for column in old["fields"]}
    columns = []
    for column in new["fields"]:
        there = known.get(column["name"])
        if there is None:
            columns.append(column)
        elif _comparable(there) != _comparable(column):
            raise LedgerError(
                f"Column {column['name']} of table {table_id} is {there['type']}, and the commit has "
                f"{column['type']} for it.",
                hint="a column keeps its type; give the new one another name, or create a new table",
            )
    return ({"type": "struct", "fields": [*old["fields"], *columns]}, columns) if columns else None
