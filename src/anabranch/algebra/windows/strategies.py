"""Strategies to compute windowed aggregates, as plain models that the engine is tested against.

A strategy takes rows and punctuation in arrival order, and returns the results that become final: (window id, key) and
the aggregate. All strategies return the results of `answers`, which only uses extents, as long as no row violates a
punctuation; over sliding windows, a row that does counts in those of its windows that are still open. They differ in
state and work. These models are written for readability, not speed.

`by_rank` turns rows of partitioned windows into input of a strategy; `bins` has those for windows that end at rows.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from math import inf
from typing import Any, Generic, Literal, TypeVar

from anabranch.algebra.windows.base import Row, WindowType, ranks
from anabranch.algebra.windows.costs import Thresholds
from anabranch.algebra.windows.landmark import Landmark
from anabranch.algebra.windows.sliding import SlidingWindows

P = TypeVar("P")
Results = dict[tuple[Any, Hashable], P]


@dataclass(frozen=True)
class Punctuation:
    """A promise that no later row has a value below this one: for the given keys, or for all."""

    value: int
    keys: tuple[Hashable, ...] | None = None


@dataclass(frozen=True)
class Fold(Generic[P]):
    """An aggregate: the partial of no rows, of one row, the sum of two partials, and if possible their difference."""

    zero: P
    lift: Callable[[Row], P]
    merge: Callable[[P, P], P]
    subtract: Callable[[P, P], P] | None = None

    def of(self, rows: Iterable[Row]) -> P:
        """The partial of some rows."""
        return reduce(self.merge, map(self.lift, rows), self.zero)

    def difference(self) -> Callable[[P, P], P]:
        """The subtraction of partials; raises if there is none."""
        if self.subtract is None:
            raise ValueError("this aggregate cannot be subtracted: rows cannot be removed from it")
        return self.subtract


COUNT: Fold[int] = Fold(0, lambda row: 1, operator.add, operator.sub)


def answers(windows: WindowType[Any], rows: Sequence[Row], fold: Fold[P]) -> Results[P]:
    """The aggregate of each window and key, from the extents: the reference for all strategies.

    >>> answers(SlidingWindows(4, 4), [Row(1, 0), Row(5, 1), Row(6, 2)], COUNT)
    {(0, None): 1, (1, None): 2}
    """
    results = {}
    for wid in windows.windows(rows):
        extent = windows.extent(wid, rows)
        for key in {row.key for row in extent}:
            results[wid, key] = fold.of(row for row in extent if row.key == key)
    return results


def by_rank(rows: Sequence[Row]) -> Iterator[Row | Punctuation]:
    """Rows of partitioned windows: their rank in place of their value, and after each the progress of its key.

    >>> list(by_rank([Row(7, 0, "a")]))
    [Row(value=0, number=0, key='a', columns=()), Punctuation(value=1, keys=('a',))]
    """
    placed = ranks(rows)
    for row in rows:
        rank = placed[row.number]
        yield Row(rank, row.number, row.key)
        yield Punctuation(rank + 1, (row.key,))


class Strategy(ABC, Generic[P]):
    """A strategy to compute the aggregates of windows."""

    @abstractmethod
    def add(self, row: Row) -> Results[P]:
        """Take a row; returns the results that it makes final."""

    @abstractmethod
    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        """Take a punctuation; returns the results that it makes final."""

    @property
    @abstractmethod
    def held(self) -> int:
        """The number of rows and partials held."""

    def run(self, steps: Iterable[Row | Punctuation]) -> list[Results[P]]:
        """The results of each step."""
        return [self.add(step) if isinstance(step, Row) else self.punctuate(step) for step in steps]


class _OverSliding(Strategy[P]):
    """The base of strategies for sliding windows: the progress of each key."""

    def __init__(self, windows: SlidingWindows, fold: Fold[P]) -> None:
        self.windows = windows
        self.fold = fold
        self._everywhere: float = -inf
        self._of_key: dict[Hashable, int] = {}

    def first_open(self, key: Hashable) -> float:
        """The first window of a key that is still open."""
        return max(self._everywhere, self._of_key.get(key, -inf))

    def open_wids(self, row: Row) -> list[int]:
        """The windows of a row that are still open."""
        return [wid for wid in self.windows.at(row.value) if wid >= self.first_open(row.key)]

    def _advance(self, punctuation: Punctuation) -> None:
        first = self.windows.closed_before(punctuation.value)
        if punctuation.keys is None:
            self._everywhere = max(self._everywhere, first)
        else:
            self._of_key.update((key, max(first, self._of_key.get(key, first))) for key in punctuation.keys)

    def _count(self, results: dict[Any, P], at: Any, partial: P) -> None:
        results[at] = self.fold.merge(results.get(at, self.fold.zero), partial)


class ByWindow(_OverSliding[P]):
    """One partial for each open window and key. A row is counted in each of its windows on arrival."""

    def __init__(self, windows: SlidingWindows, fold: Fold[P]) -> None:
        super().__init__(windows, fold)
        self.partials: Results[P] = {}

    def add(self, row: Row) -> Results[P]:
        for wid in self.open_wids(row):
            self._count(self.partials, (wid, row.key), self.fold.lift(row))
        return {}

    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        self._advance(punctuation)
        return {at: self.partials.pop(at) for at in list(self.partials) if at[0] < self.first_open(at[1])}

    @property
    def held(self) -> int:
        return len(self.partials)


class ByPane(_OverSliding[P]):
    """One partial for each pane and key. A row is counted once; a window is the sum of its panes when it closes.

    With an aggregate that can be subtracted, a window is the difference of two running totals.
    """

    def __init__(self, windows: SlidingWindows, fold: Fold[P]) -> None:
        super().__init__(windows, fold)
        self.panes: Results[P] = {}

    def add(self, row: Row) -> Results[P]:
        if self.open_wids(row):
            self._count(self.panes, (self.windows.pane(row.value), row.key), self.fold.lift(row))
        return {}

    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        before = {key: self.first_open(key) for _, key in self.panes}
        self._advance(punctuation)
        results: Results[P] = {}
        for key, since in before.items():
            panes = sorted(pane for pane, of in self.panes if of == key)
            totals = list(
                accumulate((self.panes[pane, key] for pane in panes), self.fold.merge, initial=self.fold.zero)
            )
            for wid in {wid for pane in panes for wid in self.windows.pane_windows(pane)}:
                if since <= wid < self.first_open(key):
                    low, high = (bisect_left(panes, bound) for bound in self.windows.bounds(wid))
                    if self.fold.subtract is not None:
                        results[wid, key] = self.fold.subtract(totals[high], totals[low])
                    else:
                        partials = (self.panes[pane, key] for pane in panes[low:high])
                        results[wid, key] = reduce(self.fold.merge, partials, self.fold.zero)
        for pane, key in list(self.panes):
            if self.windows.pane_windows(pane)[-1] < self.first_open(key):
                del self.panes[pane, key]
        return results

    @property
    def held(self) -> int:
        return len(self.panes)


class ByPrefix(Strategy[P]):
    """Landmark windows: one partial for each slide that is open, and one running total for each key.

    A window that no row has opened yet has its result when a later row arrives, since it exists only then.
    """

    def __init__(self, windows: Landmark, fold: Fold[P]) -> None:
        self.windows = windows
        self.fold = fold
        self.slides: dict[int, dict[Hashable, P]] = {}
        self.totals: dict[Hashable, P] = {}
        self._next: int | None = None

    def add(self, row: Row) -> Results[P]:
        slide = self.windows.closed_before(row.value)
        if self._next is not None:
            slide = max(slide, self._next)
        partials = self.slides.setdefault(slide, {})
        partials[row.key] = self.fold.merge(partials.get(row.key, self.fold.zero), self.fold.lift(row))
        return {}

    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        if not self.slides:
            return {}
        results: Results[P] = {}
        first = min(self.slides) if self._next is None else self._next
        closed = min(self.windows.closed_before(punctuation.value), max(self.slides) + 1)
        for wid in range(first, closed):
            for key, partial in self.slides.pop(wid, {}).items():
                self.totals[key] = self.fold.merge(self.totals.get(key, self.fold.zero), partial)
            results.update({(wid, key): total for key, total in self.totals.items()})
            self._next = wid + 1
        return results

    @property
    def held(self) -> int:
        return len(self.totals) + sum(map(len, self.slides.values()))


class Buffering(_OverSliding[P]):
    """All rows of open windows are held; a window is computed when it closes.

    With `slack`, rows themselves move progress: to the highest value so far, less the slack. A row that is too
    late for some of its windows is dropped from those ("generous") or from all its windows ("consistent").
    """

    def __init__(
        self,
        windows: SlidingWindows,
        fold: Fold[P],
        slack: int | None = None,
        late: Literal["generous", "consistent"] = "generous",
    ) -> None:
        super().__init__(windows, fold)
        if slack is not None and slack < 0:
            raise ValueError(f"slack must not be negative, but is {slack}")
        self.slack = slack
        self.late = late
        self.rows: list[Row] = []

    def add(self, row: Row) -> Results[P]:
        wids = self.open_wids(row)
        if wids and (self.late == "generous" or len(wids) == len(self.windows.at(row.value))):
            self.rows.append(row)
        if self.slack is None or self.windows.closed_before(row.value - self.slack) <= self._everywhere:
            return {}
        return self.punctuate(Punctuation(row.value - self.slack))

    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        open_before = [(row, self.open_wids(row)) for row in self.rows]
        self._advance(punctuation)
        results: Results[P] = {}
        for row, wids in open_before:
            for wid in wids:
                if wid < self.first_open(row.key):
                    self._count(results, (wid, row.key), self.fold.lift(row))
        self.rows = [row for row in self.rows if self.open_wids(row)]
        return results

    @property
    def held(self) -> int:
        return len(self.rows)


@dataclass
class _Group(Generic[P]):
    eager: bool = False
    volume: int = 0
    partials: dict[int, P] = field(default_factory=dict)
    #: The number of rows in the partials by their last window.
    ending: Counter[int] = field(default_factory=Counter)


class Adaptive(_OverSliding[P]):
    """Small groups hold their rows, large ones a partial for each open window; a group can change.

    A group is large once more than `up` of its rows are in open windows, and small again once fewer than `down` are.
    A group that becomes small keeps its partials until their windows close; until then a result combines both.
    """

    def __init__(self, windows: SlidingWindows, fold: Fold[P], up: float, down: float) -> None:
        super().__init__(windows, fold)
        self.thresholds = Thresholds(up, down)
        self.rows: list[Row] = []
        self.groups: dict[Hashable, _Group[P]] = {}

    def add(self, row: Row) -> Results[P]:
        if not self.open_wids(row):
            return {}
        group = self.groups.setdefault(row.key, _Group())
        was, group.eager = group.eager, self.thresholds.large(group.eager, group.volume, 1)
        group.volume += 1
        if was:
            self._store(group, row)
            return {}
        self.rows.append(row)
        if group.eager:
            for each in self.rows:
                if each.key == row.key:
                    self._store(group, each)
            self.rows = [each for each in self.rows if each.key != row.key]
        return {}

    def _store(self, group: _Group[P], row: Row) -> None:
        wids = self.open_wids(row)
        for wid in wids:
            self._count(group.partials, wid, self.fold.lift(row))
        group.ending[wids[-1]] += 1

    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        open_before = [(row, self.open_wids(row)) for row in self.rows]
        self._advance(punctuation)
        results: Results[P] = {}
        for key, group in self.groups.items():
            for wid in [wid for wid in group.partials if wid < self.first_open(key)]:
                results[wid, key] = group.partials.pop(wid)
                group.volume -= group.ending.pop(wid, 0)
        for row, wids in open_before:
            for wid in wids:
                if wid < self.first_open(row.key):
                    self._count(results, (wid, row.key), self.fold.lift(row))
            self.groups[row.key].volume -= not self.open_wids(row)
        self.rows = [row for row in self.rows if self.open_wids(row)]
        self.groups = {key: group for key, group in self.groups.items() if group.volume}
        for group in self.groups.values():
            group.eager = self.thresholds.large(group.eager, group.volume, 0)
        return results

    @property
    def held(self) -> int:
        return len(self.rows) + sum(len(group.partials) for group in self.groups.values())
