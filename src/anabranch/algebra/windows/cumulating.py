"""Windows that grow step by step until they have their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from anabranch.algebra.windows.base import Context, Row, Rows, WindowType
from anabranch.algebra.windows.sliding import pane_start_sql
from anabranch.algebra.windows.sql import shifted


@dataclass(frozen=True)
class CumulatingWindows(WindowType[int]):
    """Windows that grow by a step from one start until they have their size, and then start again.

    Window k ends at origin + (k+1)*step.

    >>> growing = CumulatingWindows(size=10, step=2)
    >>> list(growing.extents(13))
    [(10, 14), (10, 16), (10, 18), (10, 20)]
    >>> growing.bounds(6)
    (10, 14)
    """

    context: ClassVar[Context] = "CF"

    size: int
    step: int
    origin: int = 0

    def __post_init__(self) -> None:
        if self.step <= 0 or self.size <= 0 or self.size % self.step:
            raise ValueError(f"a window of {self.size} microseconds cannot grow by steps of {self.step}")

    @property
    def shortest(self) -> int:
        return self.step

    @property
    def longest(self) -> int:
        return self.size

    def bounds(self, wid: int, rows: Sequence[Row] = ()) -> tuple[int, int]:
        """The start (inside) and the end (outside) of a window."""
        return self.origin + wid // (self.size // self.step) * self.size, self.origin + (wid + 1) * self.step

    def wids(self, row: Row, rows: Sequence[Row] = ()) -> range:
        """The ids of the windows that hold a row, the shortest first."""
        steps = (row.value - self.origin) // self.size + 1
        return range((row.value - self.origin) // self.step, steps * (self.size // self.step))

    def extents(self, time: int) -> Iterator[tuple[int, int]]:
        """The windows that hold an instant, the shortest first."""
        return (self.bounds(wid) for wid in self.wids(Row(time, 0)))

    def relation(self, rows: Rows) -> str:
        """The relation with one row for each row and window."""
        start, ends = cumulating_ends_sql(rows.value, self)
        wid = f"({shifted('__ends.stop', -self.origin)}) div {self.step} - 1"
        return (
            f"(SELECT __rows.*, {start} AS __start, __ends.stop AS __end, {wid} AS __wid"
            f" FROM {rows.source} AS __rows LATERAL VIEW explode({ends}) __ends AS stop)"
        )


def cumulating_ends_sql(micros: str, windows: CumulatingWindows) -> tuple[str, str]:
    """The start of the windows that hold an instant, and the array of their ends, as Spark SQL."""
    start = pane_start_sql(micros, windows.size, windows.origin, "spark")
    pane = pane_start_sql(micros, windows.step, windows.origin, "spark")
    return start, f"sequence({pane} + {windows.step}, {start} + {windows.size}, CAST({windows.step} AS BIGINT))"
