"""Progress of a stream: the bound below which no row is expected any more.

Progress p says that no row with event time < p is expected. It decides when results are final, never whether
a row counts; it only moves forward, and only between runs. The functions here take what a run saw and the
time of the clock, and return the next state. They read no clock and know neither rows nor sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: The progress of a stream that has ended: later than every time.
END = 2**63 - 1

#: After this many runs in a row with nothing but rows ahead of the clock, it is the clock that is doubted.
AHEAD_RUNS = 3


@dataclass(frozen=True)
class Policy:
    """How progress follows the rows. All durations are in microseconds.

    delay: how far the bound stays behind the highest event time; None moves it by declaration only.
    idle:  how long a silent partition holds the bound; None for ever. Live streams only.
    ahead: how far ahead of the clock a row may be and still move the bound; None any. Live streams only.
    live:  whether rows come as they happen. Old data that is read again says nothing about the clock.
    """

    delay: int | None
    idle: int | None
    ahead: int | None
    live: bool

    def __post_init__(self) -> None:
        for name in ("delay", "idle", "ahead"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"the {name} of a progress policy must not be negative, but is {value}")


@dataclass(frozen=True)
class Seen:
    """What one run saw of one partition.

    high: the highest event time of the rows that are not ahead of the clock; highest: of all rows;
    rows: how many there were; ahead: how many of them were ahead.
    """

    high: int | None
    highest: int | None
    rows: int
    ahead: int = 0


@dataclass(frozen=True)
class PartitionState:
    """The highest event time that counted, and when the partition last moved (or was declared)."""

    high: int | None
    seen_at: int


@dataclass(frozen=True)
class ProgressState:
    """All that has to be kept between two runs."""

    bound: int | None = None
    high: int | None = None
    partitions: Mapping[str, PartitionState] = field(default_factory=dict)
    ahead_runs: int = 0

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {
            "bound": self.bound,
            "high": self.high,
            "partitions": {key: {"high": each.high, "seen_at": each.seen_at} for key, each in self.partitions.items()},
            "ahead_runs": self.ahead_runs,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ProgressState:
        """The state that `to_json` wrote."""
        return cls(
            bound=values["bound"],
            high=values["high"],
            partitions={
                key: PartitionState(each["high"], each["seen_at"]) for key, each in values["partitions"].items()
            },
            ahead_runs=values["ahead_runs"],
        )


def declare(state: ProgressState, partitions: Iterable[str], now: int) -> ProgressState:
    """Make partitions known before they send anything: they hold the bound until they do, or are idle."""
    fresh = {key: PartitionState(None, now) for key in partitions if key not in state.partitions}
    return replace(state, partitions={**state.partitions, **fresh}) if fresh else state


def observe(policy: Policy, state: ProgressState, seen: Mapping[str, Seen], now: int) -> ProgressState:
    """The state after a run that saw these rows, with the clock at `now`."""
    ahead_runs = _count_ahead_runs(policy, state, seen)
    trusted = not _checks_clock(policy) or ahead_runs >= AHEAD_RUNS
    partitions = dict(state.partitions)
    high = state.high
    for key, each in seen.items():
        known = partitions.get(key)
        counted = _highest(each.high, each.highest) if trusted else each.high
        if each.rows and counted is not None:
            past = None if known is None else known.high
            partitions[key] = PartitionState(_highest(past, counted), now)
            high = _highest(high, counted)
        elif known is None:
            # Rows that do not count are no sign of life: a partition whose clock is wrong for good must not
            # hold the others back for good.
            partitions[key] = PartitionState(None, now)
    bound = _highest(state.bound, _reached(policy, partitions, now))
    return ProgressState(bound, high, partitions, ahead_runs)


def tick(policy: Policy, state: ProgressState, now: int) -> ProgressState:
    """The state when the clock has moved and no rows have come."""
    return observe(policy, state, {}, now)


def advance_to(state: ProgressState, progress: int) -> ProgressState:
    """The state after progress was declared by hand; the same object if that would be no step forward."""
    if state.bound is not None and progress <= state.bound:
        return state
    return replace(state, bound=progress)


def end(state: ProgressState) -> ProgressState:
    """The state of a stream that has ended."""
    return advance_to(state, END)


def is_late(time: int, bound: int | None) -> bool:
    """Whether a row comes after it was said not to be expected any more.

    >>> is_late(9, 10), is_late(10, 10), is_late(9, None)
    (True, False, False)
    """
    return bound is not None and time < bound


def combine(bounds: Iterable[int | None]) -> int | None:
    """The progress of several inputs together: the least, and none as long as one has none.

    Without any input there is nothing to wait for.
    """
    least = END
    for bound in bounds:
        if bound is None:
            return None
        least = min(least, bound)
    return least


def _checks_clock(policy: Policy) -> bool:
    return policy.live and policy.ahead is not None


def _count_ahead_runs(policy: Policy, state: ProgressState, seen: Mapping[str, Seen]) -> int:
    rows = sum(each.rows for each in seen.values())
    if not _checks_clock(policy):
        return 0
    if rows == 0:
        return state.ahead_runs
    return state.ahead_runs + 1 if sum(each.ahead for each in seen.values()) == rows else 0


def _reached(policy: Policy, partitions: Mapping[str, PartitionState], now: int) -> int | None:
    """How far the rows have come by themselves, or None if that cannot be said."""
    if policy.delay is None:
        return None
    awake = [each for each in partitions.values() if not _idle(policy, each, now)]
    if any(each.high is None for each in awake):
        return None
    # With every partition silent nobody holds anybody back, and nobody can say more than the furthest has
    # said.
    choose = min if awake else max
    highs = [each.high for each in awake or partitions.values() if each.high is not None]
    return choose(highs) - policy.delay if highs else None


def _idle(policy: Policy, partition: PartitionState, now: int) -> bool:
    return policy.live and policy.idle is not None and now - partition.seen_at >= policy.idle


def _highest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
