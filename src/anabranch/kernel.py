"""What one of Spark's tasks does for a run: DuckDB over a part of the rows of files, results as files.

It runs in a Python worker of an executor, which keeps its DuckDB from task to task. It knows the texts that it is
given, and neither Spark nor the ledger. A task can run twice, so every file has a name of its own: those whose names
reach the driver count.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.duck import DATABASE, counting_all, path_list, places_for, quoted, take_bucket, timestamp

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.sources.row_lines import Lines

#: The good rows of a run, which its queries read; all of its rows, and all as they are in an Arrow table.
ROWS, ALL, _TABLE, _BUCKET = "__near", "__all", "__groups", "__bucket"
#: Where DuckDB says which row of a file a row is.
ROW_OF_FILE = "file_row_number"
#: Rows that are written at a time.
_BATCH = 1 << 20


@dataclass(frozen=True)
class Piece:
    """Some groups of rows of a Parquet file."""

    path: str
    groups: tuple[int, int]  # the first, and the one behind the last
    rows: tuple[int, int]  # the same for rows
    whole: bool
    number: int  # of the first row of the file, among all that a stream has had


@dataclass(frozen=True)
class Query:
    """One table that the rows of a run add to."""

    table: str
    text: str
    schema: pa.Schema
    plain: pa.Schema  # as files have it
    options: dict[str, Any]  # how they are written
    statements: tuple[str, ...] = ()  # what comes before the text
    read_as: str = ""  # what `Share.paths` call its file, where later queries read it


@dataclass(frozen=True)
class Work:
    """What a job does, the same for each of its tasks."""

    folder: str
    schema: pa.Schema  # of the columns to read
    direct: bool  # whether DuckDB reads the files as they are
    time: str | None  # a column that good rows have; None if that is known of all
    numbers: tuple[str, str, int] | None  # the names of numbers and times of arrival, and the time
    statistics: str | None  # what to say about all rows, as a query of one row
    queries: tuple[Query, ...]
    memory: int
    split: str | None = None  # the condition that a row is in the bucket of a task; None: tasks have rows of their own
    buckets: int = 1
    changes: tuple[Query, ...] = ()  # of nodes, over these rows and what the other queries made of them


@dataclass(frozen=True)
class Share:
    """What one task takes of the rows of a run: some pieces of files, or of these one bucket."""

    pieces: tuple[Piece | Lines, ...]
    bucket: int = 0
    paths: Mapping[str, list[str]] = field(default_factory=dict)  # the files of tables that queries name


@dataclass(frozen=True)
class Done:
    """What a task wrote and saw."""

    files: tuple[tuple[str, str], ...]  # the table and the name of each
    declined: tuple[tuple[str, str], ...]  # tables that are Spark's to write, and why
    statistics: tuple[Any, ...] | None


@dataclass(frozen=True)
class Declined:
    """Why a task leaves the run to Spark's own engine, which says it in its own words."""

    reason: str


def nth(compute: Callable[[Any], Any], tasks: Sequence[Any], number: int) -> Any:
    """What one of several tasks gives."""
    return compute(tasks[number])


def compute(work: Work, share: Share) -> Done | Declined:
    """Carry out the queries of a job over a share of its rows."""
    import duckdb
    import pyarrow as pa

    from anabranch.sources.csv_grammar import Uncertain

    DATABASE.confine(work.memory, 1, scratch())
    try:
        return _computed(work, share)
    except Uncertain as reason:
        return Declined(str(reason))
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        DATABASE.close()  # some errors leave it unusable
        return Declined(first_line(error))


def count(pieces: Sequence[Lines]) -> list[int] | Declined:
    """How many rows there are in each of some pieces of files."""
    from anabranch.sources import row_lines
    from anabranch.sources.csv_grammar import Uncertain

    try:
        return [row_lines.count(piece) for piece in pieces]
    except Uncertain as reason:
        return Declined(str(reason))


def scratch() -> Path:
    """Where what does not fit into memory goes: a folder that Spark removes with the application."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(given or tempfile.gettempdir())


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _computed(work: Work, share: Share) -> Done:
    import duckdb
    import pyarrow as pa

    pieces, duck = share.pieces, DATABASE.connect()
    try:
        if work.direct:
            source = _in_files(work, [piece for piece in pieces if isinstance(piece, Piece)])
        else:
            duck.register(_TABLE, _in_memory(work, pieces))
            source = f"SELECT * FROM {_TABLE}"
        if work.split is not None:
            take_bucket(duck, share.bucket, work.buckets)
            source = f"SELECT * FROM ({source}) WHERE {work.split}"
            if sum(ROWS in query.text for query in (*work.queries, *work.changes)) > 1:
                duck.execute(f"CREATE TEMP TABLE {_BUCKET} AS {source}")
                source = f"SELECT * FROM {_BUCKET}"
        duck.execute(f"CREATE TEMP VIEW {ALL} AS {source}")
        good = f" WHERE {quoted(work.time)} IS NOT NULL" if work.time is not None else ""
        duck.execute(f"CREATE TEMP VIEW {ROWS} AS SELECT * FROM {ALL}{good}")
        count = sum(piece.rows[1] - piece.rows[0] for piece in pieces if isinstance(piece, Piece))
        with places_for(count) if work.direct else nullcontext():
            statistics = duck.execute(work.statistics).fetchall()[0] if work.statistics is not None else None
            files, declined = [], []
            written: dict[str, str] = {}  # the files that changes read, by what their lists call them

            def carry_out(query: Query) -> None:
                try:
                    for statement in query.statements:
                        duck.execute(statement)
                    with counting_all(query.text):
                        name = _write(duck.sql(query.text), query, work)
                except (duckdb.Error, pa.ArrowException) as error:  # an overflow, say
                    declined.append((query.table, first_line(error)))
                    return
                files.extend([(query.table, name)] if name is not None else [])
                if query.read_as:
                    written[query.read_as] = os.path.join(work.folder, name or _no_rows(query, work))

            for query in work.queries:
                carry_out(query)
            if work.changes and not declined:
                take_bucket(duck, share.bucket, work.buckets, _with_files(share.paths, written))
                for query in work.changes:
                    carry_out(query)
        return Done(tuple(files), tuple(declined), statistics)
    finally:
        duck.close()


def _in_files(work: Work, pieces: Sequence[Piece]) -> str:
    """The rows as DuckDB reads them: it skips groups of rows by the numbers of their rows."""
    columns = ", ".join(map(quoted, work.schema.names))
    texts = []
    together = [piece.path for piece in pieces if piece.whole and work.numbers is None]
    if together:
        texts.append(f"SELECT {columns} FROM read_parquet({path_list(together)}, hive_partitioning = false)")
    for piece in pieces:
        if piece.path in together:
            continue
        numbers = ""
        if work.numbers is not None:
            number, arrival, at = work.numbers
            row = f"CAST({piece.number} + {ROW_OF_FILE} AS BIGINT)"
            numbers = f", {row} AS {quoted(number)}, {timestamp(str(at))} AS {quoted(arrival)}"
        first, last = piece.rows
        within = "" if piece.whole else f" WHERE {ROW_OF_FILE} >= {first} AND {ROW_OF_FILE} < {last}"
        texts.append(
            f"SELECT {columns}{numbers} FROM read_parquet({path_list([piece.path])}, hive_partitioning = false,"
            f" {ROW_OF_FILE} = true){within}"
        )
    return " UNION ALL ".join(texts)


def _in_memory(work: Work, pieces: Sequence[Piece | Lines]) -> pa.Table:
    import pyarrow as pa

    tables = []
    for piece in pieces:
        table = _rows(piece, work.schema)
        if work.numbers is not None:
            number, arrival, at = work.numbers
            first = piece.number + (piece.rows[0] if isinstance(piece, Piece) else 0)
            table = table.append_column(number, pa.array(range(first, first + table.num_rows), pa.int64()))
            came = pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), table.num_rows)
            table = table.append_column(arrival, came)
        tables.append(table)
    return pa.concat_tables(tables)


def _rows(piece: Piece | Lines, schema: pa.Schema) -> pa.Table:
    """Columns of the rows of a piece."""
    import pyarrow.parquet as parquet

    if not isinstance(piece, Piece):
        from anabranch.sources import row_lines

        return row_lines.read(piece, schema)
    with parquet.ParquetFile(piece.path) as file:
        table = file.read_row_groups(list(range(*piece.groups)), columns=schema.names, use_threads=False)
    return table.cast(schema)


def _write(made: Any, query: Query, work: Work) -> str | None:
    """The name of the file with what a query gives; None for no rows."""
    import pyarrow.parquet as parquet

    name = f"{uuid.uuid4().hex}.parquet"
    writer: parquet.ParquetWriter | None = None
    try:
        for table in _batches(made, query):
            if writer is None:
                writer = parquet.ParquetWriter(os.path.join(work.folder, name), query.plain, **query.options)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    return None if writer is None else name


def _no_rows(query: Query, work: Work) -> str:
    """The name of a file that has the columns of a query, for those who read it by name."""
    import pyarrow.parquet as parquet

    name = f"{uuid.uuid4().hex}.parquet"
    parquet.write_table(query.plain.empty_table(), os.path.join(work.folder, name), **query.options)
    return name


def _with_files(lists: Mapping[str, list[str]], written: Mapping[str, str]) -> dict[str, list[str]]:
    """Lists of files with those that this task has written in their place."""
    return {name: [written.get(path, path) for path in paths] for name, paths in lists.items()}


def _batches(made: Any, query: Query) -> Iterator[pa.Table]:
    import pyarrow as pa

    for batch in made.to_arrow_reader(_BATCH):
        if batch.num_rows:
            table = pa.Table.from_batches([batch]).rename_columns(query.schema.names)
            yield table.cast(query.schema).cast(query.plain, safe=False)
