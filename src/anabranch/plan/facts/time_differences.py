"""The bounds that conditions set to the distance between time columns.

    r.ts BETWEEN s.ts - INTERVAL 2 MINUTES AND s.ts + INTERVAL 3 MINUTES
    r.ts - s.ts < INTERVAL 3 MINUTES
    abs(unix_micros(r.ts) - unix_micros(s.ts)) <= 5000000
    unix_timestamp(r.ts) - unix_timestamp(s.ts) BETWEEN 0 AND 60

An operand of a comparison is read as a sum of columns and constants; any other operand sets no bound. A function that
truncates is known up to the truncated fraction, so that the bounds always hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import TypeVar

from anabranch.errors import SyntaxProblem
from anabranch.ir.expr import Column, Expr
from anabranch.ir.logic import called, compared, conjuncts
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import HOUR, MILLISECOND, MINUTE, SECOND, take_duration
from anabranch.sql.lexer import NUMBER, STRING, tokenize
from anabranch.sql.text import quote_name

Node = TypeVar("Node")
_SIGNS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "=="}  # each with its operands swapped
#: Functions of a time, with their unit in microseconds.
_SINCE_EPOCH = {"UNIX_MICROS": 1, "UNIX_MILLIS": MILLISECOND, "UNIX_SECONDS": SECOND, "UNIX_TIMESTAMP": SECOND}
_UNITS = {"MICROSECOND": 1, "MILLISECOND": MILLISECOND, "SECOND": SECOND, "MINUTE": MINUTE, "HOUR": HOUR}


@dataclass(frozen=True)
class TimeDifference:
    """`other` minus `one` is at least `least`, or at most `most`."""

    one: Column
    other: Column
    least: int | None = None
    most: int | None = None


def differences(condition: Expr) -> Iterator[TimeDifference]:
    """The bounds that a condition sets to the distance between columns, in microseconds."""
    for each in conjuncts(condition):
        for one, sign, other in compared(each):
            if sign in _SIGNS:
                yield from _compared(one, sign, other)


def _compared(first: Expr, sign: str, second: Expr) -> Iterator[TimeDifference]:
    if _absolute(second) is not None:
        first, sign, second = second, _SIGNS[sign], first
    inner = _absolute(first)
    if inner is not None:
        # |x| < y means x < y and -x < y; |x| > y is a disjunction, and sets no bound
        inside, other = sum_of(inner), sum_of(second)
        if inside is not None and other is not None and sign[0] in "<=":
            loose = "<=" if sign[0] == "=" else sign
            yield from _difference(inside.plus(other, -1), loose)
            yield from _difference(inside.times(-1).plus(other, -1), loose)
        return
    one, other = sum_of(first), sum_of(second)
    if one is not None and other is not None:
        yield from _difference(one.plus(other, -1), sign)


def _absolute(expr: Expr) -> Expr | None:
    call = called(expr)
    return call[1][0] if call is not None and call[0] == "ABS" and len(call[1]) == 1 else None


def _difference(found: Sum | None, sign: str) -> Iterator[TimeDifference]:
    """The bounds of `sum sign 0`, where the sum is the difference of two columns and a constant."""
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
        yield TimeDifference(one, other, least=least)
        yield TimeDifference(other, one, most=-least)
    if sign[0] in "<=":
        most = ceil(-low) - 1 if strict else floor(-low)
        yield TimeDifference(one, other, most=most)
        yield TimeDifference(other, one, least=-most)


# ---- sums


@dataclass(frozen=True)
class Sum:
    """Columns, each with a factor, and a constant between `low` and `high`.

    `kind`: a moment, a duration (both in microseconds), or a number. Columns of unknown kind are taken for moments:
    callers use only time columns.
    """

    kind: str
    columns: Mapping[Column, Fraction] = field(default_factory=dict)
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)

    def times(self, factor: Fraction | int) -> Sum:
        columns = {name: each * factor for name, each in self.columns.items()}
        low, high = sorted((self.low * factor, self.high * factor))
        return Sum(self.kind, columns, low, high)

    def plus(self, other: Sum | None, sign: int = 1) -> Sum | None:
        kind = None if other is None else _added(self.kind, other.kind, sign)
        if other is None or kind is None:
            return None
        more = other.times(sign)
        columns = dict(self.columns)
        for name, factor in more.columns.items():
            columns[name] = columns.get(name, Fraction(0)) + factor
        return Sum(kind, columns, self.low + more.low, self.high + more.high)

    def cut(self, unit: int) -> Sum:
        """A time since the epoch truncated to whole units."""
        whole = self.times(Fraction(1, unit))
        return Sum("number", whole.columns, whole.low - Fraction(unit - 1, unit), whole.high)


def _added(one: str, other: str, sign: int) -> str | None:
    if sign < 0 and one == other:
        return "length" if one == "moment" else one
    if {one, other} == {"moment", "length"} and (sign > 0 or one == "moment"):
        return "moment"
    return one if one == other != "moment" else None


def _constant(kind: str, value: Fraction | int) -> Sum:
    return Sum(kind, {}, Fraction(value), Fraction(value))


def sum_of(expr: Expr) -> Sum | None:
    """An expression as a sum; None if it is something else."""
    if not expr.parts or not all(isinstance(part, str | Column) for part in expr.parts):
        return None
    reader = _SumReader(expr)
    try:
        found = reader.sum()
    except SyntaxProblem:
        return None
    return found if reader.cursor.at_end else None


class _SumReader:
    """Parses an expression in which each column has a unique name."""

    def __init__(self, expr: Expr) -> None:
        self.columns = {f"#{part.id}": part for part in expr.parts if isinstance(part, Column)}
        text = " ".join(part if isinstance(part, str) else quote_name(f"#{part.id}") for part in expr.parts
                        if isinstance(part, str | Column))  # fmt: skip
        self.cursor = Cursor(text, tokenize(text))

    def sum(self) -> Sum | None:
        found = self._product()
        while found is not None and (self.cursor.at("+") or self.cursor.at("-")):
            sign = 1 if self.cursor.advance().text == "+" else -1
            found = found.plus(self._product(), sign)
        return found

    def _product(self) -> Sum | None:
        found = self._factor()
        while found is not None and (self.cursor.at("*") or self.cursor.at("/")):
            divides = self.cursor.advance().text == "/"
            other = self._factor()
            if other is not None and found.kind == "number" and not found.columns and not divides:
                found, other = other, found
            if other is None or other.kind != "number" or other.columns or found.kind == "moment":
                return None
            if divides and other.low == 0:
                return None
            found = found.times(1 / other.low if divides else other.low)
        return found

    def _factor(self) -> Sum | None:
        cursor, token = self.cursor, self.cursor.current
        if cursor.take("-"):
            below = self._factor()
            return None if below is None or below.kind == "moment" else below.times(-1)
        if cursor.take("("):
            with cursor.deeper():
                found = self.sum()
            return found if cursor.take(")") else None
        if token.kind == NUMBER and not cursor.ahead(1).is_name:
            cursor.advance()
            try:
                return _constant("number", Fraction(token.text))
            except ValueError:
                return None
        if token.upper == "INTERVAL" or token.kind in (STRING, NUMBER):
            return _constant("length", take_duration(cursor, "a length of time"))
        if not token.is_name:
            return None
        if cursor.ahead(1).text == "(":
            return self._call()
        column = self.columns.get(token.name)
        cursor.advance()
        return None if column is None or cursor.at(".") else Sum("moment", {column: Fraction(1)})

    def _call(self) -> Sum | None:
        cursor = self.cursor
        name = cursor.advance().upper
        cursor.advance()
        if name in ("TIMESTAMPDIFF", "TIMEDIFF"):
            return self._apart()
        of = self.sum()
        if of is None or of.kind != "moment":
            return None
        if name == "CAST" and cursor.take("AS"):
            return self._cast(of, cursor.advance().upper) if cursor.ahead(1).text == ")" else None
        return of.cut(_SINCE_EPOCH[name]) if name in _SINCE_EPOCH and cursor.take(")") else None

    def _cast(self, of: Sum, type: str) -> Sum | None:
        self.cursor.advance()  # the closing bracket
        if type in ("BIGINT", "LONG"):
            return of.cut(SECOND)
        if type == "DOUBLE":
            whole = of.times(Fraction(1, SECOND))
            return Sum("number", whole.columns, whole.low, whole.high)
        return of if type in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ") else None

    def _apart(self) -> Sum | None:
        """timestampdiff(UNIT, start, stop)"""
        cursor = self.cursor
        unit = _UNITS.get(cursor.advance().upper)
        start = self.sum() if cursor.take(",") else None
        stop = self.sum() if cursor.take(",") else None
        apart = stop.plus(start, -1) if stop is not None and cursor.take(")") else None
        if unit is None or apart is None or apart.kind != "length":
            return None
        most = Fraction(unit - 1, unit)  # truncated towards zero, from either side
        whole = apart.times(Fraction(1, unit))
        return Sum("number", whole.columns, whole.low - most, whole.high + most)


# ---- what follows


def follow(known: Mapping[tuple[Node, Node], int]) -> dict[tuple[Node, Node], int]:
    """The transitive closure: how much the second of two nodes can be above the first, through others.

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
