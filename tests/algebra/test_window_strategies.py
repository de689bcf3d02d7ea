"""The models of how windows are computed: step by step, and all against the extents."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pytest

from anabranch.algebra.progress import END
from anabranch.algebra.windows import Landmark, Partitioned, Row, SlideByTuple, SlidingWindows
from anabranch.algebra.windows.bins import Bins, Deltas
from anabranch.algebra.windows.strategies import (
    COUNT,
    Adaptive,
    Buffering,
    ByPane,
    ByPrefix,
    ByWindow,
    Fold,
    Punctuation,
    Results,
    Strategy,
    answers,
    by_rank,
)

Step = Row | Punctuation
HIGHEST: Fold[float] = Fold(float("-inf"), lambda row: (row.number * 37) % 23, max)
SUM: Fold[int] = Fold(0, lambda row: row.number + 1, lambda one, other: one + other, lambda one, other: one - other)


def script(*steps: tuple[str, int] | int) -> list[Step]:
    """Keys and values are rows in order of arrival, integers are punctuation."""
    made: list[Step] = []
    for step in steps:
        number = sum(isinstance(each, Row) for each in made)
        made.append(Punctuation(step) if isinstance(step, int) else Row(step[1], number, step[0]))
    return made


def rows_of(values: Sequence[int], key: Hashable = None) -> list[Row]:
    return [Row(value, number, key) for number, value in enumerate(values)]


def together(results: Iterable[Results[Any]]) -> Results[Any]:
    """All results. None may come twice."""
    merged: Results[Any] = {}
    for each in results:
        assert not merged.keys() & each.keys()
        merged.update(each)
    return merged


# --- one partial for each window


def test_rows_of_the_eleventh_minute() -> None:
    noon = 12 * 3600
    strategy = ByWindow(SlidingWindows(600, 60, origin=noon, aligned="end"), COUNT)
    strategy.add(Row(noon + 10 * 60 + 30, 0))
    assert [wid for wid, _ in strategy.partials] == list(range(10, 20))
    assert strategy.punctuate(Punctuation(noon + 11 * 60)) == {(10, None): 1}


def test_counts_by_key_of_disordered_rows() -> None:
    strategy = ByWindow(SlidingWindows(4, 2, aligned="end"), COUNT)
    steps = script(("a", 0), ("a", 3), ("b", 1), 2, ("a", 5), ("b", 2), 4, ("b", 4), 8)
    seen = []
    for step in steps:
        if isinstance(step, Row):
            strategy.add(step)
        else:
            seen.append((strategy.punctuate(step), dict(strategy.partials)))
    assert seen == [
        ({(0, "a"): 1, (0, "b"): 1}, {(1, "a"): 2, (1, "b"): 1, (2, "a"): 1}),
        ({(1, "a"): 2, (1, "b"): 2}, {(2, "a"): 2, (2, "b"): 1, (3, "a"): 1}),
        ({(2, "a"): 2, (2, "b"): 2, (3, "a"): 1, (3, "b"): 1}, {}),
    ]


def test_slack_loses_rows_for_one_window_or_for_all_of_theirs() -> None:
    windows = SlidingWindows(4, 2, aligned="end")
    rows = rows_of([0, 3, 5, 2, 8])

    def counted(late: Any) -> list[int]:
        strategy = Buffering(windows, COUNT, slack=1, late=late)
        found = together([*strategy.run(rows), strategy.punctuate(Punctuation(END))])
        assert [wid for wid, _ in sorted(found)] == list(range(6))
        return [count for _, count in sorted(found.items())]

    assert list(answers(windows, rows, COUNT).values()) == [1, 3, 3, 1, 1, 1]
    assert counted("generous") == [1, 2, 3, 1, 1, 1]
    assert counted("consistent") == [1, 2, 2, 1, 1, 1]


# --- windows that end at rows


def starts_and_ends(strategy: Bins[int]) -> tuple[dict[int, int], dict[int, int]]:
    starts = {at: partial for at, partial in sorted(strategy.bins.items()) if at in strategy.numbers}
    return starts, {at: partial for at, partial in sorted(strategy.bins.items()) if at not in starts}


def test_bins_of_rows_as_they_come() -> None:
    strategy = Bins(SlideByTuple(10), COUNT)
    expected: list[tuple[int, dict[int, int], dict[int, int]]] = [
        (0, {0: 1}, {10: 0}),
        (4, {0: 1, 4: 2}, {10: 1, 14: 0}),
        (7, {0: 1, 4: 2, 7: 3}, {10: 2, 14: 1, 17: 0}),
        (13, {0: 1, 4: 2, 7: 3, 13: 3}, {10: 2, 14: 2, 17: 1, 23: 0}),
        (2, {0: 1, 2: 2, 4: 3, 7: 4, 13: 3}, {10: 3, 12: 2, 14: 2, 17: 1, 23: 0}),
    ]
    for number, (value, starts, ends) in enumerate(expected):
        strategy.add(Row(value, number))
        assert starts_and_ends(strategy) == (starts, ends)
    assert strategy.punctuate(Punctuation(5)) == {(0, None): 1, (2, None): 2, (4, None): 3}
    assert strategy.bins[4] == 3 and min(strategy.bins) == 4
    deltas = Deltas(SlideByTuple(10), COUNT)
    deltas.run(rows_of([0, 4, 7, 13, 2]))
    assert {wid: deltas.value_at(wid) for wid in (0, 2, 4, 7, 13)} == {0: 1, 2: 2, 4: 3, 7: 4, 13: 3}


@pytest.mark.parametrize("make", [Bins, Deltas])
def test_what_is_purged_still_counts_in_the_next_window(make: Callable[..., Strategy[int]]) -> None:
    strategy = make(SlideByTuple(5), COUNT)
    assert strategy.run([Row(10, 0), Punctuation(12), Row(13, 1), Punctuation(14)]) == [
        {}, {(10, None): 1}, {}, {(13, None): 2},
    ]  # fmt: skip


def test_deltas_need_an_aggregate_that_can_be_subtracted() -> None:
    with pytest.raises(ValueError, match="cannot be subtracted"):
        Deltas(SlideByTuple(5), HIGHEST)


# --- panes


def test_windows_out_of_panes() -> None:
    windows = SlidingWindows(9, 6, aligned="end")
    values = [5, 9, 1, 3, 8, 2, 6, 4]
    highest: Fold[float] = Fold(float("-inf"), lambda row: values[row.number], max)
    rows = rows_of([0, 2, 4, 7, 8, 10, 13, 17])
    strategy = ByPane(windows, highest)
    strategy.run(rows)
    assert [strategy.panes[pane, None] for pane in range(0, 18, 3)] == [9, 1, 8, 2, 6, 4]
    found = strategy.punctuate(Punctuation(END))
    assert found == {(0, None): 9, (1, None): 8, (2, None): 6, (3, None): 4} == answers(windows, rows, highest)
    assert strategy.held == 0


# --- groups that hold rows or partials


def test_a_small_group_holds_its_row_and_a_large_one_partials() -> None:
    strategy = Adaptive(SlidingWindows(5, 1, aligned="end"), COUNT, up=5, down=4)
    for number in range(5):
        strategy.add(Row(0, number, "large"))
    strategy.add(Row(0, 5, "small"))
    assert (len(strategy.rows), strategy.groups["large"].eager) == (6, False)
    strategy.add(Row(0, 6, "large"))
    assert [row.key for row in strategy.rows] == ["small"]
    assert strategy.groups["large"].eager and len(strategy.groups["large"].partials) == 5


def test_a_row_leaves_the_volume_with_the_last_of_its_windows() -> None:
    strategy = Adaptive(SlidingWindows(5, 1, aligned="end"), COUNT, up=0, down=0)
    strategy.add(Row(2, 0))
    group = strategy.groups[None]
    assert sorted(group.partials) == [2, 3, 4, 5, 6]
    assert group.ending == {6: 1}
    assert list(strategy.punctuate(Punctuation(6))) == [(wid, None) for wid in (2, 3, 4, 5)]
    assert group.volume == 1
    assert strategy.punctuate(Punctuation(7)) == {(6, None): 1}
    assert group.volume == 0 and not strategy.groups


def test_a_result_in_transition_is_made_of_partials_and_rows() -> None:
    strategy = Adaptive(SlidingWindows(10, 5), COUNT, up=2, down=2)
    strategy.run([Row(0, 0), Row(1, 1), Row(2, 2), Row(7, 3)])
    assert strategy.groups[None].eager
    assert strategy.punctuate(Punctuation(10)) == {(-1, None): 3, (0, None): 4}
    assert not strategy.groups[None].eager
    strategy.add(Row(12, 4))
    assert len(strategy.rows) == len(strategy.groups[None].partials) == 1
    assert strategy.punctuate(Punctuation(15)) == {(1, None): 2}


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="large above 1 rows and small below 2"):
        Adaptive(SlidingWindows(5, 1), COUNT, up=1, down=2)
    with pytest.raises(ValueError, match="slack must not be negative"):
        Buffering(SlidingWindows(5, 1), COUNT, slack=-1)


# --- laws


def random_stream(chooser: random.Random, keys: Sequence[Hashable] = ("a", "b", None)) -> list[Step]:
    """Rows that are more or less in order, with punctuation that no later row breaks, and the end."""
    reach, disorder = chooser.choice([10, 60, 300]), chooser.choice([0, 5, 50])
    values = sorted(chooser.randint(-reach, reach) for _ in range(chooser.randint(0, 40)))
    values.sort(key=lambda value: value + chooser.randint(0, disorder))
    steps: list[Step] = []
    for number, value in enumerate(values):
        steps.append(Row(value, number, chooser.choice(keys)))
        if chooser.random() < 0.3:
            lowest = min(values[number + 1 :], default=reach)
            steps.append(Punctuation(lowest - chooser.choice([0, 0, 3])))
    return [*steps, Punctuation(END)]


def sliding_strategies(windows: SlidingWindows, chooser: random.Random, fold: Fold[Any]) -> list[Strategy[Any]]:
    up = chooser.randint(0, 6)
    return [
        ByWindow(windows, fold),
        ByPane(windows, fold),
        Buffering(windows, fold),
        Adaptive(windows, fold, up, chooser.randint(0, up)),
    ]


def random_sliding(chooser: random.Random) -> SlidingWindows:
    aligned: Any = chooser.choice(["start", "end"])
    return SlidingWindows(chooser.randint(1, 24), chooser.randint(1, 24), chooser.randint(-30, 30), aligned)


def rows_in(steps: Sequence[Step]) -> list[Row]:
    return [step for step in steps if isinstance(step, Row)]


FOLDS: list[Fold[Any]] = [COUNT, SUM, HIGHEST]


@pytest.mark.parametrize("fold", FOLDS, ids=["count", "sum", "max"])
@pytest.mark.parametrize("seed", range(60))
def test_all_strategies_give_the_aggregates_of_the_extents(seed: int, fold: Fold[Any]) -> None:
    chooser = random.Random(seed)
    windows, steps = random_sliding(chooser), random_stream(chooser)
    expected = answers(windows, rows_in(steps), fold)
    for strategy in sliding_strategies(windows, chooser, fold):
        assert together(strategy.run(steps)) == expected
        assert strategy.held == 0


@pytest.mark.parametrize("fold", FOLDS, ids=["count", "sum", "max"])
@pytest.mark.parametrize("seed", range(30))
def test_partitioned_windows_are_sliding_windows_over_ranks(seed: int, fold: Fold[Any]) -> None:
    chooser = random.Random(seed)
    windows, rows = random_sliding(chooser), rows_in(random_stream(chooser))
    expected = {(wid[0], key): value for (wid, key), value in answers(Partitioned(windows), rows, fold).items()}
    for strategy in sliding_strategies(windows, chooser, fold):
        assert together(strategy.run([*by_rank(rows), Punctuation(END)])) == expected


@pytest.mark.parametrize("fold", FOLDS, ids=["count", "sum", "max"])
@pytest.mark.parametrize("seed", range(40))
def test_landmark_windows_by_running_totals(seed: int, fold: Fold[Any]) -> None:
    chooser = random.Random(seed)
    windows, steps = Landmark(chooser.randint(1, 24), chooser.randint(-30, 30)), random_stream(chooser)
    strategy = ByPrefix(windows, fold)
    assert together(strategy.run(steps)) == answers(windows, rows_in(steps), fold)
    assert strategy.held <= 3


def test_a_late_row_is_in_the_running_totals_from_the_next_window_on() -> None:
    strategy = ByPrefix(Landmark(10), COUNT)
    steps = [Row(5, 0), Row(25, 1), Punctuation(20), Row(3, 2), Punctuation(30)]
    assert strategy.run(steps)[2:] == [{(0, None): 1, (1, None): 1}, {}, {(2, None): 3}]


@pytest.mark.parametrize("fold", FOLDS, ids=["count", "sum", "max"])
@pytest.mark.parametrize("seed", range(60))
def test_windows_that_end_at_rows_by_bins_and_by_deltas(seed: int, fold: Fold[Any]) -> None:
    chooser = random.Random(seed)
    order: Any = chooser.choice(["number", "rank"])
    windows, steps = SlideByTuple(chooser.randint(1, 30), chooser.randint(1, 4), order), random_stream(chooser, [None])
    expected = answers(windows, rows_in(steps), fold)
    assert together(Bins(windows, fold).run(steps)) == expected
    if fold.subtract is not None:
        assert together(Deltas(windows, fold).run(steps)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_neither_order_of_arrival_nor_the_cut_into_runs_changes_a_final_result(seed: int) -> None:
    """Progress is told after each run only; a run is any part of the rows."""
    chooser = random.Random(seed)
    windows, rows = random_sliding(chooser), rows_in(random_stream(chooser))
    expected = answers(windows, rows, SUM)
    shuffled = chooser.sample(rows, len(rows))
    steps: list[Step] = []
    while shuffled:
        size = chooser.randint(1, len(shuffled))
        run, shuffled = shuffled[:size], shuffled[size:]
        steps += [*run, Punctuation(min((row.value for row in shuffled), default=END))]
    for strategy in sliding_strategies(windows, chooser, SUM):
        assert together(strategy.run(steps)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_no_result_comes_before_its_punctuation_and_none_is_missing_after(seed: int) -> None:
    chooser = random.Random(seed)
    windows, steps = random_sliding(chooser), random_stream(chooser)
    for strategy in sliding_strategies(windows, chooser, COUNT):
        given: Results[int] = {}
        for place, step in enumerate(steps):
            found = strategy.add(step) if isinstance(step, Row) else strategy.punctuate(step)
            given.update(found)
            if isinstance(step, Row):
                assert not found
                continue
            assert all(windows.closes(wid, step.value) for wid, _ in found)
            seen = answers(windows, rows_in(steps[: place + 1]), COUNT)
            passed = max(each.value for each in steps[: place + 1] if isinstance(each, Punctuation))
            assert given == {at: count for at, count in seen.items() if windows.closes(at[0], passed)}


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_break_a_punctuation_count_where_windows_are_open(seed: int) -> None:
    chooser = random.Random(seed)
    windows = random_sliding(chooser)
    steps = random_stream(chooser)[:-1]
    steps = [*chooser.sample(steps, len(steps)), Punctuation(END)]
    results = [together(strategy.run(steps)) for strategy in sliding_strategies(windows, chooser, SUM)]
    assert all(each == results[0] for each in results)


@pytest.mark.parametrize("seed", range(40))
def test_as_many_windows_are_open_as_lie_between_progress_and_the_highest_row(seed: int) -> None:
    chooser = random.Random(seed)
    size, slide, origin = chooser.randint(1, 24), chooser.randint(1, 24), chooser.randint(-30, 30)
    strategy = ByWindow(SlidingWindows(size, slide, origin, "end"), COUNT)
    highest, passed = -END, -END
    for step in random_stream(chooser)[:-1]:
        if isinstance(step, Row):
            highest = max(highest, step.value)
            strategy.add(step)
            continue
        strategy.punctuate(step)
        passed = max(passed, step.value)
        still = {wid for wid, _ in strategy.partials}
        assert len(still) <= max(0, (highest + size - origin) // slide - (passed - origin) // slide)


@pytest.mark.parametrize("seed", range(40))
def test_purging_at_every_punctuation_gives_what_purging_at_the_end_gives(seed: int) -> None:
    chooser = random.Random(seed)
    windows, steps = random_sliding(chooser), random_stream(chooser)
    at_the_end = [*rows_in(steps), Punctuation(END)]
    for fold in FOLDS:
        often = sliding_strategies(windows, random.Random(seed), fold)
        once = sliding_strategies(windows, random.Random(seed), fold)
        for one, other in zip(often, once, strict=True):
            assert together(one.run(steps)) == together(other.run(at_the_end))
    by_tuple = SlideByTuple(chooser.randint(1, 30))
    for make in (Bins, Deltas):
        assert together(make(by_tuple, SUM).run(steps)) == together(make(by_tuple, SUM).run(at_the_end))
