"""Rows as the bytes of a file: Parquet, CSV with a header, or JSON lines."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from anabranch.errors import SinkError
from anabranch.ledger.tables import with_statistics
from anabranch.types import Field

#: The key of a Parquet file's own metadata that says what the file holds.
METADATA = b"anabranch"
_NESTED = ("array<", "map<", "struct<", "binary")


def refuse_types(format: str, fields: Sequence[Field]) -> None:
    """A CSV file has no way to write a list, a map, a struct or bytes."""
    for field in fields:
        if format == "csv" and field.type.startswith(_NESTED):
            raise SinkError(
                f"a csv file cannot hold the column {field.name}: it is a {field.type}",
                hint="format => 'json' or format => 'parquet' can",
            )


def encode(
    table: Any, format: str, metadata: Mapping[str, Any] | None = None, *, header: bool = True, separator: str = ","
) -> bytes:
    """The contents of a file. `metadata` goes into a Parquet file; other formats have no room for it."""
    out = io.BytesIO()
    if format == "parquet":
        from pyarrow import parquet

        if metadata is not None:
            table = table.replace_schema_metadata({METADATA: json.dumps(dict(metadata)).encode()})
        parquet.write_table(table, out, write_statistics=with_statistics(table.schema))
    elif format == "csv":
        from pyarrow import csv

        # Quotes where they are needed: an empty text has them, a NULL has not.
        csv.write_csv(table, out, csv.WriteOptions(include_header=header, delimiter=separator, quoting_style="needed"))
    else:
        names = [json.dumps(name, ensure_ascii=False) for name in table.column_names]
        for batch in table.to_batches():
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                cells = (f"{name}:{json_text(value)}" for name, value in zip(names, row, strict=True))
                out.write(("{" + ",".join(cells) + "}\n").encode())
    return out.getvalue()


def json_text(value: Any) -> str:
    """A value as JSON; decimals keep all their digits, times are in UTC, bytes are in base64."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return json.dumps("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc) if value.tzinfo is not None else value
        return json.dumps(utc.isoformat().replace("+00:00", "Z"))
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, dict):
        items = (f"{json.dumps(str(key), ensure_ascii=False)}:{json_text(each)}" for key, each in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):  # a map
        return json_text(dict(value))
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_text(each) for each in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)
