"""CREATE VIEW: a view with its state, in one commit; and keeping the changes of a view from some moment on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch.engine import backfill, queries
from anabranch.engine.drop import drop_draft, replace_or_commit, tidied, without
from anabranch.engine.frames import is_data_error
from anabranch.engine.names import Names
from anabranch.engine.planning import planning_context
from anabranch.engine.run import Runner
from anabranch.engine.set_aside import lacking
from anabranch.errors import NotSupported, WrongType
from anabranch.ledger import Draft, Snapshot
from anabranch.plan.alter import all_begins, beginnings
from anabranch.plan.bind import Binder, refuse
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Table
from anabranch.plan.describe import waiting
from anabranch.plan.explain import unbounded_joins
from anabranch.plan.hints import with_hints
from anabranch.plan.lookup_nodes import needs_lookups
from anabranch.plan.placer import Planned, PlanningContext
from anabranch.plan.planner import plan
from anabranch.plan.states import Panes, Rows, own_signature
from anabranch.plan.view import View
from anabranch.plan.view_checks import check_names, refuse_stars, refuse_start
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateView, Query, SelectStatement


class ViewMaker:
    """Makes the views of one home."""

    def __init__(self, names: Names, runner: Runner) -> None:
        self.core = names.core
        self.names = names
        self.runner = runner

    def create(self, statement: CreateView, *, again_is_fine: bool) -> str:
        name = self.names.free(statement, statement.name, "view", again_is_fine)
        if name is None:
            return f"view {statement.name} already exists"
        with self.core.frames.cached_analysis():
            view = self.make(name, statement)
            snapshot = self.core.snapshot()
            catalog = self.core.catalog(snapshot)
            planning = planning_context(self.names, snapshot, view.beginning.start)
            notes = [*waiting(view, catalog), *unbounded_joins(view, catalog, planning)]
        return "\n".join([f"view {name} created", *notes])

    def make(self, name: str, statement: CreateView | SelectStatement, *, feed: bool = False) -> View:
        """Plan a view, fill its state from past rows, and commit both together.

        With `feed`, its changes are kept even if its text does not say so.
        """
        core, text, query = self.core, statement.text, statement.query
        start = statement.start if isinstance(statement, CreateView) else "beginning"
        if feed or query.emits or needs_lookups(text, with_hints(text, query, core.catalog()), query):
            self.keep_below(text, query)

        def catalog_at(snapshot: Snapshot) -> Catalog:
            catalog = core.catalog(snapshot)
            replaces = isinstance(statement, CreateView) and statement.or_replace
            return without(core, catalog, name) if replaces else catalog

        snapshot = core.snapshot()
        catalog = catalog_at(snapshot)
        bound = Binder(text, catalog, query).bind()
        refuse_stars(text, query, bound, catalog)
        fields = tuple(queries.analyze(core, bound, catalog, text))
        check_names(fields, text, query)
        queries.check_views(core, bound, snapshot)
        if start != "beginning":
            refuse_start(text, query, bound, start)
        streams = {r.target for r in bound.references.values() if r.kind == "stream"}
        for reference in bound.references.values():  # a rule may merge the views' queries, over their streams
            streams |= catalog.sources_of(catalog.view(reference.target)) if reference.kind == "view" else set()
        with core.stream_locks(streams), core.ledger.commit_lock:
            # Read again under the lock: another thread may have added columns to a pane table that this view shares.
            snapshot = core.snapshot()
            catalog = catalog_at(snapshot)

            def planned_in(planning: PlanningContext) -> Planned:
                return plan(
                    id=self.names.new_id(name), name=name, text=text, sql=statement.sql, query=query, start=str(start),
                    fields=fields, catalog=catalog, planning=planning, feed=feed,
                )  # fmt: skip

            planning = planning_context(self.names, snapshot, start)
            view, draft = self._filled(statement, planned_in, planning, catalog, snapshot)
            draft = tidied(core, draft, catalog)
            try:
                if isinstance(statement, CreateView):
                    replace_or_commit(core, statement, draft)
                else:
                    core.ledger.commit(draft)
            except BaseException:
                core.ledger.give_up({table: change.add for table, change in draft.tables.items()}, draft.staged)
                raise
        made = core.catalog().view(view.id)
        if made.state.lacks:
            core.warn(lacking(name, made.state.lacks))
        return view

    def _filled(
        self,
        statement: CreateView | SelectStatement,
        planned_in: Callable[[PlanningContext], Planned],
        planning: PlanningContext,
        catalog: Catalog,
        snapshot: Snapshot,
    ) -> tuple[View, Draft]:
        """A view, and the commit that makes it with state for its past rows, less those that it cannot compute."""
        text, query, part = statement.text, statement.query, self.runner.stream_part
        planned = planned_in(planning)
        _refuse_gone(planned, catalog, planning, text, query)
        try:
            return planned.view, backfill.draft(self.core, part, planned, catalog, snapshot, planning.begins)
        except Exception as error:
            if isinstance(error, WrongType) and error.text is None:
                error.text, error.start, error.end = text, query.head.start, query.head.end
            if not is_data_error(error):
                raise
        # It shares no tables with views that have those rows.
        planned = _with_own_panes(planned_in(replace(planning, own_panes=True)))
        _refuse_gone(planned, catalog, planning, text, query)
        return planned.view, backfill.draft(self.core, part, planned, catalog, snapshot, planning.begins, sieve=True)

    def keep_changes(self, view: View) -> View:
        """Keep the changes of a view from now on; its present answer is its first change."""
        core = self.core
        for below in core.catalog().all_below(view):
            if below.state.stopped:
                raise queries.stopped(below)
        if view.emission.mode != "read":
            return view
        statement = parse(view.sql)[0]
        assert isinstance(statement, CreateView | SelectStatement)
        self.keep_below(statement.text, statement.query)
        with core.stream_locks(core.catalog().sources_of(view)), core.ledger.commit_lock:
            snapshot = core.snapshot()
            catalog = core.catalog(snapshot)
            view = catalog.view(view.id)
            old = drop_draft(core, catalog, view, keep_readers=True)
            begins = all_begins(catalog, view)
            planning = planning_context(self.names, snapshot, view.beginning.start, begins)
            planning = replace(_with_read_versions(planning, catalog, view), own=view.id)
            for each in (_from_present_runs(planning, catalog, view), planning):
                planned = plan(
                    id=view.id, name=view.name, text=statement.text, sql=view.sql, query=statement.query,
                    start=view.beginning.start, fields=view.fields, catalog=catalog, planning=each, feed=True,
                )  # fmt: skip
                if not planned.fill_columns and not planned.fill_rows:
                    break  # it continues with its partials, even if their rows are gone
            read = {id for each in (view, *catalog.nodes_of(view)) for id in each.query.streams.values()}
            _refuse_gone(planned, catalog, planning, statement.text, statement.query, frozenset(read))
            _refuse_other_tables(planned, catalog, view)
            state = replace(planned.view.state, lacks=view.state.lacks)
            rows = catalog.objects.get(view.query.rows or "")
            if isinstance(rows, Rows):  # its rows are its first changes
                state = replace(state, refreshed=rows.refreshed)
            planned = replace(planned, view=replace(planned.view, state=state))
            draft = backfill.draft(core, self.runner.stream_part, planned, catalog, snapshot, planning.begins)
            catalog_changes = {
                **{id: each for id, each in old.catalog.items() if id not in draft.catalog},
                **draft.catalog,
            }
            used = {each.id for each in planned.objects}
            tables = {id: change for id, change in old.tables.items() if id not in used and id not in draft.tables}
            draft = replace(draft, catalog=catalog_changes, tables={**tables, **draft.tables})
            core.ledger.commit(tidied(core, draft, catalog))
        return planned.view

    def keep_below(self, text: str, query: Query) -> None:
        """Keep the changes of the views that a view reads, which its own changes need."""
        catalog = self.core.catalog()
        bound = Binder(text, catalog, query).bind()
        for reference in bound.references.values():
            if reference.kind == "view" and reference.version is None:
                self.keep_changes(catalog.view(reference.target))


def _with_own_panes(planned: Planned) -> Planned:
    """A plan whose pane tables no other view can share."""
    objects = tuple(
        replace(each, signature=own_signature(each.signature, planned.view.id)) if isinstance(each, Panes) else each
        for each in planned.objects
    )
    return replace(planned, objects=objects)


def _from_present_runs(planning: PlanningContext, catalog: Catalog, view: View) -> PlanningContext:
    """The context for a view that continues with its state, from the first runs of that state."""
    known = beginnings(catalog, view)
    return replace(planning, first_run=lambda stream: known.get(stream.id, planning.first_run(stream)))


def _with_read_versions(planning: PlanningContext, catalog: Catalog, view: View) -> PlanningContext:
    """The context for a view that continues with the versions of static tables that it has read."""
    nodes = [view, *catalog.nodes_of(view)]
    states = [
        catalog[id]
        for each in nodes
        for id in (*(use.panes for use in each.query.blocks), *filter(None, [each.query.rows]))
    ]
    versions = {
        id: at
        for each in (*nodes, *states)
        if isinstance(each, Panes | Rows | View)
        for id, at in each.table_versions.items()
    }
    return replace(planning, table_at=lambda id: versions.get(id) or planning.table_at(id))


def _refuse_other_tables(planned: Planned, catalog: Catalog, view: View) -> None:
    """Refuse to refill partials of a view whose rows were joined with a table that has changed since."""
    states = [catalog[use.panes] for each in (view, *catalog.nodes_of(view)) for use in each.query.blocks]
    refreshed = {id for each in states if isinstance(each, Panes) and each.refreshed for id in each.statics.values()}
    filled = [each for each in planned.objects if isinstance(each, Panes) and each.id in planned.fill_columns]
    for table in (catalog[id] for each in filled for id in each.statics.values() if id in refreshed):
        assert isinstance(table, Table)
        raise NotSupported(
            f"the changes of view {view.name} cannot be stored: its rows were joined with table {table.name} as it was"
            " before a REFRESH, and would now be joined with its new rows",
            hint=f"CREATE OR REPLACE VIEW {view.name} AS ... EMIT CHANGES recreates it, over the table as it is now",
        )


def _refuse_gone(
    planned: Planned,
    catalog: Catalog,
    planning: PlanningContext,
    text: str,
    query: Query,
    known: frozenset[str] = frozenset(),
) -> None:
    """Refuse a view that needs past rows which are gone and in no partials either: its answer would be incomplete.
    `known` are streams whose rows it has read so far."""
    needed: dict[str, str] = {}  # stream -> what needs its rows
    for each in (*planned.objects, planned.view):
        if isinstance(each, View):
            needed |= dict.fromkeys(set(each.query.streams.values()) - known, "each row")
        elif isinstance(each, Rows) and each.id in planned.fill_rows:
            needed[each.stream] = "each row"
    for id, columns in planned.fill_columns.items():
        panes = next(each for each in planned.objects if isinstance(each, Panes) and each.id == id)
        if id not in planned.fill_from:
            partials = ", ".join(panes.column(name).partial for name in columns)
            by = ", ".join(key.expression for key in panes.keys)
            needed.setdefault(panes.stream, partials + (f" by {by}" if by else ""))
    for id, what in needed.items():
        stream = catalog.stream(id)
        reason = planning.gone(stream)
        if reason is not None:
            raise refuse(
                text,
                query.span,
                f"{reason}, and no other view has partials of it that hold {what}",
                "start with the rows that come from now on: CREATE VIEW ... AS ... START AT NOW",
            )
