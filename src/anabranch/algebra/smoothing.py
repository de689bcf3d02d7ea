"""Smoothing: which of the windows that may close are closed in this run.

When many windows close at once, one run has all the work. A budget spreads it over the next runs: results come a
little later, and no result changes. The function here is told what is ready and in which run it became so; it knows
neither rows nor clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """How much may be closed in one run; None for any number.

    windows: so many windows.
    rows:    so many rows of results. A window with more of them than that is closed alone.
    delay:   a window waits for at most so many runs, whatever the budget; None for any number.
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

    No window is closed before one that ends earlier, so that one bound says how far a run has closed them; a window
    that has waited long enough takes those that end before it along.

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
