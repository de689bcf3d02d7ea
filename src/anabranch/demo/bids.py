"""The bids of the demo: made up, always the same for the same seed, and handed out file by file.

Every ten minutes other auctions are hot, rows are out of order by a few seconds, and one in a hundred comes 10 to 60
minutes late. Knows nothing of streams and views: it writes Parquet files.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SECOND = 1_000_000
MINUTE = 60 * SECOND
#: The hour in which the bids arrive: from noon on 1 January 2026, in microseconds.
START = 1_767_268_800 * SECOND
SPAN = 60 * MINUTE

LATE_SHARE = 0.01
LATE_LEAST, LATE_MOST = 10 * MINUTE, 60 * MINUTE
DISORDER = 4 * SECOND
HOT_SHARE = 0.4
HOT_AT_ONCE = 12
HOT_FOR = 10 * MINUTE
AUCTIONS = 1_000
BIDDERS = 20_000
DEAREST_CENTS = 99_999_999


@dataclass(frozen=True)
class Bids:
    """How many bids in how many files."""

    rows: int = 300_000
    files: int = 24
    seed: int = 1

    def sizes(self) -> list[int]:
        """The rows of each file.

        >>> Bids(rows=10, files=4).sizes()
        [2, 3, 2, 3]
        """
        count = min(self.files, self.rows)
        return [self.rows * (n + 1) // count - self.rows * n // count for n in range(count)]

    def tables(self) -> Iterator[pa.Table]:
        """The rows of each file, in the order in which they arrive."""
        chance = random.Random(self.seed)
        first = 0
        for size in self.sizes():
            arrivals = [START + SPAN * number // self.rows for number in range(first, first + size)]
            yield _table(chance, arrivals)
            first += size


def _table(chance: random.Random, arrivals: list[int]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    cents = pa.array([min(int(100 * chance.lognormvariate(3.5, 1.0)), DEAREST_CENTS) for _ in arrivals], pa.int64())
    return pa.table(
        {
            "auction": pa.array([_auction(chance, arrival) for arrival in arrivals], pa.int64()),
            "bidder": pa.array([chance.randrange(BIDDERS) for _ in arrivals], pa.int64()),
            "price": pc.multiply(cents.cast(pa.decimal128(19)), Decimal("0.01")).cast(pa.decimal128(10, 2)),
            "ts": pa.array([_event_time(chance, arrival) for arrival in arrivals], pa.timestamp("us", tz="UTC")),
        }
    )


def _auction(chance: random.Random, arrival: int) -> int:
    if chance.random() >= HOT_SHARE:
        return 1_000 + chance.randrange(AUCTIONS)
    # Of the hot ones, the first is the hottest; ten minutes later others are.
    place = int(HOT_AT_ONCE * chance.random() ** 1.8)
    return 1_000 + ((arrival - START) // HOT_FOR * 131 + place * 389 + 7) % AUCTIONS


def _event_time(chance: random.Random, arrival: int) -> int:
    if chance.random() < LATE_SHARE:
        return arrival - chance.randrange(LATE_LEAST, LATE_MOST)
    return arrival - chance.randrange(DISORDER)


class Feeder(threading.Thread):
    """Writes the files aside at once, then puts one after the other where the stream looks for them.

    The first file comes at `go`, the others after `go_on`: the first run on a cold JVM takes a few times as long as any
    other, and the bids would be gone before there is anything to see.
    """

    def __init__(self, bids: Bids, folder: Path, seconds: float) -> None:
        super().__init__(name="demo-feeder", daemon=True)
        self.bids = bids
        self.seconds = seconds
        self.go = threading.Event()
        self.go_on = threading.Event()
        self.cancelled = threading.Event()
        self.error: BaseException | None = None
        self.handed_out = 0
        self._aside = folder / "aside"
        self._shown = folder / "bids"
        self._aside.mkdir()
        self._shown.mkdir()

    def run(self) -> None:
        try:
            self._write()
            self.go.wait()
            self._hand_out()
        except BaseException as error:
            self.error = error

    def cancel(self) -> None:
        self.cancelled.set()
        self.go.set()
        self.go_on.set()

    def _write(self) -> None:
        import pyarrow.parquet as parquet

        for number, table in enumerate(self.bids.tables()):
            if self.cancelled.is_set():
                return
            parquet.write_table(table, self._aside / f"bids-{number:04}.parquet")

    def _hand_out(self) -> None:
        names = sorted(os.listdir(self._aside))
        for name in names:
            if self.cancelled.is_set():
                return
            # Renaming shows a file whole or not at all.
            os.rename(self._aside / name, self._shown / name)
            self.handed_out += 1
            if self.handed_out == 1:
                self.go_on.wait()
            elif self.handed_out < len(names):
                self.cancelled.wait(self.seconds / len(names))
        self._aside.rmdir()
