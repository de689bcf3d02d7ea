"""The column that windows lie along: what types it may have, and what is said of others; and very short windows."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from anabranch.errors import AnabranchError, SqlError
from anabranch.testing import Harness, assert_same_rows

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, x DOUBLE, n INT, d DATE, ts TIMESTAMP, t TIMESTAMP_NTZ)"
START = datetime(2026, 1, 1)


def _counted(call: str) -> str:
    return f"SELECT count(*) AS c, window_start AS a, window_end AS b FROM {call} GROUP BY window_start, window_end"


REFUSED = [
    (_counted("TUMBLE(s, k, 10)"), "k", "k is a STRING, and windows of numbers need a whole number"),
    (_counted("TUMBLE(s, k, INTERVAL 5 SECONDS)"), "k", "k is a STRING, and windows need a TIMESTAMP"),
    (_counted("TUMBLE(s, x, 10)"), "x", "x is a DOUBLE, and windows of numbers need a whole number"),
    (_counted("TUMBLE(s, ts, 10)"), "ts", "ts is a TIMESTAMP, and windows of numbers need a whole number"),
    (_counted("TUMBLE((SELECT k AS kk FROM s), kk, INTERVAL 5 SECONDS)"), "kk", "kk is a STRING"),
    (_counted("TUMBLE(s, tss, INTERVAL 5 SECONDS)"), "tss", "there is no column tss"),
    ("SELECT count(*) [RANGE 5 seconds, SLIDE 5 seconds, WA kk] FROM s", "kk", "there is no column kk"),
    ("SELECT count(*) [RANGE 5 seconds, SLIDE 5 seconds, WA k] FROM s", "k", "windows need a TIMESTAMP"),
    ("SELECT count(*) AS c FROM STREAM(s, 'CUT ON k BY 5 SECS')", "k", "windows need a TIMESTAMP"),
    (_counted("TUMBLE(s, n, 10 ROWS)"), "10 ROWS", "rows are counted by ROW_NUM, and n is a column"),
]  # fmt: skip


def test_a_column_that_windows_cannot_lie_along_is_refused_at_its_place(home: Harness) -> None:
    home.sql(STREAM)
    for query, place, message in REFUSED:
        text = f"CREATE VIEW bad AS {query} EMIT CHANGES"
        with pytest.raises(SqlError) as caught:
            home.sql(text)
        error = caught.value
        assert message in error.message and error.text is not None
        assert error.text[error.start : error.end] == place, query
    home.insert("s", [("no number", 1.5, 1, date(2026, 1, 1), START, START)])


def test_times_days_and_numbers(home: Harness) -> None:
    home.sql(STREAM)
    queries = [
        _counted("TUMBLE(s, t, INTERVAL 5 SECONDS)"),
        _counted("TUMBLE(s, d, INTERVAL 2 DAYS)"),
        _counted("TUMBLE(s, n, INTERVAL 5 SECONDS)"),
        _counted("HOP(s, n, 4, 6)"),
    ]
    for index, query in enumerate(queries):
        home.sql(f"CREATE VIEW v{index} AS {query}{' EMIT CHANGES' if index % 2 else ''}")
    days = [START + timedelta(seconds=n * 40_000) for n in (0, 1, 5, 7, 7, 2)]
    rows = [("a", 0.5, n, day.date(), day, day) for n, day in enumerate(days)]
    home.insert("s", rows[:3])
    home.insert("s", rows[3:])
    for index, query in enumerate(queries):
        assert_same_rows(home.table(f"v{index}"), home.batch(query, s=rows), query)
    told = "\n".join(row[0] for row in home.query(f"EXPLAIN {queries[3]}"))
    assert "HOP 6 every 4; pane 2" in told
    rows_query = "EXPLAIN SELECT count(*) AS c FROM STREAM(s, 'CUT BY 2 ROWS')"
    assert "TUMBLE 2 rows; pane 2 rows" in "\n".join(row[0] for row in home.query(rows_query))


def test_the_time_of_a_short_window_lies_in_it(home: Harness) -> None:
    """Half a millisecond: what is counted in windows is in the same window when windows nest."""
    home.sql("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    short = "SELECT count(*) AS c, window_start, window_end, window_time FROM TUMBLE(s, ts, INTERVAL 500 MICROSECONDS)"
    short += " GROUP BY window_start, window_end, window_time"
    home.sql(f"CREATE VIEW short AS {short} EMIT ON WINDOW CLOSE; CREATE VIEW again AS {short}")
    nested = "SELECT sum(c) AS c, window_start AS a FROM TUMBLE(short, window_time, INTERVAL 500 MICROSECONDS)"
    nested += " GROUP BY window_start, window_end"
    home.sql(f"CREATE VIEW outer_one AS {nested}")
    rows = [(START + timedelta(microseconds=at),) for at in (0, 100, 499, 500, 1_200, 3_000)]
    home.insert("s", rows[:4])
    home.insert("s", rows[4:])
    home.advance("s")
    wanted = [(3, 0), (1, 500), (1, 1_000), (1, 3_000)]
    assert (
        home.table("short")
        == home.table("again")
        == sorted((c, *(START + timedelta(microseconds=at + more) for more in (0, 500, 499))) for c, at in wanted)
    )
    assert home.table("outer_one") == sorted((c, START + timedelta(microseconds=at)) for c, at in wanted)


CENTURY = ["LANDMARK(s, ts, INTERVAL 1 SECOND)", "TUMBLE(s, ts, INTERVAL 1 SECOND, FILLED => true)"]


@pytest.mark.parametrize("call", CENTURY)
def test_one_row_of_another_century_is_told_and_does_no_harm(home: Harness, call: str) -> None:
    home.sql("CREATE STREAM s (x INT, ts TIMESTAMP) ON ERROR FAIL")
    home.sql(f"CREATE VIEW v AS {_counted(call)} EMIT CHANGES")
    home.insert("s", [(1, START), (2, START + timedelta(seconds=1))])
    with pytest.raises(AnabranchError, match="more than 5,000,000 windows"):
        home.insert("s", [(3, datetime(1907, 5, 1))])
    home.insert("s", [(4, START + timedelta(seconds=3))])
    right = [1, 2, 2, 3] if call.startswith("LANDMARK") else [0, 1, 1, 1]
    assert sorted(c for c, *_ in home.query("SELECT c FROM v")) == right


@pytest.mark.filterwarnings("ignore:view v is stopped")
@pytest.mark.parametrize("call", CENTURY)
def test_one_row_of_another_century_stops_the_view_alone(home: Harness, call: str) -> None:
    home.sql("CREATE STREAM s (x INT, ts TIMESTAMP)")
    home.sql(f"CREATE VIEW v AS {_counted(call)} EMIT CHANGES")
    home.sql("CREATE VIEW n AS SELECT count(*) AS n FROM s EMIT CHANGES")
    home.insert("s", [(1, START), (2, START + timedelta(seconds=1))])
    home.insert("s", [(3, datetime(1907, 5, 1))])
    home.insert("s", [(4, START + timedelta(seconds=3))])
    assert home.query("SELECT * FROM n") == [(4,)]
    ((reason,),) = home.query("SELECT stopped FROM sys.views WHERE name = 'v'")
    assert "more than 5,000,000 windows" in reason
    with pytest.raises(AnabranchError, match="view v is stopped"):
        home.query("SELECT * FROM v")


@pytest.mark.parametrize(
    "call",
    [
        "HOP(s, ts, INTERVAL 1 SECOND, INTERVAL 36500 DAYS)",
        "HOP(s, ts, INTERVAL 1 MILLISECOND, INTERVAL 1 DAY)",
        "CUMULATE(s, ts, INTERVAL 1 SECOND, INTERVAL 36500 DAYS)",
    ],
)
def test_a_row_in_too_many_windows_is_refused_when_the_view_is_made(home: Harness, call: str) -> None:
    home.sql("CREATE STREAM s (x INT, ts TIMESTAMP)")
    with pytest.raises(
        AnabranchError, match=r"(?s)a row would be in [\d,]+ windows, and 5,000,000 are the most.*larger"
    ):
        home.sql(f"CREATE VIEW v AS {_counted(call)} EMIT CHANGES")


@pytest.mark.filterwarnings("ignore:view v is stopped")
@pytest.mark.parametrize("call", CENTURY)
def test_one_row_of_another_century_stops_a_view_that_waits_for_windows(home: Harness, call: str) -> None:
    home.sql("CREATE STREAM s (x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)")
    home.sql(f"CREATE VIEW v AS {_counted(call)} EMIT ON WINDOW CLOSE; CREATE VIEW p AS {_counted(call)}")
    home.insert("s", [(1, START), (2, START + timedelta(seconds=1))])
    home.insert("s", [(3, datetime(1907, 5, 1))])
    home.insert("s", [(4, START + timedelta(seconds=3))])
    assert home.query("SELECT count(*) FROM s") == [(4,)]
    ((reason,),) = home.query("SELECT stopped FROM sys.views WHERE name = 'v'")
    assert "more than 5,000,000 windows" in reason
    with pytest.raises(AnabranchError, match="more than 5,000,000 windows"):
        home.query("SELECT * FROM p")  # it is computed when read, and nothing was left out of it
