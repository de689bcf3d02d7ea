"""Windows over the rows of each key, in arrival order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from anabranch.algebra.windows.base import Context, Row, Rows, WindowType, ranks
from anabranch.algebra.windows.sliding import SlidingWindows


@dataclass(frozen=True)
class Partitioned(WindowType[tuple[int, Hashable]]):
    """Sliding windows over the ranks of rows: the rows of each key are counted from 0 in order of arrival.

    Bounds and progress are ranks: the progress of a key is the number of its rows so far.

    >>> rows = [Row(0, 0, "a"), Row(0, 1, "b"), Row(0, 2, "a")]
    >>> Partitioned(SlidingWindows(2, 2)).wids(rows[2], rows)
    [(0, 'a')]
    """

    context: ClassVar[Context] = "FCF"
    closes_by_progress: ClassVar[bool] = False  # the rows of the key do

    inner: SlidingWindows

    @property
    def shortest(self) -> int:
        return self.inner.size

    def wids(self, row: Row, rows: Sequence[Row]) -> list[tuple[int, Hashable]]:
        """The inner windows of the row's rank, with its key."""
        return [(wid, row.key) for wid in self.inner.at(ranks(rows)[row.number])]

    def bounds(self, wid: tuple[int, Hashable], rows: Sequence[Row] = ()) -> tuple[int, int]:
        """The bounds of the inner window, in ranks."""
        return self.inner.bounds(wid[0])

    def extent(self, wid: tuple[int, Hashable], rows: Sequence[Row]) -> list[Row]:
        """The rows of the key with a rank between the bounds."""
        start, end = self.bounds(wid)
        placed = ranks(rows)
        return [row for row in rows if row.key == wid[1] and start <= placed[row.number] < end]

    def relation(self, rows: Rows) -> str:
        """The inner relation over the ranks."""
        apart = f"PARTITION BY {', '.join(rows.keys)} " if rows.keys else ""
        rank = f"row_number() OVER ({apart}ORDER BY {rows.arrival('partitioned windows')}) - 1"
        timed = f"{rows.source} AS __rows WHERE {rows.value} IS NOT NULL"
        ranked = f"(SELECT __rows.*, CAST({rank} AS BIGINT) AS __rank FROM {timed})"
        relation = self.inner.relation(replace(rows, source=ranked, value="__rows.__rank"))
        return f"(SELECT * EXCEPT (__rank) FROM {relation})"
