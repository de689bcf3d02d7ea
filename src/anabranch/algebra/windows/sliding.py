"""Windows of one size at equal distances: the windows that hold an instant, and their panes.

Values are integers, times in microseconds; windows are half open, and division is floor division, so values before the
origin are valid. The arithmetic is here twice: as functions of Python integers, and as SQL text for both engines.
Nothing here runs SQL or knows where times come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar, Literal

from anabranch.algebra.windows.base import Context, Row, Rows, WindowType
from anabranch.algebra.windows.sql import Engine, floor_quotient, modulo, multiple, operand, shifted

#: `window_time` is the last millisecond inside a window, or the last microsecond of a window no longer than that.
MILLISECOND = 1_000


@dataclass(frozen=True)
class SlidingWindows(WindowType[int]):
    """Windows of one size, one every `slide`. Ids are integers and may be negative.

    Aligned at the start, window k is [origin + k*slide, origin + k*slide + size). Aligned at the end, window
    w is [origin + (w+1)*slide - size, origin + (w+1)*slide). A slide greater than the size leaves gaps
    between windows.

    >>> hop = SlidingWindows(size=10, slide=4)
    >>> list(hop.at(9)), hop.bounds(2)
    ([0, 1, 2], (8, 18))
    >>> list(SlidingWindows(size=10, slide=4, aligned="end").at(6))
    [1, 2, 3]
    """

    context: ClassVar[Context] = "CF"

    size: int
    slide: int
    origin: int = 0
    aligned: Literal["start", "end"] = "start"

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise ValueError(f"the size of a window must be positive, not {self.size} microseconds")
        if self.slide <= 0:
            raise ValueError(f"the slide of a window must be positive, not {self.slide} microseconds")
        if self.aligned not in ("start", "end"):
            raise ValueError(f"windows are aligned at their 'start' or their 'end', not at {self.aligned!r}")

    @property
    def shortest(self) -> int:
        return self.size

    @property
    def longest(self) -> int:
        return self.size

    @property
    def first_start(self) -> int:
        """The start of window 0, from which both alignments are the same."""
        return self.origin if self.aligned == "start" else self.origin + self.slide - self.size

    @property
    def tumbling(self) -> bool:
        """Whether every instant is in exactly one window."""
        return self.size == self.slide

    @property
    def grain(self) -> int:
        """The length of the longest panes that divide every window."""
        return gcd(self.size, self.slide)

    def bounds(self, wid: int, rows: Sequence[Row] = ()) -> tuple[int, int]:
        """The start (inside) and the end (outside) of a window."""
        start = self.first_start + wid * self.slide
        return start, start + self.size

    def at(self, time: int) -> range:
        """The ids of the windows that hold an instant; empty in a gap."""
        return range(self.closed_before(time), (time - self.first_start) // self.slide + 1)

    def wids(self, row: Row, rows: Sequence[Row] = ()) -> range:
        """The ids of the windows that hold a row; empty in a gap."""
        return self.at(row.value)

    def relation(self, rows: Rows) -> str:
        """The relation with one row for each row and window; a row in a gap is not in it."""
        if self.tumbling:
            start = last_window_sql(rows.value, self, 1, "spark")
            timed = f"{rows.source} AS __rows WHERE {rows.value} IS NOT NULL"
            return f"(SELECT __rows.*, {self._bounds_sql(start)} FROM {timed})"
        starts = window_starts_sql(rows.value, self, 1, "spark")
        exploded = f"LATERAL VIEW explode({starts}) __starts AS start"
        return f"(SELECT __rows.*, {self._bounds_sql('__starts.start')} FROM {rows.source} AS __rows {exploded})"

    def _bounds_sql(self, start: str) -> str:
        # A start is a whole number of slides from the first one, so rounding does not matter.
        wid = f"({shifted(start, -self.first_start)}) div {self.slide}"
        return f"{start} AS __start, {start} + {self.size} AS __end, {wid} AS __wid"

    def closed_before(self, progress: int) -> int:
        """The first window that is still open: all with lower ids are closed."""
        return (progress - self.first_start - self.size) // self.slide + 1

    def start_of(self, time: int) -> int:
        """The start of the one window that holds an instant."""
        if not self.tumbling:
            raise ValueError("an instant has several windows, or none, unless the slide equals the size")
        return time - (time - self.first_start) % self.slide

    def pane(self, time: int) -> int:
        """The start of the pane that holds an instant."""
        # The grain divides size and slide, so the origin is a pane boundary under either alignment.
        return time - (time - self.origin) % self.grain

    def pane_windows(self, pane_start: int) -> range:
        """The ids of the windows that a pane is part of.

        A pane is inside a window or outside it, never across its bounds, so its first instant decides. This
        holds for panes of any grain that divides these windows, for instance a shared one.
        """
        return self.at(pane_start)


def shared_grain(windows: Sequence[SlidingWindows]) -> tuple[int, int]:
    """The grain and the origin of the longest panes that divide all windows of all the given ones.

    >>> shared_grain([SlidingWindows(60, 60), SlidingWindows(90, 30, origin=10)])
    (10, 0)
    """
    if not windows:
        raise ValueError("panes are shared by at least one kind of windows")
    origin = windows[0].origin
    grain = 0
    for each in windows:
        grain = gcd(grain, each.grain, each.origin - origin)
    return grain, origin % grain


def window_time(end: int, size: int) -> int:
    """The event time of the result of a window of a size: the last millisecond before its end, if that is inside it.

    >>> window_time(60_000_000, 60_000_000), window_time(1_500, 500)
    (59999000, 1499)
    """
    return end - time_before_end(size)


def time_before_end(size: int) -> int:
    """The time from the event time of a window to its end."""
    return MILLISECOND if size > MILLISECOND else 1


def pane_start_sql(micros: str, grain: int, origin: int, engine: Engine) -> str:
    """The start of the pane of `grain` microseconds that holds an instant, as a BIGINT expression.

    >>> pane_start_sql("ts", 60, 0, "spark")
    '(ts - pmod(ts, 60))'
    """
    if grain <= 0:
        raise ValueError(f"the grain of panes must be positive, not {grain} microseconds")
    time, origin = operand(micros), origin % grain
    if engine == "duckdb":
        start = multiple(shifted(time, -origin), grain)
        return f"({start} + {origin})" if origin else start
    return f"({time} - {modulo(shifted(time, -origin), grain, engine)})"


def pane_number_sql(micros: str, grain: int, origin: int, *, since_origin: bool = False) -> tuple[str, str]:
    """The number of the pane that holds an instant, for DuckDB, and the start of the pane with a number in place of {}.

    Grouping by numbers needs a product for each pane instead of each row. `since_origin`: no instant is before the
    origin, so that plain division rounds correctly.

    >>> pane_number_sql("ts", 60, 5, since_origin=True)
    ('((ts - 5) // 60)', '({} * 60 + 5)')
    """
    if grain <= 0:
        raise ValueError(f"the grain of panes must be positive, not {grain} microseconds")
    time, origin = operand(micros), origin % grain
    whole = operand(shifted(time, -origin))
    number = f"({whole} // {grain})" if since_origin else floor_quotient(whole, grain)
    return number, shifted(f"({{}} * {grain}", origin) + ")"


def last_window_sql(pane: str, windows: SlidingWindows, grain: int, engine: Engine) -> str:
    """The start of the last window that holds the whole pane [pane, pane + grain).

    A grain of 1 serves single instants. In a gap between windows the last start is less than the first.
    """
    _check_grain(windows, grain)
    if 1 < grain == windows.slide:
        return operand(pane)  # a window starts with every pane
    return pane_start_sql(pane, windows.slide, windows.first_start, engine)


def first_window_sql(pane: str, windows: SlidingWindows, grain: int, engine: Engine) -> str:
    """The start of the first window that holds the whole pane [pane, pane + grain)."""
    _check_grain(windows, grain)
    if windows.tumbling:
        return last_window_sql(pane, windows, grain, engine)
    # No window that starts before `lowest` reaches the end of the pane; the next start from there on is the
    # answer.
    lowest = shifted(operand(pane), grain - windows.size)
    if 1 < grain == windows.slide and windows.size % windows.slide == 0:
        return f"({lowest})"  # a window starts with every pane
    distance = f"{windows.first_start % windows.slide} - ({lowest})"
    return f"({lowest} + {modulo(distance, windows.slide, engine)})"


def window_starts_sql(pane: str, windows: SlidingWindows, grain: int, engine: Engine) -> str:
    """The starts of all windows that hold the whole pane, as an array of BIGINT; empty in a gap."""
    first = first_window_sql(pane, windows, grain, engine)
    last = last_window_sql(pane, windows, grain, engine)
    if engine == "duckdb":
        return f"range({first}, {last} + 1, {windows.slide})"
    starts = f"sequence({first}, {last}, CAST({windows.slide} AS BIGINT))"
    if windows.slide <= windows.size:
        return starts
    # Spark's sequence refuses, or without a step counts down, when the first value is past the last.
    return f"CASE WHEN {first} <= {last} THEN {starts} ELSE CAST(array() AS ARRAY<BIGINT>) END"


def _check_grain(windows: SlidingWindows, grain: int) -> None:
    if grain <= 0 or windows.grain % grain:
        raise ValueError(
            f"panes of {grain} microseconds do not divide windows of {windows.size} every {windows.slide}: "
            f"the grain must divide {windows.grain}"
        )
