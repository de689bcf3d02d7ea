"""FILLED windows: a SELECT that aggregates windows also shows windows without rows."""

from __future__ import annotations

from dataclasses import replace

from anabranch.ir.expr import Call, Expr
from anabranch.ir.logic import conjunction
from anabranch.ir.select import SelectBlock
from anabranch.plan.bind import refuse
from anabranch.plan.windows import HERE


def filled(text: str, block: SelectBlock) -> tuple[SelectBlock, frozenset[int]]:
    """A SELECT whose aggregates skip the placeholder rows of empty windows, and the ids of the windows that get such
    rows; none where nothing is aggregated."""
    windows = [each.windowed for each in block.sources if each.windowed is not None and each.windowed.window.filled]
    if not windows or not block.aggregated:
        return block, frozenset()
    bounds = {column for each in windows for column in each.bounds}
    for key in block.keys or ():
        if key.column not in bounds and key.origin is not None:
            what, hint = (
                "a window without rows has nothing to group by",
                "group by the window alone, or remove FILLED",
            )
            raise refuse(text, key.origin, what, hint)
    made = block.map(_here)
    calls = tuple(_of_here(call) for call in block.calls)
    over = tuple(call.map(_here) for call in block.over)
    return replace(made, calls=calls, over=over), frozenset(map(id, windows))


def _here(expr: Expr) -> Expr:
    return expr.map(lambda part: _of_here(part) if isinstance(part, Call) else part)


def _of_here(call: Call) -> Call:
    if call.over is not None:
        return call.map(_here)
    asked = [*([call.filter] if call.filter is not None else []), Expr((HERE,))]
    return replace(call, filter=conjunction(asked))
