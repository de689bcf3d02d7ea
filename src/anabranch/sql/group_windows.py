"""Windows that GROUP BY calls, as Spark, Flink and Arroyo write them:

    window(ts, '10 minutes', '5 minutes')       session_window(ts, '5 minutes')
    HOP(ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE), TUMBLE(ts, size), SESSION(ts, gap), and TUMBLE(size)

and fields of them: window.start and window_time(window), TUMBLE_START(ts, size). `ir.group_windows` rewrites them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from anabranch.algebra.windows.sql import MOST_BETWEEN
from anabranch.errors import NotSupported, SqlError, problem
from anabranch.sql.calls import calls_of, closing, split_commas
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import parse_duration, take_duration
from anabranch.sql.lexer import END, NUMBER, STRING, Token
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import Expression, GroupWindow, Select, WindowKind, WindowSpec
from anabranch.sql.text import Span
from anabranch.sql.window_arguments import WindowArgument

SPARK = ("WINDOW", "SESSION_WINDOW")
#: The arguments of each function in order, and how many are required.
_FIGURES = {
    "WINDOW": (("size", "slide", "start"), 1),
    "SESSION_WINDOW": (("gap",), 1),
    "TUMBLE": (("size", "start"), 1),
    "HOP": (("slide", "size", "start"), 2),
    "SESSION": (("gap",), 1),
}
#: Fields of windows, and the columns with their values.
_PARTS = {"START": "window_start", "END": "window_end", "ROWTIME": "rowtime", "PROCTIME": ""}
#: The window function and the field that a function reads.
PART_OF = {f"{name}_{part}": (name, part) for name in ("TUMBLE", "HOP", "SESSION") for part in _PARTS}
_NAMES = frozenset(name.lower() for name in (*_FIGURES, *PART_OF, "CUMULATE"))


def with_window(text: str, select: Select) -> Select:
    """The SELECT with the window that it groups by; items that are fields of the window get names."""
    conditions = [each for each in (select.where, *select.group, select.having, select.qualify) if each is not None]
    expressions = [*(item.tokens for item in select.items), *(each.tokens for each in conditions)]
    calls = [call for tokens in expressions for call in calls_of(_NAMES, tokens)]
    found = {normal_form(call): _window(text, call) for call in calls if call[0].upper not in PART_OF}
    for call in calls:
        _check_part(text, call, found)
    if not found:
        return select
    windows = list(found.values())
    foreign = any(each.call.tokens[0].upper not in SPARK for each in windows)
    if len(windows) > 1 and not foreign:  # Spark reports the error
        return select
    if len(windows) > 1:
        raise problem(text, windows[1].call.span, "a SELECT groups by one window only, and this is a second one")
    (window,) = windows
    if window.spec is not None and not window.time and len(select.relations) != 1:
        message = "a window without a time column is only possible in GROUP BY over a single stream or view"
        hint = "name the column with the time first: TUMBLE(ts, INTERVAL ...)"
        raise problem(text, window.call.span, message, hint)
    intervals = any(token.upper == "INTERVAL" for token in window.call.tokens)
    items = tuple(item if item.alias is not None else replace(item, alias=_name(item.tokens)) for item in select.items)
    planned = foreign or intervals or any(map(calls_window_time, expressions))
    return replace(select, window=window, planned=planned, items=items)


def calls_window_time(tokens: Sequence[Token]) -> bool:
    """Whether window_time is called, which Spark refuses with GROUP BY."""
    return any(True for _ in calls_of(frozenset({"window_time"}), tokens))


def _check_part(text: str, call: Sequence[Token], found: Mapping[str, GroupWindow]) -> None:
    (name, part), span = PART_OF.get(call[0].upper, ("", "")), Span(call[0].start, call[-1].end)
    if part == "PROCTIME":
        hint = f"{name}_END is where a window ends; windows over ARRIVAL_TS go by the arrival of rows"
        raise NotSupported("windows have no time of processing", text=text, at=span, hint=hint)
    if part and normal_form([replace(call[0], text=name), *call[1:]]) not in found:
        message = f"{call[0].upper} needs GROUP BY {name} of the same time and lengths"
        raise problem(text, span, message, f"GROUP BY {name}{Span(call[1].start, span.end).of(text)}")


def _window(text: str, call: Sequence[Token]) -> GroupWindow:
    """The window of a call; Spark computes it if an argument of Spark's function is not a literal."""
    word, given = call[0].upper, list(split_commas(call[2:-1]))
    expression = Expression(Span(call[0].start, call[-1].end), tuple(call))
    if word == "CUMULATE":
        hint = "FROM CUMULATE(TABLE t, DESCRIPTOR(ts), step, size) ... GROUP BY window_start, window_end"
        raise problem(text, expression.span, "CUMULATE is only possible in FROM", hint)
    names, least = _FIGURES[word]
    timed = word in SPARK or (call[2].upper not in ("INTERVAL", "-") and call[2].kind not in (STRING, NUMBER))
    time, lengths = tuple(given[0]) if timed and given else (), given[timed:]
    fits = least <= len(lengths) <= len(names) and all(given)
    if not fits and word not in SPARK:
        message = f"in GROUP BY, {word} takes a column with the time and {' and '.join(names[:least])}"
        raise problem(text, expression.span, message, f"as in {word}(ts{', INTERVAL 1 MINUTE' * least})")
    arguments = {name: _argument(text, each, name, word) for name, each in zip(names, lengths, strict=False) if each}
    known = {name: argument for name, argument in arguments.items() if argument is not None}
    whole = "session_window" if "gap" in names else "window"
    if not fits or len(known) < len(lengths):
        return GroupWindow(expression, whole, time, None)
    size = known["gap"] if "gap" in known else known["size"]
    slide = known.get("slide", size)
    _check(text, call[0].text, known, size, slide)
    kind: WindowKind = "session" if "gap" in names else "tumble" if slide.value == size.value else "hop"
    along = Span(time[0].start, time[-1].end) if time else expression.span
    offset = known["start"].value % slide.value if "start" in known else 0
    return GroupWindow(expression, whole, time, WindowSpec(kind, None, along, size.value, slide.value, offset))


def _argument(text: str, tokens: list[Token], name: str, function: str) -> WindowArgument | None:
    """A length of time; for Spark's functions also a number of microseconds, or None if computed."""
    span, last, minus = Span(tokens[0].start, tokens[-1].end), tokens[-1], tokens[0].text == "-"
    cursor = Cursor(text, [*tokens, Token(END, "", span.end, span.end)])
    if function not in SPARK:
        value: int | None = take_duration(cursor, f"the {name} of the window")
        cursor.expect_end()
    elif last.text.isdecimal() and len(tokens) == 1 + minus:
        value = -int(last.text) if minus else int(last.text)
    elif last.kind == STRING and len(tokens) == 1:
        written = last.value.strip()
        value = parse_duration(written[8:] if written[:9].lower() == "interval " else written)
    else:
        value = None
        with suppress(SqlError):
            value = take_duration(cursor, name) if tokens[0].upper == "INTERVAL" else None
    return None if value is None else WindowArgument(value, "time", span)


def _check(
    text: str, function: str, arguments: Mapping[str, WindowArgument], size: WindowArgument, slide: WindowArgument
) -> None:
    """Lengths must be positive, and no slide longer than its window."""
    for name, argument in arguments.items():
        if argument.value <= 0 and name != "start":
            raise problem(text, argument.span, f"the {name} of {function}() must be positive")
    windows, start = size.value // slide.value, arguments.get("start")
    if not windows:
        hint = "HOP has windows with time between them: HOP(t, ts, slide, size)"
        raise problem(text, slide.span, f"the slide of {function}() is at most as long as its windows", hint)
    if windows > MOST_BETWEEN:
        what = f"a row would be in {windows:,} windows, and {MOST_BETWEEN:,} are the most"
        raise problem(text, slide.span, what, "give the windows a larger slide, or make them shorter")
    if start is not None and abs(start.value) >= slide.value:
        hint = "windows repeat with each slide: the remainder of a division by the slide is the same start"
        raise problem(text, start.span, f"the start of {function}() is less than its slide", hint)


def _name(tokens: Sequence[Token]) -> str | None:
    """The name in Spark or Flink of an item that is a window or a field of one; None for any other item."""
    called = len(tokens) > 1 and tokens[1].text == "("
    end = closing(tokens, 1) + 1 if called else 1
    name, behind = tokens[0].name.lower(), [token.name.lower() for token in tokens[end:]]
    if name == "window_time" and called and not behind and end > 3:
        inside = _name(tokens[2:-1])
        return f"window_time({inside})" if inside in ("window", "session_window") else None
    if called and not behind and tokens[0].upper in PART_OF:
        return _PARTS[PART_OF[tokens[0].upper][1]]
    if tokens[0].is_name and name.upper() in SPARK:
        if behind in ([".", "start"], [".", "end"]):
            return f"{name}.{behind[1]}" if called else behind[1]
        return None if behind else name
    return None
