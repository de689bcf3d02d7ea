"""Joins with tables that live outside and are asked by key.

    FROM orders o LEFT JOIN customers c ON c.id = o.customer AND c.since < o.ts

becomes a node that keeps each row of orders with the list of the customers that it found, and the query above it:

    FROM `@v:node` o LEFT JOIN LATERAL inline(o._matches_0) c ON c.id = o.customer AND c.since < o.ts

Of a LEFT SEMI or ANTI JOIN the list is enough: whether one of it fits is asked row by row,

    FROM `@v:node` o JOIN LATERAL inline(CASE WHEN exists(o._matches_0, c -> c.id = o.customer) THEN array(...) END)

The table is asked by what `questions` finds in the conditions; Spark computes all of them over what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from anabranch.plan.bind import Binder, refuse
from anabranch.plan.catalog import ASKED, Ask, Catalog, Field, Stream, Table, View, leading_time
from anabranch.plan.inputs import INNER, Input, place_of
from anabranch.plan.lookup_nodes import asked_table
from anabranch.plan.questions import Found, Questions, shared_names
from anabranch.plan.windows import needs_numbers, partitioned
from anabranch.sql.calls import chains
from anabranch.sql.lexer import Span, Token, quote_name, tokenize
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Query, Relation, Select

if TYPE_CHECKING:
    from anabranch.plan.build import Build

LEFT = ("LEFT JOIN", "LEFT OUTER JOIN")
SEMI, ANTI = ("LEFT SEMI JOIN", "SEMI JOIN"), ("LEFT ANTI JOIN", "ANTI JOIN")
MATCHES = "_matches_{}"
HALF = "__half"


def refuse_others(text: str, catalog: Catalog, query: Query, joined: Sequence[Span]) -> None:
    """A table that is asked by key is joined, and nothing else."""
    binder = Binder(text, catalog, query)
    for relation in query.relations():
        table = asked_table(binder, relation)
        if table is not None and relation.span not in joined:
            raise refuse(text, relation.span, f"{table.name} is asked by key: it can only be joined", _how(table))


def _how(table: Table) -> str:
    return f"as in FROM s JOIN {table.name} t ON t.id = s.id; or load it: CREATE TABLE ... lookup => 'never'"


def place_lookups(build: Build, select: Select, inputs: Sequence[Input]) -> None:
    """Put a node in place of each relation whose rows ask tables, and lists of matches in place of the tables."""
    known = {index: each for index, each in enumerate(select.relations) if build.node_of(each) is None}
    tables = {index: asked_table(build.binder, each) for index, each in known.items()}
    asked = {index: table for index, table in tables.items() if table is not None}
    if not asked:
        return
    placing = _Placing(build, select, inputs)
    by_live: dict[int, list[int]] = {}
    for index, table in asked.items():
        placing.check(index, table)
        by_live.setdefault(placing.asker(index, table), []).append(index)
    stars = list(placing.star_edits(asked))  # before hidden columns come in
    for live, indexes in by_live.items():
        placing.replace(live, {index: asked[index] for index in indexes})
    build.edits += stars


class _Placing:
    def __init__(self, build: Build, select: Select, inputs: Sequence[Input]) -> None:
        self.build = build
        self.text = build.text
        self.select = select
        self.inputs = inputs
        self.questions = Questions(build, select, inputs)
        self.found: dict[int, Found] = {}

    # ---- what is asked by what

    def check(self, index: int, table: Table) -> None:
        relation = self.select.relations[index]
        joins = (*INNER, *LEFT, *SEMI, *ANTI)
        if index == 0 or relation.join not in joins or self.select.lateral or relation.reshaped:
            raise refuse(
                self.text,
                relation.span,
                f"{table.name} is asked by key, for the rows of a stream or view on its left",
                f"join it as in FROM s LEFT JOIN {table.name} t ON t.id = s.id",
            )
        if relation.version is not None or relation.window is not None:
            raise refuse(self.text, relation.span, f"{table.name} is asked as it is now", "leave out what is around it")

    def asker(self, index: int, table: Table) -> int:
        """The relation whose rows ask a table."""
        self.found[index] = self.questions.find(index, table)
        return self.found[index].live

    # ---- the node

    def replace(self, live: int, tables: dict[int, Table]) -> None:
        """Have the rows of a relation ask tables."""
        build, relation = self.build, self.select.relations[live]
        if (
            relation.alias_columns
            or relation.reshaped
            or (relation.window is not None and needs_numbers(relation.window))
        ):
            raise refuse(
                self.text,
                relation.span,
                "the rows of this relation ask a table, and have to be as they came",
                "put what is around them into a query: FROM (SELECT ...) t JOIN ...",
            )
        exposed = relation.exposed or "__rows"
        asked = []
        for number, (index, table) in enumerate(tables.items()):
            found = self.found[index]
            asked.append(
                Ask(
                    table.id,
                    exposed,
                    tuple(pair.expression.of(self.text) for pair in found.pairs),
                    tuple(_named(table, pair.column) for pair in found.pairs),
                    tuple(field.name for field in self._needed(index, table)),
                    MATCHES.format(number),
                    tuple(pair.sign for pair in found.pairs) if found.types else (),
                    found.types,
                )
            )
        node = self._node(relation, tuple(asked), {f"@t:{table.id}": table.id for table in tables.values()}, tables)
        name = build.put(relation, node)
        for (index, table), ask in zip(tables.items(), asked, strict=True):
            other = self.select.relations[index]
            build.tree.joined.append(other.span)
            if other.join in (*SEMI, *ANTI):
                build.edits += self._half(index, f"{quote_name(name)}.{quote_name(ask.into)}")
                continue
            alias = "" if other.alias is not None else f" AS {quote_name(other.exposed or table.name)}"
            build.edits.append(Edit(other.span, f"LATERAL inline({quote_name(name)}.{quote_name(ask.into)}){alias}"))
            if other.condition is not None and other.condition_tokens[0].upper == "USING":
                build.edits.append(Edit(other.condition, "ON true"))

    def _half(self, index: int, matches: str) -> Iterator[Edit]:
        """What stands for a SEMI or ANTI JOIN: one row for each that has a match, or has none; it shows nothing."""
        relation = self.select.relations[index]
        if relation.condition is None or relation.alias_columns:
            raise refuse(self.text, relation.span, "a table that is asked is joined on its own columns", "say ON")
        holds = f"size({matches}) > 0"  # the columns of USING were asked by, all of them
        if relation.condition_tokens[0].upper == "ON":
            holds = f"exists({matches}, {quote_name(relation.exposed or '')} -> {self._over_match(index)})"
        sign = "" if relation.join in SEMI else "NOT "
        row = f"CASE WHEN {sign}coalesce({holds}, false) THEN array(named_struct('{HALF}', true)) END"
        yield Edit(self._words(relation), "JOIN")
        yield Edit(relation.span, f"LATERAL inline({row}) AS `{HALF}_{index}`")
        if relation.alias_span is not None:
            yield Edit(relation.alias_span, "")
        yield Edit(relation.condition, "ON true")

    def _over_match(self, index: int) -> str:
        """The condition of a join with the columns of the table as those of a match that has its name."""
        tokens = self.select.relations[index].condition_tokens[1:]
        exposed = quote_name(self.select.relations[index].exposed or "")
        bare = [
            Edit(Span(each.span.start, each.span.start), f"{exposed}.")
            for each in chains(tokens)
            if len(each.parts) == 1 and (place_of((each.parts[0].lower(),), self.inputs) or (None,))[0] == index
        ]
        return splice(self.text, Span(tokens[0].start, tokens[-1].end), bare).text

    def _words(self, relation: Relation) -> Span:
        """The words of a join in front of its relation."""
        before = [token for token in tokenize(self.text) if token.end <= relation.span.start]
        words = len(relation.join.split())
        return Span(before[-words].start, before[-1].end)

    def _node(
        self, relation: Relation, asked: tuple[Ask, ...], tables: dict[str, str], named: dict[int, Table]
    ) -> View:
        build, tree = self.build, self.build.tree
        below = build.node_of(relation)
        streams: dict[str, str] = {}
        views: dict[str, str] = {}
        known: Stream | View
        if below is not None:
            placeholder = f"@v:{below.id}"
            views[placeholder] = below.id
            known = below
        else:
            reference = build.binder.resolve(relation)
            assert reference is not None
            if not reference.plain:
                raise refuse(self.text, relation.span, "a view reads streams and views as they are", "leave AS OF out")
            placeholder = reference.placeholder
            found = tree.catalog.objects[reference.target]
            assert isinstance(found, Stream | View)
            (streams if isinstance(found, Stream) else views)[placeholder] = found.id
            known = found
        types = {id: {field.name: field.type for field in table.fields} for id, table in _by_id(named).items()}
        lists = [
            Field(
                ask.into,
                f"array<struct<{','.join(f'{quote_name(name)}:{types[ask.table][name]}' for name in ask.columns)}>>",
            )
            for ask in asked
        ]
        if isinstance(known, Stream):
            times, clock = ({known.time: 1} if known.time is not None else {}), "event"
        else:
            times, clock = dict(known.settles), known.clock
        number = len(tree.nodes) + 1
        view = View(
            tree.world.new_id(f"{tree.id}_{number}"), f"{tree.name}/{number}",
            f"{relation.exposed or known.name} with {', '.join(table.name for table in named.values())}",
            f"SELECT * FROM {quote_name(placeholder)}", (*known.fields, Field(ASKED, "bigint"), *lists), (), None,
            streams, tables, views, "feed", tree.start, node="lookup", owner="?", times=times, clock=clock, asks=asked,
            time=leading_time(known.fields, times),
        )  # fmt: skip
        tree.nodes.append(view)
        return view

    def _needed(self, index: int, table: Table) -> list[Field]:
        """The columns of a table that the query can see. Those of USING are there once, on the left."""
        using = shared_names(self.select.relations[index])
        there = [field for field in table.fields if field.name.lower() not in using]
        if not there:
            raise refuse(
                self.text,
                self.select.relations[index].condition or self.select.relations[index].span,
                f"{table.name} has no column besides these",
                f"write the condition with ON: ON {table.name}.id = s.id",
            )
        span = self.build.query.span
        tokens = [token for token in tokenize(self.text) if span.start <= token.start < span.end]
        for first, dot, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
            of_table = first.is_name and dot.text == "." and first.name.lower() == self.inputs[index].exposed
            if using and of_table and (name.text == "*" or (name.is_name and name.name.lower() in using)):
                raise refuse(
                    self.text,
                    Span(first.start, name.end),
                    f"the columns of USING are not kept for {table.name}, which is asked by them",
                    f"write the condition with ON: ON {first.text}.{using[0]} = s.{using[0]}",
                )
        if any(True for _ in _stars(tokens)) or self.select.relations[index].alias_columns:
            return there
        names = {token.name.lower() for token in tokens if token.is_name}
        return [field for field in there if field.name.lower() in names] or there[:1]

    # ---- *

    def star_edits(self, asked: dict[int, Table]) -> Iterator[Edit]:
        """What * stands for, column by column: the lists of matches are not among them."""
        for item in self.select.items:
            texts = [token.text for token in item.tokens]
            if texts == ["*"]:
                yield Edit(item.span, ", ".join(self._everything()))
            elif len(texts) == 3 and texts[1:] == [".", "*"]:
                name = item.tokens[0].name.lower()
                index = next((i for i, each in enumerate(self.inputs) if each.exposed == name), None)
                if index is not None:
                    columns = self._columns(index)
                    yield Edit(item.span, ", ".join(self._qualified(index, column) for column in columns))
            elif any(True for _ in _stars(item.tokens)):
                names = ", ".join(table.name for table in asked.values())
                raise refuse(
                    self.text, item.span, f"* inside an expression, beside {names}, which is asked by key",
                    "name the columns",
                )  # fmt: skip

    def _everything(self) -> Iterator[str]:
        relations = self.select.relations
        shared = [name for index in range(len(self.inputs)) for name in shared_names(relations[index])]
        for name in dict.fromkeys(shared):
            owner = next(index for index, each in enumerate(self.inputs) if name in each.columns)
            yield self._qualified(owner, name)
        for index in range(len(self.inputs)):
            if relations[index].join in (*SEMI, *ANTI):
                continue
            for name in self._columns(index):
                if name.lower() not in shared:
                    yield self._qualified(index, name)

    def _columns(self, index: int) -> list[str]:
        relation = self.select.relations[index]
        fields = self.build.fields_of(relation)
        if not fields:
            raise refuse(self.text, relation.span, "the columns of this are not known here", "name them in place of *")
        names = [field.name for field in fields]
        if relation.window is not None:
            text = f"SELECT * FROM {self.build.binder.windowed('`@rows`', relation, fields)}"
            names = [each.name for each in self.build.tree.world.analyze(text, {"@rows": fields})]
        if relation.alias_columns:
            names = [*relation.alias_columns, *names[len(relation.alias_columns) :]]
        return names

    def _qualified(self, index: int, column: str) -> str:
        exposed = self.select.relations[index].exposed
        return f"{quote_name(exposed)}.{quote_name(column)}" if exposed else quote_name(column)


def _named(table: Table, column: str) -> str:
    return next(field.name for field in table.fields if field.name.lower() == column)


def _by_id(tables: dict[int, Table]) -> dict[str, Table]:
    return {table.id: table for table in tables.values()}


def _stars(tokens: Sequence[Token]) -> Iterator[Token]:
    """The * that stand for columns: not those that multiply, and not that of count(*).

    >>> [token.start for token in _stars(tokenize("a * 2, count(*), t.*, struct(*)"))]
    [19, 29]
    """
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        if token.text != "*" or token.kind != "symbol":
            continue
        counted = before is not None and before.text == "(" and index > 1 and tokens[index - 2].upper == "COUNT"
        if not counted and (before is None or before.text in ("(", ",", ".") or before.upper in ("SELECT", "DISTINCT")):
            yield token
