"""How far apart the event times of the two sides of a join are, as its conditions say.

    r.ts BETWEEN s.ts - INTERVAL 2 MINUTES AND s.ts + INTERVAL 3 MINUTES
    r.ts >= s.ts AND r.ts < s.ts + INTERVAL 3 MINUTES
    TUMBLE(s, ts, INTERVAL 5 MINUTES) s JOIN TUMBLE(r, ts, INTERVAL 5 MINUTES) r ON s.window_start = r.window_start

Only what must hold is looked at; how a condition is read, `distances` knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from anabranch.algebra.plane import Behind
from anabranch.algebra.windows import time_before_end
from anabranch.plan.catalog import WINDOW_COLUMNS
from anabranch.plan.distances import Apart, Column, differences, follow
from anabranch.plan.keys import INNER, Input
from anabranch.plan.windows import shortest
from anabranch.sql.lexer import Token
from anabranch.sql.syntax import Select

__all__ = ["Apart", "Place", "Reach", "differences", "find_bands", "place_of"]

Place = tuple[int, str]  # an input, and a column of it


def find_bands(
    select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str
) -> list[tuple[Place, Place, int | None, int | None]]:
    """How far apart the event times of any two inputs of a join are; None: as far as they like to that side.

    That is said of rows that meet: one that comes out without a partner has no distance.
    """
    reach = Reach(select, inputs, times, text)
    found = []
    for first, second in combinations(range(len(inputs)), 2):
        for one in reach.times(first):
            for other in reach.times(second):
                below, above = reach.most(other, one), reach.most(one, other)
                if below is not None or above is not None:
                    found.append((one, other, None if below is None else -below, above))
    return found


class Reach:
    """How far apart columns of the inputs of a join are, where rows of them meet."""

    def __init__(self, select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str) -> None:
        self.inputs = inputs
        self._times = [_own(each, own) for each, own in zip(inputs, times, strict=True)]
        self._known = list(_known(select, inputs, times, text))
        self._found: dict[tuple[int, int], dict[tuple[Place, Place], int]] = {}

    def times(self, index: int) -> list[Place]:
        """The event times of an input."""
        return [(index, name) for name in sorted(self._times[index])]

    def most(self, one: Place, other: Place) -> int | None:
        """How much a column is above another one at most; None: as much as it likes."""
        pair = min(one[0], other[0]), max(one[0], other[0])
        if pair not in self._found:
            self._found[pair] = follow(_between(*pair, self.inputs, self._known))
        return 0 if one == other else self._found[pair].get((one, other))

    def behind(self, place: Place, index: int) -> tuple[Behind, ...]:
        """How far a column is behind the event times of an input."""
        found = []
        for time in self.times(index):
            most = self.most(place, time)
            found += [] if most is None else [Behind(time[1], most)]
            window = self.inputs[index].relation.window
            along = _along(self.inputs[index], self._times[index])
            if window is not None and window.kind == "tumble" and along == time[1]:
                most = self.most(place, (index, "window_start"))
                found += [] if most is None else [Behind(time[1], most, window.size, window.offset % window.size)]
        return tuple(found)


def _own(each: Input, times: frozenset[str]) -> frozenset[str]:
    """Event times that can be named: the columns of a window hide those of the rows in it."""
    return times if each.relation.window is None else times - frozenset(WINDOW_COLUMNS)


@dataclass(frozen=True)
class _Known:
    """The second of two columns is at most so much above the first; from WHERE, from a window, or from a join."""

    one: Place
    other: Place
    most: int
    where: bool = False


def _known(select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str) -> Iterator[_Known]:
    if select.where is not None:
        for one, other, most in _told(select.where.tokens, inputs, text):
            yield _Known(one, other, most, where=True)
    for index, each in enumerate(inputs):
        tokens = each.relation.condition_tokens
        if tokens and tokens[0].upper == "ON":
            for one, other, most in _told(tokens[1:], inputs, text):
                # The ON of an outer join is about its own rows: others come out whether it holds or not.
                if each.relation.join in INNER or index in (one[0], other[0]):
                    yield _Known(one, other, most)
        for one, other in _using(inputs, index):
            yield from (_Known(one, other, 0), _Known(other, one, 0))
        for one, other, most in _of_windows(index, each, times[index]):
            yield _Known(one, other, most)


def _told(tokens: Sequence[Token], inputs: Sequence[Input], text: str) -> Iterator[tuple[Place, Place, int]]:
    for each in differences([tokens], text):
        one, other = place_of(each.one, inputs), place_of(each.other, inputs)
        if one is not None and other is not None and each.most is not None:
            yield one, other, each.most


def _between(
    first: int, second: int, inputs: Sequence[Input], known: Iterable[_Known]
) -> dict[tuple[Place, Place], int]:
    """What holds wherever rows of two inputs meet, whether those of others that an outer join adds are there or not."""
    joins = [each.relation.join for each in inputs]
    sides = any(word in join for join in joins for word in ("RIGHT", "FULL"))
    both = {first, second}
    there = both if sides else both | {index for index, join in enumerate(joins) if join in INNER}
    counts = not sides and all(joins[index] in INNER for index in both)
    found: dict[tuple[Place, Place], int] = {}
    for each in known:
        if {each.one[0], each.other[0]} <= there and (counts or not each.where):
            pair = each.one, each.other
            found[pair] = min(found.get(pair, each.most), each.most)
    return found


def _using(inputs: Sequence[Input], index: int) -> Iterator[tuple[Place, Place]]:
    """Columns that USING makes equal."""
    tokens = inputs[index].relation.condition_tokens
    if tokens and tokens[0].upper == "USING":
        for name in (token.name.lower() for token in tokens[1:] if token.is_name):
            owners = [earlier for earlier in range(index) if name in inputs[earlier].columns]
            if len(owners) == 1:
                yield (owners[0], name), (index, name)


def _of_windows(index: int, each: Input, times: frozenset[str]) -> Iterator[tuple[Place, Place, int]]:
    """Where the time of a row is in its window."""
    window, column = each.relation.window, _along(each, times)
    if window is None or window.own is not None or column is None:
        return
    time, start, end, last = ((index, name) for name in (column, "window_start", "window_end", "window_time"))
    yield start, time, window.size - 1
    yield time, start, 0
    yield time, end, window.size
    yield end, time, -1
    before = time_before_end(shortest(window))
    yield last, end, before
    yield end, last, -before
    if window.kind != "cumulate":
        yield start, end, window.size
        yield end, start, -window.size


def _along(each: Input, times: frozenset[str]) -> str | None:
    """The column of times by which a row is put into windows, where the row alone tells which."""
    window = each.relation.window
    if (
        window is None
        or not window.by_row
        or window.rows
        or window.attribute != "column"
        or each.relation.alias_columns
    ):
        return None
    column = window.time_column.lower() if window.time_column is not None else None
    if column is None and len(times) == 1:
        (column,) = times
    return None if column in WINDOW_COLUMNS else column


def place_of(name: Column, inputs: Sequence[Input]) -> Place | None:
    """The input that a column is of."""
    if len(name) == 1:
        owners = [index for index, each in enumerate(inputs) if name[0] in each.columns]
    else:
        owners = [index for index, each in enumerate(inputs) if each.exposed == name[0] and name[-1] in each.columns]
    return (owners[0], name[-1]) if len(owners) == 1 and len(name) <= 2 else None
