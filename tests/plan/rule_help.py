"""Rules applied to queries, and what they make of them as queries again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.ir.rel import is_live
from anabranch.plan import relation_builder
from anabranch.plan.catalog import Catalog
from anabranch.plan.panes import Analyze
from anabranch.plan.rules import Rule, normalize
from anabranch.render.blocks import blocks
from anabranch.sql.parser import parse
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import SelectStatement


@dataclass(frozen=True)
class Normalized:
    """A query after rules, and whether they changed it; the ids of the views whose queries have become part of it; why
    rows are kept for it."""

    written: Spliced
    changed: bool
    included: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.written.text


def normalized(sql: str, catalog: Catalog, analyze: Analyze, rules: Sequence[Rule]) -> Normalized:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    text, query = statement.text, statement.query
    builder = relation_builder.builder(text, query, catalog, analyze)
    rel = builder.query(query, None, {})
    context = relation_builder.context(builder, catalog, analyze)
    made = normalize(rel, rules, context)
    left = relation_builder.views(made)
    included = tuple(each for each in dict.fromkeys(relation_builder.views(rel)) if each not in left)
    return Normalized(blocks(made, text, is_live), made is not rel, included, tuple(context.reasons))
