"""Changes that come out in the order of their event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.ordering import UNORDERED, Order, SortColumn
from anabranch.cli.release import InOrder

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("_diff", pa.int64())])
BY_TIME = Order((SortColumn(0), SortColumn(1, descending=True)))


@dataclass(frozen=True)
class Changes:
    changes: Any
    progress: int | None
    version: int = 0
    rows: int = 0
    late: int = 0


def batch(progress: int | None, *rows: tuple[int, int, int]) -> Changes:
    """Changes at seconds, and progress in seconds."""
    arrays = [
        pa.array([START + timedelta(seconds=row[0]) for row in rows], SCHEMA[0].type),
        pa.array([row[1] for row in rows], pa.int64()),
        pa.array([row[2] for row in rows], pa.int64()),
    ]
    at = None if progress is None else int((START + timedelta(seconds=progress)).timestamp()) * 1_000_000
    return Changes(pa.Table.from_arrays(arrays, schema=SCHEMA), at)


def out(tables: Any) -> list[tuple[int, int, int]]:
    rows = [row for table in tables for row in table.to_pylist()]
    return [(int((row["ts"] - START).total_seconds()), row["n"], row["_diff"]) for row in rows]


def test_rows_wait_for_progress_and_corrections_do_not() -> None:
    held = InOrder.of(BY_TIME, ["ts", "n"], {"ts": 1})
    assert held is not None
    assert out(held.take(batch(None, (3, 1, 1), (1, 5, 1), (1, 7, 1)))) == []
    assert out(held.take(batch(3, (2, 4, 1), (1, 5, -1), (1, 6, 1)))) == [(1, 7, 1), (1, 6, 1), (2, 4, 1)]
    assert out(held.take(batch(3, (2, 4, -1), (2, 9, 1)))) == [(2, 4, -1), (2, 9, 1)]
    assert out(held.rest()) == [(3, 1, 1)]


@pytest.mark.parametrize(
    ("order", "times"),
    [
        (UNORDERED, {"ts": 1}),
        (Order((SortColumn(0, descending=True),)), {"ts": 1}),
        (Order((SortColumn(1),)), {"ts": 1}),
        (BY_TIME, {}),
        (Order((SortColumn(0),), "length(x)"), {"ts": 1}),
    ],
)
def test_other_orders_hold_nothing_back(order: Order, times: dict[str, int]) -> None:
    assert InOrder.of(order, ["ts", "n"], times) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 12)), max_size=20))
def test_what_is_on_time_comes_in_order_and_nothing_is_lost(steps: list[tuple[int, int, int]]) -> None:
    held = InOrder.of(BY_TIME, ["ts", "n"], {"ts": 1})
    assert held is not None
    bound = 0
    came: list[tuple[int, int, int]] = []
    on_time: list[tuple[int, int]] = []
    for second, n, progress in steps:
        late = second < bound
        bound = max(bound, progress)
        found = out(held.take(batch(bound, (second, n, 1))))
        came += found
        on_time += [row[:2] for row in found if not (late and row == (second, n, 1))]
    came += out(held.rest())
    total: dict[tuple[int, int], int] = {}
    for second, n, diff in came:
        total[second, n] = total.get((second, n), 0) + diff
    expected: dict[tuple[int, int], int] = {}
    for second, n, _ in steps:
        expected[second, n] = expected.get((second, n), 0) + 1
    assert total == expected
    assert [second for second, _ in on_time] == sorted(second for second, _ in on_time)
