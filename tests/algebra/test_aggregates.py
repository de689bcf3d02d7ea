"""Mergeable aggregates: however rows are cut and partials are merged, the answer is that of plain SQL.

DuckDB runs what it can run here; what only Spark runs is tested beside, with Spark.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import duckdb
import pytest

from anabranch.algebra.aggregates import Aggregate, Part, find

Value = int | float | str | bool | None


def known(name: str, *types: str, distinct: bool = False) -> Aggregate:
    aggregate = find(name, distinct=distinct, argument_types=types)
    assert aggregate is not None
    return aggregate


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def partial_in_duckdb(part: Part, arguments: Sequence[str], condition: str | None) -> str:
    """The partial as DuckDB spells it: only the sets of distinct values have another name there."""
    text = part.partial_sql(arguments, condition)
    if text.startswith("collect_set("):
        wanted = f"{arguments[0]} IS NOT NULL" + (f" AND ({condition})" if condition else "")
        return f"coalesce(array_agg(DISTINCT {arguments[0]}) FILTER (WHERE {wanted}), [])"
    return text


def merged(
    database: duckdb.DuckDBPyConnection,
    aggregate: Aggregate,
    partitions: Sequence[Sequence[Value]],
    sql_type: str,
    chooser: random.Random,
    *,
    arguments: Sequence[str] = ("x",),
    condition: str | None = None,
) -> Value:
    """Partials of each partition, reduced in a random tree, made final."""
    names = [part.suffix for part in aggregate.parts]
    partials = ", ".join(
        f"{partial_in_duckdb(part, arguments, condition)} AS {part.suffix}" for part in aggregate.parts
    )
    reduces = ", ".join(f"{part.reduce_sql(part.suffix, 'duckdb')} AS {part.suffix}" for part in aggregate.parts)
    tables = [
        f"(SELECT {partials} FROM (SELECT unnest({list_sql(values)}::{sql_type}[]) AS x))" for values in partitions
    ]
    first_type = column_types(database, f"SELECT {partials} FROM (SELECT NULL::{sql_type} AS x)")
    while len(tables) > 1:
        chooser.shuffle(tables)
        size = chooser.randint(2, len(tables))
        union = " UNION ALL ".join(f"SELECT * FROM {table}" for table in tables[:size])
        tables = [f"(SELECT {reduces} FROM ({union}))", *tables[size:]]
    reduced = f"SELECT {reduces} FROM {tables[0]}"
    if aggregate.name not in ("sum", "avg", "count_if"):
        # These partials have wider types when DuckDB makes them, which it never does but here.
        assert column_types(database, reduced) == first_type
    final = aggregate.final_sql({name: name for name in names}, "duckdb")
    return only_value(database, f"SELECT {final} FROM ({reduced})")


def list_sql(values: Sequence[Value]) -> str:
    return "[" + ", ".join("NULL" if v is None else f"'{v}'" if isinstance(v, str) else str(v) for v in values) + "]"


def column_types(database: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    return [str(each) for each in database.sql(sql).types]


def only_value(database: duckdb.DuckDBPyConnection, sql: str) -> Value:
    rows = database.execute(sql).fetchall()
    assert len(rows) == 1
    value: Value = rows[0][0]
    return value


@pytest.mark.parametrize(
    ("name", "distinct", "arguments", "expected"),
    [
        ("count", False, [], 6),
        ("count", False, ["x"], 5),
        ("sum", False, ["x"], 27),
        ("avg", False, ["x"], 5.4),
        ("mean", False, ["x"], 5.4),
        ("min", False, ["x"], 1),
        ("max", False, ["x"], 8),
        ("min", True, ["x"], 1),
        ("count", True, ["x"], 4),
        ("sum", True, ["x"], 19),
        ("avg", True, ["x"], 4.75),
        ("bit_and", False, ["x"], 0),
        ("bit_or", False, ["x"], 15),
        ("bit_xor", False, ["x"], 4 ^ 6 ^ 1),
    ],
)
def test_three_partials_of_six_rows(
    database: duckdb.DuckDBPyConnection, name: str, distinct: bool, arguments: list[str], expected: Value
) -> None:
    aggregate = known(name, *(["bigint"] * len(arguments)), distinct=distinct)
    assert aggregate.duckdb
    for seed in range(4):
        partitions: list[list[Value]] = [[4, 8, None], [6], [8, 1]]
        value = merged(database, aggregate, partitions, "BIGINT", random.Random(seed), arguments=arguments)
        assert value == pytest.approx(expected, abs=1e-12)


CASES = [
    ("count", False, "bigint", "BIGINT"),
    ("count_if", False, "boolean", "BOOLEAN"),
    ("sum", False, "int", "INTEGER"),
    ("sum", False, "decimal(10,2)", "DECIMAL(10,2)"),
    ("sum", False, "double", "DOUBLE"),
    ("avg", False, "bigint", "BIGINT"),
    ("avg", False, "double", "DOUBLE"),
    ("min", False, "string", "VARCHAR"),
    ("max", True, "string", "VARCHAR"),
    ("max", False, "timestamp_ntz", "TIMESTAMP"),
    ("max", False, "decimal(10,2)", "DECIMAL(10,2)"),
    ("every", False, "boolean", "BOOLEAN"),
    ("bool_or", True, "boolean", "BOOLEAN"),
    ("bit_and", True, "smallint", "SMALLINT"),
    ("bit_xor", False, "int", "INTEGER"),
    ("count", True, "string", "VARCHAR"),
    ("count", True, "decimal(10,2)", "DECIMAL(10,2)"),
    ("sum", True, "bigint", "BIGINT"),
    ("sum", True, "decimal(10,2)", "DECIMAL(10,2)"),
    ("avg", True, "int", "INTEGER"),
]


def random_value(kind: str, chooser: random.Random) -> Value:
    if chooser.random() < 0.25:
        return None
    if kind == "boolean":
        return chooser.random() < 0.5
    if kind == "string":
        return chooser.choice(["a", "b", "B", "", "é", "ab"])
    if kind == "timestamp_ntz":
        return f"2026-01-0{chooser.randint(1, 9)} 00:00:00.000001"
    if kind in ("double", "decimal(10,2)"):
        return chooser.randint(-1000, 1000) / 100
    return chooser.randint(-9, 9)


@pytest.mark.parametrize(("name", "distinct", "kind", "sql_type"), CASES)
def test_any_cut_and_any_tree_give_the_answer_of_plain_sql(
    database: duckdb.DuckDBPyConnection, name: str, distinct: bool, kind: str, sql_type: str
) -> None:
    aggregate = known(name, kind, distinct=distinct)
    assert aggregate.duckdb
    spelled = {"every": "bool_and"}.get(name, name)
    for seed in range(25):
        chooser = random.Random(seed)
        partitions: list[list[Value]] = [
            [random_value(kind, chooser) for _ in range(chooser.choice([0, 0, 1, 2, 5]))]
            for _ in range(chooser.randint(1, 6))
        ]
        condition = chooser.choice([None, "x IS NOT NULL", "x IS NULL", "hash(x) % 2 = 0"])
        rows = [value for values in partitions for value in values]
        clause = "" if condition is None else f" FILTER (WHERE {condition})"
        expected = only_value(
            database,
            f"SELECT {spelled}({'DISTINCT ' if distinct else ''}x){clause} "
            f"FROM (SELECT unnest({list_sql(rows)}::{sql_type}[]) AS x)",
        )
        if name == "count_if" and expected is None:
            expected = 0  # of no rows it is NULL in DuckDB, and 0 in Spark
        value = merged(database, aggregate, partitions, sql_type, chooser, condition=condition)
        if isinstance(expected, float):
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)
        else:
            assert value == expected, (seed, partitions)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("sum", ["x"], 5),
        ("count", ["x"], 1),
        ("count", [], 3),
        ("min", ["x"], 5),
        ("max", ["x"], 5),
        ("avg", ["x"], 5),
    ],
)
def test_partials_of_nothing_but_nulls_change_nothing(
    database: duckdb.DuckDBPyConnection, name: str, arguments: list[str], expected: int
) -> None:
    aggregate = known(name, *(["int"] * len(arguments)))
    chooser = random.Random(0)
    assert merged(database, aggregate, [[None], [5], [None]], "INTEGER", chooser, arguments=arguments) == expected


@pytest.mark.parametrize(
    ("name", "distinct", "empty"),
    [("count", False, 0), ("count", True, 0), ("sum", False, None), ("sum", True, None), ("avg", False, None),
     ("avg", True, None), ("min", False, None), ("bit_or", False, None)],
)  # fmt: skip
def test_a_global_aggregate_of_no_rows_or_no_partials_is_one_row(
    database: duckdb.DuckDBPyConnection, name: str, distinct: bool, empty: Value
) -> None:
    aggregate = known(name, "int", distinct=distinct)
    assert merged(database, aggregate, [[]], "INTEGER", random.Random(0)) == empty
    assert merged(database, aggregate, [[], [None], []], "INTEGER", random.Random(0)) == empty
    reduces = ", ".join(f"{part.reduce_sql(part.suffix, 'duckdb')} AS {part.suffix}" for part in aggregate.parts)
    nothing = ", ".join(
        f"{'CAST([1] AS INTEGER[])' if part.suffix == 'set' else '1'} AS {part.suffix}" for part in aggregate.parts
    )
    final = aggregate.final_sql({part.suffix: part.suffix for part in aggregate.parts}, "duckdb")
    assert only_value(database, f"SELECT {final} FROM (SELECT {reduces} FROM (SELECT {nothing}) WHERE false)") == empty


def test_several_distinct_arguments_are_merged_as_structs(database: duckdb.DuckDBPyConnection) -> None:
    aggregate = known("count", "int", "string", distinct=True)
    part = aggregate.parts[0]
    assert not aggregate.duckdb  # structs that are kept are Spark's
    assert part.partial_sql(["a", "b"], "c") == (
        "collect_set(CASE WHEN (a) IS NOT NULL AND (b) IS NOT NULL THEN named_struct('v0', a, 'v1', b) END)"
        " FILTER (WHERE c)"
    )
    sets = "VALUES ([{'v0': 1, 'v1': 'x'}, {'v0': 1, 'v1': 'y'}]), ([{'v0': 1, 'v1': 'x'}]), ([]), (NULL)"
    sql = f"SELECT {part.reduce_sql('c', 'duckdb')} AS r FROM ({sets}) t(c)"
    assert only_value(database, f"SELECT {aggregate.final_sql({'set': 'r'}, 'duckdb')} FROM ({sql})") == 2


@pytest.mark.parametrize(
    ("name", "distinct", "types"),
    [
        ("percentile_approx", False, ["int", "double"]),
        ("first", False, ["int"]),
        ("max_by", False, ["int", "int"]),
        ("count", True, []),
        ("count", True, ["map<string,int>"]),
        ("count", True, ["string collate UTF8_LCASE"]),
        ("count", True, ["array<double>"]),
        ("sum", False, ["interval day to second"]),
        ("sum", True, ["decimal(28,2)"]),
        ("avg", False, ["decimal(25,2)"]),
        ("var_pop", True, ["int"]),
        ("bit_xor", True, ["int"]),
        ("bit_and", False, ["double"]),
        ("bool_and", False, ["int"]),
        ("max", False, ["map<int,int>"]),
        ("sum", False, ["int", "int"]),
    ],
)
def test_what_cannot_be_merged_exactly_is_not_found(name: str, distinct: bool, types: list[str]) -> None:
    assert find(name, distinct=distinct, argument_types=types) is None


def test_what_is_exact_and_what_duckdb_can_do() -> None:
    assert known("SUM", "decimal(10,2)").exact
    assert not known("sum", "double").exact
    assert not known("avg", "int").exact
    assert known("avg", "decimal(10,2)").exact
    assert not known("avg", "decimal(10,2)").duckdb
    assert known("stddev", "int").duckdb and not known("stddev", "int").exact
    assert not known("max", "struct<a:int>").duckdb
    assert known("std", "int") == known("stddev_samp", "int") == known("stddev", "int")
