"""TUMBLE, HOP, CUMULATE and SESSION in FROM, in the spellings of several systems, all to one shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import take_duration
from anabranch.sql.lexer import NUMBER, STRING, WORD, Token
from anabranch.sql.syntax import Relation, WindowSpec
from anabranch.sql.table_functions import SOURCE, TIME, TableFunction, TakeRelation, at_function, take_call

_NAMES = {
    "data": SOURCE,
    "source": SOURCE,
    "timecol": TIME,
    "time_field": TIME,
    "size": "size",
    "window_length": "size",
    "slide": "slide",
    "hop_length": "slide",
    "step": "step",
    "gap": "gap",
    "offset": "offset",
}
_KINDS: dict[str, Literal["tumble", "hop", "cumulate", "session"]] = {
    "TUMBLE": "tumble",
    "HOP": "hop",
    "CUMULATE": "cumulate",
    "SESSION": "session",
}


def _function(example: str, *figures: str) -> TableFunction:
    names = {SOURCE: "DATA", TIME: "TIMECOL", "offset": "`OFFSET`"}
    order = (SOURCE, TIME, *figures)
    shown = tuple(names.get(each, each.upper()) for each in order)
    return TableFunction(order, _NAMES, shown, example, ("offset",), "gap" in figures)


#: HOP has its slide before its size in Flink and in RisingWave.
WINDOW_FUNCTIONS = {
    "TUMBLE": _function("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL 1 MINUTE)", "size", "offset"),
    "HOP": _function("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL 10 SECONDS, INTERVAL 1 MINUTE)", "slide", "size", "offset"),
    "CUMULATE": _function(
        "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL 10 MINUTES, INTERVAL 1 DAY)", "step", "size", "offset"
    ),
    "SESSION": _function("SESSION(TABLE t PARTITION BY user, DESCRIPTOR(ts), INTERVAL 5 MINUTES)", "gap"),
}


def at_window_function(cursor: Cursor) -> bool:
    return at_function(cursor, WINDOW_FUNCTIONS)


def refuse_later_windows(cursor: Cursor) -> None:
    """Functions of the dialect that are understood but not built yet."""
    token = cursor.current
    if token.kind == WORD and token.upper == "STREAM" and cursor.ahead(1).text == "(":
        raise NotSupported(
            "windows cut by STREAM(...) are not supported yet",
            text=cursor.text,
            start=token.start,
            end=token.end,
            hint="TUMBLE, HOP, CUMULATE and SESSION are",
        )


def refuse_bracket_windows(text: str, tokens: list[Token]) -> None:
    """count(*) [RANGE 10 MINUTES, SLIDE 1 MINUTE, ...] and FROM s <VISIBLE ...>: understood, not built yet."""
    for bracket, word, following in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if bracket.text == "[":
            known = word.upper in ("RANGE", "SLIDE", "WA", "WATTR", "RATTR", "SATTR", "PA")
        elif bracket.text == "<":
            known = word.upper in ("VISIBLE", "SLICES")
        else:
            continue
        operators = ("AND", "OR", "DIV", "BETWEEN", "IS", "IN", "NOT", "LIKE")
        if known and following.kind in (WORD, NUMBER, STRING) and following.upper not in operators:
            raise NotSupported(
                f"windows written {bracket.text}{word.upper} ... are not supported yet",
                text=text,
                start=bracket.start,
                end=word.end,
                hint=f"write {WINDOW_FUNCTIONS['TUMBLE'].example} or HOP in FROM",
            )


def take_window_function(cursor: Cursor, join: str, take_relation: TakeRelation) -> Relation:
    """TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...), the same with named parameters, or TUMBLE(t, ts, INTERVAL ...)."""
    function = cursor.current.upper
    call = take_call(cursor, WINDOW_FUNCTIONS, take_relation, _length)
    lengths = {name: int(length) for name, length in call.figures.items()}
    size = lengths["gap"] if function == "SESSION" else lengths["size"]
    slide = lengths.get("slide", lengths.get("step", size))
    if function == "CUMULATE" and size % slide:
        raise SyntaxProblem(
            "the size of a cumulating window is a whole number of its steps",
            text=cursor.text,
            start=call.span.start,
            end=call.span.end,
        )
    if call.source.window is not None:
        raise NotSupported(
            "a window function over a window function is not supported yet",
            text=cursor.text,
            start=call.span.start,
            end=call.span.end,
            hint="make a view of the inner one and read that",
        )
    column, offset = call.time, lengths.get("offset", 0)
    window = WindowSpec(_KINDS[function], column.last, column.span, size, slide, offset, call.partition)
    return replace(call.source, span=call.span, window=window, join=join)


def _length(cursor: Cursor, parameter: str) -> int:
    start = cursor.current.start
    length = take_duration(cursor, f"the {parameter} of the window")
    if length <= 0 and parameter != "offset":
        raise SyntaxProblem(
            f"the {parameter} of a window must be longer than nothing",
            text=cursor.text,
            start=start,
            end=cursor.previous.end,
        )
    return length
