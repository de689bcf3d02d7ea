"""Which keys of a view fire in a commit, and what is pending after it.

The pending keys are a table of the ledger like any other; the last line of a key counts. They are kept in memory as
well, for as long as the table has the files they came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.algebra.progress import END
from anabranch.algebra.rules import highest
from anabranch.algebra.triggers import IDLE, Decision, Pending, Triggers, decide
from anabranch.engine.core import Core
from anabranch.engine.frames import hashable, table_of
from anabranch.engine.moves import KeyBounds, PairBounds, micros
from anabranch.engine.writing import write_table
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Field, View

Key = tuple[Any, ...]
_STATE = (
    Field("records", "bigint"),
    Field("deadline", "bigint"),
    Field("armed", "boolean"),
    Field("event_time", "bigint"),
    Field("_version", "bigint"),
)


@dataclass
class Records:
    """What a commit brings for one key."""

    count: int = 0
    places: list[int] = field(default_factory=list)  # in the order of arrival, where that matters


@dataclass(frozen=True)
class Fired:
    """The keys that fire, those that show only the first rows of this commit, and the file of what is pending."""

    keys: list[Key]
    upto: dict[Key, int]
    files: tuple[DataFile, ...]


def pending_fields(view: View) -> tuple[Field, ...]:
    return (*(Field(f"k{index}", key.type) for index, key in enumerate(view.keys)), *_STATE)


class Timers:
    """The pending keys of the views of one home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._kept: dict[str, tuple[frozenset[str], dict[Key, Pending]]] = {}

    def pending(self, view: View, snapshot: Snapshot) -> dict[Key, Pending]:
        names = frozenset(snapshot.files.get(view.pending_table, ()))
        known = self._kept.get(view.id)
        if known is None or known[0] != names:
            known = (names, self._load(view, snapshot))
            self._kept[view.id] = known
        return known[1]

    def forget(self, view_id: str) -> None:
        """Let go of the pending keys of a view whose query is another one now."""
        self._kept.pop(view_id, None)

    def earliest(self, view: View) -> int | None:
        """The end of the first window of which a view has something still to show."""
        known = self._kept.get(view.id)
        times = [_event_times(view)(key) for key in known[1]] if known is not None else []
        return min((time for time in times if time is not None), default=None)

    def ready(
        self, view: View, snapshot: Snapshot, records: Iterable[Key], before: int | None, after: int
    ) -> list[tuple[int, int]]:
        """The windows that wait to be shown and have ended: their ends, and how many keys each has."""
        event_time = _event_times(view)
        armed = {key for key, each in self.pending(view, snapshot).items() if each.armed}
        ends = Counter(event_time(key) for key in armed | set(records))
        return [
            (end, keys)
            for end, keys in ends.items()
            if end is not None and (before is None or before < end) and end <= after
        ]

    def due(self, view: View, snapshot: Snapshot, now: int) -> bool:
        """Whether a delay is over, or a window of times of arrival."""
        waiting = self.pending(view, snapshot).values()
        if view.clock == "arrival" and (end := self.earliest(view)) is not None and end <= now:
            return True
        return any(each.deadline is not None and each.deadline <= now for each in waiting)

    def fire(
        self,
        view: View,
        snapshot: Snapshot,
        records: Mapping[Key, Records],
        *,
        now: int,
        before: int | None,
        after: int | None,
        on_late: Callable[[int, int], None],
        keys: KeyBounds | PairBounds | None = None,
    ) -> Fired:
        """Decide for every key that has new records or something pending."""
        triggers = Triggers.from_json(view.triggers or {})
        pending = self.pending(view, snapshot)
        event_time = _event_times(view)
        ended = after == END
        chosen: dict[Key, Decision] = {}
        for key in (*records, *(key for key in pending if key not in records)):
            brought = records.get(key)
            count = brought.count if brought is not None else 0
            time = event_time(key)
            own = (None, None) if keys is None else keys.of_key(key)
            lower, upper = highest(before, own[0]), highest(after, own[1])
            if count and triggers.watermark and lower is not None and time is not None and time <= lower:
                on_late(time, count)
            chosen[key] = decide(
                triggers, pending.get(key), count, time,
                now=now, before=lower, after=upper, ended=ended, late=view.late,
            )  # fmt: skip
        changed: dict[Key, Pending] = {}
        state = dict(pending)
        for key, decision in chosen.items():
            left = decision.after or IDLE
            if left != state.get(key, IDLE):
                changed[key] = left
            if decision.after is None:
                state.pop(key, None)
            else:
                state[key] = decision.after
        files = self._write(view, snapshot, changed)
        names = frozenset(snapshot.files.get(view.pending_table, ())) | {file.path for file in files}
        self._kept[view.id] = (names, state) if files else (names, pending)
        fired = [key for key, decision in chosen.items() if decision.fires]
        upto = {}
        for key in fired:
            take = chosen[key].take
            places = records[key].places if key in records else []
            if take is not None and places:
                upto[key] = places[take - 1] if take else -1
        return Fired(fired, upto, files)

    def _load(self, view: View, snapshot: Snapshot) -> dict[Key, Pending]:
        from pyarrow import parquet

        latest: dict[Key, tuple[int, Pending]] = {}
        width = len(view.keys)
        for path in snapshot.table_paths(self.core.ledger, view.pending_table):
            columns = [column.to_pylist() for column in parquet.read_table(path).columns]
            for row in zip(*columns, strict=True):
                key, (records, deadline, armed, event_time, version) = hashable(row[:width]), row[width:]
                if key not in latest or latest[key][0] < version:
                    latest[key] = version, Pending(records, deadline, armed, event_time)
        return {key: state for key, (_, state) in latest.items() if state != IDLE}

    def _write(self, view: View, snapshot: Snapshot, changed: Mapping[Key, Pending]) -> tuple[DataFile, ...]:
        if not changed:
            return ()
        rows = [
            (*key, each.records, each.deadline, each.armed, each.event_time, snapshot.version + 1)
            for key, each in changed.items()
        ]
        return write_table(self.core.ledger, view.pending_table, table_of(pending_fields(view), rows), None)


def _event_times(view: View) -> Callable[[Key], int | None]:
    """The end of the window that a key is about, in microseconds; the last one, where it is about several."""
    names = [key.name for key in view.keys]
    ends = view.meets.ends if view.meets is not None else ()
    timed = [
        (names.index(name), view.times[name]) for name in ends or [name for name in names if name in view.times][:1]
    ]

    def end(values: Key) -> int | None:
        found = [micros(values[index], shift) for index, shift in timed]
        return max((each for each in found if each is not None), default=None)

    return end
