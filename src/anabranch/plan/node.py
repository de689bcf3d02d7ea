"""One node of a view: a SELECT or a set operation as Spark SQL over placeholders, with its keys, its progress and when
its windows close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.algebra.progress import END, FOREVER
from anabranch.errors import AnabranchError
from anabranch.ir.expr import Call, Column, Expr, Over, of_column
from anabranch.ir.fold import fold
from anabranch.ir.logic import conjunction
from anabranch.ir.rel import Rel, Scan, is_live
from anabranch.ir.select import Derived, FromItem, SelectBlock, SetBlock, ShownItem
from anabranch.plan.band_join import SAME, join_by_time_buckets
from anabranch.plan.bind import refuse
from anabranch.plan.block_inputs import BlockInputs, name_in, row_name, waiting
from anabranch.plan.block_joins import BlockJoins
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.eager_aggregation import choose
from anabranch.plan.facts.append_only import ROW, first_ranked
from anabranch.plan.facts.keys import Keying, find_keys, joined_by_equals, keeps_table_rows
from anabranch.plan.facts.lookahead import FINAL, NextRow, looks_ahead
from anabranch.plan.facts.progress import of_union, union_times
from anabranch.plan.filled import filled
from anabranch.plan.fusing import KEY, fused, retaining
from anabranch.plan.lookup_nodes import only_joined, reads_lookup_table
from anabranch.plan.name_resolution import NotApplicable, placeholder
from anabranch.plan.pair_aggregates import Split, added_up, worth_it
from anabranch.plan.panes import PaneBlock, PaneContext, direct_outputs, find_panes, over_partials, partial_scan
from anabranch.plan.partial_pushdown import compose, group_columns, over_its_partials
from anabranch.plan.placer import Placed, Placer
from anabranch.plan.plane import bounded
from anabranch.plan.record_parts import parts_of
from anabranch.plan.tie_breaking import break_ties, break_ties_of_set, tied_window
from anabranch.plan.view import (
    Beginning,
    Narrow,
    NodeEmission,
    NodeKeys,
    NodeQuery,
    Output,
    Touch,
    View,
    leading_time,
)
from anabranch.plan.windows import micros_sql, sliding
from anabranch.render.placeholders import FromText, PlaceholderWriter, select_sql, window_of
from anabranch.sql.syntax import Query
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from anabranch.plan.planner import Planner

NO_STREAM = "its FROM clause reads no stream"
#: The position of a record in its run, and the placeholder of the last position that each key may show.
POSITION = "_place"
TAKES = "@takes"


class NodeMaker:
    """Builds one node. Subqueries that are nodes of their own are already scans of them."""

    def __init__(self, planner: Planner, *, closed: bool = False, joins_above: bool = False) -> None:
        self.planner = planner
        self.closed = closed
        self.joins_above = joins_above  # whether a join with static tables may go above partials of its stream
        self.root: SelectBlock | None = None
        self.main: tuple[SelectBlock, PaneBlock, Placed] | None = None
        self.plain = SelectBlock((), ())
        self.hidden: list[ShownItem] = []
        self.block = SelectBlock((), ())
        self.schemas: dict[str, tuple[Field, ...]] = {}
        self.streams: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.views: dict[str, str] = {}
        self.renamed: dict[int, str] = {}  # the placeholders of scans that have their own, by scan id
        self.partials: list[tuple[SelectBlock, PaneBlock, Placed]] = []
        self.reasons: list[str] = []
        self.gathers: list[str] = []  # the views that are computed first, and why
        self.included: list[str] = []  # the views whose partials are read instead
        self.tied = True
        self.filled: set[int] = set()  # the ids of windows that exist without rows too
        self.counted: str | None = None  # the placeholder of the records that a trigger counts one by one
        self.counting = False  # whether its trigger counts records
        self.parts = 0  # columns of the key by which it counts
        self.guard: Expr | None = None
        self.window_rows: dict[int, str] = {}  # what windows are of, where that is not the rows

    @property
    def inputs(self) -> BlockInputs:
        return BlockInputs(self.block, self.planner)

    @property
    def joins(self) -> BlockJoins:
        return BlockJoins(self.inputs)

    # ---- text

    def scan_text(self, scan: Scan) -> str:
        """The placeholder of a scan; notes what it refers to."""
        source = scan.source
        name = self.renamed.get(id(scan)) or placeholder(scan, self.planner.numbered(scan))[1:-1]
        if source.kind != "partials":
            known = self.planner.object(source.target)
            if source.kind == "stream":
                assert isinstance(known, Stream)
                self.streams[name], self.schemas[name] = known.id, known.seen_as(name)
            elif source.kind == "table":
                assert isinstance(known, Table)
                if source.looked_up:
                    raise only_joined(self.planner, scan, known)
                self.tables[name], self.schemas[name] = known.id, known.fields
            else:
                assert isinstance(known, View)
                self.views[name], self.schemas[name] = known.id, known.fields
        return quote_name(name)

    def writer(self) -> PlaceholderWriter:
        return PlaceholderWriter(
            self.scan_text,
            self.shaped,
            closed=self.closed,
            filled=self.filled,
            rows=self.window_rows,
            text=self.planner.text,
        )

    def sql(self, block: SelectBlock) -> str:
        return select_sql(block, self.writer()).text

    def shaped(self, block: SelectBlock | SetBlock) -> SelectBlock | SetBlock:
        """A nested query as it runs: over partials where possible, and with ties broken."""
        if isinstance(block, SetBlock):
            return break_ties_of_set(block) if self.tied else block
        self.root = self.root or block
        whole = self._filled(block)
        if whole is not block:
            return self.without_ties(whole)
        if not any(_reads_stream(each) for each in block.sources):
            pushed = self.pushed(block)
            return self.without_ties(*pushed) if pushed is not None else self.without_ties(block)
        if any(each.windowed is not None and not isinstance(each.windowed.input, Scan) for each in block.sources):
            self.reasons.append("it puts the rows of a query into windows")
        found = self.panes(block)
        return self.without_ties(*found) if found is not None else self.without_ties(block)

    def panes(self, block: SelectBlock) -> tuple[SelectBlock, Sequence[Column]] | None:
        """A SELECT over partials, and the key of its groups; None where it cannot live on partials."""
        planner = self.planner
        context = PaneContext(planner.catalog, planner.planning.analyze, planner.planning.loads)
        found = find_panes(block, context)
        if isinstance(found, str):
            self.reasons.append(found)
            return None
        choice = choose(block, found, context, planner.text) if self.joins_above else None
        number = planner.next_placeholder()
        placed = planner.placer.place(found, f"@p:{number}", choice)
        self.partials.append((block, found, placed))
        fields = placed.use.fields(planner.placer.panes[placed.use.panes])
        self.schemas[placed.use.placeholder] = fields
        scan = partial_scan(str(number), fields, planner.new)
        keys = [next(column for column in scan.columns if column.name == key.name) for key in found.keys]
        return over_partials(block, found, scan, placed.finals, placed.use.presence, planner.new), keys

    def pushed(self, block: SelectBlock) -> tuple[SelectBlock, Sequence[Column]] | None:
        """A SELECT over a view, on the partials of that view; None where the view is computed first."""
        views = [view for item in block.sources if isinstance(view := self.inputs.known(item), View)]
        if not views:
            return None
        try:
            return self._pushed(block, views)
        except NotApplicable as why:
            self.gathers.append(f"{' and '.join(dict.fromkeys(each.name for each in views))}, because {why}")
            return None

    def _pushed(self, block: SelectBlock, views: Sequence[View]) -> tuple[SelectBlock, Sequence[Column]]:
        planner, rel = self.planner, block.sources[0].rel
        if len(block.sources) > 1 or not isinstance(rel, Scan):
            raise NotApplicable("it joins the rows of the view, or puts them into windows")
        (view,) = views
        inner = planner.query_of(rel, view)
        made = compose(block, rel, inner)
        context = PaneContext(planner.catalog, planner.planning.analyze, planner.planning.loads)
        found = find_panes(inner, context)
        if isinstance(found, str):
            raise NotApplicable(f"{view.name} does not live on partials: {found}")
        if found.statics:
            raise NotApplicable("the view joins static tables")
        trial = Placer(planner.catalog, planner.planning)
        placed = trial.place(found, f"@p:{planner.next_placeholder()}")
        if placed.use.panes not in {use.panes for use in view.query.blocks} or trial.filled() or found.bins is not None:
            raise NotApplicable(f"partials of its own would be others than those of {view.name}")
        planner.placer.panes |= trial.panes
        self.partials.append((inner, found, placed))
        self.included.append(view.id)
        fields = placed.use.fields(trial.panes[placed.use.panes])
        self.schemas[placed.use.placeholder] = fields
        scan = partial_scan(placed.use.placeholder.removeprefix("@p:"), fields, planner.new)
        over = over_its_partials(made, found, placed, scan, planner.new)
        return over, group_columns(over) or ()

    def without_ties(self, block: SelectBlock, keys: Sequence[Column] | None = None) -> SelectBlock:
        if not self.tied:
            return block
        return break_ties(block, self.planner.event_times, lambda exprs: self._types(block, exprs), keys)

    def _types(self, block: SelectBlock, exprs: Sequence[Expr]) -> list[str]:
        """The types of expressions over the relations of a SELECT, from Spark's analyser."""
        sources = [replace(each, on=None, kind="cross", lateral=False) for each in block.sources]
        shown = tuple(ShownItem(expr, f"x{index}") for index, expr in enumerate(exprs))
        asked = SelectBlock(tuple(sources), shown, generators=block.generators)
        return [field.type for field in self._analyzed(lambda: self.sql(asked))]

    def _analyzed(self, text: Callable[[], str]) -> list[Field]:
        written = text()
        schemas = dict(self.schemas)
        if self.counted is not None:
            schemas[self.counted] = (*schemas[self.counted], Field(POSITION, "bigint"))
            # The types are only known after this analysis; a void column can be compared with any type.
            schemas[TAKES] = (*(Field(f"__k{index}", "void") for index in range(self.parts)), Field("__upto", "bigint"))
        return self.planner.planning.analyze(written, schemas)

    # ---- a set operation

    def set_operation(self, block: SetBlock, emit: str) -> View:
        """UNION, INTERSECT, EXCEPT: equal rows of any operand touch a row."""
        block = break_ties_of_set(block)
        touches: list[tuple[str, str]] = []
        times: list[tuple[str, dict[int, tuple[str, int]]]] = []
        texts: list[str] = []
        for operand in block.operands:
            inner = self._operand(operand)
            if isinstance(inner, View):
                name = f"@v:{inner.id}"
                self.views[name], self.schemas[name] = inner.id, inner.fields
                texts.append(f"SELECT * FROM {quote_name(name)}")
                touches.append((name, texts[-1]))
                names = [each.name for each in inner.fields]
                shown = [each for each in bounded(inner) if each in names]  # a key may be hidden
                times.append((name, {names.index(each): (each.lower(), inner.final_times[each]) for each in shown}))
                continue
            self.block = inner
            texts.append(self.sql(inner))
            if inner.live:
                (live,) = inner.live
                touches.append((self.inputs.input_of(inner.sources[live]), texts[-1]))
                times.append((touches[-1][0], self.inputs.times_by_position(inner.sources[live])))
        keying = Keying("keyed", every_column=True) if touches else Keying("whole", reason=NO_STREAM)
        word = {"union": "UNION", "intersect": "INTERSECT", "except": "EXCEPT"}[block.kind]
        text = f" {word}{' ALL' if block.all else ''} ".join(texts)
        self.block = SelectBlock((), ())
        names = [column.name for column in block.columns]
        if names != [field.name for field in self._analyzed(lambda: text)]:
            listed = ", ".join(map(quote_name, names))
            text = f"SELECT * FROM ({text}) AS __rows({listed})"
        fields = tuple(self._analyzed(lambda: text))
        view = self._view(emit, keying, text, fields, fields if keying.every_column else (), tuple(
            Touch(name, _numbered(each, fields)) for name, each in touches), ())  # fmt: skip
        meets = of_union(times, view.fields)
        if meets is None:
            return view
        shown_times = union_times(times, view.fields)
        return replace(
            view,
            progress=replace(
                view.progress, joint=meets, times=shown_times, time=leading_time(view.fields, shown_times)
            ),
        )

    def _operand(self, rel: Rel) -> View | SelectBlock:
        """An operand as a SELECT that works row by row, or as a node of its own."""
        block = fold(rel)
        if isinstance(block, SelectBlock):
            block = self.planner.with_nodes(block, names_only=True)
            plain = all(each.scan is not None or each.static for each in block.sources) and not reads_lookup_table(
                block
            )
            keys = find_keys(replace(block, limited=False)) if plain and block.live else None
            if not block.live or (keys is not None and keys.kind == "stateless" and not block.limited):
                return block
        return self.planner.below(rel)

    # ---- a SELECT

    def whole(self, rel: Rel, emit: str, reason: str, names: Sequence[str]) -> View:
        """A query that is computed as a whole."""

        def text() -> str:
            writer = self.writer()
            writer.nested(rel, names)
            return writer.written.text

        made, found = self._checked(text)
        fields = tuple(found)
        return self._view(emit, Keying("whole", reason=reason), made, fields, (), (), ())

    def select(self, block: SelectBlock, emit: str, *, counted: bool = False) -> View:
        self.block = block = self._filled(block)
        for item in block.sources:
            known = self.inputs.known(item)
            if isinstance(known, View) and known.emission.as_changes and emit != "read":
                raise self.planner.refuse(
                    item.rel,
                    f"{known.name} shows changes, and changes of changes are not stored",
                    "read the query that it shows the changes of, or remove the emission clause",
                )
        by_key = self.planner.by_key and not parts_of([item.name or "" for item in block.items])
        keying = find_keys(block, by_key=by_key)
        if not block.live:
            keying = Keying("whole", reason=NO_STREAM)
        self.counting = counted
        if counted:
            self._count_rows(keying)
        view = self._finish(emit, keying, counted=counted)
        view = replace(view, join=self.joins.join(), emission=replace(view.emission, counted=self.counted))
        if not (keying.pairs and view.in_time and view.progress.clock == "event" and view.operator):
            view = replace(view, join=replace(view.join, steps=0))
        view = self.joins.following(view)
        view = self.joins.with_progress(keying, view)
        if view.operator:
            view = replace(view, progress=replace(view.progress, ends=self.inputs.ends(view, keying)))
        view = self._with_ahead(view)
        if view.operator == "join":
            view = replace(view, query=replace(view.query, spark_text=self._spread(view)))
        if self.planner.splits and worth_it(block, view):
            split = added_up(block, lambda exprs: self._types(block, exprs))
            if split is not None:
                return self._added_up(split, emit)
        return fused(self, view) or retaining(self, view)

    def _added_up(self, split: Split, emit: str) -> View:
        """Two nodes: an aggregate of the new pairs of each run, and the aggregate of these."""
        inside = NodeMaker(self.planner)
        below = self.planner.add(inside._pairs(split.inside), split.inside, "")
        below = replace(below, sql=below.query.text)
        self.planner.nodes[-1] = below
        columns = tuple(self.planner.new(field.name, field.type) for field in below.fields)
        return NodeMaker(self.planner, closed=self.closed).select(
            split.around(self.planner.scan_of(below, columns, None)), emit
        )

    def _pairs(self, block: SelectBlock) -> View:
        """The node of a join that gives an aggregate of the new pairs of each run, and not the pairs."""
        self.block = block
        keying = Keying("join")
        view = self._finish("feed", keying)
        join = replace(self.joins.join(), steps=0, aggregated=True)
        return self.joins.with_progress(keying, replace(view, join=join))

    def _filled(self, block: SelectBlock) -> SelectBlock:
        made, windows = filled(self.planner.text, block)
        self.filled |= windows
        return made

    # ---- triggers that count

    def _count_rows(self, keying: Keying) -> None:
        """Let the node drop the rows of a run that came after the row that fired the trigger, by position."""
        block, live = self.block, self.block.live
        known = self.inputs.known(block.sources[live[0]]) if len(live) == 1 else None
        names = [field.name for field in known.fields] if isinstance(known, View) else []
        ordered = isinstance(known, Stream) or parts_of(names)
        grouped = not block.sets and (block.keys is not None or keying.kind == "whole")
        # A condition on a stream makes unordered rows come and go; rows generated from one row have no order either.
        if not ordered or self._reads_live() or block.generates or block.distinct or not grouped:
            return
        item = block.sources[live[0]]
        self.counted, self.parts = self.inputs.input_of(item), len(keying.parts)
        text = FromText(block, self.writer)
        same = " AND ".join(f"__t.__k{i} <=> ({text.expr(part.expr)})" for i, part in enumerate(keying.parts)) or "true"
        upto = f"(SELECT max(__t.__upto) FROM `{TAKES}` AS __t WHERE {same})"
        shown = f"coalesce({POSITION} <= {upto}, true)"
        if self.inputs.by_row(live[0]):
            self.guard = Expr((shown,))
        else:  # rows after it must not make windows either
            scan = item.scan
            assert item.window is not None and scan is not None
            self.scan_text(scan)
            name = f" AS {quote_name(item.label)}" if item.label is not None else ""
            rows = f"(SELECT * FROM {quote_name(self.counted)}{name} WHERE {shown})"
            self.window_rows[id(item.window)] = rows

    def _reads_live(self) -> bool:
        """Whether an expression reads a relation that changes."""
        return any(is_live(inner.rel) for expr in self.block.exprs() for inner in expr.subqueries())

    # ---- putting it together

    def _finish(self, emit: str, keying: Keying, *, counted: bool = False) -> View:
        block = self.block
        over: tuple[SelectBlock, Sequence[Column] | None] = block, None
        if self.guard is not None:
            asked = [*([block.where] if block.where is not None else []), self.guard]
            over = replace(block, where=conjunction(asked)), None
        if keying.kind not in ("stateless", "join") and not counted:
            over = self.panes(block) or over
        self.main = self.partials[0] if over[1] is not None else None
        names: list[str] = []
        hidden: list[ShownItem] = []
        for index, part in enumerate(keying.parts):
            names.append(part.shown or KEY.format(index))
            if part.shown is None:
                expr = part.expr if over[1] is None else of_column(over[1][part.position])
                hidden.append(ShownItem(expr, names[-1]))
        kept = self._kept(block) if emit == "feed" and not counted and not self.closed else []
        hidden += kept
        if keying.kind == "join":
            self._tell_apart()
        self.plain = over[0]
        self.hidden = hidden
        found = self._known_fields(over, hidden)
        if found is None:
            text, found = self._checked(lambda: self.sql(self.with_items(self.without_ties(*over), hidden)))
        else:
            text = self.sql(self.with_items(over[0], hidden))
        fields = tuple(found[: len(block.items)])
        typed = {each.name.lower(): each for each in found}
        keys = fields if keying.every_column else tuple(typed[name.lower()] for name in names)
        if emit != "read":
            refuse_keys(self.planner.text, self.planner.query, keys)
        touches = self._touches(keying, keys) if emit != "read" else ()
        narrows = self._narrows(keying) if emit != "read" else ()
        view = self._view(emit, keying, text, fields, keys, touches, narrows)
        kept_fields = tuple(found[len(found) - len(kept) :])
        view = replace(view, keying=replace(view.keying, kept=kept_fields))
        times = {**self.inputs.times(fields), **self.inputs.key_times(keying, names)}
        direct: tuple[Output, ...] = ()
        if self.main is not None and emit == "feed":
            _, panes, placed = self.main
            direct = direct_outputs(block, panes, placed.columns, placed.use.columns, fields)
        return replace(
            view,
            query=replace(view.query, direct=direct),
            progress=replace(
                view.progress,
                times=times,
                clock=self.inputs.clock(),
                cuts=self.inputs.cuts(),
                time=leading_time(fields, times) if view.operator else "",
            ),
        )

    def _kept(self, block: SelectBlock) -> list[ShownItem]:
        """The hidden columns from which a SELECT of the first rows of each key continues."""
        shown = () if self.planner.by_key else first_ranked(block).items()
        return [ShownItem(of_column(each), ROW.format(each.name)) for each, name in shown if name is None]

    def _known_fields(
        self, over: tuple[SelectBlock, Sequence[Column] | None], hidden: Sequence[ShownItem]
    ) -> list[Field] | None:
        """The columns of a SELECT that runs as built, whose types Spark has already returned; None for others."""
        block, keys = over
        if keys is not None or self.guard is not None or self.window_rows or self.without_ties(block) != block:
            return None
        types = [item.type for item in block.items]
        types += [item.expr.column.type if item.expr.column is not None else "" for item in hidden]
        names = [item.name or "" for item in (*block.items, *hidden)]
        return [Field(name, type) for name, type in zip(names, types, strict=True)] if all(types) else None

    def with_items(self, block: SelectBlock, hidden: Sequence[ShownItem]) -> SelectBlock:
        """A SELECT with more items; where it only sorts a subquery, the subquery gets them."""
        if not hidden:
            return block
        inner = block.sources[0].rel if len(block.sources) == 1 else None
        if not isinstance(inner, Derived):
            return replace(block, items=(*block.items, *hidden))
        columns = tuple(self.planner.new(each.name or "", each.type) for each in hidden)
        below = Derived(self.with_items(inner.block, hidden), (*inner.given, *columns), label=inner.label)
        more = (replace(each, expr=of_column(column)) for each, column in zip(hidden, columns, strict=True))
        source = replace(block.sources[0], rel=below)
        return replace(block, sources=(source,), items=(*block.items, *more))

    def _checked(self, text: Callable[[], str]) -> tuple[str, list[Field]]:
        """A query with its ties broken, and its columns; unchanged if Spark refuses it with broken ties."""
        partials = list(self.partials)
        try:
            written = text()
            return written, self._analyzed(lambda: written)
        except AnabranchError:
            self.tied, self.root, self.partials, self.reasons = False, None, partials, []
            self.gathers, self.included = [], []
            written = text()
            return written, self._analyzed(lambda: written)

    def _view(
        self, emit: str, keying: Keying, text: str, fields: tuple[Field, ...], keys: tuple[Field, ...],
        touches: tuple[Touch, ...], narrows: tuple[Narrow, ...],
    ) -> View:  # fmt: skip
        kept = emit != "read"
        query = NodeQuery(
            text,
            tuple(placed.use for _, _, placed in self.partials),
            streams=dict(self.streams),
            tables=dict(self.tables),
            views=dict(self.views),
            ordered=bool(self.block.order) or self.block.limited,
        )
        versions = {table: self.planner.planning.table_at(table) for table in self.tables.values()}
        return View(
            "?", "?", self.planner.query.sql(self.planner.text), None, fields, keying.kind if kept else "", query,
            NodeKeys(keys, touches, narrows, reason=keying.reason) if kept else NodeKeys(),
            emission=NodeEmission(emit), beginning=Beginning(self.planner.start, table_versions=versions),
        )  # fmt: skip

    def _tell_apart(self) -> None:
        """Give each relation of a join a placeholder of its own, even where two read the same stream."""
        for name, item in zip(self.joins.distinct_names(), self.block.sources, strict=True):
            scan = item.scan
            if name and scan is not None:
                self.renamed[id(scan)] = name

    # ---- keys

    def _touches(self, keying: Keying, keys: tuple[Field, ...]) -> tuple[Touch, ...]:
        """The queries for the keys that new rows touch."""
        block = self.block
        if keying.kind != "keyed" and (not self.counting or self._reads_live()):
            return ()
        if self.main is not None:
            _, panes, placed = self.main
            columns = [quote_name(panes.keys[part.position].name) for part in keying.parts]
            source = placed.use.placeholder
            return (Touch(source, f"SELECT DISTINCT {items(columns)} FROM {quote_name(source)}"),)
        live = block.live
        one = len(live) == 1 and not keeps_table_rows(block)
        if one and (self.inputs.by_row(live[0]) or self.counted is not None):
            item = block.sources[live[0]]
            name = self.inputs.input_of(item)
            if keying.every_column:
                return (Touch(name, _numbered(self.sql(block), keys)),)
            asked = tuple(ShownItem(part.expr, f"k{index}") for index, part in enumerate(keying.parts))
            if self.counted is not None:
                asked = (*asked, ShownItem(Expr((POSITION,)), POSITION))
            if not self.inputs.by_row(live[0]):  # each row that makes windows, once
                text = FromText(replace(block, sources=(replace(item, rel=_rows_of(item)),)), self.writer)
                chosen = ", ".join(f"{text.expr(each.expr)} AS {quote_name(each.name or '')}" for each in asked)
                return (Touch(name, f"SELECT {chosen} FROM {text.from_clause}"),)
            rows = SelectBlock(
                block.sources, asked or (ShownItem(Expr(("1",)), "one"),), block.where,
                distinct=self.counted is None, merged=block.merged, generators=block.generators,
            )  # fmt: skip
            return (Touch(name, self.sql(rows)),)
        if keying.kind != "keyed":
            return ()
        touches = []
        for index in live:
            item = block.sources[index]
            name = self.inputs.input_of(item)
            source = quote_name(name)
            if item.window is not None and self.inputs.by_row(index):
                source = self.writer().windowed(item.window, source)
            columns = [f"__d.{quote_name(name_in(item, part.columns[index]))}" for part in keying.parts]
            touches.append(Touch(name, f"SELECT DISTINCT {items(columns)} FROM {source} AS __d"))
        return tuple(dict.fromkeys(touches))

    def _narrows(self, keying: Keying) -> tuple[Narrow, ...]:
        """Which rows of which input the touched keys need. A relation that is read twice is read whole."""
        if keying.kind != "keyed" or keying.every_column:
            return ()
        if self.main is not None:
            _, panes, placed = self.main
            return (Narrow(placed.use.placeholder, tuple(panes.keys[part.position].name for part in keying.parts)),)
        found: dict[str, set[Narrow]] = {}
        for index in self.block.live:
            item = self.block.sources[index]
            columns = tuple(row_name(item, part.columns[index]) for part in keying.parts)
            times = tuple(self._along(item, part.columns[index]) for part in keying.parts)
            name = self.inputs.input_of(item)
            found.setdefault(name, set()).add(Narrow(name, columns, times))
        narrows = [next(iter(each)) for each in found.values() if len(each) == 1]
        return tuple(each for each in narrows if any(each.columns) or any(each.times))

    def _along(self, item: FromItem, column: Column | None) -> tuple[str, int, int] | None:
        """The time column of an input's windows, where a column is a bound of them."""
        windowed = item.windowed
        if windowed is None or column not in windowed.bounds[:2] or windowed.along is None or windowed.window.rows:
            return None
        windows = sliding(window_of(windowed))
        if windows is None or windowed.along.type != "timestamp":
            return None
        span = (0, windows.size) if column == windowed.bounds[0] else (-windows.size, 0)
        return windowed.along.name, *span

    # ---- joins

    def _spread(self, view: View) -> str:
        """The query for Spark, with time buckets, where a band is the only join condition; else an empty text."""
        names = [each.name for each in view.fields]
        known = [each for each in view.join.bands if each.least is not None and each.most is not None]
        if len(view.inputs) != 2 or len(known) != 1 or view.query.views or len(set(names)) != len(names):
            return ""
        if joined_by_equals(self.block):
            return ""
        streams = [self.planner.catalog.stream(view.query.streams[name]) for name in (known[0].one, known[0].other)]
        if any(field.type != "timestamp" for each in streams for field in each.fields if field.name == each.time):
            return ""
        asked = [*([self.plain.where] if self.plain.where is not None else []), Expr((SAME,))]
        text = self.sql(replace(self.plain, where=conjunction(asked)))
        return join_by_time_buckets(text, known[0], (streams[0].time or "", streams[1].time or ""), names)

    # ---- window functions that look ahead

    def _with_ahead(self, view: View) -> View:
        """A view with the following rows that its window functions wait for."""
        ahead = looks_ahead(self.block, self.inputs.passes_with(view))
        if ahead is None:
            return view
        if not self.planner.settled(view):
            return waiting(view, FOREVER)
        view = self.inputs.with_windows_passed(view)
        if any(key.name in view.progress.times for key in view.keying.columns):  # they see rows of one time
            return waiting(view, 0)
        if not ahead.rows or ahead.time == FOREVER:
            return waiting(view, ahead.time)
        # The query with FINAL is needed only where rows wait; the column must change neither groups nor rows.
        adds = not self.block.sets and not self.block.distinct
        if (
            not self.planner.waits
            or view.operator not in ("keyed", "whole")
            or view.progress.clock != "event"
            or not adds
        ):
            return waiting(view, FOREVER)
        hidden = [*self.hidden, ShownItem(self._final(ahead.rows), FINAL)]
        final = self.sql(self.with_items(self.without_ties(self.plain), hidden))
        view = waiting(view, ahead.time)
        return replace(
            view, progress=replace(view.progress, next_rows=max(each.number for each in ahead.rows), final=final)
        )

    def _final(self, rows: Iterable[NextRow]) -> Expr:
        """The progress that has passed all these rows, in microseconds: the end of the stream while one is missing."""
        wanted: dict[tuple[Over, Expr, int], int] = {}  # of one order, the furthest row is after the others
        written = dict(zip(self.block.over, self.plain.over, strict=True))  # over partials, where there are any
        for each in rows:
            over = tied_window(written[each.call], self.plain, self.planner.event_times)
            key = replace(over, frame=""), over.order[0].expr, each.shift
            wanted[key] = max(each.number, wanted.get(key, 0))
        times: list[Expr] = []
        for (over, time, shift), number in wanted.items():
            lead = Call("lead", (time, Expr((str(number),))), over=over)
            before, behind = micros_sql("\0").split("\0")
            times.append(Expr(("coalesce", "(", before, lead, behind, "+", str(shift), ",", str(END), ")")))
        if len(times) == 1:
            return times[0]
        parts: list[object] = ["greatest", "("]
        for index, each_time in enumerate(times):
            parts += [*([","] if index else []), *each_time.parts]
        return Expr((*parts, ")"))  # type: ignore[arg-type]


def _rows_of(item: FromItem) -> Rel:
    """The rows under the windows of a relation."""
    assert item.window is not None
    return item.window.input


def _reads_stream(item: FromItem) -> bool:
    scan = item.scan
    return scan is not None and scan.source.kind == "stream"


def _numbered(text: str, keys: Sequence[Field]) -> str:
    """A query whose columns are the key, under the standard names of keys."""
    names = ", ".join(f"`k{index}`" for index in range(len(keys)))
    return f"SELECT DISTINCT * FROM ({text}) AS __rows({names})"


def items(expressions: Sequence[str]) -> str:
    return ", ".join(f"{expression} AS `k{index}`" for index, expression in enumerate(expressions))


def refuse_keys(text: str, query: Query, keys: Sequence[Field]) -> None:
    """Refuse key types by which shown rows cannot be found again: a key has to equal itself, in a file too."""
    for key in keys:
        if "map<" in key.type:
            what, hint = (
                f"is a map ({key.type}), and maps cannot be compared",
                "use map_entries(...) or to_json(...) of it",
            )
        elif " collate " in key.type:
            what, hint = f"has a collation ({key.type}), which files do not keep", "use lower(...) of the text"
        else:
            continue
        raise refuse(text, query.span, f"the changes of this query cannot be stored: its key {key.name} {what}", hint)
