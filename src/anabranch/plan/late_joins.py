"""JOIN t REFRESHABLE: the join moves above the partials of the stream, so that REFRESH reaches the rows of the past.

    SELECT label, count(*), sum(n), sum(w) FROM s JOIN t REFRESHABLE ON s.k = t.k GROUP BY label

is planned as

    SELECT label, sum(s.__rows), sum(s.__p0), sum(w * s.__rows)
    FROM (SELECT k, count(*) AS __rows, sum(n) AS __p0 FROM s GROUP BY k) AS s JOIN t ON s.k = t.k GROUP BY label

as text. What the rest of the query asks of the rows of the stream keys the partials; a condition on the stream alone
is asked below. Where a query cannot be written like this it reads kept rows, as FROM (SELECT k, n FROM s) AS s. Either
way the table is read above, as it is at the last REFRESH, and nothing below knows of it.

The clock is such a table, of one row that is another one at each read: what now() and its like are compared with keys
the partials, and they themselves are asked above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.algebra import aggregates
from anabranch.algebra.weighted import merged, weighted
from anabranch.errors import UnknownName
from anabranch.plan.bind import Binder, refuse
from anabranch.plan.blocks import Analyze, aggregates_in, grouped_tokens, stream_and_tables
from anabranch.plan.catalog import WINDOW_COLUMNS, Catalog, Field, Stream, Table
from anabranch.plan.rewriting import rewritten
from anabranch.plan.windows import ID, needs_numbers, partitioned
from anabranch.sql.calls import (
    Call,
    Chain,
    aggregate_calls,
    chains,
    clock_calls,
    closing,
    conjuncts,
    occurrences,
    span_of,
)
from anabranch.sql.lexer import Span, Token, quote_name, tokenize
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Query, Relation, Select

#: Aggregates that give the same however often a value occurs; with DISTINCT, all do.
_OF_SETS = ("min", "max", "bool_and", "bool_or", "every", "some", "any", "bit_and", "bit_or", "collect_set",
            "approx_count_distinct")  # fmt: skip
_COMPARISONS = ("=", "==", "<=>", "<", ">", "<=", ">=", "<>", "!=")
#: Words that may bind a part of an expression beside them more tightly than it holds together.
_BINDING = ("NOT", "AND", "OR", "BETWEEN", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV", "OVER")
#: Types that cannot be grouped by, or where equal values can differ.
_NO_KEY = re.compile(r"\b(map|variant|void|collate)\b")


@dataclass(frozen=True)
class Raised:
    """A query that asks what changes above its partials only; where rows have to be kept for it, why."""

    text: str
    query: Query
    reasons: tuple[str, ...] = ()


def raise_joins(text: str, query: Query, catalog: Catalog, analyze: Analyze) -> Raised:
    """The query with its REFRESHABLE joins, and with the clock, above partials, or above kept rows."""
    asked = [each for each in query.relations() if each.refreshable is not None]
    timely = [select for select, owner in query.selects() if goes_by_the_clock(text, select, owner)]
    if not asked and not timely:
        return Raised(text, query)
    binder = Binder(text, catalog, query)
    edits: list[Edit] = []
    reasons: list[str] = []
    for relation in asked:
        binder.resolve(relation)
        edits += [Edit(relation.refreshable, "")] if relation.refreshable is not None else []
    for select, owner in query.selects():
        if not any(each.refreshable is not None for each in select.relations) and select not in timely:
            continue
        live = [each for each in select.relations if binder.is_live(each)]
        reference = binder.resolve(live[0]) if len(live) == 1 else None
        if reference is None or reference.kind != "stream":
            continue  # a query of several streams, or of a view, meets its tables anew as it is
        _check(text, live[0], owner)
        found = _joined_above(select, owner, live[0], binder, analyze)
        if isinstance(found, str):
            reasons.append(found)
            found = Join(select, owner, live[0], binder, analyze, False).over_rows()
        edits += found
    return Raised(*rewritten(text, query, edits), tuple(reasons))


def goes_by_the_clock(text: str, select: Select, owner: Query) -> bool:
    """Whether the clock is asked where rows are looked at; above groups it is asked at each read as it is."""
    if not any(clock_calls(tokenize(select.span.of(text)))):
        return False
    calls = aggregates_in(select, owner)
    if not select.group and not calls:
        return True
    places = [grouped_tokens(group, select, set()) for group in select.group]
    places += [each.condition_tokens for each in select.relations]
    places += [select.where.tokens] if select.where is not None else []
    places += [tokens for call in calls for tokens in (*call.arguments, call.condition or (), call.order)]
    whole = not select.group_plain or select.lateral or select.tail or select.subqueries
    return bool(whole) or any(any(clock_calls(tokens)) for tokens in places)


def _joined_above(select: Select, owner: Query, stream: Relation, binder: Binder, analyze: Analyze) -> list[Edit] | str:
    """The edits that move a join above partials, or the reason why it cannot be."""
    found = Join(select, owner, stream, binder, analyze, True).edits()
    return Join(select, owner, stream, binder, analyze, False).edits() if isinstance(found, str) else found


def _check(text: str, stream: Relation, owner: Query) -> None:
    window, emission = stream.window, owner.emission
    if window is None:
        return
    if window.filled or (emission is not None and emission.mode == "close" and partitioned(window)):
        raise refuse(
            text,
            stream.span,
            "these windows are made by all rows that are joined, and REFRESHABLE joins behind them",
            "make a view of the windows, and join that",
        )


class Unfit(Exception):
    """Why a query cannot be computed from partials of its stream."""


@dataclass
class _Below:
    """What the query below the join is to give: the columns and expressions that key it, and its partials."""

    columns: dict[str, None] = field(default_factory=dict)  # as the stream calls them
    computed: list[tuple[tuple[Token, ...], str]] = field(default_factory=list)  # with the names they get
    partials: dict[str, str] = field(default_factory=dict)  # text -> name
    where: list[str] = field(default_factory=list)


class Join:
    """One SELECT over a stream and static tables. With `whole`, what is grouped by is computed below."""

    def __init__(
        self, select: Select, owner: Query, stream: Relation, binder: Binder, analyze: Analyze, whole: bool
    ) -> None:
        self.select = select
        self.owner = owner
        self.stream = stream
        self.binder = binder
        self.text = binder.text
        self.analyze = analyze
        self.whole = whole
        self.below = _Below()
        self.changes: list[Edit] = []
        self.columns = [self._columns(each) for each in select.relations]
        self.home = next(index for index, each in enumerate(select.relations) if each is stream)
        names = {name for columns in self.columns for name in columns}
        self.prefix = "__"
        while any(name.startswith(self.prefix) for name in names):
            self.prefix += "_"
        self.using = {
            token.name.lower()
            for each in select.relations
            if each.condition_tokens and each.condition_tokens[0].upper == "USING"
            for token in each.condition_tokens[1:]
            if token.is_name
        }

    def _columns(self, relation: Relation) -> dict[str, str]:
        """The columns of a relation by their names in lower case; none where they are Spark's to know."""
        reference = self.binder.resolve(relation)
        found = self.binder.catalog.objects.get(reference.target) if reference is not None else None
        names = [each.name for each in found.fields] if isinstance(found, Stream | Table) else []
        names = [*relation.alias_columns, *names[len(relation.alias_columns) :]]
        if relation.window is not None:
            names += [*WINDOW_COLUMNS, *([ID] if self.binder.asks_for_id else [])]
        return {name.lower(): name for name in names}

    # ---- over kept rows

    def over_rows(self) -> list[Edit]:
        """The stream as a query of the columns that are read."""
        own = self.columns[self.home]
        tokens = [*tokenize(self.select.span.of(self.text)), *self.owner.order_tokens]
        named = {token.name.lower() for token in tokens if token.is_name}
        everything = any(item.tokens[-1].text == "*" for item in self.select.items)
        everything = everything or any("NATURAL" in each.join for each in self.select.relations)
        chosen = [name for lower, name in own.items() if everything or lower in named] or list(own.values())[:1]
        return list(self._instead(", ".join(map(quote_name, chosen)), ""))

    def _instead(self, items: str, tail: str) -> Iterator[Edit]:
        """A query in the place of the stream, under its name."""
        relation = self.stream
        start, end = relation.span.start, (relation.alias_span or relation.span).end
        yield Edit(Span(start, start), f"(SELECT {items} FROM ", relation.span)
        yield Edit(Span(end, end), f"{tail}) AS {quote_name(relation.exposed or '')}", relation.span)

    # ---- over partials

    def edits(self) -> list[Edit] | str:
        """The edits that move the join above partials, or the reason why it has to stay below."""
        try:
            self.fit()
            self._conditions()
            self._groups()
            self._calls()
            self._rest()
        except Unfit as unfit:
            return str(unfit)
        except UnknownName:  # the query as a whole was analysed before
            return "it reads columns of the query around it"
        below = self.below
        keys = [quote_name(name) for name in below.columns]
        texts = [span_of(tokens).of(self.text) for tokens, _ in below.computed]
        items = [*keys, *(f"{text} AS {name}" for text, (_, name) in zip(texts, below.computed, strict=True))]
        if not items:
            self._partial("count(*)")
        items += [f"{text} AS {name}" for text, name in below.partials.items()]
        tail = f" WHERE {' AND '.join(below.where)}" if below.where else ""
        tail += f" GROUP BY {', '.join([*keys, *texts])}" if keys or texts else " HAVING count(*) > 0"
        return [*self._instead(", ".join(items), tail), *self.changes]

    def fit(self) -> None:
        select, window, emission = self.select, self.stream.window, self.owner.emission
        if emission is not None and emission.counting is not None:
            raise Unfit("its trigger counts rows")
        if not select.group and not aggregates_in(select, self.owner):
            raise Unfit("it has no aggregate")
        if not select.group_plain or select.distinct or select.lateral or select.tail or select.subqueries:
            raise Unfit("grouping sets, DISTINCT, LATERAL VIEW, QUALIFY and subqueries in it are computed over rows")
        found = stream_and_tables(select, self.binder)
        if isinstance(found, str):
            raise Unfit(found)
        if any(each.reshaped for each in select.relations) or self.stream.alias_columns:
            raise Unfit("the rows of its FROM clause are given another shape")
        if window is not None and (not window.by_row or needs_numbers(window)):
            raise Unfit("its windows depend on other rows than a row's own")

    # ---- names

    def _place(self, chain: Chain) -> tuple[int, str] | None:
        """The relation and the column that a name stands for; None for other words."""
        parts = [part.lower() for part in chain.parts]
        if len(parts) > 1:
            for index, each in enumerate(self.select.relations):
                if (each.exposed or "").lower() == parts[0] and parts[1] in self.columns[index]:
                    return index, parts[1]
        owners = [index for index, columns in enumerate(self.columns) if parts[0] in columns]
        if not owners and len(parts) > 1:
            raise Unfit("it reads columns of the query around it")
        if not owners and any((each.exposed or "").lower() == parts[0] for each in self.select.relations):
            raise Unfit("it reads whole rows of a relation")
        if not owners:
            return None
        # A name that several have is joined by (USING), or the only one that is left (LEFT SEMI JOIN).
        return self.home if self.home in owners else owners[0], parts[0]

    def stream_columns(self, tokens: Sequence[Token]) -> list[str]:
        """The columns of the stream in an expression."""
        places = [self._place(chain) for chain in chains(tokens)]
        return [self.columns[self.home][place[1]] for place in places if place is not None and place[0] == self.home]

    def is_below(self, tokens: Sequence[Token]) -> bool:
        """Whether an expression reads nothing but the stream."""
        if any(clock_calls(tokens)):
            return False
        places = [self._place(chain) for chain in chains(tokens)]
        return all(place is None or place[0] == self.home for place in places)

    def _need(self, tokens: Sequence[Token]) -> None:
        """Have the columns of the stream in an expression among those that key the partials."""
        self.below.columns.update(dict.fromkeys(self.stream_columns(tokens)))

    def _compute(self, tokens: tuple[Token, ...]) -> bool:
        """Have an expression over the stream computed below, if it is one; a column is itself."""
        own = self.stream_columns(tokens)
        named = list(chains(tokens))
        if not own or not self.is_below(tokens) or (len(named) == 1 and named[0].span == span_of(tokens)):
            return False
        if not any(_same(tokens, known) for known, _ in self.below.computed):
            self.below.computed.append((tokens, quote_name(f"{self.prefix}k{len(self.below.computed)}")))
        return True

    def _partial(self, text: str) -> str:
        """The column of a partial, qualified."""
        name = "rows" if text == "count(*)" else f"p{len(self.below.partials)}"
        name = self.below.partials.setdefault(text, quote_name(self.prefix + name))
        return f"{quote_name(self.stream.exposed or '')}.{name}"

    # ---- clauses

    def _conditions(self) -> None:
        """What is asked of the stream alone is asked below; what joins, and what is asked of both, stays."""
        for relation in self.select.relations:
            tokens = relation.condition_tokens
            if tokens and tokens[0].upper == "USING":
                self.below.columns.update(
                    {self.columns[self.home][name]: None for name in self.using if name in self.columns[self.home]}
                )
            elif tokens:
                for piece in pieces_of(tokens[1:]):
                    self._stays(piece)
        where = self.select.where
        if where is None:
            return
        assert self.select.from_span is not None
        pieces = pieces_of(where.tokens)
        down = [piece for piece in pieces if self.is_below(piece)]
        up = [piece for piece in pieces if not self.is_below(piece)]
        self.below.where = [f"({span_of(piece).of(self.text)})" for piece in down]
        if not up:
            self.changes.append(Edit(Span(self.select.from_span.end, where.span.end), ""))
            return
        for piece in down:  # true for every row that is left
            self.changes.append(Edit(span_of(piece), "true"))
        for piece in up:
            self._stays(piece)

    def _stays(self, tokens: tuple[Token, ...]) -> None:
        """A condition above the partials: its parts over the stream become keys."""
        sides = _sides(tokens) or [tokens]
        for side in [tokens] if self.is_below(tokens) else sides:
            if self._compute(side):
                self._replace(side)
            else:
                self._need(side)

    def _replace(self, tokens: Sequence[Token]) -> None:
        """Put the columns of computed keys in the place of what they are."""
        taken: list[Span] = [call.span for call in aggregate_calls(tokens)]
        for known, name in self.below.computed:
            for span in occurrences(tokens, known):
                if stands_alone(tokens, span) and not any(each.start <= span.start < each.end for each in taken):
                    self.changes.append(Edit(span, f"{quote_name(self.stream.exposed or '')}.{name}"))
                    taken.append(span)

    def _groups(self) -> None:
        known = {name for columns in self.columns for name in columns}
        for group in self.select.group:
            tokens = grouped_tokens(group, self.select, known)
            if not (self.whole and self._compute(tokens)):
                self._need(tokens)

    def _rest(self) -> None:
        """What stands outside of aggregates is made of what is grouped by."""
        places: list[tuple[Token, ...]] = [item.tokens for item in self.select.items]
        places += [group.tokens for group in self.select.group]
        places += [self.select.having.tokens] if self.select.having is not None else []
        places += [self.owner.order_tokens] if self.owner.body is self.select else []
        aliases = {item.alias.lower() for item in self.select.items if item.alias is not None}
        keys = {name.lower() for name in self.below.columns}
        for tokens in places:
            self._replace(tokens)
            done = [edit.span for edit in self.changes] + [call.span for call in aggregate_calls(tokens)]
            for chain in chains(tokens):
                if any(span.start <= chain.span.start < span.end for span in done):
                    continue
                place = self._place(chain)
                if place is None or place[0] != self.home or place[1] in keys:
                    continue
                if len(chain.parts) > 1 or chain.parts[0].lower() not in aliases:
                    raise Unfit(f"{chain.span.of(self.text)} is not what it groups by")

    # ---- aggregates

    def _calls(self) -> None:
        calls = aggregates_in(self.select, self.owner)
        types = self._types(
            [span_of(argument).of(self.text) for call in calls for argument in call.arguments]
            + [call.span.of(self.text) for call in calls]
        )
        given, results = iter(types), types[len(types) - len(calls) :]
        for call, type in zip(calls, results, strict=True):
            text = self._call(call, [next(given) for _ in call.arguments])
            if text is not None:
                self.changes.append(Edit(call.span, f"CAST({text} AS {type})"))
        for name in self.below.columns:
            kind = next((each.type for each in self._stream_fields() if each.name == name), "")
            if _NO_KEY.search(kind):
                raise Unfit(f"{name} is of type {kind.upper()}, which rows cannot be grouped by")

    def _call(self, call: Call, types: list[str]) -> str | None:
        """An aggregate over partials and tables; None where its text stays as it is."""
        written = call.span.of(self.text)
        below = [piece for piece in pieces_of(call.condition or ()) if self.is_below(piece)]
        above = [piece for piece in pieces_of(call.condition or ()) if not self.is_below(piece)]
        arguments = [span_of(argument).of(self.text) for argument in call.arguments]
        one_sided = all(self.is_below(argument) for argument in call.arguments)
        aggregate = aggregates.find(call.name, distinct=call.distinct, argument_types=types)
        if aggregate is not None and not aggregate.raised:
            aggregate = None
        if call.distinct or (call.name in _OF_SETS and (aggregate is None or not one_sided)):
            if call.order:
                raise Unfit(f"{written} cannot be merged from partials")
            for tokens in (*call.arguments, call.condition or ()):
                self._need(tokens)
            return None
        if aggregate is None:
            raise Unfit(f"{written} cannot be merged from partials")
        asked = " AND ".join(f"({span_of(piece).of(self.text)})" for piece in below) or None
        condition = " AND ".join(f"({span_of(piece).of(self.text)})" for piece in above) or None
        for piece in above:
            self._need(piece)
        if one_sided:
            columns = {part.suffix: self._partial(part.partial_sql(arguments, asked)) for part in aggregate.parts}
            return merged(aggregate, columns, condition)
        if aggregate.name == "sum":
            product = self._factored(call.arguments[0], types[0], asked)
            if product is not None:
                return merged(aggregate, {"sum": product}, condition)
        for argument in call.arguments:
            self._need(argument)
        weight = self._partial("count(*)" if asked is None else f"count(*) FILTER (WHERE {asked})")
        text = weighted(aggregate, arguments, types, weight, condition)
        if text is None:
            raise Unfit(f"{written} cannot be computed from rows with weights")
        return text

    def _factored(self, tokens: tuple[Token, ...], type: str, asked: str | None) -> str | None:
        """x * y, with x of the stream and y of a table, as sum(x) * y; None where that is not the same to the digit."""
        factors = _factors(tokens)
        own = [each for each in factors if self.stream_columns(each)]
        others = [each for each in factors if not self.stream_columns(each)]
        if not own or not others or not all(map(self.is_below, own)):
            return None
        one, other = (" * ".join(span_of(each).of(self.text) for each in side) for side in (own, others))
        filtered = "" if asked is None else f" FILTER (WHERE {asked})"
        kinds = self._types([one, other, f"sum({one})", f"sum({one}) * max({other})"])
        if not _same_product(type, *kinds):
            return None
        return f"{self._partial(f'sum({one}){filtered}')} * {other}"

    def _stream_fields(self) -> Sequence[Field]:
        reference = self.binder.resolve(self.stream)
        assert reference is not None
        return self.binder.catalog.stream(reference.target).fields

    def _types(self, expressions: Sequence[str]) -> list[str]:
        """The types of expressions over the FROM clause. Aggregates and others are asked apart."""
        select = self.select
        assert select.from_span is not None
        bound = Binder(self.text, self.binder.catalog, self.binder.query).bind(select.from_span)
        schemas: dict[str, tuple[Field, ...]] = {}
        for placeholder, reference in bound.references.items():
            found = self.binder.catalog.objects.get(reference.target)
            if isinstance(found, Stream | Table):
                schemas[placeholder] = found.fields
        types: dict[int, str] = {}
        whole = {i for i, text in enumerate(expressions) if any(aggregate_calls(tokenize(text)[:-1]))}
        for group in (sorted(whole), sorted(set(range(len(expressions))) - whole)):
            if group:
                items = ", ".join(f"{expressions[index]} AS `x{index}`" for index in group)
                fields = self.analyze(f"SELECT {items} FROM {bound.text.text}", schemas)
                types.update({index: each.type for index, each in zip(group, fields, strict=True)})
        return [types[index] for index in range(len(expressions))]


def _same_product(type: str, one: str, other: str, total: str, product: str) -> bool:
    """Whether products add up to the same in whatever order: x * y is `type`, sum(x) * y is `product`."""
    integers = ("tinyint", "smallint", "int", "bigint")
    if type in integers:
        return one in integers and other in integers
    if type == "double":
        return "float" not in (one, other)
    whole, part = (re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", each) for each in (product, type))
    if whole is None or part is None or not (total.startswith("decimal") or total == "bigint"):
        return False
    return whole[2] == part[2] and int(whole[1]) < 38 and int(part[1]) < 38


def _factors(tokens: tuple[Token, ...]) -> list[tuple[Token, ...]]:
    """The factors of a product of numbers, columns, calls and brackets; nothing if it is something else."""
    found: list[tuple[Token, ...]] = []
    index = 0
    while index < len(tokens):
        start = index
        if tokens[index].text == "(":
            index = closing(tokens, index) + 1
        elif tokens[index].kind == "number":
            index += 1
        elif tokens[index].is_name:
            index += 1
            while index + 1 < len(tokens) and tokens[index].text == "." and tokens[index + 1].is_name:
                index += 2
            if index < len(tokens) and tokens[index].text == "(":
                index = closing(tokens, index) + 1
        else:
            return []
        found.append(tokens[start:index])
        if index < len(tokens) and tokens[index].text != "*":
            return []
        index += 1
    return found


def pieces_of(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """The conditions that must all hold."""
    if not tokens:
        return []
    return [tuple(piece) for piece in conjuncts(tokens)] or [tuple(tokens)]


def _sides(tokens: tuple[Token, ...]) -> list[tuple[Token, ...]]:
    """The two sides of a comparison; nothing if it is something else."""
    depth, found = 0, []
    for index, token in enumerate(tokens):
        if token.kind == "symbol":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.upper in ("CASE", "BETWEEN", "IN", "IS", "LIKE", "NOT", "OR", "ILIKE", "RLIKE", "REGEXP"):
            return []
        if depth == 0 and token.text in _COMPARISONS:
            found.append(index)
    if len(found) != 1 or found[0] in (0, len(tokens) - 1):
        return []
    return [tokens[: found[0]], tokens[found[0] + 1 :]]


def stands_alone(tokens: Sequence[Token], span: Span) -> bool:
    """Whether an operator beside an expression cannot take a part of it: a + b is not in a + b * c."""
    before = next((token for token in reversed(tokens) if token.end <= span.start), None)
    after = next((token for token in tokens if token.start >= span.end), None)
    fine = ("(", ")", ",", *_COMPARISONS)
    return all(
        token is None or (token.text in fine if token.kind == "symbol" else token.upper not in _BINDING)
        for token in (before, after)
    )


def _same(one: Sequence[Token], other: Sequence[Token]) -> bool:
    return len(one) == len(other) and any(True for _ in occurrences(one, other))
