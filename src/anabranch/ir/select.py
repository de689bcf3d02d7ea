"""A SELECT block with typed expressions: its relations, predicates, keys and items.

Every expression is over the columns of FROM, with the calls of aggregates and window functions inline. Needs no
analysis by Spark: the keys of a block, or how far apart its times are, follow from columns alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from anabranch.ir.expr import Call, Column, Expr, SortKey
from anabranch.ir.rel import Generate, JoinKind, Project, Rel, Scan, Windowed
from anabranch.ir.text import Writer
from anabranch.sql.syntax import Emission
from anabranch.sql.text import Span, quote_name
from anabranch.types import SparkType

INNER: tuple[JoinKind, ...] = ("inner", "cross")


@dataclass(frozen=True)
class FromItem:
    """A relation of FROM, and its join with the ones before it."""

    rel: Rel
    label: str | None
    kind: JoinKind = "cross"
    on: Expr | None = None
    lateral: bool = False
    static: bool = False  # does not change with a stream

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.rel.columns

    @property
    def inner(self) -> bool:
        return self.kind in INNER

    @property
    def windowed(self) -> Windowed | None:
        """Its windows, if no projection renames their columns."""
        return self.rel if isinstance(self.rel, Windowed) else None

    @cached_property
    def window(self) -> Windowed | None:
        """Its windows, under any column names."""
        rel = self.rel
        while isinstance(rel, Project):
            rel = rel.input
        return rel if isinstance(rel, Windowed) else None

    @cached_property
    def scan(self) -> Scan | None:
        """Its scan, below windows and renamed columns; None for a query or values."""
        rel = self.rel
        while isinstance(rel, Project | Windowed):
            if isinstance(rel, Project) and any(expr.column is None for _, expr in rel.items):
                return None
            rel = rel.input
        return rel if isinstance(rel, Scan) else None

    def named(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def row_column(self, column: Column) -> Column | None:
        """The column of the scan, below windows and other names, that a column is; None if it is none."""
        rel = self.rel
        while not isinstance(rel, Scan):
            if isinstance(rel, Project):
                inner = next((expr.column for own, expr in rel.items if own == column), None)
                if inner is None:
                    return None
                column, rel = inner, rel.input
            elif isinstance(rel, Windowed) and column not in rel.bounds:
                rel = rel.input
            else:
                return None
        return column


@dataclass(frozen=True)
class ShownItem:
    """An entry of the SELECT list. `name` is its output name, if its text gives one."""

    expr: Expr
    name: str | None
    type: SparkType = ""  # empty until Spark has resolved it


@dataclass(frozen=True)
class SetBlock:
    """UNION, INTERSECT or EXCEPT of relations, from left to right."""

    columns: tuple[Column, ...]
    kind: Literal["union", "intersect", "except"]
    all: bool
    operands: tuple[Rel, ...]
    order: tuple[SortKey, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    emission: Emission | None = None

    @property
    def bare(self) -> bool:
        """Whether no ORDER BY, LIMIT or EMIT follows."""
        return not self.order and self.limit is None and self.offset is None and self.emission is None


@dataclass(frozen=True)
class SelectBlock:
    sources: tuple[FromItem, ...]
    items: tuple[ShownItem, ...]
    where: Expr | None = None
    keys: tuple[Expr, ...] | None = None  # None: nothing is grouped
    sets: tuple[tuple[int, ...], ...] = ()
    having: Expr | None = None
    qualify: Expr | None = None
    calls: tuple[Call, ...] = ()  # of aggregates
    over: tuple[Call, ...] = ()  # of window functions
    order: tuple[SortKey, ...] = ()
    limited: bool = False
    distinct: bool = False
    generates: bool = False  # LATERAL VIEW, or a generator in the SELECT list
    #: Columns computed by a join: those of FULL JOIN ... USING.
    merged: Mapping[Column, Expr] = field(default_factory=dict)
    limit: Expr | None = None
    offset: Expr | None = None
    generators: tuple[Generate, ...] = ()  # LATERAL VIEW, after all relations
    emission: Emission | None = None
    head: Span | None = None  # the hints between SELECT and its list

    @property
    def aggregated(self) -> bool:
        return self.keys is not None or bool(self.calls)

    @cached_property
    def owner(self) -> dict[Column, int]:
        """The index in FROM of the relation of each column."""
        return {column: index for index, each in enumerate(self.sources) for column in each.columns}

    @property
    def live(self) -> list[int]:
        """The indexes of the relations that change with a stream."""
        return [index for index, each in enumerate(self.sources) if not each.static]

    @property
    def has_subqueries(self) -> bool:
        """Whether one of its expressions has a subquery."""
        return any(True for expr in self.exprs() for _ in expr.subqueries())

    def exprs(self) -> Iterator[Expr]:
        yield from (item.expr for item in self.items)
        yield from self.keys or ()
        yield from (key.expr for key in self.order)
        yield from (each for each in (self.where, self.having, self.qualify) if each is not None)
        yield from (each.on for each in self.sources if each.on is not None)

    def map(self, change: Callable[[Expr], Expr]) -> SelectBlock:
        """The SELECT with `change` applied to each expression."""

        def optional(expr: Expr | None) -> Expr | None:
            return None if expr is None else change(expr)

        return replace(
            self,
            sources=tuple(replace(each, on=optional(each.on)) for each in self.sources),
            items=tuple(replace(each, expr=change(each.expr)) for each in self.items),
            where=optional(self.where),
            keys=None if self.keys is None else tuple(map(change, self.keys)),
            having=optional(self.having),
            qualify=optional(self.qualify),
            order=tuple(replace(each, expr=change(each.expr)) for each in self.order),
            calls=tuple(call.map(change) for call in self.calls),
            over=tuple(call.map(change) for call in self.over),
            merged={column: change(expr) for column, expr in self.merged.items()},
            generators=tuple(replace(each, call=change(each.call)) for each in self.generators),
        )

    def find(self, parts: Sequence[str]) -> Column | None:
        """The column that a name in this block resolves to; None if it is unknown or ambiguous."""
        qualifier = parts[0].lower() if len(parts) > 1 else None
        here = [each for each in self.sources if qualifier is None or (each.label or "").lower() == qualifier]
        found = [column for each in here if (column := each.named(parts[-1])) is not None]
        return found[0] if len(found) == 1 and len(parts) <= 2 else None

    def sql(self, expr: Expr) -> str:
        """The Spark SQL of an expression in this block."""
        writer = _BlockText(self)
        writer.expr(expr)
        return writer.written.text

    def qualified(self, column: Column) -> str:
        """The qualified name of a column in this block."""
        merged = self.merged.get(column)
        if merged is not None:
            return self.sql(merged)
        label = self.sources[self.owner[column]].label
        return f"{quote_name(label)}.{quote_name(column.name)}" if label else quote_name(column.name)


@dataclass(frozen=True)
class Derived(Rel):
    """A SELECT as a relation."""

    block: SelectBlock
    given: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.given

    def exprs(self) -> Iterator[Expr]:
        return self.block.exprs()


class _BlockText(Writer):
    def __init__(self, block: SelectBlock) -> None:
        super().__init__()
        self.block = block

    def column(self, column: Column) -> str:
        known = column in self.block.owner or column in self.block.merged
        return self.block.qualified(column) if known else quote_name(column.name)

    def subquery(self, subquery: object) -> None:
        raise AssertionError("a subquery has no text of its own here")
