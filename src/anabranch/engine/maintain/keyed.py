"""Keyed nodes, and nodes without a key: f(state | touched keys) - the rows shown for these keys.

f is the user's own SQL over the state, including this commit. The rows shown are read from the ledger and never
recomputed, so every retraction takes back a row that was emitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.algebra.reach import Range
from anabranch.engine import read
from anabranch.engine.maintain import bands, deltas
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.maintain.sessions import Spans
from anabranch.engine.tables import net_sql
from anabranch.engine.writing import collected
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.node import POSITION
from anabranch.plan.view import Touch, View
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def touched_keys(commit: Commit, view: View) -> DataFrame | None:
    """The distinct keys that new rows touch; None for none."""
    parts: list[DataFrame] = []
    for touch in view.keying.touches:
        new = deltas.delta(commit, view, touch.input)
        if new is not None:
            parts.append(keys_of(commit, view, touch, new))
    if not parts:
        return None
    touched = parts[0]
    for part in parts[1:]:
        touched = touched.unionAll(part)
    if len(parts) > 1:
        touched = touched.distinct()
    most = commit.core.place.limits.small_rows
    keys = None
    if commit.rows_read(view) <= most:
        keys = collected(touched, most) if view.query.tables else touched.toArrow()
    if keys is None:
        return touched
    return commit.core.spark.createDataFrame(keys) if keys.num_rows else None


def keys_of(commit: Commit, view: View, touch: Touch, rows: DataFrame) -> DataFrame:
    """The keys that rows of an input touch, cast to the types of the key."""
    return keyed_columns(commit, view, touching(commit, view, touch, touch.text, rows))


def touching(commit: Commit, view: View, touch: Touch, text: str, new: DataFrame) -> DataFrame:
    """The keys of new rows, of either sign."""
    if touch.input in view.query.views:
        names = deltas.names_of(commit, commit.catalog.view(view.query.views[touch.input]))
        new = new.select(*names, *([POSITION] if touch.input == view.emission.counted else []))
    return commit.core.frames.sql(text, {touch.input: new, **read.static_frames(commit.core, commit.catalog, view)})


def keyed_columns(commit: Commit, view: View, frame: DataFrame, more: str | None = None) -> DataFrame:
    """The columns of the key, cast to their types, and one more column if the frame has it.

    A value outside of the type (a BIGINT that is compared with an INT) equals no key. It becomes NULL, and the NULL key
    is recomputed for nothing.
    """
    items = [f"try_cast(`k{i}` AS {key.type}) AS `k{i}`" for i, key in enumerate(view.keying.columns)]
    return frame.selectExpr(*items, *([more] if more is not None and more in frame.columns else []))


def difference(commit: Commit, view: View, touched: DataFrame | None) -> tuple[DataFile, ...]:
    touched = touched.persist() if touched is not None else None
    try:
        within = bands.band_ranges(commit, view)
        if not within:
            return minus_shown(commit, view, fresh_rows(commit, view, touched), touched)
        after, before = (
            fresh_rows(commit, view, touched, within=within, at=at) for at in (commit.after, commit.before)
        )
        return commit.write(view, subtract(commit, view, after, deltas.signed(commit, before)))
    finally:
        if touched is not None:
            touched.unpersist()


def fresh_rows(
    commit: Commit,
    view: View,
    touched: DataFrame | None = None,
    takes: DataFrame | None = None,
    counted: DataFrame | None = None,
    within: Mapping[str, Range] | None = None,
    at: Snapshot | None = None,
    spans: Spans | None = None,
) -> DataFrame:
    """The current rows of a node for the touched keys; `counted` replaces the input that a trigger counts.

    Of streams, only rows with event times `within` bounds or in the sessions of `spans` are read; `at` is the snapshot,
    if not the one after this commit.
    """
    narrows = {each.input: each.columns for each in view.keying.narrows}
    continues = at is None and continues_from_shown(commit, view)
    at = at or commit.after
    within = spans.within if spans is not None else within

    def narrow(placeholder: str, frame: DataFrame) -> DataFrame:
        if within is not None and placeholder not in view.query.tables:
            frame = deltas.partners(commit, view, placeholder, at, within.get(placeholder))
        if counted is not None and placeholder == view.emission.counted:
            frame = counted
        if touched is not None and continues:
            frame = _retained(commit, view, placeholder)
        if touched is None:
            return frame
        columns = narrows.get(placeholder)
        pairs = [(name, f"k{index}") for index, name in enumerate(columns or ()) if name is not None]
        during = spans.time if spans is not None and placeholder == spans.input else None
        return _semi(commit, frame, touched, pairs, during)

    whole = read.view_query(commit.core, commit.catalog, view, at, narrow=narrow, hidden=True, takes=takes)
    if touched is None:
        return whole
    return _semi(commit, whole, touched, [(key.name, f"k{index}") for index, key in enumerate(view.keying.columns)])


def continues_from_shown(commit: Commit, view: View) -> bool:
    """Whether the changes of a view follow from the rows it shows and the new rows."""
    return view.follows_from_shown and not commit.filling


def _retained(commit: Commit, view: View, placeholder: str) -> DataFrame:
    """The rows of its stream that a view shows, and the new rows."""
    new = deltas.delta(commit, view, placeholder)
    assert new is not None and view.keying.retained is not None
    if not view.keying.retained:
        return new
    shown = read.shown_frame(commit.core, commit.catalog, view, commit.before, hidden=True)
    again = ", ".join(f"{quote_name(name)} AS {quote_name(column)}" for column, name in view.keying.retained.items())
    columns = ", ".join(map(quote_name, view.keying.retained))
    both = f"SELECT {again} FROM `@shown` UNION ALL SELECT {columns} FROM `@new`"
    return commit.core.frames.sql(both, {"@shown": shown, "@new": new})


def minus_shown(
    commit: Commit, view: View, fresh: DataFrame, touched: DataFrame | None, during: str | None = None
) -> tuple[DataFile, ...]:
    """The changes of a view: its fresh rows minus the rows shown, for touched keys.

    `during` gives the time of a shown row, if keys are touched only between two times.
    """
    shown = read.changes_frame(commit.core, commit.catalog, view, commit.before)
    if touched is not None:
        pairs = [(key.name, f"k{index}") for index, key in enumerate(view.keying.columns)]
        shown = _semi(commit, shown, touched, pairs, during)
    return commit.write(view, subtract(commit, view, fresh, shown))


def subtract(commit: Commit, view: View, fresh: DataFrame, shown: DataFrame) -> DataFrame:
    """The difference of fresh and shown rows, as net changes."""
    columns = ", ".join(quote_name(field.name) for field in (*view.fields, *view.hidden))
    both = f"(SELECT {columns}, 1 AS _diff FROM `@fresh` UNION ALL SELECT {columns}, -_diff FROM `@shown`)"
    return commit.core.frames.sql(net_sql(columns, both), {"@fresh": fresh, "@shown": shown})


def _semi(
    commit: Commit, frame: DataFrame, touched: DataFrame, pairs: list[tuple[str, str]], during: str | None = None
) -> DataFrame:
    """The rows of a frame with a touched key (NULL equals NULL) and, with `during`, a time between its `low` and
    `high`."""
    same = [f"__r.{quote_name(name)} <=> __t.{key}" for name, key in pairs]
    same += [f"{during} BETWEEN __t.low AND __t.high"] if during is not None else []
    if not same:
        return frame
    on = " AND ".join(same)
    text = f"SELECT __r.* FROM `@rows` AS __r LEFT SEMI JOIN `@touched` AS __t ON {on}"
    return commit.core.frames.sql(text, {"@rows": frame, "@touched": touched})
