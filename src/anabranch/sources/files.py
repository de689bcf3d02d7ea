"""Files: a path, a folder or a glob, each file read once, whatever its age.

Spark's own file stream skips files that are much older than the newest and says nothing when a file it has read is
written again. Here every file counts, and one that changes after it was read is reported.
"""

from __future__ import annotations

import bz2
import csv
import glob
import gzip
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from anabranch.errors import SourceError, did_you_mean
from anabranch.plan.catalog import Field
from anabranch.sources.base import BadRow, SourceChanged, Stretch
from anabranch.sql.lexer import quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")
#: Options that are ours; everything else goes to Spark's reader as it is.
OWN_OPTIONS = ("path", "format")
TEXT_OPTIONS = {
    "header", "sep", "delimiter", "quote", "escape", "encoding", "charset", "comment", "nullvalue", "nanvalue",
    "positiveinf", "negativeinf", "dateformat", "timestampformat", "timestampntzformat", "multiline", "linesep",
    "ignoreleadingwhitespace", "ignoretrailingwhitespace", "emptyvalue", "locale", "maxcolumns", "maxcharspercolumn",
    "unescapedquotehandling", "inferschema", "samplingratio", "allowcomments", "allowunquotedfieldnames",
    "allowsinglequotes", "allownumericleadingzeros", "allowbackslashescapinganycharacter", "primitivesasstring",
    "prefersdecimal", "prefersdate", "timezone", "mergeschema", "recursivefilelookup", "enforceschema",
    "dropfieldifallnull", "allowunquotedcontrolchars", "preferdate",
}  # fmt: skip
#: What one run takes at the most when nothing else is said.
MAX_FILES, MAX_BYTES = 20_000, 8 << 30
#: More rows than this are not read into the memory of the driver, however few bytes they take in a file.
MOST_AT_HAND = 5_000_000


#: Types that DuckDB reads from Parquet files as they are; of fractions it may take a bound for one that NaN is within.
AS_THEY_ARE = ("string", "boolean", "date", "timestamp", "tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class InFiles:
    """Rows in Parquet files, with what is known of them without looking: their number and the range of a time."""

    paths: tuple[str, ...]
    rows: int
    low: int | None
    high: int | None


class FilesSource:
    """The files that match a path, in the order in which they were written."""

    endless = False

    def __init__(
        self,
        options: Mapping[str, Any],
        spark: Callable[[], SparkSession],
        fields: tuple[Field, ...] | None = None,
        seen: Callable[[], list[Any]] = list,
    ) -> None:
        path = options.get("path")
        if not isinstance(path, str) or not path:
            raise SourceError("files needs a path", hint="as in files(path => 'in/*.csv')")
        self.path = path
        self.options = {k: v for k, v in options.items() if k not in OWN_OPTIONS}
        self.format = format_of(path, options.get("format"))
        check_options(self.options, self.format)
        self.typed = self.cheap = self.format == "parquet"
        self.spark = spark
        self.declared = fields
        self._seen = seen
        self._known: dict[str, tuple[int, int]] | None = None
        self._shapes: dict[str, StructType] = {}

    def partitions(self) -> list[str]:
        return [""]

    def fields(self) -> tuple[Field, ...]:
        """The columns of the files there are, by Spark's inference."""
        from anabranch.engine.frames import fields_of

        files = self.listing()
        if not files:
            raise SourceError(
                f"no file matches {self.path}, so its columns cannot be found out",
                hint="name the columns in CREATE STREAM, or put a file there first",
            )
        frame = self._reader(infer=True).load([name for name, _, _ in files[:100]])
        return tuple(Field(f.name, "timestamp" if f.type == "timestamp_ntz" else f.type) for f in fields_of(frame))

    def listing(self) -> list[tuple[str, int, int]]:
        """Every file: its path, size and time of change, oldest first. Hidden and unfinished files are left out."""
        found: list[tuple[str, int, int]] = []
        for name in _matches(self.path):
            base = os.path.basename(name)
            if base.startswith((".", "_")) or base.endswith((".tmp", ".crc", "._COPYING_")):
                continue
            try:
                status = os.stat(name)
            except FileNotFoundError:
                continue
            found.append((os.path.abspath(name), status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda file: (file[2], file[0]))

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        if self._known is None:
            self._known = {name: (size, time) for files in self._seen() for name, size, time in files}
        reported = {} if position is None else dict(position.get("changed", {}))
        fresh: list[list[Any]] = []
        bad: list[BadRow] = []
        total = rows = 0
        for name, size, time in self.listing():
            if name in self._known:
                if self._known[name] != (size, time) and reported.get(name) != [size, time]:
                    reported[name] = [size, time]
                    bad.append(
                        BadRow(
                            name,
                            None,
                            "the file was changed after it was read; its new contents are not read",
                            None,
                        )
                    )
                continue
            if fresh and (len(fresh) >= MAX_FILES or total + size > MAX_BYTES):
                break
            if max_rows is not None:
                rows += count_rows(name, self.format)
                if fresh and rows > max_rows:
                    break
            fresh.append([name, size, time])
            total += size
        if not fresh and not bad:
            return None
        count = 0 if position is None else int(position["files"])
        names = tuple(name for name, _, _ in fresh)
        return Stretch({"files": count + len(fresh), "changed": reported}, fresh, total, tuple(bad), names)

    def verify(self, stretch: Stretch) -> None:
        """A file that is still being written must not be taken in half."""
        for name, size, time in stretch.captured:
            try:
                status = os.stat(name)
            except FileNotFoundError as error:
                raise _disappeared(name) from error
            if (status.st_size, status.st_mtime_ns) != (size, time):
                raise SourceChanged(
                    f"the file {name} changed while it was read",
                    hint="write files elsewhere and move them here when they are complete",
                )

    def committed(self, stretch: Stretch) -> None:
        if self._known is not None:
            self._known.update({name: (size, time) for name, size, time in stretch.captured})

    def files_of(self, captured: Any) -> tuple[str, ...]:
        return tuple(name for name, _, _ in captured)

    def at_hand(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        """Parquet files of not too many rows that hold the columns of the stream, each with its type."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        from anabranch.engine.frames import arrow_schema

        if self.format != "parquet" or self.declared is None:
            return None
        wanted = arrow_schema([each for each in self.declared if columns is None or each.name in columns])
        tables, rows = [], 0
        try:
            for name in self.files_of(captured):
                with parquet.ParquetFile(name) as file:
                    have, rows = file.schema_arrow, rows + file.metadata.num_rows
                    if rows > MOST_AT_HAND:
                        return None
                    if not all(field.name in have.names and _same(have.field(field.name), field) for field in wanted):
                        return None
                # By groups of rows, on all cores; in the order that they have in the file.
                tables.append(parquet.read_table(name, columns=wanted.names, partitioning=None).cast(wanted))
        except (OSError, pa.ArrowException):
            return None  # Spark says what is wrong with it
        return pa.concat_tables(tables)

    def lying(self, captured: Any, columns: Collection[str], time: str | None) -> InFiles | None:
        """Parquet files that DuckDB can read columns of as they are; all rows have the time, within known bounds.

        Only where they have groups of rows for all cores: each is read by one.
        """
        import pyarrow as pa
        import pyarrow.parquet as parquet

        from anabranch.engine.frames import arrow_schema
        from anabranch.engine.writing import lacking, time_range

        names = self.files_of(captured)
        if self.format != "parquet" or self.declared is None or any(set(name) & set("*?[]{}") for name in names):
            return None
        chosen = [each for each in self.declared if each.name in columns]
        if not names or any(each.type not in AS_THEY_ARE for each in chosen):
            return None
        wanted, rows, groups = arrow_schema(chosen), 0, 0
        lows, highs = list[int](), list[int]()
        try:
            for name in names:
                metadata = parquet.read_metadata(name)
                if not _plain(metadata, wanted) or (time is not None and lacking(metadata, time)):
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

    def read(self, captured: list[Any]) -> DataFrame:
        files = [file for stretch in captured for file in stretch]
        for name, _, _ in files:
            if not os.path.exists(name):
                raise _disappeared(name)
        return self.load([name for name, _, _ in files])

    def load(self, names: list[str]) -> DataFrame:
        """Rows of files with the stream's columns, the text of rows that do not parse, and the file of each."""
        assert self.declared is not None
        self.spark()  # first: it is Spark's parser that reads the types of columns
        if not names:
            return self._empty()
        if self.format in ("csv", "tsv"):
            groups: dict[tuple[str, ...] | None, list[str]] = {}
            for name in names:
                groups.setdefault(self._header(name), []).append(name)
            frames = [self._text(group, header) for header, group in groups.items()]
        elif self.format == "json":
            frames = [self._text(names, None)]
        else:
            frames = [self._columnar(names)]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _empty(self) -> DataFrame:
        from anabranch.engine.frames import struct

        assert self.declared is not None
        extra = tuple(Field(name, "string") for name in ("_corrupt", "_origin", "_partition"))
        return self.spark().createDataFrame([], struct((*self.declared, *extra)))

    def _text(self, names: list[str], header: tuple[str, ...] | None) -> DataFrame:
        """CSV columns go by the names in the header where there is one, by position otherwise."""
        from anabranch.engine.frames import struct

        assert self.declared is not None
        types = {field.name.lower(): field for field in self.declared}
        columns = self.declared
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
        schema = struct((*columns, Field("_corrupt", "string")))
        reader = self._reader(infer=False).schema(schema)
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", "_corrupt")
        if self.format != "json":
            reader = reader.option("header", str(header is not None).lower())
        frame = reader.load(names)
        items = [
            f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}"
            if field.name.lower() in missing
            else quote_name(types[field.name.lower()].name)
            for field in self.declared
        ]
        # Spark parses only the columns that a query needs: whether a row is bad would depend on who asks. This never
        # true condition needs all of them.
        every = ", ".join(quote_name(name) for name in frame.columns if name != "_corrupt")
        corrupt = f"IF(coalesce(_corrupt, '') = '\\u0000' AND xxhash64({every}) = 0, NULL, _corrupt) AS _corrupt"
        return frame.selectExpr(*items, corrupt, "input_file_name() AS _origin", "'' AS _partition")

    def _columnar(self, names: list[str]) -> DataFrame:
        """Parquet: columns by name, cast to the stream's types; a file without one of them has NULL there.

        The schema is read from the footers here, once a shape of file: Spark would start a job for it in every run.
        """
        import pyarrow.parquet as parquet

        shapes: dict[str, list[str]] = {}
        for name in names:
            try:
                shape = str(parquet.read_schema(name).remove_metadata())
            except (OSError, ValueError) as error:
                raise SourceError(f"{name} is not a readable Parquet file: {error}") from error
            shapes.setdefault(shape, []).append(name)
        frames = [self._one_shape(shape, group) for shape, group in shapes.items()]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _one_shape(self, shape: str, names: list[str]) -> DataFrame:
        assert self.declared is not None
        if shape not in self._shapes:
            self._shapes[shape] = self._reader(infer=False).load(names[:1]).schema
        schema = self._shapes[shape]
        frame = self._reader(infer=False).schema(schema).load(names)
        have = {field.name.lower(): field.name for field in schema.fields}
        items = [
            f"CAST({quote_name(have[field.name.lower()])} AS {field.type}) AS {quote_name(field.name)}"
            if field.name.lower() in have
            else f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}"
            for field in self.declared
        ]
        # Not _metadata.file_path: once asked for, Spark makes all of _metadata for every row, needed or not.
        return frame.selectExpr(
            *items, "CAST(NULL AS STRING) AS _corrupt", "input_file_name() AS _origin", "'' AS _partition"
        )

    def _reader(self, *, infer: bool) -> DataFrameReader:
        return reader(self.spark(), self.format, self.options, infer=infer)

    def _header(self, name: str) -> tuple[str, ...] | None:
        """The names in the first line of a CSV file; None if it is a row.

        Where nothing is said about a header, a first line that holds only names of columns is one.
        """
        given = self.options.get("header")
        if given is not None and not _is_true(given):
            return None
        separator = "\t" if self.format == "tsv" else ","
        separator = str(self.options.get("sep", self.options.get("delimiter", separator)))
        with open_text(name) as lines:
            line = lines.readline()
        if len(separator) != 1:
            names = line.rstrip("\r\n").split(separator)
        else:
            names = next(csv.reader([line.removeprefix("\ufeff")], delimiter=separator), [])
        found = tuple(each.strip() for each in names)
        if given is None:
            assert self.declared is not None
            declared = {field.name.lower() for field in self.declared}
            if not found or not {each.lower() for each in found} <= declared:
                return None
        return found

    def offset_of(self, name: str, raw: list[str]) -> dict[str, int]:
        """The line numbers of rows that did not parse, found by their text; only looked for when there are any."""
        wanted = set(raw)
        found: dict[str, int] = {}
        path = name.removeprefix("file://")
        if self.format == "parquet" or not os.path.exists(path):
            return found
        with open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                text = line.rstrip("\r\n")
                if text in wanted and text not in found:
                    found[text] = number
                    if len(found) == len(wanted):
                        break
        return found


def _disappeared(name: str) -> SourceError:
    return SourceError(
        f"the file {name} has disappeared", hint="put it back; a stream that must outlive its files needs KEEP ALL"
    )


def reader(spark: SparkSession, format: str, options: Mapping[str, Any], *, infer: bool) -> DataFrameReader:
    """Spark's reader for a format, with the user's options on top of ours."""
    made = spark.read.format("csv" if format == "tsv" else format)
    if format == "tsv":
        made = made.option("sep", "\t")
    if infer and format in ("csv", "tsv"):
        made = made.option("inferSchema", "true").option("header", "true")
    for name, value in options.items():
        made = made.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return made


def format_of(path: str, given: Any = None) -> str:
    """The format a path's name tells, or the one that was given."""
    if given is not None:
        if str(given).lower() not in ("csv", "tsv", "json", "parquet"):
            raise SourceError(
                f"there is no format {given}",
                hint=did_you_mean(str(given), ["csv", "tsv", "json", "parquet"]),
            )
        return str(given).lower()
    name = path.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    for ending, format in FORMATS.items():
        if name.endswith(ending):
            return format
    found = {FORMATS[Path(each).suffix] for each in _matches(path)[:1000] if Path(each).suffix in FORMATS}
    if len(found) == 1:
        return found.pop()
    if not _matches(path):
        raise SourceError(f"no file matches {path}", hint="check the path; a relative one starts at the current folder")
    raise SourceError(
        f"the format of {path} does not follow from its name",
        hint="say it: csv('...'), json('...') or parquet('...')",
    )


def _same(have: pa.Field, wanted: pa.Field) -> bool:
    """Whether a column of a file is one of the stream as it stands; a time without a zone is in UTC."""
    import pyarrow as pa

    if pa.types.is_timestamp(have.type) and pa.types.is_timestamp(wanted.type):
        return bool(have.type.unit == wanted.type.unit)
    return bool(have.type == wanted.type)


def _plain(metadata: Any, wanted: pa.Schema) -> bool:
    """Whether a file has columns of these names and types, and DuckDB finds them by their names."""
    import pyarrow as pa

    have, columns = metadata.schema.to_arrow_schema(), range(metadata.num_columns)
    if len({name.lower() for name in have.names}) < len(have.names):
        return False
    kinds = {metadata.schema.column(index).path: metadata.schema.column(index).logical_type.type for index in columns}
    for field in wanted:
        if field.name not in have.names or not _same(have.field(field.name), field):
            return False
        if pa.types.is_timestamp(field.type) and have.field(field.name).type.tz is None:
            return False
        if pa.types.is_string(field.type) and kinds.get(field.name) != "STRING":
            return False
    return True


def path_of(origin: str) -> str:
    """The path of a file that Spark names by a URL."""
    return unquote(re.sub(r"^file:/+", "/", origin))


def check_options(options: Mapping[str, Any], format: str) -> None:
    for name in options:
        if name.lower() not in TEXT_OPTIONS:
            raise SourceError(
                f"{format} files have no option {name}",
                hint=did_you_mean(name, [*OWN_OPTIONS, *TEXT_OPTIONS]),
            )


def _matches(path: str) -> list[str]:
    plain = path.removeprefix("file://")
    if os.path.isdir(plain):
        return [os.path.join(plain, name) for name in os.listdir(plain) if os.path.isfile(os.path.join(plain, name))]
    if os.path.exists(plain):
        return [plain]
    return [name for name in glob.glob(plain, recursive=True) if os.path.isfile(name)]


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() == "true"


def open_text(name: str) -> IO[str]:
    if name.endswith(".gz"):
        return cast("IO[str]", gzip.open(name, "rt", encoding="utf-8", errors="replace"))
    if name.endswith(".bz2"):
        return cast("IO[str]", bz2.open(name, "rt", encoding="utf-8", errors="replace"))
    return open(name, encoding="utf-8", errors="replace")


def count_rows(name: str, format: str) -> int:
    """About how many rows a file has: exact for Parquet and for lines of text."""
    try:
        if format == "parquet":
            import pyarrow.parquet as parquet

            return int(parquet.read_metadata(name).num_rows)
        with open_text(name) as lines:
            return sum(1 for _ in lines)
    except (OSError, ValueError):
        return 0
