"""Rows that come too late and stay out for ever: the answer is that of a batch query over the others.

Which rows are late is said here by plain functions over what came before; nothing of the engine has a part in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

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
    "some": (SESSIONS.format("(SELECT * FROM s WHERE v > 3)"), late_for_sessions(lambda row: row[0])),
    "together": (
        f"SELECT count(*) AS n, window_end FROM SESSION(s, ts, INTERVAL {GAP} SECONDS) GROUP BY window_end",
        late_for_sessions(lambda row: 0),
    ),
    "sparks": (
        "SELECT session_window.end AS e, k, count(*) AS n, max(v) AS x FROM s"
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
HAS = {"some": lambda row: row[1] > 3}


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


@pytest.mark.parametrize("names", [("sessions", "some", "sparks"), ("together", "ends", "since", "filled")])
def test_late_rows_stay_out_for_ever(home: Harness, names: tuple[str, ...]) -> None:
    """Whatever is done with the home between runs: dropped rows are as if they had never come. An archive emits the
    same, and is read with all rows; views above follow what is emitted."""
    home.sql(STREAM)
    for name in names:
        query = VIEWS[name][0]
        home.sql(
            f"CREATE VIEW {name}_d AS {query} EMIT ON WINDOW CLOSE LATE DROP;"
            f"CREATE VIEW {name}_above AS SELECT count(*) AS c, max(n) AS m FROM"
            f" (SELECT *, 1 AS n FROM {name}_d) AS v EMIT CHANGES"
            if name == "since"
            else f"CREATE VIEW {name}_d AS {query} EMIT ON WINDOW CLOSE LATE DROP;"
            f"CREATE VIEW {name}_above AS SELECT count(*) AS c, max(n) AS m FROM {name}_d EMIT CHANGES"
        )
        if name in ("sessions", "since"):
            home.sql(f"CREATE VIEW {name}_a AS {query} EMIT ON WINDOW CLOSE LATE ARCHIVE")
    chance = random.Random(3)
    everything: list[Given] = []
    dropped: dict[str, list[Given]] = {name: [] for name in names}
    for number, run in enumerate(late_runs(chance, 6)):
        bound = max(map(second, everything)) - DELAY if everything else None
        for name in names:
            has = HAS.get(name, lambda row: True)
            there = [row for row in everything if has(row)]
            for row in dropped[name]:
                there.remove(row)
            dropped[name] += VIEWS[name][1](there, [row for row in run if has(row)], bound)
        home.insert("s", run)
        everything += run
        if number == 2:
            home.compact()
        if number in (2, 4):
            home.reopen()
        if number == 3:
            home.sql("CREATE VIEW other AS SELECT k, count(*) AS n FROM s GROUP BY k EMIT CHANGES")
            home.sql("ALTER VIEW other AS SELECT k, count(*) + 1 AS n FROM s GROUP BY k EMIT CHANGES")
        if number > 1:
            check(home, names, everything, dropped, max(map(second, everything)) - DELAY)
    assert all(dropped.values())
    home.advance("s")
    check(home, names, everything, dropped, 10_000)


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
        assert in_order(home.emitted(f"{name}_d")) == wanted, name
        assert counts.get(f"{name}_d", 0) == len(dropped[name]), name
        assert home.table(f"{name}_above")[0][0] == len(wanted), name
        if name in ("sessions", "since"):
            assert in_order(home.emitted(f"{name}_a")) == wanted, name
            everything = in_order(closed(home.batch(query, s=rows), name, bound))
            assert in_order(home.query(f"SELECT * FROM {name}_a")) == everything, name
