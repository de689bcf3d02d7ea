"""Columns of SQLite as values that are equal, less and greater as those in Spark are.

SQLite keeps whatever it is given, in any column. A value that is certainly read as it is kept stays with SQLite; every
other one goes through `typed(value, type, name)`, a function of ours that reads it as rows are read, and fails as that.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
#: Digits that a whole number of SQLite has room for.
_MOST_DIGITS = 18
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EXACT = Context(prec=100)
_TYPED = re.compile(
    r"CASE WHEN (?:(?! THEN typed\().)*? THEN typed\((?:CASE typeof\(.*? ELSE )?(.+?)(?: END)?,"
    r" '[^']*', '(?:[^']|'')*'\) END"
)


def exact_sql(read: str, name: str, type: str) -> str | None:
    """A column as whole numbers, floats and texts that compare as in Spark; None if there is no such thing."""
    given, found = read, _DECIMAL.fullmatch(type)
    low, high = _range(type)
    if type in _BITS:
        narrow = "" if type == "bigint" else f" AND {read} BETWEEN {low} AND {high}"
        sure, kept = f"typeof({read}) = 'integer'{narrow}", read
    elif type == "boolean":
        sure, kept = f"typeof({read}) = 'integer'", f"{read} <> 0"
    elif type == "double":
        sure, kept = f"typeof({read}) = 'real'", read
    elif type == "string":  # of plain ASCII; bytes that are no UTF-8 are read as other signs
        sure = f"typeof({read}) = 'text' AND {read} NOT GLOB '*[^ -~]*' AND instr({read}, char(0)) = 0"
        given, kept = f"CASE typeof({read}) WHEN 'text' THEN CAST({read} AS BLOB) ELSE {read} END", read
    elif type == "date":
        sure, kept = f"date({read}, '+0 days') = {read} COLLATE BINARY AND {read} >= '0001-'", read
    elif found is not None and int(found[1]) <= _MOST_DIGITS:
        step = 10 ** int(found[2])
        sure, kept = (
            f"typeof({read}) = 'integer' AND {read} BETWEEN {-(high // step)} AND {high // step}",
            f"{read} * {step}",
        )
    elif type == "timestamp":
        sure = f"length({read}) = 19 AND datetime({read}, '+0 days') = {read} COLLATE BINARY AND {read} >= '0001-'"
        kept = f"strftime('%s', {read}) * 1000000"
    else:
        return None
    typed = f"typed({given}, '{type}', {_literal(name)})"
    return f"CASE WHEN {sure} THEN {kept} WHEN {read} IS NOT NULL THEN {typed} END"


def shortened(text: str) -> str:
    """A statement with only `typed(column)` in the place of what `exact_sql` makes of a column.

    >>> shortened(f"SELECT {exact_sql('t.n', 'n', 'bigint')}, max({exact_sql('t.s', 's', 'string')}) FROM t")
    'SELECT typed(t.n), max(typed(t.s)) FROM t'
    """
    return _TYPED.sub(r"typed(\1)", text)


def compared(value: Any, type: str) -> Any:
    """A value of Spark's as those of `exact_sql` are.

    >>> compared(Decimal("1.5"), "decimal(9,2)"), compared(date(2026, 1, 2), "date"), compared(True, "boolean")
    (150, '2026-01-02', 1)
    """
    if value is None:
        return None
    found = _DECIMAL.fullmatch(type)
    if found is not None:
        value = int(value.scaleb(int(found[2]), _EXACT))
    if found is not None or type in _BITS:
        low, high = _range(type)
        if not low <= value <= high:
            raise ValueError(f"{value} is too large")
        return value
    if type == "timestamp":
        return (value - _EPOCH) // timedelta(microseconds=1)
    if type == "double" and value != value:
        return "NaN"  # greater than any number, as a text is in SQLite
    return value.isoformat() if type == "date" else int(value) if type == "boolean" else value


def restored(value: Any, type: str) -> Any:
    """A value of `exact_sql` as Arrow takes it.

    >>> restored(150, "decimal(9,2)"), restored("2026-01-02", "date"), restored(1, "boolean")
    (Decimal('1.50'), datetime.date(2026, 1, 2), True)
    """
    found = _DECIMAL.fullmatch(type)
    if found is not None:
        return Decimal(value).scaleb(-int(found[2]), _EXACT)
    if type == "date":
        return date.fromisoformat(value)
    return bool(value) if type == "boolean" else value


def _range(type: str) -> tuple[int, int]:
    """The least and the greatest whole number of a type, or decimal without its point."""
    found = _DECIMAL.fullmatch(type)
    if found is not None:
        return 1 - 10 ** int(found[1]), 10 ** int(found[1]) - 1
    most = 2 ** (_BITS.get(type, 64) - 1)
    return -most, most - 1


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
