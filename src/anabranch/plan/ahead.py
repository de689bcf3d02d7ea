"""What a row of a query with window functions waits for until nothing that comes on time can change it.

    last_value(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 5 MINUTES FOLLOWING)

looks at rows up to five minutes later, so a row is final when progress is five minutes past it. A frame that ends with
the current row looks back alone. With LEAD and ROWS n FOLLOWING a row is final when progress is past the n-th next row:
until then another may come between. Where the end of the stream is waited for, it is FOREVER: UNBOUNDED FOLLOWING,
NTILE and the like, an order that is not that of time. What is partitioned by a time is final when that time has passed.
Knows the tokens of a SELECT and nothing of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anabranch.algebra.progress import FOREVER
from anabranch.ir.expr import Expr
from anabranch.plan.facts.distances import sum_of
from anabranch.sql.calls import closing, outside_brackets, split_commas
from anabranch.sql.lexer import NUMBER, Span, Token, tokenize
from anabranch.sql.syntax import Query, Select

#: The column that says at which progress a row is final, in microseconds.
FINAL = "__final"
_BACK = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_WHOLE = ("NTILE", "PERCENT_RANK", "CUME_DIST")
_FRAMES = ("ROWS", "RANGE", "GROUPS")

#: What to add to a time for the progress that is past it; None for what need not have passed when a row is shown.
Passes = Callable[[Sequence[Token]], int | None]


@dataclass(frozen=True)
class NextRow:
    """A row that comes after another in the order of a window, for whose time that one waits."""

    number: int  # 1: the very next one
    time: Span
    shift: int  # what to add to its time for the progress that is past it
    over: Span  # what stands behind OVER: brackets, or the name of a window
    definition: Span  # what stands between the brackets, there or in the WINDOW clause


@dataclass(frozen=True)
class Ahead:
    """What rows wait for: progress so far past their own time, and past rows that come next."""

    time: int = 0
    rows: tuple[NextRow, ...] = ()


def looks_ahead(select: Select, owner: Query, passes: Passes) -> Ahead | None:
    """What a row of a SELECT waits for; None if it has no window functions."""
    places = [item.tokens for item in select.items]
    places += [expression.tokens for expression in select.tail_expressions]
    if owner.body is select:
        places.append(owner.order_tokens)
    windows = {name.lower(): inside for name, inside in select.windows}
    found = [each for tokens in places for each in _in_tokens(tokens, windows, passes)]
    if not found:
        return None
    return Ahead(
        max((each for each in found if isinstance(each, int)), default=0),
        tuple(each for each in found if isinstance(each, NextRow)),
    )


def without_frame(window: str) -> str:
    """The definition of a window without its frame.

    >>> without_frame("PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING")
    'PARTITION BY k ORDER BY ts '
    """
    tokens = tokenize(window)[:-1]
    frame = (tokens[index].start for index in outside_brackets(tokens) if tokens[index].upper in _FRAMES)
    return window[: next(frame, len(window))]


def _in_tokens(
    tokens: Sequence[Token], windows: Mapping[str, tuple[Token, ...]], passes: Passes
) -> Iterator[int | NextRow]:
    for index, token in enumerate(tokens[:-1]):
        if token.upper != "OVER":
            continue
        following = tokens[index + 1]
        if following.text == "(":
            end = closing(tokens, index + 1)
            inside, over = tokens[index + 2 : end], Span(following.start, tokens[end].end)
        else:
            inside, over = windows.get(following.name.lower(), ()), following.span
        name, arguments = _called(tokens[:index])
        ignoring = index > 1 and tokens[index - 2].upper == "IGNORE"
        found = _of_call(name, arguments, inside, passes, ignoring)
        if isinstance(found, int):
            yield found
            continue
        time, number = found
        definition = Span(inside[0].start, inside[-1].end)
        shift = passes(time)
        assert shift is not None
        yield NextRow(number, Span(time[0].start, time[-1].end), shift, over, definition)


def _called(tokens: Sequence[Token]) -> tuple[str, list[list[Token]]]:
    """The function that stands in front of OVER, and its arguments."""
    end = len(tokens) - 1
    while end > 0 and tokens[end].upper in ("NULLS", "IGNORE", "RESPECT"):
        end -= 1
    start = next((i for i in range(end, 0, -1) if tokens[i].text == "(" and closing(tokens, i) == end), 0)
    name = tokens[start - 1].upper if start else ""
    if name == "FILTER":
        return _called(tokens[: start - 1])
    return name, list(split_commas(tokens[start + 1 : end]))


def _of_call(
    name: str, arguments: list[list[Token]], inside: Sequence[Token], passes: Passes, ignoring: bool
) -> int | tuple[list[Token], int]:
    """How long after its own time a row waits for a call; or the time that orders it, and the next row it waits for."""
    if any(passes(tokens) is not None for tokens in partition_by(inside)):
        return 0
    outside = list(outside_brackets(inside))
    frame = next((index for index in outside if inside[index].upper in _FRAMES), len(inside))
    order = next((index for index in outside if inside[index].upper == "ORDER"), None)
    if order is None or name in _WHOLE:
        return FOREVER
    first = next(iter(split_commas(inside[order + 2 : frame])), [])
    while first and first[-1].upper in ("ASC", "NULLS", "FIRST", "LAST"):
        first = first[:-1]
    if passes(first) is None:  # DESC is no part of a column either
        return FOREVER
    if name in ("LAG", "LEAD"):
        number = _integer(arguments[1]) if len(arguments) > 1 else 1
        number = -number if number is not None and name == "LAG" else number
    elif name in _BACK or frame == len(inside) or inside[frame + 1].upper != "BETWEEN":
        return 0
    else:
        bound = inside[next((i for i in outside if i > frame and inside[i].upper == "AND"), len(inside)) + 1 :]
        if not bound or bound[-1].upper == "ROW":
            return 0 if bound else FOREVER
        distance = bound[:-1]
        if bound[-1].upper == "PRECEDING":  # by less than nothing it is FOLLOWING
            return 0 if not any("-" in token.text for token in distance) else FOREVER
        if inside[frame].upper != "ROWS":
            length = sum_of(Expr(tuple(token.text for token in distance))) if inside[frame].upper == "RANGE" else None
            return max(0, int(length.high)) if length is not None and length.kind == "length" else FOREVER
        number, ignoring = _integer(distance), False
    if number is None or (number > 0 and ignoring):
        return FOREVER
    return (first, number) if number > 0 else 0


def partition_by(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """The expressions of PARTITION BY inside the brackets of OVER."""
    if len(tokens) < 3 or tokens[0].upper not in ("PARTITION", "DISTRIBUTE"):
        return []
    end = next((i for i in outside_brackets(tokens) if tokens[i].upper in ("ORDER", "SORT", *_FRAMES)), len(tokens))
    return [tuple(piece) for piece in split_commas(tokens[2:end]) if piece]


def _integer(tokens: Sequence[Token]) -> int | None:
    """The whole number that an expression is; None for any other."""
    sign = -1 if tokens and tokens[0].text == "-" else 1
    digits = tokens[1:] if sign < 0 else tokens
    if len(digits) != 1 or digits[0].kind != NUMBER or not digits[0].text.isdigit():
        return None
    return sign * int(digits[0].text)
