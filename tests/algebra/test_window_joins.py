"""Joins of windows that do not care for order: what they put out, what they keep, and when they let go of it.

The model here keeps the rows that the rules of progress say can still meet others, and no others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.algebra.plane import BandJoin, Input, Join, TumblingJoin, box, evaluate
from anabranch.algebra.reach import JoinBand, needed

LEFT, RIGHT = Input("s0", "a"), Input("s1", "b")
BAND, TUMBLING = BandJoin(LEFT, RIGHT, "a", "b", 3, 2), TumblingJoin(LEFT, RIGHT, "a", "b", 5)


def meets(join: Join, one: int, other: int) -> bool:
    if isinstance(join, BandJoin):
        return one - join.right_range <= other <= one + join.left_range
    return one // join.size == other // join.size


@dataclass
class WindowJoin:
    """A join that takes rows and progress of two sides in any order."""

    join: Join
    bounds: list[int | None] = field(default_factory=lambda: [None, None])
    kept: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))

    def row(self, side: int, time: int) -> list[tuple[int, int]]:
        """The pairs that a row makes; it is kept if another row can still come for it."""
        pairs = [(time, other) if side == 0 else (other, time) for other in self.kept[1 - side]]
        if self._waits(side, time):
            self.kept[side].append(time)
        return [pair for pair in pairs if meets(self.join, *pair)]

    def progress(self, side: int, bound: int) -> list[int]:
        """What is let go of on the other side when one side has come so far."""
        self.bounds[side] = bound
        gone = [time for time in self.kept[1 - side] if not self._waits(1 - side, time)]
        self.kept[1 - side][:] = [time for time in self.kept[1 - side] if self._waits(1 - side, time)]
        return sorted(gone)

    @property
    def individual(self) -> dict[str, int]:
        return evaluate(self.join, {"s0": self.bounds[0], "s1": self.bounds[1]})

    @property
    def joint(self) -> tuple[int, int] | None:
        return box(self.join, *self.bounds)

    def _waits(self, side: int, time: int) -> bool:
        other = self.bounds[1 - side]
        if other is None:
            return True
        if isinstance(self.join, TumblingJoin):
            return time // self.join.size >= other // self.join.size
        near = JoinBand("s0", "s1", -self.join.right_range, self.join.left_range)
        return time >= needed([near], {"s0": other, "s1": other})[f"s{side}"]


def test_a_band_join_row_by_row() -> None:
    join = WindowJoin(BAND)
    assert join.row(0, 5) == [] and join.kept[0] == [5]
    assert join.row(1, 4) == [(5, 4)]
    assert join.row(1, 9) == []
    assert (join.progress(0, 6), join.individual, join.joint) == ([], {}, None)
    assert join.row(0, 7) == [(7, 9)]
    assert (join.progress(1, 8), join.individual, join.joint) == ([], {"a": 5, "b": 4}, (6, 8))
    assert join.row(1, 8) == [(5, 8), (7, 8)]
    assert join.row(0, 11) == [(11, 9)]
    assert (join.progress(0, 12), join.individual, join.joint) == ([4, 8, 9], {"a": 5, "b": 8}, None)
    assert join.row(1, 14) == [(11, 14)] and join.kept[1] == [14]
    assert join.row(1, 9) == [(7, 9), (11, 9)] and join.kept[1] == [14], "nothing can come any more for the late one"
    assert (join.progress(1, 15), join.individual, join.joint) == ([5, 7, 11], {"a": 12, "b": 10}, (12, 15))
    assert join.row(0, 12) == [(12, 14)] and join.kept[0] == [12]
    assert (join.progress(0, 20), join.individual, join.joint) == ([14], {"a": 12, "b": 15}, None)


def test_a_tumbling_join_row_by_row() -> None:
    join = WindowJoin(TUMBLING)
    assert join.row(0, 1) == []
    assert join.row(1, 3) == [(1, 3)]
    assert join.row(1, 6) == []
    assert join.progress(0, 5) == [3]
    assert join.row(0, 7) == [(7, 6)]
    assert (join.progress(1, 7), join.individual, join.joint) == ([1], {"a": 5, "b": 5}, (5, 7))
    assert join.row(1, 8) == [(7, 8)]
    assert join.row(0, 9) == [(9, 6), (9, 8)]
    assert (join.progress(0, 10), join.individual, join.joint) == ([6, 8], {"a": 5, "b": 7}, None)
    assert join.row(1, 7) == [(7, 7), (9, 7)] and join.kept[1] == []
    assert join.row(1, 12) == [] and join.kept[1] == [12]
    assert (join.progress(1, 10), join.individual, join.joint) == ([7, 9], {"a": 10, "b": 10}, (10, 10))


def test_a_late_side_needs_no_sort_before_the_join() -> None:
    """Windows of 2 minutes, one side up to 5 minutes late, the other in order, one row of each a minute."""
    now, late = 60, 5
    in_any_order, in_order = (WindowJoin(BandJoin(LEFT, RIGHT, "a", "b", 2, 2)) for _ in range(2))
    sorting: list[int] = []
    made: dict[str, list[tuple[int, tuple[int, int]]]] = {"any": [], "order": []}
    for minute in range(now + 1):
        for join, name in ((in_any_order, "any"), (in_order, "order")):
            made[name] += [(minute, pair) for pair in join.row(1, minute)]
            join.progress(1, minute)
        # The late side brings rows of now and of 5 minutes ago; nothing before that is to come.
        rows = [minute, minute - late] if minute % 2 else []
        for time in rows:
            made["any"] += [(minute, pair) for pair in in_any_order.row(0, time)]
        sorting = sorted(sorting + rows)
        for join in (in_any_order, in_order):
            join.progress(0, minute - late)
        while sorting and sorting[0] <= minute - late:
            made["order"] += [(minute, pair) for pair in in_order.row(0, sorting.pop(0))]
    assert needed([JoinBand("s0", "s1", -2, 2)], {"s0": now - late, "s1": now}) == {"s0": now - 2, "s1": now - late - 2}
    assert min(in_any_order.kept[1]) == min(in_order.kept[1]) == now - late - 2
    assert in_order.kept[0] == [] and min(in_any_order.kept[0]) >= now - 2
    assert len(sorting) + len(in_order.kept[0]) > len(in_any_order.kept[0])
    when = {name: {pair: at for at, pair in found} for name, found in made.items()}
    assert all(when["any"][pair] <= at for pair, at in when["order"].items())
    assert any(when["any"][pair] < at for pair, at in when["order"].items())


def test_results_in_order_wait_for_the_window() -> None:
    """With both sides at 6, a pair whose left time is from 3 to 6 can still come: only those before are in order."""
    assert evaluate(BAND, {"s0": 6, "s1": 6})["a"] == 3


steps = st.lists(st.tuples(st.sampled_from([0, 1]), st.booleans(), st.integers(0, 8)), max_size=30)
joins = st.one_of(
    st.builds(lambda x, y: BandJoin(LEFT, RIGHT, "a", "b", x, y), st.integers(0, 6), st.integers(0, 6)),
    st.builds(lambda size: TumblingJoin(LEFT, RIGHT, "a", "b", size), st.integers(1, 6)),
)


@settings(max_examples=100, deadline=None)
@given(joins, steps)
def test_what_is_let_go_of_is_not_missed(join: Join, script: list[tuple[int, bool, int]]) -> None:
    """Whatever the order and the progress, each pair comes out once; and no row is kept that can meet no other."""
    model, made, rows = WindowJoin(join), Counter[tuple[int, int]](), ([], [])  # type: ignore[var-annotated]
    for side, moves, amount in script:
        time = (model.bounds[side] or 0) + amount
        if moves:
            model.progress(side, time)
        else:
            rows[side].append(time)
            made.update(model.row(side, time))
        for kept, bound in zip(model.kept, reversed(model.bounds), strict=True):
            if isinstance(join, BandJoin) and bound is not None:
                reach = join.left_range if kept is model.kept[0] else join.right_range
                assert all(time >= bound - reach for time in kept)
            elif isinstance(join, TumblingJoin) and bound is not None:
                assert all(time // join.size >= bound // join.size for time in kept)
    assert made == Counter((a, b) for a in rows[0] for b in rows[1] if meets(join, a, b))


@pytest.mark.parametrize(
    ("join", "left", "right", "pairs"),
    [
        (BAND, [5, 7, 11, 12], [4, 9, 8, 14, 9],
         [(5, 4), (5, 8), (7, 8), (7, 9), (7, 9), (11, 9), (11, 9), (11, 14), (12, 14)]),
        (TUMBLING, [1, 7, 9], [3, 6, 8, 7, 12], [(1, 3), (7, 6), (7, 7), (7, 8), (9, 6), (9, 7), (9, 8)]),
    ],
)  # fmt: skip
def test_which_rows_meet(join: Join, left: list[int], right: list[int], pairs: list[tuple[int, int]]) -> None:
    model, found = WindowJoin(join), []
    for side, times in ((0, left), (1, right)):
        for time in times:
            found += model.row(side, time)
    assert sorted(found) == pairs
