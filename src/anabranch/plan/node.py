"""One node of a view: a SELECT, or a set operation, as Spark SQL over placeholders, with its keys and what is known of
how its rows come and close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.algebra.progress import END, FOREVER
from anabranch.algebra.reach import Near, chained
from anabranch.algebra.windows import MILLISECOND, SlidingWindows
from anabranch.errors import AnabranchError
from anabranch.ir.expr import Call, Column, Expr, Over, of_column
from anabranch.ir.fold import fold
from anabranch.ir.logic import conjunction
from anabranch.ir.rel import Project, Rel, Scan, is_live
from anabranch.ir.select import Derived, FromItem, SelectBlock, SetBlock, ShownItem
from anabranch.plan.bind import refuse
from anabranch.plan.buckets import SAME, spread
from anabranch.plan.catalog import Ends, Field, Narrow, Output, Side, Stream, Table, Touch, View, leading_time
from anabranch.plan.context import NotApplicable, placeholder
from anabranch.plan.facts.ahead import FINAL, NextRow, looks_ahead
from anabranch.plan.facts.append_only import first_of, first_ranked, is_distinct
from anabranch.plan.facts.bands import find_bands
from anabranch.plan.facts.following import find_following
from anabranch.plan.facts.keys import Keying, find_keys, joined_by_equals
from anabranch.plan.facts.progress import Join, find_meets, of_union, through, time_call, union_times
from anabranch.plan.filled import filled
from anabranch.plan.joins_above import choose
from anabranch.plan.lookup_nodes import only_joined, reads_asked
from anabranch.plan.pairs import Split, added_up, worth_it
from anabranch.plan.panes import PaneBlock, PaneContext, direct_outputs, find_panes, over_partials, partial_scan
from anabranch.plan.parts import parts_of
from anabranch.plan.placer import Placed, Placer
from anabranch.plan.plane import bounded
from anabranch.plan.pushed import compose, group_columns, over_its_partials
from anabranch.plan.tie_breaking import break_ties, break_ties_of_set, tied_window
from anabranch.plan.windows import closing_shift, micros_sql, sliding, type_of
from anabranch.render.placeholders import FromText, PlaceholderWriter, select_sql, window_of
from anabranch.sql.lexer import quote_name
from anabranch.sql.syntax import Query, WindowSpec
from anabranch.sql.versions import UNTIL

if TYPE_CHECKING:
    from anabranch.plan.planner import Planner

KEY = "_k{}"
NO_STREAM = "its FROM clause reads no stream"
#: The place of a record among those of its run, and the placeholder of the last places that a key may show.
PLACE = "_place"
TAKES = "@takes"


class NodeMaker:
    """Makes one node. Relations that are nodes of their own have been replaced by scans of them."""

    def __init__(self, planner: Planner, *, closed: bool = False, joins_above: bool = False) -> None:
        self.planner = planner
        self.closed = closed
        self.joins_above = joins_above  # whether a join with static tables may stand above partials of its stream
        self.root: SelectBlock | None = None
        self.main: tuple[SelectBlock, PaneBlock, Placed] | None = None
        self.plain = SelectBlock((), ())
        self.hidden: list[ShownItem] = []
        self.block = SelectBlock((), ())
        self.schemas: dict[str, tuple[Field, ...]] = {}
        self.streams: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.views: dict[str, str] = {}
        self.renamed: dict[int, str] = {}  # scans that have a placeholder of their own, by their ids
        self.partials: list[tuple[SelectBlock, PaneBlock, Placed]] = []
        self.reasons: list[str] = []
        self.gathers: list[str] = []  # the views whose rows are put together first, and why
        self.included: list[str] = []  # the views whose partials are read in their place
        self.tied = True
        self.filled: set[int] = set()  # the windows that are there without rows too, by their ids
        self.counted: str | None = None  # the placeholder of what a trigger counts one by one
        self.counting = False  # whether its trigger counts records
        self.parts = 0  # of the key by which it counts
        self.guard: Expr | None = None
        self.window_rows: dict[int, str] = {}  # what the windows of a relation are of, where that is not its rows

    # ---- text

    def scan_text(self, scan: Scan) -> str:
        """A scan as its placeholder; what stands behind it is written down."""
        source = scan.source
        name = self.renamed.get(id(scan)) or placeholder(scan, self.planner.numbered(scan))[1:-1]
        if source.kind != "partials":
            known = self.planner.object(source.target)
            if source.kind == "stream":
                assert isinstance(known, Stream)
                self.streams[name], self.schemas[name] = known.id, known.seen_as(name)
            elif source.kind == "table":
                assert isinstance(known, Table)
                if source.asked:
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
        """A query that stays inside another, as it runs: over partials, where it can be, and without ties."""
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
        """A SELECT over partials, and what tells its groups apart; None where it cannot be."""
        planner = self.planner
        context = PaneContext(planner.catalog, planner.world.analyze, planner.world.loads)
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
        """A SELECT over a view, on the partials of that view; None where the rows of the view are gathered first."""
        views = [view for item in block.sources if isinstance(view := self.known(item), View)]
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
        context = PaneContext(planner.catalog, planner.world.analyze, planner.world.loads)
        found = find_panes(inner, context)
        if isinstance(found, str):
            raise NotApplicable(f"{view.name} does not live on partials: {found}")
        if found.statics:
            raise NotApplicable("the view joins static tables")
        trial = Placer(planner.catalog, planner.world)
        placed = trial.place(found, f"@p:{planner.next_placeholder()}")
        if placed.use.panes not in {use.panes for use in view.blocks} or trial.filled() or found.bins is not None:
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
        """The types of expressions over the relations of a SELECT, as Spark tells them."""
        sources = [replace(each, on=None, kind="cross", lateral=False) for each in block.sources]
        shown = tuple(ShownItem(expr, f"x{index}") for index, expr in enumerate(exprs))
        asked = SelectBlock(tuple(sources), shown, generators=block.generators)
        return [field.type for field in self._analyzed(lambda: self.sql(asked))]

    def _analyzed(self, text: Callable[[], str]) -> list[Field]:
        written = text()
        schemas = dict(self.schemas)
        if self.counted is not None:
            schemas[self.counted] = (*schemas[self.counted], Field(PLACE, "bigint"))
            # Their types are known once this is analysed; a column without one can be compared with any.
            schemas[TAKES] = (*(Field(f"__k{index}", "void") for index in range(self.parts)), Field("__upto", "bigint"))
        return self.planner.world.analyze(written, schemas)

    # ---- what a relation is

    def known(self, item: FromItem) -> object:
        """The stream, view or table that a relation reads."""
        scan = item.scan
        return self.planner.object(scan.source.target) if scan is not None else None

    def input_of(self, item: FromItem) -> str:
        """The placeholder of a relation."""
        scan = item.scan
        assert scan is not None
        return placeholder(scan, self.planner.numbered(scan))[1:-1]

    def window(self, item: FromItem) -> WindowSpec | None:
        return window_of(item.window) if item.window is not None else None

    # ---- a set operation

    def set_operation(self, block: SetBlock, emit: str) -> View:
        """UNION, INTERSECT, EXCEPT: a row is touched by its equals in any operand."""
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
                times.append((name, {names.index(each): (each.lower(), inner.settles[each]) for each in shown}))
                continue
            self.block = inner
            texts.append(self.sql(inner))
            if inner.live:
                (live,) = inner.live
                touches.append((self.input_of(inner.sources[live]), texts[-1]))
                times.append((touches[-1][0], self._times_by_position(inner.sources[live])))
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
        return replace(view, meets=meets, times=shown_times, time=leading_time(view.fields, shown_times))

    def _operand(self, rel: Rel) -> View | SelectBlock:
        """An operand as a SELECT that looks at one row at a time, or as a node of its own."""
        block = fold(rel)
        if isinstance(block, SelectBlock):
            block = self.planner.with_nodes(block, names_only=True)
            plain = all(each.scan is not None or each.static for each in block.sources) and not reads_asked(block)
            keys = find_keys(replace(block, limited=False)) if plain and block.live else None
            if not block.live or (keys is not None and keys.kind == "stateless" and not block.limited):
                return block
        return self.planner.below(rel)

    def _times_by_position(self, item: FromItem) -> dict[int, tuple[str, int]]:
        """The columns of a SELECT over one stream that are its event times, by their places."""
        if item.window is not None:
            return {}
        own = self._columns_named(item, self._bounded_times(item))
        found: dict[int, tuple[str, int]] = {}
        for place, shown in enumerate(self.block.items):
            column = shown.expr.column
            shift = self._shift(column) if column is not None and column in own else None
            if column is not None and shift is not None:
                found[place] = column.name.lower(), shift
        return found

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
            known = self.known(item)
            if isinstance(known, View) and known.stream and emit != "read":
                raise self.planner.refuse(
                    item.rel,
                    f"{known.name} shows changes, and changes of changes are not kept",
                    "read the query that it shows the changes of, or leave the emission clause out",
                )
        by_key = self.planner.by_key and not parts_of([item.name or "" for item in block.items])
        keying = find_keys(block, by_key=by_key)
        if not block.live:
            keying = Keying("whole", reason=NO_STREAM)
        self.counting = counted
        if counted:
            self._count_rows(keying)
        view = self._finish(emit, keying, counted=counted)
        near, nearby = self._near()
        view = replace(
            view, near=near, through=self._through(Stream), timed=self._through(View), sides=self._sides(),
            counted=self.counted,
        )  # fmt: skip
        if keying.pairs and view.in_time and view.clock == "event" and view.node:
            view = replace(view, nearby=nearby)
        view = self._following(view)
        view = self._with_progress(keying, view)
        view = replace(view, ends=self._ends(view, keying) if view.node else None)
        view = self._with_ahead(view)
        if view.node == "join":
            view = replace(view, spread=self._spread(view))
        if self.planner.splits and worth_it(block, view):
            split = added_up(block, lambda exprs: self._types(block, exprs))
            if split is not None:
                return self._added_up(split, emit)
        return self._fused(view) or self._retaining(view)

    def _added_up(self, split: Split, emit: str) -> View:
        """Two nodes: what the new pairs of a run add up to, and what that adds up to."""
        inside = NodeMaker(self.planner)
        below = self.planner.add(inside._pairs(split.inside), split.inside, "")
        below = replace(below, sql=below.text)
        self.planner.nodes[-1] = below
        columns = tuple(self.planner.new(field.name, field.type) for field in below.fields)
        return NodeMaker(self.planner, closed=self.closed).select(
            split.around(self.planner.scan_of(below, columns, None)), emit
        )

    def _pairs(self, block: SelectBlock) -> View:
        """The node of a join that gives what the new pairs of each run add up to, and not the pairs."""
        self.block = block
        keying = Keying("join")
        view = self._finish("feed", keying)
        near, _ = self._near()
        view = replace(
            view, near=near, through=self._through(Stream), timed=self._through(View), sides=self._sides()
        )  # fmt: skip
        return replace(self._with_progress(keying, view), partial=True)

    def _filled(self, block: SelectBlock) -> SelectBlock:
        made, windows = filled(self.planner.text, block)
        self.filled |= windows
        return made

    # ---- triggers that count

    def _count_rows(self, keying: Keying) -> None:
        """Let the node leave out rows of a run that came behind the one that fired, by their place in it."""
        block, live = self.block, self.block.live
        known = self.known(block.sources[live[0]]) if len(live) == 1 else None
        names = [field.name for field in known.fields] if isinstance(known, View) else []
        ordered = isinstance(known, Stream) or parts_of(names)
        grouped = not block.sets and (block.keys is not None or keying.kind == "whole")
        # What a condition asks of a stream makes rows come and go that are in no order; nor are those made of one row.
        if not ordered or self._asks_live() or block.generates or block.distinct or not grouped:
            return
        item = block.sources[live[0]]
        self.counted, self.parts = self.input_of(item), len(keying.parts)
        text = FromText(block, self.writer)
        same = " AND ".join(f"__t.__k{i} <=> ({text.expr(part.expr)})" for i, part in enumerate(keying.parts)) or "true"
        upto = f"(SELECT max(__t.__upto) FROM `{TAKES}` AS __t WHERE {same})"
        shown = f"coalesce({PLACE} <= {upto}, true)"
        if self._by_row(live[0]):
            self.guard = Expr((shown,))
        else:  # rows behind it must not make windows either
            scan = item.scan
            assert item.window is not None and scan is not None
            self.scan_text(scan)
            name = f" AS {quote_name(item.label)}" if item.label is not None else ""
            rows = f"(SELECT * FROM {quote_name(self.counted)}{name} WHERE {shown})"
            self.window_rows[id(item.window)] = rows

    def _asks_live(self) -> bool:
        """Whether an expression asks what changes."""
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
        if keying.kind == "join":
            self._tell_apart()
        self.plain = over[0]
        self.hidden = hidden
        found = self._known_fields(over, hidden)
        if found is None:
            text, found = self._checked(lambda: self.sql(self._with_items(self.without_ties(*over), hidden)))
        else:
            text = self.sql(self._with_items(over[0], hidden))
        fields = tuple(found[: len(block.items)])
        typed = {each.name.lower(): each for each in found}
        keys = fields if keying.every_column else tuple(typed[name.lower()] for name in names)
        if emit != "read":
            refuse_keys(self.planner.text, self.planner.query, keys)
        touches = self._touches(keying, keys) if emit != "read" else ()
        narrows = self._narrows(keying) if emit != "read" else ()
        view = self._view(emit, keying, text, fields, keys, touches, narrows)
        times = {**self._times(fields), **self._key_times(keying, names)}
        direct: tuple[Output, ...] = ()
        if self.main is not None and emit == "feed":
            _, panes, placed = self.main
            direct = direct_outputs(block, panes, placed.columns, placed.use.columns, fields)
        return replace(
            view, direct=direct, times=times, clock=self._clock(), cuts=self._cuts(),
            time=leading_time(fields, times) if view.node else "",
        )  # fmt: skip

    def _known_fields(
        self, over: tuple[SelectBlock, Sequence[Column] | None], hidden: Sequence[ShownItem]
    ) -> list[Field] | None:
        """The columns of a SELECT that runs as it was built, so that Spark has been asked for them; None for others."""
        block, keys = over
        if keys is not None or self.guard is not None or self.window_rows or self.without_ties(block) != block:
            return None
        types = [item.type for item in block.items]
        types += [item.expr.column.type if item.expr.column is not None else "" for item in hidden]
        names = [item.name or "" for item in (*block.items, *hidden)]
        return [Field(name, type) for name, type in zip(names, types, strict=True)] if all(types) else None

    def _with_items(self, block: SelectBlock, hidden: Sequence[ShownItem]) -> SelectBlock:
        """A SELECT with more items; where it only sorts what another one gives, they are that one's."""
        if not hidden:
            return block
        inner = block.sources[0].rel if len(block.sources) == 1 else None
        if not isinstance(inner, Derived):
            return replace(block, items=(*block.items, *hidden))
        columns = tuple(self.planner.new(each.name or "", each.type) for each in hidden)
        below = Derived(self._with_items(inner.block, hidden), (*inner.given, *columns), label=inner.label)
        more = (replace(each, expr=of_column(column)) for each, column in zip(hidden, columns, strict=True))
        source = replace(block.sources[0], rel=below)
        return replace(block, sources=(source,), items=(*block.items, *more))

    def _checked(self, text: Callable[[], str]) -> tuple[str, list[Field]]:
        """A query with its ties broken, and its columns; as it was if Spark does not take it that way."""
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
        kind = keying.kind if emit != "read" else ""
        world = self.planner.world
        return View(
            "?", "?", self.planner.query.span.of(self.planner.text), text, fields,
            tuple(placed.use for _, _, placed in self.partials), None, dict(self.streams), dict(self.tables),
            dict(self.views), emit, self.planner.start, (), bool(self.block.order) or self.block.limited,
            {table: world.table_at(table) for table in self.tables.values()},
            kind, keying.reason if kind else "", keys if kind else (), touches if kind else (),
            narrows if kind else (),
        )  # fmt: skip

    def _tell_apart(self) -> None:
        """Give each relation of a join a placeholder of its own, though some read the same."""
        for name, item in zip(self._apart(), self.block.sources, strict=True):
            scan = item.scan
            if name and scan is not None:
                self.renamed[id(scan)] = name

    # ---- keys

    def _touches(self, keying: Keying, keys: tuple[Field, ...]) -> tuple[Touch, ...]:
        """How to find the keys that new rows touch."""
        block = self.block
        if keying.kind != "keyed" and (not self.counting or self._asks_live()):
            return ()
        if self.main is not None:
            _, panes, placed = self.main
            columns = [quote_name(panes.keys[part.position].name) for part in keying.parts]
            source = placed.use.placeholder
            return (Touch(source, f"SELECT DISTINCT {items(columns)} FROM {quote_name(source)}"),)
        live = block.live
        if len(live) == 1 and (self._by_row(live[0]) or self.counted is not None):
            item = block.sources[live[0]]
            name = self.input_of(item)
            if keying.every_column:
                return (Touch(name, _numbered(self.sql(block), keys)),)
            asked = tuple(ShownItem(part.expr, f"k{index}") for index, part in enumerate(keying.parts))
            if self.counted is not None:
                asked = (*asked, ShownItem(Expr((PLACE,)), PLACE))
            if not self._by_row(live[0]):  # the rows that make the windows, each once
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
            name = self.input_of(item)
            source = quote_name(name)
            if item.window is not None and self._by_row(index):
                source = self.writer().windowed(item.window, source)
            columns = [f"__d.{quote_name(_name_in(item, part.columns[index]))}" for part in keying.parts]
            touches.append(Touch(name, f"SELECT DISTINCT {items(columns)} FROM {source} AS __d"))
        return tuple(dict.fromkeys(touches))

    def _narrows(self, keying: Keying) -> tuple[Narrow, ...]:
        """Which rows of which input are enough for the touched keys. A relation that is read twice is read whole."""
        if keying.kind != "keyed" or keying.every_column:
            return ()
        if self.main is not None:
            _, panes, placed = self.main
            return (Narrow(placed.use.placeholder, tuple(panes.keys[part.position].name for part in keying.parts)),)
        found: dict[str, set[Narrow]] = {}
        for index in self.block.live:
            item = self.block.sources[index]
            columns = tuple(_row_name(item, part.columns[index]) for part in keying.parts)
            times = tuple(self._along(item, part.columns[index]) for part in keying.parts)
            name = self.input_of(item)
            found.setdefault(name, set()).add(Narrow(name, columns, times))
        narrows = [next(iter(each)) for each in found.values() if len(each) == 1]
        return tuple(each for each in narrows if any(each.columns) or any(each.times))

    def _along(self, item: FromItem, column: Column | None) -> tuple[str, int, int] | None:
        """What the windows of an input lie along, where a column is a bound of them."""
        windowed = item.windowed
        if windowed is None or column not in windowed.bounds[:2] or windowed.along is None or windowed.window.rows:
            return None
        windows = sliding(window_of(windowed))
        if windows is None or windowed.along.type != "timestamp":
            return None
        span = (0, windows.size) if column == windowed.bounds[0] else (-windows.size, 0)
        return windowed.along.name, *span

    def _by_row(self, index: int) -> bool:
        """Whether a new row tells its own windows: otherwise no window is to be looked for among new rows alone."""
        window = self.block.sources[index].window
        return window is None or window.window.by_row

    # ---- times

    def _shown(self, fields: Sequence[Field]) -> Iterator[tuple[str, Expr]]:
        """The columns that a SELECT gives, with what they are."""
        return ((field.name, item.expr) for field, item in zip(fields, self.block.items, strict=False))

    def _times(self, fields: tuple[Field, ...]) -> dict[str, int]:
        """The output columns that are bounds of windows, or event times."""
        shown = ((name, expr.column) for name, expr in self._shown(fields))
        found = {name: self._shift(column) for name, column in shown if column is not None}
        return {name: shift for name, shift in found.items() if shift is not None}

    def _key_times(self, keying: Keying, names: Sequence[str]) -> dict[str, int]:
        """The columns of the key that are bounds of windows."""
        columns = {name: part.expr.column for name, part in zip(names, keying.parts, strict=False)}
        found = {name: self._shift(column) for name, column in columns.items() if column is not None}
        return {name: shift for name, shift in found.items() if shift is not None}

    def _shift(self, column: Column) -> int | None:
        """What to add to a column for the progress that has passed it; None if it does not progress."""
        index = self.block.owner.get(column)
        if index is None:
            return None
        item = self.block.sources[index]
        window = item.window
        if window is not None and (bound := _name_in(item, column)) in {each.name for each in window.bounds}:
            shift, later = closing_shift(window.window, bound), self._later(item)
            return min(shift + later, FOREVER) if shift is not None and later is not None else None
        name = _row_name(item, column)
        return self._time_of(item, name.lower()) if name is not None else None

    def _later(self, item: FromItem) -> int | None:
        """How far behind the end of a window of a relation progress is when all rows of that window are final; None if
        what its windows lie along does not progress, so that they never close."""
        window = self.window(item)
        assert window is not None
        if window.attribute != "column" or window.kind == "chunks":
            return 0
        if window.rows:
            return None
        known = self.known(item)
        if isinstance(known, Stream) and known.time is None:
            return 0  # ADVANCE says how far its rows have come, whatever column they are put into windows by
        shift = self._time_of(item, (window.time_column or "").lower())
        # The time of a window lies just before its end, which is at most that of the window it is put into.
        return (shift - 1 if shift > MILLISECOND else 0) if shift is not None else None

    def _time_of(self, item: FromItem, column: str) -> int | None:
        """What to add to a column of a relation for the progress that has passed it; None if it does not progress."""
        known = self.known(item)
        if isinstance(known, Stream):
            return 1 if known.time is not None and known.time.lower() == column else None
        times = known.settles if isinstance(known, View) else {}
        return next((shift for name, shift in times.items() if name.lower() == column), None)

    def _clock(self) -> str:
        """What the windows of a node close by."""
        for item in self.block.sources:
            window = self.window(item)
            if window is not None:
                if window.block:
                    return "chunks"
                if window.attribute == "row_num" or window.kind == "chunks":
                    return "rows"
                if window.attribute == "arrival_ts":
                    return "arrival"
                continue
            known = self.known(item)
            if isinstance(known, View) and known.clock != "event":
                return known.clock
        return "event"

    def _cuts(self) -> tuple[tuple[str, str], ...]:
        """The streams whose chunks are counted, and the columns that end them."""
        found: list[tuple[str, str]] = []
        for item in self.block.sources:
            known, window = self.known(item), self.window(item)
            if isinstance(known, Stream) and window is not None and window.block and window.time_column is not None:
                found.append((known.id, window.time_column))
            elif isinstance(known, View):
                found += known.cuts
        return tuple(dict.fromkeys(found))

    def _ends(self, view: View, keying: Keying) -> Ends | None:
        """When the windows of a node end, where other rows than a row's own make them and event time closes them."""
        live = self.block.live
        if len(live) != 1 or self._by_row(live[0]) or view.clock != "event" or view.blocks:
            return None
        item = self.block.sources[live[0]]
        window = self.window(item)
        windowed = item.windowed
        assert window is not None
        shift = closing_shift(window, "window_end")
        if shift is None or window.rows or window.own or windowed is None or self._later(item) != 0:
            return None
        found = Ends(self.input_of(item), window.time_column or "", window.size + shift)
        if window.kind == "session":
            apart = tuple(name.last for name in window.partition)
            found = replace(found, gap=window.size, apart=apart, single=keying.single)
        elif window.kind == "slide_by_row":
            found = replace(found, after=shift)
        else:
            every = window.slide if window.kind == "landmark" else window.size
            found = replace(found, after=0, every=every, origin=window.offset)
        start, *others = windowed.bounds[:3]
        shown = [(name, expr.column) for name, expr in self._shown(view.fields) if expr.column is not None]
        ends = [name for name, column in shown if column in others and name in view.times]
        return replace(found, columns=tuple(ends), starts=tuple(name for name, column in shown if column == start))

    # ---- joins

    def _columns_named(self, item: FromItem, names: Iterable[str]) -> frozenset[Column]:
        """The columns of the rows of a relation that have these names; those of a window hide them."""
        bounds = item.windowed.bounds if item.windowed is not None else ()
        found = (item.named(name) for name in names)
        return frozenset(column for column in found if column is not None and column not in bounds)

    def _own_times(self, item: FromItem) -> list[str]:
        """The columns of an input that are event times, without those of its windows."""
        if isinstance(item.rel, Project):
            return []
        known = self.known(item)
        if isinstance(known, Stream):
            return [known.time.lower()] if known.time is not None else []
        return [name.lower() for name in known.times] if isinstance(known, View) else []

    def _bounded_times(self, item: FromItem) -> list[str]:
        """The event times of an input that are known to progress column by column."""
        known, own = self.known(item), self._own_times(item)
        return own if not isinstance(known, View) else [name.lower() for name in bounded(known) if name.lower() in own]

    def _row_times(self, item: FromItem) -> frozenset[str]:
        """The event times of an input that are those of its rows, not bounds of windows that a query put them into.

        Of a view whose changes are kept, the one that these are found by.
        """
        known = self.known(item)
        own = frozenset() if item.static else frozenset(self._own_times(item))
        if isinstance(known, View) and known.kept:
            return own & {known.time.lower()}
        bounds = {name.lower() for name, shift in known.times.items() if shift != 1} if isinstance(known, View) else ()
        return own.difference(bounds)

    def _near(self) -> tuple[tuple[Near, ...], int]:
        """Which rows of the streams of a join can meet; and within how many steps all are that matter to a new one.

        One that comes from n inputs is at most n - 1 steps from each row that says whether it does.
        """
        block = self.block
        names = self._apart()
        near: list[Near] = []
        times = [self._columns_named(item, self._row_times(item)) for item in block.sources]
        for band in find_bands(block, times):
            one, other = (block.owner[column] for column in (band.one, band.other))
            known = [self.known(block.sources[index]) for index in (one, other)]
            if all(map(self._passes, known)):
                # The time of a window that is no longer than that is as near to its rows.
                wider = MILLISECOND * sum(isinstance(each, View) and not each.kept for each in known)
                least = None if band.least is None else band.least - wider
                most = None if band.most is None else band.most + wider
                near.append(Near(names[one], names[other], least, most))
        live = [name for name in names if name]
        return tuple(near), 2 * (len(live) - 1) if chained(near, live) else 0

    def _apart(self) -> list[str]:
        """The placeholders of inputs, each one of its own though some read the same; none for static tables."""
        names: list[str] = []
        for item in self.block.sources:
            name = "" if item.static or item.scan is None else self.input_of(item)
            count = sum(known.partition("#")[0] == name for known in names) if name else 0
            names.append(f"{name}#{count}" if count else name)
        return names

    def _sides(self) -> tuple[Side, ...]:
        """The inputs of a join that change; none where it is no join."""
        found = []
        for name, item in zip(self._apart(), self.block.sources, strict=True):
            if not name:
                continue
            known = self.known(item)
            called = item.label or (known.name if isinstance(known, Stream | View) else "")
            own = self._own_times(item)
            time = known.time if isinstance(known, Stream) else next(iter(own), None)
            if isinstance(known, View) and known.kept and known.time.lower() in own:
                time = known.time
            versions = isinstance(known, View) and any(field.name.startswith(UNTIL) for field in known.fields)
            found.append(Side(name, called, time or "", versions))
        return tuple(found) if len(found) > 1 else ()

    def _through(self, kind: type) -> dict[str, str]:
        """The inputs that are queries which only filter and project the rows of a stream, and that stream; or, if the
        `kind` asked for are views, the rows of one whose changes are kept, and those that are such a view."""
        found: dict[str, str] = {}
        for name, item in zip(self._apart(), self.block.sources, strict=True):
            known = self.known(item) if name else None
            below = self._passes(known)
            if below is not None and isinstance(below, kind) and isinstance(known, View):
                found[name] = below.id
        return found

    def _passes(self, known: object) -> Stream | View | None:
        """The stream or view with an event time whose rows an input has, each on its own; None for anything else.

        What is between has to show that time, and no other that could be taken for it.
        """
        if isinstance(known, Stream):
            return known if known.time is not None else None
        if isinstance(known, View) and known.kept:
            return known if known.time else None
        if not isinstance(known, View) or known.node != "stateless" or len(known.inputs) != 1:
            return None
        for id in known.streams.values():
            return self._passes(self.planner.object(id))
        (id,) = known.views.values()
        below = self._passes(self.planner.object(id))
        return None if isinstance(below, View) and dict(below.times) != {below.time: 1} else below

    def _following(self, view: View) -> View:
        """A view of rows with the next of each, where that is looked for within bounds: new rows touch no others."""
        block = self.block
        found = find_following(block)
        if found is None or len(block.sources) != 1 or block.sources[0].static or block.limited:
            return view
        (item,) = block.sources
        if item.window is not None or not view.in_time or view.clock != "event" or not view.node:
            return view
        column, distance = found
        if self._passes(self.known(item)) is None or column not in self._columns_named(item, self._row_times(item)):
            return view
        name = self.input_of(item)
        return replace(view, near=(Near(name, name, -distance, distance),), nearby=1)

    def _spread(self, view: View) -> str:
        """The query for Spark where the only thing that its streams have in common is their time; else nothing."""
        names = [each.name for each in view.fields]
        known = [each for each in view.near if each.least is not None and each.most is not None]
        if len(view.inputs) != 2 or len(known) != 1 or view.views or len(set(names)) != len(names):
            return ""
        if joined_by_equals(self.block):
            return ""
        streams = [self.planner.catalog.stream(view.streams[name]) for name in (known[0].one, known[0].other)]
        if any(field.type != "timestamp" for each in streams for field in each.fields if field.name == each.time):
            return ""
        asked = [*([self.plain.where] if self.plain.where is not None else []), Expr((SAME,))]
        text = self.sql(replace(self.plain, where=conjunction(asked)))
        return spread(text, known[0], (streams[0].time or "", streams[1].time or ""), names)

    def _with_progress(self, keying: Keying, view: View) -> View:
        """A view with what is known of how its columns progress, where it joins or reads what does."""
        block = self.block
        # What reads no stream never brings a row that is late.
        static = [each.static or self._reads_no_stream(each) for each in block.sources]
        live = [each for each, never in zip(block.sources, static, strict=True) if not never]
        meets = [known.meets for each in live if isinstance(known := self.known(each), View)]
        if block.limited or (len(live) < 2 and not any(meets)) or any(each.scan is None for each in live):
            return view
        calls = {
            name: 1
            for name, expr in self._shown(view.fields)
            if len(live) > 1
            and (call := time_call(expr)) is not None
            and all(each.column and self._shift(each.column) == 1 for each in call[1])
        }
        keys = {key.name: part.expr for key, part in zip(view.keys, keying.parts, strict=False)}
        sources = tuple(replace(each, static=never) for each, never in zip(block.sources, static, strict=True))
        pairs = list(zip(block.sources, static, strict=True))
        times = [
            frozenset() if never else self._columns_named(each, self._bounded_times(each)) for each, never in pairs
        ]
        placeholders = ["" if never else self.input_of(each) for each, never in pairs]
        inner = all(each is None or each.inner for each in meets)
        join = Join(replace(block, sources=sources), placeholders, times, inner)
        found = find_meets(join, replace(view, times={**view.times, **calls}), keys)
        known = found.behind if found is not None else {}
        return replace(view, meets=found, times={**view.times, **{name: 1 for name in calls if name in known}})

    def _reads_no_stream(self, item: FromItem) -> bool:
        known = self.known(item)
        return isinstance(known, View) and self.planner.reads_no_stream(known)

    # ---- window functions that look ahead

    def _with_ahead(self, view: View) -> View:
        """A view with what its rows wait for because of its window functions."""
        ahead = looks_ahead(self.block, self._passes_with(view))
        if ahead is None:
            return view
        if not self.planner.settled(view):
            return _waiting(view, FOREVER)
        view = self._with_windows_passed(view)
        if any(key.name in view.times for key in view.keys):  # all of them look at rows of one time
            return _waiting(view, 0)
        if not ahead.rows or ahead.time == FOREVER:
            return _waiting(view, ahead.time)
        # The query that tells is needed only where rows wait; one more column must change neither groups nor rows.
        adds = not self.block.sets and not self.block.distinct
        if not self.planner.waits or view.node not in ("keyed", "whole") or view.clock != "event" or not adds:
            return _waiting(view, FOREVER)
        hidden = [*self.hidden, ShownItem(self._final(ahead.rows), FINAL)]
        final = self.sql(self._with_items(self.without_ties(self.plain), hidden))
        view = _waiting(view, ahead.time)
        return replace(view, next_rows=max(each.number for each in ahead.rows), final=final)

    def _with_windows_passed(self, view: View) -> View:
        """A view whose rows are final when their windows have passed, which can be long after their own times."""
        windowed = next((each.windowed for each in self.block.sources if each.windowed is not None), None)
        columns = {name: expr.column for name, expr in self._shown(view.fields)}
        keys = {key.name for key in view.keys}
        by = view.times.keys() & {closing_column(view), *keys}
        if windowed is None or not any(columns.get(name) in (None, *windowed.bounds) for name in by):
            return view
        size = windowed.window.size if isinstance(type_of(windowed.window), SlidingWindows) else FOREVER
        own = {name for name, column in columns.items() if column not in windowed.bounds and name not in keys}
        times = {name: min(shift + (size if name in own else 0), FOREVER) for name, shift in view.times.items()}
        return replace(view, times=times)

    def _final(self, rows: Iterable[NextRow]) -> Expr:
        """The progress that is past all these rows, in microseconds: the end of the stream while one is not there."""
        wanted: dict[tuple[Over, Expr, int], int] = {}  # of one order, the furthest row is past the others
        for each in rows:
            over = tied_window(each.call, self.block, self.planner.event_times)
            key = replace(over, frame=""), each.time, each.shift
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

    def _passes_with(self, view: View) -> Callable[[Expr], int | None]:
        """For times of the one input that have passed when the column has by which a row of this node is shown: what to
        add to them for the progress that is past them."""
        shown = dict(self._shown(view.fields))
        closing = shown.get(closing_column(view) or "")
        closes = closing.column if closing is not None and len(self.block.live) == 1 else None
        if closes is not None and self._shift(closes) is None:
            closes = None
        item = self.block.sources[self.block.owner[closes]] if closes is not None else None
        windowed = item.windowed if item is not None else None
        times: tuple[Column | None, ...] = (closes,)
        if windowed is not None and closes in windowed.bounds:
            times = (*windowed.bounds, *([windowed.along] if windowed.window.by_row else []))

        def passes(expr: Expr) -> int | None:
            column = expr.column if closes is not None else None
            return self._shift(column) if column is not None and column in times else None

        return passes

    # ---- one node of two

    def _retaining(self, view: View) -> View:
        """A view with what it can go on from, where it need not look at the rows of the past again."""
        if view.node != "keyed" or view.clock != "event" or view.blocks or view.tables or len(view.inputs) != 1:
            return view
        if is_distinct(self.block):
            return replace(view, retained={})
        return replace(view, retained=first_ranked(self.block) or None)

    def _fused(self, view: View) -> View | None:
        """This node and the one below it as one, where this one only filters and shapes what that one computes.

        What is between them then is never kept: of a ranking of all rows, say, only the first of each group.
        """
        if view.node != "stateless" or len(self.block.sources) != 1:
            return None
        (item,) = self.block.sources
        below = self.known(item) if isinstance(item.rel, Scan) else None
        nodes = self.planner.nodes
        if not isinstance(below, View) or not nodes or below is not nodes[-1] or self.planner.is_shared(below):
            return None
        plain = below.emit == "feed" and below.late == "correct" and not below.stream and not below.counted
        if below.node not in ("keyed", "join") or not plain or below.blocks or below.triggers:
            return None
        names, hidden = [], []
        for index, key in enumerate(below.keys):
            shown = self._passed_through(view, key.name)
            if shown is None:
                shown = KEY.format(index)
                hidden.append(ShownItem(Expr((quote_name(key.name),)), shown))
            names.append(shown)
        columns = ", ".join(quote_name(field.name) for field in (*below.fields, *below.hidden))
        inside = f"(SELECT * FROM ({below.text}) AS __rows({columns}))"
        name = quote_name(f"@v:{below.id}")
        text = self.sql(self._with_items(self.plain, hidden))
        shows_closing = self._shows_closing(view, below)
        # Where no time is shown, rows are those that the nodes below have let through.
        waits = shows_closing or (leading_column(view) is None and not below.final)
        final = ""
        if below.final and shows_closing:
            rows = f"(SELECT * FROM ({below.final}) AS __rows({columns}, {FINAL}))"
            more = [*hidden, ShownItem(Expr((FINAL,)), FINAL)]
            final = self.sql(self._with_items(self.plain, more)).replace(name, rows)
            passed = below.times[closing_column(below) or ""]
            view = replace(view, times={**view.times, leading_column(view) or "": passed})
        if below.ahead is not None and not waits:
            view = _waiting(view, FOREVER)
        nodes.remove(below)
        ranked = first_of(self.planner.typed[below.id], [each.name for each in below.fields], self.block)
        return replace(
            view,
            retained=(ranked or None) if below.node == "keyed" and not below.tables else None,
            text=text.replace(name, inside),
            final=final,
            next_rows=below.next_rows if final else 0,
            spread=text.replace(name, f"({below.spread})") if below.spread else "",
            node=below.node,
            near=below.near,
            nearby=below.nearby,
            through=below.through,
            timed=below.timed,
            sides=below.sides,
            meets=through(view.meets, below.meets),
            ends=self._passed_ends(view, below),
            ahead=below.ahead if waits else view.ahead,
            keys=tuple(Field(name, key.type) for name, key in zip(names, below.keys, strict=True)),
            touches=below.touches,
            narrows=below.narrows,
            streams=below.streams,
            tables=below.tables,
            views=below.views,
            statics_at=below.statics_at,
        )

    def _shows_closing(self, view: View, below: View) -> bool:
        """Whether rows of this node are shown by the same time as those of the node below would be."""
        closing = closing_column(below)
        return closing is not None and self._passed_through(view, closing) == leading_column(view)

    def _passed_ends(self, view: View, below: View) -> Ends | None:
        """When the windows of the node below end, as this one shows it."""
        return None if below.ends is None else below.ends.renamed(lambda column: self._passed_through(view, column))

    def _passed_through(self, view: View, column: str) -> str | None:
        """The output column that is a column of the only relation as it stands."""
        own = self.block.sources[0].named(column) if self.block.sources else None
        return next((name for name, expr in self._shown(view.fields) if own and expr.column == own), None)


def _waiting(view: View, ahead: int) -> View:
    """A view whose rows can still change so long after their times: these pass by so much later."""
    times = {name: min(shift + ahead, FOREVER) for name, shift in view.times.items()}
    return replace(view, ahead=ahead, times=times)


def _rows_of(item: FromItem) -> Rel:
    """The rows that the windows of a relation are of."""
    assert item.window is not None
    return item.window.input


def _reads_stream(item: FromItem) -> bool:
    scan = item.scan
    return scan is not None and scan.source.kind == "stream"


def _name_in(item: FromItem, column: Column | None) -> str:
    """The name of a column before an alias has given it another."""
    rel = item.rel
    while isinstance(rel, Project):
        column = next(expr.column for own, expr in rel.items if own == column)
        rel = rel.input
    return column.name if column is not None else ""


def _row_name(item: FromItem, column: Column | None) -> str | None:
    """The name that a column has in the rows themselves; None for one that is in no row."""
    own = item.row_column(column) if column is not None else None
    return own.name if own is not None else None


def _numbered(text: str, keys: Sequence[Field]) -> str:
    """A query whose columns are the key, under the names that keys have."""
    names = ", ".join(f"`k{index}`" for index in range(len(keys)))
    return f"SELECT DISTINCT * FROM ({text}) AS __rows({names})"


def closing_column(view: View) -> str | None:
    """The column of an answer that tells when the window of its row closes."""
    return leading_column(view) if view.node != "stateless" else None


def leading_column(view: View) -> str | None:
    names = [field.name for field in view.fields if field.name in view.times]
    return min(names, key=lambda name: name.lower() != "window_end", default=None)


def items(expressions: Sequence[str]) -> str:
    return ", ".join(f"{expression} AS `k{index}`" for index, expression in enumerate(expressions))


def refuse_keys(text: str, query: Query, keys: Sequence[Field]) -> None:
    """What was shown is found again by its keys: they have to be equal to themselves, in a file too."""
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
        raise refuse(text, query.span, f"the changes of this query cannot be kept: its key {key.name} {what}", hint)
