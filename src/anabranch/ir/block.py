"""One SELECT block to nodes: Filter, Aggregate, Filter, OverRows, Filter, Generate, Project, Distinct, TopN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch.ir import groups
from anabranch.ir.analysis import Analysis, analysis_names
from anabranch.ir.expr import Call, Column, Expr, SortKey, of_column
from anabranch.ir.fold import aggregate_calls, window_calls
from anabranch.ir.group_windows import Grouping
from anabranch.ir.logic import conjunction
from anabranch.ir.order import Order, ordinal
from anabranch.ir.rel import (
    Aggregate,
    Computed,
    Distinct,
    Filter,
    Generate,
    Join,
    OverRows,
    Project,
    Rel,
    TopN,
)
from anabranch.ir.rewrite import Rewrite
from anabranch.ir.scope import Exposed, Scope
from anabranch.ir.select import SelectBlock, ShownItem
from anabranch.sql.calls import GENERATORS
from anabranch.sql.syntax import Item, Select
from anabranch.sql.text import Span
from anabranch.types import Field

if TYPE_CHECKING:
    from anabranch.ir.build import Builder, Ctes


@dataclass(frozen=True)
class _Item:
    """An entry of the SELECT list, with its alias or its own name."""

    expr: Expr
    alias: str | None
    own: str | None = None

    @property
    def generator(self) -> str | None:
        """The generator function (one row to several), if the item calls one."""
        name, bracket = (*self.expr.parts, "", "")[:2]
        return name.lower() if isinstance(name, str) and name.lower() in GENERATORS and bracket == "(" else None


@dataclass
class _Types:
    """The fields that Spark resolved for the expressions of a block, in the order of the analysis."""

    items: list[Field] = field(default_factory=list)  # except those of a generator
    keys: list[Field] = field(default_factory=list)
    calls: list[Field] = field(default_factory=list)
    over: list[Field] = field(default_factory=list)
    sort: list[Field] = field(default_factory=list)
    generated: list[Field] = field(default_factory=list)


class Block:
    def __init__(self, builder: Builder, select: Select, order: Order, outer: Scope | None, ctes: Ctes) -> None:
        self.builder = builder
        self.select = select
        self.order = order
        self.source = builder.source(select, outer, ctes)
        self.input, self.scope = self.source.rel, self.source.scope
        self.reader = builder.reader(self.scope, ctes, select)
        self.window: Grouping | None = None
        if select.window is not None:
            self.window = Grouping(builder, select, select.window, self.reader, self.source)
            self.reader = replace(self.reader, aliases=self.window.names)
        self.items = self._items()
        given = {each.alias.lower(): each.expr for each in self.items if each.alias is not None}
        aliases = {**self.reader.aliases, **given}
        # GROUP BY prefers a column to an alias of the SELECT list; HAVING and later clauses prefer the alias.
        self.grouping = replace(self.reader, aliases=aliases)
        self.behind = replace(self.reader, aliases=aliases, first=True)
        where = [self.reader.expr(select.where.tokens)] if select.where is not None else []
        self.where = conjunction([*builder.implied(select.implied_conditions, self.scope), *where])
        self.having = self.behind.expr(select.having.tokens) if select.having is not None else None
        self.qualify = self.behind.expr(select.qualify.tokens) if select.qualify is not None else None
        self.sort = tuple(
            replace(key, expr=self._by_position(groups.unbracketed(key.expr)))
            for key in self.behind.sort_keys(order.keys)
        )
        grouped = groups.read(select.group, self.grouping, self._by_position, [each.expr for each in self.items])
        self.keys, self.sets = (grouped.keys, grouped.sets) if grouped is not None else ((), ())
        if self.window is not None:
            self._put_window(self.window)
        upper = [*(each.expr for each in self.items), *(key.expr for key in self.sort)]
        upper += [each for each in (self.having, self.qualify) if each is not None]
        self.calls = list({call.normal: call for call in aggregate_calls(upper)}.values())
        self.over = list({call.normal: call for call in window_calls(upper)}.values())
        self.aggregated = grouped is not None or bool(self.calls)

    # ---- reading

    def _items(self) -> list[_Item]:
        items: list[_Item] = []
        given = dict(self.reader.aliases)  # an item may use the aliases before it
        for each in self.select.items:
            if each.star:
                items += [_Item(of_column(column), None, column.name) for column in self._star(each)]
                continue
            expr = replace(self.reader, aliases=given).expr(each.tokens)
            items.append(_Item(expr, each.alias, _own_name(expr)))
            if each.alias is not None:
                given.setdefault(each.alias.lower(), expr)
        return items

    def _star(self, item: Item) -> Iterator[Column]:
        at = next(index for index, token in enumerate(item.tokens) if token.text == "*")
        qualifier = item.tokens[at - 2].name if at > 1 else None
        columns = self.scope.starred(qualifier)
        if columns is None:
            raise self.scope.unknown(self.builder.text, (qualifier or "*", "*"), item.span)
        excluded = item.excluded
        return (column for column in columns if column.name.lower() not in excluded)

    def _by_position(self, expr: Expr) -> Expr:
        at = ordinal(expr, len(self.items))
        return expr if at is None else self.items[at].expr

    def _put_window(self, window: Grouping) -> None:
        """Resolve the window of GROUP BY to columns of FROM."""
        rest = [each for each in (self.having, self.qualify) if each is not None]
        exprs = [*(each.expr for each in self.items), *(key.expr for key in self.sort), *rest]
        self.where, self.keys = window.place(self.where, self.keys, exprs, bool(self.sets))
        self.source, self.input = window.source, window.source.rel
        self.items = [replace(each, expr=window(each.expr)) for each in self.items]
        self.sort = tuple(replace(key, expr=window(key.expr)) for key in self.sort)
        self.having = None if self.having is None else window(self.having)
        self.qualify = None if self.qualify is None else window(self.qualify)

    def select_block(self) -> SelectBlock:
        """The block as written; only columns have types."""
        generators = any(each.generator for each in self.items)
        return SelectBlock(
            self.source.items,
            tuple(ShownItem(each.expr, each.alias or each.own) for each in self.items),
            self.where,
            self.keys if self.select.group else None,
            self.sets,
            self.having,
            self.qualify,
            tuple(self.calls),
            tuple(self.over),
            self.sort,
            bool(self.order.limit or self.order.offset),
            self.select.distinct,
            bool(self.select.views) or generators,
            self.source.merged,
        )

    # ---- nodes

    def rel(self) -> Rel:
        types = self._analyze()
        rel = self.input if self.where is None else Filter(self.input, self.where)
        rewrite = Rewrite()
        if self.aggregated:
            keys = [self._key(key, found) for key, found in zip(self.keys, types.keys, strict=True)]
            calls = self._computed(self.calls, types.calls)
            rel = Aggregate(rel, tuple(keys), tuple(calls), self.sets)
            rewrite = Rewrite({call.normal: column for column, call in calls}, keys)
            if self.having is not None:
                rel = Filter(rel, rewrite(self.having))
        if self.over:
            over = self._computed(self.over, types.over)
            rel = OverRows(rel, tuple((column, call.map(rewrite)) for column, call in over))
            rewrite = rewrite.also({call.normal: column for column, call in over})
        if self.qualify is not None:
            rel = Filter(rel, rewrite(self.qualify))
        generated: tuple[Column, ...] = ()
        generator = next((item for item in self.items if item.generator), None)
        if generator is not None:
            rel = self._generate(rel, rewrite(generator.expr), generator, types.generated)
            generated = rel.columns[-len(types.generated) :]
        return self._shown(rel, rewrite, types, generated)

    def _computed(self, calls: Sequence[Call], fields: Sequence[Field]) -> list[tuple[Column, Call]]:
        pairs = zip(calls, fields, strict=True)
        return [(self.builder.new(each.name, each.type), replace(call, type=each.type)) for call, each in pairs]

    def _key(self, key: Expr, found: Field) -> Computed:
        """The output column of a key: the column itself if the key is one, unless grouping sets replace it by NULL."""
        own = key.column
        stays = own is not None and own in self.input.columns and not self.sets
        return (own if own is not None and stays else self.builder.new(found.name, found.type)), key.typed(found.type)

    def _generate(self, rel: Rel, call: Expr, item: _Item, fields: Sequence[Field]) -> Rel:
        """Move a generator of the SELECT list into a node below it: SELECT explode(xs) AS x."""
        named = [item.alias] if item.alias is not None and len(fields) == 1 else [each.name for each in fields]
        columns = tuple(self.builder.new(name, each.type) for name, each in zip(named, fields, strict=True))
        name = item.generator or ""
        call = replace(call, parts=(name.removesuffix("_outer"), *call.parts[1:]))
        return Generate(rel, call, name.endswith("_outer"), columns)

    def _shown(self, rel: Rel, rewrite: Rewrite, types: _Types, generated: Sequence[Column]) -> Rel:
        items: list[Computed] = []
        fields = iter(types.items)
        for each in self.items:
            if each.generator:
                items += [(column, of_column(column)) for column in generated]
                continue
            found = next(fields)
            expr = rewrite(each.expr).typed(found.type)
            name, column = each.alias or each.own or found.name, expr.column
            if column is None or column.name != name or any(column == shown for shown, _ in items):
                column = self.builder.new(name, found.type)
            items.append((column, expr))
        keys, hidden = self._sorted(rewrite, items, types)
        shown = [column for column, _ in items]
        rel = Project(rel, (*items, *hidden), head=self._head())
        if self.select.distinct:
            rel = Distinct(rel)
        limit, offset = self.order.bounds(self.reader)
        if keys or limit is not None or offset is not None:
            rel = TopN(rel, keys, limit, offset)
        return Project(rel, tuple((column, of_column(column)) for column in shown)) if hidden else rel

    def _head(self) -> Span | None:
        """The span of the hints of the SELECT."""
        select = self.select
        hinted = select.items and not self.builder.inside
        return Span(select.span.start, select.items[0].span.start) if hinted else None

    def _sorted(
        self, rewrite: Rewrite, items: Sequence[Computed], types: _Types
    ) -> tuple[tuple[SortKey, ...], list[Computed]]:
        """The keys of ORDER BY over the output columns, and the additional columns that they need."""
        known = {expr.normal: column for column, expr in items}
        keys: list[SortKey] = []
        hidden: list[Computed] = []
        for key, found in zip(self.sort, types.sort, strict=True):
            expr = rewrite(key.expr).typed(found.type)
            column = known.get(expr.normal)
            if column is None:
                own = expr.column
                free = own is not None and own not in known.values()
                column = own if own is not None and free else self.builder.new(found.name, found.type)
                hidden.append((column, expr))
                known[expr.normal] = column
            keys.append(replace(key, expr=of_column(column)))
        return tuple(keys), hidden

    # ---- types

    def _analyze(self) -> _Types:
        """Resolve all types of the block in one analysis by Spark."""
        relations = [*self.scope.relations]
        inner = {column for each in relations for column in (*each.columns, *each.hidden)}
        rest = tuple(column for column in self.input.columns if column not in inner)
        relations += [Exposed(None, rest)] if rest else []
        names = analysis_names(relations)
        writer = Analysis(names, relations)
        types = _Types()
        generators = [each.expr for each in self.items if each.generator]
        asked: list[tuple[list[Field], list[Expr]]] = [
            (types.items, [each.expr for each in self.items if not each.generator]),
            (types.keys, list(self.keys)),
            (types.calls, [Expr((call,)) for call in self.calls]),
            (types.over, [Expr((call,)) for call in self.over]),
            (types.sort, [key.expr for key in self.sort]),
            ([], [self.qualify] if self.qualify is not None else []),
        ]
        writer.put("SELECT ")
        writer.exprs([*(expr for _, exprs in asked for expr in exprs), *generators])
        writer.sources()
        conditions = [*_conditions(self.input), *([self.where] if self.where is not None else [])]
        for index, condition in enumerate(conditions):
            writer.put(" AND (" if index else " WHERE (")
            writer.expr(condition)
            writer.put(")")
        if self.sets:
            sets = ([self.keys[at] for at in each] for each in self.sets)
            writer.put(f" GROUP BY GROUPING SETS ({', '.join(f'({_text(each, names)})' for each in sets)})")
        elif self.keys:
            writer.put(" GROUP BY ")
            writer.exprs(self.keys)
        if self.having is not None:
            writer.put(" HAVING ")
            writer.expr(self.having)
        fields = self.builder.context.analyze(writer.written, writer.schemas)
        for found, exprs in asked:
            found += fields[: len(exprs)]
            fields = fields[len(exprs) :]
        types.generated = fields
        return types


def _text(exprs: Sequence[Expr], names: Mapping[Column, str]) -> str:
    writer = Analysis(names, ())
    writer.exprs(exprs)
    return writer.written.text


def _own_name(expr: Expr) -> str | None:
    """The output name of a column or of a field of one."""
    if expr.column is not None:
        return expr.column.name
    last = expr.parts[-1]
    dotted = isinstance(expr.parts[0], Column) and all(part == "." for part in expr.parts[1::2])
    quoted = dotted and len(expr.parts) > 2 and isinstance(last, str) and last.startswith("`")
    return last[1:-1].replace("``", "`") if quoted and isinstance(last, str) else None


def _conditions(rel: Rel) -> Iterator[Expr]:
    """The conditions of the joins of a FROM clause."""
    if isinstance(rel, Join):
        yield from _conditions(rel.left)
        if rel.on is not None:
            yield rel.on
    elif isinstance(rel, Generate) or (isinstance(rel, Project) and isinstance(rel.input, Join)):
        yield from _conditions(rel.input)
