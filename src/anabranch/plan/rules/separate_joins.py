"""Separates a join of streams that is grouped by several of their times into a node of its own:

    SELECT a.ts, b.ts AS bts, count(*) AS n FROM a JOIN b ON b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE
    GROUP BY a.ts, b.ts EMIT ON WINDOW CLOSE

is

    SELECT ts, bts, count(*) AS n FROM (SELECT a.ts, b.ts AS bts FROM a JOIN b ON ...) AS __joined0
    GROUP BY ts, bts EMIT ON WINDOW CLOSE

Then the times are columns of the grouped input, and a group closes by all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from anabranch.ir.build import event_times
from anabranch.ir.expr import Column, Expr, of_column
from anabranch.ir.logic import conjuncts, equation
from anabranch.ir.rel import Aggregate, Emit, Filter, Join, Project, Rel, Windowed, is_live
from anabranch.plan.record_parts import JOINED
from anabranch.plan.rules import RuleContext


def separate_joins(rel: Rel, context: RuleContext) -> Rel | None:
    if not isinstance(rel, Emit) or not rel.emission.watermark:
        return None
    numbers = count()

    def change(node: Rel) -> Rel:
        made = node.rebuilt(change)
        if not isinstance(made, Aggregate) or made.sets or not _several_times(made):
            return made
        source = made.input
        read = sorted({column for expr in made.exprs() for column in expr.columns()}, key=source.columns.index)
        label = JOINED.format(next(numbers))
        return Aggregate(Project(source, tuple((c, of_column(c)) for c in read), label=label), made.keys, made.calls)

    made = change(rel)
    return made if made is not rel else None


def _several_times(node: Aggregate) -> bool:
    """Whether it groups an inner join by times of several streams without an equation between them."""
    source, conditions = node.input, []
    while isinstance(source, Filter):
        conditions.append(source.condition)
        source = source.input
    if not isinstance(source, Join) or any(True for expr in node.exprs() for _ in expr.subqueries()):
        return False
    leaves = list(_leaves(source, conditions))
    keys = {expr.column for _, expr in node.keys if expr.column is not None}
    timed = [keys & _times(leaf) for leaf in leaves if is_live(leaf)]
    if None in leaves or sum(map(bool, timed)) < 2:
        return False
    equations = (equation(each) for condition in conditions for each in conjuncts(condition))
    pairs = [{found[0].column, found[2].column} for found in equations if found is not None]
    return not any(pair <= set().union(*timed) for pair in pairs)


def _leaves(rel: Rel, conditions: list[Expr]) -> Iterator[Rel]:
    """The relations of an inner join, adding its conditions to `conditions`; none for other joins."""
    if not isinstance(rel, Join) or rel.label is not None:
        yield rel
    elif rel.kind in ("inner", "cross") and not rel.lateral:
        conditions += [rel.on] if rel.on is not None else []
        yield from _leaves(rel.left, conditions)
        yield from _leaves(rel.right, conditions)


def _times(rel: Rel) -> set[Column]:
    """The columns of a relation that are times or window bounds."""
    own = {*rel.bounds[:3], *event_times(rel.input)} if isinstance(rel, Windowed) else set(event_times(rel))
    return own & set(rel.columns)
