"""Checks and changes that all nodes of a view share: refusals, the EMIT clause, and the definitions that a plan adds to
the catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from anabranch.algebra.windows import time_before_end
from anabranch.errors import NotSupported, SqlError, WrongType
from anabranch.plan.bind import Binder, Bound, refuse
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.hints import with_hints
from anabranch.plan.lookup_nodes import needs_lookups, refuse_refreshable
from anabranch.plan.node import items
from anabranch.plan.placer import Placer, Planned, PlanningContext, refuse_volatile
from anabranch.plan.states import Panes, Rows
from anabranch.plan.view import Ends, Narrow, Touch, View
from anabranch.plan.windows import micros_sql
from anabranch.sql.syntax import Emission, Query
from anabranch.sql.text import quote_name
from anabranch.types import Field

#: Reserved names: the columns of every change.
_OWN = re.compile(r"_(diff|version|at|k[0-9]+)", re.IGNORECASE)


def check(text: str, query: Query, catalog: Catalog, feed: bool) -> Catalog:
    """Refuse queries that cannot be a view; returns the catalog with the query's hints applied."""
    catalog = with_hints(text, query, catalog)
    refuse_volatile(text, query, kept=feed or needs_lookups(text, catalog, query))
    refuse_refreshable(text, catalog, query)
    _refuse_without_stream(text, catalog, query)
    if feed or needs_lookups(text, catalog, query) or query.emits:
        _refuse_recursive(text, query)
    return catalog


def _refuse_without_stream(text: str, catalog: Catalog, query: Query) -> None:
    """Refuse an emission clause that waits for windows or records of a query that reads no stream."""
    binder = Binder(text, catalog, query)
    for each in query.queries():
        emission = emission_of(each)
        if emission is None or emission.mode == "feed" or any(map(binder.reads_stream, each.relations())):
            continue
        raise refuse(
            text,
            emission.span,
            "this clause needs a stream: the query reads none",
            "EMIT CHANGES shows its answer, and what a REFRESH TABLE changes in it",
        )


def begun(planned: Planned, catalog: Catalog, planning: PlanningContext) -> Planned:
    """A plan whose views have their first row of each stream, where it is not the stream's first."""
    states = {**catalog.objects, **{each.id: each for each in planned.objects}}

    def from_row(view: View) -> View:
        tables = [states[id] for id in (*(use.panes for use in view.query.blocks), *filter(None, (view.query.rows,)))]
        ids = {*view.query.streams.values()} | {each.stream for each in tables if isinstance(each, Panes | Rows)}
        found = {id: planning.begins(catalog.stream(id)) for id in sorted(ids)}
        return replace(
            view,
            beginning=replace(view.beginning, rows={id: begin for id, begin in found.items() if begin is not None}),
        )

    objects = tuple(from_row(each) if isinstance(each, View) else each for each in planned.objects)
    return replace(planned, view=from_row(planned.view), objects=objects)


def _refuse_recursive(text: str, query: Query) -> None:
    for each in query.queries():
        if each.ctes and each.tokens[1].upper == "RECURSIVE":
            what = "the changes of a query with WITH RECURSIVE cannot be stored"
            raise refuse(text, each.span, what, "create a table of it: CREATE TABLE t AS WITH RECURSIVE ...")


def closing_by_panes(view: View, emission: Emission) -> View:
    """A view over panes that shows windows when they close."""
    start = next((each.name for each in view.query.direct if each.kind == "window_start"), "")
    return replace(
        view,
        emission=replace(view.emission, late=emission.late, budget=emission.budget),
        progress=replace(view.progress, times=_window_columns(view), time=start),
    )


def on_event_time(planned: Planned, catalog: Catalog) -> bool:
    """Whether the panes of a plain view use the event time of their stream."""
    ids = {use.panes for use in planned.view.query.blocks}
    panes = [each for each in planned.objects if isinstance(each, Panes) and each.id in ids]
    panes += [catalog.panes(id) for id in ids - {each.id for each in panes}]
    times = [(each.time, catalog.stream(each.stream).time) for each in panes]
    known = [(along or "", micros_sql(quote_name(time))) for along, time in times if time is not None]
    return all(along.lower() == time.lower() for along, time in known) and not any(each.numbered for each in panes)


def emission_of(query: Query) -> Emission | None:
    """The emission clause of a query, if it differs from the default."""
    return query.emission if query.emission is not None and query.emission.mode != "read" else None


def _window_columns(view: View) -> dict[str, int]:
    """The columns of a plain view over panes that are window bounds."""
    windows = view.query.blocks[0].sliding if view.query.blocks else None
    if windows is None:
        return {}
    shifts = {"window_start": windows.size, "window_end": 0, "window_time": time_before_end(windows.size)}
    return {output.name: shifts[output.kind] for output in view.query.direct if output.kind in shifts}


def refuse_own_names(text: str, query: Query, fields: Sequence[Field], emit: str) -> None:
    """Refuse output columns with the names of the columns of changes."""
    taken = next((each for each in fields if _OWN.fullmatch(each.name)), None)
    if taken is not None and emit != "read":
        what = f"the name {taken.name} is taken: a change has a column of this name in addition to those of the query"
        raise refuse(text, query.span, what, "give the column another name with AS")


def check_names(fields: tuple[Field, ...], text: str, query: Query) -> None:
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise SqlError(
                f"the view would have two columns {field.name}",
                text=text,
                at=query.head,
                hint="give one of them another name with AS",
            )
        if field.type == "void":
            raise WrongType(
                f"the column {field.name} has no type",
                text=text,
                at=query.head,
                hint="CAST(NULL AS ...) gives it one",
            )
        check_type(field, text, query)
        seen.add(field.name.lower())


def check_type(field: Field, text: str, query: Query) -> None:
    """Refuse a column that neither a table nor an answer can hold."""
    if re.search(r"\b(interval$|interval (year|month)|interval[,>]|time\()", field.type):
        raise WrongType(
            f"the column {field.name} is of type {field.type.upper()}, which cannot be stored",
            text=text,
            at=query.head,
            hint="cast it to a string, CAST(... AS STRING), or to a number",
        )


def refuse_stars(text: str, query: Query, bound: Bound, catalog: Catalog) -> None:
    """Refuse * in a view over a stream that can get more columns: the view would have to change."""
    targets = [catalog.stream(each.target) for each in bound.references.values() if each.kind == "stream"]
    growing = next((stream.name for stream in targets if stream.on_schema_change == "add"), None)
    for item in (item for select, _ in query.selects() for item in select.items if item.star and growing is not None):
        raise NotSupported(
            f"the view would change when stream {growing} gets columns: it was created with ON SCHEMA CHANGE ADD",
            text=text,
            at=item.tokens[0].span.to(item.tokens[-1].span),
            hint="name the columns of the view",
        )


def refuse_start(text: str, query: Query, bound: Bound, start: str | int) -> None:
    """Refuse a start other than the beginning over a view: its answer has no rows that came before or after."""
    for reference in bound.references.values():
        if reference.kind == "view":
            at = "NOW" if start == "now" else f"VERSION {start}"
            span = reference.relation.span if reference.relation is not None else query.span
            raise refuse(
                text,
                span,
                f"START AT {at} applies to the rows of streams, and this is a view, which is read as a whole",
                "put START AT into the definition of that view, or add a condition on the event time here",
            )


def planned(made: Sequence[View], root: View, catalog: Catalog, planning: PlanningContext, placer: Placer) -> Planned:
    """The plan of a view: its nodes, and all that has to be created with them."""
    nodes = [replace(node, owner=root.id) for node in made]
    kept: dict[str, Stream] = {}
    for view in (*nodes, root):
        for id in view.query.streams.values():
            stream = catalog.stream(id)
            if stream.kept_since is None:
                kept[id] = replace(stream, kept_since=planning.kept_since(stream))
    reasons = tuple(view.keying.reason for view in (*nodes, root) if view.keying.reason)
    rows = tuple(stream.rows_table for stream in kept.values())
    fill_from = placer.filled_from()
    objects: tuple[Panes | Rows | Stream | View, ...] = (*placer.panes.values(), *kept.values(), *nodes)
    return Planned(root, objects, placer.filled(), rows, reasons, fill_from)


def refuse_budget(text: str, emission: Emission, reason: str) -> None:
    if emission.budget is not None:
        raise refuse(
            text,
            emission.span,
            f"AT MOST does not apply here: {reason}",
            "remove AT MOST, or GROUP BY window_start, window_end over TUMBLE or HOP of the event time",
        )


def refuse_late(text: str, view: View, emission: Emission, ends: Ends | None) -> None:
    """Refuse LATE policies that windows do not support whose ends come from the answer."""
    counted = view.progress.clock != "event" and len({*view.query.streams.values(), *view.query.views.values()}) == 1
    if emission.late == "correct" or ends is not None or counted:  # what is counted is never late
        return
    clause = f"LATE {emission.late.upper()}"
    raise refuse(
        text,
        emission.span,
        f"{clause} needs to know which rows are late, and the windows of this query do not show it",
        f"remove {clause}: late rows then correct what was shown",
    )


def renamed(view: View, fields: tuple[Field, ...]) -> View:
    """The same node with renamed columns."""
    names = {old.name: new.name for old, new in zip(view.fields, fields, strict=True)}
    keys = tuple(Field(names.get(key.name, key.name), key.type) for key in view.keying.columns)
    times = {names.get(name, name): shift for name, shift in view.progress.times.items()}
    direct = tuple(replace(each, name=names[each.name]) for each in view.query.direct)
    joint = view.progress.joint
    if joint is not None:
        behind, closes = (
            {names.get(name, name): each for name, each in known.items()} for known in (joint.behind, joint.closes)
        )
        joint = replace(joint, behind=behind, closes=closes, ends=tuple(names.get(name, name) for name in joint.ends))
    ends = view.progress.ends.renamed(lambda name: names.get(name, name)) if view.progress.ends is not None else None
    time = names.get(view.time, view.time)
    retained = view.keying.retained and {column: names.get(name, name) for column, name in view.keying.retained.items()}
    return replace(
        view,
        fields=fields,
        keying=replace(view.keying, columns=keys, retained=retained),
        progress=replace(view.progress, times=times, joint=joint, ends=ends, time=time),
        query=replace(view.query, direct=direct),
    )


def by_live_keys(view: View) -> View:
    """The same node keyed only by keys that no REFRESH of a static table changes while they wait."""
    if not view.query.tables or len(view.keying.narrows) != 1:
        return view
    (narrow,) = view.keying.narrows
    kept = tuple(key for key, column in zip(view.keying.columns, narrow.columns, strict=True) if column is not None)
    if not any(key.name in view.progress.times for key in kept):
        return view
    columns = items([quote_name(column) for column in narrow.columns if column is not None])
    touch = Touch(narrow.input, f"SELECT DISTINCT {columns} FROM {quote_name(narrow.input)}")
    view = coarser(view, kept)
    return replace(view, keying=replace(view.keying, touches=(touch,)))


def coarser(view: View, keys: tuple[Field, ...]) -> View:
    """The same node keyed by some of its keys."""
    kept = [index for index, key in enumerate(view.keying.columns) if key in keys]
    chosen = items([f"`k{index}`" for index in kept])
    touches = tuple(Touch(each.input, f"SELECT DISTINCT {chosen} FROM ({each.text})") for each in view.keying.touches)
    narrows = tuple(
        Narrow(each.input, tuple(each.columns[i] for i in kept), tuple(each.times[i] for i in kept if each.times))
        for each in view.keying.narrows
    )
    return replace(view, keying=replace(view.keying, columns=keys, touches=touches, narrows=narrows))
