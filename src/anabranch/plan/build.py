"""One node of a view: a query whose relations become placeholders, whose text is Spark SQL over them, with its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import END, FOREVER
from anabranch.algebra.reach import Near, chained
from anabranch.algebra.windows import MILLISECOND, SlidingWindows
from anabranch.errors import NotSupported, SqlError
from anabranch.ir.build import Builder, Found
from anabranch.ir.expr import Column, Expr
from anabranch.ir.rel import Project, Rel
from anabranch.ir.select import FromItem, SelectBlock
from anabranch.plan.ahead import FINAL, NextRow, looks_ahead, without_frame
from anabranch.plan.bind import Binder, Reference, refuse
from anabranch.plan.blocks import Block, find_block, read_edits
from anabranch.plan.buckets import SAME, spread
from anabranch.plan.catalog import (
    ASKED,
    WINDOW_COLUMNS,
    Ends,
    Field,
    Narrow,
    Side,
    Stream,
    Table,
    Touch,
    View,
    leading_time,
    window_type,
)
from anabranch.plan.context import PlanningContext, found_node
from anabranch.plan.facts.append_only import first_of, first_ranked, is_distinct
from anabranch.plan.facts.bands import find_bands
from anabranch.plan.facts.following import find_following
from anabranch.plan.facts.keys import Keying, find_keys, joined_by_equals
from anabranch.plan.facts.progress import Join, find_meets, of_union, through, time_call, union_times
from anabranch.plan.inputs import Input, limited
from anabranch.plan.lookup_nodes import asked_table
from anabranch.plan.outside import place_lookups
from anabranch.plan.pairs_text import PAIRS, added_up, worth_it
from anabranch.plan.parts import gives_records, is_inside, parts_of, stays_met
from anabranch.plan.plane import bounded
from anabranch.plan.rewriting import with_condition, with_hidden
from anabranch.plan.ties import Places, break_ties, checked
from anabranch.plan.views import Placed, direct_outputs
from anabranch.plan.windows import closing_shift, micros_sql, sliding, type_of
from anabranch.plan.winners import event_times
from anabranch.sql.calls import aggregate_calls, chains
from anabranch.sql.lexer import Span, Token, quote_name, tokenize
from anabranch.sql.splice import Edit, Spliced
from anabranch.sql.syntax import Opaque, Query, Relation, Select, SetOperation
from anabranch.sql.versions import UNTIL

if TYPE_CHECKING:
    from anabranch.plan.nodes import Tree

KEY = "_k{}"
NO_STREAM = "its FROM clause reads no stream"
#: The place of a record among those of its run, and the placeholder of the last places that a key may show.
PLACE = "_place"
TAKES = "@takes"


@dataclass(frozen=True)
class InlineCte:
    """A common table expression that stays in the text of a node."""

    name: str
    columns: tuple[str, ...]
    query: Query


class Build:
    """One node being made: its relations become placeholders, its text Spark SQL over them."""

    def __init__(
        self, tree: Tree, query: Query, ctes: Mapping[str, View], cut: bool, inline: Sequence[InlineCte]
    ) -> None:
        self.tree = tree
        self.text = tree.text
        self.query = query
        self.ctes = ctes
        self.cut = cut
        self.inline = inline
        self.binder = Binder(tree.text, tree.catalog, query)
        self.binder.ctes = {**{name: tree.named[name] for name in ctes}, **self.binder.ctes}
        self.views: dict[str, View] = {}  # placeholder -> node below, or a view of the catalog
        self.edits: list[Edit] = []
        self.blocks: list[tuple[Block, Placed]] = []
        self.counting = False  # whether its trigger counts records
        self.counted: str | None = None
        self.guard: list[Edit] = []
        self.guarded: dict[str, Reference] = {}  # what it reads in place of a relation
        self.unnamed = 0
        self.hidden: list[tuple[str, str]] = []  # the columns of its key that it does not show, and what they are
        self.block = SelectBlock((), ())
        self.untyped = ""  # why there is no typed form of its SELECT
        self.ties: list[Edit] = []

    # ---- relations

    def place(self, view: View) -> str:
        placeholder = f"@v:{view.id}"
        self.views[placeholder] = view
        return quote_name(placeholder)

    def replace_relation(self, relation: Relation) -> None:
        """Put a node in place of a subquery or of the name of a common table expression."""
        node: View | None = None
        if relation.subquery is not None:
            if not self.tree.reads_live(relation.subquery, self.ctes):
                return
            if not self.cut and not relation.subquery.emits:
                return
            if relation.lateral:  # what it shows depends on the row beside it
                self.names_inside(relation.subquery)
                return
            by_key = self.tree.by_key
            self.tree.by_key = by_key and not is_inside(relation)
            node = self.tree.below(relation.subquery, self.ctes, stays=stays_met(relation))
            self.tree.by_key = by_key
        elif relation.kind == "name" and relation.name is not None and len(relation.name.parts) == 1:
            node = self.ctes.get(relation.name.last.lower())
        if node is None:
            return
        self.put(relation, node)

    def put(self, relation: Relation, node: View) -> str:
        """Put a node in place of a relation, or of the node that is there; the name that it has in the text."""
        before = next((edit for edit in self.edits if edit.span == relation.span), None)
        if before is not None:
            self.edits.remove(before)
            texts = [edit.text for edit in self.edits]
            unread = [each for each in self.views if not any(quote_name(each) in text for text in texts)]
            for each in unread:
                del self.views[each]
        source = self.place(node)
        if node.asks:  # when a row was asked for is nobody's business above: ties must not be broken by it
            shown = ", ".join(quote_name(field.name) for field in node.fields if field.name != ASKED)
            source = f"(SELECT {shown} FROM {source})"
        if relation.window is not None:
            self.binder.check_window(relation.window, node.fields)
            source = self.binder.windowed(source, relation, node.fields)
        name = relation.exposed
        if name is None:
            self.unnamed += 1
            name = f"__n{self.unnamed}"
        if relation.alias is None and (relation.exposed is not None or relation.window is None):
            source += f" AS {quote_name(name)}"
        self.edits.append(Edit(relation.span, source))
        return name

    def names_inside(self, query: Query) -> None:
        """Names of common table expressions inside a query that stays where it is."""
        shadowed = query.cte_names()
        for relation in query.relations():
            if relation.subquery is None and relation.name is not None and relation.name.last.lower() not in shadowed:
                self.replace_relation(relation)

    # ---- the view

    def view(self, emit: str, *, counted: bool) -> View:
        body = self.query.body
        if isinstance(body, Select):
            return self._select(body, emit, counted)
        if isinstance(body, SetOperation) and self.cut and not limited(self.query):
            return self._set_operation(body, emit)
        if isinstance(body, SetOperation | Query):
            for each in self.query.nested():
                if not any(each is inner for _, inner in self.query.ctes):
                    self.names_inside(each)
            for operand in body.operands if isinstance(body, SetOperation) else ():
                if isinstance(operand, Select):
                    for relation in operand.relations:
                        self.replace_relation(relation)
            return self._finish(emit, Keying("whole", reason="it is computed from several queries"), None, (), ())
        return self._finish(emit, Keying("whole", reason=NO_STREAM), None, (), ())

    def _set_operation(self, body: SetOperation, emit: str) -> View:
        """UNION, INTERSECT, EXCEPT: a row is touched by its equals in any operand."""
        touches: list[tuple[str, str]] = []
        rows: list[Select] = []
        times: list[tuple[str, dict[int, tuple[str, int]]]] = []
        for operand in body.operands:
            if isinstance(operand, Select) and self._is_stateless(operand):
                rows.append(operand)
            elif not isinstance(operand, Opaque):
                query = operand if isinstance(operand, Query) else Query(operand.span, operand)
                if self.tree.reads_live(query, self.ctes):
                    source = self.place(node := self.tree.below(query, self.ctes))
                    self.edits.append(Edit(query.span, f"SELECT * FROM {source}"))  # brackets around it stay
                    touches.append((list(self.views)[-1], self.edits[-1].text))
                    names = [each.name for each in node.fields]
                    shown = [name for name in bounded(node) if name in names]  # a key may be hidden
                    known = {names.index(name): (name.lower(), node.settles[name]) for name in shown}
                    times.append((touches[-1][0], known))
        for select in rows:
            for relation in select.relations:
                self.replace_relation(relation)
        for select in rows:
            self.read_block(select)
            (live,) = self.block.live
            touches.append(
                (
                    self._live_placeholder(select.relations[live]),
                    self.binder.bind(select.span, extra=self.edits).text.text,
                )
            )
            times.append((touches[-1][0], self._times_by_position(select, live)))
        keying = Keying("keyed", every_column=True) if touches else Keying("whole", reason=NO_STREAM)
        view = self._finish(emit, keying, None, (), tuple(touches))
        meets = of_union(times, view.fields)
        if meets is None:
            return view
        shown_times = union_times(times, view.fields)
        return replace(view, meets=meets, times=shown_times, time=leading_time(view.fields, shown_times))

    def _times_by_position(self, select: Select, live: int) -> dict[int, tuple[str, int]]:
        """The columns of a SELECT over one stream that are its event times, by their places."""
        relation = select.relations[live]
        if relation.window is not None:
            return {}
        own = self._columns_named(live, self._bounded_times(relation))
        found: dict[int, tuple[str, int]] = {}
        for place, item in enumerate(self.block.items):
            column = item.expr.column
            shift = self._shift(select, column) if column in own else None
            if column is not None and shift is not None:
                found[place] = column.name.lower(), shift
        return found

    def _is_stateless(self, select: Select) -> bool:
        named = [each for each in select.relations if not self._is_cte(each)]
        if any(each.subquery is not None or asked_table(self.binder, each) for each in named):
            return False
        self.read_block(select)
        return not self.untyped and find_keys(replace(self.block, limited=False)).kind == "stateless"

    def read_block(self, select: Select) -> None:
        """Read a SELECT into its typed form: nodes stand in the place of what they compute."""
        names = PlanningContext(self.text, self.tree.catalog, self.query, self._analyzed, self._columns_of_file)
        builder = Builder(self.text, names, self._placed)
        self.block, self.untyped = SelectBlock((), ()), ""
        try:
            ctes: dict[str, Rel] = {}
            for each in self.inline:
                ctes[each.name.lower()] = builder.cte(each.name, each.query, each.columns, ctes)
            self.block = builder.block(self.query, select, ctes)
        except SqlError as error:
            self.untyped = error.message

    def _placed(self, relation: Relation) -> Found | None:
        node = self._node(relation)
        return None if node is None else found_node(node, relation.exposed or node.name)

    def _analyzed(self, text: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        return self.tree.world.analyze(text.text, {name: tuple(fields) for name, fields in schemas.items()})

    @staticmethod
    def _columns_of_file(reference: Reference) -> Sequence[Field]:
        raise NotSupported(f"{reference.target} is no stream, view or table")

    def _select(self, select: Select, emit: str, counted: bool) -> View:
        for relation in select.relations:
            self.replace_relation(relation)
        for inner in select.subqueries:
            self.names_inside(inner)
        place_lookups(self, select, self._inputs(select, placed=True))
        inputs = self._inputs(select, placed=True)
        self.read_block(select)
        by_key = self.tree.by_key and not gives_records(select)
        keying = find_keys(self.block, by_key=by_key)
        if self.untyped:
            keying = Keying("whole", reason=self.untyped)
        if not any(not each.static for each in inputs):
            keying = Keying("whole", reason=NO_STREAM)
        partial = select.span in self.tree.partial
        if partial:
            keying = Keying("join")
        if keying.kind not in ("stateless", "join") and not counted:
            self._place_blocks(select)
        block = next((pair for pair in self.blocks if pair[0].select is select), None)
        self.counting = counted
        if counted:
            self._count_rows(select, inputs, keying)
        view = self._finish(emit, keying, select, inputs, (), block)
        near, nearby = self._near(select, inputs)
        through, timed = self._through(inputs, Stream), self._through(inputs, View)
        view = replace(view, counted=self.counted, near=near, through=through, timed=timed, sides=self._sides(inputs))
        if keying.pairs and view.in_time and view.clock == "event" and view.node:
            view = replace(view, nearby=nearby)
        view = self._following(select, view)
        view = self._with_progress(select, inputs, keying, view)
        if partial:
            return replace(view, partial=True)
        view = replace(view, ends=self._ends(select, inputs, view, keying) if view.node else None)
        view = self._with_ahead(select, inputs, view)
        if view.node == "join":
            view = replace(view, spread=self._spread(select, view))
        if self.tree.splits is not None and worth_it(select, self.query, inputs, view):
            self._split(select, inputs, self.tree.splits)
        return self._fused(select, view) or self._retaining(view)

    def _retaining(self, view: View) -> View:
        """A view with what it can go on from, where it need not look at the rows of the past again."""
        if view.node != "keyed" or view.clock != "event" or view.blocks or view.tables or len(view.inputs) != 1:
            return view
        if is_distinct(self.block):
            return replace(view, retained={})
        return replace(view, retained=first_ranked(self.block) or None)

    def _with_ahead(self, select: Select, inputs: Sequence[Input], view: View) -> View:
        """A view with what its rows wait for because of its window functions."""
        ahead = looks_ahead(select, self.query, self._passes_with(select, inputs, view))
        if ahead is None:
            return view
        if not self.tree.settled(view):
            return _waiting(view, FOREVER)
        view = self._with_windows_passed(view)
        if any(key.name in view.times for key in view.keys):  # all of them look at rows of one time
            return _waiting(view, 0)
        if not ahead.rows or ahead.time == FOREVER:
            return _waiting(view, ahead.time)
        # The query that tells is needed only where rows wait; one more column must change neither groups nor rows.
        adds = select.group_plain and not select.distinct
        if not self.tree.waits or view.node not in ("keyed", "whole") or view.clock != "event" or not adds:
            return _waiting(view, FOREVER)
        hidden = [*self.hidden, (FINAL, self._final(ahead.rows))]
        final = self._bound([*self._guarded(), *self._with_clause(self.ties), *self.ties, *with_hidden(select, hidden)])
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

    def _final(self, rows: Iterable[NextRow]) -> str:
        """The progress that is past all these rows, in microseconds: the end of the stream while one is not there."""
        edits = [*self._guarded(), *self.ties]
        wanted: dict[tuple[str, str, int], int] = {}  # of one order, the furthest row is past the others
        for each in rows:
            window = self._bound(edits, each.over)
            window = window[1:-1] if window.startswith("(") else self._bound(edits, each.definition)
            time = self._bound(self._guarded(), each.time)  # what breaks ties stands behind it
            key = without_frame(window), time, each.shift
            wanted[key] = max(each.number, wanted.get(key, 0))
        times = [
            f"coalesce({micros_sql(f'lead({time}, {number}) OVER ({window})')} + {shift}, {END})"
            for (window, time, shift), number in wanted.items()
        ]
        return f"greatest({', '.join(times)})" if len(times) > 1 else times[0]

    def _passes_with(
        self, select: Select, inputs: Sequence[Input], view: View
    ) -> Callable[[Sequence[Token]], int | None]:
        """For times of the one input that have passed when the column has by which a row of this node is shown: what to
        add to them for the progress that is past them."""
        shown = dict(self._shown(view.fields))
        live = [each for each in inputs if not each.static]
        closing = shown.get(closing_column(view) or "")
        closes = closing.column if closing is not None and len(live) == 1 else None
        if closes is not None and self._shift(select, closes) is None:
            closes = None
        source = self.block.sources[self.block.owner[closes]] if closes is not None else None
        windowed = source.windowed if source is not None else None
        times: tuple[Column | None, ...] = (closes,)
        if windowed is not None and closes in windowed.bounds:
            times = (*windowed.bounds, *([windowed.along] if windowed.window.by_row else []))

        def passes(tokens: Sequence[Token]) -> int | None:
            named = list(chains(tokens))
            whole = len(named) == 1 and named[0].span == Span(tokens[0].start, tokens[-1].end)
            column = self.block.find(named[0].parts) if whole and closes is not None else None
            return self._shift(select, column) if column is not None and column in times else None

        return passes

    def _split(self, select: Select, inputs: Sequence[Input], splits: list[Edit]) -> None:
        """Have the pairs of a join added up in a node of their own, when all of it is planned again."""

        def types(expressions: Sequence[str]) -> list[str]:
            assert select.from_span is not None
            bound = Binder(self.text, self.tree.catalog, self.query).bind(select.from_span, extra=self.edits)
            schemas = self._schemas(bound.references)
            found: dict[str, str] = {}
            whole = [each for each in expressions if any(aggregate_calls(tokenize(each)[:-1]))]
            for group in (whole, [each for each in expressions if each not in whole]):
                if group:
                    listed = ", ".join(f"{each} AS `x{index}`" for index, each in enumerate(group))
                    fields = self.tree.world.analyze(f"SELECT {listed} FROM {bound.text.text}", schemas)
                    found |= {each: field.type for each, field in zip(group, fields, strict=True)}
            return [found[each] for each in expressions]

        names = (PAIRS.format(number) for number in count())
        name = next(each for each in names if each not in self.text.lower() and each not in self.tree.pairs)
        self.tree.pairs.append(name)
        splits += added_up(self.text, select, self.query, inputs, types, name, self.query is self.tree.whole)

    def _fused(self, select: Select, view: View) -> View | None:
        """This node and the one below it as one, where this one only filters and shapes what that one computes.

        What is between them then is never kept: of a ranking of all rows, say, only the first of each group.
        """
        if view.node != "stateless" or len(select.relations) != 1:
            return None
        (relation,) = select.relations
        below = self._node(relation) if relation.window is None else None
        if relation.subquery is None or relation.alias_columns or below is None:
            return None
        if below is not self.tree.nodes[-1]:
            return None
        plain = below.emit == "feed" and below.late == "correct" and not below.stream and not below.counted
        if below.node not in ("keyed", "join") or not plain or below.blocks or below.triggers:
            return None
        everything = any(item.star for item in select.items)
        names, hidden = [], []
        for index, key in enumerate(below.keys):
            shown = self._passed_through(view, key.name)
            if shown is None:
                shown = KEY.format(index)
                hidden.append((shown, quote_name(key.name)))
            names.append(shown)
        if everything and (hidden or below.hidden or below.final):
            return None
        columns = ", ".join(quote_name(field.name) for field in (*below.fields, *below.hidden))
        inside = f"(SELECT * FROM ({below.text}) AS __rows({columns}))"
        placeholder, edits = quote_name(f"@v:{below.id}"), [*self.edits, *self._with_clause()]
        text = self._bound([*edits, *with_hidden(select, hidden)])
        shows_closing = self._shows_closing(view, below)
        # Where no time is shown, rows are those that the nodes below have let through.
        waits = shows_closing or (leading_column(view) is None and not below.final)
        final = ""
        if below.final and shows_closing:
            rows = f"(SELECT * FROM ({below.final}) AS __rows({columns}, {FINAL}))"
            final = self._bound([*edits, *with_hidden(select, [*hidden, (FINAL, FINAL)])]).replace(placeholder, rows)
            view = replace(
                view, times={**view.times, leading_column(view) or "": below.times[closing_column(below) or ""]}
            )
        if below.ahead is not None and not waits:
            view = _waiting(view, FOREVER)
        self.tree.nodes.remove(below)
        ranked = first_of(self.tree.typed[below.id], [each.name for each in below.fields], self.block)
        return replace(
            view,
            retained=(ranked or None) if below.node == "keyed" and not below.tables else None,
            text=text.replace(placeholder, inside),
            final=final,
            next_rows=below.next_rows if final else 0,
            spread=text.replace(placeholder, f"({below.spread})") if below.spread else "",
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

    def _with_progress(self, select: Select, inputs: Sequence[Input], keying: Keying, view: View) -> View:
        """A view with what is known of how its columns progress, where it joins or reads what does."""
        # What reads no stream never brings a row that is late.
        static = [each.static or self._reads_no_stream(each.relation) for each in inputs]
        live = [each.relation for each, never in zip(inputs, static, strict=True) if not never]
        below = [self._known(relation) for relation in live]
        meets = [each.meets for each in below if isinstance(each, View)]
        if self.untyped or limited(self.query) or (len(live) < 2 and not any(meets)):
            return view
        calls = {
            name: 1
            for name, expr in self._shown(view.fields)
            if len(live) > 1
            and (call := time_call(expr)) is not None
            and all(each.column and self._shift(select, each.column) == 1 for each in call[1])
        }
        keys = {key.name: part.expr for key, part in zip(view.keys, keying.parts, strict=False)}
        sources = tuple(replace(each, static=never) for each, never in zip(self.block.sources, static, strict=True))
        times = [
            frozenset() if never else self._columns_named(index, self._bounded_times(each.relation))
            for index, (each, never) in enumerate(zip(inputs, static, strict=True))
        ]
        pairs = zip(inputs, static, strict=True)
        placeholders = ["" if never else self._live_placeholder(each.relation) for each, never in pairs]
        inner = all(each is None or each.inner for each in meets)
        join = Join(replace(self.block, sources=sources), placeholders, times, inner)
        found = find_meets(join, replace(view, times={**view.times, **calls}), keys)
        known = found.behind if found is not None else {}
        return replace(view, meets=found, times={**view.times, **{name: 1 for name in calls if name in known}})

    def _reads_no_stream(self, relation: Relation) -> bool:
        known = self._known(relation)
        return isinstance(known, View) and self.tree.reads_no_stream(known)

    def _bounded_times(self, relation: Relation) -> list[str]:
        """The event times of an input that are known to progress column by column."""
        known = self._known(relation)
        own = self._own_times(relation)
        return own if not isinstance(known, View) else [name.lower() for name in bounded(known) if name.lower() in own]

    def _columns_named(self, index: int, names: Iterable[str]) -> frozenset[Column]:
        """The columns of the rows of a relation that have these names; those of a window hide them."""
        source = self.block.sources[index]
        bounds = source.windowed.bounds if source.windowed is not None else ()
        found = (source.named(name) for name in names)
        return frozenset(column for column in found if column is not None and column not in bounds)

    def _near(self, select: Select, inputs: Sequence[Input]) -> tuple[tuple[Near, ...], int]:
        """Which rows of the streams of a join can meet; and within how many steps all are that matter to a new one.

        One that comes from n inputs is at most n - 1 steps from each row that says whether it does.
        """
        if self.untyped:
            return (), 0
        placeholders = self._apart(inputs)
        near: list[Near] = []
        times = [self._columns_named(index, self._row_times(each)) for index, each in enumerate(inputs)]
        for band in find_bands(self.block, times):
            one, other = (self.block.owner[column] for column in (band.one, band.other))
            known = [self._known(select.relations[index]) for index in (one, other)]
            if all(map(self._passes, known)):
                # The time of a window that is no longer than that is as near to its rows.
                wider = MILLISECOND * sum(isinstance(each, View) and not each.kept for each in known)
                least = None if band.least is None else band.least - wider
                most = None if band.most is None else band.most + wider
                near.append(Near(placeholders[one], placeholders[other], least, most))
        live = [name for name in placeholders if name]
        return tuple(near), 2 * (len(live) - 1) if chained(near, live) else 0

    def _following(self, select: Select, view: View) -> View:
        """A view of rows with the next of each, where that is looked for within bounds: new rows touch no others."""
        found = find_following(self.block)
        if found is None or len(self.block.sources) != 1 or self.block.sources[0].static or self.block.limited:
            return view
        (relation,) = select.relations
        if relation.window is not None or not view.in_time or view.clock != "event" or not view.node:
            return view
        column, distance = found
        own = self._columns_named(0, self._row_times(Input(relation, {}, False)))
        if self._passes(self._known(relation)) is None or column not in own:
            return view
        name = self._live_placeholder(relation)
        return replace(view, near=(Near(name, name, -distance, distance),), nearby=1)

    def _apart(self, inputs: Sequence[Input]) -> list[str]:
        """The placeholders of inputs, each one of its own though some read the same; none for static tables."""
        placeholders: list[str] = []
        for each in inputs:
            name = self._live_placeholder(each.relation) if not each.static else ""
            count = sum(known.partition("#")[0] == name for known in placeholders) if name else 0
            placeholders.append(f"{name}#{count}" if count else name)
        return placeholders

    def _sides(self, inputs: Sequence[Input]) -> tuple[Side, ...]:
        """The inputs of a join that change; none where it is no join."""
        found = []
        for name, each in zip(self._apart(inputs), inputs, strict=True):
            if not name:
                continue
            known = self._known(each.relation)
            called = each.relation.exposed or (known.name if isinstance(known, Stream | View) else "")
            own = self._own_times(each.relation)
            time = known.time if isinstance(known, Stream) else next(iter(own), None)
            if isinstance(known, View) and known.kept and known.time.lower() in own:
                time = known.time
            versions = isinstance(known, View) and any(field.name.startswith(UNTIL) for field in known.fields)
            found.append(Side(name, called, time or "", versions))
        return tuple(found) if len(found) > 1 else ()

    def _through(self, inputs: Sequence[Input], kind: type) -> dict[str, str]:
        """The inputs that are queries which only filter and project the rows of a stream, and that stream; or, if the
        `kind` asked for are views, the rows of one whose changes are kept, and those that are such a view."""
        found: dict[str, str] = {}
        for name, each in zip(self._apart(inputs), inputs, strict=True):
            known = self._known(each.relation) if name else None
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
            return self._passes(self.tree.catalog.stream(id))
        (id,) = known.views.values()
        nodes = {node.id: node for node in self.tree.nodes}
        below = self._passes(nodes.get(id) or self.tree.catalog.objects.get(id))
        return None if isinstance(below, View) and dict(below.times) != {below.time: 1} else below

    def _spread(self, select: Select, view: View) -> str:
        """The query for Spark where the only thing that its streams have in common is their time; else nothing."""
        names = [each.name for each in view.fields]
        known = [each for each in view.near if each.least is not None and each.most is not None]
        if len(view.inputs) != 2 or len(known) != 1 or view.views or len(set(names)) != len(names):
            return ""
        if joined_by_equals(self.block):
            return ""
        streams = [self.tree.catalog.stream(view.streams[name]) for name in (known[0].one, known[0].other)]
        one, other = (stream.time or "" for stream in streams)
        if any(field.type != "timestamp" for each in streams for field in each.fields if field.name == each.time):
            return ""
        text = self._bound([*self.edits, *self._with_clause(), *with_condition(select, SAME)])
        text, _ = _told_apart(text, dict.fromkeys(name.partition("#")[0] for name in view.inputs))
        return spread(text, known[0], (one, other), names)

    def _own_times(self, relation: Relation) -> list[str]:
        """The columns of an input that are event times, without those of its windows."""
        if relation.alias_columns:
            return []
        known = self._known(relation)
        if isinstance(known, Stream):
            return [known.time.lower()] if known.time is not None else []
        return [name.lower() for name in known.times] if isinstance(known, View) else []

    def _row_times(self, each: Input) -> frozenset[str]:
        """The event times of an input that are those of its rows, not bounds of windows that a query put them into.

        Of a view whose changes are kept, the one that these are found by.
        """
        known = self._known(each.relation)
        own = frozenset() if each.static else frozenset(self._own_times(each.relation))
        if isinstance(known, View) and known.kept:
            return own & {known.time.lower()}
        bounds = {name.lower() for name, shift in known.times.items() if shift != 1} if isinstance(known, View) else ()
        return own.difference(bounds)

    def _known(self, relation: Relation) -> object:
        """The stream, view or table behind a relation."""
        node = self._node(relation)
        reference = self.binder.resolve(relation) if node is None else None
        return self.tree.catalog.objects.get(reference.target) if reference is not None else node

    def _count_rows(self, select: Select, inputs: Sequence[Input], keying: Keying) -> None:
        """Let the node leave out rows of a run that came behind the one that fired, by their place in it."""
        live = [each for each in inputs if not each.static]
        known = self._known(live[0].relation) if len(live) == 1 else None
        names = [field.name for field in known.fields] if isinstance(known, View) else []
        ordered = isinstance(known, Stream) or parts_of(names)
        # What a condition asks of a stream makes rows come and go that are in no order; nor are those made of one row.
        if (
            not ordered
            or self._asks(select)
            or select.lateral
            or select.distinct
            or not (select.group_plain and (select.group or keying.kind == "whole"))
        ):
            return
        self.counted = self._live_placeholder(live[0].relation)
        texts = [self.block.sql(part.expr) for part in keying.parts]
        same = " AND ".join(f"__t.__k{i} <=> ({text})" for i, text in enumerate(texts)) or "true"
        upto = f"(SELECT max(__t.__upto) FROM `{TAKES}` AS __t WHERE {same})"
        shown = f"coalesce({PLACE} <= {upto}, true)"
        if _by_row(live[0]):
            self.guard = with_condition(select, shown)
        else:  # rows behind it must not make windows either
            self.guard = [self._windowed_where(live[0].relation, shown)]

    def _asks(self, select: Select) -> bool:
        """Whether an expression asks what changes."""
        return any(self.tree.reads_live(inner, self.ctes) for inner in select.subqueries)

    def _windowed_where(self, relation: Relation, condition: str) -> Edit:
        """A relation with its windows, of the rows that fulfil a condition."""
        name = relation.exposed or "__rows"
        reference = self.binder.resolve(relation) if self._node(relation) is None else None
        self.guarded = {reference.placeholder: reference} if reference is not None else {}
        rows = f"(SELECT * FROM {self._rows_of(relation)} WHERE {condition})"
        source = self.binder.windowed(rows, relation, self._fields(relation, True)[0])
        return Edit(relation.span, f"{source} AS {quote_name(name)}" if relation.alias is None else source)

    def _rows_of(self, relation: Relation) -> str:
        """The rows that the windows of a relation are of, under its name."""
        name = f" AS {quote_name(relation.exposed)}" if relation.exposed is not None else ""
        return f"{quote_name(self._live_placeholder(relation))}{name}"

    def _guarded(self) -> list[Edit]:
        guarded = {edit.span for edit in self.guard}
        return [*(edit for edit in self.edits if edit.span not in guarded), *self.guard]

    def _place_blocks(self, select: Select) -> None:
        selects = [(select, self.query)]
        selects += [pair for inner in select.subqueries for pair in inner.selects()]
        for each, owner in selects:
            if not each.relations or any(r.subquery is not None for r in each.relations):
                continue
            if any(self._is_cte(r) for r in each.relations):
                continue
            found = find_block(each, owner, self.binder, self.tree.world.analyze, self.tree.world.loads)
            if isinstance(found, str):
                continue
            self.tree.placed += 1
            placed = self.tree.placer.place(found, f"@p:{self.tree.placed}")
            self.blocks.append((found, placed))
            source = quote_name(placed.use.placeholder)
            self.edits += read_edits(found, self.text, source, placed.finals, placed.use.presence)

    def _is_cte(self, relation: Relation) -> bool:
        return relation.name is not None and relation.name.last.lower() in self.ctes

    def _inputs(self, select: Select, *, placed: bool) -> list[Input]:
        inputs = []
        for relation in select.relations:
            fields, static = self._fields(relation, placed)
            names = [each.name for each in fields]
            if relation.alias_columns and fields:  # those of a query that reads nothing that changes are not known
                names = [*relation.alias_columns, *names[len(relation.alias_columns) :]]
            columns = {name.lower(): field.type for name, field in zip(names, fields, strict=True)}
            if relation.window is not None:
                numbers = relation.window.rows
                columns.update({name: window_type(name, numbers) for name in WINDOW_COLUMNS})
            inputs.append(Input(relation, columns, static))
        return inputs

    def _fields(self, relation: Relation, placed: bool) -> tuple[tuple[Field, ...], bool]:
        """The columns of a relation, and whether it never changes."""
        node = self._node(relation) if placed or relation.kind == "name" else None
        if node is not None:
            return node.fields, False
        reference = self.binder.resolve(relation)
        found = self.tree.catalog.objects.get(reference.target) if reference is not None else None
        if isinstance(found, View) and found.stream and self.cut:
            raise refuse(
                self.text,
                relation.span,
                f"{found.name} shows changes, and changes of changes are not kept",
                "read the query that it shows the changes of, or leave the emission clause out",
            )
        if isinstance(found, Stream | View):
            return found.fields, False
        return (found.fields, True) if isinstance(found, Table) else ((), True)

    def fields_of(self, relation: Relation) -> tuple[Field, ...]:
        return self._fields(relation, True)[0]

    def node_of(self, relation: Relation) -> View | None:
        return self._node(relation)

    def _node(self, relation: Relation) -> View | None:
        """The node that stands in place of a relation."""
        for edit in self.edits:
            if edit.span == relation.span:
                for placeholder, view in self.views.items():
                    if quote_name(placeholder) in edit.text:
                        return view
        if relation.kind == "name" and relation.name is not None and len(relation.name.parts) == 1:
            return self.ctes.get(relation.name.last.lower())
        return None

    # ---- putting it together

    def _finish(
        self,
        emit: str,
        keying: Keying,
        select: Select | None,
        inputs: Sequence[Input],
        touches: Sequence[tuple[str, str]],
        block: tuple[Block, Placed] | None = None,
    ) -> View:
        hidden: list[tuple[str, str]] = []
        names: list[str] = []
        for index, part in enumerate(keying.parts):
            names.append(part.shown or KEY.format(index))
            if part.shown is None:
                expression = self.block.sql(part.expr)
                if block is not None:
                    expression = quote_name(block[0].keys[part.position].name)
                hidden.append((names[-1], expression))
        extra = [*self._guarded(), *self._with_clause()]
        plain = Binder(self.text, self.tree.catalog, self.query).bind(extra=extra)
        references = {**plain.references, **self._inline_references(), **self.guarded}
        schemas = self._schemas(references)
        ties = self._ties(schemas)
        if self.counted is not None:
            schemas[self.counted] = (*schemas[self.counted], Field(PLACE, "bigint"))
            # Their types are known once this is analysed; a column without one can be compared with any.
            takes = [Field(f"__k{index}", "void") for index in range(len(keying.parts))]
            schemas[TAKES] = (*takes, Field("__upto", "bigint"))
        fields = tuple(self.tree.world.analyze(plain.text.text, schemas))
        text, ties = checked(
            ties,
            lambda ties: self._bound([*self._guarded(), *self._with_clause(ties), *ties]),
            lambda text: self.tree.world.analyze(text, schemas),
        )
        self.hidden, self.ties = hidden, ties
        typed: dict[str, str] = {each.name: each.type for each in fields}
        if hidden and select is not None:
            extra = [*self._guarded(), *self._with_clause(ties), *ties, *with_hidden(select, hidden)]
            text = self._bound(extra)
            everything = self.tree.world.analyze(text, schemas)
            typed.update({each.name: each.type for each in everything[len(fields) :]})
        by_lower = {name.lower(): name for name in typed}
        names = [by_lower[name.lower()] for name in names]
        if keying.every_column:
            names = [each.name for each in fields]
        keys = tuple(Field(name, typed[name]) for name in names)
        if emit != "read":
            refuse_keys(self.text, self.query, keys)

        def of(kind: str) -> dict[str, str]:
            return {p: r.target for p, r in references.items() if r.kind == kind}

        views = {**of("view"), **{placeholder: view.id for placeholder, view in self.views.items()}}
        for reference in references.values():
            if not reference.plain:
                relation = reference.relation
                raise refuse(
                    self.text,
                    relation.span if relation is not None else self.query.span,
                    "a view reads streams, views and tables",
                    "make a table of the file first: CREATE TABLE t FROM files(path => '...')",
                )
        tables = of("table")
        uses = tuple(placed.use for _, placed in self.blocks)
        made_touches = self._touches(keying, select, inputs, block, touches, keys)
        direct = direct_outputs(self.query, [block], fields) if block is not None and emit == "feed" else ()
        kind = keying.kind if emit != "read" else ""
        streams = of("stream")
        if kind == "join":
            text, again = _told_apart(text, (*streams, *views))
            streams |= {name: streams[first] for name, first in again.items() if first in streams}
            views |= {name: views[first] for name, first in again.items() if first in views}
        times = {**self._times(select, fields), **self._key_times(select, keying, names)}
        return View(
            "?", "?", self.query.span.of(self.text), text, fields, uses, None, streams, tables, views, emit,
            self.tree.start, direct, self.query.order is not None,
            {table: self.tree.world.table_at(table) for table in tables.values()},
            kind, keying.reason if kind else "", keys if kind else (), made_touches if kind else (),
            self._narrows(keying, select, block) if kind else (), None, None, "correct", False,
            times, clock=self._clock(inputs), cuts=self._cuts(inputs),
            time=leading_time(fields, times) if kind else "",
        )  # fmt: skip

    def _bound(self, extra: Sequence[Edit], span: Span | None = None) -> str:
        return Binder(self.text, self.tree.catalog, self.query).bind(span, extra).text.text

    def _ties(self, schemas: Mapping[str, tuple[Field, ...]]) -> list[Edit]:
        """The edits that break ties in what is left of the query here."""
        clause = self._with_clause()
        kept = {id(each.query) for each in self.inline}
        gone = [edit.span for edit in self.edits]
        gone += [inner.span for _, inner in self.query.ctes if id(inner) not in kept]
        places = Places(
            bind=lambda span: self._bound([*self.edits, *clause], span),
            analyze=lambda text: self.tree.world.analyze(text, dict(schemas)),
            blocks={block.select.span: block for block, _ in self.blocks},
            skips=lambda span: any(each.start <= span.start and span.end <= each.end for each in gone),
            prefix="".join(edit.text for edit in clause),
            times=event_times(self.tree.catalog, self._read()),
        )
        return break_ties(self.text, self.query, places)

    def _read(self) -> list[str]:
        """The streams, views and tables that the query reads, at whatever depth."""
        relations = [relation for select, _ in self.query.selects() for relation in select.relations]
        around = [node for relation in relations if (node := self._around(relation)) is not None]
        found = [self.binder.resolve(relation) for relation in relations if self._around(relation) is None]
        targets = [reference.target for reference in found if reference is not None]
        return [*targets, *(id for node in around for id in self._read_by(node))]

    def _around(self, relation: Relation) -> View | None:
        """The node of a common table expression that the queries around this one have."""
        name = relation.name.last.lower() if relation.name is not None and len(relation.name.parts) == 1 else ""
        return self.ctes.get(name) if name not in self.binder.ctes else None

    def _read_by(self, node: View) -> Iterator[str]:
        """What a node that is being made reads, at whatever depth."""
        below = {each.id: each for each in self.tree.nodes}
        yield from node.streams.values()
        yield from (self.tree.placer.panes[use.panes].stream for use in node.blocks)
        for id in node.views.values():
            yield from self._read_by(below[id]) if id in below else (id,)

    def _schemas(self, references: Mapping[str, Any]) -> dict[str, tuple[Field, ...]]:
        schemas: dict[str, tuple[Field, ...]] = {p: view.fields for p, view in self.views.items()}
        for placeholder, reference in references.items():
            found = self.tree.catalog.objects.get(reference.target)
            if isinstance(found, Stream):
                schemas[placeholder] = found.seen_as(placeholder)
            elif isinstance(found, Table | View):
                schemas[placeholder] = found.fields
        for _, placed in self.blocks:
            schemas[placed.use.placeholder] = placed.use.fields(self.tree.placer.panes[placed.use.panes])
        return schemas

    def _with_clause(self, ties: Sequence[Edit] = ()) -> list[Edit]:
        """The common table expressions that stay; those that became nodes are gone."""
        if not self.query.ctes:
            return []
        body = self.query.body.span
        kept = []
        for each in self.inline:
            columns = f"({', '.join(map(quote_name, each.columns))})" if each.columns else ""
            inside = self._bound([*self.edits, *ties], each.query.span)
            kept.append(f"{quote_name(each.name)}{columns} AS ({inside})")
        start = Span(self.query.span.start, body.start)
        if isinstance(self.query.body, Query):
            start = Span(self.query.span.start, self.text.rindex("(", 0, body.start))
        return [Edit(start, f"WITH {', '.join(kept)} " if kept else "")]

    def _inline_references(self) -> dict[str, Reference]:
        """What the common table expressions read that stay."""
        gone = [edit.span for edit in self.edits]
        relations = [relation for each in self.inline for relation in each.query.relations()]
        left = [r for r in relations if not any(s.start <= r.span.start and r.span.end <= s.end for s in gone)]
        found = [reference for relation in left if (reference := self.binder.resolve(relation)) is not None]
        return {reference.placeholder: reference for reference in found}

    def _touches(
        self,
        keying: Keying,
        select: Select | None,
        inputs: Sequence[Input],
        block: tuple[Block, Placed] | None,
        given: Sequence[tuple[str, str]],
        keys: tuple[Field, ...],
    ) -> tuple[Touch, ...]:
        """How to find the keys that new rows touch."""
        if keying.kind != "keyed" and not (self.counting and select is not None and not self._asks(select)):
            return ()
        if given:
            return tuple(Touch(placeholder, _numbered(text, keys)) for placeholder, text in given)
        assert select is not None
        if block is not None:
            use = block[1].use
            columns = [quote_name(block[0].keys[part.position].name) for part in keying.parts]
            return (Touch(use.placeholder, f"SELECT DISTINCT {items(columns)} FROM {quote_name(use.placeholder)}"),)
        live = [index for index, each in enumerate(inputs) if not each.static]
        if len(live) == 1 and (_by_row(inputs[live[0]]) or self.counted is not None):
            placeholder = self._live_placeholder(inputs[live[0]].relation)
            if keying.every_column:
                bound = Binder(self.text, self.tree.catalog, self.query).bind(select.span, extra=self.edits)
                return (Touch(placeholder, _numbered(bound.text.text, keys)),)
            assert select.from_span is not None
            binder = Binder(self.text, self.tree.catalog, self.query)
            source = binder.bind(select.from_span, extra=self.edits).text.text
            where = ""
            if select.where is not None:
                where = " WHERE " + binder.bind(select.where.span, extra=self.edits).text.text
            chosen = items([self.block.sql(part.expr) for part in keying.parts])
            if self.counted is not None:
                chosen = f"{chosen}, {PLACE}" if chosen else PLACE
                relation = inputs[live[0]].relation
                if not _by_row(inputs[live[0]]):  # the rows that make the windows, each once
                    source, where = self._rows_of(relation), ""
                return (Touch(placeholder, f"SELECT {chosen} FROM {source}{where}"),)
            return (Touch(placeholder, f"SELECT DISTINCT {chosen or '1'} FROM {source}{where}"),)
        if keying.kind != "keyed":
            return ()
        touches = []
        for index in live:
            relation = inputs[index].relation
            placeholder = self._live_placeholder(relation)
            source = quote_name(placeholder)
            if relation.window is not None and _by_row(inputs[index]):
                source = self.binder.windowed(source, relation, self._fields(relation, True)[0])
            own = self.block.sources[index]
            columns = [f"__d.{quote_name(_name_in(own, part.columns[index]))}" for part in keying.parts]
            touches.append(Touch(placeholder, f"SELECT DISTINCT {items(columns)} FROM {source} AS __d"))
        return tuple(dict.fromkeys(touches))

    def _live_placeholder(self, relation: Relation) -> str:
        node = self._node(relation)
        if node is not None:
            return f"@v:{node.id}"
        reference = self.binder.resolve(relation)
        assert reference is not None
        return reference.placeholder

    def _narrows(self, keying: Keying, select: Select | None, block: tuple[Block, Placed] | None) -> tuple[Narrow, ...]:
        """Which rows of which input are enough for the touched keys. A relation that is read twice is read whole."""
        if keying.kind != "keyed" or keying.every_column or select is None:
            return ()
        if block is not None:
            names = tuple(block[0].keys[part.position].name for part in keying.parts)
            return (Narrow(block[1].use.placeholder, names),)
        found: dict[str, set[Narrow]] = {}
        for index in self.block.live:
            source, relation = self.block.sources[index], select.relations[index]
            columns = tuple(_row_name(source, part.columns[index]) for part in keying.parts)
            times = tuple(self._along(source, relation, part.columns[index]) for part in keying.parts)
            placeholder = self._live_placeholder(relation)
            found.setdefault(placeholder, set()).add(Narrow(placeholder, columns, times))
        narrows = [next(iter(each)) for each in found.values() if len(each) == 1]
        return tuple(each for each in narrows if any(each.columns) or any(each.times))

    def _along(self, source: FromItem, relation: Relation, column: Column | None) -> tuple[str, int, int] | None:
        """What the windows of an input lie along, where a column is a bound of them."""
        windowed = source.windowed
        if windowed is None or column not in windowed.bounds[:2] or windowed.along is None or windowed.window.rows:
            return None
        windows = sliding(self.binder.window_of(relation))
        if windows is None or windowed.along.type != "timestamp":
            return None
        span = (0, windows.size) if column == windowed.bounds[0] else (-windows.size, 0)
        return windowed.along.name, *span

    def _times(self, select: Select | None, fields: tuple[Field, ...]) -> dict[str, int]:
        """The output columns that are bounds of windows, or event times."""
        if select is None:
            return {}
        shown = ((name, expr.column) for name, expr in self._shown(fields))
        found = {name: self._shift(select, column) for name, column in shown if column is not None}
        return {name: shift for name, shift in found.items() if shift is not None}

    def _shown(self, fields: Sequence[Field]) -> Iterator[tuple[str, Expr]]:
        """The columns that a SELECT gives, with what they are."""
        return ((field.name, item.expr) for field, item in zip(fields, self.block.items, strict=False))

    def _key_times(self, select: Select | None, keying: Keying, names: Sequence[str]) -> dict[str, int]:
        """The columns of the key that are bounds of windows."""
        columns = {name: part.expr.column for name, part in zip(names, keying.parts, strict=False)}
        found = {name: self._shift(select, column) for name, column in columns.items() if select and column}
        return {name: shift for name, shift in found.items() if shift is not None}

    def _shift(self, select: Select, column: Column) -> int | None:
        """What to add to a column for the progress that has passed it; None if it does not progress."""
        index = self.block.owner.get(column)
        if index is None:
            return None
        source, relation = self.block.sources[index], select.relations[index]
        window = source.window
        if window is not None and (bound := _name_in(source, column)) in {each.name for each in window.bounds}:
            shift, later = closing_shift(window.window, bound), self._later(relation)
            return min(shift + later, FOREVER) if shift is not None and later is not None else None
        name = _row_name(source, column)
        return self._time_of(relation, name.lower()) if name is not None else None

    def _ends(self, select: Select, inputs: Sequence[Input], view: View, keying: Keying) -> Ends | None:
        """When the windows of a node end, where other rows than a row's own make them and event time closes them."""
        live = [each for each in inputs if not each.static]
        if len(live) != 1 or _by_row(live[0]) or view.clock != "event" or view.blocks:
            return None
        relation = live[0].relation
        window = self.binder.window_of(relation)
        shift = closing_shift(window, "window_end")
        if shift is None or window.rows or window.own or relation.alias_columns or self._later(relation) != 0:
            return None
        found = Ends(self._live_placeholder(relation), window.time_column or "", window.size + shift)
        if window.kind == "session":
            apart = tuple(name.last for name in window.partition)
            found = replace(found, gap=window.size, apart=apart, single=keying.single)
        elif window.kind == "slide_by_row":
            found = replace(found, after=shift)
        else:
            every = window.slide if window.kind == "landmark" else window.size
            found = replace(found, after=0, every=every, origin=window.offset)
        windowed = self.block.sources[self.block.live[0]].windowed
        start, *others = windowed.bounds[:3] if windowed is not None else (None,)
        shown = [(name, expr.column) for name, expr in self._shown(view.fields) if expr.column is not None]
        ends = [name for name, column in shown if column in others and name in view.times]
        return replace(found, columns=tuple(ends), starts=tuple(name for name, column in shown if column == start))

    def _clock(self, inputs: Sequence[Input]) -> str:
        """What the windows of a node close by."""
        for each in inputs:
            window = each.relation.window
            if window is not None:
                if window.block:
                    return "chunks"
                if window.attribute == "row_num" or window.kind == "chunks":
                    return "rows"
                if window.attribute == "arrival_ts":
                    return "arrival"
                continue
            node = self._node(each.relation)
            reference = self.binder.resolve(each.relation) if node is None else None
            known = self.tree.catalog.objects.get(reference.target) if reference is not None else node
            if isinstance(known, View) and known.clock != "event":
                return known.clock
        return "event"

    def _cuts(self, inputs: Sequence[Input]) -> tuple[tuple[str, str], ...]:
        """The streams whose chunks are counted, and the columns that end them."""
        found: list[tuple[str, str]] = []
        for each in inputs:
            reference = self.binder.resolve(each.relation) if self._node(each.relation) is None else None
            known = self.tree.catalog.objects.get(reference.target) if reference is not None else None
            known = known or self._node(each.relation)
            window = each.relation.window
            if isinstance(known, Stream) and window is not None and window.block and window.time_column is not None:
                found.append((known.id, window.time_column))
            elif isinstance(known, View):
                found += known.cuts
        return tuple(dict.fromkeys(found))

    def _later(self, relation: Relation) -> int | None:
        """How far behind the end of a window of a relation progress is when all rows of that window are final; None if
        what its windows lie along does not progress, so that they never close."""
        window = self.binder.window_of(relation)
        if window.attribute != "column" or window.kind == "chunks":
            return 0
        if window.rows:
            return None
        reference = self.binder.resolve(relation) if self._node(relation) is None else None
        stream = self.tree.catalog.objects.get(reference.target) if reference is not None else None
        if isinstance(stream, Stream) and stream.time is None:
            return 0  # ADVANCE says how far its rows have come, whatever column they are put into windows by
        shift = self._time_of(relation, (window.time_column or "").lower())
        # The time of a window lies just before its end, which is at most that of the window it is put into.
        return (shift - 1 if shift > MILLISECOND else 0) if shift is not None else None

    def _time_of(self, relation: Relation, column: str) -> int | None:
        """What to add to a column of a relation for the progress that has passed it; None if it does not progress."""
        node = self._node(relation)
        if node is None:
            reference = self.binder.resolve(relation)
            known = self.tree.catalog.objects.get(reference.target) if reference is not None else None
            if isinstance(known, Stream) and known.time is not None and known.time.lower() == column:
                return 1  # progress has passed a moment when it is behind it
            node = known if isinstance(known, View) else None
        times = node.settles if node is not None else {}
        return next((shift for name, shift in times.items() if name.lower() == column), None)


def closing_column(view: View) -> str | None:
    """The column of an answer that tells when the window of its row closes."""
    return leading_column(view) if view.node != "stateless" else None


def _waiting(view: View, ahead: int) -> View:
    """A view whose rows can still change so long after their times: these pass by so much later."""
    times = {name: min(shift + ahead, FOREVER) for name, shift in view.times.items()}
    return replace(view, ahead=ahead, times=times)


def leading_column(view: View) -> str | None:
    names = [field.name for field in view.fields if field.name in view.times]
    return min(names, key=lambda name: name.lower() != "window_end", default=None)


def _by_row(each: Input) -> bool:
    """Whether a new row tells its own windows: otherwise no window is to be looked for among new rows alone."""
    return each.relation.window is None or each.relation.window.by_row


def _name_in(each: FromItem, column: Column | None) -> str:
    """The name of a column before an alias has given it another."""
    rel = each.rel
    while isinstance(rel, Project):
        column = next(expr.column for own, expr in rel.items if own == column)
        rel = rel.input
    return column.name if column is not None else ""


def _row_name(each: FromItem, column: Column | None) -> str | None:
    """The name that a column has in the rows themselves; None for one that is in no row."""
    own = each.row_column(column) if column is not None else None
    return own.name if own is not None else None


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


def _told_apart(text: str, placeholders: Iterable[str]) -> tuple[str, dict[str, str]]:
    """A query with a placeholder for each relation, though some read the same; and what the new ones stand for."""
    again: dict[str, str] = {}
    for placeholder in placeholders:
        first, *others = text.split(quote_name(placeholder))
        text = first
        for index, rest in enumerate(others):
            name = f"{placeholder}#{index}" if index else placeholder
            if index:
                again[name] = placeholder
            text += quote_name(name) + rest
    return text, again


def _numbered(text: str, keys: Sequence[Field]) -> str:
    """A query whose columns are the key, under the names that keys have."""
    names = ", ".join(f"`k{index}`" for index in range(len(keys)))
    return f"SELECT DISTINCT * FROM ({text}) AS __rows({names})"
