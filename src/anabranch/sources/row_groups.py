"""Parquet files cut at their groups of rows.

A part of a file is told by bytes, as for lines of text: it has the groups that begin in it.
A file is cut only if a copy of some of its groups has the same types as the file.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from anabranch.sources.base import SourceChanged

if TYPE_CHECKING:
    import pyarrow.parquet as parquet


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
