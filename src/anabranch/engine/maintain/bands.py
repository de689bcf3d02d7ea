"""The event times of the rows that new rows of a join can match."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from anabranch.algebra.reach import Range, around, hull, reach
from anabranch.algebra.rules import highest
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.progress_bounds import (
    input_bounds,
)
from anabranch.engine.writing import without_time
from anabranch.plan.view import View

if TYPE_CHECKING:
    pass


#: Later than all timestamps of Spark and DuckDB.
LAST = 253_402_300_800_000_000


def partner_ranges(commit: Commit, view: View, placeholder: str) -> dict[str, Range]:
    """By other input: the range of the event times of rows that new rows of an input can match."""
    below = view.join_sources.get(placeholder)
    times = _new_times(commit, below) if below is not None else None
    if times is None:
        return {}
    found = reach(view.join.bands, placeholder, *times)
    if view.emission.late == "drop":
        held = needed(commit, view)
        found = {name: (highest(low, held.get(name)), high) for name, (low, high) in found.items()}
    return found


def needed(commit: Commit, view: View) -> dict[str, int]:
    """By input of a join: the first event time of rows that can still match a future row that is not late."""
    if not view.join.bands or not view.in_time:
        return {}
    bounds = input_bounds(commit.core, commit.catalog, view, commit.before, commit.moves)
    found: dict[str, int] = {}
    for name, since in view.needed(bounds).items():
        input = name if name in view.inputs else name.partition("#")[0]
        found[input] = min(since, found.get(input, LAST))
    return found


def band_ranges(commit: Commit, view: View) -> dict[str, Range]:
    """By input: the range of the event times of all rows that affect the output of an outer join for new rows; empty
    if it is not bounded."""
    if not view.join.steps:
        return {}
    new = {name: _new_times(commit, below) for name, below in view.join_sources.items()}
    starts = {name: times for name, times in new.items() if times is not None}
    # A row without a time matches nothing, but an outer join still emits it.
    if any(None in times for times in starts.values()) or any(
        _without_time(commit, each) for each in set(view.join.views.values())
    ):
        return {}
    found: dict[str, Range] = {}
    for name, times in around(view.join.bands, starts, view.join.steps).items():
        placeholder = name.partition("#")[0]
        found[placeholder] = hull(found.get(placeholder, times), times)
    return found


def _new_times(commit: Commit, id: str) -> Range | None:
    """The range of the event times of new rows of a stream or view, as far as it is known; None for no rows."""
    files = commit.added.get(commit.catalog.rows_of(id)[0], ())
    ranges = [(file.low, file.high) for file in files]
    return reduce(hull, ranges) if ranges else None


def _without_time(commit: Commit, id: str) -> bool:
    """Whether some new rows of a view have no event time."""
    table, time = commit.catalog.rows_of(id)
    folder = commit.core.ledger.table_folder(table)
    return any(without_time(folder / file.path, time or "") for file in commit.added.get(table, ()))
