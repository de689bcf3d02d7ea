"""The grammar of watermarks: how progress follows the rows of a stream.

Progress belongs to the stream, so the WATERMARK clause is part of CREATE STREAM. OctoSQL has it in the query, as a
function over the stream; this module parses that too, as the relation with a watermark that its stream must have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from anabranch.algebra.progress import Computed, Delay, Lagging, Percentile, Punctuation, Rule
from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.calls import chains
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import duration_text, take_duration
from anabranch.sql.lexer import NUMBER, OPENING, STRING, SYMBOL, WORD, tokenize
from anabranch.sql.syntax import Expression, Name, Relation, Watermark
from anabranch.sql.table_functions import SOURCE, TIME, TableFunction, TakeRelation, at_function, take_call
from anabranch.sql.text import Span, quote_name

#: The last event times are part of the record of every run.
MOST_ROWS = 10_000


def take_watermark(cursor: Cursor) -> Watermark:
    """WATERMARK FOR ts, a rule, and in any order
    [PER KEY k] [IDLE AFTER ... [THEN BY CLOCK]] [AHEAD AT MOST ...].

    The rule: AS ts - INTERVAL 5 SECONDS (or another expression of ts), ORDERED, LAGGING 10 ROWS,
    PERCENTILE 95 OF 1000 ROWS [EVERY 100 ROWS], FROM PUNCTUATION WHERE condition.
    """
    start = cursor.current.start
    cursor.expect("WATERMARK", "FOR")
    column = cursor.expect_name("the event-time column").name
    expression: Expression | None = None
    rule: Rule
    if cursor.take("AS"):
        rule, expression = _computed(cursor, column)
    elif cursor.take("ORDERED"):
        rule = Delay(0)
    elif cursor.take("LAGGING"):
        rule = Lagging(_kept(cursor, "by how many rows progress lags"))
        _rows(cursor)
    elif cursor.take("PERCENTILE"):
        rule = _percentile(cursor)
    elif cursor.take("FROM", "PUNCTUATION", "WHERE"):
        expression = _take_expression(cursor, "what holds for rows that mark progress")
        rule = Punctuation(expression.sql(cursor.text))
    else:
        raise NotSupported(
            "a watermark is written AS an expression of its column, ORDERED, LAGGING n ROWS, PERCENTILE p OF n ROWS or"
            " FROM PUNCTUATION WHERE ...",
            text=cursor.text,
            start=cursor.current.start,
            end=max(cursor.current.end, cursor.current.start + 1),
            hint=f"as in WATERMARK FOR {column} AS {column} - INTERVAL 5 SECONDS",
        )
    idle: int | None = None
    ahead: int | None = None
    key: Name | None = None
    lull: Span | None = None
    while True:
        if idle is None and cursor.take("IDLE", "AFTER"):
            idle = take_duration(cursor, "a time-out")
            then = cursor.current.start
            if cursor.take("THEN"):
                cursor.expect("BY", "CLOCK")
                lull = Span(then, cursor.previous.end)
        elif ahead is None and cursor.take("AHEAD", "AT", "MOST"):
            ahead = take_duration(cursor, "a bound")
        elif key is None and cursor.take("PER", "KEY"):
            token = cursor.expect_name("the column of the key")
            key = Name((token.name,), Span(token.start, token.end))
        else:
            return Watermark(column, Span(start, cursor.previous.end), rule, idle, ahead, key, expression, lull)


def _computed(cursor: Cursor, column: str) -> tuple[Rule, Expression | None]:
    """ts - INTERVAL 5 SECONDS, which Spark need not compute, or another expression of the event time."""
    first = cursor.index
    expression = _take_expression(cursor, "an expression of the event-time column")
    last = cursor.index
    named = list(chains(expression.tokens))
    if not any(each.parts[-1].lower() == column.lower() for each in named):
        wrong = named[0].span if named else expression.span
        raise SyntaxProblem(
            f"the watermark for {column} must be computed from {column}",
            text=cursor.text,
            at=wrong,
            hint=f"as in {column} - INTERVAL 5 SECONDS",
        )
    tokens = expression.tokens
    if tokens[0].is_name and tokens[0].name.lower() == column.lower():
        if len(tokens) == 1:
            return Delay(0), None
        if len(tokens) > 2 and tokens[1].text == "-" and (tokens[2].upper == "INTERVAL" or tokens[2].kind == STRING):
            cursor.index = first + 2
            delay = _take_delay(cursor)
            if cursor.index == last:
                return Delay(delay), None
            cursor.index = last
    return Computed(expression.sql(cursor.text)), expression


#: The words after an expression in the definition of a stream.
_BEHIND = (("PER", "KEY"), ("IDLE", "AFTER"), ("AHEAD", "AT"), ("KEEP",), ("ON", "ERROR"), ("FROM",), ("SERVER",))


def _take_expression(cursor: Cursor, what: str) -> Expression:
    """Everything up to the next clause of the stream, outside brackets."""
    start = cursor.index
    while not cursor.at_end and cursor.current.text not in (",", ")", ";"):
        distinct = cursor.index > start and cursor.previous.upper == "DISTINCT"  # IS DISTINCT FROM
        if cursor.index > start and not distinct and any(cursor.at(*words) for words in _BEHIND):
            break
        token = cursor.advance()
        if token.kind == SYMBOL and token.text in OPENING:
            cursor.close_bracket()
    if cursor.index == start:
        raise cursor.problem(f"expected {what}")
    tokens = tuple(cursor.tokens[start : cursor.index])
    return Expression(Span(tokens[0].start, tokens[-1].end), tokens)


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


def _function(example: str, *arguments: str) -> TableFunction:
    order = (SOURCE, TIME, *arguments)
    names = {"source": SOURCE, "time_field": TIME, **{each: each for each in arguments}}
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
    arguments = call.arguments
    rule: Rule
    if "offset" in arguments:
        rule = Delay(int(arguments["offset"]))
    else:
        rule = Percentile(int(arguments["events"]), arguments["percentile"], int(arguments.get("frequency", 1)))
    assert call.time is not None, "its functions cannot do without"
    mark = Watermark(call.time.last, call.span, rule)
    return replace(call.source, span=call.span, watermarks=(*call.source.watermarks, mark), join=join)


# ---- arguments


def _take_delay(cursor: Cursor) -> int:
    """The distance of the bound from the highest event time."""
    start = cursor.current.start
    delay = take_duration(cursor, "how late rows may be")
    if delay < 0:
        raise SyntaxProblem(
            "the allowed delay of rows must not be negative",
            text=cursor.text,
            start=start,
            end=cursor.previous.end,
        )
    return delay


def _take_percentage(cursor: Cursor) -> float:
    """The percentage of rows above the bound."""
    text = cursor.current.text
    plain = cursor.current.kind == NUMBER and re.fullmatch(r"\d{1,3}(\.\d{1,9})?", text) is not None
    if not plain or float(text) > 100:
        raise cursor.problem("expected a percentile between 0 and 100")
    cursor.advance()
    return float(text)


def _take_events(cursor: Cursor) -> int:
    """The number of last rows considered."""
    return _kept(cursor, "how many of the last rows are looked at")


def _kept(cursor: Cursor, what: str) -> int:
    """A number of rows whose event times are kept."""
    token = cursor.current
    rows = _at_least_one(cursor, what)
    if rows > MOST_ROWS:
        raise NotSupported(
            f"more than {MOST_ROWS:,} rows are not supported: their event times are kept in the record of every run",
            text=cursor.text,
            at=token,
        )
    return rows


def _take_frequency(cursor: Cursor) -> int:
    """The number of rows between updates of the bound."""
    return _at_least_one(cursor, "after how many rows the bound is recomputed")


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


# ---- the text of a rule


def watermark_text(column: str, rule: Rule) -> str:
    """The text of the clause.

    >>> watermark_text("ts", Delay(5_000_000))
    'WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS'
    """
    plain = [token.kind for token in tokenize(column)][:-1] == [WORD]
    name = column if plain else quote_name(column)
    return f"WATERMARK FOR {name} {_rule_text(name, rule)}"


def _rule_text(name: str, rule: Rule) -> str:
    if isinstance(rule, Delay):
        behind = f" - INTERVAL {duration_text(rule.micros).upper()}" if rule.micros else ""
        return f"AS {name}{behind}"
    if isinstance(rule, Computed):
        return f"AS {rule.expression}"
    if isinstance(rule, Lagging):
        return f"LAGGING {rule.rows} ROWS"
    if isinstance(rule, Punctuation):
        return f"FROM PUNCTUATION WHERE {rule.predicate}"
    every = f" EVERY {rule.frequency} ROWS" if rule.frequency > 1 else ""
    share = str(rule.percentile).removesuffix(".0")
    return f"PERCENTILE {share} OF {rule.events} ROWS{every}"
