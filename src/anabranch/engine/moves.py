"""How the progress of streams moves in one commit, as the views that wait for it see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.algebra.progress import ProgressState, own_bounds
from anabranch.engine.core import Core
from anabranch.ledger import Snapshot
from anabranch.plan.catalog import Catalog, View
from anabranch.plan.plane import key_of_progress, progress_of

#: The progress of each stream that a commit is about, before and after it.
Moves = Mapping[str, tuple[ProgressState, ProgressState]]


@dataclass(frozen=True)
class KeyBounds:
    """The bounds of keys that are further than their stream, before and after a commit. `index`: which key it is."""

    index: int
    before: Mapping[str, int]
    after: Mapping[str, int]

    def of(self, value: Any) -> tuple[int | None, int | None]:
        """The bounds of one key; None where it is as far as the stream."""
        part = part_of(value)
        return self.before.get(part), self.after.get(part)

    def parts(self) -> list[str]:
        return list({**self.before, **self.after})

    @property
    def furthest(self) -> tuple[int | None, int | None]:
        return max(self.before.values(), default=None), max(self.after.values(), default=None)


def part_of(value: Any) -> str:
    """The name of a key among the parts of a stream."""
    if value is None:
        return ""
    return f"={str(value).lower() if isinstance(value, bool) else value}"


def state_of(core: Core, snapshot: Snapshot, moves: Moves, stream: str, which: int) -> ProgressState:
    return moves[stream][which] if stream in moves else core.progress(snapshot, stream)


def progress(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    moves: Moves,
    which: int,
    waits: Mapping[str, int] | None = None,
) -> int | None:
    """How far what a view reads has come, before a commit (0) or after it (1)."""
    return progress_of(catalog, view, lambda id: state_of(core, snapshot, moves, id, which).bound, waits)


def view_bounds(core: Core, catalog: Catalog, snapshot: Snapshot, moves: Moves) -> dict[str, int]:
    """How far the views have come after a commit whose changes are computed, hidden ones among them, by id."""
    waits = {}
    for view in catalog.of(View):
        waiting = core.timers.earliest(view) if view.triggers is not None else None
        if waiting is not None:
            waits[view.id] = waiting
    views = [view for view in catalog.of(View) if catalog.sources_of(view) & set(moves)]
    found = {view.id: progress(core, catalog, view, snapshot, moves, 1, waits) for view in views}
    return {id: bound for id, bound in found.items() if bound is not None and bound != snapshot.bounds.get(id)}


def key_bounds(core: Core, catalog: Catalog, view: View, snapshot: Snapshot, moves: Moves) -> KeyBounds | None:
    """The bounds by which the windows of a view close key by key; None if they close with the stream."""
    found = key_of_progress(catalog, view)
    if found is None:
        return None
    stream, index = found
    before, after = (own_bounds(stream.policy, state_of(core, snapshot, moves, stream.id, at)) for at in (0, 1))
    return KeyBounds(index, before, after)
