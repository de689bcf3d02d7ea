"""One node of two: where a node only filters and projects the one below, the intermediate result is never kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.algebra.progress import FOREVER
from anabranch.ir.expr import Expr
from anabranch.ir.rel import Scan
from anabranch.ir.select import ShownItem
from anabranch.plan.block_inputs import closing_column, leading_column, waiting
from anabranch.plan.facts.append_only import ROW, first_of, first_ranked, is_distinct
from anabranch.plan.facts.lookahead import FINAL
from anabranch.plan.facts.progress import through
from anabranch.plan.view import Ends, NodeEmission, View
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from anabranch.plan.node import NodeMaker

KEY = "_k{}"


def fused(maker: NodeMaker, view: View) -> View | None:
    """A node and the one below it fused, where it only filters and projects the other.

    Their intermediate result is then never kept: of a ranking of all rows, say, only the first of each group.
    """
    below = _only_input(maker) if view.operator == "stateless" else None
    if below is None:
        return None
    names, hidden = [], []
    for index, key in enumerate(below.keying.columns):
        shown = _passed_through(maker, view, key.name)
        if shown is None:
            shown = KEY.format(index)
            hidden.append(ShownItem(Expr((quote_name(key.name),)), shown))
        names.append(shown)
    retained, kept = _retained_of(maker, view, below)
    hidden += [ShownItem(Expr((quote_name(name),)), field.name) for name, field in kept.items()]
    columns = ", ".join(quote_name(field.name) for field in (*below.fields, *below.hidden))
    inside = f"(SELECT * FROM ({below.query.text}) AS __rows({columns}))"
    name = quote_name(f"@v:{below.id}")
    text = maker.sql(maker.with_items(maker.plain, hidden))
    shows_closing = _shows_closing(maker, view, below)
    # Where no time is shown, the nodes below decide which rows come out.
    waits = shows_closing or (leading_column(view) is None and not below.progress.final)
    final = ""
    if below.progress.final and shows_closing:
        rows = f"(SELECT * FROM ({below.progress.final}) AS __rows({columns}, {FINAL}))"
        more = [*hidden, ShownItem(Expr((FINAL,)), FINAL)]
        final = maker.sql(maker.with_items(maker.plain, more)).replace(name, rows)
        passed = below.progress.times[closing_column(below) or ""]
        times = {**view.progress.times, leading_column(view) or "": passed}
        view = replace(view, progress=replace(view.progress, times=times))
    if below.progress.ahead is not None and not waits:
        view = waiting(view, FOREVER)
    maker.planner.nodes.remove(below)
    keys = tuple(Field(name, key.type) for name, key in zip(names, below.keying.columns, strict=True))
    spark_text = text.replace(name, f"({below.query.spark_text})") if below.query.spark_text else ""
    return replace(
        view,
        operator=below.operator,
        query=replace(
            view.query,
            text=text.replace(name, inside),
            spark_text=spark_text,
            streams=below.query.streams,
            tables=below.query.tables,
            views=below.query.views,
        ),
        keying=replace(below.keying, columns=keys, retained=retained, kept=tuple(kept.values())),
        join=below.join,
        progress=replace(
            view.progress,
            joint=through(view.progress.joint, below.progress.joint),
            ends=_passed_ends(maker, view, below),
            ahead=below.progress.ahead if waits else view.progress.ahead,
            next_rows=below.progress.next_rows if final else 0,
            final=final,
        ),
        beginning=replace(view.beginning, table_versions=below.table_versions),
    )


def _only_input(maker: NodeMaker) -> View | None:
    """The node below, if there is one only, which was made last, and nothing else reads it."""
    if len(maker.block.sources) != 1:
        return None
    (item,) = maker.block.sources
    below = maker.inputs.known(item) if isinstance(item.rel, Scan) else None
    nodes = maker.planner.nodes
    if not isinstance(below, View) or not nodes or below is not nodes[-1] or maker.planner.is_shared(below):
        return None
    fits = below.operator in ("keyed", "join") and below.emission == NodeEmission("feed") and not below.query.blocks
    return below if fits else None


def retaining(maker: NodeMaker, view: View) -> View:
    """A view with the rows that it continues from, where it need not read past rows again."""
    query = view.query
    if view.operator != "keyed" or query.blocks or query.tables or len(view.inputs) != 1:
        return view
    if view.progress.clock != "event":
        return view
    if is_distinct(maker.block):
        return replace(view, keying=replace(view.keying, retained={}))
    ranked = first_ranked(maker.block)
    retained = {each.name: name or ROW.format(each.name) for each, name in ranked.items()}
    whole = len(view.keying.kept) == sum(name is None for name in ranked.values())
    return replace(view, keying=replace(view.keying, retained=(whole and retained) or None))


def _shows_closing(maker: NodeMaker, view: View, below: View) -> bool:
    """Whether rows of this node close by the same time as rows of the node below would."""
    closing = closing_column(below)
    return closing is not None and _passed_through(maker, view, closing) == leading_column(view)


def _passed_ends(maker: NodeMaker, view: View, below: View) -> Ends | None:
    """When the windows of the node below end, in the columns of this one."""
    return (
        None
        if below.progress.ends is None
        else below.progress.ends.renamed(lambda column: _passed_through(maker, view, column))
    )


def _retained_of(maker: NodeMaker, view: View, below: View) -> tuple[dict[str, str] | None, dict[str, Field]]:
    """The names in this node of the stream columns of the node below, if it shows the first rows of each of its
    keys; and the columns of that node that it keeps hidden."""
    if below.operator != "keyed" or below.query.tables:
        return None, {}
    found = first_of(maker.planner.typed[below.id], [each.name for each in below.fields], maker.block)
    types = {field.name: field.type for field in below.fields}
    retained: dict[str, str] = {}
    kept: dict[str, Field] = {}
    for column, name in found.items():
        shown = _passed_through(maker, view, name)
        if shown is None:
            kept[name] = Field(ROW.format(column), types[name])
        retained[column] = shown or kept[name].name
    whole = not kept or not (maker.closed or maker.planner.by_key)
    return (retained, kept) if found and whole else (None, {})


def _passed_through(maker: NodeMaker, view: View, column: str) -> str | None:
    """The output column that passes on a column of the only relation unchanged."""
    own = maker.block.sources[0].named(column) if maker.block.sources else None
    return next((name for name, expr in maker.inputs.shown(view.fields) if own and expr.column == own), None)
