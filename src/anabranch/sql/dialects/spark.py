"""Windows as Spark calls them in GROUP BY: window(ts, '10 minutes', '5 minutes'), session_window(ts, '5 minutes').

What such a SELECT is planned as is for `ir.group_windows` to know. Spark reads it as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.algebra.windows.sql import MOST_BETWEEN
from anabranch.errors import SyntaxProblem
from anabranch.sql.calls import calls_of, closing, split_commas
from anabranch.sql.durations import parse_duration
from anabranch.sql.figures import Figure
from anabranch.sql.lexer import NUMBER, STRING, Span, Token, normal_form
from anabranch.sql.syntax import Expression, GroupWindow, Item, Select, WindowKind, WindowSpec

FUNCTIONS = frozenset({"window", "session_window"})
#: What the figures behind the time are called in messages.
_FIGURES = {"window": ("size", "slide", "start"), "session_window": ("gap",)}


def with_window(text: str, select: Select) -> Select:
    """A SELECT that knows which window it groups by; its items have the names that Spark gives to parts of windows."""
    found: dict[str, GroupWindow] = {}
    for tokens in select.expressions():
        for first, last in calls_of(FUNCTIONS, tokens):
            call = tokens[first : last + 1]
            found[normal_form(call)] = _window(text, Expression(Span(call[0].start, call[-1].end), call))
    if not found or not select.group:
        return select
    if len(found) > 1:  # Spark says that there can be one
        return select
    (window,), planned = found.values(), select.planned or any(map(asks_for_time, select.expressions()))
    return replace(select, window=window, items=tuple(map(_named, select.items)), planned=planned)


def asks_for_time(tokens: Sequence[Token]) -> bool:
    """Whether window_time is called: beside GROUP BY Spark does not take it."""
    return any(True for _ in calls_of(frozenset({"window_time"}), tokens))


def _window(text: str, call: Expression) -> GroupWindow:
    """The window of a call. Lengths that are written out are checked: Spark would say less of them."""
    name, known = call.tokens[0].text.lower(), _FIGURES[call.tokens[0].text.lower()]
    time, *rest = list(split_commas(call.tokens[2:-1])) or [[]]
    figures = [_figure(each) for each in rest]
    given = {what: figure for what, figure in zip(known, figures, strict=False) if figure is not None}
    for what, figure in given.items():
        if figure.value <= 0 and what != "start":
            raise _wrong(text, figure, f"the {what} of {name}() must be longer than nothing")
    size, slide, start = (given.get(what) for what in _FIGURES["window"])
    every = slide or size
    if size is not None and slide is not None and slide.value > size.value:
        hint = "HOP has windows with time between them: HOP(t, ts, slide, size)"
        raise _wrong(text, slide, "the slide of window() is at most as long as its windows", hint)
    if size is not None and slide is not None and size.value // slide.value > MOST_BETWEEN:
        what = f"a row would be in {size.value // slide.value:,} windows, and {MOST_BETWEEN:,} are the most"
        raise _wrong(text, slide, what, "give the windows a larger slide, or make them shorter")
    if start is not None and every is not None and abs(start.value) >= every.value:
        hint = "windows start anew with each slide: what is left of it when slides are taken away is the same start"
        raise _wrong(text, start, "the start of window() is less than its slide", hint)
    if not time or len(given) != len(rest) or not given:
        return GroupWindow(call, None)
    along, gap = Span(time[0].start, time[-1].end), given.get("gap")
    if gap is not None:
        return GroupWindow(call, WindowSpec("session", None, along, gap.value, gap.value, 0))
    assert size is not None and every is not None
    offset = start.value % every.value if start is not None else 0
    kind: WindowKind = "tumble" if every.value == size.value else "hop"
    return GroupWindow(call, WindowSpec(kind, None, along, size.value, every.value, offset))


def _figure(tokens: Sequence[Token]) -> Figure | None:
    """A length of time that is written out: a text, or a number of microseconds."""
    minus = len(tokens) == 2 and tokens[0].text == "-"
    if len(tokens) != 1 + minus:
        return None
    token, span = tokens[-1], Span(tokens[0].start, tokens[-1].end)
    if token.kind == NUMBER and token.text.isdecimal():
        return Figure(-int(token.text) if minus else int(token.text), "time", span)
    written = token.value.strip() if token.kind == STRING and not minus else ""
    value = parse_duration(written[8:] if written[:9].lower() == "interval " else written)
    return None if value is None else Figure(value, "time", span)


def _named(item: Item) -> Item:
    return item if item.alias is not None else replace(item, alias=_name(item.tokens))


def _name(tokens: Sequence[Token]) -> str | None:
    """The name that Spark gives to an item that is a window, or a part of one; None for any other item."""
    if tokens[0].upper == "WINDOW_TIME" and len(tokens) > 3 and closing(tokens, 1) == len(tokens) - 1:
        inside = _name(tokens[2:-1])
        return f"window_time({inside})" if inside in FUNCTIONS else None
    name = tokens[0].name.lower()
    if not tokens[0].is_name or name not in FUNCTIONS:
        return None
    called = len(tokens) > 1 and tokens[1].text == "("
    behind = [token.name.lower() for token in tokens[closing(tokens, 1) + 1 if called else 1 :]]
    if behind in ([".", "start"], [".", "end"]):
        return f"{name}.{behind[1]}" if called else behind[1]
    return None if behind else name


def _wrong(text: str, figure: Figure, message: str, hint: str | None = None) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, start=figure.span.start, end=figure.span.end, hint=hint)
