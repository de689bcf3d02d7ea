"""An aggregate over a query that only filters and projects, as one query:

    WITH t AS (SELECT lower(k) AS name, n FROM s WHERE n > 0) SELECT name, sum(n) AS n FROM t WHERE n < 9 GROUP BY name

is planned as

    SELECT (lower(k)) AS `name`, sum(n) AS n FROM s WHERE (n > 0) AND (n < 9) GROUP BY (lower(k))

so that it lives on partials of the stream, and not on its rows. Where a name could come to mean something else, and
where more than one stream is read, the query stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import aggregates_in
from anabranch.plan.catalog import WINDOW_COLUMNS, Catalog, Table
from anabranch.plan.rewriting import rewritten, rewritten_throughout
from anabranch.sql.calls import aggregate_calls, chains, generators
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.cursor import MAX_QUERIES
from anabranch.sql.lexer import Span, Token, quote_name
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Query, Relation, Select

_NOTHING = "SELECT 1"


def flat(text: str, query: Query, catalog: Catalog) -> tuple[str, Query]:
    """The query with such aggregates made one with what they read."""
    before = read_names(query)
    changed = False
    for _ in range(MAX_QUERIES):
        edits = _next(text, query, Binder(text, catalog, query))
        if not edits:
            break
        text, query = rewritten(text, query, edits)
        changed = True
    return without_unread(text, query, before) if changed else (text, query)


def without_unread(text: str, query: Query, before: set[str]) -> tuple[str, Query]:
    """The query with common table expressions that read nothing, where nobody reads them any more."""

    def unread(text: str, query: Query) -> list[Edit]:
        names = before - read_names(query)
        ctes = [(name.lower(), inner.span) for each in query.queries() for name, inner in each.ctes]
        return [Edit(span, _NOTHING) for name, span in ctes if name in names and span.of(text) != _NOTHING]

    return rewritten_throughout(text, query, unread)


def read_names(query: Query) -> set[str]:
    """The names of all relations that are read."""
    return {each.name.last.lower() for each in query.relations() if each.name is not None}


class _Unfit(Exception):
    """Why two queries cannot be one."""


def _next(text: str, query: Query, binder: Binder) -> list[Edit]:
    """The edits that make one aggregate and the query that it reads one; none if there is no such pair."""
    for select, owner in query.selects():
        below = _below(select, owner, query, binder)
        if below is None:
            continue
        try:
            return list(_Pair(text, select, owner, below, binder, owner is query).edits())
        except _Unfit:
            continue
    return []


def _below(select: Select, owner: Query, query: Query, binder: Binder) -> Select | None:
    """The SELECT that an aggregate reads row by row; None if it reads something else."""
    if len(select.relations) != 1 or not (select.group or aggregates_in(select, owner)):
        return None
    if select.lateral or select.tail or select.subqueries or any(item.star for item in select.items):
        return None
    inner = _passed(select.relations[0], query)
    return _row_by_row(inner, query, binder) if inner is not None else None


def _passed(relation: Relation, query: Query) -> Query | None:
    """The query that a relation is, as it stands."""
    if relation.window is not None or relation.watermarks or not _plain(relation):
        return None
    if relation.subquery is not None:
        return relation.subquery
    if relation.kind != "name" or relation.name is None or len(relation.name.parts) > 1:
        return None
    named = [
        (inner, columns)
        for each in query.queries()
        for (name, inner), columns in zip(each.ctes, each.cte_columns, strict=True)
        if name.lower() == relation.name.last.lower()
    ]
    return named[0][0] if len(named) == 1 and not named[0][1] else None


def _plain(relation: Relation) -> bool:
    changed = relation.alias_columns or relation.reshaped or relation.refreshable or relation.current
    return not changed and relation.version is None and not relation.provisional


def _row_by_row(query: Query, root: Query, binder: Binder) -> Select | None:
    """The SELECT of a query that makes a row, or none, of each row of one stream."""
    select = query.body
    if not isinstance(select, Select) or query.ctes or query.order is not None or query.emission is not None:
        return None
    if select.distinct or select.group or select.having or select.tail or select.lateral or select.subqueries:
        return None
    for item in select.items:
        if any(aggregate_calls(item.tokens)) or any(generators(item.tokens)) or _ranks(item.tokens):
            return None
    live = 0
    for relation in select.relations:
        if not _plain(relation) or (relation.window is not None and not relation.window.by_row):
            return None
        inner = _passed(relation, root)
        if inner is not None:
            if len(select.relations) > 1 or _row_by_row(inner, root, binder) is None:
                return None
            live += 1
            continue
        reference = binder.resolve(relation)
        if reference is None or reference.kind not in ("stream", "table"):
            return None
        target = binder.catalog.objects.get(reference.target)
        if isinstance(target, Table) and target.asked:
            return None
        live += reference.kind == "stream"
    return select if live == 1 else None


def _ranks(tokens: Sequence[Token]) -> bool:
    return any(token.upper == "OVER" for token in tokens)


@dataclass(frozen=True)
class _Column:
    """A column of the query below: what it is there, and whether its name means the same without that query."""

    text: str
    same: bool


class _Pair:
    """An aggregate, and the SELECT that it reads."""

    def __init__(self, text: str, above: Select, owner: Query, below: Select, binder: Binder, outermost: bool) -> None:
        self.text = text
        self.above = above
        self.owner = owner
        self.below = below
        self.binder = binder
        self.outermost = outermost
        self.name = (above.relations[0].exposed or "").lower()
        self.columns = dict(self._columns())
        self.hidden = {column.lower() for relation in below.relations for column in self._columns_of(relation)}
        self.relations = {(relation.exposed or "").lower() for relation in below.relations}
        self.aliases = {item.alias.lower() for item in above.items if item.alias is not None}

    def _columns(self) -> Iterator[tuple[str, _Column]]:
        """The columns of the query below, by their names in lower case."""
        alone = len(self.below.relations) == 1
        seen: set[str] = set()
        for item in self.below.items:
            if item.star:
                if not alone:
                    raise _Unfit
                found = [
                    (name, _Column(quote_name(name), True)) for name in self.binder.starred(item, self.below.relations)
                ]
            else:
                named = list(chains(item.tokens))
                plain = len(named) == 1 and named[0].span == item.expression
                name = item.alias or (named[0].parts[-1] if plain else "")
                written = item.expression.of(self.text)
                same = plain and alone and len(named[0].parts) <= 2 and named[0].parts[-1].lower() == name.lower()
                found = [(name, _Column(written if plain else f"({written})", same))]
            for name, column in found:
                if name.lower() in seen and name:
                    raise _Unfit
                seen.add(name.lower())
                if name:
                    yield name.lower(), column

    def _columns_of(self, relation: Relation) -> list[str]:
        names = self.binder.columns_of(relation)
        if not names or not all(names):
            raise _Unfit
        return [*names, *WINDOW_COLUMNS] if relation.window is not None else names

    def edits(self) -> Iterator[Edit]:
        select, below = self.above, self.below
        assert select.from_span is not None
        assert below.from_span is not None
        for item in select.items:
            yield from self._item(item.tokens, item.alias, item.span)
        behind = [*([select.having.tokens] if select.having is not None else [])]
        if self.owner.body is select:
            behind.append(self.owner.order_tokens)
        for tokens in behind:
            self._check_aliases(tokens)
            yield from self._names(tokens)
        for group in select.group:
            yield from self._names(group.tokens)
        yield Edit(select.from_span, below.from_span.of(self.text), below.from_span)
        if below.where is None:
            if select.where is not None:
                yield from self._names(select.where.tokens)
            return
        condition = f"({below.where.span.of(self.text)})"
        if select.where is None:
            yield Edit(Span(select.from_span.end, select.from_span.end), f" WHERE {condition}", below.where.span)
            return
        start, end = select.where.span.start, select.where.span.end
        yield Edit(Span(start, start), f"{condition} AND (", below.where.span)
        yield from self._names(select.where.tokens)
        yield Edit(Span(end, end), ")", select.where.span)

    def _item(self, tokens: Sequence[Token], alias: str | None, span: Span) -> Iterator[Edit]:
        edits = list(self._names(tokens))
        yield from edits
        named = list(chains(tokens))
        plain = len(named) == 1 and named[0].span == Span(tokens[0].start, tokens[-1].end)
        if alias is not None or not edits:
            return
        if plain:
            yield Edit(Span(span.end, span.end), f" AS {quote_name(named[0].parts[-1])}", span)
        elif not self.outermost:  # what Spark calls it would be another name
            raise _Unfit

    def _check_aliases(self, tokens: Sequence[Token]) -> None:
        """Behind the aggregates a name can be one that the SELECT list gives: then it must be that of a column."""
        given = {
            item.alias.lower()
            for item in self.above.items
            if item.alias is not None and [token.name.lower() for token in item.tokens] != [item.alias.lower()]
        }
        if any(chain.parts[0].lower() in given & set(self.columns) for chain in chains(tokens)):
            raise _Unfit

    def _names(self, tokens: Sequence[Token]) -> Iterator[Edit]:
        """The columns of the query below, in place of their names."""
        first = {token.start: token for token in tokens}
        structs = any(token.upper == "STRUCT" for token in tokens)  # whose fields are called like what is in them
        possible = {chain.span.start for chain in names_in(tokens)}
        for chain in chains(tokens):
            parts, token = [part.lower() for part in chain.parts], first[chain.span.start]
            qualified = len(parts) > 1 and parts[0] == self.name and parts[1] in self.columns
            name = parts[1] if qualified else parts[0]
            column = self.columns.get(name)
            if chain.span.start not in possible:
                continue
            if column is None and len(parts) > 1:  # of a query around this one
                if parts[0] in self.relations:
                    raise _Unfit
                continue
            if column is None:
                word = of_the_language(token) and name not in self.aliases
                if name in self.hidden and not word:
                    raise _Unfit
                continue
            if column.same and not qualified:
                continue
            if (of_the_language(token) and not qualified) or (structs and not column.same):
                raise _Unfit
            end = chain.span.end if len(parts) == 1 + qualified else self._end_of(tokens, chain.span, 1 + 2 * qualified)
            yield Edit(Span(chain.span.start, end), column.text, token.span)

    def _end_of(self, tokens: Sequence[Token], span: Span, length: int) -> int:
        """Where the first so many tokens of a name end."""
        start = next(index for index, token in enumerate(tokens) if token.start == span.start)
        return tokens[start + length - 1].end
