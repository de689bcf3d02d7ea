"""ALTER VIEW: a new query for a view, in one commit, reusing as much of its state as possible.

`plan.alter` compares the plans. This module fills the new plan's own tables, and writes the difference between the old
and the new answer as the view's changes of this commit, which its readers take like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import ProgressState
from anabranch.engine import backfill, numbering, queries, read
from anabranch.engine.core import Core, Stopwatch
from anabranch.engine.create_view import ViewMaker
from anabranch.engine.drop import unneeded
from anabranch.engine.names import Names, same_text
from anabranch.engine.pending_table import pending_fields
from anabranch.engine.planning import planning_context
from anabranch.engine.progress_bounds import Outcome, bounds_after
from anabranch.engine.run import Runner, emit_changes
from anabranch.engine.tables import AT, DIFF, VERSION, change_fields
from anabranch.engine.writing import write_frame
from anabranch.errors import NotSupported, SqlError
from anabranch.ledger import DataFile, Draft, Snapshot, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.alter import Comparison, Lists, all_begins, beginnings, compare, lists, missing
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.describe import pushed_down
from anabranch.plan.explain import plan_again
from anabranch.plan.placer import PlanningContext
from anabranch.plan.planner import plan
from anabranch.plan.states import Panes, Rows
from anabranch.plan.stored import to_json
from anabranch.plan.view import View
from anabranch.plan.view_checks import check_names, emission_of, refuse_stars
from anabranch.sql.parser import parse
from anabranch.sql.syntax import AlterView, CreateView, SelectStatement
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTHING = "nothing changes"
#: Columns of a change about its commit, not its row.
_STAMPS = (DIFF, VERSION, AT)


class Alterer:
    """Changes the queries of views."""

    def __init__(self, names: Names, views: ViewMaker, runner: Runner) -> None:
        self.core = names.core
        self.names = names
        self.views = views
        self.runner = runner

    def alter(self, statement: AlterView) -> str:
        """Change the query of a view; returns the three lists as text. A dry run only returns the lists.

        A `notify` callback gets the lists before anything is done, and then the answer omits them.
        """
        core = self.core
        view: View = self.names.find(statement, statement.name, View)
        if view.state.stopped or view.state.lacks:
            how = "is stopped" if view.state.stopped else "lacks rows"
            raise NotSupported(
                f"view {view.name} {how}: it does not have all rows",
                text=statement.text,
                at=statement.name.span,
                hint="CREATE OR REPLACE VIEW recreates it, from all rows there are",
            )
        sql = _with_query(view, statement)
        if same_text(sql, view.sql):
            return NOTHING
        attempt = self._attempt(statement, view, sql, core.snapshot())
        if statement.dry_run:
            return NOTHING if attempt.compared.same else "\n".join([*attempt.lists.lines(), "dry run: nothing is done"])
        attempt.check(statement)
        notice = None
        if core.notify is not None and not attempt.compared.same:
            notice = attempt.lists.lines()
            core.notify("\n".join([f"view {view.name} is altered", *notice]))
        nodes = (*attempt.compared.kept, *attempt.compared.made, attempt.compared.view)
        if any(each.emission.mode != "read" for each in nodes):
            self.views.keep_below(statement.text, statement.query)
        streams = attempt.merged.sources_of(attempt.compared.view) | core.catalog().sources_of(view)
        with core.stream_locks(streams), core.ledger.commit_lock:
            # Again under the locks: there may be new runs, or new columns of a table that this view shares.
            snapshot = core.snapshot()
            attempt = self._attempt(statement, core.catalog(snapshot).view(view.id), sql, snapshot)
            attempt.check(statement)
            if attempt.compared.same:
                # Another text for the same plan: store the text, so that scripts find it.
                definition = {view.id: to_json(replace(attempt.compared.old, sql=sql))}
                core.ledger.commit(Draft("alter", catalog=definition))
                return NOTHING
            change = _Change(self, attempt, snapshot)
            try:
                core.ledger.commit(change.draft())
            except BaseException:
                change.give_up()
                raise
            finally:
                for each in (view, *attempt.compared.gone):
                    core.hot.forget(each.id)
                    core.timers.forget(each.id)
        lines = attempt.lists.lines()
        return "\n".join([f"view {view.name} altered", *(lines if lines != notice else ())])

    def _attempt(self, statement: AlterView, view: View, sql: str, snapshot: Snapshot) -> _Attempt:
        """The comparison of the new plan with the old one."""
        core = self.core
        catalog = core.catalog(snapshot)
        bound = Binder(statement.text, catalog, statement.query).bind()
        refuse_stars(statement.text, statement.query, bound, catalog)
        for reference in bound.references.values():
            if reference.kind == "view" and view.id in _reads(catalog, reference.target):
                raise SqlError(
                    f"view {view.name} would read itself",
                    text=statement.text,
                    at=statement.query.head,
                )
        fields = tuple(queries.analyze(core, bound, catalog, statement.text))
        check_names(fields, statement.text, statement.query)
        begins = _Begins(core, catalog, view, snapshot)
        planned = plan(
            id=view.id, name=view.name, text=statement.text, sql=sql, query=statement.query, start=view.beginning.start,
            fields=fields, catalog=catalog,
            planning=replace(
                planning_context(self.names, snapshot, view.beginning.start, begins.begins),
                first_run=begins.first_run,
                settles=True,
            ),
            feed=view.emission.mode != "read" and emission_of(statement.query) is None,
        )  # fmt: skip
        compared = compare(catalog, view, planned)
        found = lists(catalog, compared, begins.lacks)
        readers = _refusals(catalog, compared)
        told = replace(found, refused=(*found.refused, *readers))
        return _Attempt(catalog, compared, told, begins, planning_context(self.names, snapshot, "beginning"))


class _Begins:
    """The first run of each stream that a view has, and whether past rows can be read again."""

    def __init__(self, core: Core, catalog: Catalog, view: View, snapshot: Snapshot) -> None:
        self.core = core
        self.view = view
        self.snapshot = snapshot
        self.catalog = catalog
        self.begins = all_begins(catalog, view)
        self.known = {**beginnings(catalog, view), **{stream: run for stream, (run, _) in self.begins.items()}}
        #: The stream of a stateless view that started now: older homes did not store its first run.
        self.unknown = {self._rows().stream} if view.query.rows is not None and view.beginning.start == "now" else set()
        self.unknown -= set(self.begins)

    def _rows(self) -> Rows:
        rows = self.catalog[self.view.query.rows or ""]
        assert isinstance(rows, Rows)
        return rows

    def runs(self, stream: str) -> int:
        state = self.snapshot.streams.get(stream)
        return state.runs if state is not None else 0

    def first_run(self, stream: Stream) -> int:
        if stream.id in self.known:
            return self.known[stream.id]
        if self.view.beginning.start == "beginning":
            return 0
        if self.view.beginning.start == "now":
            return self.runs(stream.id)
        earlier = self.core.ledger.snapshot(int(self.view.beginning.start)).streams.get(stream.id)
        return earlier.runs if earlier is not None else 0

    def lacks(self, stream: Stream) -> str | None:
        """Why the rows cannot be read again; None if they can."""
        runs = self.runs(stream.id)
        if stream.id in self.unknown and runs:
            return f"the view began with START AT NOW, and its first run of stream {stream.name} is not known"
        first = self.first_run(stream)
        if stream.id in self.begins and stream.kept_since is not None and stream.kept_since <= first:
            return None  # by their numbers
        return missing(stream, runs, first)

    def history(self, each: Panes | Rows | Stream) -> DataFrame | None:
        """The past rows for a state table; None for none."""
        stream = self.catalog.stream(each.id if isinstance(each, Stream) else each.stream)
        first = self.first_run(stream)
        if self.runs(stream.id) <= first:
            return None
        if isinstance(each, Stream) or (isinstance(each, Panes) and each.numbered and first == 0):
            return numbering.past_rows(self.core, stream, self.snapshot)
        source = self.core.past_source(stream)
        if source is None and stream.id in self.begins:
            return backfill.rows_since(self.core, stream, self.snapshot, self.begins[stream.id])
        if source is None or first == 0:
            return read.stream_frame(self.core, stream, self.snapshot)
        return read.source_frame(self.core, stream, source, self.snapshot, first)


@dataclass(frozen=True)
class _Attempt:
    """A comparison with its lists, and its catalog."""

    catalog: Catalog
    compared: Comparison
    lists: Lists
    begins: _Begins
    planning: PlanningContext  # for a view that begins with the first row

    @cached_property
    def merged(self) -> Catalog:
        """The catalog with the new plan, and without objects that are no longer needed."""
        without = self.catalog.after({node.id: None for node in self.compared.gone})
        merged = without.with_objects((*self.compared.planned.objects, self.compared.view))
        for reader in self.catalog.of(View):
            if pushed_down(reader) and self.compared.old.id in reader.query.included:
                # It reads the view's old partials, and needs no other past rows.
                again = plan_again(reader, merged, self.planning)
                merged = merged.with_objects((*again.objects, again.view))
        return merged.after(unneeded(merged, list(merged.of(View))))

    def check(self, statement: AlterView) -> None:
        if self.lists.refused:
            raise NotSupported(
                f"view {self.compared.old.name} cannot be altered: {self.lists.refused[0]}",
                text=statement.text,
                at=statement.name.span,
                hint="\n  ".join(self.lists.lines()),
            )


class _Change:
    """The commit of one ALTER VIEW."""

    def __init__(self, alterer: Alterer, attempt: _Attempt, snapshot: Snapshot) -> None:
        self.core = alterer.core
        self.stream_part = alterer.runner.stream_part
        self.attempt = attempt
        self.old = attempt.compared.old
        # It starts again: past idle streams its progress is what the others have now.
        self.snapshot = replace(
            snapshot, passed={id: bound for id, bound in snapshot.passed.items() if id != self.old.id}
        )
        self.passed = self.old.id in snapshot.passed
        self.catalog = self._named(attempt.merged)
        self.view = self.catalog.view(self.old.id)
        self.files: dict[str, tuple[DataFile, ...]] = {}
        self.tables: dict[str, TableChange] = {}
        self.schemas: dict[str, Any] = {}
        self.staged: list[Path] = []
        self.watch = Stopwatch()
        self.outcome = Outcome()

    def _named(self, merged: Catalog) -> Catalog:
        """The catalog with new names for those of the view's own tables whose columns changed."""
        view = merged.view(self.old.id)
        fits = self.attempt.compared.same_columns and _form(merged, view) == _form(self.attempt.catalog, self.old)
        fits = fits and (pending_fields(view) == pending_fields(self.old) or self.old.emission.triggers is None)
        remade = self.old.state.generation if fits or not self.old.kept else self.old.state.generation + 1
        corrected = self.old.kept and self.attempt.compared.same_columns
        named = replace(
            view,
            state=replace(view.state, generation=remade, corrected=corrected),
            progress=replace(view.progress, time=self._time(view)),
        )
        return merged.with_objects([named])

    def _time(self, view: View) -> str:
        """The time column of the changes: unchanged, since files and their readers use it."""
        before = self.old.time if self.attempt.compared.same_columns else ""
        return view.time if before in ("", view.time) else before if view.operator else ""

    def draft(self) -> Draft:
        core, compared = self.core, self.attempt.compared
        try:
            objects = [self.catalog.objects.get(each.id) for each in compared.planned.objects]
            needed = tuple(each for each in objects if isinstance(each, Panes | Rows | Stream | View))
            planned = replace(compared.planned, view=self.view, objects=needed)
            history = self.attempt.begins.history
            backfill.fill(core, self.stream_part, planned, self.catalog, history, self.files, self.schemas, self.staged)
            self.tables = {table: TableChange(add=added) for table, added in self.files.items()}
            reach("after-backfill")
            self._fill_nodes()
            if self.old.kept:
                self._follow_on()
            self._drop()
        except BaseException:
            self.give_up()
            raise
        bounds = bounds_after(core, self.catalog, self.snapshot, self._moves(), self.outcome)
        if self.passed:
            bounds["passed"].setdefault(self.old.id, None)
        return Draft(
            "alter",
            tables=self.tables,
            catalog=self._definitions(),
            schemas=self.schemas,
            staged=tuple(self.staged),
            milliseconds=self.watch.total(),
            **bounds,
        )

    def give_up(self) -> None:
        added = {table: change.add for table, change in self.tables.items()}
        self.core.ledger.give_up({**self.files, **added}, self.staged)

    def _fill_nodes(self) -> None:
        """Write the first changes of the new nodes and of the view, as if it had shown nothing so far."""
        made = frozenset(each.id for each in (*self.attempt.compared.made, self.view))
        own = {*self.view.own_tables, *self.old.own_tables}
        blank = replace(
            self.snapshot, files={table: files for table, files in self.snapshot.files.items() if table not in own}
        )
        moves = self._moves()
        self.outcome.add(emit_changes(
            self.core, self.catalog, blank, moves, self.files, self.tables, self.schemas, self.watch, made
        ))  # fmt: skip

    def _moves(self) -> dict[str, tuple[ProgressState, ProgressState]]:
        return {id: (ProgressState(), self._progress(id)) for id in self.catalog.sources_of(self.view)}

    def _progress(self, stream: str) -> ProgressState:
        return self.core.progress(self.snapshot, stream)

    # ---- the old answer

    def _follow_on(self) -> None:
        """Write the new answer as changes of the old one."""
        name = self.view.changes_table
        if self.attempt.compared.same_columns:
            fresh = self.tables[name].add if name in self.tables else ()
            before = self._carried_over()
            correction = self._correction(fresh, before)
            self.tables[name] = TableChange(add=(*before, *correction))
            self.core.ledger.give_up({name: fresh})
            self._correct_readers(before, correction)
        old_pending = self.snapshot.files.get(self.view.pending_table)
        if old_pending is not None and self.view.pending_table in self.tables:
            added = self.tables[self.view.pending_table].add
            self.tables[self.view.pending_table] = TableChange(add=added, remove=tuple(old_pending))

    def _carried_over(self) -> tuple[DataFile, ...]:
        """What was shown, in the columns of a restarted table; empty where the table continues."""
        if self.view.state.generation == self.old.state.generation:
            return ()
        form = _form(self.catalog, self.view)
        shown = read.changes_frame(self.core, self.attempt.catalog, self.old, self.snapshot)
        columns = ", ".join(quote_name(each.name) for each in self.view.fields)
        stamp = f"CAST({self.snapshot.version} AS BIGINT)"
        text = (
            f"SELECT {columns}, CAST(sum(_diff) AS BIGINT) AS _diff, {stamp} AS _version FROM `@shown`"
            f" GROUP BY {columns} HAVING sum(_diff) <> 0"
        )
        if self.view.emission.as_changes and AT.name in shown.columns:  # its answer is the changes themselves
            text = f"SELECT {columns}, _diff, _version, _at FROM `@shown`"
        net = self.core.frames.sql(text, {"@shown": shown})
        return self._write(net.selectExpr(*_items(form, net.columns)), self._rows_shown())

    def _correction(self, fresh: tuple[DataFile, ...], before: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        """The new answer minus what was shown."""
        form = _form(self.catalog, self.view)
        snapshot = self._with_own(self.snapshot, before)
        shown = self.core.table_frame(self.view.changes_table, form, snapshot)
        folder = self.core.ledger.table_folder(self.view.changes_table)
        new = self.core.frames.parquet([str(folder / file.path) for file in fresh], form)
        columns = ", ".join(quote_name(each.name) for each in form if each not in _STAMPS)
        text = (
            f"SELECT {columns}, CAST(sum(_diff) AS BIGINT) AS _diff,"
            f" CAST({self.snapshot.version + 1} AS BIGINT) AS _version, timestamp_micros({self.core.now()}) AS _at FROM"
            f" (SELECT {columns}, _diff FROM `@new` UNION ALL SELECT {columns}, -_diff FROM `@shown`)"
            f" GROUP BY {columns} HAVING sum(_diff) <> 0"
        )
        changed = self.core.frames.sql(text, {"@new": new, "@shown": shown})
        rows = sum(file.rows for file in fresh) + self._rows_shown()
        return self._write(changed.selectExpr(*_items(form, changed.columns)), rows)

    def _rows_shown(self) -> int:
        return sum(file.rows for file in self.snapshot.files.get(self.old.changes_table, {}).values())

    def _write(self, frame: DataFrame, rows: int) -> tuple[DataFile, ...]:
        small = rows <= self.core.place.limits.small_rows
        table = self.view.changes_table
        return write_frame(self.core.ledger, table, frame, small=small, time=self._range_column(), staged=self.staged)

    def _range_column(self) -> str | None:
        """The column whose range the files record; none for a node that does not show its window."""
        return self.view.time or None if self.view.operator else None

    def _with_own(self, snapshot: Snapshot, before: tuple[DataFile, ...]) -> Snapshot:
        """A snapshot in which the view's changes are those before this commit."""
        if self.view.state.generation == self.old.state.generation:
            return snapshot
        own: Mapping[str, DataFile] = {file.path: file for file in before}
        return replace(snapshot, files={**snapshot.files, self.view.changes_table: dict(own)})

    def _correct_readers(self, before: tuple[DataFile, ...], correction: tuple[DataFile, ...]) -> None:
        """Write the changes of the views above, from those of this one."""
        above = frozenset(each.id for each in self.catalog.of(View) if self.view.id in _reads(self.catalog, each.id))
        above -= {self.view.id}
        if not correction or not above:
            return
        streams = {id for each in above for id in self.catalog.sources_of(self.catalog.view(each))}
        moves = {id: (self._progress(id),) * 2 for id in streams}
        self.outcome.add(emit_changes(
            self.core, self.catalog, self._with_own(self.snapshot, before), moves,
            {self.view.changes_table: correction}, self.tables, self.schemas, self.watch, only=above,
        ))  # fmt: skip

    # ---- dropped objects

    def _drop(self) -> None:
        gone = [table for node in self.attempt.compared.gone for table in node.own_tables]
        gone += [id for id in self.attempt.catalog.objects if id not in self.catalog.objects]
        gone += [
            table for table in self.old.own_tables if table not in (self.view.changes_table, self.view.pending_table)
        ]
        if self.view.emission.triggers is None:
            gone.append(self.old.pending_table)
        for table in gone:
            if table in self.snapshot.files:
                self.tables[table] = TableChange(drop=True)

    def _definitions(self) -> dict[str, Any]:
        """The definitions that are changed or dropped."""
        before = self.attempt.catalog.objects
        changed: dict[str, Any] = {id: None for id in before if id not in self.catalog.objects}
        changed |= {id: to_json(each) for id, each in self.catalog.objects.items() if before.get(id) != each}
        return changed


def _form(catalog: Catalog, view: View) -> tuple[Field, ...]:
    """The columns of a view's changes."""
    return change_fields(view, catalog.panes(view.query.blocks[0].panes) if view.query.blocks else None)


def _items(form: tuple[Field, ...], there: list[str]) -> list[str]:
    """The columns of a form as SELECT items; NULL for missing ones."""
    return [
        f"CAST({quote_name(each.name) if each.name in there else 'NULL'} AS {each.type}) AS {quote_name(each.name)}"
        for each in form
    ]


def _reads(catalog: Catalog, id: str) -> set[str]:
    """The ids of a view and of all views below it."""
    found = {id}
    for below in catalog.view(id).query.views.values():
        found |= _reads(catalog, below)
    return found


def _with_query(view: View, statement: AlterView) -> str:
    """The CREATE statement of the view with its new query."""
    made = parse(view.sql)[0]
    assert isinstance(made, CreateView | SelectStatement)
    query = statement.query.span.of(statement.text)
    return f"{made.text[: made.query.span.start]}{query}{made.text[made.query.span.end :]}"


def _refusals(catalog: Catalog, compared: Comparison) -> list[str]:
    """Why readers of the view cannot continue."""
    readers = catalog.readers_of(compared.old.id)
    if not readers:
        return []
    names = ", ".join(reader.name for reader in readers)
    above = [each for each in readers if isinstance(each, View) and not pushed_down(each)]
    counting = [each.name for each in above if compared.old.id in each.query.included]
    if counting and not compared.same:
        return [f"the rows of {compared.old.name}: {', '.join(counting)} counts them one by one, in order of arrival"]
    if not compared.same_columns:
        return [f"the columns of {compared.old.name}: it is read by {names}, and they would be {_shown(compared.view)}"]
    waiting = [
        reader.name
        for reader in readers
        if isinstance(reader, View)
        and any(each.emission.triggers is not None for each in (reader, *catalog.nodes_of(reader)))
    ]
    if waiting and compared.old.progress.times != compared.view.progress.times:
        return [f"the windows of {compared.old.name}: {', '.join(waiting)} waits for them to close"]
    return []


def _shown(view: View) -> str:
    return ", ".join(f"{each.name} {each.type.upper()}" for each in view.shown_fields)
