"""How many partials the ledger holds of groups of unequal size: never more by adaptive than by window."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.spark
def test_adaptive_holds_fewer_partials_the_more_groups_are_small(tmp_path: Path, spark: SparkSession) -> None:
    setting = Setting(spark, spark, 100, 0, 1, 1, tmp_path, tmp_path, lambda _: None)
    held = {mixture: partials_held(setting, mixture, 1) for mixture in ("DS1", "DS5")}
    assert set(held["DS1"]) == set(HELD)
    shares = [held[mixture][ADAPTIVE] / held[mixture][WINDOWS] for mixture in ("DS1", "DS5")]
    assert shares[1] < shares[0] < 1
