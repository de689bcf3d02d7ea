"""When windows of every kind close: by event time, by the number of rows, by the rows of a key, by the next chunk."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from anabranch.errors import AnabranchError, QueryFailed, SqlError
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def shown(home: Harness, view: str) -> list[tuple[Any, ...]]:
    return sorted(home.query(f"SELECT * FROM {view}"), key=str)


def seconds(moment: datetime) -> int:
    return round((moment - START).total_seconds())


def test_counted_chunks_close_with_their_last_row(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT)")
    home.sql("CREATE VIEW three AS SELECT sum(n) AS x FROM STREAM(s, 'CUT BY 3 ROWS') EMIT ON WINDOW CLOSE")
    home.sql("CREATE VIEW seven AS SELECT count(*) AS x FROM STREAM(s, 'CUT BY 7 ROWS') EMIT ON WINDOW CLOSE")
    for cut in ([1, 2], [3], [4, 5, 6, 7]):
        home.insert("s", [(n,) for n in cut])
        if cut == [1, 2]:
            assert shown(home, "three") == []
        if cut == [3]:
            assert shown(home, "three") == [(6,)]
    assert shown(home, "three") == [(15,), (6,)]
    assert shown(home, "seven") == [(7,)]


def test_a_chunk_closes_when_another_begins(home: Harness) -> None:
    home.sql("CREATE STREAM s (g STRING, n INT)")
    home.sql("CREATE VIEW v AS SELECT min(g) AS g, collect_list(n) AS n, window_end FROM CHUNKS(s, g)"
             " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    rows = [("g1", 1), ("g1", 2), ("g2", 3), ("g1", 4), ("g1", 5), ("g3", 6)]
    home.insert("s", rows[:2])
    assert shown(home, "v") == []
    home.insert("s", rows[2:3])
    assert shown(home, "v") == [("g1", [1, 2], 2)]
    home.insert("s", rows[3:])
    assert [(g, sorted(n)) for g, n, _ in shown(home, "v")] == [("g1", [1, 2]), ("g1", [4, 5]), ("g2", [3])]


def test_an_open_chunk_is_held_across_a_restart(home: Harness) -> None:
    home.sql("CREATE STREAM s (g STRING, n INT)")
    chunks = "SELECT sum(n) AS x, window_end AS e FROM STREAM(s, '{}') EMIT ON WINDOW CLOSE"
    home.sql(f"CREATE VIEW counted AS {chunks.format('CUT BY 3 ROWS')}")
    home.sql(f"CREATE VIEW changed AS {chunks.format('CUT ON g CHANGE')}")
    home.insert("s", [("a", 1), ("a", 2)])
    home.reopen()
    assert shown(home, "counted") == shown(home, "changed") == []
    home.insert("s", [("a", 4), ("b", 8)])
    assert shown(home, "counted") == shown(home, "changed") == [(7, 3)]
    home.reopen()
    home.insert("s", [("b", 16), ("c", 32)])
    assert sorted(shown(home, "counted")) == [(7, 3), (56, 6)] and sorted(shown(home, "changed")) == [(7, 3), (24, 5)]


def test_a_view_that_only_advance_closes_says_so(home: Harness) -> None:
    home.sql("CREATE STREAM s (ts TIMESTAMP); CREATE STREAM w (ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    query = "SELECT count(*) AS c, window_end FROM {} GROUP BY window_start, window_end EMIT ON WINDOW CLOSE"
    told = {
        "TUMBLE(s, ts, INTERVAL 1 MINUTE)": True,
        "SESSION(s, ts, INTERVAL 1 MINUTE)": True,
        "TUMBLE(w, ts, INTERVAL 1 MINUTE)": False,
        "TUMBLE(s, row_num, 3 ROWS)": False,
    }
    for index, (call, said) in enumerate(told.items()):
        message = home.session.sql(f"CREATE VIEW v{index} AS {query.format(call)}").message
        assert ("stream s has no WATERMARK" in message) == said, call


def test_chunks_of_time_close_with_progress_and_late_rows_correct_them(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql("CREATE VIEW v AS SELECT sum(n) AS x, window_end FROM s CUT ON ts BY 60 SECONDS"
             " GROUP BY window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    home.insert("s", [(1, at(10)), (2, at(50))])
    assert shown(home, "v") == []
    home.insert("s", [(4, at(65)), (8, at(30)), (16, at(70))])
    assert shown(home, "v") == [(11, at(60))]
    home.insert("s", [(32, at(125))])
    assert shown(home, "v") == [(11, at(60)), (20, at(120))]
    home.insert("s", [(64, at(0))])
    assert shown(home, "v") == [(20, at(120)), (75, at(60))]


def test_windows_of_the_rows_of_a_key_close_with_its_rows(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT)")
    home.sql("CREATE VIEW p AS SELECT k, sum(v) [RANGE 3 rows, SLIDE 2 rows, WA row-num, PA k] FROM s"
             " EMIT ON WINDOW CLOSE")  # fmt: skip
    home.sql("CREATE VIEW g AS SELECT k, sum(v) [RANGE 3 rows, SLIDE 2 rows, WA row-num] FROM s GROUP BY k"
             " EMIT ON WINDOW CLOSE")  # fmt: skip
    rows = [("a", 10), ("b", 1), ("a", 20), ("a", 30), ("b", 2), ("a", 40), ("b", 3), ("a", 50)]
    home.insert("s", rows[:3])
    assert [row[:2] for row in shown(home, "p")] == [("a", 30)]
    home.insert("s", rows[3:])
    assert [row[:2] for row in shown(home, "p")] == [("a", 30), ("a", 90), ("b", 3)]
    assert [row[:2] for row in shown(home, "g")] == [
        ("a", 10), ("a", 50), ("a", 70), ("a", 90), ("b", 1), ("b", 1), ("b", 2), ("b", 3),
    ]  # fmt: skip


def test_sessions_close_when_their_gap_is_over_and_late_rows_join_them(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql("CREATE VIEW v AS SELECT k, count(*) AS n, window_start, window_end FROM"
             " SESSION(s PARTITION BY k, ts, INTERVAL 5 SECONDS) GROUP BY k, window_start, window_end"
             " EMIT ON WINDOW CLOSE")  # fmt: skip

    def sessions() -> list[tuple[Any, ...]]:
        return [(k, n, seconds(start), seconds(end)) for k, n, start, end in shown(home, "v")]

    home.insert("s", [("a", at(0)), ("a", at(3)), ("b", at(1))])
    home.insert("s", [("a", at(8))])  # progress is at the end of a's session: this very row prolongs it
    assert sessions() == [("b", 1, 1, 6)]
    home.insert("s", [("b", at(40))])
    assert sessions() == [("a", 3, 0, 13), ("b", 1, 1, 6)]
    home.insert("s", [("a", at(24)), ("a", at(12))])  # late; one of them makes the session longer
    assert sessions() == [("a", 1, 24, 29), ("a", 4, 0, 17), ("b", 1, 1, 6)]
    home.insert("s", [("a", at(17)), ("a", at(21))])  # late, and a bridge between two sessions
    assert sessions() == [("a", 7, 0, 29), ("b", 1, 1, 6)]


def test_windows_that_end_at_rows_close_behind_them(home: Harness) -> None:
    home.sql("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql("CREATE VIEW v AS SELECT count(*) [RANGE 10 seconds, RATTR ts, SLIDE 1 row, SATTR row-num] FROM s"
             " EMIT ON WINDOW CLOSE")  # fmt: skip

    def ends() -> list[tuple[int, int]]:
        return sorted((seconds(row[2]), row[0]) for row in shown(home, "v"))

    home.insert("s", [(at(each),) for each in (0, 4, 7)])
    assert ends() == [(0, 1), (4, 2)]
    home.insert("s", [(at(each),) for each in (13, 2)])
    assert ends() == [(0, 1), (2, 2), (4, 3), (7, 4)]


def test_windows_of_arrival_close_by_the_clock(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT)")
    home.sql("SET CLOCK TIMESTAMP '2026-01-01 00:00:10'")
    home.sql("CREATE VIEW v AS SELECT count(*) AS n, window_end FROM TUMBLE(s, ARRIVAL_TS, INTERVAL 1 MINUTE)"
             " GROUP BY window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    home.insert("s", [(1,), (2,)])
    home.sql("SET CLOCK TIMESTAMP '2026-01-01 00:00:50'")
    home.insert("s", [(3,)])
    assert shown(home, "v") == []
    home.sql("SET CLOCK TIMESTAMP '2026-01-01 00:01:00'")
    assert shown(home, "v") == [(3, at(60))]


def test_windows_over_what_does_not_progress_never_close(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT, other TIMESTAMP, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    for windows in ("TUMBLE(s, n, 10)", "TUMBLE(s, other, INTERVAL 1 MINUTE)"):
        with pytest.raises(SqlError, match="not every part of this query has a window that closes") as caught:
            home.sql(f"CREATE VIEW v AS SELECT count(*) AS c, window_end FROM {windows}"
                     " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE")  # fmt: skip
        assert "windows of an event time" in (caught.value.hint or "")


def test_windows_of_windows_close_with_those_inside(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql("CREATE VIEW inner_ones AS SELECT k, sum(n) AS x, window_start, window_end, window_time"
             " FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY k, window_start, window_end, window_time")  # fmt: skip
    outer = ("SELECT k, max(x) AS x, window_start, window_end, window_time FROM"
             " HOP(inner_ones, window_time, INTERVAL 20 SECONDS, INTERVAL 30 SECONDS)"
             " GROUP BY k, window_start, window_end, window_time")  # fmt: skip
    home.sql(f"CREATE VIEW every_change AS {outer} EMIT CHANGES")
    home.sql(f"CREATE VIEW closed AS {outer} EMIT ON WINDOW CLOSE")
    home.sql("CREATE VIEW named AS SELECT max(x) AS x, cq_close(*) FROM inner_ones <SLICES '30 seconds'>")
    home.insert("s", [("a", 1, at(3)), ("a", 2, at(12)), ("a", 4, at(15))])
    home.insert("s", [("a", 8, at(34)), ("a", 16, at(5))])

    def windows(view: str) -> list[tuple[int, int, int]]:
        rows = home.query(f"SELECT x, window_start, window_end FROM {view}")
        return sorted((seconds(start), seconds(end), x) for x, start, end in rows)

    assert windows("every_change") == [(-20, 10, 17), (0, 30, 17), (20, 50, 8)]
    assert windows("closed") == [(-20, 10, 17), (0, 30, 17)]
    assert sorted((seconds(end), x) for x, end in home.query("SELECT * FROM named")) == [(30, 17), (60, 8)]


def test_windows_without_rows_are_skipped_or_filled_in(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    query = (
        "SELECT count(*) AS c, sum(n) FILTER (WHERE n > 1) AS x, cq_close(*) FROM STREAM(s, 'CUT ON ts BY 60 SECS{}')"
    )
    home.sql(f"CREATE VIEW skipped AS {query.format('')} EMIT ON WINDOW CLOSE")
    home.sql(f"CREATE VIEW filled AS {query.format(' FILLED')} EMIT ON WINDOW CLOSE")
    home.sql("CREATE VIEW by_rows AS SELECT window_id() AS w, count(k) AS c FROM"
             " TUMBLE(s, n, 2, FILLED => true) GROUP BY window_id() EMIT CHANGES")  # fmt: skip
    home.insert("s", [("a", 1, at(0)), ("a", 2, at(59)), ("a", 3, at(60))])
    home.insert("s", [("a", 4, at(61)), ("a", 5, at(119)), ("a", 9, at(240)), ("a", 1, at(241))])

    def chunks(view: str) -> list[tuple[Any, ...]]:
        return sorted((seconds(end) // 60 - 1, c, x) for c, x, end in home.query(f"SELECT * FROM {view}"))

    assert chunks("skipped") == [(0, 2, 2), (1, 3, 12)]
    assert chunks("filled") == [(0, 2, 2), (1, 3, 12), (2, 0, None), (3, 0, None)]
    assert sorted(home.query("SELECT * FROM by_rows")) == [(0, 2), (1, 2), (2, 2), (3, 0), (4, 1)]
    with pytest.raises(SqlError, match="nothing to group by"):
        home.query("SELECT k, count(*) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE, FILLED => true) GROUP BY k, window_start")


def test_views_above_follow_what_windows_emit(home: Harness) -> None:
    """Whatever becomes of late rows: views above show what was emitted below, and are not behind."""
    home.sql("CREATE STREAM s (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    policies = ["correct", "drop", "archive", "fail"]
    for late in policies:
        home.sql(
            f"CREATE VIEW v_{late} AS SELECT window_start, k, count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts),"
            f" INTERVAL 1 MINUTE) GROUP BY window_start, window_end, k EMIT ON WINDOW CLOSE LATE {late}"
        )
        home.sql(f"CREATE VIEW texts_{late} AS SELECT concat('k', k) AS k, c FROM v_{late} EMIT CHANGES")
        home.sql(f"CREATE VIEW sums_{late} AS SELECT k, sum(c) AS c FROM v_{late} GROUP BY k EMIT CHANGES")
        home.sql(f"CREATE VIEW kinds_{late} AS SELECT DISTINCT k, c FROM v_{late} EMIT CHANGES")

    def check(wanted: dict[str, list[int]]) -> None:
        """The counts of key 1 that each view is to have emitted, and views above in step with them."""
        for late in policies:
            counts = wanted.get(late, wanted["others"])
            assert sorted(c for _, _, c in home.emitted(f"v_{late}")) == counts, late
            assert sorted(home.emitted(f"texts_{late}")) == [("k1", c) for c in counts], late
            assert home.emitted(f"sums_{late}") == [(1, sum(counts))], late
            assert sorted(home.emitted(f"kinds_{late}")) == [(1, c) for c in sorted(set(counts))], late

    home.insert("s", [(1, at(10))])
    home.insert("s", [(1, at(130))])
    check({"others": [1]})
    with pytest.raises(QueryFailed, match="LATE FAIL"):
        home.insert("s", [(1, at(20))])
    home.sql("; ".join(f"DROP VIEW {name}_fail" for name in ("texts", "sums", "kinds", "v")))
    policies.remove("fail")
    home.insert("s", [(1, at(20))])
    home.insert("s", [(1, at(300))])
    check({"correct": [1, 2], "others": [1, 1]})
    home.sql("CREATE VIEW at_read AS SELECT k, sum(c) AS c FROM v_archive GROUP BY k")
    assert home.table("at_read") == [(1, 3)], "a read has the rows of the archive"
    home.sql("CREATE VIEW later AS SELECT k, sum(c) AS c FROM v_archive GROUP BY k EMIT CHANGES")
    assert home.table("later") == [(1, 2)], "a view made late is the same as one made early"


@pytest.mark.parametrize("backend", ["auto", "spark"])
def test_a_sum_that_is_too_large_when_its_window_closes_is_told_by_spark(home: Harness, backend: str) -> None:
    """The sum of each run fits, and that of all runs does not: nothing is shown or taken in, until it fits again.

    So it is with ON ERROR FAIL; without it the view stops, and the stream goes on.
    """
    home.sql(f"SET anabranch.backend = {backend}")
    windows = "HOP(s, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS)"
    home.sql("CREATE STREAM s (k STRING, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts ORDERED) ON ERROR FAIL")
    home.sql(f"CREATE VIEW v AS SELECT sum(n) AS n FROM {windows} GROUP BY window_start, window_end, k"
             " EMIT ON WINDOW CLOSE")  # fmt: skip
    for second in (5, 6, 7):
        home.insert("s", [("a", 2**62, at(second))])
    with pytest.raises(QueryFailed, match="overflow"):
        home.insert("s", [("b", 1, at(30))])
    assert shown(home, "v") == []
    home.insert("s", [("a", -(2**62), at(7)), ("a", -(2**62), at(8))])
    home.insert("s", [("b", 1, at(30))])
    assert shown(home, "v") == [(2**62,), (2**62,)]
    with pytest.raises(QueryFailed, match="overflow"):
        home.insert("s", [("a", 2**62, at(8))])  # late, and the sum that was shown is to be corrected
    assert shown(home, "v") == [(2**62,), (2**62,)]
    assert [run["late_rows"] for run in home.runs("s") if run["kind"] == "insert"] == [0] * 5
    home.sql("CREATE STREAM t (k STRING, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts ORDERED)")
    home.sql(f"CREATE VIEW w AS SELECT sum(n) AS n FROM {windows.replace('s,', 't,', 1)} GROUP BY window_start,"
             " window_end EMIT ON WINDOW CLOSE")  # fmt: skip
    for second in (5, 6, 30):
        home.insert("t", [("a", 2**62, at(second))])
    assert home.query("SELECT count(*) FROM t") == [(3,)]
    with pytest.raises(AnabranchError, match="overflow: the result is too large for its type"):
        home.table("w")
