"""How the columns of a join progress, from their distances to the times of its inputs by its conditions.

A pair comes out with its second row. So the times of later pairs are behind the progress of both inputs only as far as
the conditions let one row be behind the other. The later of both times is not behind at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.algebra.plane import Behind, Distances, latest
from anabranch.ir.expr import Expr, Part
from anabranch.ir.logic import called
from anabranch.ir.select import SelectBlock
from anabranch.plan.facts.bands import Reach, Times
from anabranch.plan.states import WINDOW_COLUMNS
from anabranch.plan.view import JointProgress, View
from anabranch.types import Field


@dataclass(frozen=True)
class Join:
    """A SELECT over inputs that progress, each with its placeholder and its event times."""

    block: SelectBlock
    placeholders: Sequence[str]  # of each relation; empty for a static one
    times: Times
    inner: bool  # whether its inputs have no rows without partners


def find_joint_progress(join: Join, view: View, keys: Mapping[str, Expr]) -> JointProgress | None:
    """How the columns of a view progress; `keys` are the expressions of its key, by name."""
    block = join.block
    if block.over or block.qualify is not None or block.generates:
        return None
    if block.has_subqueries:
        return None
    shown = {field.name: item.expr for field, item in zip(view.fields, block.items, strict=False)}
    grouped = {expr.normal for expr in block.keys or ()} if block.aggregated else None
    inner = join.inner and all(block.sources[index].inner for index in block.live)
    search = _Search(block, Reach(block, join.times), inner)
    columns = {name: expr for name, expr in {**keys, **shown}.items() if _counts(expr, grouped)}
    behind: dict[str, Distances] = {}
    closes: dict[str, Distances] = {}
    for name, expr in columns.items():
        found = search.distances(expr)
        if found is None or name not in view.progress.times:
            continue
        closes[name] = _later(_plain(found), view.progress.times[name] - 1)
        # With overlapping windows no single bound is right for the column.
        begun = all(any(each.size > 1 for each in side) for side in found)
        own = expr.column.name.lower() if expr.column is not None else ""
        if name in shown and (begun or own not in WINDOW_COLUMNS):
            behind[name] = found
    ends = tuple(key.name for key in view.keying.columns if key.name in closes)
    if not closes:
        return None
    return JointProgress(
        tuple(join.placeholders[index] for index in block.live),
        behind,
        closes,
        ends if inner and len(ends) > 1 else (),
        inner,
    )


def _counts(expr: Expr, grouped: set[tuple[Part, ...]] | None) -> bool:
    """Whether a pair can only change rows with its own value: any column of pairs, or a grouping expression."""
    return grouped is None or expr.normal in grouped


def _plain(distances: Distances) -> Distances:
    """The distances without windows, where these suffice: the start of a window adds nothing on windows that end."""
    return tuple(tuple(each for each in side if each.size == 1) or side for side in distances)


def _later(distances: Distances, shift: int) -> Distances:
    return tuple(tuple(replace(each, by=each.by - shift) for each in side) for side in distances)


#: An operand of a union: its placeholder, and its event times by position, with the offsets that pass them.
Operand = tuple[str, Mapping[int, tuple[str, int]]]


def of_union(operands: Sequence[Operand], fields: Sequence[Field]) -> JointProgress | None:
    """How the columns of a union progress: as the slowest of its operands."""
    columns = union_times(operands, fields)
    indexes = {field.name: index for index, field in enumerate(fields)}
    behind = {name: tuple((Behind(times[indexes[name]][0], 0),) for _, times in operands) for name in columns}
    return JointProgress(tuple(placeholder for placeholder, _ in operands), behind, behind) if behind else None


def union_times(operands: Sequence[Operand], fields: Sequence[Field]) -> dict[str, int]:
    """The columns of a union that are event times in all operands; windows close in each operand on its own."""
    return {
        field.name: 1
        for index, field in enumerate(fields)
        if operands and all(index in times and times[index][1] == 1 for _, times in operands)
    }


def through(upper: JointProgress | None, below: JointProgress | None) -> JointProgress | None:
    """How the columns of two fused nodes progress: `upper` reads only `below`."""
    if upper is None or below is None:
        return None
    behind: dict[str, Distances] = {}
    for name, (side,) in upper.behind.items():
        passed = [each.column for each in side if each.by == 0 and each.size == 1]
        found = next((below.behind[known] for known in below.behind if known.lower() in passed), None)
        if found is not None:
            behind[name] = found
    return JointProgress(below.inputs, behind, {}, (), below.inner) if behind else None


def time_call(expr: Expr) -> tuple[str, list[Expr]] | None:
    """greatest(a, b) or least(a, b), and its arguments."""
    call = called(expr)
    return call if call is not None and call[0] in ("GREATEST", "LEAST") else None


class _Search:
    def __init__(self, block: SelectBlock, reach: Reach, inner: bool) -> None:
        self.block = block
        self.reach = reach
        self.inner = inner

    def distances(self, expr: Expr) -> Distances | None:
        """How far an expression can be behind the times of each input; None where it is unbounded."""
        call = time_call(expr)
        if call is None:
            found = self._column(expr)
            return None if found is None else _limited(found)
        parts = [self._column(each) for each in call[1]]
        known = [each for each in parts if each is not None]
        if len(known) != len(parts) or not self.inner:  # both functions ignore NULLs
            return None
        if call[0] == "GREATEST":
            return _limited(latest(known))
        return _limited(tuple(_earliest(each) for each in zip(*known, strict=True)))

    def _column(self, expr: Expr) -> Distances | None:
        """The same for a column, unbounded inputs included; None for other expressions."""
        if expr.column is None or expr.column not in self.block.owner:
            return None
        return tuple(self.reach.behind(expr.column, index) for index in self.block.live)


def _limited(found: Distances) -> Distances | None:
    return found if all(found) else None


def _earliest(parts: Sequence[tuple[Behind, ...]]) -> tuple[Behind, ...]:
    """How far the least of some columns can be behind: as far as the furthest."""
    columns = {each.column for part in parts for each in part}
    found = []
    for column in sorted(columns):
        by = [[each.by for each in part if each.column == column and each.size == 1] for part in parts]
        if all(by):
            found.append(Behind(column, max(min(each) for each in by)))
    return tuple(found)
