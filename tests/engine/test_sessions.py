"""Sessions and cumulating windows: as the plain functions say, for any order of rows and any cut into runs."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta

import pytest

from anabranch.algebra.windows import CumulatingWindows, sessions
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
