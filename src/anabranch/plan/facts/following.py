"""The distance at which a row looks for the next row: the end of a version depends on it, within bounds.

    CASE WHEN LEAD(q.ts) OVER (PARTITION BY q.k ORDER BY q.ts) <= q.ts + INTERVAL 5 MINUTES
         THEN LEAD(q.ts) OVER (PARTITION BY q.k ORDER BY q.ts) END

The next version counts if it comes within five minutes, so a new row changes itself and rows at most five minutes
before it: no others have to be read.
"""

from __future__ import annotations

from anabranch.ir.expr import Call, Column, Expr
from anabranch.ir.logic import depths, piece, word
from anabranch.ir.select import SelectBlock
from anabranch.plan.facts.time_differences import sum_of


def find_following(block: SelectBlock) -> tuple[Column, int] | None:
    """The time column and the greatest distance at which a SELECT looks for a next row; None: unbounded.

    It is bounded if all of its window functions are.
    """
    if block.keys is not None or block.distinct or block.generates or block.qualify is not None:
        return None
    if block.has_subqueries:
        return None
    windows = [item.expr for item in block.items if any(call.over is not None for call in item.expr.calls())]
    found = [_following(expr) for expr in windows]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found) or len({column for column, _ in known}) > 1:
        return None
    return known[0][0], max(distance for _, distance in known)


def _following(expr: Expr) -> tuple[Column, int] | None:
    """The column and the distance of CASE WHEN next <= column + distance THEN next END, or the same backwards."""
    words = [word(part) for part in expr.parts]
    inside = [index for index, depth in enumerate(depths(expr.parts)) if depth == 1]
    then = next((index for index in inside if words[index] == "THEN"), None)
    if then is None or [*words[:2], words[-1]] != ["CASE", "WHEN", "END"] or any(words[i] == "ELSE" for i in inside):
        return None
    following, sign = expr.parts[2], words[3]
    if (
        not isinstance(following, Call)
        or sign not in ("<=", ">=")
        or piece(expr, then + 1, len(words) - 1).normal != (following.normal,)
    ):
        return None
    forwards = sign == "<="
    column = _next_of(following, forwards)
    limit = sum_of(piece(expr, 4, then))
    if column is None or limit is None or limit.kind != "moment" or dict(limit.columns) != {column: 1}:
        return None
    distance = limit.high if forwards else -limit.low
    return (column, int(distance)) if distance >= 0 and distance.denominator == 1 else None


def _next_of(call: Call, forwards: bool) -> Column | None:
    """The column of LEAD(column) OVER (... ORDER BY column): the next value in the order of the column."""
    if call.name != "lead" or len(call.args) != 1 or call.over is None or len(call.over.order) != 1 or call.over.frame:
        return None
    key = call.over.order[0]
    column = call.args[0].column
    return column if column == key.expr.column and key.order == ("" if forwards else "DESC") else None
