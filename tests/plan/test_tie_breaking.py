"""Ties: which orders go on with all columns, and which stay as they are written. Starts no Spark."""

from __future__ import annotations

import pytest

from anabranch.ir.build import Builder
from anabranch.ir.rel import Scan
from anabranch.ir.select import SelectBlock, SetBlock
from anabranch.plan.bind import Reference
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Table
from anabranch.plan.name_resolution import NameResolver
from anabranch.plan.stored import to_json
from anabranch.plan.tie_breaking import break_ties, break_ties_of_set
from anabranch.render.placeholders import PlaceholderWriter
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement
from anabranch.types import Field
from ir.plan_help import Untyped

COLUMNS = (Field("k", "string"), Field("n", "int"), Field("m", "map<string,int>"), Field("v", "array<int>"))
CATALOG = Catalog({"s": to_json(Table("s", "s", "", COLUMNS, None, {}, None))})


def written(text: str, *, broken: bool) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)

    def columns(reference: Reference) -> tuple[Field, ...]:
        raise AssertionError(reference)

    context = NameResolver(text, CATALOG, statement.query, Untyped().analyze, columns)
    rel = Builder(text, context).query(statement.query, None, {})

    def shape(block: SelectBlock | SetBlock) -> SelectBlock | SetBlock:
        if isinstance(block, SetBlock):
            return break_ties_of_set(block)
        return break_ties(block, (), lambda exprs: ["int"] * len(exprs))

    def leaf(scan: Scan) -> str:
        return scan.source.name

    writer = PlaceholderWriter(leaf, shape) if broken else PlaceholderWriter(leaf)
    writer.nested(rel, [column.name for column in rel.columns])
    return writer.written.text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT row_number() OVER (ORDER BY n DESC) FROM s", "(ORDER BY n DESC, k, struct(v))"),
        ("SELECT lag(v) OVER (PARTITION BY k ORDER BY s.n) FROM s", "(PARTITION BY k ORDER BY n, struct(v))"),
        ("SELECT lead(v) IGNORE NULLS OVER (ORDER BY n + 1) FROM s", "(ORDER BY n + 1, k, n, struct(v))"),
        (
            "SELECT sum(n) FILTER (WHERE n > 1) OVER (ORDER BY k ROWS 2 PRECEDING) FROM s",
            "(ORDER BY k, n, struct(v) ROWS 2 PRECEDING)",
        ),
        ("SELECT k FROM s QUALIFY ntile(2) OVER (ORDER BY n) = 1", "(ORDER BY n, k, struct(v)) = 1"),
        (
            "SELECT rank() OVER w, row_number() OVER w FROM s WINDOW w AS (ORDER BY n)",
            "row_number() OVER (ORDER BY n, k, struct(v))",
        ),
        (
            "SELECT row_number() OVER (ORDER BY a.n) FROM s a JOIN s b ON a.k = b.k",
            "(ORDER BY a.n, a.k, b.k, b.n, struct(a.v), struct(b.v))",
        ),
        ("SELECT k, row_number() OVER (ORDER BY count(*)) FROM s GROUP BY 1", "(ORDER BY count(*), k)"),
        ("SELECT k, n FROM s ORDER BY n LIMIT 3", "ORDER BY n, k LIMIT 3"),
        ("SELECT k, n FROM s OFFSET 1", "ORDER BY k, n OFFSET 1"),
        ("SELECT listagg(k, ',') FILTER (WHERE n > 1) FROM s", "(k, ',') WITHIN GROUP (ORDER BY k) FILTER"),
        ("SELECT listagg(k) WITHIN GROUP (ORDER BY n DESC) FROM s", "WITHIN GROUP (ORDER BY n DESC, k)"),
        ("SELECT string_agg(DISTINCT k) FROM s", "string_agg(DISTINCT k) WITHIN GROUP (ORDER BY k)"),
        (
            "SELECT first(n) FILTER (WHERE n > 1) FROM s",
            "min_by(n, struct(k, n, struct(v))) FILTER (WHERE n > 1)",
        ),
        (
            "SELECT first_value(n) OVER (PARTITION BY k) FROM s",
            "(PARTITION BY k ORDER BY n, struct(v) ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        ),
    ],
)
def test_an_order_that_decides_goes_on_with_all_columns(query: str, expected: str) -> None:
    assert expected in written(query, broken=True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT rank() OVER (ORDER BY n), dense_rank() OVER (ORDER BY n), cume_dist() OVER (ORDER BY n) FROM s",
        "SELECT sum(n) OVER (ORDER BY n), count(*) OVER (PARTITION BY k) FROM s",
        "SELECT last_value(n) OVER (ORDER BY n), first_value(n) OVER (ORDER BY n RANGE 1 PRECEDING) FROM s",
        "SELECT k, n FROM s ORDER BY n",
        "SELECT k, max(n) FROM s GROUP BY k",
        "SELECT k, row_number() OVER (ORDER BY count(*)) FROM s GROUP BY ROLLUP (k)",
    ],
)
def test_an_order_that_does_not_decide_stays(query: str) -> None:
    assert written(query, broken=True) == written(query, broken=False)
