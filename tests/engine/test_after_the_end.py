"""Rows that come after the end of their stream: all windows have closed, and what they bring corrects what is shown."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch
from anabranch.testing import Harness, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
STREAM = "CREATE STREAM s (k INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)"
BY_MINUTE = (
    "SELECT window_start, k, count(*) AS c, sum(n) AS s FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
    " GROUP BY window_start, window_end, k"
)
HOPPING = (
    "SELECT window_start, k, count(*) AS c FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 30 SECONDS, INTERVAL 1 MINUTE)"
    " GROUP BY window_start, window_end, k"
)
WITH_OWN_WORDS = BY_MINUTE.replace("k,", "concat('k', k) AS kk,", 1)


def row(k: int, seconds: int) -> tuple[int, int, datetime]:
    return k, 1, START + timedelta(seconds=seconds)


def test_rows_after_the_end_are_counted_once(home: Harness) -> None:
    """Whether groups are in memory, in panes or Spark's, each row after the end counts once in every view."""
    views = {
        "hot": (BY_MINUTE, "EMIT CHANGES"),
        "panes": (BY_MINUTE, "EMIT ON WINDOW CLOSE"),
        "hopping": (HOPPING, "EMIT ON WINDOW CLOSE"),
        "own": (WITH_OWN_WORDS, "EMIT ON WINDOW CLOSE"),
        "fired": (BY_MINUTE, "TRIGGER ON WATERMARK"),
    }
    home.sql(STREAM)
    for name, (query, clause) in views.items():
        home.sql(f"CREATE VIEW {name} AS {query} {clause}")
    home.sql(f"CREATE VIEW dropping AS {BY_MINUTE} EMIT ON WINDOW CLOSE LATE DROP")
    home.sql(f"CREATE VIEW archiving AS {BY_MINUTE} EMIT ON WINDOW CLOSE LATE ARCHIVE")
    seen = [row(1, 10), row(2, 20), row(1, 300)]
    home.insert("s", seen[:2])
    home.insert("s", seen[2:])
    home.advance("s")
    closed = home.table("dropping")
    for late in ([row(1, 30)], [row(1, 31), row(3, 900)], [row(1, 32)]):
        home.insert("s", late)
        seen += late
    for name, (query, _) in views.items():
        wanted = home.batch(query, s=seen)
        assert_same_rows(home.emitted(name), wanted, name)
        assert_same_rows(home.table(name), wanted, name)
    assert_same_rows(home.table("dropping"), closed, "late rows are dropped")
    assert_same_rows(home.table("archiving"), home.batch(BY_MINUTE, s=seen), "archiving")
    assert_same_rows(home.emitted("archiving"), closed, "what came late is archived only")
    assert home.query("SELECT DISTINCT policy FROM sys.late_rows ORDER BY policy") == [
        ("archive",), ("correct",), ("drop",),
    ]  # fmt: skip


def test_files_that_come_after_a_question(tmp_path: Path, spark: SparkSession) -> None:
    """A question closes all windows of what is there; the next one has the rows of new files in the same windows."""
    (tmp_path / "1.csv").write_text("1,1,2026-01-01 00:00:10\n1,1,2026-01-01 00:05:10\n")
    with anabranch.connect(spark=spark) as session:
        session.sql(f"{STREAM} FROM files(path => '{tmp_path}/*.csv')")
        session.sql(f"CREATE VIEW v AS {BY_MINUTE} EMIT ON WINDOW CLOSE")
        counts = "SELECT c FROM v ORDER BY window_start"
        assert session.sql(counts).toArrow().to_pylist() == [{"c": 1}, {"c": 1}]
        (tmp_path / "2.csv").write_text("1,1,2026-01-01 00:00:11\n")
        assert session.sql(counts).toArrow().to_pylist() == [{"c": 2}, {"c": 1}]
