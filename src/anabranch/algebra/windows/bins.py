"""Strategies for windows that end at rows, as plain models that the engine is tested against.

The windows are known only as rows arrive, so the state of a row is keyed by the range of values at which windows that
hold it may end. No row is held, and none has to wait for others.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce
from typing import TypeVar

from anabranch.algebra.windows.base import Row
from anabranch.algebra.windows.by_tuple import SlideByTuple
from anabranch.algebra.windows.strategies import Fold, Punctuation, Results, Strategy

P = TypeVar("P")


class _ByTuple(Strategy[P]):
    """The base of strategies for windows that end at rows: the values at which windows end. Keys are ignored."""

    def __init__(self, windows: SlideByTuple, fold: Fold[P]) -> None:
        self.windows = windows
        self.fold = fold
        #: The arrival numbers of rows above progress, by value.
        self.numbers: dict[int, list[int]] = {}
        self._passed = 0

    @abstractmethod
    def value_at(self, wid: int) -> P:
        """The aggregate of a window that ends here, over the rows so far."""

    @abstractmethod
    def _count(self, row: Row) -> None: ...

    @abstractmethod
    def _purge(self, progress: int) -> None: ...

    def add(self, row: Row) -> Results[P]:
        self._count(row)
        self.numbers.setdefault(row.value, []).append(row.number)
        return {}

    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        results: Results[P] = {}
        for wid in sorted(wid for wid in self.numbers if wid < punctuation.value):
            if self._ends_at(self.numbers.pop(wid)):
                results[wid, None] = self.value_at(wid)
        self._purge(punctuation.value)
        return results

    def _ends_at(self, numbers: list[int]) -> bool:
        """Whether a window ends at the next value, where rows with these numbers are."""
        before, self._passed = self._passed, self._passed + len(numbers)
        if self.windows.order == "rank":
            return before // self.windows.every < self._passed // self.windows.every
        return any((number + 1) % self.windows.every == 0 for number in numbers)


class Bins(_ByTuple[P]):
    """Two bins for each row, for any aggregate: where windows begin to hold it, and where they stop.

    The partial of a bin is that of every window which ends between it and the next bin.
    """

    def __init__(self, windows: SlideByTuple, fold: Fold[P]) -> None:
        super().__init__(windows, fold)
        self.bins: dict[int, P] = {}

    def value_at(self, wid: int) -> P:
        before = [at for at in self.bins if at <= wid]
        return self.bins[max(before)] if before else self.fold.zero

    def _count(self, row: Row) -> None:
        first, stop = row.value, row.value + self.windows.size
        made = {at: self.value_at(at) for at in (first, stop)}
        self.bins.update(made)
        for at in self.bins:
            if first <= at < stop:
                self.bins[at] = self.fold.merge(self.bins[at], self.fold.lift(row))

    def _purge(self, progress: int) -> None:
        # The last bin at or before progress is the value of windows that end soon after it: it is kept.
        base = max((at for at in self.bins if at <= progress), default=progress)
        self.bins = {at: partial for at, partial in self.bins.items() if at >= base}

    @property
    def held(self) -> int:
        return len(self.bins)


class Deltas(_ByTuple[P]):
    """A row is added where windows begin to hold it and subtracted where they stop; a window is a sum of these.

    Needs an aggregate that can be subtracted. Deltas may be added in any order and grouping.
    """

    def __init__(self, windows: SlideByTuple, fold: Fold[P]) -> None:
        super().__init__(windows, fold)
        self.subtract = fold.difference()
        self.base = fold.zero
        self.deltas: dict[int, P] = {}

    def value_at(self, wid: int) -> P:
        return reduce(self.fold.merge, (delta for at, delta in self.deltas.items() if at <= wid), self.base)

    def _count(self, row: Row) -> None:
        lifted = self.fold.lift(row)
        for at, change in ((row.value, self.fold.merge), (row.value + self.windows.size, self.subtract)):
            self.deltas[at] = change(self.deltas.get(at, self.fold.zero), lifted)

    def _purge(self, progress: int) -> None:
        self.base = self.value_at(progress)
        self.deltas = {at: delta for at, delta in self.deltas.items() if at > progress}

    @property
    def held(self) -> int:
        return 1 + len(self.deltas)
