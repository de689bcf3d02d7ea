"""What strategies cost, by hand and against what the models do."""

from __future__ import annotations

import random

import pytest

from anabranch.algebra.windows import Row, SlidingWindows
from anabranch.algebra.windows.costs import (
    Choice,
    Coefficients,
    Source,
    Thresholds,
    choose,
    eager_above,
    eager_memory,
    held_rows,
    lazy_memory,
    most_groups,
    prefers_eager,
)
from anabranch.algebra.windows.strategies import COUNT, ByWindow


@pytest.mark.parametrize(
    ("rows", "panes", "groups", "panes_cost", "cheapest"),
    [
        (100, 5, 1, 26, "panes"),
        (100, 5, 13, 98, "panes"),
        (100, 5, 14, 104, "windows"),
        (100, 5, 20, 140, "windows"),
        (4000, 10, 1, 411, "panes"),
    ],
)
def test_panes_pay_unless_there_are_too_many_groups(
    rows: int, panes: int, groups: int, panes_cost: float, cheapest: str
) -> None:
    choice = choose(SlidingWindows(panes, 1), rows, groups, differential=False)
    assert choice.costs == pytest.approx({"windows": rows, "panes": panes_cost})
    assert choice.strategy == cheapest
    assert (groups < most_groups(rows, panes)) == (cheapest == "panes")


def test_what_can_be_subtracted_needs_only_the_edges_of_a_window() -> None:
    choice = choose(SlidingWindows(60, 5), rows=1200, groups=2, differential=True)
    assert choice == Choice(
        "panes by difference",
        {"windows": 1200, "panes": 126, "panes by difference": 106, "buffer by difference": 200},
    )


def test_a_slide_of_several_panes_makes_all_of_them() -> None:
    choice = choose(SlidingWindows(9, 6), rows=90, groups=1, differential=True)
    assert choice.costs == {"windows": 90, "panes": 65, "panes by difference": 66, "buffer by difference": 120}


def test_tumbling_windows_have_no_use_for_panes() -> None:
    assert choose(SlidingWindows(10, 10), rows=50, groups=1, differential=True).strategy == "windows"


def test_measured_steps_change_the_choice() -> None:
    windows = SlidingWindows(5, 1)
    slow = Coefficients(window_pane=50)
    assert choose(windows, 100, 1, differential=False).strategy == "panes"
    assert choose(windows, 100, 1, differential=False, coefficients=slow).strategy == "windows"


def test_memory_of_a_group_with_one_row_in_five_windows() -> None:
    assert eager_memory(partial=1, duration=5, slide=1) == 5
    assert lazy_memory(row=1, sources=[Source(volume=0.2)], duration=5) == 1
    assert eager_above(partial=1, row=1, duration=5, slide=1) == 5
    assert eager_above(partial=16, row=40, duration=5, slide=1) == 2


def test_sources_that_are_behind_have_not_brought_their_rows() -> None:
    sources = [Source(3), Source(2, offset=1), Source(1, offset=2)]
    assert held_rows(sources, duration=7) == 38
    assert lazy_memory(10, sources, duration=7) == 380
    assert eager_above(partial=16, row=8, duration=7, slide=2, sources=sources) == 7 + 4


def test_a_group_becomes_large_above_one_threshold_and_small_below_another() -> None:
    limits = Thresholds.of(SlidingWindows(5, 1))
    assert (limits.up, limits.down) == (5, 4)
    assert Thresholds.of(SlidingWindows(5, 1), partial=16, row=40).up == 2
    assert Thresholds.of(SlidingWindows(5, 2), spread=2, partial=16, row=8).up == 7
    assert [limits.large(False, before, 1) for before in (4, 5)] == [False, True]
    assert [limits.large(True, before, 0) for before in (3, 4, 5)] == [False, True, True]
    assert not limits.large(False, 5, 6, touched=11) and limits.large(False, 5, 7, touched=11)
    with pytest.raises(ValueError, match="large above 1 rows and small below 2"):
        Thresholds(1, 2)


@pytest.mark.parametrize("seed", range(50))
def test_the_condition_is_which_memory_is_less(seed: int) -> None:
    chooser = random.Random(seed)
    partial, row, slide = chooser.randint(1, 64), chooser.randint(1, 64), chooser.randint(1, 10)
    duration = chooser.randint(1, 50)
    sources = [Source(chooser.randint(0, 9), chooser.randint(0, 5)) for _ in range(3)]
    less = eager_memory(partial, duration, slide) < lazy_memory(row, sources, duration)
    assert prefers_eager(partial, row, duration, slide, sources) == less


def test_the_model_holds_as_many_partials_as_predicted() -> None:
    strategy = ByWindow(SlidingWindows(60, 5), COUNT)
    strategy.add(Row(0, 0))
    assert strategy.held == eager_memory(partial=1, duration=60, slide=5) == 12


def test_a_window_without_panes_is_refused() -> None:
    with pytest.raises(ValueError, match="number of panes in a window must be positive"):
        most_groups(10, 0)
