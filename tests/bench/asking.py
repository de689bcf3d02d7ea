"""Asking DuckDB for one row."""

from __future__ import annotations

from typing import Any

import duckdb


def ask(text: str) -> Any:
    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        row = duck.execute(text).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]
