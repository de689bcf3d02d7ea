"""Progress of a stream: the bound below which no row is expected any more.

Progress p means that no row with event time < p is expected. It decides when results are final, never whether
a row counts; it only moves forward, and only between runs. The functions here take a summary of a run and the
time of the clock, and return the next state. They read no clock and know neither rows nor sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anabranch.algebra.rules import Computed, Delay, Lagging, Percentile, Punctuation, Recent, Rule, highest

__all__ = [
    "END",
    "EVERY_KEY",
    "MOST_KEYS",
    "Computed",
    "Delay",
    "Lagging",
    "PartitionState",
    "Percentile",
    "Policy",
    "ProgressState",
    "Punctuation",
    "Recent",
    "Rule",
    "Seen",
    "TooManyKeys",
    "advance_to",
    "combine",
    "declare",
    "end",
    "is_late",
    "let_go",
    "observe",
    "own_bounds",
    "reached",
    "tick",
]

#: The progress of a stream that has ended: later than every time.
END = 2**63 - 1
#: Longer than any stream, in microseconds: added to a time that only the end of a stream passes.
FOREVER = 10**18

#: After this many consecutive runs with only rows ahead of the clock, the clock is assumed to be wrong.
AHEAD_RUNS = 3

#: The maximum number of keys, and of their remembered event times, in the record of a run.
MOST_KEYS = 100_000


#: The part, in a stream with progress by key, whose rows mark progress for all keys.
EVERY_KEY = "*"


class TooManyKeys(ValueError):
    """More keys than the record of a run can hold."""


@dataclass(frozen=True)
class Policy:
    """How progress follows the rows. All durations are in microseconds.

    rule:  how the bound follows the rows of one part; None: only declarations move it.
    idle:  how long a silent part holds the bound; None: for ever. Measured by the clock in live streams; for keys of
           other streams by their highest event time; partitions of other streams are never idle.
    ahead: how far ahead of the clock a row may be and still move the bound; None: any. Live streams only.
    live:  whether rows arrive as they happen. A replay of old data is independent of the clock.
    keyed: whether the parts are the values of a column, rather than the partitions of the source.
    lull:  whether the clock moves the bound of a stream of which all parts are silent. Live streams only.
    """

    rule: Rule | None
    idle: int | None = None
    ahead: int | None = None
    live: bool = False
    keyed: bool = False
    lull: bool = False

    def __post_init__(self) -> None:
        for name in ("idle", "ahead"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"the {name} of a progress policy must not be negative, but is {value}")

    @property
    def follows_rows(self) -> bool:
        """Whether rows move the bound, not only declarations."""
        return self.rule is not None

    @property
    def falls_idle(self) -> bool:
        """Whether the whole stream can become idle, so that others do not wait for it."""
        return self.live and self.follows_rows and self.idle is not None


@dataclass(frozen=True)
class Seen:
    """A summary of the rows of one part of a stream in one run.

    high: the highest event time of the rows that are not ahead of the clock; highest: of all rows;
    rows: the number of rows; ahead: of those ahead of the clock; late: of those below the bound;
    times: all event times in arrival order, for rules that need them;
    value: the highest value of the rule over rows that are not ahead of the clock; highest_value: over all rows.
    """

    high: int | None
    highest: int | None
    rows: int
    ahead: int = 0
    times: Sequence[int] = ()
    value: int | None = None
    highest_value: int | None = None
    late: int = 0


@dataclass(frozen=True)
class PartitionState:
    """A partition of the source, or a key: the highest event time that counted, when it last moved (or was declared),
    the state of the rule, and the number of rows late or ahead of the clock so far."""

    high: int | None
    seen_at: int
    recent: Recent | None = None
    late_rows: int = 0
    ahead_rows: int = 0

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        values: dict[str, Any] = {"high": self.high, "seen_at": self.seen_at}
        if self.recent is not None:
            values["recent"] = {name: value for name, value in asdict(self.recent).items() if value or name == "bound"}
        counts = {"late_rows": self.late_rows, "ahead_rows": self.ahead_rows}
        return values | {name: count for name, count in counts.items() if count}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PartitionState:
        """The state that `to_json` wrote."""
        recent = values.get("recent")
        kept = (
            None if recent is None else Recent(tuple(recent.get("times", ())), recent.get("since", 0), recent["bound"])
        )
        return cls(values["high"], values["seen_at"], kept, values.get("late_rows", 0), values.get("ahead_rows", 0))


@dataclass(frozen=True)
class ProgressState:
    """The state of progress between two runs.

    seen_at: when rows last counted, or were first polled; idle_at: when the stream was found idle. Both only if it can
    become idle.
    """

    bound: int | None = None
    high: int | None = None
    partitions: Mapping[str, PartitionState] = field(default_factory=dict)
    ahead_runs: int = 0
    ahead_rows: int = 0  # in all runs so far
    seen_at: int | None = None
    idle_at: int | None = None

    @property
    def idle(self) -> bool:
        """Whether the whole stream is idle; a stream that has ended is not."""
        return self.idle_at is not None and self.bound != END

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        values: dict[str, Any] = {
            "bound": self.bound,
            "high": self.high,
            "partitions": {key: each.to_json() for key, each in self.partitions.items()},
            "ahead_runs": self.ahead_runs,
            "ahead_rows": self.ahead_rows,
        }
        moments = {"seen_at": self.seen_at, "idle_at": self.idle_at}
        return values | {name: moment for name, moment in moments.items() if moment is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ProgressState:
        """The state that `to_json` wrote."""
        return cls(
            bound=values["bound"],
            high=values["high"],
            partitions={key: PartitionState.from_json(each) for key, each in values["partitions"].items()},
            ahead_runs=values["ahead_runs"],
            ahead_rows=values.get("ahead_rows", 0),
            seen_at=values.get("seen_at"),
            idle_at=values.get("idle_at"),
        )


def declare(state: ProgressState, partitions: Iterable[str], now: int) -> ProgressState:
    """Register partitions before their first row: they hold the bound until they have rows, or are idle."""
    fresh = {key: PartitionState(None, now) for key in partitions if key not in state.partitions}
    return replace(state, partitions={**state.partitions, **fresh}) if fresh else state


def observe(policy: Policy, state: ProgressState, seen: Mapping[str, Seen], now: int) -> ProgressState:
    """The state after a run that saw these rows, with the clock at `now`."""
    ahead_runs = _count_ahead_runs(policy, state, seen)
    trusted = not _checks_clock(policy) or ahead_runs >= AHEAD_RUNS
    partitions = dict(state.partitions)
    high = state.high
    reached: int | None = None
    counts = False
    for key, each in seen.items():
        if policy.keyed and key == EVERY_KEY:
            reached = highest(each.value, each.highest_value) if trusted else each.value
            high = highest(high, reached)
            counts = counts or reached is not None
            continue
        known = partitions.get(key)
        counted = highest(each.high, each.highest) if trusted else each.high
        # Rows that do not count do not end idleness: a partition whose clock is always wrong must not
        # hold back the others for ever.
        part = known or PartitionState(None, now)
        if each.rows and counted is not None:
            part = replace(
                part,
                high=highest(part.high, counted),
                seen_at=now,
                recent=_follow(policy, known, each, counted, trusted),
            )
            high = highest(high, counted)
            counts = True
        partitions[key] = replace(part, late_rows=part.late_rows + each.late, ahead_rows=part.ahead_rows + each.ahead)
    bound = highest(highest(state.bound, reached), _together(policy, partitions, high, now))
    if policy.keyed:
        partitions = _known_keys(policy, partitions, high, bound, now)
    ahead_rows = state.ahead_rows + sum(each.ahead for each in seen.values())
    seen_at, idle_at = _silence(policy, state, counts, now)
    if policy.lull and seen_at is not None and idle_at is not None:
        bound = highest(bound, _by_clock(policy, seen_at, now))
    return ProgressState(bound, high, partitions, ahead_runs, ahead_rows, seen_at, idle_at)


def tick(policy: Policy, state: ProgressState, now: int) -> ProgressState:
    """The state when the clock has moved without new rows."""
    return observe(policy, state, {}, now)


def advance_to(state: ProgressState, progress: int) -> ProgressState:
    """The state after progress was declared by hand; the same object if that is no step forward."""
    if state.bound is not None and progress <= state.bound:
        return state
    return replace(state, bound=progress)


def end(state: ProgressState) -> ProgressState:
    """The state of a stream that has ended."""
    return advance_to(state, END)


def reached(policy: Policy, partition: PartitionState) -> int | None:
    """The progress of the rows of one partition alone; None if it is unknown."""
    return None if policy.rule is None else policy.rule.reached(partition.high, partition.recent)


def own_bounds(policy: Policy, state: ProgressState) -> dict[str, int]:
    """The bounds of the keys that are ahead of the stream; all others have the bound of the stream."""
    if not policy.keyed:
        return {}
    least = -END if state.bound is None else state.bound
    found = ((key, reached(policy, each)) for key, each in state.partitions.items())
    return {key: bound for key, bound in found if bound is not None and bound > least}


def is_late(time: int, bound: int | None) -> bool:
    """Whether a row is below the progress of its stream.

    >>> is_late(9, 10), is_late(10, 10), is_late(9, None)
    (True, False, False)
    """
    return bound is not None and time < bound


def let_go(streams: Mapping[str, tuple[Policy, ProgressState]]) -> frozenset[str]:
    """The streams that the others do not wait for: the idle ones, while another stream is active.

    None if all are silent, whether already idle or not: then no stream could move on. A stream that has ended is not
    active.

    >>> policy, five = Policy(Delay(0), idle=30, live=True), ProgressState(bound=5, seen_at=0, idle_at=31)
    >>> sorted(let_go({"a": (policy, five), "b": (policy, ProgressState(bound=90, seen_at=20))}))
    ['a']
    >>> sorted(let_go({"a": (policy, five), "b": (policy, ProgressState(bound=90, seen_at=1))}))
    []
    """
    idle = frozenset(name for name, (_, state) in streams.items() if state.idle)
    states = [state for _, state in streams.values()]
    latest = max((max(state.seen_at or -END, state.idle_at or -END) for state in states), default=-END)

    def is_active(policy: Policy, state: ProgressState) -> bool:
        if state.bound == END or state.idle:
            return False
        return not policy.falls_idle or state.seen_at is None or latest - state.seen_at < (policy.idle or 0)

    return idle if any(is_active(*each) for each in streams.values()) else frozenset()


def combine(bounds: Iterable[int | None]) -> int | None:
    """The common progress of several inputs: the least, and None while one has none.

    Without inputs there is nothing to wait for: END.
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


def _follow(policy: Policy, known: PartitionState | None, seen: Seen, counted: int, trusted: bool) -> Recent | None:
    """The state of the rule after the rows that count."""
    if policy.rule is None:
        return None
    before = known.recent if known is not None and known.recent is not None else Recent()
    value = highest(seen.value, seen.highest_value) if trusted else seen.value
    return policy.rule.follow(before, value, [time for time in seen.times if time <= counted])


def _together(policy: Policy, partitions: Mapping[str, PartitionState], high: int | None, now: int) -> int | None:
    """The progress of the rows of all partitions alone; None if it is unknown."""
    awake = [each for each in partitions.values() if not _idle(policy, each, high, now)]
    bounds = [reached(policy, each) for each in awake or partitions.values()]
    known = [bound for bound in bounds if bound is not None]
    if not known or (awake and len(known) < len(awake)):
        return None
    # If every partition is silent, none holds back the others, and the furthest one is the best bound known.
    return min(known) if awake else max(known)


def _silence(policy: Policy, state: ProgressState, counts: bool, now: int) -> tuple[int | None, int | None]:
    """The time since when a stream is silent, and since when it is known to be idle."""
    if not policy.falls_idle:
        return None, None
    if counts:
        return now, None
    since = state.seen_at
    if since is None:
        since = max((each.seen_at for each in state.partitions.values()), default=now)
    silent = state.bound != END and now - since >= (policy.idle or 0)
    return since, state.idle_at if state.idle_at is not None or not silent else now


def _by_clock(policy: Policy, seen_at: int, now: int) -> int:
    """The bound by the clock of a silent stream: behind it by the time-out and the delay of its rule.

    It moves in steps of a time-out, so that a long silent stream does not commit at each tick of the clock.
    """
    idle = policy.idle or 0
    silent = (now - seen_at) // idle * idle if idle else now - seen_at
    delay = policy.rule.micros if isinstance(policy.rule, Delay) else 0
    return seen_at + silent - idle - delay


def _idle(policy: Policy, partition: PartitionState, high: int | None, now: int) -> bool:
    if policy.idle is None:
        return False
    if policy.live:
        return now - partition.seen_at >= policy.idle
    # The clock does not apply to replayed data: its time is that of its rows.
    behind = policy.keyed and high is not None and partition.high is not None
    return behind and high - partition.high >= policy.idle  # type: ignore[operator]


def _known_keys(
    policy: Policy, keys: Mapping[str, PartitionState], high: int | None, bound: int | None, now: int
) -> dict[str, PartitionState]:
    """The keys to remember: all but those that are idle and not ahead of the stream."""

    def silent(key: PartitionState) -> bool:
        own = reached(policy, key)
        return own is not None and bound is not None and own <= bound and _idle(policy, key, high, now)

    left = {name: key for name, key in keys.items() if not silent(key)}
    held = len(left) + sum(len(key.recent.times) for key in left.values() if key.recent is not None)
    if held > MOST_KEYS:
        raise TooManyKeys(
            f"progress by key would keep {held:,} keys and event times in the record of every run; at most"
            f" {MOST_KEYS:,} can be kept"
        )
    return left
