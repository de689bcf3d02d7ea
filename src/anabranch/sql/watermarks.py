"""How a text says how progress follows the rows of a stream.

Progress belongs to the stream, so CREATE STREAM says it, by the WATERMARK clause. OctoSQL says it in the query, by a
function over the stream; that is read here too. A relation inside such a function is that relation, with a watermark
that its stream must have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from anabranch.algebra.progress import Percentile
from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import duration_text, take_duration
from anabranch.sql.lexer import NUMBER, WORD, Span, quote_name, tokenize
from anabranch.sql.syntax import Relation, Watermark
from anabranch.sql.table_functions import SOURCE, TIME, TableFunction, TakeRelation, at_function, take_call

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
    return _take_delay(cursor) if cursor.take("-") else 0


def _percentile(cursor: Cursor) -> Percentile:
    percentile = _take_percentage(cursor)
    cursor.expect("OF")
    events = _take_events(cursor)
    _rows(cursor)
    frequency = 1
    if cursor.take("EVERY"):
        frequency = _take_frequency(cursor)
        _rows(cursor)
    return Percentile(events, percentile, frequency)


def _rows(cursor: Cursor) -> None:
    if not cursor.take("ROW"):
        cursor.expect("ROWS")


# ---- functions


def _function(example: str, *figures: str) -> TableFunction:
    order = (SOURCE, TIME, *figures)
    names = {"source": SOURCE, "time_field": TIME, **{each: each for each in figures}}
    return TableFunction(order, names, tuple(names), example, ("frequency",))


_FUNCTIONS = {
    "MAX_DIFF_WATERMARK": _function(
        "max_diff_watermark(source => TABLE(t), time_field => DESCRIPTOR(ts), offset => INTERVAL 5 SECONDS)", "offset"
    ),
    "PERCENTILE_WATERMARK": _function(
        "percentile_watermark(source => TABLE(t), time_field => DESCRIPTOR(ts), events => 1000, percentile => 95,"
        " frequency => 100)",
        "events",
        "percentile",
        "frequency",
    ),
}


def at_watermark_function(cursor: Cursor) -> bool:
    return at_function(cursor, _FUNCTIONS)


def take_watermark_function(cursor: Cursor, join: str, take_relation: TakeRelation) -> Relation:
    """max_diff_watermark(source => TABLE(t), time_field => DESCRIPTOR(ts), offset => INTERVAL 5 SECONDS), or
    percentile_watermark(..., events => 1000, percentile => 95, frequency => 100)."""
    call = take_call(cursor, _FUNCTIONS, take_relation, lambda at, parameter: _FIGURES[parameter](at))
    figures = call.figures
    delay = int(figures["offset"]) if "offset" in figures else None
    percentile: Percentile | None = None
    if delay is None:
        percentile = Percentile(int(figures["events"]), figures["percentile"], int(figures.get("frequency", 1)))
    assert call.time is not None, "its functions cannot do without"
    mark = Watermark(call.time.last, call.span, delay, percentile=percentile)
    return replace(call.source, span=call.span, watermarks=(*call.source.watermarks, mark), join=join)


# ---- figures


def _take_delay(cursor: Cursor) -> int:
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


def _take_percentage(cursor: Cursor) -> float:
    """How many of a hundred rows lie above the bound."""
    text = cursor.current.text
    plain = cursor.current.kind == NUMBER and re.fullmatch(r"\d{1,3}(\.\d{1,9})?", text) is not None
    if not plain or float(text) > 100:
        raise cursor.problem("expected a percentile between 0 and 100")
    cursor.advance()
    return float(text)


def _take_events(cursor: Cursor) -> int:
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


def _take_frequency(cursor: Cursor) -> int:
    """After how many rows the bound is taken anew."""
    return _at_least_one(cursor, "after how many rows the bound is taken anew")


def _at_least_one(cursor: Cursor, what: str) -> int:
    if cursor.current.text.strip("0") == "":
        raise cursor.problem(f"expected {what}, at least 1")
    return cursor.expect_whole_number(what)


_FIGURES: dict[str, Callable[[Cursor], float]] = {
    "offset": _take_delay,
    "events": _take_events,
    "percentile": _take_percentage,
    "frequency": _take_frequency,
}


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
