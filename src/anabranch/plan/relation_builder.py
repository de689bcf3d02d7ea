"""What building a relation and applying rules need of a home: its names, its views, and Spark's analyser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import NotSupported
from anabranch.ir.build import Builder
from anabranch.ir.expr import of_column
from anabranch.ir.rel import Emit, Project, Rel, Scan, TopN
from anabranch.ir.show import show
from anabranch.plan.bind import Reference
from anabranch.plan.catalog import Catalog
from anabranch.plan.name_resolution import NameResolver
from anabranch.plan.panes import Analyze
from anabranch.plan.rules import Rule, RuleContext, normalize
from anabranch.plan.states import Rows
from anabranch.plan.view import View
from anabranch.sql.parser import parse
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import CreateView, Query, SelectStatement
from anabranch.types import Field


def steps(text: str, query: Query, catalog: Catalog, analyze: Analyze, rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """The plan of a query as built, and after each rule that changes it: the name of the step, and the plan."""
    made_by = builder(text, query, catalog, analyze)
    rel = made_by.query(query, None, {})
    found = [("as written", show(rel))]
    rules_context = context(made_by, catalog, analyze)
    normalize(rel, rules, rules_context, lambda rule, made: found.append((rule, show(made))))
    return found


def builder(text: str, query: Query, catalog: Catalog, analyze: Analyze, around: Builder | None = None) -> Builder:
    def analysis(asked: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        return analyze(asked.text, {name: tuple(fields) for name, fields in schemas.items()})

    return Builder(text, NameResolver(text, catalog, query, analysis, _files), around=around)


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
    """Whether a view shows every record of its streams, and none joined with static tables: these remain as they were
    in the run that took them in."""
    nodes = [view, *catalog.nodes_of(view)]
    rows = [catalog[each.query.rows] for each in nodes if each.query.rows is not None]
    enriched = any(each.query.tables for each in nodes) or any(isinstance(each, Rows) and each.statics for each in rows)
    kept = all(catalog.stream(id).kept_since == 0 for id in catalog.sources_of(view))
    return (
        view.emission.mode in ("read", "feed")
        and not view.emission.as_changes
        and view.beginning.start == "beginning"
        and kept
        and not enriched
    )
