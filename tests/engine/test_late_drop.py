"""Rows that come too late and stay out for ever: the answer is that of a batch query over the others.

Which rows are late is said here by plain functions over what came before; nothing of the engine has a part in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pytest

from anabranch.engine.maintain.sessions import late_sql
from anabranch.plan.view import Ends
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
STREAM = "CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS)"
DELAY, GAP, SIZE = 3, 7, 10
Given = tuple[str | None, int, datetime]
Late = Callable[[list[Given], list[Given], int | None], list[Given]]


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def second(row: Given) -> int:
    return round((row[2] - START).total_seconds())


# ---- which rows are late


def chains(seconds: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for each in sorted(seconds):
        if found and each - found[-1][-1] <= GAP:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def late_for_sessions(apart: Callable[[Given], Any]) -> Late:
    """Rows within the gap of a session that had closed; and of the others, those whose own session had closed."""

    def late(there: list[Given], new: list[Given], bound: int | None) -> list[Given]:
        found: list[Given] = []
        for key in {apart(row) for row in new} if bound is not None else ():
            own = chains([second(row) for row in there if apart(row) == key])
            shut = {each for chain in own if chain[-1] + GAP < bound for each in chain}
            came = {second(row) for row in new if apart(row) == key and second(row) < bound}
            near = {each for each in came if any(abs(each - other) <= GAP for other in shut)}
            rest = chains([*(came - near), *(each for chain in own for each in chain if each not in shut)])
            gone = near | {each for chain in rest if chain[-1] + GAP < bound for each in chain}
            found += [row for row in new if apart(row) == key and second(row) in gone & came]
        return found

    return late


def below(every: int) -> Late:
    """Rows before the end of the last window of a size that had closed."""

    def late(there: list[Given], new: list[Given], bound: int | None) -> list[Given]:
        return [row for row in new if bound is not None and second(row) < bound // every * every]

    return late


SESSIONS = (
    "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS x"
    f" FROM SESSION({{}} PARTITION BY k, ts, INTERVAL {GAP} SECONDS) GROUP BY window_start, window_end, k"
)
#: Each with what is late for it, and whether a filter leaves only some rows to it.
VIEWS: dict[str, tuple[str, Late]] = {
    "sessions": (SESSIONS.format("s"), late_for_sessions(lambda row: row[0])),
    "together": (
        f"SELECT count(*) AS n, window_end FROM SESSION(s, ts, INTERVAL {GAP} SECONDS) GROUP BY window_end",
        late_for_sessions(lambda row: 0),
    ),
    "some": (
        "SELECT session_window.end AS e, k, count(*) AS n, max(v) AS x FROM (SELECT * FROM s WHERE v > 2)"
        f" GROUP BY session_window(ts, '{GAP} seconds'), k",
        late_for_sessions(lambda row: row[0]),
    ),
    "ends": (
        f"SELECT count(*) AS n, sum(v) AS x, window_end FROM SLIDE_BY_ROW(s, ts, INTERVAL {SIZE} SECONDS, 1 ROW)"
        " GROUP BY window_start, window_end",
        below(1),
    ),
    "since": (
        f"SELECT sum(v) AS x, window_end FROM LANDMARK(s, ts, INTERVAL {SIZE} SECONDS) GROUP BY window_end",
        below(SIZE),
    ),
    "filled": (
        f"SELECT count(k) AS n, window_end FROM TUMBLE(s, ts, INTERVAL {SIZE} SECONDS, FILLED => true)"
        " GROUP BY window_start, window_end",
        below(SIZE),
    ),
}
#: Views that an archive is made of as well, and the place of their sum.
ARCHIVED = {"sessions": 4, "since": 0}
HAS: dict[str, Callable[[Given], bool]] = {"some": lambda row: row[1] > 2}


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=str)


def closed(rows: list[tuple[Any, ...]], name: str, bound: int | None) -> list[tuple[Any, ...]]:
    """The rows of an answer whose windows have closed; those that hold their end, when progress is past it."""
    if bound is None:
        return []
    holds = name not in ("since", "filled")
    times = [max(each for each in row if isinstance(each, datetime)) for row in rows]
    return [row for row, end in zip(rows, times, strict=True) if (end < at(bound) if holds else end <= at(bound))]


def late_runs(chance: random.Random, runs: int) -> list[list[Given]]:
    """Rows that go on in time, and among them some that are far behind."""
    found = []
    for run in range(runs):
        behind = (chance.choice([0, 0, 4, 8, 25]) for _ in range(7))
        seconds = (8 + 14 * run + chance.randrange(14) - each for each in behind)
        found.append([(chance.choice(["a", "b", None]), chance.randint(1, 9), at(each)) for each in seconds])
    return found


def test_which_rows_are_late_for_sessions() -> None:
    """Of any rows that were there and any new ones, those are late that the plain function says."""
    chance, late, tried = random.Random(9), late_for_sessions(lambda row: row[0]), 0
    ends = Ends("@s:s", "ts", GAP + 1, gap=GAP, apart=("k",))
    for _ in range(150):
        bound = chance.randint(20, 60)
        there, new = ([(chance.choice(["a", None]), 1, at(chance.randrange(60))) for _ in range(chance.randint(1, 6))]
                      for _ in range(2))  # fmt: skip
        wanted = late(there, new, bound)
        relations = [
            "(SELECT unnest([{}]) AS a0, 1 AS one, unnest({}) AS t, {} AS p)".format(
                ", ".join("NULL" if row[0] is None else f"'{row[0]}'" for row in rows) or "NULL",
                [second(row) for row in rows],
                bound,
            )
            for rows in ([row for row in each if second(row) < bound] for each in (new, there))
        ]
        found = duckdb.sql(f"SELECT DISTINCT a0, t FROM ({late_sql(ends, *relations)}) WHERE t IS NOT NULL").fetchall()
        assert in_order(found) == in_order(list({(row[0], second(row)) for row in wanted}))
        tried += 0 < len(wanted) < len(new)
    assert tried > 30


@pytest.mark.parametrize(
    "names",
    [
        ("sessions", "some"),
        pytest.param(("since", "together", "ends", "filled"), marks=pytest.mark.slow),
    ],
)
def test_late_rows_stay_out_for_ever(home: Harness, names: tuple[str, ...]) -> None:
    """Whatever is done with the home between runs: dropped rows are as if they had never come. An archive emits the
    same, and is read with all rows; views above follow what is emitted."""
    home.sql(STREAM)
    for name in names:
        query = VIEWS[name][0]
        home.sql(f"CREATE VIEW {name}_d AS {query} EMIT ON WINDOW CLOSE LATE DROP")
        if name in ARCHIVED:
            home.sql(
                f"CREATE VIEW {name}_a AS {query} EMIT ON WINDOW CLOSE LATE ARCHIVE;"
                f"CREATE VIEW {name}_above AS SELECT sum(x) AS x, count(*) AS c FROM {name}_d EMIT CHANGES"
            )
    chance = random.Random(3)
    everything: list[Given] = []
    dropped: dict[str, list[Given]] = {name: [] for name in names}
    for number, run in enumerate(late_runs(chance, 3)):
        bound = max(map(second, everything)) - DELAY if everything else None
        for name in names:
            has = HAS.get(name, lambda row: True)
            there = [row for row in everything if has(row)]
            for row in dropped[name]:
                there.remove(row)
            dropped[name] += VIEWS[name][1](there, [row for row in run if has(row)], bound)
        home.insert("s", run)
        everything += run
        if number == 1:
            home.sql("CREATE VIEW other AS SELECT k, count(*) AS n FROM s GROUP BY k EMIT CHANGES")
            home.sql("ALTER VIEW other AS SELECT k, count(*) + 1 AS n FROM s GROUP BY k EMIT CHANGES")
            home.compact()
            home.reopen()
    check(home, names[:1], everything, dropped, max(map(second, everything)) - DELAY)
    home.advance("s")
    check(home, names, everything, dropped, 10_000)
    assert all(dropped.values())


def check(
    home: Harness, names: tuple[str, ...], rows: list[Given], dropped: dict[str, list[Given]], bound: int
) -> None:
    counts = dict(home.query("SELECT view, CAST(sum(rows) AS INT) FROM sys.late_rows GROUP BY view"))
    for name in names:
        query, kept = VIEWS[name][0], list(rows)
        for row in dropped[name]:
            kept.remove(row)
        wanted = in_order(closed(home.batch(query, s=kept), name, bound))
        assert in_order(home.query(f"SELECT * FROM {name}_d")) == wanted, name
        assert counts.get(f"{name}_d", 0) == len(dropped[name]), name
        if name in ARCHIVED:
            x = home.query(f"SELECT x FROM {name}_above")[0][0]
            assert x == sum(row[ARCHIVED[name]] for row in wanted), name
            assert in_order(home.emitted(f"{name}_a")) == wanted, name
            everything = in_order(closed(home.batch(query, s=rows), name, bound))
            assert in_order(home.query(f"SELECT * FROM {name}_a")) == everything, name


def test_what_is_left_out_goes_with_its_view(home: Harness) -> None:
    """Progress by key, rows that come and go, a query that is altered, a view that is dropped."""
    sessions = SESSIONS.replace(", sum(v) AS x", "")
    home.sql("CREATE STREAM p (k STRING, v INT, ts TIMESTAMP, n INT, WATERMARK FOR ts ORDERED PER KEY k)")
    home.sql("CREATE VIEW net AS SELECT k, v, ts FROM NET(p, n)")
    for name, of in (("plain", "p"), ("netted", "net")):
        home.sql(f"CREATE VIEW {name} AS {sessions.format(of)} EMIT ON WINDOW CLOSE LATE DROP")
    home.insert("p", [("a", 1, at(0), 1), ("b", 2, at(0), 1), ("a", 4, at(20), 1)])
    home.insert("p", [("a", 8, at(5), 1), ("b", 16, at(6), 1)])  # a's is late by its own progress, b's is not
    assert home.table("plain") == [(at(0), at(7), "a", 1)]
    home.insert("p", [("b", 3, at(40), 1), ("b", 2, at(0), -1), ("a", 4, at(40), 1)])  # b is no further than at 6
    home.insert("p", [("b", 16, at(6), -1)])  # taken back of a session that has closed
    shown = [(at(0), at(7), "a", 1), (at(20), at(27), "a", 1)]
    assert in_order(home.table("netted")) == in_order([(at(6), at(13), "b", 1), (at(0), at(12), "a", 2), shown[1]])
    assert in_order(home.table("plain")) == in_order([(at(0), at(13), "b", 3), *shown])
    tables = "SELECT id FROM sys.tables WHERE id LIKE '%.left_out0'"
    assert home.query(f"{tables} ORDER BY id") == [("netted.left_out0",), ("plain.left_out0",)]
    home.sql(f"ALTER VIEW plain AS {sessions.format('p')} HAVING count(*) > 0 EMIT ON WINDOW CLOSE LATE DROP")
    assert in_order(home.table("plain"))[0] == (at(0), at(12), "a", 2)
    home.sql("DROP VIEW netted")
    assert home.query(tables) == []


def test_archives_that_nothing_comes_late_for_or_that_do_not_wait_themselves(home: Harness) -> None:
    home.sql(STREAM)
    home.sql("CREATE VIEW chunks AS SELECT sum(v) AS x, window_end FROM CHUNKS(s, k) GROUP BY window_start, window_end"
             " EMIT ON WINDOW CLOSE LATE ARCHIVE; CREATE VIEW total AS SELECT sum(n) AS n FROM"
             f" ({SESSIONS.format('s')}) EMIT ON WINDOW CLOSE LATE ARCHIVE")  # fmt: skip
    home.insert("s", [("a", 1, at(0)), ("a", 2, at(3)), ("b", 4, at(30))])
    home.insert("s", [("a", 8, at(5)), ("b", 16, at(60))])
    assert home.table("chunks") == [(3, 2), (4, 3), (8, 4)]
    assert home.emitted("total") == [(3,)] and home.table("total") == [(4,)]
