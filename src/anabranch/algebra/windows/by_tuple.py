"""Windows that end at rows: the range is in values, the slide in rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from anabranch.algebra.windows.base import Context, Row, Rows, WindowType, positive
from anabranch.algebra.windows.sql import operand, quotient


@dataclass(frozen=True)
class SlideByTuple(WindowType[int]):
    """A window of `size` that ends at every `every`th row, that row included.

    Rows are counted from 1, in arrival order ("number") or of their values ("rank", ties by arrival). The id of a
    window is the value of the row that it ends at, so that window w holds the values in (w - size, w].

    >>> rows = [Row(10, 0), Row(14, 1), Row(12, 2), Row(20, 3)]
    >>> SlideByTuple(6).windows(rows), SlideByTuple(6, every=2).windows(rows)
    ([10, 12, 14, 20], [14, 20])
    >>> SlideByTuple(6, every=2, order="rank").windows(rows)
    [12, 20]
    """

    context: ClassVar[Context] = "FCA"
    ends_at_row: ClassVar[bool] = True

    size: int
    every: int = 1
    order: Literal["number", "rank"] = "number"

    def __post_init__(self) -> None:
        positive(self.size, "the size of a window")
        positive(self.every, "the number of rows from one window to the next")
        if self.order not in ("number", "rank"):
            raise ValueError(f"rows are counted by their 'number' or their 'rank', not by {self.order!r}")

    @property
    def shortest(self) -> int:
        return self.size

    @property
    def needs_numbers(self) -> bool:
        return self.every > 1

    def windows(self, rows: Sequence[Row]) -> list[int]:
        """The values of the rows that windows end at."""
        if self.order == "number":
            return sorted({row.value for row in rows if (row.number + 1) % self.every == 0})
        ranked = sorted(rows, key=lambda row: (row.value, row.number))
        return sorted({row.value for row in ranked[self.every - 1 :: self.every]})

    def wids(self, row: Row, rows: Sequence[Row]) -> list[int]:
        """The windows that end at the row's value or less than a size after it."""
        return [wid for wid in self.windows(rows) if row.value <= wid < row.value + self.size]

    def bounds(self, wid: int, rows: Sequence[Row] = ()) -> tuple[int, int]:
        """Half-open bounds."""
        return wid - self.size + 1, wid + 1

    def relation(self, rows: Rows) -> str:
        """Rows joined with the windows that hold them.

        Values and ids are put into buckets of one size, for an equality join: the rows of a window are in the bucket
        of its end or in the previous one.
        """
        timed = f"{rows.source} AS __rows WHERE {rows.value} IS NOT NULL"
        if self.every == 1:
            ends = f"SELECT DISTINCT {rows.value} AS wid FROM {timed}"
        else:
            number = rows.arrival("windows that slide by several rows")
            counted = (
                f"{operand(number)} + 1"
                if self.order == "number"
                else f"row_number() OVER (ORDER BY {rows.value}, {number})"
            )
            numbered = f"SELECT {rows.value} AS wid, {counted} AS counted FROM {timed}"
            ends = f"SELECT DISTINCT wid FROM ({numbered}) WHERE counted % {self.every} = 0"
        bucket = quotient("wid", self.size)
        windows = f"SELECT wid, explode(array({bucket} - 1, {bucket})) AS bucket FROM ({ends})"
        value = operand(rows.value)
        return (
            f"(SELECT __rows.*, __windows.wid - {self.size} + 1 AS __start, __windows.wid + 1 AS __end,"
            f" __windows.wid AS __wid FROM {rows.source} AS __rows"
            f" JOIN ({windows}) AS __windows ON __windows.bucket = {quotient(rows.value, self.size)}"
            f" AND __windows.wid >= {value} AND __windows.wid < {value} + {self.size})"
        )
