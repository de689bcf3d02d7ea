"""Partials for groups of unequal size: small groups by span, large ones by window.

A span is a range of windows, from its first to its last, and the span of a row is all of its windows. A small group has
a partial for each span, a large one a partial for each window, which is a span of one. A window is the sum of all
partials whose span it is in: so a group can be small in one run and large in the next without any conversion.

`Thresholds` decides which groups are large, by the number of their rows in open windows. Partials carry that from run
to run: the rows whose last window is theirs, and whether their group was large in their run.

Everything is here twice, as in `sliding`: as functions of plain values, and as SQL text for both engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from anabranch.algebra.windows.base import Row
from anabranch.algebra.windows.costs import Thresholds
from anabranch.algebra.windows.sliding import SlidingWindows, first_window_sql, last_window_sql
from anabranch.algebra.windows.sql import Engine, operand
from anabranch.algebra.windows.strategies import Fold, Results

P = TypeVar("P")
#: Partials by key and span.
Spans = dict[tuple[Hashable, int, int], P]

#: The columns of the span of a partial: the start of its last window, and the number of windows.
LAST, COUNT = "_pane", "_windows"
#: The columns of the size of its group: the number of rows whose last window is that of the span, which are removed
#: when it closes; and twice the number of the run, plus one if the group was large then.
ENDING, FORM = "_ending", "_form"
#: The number of rows of a run in a partial, or of those that end with its last window.
WEIGHT = "__weight"
#: The state of a group before a run: the number of its rows in open windows, and whether it was large.
VOLUME, WAS_LARGE = "__volume", "__was_large"


def spans(
    windows: SlidingWindows, rows: Iterable[Row], fold: Fold[P], large: Collection[Hashable] = frozenset()
) -> Spans[P]:
    """The partials that a run of rows adds to the state, with some groups large.

    >>> from anabranch.algebra.windows.strategies import COUNT
    >>> hop = SlidingWindows(size=10, slide=5)
    >>> spans(hop, [Row(7, 0, "small"), *(Row(7, number, "large") for number in (1, 2, 3))], COUNT, {"large"})
    {('small', 0, 1): 1, ('large', 0, 0): 3, ('large', 1, 1): 3}
    """
    found: Spans[P] = {}
    for row in rows:
        at = windows.at(row.value)
        if at:
            _add(found, (row.key, at[0], at[-1]), fold.lift(row), fold)
    return settled(found, fold, large)


def reduced(parts: Iterable[Spans[P]], fold: Fold[P]) -> Spans[P]:
    """Several parts of the state, merged."""
    found: Spans[P] = {}
    for part in parts:
        for at, partial in part.items():
            _add(found, at, partial, fold)
    return settled(found, fold)


def settled(partials: Spans[P], fold: Fold[P], large: Collection[Hashable] = frozenset()) -> Spans[P]:
    """Partials by window for large groups, and for groups with more partials than windows; others
    unchanged."""
    touched: dict[Hashable, set[int]] = {}
    for key, first, last in partials:
        touched.setdefault(key, set()).update(range(first, last + 1))
    counts = Counter(key for key, _, _ in partials)
    found: Spans[P] = {}
    for (key, first, last), partial in partials.items():
        if key in large or counts[key] > len(touched[key]):
            for wid in range(first, last + 1):
                _add(found, (key, wid, wid), partial, fold)
        else:
            _add(found, (key, first, last), partial, fold)
    return found


class Groups:
    """The state of groups between runs: which are large, and the number of rows by their last window.

    Only groups with open windows are kept.
    """

    def __init__(self, windows: SlidingWindows) -> None:
        self.windows = windows
        self.large: set[Hashable] = set()
        self._ending: dict[Hashable, Counter[int]] = {}
        self._first_open: float = -inf

    def volume(self, key: Hashable) -> int:
        """The number of rows of a group in open windows."""
        return sum(self._ending.get(key, Counter()).values())

    def take(self, rows: Iterable[Row], thresholds: Thresholds) -> set[Hashable]:
        """The groups of a run that are large after it. A row that is too late for all of its windows is not counted.

        >>> groups, limits = Groups(SlidingWindows(10, 5)), Thresholds(up=2, down=2)
        >>> [groups.take([Row(7, number)], limits) for number in range(4)]
        [set(), set(), {None}, {None}]
        """
        brought: dict[Hashable, Counter[int]] = {}
        touched: dict[Hashable, set[int]] = {}
        for row in rows:
            at = self.windows.at(row.value)
            if at:
                touched.setdefault(row.key, set()).update(at)
                open_still = at[-1] >= self._first_open
                brought.setdefault(row.key, Counter()).update(at[-1:] if open_still else ())
        found = {
            key
            for key, ending in brought.items()
            if thresholds.large(key in self.large, self.volume(key), ending.total(), len(touched[key]))
        }
        for key, ending in brought.items():
            self._ending.setdefault(key, Counter()).update(ending)
        self.large = (self.large - brought.keys()) | found
        return found

    def advance(self, progress: int) -> None:
        """Close windows: remove their last rows, and groups without other rows."""
        self._first_open = max(self._first_open, self.windows.closed_before(progress))
        for key, ending in list(self._ending.items()):
            left = Counter({wid: count for wid, count in ending.items() if wid >= self._first_open})
            self._ending[key] = left
            if not left:
                del self._ending[key]
                self.large.discard(key)


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
    """The span of a row: the start of its last window, and the number of its windows; 0 or less in a gap."""
    first, last = (each(value, windows, 1, engine) for each in (first_window_sql, last_window_sql))
    divided = "div" if engine == "spark" else "//"
    # Both are starts of windows, so the division is exact.
    return last, f"(({last} - {first}) {divided} {windows.slide} + 1)"


def span_starts_sql(last: str, slide: int, engine: Engine) -> str:
    """The starts of the windows of a span, as an array of BIGINT."""
    first = first_of_span_sql(last, slide)
    if engine == "duckdb":
        return f"range({first}, {last} + 1, {slide})"
    return f"sequence({first}, {last}, CAST({slide} AS BIGINT))"


def first_of_span_sql(last: str, slide: int) -> str:
    """The start of the first window of a span."""
    return f"({operand(last)} - ({COUNT} - 1) * {slide})"


@dataclass(frozen=True)
class Judging:
    """The parameters of the decision which groups of a run are large.

    open_after: rows whose last window starts behind this are in open windows; None: all of them.
    counted:    whether the rows are new. Others were counted on arrival, and are read for columns added later.
    """

    thresholds: Thresholds
    open_after: int | None
    run: int
    counted: bool = True

    def large_sql(self, group: str) -> str:
        """`Thresholds.large` of the group of a partial; `group` is its window of partials."""
        still = "true" if self.open_after is None else f"{LAST} > {self.open_after}"
        brought = f"sum(CASE WHEN {still} THEN {WEIGHT} ELSE 0 END) OVER ({group})"
        up, down = self.thresholds.up, self.thresholds.down
        return f"{VOLUME} + {brought} > greatest({up!r}, __touched) OR ({WAS_LARGE} AND {VOLUME} >= {down!r})"


def known_sql(source: str, keys: Sequence[str], open_after: int | None) -> str:
    """The state of the groups with open windows, from a relation of all their partials."""
    still = "true" if open_after is None else f"unix_micros({LAST}) > {open_after}"
    volume, was_large = f"CAST(sum({ENDING}) AS BIGINT)", f"coalesce(max({FORM}) % 2 = 1, false)"
    items = ", ".join([*keys, f"{volume} AS {VOLUME}", f"{was_large} AS {WAS_LARGE}"])
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {items} FROM {source} AS __partials WHERE {still}{group} HAVING sum({ENDING}) > 0"


def settled_sql(
    source: str,
    slide: int,
    keys: Sequence[str],
    columns: Mapping[str, str],
    types: Mapping[str, str],
    engine: Engine,
    judging: Judging | None = None,
    known: str | None = None,
) -> str:
    """`settled` of a relation with keys, spans, weights and partials; `columns` has the reduce of each partial.

    With `judging` the input is the rows of a run, and `known` is the state of their groups, if any; otherwise it is
    several parts of the state, with the FORM of each partial. LAST is microseconds in the input and a time in the
    output.
    """
    of_group = f"PARTITION BY {', '.join(keys)}" if keys else ""
    # From first to last, a span adds the windows after all that were touched so far.
    before = f"max({LAST}) OVER ({of_group} ORDER BY __first, {LAST} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    new = f"greatest({LAST} - greatest(coalesce({before}, __first - {slide}), __first - {slide}), 0)"
    spanned = f"SELECT *, {first_of_span_sql(LAST, slide)} AS __first FROM {_with_known(source, keys, known)}"
    touching = f"SELECT *, {new} AS __new FROM ({spanned}) AS __spanned"
    counts = f"sum(__new) OVER ({of_group}) / {slide} AS __touched, count(*) OVER ({of_group}) AS __partials"
    counting = f"SELECT *, {counts} FROM ({touching}) AS __touching"
    large = judging.large_sql(of_group) if judging is not None else "false"
    judged = f"SELECT *, {large} AS __large FROM ({counting}) AS __counting"
    by_window = "(__large OR __partials > __touched)"
    itself, explode = (f"array({LAST})", "explode") if engine == "spark" else (f"[{LAST}]", "unnest")
    starts = f"{explode}(CASE WHEN {by_window} THEN {span_starts_sql(LAST, slide, engine)} ELSE {itself} END)"
    count = f"CASE WHEN {by_window} THEN CAST(1 AS BIGINT) ELSE {COUNT} END"
    form, weight = FORM, WEIGHT
    if judging is not None:
        form = f"{2 * judging.run} + CASE WHEN __large THEN 1 ELSE 0 END" if judging.counted else "NULL"
        weight = WEIGHT if judging.counted else "0"
    carried = [f"{LAST} AS __last", f"{weight} AS __ending", f"{form} AS __form"]
    exploded = f"SELECT {', '.join([*keys, *columns, *carried, f'{count} AS __count', f'{starts} AS __start'])}"
    group_size_items = [
        f"CAST(sum(CASE WHEN __start = __last THEN __ending ELSE 0 END) AS BIGINT) AS {ENDING}",
        f"CAST(max(__form) AS BIGINT) AS {FORM}",
    ]
    reduces = [f"CAST({reduce} AS {types[name]}) AS {name}" for name, reduce in columns.items()]
    items = ", ".join(
        [*keys, f"timestamp_micros(__start) AS {LAST}", f"__count AS {COUNT}", *group_size_items, *reduces]
    )
    groups = ", ".join([*keys, "__start", "__count"])
    return f"SELECT {items} FROM ({exploded} FROM ({judged}) AS __judged) AS __exploded GROUP BY {groups}"


def _with_known(source: str, keys: Sequence[str], known: str | None) -> str:
    """A relation joined with the state of the group of each row."""
    if known is None:
        return f"(SELECT *, 0 AS {VOLUME}, false AS {WAS_LARGE} FROM {source} AS __source) AS __known_source"
    same = " AND ".join(f"__source.{key} IS NOT DISTINCT FROM __groups.{key}" for key in keys) or "true"
    items = f"coalesce({VOLUME}, 0) AS {VOLUME}, coalesce({WAS_LARGE}, false) AS {WAS_LARGE}"
    joined = f"{source} AS __source LEFT JOIN {known} AS __groups ON {same}"
    return f"(SELECT __source.*, {items} FROM {joined}) AS __known_source"
