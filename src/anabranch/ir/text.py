"""Expressions as text with the origin of each character, so that an error can point into the user's SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import attrgetter

from anabranch.ir.expr import Call, Column, Expr, Part, SortKey, Subquery
from anabranch.sql.own_aggregates import OWN_AGGREGATES, OwnAggregate
from anabranch.sql.own_calls import pieces
from anabranch.sql.splice import Spliced
from anabranch.sql.text import Span

_TIGHT_BEFORE, _TIGHT_AFTER = frozenset(")],."), frozenset("([.")
_JOINING = ("AND", "OR", "WHEN", "THEN", "ELSE")
Names = Callable[[Column], str]


class Writer(ABC):
    """Writes text piece by piece. A subclass writes columns and subqueries."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._origins: list[tuple[int, int, int, int]] = []
        self._length = 0
        self._last = ""
        self._joins = False  # whether the last token is AND, OR or the like

    @abstractmethod
    def column(self, column: Column) -> str:
        """The text of a column."""

    @abstractmethod
    def subquery(self, subquery: Subquery) -> None:
        """Write a subquery without its brackets."""

    @property
    def written(self) -> Spliced:
        return Spliced("".join(self._pieces), tuple(self._origins))

    def put(self, text: str, origin: Span | None = None) -> None:
        """Write text unchanged."""
        if not text:
            return
        if origin is not None:
            self._origins.append((self._length, self._length + len(text), origin.start, origin.end))
        self._pieces.append(text)
        self._length += len(text)
        self._last = text[-1]

    def token(self, text: str, origin: Span | None = None) -> None:
        """Write a token, after a blank where a reader expects one."""
        tight = text[0] in _TIGHT_BEFORE or self._last in _TIGHT_AFTER or not self._last or self._last == " "
        called = text[0] in "([" and (self._last.isalnum() or self._last == "_") and not self._joins
        if not tight and not called:
            self.put(" ")
        self.put(text, origin)
        self._joins = text.upper() in _JOINING

    def expr(self, expr: Expr) -> None:
        spans: Sequence[Span | None] = expr.spans or (None,) * len(expr.parts)
        for part, span in zip(expr.parts, spans, strict=True):
            self._part(part, span)

    def _part(self, part: Part, span: Span | None) -> None:
        if isinstance(part, Column):
            self.token(self.column(part), span)
        elif isinstance(part, Call):
            self.call(part)
        elif isinstance(part, Subquery):
            self.token("(", span)
            self.subquery(part)
            self.put(")", span)
        else:
            self.token(part, span)

    def exprs(self, exprs: Sequence[Expr]) -> None:
        for index, each in enumerate(exprs):
            self.put(", " if index else "")
            self.expr(each)

    def sort_keys(self, keys: Sequence[SortKey]) -> None:
        for index, key in enumerate(keys):
            self.put(", " if index else "")
            self.expr(key.expr)
            self.put(f" {key.order}" if key.order else "")

    def call(self, call: Call) -> None:
        own = OWN_AGGREGATES.get(call.name)
        if own is not None:
            self._own_call(call, own)
            return
        self.token(call.name, call.origin)
        self.put("(DISTINCT " if call.distinct else "(")
        if call.star:
            self.put("*", call.origin)
        self.exprs(call.args)
        self.put(")", call.origin)
        if call.order:
            self.put(" WITHIN GROUP (ORDER BY ")
            self.sort_keys(call.order)
            self.put(")")
        self._behind(call)

    def _own_call(self, call: Call, own: OwnAggregate) -> None:
        """Write a call of an aggregate that Spark does not have, as the expression that defines it."""
        first, *others = pieces(own)
        self.token(str(first), call.origin)
        for each in others:
            if each is None:
                self._behind(call)
            elif isinstance(each, int):
                self.put("(")
                self.expr(call.args[each])
                self.put(")")
            else:
                self.put(each, call.origin)

    def _behind(self, call: Call) -> None:
        """Write the clauses after the brackets of a call."""
        if call.filter is not None:
            self.put(" FILTER (WHERE ")
            self.expr(call.filter)
            self.put(")")
        self.put(f" {call.nulls} NULLS" if call.nulls else "")
        if call.over is not None:
            self.put(" OVER (")
            self.put("PARTITION BY " if call.over.partition else "")
            self.exprs(call.over.partition)
            if call.over.order:
                self.put(" ORDER BY " if call.over.partition else "ORDER BY ")
                self.sort_keys(call.over.order)
            self.put(f" {call.over.frame}" if call.over.frame else "")
            self.put(")", call.origin)


class Shown(Writer):
    """Expressions for users: columns by name, subqueries by number."""

    def __init__(self, column: Names = str) -> None:
        super().__init__()
        self._column = column
        self.subqueries: list[Subquery] = []

    def column(self, column: Column) -> str:
        return self._column(column)

    def subquery(self, subquery: Subquery) -> None:
        self.subqueries.append(subquery)
        self.put(f"{subquery.kind} {len(self.subqueries)}")


def shown_call(call: Call, column: Names = attrgetter("name")) -> str:
    """A call for users, with columns by their names alone."""
    writer = Shown(column)
    writer.call(call)
    return writer.written.text
