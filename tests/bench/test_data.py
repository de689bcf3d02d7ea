"""The bids: as many as asked for, the same for the same seed, hot, out of order by seconds, 1 % of them very late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch.bench.data import AUCTIONS, DISORDER, HOUR, LATE, LATEST, MINUTE, START, Bids, generate, quoted, rows_sql
from bench.asking import ask

BIDS = Bids(50_000, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bids") / "it's here"
    generate(made, BIDS)
    return made


def every(folder: Path) -> str:
    return f"read_parquet({quoted(folder / '*.parquet')}, filename = true, file_row_number = true)"


#: Arrival of the row with a number, as the generator has it.
ARRIVAL = f"{START} + (row_number() OVER (ORDER BY filename, file_row_number) - 1) * {HOUR} // {BIDS.rows}"


def test_all_rows_are_there_in_files_of_one_size(folder: Path) -> None:
    sizes = [ask(f"SELECT count(*) FROM read_parquet({quoted(path)})") for path in sorted(folder.iterdir())]
    assert sizes == [10_000] * 5
    assert BIDS.rows_a_file == 10_000


def test_the_columns_have_the_types_of_the_stream(folder: Path) -> None:
    with duckdb.connect(":memory:") as duck:
        described = duck.execute(f"DESCRIBE SELECT * EXCLUDE (filename, file_row_number) FROM {every(folder)}")
        kinds = {row[0]: row[1] for row in described.fetchall()}
    assert kinds == {
        "auction": "BIGINT",
        "bidder": "BIGINT",
        "price": "BIGINT",
        "ts": "TIMESTAMP WITH TIME ZONE",
        "channel": "VARCHAR",
    }


def test_event_times_lie_in_one_hour(folder: Path) -> None:
    low, high = ask(f"SELECT min(epoch_us(ts)), max(epoch_us(ts)) FROM {every(folder)}")
    assert START <= low < START + MINUTE
    assert START + HOUR - MINUTE < high < START + HOUR


def test_a_row_is_seconds_late_or_ten_to_sixty_minutes(folder: Path) -> None:
    delays = f"SELECT {ARRIVAL} - epoch_us(ts) AS delay FROM {every(folder)}"
    between = ask(f"SELECT count(*) FROM ({delays}) WHERE delay > {DISORDER} AND delay < {LATE}")
    early, beyond = ask(f"SELECT count_if(delay < 0), count_if(delay > {LATEST}) FROM ({delays})")
    late = ask(f"SELECT count(*) FROM ({delays}) WHERE delay >= {LATE}")
    assert (between, early, beyond) == (0, 0, 0)
    assert 0.007 < late / BIDS.rows < 0.013


def test_half_of_the_bids_are_on_the_hot_auctions(folder: Path) -> None:
    hot = ask(f"SELECT count(*) FROM {every(folder)} WHERE auction < {AUCTIONS // 100}") / BIDS.rows
    assert 0.47 < hot < 0.54
    low, high = ask(f"SELECT min(auction), max(auction) FROM {every(folder)}")
    assert low >= 0 and high < AUCTIONS


def test_the_same_seed_gives_the_same_rows_and_another_others() -> None:
    def digest(bids: Bids) -> Any:
        return ask(f"SELECT sum(hash(auction, bidder, price, ts, channel)) FROM ({rows_sql(bids, 0, 1000)})")

    assert digest(Bids(1000, 1)) == digest(Bids(1000, 1))
    assert digest(Bids(1000, 1)) != digest(Bids(1000, 1, seed=2))


def test_rows_do_not_depend_on_how_they_are_cut() -> None:
    whole = f"SELECT * FROM ({rows_sql(BIDS, 100, 200)})"
    cut = f"SELECT * FROM ({rows_sql(BIDS, 100, 150)}) UNION ALL SELECT * FROM ({rows_sql(BIDS, 150, 200)})"
    assert ask(f"SELECT count(*) FROM ({whole} EXCEPT ALL ({cut}))") == 0


def test_files_are_ordered_by_their_time_of_change(tmp_path: Path) -> None:
    paths = generate(tmp_path, Bids(100, 7))
    times = [path.stat().st_mtime_ns for path in paths]
    assert times == sorted(set(times))


def test_a_stretch_without_late_rows_and_one_that_goes_on(tmp_path: Path) -> None:
    on_time = Bids(1000, 1, start=START + HOUR, span=6 * MINUTE, late=0.0)
    low = ask(f"SELECT min(epoch_us(ts)) FROM ({rows_sql(on_time, 0, 1000)})")
    assert low >= START + HOUR
    going_on = Bids(1000, 1, start=START + HOUR, span=6 * MINUTE, late=0.5, history=HOUR)
    low = ask(f"SELECT min(epoch_us(ts)) FROM ({rows_sql(going_on, 0, 1000)})")
    assert START <= low < START + HOUR


def test_fewer_rows_than_files_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows do not fill 4 files"):
        Bids(3, 4)
