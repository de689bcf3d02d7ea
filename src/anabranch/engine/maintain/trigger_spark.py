"""The keys of a view that fire in a commit, decided by Spark; `trigger` decides the same key by key on the driver.

Keys with new records and pending keys are one relation; `decide_sql` adds the decision for each; the rows of the keys
that fire are compared with those shown. The driver only collects one row per window, of late rows and of windows that
wait for a budget, and the first end and deadline of all keys.
"""

from __future__ import annotations

import shutil
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.algebra.progress import END
from anabranch.algebra.rules import highest
from anabranch.algebra.triggers import Triggers, decide_sql
from anabranch.engine.closing_bounds import Closing
from anabranch.engine.maintain import counting, keyed
from anabranch.engine.maintain.closing import marks_frames, spark_bounds
from anabranch.engine.pending_table import STATE, WAITS, ends_of, pending_fields
from anabranch.engine.place import TAKEN
from anabranch.engine.progress_bounds import KeyBounds, PairBounds
from anabranch.engine.writing import write_frame
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.node import POSITION
from anabranch.plan.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.engine.core import Core
    from anabranch.engine.maintain.commit import Commit

_STATE = [field.name for field in STATE]


class PendingFiles:
    """The pending keys of a view that are read from the ledger and not held in memory; the last row of a key counts."""

    def __init__(self, core: Core, view: View, snapshot: Snapshot) -> None:
        self._core, self._view = core, view
        self.verdict = TAKEN  # why Spark decides about them
        self._names = [f"k{index}" for index in range(len(view.keying.columns))]
        self.measure(snapshot)

    def frame(self, snapshot: Snapshot) -> DataFrame:
        partition = f"PARTITION BY {', '.join(self._names)} " if self._names else ""
        text = (
            f"SELECT {', '.join([*self._names, *_STATE])} FROM (SELECT *, row_number() OVER ({partition}ORDER BY"
            f" _version DESC) AS __n FROM `@pending`) WHERE __n = 1 AND {WAITS}"
        )
        files = self._core.table_frame(self._view.pending_table, pending_fields(self._view), snapshot)
        return self._core.frames.sql(text, {"@pending": files})

    def measure(self, snapshot: Snapshot) -> None:
        """Find the first end and the first deadline."""
        rows = self.frame(snapshot)
        self._first = rows.selectExpr(f"min({_end(self._view)})", "min(deadline)").collect()[0]

    def earliest(self) -> int | None:
        end: int | None = self._first[0]
        return end

    def due(self, now: int) -> bool:
        return self._first[1] is not None and self._first[1] <= now


def _end(view: View) -> str:
    """The end of the window of a key, in microseconds; the last end, if the key has several windows."""
    found = [_micros(view, index, shift) for index, shift in ends_of(view)]
    end = f"greatest({', '.join(found)})" if len(found) > 1 else found[0] if found else "NULL"
    return f"CAST({end} AS BIGINT)"


def _micros(view: View, index: int, shift: int) -> str:
    """A key column plus a shift; a timestamp as microseconds."""
    name = f"k{index}"
    return f"{f'unix_micros({name})' if view.keying.columns[index].type == 'timestamp' else name} + {shift}"


class FiringJob:
    """The keys of a view with triggers, in one commit."""

    def __init__(self, commit: Commit, view: View, pending: PendingFiles) -> None:
        self.commit, self.core, self.view = commit, commit.core, view
        self.names = [f"k{index}" for index in range(len(view.keying.columns))]
        self.keys = self._keys(pending.frame(commit.before))

    def _keys(self, pending: DataFrame) -> DataFrame:
        """Each key with its new records, their positions if the trigger counts record by record, and its pending
        state."""
        idle = ["0L AS records", "CAST(NULL AS BIGINT) AS deadline", "false AS armed"]
        idle.append("CAST(NULL AS BIGINT) AS event_time")
        new = ["`count` AS n", "CAST(NULL AS BIGINT) AS position"]
        if self.view.emission.counted is not None:
            new = ["1L AS n", f"{POSITION} AS position"]
        parts = [pending.selectExpr(*self.names, "0L AS n", "CAST(NULL AS BIGINT) AS position", *_STATE)]
        for touch in self.view.keying.touches:
            rows = counting.records_of(self.commit, self.view, touch)
            parts += [rows.selectExpr(*self.names, *new, *idle)] if rows is not None else []
        both = reduce(lambda one, other: one.unionAll(other), parts)
        items = ["coalesce(sum(n), 0L) AS n", "sort_array(collect_list(position)) AS positions"]
        items += ["coalesce(sum(records), 0L) AS records", "max(deadline) AS deadline"]
        items += ["coalesce(max(armed), false) AS armed", "max(event_time) AS event_time"]
        by = f" GROUP BY {', '.join(self.names)}" if self.names else ""
        text = f"SELECT *, {_end(self.view)} AS ends FROM (SELECT {', '.join([*self.names, *items])} FROM `@both`{by})"
        return self.core.frames.sql(text, {"@both": both})

    def ready(self, before: int | None, after: int) -> list[tuple[int, int]]:
        """The pending windows that have ended: their ends, and the number of keys of each."""
        since = "" if before is None else f" AND ends > {before}"
        where = f"(n > 0 OR armed) AND ends <= {after}{since}"
        return [(end, keys) for end, keys in self.keys.where(where).groupBy("ends").count().collect()]

    def changes(
        self, before: int | None, after: int | None, keys: KeyBounds | PairBounds | None
    ) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """The files of the pending keys after the commit, and those of the changes of the keys that fire."""
        triggers, view = self.view.emission.triggers or Triggers(), self.view
        rows = self._bounded(before, after, keys)
        text = decide_sql(triggers, "`@rows`", now=self.commit.now, ended=after == END, late=view.emission.late)
        decided = self.core.frames.sql(text, {"@rows": rows}).persist()
        try:
            if triggers.watermark:
                late = decided.where("n > 0 AND ends <= lower").groupBy("ends").sum("n").orderBy("ends")
                for end, count in late.collect():
                    counting.count_late(self.commit, view, end, count)
            pending = self._write_pending(decided)
            fired = decided.where("fires")
            return pending, () if fired.isEmpty() else self._show(fired)
        finally:
            decided.unpersist()

    def _bounded(self, before: int | None, after: int | None, keys: KeyBounds | PairBounds | None) -> DataFrame:
        """The keys that can fire or change in this commit, with the progress of each."""
        lower, upper = (f"CAST({'NULL' if bound is None else bound} AS BIGINT)" for bound in (before, after))
        marks, frames, furthest = "", {}, after
        if isinstance(keys, KeyBounds):
            closing = Closing(before, after, keys)
            lower, upper, marks = spark_bounds(closing, f"k{keys.index}")
            frames, furthest = marks_frames(self.core, closing), highest(after, keys.furthest[1])
        elif keys is not None:
            lower, upper = (
                f"greatest({lower}, {_closed(self.view, keys, 0)})",
                f"greatest({upper}, {_closed(self.view, keys, 1)})",
            )
        where = "true"
        if after != END and not isinstance(keys, PairBounds):
            where = f"n > 0 OR deadline <= {self.commit.now}"
            where += "" if furthest is None else f" OR (armed AND coalesce(ends, event_time) <= {furthest})"
        text = f"SELECT __r.*, {lower} AS lower, {upper} AS upper FROM `@keys` AS __r{marks} WHERE {where}"
        return self.core.frames.sql(text, {"@keys": self.keys, **frames})

    def _write_pending(self, decided: DataFrame) -> tuple[DataFile, ...]:
        names = [field.name for field in STATE]
        same = " AND ".join(f"{name} <=> left_{name}" for name in names)
        version = f"CAST({self.commit.before.version + 1} AS BIGINT) AS _version"
        changed = decided.where(f"NOT ({same})").selectExpr(
            *self.names, *(f"left_{each} AS {each}" for each in names), version
        )
        staged: list[Path] = []
        try:
            return write_frame(
                self.core.ledger, self.view.pending_table, changed,
                small=self.core.place.limits.small_rows, time=None, staged=staged,
            )  # fmt: skip
        finally:
            for folder in staged:
                shutil.rmtree(folder, ignore_errors=True)

    def _show(self, fired: DataFrame) -> tuple[DataFile, ...]:
        """The changes of the keys that fired; of this commit's rows, only those up to the one that fired count."""
        takes = None
        if self.view.emission.counted is not None:
            upto = "IF(take > 0, element_at(positions, CAST(take AS INT)), -1L) AS __upto"
            shown = fired.where("take IS NOT NULL AND size(positions) > 0")
            takes = shown.selectExpr(*(f"{name} AS __{name}" for name in self.names), upto)
            takes = None if takes.isEmpty() else takes
        touched = fired.select(*self.names) if self.names else None
        fresh = counting.fresh_upto(self.commit, self.view, takes, touched)
        return keyed.minus_shown(self.commit, self.view, fresh, touched)


def _closed(view: View, bounds: PairBounds, which: int) -> str:
    """The end of the last window of a pair, if each input has passed one of its times; NULL otherwise."""
    ends = [_micros(view, index, shift) for index, shift in bounds.ends]
    joint = bounds.after if which else bounds.before
    passed = []
    for side in range(len(joint[0])):
        known = [(end, own[side]) for end, own in zip(ends, joint, strict=True) if own[side] is not None]
        passed.append(f"({' OR '.join(f'coalesce({end} <= {bound}, false)' for end, bound in known) or 'false'})")
    last = f"greatest({', '.join(ends)})" if len(ends) > 1 else ends[0]
    return f"CASE WHEN {' AND '.join(passed)} THEN {last} END"
