"""Random expressions over columns of every type, with values at which engines differ."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.types import Field

_NAN, _INF = float("nan"), float("inf")


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type]


def _whole(bits: int) -> list[int | None]:
    most = 2**bits - 1
    return [0, 1, -1, 2, 3, 10, 10, most, -most - 1, most - 1, None, None]


#: By column: its type, the type of Arrow's, and values.
COLUMNS: dict[str, tuple[str, Any, list[Any]]] = {
    "t": ("tinyint", pa.int8(), _whole(7)),
    "i": ("int", pa.int32(), _whole(31)),
    "j": ("int", pa.int32(), _whole(31)),
    "n": ("bigint", pa.int64(), [*_whole(63), 2**53, 2**53 + 1, 2**53 - 1]),
    "l": ("bigint", pa.int64(), [0, 1, 2, 3, 10, 100, 2**31, 2**53, 2**53 + 1, 2**63 - 1, None, None]),
    "d": ("decimal(10,2)", pa.decimal128(10, 2), ["0", "0.01", "-0.01", "9.99", "10", "2.5", "99999999.99", None]),
    "e": ("decimal(20,4)", pa.decimal128(20, 4), ["0", "2.5", "2.5001", "-10", "10", "9999999999999999.9999", None]),
    "w": ("decimal(38,10)", pa.decimal128(38, 10), ["0", "2.5", "10", "9" * 18 + "." + "9" * 10, "1e-10", None]),
    "f": ("float", pa.float32(), [0.0, -0.0, 0.1, 2.5, 16777217.0, 3e38, _NAN, _INF, None]),
    "x": ("double", pa.float64(), [0.0, -0.0, 0.1, 2.5, 10.0, 2.0**53, 1e308, -1e308, _NAN, _INF, -_INF, None]),
    "y": ("double", pa.float64(), [0.0, -0.0, 0.30000000000000004, 3.0, 1.0, _NAN, _INF, 2.0**63, None]),
    "s": (
        "string",
        pa.string(),
        ["", " ", "a", "A", "ä", "a\u0308", "10", "2.5", "\uffff", "\U0001f600", "true", None],
    ),
    "u": ("string", pa.string(), ["", "a", "b", "a ", "ß", "10", "9", "%", "1970-01-01", "\x00", "\U0001f600", None]),
    "a": ("date", pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29), date(9998, 12, 31), None]),
    "m": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        [_at(1, 1, 1), _at(1969, 12, 31, 23, 59, 59, 999999), _at(1970, 1, 1), _at(2024, 2, 29, 12), None],
    ),
    "o": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        [_at(1970, 1, 1), _at(2024, 2, 29), _at(2024, 2, 29, 12), _at(2024, 2, 29, 12, 0, 1), None],
    ),
    "b": ("boolean", pa.bool_(), [True, False, None]),
    "c": ("boolean", pa.bool_(), [True, False, None]),
    "k": ("int", pa.int32(), [1, 2, 3, None]),
}
FIELDS = (Field("id", "int"), *(Field(name, type) for name, (type, _, _) in COLUMNS.items()))
_NUMBERS = ["0", "1", "2", "3", "10", "-1", "100", "127", "128", "2147483647", "2147483648", "9223372036854775807"]
_TEXTS = ["''", "'a'", "'10'", "'2.5'", "'true'", "'1970-01-01'", "'ä'", "'9'"]


def table(rows: int, seed: int) -> pa.Table:
    """Rows of these columns, each value taken at random."""
    chance = random.Random(seed)
    columns: dict[str, pa.Array] = {"id": pa.array(range(rows), pa.int32())}
    for name, (_, type, values) in COLUMNS.items():
        taken = [chance.choice(values) for _ in range(rows)]
        if pa.types.is_decimal(type):
            taken = [None if each is None else Decimal(each) for each in taken]
        columns[name] = pa.array(taken, type)
    return pa.table(columns)


class Expressions:
    """Random texts of Spark SQL; `sides` are what columns may be qualified by."""

    def __init__(self, seed: int, sides: tuple[str, ...] = ("",)) -> None:
        self.chance = random.Random(seed)
        self.sides = sides
        self.without: tuple[str, ...] = ()

    def column(self, *types: str) -> str:
        fitting = [
            name
            for name, (type, _, _) in COLUMNS.items()
            if name not in self.without and (not types or type.startswith(types))
        ]
        return self.chance.choice(self.sides) + self.chance.choice(fitting)

    def same(self) -> tuple[str, ...]:
        """Types of which two values mostly compare."""
        whole: tuple[str, ...] = ("tinyint", "int", "bigint")
        alone = [(type,) for type in ("decimal", "double", "string", "date", "timestamp", "boolean")]
        return self.chance.choice([whole, whole, *alone, ("decimal", "int"), ("double", "int")])

    def value(self, types: tuple[str, ...], depth: int = 2) -> str:
        pick = self.chance.random()
        if pick < 0.08:  # of any other type
            types = ()
        if pick < 0.5 or depth == 0:
            return self.column(*types)
        if pick < 0.7:
            return self.literal(types)
        if pick < 0.82:
            sign = self.chance.choice(["+", "-", "*"])
            if "timestamp" in types:
                amount, unit = self.chance.choice([1, 5, 36]), self.chance.choice(["DAY", "HOURS", "SECONDS", "MONTHS"])
                return f"({self.value(types, depth - 1)} {self.chance.choice('+-')} INTERVAL {amount} {unit})"
            return f"({self.value(types, depth - 1)} {sign} {self.value(types, depth - 1)})"
        if pick < 0.88:
            return f"coalesce({self.value(types, depth - 1)}, {self.value(types, depth - 1)})"
        if pick < 0.92:
            return f"(- {self.value(types, depth - 1)})"
        then, other = self.value(types, depth - 1), self.value(types, depth - 1)
        if pick < 0.96:
            same = self.same()
            return f"CASE {self.value(same, 0)} WHEN {self.value(same, 0)} THEN {then} ELSE {other} END"
        return f"CASE WHEN {self.condition(depth - 1)} THEN {then} WHEN {self.condition(0)} THEN NULL ELSE {other} END"

    def literal(self, types: tuple[str, ...]) -> str:
        if "string" in types or self.chance.random() < 0.1:
            return self.chance.choice(_TEXTS)
        if "boolean" in types:
            return self.chance.choice(["true", "false"])
        return "NULL" if self.chance.random() < 0.05 else self.chance.choice(_NUMBERS)

    def condition(self, depth: int = 2) -> str:
        types, pick = self.same(), self.chance.random()
        value = self.value(types, depth)
        if pick < 0.45 or depth == 0:
            sign = self.chance.choice(["=", "<>", "<", "<=", ">", ">=", "!=", "=="])
            return f"{value} {sign} {self.value(types, depth)}"
        if pick < 0.55:
            negated = self.chance.choice(["", "NOT "])
            return f"{value} {negated}BETWEEN {self.value(types, 1)} AND {self.value(types, 1)}"
        if pick < 0.65:
            values = ", ".join(self.value(types, 0) for _ in range(self.chance.randint(1, 3)))
            return f"{value} {self.chance.choice(['', 'NOT '])}IN ({values}, {self.literal(types)})"
        if pick < 0.72:
            return f"{value} IS {self.chance.choice(['', 'NOT '])}NULL"
        if pick < 0.76:
            return self.column("boolean")
        if pick < 0.8:
            return f"NOT ({self.condition(depth - 1)})"
        if pick < 0.83:  # without parentheses
            return f"{self.condition(0)} = {self.column('boolean')}"
        return f"({self.condition(depth - 1)} {self.chance.choice(['AND', 'OR'])} {self.condition(depth - 1)})"

    def aggregate(self) -> str:
        # Whether a sum of large numbers of both signs overflows in Spark depends on the order of rows.
        self.without = ("n",)
        call = self.chance.choice(["sum", "sum", "avg", "min", "max", "count"])
        numbers: list[tuple[str, ...]] = [("int", "tinyint"), ("bigint",), ("decimal",), ("double",), ("float",)]
        types = self.chance.choice([*numbers, self.same()])
        distinct = "DISTINCT " if call in ("count", "sum", "avg") and self.chance.random() < 0.2 else ""
        chosen = f" FILTER (WHERE {self.condition(0)})" if self.chance.random() < 0.15 else ""
        return f"{call}({distinct}{self.value(types, self.chance.choice([0, 0, 1]))}){chosen}"

    def having(self) -> str:
        other = self.chance.choice([self.aggregate(), self.literal(("int",)), self.literal(("int",)), "count(*)"])
        return f"{self.aggregate()} {self.chance.choice(['<', '<=', '>', '>=', '=', '<>'])} {other}"


# ---- both engines, the same rows


@dataclass(frozen=True)
class Form:
    """A place of an expression in a query. Spark has many of them in one query, each as a column."""

    make: Callable[[Expressions], str]
    driver: str
    spark: str
    condition: bool = False
    sides: tuple[str, ...] = ("",)


class Engines:
    """The same rows in both engines."""

    def __init__(self, spark: SparkSession, duck: duckdb.DuckDBPyConnection, seed: int, where: str = "true") -> None:
        """Rows at random; with a condition, those of many that meet it."""
        self.spark, self.duck = spark, duck
        frame = spark.createDataFrame(table(40 if where == "true" else 400, seed)).coalesce(1).where(where)
        duck.register("given", frame.toArrow())
        duck.execute("CREATE OR REPLACE TEMP TABLE r AS SELECT * FROM given")
        frame.createOrReplaceTempView("r")

    def driver(self, text: str) -> Counter[Any] | None:
        try:
            return _bag(zip(*map(values, self.duck.sql(text).to_arrow_table().columns), strict=True))
        except duckdb.Error:
            return None

    def answers(self, form: Form, texts: Sequence[str]) -> Iterator[Counter[Any] | None]:
        """What Spark gives for each; None where it refuses. One that it refuses is found by halves."""
        items = ", ".join(f"({text}) AS c{index}" for index, text in enumerate(texts))
        try:
            found = self.spark.sql(form.spark.format(items)).toArrow()
        except Exception:
            if len(texts) == 1:
                yield None
                return
            half = len(texts) // 2
            yield from self.answers(form, texts[:half])
            yield from self.answers(form, texts[half:])
            return
        ids = found.column("id").to_pylist()
        for index in range(len(texts)):
            rows = list(zip(ids, values(found.column(f"c{index}")), strict=True))
            yield _bag((id,) for id, value in rows if value) if form.condition else _bag(rows)


def values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; days and times as numbers, for Python knows none after the year 9999."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return column.to_pylist()  # type: ignore[no-any-return]


def _bag(rows: Iterable[Sequence[Any]]) -> Counter[Any]:
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> Any:
    """Values that count as the same: doubles but for their last bits, and both zeros."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.13g}") + 0.0
    return value
