"""Windows of windows in one query: the same answer as windows put together in Python, in any order and cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import pytest

from anabranch.testing import Harness, cuts, shuffled

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
MILLISECOND = timedelta(milliseconds=1)
Windowed = tuple[str, int, datetime, datetime]  # key, number, start and end
WINDOW = "window_start, window_end"
HOP = "HOP(s, ts, INTERVAL 10 SECONDS, INTERVAL 20 SECONDS)"
SUMS = f"SELECT {WINDOW}, window_time, k, sum(n) AS n FROM {HOP} GROUP BY {WINDOW}, window_time, k"
QUERIES = {
    "direct": f"SELECT {WINDOW}, s.k, sum(s.n) AS n FROM TABLE(TUMBLE(TABLE({HOP}), DESCRIPTOR(window_time),"
    f" INTERVAL 40 SECONDS)) GROUP BY {WINDOW}, k",
    "grouped": f"SELECT {WINDOW}, k, max(n) AS n FROM TUMBLE(TABLE ({SUMS}), DESCRIPTOR(window_time),"
    f" INTERVAL 40 SECONDS) GROUP BY {WINDOW}, k",
    "thrice": f"SELECT {WINDOW}, k, count(*) AS n FROM HOP(TUMBLE({HOP}, window_time, INTERVAL 20 SECONDS),"
    f" window_time, INTERVAL 20 SECONDS, INTERVAL 40 SECONDS) GROUP BY {WINDOW}, k",
}


def windows(rows: Iterable[tuple[str, int, datetime]], size: int, slide: int) -> Iterator[Windowed]:
    for key, number, time in rows:
        start = NOON + (time - NOON) // timedelta(seconds=slide) * timedelta(seconds=slide)
        while start + timedelta(seconds=size) > time:
            yield key, number, start, start + timedelta(seconds=size)
            start -= timedelta(seconds=slide)


def again(rows: Iterable[Windowed]) -> list[tuple[str, int, datetime]]:
    """What comes out of windows, at the last moment of its window."""
    return [(key, number, end - MILLISECOND) for key, number, _, end in rows]


def expected(rows: list[tuple[str, int, datetime]]) -> dict[str, list[tuple[datetime, datetime, str, int]]]:
    hops = list(windows(rows, 20, 10))
    direct, thrice, sums = (
        Counter[tuple[datetime, datetime, str]](),
        Counter[tuple[datetime, datetime, str]](),
        Counter[tuple[str, datetime, datetime]](),
    )
    for key, number, start, end in windows(again(hops), 40, 40):
        direct[start, end, key] += number
    for key, _, start, end in windows(again(windows(again(hops), 20, 20)), 40, 20):
        thrice[start, end, key] += 1
    for key, number, start, end in hops:
        sums[key, start, end] += number
    grouped: dict[tuple[datetime, datetime, str], int] = {}
    for key, number, start, end in windows(again((k, n, s, e) for (k, s, e), n in sums.items()), 40, 40):
        grouped[start, end, key] = max(number, grouped.get((start, end, key), number))
    found = {"direct": direct, "grouped": grouped, "thrice": thrice}
    return {name: sorted((*group, number) for group, number in each.items()) for name, each in found.items()}


def test_windows_of_windows(home: Harness) -> None:
    chance = random.Random(5)
    rows = [(chance.choice("ab"), n, NOON + timedelta(seconds=7 * n)) for n in range(26)]
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    for name, query in QUERIES.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT ON WINDOW CLOSE")
    parts = [part for part in cuts(shuffled(rows, chance), chance) if part][:4]
    taken = [row for part in parts for row in part]
    for part in parts:
        home.insert("s", part)
    passed = max(time for _, _, time in taken) - timedelta(seconds=5)
    wanted = expected(taken)
    for name, query in QUERIES.items():
        assert sorted(home.query(query)) == wanted[name]
        closed = [row for row in wanted[name] if row[1] <= passed]
        assert sorted(home.emitted(name)) == closed, "windows close by the progress of the stream"
    text = f"WITH x AS ({SUMS}) {QUERIES['grouped'].replace(f'TABLE ({SUMS})', 'x')}"
    assert sorted(home.query(text)) == wanted["grouped"]
