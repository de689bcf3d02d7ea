"""JOIN ... REFRESHABLE: after a REFRESH, the answer is that of the batch query over all rows and the table as it is."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from anabranch.testing import Harness, assert_same_rows, sorted_rows

pytestmark = pytest.mark.spark

WINDOW = "window_start, window_end"
SETUP = """
CREATE STREAM s (k STRING, n INT, d DECIMAL(18,2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 MINUTES);
CREATE TABLE t (k STRING, label STRING, y INT, p DECIMAL(10,2));
CREATE TABLE u (label STRING, region STRING);
"""
QUERIES = (
    """SELECT label, count(*) AS c, sum(n) AS n, sum(y) AS y, sum(n * y) AS ny, sum(d * p) AS dp, count(y) AS cy,
         avg(y) AS ay, avg(p) AS ap, avg(n) AS an, max(y) AS hy, min(n) AS ln, stddev_pop(y) AS sy, var_samp(n) AS vn,
         count_if(y > n) AS ci, count(y, n) AS cyn, count(DISTINCT n) AS dn, bit_or(y) AS oy
       FROM s LEFT JOIN t REFRESHABLE ON s.k = t.k GROUP BY label""",
    f"""SELECT {WINDOW}, label, count(*) AS c, sum(y) FILTER (WHERE n > 1) AS y
       FROM HOP(s, ts, INTERVAL 5 MINUTES, INTERVAL 10 MINUTES) JOIN t REFRESHABLE USING (k)
       GROUP BY {WINDOW}, label HAVING count(*) > 1""",
    """SELECT region, upper(s.k) AS k, count(*) AS c, sum(n) AS n FROM t REFRESHABLE JOIN s ON s.k = t.k AND s.n <= t.y
       LEFT JOIN u REFRESHABLE ON t.label = u.label WHERE n > 0 GROUP BY region, upper(s.k)""",
    "SELECT label, median(n) AS m FROM s JOIN t REFRESHABLE ON s.k = t.k GROUP BY label",
    "SELECT s.k, n, label FROM s LEFT JOIN t REFRESHABLE ON s.k = t.k",
)
KEYS = ("a", "b", "c", None)


def _row(chance: random.Random) -> tuple[Any, ...]:
    amount = chance.choice([None, Decimal("1.25"), Decimal("-3.00")])
    return (
        chance.choice(KEYS),
        chance.choice([0, 1, 2, 3, None]),
        amount,
        f"2026-01-01 08:{chance.randint(0, 29):02d}:00",
    )


def _fill(home: Harness, chance: random.Random) -> None:
    prices = [None, Decimal("1.10"), Decimal("7.77")]
    rows = [
        (chance.choice(KEYS), chance.choice(["x", "y", None]), chance.choice([None, 1, 2, 9]), chance.choice(prices))
        for _ in range(chance.randint(2, 6))
    ]
    home.sql("DELETE FROM t; DELETE FROM u")
    home.insert("t", rows)
    home.insert("u", [("x", chance.choice(["r1", "r2"])), ("y", chance.choice(["r1", None]))])


def test_a_refresh_reaches_rows_of_the_past(home: Harness) -> None:
    chance = random.Random(11)
    home.sql(SETUP)
    _fill(home, chance)
    views = [(f"v{number}", query) for number, query in enumerate(QUERIES)]
    for number, (name, query) in enumerate(views):
        home.sql(f"CREATE VIEW {name} AS {query}{' EMIT CHANGES' if number % 2 else ''}")
    views += [("changes", QUERIES[0])]
    home.sql(f"CREATE VIEW changes AS {QUERIES[0]} EMIT CHANGES")
    home.sql("CREATE VIEW once AS SELECT label, count(*) AS c FROM s JOIN t ON s.k = t.k GROUP BY label")
    rows: list[tuple[Any, ...]] = []
    kept: list[Any] = []
    for step in range(2):
        new = [_row(chance) for _ in range(8)]
        kept += home.batch("SELECT label FROM s JOIN t ON s.k = t.k", s=new)
        home.insert("s", new)
        rows += new
        if step:
            home.compact()
            home.reopen()
        _fill(home, chance)
        home.sql("REFRESH TABLE t; REFRESH TABLE u")
        for name, query in views:
            kept_changes = name in ("v1", "v3", "changes")
            assert_same_rows(home.emitted(name) if kept_changes else home.table(name), home.batch(query, s=rows))
    assert home.query("SELECT count(*) FROM u AS a JOIN u AS b REFRESHABLE ON a.label = b.label") == [(2,)]
    assert home.table("once") == sorted_rows({(label, kept.count((label,))) for (label,) in kept})


def test_windows_close_with_the_table_as_it_is_then_and_are_corrected(home: Harness) -> None:
    query = f"""SELECT {WINDOW}, label, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 10 MINUTES)
                JOIN t REFRESHABLE USING (k) GROUP BY {WINDOW}, label"""
    home.sql(SETUP)
    home.sql(f"INSERT INTO t VALUES ('a', 'x', 1, 1); CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE")
    rows = [("a", 1, None, "2026-01-01 08:01:00"), ("b", 1, None, "2026-01-01 08:02:00")]
    home.insert("s", rows)
    home.sql("UPDATE t SET label = 'y'; INSERT INTO t VALUES ('b', 'z', 1, 1); REFRESH TABLE t")
    assert home.emitted("v") == []
    later = ("a", 1, None, "2026-01-01 08:21:00")
    home.insert("s", [later])
    assert home.emitted("v") == home.batch(query, s=rows)
    assert [row[2:] for row in home.emitted("v")] == [("y", 1), ("z", 1)]
    home.sql("UPDATE t SET label = 'x'; REFRESH TABLE t")
    assert [row[2:] for row in home.emitted("v")] == [("x", 2)]
    assert home.table("v") == home.emitted("v") == home.batch(query, s=rows)
    home.advance("s")
    assert home.emitted("v") == home.batch(query, s=[*rows, later])
