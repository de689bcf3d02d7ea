"""How many partials the ledger holds of groups of unequal size: never more by adaptive than by window."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from anabranch.algebra.windows import Row, SlidingWindows
from anabranch.algebra.windows.costs import Thresholds
from anabranch.algebra.windows.spans import Groups, reduced, spans
from anabranch.algebra.windows.strategies import COUNT
from anabranch.bench.disorder import SHARES, SIZES
from anabranch.bench.figures import Setting
from anabranch.bench.strategies import HELD, partials_held, unequal
from anabranch.plan.strategy import ADAPTIVE, WINDOWS
from bench.asking import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_file_has_groups_of_three_sizes(tmp_path: Path) -> None:
    path = unequal(tmp_path, "DS3", 2, number=1)
    sizes = f"SELECT k, count(*) AS n, min(k) AS low FROM '{path}' GROUP BY k"
    counts = ", ".join(f"count_if(n = {size})" for size in SIZES)
    assert ask(f"SELECT {counts}, min(low) FROM ({sizes})") == (*(2 * share for share in SHARES["DS3"]), 200)


def modelled(mixture: str, size: int | None) -> tuple[float, float]:
    """Partials that 'adaptive' adds, as a share of those of 'windows', by the model that the engine is tested against:
    as runs write them, and as the reducer leaves them. Runs have so many rows in order of time, or are 10 s."""
    windows, dice = SlidingWindows(10, 1), Random(1)
    whole = [
        sorted(
            (10 * stretch + dice.randrange(10), f"{stretch} {rows} {number}")
            for rows, share in zip(SIZES, SHARES[mixture], strict=True)
            for number in range(share)
            for _ in range(rows)
        )
        for stretch in range(2)
    ]
    given = [each for stretch in whole for each in stretch]
    runs = whole if size is None else [given[at : at + size] for at in range(0, len(given), size)]
    groups, limits = Groups(windows), Thresholds.of(windows)
    parts, eager = [], []
    for run in runs:
        rows = [Row(value, number, key) for number, (value, key) in enumerate(run)]
        parts.append(spans(windows, rows, COUNT, groups.take(rows, limits)))
        eager.append(spans(windows, rows, COUNT, {row.key for row in rows}))
        groups.advance(rows[-1].value)
    sums = sum(map(len, parts)) / sum(map(len, eager))
    return sums, len(reduced(parts, COUNT)) / len(reduced(eager, COUNT))


@pytest.mark.parametrize("size", [20, None])
def test_the_more_groups_are_small_the_fewer_partials_however_rows_are_cut(size: int | None) -> None:
    shares = [modelled(mixture, size) for mixture in SHARES]
    for kind in (0, 1):
        found = [share[kind] for share in shares]
        assert all(later < earlier for earlier, later in pairwise(found)) and found[0] < 1


@pytest.mark.slow
@pytest.mark.spark
def test_adaptive_holds_fewer_partials_the_more_groups_are_small(tmp_path: Path, spark: SparkSession) -> None:
    setting = Setting(spark, spark, 100, 0, 1, 1, tmp_path, tmp_path, lambda _: None, 1)
    held = {mixture: partials_held(setting, mixture, 1) for mixture in ("DS1", "DS5")}
    assert set(held["DS1"]) == set(HELD)
    shares = [held[mixture][ADAPTIVE] / held[mixture][WINDOWS] for mixture in ("DS1", "DS5")]
    assert shares[1] < shares[0] < 1
