"""Breaks ties in a one-off query: between versions of one time, and in aggregates that pick or list rows, so that they
return what a view of the same query shows. Other ties are left to Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anabranch.errors import AnabranchError
from anabranch.ir.build import Builder
from anabranch.ir.rel import Scan
from anabranch.ir.select import SelectBlock, SetBlock, ShownItem
from anabranch.ir.versions import UNTIL
from anabranch.plan.bind import Bound, Reference
from anabranch.plan.filled import filled
from anabranch.plan.name_resolution import NameResolver, placeholder
from anabranch.plan.picks import PICKING, depends_on_order
from anabranch.plan.tie_breaking import break_ties
from anabranch.render.placeholders import PlaceholderWriter, select_sql
from anabranch.sql.splice import Spliced
from anabranch.sql.text import quote_name
from anabranch.types import Field

Analyze = Callable[[Spliced, Mapping[str, Sequence[Field]]], list[Field]]


def break_query_ties(bound: Bound, columns: Callable[[str], Sequence[Field]], analyze: Analyze) -> Spliced:
    """A bound query with its ties broken. `columns` returns those of a placeholder."""
    binder = bound.binder
    if binder is None:
        return bound.text
    tokens, planned = binder.query.tokens, binder.query.needs_plan
    if not planned and not any(token.text.lower() in PICKING for token in tokens):
        return bound.text
    known = {each.relation.span: name for name, each in bound.references.items() if each.relation is not None}

    def fields(reference: Reference) -> Sequence[Field]:
        assert reference.relation is not None or reference.kind == "system"
        return columns(known[reference.relation.span] if reference.relation is not None else reference.placeholder)

    def leaf(scan: Scan) -> str:
        name = known.get(scan.written.whole) if scan.written is not None else None
        return quote_name(name) if name is not None else placeholder(scan)

    times = binder.catalog.event_times(reference.target for reference in bound.references.values())
    windows: set[int] = set()

    def writer() -> PlaceholderWriter:
        emission = binder.query.emission
        closed = emission is not None and emission.mode == "close"
        return PlaceholderWriter(leaf, shape, closed=closed, filled=windows, text=binder.text)

    def shape(block: SelectBlock | SetBlock) -> SelectBlock | SetBlock:
        if isinstance(block, SetBlock):
            return block
        block, ids = filled(binder.text, block)
        windows.update(ids)
        versions = any((item.name or "").startswith(UNTIL) for item in block.items)
        if not versions and not any(map(depends_on_order, block.calls)):
            return block

        def types(exprs: Sequence[object]) -> list[str]:
            shown = tuple(ShownItem(expr, f"x{index}") for index, expr in enumerate(exprs))  # type: ignore[arg-type]
            sources = tuple(each for each in block.sources)
            text = select_sql(SelectBlock(sources, shown, generators=block.generators), writer())
            return [each.type for each in analyze(text, {name: columns(name) for name in bound.references})]

        return break_ties(block, times, types)

    try:
        context = NameResolver(binder.text, binder.catalog, binder.query, analyze, fields)
        rel = Builder(binder.text, context).query(binder.query, None, {})
        made = writer()
        made.nested(rel, [column.name for column in rel.columns])
        if not planned:
            analyze(made.written, {name: columns(name) for name in bound.references})
    except AnabranchError:  # Spark runs it as written
        if planned:
            raise
        return bound.text
    return made.written
