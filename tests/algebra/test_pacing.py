"""Runs come to take the time that was asked for, whatever a run and a row cost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.algebra.pacing import LEAST, PATIENCE, STEP, Pace


def follow(pace: Pace, fixed: float, a_row: float, waiting: list[int], chance: random.Random | None = None) -> Pace:
    for rows in waiting:
        taken = min(rows, pace.rows)
        noise = 1.0 if chance is None else chance.uniform(0.7, 1.4)
        pace = pace.after(taken, (fixed + taken * a_row) * noise)
    return pace


@pytest.mark.parametrize(("fixed", "a_row"), [(0, 0.001), (80, 0.01), (150, 0.5), (20, 2.0)])
def test_runs_take_longer_while_rows_wait_and_the_target_when_none_do(fixed: float, a_row: float) -> None:
    behind = follow(Pace(250), fixed, a_row, [10**9] * 30)
    assert 0.9 < (fixed + behind.rows * a_row) / (250 * PATIENCE) < 1.1
    few = max(1, int(20 / a_row))
    caught_up = follow(behind, fixed, a_row, [few, few // 2, few // 3] * 20)
    assert 0.8 < (fixed + caught_up.rows * a_row) / 250 < 1.2


def test_a_run_that_costs_more_than_the_target_by_itself_still_takes_rows() -> None:
    pace = follow(Pace(250), 2000, 0.01, [900, 1100] * 20)
    assert 10_000 <= pace.rows <= 30_000  # half of the target for rows


def test_a_machine_that_becomes_slow_is_noticed_through_noise() -> None:
    chance = random.Random(3)
    quick = follow(Pace(250), 50, 0.001, [10**9] * 30, chance)
    slow = follow(quick, 50, 0.1, [10**9] * 30, chance)
    assert 0.4 < (50 + slow.rows * 0.1) / (250 * PATIENCE) < 2


@given(st.lists(st.tuples(st.integers(0, 10**8), st.floats(0, 1e7)), max_size=30))
def test_whatever_was_seen_the_next_run_is_within_bounds(runs: list[tuple[int, float]]) -> None:
    pace = Pace(250)
    for taken, milliseconds in runs:
        after = pace.after(taken, milliseconds)
        assert max(LEAST, pace.rows // STEP) <= after.rows + 1 and after.rows <= pace.rows * STEP + 1
        pace = after
