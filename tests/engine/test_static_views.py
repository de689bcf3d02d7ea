"""Views that read no stream, but static tables and values: what a batch query gives, whoever follows them; and common
table expressions of that kind beside streams."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.testing import Harness, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
ITEMS = [(1, "lamp"), (2, "chair")]
LATER = [(1, "old lamp"), (2, "chair"), (3, "desk")]
CHANGE = "UPDATE items SET name = 'old lamp' WHERE auction = 1; INSERT INTO items VALUES (3, 'desk')"


def after(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


BIDS = [(1, 10, after(0)), (2, 20, after(10)), (1, 30, after(20)), (3, 40, after(40))]


def start(home: Harness) -> None:
    home.sql("CREATE STREAM bids (auction INT, price INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    home.sql("CREATE TABLE items (auction INT, name STRING); INSERT INTO items VALUES (1, 'lamp'), (2, 'chair')")


def oracle(spark: SparkSession, query: str, bids: list[Any], items: list[Any]) -> list[Any]:
    """The answer of Spark over these rows."""
    spark.createDataFrame(bids, "auction INT, price INT, ts TIMESTAMP").createOrReplaceTempView("bids")
    table = spark.createDataFrame(items, "auction INT, name STRING")
    table.createOrReplaceTempView("items")
    table.createOrReplaceTempView("dim")
    return [tuple(row) for row in spark.sql(query).collect()]


def followed(home: Harness, view: str, since: int) -> Counter[Any]:
    """What the changes of a view since a version add up to."""
    found: Counter[Any] = Counter()
    for batch in home.session.subscribe(view, since):
        for row in batch.changes.to_pylist():
            found[tuple(row.values())[:-1]] += row["_diff"]
    return +found if not -found else found


#: Of no stream; those of `dim`, which is a view of a static table, among them.
STATIC = [
    "SELECT auction, name FROM items",
    "SELECT upper(name) AS name, count(*) AS n FROM dim GROUP BY upper(name)",
    "SELECT auction FROM items UNION ALL SELECT auction FROM dim UNION ALL VALUES (7)",
    "WITH top AS (SELECT auction FROM items ORDER BY auction DESC LIMIT 1) SELECT auction + 1 AS next FROM top",
    "SELECT 1 AS a UNION ALL SELECT 2",
    "SELECT 1 AS a",
    "VALUES (1, 'x'), (2, 'y')",
    "WITH d(n, name) AS (VALUES (1, 'x')) SELECT n, name FROM d",
    "SELECT id + 1 AS n FROM range(3)",
]


def test_views_of_no_stream_are_what_a_batch_query_gives(home: Harness, spark: SparkSession) -> None:
    """With EMIT CHANGES, subscribed to, or read; before a REFRESH, after it, and after the home was closed."""
    start(home)
    home.sql("CREATE VIEW dim AS SELECT auction, name FROM items")
    for index, query in enumerate(STATIC):
        answer = oracle(spark, query, [], ITEMS)
        assert_same_rows(home.query(f"{query} EMIT CHANGES"), answer, query)
        home.sql(f"CREATE VIEW v{index} AS {query} EMIT CHANGES; CREATE VIEW plain{index} AS {query}")
        for view in (f"v{index}", f"plain{index}"):
            (batch,) = home.session.subscribe(view)
            assert batch.changes.num_rows == len(answer), query
            assert_same_rows(home.table(view), answer, query)
    assert_same_rows(home.table("dim"), ITEMS, "below views whose changes are kept")
    seen = home.session.version
    home.sql(CHANGE)
    assert_same_rows(home.table("v0"), ITEMS, "before the REFRESH")
    home.sql("REFRESH TABLE items")
    assert followed(home, "v0", seen) == {(1, "lamp"): -1, (1, "old lamp"): 1, (3, "desk"): 1}
    home.reopen()
    home.compact()
    for index, query in enumerate(STATIC):
        for view in (f"v{index}", f"plain{index}"):
            assert_same_rows(home.table(view), oracle(spark, query, [], LATER), query)


def test_streams_meet_views_of_static_tables(home: Harness, spark: SparkSession, tmp_path: Path) -> None:
    """Whoever begins to follow a view leaves those below it and beside it as they were; a REFRESH reaches all of them,
    a changed query too, and windows close as if the view of the table were not there."""
    start(home)
    rows, groups = "SELECT name, price, ts FROM bids JOIN dim USING (auction)", "SELECT name, sum(price) AS n FROM bids"
    groups += " LEFT JOIN dim USING (auction) GROUP BY name"
    home.sql(f"CREATE VIEW dim AS SELECT auction, name FROM items; CREATE VIEW plain AS {rows}")
    home.insert("bids", BIDS[:2])
    home.sql(f"CREATE VIEW kept AS {rows} EMIT CHANGES; CREATE VIEW sums AS {groups} EMIT CHANGES")
    home.sql("CREATE VIEW above AS SELECT count(*) AS n, max(name) AS last FROM dim EMIT CHANGES")
    home.sql(
        "CREATE VIEW closed AS SELECT window_end, sum(price) AS n FROM TUMBLE(kept, ts, '10 seconds')"
        " GROUP BY window_end EMIT ON WINDOW CLOSE"
    )
    home.sql(
        f"CREATE SINK files FROM dim INTO files(path => '{tmp_path / 'out'}', format => 'json', mode => 'changes')"
    )

    def check(bids: list[Any], items: list[Any]) -> None:
        for view, query in {"plain": rows, "kept": rows, "sums": groups}.items():
            assert_same_rows(home.table(view), oracle(spark, query, bids, items), view)
        assert_same_rows(home.table("dim"), items)
        assert home.table("above") == [(len(items), max(name for _, name in items))]

    check(BIDS[:2], ITEMS)
    list(home.session.subscribe("plain"))
    check(BIDS[:2], ITEMS)
    home.insert("bids", BIDS[2:3])
    check(BIDS[:3], ITEMS)
    assert home.table("closed") == [(after(10), 10)], "progress is that of the stream"
    home.sql(f"{CHANGE}; REFRESH TABLE items")
    home.insert("bids", BIDS[3:])
    check(BIDS, LATER)
    home.reopen()
    home.sql("ALTER VIEW dim AS SELECT auction, name FROM items WHERE auction > 1")
    check(BIDS, LATER[1:])
    for view in ("dim", "above", "plain", "kept", "sums", "closed"):
        assert_same_rows(home.emitted(view), home.table(view), view)
    written: Counter[Any] = Counter()
    for path in sorted((tmp_path / "out").glob("v*.json")):
        for line in path.read_text().splitlines():
            change = json.loads(line)
            written[change["auction"], change["name"]] += change["_diff"]
    assert sorted((+written).elements()) == LATER[1:]
    with pytest.raises(AnabranchError, match="items is read by dim"):
        home.sql("DROP TABLE items")
    home.sql("DROP TABLE items CASCADE")
    assert home.query("SHOW VIEWS") == []


def test_a_table_that_is_refreshed_before_each_run_is_so_below_views(home: Harness) -> None:
    home.sql("CREATE STREAM s (k INT); CREATE TABLE t (k INT, w INT) REFRESH EVERY RUN; INSERT INTO t VALUES (1, 10)")
    home.sql("CREATE VIEW dim AS SELECT k, w FROM t; CREATE VIEW plain AS SELECT w FROM s JOIN dim USING (k)")
    home.insert("s", [(1,)])
    home.sql("UPDATE t SET w = 11")
    home.insert("s", [(1,)])
    assert home.table("plain") == [(11,), (11,)]


#: Static common table expressions, wherever they are read, with names for their columns; some over streams as well.
EXPRESSIONS = [
    "WITH d AS (SELECT auction, name FROM items) SELECT d.name, price FROM bids JOIN d ON bids.auction = d.auction",
    "WITH d(n, name) AS (VALUES (1, 'x'), (2, 'y')), e AS (SELECT d.name, price FROM bids JOIN d ON auction = d.n)"
    " SELECT name, max(price) AS most FROM e GROUP BY name",
    "WITH d(n, name) AS (SELECT auction, name FROM items), f(m, label) AS (SELECT n, upper(name) FROM d)"
    " SELECT label, c FROM (SELECT f.label, count(*) AS c FROM bids JOIN f ON auction = f.m GROUP BY f.label) x",
    "WITH d(n) AS (SELECT auction FROM items) SELECT n FROM d UNION ALL SELECT auction FROM bids",
    "WITH d(n) AS (SELECT auction FROM items) SELECT auction FROM bids EXCEPT (SELECT n FROM d WHERE n = 1)",
    "WITH d(n) AS (SELECT auction FROM items WHERE name = 'chair') SELECT price FROM bids WHERE auction IN"
    " (SELECT n FROM d)",
    "WITH x AS (SELECT auction AS k FROM items), y AS (WITH x AS (SELECT auction AS k FROM bids) SELECT k FROM x)"
    " SELECT x.k, y.k AS l FROM x JOIN y ON x.k = y.k",
    "WITH d(a, b) AS (SELECT auction, auction FROM bids), e(c) AS (SELECT a + b FROM d) SELECT c FROM e",
    "WITH d AS (SELECT auction, 1 AS one FROM items) SELECT e.y, price FROM d AS e(x, y) JOIN bids ON x = auction",
]


def test_static_expressions_beside_streams(home: Harness, spark: SparkSession) -> None:
    start(home)
    home.insert("bids", BIDS[:2])
    for index, query in enumerate(EXPRESSIONS):
        home.sql(f"CREATE VIEW v{index} AS {query} EMIT CHANGES")
    home.insert("bids", BIDS[2:])
    for index, query in enumerate(EXPRESSIONS):
        assert_same_rows(home.table(f"v{index}"), oracle(spark, query, BIDS, ITEMS), query)
        assert_same_rows(home.emitted(f"v{index}"), home.table(f"v{index}"), query)
    # A table below such an expression is one that the view reads.
    with pytest.raises(AnabranchError, match="items is read by v0"):
        home.sql("DROP TABLE items")


def test_nothing_is_waited_for_where_nothing_comes(home: Harness) -> None:
    start(home)
    for query in (
        "SELECT count(*) AS n FROM items EMIT ON WINDOW CLOSE",
        "SELECT 1 AS a TRIGGER COUNTING 2",
        "VALUES (1) EMIT AFTER DELAY INTERVAL '6' MINUTES",
        "WITH c AS (SELECT count(*) AS n FROM items TRIGGER ON END OF STREAM) SELECT n FROM bids CROSS JOIN c",
    ):
        with pytest.raises(AnabranchError, match="this clause needs a stream: the query reads none"):
            home.sql(f"CREATE VIEW v AS {query}")
    again = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r"
    with pytest.raises(AnabranchError, match="the changes of a query with WITH RECURSIVE cannot be stored"):
        home.sql(f"CREATE VIEW v AS {again} EMIT CHANGES")
