"""Values of JSON as columns, by Arrow, without Spark's parser.

Only where that is what Spark's parser gives: plain types, each value one object that no parser sees two ways.
Anything else, in a single value, leaves all of them to Spark, which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.sources import csv_grammar
from anabranch.sources.quotes import ALIKE
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

#: Longer values may break a limit of Spark's parser: numbers of 1,000 digits.
MOST_BYTES = 1000
#: The same for whole lines, of names; and so many digits are in a number that is as long, before or behind its point.
_LONGEST, _DIGITS = 50_000, b"0" * 300
_DAY = r"[12]\d{3}-\d{2}-\d{2}"
#: What times look like that Arrow and Spark read alike; they are texts in JSON.
_LOOKS = {
    "date": f"^{_DAY}$",
    "timestamp": rf"^{_DAY}[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{{1,6}})?Z?$",
}
TYPES = ("tinyint", "smallint", "int", "bigint", "double", "boolean", "string", *_LOOKS)
#: A zero that has no sign in Spark, as a DOUBLE.
_NO_ZERO = re.compile(rb"-0[ \t\r\n]*[,}]")
#: Lines of one object each, with a few levels of others in it; a text has none of the bytes that JSON does not allow.
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
_OBJECT = ""
for _ in range(4):
    _OBJECT = rf'\{{(?:[^{{}}"\x00-\x08\x0a-\x1f]|{_TEXT}{_OBJECT and "|" + _OBJECT})*\}}'
_LINES = rf"^(?:[ \t]*{_OBJECT}[ \t]*\r?\n)*$"


def columns_of(values: pa.ChunkedArray, fields: Sequence[Field]) -> pa.Table | None:
    """The fields of JSON objects, a row each; None where that is Spark's to say."""
    import pyarrow as pa

    from anabranch.engine.frames import arrow_schema

    if values.null_count or not fields or any(field.type not in TYPES for field in fields):
        return None
    wanted = arrow_schema(fields)
    if not len(values):
        return wanted.empty_table()
    try:
        texts = values.cast(pa.string())  # says whether they are texts in UTF-8
        if not _are_flat(texts):
            return None
        return _parsed("\n".join(texts.to_pylist()).encode(), len(values), fields, wanted, 1 << 20, threads=True)
    except pa.ArrowException:
        return None  # no JSON, or another type than the column's


def rows_of(lines: bytes, fields: Sequence[Field], wanted: pa.Schema) -> pa.Table | None:
    """The fields of JSON objects, one in each of some whole lines; None where that is Spark's to say.

    Raises ArrowException where one is of another type, or no JSON.
    """
    longest = len(max(lines.split(b"\n"), key=len))
    if longest > _LONGEST or (longest > MOST_BYTES and _DIGITS in lines.translate(ALIKE)):
        return None
    if not csv_grammar.matches(_LINES, lines):
        return None
    return _parsed(lines, lines.count(b"\n"), fields, wanted, len(lines) + 1, threads=False)


def _parsed(
    content: bytes, rows: int, fields: Sequence[Field], wanted: pa.Schema, block: int, *, threads: bool
) -> pa.Table | None:
    import pyarrow as pa
    import pyarrow.json as arrow_json

    if _NO_ZERO.search(content):
        return None
    read = pa.schema(
        [
            pa.field(each.name, pa.string() if f.type in _LOOKS else each.type)
            for f, each in zip(fields, wanted, strict=True)
        ]
    )
    made = arrow_json.read_json(
        pa.BufferReader(content),
        read_options=arrow_json.ReadOptions(use_threads=threads, block_size=block),
        parse_options=arrow_json.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore"),
    )
    if made.num_rows != rows:
        return None
    columns = [_typed(made.column(field.name), field, type) for field, type in zip(fields, wanted.types, strict=True)]
    return None if any(column is None for column in columns) else pa.table(columns, schema=wanted)


def _are_flat(texts: pa.ChunkedArray) -> bool:
    """Whether each value is in one pair of braces, and so one object, or none; and on one line."""
    import pyarrow.compute as compute

    trimmed = compute.utf8_trim_whitespace(texts)
    tests = (
        compute.less_equal(compute.binary_length(texts), MOST_BYTES),
        compute.starts_with(trimmed, "{"),
        compute.ends_with(trimmed, "}"),
        compute.equal(compute.count_substring(texts, "{"), 1),
        compute.equal(compute.count_substring(texts, "}"), 1),
        compute.equal(compute.count_substring(texts, "\n"), 0),
    )
    return all(compute.all(test, min_count=0).as_py() for test in tests)


def _typed(column: Any, field: Field, type: Any) -> Any:
    """A column as the stream has it; None if a time in it may be another one for Spark."""
    import pyarrow.compute as compute

    if field.type not in _LOOKS:
        return column
    if not compute.all(compute.match_substring_regex(column, _LOOKS[field.type]), min_count=0).as_py():
        return None
    if field.type == "date":
        return column.cast(type)
    return utc_times(column)


def utc_times(texts: Any) -> Any:
    """Times in UTC, with or without a Z behind them."""
    import pyarrow.compute as compute

    # Arrow wants a zone at the end of all of them, or of none.
    return compute.assume_timezone(compute.utf8_rtrim(texts, "Z").cast("timestamp[us]"), "UTC")
