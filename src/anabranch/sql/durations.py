"""Lengths of time as SQL writes them, in microseconds."""

from __future__ import annotations

import re

from anabranch.errors import SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import NUMBER, STRING, Token
from anabranch.sql.text import Span

MICROSECOND, MILLISECOND, SECOND = 1, 1_000, 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
UNITS = {
    "MICROSECOND": MICROSECOND,
    "MILLISECOND": MILLISECOND,
    "MS": MILLISECOND,
    "SECOND": SECOND,
    "SEC": SECOND,
    "S": SECOND,
    "MINUTE": MINUTE,
    "MIN": MINUTE,
    "HOUR": HOUR,
    "H": HOUR,
    "DAY": DAY,
    "WEEK": 7 * DAY,
}
_AMOUNT = r"[+-]?\d{1,15}(?:\.\d{1,9})?"
_PIECE = re.compile(rf"\s*({_AMOUNT})\s*([A-Za-z]+)")
#: The fields of a day-time interval from the largest to the smallest, each with its maximum after a larger field.
_FIELDS = {"DAY": None, "HOUR": 23, "MINUTE": 59, "SECOND": 59}
_SHAPES = {"DAY": "d", "HOUR": " hh", "MINUTE": ":mm", "SECOND": ":ss.f"}
_CALENDAR = ("YEAR", "QUARTER", "MONTH")


def unit_of(word: str) -> int | None:
    """The microseconds of a unit, singular or plural."""
    upper = word.upper()
    return UNITS.get(upper) or UNITS.get(upper.removesuffix("S"))


def is_unit(word: str) -> bool:
    """Whether a word is a unit of time, including months and years.

    >>> is_unit("Hours"), is_unit("YEAR"), is_unit("price")
    (True, True, False)
    """
    return unit_of(word) is not None or _is_calendar(word)


def _is_calendar(word: str) -> bool:
    return word.upper().removesuffix("S") in _CALENDAR


def parse_duration(text: str) -> int | None:
    """'10 minutes', '1 hour 30 min' and the like; None if the text is no duration.

    >>> parse_duration("1 hour 30 minutes")
    5400000000
    """
    position, total, pieces = 0, 0, 0
    while position < len(text.rstrip()):
        match = _PIECE.match(text, position)
        unit = unit_of(match.group(2)) if match else None
        if match is None or unit is None:
            return None
        total += _times(match.group(1), unit)
        position, pieces = match.end(), pieces + 1
    return total if pieces else None


def _times(amount: str, unit: int) -> int:
    return round(float(amount) * unit) if "." in amount else int(amount) * unit


def parse_range(text: str, first: str, last: str) -> int | None:
    """'01:30' from HOUR to MINUTE and the like, as Spark reads it; None if the text is no such range.

    >>> parse_range("1 02:30", "DAY", "MINUTE"), parse_range("-01:30.5", "MINUTE", "SECOND")
    (95400000000, -90500000)
    """
    fields = list(_FIELDS)[list(_FIELDS).index(first) : list(_FIELDS).index(last) + 1]
    match = re.fullmatch(r"([+-]?)" + "".join(_range_pattern(field, field == first) for field in fields), text.strip())
    if match is None:
        return None
    amounts = dict(zip(fields, match.groups()[1:], strict=True))
    for field, most in _FIELDS.items():
        if field in amounts and field != first and most is not None and float(amounts[field]) >= most + 1:
            return None
    total = sum(_times(amount, UNITS[field]) for field, amount in amounts.items())
    return -total if match.group(1) == "-" else total


def _range_pattern(field: str, first: bool) -> str:
    between = "" if first else r"\s+" if field == "HOUR" else ":"
    digits = r"\d{1,9}" if first else r"\d{1,2}"
    return rf"{between}({digits}{r'(?:[.][0-9]{1,9})?' if field == 'SECOND' else ''})"


def take_duration(cursor: Cursor, what: str) -> int:
    """An interval literal in any of its spellings: INTERVAL '10' MINUTE, INTERVAL 10 MINUTES, INTERVAL '10 minutes',
    INTERVAL '01:30' HOUR TO MINUTE, '10 minutes', 10 MINUTES."""
    start = cursor.current.start
    cursor.take("INTERVAL")
    negative = cursor.take("-")
    token = cursor.current
    if token.kind not in (STRING, NUMBER):
        raise cursor.problem(f"expected {what}, as in INTERVAL 10 MINUTES")
    cursor.advance()
    total = parse_duration(_amount(token))
    if total is None and token.kind == STRING and cursor.ahead(1).upper == "TO":
        total = _take_range(cursor, token, start)
    elif total is None:
        unit = unit_of(cursor.current.text) if cursor.current.is_name else None
        if unit is None or not re.fullmatch(_AMOUNT, _amount(token)):
            calendar = _is_calendar(cursor.current.text) or any(map(_is_calendar, token.value.split()))
            raise SyntaxProblem(
                f"expected {what}, as in INTERVAL 10 MINUTES",
                text=cursor.text,
                start=start,
                end=cursor.current.end if cursor.current.is_name else token.end,
                hint="months and years have no fixed length; use days" if calendar else None,
            )
        cursor.advance()
        total = _times(_amount(token), unit)
        while re.fullmatch(_AMOUNT, _amount(cursor.current)) and unit_of(cursor.ahead(1).text) is not None:
            total += _times(_amount(cursor.advance()), unit_of(cursor.advance().text) or 0)  # 1 HOUR 30 MINUTES
    return -total if negative else total


def _amount(token: Token) -> str:
    return token.value.strip() if token.kind == STRING else token.text


def _take_range(cursor: Cursor, amount: Token, start: int) -> int:
    """The fields after '01:30': HOUR TO MINUTE."""
    first, last = cursor.current.upper, cursor.ahead(2).upper
    cursor.advance()
    cursor.advance()
    span = Span(start, max(cursor.current.end, start + 1))
    if _is_calendar(first) or _is_calendar(last):
        raise SyntaxProblem(
            f"{first} TO {last} has no fixed length: months and years differ",
            text=cursor.text,
            at=span,
            hint="use days: INTERVAL 30 DAYS",
        )
    order = list(_FIELDS)
    if first not in order or last not in order or order.index(first) >= order.index(last):
        raise SyntaxProblem(
            f"there is no interval from {first} TO {last}",
            text=cursor.text,
            at=span,
            hint="as in DAY TO SECOND, HOUR TO MINUTE, MINUTE TO SECOND",
        )
    cursor.advance()
    total = parse_range(amount.value, first, last)
    if total is None:
        fields = order[order.index(first) : order.index(last) + 1]
        shape = "".join(_SHAPES[field] if each else _SHAPES[field].lstrip(": ") for each, field in enumerate(fields))
        raise SyntaxProblem(
            f"{amount.text} is no interval {first} TO {last}",
            text=cursor.text,
            at=span,
            hint=f"it is written '{shape}'",
        )
    return total


def duration_text(micros: int) -> str:
    """A length of time for users.

    >>> duration_text(90_000_000)
    '90 seconds'
    """
    for name, unit in (
        ("day", DAY),
        ("hour", HOUR),
        ("minute", MINUTE),
        ("second", SECOND),
        ("millisecond", 1000),
    ):
        if micros % unit == 0 and micros != 0:
            count = micros // unit
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{micros} microseconds"
