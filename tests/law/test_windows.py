"""Every kind of windows, in every spelling: made before the rows or after them, kept or computed when read, however the
rows are cut into runs, a view shows what the extents of the windows hold."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from anabranch.algebra.windows import (
    Chunks,
    CumulatingWindows,
    Landmark,
    Partitioned,
    Row,
    Sessions,
    SlideByTuple,
    SlidingWindows,
    WindowType,
)
from anabranch.testing import Harness
from seeds import soaked

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1)
SECOND = 1_000_000


@dataclass(frozen=True)
class Case:
    """A query that gives k, sum(v), and the start and the end of each window; what its windows are, along what."""

    query: str
    windows: WindowType[Any]
    along: str  # "ts", "n", "number"
    key: str | None = "k"  # what windows are kept apart by, or made of


def _table(call: str) -> str:
    return f"SELECT k, sum(v) AS x, window_start AS a, window_end AS b FROM {call} GROUP BY k, window_start, window_end"


def _li(bracket: str, group: str = "GROUP BY k") -> str:
    return f"SELECT k, sum(v) [{bracket}] FROM s {group}"


CASES = {
    "tumble": Case(_table("TUMBLE(s, ts, INTERVAL 7 SECONDS, INTERVAL 3 SECONDS)"),
                   SlidingWindows(7 * SECOND, 7 * SECOND, 3 * SECOND), "ts", None),
    "hop": Case(_table("HOP(s, ts, INTERVAL 4 SECONDS, INTERVAL 10 SECONDS)"),
                SlidingWindows(10 * SECOND, 4 * SECOND), "ts", None),
    "gaps": Case(_table("HOP(s, ts, INTERVAL 9 SECONDS, INTERVAL 4 SECONDS)"),
                 SlidingWindows(4 * SECOND, 9 * SECOND), "ts", None),
    "cumulate": Case(_table("CUMULATE(s, ts, INTERVAL 3 SECONDS, INTERVAL 12 SECONDS)"),
                     CumulatingWindows(12 * SECOND, 3 * SECOND), "ts", None),
    "session": Case(_table("SESSION(s PARTITION BY k, ts, INTERVAL 3 SECONDS)"), Sessions(3 * SECOND), "ts"),
    "range": Case(_li("RANGE 10 seconds, SLIDE 4 seconds, WATTR ts"),
                  SlidingWindows(10 * SECOND, 4 * SECOND, aligned="end"), "ts", None),
    "number": Case(_li("RANGE 10, SLIDE 4, WA n, ORIGIN 1"), SlidingWindows(10, 4, 1, "end"), "n", None),
    "rows": Case(_li("RANGE 5 rows, SLIDE 2 rows, WA row-num"), SlidingWindows(5, 2, aligned="end"), "number", None),
    "chunk of rows": Case(_table("STREAM(s, 'CUT BY 4 ROWS')"), SlidingWindows(4, 4), "number", None),
    "partitioned": Case(_li("RANGE 3 rows, SLIDE 2 rows, WA row-num, PA k", ""),
                        Partitioned(SlidingWindows(3, 2, aligned="end")), "number"),
    "landmark": Case(_li("RANGE ALL, SLIDE 5 seconds, WA ts"), Landmark(5 * SECOND), "ts", None),
    "slide by row": Case(_li("RANGE 6 seconds, RATTR ts, SLIDE 1 row, SATTR row-num"),
                         SlideByTuple(6 * SECOND), "ts", None),
    "slide by rank": Case(_li("RANGE 6 seconds, RATTR ts, SLIDE 3 rows, SATTR rank(ts)"),
                          SlideByTuple(6 * SECOND, 3, "rank"), "ts", None),
    "chunks": Case(_table("CHUNKS(s, k)"), Chunks(), "number"),
}  # fmt: skip


def rows(seed: int) -> list[tuple[str, int, int, datetime]]:
    dice = random.Random(seed)
    made = []
    for _ in range(30):
        time = EPOCH + timedelta(seconds=dice.randrange(-20, 40))
        made.append((dice.choice("aab"), dice.randrange(-9, 10), dice.randrange(-15, 15), time))
    return made


def truth(case: Case, given: list[tuple[str, int, int, datetime]]) -> list[tuple[Any, ...]]:
    """From the extent of every window, row by row."""
    values = {
        "ts": lambda number, row: round((row[3] - EPOCH).total_seconds()) * SECOND,
        "n": lambda number, row: row[2],
        "number": lambda number, row: number,
    }[case.along]
    known = [
        Row(values(number, row), number, row[0] if case.key is not None else None) for number, row in enumerate(given)
    ]
    found: dict[tuple[Any, ...], int] = {}
    for window in case.windows.windows(known):
        start, end = case.windows.bounds(window, known)
        if isinstance(case.windows, SlideByTuple):
            assert start is not None
            start, end = start - 1, end - 1  # it holds its end, and shows it
        for row in case.windows.extent(window, known):
            group = (given[row.number][0], start, end, str(window))
            found[group] = found.get(group, 0) + given[row.number][1]
    return [(k, x, start, end) for (k, start, end, _), x in found.items()]


def shown(home: Harness, text: str) -> list[tuple[Any, ...]]:
    answer = [(row[0], row[1], _plain(row[2]), _plain(row[3])) for row in home.query(text)]
    return sorted(answer, key=_order)


def _plain(bound: Any) -> int | None:
    return round((bound - EPOCH).total_seconds()) * SECOND if isinstance(bound, datetime) else bound


def _order(row: Iterable[Any]) -> tuple[Any, ...]:
    return tuple((value is not None, value) for value in row)


@pytest.mark.parametrize("seed", [1, *soaked(2, 4, 5, 6)])
def test_windows_hold_what_their_extents_hold(home: Harness, seed: int) -> None:
    given = rows(seed)
    dice = random.Random(seed + 100)
    names = {case: case.replace(" ", "_") for case in CASES}
    home.sql("CREATE STREAM s (k STRING, v INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    for case, name in names.items():
        home.sql(f"CREATE VIEW read_{name} AS {CASES[case].query}")
        home.sql(f"CREATE VIEW kept_{name} AS {CASES[case].query} EMIT CHANGES")
    at = 0
    while at < len(given):
        size = dice.randrange(1, 16)
        home.insert("s", given[at : at + size])
        at += size
    for case, name in names.items():
        expected = sorted(truth(CASES[case], given), key=_order)
        home.sql(f"CREATE VIEW after_{name} AS {CASES[case].query} EMIT CHANGES")
        for how in ("read", "kept", "after"):
            assert shown(home, f"SELECT * FROM {how}_{name}") == expected, (case, how)
        assert shown(home, CASES[case].query) == expected, (case, "asked at once")


STRATEGIES = ("panes", "windows", "adaptive", "rows")


@pytest.mark.parametrize("seed", [3, *soaked(4, 5)])
def test_strategies_give_the_same_answers(home: Harness, seed: int) -> None:
    """Panes, windows, spans and rows; windows of many panes too, which are had by difference; with values that are
    NULL; spans before the reducer and behind it."""
    dice = random.Random(seed)
    home.sql("CREATE STREAM s (k STRING, v INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS)")
    functions = {
        "wide": "HOP(s, ts, INTERVAL 1 SECOND, INTERVAL 12 SECONDS, STRATEGY => '{}')",
        "odd": "SLIDING(s, ts, INTERVAL 4 SECONDS, INTERVAL 10 SECONDS, STRATEGY => '{}')",
        "apart": "HOP(s, ts, INTERVAL 9 SECONDS, INTERVAL 4 SECONDS, STRATEGY => '{}')",
        "all": "TUMBLE(s, ts, INTERVAL 7 SECONDS, STRATEGY => '{}')",
    }
    items = "count(*) AS c, count(v) AS cv, sum(v) AS x, avg(v) AS a, max(v) AS m"
    queries = {}
    views: dict[str, list[tuple[str, str]]] = {name: [] for name in functions}
    for name, function in functions.items():
        for strategy in STRATEGIES:
            keys = "" if name == "all" else "k, "
            values = items.removesuffix(", max(v) AS m") if name == "wide" else items
            query = (
                f"SELECT {keys}window_start, window_end, {values} FROM {function.format(strategy)}"
                f" GROUP BY {keys}window_start, window_end"
            )
            queries[name, strategy] = query
            for how, emits in (("read", ""), ("kept", " EMIT CHANGES"), ("shut", " EMIT ON WINDOW CLOSE")):
                if strategy != "adaptive" or how == "read" or name == "odd":
                    home.sql(f"CREATE VIEW {how}_{name}_{strategy} AS {query}{emits}")
                    views[name].append((how, strategy))
    given = [(k, None if v % 5 == 0 else v, n, ts) for k, v, n, ts in rows(seed)]
    at = 0
    while at < len(given):
        size = dice.randrange(4, 16)
        home.insert("s", given[at : at + size])
        at += size
    wholes = {}
    for name in functions:
        answers = {
            (how, strategy): sorted(home.query(f"SELECT * FROM {how}_{name}_{strategy}"), key=str)
            for how, strategy in views[name]
        }
        wholes[name] = whole = sorted(home.query(queries[name, "rows"]), key=str)
        for (how, strategy), answer in answers.items():
            if how != "shut":
                assert answer == whole, (name, how, strategy)
        shut = [answer for (how, _), answer in answers.items() if how == "shut"]
        assert all(answer == shut[0] for answer in shut)
        assert shut[0] and set(shut[0]) <= set(whole)
    home.compact()
    for name, whole in wholes.items():
        assert sorted(home.query(f"SELECT * FROM read_{name}_adaptive"), key=str) == whole, name


def _ending(column: str, size: str, others: str) -> str:
    return _table(f"SLIDE_BY_ROW(s, {column}, {size}, {others}, STRATEGY => 'bins')")


BINS = {
    "each": Case(_ending("ts", "INTERVAL 6 SECONDS", "1 ROW"), SlideByTuple(6 * SECOND), "ts", None),
    "third": Case(_ending("ts", "INTERVAL 6 SECONDS", "3 ROWS"), SlideByTuple(6 * SECOND, 3), "ts", None),
    "rank": Case(_ending("n", "5", "3 ROWS, BY => 'rank'"), SlideByTuple(5, 3, "rank"), "n", None),
}


@pytest.mark.parametrize("seed", [5])
def test_bins_hold_what_the_extents_of_windows_hold(home: Harness, seed: int) -> None:
    """From partials of values, before the reducer and behind it; no row is kept for it."""
    given, dice = rows(seed), random.Random(seed)
    home.sql("CREATE STREAM s (k STRING, v INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    for name, case in BINS.items():
        home.sql(f"CREATE VIEW {name} AS {case.query}")
    home.sql(f"CREATE VIEW kept AS {BINS['third'].query} EMIT CHANGES")
    at = 0
    while at < len(given):
        size = dice.randrange(6, 20)
        home.insert("s", given[at : at + size])
        at += size
    home.sql(f"CREATE VIEW after AS {BINS['third'].query.replace('sum(v)', 'sum(v + 0)')}")
    expected = {name: sorted(truth(case, given), key=_order) for name, case in BINS.items()}
    for name in BINS:
        assert shown(home, f"SELECT * FROM {name}") == expected[name], name
    assert shown(home, "SELECT * FROM kept") == expected["third"]
    home.compact()
    assert shown(home, "SELECT * FROM after") == expected["third"]
