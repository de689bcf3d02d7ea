"""An Iceberg table as a stream of its snapshots, and as a table in queries.

The position is a snapshot. What a snapshot changes is told by the files that a scan of it reads, and those that a scan
of the one before reads: rows of files that are new come, rows of files that are gone go. So rewritten files and deleted
rows are told alike; a snapshot that only replaces files, as compaction does, changes nothing. pyiceberg reads metadata
and files; many files are read by Spark's tasks.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, SourceError
from anabranch.sources.base import Stretch
from anabranch.sources.lookup import ASKING_NAMES, ASKING_OPTIONS, arrow_schema, check_asking, chosen
from anabranch.sources.once import COUNT_OPTION, ReadOnce
from anabranch.sources.registry import Kind, Opening, Option, WrongOption
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask, Table
    from pyspark.sql import SparkSession

#: Rows that a run takes at the most, about, where nobody says so; and bytes of files that are read on the driver.
MOST_ROWS, NEAR_BYTES = 1_000_000, 32 << 20
_TYPES = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "string": "string",
    "binary": "binary", "date": "date", "timestamp": "timestamp", "timestamptz": "timestamp",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_METADATA = re.compile(r"v?(\d+)(?:-.*)?\.metadata\.json")


class IcebergTable:
    """A table, by its folder or by a catalog that pyiceberg knows."""

    def __init__(self, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> None:
        self.options = {name: value for name, value in options.items() if name not in ASKING_NAMES}
        self.called = str(options.get("path", options.get("table")))
        self._declared = declared

    def load(self) -> Table:
        """The table as it is now."""
        with self.errors():
            if "catalog" in self.options:
                from pyiceberg.catalog import load_catalog

                return load_catalog(str(self.options["catalog"])).load_table(self.called)
            from pyiceberg.table import StaticTable

            return StaticTable.from_metadata(str(newest_metadata(Path(self.called.removeprefix("file://")))))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Whatever the library says, as an error of ours."""
        try:
            yield
        except AnabranchError:
            raise
        except Exception as error:
            if "equality deletes" in str(error):
                hint = "pyiceberg does not read them: compact it, as CALL system.rewrite_data_files(...) does in Spark"
                raise SourceError(f"the Iceberg table {self.called} has equality deletes", hint=hint) from error
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SourceError(f"the Iceberg table {self.called} cannot be read: {message}") from error

    def fields(self) -> tuple[Field, ...]:
        found = chosen([Field(each.name, str(each.field_type)) for each in self.load().schema().fields], None)
        natural = {field.name: spark_type(field.type) for field in found}
        taken = chosen(found, self._declared)
        for field in taken:
            if natural[field.name] is None:
                hint = f"name the columns to take, without {field.name}: CREATE TABLE t (...) FROM iceberg(...)"
                raise SourceError(f"the column {field.name} of {self.called} is a {field.type}", hint=hint)
        return tuple(
            Field(field.name, str(natural[field.name]) if self._declared is None else field.type) for field in taken
        )

    def size(self) -> int | None:
        with self.errors():
            return sum(int(task.file.record_count) for task in self.load().scan().plan_files())

    def read(self) -> pa.Table:
        return self._rows(tuple(field.name for field in self.fields()))

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        """The statistics of files pass over those without the keys; more rows than asked for do no harm."""
        from pyiceberg.expressions import AlwaysTrue, In

        types = {field.name: field.type for field in self.fields()}
        one_of: Any = In  # its arguments are not those that it declares
        plain = types[by[0]] in ("int", "bigint", "string")
        return self._rows(columns, one_of(by[0], {key[0] for key in keys}) if plain else AlwaysTrue())

    def _rows(self, columns: Sequence[str], condition: Any = "true") -> pa.Table:
        types = {field.name: field for field in self.fields()}
        with self.errors():
            found = self.load().scan(condition, selected_fields=tuple(columns)).to_arrow()
            return found.select(list(columns)).cast(arrow_schema([types[name] for name in columns]))

    def by_tasks(self, spark: SparkSession, folder: Path) -> list[str] | None:
        """Files with all rows, read by Spark's tasks; None for a table that is small."""
        with self.errors():
            table = self.load()
            pieces = [(task, 1) for task in table.scan().plan_files()]
            if not _is_large(pieces):
                return None
            return [path for path, _ in _written(table, pieces, self.fields(), "", folder, lambda: spark)]


class IcebergSource(ReadOnce):
    """The snapshots of one table."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.changes = bool(opening.options.get("changes", False))
        own = None
        if opening.fields is not None:
            own = tuple(field for field in opening.fields if not self.changes or field.name != self.count)
        self.table = IcebergTable(opening.options, own)
        self._stored: tuple[Field, ...] | None = opening.fields

    @property
    def log(self) -> str:
        return self.table.called

    def fields(self) -> tuple[Field, ...]:
        found = self.table.fields()
        if self.changes:
            self.check_count(found, self.table.called)
        return (*found, *([Field(self.count, "int")] if self.changes else []))

    def stored(self) -> tuple[Field, ...]:
        if self._stored is None:
            self._stored = self.fields()
        return self._stored

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        table = self.table.load()
        newest = table.current_snapshot()
        self.waits = False
        if newest is None or (position is not None and newest.snapshot_id == position["snapshot"]):
            return None
        with self.table.errors():
            if position is None:
                return self._taken(table, None, newest.snapshot_id, [(task, 1) for task in table.scan().plan_files()])
            pieces: list[tuple[FileScanTask, int]] = []
            last = before = int(position["snapshot"])
            for snapshot in self._since(table, before):
                pieces += self._changed(table, last, snapshot)
                last = snapshot.snapshot_id
                if sum(task.file.record_count for task, _ in pieces) >= (max_rows or MOST_ROWS):
                    break
            self.waits = last != newest.snapshot_id
            return self._taken(table, before, last, pieces)

    def _since(self, table: Table, before: int) -> list[Any]:
        """The snapshots after one that was read, the oldest first."""
        found: list[Any] = []
        snapshot = table.current_snapshot()
        while snapshot is not None and snapshot.snapshot_id != before:
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
        if snapshot is None:
            hint = "it was expired, rolled back, or the table was recreated: recreate the stream and its views"
            raise SourceError(f"the snapshot {before} of {self.table.called} is gone", hint=hint)
        return found[::-1]

    def _changed(self, table: Table, before: int, snapshot: Any) -> list[tuple[FileScanTask, int]]:
        """The files whose rows come and go with a snapshot."""
        if snapshot.summary is not None and snapshot.summary.operation.value == "replace":
            return []
        old, new = _tasks(table, before), _tasks(table, snapshot.snapshot_id)
        gone = [(task, -1) for key, task in old.items() if key not in new]
        if gone and not self.changes:
            hint = "changes => true accepts such snapshots, with a count for NET"
            raise SourceError(f"snapshot {snapshot.snapshot_id} of {self.table.called} removes rows", hint=hint)
        return [*gone, *((task, 1) for key, task in new.items() if key not in old)]

    def _taken(self, table: Table, first: int | None, last: int, pieces: list[tuple[FileScanTask, int]]) -> Stretch:
        """Also without rows: the position moves on, for snapshots are expired."""
        count = self.count if self.changes else ""
        written = _written(table, pieces, self.stored(), count, self.scratch(), self.spark)
        captured = {"snapshots": [first, last], "rows": sum(rows for _, rows in written)}
        size = sum(int(task.file.file_size_in_bytes) for task, _ in pieces)
        return self.stretch({"snapshot": last}, captured, [path for path, _ in written], size)


def _tasks(table: Table, snapshot: int) -> dict[Any, FileScanTask]:
    """The files of a snapshot, by what their rows depend on: the file, and the files that say which of its rows go."""
    found = {}
    for task in table.scan(snapshot_id=snapshot).plan_files():
        deletes = frozenset((each.file_path, getattr(each, "content_offset", None)) for each in task.delete_files)
        found[task.file.file_path, deletes] = task
    return found


def _is_large(pieces: Sequence[tuple[FileScanTask, int]]) -> bool:
    return len(pieces) > 1 and sum(int(task.file.file_size_in_bytes) for task, _ in pieces) > NEAR_BYTES


def _written(
    table: Table,
    pieces: Sequence[tuple[FileScanTask, int]],
    fields: Sequence[Field],
    count: str,
    folder: Path,
    spark: Callable[[], SparkSession],
) -> list[tuple[str, int]]:
    """Files with the rows of these, which come or go, and how many there are; many are read by Spark's tasks."""
    metadata, files = table.metadata, table.io

    def write(some: Iterable[tuple[FileScanTask, int]]) -> tuple[str, int]:
        import pyarrow as pa
        import pyarrow.parquet as parquet
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        own = [field for field in fields if field.name != count]
        schema, plain = arrow_schema(fields), arrow_schema(own)
        wanted = metadata.schema().select(*(field.name for field in own))
        path, rows = str(folder / f"iceberg-{uuid.uuid4().hex}.parquet"), 0
        with parquet.ParquetWriter(path, schema) as writer:
            for task, sign in some:
                for batch in ArrowScan(metadata, files, wanted, AlwaysTrue()).to_record_batches([task]):
                    found = pa.Table.from_batches([batch]).select(plain.names).cast(plain)
                    if count:
                        place = schema.get_field_index(count)
                        found = found.add_column(place, count, pa.array([sign] * len(found), pa.int32()))
                    writer.write_table(found)
                    rows += len(found)
        return path, rows

    if not _is_large(pieces):
        return [write(pieces)] if pieces else []
    context = spark().sparkContext
    parts = min(len(pieces), 4 * context.defaultParallelism)
    groups = [list(pieces[part::parts]) for part in range(parts)]
    found: list[tuple[str, int]] = context.parallelize(groups, parts).map(write).collect()
    return found


def newest_metadata(folder: Path) -> Path:
    """The metadata file of a table in a folder: the one that its hint names, or else that of the highest number."""
    place = folder / "metadata"
    hint = place / "version-hint.text"
    if hint.exists():
        return place / f"v{int(hint.read_text('utf-8').strip())}.metadata.json"
    numbered: dict[int, list[Path]] = {}
    for path in place.glob("*.metadata.json"):
        if match := _METADATA.fullmatch(path.name):
            numbered.setdefault(int(match.group(1)), []).append(path)
    if not numbered:
        raise WrongOption("path", f"{folder} is not the folder of an Iceberg table", hint="it has a folder metadata")
    newest = numbered[max(numbered)]
    if len(newest) > 1:
        message = f"{folder} has two metadata files of number {max(numbered)}, and only its catalog knows which counts"
        raise SourceError(message, hint="iceberg(catalog => '...', table => '...') uses the catalog")
    return newest[0]


def spark_type(type: str) -> str | None:
    """The type of a column by Iceberg's; None where there is none.

    >>> spark_type("long"), spark_type("decimal(9, 2)"), spark_type("list<int>")
    ('bigint', 'decimal(9,2)', None)
    """
    decimal = _DECIMAL.fullmatch(type)
    return f"decimal({decimal.group(1)},{decimal.group(2)})" if decimal else _TYPES.get(type)


def _check(options: Mapping[str, Any]) -> None:
    if ("path" in options) == ("catalog" in options) or ("table" in options) != ("catalog" in options):
        raise SourceError("give a path => '...', or a catalog => '...' and a table => '...'", hint="one of the two")
    check_asking(options)


KINDS = (
    Kind(
        name="iceberg",
        doc="the rows of an Iceberg table; as a stream, then those that its snapshots bring",
        example="iceberg(path => 'warehouse/shop/orders')",
        options=(
            Option(name="path", doc="the folder of the table"),
            Option(name="catalog", doc="a catalog of pyiceberg's configuration, in the place of a path"),
            Option(name="table", doc="the table in the catalog, as in 'shop.orders'"),
            Option(name="changes", type="flag", doc="of a stream: rows come and go, with a count", default=False),
            COUNT_OPTION,
            *ASKING_OPTIONS,
        ),
        stream=IcebergSource,
        table=IcebergTable,
        check=_check,
        reads_once=True,
        modules=("pyiceberg",),
        extra="iceberg",
        abilities=("rows that come and go, for NET", "cut by snapshots", "read by key"),
    ),
)
