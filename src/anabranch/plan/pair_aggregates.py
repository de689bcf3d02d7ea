"""A band join of streams that groups in the same SELECT, as two nodes: an aggregate of the new pairs of each run, and
the aggregate of these.

    SELECT a.k, count(*) AS n, sum(b.v) AS v FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR
    GROUP BY a.k

is planned as

    SELECT `__k0` AS `k`, coalesce(sum(`__p0`), 0) AS n, sum(`__p1`) AS v FROM
      (SELECT a.k AS `__k0`, count(*) AS `__p0`, sum(b.v) AS `__p1` FROM a JOIN b ON ... GROUP BY a.k)
    GROUP BY `__k0`

The inner query is a join: its new pairs come from new rows and those that can still join them, and each run leaves one
row a key. So nothing is recomputed from all rows of the streams. The state is not the answer of that query but its
results run by run; this works only for rows that are never retracted, and for aggregates that can be merged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.algebra import aggregates
from anabranch.algebra.weighted import merged
from anabranch.ir.expr import Call, Column, Expr, Part, of_column
from anabranch.ir.rel import Rel
from anabranch.ir.rewrite import Rewrite
from anabranch.ir.select import FromItem, SelectBlock, ShownItem
from anabranch.plan.join_state import bounded, unbounded
from anabranch.plan.picks import nulls
from anabranch.plan.view import View
from anabranch.sql.text import quote_name

_KEY, _PARTIAL = "__k{}", "__p{}"
_MARK = re.compile("\0([a-z]+[0-9]*)\0")

Types = Callable[[Sequence[Expr]], Sequence[str]]


def worth_it(block: SelectBlock, view: View) -> bool:
    """Whether a node reads all rows of its streams, and a node of its pairs alone would read bounded ones."""
    if (
        view.operator not in ("keyed", "whole")
        or view.emission.mode != "feed"
        or view.progress.clock != "event"
        or view.emission.counted
    ):
        return False
    if not all(each.inner for each in block.sources) or block.limited:
        return False
    if any(each.window is not None and not each.window.window.by_row for each in block.sources):
        return False
    within = (
        len(view.join.inputs) > 1
        and view.of_streams
        and bounded(replace(view, operator="join", join=replace(view.join, steps=0)))
    )
    return within and (view.operator == "whole" or bool(unbounded(view)))


@dataclass(frozen=True)
class Split:
    """The inner query of pairs, and a function that builds the outer aggregate over the inner node's columns."""

    inside: SelectBlock
    around: Callable[[Rel], SelectBlock]


def added_up(block: SelectBlock, types: Types) -> Split | None:
    """A SELECT as two; None where that is not possible."""
    if block.sets or block.generates or block.qualify is not None or block.has_subqueries or block.over or block.merged:
        return None
    if not block.aggregated:
        return _distinct(block)
    return _Pairs(block, types).split()


def _distinct(block: SelectBlock) -> Split | None:
    """SELECT DISTINCT: each run leaves the distinct rows of its pairs."""
    if not block.distinct or block.order:
        return None

    def around(rel: Rel) -> SelectBlock:
        pairs = zip(rel.columns, block.items, strict=True)
        items = tuple(replace(item, expr=of_column(column)) for column, item in pairs)
        return SelectBlock((FromItem(rel, None),), items, distinct=True, emission=block.emission)

    return Split(replace(block, emission=None), around)


@dataclass
class _Pairs:
    block: SelectBlock
    types: Types
    keys: dict[Expr, str] = field(default_factory=dict)  # the columns of the inner query, with their names
    partials: dict[Expr, str] = field(default_factory=dict)

    def split(self) -> Split | None:
        block = self.block
        for key in block.keys or ():
            self._key(key)
        values: dict[Call, str | Call] = {}
        for call in block.calls:
            value = self._value(call)
            if value is None:
                return None
            values[call.normal] = value
        named = [*self.keys.items(), *self.partials.items()]
        inside = replace(
            block,
            items=tuple(ShownItem(expr, name, expr.type) for expr, name in named),
            keys=tuple(self.keys) if self.keys else None,
            having=None if self.keys else Expr(("count(*)", ">", "0")),
            order=(),
            distinct=False,
            emission=None,
        )

        def around(rel: Rel) -> SelectBlock:
            return self._around(rel, values)

        known = set(self.keys)
        upper = [*(item.expr for item in block.items), *(key.expr for key in block.order)]
        upper += [block.having] if block.having is not None else []
        rewrite = Rewrite(
            dict.fromkeys(values, "0"), [(Column(0, "", ""), expr) for expr in block.keys or () if expr in known]
        )
        left = {column for expr in upper for column in rewrite(expr).columns() if column.id}
        return None if left else Split(inside, around)

    def _key(self, expr: Expr) -> str:
        return self.keys.setdefault(expr, _KEY.format(len(self.keys)))

    def _value(self, call: Call) -> str | Call | None:
        """An aggregate over partials; the argument of one with DISTINCT becomes a key."""
        if call.order or nulls(call):
            return None
        if call.distinct:
            for expr in call.exprs():
                self._key(expr)
            return call
        known = [expr.column.type if expr.column is not None else "" for expr in call.args]
        kinds = known if all(known) else self.types(call.args)
        aggregate = aggregates.find(call.name, distinct=False, argument_types=list(kinds))
        if aggregate is None:
            return None
        marks = [f"\0x{index}\0" for index in range(len(call.args))]
        exprs = dict(zip(marks, call.args, strict=True))
        condition = None
        if call.filter is not None:
            condition = "\0f\0"
            exprs[condition] = call.filter
        columns: dict[str, str] = {}
        for part in aggregate.parts:
            made = filled_in(part.partial_sql(marks, condition), exprs)
            columns[part.suffix] = quote_name(self.partials.setdefault(made, _PARTIAL.format(len(self.partials))))
        return f"CAST({merged(aggregate, columns, None)} AS {call.type})"

    def _around(self, rel: Rel, values: Mapping[Call, str | Call]) -> SelectBlock:
        """The SELECT over the aggregates of each run's pairs."""
        block = self.block
        names = (*self.keys.values(), *self.partials.values())
        own = dict(zip(names, rel.columns, strict=True))
        by_key = {expr: own[name] for expr, name in self.keys.items()}

        def value(made: str | Call) -> Part:
            return made if isinstance(made, str) else made.map(lambda expr: of_column(by_key[expr]))

        parts: dict[Call, Part] = {call: value(made) for call, made in values.items()}
        rewrite = Rewrite(parts, [(by_key[expr], expr) for expr in block.keys or ()])
        return replace(
            block,
            sources=(FromItem(rel, None),),
            items=tuple(replace(item, expr=rewrite(item.expr)) for item in block.items),
            where=None,
            keys=None if block.keys is None else tuple(of_column(by_key[expr]) for expr in block.keys),
            having=None if block.having is None else rewrite(block.having),
            calls=tuple(part for part in parts.values() if isinstance(part, Call))
            or ((Call("count", star=True),) if block.keys is None else ()),
            order=tuple(replace(key, expr=rewrite(key.expr)) for key in block.order),
        )


def filled_in(text: str, exprs: Mapping[str, Expr]) -> Expr:
    """A text with expressions substituted for its markers."""
    parts: list[Part] = []
    at = 0
    for found in _MARK.finditer(text):
        parts += [text[at : found.start()]] if found.start() > at else []
        parts += exprs[found[0]].parts
        at = found.end()
    parts += [text[at:]] if at < len(text) else []
    return Expr(tuple(parts))
