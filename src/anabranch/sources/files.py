"""Files: a path, a folder or a glob, each file read once, whatever its age.

Spark's own file stream skips files that are much older than the newest, reads files that are half written, and says
nothing when a file it has read is written again. Here every file counts, and is read when it is whole. What is appended
to a file later is read as a part of its own, and a file that was changed otherwise is reported.
"""

from __future__ import annotations

import tempfile
import time as time_module
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import avro_files, parquet_rows, parts, row_groups, row_lines
from anabranch.sources.base import BadRow, Source, SourceChanged, Stretch
from anabranch.sources.file_reader import FileReader
from anabranch.sources.listing import File, Listing
from anabranch.sources.local_files import LocalFiles
from anabranch.sources.parquet_rows import InFiles
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
from anabranch.sources.schemas import SchemaChange, compare
from anabranch.sources.why import Why
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.sources.hadoop import Objects, Store

#: What one run takes at the most when nothing else is said, and what it copies at the most.
MAX_FILES, MAX_BYTES, MAX_COPIED = 20_000, 8 << 30, 256 << 20
#: A text file that does not end with a newline is whole after so many times as long as others; and whole lines of one
#: that never settles are read as often.
PATIENCE = 5
#: Encodings in which the byte of a newline is nothing else.
_ASCII = ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252")


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
        files: LocalFiles | Store | None = None,
    ) -> None:
        """`now` tells the time in microseconds, `scratch` a folder for copies of parts of files, `files` opens them."""
        path = options.get("path")
        if not isinstance(path, str) or not path:
            raise SourceError("files needs the option path", hint="as in files(path => 'in/*.csv')")
        check_scheme(path)
        self.path = path
        given = {k: v for k, v in options.items() if k not in OWN_OPTIONS}
        self.format = format_of(path, options.get("format"))
        check_options(given, self.format)
        if self.format == "avro":
            avro_files.check_installed()
        self.settle = settle_of(options.get("settle"))
        self.skips = skips(options.get("bad_rows"))
        self.files = files or LocalFiles()
        self.reader = FileReader(self.files, self.format, given, spark, fields)
        self.cheap = self.format in COLUMNAR
        self.typed = self.cheap or self.format in ("text", "avro")
        self.waits = False
        self.inferred = inferred or adds  # whether more columns than the stream has are a change
        self._seen = seen
        self._now = now or (lambda: time_module.time_ns() // 1000)
        self._scratch = scratch or (lambda: Path(tempfile.gettempdir()))
        self._elapsed = elapsed
        self._listing: Listing | Objects = Listing(path, elapsed)
        self._known: dict[str, Part] | None = None
        #: Size and time of a file, and since when they are so.
        self._looks: dict[str, tuple[tuple[int, int], float]] = {}
        self._growing: dict[str, float] = {}  # files that are being written, and since when that was seen
        self._as_they_were: dict[str, tuple[int, int]] = {}  # size and time of files when Spark was told to read them
        self._copying = False  # a file changed while it was read: the next time, copies are read
        self._copies: str | None = None  # the folder of copies for the run on its way

    @property
    def declared(self) -> tuple[Field, ...] | None:
        return self.reader.declared

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
        taken = [
            (part, self._path(part) if self.reader.layout(part).unclosed else part.name)
            for part in files
            if self.format in CALLED or part.size
        ]
        found = self.reader.columns(taken)
        if not found:
            raise SourceError(f"{self.path} has no columns: there is no row in it")
        return found

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
            bad += self.reader.unclosed(found)
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
                have = self.reader.columns_of_columnar(part.name)
                found.append(compare(part.name, have, self.declared, inferred=self.inferred))
            elif self.format in SEPARATED:
                header = self.reader.header(part.name) if part.start == 0 and part.size else None
                have = tuple(Field(name, "") for name in header or ())
                if have:
                    found.append(compare(part.name, have, self.declared, inferred=self.inferred))
            elif self.format == "json" and self.inferred:
                have = (*self.declared, *(Field(name, "") for name in self.reader.keys_of(self._path(part))))
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
        self.reader.declared = fields

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
            end = parts.last_line_end(name, start, size, self.reader.quote)
            return end if end > start else None
        return None

    def _appendable(self, name: str) -> bool:
        """Whether a file is lines of text, and can be read from the end of any of them."""
        return self.format not in COLUMNAR and not name.endswith(COMPRESSED) and not self.reader.one_document

    def has_footer(self, name: str, size: int) -> bool:
        """Whether a columnar file ends with what is written last."""
        return (parts.is_whole_parquet if self.format == "parquet" else parts.is_whole_orc)(name, size)

    def _cut(self, part: Part, rows: int) -> Part:
        """The first rows of a part of lines or of groups of rows, if it has more; others are taken as they are."""
        if self.format == "parquet":
            end = row_groups.end_of(part.name, part.start, part.end, rows)
            return part if end == part.end else replace(part, end=end, mark=parts.mark_of(part.name, end))
        dialect, option = self.reader.dialect, self.reader.option
        encoding = option("encoding") or option("charset") or "utf-8"
        plain = dialect.escape in (dialect.quote, "") and encoding in _ASCII and option("linesep") is None
        if not plain or not self._appendable(part.name):
            return part
        titled = part.start == 0 and self.format in SEPARATED and self.reader.header(part.name) is not None
        end = parts.line_end(part.name, part.start, part.end, rows + titled, self.reader.quote)
        if end >= part.end:
            return part
        return replace(part, end=end, mark=parts.mark_of(part.name, end))

    def _count_rows(self, part: Part) -> int:
        try:
            if self._appendable(part.name):
                return parts.count_lines(part.name, part.start, part.end)
            if self.format == "parquet" and (found := row_groups.count_rows(part.name, part.start, part.end)):
                return found
            return self.reader.count_rows(part.name)
        except (OSError, ValueError):
            return 0

    def verify(self, captured: list[Any]) -> None:
        """A file that is written while it is read must not be taken in half."""
        taken = (Part.of(each) for stretch in captured for each in stretch)
        read = [(part.name, self._as_they_were.pop(part.origin, None)) for part in taken]
        changed = [name for name, before in read if before is not None and before != self.files.status(name)]
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
        status = self.files.status(part.name)
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
        unclosed = [(line.start, line.start + len(line.content)) for line in self.reader.layout(part).unclosed]
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

    def explain(self, rows: Sequence[tuple[str, str]]) -> list[Why]:
        return self.reader.explain(rows)

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        """The rows of files that are not large, where they are read as Spark reads them: of Parquet files that hold the
        columns of the stream, each with its type, and of lines of text."""
        if self.declared is None:
            return None
        if self.format != "parquet":
            found = self.in_groups(captured, columns or [field.name for field in self.declared], None)
            return row_lines.read_all(found) if isinstance(found, row_lines.InLines) else None
        fields = [each for each in self.declared if columns is None or each.name in columns]
        return parquet_rows.table(map(self._path, map(Part.of, captured)), fields)

    def rows_in_files(self, captured: Any, columns: Collection[str], time: str | None) -> InFiles | None:
        """Parquet files that DuckDB can read columns of as they are; all rows have the time, within known bounds."""
        if self.format != "parquet" or self.declared is None:
            return None
        fields = [each for each in self.declared if each.name in columns]
        return parquet_rows.in_files(tuple(map(self._path, map(Part.of, captured))), fields, time)

    def in_groups(
        self, captured: Any, columns: Collection[str], time: str | None
    ) -> row_groups.InGroups | row_lines.InLines | None:
        """Parquet files by groups of rows, CSV and JSON by lines, for tasks that read them where they are."""
        if self.declared is None:
            return None
        taken = [Part.of(each) for each in captured]
        if self.format == "parquet":
            return row_groups.in_groups([self._path(part) for part in taken], self.declared, columns, time)
        return self.reader.in_lines([(part, self._path(part)) for part in taken if part.size], columns, time)

    def read(self, captured: list[Any], *, checked: bool = False) -> DataFrame:
        """Rows of files with CORRUPT, ORIGIN and PARTITION; with `checked` it is known that all of them parse."""
        taken = [Part.of(each) for stretch in captured for each in stretch]
        return self.reader.rows([(part, self._path(part)) for part in taken], checked=checked)

    def mark(self, name: str, end: int) -> str | None:
        return parts.mark_of(name, end)


def _begins_a_line(name: str, place: int) -> bool:
    with open(name, "rb") as file:
        file.seek(place)
        return file.read(1) in (b"\n", b"\r")
