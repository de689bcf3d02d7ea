"""Nodes that go on from what they show: the first rows of each key, and distinct rows, in any order and any cut."""

from __future__ import annotations

import random

import pytest

from anabranch.testing import Harness, assert_same_rows, shuffled

pytestmark = pytest.mark.spark

BY = "OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, ts)"
VIEWS = {
    "numbered": f"SELECT * FROM (SELECT *, row_number() {BY} AS n FROM s) WHERE n <= 2",
    "ranked": f"SELECT k, n, v AS x, ts FROM (SELECT *, rank() {BY} AS n FROM s WHERE v IS NULL OR v > 0) WHERE n < 3",
    "dense": f"SELECT *, dense_rank() {BY} AS n FROM s QUALIFY n <= 2",
    "latest": "SELECT k, v, ts FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts DESC, v) AS n FROM s)"
    " WHERE n = 1",
    "hidden": f"SELECT k, v + 1 AS x FROM (SELECT v, row_number() {BY} AS n, k FROM s) AS t WHERE t.n <= 2",
    "keyless": "SELECT v FROM (SELECT v, row_number() OVER (PARTITION BY k ORDER BY ts, v) AS n FROM s) WHERE n <= 2",
    "qualified": f"SELECT k, upper(k) AS u FROM s QUALIFY rank() {BY} <= 2",
    "once": "SELECT DISTINCT upper(k) AS k, v FROM s WHERE v > 1",
}


def rows(chance: random.Random) -> list[tuple[str | None, float | None, str]]:
    values = (0.0, -1.5, 2.0, 2.5, 3.0, float("nan"), None)
    return [
        (chance.choice(("a", "b", None)), chance.choice(values), f"2026-01-01 00:00:{chance.randrange(60):02d}")
        for _ in range(24)
    ]


@pytest.mark.parametrize("backend", ["auto", pytest.param("spark", marks=pytest.mark.slow)])
def test_what_is_shown_and_new_rows_are_enough(home: Harness, backend: str) -> None:
    chance = random.Random(7)
    given = rows(chance)
    home.sql("CREATE STREAM s (k STRING, v DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql(f"SET anabranch.backend = '{backend}'")
    for name, query in VIEWS.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
        assert "not read again" in str(home.query(f"EXPLAIN {name}")), name
    mixed = shuffled(given, chance)
    for run in (mixed[:2], mixed[2:12], mixed[12:]):
        home.insert("s", run)
        home.compact()
    home.sql("CREATE VIEW later AS " + VIEWS["numbered"] + " EMIT CHANGES")  # filled from all rows
    home.insert("s", [("a", 9.0, "2026-01-01 00:00:01"), ("a", 9.0, "2026-01-01 00:00:01")])
    given += [("a", 9.0, "2026-01-01 00:00:01")] * 2
    for name, query in {**VIEWS, "later": VIEWS["numbered"]}.items():
        wanted = home.batch(query, s=given)
        assert_same_rows(home.table(name), wanted, name)
        assert_same_rows(home.emitted(name), wanted, f"changes of {name}")


def test_others_look_at_all_rows(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v DOUBLE, ts TIMESTAMP); CREATE TABLE t AS SELECT 'a' AS k, 1 AS w")
    for name, query in {
        "second": f"SELECT * FROM (SELECT *, row_number() {BY} AS n FROM s) WHERE n = 2",
        "below": f"SELECT k, n FROM (SELECT *, row_number() {BY} AS n FROM s) WHERE n > 1",
        "beside": "SELECT * FROM (SELECT s.*, row_number() OVER (PARTITION BY s.k ORDER BY v) AS n"
        " FROM s JOIN t ON s.k = t.k) WHERE n <= 2",
    }.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
        assert "not read again" not in str(home.query(f"EXPLAIN {name}")), name
    home.insert("s", [("a", 1.0, "2026-01-01 00:00:00"), ("a", 2.0, "2026-01-01 00:00:00")])
    home.insert("s", [("a", 3.0, "2026-01-01 00:00:00")])
    assert home.query("SELECT v FROM second") == [(2.0,)]
    assert sorted(home.query("SELECT n FROM below")) == [(2,), (3,)]


def test_a_change_that_nobody_sees_is_not_given_out(home: Harness) -> None:
    """Another row takes the place of one that looks the same: only columns that are kept beside it differ."""
    home.sql("CREATE STREAM s (k STRING, v DOUBLE, ts TIMESTAMP)")
    home.sql("CREATE VIEW latest AS SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1"
             " EMIT CHANGES")  # fmt: skip
    for second, v in enumerate((1.0, 1.0, 2.0, 2.0)):
        home.insert("s", [("a", v, f"2026-01-01 00:00:0{second}"), ("b", 3.0, f"2026-01-01 00:00:0{second}")])
    changes = [tuple(row.values()) for each in home.session.subscribe("latest", 0) for row in each.changes.to_pylist()]
    assert [row for row in changes if row[0] == "a"] == [("a", 1.0, 1), ("a", 1.0, -1), ("a", 2.0, 1)]
    assert [row for row in changes if row[0] == "b"] == [("b", 3.0, 1)]
