"""Files that are appended to and copied piece by piece, while the process that reads them is killed again and again.

Whatever is read when, every view of the stream has in the end what a plain count over the files gives.
"""

from __future__ import annotations

import csv
import heapq
import random
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from crash_help import START, Processes, check_clean, finish

from anabranch.ledger import Ledger

pytestmark = [pytest.mark.crash, pytest.mark.spark]

SCRIPT = """
CREATE STREAM s (id BIGINT, ts TIMESTAMP, k STRING, n BIGINT) FROM files('{folder}', format => 'csv', header => true);
CREATE VIEW totals AS SELECT k, count(*) AS c, sum(n) AS s FROM s GROUP BY k;
CREATE VIEW every_row AS SELECT id, n FROM s;
CREATE VIEW windows AS SELECT window_start, count(*) AS c, sum(n) AS s
  FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;
"""
#: The same views made at the end, from rows of the past.
AGAIN = [
    "CREATE VIEW totals_again AS SELECT k, count(*) AS c, sum(n + 1) - count(*) AS s FROM s GROUP BY k",
    "CREATE VIEW every_row_again AS SELECT id, n FROM s",
]
QUERIES = [
    "SELECT k, c, s FROM totals",
    "SELECT k, c, s FROM totals_again",
    "SELECT id, n FROM every_row",
    "SELECT id, n FROM every_row_again",
    "SELECT unix_seconds(window_start), c, s FROM windows",
    "SELECT count(*) FROM sys.bad_rows",
]


class Producer(threading.Thread):
    """Writes files in pieces that end anywhere, many files at a time; each stalls now and then, at times for long."""

    def __init__(self, folder: Path, files: int, seconds: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.chance = folder, random.Random(seed)
        self.waiting: list[tuple[float, int, list[bytes]]] = []
        for number in range(files):
            heapq.heappush(self.waiting, (number * seconds / files, number, self._pieces(number)))

    def _pieces(self, number: int) -> list[bytes]:
        chance = self.chance
        lines = ["id,ts,k,n"]
        for row in range(chance.randrange(1, 60)):
            second = chance.randrange(120)
            at = f"{START:%Y-%m-%dT}{START.hour + second // 3600:02}:{second // 60:02}:{second % 60:02}Z"
            lines.append(f"{number * 1000 + row},{at},{chance.choice('abc')},{chance.randrange(10)}")
        text = ("\n".join(lines) + "\n").encode()
        cuts = [chance.randrange(len(text)) for _ in range(chance.randrange(8))]
        cuts = [text.index(b"\n", cut) + 1 if chance.random() < 0.5 else cut for cut in cuts]  # half of them end a line
        cuts.sort()
        return [text[low:high] for low, high in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def run(self) -> None:
        begin = time.monotonic()
        while self.waiting:
            due, number, (piece, *rest) = heapq.heappop(self.waiting)
            time.sleep(max(0.0, begin + due - time.monotonic()))
            with (self.folder / f"{number:04}.csv").open("ab") as file:
                file.write(piece)
            if rest:
                # A stall of seconds has the file taken for whole, if it ends with a line.
                pause = self.chance.uniform(3, 9) if self.chance.random() < 0.3 else self.chance.uniform(0, 0.5)
                heapq.heappush(self.waiting, (time.monotonic() - begin + pause, number, rest))


def truth(folder: Path) -> list[Counter[tuple[Any, ...]]]:
    totals: dict[str, list[int]] = defaultdict(list)
    windows: dict[int, list[int]] = defaultdict(list)
    rows: Counter[tuple[Any, ...]] = Counter()
    for path in folder.iterdir():
        with path.open() as lines:
            for row in csv.DictReader(lines):
                minute, second = (int(part) for part in row["ts"].rstrip("Z").split(":")[1:])
                totals[row["k"]].append(int(row["n"]))
                windows[int(START.timestamp()) + (minute * 60 + second) // 10 * 10].append(int(row["n"]))
                rows[int(row["id"]), int(row["n"])] += 1
    by_key = Counter((key, len(values), sum(values)) for key, values in totals.items())
    return [
        by_key, by_key, rows, rows,
        Counter((at, len(values), sum(values)) for at, values in windows.items()),
        Counter([(0,)]),
    ]  # fmt: skip


def produce_and_kill(tmp_path: Path, processes: Processes, *, files: int, seconds: float, seed: int) -> tuple[int, int]:
    """Kill readers for as long as files are written, each a while after its first run; the number of kills, and that of
    parts of files that were appended after the first part was taken."""
    home, folder, chance = tmp_path / "home", tmp_path / "in", random.Random(seed)
    folder.mkdir()
    producer = Producer(folder, files, seconds, seed)
    producer.start()
    killed = 0
    while producer.is_alive():
        reader = processes.start({"home": home, "run": SCRIPT.format(folder=folder), "until_idle": False})
        before = runs(home)
        while reader.poll() is None and producer.is_alive() and runs(home) < before + 2:
            producer.join(0.2)
        producer.join(chance.uniform(0, 10))
        reader.kill()
        outcome = finish(reader)
        assert outcome.killed, outcome.explain()
        killed += 1
    last = processes.run({"home": home, "run": SCRIPT.format(folder=folder), "statements": AGAIN, "after": QUERIES})
    assert last.clean, last.explain()
    found = [Counter(map(tuple, line["rows"])) for line in last.lines if "after" in line]
    for query, rows, expected in zip(QUERIES, found, truth(folder), strict=True):
        assert rows == expected, f"{query}: too many {dict(rows - expected)}, missing {dict(expected - rows)}"
    check_clean(home)
    with Ledger.open(home, write=False) as ledger:
        taken = next(list(ledger.captured(stream)) for stream in ledger.snapshot().streams)
    later = sum(part[3] > 0 for captured in taken for part in captured)
    rows = sum(found[2].values())
    print(f"{files} files, {rows} rows, {len(taken)} runs, {later} parts appended later, {killed} kills, seed {seed}")
    return killed, later


def runs(home: Path) -> int:
    """How many records a home has."""
    return len(list((home / "runs").glob("*"))) if home.exists() else 0


@pytest.mark.timeout(600)
def test_files_that_grow_while_they_are_read(tmp_path: Path, processes: Processes) -> None:
    assert produce_and_kill(tmp_path, processes, files=20, seconds=2, seed=3)[0] >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_files_that_grow_while_they_are_read(tmp_path: Path, processes: Processes, seed: int) -> None:
    killed, later = produce_and_kill(tmp_path, processes, files=1000, seconds=300, seed=seed)
    assert killed > 2 and later > 10
