"""What conditions say about the distance between columns that are times.

    r.ts BETWEEN s.ts - INTERVAL 2 MINUTES AND s.ts + INTERVAL 3 MINUTES
    r.ts - s.ts < INTERVAL 3 MINUTES
    abs(unix_micros(r.ts) - unix_micros(s.ts)) <= 5000000
    unix_timestamp(r.ts) - unix_timestamp(s.ts) BETWEEN 0 AND 60

A side of a comparison is read as a sum of columns and figures; one that is anything else says nothing. A function that
cuts fractions off is known up to what it cuts off, so that what is found always holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import TypeVar

from anabranch.errors import SyntaxProblem
from anabranch.sql.calls import closing, conjuncts, split_commas
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import HOUR, MILLISECOND, MINUTE, SECOND, take_duration
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, STRING, SYMBOL, Token

Column = tuple[str, ...]  # the parts of a name, in lower case
Node = TypeVar("Node")
_SIGNS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "=="}  # each and its mirror image
#: Functions of a time: how many microseconds make one of theirs.
_SINCE_EPOCH = {"unix_micros": 1, "unix_millis": MILLISECOND, "unix_seconds": SECOND, "unix_timestamp": SECOND}
_UNITS = {"MICROSECOND": 1, "MILLISECOND": MILLISECOND, "SECOND": SECOND, "MINUTE": MINUTE, "HOUR": HOUR}


@dataclass(frozen=True)
class Apart:
    """`other` less `one` is at least `least`, or at most `most`."""

    one: Column
    other: Column
    least: int | None = None
    most: int | None = None


def differences(conditions: Iterable[Sequence[Token]], text: str) -> Iterator[Apart]:
    """What the conditions of a join say about the distance between columns, in microseconds."""
    for tokens in conditions:
        for conjunct in conjuncts(tokens):
            outside = list(outside_brackets(conjunct))
            words = {conjunct[index].upper: index for index in outside}
            if "BETWEEN" in words and "AND" in words:
                middle, end = words["BETWEEN"], words["AND"]
                yield from _compared(conjunct[:middle], ">=", conjunct[middle + 1 : end], text)
                yield from _compared(conjunct[:middle], "<=", conjunct[end + 1 :], text)
                continue
            at = [index for index in outside if conjunct[index].text in _SIGNS]
            if len(at) == 1:
                yield from _compared(conjunct[: at[0]], conjunct[at[0]].text, conjunct[at[0] + 1 :], text)


def outside_brackets(tokens: Sequence[Token]) -> Iterator[int]:
    """The tokens that are in no bracket."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == SYMBOL:
            depth += (token.text in OPENING) - (token.text in CLOSING)
        if depth == 0:
            yield index


def _compared(first: Sequence[Token], sign: str, second: Sequence[Token], text: str) -> Iterator[Apart]:
    if _absolute(second):
        first, sign, second = second, _SIGNS[sign], first
    if _absolute(first):
        # |x| < y says x < y and -x < y; |x| > y is one of two things, and says nothing
        inside, other = sum_of(first[2:-1], text), sum_of(second, text)
        if inside is not None and other is not None and sign[0] in "<=":
            loose = "<=" if sign[0] == "=" else sign
            yield from _told(inside.plus(other, -1), loose)
            yield from _told(inside.times(-1).plus(other, -1), loose)
        return
    one, other = sum_of(first, text), sum_of(second, text)
    if one is not None and other is not None:
        yield from _told(one.plus(other, -1), sign)


def _absolute(tokens: Sequence[Token]) -> bool:
    return len(tokens) > 3 and tokens[0].upper == "ABS" and closing(tokens, 1) == len(tokens) - 1


def _told(found: _Sum | None, sign: str) -> Iterator[Apart]:
    """What `sum sign 0` says, where the sum is the difference of two columns and a figure."""
    columns = [] if found is None else [each for each in found.columns.items() if each[1]]
    if found is None or len(columns) != 2 or columns[0][1] != -columns[1][1]:
        return
    (other, factor), (one, _) = columns
    if factor < 0:
        one, other, factor = other, one, -factor
    # other - one + [low, high] sign 0, in whole microseconds
    low, high = found.low / factor, found.high / factor
    strict = len(sign) == 1 and sign != "="
    if sign[0] in ">=":
        least = floor(-high) + 1 if strict else ceil(-high)
        yield Apart(one, other, least=least)
        yield Apart(other, one, most=-least)
    if sign[0] in "<=":
        most = ceil(-low) - 1 if strict else floor(-low)
        yield Apart(one, other, most=most)
        yield Apart(other, one, least=-most)


# ---- sums


@dataclass(frozen=True)
class _Sum:
    """Columns, each with a factor, and a figure between `low` and `high`.

    `kind`: a moment, a length of time (both in microseconds), or a number. Of other columns than times nothing is
    known, so they are taken for moments too: whoever asks looks at times alone.
    """

    kind: str
    columns: Mapping[Column, Fraction] = field(default_factory=dict)
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)

    def times(self, factor: Fraction | int) -> _Sum:
        columns = {name: each * factor for name, each in self.columns.items()}
        low, high = sorted((self.low * factor, self.high * factor))
        return _Sum(self.kind, columns, low, high)

    def plus(self, other: _Sum | None, sign: int = 1) -> _Sum | None:
        kind = None if other is None else _added(self.kind, other.kind, sign)
        if other is None or kind is None:
            return None
        more = other.times(sign)
        columns = dict(self.columns)
        for name, factor in more.columns.items():
            columns[name] = columns.get(name, Fraction(0)) + factor
        return _Sum(kind, columns, self.low + more.low, self.high + more.high)

    def cut(self, unit: int) -> _Sum:
        """Whole units of a time since the epoch: what is less than one of them is cut off."""
        whole = self.times(Fraction(1, unit))
        return _Sum("number", whole.columns, whole.low - Fraction(unit - 1, unit), whole.high)


def _added(one: str, other: str, sign: int) -> str | None:
    if sign < 0 and one == other:
        return "length" if one == "moment" else one
    if {one, other} == {"moment", "length"} and (sign > 0 or one == "moment"):
        return "moment"
    return one if one == other != "moment" else None


def _figure(kind: str, value: Fraction | int) -> _Sum:
    return _Sum(kind, {}, Fraction(value), Fraction(value))


def sum_of(tokens: Sequence[Token], text: str) -> _Sum | None:
    """An expression as a sum; None if it is something else."""
    if not tokens:
        return None
    stop = tokens[-1].end
    cursor = Cursor(text, [*tokens, Token(END, "", stop, stop)])
    try:
        found = _sum(cursor)
    except SyntaxProblem:
        return None
    return found if cursor.at_end else None


def _sum(cursor: Cursor) -> _Sum | None:
    found = _product(cursor)
    while found is not None and (cursor.at("+") or cursor.at("-")):
        sign = 1 if cursor.advance().text == "+" else -1
        found = found.plus(_product(cursor), sign)
    return found


def _product(cursor: Cursor) -> _Sum | None:
    found = _factor(cursor)
    while found is not None and (cursor.at("*") or cursor.at("/")):
        divides = cursor.advance().text == "/"
        other = _factor(cursor)
        if other is not None and found.kind == "number" and not found.columns and not divides:
            found, other = other, found
        if other is None or other.kind != "number" or other.columns or found.kind == "moment":
            return None
        if divides and other.low == 0:
            return None
        found = found.times(1 / other.low if divides else other.low)
    return found


def _factor(cursor: Cursor) -> _Sum | None:
    token = cursor.current
    if cursor.take("-"):
        below = _factor(cursor)
        return None if below is None or below.kind == "moment" else below.times(-1)
    if cursor.take("("):
        with cursor.deeper():
            found = _sum(cursor)
        return found if cursor.take(")") else None
    counted = token.kind == NUMBER and not cursor.ahead(1).is_name
    if counted:
        cursor.advance()
        try:
            return _figure("number", Fraction(token.text))
        except ValueError:
            return None
    if token.upper == "INTERVAL" or token.kind in (STRING, NUMBER):
        return _figure("length", take_duration(cursor, "a length of time"))
    if not token.is_name:
        return None
    if cursor.ahead(1).text == "(":
        return _call(cursor)
    return _Sum("moment", {tuple(part.lower() for part in cursor.dotted_name().parts): Fraction(1)})


def _call(cursor: Cursor) -> _Sum | None:
    name = cursor.advance().text.lower()
    first = cursor.index
    cursor.advance()
    cursor.close_bracket()
    inside = cursor.tokens[first + 1 : cursor.index - 1]
    arguments = [sum_of(each, cursor.text) for each in split_commas(inside)]
    if name == "cast":
        at = [index for index in outside_brackets(inside) if inside[index].upper == "AS"]
        of, to = (sum_of(inside[: at[-1]], cursor.text), inside[at[-1] + 1 :]) if at else (None, [])
        if of is None or of.kind != "moment" or len(to) != 1:
            return None
        if to[0].upper in ("BIGINT", "LONG"):
            return of.cut(SECOND)
        if to[0].upper == "DOUBLE":
            whole = of.times(Fraction(1, SECOND))
            return _Sum("number", whole.columns, whole.low, whole.high)
        return of if to[0].upper in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ") else None
    if name in _SINCE_EPOCH:
        (of,) = arguments if len(arguments) == 1 else (None,)
        return of.cut(_SINCE_EPOCH[name]) if of is not None and of.kind == "moment" else None
    if name in ("timestampdiff", "timediff") and len(arguments) == 3:
        unit = _UNITS.get(inside[0].upper)
        start, stop = arguments[1:]
        apart = stop.plus(start, -1) if stop is not None else None
        if unit is None or apart is None or apart.kind != "length":
            return None
        most = Fraction(unit - 1, unit)  # cut towards nothing, from either side
        whole = apart.times(Fraction(1, unit))
        return _Sum("number", whole.columns, whole.low - most, whole.high + most)
    return None


# ---- what follows


def follow(known: Mapping[tuple[Node, Node], int]) -> dict[tuple[Node, Node], int]:
    """How much the second of two nodes is at most above the first, by all that is known of others between them.

    >>> follow({("a", "b"): 2, ("b", "c"): 3})["a", "c"]
    5
    """
    nodes = list(dict.fromkeys(node for pair in known for node in pair))
    found = dict(known)
    for middle, one, other in product(nodes, nodes, nodes):
        first, second = found.get((one, middle)), found.get((middle, other))
        if one != other and first is not None and second is not None:
            found[one, other] = min(found.get((one, other), first + second), first + second)
    return found
