"""JSON lines without Spark, where their columns, types and values are certain to be those that Spark finds.

Every line is an object. Numbers, texts and booleans are read; a column with anything else in it is Spark's to read.
`tests/sources/test_json_rows.py` asks Spark about the same lines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from anabranch.sources.csv_grammar import Uncertain
from anabranch.sources.inference import EXACT_DIGITS
from anabranch.types import Field

#: More bytes are better read by Spark than line by line.
MOST_BYTES = 32 << 20
#: The type of a column that is Spark's to read.
OTHER = "other"
_KINDS = {str: "string", int: "bigint", float: "double", bool: "boolean"}


def read(paths: Sequence[str]) -> tuple[tuple[Field, ...], Any]:
    """The columns of files of JSON lines, and their rows as a pyarrow.Table; raises Uncertain."""
    import pyarrow as pa

    rows = [row for path in paths for row in _rows(path)]
    names = sorted({name for row in rows for name in row}, key=lambda name: name.encode("utf-16-be", "replace"))
    if not names or "_corrupt_record" in names or "" in names:
        raise Uncertain("only Spark knows the names of its columns")
    fields, arrays = [], []
    for name in names:
        values = [row.get(name) for row in rows]
        type = _type({value.__class__ for value in values if value is not None}, values)
        arrow = {"bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(), OTHER: pa.null()}
        kept = [None] * len(values) if type == OTHER else values
        fields.append(Field(name, type))
        try:
            arrays.append(pa.array(kept, arrow.get(type, pa.string())))
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise Uncertain(f"column {name} has values that are Spark's to read") from error
    return tuple(fields), pa.Table.from_arrays(arrays, names=names)


def _type(kinds: set[type], values: Sequence[Any]) -> str:
    if not kinds:
        return "string"
    if kinds == {int, float}:
        kinds = {float}
    if len(kinds) > 1 or not kinds <= _KINDS.keys():
        return OTHER
    (kind,) = kinds
    if kind is int and any(value is not None and not -(1 << 63) <= value < 1 << 63 for value in values):
        return OTHER
    # Beside fractions, long whole numbers are kept to the last digit.
    if kind is float and any(isinstance(v, int) and abs(v) >= 10**EXACT_DIGITS for v in values):
        return OTHER
    return _KINDS[kind]


def _rows(path: str) -> list[dict[str, Any]]:
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Uncertain("a JSON file is large")
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    try:
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
        rows = [decoder.decode(line.removesuffix("\r")) for line in lines]
    except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON: Spark says where
        raise Uncertain("a line is not plain JSON object") from error
    if any("\r" in line.removesuffix("\r") for line in lines) or not all(isinstance(row, dict) for row in rows):
        raise Uncertain("a line is not plain JSON object")
    return rows


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Uncertain("an object has a name twice")
    return made


def _constant(word: str) -> Any:
    raise Uncertain(f"{word} is Spark's to read")


def _float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise Uncertain(f"{text} is Spark's to read")
    return found
