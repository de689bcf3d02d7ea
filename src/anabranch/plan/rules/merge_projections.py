"""Merges an aggregate with the query below it, if that only filters and projects:

    WITH t AS (SELECT lower(k) AS name, n FROM s WHERE n > 0) SELECT name, sum(n) AS n FROM t WHERE n < 9 GROUP BY name

is

    SELECT lower(k) AS name, sum(n) AS n FROM s WHERE n > 0 AND n < 9 GROUP BY lower(k)

so that it lives on partials of the stream, and not on its rows. The query has to read the rows of one stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.ir.expr import Column, Expr
from anabranch.ir.rel import Aggregate, Computed, Filter, Join, Project, Rel, Scan, Windowed
from anabranch.plan.rules import RuleContext


def merge_projections(rel: Rel, context: RuleContext) -> Rel | None:
    if not isinstance(rel, Aggregate) or rel.sets:
        return None
    conditions: list[Expr] = []
    made: Rel = rel
    below = rel.input
    merged = False
    while isinstance(below, Filter | Project):
        if any(True for expr in below.exprs() for _ in expr.subqueries()):
            return None
        if isinstance(below, Filter):
            conditions.append(below.condition)
        else:
            by = {column: expr for column, expr in below.items if expr.column != column}
            read = [*made.exprs(), *conditions]
            if any(names_fields(expr, by) for expr in read):
                return None
            made = _over(made, by)
            conditions = [each.substitute(by) for each in conditions]
            merged = True
        below = below.input
    if (
        not merged
        or sum(each == "stream" for each in joined_kinds(below)) != 1
        or not set(joined_kinds(below)) <= _ROW_BY_ROW
    ):
        return None
    for condition in reversed(conditions):
        below = Filter(below, condition)
    assert isinstance(made, Aggregate)
    return Aggregate(below, made.keys, made.calls)


_ROW_BY_ROW = {"stream", "table"}


def joined_kinds(rel: Rel, *, outer: bool = True) -> Iterator[str]:
    """The kinds of all that is joined row by row; another kind for anything else, and for RIGHT or FULL JOIN without
    `outer`."""
    if isinstance(rel, Join) and not rel.lateral and (outer or rel.kind not in ("right", "full")):
        yield from joined_kinds(rel.left, outer=outer)
        yield from joined_kinds(rel.right, outer=outer)
    elif isinstance(rel, Windowed) and rel.window.by_row:
        yield from joined_kinds(rel.input, outer=outer)
    else:
        yield rel.source.kind if isinstance(rel, Scan) and not rel.source.looked_up else "more"


def _over(rel: Rel, by: dict[Column, Expr]) -> Rel:
    """The aggregate over the input of the projection below it."""
    assert isinstance(rel, Aggregate)

    def key(item: Computed) -> Computed:
        column, expr = item
        return column, by[expr.column] if expr.column in by else expr.substitute(by)

    calls = tuple((column, call.map(lambda inner: inner.substitute(by))) for column, call in rel.calls)
    return Aggregate(rel.input, tuple(map(key, rel.keys)), calls)


def names_fields(expr: Expr, by: dict[Column, Expr]) -> bool:
    """Whether struct fields have the names of columns that are replaced by expressions."""
    structs = any(isinstance(part, str) and part.lower() == "struct" for part in _parts(expr))
    return structs and bool(expr.columns() & by.keys())


def _parts(expr: Expr) -> Iterator[object]:
    yield from expr.parts
    for call in expr.calls():
        for inner in call.exprs():
            yield from _parts(inner)
