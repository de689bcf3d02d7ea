"""Build relations from syntax. One analysis by Spark, over typed empty relations, gives the types of a SELECT block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol, cast

from anabranch.errors import NotSupported, SqlError
from anabranch.ir.analysis import Analysis, analysis_names
from anabranch.ir.block import Block
from anabranch.ir.expr import Column, Expr, Part, SortKey, of_column
from anabranch.ir.logic import conjunction
from anabranch.ir.order import Order, ordinal
from anabranch.ir.read import Reader, composed
from anabranch.ir.rel import (
    Distinct,
    Emit,
    Filter,
    Generate,
    Join,
    JoinKind,
    OneRow,
    Project,
    Rel,
    Sampled,
    Scan,
    SetOp,
    Source,
    TableFunction,
    TopN,
    Values,
    Windowed,
    Written,
    is_live,
)
from anabranch.ir.scope import Exposed, Scope
from anabranch.ir.select import FromItem, SelectBlock
from anabranch.ir.versions import UNTIL, VersionsJoin
from anabranch.sources import registry
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import (
    NEWEST,
    ImpliedCondition,
    LateralView,
    Name,
    Opaque,
    Query,
    Relation,
    Select,
    SetOperation,
    WindowSpec,
)
from anabranch.sql.text import Span
from anabranch.types import Field, SparkType


@dataclass(frozen=True)
class Found:
    """The relation that a name resolves to. `times` are its event times; `numbered` its columns with row numbers and
    arrival times, if it has them."""

    source: Source
    fields: tuple[Field, ...]
    times: tuple[str, ...] = ()
    numbered: tuple[Field, ...] = ()


class Context(Protocol):
    """What the builder needs from the home and from Spark."""

    def find(self, relation: Relation) -> Found:
        """Resolve a name, a path or a function over files; raises if it is unknown."""

    def analyze(self, text: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        """The output columns of a query over placeholders with these schemas."""


def build(text: str, query: Query, context: Context) -> Rel:
    """The plan of a query."""
    return Builder(text, context).query(query, None, {})


@dataclass(frozen=True)
class From:
    """A FROM clause: the joined relation, the scope of its names, and its relations one by one."""

    rel: Rel
    scope: Scope
    items: tuple[FromItem, ...] = ()
    merged: Mapping[Column, Expr] = field(default_factory=dict)


#: Hidden columns of the rows of a stream, added where a query uses them: row number and arrival time.
NUMBERS = ("_row_num", "_arrival_ts")
_ASOF = "name it: ASOF JOIN ... MATCH_CONDITION (a.ts >= b.ts)"
BOUNDS = ("window_start", "window_end", "window_time")
Ctes = Mapping[str, Rel]


class Builder:
    """Builds the queries of one statement; column ids are unique across them."""

    def __init__(
        self,
        text: str,
        context: Context,
        around: Builder | None = None,
    ) -> None:
        self.text = text
        self.context = context
        self.inside = around is not None  # of a plan with another text
        self.ctes: list[Rel] = []  # all that were built
        self._ids: count[int] = around._ids if around is not None else count(1)
        self._with_id = False
        self._ends = count(1)  # of versions

    # ---- queries

    def query(self, query: Query, outer: Scope | None, ctes: Ctes) -> Rel:
        self._with_id = self._with_id or query.uses_window_ids  # the outermost query comes first
        known = dict(ctes)
        for (name, inner), given in zip(query.ctes, query.cte_columns, strict=True):
            known[name.lower()] = self.cte(name, inner, given, known, outer)
        order = Order(query)
        if isinstance(query.body, Select):
            rel = self.select(query.body, order, outer, known)
        else:
            rel = self._sorted(self._body(query.body, outer, known), order, outer, known)
        return rel if query.emission is None else Emit(rel, query.emission)

    def cte(self, name: str, query: Query, columns: Sequence[str], ctes: Ctes, outer: Scope | None = None) -> Rel:
        """A common table expression; it can read the ones before it."""
        made = replace(self._renamed(self.query(query, outer, ctes), columns, query.span), label=name)
        self.ctes.append(made)
        return made

    def _body(self, body: Select | SetOperation | Query | Opaque, outer: Scope | None, ctes: Ctes) -> Rel:
        if isinstance(body, Select):
            return self.select(body, Order(None), outer, ctes)
        if isinstance(body, Query):
            return self.query(body, outer, ctes)
        if isinstance(body, Opaque):
            return self._values(body, outer, ctes)
        operands = [self._body(operand, outer, ctes) for operand in body.operands]
        operators = list(body.operators)
        for tight in (True, False):  # INTERSECT binds closer than the others
            index = 0
            while index < len(operators):
                word, all_rows = operators[index]
                if (word == "INTERSECT") == tight:
                    operands[index : index + 2] = [
                        self._set(word, all_rows, operands[index], operands[index + 1], body.span)
                    ]
                    del operators[index]
                else:
                    index += 1
        return operands[0]

    def _set(self, word: str, all_rows: bool, left: Rel, right: Rel, span: Span) -> Rel:
        if len(left.columns) != len(right.columns):
            raise self._error(span, f"{word} of {len(left.columns)} and {len(right.columns)} columns")
        types = [column.type for column in left.columns]
        if types != [column.type for column in right.columns]:
            writer = Analysis({}, ())
            sides = ("@left", left), ("@right", right)
            text = f" {word} ".join(f"SELECT * FROM `{name}`" for name, _ in sides)
            writer.put(text, span)
            schemas = {name: [Field(f"c{i}", c.type) for i, c in enumerate(rel.columns)] for name, rel in sides}
            types = [field.type for field in self.context.analyze(writer.written, schemas)]
        given = tuple(self.new(c.name, type) for c, type in zip(left.columns, types, strict=True))
        kind = {"UNION": "union", "INTERSECT": "intersect", "EXCEPT": "except"}[word]
        return SetOp(kind, all_rows, left, right, given)  # type: ignore[arg-type]

    def _values(self, body: Opaque, outer: Scope | None, ctes: Ctes) -> Rel:
        reader = self.reader(Scope(outer=outer), ctes)
        rows = tuple(reader.expr(row.tokens) for row in body.rows)
        writer = Analysis({}, ())
        writer.put("VALUES ")
        writer.exprs(rows)
        fields = self.context.analyze(writer.written, {})
        return Values(rows, tuple(self.new(f"col{index + 1}", field.type) for index, field in enumerate(fields)))

    def _sorted(self, rel: Rel, order: Order, outer: Scope | None, ctes: Ctes) -> Rel:
        """ORDER BY and LIMIT after a set operation: they can name only its own columns."""
        if not order.keys and not order.limit and not order.offset:
            return rel
        scope = Scope((Exposed(None, rel.columns),), rel.columns, outer=outer)
        reader = self.reader(scope, ctes)
        keys = tuple(self._by_position(key, rel.columns) for key in reader.sort_keys(order.keys))
        return TopN(rel, keys, *order.bounds(reader))

    @staticmethod
    def _by_position(key: SortKey, columns: Sequence[Column]) -> SortKey:
        at = ordinal(key.expr, len(columns))
        return key if at is None else replace(key, expr=of_column(columns[at]))

    # ---- one SELECT block

    def select(self, select: Select, order: Order, outer: Scope | None, ctes: Ctes) -> Rel:
        return Block(self, select, order, outer, ctes).rel()

    def block(self, query: Query, select: Select, ctes: Ctes) -> SelectBlock:
        """A SELECT of a query with its ORDER BY and LIMIT, without types from Spark."""
        order = Order(query if query.body is select else None)
        return Block(self, select, order, None, ctes).select_block()

    def reader(self, scope: Scope, ctes: Ctes, select: Select | None = None) -> Reader:
        queries = {query.span.start: query for query in select.subqueries} if select is not None else {}
        windows = {name.lower(): tokens for name, tokens in select.windows} if select is not None else {}
        reader = Reader(self.text, scope, lambda query: self.query(query, scope, ctes), queries, windows)
        return replace(reader, origins=not self.inside)

    # ---- FROM

    def source(self, select: Select, outer: Scope | None, ctes: Ctes) -> From:
        """The relations of FROM, joined, and the scope of their names."""
        if not select.relations:
            return From(OneRow(), Scope(outer=outer))
        rel: Rel | None = None
        scope = Scope(outer=outer)
        items: list[FromItem] = []
        merged: dict[Column, Expr] = {}
        for index, relation in enumerate(select.relations):
            around = scope if relation.lateral or relation.function is not None else outer
            right, exposed = self._relation(relation, around if rel is not None else outer, ctes)
            if rel is None:
                rel, scope = right, Scope((exposed,), exposed.columns, outer=outer)
                items.append(FromItem(right, right.label, static=not is_live(right)))
            else:
                versions = self._versions(relation, right, exposed, self.reader(scope, ctes, select), outer)
                right = right if versions is None else replace(versions.ended(right), label=right.label)
                rel, scope = self._join(rel, scope, right, exposed, relation, ctes, select)
                if versions is not None:
                    assert isinstance(rel, Join)
                    rel = versions.on(rel)
                if relation.implied_conditions:
                    assert isinstance(rel, Join)
                    on = conjunction([*self.implied(relation.implied_conditions, scope), *([rel.on] if rel.on else [])])
                    rel = replace(rel, on=on)
                join = rel
                if isinstance(rel, Project):  # FULL JOIN ... USING
                    merged |= {column: expr for column, expr in rel.items if expr.column != column}
                    join = rel.input
                assert isinstance(join, Join)
                static = not is_live(right)
                items.append(FromItem(right, right.label, join.kind, join.on, join.lateral, static))
            for view in select.views:
                if view.after == index + 1:
                    rel, scope = self._lateral_view(rel, scope, view, ctes)
        assert rel is not None
        return From(rel, scope, tuple(items), merged)

    def _relation(self, relation: Relation, outer: Scope | None, ctes: Ctes) -> tuple[Rel, Exposed]:
        if relation.reshaped:
            raise self._not_yet(relation.span, "PIVOT and UNPIVOT")
        inner = relation.net or relation.name or relation.subquery
        written = Written(self.text, relation.span, inner.span if inner is not None else relation.span)
        rel = self._named(relation, outer, ctes)
        if isinstance(rel, Scan):
            rel = replace(rel, written=written)
        if relation.window is not None:
            apart = [self._column(rel, name.last, name.span) for name in relation.window.partition]
            made = self.windowed(rel, relation.window, self._along(rel, relation.window), apart)
            besides = tuple(self._column(rel, name.last, name.span) for name in relation.window.columns)
            rel = replace(made, besides=besides, written=written)
        rel = self._renamed(rel, relation.alias_columns, relation.span)
        rel = replace(rel, label=relation.exposed, refreshable=relation.refreshable is not None)
        unshown = NUMBERS if isinstance(rel, Scan) else (NEWEST,) if isinstance(rel, Windowed) else ()
        hidden = tuple(column for column in rel.columns if column.name in unshown)
        columns = tuple(column for column in rel.columns if column not in hidden)
        return rel, Exposed(relation.exposed, columns, hidden, event_times(rel))

    def _named(self, relation: Relation, outer: Scope | None, ctes: Ctes) -> Rel:
        if relation.subquery is not None:
            rel = self.query(relation.subquery, outer, ctes)
            if relation.sample is not None:
                return Sampled(rel, relation.sample.text)
            return rel if relation.net is None else self._net(rel)
        if relation.kind == "opaque":
            raise self._not_yet(relation.span, "VALUES in FROM without brackets")
        name = relation.name.last.lower() if relation.name is not None and len(relation.name.parts) == 1 else None
        if name is not None and name in ctes:
            return self._copy(ctes[name])
        if relation.function is not None and registry.find(relation.function) is None:
            return self._table_function(relation, outer, ctes)
        return self._scan(self.context.find(relation), relation)

    def _net(self, changes: Rel) -> Rel:
        """The rows of a relation, each repeated by the count in its last column; that column is dropped."""
        *kept, times = changes.columns
        call = Expr(("explode", "(", "sequence", "(", "1", ",", times, ")", ")"))
        copy = self.new("__copy", self.fields_of([call], changes)[0].type)
        rel = Filter(Generate(changes, call, False, (copy,)), Expr((times, ">", "0"), "boolean"))
        return Project(rel, tuple((column, of_column(column)) for column in kept))

    def _scan(self, found: Found, relation: Relation) -> Scan:
        numbered = relation.window is not None and relation.window.needs_numbers
        numbered = numbered or any(name in self.text for name in NUMBERS)
        fields = found.numbered if numbered and found.numbered else found.fields
        return Scan(found.source, tuple(self.new(field.name, field.type) for field in fields), found.times)

    def _table_function(self, relation: Relation, outer: Scope | None, ctes: Ctes) -> Rel:
        reader = self.reader(Scope(outer=outer), ctes)
        spans = [argument.span for argument in relation.arguments]
        pieces: list[tuple[Part, Span | None]] = [(relation.function or "", relation.span), ("(", relation.span)]
        for index, argument in enumerate(relation.arguments):
            made = reader.expr(argument.tokens)
            pieces += [(",", spans[index])] if index else []
            pieces += [(argument.name, spans[index]), ("=>", spans[index])] if argument.name is not None else []
            pieces += list(zip(made.parts, made.spans, strict=True))
        pieces.append((")", relation.span))
        call = Expr(tuple(part for part, _ in pieces), spans=tuple(span for _, span in pieces))
        writer = Analysis({}, ())
        writer.put("SELECT * FROM ")
        writer.expr(call)
        fields = self.context.analyze(writer.written, {})
        return TableFunction(call, tuple(self.new(field.name, field.type) for field in fields))

    def windowed(self, rel: Rel, window: WindowSpec, along: Column | None, apart: Sequence[Column]) -> Windowed:
        names = [*BOUNDS, *(["window_id"] if self._with_id else []), *([NEWEST] if window.pairs != "none" else [])]
        hidden = {*names, *(NUMBERS if window.needs_numbers else ())}
        kept = tuple(column for column in rel.columns if column.name.lower() not in hidden)
        types = {NEWEST: "boolean", "window_id": "bigint"}
        bounds = tuple(self.new(name, types.get(name, "bigint" if window.rows else "timestamp")) for name in names)
        return Windowed(rel, window, along, tuple(apart), bounds, kept)

    def _along(self, rel: Rel, window: WindowSpec) -> Column | None:
        if window.attribute != "column":
            return None
        if window.time_column is not None:
            return self._column(rel, window.time_column, window.time_span)
        return self.event_time(rel, window.time_span, "name the column: DESCRIPTOR(ts)")

    def event_time(self, rel: Rel, span: Span, hint: str) -> Column:
        times = event_times(rel)
        if len(times) != 1:
            names = " or ".join(column.name for column in times)
            what = f"{names} can be the time" if times else "it is not clear which column has the time"
            raise self._error(span, what, hint)
        return times[0]

    def _column(self, rel: Rel, name: str, span: Span) -> Column:
        found = [column for column in rel.columns if column.name.lower() == name.lower()]
        if len(found) != 1:
            raise Scope((Exposed(None, rel.columns),)).unknown(self.text, (name,), span)
        return found[0]

    # ---- joins

    def _versions(
        self, relation: Relation, rel: Rel, exposed: Exposed, beside: Reader, outer: Scope | None
    ) -> VersionsJoin | None:
        versions = relation.versions
        if versions is None:
            return None
        own = replace(beside, scope=Scope((exposed,), exposed.columns, outer=outer))
        if versions.time.right:
            time = own.expr(versions.time.right)
            time = time.typed(self.types([time], rel)[0])
        else:
            span = relation.moment.span if relation.moment is not None else relation.span
            time = of_column(self.event_time(rel, span, _ASOF))
        name = f"{UNTIL}{next(self._ends)}"
        ends = self.new(name, time.type), self.new(name, time.type)
        using = [self._column(rel, name, span) for name, span in _using(relation)]
        return VersionsJoin(versions, beside, own, time, *ends, using)

    def _join(
        self, left: Rel, scope: Scope, right: Rel, exposed: Exposed, relation: Relation, ctes: Ctes, select: Select
    ) -> tuple[Rel, Scope]:
        kind = _join_kind(relation.join)
        both = Scope((*scope.relations, exposed), (*scope.star, *exposed.columns), scope.merged, scope.outer)
        words = relation.join.split()
        using: list[tuple[str, Span]] | None = None
        if "NATURAL" in words:
            own = {column.name.lower() for column in exposed.columns}
            using = [(column.name, relation.span) for column in scope.star if column.name.lower() in own]
        elif relation.condition_tokens and relation.condition_tokens[0].upper == "USING":
            using = list(_using(relation))
        if using is not None:
            return self._using(left, scope, right, exposed, kind, using, relation)
        on = None
        if relation.condition_tokens:
            on = self.reader(both, ctes, select).expr(relation.condition_tokens[1:])
        if kind == "cross" and on is not None:
            kind = "inner"
        lateral = bool(right.free & set(left.columns))
        rel = Join(left, right, "cross" if on is None and kind == "inner" else kind, on, lateral)
        return rel, replace(both, relations=scope.relations, star=scope.star) if kind in ("semi", "anti") else both

    def _using(
        self,
        left: Rel,
        scope: Scope,
        right: Rel,
        exposed: Exposed,
        kind: JoinKind,
        names: list[tuple[str, Span]],
        at: Relation,
    ) -> tuple[Rel, Scope]:
        pairs: list[tuple[Column, Column]] = []
        parts: list[Part] = []
        for name, span in names:
            one = scope.find(self.text, [name], span)
            other = exposed.named(name)
            if one is None or len(other) != 1:
                raise Scope((*scope.relations, exposed)).unknown(self.text, (name,), span)
            pairs.append((one[0], other[0]))
            parts += ["AND"] if parts else []
            parts += [one[0], "=", other[0]]
        spans = (None if self.inside else at.condition,) * len(parts)
        on = Expr(tuple(parts), "boolean", spans) if parts else None
        rel: Rel = Join(left, right, "cross" if on is None and kind == "inner" else kind, on)
        if kind in ("semi", "anti"):
            keys = tuple(one for one, _ in pairs)
            return rel, replace(scope, star=(*keys, *(column for column in scope.star if column not in keys)))
        merged = [other if kind == "right" else one for one, other in pairs]
        if kind == "full" and pairs:
            types = self.types([Expr(("coalesce", "(", a, ",", b, ")")) for a, b in pairs], rel)
            merged = [self.new(one.name, type) for (one, _), type in zip(pairs, types, strict=True)]
            items = [(column, of_column(column)) for column in rel.columns]
            for column, (a, b) in zip(merged, pairs, strict=True):
                items.append((column, Expr(("coalesce", "(", a, ",", b, ")"), column.type)))
            rel = Project(rel, tuple(items))
        used = {column for pair in pairs for column in pair}
        star = (*merged, *(c for c in (*scope.star, *exposed.columns) if c not in used))
        known = {**scope.merged, **{name.lower(): column for (name, _), column in zip(names, merged, strict=True)}}
        return rel, Scope((*scope.relations, exposed), star, known, scope.outer)

    def _lateral_view(self, rel: Rel, scope: Scope, view: LateralView, ctes: Ctes) -> tuple[Rel, Scope]:
        call = self.reader(scope, ctes).expr(view.call.tokens)
        fields = self.fields_of([call], rel)
        names = view.columns or tuple(field.name for field in fields)
        made = tuple(self.new(name, field.type) for name, field in zip(names, fields, strict=True))
        exposed = Exposed(view.alias, made)
        rel = Generate(rel, call, view.outer, made)
        return rel, Scope((*scope.relations, exposed), (*scope.star, *made), scope.merged, scope.outer)

    def implied(self, conditions: Sequence[ImpliedCondition], scope: Scope) -> list[Expr]:
        """The join conditions that a notation implies."""
        return [
            composed(each.text, {f"n{index}": self._column_of(name, scope) for index, name in enumerate(each.names)})
            for each in conditions
        ]

    def _column_of(self, name: Name, scope: Scope) -> Expr:
        found = scope.find(self.text, name.parts, name.span)
        if found is None:
            raise scope.unknown(self.text, name.parts, name.span)
        return Expr((found[0],), found[0].type, () if self.inside else (name.span,))

    # ---- helpers

    def new(self, name: str, type: SparkType) -> Column:
        return Column(next(self._ids), name, type)

    def _copy(self, rel: Rel) -> Rel:
        """The same relation with new column ids, since it may be read more than once."""
        return Project(rel, tuple((self.new(c.name, c.type), of_column(c)) for c in rel.columns))

    def _renamed(self, rel: Rel, names: Sequence[str], span: Span) -> Rel:
        """A relation with the column names of its alias: t(a, b)."""
        if not names:
            return rel
        if len(names) != len(rel.columns):
            raise self._error(span, f"{len(names)} names for {len(rel.columns)} columns")
        pairs = zip(names, rel.columns, strict=True)
        return Project(rel, tuple((self.new(name, c.type), of_column(c)) for name, c in pairs))

    def types(self, exprs: Sequence[Expr], rel: Rel) -> list[SparkType]:
        """The types of expressions over a relation; Spark resolves those of expressions that are not plain columns."""
        columns = [expr.column for expr in exprs]
        if all(column is not None and column.type for column in columns):
            return [column.type for column in columns if column is not None]
        return [field.type for field in self.fields_of(exprs, rel)]

    def fields_of(self, exprs: Sequence[Expr], rel: Rel) -> list[Field]:
        """The fields that Spark resolves for expressions over a relation; a generator can have several."""
        relation = Exposed(None, rel.columns)
        writer = Analysis(analysis_names([relation]), [relation])
        writer.put("SELECT ")
        writer.exprs(exprs)
        writer.sources()
        return self.context.analyze(writer.written, writer.schemas)

    def _error(self, span: Span, message: str, hint: str | None = None) -> SqlError:
        return SqlError(message, text=self.text, at=span, hint=hint)

    def _not_yet(self, span: Span, what: str) -> NotSupported:
        return NotSupported(f"{what} has no typed plan yet", text=self.text, at=span)


def event_times(rel: Rel) -> tuple[Column, ...]:
    """The columns of a relation that hold, row by row, an event time of its input."""
    if isinstance(rel, Scan):
        return tuple(column for column in rel.columns if column.name in rel.times)
    if isinstance(rel, Windowed):
        return rel.bounds[2:3]
    if isinstance(rel, Filter | Distinct | TopN | Emit | Generate):
        return event_times(rel.inputs[0])
    if isinstance(rel, Project):
        below = event_times(rel.input)
        return tuple(column for column, expr in rel.items if expr.column in below)
    if isinstance(rel, SetOp):
        times = {*event_times(rel.left), *event_times(rel.right)}
        sides = zip(rel.given, rel.left.columns, rel.right.columns, strict=True)
        return tuple(column for column, left, right in sides if left in times and right in times)
    return ()


def _using(relation: Relation) -> Iterator[tuple[str, Span]]:
    """The columns of USING (a, b) with their spans."""
    word, *tokens = relation.condition_tokens or (None,)
    if word is not None and word.upper == "USING":
        yield from ((token.name, token.span) for token in tokens if token.is_name)


def _join_kind(words: str) -> JoinKind:
    for word in ("SEMI", "ANTI", "LEFT", "RIGHT", "FULL", "CROSS"):
        if word in words.split():
            return cast(JoinKind, word.lower())
    return "cross" if words == "," else "inner"
