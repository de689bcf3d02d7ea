"""The rules of progress one by one, and each of them key by key."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.algebra import progress
from anabranch.algebra.progress import (
    EVERY_KEY,
    Computed,
    Delay,
    Lagging,
    Percentile,
    Policy,
    ProgressState,
    Punctuation,
    Rule,
    Seen,
    TooManyKeys,
    end,
    is_late,
    observe,
    own_bounds,
    tick,
)

ORDERED = Policy(Delay(0))
MARKED = Policy(Punctuation("mark"))


def seen(*times: int, value: int | None = None) -> Seen:
    """Rows with these event times, of which the rule computes at most `value`."""
    high = max(times, default=None)
    return Seen(high, high, len(times), 0, times, value, value)


def bounds(policy: Policy, *runs: Seen) -> list[int | None]:
    """The bound after each run."""
    state, found = ProgressState(), []
    for run in runs:
        state = observe(policy, state, {"": run}, now=0)
        found.append(state.bound)
    return found


def test_ordered_rows_are_as_far_as_the_last() -> None:
    assert bounds(ORDERED, seen(1, 2, 2), seen(2, 2), seen(5)) == [2, 2, 5]
    assert not is_late(2, 2), "an equal time in the next run is not late"


def test_lagging_rows_leave_out_the_last_ones() -> None:
    assert bounds(Policy(Lagging(2)), seen(5), seen(9), seen(3), seen(7), seen(4, 4)) == [None, None, 5, 9, 9]
    assert bounds(Policy(Lagging(1)), seen(5, 9, 3, 7)) == [9]
    with pytest.raises(ValueError, match="at least 1 row, not by 0"):
        Lagging(0)


@given(st.integers(1, 6), st.lists(st.lists(st.integers(-50, 50), max_size=7), max_size=8))
def test_lagging_is_the_highest_of_all_rows_but_the_last(rows: int, runs: list[list[int]]) -> None:
    """However the rows are cut into runs, the bound is the highest of all that came but the last n."""
    state = ProgressState()
    for run in runs:
        state = observe(Policy(Lagging(rows)), state, {"": seen(*run)}, now=0)
        state = ProgressState.from_json(json.loads(json.dumps(state.to_json())))
    times = [time for run in runs for time in run]
    assert state.bound == max(times[:-rows], default=None)


def test_a_computed_bound_is_the_highest_value() -> None:
    rule = Policy(Computed("date_trunc('hour', ts)"))
    assert bounds(rule, seen(61, 70, value=60), seen(59, value=0), seen(125, value=120)) == [60, 60, 120]


def test_punctuation_moves_the_bound_and_data_does_not() -> None:
    # Four rows, a mark at 12:00, two more rows; one that comes from before it would be late.
    rows = [11 * 3600 + 59 * 60 + 23, 11 * 3600 + 58 * 60, 11 * 3600 + 59 * 60 + 53, 11 * 3600 + 59 * 60 + 55]
    noon = 12 * 3600
    found = bounds(MARKED, seen(*rows), seen(noon, value=noon), seen(noon + 23, noon + 53))
    assert found == [None, noon, noon]
    assert is_late(noon - 1, found[-1]) and not is_late(noon + 23, found[-1])


def test_a_mark_among_the_rows_of_a_run_counts_at_its_end() -> None:
    state = observe(MARKED, ProgressState(), {"": seen(3, 20, 4, value=20)}, now=0)
    assert (state.bound, state.high) == (20, 20)


@pytest.mark.parametrize("rule", [Punctuation("mark"), Computed("ts - INTERVAL 1 SECOND * 2")])
def test_one_value_from_the_future_moves_nothing(rule: Rule) -> None:
    policy = Policy(rule, ahead=10, live=True)
    honest = Seen(high=5, highest=900, rows=3, ahead=1, value=4, highest_value=900)
    state = observe(policy, ProgressState(), {"": honest}, now=0)
    assert (state.bound, state.ahead_rows) == (4, 1)
    future = Seen(high=None, highest=900, rows=1, ahead=1, value=None, highest_value=900)
    for expected in (4, 4, 900):  # three runs of nothing else, and it is the clock that is doubted
        state = observe(policy, state, {"": future}, now=0)
        assert state.bound == expected
    assert state.ahead_rows == 4


# ---- by key

KEYED = Policy(Delay(0), keyed=True)


def test_the_least_key_is_the_progress_of_the_stream() -> None:
    state = observe(KEYED, ProgressState(), {"=a": seen(10), "=b": seen(4)}, now=0)
    assert state.bound == 4
    assert own_bounds(KEYED, state) == {"=a": 10}
    state = observe(KEYED, state, {"=b": seen(30)}, now=0)
    assert state.bound == 10
    assert own_bounds(KEYED, state) == {"=b": 30}
    state = observe(KEYED, state, {"=c": seen(1)}, now=0)
    assert state.bound == 10, "a new key takes nothing back"
    assert own_bounds(KEYED, end(state)) == {}


def test_keys_idle_by_the_clock_in_a_live_stream() -> None:
    policy = Policy(Delay(0), idle=30, live=True, keyed=True)
    state = observe(policy, ProgressState(), {"=a": seen(10), "=b": seen(4)}, now=0)
    state = observe(policy, state, {"=a": seen(50)}, now=20)
    assert state.bound == 4
    state = tick(policy, state, now=31)
    assert state.bound == 50
    assert set(state.partitions) == {"=a"}, "a key that is idle and behind has nothing more to say"


def test_keys_idle_by_the_times_of_the_rows_elsewhere() -> None:
    policy = Policy(Delay(0), idle=30, keyed=True)
    state = observe(policy, ProgressState(), {"=a": seen(10), "=b": seen(4)}, now=0)
    assert tick(policy, state, now=10**9).bound == 4
    assert observe(policy, state, {"=a": seen(33)}, now=0).bound == 4
    assert observe(policy, state, {"=a": seen(34)}, now=0).bound == 34


def test_punctuation_by_key() -> None:
    policy = Policy(Punctuation("mark"), keyed=True)
    state = observe(policy, ProgressState(), {"=a": seen(5, 10, value=10), "=b": seen(7)}, now=0)
    assert state.bound is None, "nobody has said anything about b"
    assert own_bounds(policy, state) == {"=a": 10}
    state = observe(policy, state, {"=b": seen(8, value=8)}, now=0)
    assert (state.bound, own_bounds(policy, state)) == (8, {"=a": 10})
    state = observe(policy, state, {EVERY_KEY: seen(9, value=9)}, now=0)
    assert (state.bound, own_bounds(policy, state)) == (9, {"=a": 10}), "a mark without a key is for all of them"
    assert set(state.partitions) == {"=a", "=b"}


@pytest.mark.parametrize(
    ("rule", "bound"), [(Lagging(1), 8), (Percentile(2, 50), 8), (Delay(1), 8), (Computed("ts"), 5)]
)
def test_every_rule_goes_by_key(rule: Rule, bound: int) -> None:
    policy = Policy(rule, keyed=True)
    run = {"=a": seen(7, 8, 9, value=5), "=b": seen(100, 200, 200, value=100)}
    state = observe(policy, ProgressState(), run, now=0)
    assert state.bound == bound
    assert own_bounds(policy, state)["=b"] >= 100


def test_there_is_a_limit_to_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST_KEYS", 5)
    five = {f"={number}": seen(10) for number in range(5)}
    state = observe(KEYED, ProgressState(), five, now=0)
    with pytest.raises(TooManyKeys, match="6 keys and event times in the record of every run; at most 5"):
        observe(KEYED, state, {"=5": seen(10)}, now=0)
    with pytest.raises(TooManyKeys, match="would keep 6"):
        observe(Policy(Lagging(2), keyed=True), ProgressState(), {"=a": seen(1, 2), "=b": seen(1, 2)}, now=0)


rules = st.one_of(
    st.builds(Delay, st.integers(0, 20)),
    st.builds(Lagging, st.integers(1, 4)),
    st.builds(Percentile, st.integers(1, 4), st.integers(0, 100), st.integers(1, 3)),
    st.just(Punctuation("mark")),
)
keyed_runs = st.lists(
    st.dictionaries(
        st.sampled_from(["=a", "=b", "", EVERY_KEY]), st.lists(st.integers(-50, 50), min_size=1, max_size=3)
    ),
    max_size=10,
)


@given(rules, st.none() | st.integers(0, 40), keyed_runs)
def test_no_bound_of_any_key_moves_back(rule: Rule, idle: int | None, script: list[dict[str, list[int]]]) -> None:
    """What was said of a key or of the stream stays said, and the state survives JSON."""
    policy = Policy(rule, idle=idle, keyed=True)
    state = ProgressState()
    for run in script:
        marks = {key: seen(*times, value=max(times)) for key, times in run.items()}
        after = observe(policy, state, marks, now=0)
        assert state.bound is None or (after.bound is not None and after.bound >= state.bound)
        least = -progress.END if after.bound is None else after.bound
        for key, own in own_bounds(policy, state).items():
            assert max(least, own_bounds(policy, after).get(key, least)) >= own
        assert ProgressState.from_json(json.loads(json.dumps(after.to_json()))) == after
        state = after
