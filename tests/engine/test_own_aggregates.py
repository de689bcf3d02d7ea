"""Aggregates that Spark does not have give what the expression gives that they stand for, on partials and over rows."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

from anabranch.errors import SqlError
from anabranch.testing import Harness

ROWS = [("a", 1.0, 1), ("b", 8.0, 2), ("a", 4.0, 61), (None, 3.0, 62), ("b", 2.0, 5), ("a", 16.0, 121), ("b", None, 70)]


def geomean(values: list[float | None]) -> float | None:
    logs = [math.log(each) for each in values if each is not None]
    return round(math.exp(sum(logs) / len(logs)), 9) if logs else None


@pytest.fixture
def stream(home: Harness) -> Harness:
    home.sql("CREATE STREAM s (k STRING, v DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    home.sql("CREATE VIEW keys AS SELECT k, round(geomean(v), 9) AS g FROM s GROUP BY k EMIT CHANGES")
    home.sql("CREATE VIEW whole AS SELECT round(geomean(v) FILTER (WHERE v > 1), 9) AS g FROM s")
    home.sql(
        "CREATE VIEW minutes AS SELECT window_start, round(geomean(v), 9) AS g"
        " FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE) GROUP BY window_start HAVING geomean(v) > 2"
    )
    return home


def test_an_aggregate_of_our_own_is_kept_up_to_date(stream: Harness) -> None:
    for k, v, second in ROWS:
        key = "NULL" if k is None else f"'{k}'"
        stream.sql(f"INSERT INTO s VALUES ({key}, {v if v is not None else 'NULL'}, timestamp_seconds({second}))")
    keys: dict[str | None, list[float | None]] = defaultdict(list)
    minutes: dict[int, list[float | None]] = defaultdict(list)
    for k, v, second in ROWS:
        keys[k].append(v)
        minutes[second // 60].append(v)
    assert sorted(stream.query("SELECT * FROM keys"), key=str) == sorted(
        ((k, geomean(each)) for k, each in keys.items()), key=str
    )
    more = [v for _, v, _ in ROWS if v is not None and v > 1]
    assert stream.query("SELECT * FROM whole") == [(geomean(more),)]
    expected = [geomean(each) for _, each in sorted(minutes.items())]
    shown = stream.query("SELECT g FROM minutes ORDER BY window_start")
    assert [g for (g,) in shown] == [each for each in expected if each is not None and each > 2]
    assert stream.query("SELECT round(geomean(v), 9) FROM s") == [(geomean([v for _, v, _ in ROWS]),)]


def test_it_lives_on_partials(stream: Harness) -> None:
    assert any("partial aggregate of stream s" in line for (line,) in stream.query("EXPLAIN minutes"))


def test_what_it_does_not_take_is_underlined(stream: Harness) -> None:
    with pytest.raises(SqlError, match="geomean takes 1 argument, not 2") as found:
        stream.sql("CREATE VIEW wrong AS SELECT k, geomean(v, 2) AS g FROM s GROUP BY k")
    assert found.value.text is not None
    assert found.value.text[found.value.start : found.value.end] == "geomean(v, 2)"
