"""The clauses that say when results come out: EMIT, TRIGGER and LATE."""

from __future__ import annotations

from typing import Literal

from anabranch.errors import NotSupported
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import Span
from anabranch.sql.syntax import Emission

_SECOND_WORDS: dict[str, frozenset[str]] = {
    "EMIT": frozenset({"ON", "CHANGES", "STREAM", "AFTER"}),
    "TRIGGER": frozenset({"ON", "COUNTING", "AFTER"}),
    "LATE": frozenset({"CORRECT", "ARCHIVE", "DROP", "FAIL"}),
}


def emission_ahead(cursor: Cursor, distance: int = 0) -> bool:
    """TRIGGER, EMIT and LATE are ordinary names unless the words after them make them a clause."""
    second = cursor.ahead(distance + 1).upper
    if second not in _SECOND_WORDS.get(cursor.ahead(distance).upper, ()):
        return False
    if second == "ON":  # JOIN t emit ON emit.x = ... is an alias; so is every other word behind ON
        return cursor.ahead(distance + 2).upper in ("WINDOW", "WATERMARK", "END", "UPDATE")
    return True


def take_emission(cursor: Cursor) -> Emission | None:
    """The clause, if there is one here."""
    if not emission_ahead(cursor):
        return None
    start = cursor.current.start
    mode: Literal["close", "changes"] | None = None
    if cursor.take("EMIT", "ON", "WINDOW", "CLOSE") or cursor.take("TRIGGER", "ON", "WATERMARK"):
        mode = "close"
    elif cursor.take("EMIT", "CHANGES") or cursor.take("LATE", "CORRECT"):
        mode = "changes"
    elif cursor.at("EMIT", "ON", "WINDOW"):
        cursor.expect("EMIT", "ON", "WINDOW", "CLOSE")
    if mode is None or cursor.current.text == "," or cursor.at("AND"):
        raise NotSupported(
            "this emission clause is not supported yet",
            text=cursor.text,
            start=start,
            end=max(cursor.ahead(1).end, cursor.previous.end),
            hint="there is EMIT ON WINDOW CLOSE, TRIGGER ON WATERMARK and EMIT CHANGES",
        )
    cursor.take("LATE", "CORRECT")
    if emission_ahead(cursor):
        raise cursor.problem("one emission clause is enough")
    return Emission(mode, Span(start, cursor.previous.end))
