"""Every window type: which windows there are, which rows they hold, when they close."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from anabranch.algebra.progress import END
from anabranch.algebra.windows import (
    Chunks,
    CumulatingWindows,
    Landmark,
    Partitioned,
    Row,
    Rows,
    Sessions,
    SlideByTuple,
    SlidingWindows,
    WindowType,
    ranks,
)
from anabranch.algebra.windows.strategies import COUNT, Fold, answers

EIGHT = [0, 1, 3, 4, 7, 8, 8, 11]


def timed(values: Sequence[int], keys: Sequence[Hashable] | None = None) -> list[Row]:
    return [Row(value, number, keys[number] if keys else None) for number, value in enumerate(values)]


def counts(windows: WindowType[Any], rows: Sequence[Row]) -> dict[Any, int]:
    return {wid: len(windows.extent(wid, rows)) for wid in windows.windows(rows)}


# --- tables of what is where


def test_ten_minutes_every_minute_in_both_directions() -> None:
    windows = SlidingWindows(600, 60, aligned="end")
    row, later = Row(5, 0), Row(60, 1)
    assert list(windows.wids(row)) == list(range(10))
    assert list(windows.wids(later)) == list(range(1, 11))
    assert [windows.extent(wid, [row, later]) for wid in (0, 1, 9, 10)] == [[row], [row, later], [row, later], [later]]


@pytest.mark.parametrize(
    ("size", "slide", "expected"),
    [
        (10, 4, {0: {0, 1}, 2: {0, 1, 2}, 5: {1, 2}, 6: {1, 2, 3}, 10: {2, 3, 4}, 12: {3, 4}}),
        (9, 6, {0: {0}, 2: {0}, 3: {0, 1}, 8: {1}, 11: {1, 2}, 12: {2}, 16: {2, 3}, 18: {3}}),
        (4, 10, {0: set(), 5: set(), 6: {0}, 9: {0}, 10: set(), 16: {1}, 19: {1}}),
    ],
)
def test_extents_of_sizes_that_slides_do_not_divide(size: int, slide: int, expected: dict[int, set[int]]) -> None:
    windows = SlidingWindows(size, slide, aligned="end")
    rows = timed(list(expected))
    found = {row.value: {wid for wid in range(20) if row in windows.extent(wid, rows)} for row in rows}
    assert found == expected


@pytest.mark.parametrize(
    ("size", "slide", "expected"),
    [
        (4, 2, [2, 3, 2, 2, 3, 3, 1]),
        (5, 3, [2, 3, 4, 4, 1]),
        (4, 4, [3, 2, 3]),
        (2, 5, [2, 2]),
    ],
)
def test_counts_of_eight_rows(size: int, slide: int, expected: list[int]) -> None:
    found = counts(SlidingWindows(size, slide, aligned="end"), timed(EIGHT))
    assert found == dict(enumerate(expected))


def test_rows_of_a_key_are_not_the_rows_of_a_window_with_that_key() -> None:
    keys, amounts = "abaababa", [10, 1, 20, 30, 2, 40, 3, 50]
    total: Fold[int] = Fold(0, lambda row: amounts[row.number], lambda one, other: one + other)
    rows = timed(range(8), keys)
    inner = SlidingWindows(3, 2, aligned="end")
    apart = Partitioned(inner)
    assert answers(apart, rows, total) == {
        ((0, "a"), "a"): 30,
        ((0, "b"), "b"): 3,
        ((1, "a"), "a"): 90,
        ((1, "b"), "b"): 5,
        ((2, "a"), "a"): 90,
    }
    of_key = {key: keys.count(key) for key in "ab"}
    assert [wid for wid in apart.windows(rows) if apart.closes(wid, of_key[wid[1]])] == [(0, "a"), (0, "b"), (1, "a")]
    grouped = answers(inner, rows, total)
    assert {at: grouped[at] for at in grouped if at[0] < 5} == {
        (0, "a"): 10, (0, "b"): 1, (1, "a"): 50, (1, "b"): 1, (2, "a"): 70, (2, "b"): 2,
        (3, "a"): 90, (3, "b"): 3, (4, "a"): 50,
    }  # fmt: skip
    assert [wid for wid in inner.windows(rows) if inner.closes(wid, 8)] == [0, 1, 2, 3]


def test_landmark_windows_only_grow() -> None:
    windows = Landmark(3)
    assert counts(windows, timed(EIGHT)) == {0: 2, 1: 4, 2: 7, 3: 8}
    assert len(windows.extent(4, timed(EIGHT))) == 8
    assert windows.closes(1, 6) and not windows.closes(2, 6)
    assert counts(windows, timed([-4, 2])) == {-2: 1, -1: 1, 0: 2}
    assert windows.windows([]) == []


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (SlideByTuple(6), {10: 1, 12: 2, 14: 3, 17: 3, 20: 2, 22: 3}),
        (SlideByTuple(6, every=2), {14: 3, 20: 2, 22: 3}),
        (SlideByTuple(6, every=2, order="rank"), {12: 2, 17: 3, 22: 3}),
    ],
)
def test_windows_that_end_at_rows(windows: SlideByTuple, expected: dict[int, int]) -> None:
    assert counts(windows, timed([10, 14, 12, 20, 17, 22])) == expected


def test_a_window_that_ends_at_a_row_closes_once_progress_is_past_it() -> None:
    assert not SlideByTuple(6).closes(14, 14)
    assert SlideByTuple(6).closes(14, 15)


def test_rows_of_one_value_are_in_the_same_windows() -> None:
    rows = timed([5, 7, 5, 7])
    assert counts(SlideByTuple(3), rows) == {5: 2, 7: 4}
    assert SlideByTuple(3, every=3, order="rank").windows(rows) == [7]
    assert SlideByTuple(3, every=3).windows(rows) == [5]


def test_sessions_are_told_apart_by_key_and_prolonged_by_a_row_at_their_end() -> None:
    rows = timed([0, 5, 3, 11], ["a", "a", "b", "a"])
    windows = Sessions(5)
    assert windows.windows(rows) == [(3, "b"), (0, "a"), (11, "a")]
    assert windows.bounds((0, "a"), rows) == (0, 10)
    assert [windows.closes((0, "a"), progress, rows) for progress in (9, 10, 11)] == [False, False, True]


def test_growing_windows_have_ids_by_their_ends() -> None:
    windows = CumulatingWindows(size=6, step=2, origin=1)
    assert [windows.bounds(wid) for wid in (-1, 0, 1, 2, 3)] == [(-5, 1), (1, 3), (1, 5), (1, 7), (7, 9)]
    assert list(windows.wids(Row(4, 0))) == [1, 2]
    assert list(windows.wids(Row(0, 0))) == [-1]


# --- chunks: by time, by rows and by change


def closed_by_runs(
    windows: WindowType[Any], runs: Sequence[Sequence[Row]], by: str
) -> list[list[tuple[Any, tuple[int, ...]]]]:
    """Which windows each run closes, and the numbers of their rows, when rows come in order; at last, the end closes.

    Progress follows the rows: in values it is the last one, in numbers the next.
    """
    rows: list[Row] = []
    done: set[Any] = set()
    closed = []
    for run in (*runs, None):
        rows += run or []
        progress = END if run is None else len(rows) if by == "number" else max((row.value for row in rows), default=0)
        now = [wid for wid in windows.windows(rows) if wid not in done and windows.closes(wid, progress, rows)]
        closed.append([(wid, tuple(row.number for row in windows.extent(wid, rows))) for wid in now])
        done.update(now)
    return closed


def split(rows: Sequence[Row], cuts: Sequence[bool]) -> list[list[Row]]:
    runs: list[list[Row]] = [[]]
    for row, cut in zip(rows, (*cuts, False), strict=True):
        runs[-1].append(row)
        if cut:
            runs.append([])
    return runs


MINUTES = timed([0, 59, 60, 61, 119, 240, 241])
SEVEN = timed(range(7))
GRAPHS = timed(range(6), ["g1", "g1", "g2", "g1", "g1", "g3"])
CHUNKED = [
    (SlidingWindows(60, 60), MINUTES, "value", [(0, (0, 1)), (1, (2, 3, 4)), (4, (5, 6))]),
    (SlidingWindows(3, 3), SEVEN, "number", [(0, (0, 1, 2)), (1, (3, 4, 5)), (2, (6,))]),
    (SlidingWindows(7, 7), SEVEN, "number", [(0, (0, 1, 2, 3, 4, 5, 6))]),
    (Chunks(), GRAPHS, "number", [(0, (0, 1)), (1, (2,)), (2, (3, 4)), (3, (5,))]),
]


@pytest.mark.parametrize(("windows", "rows", "by", "expected"), CHUNKED)
def test_chunks_do_not_depend_on_how_rows_are_cut_into_runs(
    windows: WindowType[Any], rows: list[Row], by: str, expected: list[tuple[int, tuple[int, ...]]]
) -> None:
    for cuts in product((False, True), repeat=len(rows) - 1):
        closed = closed_by_runs(windows, split(rows, cuts), by)
        assert [chunk for run in closed for chunk in run] == expected


def test_the_last_chunk_stays_open() -> None:
    wids = [[wid for wid, _ in run] for run in closed_by_runs(SlidingWindows(60, 60), [MINUTES], "value")]
    assert wids == [[0, 1], [4]]
    assert [len(run) for run in closed_by_runs(SlidingWindows(3, 3), [SEVEN], "number")] == [2, 1]
    assert [len(run) for run in closed_by_runs(SlidingWindows(7, 7), [SEVEN], "number")] == [1, 0]
    assert [len(run) for run in closed_by_runs(Chunks(), [GRAPHS], "number")] == [3, 1]


def test_a_run_closes_no_chunk_or_many() -> None:
    runs = [MINUTES[:2], MINUTES[2:3], MINUTES[3:], []]
    wids = [[wid for wid, _ in run] for run in closed_by_runs(SlidingWindows(60, 60), runs, "value")]
    assert wids == [[], [0], [1], [], [4]]


def test_a_chunk_closes_when_another_begins_and_not_in_a_gap_of_numbers() -> None:
    rows = [Row(0, 0, "a"), Row(0, 1, "a")]
    assert not Chunks().closes(0, 7, rows)
    rows.append(Row(0, 9, "b"))
    assert not Chunks().closes(0, 9, rows)
    assert Chunks().closes(0, 10, rows)


def test_chunks_before_the_origin_are_rounded_down() -> None:
    windows = SlidingWindows(60, 60)
    assert [list(windows.at(value)) for value in (-61, -60, -1, 0)] == [[-2], [-1], [-1], [0]]


# --- laws


def random_type(chooser: random.Random) -> WindowType[Any]:
    size, slide, origin = chooser.randint(1, 20), chooser.randint(1, 20), chooser.randint(-30, 30)
    sliding = SlidingWindows(size, slide, origin, chooser.choice(["start", "end"]))
    step = chooser.randint(1, 5)
    types: list[WindowType[Any]] = [
        sliding,
        SlidingWindows(size, size, origin),
        CumulatingWindows(step * chooser.randint(1, 5), step, origin),
        Sessions(size),
        Landmark(slide, origin),
        Partitioned(sliding),
        SlideByTuple(size, chooser.randint(1, 4), chooser.choice(["number", "rank"])),
        SlideByTuple(size),
        Chunks(),
    ]
    return chooser.choice(types)


def random_rows(chooser: random.Random, most: int = 25) -> list[Row]:
    reach = chooser.choice([3, 40, 200])
    rows = [
        Row(chooser.randint(-reach, reach), number, chooser.choice(["a", "b", None]), (chooser.randint(0, 9),))
        for number in range(chooser.randint(0, most))
    ]
    return chooser.sample(rows, len(rows))


@pytest.mark.parametrize("seed", range(300))
def test_a_row_is_in_an_extent_exactly_if_the_window_is_among_its_ids(seed: int) -> None:
    chooser = random.Random(seed)
    windows, rows = random_type(chooser), random_rows(chooser)
    known = windows.windows(rows)
    assert len(known) == len(set(known))
    for row in rows:
        assert set(windows.wids(row, rows)) <= set(known)
    for wid in known:
        assert {row for row in rows if wid in windows.wids(row, rows)} == set(windows.extent(wid, rows)) != set()
    ends = [windows.bounds(wid, rows)[1] for wid in known]
    assert ends == sorted(ends)


@pytest.mark.parametrize("seed", range(100))
def test_a_window_of_whatever_type_closes_once_and_stays_closed(seed: int) -> None:
    chooser = random.Random(seed)
    windows, rows = random_type(chooser), random_rows(chooser)
    for wid in windows.windows(rows):
        end = windows.bounds(wid, rows)[1]
        closed = [windows.closes(wid, progress, rows) for progress in (*range(end - 3, end + 30), END)]
        assert closed == sorted(closed) and closed[-1] and not closed[0]


@pytest.mark.parametrize("seed", range(100))
def test_extents_do_not_depend_on_arrival_unless_the_type_says_so(seed: int) -> None:
    chooser = random.Random(seed)
    windows, rows = random_type(chooser), random_rows(chooser)
    while isinstance(windows, (Partitioned, Chunks)) or getattr(windows, "order", "rank") == "number":
        windows = random_type(chooser)
    numbers = chooser.sample(range(len(rows)), len(rows))
    renumbered = [replace(row, number=number) for row, number in zip(rows, numbers, strict=True)]

    def contents(rows: list[Row]) -> dict[Any, list[tuple[int, str]]]:
        extents = {wid: windows.extent(wid, rows) for wid in windows.windows(rows)}
        return {wid: sorted((row.value, str(row.key)) for row in extent) for wid, extent in extents.items()}

    assert contents(renumbered) == contents(rows)


@pytest.mark.parametrize("seed", range(50))
def test_over_time_windows_of_each_key_are_the_groups_of_the_windows(seed: int) -> None:
    chooser = random.Random(seed)
    windows = SlidingWindows(chooser.randint(1, 20), chooser.randint(1, 20), chooser.randint(-9, 9))
    rows = random_rows(chooser)
    apart = {}
    for key in {row.key for row in rows}:
        apart.update(answers(windows, [row for row in rows if row.key == key], COUNT))
    assert apart == answers(windows, rows, COUNT)


def test_ranks_are_places_among_the_rows_of_a_key() -> None:
    rows = [Row(0, 4, "a"), Row(9, 2, "a"), Row(5, 3, "b"), Row(1, 7, "a")]
    assert ranks(rows) == {2: 0, 3: 0, 4: 1, 7: 2}


# --- what is refused, and what is documented


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlidingWindows(0, 1), "size of a window must be positive"),
        (lambda: SlidingWindows(1, 0), "slide of a window must be positive"),
        (lambda: SlidingWindows(1, 1, aligned="middle"), "not at 'middle'"),  # type: ignore[arg-type]
        (lambda: CumulatingWindows(5, 2), "cannot grow by steps of 2"),
        (lambda: CumulatingWindows(5, 0), "cannot grow by steps of 0"),
        (lambda: Sessions(0), "gap of sessions must be positive, not 0"),
        (lambda: Landmark(-1), "slide of landmark windows must be positive, not -1"),
        (lambda: SlideByTuple(0), "size of a window must be positive, not 0"),
        (lambda: SlideByTuple(1, every=0), "from one window to the next must be positive, not 0"),
        (lambda: SlideByTuple(1, order="key"), "not by 'key'"),  # type: ignore[arg-type]
        (lambda: Partitioned(SlidingWindows(2, 2)).relation(Rows("t", "v")), "need the arrival numbers"),
        (lambda: SlideByTuple(1, every=2).relation(Rows("t", "v")), "need the arrival numbers"),
        (lambda: Chunks().relation(Rows("t", "v", "n")), "need a key that changes"),
        (lambda: Chunks().relation(Rows("t", "v", keys=("k",))), "need the arrival numbers"),
    ],
)
def test_what_is_no_window_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_contexts() -> None:
    classes = {
        "CF": [SlidingWindows, CumulatingWindows, Landmark],
        "FCF": [Partitioned, Chunks],
        "FCA": [Sessions, SlideByTuple],
    }
    assert all(each.context == context for context, types in classes.items() for each in types)
