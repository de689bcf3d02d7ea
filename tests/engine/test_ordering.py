"""ORDER BY in views: by aggregates, and with ties that are broken the same way whatever way the rows came."""

from __future__ import annotations

import random

import pytest

from anabranch.testing import Harness, assert_same_rows, shuffled

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


TIED = {
    "top": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC) AS r FROM {s}) WHERE r <= 2",
    "least": "SELECT k, v FROM {s} ORDER BY n LIMIT 4",
    "before": "SELECT k, n, v, lag(v) OVER (PARTITION BY k ORDER BY n) AS was FROM {s}",
    "running": "SELECT k, v, sum(w) OVER w AS total, rank() OVER w AS place FROM {s}"
    " WINDOW w AS (PARTITION BY k ORDER BY n ROWS UNBOUNDED PRECEDING)",
    "pairs": "SELECT a.v AS one, b.v AS other, ntile(3) OVER (PARTITION BY a.k ORDER BY a.n) AS third"
    " FROM {s} a JOIN {s} b ON a.k = b.k AND a.w = b.w",
    "ends": "SELECT k, first(v) AS one, last(v) FILTER (WHERE n = 1) AS other FROM {s} GROUP BY k",
}


def test_winners_of_ties_depend_on_the_rows_alone(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows in another order, another cut, and computed by DuckDB or by Spark: equal tables."""
    chance = random.Random(4)
    rows = [(chance.choice("abc"), chance.choice((1, 2, None)), chance.choice((*"uvwxyz", None)), i % 4)
            for i in range(40)]  # fmt: skip
    for stream, clause in (("one", ""), ("two", " EMIT CHANGES"), ("three", " EMIT CHANGES")):
        home.sql(f"CREATE STREAM {stream} (k STRING, n INT, v STRING, w INT)")
        for name, query in TIED.items():
            home.sql(f"CREATE VIEW {stream}_{name} AS {query.format(s=stream)}{clause}")
    home.insert_runs("one", [rows[:30], rows[30:]])
    mixed = shuffled(rows, chance)
    home.insert_runs("two", [mixed[:3], mixed[3:4], mixed[4:25], mixed[25:]])
    home.sql("SET anabranch.backend = spark")
    mixed = shuffled(rows, chance)
    home.insert_runs("three", [mixed[:20], mixed[20:]])
    for name in TIED:
        wanted = home.table(f"one_{name}")
        assert len(wanted) > 1, name
        assert_same_rows(home.emitted(f"two_{name}"), wanted)
        assert_same_rows(home.emitted(f"three_{name}"), wanted)


def test_rows_that_share_a_rank_go_on_sharing_it(home: Harness) -> None:
    query = (
        "SELECT v, rank() OVER (ORDER BY n) AS a, dense_rank() OVER (ORDER BY n) AS b, sum(n) OVER (ORDER BY n) AS c,"
        " last_value(n) OVER (ORDER BY n) AS d, percent_rank() OVER (ORDER BY n) AS e FROM s"
    )
    home.sql(f"CREATE STREAM s (n INT, v STRING); CREATE VIEW v AS {query} EMIT CHANGES")
    rows = [(1, "a"), (1, "b"), (2, "c"), (2, "d"), (3, "e")]
    home.insert_runs("s", [rows[2:], rows[:2]])
    assert_same_rows(home.table("v"), home.batch(query, s=rows))
    assert [row[1] for row in home.table("v")] == [1, 1, 3, 3, 5]
