from __future__ import annotations

import pytest

from anabranch.algebra.aggregates import find
from anabranch.errors import SqlError
from anabranch.sql.calls import SPARK_AGGREGATES
from anabranch.sql.checking import check_script
from anabranch.sql.functions import builtin
from anabranch.sql.lexer import tokenize
from anabranch.sql.own_aggregates import OWN_AGGREGATES
from anabranch.sql.own_calls import own_calls

PRODUCT = "aggregate(collect_list(CAST({} AS DOUBLE)){}, CAST(NULL AS DOUBLE), (a, b) -> coalesce(a, 1D) * b)"


def written(text: str) -> list[str]:
    return [made for _, _, made in own_calls(text, tokenize(text)[:-1])]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("geomean(n)", ["exp(avg(ln(n)))"]),
        ("GEOMEAN (a, b) + 1", None),
        ("geomean()", None),
        ("geomean(DISTINCT n)", None),
        ("geomean(n) FILTER (WHERE n > (1)) > 2", ["exp(avg(ln(n)) FILTER (WHERE n > (1)))"]),
        ("geomean(n) OVER (PARTITION BY k), 1", ["exp(avg(ln(n)) OVER (PARTITION BY k))"]),
        ("geomean(geomean(n) OVER w)", ["exp(avg(ln((exp(avg(ln(n)) OVER w)))))"]),
        ("coalesce(geomean(a), geomean(b))", ["exp(avg(ln(a)))", "exp(avg(ln(b)))"]),
        ("s.geomean(n), `geomean`(n), geomean", []),
        ("product(n + 1) FILTER (WHERE n > 1)", [PRODUCT.format("(n + 1)", " FILTER (WHERE n > 1)")]),
        ("geomean(CASE WHEN x THEN '(' /* ) */ END)", ["exp(avg(ln((CASE WHEN x THEN '(' /* ) */ END))))"]),
    ],
)  # fmt: skip
def test_calls_are_expressions_over_aggregates_of_spark(text: str, made: list[str] | None) -> None:
    if made is None:
        with pytest.raises(SqlError, match="geomean takes"):
            written(text)
    else:
        assert written(text) == made


def test_those_with_parts_have_them() -> None:
    for name, own in OWN_AGGREGATES.items():
        found = find(name, distinct=False, argument_types=["double"] * len(own.parameters))
        assert (found is not None) == own.parts, name


def test_names_are_not_those_of_spark() -> None:
    assert not OWN_AGGREGATES.keys() & {*builtin(), *SPARK_AGGREGATES}


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("SELECT count(*) AS n, geomean(v) AS g FROM s", None),
        ("SELECT k, geomean(v) AS g FROM s", "k is neither grouped by nor aggregated"),
        ("SELECT geo_mean(v) AS g FROM s", "there is no function geo_mean"),
    ],
)
def test_a_script_is_checked_by_them_as_by_aggregates_of_spark(select: str, problem: str | None) -> None:
    found = check_script(f"CREATE STREAM s (k STRING, v DOUBLE); CREATE VIEW x AS {select}")[0]
    assert [each.message for each in found] == ([problem] if problem else [])
    assert all(each.hint == "did you mean geomean?" for each in found if "function" in each.message)
