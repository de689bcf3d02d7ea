"""Views that go by the clock: what now() and its like are compared with keys the partials; they are asked at reads."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch
from anabranch.errors import NotSupported
from anabranch.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, n INT, d DATE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
START = datetime(2026, 1, 1, 10, tzinfo=timezone.utc)
QUERIES = {
    "week": "SELECT k, sum(n) AS t, count(*) AS c FROM s WHERE weekofyear(ts) = weekofyear(now()) GROUP BY k",
    "days": "SELECT datediff(current_date, d) AS age, count(*) AS c, avg(n) AS a FROM s GROUP BY age",
    "today": "SELECT k, count(*) FILTER (WHERE d = current_date) AS today, max(n) AS m FROM s GROUP BY k",
    "aged": "SELECT k, sum(n * datediff(curdate(), d)) AS t FROM s WHERE n > 1 GROUP BY k",
    "minutes": "SELECT window_start, count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
    " WHERE window_end > current_timestamp - INTERVAL 1 DAY GROUP BY window_start",
    "nested": "SELECT c, count(*) AS m FROM (SELECT k, count(*) AS c FROM s WHERE d = current_date() GROUP BY k)"
    " GROUP BY c",
    "having": "SELECT k, max(ts) AS last FROM s GROUP BY k HAVING max(ts) > now() - INTERVAL 1 HOUR",
    "rows": "SELECT k, n FROM s WHERE ts > now() - INTERVAL 1 HOUR",
    "distinct": "SELECT DISTINCT k FROM s WHERE unix_timestamp(ts) > unix_timestamp() - 3600",
    "texts": "SELECT k, count(*) AS c, max(CAST('yesterday' AS DATE)) AS y FROM s"
    " WHERE d = DATE 'today' OR ts > to_timestamp('tomorrow') GROUP BY k",
    "pairs": "SELECT a.k, b.n FROM s a JOIN s b ON a.k = b.k AND a.ts > now() - INTERVAL 1 HOUR",
}


def rows(first: int) -> list[tuple[Any, ...]]:
    found = []
    for number in range(first, first + 12):
        time = START + timedelta(hours=7 * number % 61, minutes=number)
        found.append(("ab"[number % 2] if number % 5 else None, number % 4, time.date(), time))
    return found


def test_a_view_of_the_clock_is_the_query_over_all_rows_at_the_time_of_the_read(home: Harness) -> None:
    home.sql(STREAM)
    home.insert("s", rows(0))
    for name, query in QUERIES.items():
        home.sql(f"CREATE VIEW {name} AS {query}")
    home.insert("s", rows(12))
    home.sql("CREATE VIEW above AS SELECT sum(c) AS c FROM week")
    seen: dict[str, set[str]] = {name: set() for name in QUERIES}
    for moment in (START, START + timedelta(hours=20), START + timedelta(days=2), START + timedelta(days=9)):
        home.sql(f"SET CLOCK TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}'")
        for name, query in QUERIES.items():
            answer = sorted(home.table(name), key=str)
            assert answer == sorted(home.query(query), key=str), name
            seen[name].add(str(answer))
        assert home.table("above") == home.query(f"SELECT sum(c) AS c FROM ({QUERIES['week']})")
    assert all(len(answers) > 1 for answers in seen.values()), "an answer that never changed shows nothing"


def test_what_is_compared_with_the_clock_keys_the_partials(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {QUERIES['today']}; CREATE VIEW w AS {QUERIES['having']}")
    told = [line for (line,) in home.query("EXPLAIN SELECT * FROM v")]
    assert "partial: v, keyed by k, d; its rows can change" in told
    told = [line for (line,) in home.query("EXPLAIN SELECT * FROM w")]
    assert "partial: w, keyed by k; its rows can change" in told  # above the groups it is asked as it is


def test_the_clock_of_the_machine_is_asked_at_each_read(tmp_path: Path, spark: SparkSession) -> None:
    with anabranch.connect(tmp_path / "home", spark=spark) as session:
        session.sql("CREATE STREAM s (k STRING, ts TIMESTAMP); INSERT INTO s VALUES ('a', now() - INTERVAL 1 HOUR)")
        session.sql("CREATE VIEW v AS SELECT k, max(now()) AS at FROM s WHERE ts < now() GROUP BY k")
        first, second = (session.sql("SELECT * FROM v").toArrow().to_pylist() for _ in range(2))
        assert first[0]["at"] < second[0]["at"]


def test_changes_are_those_that_rows_make(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {QUERIES['today']}")
    for statement in (
        f"CREATE VIEW x AS {QUERIES['today']} EMIT CHANGES",
        "CREATE VIEW x AS SELECT k FROM v EMIT CHANGES",
        "SUBSCRIBE TO v",
    ):
        with pytest.raises(NotSupported, match="current_date changes the answer without new rows") as caught:
            home.sql(statement)
        assert "^^^^^^^^^^^^" in str(caught.value)
    assert home.query("SELECT count(*) AS n FROM sys.views") == [(1,)]
    with pytest.raises(NotSupported, match="timestamp 'now' changes the answer without new rows"):
        home.sql("CREATE VIEW x AS SELECT k, count(*) AS c FROM s WHERE ts < 'now'::timestamp GROUP BY k EMIT CHANGES")
