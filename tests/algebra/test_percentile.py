"""Progress by percentile: so many of the last rows lie above the bound. And the plain delay beside it, row by row."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.algebra.progress import Delay, Percentile, Policy, ProgressState, Seen, observe, reached, tick


def policy(rule: Percentile, *, idle: int | None = None, ahead: int | None = None, live: bool = False) -> Policy:
    return Policy(rule, idle=idle, ahead=ahead, live=live)


def seen(*times: int, now: int | None = None, ahead: int = 0) -> Seen:
    """What a caller that compares with the clock reports of these rows."""
    honest = [time for time in times if now is None or time <= now + ahead]
    behind = len(times) - len(honest)
    return Seen(max(honest, default=None), max(times, default=None), len(times), behind, times)


def bounds(rule: Policy, times: list[int]) -> list[int | None]:
    """The bound after each row, with a run for every row."""
    state, found = ProgressState(), []
    for time in times:
        state = observe(rule, state, {"": seen(time)}, now=0)
        found.append(state.bound)
    return found


def test_a_delay_row_by_row() -> None:
    plain = Policy(Delay(2))
    assert bounds(plain, [3, 4, 1, 5, 2, 7]) == [1, 2, 2, 3, 3, 5]


@pytest.mark.parametrize(("frequency", "then"), [(5, [7, 7, 7]), (1, [7, 8, 9])])
def test_the_bound_is_taken_anew_every_so_many_rows(frequency: int, then: list[int]) -> None:
    rule = Percentile(events=5, percentile=20, frequency=frequency)
    assert bounds(policy(rule), [4, 7, 2, 3, 8, 10, 9]) == [None] * 4 + then


def test_a_percentile_with_a_fraction() -> None:
    rule = Percentile(events=5, percentile=59.9, frequency=2)
    times = [1, 0, 5, 3, 2, 2, 4, 1, 6, 8, 7, 9, 7, 8, 42]
    assert rule.rank == 2
    assert bounds(policy(rule), times) == [None] * 4 + [1, 1, 2, 2, 2, 2, 4, 4, 7, 7, 7]


def test_it_never_moves_back() -> None:
    rule = Percentile(events=3, percentile=34)
    assert rule.rank == 1
    assert bounds(policy(rule), [10, 11, 12, 1, 2, 3, 4]) == [None, None, 10, 10, 10, 10, 10]


def test_a_rank_is_rounded_down() -> None:
    rule = Percentile(events=4, percentile=10)
    assert rule.rank == 3
    assert bounds(policy(rule), [1, 2, 3, 4])[-1] == 3  # a quarter of the rows lie above it, not a tenth


@pytest.mark.parametrize(
    ("percentile", "rank"), [(0, 1000), (94.9, 51), (95, 50), (95.1, 49), (99.9, 1), (99.99, 1), (100, 1)]
)
def test_a_percentile_means_what_is_written(percentile: float, rank: int) -> None:
    assert Percentile(events=1000, percentile=percentile).rank == rank


@pytest.mark.parametrize("figures", [(0, 50, 1), (5, 50, 0), (5, -1, 1), (5, 100.5, 1)])
def test_figures_that_make_no_sense_are_refused(figures: tuple[int, float, int]) -> None:
    with pytest.raises(ValueError, match="percentile"):
        Percentile(*figures)


def test_a_policy_without_a_rule_follows_no_rows() -> None:
    assert policy(Percentile(5, 50)).follows_rows
    assert not Policy(None).follows_rows


def test_one_row_from_the_future_does_not_move_it() -> None:
    rule = policy(Percentile(events=4, percentile=50))
    assert bounds(rule, [1, 2, 3, 4, 10**9]) == [None, None, None, 2, 3]


def test_rows_ahead_of_the_clock_are_not_among_the_last_rows() -> None:
    rule = policy(Percentile(events=2, percentile=0), ahead=10, live=True)
    state = observe(rule, ProgressState(), {"": seen(1, 500, 2, 600, now=0, ahead=10)}, now=0)
    assert state.bound == 2
    # Three runs of nothing else, and it is the clock that is doubted.
    for expected in (2, 2, 700):
        state = observe(rule, state, {"": seen(700, 700, now=0, ahead=10)}, now=0)
        assert state.bound == expected


def test_each_partition_has_last_rows_of_its_own() -> None:
    rule = policy(Percentile(events=2, percentile=50), idle=30, live=True)
    state = observe(rule, ProgressState(), {"a": seen(10, 11), "b": seen(5)}, now=0)
    assert state.bound is None, "b has not had enough rows to say anything"
    assert [reached(rule, each) for each in state.partitions.values()] == [10, None]
    assert observe(rule, state, {"b": seen(6)}, now=1).bound == 5
    assert tick(rule, state, now=30).bound == 10


# --- laws

rules = st.builds(Percentile, st.integers(1, 6), st.integers(0, 100), st.integers(1, 8))
histories = st.lists(st.lists(st.integers(-50, 50), max_size=6), max_size=8)


@given(rules, histories)
def test_how_rows_are_cut_into_runs_makes_no_difference(rule: Percentile, runs: list[list[int]]) -> None:
    """After the same rows in the same order the state is the same, and it survives JSON."""
    cut = one_by_one = ProgressState()
    for run in runs:
        cut = observe(policy(rule), cut, {"": seen(*run)}, now=0)
        cut = ProgressState.from_json(json.loads(json.dumps(cut.to_json())))
    times = [time for run in runs for time in run]
    whole = observe(policy(rule), ProgressState(), {"": seen(*times)}, now=0)
    for time in times:
        one_by_one = observe(policy(rule), one_by_one, {"": seen(time)}, now=0)
    if times:
        assert cut == whole == one_by_one


@given(rules, st.lists(st.integers(-50, 50), max_size=40))
def test_the_bound_is_an_order_statistic_of_the_last_rows(rule: Percentile, times: list[int]) -> None:
    """The bound is the highest that the last rows gave at one of the moments at which they were asked."""
    expected: int | None = None
    since = 0
    for index in range(len(times)):
        since += 1
        last = times[: index + 1][-rule.events :]
        if len(last) == rule.events and since >= rule.frequency:
            since = 0
            found = sorted(last)[rule.rank - 1]
            expected = found if expected is None else max(expected, found)
    state = observe(policy(rule), ProgressState(), {"": seen(*times)}, now=0)
    assert state.bound == expected
