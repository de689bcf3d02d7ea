"""Chunks of two streams pair up by their labels: whatever is cut, kept or computed when read, the pairs of an epoch are
those that a plain double loop over the chunks finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

import pytest

from anabranch.testing import Harness

EPOCH = datetime(1970, 1, 1)
Row = tuple[int, str, datetime]
Pair = tuple[int, int, int]  # the epoch, and a row of each side


def pairs_of(m: int, n: int, epoch: int, *, once: bool = False) -> set[tuple[int, int]]:
    """The labels that meet in an epoch, the newest `m` with the newest `n`; each pair in its first epoch alone."""
    found = {(i, j) for i in range(epoch - m + 1, epoch + 1) for j in range(epoch - n + 1, epoch + 1)}
    return {(i, j) for i, j in found if max(i, j) == epoch} if once else found


def joined(left: Sequence[int], right: Sequence[int], m: int, n: int, *, once: bool) -> Counter[Pair]:
    """The pairs of rows, from the labels of all rows of both sides."""
    found: Counter[Pair] = Counter()
    for epoch in {*left, *right}:  # an epoch without a new row is none
        labels = pairs_of(m, n, epoch, once=once)
        found.update((epoch, x, y) for x, i in enumerate(left) for y, j in enumerate(right) if (i, j) in labels)
    return found


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        (1, 1, "00|11|22|33"),
        (2, 1, "00|01,11|12,22|23,33"),
        (1, 3, "00|10,11|20,21,22|31,32,33"),
        (2, 2, "00|00,01,10,11|11,12,21,22|22,23,32,33"),
        (2, 3, "00|00,01,10,11|10,11,12,20,21,22|21,22,23,31,32,33"),
    ],
)
def test_pairs_of_labels(m: int, n: int, expected: str) -> None:
    found = [sorted(f"{i}{j}" for i, j in pairs_of(m, n, epoch) if min(i, j) >= 0) for epoch in range(4)]
    assert "|".join(",".join(each) for each in found) == expected


@pytest.mark.parametrize("m", range(1, 5))
@pytest.mark.parametrize("n", range(1, 5))
def test_once_is_a_band_of_labels(m: int, n: int) -> None:
    """A pair that comes once is one whose labels are near enough; in every epoch it comes as often as both are seen."""
    every = Counter(pair for epoch in range(-9, 20) for pair in pairs_of(m, n, epoch))
    once = Counter(pair for epoch in range(-9, 20) for pair in pairs_of(m, n, epoch, once=True))
    for i in range(8):
        for j in range(8):
            assert once[i, j] == (-(m - 1) <= i - j <= n - 1)
            assert every[i, j] == max(0, min(i + m - 1, j + n - 1) - max(i, j) + 1)


LEFT, RIGHT = ["ab", "b", "ca", "b"], ["b", "ab", "c", "a"]


@pytest.mark.parametrize(
    ("m", "n", "every", "once"),
    [
        (1, 1, [1, 1, 1, 0], [1, 1, 1, 0]),
        (2, 1, [1, 3, 1, 1], [1, 3, 1, 1]),
        (1, 2, [1, 2, 2, 0], [1, 2, 2, 0]),
        (1, 4, [1, 2, 2, 2], [1, 2, 2, 2]),
        (2, 2, [1, 5, 3, 2], [1, 4, 2, 1]),
        (4, 4, [1, 5, 7, 11], [1, 4, 2, 4]),
    ],
)
def test_how_many_rows_an_epoch_gives(m: int, n: int, every: list[int], once: list[int]) -> None:
    left = [(label, value) for label, values in enumerate(LEFT) for value in values]
    right = [(label, value) for label, values in enumerate(RIGHT) for value in values]
    for expected, mode in ((every, False), (once, True)):
        found = joined([label for label, _ in left], [label for label, _ in right], m, n, once=mode)
        counts = Counter(epoch for epoch, x, y in found.elements() if left[x][1] == right[y][1])
        assert [counts[epoch] for epoch in range(4)] == expected


# ---- the engine

CASES = [
    ("CUT ON ts BY 10 SECS", 2, 3, "EVERY EPOCH", True),
    ("CUT ON ts BY 10 SECS", 3, 2, "ONCE", True),
    ("CUT BY 3 ROWS", 2, 2, "EVERY EPOCH", False),
    ("CUT BY 3 ROWS", 2, 3, "ONCE", False),
    ("CUT ON g CHANGE", 3, 2, "EVERY EPOCH", False),
]


def labels(rows: Sequence[Row], cut: str) -> list[int]:
    if "ROWS" in cut:
        return [number // 3 for number in range(len(rows))]
    if "CHANGE" in cut:
        return [label for label, (_, run) in enumerate(groupby(rows, key=lambda row: row[1])) for _ in run]
    return [round((row[2] - EPOCH).total_seconds()) // 10 for row in rows]


@pytest.mark.spark
def test_pairs_of_rows_are_those_of_a_double_loop(home: Harness) -> None:
    dice = random.Random(7)
    rows = {
        stream: [
            (number, dice.choice("ab"), EPOCH + timedelta(seconds=dice.choice((-15, -5, 3, 14, 25, 61, 70))))
            for number in range(dice.randrange(8, 12))
        ]
        for stream in "st"
    }
    for stream in "st":
        home.sql(f"CREATE STREAM {stream} (v INT, g STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    queries = []
    for number, (cut, m, n, mode, kept) in enumerate(CASES):
        queries.append(
            f"SELECT window_id() AS e, a.v AS x, b.v AS y FROM STREAM(s, '{cut}', 'BLOCK', {m}, '{mode}') a,"
            f" STREAM(t, '{cut}', 'BLOCK', {n}) b"
        )
        if kept:
            home.sql(f"CREATE VIEW v{number} AS {queries[-1]} EMIT CHANGES")
    assert "UNBOUNDED: a row" not in str(home.query("EXPLAIN v1"))  # its partners are near, and no others are looked at
    halves = [(stream, half) for half in (slice(5), slice(5, None)) for stream in "st"]
    for stream, half in halves:
        home.insert(stream, rows[stream][half])
    for number, (cut, m, n, mode, kept) in enumerate(CASES):
        truth = joined(labels(rows["s"], cut), labels(rows["t"], cut), m, n, once=mode == "ONCE")
        read = f"SELECT * FROM v{number}" if kept else queries[number]
        assert Counter(home.query(read)) == truth, f"{cut}, {m} with {n}, {mode}"
