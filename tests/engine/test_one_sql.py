"""The bids of "One SQL to Rule Them All" (Begoli et al., 2019): every answer that is shown there, at its minute; and at
the end the same table whatever way the highest bids are emitted in, for any cut into runs and any order of rows."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.testing import Harness, shuffled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: By the minute at which it comes: a bid (its time, price, item), or how far progress is.
EVENTS = [
    ("07", None, "05"), ("08", ("07", 2, "A"), None), ("12", ("11", 3, "B"), None), ("13", ("05", 4, "C"), None),
    ("14", None, "08"), ("15", ("09", 5, "D"), None), ("16", None, "12"), ("17", ("13", 1, "E"), None),
    ("18", ("17", 6, "F"), None), ("21", None, "20"),
]  # fmt: skip
BIDS = [bid for _, bid, _ in EVENTS if bid is not None]
TUMBLE = "TUMBLE(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTE)"
HOP = "HOP(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)"
HIGHEST = f"""SELECT B.window_start AS wstart, B.window_end AS wend, B.bidtime, B.price, B.item FROM {TUMBLE} AS B
JOIN (SELECT window_start, window_end, max(price) AS highest FROM {TUMBLE} GROUP BY window_start, window_end) AS M
ON B.window_start = M.window_start AND B.window_end = M.window_end AND B.price = M.highest"""
COLUMNS = "SELECT window_start AS wstart, window_end AS wend, bidtime, price, item FROM"
WINDOWS = {
    "tumble": f"{COLUMNS} {TUMBLE}",
    "hop": f"{COLUMNS} {HOP}",
    "hop_sum": f"SELECT window_start AS wstart, window_end AS wend, sum(price) AS price FROM {HOP}"
    " GROUP BY window_start, window_end",
}
CLAUSES = {
    "now": "",
    "changes": "EMIT CHANGES",
    "closed": "EMIT AFTER WATERMARK",
    "stream": "EMIT STREAM",
    "stream_closed": "EMIT STREAM AFTER WATERMARK",
    "stream_delayed": "EMIT STREAM AFTER DELAY INTERVAL '6' MINUTES",
}

LAST = ["00 10 09 5 D", "10 20 17 6 F"]
SHOWN = {
    "13": {"now": ["00 10 05 4 C", "10 20 11 3 B"], "closed": []},
    "16": {"closed": ["00 10 09 5 D"]},
    "21": {
        "now": LAST,
        "changes": LAST,
        "closed": LAST,
        "stream": [
            "00 10 07 2 A  08 0", "10 20 11 3 B  12 0", "00 10 07 2 A undo 13 1", "00 10 05 4 C  13 2",
            "00 10 05 4 C undo 15 3", "00 10 09 5 D  15 4", "10 20 11 3 B undo 18 1", "10 20 17 6 F  18 2",
        ],
        "stream_closed": ["00 10 09 5 D  16 0", "10 20 17 6 F  21 0"],
        "stream_delayed": [
            "00 10 05 4 C  14 0", "10 20 17 6 F  18 0", "00 10 05 4 C undo 21 1", "00 10 09 5 D  21 2",
        ],
        "tumble": [
            "00 10 05 4 C", "00 10 07 2 A", "00 10 09 5 D", "10 20 11 3 B", "10 20 13 1 E", "10 20 17 6 F",
        ],
        "hop": [
            "00 10 05 4 C", "00 10 07 2 A", "00 10 09 5 D", "05 15 05 4 C", "05 15 07 2 A", "05 15 09 5 D",
            "05 15 11 3 B", "05 15 13 1 E", "10 20 11 3 B", "10 20 13 1 E", "10 20 17 6 F", "15 25 17 6 F",
        ],
        "hop_sum": ["00 10 11", "05 15 15", "10 20 10", "15 25 6"],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A home with all views, to be copied."""
    folder = tmp_path_factory.mktemp("one-sql") / "home"
    with Harness(folder, spark) as home:
        set_clock(home, "00")
        home.sql("CREATE STREAM bid (bidtime TIMESTAMP, price INT, item STRING)")
        for name, clause in CLAUSES.items():
            home.sql(f"CREATE VIEW {name} AS {HIGHEST} {clause}")
        for name, query in WINDOWS.items():
            home.sql(f"CREATE VIEW {name} AS {query}")
    return folder


def set_clock(home: Harness, minute: str) -> None:
    home.sql(f"SET CLOCK TIMESTAMP '2026-01-01 08:{minute}:00'")


def insert(home: Harness, bids: list[tuple[str, int, str]]) -> None:
    home.insert("bid", [(f"2026-01-01 08:{minute}:00", price, item) for minute, price, item in bids])


def advance(home: Harness, minute: str) -> None:
    home.advance("bid", f"2026-01-01 08:{minute}:00")


def read(home: Harness, view: str) -> list[str]:
    order = "ptime, wstart, ver" if view.startswith("stream") else "ALL"
    rows = home.query(f"SELECT * FROM {view} ORDER BY {order}")
    return [" ".join(v.strftime("%M") if isinstance(v, datetime) else str(v) for v in row) for row in rows]


def test_answers_over_time(made: Path, tmp_path: Path, spark: SparkSession) -> None:
    shutil.copytree(made, tmp_path / "home")
    with Harness(tmp_path / "home", spark) as home:
        for minute, bid, progress in EVENTS:
            set_clock(home, minute)
            if bid is not None:
                insert(home, [bid])
            else:
                advance(home, progress or "")
            for view, wanted in SHOWN.get(minute, {}).items():
                assert read(home, view) == wanted, f"{view} at 8:{minute}"


def net(lines: list[str]) -> list[str]:
    """The table that changes with undo, ptime and ver leave behind."""
    counts: Counter[str] = Counter()
    for line in lines:
        *row, undo, _, _ = line.split(" ")
        counts[" ".join(row)] += -1 if undo else 1
    return sorted(counts.elements())


@pytest.mark.parametrize("size", [2, 6])
def test_the_last_table_in_other_runs_and_orders(made: Path, tmp_path: Path, spark: SparkSession, size: int) -> None:
    """Progress is declared in between, so that bids come late for windows that have been shown."""
    mixed = shuffled(BIDS, random.Random(size))
    shutil.copytree(made, tmp_path / "home")
    with Harness(tmp_path / "home", spark) as home:
        for number, start in enumerate(range(0, len(mixed), size)):
            set_clock(home, f"{8 + 4 * number:02}")
            insert(home, mixed[start : start + size])
            if number == 0:
                advance(home, "12")
        set_clock(home, "40")
        advance(home, "20")
        for view in (*CLAUSES, *WINDOWS):
            wanted = SHOWN["21"][view] if view in WINDOWS else LAST
            seen = read(home, view)
            assert (net(seen) if view.startswith("stream") else seen) == wanted, view
