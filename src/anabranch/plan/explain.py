"""What a query will do: its nodes as planned, and as they would be with a subscription to its changes.

Plans the query and creates nothing. `render` writes the result.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError, NotSupported, Rewritten
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog
from anabranch.plan.describe import PlanNode, describe, kind_of
from anabranch.plan.join_state import unbounded
from anabranch.plan.placer import Planned, PlanningContext
from anabranch.plan.planner import plan
from anabranch.plan.relation_builder import builder, steps
from anabranch.plan.rules.order import rules_for
from anabranch.plan.view import View
from anabranch.render.blocks import blocks
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateView, Query, SelectStatement
from anabranch.types import Field

#: The name of a query without one.
NAME = "query"


@dataclass(frozen=True)
class Explanation:
    """A query or view: its nodes, and, if its changes are not kept, the nodes that would keep them."""

    heading: str
    fields: tuple[Field, ...]
    nodes: tuple[PlanNode, ...] = ()
    kept: tuple[PlanNode, ...] = ()
    refused: str = ""  # why its changes cannot be kept
    outside: tuple[str, ...] = ()  # the queries that databases run
    canonical: str = ""  # the query as it was read, where it was written in another spelling


def explain_query(
    text: str, query: Query, catalog: Catalog, planning: PlanningContext, fields: tuple[Field, ...]
) -> Explanation:
    """The explanation of a query as a view."""
    explanation = _explained(text, query, catalog, planning, fields)
    canonical = query.sql(text) if isinstance(text, Rewritten) else ""
    respelt = any(select.window or (select.implied and owner is not query) for select, owner in query.selects())
    if explanation.nodes and (query.spelled or respelt):
        with suppress(NotSupported):  # what it reads outside the home has no relation here
            canonical = blocks(builder(text, query, catalog, planning.analyze).query(query, None, {}), text).text
    return replace(explanation, canonical=canonical)


def _explained(
    text: str, query: Query, catalog: Catalog, planning: PlanningContext, fields: tuple[Field, ...]
) -> Explanation:
    references = Binder(text, catalog, query).bind().references.values()
    kinds = {reference.kind for reference in references}
    if not kinds & {"stream", "view"}:
        return Explanation("batch query: it reads no stream", fields)
    only_views = kinds <= {"view", "table", "system", "file", "outside"}
    heading = "query over views: computed when read, from their state" if only_views and not query.emits else ""
    subject = _Subject(planning.new_id(NAME), NAME, text, query.sql(text), query, "beginning", fields)
    try:
        planned = subject.plan(catalog, planning)
    except AnabranchError:
        if not heading:
            raise
        # It cannot be a view, but it can be read: it reads an older version, or a file.
        views = [catalog.view(each.target) for each in references if each.kind == "view"]
        return Explanation(heading, fields, tuple(describe(catalog, views)))
    nodes = _nodes(planned, catalog)
    kept, refused = _kept(subject, planned.view, catalog, planning)
    return Explanation(heading, fields, nodes, kept, refused)


def explain_rules(text: str, query: Query, catalog: Catalog, planning: PlanningContext) -> list[str]:
    """The typed plan of a query, as built and after each rule that changes it."""
    lines: list[str] = []
    done = steps(text, query, catalog, planning.analyze, rules_for(query, query.emits))
    for what, shown in done:
        lines += [f"{what}:", *(f"  {line}" for line in shown.splitlines())]
    return lines if len(done) > 1 else [*lines, "no rule changes it"]


def explain_view(view: View, catalog: Catalog, planning: PlanningContext) -> Explanation:
    """The explanation of a view."""
    reasons: dict[str, str] = {}
    gathers: dict[str, tuple[str, ...]] = {}
    subject = _subject(view)
    if view.emission.mode == "read" and kind_of(view) == "recomputed" and (view.query.streams or view.query.views):
        planned = subject.plan(catalog, planning)
        reasons[view.id] = "; ".join(dict.fromkeys(planned.reasons))
        gathers[view.id] = planned.gathers
    kept, refused = _kept(subject, view, catalog, planning)
    return Explanation("", view.shown_fields, tuple(describe(catalog, [view], reasons, gathers)), kept, refused)


def unbounded_joins(view: View, catalog: Catalog, planning: PlanningContext) -> list[str]:
    """Warnings on the unbounded joins of a view; of one computed when read, as if its changes were kept."""
    nodes = [*catalog.nodes_of(view), view]
    if view.emission.mode == "read" and len(view.inputs) > 1:
        try:
            planned = _subject(view).plan(catalog, planning, feed=True)
        except AnabranchError:
            return []
        nodes = [each for each in (*planned.objects, planned.view) if isinstance(each, View)]
    return [line for each in nodes for line in unbounded(each)]


@dataclass(frozen=True)
class _Subject:
    """The query to plan."""

    id: str
    name: str
    text: str
    sql: str
    query: Query
    start: str
    fields: tuple[Field, ...]

    def plan(self, catalog: Catalog, planning: PlanningContext, *, feed: bool = False) -> Planned:
        return plan(
            id=self.id, name=self.name, text=self.text, sql=self.sql, query=self.query, start=self.start,
            fields=self.fields, catalog=catalog, planning=planning, feed=feed,
        )  # fmt: skip


def plan_again(view: View, catalog: Catalog, planning: PlanningContext) -> Planned:
    """The plan of a view over the present catalog."""
    return _subject(view).plan(catalog, planning)


def _subject(view: View) -> _Subject:
    statement = parse(view.sql)[0]
    assert isinstance(statement, CreateView | SelectStatement)
    return _Subject(view.id, view.name, statement.text, view.sql, statement.query, view.beginning.start, view.fields)


def _nodes(planned: Planned, catalog: Catalog) -> tuple[PlanNode, ...]:
    view = planned.view
    reasons = {view.id: "; ".join(dict.fromkeys(planned.reasons))} if not view.operator else {}
    gathers = {view.id: planned.gathers}
    return tuple(describe(catalog.with_objects((*planned.objects, view)), [view], reasons, gathers))


def _kept(
    subject: _Subject, view: View, catalog: Catalog, planning: PlanningContext
) -> tuple[tuple[PlanNode, ...], str]:
    """The nodes that would keep the changes of a query that is computed when read; or why they cannot be kept."""
    if view.emission.mode != "read":
        return (), ""
    try:
        below = _with_kept_below(subject, catalog, planning)
        return _nodes(subject.plan(below, planning, feed=True), below), ""
    except AnabranchError as error:
        return (), error.message


def _with_kept_below(subject: _Subject, catalog: Catalog, planning: PlanningContext) -> Catalog:
    """A catalog in which the views that a query reads keep their changes."""
    for reference in Binder(subject.text, catalog, subject.query).bind().references.values():
        if reference.kind == "view" and reference.plain:
            view = catalog.view(reference.target)
            if view.emission.mode == "read":
                inner = _subject(view)
                catalog = _with_kept_below(inner, catalog, planning)
                planned = inner.plan(catalog, planning, feed=True)
                catalog = catalog.with_objects((*planned.objects, planned.view))
    return catalog
