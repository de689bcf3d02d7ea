"""Records that a trigger counts one by one, where they come from several streams: those of joins and of UNION ALL.

    SELECT a.k, sum(b.v) AS v FROM a JOIN b ON a.id = b.id GROUP BY a.k TRIGGER COUNTING 3

is planned as

    SELECT `__r0` AS `k`, sum(`__r1`) AS v FROM
      (SELECT `a`.`k` AS `__r0`, `b`.`v` AS `__r1`, `a`._row_num AS `__part0_a`, `b`._row_num AS `__part1_b`
       FROM a JOIN b ON a.id = b.id) AS `__records`
    GROUP BY `__r0` TRIGGER COUNTING 3

so that each record is a row of the query inside, and knows the numbers of the rows that it is made of: it comes when the
last of them comes. Common table expressions, and views that show all records of their streams, are put in their places.
Whatever gives a row and takes it back, or makes one of several, has no such records, and the query stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from anabranch.errors import AnabranchError
from anabranch.plan.bind import Binder, Reference
from anabranch.plan.blocks import Analyze, aggregates_in
from anabranch.plan.catalog import ROW_NUM, WINDOW_COLUMNS, Catalog, Field, Rows, Stream, Table, View
from anabranch.plan.flat import read_names, without_unread
from anabranch.plan.keys import INNER, limited
from anabranch.plan.rewriting import rewritten
from anabranch.plan.scope import Unfit, span_of
from anabranch.plan.windows import ID, needs_numbers
from anabranch.plan.winners import LISTS, event_times, picked
from anabranch.sql.calls import aggregate_calls, chains, clock_calls, generators
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.cursor import MAX_QUERIES
from anabranch.sql.lexer import Span, Token, quote_name, tokenize
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import CreateView, Item, Opaque, Query, Relation, Select, SelectStatement, SetOperation

#: The query inside, and its columns: what the one around it reads, and the numbers of rows with the streams they are of.
RECORDS, READ, PART = "__records", "__r{}", "__part{}_{}"
_PART = re.compile(r"__part\d+_(.+)")

Body = Select | SetOperation | Query | Opaque


def parts_of(names: Sequence[str]) -> dict[str, str]:
    """The columns that hold the numbers of rows, and the ids of their streams.

    >>> parts_of(["__r0", "__part0_bids", "__part1_asks"])
    {'__part0_bids': 'bids', '__part1_asks': 'asks'}
    """
    return {name: found[1] for name in names if (found := _PART.fullmatch(name)) is not None}


def gives_records(select: Select) -> bool:
    """Whether a SELECT is one whose rows are counted."""
    return bool(parts_of([item.alias for item in select.items if item.alias is not None]))


def count_records(
    text: str, query: Query, catalog: Catalog, analyze: Analyze, fields: Sequence[Field]
) -> tuple[str, Query, tuple[str, ...]]:
    """The query with the records that its triggers count in queries of their own, and the ids of views in these.

    `fields` are the columns of the whole query: where it would have others, it stays as it is.
    """
    included: list[str] = []
    for index in range(len(_counted(query))):
        try:
            made = _Counting(text, query, index, catalog)
            _check(made, analyze, fields)
        except Unfit:
            continue
        text, query = made.text, made.query
        included += made.included
    return text, query, tuple(dict.fromkeys(included))


def _counted(query: Query) -> list[Query]:
    """The queries whose triggers count records."""
    found = [each for each in query.queries() if each.emission is not None and isinstance(each.body, Select)]
    return [each for each in found if each.emission is not None and (each.emission.counting or 1) > 1]


class _Counting:
    """One query with such a trigger, in other words."""

    def __init__(self, text: str, query: Query, index: int, catalog: Catalog) -> None:
        self.text = text
        self.query = query
        self.index = index
        self.catalog = catalog
        self.included: list[str] = []
        self._fit()
        before = read_names(query)
        for _ in range(MAX_QUERIES):
            edits = list(self._named(self.select))
            if not edits:
                break
            self._rewrite(edits)
        if len(self.select.relations) > 1:
            self._rewrite(_Around(self).edits())
        self._rewrite(_Parts(self).edits())
        self.text, self.query = without_unread(self.text, self.query, before)

    @property
    def owner(self) -> Query:
        return _counted(self.query)[self.index]

    @property
    def select(self) -> Select:
        body = self.owner.body
        assert isinstance(body, Select)
        return body

    @property
    def binder(self) -> Binder:
        return Binder(self.text, self.catalog, self.query)

    def _rewrite(self, edits: Iterator[Edit] | Sequence[Edit]) -> None:
        self.text, self.query = rewritten(self.text, self.query, list(edits))

    def _fit(self) -> None:
        select, owner = self.select, self.owner
        if not (select.group or aggregates_in(select, owner) or limited(owner)) or select.distinct:
            raise Unfit
        if select.lateral or select.tail or select.subqueries or any(item.star for item in select.items):
            raise Unfit
        if any(clock_calls(tokenize(select.span.of(self.text)))):
            raise Unfit
        if len(select.relations) == 1:
            reference = self.binder.resolve(select.relations[0])
            if reference is not None and reference.kind != "view":
                raise Unfit  # the rows of one stream are in their order anyway

    # ---- names of queries

    def _named(self, select: Select) -> Iterator[Edit]:
        """The queries behind the names of common table expressions and views, in their places."""
        binder = self.binder
        for relation in _relations(select):
            _check_plain(relation)
            if relation.kind != "name" or relation.name is None:
                continue
            reference = binder.resolve(relation)
            if reference is None:
                inner = self._cte(relation.name.last.lower())
            elif reference.kind == "view":
                inner = self._view(reference)
            else:
                continue
            if relation.window is not None:
                raise Unfit
            name = f" AS {quote_name(relation.exposed or '')}" if relation.alias is None else ""
            yield Edit(relation.span, f"({inner}){name}", relation.span)

    def _cte(self, name: str) -> str:
        named = [
            (inner, columns)
            for each in self.query.queries()
            for (cte, inner), columns in zip(each.ctes, each.cte_columns, strict=True)
            if cte.lower() == name
        ]
        if len(named) != 1 or named[0][1]:
            raise Unfit
        return named[0][0].span.of(self.text)

    def _view(self, reference: Reference) -> str:
        """The query of a view that shows each record that its streams ever made."""
        view = self.catalog.objects[reference.target]
        assert isinstance(view, View)
        if view.emit not in ("read", "feed") or view.stream or view.tables or view.start != "beginning":
            raise Unfit
        rows = self.catalog[view.rows] if view.rows is not None else None
        if isinstance(rows, Rows) and rows.statics:
            raise Unfit
        if any(self.catalog.stream(id).kept_since != 0 for id in self.catalog.sources_of(view)):
            raise Unfit
        (statement,) = parse(view.sql)
        assert isinstance(statement, CreateView | SelectStatement)
        query = statement.query
        taken = self.query.cte_names()
        if query.ctes or any(each.name is not None and each.name.last.lower() in taken for each in query.relations()):
            raise Unfit
        self.included.append(view.id)
        return query.body.span.of(statement.text) if query.order is None else ""


def _relations(body: Body) -> Iterator[Relation]:
    """The relations that records come from, at whatever depth."""
    if isinstance(body, Query):
        yield from _relations(body.body)
    elif isinstance(body, SetOperation):
        for operand in body.operands:
            yield from _relations(operand)
    elif isinstance(body, Select):
        for relation in body.relations:
            yield relation
            if relation.subquery is not None:
                yield from _relations(relation.subquery)


def _check_plain(relation: Relation) -> None:
    changed = relation.alias_columns or relation.reshaped or relation.refreshable or relation.current
    if changed or relation.version is not None or relation.provisional or "NATURAL" in relation.join:
        raise Unfit
    window = relation.window
    if window is not None and (not window.by_row or needs_numbers(window) or window.pairs != "none" or window.block):
        raise Unfit


def _using(relations: Sequence[Relation]) -> set[str]:
    """The columns that joins are USING."""
    tokens = [each.condition_tokens for each in relations if each.condition_tokens]
    return {token.name.lower() for each in tokens if each[0].upper == "USING" for token in each[1:] if token.is_name}


def _columns(relation: Relation, binder: Binder) -> list[str]:
    """The names of the columns of a relation."""
    names = binder.columns_of(relation)
    if not names or not all(names):
        raise Unfit
    if relation.window is not None:
        own = [column for column in WINDOW_COLUMNS if column != ID or binder.asks_for_id]
        names = [*(name for name in names if name.lower() not in own), *own]
    return names


def _qualified(relation: Relation, column: str) -> str:
    return (f"{quote_name(relation.exposed)}." if relation.exposed is not None else "") + quote_name(column)


class _Around:
    """The query around the records of a join, whose columns are those of the query inside."""

    def __init__(self, counting: _Counting) -> None:
        self.text = counting.text
        self.select = counting.select
        self.owner = counting.owner
        self.outermost = counting.owner is counting.query
        binder = counting.binder
        self.columns = [_columns(each, binder) for each in self.select.relations]
        self.using = _using(self.select.relations)
        self.aliases = {item.alias.lower(): item for item in self.select.items if item.alias is not None}
        self.read: dict[str, str] = {}  # columns of the relations, and their names inside
        streams = (binder.resolve(each) for each in _relations(self.select) if each.kind == "name")
        self.times = event_times(binder.catalog, [each.target for each in streams if each is not None])

    def edits(self) -> Iterator[Edit]:
        select = self.select
        assert select.from_span is not None
        calls = aggregates_in(select, self.owner)
        if any(picked(call) is not None or call.name in LISTS for call in calls):
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
        yield Edit(span, f"({inner}) AS {quote_name(RECORDS)}", select.from_span)

    def _read_all(self) -> None:
        """Have all columns inside, event times first: they tell which of several rows is the first or the last."""
        found = [
            (each, name)
            for each, names in zip(self.select.relations, self.columns, strict=True)
            for name in names
        ]  # fmt: skip
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
            raise Unfit

    def _names(self, tokens: Sequence[Token], *, behind: bool = False) -> Iterator[Edit]:
        """The columns of the query inside, in place of those of its relations. Behind groups, aliases come first."""
        if any(token.upper == "STRUCT" for token in tokens):  # its fields are called like what is in them
            raise Unfit
        first = {token.start: index for index, token in enumerate(tokens)}
        for chain in names_in(tokens):
            parts, index = [part.lower() for part in chain.parts], first[chain.span.start]
            found = self._column(parts)
            given = self.aliases.get(parts[0]) if behind else None
            if given is not None:
                if found is not None and [token.name.lower() for token in given.tokens[-1:]] != [parts[0]]:
                    raise Unfit
                continue
            if found is None:
                continue
            column, length = found
            if length == 1 and of_the_language(tokens[index]):
                raise Unfit
            name = self.read.setdefault(column, self._next())
            yield Edit(Span(chain.span.start, tokens[index + 2 * (length - 1)].end), name, chain.span)

    def _column(self, parts: Sequence[str]) -> tuple[str, int] | None:
        """The column that a name begins with, and with how many of its parts; None for other words."""
        relations = self.select.relations
        lower = [[name.lower() for name in names] for names in self.columns]
        named = [i for i, each in enumerate(relations) if (each.exposed or "").lower() == parts[0]]
        if len(parts) > 1 and named:
            if parts[1] not in lower[named[0]]:
                raise Unfit
            return _qualified(relations[named[0]], self.columns[named[0]][lower[named[0]].index(parts[1])]), 2
        owners = [i for i, names in enumerate(lower) if parts[0] in names]
        if len(owners) > 1:
            if parts[0] not in self.using:
                raise Unfit
            return quote_name(parts[0]), 1
        if owners:
            return _qualified(relations[owners[0]], self.columns[owners[0]][lower[owners[0]].index(parts[0])]), 1
        if named or len(parts) > 1:  # a whole row, or a column of a query around this one
            raise Unfit
        return None


class _Parts:
    """What adds the numbers of rows to the queries that records come from."""

    def __init__(self, counting: _Counting) -> None:
        self.counting = counting
        self.text = counting.text
        self.binder = counting.binder
        self.numbers = count()
        self.streams: dict[int, str] = {}  # the columns for streams, by the places of these in the text
        self.columns: dict[Span, list[str]] = {}  # those of queries

    def edits(self) -> Iterator[Edit]:
        (relation,) = self.counting.select.relations
        if relation.subquery is None:
            raise Unfit
        yield from self._edits(relation.subquery, self._found(relation.subquery))

    def _found(self, body: Body) -> list[str]:
        """The columns that a query gets; it must make a record, or none, of one row of each of its streams."""
        if isinstance(body, Query):
            if body.ctes or body.order is not None or body.emission is not None:
                raise Unfit
            return self._found(body.body)
        if isinstance(body, SetOperation):
            for one, other in zip(body.operands, body.operands[1:], strict=False):
                between = [token.upper for token in tokenize(self.text[one.span.end : other.span.start])[:-1]]
                if [word for word in between if word.isalpha()] != ["UNION", "ALL"]:
                    raise Unfit
            found = [column for operand in body.operands for column in self._found(operand)]
        elif isinstance(body, Select):
            found = self._of_select(body)
        else:
            raise Unfit
        self.columns[body.span] = found
        return found

    def _of_select(self, select: Select) -> list[str]:
        if select.distinct or select.group or select.having or select.tail or select.lateral or select.subqueries:
            raise Unfit
        for item in select.items:
            over = any(token.upper == "OVER" for token in item.tokens)
            if over or any(aggregate_calls(item.tokens)) or any(generators(item.tokens)):
                raise Unfit
        found: list[str] = []
        for index, relation in enumerate(select.relations):
            here = self._of_relation(relation)
            # A row of a static table may be missing where the rows on its left are there.
            joins = (*INNER, "LEFT JOIN", "LEFT OUTER JOIN") if not here and index and found else INNER
            if relation.join not in joins:
                raise Unfit
            found += here
        if not found:
            raise Unfit
        return found

    def _of_relation(self, relation: Relation) -> list[str]:
        _check_plain(relation)
        if relation.subquery is not None:
            return self._found(relation.subquery)
        reference = self.binder.resolve(relation)
        target = self.binder.catalog.objects.get(reference.target) if reference is not None else None
        if isinstance(target, Stream):
            name = PART.format(next(self.numbers), target.id)
            self.streams[relation.span.start] = name
            return [name]
        if not isinstance(target, Table) or target.asked:
            raise Unfit
        return []

    def _edits(self, body: Body, wanted: Sequence[str]) -> Iterator[Edit]:
        """Have a query give the columns that are wanted, those of others empty."""
        if isinstance(body, Query):
            yield from self._edits(body.body, wanted)
        elif isinstance(body, SetOperation):
            for operand in body.operands:
                yield from self._edits(operand, wanted)
        elif isinstance(body, Select):
            own = self.columns[body.span]
            sources: dict[str, str] = {}
            for relation in body.relations:
                if relation.subquery is not None:
                    yield from self._edits(relation.subquery, self._given(relation.subquery))
                elif relation.span.start in self.streams:
                    row = f"{quote_name(relation.exposed or '')}.{ROW_NUM}"
                    sources[self.streams[relation.span.start]] = row
            items = [
                f"{sources.get(name, quote_name(name)) if name in own else 'CAST(NULL AS BIGINT)'} AS {quote_name(name)}"
                for name in wanted
            ]
            for item in body.items[:-1]:
                if item.star:
                    yield Edit(item.span, self._starred(item, body), item.span)
            last = body.items[-1]
            shown = self._starred(last, body) if last.star else last.span.of(self.text)
            yield Edit(last.span, f"{shown}, {', '.join(items)}", last.span)

    def _given(self, body: Body) -> list[str]:
        return self._given(body.body) if isinstance(body, Query) else self.columns[body.span]

    def _starred(self, item: Item, select: Select) -> str:
        """The columns that * stands for, one by one: what is added is none of them."""
        if _using(select.relations):
            raise Unfit
        star = next(index for index, token in enumerate(item.tokens) if token.text == "*")
        qualifier = item.tokens[0].name.lower() if star else None
        found = [
            _qualified(relation, name)
            for relation in select.relations
            if qualifier is None or (relation.exposed or "").lower() == qualifier
            for name in _columns(relation, self.binder)
            if name.lower() not in item.left_out
        ]
        if not found:
            raise Unfit
        return ", ".join(found)


def _check(made: _Counting, analyze: Analyze, fields: Sequence[Field]) -> None:
    """Whether Spark takes the query like this, and gives it the columns that it had."""
    bound = made.binder.bind()
    schemas: dict[str, tuple[Field, ...]] = {}
    for placeholder, reference in bound.references.items():
        found = made.catalog.objects.get(reference.target)
        if not isinstance(found, Stream | Table | View):
            raise Unfit
        schemas[placeholder] = found.seen_as(placeholder) if isinstance(found, Stream) else found.fields
    try:
        types = [field.type for field in analyze(bound.text.text, schemas)]
    except AnabranchError:
        raise Unfit from None
    if types != [field.type for field in fields]:
        raise Unfit


def order_sql(parts: Mapping[str, str], starts: Mapping[str, Sequence[tuple[int, int]]]) -> list[str]:
    """What sorts records by when they came: the place of the last row of each, then the numbers of all.

    `starts` has, for each stream, the numbers of rows with which stretches of it begin, and the places of these among
    those of all streams.
    """
    places = [
        f"CASE WHEN {quote_name(name)} IS NOT NULL THEN named_struct('at', {place_sql(quote_name(name), starts[stream])},"
        f" 'row', {quote_name(name)}) END"
        for name, stream in parts.items()
    ]
    return [f"array_max(array({', '.join(places)}))", *(f"{quote_name(name)} NULLS LAST" for name in parts)]


def place_sql(row: str, starts: Sequence[tuple[int, int]]) -> str:
    """The place of the stretch that a row is in, by its number.

    >>> place_sql("n", [(0, 1), (5, 3), (9, 4)])
    'CASE WHEN n < 5 THEN 1 ELSE CASE WHEN n < 9 THEN 3 ELSE 4 END END'
    """
    if len(starts) == 1:
        return str(starts[0][1])
    middle = len(starts) // 2
    low, high = place_sql(row, starts[:middle]), place_sql(row, starts[middle:])
    return f"CASE WHEN {row} < {starts[middle][0]} THEN {low} ELSE {high} END"
