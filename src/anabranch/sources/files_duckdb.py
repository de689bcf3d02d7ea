"""Files as DuckDB reads them, with the columns, types and values that Spark would find in them.

Whatever is not certain to be read alike raises Uncertain, and is Spark's to read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.duck import path_list, quoted, quoted_text
from anabranch.sources import json_rows
from anabranch.sources.csv_grammar import Uncertain, certain_types
from anabranch.sources.files import FilesSource
from anabranch.sources.json_rows import OTHER
from anabranch.sources.paths import COMPRESSED
from anabranch.types import Field

#: How the types of CSV columns are read, and made of what was read.
_READ = {"int": "INTEGER", "bigint": "BIGINT", "double": "DOUBLE", "date": "DATE", "timestamp": "TIMESTAMP"}
_MADE = {"timestamp": "make_timestamptz(epoch_us({0}))", "boolean": "(lower({0}) = 'true')"}
#: Parquet's own types, by the physical and the logical one, that both engines take for the same.
_PARQUET = {
    ("BOOLEAN", "NONE"): "boolean", ("INT32", "NONE"): "int", ("INT64", "NONE"): "bigint", ("FLOAT", "NONE"): "float",
    ("DOUBLE", "NONE"): "double", ("BYTE_ARRAY", "STRING"): "string", ("INT32", "DATE"): "date",
}  # fmt: skip
_WHOLE = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}


@dataclass(frozen=True)
class Relation:
    """Files with known columns, as a relation of DuckDB's. `bounded`: the files say within which bounds values are."""

    fields: tuple[Field, ...]
    text: str
    bounded: bool = False
    table: Any = None  # the rows, a pyarrow.Table, where they have been read already
    name: str = ""  # of the table


def relation(files: FilesSource, names: Sequence[str]) -> Relation:
    """What files hold; raises Uncertain."""
    if files.reader.options or files.skips:
        raise Uncertain("options of files are Spark's")
    if any(name.endswith(COMPRESSED) for name in names):
        raise Uncertain("a file is compressed")
    if any(set(name) & set("*?[]{}") for name in names):
        raise Uncertain("the name of a file has a wildcard in it")
    if files.format in ("csv", "tsv"):
        return _csv(files, names)
    if files.format == "parquet":
        return _parquet(names)
    if files.format != "json":
        raise Uncertain(f"{files.format} files")
    fields, table = json_rows.read(names)
    _check_names([each.name for each in fields])
    name = f"rows of {', '.join(names)}"
    return Relation(fields, quoted(name), table=table, name=name)


def _csv(files: FilesSource, names: Sequence[str]) -> Relation:
    headers = {files.reader.header(name) for name in names}
    header = headers.pop()
    if headers or header is None:
        raise Uncertain("files have different headers")
    _check_names(header)
    found = certain_types(names, header, files.reader.dialect)
    fields = tuple(Field(name, type) for name, type in found.columns)
    columns = ", ".join(f"{quoted_text(each.name)}: '{_READ.get(each.type, 'VARCHAR')}'" for each in fields)
    line_end = {"\n": r"\n", "\r\n": r"\r\n"}[found.line_end]
    separator = quoted_text(files.reader.dialect.separator)
    read = (
        f"read_csv({path_list(list(names))}, columns = {{{columns}}}, auto_detect = false, header = true,"
        f" delim = {separator}, quote = '\"', escape = '\"', nullstr = '', comment = '',"
        f" new_line = '{line_end}', hive_partitioning = false)"
    )
    items = ", ".join(
        f"{_MADE.get(each.type, '{0}').format(quoted(each.name))} AS {quoted(each.name)}" for each in fields
    )
    return Relation(fields, f"(SELECT {items} FROM {read})")


def _parquet(names: Sequence[str]) -> Relation:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    if any("=" in os.path.dirname(name) for name in names):
        raise Uncertain("the path of a file tells a partition")
    shapes = set()
    try:
        for name in names:
            shapes.add(_columns(parquet.read_metadata(name).schema))
    except (OSError, pa.ArrowException) as error:
        raise Uncertain("a file is not readable Parquet") from error
    fields = shapes.pop()
    if shapes:
        raise Uncertain("files have different columns")
    _check_names([each.name for each in fields])
    items = ", ".join(("NULL AS " if each.type == OTHER else "") + quoted(each.name) for each in fields)
    bounded = any(each.type in ("double", "float") for each in fields)
    return Relation(fields, f"(SELECT {items} FROM read_parquet({path_list(list(names))}))", bounded)


def _columns(schema: Any) -> tuple[Field, ...]:
    leaves = {schema.column(index).path: schema.column(index) for index in range(len(schema))}
    top = schema.to_arrow_schema().names
    return tuple(Field(name, _type(leaves[name]) if name in leaves else OTHER) for name in top)


def _type(column: Any) -> str:
    """The type of a Parquet column; OTHER for what is nested, repeated or read differently."""
    if column.max_repetition_level or column.max_definition_level > 1:
        return OTHER
    logical = column.logical_type
    detail = json.loads(logical.to_json())
    if logical.type == "DECIMAL":
        return f"decimal({column.precision},{column.scale})"
    if logical.type == "INT":
        return _WHOLE[detail["bitWidth"]] if detail["isSigned"] else OTHER
    if logical.type == "TIMESTAMP":
        micros = detail["isAdjustedToUTC"] and detail["timeUnit"] == "microseconds"
        return "timestamp" if column.physical_type == "INT64" and micros else OTHER
    return _PARQUET.get((column.physical_type, logical.type), OTHER)


def _check_names(names: Sequence[str]) -> None:
    if len({name.lower() for name in names}) < len(names):
        raise Uncertain("two columns have one name")
    if any(not name.isprintable() or "`" in name for name in names):
        raise Uncertain("the name of a column is not plain text")
