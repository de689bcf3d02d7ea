"""Late rows of views that drop them: they are counted, and excluded for good."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.algebra.reach import reach
from anabranch.engine import read
from anabranch.engine.late import LateRows, rows_before
from anabranch.engine.maintain import bands, deltas, late_drop
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.tables import DIFF
from anabranch.engine.writing import write_frame
from anabranch.plan.view import View
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count_dropped(commit: Commit, view: View) -> None:
    """Count the new rows of a join that are too late for some partners: the join no longer keeps those."""
    held = bands.needed(commit, view)
    ends: dict[str, int] = {}
    for name, id in view.join_sources.items():
        ranges = reach(view.join.bands, name, 0, 0)
        for other, since in held.items():
            low = ranges.get(other, (None, None))[0]
            if other != name and low is not None:
                ends[id] = max(since - low, ends.get(id, since - low))
    for id, end in ends.items():
        stream = commit.catalog.stream(id)
        files = commit.added.get(stream.rows_table, ())
        files = tuple(file for file in files if file.low is None or file.low < end)
        count = rows_before(commit.core, stream, files, end) if files else 0
        if count:
            commit.late.append(LateRows(view, None, end, count))


def drop_late_rows(commit: Commit, view: View) -> None:
    """Drop the new rows of a join that are older than the rows that it still needs of their input."""
    held = bands.needed(commit, view)
    for input in view.drops_late_of:
        since, stream = held.get(input), commit.catalog.stream({**view.query.streams, **view.join.streams}[input])
        files = commit.added.get(stream.rows_table, ())
        if since is None or not any(file.low is None or file.low < since for file in files):
            continue
        count = drop_rows(commit, view, input, _earlier(commit, view, input, since))
        if count:
            commit.late.append(LateRows(view, None, since, count))


def _earlier(commit: Commit, view: View, placeholder: str, time: int) -> DataFrame:
    """The new rows of an input before a time, by the event time of their stream."""
    new = deltas.delta(commit, view, placeholder)
    assert new is not None
    if placeholder in view.query.streams:
        stream = commit.catalog.stream(view.query.streams[placeholder])
        return new.where(f"{quote_name(stream.time or '')} < timestamp_micros({time})")
    below = commit.catalog.view(view.query.views[placeholder])
    rows = _earlier(commit, below, below.inputs[0], time)
    relations = {below.inputs[0]: rows, **read.static_frames(commit.core, commit.catalog, below)}
    return commit.core.frames.sql(below.query.spark_text or below.query.text, relations).toDF(
        *(each.name for each in below.fields)
    )


def drop_rows(commit: Commit, view: View, input: str, rows: DataFrame) -> int:
    """Drop new rows of an input for good; return their number, without retractions."""
    table = view.dropped_table(input)
    fields = late_drop.dropped_fields(commit.catalog, view, input)
    rows = rows if DIFF.name in rows.columns else deltas.signed(commit, rows)
    rows = rows.selectExpr(
        *(f"CAST({quote_name(each.name)} AS {each.type}) AS {quote_name(each.name)}" for each in fields)
    )
    small = commit.new_rows(view) <= commit.core.place.limits.small_rows
    staged: list[Path] = []
    commit.added[table] = write_frame(commit.core.ledger, table, rows, small=small, time=None, staged=staged)
    for folder in staged:
        shutil.rmtree(folder, ignore_errors=True)
    return late_drop.count_insertions(commit.core, table, commit.added[table])
