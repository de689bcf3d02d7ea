"""What the strategy 'adaptive' holds, and what it says of itself: as many partials as its model, run by run."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

import pytest

from anabranch.algebra.windows import Row, SlidingWindows
from anabranch.algebra.windows.spans import reduced, spans
from anabranch.algebra.windows.strategies import COUNT
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1)
SECOND = 1_000_000
#: The size of the second is no whole number of its slides.
WINDOWS = {"hop": SlidingWindows(10 * SECOND, SECOND), "odd": SlidingWindows(10 * SECOND, 4 * SECOND)}
#: How many groups have how many rows in a stretch of ten seconds.
SIZES = {1: 20, 4: 6, 60: 2}


def skewed(stretch: int) -> list[tuple[str, datetime]]:
    """Many groups of one row and two large ones; a group that is large in one run is small in the next."""
    dice = Random(stretch)
    names = [f"g{number}" for number in range(sum(SIZES.values()))]
    dice.shuffle(names)
    made = []
    for size, groups in SIZES.items():
        for name in (names.pop() for _ in range(groups)):
            for _ in range(size):
                micros = 10 * SECOND * stretch + dice.randrange(10 * SECOND)
                made.append((name, EPOCH + timedelta(microseconds=micros)))
    dice.shuffle(made)
    return made


def rows_of(given: list[tuple[str, datetime]]) -> list[Row]:
    return [Row((time - EPOCH) // timedelta(microseconds=1), number, name) for number, (name, time) in enumerate(given)]


def query(windows: SlidingWindows, strategy: str, key: str = "k", items: str = "count(*) AS c") -> str:
    slide, size = (f"INTERVAL {each // SECOND} SECONDS" for each in (windows.slide, windows.size))
    return (
        f"SELECT {key} AS k, window_start, {items} FROM HOP(s, ts, {slide}, {size}, STRATEGY => '{strategy}')"
        f" GROUP BY {key}, window_start, window_end"
    )


def held(home: Harness, view: str) -> int:
    """How many rows the state of a view has, as the system tables say."""
    ((count,),) = home.query(f"SELECT state_rows FROM sys.nodes WHERE view = '{view}'")
    return int(count)


def test_as_many_partials_as_the_model_and_no_more_than_windows(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP)")
    for name, windows in WINDOWS.items():
        for strategy in ("adaptive", "windows"):
            home.sql(f"CREATE VIEW {name}_{strategy} AS {query(windows, strategy)}")
    runs = [skewed(stretch) for stretch in range(3)]
    for run in runs:
        home.insert("s", run)
    parts = {name: [spans(windows, rows_of(run), COUNT) for run in runs] for name, windows in WINDOWS.items()}
    for name in WINDOWS:
        assert held(home, f"{name}_adaptive") == sum(map(len, parts[name])) <= held(home, f"{name}_windows")
    # Made after the rows, its state comes in one piece, from Spark.
    home.sql(f"CREATE VIEW after AS {query(WINDOWS['odd'], 'adaptive', 'upper(k)')}")
    assert held(home, "after") == len(spans(WINDOWS["odd"], rows_of([row for run in runs for row in run]), COUNT))
    home.compact()
    for name in WINDOWS:
        assert held(home, f"{name}_adaptive") == len(reduced(parts[name], COUNT)) <= held(home, f"{name}_windows")
    # A view that asks for more of the same partials fills a column of its own beside theirs.
    home.sql(f"CREATE VIEW more AS {query(WINDOWS['odd'], 'adaptive', items='max(ts) AS t, count(*) AS c')}")
    expected = sorted(home.query(query(WINDOWS["odd"], "rows", items="max(ts) AS t, count(*) AS c")))
    assert sorted(home.query("SELECT * FROM more")) == expected
    counts = [(k, start, count) for k, start, _, count in expected]
    assert sorted((k.lower(), *rest) for k, *rest in home.query("SELECT * FROM after")) == counts
    plan = "\n".join(line for (line,) in home.query("EXPLAIN odd_adaptive"))
    assert "strategy adaptive" in plan and "large groups by window, small ones by span" in plan
