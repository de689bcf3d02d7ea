"""Why a line of a text file is no row: its number of fields, or the column whose value does not fit its type."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from anabranch.sources.quotes import Dialect
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN = 40


class Why(NamedTuple):
    """Why a text is no row: the line that it is in, if that is known, and the column that is to blame, if one is."""

    reason: str = "it does not parse as a row of the stream"
    column: str | None = None
    line: int | None = None


def reasons(
    spark: SparkSession,
    rows: Sequence[tuple[str, str]],
    format: str,
    dialect: Dialect,
    names: Mapping[str, tuple[str, ...]],
    fields: Sequence[Field],
) -> list[Why]:
    """Why texts are no rows; each is given with its origin, which has columns of these names."""
    types = {field.name.lower(): field for field in fields}
    found: list[str | dict[str, str]] = []
    for origin, raw in rows:
        if format == "xml":
            found.append("it is not an XML element of the stream's columns")
        else:
            found.append(_json_values(raw) if format == "json" else _csv_values(raw, dialect, names[origin]))
    asked = [
        (place, types[name.lower()], text)
        for place, values in enumerate(found)
        if not isinstance(values, str)
        for name, text in values.items()
        if name.lower() in types and types[name.lower()].type != "string"
    ]
    known = {place: Why(values) for place, values in enumerate(found) if isinstance(values, str)}
    for (place, field, text), fits in zip(asked, _fit(spark, [(each[1].type, each[2]) for each in asked]), strict=True):
        if not fits and place not in known:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            known[place] = Why(f"{field.name} is no {field.type.upper()}: {shown!r}", field.name)
    return [known.get(place, Why()) for place in range(len(rows))]


def _csv_values(raw: str, dialect: Dialect, names: Sequence[str]) -> str | dict[str, str]:
    try:
        values = next(dialect.rows(io.StringIO(raw, newline="")), [])
    except csv.Error as error:
        return f"it is not CSV: {error}"
    if len(values) != len(names) and len(dialect.separator) == 1:
        return f"{len(values)} field{'' if len(values) == 1 else 's'} where {len(names)} are expected"
    return {name: value for name, value in zip(names, values, strict=False) if value}


def _json_values(raw: str) -> str | dict[str, str]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        message = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
        return f"it is not JSON: {message}"
    if not isinstance(value, dict):
        return "it is not a JSON object"
    return {name: str(each) for name, each in value.items() if each is not None and not isinstance(each, dict | list)}


def _fit(spark: SparkSession, values: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether texts can be read as values of types; by one small job."""
    if not values:
        return []
    types = sorted({type for type, _ in values})
    rows = [(place, types.index(type), text) for place, (type, text) in enumerate(values)]
    frame = spark.createDataFrame(rows, "place INT, type INT, text STRING")
    cases = " ".join(f"WHEN {index} THEN try_cast(text AS {type}) IS NOT NULL" for index, type in enumerate(types))
    return [row[0] for row in frame.orderBy("place").selectExpr(f"CASE type {cases} END").collect()]
