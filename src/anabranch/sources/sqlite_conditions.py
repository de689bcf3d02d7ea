"""How columns of SQLite are compared with values so that nothing is missed that Spark's comparison would find.

SQLite keeps whatever it is given, in any column: a number as a text, a time in several spellings. A condition here is
true of every row whose value, as `values.value_of` reads it, compares as it should; it may be true of others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

INTEGERS = ("tinyint", "smallint", "int", "bigint")
#: Texts that look like numbers are numbers in a column of these affinities.
NUMBERS = ("INTEGER", "NUMERIC", "REAL")
_LOW, _HIGH = (">", ">=", "="), ("<", "<=", "=")
#: Behind every text that begins with a year.
_AFTER_YEARS = ":"
#: A time of day and a zone change the day by less than this.
_DAYS = timedelta(days=2)

Values = Callable[[Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Condition:
    """A condition with {0}, {1} ... in place of what `values` makes of the value of a key."""

    text: str
    values: Values
    count: int


def affinity(declared: str) -> str:
    """What SQLite makes of the values of a column, by its declared type.

    >>> [affinity(each) for each in ("BIGINT", "varchar(9)", "", "DOUBLE", "DATETIME")]
    ['INTEGER', 'TEXT', 'BLOB', 'REAL', 'NUMERIC']
    """
    upper = declared.upper()
    for kind, parts in (("INTEGER", ("INT",)), ("TEXT", ("CHAR", "CLOB", "TEXT")), ("BLOB", ("BLOB",)),
                        ("REAL", ("REAL", "FLOA", "DOUB"))):  # fmt: skip
        if any(part in upper for part in parts):
            return kind
    return "NUMERIC" if upper not in ("", "ANY") else "BLOB"


def behind(start: str) -> str | None:
    """The least text behind all those that begin so; None if there is none.

    >>> behind("ab"), behind("\ud7ff"), behind("")
    ('ac', '\ue000', None)
    """
    kept = start.rstrip("\U0010ffff")
    if not kept:
        return None
    last = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if last == 0xD800 else last)


def condition(column: str, kind: str, type: str, sign: str) -> Condition:
    """`column sign value`, for a column of an affinity and a type of Spark's."""
    if sign == "<>":
        return Condition(f"{column} IS NOT NULL", lambda _: (), 0)
    if sign in ("LIKE", "LIKED BY"):
        return _like(column, kind, sign)
    if type == "string":
        return _text(column, kind, sign)
    if type == "boolean":
        return Condition(f"(CAST({column} AS INTEGER) <> 0) {sign} {{0}}", lambda value: (value,), 1)
    if type == "binary":
        text = f"(typeof({column}) = 'real' OR CAST({column} AS BLOB) {sign} {{0}})"
        return Condition(text, lambda value: (value,), 1)
    if type == "date":
        return _day(column, sign)
    if type == "timestamp":
        return _time(column, sign)
    if type in INTEGERS:
        stored = column if kind in NUMBERS else f"CAST({column} AS INTEGER)"
        return _range(stored, sign, 0.0)
    if type == "double" and kind == "REAL":
        return Condition(f"{column} {sign} {{0}}", lambda value: (_float(value),), 1)
    scale = int(type.rstrip(")").split(",")[1]) if type.startswith("decimal") else None
    stored = column if kind in NUMBERS and scale is not None else f"CAST({column} AS REAL)"
    return _range(stored, sign, 10.0**-scale if scale is not None else 0.0)


def _range(stored: str, sign: str, step: float) -> Condition:
    """Numbers that are rounded to steps, or kept a little less exactly than the value that they are compared with."""

    def bounds(value: Any) -> tuple[Any, Any]:
        if isinstance(value, int) and not step:
            return value, value
        number = _float(value)
        if isinstance(number, str) or math.isinf(number):
            return number, number
        slack = step + abs(number) * 1e-15
        return number - slack, number + slack

    return _between(stored, sign, bounds)


def _between(stored: str, sign: str, bounds: Callable[[Any], tuple[Any, Any]]) -> Condition:
    """At least the one bound, at most the other, or both."""
    if sign == "=":
        return Condition(f"{stored} BETWEEN {{0}} AND {{1}}", bounds, 2)
    if sign in _LOW:
        return Condition(f"{stored} >= {{0}}", lambda value: bounds(value)[:1], 1)
    return Condition(f"{stored} <= {{0}}", lambda value: bounds(value)[1:], 1)


def _float(value: Any) -> float | str:
    """A number; NaN is greater than any in Spark, as texts are in SQLite, which has no NaN."""
    number = float(value)
    return "NaN" if math.isnan(number) else number


def _text(column: str, kind: str, sign: str) -> Condition:
    """Bytes are texts too where a text is wanted, and so are numbers, which SQLite does not write as Python does."""
    if kind != "TEXT":
        text = (
            f"(typeof({column}) IN ('integer', 'real', 'blob') OR CAST({column} AS TEXT) COLLATE BINARY {sign} {{0}})"
        )
    elif sign in _HIGH:
        text = f"({column} COLLATE BINARY {sign} {{0}} OR {column} >= x'')"
    else:
        text = f"{column} COLLATE BINARY {sign} {{0}}"
    return Condition(text, lambda value: (value,), 1)


def _like(column: str, kind: str, sign: str) -> Condition:
    """SQLite's LIKE does not tell capitals from small letters, and ends at a zero byte."""
    stored = f"CAST({column} AS TEXT)"
    like = f"{stored} LIKE {{0}}" if sign == "LIKE" else f"{{0}} LIKE {stored}"
    other = f"typeof({column}) IN ('integer', 'real', 'blob') OR instr({stored} || {{0}}, char(0))"
    return Condition(f"({like} ESCAPE '\\' OR {other})", lambda value: (value,), 1)


def _day(column: str, sign: str) -> Condition:
    """Days are the first ten characters of a text."""
    stored = f"{column} COLLATE BINARY"
    low, high = f"{stored} >= {{0}}", f"{stored} < {{0}}"
    if sign == "=":
        both = f"({low} AND {stored} < {{1}})"
        return Condition(both, lambda value: (value.isoformat(), _following(value)), 2)
    next_day = sign in (">", "<=")
    return Condition(
        low if sign in _LOW else high, lambda value: (_following(value) if next_day else value.isoformat(),), 1
    )


def _following(day: date) -> str:
    return _AFTER_YEARS if day == date.max else (day + timedelta(days=1)).isoformat()


def _time(column: str, sign: str) -> Condition:
    """Times are texts that begin with a day somewhere on earth, or seconds since 1970."""
    stored = f"{column} COLLATE BINARY"
    if sign == "=":
        text = f"(({stored} >= {{0}} AND {stored} < {{1}}) OR {column} BETWEEN {{2}} AND {{3}})"
        return Condition(text, lambda value: (*_days(value), *_seconds(value)), 4)
    if sign in _LOW:
        text = f"({stored} >= {{0}} OR ({column} >= {{1}} AND {column} < ''))"
        return Condition(text, lambda value: (_days(value)[0], _seconds(value)[0]), 2)
    text = f"(({stored} >= '' AND {stored} < {{0}}) OR {column} <= {{1}})"
    return Condition(text, lambda value: (_days(value)[1], _seconds(value)[1]), 2)


def _days(value: datetime) -> tuple[str, str]:
    day = value.date()
    low = "" if day - date.min < _DAYS else (day - _DAYS).isoformat()
    return low, _AFTER_YEARS if date.max - day < _DAYS else (day + _DAYS).isoformat()


def _seconds(value: datetime) -> tuple[float, float]:
    seconds = value.timestamp()
    return seconds - 1, seconds + 1
