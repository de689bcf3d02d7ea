"""Progress of a stream: the bound below which no row is expected any more.

Progress p says that no row with event time < p is expected. It decides when results are final, never whether
a row counts; it only moves forward, and only between runs. The functions here take what a run saw and the
time of the clock, and return the next state. They read no clock and know neither rows nor sources.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

#: The progress of a stream that has ended: later than every time.
END = 2**63 - 1

#: After this many runs in a row with nothing but rows ahead of the clock, it is the clock that is doubted.
AHEAD_RUNS = 3


@dataclass(frozen=True)
class Percentile:
    """A bound that `percentile` percent of the last `events` rows lie above, taken anew every `frequency` rows.

    There is none until so many rows have come. One row far in the future does not move it.
    """

    events: int
    percentile: float
    frequency: int = 1

    def __post_init__(self) -> None:
        for name in ("events", "frequency"):
            if getattr(self, name) < 1:
                raise ValueError(f"the {name} of a percentile must be at least 1, but is {getattr(self, name)}")
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"a percentile lies between 0 and 100, but is {self.percentile}")

    @property
    def rank(self) -> int:
        """Which of the event times is the bound, counted from the smallest; rounded down, and at least the first.

        >>> Percentile(events=1000, percentile=94.9).rank, Percentile(events=10, percentile=99).rank
        (51, 1)
        """
        # A percentile is meant as it is written: as a float, 100 - 94.9 is less than 5.1.
        above = Fraction(str(self.percentile))
        return max(1, int((100 - above) * self.events / 100))


@dataclass(frozen=True)
class Policy:
    """How progress follows the rows. All durations are in microseconds.

    delay: how far the bound stays behind the highest event time.
    idle:  how long a silent partition holds the bound; None for ever. Live streams only.
    ahead: how far ahead of the clock a row may be and still move the bound; None any. Live streams only.
    live:  whether rows come as they happen. Old data that is read again says nothing about the clock.
    percentile: how the bound follows from the last rows, in place of a delay.

    With neither a delay nor a percentile the bound moves by declaration only.
    """

    delay: int | None
    idle: int | None
    ahead: int | None
    live: bool
    percentile: Percentile | None = None

    def __post_init__(self) -> None:
        for name in ("delay", "idle", "ahead"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"the {name} of a progress policy must not be negative, but is {value}")
        if self.delay is not None and self.percentile is not None:
            raise ValueError("a progress policy has a delay or a percentile, not both")

    @property
    def simple(self) -> bool:
        """Whether the highest event time of a run is all that has to be known of its rows."""
        return self.percentile is None

    @property
    def follows_rows(self) -> bool:
        """Whether rows move the bound, and not declarations alone."""
        return self.delay is not None or self.percentile is not None


@dataclass(frozen=True)
class Seen:
    """What one run saw of one partition.

    high: the highest event time of the rows that are not ahead of the clock; highest: of all rows;
    rows: how many there were; ahead: how many of them were ahead;
    times: all event times in the order in which they came, for a policy with a percentile only.
    """

    high: int | None
    highest: int | None
    rows: int
    ahead: int = 0
    times: Sequence[int] = ()


@dataclass(frozen=True)
class Recent:
    """What a percentile is taken from: the last event times that counted, as they came, how many of them came since
    it was last taken, and the highest bound so far."""

    times: tuple[int, ...] = ()
    since: int = 0
    bound: int | None = None


@dataclass(frozen=True)
class PartitionState:
    """The highest event time that counted, and when the partition last moved (or was declared)."""

    high: int | None
    seen_at: int
    recent: Recent | None = None  # for a policy with a percentile

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        values: dict[str, Any] = {"high": self.high, "seen_at": self.seen_at}
        if self.recent is not None:
            recent = self.recent
            values["recent"] = {"times": list(recent.times), "since": recent.since, "bound": recent.bound}
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PartitionState:
        """The state that `to_json` wrote."""
        recent = values.get("recent")
        kept = None if recent is None else Recent(tuple(recent["times"]), recent["since"], recent["bound"])
        return cls(values["high"], values["seen_at"], kept)


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
            "partitions": {key: each.to_json() for key, each in self.partitions.items()},
            "ahead_runs": self.ahead_runs,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ProgressState:
        """The state that `to_json` wrote."""
        return cls(
            bound=values["bound"],
            high=values["high"],
            partitions={key: PartitionState.from_json(each) for key, each in values["partitions"].items()},
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
            recent = _follow(policy, known, (time for time in each.times if time <= counted))
            partitions[key] = PartitionState(_highest(past, counted), now, recent)
            high = _highest(high, counted)
        elif known is None:
            # Rows that do not count are no sign of life: a partition whose clock is wrong for good must not
            # hold the others back for good.
            partitions[key] = PartitionState(None, now)
    bound = _highest(state.bound, _together(policy, partitions, now))
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


def reached(policy: Policy, partition: PartitionState) -> int | None:
    """How far the rows of one partition have come by themselves, or None if that cannot be said."""
    if policy.percentile is not None:
        return partition.recent.bound if partition.recent is not None else None
    return None if policy.delay is None or partition.high is None else partition.high - policy.delay


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


def _follow(policy: Policy, known: PartitionState | None, times: Iterable[int]) -> Recent | None:
    """The last event times after these have come, one after the other: where runs begin and end makes no difference."""
    rule = policy.percentile
    if rule is None:
        return None
    before = known.recent if known is not None and known.recent is not None else Recent()
    last, ordered = deque(before.times), sorted(before.times)
    since, bound, rank = before.since, before.bound, rule.rank
    for time in times:
        last.append(time)
        insort(ordered, time)
        if len(last) > rule.events:
            del ordered[bisect_left(ordered, last.popleft())]
        since += 1
        if len(last) == rule.events and since >= rule.frequency:
            since, bound = 0, _highest(bound, ordered[rank - 1])
    return Recent(tuple(last), since, bound)


def _together(policy: Policy, partitions: Mapping[str, PartitionState], now: int) -> int | None:
    """How far the rows of all partitions have come by themselves, or None if that cannot be said."""
    awake = [each for each in partitions.values() if not _idle(policy, each, now)]
    bounds = [reached(policy, each) for each in awake or partitions.values()]
    known = [bound for bound in bounds if bound is not None]
    if not known or (awake and len(known) < len(awake)):
        return None
    # With every partition silent nobody holds anybody back, and nobody can say more than the furthest has
    # said.
    return min(known) if awake else max(known)


def _idle(policy: Policy, partition: PartitionState, now: int) -> bool:
    return policy.live and policy.idle is not None and now - partition.seen_at >= policy.idle


def _highest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
