"""ORDER BY in views: by aggregates, and with ties that are broken the same way whatever way the rows came."""

from __future__ import annotations

import pytest

from anabranch.testing import Harness, assert_same_rows

pytestmark = pytest.mark.spark

ROWS = [("a", 1), ("b", 2), ("a", 5), ("c", 4), ("b", 1)]
MORE = [("b", 7), ("c", 2)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, max(n) FROM s GROUP BY k ORDER BY max(n)",
        "SELECT k FROM s GROUP BY k ORDER BY max(n) DESC LIMIT 2",
        "SELECT max(n) AS m FROM s GROUP BY k ORDER BY sum(n) + 1 DESC, k, max(n)",
        "SELECT x.k FROM s x WHERE n > 1 GROUP BY x.k ORDER BY count(*) DESC, min(n), x.k",
        "SELECT upper(k) AS u, count(DISTINCT n) FROM s GROUP BY upper(k) ORDER BY count(DISTINCT n), upper(k)",
        "WITH t AS (SELECT k FROM s GROUP BY k ORDER BY sum(n) DESC LIMIT 1) SELECT * FROM t",
    ],
)
def test_a_view_can_be_ordered_by_an_aggregate(home: Harness, query: str) -> None:
    home.sql(f"CREATE STREAM s (k STRING, n INT); CREATE VIEW v AS {query}; CREATE VIEW w AS {query} EMIT CHANGES")
    for rows in (ROWS, MORE):
        home.insert("s", rows)
        wanted = home.query(query)
        assert home.query("SELECT * FROM v") == wanted
        assert home.query("SELECT * FROM w") == wanted
        assert sorted(home.emitted("w")) == sorted(wanted)
    assert_same_rows(home.query(query), home.batch(query, s=[*ROWS, *MORE]))
