"""Disorder on purpose: the same rows in another order, as far out of order as was asked for, and true punctuations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch.testing
from anabranch.testing import Arrival, band, block_sorted, late_source, lull, skewed

TIMES = st.lists(st.integers(-50, 200), max_size=60)
SEEDS = st.integers(0, 1000)
#: Every way that keeps all rows, of rows that are times; in each of them a row comes at most so long after its time.
WAYS: dict[str, tuple[Callable[[Any, int], Iterator[Arrival]], int]] = {
    "band": (lambda rows, seed: band(rows, seed, 7, punctuate=10), 7),
    "blocks": (lambda rows, seed: block_sorted(rows, seed, 15), 15),
    "skew": (lambda rows, seed: skewed(rows, seed, {"a": 0, "b": 4, "c": 30}, punctuate=10), 30),
    "outage": (lambda rows, seed: late_source(rows, seed, {"a": None, "b": (20, 60)}, punctuate=10), 40),
    "late start": (lambda rows, seed: late_source(rows, seed, {"a": None, "b": (-50, 0)}, punctuate=10), 50),
}
every_way = pytest.mark.parametrize("way", WAYS)


def rows_of(arrivals: Iterator[Arrival]) -> list[Arrival]:
    return [each for each in arrivals if not each.punctuation]


def test_the_harness_and_the_disorder_have_one_door() -> None:
    assert all(hasattr(anabranch.testing, name) for name in anabranch.testing.__all__)


@every_way
@given(times=TIMES, seed=SEEDS)
def test_all_rows_come_once_and_not_changed(way: str, times: list[int], seed: int) -> None:
    rows = [(time, number) for number, time in enumerate(times)]
    make = {
        "band": lambda: band(rows, seed, 7, time=itemgetter(0)),
        "blocks": lambda: block_sorted(rows, seed, 15, time=itemgetter(0)),
        "skew": lambda: skewed(rows, seed, {"a": 0, "b": 4}, time=itemgetter(0)),
    }.get(way, lambda: late_source(rows, seed, {"a": None, "b": (20, 60)}, time=itemgetter(0)))
    arrived = rows_of(make())
    assert sorted(each.payload for each in arrived) == sorted(rows)
    assert all(each.time == each.payload[0] for each in arrived)


@every_way
@given(times=TIMES, seed=SEEDS)
def test_no_row_comes_before_its_time_or_later_than_asked_for(way: str, times: list[int], seed: int) -> None:
    make, most = WAYS[way]
    arrived = list(make(times, seed))
    assert all(0 <= each.at - each.time <= most for each in arrived if not each.punctuation)
    assert [each.at for each in arrived] == sorted(each.at for each in arrived)
    highest = -1000
    for each in rows_of(iter(arrived)):
        highest = max(highest, each.time)
        assert highest - each.time <= most


@every_way
@given(times=TIMES, seed=SEEDS)
def test_no_row_breaks_the_word_of_its_source(way: str, times: list[int], seed: int) -> None:
    arrived = list(WAYS[way][0](times, seed))
    bounds: dict[Any, int] = {}
    for each in arrived:
        if each.punctuation:
            assert each.at >= each.time and each.time > bounds.get(each.source, -1000)
            bounds[each.source] = each.time
        else:
            assert each.time >= bounds.get(each.source, -1000)
    assert all(bound > max(times) for bound in bounds.values())
    assert set(bounds) >= {each.source for each in arrived}


@every_way
def test_a_seed_gives_the_same_again_and_another_something_else(way: str) -> None:
    make, _ = WAYS[way]
    assert list(make(200, 3)) == list(make(200, 3))
    assert list(make(200, 3)) != list(make(200, 4))


@given(times=TIMES, seed=SEEDS)
def test_blocks_come_one_after_the_other(times: list[int], seed: int) -> None:
    blocks = [each.time // 15 for each in rows_of(block_sorted(times, seed, 15))]
    assert blocks == sorted(blocks)


def test_blocks_are_shuffled_inside() -> None:
    first = [each.time for each in rows_of(block_sorted(100, 1, 50))][:50]
    assert sorted(first) == list(range(50)) != first


@given(times=TIMES, seed=SEEDS)
def test_skewed_sources_are_in_order_each_and_behind_by_as_much_as_asked_for(times: list[int], seed: int) -> None:
    behind = {"a": 0, "b": 25}
    arrived = rows_of(skewed(times, seed, behind))
    for source, length in behind.items():
        of_source = [each for each in arrived if each.source == source]
        assert [each.time for each in of_source] == sorted(each.time for each in of_source)
        assert all(each.at - each.time == length for each in of_source)


def test_a_source_that_is_away_is_silent_and_brings_everything_when_it_is_back() -> None:
    arrived = rows_of(late_source(100, 1, {"a": None, "b": (30, 70)}))
    of_b = [each for each in arrived if each.source == "b"]
    assert not [each for each in of_b if 30 <= each.at < 70]
    assert {each.time for each in of_b if each.at == 70} == {each.time for each in of_b if 30 <= each.time <= 70}
    assert [each.time for each in of_b] == sorted(each.time for each in of_b)


@given(times=TIMES)
def test_in_a_lull_nothing_happens_but_punctuation(times: list[int]) -> None:
    arrived = list(lull(times, (20, 60), punctuate=5))
    assert [each.time for each in arrived if not each.punctuation] == sorted(t for t in times if not 20 <= t < 60)
    heard = [time for time in times if not 20 <= time < 60]
    if heard and min(heard) < 20 and max(heard) >= 60:
        assert [each.time for each in arrived if 20 < each.at < 60] == [25, 30, 35, 40, 45, 50, 55]


def test_times_may_be_datetimes() -> None:
    noon = datetime(2026, 1, 1, 12)
    rows = [(number, noon + timedelta(seconds=number)) for number in range(100)]
    minute = timedelta(minutes=1)
    arrived = list(block_sorted(rows, 1, minute, time=itemgetter(1)))
    assert [each.time for each in arrived if each.punctuation] == [noon + minute, noon + 2 * minute]
    late = list(band(rows, 1, timedelta(seconds=5), time=itemgetter(1)))
    assert max(each.at - each.time for each in late) <= timedelta(seconds=5)
    assert sorted(each.payload for each in late) == rows
