"""Plans a continuous query as a view: a tree of nodes, and their state tables.

A query becomes a relation, rules rewrite it so that as much as possible has keys, and it is cut into nodes: if the
changes of the view are kept, each subquery that reads more than one row is a node. A view that is computed when it is
read remains one query, whose blocks that aggregate a stream live on partials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from anabranch.algebra.triggers import Triggers
from anabranch.errors import SqlError
from anabranch.ir.build import Builder
from anabranch.ir.expr import Column, Expr, Part, Subquery, of_column
from anabranch.ir.fold import fold
from anabranch.ir.rel import Emit, Project, Rel, Scan, Source, TableFunction, TopN, Values, Windowed, is_live
from anabranch.ir.select import FromItem, SelectBlock, SetBlock, ShownItem
from anabranch.plan import relation_builder, view_checks
from anabranch.plan.bind import Binder, made_first, refuse
from anabranch.plan.block_inputs import closing_column
from anabranch.plan.catalog import Catalog
from anabranch.plan.join_state import bounded
from anabranch.plan.lookup_nodes import needs_lookups, place_lookups
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.node import NodeMaker
from anabranch.plan.panes import STREAM, direct_outputs
from anabranch.plan.placer import Placer, Planned, PlanningContext
from anabranch.plan.rules import normalize
from anabranch.plan.rules.order import READ_RULES, rules_for
from anabranch.plan.states import Rows
from anabranch.plan.view import Beginning, Ends, NodeEmission, NodeKeys, NodeQuery, Output, View
from anabranch.render.blocks import blocks, distinct_names, reads
from anabranch.render.placeholders import PlaceholderWriter, select_sql
from anabranch.sql.columns import check_window
from anabranch.sql.syntax import Emission, Query
from anabranch.sql.text import quote_name
from anabranch.types import Field

_NUMBERS = ("_row_num", "_arrival_ts")


class _Untyped(Exception):
    """A query that Spark accepts has no typed form; the error says why."""

    def __init__(self, error: SqlError) -> None:
        super().__init__(error.message)
        self.error = error


def plan(
    *, id: str, name: str, text: str, sql: str, query: Query, start: str, fields: tuple[Field, ...],
    catalog: Catalog, planning: PlanningContext, feed: bool = False,
) -> Planned:  # fmt: skip
    """Plan a continuous query. With `feed`, its changes are kept even if its text does not say so."""
    catalog = view_checks.check(text, query, catalog, feed)
    feed = feed or needs_lookups(text, catalog, query)
    try:
        rel, builder, included, reasons = _normalized(text, query, catalog, planning, feed)
        planner = Planner(
            id=id, name=name, text=text, query=query, start=start, catalog=catalog, planning=planning, rel=rel,
            builder=builder,
        )  # fmt: skip
        planned = planner.plan(rel, sql, fields, feed)
    except _Untyped as untyped:
        view = _as_written(untyped.error, id, name, text, sql, query, start, fields, catalog, planning, feed)
        planned = view_checks.planned([], view, catalog, planning, Placer(catalog, planning))
        return view_checks.begun(planned, catalog, planning)
    if reasons:
        planned = replace(planned, reasons=reasons)
    if included:
        made = planned.view.query
        made = replace(made, included=(*included, *made.included))
        planned = replace(planned, view=replace(planned.view, query=made))
    return view_checks.begun(planned, catalog, planning)


def _normalized(
    text: str, query: Query, catalog: Catalog, planning: PlanningContext, feed: bool
) -> tuple[Rel, Builder, tuple[str, ...], tuple[str, ...]]:
    """A query as a relation after all rules, the ids of the views whose queries were merged into it, and why rows are
    kept for it."""
    _refuse_others(text, query, catalog)
    builder = relation_builder.builder(text, query, catalog, planning.analyze)
    try:
        rel = builder.query(query, None, {})
    except SqlError as error:
        raise _Untyped(error) from error
    context = relation_builder.context(builder, catalog, planning.analyze)
    made = normalize(rel, rules_for(query, feed or query.emits), context)
    for each in made.walk():
        if isinstance(each, Windowed) and each.written is not None and each.written.text is text:
            check_window(text, each.window, {column.name: column.type for column in each.input.columns})
    left = relation_builder.views(made)
    included = tuple(each for each in dict.fromkeys(relation_builder.views(rel)) if each not in left)
    return made, builder, included, tuple(context.reasons)


def _as_written(
    error: SqlError, id: str, name: str, text: str, sql: str, query: Query, start: str, fields: tuple[Field, ...],
    catalog: Catalog, planning: PlanningContext, feed: bool,
) -> View:  # fmt: skip
    """The view of a query that Spark accepts and that has no typed form: it is recomputed as a whole, as written."""
    emission = view_checks.emission_of(query)
    waits = (emission is not None and emission.mode != "feed") or any(each.emits for each in query.nested())
    if waits or query.needs_plan or needs_lookups(text, catalog, query):
        raise error
    bound = Binder(text, catalog, query).bind()
    streams, tables, views = (
        {each.placeholder: each.target for each in bound.references.values() if each.kind == kind}
        for kind in ("stream", "table", "view")
    )
    emit = "feed" if feed or emission is not None else "read"
    view_checks.refuse_own_names(text, query, fields, emit)
    versions = {table: planning.table_at(table) for table in tables.values()}
    return View(
        id, name, sql, None, fields, "whole" if emit == "feed" else "",
        NodeQuery(bound.text.text, streams=streams, tables=tables, views=views, ordered=query.order is not None),
        NodeKeys(reason=error.message), emission=NodeEmission(emit),
        beginning=Beginning(start, table_versions=versions),
    )  # fmt: skip


def _refuse_others(text: str, query: Query, catalog: Catalog) -> None:
    """Refuse relations that are not the present version of a stream, view or table."""
    binder = Binder(text, catalog, query)
    for relation in query.relations():
        reference = binder.resolve(relation)
        if reference is not None and not reference.plain:
            raise refuse(
                text,
                relation.span,
                "a view reads streams, views and tables",
                made_first(relation),
            )


class Planner:
    """Builds the nodes of one view, from the innermost query out."""

    def __init__(
        self, *, id: str, name: str, text: str, query: Query, start: str, catalog: Catalog, planning: PlanningContext,
        rel: Rel, builder: Builder,
    ) -> None:  # fmt: skip
        self.id = id
        self.name = name
        self.text = text
        self.query = query
        self.start = start
        self.catalog = catalog
        self.planning = planning
        self.new = builder.new
        self.types = builder.types
        self.context = relation_builder.context(builder, catalog, planning.analyze)
        self.reads = Counter(reads(rel))
        self.placer = Placer(catalog, planning)
        self.nodes: list[View] = []
        self.typed: dict[str, SelectBlock] = {}
        self.by_key = False  # whether the node in the making shows its answers key by key
        self.waits = False  # whether the node in the making waits for windows
        self.splits = False  # whether pairs of joins may be aggregated in nodes of their own
        self._shared: dict[int, View] = {}
        self._placeholders = count()
        scans = [each for each in rel.walk() if isinstance(each, Scan)]
        self.event_times = catalog.event_times(scan.source.target for scan in scans)
        self._numbered = set(_numbered_scans(rel))

    # ---- lookups while nodes are made

    def object(self, id: str) -> object:
        """A planned node, or the object with this id in the catalog."""
        return next((node for node in self.nodes if node.id == id), None) or self.catalog.objects.get(id)

    def numbered(self, scan: Scan) -> bool:
        """Whether the query needs the row numbers of a stream."""
        return any(column in self._numbered for column in scan.columns)

    def next_placeholder(self) -> int:
        return next(self._placeholders)

    def is_shared(self, view: View) -> bool:
        return any(view.id == each.id for each in self._shared.values())

    def refuse(self, rel: Rel, message: str, hint: str) -> SqlError:
        span = rel.written.whole if rel.written is not None else self.query.span
        return refuse(self.text, span, message, hint)

    # ---- the whole view

    def plan(self, rel: Rel, sql: str, fields: tuple[Field, ...], feed: bool) -> Planned:
        emission = view_checks.emission_of(self.query)
        inner = any(each.emits for each in self.query.nested())
        if not inner and not feed and (emission is None or (emission.mode == "close" and not emission.stream)):
            planned = self._at_read(rel, sql, fields)
            view = planned.view
            if emission is None:
                return planned
            if (
                view.query.direct
                and view.query.blocks[0].windows is not None
                and view_checks.on_event_time(planned, self.catalog)
            ):
                return replace(planned, view=view_checks.closing_by_panes(view, emission))
            self.placer = Placer(self.catalog, self.planning)
            self._placeholders = count()
        emit = "feed" if feed or emission is not None else "read"
        plain = emission is None or (emission.mode == "feed" and not emission.by_key)
        self.splits = emit == "feed" and not inner and plain
        view = self.node(rel, emit)
        names = {each.name for each in fields}
        if len(names) != len(fields):
            what = "two columns of it have the same name"
            raise refuse(self.text, self.query.span, what, "give one of them another name")
        view_checks.refuse_own_names(self.text, self.query, fields, emit)
        root = replace(view_checks.renamed(view, fields), id=self.id, name=self.name, sql=sql, owner=None)
        return view_checks.planned(self.nodes, root, self.catalog, self.planning, self.placer)

    def _at_read(self, rel: Rel, sql: str, fields: tuple[Field, ...]) -> Planned:
        """The plan of a view that is computed when read or shows windows as they close: one query over state tables."""
        emit = "close" if self.query.emission is not None else "read"
        self.placer = Placer(self.catalog, self.planning, self.planning.settles or emit != "read")
        block = fold(rel)
        if isinstance(block, SelectBlock) and self._is_stateless(block):
            rows = self._rows_table(block, fields)
            view = View(
                self.id, self.name, sql, None, fields, "", NodeQuery("", rows=rows.id), emission=NodeEmission(emit),
                beginning=Beginning(self.start),
            )  # fmt: skip
            return Planned(view, (rows,), {}, (rows.id,), ())
        maker = NodeMaker(self, closed=emit == "close", joins_above=emit == "read")
        names = [each.name for each in fields]
        made = maker.whole(rel, "read", "", names)
        direct: tuple[Output, ...] = ()
        if len(maker.partials) == 1 and isinstance(block, SelectBlock) and maker.partials[0][0] is maker.root:
            found, panes, placed = maker.partials[0]
            direct = direct_outputs(found, panes, placed.columns, placed.use.columns, fields)
        view = replace(
            made,
            id=self.id,
            name=self.name,
            sql=sql,
            fields=fields,
            emission=replace(made.emission, mode=emit),
            query=replace(
                made.query,
                direct=direct,
                ordered=self.query.order is not None,
                included=tuple(dict.fromkeys(maker.included)),
            ),
        )
        made_planned = view_checks.planned([], view, self.catalog, self.planning, self.placer)
        return replace(made_planned, reasons=tuple(maker.reasons), gathers=tuple(maker.gathers))

    def _is_stateless(self, block: SelectBlock) -> bool:
        """Whether it works on one row of a stream at a time."""
        if block.aggregated or block.over or block.distinct or block.generates or block.has_subqueries:
            return False
        if block.order or block.limited or block.qualify is not None or block.having is not None:
            return False
        streams = 0
        for index, item in enumerate(block.sources):
            rel = item.rel
            if isinstance(rel, Windowed):
                if not rel.window.by_row or rel.window.needs_numbers or not isinstance(rel.input, Scan):
                    return False
                rel = rel.input
            if not isinstance(rel, Scan) or (rel.source.kind == "table" and item.windowed is not None):
                return False
            streams += rel.source.kind == "stream"
            first = isinstance(block.sources[0].rel, Scan | Windowed) and not block.sources[0].static
            if rel.source.kind not in ("stream", "table") or not (
                item.inner or (index and first and item.kind in _LEFTS)
            ):
                return False
        return streams == 1 and not any(map(self.numbered, _scans(block)))

    def _rows_table(self, block: SelectBlock, fields: tuple[Field, ...]) -> Rows:
        statics: dict[str, str] = {}
        (stream,) = (scan for scan in _scans(block) if scan.source.kind == "stream")

        def leaf(scan: Scan) -> str:
            if scan.source.kind == "stream":
                return STREAM
            statics[f"@t:{scan.source.target}"] = scan.source.target
            return quote_name(f"@t:{scan.source.target}")

        named = replace(block, items=tuple(replace(i, name=f.name) for i, f in zip(block.items, fields, strict=True)))
        text = select_sql(named, PlaceholderWriter(leaf, text=self.text)).text
        at = {table: self.planning.table_at(table) for table in statics.values()}
        name = self.catalog.stream(stream.source.target).name
        return Rows(self.planning.new_id(f"{name}_rows"), stream.source.target, text, statics, fields, at)

    # ---- one query

    def node(self, rel: Rel, emit: str, *, inside: bool = False) -> View:
        """The node of a query; builds the nodes below it first."""
        block = fold(rel)
        emission = block.emission if block.emission is not None and block.emission.mode != "read" else None
        outside, self.by_key = self.by_key, self.by_key or (emission is not None and emission.by_key)
        idle, self.waits = self.waits, self.waits or (emission is not None and emission.watermark)
        maker = NodeMaker(self, closed=emission is not None and emission.mode == "close")
        cut = emit != "read"
        if isinstance(block, SetBlock) and cut and block.limit is None and block.offset is None:
            view = maker.set_operation(block, emit)
            maker.block = SelectBlock((), ())
        elif isinstance(block, SetBlock) and not cut:
            names = [column.name for column in rel.columns]
            view = maker.whole(self._with_emitting(rel), emit, "it is computed from several queries", names)
        else:
            if isinstance(block, SetBlock):
                block = _limited(block, rel)
            if inside:
                names = distinct_names(rel.columns)
                block = replace(
                    block, items=tuple(replace(item, name=name) for item, name in zip(block.items, names, strict=True))
                )
            # A trigger on every record shows the state after the run: records need not be distinguished.
            counted = emission is not None and (emission.counting or 1) > 1
            view = maker.select(self.with_nodes(block, cut=cut), emit, counted=counted)
        self.by_key, self.waits = outside, idle
        self._last = maker.block
        if emission is not None:
            view = self._with_emission(view, emission, rel, maker.block)
        return view

    def below(self, rel: Rel, *, stays: bool = False) -> View:
        view = self.node(rel, "feed", inside=True)
        view = replace(view, state=replace(view.state, enriched=stays and view.operator == "stateless"))
        return self.add(view, self._last, blocks(rel, self.text).text)

    def add(self, view: View, block: SelectBlock, sql: str) -> View:
        """Add a node to those of the view."""
        number = len(self.nodes) + 1
        view = replace(
            view, id=self.planning.new_id(f"{self.id}_{number}"), name=f"{self.name}/{number}", owner="?",
            sql=sql,
        )  # fmt: skip
        self.typed[view.id] = block
        self.nodes.append(view)
        return view

    def with_nodes(self, block: SelectBlock, *, cut: bool = True, names_only: bool = False) -> SelectBlock:
        """A SELECT whose changing relations are scans: of streams and views, or of nodes that replace subqueries."""
        sources: list[FromItem] = []
        renamed: dict[Column, Column] = {}  # columns that the node renames
        for item in block.sources:
            made = self._with_node(item, cut, names_only)
            if made.rel is not item.rel and isinstance(made.rel, Project) and isinstance(made.rel.input, Scan):
                renamed |= {column: expr.column for column, expr in made.rel.items if expr.column is not None}
                made = replace(made, rel=replace(made.rel.input, label=made.rel.label))
            sources.append(made)
        block = replace(block, sources=tuple(sources)).map(self._with_shared_queries)
        block = block.map(lambda expr: expr.substitute(renamed)) if renamed else block
        return block if names_only else place_lookups(self, block)

    def _with_node(self, item: FromItem, cut: bool, names_only: bool) -> FromItem:
        rel = item.rel
        if isinstance(rel, Windowed) and not isinstance(rel.input, Scan):
            inner = self._with_node(FromItem(rel.input, None, static=item.static), cut, names_only).rel
            return replace(item, rel=replace(rel, input=inner))
        if isinstance(rel, Scan | Values | TableFunction | Windowed) or not is_live(rel):
            return item
        if not cut and not any(isinstance(each, Emit) and each.emission.mode != "read" for each in rel.walk()):
            return item
        if item.lateral:  # it depends on the current row of the other relations
            return replace(item, rel=self._with_shared(rel))
        shared = self._shared_below(rel)
        if shared is not None:
            return replace(item, rel=self._scan_of_shared(rel, shared))
        if names_only:
            return item
        if isinstance(rel, Project) and isinstance(rel.input, Emit) and all(expr.column for _, expr in rel.items):
            return replace(item, rel=self._renamed_scan(self.below(rel.input), rel, rel.input))
        by_key = self.by_key
        self.by_key = by_key and not _stands_apart(item.label)
        node = self.below(rel, stays=item.label == "__met")
        self.by_key = by_key
        return replace(item, rel=self.scan_of(node, rel.columns, rel.label))

    def scan_of(self, node: View, columns: tuple[Column, ...], label: str | None) -> Rel:
        """A scan of a node that replaces a query with these columns."""
        own = [
            column if column.name == field.name and column.type == field.type else self.new(field.name, field.type)
            for column, field in zip(columns, node.fields, strict=True)
        ]
        scan = Scan(Source("view", node.id, label or node.name), tuple(own), label=label)
        if tuple(own) == columns:
            return scan
        pairs = zip(columns, own, strict=True)
        return Project(scan, tuple((column, of_column(known)) for column, known in pairs), label=label)

    def query_of(self, scan: Scan, view: View) -> SelectBlock:
        """The query of a view that shows the values of its partials, over the streams that it reads."""
        shows_all = view.emission == NodeEmission() and not view.state.lacks and not view.state.stopped
        rel = self.context.expand(scan) if shows_all and self.start == "beginning" else None
        if rel is None:
            raise NotApplicable("what it shows is not what its partials are now")
        assert isinstance(rel, Project)
        block = fold(normalize(rel.input, READ_RULES, self.context))
        if not isinstance(block, SelectBlock):
            raise NotApplicable("the view is a set operation")
        return block

    # ---- queries that are read more than once

    def _shared_below(self, rel: Rel) -> Rel | None:
        """The query that a relation reads under renamed columns, if other relations read it too."""
        if isinstance(rel, Project) and all(expr.column for _, expr in rel.items) and self.reads[id(rel.input)] > 1:
            return None if isinstance(rel.input, Scan | Values | TableFunction | Windowed) else rel.input
        return None

    def _scan_of_shared(self, rel: Rel, shared: Rel) -> Rel:
        node = self._shared.get(id(shared))
        if node is None:
            by_key, self.by_key = self.by_key, False
            node = self._shared[id(shared)] = self.below(shared)
            self.by_key = by_key
        node = next(each for each in self.nodes if each.id == node.id)
        assert isinstance(rel, Project)
        return self._renamed_scan(node, rel, shared)

    def _renamed_scan(self, node: View, rel: Project, shared: Rel) -> Rel:
        """A scan of a node that replaces a query under renamed columns."""
        at = {column: index for index, column in enumerate(shared.columns)}
        places = [at[expr.column] for _, expr in rel.items if expr.column is not None]
        columns = rel.columns
        if places == list(range(len(node.fields))):
            return self.scan_of(node, columns, rel.label)
        own = tuple(self.new(field.name, field.type) for field in node.fields)
        scan = Scan(Source("view", node.id, rel.label or node.name), own, label=rel.label)
        pairs = zip(columns, places, strict=True)
        return Project(scan, tuple((column, of_column(own[place])) for column, place in pairs), label=rel.label)

    def _with_emitting(self, rel: Rel) -> Rel:
        """A query over nodes that replace the subqueries with an emission clause of their own."""

        def change(inner: Rel) -> Rel:
            if not isinstance(inner, Emit) or inner.emission.mode == "read":
                return inner.rebuilt(change)
            node = self._shared.get(id(inner))
            if node is None:
                node = self._shared[id(inner)] = self.below(inner)
            return self.scan_of(node, inner.columns, inner.label)

        return rel.rebuilt(change)

    def _with_shared(self, rel: Rel) -> Rel:
        """A query that stays nested, over nodes that replace its shared subqueries."""
        shared = self._shared_below(rel)
        if shared is not None and is_live(shared):
            return self._scan_of_shared(rel, shared)
        return rel.rebuilt(self._with_shared)

    def _with_shared_queries(self, expr: Expr) -> Expr:
        if not any(True for _ in expr.subqueries()):
            return expr

        def change(part: Part) -> Part:
            if not isinstance(part, Subquery):
                return part if isinstance(part, str | Column) else part.map(self._with_shared_queries)
            return replace(part, rel=self._with_shared(part.rel))

        return expr.map(change)

    # ---- emission

    def _with_emission(self, view: View, emission: Emission, rel: Rel, block: SelectBlock) -> View:
        view = replace(view, emission=replace(view.emission, late=emission.late, as_changes=emission.stream))
        timed = tuple(key for key in view.keying.columns if key.name in view.progress.times)
        if emission.first and timed:
            view = view_checks.coarser(view, timed)
        if emission.mode == "feed":
            if emission.late == "drop" and not (view.of_streams and bounded(view)):
                raise refuse(
                    self.text,
                    emission.span,
                    "LATE DROP needs windows that close, or a join with bounds in time, and this query has neither",
                    "remove it; or join streams within a time: b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR",
                )
            return view
        windows = [each.window for each in rel.walk() if isinstance(each, Windowed)]
        if emission.mode == "close" and any(each.counts_by_key for each in windows):
            view_checks.refuse_budget(
                self.text, emission, "these windows close with a row of their own, and not by progress"
            )
            return view  # its query returns only full windows
        if emission.watermark and not timed:
            return self._closing(view, emission, rel, block)
        if view.operator == "stateless":
            raise refuse(
                self.text,
                emission.span,
                "TRIGGER needs an aggregate: this query emits each row as it arrives",
                "add GROUP BY, or remove the trigger",
            )
        if view.progress.clock != "event":
            view_checks.refuse_budget(self.text, emission, "these windows do not close by event time")
        if emission.watermark and emission.counting is None and emission.delay is None:
            view = view_checks.by_live_keys(view)
        triggers = Triggers(emission.counting, emission.delay, emission.first, emission.watermark, emission.end)
        return replace(
            view, emission=replace(view.emission, mode="triggers", triggers=triggers, budget=emission.budget)
        )

    def _closing(self, view: View, emission: Emission, rel: Rel, block: SelectBlock) -> View:
        """A node that shows its rows when their windows close, though no window bound is among its keys."""
        closing = closing_column(view)
        own = any(each.window is not None for each in block.sources)
        # The node waits for windows of its own, and the nodes below have none that would close; neither have the rows
        # of a stream below window functions.
        own = own or (view.progress.ahead is not None and all(map(self._passes_rows, view.query.views.values())))
        if emission.mode == "close" and not (own and closing) and self._hand_down(view, emission, rel, block):
            if not view.progress.ahead and not view.progress.final:
                return view
            if closing is None:
                raise refuse(
                    self.text,
                    emission.span,
                    "its window functions depend on rows that may still arrive, and no output column"
                    " shows when a row is final",
                    "show window_end: rows then come when they are final, some at the end of the stream; or"
                    " PARTITION BY window_start, window_end, and they come with their window",
                )
            # The nodes below then handle late rows and the budget of a run.
            emission, view = (
                replace(emission, late="correct", budget=None),
                replace(view, emission=replace(view.emission, late="correct")),
            )
        if emission.mode == "close" and closing is not None:
            ends: Ends | None = (
                view.progress.ends if view.progress.ends is not None and closing in view.progress.ends.columns else None
            )
            ends = None if view.progress.ahead or view.progress.final else ends
            view_checks.refuse_late(self.text, view, emission, ends)
            view_checks.refuse_budget(
                self.text, emission, "what closes is looked for in the whole answer of this query, or of a key"
            )
            return replace(
                view,
                emission=replace(view.emission, mode="close", closing=closing),
                progress=replace(view.progress, ends=ends),
            )
        raise refuse(
            self.text,
            emission.span,
            "not every part of this query has a window that closes",
            "EMIT ON WINDOW CLOSE needs GROUP BY window_start, window_end over windows of an event time,"
            " and window_end in the SELECT list",
        )

    def _hand_down(self, view: View, emission: Emission, rel: Rel, block: SelectBlock) -> bool:
        """Let the nodes below wait for their windows, if every row of this node comes through such a node."""
        below = {node.id: node for node in self.nodes}
        if (
            view.query.streams
            or view.query.blocks
            or not view.query.views
            or not all(id in below for id in view.query.views.values())
        ):
            return False
        for id in view.query.views.values():
            node = below[id]
            if node.emission.mode == "feed":
                self.nodes[self.nodes.index(node)] = self._with_emission(node, emission, rel, block)
        return True

    def settled(self, view: View) -> bool:
        """Whether all inputs of a node are final once progress passes their own time."""
        below = [node for id in view.query.views.values() if isinstance(node := self.object(id), View)]
        return all(not each.progress.ahead and not each.progress.final and self.settled(each) for each in below)

    def _passes_rows(self, id: str) -> bool:
        """Whether a node below only filters and projects rows of a stream: it has nothing to wait for."""
        node = self.object(id)
        if not isinstance(node, View) or node.operator != "stateless":
            return False
        return bool(node.query.streams) or all(map(self._passes_rows, node.query.views.values()))

    def reads_no_stream(self, view: View) -> bool:
        """Whether only static tables and values are below a node or a view."""
        below = (node for id in view.query.views.values() if isinstance(node := self.object(id), View))
        return not (view.query.streams or view.query.blocks or view.query.rows) and all(
            map(self.reads_no_stream, below)
        )


_LEFTS = ("left", "semi", "anti")


def _scans(block: SelectBlock) -> Iterator[Scan]:
    return (each for item in block.sources for each in item.rel.walk() if isinstance(each, Scan))


def _stands_apart(label: str | None) -> bool:
    """Whether a relation is a query that a rule has moved into a node of its own and that shows all its rows."""
    return label is not None and (label == "__records" or label.startswith("__joined"))


def _limited(block: SetBlock, rel: Rel) -> SelectBlock:
    """A set operation with LIMIT or OFFSET, as a SELECT over it."""
    inner = rel.input if isinstance(rel, Emit) else rel
    assert isinstance(inner, TopN)
    below = inner.input
    items = tuple(ShownItem(of_column(column), column.name, column.type) for column in block.columns)
    return SelectBlock(
        (FromItem(below, None, static=not is_live(below)),), items, order=block.order, limited=True,
        limit=block.limit, offset=block.offset, emission=block.emission,
    )  # fmt: skip


def _numbered_scans(rel: Rel) -> Iterator[Column]:
    """The columns with row numbers or arrival times that a relation reads."""
    for each in rel.walk():
        if isinstance(each, Windowed) and each.window.needs_numbers:
            yield from (column for column in each.input.columns if column.name in _NUMBERS)
        for expr in each.exprs():
            yield from (column for column in expr.columns() if column.name in _NUMBERS)
