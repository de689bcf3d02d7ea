"""A cost model of the strategies: time for each window result, memory for each group.

The unit of time is that of the coefficients, the unit of memory that of the given sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anabranch.algebra.windows.base import positive
from anabranch.algebra.windows.sliding import SlidingWindows

StrategyName = Literal["windows", "panes", "panes by difference", "buffer by difference"]

#: A large group becomes small below this fraction of the threshold for large groups.
LOWER = 0.8


@dataclass(frozen=True)
class Coefficients:
    """The time of one step.

    pane_row:   counting a row in its pane.
    pane_group: emitting the partial of a group in a pane.
    window_pane: adding the partial of a pane to a window, or subtracting it.
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
    """The cheapest strategy for windows of `rows` rows each and `groups` groups a pane.

    `differential`: the aggregate can be subtracted. Of equal costs the first wins.

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
    """The panes of a slide are computed once, and all panes of a window are added."""
    return _making_panes(windows, rows, groups, unit) + unit.window_pane * groups * windows.size / windows.grain


def pane_difference_time(windows: SlidingWindows, rows: float, groups: float, unit: Coefficients) -> float:
    """The panes of a slide are computed once and added to the previous window, and as many are subtracted."""
    changed = 2 * unit.window_pane * groups * windows.slide / windows.grain
    return _making_panes(windows, rows, groups, unit) + changed


def buffer_difference_time(windows: SlidingWindows, rows: float, unit: Coefficients) -> float:
    """The rows of a slide are added to the previous window, and as many are subtracted."""
    return 2 * unit.window_row * rows * windows.slide / windows.size


def _making_panes(windows: SlidingWindows, rows: float, groups: float, unit: Coefficients) -> float:
    made = windows.slide / windows.grain
    return made * (unit.pane_row * rows * windows.grain / windows.size + unit.pane_group * groups)


def most_groups(rows: float, panes: int) -> float:
    """The maximum number of groups in a pane for which panes are cheaper, if all steps cost the same.

    >>> most_groups(rows=100, panes=5)
    13.333333333333334
    """
    positive(panes, "the number of panes in a window")
    return rows * (1 - 1 / panes) / (1 + panes)


@dataclass(frozen=True)
class Source:
    """A source of a group's rows.

    volume: rows for each unit of the window attribute.
    offset: how far it is behind the most advanced source.
    """

    volume: float
    offset: float = 0


def eager_memory(partial: float, duration: float, slide: float) -> float:
    """The size of a partial for each open window of a group; `duration` is how long a window is open."""
    return partial * duration / slide


def held_rows(sources: Sequence[Source], duration: float) -> float:
    """The number of rows of a group in open windows, less those that slower sources have not delivered yet.

    >>> held_rows([Source(3), Source(2, offset=1), Source(1, offset=2)], duration=7)
    38
    """
    return sum(source.volume * duration for source in sources) - _missing(sources)


def lazy_memory(row: float, sources: Sequence[Source], duration: float) -> float:
    """The size of the rows of a group in open windows."""
    return row * held_rows(sources, duration)


def eager_above(partial: float, row: float, duration: float, slide: float, sources: Sequence[Source] = ()) -> float:
    """The number of rows in open windows above which partials take less memory.

    >>> eager_above(partial=16, row=40, duration=5, slide=1)
    2.0
    """
    return partial * duration / (row * slide) + _missing(sources)


@dataclass(frozen=True)
class Thresholds:
    """A group becomes large with more than `up` rows in open windows, and small again with fewer than `down`:
    between the two it does not change, so that a group at the threshold does not flip with every row."""

    up: float
    down: float

    def __post_init__(self) -> None:
        if not 0 <= self.down <= self.up:
            raise ValueError(f"a group cannot become large above {self.up} rows and small below {self.down}")

    @classmethod
    def of(cls, windows: SlidingWindows, spread: float = 0, partial: float = 1, row: float = 1) -> Thresholds:
        """The thresholds for windows whose rows arrive up to `spread` behind the highest one.

        >>> Thresholds.of(SlidingWindows(10, 1), spread=5)
        Thresholds(up=15.0, down=12.0)
        """
        up = eager_above(partial, row, windows.size + spread, windows.slide)
        return cls(up, LOWER * up)

    def large(self, was: bool, before: int, brought: int, touched: int = 0) -> bool:
        """Whether a group with `before` rows in open windows is large after `brought` new ones.

        A large group gets a partial for each of the `touched` windows, so it must also have more rows than that.

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
