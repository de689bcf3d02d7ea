"""How a text says how progress follows the rows of a stream: the WATERMARK clause of CREATE STREAM."""

from __future__ import annotations

import re

from anabranch.algebra.progress import Percentile
from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import duration_text, take_duration
from anabranch.sql.lexer import NUMBER, WORD, Span, quote_name, tokenize
from anabranch.sql.syntax import Watermark

#: The last event times are part of the record of every run.
MOST_ROWS = 10_000


def take_watermark(cursor: Cursor) -> Watermark:
    """WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS, or WATERMARK FOR ts PERCENTILE 95 OF 1000 ROWS [EVERY 100 ROWS];
    both with [IDLE AFTER ...] [AHEAD AT MOST ...]."""
    start = cursor.current.start
    cursor.expect("WATERMARK", "FOR")
    column = cursor.expect_name("the event-time column").name
    delay: int | None = None
    percentile: Percentile | None = None
    if cursor.take("AS"):
        delay = _delay(cursor, column)
    elif cursor.take("PERCENTILE"):
        percentile = _percentile(cursor)
    else:
        raise NotSupported(
            "a watermark is written AS column - INTERVAL ... or PERCENTILE p OF n ROWS",
            text=cursor.text,
            start=cursor.current.start,
            end=max(cursor.current.end, cursor.current.start + 1),
            hint=f"as in WATERMARK FOR {column} AS {column} - INTERVAL 5 SECONDS",
        )
    idle = take_duration(cursor, "a time-out") if cursor.take("IDLE", "AFTER") else None
    ahead = take_duration(cursor, "a bound") if cursor.take("AHEAD", "AT", "MOST") else None
    if cursor.at("PER", "KEY"):
        raise NotSupported(
            "progress per key is not supported yet",
            text=cursor.text,
            start=cursor.current.start,
            end=cursor.ahead(1).end,
        )
    return Watermark(column, Span(start, cursor.previous.end), delay, idle, ahead, percentile)


def _delay(cursor: Cursor, column: str) -> int:
    again = cursor.expect_name("the event-time column")
    if again.name.lower() != column.lower():
        raise SyntaxProblem(
            f"the watermark for {column} must be computed from {column}",
            text=cursor.text,
            start=again.start,
            end=again.end,
            hint=f"as in {column} - INTERVAL 5 SECONDS",
        )
    return take_delay(cursor) if cursor.take("-") else 0


def _percentile(cursor: Cursor) -> Percentile:
    percentile = take_percentage(cursor)
    cursor.expect("OF")
    events = take_events(cursor)
    _rows(cursor)
    frequency = 1
    if cursor.take("EVERY"):
        frequency = take_frequency(cursor)
        _rows(cursor)
    return Percentile(events, percentile, frequency)


def _rows(cursor: Cursor) -> None:
    if not cursor.take("ROW"):
        cursor.expect("ROWS")


# ---- figures


def take_delay(cursor: Cursor) -> int:
    """How far the bound stays behind the highest event time."""
    start = cursor.current.start
    delay = take_duration(cursor, "how late rows may be")
    if delay < 0:
        raise SyntaxProblem(
            "how late rows may be is not less than nothing",
            text=cursor.text,
            start=start,
            end=cursor.previous.end,
        )
    return delay


def take_percentage(cursor: Cursor) -> float:
    """How many of a hundred rows lie above the bound."""
    text = cursor.current.text
    plain = cursor.current.kind == NUMBER and re.fullmatch(r"\d{1,3}(\.\d{1,9})?", text) is not None
    if not plain or float(text) > 100:
        raise cursor.problem("expected a percentile between 0 and 100")
    cursor.advance()
    return float(text)


def take_events(cursor: Cursor) -> int:
    """How many of the last rows are looked at."""
    token = cursor.current
    events = _at_least_one(cursor, "how many of the last rows are looked at")
    if events > MOST_ROWS:
        raise NotSupported(
            f"a percentile of more than {MOST_ROWS:,} rows is not supported: they are kept in the record of every run",
            text=cursor.text,
            start=token.start,
            end=token.end,
        )
    return events


def take_frequency(cursor: Cursor) -> int:
    """After how many rows the bound is taken anew."""
    return _at_least_one(cursor, "after how many rows the bound is taken anew")


def _at_least_one(cursor: Cursor, what: str) -> int:
    if cursor.current.text.strip("0") == "":
        raise cursor.problem(f"expected {what}, at least 1")
    return cursor.expect_whole_number(what)


# ---- the way back


def watermark_text(column: str, delay: int | None, percentile: Percentile | None) -> str:
    """The clause as one would write it.

    >>> watermark_text("ts", 5_000_000, None)
    'WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS'
    """
    plain = [token.kind for token in tokenize(column)][:-1] == [WORD]
    name = column if plain else quote_name(column)
    if percentile is None:
        behind = f" - INTERVAL {duration_text(delay).upper()}" if delay else ""
        return f"WATERMARK FOR {name} AS {name}{behind}"
    every = f" EVERY {percentile.frequency} ROWS" if percentile.frequency > 1 else ""
    share = str(percentile.percentile).removesuffix(".0")
    return f"WATERMARK FOR {name} PERCENTILE {share} OF {percentile.events} ROWS{every}"
