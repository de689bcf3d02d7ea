"""Writes frames as files of the ledger: small ones through Arrow on the driver, others on the executors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.ledger import Bucket, DataFile, Ledger
from anabranch.ledger.crash import reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_frame(
    ledger: Ledger, table_id: str, frame: DataFrame, *, small: bool | int, time: str | None, staged: list[Path]
) -> tuple[DataFile, ...]:
    """Run a frame and write its rows. `time` is the column whose range the files record.

    That is the range of the times there are: a row without one is never looked for by its time. `small`: whether the
    rows are few enough for the driver; or up to how many are, where that is found out by asking for one more.
    """
    if small is True:
        return write_table(ledger, table_id, frame.toArrow(), time)
    few = collected(frame, small) if small else None
    if few is not None:
        return write_table(ledger, table_id, few, time)
    folder = ledger.stage()
    staged.append(folder)
    frame.write.mode("append").parquet(str(folder))
    return adopt_folder(ledger, table_id, folder, time)


def collected(frame: DataFrame, most: int) -> Any:
    """The rows of a frame as an Arrow table; None if they are more than so many, and stay where they are."""
    found = frame.limit(most + 1).toArrow()
    return found if found.num_rows <= most else None


def write_table(ledger: Ledger, table_id: str, table: Any, time: str | None) -> tuple[DataFile, ...]:
    """Write an Arrow table as one file; no file for no rows."""
    if table.num_rows == 0:
        return ()
    low = high = None
    if time is not None:
        import pyarrow.compute as compute

        column = compute.min_max(table.column(time).cast("int64"))
        low, high = column["min"].as_py(), column["max"].as_py()
    return (ledger.write_arrow(table_id, table, low, high),)


def adopt_folder(ledger: Ledger, table_id: str, folder: Path, time: str | None) -> tuple[DataFile, ...]:
    """The files that executors wrote to a folder."""
    return adopt_files(ledger, table_id, sorted(folder.rglob("*.parquet")), time)


def adopt_files(
    ledger: Ledger, table_id: str, paths: Iterable[Path], time: str | None, bucket: Bucket | None = None
) -> tuple[DataFile, ...]:
    """Files that executors wrote, with their rows and range from the footers; `bucket` has all of these rows."""
    import pyarrow.parquet as parquet

    adopted = []
    for path in paths:
        metadata = parquet.read_metadata(path)
        if metadata.num_rows == 0:
            continue
        low, high = time_range(metadata, time) if time is not None else (None, None)
        adopted.append(replace(ledger.adopt(table_id, path, metadata.num_rows, low, high), bucket=bucket))
        reach("after-adopt")
    return tuple(adopted)


def footer_range(path: Path, time: str) -> tuple[int | None, int | None]:
    """The lowest and highest value of a timestamp column of a Parquet file."""
    import pyarrow.parquet as parquet

    return time_range(parquet.read_metadata(path), time)


@lru_cache(maxsize=4096)
def least(path: str, column: str) -> int | None:
    """The lowest value of a column of whole numbers in a file of the ledger, which never changes; None if it is not
    known, or a row may have none."""
    import pyarrow.parquet as parquet

    metadata = parquet.read_metadata(path)
    return None if lacking(metadata, column) or not metadata.num_row_groups else time_range(metadata, column)[0]


def time_range(metadata: Any, time: str) -> tuple[int | None, int | None]:
    """The lowest and highest value of a column of times or integers, from the footer of a Parquet file."""
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    if time not in names:
        return None, None
    index = names.index(time)
    lows, highs = [], []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(index).statistics
        if statistics is None or not statistics.has_min_max:
            return None, None
        lows.append(statistics.min_raw)
        highs.append(statistics.max_raw)
    return min(lows), max(highs)


def without_time(path: Path, time: str) -> bool:
    """Whether a column of a Parquet file may have a NULL."""
    import pyarrow.parquet as parquet

    return lacking(parquet.read_metadata(path), time)


def lacking(metadata: Any, column: str) -> bool:
    """Whether a column may have a NULL, by the footer of a Parquet file."""
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    index = names.index(column) if column in names else None
    if index is None:
        return True
    known = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    return any(each is None or not each.has_null_count or each.null_count > 0 for each in known)
