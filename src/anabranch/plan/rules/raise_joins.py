"""Raises joins with REFRESHABLE tables, whose changes also reach past rows, above the partials of their stream:

    SELECT label, count(*), sum(n), sum(w) FROM s JOIN t REFRESHABLE ON s.k = t.k GROUP BY label

is

    SELECT label, sum(s.__rows), sum(s.__p1), sum(w * s.__rows)
    FROM (SELECT k, count(*) AS __rows, sum(n) AS __p1 FROM s GROUP BY k) AS s JOIN t ON s.k = t.k GROUP BY label

The expressions of the stream in the rest of the query key the partials; a condition on the stream alone is pushed down.
Where this is not possible the query reads kept rows, as FROM (SELECT k, n FROM s) AS s. Either way the join reads the
table as of the last REFRESH, and nothing below depends on it.

The clock is such a table, with one row that differs at each read: the operands that now() and its like are compared
with key the partials, and the comparison is above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.algebra import aggregates
from anabranch.algebra.weighted import merged, weighted
from anabranch.errors import NotSupported
from anabranch.ir.expr import Call, Column, Expr, Part, of_column
from anabranch.ir.logic import called, comparison, conjunction, conjuncts, depths, piece, unwrapped, word
from anabranch.ir.read import composed
from anabranch.ir.rel import Aggregate, Filter, Generate, Join, OverRows, Project, Rel, Scan, Windowed, is_live
from anabranch.ir.rewrite import Rewrite
from anabranch.ir.text import Shown, shown_call
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.picks import nulls
from anabranch.plan.rules import RuleContext
from anabranch.sql.calls import CLOCK, MOMENT, clock_calls
from anabranch.sql.lexer import tokenize
from anabranch.sql.text import quote_name
from anabranch.types import INTEGERS, SparkType

#: Aggregates that ignore duplicates; with DISTINCT, all do.
_OF_SETS = ("min", "max", "bool_and", "bool_or", "every", "some", "any", "bit_and", "bit_or", "collect_set",
            "approx_count_distinct")  # fmt: skip
#: Types that cannot be grouped by, or where equal values can differ.
_NO_KEY = re.compile(r"\b(map|variant|void|collate)\b")


def raise_joins(rel: Rel, context: RuleContext) -> Rel | None:
    found = _select(rel)
    if found is None:
        return None
    try:
        return _Raising(found, context).rel()
    except NotApplicable as why:
        context.reasons.append(str(why))
        return _over_rows(found)


def raise_joins_above_rows(rel: Rel, context: RuleContext) -> Rel | None:
    """The same for a query whose trigger counts rows, which have to be kept one by one."""
    found = _select(rel)
    if found is None:
        return None
    context.reasons.append("its trigger counts rows")
    return _over_rows(found)


# ------------------------------------------------------------------------------------------------ the query


@dataclass(frozen=True)
class _Select:
    """A SELECT over one stream and relations that do not change with streams."""

    above: tuple[Rel, ...]  # the projection and all between it and the groups, or FROM; the outermost first
    aggregate: Aggregate | None
    conditions: tuple[Expr, ...]  # of WHERE, if rows are grouped
    source: Rel
    leaves: tuple[Rel, ...]
    stream: Rel

    def exprs_of_rows(self) -> Iterator[Expr]:
        """The expressions over rows, and not over groups."""
        yield from self.conditions
        yield from (expr for each in _joins(self.source) for expr in each.exprs())
        for each in self.above if self.aggregate is None else (self.aggregate,):
            yield from each.exprs()

    def rebuilt(self, by: Mapping[Column, Expr], input: Rel) -> Rel:
        """The relations of `above` over another input."""
        for each in reversed(self.above):
            input = replace(each, input=input).map_exprs(by)  # type: ignore[call-arg]
        return input


def _select(rel: Rel) -> _Select | None:
    """The SELECT of a projection, if it has a join to raise."""
    if not isinstance(rel, Project):
        return None
    above: list[Rel] = [rel]
    below = rel.input
    while isinstance(below, Filter | OverRows) and below.label is None:
        above.append(below)
        below = below.input
    aggregate = below if isinstance(below, Aggregate) and below.label is None else None
    conditions: list[Expr] = []
    if aggregate is not None:
        below = aggregate.input
        while isinstance(below, Filter) and below.label is None:
            conditions = [*conjuncts(below.condition), *conditions]
            below = below.input
    leaves = tuple(_leaves(below))
    live = [leaf for leaf in leaves if is_live(leaf)]
    if len(live) != 1 or not _of_stream(live[0]):
        return None  # a query of several streams, or of a view, joins its tables again anyway
    found = _Select(tuple(above), aggregate, tuple(conditions), below, leaves, live[0])
    if not any(leaf.refreshable for leaf in leaves) and not any(map(reads_clock, found.exprs_of_rows())):
        return None
    if isinstance(live[0], Windowed) and live[0].window.filled:
        written = live[0].written
        span = (written.whole.start, written.whole.end) if written is not None else (None, None)
        raise NotSupported(
            "windows without rows are filled in after all joins, and REFRESHABLE and the clock only apply later",
            text=written.text if written is not None else None,
            start=span[0],
            end=span[1],
            hint="create a view of the windows, and join that",
        )
    return found


def _joins(rel: Rel) -> Iterator[Rel]:
    """The nodes of a FROM clause above its relations."""
    if isinstance(rel, Join | Generate) and rel.label is None:
        yield rel
        for each in rel.inputs:
            yield from _joins(each)


def _leaves(rel: Rel) -> Iterator[Rel]:
    """The relations of a FROM clause."""
    if isinstance(rel, Join | Generate) and rel.label is None:
        for each in rel.inputs:
            yield from _leaves(each)
    else:
        yield rel


def _of_stream(rel: Rel) -> bool:
    """Whether a relation is a stream, or windows over one."""
    rows = rel.input if isinstance(rel, Windowed) else rel
    return isinstance(rows, Scan) and rows.source.kind == "stream"


def reads_clock(expr: Expr) -> bool:
    """Whether an expression, or a subquery in it, reads the clock."""
    for subquery in expr.subqueries():
        if any(reads_clock(inner) for each in subquery.rel.walk() for inner in each.exprs()):
            return True
    if not any(isinstance(each, str) and _may_ask(each) for each in _parts(expr)):
        return False
    writer = Shown(lambda column: quote_name(column.name))
    writer.expr(expr)
    return any(clock_calls(tokenize(writer.written.text)))


def _may_ask(part: str) -> bool:
    return part.lower() in CLOCK or MOMENT.fullmatch(part.strip("'\"")) is not None


def _parts(expr: Expr) -> Iterator[Part]:
    for part in expr.parts:
        yield part
        if isinstance(part, Call):
            for inner in part.exprs():
                yield from _parts(inner)


# ---------------------------------------------------------------------------------------------------- over kept rows


def _over_rows(select: _Select) -> Rel:
    """The stream as a query of the columns in use."""
    stream = select.stream
    nodes = [*select.above, *([select.aggregate] if select.aggregate is not None else []), *_joins(select.source)]
    read = {column for each in nodes for expr in each.exprs() for column in expr.columns()}
    read |= {column for expr in select.conditions for column in expr.columns()}
    read |= {column for leaf in select.leaves for column in leaf.free}  # LATERAL relations read the others
    chosen = [column for column in stream.columns if column in read] or list(stream.columns[:1])
    rows = Project(stream, tuple((column, of_column(column)) for column in chosen), label=stream.label)
    source = _with_leaf(select.source, stream, rows)
    if select.aggregate is not None:
        source = replace(select.aggregate, input=_filtered(source, select.conditions))
    return select.rebuilt({}, source)


def _with_leaf(rel: Rel, old: Rel, new: Rel) -> Rel:
    """A FROM clause with one relation replaced."""
    if rel is old:
        return new
    if not isinstance(rel, Join | Generate) or rel.label is not None:
        return rel
    return rel.rebuilt(lambda each: _with_leaf(each, old, new))


def _filtered(rel: Rel, conditions: Iterable[Expr]) -> Rel:
    condition = conjunction(conditions)
    return rel if condition is None else Filter(rel, condition)


# ---------------------------------------------------------------------------------------------------- over partials


@dataclass
class _Below:
    """The query below the join: its keys and its partials. Texts use names of expressions."""

    columns: dict[Column, None] = field(default_factory=dict)
    computed: dict[tuple[Part, ...], tuple[Column, Expr]] = field(default_factory=dict)
    partials: dict[str, str] = field(default_factory=dict)  # text -> name
    where: list[Expr] = field(default_factory=list)


class _Raising:
    """One SELECT over a stream and static tables, to be derived from partials of the stream."""

    def __init__(self, select: _Select, context: RuleContext) -> None:
        self.select = select
        self.context = context
        self.own = frozenset(select.stream.columns)
        self.below = _Below()
        self.named: dict[tuple[Part, ...], tuple[str, Expr]] = {}  # the expressions in texts

    def rel(self) -> Rel:
        aggregate = self._fit()
        joined = self._joined(self.select.source)
        self.below.where = [each for each in self.select.conditions if self._is_below(each)]
        where = [self._raised(each) for each in self.select.conditions if not self._is_below(each)]
        keys = [(column, self._key(expr)) for column, expr in aggregate.keys]
        values = self._values(aggregate)
        for column in self.below.columns:
            if _NO_KEY.search(column.type):
                what = f"{column.name} is of type {column.type.upper()}, by which rows cannot be grouped"
                raise NotApplicable(what)
        rows, partials = self._partials()
        by: dict[Column, Expr] = {}
        calls: list[tuple[Column, Call]] = []
        for column, call in aggregate.calls:
            text = values[column]
            if text is None:
                calls.append((column, call))
                continue
            value = composed(text, dict(self.named.values()) | partials)
            made = {each.normal: (self.context.new(each.name, ""), each) for each in value.calls()}
            calls += made.values()
            value = Rewrite({normal: own for normal, (own, _) in made.items()})(value)
            by[column] = Expr(("CAST", "(", *value.parts, "AS", call.type, ")"), call.type)
        source = _with_leaf(joined, self.select.stream, rows)
        return self.select.rebuilt(by, Aggregate(_filtered(source, where), tuple(keys), tuple(calls)))

    # ---- whether it is possible

    def _fit(self) -> Aggregate:
        select = self.select
        aggregate = select.aggregate
        if aggregate is None:
            raise NotApplicable("it has no aggregate")
        exprs = [*select.exprs_of_rows()]
        generates = any(isinstance(each, Generate) for each in _joins(select.source))
        if aggregate.sets or generates or any(True for expr in exprs for _ in expr.subqueries()):
            raise NotApplicable("grouping sets, LATERAL VIEW and subqueries in it are computed over rows")
        stream = select.stream
        for each in select.source.walk():
            if isinstance(each, Scan) and each.source.looked_up:
                raise NotApplicable(f"it looks up {each.source.name} by key")
        joins = list(_joins(select.source))
        kinds = ("inner", "cross", *(("left", "semi", "anti") if select.leaves[0] is stream else ()))
        if not all(isinstance(each, Join) and each.kind in kinds for each in joins):
            raise NotApplicable("a row of the static side without a partner in the stream depends on all rows")
        if any(isinstance(each, Join) and each.lateral for each in joins):
            raise NotApplicable("the rows of its FROM clause are given another shape")
        if isinstance(stream, Windowed) and (not stream.window.by_row or stream.window.needs_numbers):
            raise NotApplicable("its windows depend on other rows than a row's own")
        if any(word(part) == "SESSION_WINDOW" for _, key in aggregate.keys for part in key.parts):
            raise NotApplicable("its sessions depend on other rows than a row's own")
        known = {column for leaf in select.leaves for column in leaf.columns}
        if any(expr.columns() - known for expr in exprs):
            raise NotApplicable("it reads columns of the query around it")
        return aggregate

    # ---- the query above, and what it needs

    def _is_below(self, expr: Expr) -> bool:
        """Whether an expression reads only the stream."""
        return expr.columns() <= self.own and not reads_clock(expr)

    def _need(self, *exprs: Expr) -> None:
        """Add the stream columns of expressions to the keys of the partials."""
        for expr in exprs:
            found = (part for part in _parts(expr) if isinstance(part, Column) and part in self.own)
            self.below.columns.update(dict.fromkeys(found))

    def _key(self, expr: Expr) -> Expr:
        """An expression above partials: computed below if it reads only the stream and is no plain column."""
        if expr.column is not None or not expr.columns() & self.own or not self._is_below(expr):
            self._need(expr)
            return expr
        known = self.below.computed.get(expr.normal)
        if known is None:
            (type,) = [expr.type] if expr.type else self.context.types([expr], self.select.source)
            known = self.context.new(f"__k{len(self.below.computed)}", type), expr.typed(type)
            self.below.computed[expr.normal] = known
        return of_column(known[0])

    def _joined(self, rel: Rel) -> Rel:
        """The FROM clause, with the stream operands of its conditions as keys of the partials."""
        if not isinstance(rel, Join) or rel.label is not None:
            return rel
        on = None if rel.on is None else conjunction(map(self._raised, conjuncts(rel.on)))
        return replace(rel, left=self._joined(rel.left), right=self._joined(rel.right), on=on)

    def _raised(self, condition: Expr) -> Expr:
        """A condition above partials: its operands over the stream become keys."""
        compared = None if self._is_below(condition) else comparison(condition)
        if compared is None:
            return self._key(condition)
        left, sign, right = compared
        at = condition.spans[len(left.parts)] if condition.spans else None
        return _listed([self._key(left), Expr((sign,), spans=(at,)), self._key(right)])

    # ---- aggregates

    def _values(self, aggregate: Aggregate) -> dict[Column, str | None]:
        """Each aggregate over partials and tables, as a text over names; None where it is unchanged."""
        asked = list({arg: None for _, call in aggregate.calls for arg in call.args})
        types = dict(zip(asked, self.context.types(asked, self.select.source), strict=True)) if asked else {}
        return {column: self._value(call, [types[arg] for arg in call.args]) for column, call in aggregate.calls}

    def _value(self, call: Call, types: list[SparkType]) -> str | None:
        pieces = conjuncts(call.filter) if call.filter is not None else []
        below, above = [each for each in pieces if self._is_below(each)], [e for e in pieces if not self._is_below(e)]
        one_sided = all(map(self._is_below, call.args))
        aggregate = aggregates.find(call.name, distinct=call.distinct, argument_types=types)
        if aggregate is not None and not aggregate.raised:
            aggregate = None
        if call.order or nulls(call):
            raise NotApplicable(f"{shown_call(call)} cannot be merged from partials")
        if call.distinct or (call.name in _OF_SETS and (aggregate is None or not one_sided)):
            self._need(*call.exprs())
            return None
        if aggregate is None:
            raise NotApplicable(f"{shown_call(call)} cannot be merged from partials")
        asked, condition = (self._name(conjunction(each)) for each in (below, above))
        self._need(*above)
        arguments = [self._name(arg) or "" for arg in call.args]
        if one_sided:
            columns = {part.suffix: self._partial(part.partial_sql(arguments, asked)) for part in aggregate.parts}
            return merged(aggregate, columns, condition)
        if aggregate.name == "sum":
            product = self._factored(call.args[0], types[0], asked)
            if product is not None:
                return merged(aggregate, {"sum": product}, condition)
        self._need(*call.args)
        weight = self._partial("count(*)" if asked is None else f"count(*) FILTER (WHERE {asked})")
        text = weighted(aggregate, arguments, types, weight, condition)
        if text is None:
            raise NotApplicable(f"{shown_call(call)} cannot be computed from rows with weights")
        return text

    def _name(self, expr: Expr | None) -> str | None:
        """A name for an expression in a text."""
        if expr is None:
            return None
        name, _ = self.named.setdefault(expr.normal, (f"__x{len(self.named)}", expr))
        return quote_name(name)

    def _partial(self, text: str) -> str:
        """The name of a partial."""
        name = "__rows" if text == "count(*)" else f"__p{len(self.below.partials)}"
        return quote_name(self.below.partials.setdefault(text, name))

    def _factored(self, expr: Expr, type: SparkType, asked: str | None) -> str | None:
        """The sum of x * y, x of the stream and y of a table, as sum(x) * y; None where rounding would differ."""
        factors = _factors(expr)
        own = [each for each in factors if each.columns() & self.own]
        others = [each for each in factors if not each.columns() & self.own]
        if not own or not others or not all(map(self._is_below, own)):
            return None
        one, other = _product(own), _product(others)
        total, most = Call("sum", (one,)), Call("max", (other,))
        source = self.select.source
        kinds = self.context.types([one, other], source)
        kinds += self.context.types([Expr((total,)), Expr((total, "*", most))], source)
        if not _same_product(type, *kinds):
            return None
        filtered = "" if asked is None else f" FILTER (WHERE {asked})"
        return f"{self._partial(f'sum({self._name(one)}){filtered}')} * {self._name(other)}"

    # ---- the query below

    def _partials(self) -> tuple[Rel, dict[str, Expr]]:
        """The query of partials of the stream, and its columns by their names in texts."""
        below, stream, new = self.below, self.select.stream, self.context.new
        if not below.columns and not below.computed:
            self._partial("count(*)")
        names = dict(self.named.values())
        values = [composed(text, names) for text in below.partials]
        found = list({call.normal: call for value in values for call in value.calls()}.values())
        asked = [*(Expr((call,)) for call in found), *values]
        types = self.context.types(asked, stream) if asked else []
        calls = [(new(call.name, type), replace(call, type=type)) for call, type in zip(found, types, strict=False)]
        rewrite = Rewrite({call.normal: column for column, call in zip((c for c, _ in calls), found, strict=True)})
        keys = [*((column, of_column(column)) for column in below.columns), *below.computed.values()]
        rel: Rel = Aggregate(_filtered(stream, below.where), tuple(keys), tuple(calls))
        if not keys:  # no rows make no group
            counted = rewrite(Expr((Call("count", star=True),)))
            rel = Filter(rel, Expr((*counted.parts, ">", "0"), "boolean"))
        made = [
            (new(name, type), rewrite(value))
            for name, value, type in zip(below.partials.values(), values, types[len(found) :], strict=True)
        ]
        items = [*((column, of_column(column)) for column, _ in keys), *made]
        return Project(rel, tuple(items), label=stream.label), {column.name: of_column(column) for column, _ in made}


def _product(factors: Sequence[Expr]) -> Expr:
    return _listed([each for factor in factors for each in (Expr(("*",)), factor)][1:])


def _listed(exprs: Sequence[Expr]) -> Expr:
    """A comma-separated list of expressions."""
    spans = tuple(span for each in exprs for span in each.spans or (None,) * len(each.parts))
    return Expr(tuple(part for each in exprs for part in each.parts), spans=spans)


def _same_product(type: str, one: str, other: str, total: str, product: str) -> bool:
    """Whether sum(x * y) equals sum(x) * y exactly: x * y is `type`, sum(x) * y is `product`."""
    if type in INTEGERS:
        return one in INTEGERS and other in INTEGERS
    if type == "double":
        return "float" not in (one, other)
    whole, part = (re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", each) for each in (product, type))
    if whole is None or part is None or not (total.startswith("decimal") or total == "bigint"):
        return False
    return whole[2] == part[2] and int(whole[1]) < 38 and int(part[1]) < 38


def _factors(expr: Expr) -> list[Expr]:
    """The factors of a product of numbers, columns, calls and parentheses; empty for anything else."""
    signs = [i for i, (part, depth) in enumerate(zip(expr.parts, depths(expr.parts), strict=True))
             if part == "*" and depth == 0]  # fmt: skip
    bounds = zip([-1, *signs], [*signs, len(expr.parts)], strict=True)
    found = [piece(expr, start + 1, end) for start, end in bounds]
    return found if all(map(_is_factor, found)) else []


def _is_factor(expr: Expr) -> bool:
    """Whether an expression needs no parentheses beside an operator."""
    if not expr.parts:
        return False
    first = expr.parts[0]
    number = len(expr.parts) == 1 and word(first)[:1].isdigit()
    dotted = isinstance(first, Column) and all(part == "." for part in expr.parts[1::2])
    return number or dotted or unwrapped(expr) is not expr or called(expr) is not None
