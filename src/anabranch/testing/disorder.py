"""Streams in disorder: the same rows, in the order in which a band, a cache, a slow source or an outage brings them.

Each function takes rows (or a count n, which stands for the rows 0 to n - 1), a seed where something is left to chance,
and how bad the disorder is, and gives `Arrival`s in the order in which they come. Rows are not changed, and but for a
lull none is lost. `time` says what the event time of a row is; if it is not given, a row is its own. Times are numbers
or datetimes, and lengths of time are numbers or timedeltas to match.

    >>> [each.payload for each in band(8, seed=1, most=3)]
    [0, 1, 3, 2, 4, 5, 6, 7]

With `punctuate`, there is also a punctuation for every multiple of a length of time, from each source: the word that
none of its rows with a lower time comes any more. It comes as early as it is true and its time is over.

    >>> for each in band(4, seed=0, most=3, punctuate=2):
    ...     print("no more before" if each.punctuation else "row", each.time)
    row 0
    row 2
    row 1
    no more before 2
    row 3
    no more before 4

Nothing here knows the engine: `Harness.insert` takes the rows, `Harness.advance` the punctuations.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

#: A number or a datetime; and the distance of two of them.
Time = Any
Length = Any
Rows = int | Iterable[Any]
Source = TypeVar("Source", bound=Hashable)


class Arrival(NamedTuple):
    """A row that comes, or a punctuation.

    at:      when it comes, on the axis of event time: never before the time of the row.
    time:    the event time of the row; of a punctuation, the time before which nothing comes any more.
    payload: the row.
    source:  where it comes from, if there are several.
    """

    at: Time
    time: Time
    payload: Any = None
    source: Hashable = None
    punctuation: bool = False


def itself(row: Any) -> Any:
    """The time of rows that are nothing but a time."""
    return row


def band(
    rows: Rows, seed: int, most: Length, *, time: Callable[[Any], Time] = itself, punctuate: Length | None = None
) -> Iterator[Arrival]:
    """Every row comes with a delay of its own, up to `most`.

    >>> max(each.at - each.time for each in band(1000, seed=1, most=5)) <= 5
    True
    """
    chance = random.Random(seed)
    arrivals = (Arrival(at + chance.random() * most, at, row) for at, row in _in_time(rows, time))
    return _with_punctuation(sorted(arrivals, key=_at), punctuate)


def block_sorted(rows: Rows, seed: int, length: Length, *, time: Callable[[Any], Time] = itself) -> Iterator[Arrival]:
    """Time is cut into blocks of one length; the rows of a block come together at its end, shuffled.

    So does a router which keeps what it counts in a cache and sends all of it every minute. A punctuation follows each
    block.

    >>> [each.time if not each.punctuation else "|" for each in block_sorted(6, seed=1, length=3)]
    [1, 2, 0, '|', 5, 3, 4, '|']
    """
    chance = random.Random(seed)
    blocks: dict[Time, list[Arrival]] = {}
    for at, row in _in_time(rows, time):
        end = _floor(at, length) + length
        blocks.setdefault(end, []).append(Arrival(end, at, row))
    for block in blocks.values():
        chance.shuffle(block)
    return _with_punctuation([each for block in blocks.values() for each in block], length)


def skewed(
    rows: Rows,
    seed: int,
    behind: Mapping[Source, Length],
    *,
    time: Callable[[Any], Time] = itself,
    punctuate: Length | None = None,
) -> Iterator[Arrival]:
    """Several sources, each in order, some of them behind by a fixed length of time.

    A row comes from one of the sources, by chance.

    >>> [f"{each.source}{each.time}" for each in skewed(8, seed=2, behind={"a": 0, "b": 3})]
    ['a0', 'a1', 'a2', 'a4', 'b3', 'a7', 'b5', 'b6']
    """
    arrivals = [
        Arrival(at + behind[source], at, row, source) for source, at, row in _dealt(rows, seed, tuple(behind), time)
    ]
    return _with_punctuation(sorted(arrivals, key=_at), punctuate, tuple(behind))


def late_source(
    rows: Rows,
    seed: int,
    away: Mapping[Source, tuple[Time, Time] | None],
    *,
    time: Callable[[Any], Time] = itself,
    punctuate: Length | None = None,
) -> Iterator[Arrival]:
    """Several sources, some of which are away from one time to another.

    Nothing comes from a source that is away; when it is back it first brings what it has missed, in order. One that is
    away from the beginning starts late. A row comes from one of the sources, by chance.

    >>> [f"{each.source}{each.time}" for each in late_source(9, seed=2, away={"a": None, "b": (2, 6)})]
    ['a0', 'a1', 'a2', 'a4', 'b3', 'b5', 'b6', 'a7', 'a8']
    """
    arrivals = []
    for source, at, row in _dealt(rows, seed, tuple(away), time):
        left, back = away[source] or (at, at)
        arrivals.append(Arrival(back if left <= at < back else at, at, row, source))
    return _with_punctuation(sorted(arrivals, key=_at), punctuate, tuple(away))


def lull(
    rows: Rows,
    silent: tuple[Time, Time],
    *,
    time: Callable[[Any], Time] = itself,
    punctuate: Length | None = None,
) -> Iterator[Arrival]:
    """Nothing happens from one time to another: rows of that stretch are left out, all others come in order.

    Punctuation goes on meanwhile, if there is any: a stream that is silent is not one that is stuck.

    >>> [each.time if not each.punctuation else "|" for each in lull(8, silent=(2, 6), punctuate=2)]
    [0, 1, '|', '|', 6, '|', 7, '|']
    """
    heard = [Arrival(at, at, row) for at, row in _in_time(rows, time) if not silent[0] <= at < silent[1]]
    return _with_punctuation(heard, punctuate)


# ------------------------------------------------------------------------------------------------ the parts

_at = itemgetter(0)


def _in_time(rows: Rows, time: Callable[[Any], Time]) -> list[tuple[Time, Any]]:
    given = range(rows) if isinstance(rows, int) else rows
    return sorted(((time(row), row) for row in given), key=itemgetter(0))


def _dealt(
    rows: Rows, seed: int, sources: tuple[Source, ...], time: Callable[[Any], Time]
) -> Iterator[tuple[Source, Time, Any]]:
    """Each row with the source it comes from."""
    chance = random.Random(seed)
    for at, row in _in_time(rows, time):
        yield chance.choice(sources), at, row


def _floor(time: Time, length: Length) -> Time:
    """The last multiple of a length that is not after a time; counted from zero, or from the Unix epoch."""
    origin = datetime(1970, 1, 1, tzinfo=time.tzinfo) if isinstance(time, datetime) else 0
    return origin + (time - origin) // length * length


def _with_punctuation(
    arrivals: list[Arrival], length: Length | None, sources: tuple[Hashable, ...] = (None,)
) -> Iterator[Arrival]:
    if length is None or not arrivals:
        return iter(arrivals)
    times = [each.time for each in arrivals]
    words = [_punctuations(source, arrivals, _floor(min(times), length), max(times), length) for source in sources]
    return heapq.merge(arrivals, *words, key=lambda each: (each.at, each.punctuation))


def _punctuations(
    source: Hashable, arrivals: list[Arrival], first: Time, last: Time, length: Length
) -> Iterator[Arrival]:
    """For each multiple of a length the word that all before it has come; the last is after all rows."""
    waiting = sorted((each for each in arrivals if each.source == source), key=itemgetter(1), reverse=True)
    bound = at = first
    while bound <= last:
        bound = bound + length
        while waiting and waiting[-1].time < bound:
            at = max(at, waiting.pop().at)
        at = max(at, bound)
        yield Arrival(at, bound, source=source, punctuation=True)
