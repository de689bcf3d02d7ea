"""Which windows a run closes if it may not close all."""

from __future__ import annotations

import random

import pytest

from anabranch.algebra.smoothing import Budget, Ready, closing


def ends(ready: list[Ready], budget: Budget, run: int = 0) -> list[int]:
    return [window.end for window in closing(ready, budget, run)]


FOUR = [Ready(end, rows=3, since=0) for end in (40, 10, 30, 20)]


def test_lowest_ends_come_first() -> None:
    assert ends(FOUR, Budget(windows=2)) == [10, 20]
    assert ends(FOUR, Budget(rows=9)) == [10, 20, 30]
    assert ends(FOUR, Budget(windows=3, rows=7)) == [10, 20]
    assert ends(FOUR, Budget()) == [10, 20, 30, 40]
    assert ends([], Budget(windows=1)) == []


def test_a_window_larger_than_the_budget_is_closed_alone() -> None:
    assert ends(FOUR, Budget(rows=1)) == [10]


def test_what_has_waited_long_enough_is_closed_whatever_the_budget() -> None:
    assert ends(FOUR, Budget(windows=1, delay=2), run=1) == [10]
    assert ends(FOUR, Budget(windows=1, delay=2), run=2) == [10, 20, 30, 40]
    assert ends(FOUR, Budget(windows=1, delay=0)) == [10, 20, 30, 40]


def test_a_window_that_is_due_takes_those_before_it_along() -> None:
    ready = [Ready(10, 1, since=3), Ready(20, 1, since=0), Ready(30, 1, since=3)]
    assert ends(ready, Budget(windows=1, delay=3), run=3) == [10, 20]


@pytest.mark.parametrize("seed", range(60))
def test_every_window_closes_once_in_time_and_within_the_budget_unless_it_is_due(seed: int) -> None:
    chooser = random.Random(seed)
    budget = Budget(chooser.choice([None, 1, 3]), chooser.choice([None, 5, 20]), chooser.randint(0, 4))
    waiting: list[Ready] = []
    end = 0
    for run in range(30):
        for _ in range(chooser.choice([0, 0, 1, 8]) if run < 20 else 0):
            end += chooser.randint(1, 9)
            waiting.append(Ready(end, chooser.randint(0, 12), run))
        closed = closing(chooser.sample(waiting, len(waiting)), budget, run)
        assert closed == waiting[: len(closed)]
        assert closed or not waiting
        waiting = waiting[len(closed) :]
        assert all(run - window.since < budget.delay for window in waiting)
        beyond = [window for window in closed if run - window.since < budget.delay]
        if beyond and len(closed) > 1:
            assert budget.windows is None or len(closed) <= budget.windows
            assert budget.rows is None or sum(window.rows for window in closed) <= budget.rows
    assert not waiting


@pytest.mark.parametrize(("name", "value"), [("windows", 0), ("rows", -1), ("delay", -1)])
def test_wrong_budgets_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        Budget(**{name: value})
