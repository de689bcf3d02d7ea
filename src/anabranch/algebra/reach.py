"""Which rows of the inputs of a join can match, by the bands of their event times.

>>> near = [JoinBand("a", "b", -2, 3), JoinBand("b", "c", 0, None)]
>>> reach(near, "a", 10, 20)
{'a': (10, 20), 'b': (8, 23), 'c': (8, None)}
>>> reach(near, "c", 10, 20)
{'c': (10, 20), 'b': (None, 20), 'a': (None, 22)}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: From the lowest to the highest time; None: unbounded.
Range = tuple[int | None, int | None]


@dataclass(frozen=True)
class JoinBand:
    """A band between inputs of a join: rows can match if the time of `other` is `least` to `most` after `one`'s."""

    one: str
    other: str
    least: int | None
    most: int | None

    def range_of(self, side: str, times: Range) -> Range:
        """The range of the matches of rows of one input with times in a range."""
        least, most = self.least, self.most
        if side == self.other:
            least, most = _negative(most), _negative(least)
        low, high = times
        return (
            None if low is None or least is None else low + least,
            None if high is None or most is None else high + most,
        )


def reach(bands: Iterable[JoinBand], start: str, low: int | None, high: int | None) -> dict[str, Range]:
    """The ranges of the matches of rows of one input, directly or through others; missing inputs are unbounded."""
    found: dict[str, Range] = {start: (low, high)}
    edges = list(bands)
    while edges:
        edge = next((each for each in edges if each.one in found or each.other in found), None)
        if edge is None:
            break
        edges.remove(edge)
        side, other = (edge.one, edge.other) if edge.one in found else (edge.other, edge.one)
        if other not in found:
            found[other] = edge.range_of(side, found[side])
    return found


def needed(bands: Iterable[JoinBand], bounds: Mapping[str, int | None]) -> dict[str, int]:
    """The time from which rows of each input can still match a later row; missing inputs: all their rows.

    `bounds` has the progress of each input: no row on time is before it. A row of `a` is done when the progress of `b`
    is past the last time that it can match:

    >>> needed([JoinBand("a", "b", -2, 3)], {"a": 100, "b": 50})
    {'a': 47, 'b': 98}
    """
    bands = list(bands)
    found: dict[str, int] = {}
    for input in bounds:
        lows = [reach(bands, other, bound, None).get(input, (None, None))[0] for other, bound in bounds.items()
                if other != input]  # fmt: skip
        known = [low for low in lows if low is not None]
        if lows and len(known) == len(lows):
            found[input] = min(known)
    return found


def around(bands: Iterable[JoinBand], starts: Mapping[str, Range], steps: int) -> dict[str, Range]:
    """The ranges of all rows within so many steps of some rows: matches, matches of these, and so on.

    Whether a row of `a` is emitted without a match depends on each `b` that it could match: two steps from a new `b`.

    >>> around([JoinBand("a", "b", -2, 3)], {"b": (10, 10)}, 2)
    {'b': (5, 15), 'a': (7, 12)}
    """
    both_ways = [each for each in bands if each.least is not None and each.most is not None]
    found = dict(starts)
    for _ in range(steps):
        last = dict(found)
        for edge in both_ways:
            for side, other in ((edge.one, edge.other), (edge.other, edge.one)):
                if side in last:
                    beside = edge.range_of(side, last[side])
                    found[other] = hull(found[other], beside) if other in found else beside
    return found


def chained(bands: Iterable[JoinBand], inputs: Sequence[str]) -> bool:
    """Whether each input but the first has a band, bounded on both ends, with an earlier one."""
    pairs = [{each.one, each.other} for each in bands if each.least is not None and each.most is not None]
    return all(
        any({input, earlier} in pairs for earlier in inputs[:index]) for index, input in enumerate(inputs) if index
    )


def needed_around(bands: Iterable[JoinBand], bounds: Mapping[str, int | None], steps: int) -> dict[str, int]:
    """The time from which rows can be within so many steps of a later row; `needed` is one step.

    >>> needed_around([JoinBand("a", "b", -2, 3)], {"a": 100, "b": 50}, 2)
    {'a': 47, 'b': 45}
    """
    bands = list(bands)
    found: dict[str, int] = {}
    for input in bounds:
        ranges = [around(bands, {other: (bound, None)}, steps).get(input) for other, bound in bounds.items()]
        lows = [each[0] for each in ranges if each is not None and each[0] is not None]
        if len(lows) == len(bounds):
            found[input] = min(lows)
    return found


def hull(one: Range, other: Range) -> Range:
    """The smallest range that contains both."""
    (low, high), (below, above) = one, other
    return (
        None if low is None or below is None else min(low, below),
        None if high is None or above is None else max(high, above),
    )


def _negative(value: int | None) -> int | None:
    return None if value is None else -value
