"""How far what a view reads has come, before a commit and after it: by event time, arrival, rows or chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.algebra.progress import END
from anabranch.algebra.rules import highest
from anabranch.engine import read
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.progress_bounds import (
    KeyBounds,
    PairBounds,
    key_bounds,
    pair_bounds,
    progress,
    resting,
    state_of,
)
from anabranch.plan.definitions import NUMBERED
from anabranch.plan.view import View
from anabranch.plan.windows import changes_sql

if TYPE_CHECKING:
    pass


def closes(commit: Commit, view: View) -> bool:
    """Whether a view waits for windows to close, and this commit moves what they close by."""
    if view.emission.mode == "close" and view.progress.clock != "event":
        return True  # to count chunks takes longer than the answer is worth
    waits = view.emission.mode == "close" or (view.emission.triggers is not None and view.emission.triggers.watermark)
    if not waits or progress_of(commit, view, 0) != progress_of(commit, view, 1):
        return bool(waits)
    own = own_bounds(commit, view)
    return own is not None and own.before != own.after


def own_bounds(commit: Commit, view: View) -> KeyBounds | PairBounds | None:
    """The bounds by which the keys of a view close one by one; None if they close together."""
    found = key_bounds(commit.core, commit.catalog, view, commit.before, commit.moves)
    return found or pair_bounds(commit.core, commit.catalog, view, commit.before, commit.moves)


def progress_of(commit: Commit, view: View, which: int) -> int | None:
    """The progress of what a view reads, before this commit (0) or after it (1).

    That of its streams, held back by views below that have rows of a window still to show.
    """
    if view.progress.clock == "arrival":  # nothing that comes later can be late
        return commit.now if which else None
    if view.progress.clock == "rows":
        return _rows_taken(commit, view, which)
    if view.progress.clock == "chunks":
        return _chunks_closed(commit, view, which)
    waits = {id: end for id, ends in commit.waits.items() if (end := ends[which]) is not None}
    return progress(commit.core, commit.catalog, view, commit.before, commit.moves, which, waits)


def _rows_taken(commit: Commit, view: View, which: int) -> int:
    """How many rows the streams of a view have, the one with the fewest, before this commit or after it."""
    counted = {id for placeholder, id in view.query.streams.items() if placeholder.startswith(NUMBERED)}
    streams = counted or commit.catalog.sources_of(view)
    return _fewest(commit, view, [(stream, _taken(commit, stream, which)) for stream in streams], which)


def _fewest(commit: Commit, view: View, counts: list[tuple[str, int]], which: int) -> int:
    """The least of what is counted of streams; without those that are idle, and no less than it once was."""
    least = min((count for _, count in counts), default=END)
    passed = commit.before.passed.get(view.id)
    silent = resting(commit.core, commit.catalog, commit.before, commit.moves, {id for id, _ in counts})
    if which and silent:
        passed = highest(passed, min(count for id, count in counts if id not in silent))
        commit.passed[view.id] = passed or 0
    return least if passed is None else max(least, passed)


def _taken(commit: Commit, stream: str, which: int) -> int:
    if state_of(commit.core, commit.before, commit.moves, stream, which).bound == END:
        return END
    return commit.first_number(stream) + (commit.taken.get(stream, 0) if which else 0)


def _chunks_closed(commit: Commit, view: View, which: int) -> int:
    """How many chunks of the streams of a view are over, of the one with the fewest: another one has begun."""
    counts: list[tuple[str, int]] = []
    for id, column in view.progress.cuts:
        if state_of(commit.core, commit.before, commit.moves, id, which).bound == END:
            counts.append((id, END))
            continue
        stream = commit.catalog.stream(id)
        at = commit.after if which else commit.before
        rows = read.kept_rows(commit.core, view, stream, stream.row_fields, at)
        ((count,),) = commit.core.frames.sql(changes_sql(column), {"@rows": rows}).collect()
        counts.append((id, count))
    return _fewest(commit, view, counts, which)
