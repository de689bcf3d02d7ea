"""Static tables: a view reads them once, when it is made, and again on REFRESH; a query reads them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import AnabranchError
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

SETUP = """
CREATE STREAM s (k STRING, n INT);
CREATE TABLE names (k STRING, label STRING);
INSERT INTO names VALUES ('a', 'alpha'), ('b', 'beta');
CREATE VIEW below AS SELECT label, count(*) AS c FROM s JOIN names ON s.k = names.k GROUP BY label;
CREATE VIEW above AS SELECT t.k, label, c
  FROM (SELECT k, count(*) AS c FROM s GROUP BY k) t LEFT JOIN names ON t.k = names.k;
CREATE VIEW each_row AS SELECT s.k, label FROM s LEFT JOIN names ON s.k = names.k;
"""


def test_insert_update_delete(home: Harness) -> None:
    home.sql("CREATE TABLE t (id INT, name STRING, w DOUBLE)")
    home.sql("INSERT INTO t VALUES (1, 'one', 1.5), (2, 'two', NULL); INSERT INTO t (name, id) VALUES ('three', 3)")
    assert home.table("t") == [(1, "one", 1.5), (2, "two", None), (3, "three", None)]
    message = home.session.sql("UPDATE t SET name = upper(name), w = id * 2 WHERE id >= 2").message
    assert message == "2 rows updated in t"
    assert home.table("t") == [(1, "one", 1.5), (2, "TWO", 4.0), (3, "THREE", 6.0)]
    assert home.session.sql("DELETE FROM t WHERE w > 5 OR name IS NULL").message == "1 row deleted in t"
    before = home.session.version
    home.sql("DELETE FROM t")
    assert home.table("t") == []
    assert home.table("t", before) == [(1, "one", 1.5), (2, "TWO", 4.0)]
    with pytest.raises(AnabranchError, match="no column nam"):
        home.sql("UPDATE t SET nam = 'x'")


def test_a_view_reads_a_table_once_and_again_on_refresh(home: Harness) -> None:
    home.sql(SETUP)
    home.insert("s", [("a", 1), ("c", 1)])
    home.sql("UPDATE names SET label = 'ALPHA' WHERE k = 'a'; INSERT INTO names VALUES ('c', 'gamma')")
    home.insert("s", [("a", 1), ("c", 1)])
    assert home.table("names") == [("a", "ALPHA"), ("b", "beta"), ("c", "gamma")]
    assert home.table("below") == [("alpha", 2)]
    assert home.table("above") == [("a", "alpha", 2), ("c", None, 2)]
    assert home.table("each_row") == [("a", "alpha")] * 2 + [("c", None)] * 2
    home.reopen()
    home.compact()
    assert home.table("below") == [("alpha", 2)]
    home.sql("REFRESH TABLE names")
    home.insert("s", [("a", 1), ("c", 1)])
    # Below the aggregate the rows of before keep what they found; above it, the table is read as it is now.
    assert home.table("below") == [("ALPHA", 1), ("alpha", 2), ("gamma", 1)]
    assert home.table("above") == [("a", "ALPHA", 3), ("c", "gamma", 3)]
    assert sorted(home.table("each_row"), key=str) == sorted(
        [("a", "ALPHA"), ("c", "gamma"), *[("a", "alpha")] * 2, *[("c", None)] * 2], key=str
    )


def test_what_rows_have_met_stays_when_somebody_follows_the_view(home: Harness) -> None:
    """Neither a refresh nor a row that the table has got since reaches them then."""
    home.sql("CREATE STREAM a (id INT); CREATE TABLE t (id INT, w INT); INSERT INTO t VALUES (1, 10)")
    home.sql("CREATE VIEW met AS SELECT w FROM a JOIN t USING (id)")
    home.sql("CREATE VIEW sums AS SELECT id, sum(w) AS w FROM a JOIN t USING (id) GROUP BY id")
    home.insert("a", [(1,)])
    home.sql("UPDATE t SET w = 11; REFRESH TABLE t; INSERT INTO t VALUES (1, 500)")
    home.sql("CREATE VIEW above AS SELECT DISTINCT w FROM met EMIT CHANGES")
    home.sql("CREATE VIEW more AS SELECT max(w) AS w FROM sums EMIT CHANGES")
    home.insert("a", [(1,)])
    assert home.table("met") == home.table("above") == [(10,), (11,)]
    assert (home.table("sums"), home.table("more")) == ([(1, 21)], [(21,)])
    home.sql("REFRESH TABLE t")
    home.insert("a", [(1,)])
    assert home.table("met") == [(10,), (11,), (11,), (500,)]
    assert (home.table("sums"), home.table("more")) == ([(1, 532)], [(532,)])


def test_a_view_made_after_a_change_sees_it_for_all_rows(home: Harness) -> None:
    home.sql(SETUP)
    home.insert("s", [("a", 1)])
    home.sql("DELETE FROM names WHERE k = 'b'; UPDATE names SET label = 'ALPHA'")
    home.sql("CREATE VIEW later AS SELECT label, count(*) AS c FROM s JOIN names ON s.k = names.k GROUP BY label")
    home.insert("s", [("a", 1), ("b", 1)])
    assert home.table("later") == [("ALPHA", 2)]
    assert home.table("below") == [("alpha", 2), ("beta", 1)]


def test_a_table_of_files_is_read_again_on_refresh(home: Harness, tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("k,label\na,alpha\n")
    home.sql(f"CREATE STREAM s (k STRING); CREATE TABLE names FROM files(path => '{path}')")
    home.sql("CREATE VIEW v AS SELECT s.k, label FROM s JOIN names ON s.k = names.k")
    path.write_text("k,label\na,ALPHA\nb,beta\n")
    home.insert("s", [("a",), ("b",)])
    assert home.table("names") == [("a", "alpha")]
    assert home.table("v") == [("a", "alpha")]
    home.sql("REFRESH TABLE names")
    home.insert("s", [("b",)])
    assert home.table("names") == [("a", "ALPHA"), ("b", "beta")]
    assert home.table("v") == [("a", "alpha"), ("b", "beta")]


def test_a_table_as_select(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT)")
    home.insert("s", [("a", 1), ("a", 2)])
    home.sql("CREATE TABLE t AS SELECT k, sum(n) AS n FROM s GROUP BY k")
    home.insert("s", [("a", 10)])
    assert home.table("t") == [("a", 3)]
    home.sql("REFRESH TABLE t")
    assert home.table("t") == [("a", 13)]
