"""The law for joins with versions: whatever comes late, each row has the version that a plain search finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan.view import View
from anabranch.testing import Harness, assert_same_rows, cuts, shuffled, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
engine = settings(settings.get_profile("engine"))

Row = tuple[Any, ...]
START = datetime(2026, 1, 1)
STREAMS = """
CREATE STREAM trades (id INT, k STRING, at TIMESTAMP);
CREATE STREAM calls (id INT, k STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 5 SECONDS);
CREATE STREAM quotes (k STRING, price INT, at TIMESTAMP, seen TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 5 SECONDS);
CREATE VIEW best AS SELECT k, seen, max(price) AS price FROM quotes GROUP BY k, seen
"""
AT, SEEN = 2, 3  # columns of quotes
BOUND = timedelta(seconds=3)

Fits = Callable[[datetime, datetime], bool]


def versions(trades: list[Row], quotes: list[Row], column: int, fits: Fits, keyed: bool = True) -> list[Row | None]:
    """The quote of each trade: the nearest in time that fits, and of several the greatest. NULL is less than all."""
    found: list[Row | None] = []
    for _, key, at in trades:
        best: tuple[Any, ...] | None = None
        chosen: Row | None = None
        for quote in quotes:
            same = not keyed or (key is not None and key == quote[0])
            if at is None or quote[column] is None or not same or not fits(at, quote[column]):
                continue
            rest = [value for index, value in enumerate(quote) if index != column]
            rank = (-abs(at - quote[column]), [(value is not None, value) for value in rest])
            if best is None or _greater(rank, best):
                best, chosen = rank, quote
        found.append(chosen)
    return found


def _greater(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    if one[0] != other[0]:
        return bool(one[0] > other[0])
    for (known, value), (other_known, other_value) in zip(one[1], other[1], strict=True):
        if known != other_known:
            return bool(known)
        if known and value != other_value:
            return bool(value > other_value)
    return False


def left(trades: list[Row], found: list[Row | None], *columns: int) -> list[Row]:
    pairs = zip(trades, found, strict=True)
    return [(trade[0], *(None if quote is None else quote[each] for each in columns)) for trade, quote in pairs]


def inner(trades: list[Row], found: list[Row | None], *columns: int) -> list[Row]:
    kept = [(trade, quote) for trade, quote in zip(trades, found, strict=True) if quote is not None]
    return [(trade[0], *(quote[each] for each in columns)) for trade, quote in kept]


def using(trades: list[Row], quotes: list[Row]) -> list[Row]:
    found = versions(trades, quotes, SEEN, lambda at, seen: at <= seen)
    near = [
        quote if quote is not None and quote[SEEN] - trade[2] <= timedelta(seconds=3) else None
        for trade, quote in zip(trades, found, strict=True)
    ]
    pairs = zip(trades, near, strict=True)
    return [(key, id, at, *(quote[1:] if quote else (None,) * 3)) for (id, key, at), quote in pairs]


def timed(trades: list[Row]) -> list[Row]:
    """Those that a stream with an event time takes."""
    return [trade for trade in trades if trade[2] is not None]


def near(trades: list[Row], quotes: list[Row], fits: Fits, keyed: bool = True) -> list[Row | None]:
    """The quote of each trade, unless it is more than three seconds away."""
    pairs = zip(trades, versions(trades, quotes, AT, fits, keyed), strict=True)
    return [quote if quote is None or abs(trade[2] - quote[AT]) <= BOUND else None for trade, quote in pairs]


def totals(trades: list[Row], quotes: list[Row]) -> list[Row]:
    sums: dict[Any, int] = {}
    for trade, quote in zip(trades, versions(trades, quotes, AT, lambda at, since: at >= since), strict=True):
        if quote is not None and quote[1] is not None:
            sums[trade[1]] = sums.get(trade[1], 0) + trade[0] * quote[1]
    return [row for row in sums.items() if row[1] != 0]


def best(trades: list[Row], quotes: list[Row]) -> list[Row]:
    """Versions that change: the best price of each moment."""
    prices: dict[tuple[Any, Any], Any] = {}
    for key, price, _, seen in quotes:
        known = prices.get((key, seen))
        prices[key, seen] = price if known is None else known if price is None else max(known, price)
    made: list[Row] = [(key, price, None, seen) for (key, seen), price in prices.items()]
    return left(trades, versions(trades, made, SEEN, lambda at, seen: at >= seen), 1)


#: Each question with the plain search that answers it.
QUESTIONS: dict[str, tuple[str, Callable[[list[Row], list[Row]], list[Row]]]] = {
    "latest": (
        "SELECT t.id, q.price, q.at FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.at >= q.seen) ON t.k = q.k",
        lambda t, q: left(t, versions(t, q, SEEN, lambda at, seen: at >= seen), 1, AT),
    ),
    "latest_kept": (
        "SELECT t.id, q.price, q.at FROM trades t ASOF LEFT JOIN quotes q ON t.k = q.k AND t.at >= q.seen EMIT CHANGES",
        lambda t, q: left(t, versions(t, q, SEEN, lambda at, seen: at >= seen), 1, AT),
    ),
    "before": (
        "SELECT t.id, q.*, upper(q.k) AS big FROM trades t ASOF JOIN quotes q ON q.k = t.k AND q.seen < t.at"
        " EMIT CHANGES",
        lambda t, q: [
            (*row, row[1].upper()) for row in inner(t, versions(t, q, SEEN, lambda at, seen: at > seen), 0, 1, 2, 3)
        ],
    ),
    "next_near": (
        "SELECT * FROM trades ASOF JOIN (SELECT k, price, at AS since, seen FROM quotes) q"
        " MATCH_CONDITION (trades.at <= q.seen) USING (k) TOLERANCE INTERVAL 3 SECONDS EMIT CHANGES",
        using,
    ),
    "of_any_key": (
        "SELECT t.id, q.price FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.at < q.seen) EMIT CHANGES",
        lambda t, q: left(t, versions(t, q, SEEN, lambda at, seen: at < seen, keyed=False), 1),
    ),
    "valid": (
        "SELECT t.id, q.* FROM trades t LEFT JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON t.k = q.k EMIT CHANGES",
        lambda t, q: left(t, versions(t, q, AT, lambda at, since: at >= since), 0, 1, 2, 3),
    ),
    "of_a_view": (
        "SELECT t.id, b.price FROM trades t ASOF JOIN best b MATCH_CONDITION (t.at >= b.seen) ON t.k = b.k"
        " EMIT CHANGES",
        best,
    ),
    "near": (
        "SELECT t.id, q.price, q.at FROM calls t ASOF JOIN quotes q MATCH_CONDITION (t.at >= q.at) ON t.k = q.k"
        " TOLERANCE INTERVAL 3 SECONDS EMIT CHANGES",
        lambda t, q: left(timed(t), near(timed(t), q, lambda at, since: at >= since), 1, AT),
    ),
    "just_behind": (
        "SELECT t.id, q.price, q.at FROM calls t ASOF JOIN quotes q"
        " ON t.at < q.at AND q.at - INTERVAL 3 SECONDS <= t.at EMIT CHANGES",
        lambda t, q: inner(timed(t), near(timed(t), q, lambda at, since: at < since, keyed=False), 1, AT),
    ),
    "valid_for_a_while": (
        "SELECT t.id, q.price FROM calls t JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON t.k = q.k"
        " TOLERANCE INTERVAL 3 SECONDS EMIT CHANGES",
        lambda t, q: inner(timed(t), near(timed(t), q, lambda at, since: at >= since), 1),
    ),
    "totals": (
        "SELECT t.k, sum(t.id * q.price) AS total FROM trades t"
        " JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON t.k = q.k"
        " GROUP BY t.k HAVING sum(t.id * q.price) <> 0 EMIT CHANGES",
        totals,
    ),
}
#: Those that are asked as queries of their own as well.
AD_HOC = ("latest", "next_near", "valid")


#: Those that bound how far a version can be, by event times.
NEAR = ("near", "just_behind", "valid_for_a_while")


def moment(chance: random.Random) -> datetime:
    """Now and then an hour ahead: what comes behind that is late."""
    ahead = 3600 if chance.random() < 0.05 else 0
    return START + timedelta(seconds=chance.randint(0, 12) + ahead, milliseconds=chance.choice((0, 0, 0, 1)))


def rows_held(home: Harness, times: dict[str, list[datetime]], come: dict[str, datetime]) -> None:
    """In memory are rows that one that comes in time can still meet; of versions, each change of their ends."""
    core = home.session._core
    catalog = core.catalog()
    for view in catalog.of(View):
        if (view.owner or view.id) in NEAR:
            assert view.join.bands and view.in_time, view.sql
            since = min(come.values()) - timedelta(seconds=5) - 2 * BOUND
            inside = sum(time >= since for each in times.values() for time in each)
            assert core.table_cache.rows_of(view.id) <= 4 * inside, view.sql


@settings(engine, max_examples=max(1, engine.max_examples // 8))
@given(st.integers(0, 10**6))
def test_each_row_has_the_version_of_its_time_in_any_order(spark: SparkSession, seed: int) -> None:
    """Late versions and late rows, equal times, NULL keys and times; between runs a compaction and another process."""
    chance = random.Random(seed)
    keys = [None, "a", "a", "b", "c"]
    trades: list[Row] = [(n, chance.choice(keys), chance.choice((None, *[moment(chance)] * 5))) for n in range(24)]
    quotes: list[Row] = [
        (
            chance.choice(keys),
            chance.choice((None, 1, 2, 3)),
            moment(chance),
            chance.choice((None, *[moment(chance)] * 5)),
        )
        for _ in range(24)
    ]
    mixed = shuffled([*(("trades", row) for row in trades), *(("quotes", row) for row in quotes)], chance)
    runs = list(cuts(mixed, random.Random(seed)))
    while len(runs) > 6:
        runs[:2] = [[*runs[0], *runs[1]]]
    times: dict[str, list[datetime]] = {"calls": [], "quotes": []}
    with Harness(None, spark) as home:
        home.sql(STREAMS)
        for name, (query, _) in QUESTIONS.items():
            home.sql(f"CREATE VIEW {name} AS {query}")
        for number, run in enumerate(runs):
            for stream in ("trades", "calls", "quotes"):
                rows = [row for owner, row in run if owner == {"calls": "trades"}.get(stream, stream)]
                rows = timed(rows) if stream == "calls" else rows
                come = {name: max(each, default=START) for name, each in times.items()}
                if rows:
                    home.insert(stream, rows)
                if rows and stream in times:
                    times[stream] += [row[2] for row in rows]
                    rows_held(home, times, come)
            if number == 2:
                home.compact()
            if number == 3:
                home.reopen()
        for name, (query, answer) in QUESTIONS.items():
            wanted = sorted_rows(answer(trades, quotes))
            shown = home.emitted(name) if "EMIT" in query else home.table(name)
            assert_same_rows(shown, wanted, f"{name}: {query}")
            if name in AD_HOC:
                asked = sorted_rows(home.query(query.replace("EMIT CHANGES", "")))
                assert_same_rows(asked, wanted, f"{name}, as a query")
