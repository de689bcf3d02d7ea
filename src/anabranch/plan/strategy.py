"""How the aggregates of windows are computed, and what that is expected to cost.

    panes    a partial for each pane and group; a window is the sum of its panes
    windows  a partial for each window and group: a row counts in all of its windows at once
    adaptive a partial for each window of a large group; of a small one, a partial for all windows of a row together
    rows     no partials: rows are kept, and looked at when the window is
    bins     windows that end at rows: a partial for each value, which comes in where windows begin to hold it and goes
             out where they stop

A query can ask for one; otherwise it is panes, unless what is known of the stream says that windows cost less. What is
known is the number of groups, and not how their sizes differ; so what it says of adaptive is the cost if they do not,
which is never the least one, and adaptive has to be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.algebra.windows import SlidingWindows
from anabranch.algebra.windows.costs import choose
from anabranch.plan.catalog import Catalog, Panes, Stream

PANES, WINDOWS, ADAPTIVE, ROWS, BINS = "panes", "windows", "adaptive", "rows", "bins"


@dataclass(frozen=True)
class Load:
    """What a run brought: so many rows, or partials, between two times or numbers."""

    rows: int
    low: int
    high: int

    def every(self, length: int) -> float:
        """How many rows there are in a stretch of a length."""
        return self.rows * length / max(self.high - self.low, length)


@dataclass(frozen=True)
class Strategy:
    """A strategy, and the predicted cost of each, if there was something to predict it from."""

    name: str
    costs: Mapping[str, float] = field(default_factory=dict)


#: What the last run brought to a stream or a pane table; None if nothing is known.
Loads = Callable[[str], Load | None]


def strategy_of(
    asked: str, windows: SlidingWindows, stream: Stream, keys: Sequence[str], catalog: Catalog, loads: Loads
) -> Strategy:
    """The strategy for windows over a stream, grouped by some expressions."""
    wanted = sorted(keys)
    tables = [
        panes
        for panes in catalog.of(Panes)
        if panes.stream == stream.id
        and panes.grain
        and not panes.spanned
        and not panes.by_value
        and sorted(key.expression for key in panes.keys) == wanted
    ]
    rows, groups = loads(stream.id), _groups(windows, tables, loads)
    costs: dict[str, float] = {}
    if rows is not None and groups is not None:
        found = choose(windows, rows.every(windows.size), groups, differential=False).costs
        costs = {PANES: round(found["panes"], 1), WINDOWS: round(found["windows"], 1)}
        if asked == ADAPTIVE:
            costs[ADAPTIVE] = min(costs.values())
    if asked != "auto":
        return Strategy(asked, costs)
    if any(fits(windows, panes.grain, panes.origin) for panes in tables):
        return Strategy(PANES, costs)  # they are there already
    return Strategy(WINDOWS if costs and costs[WINDOWS] < costs[PANES] else PANES, costs)


def _groups(windows: SlidingWindows, tables: Sequence[Panes], loads: Loads) -> float | None:
    """How many groups a pane has, as pane tables with the same keys show."""
    for panes in tables:
        load = loads(panes.id)
        if load is not None:
            return load.every(max(windows.grain, panes.grain))
    return None


def fits(windows: SlidingWindows, grain: int, origin: int) -> bool:
    """Whether panes divide windows."""
    return grain > 0 and windows.grain % grain == 0 and (windows.origin - origin) % grain == 0
