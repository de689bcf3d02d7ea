"""Triggers: the keys of a view that fire in a commit, and what is pending after it.

The pending keys are a table of the ledger like any other; the last line of a key counts. They are kept in memory as
well, for as long as the table has the files they came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.algebra.pending import Key, PendingIndex, PendingKeys
from anabranch.algebra.progress import END
from anabranch.algebra.rules import highest
from anabranch.algebra.triggers import IDLE, Decision, Pending, Triggers, decide
from anabranch.engine.core import Core
from anabranch.engine.frames import hashable, table_of
from anabranch.engine.maintain.trigger_spark import PendingFiles
from anabranch.engine.pending_table import PendingTable, ends_of, pending_fields
from anabranch.engine.progress_bounds import KeyBounds, PairBounds, micros
from anabranch.engine.writing import write_table
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View


@dataclass
class Records:
    """The new records of one key in a commit."""

    count: int = 0
    positions: list[int] = field(default_factory=list)  # in the order of arrival, where that matters


@dataclass(frozen=True)
class Fired:
    """The keys that fire, those that show only the first rows of this commit, and the file of pending keys."""

    keys: list[Key]
    upto: dict[Key, int]
    files: tuple[DataFile, ...]


class _Kept:
    """The pending keys of a view, and their files in the ledger."""

    def __init__(self, files: frozenset[str], keys: PendingKeys | PendingFiles) -> None:
        self.files = files
        self.keys = keys


class Timers:
    """The pending keys of the views of one home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._kept: dict[str, _Kept] = {}

    def pending(self, view: View, snapshot: Snapshot) -> PendingKeys | PendingFiles:
        """The pending keys of a view: on the driver, or in the files of the ledger where they are too many for it."""
        names = frozenset(snapshot.files.get(view.pending_table, ()))
        known = self._kept.get(view.id)
        if known is None or known.files != names:
            self.forget(view.id)
            few = not view.keying.touches or self.core.place.takes_triggers(0, _lines(view, snapshot))
            keys = self._load(view, snapshot) if few else PendingFiles(self.core, view, snapshot)
            known = self._kept[view.id] = _Kept(names, keys)
        return known.keys

    def in_files(
        self, view: View, snapshot: Snapshot, rows: int, now: int, after: int | None, *, everything: bool
    ) -> PendingFiles | None:
        """The pending keys in their files, if Spark decides, by the number of new rows or firing keys."""
        keys, place = self.pending(view, snapshot), self.core.place
        if isinstance(keys, PendingFiles):
            keys.verdict = place.takes_triggers(rows, _lines(view, snapshot))
            if not keys.verdict:
                return keys
            keys = self._kept[view.id].keys = self._load(view, snapshot)
        firing = len(keys) if everything or not isinstance(keys, PendingTable) else keys.firing(now, after)
        verdict = place.takes_triggers(rows, len(keys), firing)
        if verdict or not view.keying.touches:
            return None
        found = PendingFiles(self.core, view, snapshot)
        found.verdict = verdict
        return found

    def written(self, view: View, snapshot: Snapshot, keys: PendingFiles, files: tuple[DataFile, ...]) -> None:
        """Note that Spark has decided and written these files, which `snapshot` has."""
        self.forget(view.id)
        if files:
            keys.measure(snapshot)
        self._kept[view.id] = _Kept(frozenset(snapshot.files.get(view.pending_table, ())), keys)

    def forget(self, view_id: str) -> None:
        """Release the pending keys of a view whose query has changed, or whose ledger has diverged."""
        known = self._kept.pop(view_id, None)
        if known is not None and isinstance(known.keys, PendingTable):
            known.keys.close()

    def close(self) -> None:
        for view_id in list(self._kept):
            self.forget(view_id)

    def merged(self, table: str, removed: Iterable[str], added: Iterable[DataFile]) -> None:
        """Note that files of a table were merged: the pending keys in them are the same."""
        gone, new = frozenset(removed), frozenset(file.path for file in added)
        for known in self._kept.values():
            if gone and gone <= known.files:
                known.files = (known.files - gone) | new

    def earliest(self, view: View) -> int | None:
        """The end of the first window that a view has yet to show."""
        known = self._kept.get(view.id)
        return known.keys.earliest() if known is not None else None

    def ready(
        self, view: View, snapshot: Snapshot, records: Collection[Key], before: int | None, after: int
    ) -> list[tuple[int, int]]:
        """The ends of windows that have ended and are yet to be shown, with their numbers of keys."""
        event_time = _event_times(view)
        ends = self._on_driver(view, snapshot).ends(before, after, set(records))
        new = Counter(event_time(key) for key in records)
        ends.update({e: n for e, n in new.items() if e is not None and (before is None or before < e) and e <= after})
        return list(ends.items())

    def due(self, view: View, snapshot: Snapshot, now: int) -> bool:
        """Whether a delay, or a window of arrival times, is over."""
        waiting = self.pending(view, snapshot)
        if view.progress.clock == "arrival" and (end := waiting.earliest()) is not None and end <= now:
            return True
        return waiting.due(now)

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
        """Decide on every key with new records, or with pending records that time or progress may fire."""
        triggers = view.emission.triggers or Triggers()
        waiting = self._on_driver(view, snapshot)
        event_time = _event_times(view)
        ended = after == END
        if ended or isinstance(keys, PairBounds):
            pending = waiting.everything()
        else:
            pending = waiting.touched(now, after if keys is None else highest(after, keys.furthest[1]))
            pending |= waiting.of(key for key in records if key not in pending)
        chosen: dict[Key, Decision] = {}
        late: Counter[int] = Counter()
        for key in (*records, *(key for key in pending if key not in records)):
            brought = records.get(key)
            count = brought.count if brought is not None else 0
            time = event_time(key)
            own = (None, None) if keys is None else keys.of_key(key)
            lower, upper = highest(before, own[0]), highest(after, own[1])
            if count and triggers.watermark and lower is not None and time is not None and time <= lower:
                late[time] += count
            chosen[key] = decide(
                triggers, pending.get(key), count, time,
                now=now, before=lower, after=upper, ended=ended, late=view.emission.late,
            )  # fmt: skip
        for time, count in sorted(late.items()):
            on_late(time, count)
        changed = {
            key: left for key, decision in chosen.items() if (left := decision.after or IDLE) != pending.get(key, IDLE)
        }
        files = self._write(view, snapshot, changed)
        # If the commit fails, these files are not in the ledger, and the keys are reloaded.
        self._kept[view.id].files |= {file.path for file in files}
        waiting.update(changed)
        if isinstance(waiting, PendingIndex) and len(waiting) > self.core.place.limits.pending_keys:
            self._kept[view.id].files = frozenset([""])  # as a table, from the next commit on
        fired = [key for key, decision in chosen.items() if decision.fires]
        upto = {}
        for key in fired:
            take = chosen[key].take
            positions = records[key].positions if key in records else []
            if take is not None and positions:
                upto[key] = positions[take - 1] if take else -1
        return Fired(fired, upto, files)

    def _on_driver(self, view: View, snapshot: Snapshot) -> PendingKeys:
        keys = self.pending(view, snapshot)
        assert not isinstance(keys, PendingFiles), "it is for Spark to decide about them"
        return keys

    def _load(self, view: View, snapshot: Snapshot) -> PendingKeys:
        from pyarrow import parquet

        fields = pending_fields(view)
        keys, paths = fields[: len(view.keying.columns)], snapshot.table_paths(self.core.ledger, view.pending_table)
        many = _lines(view, snapshot) > self.core.place.limits.pending_keys
        if many and all(duckdb_type(key.type) for key in keys):
            return PendingTable(keys, ends_of(view), paths)
        latest: dict[Key, tuple[int, Pending]] = {}
        width = len(view.keying.columns)
        for path in paths:
            columns = [column.to_pylist() for column in parquet.read_table(path).columns]
            for row in zip(*columns, strict=True):
                key, (records, deadline, armed, event_time, version) = hashable(row[:width]), row[width:]
                if key not in latest or latest[key][0] < version:
                    latest[key] = version, Pending(records, deadline, armed, event_time)
        return PendingIndex(_event_times(view), {key: state for key, (_, state) in latest.items() if state != IDLE})

    def _write(self, view: View, snapshot: Snapshot, changed: Mapping[Key, Pending]) -> tuple[DataFile, ...]:
        if not changed:
            return ()
        rows = [
            (*key, each.records, each.deadline, each.armed, each.event_time, snapshot.version + 1)
            for key, each in changed.items()
        ]
        return write_table(self.core.ledger, view.pending_table, table_of(pending_fields(view), rows), None)


def _lines(view: View, snapshot: Snapshot) -> int:
    """The number of lines in the files of pending keys, which is at least that of the keys."""
    return sum(file.rows for file in snapshot.files.get(view.pending_table, {}).values())


def _event_times(view: View) -> Callable[[Key], int | None]:
    """The end of a key's window in microseconds; of several windows, the last."""
    timed = ends_of(view)

    def end(values: Key) -> int | None:
        found = [micros(values[index], shift) for index, shift in timed]
        return max((each for each in found if each is not None), default=None)

    return end
