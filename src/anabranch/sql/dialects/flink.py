"""Windows in GROUP BY as Flink had them once, and as Arroyo has them: calls of Spark's functions.

    SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)

has the tokens of

    SELECT window(ts, '1 minute').start AS window_start, count(*) FROM s GROUP BY window(ts, '1 minute')

each where that stands which it is for; so have HOP and SESSION. Without a column, as in TUMBLE(INTERVAL '1' MINUTE),
windows lie along the event time of the relation. Spark's own functions take no intervals: theirs become texts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from anabranch.errors import NotSupported, SqlError, SyntaxProblem
from anabranch.sql.calls import calls_of, closing, split_commas
from anabranch.sql.cursor import Cursor
from anabranch.sql.dialects.spark import FUNCTIONS
from anabranch.sql.durations import duration_text, take_duration
from anabranch.sql.lexer import END, NUMBER, STRING, SYMBOL, WORD, Span, Token, normal_form, quote_string, tokenize
from anabranch.sql.syntax import EVENT_TIME, Item, Select

#: The figures of each, in the order in which they stand behind the time; an offset can be left out.
_FIGURES = {"TUMBLE": ("size", "offset"), "HOP": ("slide", "size", "offset"), "SESSION": ("gap",)}
#: What stands around a window to make a part of it, and what that is called.
_PARTS = {
    "START": ("", ".start", "window_start"),
    "END": ("", ".end", "window_end"),
    "ROWTIME": ("(", ".end - INTERVAL 1 MILLISECOND)", "rowtime"),
    "PROCTIME": ("", "", ""),
}
_PART_OF = {f"{function}_{part}": (function, part) for function in _FIGURES for part in _PARTS}
_NAMES = frozenset(name.lower() for name in (*_FIGURES, *_PART_OF, "CUMULATE")) | FUNCTIONS


def translated(text: str, select: Select) -> Select:
    """A SELECT with Spark's calls in the place of these."""
    calls = [tokens[first : last + 1] for tokens in select.expressions() for first, last in calls_of(_NAMES, tokens)]
    if not calls:
        return select
    untimed = next((call for call in calls if call[0].text.lower() not in FUNCTIONS and not _is_timed(call)), None)
    if untimed is not None and len(select.relations) != 1:
        message = "a window without a time column is one of GROUP BY over a single stream or view"
        raise _wrong(text, untimed, message, "name the column with the time first: TUMBLE(ts, INTERVAL ...)")
    grouped = {normal_form(_window(text, call)) for call in calls if call[0].upper not in _PART_OF}
    made = replace(select, items=tuple(map(_named, select.items))).map(lambda each: translate(text, each, grouped))
    return select if made == select else replace(made, planned=True)


def translate(text: str, tokens: tuple[Token, ...], grouped: Collection[str]) -> tuple[Token, ...]:
    """The tokens of an expression with Spark's calls; `grouped` are the windows of the SELECT that it belongs to."""
    made: list[Token] = []
    done = 0
    for first, last in calls_of(_NAMES, tokens):
        call = tokens[first : last + 1]
        made += (*tokens[done:first], *_part(text, call, grouped))
        done = last + 1
    return (*made, *tokens[done:])


def _part(text: str, call: Sequence[Token], grouped: Collection[str]) -> Sequence[Token]:
    function, part = _PART_OF.get(call[0].upper, ("", ""))
    if part == "PROCTIME":
        hint = f"{function}_END is where a window ends; windows along ARRIVAL_TS go by when rows came"
        raise NotSupported(
            "windows have no time of processing", text=text, start=call[0].start, end=call[-1].end, hint=hint
        )
    window = _window(text, call)
    if not part:
        return window
    if normal_form(window) not in grouped:
        inside = Span(call[2].start, call[-2].end).of(text)
        message = f"{call[0].upper} goes with GROUP BY {function} of the same time and lengths"
        raise _wrong(text, call, message, f"GROUP BY {function}({inside})")
    before, behind, _ = _PARTS[part]
    return (*_tokens(before, call[0].start), *window, *_tokens(behind, call[-1].end))


def _window(text: str, call: Sequence[Token]) -> list[Token]:
    """The call of Spark's function for the window of a call."""
    name, given = call[0].upper, list(split_commas(call[2:-1]))
    function, _ = _PART_OF.get(name, (name, ""))
    if function == "CUMULATE":
        hint = "FROM CUMULATE(TABLE t, DESCRIPTOR(ts), step, size) ... GROUP BY window_start, window_end"
        raise _wrong(text, call, "CUMULATE stands in FROM", hint)
    if call[0].text.lower() in FUNCTIONS and not all(given):
        return list(call)
    if call[0].text.lower() in FUNCTIONS:
        spark, arguments = call[0].text, [*given[:1], *(_without_interval(text, each) for each in given[1:])]
    else:
        spark = "session_window" if function == "SESSION" else "window"
        time = given[0] if given and _is_timed(call) else [Token(WORD, EVENT_TIME, call[2].start, call[2].start)]
        arguments = [time, *_figures(text, call, function, given)]
    # Commas in the order in which they are written, and two that are not.
    places = [(each[-1].end, each[-1].end + 1) for each in given[:-1]] + [(call[-1].start, call[-1].start)] * 2
    made = [replace(call[0], text=spark), call[1]]
    for argument, place in zip(arguments, places, strict=False):
        made += [*argument, Token(SYMBOL, ",", *place)]
    return [*made[:-1], call[-1]]


def _is_timed(call: Sequence[Token]) -> bool:
    """Whether the first argument is a time, and not a figure."""
    return call[2].upper not in ("INTERVAL", "-") and call[2].kind not in (STRING, NUMBER)


def _figures(text: str, call: Sequence[Token], function: str, given: list[list[Token]]) -> list[list[Token]]:
    """The lengths as Spark has them: the size before the slide, and a slide before the start."""
    names = _FIGURES[function]
    needed = [each for each in names if each != "offset"]
    lengths = given[_is_timed(call) :]
    if not len(needed) <= len(lengths) <= len(names) or not all(given):
        message = f"in GROUP BY, {function} takes a column with the time and {' and '.join(needed)}"
        raise _wrong(text, call, message, f"as in {function}(ts{', INTERVAL 1 MINUTE' * len(needed)})")
    found = {
        name: [_length(text, each, f"the {name} of the window")] for name, each in zip(names, lengths, strict=False)
    }
    if "offset" in found:
        found.setdefault("slide", found["size"])
    return [found[name] for name in ("gap", "size", "slide", "offset") if name in found]


def _length(text: str, tokens: list[Token], what: str) -> Token:
    """A length of time as a text."""
    end = tokens[-1].end
    cursor = Cursor(text, [*tokens, Token(END, "", end, end)])
    micros = take_duration(cursor, what)
    cursor.expect_end()
    return Token(STRING, quote_string(duration_text(micros)), tokens[0].start, end)


def _without_interval(text: str, tokens: list[Token]) -> list[Token]:
    if tokens and tokens[0].upper == "INTERVAL":
        with suppress(SqlError):  # Spark says what is wrong with it
            return [_length(text, tokens, "a length of time")]
    return tokens


def _tokens(text: str, place: int) -> list[Token]:
    return [replace(token, start=place, end=place) for token in tokenize(text)[:-1]]


def _named(item: Item) -> Item:
    """An item that is a part of a window, under its name."""
    _, part = _PART_OF.get(item.tokens[0].upper, ("", ""))
    alone = part and len(item.tokens) > 1 and closing(item.tokens, 1) == len(item.tokens) - 1
    return replace(item, alias=_PARTS[part][2]) if alone and item.alias is None else item


def _wrong(text: str, call: Sequence[Token], message: str, hint: str) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, start=call[0].start, end=call[-1].end, hint=hint)
