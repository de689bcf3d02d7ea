"""The decisions of triggers as Spark SQL are those of the function, for every kind of trigger and any key."""

from __future__ import annotations

import itertools
import random

import pytest
from pyspark.sql import SparkSession

from anabranch.algebra.triggers import IDLE, Pending, Triggers, decide, decide_sql

pytestmark = pytest.mark.spark

SCHEMA = (
    "id INT, n BIGINT, records BIGINT, deadline BIGINT, armed BOOLEAN, event_time BIGINT, ends BIGINT,"
    " lower BIGINT, upper BIGINT"
)
NOW = 100


def test_spark_decides_as_the_function_does(spark: SparkSession) -> None:
    chance = random.Random(7)
    kinds = [
        Triggers(counting, delay, first, watermark, end)
        for counting, delay, first, watermark, end in itertools.product(
            (None, 1, 3), (None, 0, 5), (False, True), (False, True), (False, True)
        )
    ]
    rows = [
        (
            id,
            chance.choice([0, 0, 1, 2, 7]),
            chance.choice([0, 1, 2]),
            chance.choice([None, NOW - 1, NOW, NOW + 1]),
            chance.choice([True, False]),
            chance.choice([None, 40, 60]),
            chance.choice([None, 40, 50, 60]),
            *sorted([chance.choice([-1, 40, 50]), chance.choice([50, 60, 70])]),
        )
        for id in range(150)
    ]
    rows += [(*row[:7], None, None) for row in rows[:20]]
    frame = spark.createDataFrame([(id, *row[1:]) for id, row in enumerate(rows)], SCHEMA).coalesce(1).persist()
    frame.createOrReplaceTempView("decisions")
    for triggers in chance.sample(kinds, 12):
        ended, late = chance.choice([False, False, True]), chance.choice(["correct", "drop"])
        text = decide_sql(triggers, "decisions", now=NOW, ended=ended, late=late)
        found = {row["id"]: row for row in spark.sql(text).collect()}
        for id, (_, n, records, deadline, armed, event_time, ends, lower, upper) in enumerate(rows):
            wanted = decide(
                triggers, Pending(records, deadline, armed, event_time), n, ends,
                now=NOW, before=lower, after=upper, ended=ended, late=late,
            )  # fmt: skip
            row = found[id]
            left = Pending(row["left_records"], row["left_deadline"], row["left_armed"], row["left_event_time"])
            assert (row["fires"], row["take"], left) == (wanted.fires, wanted.take, wanted.after or IDLE), (
                triggers,
                row,
            )
    spark.catalog.dropTempView("decisions")
    frame.unpersist()
