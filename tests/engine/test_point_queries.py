"""A look at the rows of a view gives what the same question gives by Spark."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.plan.point_queries import find_point_query
from anabranch.sql.parser import parse
from anabranch.testing import Harness, cuts, shuffled, sorted_rows

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
MADE = """
CREATE STREAM s (k STRING, n INT, d DECIMAL(8, 2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE VIEW v AS
  SELECT k, window_start, window_end AS until, count(*) AS c, sum(n) AS n, avg(n) AS mean, max(d) AS d
  FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 10 SECONDS, INTERVAL 20 SECONDS)
  GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE;
CREATE VIEW twice AS
  SELECT window_start, count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 10 SECONDS)
  GROUP BY k, window_start EMIT ON WINDOW CLOSE;
CREATE VIEW every AS SELECT k, count(*) AS c FROM s GROUP BY k
"""
LOOKS = [
    "SELECT * FROM v",
    "SELECT k, c AS many FROM v WHERE window_start = TIMESTAMP '2026-01-01 00:00:10'",
    "SELECT k, n FROM v WHERE until <= TIMESTAMP '2026-01-01 00:00:30' AND c > 1",
    "SELECT mean, d FROM v WHERE k = 'a' AND window_start > TIMESTAMP '2026-01-01 00:00:00.5'",
    "SELECT k FROM v AS x WHERE n >= 5 AND until < TIMESTAMP '2026-01-01 00:01:00'",
    "SELECT k FROM v WHERE window_start = TIMESTAMP '2030-01-01 00:00:00'",
    "SELECT v.k, `c` FROM v WHERE (v.c > 1) AND k = 'a'",
    "SELECT c FROM twice",
]
NO_LOOKS = [
    "SELECT k FROM every",
    "SELECT count(*) FROM v",
    "SELECT k FROM v ORDER BY k",
    "SELECT K FROM v",
    "SELECT n + 1 FROM v",
    "SELECT k, k FROM v",
    "SELECT k FROM v WHERE c > 1.5",
    "SELECT k FROM v WHERE c > 1 OR c < 1",
    "SELECT k FROM v WHERE k > 'a'",
    "SELECT k FROM v WHERE k = 'a\\\\b'",
    "SELECT k FROM v WHERE d = 1",
    "SELECT k FROM v WHERE window_start = '2026-01-01 00:00:00'",
    "SELECT k FROM v WHERE window_start = TIMESTAMP '2026-01-01'",
    "SELECT k FROM v AS OF VERSION 1",
    "SELECT DISTINCT k FROM v",
    "SELECT a.k FROM v a, v b",
]


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def test_a_look_gives_what_spark_gives(home: Harness) -> None:
    home.sql(MADE)
    chance = random.Random(3)
    given = [
        (chance.choice(["a", "b", None]), chance.randint(0, 4), Decimal(chance.randint(0, 99)) / 4, at(second))
        for second in range(60)
    ]
    for run in cuts(shuffled(given, chance), chance):
        home.insert("s", run)
        home.compact()
    home.advance("s", at(50))
    catalog = home.session._core.catalog()
    for query in LOOKS:
        (statement,) = parse(query)
        assert find_point_query(statement.text, statement.query, catalog) is not None, query  # type: ignore[attr-defined]
        result = home.session.sql(query)
        table = result.toArrow()
        by_spark = result.df.toArrow()
        assert table.column_names == by_spark.column_names
        assert [field.type for field in table.schema] == [field.type for field in by_spark.schema], query
        assert sorted_rows(map(tuple, _rows(table))) == sorted_rows(map(tuple, _rows(by_spark))), query
    assert len(home.query("SELECT * FROM v")) > 10
    for query in NO_LOOKS:
        (statement,) = parse(query)
        assert find_point_query(statement.text, statement.query, catalog) is None, query  # type: ignore[attr-defined]


def _rows(table: object) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]  # type: ignore[attr-defined]


def test_a_look_needs_no_spark(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(tmp_path / "home", spark) as home:
        home.sql(MADE)
        home.insert("s", [("a", 1, Decimal(2), START), ("b", 1, Decimal(2), at(120))])
    import anabranch
    from anabranch.engine import spark as sessions

    monkeypatch.setattr(sessions, "start", lambda *_: pytest.fail("Spark was started"))
    with anabranch.connect(tmp_path / "home") as session:
        result = session.sql("SELECT k, c FROM v WHERE window_start = TIMESTAMP '2026-01-01 00:00:00'")
        assert result.toArrow().to_pylist() == [{"k": "a", "c": 1}]
