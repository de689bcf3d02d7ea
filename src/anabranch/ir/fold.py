"""Relations folded into as few SELECT blocks as possible: the form in which queries are planned and written.

A fold is shallow: an input that does not fit into the block stays a relation of FROM. A caller can fold that in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum

from anabranch.ir.expr import Call, Column, Expr, SortKey, of_column
from anabranch.ir.logic import conjunction
from anabranch.ir.rel import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Generate,
    Join,
    OneRow,
    OverRows,
    Project,
    Rel,
    SetOp,
    TopN,
    is_live,
)
from anabranch.ir.select import Derived, FromItem, SelectBlock, SetBlock, ShownItem
from anabranch.sql.syntax import Emission
from anabranch.sql.text import Span


def fold(rel: Rel) -> SelectBlock | SetBlock:
    """A relation as one SELECT, or as a set operation of relations."""
    if isinstance(rel, Derived):
        return rel.block
    return _finished(rel, _fold(rel))


class _Stage(IntEnum):
    """The last clause that a block has, in the order of a SELECT."""

    FROM = 0
    WHERE = 1
    GROUP = 2
    HAVING = 3
    OVER = 4
    QUALIFY = 5
    ITEMS = 6
    DISTINCT = 7
    ORDER = 8
    EMIT = 9


@dataclass
class _Folding:
    """A SELECT under construction."""

    columns: tuple[Column, ...]
    sources: list[FromItem] = field(default_factory=list)
    generators: list[Generate] = field(default_factory=list)
    where: list[Expr] = field(default_factory=list)
    keys: list[Expr] | None = None
    sets: tuple[tuple[int, ...], ...] = ()
    having: list[Expr] = field(default_factory=list)
    qualify: list[Expr] = field(default_factory=list)
    made: dict[Column, Expr] = field(default_factory=dict)  # columns that do not come from FROM
    merged: dict[Column, Expr] = field(default_factory=dict)  # those computed by a join
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    emission: Emission | None = None
    head: Span | None = None
    stage: _Stage = _Stage.FROM

    def expr(self, expr: Expr) -> Expr:
        """An expression over the columns of FROM."""
        whole = self.made.get(expr.column) if expr.column is not None else None
        return whole if whole is not None else expr.substitute(self.made)

    def at(self, stage: _Stage, rel: Rel) -> _Folding:
        self.stage, self.columns = stage, rel.columns
        return self


def _fold(rel: Rel) -> _Folding | SetBlock:
    if isinstance(rel, SetOp):
        left = _fold(rel.left)
        same = isinstance(left, SetBlock) and left.bare and (left.kind, left.all) == (rel.kind, rel.all)
        operands = (*left.operands, rel.right) if isinstance(left, SetBlock) and same else (rel.left, rel.right)
        return SetBlock(rel.columns, rel.kind, rel.all, operands)
    if isinstance(rel, Emit):
        below = _fold(rel.input)
        if below.emission is not None:
            below = _reading(rel.input)
        if isinstance(below, SetBlock):
            return replace(below, emission=rel.emission)
        below.emission = rel.emission
        return below.at(_Stage.EMIT, rel)
    if isinstance(rel, OneRow):
        return _Folding(())
    if isinstance(rel, Filter):
        return _filter(rel)
    if isinstance(rel, Project):
        return _project(rel)
    if isinstance(rel, Aggregate):
        return _aggregate(rel)
    if isinstance(rel, OverRows):
        block = _open(rel.input, _Stage.HAVING)
        block.made |= {column: Expr((call.map(block.expr),), call.type) for column, call in rel.calls}
        return block.at(_Stage.OVER, rel)
    if isinstance(rel, Generate):
        block = _open(rel.input, _Stage.FROM)
        block.generators.append(rel)
        return block.at(_Stage.FROM, rel)
    if isinstance(rel, Distinct):
        block = _open(rel.input, _Stage.ITEMS)
        block.distinct = True
        return block.at(_Stage.DISTINCT, rel)
    if isinstance(rel, TopN):
        return _top(rel)
    return _join(rel) if isinstance(rel, Join) else _reading(rel)


def _filter(rel: Filter) -> _Folding:
    block = _open(rel.input, _Stage.QUALIFY)
    place, stage = block.where, _Stage.WHERE
    if block.stage >= _Stage.OVER:
        place, stage = block.qualify, _Stage.QUALIFY
    elif block.stage >= _Stage.GROUP:
        place, stage = block.having, _Stage.HAVING
    place.append(block.expr(rel.condition))
    return block.at(stage, rel)


def _aggregate(rel: Aggregate) -> _Folding:
    block = _open(rel.input, _Stage.WHERE)
    keys = [(column, block.expr(expr)) for column, expr in rel.keys]
    calls = {column: Expr((call.map(block.expr),), call.type) for column, call in rel.calls}
    block.keys, block.sets = [expr for _, expr in keys], rel.sets
    block.made |= {column: expr for column, expr in keys if expr.column != column} | calls
    return block.at(_Stage.GROUP, rel)


def _project(rel: Project) -> _Folding | SetBlock:
    below = _fold(rel.input)
    renames = [expr.column for _, expr in rel.items]
    whole = len(set(renames)) == len(renames) == len(below.columns) and None not in renames
    if isinstance(below, SetBlock):
        if renames == list(below.columns) and below.bare:
            return replace(below, columns=rel.columns)
        below = _reading(rel.input)
    elif (
        below.stage == _Stage.EMIT
        or _stays_apart(rel.input)
        or (below.stage >= _Stage.ITEMS and (None in renames or (below.distinct and not whole)))
    ):
        below = _reading(rel.input)
    return _shown(rel, below)


def _shown(rel: Project, below: _Folding) -> _Folding:
    """A block with the items of a projection."""
    made = {column: below.expr(expr) for column, expr in rel.items if expr.column != column}
    below.made |= made
    below.head = rel.head or below.head
    if below.stage == _Stage.FROM and made and set(below.columns) <= set(rel.columns):  # FULL JOIN ... USING
        below.merged |= made
        return below.at(_Stage.FROM, rel)
    return below.at(max(below.stage, _Stage.ITEMS), rel)


def _top(rel: TopN) -> _Folding | SetBlock:
    below = _fold(rel.input)
    taken = rel.limit is not None or rel.offset is not None
    if taken and isinstance(rel.input, Project) and isinstance(rel.input.input, Project | Distinct):
        below = _shown(rel.input, _reading(rel.input.input))  # the input of the top N is a query of its own
    if not below.bare if isinstance(below, SetBlock) else below.stage >= _Stage.ORDER:
        below = _reading(rel.input)
    if isinstance(below, SetBlock):
        return replace(below, order=rel.order, limit=rel.limit, offset=rel.offset)
    below.order, below.limit, below.offset = rel.order, rel.limit, rel.offset
    return below.at(_Stage.ORDER, rel)


def _open(rel: Rel, most: _Stage) -> _Folding:
    """The block of a node, if its stage is at most this one; else a block that reads it."""
    block = _fold(rel)
    return block if isinstance(block, _Folding) and block.stage <= most else _reading(rel)


def _reading(rel: Rel) -> _Folding:
    """A block that reads a relation unchanged."""
    return _Folding(rel.columns, [_item(rel)])


def _join(rel: Join) -> _Folding:
    left = _open(rel.left, _Stage.FROM)
    if left.generators:
        left = _reading(rel.left)
    left.sources.append(replace(_item(rel.right), kind=rel.kind, on=rel.on, lateral=rel.lateral))
    return left.at(_Stage.FROM, rel)


def _item(rel: Rel) -> FromItem:
    return FromItem(rel, rel.label, static=not is_live(rel))


def _stays_apart(rel: Rel) -> bool:
    """Whether a rule has named a relation, which makes it a node of its own."""
    return rel.label is not None and rel.label.startswith("__")


def _finished(rel: Rel, made: _Folding | SetBlock) -> SelectBlock | SetBlock:
    if isinstance(made, SetBlock):
        return made
    items = tuple(ShownItem(made.expr(of_column(column)), column.name, column.type) for column in rel.columns)
    order = tuple(replace(key, expr=made.expr(key.expr)) for key in made.order)
    having, qualify = conjunction(made.having), conjunction(made.qualify)
    upper = [*(item.expr for item in items), *(key.expr for key in order)]
    upper += [each for each in (having, qualify) if each is not None]
    grouped = made.keys is not None and (bool(made.keys) or bool(made.sets))
    return SelectBlock(
        tuple(made.sources),
        items,
        conjunction(made.where),
        tuple(made.keys or ()) if grouped else None,
        made.sets,
        having,
        qualify,
        tuple({call.normal: call for call in aggregate_calls(upper)}.values()),
        tuple({call.normal: call for call in window_calls(upper)}.values()),
        order,
        made.limit is not None or made.offset is not None,
        made.distinct,
        bool(made.generators),
        made.merged,
        made.limit,
        made.offset,
        tuple(made.generators),
        made.emission,
        made.head,
    )


def aggregate_calls(exprs: Iterable[Expr]) -> Iterator[Call]:
    """The calls of aggregates, inside window functions too."""
    for call in (call for expr in exprs for call in expr.calls()):
        if call.over is None:
            yield call
        else:
            yield from aggregate_calls(call.exprs())


def window_calls(exprs: Iterable[Expr]) -> Iterator[Call]:
    return (call for expr in exprs for call in expr.calls() if call.over is not None)
