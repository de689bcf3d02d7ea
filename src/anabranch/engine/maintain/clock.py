"""The progress of a view's inputs before and after a commit: by event time, arrival time, rows or chunks."""

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
    """Whether a view emits when windows close, and this commit moves its progress."""
    if view.emission.mode == "close" and view.progress.clock != "event":
        return True  # counting chunks to find out costs more than computing the answer
    waits = view.emission.mode == "close" or (view.emission.triggers is not None and view.emission.triggers.watermark)
    if not waits or progress_of(commit, view, 0) != progress_of(commit, view, 1):
        return bool(waits)
    own = own_bounds(commit, view)
    return own is not None and own.before != own.after


def own_bounds(commit: Commit, view: View) -> KeyBounds | PairBounds | None:
    """The progress of each key of a view; None if all keys have the same."""
    found = key_bounds(commit.core, commit.catalog, view, commit.before, commit.moves)
    return found or pair_bounds(commit.core, commit.catalog, view, commit.before, commit.moves)


def progress_of(commit: Commit, view: View, which: int) -> int | None:
    """The progress of a view's inputs, before this commit (0) or after it (1).

    It is the progress of its streams, held back by views below that have pending windows.
    """
    if view.progress.clock == "arrival":  # no later row can be late
        return commit.now if which else None
    if view.progress.clock == "rows":
        return _rows_taken(commit, view, which)
    if view.progress.clock == "chunks":
        return _chunks_closed(commit, view, which)
    waits = {id: end for id, ends in commit.waits.items() if (end := ends[which]) is not None}
    return progress(commit.core, commit.catalog, view, commit.before, commit.moves, which, waits)


def _rows_taken(commit: Commit, view: View, which: int) -> int:
    """The number of rows of the view's shortest stream, before this commit (0) or after it (1)."""
    counted = {id for placeholder, id in view.query.streams.items() if placeholder.startswith(NUMBERED)}
    streams = counted or commit.catalog.sources_of(view)
    return _fewest(commit, view, [(stream, _taken(commit, stream, which)) for stream in streams], which)


def _fewest(commit: Commit, view: View, counts: list[tuple[str, int]], which: int) -> int:
    """The least count of any stream that is not idle; it never decreases."""
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
    """The number of complete chunks, those followed by another chunk, of the view's stream with the fewest."""
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
