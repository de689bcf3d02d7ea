"""What joins are measured on: bids near their auctions, packets at two routers; and how answers are compared."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from anabranch.bench import epochs, joins
from anabranch.bench.auctions import STREAMS, Auctions, generate, rows_sql
from anabranch.bench.data import DISORDER, HOUR, MINUTE, SECOND, START, quoted
from bench.asking import ask

BIDS = Auctions(400_000, 40, span=HOUR // 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("auctions")
    generate(made, BIDS)
    return made


def every(folder: Path, stream: str) -> str:
    return f"read_parquet({quoted(folder / stream / '*.parquet')})"


def test_an_auction_to_fifty_bids_and_each_bid_has_one(folder: Path) -> None:
    bids, auctions = every(folder, "bid"), every(folder, "auction")
    assert ask(f"SELECT count(*), count(DISTINCT id), max(id) FROM {auctions}") == (8_000, 8_000, 7_999)
    pairs = f"{bids} AS b JOIN {auctions} AS a ON b.auction = a.id"
    assert ask(f"SELECT count(*), count_if(b.ts < a.ts) FROM {pairs}") == (400_000, 0)
    near = f"avg((epoch_us(b.ts) // {10 * SECOND} = epoch_us(a.ts) // {10 * SECOND})::INT)"
    same, within = ask(f"SELECT {near}, avg((b.ts <= a.ts + INTERVAL 10 SECONDS)::INT) FROM {pairs}")
    assert 0.45 < same < 0.55 and 0.7 < within < 0.99


def test_the_columns_are_those_of_the_streams(folder: Path) -> None:
    for stream, columns in STREAMS.items():
        with duckdb.connect(":memory:") as duck:
            found = duck.execute(f"DESCRIBE SELECT * FROM {every(folder, stream)}").fetchall()
        kinds = {"BIGINT": "BIGINT", "TIMESTAMP": "TIMESTAMP WITH TIME ZONE"}
        assert [row[:2] for row in found] == [
            (name, kinds[kind]) for name, kind in (each.split() for each in columns.split(", "))
        ]


def test_files_are_of_the_same_stretch_of_time_and_one_bid_of_a_hundred_is_very_late(folder: Path) -> None:
    late = 0
    for run in range(BIDS.runs):
        begin, end = (START + BIDS.span * at // BIDS.runs for at in (run, run + 1))
        for stream in STREAMS:
            rows = f"read_parquet({quoted(folder / stream / f'{stream}-{run:05d}.parquet')})"
            low = f"count_if(epoch_us(ts) < {begin - DISORDER})"
            early, latest, count = ask(f"SELECT {low}, max(epoch_us(ts)), count(*) FROM {rows}")
            assert end - DISORDER < latest <= end
            assert count == (BIDS.bids if stream == "bid" else BIDS.auctions) / BIDS.runs
            assert early == 0 or stream == "bid"
            late += early
    assert 0.008 < late / BIDS.bids < 0.012


def test_a_hot_auction_has_one_row_and_its_share_of_the_bids() -> None:
    hot = Auctions(20_000, 10, late=0, hot=0.5)
    share = f"SELECT avg((auction = 0)::INT) FROM ({rows_sql('bid', hot, 0, hot.bids)})"
    assert 0.45 < ask(share) < 0.55
    assert ask(f"SELECT count_if(id = 0) FROM ({rows_sql('auction', hot, 0, hot.auctions)})") == 1


def test_too_few_bids_are_refused() -> None:
    with pytest.raises(ValueError, match="400 bids do not fill 40 runs"):
        Auctions(400, 40)


@pytest.mark.parametrize("join", joins.JOINS)
def test_answers_are_compared_pair_by_pair(tmp_path: Path, join: joins.Join) -> None:
    files = generate(tmp_path / "all", Auctions(2_000, 2, span=MINUTE, late=0))
    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for stream, paths in files.items():
            duck.execute(f"CREATE VIEW {stream} AS FROM read_parquet([{', '.join(map(quoted, paths))}])")
        numbered = f"(SELECT *, row_number() OVER () AS n FROM ({join.truth(join.size)}))"
        # One pair with another seller, one that is not there.
        changed = f"SELECT auction, price, seller + (n = 1)::BIGINT AS seller, moment FROM {numbered} WHERE n <> 2"
        for name, text in (("same", join.truth(join.size)), ("other", changed)):
            (tmp_path / name).mkdir()
            duck.execute(f"COPY ({text}) TO {quoted(tmp_path / name / 'rows.parquet')} (FORMAT parquet)")
    pairs, *differing = joins._compared(join, files, tmp_path / "same")
    assert 500 < pairs <= 2_000 and differing == [0, 0]
    assert joins._compared(join, files, tmp_path / "other") == (pairs, 2, 1)


def test_chunks_are_minutes_in_whole_files_and_some_packets_get_lost(tmp_path: Path) -> None:
    files = epochs.generate(tmp_path, epochs.Chunks(1_000, 3, 5))
    assert [len(paths) for paths in files.values()] == [15, 15]
    for chunk in range(3):
        one, other = (
            f"read_parquet([{', '.join(map(quoted, paths[5 * chunk : 5 * chunk + 5]))}])" for paths in files.values()
        )
        minutes = f"SELECT count(*), min(epoch_us(ts) // {MINUTE}), max(epoch_us(ts) // {MINUTE}) FROM {one}"
        assert ask(minutes) == (1_000, START // MINUTE + chunk, START // MINUTE + chunk)
        found = "count(*), min(b.t_rt - a.t_rt), count_if(a.ts <> b.ts)"
        count, least, apart = ask(f"SELECT {found} FROM {one} AS a JOIN {other} AS b USING (pid)")
        assert 960 <= count < 1_000 and least > 0 and apart == 0
