"""Every aggregate that the driver's engine merges: partials, two reduces and the final, beside Spark's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from anabranch.algebra.aggregates import Aggregate, find
from anabranch.duck import connect
from anabranch.plan.types import duckdb_type
from anabranch.render.duckdb import driver_sql
from render.driver_help import COLUMNS, FIELDS, table, values

pytestmark = pytest.mark.spark

_TYPES = {name: type for name, (type, _, _) in COLUMNS.items()}
_PLAIN = [name for name in COLUMNS if name != "k"]
_ONE = ("count", "sum", "avg", "min", "max", "stddev", "stddev_pop", "var_samp", "var_pop", "bool_or", "bit_xor")
#: Of rows, no two are alike: `id` tells them apart.
_ORDER = "CASE WHEN ({0}) IS NOT NULL THEN named_struct('k0', {0}, 'k1', {1}, 'k2', id) END"
#: Of texts, others are computed by reading them as numbers.
_OF_TEXTS = ("count", "min", "max")
#: Sums of all that these columns hold overflow in Spark.
_WIDE = ("i", "j", "n", "l", "e", "w")


def _calls() -> Iterator[tuple[str, bool, list[str], Aggregate]]:
    for name in _ONE:
        for column in _PLAIN:
            for distinct in (False, True):
                if (name in ("sum", "avg") and column in _WIDE) or (name not in _OF_TEXTS and column in ("s", "u")):
                    continue
                yield from _known(name, distinct, [column], [_TYPES[column]])
    for name in ("min_by", "max_by"):
        for value, order, then in (
            ("x", "x", "s"), ("s", "s", "x"), ("n", "m", "b"), ("m", "a", "f"), ("b", "b", "d"), ("d", "f", "a"),
            ("f", "k", "m"), ("a", "e", "y"), ("t", "u", "o"),
        ):  # fmt: skip
            struct = f"struct<k0:{_TYPES[order]},k1:{_TYPES[then]},k2:int>"
            yield from _known(name, False, [value, _ORDER.format(order, then)], [_TYPES[value], struct])


def _known(name: str, distinct: bool, arguments: list[str], types: list[str]) -> Iterator[Any]:
    found = find(name, distinct=distinct, argument_types=types, arguments=arguments)
    if found is not None and found.duckdb and not (name == "count" and types == ["binary"]):
        yield name, distinct, arguments, found


def _merged(duck: duckdb.DuckDBPyConnection, aggregate: Aggregate, arguments: list[str], where: str) -> Any:
    """By key, what partials by their rest add up to, in two steps; None if it is left to Spark."""
    partials = []
    for part in aggregate.parts:
        text = driver_sql(
            part.partial_sql(arguments, where), lambda _: None, FIELDS, before="SELECT ", behind=" FROM r"
        )
        if text is None:
            return None
        partials.append(f"{text} AS {part.suffix}")
    reduced = ", ".join(f"{part.reduce_sql(part.suffix, 'duckdb')} AS {part.suffix}" for part in aggregate.parts)
    first = f"SELECT k, id % 7 AS p, {', '.join(partials)} FROM r GROUP BY ALL"
    second = f"SELECT k, p % 2 AS p, {reduced} FROM ({first}) GROUP BY k, p % 2"
    third = f"SELECT k, {reduced} FROM ({second}) GROUP BY k"
    final = aggregate.final_sql({part.suffix: part.suffix for part in aggregate.parts}, "duckdb")
    try:
        found = duck.sql(f"SELECT k, {final} AS v FROM ({third})").to_arrow_table()
    except duckdb.Error:
        return None
    return dict(zip(found.column("k").to_pylist(), values(found.column("v")), strict=True))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def test_partials_of_the_driver_add_up_to_the_aggregate_of_spark(spark: SparkSession) -> None:
    rows = table(400, seed=5)
    spark.createDataFrame(rows).createOrReplaceTempView("partial_rows")
    duck = connect()
    duck.register("r", rows)
    calls = [(*call, _where(*call)) for call in _calls()]
    items = [
        f"{name}({'DISTINCT ' if distinct else ''}{', '.join(arguments)}) FILTER (WHERE {where}) AS r{index}"
        for index, (name, distinct, arguments, _, where) in enumerate(calls)
    ]
    names = ", ".join(f"CAST({name} AS {type}) AS {name}" for name, type in _TYPES.items())
    truth = spark.sql(f"SELECT k, {', '.join(items)} FROM (SELECT id, {names} FROM partial_rows) GROUP BY k").toArrow()
    seen: set[str] = set()
    for index, (name, distinct, arguments, aggregate, where) in enumerate(calls):
        found = _merged(duck, aggregate, arguments, where)
        if found is None:
            continue
        seen.add(name)
        for key, value in zip(truth.column("k").to_pylist(), values(truth.column(f"r{index}")), strict=True):
            assert _same(value, found[key]), (name, distinct, arguments, key, value, found[key])
    assert seen == {*_ONE, "min_by", "max_by"}


def _where(name: str, _: bool, arguments: list[str], __: Aggregate) -> str:
    """A spread of numbers without end is for Spark to say: DuckDB fails for it, and there is nothing to compare."""
    return f"{arguments[0]} BETWEEN -1000000 AND 1000000" if name.startswith(("std", "var")) else "id > 5"


def test_rows_in_partials_have_quoted_names() -> None:
    assert (
        duckdb_type("struct<`n`:bigint,`mean`:double,`m2`:double>") == 'STRUCT("n" BIGINT, "mean" DOUBLE, "m2" DOUBLE)'
    )
    assert duckdb_type("struct<n:bigint>") is None  # a column of the user's
