"""Partials by span and by window: the model against the extents, and its SQL against the model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from anabranch.algebra.windows import Row, SlidingWindows
from anabranch.algebra.windows.costs import Thresholds
from anabranch.algebra.windows.spans import COUNT as WINDOWS
from anabranch.algebra.windows.spans import (
    ENDING,
    FORM,
    LAST,
    WEIGHT,
    Groups,
    Judging,
    Spans,
    known_sql,
    reduced,
    settled_sql,
    span_sql,
    spans,
    windows_of,
)
from anabranch.algebra.windows.strategies import COUNT, Adaptive, Fold, Punctuation, answers
from anabranch.duck import connect

SUM: Fold[int] = Fold(0, lambda row: row.number + 1, lambda one, other: one + other, lambda one, other: one - other)
HIGHEST: Fold[float] = Fold(float("-inf"), lambda row: (row.number * 37) % 23, max)


def some_windows(chooser: random.Random) -> SlidingWindows:
    """Tumbling, with a slide that divides the size or does not, and with gaps."""
    return SlidingWindows(
        chooser.randint(1, 12), chooser.randint(1, 12), chooser.randint(-5, 5), chooser.choice(["start", "end"])
    )


def some_runs(chooser: random.Random) -> list[list[Row]]:
    reach = chooser.choice([3, 20, 80])
    rows = [
        Row(chooser.randint(-reach, reach), number, chooser.choice(["a", "a", "a", "b", None]))
        for number in range(chooser.randint(0, 50))
    ]
    chooser.shuffle(rows)
    cuts = sorted(chooser.randint(0, len(rows)) for _ in range(chooser.randint(0, 6)))
    return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def some_groups(chooser: random.Random) -> set[Any]:
    return {key for key in ("a", "b", None) if chooser.random() < 0.4}


@pytest.mark.parametrize("seed", range(60))
def test_any_runs_in_any_parts_give_what_extents_hold(seed: int) -> None:
    chooser = random.Random(seed)
    windows, runs = some_windows(chooser), some_runs(chooser)
    folds: tuple[Fold[Any], ...] = (COUNT, SUM, HIGHEST)
    for fold in folds:
        parts = [spans(windows, run, fold, some_groups(chooser)) for run in runs]
        while len(parts) > 1:  # reduce some of them, and then some of those
            chosen = [parts.pop(chooser.randrange(len(parts))) for _ in range(chooser.randint(2, len(parts)))]
            parts.append(reduced(chosen, fold))
        expected = answers(windows, [row for run in runs for row in run], fold)
        assert windows_of(parts[0], fold) == expected


@pytest.mark.parametrize("seed", range(60))
def test_it_is_never_more_than_a_partial_for_each_window(seed: int) -> None:
    chooser = random.Random(seed)
    windows, runs = some_windows(chooser), some_runs(chooser)
    large = [some_groups(chooser) for _ in runs]
    parts = [spans(windows, run, COUNT, groups) for run, groups in zip(runs, large, strict=True)]
    for part, run, groups in zip(parts, runs, large, strict=True):
        by_window = Counter(key for _, key in answers(windows, run, COUNT))
        rows = Counter(row.key for row in run)
        for key, count in Counter(key for key, _, _ in part).items():
            assert count <= by_window[key]
            assert key in groups or count <= rows[key]
    assert len(reduced(parts, COUNT)) <= len(answers(windows, [row for run in runs for row in run], COUNT))


def test_a_group_with_more_rows_than_windows_are_open_has_a_partial_for_each_window() -> None:
    hop = SlidingWindows(5, 1, aligned="end")
    six = [Row(0, number, "large") for number in range(6)]
    for run, expected in (
        (six[:5], {("large", 0, 4): 5}),
        (six, {("large", wid, wid): 6 for wid in range(5)}),
    ):
        assert spans(hop, run, COUNT, Groups(hop).take(run, Thresholds.of(hop))) == expected


def test_partials_of_both_kinds_are_one_window() -> None:
    hop = SlidingWindows(10, 5)
    large, small = spans(hop, [Row(7, number) for number in range(3)], COUNT, {None}), spans(hop, [Row(8, 3)], COUNT)
    assert (large, small) == ({(None, 0, 0): 3, (None, 1, 1): 3}, {(None, 0, 1): 1})
    # Three partials of two windows: by window they are two.
    assert reduced([large, small], COUNT) == {(None, 0, 0): 4, (None, 1, 1): 4}


@pytest.mark.parametrize("seed", range(40))
def test_run_by_run_and_row_by_row_groups_are_large_at_the_same_time(seed: int) -> None:
    """Rows one by one are runs of one row: the groups then are those of the strategy that decides with each row."""
    chooser = random.Random(seed)
    windows = SlidingWindows(chooser.randint(2, 12), chooser.randint(1, 3))
    limits = Thresholds.of(windows, spread=chooser.randint(0, 6))
    groups, model = Groups(windows), Adaptive(windows, COUNT, limits.up, limits.down)
    value = 0
    for number in range(120):
        value += chooser.choice([0, 0, 0, 1, 1, 6])
        row = Row(value, number, chooser.choice("aaab"))
        at = windows.at(row.value)
        if len(at) > limits.up:  # what a run would have to pay at once is nothing that a row knows
            continue
        large = groups.take([row], limits)
        model.add(row)
        assert (row.key in large) == (row.key in model.groups and model.groups[row.key].eager)
        if chooser.random() < 0.3:
            groups.advance(value)
            model.punctuate(Punctuation(value))
            assert {key: groups.volume(key) for key in "ab" if groups.volume(key)} == {
                key: group.volume for key, group in model.groups.items()
            }


def test_a_row_counts_until_the_last_of_its_windows_closes() -> None:
    hop = SlidingWindows(5, 1, aligned="end")
    groups = Groups(hop)
    groups.take([Row(2, 0)], Thresholds.of(hop))  # in windows 2 to 6
    groups.advance(6)
    assert groups.volume(None) == 1
    groups.advance(7)
    assert groups.volume(None) == 0 and not groups.large


@pytest.mark.parametrize("seed", range(24))
def test_sql_does_what_the_model_does(seed: int) -> None:
    """Run by run, by what the partials before a run say of its groups, with progress after some runs; what the reducer
    makes of them on the way changes nothing of that."""
    chooser = random.Random(seed)
    windows, runs = some_windows(chooser), some_runs(chooser)
    limits = Thresholds.of(windows, spread=chooser.choice([0, 0, 10]))
    limits = chooser.choice([limits, Thresholds(2, 1)])
    groups, bound, parts = Groups(windows), None, list[Spans[int]]()
    duck = connect()
    duck.execute(
        f"CREATE TEMP TABLE state (k VARCHAR, {LAST} TIMESTAMPTZ, _windows BIGINT, {ENDING} BIGINT, {FORM} BIGINT,"
        " n BIGINT)"
    )

    def settle(source: str, judging: Judging | None = None) -> Spans[int]:
        known = None
        if judging is not None:
            known = f"({known_sql('state', ['k'], judging.open_after)})"
        text = settled_sql(source, windows.slide, ["k"], {"n": "sum(n)"}, {"n": "BIGINT"}, "duckdb", judging, known)
        duck.execute(f"CREATE OR REPLACE TEMP TABLE settled AS {text}")
        found = {}
        for key, last, count, n in duck.sql(f"SELECT k, epoch_us({LAST}), {WINDOWS}, n FROM settled").fetchall():
            wid = (last - windows.first_start) // windows.slide
            found[key, wid - count + 1, wid] = n
        return found

    def reduce() -> Spans[int]:
        merged = (
            f"(SELECT k, epoch_us({LAST}) AS {LAST}, {WINDOWS}, sum(n) AS n, sum({ENDING}) AS {WEIGHT},"
            f" max({FORM}) AS {FORM} FROM state GROUP BY k, state.{LAST}, {WINDOWS})"
        )
        return settle(merged)

    last, count = span_sql("v", windows, "duckdb")
    for number, run in enumerate(runs):
        duck.execute("CREATE OR REPLACE TEMP TABLE run (k VARCHAR, v BIGINT)")
        values = ", ".join(f"({'NULL' if row.key is None else repr(row.key)}, {row.value})" for row in run)
        duck.execute(f"INSERT INTO run VALUES {values or '(NULL, NULL)'}")
        entries = (
            f"(SELECT k, {last} AS {LAST}, {count} AS {WINDOWS}, count(*) AS n, count(*) AS {WEIGHT} FROM run"
            f" WHERE {count} > 0 GROUP BY ALL)"
        )
        judging = Judging(limits, None if bound is None else bound - windows.size, number)
        parts.append(spans(windows, run, COUNT, groups.take(run, limits)))
        assert settle(entries, judging) == parts[-1]
        duck.execute("INSERT INTO state FROM settled")
        if chooser.random() < 0.2:
            parts = [reduced(parts, COUNT)]
            assert reduce() == parts[0]
            duck.execute("CREATE OR REPLACE TEMP TABLE state AS FROM settled")
        if chooser.random() < 0.5:
            bound = max(-80 if bound is None else bound, chooser.randint(-80, 80))
            groups.advance(bound)
    assert reduce() == reduced(parts, COUNT)
