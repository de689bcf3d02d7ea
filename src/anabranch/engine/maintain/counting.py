"""Records that a trigger counts: their keys and places, and what keys show up to one of them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from anabranch.engine import read
from anabranch.engine.late import LateRows
from anabranch.engine.maintain import deltas, keyed
from anabranch.engine.maintain.commit import Commit
from anabranch.plan.node import PLACE
from anabranch.plan.view import Touch, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def records_of(commit: Commit, view: View, touch: Touch) -> DataFrame | None:
    """The keys of the records that this commit brings to an input, with their places or how many they are; None for
    none."""
    new = _changed(commit, view, touch.input) if view.counts_by_run else deltas.delta(commit, view, touch.input)
    if new is None:
        return None
    text = touch.text.replace("SELECT DISTINCT", "SELECT", 1)
    rows = keyed.keyed_columns(commit, view, keyed.touching(commit, view, touch, text, new), PLACE)
    if view.emission.counted is None:
        rows = rows.groupBy(*(f"k{index}" for index in range(len(view.keying.columns)))).count()
    return rows


def _changed(commit: Commit, view: View, placeholder: str) -> DataFrame | None:
    """The rows behind a placeholder that this commit gives or takes back, each as often as it does."""
    parts = [rows for _, rows in deltas.split(commit, view, placeholder)]
    return reduce(lambda one, other: one.unionAll(other), parts) if parts else None


def fresh_upto(commit: Commit, view: View, takes: DataFrame | None, touched: DataFrame | None) -> DataFrame:
    """What keys show now; with `takes`, of this commit only the rows up to a place."""
    if takes is None or view.emission.counted is None:
        return keyed.fresh_rows(commit, view, touched)
    new = deltas.delta(commit, view, view.emission.counted)
    assert new is not None
    if commit.filling:
        return keyed.fresh_rows(commit, view, touched, takes, new)
    both = _counted_before(commit, view, view.emission.counted).selectExpr("*", f"CAST(NULL AS BIGINT) AS {PLACE}")
    return keyed.fresh_rows(commit, view, touched, takes, both.unionByName(new))


def _counted_before(commit: Commit, view: View, placeholder: str) -> DataFrame:
    """The rows that a trigger has counted before this commit."""
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
