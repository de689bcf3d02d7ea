"""Changes of a view that shows a window when it closes: insert what closed, correct what was shown and changed.

    delta = f(partials of the touched windows and keys) - what was shown for them

Plain aggregates are computed beside the ledger's files by DuckDB, which costs milliseconds where a Spark job costs
tenths of a second. Anything of the user's own (expressions, HAVING, what stands above the aggregate) is Spark's, as in
any other node that waits for progress.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from anabranch.algebra.plane import needed
from anabranch.algebra.progress import END
from anabranch.algebra.smoothing import Budget
from anabranch.algebra.windows import SlidingWindows
from anabranch.bucket import Task
from anabranch.duck import Variable, in_bucket, path_list, quoted
from anabranch.engine import buckets, read
from anabranch.engine.bucket_files import FilesByBucket, hash_of, hash_of_partials
from anabranch.engine.closing_bounds import EARLIEST, MARKS, Added, Closing, Scope
from anabranch.engine.core import Core
from anabranch.engine.driver import connection, copy_to_table
from anabranch.engine.frames import is_data_error
from anabranch.engine.late import LateRows
from anabranch.engine.pane_sql import (
    Columns,
    pane_relation,
    pane_source,
    reduced_columns,
    window_starts,
    within,
)
from anabranch.engine.place import TAKEN
from anabranch.engine.progress_bounds import Held, Moves, hold, key_bounds, progress, shown_before
from anabranch.engine.tables import overlaid, window_position_fields
from anabranch.kernel import Declined
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.view import View


def changes(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    moves: Moves,
    added: Added,
    late: list[LateRows],
    held: dict[str, Held],
    made: bool = False,
) -> tuple[tuple[DataFile, ...], str]:
    """Compute the changes of one view for a commit and write them; its files, none if nothing changed, and where.

    Late rows of windows that were shown are added to `late`. A view with a budget says in `held` how far it has come;
    one that is just made shows everything.
    """
    before, after = (progress(core, catalog, view, snapshot, moves, which) for which in (0, 1))
    if view.emission.budget is not None and after is not None:
        before = shown_before(view, snapshot, before)
        held[view.id] = Held(after) if made else _within_budget(core, catalog, view, snapshot, before, after, added)
        after = held[view.id].bound
    closing = Closing(before, after, key_bounds(core, catalog, view, snapshot, moves))
    if closing.furthest_after is None or not _anything_to_do(view, closing, added):
        return (), str(TAKEN)
    scope = _scope(catalog, view, closing, added)
    verdict = core.place.takes_closing(scope.rows(snapshot))
    if not verdict:
        in_buckets = _in_buckets(core, catalog, view, snapshot, closing, scope, late)
        if in_buckets is not None:
            return in_buckets[0], f"{in_buckets[1]}: {verdict.reason}"
        return _by_spark(core, catalog, view, snapshot, closing, scope, late), str(verdict)
    import duckdb

    try:
        return _by_duckdb(core, catalog, view, snapshot, closing, scope, late), str(verdict)
    except duckdb.DataError:
        _ask_spark(core, catalog, view, snapshot, closing, added)
        raise


def _by_spark(
    core: Core, catalog: Catalog, view: View, snapshot: Snapshot, closing: Closing, scope: Scope, late: list[LateRows]
) -> tuple[DataFile, ...]:
    """What closes, by Spark. A sum that is too large on the way, and not at the end, is one on the driver too."""
    from anabranch.engine.emit_spark import ClosingJob

    job, counted = ClosingJob(core, catalog, view, snapshot, closing, scope), len(late)
    try:
        return job.changes(late)
    except Exception as error:
        if not is_data_error(error):
            raise
        del late[counted:]
        try:
            return replace(job, wide=True).changes(late)
        except Exception as again:
            raise (error if is_data_error(again) else again) from None


def _ask_spark(core: Core, catalog: Catalog, view: View, snapshot: Snapshot, closing: Closing, added: Added) -> None:
    """Let Spark compute the windows that DuckDB has no value for: it tells of an overflow, say, in its own words."""
    after = overlaid(snapshot, added)
    whole = read.view_query(core, catalog, view, after, closed_by=closing.furthest_after)
    whole.write.format("noop").mode("overwrite").save()


def _within_budget(
    core: Core, catalog: Catalog, view: View, snapshot: Snapshot, before: int | None, after: int, added: Added
) -> Held:
    """How far a view with a budget shows its windows in this commit."""
    use = view.query.blocks[0]
    panes, windows = catalog.panes(use.panes), use.sliding
    assert windows is not None
    if after == END or needed(before, [windows]) == needed(after, [windows]):
        return hold(view, snapshot, after, ())
    low = None if before is None else before - windows.size
    new = tuple(file for file in added.get(panes.id, ()) if file.may_hold(low, after))
    scope = Scope(panes.id, windows, new, low, after)
    paths = scope.paths(core, snapshot)
    if not paths:
        return hold(view, snapshot, after, ())
    if not core.place.takes_closing(scope.rows(snapshot)):
        from anabranch.engine.emit_spark import ClosingJob

        job = ClosingJob(core, catalog, view, snapshot, Closing(before, after), scope)
        return hold(view, snapshot, after, job.counts(before, after))
    # Only a budget of rows has to know how many keys a window has; without them there is little to put into windows.
    keys = panes.keys if (view.emission.budget or Budget()).rows else ()
    position = [field.name for field in window_position_fields(panes)]
    there = ", ".join([*(f"{quoted(key.name)} AS k{index}" for index, key in enumerate(keys)), *position])
    exploded = ", ".join([*(f"k{index}" for index in range(len(keys))), f"{window_starts(panes, windows)} AS w"])
    size, present = windows.size, f"{quoted(use.presence)} > 0{within(low, after)}"
    text = (
        f"WITH there AS (SELECT DISTINCT {there} FROM {pane_source(panes, use.columns, paths)}"
        f" WHERE {present}), exploded AS (SELECT DISTINCT {exploded}"
        f" FROM there) SELECT w + {size}, count(*) FROM exploded"
        f" WHERE w + {size} > {EARLIEST if before is None else before} AND w + {size} <= {after} GROUP BY w"
    )
    return hold(view, snapshot, after, connection().sql(text).fetchall())


def _scope(catalog: Catalog, view: View, closing: Closing, added: Added) -> Scope:
    """Panes of windows that close now start at the earliest a window's length before the old bound; those of windows
    that late rows change, before these."""
    use = view.query.blocks[0]
    windows, new = use.sliding, added.get(use.panes, ())
    assert windows is not None
    before, after = closing.furthest_before, closing.furthest_after
    lows = [file.low for file in new if file.low is not None]
    late = before is not None and any(_in_closed(windows, low, before) for low in lows)
    low = closing.floor - windows.size
    low = min(low, min(lows) - windows.size) if late else low
    return Scope(catalog.panes(use.panes).id, windows, new, low, None if after == END else after, late)


def _anything_to_do(view: View, closing: Closing, added: Added) -> bool:
    """A run that closes no window and touches no closed one changes nothing that is shown."""
    for use in view.query.blocks:
        windows = use.sliding
        assert windows is not None
        if any(needed(before, [windows]) != needed(after, [windows]) for before, after in closing.moves()):
            return True
        before = closing.furthest_before
        if before is not None and any(
            file.low is None or _in_closed(windows, file.low, before) for file in added.get(use.panes, ())
        ):
            return True
    return False


def _in_closed(windows: SlidingWindows, pane: int, before: int) -> bool:
    """Whether the first window that holds a pane had closed; a pane below the bound can be in open windows only."""
    return windows.closed_before(pane) < windows.closed_before(before)


# ------------------------------------------------------------------------------------------ in Spark's tasks


def _in_buckets(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    closing: Closing,
    scope: Scope,
    counted: list[LateRows],
) -> tuple[tuple[DataFile, ...], str] | None:
    """The changes, computed by tasks that each merge the partials of one bucket of the keys; None if Spark's own engine
    has to compute them, because keys close one by one."""
    if closing.keys is not None or not buckets.available(core):
        return None
    names, own = _columns(catalog, view), scope.files(snapshot)
    if not own:
        return (), str(TAKEN)
    panes, folder = names.panes, core.ledger.table_folder(names.panes.id)
    hash = hash_of((f"k{index}", key.type) for index, key in enumerate(panes.keys))
    lists = FilesByBucket({panes.id: hash_of_partials(panes)})
    condition = in_bucket(hash) if hash else "true"
    count = core.place.buckets(scope.rows(snapshot), 0, core.spark.sparkContext.defaultParallelism) if hash else 1
    new, late = lists.paths(panes.id, folder, scope.new), ""
    if scope.late:
        late = _late_text(names, new, closing, condition)
        scope = scope if view.emission.late == "correct" else scope.without_late(closing)
    paths = lists.paths(panes.id, folder, scope.files(snapshot))
    text = _changes_text(core, names, closing, scope, paths, new, snapshot, condition)
    tasks = [Task(text, (), number, count, lists.of(number, count), late) for number in range(count)]
    rows: list[tuple[Any, ...]] = []
    (files,) = buckets.write(core, [buckets.Wanted(view.changes_table, "_window", tasks, rows=rows)])
    if isinstance(files, Declined):
        return None
    try:
        counted += _checked(names, rows)
    except BaseException:
        core.ledger.give_up({view.changes_table: files})
        raise
    return files, buckets.in_words(count, [key.name for key in panes.keys])


def _columns(catalog: Catalog, view: View) -> Columns:
    use = view.query.blocks[0]
    assert use.sliding is not None
    return Columns(view, catalog.panes(use.panes), use, use.sliding)


def _closing_text(
    names: Columns,
    closing: Closing,
    scope: Scope,
    paths: list[str] | Variable,
    snapshot: Snapshot,
    condition: str = "true",
) -> str:
    """The windows that close, of keys for which a condition holds, as changes."""
    closes, marks = _closes(names, closing)
    ctes = [
        pane_relation("exploded", names.panes, names.use, paths, scope.low, scope.high),
        _reduced(names, f"exploded e{marks} WHERE ({closes}) AND {condition}"),
        f"fresh AS (SELECT {', '.join(names.outputs())} FROM reduced)",
    ]
    final = f"SELECT {', '.join(names.stored())}, CAST(1 AS BIGINT) AS _diff FROM fresh"
    return _versioned(ctes, final, snapshot)


def _closes(names: Columns, closing: Closing) -> tuple[str, str]:
    """The condition that a window closes, and what has to be joined for it."""
    shown_before, shown_after, marks = closing.sql()
    size = names.windows.size
    closes = f"w + {size} > {shown_before}"
    closes += "" if closing.furthest_after == END else f" AND w + {size} <= {shown_after}"
    return closes, marks


def _reduced(names: Columns, chosen: str) -> str:
    keys = [*names.keys(), "w"]
    return (
        f"reduced AS (SELECT {', '.join([*keys, *reduced_columns(names.panes, names.use)])} FROM {chosen}"
        f" GROUP BY {', '.join(keys)} HAVING sum({quoted(names.use.presence)}) > 0)"
    )


def _versioned(ctes: list[str], final: str, snapshot: Snapshot) -> str:
    return f"WITH {', '.join(ctes)} SELECT *, CAST({snapshot.version + 1} AS BIGINT) AS _version FROM ({final})"


# ------------------------------------------------------------------------------------------ on the driver


def _by_duckdb(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    closing: Closing,
    scope: Scope,
    counted: list[LateRows],
) -> tuple[DataFile, ...]:
    names, duck, new = _columns(catalog, view), connection(), scope.new_paths(core)
    if closing.keys is not None:
        duck.register(MARKS, closing.marks())
    if scope.late:
        came = _checked(names, duck.sql(_late_text(names, new, closing)).fetchall())
        counted += came
        if not came or view.emission.late != "correct":
            scope = scope.without_late(closing)
    paths = scope.paths(core, snapshot)
    if not paths:
        return ()
    text = _changes_text(core, names, closing, scope, paths, new, snapshot)
    return copy_to_table(core, duck, text, view.changes_table, "_window")


# ------------------------------------------------------------------------------------------ late rows


def _changes_text(
    core: Core,
    names: Columns,
    closing: Closing,
    scope: Scope,
    paths: list[str] | Variable,
    new: list[str] | Variable,
    snapshot: Snapshot,
    condition: str = "true",
) -> str:
    """The changes of a commit, for the keys that satisfy a condition; `new` are the files of new partials."""
    if not scope.late:
        return _closing_text(names, closing, scope, paths, snapshot, condition)
    shown = snapshot.table_paths(core.ledger, names.view.changes_table, scope.low, closing.furthest_before)
    return _correcting_text(names, closing, scope, paths, new, shown, snapshot, condition)


def _correcting_text(
    names: Columns,
    closing: Closing,
    scope: Scope,
    paths: list[str] | Variable,
    new: list[str] | Variable,
    shown: list[str],
    snapshot: Snapshot,
    condition: str = "true",
) -> str:
    """The windows that close, and the corrections of shown ones, for the keys that satisfy a condition."""
    closes, marks = _closes(names, closing)
    keys, stored = names.keys(), ", ".join(names.stored())
    matches = " AND ".join(["t.w = e.w", *(f"t.{key} IS NOT DISTINCT FROM e.{key}" for key in keys)])
    touched = f"EXISTS (SELECT 1 FROM touched t WHERE {matches})"
    ctes = [
        pane_relation("exploded", names.panes, names.use, paths, scope.low, scope.high),
        pane_relation("late", names.panes, names.use, new, None, closing.furthest_before),
        f"touched AS (SELECT DISTINCT {', '.join([*keys, 'w'])} FROM late{_in_shown(names, closing)} AND {condition})",
        _reduced(names, f"exploded e{marks} WHERE (({closes}) AND {condition}) OR {touched}"),
        f"fresh AS (SELECT {', '.join(names.outputs())} FROM reduced)",
    ]
    final = f"SELECT {stored}, CAST(1 AS BIGINT) AS _diff FROM fresh"
    if shown:
        on = " AND ".join(
            [
                "epoch_us(c._window) = t.w",
                *(f"c.{names.stored_key(i)} IS NOT DISTINCT FROM t.k{i}" for i in range(len(keys))),
            ]
        )
        columns = ", ".join(f"c.{name}" for name in names.stored())
        ctes.append(
            f"shown AS (SELECT {columns}, sum(c._diff) AS _count"
            f" FROM read_parquet({path_list(shown)}) c JOIN touched t ON {on}"
            " GROUP BY ALL HAVING _count <> 0)"
        )
        final = (
            f"SELECT {stored}, CAST(sum(_count) AS BIGINT) AS _diff FROM (SELECT {stored}, 1 AS _count FROM fresh"
            f" UNION ALL SELECT {stored}, -_count FROM shown) GROUP BY ALL HAVING sum(_count) <> 0"
        )
    return _versioned(ctes, final, snapshot)


def _in_shown(names: Columns, closing: Closing) -> str:
    """The joins and the condition that select the new partials of windows shown before."""
    shown_before, _, marks = closing.sql()
    return f"{marks} WHERE w + {names.windows.size} <= {shown_before}"


def _late_text(names: Columns, new: list[str] | Variable, closing: Closing, condition: str = "true") -> str:
    """The number of late rows of each window shown before, for the keys that satisfy a condition."""
    relation = pane_relation("late", names.panes, names.use, new, None, closing.furthest_before)
    return (
        f"WITH {relation} SELECT w, CAST(sum({quoted(names.use.presence)}) AS BIGINT) AS n"
        f" FROM late{_in_shown(names, closing)} AND {condition} GROUP BY w HAVING n > 0"
    )


def _checked(names: Columns, rows: Iterable[tuple[int, int]]) -> list[LateRows]:
    """The late rows of windows that had closed, added up over tasks; raises for a view with LATE FAIL."""
    windows: dict[int, int] = {}
    for start, count in rows:
        windows[start] = windows.get(start, 0) + count
    size = names.windows.size
    found = [LateRows(names.view, start, start + size, count) for start, count in sorted(windows.items())]
    for each in found:
        each.check()
    return found
