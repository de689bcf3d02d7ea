"""Common table expressions in their places: pairs of a query and the same in other words."""

from __future__ import annotations

import pytest

from anabranch.plan.in_place import query_in_place
from anabranch.plan.scope import Unfit
from anabranch.sql.parser import parse
from anabranch.sql.syntax import Query, SelectStatement


def parsed(text: str) -> tuple[str, Query]:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    return statement.text, statement.query


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            "WITH x AS (SELECT * FROM a), y(l) AS (WITH x AS (SELECT k FROM b) SELECT k FROM x)"
            " SELECT * FROM x JOIN y ON x.k = l",
            "SELECT * FROM (SELECT * FROM a) AS `x` JOIN (SELECT k FROM (SELECT k FROM b) AS `x`) AS `y`(`l`)"
            " ON x.k = l",
        ),
        (
            "WITH x AS (SELECT k FROM a), y AS (SELECT k FROM x) SELECT k FROM (WITH x AS (SELECT k FROM y) SELECT k"
            " FROM x AS z) WHERE k IN (SELECT k FROM y)",
            "SELECT k FROM (SELECT k FROM (SELECT k FROM (SELECT k FROM (SELECT k FROM a) AS `x`) AS `y`) AS z)"
            " WHERE k IN (SELECT k FROM (SELECT k FROM (SELECT k FROM a) AS `x`) AS `y`)",
        ),
        (
            "WITH w(p) AS (SELECT k FROM a) (SELECT p FROM w AS u) UNION ALL SELECT q FROM w AS u(q)",
            "(SELECT p FROM (SELECT k FROM a) AS u(`p`)) UNION ALL SELECT q FROM (SELECT k FROM a) AS u(q)",
        ),
    ],
)
def test_common_table_expressions_go_where_their_names_are(written: str, read: str) -> None:
    assert query_in_place(*parsed(written)) == read


def test_what_reads_itself_stays() -> None:
    with pytest.raises(Unfit, match="RECURSIVE"):
        query_in_place(*parsed("WITH RECURSIVE x AS (SELECT k FROM a) SELECT k FROM x"))
