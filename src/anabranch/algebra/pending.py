"""The pending keys of a view with triggers, indexed so that a run reads only those that may fire.

A key without new records fires when its deadline has passed, or when progress reaches its end while it is armed. So
keys are indexed by both. Knows nothing of views, files or clocks.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from anabranch.algebra.triggers import IDLE, Pending

Key = tuple[Any, ...]
#: The end of the window of a key, in microseconds; None if the key has no time.
EndOf = Callable[[Key], int | None]


class PendingKeys(Protocol):
    """The pending state of keys."""

    def __len__(self) -> int: ...

    def of(self, keys: Iterable[Key]) -> dict[Key, Pending]:
        """The pending state of these keys, without those that have none."""

    def touched(self, now: int, after: int | None) -> dict[Key, Pending]:
        """A superset of the keys that fire without new records, by the clock or by progress."""

    def everything(self) -> dict[Key, Pending]: ...

    def update(self, changed: Mapping[Key, Pending]) -> None:
        """Store the pending state after a run; IDLE for none."""

    def earliest(self) -> int | None:
        """The earliest end of a key."""

    def due(self, now: int) -> bool:
        """Whether a deadline has passed."""

    def ends(self, before: int | None, after: int, but: Collection[Key]) -> Counter[int]:
        """The number of armed keys for each end in (before, after], without the keys in `but`."""


class _Index:
    """Keys by time, as a heap."""

    def __init__(self) -> None:
        #: Times, some of which may be duplicates or have no keys any more.
        self._heap: list[int] = []
        self._keys: dict[int, dict[Key, None]] = {}

    def add(self, time: int | None, key: Key) -> None:
        if time is None:
            return
        if time not in self._keys:
            self._keys[time] = {}
            heapq.heappush(self._heap, time)
        self._keys[time][key] = None

    def remove(self, time: int | None, key: Key) -> None:
        if time is None:
            return
        del self._keys[time][key]
        if not self._keys[time]:
            del self._keys[time]

    def first(self) -> int | None:
        while self._heap and self._heap[0] not in self._keys:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def upto(self, time: int) -> list[tuple[int, Iterable[Key]]]:
        """The keys of each time up to this one, in order."""
        times: list[int] = []
        while (first := self.first()) is not None and first <= time:
            heapq.heappop(self._heap)
            if not times or times[-1] != first:
                times.append(first)
        for each in times:
            heapq.heappush(self._heap, each)
        return [(each, self._keys[each]) for each in times]


class PendingIndex:
    """Pending keys in memory: by deadline, by the end at which armed ones fire, and by end."""

    def __init__(self, end_of: EndOf, state: Mapping[Key, Pending] | None = None) -> None:
        self._end_of = end_of
        self._state: dict[Key, Pending] = {}
        self._deadlines, self._armed, self._ends = _Index(), _Index(), _Index()
        self.update(state or {})

    def __len__(self) -> int:
        return len(self._state)

    def of(self, keys: Iterable[Key]) -> dict[Key, Pending]:
        state = self._state
        return {key: state[key] for key in keys if key in state}

    def touched(self, now: int, after: int | None) -> dict[Key, Pending]:
        found = [keys for _, keys in self._deadlines.upto(now)]
        found += [keys for _, keys in self._armed.upto(after)] if after is not None else []
        return {key: self._state[key] for keys in found for key in keys}

    def everything(self) -> dict[Key, Pending]:
        return dict(self._state)

    def update(self, changed: Mapping[Key, Pending]) -> None:
        for key, pending in changed.items():
            end, known = self._end_of(key), self._state.pop(key, IDLE)
            if known != IDLE:
                self._deadlines.remove(known.deadline, key)
                self._armed.remove(_fires_at(known, end), key)
                self._ends.remove(end, key)
            if pending != IDLE:
                self._state[key] = pending
                self._deadlines.add(pending.deadline, key)
                self._armed.add(_fires_at(pending, end), key)
                self._ends.add(end, key)

    def earliest(self) -> int | None:
        return self._ends.first()

    def due(self, now: int) -> bool:
        first = self._deadlines.first()
        return first is not None and first <= now

    def ends(self, before: int | None, after: int, but: Collection[Key]) -> Counter[int]:
        found = self._armed.upto(after)
        counts = {end: sum(key not in but for key in keys) for end, keys in found if before is None or before < end}
        return +Counter(counts)


def _fires_at(pending: Pending, end: int | None) -> int | None:
    """The progress at which a key without new records fires."""
    return None if not pending.armed else pending.event_time if end is None else end
