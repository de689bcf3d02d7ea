"""The law in small: partial counts give every row, whatever the cut; dropping late rows does not."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.algebra.progress import ProgressState, advance_to, is_late
from anabranch.algebra.windows import SlidingWindows

FIVE = SlidingWindows(5, 5)
FIFTEEN = SlidingWindows(15, 15)

# Sixteen event times in minutes, in order of arrival; after each list progress reaches the bound beside it.
SCRIPT = [([1, 3, 2, 4, 3, 1], 5), ([6, 2, 3, 8], 10), ([12, 7, 1, 4, 8, 13], 15)]
ROWS = [time for times, _ in SCRIPT for time in times]


def partial(times: list[int]) -> Counter[int]:
    """The counts of one run by the end of the window."""
    return Counter(FIVE.bounds(wid)[1] for time in times for wid in FIVE.at(time))


def reduce(partials: list[Counter[int]]) -> Counter[int]:
    return sum(partials, Counter())


def roll_up(counts: Counter[int]) -> Counter[int]:
    """Fifteen minutes out of five: a window end belongs to the window that holds the instant before it."""
    rolled: Counter[int] = Counter()
    for end, count in counts.items():
        rolled[FIFTEEN.start_of(end - 1) + 15] += count
    return rolled


def test_dropping_late_rows_loses_six_of_sixteen() -> None:
    state = ProgressState()
    kept: list[int] = []
    dropped: list[int] = []
    for times, bound in SCRIPT:
        for time in times:
            (dropped if is_late(time, state.bound) else kept).append(time)
        state = advance_to(state, bound)
    assert partial(kept) == {5: 6, 10: 2, 15: 2}
    assert dropped == [2, 3, 7, 1, 4, 8]
    assert roll_up(partial(kept)) == {15: 10}


def test_partials_keep_all_sixteen() -> None:
    partials = [partial(times) for times, _ in SCRIPT]
    assert partials == [{5: 6}, {5: 2, 10: 2}, {5: 2, 10: 2, 15: 2}]
    assert reduce(partials) == {5: 10, 10: 4, 15: 2}
    assert roll_up(reduce(partials)) == {15: 16}


@given(st.permutations(ROWS), st.lists(st.integers(0, 16), max_size=6), st.randoms(use_true_random=False))
def test_neither_order_nor_cut_matters(order: list[int], cuts: list[int], chooser: random.Random) -> None:
    edges = [0, *sorted(cuts), len(order)]
    partials = [partial(order[a:b]) for a, b in pairwise(edges)]
    # Reduce in a random tree, as compaction does.
    while len(partials) > 1:
        chooser.shuffle(partials)
        size = chooser.randint(2, len(partials))
        partials = [reduce(partials[:size]), *partials[size:]]
    assert partials[0] == {5: 10, 10: 4, 15: 2}
    assert roll_up(partials[0]) == {15: 16}
