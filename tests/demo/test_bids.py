"""The bids of the demo: as many as asked for, the same every time, with hot auctions, disorder and late rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from anabranch.demo import bids
from anabranch.demo.bids import MINUTE, SECOND, Bids, Feeder


def lateness(made: Bids) -> list[int]:
    """How long before its arrival each row happened."""
    times = [time for table in made.tables() for time in table["ts"].cast(pa.int64()).to_pylist()]
    return [bids.START + bids.SPAN * number // made.rows - time for number, time in enumerate(times)]


def test_all_rows_come_in_the_files_asked_for() -> None:
    for rows, files in ((1, 24), (10, 4), (1_000, 24)):
        sizes = [table.num_rows for table in Bids(rows, files).tables()]
        assert sizes == Bids(rows, files).sizes()
        assert (sum(sizes), len(sizes)) == (rows, min(rows, files))
        assert min(sizes) > 0


def test_the_same_seed_gives_the_same_rows() -> None:
    assert list(Bids(500, 3).tables()) == list(Bids(500, 3).tables())
    assert list(Bids(500, 3).tables()) != list(Bids(500, 3, seed=2).tables())


def test_one_in_a_hundred_is_late_and_the_others_are_out_of_order_by_seconds() -> None:
    behind = lateness(Bids(20_000))
    late = [each for each in behind if each >= 10 * MINUTE]
    assert 0.005 < len(late) / len(behind) < 0.015
    assert max(late) < 60 * MINUTE
    on_time = [each for each in behind if each < 10 * MINUTE]
    assert min(on_time) >= 0
    assert max(on_time) < 4 * SECOND
    # Disorder stays within the five seconds of the stream's watermark: only the late ones are late.
    assert len({each // SECOND for each in on_time}) == 4


def test_some_auctions_are_hot_and_others_are_later() -> None:
    first, *_, last = Bids(20_000, 6).tables()
    top = [Counter(table["auction"].to_pylist()).most_common(3) for table in (first, last)]
    assert all(bids > first.num_rows / 50 for hottest in top for _, bids in hottest)
    assert {auction for auction, _ in top[0]} != {auction for auction, _ in top[1]}


def test_the_feeder_hands_out_every_row_and_then_ends(tmp_path: Path) -> None:
    feeder = Feeder(Bids(100, 5), tmp_path, seconds=0)
    feeder.go.set()
    feeder.go_on.set()
    feeder.run()
    assert feeder.error is None
    names = sorted((tmp_path / "bids").iterdir())
    assert sum(parquet.read_metadata(name).num_rows for name in names) == 100
    assert feeder.handed_out == len(names) == 5


def test_a_cancelled_feeder_hands_out_nothing(tmp_path: Path) -> None:
    feeder = Feeder(Bids(100, 5), tmp_path, seconds=100)
    feeder.cancel()
    feeder.run()
    assert feeder.error is None
    assert list((tmp_path / "bids").iterdir()) == []
