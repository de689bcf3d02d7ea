"""What the strategies cost: time for each window result, memory for each group.

The unit of time is whatever the coefficients are measured in, that of memory whatever sizes are given in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anabranch.algebra.windows.base import positive
from anabranch.algebra.windows.sliding import SlidingWindows

StrategyName = Literal["windows", "panes", "panes by difference", "buffer by difference"]

#: A group that has become large stays so until it has less than this part of what made it large.
LOWER = 0.8


@dataclass(frozen=True)
class Coefficients:
    """What one step takes.

    pane_row:   counting a row in its pane.
    pane_group: handing on the partial of a group in a pane.
    window_pane: adding the partial of a pane to a window, or taking it out.
    window_row: counting a row in a window.
    """

    pane_row: float = 1
    pane_group: float = 1
    window_pane: float = 1
    window_row: float = 1


@dataclass(frozen=True)
class Choice:
    """The cheapest strategy, and the predicted time of each that is possible."""

    strategy: StrategyName
    costs: dict[StrategyName, float]


def choose(
    windows: SlidingWindows,
    rows: float,
    groups: float,
    differential: bool,
    coefficients: Coefficients | None = None,
) -> Choice:
    """The cheapest strategy for windows with so many rows each, in so many groups a pane.

    `differential` says whether the aggregate can be subtracted. Of equal costs the first wins.

    >>> choose(SlidingWindows(5, 1), rows=100, groups=1, differential=False)
    Choice(strategy='panes', costs={'windows': 100, 'panes': 26.0})
    """
    unit = coefficients or Coefficients()
    costs: dict[StrategyName, float] = {
        "windows": row_time(rows, unit),
        "panes": pane_time(windows, rows, groups, unit),
    }
    if differential:
        costs["panes by difference"] = pane_difference_time(windows, rows, groups, unit)
        costs["buffer by difference"] = buffer_difference_time(windows, rows, unit)
    return Choice(min(costs, key=lambda name: costs[name]), costs)


def row_time(rows: float, unit: Coefficients) -> float:
    """Every row of a window is counted in it."""
    return unit.window_row * rows


def pane_time(windows: SlidingWindows, rows: float, groups: float, unit: Coefficients) -> float:
    """The panes of a slide are made once, and all panes of a window are added."""
    return _making_panes(windows, rows, groups, unit) + unit.window_pane * groups * windows.size / windows.grain


def pane_difference_time(windows: SlidingWindows, rows: float, groups: float, unit: Coefficients) -> float:
    """The panes of a slide are made once, added to the window before, and as many taken out of it."""
    changed = 2 * unit.window_pane * groups * windows.slide / windows.grain
    return _making_panes(windows, rows, groups, unit) + changed


def buffer_difference_time(windows: SlidingWindows, rows: float, unit: Coefficients) -> float:
    """The rows of a slide are added to the window before, and as many taken out of it."""
    return 2 * unit.window_row * rows * windows.slide / windows.size


def _making_panes(windows: SlidingWindows, rows: float, groups: float, unit: Coefficients) -> float:
    made = windows.slide / windows.grain
    return made * (unit.pane_row * rows * windows.grain / windows.size + unit.pane_group * groups)


def most_groups(rows: float, panes: int) -> float:
    """How many groups a pane may have before panes stop to pay, if all steps cost the same.

    >>> most_groups(rows=100, panes=5)
    13.333333333333334
    """
    positive(panes, "the number of panes in a window")
    return rows * (1 - 1 / panes) / (1 + panes)


@dataclass(frozen=True)
class Source:
    """A source of a group's rows.

    volume: rows for each unit of the window attribute.
    offset: how far it is behind the source that is furthest.
    """

    volume: float
    offset: float = 0


def eager_memory(partial: float, duration: float, slide: float) -> float:
    """A partial for each open window of a group; `duration` is how long the extent of a window is open."""
    return partial * duration / slide


def held_rows(sources: Sequence[Source], duration: float) -> float:
    """The rows of a group that are in open windows: sources that are behind have not brought theirs.

    >>> held_rows([Source(3), Source(2, offset=1), Source(1, offset=2)], duration=7)
    38
    """
    return sum(source.volume * duration for source in sources) - _missing(sources)


def lazy_memory(row: float, sources: Sequence[Source], duration: float) -> float:
    """The rows of a group that are in open windows, and their size."""
    return row * held_rows(sources, duration)


def eager_above(partial: float, row: float, duration: float, slide: float, sources: Sequence[Source] = ()) -> float:
    """How many rows a group may have in open windows before partials take less memory.

    >>> eager_above(partial=16, row=40, duration=5, slide=1)
    2.0
    """
    return partial * duration / (row * slide) + _missing(sources)


@dataclass(frozen=True)
class Thresholds:
    """A group is large once more than `up` of its rows are in open windows, and small again once fewer than `down`
    are: between the two it is what it was, so that a group on the threshold does not turn with every row."""

    up: float
    down: float

    def __post_init__(self) -> None:
        if not 0 <= self.down <= self.up:
            raise ValueError(f"a group cannot become large above {self.up} rows and small below {self.down}")

    @classmethod
    def of(cls, windows: SlidingWindows, spread: float = 0, partial: float = 1, row: float = 1) -> Thresholds:
        """Those of windows whose rows come up to `spread` behind the furthest one.

        >>> Thresholds.of(SlidingWindows(10, 1), spread=5)
        Thresholds(up=15.0, down=12.0)
        """
        up = eager_above(partial, row, windows.size + spread, windows.slide)
        return cls(up, LOWER * up)

    def large(self, was: bool, before: int, brought: int, touched: int = 0) -> bool:
        """Whether a group is large with the rows that it is brought now: it had so many in open windows before.

        These touch so many windows, as many partials as it would be given now: that is to pay, too.

        >>> limits = Thresholds(up=10, down=8)
        >>> [limits.large(was, before, 1) for was, before in ((False, 9), (False, 10), (True, 8), (True, 7))]
        [False, True, True, False]
        """
        return before + brought > max(self.up, touched) or (was and before >= self.down)


def prefers_eager(partial: float, row: float, duration: float, slide: float, sources: Sequence[Source]) -> bool:
    """Whether partials take less memory than rows."""
    volume = sum(source.volume * duration for source in sources)
    return volume > eager_above(partial, row, duration, slide, sources)


def _missing(sources: Sequence[Source]) -> float:
    return sum(source.volume * source.offset for source in sources)
