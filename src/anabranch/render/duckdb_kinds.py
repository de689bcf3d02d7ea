"""The kind of a value in DuckDB SQL: its type in Spark, its range, and whether it can fail.

DuckDB computes an expression only if its type, and every implicit cast in it, has the same meaning in both engines. So
each value carries a `Kind`, and a value without a kind is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

WHOLE, DECIMAL, DOUBLE, FLOAT = "whole", "decimal", "double", "float"
STRING, DATE, TIMESTAMP, BOOLEAN, INTERVAL, NULL = "string", "date", "timestamp", "boolean", "interval", "null"
BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
DUCKDB_WHOLE = {7: "TINYINT", 15: "SMALLINT", 31: "INTEGER", 63: "BIGINT"}
MOST_DIGITS = 38
#: Digits of the decimal that Spark uses for whole numbers, by bits.
_DIGITS = {7: 3, 15: 5, 31: 10, 63: 20}
#: The maximum number of rows, in bits: a count of them does not overflow, nor a sum of as many INT.
ROWS = 31
#: Microseconds of any time before the year 10000, in bits.
MICROS = 58


@dataclass(frozen=True)
class Kind:
    """The kind of the values of an expression.

    For whole numbers `width` is the bits of Spark's type, `bits` those that values need. For decimals they are
    precision and scale. `fails`: computing a value can fail, for example by an overflow.
    """

    family: str
    width: int = 0
    bits: int = 0
    fails: bool = False


#: Values of unknown kind: they can only be passed on.
UNKNOWN = Kind("unknown")
NOTHING = Kind(NULL)


def whole(type: str, bits: int | None = None) -> Kind:
    """Values of a type of whole numbers.

    >>> whole("int", 5)
    Kind(family='whole', width=31, bits=5, fails=False)
    """
    return Kind(WHOLE, BITS[type], BITS[type] if bits is None else bits)


COUNT = whole("bigint", ROWS)


def kind_of(type: str) -> Kind:
    """The kind of the values of a column."""
    if type in BITS:
        return whole(type)
    if (digits := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", type)) is not None:
        return Kind(DECIMAL, int(digits[1]), int(digits[2]))
    known = (DOUBLE, FLOAT, STRING, DATE, TIMESTAMP, BOOLEAN)
    return Kind(type) if type in known else UNKNOWN


def spark_type_of(kind: Kind) -> str | None:
    """Spark's type for the values of a kind, if there is one.

    >>> spark_type_of(Kind(DECIMAL, 10, 2)), spark_type_of(COUNT), spark_type_of(NOTHING)
    ('decimal(10,2)', 'bigint', None)
    """
    if kind.family == WHOLE:
        return next(type for type, bits in BITS.items() if bits == kind.width)
    if kind.family == DECIMAL:
        return f"decimal({kind.width},{kind.bits})"
    return kind.family if kind.family in (DOUBLE, FLOAT, STRING, DATE, TIMESTAMP, BOOLEAN) else None


def duckdb_type_of(kind: Kind) -> str | None:
    """DuckDB's type for the values of a kind.

    >>> duckdb_type_of(Kind(DECIMAL, 10, 2))
    'DECIMAL(10,2)'
    """
    if kind.family == WHOLE:
        return DUCKDB_WHOLE[kind.width]
    if kind.family == DECIMAL:
        return f"DECIMAL({kind.width},{kind.bits})"
    names = {
        DOUBLE: "DOUBLE", FLOAT: "FLOAT", STRING: "VARCHAR", DATE: "DATE", BOOLEAN: "BOOLEAN",
        TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    }  # fmt: skip
    return names.get(kind.family)


def as_decimal(kind: Kind) -> Kind:
    """The decimal to which Spark casts a whole number beside a decimal; a literal has as many digits as it needs."""
    return Kind(DECIMAL, _DIGITS[kind.width], 0, kind.fails) if kind.family == WHOLE else kind


def digits(*kinds: Kind) -> int:
    """Precision and scale of a decimal that holds values of all these kinds."""
    before = [kind.width - kind.bits if kind.family == DECIMAL else kind.bits // 3 + 1 for kind in kinds]
    return max(before) + max(kind.bits if kind.family == DECIMAL else 0 for kind in kinds)


def comparable(one: Kind, other: Kind) -> bool:
    """Whether two values compare alike in both engines."""
    families = {one.family, other.family}
    if UNKNOWN.family in families or FLOAT in families or INTERVAL in families:
        return False
    if len(families - {NULL}) < 2 or families == {WHOLE, DOUBLE}:
        return DECIMAL not in families or digits(one, other) <= MOST_DIGITS
    return families == {WHOLE, DECIMAL} and digits(one, other) <= MOST_DIGITS


def common(kinds: Iterable[Kind]) -> Kind:
    """The common kind of several values; unknown if one would be cast to the type of another."""
    found = NOTHING
    for kind in kinds:
        families = {found.family, kind.family}
        fails = found.fails or kind.fails
        if NULL in families:
            found = kind if found.family == NULL else found
        elif families == {WHOLE}:
            found = Kind(WHOLE, max(found.width, kind.width), max(found.bits, kind.bits), fails)
        elif families == {WHOLE, DECIMAL}:  # a whole number that fits into the decimal
            decimal = found if found.family == DECIMAL else kind
            if digits(found, kind) > decimal.width:
                return UNKNOWN
            found = replace(decimal, fails=fails)
        elif replace(found, fails=kind.fails) == kind:
            found = replace(kind, fails=fails)
        else:
            return UNKNOWN
    return found
