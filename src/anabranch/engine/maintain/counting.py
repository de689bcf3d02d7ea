"""The records that a trigger counts, and the rows of keys up to one of these records."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from anabranch.engine import read
from anabranch.engine.late import LateRows
from anabranch.engine.maintain import deltas, keyed
from anabranch.engine.maintain.commit import Commit
from anabranch.plan.node import POSITION
from anabranch.plan.view import Touch, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def records_of(commit: Commit, view: View, touch: Touch) -> DataFrame | None:
    """The keys of the new records of an input, with their positions or their number; None if there are none."""
    new = _changed(commit, view, touch.input) if view.counts_by_run else deltas.delta(commit, view, touch.input)
    if new is None:
        return None
    text = touch.text.replace("SELECT DISTINCT", "SELECT", 1)
    rows = keyed.keyed_columns(commit, view, keyed.touching(commit, view, touch, text, new), POSITION)
    if view.emission.counted is None:
        rows = rows.groupBy(*(f"k{index}" for index in range(len(view.keying.columns)))).count()
    return rows


def _changed(commit: Commit, view: View, placeholder: str) -> DataFrame | None:
    """The rows that this commit adds to an input or retracts, one row per copy."""
    parts = [rows for _, rows in deltas.by_sign(commit, view, placeholder)]
    return reduce(lambda one, other: one.unionAll(other), parts) if parts else None


def fresh_upto(commit: Commit, view: View, takes: DataFrame | None, touched: DataFrame | None) -> DataFrame:
    """The current rows of keys; with `takes`, only this commit's rows up to a position are counted."""
    if takes is None or view.emission.counted is None:
        return keyed.fresh_rows(commit, view, touched)
    new = deltas.delta(commit, view, view.emission.counted)
    assert new is not None
    if commit.filling:
        return keyed.fresh_rows(commit, view, touched, takes, new)
    both = _counted_before(commit, view, view.emission.counted).selectExpr("*", f"CAST(NULL AS BIGINT) AS {POSITION}")
    return keyed.fresh_rows(commit, view, touched, takes, both.unionByName(new))


def _counted_before(commit: Commit, view: View, placeholder: str) -> DataFrame:
    """The rows that a trigger counted before this commit."""
    if placeholder in view.query.streams:
        stream = commit.catalog.stream(view.query.streams[placeholder])
        return read.kept_rows(commit.core, view, stream, stream.seen_as(placeholder), commit.before)
    below = commit.catalog.view(view.query.views[placeholder])
    rows = read.view_frame(commit.core, commit.catalog, below, commit.after, emitted=True)
    return rows.where(f"NOT ({deltas.is_new(commit, below)})")


def count_late(commit: Commit, view: View, end: int, count: int) -> None:
    size = max(
        (shift for name, shift in view.progress.times.items() if name in {key.name for key in view.keying.columns}),
        default=0,
    )
    late = LateRows(view, end - size if size else None, end, count)
    late.check()
    commit.late.append(late)
