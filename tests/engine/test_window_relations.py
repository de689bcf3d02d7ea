"""The SQL of every window type gives each row the windows that the plain functions give it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

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
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TYPES: list[WindowType[Any]] = [
    SlidingWindows(10, 10, origin=3),
    SlidingWindows(10, 4, origin=-5, aligned="end"),
    SlidingWindows(4, 10, origin=1),
    CumulatingWindows(12, 4, origin=5),
    Sessions(6),
    Landmark(9, origin=2),
    Partitioned(SlidingWindows(5, 3, aligned="end")),
    SlideByTuple(7),
    SlideByTuple(7, every=3),
    SlideByTuple(7, every=3, order="rank"),
    Chunks(),
]


Stored = tuple[int, int | None, str | None, int]


@pytest.fixture(scope="module")
def stored(spark: SparkSession) -> list[Stored]:
    """Rows with values of either sign, some of them equal or NULL, with gaps between values and between numbers."""
    chooser = random.Random(11)
    rows: list[Stored] = []
    for number in range(0, 240, 2):
        value = None if chooser.random() < 0.1 else chooser.choice([-200, -20, 0, 120]) + chooser.randint(0, 40)
        key, weight = chooser.choice(["a", "a", "b", None]), chooser.randint(0, 9)
        rows.append((number + chooser.randint(0, 1), value, key, weight))
    chooser.shuffle(rows)
    spark.createDataFrame(rows, "n BIGINT, v BIGINT, k STRING, w INT").createOrReplaceTempView("window_rows")
    return rows


@pytest.mark.parametrize("windows", TYPES, ids=str)
def test_sql_gives_the_windows_of_each_row(spark: SparkSession, stored: list[Stored], windows: WindowType[Any]) -> None:
    relation = windows.relation(Rows("window_rows", "__rows.v - 2", "__rows.n", ("__rows.k",), ("__rows.w",)))
    found = spark.sql(f"SELECT * FROM {relation} AS w")
    assert [field.simpleString() for field in found.schema] == [
        "n:bigint", "v:bigint", "k:string", "w:int", "__start:bigint", "__end:bigint", "__wid:bigint",
    ]  # fmt: skip
    rows = [Row(value - 2, number, key, (weight,)) for number, value, key, weight in stored if value is not None]
    expected = [
        (
            row.number,
            row.value + 2,
            row.key,
            *row.columns,
            *windows.bounds(wid, rows),
            wid[0] if isinstance(wid, tuple) else wid,
        )
        for row in rows
        for wid in windows.wids(row, rows)
    ]
    assert sorted(map(tuple, found.collect()), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("windows", [Landmark(9), SlideByTuple(7), Chunks()], ids=str)
def test_no_rows_have_no_windows(spark: SparkSession, stored: Any, windows: WindowType[Any]) -> None:
    source = "(SELECT * FROM window_rows WHERE v IS NULL)"
    relation = windows.relation(Rows(source, "__rows.v", "__rows.n", ("__rows.k",)))
    assert spark.sql(f"SELECT * FROM {relation} AS w").collect() == []
