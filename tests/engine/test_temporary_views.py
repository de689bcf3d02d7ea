"""Temporary views of the user's Spark session in one-off queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch import NotSupported, SqlError, UnknownName

pytestmark = pytest.mark.spark


def test_temporary_views_are_read_under_their_names(spark: SparkSession, tmp_path: Path) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    own.sql("SELECT 'a' AS k, 1 AS n UNION ALL SELECT 'b', 2").createOrReplaceTempView("Given")
    own.sql("CREATE TEMPORARY VIEW above AS SELECT k, n + 10 AS n FROM given WHERE n < 3")
    own.sql("SELECT 'theirs' AS k").createOrReplaceTempView("t")
    own.sql("SELECT TIMESTAMP '2026-01-01 09:00:00' AS ts").createOrReplaceTempView("timed")
    with anabranch.connect(tmp_path / "home", own) as ab:
        ab.sql("CREATE STREAM s (k STRING, n INT); CREATE TABLE t (k STRING); INSERT INTO t VALUES ('ours')")
        ab.sql("INSERT INTO s SELECT k, n FROM given")
        ab.sql("INSERT INTO s (n, k) SELECT g.n, a.k FROM GIVEN g JOIN above a ON a.k = g.k AND a.k = :k", k="b")
        assert sorted((row["k"], row["n"]) for row in ab.sql("SELECT * FROM s")) == [("a", 1), ("b", 2), ("b", 2)]
        joined = ab.sql("WITH w AS (SELECT * FROM above) SELECT s.k, w.n FROM s JOIN w ON w.k = s.k WHERE s.n = 1")
        assert joined.fetchall() == [{"k": "a", "n": 11}]
        assert ab.sql("SELECT k FROM t").fetchall() == [{"k": "ours"}], "the home comes first"
        assert ab.sql("SELECT unix_seconds(ts) AS ts FROM timed").fetchall() == [{"ts": 1767225600}]
        ab.spark.sql("SELECT 5 AS five").createOrReplaceTempView("in_ours")
        assert ab.sql("SELECT five FROM in_ours").df.collect()[0]["five"] == 5
        for text in (
            "CREATE VIEW v AS SELECT k FROM given",
            "CREATE TABLE kept AS SELECT k FROM given",
            "CREATE VIEW v AS SELECT s.k FROM s WHERE s.k IN (SELECT k FROM given)",
            "EXPLAIN SELECT k FROM given",
            "SELECT s.k FROM s JOIN given g ON g.k = s.k EMIT CHANGES",
        ):
            with pytest.raises(NotSupported, match="given is a temporary view of the Spark session") as refused:
                list(ab.execute(text))
            assert text[refused.value.start : refused.value.end] == "given"
        with pytest.raises(SqlError, match="is a temporary view"):
            ab.sql("SELECT * FROM given AS OF VERSION 1")
        with pytest.raises(UnknownName, match="there is no stream, view or table givn"):
            ab.sql("SELECT * FROM givn")
        own.catalog.dropTempView("given")
        with pytest.raises(UnknownName, match="there is no stream, view or table given"):
            ab.sql("SELECT * FROM given")
