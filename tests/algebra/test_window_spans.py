"""Partials by span and by window: the model against the extents, and its SQL against the model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from anabranch.algebra.windows import Row, SlidingWindows
from anabranch.algebra.windows.spans import COUNT as WINDOWS
from anabranch.algebra.windows.spans import LAST, WEIGHT, Spans, reduced, settled_sql, span_sql, spans, windows_of
from anabranch.algebra.windows.strategies import COUNT, Fold, answers
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


@pytest.mark.parametrize("seed", range(60))
def test_any_runs_in_any_parts_give_what_extents_hold(seed: int) -> None:
    chooser = random.Random(seed)
    windows, runs = some_windows(chooser), some_runs(chooser)
    folds: tuple[Fold[Any], ...] = (COUNT, SUM, HIGHEST)
    for fold in folds:
        parts = [spans(windows, run, fold) for run in runs]
        while len(parts) > 1:  # reduce some of them, and then some of those
            chosen = [parts.pop(chooser.randrange(len(parts))) for _ in range(chooser.randint(2, len(parts)))]
            parts.append(reduced(chosen, fold))
        expected = answers(windows, [row for run in runs for row in run], fold)
        assert windows_of(parts[0], fold) == expected


@pytest.mark.parametrize("seed", range(60))
def test_it_is_never_more_than_a_partial_for_each_window(seed: int) -> None:
    chooser = random.Random(seed)
    windows, runs = some_windows(chooser), some_runs(chooser)
    parts = [spans(windows, run, COUNT) for run in runs]
    for part, run in zip(parts, runs, strict=True):
        by_window = Counter(key for _, key in answers(windows, run, COUNT))
        rows = Counter(row.key for row in run)
        for key, count in Counter(key for key, _, _ in part).items():
            assert count <= min(rows[key], by_window[key])
    assert len(reduced(parts, COUNT)) <= len(answers(windows, [row for run in runs for row in run], COUNT))


def test_a_group_of_more_rows_than_windows_has_a_partial_for_each_window() -> None:
    hop = SlidingWindows(5, 1, aligned="end")
    six = [Row(0, number, "large") for number in range(6)]
    assert spans(hop, six[:5], COUNT) == {("large", 0, 4): 5}
    assert spans(hop, six, COUNT) == {("large", wid, wid): 6 for wid in range(5)}


def test_partials_of_both_kinds_are_one_window() -> None:
    hop = SlidingWindows(10, 5)
    large, small = spans(hop, [Row(7, number) for number in range(3)], COUNT), spans(hop, [Row(8, 3)], COUNT)
    assert (large, small) == ({(None, 0, 0): 3, (None, 1, 1): 3}, {(None, 0, 1): 1})
    # Three partials of two windows: by window they are two.
    assert reduced([large, small], COUNT) == {(None, 0, 0): 4, (None, 1, 1): 4}


@pytest.mark.parametrize("seed", range(12))
def test_sql_does_what_the_model_does(seed: int) -> None:
    chooser = random.Random(seed)
    windows, runs = some_windows(chooser), some_runs(chooser)
    duck = connect()
    duck.execute("CREATE TABLE state (k VARCHAR, _pane BIGINT, _windows BIGINT, n BIGINT)")

    def settle(source: str) -> Spans[int]:
        text = settled_sql(source, windows.slide, ["k"], {"n": "sum(n)"}, {"n": "BIGINT"}, "duckdb")
        duck.execute(f"CREATE OR REPLACE TABLE settled AS SELECT * REPLACE (epoch_us({LAST}) AS {LAST}) FROM ({text})")
        found = {}
        for key, last, count, n in duck.sql(f"SELECT k, {LAST}, {WINDOWS}, n FROM settled").fetchall():
            wid = (last - windows.first_start) // windows.slide
            found[key, wid - count + 1, wid] = n
        return found

    last, count = span_sql("v", windows, "duckdb")
    for run in runs:
        duck.execute("CREATE OR REPLACE TABLE run (k VARCHAR, v BIGINT)")
        values = ", ".join(f"({'NULL' if row.key is None else repr(row.key)}, {row.value})" for row in run)
        duck.execute(f"INSERT INTO run VALUES {values or '(NULL, NULL)'}")
        entries = (
            f"(SELECT k, {last} AS {LAST}, {count} AS {WINDOWS}, count(*) AS n, count(*) AS {WEIGHT} FROM run"
            f" WHERE {count} > 0 GROUP BY ALL)"
        )
        assert settle(entries) == spans(windows, run, COUNT)
        duck.execute("INSERT INTO state SELECT k, _pane, _windows, n FROM settled")
    merged = f"(SELECT k, {LAST}, {WINDOWS}, sum(n) AS n, 1 AS {WEIGHT} FROM state GROUP BY ALL)"
    assert settle(merged) == reduced([spans(windows, run, COUNT) for run in runs], COUNT)
