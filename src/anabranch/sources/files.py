"""Files: a path, a folder or a glob, each file read once, whatever its age.

Spark's own file stream skips files that are much older than the newest, reads files that are half written, and says
nothing when a file it has read is written again. Here every file counts, and is read when it is whole. What is appended
to a file later is read as a part of its own, and a file that was changed otherwise is reported.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time as time_module
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import avro_files, avro_values, inference, parts, row_groups, why
from anabranch.sources.base import BadRow, Source, SourceChanged, Stretch
from anabranch.sources.listing import File, Listing
from anabranch.sources.parts import Part
from anabranch.sources.paths import (
    CALLED,
    COLUMNAR,
    COMPRESSED,
    OWN_OPTIONS,
    SEPARATED,
    check_options,
    check_scheme,
    format_of,
    near,
    settle_of,
    skips,
)
from anabranch.sources.quotes import Dialect, Layout, has_long_number, layout_of
from anabranch.sources.schemas import SchemaChange, compare
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from anabranch.sources.hadoop import Objects

#: What one run takes at the most when nothing else is said, and what it copies at the most.
MAX_FILES, MAX_BYTES, MAX_COPIED = 20_000, 8 << 30, 256 << 20
#: A text file that does not end with a newline is whole after so many times as long as others; and whole lines of one
#: that never settles are read as often.
PATIENCE = 5
#: More rows than this are not read into the memory of the driver, however few bytes they take in a file.
MOST_AT_HAND = 5_000_000


#: Encodings in which the byte of a newline is nothing else.
_ASCII = ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252")


@dataclass(frozen=True)
class _Shape:
    """What text files have in common that Spark can read together.

    Only the first part of a file has the header in it; `later` ones go by it too.
    """

    header: tuple[str, ...] | None = None
    later: bool = False
    multiline: bool = False

    def apply(self, reader: DataFrameReader) -> DataFrameReader:
        if self == _Shape():
            return reader
        first = self.header is not None and not self.later
        reader = reader.option("header", str(first).lower())
        return reader.option("multiLine", "true") if self.multiline else reader


@dataclass(frozen=True)
class InFiles:
    """Rows in Parquet files, with what is known of them without looking: their number and the range of a time."""

    paths: tuple[str, ...]
    rows: int
    low: int | None
    high: int | None


class FilesSource(Source):
    """The files that match a path, in the order in which they were written."""

    def __init__(
        self,
        options: Mapping[str, Any],
        spark: Callable[[], SparkSession],
        fields: tuple[Field, ...] | None = None,
        seen: Callable[[], list[Any]] = list,
        *,
        now: Callable[[], int] | None = None,
        scratch: Callable[[], Path] | None = None,
        elapsed: Callable[[], float] = time_module.monotonic,
        inferred: bool = False,
        adds: bool = False,
    ) -> None:
        """`now` tells the time in microseconds, `scratch` a folder for copies of parts of files."""
        path = options.get("path")
        if not isinstance(path, str) or not path:
            raise SourceError("files needs the option path", hint="as in files(path => 'in/*.csv')")
        check_scheme(path)
        self.path = path
        self.options = {k: v for k, v in options.items() if k not in OWN_OPTIONS}
        self.format = format_of(path, options.get("format"))
        check_options(self.options, self.format)
        if self.format == "avro":
            avro_files.check_installed()
        self.settle = settle_of(options.get("settle"))
        self.skips = skips(options.get("bad_rows"))
        self.dialect = Dialect.of(self.format, self.options)
        self._layouts: dict[tuple[str, int], Layout] = {}
        self.cheap = self.format in COLUMNAR
        self.typed = self.cheap or self.format in ("text", "avro")
        self.waits = False
        self.spark = spark
        self.declared = fields
        self.inferred = inferred or adds  # whether more columns than the stream has are a change
        self._seen = seen
        self._now = now or (lambda: time_module.time_ns() // 1000)
        self._scratch = scratch or (lambda: Path(tempfile.gettempdir()))
        self._elapsed = elapsed
        self._listing: Listing | Objects = Listing(path, elapsed)
        self._known: dict[str, Part] | None = None
        self._looks: dict[
            str, tuple[tuple[int, int], float]
        ] = {}  # size and time of a file, and since when they are so
        self._growing: dict[str, float] = {}  # files that are being written, and since when that was seen
        self._as_they_were: dict[str, tuple[int, int]] = {}  # size and time of files when Spark was told to read them
        self._copying = False  # a file changed while it was read: the next time, copies are read
        self._copies: str | None = None  # the folder of copies for the run on its way
        self._shapes: dict[str, StructType] = {}

    def fields(self) -> tuple[Field, ...]:
        """The columns of the files there are, by Spark's inference."""
        files = self.listing()
        if not files:
            raise SourceError(
                f"no file matches {self.path}, so its columns cannot be found out",
                hint=near(self.path) or "name the columns, or put a file there first",
            )
        return self.columns_of([Part(name, size, time) for name, size, time in files[:100]])

    def columns_of(self, files: Sequence[Part]) -> tuple[Field, ...]:
        """The columns of files together: each has the type that the values of all of them have."""
        from anabranch.engine.frames import fields_of

        if self.format == "avro":
            return self._columns_of_avro(files)
        groups: dict[_Shape, list[str]] = {}
        for part in files:
            if self.format in COLUMNAR or part.size:
                path = self._path(part) if self.layout(part).unclosed else part.name
                groups.setdefault(self._shape(part), []).append(path)
        found: dict[str, Field] = {}
        for shape, names in groups.items():
            frame = shape.apply(self._reader(infer=True)).load(names)
            fields = fields_of(frame)
            if shape.header is not None:
                fields = [Field(name, field.type) for name, field in zip(shape.header, fields, strict=True)]
            if self.format in (*SEPARATED, "json"):
                fields = self._exact(fields, shape, names)
            for field in fields:
                known = found.setdefault(field.name.lower(), field)
                found[field.name.lower()] = Field(known.name, inference.wider(known.type, field.type))
        if not found:
            raise SourceError(f"{self.path} has no columns: there is no row in it")
        return tuple(Field(f.name, "timestamp" if f.type == "timestamp_ntz" else f.type) for f in found.values())

    def _columns_of_avro(self, files: Sequence[Part]) -> tuple[Field, ...]:
        found: dict[str, Field] = {}
        for part in files:
            for field in avro_values.fields_of(json.loads(self._shape_of(part.name))):
                known = found.setdefault(field.name.lower(), field)
                found[field.name.lower()] = Field(known.name, inference.wider(known.type, field.type))
        return tuple(found.values())

    def _exact(self, fields: list[Field], shape: _Shape, names: list[str]) -> list[Field]:
        """Columns that Spark takes for fractions because of whole numbers that are too long for it: exact types."""
        from anabranch.engine.frames import struct

        digits = inference.EXACT_DIGITS + 1
        numbers = [place for place, field in enumerate(fields) if field.type == "double"]
        if not numbers or not any(self.has_long_number(name, digits) for name in names):
            return fields
        texts = struct(
            [Field(f"c{place}" if self.format != "json" else f.name, "string") for place, f in enumerate(fields)]
        )
        reader = shape.apply(self._reader(infer=False)).schema(texts)
        frame = reader.load(names).toDF(*(f"c{place}" for place in range(len(fields))))
        measured = [text for place in numbers for text in inference.measures(f"c{place}")]
        values = list(frame.selectExpr(*measured).collect()[0])
        exact = list(fields)
        for index, place in enumerate(numbers):
            exact[place] = Field(fields[place].name, inference.exact_type(*values[index * 4 : index * 4 + 4]))
        return exact

    def listing(self) -> list[File]:
        """Every file, oldest first."""
        return Listing(self.path, self._elapsed).look(complete=True)

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        if self._known is None:
            written = (each for files in self._seen() for each in files)
            self._known = {part.name: part for part in map(Part.of, written)}
        self.waits = False
        complete = self._listing.is_due()
        stretch = self._taken(self._listing.look(complete=complete), position, max_rows)
        if stretch is not None or complete or self.cheap:  # to a columnar file that was read, no row is added
            return stretch
        if not self._listing.may_look():  # too soon, and so it is not known that there is nothing
            self.waits = True
            return None
        return self._taken(self._listing.look(complete=True), position, max_rows)

    def _taken(self, files: list[File], position: Any, max_rows: int | None) -> Stretch | None:
        """What a run takes of files that may have something new."""
        assert self._known is not None
        reported = {} if position is None else dict(position.get("changed", {}))
        fresh: list[Part] = []
        bad: list[BadRow] = []
        total = rows = 0
        for file in files:
            name, size, time = file
            known = self._known.get(name)
            read = known is not None and (known.end, known.time) == (size, time)
            if read or reported.get(name) == [size, time]:
                if read or not self.cheap:  # a columnar file may become whole yet
                    self._listing.settle(file)
                continue
            try:
                found = self._part(name, size, time, known)
            except FileNotFoundError:
                continue
            if isinstance(found, str):
                reported[name] = [size, time]
                bad.append(BadRow(name, None, found, None))
                continue
            if found is None:
                continue
            if fresh and (len(fresh) >= MAX_FILES or total + found.size > (MAX_COPIED if self._copying else MAX_BYTES)):
                break
            if max_rows is not None:
                found = self._cut(found, max(1, max_rows - rows))
                rows += self._count_rows(found)
                if fresh and rows > max_rows:
                    break
            fresh.append(found)
            total += found.size
            bad += self.unclosed(found)
        if not fresh and not bad:
            return None
        count = 0 if position is None else int(position["files"])
        return Stretch(
            {"files": count + len(fresh), "changed": reported},
            [part.to_json() for part in fresh],
            total,
            tuple(bad),
            tuple(part.origin for part in fresh),
        )

    def schema_changes(self, captured: Any) -> list[SchemaChange]:
        """How the columns of files differ from those of the stream, as far as files tell them.

        A field of JSON may be left out of any row: there, only new ones are a change.
        """
        assert self.declared is not None
        found: list[SchemaChange | None] = []
        for part in map(Part.of, captured):
            if self.format in CALLED:
                have = self._fields_of_columnar(part.name)
                found.append(compare(part.name, have, self.declared, inferred=self.inferred))
            elif self.format in SEPARATED:
                header = self._header(part.name) if part.start == 0 and part.size else None
                have = tuple(Field(name, "") for name in header or ())
                if have:
                    found.append(compare(part.name, have, self.declared, inferred=self.inferred))
            elif self.format == "json" and self.inferred:
                have = (*self.declared, *(Field(name, "") for name in self._keys_of(part)))
                found.append(compare(part.name, have, self.declared, inferred=True))
        return [each for each in found if each is not None]

    def added(self, captured: Any, changes: Sequence[SchemaChange]) -> tuple[Field, ...]:
        """The new columns of files, with the types that all of them have together."""
        named = {field.name.lower() for each in changes for field in each.new}
        places = {each.where for each in changes}
        files = [part for part in map(Part.of, captured) if part.name in places]
        return tuple(field for field in self.columns_of(files) if field.name.lower() in named)

    def widen(self, fields: tuple[Field, ...]) -> None:
        """Read more columns from here on."""
        self.declared = fields

    def _fields_of_columnar(self, name: str) -> tuple[Field, ...]:
        schema = self._schema_of(self._shape_of(name), name)
        return tuple(Field(each.name, each.dataType.simpleString()) for each in schema.fields)

    def _shape_of(self, name: str) -> str:
        """The columns of a file, as a text that is the same for files that can be read together."""
        try:
            with self.open(name) as file:
                return _shape_of(file, self.format)
        except (OSError, ValueError) as error:
            raise SourceError(f"{name} is not a readable {CALLED[self.format]} file: {error}") from error

    def _schema_of(self, shape: str, name: str) -> StructType:
        from anabranch.engine.frames import struct

        if shape not in self._shapes:
            if self.format == "avro":  # fields that are no columns are not read
                found = struct([field for field in avro_values.readable_fields(json.loads(shape)) if field.type])
            else:
                found = self._reader(infer=False).load([name]).schema
            self._shapes[shape] = found
        return self._shapes[shape]

    def _keys_of(self, part: Part) -> list[str]:
        """The names of the fields in lines of JSON; none where DuckDB cannot read the file, which Spark can."""
        import duckdb

        path = self._path(part)
        if self._one_document or path.endswith(tuple(each for each in COMPRESSED if each not in (".gz", ".zst"))):
            return []
        if set(path) & set("*?[]{}"):
            return []
        given = "format = 'newline_delimited', ignore_errors = true, maximum_object_size = 268435456"
        objects = f"SELECT json FROM read_json_objects(?, {given}) WHERE json_type(json) = 'OBJECT'"
        text = f"SELECT DISTINCT unnest(json_keys(json)) FROM ({objects})"
        try:
            with duckdb.connect() as connection:
                return sorted(name for (name,) in connection.execute(text, [path]).fetchall())
        except duckdb.Error:
            return []

    def everything(self, wait: Callable[[], object]) -> list[Any]:
        """All there is to read, for whoever reads it once; files that are being written are waited for."""
        taken: list[Any] = []
        position: Any = None
        while True:
            stretch = self.next(position, None)
            if stretch is not None:
                for each in stretch.bad:
                    if each.offset is None:  # not a line, but the file
                        raise SourceError(f"{each.source}: {each.reason}")
                taken.append(stretch.captured)
                position = stretch.position
                self.committed(stretch)
            elif self.waits:
                wait()
            else:
                return taken

    def _part(self, name: str, size: int, time: int, known: Part | None) -> Part | str | None:
        """What can be read of a file that has something new: None while it is written, or a text why it cannot be."""
        assert self._known is not None
        start = 0
        if known is not None:
            if size == known.end and known.is_all_marked() and known.is_there():
                self._known[name] = Part(name, size, time, known.start, known.mark)  # touched, and no more
                return None
            if size <= known.end or not known.is_there():
                return "the file was changed after it was read; its new contents are not read"
            if self.format == "parquet" and known.end in row_groups.starts(name):  # cut there
                return Part(name, size, time, known.end, parts.mark_of(name, size))
            if not self._appendable(name):
                return "the file grew after it was read, and cannot be read from there on; its new part is not read"
            start = known.end
            if not parts.ends_a_line(name, start) and not _begins_a_line(name, start):
                return "the last line that was read was continued later; what was appended to the file is not read"
        end = self._whole(name, size, time, start)
        if not isinstance(end, int):
            self.waits = self.waits or end is None
            return end
        self._growing.pop(name, None)
        self._looks.pop(name, None)
        return Part(name, end, time, start, parts.mark_of(name, end))

    def _whole(self, name: str, size: int, time: int, start: int) -> int | str | None:
        """How far a file can be read: all of it if it is whole, whole lines of one that is written all the time."""
        elapsed = self._elapsed()
        looked = self._looks.get(name)
        if looked is None or looked[0] != (size, time):
            looked = self._looks[name] = (size, time), elapsed
        # A time far ahead is of another clock, and says nothing; and the clock may stand still.
        still = max(abs(self._now() - time // 1000), round((elapsed - looked[1]) * 1e6))
        if self.format in COLUMNAR:
            if self.has_footer(name, size):
                return size
            called = CALLED[self.format]
            return None if still < self.settle else f"it is not a whole {called} file; it is read when it is"
        appendable = self._appendable(name)
        if still >= self.settle * (1 if not appendable or parts.ends_a_line(name, size) else PATIENCE):
            return size
        if appendable and elapsed - self._growing.setdefault(name, elapsed) >= self.settle * PATIENCE / 1e6:
            end = parts.last_line_end(name, start, size, self._quote)
            return end if end > start else None
        return None

    def _appendable(self, name: str) -> bool:
        """Whether a file is lines of text, and can be read from the end of any of them."""
        return self.format not in COLUMNAR and not name.endswith(COMPRESSED) and not self._one_document

    def has_footer(self, name: str, size: int) -> bool:
        """Whether a columnar file ends with what is written last."""
        return (parts.is_whole_parquet if self.format == "parquet" else parts.is_whole_orc)(name, size)

    @property
    def _one_document(self) -> bool:
        given = {option.lower(): value for option, value in self.options.items()}
        whole = {"json": "multiline", "text": "wholetext"}.get(self.format)
        return self.format in ("xml", "avro") or (whole is not None and _is_true(given.get(whole)))

    @property
    def _quote(self) -> bytes | None:
        return None if self.format not in SEPARATED else self.dialect.quote.encode()[:1] or None

    def layout(self, part: Part) -> Layout:
        """How the records of a part lie; `multiLine => false` says that none has a newline in it."""
        if self.format not in SEPARATED:
            return Layout()
        given = {name.lower(): value for name, value in self.options.items()}.get("multiline")
        if given is not None and not _is_true(given):
            return Layout()
        key = part.origin, part.end
        if key not in self._layouts:
            self._layouts[key] = layout_of(part.name, part.start, part.end, self.dialect)
        found = self._layouts[key]
        return found if given is None else replace(found, multiline=True)

    def unclosed(self, part: Part) -> list[BadRow]:
        """The lines of a part with a quote that is never closed."""
        lines = self.layout(part).unclosed
        before = parts.count_lines(part.name, 0, part.start) if lines else 0
        return [
            BadRow(part.name, before + line.number, "a quote is opened and never closed", line.text) for line in lines
        ]

    def _cut(self, part: Part, rows: int) -> Part:
        """The first rows of a part of lines or of groups of rows, if it has more; others are taken as they are."""
        if self.format == "parquet":
            end = row_groups.end_of(part.name, part.start, part.end, rows)
            return part if end == part.end else replace(part, end=end, mark=parts.mark_of(part.name, end))
        given = {name.lower(): str(value).lower() for name, value in self.options.items()}
        encoding = given.get("encoding", given.get("charset", "utf-8"))
        plain = self.dialect.escape in (self.dialect.quote, "") and encoding in _ASCII and "linesep" not in given
        if not plain or not self._appendable(part.name):
            return part
        titled = part.start == 0 and self.format in SEPARATED and self._header(part.name) is not None
        end = parts.line_end(part.name, part.start, part.end, rows + titled, self._quote)
        if end >= part.end:
            return part
        return replace(part, end=end, mark=parts.mark_of(part.name, end))

    def _count_rows(self, part: Part) -> int:
        try:
            if self._appendable(part.name):
                return parts.count_lines(part.name, part.start, part.end)
            if self.format == "parquet" and (found := row_groups.count_rows(part.name, part.start, part.end)):
                return found
            return count_rows(part.name, self.format)
        except (OSError, ValueError):
            return 0

    def verify(self, captured: list[Any]) -> None:
        """A file that is written while it is read must not be taken in half."""
        taken = (Part.of(each) for stretch in captured for each in stretch)
        read = [(part.name, self._as_they_were.pop(part.origin, None)) for part in taken]
        changed = [name for name, before in read if before is not None and before != _status(name)]
        if changed:
            self._copying = True
            raise SourceChanged(
                f"the file {changed[0]} changed while it was read",
                hint="write files elsewhere and move them here when they are complete",
            )

    def committed(self, stretch: Stretch) -> None:
        if self._known is not None:
            self._known.update({part.name: part for part in map(Part.of, stretch.captured)})
        self._copying = False
        if self._copies is not None:
            parts.remove_copies(self._scratch(), self._copies)
            self._copies = None

    def files_of(self, captured: Any) -> tuple[str, ...]:
        return tuple(Part.of(each).origin for each in captured)

    def _path(self, part: Part) -> str:
        """Where to read the bytes of a part, and no others: in the file, if it ends there, or in a copy of them."""
        status = _status(part.name)
        if status is None:
            raise SourceError(
                f"the file {part.name} has disappeared",
                hint="put it back; a stream that must outlive its files needs KEEP ALL",
            )
        size, time = status
        if (size, time) != (part.end, part.time) and not part.is_there():
            raise SourceError(
                f"the file {part.name} was changed after it was read: the rows that it had are lost",
                hint="put it back as it was; a stream that must outlive its files needs KEEP ALL",
            )
        known = self._known.get(part.name) if self._known is not None else part
        taken = known is not None and known.end >= part.end
        # Nobody verifies what a query reads of the past: there, a file that may be written right now is copied.
        young = taken and abs(self._now() - time // 1000) < self.settle * PATIENCE
        unclosed = [(line.start, line.start + len(line.content)) for line in self.layout(part).unclosed]
        if (
            not unclosed
            and size == part.end
            and part.start == 0
            and not (self._appendable(part.name) and (young or self._copying))
        ):
            self._as_they_were[part.origin] = size, time
            return part.name
        self._as_they_were.pop(part.origin, None)
        if not taken:
            self._copies = self._copies or f"run{uuid.uuid4().hex[:12]}"
        purpose = "past" if taken else str(self._copies)
        return parts.copy_of(part, self._scratch(), purpose, unclosed, groups=self.format == "parquet")

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        """Parquet files of not too many rows that hold the columns of the stream, each with its type."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        from anabranch.engine.frames import arrow_schema

        if self.format != "parquet" or self.declared is None:
            return None
        wanted = arrow_schema([each for each in self.declared if columns is None or each.name in columns])
        tables, rows = [], 0
        try:
            for name in map(self._path, map(Part.of, captured)):
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

    def rows_in_files(self, captured: Any, columns: Collection[str], time: str | None) -> InFiles | None:
        """Parquet files that DuckDB can read columns of as they are; all rows have the time, within known bounds.

        Only where they have groups of rows for all cores: each is read by one.
        """
        import pyarrow as pa
        import pyarrow.parquet as parquet

        from anabranch.engine.frames import arrow_schema
        from anabranch.engine.writing import lacking, time_range

        if self.format != "parquet" or self.declared is None:
            return None
        names = tuple(map(self._path, map(Part.of, captured)))
        if any(set(name) & set("*?[]{}") for name in names):
            return None
        chosen = [each for each in self.declared if each.name in columns]
        if not names or any(each.type not in row_groups.AS_THEY_ARE for each in chosen):
            return None
        wanted, rows, groups = arrow_schema(chosen), 0, 0
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

    def in_groups(self, captured: Any, columns: Collection[str], time: str | None) -> row_groups.InGroups | None:
        """Parquet files by their groups of rows, for tasks that read them where they are."""
        if self.format != "parquet" or self.declared is None:
            return None
        return row_groups.in_groups([self._path(Part.of(each)) for each in captured], self.declared, columns, time)

    def read(self, captured: list[Any], *, checked: bool = False) -> DataFrame:
        """Rows of files with the stream's columns, the text of rows that do not parse, and the file of each.

        With `checked` it is known that all of them parse: only what a query needs is looked at.
        """
        assert self.declared is not None
        self.spark()  # first: it is Spark's parser that reads the types of columns
        taken = [Part.of(each) for stretch in captured for each in stretch]
        paths = [self._path(part) for part in taken]
        if not taken:
            return self._empty()
        if self.format in CALLED:
            frames = [self._columnar(paths)]
        elif self.format == "text":
            frames = [self._lines(paths)]
        else:
            groups: dict[_Shape, list[str]] = {}
            for part, path in zip(taken, paths, strict=True):
                groups.setdefault(self._shape(part), []).append(path)
            frames = [self._text(group, shape, checked) for shape, group in groups.items()]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _empty(self) -> DataFrame:
        from anabranch.engine.frames import struct

        assert self.declared is not None
        extra = tuple(Field(name, "string") for name in ("_corrupt", "_origin", "_partition"))
        return self.spark().createDataFrame([], struct((*self.declared, *extra)))

    def _shape(self, part: Part) -> _Shape:
        if self.format not in SEPARATED:
            return _Shape()
        return _Shape(self._header(part.name), part.start > 0, self.layout(part).multiline)

    def _text(self, names: list[str], shape: _Shape, checked: bool) -> DataFrame:
        """CSV columns go by the names in the header where there is one, by position otherwise."""
        from anabranch.engine.frames import struct

        assert self.declared is not None
        types = {field.name.lower(): field for field in self.declared}
        columns, header = self.declared, shape.header
        missing: set[str] = set()
        if header is not None:
            columns = tuple(types.get(name.lower(), Field(f"_other_{i}", "string")) for i, name in enumerate(header))
            missing = set(types) - {name.lower() for name in header}
            if missing == set(types):
                have = ", ".join(field.name for field in self.declared)
                raise SourceError(
                    f"{names[0]}: none of the columns in its header is a column of the stream",
                    hint=f"the header has {', '.join(header[:8])}; the stream has {have}",
                )
        reader = shape.apply(self._reader(infer=False)).option("mode", "PERMISSIVE")
        if not checked:
            columns = (*columns, Field("_corrupt", "string"))
            reader = reader.option("columnNameOfCorruptRecord", "_corrupt")
        frame = reader.schema(struct(columns)).load(names)
        items = [
            f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}"
            if field.name.lower() in missing
            else quote_name(types[field.name.lower()].name)
            for field in self.declared
        ]
        if checked:
            return frame.selectExpr(*items)
        # Spark parses only the columns that a query needs: whether a row is bad would depend on who asks. This never
        # true condition needs all of them.
        every = ", ".join(quote_name(name) for name in frame.columns if name != "_corrupt")
        corrupt = f"IF(coalesce(_corrupt, '') = '\\u0000' AND xxhash64({every}) = 0, NULL, _corrupt) AS _corrupt"
        return frame.selectExpr(*items, corrupt, "input_file_name() AS _origin", "'' AS _partition")

    def _columnar(self, names: list[str]) -> DataFrame:
        """Columns by name, cast to the stream's types; a file without one of them has NULL there.

        The schema is read from the files here, once a shape of file: Spark would start a job for it in every run.
        """
        shapes: dict[str, list[str]] = {}
        for name in names:
            shapes.setdefault(self._shape_of(name), []).append(name)
        frames = [self._one_shape(shape, group) for shape, group in shapes.items()]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _lines(self, names: list[str]) -> DataFrame:
        """Lines of text, as the one column of the stream."""
        assert self.declared is not None
        if len(self.declared) != 1:
            raise SourceError(
                f"lines of text are one column, and the stream has {len(self.declared)}",
                hint="CREATE STREAM s (line STRING) FROM text('...')",
            )
        (column,) = self.declared
        return (
            self._reader(infer=False)
            .load(names)
            .selectExpr(
                f"CAST(value AS {column.type}) AS {quote_name(column.name)}",
                "CAST(NULL AS STRING) AS _corrupt",
                "input_file_name() AS _origin",
                "'' AS _partition",
            )
        )

    def _one_shape(self, shape: str, names: list[str]) -> DataFrame:
        assert self.declared is not None
        schema, origin = self._schema_of(shape, names[0]), "input_file_name()"
        if self.format == "avro":
            own = [Field(each.name, each.dataType.simpleString()) for each in schema.fields]
            frame, origin = avro_files.frame(self.spark(), names, own), avro_files.FILE
        else:
            frame = self._reader(infer=False).schema(schema).load(names)
        have = {field.name.lower(): field.name for field in schema.fields}
        items = [
            f"CAST({quote_name(have[field.name.lower()])} AS {field.type}) AS {quote_name(field.name)}"
            if field.name.lower() in have
            else f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}"
            for field in self.declared
        ]
        # Not _metadata.file_path: once asked for, Spark makes all of _metadata for every row, needed or not.
        return frame.selectExpr(*items, "CAST(NULL AS STRING) AS _corrupt", f"{origin} AS _origin", "'' AS _partition")

    def _reader(self, *, infer: bool) -> DataFrameReader:
        return reader(self.spark(), self.format, self.options, infer=infer)

    def header(self, name: str) -> tuple[str, ...] | None:
        """The names of the columns of a CSV file, if its first line has them."""
        return self._header(name)

    def _header(self, name: str) -> tuple[str, ...] | None:
        """The names in the first line of a CSV file; None if it is a row.

        Where nothing is said about a header, a first line that holds only names of columns is one.
        """
        given = self.options.get("header")
        if given is not None and not _is_true(given):
            return None
        with self.open_text(name) as lines:
            if len(self.dialect.separator) == 1:
                names = next(self.dialect.rows(lines), [])
            else:
                names = lines.readline().rstrip("\r\n").split(self.dialect.separator)
        found = _distinct([each.strip() for each in names])
        if not found:
            return None  # an empty file
        if given is None and self.declared is not None:
            declared = {field.name.lower() for field in self.declared}
            if not {each.lower() for each in found} <= declared:
                return None
        return found

    # ---- where files are

    def status(self, name: str) -> tuple[int, int] | None:
        """Size and time of change of a file; None if it is gone."""
        return _status(name)

    def mark(self, name: str, end: int) -> str | None:
        return parts.mark_of(name, end)

    def open(self, name: str) -> IO[bytes]:
        return open(name, "rb")

    def open_text(self, name: str) -> IO[str]:
        return open_text(name)

    def has_long_number(self, name: str, digits: int) -> bool:
        return has_long_number(name, digits)

    def explain(self, rows: Sequence[tuple[str, str]]) -> list[why.Why]:
        """The lines of texts that are no rows of the stream, and why they are none; each is given with its origin."""
        by_origin: dict[str, list[str]] = {}
        for origin, raw in rows:
            by_origin.setdefault(origin, []).append(raw)
        lines = {origin: self._lines_of(origin, texts) for origin, texts in by_origin.items()}
        names = {origin: self._names(parts.file_and_start(origin)[0]) for origin in by_origin}
        assert self.declared is not None
        reasons = why.reasons(self.spark(), rows, self.format, self.dialect, names, self.declared)
        pairs = zip(rows, reasons, strict=True)
        return [found._replace(line=lines[origin].get(_first_line(raw))) for (origin, raw), found in pairs]

    def _names(self, name: str) -> tuple[str, ...]:
        """The names of the columns of a file, in their order."""
        assert self.declared is not None
        header = self._header(name) if self.format in SEPARATED and self.status(name) else None
        return header or tuple(field.name for field in self.declared)

    def _lines_of(self, origin: str, raw: list[str]) -> dict[str, int]:
        """The line numbers of texts, by their first lines."""
        wanted = set(map(_first_line, raw))
        found: dict[str, int] = {}
        path, start = parts.file_and_start(origin)
        if not os.path.exists(path):
            return found
        before = parts.count_lines(path, 0, start)
        with open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                text = line.rstrip("\r\n")
                if number > before and text in wanted and text not in found:
                    found[text] = number
                    if len(found) == len(wanted):
                        break
        return found


def reader(spark: SparkSession, format: str, options: Mapping[str, Any], *, infer: bool) -> DataFrameReader:
    """Spark's reader for a format, with the user's options on top of ours."""
    made = spark.read.format("csv" if format == "tsv" else format)
    if format == "tsv":
        made = made.option("sep", "\t")
    if format in SEPARATED:  # RFC 4180: a quote within quotes is doubled
        made = made.option("escape", str({name.lower(): value for name, value in options.items()}.get("quote", '"')))
    if infer and format in SEPARATED:
        made = made.option("inferSchema", "true").option("header", "true")
    if infer and format in ("json", "xml"):
        made = made.option("mode", "DROPMALFORMED")
    for name, value in options.items():
        made = made.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return made


def _shape_of(file: IO[bytes], format: str) -> str:
    """The columns of a columnar file, as a text that is the same for files that Spark can read together."""
    if format == "parquet":
        import pyarrow.parquet as parquet

        return str(parquet.read_schema(file).remove_metadata())
    if format == "avro":
        return json.dumps(avro_files.schema_of(file))
    from pyarrow import orc

    return str(orc.ORCFile(file).schema)


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].rstrip("\r")


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns as Spark makes them of a header: none is empty, and none is there twice."""
    often = Counter(name.lower() for name in names)
    return tuple(
        f"_c{place}" if not name else f"{name}{place}" if often[name.lower()] > 1 else name
        for place, name in enumerate(names)
    )


def _status(name: str) -> tuple[int, int] | None:
    """Size and time of change of a file; None if it is gone."""
    try:
        status = os.stat(name)
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _begins_a_line(name: str, place: int) -> bool:
    with open(name, "rb") as file:
        file.seek(place)
        return file.read(1) in (b"\n", b"\r")


def _is_true(value: Any) -> bool:
    return bool(str(value).lower() == "true")


def open_text(name: str) -> IO[str]:
    return io.TextIOWrapper(parts.open_bytes(name), encoding="utf-8-sig", errors="replace", newline="")


def count_rows(name: str, format: str) -> int:
    """About how many rows a file has: exact for Parquet and for lines of text."""
    try:
        if format == "parquet":
            import pyarrow.parquet as parquet

            return int(parquet.read_metadata(name).num_rows)
        if format == "avro":
            with open(name, "rb") as file:
                return avro_files.count_rows(file)
        with open_text(name) as lines:
            return sum(1 for _ in lines)
    except (OSError, ValueError):
        return 0
