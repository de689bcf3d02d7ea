"""Anabranch as it is measured: a home of its own, a stream of bids from a folder, views, and run after run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anabranch.bench.data import COLUMNS
from anabranch.engine.tables import change_fields
from anabranch.ledger import Record
from anabranch.plan.definitions import Stream
from anabranch.plan.view import View
from anabranch.session import Session, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TUMBLE = "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
HOP_10 = "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL 10 SECONDS, INTERVAL 60 SECONDS)"
HOP_1 = "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 SECOND, INTERVAL 60 SECONDS)"
PER_MINUTE = (
    "SELECT auction, window_start, window_end, count(*) AS bids, sum(price) AS total, avg(price) AS average"
    f" FROM {TUMBLE} GROUP BY auction, window_start, window_end"
)
HOPPING = (
    "SELECT auction, window_start, window_end, count(*) AS bids"
    f" FROM {HOP_10} GROUP BY auction, window_start, window_end"
)
HOPPING_FINE = HOPPING.replace(HOP_10, HOP_1)
ON_CLOSE = " EMIT ON WINDOW CLOSE"


class Subject:
    """One home with streams (if not said otherwise `bids` over a folder) and views; gone when it is closed."""

    def __init__(
        self, home: Path, spark: Any, folder: Path, views: dict[str, str], streams: dict[str, str] | None = None
    ) -> None:
        self.home = home
        shutil.rmtree(home, ignore_errors=True)
        self.session: Session = connect(home, spark)
        bids = (
            f"CREATE STREAM bids ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
            f" FROM parquet(path => '{folder}/*.parquet')"
        )
        for text in (streams or {"bids": bids}).values():
            self.session.sql(text)
        for name, query in views.items():
            self.session.sql(f"CREATE VIEW {name} AS {query}")
        self.streams = {stream.name: stream for stream in self.session._core.catalog().of(Stream)}
        self.stream: Stream = next(iter(self.streams.values()))
        #: The records of all runs so far.
        self.records: list[Record] = []

    def step(self, max_rows: int | None = None, *, stream: str | None = None) -> float | None:
        """One run; how many seconds it took, None if there was nothing to take."""
        begin = time.perf_counter()
        taking = self.stream if stream is None else self.streams[stream]
        record = self.session._capture.step(taking, max_rows=max_rows)
        if record is None:
            return None
        self.records.append(record)
        return time.perf_counter() - begin

    def drain(self, max_rows: int | None = None, *, limit: int | None = None) -> list[float]:
        """Runs until there is nothing more, or `limit` of them; the seconds of each."""
        seconds: list[float] = []
        while limit is None or len(seconds) < limit:
            taken = self.step(max_rows)
            if taken is None:
                break
            seconds.append(taken)
        return seconds

    def feed(self, folder: Path, files: dict[str, list[Path]]) -> list[float]:
        """Run after run, one file of each stream into a folder of its own, and a run of each; the seconds of both."""
        seconds = []
        for stream in files:
            shutil.rmtree(folder / stream, ignore_errors=True)
            (folder / stream).mkdir(parents=True)
        for run in zip(*files.values(), strict=True):
            seconds.append(0.0)
            for stream, path in zip(files, run, strict=True):
                (folder / stream / path.name).hardlink_to(path)
                taken = self.step(stream=stream)
                assert taken is not None
                seconds[-1] += taken
        return seconds

    def end(self) -> float:
        """The source has nothing more: all windows close; the seconds it took."""
        begin = time.perf_counter()
        record = self.session._capture.end(self.stream)
        if record is not None:
            self.records.append(record)
        return time.perf_counter() - begin

    def phases(self) -> dict[str, float]:
        """Milliseconds per phase, over all runs."""
        sums: dict[str, float] = {}
        for record in self.records:
            for name, value in record.milliseconds.items():
                sums[name] = round(sums.get(name, 0.0) + value, 1)
        return sums

    def ask(self, text: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.session.sql(text).toArrow().to_pylist()
        return rows

    def changes(self, view: str) -> DataFrame:
        """All changes that a view has given out, from the ledger's own table."""
        core = self.session._core
        snapshot = core.snapshot()
        catalog = core.catalog(snapshot)
        found = catalog.find(view)
        assert isinstance(found, View) and found.kept
        panes = catalog.panes(found.query.blocks[0].panes) if found.query.blocks else None
        return core.table_frame(found.changes_table, change_fields(found, panes), snapshot)

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close()
        shutil.rmtree(self.home, ignore_errors=True)
