"""Partials for groups of unequal size: small groups by span, large ones by window.

A span is a range of windows, from its first to its last, and the span of a row is all of its windows. A group whose
rows are no more than the windows they touch has a partial for each span; one that has more rows has a partial for each
window, which is a span of one. A window is the sum of all partials whose span it is in, whatever made them: so a group
can be small in one run and large in the next, and nothing has to be turned into anything.

The same comes twice, as in `sliding`: as functions of plain values, and as SQL text for the two engines that run it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from anabranch.algebra.windows.base import Row
from anabranch.algebra.windows.sliding import SlidingWindows, first_window_sql, last_window_sql
from anabranch.algebra.windows.sql import Engine, operand
from anabranch.algebra.windows.strategies import Fold, Results

P = TypeVar("P")
#: By key and span: the partial of some rows.
Spans = dict[tuple[Hashable, int, int], P]

#: The columns of a partial that say its span: where the last window of it starts, and how many windows it is.
LAST, COUNT = "_pane", "_windows"
#: How much a partial weighs against the windows that it touches: so many rows, or as one.
WEIGHT = "__weight"


def spans(windows: SlidingWindows, rows: Iterable[Row], fold: Fold[P]) -> Spans[P]:
    """What one run of rows adds to the state.

    >>> from anabranch.algebra.windows.strategies import COUNT
    >>> hop = SlidingWindows(size=10, slide=5)
    >>> spans(hop, [Row(7, 0, "small"), *(Row(7, number, "large") for number in (1, 2, 3))], COUNT)
    {('small', 0, 1): 1, ('large', 0, 0): 3, ('large', 1, 1): 3}
    """
    found: Spans[P] = {}
    weights: dict[Hashable, int] = {}
    for row in rows:
        at = windows.at(row.value)
        if at:
            _add(found, (row.key, at[0], at[-1]), fold.lift(row), fold)
            weights[row.key] = weights.get(row.key, 0) + 1
    return settled(found, weights, fold)


def reduced(parts: Iterable[Spans[P]], fold: Fold[P]) -> Spans[P]:
    """Several parts of the state as one. A partial weighs as much as any other now, however many rows it is of."""
    found: Spans[P] = {}
    for part in parts:
        for at, partial in part.items():
            _add(found, at, partial, fold)
    weights: dict[Hashable, int] = {}
    for key, _, _ in found:
        weights[key] = weights.get(key, 0) + 1
    return settled(found, weights, fold)


def settled(partials: Spans[P], weights: Mapping[Hashable, int], fold: Fold[P]) -> Spans[P]:
    """Partials by window for the groups that weigh more than the windows they touch; the others as they are."""
    touched: dict[Hashable, set[int]] = {}
    for key, first, last in partials:
        touched.setdefault(key, set()).update(range(first, last + 1))
    found: Spans[P] = {}
    for (key, first, last), partial in partials.items():
        if weights[key] > len(touched[key]):
            for wid in range(first, last + 1):
                _add(found, (key, wid, wid), partial, fold)
        else:
            _add(found, (key, first, last), partial, fold)
    return found


def windows_of(partials: Spans[P], fold: Fold[P]) -> Results[P]:
    """The aggregate of each window and key."""
    found: Results[P] = {}
    for (key, first, last), partial in partials.items():
        for wid in range(first, last + 1):
            found[wid, key] = fold.merge(found.get((wid, key), fold.zero), partial)
    return found


def _add(found: Spans[P], at: tuple[Hashable, int, int], partial: P, fold: Fold[P]) -> None:
    found[at] = fold.merge(found.get(at, fold.zero), partial)


# ---- the same in SQL


def span_sql(value: str, windows: SlidingWindows, engine: Engine) -> tuple[str, str]:
    """The span of a row: where its last window starts, and how many windows it is in; none or fewer in a gap."""
    first, last = (each(value, windows, 1, engine) for each in (first_window_sql, last_window_sql))
    divided = "div" if engine == "spark" else "//"
    # Both are starts of windows, so that there is nothing to round.
    return last, f"(({last} - {first}) {divided} {windows.slide} + 1)"


def span_starts_sql(last: str, slide: int, engine: Engine) -> str:
    """The starts of the windows of a span, as an array of BIGINT."""
    first = first_of_span_sql(last, slide)
    if engine == "duckdb":
        return f"range({first}, {last} + 1, {slide})"
    return f"sequence({first}, {last}, CAST({slide} AS BIGINT))"


def first_of_span_sql(last: str, slide: int) -> str:
    """Where the first window of a span starts."""
    return f"({operand(last)} - ({COUNT} - 1) * {slide})"


def settled_sql(
    source: str, slide: int, keys: Sequence[str], columns: Mapping[str, str], types: Mapping[str, str], engine: Engine
) -> str:
    """`settled` of a relation with keys, spans, weights and partials; `columns` has the reduce of each partial.

    LAST is a number of microseconds in what it reads, and a time in what it gives.
    """
    of_group = f"PARTITION BY {', '.join(keys)}" if keys else ""
    # From first to last, a span brings what lies behind all windows that were touched so far.
    before = f"max({LAST}) OVER ({of_group} ORDER BY __first, {LAST} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    new = f"greatest({LAST} - greatest(coalesce({before}, __first - {slide}), __first - {slide}), 0)"
    spanned = f"SELECT *, {first_of_span_sql(LAST, slide)} AS __first FROM {source}"
    touching = f"SELECT *, {new} AS __new FROM ({spanned}) AS __spanned"
    large = f"sum({WEIGHT}) OVER ({of_group}) > sum(__new) OVER ({of_group}) / {slide}"
    judged = f"SELECT *, {large} AS __large FROM ({touching}) AS __touching"
    itself, explode = (f"array({LAST})", "explode") if engine == "spark" else (f"[{LAST}]", "unnest")
    starts = f"{explode}(CASE WHEN __large THEN {span_starts_sql(LAST, slide, engine)} ELSE {itself} END)"
    count = f"CASE WHEN __large THEN CAST(1 AS BIGINT) ELSE {COUNT} END"
    exploded = f"SELECT {', '.join([*keys, *columns, f'{count} AS __count', f'{starts} AS __start'])}"
    reduces = [f"CAST({reduce} AS {types[name]}) AS {name}" for name, reduce in columns.items()]
    items = ", ".join([*keys, f"timestamp_micros(__start) AS {LAST}", f"__count AS {COUNT}", *reduces])
    groups = ", ".join([*keys, "__start", "__count"])
    return f"SELECT {items} FROM ({exploded} FROM ({judged}) AS __judged) AS __exploded GROUP BY {groups}"
