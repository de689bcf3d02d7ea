"""How far apart the event times of the two sides of a join are, as its conditions say.

    r.ts BETWEEN s.ts - INTERVAL 2 MINUTES AND s.ts + INTERVAL 3 MINUTES
    r.ts >= s.ts AND r.ts < s.ts + INTERVAL 3 MINUTES

Only what must hold is looked at, and only differences of two columns; anything else says nothing about a band.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.algebra.rules import highest
from anabranch.errors import SyntaxProblem
from anabranch.plan.keys import INNER, Input
from anabranch.sql.calls import aggregate_calls, conjuncts
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import take_duration
from anabranch.sql.lexer import Span, Token, tokenize
from anabranch.sql.syntax import Select

Column = tuple[str, ...]  # the parts of a name, in lower case
Place = tuple[int, str]  # an input, and a column of it
Found = tuple[Place, Place, int, int]
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class Apart:
    """`other` less `one` is at least `least`, or at most `most`."""

    one: Column
    other: Column
    least: int | None = None
    most: int | None = None


def find_band(select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str) -> Found | None:
    """The event times of the two sides of a join that are near each other, and how far the second is from the first.

    `times` has the event times of each input, none for one that never changes. Only a join that gives each pair as it
    is has a band: aggregates and window functions look at many pairs at once.
    """
    live = [index for index, each in enumerate(inputs) if not each.static]
    tokens = [token for item in select.items for token in item.tokens]
    apart = select.group or select.distinct or select.subqueries or any(token.upper == "OVER" for token in tokens)
    outer = any(each.relation.join not in INNER for each in inputs)
    if len(live) != 2 or apart or outer or any(aggregate_calls(tokens)):
        return None
    for one, other, least, most in find_bands(select, inputs, times, text):
        if least is not None and most is not None:
            return one, other, least, most
    return None


def find_bands(
    select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str
) -> list[tuple[Place, Place, int | None, int | None]]:
    """How far apart the event times of any two inputs of an inner join are; None: as far as they like to that side."""
    conditions: list[Sequence[Token]] = [select.where.tokens] if select.where is not None else []
    conditions += [each.relation.condition_tokens[1:] for each in inputs if each.relation.condition_tokens]
    bounds: dict[tuple[Place, Place], tuple[int | None, int | None]] = {}
    for each in differences(conditions, text):
        one, other = place_of(each.one, inputs), place_of(each.other, inputs)
        if one is None or other is None or one[0] >= other[0]:
            continue
        if one[1] in times[one[0]] and other[1] in times[other[0]]:
            least, most = bounds.get((one, other), (None, None))
            least = highest(least, each.least)
            most = each.most if most is None or (each.most is not None and each.most < most) else most
            bounds[one, other] = least, most
    return [(one, other, least, most) for (one, other), (least, most) in bounds.items()]


def place_of(name: Column, inputs: Sequence[Input]) -> Place | None:
    """The input that a column is of."""
    if len(name) == 1:
        owners = [index for index, each in enumerate(inputs) if name[0] in each.columns]
    else:
        owners = [index for index, each in enumerate(inputs) if each.exposed == name[0] and name[-1] in each.columns]
    return (owners[0], name[-1]) if len(owners) == 1 and len(name) <= 2 else None


def differences(conditions: Iterable[Sequence[Token]], text: str) -> Iterator[Apart]:
    """What the conditions of a join say about the distance between columns."""
    for tokens in conditions:
        for conjunct in conjuncts(tokens):
            words = [token.upper for token in conjunct]
            if "BETWEEN" in words and "AND" in words:
                middle, end = words.index("BETWEEN"), len(words) - 1 - words[::-1].index("AND")
                yield from _compared(conjunct[:middle], ">=", conjunct[middle + 1 : end], text)
                yield from _compared(conjunct[:middle], "<=", conjunct[end + 1 :], text)
                continue
            at = [index for index, token in enumerate(conjunct) if token.text in _FLIPPED]
            if len(at) == 1:
                yield from _compared(conjunct[: at[0]], conjunct[at[0]].text, conjunct[at[0] + 1 :], text)


def _compared(first: Sequence[Token], sign: str, second: Sequence[Token], text: str) -> Iterator[Apart]:
    one, other = _term(second, text), _term(first, text)
    if one is None or other is None:
        return
    # other + b  sign  one + a, so that other - one  sign  a - b; a strict sign says no less than a loose one
    apart = one[1] - other[1]
    if sign in (">", ">=", "="):
        yield Apart(one[0], other[0], least=apart)
        yield Apart(other[0], one[0], most=-apart)
    if sign in ("<", "<=", "="):
        yield Apart(one[0], other[0], most=apart)
        yield Apart(other[0], one[0], least=-apart)


def _term(tokens: Sequence[Token], text: str) -> tuple[Column, int] | None:
    """A column, and how much is added to it."""
    if not tokens or not tokens[0].is_name:
        return None
    own = Span(tokens[0].start, tokens[-1].end).of(text)
    cursor = Cursor(own, tokenize(own))
    name = tuple(part.lower() for part in cursor.dotted_name().parts)
    shift = 0
    try:
        if cursor.take("+"):
            shift = take_duration(cursor, "a length of time")
        elif cursor.take("-"):
            shift = -take_duration(cursor, "a length of time")
    except SyntaxProblem:
        return None
    return (name, shift) if cursor.at_end else None
