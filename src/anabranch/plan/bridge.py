"""Rules over relations for the part of planning that reads queries as text: a query is built into a plan, the rules are
applied, and the plan is written as a query again. Where no rule applies, the query stays as the user wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import NotSupported, Rewritten, SqlError
from anabranch.ir.build import Builder
from anabranch.ir.rel import is_live
from anabranch.ir.show import show
from anabranch.plan.bind import Reference
from anabranch.plan.blocks import Analyze, aggregates_in
from anabranch.plan.catalog import Catalog
from anabranch.plan.context import PlanningContext
from anabranch.plan.rules import Rule, normalize
from anabranch.render.blocks import blocks
from anabranch.sql.parser import parse
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Query, Select, SelectStatement
from anabranch.types import Field


def normalized(text: str, query: Query, catalog: Catalog, analyze: Analyze, rules: Sequence[Rule]) -> tuple[str, Query]:
    """The query after all rules."""
    if not _may_apply(query):
        return text, query
    builder = _builder(text, query, catalog, analyze)
    try:
        rel = builder.query(query, None, {})
    except SqlError:  # Spark has taken it: what the builder cannot read yet stays as it is written
        return text, query
    made = normalize(rel, rules, builder.types)
    if made is rel and not _abbreviated(query):
        return text, query
    written = blocks(made, text, is_live)

    def place(start: int, end: int) -> tuple[int, int]:
        there = written.original(start, end)
        return there.start, there.end

    (statement,) = parse(Rewritten(written.text, text, place))
    assert isinstance(statement, SelectStatement)
    return statement.text, statement.query


def steps(text: str, query: Query, catalog: Catalog, analyze: Analyze, rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """The plan of a query as it is built, and after each rule that changes it: what was done, and the plan."""
    builder = _builder(text, query, catalog, analyze)
    rel = builder.query(query, None, {})
    found = [("as written", show(rel))]
    normalize(rel, rules, builder.types, lambda rule, made: found.append((rule, show(made))))
    return found


def _builder(text: str, query: Query, catalog: Catalog, analyze: Analyze) -> Builder:
    def analysis(asked: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        return analyze(asked.text, {name: tuple(fields) for name, fields in schemas.items()})

    return Builder(text, PlanningContext(text, catalog, query, analysis, _files))


def _files(reference: Reference) -> Sequence[Field]:
    raise NotSupported(f"{reference.target} is no stream, view or table")


def _may_apply(query: Query) -> bool:
    """Whether it has anything that rules are about: queries inside, sets of groups, columns that it leaves unsaid."""
    return any(query.nested()) or _abbreviated(query) or any(not each.group_plain for each, _ in query.selects())


def _abbreviated(query: Query) -> bool:
    """Whether it groups by ALL, or shows * beside aggregates: a plan has the columns that they stand for."""
    return any(_by_all(select) or _starred(select, owner) for select, owner in query.selects())


def _by_all(select: Select) -> bool:
    return [[token.upper for token in part.tokens] for part in select.group] == [["ALL"]]


def _starred(select: Select, owner: Query) -> bool:
    return any(item.star for item in select.items) and bool(select.group or aggregates_in(select, owner))
