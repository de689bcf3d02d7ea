"""Scalar expressions: the user's own text, cut at column references, aggregate and window calls, and subqueries.

The rest of an expression is opaque. So Spark sees every function, literal and operator as the user wrote it, and a
plan can still find the columns that an expression reads, and substitute them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from anabranch.sql.text import Span
from anabranch.types import SparkType

if TYPE_CHECKING:
    from anabranch.ir.rel import Rel


@dataclass(frozen=True)
class Column:
    """A column of one relation of one plan. The id is its identity: the two `k` of a self-join are two columns."""

    id: int
    name: str
    type: SparkType

    def __str__(self) -> str:
        return f"{self.name}#{self.id}"


@dataclass(frozen=True)
class SortKey:
    """One entry of ORDER BY. `order` is the text after the expression: ASC, DESC, NULLS FIRST."""

    expr: Expr
    order: str = ""


@dataclass(frozen=True)
class Over:
    """The window of a window function; `frame` is the text from ROWS or RANGE on."""

    partition: tuple[Expr, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: str = ""


@dataclass(frozen=True)
class Call:
    """A call of an aggregate or, with `over`, of a window function. `args` are empty for `count(*)`."""

    name: str  # in lower case
    args: tuple[Expr, ...] = ()
    distinct: bool = False
    order: tuple[SortKey, ...] = ()  # of WITHIN GROUP
    filter: Expr | None = None
    nulls: Literal["", "IGNORE", "RESPECT"] = ""
    over: Over | None = None
    type: SparkType = ""
    star: bool = False
    origin: Span | None = field(default=None, compare=False)

    @property
    def normal(self) -> Call:
        """Equal for calls that differ only in the case of words."""
        return replace(self.map(lambda inner: Expr(inner.normal)), type="")

    def exprs(self) -> Iterator[Expr]:
        """Every expression inside it."""
        yield from self.args
        yield from (key.expr for key in self.order)
        if self.filter is not None:
            yield self.filter
        if self.over is not None:
            yield from self.over.partition
            yield from (key.expr for key in self.over.order)

    def map(self, change: Callable[[Expr], Expr]) -> Call:
        """The call with `change` applied to each expression inside it."""

        def keys(order: tuple[SortKey, ...]) -> tuple[SortKey, ...]:
            return tuple(replace(key, expr=change(key.expr)) for key in order)

        over = self.over
        if over is not None:
            over = replace(over, partition=tuple(map(change, over.partition)), order=keys(over.order))
        return replace(
            self,
            args=tuple(map(change, self.args)),
            order=keys(self.order),
            filter=None if self.filter is None else change(self.filter),
            over=over,
        )


@dataclass(frozen=True)
class Subquery:
    """A query inside an expression. Its outer references are free columns of `rel`."""

    kind: Literal["exists", "in", "scalar"]
    rel: Rel
    origin: Span | None = field(default=None, compare=False)


#: A part of an expression; text is one token of the user's.
Part: TypeAlias = str | Column | Call | Subquery


@dataclass(frozen=True)
class Expr:
    """The parts of an expression, in order. The type is empty until Spark has analysed the block of the expression."""

    parts: tuple[Part, ...]
    type: SparkType = field(default="", compare=False)
    spans: tuple[Span | None, ...] = field(default=(), compare=False)  # the span of each part in the user's text

    @property
    def column(self) -> Column | None:
        """The column, if the expression is a plain column."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], Column) else None

    def typed(self, type: SparkType) -> Expr:
        return replace(self, type=type)

    @property
    def origin(self) -> Span | None:
        known = [span for span in self.spans if span is not None]
        return Span(known[0].start, known[-1].end) if known else None

    @property
    def normal(self) -> tuple[Part, ...]:
        """Equal for expressions that differ only in the case of words and in qualifiers."""
        return tuple(_normal(part) for part in self.parts)

    def columns(self) -> frozenset[Column]:
        """The columns that it reads, in calls too, and the outer references of its subqueries."""
        found: set[Column] = set()
        for part in self.parts:
            if isinstance(part, Column):
                found.add(part)
            elif isinstance(part, Call):
                for inner in part.exprs():
                    found |= inner.columns()
            elif isinstance(part, Subquery):
                found |= part.rel.free
        return frozenset(found)

    def calls(self) -> Iterator[Call]:
        """Its outermost calls of aggregates and window functions."""
        return (part for part in self.parts if isinstance(part, Call))

    def subqueries(self) -> Iterator[Subquery]:
        for part in self.parts:
            if isinstance(part, Subquery):
                yield part
            elif isinstance(part, Call):
                for inner in part.exprs():
                    yield from inner.subqueries()

    def map(self, change: Callable[[Part], Part | Expr]) -> Expr:
        """The expression with `change` applied to each part; a replacement of several parts is put in brackets."""
        parts: list[Part] = []
        spans: list[Span | None] = []
        for part, span in zip(self.parts, self.spans or (None,) * len(self.parts), strict=True):
            made = change(part)
            if isinstance(made, Expr):
                brackets = len(made.parts) > 1
                own = made.spans if span is None and made.spans else (span,) * len(made.parts)
                parts += ["(", *made.parts, ")"] if brackets else made.parts
                spans += [own[0], *own, own[-1]] if brackets else own
            else:
                parts.append(made)
                spans.append(span)
        return Expr(tuple(parts), self.type, tuple(spans))

    def substitute(self, by: Mapping[Column, Column | Expr]) -> Expr:
        """The expression with some of its columns replaced by other columns or expressions."""

        def change(part: Part) -> Part | Expr:
            if isinstance(part, Column):
                return by.get(part, part)
            if isinstance(part, Call):
                return part.map(lambda inner: inner.substitute(by))
            if isinstance(part, Subquery):
                return replace(part, rel=part.rel.substitute(by))
            return part

        return self.map(change)


def _normal(part: Part) -> Part:
    if isinstance(part, Call):
        return part.normal
    return part.lower() if isinstance(part, str) and part[:1] not in "'\"`rRxX" else part


def of_column(column: Column) -> Expr:
    return Expr((column,), column.type)
