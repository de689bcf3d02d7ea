"""Sessions and cumulating windows: as the plain functions say, for any order of rows and any cut into runs."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from anabranch.algebra.windows import CumulatingWindows, sessions
from anabranch.engine import driver_changes
from anabranch.engine.maintain import keyed
from anabranch.engine.maintain.commit import Commit
from anabranch.errors import QueryFailed
from anabranch.plan.view import View
from anabranch.testing import Harness, cuts, shuffled

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
STREAM = "CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
GAP = 7
SESSIONS = (
    "SELECT window_start, window_end, k, count(*) AS n"
    f" FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL {GAP} SECONDS)"
    " GROUP BY window_start, window_end, k"
)
GROWING = (
    "SELECT window_start, window_end, count(*) AS n"
    " FROM CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 4 SECONDS, INTERVAL 12 SECONDS, INTERVAL 3 SECONDS)"
    " GROUP BY window_start, window_end"
)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def test_sessions_and_growing_windows_for_any_order_and_cut(home: Harness) -> None:
    chance = random.Random(5)
    keys = ["a", "b", None]
    seconds = [(chance.choice(keys), chance.randint(-40, 60)) for _ in range(60)]
    home.sql(f"{STREAM}; CREATE VIEW v AS {SESSIONS}; CREATE VIEW g AS {GROWING}")
    for run in cuts(shuffled([(key, at(second)) for key, second in seconds], chance), chance):
        home.insert("s", run)
    wanted = [
        (at(low), at(high), key, sum(1 for each, second in seconds if each == key and low <= second < high))
        for key in keys
        for low, high in sessions((second for each, second in seconds if each == key), GAP)
    ]
    assert sorted(home.table("v"), key=str) == sorted(wanted, key=str)
    grown = Counter(extent for _, second in seconds for extent in CumulatingWindows(12, 4, 3).extents(second))
    # START is a whole number of windows after the epoch, so that seconds since either are the same to them.
    assert (START - datetime(1970, 1, 1)) % timedelta(seconds=12) == timedelta(0)
    assert home.table("g") == sorted((at(low), at(high), count) for (low, high), count in grown.items())


def test_a_late_row_joins_two_sessions(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SESSIONS}")
    home.insert("s", [("a", at(0)), ("a", at(12)), ("b", at(100))])
    assert home.table("v") == [(at(0), at(7), "a", 1), (at(12), at(19), "a", 1), (at(100), at(107), "b", 1)]
    home.insert("s", [("a", at(6))])
    assert home.table("v") == [(at(0), at(19), "a", 3), (at(100), at(107), "b", 1)]


KEPT = (
    "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS x"
    f" FROM SESSION(TABLE {{}} PARTITION BY k, DESCRIPTOR(ts), INTERVAL {GAP} SECONDS)"
    " GROUP BY window_start, window_end, k"
)
TOGETHER = (
    "SELECT window_end, count(*) AS n"
    f" FROM SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL {GAP} SECONDS) GROUP BY window_start, window_end"
)
Given = tuple[str | None, int, datetime]


def expected(given: list[Given]) -> list[tuple[Any, ...]]:
    """The sessions of each key of rows, with how many rows they have and the sum of their values."""
    found: list[tuple[Any, ...]] = []
    for key in {key for key, _, _ in given}:
        own = [(round((time - START).total_seconds()), value) for each, value, time in given if each == key]
        for low, high in sessions((second for second, _ in own), GAP):
            inside = [value for second, value in own if low <= second < high]
            found.append((at(low), at(high), key, len(inside), sum(inside)))
    return sorted(found, key=str)


def shown(home: Harness, view: str) -> list[tuple[Any, ...]]:
    return sorted(home.query(f"SELECT * FROM {view}"), key=str)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The views that are computed from now on, and whether from the rows of some sessions only."""
    asked: list[tuple[str, bool]] = []
    fresh = keyed.fresh_rows

    def counted(commit: Commit, view: View, *others: Any, spans: Any = None, **named: Any) -> Any:
        asked.append((view.name, spans is not None))
        return fresh(commit, view, *others, spans=spans, **named)

    difference = driver_changes.Query.difference

    def on_driver(self: driver_changes.Query, *given: Any) -> str:
        asked.append((self.view.name, self.within is not None))
        return difference(self, *given)

    monkeypatch.setattr(keyed, "fresh_rows", counted)
    monkeypatch.setattr(driver_changes.Query, "difference", on_driver)
    return asked


def test_only_sessions_that_rows_touch_are_computed(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """However rows are cut into runs: every change kept, or what has closed, is what a batch over all rows says."""
    monkeypatch.setattr("anabranch.engine.maintain.sessions.FIRST", 1)
    monkeypatch.setattr("anabranch.engine.maintain.sessions.FURTHER", 4)
    asked, chance = counting(monkeypatch), random.Random(11)
    home.sql(
        "CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
        f"CREATE VIEW every AS {KEPT.format('s')} EMIT CHANGES;"
        f"CREATE VIEW shut AS {KEPT.format('s')} EMIT ON WINDOW CLOSE;"
        f"CREATE VIEW together AS {TOGETHER} EMIT CHANGES;"
        f"CREATE VIEW together_shut AS {TOGETHER} EMIT ON WINDOW CLOSE"
    )
    given = [
        (chance.choice(["a", "a", "b", None]), chance.randint(1, 9), at(chance.randint(0, 150))) for _ in range(45)
    ]
    seen: list[Given] = []
    for index, run in enumerate([given[:14], given[14:15], given[15:32], given[32:]]):
        home.insert("s", run)
        seen += run
        bound = max(time for _, _, time in seen) - timedelta(seconds=5)
        assert shown(home, "every") == expected(seen)
        assert shown(home, "shut") == [row for row in expected(seen) if row[1] < bound]
        all_rows = [(end, n) for _, end, _, n, _ in expected([("", value, time) for _, value, time in seen])]
        assert shown(home, "together") == sorted(all_rows, key=str)
        assert shown(home, "together_shut") == sorted((row for row in all_rows if row[0] < bound), key=str)
        if index == 1:
            home.compact()
        if index == 2:
            home.reopen()
    assert {name for name, _ in asked} == {"every", "shut", "together", "together_shut"}
    assert all(spanned for _, spanned in asked)


def test_sessions_of_rows_that_come_and_go(home: Harness) -> None:
    """A row taken back can leave two sessions where one was; sessions over a view follow what that shows."""
    home.sql(
        "CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, n INT, WATERMARK FOR ts AS ts);"
        "CREATE VIEW orders AS SELECT k, v, ts FROM NET(s, n);"
        f"CREATE VIEW every AS {KEPT.format('orders')} EMIT CHANGES;"
        f"CREATE VIEW shut AS {KEPT.format('orders')} EMIT ON WINDOW CLOSE;"
        f"CREATE VIEW listed AS SELECT k, v, window_end FROM SESSION(orders PARTITION BY k, ts, INTERVAL {GAP} SECONDS)"
        " EMIT CHANGES"
    )
    there: list[Given] = []
    runs = [
        [("a", 1, at(0), 1), ("a", 2, at(6), 1), ("b", 4, at(3), 1)],
        [("a", 8, at(12), 1), ("b", 16, at(30), 1)],
        [("a", 2, at(6), -1)],
        [("b", 4, at(3), -1), ("a", 32, at(7), 1)],
    ]
    for run in runs:
        home.insert("s", run)
        there += [(k, v, ts) for k, v, ts, n in run if n > 0]
        for k, v, ts, n in run:
            if n < 0:
                there.remove((k, v, ts))
        assert shown(home, "every") == expected(there)
        rows = [
            (k, v, end) for k, v, ts in there for low, end, key, *_ in expected(there) if k == key and low <= ts < end
        ]
        assert shown(home, "listed") == sorted(rows, key=str)
    assert shown(home, "shut") == [row for row in expected(there) if row[1] < at(30)]


def test_what_keys_windows_that_other_rows_make(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, j INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    sessions = f"SESSION(s PARTITION BY k, j, ts, INTERVAL {GAP} SECONDS)"
    keyed = {
        f"SELECT window_end, k, j, count(*) AS n FROM {sessions} GROUP BY window_end, k, j": ("keyed", "j, k", True),
        f"SELECT window_end, k, count(*) AS n FROM {sessions} GROUP BY window_end, k": ("keyed", "k", False),
        f"SELECT window_start AS a, v FROM {sessions} WHERE window_end > window_start": ("keyed", "_k0, _k1", True),
        f"SELECT date(window_end) AS d, v FROM {sessions}": ("keyed", "_k0, _k1", False),
        f"SELECT window_end, count(*) AS n FROM {sessions} GROUP BY window_end": ("whole", "", False),
        f"SELECT k, j, rank() OVER (PARTITION BY k ORDER BY ts) AS r, window_end FROM {sessions}": (
            "keyed",
            "k",
            False,
        ),
        "SELECT k, sum(v) [RANGE 3 rows, SLIDE 2 rows, WA row-num, PA k] FROM s": ("keyed", "k", False),
        "SELECT k, sum(v) AS x, window_end FROM CHUNKS(s, k) GROUP BY k, window_end": ("whole", "", False),
    }
    for index, (query, wanted) in enumerate(keyed.items()):
        home.sql(f"CREATE VIEW v{index} AS {query} EMIT CHANGES")
        view = home.session._core.catalog().find(f"v{index}")
        assert isinstance(view, View)
        single = view.progress.ends is not None and view.progress.ends.shows_session
        assert (view.operator, ", ".join(key.name for key in view.keying.columns), single) == wanted, query
    told = "\n".join(line for (line,) in home.query("EXPLAIN SELECT * FROM v0"))
    assert "keyed by j, k, session" in told and "from the rows of the sessions they are in" in told


def test_late_rows_of_sessions_are_counted_and_can_fail_a_run(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    shut = f"{KEPT.format('s')} EMIT ON WINDOW CLOSE"
    home.sql(f"CREATE VIEW v AS {shut}; CREATE VIEW ends AS SELECT count(*) AS n, window_end FROM"
             " SLIDE_BY_ROW(s, ts, INTERVAL 6 SECONDS, 1 ROW) GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;"
             "CREATE VIEW since AS SELECT count(*) AS n, window_end FROM LANDMARK(s, ts, INTERVAL 10 SECONDS)"
             " GROUP BY window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    home.insert("s", [("a", 1, at(0)), ("a", 1, at(25))])
    home.insert("s", [("a", 1, at(3)), ("b", 1, at(24)), ("a", 1, at(26))])  # b's session is open as long as its gap
    late = home.query("SELECT view, window_start, window_end, rows, policy FROM sys.late_rows ORDER BY view")
    assert late == [(view, None, None, rows, "correct") for view, rows in (("ends", 2), ("since", 1), ("v", 1))]
    assert shown(home, "v") == [(at(0), at(10), "a", 2, 2)]
    home.sql(f"CREATE VIEW strict AS {shut} LATE FAIL")
    before = home.session.version
    with pytest.raises(QueryFailed, match="view strict: 1 late row below what its windows had closed by"):
        home.insert("s", [("c", 1, at(18)), ("d", 1, at(25))])
    assert home.session.version == before
    home.insert("s", [("c", 1, at(60))])
    assert shown(home, "strict") == expected([("a", 1, at(s)) for s in (0, 3, 25, 26)] + [("b", 1, at(24))])


def test_nothing_is_computed_where_no_window_closes(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS)")
    home.sql(f"CREATE VIEW v AS {KEPT.format('s')} EMIT ON WINDOW CLOSE; CREATE VIEW t AS {TOGETHER} EMIT ON WINDOW"
             " CLOSE; CREATE VIEW since AS SELECT count(*) AS n, window_end FROM LANDMARK(s, ts, INTERVAL 1 MINUTE)"
             " GROUP BY window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    home.insert("s", [("a", 1, at(0)), ("b", 1, at(1))])
    asked = counting(monkeypatch)
    home.insert("s", [("a", 2, at(4)), ("b", 1, at(7))])
    home.insert("s", [("a", 3, at(8)), ("b", 1, at(9))])
    assert [name for name, _ in asked if name != "since"] == []
    asked.clear()
    home.advance("s", at(15))  # a's last row is at 8, b's at 9
    assert asked == []
    home.advance("s", at(16))
    assert asked == [("v", True)]
    assert shown(home, "v") == [(at(0), at(15), "a", 3, 6)]
    home.advance("s", at(61))
    assert [name for name, _ in asked] == ["v", "v", "t", "since"]
    assert shown(home, "t") == [(at(16), 6)] and shown(home, "since") == [(6, at(60))]


def test_sessions_of_a_key_close_by_its_own_progress(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts ORDERED PER KEY k)")
    home.sql(f"CREATE VIEW v AS {KEPT.format('s')} EMIT ON WINDOW CLOSE")
    home.sql("CREATE TABLE t (k STRING, name STRING); INSERT INTO t VALUES ('a', 'Ann'), ('b', 'Bob')")
    home.sql("CREATE VIEW named AS SELECT window_end, name, count(*) AS n FROM SESSION(s PARTITION BY k, ts,"
             f" INTERVAL {GAP} SECONDS) AS s JOIN t ON s.k = t.k GROUP BY window_end, s.k, name"
             " EMIT ON WINDOW CLOSE")  # fmt: skip
    home.insert("s", [("a", 1, at(0)), ("b", 2, at(0)), ("a", 4, at(20))])
    assert shown(home, "v") == expected([("a", 1, at(0))])
    assert shown(home, "named") == [(at(GAP), "Ann", 1)]
    home.insert("s", [("a", 8, at(5)), ("b", 16, at(6))])  # a's is late, b's is not
    assert shown(home, "v") == expected([("a", 1, at(0)), ("a", 8, at(5))])
    assert home.query("SELECT view, rows FROM sys.late_rows ORDER BY view") == [("named", 1), ("v", 1)]
    home.reopen()
    home.sql(f"CREATE VIEW w AS {KEPT.format('s')} EMIT ON WINDOW CLOSE")
    assert shown(home, "w") == shown(home, "v")
    home.insert("s", [("b", 32, at(40))])
    assert shown(home, "v") == expected([("a", 1, at(0)), ("a", 8, at(5)), ("b", 2, at(0)), ("b", 16, at(6))])
