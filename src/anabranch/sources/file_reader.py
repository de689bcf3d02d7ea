"""What is in files of one format: their columns, and their rows with the columns of a stream, as Spark reads them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import avro_files, avro_values, inference, parts, row_lines, why
from anabranch.sources.base import BadRow
from anabranch.sources.local_files import LocalFiles
from anabranch.sources.parts import Part
from anabranch.sources.paths import CALLED, COMPRESSED, SEPARATED
from anabranch.sources.quotes import Dialect, Layout
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from anabranch.sources.hadoop import Store


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


class FileReader:
    """Reads files of one format. A part of a file comes with the path that its bytes are to be read from."""

    def __init__(
        self,
        files: LocalFiles | Store,
        format: str,
        options: Mapping[str, Any],
        spark: Callable[[], SparkSession],
        declared: tuple[Field, ...] | None,
    ) -> None:
        self.files = files
        self.format = format
        self.options = options
        self.spark = spark
        self.declared = declared
        self.dialect = Dialect.of(format, options)
        self._layouts: dict[tuple[str, int], Layout] = {}
        self._schemas: dict[str, StructType] = {}

    def option(self, name: str) -> str | None:
        """What the user says of an option, in small letters."""
        return {key.lower(): str(value).lower() for key, value in self.options.items()}.get(name)

    @property
    def one_document(self) -> bool:
        whole = {"json": "multiline", "text": "wholetext"}.get(self.format)
        return self.format in ("xml", "avro") or (whole is not None and self.option(whole) == "true")

    @property
    def quote(self) -> bytes | None:
        return None if self.format not in SEPARATED else self.dialect.quote.encode()[:1] or None

    # ---- columns

    def columns(self, taken: Sequence[tuple[Part, str]]) -> tuple[Field, ...]:
        """The columns of files together: each has the type that the values of all of them have."""
        from anabranch.engine.frames import fields_of

        if self.format == "avro":
            schemas = (json.loads(self._shape_of(part.name)) for part, _ in taken)
            return _together(field for schema in schemas for field in avro_values.fields_of(schema))
        groups: dict[_Shape, list[str]] = {}
        for part, path in taken:
            groups.setdefault(self._shape(part), []).append(path)
        found: list[Field] = []
        for shape, names in groups.items():
            frame = shape.apply(self.spark_reader(infer=True)).load(names)
            fields = fields_of(frame)
            if shape.header is not None:
                fields = [Field(name, field.type) for name, field in zip(shape.header, fields, strict=True)]
            if self.format in (*SEPARATED, "json"):
                fields = self._exact(fields, shape, names)
            found += fields
        return tuple(Field(f.name, "timestamp" if f.type == "timestamp_ntz" else f.type) for f in _together(found))

    def _exact(self, fields: list[Field], shape: _Shape, names: list[str]) -> list[Field]:
        """Columns that Spark takes for fractions because of whole numbers that are too long for it: exact types."""
        from anabranch.engine.frames import struct

        digits = inference.EXACT_DIGITS + 1
        numbers = [place for place, field in enumerate(fields) if field.type == "double"]
        if not numbers or not any(self.files.has_long_number(name, digits) for name in names):
            return fields
        texts = struct(
            [Field(f"c{place}" if self.format != "json" else f.name, "string") for place, f in enumerate(fields)]
        )
        reader = shape.apply(self.spark_reader(infer=False)).schema(texts)
        frame = reader.load(names).toDF(*(f"c{place}" for place in range(len(fields))))
        measured = [text for place in numbers for text in inference.measures(f"c{place}")]
        values = list(frame.selectExpr(*measured).collect()[0])
        exact = list(fields)
        for index, place in enumerate(numbers):
            exact[place] = Field(fields[place].name, inference.exact_type(*values[index * 4 : index * 4 + 4]))
        return exact

    def columns_of_columnar(self, name: str) -> tuple[Field, ...]:
        schema = self._schema_of(self._shape_of(name), name)
        return tuple(Field(each.name, each.dataType.simpleString()) for each in schema.fields)

    def _shape_of(self, name: str) -> str:
        """The columns of a file, as a text that is the same for files that can be read together."""
        try:
            with self.files.open(name) as file:
                if self.format == "parquet":
                    import pyarrow.parquet as parquet

                    return str(parquet.read_schema(file).remove_metadata())
                if self.format == "avro":
                    return json.dumps(avro_files.schema_of(file))
                from pyarrow import orc

                return str(orc.ORCFile(file).schema)
        except (OSError, ValueError) as error:
            raise SourceError(f"{name} is not a readable {CALLED[self.format]} file: {error}") from error

    def _schema_of(self, shape: str, name: str) -> StructType:
        from anabranch.engine.frames import struct

        if shape not in self._schemas:
            if self.format == "avro":  # fields that are no columns are not read
                found = struct([field for field in avro_values.readable_fields(json.loads(shape)) if field.type])
            else:
                found = self.spark_reader(infer=False).load([name]).schema
            self._schemas[shape] = found
        return self._schemas[shape]

    def keys_of(self, path: str) -> list[str]:
        """The names of the fields in lines of JSON; none where DuckDB cannot read the file, which Spark can."""
        import duckdb

        if self.one_document or path.endswith(tuple(each for each in COMPRESSED if each not in (".gz", ".zst"))):
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

    def header(self, name: str) -> tuple[str, ...] | None:
        """The names in the first line of a CSV file; None if it is a row.

        Where nothing is said about a header, a first line that holds only names of columns is one.
        """
        given = self.options.get("header")
        if given is not None and str(given).lower() != "true":
            return None
        with self.files.open_text(name) as lines:
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

    # ---- rows

    def count_rows(self, name: str) -> int:
        """About how many rows a file has: exact for Parquet and for lines of text."""
        if self.format == "parquet":
            import pyarrow.parquet as parquet

            return int(parquet.read_metadata(name).num_rows)
        if self.format == "avro":
            with self.files.open(name) as file:
                return avro_files.count_rows(file)
        with self.files.open_text(name) as lines:
            return sum(1 for _ in lines)

    def rows(self, taken: Sequence[tuple[Part, str]], *, checked: bool) -> DataFrame:
        """Rows with the stream's columns, the text of those that do not parse, and the file of each.

        With `checked` it is known that all of them parse: only what a query needs is looked at.
        """
        assert self.declared is not None
        self.spark()  # first: it is Spark's parser that reads the types of columns
        paths = [path for _, path in taken]
        if not taken:
            return self._empty()
        if self.format in CALLED:
            frames = [self._columnar(paths)]
        elif self.format == "text":
            frames = [self._lines(paths)]
        else:
            groups: dict[_Shape, list[str]] = {}
            for part, path in taken:
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
        return _Shape(self.header(part.name), part.start > 0, self.layout(part).multiline)

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
        reader = shape.apply(self.spark_reader(infer=False)).option("mode", "PERMISSIVE")
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
            self.spark_reader(infer=False)
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
            frame = self.spark_reader(infer=False).schema(schema).load(names)
        have = {field.name.lower(): field.name for field in schema.fields}
        items = [
            f"CAST({quote_name(have[field.name.lower()])} AS {field.type}) AS {quote_name(field.name)}"
            if field.name.lower() in have
            else f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}"
            for field in self.declared
        ]
        # Not _metadata.file_path: once asked for, Spark makes all of _metadata for every row, needed or not.
        return frame.selectExpr(*items, "CAST(NULL AS STRING) AS _corrupt", f"{origin} AS _origin", "'' AS _partition")

    def spark_reader(self, *, infer: bool) -> DataFrameReader:
        """Spark's reader for the format, with the user's options on top of ours."""
        made = self.spark().read.format("csv" if self.format == "tsv" else self.format)
        if self.format == "tsv":
            made = made.option("sep", "\t")
        if self.format in SEPARATED:  # RFC 4180: a quote within quotes is doubled
            made = made.option("escape", self.dialect.quote)
        if infer and self.format in SEPARATED:
            made = made.option("inferSchema", "true").option("header", "true")
        if infer and self.format in ("json", "xml"):
            made = made.option("mode", "DROPMALFORMED")
        for name, value in self.options.items():
            made = made.option(name, str(value).lower() if isinstance(value, bool) else str(value))
        return made

    # ---- lines

    def layout(self, part: Part) -> Layout:
        """How the records of a part lie; `multiLine => false` says that none has a newline in it."""
        if self.format not in SEPARATED:
            return Layout()
        given = self.option("multiline")
        if given not in (None, "true"):
            return Layout()
        key = part.origin, part.end
        if key not in self._layouts:
            self._layouts[key] = self.files.layout(part, self.dialect)
        found = self._layouts[key]
        return found if given is None else replace(found, multiline=True)

    def in_lines(
        self, taken: Sequence[tuple[Part, str]], columns: Collection[str], time: str | None
    ) -> row_lines.InLines | None:
        """Columns of the rows of parts by their lines; None if only Spark can read them."""
        if self.declared is None:
            return None
        found = []
        for part, path in taken:
            form = self._form(part, self.declared, time)
            if form is None:
                return None
            found.append(row_lines.Lines(path, 0, os.path.getsize(path), form))
        chosen = tuple(field for field in self.declared if field.name in columns)
        return row_lines.InLines(chosen, tuple(each for each in found if each.end))

    def _form(self, part: Part, declared: tuple[Field, ...], time: str | None) -> row_lines.Form | None:
        """How the lines of a part are written; None if only Spark can read them."""
        from anabranch.engine.frames import arrow_schema

        given, separator = {name.lower() for name in self.options}, ""
        fields, header = declared, None
        if self.format in SEPARATED:
            separator, given = self.dialect.separator, given - {"header", "sep", "delimiter"}
            if separator not in row_lines.SEPARATORS or self.layout(part).multiline:
                return None
            header, known = self.header(part.name), {field.name.lower(): field for field in declared}
            if header is not None:
                fields = tuple(known.get(name.lower(), Field("", "string")) for name in header)
        elif self.format != "json":
            return None
        if part.name.endswith(COMPRESSED) and not part.name.endswith(row_lines.OPENED):
            return None
        named = any(field.name for field in fields)
        if given or not named or not row_lines.has_certain_types(declared, separator):
            return None
        titled = header is not None and part.start == 0
        return row_lines.Form(fields, arrow_schema(declared), separator, titled, time)

    def forget_layouts(self) -> None:
        self._layouts.clear()

    def unclosed(self, part: Part) -> list[BadRow]:
        """The lines of a part with a quote that is never closed."""
        lines = self.layout(part).unclosed
        before = parts.count_lines(part.name, 0, part.start) if lines else 0
        return [
            BadRow(part.name, before + line.number, "a quote is opened and never closed", line.text) for line in lines
        ]

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
        header = self.header(name) if self.format in SEPARATED and self.files.status(name) else None
        return header or tuple(field.name for field in self.declared)

    def _lines_of(self, origin: str, raw: list[str]) -> dict[str, int]:
        """The line numbers of texts, by their first lines."""
        wanted = set(map(_first_line, raw))
        found: dict[str, int] = {}
        path, start = parts.file_and_start(origin)
        if not os.path.exists(path):
            return found
        before = parts.count_lines(path, 0, start)
        with self.files.open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                text = line.rstrip("\r\n")
                if number > before and text in wanted and text not in found:
                    found[text] = number
                    if len(found) == len(wanted):
                        break
        return found


def _together(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Columns by name, each with the type that the values of all of this name have."""
    found: dict[str, Field] = {}
    for field in fields:
        known = found.setdefault(field.name.lower(), field)
        found[field.name.lower()] = Field(known.name, inference.wider(known.type, field.type))
    return tuple(found.values())


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].rstrip("\r")


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns as Spark makes them of a header: none is empty, and none is there twice."""
    often = Counter(name.lower() for name in names)
    return tuple(
        f"_c{place}" if not name else f"{name}{place}" if often[name.lower()] > 1 else name
        for place, name in enumerate(names)
    )
