"""Subqueries in expressions as relations that are joined, whatever they ask of the rows around them:

    SELECT k FROM a WHERE v > (SELECT max(v) FROM b) OR v = (SELECT count(*) FROM c WHERE c.v < a.v)

in other words:

    SELECT k FROM a
      CROSS JOIN (SELECT max(v) AS `__v` FROM b) AS `__q0`
      CROSS JOIN (SELECT `__d`.`__c0` AS `__c0`, count(*) FILTER (WHERE `__b`.`__here`) AS `__v`
                  FROM (SELECT DISTINCT `a`.`v` AS `__c0` FROM a) AS `__d`
                  LEFT JOIN (SELECT `c`.`v` AS `__b0`, true AS `__here` FROM c) AS `__b`
                    ON (`__b`.`__b0` < `__d`.`__c0`)
                  GROUP BY `__d`.`__c0`) AS `__q1`
    WHERE (v > `__q0`.`__v` OR v = `__q1`.`__v`) AND `a`.`v` <=> `__q1`.`__c0`

A subquery that stands by itself has one value. One that asks for columns around it has one for each of their values
that there is (`__d`), also where it finds no row: so each row around meets exactly one. EXISTS and IN are values as
well. This is for those who ask what a query is at every moment; `subqueries` has forms that can be kept up to date.

What cannot be written so raises `Unfit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.plan.asked import Asked, around, asked_in
from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze, aggregates_in
from anabranch.plan.catalog import Catalog
from anabranch.plan.inside import Inside, qualified, using
from anabranch.plan.keys import INNER
from anabranch.plan.laterals import end_of
from anabranch.plan.rewriting import rewritten_throughout
from anabranch.plan.scope import Scope, Unfit, shown_types, span_of
from anabranch.plan.stars import spelled
from anabranch.sql.calls import aggregate_calls, conjuncts, generators
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.lexer import Span, Token, quote_name
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Query, Select, SelectStatement, SetOperation

_VALUE, _HERE = "`__v`", "`__b`.`__here`"
_TOO_MANY = "raise_error('a subquery that stands for a value has more than one row')"


def with_joined_values(text: str, query: Query, catalog: Catalog, analyze: Analyze) -> tuple[str, Query]:
    """The query without subqueries in expressions."""

    def step(text: str, query: Query) -> list[Edit]:
        for select, owner in reversed(list(query.selects())):
            if select.subqueries:
                return list(_Asking(text, query, select, owner, Binder(text, catalog, query), analyze).edits())
        return []

    return rewritten_throughout(text, query, step)


@dataclass(frozen=True)
class _Joined:
    """What a subquery becomes: a relation, and what of it each row around meets."""

    relation: str
    meets: tuple[tuple[str, str], ...] = ()  # columns around, and those of the relation


class _Asking:
    """One SELECT that asks subqueries, and the edits that join the first of them."""

    def __init__(self, text: str, root: Query, select: Select, owner: Query, binder: Binder, analyze: Analyze) -> None:
        self.text = text
        self.root = root
        self.select = select
        self.owner = owner
        self.binder = binder
        self.analyze = analyze
        number = 0
        while f"`__q{number}`" in text:
            number += 1
        self.name = quote_name(f"__q{number}")

    def edits(self) -> Iterator[Edit]:
        select = self.select
        stars = list(spelled(select, self.binder))
        if stars:
            yield from stars
            return
        having = [select.having.tokens] if select.having is not None else []
        places = [*(item.tokens for item in select.items), *having, *(group.tokens for group in select.group)]
        behind = [each for tokens in places for each in asked_in(tokens, select.subqueries)]
        calls = aggregates_in(select, self.owner)
        if behind and (select.group or calls or select.having):
            inside = any(around(each, [call.span for call in calls]) for each in behind)
            beside = select.group or inside
            yield from Inside(select, self.owner, self.binder).edits() if beside else self._aggregated_first()
            return
        for each in behind:
            yield from self._first(each)
            return
        for tokens in [] if select.where is None else [select.where.tokens]:
            for each in asked_in(tokens, select.subqueries):
                yield from self._first(each)
                return
        yield from self._in_joins()

    def _in_joins(self) -> Iterator[Edit]:
        """A condition of an inner join is one of all rows as well."""
        joins = [each.join for each in self.select.relations]
        for relation in self.select.relations:
            tokens = relation.condition_tokens[1:]
            for asked in asked_in(tokens, self.select.subqueries):
                if not any(join.startswith(("RIGHT", "FULL")) for join in joins) and self._alone(asked):
                    # What is the same for all rows can be met by the first relation.
                    yield from self._first(asked, self.select.relations[0])
                    return
                if any(join not in INNER for join in joins) or relation.condition is None:
                    raise Unfit("a subquery in the condition of an outer join")
                yield Edit(relation.condition, "", relation.condition)
                yield from self._and(f"({span_of(tokens).of(self.text)})")
                return
        raise Unfit("a subquery behind GROUP BY and HAVING")

    def _alone(self, asked: Asked) -> bool:
        return asked.kind != "in" and self._stands_alone(asked.inner)

    def _aggregated_first(self) -> Iterator[Edit]:
        """Aggregates that make one row, in a query inside: the row is there with what the subqueries are."""
        select = self.select
        assert select.from_span is not None
        calls = aggregates_in(select, self.owner)
        names = {call.key: quote_name(f"__a{index}") for index, call in enumerate(calls)}
        for call in calls:
            yield Edit(call.span, names[call.key], call.span)
        items = ", ".join(
            f"{call.span.of(self.text)} AS {names[call.key]}" for call in {c.key: c for c in calls}.values()
        )
        if not items:
            raise Unfit("HAVING without aggregates beside a subquery")
        where = "" if select.where is None else f" WHERE {select.where.span.of(self.text)}"
        span = Span(select.from_span.start, (select.where.span if select.where is not None else select.from_span).end)
        yield Edit(span, f"(SELECT {items} FROM {select.from_span.of(self.text)}{where}) AS `__x`", select.from_span)
        if select.having_span is not None and select.having is not None:
            yield Edit(Span(select.having_span.start, select.having.span.start), "WHERE ", select.having_span)

    # ---- one subquery

    def _first(self, asked: Asked, beside: object = None) -> Iterator[Edit]:
        """The edits that join one subquery, and have its value stand in its place."""
        select = self.select
        joined = self._joined(asked)
        value = f"{self.name}.{_VALUE}"
        yield Edit(asked.span, f"(NOT {value})" if asked.negated else value, asked.span)
        for item in select.items:
            if item.alias is None and item.tokens and span_of(item.tokens) == asked.span:
                yield Edit(Span(item.span.end, item.span.end), f" AS {quote_name(f'__v{self.name[4:-1]}')}", item.span)
        relation = f"({joined.relation}) AS {self.name}"
        if not select.relations:
            end = Span(select.items[-1].span.end, select.items[-1].span.end)
            yield Edit(end, f" FROM {relation}", select.span)
            return
        at = end_of(select.relations[0] if beside is not None else select.relations[-1])
        yield Edit(Span(at, at), f" CROSS JOIN {relation}", asked.span)
        conditions = " AND ".join(f"{one} <=> {self.name}.{other}" for one, other in joined.meets)
        if conditions:
            yield from self._and(conditions)

    def _and(self, condition: str) -> Iterator[Edit]:
        """One more condition on all rows."""
        select = self.select
        assert select.from_span is not None
        if select.where is None:
            yield Edit(Span(select.from_span.end, select.from_span.end), f" WHERE {condition}", select.from_span)
            return
        start, end = select.where.span.start, select.where.span.end
        yield Edit(Span(start, start), "(", select.where.span)
        yield Edit(Span(end, end), f") AND {condition}", select.where.span)

    def _joined(self, asked: Asked) -> _Joined:
        inner = asked.inner
        if inner.emits or inner.dropped:
            raise Unfit("a query that says when its results come out")
        alone = self._stands_alone(inner)
        if alone and asked.kind == "value" and _one_row(inner):
            return _Joined(self._named(inner, [_VALUE]))
        if alone and asked.kind == "value":
            value = f"CASE WHEN count(*) > 1 THEN {_TOO_MANY} ELSE max(`__s`.{_VALUE}) END"
            return _Joined(f"SELECT {value} AS {_VALUE} FROM ({self._named(inner, [_VALUE])}) AS `__s`")
        if alone and asked.kind == "exists":
            return _Joined(f"SELECT count(*) > 0 AS {_VALUE} FROM ({self._named(inner, None)}) AS `__s`")
        return self._by_value(asked, inner, alone)

    def _stands_alone(self, inner: Query) -> bool:
        """Whether Spark takes a subquery as it is: then no name in it means anything around it."""
        try:
            (statement,) = parse(inner.span.of(self.text))
            assert isinstance(statement, SelectStatement)
            shown_types(Binder(statement.text, self.binder.catalog, statement.query), self.analyze)
        except (AnabranchError, Unfit):
            return False
        return True

    def _named(self, inner: Query, names: Sequence[str] | None) -> str:
        """A subquery whose columns have these names, or any."""
        body = inner.body
        while not isinstance(body, Select):
            if not isinstance(body, SetOperation | Query):
                raise Unfit("VALUES as a subquery")
            body = body.operands[0] if isinstance(body, SetOperation) else body.body
        if names is None:
            names = [quote_name(item.alias or f"__e{index}") for index, item in enumerate(body.items)]
            plain = not (body.distinct or body.group or aggregates_in(body, inner)) and body is inner.body
            if plain and len(body.items) == 1:
                item = body.items[0]
                return splice(self.text, inner.span, [Edit(item.span, f"1 AS {_VALUE}")]).text
        if len(names) != len(body.items) or any(item.star for item in body.items):
            raise Unfit("* in a subquery that stands for a value")
        edits = [
            Edit(item.span, f"{span_of(item.tokens).of(self.text)} AS {name}")
            for item, name in zip(body.items, names, strict=True)
        ]
        return splice(self.text, inner.span, edits).text

    # ---- by the values around

    def _by_value(self, asked: Asked, inner: Query, alone: bool) -> _Joined:
        """One row for each combination of the values around that the subquery asks for."""
        outer = Scope(self.select, self.binder)
        columns: dict[str, str] = {}  # those around, and what they are called

        def there(tokens: Sequence[Token], own: _Own | None) -> str:
            """An expression over both sides."""
            return _moved(self.text, tokens, own, outer, columns)

        if alone:
            own = _Own(f"({self._named(inner, [f'`__b{index}`' for index in range(len(asked.left))])}) AS `__s`")
            own.columns = {f"`__s`.`__b{index}`": f"__b{index}" for index in range(len(asked.left))}
            value = self._met(asked, [f"`__b`.`__b{index}`" for index in range(len(asked.left))], there)
            on = "true"
        else:
            select = inner.body
            if not isinstance(select, Select) or inner.ctes or inner.order is not None or not select.relations:
                raise Unfit("a subquery that asks for columns around it, and is more than one SELECT")
            rest = select.group or select.tail or select.lateral or select.subqueries
            if rest or (select.distinct and asked.kind == "value") or select.from_span is None:
                raise Unfit("a subquery that asks for columns around it, and groups its rows")
            own = _Own(select.from_span.of(self.text), Scope(select, self.binder), select)
            _check_joins(select, self.binder)
            where = list(conjuncts(select.where.tokens)) or [select.where.tokens] if select.where is not None else []
            local = [tokens for tokens in where if own.is_local(tokens)]
            tied = [f"({there(tokens, own)})" for tokens in where if tokens not in local]
            own.where = " AND ".join(f"({span_of(tokens).of(self.text)})" for tokens in local)
            on = " AND ".join(tied) or "true"
            value = self._value(asked, inner, select, own, there)
        if not columns:
            raise Unfit("a subquery that cannot be told from what is around it")
        keys = ", ".join(f"`__d`.{name} AS {name}" for name in columns.values())
        groups = ", ".join(f"`__d`.{name}" for name in columns.values())
        values = ", ".join(f"{column} AS {name}" for column, name in columns.items())
        source = f"(SELECT DISTINCT {values} FROM {self._source(columns)}) AS `__d`"
        text = (
            f"SELECT {keys}, {value} AS {_VALUE} FROM {source} LEFT JOIN ({own.sql}) AS `__b` ON {on} GROUP BY {groups}"
        )
        return _Joined(text, tuple(columns.items()))

    def _source(self, columns: dict[str, str]) -> str:
        """Where the values around are found: in their only relation, if none of its rows is ever missing."""
        select = self.select
        assert select.from_span is not None
        joins = [each.join for each in select.relations]
        for index, relation in enumerate(select.relations):
            mine = relation.exposed is not None and all(
                each.startswith(f"{quote_name(relation.exposed)}.") for each in columns
            )
            kept = all(join in INNER or join.startswith("LEFT") for join in joins) and joins[index] in INNER
            if mine and kept and not relation.lateral:
                end = relation.alias_span.end if relation.alias_span is not None else relation.span.end
                return self.text[relation.span.start : end]
        return select.from_span.of(self.text)

    def _met(self, asked: Asked, columns: Sequence[str], there: _There) -> str:
        """x IN (...): true if one is equal, NULL if one might be, false for all others and for none."""
        pairs = [f"({there(left, None)}) = {column}" for left, column in zip(asked.left, columns, strict=True)]
        equal = f"({' AND '.join(pairs)})"
        return (
            f"CASE WHEN coalesce(bool_or({equal}) FILTER (WHERE {_HERE}), false) THEN true"
            f" WHEN count(*) FILTER (WHERE {_HERE}) > count({equal}) FILTER (WHERE {_HERE})"
            " THEN CAST(NULL AS BOOLEAN) ELSE false END"
        )

    def _value(self, asked: Asked, inner: Query, select: Select, own: _Own, there: _There) -> str:
        calls = aggregates_in(select, inner)
        if asked.kind == "exists":
            if calls or select.having:
                raise Unfit("EXISTS of aggregates")
            return f"count(*) FILTER (WHERE {_HERE}) > 0"
        if any(item.star for item in select.items):
            raise Unfit("* in a subquery that stands for a value")
        if asked.kind == "in":
            if calls or select.having or len(asked.left) != len(select.items):
                raise Unfit("IN of aggregates that ask for columns around them")
            return self._met(asked, [f"({there(item.tokens, own)})" for item in select.items], there)
        if len(select.items) != 1:
            raise Unfit("several columns in a subquery that stands for a value")
        tokens = select.items[0].tokens
        if not calls:
            made = f"max({there(tokens, own)}) FILTER (WHERE {_HERE})"
            return f"CASE WHEN count(*) FILTER (WHERE {_HERE}) > 1 THEN {_TOO_MANY} ELSE {made} END"
        found = there(tokens, own)
        if select.having is not None:
            found = f"CASE WHEN {there(select.having.tokens, own)} THEN {found} END"
        return found


def _check_joins(select: Select, binder: Binder) -> None:
    """Refuse conditions of joins in a subquery that ask for columns around it."""
    within = _Own("", Scope(select, binder, joins=True), select)
    for relation in select.relations:
        tokens = relation.condition_tokens
        if tokens and tokens[0].upper == "ON" and not within.is_local(tokens[1:]):
            raise Unfit("the condition of a join that asks for columns around its subquery")


def _one_row(query: Query) -> bool:
    """Whether a query has one row, however many it is made of."""
    select = query.body
    if not isinstance(select, Select) or query.ctes or query.order is not None or select.group or select.having:
        return False
    if select.tail or select.distinct or any(any(generators(item.tokens)) for item in select.items):
        return False
    return bool(aggregates_in(select, query)) and len(select.items) == 1


@dataclass
class _Own:
    """The rows of a subquery: where they come from, and which of their columns somebody reads."""

    source: str
    scope: Scope | None = None
    select: Select | None = None
    where: str = ""

    def __post_init__(self) -> None:
        self.columns: dict[str, str] = {}

    @property
    def sql(self) -> str:
        items = "".join(f"{column} AS {quote_name(name)}, " for column, name in self.columns.items())
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {items}true AS `__here` FROM {self.source}{where}"

    def find(self, parts: Sequence[str]) -> tuple[str, int] | None:
        """What a column of these rows is called, and how many parts of its name tell which it is."""
        found = _found(self.scope, parts) if self.scope is not None else None
        if found is None or self.select is None:
            return None
        relation = self.select.relations[found[0]]
        common = found[1] in using(self.select.relations)
        column = quote_name(found[1]) if common else qualified(relation, found[1])
        return f"`__b`.{quote_name(self.columns.setdefault(column, f'__b{len(self.columns)}'))}", 1 + found[2]

    def is_local(self, tokens: Sequence[Token]) -> bool:
        """Whether an expression names nothing but columns of these rows."""
        first = {token.start: token for token in tokens}
        for chain in names_in(tokens):
            parts = [part.lower() for part in chain.parts]
            known = self.scope is not None and _found(self.scope, parts) is not None
            if not known and not (len(parts) == 1 and of_the_language(first[chain.span.start])):
                return False
        return True


#: An expression of a subquery over its rows, if it has any, and the values around.
_There = Callable[[Sequence[Token], "_Own | None"], str]


def _found(scope: Scope, parts: Sequence[str]) -> tuple[int, str, bool] | None:
    """The relation and the column that a name means; one that relations are joined USING is of all of them."""
    if len(parts) == 1 and parts[0] in using(scope.relations):
        return next(index for index, each in enumerate(scope.columns) if parts[0] in each), parts[0], False
    return scope.find(parts)


def _moved(text: str, tokens: Sequence[Token], own: _Own | None, outer: Scope, columns: dict[str, str]) -> str:
    """An expression of a subquery over its own rows and the values around it; aggregates leave out what is no row."""
    first = {token.start: index for index, token in enumerate(tokens)}
    edits: list[Edit] = []
    for chain in names_in(tokens):
        parts, index = [part.lower() for part in chain.parts], first[chain.span.start]
        found = own.find(parts) if own is not None else None
        if found is None:
            place = _found(outer, parts)
            if place is None and len(parts) == 1 and of_the_language(tokens[index]):
                continue
            if place is None:
                raise Unfit(f"the name {'.'.join(chain.parts)} in a subquery, which is no column around it")
            relation = outer.relations[place[0]]
            column = quote_name(place[1]) if place[1] in using(outer.relations) else qualified(relation, place[1])
            name = columns.setdefault(column, quote_name(f"__c{len(columns)}"))
            found = f"`__d`.{name}", 1 + place[2]
        if found[1] == 1 and of_the_language(tokens[index]):
            raise Unfit(f"the name {tokens[index].text}, which may be a word of the language")
        end = tokens[index + 2 * (found[1] - 1)].end
        edits.append(Edit(Span(chain.span.start, end), found[0]))
    for call in aggregate_calls(tokens):
        if call.condition is None:
            edits.append(Edit(Span(call.span.end, call.span.end), f" FILTER (WHERE {_HERE})"))
        else:
            start, end = call.condition[0].start, call.condition[-1].end
            edits += [Edit(Span(start, start), "("), Edit(Span(end, end), f") AND {_HERE}")]
    return splice(text, span_of(tokens), edits).text
