"""A home open for reading follows its writer statement by statement, and vacuum leaves what it reads.

`tests/crash/test_readers.py` does the same with processes, for minutes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import anabranch
from anabranch.engine import reduce
from anabranch.errors import AnabranchError
from anabranch.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows(result: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in result.toArrow().columns), strict=True))


def test_a_reader_follows_a_writer_that_reduces_and_vacuums(home: Harness, spark: SparkSession) -> None:
    home.sql(
        "CREATE STREAM s (k STRING, n INT); CREATE VIEW one AS SELECT count(*) AS c FROM s;"
        "CREATE VIEW two AS SELECT k, count(*) AS c FROM s GROUP BY k"
    )
    home.session._core.ledger.keep_versions = 1
    seen: list[tuple[int, ...]] = []
    errors: list[BaseException] = []
    read, done = threading.Event(), threading.Event()

    def look() -> None:
        try:
            with anabranch.connect(home.path, spark, read_only=True) as reader:
                while not done.is_set():
                    question = "SELECT (SELECT c FROM one), (SELECT coalesce(sum(c), 0) FROM two), count(*) FROM s"
                    seen.extend(rows(reader.sql(question)))
                    read.set()
                seen.extend(rows(reader.sql("SELECT c AS x, c AS y, c AS z FROM one")))
        except BaseException as error:
            errors.append(error)
            read.set()

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for _ in range(4):
            home.insert("s", [("a", 1), ("b", 2), ("a", 3)])
            home.compact()
            read.clear()
            assert read.wait(120)
    finally:
        done.set()
        reader.join(120)
    assert not errors
    assert all(a == b == c and a % 3 == 0 for a, b, c in seen), seen
    assert seen == sorted(seen) and seen[-1] == (12, 12, 12) and len(set(seen)) > 2


def test_vacuum_leaves_what_a_reader_holds(home: Harness, spark: SparkSession) -> None:
    """A result that has not been read yet, one at an old version, and the static table as it was for its view."""
    home.sql(
        "CREATE STREAM s (k STRING, n INT); CREATE TABLE t (k STRING, w INT); INSERT INTO t VALUES ('a', 10);"
        "CREATE VIEW v AS SELECT s.k, n * w AS x FROM s JOIN t ON t.k = s.k; INSERT INTO s VALUES ('a', 1)"
    )
    home.session._core.ledger.keep_versions = 1
    with anabranch.connect(home.path, spark, read_only=True) as reader:
        old = reader.version
        now, then = reader.sql("SELECT * FROM v"), reader.sql(f"SELECT * FROM s AS OF VERSION {old}")
        for weight in (20, 30):
            home.sql(f"UPDATE t SET w = {weight}; REFRESH TABLE t; INSERT INTO s VALUES ('a', {weight})")
            home.compact()
        assert rows(now) == [("a", 10)] and rows(then) == [("a", 1)]
        assert sorted(rows(reader.sql("SELECT x FROM v"))) == sorted(home.query("SELECT x FROM v"))
        assert reduce.vacuum(home.session._core) > 0  # nobody holds the old version any more
        with pytest.raises(AnabranchError, match="can no longer be read"):
            rows(reader.sql(f"SELECT * FROM s AS OF VERSION {old}"))


def test_a_reader_changes_nothing_and_ends(home: Harness, spark: SparkSession) -> None:
    home.sql("CREATE STREAM r FROM RATE (rows_per_second = 10); CREATE VIEW v AS SELECT count(*) AS c FROM r")
    counted = home.query("SELECT c FROM v")
    version = home.session.version
    with anabranch.connect(home.path, spark, read_only=True) as reader:
        for live in (False, True):
            (result,) = reader.execute("SELECT c FROM v", live=live)
            assert (result.kind, result.endless, rows(result)) == ("rows", False, counted)
        for text in ("INSERT INTO r SELECT 1", "SELECT * FROM r EMIT CHANGES", "SUBSCRIBE TO v", "DROP VIEW v"):
            with pytest.raises(AnabranchError, match="read-only"):
                reader.sql(text)
    assert home.session.version == version
