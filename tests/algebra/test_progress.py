"""Progress: forward only, held by silent partitions, not moved by rows from the future."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.algebra.progress import (
    END,
    Delay,
    Policy,
    ProgressState,
    Seen,
    advance_to,
    combine,
    declare,
    end,
    is_late,
    observe,
    tick,
)

LIVE = Policy(Delay(2), idle=30, ahead=100, live=True)
REPLAY = Policy(Delay(2), idle=30, ahead=100, live=False)


def rows(*times: int, now: int | None = None, ahead: int = 100) -> Seen:
    """What a caller that compares with the clock reports of these rows."""
    honest = [time for time in times if now is None or time <= now + ahead]
    return Seen(max(honest, default=None), max(times, default=None), len(times), len(times) - len(honest))


def test_the_bound_stays_the_delay_behind_the_highest_time() -> None:
    state = observe(LIVE, ProgressState(), {"p": rows(10, 4)}, now=0)
    assert (state.bound, state.high) == (8, 10)
    assert observe(LIVE, state, {"p": rows(3)}, now=1).bound == 8


def test_the_slowest_of_two_partitions_decides() -> None:
    state = declare(ProgressState(), ["0", "1"], now=0)
    bounds = []
    for key, time in [("0", 10), ("1", 3), ("0", 4), ("1", 9), ("0", 20), ("1", 5)]:
        state = observe(REPLAY, state, {key: rows(time)}, now=0)
        bounds.append(state.bound)
    assert bounds == [None, 1, 1, 7, 7, 7]


def test_a_silent_partition_holds_the_bound_and_then_idles() -> None:
    state = observe(LIVE, ProgressState(), {"a": rows(10), "b": rows(5)}, now=0)
    assert state.bound == 3
    state = observe(LIVE, state, {"a": rows(50)}, now=29)
    assert state.bound == 3
    state = observe(LIVE, state, {"a": rows(60)}, now=30)
    assert state.bound == 58
    # Back again it is late, and holds what it can.
    state = observe(LIVE, state, {"b": rows(7)}, now=31)
    assert state.bound == 58
    assert observe(LIVE, state, {"a": rows(90)}, now=32).bound == 58


def test_a_declared_partition_holds_until_it_is_idle() -> None:
    state = declare(ProgressState(), ["a", "b"], now=0)
    assert declare(state, ["a"], now=5) is state
    state = observe(LIVE, state, {"a": rows(10)}, now=20)
    assert state.bound is None
    assert tick(LIVE, state, now=30).bound == 8


def test_when_all_are_idle_the_bound_moves_to_the_furthest_and_no_further() -> None:
    state = observe(LIVE, ProgressState(), {"a": rows(10), "b": rows(5)}, now=0)
    assert tick(LIVE, state, now=29).bound == 3
    assert tick(LIVE, state, now=30).bound == 8
    assert tick(LIVE, state, now=10_000).bound == 8
    assert tick(LIVE, declare(ProgressState(), ["a"], now=0), now=99).bound is None


def test_in_a_lull_the_clock_moves_the_bound_one_time_out_at_a_time() -> None:
    policy = replace(LIVE, lull=True)
    state = observe(policy, ProgressState(), {"a": rows(10)}, now=12)
    bounds = {}
    for now in (20, 41, 42, 71, 72, 140):
        state = tick(policy, state, now)
        bounds[now] = state.bound
    # 12 is when the last row came, 2 the delay: 42 - 30 - 2, then a time-out of 30 later.
    assert bounds == {20: 8, 41: 8, 42: 10, 71: 10, 72: 40, 140: 100}
    state = observe(policy, state, {"a": rows(90)}, now=141)
    assert (state.bound, state.idle) == (100, False), "it never goes back: the row is late"
    assert tick(policy, state, now=170).bound == 100
    assert tick(policy, end(state), now=999).bound == END
    assert tick(replace(policy, live=False), state, now=999).bound == 100
    assert tick(LIVE, state, now=999).bound == 100


def test_replayed_data_has_no_idle_time() -> None:
    state = observe(REPLAY, ProgressState(), {"a": rows(10), "b": rows(5)}, now=0)
    assert tick(REPLAY, state, now=10_000).bound == 3


def test_a_row_from_the_future_makes_no_honest_row_late() -> None:
    state = observe(LIVE, ProgressState(), {"p": rows(1000, 10**9, now=1000)}, now=1000)
    assert state.bound == 998
    assert not is_late(999, state.bound)
    # Only the clock can say so; data that is replayed is taken as it is.
    assert observe(REPLAY, ProgressState(), {"p": rows(1000, 10**9, now=1000)}, now=1000).bound == 10**9 - 2


def test_three_runs_of_nothing_but_rows_ahead_count() -> None:
    state = ProgressState()
    future = {"p": rows(5000, now=0)}
    for _ in range(2):
        state = observe(LIVE, state, future, now=0)
        state = tick(LIVE, state, now=0)
        assert state.bound is None
    assert observe(LIVE, state, {"p": rows(1, now=0)}, now=0).ahead_runs == 0
    assert observe(LIVE, state, future, now=0).bound == 4998


def test_a_partition_whose_clock_is_wrong_idles() -> None:
    state = ProgressState()
    for now in (0, 10, 20, 29):
        state = observe(LIVE, state, {"good": rows(now), "bad": rows(10**9, now=now)}, now=now)
        assert state.bound is None
    assert observe(LIVE, state, {"good": rows(30), "bad": rows(10**9, now=30)}, now=30).bound == 28


def test_without_a_delay_only_declarations_move_the_bound() -> None:
    policy = Policy(None, idle=30, ahead=None, live=True)
    state = observe(policy, ProgressState(), {"p": rows(10)}, now=0)
    assert (state.bound, state.high) == (None, 10)
    state = advance_to(state, 7)
    assert state.bound == 7
    assert advance_to(state, 7) is state
    assert advance_to(state, 6) is state
    assert end(state).bound == END
    assert observe(LIVE, end(state), {"p": rows(99)}, now=0).bound == END


def test_lateness_is_strict() -> None:
    assert [is_late(time, 10) for time in (9, 10, 11)] == [True, False, False]
    assert not is_late(-(10**9), None)


def test_several_inputs_are_as_far_as_the_slowest() -> None:
    assert combine([20, 19]) == 19
    assert combine([20, None]) is None
    assert combine([END, 5]) == 5
    assert combine([]) == END


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="delay of a progress policy must not be negative"):
        Policy(Delay(-1))


# --- laws

policies = st.builds(
    Policy,
    rule=st.none() | st.builds(Delay, st.integers(0, 50)),
    idle=st.none() | st.integers(0, 50),
    ahead=st.none() | st.integers(0, 50),
    live=st.booleans(),
    lull=st.booleans(),
)
runs = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(-500, 500), max_size=4)),
        st.integers(0, 40),
    ),
    max_size=12,
)


@given(policies, runs)
def test_progress_never_moves_back_and_survives_json(
    policy: Policy, script: list[tuple[dict[str, list[int]], int]]
) -> None:
    state, now = ProgressState(), 0
    for partitions, passed in script:
        now += passed
        seen = {key: rows(*times, now=now, ahead=policy.ahead or 0) for key, times in partitions.items()}
        after = observe(policy, state, seen, now)
        assert state.bound is None or (after.bound is not None and after.bound >= state.bound)
        assert set(after.partitions) >= set(state.partitions)
        if isinstance(policy.rule, Delay) and after.bound is not None:
            told = [after.high] if after.high is not None else []
            if policy.lull and policy.live and policy.idle is not None:
                told.append(now - policy.idle)
            assert told and after.bound <= max(told) - policy.rule.micros
        assert ProgressState.from_json(json.loads(json.dumps(after.to_json()))) == after
        assert sum(part.ahead_rows for part in after.partitions.values()) == after.ahead_rows
        state = after


def test_rows_late_and_ahead_are_counted_by_partition() -> None:
    state = observe(LIVE, ProgressState(), {"a": replace(rows(10, 500, now=0), late=1), "b": rows(5)}, now=0)
    state = observe(LIVE, state, {"a": rows(700, now=1), "b": replace(rows(1), late=1)}, now=1)
    counts = {name: (part.late_rows, part.ahead_rows) for name, part in state.partitions.items()}
    assert counts == {"a": (1, 2), "b": (1, 0)}


@given(st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=4), min_size=1, max_size=10), st.data())
def test_far_future_rows_never_make_honest_rows_late(jitter: list[list[int]], data: st.DataObject) -> None:
    policy = Policy(Delay(20), idle=None, ahead=50, live=True)
    state, now = ProgressState(), 0
    for offsets in jitter:
        now += data.draw(st.integers(0, 5))
        honest = [now + offset for offset in offsets]
        assert not any(is_late(time, state.bound) for time in honest)
        future = data.draw(st.lists(st.integers(now + 51, now + 10**6), max_size=3))
        state = observe(policy, state, {"p": rows(*honest, *future, now=now, ahead=50)}, now)
