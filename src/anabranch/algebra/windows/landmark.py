"""Windows that hold everything up to their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from anabranch.algebra.windows.base import Context, Row, Rows, WindowType, positive
from anabranch.algebra.windows.sql import all_between_sql, operand, quotient, shifted


@dataclass(frozen=True)
class Landmark(WindowType[int]):
    """A window every `slide`, each with all rows before its end: window w ends at origin + (w+1)*slide.

    A row is in all windows from its own on, without end. Windows exist from the slide of the lowest value to that of
    the highest.

    >>> Landmark(slide=3).windows([Row(1, 0), Row(10, 1)])
    [0, 1, 2, 3]
    """

    context: ClassVar[Context] = "CF"

    slide: int
    origin: int = 0

    def __post_init__(self) -> None:
        positive(self.slide, "the slide of landmark windows")

    @property
    def shortest(self) -> int:
        return self.slide

    @property
    def by_row(self) -> bool:
        """False: which windows exist depends on all rows, though a row determines those that could hold it."""
        return False

    def closed_before(self, progress: int) -> int:
        """The first window that is still open: that of a row with this value."""
        return (progress - self.origin) // self.slide

    def windows(self, rows: Sequence[Row]) -> list[int]:
        """From the first window that a row opens to the last."""
        opened = [self.closed_before(row.value) for row in rows]
        return list(range(min(opened), max(opened) + 1)) if opened else []

    def wids(self, row: Row, rows: Sequence[Row]) -> range:
        """The windows from the row's own to the last one that any row opens."""
        return range(self.closed_before(row.value), self.windows(rows)[-1] + 1)

    def bounds(self, wid: int, rows: Sequence[Row] = ()) -> tuple[None, int]:
        """No start, and the end."""
        return None, self.origin + (wid + 1) * self.slide

    def relation(self, rows: Rows) -> str:
        """Each row with all windows from its own on; `__start` is NULL."""
        own = quotient(shifted(operand(rows.value), -self.origin), self.slide)
        opened = f"SELECT {own} AS opened FROM {rows.source} AS __rows"
        windows = f"SELECT explode({all_between_sql('opened', 1)}) AS wid FROM ({opened})"
        end = shifted(f"(__windows.wid + 1) * {self.slide}", self.origin)
        return (
            f"(SELECT __rows.*, CAST(NULL AS BIGINT) AS __start, {end} AS __end, __windows.wid AS __wid"
            f" FROM {rows.source} AS __rows JOIN ({windows}) AS __windows ON {own} <= __windows.wid)"
        )
