"""Windows between changes of a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import ClassVar

from anabranch.algebra.progress import END
from anabranch.algebra.windows.base import Context, Row, Rows, WindowType


@dataclass(frozen=True)
class Chunks(WindowType[int]):
    """The longest runs of rows with one key, in arrival order; a key that returns begins another chunk.

    The id of a chunk is its ordinal. Bounds and progress are arrival numbers. Chunks of a length of time, or of a
    number of rows, are tumbling windows.

    >>> rows = [Row(0, number, key) for number, key in enumerate("aabaac")]
    >>> [Chunks().bounds(wid, rows) for wid in Chunks().windows(rows)]
    [(0, 2), (2, 3), (3, 5), (5, 6)]
    """

    context: ClassVar[Context] = "FCF"
    numbered: ClassVar[bool] = True
    cut_by_key: ClassVar[bool] = True
    closes_after: ClassVar[int] = 1  # a chunk ends where another row begins

    def windows(self, rows: Sequence[Row]) -> list[int]:
        """The ordinals."""
        return list(range(len(self._chunks(rows))))

    def wids(self, row: Row, rows: Sequence[Row]) -> list[int]:
        """The one chunk that holds a row: the number of changes before it."""
        arrived = sorted((each for each in rows if each.number <= row.number), key=lambda each: each.number)
        return [sum(one.key != other.key for one, other in pairwise(arrived))]

    def bounds(self, wid: int, rows: Sequence[Row] = ()) -> tuple[int, int]:
        """From the number of the first row to that after the last."""
        return self._chunks(rows)[wid]

    def extent(self, wid: int, rows: Sequence[Row]) -> list[Row]:
        """The rows that arrived between the bounds."""
        start, end = self.bounds(wid, rows)
        return [row for row in rows if start <= row.number < end]

    def closes(self, wid: int, progress: int, rows: Sequence[Row] = ()) -> bool:
        """Whether a later chunk has begun or the stream has ended."""
        later = self._chunks(rows)[wid + 1 : wid + 2]
        return progress == END or any(start < progress for start, _ in later)

    def _chunks(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
        found = []
        for _, run in groupby(sorted(rows, key=lambda row: row.number), key=lambda row: row.key):
            numbers = [row.number for row in run]
            found.append((numbers[0], numbers[-1] + 1))
        return found

    def relation(self, rows: Rows) -> str:
        """Rows with their chunk. Needs one order of all rows, to see each change."""
        if not rows.keys:
            raise ValueError("chunks need a key that changes, and this relation has none")
        key, number = f"struct({', '.join(rows.keys)})", rows.arrival("chunks")
        timed = f"{rows.source} AS __rows WHERE {rows.value} IS NOT NULL"
        found = f"SELECT struct(__rows.*) AS __row, {key} AS __key, {number} AS __number FROM {timed}"
        begins = "CASE WHEN lag(__key) OVER (ORDER BY __number) <=> __key THEN 0 ELSE 1 END"
        marked = f"SELECT *, {begins} AS __begins FROM ({found})"
        numbered = f"SELECT *, sum(__begins) OVER (ORDER BY __number) - 1 AS __wid FROM ({marked})"
        inside = "PARTITION BY __wid"
        start, end = f"min(__number) OVER ({inside})", f"max(__number) OVER ({inside}) + 1"
        return f"(SELECT __row.*, {start} AS __start, {end} AS __end, __wid FROM ({numbered}))"
