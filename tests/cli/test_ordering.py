"""The order of a query: which columns of the answer it names, and that rows sorted by it stand as Spark has them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from anabranch.cli.net import NetTable
from anabranch.cli.ordering import Order, SortColumn, order_of
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def order(sql: str, *columns: str) -> Order:
    [statement] = parse(sql)
    assert isinstance(statement, SelectStatement)
    return order_of(sql, statement.query, columns)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT a, b FROM t", ()),
        ("SELECT a, b FROM t LIMIT 3", ()),
        ("SELECT a, b FROM t ORDER BY b", (SortColumn(1),)),
        ("SELECT a, b FROM t ORDER BY B, `a` DESC LIMIT 2", (SortColumn(1), SortColumn(0, True, True))),
        ("SELECT a, b FROM t ORDER BY a DESC NULLS FIRST OFFSET 1", (SortColumn(0, True, False),)),
        ("SELECT a, b FROM t ORDER BY a NULLS LAST", (SortColumn(0, False, True),)),
        ("SELECT a, b FROM t ORDER BY 2 DESC, 1", (SortColumn(1, True, True), SortColumn(0))),
        ("SELECT a, b FROM t ORDER BY ALL DESC", (SortColumn(0, True, True), SortColumn(1, True, True))),
        ("SELECT k AS a, count(*) AS b FROM t GROUP BY k ORDER BY COUNT( * ) DESC", (SortColumn(1, True, True),)),
        ("SELECT k AS a, f(x, y) AS b FROM t ORDER BY f(x, y), k", (SortColumn(1), SortColumn(0))),
        ("SELECT t.a, u.b FROM t JOIN u ON t.i = u.i ORDER BY u.b, a", (SortColumn(1), SortColumn(0))),
        ("SELECT t.x AS a, u.x AS b FROM t JOIN u ON t.i = u.i ORDER BY u.x", (SortColumn(1),)),
        ("SELECT b AS a, a AS b FROM t ORDER BY a", (SortColumn(0),)),  # the name in the answer wins
        ("SELECT * FROM t ORDER BY t.b", (SortColumn(1),)),
        ("SELECT * FROM t ORDER BY b", (SortColumn(1),)),
        ("SELECT a, b FROM t UNION SELECT a, b FROM u ORDER BY b", (SortColumn(1),)),
        ("(SELECT a, b FROM t ORDER BY b)", (SortColumn(1),)),
        ("WITH c AS (SELECT 1 AS a, 2 AS b) SELECT a, b FROM c ORDER BY b", (SortColumn(1),)),
    ],
)
def test_the_columns_of_an_order(sql: str, columns: tuple[SortColumn, ...]) -> None:
    assert order(sql, "a", "b") == Order(columns)


@pytest.mark.parametrize(
    ("sql", "kept", "left_out"),
    [
        ("SELECT a, b FROM t ORDER BY b, c, a", 1, "c"),
        ("SELECT a, b FROM t ORDER BY abs(a)", 0, "abs(a)"),
        ("SELECT a, b FROM t ORDER BY 3", 0, "3"),
        ("SELECT * FROM t ORDER BY place.b", 0, "place.b"),  # a field of a column, not column b of a relation
        ("SELECT t.x AS a, u.x AS b FROM t JOIN u ON t.i = u.i ORDER BY v.x", 0, "v.x"),
    ],
)
def test_what_is_no_column_of_the_answer_is_left_out(sql: str, kept: int, left_out: str) -> None:
    found = order(sql, "a", "b")
    assert (len(found.columns), found.unsortable) == (kept, left_out)


VALUES = """SELECT * FROM VALUES
    (1, 'a', CAST(1.5 AS DOUBLE), array(1, NULL), named_struct('x', 1, 'y', 'b')),
    (NULL, 'B', CAST('NaN' AS DOUBLE), array(1), named_struct('x', NULL, 'y', 'a')),
    (2, NULL, CAST('-Infinity' AS DOUBLE), array(1, 0), NULL),
    (2, 'é', NULL, NULL, named_struct('x', 1, 'y', 'a')),
    (2, 'z', CAST('Infinity' AS DOUBLE), array(), named_struct('x', 0, 'y', 'z')),
    (-1, '', CAST(0 AS DOUBLE), array(NULL), named_struct('x', 2, 'y', NULL)) AS v(i, s, d, l, t)"""


@pytest.mark.spark
@pytest.mark.parametrize("column", ["i", "s", "d", "l", "t"])
def test_rows_stand_as_spark_sorts_them(spark: SparkSession, column: str) -> None:
    for direction in ("", "DESC", "NULLS LAST", "DESC NULLS FIRST"):
        sql = f"{VALUES} ORDER BY {column} {direction}, i, s"
        expected = spark.sql(sql).toArrow()
        net = NetTable(order(sql, "i", "s", "d", "l", "t"))
        numbers = list(range(expected.num_rows))
        random.Random(1).shuffle(numbers)
        net.insert(expected.take(numbers))
        texts = [net.texts(row) for row in net.rows()]
        assert [text[1] for text in texts] == expected["s"].to_pylist()
        assert net.part(3) == net.rows()[:3]
