"""A SELECT over a view, on the partials of that view:

    CREATE VIEW v AS SELECT k, window_end, count(*) AS c FROM TUMBLE(...) GROUP BY k, window_start, window_end
    SELECT k, sum(c) FROM v GROUP BY k

adds up the counts of the pane table of v, and v is not computed. This works for sums over counts and sums, for min over
min and for max over max, with any grouping, where conditions use only keys of the view. For anything else the view is
computed first: its rows are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.ir.expr import Call, Column, Expr, Part, of_column
from anabranch.ir.logic import conjunction
from anabranch.ir.rel import Scan
from anabranch.ir.rewrite import Rewrite
from anabranch.ir.select import FromItem, SelectBlock, ShownItem
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.panes import PaneBlock, PaneCall, sorted_by_columns
from anabranch.plan.placer import Placed
from anabranch.sql.text import quote_name

#: Of an aggregate: those whose partials it can merge.
_LEGAL = {"sum": ("count", "count_if", "sum"), "min": ("min",), "max": ("max",)}


@dataclass(frozen=True)
class Composition:
    """A SELECT over a view: the keys of the view that it reads, and for each of its aggregates the one of the view
    that it merges."""

    block: SelectBlock
    keys: Mapping[Column, int]  # column of the view -> index of its key
    calls: Sequence[tuple[Call, Call]]


def compose(block: SelectBlock, scan: Scan, inner: SelectBlock) -> Composition:
    """The composition of a SELECT over a view with the view's query, if it can live on the view's partials."""
    if not block.aggregated:
        raise NotApplicable("it has no aggregate")
    if (
        block.sets
        or block.distinct
        or block.generates
        or block.over
        or block.qualify is not None
        or block.has_subqueries
    ):
        raise NotApplicable("it is more than an aggregate")
    if inner.having is not None:
        raise NotApplicable("HAVING of the view looks at whole groups")
    if inner.limited or inner.distinct or inner.over or inner.qualify is not None or not inner.aggregated:
        raise NotApplicable("the view is more than an aggregate")
    shown = dict(zip(scan.columns, inner.items, strict=True))
    calls = [(call, _made_of(call, shown)) for call in block.calls]
    groups = {expr.normal: place for place, expr in enumerate(inner.keys or ())}
    rest = Rewrite({call.normal: "NULL" for call in block.calls})
    keys: dict[Column, int] = {}
    for expr in block.exprs():
        for column in rest(expr).columns():
            place = groups.get(shown[column].expr.normal) if column in shown else None
            if place is None:
                raise NotApplicable(f"it looks at {column.name}, which only whole groups tell")
            keys[column] = place
    return Composition(block, keys, calls)


def _made_of(call: Call, shown: Mapping[Column, ShownItem]) -> Call:
    """The aggregate of the view whose partials an aggregate can merge."""
    column = call.args[0].column if len(call.args) == 1 else None
    item = shown.get(column) if column is not None else None
    if item is None:
        raise NotApplicable(f"{call.name} looks at the rows of the view")
    part = item.expr.parts[0] if len(item.expr.parts) == 1 else None
    if not isinstance(part, Call):
        raise NotApplicable(f"{item.name} of the view is no aggregate alone")
    if call.distinct or call.filter is not None or part.distinct or part.name not in _LEGAL.get(call.name, ()):
        distinct = " DISTINCT" if part.distinct else ""
        raise NotApplicable(f"{call.name} over {part.name}{distinct} looks at whole groups")
    return part.normal


def over_its_partials(
    made: Composition, panes: PaneBlock, placed: Placed, scan: Scan, new: Callable[[str, str], Column]
) -> SelectBlock:
    """The SELECT over a scan of the partials of the view."""
    block, presence = made.block, quote_name(placed.use.presence)
    named = {column.name.lower(): column for column in scan.columns}
    columns = {own: of_column(named[panes.keys[place].name.lower()]) for own, place in made.keys.items()}
    inner = {each.call.normal: each for each in panes.calls}
    there = f"sum({presence}) > 0"
    values: dict[Call, Part] = {}
    for call, of in made.calls:
        text = _value(call, inner[of], placed)
        values[call.normal] = text if block.keys is not None else f"CASE WHEN {there} THEN {text} END"
    rewrite = Rewrite(values)

    def over(expr: Expr) -> Expr:
        return rewrite(expr).substitute(columns)

    having = [over(block.having)] if block.having is not None else []
    if block.keys is not None:
        having.append(Expr((f"sum({presence})", ">", "0")))
    changed = replace(
        block,
        sources=(FromItem(scan, None, static=False),),
        items=tuple(replace(item, expr=over(item.expr)) for item in block.items),
        where=over(block.where) if block.where is not None else None,
        keys=tuple(map(over, block.keys)) if block.keys is not None else None,
        having=conjunction(having),
        calls=(),
        order=tuple(replace(key, expr=over(key.expr)) for key in block.order),
    )
    return sorted_by_columns(changed, set(values.values()), new)


def _value(call: Call, made_of: PaneCall, placed: Placed) -> str:
    """The value of an aggregate over groups, from their partials."""
    columns = placed.columns[made_of.key]
    parts = {part.suffix: part.reduce_sql(quote_name(columns[part.suffix])) for part in made_of.aggregate.parts}
    return f"CAST({made_of.aggregate.final_sql(parts)} AS {call.type})"


def group_columns(block: SelectBlock) -> Sequence[Column] | None:
    """The key of the groups of a SELECT over partials, where all of it are columns."""
    found = [key.column for key in block.keys or ()]
    return [column for column in found if column is not None] if all(found) else None
