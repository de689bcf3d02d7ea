"""Inner joins of streams: each pair once, whatever comes first; rows in memory only for as long as they can be met."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.plan.view import View
from anabranch.testing import Harness
from engine.engines_help import ENGINES, compute_with
from seeds import SEED

pytestmark = pytest.mark.spark

#: In buckets and by Spark's own engine in the soak: test_buckets.py and tests/law have joins by them each time.
SOAKED = ["duckdb", *(pytest.param(engine, marks=pytest.mark.slow) for engine in ENGINES[1:])]

START = datetime(2026, 1, 1)
DELAY = "WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS"
STREAMS = f"CREATE STREAM a (k INT, ts TIMESTAMP, {DELAY}); CREATE STREAM b (k INT, ts TIMESTAMP, {DELAY})"
JOINS = {
    "band": """SELECT a.k, a.ts AS at, b.ts AS bt FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts + INTERVAL 30 SECONDS""",
    "itself": """SELECT x.k, x.ts AS at, y.ts AS bt FROM a AS x, a AS y WHERE x.k = y.k
        AND y.ts > x.ts AND y.ts <= x.ts + INTERVAL 15 SECONDS""",
    "three": """SELECT a.k, a.ts AS at, b.ts AS bt, c.ts AS ct FROM a
        JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 30 SECONDS
        JOIN a AS c ON c.k = b.k AND c.ts BETWEEN b.ts AND b.ts + INTERVAL 10 SECONDS""",
    "near": """SELECT a.k, a.ts AS at, b.ts AS bt, b.k AS bk FROM a
        JOIN b ON b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 3 SECONDS""",
    "windows": """SELECT a.k, a.window_start, b.ts FROM TUMBLE(a, ts, INTERVAL 10 SECONDS) AS a
        JOIN TUMBLE(b, ts, INTERVAL 10 SECONDS) AS b ON a.k = b.k AND a.window_start = b.window_start""",
    "retracting": """SELECT x.k, x.n, b.ts FROM (SELECT k, count(*) AS n FROM a GROUP BY k) AS x
        JOIN b ON x.k = b.k WHERE x.n > 3""",
    "of_views": """SELECT x.k, x.ts AS at, y.ts AS bt, y.n FROM (SELECT DISTINCT k, ts FROM a) AS x
        JOIN (SELECT k, ts, count(*) AS n FROM b GROUP BY k, ts) AS y ON x.k = y.k
        AND y.ts BETWEEN x.ts - INTERVAL 20 SECONDS AND x.ts + INTERVAL 30 SECONDS""",
    "unbounded": "SELECT a.k, b.ts AS bt FROM a JOIN b ON a.k = b.k",
    "filtered": """WITH some AS (SELECT k + 1 AS j, ts AS at FROM a WHERE k >= 0), fewer AS (SELECT * FROM some)
        SELECT x.j, x.at, y.ts AS bt FROM fewer AS x JOIN (SELECT * FROM b WHERE k > 0) AS y ON x.j = y.k + 1
        AND y.ts BETWEEN x.at - INTERVAL 20 SECONDS AND x.at + INTERVAL 30 SECONDS""",
    "grouped": """SELECT a.k, count(*) AS n, count(DISTINCT b.ts) AS d, max(b.ts) AS last FROM a
        JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts + INTERVAL 30 SECONDS
        GROUP BY a.k HAVING count(*) > 1""",
    "distinct_pairs": """SELECT DISTINCT x.k, b.k AS bk FROM (SELECT * FROM a WHERE k >= 0) AS x
        JOIN b ON b.ts BETWEEN x.ts - INTERVAL 20 SECONDS AND x.ts + INTERVAL 30 SECONDS""",
    "all_of_them": """SELECT count(*) AS n, count(a.k) FILTER (WHERE b.k = 1) AS m FROM a, b WHERE a.k = b.k
        AND b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts + INTERVAL 30 SECONDS""",
}
#: Nodes that join within 50 seconds.
BANDS = ("band", "of_views", "filtered", "grouped", "distinct_pairs", "all_of_them")
BAND = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts + INTERVAL 30 SECONDS"
BESIDE = "b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 3 SECONDS"
OUTER = {
    "lefts": f"SELECT a.k, a.ts AS at, b.ts AS bt FROM a LEFT JOIN b ON {BAND}",
    "rights": f"SELECT a.k, a.ts AS at, b.k AS bk, b.ts AS bt FROM a RIGHT JOIN b ON {BAND} AND a.k > 0",
    "fulls": f"SELECT a.k, a.ts AS at, b.k AS bk, b.ts AS bt FROM a FULL JOIN b ON {BAND}",
    "semis": f"SELECT a.k, a.ts AS at FROM a LEFT SEMI JOIN b ON {BAND}",
    "antis": f"SELECT a.k, a.ts AS at FROM a LEFT ANTI JOIN b ON {BAND}",
    "somewhere": f"SELECT k, ts AS at FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {BAND})",
    "nowhere": f"SELECT k, ts AS at FROM a WHERE k > 0 AND NOT EXISTS (SELECT 1 FROM b WHERE {BAND})",
    "beside": f"SELECT a.k, a.ts AS at, b.k AS bk, b.ts AS bt FROM a FULL JOIN b ON {BESIDE}",
    "alone": f"SELECT a.k, a.ts AS at FROM a ANTI JOIN b ON {BESIDE}",
    "itself_left": """SELECT x.k, x.ts AS at, y.ts AS bt FROM a AS x LEFT JOIN a AS y ON x.k = y.k
        AND y.ts > x.ts AND y.ts <= x.ts + INTERVAL 15 SECONDS""",
    "three_full": f"""SELECT a.k, a.ts AS at, b.ts AS bt, c.ts AS ct FROM a FULL JOIN b ON {BAND}
        LEFT JOIN a AS c ON c.k = b.k AND c.ts BETWEEN b.ts AND b.ts + INTERVAL 10 SECONDS""",
    "filtered_full": f"""WITH some AS (SELECT k, ts FROM b WHERE k > 0)
        SELECT a.k, a.ts AS at, b.k AS bk, b.ts AS bt FROM (SELECT * FROM a WHERE k < 2) AS a
        FULL JOIN some AS b ON {BAND}""",
    "named": f"SELECT a.k, a.ts AS at, b.ts AS bt, name FROM a LEFT JOIN b ON {BAND} LEFT JOIN t ON t.k = a.k",
}


def _rows(pick: random.Random, run: int) -> list[tuple[Any, ...]]:
    late = (200 if pick.random() < 0.1 else 0 for _ in range(6))
    seconds = (20 * run + pick.randrange(20) - each for each in late)
    return [(pick.choice([0, 1, 1, 1, None]), START + timedelta(seconds=each)) for each in seconds]


@pytest.mark.parametrize("engine", SOAKED)
def test_each_pair_comes_once_and_no_row_is_held_longer_than_needed(
    engine: str, home: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_with(engine, monkeypatch)
    # In the soak, all of them by Spark.
    by_spark = ("band", "three", "windows", "retracting", "grouped", "distinct_pairs")
    joins = {name: query for name, query in JOINS.items() if engine != "spark" or SEED is not None or name in by_spark}
    home.sql(STREAMS)
    for name, query in joins.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
    pick = random.Random(7)
    rows: dict[str, list[tuple[Any, ...]]] = {"a": [], "b": []}
    core = home.session._core
    found = [view for view in core.catalog().of(View) if view.operator == "join"]
    bands = [view for view in found if (view.owner or view.id) in BANDS]
    assert len(bands) == len([name for name in BANDS if name in joins])
    runs = 9 if engine == "duckdb" else 3
    for run in range(runs):
        for stream in pick.sample(["a", "b"], 2):
            new = _rows(pick, run)
            rows[stream] += new
            home.insert(stream, new)
            # In memory: what the progress of the other side leaves, 40 seconds' worth of each, and one run.
            assert all(core.table_cache.rows_of(band.id) <= 2 * (6 * 40 // 20 + 6) + 6 for band in bands)
        if run == runs // 2:
            home.compact()
            home.reopen()
            core = home.session._core
    for name, query in joins.items():
        expected = home.batch(query.replace("TUMBLE(a, ts, INTERVAL 10 SECONDS)", _tumbled("a")).replace(
            "TUMBLE(b, ts, INTERVAL 10 SECONDS)", _tumbled("b")), **rows)  # fmt: skip
        assert home.emitted(name) == expected, name
        assert home.table(name) == expected, name


#: How far behind progress the rows may be that these hold: twice the way that partners can be apart, there and back.
REACH = {"lefts": 50, "rights": 50, "fulls": 50, "semis": 50, "antis": 50, "somewhere": 50, "nowhere": 50, "beside": 8,
         "alone": 8, "itself_left": 15, "three_full": 100, "filtered_full": 50, "named": 50}  # fmt: skip


@pytest.mark.parametrize("engine", SOAKED)
def test_outer_joins_are_the_same_and_look_at_rows_nearby_only(
    engine: str, home: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_with(engine, monkeypatch)
    home.sql(f"{STREAMS}; CREATE TABLE t (k INT, name STRING); INSERT INTO t VALUES (0, 'none'), (1, 'one')")
    by_spark = ("beside", "itself_left", "three_full", "filtered_full", "named")
    joins = {name: query for name, query in OUTER.items() if engine == "duckdb" or name in by_spark}
    for name, query in joins.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
    pick = random.Random(11)
    rows: dict[str, list[tuple[Any, ...]]] = {"a": [], "b": []}
    core = home.session._core
    views = {name: core.catalog().find(name) for name in joins}
    runs = 12 if engine == "duckdb" else 2
    for run in range(runs):
        for stream in pick.sample(["a", "b"], 2):
            new = _rows(pick, run)
            come = {name: max((row[1] for row in each), default=START) for name, each in rows.items()}
            rows[stream] += new
            home.insert(stream, new)
            for name, view in views.items():
                read = ["a"] if name == "itself_left" else ["a", "b"]
                since = min(come[each] for each in read) - timedelta(seconds=10 + REACH[name])
                inside = sum(row[1] >= since for each in read for row in rows[each])
                if stream in read and view is not None:
                    assert core.table_cache.rows_of(view.id) <= inside + len(new), name
        if run == runs // 2:
            home.compact()
            home.reopen()
            core = home.session._core
            home.sql("INSERT INTO t VALUES (0, 'zero'); REFRESH TABLE t")
    table = [(0, "none"), (1, "one"), (0, "zero")]
    for name, query in joins.items():
        expected = home.batch(query, **rows, t=table)
        assert home.emitted(name) == expected, name
        assert home.table(name) == expected, name
    if engine == "duckdb" and core.place.driver:
        held = sum(core.table_cache.rows_of(view.id) for view in views.values() if view is not None)
        assert 0 < held < len(views) * sum(map(len, rows.values())) / 2


def _tumbled(stream: str) -> str:
    return f"(SELECT *, window(ts, '10 seconds').start AS window_start FROM {stream})"


def test_a_join_that_drops_late_rows_finds_only_what_is_in_time(home: Harness) -> None:
    home.sql(STREAMS)
    home.sql(f"CREATE VIEW all_pairs AS {JOINS['band']} EMIT CHANGES")
    home.sql(f"CREATE VIEW in_time AS {JOINS['band']} EMIT CHANGES LATE DROP")
    first, last = (START + timedelta(seconds=each) for each in (0, 500))
    home.insert("a", [(1, first)])
    home.insert("b", [(1, last)])
    home.insert("b", [(1, first)])
    home.insert("a", [(1, last)])
    assert len(home.table("all_pairs")) == 2
    assert [row[1] for row in home.table("in_time")] == [last]
    late = home.query("SELECT view, rows, policy, CAST(window_end AS STRING) FROM sys.late_rows")
    assert late == [("in_time", 1, "drop", "2026-01-01 00:08:10")]  # the row behind 500 - 10 seconds


#: Of which rows a join of both streams, or of a with itself, has no more need: by how far each has come.
DONE = {
    "a": {"a": 50, "b": 30},
    "b": {"b": 50, "a": 20},
}


@pytest.mark.parametrize("engine", SOAKED)
def test_outer_joins_that_drop_late_rows_are_those_of_the_others(
    engine: str, home: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is below what a join still needs of its own input neither comes out nor finds partners, for ever."""
    compute_with(engine, monkeypatch)
    names = ["lefts", "filtered_full"]
    names += ["rights", "fulls", "semis", "antis", "nowhere", "itself_left"] if engine == "duckdb" else []
    home.sql(STREAMS)
    for name in names:
        home.sql(f"CREATE VIEW {name} AS {OUTER[name]} EMIT CHANGES LATE DROP")
    pick = random.Random(5)
    rows: dict[str, list[tuple[Any, ...]]] = {"a": [], "b": []}
    kept = {name: {"a": list[Any](), "b": list[Any]()} for name in names}
    late = dict.fromkeys(names, 0)
    runs = 6 if engine == "duckdb" else 3
    for run in range(runs):
        for stream in pick.sample(["a", "b"], 2):
            new = [(k, ts - timedelta(seconds=pick.choice([0, 0, 0, 45]))) for k, ts in _rows(pick, run)]
            come = {each: max((row[1] for row in rows[each]), default=None) for each in rows}
            for name in names:
                behind = DONE[stream] if name != "itself_left" else {"a": 15}
                known = [come[each] for each in behind]
                done = None if None in known else min(
                    come[each] - timedelta(seconds=10 + seconds) for each, seconds in behind.items())  # fmt: skip
                for row in new:
                    if name == "itself_left" and stream == "b":
                        continue
                    if done is None or row[1] >= done:
                        kept[name][stream].append(row)
                    elif name != "filtered_full" or (row[0] is not None and (row[0] < 2 if stream == "a" else row[0])):
                        late[name] += 1
            rows[stream] += new
            home.insert(stream, new)
        if run == runs // 2:
            home.compact()
            home.reopen()
    for name in names:
        expected = home.batch(OUTER[name], **kept[name])
        assert home.emitted(name) == expected, name
        assert home.table(name) == expected, name
    counted = dict(home.query("SELECT view, CAST(sum(rows) AS INT) FROM sys.late_rows GROUP BY view"))
    assert counted == late and all(late.values())


#: What is said of joins that look at all rows, in the words of their own names.
UNBOUNDED = {
    "SELECT x.k FROM a AS x JOIN b AS y ON x.k = y.k": "row of x can be joined with any row of y, however old, so each"
    " run reads all of them; a condition on their times bounds that: y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x",
    "SELECT x.k FROM (SELECT * FROM a WHERE k > 0) AS x JOIN b AS y ON x.k = y.k": "y.ts BETWEEN x.ts - INTERVAL 1",
    "SELECT a.k FROM a JOIN n ON a.k = n.k": "n has no event time that could bound that: declare one first, WATERMARK",
    f"SELECT a.k FROM a JOIN b ON {BAND} JOIN b AS c ON c.k = a.k": "a row of a can be joined with any row of c",
    "SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts >= a.ts": "a row of b can be joined with any row of a, however old",
    "SELECT a.k FROM a JOIN (SELECT k, max(ts) AS ts FROM b GROUP BY k) AS y ON a.k = y.k": "all rows of y are looked",
    "SELECT a.k FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k": "TOLERANCE INTERVAL 1 HOUR bounds",
    "SELECT a.k, t.name FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN t ON t.k = a.k": "can be joined with any row of b",
    f"SELECT a.k, count(b.k) AS n FROM a LEFT JOIN b ON {BAND} GROUP BY a.k": "computed anew from all rows of a and b",
}
BOUNDED = [
    f"SELECT a.k, avg(b.k) AS n FROM a JOIN b ON {BAND} GROUP BY a.k",
    f"SELECT a.k, median(b.k) AS n FROM a JOIN b ON {BAND} GROUP BY a.k",
    f"SELECT a.k, t.name FROM a LEFT JOIN b ON {BAND} LEFT JOIN t ON t.k = a.k",
    f"SELECT a.k, sum(b.k) AS n FROM a JOIN b ON {BAND} GROUP BY a.k",
    f"SELECT a.k FROM (SELECT * FROM a WHERE k > 0) AS a JOIN (SELECT k, ts FROM b) AS b ON {BAND}",
    "SELECT a.k, b.ts FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k TOLERANCE INTERVAL 5 SECONDS",
    "SELECT a.k, b.ts FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k TOLERANCE INTERVAL 5 SECONDS",
    "SELECT count(*) AS n FROM TUMBLE(a, ts, INTERVAL 10 SECONDS) AS a JOIN TUMBLE(b, ts, INTERVAL 10 SECONDS) AS b"
    " ON a.k = b.k AND a.window_end = b.window_end GROUP BY a.window_end",
]


def test_what_is_said_of_bounds(home: Harness) -> None:
    home.sql(f"{STREAMS}; CREATE STREAM n (k INT); CREATE TABLE t (k INT, name STRING)")
    told = home.session.sql(f"CREATE VIEW u AS {JOINS['unbounded']} EMIT CHANGES").message or ""
    assert "UNBOUNDED: a row of a can be joined with any row of b" in told
    assert "b.ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts + INTERVAL 1 HOUR" in told
    # A view that is computed when read says the same of what it would be if its changes were kept.
    assert "UNBOUNDED" in (home.session.sql(f"CREATE VIEW read_u AS {JOINS['unbounded']}").message or "")
    assert home.session.sql(f"CREATE VIEW read_b AS {JOINS['band']}").message == "view read_b created"
    plan = "\n".join(str(row[0]) for row in home.query(f"EXPLAIN {JOINS['band']} EMIT CHANGES"))
    assert "rows of a are in memory if they are 30 seconds behind the progress of b" in plan
    asked = home.session.sql(f"CREATE VIEW e AS {OUTER['somewhere']} EMIT CHANGES").message
    assert asked == "view e created"  # the band inside EXISTS bounds it as that of a join does
    for query, words in UNBOUNDED.items():
        (plan,) = {str(row[0]).strip() for row in home.query(f"EXPLAIN {query} EMIT CHANGES") if "UNBOUNDED:" in row[0]}
        assert words in plan
    for query in BOUNDED:
        assert "UNBOUNDED:" not in str(home.query(f"EXPLAIN {query} EMIT CHANGES")), query
    with pytest.raises(AnabranchError, match="LATE DROP needs windows"):
        home.sql(f"CREATE VIEW w AS {JOINS['unbounded']} EMIT CHANGES LATE DROP")
