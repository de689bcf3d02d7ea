"""Windows over time: which windows hold an instant, when a window closes, how windows are cut into panes.

Times are integers in microseconds, windows are half open, division is floor division, so times before the
origin are as good as any. The same arithmetic comes twice: as functions of Python integers, and as SQL text
for the two engines that run it. Nothing here runs SQL, and nothing here knows where times come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

Engine = Literal["spark", "duckdb"]

#: `window_time` is the last millisecond inside a window.
MILLISECOND = 1_000


@dataclass(frozen=True)
class SlidingWindows:
    """Windows of one size, one every `slide`. Ids are integers and may be negative.

    Aligned at the start, window k is [origin + k*slide, origin + k*slide + size). Aligned at the end, window
    w is [origin + (w+1)*slide - size, origin + (w+1)*slide). A slide greater than the size leaves gaps
    between windows.

    >>> hop = SlidingWindows(size=10, slide=4)
    >>> list(hop.wids(9)), hop.extent(2)
    ([0, 1, 2], (8, 18))
    >>> list(SlidingWindows(size=10, slide=4, aligned="end").wids(6))
    [1, 2, 3]
    """

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
    def first_start(self) -> int:
        """The start of window 0: from here on both alignments are the same."""
        return self.origin if self.aligned == "start" else self.origin + self.slide - self.size

    @property
    def tumbling(self) -> bool:
        """Whether every instant is in exactly one window."""
        return self.size == self.slide

    @property
    def grain(self) -> int:
        """The length of the longest panes that divide every window."""
        return gcd(self.size, self.slide)

    def extent(self, wid: int) -> tuple[int, int]:
        """The start (inside) and the end (outside) of a window."""
        start = self.first_start + wid * self.slide
        return start, start + self.size

    def wids(self, time: int) -> range:
        """The ids of the windows that hold an instant; empty in a gap."""
        return range(self.closed_before(time), (time - self.first_start) // self.slide + 1)

    def closes(self, wid: int, progress: int) -> bool:
        """Whether no row of the window is expected any more."""
        return progress >= self.extent(wid)[1]

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

        A pane lies inside a window or outside it, never across its edge, so its first instant decides. This
        holds for panes of any grain that divides these windows, for instance a shared one.
        """
        return self.wids(pane_start)


@dataclass(frozen=True)
class CumulatingWindows:
    """Windows that grow by a step from one start until they have their size, and then start anew.

    >>> list(CumulatingWindows(size=10, step=2).extents(13))
    [(10, 14), (10, 16), (10, 18), (10, 20)]
    """

    size: int
    step: int
    origin: int = 0

    def __post_init__(self) -> None:
        if self.step <= 0 or self.size <= 0 or self.size % self.step:
            raise ValueError(f"a window of {self.size} microseconds cannot grow by steps of {self.step}")

    def extents(self, time: int) -> Iterator[tuple[int, int]]:
        """The windows that hold an instant, the shortest first."""
        start = time - (time - self.origin) % self.size
        first = start + ((time - start) // self.step + 1) * self.step
        return ((start, end) for end in range(first, start + self.size + 1, self.step))


def cumulating_ends_sql(micros: str, windows: CumulatingWindows) -> tuple[str, str]:
    """The start of the windows that hold an instant, and the array of their ends, as Spark SQL."""
    start = pane_start_sql(micros, windows.size, windows.origin, "spark")
    pane = pane_start_sql(micros, windows.step, windows.origin, "spark")
    return start, f"sequence({pane} + {windows.step}, {start} + {windows.size}, CAST({windows.step} AS BIGINT))"


def sessions(times: Iterable[int], gap: int) -> list[tuple[int, int]]:
    """The sessions of some instants: each lasts until nothing has come for longer than the gap.

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


def window_time(end: int) -> int:
    """The event time of a window's result: the last millisecond before its end."""
    return end - MILLISECOND


def pane_start_sql(micros: str, grain: int, origin: int, engine: Engine) -> str:
    """The start of the pane of `grain` microseconds that holds an instant, as a BIGINT expression.

    >>> pane_start_sql("ts", 60, 0, "spark")
    '(ts - pmod(ts, 60))'
    """
    if grain <= 0:
        raise ValueError(f"the grain of panes must be positive, not {grain} microseconds")
    time = _operand(micros)
    return f"({time} - {_modulo(_shifted(time, -(origin % grain)), grain, engine)})"


def last_window_sql(pane: str, windows: SlidingWindows, grain: int, engine: Engine) -> str:
    """The start of the last window that holds the whole pane [pane, pane + grain).

    A grain of 1 serves single instants. In a gap between windows the last start is less than the first.
    """
    _check_grain(windows, grain)
    return pane_start_sql(pane, windows.slide, windows.first_start, engine)


def first_window_sql(pane: str, windows: SlidingWindows, grain: int, engine: Engine) -> str:
    """The start of the first window that holds the whole pane [pane, pane + grain)."""
    _check_grain(windows, grain)
    if windows.tumbling:
        return last_window_sql(pane, windows, grain, engine)
    # No window that starts before `lowest` reaches the end of the pane; the next start from there on is the
    # answer.
    lowest = _shifted(_operand(pane), grain - windows.size)
    distance = f"{windows.first_start % windows.slide} - ({lowest})"
    return f"({lowest} + {_modulo(distance, windows.slide, engine)})"


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


def _modulo(dividend: str, divisor: int, engine: Engine) -> str:
    """A remainder that is never negative; SQL's own takes the sign of the dividend."""
    if engine == "spark":
        return f"pmod({dividend}, {divisor})"
    if engine == "duckdb":
        return f"((({dividend}) % {divisor} + {divisor}) % {divisor})"
    raise ValueError(f"SQL is written for 'spark' or 'duckdb', not for {engine!r}")


def _operand(sql: str) -> str:
    return sql if re.fullmatch(r"[A-Za-z_][\w.]*", sql) else f"({sql})"


def _shifted(operand: str, by: int) -> str:
    if by == 0:
        return operand
    return f"{operand} - {-by}" if by < 0 else f"{operand} + {by}"
