"""Widens a query of the first rows of each key to keep all columns of the stream below its condition:

    SELECT k, x FROM (SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM s) WHERE n = 1

is

    SELECT k, x FROM (SELECT k, x, row_number() OVER (...) AS n, ts AS _row_ts FROM s) WHERE n = 1

A row beyond the first ones never gets back among them. So shown and new rows are enough for the next answer if all
columns of the shown rows are kept: all of them break ties.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.ir.expr import Call, Expr, of_column
from anabranch.ir.rel import Filter, OverRows, Project, Rel, Scan
from anabranch.plan.facts.append_only import RANKS, ROW, is_kept, only_first
from anabranch.plan.rules import RuleContext


def widen_top_n(rel: Rel, context: RuleContext) -> Rel | None:
    if not isinstance(rel, Project) or not isinstance(rel.input, Filter):
        return None
    ranked = rel.input.input
    if not isinstance(ranked, Project) or not isinstance(ranked.input, OverRows):
        return None
    ranks = {column for column, call in ranked.input.calls if call.name in RANKS}
    numbers = {column for column, expr in ranked.items if expr.column in ranks or _is_rank(expr)}
    if len(ranks) != len(ranked.input.calls) or not only_first(rel.input.condition, lambda part: part in numbers):
        return None
    below = ranked.input.input
    while isinstance(below, Filter):
        below = below.input
    if not isinstance(below, Scan) or below.source.kind != "stream":
        return None
    shown = {expr.column for _, expr in ranked.items}
    missing = [column for column in below.columns if column not in shown]
    names = {column.name.lower() for column, _ in (*ranked.items, *rel.items)}
    if not missing or not all(map(is_kept, missing)) or names & {ROW.format(each.name).lower() for each in missing}:
        return None
    more = tuple((context.new(ROW.format(each.name), each.type), of_column(each)) for each in missing)
    return replace(rel, input=replace(rel.input, input=replace(ranked, items=(*ranked.items, *more))))


def _is_rank(expr: Expr) -> bool:
    return len(expr.parts) == 1 and isinstance(expr.parts[0], Call) and expr.parts[0].name in RANKS
