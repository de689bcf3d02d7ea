"""Windows as Spark calls them in GROUP BY: a view of such a query shows what Spark shows, under the same names."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.errors import SqlError
from anabranch.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
STREAM = "CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
NAMES = [("a", "A"), ("b", "B")]
#: Queries whose windows stand in FROM, as they are read; with the name of the column that their windows end at.
READ = {
    "bounds": (
        "SELECT window.start, window.end, count(*) AS c FROM s GROUP BY window(ts, '5 seconds') ORDER BY window.start",
        "end",
    ),
    "hops": (
        "SELECT k, window.end AS e, window, sum(n) AS x FROM s WHERE n > 2"
        " GROUP BY k, window(ts, '10 seconds', '4 seconds', '-3 seconds')"
        " HAVING window.end > TIMESTAMP '2026-01-01 00:00:03'",
        "e",
    ),
    "calls": (
        "SELECT window(ts, '5 seconds').start, window(ts, '5 seconds') AS w, max(window.end) AS e FROM s AS x"
        " GROUP BY w",
        "e",
    ),
    "sessions": (
        "SELECT k, session_window.start, session_window.end, sum(n) AS x FROM s"
        " GROUP BY session_window(ts, '5 seconds'), k",
        "end",
    ),
    "some rows": (
        "SELECT session_window(ts, '4 seconds').end AS e, session_window AS w, count(*) AS c FROM s WHERE s.n > 4"
        " GROUP BY session_window(ts, '4 seconds')",
        "e",
    ),
}  # fmt: skip
#: Queries that Spark computes as they stand.
LEFT = {
    "by a value": "SELECT n % 2 AS p, session_window.start, sum(n) AS x FROM s"
    " GROUP BY session_window(ts, '5 seconds'), n % 2",
    "gaps": "SELECT session_window.end, count(*) AS c FROM s"
    " GROUP BY session_window(ts, CASE WHEN k = 'a' THEN '3 seconds' ELSE '6 seconds' END)",
    "joined": "SELECT window.start, d.name, count(*) AS c FROM s JOIN d ON s.k = d.k"
    " GROUP BY window(ts, '5 seconds'), d.name",
    "sessions joined": "SELECT session_window, d.name, count(*) AS c FROM s JOIN d ON s.k = d.k"
    " GROUP BY session_window(ts, '5 seconds'), d.name",
    "sets": "SELECT window.start, k, count(*) AS c FROM s GROUP BY ROLLUP(window(ts, '5 seconds'), k)",
}  # fmt: skip


def late_rows() -> list[tuple[str | None, int, datetime]]:
    """Rows about a second apart, some of them later than the watermark allows."""
    chance = random.Random(3)
    made = [
        (chance.choice(["a", "b", None]), chance.randint(0, 9), START + timedelta(seconds=chance.randint(0, 90)))
        for _ in range(36)
    ]
    made.sort(key=lambda row: row[2])
    return [made[index] for index in sorted(range(36), key=lambda index: index + chance.randint(0, 12))]


def test_a_view_shows_what_spark_shows(home: Harness, spark: SparkSession) -> None:
    """Read, with its changes kept, and of closed windows; rows come in several runs, and late ones correct it."""
    rows = late_rows()
    spark.createDataFrame(rows, "k string, n int, ts timestamp").createOrReplaceTempView("s")
    spark.createDataFrame(NAMES, "k string, name string").createOrReplaceTempView("d")
    home.sql(f"{STREAM}; CREATE TABLE d (k STRING, name STRING); INSERT INTO d VALUES ('a', 'A'), ('b', 'B')")
    queries = [*(query for query, _ in READ.values()), *LEFT.values()]
    views = [(query, ("", "EMIT CHANGES")[index % 2]) for index, query in enumerate(queries)]
    for index, (query, emission) in enumerate(views):
        home.sql(f"CREATE VIEW v{index} AS {query} {emission}")
    for index, (query, _) in enumerate(READ.values()):
        home.sql(f"CREATE VIEW w{index} AS {query} EMIT ON WINDOW CLOSE")
    for first in range(0, len(rows), 12):
        home.insert("s", rows[first : first + 12])
    sparks = {query: spark.sql(query) for query, _ in views}
    wanted = {query: frame.collect() for query, frame in sparks.items()}
    for index, (query, _) in enumerate(views):
        found = home.session.sql(f"SELECT * FROM v{index}").df
        assert found.dtypes == sparks[query].dtypes, query
        assert plain(found.collect()) == plain(wanted[query]), query
    progress = max(row[2] for row in rows) - timedelta(seconds=5)
    for index, (query, end) in enumerate(READ.values()):
        # A row at the end itself would prolong a session.
        closed = [row for row in wanted[query] if row[end] < progress + timedelta(microseconds="session" not in query)]
        assert plain(home.session.sql(f"SELECT * FROM w{index}").df.collect()) == plain(closed), query
        assert index > 3 or 0 < len(closed) < len(wanted[query])
    home.advance("s")
    for index, (query, _) in enumerate(READ.values()):
        assert plain(home.session.sql(f"SELECT * FROM w{index}").df.collect()) == plain(wanted[query]), query


def test_a_query_shows_what_spark_shows(home: Harness, spark: SparkSession) -> None:
    """Also with what Spark has in a query around it only: the time of a window."""
    rows = late_rows()
    spark.createDataFrame(rows, "k string, n int, ts timestamp").createOrReplaceTempView("s")
    spark.createDataFrame(NAMES, "k string, name string").createOrReplaceTempView("d")
    home.sql(f"{STREAM}; CREATE TABLE d (k STRING, name STRING); INSERT INTO d VALUES ('a', 'A'), ('b', 'B')")
    home.insert("s", rows)
    for query in [*(query for query, _ in READ.values()), *LEFT.values()]:
        found, wanted = home.session.sql(query).df, spark.sql(query)
        assert (found.dtypes, plain(found.collect())) == (wanted.dtypes, plain(wanted.collect())), query
    time = "SELECT window_time(window), sum(n) FROM s GROUP BY window(ts, '5 seconds') ORDER BY window_time(window)"
    wanted = spark.sql(
        "SELECT window_time(w), x FROM (SELECT window(ts, '5 seconds') AS w, sum(n) AS x FROM s GROUP BY w)"
    )
    assert plain(home.session.sql(time).df.collect()) == plain(wanted.collect())


#: Views of homes that were made when such windows were written out, and the statements that made them.
WRITTEN_OUT = {
    "SELECT k, window_end AS e, named_struct('start', window_start, 'end', window_end) AS window, sum(n) AS x"
    " FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 4 SECONDS, INTERVAL 10 SECONDS, INTERVAL 1 SECOND) AS s WHERE n > 2"
    " GROUP BY k, window_start, window_end HAVING window_end > TIMESTAMP '2026-01-01 00:00:03'": READ["hops"][0],
    "SELECT window_end AS e, named_struct('start', window_start, 'end', window_end) AS w, count(*) AS c"
    " FROM SESSION(TABLE (SELECT * FROM s WHERE s.n > 4), DESCRIPTOR(ts), INTERVAL 4 SECONDS) AS s"
    " GROUP BY window_start, window_end": READ["some rows"][0],
    "SELECT window_start AS window_start, count(*) AS c FROM TUMBLE(TABLE s, SIZE => INTERVAL 5 SECONDS) AS s"
    " GROUP BY window_start, window_end EMIT AFTER DELAY INTERVAL 5 SECONDS":
        "SELECT TUMBLE_START(INTERVAL '5' SECOND), count(*) AS c FROM s GROUP BY TUMBLE(INTERVAL '5' SECOND)"
        " EMIT AFTER DELAY INTERVAL 5 SECONDS",
}  # fmt: skip


def test_a_script_finds_its_views_the_same_in_an_older_home(home: Harness) -> None:
    home.sql(STREAM)
    for index, (old, new) in enumerate(WRITTEN_OUT.items()):
        home.sql(f"CREATE VIEW v{index} AS {old}")
        home.session.run(f"CREATE VIEW v{index} AS {new}", until_idle=True)
        for other in (new.replace("4 seconds", "5 seconds"), new.replace("'5' SECOND", "'6' SECOND"),
                      new.replace("DELAY INTERVAL 5", "DELAY INTERVAL 6")):  # fmt: skip
            if other != new:
                with pytest.raises(SqlError, match=f"view v{index} already exists"):
                    home.session.run(f"CREATE VIEW v{index} AS {other}", until_idle=True)


def plain(rows: list[Any]) -> list[str]:
    return sorted(str(tuple(row)) for row in rows)


def test_explain_tells_what_it_is_read_as(home: Harness) -> None:
    home.sql(STREAM)
    query = "SELECT k, session_window.end, count(*) AS c FROM s GROUP BY k, session_window(ts, '5 seconds')"
    told = "\n".join(row[0] for row in home.query(f"EXPLAIN {query}"))
    assert "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), GAP => INTERVAL 5 SECONDS)" in told
    assert "partial aggregate" not in told
    assert "SESSION: windows told by the rows around it" in told
    query = "SELECT count(*) AS c FROM s GROUP BY window(ts, '5 seconds')"
    told = "\n".join(row[0] for row in home.query(f"EXPLAIN {query}"))
    assert "TUMBLE 5 seconds" in told and "TUMBLE: windows told by the row alone" in told
