"""A join that is grouped, as a query of its own inside the one that groups it:

    SELECT a.k, sum(b.v) AS v FROM a JOIN b ON a.id = b.id WHERE b.v > 0 GROUP BY a.k

in other words:

    SELECT `__r0` AS `k`, sum(`__r1`) AS v
    FROM (SELECT `a`.`k` AS `__r0`, `b`.`v` AS `__r1` FROM a JOIN b ON a.id = b.id WHERE b.v > 0) AS `__records`
    GROUP BY `__r0`

So are rows of LATERAL VIEW. Where a name could come to mean something else, the query cannot be written like this
(`Unfit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import aggregates_in
from anabranch.plan.catalog import WINDOW_COLUMNS
from anabranch.plan.laterals import lateral_views
from anabranch.plan.scope import Unfit, span_of
from anabranch.plan.windows import ID, partitioned
from anabranch.plan.winners import LISTS, TEXTS, event_times, picked
from anabranch.sql.calls import chains
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.lexer import Span, Token, quote_name
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Item, Opaque, Query, Relation, Select, SetOperation, WindowSpec

#: The query inside, and its columns.
RECORDS, READ = "__records", "__r{}"

Body = Select | SetOperation | Query | Opaque


def relations_under(body: Body) -> Iterator[Relation]:
    """The relations that records come from, at whatever depth."""
    if isinstance(body, Query):
        yield from relations_under(body.body)
    elif isinstance(body, SetOperation):
        for operand in body.operands:
            yield from relations_under(operand)
    elif isinstance(body, Select):
        for relation in body.relations:
            yield relation
            if relation.subquery is not None:
                yield from relations_under(relation.subquery)
        for inner in body.subqueries:
            yield from relations_under(inner)


def check_plain(relation: Relation) -> None:
    """Refuse relations whose rows are others than those of the stream, table or query that they name."""
    for there, what in (
        (relation.alias_columns, "other names for the columns of a relation"),
        (relation.reshaped, "PIVOT, UNPIVOT or TABLESAMPLE"),
        (relation.refreshable, "a REFRESHABLE table"),
        (relation.current or relation.version is not None or relation.provisional, "a relation as of a version"),
        ("NATURAL" in relation.join, "a NATURAL JOIN"),
    ):
        if there:
            raise Unfit(what)
    window = relation.window
    if window is None:
        return
    if window.pairs != "none" or window.block:
        raise Unfit("windows of the newest rows of several streams")
    if not apart(window) and (window.kind != "session" or window.own is not None):
        raise Unfit("windows that depend on other rows around")


def apart(window: WindowSpec | None) -> bool:
    """Whether the windows of a row are its own, whatever comes after it. (How many rows came before it, of all or of
    its key, never changes.)"""
    return window is None or window.by_row or partitioned(window)


def using(relations: Sequence[Relation]) -> set[str]:
    """The columns that joins are USING."""
    return {name.lower() for relation in relations for name in joined_using(relation)}


def joined_using(relation: Relation) -> list[str]:
    """The columns that a relation is joined USING."""
    tokens = relation.condition_tokens
    return [token.name for token in tokens[1:] if token.is_name] if tokens and tokens[0].upper == "USING" else []


def is_shown(relation: Relation) -> bool:
    """Whether columns of a relation can be named: a semi or anti join shows none of what it only looks into."""
    return not {"SEMI", "ANTI"} & set(relation.join.split())


def columns_of(relation: Relation, binder: Binder) -> list[str]:
    """The names of the columns of a relation."""
    names = binder.columns_of(relation)
    if not names or not all(names):
        raise Unfit("a column without a name")
    if relation.window is not None:
        own = [column for column in WINDOW_COLUMNS if column != ID or binder.asks_for_id]
        names = [*(name for name in names if name.lower() not in own), *own]
    return names


def qualified(relation: Relation, column: str) -> str:
    return _qualified(relation.exposed, column)


def _qualified(name: str | None, column: str) -> str:
    return (f"{quote_name(name)}." if name is not None else "") + quote_name(column)


class Inside:
    """A SELECT over a query inside it that joins its relations."""

    def __init__(self, select: Select, owner: Query, binder: Binder, name: str = RECORDS) -> None:
        self.text = binder.text
        self.name = name
        self.select = select
        self.owner = owner
        self.outermost = owner is binder.query
        self.named = [each.exposed for each in select.relations]
        self.columns = [columns_of(each, binder) if is_shown(each) else [] for each in select.relations]
        for view in lateral_views(select, self.text):
            self.named.append(view.name)
            self.columns.append(list(view.certain))
        self.using = using(self.select.relations)
        self.aliases = {item.alias.lower(): item for item in self.select.items if item.alias is not None}
        self.read: dict[str, str] = {}  # columns of the relations, and their names inside
        streams = (binder.resolve(each) for each in relations_under(self.select) if each.kind == "name")
        self.times = event_times(binder.catalog, [each.target for each in streams if each is not None])

    def edits(self) -> Iterator[Edit]:
        select = self.select
        assert select.from_span is not None
        # Rows that are picked or listed are told apart by more than the columns that the query names.
        calls = aggregates_in(select, self.owner)
        if any(picked(call) is not None or call.name.split()[0] in (*LISTS, *TEXTS) for call in calls):
            self._read_all()
        for item in select.items:
            yield from self._item(item)
        for group in select.group:
            yield from self._names(group.tokens)
        behind = [select.having.tokens] if select.having is not None else []
        for tokens in [*behind, *([self.owner.order_tokens] if self.owner.body is select else [])]:
            yield from self._names(tokens, behind=True)
        where = "" if select.where is None else f" WHERE {select.where.span.of(self.text)}"
        span = Span(select.from_span.start, (select.where.span if select.where is not None else select.from_span).end)
        # The parts of the records come behind: there is always something to select.
        items = ", ".join(f"{column} AS {name}" for column, name in self.read.items()) or f"1 AS {READ.format(0)}"
        inner = f"SELECT {items} FROM {select.from_span.of(self.text)}{where}"
        yield Edit(span, f"({inner}) AS {quote_name(self.name)}", select.from_span)

    def _read_all(self) -> None:
        """Have all columns inside, event times first: they tell which of several rows is the first or the last."""
        found = [(each, name) for each, names in zip(self.named, self.columns, strict=True) for name in names]
        for relation, name in sorted(found, key=lambda each: each[1].lower() not in self.times):
            # Lists are in the order of the first event time, which is known by its name.
            keeps = not self.read and name.lower() in self.times
            self.read[_qualified(relation, name)] = quote_name(name) if keeps else self._next()

    def _next(self) -> str:
        return quote_name(READ.format(len(self.read)))

    def _item(self, item: Item) -> Iterator[Edit]:
        edits = list(self._names(item.tokens))
        yield from edits
        if item.alias is not None or not edits:
            return
        named = list(chains(item.tokens))
        if len(named) == 1 and named[0].span == span_of(item.tokens):
            yield Edit(Span(item.span.end, item.span.end), f" AS {quote_name(named[0].parts[-1])}", item.span)
        elif not self.outermost:  # what Spark calls it would be another name
            raise Unfit("a column without a name")

    def _names(self, tokens: Sequence[Token], *, behind: bool = False) -> Iterator[Edit]:
        """The columns of the query inside, in place of those of its relations. Behind groups, aliases come first."""
        if any(token.start == inner.span.start for token in tokens for inner in self.select.subqueries):
            raise Unfit("a subquery beside aggregates")
        if any(token.upper == "STRUCT" for token in tokens):  # its fields are called like what is in them
            raise Unfit("STRUCT beside a join")
        first = {token.start: index for index, token in enumerate(tokens)}
        for chain in names_in(tokens):
            parts, index = [part.lower() for part in chain.parts], first[chain.span.start]
            if behind and self._is_alias(parts):
                continue
            found = self._column(parts)
            if found is None:
                continue
            column, length = found
            if length == 1 and of_the_language(tokens[index]):
                raise Unfit(f"the name {tokens[index].text}, which may be a word of the language")
            name = self.read.setdefault(column, self._next())
            yield Edit(Span(chain.span.start, tokens[index + 2 * (length - 1)].end), name, chain.span)

    def _is_alias(self, parts: Sequence[str]) -> bool:
        """Whether a name behind the groups is one that the SELECT list gives: then it is not to be a column as well."""
        item = self.aliases.get(parts[0])
        named = {(each or "").lower() for each in self.named}
        if item is None or (len(parts) > 1 and parts[0] in named):
            return False
        owners = sum(parts[0] in (name.lower() for name in names) for names in self.columns)
        if owners == 1 and item.tokens[-1].name.lower() != parts[0]:
            raise Unfit(f"the name {parts[0]}, which is that of a column as well")
        return True

    def _column(self, parts: Sequence[str]) -> tuple[str, int] | None:
        """The column that a name begins with, and with how many of its parts; None for other words."""
        lower = [[name.lower() for name in names] for names in self.columns]
        named = [i for i, each in enumerate(self.named) if (each or "").lower() == parts[0]]
        if len(parts) > 1 and named:
            if parts[1] not in lower[named[0]]:
                raise Unfit(f"the name {'.'.join(parts)}, which is no column")
            return _qualified(self.named[named[0]], self.columns[named[0]][lower[named[0]].index(parts[1])]), 2
        owners = [i for i, names in enumerate(lower) if parts[0] in names]
        if len(owners) > 1:
            if parts[0] not in self.using:
                raise Unfit(f"the name {parts[0]}, which several relations have")
            return quote_name(parts[0]), 1
        if owners:
            return _qualified(self.named[owners[0]], self.columns[owners[0]][lower[owners[0]].index(parts[0])]), 1
        if named or len(parts) > 1:  # a whole row, or a column of a query around this one
            raise Unfit(f"the name {'.'.join(parts)}, which is no column")
        return None
