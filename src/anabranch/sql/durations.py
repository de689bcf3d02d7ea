"""Lengths of time as SQL writes them, in microseconds."""

from __future__ import annotations

import re

from anabranch.errors import SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import NUMBER, STRING

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
_DAY_TO_SECOND = re.compile(r"([+-]?)(\d{1,9}) (\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")
_PIECE = re.compile(rf"\s*({_AMOUNT})\s*([A-Za-z]+)")


def unit_of(word: str) -> int | None:
    """How many microseconds a unit has; a plural is the same unit."""
    upper = word.upper()
    return UNITS.get(upper) or UNITS.get(upper.removesuffix("S"))


def is_unit(word: str) -> bool:
    """Whether a word is a unit of time, months and years included.

    >>> is_unit("Hours"), is_unit("YEAR"), is_unit("price")
    (True, True, False)
    """
    return unit_of(word) is not None or word.upper().removesuffix("S") in ("MONTH", "QUARTER", "YEAR")


def parse_duration(text: str) -> int | None:
    """'10 minutes', '1 hour 30 min' and the like; None if the text is nothing of the kind.

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


def take_duration(cursor: Cursor, what: str) -> int:
    """An interval literal in any of its spellings: INTERVAL '10' MINUTE, INTERVAL 10 MINUTES, INTERVAL '10 minutes',
    '10 minutes', 10 MINUTES, INTERVAL '0 00:10:00' DAY TO SECOND."""
    start = cursor.current.start
    cursor.take("INTERVAL")
    negative = cursor.take("-")
    token = cursor.current
    if token.kind not in (STRING, NUMBER):
        raise cursor.problem(f"expected {what}, as in INTERVAL 10 MINUTES")
    cursor.advance()
    amount = token.value.strip() if token.kind == STRING else token.text
    total = parse_duration(amount)
    clock = _DAY_TO_SECOND.fullmatch(amount) if cursor.at("DAY", "TO", "SECOND") else None
    if clock is not None:
        cursor.expect("DAY", "TO", "SECOND")
        total = sum(
            int(each) * unit for each, unit in zip(clock.groups()[1:5], (DAY, HOUR, MINUTE, SECOND), strict=True)
        )
        total += int((clock[6] or "").ljust(6, "0"))
        total *= -1 if clock[1] == "-" else 1
    if total is None:
        unit = unit_of(cursor.current.text) if cursor.current.is_name else None
        if unit is None or not re.fullmatch(_AMOUNT, amount):
            calendar = cursor.current.upper.removesuffix("S") in ("MONTH", "YEAR", "QUARTER")
            raise SyntaxProblem(
                f"expected {what}, as in INTERVAL 10 MINUTES",
                text=cursor.text,
                start=start,
                end=max(cursor.current.end, start + 1),
                hint="months and years have no fixed length; use days" if calendar else None,
            )
        cursor.advance()
        total = _times(amount, unit)
        while re.fullmatch(_AMOUNT, cursor.current.text) and unit_of(cursor.ahead(1).text) is not None:
            total += _times(cursor.advance().text, unit_of(cursor.advance().text) or 0)  # 1 HOUR 30 MINUTES
    return -total if negative else total


def duration_text(micros: int) -> str:
    """A length of time for people to read.

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
