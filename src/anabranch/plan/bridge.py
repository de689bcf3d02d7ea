"""Rules over relations for the part of planning that reads queries as text: a query is built into a plan, the rules are
applied, and the plan is written as a query again. Where no rule applies, the query stays as the user wrote it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.errors import NotSupported, Rewritten, SqlError
from anabranch.ir.build import Builder
from anabranch.ir.expr import Column, of_column
from anabranch.ir.rel import Emit, Project, Rel, Scan, TopN, is_live
from anabranch.ir.show import show
from anabranch.plan.bind import Reference
from anabranch.plan.blocks import Analyze, aggregates_in
from anabranch.plan.catalog import Catalog, Rows, View
from anabranch.plan.context import PlanningContext
from anabranch.plan.rules import Rule, RuleContext, normalize
from anabranch.render.blocks import blocks
from anabranch.sql.calls import clock_calls
from anabranch.sql.lexer import tokenize
from anabranch.sql.parser import parse
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import CreateView, Query, Select, SelectStatement
from anabranch.types import Field

New = Callable[[str, str], Column]


@dataclass(frozen=True)
class Normalized:
    """A query after all rules, and the ids of the views whose queries have become part of it."""

    text: str
    query: Query
    included: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()  # why rows are kept


def normalized(text: str, query: Query, catalog: Catalog, analyze: Analyze, rules: Sequence[Rule]) -> Normalized:
    """The query after all rules, with common table expressions that no stream changes where they are read."""
    if not _may_apply(text, query):
        return Normalized(text, query)
    made_by = builder(text, query, catalog, analyze)
    try:
        rel = made_by.query(query, None, {})
    except SqlError:  # Spark has taken it: what the builder cannot read yet stays as it is written
        return Normalized(text, query)
    asked = context(made_by, catalog, analyze)
    made = normalize(rel, rules, asked)
    if made is rel and not _abbreviated(query) and all(map(is_live, made_by.ctes)):
        return Normalized(text, query)
    written = blocks(made, text, is_live)

    def place(start: int, end: int) -> tuple[int, int]:
        there = written.original(start, end)
        return there.start, there.end

    (statement,) = parse(Rewritten(written.text, text, place))
    assert isinstance(statement, SelectStatement)
    left = views(made)
    included = tuple(each for each in dict.fromkeys(views(rel)) if each not in left)
    return Normalized(statement.text, statement.query, included, tuple(asked.reasons))


def steps(text: str, query: Query, catalog: Catalog, analyze: Analyze, rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """The plan of a query as it is built, and after each rule that changes it: what was done, and the plan."""
    made_by = builder(text, query, catalog, analyze)
    rel = made_by.query(query, None, {})
    found = [("as written", show(rel))]
    asked = context(made_by, catalog, analyze)
    normalize(rel, rules, asked, lambda rule, made: found.append((rule, show(made))))
    return found


def builder(text: str, query: Query, catalog: Catalog, analyze: Analyze, around: Builder | None = None) -> Builder:
    def analysis(asked: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        return analyze(asked.text, {name: tuple(fields) for name, fields in schemas.items()})

    return Builder(text, PlanningContext(text, catalog, query, analysis, _files), around=around)


def _files(reference: Reference) -> Sequence[Field]:
    raise NotSupported(f"{reference.target} is no stream, view or table")


def views(rel: Rel) -> list[str]:
    return [each.source.target for each in rel.walk() if isinstance(each, Scan) and each.source.kind == "view"]


# ---- the queries of views


def context(around: Builder, catalog: Catalog, analyze: Analyze) -> RuleContext:
    def expand(scan: Scan) -> Rel | None:
        view = catalog.objects[scan.source.target]
        assert isinstance(view, View)
        if scan.source.provisional or scan.source.version is not None or not _shows_all(view, catalog):
            return None
        (statement,) = parse(view.sql)
        assert isinstance(statement, CreateView | SelectStatement)
        rel = builder(statement.text, statement.query, catalog, analyze, around).query(statement.query, None, {})
        while isinstance(rel, Emit) or (isinstance(rel, TopN) and rel.limit is rel.offset is None):
            rel = rel.input
        pairs = zip(scan.columns, rel.columns, strict=True)
        return Project(rel, tuple((own, of_column(column)) for own, column in pairs), label=scan.label)

    return RuleContext(around.types, around.new, expand)


def _shows_all(view: View, catalog: Catalog) -> bool:
    """Whether a view shows each record that its streams ever made, and none that has met static tables: these stay as
    they were in the run that took them in."""
    nodes = [view, *catalog.nodes_of(view)]
    rows = [catalog[each.rows] for each in nodes if each.rows is not None]
    meets = any(each.tables for each in nodes) or any(isinstance(each, Rows) and each.statics for each in rows)
    kept = all(catalog.stream(id).kept_since == 0 for id in catalog.sources_of(view))
    return view.emit in ("read", "feed") and not view.stream and view.start == "beginning" and kept and not meets


# ---- what rules are about


def _may_apply(text: str, query: Query) -> bool:
    """Whether it has anything that rules are about: queries inside, sets of groups, columns that it leaves unsaid,
    triggers that count, joins that wait, and what changes without rows."""
    if any(each.refreshable is not None for each in query.relations()) or any(clock_calls(tokenize(text))):
        return True
    waits = any(each.watermark for each in query.emissions())
    counts = any((each.counting or 1) > 1 for each in query.emissions())
    counts = counts or (waits and any(len(each.relations) > 1 for each, _ in query.selects()))
    sets = any(not each.group_plain for each, _ in query.selects())
    return counts or sets or any(query.nested()) or bool(query.dropped) or _abbreviated(query)


def _abbreviated(query: Query) -> bool:
    """Whether it groups by ALL, or shows * beside aggregates: a plan has the columns that they stand for."""
    return any(_by_all(select) or _starred(select, owner) for select, owner in query.selects())


def _by_all(select: Select) -> bool:
    return [[token.upper for token in part.tokens] for part in select.group] == [["ALL"]]


def _starred(select: Select, owner: Query) -> bool:
    return any(item.star for item in select.items) and bool(select.group or aggregates_in(select, owner))
