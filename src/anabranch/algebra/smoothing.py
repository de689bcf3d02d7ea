"""Smoothing: which of the windows that may close are closed in this run.

When many windows close at once, one run has all the work. A budget spreads it over the next runs: results are emitted a
little later, and no result changes. The input is the ready windows and the run in which each became ready; there are no
rows or clocks here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """What one run may close; None for any number.

    windows: the number of windows.
    rows:    the number of rows of results. A window with more rows is closed alone.
    delay:   the number of runs that a window may wait at most, whatever the budget.
    """

    windows: int | None = None
    rows: int | None = None
    delay: int | None = None

    def __post_init__(self) -> None:
        for name in ("windows", "rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"a budget has at least 1 of {name}, not {value}")
        if self.delay is not None and self.delay < 0:
            raise ValueError(f"the delay of a budget must not be negative, but is {self.delay}")


@dataclass(frozen=True)
class Ready:
    """A window that may close: its end, how many rows its result has, and the run since which it may close."""

    end: int
    rows: int
    since: int


def closing(ready: Iterable[Ready], budget: Budget, run: int) -> list[Ready]:
    """The windows to close in this run, lowest ends first.

    Windows close in the order of their ends, so that one bound describes what a run has closed; a window that has
    waited long enough also closes those that end before it.

    >>> waiting = [Ready(end=20, rows=5, since=1), Ready(end=10, rows=5, since=1), Ready(end=30, rows=5, since=1)]
    >>> [window.end for window in closing(waiting, Budget(rows=10, delay=3), run=1)]
    [10, 20]
    >>> [window.end for window in closing(waiting, Budget(rows=10, delay=3), run=4)]
    [10, 20, 30]
    """
    in_order = sorted(ready, key=lambda window: window.end)
    due = 0
    if budget.delay is not None:
        due = max((place for place, window in enumerate(in_order, 1) if run - window.since >= budget.delay), default=0)
    rows = 0
    for place, window in enumerate(in_order):
        rows += window.rows
        over = (budget.windows is not None and place >= budget.windows) or (
            budget.rows is not None and rows > budget.rows
        )
        if over and place >= max(due, 1):
            return in_order[:place]
    return in_order
