"""What is known of a value that is written for DuckDB: its type in Spark, how large it can be, whether it can fail.

The driver's engine computes an expression only where its type, and every implicit cast in it, means the same in both
engines. So each value carries a `Kind`, and whatever has no kind here is left to Spark.
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
#: Digits of a decimal that holds any whole number of so many bits, as Spark has it.
_DIGITS = {7: 3, 15: 5, 31: 10, 63: 20}
#: How many rows there are at the most, in bits: a count of them does not overflow, nor a sum of so many INT.
ROWS = 31
#: Microseconds of any time before the year 10000, in bits.
MICROS = 58


@dataclass(frozen=True)
class Kind:
    """What is known of the values of an expression.

    For whole numbers `width` are the bits of Spark's type, `bits` those that values need. For decimals they are the
    digits in all and behind the point. `fails`: computing a value can fail, by an overflow say.
    """

    family: str
    width: int = 0
    bits: int = 0
    fails: bool = False


#: Values of which nothing is known, so that nothing is computed with them.
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
    """The type of Spark's that values of a kind have, if one has.

    >>> spark_type_of(Kind(DECIMAL, 10, 2)), spark_type_of(COUNT), spark_type_of(NOTHING)
    ('decimal(10,2)', 'bigint', None)
    """
    if kind.family == WHOLE:
        return next(type for type, bits in BITS.items() if bits == kind.width)
    if kind.family == DECIMAL:
        return f"decimal({kind.width},{kind.bits})"
    return kind.family if kind.family in (DOUBLE, FLOAT, STRING, DATE, TIMESTAMP, BOOLEAN) else None


def duckdb_type_of(kind: Kind) -> str | None:
    """The type of DuckDB's that holds the values of a kind.

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
    """The decimal that Spark takes a whole number for, beside a decimal; a literal has as many digits as it needs."""
    return Kind(DECIMAL, _DIGITS[kind.width], 0, kind.fails) if kind.family == WHOLE else kind


def digits(*kinds: Kind) -> int:
    """The digits of a decimal that holds values of all these kinds."""
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
    """The kind of a value that is one of several; unknown where one of them would be cast to the type of another."""
    found = NOTHING
    for kind in kinds:
        families = {found.family, kind.family}
        fails = found.fails or kind.fails
        if NULL in families:
            found = kind if found.family == NULL else found
        elif families == {WHOLE}:
            found = Kind(WHOLE, max(found.width, kind.width), max(found.bits, kind.bits), fails)
        elif families == {WHOLE, DECIMAL}:  # a whole number that has room in the decimal
            decimal = found if found.family == DECIMAL else kind
            if digits(found, kind) > decimal.width:
                return UNKNOWN
            found = replace(decimal, fails=fails)
        elif replace(found, fails=kind.fails) == kind:
            found = replace(kind, fails=fails)
        else:
            return UNKNOWN
    return found
