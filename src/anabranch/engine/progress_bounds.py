"""The bounds of views before and after one commit, from the progress of streams."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from anabranch.algebra.progress import END, ProgressState, let_go, own_bounds
from anabranch.algebra.rules import highest
from anabranch.algebra.smoothing import Ready, closing
from anabranch.engine.core import Core
from anabranch.ledger import Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.plane import Joint, bounds_of, joint_bounds, key_of_progress, progress_of
from anabranch.plan.view import View
from anabranch.sources.base import Found

#: The progress of each stream of a commit, before and after it.
Moves = Mapping[str, tuple[ProgressState, ProgressState]]


@dataclass(frozen=True)
class KeyBounds:
    """The bounds of keys that are ahead of their stream, before and after a commit. `index`: which key column."""

    index: int
    before: Mapping[str, int]
    after: Mapping[str, int]

    def of_key(self, key: Sequence[Any]) -> tuple[int | None, int | None]:
        return self.of(key[self.index])

    def of(self, value: Any) -> tuple[int | None, int | None]:
        """The bounds of one key; None where they are those of the stream."""
        part = part_of(value)
        return self.before.get(part), self.after.get(part)

    def parts(self) -> list[str]:
        return list({**self.before, **self.after})

    @property
    def furthest(self) -> tuple[int | None, int | None]:
        return max(self.before.values(), default=None), max(self.after.values(), default=None)


@dataclass(frozen=True)
class PairBounds:
    """The bounds that close groups of pairs by several times: each input of the join has passed one of them."""

    ends: tuple[tuple[int, int], ...]  # the key column of each time, and the offset to its window's end
    before: Joint
    after: Joint

    def of_key(self, key: Sequence[Any]) -> tuple[int | None, int | None]:
        """The end of the last window of a key, before and after a commit, if it is closed; else None."""
        ends = [micros(key[index], shift) for index, shift in self.ends]
        return _closed(ends, self.before), _closed(ends, self.after)


def _closed(ends: Sequence[int | None], bounds: Joint) -> int | None:
    known = [(end, own) for end, own in zip(ends, bounds, strict=True) if end is not None]
    for side in range(len(bounds[0])):
        if not any(bound is not None and end <= bound for end, own in known for bound in (own[side],)):
            return None
    return max(end for end, _ in known)


def micros(moment: Any, shift: int = 0) -> int | None:
    """A time in microseconds; a number is unchanged."""
    if moment is None or isinstance(moment, int):
        return None if moment is None else moment + shift
    return int(moment.timestamp()) * 1_000_000 + int(moment.microsecond) + shift


def part_of(value: Any) -> str:
    """The name of a key as a partition of a stream."""
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
    """The progress of what a view reads, before a commit (0) or after it (1)."""
    bound = progress_of(catalog, view, lambda id: state_of(core, snapshot, moves, id, which).bound, waits)
    return highest(bound, _passed(core, catalog, view, snapshot, moves, which, waits))


def _passed(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    moves: Moves,
    which: int,
    waits: Mapping[str, int] | None,
) -> int | None:
    """The progress of a view past idle streams. It does not go back when they have rows again: these are late."""
    if view.progress.clock != "event":
        return None
    before = snapshot.passed.get(view.id)
    silent = resting(core, catalog, snapshot, moves, catalog.sources_of(view)) if which else frozenset()
    if not silent:
        return before
    bound = progress_of(
        catalog, view, lambda id: state_of(core, snapshot, moves, id, which).bound, waits, without=silent
    )
    return highest(before, bound)


def input_bounds(core: Core, catalog: Catalog, view: View, snapshot: Snapshot, moves: Moves) -> dict[str, int | None]:
    """The progress of the event times of a join's inputs before a commit; None: unknown.

    Rows of a view can be arbitrarily old where its event time does not progress, as that of the last row of each key:
    then the inputs of the view decide what is in time.
    """

    def of_stream(id: str) -> int | None:
        return state_of(core, snapshot, moves, id, 0).bound

    found: dict[str, int | None] = {}
    for name, id in view.join_sources.items():
        if name.partition("#")[0] not in view.join.views:
            found[name] = of_stream(id)
            continue
        below = catalog.view(id)
        bound = bounds_of(catalog, below, of_stream).get(below.time)
        if below.follows:  # a row changes with the next one
            bound = min(below.needed(input_bounds(core, catalog, below, snapshot, moves)).values(), default=None)
        found[name] = bound if bound is not None else progress_of(catalog, below, of_stream)
    return found


def resting(core: Core, catalog: Catalog, snapshot: Snapshot, moves: Moves, streams: Iterable[str]) -> frozenset[str]:
    """The idle streams among these, which the others do not wait for after a commit."""
    known = {id: (catalog.stream(id).policy, state_of(core, snapshot, moves, id, 1)) for id in streams}
    return let_go(known) if len(known) > 1 else frozenset()


@dataclass(frozen=True)
class Held:
    """The progress of a view with a budget in a commit, and what its last runs, this one included, could have reached:
    only as many as tell how long a window has waited, none where nothing waits.
    """

    bound: int
    ready: tuple[int, ...] = ()


@dataclass
class Outcome:
    """What a commit does to the bounds of views.

    held:   of those with a budget;
    passed: of those whose windows count rows or chunks, their progress past idle streams;
    backends: what computed their changes, and why;
    and to the views themselves: why some had to stop (`stopped`), and which rows they could not compute (`aside`), by
    the ids of the view and of the stream.
    """

    held: dict[str, Held] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    aside: dict[tuple[str, str], Found] = field(default_factory=dict)
    backends: dict[str, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Merge the outcome of another step of the same commit."""
        self.held |= other.held
        self.passed |= other.passed
        self.backends |= other.backends


def shown_before(view: View, snapshot: Snapshot, before: int | None) -> int | None:
    """The bound up to which a view with a budget had shown its windows; None for none."""
    return None if before is None else snapshot.bounds.get(view.id)


def hold(view: View, snapshot: Snapshot, after: int, ready: Iterable[tuple[int, int]]) -> Held:
    """Spend the budget of a view on the windows that are ready: their ends and how many rows each will show."""
    budget = view.emission.budget
    assert budget is not None
    if after == END:
        return Held(END)
    earlier = snapshot.ready.get(view.id, ())
    reached = (*earlier, after)
    waiting = [Ready(end, rows, bisect_left(reached, end)) for end, rows in ready]
    shown = closing(waiting, budget, len(earlier))
    if len(shown) == len(waiting):
        return Held(after)
    bound = shown[-1].end
    left = [each for each in reached if each > bound]
    return Held(bound, tuple(left[-budget.delay :]) if budget.delay is not None else ())


def held_back(catalog: Catalog, snapshot: Snapshot, held: Mapping[str, Held]) -> dict[str, int]:
    """The ends before which views with a budget have shown everything, as `progress` wants to know it."""
    found = {}
    for view in catalog.of(View):
        bound = held[view.id].bound if view.id in held else snapshot.bounds.get(view.id)
        if view.emission.budget is not None and bound is not None:
            found[view.id] = bound + 1
    return found


class ViewBounds(TypedDict):
    """What the record of a commit says of views: their bounds, and where they were computed."""

    bounds: dict[str, int]
    ready: dict[str, tuple[int, ...]]
    passed: dict[str, int | None]
    backends: dict[str, str]


def bounds_after(core: Core, catalog: Catalog, snapshot: Snapshot, moves: Moves, outcome: Outcome) -> ViewBounds:
    """The bounds of views after a commit whose changes are computed, where they are not what the snapshot says."""
    waits = _waits(core, catalog, snapshot, outcome.held)
    passed: dict[str, int | None] = {**outcome.passed}
    for view in catalog.of(View):
        sources = catalog.sources_of(view)
        if len(sources) > 1 and sources & set(moves) and view.progress.clock == "event":
            passed[view.id] = _passed(core, catalog, view, snapshot, moves, 1, waits)
    return ViewBounds(
        bounds=_view_bounds(core, catalog, snapshot, moves, outcome.held, waits),
        ready=_ready_bounds(snapshot, outcome.held),
        passed={id: bound for id, bound in passed.items() if bound != snapshot.passed.get(id)},
        backends=outcome.backends,
    )


def _view_bounds(
    core: Core,
    catalog: Catalog,
    snapshot: Snapshot,
    moves: Moves,
    held: Mapping[str, Held],
    waits: Mapping[str, int],
) -> dict[str, int]:
    """How far the views have come after a commit, hidden ones among them, by id."""
    views = [view for view in catalog.of(View) if catalog.sources_of(view) & set(moves)]
    found = {
        view.id: progress(core, catalog, view, snapshot, moves, 1, waits) for view in views if not view.emission.budget
    }
    found |= {id: each.bound for id, each in held.items()}
    return {id: bound for id, bound in found.items() if bound is not None and bound != snapshot.bounds.get(id)}


def _waits(core: Core, catalog: Catalog, snapshot: Snapshot, held: Mapping[str, Held]) -> dict[str, int]:
    """The ends of the first windows that views have still to show."""
    waits = {}
    for view in catalog.of(View):
        waiting = core.timers.earliest(view) if view.emission.triggers is not None else None
        if waiting is not None:
            waits[view.id] = waiting
    return waits | held_back(catalog, snapshot, held)


def anything_waits(core: Core, catalog: Catalog, snapshot: Snapshot, stream: str) -> bool:
    """Whether a view on a stream has a budget and could show more than it does."""
    views = [
        view for view in catalog.of(View) if view.emission.budget is not None and stream in catalog.sources_of(view)
    ]
    if not views:
        return False
    for view in catalog.of(View):
        if view.emission.triggers is not None:
            core.timers.pending(view, snapshot)
    waits = _waits(core, catalog, snapshot, {})
    found = {view.id: progress(core, catalog, view, snapshot, {}, 1, waits) for view in views}
    return any(bound is not None and bound != snapshot.bounds.get(id) for id, bound in found.items())


def _ready_bounds(snapshot: Snapshot, held: Mapping[str, Held]) -> dict[str, tuple[int, ...]]:
    """How far views with a budget could have come, where that is not what the snapshot says."""
    return {id: each.ready for id, each in held.items() if each.ready != snapshot.ready.get(id, ())}


def key_bounds(core: Core, catalog: Catalog, view: View, snapshot: Snapshot, moves: Moves) -> KeyBounds | None:
    """The bounds by which the windows of a view close key by key; None if they close with the stream."""
    found = key_of_progress(catalog, view)
    if found is None:
        return None
    stream, index = found
    before, after = (own_bounds(stream.policy, state_of(core, snapshot, moves, stream.id, at)) for at in (0, 1))
    return KeyBounds(index, before, after)


def pair_bounds(core: Core, catalog: Catalog, view: View, snapshot: Snapshot, moves: Moves) -> PairBounds | None:
    """The bounds by which a view closes its groups of pairs one by one; None if one bound closes them all."""

    def bounds(which: int) -> Joint | None:
        return joint_bounds(catalog, view, lambda id: state_of(core, snapshot, moves, id, which).bound)

    before, after = bounds(0), bounds(1)
    if before is None or after is None or view.progress.joint is None:
        return None
    names = [key.name for key in view.keying.columns]
    ends = tuple((names.index(name), view.progress.times[name]) for name in view.progress.joint.ends)
    return PairBounds(ends, before, after)
