"""Rows of Parquet files that need no Spark: as a table of Arrow, or for DuckDB to read where they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.sources import row_groups
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

#: More rows than this are not read into the memory of the driver, however few bytes they take in a file.
MOST_AT_HAND = 5_000_000


@dataclass(frozen=True)
class InFiles:
    """Rows in Parquet files, with what is known of them without looking: their number and the range of a time."""

    paths: tuple[str, ...]
    rows: int
    low: int | None
    high: int | None


def table(paths: Iterable[str], fields: Sequence[Field]) -> pa.Table | None:
    """Columns of files of not too many rows, if they have these types there."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from anabranch.engine.frames import arrow_schema

    wanted = arrow_schema(fields)
    tables, rows = [], 0
    try:
        for name in paths:
            with parquet.ParquetFile(name) as file:
                have, rows = file.schema_arrow, rows + file.metadata.num_rows
                if rows > MOST_AT_HAND:
                    return None
                if not all(
                    field.name in have.names and row_groups.same(have.field(field.name), field) for field in wanted
                ):
                    return None
            # By groups of rows, on all cores; in the order that they have in the file.
            tables.append(parquet.read_table(name, columns=wanted.names, partitioning=None).cast(wanted))
    except (OSError, pa.ArrowException):
        return None  # Spark says what is wrong with it
    return pa.concat_tables(tables)


def in_files(names: tuple[str, ...], fields: Sequence[Field], time: str | None) -> InFiles | None:
    """Files that DuckDB can read columns of as they are; all rows have the time, within known bounds.

    Only where they have groups of rows for all cores: each is read by one.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from anabranch.engine.frames import arrow_schema
    from anabranch.engine.writing import lacking, time_range

    if any(set(name) & set("*?[]{}") for name in names):
        return None
    if not names or any(each.type not in row_groups.AS_THEY_ARE for each in fields):
        return None
    wanted, rows, groups = arrow_schema(fields), 0, 0
    lows, highs = list[int](), list[int]()
    try:
        for name in names:
            metadata = parquet.read_metadata(name)
            if not row_groups.is_plain(metadata, wanted) or (time is not None and lacking(metadata, time)):
                return None
            rows, groups = rows + metadata.num_rows, groups + metadata.num_row_groups
            if time is not None and metadata.num_row_groups:
                low, high = time_range(metadata, time)
                if low is None or high is None:
                    return None
                lows.append(low)
                highs.append(high)
    except (OSError, pa.ArrowException):
        return None  # Spark says what is wrong with it
    if rows > MOST_AT_HAND or groups < (os.cpu_count() or 1):
        return None
    return InFiles(names, rows, min(lows, default=None), max(highs, default=None))
