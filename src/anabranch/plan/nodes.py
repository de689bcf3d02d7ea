"""A view whose changes are kept, as a tree of nodes: each subquery that looks at more than one row is one.

A node knows which of its answers new rows can touch (`keys`), so that its changes are

    f(state | touched keys) - what was shown for them

with f the user's own SQL. The nodes below hand their changes up; the last one is the view.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch.algebra.windows import time_before_end
from anabranch.ir.select import SelectBlock
from anabranch.plan.bind import Binder, refuse
from anabranch.plan.bridge import normalized
from anabranch.plan.build import Build, InlineCte, closing_column, items
from anabranch.plan.catalog import Catalog, Ends, Field, Narrow, Panes, Rows, Stream, Touch, View
from anabranch.plan.hints import with_hints
from anabranch.plan.lookup_nodes import asks, refuse_refreshable
from anabranch.plan.memory import bounded
from anabranch.plan.outside import refuse_others
from anabranch.plan.rewriting import rewritten
from anabranch.plan.rules import Rule
from anabranch.plan.rules.decorrelate import decorrelate
from anabranch.plan.rules.grouping_sets import expand_grouping_sets
from anabranch.plan.rules.merge_projections import merge_projections
from anabranch.plan.rules.raise_joins import raise_joins, raise_joins_above_rows
from anabranch.plan.rules.records import number_records, separate_counted
from anabranch.plan.rules.separate_joins import separate_joins
from anabranch.plan.views import Placer, Planned, Surroundings, plan_view, refuse_volatile
from anabranch.plan.windows import micros_sql, partitioned
from anabranch.sql.lexer import Span, quote_name, tokenize
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Emission, Query, Select

#: All rules, in their order. After them a query whose changes are kept has keys wherever it can have them.
RULES = (decorrelate, expand_grouping_sets, merge_projections, separate_joins, raise_joins)
#: Those for a query whose trigger counts records.
COUNTING_RULES = (
    merge_projections, number_records, decorrelate, separate_counted, separate_joins, raise_joins_above_rows,
)  # fmt: skip

#: Columns that are kept with every change.
_OWN = re.compile(r"_(diff|version|at|k[0-9]+)", re.IGNORECASE)


def check(text: str, query: Query, catalog: Catalog, feed: bool) -> Catalog:
    """Refuse what no view can be; the catalog as the hints of the query have it."""
    catalog = with_hints(text, query, catalog)
    refuse_volatile(text, query, kept=feed or asks(text, catalog, query))
    refuse_refreshable(text, catalog, query)
    _refuse_without_stream(text, catalog, query)
    if feed or asks(text, catalog, query) or query.emits:
        _refuse_recursive(text, query)
    return catalog


def plan_text(
    *, id: str, name: str, text: str, sql: str, query: Query, start: str, fields: tuple[Field, ...],
    catalog: Catalog, world: Surroundings, feed: bool = False,
) -> Planned:  # fmt: skip
    """Plan a continuous query from its text. With `feed`, its changes are kept though its text does not ask for it.

    So are those of a query that asks tables outside: its answer depends on when they were asked.
    """
    kept = feed or asks(text, catalog, query) or query.emits
    normal = normalized(text, query, catalog, world.analyze, rules_for(query, kept))
    planned = _planned(
        id=id, name=name, text=normal.text, sql=sql, query=normal.query, start=start, fields=fields,
        catalog=catalog, world=world, feed=feed,
    )  # fmt: skip
    planned = replace(planned, view=replace(planned.view, included=normal.included)) if normal.included else planned
    planned = replace(planned, reasons=normal.reasons) if normal.reasons else planned
    return begun(planned, catalog, world)


def rules_for(query: Query, kept: bool) -> Sequence[Rule]:
    """The rules for a query. What waits key by key is shown as it is written, but for the records that it counts."""
    if any((each.counting or 1) > 1 for each in query.emissions()):
        return COUNTING_RULES
    if any(each.counting is not None for each in query.emissions()):
        return merge_projections, separate_joins, raise_joins_above_rows
    by_key = any(each.by_key for each in query.emissions())
    return RULES if kept and not by_key else (merge_projections, separate_joins, raise_joins)


def _refuse_without_stream(text: str, catalog: Catalog, query: Query) -> None:
    """Refuse to wait where nothing ever comes: for windows or records of a query that reads no stream."""
    binder = Binder(text, catalog, query)
    for each in query.queries():
        emission = said(each)
        if emission is None or emission.mode == "feed" or any(map(binder.reads_stream, each.relations())):
            continue
        raise refuse(
            text,
            emission.span,
            "there is nothing to wait for: this query reads no stream",
            "EMIT CHANGES shows its answer, and what a REFRESH TABLE changes in it",
        )


def begun(planned: Planned, catalog: Catalog, world: Surroundings) -> Planned:
    """A plan whose views know with which row of each stream they start, where that is not the first."""
    states = {**catalog.objects, **{each.id: each for each in planned.objects}}

    def from_row(view: View) -> View:
        tables = [states[id] for id in (*(use.panes for use in view.blocks), *filter(None, (view.rows,)))]
        ids = {*view.streams.values()} | {each.stream for each in tables if isinstance(each, Panes | Rows)}
        found = {id: world.begins(catalog.stream(id)) for id in sorted(ids)}
        return replace(view, begins={id: begin for id, begin in found.items() if begin is not None})

    objects = tuple(from_row(each) if isinstance(each, View) else each for each in planned.objects)
    return replace(planned, view=from_row(planned.view), objects=objects)


def _refuse_recursive(text: str, query: Query) -> None:
    for each in query.queries():
        if each.ctes and tokenize(text[each.span.start : each.ctes[0][1].span.start])[1].upper == "RECURSIVE":
            what = "the changes of a query with WITH RECURSIVE are not kept"
            raise refuse(text, each.span, what, "make a table of it: CREATE TABLE t AS WITH RECURSIVE ...")


def _planned(
    *, id: str, name: str, text: str, sql: str, query: Query, start: str, fields: tuple[Field, ...],
    catalog: Catalog, world: Surroundings, feed: bool,
) -> Planned:  # fmt: skip
    emission = said(query)
    feed = feed or asks(text, catalog, query)
    inner = any(each.emits for each in query.nested())
    arguments: dict[str, Any] = {
        "id": id, "name": name, "text": text, "sql": sql, "query": query, "start": start, "fields": fields,
        "catalog": catalog, "world": world,
    }  # fmt: skip
    if not inner and not feed and (emission is None or _closes_panes(emission)):
        planned = plan_view(**arguments)
        view = planned.view
        if emission is None:
            return planned
        if view.direct and view.blocks[0].windows is not None and on_event_time(planned, catalog):
            return replace(planned, view=closing_by_panes(view, emission))
    emit = "feed" if feed or emission is not None else "read"
    tree = Tree(text, catalog, world, id, name, start)
    tree.whole = query
    if emit == "feed" and not inner and (emission is None or (emission.mode == "feed" and not emission.by_key)):
        tree.splits = []
    root = tree.root(query, sql, fields, emit)
    refuse_others(text, catalog, query, tree.joined)
    made = tree.planned(root)
    if not tree.splits:
        return made
    text, query = rewritten(text, query, tree.splits)
    parted = Tree(text, catalog, world, id, name, start)
    parted.partial = frozenset(
        each.subquery.body.span for each in query.relations() if each.subquery is not None and each.alias in tree.pairs
    )
    return parted.planned(parted.root(query, sql, fields, emit))


def closing_by_panes(view: View, emission: Emission) -> View:
    """A view over panes that shows windows when they close."""
    start = next((each.name for each in view.direct if each.kind == "window_start"), "")
    return replace(view, late=emission.late, times=_window_columns(view), budget=budget_of(emission), time=start)


def on_event_time(planned: Planned, catalog: Catalog) -> bool:
    """Whether the panes of a plain view lie along the event time of their stream."""
    ids = {use.panes for use in planned.view.blocks}
    panes = [each for each in planned.objects if isinstance(each, Panes) and each.id in ids]
    panes += [catalog.panes(id) for id in ids - {each.id for each in panes}]
    times = [(each.time, catalog.stream(each.stream).time) for each in panes]
    known = [(along or "", micros_sql(quote_name(time))) for along, time in times if time is not None]
    return all(along.lower() == time.lower() for along, time in known) and not any(each.numbered for each in panes)


def said(query: Query) -> Emission | None:
    """The emission clause of a query that says something."""
    return query.emission if query.emission is not None and query.emission.mode != "read" else None


def _closes_panes(emission: Emission) -> bool:
    return emission.mode == "close" and not emission.stream


def budget_of(emission: Emission) -> dict[str, int] | None:
    """The budget of a clause as it is written down."""
    if emission.budget is None:
        return None
    values = {"windows": emission.budget.windows, "rows": emission.budget.rows, "delay": emission.budget.delay}
    return {name: value for name, value in values.items() if value is not None}


def _window_columns(view: View) -> dict[str, int]:
    """The columns of a plain view over panes that are bounds of windows."""
    windows = view.blocks[0].sliding if view.blocks else None
    if windows is None:
        return {}
    shifts = {"window_start": windows.size, "window_end": 0, "window_time": time_before_end(windows.size)}
    return {output.name: shifts[output.kind] for output in view.direct if output.kind in shifts}


def refuse_own_names(text: str, query: Query, fields: Sequence[Field], emit: str) -> None:
    """Refuse columns whose names are those that changes have."""
    taken = next((each for each in fields if _OWN.fullmatch(each.name)), None)
    if taken is not None and emit != "read":
        what = f"the name {taken.name} is taken: a change has a column of this name beside those of the query"
        raise refuse(text, query.span, what, "give the column another name with AS")


def planned(made: Sequence[View], root: View, catalog: Catalog, world: Surroundings, placer: Placer) -> Planned:
    """A view with its nodes and all that has to be made with them."""
    nodes = [replace(node, owner=root.id) for node in made]
    kept: dict[str, Stream] = {}
    for view in (*nodes, root):
        for id in view.streams.values():
            stream = catalog.stream(id)
            if stream.kept_since is None:
                kept[id] = replace(stream, kept_since=world.kept_since(stream))
    reasons = tuple(view.reason for view in (*nodes, root) if view.reason)
    rows = tuple(stream.rows_table for stream in kept.values())
    fill_from = placer.filled_from()
    objects: tuple[Panes | Rows | Stream | View, ...] = (*placer.panes.values(), *kept.values(), *nodes)
    return Planned(root, objects, placer.filled(), rows, reasons, fill_from)


class Tree:
    """The nodes of one view, made from the innermost query out."""

    def __init__(self, text: str, catalog: Catalog, world: Surroundings, id: str, name: str, start: str) -> None:
        self.text = text
        self.catalog = catalog
        self.world = world
        self.id = id
        self.name = name
        self.start = start
        self.placer = Placer(catalog, world)
        self.nodes: list[View] = []
        self.placed = 0
        self.joined: list[Span] = []  # the tables outside that are asked
        self.by_key = False  # whether what is being made shows its answers key by key
        self.named: dict[str, Query] = {}  # the common table expressions that what is being made can name
        self.whole: Query | None = None
        self.waits = False  # whether what is being made waits for windows
        self.block = SelectBlock((), ())  # that of the node that was made last
        self.typed: dict[str, SelectBlock] = {}  # those of all, by their ids
        self.splits: list[Edit] | None = None  # what makes two nodes of one that groups a join; None: nothing does
        self.pairs: list[str] = []  # and what the one below is called then
        self.partial: frozenset[Span] = frozenset()  # the SELECTs that give what new pairs add up to

    def root(self, query: Query, sql: str, fields: tuple[Field, ...], emit: str) -> View:
        view = self.node(query, {}, emit)
        names = {each.name for each in fields}
        if len(names) != len(fields):
            raise refuse(self.text, query.span, "two columns of it have the same name", "give one of them another name")
        refuse_own_names(self.text, query, fields, emit)
        return replace(renamed(view, fields), id=self.id, name=self.name, sql=sql, owner=None)

    def planned(self, root: View) -> Planned:
        return planned(self.nodes, root, self.catalog, self.world, self.placer)

    # ---- one query

    def node(self, query: Query, ctes: Mapping[str, View], emit: str) -> View:
        """The node of a query; the nodes below it are made first."""
        ctes = dict(ctes)
        emission = said(query)
        outside, self.by_key = self.by_key, self.by_key or (emission is not None and emission.by_key)
        idle, self.waits = self.waits, self.waits or (emission is not None and emission.watermark)
        around, self.named = self.named, dict(self.named)
        cut = emit != "read"
        inline: list[InlineCte] = []
        for (name, inner), columns in zip(query.ctes, query.cte_columns, strict=True):
            self.named[name.lower()] = inner
            if self.reads_live(inner, ctes) and (cut or inner.emits):
                node = self.below(inner, ctes)
                if columns:
                    others = tuple(Field(new, old.type) for new, old in zip(columns, node.fields, strict=False))
                    self.nodes[self.nodes.index(node)] = node = renamed(node, others)
                ctes[name.lower()] = node
            else:
                inline.append(InlineCte(name, columns, inner))
                ctes.pop(name.lower(), None)
        build = Build(self, query, ctes, cut, inline)
        # With each record as it comes, what is there after a run is what it shows: no record is to be told from others.
        view = build.view(emit, counted=emission is not None and (emission.counting or 1) > 1)
        self.by_key, self.waits, self.named, self.block = outside, idle, around, build.block
        if emission is not None:
            view = self._with_emission(view, emission, query)
        return view

    def below(self, query: Query, ctes: Mapping[str, View], *, stays: bool = False) -> View:
        view = self.node(query, ctes, "feed")
        view = replace(view, stays=stays and view.node == "stateless")
        number = len(self.nodes) + 1
        view = replace(view, id=self.world.new_id(f"{self.id}_{number}"), name=f"{self.name}/{number}", owner="?")
        self.typed[view.id] = self.block
        self.nodes.append(view)
        return view

    def _with_emission(self, view: View, emission: Emission, query: Query) -> View:
        view = replace(view, late=emission.late, stream=emission.stream)
        timed = tuple(key for key in view.keys if key.name in view.times)
        if emission.first and timed:
            view = coarser(view, timed)
        if emission.mode == "feed":
            if emission.late == "drop" and not (view.of_streams and bounded(view)):
                raise refuse(
                    self.text,
                    emission.span,
                    "LATE DROP is about windows that were shown, or rows that a join has let go, and here is neither",
                    "leave it out; or join streams within a time: b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR",
                )
            return view
        if emission.mode == "close" and any(r.window and partitioned(r.window) for r in query.relations()):
            refuse_budget(self.text, emission, "these windows close with a row of their own, and not by progress")
            return view  # its query gives the windows that are full, and no others
        if emission.watermark and not timed:
            closing = closing_column(view)
            own = isinstance(query.body, Select) and any(each.window is not None for each in query.body.relations)
            # Windows of its own are waited for here, and what stands below them has none that would close; nor have the
            # rows of a stream that window functions look at.
            own = own or (view.ahead is not None and all(map(self._passes_rows, view.views.values())))
            if emission.mode == "close" and not (own and closing) and self._hand_down(view, emission, query):
                if not view.ahead and not view.final:
                    return view
                if closing is None:
                    raise refuse(
                        self.text,
                        emission.span,
                        "its window functions look at rows that may still come, and no column that is shown tells when"
                        " a row is final",
                        "show window_end: rows then come when they are final, some at the end of the stream; or"
                        " PARTITION BY window_start, window_end, and they come with their window",
                    )
                # Late rows, and how much a run may show, are then the business of what is below.
                emission, view = replace(emission, late="correct", budget=None), replace(view, late="correct")
            if emission.mode == "close" and closing is not None:
                ends = view.ends if view.ends is not None and closing in view.ends.columns else None
                ends = None if view.ahead or view.final else ends
                refuse_late(self.text, view, emission, ends)
                refuse_budget(
                    self.text, emission, "what closes is looked for in the whole answer of this query, or of a key"
                )
                return replace(view, emit="close", closing=closing, ends=ends)
            raise refuse(
                self.text,
                emission.span,
                "not every part of this query has a window that closes",
                "EMIT ON WINDOW CLOSE needs GROUP BY window_start, window_end over windows of a column that progresses,"
                " and window_end among what is shown",
            )
        triggers = {
            "counting": emission.counting,
            "delay": emission.delay,
            "first": emission.first,
            "watermark": emission.watermark,
            "end": emission.end,
        }
        if view.node == "stateless":
            raise refuse(
                self.text,
                emission.span,
                "nothing in this query waits: each row is an answer of its own",
                "a trigger stands behind GROUP BY",
            )
        if view.clock != "event":
            refuse_budget(self.text, emission, "these windows do not close by event time")
        if emission.watermark and emission.counting is None and emission.delay is None:
            view = by_live_keys(view)
        return replace(view, emit="triggers", triggers=triggers, budget=budget_of(emission))

    def _hand_down(self, view: View, emission: Emission, query: Query) -> bool:
        """Let the nodes below wait for their windows, where every row of this one comes through such a node."""
        below = {node.id: node for node in self.nodes}
        if view.streams or view.blocks or not view.views or not all(id in below for id in view.views.values()):
            return False
        for id in view.views.values():
            node = below[id]
            if node.emit == "feed":
                self.nodes[self.nodes.index(node)] = self._with_emission(node, emission, query)
        return True

    def settled(self, view: View) -> bool:
        """Whether all that a node reads is final when its own time has passed."""
        below = [node for id in view.views.values() if isinstance(node := self._below(id), View)]
        return all(not each.ahead and not each.final and self.settled(each) for each in below)

    def _passes_rows(self, id: str) -> bool:
        """Whether a node below only filters and shapes rows of a stream: it has nothing to wait for."""
        node = self._below(id)
        if not isinstance(node, View) or node.node != "stateless":
            return False
        return bool(node.streams) or all(map(self._passes_rows, node.views.values()))

    def _below(self, id: str) -> object:
        return next((node for node in self.nodes if node.id == id), None) or self.catalog.objects.get(id)

    def reads_no_stream(self, view: View) -> bool:
        """Whether all that is below a node or a view are static tables and values."""
        nodes = {node.id: node for node in self.nodes}
        below = (nodes.get(id) or self.catalog.view(id) for id in view.views.values())
        return not (view.streams or view.blocks or view.rows) and all(map(self.reads_no_stream, below))

    def reads_live(self, query: Query, ctes: Mapping[str, View]) -> bool:
        binder = Binder(self.text, self.catalog, query)
        for relation in query.relations():
            if relation.name is not None and len(relation.name.parts) == 1 and relation.name.last.lower() in ctes:
                return True
            reference = binder.resolve(relation)
            if reference is not None and reference.kind in ("stream", "view"):
                return True
        return False


def refuse_budget(text: str, emission: Emission, reason: str) -> None:
    if emission.budget is not None:
        raise refuse(
            text,
            emission.span,
            f"AT MOST has nothing to spread here: {reason}",
            "leave AT MOST out, or GROUP BY window_start, window_end over TUMBLE or HOP of the event time",
        )


def refuse_late(text: str, view: View, emission: Emission, ends: Ends | None) -> None:
    """Refuse what cannot be done with late rows of windows whose ends are looked for in the answer."""
    counted = view.clock != "event" and len({*view.streams.values(), *view.views.values()}) == 1
    if emission.late == "correct" or ends is not None or counted:  # nothing that is counted comes late
        return
    said = f"LATE {emission.late.upper()}"
    raise refuse(
        text,
        emission.span,
        f"{said} has to know which rows are late, and the windows of this query do not tell",
        f"leave {said} out: late rows then correct what was shown",
    )


def renamed(view: View, fields: tuple[Field, ...]) -> View:
    """The same node with other names for its columns."""
    names = {old.name: new.name for old, new in zip(view.fields, fields, strict=True)}
    keys = tuple(Field(names.get(key.name, key.name), key.type) for key in view.keys)
    times = {names.get(name, name): shift for name, shift in view.times.items()}
    direct = tuple(replace(each, name=names[each.name]) for each in view.direct)
    meets = view.meets
    if meets is not None:
        behind, closes = (
            {names.get(name, name): each for name, each in known.items()} for known in (meets.behind, meets.closes)
        )
        meets = replace(meets, behind=behind, closes=closes, ends=tuple(names.get(name, name) for name in meets.ends))
    ends = view.ends.renamed(lambda name: names.get(name, name)) if view.ends is not None else None
    time = names.get(view.time, view.time)
    retained = view.retained and {column: names.get(name, name) for column, name in view.retained.items()}
    view = replace(view, fields=fields, keys=keys, times=times, direct=direct, meets=meets, ends=ends, time=time)
    return replace(view, retained=retained)


def by_live_keys(view: View) -> View:
    """The same node keyed by those of its keys that no REFRESH of a static table changes while they wait."""
    if not view.tables or len(view.narrows) != 1:
        return view
    (narrow,) = view.narrows
    kept = tuple(key for key, column in zip(view.keys, narrow.columns, strict=True) if column is not None)
    if not any(key.name in view.times for key in kept):
        return view
    columns = items([quote_name(column) for column in narrow.columns if column is not None])
    touch = Touch(narrow.input, f"SELECT DISTINCT {columns} FROM {quote_name(narrow.input)}")
    return replace(coarser(view, kept), touches=(touch,))


def coarser(view: View, keys: tuple[Field, ...]) -> View:
    """The same node keyed by some of its keys only."""
    kept = [index for index, key in enumerate(view.keys) if key in keys]
    chosen = items([f"`k{index}`" for index in kept])
    touches = tuple(Touch(each.input, f"SELECT DISTINCT {chosen} FROM ({each.text})") for each in view.touches)
    narrows = tuple(
        Narrow(each.input, tuple(each.columns[i] for i in kept), tuple(each.times[i] for i in kept if each.times))
        for each in view.narrows
    )
    return replace(view, keys=keys, touches=touches, narrows=narrows)
