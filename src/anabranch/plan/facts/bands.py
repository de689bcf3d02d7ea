"""The bands of a join: how far apart the event times of its inputs are, by its conditions.

    r.ts BETWEEN s.ts - INTERVAL 2 MINUTES AND s.ts + INTERVAL 3 MINUTES
    r.ts >= s.ts AND r.ts < s.ts + INTERVAL 3 MINUTES
    TUMBLE(s, ts, INTERVAL 5 MINUTES) s JOIN TUMBLE(r, ts, INTERVAL 5 MINUTES) r ON s.window_start = r.window_start

Uses only conditions that must hold; `time_differences` reads a condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from anabranch.algebra.plane import Behind
from anabranch.algebra.windows import time_before_end
from anabranch.ir.expr import Column, Expr
from anabranch.ir.rel import Windowed
from anabranch.ir.select import FromItem, SelectBlock
from anabranch.plan.facts.time_differences import differences, follow

#: The event times of each relation of a FROM clause.
Times = Sequence[frozenset[Column]]


@dataclass(frozen=True)
class Band:
    """The range of the time of one relation minus that of another, of joined rows; None: unbounded."""

    one: Column
    other: Column
    least: int | None
    most: int | None


def find_bands(block: SelectBlock, times: Times) -> list[Band]:
    """The bands between the event times of any two relations of a join.

    They hold for joined rows: a row without a partner has no distance.
    """
    reach = Reach(block, times)
    found = []
    for first, second in combinations(range(len(block.sources)), 2):
        for one in reach.times(first):
            for other in reach.times(second):
                below, above = reach.most(other, one), reach.most(one, other)
                if below is not None or above is not None:
                    found.append(Band(one, other, None if below is None else -below, above))
    return found


class Reach:
    """The distances between columns of the relations of a join, in joined rows."""

    def __init__(self, block: SelectBlock, times: Times) -> None:
        self.block = block
        self._times = times
        self._known = list(_known(block))
        self._found: dict[tuple[int, int], dict[tuple[Column, Column], int]] = {}

    def times(self, index: int) -> list[Column]:
        """The event times of a relation."""
        return sorted(self._times[index], key=lambda column: column.name.lower())

    def most(self, one: Column, other: Column) -> int | None:
        """The most that the second column can be above the first; None: unbounded."""
        owners = sorted((self.block.owner[one], self.block.owner[other]))
        pair = owners[0], owners[1]
        if pair not in self._found:
            self._found[pair] = follow(_between(*pair, self.block, self._known))
        return 0 if one == other else self._found[pair].get((one, other))

    def behind(self, column: Column, index: int) -> tuple[Behind, ...]:
        """How far a column can be behind the event times of a relation."""
        found = []
        windowed = _along(self.block.sources[index])
        for time in self.times(index):
            name, most = time.name.lower(), self.most(column, time)
            found += [] if most is None else [Behind(name, most)]
            if windowed is not None and windowed.window.kind == "tumble" and windowed.along == time:
                window, most = windowed.window, self.most(column, windowed.bounds[0])
                found += [] if most is None else [Behind(name, most, window.size, window.offset % window.size)]
        return tuple(found)


@dataclass(frozen=True)
class _Known:
    """A bound of the second of two columns above the first; from WHERE, from a window, or from a join."""

    one: Column
    other: Column
    most: int
    where: bool = False


def _known(block: SelectBlock) -> Iterator[_Known]:
    if block.where is not None:
        yield from (_Known(*each, where=True) for each in _differences(block.where, block))
    for index, each in enumerate(block.sources):
        if each.on is not None:
            for one, other, most in _differences(each.on, block):
                # The ON of an outer join restricts only its optional rows: others come out whether it holds or not.
                if each.inner or index in (block.owner[one], block.owner[other]):
                    yield _Known(one, other, most)
        yield from _of_windows(each)


def _differences(condition: Expr, block: SelectBlock) -> Iterator[tuple[Column, Column, int]]:
    for each in differences(condition):
        if each.most is not None and each.one in block.owner and each.other in block.owner:
            yield each.one, each.other, each.most


def _between(first: int, second: int, block: SelectBlock, known: Iterable[_Known]) -> dict[tuple[Column, Column], int]:
    """The bounds that hold in all joined rows of two relations, also without optional rows of other relations."""
    sides = any(each.kind in ("right", "full") for each in block.sources)
    both = {first, second}
    there = both if sides else both | {index for index, each in enumerate(block.sources) if each.inner}
    counts = not sides and all(block.sources[index].inner for index in both)
    found: dict[tuple[Column, Column], int] = {}
    for each in known:
        if {block.owner[each.one], block.owner[each.other]} <= there and (counts or not each.where):
            pair = each.one, each.other
            found[pair] = min(found.get(pair, each.most), each.most)
    return found


def _of_windows(each: FromItem) -> Iterator[_Known]:
    """The bounds between the time of a row and its window."""
    windowed = _along(each)
    longest = windowed.window.type.longest if windowed is not None else None
    if windowed is None or longest is None or windowed.along is None:
        return
    windows, time = windowed.window.type, windowed.along
    start, end, last = windowed.bounds[:3]
    yield _Known(start, time, longest - 1)
    yield _Known(time, start, 0)
    yield _Known(time, end, longest)
    yield _Known(end, time, -1)
    before = time_before_end(windows.shortest)
    yield _Known(last, end, before)
    yield _Known(end, last, -before)
    if windows.uniform_length is not None:
        yield _Known(start, end, windows.uniform_length)
        yield _Known(end, start, -windows.uniform_length)


def _along(each: FromItem) -> Windowed | None:
    """The windows of a relation, where they follow from the time of the row alone, and that time is a column."""
    windowed = each.windowed
    if windowed is None or not windowed.window.by_row or windowed.window.rows:
        return None
    return windowed if windowed.along in windowed.kept else None
