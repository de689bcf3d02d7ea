"""Rows in files of CSV and of JSON lines, without Spark, where they are certain to be those that Spark finds.

A file is read in pieces: the lines that start between two offsets. Every line must be one record, and every value
written so that all engines read it alike; then it does not matter where a file is cut. Anything else, such as a bad row
or a newline within quotes, makes the read uncertain, and Spark reads all of it.
`tests/sources/test_row_lines.py` asks Spark about the same files.
"""

from __future__ import annotations

import csv
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import IO, TYPE_CHECKING

from anabranch.sources import csv_grammar, json_values
from anabranch.sources.csv_grammar import CHUNK, SAMPLE, Uncertain
from anabranch.sources.parts import open_bytes
from anabranch.sources.paths import COMPRESSED
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

#: Compressed files that are read as a whole, and separators that no value needs quotes for but itself.
OPENED, SEPARATORS = (".gz", ".bz2", ".zst"), (",", "\t", ";", "|")
#: A longer line may break a limit of Spark's parsers; and what is read into memory at once, compressed or not.
_LONGEST, _MOST = 16 << 20, 512 << 20
#: How CSV values look that every engine reads alike, by type; None: any text.
_WRITTEN = csv_grammar.CELLS | {
    "string": None,
    "tinyint": "-?(?:[0-9]{1,2}|1[01][0-9])",
    "smallint": "-?(?:[0-9]{1,4}|[12][0-9]{4})",
    "bigint": "-?(?:[0-9]{1,18}|[1-8][0-9]{18})",
}
#: The byte order mark of UTF-8.
_MARK = b"\xef\xbb\xbf"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class Form:
    """How the lines of a file are written; no separator: as JSON."""

    fields: tuple[Field, ...]  # of JSON by name; of CSV by position, those without a name are not the stream's
    schema: pa.Schema  # of all columns of the stream
    separator: str = ""
    header: bool = False  # whether the first line of the file has its names
    time: str | None = None  # a column that every row has to have


@dataclass(frozen=True)
class Lines:
    """The lines of a file that start between two offsets; all lines of a compressed file."""

    path: str
    start: int
    end: int
    form: Form
    number: int = 0  # of the first row, among all that a stream has had


@dataclass(frozen=True)
class InLines:
    """Columns of rows in lines of files, of which nothing else is known without looking."""

    fields: tuple[Field, ...]
    files: tuple[Lines, ...]


def has_certain_types(fields: Sequence[Field], separator: str) -> bool:
    """Whether there is a way to write values of these columns that is beyond doubt."""
    return all(_cell(field.type) != "" if separator else field.type in json_values.TYPES for field in fields)


def looks_certain(rows: InLines) -> bool:
    """Whether the first lines of files are certain to be read as Spark reads them; of each form of lines one file."""
    try:
        for file in {each.form: each for each in rows.files if not _is_compressed(each.path)}.values():
            read(replace(file, end=min(file.end, SAMPLE)), file.form.schema)
    except Uncertain:
        return False
    return True


def read_all(rows: InLines) -> pa.Table | None:
    """All rows, in the order of their files, if these are not large; None where they are Spark's to read."""
    import pyarrow as pa

    if not rows.files or sum(file.end for file in rows.files) > _MOST:
        return None
    schema = pa.schema([rows.files[0].form.schema.field(field.name) for field in rows.fields])
    pieces = [piece for task in cut(rows.files, os.cpu_count() or 1, CHUNK) for piece in task]
    try:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return pa.concat_tables(pool.map(read, pieces, repeat(schema)))
    except Uncertain:
        return None


def cut(files: Sequence[Lines], tasks: int, least: int) -> list[tuple[Lines, ...]]:
    """Pieces of whole files for about so many tasks, about as many bytes for each, and not less than so many.

    >>> form = Form((), None)
    >>> a, b = Lines("a", 0, 100, form), Lines("b.gz", 0, 100, form)
    >>> [[(piece.path, piece.start, piece.end) for piece in task] for task in cut([a, b], 4, 1)]
    [[('a', 0, 50)], [('a', 50, 100)], [('b.gz', 0, 100)]]
    """
    size = max(-(-sum(file.end for file in files) // max(1, tasks)), least)
    found: dict[int, list[Lines]] = {}
    before = 0
    for file in files:
        start = 0
        while start < file.end:
            task = (before + start) // size
            end = file.end if _is_compressed(file.path) else min(file.end, (task + 1) * size - before)
            found.setdefault(task, []).append(replace(file, start=start, end=end))
            start = end
        before += file.end
    return [tuple(found[task]) for task in sorted(found)]


def count(piece: Lines) -> int:
    """How many rows a piece has, if it can be read."""
    return sum(chunk.count(b"\n") for chunk in _chunks(piece))


def read(piece: Lines, schema: pa.Schema) -> pa.Table:
    """Columns of the rows of a piece, in their order; raises Uncertain."""
    import pyarrow as pa

    made, time = _csv if piece.form.separator else _json, piece.form.time
    tables = [schema.empty_table()]
    for chunk in _chunks(piece):
        try:
            table = made(chunk, piece.form, schema)
        except pa.ArrowException as error:
            raise _uncertain(piece) from error
        if table is None or (time is not None and table.column(time).null_count):
            raise _uncertain(piece)
        tables.append(table)
    return pa.concat_tables(tables)


def _uncertain(piece: Lines) -> Uncertain:
    return Uncertain(f"a line of {piece.path} is not certain to be read alike")


def _is_compressed(path: str) -> bool:
    return path.endswith(COMPRESSED)


def _chunks(piece: Lines) -> Iterator[bytes]:
    """The lines of a piece without that of names, each with its end, some at a time."""
    try:
        with open_bytes(piece.path) as file:
            yield from _chunks_in(file, piece)
    except (EOFError, OSError, zlib.error) as error:
        raise Uncertain(f"{piece.path} is not readable: {error}") from error


def _chunks_in(file: IO[bytes], piece: Lines) -> Iterator[bytes]:
    packed = _is_compressed(piece.path)
    end, place = _MOST if packed else piece.end, 0
    if piece.start:
        file.seek(piece.start - 1)
        place = piece.start - 1 + len(file.readline())
    elif piece.form.header:
        place = len(_names(piece, file.readline(_LONGEST)))
    while place < end and (chunk := file.read(min(CHUNK, end - place))):
        if not chunk.endswith(b"\n"):
            chunk += file.readline(_LONGEST)
        if len(chunk) > _LONGEST or (place == 0 and chunk.startswith(_MARK)):
            raise _uncertain(piece)
        place += len(chunk)
        yield chunk if chunk.endswith(b"\n") else chunk + b"\n"
    if packed and place >= end:
        raise Uncertain(f"{piece.path} is large")


def _names(piece: Lines, line: bytes) -> bytes:
    """The line with the names of the columns, if it has them all and nothing else."""
    try:
        rows = list(csv.reader([line.decode("utf-8")], delimiter=piece.form.separator, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise _uncertain(piece) from error
    if [len(row) for row in rows] != [len(piece.form.fields)] or b"\r" in line.rstrip(b"\r\n") or _MARK in line:
        raise _uncertain(piece)
    return line


# ---- CSV


def _csv(content: bytes, form: Form, schema: pa.Schema) -> pa.Table | None:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    if not csv_grammar.matches(_pattern(form), content):
        return None
    at = {field.name: str(place) for place, field in enumerate(form.fields) if field.name}
    times = [pa.types.is_timestamp(field.type) for field in schema]
    types = {
        at[field.name]: pa.string() if time else field.type
        for field, time in zip(schema, times, strict=True)
        if field.name in at
    } or {"0": pa.string()}
    names = [str(place) for place in range(len(form.fields))]
    made = arrow_csv.read_csv(
        pa.BufferReader(content),
        arrow_csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=names),
        arrow_csv.ParseOptions(delimiter=form.separator, newlines_in_values=False),
        arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    columns = []
    for field, time in zip(schema, times, strict=True):
        if field.name not in at:
            columns.append(pa.nulls(made.num_rows, field.type))
        else:
            column = made.column(at[field.name])
            columns.append(json_values.utc_times(column) if time else column)
    return pa.table(columns, schema=schema)


@lru_cache
def _pattern(form: Form) -> str:
    return csv_grammar.grammar([_cell(field.type) for field in form.fields], form.separator, r"\r?\n")


def _cell(type: str) -> str | None:
    """How values of a type are written beyond doubt; None: any text, and nothing where there is no such way."""
    size = _DECIMAL.fullmatch(type)
    if size is None:
        return _WRITTEN.get(type, "")
    precision, scale = int(size[1]), int(size[2])
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return rf"-?(?:0|[0-9]{{1,{precision - scale}}}){fraction}" if precision > scale else f"-?0{fraction}"


# ---- JSON


def _json(content: bytes, form: Form, schema: pa.Schema) -> pa.Table | None:
    made = json_values.rows_of(content, form.fields, form.schema)
    return None if made is None else made.select(schema.names)
