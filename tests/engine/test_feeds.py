"""Changes that are kept: subscribers, views on views, groups in memory, and what is not final yet."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from anabranch.duck import DATABASE, MEMORY
from anabranch.errors import AnabranchError
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

SUMS = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"


def changes(batch: Any) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in batch.changes.columns), strict=True), key=repr)


def start(home: Harness, clause: str = "") -> None:
    home.sql(f"CREATE STREAM s (k STRING, v INT); CREATE VIEW v AS {SUMS}{clause}")


# ---- subscribers


def test_a_subscriber_gets_the_answer_first_and_then_each_change_once(home: Harness) -> None:
    start(home)
    home.insert("s", [("a", 1), ("b", 2)])
    first = list(home.session.subscribe("v"))
    assert changes(first[0]) == [("a", 1, 1, 1), ("b", 1, 2, 1)]
    seen = first[-1].version
    home.insert("s", [("a", 5)])
    home.compact()  # merges the files of the changes
    home.insert("s", [("c", 7)])
    home.reopen()
    second = [batch for batch in home.session.subscribe("v", seen) if batch.changes.num_rows]
    assert [changes(batch) for batch in second] == [[("a", 1, 1, -1), ("a", 2, 6, 1)], [("c", 1, 7, 1)]]
    assert [batch for batch in home.session.subscribe("v", second[-1].version) if batch.changes.num_rows] == []


def test_changes_add_up_however_often_a_reader_stops(home: Harness) -> None:
    start(home, " EMIT CHANGES")
    held: Counter[tuple[Any, ...]] = Counter()
    seen = home.session.version
    for run in ([("a", 1)], [("a", -1), (None, 4)], [("a", 3), ("b", None)]):
        home.insert("s", run)
        for batch in home.session.subscribe("v", seen):
            seen = batch.version
            for *row, diff in changes(batch):
                held[tuple(row)] += diff
        home.compact()
    assert sorted((row for row, count in held.items() if count), key=repr) == sorted(home.table("v"), key=repr)
    assert set(held.values()) <= {0, 1}


def test_a_version_before_changes_were_kept_is_caught_up_with(home: Harness) -> None:
    """Who had the answer at a version is given what is to be added to it, whether or not changes were kept then."""
    start(home)
    home.insert("s", [("a", 1), ("b", 1), ("c", 1)])
    read_at = home.session.version
    held = Counter(home.table("v"))
    home.insert("s", [("a", 2), ("d", 1)])
    batches = list(home.session.subscribe("v", read_at))
    assert changes(batches[0]) == [("a", 1, 1, -1), ("a", 2, 3, 1), ("d", 1, 1, 1)]
    home.insert("s", [("b", 5)])
    again = list(home.session.subscribe("v", read_at))
    assert [row for batch in again for row in changes(batch)] == [
        ("a", 1, 1, -1), ("a", 2, 3, 1), ("b", 1, 1, -1), ("b", 2, 6, 1), ("d", 1, 1, 1),
    ]  # fmt: skip
    for *row, diff in (row for batch in again for row in changes(batch)):
        held[tuple(row)] += diff
    assert sorted(held.elements()) == sorted(home.table("v"))
    rest = [changes(batch) for batch in home.session.subscribe("v", batches[-1].version) if batch.changes.num_rows]
    assert rest == [[("b", 1, 1, -1), ("b", 2, 6, 1)]]


def test_a_version_that_is_gone_and_had_no_changes_is_refused(home: Harness) -> None:
    start(home)
    home.insert("s", [("a", 1)])
    ledger = home.session._core.ledger
    ledger.vacuum(keep_versions=1)
    gone = ledger.oldest - 1
    with pytest.raises(AnabranchError, match=rf"keeps its changes since version {gone + 2}, and version {gone} can no"):
        list(home.session.subscribe("v", gone))


def test_subscribe_as_a_statement(home: Harness) -> None:
    start(home, " EMIT CHANGES")
    version = home.session.version
    home.insert("s", [("a", 1)])
    result = home.session.sql(f"SUBSCRIBE TO v FROM VERSION {version}")
    assert result.columns == ["k", "n", "total", "_version"]
    assert [changes(batch) for batch in result] == [[("a", 1, 1, version + 1, 1)]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SUBSCRIBE TO w", "there is no view w"),
        ("SUBSCRIBE TO s", "s is a stream, not a view"),
        ("SUBSCRIBE TO v FROM VERSION 99", "there is no version 99 yet"),
    ],
)
def test_what_cannot_be_subscribed_to(home: Harness, sql: str, message: str) -> None:
    start(home)
    with pytest.raises(AnabranchError, match=message):
        home.session.sql(sql)


# ---- views on views


def test_views_on_views_change_in_the_same_commit(home: Harness) -> None:
    start(home)
    home.sql(
        "CREATE VIEW sizes AS SELECT n, count(*) AS keys FROM v GROUP BY n EMIT CHANGES;"
        "CREATE VIEW largest AS SELECT n, keys FROM sizes ORDER BY n DESC LIMIT 1 EMIT CHANGES"
    )
    home.insert("s", [("a", 1), ("b", 1)])
    home.insert("s", [("a", 1)])
    version = home.session.version
    assert home.table("sizes") == [(1, 1), (2, 1)]
    assert home.table("largest") == [(2, 1)]
    assert {change.version for change in home.changes("largest")[-2:]} == {version}
    assert home.table("largest", version - 1) == [(1, 2)]
    with pytest.raises(AnabranchError, match="is read by sizes"):
        home.sql("DROP VIEW v")
    home.sql("DROP VIEW v CASCADE")
    assert home.query("SELECT name FROM sys.views") == []
    assert not [table for (table,) in home.query("SELECT id FROM sys.tables") if "changes" in table]


def test_a_view_on_one_that_waits_reads_what_has_fired(home: Harness) -> None:
    home.sql(
        "CREATE STREAM s (k STRING);"
        "CREATE VIEW pairs AS SELECT k, count(*) AS n FROM s GROUP BY k TRIGGER COUNTING 2;"
        "CREATE VIEW total AS SELECT sum(n) AS n FROM pairs EMIT CHANGES;"
        "CREATE VIEW total_read AS SELECT sum(n) AS n FROM pairs"
    )
    home.insert("s", [("a",), ("a",), ("a",), ("b",)])
    assert home.table("total") == home.table("total_read") == [(2,)]
    home.insert("s", [("b",)])
    assert home.table("total") == home.table("total_read") == [(4,)]


def test_a_static_table_that_is_refreshed_reaches_what_is_shown(home: Harness) -> None:
    home.sql(
        "CREATE STREAM s (k STRING, v INT); CREATE TABLE names (k STRING, name STRING);"
        "INSERT INTO names VALUES ('a', 'first');"
        "CREATE VIEW v AS SELECT s.k, n.name, row_number() OVER (PARTITION BY s.k ORDER BY v) AS r"
        " FROM s LEFT JOIN names n ON n.k = s.k EMIT CHANGES"
    )
    home.insert("s", [("a", 1), ("b", 2)])
    home.sql("INSERT INTO names VALUES ('b', 'second')")
    home.insert("s", [("c", 3)])
    assert home.table("v") == [("a", "first", 1), ("b", None, 1), ("c", None, 1)]
    home.sql("REFRESH TABLE names")
    assert home.table("v") == [("a", "first", 1), ("b", "second", 1), ("c", None, 1)]
    assert home.emitted("v") == home.table("v")


# ---- groups in memory


@pytest.mark.parametrize("held", ["2 GB", "0"])
def test_groups_in_memory_follow_the_ledger(home: Harness, held: str) -> None:
    """Those that do not fit are not loaded, and what a run touches is read from the files."""
    start(home, " EMIT CHANGES")
    home.sql(f"SET anabranch.held_bytes = '{held}'")
    fits = held != "0"
    core = home.session._core
    view = core.catalog().find("v")
    home.insert("s", [("a", 1), (None, 2)])
    home.insert("s", [("a", 1), ("b", 2)])
    assert core.hot.groups(view) == (3 if fits else 0)  # type: ignore[arg-type]
    home.compact()
    home.insert("s", [("b", 2), ("c", None)])
    assert core.hot.groups(view) == (4 if fits else 0)  # type: ignore[arg-type]
    home.reopen()
    home.sql(f"SET anabranch.held_bytes = '{held}'")
    home.insert("s", [("c", 3)])
    expected = [("a", 2, 2), ("b", 2, 4), ("c", 2, 3), (None, 1, 2)]
    assert sorted(home.table("v"), key=repr) == sorted(expected, key=repr)
    assert home.emitted("v") == home.table("v")


@pytest.mark.parametrize("held", ["2 GB", "0"])
def test_closed_windows_leave_memory_and_late_rows_find_them(home: Harness, held: str) -> None:
    home.sql(f"SET anabranch.held_bytes = '{held}'")
    home.sql(
        "CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
        "CREATE VIEW v AS SELECT k, window_end, count(*) AS n, avg(length(k)) AS l"
        " FROM HOP(s, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) GROUP BY k, window_start, window_end EMIT CHANGES"
    )
    core = home.session._core
    view = core.catalog().find("v")
    times = [datetime(2026, 1, 1, 0, minute, second) for minute, second in ((0, 1), (0, 7), (1, 0), (0, 3), (1, 2))]
    for time in times[:3]:
        home.insert("s", [("a", time), ("bb", time)])
    assert core.hot.groups(view) == (4 if held != "0" else 0)  # type: ignore[arg-type]
    home.reopen()  # what has closed is not loaded again
    home.sql(f"SET anabranch.held_bytes = '{held}'")
    for time in times[3:]:
        home.insert("s", [("a", time)])
    query = view.sql.split(" AS ", 1)[1].removesuffix(" EMIT CHANGES")  # type: ignore[union-attr]
    rows = [(key, time) for time in times[:3] for key in ("a", "bb")] + [("a", time) for time in times[3:]]
    assert home.table("v") == home.emitted("v") == home.batch(query, s=rows)


def test_an_aggregate_inside_may_look_at_the_query_around_it(home: Harness) -> None:
    query = "SELECT a.k, a.v FROM s a WHERE a.v = (SELECT max(b.v) FROM s b WHERE b.k = a.k)"
    home.sql(f"CREATE STREAM s (k STRING, v INT); CREATE VIEW w AS {query}; CREATE VIEW v AS {query} EMIT CHANGES")
    rows = [("a", 1), ("b", 5), ("a", 3), ("b", 2)]
    home.insert_runs("s", [rows[:2], rows[2:]])
    assert home.table("w") == home.table("v") == home.emitted("v") == home.batch(query, s=rows) == [("a", 3), ("b", 5)]


def test_an_aggregate_that_shares_partials_of_the_past_goes_on_with_them(home: Harness) -> None:
    """The new column of a table of partials is filled by a file of its own, and counts all the same."""
    home.sql("CREATE STREAM s (k STRING, v INT); CREATE VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k")
    home.insert("s", [("a", 7), ("b", 1)])
    home.sql("CREATE VIEW v AS SELECT k, count(*) AS n, max(v) AS m FROM s GROUP BY k EMIT CHANGES")
    home.insert("s", [("a", 5), ("b", 2)])
    assert home.table("v") == home.emitted("v") == [("a", 2, 7), ("b", 2, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("memory", [100 << 20, 10 << 20])
def test_groups_that_do_not_fit_into_memory_go_to_disk_and_come_back(
    home: Harness, memory: int, request: pytest.FixtureRequest
) -> None:
    """With little memory DuckDB puts groups on disk; with so little that it cannot work, Spark does it."""
    DATABASE.use_memory(memory)  # a setting would refuse the least of them
    request.addfinalizer(lambda: DATABASE.use_memory(MEMORY))
    home.sql(
        "CREATE STREAM s (k BIGINT, n BIGINT); CREATE TABLE numbers AS SELECT id AS i FROM range(600000);"
        "CREATE VIEW v AS SELECT k, count(*) AS c, sum(n) AS n, max(n) AS m, min(n) AS l FROM s GROUP BY k EMIT CHANGES"
    )
    home.sql("INSERT INTO s SELECT i, i FROM numbers")
    home.sql("INSERT INTO s SELECT i * 3, 1 FROM numbers WHERE i < 100000")
    groups = home.session._core.hot
    spilled = groups.duck.sql("SELECT coalesce(sum(size), 0) FROM duckdb_temporary_files()").fetchall()[0][0]
    assert (spilled > 0, bool(groups._tables)) == ((True, True) if memory > 50 << 20 else (False, False))
    seen = home.session.version
    home.insert("s", [(5, -7), (6, 100), (None, 2)])
    (batch,) = home.session.subscribe("v", seen)
    assert changes(batch) == [
        (5, 1, 5, 5, 5, -1), (5, 2, -2, 5, -7, 1), (6, 2, 7, 6, 1, -1), (6, 3, 107, 100, 1, 1), (None, 1, 2, 2, 2, 1),
    ]  # fmt: skip
    total = "SELECT count(*), sum(c), sum(n), sum(m), sum(l) FROM"
    sums = "SELECT k, count(*) AS c, sum(n) AS n, max(n) AS m, min(n) AS l FROM s GROUP BY k"
    assert home.query(f"{total} v") == home.query(f"{total} ({sums})")


# ---- what is not final


def test_provisional_rows_say_so(home: Harness) -> None:
    home.sql(
        "CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
        "CREATE VIEW v AS SELECT k, window_end, count(*) AS n FROM TUMBLE(s, ts, INTERVAL 10 SECONDS)"
        " GROUP BY k, window_end EMIT ON WINDOW CLOSE;"
        "CREATE VIEW pairs AS SELECT k, count(*) AS n FROM s GROUP BY k TRIGGER COUNTING 2"
    )
    home.insert("s", [("a", datetime(2026, 1, 1, 0, 0, second)) for second in (1, 2, 17)])
    rows = home.query("SELECT k, window_end, n, _final FROM v INCLUDING PROVISIONAL ORDER BY window_end")
    assert [(row[1].second, *row[2:]) for row in rows] == [(10, 2, True), (20, 1, False)]
    assert home.query("SELECT * FROM pairs") == [("a", 2)]
    assert home.query("SELECT * FROM pairs INCLUDING PROVISIONAL") == [("a", 3, False)]
    home.insert("s", [("a", datetime(2026, 1, 1, 0, 0, 18))])
    assert home.query("SELECT * FROM pairs INCLUDING PROVISIONAL") == [("a", 4, True)]
    with pytest.raises(AnabranchError, match="all of its rows are final"):
        home.query("SELECT * FROM s INCLUDING PROVISIONAL")
