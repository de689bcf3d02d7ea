from __future__ import annotations

import pytest

from anabranch.errors import SqlError
from anabranch.sql.calls import AGGREGATES
from anabranch.sql.functions import builtin
from anabranch.sql.lexer import tokenize
from anabranch.sql.own_aggregates import OWN_AGGREGATES, own_calls


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
        ("geomean(CASE WHEN x THEN '(' /* ) */ END)", ["exp(avg(ln((CASE WHEN x THEN '(' /* ) */ END))))"]),
    ],
)  # fmt: skip
def test_calls_are_expressions_over_aggregates_of_spark(text: str, made: list[str] | None) -> None:
    if made is None:
        with pytest.raises(SqlError, match="geomean takes"):
            written(text)
    else:
        assert written(text) == made


def test_names_are_not_those_of_spark() -> None:
    assert not OWN_AGGREGATES.keys() & {*builtin(), *AGGREGATES}
