"""Every function, operator and aggregate that the driver's engine knows, in both engines over hostile values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.duck import connect
from anabranch.render import duckdb_functions as functions
from anabranch.render.duckdb import driver_sql
from render.driver_help import COLUMNS, FIELDS, Engines, Expressions, Form

#: The columns of a family: each of another type where there are several.
_FAMILIES = {
    "whole": ("t", "i", "n"), "int": ("t", "i"), "bigint": ("n",), "small": ("t", "i"),
    "decimal": ("d", "e"), "double": ("x", "y"), "string": ("s", "u"),
    "date": ("a",), "timestamp": ("m", "o"), "boolean": ("b",), "text!": ("'a'", "'10'", "' '"),
    "index!": ("1", "3"), "size!": ("0", "2"), "whole!": ("1", "3", "3600000000"),
}  # fmt: skip
_ALIKE = [("i", "n"), ("d", "d"), ("x", "y"), ("s", "u"), ("a", "a"), ("m", "o"), ("b", "c")]
_SIGNS = ("+", "-", "*", "/", "%", "div", "&", "|", "^", "=", "<>", "<", "<=", ">", ">=", "<=>", "==", "!=")
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_SELECT = Form(lambda g: "", "SELECT id, {} FROM `@r`", "SELECT id, {} FROM r")
_GROUP = Form(lambda g: "", "SELECT k, {} FROM `@r` GROUP BY k", "SELECT k AS id, {} FROM r GROUP BY k")
#: Names that have other ways to be written than by their signature.
_SPECIAL = {
    "coalesce": [f"coalesce({p}, {q})" for p, q in _ALIKE],
    "nvl": [f"nvl({p}, {q})" for p, q in _ALIKE],
    "ifnull": [f"ifnull({p}, {q})" for p, q in _ALIKE],
    "greatest": [f"greatest({p}, {q})" for p, q in _ALIKE],
    "least": [f"least({p}, {q})" for p, q in _ALIKE],
    "if": [f"if(b, {p}, {q})" for p, q in _ALIKE],
    "nvl2": [f"nvl2(s, {p}, {q})" for p, q in _ALIKE],
    "nullif": [f"nullif({p}, {q})" for p, q in _ALIKE],
    "isnull": [f"isnull({p})" for p, _ in _ALIKE],
    "isnotnull": [f"isnotnull({p})" for p, _ in _ALIKE],
    "concat": ["concat(s, u, 'x')", "s || u", "concat(s)"],
    "concat_ws": ["concat_ws('-', s, u)", "concat_ws(s, u, 'a', s)"],
    "ceil": ["ceil(d)", "ceil(e)", "ceil(i)", "ceil(x)"],
    "ceiling": ["ceiling(d)", "ceiling(e)"],
    "floor": ["floor(d)", "floor(e)", "floor(n)", "floor(y)"],
    "round": ["round(d)", "round(e, 2)", "round(e, 0)", "round(i)", "round(x)", "round(y)"],
    "date_trunc": [f"date_trunc('{unit}', {time})" for unit in _UNITS for time in ("m", "o")],
    "trunc": [f"trunc(a, '{unit}')" for unit in ("year", "quarter", "month", "week", "MM", "yyyy")],
    "date_part": [f"date_part('{u}', {t})" for u in ("year", "month", "day", "quarter") for t in ("a", "m")],
    "datepart": [f"datepart('{u}', m)" for u in ("hour", "minute")],
}
_TYPES = ("TINYINT", "INT", "BIGINT", "DOUBLE", "STRING", "DECIMAL(12,2)")
_CASTS = [
    *(f"CAST({column} AS {type})" for column in ("t", "i", "k") for type in _TYPES),
    "CAST(b AS STRING)", "CAST(a AS TIMESTAMP)", "CAST(m AS DATE)", "CAST(d AS DECIMAL(14,2))", "CAST(NULL AS INT)",
]  # fmt: skip
_OTHERS = [
    "s LIKE '%a%'", "u LIKE '_'", "s NOT LIKE 'A'", "b IS TRUE", "c IS NOT FALSE", "- i", "- x", "- d", "~ n",
    "CASE WHEN b THEN i WHEN c THEN n ELSE t END", "CASE s WHEN 'a' THEN 1 ELSE 2 END", "m + INTERVAL 5 MINUTES",
    "o - INTERVAL 1 DAY", "i BETWEEN t AND n", "s IN ('a', '10', '')", "a = DATE '1970-01-01'",
    "m >= TIMESTAMP '1970-01-01 00:00:00'", "d > 2.5", "x > 2.5", "y * 1.1", "- 0.3 + x",
    "a >= '1970-01-01'", "m > '1970-01-01'", "o IN ('2024-02-29 12:00:01', '1970-01-01')",
    "d + 1.25", "1.5", "e - d", "d * t", "b AND c", "b OR NOT c",
]  # fmt: skip


#: Rows without the values for which nearly everything fails.
_TAME = """s RLIKE '^[ -~]*$' AND u RLIKE '^[ -~]*$' AND i BETWEEN -100 AND 100 AND x < 1e9 AND x > -1 AND y < 1e9"""


def _scalar() -> Iterator[str]:
    for signature in functions.known():
        for arguments in product(*(_FAMILIES[each] for each in signature.arguments)):
            yield f"{signature.name}({', '.join(arguments)})"
    for texts in _SPECIAL.values():
        yield from texts
    for sign in _SIGNS:
        for one, other in [*_ALIKE, ("i", "3"), ("n", "7"), ("t", "i"), ("x", "i"), ("d", "i"), ("n", "n"), ("e", "d")]:
            yield f"{one} {sign} {other}"
    yield from _CASTS
    yield from _OTHERS


def _aggregates() -> Iterator[str]:
    # Whether a sum of large numbers of both signs overflows in Spark depends on the order of rows.
    columns = [name for name in COLUMNS if name not in ("n", "k")]
    for name, column in product([*functions.AGGREGATES, "count"], columns):
        yield f"{name}({column})"
        yield f"{name}(DISTINCT {column})"


def _answers(engines: Engines, form: Form, texts: Sequence[str]) -> dict[str, tuple[Counter[Any], Counter[Any] | None]]:
    """What the driver and Spark give for each text that the driver has an answer to."""
    asked = [(text, driver_sql(form.driver.format(text), lambda _: "r", FIELDS)) for text in texts]
    found = [(text, engines.driver(query)) for text, query in asked if query is not None]
    answered = [(text, rows) for text, rows in found if rows is not None]
    wanted: list[Counter[Any] | None] = []
    for start in range(0, len(answered), 80):
        wanted += engines.answers(form, [text for text, _ in answered[start : start + 80]])
    return {text: (rows, expected) for (text, rows), expected in zip(answered, wanted, strict=True)}


def _names(texts: Sequence[str]) -> set[str]:
    return {text.partition("(")[0] for text in texts}


def _check(engines: Engines, answered: set[str]) -> None:
    for form, texts in ((_SELECT, list(_scalar())), (_GROUP, list(_aggregates()))):
        found = _answers(engines, form, texts)
        different = {text: both for text, both in found.items() if both[0] != both[1]}
        assert list(different) == [], next(iter(different.values()))
        answered.update(found)


def _check_names(answered: set[str]) -> None:
    """Whether there was an answer for each name that is known: a signature that nothing fits proves nothing."""
    known = {each.name for each in functions.known()} | set(_SPECIAL) | set(functions.AGGREGATES)
    missing = known - _names(sorted(answered))
    assert not missing
    operators = {sign for sign in _SIGNS if any(f" {sign} " in text for text in answered)}
    assert operators == set(_SIGNS) and len(known) + len(operators) > 120


def test_every_function_gives_what_spark_gives(spark: SparkSession) -> None:
    """Over rows at random; where DuckDB fails, for a text that is not ASCII say, Spark is asked."""
    answered: set[str] = set()
    with connect() as duck:
        _check(Engines(spark, duck, 1), answered)
        tame = Engines(spark, duck, 2, where=_TAME)
        _check(tame, answered)
    _check_names(answered)


@pytest.mark.slow
def test_every_function_over_more_rows(spark: SparkSession, seed: int) -> None:
    """The same over many rows, so that each hostile value meets each other one."""
    with connect() as duck:
        for each in range(seed + 20, seed + 40):
            _check(Engines(spark, duck, each), set())


def test_functions_inside_each_other(spark: SparkSession) -> None:
    """Calls as arguments of calls, at random."""
    given = Expressions(5)
    texts = [call for call in _scalar() if "(" in call]
    nested = []
    for _ in range(250):
        outer, inner = given.chance.choice(texts), given.chance.choice(texts)
        column = next((each for each in "stinxduabmo" if f"({each}" in outer), None)
        if column is not None:
            nested.append(outer.replace(f"({column}", f"({inner}", 1))
    with connect() as duck:
        found = _answers(Engines(spark, duck, 6), _SELECT, nested)
    assert [text for text, (rows, expected) in found.items() if rows != expected] == []
    assert len(found) > 20
