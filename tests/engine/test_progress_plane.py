"""How far streams, keys and views have come, as the system tables and EXPLAIN ANALYZE tell it; and the law by key."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.engine import emit
from anabranch.testing import FakeClock, Harness, assert_same_rows, cuts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
engine = settings(settings.get_profile("engine"), max_examples=2)

NOON = datetime(2026, 1, 1, 12)
GROUP = "FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY window_start, window_end"


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_progress_of_streams_and_views(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    home.sql("CREATE STREAM r (k STRING, ts TIMESTAMP, WATERMARK FOR ts ORDERED)")
    home.sql(f"CREATE VIEW v AS SELECT window_start, window_end, count(*) AS c {GROUP} EMIT ON WINDOW CLOSE")
    home.sql("CREATE VIEW j AS SELECT s.k, s.ts FROM s JOIN r ON s.k = r.k EMIT CHANGES")
    home.sql("CREATE VIEW plain AS SELECT count(*) AS c FROM r")
    home.insert("s", [("a", after(3)), ("b", after(27))])
    home.insert("s", [("a", after(8))])  # late, for a window that was shown
    home.insert("r", [("a", after(16))])
    columns = "kind, stream, view, progress, high, disorder, rows, late_rows, ahead_rows"
    assert home.query(f"SELECT {columns} FROM sys.progress ORDER BY kind, stream, view") == [
        ("stream", "r", None, after(16), after(16), 0.0, 1, 0, 0),
        ("stream", "s", None, after(22), after(27), 5.0, 3, 1, 0),
        ("view", None, "j", after(16), after(27), 11.0, None, 0, None),
        ("view", None, "plain", after(16), after(16), 0.0, None, 0, None),
        ("view", None, "v", after(22), after(27), 5.0, None, 1, None),
    ]
    ((line,),) = home.query("EXPLAIN (ANALYZE, FORMAT JSON) v")
    nodes = {node["name"]: node["figures"] for node in json.loads(line)["nodes"]}
    assert nodes["s"]["bound"] == nodes["v"]["bound"] == "2026-01-01 12:00:22"
    assert nodes["v"]["bounds"] == {"window_start": "2026-01-01 12:00:20", "window_end": "2026-01-01 12:00:30"}
    told = [line for (line,) in home.query("EXPLAIN ANALYZE v")]
    assert "  has come to 2026-01-01 12:00:22" in told
    assert any("later rows have window_start from 2026-01-01 12:00:20 on, window_end from" in line for line in told)
    home.reopen()
    records = home.session._core.ledger.records(1, home.session._core.snapshot().version)
    kept = [record.bounds["v"] for record in records if "v" in record.bounds]
    assert len(kept) == 1, "a bound is kept with the run that moved it"
    assert home.query("SELECT progress FROM sys.progress WHERE view = 'v'") == [(after(22),)]
    home.advance("s")
    assert home.query("SELECT progress, ended FROM sys.progress WHERE view = 'v'") == [(None, True)]


def test_rows_ahead_of_the_clock_are_counted(tmp_path: Path, spark: SparkSession) -> None:
    with Harness(tmp_path / "home", spark, clock=FakeClock(NOON)) as live:
        live.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT, WATERMARK FOR timestamp ORDERED"
                 " AHEAD AT MOST INTERVAL 5 SECONDS) FROM rate(rows_per_second => 1, rows => 10)")  # fmt: skip
        assert len(live.table("r")) == 10
        ((bound, ahead),) = live.query("SELECT progress, ahead_rows FROM sys.progress WHERE kind = 'stream'")
        assert (bound, ahead) == (after(5), 4)


def test_a_run_that_closes_no_window_does_no_work_for_it(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts ORDERED PER KEY k)")
    home.sql(f"CREATE VIEW v AS SELECT window_start, count(*) AS c {GROUP} EMIT ON WINDOW CLOSE")
    home.sql(f"CREATE VIEW by_key AS SELECT window_start, k, count(*) AS c {GROUP}, k EMIT ON WINDOW CLOSE")
    computed: list[str] = []
    really = emit._by_duckdb

    def counting(core: Any, catalog: Any, view: Any, *others: Any) -> Any:
        computed.append(view.name)
        return really(core, catalog, view, *others)

    monkeypatch.setattr(emit, "_by_duckdb", counting)
    home.insert("s", [("a", after(1)), ("b", after(1))])
    computed.clear()
    for seconds in (3, 5, 9):
        home.insert("s", [("a", after(seconds)), ("b", after(seconds))])
    assert computed == []
    home.insert("s", [("a", after(10))])
    assert computed == ["by_key"]
    home.insert("s", [("b", after(12))])
    assert computed == ["by_key", "v", "by_key"]


@engine
@given(st.integers(0, 10**6))
def test_the_law_by_key(spark: SparkSession, seed: int) -> None:
    """A window of a key is shown when the key has come to its end, whatever is late is corrected, and at the end of the
    stream all windows are what a batch query gives."""
    chance = random.Random(seed)
    rows = [(chance.choice(["a", "b", None]), after(second + chance.randint(-8, 0))) for second in range(0, 60, 3)]
    rule = chance.choice(["ORDERED", "LAGGING 2 ROWS", "AS ts - INTERVAL 5 SECONDS", "AS ts - INTERVAL 1 SECOND * 3"])
    query = f"SELECT window_start, k, count(*) AS c, max(ts) AS last {GROUP}, k"
    with Harness(None, spark) as home:
        home.sql(f"CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts {rule} PER KEY k)")
        home.sql(f"CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE")
        home.sql(f"CREATE VIEW n AS {query} HAVING count(*) > 0 EMIT ON WINDOW CLOSE")
        seen: list[Any] = []
        for run in cuts(rows, chance):
            home.insert("s", run)
            seen += run
            if chance.random() < 0.5:
                continue
            bounds = dict(home.query("SELECT coalesce(partition, '-'), progress FROM sys.progress WHERE kind = 'key'"))
            ((least,),) = home.query("SELECT progress FROM sys.progress WHERE kind = 'stream'")
            closed = []
            for row in home.batch(query, s=seen):
                own = [each for each in (bounds.get(row[1] or "-"), least) if each is not None]
                if own and row[0] + timedelta(seconds=10) <= max(own):
                    closed.append(row)
            assert_same_rows(home.table("v"), closed, f"{rule} after {len(seen)} rows")
            assert_same_rows(home.table("n"), closed, f"{rule} after {len(seen)} rows, by Spark")
        home.advance("s")
        for view in ("v", "n"):
            assert_same_rows(home.emitted(view), home.batch(query, s=seen), rule)


def test_pairs_of_a_band_are_waited_for(home: Harness) -> None:
    for name in "sr":
        home.sql(f"CREATE STREAM {name} (k STRING, ts TIMESTAMP, WATERMARK FOR ts ORDERED)")
    home.sql(
        "CREATE VIEW pairs AS SELECT s.k, s.ts FROM s JOIN r ON s.k = r.k"
        " AND r.ts BETWEEN s.ts - INTERVAL 5 SECONDS AND s.ts + INTERVAL 5 SECONDS EMIT CHANGES"
    )
    home.sql(
        "CREATE VIEW v AS SELECT window_start, window_end, count(*) AS c FROM TUMBLE(pairs, ts, INTERVAL 10 SECONDS)"
        " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE"
    )
    home.insert("s", [("a", after(9)), ("b", after(25))])
    home.insert("r", [("a", after(7)), ("b", after(12))])
    assert home.table("v") == [], "a row of r at 12:00:14 can still meet the one of s at 12:00:09"
    home.insert("r", [("a", after(14)), ("b", after(16))])
    assert home.table("v") == [(after(0), after(10), 2)]
    assert home.query("SELECT * FROM sys.late_rows") == []


CLOSES = "EMIT ON WINDOW CLOSE LATE FAIL"
BAND = "FROM s JOIN r ON s.k = r.k AND r.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 3 SECONDS"
JOINED = "FROM s [RANGE 3 SECONDS, WA ts], r [RANGE 2 SECONDS, WA ts] WHERE s.k = r.k"


def test_windows_over_pairs_close_by_the_time_they_ask_for(home: Harness) -> None:
    """By one time when the other side has passed it by its window; by the later when both sides have passed that; and
    by both when each side has passed its own."""
    for name in "sr":
        home.sql(f"CREATE STREAM {name} (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 30 DAYS)")
    home.sql(f"CREATE VIEW pairs AS SELECT s.ts AS a, r.ts AS b, greatest(s.ts, r.ts) AS later {JOINED} EMIT CHANGES")
    home.sql(f"CREATE VIEW by_a AS SELECT count(*) [RANGE 1 SECOND, SLIDE 1 SECOND, WA s.ts] AS c {JOINED} {CLOSES}")
    for time in ("b", "later"):
        home.sql(f"CREATE VIEW by_{time} AS SELECT window_end, count(*) AS c FROM TUMBLE(pairs, {time}, '1 second')"
                 f" GROUP BY window_end {CLOSES}")  # fmt: skip
    home.sql(f"CREATE VIEW both AS SELECT a, b, count(*) AS c FROM pairs GROUP BY a, b {CLOSES}")
    groups = "GROUP BY s.ts, r.ts"
    home.sql(f"CREATE VIEW direct AS SELECT s.ts AS a, r.ts AS b, count(*) AS c {JOINED} {groups} {CLOSES}")
    home.sql(
        f"CREATE VIEW listed AS SELECT r.ts AS b, collect_list(s.k) AS k {BAND} {groups}, s.k EMIT ON WINDOW CLOSE"
    )
    script: list[tuple[str, Any]] = [
        ("s", [5]), ("r", [4, 9]), ("s", 6), ("s", [7]), ("r", 8), ("r", [8]), ("s", [11]), ("s", 12), ("r", [14, 9]),
        ("r", 15), ("s", [12]), ("s", 20), ("s", None), ("r", None),
    ]  # fmt: skip
    rows: dict[str, list[int]] = {"s": [], "r": []}
    found = []
    bounds = {"s": 0, "r": 0}
    early = 0
    for stream, what in script:
        if isinstance(what, list):
            home.insert(stream, [("x", after(second)) for second in what])
            rows[stream] += what
            continue
        home.advance(stream, None if what is None else after(what))
        bounds[stream] = 99 if what is None else what
        told = dict(home.query("SELECT view, progress FROM sys.progress WHERE kind = 'view' AND NOT ended"))
        if (stream, what) in (("s", 6), ("s", None)):
            continue
        seconds = {view: int((bound - NOON).total_seconds()) for view, bound in told.items()}
        pairs = Counter((a, b) for a in rows["s"] for b in rows["r"] if a - 2 <= b <= a + 3)
        for view, columns in {
            "by_a": "window_end",
            "by_b": "window_end",
            "by_later": "window_end",
            "both": "a, b",
        }.items():
            closed: Counter[tuple[datetime, ...]] = Counter()
            for (a, b), count in pairs.items():
                time = {"by_a": a, "by_b": b}.get(view, max(a, b))
                boxed = view == "both" and a < bounds["s"] and b < bounds["r"]
                early += boxed and time >= seconds.get(view, 99)
                if time < seconds.get(view, 99) or boxed:
                    closed[(after(a), after(b)) if view == "both" else (after(time + 1),)] += count
            shown = {row[:-1]: row[-1] for row in home.query(f"SELECT {columns}, c FROM {view}")}
            assert shown == closed, f"{view} after {stream} {what}"
        both = home.table("both")
        assert home.table("direct") == both, f"the groups of a join itself, after {stream} {what}"
        assert home.table("listed") == sorted((b, ["x"] * c) for _, b, c in both)
        found.append([seconds.get(view) for view in ("by_a", "by_b", "by_later", "both")])
    assert early, "no pair was closed before both sides had passed its later time"
    assert found == [[5, 4, 6, 6], [5, 8, 8, 8], [12, 10, 12, 12], [12, 15, 15, 15], [None] * 4]
    assert home.query("SELECT * FROM sys.late_rows") == []


WINDOW_JOINS = {
    "band": "SELECT s.k, s.ts AS a, r.ts AS b FROM s [RANGE 3 SECONDS OPEN, WA ts]"
    " LEFT JOIN r [RANGE 2 SECONDS, WA ts] ON s.k = r.k",
    "tumbling": "SELECT s.k, s.ts AS a, r.ts AS b FROM s, r [RANGE TUMBLING 5 SECONDS, WA ts] WHERE s.k = r.k",
    "by_function": "SELECT s.k, s.ts AS a, r.ts AS b FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 5 SECONDS) s"
    " JOIN TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL 5 SECONDS) r ON s.window_start = r.window_start AND s.k = r.k",
    "unions": "SELECT u.k, u.ts AS a, r.ts AS b FROM s UNION r AS u [RANGE 1 SECOND, WA ts], r [RANGE 4 SECONDS, WA ts]"
    " WHERE u.k = r.k",
}


@pytest.mark.slow
@settings(engine, max_examples=1)
@given(st.integers(0, 10**6))
def test_the_law_of_joined_windows(spark: SparkSession, seed: int) -> None:
    """Whatever the order in which two streams come, joined windows give what a batch query gives; and a window over
    them that is shown is never corrected where both streams keep to their watermarks."""
    chance = random.Random(seed)
    rows = {name: [(chance.choice("ab"), after(n + chance.randint(0, 4))) for n in range(0, 24, 2)] for name in "sr"}
    over = "SELECT k, window_end, count(*) AS c FROM TUMBLE(TABLE {0}, DESCRIPTOR({1}), INTERVAL 3 SECONDS)"
    over += " GROUP BY k, window_end"
    times = {name: chance.choice("ab") for name in WINDOW_JOINS}
    with Harness(None, spark) as home:
        for name in "sr":
            home.sql(f"CREATE STREAM {name} (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
        for name, query in WINDOW_JOINS.items():
            home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
            home.sql(f"CREATE VIEW over_{name} AS {over.format(name, times[name])} {CLOSES}")
            home.sql(f"CREATE VIEW both_{name} AS SELECT a, b, count(*) AS c FROM {name} GROUP BY a, b {CLOSES}")
        runs = {name: list(cuts(rows[name], chance))[:4] for name in "sr"}
        order = [name for name in "sr" for _ in runs[name]]
        chance.shuffle(order)
        for name in order:
            home.insert(name, runs[name].pop(0))
        for name in "sr":
            home.advance(name)
        kept = {name: home.query(f"SELECT * FROM {name}") for name in "sr"}
        for name, query in WINDOW_JOINS.items():
            assert_same_rows(home.table(name), home.batch(query, **kept), query)
            closed = over.format(f"({query})", times[name])
            assert_same_rows(home.table(f"over_{name}"), home.batch(closed, **kept), closed)
            closed = f"SELECT a, b, count(*) AS c FROM ({query}) GROUP BY a, b"
            assert_same_rows(home.table(f"both_{name}"), home.batch(closed, **kept), closed)
