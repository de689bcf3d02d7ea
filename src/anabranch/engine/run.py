"""The life of a run: new rows to partials, rows and changes, in one commit. The same for sources, INSERT and COPY.

    one scan -> partials and rows to files, bad rows aside -> changes of views that emit -> record

A crash before the record leaves no trace; the record names all files at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from anabranch.algebra import progress as progress_algebra
from anabranch.algebra.progress import ProgressState, own_bounds
from anabranch.engine import buckets, emit, functions, late
from anabranch.engine.bucket_files import RUN
from anabranch.engine.core import Core, Stopwatch
from anabranch.engine.driver_scan import partials_text, selected_text
from anabranch.engine.frames import arrow_schema, is_data_error, named, translate
from anabranch.engine.group_sizes import GroupSizes, group_sizes_of
from anabranch.engine.kernels import Ahead
from anabranch.engine.maintain import clock, deltas, nodes
from anabranch.engine.maintain.commit import Commit
from anabranch.engine.maintain.late_drop import dropped_fields
from anabranch.engine.pending_table import pending_fields
from anabranch.engine.progress_bounds import Moves, Outcome, anything_waits, bounds_after
from anabranch.engine.scan import WRITERS, Incoming, Output, Scan, Scanned
from anabranch.engine.set_aside import Losses, lacking, reason_of, refuse, write_computable
from anabranch.engine.stream_part import StreamPart
from anabranch.engine.tables import BAD_ROW_FIELDS, BAD_ROWS, PANE, change_fields, pane_fields
from anabranch.engine.writing import write_table
from anabranch.errors import DataError, QueryFailed, UnknownFunction
from anabranch.ledger import DataFile, Draft, Ledger, Record, Snapshot, StreamRun, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.panes import STREAM
from anabranch.plan.states import Panes
from anabranch.plan.stored import to_json
from anabranch.plan.view import View
from anabranch.sources.base import BadRow, Found
from anabranch.sources.row_groups import InGroups
from anabranch.sql.text import quote_name
from anabranch.types import Field


class Refresh(Protocol):
    def __call__(self, table: Table, *, only_changed: bool) -> None: ...


class Runner:
    """Runs the streams of one home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.stream_part = StreamPart(core)
        self.refresh: Refresh | None = None  # how a table is refreshed

    def run(
        self,
        stream_id: str,
        incoming: Incoming,
        *,
        kind: str = "run",
        applied: tuple[str, ...] = (),
    ) -> Record:
        """Commit rows to a stream as its next run."""
        watch = Stopwatch()
        core = self.core
        self._refresh_tables(stream_id)
        with core.stream_lock(stream_id):
            snapshot = core.ledger.snapshot()
            catalog = core.catalog(snapshot)
            stream = catalog.stream(stream_id)
            state = core.progress(snapshot, stream_id)
            scanned = Scanned()
            reach("before-job")
            try:
                core.functions.provide_for(catalog, stream_id)
                outputs = self._outputs(stream, catalog, snapshot, incoming.bytes)
                taken = snapshot.streams.get(stream_id)
                number = taken.rows if taken is not None else 0
                ahead = partial(self._look_ahead, catalog, snapshot, stream, state)
                scan = Scan(core, stream, incoming, outputs, state, number, ahead)
                scan.run(scanned, watch)
                lost = Losses()
                if scanned.failed:

                    def new_outputs(catalog: Catalog) -> list[Output]:
                        return self._outputs(stream, catalog, core.ledger.snapshot(), incoming.bytes)

                    outputs, lost = write_computable(core, self.stream_part, stream, scan, scanned, new_outputs)
                    watch.lap("set aside")
            except BaseException as error:
                scanned.give_up(core.ledger)
                if isinstance(error, Exception):
                    raise functions.named(catalog, stream_id, translate(error)) from error
                raise
            if stream.fail_on_bad and scanned.bad:
                scanned.give_up(core.ledger)
                first = scanned.bad[0]
                raise QueryFailed(
                    f"stream {stream.name}: {first.reason} in {first.source}"
                    + (f", line {first.offset}" if first.offset is not None else ""),
                    hint="the stream was created with ON ERROR FAIL; fix the row, or recreate it with ON ERROR SKIP",
                )
            reach("after-files")
            after = self._progress(stream, state, scanned)
            watch.cut()
            try:
                incoming.verify()
                with core.ledger.commit_lock:
                    if lost.rows or lost.stopped or core.ledger.snapshot().version != snapshot.version:
                        scanned.give_up_changes(core.ledger)
                    return self._commit(stream, incoming, scanned, state, after, kind, applied, outputs, lost, watch)
            except BaseException:
                scanned.give_up(core.ledger)
                raise

    def _look_ahead(
        self,
        catalog: Catalog,
        snapshot: Snapshot,
        stream: Stream,
        state: ProgressState,
        rows: InGroups,
        written: frozenset[str],
    ) -> Ahead | None:
        """The nodes whose changes can be computed in the same job as the tables that the tasks of a run write."""
        if not any(buckets.fits_run(catalog, view, stream, written) for view in catalog.of(View)):
            return None
        added: dict[str, tuple[DataFile, ...]] = {table: (DataFile(RUN, rows.rows, 0),) for table in written}
        if stream.rows_table in written:
            added[stream.rows_table] = (DataFile(RUN, rows.rows, 0, rows.low, rows.high),)
        moves = {stream.id: (state, state)}
        commit = Commit(self.core, catalog, snapshot, added, moves, self.core.now(), {stream.id: rows.rows})
        return buckets.look_ahead(commit, stream, rows.rows, written)

    def _refresh_tables(self, stream_id: str) -> None:
        """Refresh the tables with REFRESH EVERY RUN that views on a stream read, if they have changed."""
        snapshot = self.core.ledger.snapshot()
        catalog = self.core.catalog(snapshot)
        if self.refresh is None or not any(table.every_run for table in catalog.of(Table)):
            return
        views = {view.id: view for view in catalog.of(View) if stream_id in catalog.sources_of(view)}
        views |= {id: catalog.view(id) for view in list(views.values()) for id in catalog.below(view)}
        reading = (*catalog.states_of(stream_id), *views.values())
        read = [pair for each in reading for pair in each.table_versions.items()]
        for id in dict.fromkeys(id for id, _ in read):
            table = catalog[id]
            assert isinstance(table, Table)
            loaded = table.source is not None or table.query is not None
            written = any(own != snapshot.delta_versions.get(id, 0) for each, (_, own) in read if each == id)
            if table.every_run and (loaded or written):
                self.refresh(table, only_changed=True)

    def _progress(self, stream: Stream, state: ProgressState, scanned: Scanned) -> ProgressState:
        try:
            return progress_algebra.observe(stream.policy, state, scanned.statistics.by_partition, self.core.now())
        except progress_algebra.TooManyKeys as error:
            scanned.give_up(self.core.ledger)
            raise QueryFailed(
                f"stream {stream.name}: {error}",
                hint=f"IDLE AFTER drops idle keys; or create it without PER KEY {stream.key}",
            ) from error

    # ---- outputs of a run

    def _driver_text(self, stream: Stream, state: Panes, group_sizes: GroupSizes | None) -> str | None:
        """The query of a run's partials for the driver; None where the group sizes are too many for it."""
        if group_sizes is not None and group_sizes.known is None:
            return None
        return partials_text(stream, state, group_sizes.judging if group_sizes is not None else None)

    def _outputs(self, stream: Stream, catalog: Catalog, snapshot: Snapshot, size: int) -> list[Output]:
        outputs: list[Output] = []
        if stream.kept_since is not None:
            columns = [quote_name(field.name) for field in stream.row_fields]
            outputs.append(
                Output(
                    stream.rows_table,
                    lambda good: good.select(*columns),
                    stream.time,
                    self.core.place.is_small(size),
                    stream.row_fields,
                    True,
                    True,
                )
            )
        stopped = any(view.state.stopped for view in catalog.of(View))
        for state in catalog.states_of(stream.id):
            if stopped and all(view.state.stopped for view in catalog.users_of(state)):
                continue
            small = self.core.place.is_small(size) or self._was_small(snapshot, state.id)
            if isinstance(state, Panes):
                group_sizes = group_sizes_of(self.core, stream, state, snapshot) if state.spanned else None
                partials = partial(self.stream_part.partials, state, catalog, group_sizes=group_sizes)
                driver_text = self._driver_text(stream, state, group_sizes)
                later = partials_text(stream, state, since_origin=True) if driver_text is not None else None
                outputs.append(
                    Output(
                        state.id,
                        partials,
                        PANE if state.time is not None else None,
                        small,
                        pane_fields(state),
                        state.from_text == STREAM and not state.spanned,
                        state.numbered,
                        state if self.stream_part.has_every_row(state, stream) else None,
                        driver_text,
                        (state.origin, later) if later is not None else None,
                        group_sizes.known if group_sizes is not None else None,
                    )
                )
            else:
                outputs.append(
                    Output(
                        state.id,
                        lambda good, rows=state: self.stream_part.rows(rows, catalog, good),  # type: ignore[misc]
                        None,
                        self.core.place.is_small(size),
                        state.fields,
                        False,
                        driver_text=selected_text(stream, state),
                    )
                )
        return outputs

    def _was_small(self, snapshot: Snapshot, table: str) -> bool:
        """Whether the last files of a table were small, so that the next will be small too."""
        last = list(snapshot.files.get(table, {}).values())[-2:]
        return bool(last) and sum(file.rows for file in last) <= self.core.place.limits.small_rows

    # ---- the commit

    def _commit(
        self,
        stream: Stream,
        incoming: Incoming,
        scanned: Scanned,
        before: ProgressState,
        after: ProgressState,
        kind: str,
        applied: tuple[str, ...],
        outputs: list[Output],
        lost: Losses,
        watch: Stopwatch,
    ) -> Record:
        ledger, files, statistics, bad = self.core.ledger, scanned.files, scanned.statistics, scanned.bad
        snapshot = ledger.snapshot()
        catalog = self.core.catalog(snapshot)
        changed = lost.changes(catalog)
        catalog = catalog.with_objects(changed) if changed else catalog
        number = snapshot.streams[stream.id].runs if stream.id in snapshot.streams else 0
        tables = {table: TableChange(add=added) for table, added in files.items() if added}
        schemas = {o.table: arrow_schema(o.fields) for o in outputs if o.table in tables and _widens(o, snapshot)}
        run = StreamRun(
            run=number,
            rows=statistics.rows,
            late=statistics.late,
            bad=statistics.bad + len(incoming.bad),
            low=statistics.low,
            high=statistics.high,
            progress=after.to_json(),
            position=incoming.position,
            captured=incoming.captured,
            bound=after.bound,
        )
        moves = {stream.id: (before, after)}
        try:
            outcome = emit_changes(
                self.core,
                catalog,
                snapshot,
                moves,
                files,
                tables,
                schemas,
                watch,
                taken={stream.id: statistics.rows},
                ready=scanned.changes,
            )
            reach("after-changes")
            lost.rows |= {id: len(found.indexes) for (id, _), found in outcome.aside.items()}
            lost.stopped |= outcome.stopped
            bad += [row for found in outcome.aside.values() for row in found.rows]
            list_bad_rows(ledger, stream, number, bad, tables, schemas)
            record = ledger.commit(
                Draft(
                    kind,
                    streams={stream.id: run},
                    tables=tables,
                    catalog=self._catalog_updates(self.core.catalog(snapshot), lost),
                    applied=applied,
                    milliseconds=watch.total(),
                    schemas=schemas,
                    staged=tuple(scanned.staged),
                    **bounds_after(self.core, catalog, snapshot, moves, outcome),
                )
            )
        except Exception:
            ledger.give_up({table: change.add for table, change in tables.items()})
            raise
        reach("after-run")
        for id, count in lost.rows.items() if kind == "run" else ():  # other statements report it themselves
            self.core.warn(lacking(catalog.view(id).name, count))
        return record

    def _catalog_updates(self, catalog: Catalog, lost: Losses) -> dict[str, dict[str, Any]]:
        """The definitions of views that lost rows in a commit; warns at once of views that stop."""
        for id, reason in lost.stopped.items():
            self.core.warn(f"view {catalog.view(id).name} is stopped, and cannot be read: {reason}")
        return {each.id: to_json(each) for each in lost.changes(catalog)}

    # ---- progress without rows

    def move(
        self, stream_id: str, change: Callable[[Stream, ProgressState], ProgressState], kind: str
    ) -> Record | None:
        """Advance the progress of a stream by hand, by the clock, or to its end; None if it did not move."""
        core = self.core
        watch = Stopwatch()
        with core.stream_lock(stream_id), core.ledger.commit_lock:
            snapshot = core.ledger.snapshot()
            catalog = core.catalog(snapshot)
            stream = catalog.stream(stream_id)
            before = core.progress(snapshot, stream_id)
            after = change(stream, before)
            silence = (after.seen_at, after.idle_at) == (before.seen_at, before.idle_at)
            same = after.bound == before.bound and silence
            if same and own_bounds(stream.policy, after) == own_bounds(stream.policy, before):
                return None
            state = snapshot.streams.get(stream_id)
            last = state.last if state is not None and state.last is not None else StreamRun(run=-1, rows=0)
            run = replace(
                last, rows=0, late=0, bad=0, low=None, high=None,
                progress=after.to_json(), captured=None, bound=after.bound,
            )  # fmt: skip
            tables: dict[str, TableChange] = {}
            schemas: dict[str, Any] = {}
            moves = {stream_id: (before, after)}
            outcome = emit_changes(core, catalog, snapshot, moves, {}, tables, schemas, watch)
            return core.ledger.commit(
                Draft(
                    kind,
                    streams={stream_id: run},
                    tables=tables,
                    catalog=self._catalog_updates(catalog, Losses(stopped=outcome.stopped)),
                    schemas=schemas,
                    milliseconds=watch.total(),
                    **bounds_after(core, catalog, snapshot, moves, outcome),
                )
            )

    def fire_due(self) -> Record | None:
        """Fire the triggers whose delays are over; None if there are none."""
        core = self.core
        views = [
            view
            for view in core.catalog().of(View)
            if view.emission.triggers is not None
            and (view.emission.triggers.delay is not None or view.progress.clock == "arrival")
        ]
        if not any(core.timers.due(view, core.ledger.snapshot(), core.now()) for view in views):
            return None
        with core.ledger.commit_lock:
            return self._without_rows("delay", frozenset())

    def show_waiting(self, stream_id: str) -> Record | None:
        """Show more windows that budgets of views on a stream hold back; None if nothing waits."""
        core = self.core
        with core.ledger.commit_lock:
            snapshot = core.ledger.snapshot()
            if not anything_waits(core, core.catalog(snapshot), snapshot, stream_id):
                return None
            return self._without_rows("waiting", frozenset(), stream_id)

    def renew(self, table: str) -> Record | None:
        """Update the views that keep their changes and read a refreshed static table."""
        with self.core.ledger.commit_lock:
            catalog = self.core.catalog(self.core.ledger.snapshot())
            stale = frozenset(view.id for view in catalog.of(View) if _grows_stale(catalog, view, table))
            return self._without_rows("refresh", stale) if stale else None

    def _without_rows(self, kind: str, renewed: frozenset[str], only: str | None = None) -> Record:
        """A commit of changes without new rows, of the views on all streams or on one."""
        core, watch = self.core, Stopwatch()
        snapshot = core.ledger.snapshot()
        catalog = core.catalog(snapshot)
        moves = {
            each.id: (core.progress(snapshot, each.id),) * 2 for each in catalog.of(Stream) if only in (None, each.id)
        }
        tables: dict[str, TableChange] = {}
        schemas: dict[str, Any] = {}
        outcome = emit_changes(core, catalog, snapshot, moves, {}, tables, schemas, watch, renewed=renewed)
        return core.ledger.commit(
            Draft(
                kind,
                tables=tables,
                catalog=self._catalog_updates(catalog, Losses(stopped=outcome.stopped)),
                schemas=schemas,
                milliseconds=watch.total(),
                **bounds_after(core, catalog, snapshot, moves, outcome),
            )
        )


def _changes_of(
    commit: Commit, view: View, added: Mapping[str, tuple[DataFile, ...]], made: bool, renewed: bool
) -> tuple[DataFile, ...]:
    """The changes of one view for a commit; they are new rows for the views above it."""
    if view.operator:
        if renewed:
            return nodes.recompute(commit, view)
        return nodes.fill(commit, view) if made else nodes.changes(commit, view)
    core, catalog, held = commit.core, commit.catalog, commit.held
    files, commit.backends[view.id] = emit.changes(
        core, catalog, view, commit.before, commit.moves, added, commit.late, held, made
    )
    if view.id in held:
        commit.hold(view, held[view.id])
    commit.added[view.changes_table] = files
    return files


def _computed(
    commit: Commit,
    view: View,
    added: Mapping[str, tuple[DataFile, ...]],
    made: bool,
    renewed: bool,
    aside: dict[tuple[str, str], Found],
) -> tuple[DataFile, ...]:
    """The changes of a view for a commit, without the rows that it cannot compute, if it works row by row."""
    try:
        return _changes_of(commit, view, added, made, renewed)
    except Exception as error:
        excluded = deltas.set_aside(commit, view, made=made) if is_data_error(error) else None
        if excluded is None:
            raise
        stream, found = excluded
        refuse(stream, [found])
        files = _changes_of(commit, view, added, made, renewed)
        aside[view.id, stream.id] = found
        return files


def _named(catalog: Catalog, view: View, error: Exception, made: bool) -> Exception:
    """The error of a view's changes with the name of the view, which the sender of the rows does not know."""
    found = translate(error)
    if not made and isinstance(found, UnknownFunction):
        return functions.named(catalog, next(iter(catalog.sources_of(view)), ""), found)
    root = catalog.root(view)
    hint = f"nothing of this run was taken in; ALTER VIEW {root.name} or DROP VIEW {root.name} lets its rows in"
    if isinstance(found, DataError):
        problem = named(root, found)
        problem.hint = problem.hint if made else hint
        return problem
    if made or type(found) is not QueryFailed or found.hint is not None:
        return found
    return QueryFailed(f"view {root.name}: {found.message}", hint=hint)


class _Ahead:
    """Computes the changes of independent nodes in parallel, where Spark computes them.

    A job over a few rows is mostly waiting, and the tasks of several fill more cores than those of one.
    """

    def __init__(
        self, core: Core, catalog: Catalog, kept: list[View], computed: Callable[[View], tuple[DataFile, ...]]
    ) -> None:
        self._core, self._catalog, self._computed = core, catalog, computed
        self._left = {view.id: view for view in kept}
        self._started: dict[str, tuple[View, Future[tuple[DataFile, ...]]]] = {}

    def files(self, view: View) -> tuple[DataFile, ...]:
        """The changes of a view, which is among the first of the remaining ones."""
        if view.id not in self._started:
            together = [each for each in self._left.values() if self._is_plain(each) and self._is_free(each)]
            if view in together and len(together) > 1:
                with ThreadPoolExecutor(WRITERS) as pool:  # waits for all of them
                    self._started = {each.id: (each, pool.submit(self._computed, each)) for each in together}
        started = self._started.pop(view.id, None)
        try:
            return self._computed(view) if started is None else started[1].result()
        finally:
            self._left.pop(view.id)

    def _is_plain(self, view: View) -> bool:
        """Whether only Spark computes it: no buckets, trigger, budget or external table."""
        plain = (
            bool(view.operator) and view.emission.mode == "feed" and not view.query.asks and not view.emission.budget
        )
        return self._core.place.together(plain) and not buckets.available(self._core)

    def _is_free(self, view: View) -> bool:
        """Whether a view reads no view that is yet to be computed."""
        below = [self._catalog.view(id) for id in view.query.views.values()]
        return not any(each.id in self._left or not self._is_free(each) for each in below)

    def give_up(self) -> None:
        """Delete results that were not used."""
        for view, started in self._started.values():
            if started.exception() is None:
                self._core.ledger.give_up({view.changes_table: started.result()})


def emit_changes(
    core: Core,
    catalog: Catalog,
    snapshot: Snapshot,
    moves: Moves,
    added: Mapping[str, tuple[DataFile, ...]],
    tables: dict[str, TableChange],
    schemas: dict[str, Any],
    watch: Stopwatch,
    made: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
    renewed: frozenset[str] = frozenset(),
    taken: Mapping[str, int] | None = None,
    ready: Mapping[str, tuple[DataFile, ...]] | None = None,
) -> Outcome:
    """Add the changes of every view whose changes are kept to the tables of a commit.

    `made` are new views: they are filled, and no other view changes. `only` are all that can change. `renewed` are
    compared as a whole, whatever the commit has. `taken` is the number of its rows, by stream; `ready` has changes that
    are already computed, by table. Returns the effect on the bounds of views.
    """
    kept = [view for view in catalog.in_order() if view.kept]
    if made or only is not None:
        kept = [view for view in kept if view.id in (made or only or ())]
    else:  # a view that reads no stream changes with a refreshed table, whatever the streams
        kept = [view for view in kept if not (sources := catalog.sources_of(view)) or sources & set(moves)]
    if not kept:
        return Outcome()
    commit = Commit(core, catalog, snapshot, dict(added), moves, core.now(), taken or {})
    commit.ready = ready or {}
    strict = bool(made) or only is not None or any(catalog.stream(id).fail_on_bad for id in moves)
    stopped: dict[str, str] = {}
    aside: dict[tuple[str, str], Found] = {}
    before = {view.id for view in catalog.of(View) if view.state.stopped}

    def computed(view: View) -> tuple[DataFile, ...]:
        return _computed(commit, view, added, view.id in made, view.id in renewed, aside)

    ahead = _Ahead(core, catalog, kept, computed) if not made and not renewed else None
    for view in kept:
        if (before or stopped) and any(each.id in before | stopped.keys() for each in catalog.all_below(view)):
            continue
        try:
            files = ahead.files(view) if ahead is not None else computed(view)
        except Exception as error:
            found = translate(error)
            if isinstance(found, DataError) and not strict:
                # Incomplete changes would be a wrong answer: the view shows nothing from here on.
                stopped[catalog.root(view).id] = reason_of(found)
                commit.added.pop(view.changes_table, None)
                core.hot.forget(view.id)
                continue
            if ahead is not None:
                ahead.give_up()
            problem = _named(catalog, view, found, view.id in made)
            raise problem from (None if problem is error else error)
        _add_tables(commit, view, files, view.id in made, tables, schemas)
        watch.closes = watch.closes or (bool(files) and clock.closes(commit, view))
        watch.lap("changes", view.name)
    if ahead is not None:
        ahead.give_up()
    if commit.late:
        files = late.write(core, catalog, commit.late, added, snapshot.version + 1, core.now())
        tables[late.LATE_ROWS] = TableChange(add=files)
        if _lacks(snapshot, late.LATE_ROWS, late.LATE_ROW_FIELDS):
            schemas[late.LATE_ROWS] = arrow_schema(late.LATE_ROW_FIELDS)
    changed = {view.id for view in kept if commit.added.get(view.changes_table)}
    backends = {id: where for id, where in commit.backends.items() if id in changed}
    return Outcome(commit.held, commit.passed, stopped, aside, backends)


def _add_tables(
    commit: Commit,
    view: View,
    files: tuple[DataFile, ...],
    made: bool,
    tables: dict[str, TableChange],
    schemas: dict[str, Any],
) -> None:
    """Add what a view has in a commit to its tables: changes, pending keys, and late rows that it drops."""
    known = commit.before.files
    pending = commit.added.get(view.pending_table, ())
    if pending or (view.emission.mode == "triggers" and made):
        tables[view.pending_table] = TableChange(add=pending)
        if view.pending_table not in known:
            schemas[view.pending_table] = arrow_schema(pending_fields(view))
    for input in view.drops_late_of:
        table = view.dropped_table(input)
        if commit.added.get(table):
            tables[table] = TableChange(add=commit.added[table])
            if table not in known:
                schemas[table] = arrow_schema(dropped_fields(commit.catalog, view, input))
    if files or made:
        tables[view.changes_table] = TableChange(add=files)
        panes = commit.catalog.panes(view.query.blocks[0].panes) if view.query.blocks else None
        if view.changes_table not in known:
            _ = commit.core.frames  # Spark's parser reads the types of columns
            schemas[view.changes_table] = arrow_schema(change_fields(view, panes))


def _grows_stale(catalog: Catalog, view: View, table: str) -> bool:
    """Whether shown rows of a view depend on the old version of a static table. Rows of a stream join only once."""
    return view.kept and bool(view.operator) and not view.enriches_at_ingest and _joins_table(catalog, view, table)


def _joins_table(catalog: Catalog, view: View, table: str) -> bool:
    below = [catalog.view(id) for id in view.query.views.values()]
    return table in view.query.tables.values() or any(
        not each.kept and _joins_table(catalog, each, table) for each in below
    )


def _widens(output: Output, snapshot: Snapshot) -> bool:
    return _lacks(snapshot, output.table, output.fields)


def _lacks(snapshot: Snapshot, table: str, fields: tuple[Field, ...]) -> bool:
    """Whether a table does not exist yet or lacks a column."""
    schema = snapshot.schemas.get(table)
    if schema is None:
        return True
    known = {field["name"] for field in schema["fields"]}
    return any(field.name not in known for field in fields)


def list_bad_rows(
    ledger: Ledger,
    stream: Stream,
    run: int | None,
    bad: list[BadRow],
    tables: dict[str, TableChange],
    schemas: dict[str, Any],
) -> None:
    """Add rows that a stream, or one of its views, could not take in to the bad rows of a commit."""
    import pyarrow as pa

    if not bad:
        return
    listed = pa.table(
        {
            "stream": [stream.name] * len(bad),
            "run": [run] * len(bad),
            "source": [row.source for row in bad],
            "offset": [row.offset for row in bad],
            "reason": [row.reason for row in bad],
            "raw": [row.raw for row in bad],
            "column": [row.column for row in bad],
            "view": [row.view for row in bad],
            "expression": [row.expression for row in bad],
        },
        schema=arrow_schema(BAD_ROW_FIELDS),
    )
    known = tables[BAD_ROWS].add if BAD_ROWS in tables else ()
    tables[BAD_ROWS] = TableChange(add=(*known, *write_table(ledger, BAD_ROWS, listed, None)))
    schemas[BAD_ROWS] = listed.schema
