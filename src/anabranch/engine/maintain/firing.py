"""Views with triggers: the changes of the keys that fire in a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.algebra.pending import Key
from anabranch.algebra.progress import END
from anabranch.algebra.rules import highest
from anabranch.engine import read
from anabranch.engine.frames import hashable, table_of
from anabranch.engine.maintain import clock, counting, keyed
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.maintain.trigger_spark import FiringJob
from anabranch.engine.progress_bounds import (
    Held,
    KeyBounds,
    PairBounds,
    hold,
    shown_before,
)
from anabranch.engine.trigger import Fired, Records
from anabranch.ledger import DataFile
from anabranch.plan.view import View
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fire(commit: Commit, view: View) -> tuple[DataFile, ...]:
    """The changes of the keys that fire in this commit."""
    before, after = clock.progress_of(commit, view, 0), clock.progress_of(commit, view, 1)
    keys = clock.own_bounds(commit, view)
    files = _fire_by_spark(commit, view, before, after, keys)
    if files is not None:
        return files
    commit.backends[view.id] = "by Spark; what fires is decided on the driver"
    records = _records(commit, view)
    if view.emission.budget is not None and after is not None:
        before = shown_before(view, commit.before, before)
        ready = commit.core.timers.ready(view, commit.before, records, before, after)
        commit.hold(view, Held(after) if commit.filling else hold(view, commit.before, after, ready))
        after = commit.held[view.id].bound
    fired = commit.core.timers.fire(
        view, commit.before, records, now=commit.now, before=before, after=after, keys=keys,
        on_late=lambda end, count: counting.count_late(commit, view, end, count),
    )  # fmt: skip
    commit.added[view.pending_table] = fired.files
    if view.emission.budget is None:
        commit.waits[view.id] = commit.waits[view.id][0], commit.core.timers.earliest(view)
    if not fired.keys:
        return ()
    names = tuple(Field(f"k{index}", key.type) for index, key in enumerate(view.keying.columns))
    if not names:
        return keyed.minus_shown(commit, view, _limited(commit, view, fired, None), None)
    touched = commit.core.spark.createDataFrame(table_of(names, fired.keys))
    return keyed.minus_shown(commit, view, _limited(commit, view, fired, touched), touched)


def _fire_by_spark(
    commit: Commit, view: View, before: int | None, after: int | None, keys: KeyBounds | PairBounds | None
) -> tuple[DataFile, ...] | None:
    """The same by Spark, if the keys are too many for the driver; None if they are not."""
    furthest = highest(after, keys.furthest[1]) if isinstance(keys, KeyBounds) else after
    rows, everything = commit.rows_read(view), after == END or isinstance(keys, PairBounds)
    pending = commit.core.timers.in_files(view, commit.before, rows, commit.now, furthest, everything=everything)
    if pending is None:
        return None
    commit.backends[view.id] = f"by Spark, what fires too: {pending.verdict.reason}"
    job = FiringJob(commit, view, pending)
    if view.emission.budget is not None and after is not None:
        before = shown_before(view, commit.before, before)
        ready = () if commit.filling else job.ready(before, after)
        commit.hold(view, Held(after) if commit.filling else hold(view, commit.before, after, ready))
        after = commit.held[view.id].bound
    commit.added[view.pending_table], files = job.changes(before, after, keys)
    commit.core.timers.written(view, commit.after, pending, commit.added[view.pending_table])
    if view.emission.budget is None:
        commit.waits[view.id] = commit.waits[view.id][0], commit.core.timers.earliest(view)
    return files


def _records(commit: Commit, view: View) -> dict[Key, Records]:
    """The number of new records of each key; with their positions, if the trigger counts record by record."""
    found: dict[Key, Records] = {}
    width = len(view.keying.columns)
    for touch in view.keying.touches:
        rows = counting.records_of(commit, view, touch)
        if rows is None:
            continue
        for row in zip(*(column.to_pylist() for column in rows.toArrow().columns), strict=True):
            records = found.setdefault(hashable(row[:width]), Records())
            records.count += row[width] if view.emission.counted is None else 1
            if view.emission.counted is not None:
                records.positions.append(row[width])
    found = {key: records for key, records in found.items() if records.count}
    for records in found.values():
        records.positions.sort()
    if not view.keying.touches and commit.touches(view):
        found[()] = Records(commit.new_rows(view))
    return found


def _limited(commit: Commit, view: View, fired: Fired, touched: DataFrame | None) -> DataFrame:
    """The rows of the keys that fired; of this commit's rows, only those up to the one that fired."""
    rows = [(*key, place) for key, place in fired.upto.items()]
    takes = commit.core.spark.createDataFrame(table_of(read.take_fields(view), rows)) if rows else None
    return counting.fresh_upto(commit, view, takes, touched)
