"""Ties: which orders go on with all columns, and which stay as they are written. Starts no Spark."""

from __future__ import annotations

import pytest

from anabranch.errors import AnabranchError
from anabranch.plan.catalog import Field
from anabranch.plan.ties import Places, break_ties, checked
from anabranch.sql.lexer import Span
from anabranch.sql.parser import parse
from anabranch.sql.splice import splice
from anabranch.sql.syntax import SelectStatement

COLUMNS = [Field("k", "string"), Field("n", "int"), Field("m", "map<string,int>"), Field("v", "array<int>")]


def columns(text: str) -> list[Field]:
    """What an analyser would say of a part of a query over s: the columns of s, twice where it is joined."""
    if "nowhere" in text:
        raise AnabranchError("there is no column nowhere")
    grouped = text.split(" FROM ")[0].count(" AS `x")
    if grouped:
        return COLUMNS[:grouped]
    return COLUMNS * 2 if "JOIN" in text and text.startswith("SELECT * ") else COLUMNS


def broken(text: str) -> str:
    statement = parse(text)[0]
    assert isinstance(statement, SelectStatement)
    places = Places(lambda span: span.of(text), columns, {})
    return splice(text, Span(0, len(text)), break_ties(text, statement.query, places)).text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT row_number() OVER (ORDER BY n DESC) FROM s", "(ORDER BY n DESC, `k`, struct(`v`))"),
        ("SELECT lag(v) OVER (PARTITION BY k ORDER BY s.n) FROM s", "(PARTITION BY k ORDER BY s.n, struct(`v`))"),
        ("SELECT lead(v) IGNORE NULLS OVER (ORDER BY n + 1) FROM s", "(ORDER BY n + 1, `k`, `n`, struct(`v`))"),
        (
            "SELECT sum(n) FILTER (WHERE n > 1) OVER (ORDER BY k ROWS 2 PRECEDING) FROM s",
            "(ORDER BY k, `n`, struct(`v`) ROWS 2 PRECEDING)",
        ),
        ("SELECT k FROM s QUALIFY ntile(2) OVER (ORDER BY n) = 1", "(ORDER BY n, `k`, struct(`v`)) = 1"),
        (
            "SELECT rank() OVER w, row_number() OVER w FROM s WINDOW w AS (ORDER BY n)",
            "SELECT rank() OVER w, row_number() OVER (ORDER BY n, `k`, struct(`v`)) FROM s WINDOW w AS (ORDER BY n)",
        ),
        (
            "SELECT row_number() OVER (ORDER BY a.n) FROM s a JOIN s b ON a.k = b.k",
            "(ORDER BY a.n, `a`.`k`, `b`.`k`, `b`.`n`, struct(`a`.`v`), struct(`b`.`v`))",
        ),
        ("SELECT k, row_number() OVER (ORDER BY count(*)) FROM s GROUP BY 1", "(ORDER BY count(*), k)"),
        ("SELECT k, n FROM s ORDER BY n LIMIT 3", "ORDER BY n, 1, 2, 4 LIMIT 3"),
        ("SELECT k, n FROM s OFFSET 1", "FROM s ORDER BY 1, 2, 4 OFFSET 1"),
        ("SELECT listagg(k, ',') FILTER (WHERE n > 1) FROM s", "(k, ',') WITHIN GROUP (ORDER BY k) FILTER"),
        ("SELECT listagg(k) WITHIN GROUP (ORDER BY n DESC) FROM s", "WITHIN GROUP (ORDER BY n DESC, k)"),
        ("SELECT string_agg(DISTINCT k) FROM s", "string_agg(DISTINCT k) WITHIN GROUP (ORDER BY k)"),
        (
            "SELECT first(n) FILTER (WHERE n > 1) FROM s",
            "min_by(n, struct(`k`, `n`, struct(`v`))) FILTER (WHERE n > 1)",
        ),
        (
            "SELECT first_value(n) OVER (PARTITION BY k) FROM s",
            "(PARTITION BY k ORDER BY `n`, struct(`v`) ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        ),
    ],
)
def test_an_order_that_decides_goes_on_with_all_columns(query: str, expected: str) -> None:
    assert expected in broken(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT rank() OVER (ORDER BY n), dense_rank() OVER (ORDER BY n), cume_dist() OVER (ORDER BY n) FROM s",
        "SELECT sum(n) OVER (ORDER BY n), count(*) OVER (PARTITION BY k) FROM s",
        "SELECT last_value(n) OVER (ORDER BY n), first_value(n) OVER (ORDER BY n RANGE 1 PRECEDING) FROM s",
        "SELECT k, n FROM s ORDER BY n",
        "SELECT k FROM s ORDER BY ALL LIMIT 1",
        "SELECT k, max(n) FROM s GROUP BY k",
        "SELECT row_number() OVER (ORDER BY n) FROM nowhere",
        "SELECT k, row_number() OVER (ORDER BY count(*)) FROM s GROUP BY ROLLUP (k)",
    ],
)
def test_an_order_that_does_not_decide_or_cannot_be_told_stays(query: str) -> None:
    assert broken(query) == query


def test_what_spark_does_not_take_stays_as_it_was() -> None:
    text = "SELECT k FROM s LIMIT 1"
    statement = parse(text)[0]
    assert isinstance(statement, SelectStatement)
    ties = break_ties(text, statement.query, Places(lambda span: span.of(text), columns, {}))

    def refuse(_: str) -> list[Field]:
        raise AnabranchError("no")

    assert ties
    assert checked(ties, lambda edits: splice(text, Span(0, len(text)), edits).text, refuse) == (text, [])
