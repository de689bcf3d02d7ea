"""What the driver's engine computes, Spark computes alike: by types, and over values at which engines differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.duck import connect
from anabranch.render.duckdb import driver_sql
from anabranch.types import Field
from render.driver_help import FIELDS, Engines, Expressions, Form


def sql(text: str, **around: str) -> str | None:
    return driver_sql(text, lambda name: name, FIELDS, **around)


@pytest.mark.parametrize(
    "text",
    [
        "n <= 3",
        "t = n AND i > 2147483648",
        "d >= 10 AND d < e",
        "x > 2 OR y IS NULL",
        "s = 'a' AND s < u",
        "n BETWEEN l - 5 AND l + 5",
        "m BETWEEN o - INTERVAL 5 MINUTES AND o",
        "b AND NOT c",
        "CASE WHEN b THEN i ELSE n END IN (1, 2)",
        "sum(n) > 0 AND count(*) - count(s) < 10",
        "sum(d) >= 10 AND coalesce(sum(d), 0) < 5",
        "min(f)",
        "avg(n)",
        "SELECT k, count(*) AS n FROM r GROUP BY k HAVING count(*) > 1",
        "SELECT * FROM r AS a JOIN r AS b USING (k) WHERE a.id IN (SELECT id FROM r WHERE n > 1)",
        "SELECT max(z) FROM (SELECT i + j AS z FROM r)",
        "SELECT k FROM r UNION ALL SELECT n FROM r",
        "SELECT * FROM r UNION ALL SELECT * FROM q",
        "SELECT f, k FROM r",
        "upper(s) LIKE 'A%' AND n % 2 = 1",
        "date_trunc('day', m) = o AND year(a) = 2024",
    ],
)
def test_what_means_the_same(text: str) -> None:
    assert sql(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "n <= '2.5'",
        "m = a",
        "b = 1",
        "b = 'true'",
        "d = x",
        "f > 0",
        "f + 1",
        "i + 1 > 5",
        "i + j > n",
        "n IN (1, '2')",
        "n IS DISTINCT FROM '2'",
        "SELECT k FROM (SELECT * FROM r UNION ALL SELECT * FROM q) WHERE k > 1",
        "n BETWEEN 1 AND '3'",
        "coalesce(n, 'a')",
        "coalesce(d, e)",
        "coalesce(d, n)",
        "CASE WHEN n THEN 1 END",
        "CASE WHEN b THEN 1 ELSE 'a' END",
        "n AND b",
        "avg(d) >= 10",
        "avg(DISTINCT n)",
        "sum(DISTINCT x)",
        "avg(DISTINCT x)",
        "sum(w)",
        "sum(s)",
        "d + 1",
        "a + INTERVAL 1 DAY",
        "m + INTERVAL 1 MONTH",
        "i = j = b",
        "b = i IN (1)",
        "SELECT k FROM r AS p NATURAL JOIN r AS q",
        "SELECT k FROM r UNION ALL SELECT s FROM r",
        "SELECT k FROM r WHERE i IN (SELECT s FROM r)",
        "SELECT k FROM (SELECT i + 1 AS z, k FROM r) WHERE z > 5",
        "SELECT x, count(*) FROM r GROUP BY x",
        "SELECT x + 1, count(*) FROM r GROUP BY 1",
        "SELECT DISTINCT k, x FROM r",
        "SELECT * EXCEPT (n), sum(n) AS z FROM r GROUP BY ALL",
        "SELECT x FROM r EXCEPT SELECT y FROM r",
        "SELECT k FROM (SELECT s AS n, k FROM r) WHERE n > 5",
        "SELECT k FROM r WHERE nothing > 5",
        "SELECT k FROM",
        "(" * 5000,
    ],
)
def test_what_is_left_to_spark(text: str) -> None:
    assert sql(text) is None


def test_a_part_of_a_query_is_asked_about_with_the_rest_of_it() -> None:
    """A name is what the query around makes of it."""
    inside = " FROM (SELECT s AS n, n AS s FROM r) AS q"
    assert sql("n > 5") is not None
    assert sql("n > 5", before="SELECT ", behind=inside) is None
    assert sql("sum(f)", before="SELECT ", behind=" FROM r") == 'sum("f")'
    assert sql("(SELECT k FROM r) AS q", before="SELECT * FROM ") == '(SELECT "k" FROM "r") AS "q"'


def test_the_matches_of_a_lookup_have_the_types_of_their_columns() -> None:
    fields = [Field("k", "int"), Field("m", "array<struct<`id`:int,`name`:string>>"), Field("o", "array<int>")]

    def joined(condition: str, column: str = "m", alias: str = "c") -> str | None:
        text = f"SELECT s.k FROM r AS s LEFT JOIN LATERAL inline(`s`.`{column}`) AS {alias} ON {condition}"
        return driver_sql(text, lambda name: name, fields)

    assert 'LATERAL (SELECT unnest("s"."m", recursive := true)) AS "c" ON' in str(joined("c.id = s.k"))
    assert joined("c.name = s.k") is None  # a text and a number
    assert joined("c.other = s.k") is None and joined("true", "o") is None
    assert 'AS "c"("x", "y") ON ("c"."x" = "s"."k")' in str(joined("c.x = s.k", alias="c(x, y)"))
    assert joined("c.y = s.k", alias="c(x, y)") is None and joined("true", alias="c(x)") is None


# ------------------------------------------------------------------------------------- both engines, the same rows


_FEW = "p.id < 25 AND q.id < 25"
FORMS = {
    "WHERE": Form(lambda g: g.condition(), "SELECT id FROM `@r` WHERE {}", "SELECT id, {} FROM r", True),
    "SELECT": Form(lambda g: g.value(g.same()), "SELECT id, {} FROM `@r`", "SELECT id, {} FROM r"),
    "GROUP BY": Form(
        lambda g: g.aggregate(), "SELECT k, {} FROM `@r` GROUP BY k", "SELECT k AS id, {} FROM r GROUP BY k"
    ),
    "HAVING": Form(
        lambda g: g.having(), "SELECT k FROM `@r` GROUP BY k HAVING {}", "SELECT k AS id, {} FROM r GROUP BY k", True
    ),
    "JOIN": Form(
        lambda g: g.condition(1),
        f"SELECT p.id * 100 + q.id FROM (SELECT * FROM `@r`) AS p JOIN `@r` AS q ON ({{}}) AND {_FEW}",
        f"SELECT p.id * 100 + q.id AS id, {{}} FROM r AS p CROSS JOIN r AS q WHERE {_FEW}",
        True,
        ("p.", "q."),
    ),
    "OVER": Form(
        lambda g: (
            f"row_number() OVER (PARTITION BY {g.value(g.same(), 0)} ORDER BY {g.value(g.same(), 1)}"
            f" {g.chance.choice(['', 'DESC'])}, id)"
        ),
        "SELECT id, {} FROM `@r`",
        "SELECT id, {} FROM r",
    ),
}


def _differences(engines: Engines, form: Form, seed: int, expressions: int) -> tuple[int, list[str]]:
    """How many expressions the driver has an answer for, and those for which it is not Spark's."""
    given = Expressions(seed, form.sides)
    texts = [form.make(given) for _ in range(expressions)]
    asked = [(text, driver_sql(form.driver.format(text), lambda _: "r", FIELDS)) for text in texts]
    found = [(text, engines.driver(query)) for text, query in asked if query is not None]
    # An error, an overflow say, is Spark's to tell of.
    answered = [(text, rows) for text, rows in found if rows is not None]
    wanted: list[Counter[Any] | None] = []
    for start in range(0, len(answered), 60):
        wanted += engines.answers(form, [text for text, _ in answered[start : start + 60]])
    pairs = zip(answered, wanted, strict=True)
    # Whether the bound of a band overflows in a row that another condition leaves out is for each engine to see.
    return len(answered), [
        text
        for (text, rows), expected in pairs
        if rows != expected and not (expected is None and re.search(r"\b\w [+-] \d+\)", text))
    ]


def _check(spark: SparkSession, seeds: Iterable[int], expressions: int) -> None:
    with connect() as duck:
        for seed in seeds:
            engines = Engines(spark, duck, seed)
            for name, form in FORMS.items():
                answered, different = _differences(engines, form, seed, expressions)
                assert different == [], f"{name}, seed {seed}"
                assert answered > expressions // 4, f"{name}: nearly all expressions are left to Spark"


def test_random_expressions(spark: SparkSession) -> None:
    """Wherever the driver has an answer to a random expression, it is Spark's, or Spark's refusal is the driver's."""
    _check(spark, [11], 60)


@pytest.mark.slow
def test_more_random_expressions(spark: SparkSession, seed: int) -> None:
    """The same, of thousands."""
    _check(spark, range(seed + 100, seed + 110), 300)
