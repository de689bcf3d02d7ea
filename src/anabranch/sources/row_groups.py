"""Parquet files cut at their groups of rows.

A part of a file is told by bytes, as for lines of text: it has the groups that begin in it.
A file is cut only if a copy of some of its groups has the same types as the file.
Spark's tasks share the groups of the files of a run among them, and read them where they are.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.sources.base import SourceChanged
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet

#: Types that DuckDB reads from Parquet files as they are; of fractions it may take a bound for one that NaN is within.
AS_THEY_ARE = ("string", "boolean", "date", "timestamp", "tinyint", "smallint", "int", "bigint")
#: A column that DuckDB adds to those of a file, if it is asked for the numbers of rows.
_ROW_OF_FILE = "file_row_number"


@dataclass(frozen=True)
class FileGroups:
    """How many rows and bytes each group of rows of a file has."""

    path: str
    rows: tuple[int, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class InGroups:
    """Columns of rows in groups of Parquet files, with what is known of them without looking."""

    fields: tuple[Field, ...]
    files: tuple[FileGroups, ...]
    direct: bool  # whether DuckDB finds the columns by their names, and reads them as they are
    timed: bool  # whether every row has an event time, within known bounds
    low: int | None
    high: int | None

    @property
    def rows(self) -> int:
        return sum(sum(file.rows) for file in self.files)


def in_groups(
    names: Sequence[str], fields: Sequence[Field], columns: Collection[str], time: str | None
) -> InGroups | None:
    """Columns of the rows of Parquet files; None where a file lacks one of them, or has it with another type."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from anabranch.engine.frames import arrow_schema
    from anabranch.engine.writing import lacking, time_range

    chosen = tuple(each for each in fields if each.name in columns)
    if not names or any(set(name) & set("*?[]{}") for name in names):
        return None
    wanted, files = arrow_schema(chosen), []
    direct, timed = all(each.type in AS_THEY_ARE for each in chosen), True
    lows, highs = list[int](), list[int]()
    try:
        for name in names:
            metadata = parquet.read_metadata(name)
            have = metadata.schema.to_arrow_schema()
            if len({each.lower() for each in have.names}) < len(have.names):  # Spark says which it cannot tell apart
                return None
            if not all(each.name in have.names and same(have.field(each.name), each) for each in wanted):
                return None
            direct = direct and is_plain(metadata, wanted) and _ROW_OF_FILE not in map(str.lower, have.names)
            groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
            sizes = tuple(group.total_byte_size for group in groups)
            files.append(FileGroups(name, tuple(group.num_rows for group in groups), sizes))
            if time is not None and groups:
                low, high = (None, None) if lacking(metadata, time) else time_range(metadata, time)
                timed = timed and low is not None and high is not None
                lows += [] if low is None else [low]
                highs += [] if high is None else [high]
    except (OSError, pa.ArrowException):
        return None  # Spark says what is wrong with it
    return InGroups(chosen, tuple(files), direct, timed, min(lows, default=None), max(highs, default=None))


def same(have: pa.Field, wanted: pa.Field) -> bool:
    """Whether a column of a file is one of the stream as it stands; a time without a zone is in UTC."""
    import pyarrow as pa

    if pa.types.is_timestamp(have.type) and pa.types.is_timestamp(wanted.type):
        return bool(have.type.unit == wanted.type.unit)
    return bool(have.type == wanted.type)


def is_plain(metadata: Any, wanted: pa.Schema) -> bool:
    """Whether a file has columns of these names and types, and DuckDB finds them by their names."""
    import pyarrow as pa

    have, columns = metadata.schema.to_arrow_schema(), range(metadata.num_columns)
    if len({name.lower() for name in have.names}) < len(have.names):
        return False
    kinds = {metadata.schema.column(index).path: metadata.schema.column(index).logical_type.type for index in columns}
    for field in wanted:
        if field.name not in have.names or not same(have.field(field.name), field):
            return False
        if pa.types.is_timestamp(field.type) and have.field(field.name).type.tz is None:
            return False
        if pa.types.is_string(field.type) and kinds.get(field.name) != "STRING":
            return False
    return True


def starts(name: str) -> dict[int, int]:
    """Where each group of rows of a file begins, with its number of rows; the first begins at 0.

    Nothing if the file cannot be cut.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(name) as file:
            found = _starts(file.metadata)
            copy = io.BytesIO()
            parquet.write_table(file.schema_arrow.empty_table(), copy)
            same = parquet.read_metadata(copy).schema.equals(file.metadata.schema)
    except (OSError, pa.ArrowException):
        return {}  # whoever reads it says what is wrong with it
    return found if same else {}


def _starts(metadata: parquet.FileMetaData) -> dict[int, int]:
    found: dict[int, int] = {}
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        columns = [group.column(column) for column in range(group.num_columns)]
        if not columns:
            return {}
        begin = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
        if found and begin <= max(found):
            return {}
        found[begin if found else 0] = group.num_rows
    return found


def end_of(name: str, start: int, size: int, rows: int) -> int:
    """The end of the groups from `start` on with at most so many rows, and of one group at least."""
    taken = 0
    for place, (begin, count) in enumerate(sorted(each for each in starts(name).items() if each[0] >= start)):
        taken += count
        if place and taken > rows:
            return begin
    return size


def count_rows(name: str, start: int, end: int) -> int:
    return sum(rows for begin, rows in starts(name).items() if start <= begin < end)


def copy(name: str, start: int, end: int, target: str) -> None:
    """Write the groups that begin between two places of a file to a file of their own."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(name) as file:
            wanted = [place for place, begin in enumerate(_starts(file.metadata)) if start <= begin < end]
            with parquet.ParquetWriter(target, file.schema_arrow, compression="zstd") as writer:
                for place in wanted:
                    writer.write_table(file.read_row_group(place))
    except (OSError, pa.ArrowException) as error:
        raise SourceChanged(f"the groups of rows of {name} cannot be read: {error}") from error
