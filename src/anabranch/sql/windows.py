"""The window functions of FROM, in the spellings of several systems, parsed into one form.

`dialects` parses windows that are not functions.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal

from anabranch.algebra.windows import FUNCTIONS, WindowType
from anabranch.errors import problem
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import STRING, tokenize
from anabranch.sql.syntax import Name, Relation, WindowKind, WindowSpec, all_of
from anabranch.sql.table_functions import KEY, SOURCE, TIME, Call, TableFunction, TakeRelation, at_function, take_call
from anabranch.sql.text import Span
from anabranch.sql.window_arguments import WindowArgument, origin_text, take_argument, take_length, take_origin

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
    "origin": "origin",
    "every": "every",
    "by": "by",
    "filled": "filled",
    "strategy": "strategy",
    "block": "block",
    "pairs": "pairs",
    "key": KEY,
}
_PAIRS: tuple[Literal["none", "once", "every"], ...] = ("none", "once", "every")
_STRATEGIES: tuple[Literal["auto", "panes", "windows", "adaptive", "rows", "bins"], ...] = (
    "auto", "panes", "windows", "adaptive", "rows", "bins",
)  # fmt: skip
#: The words that some parameters take.
_WORDS: dict[str, tuple[str, ...]] = {
    "by": ("row_num", "rank"), "filled": ("false", "true"), "strategy": _STRATEGIES, "pairs": _PAIRS
}  # fmt: skip
_KINDS: dict[str, WindowKind] = {
    "TUMBLE": "tumble",
    "HOP": "hop",
    "CUMULATE": "cumulate",
    "SESSION": "session",
    "SLIDING": "sliding",
    "LANDMARK": "landmark",
    "SLIDE_BY_ROW": "slide_by_row",
    "CHUNKS": "chunks",
}
_APART = ("every", "by", "filled", "strategy", "block", "pairs")
_OPTIONAL = ("offset", "origin", "by", "filled", "strategy", "block", "pairs")


def _function(example: str, *arguments: str, partitioned: bool = False) -> TableFunction:
    names = {SOURCE: "DATA", TIME: "TIMECOL", "offset": "`OFFSET`"}
    order = (SOURCE, TIME, *arguments)
    shown = tuple(names.get(each, each.upper()) for each in (*order, *([KEY] if partitioned else [])))
    known = (
        _NAMES if "gap" not in arguments else {**_NAMES, "size": "gap"}
    )  # the size of a session, to Calcite, is its gap
    optional = _OPTIONAL if "block" in arguments else (TIME, *_OPTIONAL)  # chunks have no column of their own
    return TableFunction(order, known, shown, example, optional, partitioned)


#: HOP has its slide before its size in Flink and in RisingWave; SLIDING follows it.
_OF_THE_LANGUAGE = {
    "TUMBLE": _function("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL 1 MINUTE)", "size", "offset", "filled", "strategy"),
    "HOP": _function(
        "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL 10 SECONDS, INTERVAL 1 MINUTE)", "slide", "size", "offset", "strategy"
    ),
    "CUMULATE": _function(
        "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL 10 MINUTES, INTERVAL 1 DAY)", "step", "size", "offset"
    ),
    "SESSION": _function(
        "SESSION(TABLE t PARTITION BY user, DESCRIPTOR(ts), INTERVAL 5 MINUTES)", "gap", partitioned=True
    ),
    "SLIDING": _function(
        "SLIDING(TABLE t, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 10 MINUTES)",
        "slide",
        "size",
        "origin",
        "strategy",
        "pairs",
        partitioned=True,
    ),
    "LANDMARK": _function("LANDMARK(TABLE t, DESCRIPTOR(ts), INTERVAL 1 MINUTE)", "slide", "origin"),
    "SLIDE_BY_ROW": _function(
        "SLIDE_BY_ROW(TABLE t, DESCRIPTOR(ts), INTERVAL 5 MINUTES, 1 ROW)", "size", "every", "by", "strategy"
    ),
    "CHUNKS": _function("CHUNKS(TABLE t, DESCRIPTOR(id))", "block", "pairs"),
}


class _Functions(Mapping[str, TableFunction]):
    """The built-in window functions, and those of registered window types."""

    def __getitem__(self, name: str) -> TableFunction:
        if name in _OF_THE_LANGUAGE:
            return _OF_THE_LANGUAGE[name]
        _import_types()
        return _signature(FUNCTIONS[name])

    def __iter__(self) -> Iterator[str]:
        _import_types()
        return iter({**_OF_THE_LANGUAGE, **FUNCTIONS})

    def __len__(self) -> int:
        return sum(1 for _ in self)


WINDOW_FUNCTIONS = _Functions()
#: The entry points of window types in other packages: an import registers the type.
ENTRY_POINTS = "anabranch.windows"


@cache
def _import_types() -> None:
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        point.load()


def _signature(windows: type[WindowType[Any]]) -> TableFunction:
    """The signature of the function of a window type: the fields of the class; those with a default are optional."""
    given: tuple[Field[Any], ...] = fields(windows) if is_dataclass(windows) else ()
    names = tuple(each.name for each in given)
    optional = tuple(each.name for each in given if each.default is not MISSING)
    arguments = ["10" if name in windows.counts else "INTERVAL 1 MINUTE" for name in names if name not in optional]
    example = f"{windows.function}({', '.join(('TABLE t', 'DESCRIPTOR(ts)', *arguments, *windows.columns))})"
    taken = (*names, *windows.columns)
    return TableFunction(
        (SOURCE, TIME, *taken),
        {**_NAMES, **{name.lower(): name for name in taken}},
        ("DATA", "TIMECOL", *(name.upper() for name in taken)),
        example,
        (TIME, *optional),
        windows.context != "CF",
        windows.columns,
    )


def at_window_function(cursor: Cursor) -> bool:
    return at_function(cursor, WINDOW_FUNCTIONS)


def at_table_of_windows(cursor: Cursor) -> bool:
    """TABLE(TUMBLE(...)), as Flink writes it."""
    bracket = cursor.at("TABLE") and cursor.ahead(1).text == "(" and cursor.ahead(3).text == "("
    return bracket and cursor.ahead(2).upper in WINDOW_FUNCTIONS


def take_window_function(cursor: Cursor, join: str, take_relation: TakeRelation) -> Relation:
    """TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...), the same with named parameters, or TUMBLE(t, ts, INTERVAL ...)."""
    function = cursor.current.upper
    call = take_call(cursor, WINDOW_FUNCTIONS, take_relation, _argument)
    return windowed(cursor.text, function, call, join)


def windowed(text: str, function: str, call: Call[WindowArgument], join: str) -> Relation:
    """The relation of a call, with its windows."""
    source = call.source
    if source.window is not None or source.sample is not None:  # windows over windows need a subquery
        query = all_of(source)
        source = Relation("subquery", query.span, subquery=query, alias=source.exposed)
    attribute = _attribute(call.time)
    counts = FUNCTIONS[function].counts if function not in _KINDS else ()
    _check_units(text, call, attribute, counts)
    _check_strategy(text, function, call.arguments.get("strategy"))
    values = {name: argument.value for name, argument in call.arguments.items()}
    if function not in _KINDS:
        return replace(source, span=call.span, window=_own(text, call, function, values), join=join)
    size = values.get("gap", values.get("size", 0))
    slide = values.get("slide", values.get("step", size if function in ("TUMBLE", "SESSION") else 0))
    if function == "CUMULATE" and size % slide:
        raise problem(text, call.span, "the size of a cumulating window is a whole number of its steps")
    window = WindowSpec(
        _KINDS[function],
        call.time.last if call.time is not None and attribute == "column" else None,
        call.time.span if call.time is not None else call.span,
        size,
        slide,
        values.get("origin", values.get("offset", 0)),
        call.partition,
        attribute,
        function == "CHUNKS" or any(each.unit != "time" for each in _along(call)),
        values.get("every", 0),
        "rank" if values.get("by") else "row_num",
        bool(values.get("filled")),
        _STRATEGIES[values.get("strategy", 0)],
        values.get("block", 0),
        _PAIRS[values.get("pairs", 0)],
    )
    return replace(source, span=call.span, window=window, join=join)


def call_text(window: WindowSpec, along: str | None, apart: Sequence[str]) -> tuple[str, str]:
    """The call of a window function with these windows: the text before its relation, and after it."""
    unit: Literal["time", "rows", "number"] = "time"
    if window.rows:
        unit = "rows" if window.attribute == "row_num" else "number"

    def argument(value: int) -> str:
        return WindowArgument(value, unit, window.time_span).sql

    slide = {"cumulate": "STEP"}.get(window.kind, "SLIDE")
    size = {"session": "GAP"}.get(window.kind, "SIZE")
    given = {
        slide: argument(window.slide) if window.slide and window.kind not in ("tumble", "session") else "",
        size: argument(window.size) if window.size else "",
        "EVERY": f"{window.every} ROWS" if window.every else "",
        "BY": "'rank'" if window.by == "rank" else "",
        "BLOCK": str(window.block) if window.block else "",
        "PAIRS": f"'{window.pairs}'" if window.pairs != "none" else "",
        "FILLED": "true" if window.filled else "",
    }
    if window.offset and window.kind in ("sliding", "landmark"):
        given["ORIGIN"] = str(window.offset) if window.rows else origin_text(window.offset)
    elif window.offset:
        given["`OFFSET`"] = argument(window.offset)
    column = along if window.attribute == "column" else window.attribute
    behind = [f"DESCRIPTOR({column})"] if column else []
    behind += [f"{name} => {text}" for name, text in given.items() if text]
    function = next(name for name, kind in _KINDS.items() if kind == window.kind)
    return f"{function}(TABLE ", f"{' PARTITION BY ' + ', '.join(apart) if apart else ''}, {', '.join(behind)})"


def is_call(text: str) -> bool:
    """Whether a relation is the call of a window function, or TABLE around one."""
    words = [token.upper for token in tokenize(text)[:3]]
    return words[:1] == ["TABLE"] or (words[1:2] == ["("] and words[0] in WINDOW_FUNCTIONS)


def _own(text: str, call: Call[WindowArgument], function: str, values: Mapping[str, int]) -> WindowSpec:
    """The windows of a registered type."""
    try:
        windows = FUNCTIONS[function](**values)
    except ValueError as error:
        raise problem(text, call.span, str(error)) from error
    attribute = _attribute(call.time)
    return WindowSpec(
        "own",
        call.time.last if call.time is not None and attribute == "column" else None,
        call.time.span if call.time is not None else call.span,
        0,
        0,
        0,
        call.partition,
        attribute,
        attribute == "row_num"
        or windows.cut_by_key
        or any(each.unit != "time" for each in _along(call, windows.counts)),
        own=windows,
        columns=call.columns,
    )


def _argument(cursor: Cursor, parameter: str) -> WindowArgument:
    if parameter in _WORDS:
        return _word(cursor, _WORDS[parameter], parameter)
    if parameter == "origin":
        return take_origin(cursor)
    what = "after how many rows a window ends" if parameter == "every" else f"the {parameter} of the window"
    return take_argument(cursor, what) if parameter == "offset" else take_length(cursor, what)


def _word(cursor: Cursor, known: tuple[str, ...], parameter: str) -> WindowArgument:
    """The index of the next token in `known`."""
    token = cursor.current
    word = (token.value if token.kind == STRING else token.name).lower().replace("-", "_")
    if word not in known:
        raise cursor.problem(f"expected {', '.join(known[:-1])} or {known[-1]} for {parameter.upper()}", known=known)
    cursor.advance()
    return word_argument(parameter, word, token.span)


def word_argument(parameter: str, word: str, span: Span) -> WindowArgument:
    """The word of a parameter as its index among the allowed words."""
    return WindowArgument(_WORDS[parameter].index(word), "number", span)


def _attribute(time: Name | None) -> Literal["column", "row_num", "arrival_ts"]:
    name = "" if time is None else time.last.lower().replace("-", "_")
    if name == "row_num":
        return "row_num"
    return "arrival_ts" if name == "arrival_ts" else "column"


def _along(call: Call[WindowArgument], counts: Sequence[str] = ()) -> list[WindowArgument]:
    """The arguments in units of the attribute, in textual order."""
    arguments = [argument for name, argument in call.arguments.items() if name not in (*_APART, *counts)]
    return sorted(arguments, key=lambda argument: argument.span.start)


def _check_units(text: str, call: Call[WindowArgument], attribute: str, counts: Sequence[str] = ()) -> None:
    """Refuse lengths of time over anything but times, rows over anything but row numbers, and mixed units."""
    timed_count = next(
        (name for name in counts if name in call.arguments and call.arguments[name].unit == "time"), None
    )
    if timed_count is not None:
        what = f"the {timed_count} of the window is a number, not a length of time"
        raise problem(text, call.arguments[timed_count].span, what, "as in 10")
    arguments = _along(call, counts)
    mixed = [argument for argument in arguments if (argument.unit == "time") != (arguments[0].unit == "time")]
    if mixed:
        hint = "SLIDE_BY_ROW (RATTR and SATTR in brackets) has windows of a length that move by rows"
        raise problem(text, mixed[0].span, "the arguments of a window are all lengths of time, or all numbers", hint)
    for argument in arguments:
        timed = argument.unit == "time"
        if timed and attribute == "row_num":
            raise problem(text, argument.span, "windows over ROW_NUM are counted in rows", "as in 10 ROWS")
        if not timed and (attribute == "arrival_ts" or call.time is None):
            what = "ARRIVAL_TS is a time" if attribute == "arrival_ts" else "event time is a time"
            hint = "name ROW_NUM to count rows: DESCRIPTOR(row_num)"
            raise problem(text, argument.span, f"{what}, and its windows have lengths of time", hint)
        if argument.unit == "rows" and attribute == "column":
            column = call.time.last if call.time is not None else "the event time"
            hint = (
                "name ROW_NUM to count rows: DESCRIPTOR(row_num), WA row-num;"
                " a column of times wants a length of time, as in 5 SECONDS, one of numbers a plain number, as in 5"
            )
            raise problem(text, argument.span, f"rows are counted by ROW_NUM, and {column} is a column", hint)
    every = call.arguments.get("every")
    if every is not None and every.unit == "time":
        raise problem(text, every.span, "SLIDE_BY_ROW moves by rows", "as in 5 ROWS")


def _check_strategy(text: str, function: str, asked: WindowArgument | None) -> None:
    """Refuse a strategy that the window function does not have."""
    ends_at_rows = function == "SLIDE_BY_ROW"
    known = ("auto", "rows", "bins") if ends_at_rows else _STRATEGIES[:-1]
    if asked is not None and _STRATEGIES[asked.value] not in known:
        why = "windows that end at rows have no panes" if ends_at_rows else "bins are for windows that end at rows"
        hint = f"{function} has {', '.join(known[:-1])} and {known[-1]}"
        raise problem(text, asked.span, why, hint)
