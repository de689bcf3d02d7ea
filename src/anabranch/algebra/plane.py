"""The progress plane: a small plan next to the plan of a query that computes the progress of each node.

A bound p on a column means that no later row has a smaller value in it. A node maps the bounds of its inputs to those
of its output, column by column; a column without a bound is missing. Nothing here knows rows or runs: the rules hold
for any execution in which a node has emitted all results of its inputs so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.algebra.progress import END, combine
from anabranch.algebra.windows import SlidingWindows, window_time

#: The bound of each column that has one.
Bounds = Mapping[str, int]


@dataclass(frozen=True)
class Input:
    """A stream, or any other input with given bounds."""

    name: str
    time: str


@dataclass(frozen=True)
class Select:
    """A filter: bounds of all rows are bounds of fewer."""

    input: Node


@dataclass(frozen=True)
class Project:
    """Renamed columns, each plus a constant; the bounds of dropped columns are dropped."""

    input: Node
    columns: Mapping[str, tuple[str, int]]  # new name -> old name, constant added to it


@dataclass(frozen=True)
class DupElim:
    """DISTINCT: the first of equal rows is emitted when it arrives."""

    input: Node


@dataclass(frozen=True)
class Union:
    """UNION ALL of inputs with the same columns: the least of their bounds."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True)
class Window:
    """Each row once for every window that its time is in, with the bounds of the window."""

    input: Node
    time: str
    windows: SlidingWindows


@dataclass(frozen=True)
class Aggregate:
    """GROUP BY: a group is emitted when none of its rows is expected any more, so only keys have bounds."""

    input: Node
    by: tuple[str, ...]


@dataclass(frozen=True)
class BandJoin:
    """Pairs with left.time - right_range <= right.time <= left.time + left_range.

    A row is kept for the range of its own input: as long as a row of the other input that much later may arrive.
    """

    left: Node
    right: Node
    left_time: str
    right_time: str
    left_range: int
    right_range: int


@dataclass(frozen=True)
class TumblingJoin:
    """Pairs of rows in the same window of one size."""

    left: Node
    right: Node
    left_time: str
    right_time: str
    size: int


@dataclass(frozen=True)
class Behind:
    """A column is at most this far behind a column of an input, or behind the start of its window of a size.

    >>> Behind("ts", 3).bound(12), Behind("ts", 3, size=10).bound(12), Behind("ts", -3).bound(END) == END
    (9, 7, True)
    """

    column: str
    by: int
    size: int = 1
    offset: int = 0

    def bound(self, bound: int) -> int:
        return bound if bound == END else bound - (bound - self.offset) % self.size - self.by


#: For each input of a join, the known limits on how far a column is behind it; empty: no limit.
Distances = tuple[tuple[Behind, ...], ...]


def latest(all_of: Iterable[Distances]) -> Distances:
    """The distances of the greatest of some columns: the least of their distances."""
    return tuple(tuple(dict.fromkeys(each for side in sides for each in side)) for sides in zip(*all_of, strict=True))


@dataclass(frozen=True)
class Meet:
    """Joined rows of several inputs, in any join: a result is emitted when its last row arrives, from any input.

    So the bound of a column is the least of the bounds that the inputs imply.
    """

    inputs: tuple[Node, ...]
    columns: Mapping[str, Distances]


Node = Input | Select | Project | DupElim | Union | Window | Aggregate | BandJoin | TumblingJoin | Meet
Join = BandJoin | TumblingJoin


def evaluate(node: Node, given: Mapping[str, int | None]) -> dict[str, int]:
    """The bounds of a node's output, from the progress of its inputs by name; a stream without progress has none.

    >>> minutes = SlidingWindows(60, 60)
    >>> evaluate(Aggregate(Window(Input("s", "ts"), "ts", minutes), ("window_end",)), {"s": 150})
    {'window_end': 180}
    """
    match node:
        case Input(name, time):
            bound = given[name]
            return {} if bound is None else {time: bound}
        case Select(input) | DupElim(input):
            return evaluate(input, given)
        case Project(input, columns):
            below = evaluate(input, given)
            return {new: _plus(below[old], shift) for new, (old, shift) in columns.items() if old in below}
        case Union(inputs):
            return least([evaluate(each, given) for each in inputs])
        case Window(input, time, windows):
            below = evaluate(input, given)
            return {**below, **_open(windows, below[time])} if time in below else below
        case Aggregate(input, by):
            below = evaluate(input, given)
            return {column: below[column] for column in by if column in below}
        case BandJoin() | TumblingJoin():
            return _of_join(node, evaluate(node.left, given), evaluate(node.right, given))
        case Meet(inputs, columns):
            sides = [evaluate(each, given) for each in inputs]
            return {name: bound for name, each in columns.items() if (bound := _evaluated(each, sides)) is not None}


def least(inputs: Sequence[Bounds]) -> dict[str, int]:
    """The bounds of the rows of all inputs: for each column with a bound in all of them, the least."""
    columns = [name for name in inputs[0] if all(name in each for each in inputs)] if inputs else []
    return {name: min(each[name] for each in inputs) for name in columns}


def _plus(bound: int, shift: int) -> int:
    return bound if bound == END else bound + shift


def _open(windows: SlidingWindows, bound: int) -> dict[str, int]:
    """The bounds of the windows that can still get rows: those of the first open window."""
    if bound == END:
        return {"window_id": END, "window_start": END, "window_end": END, "window_time": END}
    first = windows.closed_before(bound)
    start, stop = windows.bounds(first)
    time = window_time(stop, windows.size)
    return {"window_id": first, "window_start": start, "window_end": stop, "window_time": time}


# ---- joins: an individual bound for the time of each input, and a joint one for the pair


def _evaluated(distances: Distances, sides: Sequence[Bounds]) -> int | None:
    """The bound of a column; None if an input does not limit it."""
    found = []
    for each, side in zip(distances, sides, strict=True):
        bound = furthest(each, side)
        if bound is None:
            return None
        found.append(bound)
    return min(found)


def furthest(side: tuple[Behind, ...], bounds: Bounds) -> int | None:
    """How far a column may be behind, by the tightest limit of an input; None for no limit."""
    return max((each.bound(bounds[each.column]) for each in side if each.column in bounds), default=None)


def _of_join(join: Join, left: Bounds, right: Bounds) -> dict[str, int]:
    """A row is emitted as long as a match may arrive: the bound of the other input holds it back, by the window."""
    one, other = join.left_time, join.right_time
    if isinstance(join, BandJoin):
        back, forth = Behind(other, join.left_range), Behind(one, join.right_range)
    else:
        back, forth = Behind(other, 0, join.size), Behind(one, 0, join.size)
    columns: dict[str, Distances] = {one: ((Behind(one, 0),), (back,)), other: ((forth,), (Behind(other, 0),))}
    found = {name: _evaluated(distances, (left, right)) for name, distances in columns.items()}
    return {name: bound for name, bound in found.items() if bound is not None}


def box(join: Join, left: int | None, right: int | None) -> tuple[int, int] | None:
    """The joint bound of a pair of times: no later pair is below both. None if no pair could be anyway."""
    if left is None or right is None:
        return None
    if isinstance(join, BandJoin):
        matches = left - right <= join.right_range and right - left <= join.left_range
    else:
        matches = _begun(left, join.size) == _begun(right, join.size)
    return (left, right) if matches else None


def _begun(bound: int, size: int) -> int:
    return bound if bound == END else bound - bound % size


# ---- what is passed on


@dataclass
class Meld:
    """The common bound of several inputs, reported only when it grows.

    >>> meld = Meld(2)
    >>> [meld.report(0, 20), meld.report(1, 19), meld.report(1, 20), meld.report(1, 21), meld.report(0, 25)]
    [None, 19, 20, None, 21]
    """

    inputs: int
    reported: int | None = None

    def __post_init__(self) -> None:
        self._bounds: list[int | None] = [None] * self.inputs

    def report(self, index: int, bound: int) -> int | None:
        """Update the bound of an input; returns the new common bound, None if unchanged."""
        self._bounds[index] = bound
        together = combine(self._bounds)
        if together is None or (self.reported is not None and together <= self.reported):
            return None
        self.reported = together
        return together


def needed(bound: int | None, consumers: Iterable[SlidingWindows]) -> int | None:
    """A bound rounded down to the last time at which a window of some consumer ends; None if there is none.

    Between two such times no consumer has work.

    >>> needed(119, [SlidingWindows(60, 60)]), needed(119, [SlidingWindows(60, 60), SlidingWindows(30, 10)])
    (60, 110)
    """
    if bound is None or bound == END:
        return bound
    ends = [windows.bounds(windows.closed_before(bound) - 1)[1] for windows in consumers]
    return max(ends, default=None)
