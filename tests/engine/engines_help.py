"""Tests of changes that are the same whoever computes them."""

from __future__ import annotations

import pytest

from anabranch.engine import buckets, driver_changes
from anabranch.engine.place import Place

ENGINES = ["duckdb", "buckets", "spark"]


def compute_with(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have changes computed by the driver's DuckDB, by that of tasks in two buckets, or by Spark's own engine."""
    if engine != "duckdb":
        monkeypatch.setattr(driver_changes, "changes", lambda *_: None)
        monkeypatch.setattr(Place, "buckets", lambda *_: 2)
    if engine == "spark":
        monkeypatch.setattr(buckets, "changes", lambda *_: None)
