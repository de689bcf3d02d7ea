"""Subqueries in conditions as joins, so that they have keys:

    SELECT * FROM a WHERE n > 0 AND EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.ts < a.ts)
    SELECT * FROM a WHERE k IN (SELECT k FROM b GROUP BY k HAVING count(*) > 2)
    SELECT * FROM a WHERE n > (SELECT max(p) FROM b WHERE b.k = a.k)

are planned as

    SELECT * FROM a LEFT SEMI JOIN b ON b.k = a.k AND b.ts < a.ts WHERE n > 0 AND true
    SELECT * FROM a LEFT SEMI JOIN (SELECT k FROM b GROUP BY k HAVING count(*) > 2) AS `__q0` ON a.k = `__q0`.`k`
    SELECT a.* FROM a LEFT JOIN (SELECT b.k AS `__k0`, max(p) AS `__v0` FROM b GROUP BY b.k) AS `__q0`
      ON `__q0`.`__k0` = a.k WHERE n > `__q0`.`__v0`

NOT EXISTS is a LEFT ANTI JOIN; NOT IN is one where neither side can be NULL. A query that joins or aggregates as well
reads the joined rows of the one relation that the subquery is about. What stays as it is: subqueries under OR, those
that no condition ties to the query around them, those of static tables alone, and whatever could mean something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze, aggregates_in
from anabranch.plan.catalog import Catalog
from anabranch.plan.keys import INNER, INTEGERS
from anabranch.plan.outside import asked_table
from anabranch.plan.rewriting import rewritten_throughout
from anabranch.plan.scope import Scope, Unfit, span_of, types_of
from anabranch.sql.calls import aggregate_calls, chains, clock_calls, closing, conjuncts, generators, split_commas
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.lexer import Span, Token, normal_form, quote_name, words
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Query, Relation, Select, SetOperation

#: Aggregates that are NULL where there are no rows; count is 0 there, and of others it is not known here.
_NULL_OF_NOTHING = words(
    """min max sum avg mean min_by max_by stddev stddev_pop stddev_samp std variance var_pop var_samp bool_and bool_or
    every some median"""
)
_EQUALS = ("=", "==", "<=>")
_HERE = "\0"  # in place of the relation that a value is a column of
_SEMI, _ANTI, _LEFT = "LEFT SEMI JOIN", "LEFT ANTI JOIN", "LEFT JOIN"


def without_subqueries(text: str, query: Query, catalog: Catalog, analyze: Analyze) -> tuple[str, Query]:
    """The query with such subqueries made joins."""

    def step(text: str, query: Query) -> list[Edit]:
        return _next(text, query, Binder(text, catalog, query), analyze)

    return rewritten_throughout(text, query, step)


def _next(text: str, query: Query, binder: Binder, analyze: Analyze) -> list[Edit]:
    """The edits that make one subquery a join, innermost ones first; none if there is nothing to do."""
    for select, owner in reversed(list(query.selects())):
        if not select.subqueries or select.lateral or select.tail or not select.relations:
            continue
        for asked in _asked(select):
            try:
                return list(_Rewrite(text, query, select, owner, asked, binder, analyze).edits())
            except (Unfit, AnabranchError):
                continue
    return []


# ---------------------------------------------------------------------------------------------- what is asked


@dataclass(frozen=True)
class _Asked:
    """A subquery, and what is asked of it: whether there is a row (`exists`), one that equals `left` (`in`), or its
    only value (`value`). `tokens` are those of the condition or of the item of the SELECT list that it stands in."""

    kind: str
    inner: Query
    tokens: Sequence[Token]
    span: Span  # of what the join stands for: the condition, or the subquery in its brackets
    negated: bool = False
    left: Sequence[Token] = ()
    shown: bool = False  # it stands in the SELECT list


def _asked(select: Select) -> Iterator[_Asked]:
    inner = {each.span.start: each for each in select.subqueries}
    if select.where is not None:
        for tokens in list(conjuncts(select.where.tokens)) or [select.where.tokens]:
            found = _condition(tokens, inner)
            yield from [found] if found is not None else _values(tokens, inner, shown=False)
    for item in select.items:
        yield from _values(item.tokens, inner, shown=True)


def _condition(tokens: Sequence[Token], inner: dict[int, Query]) -> _Asked | None:
    """[NOT] EXISTS (SELECT ...) and x [NOT] IN (SELECT ...), where that is all there is."""
    negated = tokens[0].upper == "NOT"
    rest = tokens[negated:]
    if len(rest) > 2 and negated and rest[0].text == "(" and closing(rest, 0) == len(rest) - 1:
        rest = rest[1:-1]  # NOT (x IN (...))
    opening = next((i for i, token in enumerate(rest) if token.text == "(" and _opens(rest, i, inner)), None)
    if not opening or closing(rest, opening) != len(rest) - 1:
        return None
    query, span = inner[rest[opening + 1].start], span_of(tokens)
    word = rest[opening - 1].upper
    if word == "EXISTS" and opening == 1:
        return _Asked("exists", query, tokens, span, negated)
    if word != "IN" or opening < 2:
        return None
    left = rest[: opening - 1]
    if left[-1].upper == "NOT":
        left, negated = left[:-1], not negated
    words = ("NOT", "AND", "OR", "IS", "LIKE", "BETWEEN", "IN", "CASE")
    if not left or any(token.upper in words or token.text in (*_EQUALS, "<", ">", "<=", ">=", "<>", "!=", "!")
                       for token in left):  # fmt: skip
        return None
    return _Asked("in", query, tokens, span, negated, left)


def _values(tokens: Sequence[Token], inner: dict[int, Query], *, shown: bool) -> Iterator[_Asked]:
    """Subqueries that stand for a value."""
    for index, token in enumerate(tokens):
        before = tokens[index - 1].upper if index else ""
        if token.text == "(" and _opens(tokens, index, inner) and before not in ("IN", "EXISTS", "ANY", "ALL", "SOME"):
            query, end = inner[tokens[index + 1].start], tokens[closing(tokens, index)].end
            yield _Asked("value", query, tokens, Span(token.start, end), shown=shown)


def _opens(tokens: Sequence[Token], index: int, inner: dict[int, Query]) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].start in inner


# ---------------------------------------------------------------------------------------------- names


@dataclass(frozen=True)
class _Place:
    """What a name in a subquery is: a column of its own relations or of those around it."""

    inner: bool
    index: int
    column: str
    span: Span
    qualified: bool


def _sides(tokens: Sequence[Token]) -> tuple[Sequence[Token], str, Sequence[Token]] | None:
    """Both sides of an equation that is all there is."""
    depth = 0
    found = []
    for index, token in enumerate(tokens):
        if token.kind == "symbol":
            depth += (token.text in "([{") - (token.text in ")]}")
        if token.upper in ("AND", "OR", "NOT", "BETWEEN", "CASE", "IN", "IS", "LIKE", "ILIKE", "RLIKE"):
            return None
        if depth == 0 and token.text in (*_EQUALS, "<", ">", "<=", ">=", "<>", "!="):
            found.append(index)
    if len(found) != 1 or tokens[found[0]].text not in _EQUALS or found[0] in (0, len(tokens) - 1):
        return None
    return tokens[: found[0]], tokens[found[0]].text, tokens[found[0] + 1 :]


def _plain(relation: Relation) -> bool:
    """Whether a relation can stand elsewhere."""
    changed = relation.alias_columns or relation.reshaped or relation.refreshable or relation.current
    fixed = relation.version is None and not relation.provisional
    return not changed and fixed and (relation.window is None or relation.window.by_row)


# ---------------------------------------------------------------------------------------------- the join

#: A piece of new text, and where it comes from.
_Pieces = list[tuple[str, Span]]


@dataclass(frozen=True)
class _Joined:
    """What a subquery becomes: a relation, the conditions that it is joined on, and what a value of it is then."""

    relation: _Pieces
    conditions: list[_Pieces]
    value: _Pieces
    types: tuple[tuple[str, str], ...] = ()  # pairs of expressions whose types must be the same
    probe: str = ""  # the relation as it is for asking after types
    added: str = ""  # the column of a value


class _Rewrite:
    """One subquery of one SELECT, and the edits that make it a join."""

    def __init__(
        self, text: str, root: Query, select: Select, owner: Query, asked: _Asked, binder: Binder, analyze: Analyze
    ) -> None:
        self.text = text
        self.root = root
        self.select = select
        self.owner = owner
        self.asked = asked
        self.binder = binder
        self.analyze = analyze
        self.outer = Scope(select, binder)
        self.used: set[int] = set()  # the relations around it that it is about
        number = 0
        while f"__q{number}" in text or f"__v{number}" in text:
            number += 1
        self.number = number
        self.alias = f"__q{number}"

    # ---- names

    def places(self, tokens: Sequence[Token], inner: Scope | None) -> Iterator[_Place]:
        """The columns that an expression names; those of the subquery hide those around it."""
        if any(clock_calls(tokens)) or any(generators(tokens)) or any(token.upper == "OVER" for token in tokens):
            raise Unfit
        first = {token.start: token for token in tokens}
        for chain in names_in(tokens):
            parts, token = [part.lower() for part in chain.parts], first[chain.span.start]
            found = inner.find(parts) if inner is not None else None
            is_inner = found is not None
            if found is None:
                found = self.outer.find(parts)
            if of_the_language(token) and len(parts) == 1:
                if found is not None:
                    raise Unfit
                continue
            if found is None:
                raise Unfit
            if not is_inner:
                self.used.add(found[0])
            yield _Place(is_inner, found[0], found[1], chain.span, found[2])

    def is_local(self, tokens: Sequence[Token], inner: Scope) -> bool:
        """Whether an expression names nothing of the query around the subquery."""
        before = set(self.used)
        local = all(place.inner for place in self.places(tokens, inner))
        self.used = self.used if not local else before
        return local

    def moved(self, tokens: Sequence[Token], inner: Scope | None, names: dict[int, str]) -> _Pieces:
        """An expression with all names qualified; those of the subquery's relations by `names`."""
        pieces: _Pieces = []
        position, end = tokens[0].start, tokens[-1].end
        for place in self.places(tokens, inner):
            exposed = names.get(place.index) if place.inner else self.outer.relations[place.index].exposed
            if exposed is None and not place.inner:
                continue
            start, length = place.span.start, 0
            if place.qualified:
                length = next(t for t in tokens if t.start == start).end - start
            pieces.append((self.text[position:start], Span(position, start)))
            given = Span(start, start + max(length, 1))
            pieces.append((quote_name(exposed or "") + ("" if place.qualified else "."), given))
            position = start + length
        return [*pieces, (self.text[position:end], Span(position, end))]

    # ---- the subquery

    def edits(self) -> Iterator[Edit]:
        asked = self.asked
        inner = asked.inner
        asks = any(asked_table(self.binder, each) is not None for each in inner.relations())
        if inner.emits or inner.ctes or inner.dropped or not (asks or self._live(inner.relations())):
            raise Unfit
        if any(asked_table(self.binder, each) is not None for each in self.select.relations):
            raise Unfit
        if asks and (asked.kind == "value" or len(list(inner.relations())) > 1 or _simple(inner) is None):
            raise Unfit  # a table outside is asked for its rows, one by one
        if asked.kind == "value":
            joined, word = self._value(), _LEFT
        else:
            if asked.negated and asked.kind == "in":
                self._refuse_nulls()
            simple = _simple(inner)
            joined = self._rows(simple) if simple is not None else self._whole()
            word = _ANTI if asked.negated else _SEMI
        self._check_types(joined)
        yield from self._placed(joined, word)

    def _live(self, relations: Iterable[Relation]) -> bool:
        """Whether any of these changes with a stream."""
        for relation in relations:
            if relation.subquery is not None:
                continue  # its own relations are asked
            name = relation.name.last.lower() if relation.name is not None and len(relation.name.parts) == 1 else ""
            reference = self.binder.resolve(relation)
            if reference is not None and reference.kind in ("stream", "view"):
                return True
            if reference is None and name in self.binder.ctes and self._live(self.binder.ctes[name].relations()):
                return True
        return False

    def _own(self, select: Select) -> Scope:
        """The relations of a subquery, which are joined by nothing but what is in them."""
        scope = Scope(select, self.binder, joins=True)
        for relation in select.relations:
            tokens = relation.condition_tokens
            if tokens and tokens[0].upper == "ON" and not self.is_local(tokens[1:], scope):
                raise Unfit
        return Scope(select, self.binder)

    def _rows(self, select: Select) -> _Joined:
        """A subquery that filters rows: what it asks of the query around it is what it is joined on."""
        scope = self._own(select)
        where = list(conjuncts(select.where.tokens)) or [select.where.tokens] if select.where is not None else []
        pairs = self._in_pairs(select)
        for left, right in pairs:
            if not self.is_local(right, scope):
                raise Unfit
            list(self.places(left, None))
        tied = [tokens for tokens in where if not self.is_local(tokens, scope)]
        if not tied and not pairs:
            raise Unfit
        direct = len(select.relations) == 1 and _plain(select.relations[0])
        if direct and all(_column(right) for _, right in pairs):
            return self._direct(select, scope, where, pairs)
        return self._derived(select, scope, [each for each in where if each not in tied], tied, pairs)

    def _in_pairs(self, select: Select) -> list[tuple[Sequence[Token], Sequence[Token]]]:
        """What is to equal what in x IN (SELECT y ...)."""
        if self.asked.kind != "in":
            return []
        if any(item.star for item in select.items):
            raise Unfit
        left = list(self.asked.left)
        several = len(select.items) > 1
        lefts = [left]
        if several:
            if left[0].text != "(" or closing(left, 0) != len(left) - 1:
                raise Unfit
            lefts = list(split_commas(left[1:-1]))
        if len(lefts) != len(select.items):
            raise Unfit
        return [(each, item.tokens) for each, item in zip(lefts, select.items, strict=True)]

    def _direct(
        self,
        select: Select,
        scope: Scope,
        where: Sequence[Sequence[Token]],
        pairs: Sequence[tuple[Sequence[Token], Sequence[Token]]],
    ) -> _Joined:
        """Its only relation as it is, with all of its conditions."""
        (relation,) = select.relations
        taken = {(each.exposed or "").lower() for each in self.select.relations}
        exposed = relation.exposed or ""
        alias = self.alias if not exposed or exposed.lower() in taken else exposed
        source = [(relation.span.of(self.text), relation.span), (f" AS {quote_name(alias)}", relation.span)]
        names = {0: alias}
        conditions = [self._equal(left, right, scope, names) for left, right in pairs]
        conditions += [_bracketed(tokens, self.moved(tokens, scope, names)) for tokens in where]
        types = tuple(
            (_text(self.moved(left, None, {})), _text(self.moved(right, scope, names))) for left, right in pairs
        )
        return _Joined(source, conditions, [], types, _text(source))

    def _equal(
        self, left: Sequence[Token], right: Sequence[Token], scope: Scope | None, names: dict[int, str]
    ) -> _Pieces:
        one, other = self.moved(left, None, {}), self.moved(right, scope, names)
        return [*one, (" = ", span_of(left)), *other]

    def _derived(
        self,
        select: Select,
        scope: Scope,
        local: Sequence[Sequence[Token]],
        tied: Sequence[Sequence[Token]],
        pairs: Sequence[tuple[Sequence[Token], Sequence[Token]]],
    ) -> _Joined:
        """A query of its own for what it asks of its own rows, with the columns that the join needs."""
        assert select.from_span is not None
        columns: dict[str, tuple[_Pieces, str]] = {}

        def column(tokens: Sequence[Token]) -> str:
            form = normal_form(list(tokens))
            if form not in columns:
                pieces: _Pieces = [(span_of(tokens).of(self.text), span_of(tokens))]
                columns[form] = pieces, f"__k{len(columns)}"
            return f"{quote_name(self.alias)}.{quote_name(columns[form][1])}"

        conditions: list[_Pieces] = []
        types: list[tuple[str, str]] = []
        for left, right in pairs:
            one = self.moved(left, None, {})
            conditions.append([*one, (f" = {column(right)}", span_of(right))])
            types.append((_text(one), column(right)))
        for tokens in tied:
            conditions.append(_bracketed(tokens, self._through(tokens, scope, column)))
        items = self._items(columns.values())
        body: _Pieces = [("(SELECT ", select.span), *items, (" FROM ", select.from_span)]
        body.append((select.from_span.of(self.text), select.from_span))
        body += self._where(local)
        return self._as_relation([*body, (")", select.span)], conditions, types)

    def _items(self, columns: Iterable[tuple[_Pieces, str]]) -> _Pieces:
        pieces: _Pieces = []
        for expression, name in columns:
            origin = expression[0][1]
            pieces += [*([(", ", origin)] if pieces else []), *expression, (f" AS {quote_name(name)}", origin)]
        return pieces

    def _where(self, conditions: Sequence[Sequence[Token]]) -> _Pieces:
        pieces: _Pieces = []
        for tokens in conditions:
            span = span_of(tokens)
            pieces.append((" AND " if pieces else " WHERE ", span))
            pieces += _bracketed(tokens, [(span.of(self.text), span)])
        return pieces

    def _as_relation(
        self, body: _Pieces, conditions: list[_Pieces], types: Sequence[tuple[str, str]], value: _Pieces | None = None,
        added: str = "",
    ) -> _Joined:  # fmt: skip
        source = [*body, (f" AS {quote_name(self.alias)}", body[0][1])]
        return _Joined(source, conditions, value or [], tuple(types), _text(source), added)

    def _through(self, tokens: Sequence[Token], scope: Scope, column) -> _Pieces:  # type: ignore[no-untyped-def]
        """A condition over the columns of the derived relation and those around it."""
        pieces: _Pieces = []
        position, end = tokens[0].start, tokens[-1].end
        for place in self.places(tokens, scope):
            own = [t for t in tokens if place.span.start <= t.start < place.span.end]
            start = place.span.start
            pieces.append((self.text[position:start], Span(position, start)))
            if place.inner:
                named = own[: 1 + 2 * place.qualified]
                pieces.append((column(named), place.span))
                position = named[-1].end
            else:
                exposed = self.outer.relations[place.index].exposed
                if not place.qualified and exposed is not None:
                    pieces.append((f"{quote_name(exposed)}.", place.span))
                position = start
        return [*pieces, (self.text[position:end], Span(position, end))]

    def _whole(self) -> _Joined:
        """A subquery that stands by itself, whatever it computes: x IN (SELECT k FROM b GROUP BY k)."""
        inner, body = self.asked.inner, self.asked.inner.body
        operands = body.operands if isinstance(body, SetOperation) else (body,)
        for operand in operands:
            if not isinstance(operand, Select) or operand.subqueries or operand.lateral:
                raise Unfit
            self._check_local(operand, inner)
        first = operands[0]
        assert isinstance(first, Select)
        if self.asked.kind != "in":
            raise Unfit
        pairs = self._in_pairs(first)
        edits: list[Edit] = []
        conditions: list[_Pieces] = []
        types: list[tuple[str, str]] = []
        for index, ((left, right), item) in enumerate(zip(pairs, first.items, strict=True)):
            named = _column(right)
            name = item.alias or (right[-1].name if named else f"__k{index}")
            if item.alias is None and not named:
                edits.append(Edit(Span(item.span.end, item.span.end), f" AS {quote_name(name)}"))
            one = self.moved(left, None, {})
            there = f"{quote_name(self.alias)}.{quote_name(name)}"
            conditions.append([*one, (f" = {there}", span_of(right))])
            types.append((_text(one), there))
        made = splice(self.text, inner.span, edits).text
        return self._as_relation([("(", inner.span), (made, inner.span), (")", inner.span)], conditions, types)

    def _check_local(self, select: Select, owner: Query) -> None:
        """Refuse a SELECT that names something of the query around it."""
        scope = self._own(select)
        aliases = {item.alias.lower() for item in select.items if item.alias is not None}
        places: list[Sequence[Token]] = [item.tokens for item in select.items if not item.star]
        places += [each.tokens for each in (*select.group, *select.tail_expressions)]
        places += [each.tokens for each in (select.where, select.having) if each is not None]
        places += [owner.order_tokens] if owner.body is select else []
        for tokens in places:
            first = {token.start: token for token in tokens}
            for chain in names_in(tokens):
                parts = [part.lower() for part in chain.parts]
                known = scope.find(parts) is not None or parts[0] in aliases
                if not known and (len(parts) > 1 or not of_the_language(first[chain.span.start])):
                    raise Unfit

    # ---- values

    def _value(self) -> _Joined:
        """(SELECT max(p) FROM b WHERE b.k = a.k): one row for each k there is."""
        inner, select = self.asked.inner, self.asked.inner.body
        if not isinstance(select, Select) or inner.order is not None or len(select.items) != 1:
            raise Unfit
        rest = select.group or select.having or select.distinct or select.tail or select.lateral or select.subqueries
        if rest or not select.relations or select.where is None:
            raise Unfit
        scope = self._own(select)
        where = list(conjuncts(select.where.tokens)) or [select.where.tokens]
        local = [tokens for tokens in where if self.is_local(tokens, scope)]
        keys: list[tuple[_Pieces, str]] = []
        conditions: list[_Pieces] = []
        types: list[tuple[str, str]] = []
        for tokens in (each for each in where if each not in local):
            own, sign, other = self._equation(tokens, scope)
            name = f"__k{len(keys)}"
            there = f"{quote_name(self.alias)}.{quote_name(name)}"
            keys.append(([(span_of(own).of(self.text), span_of(own))], name))
            around = self.moved(other, None, {})
            conditions.append([(f"{there} {sign} ", span_of(own)), *around])
            types.append((there, _text(around)))
        if not keys:
            raise Unfit
        calls, value = self._calls(select, scope)
        assert select.from_span is not None
        body: _Pieces = [("(SELECT ", select.span), *self._items([*keys, *calls]), (" FROM ", select.from_span)]
        body.append((select.from_span.of(self.text), select.from_span))
        body += self._where(local)
        body.append((" GROUP BY ", select.span))
        for index, (pieces, _) in enumerate(keys):
            body += [*([(", ", select.span)] if index else []), *pieces]
        added = ", ".join(f"{quote_name(self.alias)}.{quote_name(name)}" for _, name in calls)
        return self._as_relation([*body, (")", select.span)], conditions, types, value, added)

    def _equation(self, tokens: Sequence[Token], scope: Scope) -> tuple[Sequence[Token], str, Sequence[Token]]:
        """A condition as an expression over the subquery's own rows, and one over those around it."""
        sides = _sides(tokens)
        if sides is None:
            raise Unfit
        one, sign, other = sides
        for own, around in ((one, other), (other, one)):
            found = list(self.places(own, scope))
            if found and all(place.inner for place in found):
                if any(place.inner for place in self.places(around, scope)) or not any(chains(around)):
                    raise Unfit
                return own, sign, around
        raise Unfit

    def _calls(self, select: Select, scope: Scope) -> tuple[list[tuple[_Pieces, str]], _Pieces]:
        """The aggregates of the subquery, as columns; and what its value is made of them."""
        tokens = select.items[0].tokens
        calls = list(aggregate_calls(tokens))
        found: list[tuple[_Pieces, str]] = []
        value: _Pieces = [("(", span_of(tokens))]
        position = tokens[0].start
        for call in calls:
            inside = [token for token in tokens if call.name_span.end <= token.start < call.span.end]
            if not self.is_local([t for t in inside if t.upper not in ("DISTINCT", "FILTER", "WHERE")], scope):
                raise Unfit
            name = f"__v{self.number}_{len(found)}"
            there = f"{self._value_of()}.{quote_name(name)}"
            if call.name == "count":
                there = f"coalesce({there}, 0)"
            elif call.name.split(" ")[0] not in _NULL_OF_NOTHING or " within" in call.name:
                raise Unfit
            found.append(([(call.span.of(self.text), call.span)], name))
            value += [(self.text[position : call.span.start], Span(position, call.span.start)), (there, call.span)]
            position = call.span.end
        outside = [t for t in tokens if not any(c.span.start <= t.start < c.span.end for c in calls)]
        names = (chain for chain in names_in(tokens) if any(t.start == chain.span.start for t in outside))
        starts = {token.start: token for token in tokens}
        if not calls or any(not of_the_language(starts[chain.span.start]) for chain in names):
            raise Unfit
        return found, [*value, (self.text[position : tokens[-1].end] + ")", span_of(tokens))]

    def _value_of(self) -> str:
        """What a value of the join is qualified by: the relation that it is joined to, where it is joined below."""
        if _row_by_row(self.select, self.owner) and len(self.select.relations) == 1:
            return quote_name(self.alias)
        return _HERE  # told when it is known which

    # ---- what is certain

    def _refuse_nulls(self) -> None:
        """NOT IN is an anti join where neither side can be NULL: a condition on each of them says so."""
        inner, select = self.asked.inner, self.asked.inner.body
        if not isinstance(select, Select) or len(select.items) != 1 or select.items[0].star:
            raise Unfit
        item = select.items[0]
        inside = [each.tokens for each in (select.where, select.having) if each is not None]
        outside = [self.select.where.tokens] if self.select.where is not None else []
        if aggregates_in(select, inner) and not select.group:
            raise Unfit
        if not _never_null(item.tokens, inside) or not _never_null(self.asked.left, outside):
            raise Unfit

    def _check_types(self, joined: _Joined) -> None:
        """Refuse comparisons in which values of other types are made alike: what is equal then depends on the form."""
        if not joined.types:
            return
        assert self.select.from_span is not None
        source = f"{self.select.from_span.of(self.text)} CROSS JOIN {joined.probe}"
        pairs = [each for pair in joined.types for each in pair]
        types = types_of(pairs, source, self.root, self.binder, self.analyze)
        for one, other in zip(types[::2], types[1::2], strict=True):
            if one != other and not {one, other} <= set(INTEGERS):
                raise Unfit

    # ---- where it goes

    def _placed(self, joined: _Joined, word: str) -> Iterator[Edit]:
        select = self.select
        assert select.from_span is not None
        if not self.used or not all(self._live(_all(select.relations[index])) for index in self.used):
            raise Unfit
        by_row = _row_by_row(select, self.owner)
        alone = by_row and len(select.relations) == 1
        if alone or (by_row and len(self.used) > 1 and self.asked.kind != "value"):
            if any(each.join in (",",) or "NATURAL" in each.join for each in select.relations):
                raise Unfit
            at = Span(select.from_span.end, select.from_span.end)
            yield from self._join(joined, word, at)
            if word == _LEFT:
                yield from self._stars()
            qualifier = ""
        else:
            index = self._target()
            relation = select.relations[index]
            exposed = quote_name(relation.exposed or "")
            shown = "*" if word != _LEFT else f"{exposed}.*, {joined.added}"
            if word == _LEFT and any(item.star for item in select.items):
                raise Unfit
            start, end = Span(relation.span.start, relation.span.start), Span(relation.span.end, relation.span.end)
            yield Edit(start, f"(SELECT {shown} FROM ", relation.span)
            yield Edit(end, f" AS {exposed}", relation.span)
            yield from self._join(joined, word, end)
            yield Edit(end, ")" if relation.alias is not None else f") AS {exposed}", relation.span)
            qualifier = exposed
        yield from self._instead(joined, qualifier)

    def _join(self, joined: _Joined, word: str, at: Span) -> Iterator[Edit]:
        origin = self.asked.span
        yield Edit(at, f" {word} ", origin)
        yield from (Edit(at, text, place) for text, place in joined.relation)
        for index, condition in enumerate(joined.conditions):
            yield Edit(at, " AND " if index else " ON ", condition[0][1])
            yield from (Edit(at, text, place) for text, place in condition)

    def _instead(self, joined: _Joined, qualifier: str) -> Iterator[Edit]:
        """What stands where the subquery stood: its value, or nothing more to ask."""
        select, asked = self.select, self.asked
        if asked.kind == "value":
            whole = asked.shown and asked.span == span_of(asked.tokens)
            item = next((each for each in select.items if each.tokens is asked.tokens), None)
            if (
                item is not None
                and item.alias is None
                and (self.owner is not self.root or self.owner.body is not select)
            ):
                raise Unfit  # what Spark calls it would be another name
            yield Edit(asked.span, _text(joined.value).replace(_HERE, qualifier), asked.span)
            if whole and item is not None and item.alias is None:
                yield Edit(Span(item.span.end, item.span.end), f" AS {quote_name(f'__v{self.number}')}", item.span)
            return
        assert select.where is not None
        assert select.from_span is not None
        if asked.span == select.where.span:
            yield Edit(Span(select.from_span.end, select.where.span.end), "", asked.span)
        else:
            yield Edit(asked.span, "true", asked.span)

    def _stars(self) -> Iterator[Edit]:
        """* without the columns of what is joined."""
        for item in self.select.items:
            if item.star and item.tokens[0].text == "*":
                exposed = self.select.relations[0].exposed
                if exposed is None:
                    raise Unfit
                yield Edit(Span(item.span.start, item.span.start), f"{quote_name(exposed)}.", item.span)

    def _target(self) -> int:
        """The one relation whose rows the subquery is about, where asking it of them first is the same."""
        if len(self.used) != 1:
            raise Unfit
        (index,) = self.used
        relations = self.select.relations
        joins = [each.join for each in relations]
        inner = all(join in INNER for join in joins)
        lefts = index == 0 and all(join in INNER or join.startswith("LEFT") for join in joins)
        relation = relations[index]
        if not (inner or lefts) or not _plain(relation) or relation.exposed is None:
            raise Unfit
        return index


def _all(relation: Relation) -> list[Relation]:
    """A relation, or those that a subquery reads."""
    return [relation] if relation.subquery is None else list(relation.subquery.relations())


def _simple(query: Query) -> Select | None:
    """The SELECT of a query that filters rows, and nothing else that matters to whether there is one."""
    select = query.body
    if not isinstance(select, Select) or query.order is not None or not select.relations or select.lateral:
        return None
    if select.group or select.having or select.tail or select.subqueries or aggregates_in(select, query):
        return None
    computes = any(
        any(generators(item.tokens)) or any(token.upper == "OVER" for token in item.tokens) for item in select.items
    )
    return None if computes else select


def _row_by_row(select: Select, owner: Query) -> bool:
    """Whether each row of a SELECT comes from one row of each relation."""
    ranks = any(token.upper == "OVER" for item in select.items for token in item.tokens)
    if any(any(generators(item.tokens)) for item in select.items):
        ranks = True
    return not (
        select.group or select.having or select.distinct or select.tail or ranks or aggregates_in(select, owner)
    )


def _column(tokens: Sequence[Token]) -> bool:
    named = list(chains(tokens))
    return len(named) == 1 and named[0].span == span_of(tokens)


def _never_null(tokens: Sequence[Token], conditions: Iterable[Sequence[Token]]) -> bool:
    """Whether one of the conditions that must hold says so."""
    wanted = normal_form([*tokens]) + " is not null"
    for condition in conditions:
        for each in list(conjuncts(condition)):
            if normal_form(list(each)) == wanted:
                return True
    return False


def _bracketed(tokens: Sequence[Token], pieces: _Pieces) -> _Pieces:
    """Brackets around alternatives, so that AND binds them as a whole."""
    depth = 0
    for token in tokens:
        if token.kind == "symbol":
            depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0 and token.upper == "OR":
            return [("(", pieces[0][1]), *pieces, (")", pieces[-1][1])]
    return pieces


def _text(pieces: _Pieces) -> str:
    return "".join(text for text, _ in pieces)
