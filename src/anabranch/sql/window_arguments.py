"""The arguments of windows: a length of time, a number of rows, or a plain number for columns that hold numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from anabranch.errors import SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import duration_text, take_duration
from anabranch.sql.lexer import NUMBER, STRING
from anabranch.sql.text import Span

_ROWS = re.compile(r"\s*(\d{1,18})\s+rows?\s*", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class WindowArgument:
    """An argument and its unit: microseconds, rows, or the units of a column."""

    value: int
    unit: Literal["time", "rows", "number"]
    span: Span

    @property
    def sql(self) -> str:
        """The argument as the canonical form writes it.

        >>> WindowArgument(90_000_000, "time", Span(0, 1)).sql, WindowArgument(1, "rows", Span(0, 1)).sql
        ('INTERVAL 90 SECONDS', '1 ROW')
        """
        if self.unit == "time":
            return f"INTERVAL {duration_text(self.value).upper()}"
        if self.unit == "rows":
            return f"{self.value} ROW{'' if self.value == 1 else 'S'}"
        return str(self.value)


def take_argument(cursor: Cursor, what: str) -> WindowArgument:
    """INTERVAL 10 MINUTES in any spelling of a duration, 10 ROWS, '10 rows' or 10."""
    start = cursor.current.start
    minus = 1 if cursor.current.text == "-" else 0
    token, following = cursor.ahead(minus), cursor.ahead(minus + 1)
    counted = following.upper in ("ROW", "ROWS")
    if token.kind == NUMBER and (counted or not following.is_name or following.upper == "OPEN"):
        cursor.take("-")
        value = cursor.expect_whole_number(f"{what}, a whole number")
        if counted:
            cursor.advance()
        span = Span(start, cursor.previous.end)
        return WindowArgument(-value if minus else value, "rows" if counted else "number", span)
    quoted = _ROWS.fullmatch(token.value) if token.kind == STRING and not minus else None
    if quoted is not None:
        cursor.advance()
        return WindowArgument(int(quoted.group(1)), "rows", token.span)
    return WindowArgument(take_duration(cursor, what), "time", Span(start, cursor.previous.end))


def take_length(cursor: Cursor, what: str) -> WindowArgument:
    """A positive argument."""
    argument = take_argument(cursor, what)
    if argument.value <= 0:
        raise SyntaxProblem(f"{what} must be positive", text=cursor.text, at=argument.span)
    return argument


def take_origin(cursor: Cursor) -> WindowArgument:
    """TIMESTAMP '2026-01-01 00:00:00' or a number; a time without a zone is taken as UTC."""
    start = cursor.current.start
    cursor.take("TIMESTAMP")
    if cursor.current.kind != STRING:
        if cursor.previous.upper == "TIMESTAMP":
            raise cursor.problem("expected a time in quotes")
        minus = cursor.take("-")
        value = cursor.expect_whole_number("an origin, as in TIMESTAMP '2026-01-01 00:00:00' or 0")
        return WindowArgument(-value if minus else value, "number", Span(start, cursor.previous.end))
    token = cursor.advance()
    try:
        moment = datetime.fromisoformat(token.value.strip())
    except ValueError:
        raise SyntaxProblem(
            f"{token.text} is not a time", text=cursor.text, at=token, hint="as in TIMESTAMP '2026-01-01 00:00:00'"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return WindowArgument((moment - _EPOCH) // timedelta(microseconds=1), "time", Span(start, token.end))


def origin_text(micros: int) -> str:
    """An origin as SQL writes it.

    >>> origin_text(80_000_000)
    "TIMESTAMP '1970-01-01 00:01:20'"
    """
    moment = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
    return f"TIMESTAMP '{moment.isoformat(' ')}'"
