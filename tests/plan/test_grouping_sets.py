"""GROUPING SETS, ROLLUP and CUBE: the union that they are planned as."""

from __future__ import annotations

import pytest

from anabranch.plan.catalog import Catalog, Field, Stream, to_json
from anabranch.plan.grouping_sets import without_grouping_sets
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

S = (Field("k", "string"), Field("g", "string"), Field("n", "int"), Field("ts", "timestamp"))
CATALOG = Catalog({"s": to_json(Stream("s", "s", "", S, "ts", None, None, None, None, {}, "all", False, 0))})


def _analyze(text: str, schemas: dict[str, tuple[Field, ...]]) -> list[Field]:
    return [Field(f"x{index}", "int") for index in range(text.count(" AS `x"))]


def planned(text: str) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    made, query = without_grouping_sets(statement.text, statement.query, CATALOG, _analyze)
    return query.span.of(made)


NULL = "CAST(NULL AS INT)"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            "SELECT k, g, sum(n) AS n FROM s WHERE n > 0 GROUP BY ROLLUP (k, g) ORDER BY k",
            "SELECT k, g, sum(n) AS n FROM s WHERE n > 0 GROUP BY k, g"
            f" UNION ALL SELECT k, {NULL} AS `g`, sum(n) AS n FROM s WHERE n > 0 GROUP BY k"
            f" UNION ALL SELECT {NULL} AS `k`, {NULL} AS `g`, sum(n) AS n FROM s WHERE n > 0 GROUP BY (1 = 1)"
            " ORDER BY k",
        ),
        (
            "SELECT s.k AS key, grouping(k) AS a, grouping_id() AS b, max(k) FROM s GROUP BY CUBE (k, g)"
            " HAVING coalesce(k, 'x') > 'a'",
            "SELECT s.k AS key, CAST(0 AS TINYINT) AS a, CAST(0 AS BIGINT) AS b, max(k) FROM s GROUP BY k, g"
            " HAVING coalesce(k, 'x') > 'a'"
            " UNION ALL SELECT s.k AS key, CAST(0 AS TINYINT) AS a, CAST(1 AS BIGINT) AS b, max(k) FROM s GROUP BY k"
            " HAVING coalesce(k, 'x') > 'a'"
            f" UNION ALL SELECT {NULL} AS key, CAST(1 AS TINYINT) AS a, CAST(2 AS BIGINT) AS b, max(k) FROM s"
            f" GROUP BY g HAVING coalesce({NULL}, 'x') > 'a'"
            f" UNION ALL SELECT {NULL} AS key, CAST(1 AS TINYINT) AS a, CAST(3 AS BIGINT) AS b, max(k) FROM s"
            f" GROUP BY (1 = 1) HAVING coalesce({NULL}, 'x') > 'a'",
        ),
        (
            "SELECT n, lower(k) AS l, count(*) AS c FROM s GROUP BY n, GROUPING SETS ((lower(k)), ())",
            "SELECT n, lower(k) AS l, count(*) AS c FROM s GROUP BY n, lower(k)"
            f" UNION ALL SELECT n, {NULL} AS l, count(*) AS c FROM s GROUP BY n",
        ),
        (
            "SELECT k, count(*) AS c FROM s GROUP BY k WITH ROLLUP",
            "SELECT k, count(*) AS c FROM s GROUP BY k"
            f" UNION ALL SELECT {NULL} AS `k`, count(*) AS c FROM s GROUP BY (1 = 1)",
        ),
        (
            "SELECT k, g, count(*) AS c FROM s GROUP BY k, g GROUPING SETS ((k), (g))",
            f"SELECT k, {NULL} AS `g`, count(*) AS c FROM s GROUP BY k"
            f" UNION ALL SELECT {NULL} AS `k`, g, count(*) AS c FROM s GROUP BY g",
        ),
        (
            "SELECT k, count(*) AS c FROM (SELECT k, max(n) AS n FROM s GROUP BY k) AS x GROUP BY ROLLUP (k)",
            "WITH __f0 AS (SELECT k, max(n) AS n FROM s GROUP BY k) SELECT k, count(*) AS c FROM __f0 AS x GROUP BY k"
            f" UNION ALL SELECT {NULL} AS `k`, count(*) AS c FROM __f0 AS x GROUP BY (1 = 1)",
        ),
    ],
)
def test_sets_become_a_union(written: str, read: str) -> None:
    assert planned(written) == read


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM s GROUP BY GROUPING SETS (())",  # one row over no rows
        "SELECT k, rank() OVER (ORDER BY count(*)) AS r FROM s GROUP BY ROLLUP (k)",
        "SELECT k, count(*) AS c FROM s GROUP BY ROLLUP (k) ORDER BY c LIMIT 3",
        "SELECT DISTINCT count(*) AS c FROM s GROUP BY ROLLUP (k)",
        "SELECT upper(lower(k) || g) AS u, count(*) AS c FROM s GROUP BY ROLLUP (lower(k) || g, k)",
        "SELECT k FROM s GROUP BY ROLLUP (k) UNION SELECT g FROM s",
    ],
)
def test_what_could_mean_something_else_stays(text: str) -> None:
    assert planned(text) == text
