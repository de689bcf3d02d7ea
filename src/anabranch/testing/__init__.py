"""Tests of streams and views: a harness without waiting, and rows in whatever disorder a test wants.

`harness` needs Spark and opens a home; `disorder` is plain Python.
"""

from __future__ import annotations

from anabranch.testing.disorder import Arrival, band, block_sorted, late_source, lull, skewed
from anabranch.testing.harness import (
    Change,
    FakeClock,
    Harness,
    Row,
    assert_same_rows,
    crashing,
    cuts,
    same_rows,
    shuffled,
    sorted_rows,
)

__all__ = [
    "Arrival",
    "Change",
    "FakeClock",
    "Harness",
    "Row",
    "assert_same_rows",
    "band",
    "block_sorted",
    "crashing",
    "cuts",
    "late_source",
    "lull",
    "same_rows",
    "shuffled",
    "skewed",
    "sorted_rows",
]
