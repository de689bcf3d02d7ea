"""The new rows of a node's inputs, with a signed count where rows can be retracted; and the changes of stateless nodes
and joins: dA x B + A x dB + dA x dB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.algebra.reach import Range
from anabranch.engine import read
from anabranch.engine.maintain import bands, late_drop
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.numbering import POSITIONS, with_arrival_numbers
from anabranch.engine.set_aside import Checking, computable, row_by_row_query, with_cached_positions
from anabranch.engine.stream_part import STREAM_ROWS, StreamPart
from anabranch.engine.tables import change_fields, net_sql
from anabranch.ledger import Snapshot
from anabranch.plan.definitions import ROW_NUM, Stream
from anabranch.plan.describe import append_only
from anabranch.plan.node import POSITION
from anabranch.plan.picks import orderable
from anabranch.plan.record_parts import order_sql, parts_of
from anabranch.plan.view import View
from anabranch.sources.base import Found
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def may_cancel_out(commit: Commit, view: View) -> bool:
    """Whether a join can emit a row and retract it in one commit: a new row of one input matches a retracted row."""
    return view.operator == "join" and not append_only(view, commit.catalog)


def net_changes(commit: Commit, view: View, changed: DataFrame) -> DataFrame:
    """The net changes of each row."""
    columns = ", ".join(names_of(commit, view))
    return commit.core.frames.sql(net_sql(columns, "`@changed`"), {"@changed": changed})


def delta(commit: Commit, view: View, placeholder: str) -> DataFrame | None:
    """The new rows of an input; with a signed count where rows can be retracted."""
    for use in view.query.blocks:
        if use.placeholder == placeholder:
            panes = commit.catalog.panes(use.panes)
            paths = commit.paths(panes.id)
            return read.pane_frame(commit.core, panes, use, paths) if paths else None
    if placeholder in view.query.streams:
        stream = commit.catalog.stream(view.query.streams[placeholder])
        paths = commit.paths(stream.rows_table)
        if placeholder == view.emission.counted:
            return _with_positions(commit, view, stream, placeholder, paths) if paths else None
        rows = rows_of(commit, view, stream, stream.seen_as(placeholder), paths) if paths else None
        return None if rows is None else computable_rows(commit, view, placeholder, rows)
    below = commit.catalog.view(view.query.views[placeholder])
    if placeholder != view.emission.counted:
        return delta_of(commit, below)
    return _with_order_of_arrival(commit, below)


def rows_of(commit: Commit, view: View, stream: Stream, fields: tuple[Field, ...], paths: list[str]) -> DataFrame:
    """New rows of a stream, from the first row that the view reads."""
    return read.since_start(view, stream, fields, lambda columns: commit.core.frames.parquet(paths, columns))


def computable_rows(commit: Commit, view: View, _: str, rows: DataFrame) -> DataFrame:
    """Rows of an input without those for which the view fails."""
    text = commit.computable.get(view.id)
    return rows if text is None else commit.core.frames.sql(text, {STREAM_ROWS: rows})


def set_aside(commit: Commit, view: View, *, made: bool) -> tuple[Stream, Found] | None:
    """Exclude the rows for which a view fails, new ones or, if the view is being created, all; None if there are none,
    or if the view does not work row by row."""
    rows = row_by_row_query(view)
    if rows is None or view.id in commit.computable:
        return None
    stream = commit.catalog.stream(rows.stream)
    paths = commit.after.table_paths(commit.core.ledger, stream.rows_table) if made else commit.paths(stream.rows_table)
    new = with_cached_positions(rows_of(commit, view, stream, stream.row_fields, paths)).persist()
    checking = Checking(commit.core, StreamPart(commit.core), stream, new, new)
    try:
        found = checking.failing_in(commit.catalog, view, rows)
    finally:
        checking.close()
    if not found.indexes:
        return None
    commit.computable[view.id] = computable(rows)
    return stream, found


def _with_positions(commit: Commit, view: View, stream: Stream, placeholder: str, paths: list[str]) -> DataFrame:
    """Rows with their positions in order of arrival. Rows of old homes, which have no numbers, share one position."""
    columns = [quote_name(field.name) for field in stream.seen_as(placeholder)]
    rows = rows_of(commit, view, stream, stream.row_fields, paths)
    return rows.selectExpr(*columns, f"coalesce({ROW_NUM}, 0) AS {POSITION}")


def _with_order_of_arrival(commit: Commit, view: View) -> DataFrame | None:
    """The new records of a node with their positions in order of arrival; records that arrived together, of one row
    joined with a static table, are ordered by their columns."""
    names = [field.name for field in view.fields]
    parts = parts_of(names)
    if commit.filling:
        rows = read.view_frame(commit.core, commit.catalog, view, commit.after, emitted=True)
        rows = with_arrival_numbers(commit.core, rows, parts, commit.before)
        positions = [POSITIONS.format(index) for index in range(len(parts))]
    else:
        new = delta_of(commit, view)
        if new is None:
            return None
        rows = _copies(commit, view, new, 1).where(is_new(commit, view))
        positions = [
            f"CASE WHEN {quote_name(name)} >= {commit.first_number(id)} THEN {quote_name(name)} END"
            for name, id in parts.items()
            if id in commit.taken
        ]
    others = [quote_name(each.name) for each in view.fields if each.name not in parts and orderable(each.type)]
    order = ", ".join([*order_sql(list(parts), positions or ["CAST(NULL AS BIGINT)"]), *others])
    position = f"CAST(row_number() OVER (ORDER BY {order}) AS BIGINT) AS {POSITION}"
    return rows.selectExpr(*map(quote_name, names), position)


def is_new(commit: Commit, view: View) -> str:
    """The condition on new records: one of the rows that they were joined from is new."""
    found = [
        f"coalesce({quote_name(name)} >= {commit.first_number(stream)}, false)"
        for name, stream in parts_of([field.name for field in view.fields]).items()
        if stream in commit.taken
    ]
    return " OR ".join(found) or "false"


def delta_of(commit: Commit, view: View) -> DataFrame | None:
    """The changes of a view in this commit: read from its table, or computed if it stores none."""
    if not view.kept:
        return row_by_row_changes(commit, view)
    paths = commit.paths(view.changes_table)
    return commit.core.frames.parquet(paths, _change_fields(commit, view)) if paths else None


def row_by_row_changes(commit: Commit, view: View) -> DataFrame | None:
    """The node's SQL over the changes of each input and the rows of the others.

    Earlier inputs have the rows of this commit, later inputs do not, so that each new pair is emitted once.
    """
    parts: list[DataFrame] = []
    statics = read.static_frames(commit.core, commit.catalog, view)
    for index, placeholder in enumerate(view.inputs):
        changed = list(by_sign(commit, view, placeholder))
        if not changed:
            continue
        within = bands.partner_ranges(commit, view, placeholder)
        others = {
            other: partners(commit, view, other, commit.after if at < index else commit.before, within.get(other))
            for at, other in enumerate(view.inputs)
            if at != index
        }
        for sign, rows in changed:
            frame = commit.core.frames.sql(
                view.query.spark_text or view.query.text, {placeholder: rows, **others, **statics}
            )
            parts.append(signed(commit, frame.toDF(*(field.name for field in view.fields)), sign))
    if not parts:
        return None
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionAll(part)
    return whole


def by_sign(commit: Commit, view: View, placeholder: str) -> Iterator[tuple[int, DataFrame]]:
    """The new rows of an input by sign, one row per copy that is added or retracted."""
    new = delta(commit, view, placeholder)
    if new is None:
        return
    if placeholder not in view.query.views:
        yield 1, new
        return
    below = commit.catalog.view(view.query.views[placeholder])
    signs = (1,) if append_only(below, commit.catalog) else (1, -1)
    for sign in signs:
        yield sign, _copies(commit, below, new, sign)


def _copies(commit: Commit, view: View, changed: DataFrame, sign: int) -> DataFrame:
    """The rows that changes of a view add (1) or retract (-1), one row per copy."""
    copied = "LATERAL VIEW explode(array_repeat(1, CAST(abs(_diff) AS INT))) __copies AS __copy"
    condition = "_diff > 0" if sign > 0 else "_diff < 0"
    text = f"SELECT {', '.join(names_of(commit, view))} FROM `@new` {copied} WHERE {condition}"
    return commit.core.frames.sql(text, {"@new": changed})


def partners(commit: Commit, view: View, placeholder: str, snapshot: Snapshot, within: Range | None) -> DataFrame:
    """The rows of an input of a join at a snapshot; those with event times within bounds, if it has event times."""
    rows = _rows_within(commit, view, placeholder, snapshot, within)
    return late_drop.without_dropped(commit.core, commit.catalog, view, placeholder, rows, snapshot)


def _rows_within(commit: Commit, view: View, placeholder: str, snapshot: Snapshot, within: Range | None) -> DataFrame:
    if placeholder in view.query.views:
        below = commit.catalog.view(view.query.views[placeholder])
        if within is None or placeholder not in {**view.join.streams, **view.join.views}:
            return read.view_frame(commit.core, commit.catalog, below, snapshot, emitted=True)
        if below.kept:
            return read.shown_frame(commit.core, commit.catalog, below, snapshot, within=within)

        def band_ranges(inner: str, frame: DataFrame) -> DataFrame:
            return frame if inner in below.query.tables else partners(commit, below, inner, snapshot, within)

        return read.view_query(commit.core, commit.catalog, below, snapshot, narrow=band_ranges)
    stream = commit.catalog.stream(view.query.streams[placeholder])
    fields = stream.seen_as(placeholder)
    low, high = within or (None, None)
    if stream.time is None or (low is None and high is None):
        return read.kept_rows(commit.core, view, stream, fields, snapshot)
    beyond = None if high is None else high + 1
    rows = read.kept_rows(commit.core, view, stream, fields, snapshot, low, beyond)
    return read.in_range(rows, stream.time, (low, high))


def names_of(commit: Commit, view: View) -> list[str]:
    return [quote_name(field.name) for field in view.fields]


def signed(commit: Commit, frame: DataFrame, diff: int = 1) -> DataFrame:
    return frame.selectExpr("*", f"CAST({diff} AS BIGINT) AS _diff")


def _change_fields(commit: Commit, view: View) -> tuple[Field, ...]:
    panes = commit.catalog.panes(view.query.blocks[0].panes) if view.query.blocks else None
    return change_fields(view, panes)
