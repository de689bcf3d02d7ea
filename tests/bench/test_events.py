"""The events of NEXMark: in its proportions, the same for the same seed, a little out of order; and its queries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch.bench import nexmark
from anabranch.bench.data import START, quoted
from anabranch.bench.events import DISORDER, SPAN, STREAMS, Events, generate, rows_sql
from bench.asking import ask

EVENTS = Events(20_000, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("events")
    generate(made, EVENTS)
    return made


def every(folder: Path, stream: str) -> str:
    return f"read_parquet({quoted(folder / stream / '*.parquet')}, filename = true)"


def test_three_auctions_to_forty_six_bids_and_ids_without_gaps(folder: Path) -> None:
    assert ask(f"SELECT count(*), count(DISTINCT id), min(id), max(id) FROM {every(folder, 'auction')}") == (
        1200, 1200, 1000, 2199,
    )  # fmt: skip
    assert ask(f"SELECT count(*), count(DISTINCT date_time) FROM {every(folder, 'bid')}") == (18_400, 18_400)


def test_the_columns_are_those_of_the_streams(folder: Path) -> None:
    for stream, columns in STREAMS.items():
        with duckdb.connect(":memory:") as duck:
            rows = f"read_parquet({quoted(folder / stream / '*.parquet')})"
            found = [(row[0], row[1]) for row in duck.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()]
        kinds = {"BIGINT": "BIGINT", "STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMP WITH TIME ZONE"}
        assert found == [(name, kinds[kind]) for name, kind in (each.split() for each in columns.split(", "))]


def test_every_run_has_rows_of_both_and_files_are_in_order(tmp_path: Path) -> None:
    for paths in generate(tmp_path, Events(20_000, 100)).values():
        assert len(paths) == 100
        assert all(ask(f"SELECT count(*) FROM read_parquet({quoted(path)})") for path in paths)
        times = [path.stat().st_mtime_ns for path in paths]
        assert times == sorted(set(times))


def test_times_span_the_same_and_arrive_a_little_out_of_order(folder: Path) -> None:
    low, high = ask(f"SELECT min(epoch_us(date_time)), max(epoch_us(date_time)) FROM {every(folder, 'bid')}")
    assert low >= START and high < START + SPAN and high - low > 0.99 * SPAN
    before = "max(epoch_us(date_time)) OVER (ORDER BY arrival) - epoch_us(date_time)"
    late, latest = ask(f"SELECT count_if(d > 0), max(d) FROM (SELECT {before} AS d FROM ({rows_sql('bid', EVENTS)}))")
    assert late > 1000 and latest <= SPAN / DISORDER


def test_bids_go_to_recent_auctions_and_many_of_them_in_time(folder: Path) -> None:
    auctions, bids = every(folder, "auction"), every(folder, "bid")
    pairs = f"{bids} AS b JOIN {auctions} AS a ON a.id = b.auction"
    assert ask(f"SELECT count(*), count_if(b.date_time < a.date_time) FROM {pairs}") == (18_400, 0)
    in_time = ask(f"SELECT count(*) FROM {pairs} WHERE b.date_time <= a.expires")
    assert 0.3 < in_time / 18_400 < 0.9


def test_the_same_seed_gives_the_same_events_and_another_others() -> None:
    def digest(events: Events) -> Any:
        return ask(f"SELECT sum(hash(auction, bidder, price, date_time, run)) FROM ({rows_sql('bid', events)})")

    assert digest(Events(5_000, 10)) == digest(Events(5_000, 10))
    assert digest(Events(5_000, 10)) != digest(Events(5_000, 10, seed=2))


def test_too_few_events_are_refused() -> None:
    with pytest.raises(ValueError, match="100 events do not fill 10 runs"):
        Events(100, 10)


def test_the_queries_are_those_of_the_suite() -> None:
    text = (Path(__file__).parents[1] / "nexmark" / "queries.sql").read_text(encoding="utf-8")
    suite = dict(re.findall(r"-- (q\d+)\n(.*?);\n", text, re.S))
    for name, query in nexmark.QUERIES.items():
        assert query.split() == suite[name].split()


def test_times_between_those_that_were_taken_are_interpolated() -> None:
    assert nexmark.interpolated({1: 1.0, 11: 2.0, 21: 2.0}) == pytest.approx(1 + 15.5 + 20)
