"""The templates as Spark runs them: merged partials give what Spark's own aggregate gives over all rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from anabranch.algebra.aggregates import Aggregate, find
from anabranch.algebra.windows import SlidingWindows, pane_start_sql, window_starts_sql
from anabranch.duck import connect
from anabranch.render.duckdb import driver_sql
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


Call = tuple[str, bool, list[str]]

SPREADS = ["var_pop", "var_samp", "variance", "stddev", "std", "stddev_pop", "stddev_samp"]


def compare(spark: SparkSession, values: list[str], kinds: dict[str, str], calls: list[Call]) -> dict[str, Any]:
    """Run each call directly and merged (two levels of reduce, a partial of no rows); the merged values.

    A value is one row as SQL text, the first column being the partition.
    """
    columns = ", ".join(["part", *kinds])
    casts = ", ".join(["part", *(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())])
    rows = f"(SELECT {casts} FROM VALUES {', '.join(values)} AS t({columns}))"
    direct, partials, reduces, finals = [], [], [], []
    for index, (name, distinct, arguments) in enumerate(calls):
        types = [kinds.get(each, "double") for each in arguments]
        aggregate = find(name, distinct=distinct, argument_types=types, arguments=arguments)
        assert isinstance(aggregate, Aggregate), (name, distinct, arguments)
        text = ", ".join(arguments) or "*"
        direct.append(f"{name}({'DISTINCT ' if distinct else ''}{text}) AS r{index}")
        names = {part.suffix: f"c{index}_{part.suffix}" for part in aggregate.parts}
        for part in aggregate.parts:
            column = names[part.suffix]
            partials.append(f"{part.partial_sql(arguments, 'part >= 0')} AS {column}")
            reduces.append(f"{part.reduce_sql(column)} AS {column}")
        finals.append((f"r{index}", aggregate.final_sql(names)))
    truth = spark.sql(f"SELECT {', '.join(direct)} FROM {rows}")
    # A group whose rows are all filtered out leaves a partial of no rows.
    padded = f"(SELECT * FROM {rows} UNION ALL SELECT -1, {', '.join(f'max({k})' for k in kinds)} FROM {rows})"
    first = f"SELECT part, {', '.join(partials)} FROM {padded} GROUP BY part"
    second = f"SELECT {', '.join(reduces)} FROM ({first}) GROUP BY part % 2"
    third = f"SELECT {', '.join(reduces)} FROM ({second})"
    types = dict(truth.dtypes)
    answer = spark.sql(
        "SELECT " + ", ".join(f"CAST({sql} AS {types[name]}) AS {name}" for name, sql in finals) + f" FROM ({third})"
    )
    once, twice = (spark.sql(f"SELECT * FROM ({text})") for text in (first, third))
    assert dict(once.drop("part").dtypes) == dict(twice.dtypes)
    expected, found = truth.collect()[0].asDict(), answer.collect()[0].asDict()
    for name, value in expected.items():
        call = calls[int(name[1:])]
        if isinstance(value, float) and not math.isnan(value):
            assert found[name] == pytest.approx(value, rel=1e-9), call
        elif isinstance(value, float):
            assert math.isnan(found[name]), call
        else:
            assert found[name] == value, call
    return {f"{name}{' distinct' if d else ''}({','.join(a)})": found[f"r{i}"] for i, (name, d, a) in enumerate(calls)}


def test_three_partials_of_six_rows(spark: SparkSession) -> None:
    plain = ["count", "sum", "avg", "mean", "min", "max", "bit_and", "bit_or", "bit_xor", *SPREADS]
    found = compare(
        spark,
        ["(1,4)", "(1,8)", "(1,NULL)", "(2,6)", "(3,8)", "(3,1)"],
        {"x": "int"},
        [(name, False, ["x"]) for name in plain]
        + [(name, True, ["x"]) for name in ("count", "sum", "avg", "min", "max")]
        + [("count", False, [])],
    )
    assert found["count()"] == 6
    assert (found["count(x)"], found["sum(x)"], found["avg(x)"]) == (5, 27, 5.4)
    assert (found["var_pop(x)"], found["var_samp(x)"]) == (pytest.approx(7.04), pytest.approx(8.8))
    assert (found["count distinct(x)"], found["sum distinct(x)"], found["avg distinct(x)"]) == (4, 19, 4.75)


def test_variance_of_large_close_values(spark: SparkSession) -> None:
    rows = ["(1,1000000004)", "(2,1000000007)", "(3,1000000013)", "(4,1000000016)"]
    for kind in ("double", "bigint", "decimal(12,2)"):
        found = compare(spark, rows, {"x": kind}, [(name, False, ["x"]) for name in SPREADS])
        assert found["var_samp(x)"] == pytest.approx(30)


def test_one_row_and_no_row(spark: SparkSession) -> None:
    calls: list[Call] = [(name, False, ["x"]) for name in [*SPREADS, "avg", "sum", "count", "max"]]
    calls += [(name, True, ["x"]) for name in ("count", "sum", "avg")]
    one = compare(spark, ["(1,5)", "(2,NULL)"], {"x": "double"}, calls)
    assert (one["var_samp(x)"], one["var_pop(x)"], one["stddev(x)"]) == (None, 0.0, None)
    none = compare(spark, ["(1,NULL)", "(2,NULL)"], {"x": "decimal(8,2)"}, calls)
    assert {key for key, value in none.items() if value is not None} == {"count(x)", "count distinct(x)"}


@pytest.mark.parametrize("kind", ["decimal(5,2)", "decimal(10,2)", "decimal(18,0)", "decimal(24,4)", "decimal(24,20)"])
def test_decimals_are_exact(spark: SparkSession, kind: str) -> None:
    compare(
        spark,
        ["(1,1.01)", "(1,2.02)", "(2,NULL)", "(2,2.02)", "(3,-7.77)", "(4,9.99)", "(5,0.01)", "(5,0.01)"],
        {"x": kind},
        [(name, distinct, ["x"]) for name in ("sum", "avg", "count", "min") for distinct in (False, True)],
    )


def test_wide_decimals_are_summed(spark: SparkSession) -> None:
    rows = ["(1,99999999999999999999.123456789012345678)", "(2,0.000000000000000001)", "(3,NULL)"]
    compare(
        spark,
        rows,
        {"x": "decimal(38,18)"},
        [("sum", False, ["x"]), ("max", False, ["x"]), ("count", True, ["x"])],
    )
    compare(spark, rows, {"x": "decimal(27,1)"}, [("sum", True, ["x"])])


@pytest.mark.parametrize("kind", ["int", "decimal(10,2)", "double"])
def test_percentiles_and_modes_are_exact(spark: SparkSession, kind: str) -> None:
    rows = ["(1,4)", "(1,8)", "(2,NULL)", "(2,6)", "(3,8)", "(3,1)", "(4,-7)", "(5,0)", "(5,4)", "(6,4)"]
    calls: list[Call] = [("percentile", False, ["x", f"{p}D"]) for p in ("0", "0.1", "0.35", "0.9", "1")]
    calls += [(name, False, ["x"]) for name in ("median", "mode")]
    found = compare(spark, rows, {"x": kind}, calls)
    assert (found["median(x)"], found["mode(x)"]) == (4, 4)
    nothing = compare(spark, ["(1,NULL)", "(2,NULL)"], {"x": kind}, calls)
    assert set(nothing.values()) == {None}


def test_modes_of_other_types(spark: SparkSession) -> None:
    rows = ["(1,'b','2026-01-02')", "(2,'b','2026-01-01')", "(3,'a','2026-01-02')", "(3,NULL,NULL)"]
    compare(spark, rows, {"s": "string", "d": "date"}, [("mode", False, ["s"]), ("mode", False, ["d"])])
    zeros = ["(1,'0.0')", "(2,'-0.0')", "(3,'NaN')", "(4,'NaN')", "(5,'-0.0')"]
    assert compare(spark, zeros, {"x": "double"}, [("mode", False, ["x"]), ("median", False, ["x"])])["mode(x)"] == 0


PAIRS = [
    "covar_pop",
    "covar_samp",
    "corr",
    "regr_r2",
    "regr_slope",
    "regr_intercept",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
]
#: One side does not move.
STILL = pytest.mark.skipif(pyspark.__version__ < "4.3", reason="corr of these is an error in Spark before 4.3")


@pytest.mark.parametrize(
    "rows",
    [
        ["(1,1,2)", "(1,2,3)", "(2,4,9)", "(3,NULL,3)", "(3,5,NULL)", "(4,7,-2)"],
        pytest.param(["(1,0.1,2)", "(1,0.1,3)", "(1,0.1,5)", "(2,0.1,7)"], marks=STILL),  # no rounding makes it move
        pytest.param(["(1,1,0.1)", "(2,3,0.1)", "(2,4,0.1)", "(2,5,0.1)"], marks=STILL),
        ["(1,1,2)", "(2,NULL,1)"],
        ["(1,NULL,2)", "(2,NULL,1)"],
    ],
)
def test_pairs_of_numbers(spark: SparkSession, rows: list[str]) -> None:
    compare(spark, rows, {"y": "decimal(10,2)", "x": "double"}, [(name, False, ["y", "x"]) for name in PAIRS])


@pytest.mark.parametrize("kind", ["float", "double"])
def test_zeros_and_nans_are_one_value_each(spark: SparkSession, kind: str) -> None:
    rows = ["(1,'0.0')", "(2,'-0.0')", "(3,'NaN')", "(4,'NaN')", "(5,'1.1')", "(6,'1.1')"]
    found = compare(spark, rows, {"x": kind}, [("count", True, ["x"]), ("max", False, ["x"]), ("sum", False, ["x"])])
    assert found["count distinct(x)"] == 3
    found = compare(spark, rows, {"x": kind}, [("count", True, ["x", "x"])])
    assert found["count distinct(x,x)"] == 3


def test_distinct_values_of_other_types(spark: SparkSession) -> None:
    rows = [
        "(1,'a','2026-10-25 00:30:00.000001',true)",
        "(1,'a','2026-10-25 00:30:00.000001',true)",
        "(2,'a','2026-10-25 00:30:00.000002',true)",
        "(3,'A','2026-10-25 00:30:00.000001',NULL)",
        "(3,NULL,'2026-10-25 00:30:00.000001',false)",
        "(4,'','2026-10-25 00:30:00.000001',false)",
        "(5,'a','2026-10-25 00:30:00.000001',true)",
    ]
    kinds = {"s": "string", "t": "timestamp", "b": "boolean"}
    found = compare(
        spark,
        rows,
        kinds,
        [
            ("count", True, ["s"]),
            ("count", True, ["t"]),
            ("count", True, ["s", "t"]),
            ("count", True, ["s", "t", "b"]),
        ]
        + [(name, False, ["b"]) for name in ("bool_and", "every", "bool_or", "some", "any", "count_if")]
        + [("min", False, ["s"]), ("max", False, ["t"]), ("count", False, ["s", "b"])],
    )
    assert (found["count distinct(s,t)"], found["count distinct(s,t,b)"]) == (4, 3)
    compare(spark, ["(1,'a')", "(2,'a')", "(3,'b')", "(4,NULL)"], {"x": "binary"}, [("count", True, ["x"])])


def test_strings_are_numbers_where_spark_says_so(spark: SparkSession) -> None:
    rows = ["(1,'4')", "(2,'6.5')", "(3,NULL)"]
    compare(spark, rows, {"x": "string"}, [(name, False, ["x"]) for name in ("sum", "avg", "var_pop", "max")])


@pytest.mark.parametrize(
    "windows",
    [
        SlidingWindows(10, 4, origin=3),
        SlidingWindows(9, 6, aligned="end"),
        SlidingWindows(4, 10, origin=-1),
        SlidingWindows(7, 7, origin=2),
    ],
)
def test_window_starts(spark: SparkSession, windows: SlidingWindows) -> None:
    grain = windows.grain
    pane = pane_start_sql("t", grain, windows.origin, "spark")
    starts = window_starts_sql("pane", windows, grain, "spark")
    rows = spark.sql(f"SELECT pane, {starts} AS starts FROM (SELECT {pane} AS pane FROM range(-40, 40) AS r(t))")
    assert dict(rows.dtypes) == {"pane": "bigint", "starts": "array<bigint>"}
    for row in rows.collect():
        assert row.starts == [windows.bounds(wid)[0] for wid in windows.pane_windows(row.pane)]


#: Counts around those where the way of estimating changes, and many for which it does not.
COUNTS = (0, 1, 2, 7, 100, 270, 277, 278, 279, 290, 330, 400, 440, 500, 640, 800, 1000, 1300, 1700, 2100, 2400, 2500,
          2540, 2600, 2700, 3000, 5000, 20_000)  # fmt: skip
SKETCHED = {
    "int": "CAST(id * 7919 - 40000 AS INT)",
    "bigint": "id * 1000003L - 5",
    "smallint": "CAST(id % 30000 AS SMALLINT)",
    "string": "repeat(concat('é', id), CAST(id % 5 AS INT))",
    "double": "CASE WHEN id % 3 = 0 THEN -0.0D ELSE id / 7 END",
    "float": "CAST(id / 3 AS FLOAT)",
    "date": "date_add(DATE '1960-01-01', CAST(id AS INT))",
    "timestamp": "timestamp_micros(id * 99991L - 1000000)",
    "boolean": "id % 2 = 0",
    "decimal(12,2)": "CAST(id / 4 AS DECIMAL(12,2))",
    "decimal(38,2)": "CAST(id AS DECIMAL(38,2))",
    "binary": "CAST(CAST(id AS STRING) AS BINARY)",
}


@pytest.mark.parametrize("kind", SKETCHED)
def test_estimates_of_distinct_values_are_those_of_spark(spark: SparkSession, kind: str) -> None:
    aggregate = find("approx_count_distinct", distinct=False, argument_types=[kind])
    assert aggregate is not None
    (part,) = aggregate.parts
    groups = " UNION ALL ".join(f"SELECT {at} AS g, {count} AS n" for at, count in enumerate(COUNTS))
    rows = f"(SELECT g, id, {SKETCHED[kind]} AS x FROM ({groups}) LATERAL VIEW explode(sequence(0, n)) AS id)"
    rows = f"(SELECT g, id, CASE WHEN id > 0 THEN x END AS x FROM {rows})"
    expected = {
        row.g: row.n for row in spark.sql(f"SELECT g, approx_count_distinct(x) AS n FROM {rows} GROUP BY g").collect()
    }
    first = spark.sql(f"SELECT g, id % 3 AS p, {part.partial_sql(['x'])} AS c FROM {rows} GROUP BY g, id % 3")
    first.createOrReplaceTempView("first_cells")
    second = f"SELECT g, {part.reduce_sql('c')} AS c FROM first_cells GROUP BY g, p % 2"
    third = f"SELECT g, {part.reduce_sql('c')} AS c FROM ({second}) GROUP BY g"
    found = spark.sql(f"SELECT g, {aggregate.final_sql({'cells': 'c'})} AS n FROM ({third})")
    assert {row.g: row.n for row in found.collect()} == expected
    cells, reduce = first.toArrow(), part.reduce_sql("c", "duckdb")
    duck = connect()
    duck.register("cells", cells)
    text = f"SELECT g, {reduce} AS c FROM (SELECT g, {reduce} AS c FROM cells GROUP BY g, p % 2) GROUP BY g"
    in_duckdb = duck.sql(f"SELECT g, {aggregate.final_sql({'cells': 'c'}, 'duckdb')} AS n FROM ({text})").fetchall()
    assert dict(in_duckdb) == expected
    if not aggregate.duckdb:
        return
    duck.register("r", spark.sql(f"SELECT g, id % 3 AS p, x FROM {rows}").toArrow())
    made = driver_sql(part.partial_sql(["x"]), lambda _: None, (Field("x", kind),), before="SELECT ", behind=" FROM r")
    assert made is not None
    again = duck.sql(f"SELECT g, p, list_sort({made}) AS c FROM r GROUP BY g, p ORDER BY g, p").fetchall()
    assert again == [(row.g, row.p, sorted(row.c)) for row in first.orderBy("g", "p").collect()]
