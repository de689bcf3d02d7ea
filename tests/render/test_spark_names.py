"""What the driver's dialect says of the columns of a query, their types and their names, is what Spark says."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from anabranch.engine.frames import Frames
from anabranch.render.duckdb_plan import UNNAMED, fields_of
from anabranch.render.duckdb_scope import Declined
from anabranch.types import Field
from render import test_duckdb_functions as functions
from render.driver_help import FIELDS

_OTHERS = [
    "1", "-1", "'x'", "2.50", "true", "i", "r.i", "(i)", "i + 1 * 2", "- i", "-(i)", "i <> 1", "NOT b", "s IS NULL",
    "s IS NOT NULL", "NOT (s IS NULL)", "i IN (1, 2)", "i NOT IN (1, 2)", "b AND c OR b", "x > 1.5", "x * 1.10",
    "1.5 - x", "x + 1", "CAST(i AS STRING)", "cast(i as decimal(12, 2))", "UPPER(s)", "Coalesce(s, 'none')",
    "CASE WHEN i > 1 THEN 'a' ELSE 'b' END", "CASE WHEN b THEN 1 END", "m >= '2024-02-29'", "a = '2024-02-29'",
    "a BETWEEN '1970-01-01' AND '2024-02-29'", "m IN ('2024-02-29 12:00:00', '1970-01-01')", "x BETWEEN 0.5 AND 2.5",
]  # fmt: skip
_AGGREGATES = [
    "count(*)", "COUNT(1)", "count(i)", "count(DISTINCT s)", "Sum(i)", "sum(DISTINCT i)", "sum(d)", "avg(x)", "mean(i)",
    "max(s)", "min(m)", "sum(i) FILTER (WHERE b)", "count(*) FILTER (WHERE i > 1)", "max(x) - min(x)", "sum(i) / 2",
    "count_if(b)", "bool_and(b)", "every(b)", "bit_xor(i)", "max(i + 1)", "round(avg(x), 2)", "max(a) > '2024-01-01'",
]  # fmt: skip


def _asked(frames: Frames, texts: list[str]) -> list[Field]:
    return frames.analyze(f"SELECT {', '.join(texts)} FROM `@r` r", {"@r": FIELDS})


@pytest.mark.spark
@pytest.mark.parametrize("texts", [[*functions._scalar(), *_OTHERS], _AGGREGATES], ids=["values", "aggregates"])
def test_types_and_names_are_those_of_spark(spark: SparkSession, texts: list[str]) -> None:
    known: dict[str, Field] = {}
    for text in texts:
        try:
            (known[text],) = fields_of(f"SELECT {text} FROM `@r` AS r", {"@r": FIELDS})
        except Declined:
            continue
    frames, listed = Frames(spark), list(known)
    differ = []
    for at in range(0, len(listed), 100):
        for text, said in zip(listed[at : at + 100], _asked(frames, listed[at : at + 100]), strict=True):
            mine = known[text]
            if mine.type != said.type or mine.name not in (said.name, UNNAMED):
                differ.append((text, mine, said))
    assert differ == []
    assert len(known) > 0.8 * len(texts)
