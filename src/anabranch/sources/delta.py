"""A Delta table as a stream of its commits: first the rows that are there, then what each version brings.

The position is the version. Commits that add files bring rows; those that only rewrite files, as compaction does, bring
none; and one that removes rows is an error, unless the change data feed is asked for: then rows come and go, with a
count as NET reads it. Files of a table are vacuumed at some time, so rows are read once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.base import Stretch
from anabranch.sources.once import COUNT_OPTION, ReadOnce
from anabranch.sources.registry import Kind, Opening, Option
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

#: Rows of versions that a run takes at the most, about, where nobody says so.
MOST_ROWS = 1_000_000
_COUNTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


class DeltaSource(ReadOnce):
    """The commits of one table."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.path = Path(str(opening.options["path"]).removeprefix("file://")).absolute()
        self.changes = bool(opening.options.get("changes", False))
        self.declared = opening.fields

    @property
    def log(self) -> str:
        return str(self.path)

    def stored(self) -> tuple[Field, ...]:
        assert self.declared is not None
        return self.declared

    def fields(self) -> tuple[Field, ...]:
        from anabranch.engine.frames import fields_of

        table = self._table()
        self._check_feed(table)
        schema = _plain(table.to_pyarrow_dataset().schema)
        found = fields_of(self.spark().createDataFrame(schema.empty_table()))
        if self.changes:
            self.check_count(found, str(self.path))
        return (*found, *([Field(self.count, "int")] if self.changes else []))

    # ---- stretches

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        table = self._table()
        latest = int(table.version())
        if position is None:
            self._check_feed(table)
            batches = table.to_pyarrow_dataset().to_batches()
            return self._written(None, latest, (self._counted(batch, 1) for batch in batches))
        first = int(position["version"]) + 1
        if latest < first - 1:
            hint = "it was recreated, or restored from a copy: recreate the stream and its views"
            raise SourceError(f"{self.path} is at version {latest}, and version {first - 1} was read", hint=hint)
        taken: list[pa.RecordBatch] = []
        rows, last = 0, first - 1
        for version in range(first, latest + 1):
            for batch in self._of_version(table, version):
                taken.append(batch)
                rows += batch.num_rows
            last = version
            if rows >= (max_rows or MOST_ROWS):
                break
        self.waits = last < latest
        return self._written(first, last, iter(taken)) if rows else None

    def _of_version(self, table: DeltaTable, version: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as datasets

        added, removed = self._actions(version)
        if self.changes:
            if not added and not removed and not self._has_feed(version):
                return
            for batch in _batches(table.load_cdf(version, version)):
                counts = [_COUNTS[kind] for kind in batch.column("_change_type").to_pylist()]
                yield self._counted(batch, counts)
            return
        if removed:
            hint = "changes => true accepts such commits, if the table has delta.enableChangeDataFeed; or recreate it"
            raise SourceError(f"version {version} of {self.path} removes rows: {removed[0]}", hint=hint)
        if not added:
            return
        from deltalake import DeltaTable

        whole = DeltaTable(str(self.path), version=version).to_pyarrow_dataset()
        chosen = [each for each in whole.get_fragments() if each.path.lstrip("/") in added]
        if len(chosen) != len(added):
            raise SourceError(f"some files of version {version} of {self.path} are missing")
        some = datasets.FileSystemDataset(chosen, whole.schema, whole.format, chosen[0].filesystem)
        for batch in some.to_batches():
            yield self._counted(batch, 1)

    def _actions(self, version: int) -> tuple[set[str], list[str]]:
        """The paths of files that a commit adds and takes out with a change of rows."""
        from urllib.parse import unquote

        added, removed = set[str](), list[str]()
        for line in self._log(version):
            action = json.loads(line)
            for name, files in (("add", added.add), ("remove", removed.append)):
                if name in action and action[name].get("dataChange", True):
                    files(unquote(action[name]["path"]))
        return added, removed

    def _has_feed(self, version: int) -> bool:
        return any('"cdc"' in line for line in self._log(version))

    def _log(self, version: int) -> list[str]:
        try:
            return [line for line in self._log_path(version).read_text("utf-8").splitlines() if line.strip()]
        except FileNotFoundError as error:
            hint = "its log was cleaned up before it was read: recreate the stream and its views"
            raise SourceError(f"version {version} of {self.path} is gone", hint=hint) from error

    def _log_path(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020}.json"

    # ---- rows

    def _counted(self, batch: pa.RecordBatch, counts: int | list[int]) -> pa.RecordBatch:
        import pyarrow as pa

        names = [name for name in batch.schema.names if not name.startswith("_change_type") and name not in _META]
        batch = batch.select(names)
        if not self.changes:
            return batch
        values = [counts] * batch.num_rows if isinstance(counts, int) else counts
        return batch.append_column(self.count, pa.array(values, pa.int32()))

    def _written(self, first: int | None, last: int, batches: Iterator[pa.RecordBatch]) -> Stretch:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        from anabranch.engine.frames import arrow_schema

        path = self.scratch() / f"delta-{uuid.uuid4().hex}.parquet"
        count, size = 0, 0
        schema = None if self.declared is None else arrow_schema(self.declared)
        writer: parquet.ParquetWriter | None = None
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if schema is not None:
                missing = [name for name in schema.names if name not in table.column_names]
                if missing:
                    raise SourceError(f"{self.path} has no column {missing[0]} in version {last}")
                table = table.select(schema.names).cast(schema)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
            count, size = count + table.num_rows, size + table.nbytes
        if writer is not None:
            writer.close()
        captured = {"versions": [first, last], "rows": count}
        return self.stretch({"version": last}, captured, [str(path)] if count else [], size)

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(str(self.path))
        except (DeltaError, OSError) as error:
            raise SourceError(f"{self.path} is not a readable Delta table: {error}") from error

    def _check_feed(self, table: DeltaTable) -> None:
        on = table.metadata().configuration.get("delta.enableChangeDataFeed", "false").lower() == "true"
        if self.changes and not on:
            hint = "ALTER TABLE ... SET TBLPROPERTIES (delta.enableChangeDataFeed = true); or remove the option changes"
            raise SourceError(f"the table {self.path} has no change data feed", hint=hint)


_META = ("_commit_version", "_commit_timestamp")


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    yield from pa.table(reader).to_batches()


def _plain(schema: pa.Schema) -> pa.Schema:
    """A schema without the types of Arrow that Spark does not know."""
    import pyarrow as pa

    swap = {pa.string_view(): pa.string(), pa.large_string(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([pa.field(each.name, swap.get(each.type, each.type)) for each in schema])


KINDS = (
    Kind(
        name="delta",
        doc="the rows of a Delta table, and then those that its commits bring",
        example="delta(path => 'tables/orders')",
        options=(
            Option(name="path", doc="the folder of the table", required=True),
            Option(name="changes", type="flag", doc="rows that come and go, by the change data feed", default=False),
            COUNT_OPTION,
        ),
        stream=DeltaSource,
        reads_once=True,
        abilities=("rows that come and go, for NET", "cut by versions"),
    ),
)
