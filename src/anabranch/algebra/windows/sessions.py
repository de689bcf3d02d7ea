"""Windows of rows that are close together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from anabranch.algebra.windows.base import Context, Row, Rows, WindowType, positive


@dataclass(frozen=True)
class Sessions(WindowType[tuple[int, Hashable]]):
    """Sessions of each key: each lasts until there is no row for longer than the gap.

    The id of a session is its first value and its key.

    >>> rows = [Row(3, 0), Row(1, 1), Row(20, 2), Row(8, 3)]
    >>> quiet = Sessions(gap=5)
    >>> quiet.windows(rows), quiet.bounds((1, None), rows)
    ([(1, None), (20, None)], (1, 13))
    """

    context: ClassVar[Context] = "FCA"
    closes_after: ClassVar[int] = 1  # a row exactly at the end still extends the session

    gap: int

    def __post_init__(self) -> None:
        positive(self.gap, "the gap of sessions")

    def wids(self, row: Row, rows: Sequence[Row]) -> list[tuple[int, Hashable]]:
        """The one session that holds a row."""
        return [(start, row.key) for start, end in self._sessions(row.key, rows) if start <= row.value < end]

    def bounds(self, wid: tuple[int, Hashable], rows: Sequence[Row] = ()) -> tuple[int, int]:
        """From the first value to a gap after the last."""
        return next(found for found in self._sessions(wid[1], rows) if found[0] == wid[0])

    def extent(self, wid: tuple[int, Hashable], rows: Sequence[Row]) -> list[Row]:
        """The rows of the key between the bounds."""
        return [row for row in super().extent(wid, rows) if row.key == wid[1]]

    @property
    def shortest(self) -> int:
        return self.gap

    def _sessions(self, key: Hashable, rows: Sequence[Row]) -> list[tuple[int, int]]:
        return sessions((row.value for row in rows if row.key == key), self.gap)

    def relation(self, rows: Rows) -> str:
        """Rows with their session: a row more than the gap after the previous one begins another.

        Rows of one instant are peers by RANGE, so that their order does not matter. The id is the start.
        """
        keys = [f"__k{index}" for index in range(len(rows.keys))]
        named = "".join(f", {sql} AS {key}" for sql, key in zip(rows.keys, keys, strict=True))
        apart = f"PARTITION BY {', '.join(keys)} " if keys else ""
        inside = f"PARTITION BY {', '.join([*keys, '__session'])}"
        begins = f"CASE WHEN __time - lag(__time) OVER ({apart}ORDER BY __time) <= {self.gap} THEN 0 ELSE 1 END"
        timed = f"{rows.source} AS __rows WHERE {rows.value} IS NOT NULL"
        found = f"SELECT struct(__rows.*) AS __row, {rows.value} AS __time{named} FROM {timed}"
        marked = f"SELECT *, {begins} AS __begins FROM ({found})"
        numbered = f"SELECT *, sum(__begins) OVER ({apart}ORDER BY __time) AS __session FROM ({marked})"
        start, end = f"min(__time) OVER ({inside})", f"max(__time) OVER ({inside}) + {self.gap}"
        bounded = f"SELECT __row, {start} AS __start, {end} AS __end FROM ({numbered})"
        return f"(SELECT __row.*, __start, __end, __start AS __wid FROM ({bounded}))"


def sessions(times: Iterable[int], gap: int) -> list[tuple[int, int]]:
    """The sessions of some instants: each lasts until there is none for longer than the gap.

    >>> sessions([3, 1, 20, 8], gap=5)
    [(1, 13), (20, 25)]
    """
    found: list[tuple[int, int]] = []
    for time in sorted(times):
        if found and time <= found[-1][1]:
            found[-1] = found[-1][0], time + gap
        else:
            found.append((time, time + gap))
    return found
