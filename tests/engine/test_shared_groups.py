"""Views with the same groups share them in memory: what each shows is what it would show alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.engine.hot import Hot
from anabranch.testing import Harness, assert_same_rows

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, v BIGINT, x DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)"
WINDOWS = "TUMBLE(s, ts, INTERVAL 10 SECONDS)"
QUERIES = {
    "plain": "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k",
    "means": "SELECT k, avg(v) AS a, stddev(x) AS d FROM s GROUP BY k",
    "different": "SELECT count(DISTINCT v) AS n, approx_count_distinct(v) AS about, k FROM s GROUP BY k",
    "some": "SELECT k, count(*) AS n FROM s WHERE v > 500 GROUP BY k",
    "hidden": "SELECT max(v) AS v, sum(v) AS total FROM s GROUP BY k",
    "times": f"SELECT k, window_start, sum(v) AS v FROM {WINDOWS} GROUP BY k, window_start, window_end",
    "others": f"SELECT window_end, max(v) AS v FROM {WINDOWS} GROUP BY k, window_start, window_end",
    "all": "SELECT count(*) AS n, sum(x) AS x FROM s",
}


def rows(seed: int, count: int) -> list[tuple[Any, ...]]:
    pick = random.Random(seed)
    return [
        (pick.choice(["a", "b", "c", None]), pick.choice([None, pick.randrange(1000)]), pick.randrange(8) / 4,
         f"2026-01-01 00:00:{pick.randrange(max(0, seed - 25), min(60, seed + 20)):02}")
        for _ in range(count)
    ]  # fmt: skip


def check(home: Harness, given: list[tuple[Any, ...]], names: Any = QUERIES) -> None:
    for name in names:
        assert_same_rows(home.table(name), home.batch(QUERIES[name], s=given))


def hot(home: Harness) -> Hot:
    return home.session._core.hot


def test_views_share_their_groups(home: Harness) -> None:
    home.sql(STREAM)
    for name, query in QUERIES.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
    given: list[tuple[Any, ...]] = []
    for run in range(0, 40, 5):  # windows close behind some of them, and late rows bring them back
        new = rows(run, 20)
        given += new
        home.insert("s", new)
        check(home, given)
    shared = {frozenset(table.changes) for table in hot(home)._tables.values()}
    assert {frozenset(("plain", "means", "different", "hidden")), frozenset(("times", "others"))} <= shared


def test_views_come_and_go(home: Harness) -> None:
    home.sql(STREAM)
    given: list[tuple[Any, ...]] = []
    there: list[str] = []
    for run, name in enumerate(("plain", "means", "hidden", "different")):
        home.sql(f"CREATE VIEW {name} AS {QUERIES[name]} EMIT CHANGES")
        there.append(name)
        for more in range(2):
            new = rows(10 * run + more, 10)
            given += new
            home.insert("s", new)
        # A view on partials has what they have: also those of rows that came before it.
        check(home, given, there)
    home.sql("DROP VIEW means")
    new = rows(50, 10)
    home.insert("s", new)
    check(home, given + new, ["plain", "hidden", "different"])
    assert len(hot(home)._tables) == 1


def test_a_view_that_fails_leaves_the_others_alone(home: Harness) -> None:
    home.sql(STREAM)
    home.sql("CREATE VIEW sums AS SELECT k, sum(v) AS total FROM s GROUP BY k EMIT CHANGES")
    home.sql("CREATE VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k EMIT CHANGES")
    home.sql("CREATE VIEW highs AS SELECT k, max(v) AS v FROM s GROUP BY k EMIT CHANGES")
    time = "2026-01-01 00:00:00"
    home.insert("s", [("a", 2**62, 0.0, time)])
    with pytest.warns(RuntimeWarning, match="sums"):
        home.insert("s", [("a", 2**62, 0.0, time)])  # too large for a BIGINT
    home.insert("s", [("a", 1, 0.0, time), ("b", 1, 0.0, time)])
    assert home.table("counts") == [("a", 3), ("b", 1)]
    assert home.table("highs") == [("a", 2**62), ("b", 1)]


def test_changes_that_nobody_asked_for_are_not_taken_for_shown(home: Harness) -> None:
    """A view that sits out a run is computed from the ledger the next time."""
    home.sql(STREAM)
    names = ["plain", "means", "hidden"]
    for name in names:
        home.sql(f"CREATE VIEW {name} AS {QUERIES[name]} EMIT CHANGES")
    first = rows(1, 10)
    home.insert("s", first)
    for table in hot(home)._tables.values():
        table.waiting.add(next(iter(table.changes)))
    second = rows(2, 10)
    home.insert("s", second)
    check(home, first + second, names)
    assert len(hot(home)._apart) == 1
