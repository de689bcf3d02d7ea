"""Joins with external tables that are looked up by key.

    FROM orders o LEFT JOIN customers c ON c.id = o.customer AND c.since < o.ts

becomes a node that keeps each row of orders with the list of its matching customers, and the query above it:

    FROM `@v:node` o LEFT JOIN LATERAL inline(o._matches_0) c ON c.id = o.customer AND c.since < o.ts

A LEFT SEMI or ANTI JOIN only checks row by row whether an element of the list matches,

    FROM `@v:node` o CROSS JOIN LATERAL inline(CASE WHEN exists(o._matches_0, c -> c.id = o.customer) THEN ... END)

The lookup uses the conditions that `lookup_keys` finds; Spark evaluates all conditions over the matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.errors import SqlError
from anabranch.ir.expr import Column, Expr, of_column
from anabranch.ir.rel import Project, Rel, Scan, Source, TableFunction, Windowed
from anabranch.ir.select import FromItem, SelectBlock
from anabranch.ir.text import Shown
from anabranch.plan.bind import Binder, refuse
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.lookup_keys import LookupKey, find_lookup_key
from anabranch.plan.name_resolution import placeholder
from anabranch.plan.view import (
    LOOKUP_VERSION,
    Beginning,
    NodeEmission,
    NodeProgress,
    NodeQuery,
    TableLookup,
    View,
    leading_time,
)
from anabranch.render.blocks import plain_name
from anabranch.sql.durations import is_unit
from anabranch.sql.syntax import Query, Relation
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from anabranch.plan.planner import Planner

MATCHES = "_matches_{}"
HALF = "__half"
_MATCH = "__match"


def lookup_table(binder: Binder, relation: Relation) -> Table | None:
    """The table of a relation, if it is looked up by key."""
    reference = binder.resolve(relation)
    found = binder.catalog.objects.get(reference.target) if reference is not None else None
    return found if isinstance(found, Table) and found.asked else None


def needs_lookups(text: str, catalog: Catalog, query: Query) -> bool:
    """Whether a query reads a table that is looked up by key: its answer then depends on when it looks."""
    if not any(table.asked for table in catalog.of(Table)):
        return False
    binder = Binder(text, catalog, query)
    return any(lookup_table(binder, relation) is not None for relation in query.relations())


def refuse_refreshable(text: str, catalog: Catalog, query: Query) -> None:
    """Refuse REFRESHABLE, since a row keeps its matches, and windows that a row closes, since all joined rows make
    them."""
    for select, owner in query.selects():
        closes = owner.emission is not None and owner.emission.mode == "close"
        if not closes or not any(each.refreshable is not None for each in select.relations):
            continue
        for relation in select.relations:
            if relation.window is not None and relation.window.counts_by_key:
                what = "these windows depend on all joined rows, and REFRESHABLE joins after them"
                raise refuse(text, relation.span, what, "create a view of the windows, and join that")
    for relation in query.relations():
        if relation.refreshable is None:
            continue
        table = lookup_table(Binder(text, catalog, query), relation)
        if table is not None:
            what = f"{table.name} is looked up by key: the matches of a row are kept, and nothing is refreshed"
            raise refuse(text, relation.refreshable, what, "remove REFRESHABLE")


def only_joined(planner: Planner, scan: Scan, table: Table) -> SqlError:
    """The error for a table that is looked up by key and used in anything but a join."""
    how = f"as in FROM s JOIN {table.name} t ON t.id = s.id; or load it: CREATE TABLE ... lookup => 'never'"
    return planner.refuse(scan, f"{table.name} is looked up by key: it can only be joined", how)


def reads_lookup_table(block: SelectBlock) -> bool:
    """Whether a relation of a SELECT is a table that is looked up by key."""
    return any(each.scan is not None and each.scan.source.looked_up for each in block.sources)


def place_lookups(planner: Planner, block: SelectBlock) -> SelectBlock:
    """A SELECT with a node for each relation whose rows look tables up, and lists of matches for the tables."""
    return _Placing(planner, block).placed() if reads_lookup_table(block) else block


class _Placing:
    def __init__(self, planner: Planner, block: SelectBlock) -> None:
        self.planner = planner
        self.block = block
        self.sources = list(block.sources)
        read = [expr.columns() for expr in (*block.exprs(), *block.merged.values())]
        read += [each.call.columns() for each in block.generators]
        read += [each.rel.free for each in block.sources]
        self.read = frozenset[Column]().union(*read)

    def placed(self) -> SelectBlock:
        by_live: dict[int, dict[int, tuple[Table, LookupKey]]] = {}
        for index, item in enumerate(self.block.sources):
            table = self.planner.object(item.scan.source.target) if item.scan is not None else None
            if isinstance(table, Table) and table.asked:
                self._check(index, item.scan, table)
                key = find_lookup_key(self.planner.text, self.block, index, table, self.planner.types)
                by_live.setdefault(key.live, {})[index] = table, key
        for live, tables_by_index in by_live.items():
            self._replace(live, tables_by_index)
        return replace(self.block, sources=tuple(self.sources))

    def _check(self, index: int, scan: Scan | None, table: Table) -> None:
        item = self.block.sources[index]
        assert scan is not None
        if index == 0 or item.kind in ("right", "full"):
            raise self.planner.refuse(
                scan,
                f"{table.name} is looked up by key, for the rows of a stream or view on its left",
                f"join it as in FROM s LEFT JOIN {table.name} t ON t.id = s.id",
            )
        if item.window is not None:
            raise self.planner.refuse(
                item.window, f"{table.name} is looked up as it is now", "remove what is around it"
            )

    def _replace(self, live: int, tables_by_index: Mapping[int, tuple[Table, LookupKey]]) -> None:
        """Replace a relation by a node that looks tables up for its rows."""
        item = self.block.sources[live]
        scan = item.scan
        assert scan is not None
        if self.planner.numbered(scan):
            raise self.planner.refuse(
                scan,
                "the rows of this relation are stored with the result of a lookup, without row numbers",
                "number them in a query: FROM (SELECT ...) t JOIN ...",
            )
        exposed = item.label or "__rows"
        needs_lookups: list[TableLookup] = []
        lists: list[Column] = []
        for number, (index, (table, key)) in enumerate(tables_by_index.items()):
            kept = {each.name: self._fields(table)[each.name] for each in self._kept(index).values()}
            lookup = TableLookup(
                table.id,
                exposed,
                tuple(_over_row(item, exposed, pair.value) for pair in key.pairs),
                tuple(next(name for name in self._fields(table) if name.lower() == p.column) for p in key.pairs),
                tuple(kept),
                MATCHES.format(number),
                tuple(pair.sign for pair in key.pairs) if key.types else (),
                key.types,
            )
            struct = ",".join(f"{quote_name(name)}:{type}" for name, type in kept.items())
            needs_lookups.append(lookup)
            lists.append(self.planner.new(lookup.into, f"array<struct<{struct}>>"))
            self.sources[index] = self._matches(index, lists[-1])
        node = self._node(item, scan, needs_lookups, lists, [table for table, _ in tables_by_index.values()])
        source = Source("view", node.id, scan.source.name)
        made = replace(scan, source=source, given=(*scan.given, *lists))
        self.sources[live] = replace(item, rel=_with_lists(item.rel, made, lists))

    @staticmethod
    def _fields(table: Table) -> dict[str, str]:
        return {field.name: field.type for field in table.fields}

    def _kept(self, index: int) -> dict[Column, Column]:
        """The columns of a table that the query reads, with those of its rows; one column if it reads none."""
        item = self.block.sources[index]
        read = [column for column in item.columns if column in self.read] or item.columns[:1]
        own = {column: item.row_column(column) for column in read}
        return {column: row for column, row in own.items() if row is not None}

    def _matches(self, index: int, matches: Column) -> FromItem:
        """The replacement of a table: the rows in the list of its matches."""
        item = self.block.sources[index]
        if item.kind not in ("semi", "anti"):
            call = Expr(("inline", "(", matches, ")"))
            return replace(item, rel=TableFunction(call, tuple(self._kept(index)), label=item.label), lateral=True)
        # One row without columns for each row that has a match, or has none.
        assert item.on is not None
        holds = item.on.substitute(
            {column: Expr((_MATCH, ".", quote_name(own.name))) for column, own in self._kept(index).items()}
        )
        call = Expr(
            ("inline", "(", "CASE", "WHEN", *(["NOT"] if item.kind == "anti" else []), "coalesce", "(", "exists", "(",
             matches, ",", _MATCH, "->", *holds.parts, ")", ",", "false", ")", "THEN", "array", "(", "named_struct",
             "(", f"'{HALF}'", ",", "true", ")", ")", "END", ")")
        )  # fmt: skip
        rows = TableFunction(call, (self.planner.new(HALF, "boolean"),))
        return FromItem(rows, f"{HALF}_{index}", lateral=True, static=True)

    def _node(
        self,
        item: FromItem,
        scan: Scan,
        needs_lookups: Sequence[TableLookup],
        lists: Sequence[Column],
        tables: Sequence[Table],
    ) -> View:
        planner, name = self.planner, placeholder(scan, numbered=False)[1:-1]
        known = planner.object(scan.source.target)
        assert isinstance(known, Stream | View)
        if isinstance(known, Stream):
            times, clock = ({known.time: 1} if known.time is not None else {}), "event"
        else:
            times, clock = dict(known.progress.times), known.progress.clock
        fields = (*known.fields, Field(LOOKUP_VERSION, "bigint"), *(Field(each.name, each.type) for each in lists))
        query = NodeQuery(
            f"SELECT * FROM {quote_name(name)}",
            streams={name: known.id} if isinstance(known, Stream) else {},
            tables={f"@t:{table.id}": table.id for table in tables},
            views={name: known.id} if isinstance(known, View) else {},
            asks=tuple(needs_lookups),
        )
        progress = NodeProgress(times, leading_time(known.fields, times), clock=clock)
        view = View(
            "?", "?", "", None, fields, "lookup", query, progress=progress, emission=NodeEmission("feed"),
            beginning=Beginning(planner.start),
        )  # fmt: skip
        sql = f"{item.label or known.name} with {', '.join(table.name for table in tables)}"
        return planner.add(view, SelectBlock((), ()), sql)


def _over_row(item: FromItem, exposed: str, value: Expr) -> str:
    """An expression over the rows of a relation, as text."""

    def name(column: Column) -> str:
        own = item.row_column(column)
        assert own is not None
        return f"{exposed if is_unit(exposed) else plain_name(exposed)}.{plain_name(own.name)}"

    writer = Shown(name)
    writer.expr(value)
    return writer.written.text


def _with_lists(rel: Rel, scan: Scan, lists: Sequence[Column]) -> Rel:
    """A relation over another scan, which has lists of matches as additional columns."""
    if isinstance(rel, Windowed):
        return replace(rel, input=_with_lists(rel.input, scan, lists), kept=(*rel.kept, *lists))
    if isinstance(rel, Project):
        items = (*rel.items, *((column, of_column(column)) for column in lists))
        return replace(rel, input=_with_lists(rel.input, scan, lists), items=items)
    return scan
