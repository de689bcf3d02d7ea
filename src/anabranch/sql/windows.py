"""TUMBLE, HOP, CUMULATE and SESSION in FROM, in the spellings of several systems, all to one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import take_duration
from anabranch.sql.lexer import NUMBER, STRING, WORD, Span, Token
from anabranch.sql.syntax import Name, Relation, WindowSpec

_LATER = {
    "STREAM": "windows cut by STREAM(...)",
    "MAX_DIFF_WATERMARK": "watermarks as table functions",
    "PERCENTILE_WATERMARK": "watermarks as table functions",
}
_PARAMETERS = {
    "data": "source",
    "source": "source",
    "timecol": "time",
    "time_field": "time",
    "size": "size",
    "window_length": "size",
    "slide": "slide",
    "hop_length": "slide",
    "step": "step",
    "gap": "gap",
    "offset": "offset",
}
#: Positional order: HOP has its slide before its size in Flink and in RisingWave.
_ORDER = {
    "TUMBLE": ("source", "time", "size", "offset"),
    "HOP": ("source", "time", "slide", "size", "offset"),
    "CUMULATE": ("source", "time", "step", "size", "offset"),
    "SESSION": ("source", "time", "gap"),
}
WINDOW_FUNCTIONS = frozenset(_ORDER)
_EXAMPLES = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL 1 MINUTE)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL 10 SECONDS, INTERVAL 1 MINUTE)",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL 10 MINUTES, INTERVAL 1 DAY)",
    "SESSION": "SESSION(TABLE t PARTITION BY user, DESCRIPTOR(ts), INTERVAL 5 MINUTES)",
}


_KINDS: dict[str, Literal["tumble", "hop", "cumulate", "session"]] = {
    "TUMBLE": "tumble",
    "HOP": "hop",
    "CUMULATE": "cumulate",
    "SESSION": "session",
}


@dataclass
class _Arguments:
    source: Relation | None = None
    time: tuple[str, Span] | None = None
    partition: tuple[Name, ...] = ()
    lengths: dict[str, int] = field(default_factory=dict)


def at_window_function(cursor: Cursor) -> bool:
    token = cursor.current
    return token.kind == WORD and token.upper in WINDOW_FUNCTIONS and cursor.ahead(1).text == "("


def refuse_later_windows(cursor: Cursor) -> None:
    """Functions of the dialect that are understood but not built yet."""
    token = cursor.current
    if token.kind == WORD and token.upper in _LATER and cursor.ahead(1).text == "(":
        raise NotSupported(
            f"{_LATER[token.upper]} are not supported yet",
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
                hint=f"write {_EXAMPLES['TUMBLE']} or HOP in FROM",
            )


def take_window_function(cursor: Cursor, join: str, take_relation: Callable[[Cursor, str], Relation]) -> Relation:
    """TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...), the same with named parameters, or TUMBLE(t, ts, INTERVAL ...)."""
    function = cursor.advance()
    order = _ORDER[function.upper]
    given = _Arguments()
    cursor.expect("(")
    position = 0
    while True:
        if cursor.current.is_name and cursor.ahead(1).text == "=>":
            parameter = _named(cursor, function)
        elif position < len(order):
            parameter = order[position]
            position += 1
        else:
            raise cursor.problem(f"{function.upper} takes at most {len(order)} arguments")
        if parameter == "source":
            given.source = _source(cursor, take_relation)
            given.partition = _partition(cursor, function)
        elif parameter == "time":
            given.time = _time_column(cursor)
        else:
            given.lengths[parameter] = _length(cursor, parameter)
        if cursor.take(")"):
            break
        cursor.expect(",")
    return _finish(cursor, function, given, join)


def _named(cursor: Cursor, function: Token) -> str:
    token = cursor.advance()
    cursor.advance()
    parameter = _PARAMETERS.get(token.name.lower())
    if parameter is None or parameter not in _ORDER[function.upper]:
        names = {"source": "DATA", "time": "TIMECOL", "offset": "`OFFSET`"}
        known = [names.get(each, each.upper()) for each in _ORDER[function.upper]]
        raise SyntaxProblem(
            f"{function.upper} has no parameter {token.name}",
            text=cursor.text,
            start=token.start,
            end=token.end,
            hint=f"it has {', '.join(known[:-1])} and {known[-1]}",
        )
    return parameter


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


def _source(cursor: Cursor, take_relation: Callable[[Cursor, str], Relation]) -> Relation:
    if cursor.take("TABLE", "("):
        relation = take_relation(cursor, "")
        cursor.expect(")")
        return relation
    cursor.take("TABLE")
    return take_relation(cursor, "")


def _partition(cursor: Cursor, function: Token) -> tuple[Name, ...]:
    start = cursor.current.start
    if not cursor.take("PARTITION", "BY"):
        return ()
    columns = [cursor.expect_name("a column")]
    while _another_column(cursor):
        cursor.advance()
        columns.append(cursor.expect_name("a column"))
    if function.upper != "SESSION":
        raise SyntaxProblem(
            f"{function.upper} takes no PARTITION BY: its windows are the same for all rows",
            text=cursor.text,
            start=start,
            end=cursor.previous.end,
            hint="put the columns into GROUP BY",
        )
    return tuple(Name((column.name,), Span(column.start, column.end)) for column in columns)


def _another_column(cursor: Cursor) -> bool:
    """Whether a comma goes on with the columns of PARTITION BY, and not with the next argument."""
    following = [cursor.ahead(distance) for distance in range(5)]
    if following[0].text != "," or not following[1].is_name or following[2].text != ",":
        return False
    return following[3].upper == "DESCRIPTOR" or (following[3].is_name and following[4].text in (",", "=>"))


def _time_column(cursor: Cursor) -> tuple[str, Span]:
    bracket = cursor.take("DESCRIPTOR", "(")
    name = cursor.dotted_name("a time column")
    if bracket:
        cursor.expect(")")
    return name.last, name.span


def _finish(cursor: Cursor, function: Token, given: _Arguments, join: str) -> Relation:
    span = Span(function.start, cursor.previous.end)
    needed = [part for part in _ORDER[function.upper] if part not in ("source", "time", "offset")]
    missing = [part for part in needed if part not in given.lengths]
    if given.source is None or given.time is None or missing:
        what = "a source" if given.source is None else "a time column" if given.time is None else f"a {missing[-1]}"
        raise SyntaxProblem(
            f"{function.upper} needs {what}",
            text=cursor.text,
            start=span.start,
            end=span.end,
            hint=f"as in {_EXAMPLES[function.upper]}",
        )
    lengths = given.lengths
    size = lengths["gap"] if function.upper == "SESSION" else lengths["size"]
    slide = lengths.get("slide", lengths.get("step", size))
    if function.upper == "CUMULATE" and size % slide:
        raise SyntaxProblem(
            "the size of a cumulating window is a whole number of its steps",
            text=cursor.text,
            start=span.start,
            end=span.end,
        )
    window = WindowSpec(
        _KINDS[function.upper], given.time[0], given.time[1], size, slide, lengths.get("offset", 0), given.partition
    )
    if given.source.window is not None:
        raise NotSupported(
            "a window function over a window function is not supported yet",
            text=cursor.text,
            start=span.start,
            end=span.end,
            hint="make a view of the inner one and read that",
        )
    return replace(given.source, span=span, window=window, join=join)
