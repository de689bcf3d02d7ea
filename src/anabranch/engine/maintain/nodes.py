"""The changes of each node whose changes are stored, for one commit; its inputs are computed before it.

    stateless   the changes of its input, through the user's SQL
    join        the changes of each input, joined with the rows of the others: dA x B + A x dB + dA x dB
    keyed       f(state | touched keys) - the rows shown for these keys
    whole       f(state) - the rows shown
    sessions    f(rows of the sessions that new rows touch) - the rows shown for these sessions
    outer joins with time bands, keyed or not: f(state after) - f(state before), over the rows in reach of new ones

f is the user's own SQL over the state, including this commit. The rows shown are read from the ledger and never
recomputed, so every retraction takes back a row that was emitted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anabranch.algebra.progress import END
from anabranch.engine import buckets, driver_changes, read
from anabranch.engine.maintain import (
    bands,
    clock,
    closing,
    deltas,
    driver_lookup_changes,
    dropping,
    firing,
    keyed,
    lookup_changes,
    sessions,
)
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.place import Verdict
from anabranch.engine.progress_bounds import (
    progress,
    shown_before,
)
from anabranch.ledger import DataFile
from anabranch.plan.describe import waits_for_windows
from anabranch.plan.view import View
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fill(commit: Commit, view: View) -> tuple[DataFile, ...]:
    """All rows of a new view, as its first changes."""
    if view.emission.mode == "triggers" or view.query.asks:
        commit.filling = True
        try:
            return _look_up(commit, view) if view.query.asks else firing.fire(commit, view)
        finally:
            commit.filling = False
    commit.recompute = True
    known = commit.core.catalog(commit.before).objects.get(view.id)
    if isinstance(known, View) and known.query.rows is not None and known.sql == view.sql:
        # The rows that it has shown so far: they were enriched when they arrived, and do not change.
        whole = read.view_query(commit.core, commit.core.catalog(commit.before), known, commit.before)
    else:
        narrow = partial(deltas.computable_rows, commit, view)
        whole = read.view_query(commit.core, commit.catalog, view, commit.after, narrow=narrow, hidden=True)
    return commit.write(view, deltas.signed(commit, closing.closed(commit, view, whole)))


def recompute(commit: Commit, view: View) -> tuple[DataFile, ...]:
    """The changes of a node after a change below it that brings no new rows; pending windows stay pending."""
    if view.emission.mode == "triggers":
        shown = _shown_windows(commit, view)
        return () if shown is None else keyed.minus_shown(commit, view, shown, None)
    commit.recompute = True
    if view.query.asks:
        return _look_up(commit, view, recompute=True)
    return keyed.minus_shown(commit, view, closing.closed(commit, view, keyed.fresh_rows(commit, view)), None)


def _shown_windows(commit: Commit, view: View) -> DataFrame | None:
    """The current rows of the windows that a view has shown; None if it does not emit by windows only."""
    bound = clock.progress_of(commit, view, 0)
    if view.emission.budget is not None:
        bound = shown_before(view, commit.before, bound)
    time = next((key for key in view.keying.columns if key.name in view.progress.times), None)
    by_key = clock.own_bounds(commit, view) is not None
    if not waits_for_windows(view) or view.emission.late != "correct" or bound is None or time is None or by_key:
        return None
    end = f"unix_micros({quote_name(time.name)})" if time.type == "timestamp" else quote_name(time.name)
    return keyed.fresh_rows(commit, view).where(
        "true" if bound == END else f"{end} + {view.progress.times[time.name]} <= {bound}"
    )


def changes(commit: Commit, view: View) -> tuple[DataFile, ...]:
    """The rows that a node shows from this commit on, and those that it retracts."""
    commit.recompute = False
    if view.emission.mode == "triggers":
        return firing.fire(commit, view)
    if view.emission.closing:
        commit.backends[view.id] = str(Verdict(False, "its windows depend on other rows"))
        return closing.changes(commit, view)
    if commit.core.table_cache.keeps(view.id):  # even if the node has nothing to do in this commit
        commit.core.table_cache.let_go(view.id, bands.needed(commit, view))
    if not commit.touches(view):
        return ()
    if view.query.asks:
        return _look_up(commit, view)
    if view.changes_table in commit.ready:
        commit.backends[view.id] = "in kernels, with the rows of the run"
        commit.added[view.changes_table] = commit.ready[view.changes_table]
        return commit.ready[view.changes_table]
    if view.operator == "join" and view.emission.late == "drop":
        dropping.count_dropped(commit, view)
    elif view.drops_late_of:
        dropping.drop_late_rows(commit, view)
    if not (view.operator == "keyed" and view.query.direct) and view.id not in commit.computable:
        files = driver_changes.changes(commit, view)
        files = buckets.changes(commit, view) if files is None else files
        if files is not None:
            commit.added[view.changes_table] = files
            return files
    if view.row_by_row:
        changed = deltas.row_by_row_changes(commit, view)
        if changed is None:
            return ()
        return commit.write(
            view, deltas.net_changes(commit, view, changed) if deltas.may_cancel_out(commit, view) else changed
        )
    if view.operator == "keyed" and view.query.direct:
        return _hot(commit, view)
    if view.progress.ends is not None and view.progress.ends.gap:
        new = deltas.delta(commit, view, view.progress.ends.input)
        found = sessions.spans(commit, view, new) if new is not None else None
        if found is not None:
            return closing.difference_within(commit, view, found)
    if view.operator == "whole":
        return keyed.difference(commit, view, None)
    return _by_spark(commit, view)


def _look_up(commit: Commit, view: View, *, recompute: bool = False) -> tuple[DataFile, ...]:
    """New rows with their matches in external tables."""
    files = None if recompute else driver_lookup_changes.changes(commit, view)
    if files is not None:
        commit.added[view.changes_table] = files
        return files
    with lookup_changes.changes(commit, view, recompute=recompute) as changed:
        return () if changed is None else commit.write(view, changed)


def _hot(commit: Commit, view: View) -> tuple[DataFile, ...]:
    """The changes of a plain aggregate, from its groups in memory; by Spark where the driver cannot.

    After running out of memory, the next commit tries again; after any other error the view is left to Spark.
    """
    import duckdb

    verdict = commit.core.place.takes_changes(commit.rows_read(view), 0)
    if verdict and commit.core.hot.left(view):
        verdict = Verdict(False, "DuckDB failed for it before")
    commit.backends[view.id] = str(verdict)
    if not verdict:
        return _by_spark(commit, view)
    panes = commit.catalog.panes(view.query.blocks[0].panes)
    if not all(panes.column(name).duckdb for name in view.query.blocks[0].columns):
        commit.backends[view.id] = str(Verdict(False, "partials of Spark's own"))
        return _by_spark(commit, view)
    closed = progress(commit.core, commit.catalog, view, commit.before, commit.moves, 1)
    try:
        files = commit.core.hot.changes(view, panes, commit.before, commit.added[panes.id], closed, commit.now)
    except duckdb.Error as error:
        commit.core.hot.forget(view.id)
        commit.backends[view.id] = str(Verdict(False, (str(error).splitlines() or [""])[0]))
        files = _by_spark(commit, view)  # or raises an error of its own, of an overflow, for example
        if not isinstance(error, duckdb.OutOfMemoryException):
            commit.core.hot.leave(view)
            reason = (str(error).splitlines() or [""])[0]
            commit.core.warn(f"view {view.name} is computed by Spark from now on, and runs take longer: {reason}")
        return files
    if files is None:
        commit.backends[view.id] = str(Verdict(False, "it has more groups than the driver holds or reads"))
        return _by_spark(commit, view)
    commit.added[view.changes_table] = files
    return files


def _by_spark(commit: Commit, view: View) -> tuple[DataFile, ...]:
    files = buckets.changes(commit, view) if view.query.direct and view.id not in commit.computable else None
    if files is not None:
        commit.added[view.changes_table] = files
        return files
    touched = keyed.touched_keys(commit, view)
    return () if touched is None else keyed.difference(commit, view, touched)
