"""Strategies for the aggregates of windows, and their predicted costs.

    panes    a partial for each pane and group; a window is the sum of its panes
    windows  a partial for each window and group: a row counts in all of its windows at once
    adaptive a partial for each window of a large group, and one partial for all windows of a row of a small group. A
             group is large or small by its rows in open windows, counted from run to run, with two thresholds
    rows     no partials: rows are kept, and read with the window
    bins     windows that end at rows: a partial for each value, added where windows begin to hold it and subtracted
             where they stop

A query can name one; the default is panes, unless the statistics of the stream predict a lower cost for windows. These
have the number of groups, but not how their sizes differ: they predict adaptive for equal sizes, which is never the
cheapest, so only a query can choose adaptive. Where a window has many panes and these can be subtracted, each window
is computed by difference from the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.algebra.windows import SlideByTuple, SlidingWindows
from anabranch.algebra.windows.costs import choose
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.states import BlockUse, Panes

PANES, WINDOWS, ADAPTIVE, ROWS, BINS = "panes", "windows", "adaptive", "rows", "bins"
#: Not for queries to name: how panes become windows where they can be subtracted.
BY_DIFFERENCE = "panes by difference"
#: From so many panes a window on, a window is computed from the one before it.
MANY_PANES = 8


@dataclass(frozen=True)
class Load:
    """The load of a run: its number of rows, or partials, between two times or numbers."""

    rows: int
    low: int
    high: int

    def every(self, length: int) -> float:
        """The average number of rows in a range of this length."""
        return self.rows * length / max(self.high - self.low, length)


@dataclass(frozen=True)
class Strategy:
    """The chosen strategy, and the predicted cost of each, if there were statistics."""

    name: str
    costs: Mapping[str, float] = field(default_factory=dict)


#: The load of the last run on a stream or a pane table; None if it is unknown.
Loads = Callable[[str], Load | None]


def strategy_of(
    requested: str,
    windows: SlidingWindows,
    stream: Stream,
    keys: Sequence[str],
    catalog: Catalog,
    loads: Loads,
    *,
    differential: bool = False,
) -> Strategy:
    """The strategy for windows over a stream, grouped by some expressions; `differential` if partials subtract."""
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
        costs = _costs(windows, rows.every(windows.size), groups, differential)
    if requested != "auto":
        return Strategy(requested, costs)
    if any(fits(windows, panes.grain, panes.origin) for panes in tables):
        return Strategy(PANES, costs)  # they exist already
    least = min((costs[name] for name in (PANES, BY_DIFFERENCE) if name in costs), default=0.0)
    return Strategy(WINDOWS if costs and costs[WINDOWS] < least else PANES, costs)


def _costs(windows: SlidingWindows, rows: float, groups: float, differential: bool) -> dict[str, float]:
    """The predicted cost of each strategy. Kept rows count in as many windows as others."""
    found = choose(windows, rows, groups, differential=differential).costs
    panes, each = round(found["panes"], 1), round(found["windows"], 1)
    costs = {PANES: panes, WINDOWS: each, ADAPTIVE: min(panes, each), ROWS: each}
    if differential and windows.size >= MANY_PANES * windows.grain and not windows.tumbling:
        costs[BY_DIFFERENCE] = round(found["panes by difference"], 1)
    return costs


def strategy_of_ends(windows: SlideByTuple, stream: Stream, loads: Loads) -> Strategy:
    """Bins for windows that end at rows: as many rows enter as leave between two windows."""
    load = loads(stream.id)
    if load is None:
        return Strategy(BINS)
    return Strategy(BINS, {BINS: 2.0 * windows.every, ROWS: round(load.every(windows.size), 1)})


def cost_words(strategy: str, costs: Mapping[str, float]) -> str:
    """The sentence on the predicted costs."""
    if costs:
        listed = ", ".join(f"{name} {cost:,.0f}" for name, cost in costs.items())
        return f"predicted cost of a window, in steps: {listed}"
    assumed = ", and many rows of a group in each pane are assumed" if strategy in (PANES, BY_DIFFERENCE) else ""
    return f"too little is known of the stream to predict costs{assumed}"


def by_difference(panes: Panes, use: BlockUse) -> bool:
    """Whether each window is computed from the one before it: entering panes are added, leaving ones subtracted."""
    windows = use.sliding
    if windows is None or use.numbers or windows.tumbling:
        return False
    return windows.size >= MANY_PANES * panes.grain and subtractable(panes, use)


def subtractable(panes: Panes, use: BlockUse) -> bool:
    """Whether partials can be subtracted from a sum without rounding."""
    columns = [panes.column(name) for name in use.columns]
    exact = ("int", "bigint", "decimal")
    return all("sum({c})" in column.reduce and column.type.startswith(exact) for column in columns)


def _groups(windows: SlidingWindows, tables: Sequence[Panes], loads: Loads) -> float | None:
    """The number of groups in a pane, from pane tables with the same keys."""
    for panes in tables:
        load = loads(panes.id)
        if load is not None:
            return load.every(max(windows.grain, panes.grain))
    return None


def fits(windows: SlidingWindows, grain: int, origin: int) -> bool:
    """Whether the panes of a grain and origin divide the windows."""
    return grain > 0 and windows.grain % grain == 0 and (windows.origin - origin) % grain == 0
