"""Relations: typed nodes of a plan. A node is an immutable value, and plans share common nodes.

Each node knows its columns. Its constructor refuses what does not fit together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from anabranch.ir.expr import Call, Column, Expr, SortKey, Subquery
from anabranch.sql.syntax import Emission, WindowSpec
from anabranch.sql.text import Span
from anabranch.types import Field, Schema

Computed: TypeAlias = tuple[Column, Expr]
JoinKind = Literal["inner", "cross", "left", "right", "full", "semi", "anti"]


class MalformedPlan(Exception):
    """Nodes that do not fit together: a bug in the planner, never the user's fault."""


@dataclass(frozen=True)
class Written:
    """The spans of a relation in a text: all of it, and the input of a window function around it. For windows in GROUP
    BY, both are the span of the call."""

    text: str
    whole: Span
    inner: Span


@dataclass(frozen=True)
class Rel(ABC):
    """A relation. In FROM, `label` is its name in the query and `written` its spans in the user's text."""

    label: str | None = field(default=None, compare=False, kw_only=True)
    written: Written | None = field(default=None, compare=False, kw_only=True)
    refreshable: bool = field(default=False, compare=False, kw_only=True)  # JOIN t REFRESHABLE

    @property
    def inputs(self) -> tuple[Rel, ...]:
        return tuple(value for each in fields(self) if isinstance(value := getattr(self, each.name), Rel))

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The output columns, in order."""

    def exprs(self) -> Iterator[Expr]:
        """The expressions of this node, not of its inputs."""
        return iter(())

    def __post_init__(self) -> None:
        ids = [column.id for column in self.columns]
        if len(set(ids)) < len(ids):
            raise MalformedPlan(f"{type(self).__name__} has a column twice: {', '.join(map(str, self.columns))}")

    @property
    def schema(self) -> Schema:
        return tuple(Field(column.name, column.type) for column in self.columns)

    @cached_property
    def free(self) -> frozenset[Column]:
        """Its outer references: the columns that it reads and no input produces."""
        given = {column for each in self.inputs for column in each.columns}
        read = {column for expr in self.exprs() for column in expr.columns()}
        below = {column for each in self.inputs for column in each.free}
        return frozenset((read - given) | self._uncovered(below))

    def _uncovered(self, below: set[Column]) -> set[Column]:
        """The outer references of the inputs that this node does not resolve."""
        return below

    def walk(self) -> Iterator[Rel]:
        """This node and all nodes below it, in subqueries of expressions too; parents first."""
        yield self
        for expr in self.exprs():
            for inner in expr.subqueries():
                yield from inner.rel.walk()
        for each in self.inputs:
            yield from each.walk()

    def rebuilt(self, change: Callable[[Rel], Rel]) -> Rel:
        """The node with `change` applied to its inputs and subqueries; itself if nothing changes."""
        made = {each.name: _rebuilt(getattr(self, each.name), change) for each in fields(self)}
        changes: dict[str, Any] = {name: new for name, new in made.items() if new is not getattr(self, name)}
        return replace(self, **changes) if changes else self

    def map_exprs(self, by: Mapping[Column, Column | Expr]) -> Rel:
        """The node with columns of its expressions substituted."""
        changes: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            made = _substituted(value, by)
            if made is not value:
                changes[each.name] = made
        return replace(self, **changes) if changes else self

    def substitute(self, by: Mapping[Column, Column | Expr]) -> Rel:
        """The plan with its outer references substituted."""
        if not self.free & by.keys():
            return self
        inner: dict[str, Any] = {
            each.name: value.substitute(by)
            for each in fields(self)
            if isinstance(value := getattr(self, each.name), Rel)
        }
        return replace(self, **inner).map_exprs(by) if inner else self.map_exprs(by)


def is_live(rel: Rel) -> bool:
    """Whether a relation changes with a stream."""
    return any(isinstance(each, Scan) and each.source.kind in ("stream", "view") for each in rel.walk())


def _rebuilt(value: Any, change: Callable[[Rel], Rel]) -> Any:
    """A field of a node with its relations changed; the same object if none changes."""
    if isinstance(value, Rel):
        return change(value)
    if isinstance(value, Subquery):
        made = change(value.rel)
        return value if made is value.rel else replace(value, rel=made)
    if isinstance(value, Expr):
        parts = _rebuilt(value.parts, change)
        return value if parts is value.parts else replace(value, parts=parts)
    if isinstance(value, Call):
        exprs = tuple(value.exprs())
        again = {id(old): new for old, new in zip(exprs, _rebuilt(exprs, change), strict=True)}
        changed = any(again[id(each)] is not each for each in exprs)
        return value.map(lambda inner: again[id(inner)]) if changed else value
    if isinstance(value, SortKey):
        expr = _rebuilt(value.expr, change)
        return value if expr is value.expr else replace(value, expr=expr)
    if isinstance(value, tuple):
        each = tuple(_rebuilt(one, change) for one in value)
        return each if any(a is not b for a, b in zip(each, value, strict=True)) else value
    return value


def _substituted(value: Any, by: Mapping[Column, Column | Expr]) -> Any:
    if isinstance(value, Expr):
        return value.substitute(by) if value.columns() & by.keys() else value
    if isinstance(value, Call):
        return value.map(lambda inner: inner.substitute(by))
    if isinstance(value, SortKey):
        return replace(value, expr=value.expr.substitute(by))
    if isinstance(value, tuple):
        made = tuple(_substituted(each, by) for each in value)
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    return value


# ---------------------------------------------------------------------------------------------------- leaves


@dataclass(frozen=True)
class Source:
    """What a scan reads: a stream, table or view of the home, files, or a system table."""

    kind: Literal["stream", "table", "view", "file", "outside", "system", "partials"]
    target: str  # its id, path or name
    name: str  # as users know it
    version: int | None = None
    provisional: bool = False
    key: str = ""  # distinguishes reads of one file with different options
    looked_up: bool = False  # an external table, looked up by key


@dataclass(frozen=True)
class Scan(Rel):
    source: Source
    given: tuple[Column, ...]
    times: tuple[str, ...] = ()  # the names of its event times

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.given


@dataclass(frozen=True)
class Values(Rel):
    """VALUES, each row an expression: `(1, 'a')` or `1`."""

    rows: tuple[Expr, ...]
    given: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.given

    def exprs(self) -> Iterator[Expr]:
        return iter(self.rows)


@dataclass(frozen=True)
class OneRow(Rel):
    """What SELECT without FROM reads: one row without columns."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return ()


@dataclass(frozen=True)
class TableFunction(Rel):
    """A table function of Spark's: `range(10)`, `explode(b.items)`."""

    call: Expr
    given: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.given

    def exprs(self) -> Iterator[Expr]:
        yield self.call


# -------------------------------------------------------------------------------------------------- one input


@dataclass(frozen=True)
class Filter(Rel):
    input: Rel
    condition: Expr

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    def exprs(self) -> Iterator[Expr]:
        yield self.condition


@dataclass(frozen=True)
class Project(Rel):
    input: Rel
    items: tuple[Computed, ...]
    head: Span | None = field(default=None, compare=False, kw_only=True)  # between SELECT and its list: hints

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self.items)

    def exprs(self) -> Iterator[Expr]:
        return (expr for _, expr in self.items)


@dataclass(frozen=True)
class Windowed(Rel):
    """A row for each window that a row is in. Windows are ranges of `along`, partitioned by `apart`; they also depend
    on the columns `besides`."""

    input: Rel
    window: WindowSpec
    along: Column | None
    apart: tuple[Column, ...]
    bounds: tuple[Column, ...]  # window_start, window_end, window_time and, if a query uses it, window_id
    kept: tuple[Column, ...]  # of the input: those that no bound hides
    besides: tuple[Column, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.kept, *self.bounds)


@dataclass(frozen=True)
class Sampled(Rel):
    """A sample of a relation, drawn by Spark; `text` is the size of the sample."""

    input: Rel
    text: str

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True)
class Generate(Rel):
    """LATERAL VIEW: each row joined with the rows that a generator makes from it."""

    input: Rel
    call: Expr
    outer: bool
    made: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.input.columns, *self.made)

    def exprs(self) -> Iterator[Expr]:
        yield self.call


@dataclass(frozen=True)
class Aggregate(Rel):
    """Groups by `keys`, with `calls` computed for each group. `sets` are the grouping sets, as positions of keys;
    empty: all keys at once."""

    input: Rel
    keys: tuple[Computed, ...]
    calls: tuple[tuple[Column, Call], ...]
    sets: tuple[tuple[int, ...], ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*(column for column, _ in self.keys), *(column for column, _ in self.calls))

    def exprs(self) -> Iterator[Expr]:
        yield from (expr for _, expr in self.keys)
        for _, call in self.calls:
            yield from call.exprs()


@dataclass(frozen=True)
class OverRows(Rel):
    """Each row with the values of window functions."""

    input: Rel
    calls: tuple[tuple[Column, Call], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.input.columns, *(column for column, _ in self.calls))

    def exprs(self) -> Iterator[Expr]:
        for _, call in self.calls:
            yield from call.exprs()


@dataclass(frozen=True)
class Distinct(Rel):
    input: Rel

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True)
class TopN(Rel):
    """ORDER BY, LIMIT or both."""

    input: Rel
    order: tuple[SortKey, ...]
    limit: Expr | None = None
    offset: Expr | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns

    def exprs(self) -> Iterator[Expr]:
        yield from (key.expr for key in self.order)
        yield from (each for each in (self.limit, self.offset) if each is not None)


@dataclass(frozen=True)
class Emit(Rel):
    """When the answer is emitted."""

    input: Rel
    emission: Emission

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


# ------------------------------------------------------------------------------------------------- two and more


@dataclass(frozen=True)
class Join(Rel):
    """`lateral`: the right input reads columns of the left one."""

    left: Rel
    right: Rel
    kind: JoinKind
    on: Expr | None = None
    lateral: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns if self.kind in ("semi", "anti") else (*self.left.columns, *self.right.columns)

    def exprs(self) -> Iterator[Expr]:
        if self.on is not None:
            yield self.on

    def _uncovered(self, below: set[Column]) -> set[Column]:
        return below - set(self.left.columns) if self.lateral else below


@dataclass(frozen=True)
class SetOp(Rel):
    kind: Literal["union", "intersect", "except"]
    all: bool
    left: Rel
    right: Rel
    given: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not len(self.left.columns) == len(self.right.columns) == len(self.given):
            raise MalformedPlan(f"{self.kind} of {len(self.left.columns)} and {len(self.right.columns)} columns")
        super().__post_init__()

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.given
