"""TRIGGER COUNTING where static tables stand beside streams.

The law: what a key shows is its value at its first n, 2n, ... records, however rows are cut into runs; and that value
is the one that a plain view of the same query has at that moment. So a REFRESH reaches the rows from before where it
does so in a plain view, and there alone: it is no record itself.
"""

from __future__ import annotations

import pytest

from anabranch.testing import Harness

pytestmark = pytest.mark.spark

STREAMS = "".join(f"CREATE STREAM {name} (id INT, k STRING, v INT);" for name in "ab")
JOINED = "SELECT k, count(*) AS n, sum(w) AS w FROM a JOIN t ON a.id = t.id GROUP BY k"


def test_rows_of_one_stream_have_met_a_table_once(home: Harness) -> None:
    home.sql(f"{STREAMS} CREATE TABLE t (id INT, w INT); INSERT INTO t VALUES (1, 1), (2, 10)")
    home.sql(f"CREATE VIEW plain AS {JOINED}; CREATE VIEW v AS {JOINED} TRIGGER COUNTING 2")
    home.sql(f"CREATE VIEW each AS {JOINED} TRIGGER COUNTING 1")
    home.insert("a", [(1, "x", 0), (2, "x", 0), (1, "x", 0)])
    assert home.table("v") == [("x", 2, 11)]
    home.sql("DELETE FROM t; INSERT INTO t VALUES (1, 1000), (2, 10000); REFRESH TABLE t")
    assert home.table("v") == [("x", 2, 11)]
    home.reopen()
    home.insert("a", [(1, "x", 0)])
    assert home.table("v") == home.table("each") == home.table("plain") == [("x", 4, 1012)]
    home.sql("DROP VIEW v")
    assert home.query("SELECT * FROM sys.tables WHERE id LIKE 'v%'") == []


def test_a_refresh_reaches_the_rows_of_several_streams_and_is_no_record(home: Harness) -> None:
    query = "SELECT a.k, count(*) AS n, sum(w) AS w FROM a JOIN b ON a.id = b.id JOIN t ON a.id = t.id GROUP BY a.k"
    home.sql(f"{STREAMS} CREATE TABLE t (id INT, w INT); INSERT INTO t VALUES (1, 1)")
    home.sql(f"CREATE VIEW v AS {query} TRIGGER COUNTING 2")
    home.insert("a", [(1, "x", 0)])
    home.insert("b", [(1, "", 0), (1, "", 0), (1, "", 0)])
    assert home.table("v") == [("x", 2, 2)]
    home.sql("DELETE FROM t; INSERT INTO t VALUES (1, 100); REFRESH TABLE t")
    assert home.table("v") == [("x", 2, 2)]
    home.insert("b", [(1, "", 0)])
    assert home.table("v") == [("x", 4, 400)]


def test_rows_of_a_view_that_has_met_a_table_are_counted_run_by_run(home: Harness) -> None:
    home.sql(f"{STREAMS} CREATE TABLE t (id INT, w INT); INSERT INTO t VALUES (1, 1)")
    home.sql("CREATE VIEW low AS SELECT a.k, t.w FROM a JOIN t ON a.id = t.id")
    home.sql("CREATE VIEW v AS SELECT k, count(*) AS n, sum(w) AS w FROM low GROUP BY k TRIGGER COUNTING 2")
    home.insert("a", [(1, "x", 0), (1, "x", 0), (1, "x", 0)])
    assert home.table("v") == [("x", 3, 3)]
