"""Values of JSON as columns, by Arrow on the driver, without a Spark job.

Only where that is what Spark's `from_json` gives: plain types, each value one flat object that no parser sees two ways.
Anything else, in a single value, leaves all of them to Spark, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

#: Longer values may break a limit of Spark's parser: numbers of 1,000 digits.
MOST_BYTES = 1000
_DAY = r"[12]\d{3}-\d{2}-\d{2}"
#: What times look like that Arrow and Spark read alike; they are texts in JSON.
_LOOKS = {
    "date": f"^{_DAY}$",
    "timestamp": rf"^{_DAY}[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{{1,6}})?Z?$",
}
_TYPES = ("tinyint", "smallint", "int", "bigint", "double", "boolean", "string", *_LOOKS)


def columns_of(values: pa.ChunkedArray, fields: Sequence[Field]) -> pa.Table | None:
    """The fields of JSON objects, a row each; None where that is Spark's to say."""
    import pyarrow as pa
    import pyarrow.json as arrow_json

    from anabranch.engine.frames import arrow_schema

    if values.null_count or not fields or any(field.type not in _TYPES for field in fields):
        return None
    wanted = arrow_schema(fields)
    if not len(values):
        return wanted.empty_table()
    read = pa.schema(
        [
            pa.field(each.name, pa.string() if f.type in _LOOKS else each.type)
            for f, each in zip(fields, wanted, strict=True)
        ]
    )
    try:
        texts = values.cast(pa.string())  # says whether they are texts in UTF-8
        if not _are_flat(texts):
            return None
        made = arrow_json.read_json(
            pa.BufferReader("\n".join(texts.to_pylist()).encode()),
            read_options=arrow_json.ReadOptions(block_size=1 << 20),
            parse_options=arrow_json.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore"),
        )
        if made.num_rows != len(values):
            return None
        columns = [
            _typed(made.column(field.name), field, type) for field, type in zip(fields, wanted.types, strict=True)
        ]
    except pa.ArrowException:
        return None  # no JSON, or another type than the column's
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
    # Arrow wants a zone at the end of all of them, or of none.
    return compute.assume_timezone(compute.utf8_rtrim(column, "Z").cast("timestamp[us]"), "UTC")
