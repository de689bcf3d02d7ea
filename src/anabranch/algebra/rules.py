"""How the bound follows the rows of one part of a stream: a class for each rule, without clocks or parts.

`follow` takes the rows of a run and returns the state of the rule; `reached` is the bound for that state. Three rules
use the highest value of something that Spark computes row by row, two the last rows in arrival order. No rule depends
on how rows are cut into runs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, ClassVar


@dataclass(frozen=True)
class Recent:
    """The state of a rule: the last event times that counted, in arrival order, the number of them since the last
    evaluation, and the highest bound so far."""

    times: tuple[int, ...] = ()
    since: int = 0
    bound: int | None = None


@dataclass(frozen=True)
class Delay:
    """A bound that many microseconds behind the highest event time; 0 for rows that arrive in order."""

    micros: int

    kind: ClassVar[str] = "delay"
    in_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.micros < 0:
            raise ValueError(f"the delay of a progress policy must not be negative, but is {self.micros}")

    def follow(self, recent: Recent, value: int | None, times: Sequence[int]) -> Recent | None:
        return None

    def reached(self, high: int | None, recent: Recent | None) -> int | None:
        return None if high is None else high - self.micros


class _Remembered:
    """A rule whose bound is the highest so far."""

    def reached(self, high: int | None, recent: Recent | None) -> int | None:
        return None if recent is None else recent.bound


@dataclass(frozen=True)
class Computed(_Remembered):
    """The highest value of an expression of the event time, computed by Spark for each row."""

    expression: str

    kind: ClassVar[str] = "computed"
    in_order: ClassVar[bool] = False

    def follow(self, recent: Recent, value: int | None, times: Sequence[int]) -> Recent:
        return Recent(bound=highest(recent.bound, value))


@dataclass(frozen=True)
class Punctuation(_Remembered):
    """The highest event time of the rows that satisfy a predicate. They mark progress and are not data."""

    predicate: str

    kind: ClassVar[str] = "punctuation"
    in_order: ClassVar[bool] = False

    def follow(self, recent: Recent, value: int | None, times: Sequence[int]) -> Recent:
        return Recent(bound=highest(recent.bound, value))


@dataclass(frozen=True)
class Lagging(_Remembered):
    """The highest event time of all rows but the last `rows`: no row is late by more rows than that."""

    rows: int

    kind: ClassVar[str] = "lagging"
    in_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"progress lags by at least 1 row, not by {self.rows}")

    def follow(self, recent: Recent, value: int | None, times: Sequence[int]) -> Recent:
        came = (*recent.times, *times)
        older = came[: -self.rows]
        return Recent(came[-self.rows :], 0, highest(recent.bound, max(older, default=None)))


@dataclass(frozen=True)
class Percentile(_Remembered):
    """A bound below `percentile` percent of the last `events` rows, updated every `frequency` rows.

    There is none before the first `events` rows. One row far in the future does not move it.
    """

    events: int
    percentile: float
    frequency: int = 1

    kind: ClassVar[str] = "percentile"
    in_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("events", "frequency"):
            if getattr(self, name) < 1:
                raise ValueError(f"the {name} of a percentile must be at least 1, but is {getattr(self, name)}")
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"a percentile must be between 0 and 100, but is {self.percentile}")

    @property
    def rank(self) -> int:
        """The 1-based rank of the event time that is the bound, from the smallest; rounded down, at least 1.

        >>> Percentile(events=1000, percentile=94.9).rank, Percentile(events=10, percentile=99).rank
        (51, 1)
        """
        # Decimal arithmetic: as floats, 100 - 94.9 is less than 5.1.
        above = Fraction(str(self.percentile))
        return max(1, int((100 - above) * self.events / 100))

    def follow(self, recent: Recent, value: int | None, times: Sequence[int]) -> Recent:
        last, ordered = deque(recent.times), sorted(recent.times)
        since, bound, rank = recent.since, recent.bound, self.rank
        for time in times:
            last.append(time)
            insort(ordered, time)
            if len(last) > self.events:
                del ordered[bisect_left(ordered, last.popleft())]
            since += 1
            if len(last) == self.events and since >= self.frequency:
                since, bound = 0, highest(bound, ordered[rank - 1])
        return Recent(tuple(last), since, bound)


Rule = Delay | Computed | Punctuation | Lagging | Percentile
_RULES: dict[str, type[Rule]] = {each.kind: each for each in (Delay, Computed, Punctuation, Lagging, Percentile)}


def rule_to_json(rule: Rule | None) -> dict[str, Any] | None:
    """A rule as plain JSON values."""
    return None if rule is None else {"rule": rule.kind, **asdict(rule)}


def rule_from_json(values: Mapping[str, Any] | None) -> Rule | None:
    """The rule that `rule_to_json` wrote."""
    if values is None:
        return None
    return _RULES[values["rule"]](**{name: value for name, value in values.items() if name != "rule"})


def highest(one: int | None, other: int | None) -> int | None:
    """The higher of two times, either of which may be None."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
