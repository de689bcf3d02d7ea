"""A budget for closing windows: which of them a run shows, and what everybody else sees of it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta

import pytest

from anabranch.errors import NotSupported, QueryFailed, SqlError
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
GROUP = "FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY window_start, window_end"
#: On panes, computed on the driver; and with a trigger on keys, over the rows.
PLAIN = f"SELECT window_end, k, sum(n) AS n {GROUP}, k EMIT ON WINDOW CLOSE"
KEYED = f"SELECT window_end, k, collect_set(n) AS n {GROUP}, k EMIT ON WINDOW CLOSE"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stream(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")


def burst(home: Harness, windows: int) -> None:
    """Rows of two keys in each window, all in one run; the last of them is still open."""
    home.insert("s", [(k, 1, at(10 * number + 5)) for number in range(windows + 1) for k in "ab"])


def ends(home: Harness, view: str = "v") -> list[int]:
    """The ends of the windows shown, in seconds."""
    return sorted({round((row[0] - START).total_seconds()) for row in home.table(view)})


def come_to(home: Harness, view: str) -> datetime | None:
    ((bound,),) = home.query(f"SELECT progress FROM sys.progress WHERE view = '{view}'")
    return bound  # type: ignore[no-any-return]


@pytest.mark.parametrize("query", [PLAIN, KEYED], ids=["panes", "keys"])
def test_the_windows_of_a_burst_come_out_run_by_run(home: Harness, query: str) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {query} AT MOST 2 WINDOWS A RUN")
    home.sql(f"CREATE VIEW r AS {query} AT MOST 5 ROWS A RUN")
    burst(home, 7)
    assert ends(home) == ends(home, "r") == [10, 20]
    assert ends(home) == [10, 20], "nobody sees more by looking again"
    assert come_to(home, "v") == at(20)
    home.insert("s", [])
    assert ends(home) == [10, 20, 30, 40]
    home.reopen()
    home.advance("s", at(77))  # a commit without rows is a run too
    assert ends(home) == ends(home, "r") == [10, 20, 30, 40, 50, 60]
    home.insert("s", [("c", 1, at(78))])
    assert ends(home) == [10, 20, 30, 40, 50, 60, 70]
    assert come_to(home, "v") == at(78), "with nothing held back it is as far as the stream"


@pytest.mark.parametrize("query", [PLAIN, KEYED], ids=["panes", "keys"])
def test_no_window_waits_for_more_runs_than_it_may(home: Harness, query: str) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {query} AT MOST 1 WINDOW A RUN WITHIN 2 RUNS")
    burst(home, 5)
    assert ends(home) == [10]
    home.insert("s", [("a", 1, at(95))])
    home.reopen()
    assert ends(home) == [10, 20]
    home.insert("s", [])
    assert ends(home) == [10, 20, 30, 40, 50], "those that were ready two runs ago"
    home.insert("s", [])
    assert ends(home) == [10, 20, 30, 40, 50, 60]
    assert not home.session._core.snapshot().ready


@pytest.mark.parametrize("query", [PLAIN, KEYED], ids=["panes", "keys"])
def test_at_the_end_of_the_stream_everything_is_shown(home: Harness, query: str) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {query} AT MOST 1 ROW A RUN")
    burst(home, 6)
    assert ends(home) == [10], "a window with more rows than the budget comes alone"
    home.advance("s")
    assert ends(home) == [10, 20, 30, 40, 50, 60, 70]


@pytest.mark.parametrize("query", [PLAIN, KEYED], ids=["panes", "keys"])
def test_rows_of_windows_that_wait_are_no_corrections(home: Harness, query: str) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {query} AT MOST 1 WINDOW A RUN")
    burst(home, 3)
    home.insert("s", [("a", 5, at(12)), ("c", 5, at(22)), ("a", 5, at(3))])  # the last one for a window that was shown
    home.insert("s", [])
    changes = Counter((change.diff, round((change.row[0] - START).total_seconds())) for change in home.changes("v"))
    assert changes == {(1, 10): 3, (-1, 10): 1, (1, 20): 2, (1, 30): 3}
    assert home.query("SELECT window_end, rows FROM sys.late_rows") == [(at(10), 1)]
    found = {row[:2]: row[2] for row in home.table("v")}
    assert found[at(20), "a"] in (6, [1, 5], [5, 1])


def test_late_fail_lets_rows_of_waiting_windows_in(home: Harness) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {PLAIN} AT MOST 1 WINDOW A RUN LATE FAIL")
    burst(home, 3)
    home.insert("s", [("a", 5, at(22))])
    with pytest.raises(QueryFailed, match="1 late row"):
        home.insert("s", [("a", 5, at(3))])
    assert ends(home) == [10, 20]


@pytest.mark.parametrize("query", [PLAIN, KEYED], ids=["panes", "keys"])
def test_an_archive_shows_no_window_that_waits(home: Harness, query: str) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {query} AT MOST 1 WINDOW A RUN LATE ARCHIVE")
    burst(home, 3)
    home.insert("s", [("z", 5, at(3))])
    assert ends(home) == [10, 20]
    assert "z" in {row[1] for row in home.table("v")}


def test_views_on_top_go_no_further_than_what_is_shown(home: Harness) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS SELECT window_start, window_end, count(*) AS c {GROUP}"
             " EMIT ON WINDOW CLOSE AT MOST 2 WINDOWS A RUN")  # fmt: skip
    home.sql("CREATE VIEW top AS SELECT window_end, sum(c) AS c FROM v GROUP BY window_end EMIT ON WINDOW CLOSE")
    burst(home, 5)
    assert come_to(home, "top") == come_to(home, "v") == at(20)
    assert ends(home, "top") == [10, 20]
    ((line,),) = home.query("EXPLAIN (ANALYZE, FORMAT JSON) v")
    figures = {node["name"]: node["figures"] for node in json.loads(line)["nodes"]}["v"]
    assert figures["bound"] == "2026-01-01 00:00:20"
    assert figures["bounds"] == {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30"}
    home.insert("s", [])
    assert ends(home, "top") == [10, 20, 30, 40]
    home.advance("s")
    assert ends(home, "top") == [10, 20, 30, 40, 50, 60]
    assert [change.diff for change in home.changes("top")] == [1] * 6


def test_a_quiet_stream_shows_the_rest_bit_by_bit(home: Harness) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {PLAIN} AT MOST 2 WINDOWS A RUN")
    home.sql(f"CREATE VIEW w AS {KEYED} AT MOST 3 WINDOWS A RUN")
    burst(home, 5)
    capture = home.session._capture
    found = home.session._core.catalog().stream("s")
    seen = []
    while capture.show_waiting(found) is not None:
        seen.append((len(ends(home)), len(ends(home, "w"))))
    assert seen == [(4, 5), (5, 5)]


def test_a_view_made_late_shows_all_that_has_closed(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) KEEP ALL")
    burst(home, 4)
    for name, query in (("v", PLAIN), ("w", KEYED)):
        home.sql(f"CREATE VIEW {name} AS {query} AT MOST 1 WINDOW A RUN")
        assert ends(home, name) == [10, 20, 30, 40]
    home.insert("s", [("a", 1, at(75))])
    assert ends(home) == ends(home, "w") == [10, 20, 30, 40, 50]


def test_a_budget_comes_and_goes_with_alter_view(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) KEEP ALL")
    home.sql(f"CREATE VIEW v AS {PLAIN} AT MOST 1 WINDOW A RUN")
    burst(home, 3)
    assert ends(home) == [10]
    home.sql(f"ALTER VIEW v AS {PLAIN}")
    assert ends(home) == [10, 20, 30]
    home.sql(f"ALTER VIEW v AS {PLAIN} AT MOST 1 WINDOW A RUN WITHIN 9 RUNS")
    assert ends(home) == [10, 20, 30]
    home.insert("s", [("a", 1, at(number)) for number in (45, 55, 65)])
    assert ends(home) == [10, 20, 30, 40]
    assert all(change.diff == 1 for change in home.changes("v"))


def test_with_progress_by_key_a_budget_goes_by_the_stream(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts PER KEY k)")
    home.sql(f"CREATE VIEW v AS {PLAIN} AT MOST 1 WINDOW A RUN")
    home.insert("s", [(k, 1, at(seconds)) for k, seconds in (("a", 5), ("b", 5), ("a", 35), ("b", 12))])
    assert ends(home) == [10]
    home.insert("s", [("b", 1, at(31))])
    assert ends(home) == [10, 20]


def test_it_is_told_by_explain_and_describe(home: Harness) -> None:
    stream(home)
    home.sql(f"CREATE VIEW v AS {PLAIN} AT MOST 10000 ROWS A RUN WITHIN 1 RUN")
    told = [line.strip() for (line,) in home.query("EXPLAIN v")]
    said = "emits when a window closes, at most 10,000 rows a run and within 1 run"
    assert any(line.startswith(f"{said}; late rows correct it") for line in told)
    assert "progress: that of s, up to the last window shown" in told
    assert ("window_end", "timestamp", said) in home.query("DESCRIBE v")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT sum(n) AS n FROM STREAM(s, 'CUT BY 3 ROWS')", "do not close by event time"),
        ("SELECT min(k) AS k, window_end FROM CHUNKS(s, k) GROUP BY window_start, window_end", "whole answer"),
        ("SELECT k, sum(n) AS n FROM s GROUP BY k", "no window closes|not every part"),
    ],
)
def test_where_nothing_can_be_spread_it_is_refused(home: Harness, query: str, reason: str) -> None:
    stream(home)
    with pytest.raises((NotSupported, SqlError), match=reason):
        home.sql(f"CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE AT MOST 1 WINDOW A RUN")
