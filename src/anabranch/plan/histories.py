"""The history of a query: its rows with the moments at which they come and go, as a query of its own.

    SELECT a.k, b.v FROM a LEFT JOIN b ON a.id = b.id

has at every moment the rows that it would have over the rows of `a` and `b` that came until then. Its history has all
of these rows, with columns __from and __to (see `intervals`). It is made operator by operator, each of which makes a
history of histories; that of a stream has the places of its rows in the order in which they came. The expressions stay
the user's text: each relation is replaced by its history under the same name. Where several relations make rows
together that are looked at again, as in an outer join, `a.k` is `__0_k` there: the column k of the first relation.

What has no such history raises `Unfit`, with what it is in plain words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze, aggregates_in
from anabranch.plan.catalog import CAME, Catalog, Field, Stream, Table
from anabranch.plan.grouped import Groups
from anabranch.plan.inside import Body, apart, check_plain, columns_of, using
from anabranch.plan.intervals import (
    BEFORE,
    EVERY,
    FROM,
    MOVED,
    OPEN,
    TO,
    History,
    alone,
    both,
    compared,
    compared_all,
    distinct,
    first_rows,
    in_order,
    in_stretches,
    met,
    names,
    pairs,
    tidied,
    union_all,
    with_all,
)
from anabranch.plan.keys import INNER, limited, with_hidden
from anabranch.plan.rewriting import rewritten
from anabranch.plan.scope import Unfit, span_of
from anabranch.plan.sides import Rows, Side
from anabranch.plan.stretched import has_windows, over_stretches, stretched
from anabranch.plan.ties import Places, break_ties
from anabranch.plan.winners import depends_on_order, event_times
from anabranch.sql.calls import chains, clock_calls, generators, split_commas, volatile_calls
from anabranch.sql.columns import names_in
from anabranch.sql.lexer import Span, Token, quote_name, tokenize
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Item, Opaque, Query, Relation, Select, SelectStatement, SetOperation

#: Joins with a static table that leave a row of the relations before it as it is, or leave it out.
BESIDE = ("LEFT JOIN", "LEFT OUTER JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "SEMI JOIN", "ANTI JOIN")
#: What can stand behind a key of ORDER BY.
_DIRECTIONS = ("ASC", "DESC", "NULLS")


def history(text: str, body: Body, binder: Binder, analyze: Analyze | None = None) -> History:
    """The history of a query, or of a part of one: nothing in it goes and comes again at the same moment.

    Which rows are first and last, and the order of lists, is what it is in every answer: by event time, and then by all
    columns. What these are is for Spark to say (`analyze`).
    """
    if analyze is not None:
        text, body, binder = _settled(body.span.of(text), binder.catalog, analyze)
    return tidied(_Histories(text, binder).of(body), EVERY)


def moved_only(text: str) -> str:
    """A history without the rows that are there from the moment -1 on, and stay; some of them may be left in."""
    before, every, behind = text.rpartition(f"({EVERY})")
    return f"{before}({MOVED}){behind}" if every else text


def _settled(text: str, catalog: Catalog, analyze: Analyze) -> tuple[str, Query, Binder]:
    """A query whose aggregates that pick rows, or list them, say in which order."""
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    query = statement.query
    calls = [call for select, owner in query.selects() for call in aggregates_in(select, owner)]
    ordered = any(limited(each) for each in query.queries()) or any(has_windows(each) for each, _ in query.selects())
    if ordered or any(depends_on_order(call) for call in calls):
        references = Binder(text, catalog, query).bind().references
        schemas = {each: _fields(catalog, found.target) for each, found in references.items()}
        places = Places(
            bind=lambda span: Binder(text, catalog, query).bind(span).text.text,
            analyze=lambda part: analyze(part, schemas),
            blocks={},
            times=event_times(catalog, [each.target for each in references.values()]),
        )
        text, query = rewritten(text, query, break_ties(text, query, places))
    return text, query, Binder(text, catalog, query)


def _fields(catalog: Catalog, id: str) -> tuple[Field, ...]:
    found = catalog.objects.get(id)
    if not isinstance(found, Stream | Table):
        raise Unfit("something that is neither a stream nor a table")
    return found.fields


class _Histories:
    """Makes histories of the parts of one query."""

    def __init__(self, text: str, binder: Binder) -> None:
        self.text = text
        self.binder = binder

    def of(self, body: Body) -> History:
        if isinstance(body, Query):
            if body.ctes:
                raise Unfit("a common table expression")
            if body.emission is not None:
                raise Unfit("a query that says when its results come out")
            if limited(body):
                return self._limited(body)
            return self._select(body.body, body) if isinstance(body.body, Select) else self.of(body.body)
        if isinstance(body, SetOperation):
            return self._set_operation(body)
        if isinstance(body, Select):
            return self._select(body, None)
        return _always(f"SELECT *, {BEFORE} AS {FROM}, {OPEN} AS {TO} FROM {body.span.of(self.text)}", body)

    # ---- set operations

    def _set_operation(self, body: SetOperation) -> History:
        """The operands from left to right; INTERSECT binds more closely than the others."""
        words = [
            " ".join(t.upper for t in tokenize(self.text[one.span.end : other.span.start])[:-1] if t.text not in "()")
            for one, other in pairwise(body.operands)
        ]
        found = [self.of(operand) for operand in body.operands]
        if len({len(each.columns) for each in found}) != 1:
            raise Unfit("queries with different numbers of columns")
        for first in (True, False):
            made, rest = [found[0]], []
            for word, operand in zip(words, found[1:], strict=True):
                if word.startswith("INTERSECT") == first:
                    made[-1] = _operation(word, made[-1], operand)
                else:
                    made.append(operand)
                    rest.append(word)
            found, words = made, rest
        return found[0]

    # ---- LIMIT

    def _limited(self, query: Query) -> History:
        """The first rows in their order. What they are sorted by is shown with them, if it is not anyway."""
        order, count, skip = _order(query)
        keys: list[str] = []
        hidden: list[tuple[str, str]] = []
        for tokens in order:
            end = next((i for i, token in enumerate(tokens) if i and token.upper in _DIRECTIONS), len(tokens))
            column = self._shown_key(query.body, tokens[:end])
            if column is None:
                column = f"__o{len(hidden)}"
                hidden.append((column, self._hidden_key(query.body, tokens[:end])))
            keys.append(" ".join([quote_name(column), *(token.text for token in tokens[end:])]))
        made, body = self, query.body
        if hidden:
            assert isinstance(body, Select)
            text, body = rewritten(self.text, Query(body.span, body), with_hidden(body, hidden))
            made = _Histories(text, Binder(text, self.binder.catalog, body))
        found = made.of(body)
        columns = found.columns[: len(found.columns) - len(hidden)]
        if not keys:
            raise Unfit("LIMIT, which depends on the order of rows")
        return first_rows(found, ", ".join(keys), count, skip, columns)

    def _shown_key(self, body: Body, tokens: Sequence[Token]) -> str | None:
        """The column of a query that a key of its ORDER BY names, by its name or its number."""
        shown = self._columns(body)
        if len(tokens) == 1 and tokens[0].text.isdigit():
            return shown[int(tokens[0].text) - 1] if 0 < int(tokens[0].text) <= len(shown) else None
        named = list(chains(tokens))
        if len(named) == 1 and named[0].span == span_of(tokens) and len(named[0].parts) == 1:
            return next((column for column in shown if column.lower() == named[0].parts[0].lower()), None)
        return None

    def _hidden_key(self, body: Body, tokens: Sequence[Token]) -> str:
        """A key of ORDER BY that is no column, with what the names of the SELECT list stand for in their places."""
        if not isinstance(body, Select) or body.distinct:
            raise Unfit("ORDER BY something that is no column of the query")
        given = {item.alias.lower(): item for item in body.items if item.alias is not None}
        edits = [
            Edit(chain.span, f"({item.expression.of(self.text)})")
            for chain in names_in(tokens)
            if len(chain.parts) == 1 and (item := given.get(chain.parts[0].lower())) is not None
        ]
        return splice(self.text, span_of(tokens), edits).text

    def _columns(self, body: Body) -> list[str]:
        """The names of the columns of a query."""
        if isinstance(body, Query):
            return self._columns(body.body)
        if isinstance(body, SetOperation):
            return self._columns(body.operands[0])
        if isinstance(body, Select):
            return [name for _, name in self._shown(body)]
        raise Unfit("VALUES")

    # ---- SELECT

    def _select(self, select: Select, owner: Query | None) -> History:
        self._check(select)
        if not select.relations:
            shows = list(self._shown(select))
            text = f"SELECT {_listed(shows)}, {BEFORE} AS {FROM}, {OPEN} AS {TO}"
            return History(text, _apart([name for _, name in shows]), appends=True, tidy=True)
        calls = aggregates_in(select, owner or Query(select.span, select))
        grouped = bool(select.group or calls or select.having)
        if grouped and any(item.star for item in select.items):
            raise Unfit("* beside aggregates")
        if has_windows(select):
            rows = self._rows(select)
            found = stretched(self.text, select, rows, list(self._shown(select, rows)), grouped=grouped)
        elif grouped:
            rows = self._rows(select)
            items = [(item, _name(item)) for item in select.items]
            found = Groups(self.text, select, rows.history, rows.name, rows.known, rows.edits, items).history()
        elif self._row_by_row(select):
            found = self._direct(select, list(self._shown(select)))
        else:
            rows = self._rows(select)
            shows = list(self._shown(select, rows))
            text = f"SELECT {_listed(shows)}, {FROM}, {TO} FROM ({rows.history.text}) AS {quote_name(rows.name)}"
            columns, appends = _apart([name for _, name in shows]), rows.history.appends
            found = History(text, columns, appends, tidy=appends)
        return distinct(found) if select.distinct else found

    def _check(self, select: Select) -> None:
        """Refuse what depends on more than the rows that are there."""
        if select.subqueries:
            raise Unfit("a subquery in an expression")
        if not select.relations and (select.where or select.having or select.group or select.distinct):
            raise Unfit("a SELECT without FROM, but with a condition")
        places = [item.tokens for item in select.items] + [each.tokens for each in select.group]
        places += [each.tokens for each in (select.where, select.having) if each is not None]
        places += [each.condition_tokens for each in select.relations]
        places += [each.tokens for each in select.tail_expressions]
        for tokens in places:
            if any(clock_calls(tokens)):
                raise Unfit("a function of the clock")
            if any(volatile_calls(tokens)):
                raise Unfit("a function of chance")
        if any(relation.lateral for relation in select.relations):
            raise Unfit("a LATERAL subquery")

    def _shown(self, select: Select, rows: Rows | None = None) -> Iterator[tuple[str, str]]:
        """The expressions of a SELECT list, * spelled out, and the names that they have."""
        for item in select.items:
            if not item.star:
                edits = [*rows.edits(item.tokens), *over_stretches(item.tokens)] if rows is not None else ()
                yield splice(self.text, span_of(item.tokens), edits).text, _name(item)
                continue
            if using(select.relations) or select.lateral:
                raise Unfit("* in a join with USING, or with LATERAL VIEW")
            star = next(index for index, token in enumerate(item.tokens) if token.text == "*")
            qualifier = item.tokens[0].name.lower() if star else None
            for side in self._sides(select):
                if qualifier is None or side.name.lower() == qualifier:
                    for (own, there), column in zip(side.items, side.columns, strict=True):
                        if column.lower() not in item.left_out:
                            yield own if rows is None else quote_name(there), column

    def _sides(self, select: Select) -> list[Side]:
        """The relations whose columns a SELECT list can name."""
        named = [each for each in select.relations if not {"SEMI", "ANTI"} & set(each.join.split())]
        return [self._side(each, select) for each in named]

    def _side(self, relation: Relation, select: Select) -> Side:
        columns = tuple(columns_of(relation, self.binder))
        return Side(self._exposed(relation, select), columns, select.relations.index(relation))

    def _read(self, side: Side, select: Select) -> Side:
        """A relation with the columns that a SELECT may read of it."""
        words = {token.name.lower() for token in tokenize(select.span.of(self.text)) if token.is_name}
        if any(item.star for item in select.items):
            return side
        found = tuple(each for each in side.columns if each.lower() in words)
        return replace(side, columns=found or side.columns[:1])

    def _exposed(self, relation: Relation, select: Select) -> str:
        return relation.exposed or f"__h{select.relations.index(relation)}"

    # ---- FROM and WHERE

    def _row_by_row(self, select: Select) -> bool:
        """Whether each row is made of one row of each relation that is not static, and never of none."""
        live = False
        for relation in select.relations:
            here = self.binder.is_live(relation)
            if relation.join not in (INNER if here or not live else (*INNER, *BESIDE)):
                return False
            live = live or here
        return True

    def _direct(self, select: Select, items: Sequence[tuple[str, str]]) -> History:
        """A SELECT over its own FROM and WHERE clauses, with the histories of its relations in their places."""
        assert select.from_span is not None
        where = f"({select.where.span.of(self.text)})" if select.where is not None else ""
        first = select.relations[0]
        if len(select.relations) == 1 and not select.lateral and self._is_plain(first):
            name = quote_name(self._exposed(first, select))
            return self._stream(first.span, name, items, f" WHERE {where}" if where else "")
        edits: list[Edit] = []
        froms: list[str] = []
        tos: list[str] = []
        for relation in select.relations:
            name = quote_name(self._exposed(relation, select))
            as_name = f" AS {name}" if relation.alias is None else ""
            if not self.binder.is_live(relation):
                self._check_static(relation)
                edits.append(Edit(Span(relation.span.end, relation.span.end), as_name))
                continue
            found = self._relation(relation, name)
            edits.append(Edit(relation.span, f"({found.text}){as_name}"))
            froms.append(f"{name}.{FROM}")
            tos += [] if found.appends else [f"{name}.{TO}"]
        comes, goes, meet = both(froms, tos)
        conditions = " AND ".join(each for each in (where, meet) if each)
        source = splice(self.text, select.from_span, edits).text
        text = f"SELECT {_listed(items)}, {comes} AS {FROM}, {goes} AS {TO} FROM {source}"
        text += f" WHERE {conditions}" if conditions else ""
        return History(text, _apart([name for _, name in items]), not tos, not tos)

    def _rows(self, select: Select) -> Rows:
        """FROM and WHERE as one relation."""
        if select.lateral:
            raise Unfit("LATERAL VIEW beside an aggregate or an outer join")
        if len(select.relations) == 1:
            (side,) = self._sides(select)
            items = [(f"{quote_name(side.name)}.{quote_name(column)}", column) for column in side.columns]
            return Rows(self._direct(select, items), side.name, [side], joined=False)
        if self._row_by_row(select) and not using(select.relations):
            sides = [self._read(side, select) for side in self._sides(select)]
            found = self._direct(select, [item for side in sides for item in side.items])
            return Rows(found, "__rows", sides, joined=True)
        return self._joined(select)

    def _joined(self, select: Select) -> Rows:
        """Joins of whatever kind, one after the other."""
        first, *others = select.relations
        side = self._read(self._side(first, select), select)
        rows = Rows(self._side_rows(first, side), "__rows", [side], joined=True)
        for relation in others:
            rows = self._join(rows, relation, select)
        if select.where is not None:
            where = splice(self.text, select.where.span, rows.edits(select.where.tokens)).text
            columns = f"{names(rows.history.columns)}, {FROM}, {TO}"
            text = f"SELECT {columns} FROM ({rows.history.text}) AS `__rows` WHERE {where}"
            rows.history = replace(rows.history, text=text)
        return rows

    def _side_rows(self, relation: Relation, side: Side) -> History:
        """The rows of one relation, with columns that are called after its place."""
        name = quote_name(side.name)
        if self._is_plain(relation):
            return self._stream(relation.span, name, side.items)
        if self.binder.is_live(relation):
            found = self._relation(relation, name)
            text = f"SELECT {_listed(side.items)}, {name}.{FROM}, {name}.{TO} FROM ({found.text}) AS {name}"
            different = found.different and len(side.columns) == len(found.columns)
            return replace(found, text=text, columns=side.joined, different=different)
        self._check_static(relation)
        columns = f"{_listed(side.items)}, {BEFORE} AS {FROM}, {OPEN} AS {TO}"
        return History(f"SELECT {columns} FROM {relation.span.of(self.text)} AS {name}", side.joined, True, True)

    def _join(self, rows: Rows, relation: Relation, select: Select) -> Rows:
        side = self._read(self._side(relation, select), select)
        one, other = rows.history, self._side_rows(relation, side)
        if any(each.name.lower() == side.name.lower() for each in rows.sides):
            raise Unfit(f"two relations that are called {side.name}")
        kind = "".join(word for word in relation.join.split() if word not in ("OUTER", "JOIN", "INNER", "CROSS"))
        inside = Rows(one, rows.name, [*rows.sides, side], joined=True, using=dict(rows.using))
        condition = self._condition(rows, inside, relation, side, kind)
        if kind in ("LEFTSEMI", "SEMI"):
            return replace(rows, history=met(one, other, condition))
        if kind in ("LEFTANTI", "ANTI"):
            return replace(rows, history=alone(one, other, condition))
        if kind not in ("", ",", "LEFT", "RIGHT", "FULL"):
            raise Unfit(f"a {relation.join}")
        if kind in ("LEFT", "FULL"):
            found = with_all(one, other, condition)
        elif kind == "RIGHT":
            found = with_all(other, one, condition)
        else:
            found = pairs(one, other, condition)
        if kind == "FULL":
            rest = in_order(alone(other, one, condition, shown=True), found.columns)
            found = union_all([found, rest])
        inside.history = found
        return inside

    def _condition(self, rows: Rows, inside: Rows, relation: Relation, side: Side, kind: str) -> str:
        """What pairs fulfil; columns that a join is USING are noted, with what each of them is."""
        tokens = relation.condition_tokens
        if not tokens:
            return "true"
        if tokens[0].upper == "ON":
            span = span_of(tokens[1:])
            return f"({splice(self.text, span, inside.edits(tokens[1:])).text})"
        equal = []
        for token in (token for token in tokens[1:] if token.is_name):
            column = token.name.lower()
            owners = [there for each in rows.sides if (there := each.find(column)) is not None]
            other = side.find(column)
            if other is None or (column not in rows.using and len(owners) != 1):
                raise Unfit(f"USING ({token.name}), which not two relations have")
            own, there = rows.using.get(column) or quote_name(owners[0]), quote_name(other)
            equal.append(f"{own} = {there}")
            inside.using[column] = {"RIGHT": there, "FULL": f"coalesce({own}, {there})"}.get(kind, own)
        return f"({' AND '.join(equal)})"

    # ---- relations

    def _relation(self, relation: Relation, name: str) -> History:
        """The history of a stream or a subquery, behind its window function if there is one."""
        check_plain(relation)
        if not apart(relation.window):
            return self._sessions(relation, name)
        if relation.subquery is not None:
            found = self.of(relation.subquery)
            if relation.window is None:
                return found
            edit = Edit(relation.subquery.span, found.text)
            text = splice(self.text, relation.span, [edit]).text
            columns, times = tuple(columns_of(relation, self.binder)), f"{name}.{FROM}, {name}.{TO}"
            made = f"SELECT {names(columns, name)}, {times} FROM {text} AS {name}"
            return replace(found, text=made, columns=columns)
        return self._stream(relation.span, name, self._own(relation, name, columns_of(relation, self.binder)))

    def _sessions(self, relation: Relation, name: str) -> History:
        """Windows that depend on the rows around a row, which are others in each stretch of time."""
        assert relation.window is not None
        if relation.subquery is not None:
            rows = self.of(relation.subquery)
        else:
            assert relation.name is not None
            own = self._own(relation, name, self.binder.columns_of(relation))
            rows = self._stream(relation.name.span, name, own)
        keys = [quote_name(each.last) for each in relation.window.partition]
        cut = in_stretches(f"({rows.text}) AS {name}", rows.columns, name, keys)
        source = self.binder.windowed(f"({cut})", relation, apart=("__p", "__q"))
        columns = tuple(columns_of(relation, self.binder))
        made = f"SELECT {names(columns, name)}, {name}.__p AS {FROM}, {name}.__q AS {TO} FROM {source} AS {name}"
        return History(made, columns, appends=False, tidy=False)

    def _own(self, relation: Relation, name: str, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Columns of a stream."""
        if not self._is_stream(relation):
            reference = self.binder.resolve(relation)
            raise Unfit("a common table expression" if reference is None else f"a {reference.kind}")
        return [(f"{name}.{quote_name(column)}", column) for column in columns]

    def _is_stream(self, relation: Relation) -> bool:
        reference = self.binder.resolve(relation) if relation.subquery is None else None
        return reference is not None and isinstance(self.binder.catalog.objects.get(reference.target), Stream)

    def _is_plain(self, relation: Relation) -> bool:
        """Whether it is a stream each of whose rows is there by itself."""
        check_plain(relation)
        return self._is_stream(relation) and apart(relation.window)

    def _stream(self, place: Span, name: str, items: Sequence[tuple[str, str]], where: str = "") -> History:
        """The rows of a stream, with some columns or others: the place of a row is asked for in the same SELECT."""
        source = f"FROM {place.of(self.text)} AS {name}{where}"
        text = f"SELECT {_listed(items)}, {name}.{CAME} AS {FROM}, {OPEN} AS {TO} {source}"
        return History(text, _apart([column for _, column in items]), appends=True, tidy=True)

    def _check_static(self, relation: Relation) -> None:
        """What is static is always there, and its text stays as it is."""
        check_plain(relation)
        for each in [relation] if relation.subquery is None else relation.subquery.relations():
            if each.subquery is not None:
                continue
            reference = self.binder.resolve(each)
            target = self.binder.catalog.objects.get(reference.target) if reference is not None else None
            if not isinstance(target, Table):
                raise Unfit("something that is neither a stream nor a table")
            if target.asked:
                raise Unfit("a table that is asked by key")


def _always(text: str, body: Opaque) -> History:
    """VALUES, which are there at every moment."""
    width = len(list(split_commas(body.rows[0].tokens[1:-1]))) if body.rows[0].tokens[0].text == "(" else 1
    return History(text, tuple(f"col{index + 1}" for index in range(width)), appends=True, tidy=True)


def _operation(word: str, one: History, other: History) -> History:
    words = word.split()
    if words == ["UNION", "ALL"]:
        return union_all([one, other])
    if words[0] == "UNION":
        return distinct(union_all([one, other]))
    operation = compared_all if "ALL" in words else compared
    return operation(one, other, without=words[0] != "INTERSECT")


def _order(query: Query) -> tuple[list[list[Token]], str, str]:
    """What a query is sorted by, how many rows LIMIT takes, "" for all, and how many OFFSET leaves out."""
    parts: dict[str, list[Token]] = {}
    inside = [each.span for each in query.order_expressions]
    part = parts["ORDER"] = []
    for token in query.order_tokens:
        if token.upper in ("ORDER", "LIMIT", "OFFSET") and not any(s.start <= token.start < s.end for s in inside):
            part = parts[token.upper] = []
        else:
            part.append(token)
    texts = {word: " ".join(token.text for token in tokens) for word, tokens in parts.items()}
    count = texts.get("LIMIT", "")
    return list(split_commas(parts["ORDER"][1:])), "" if count.upper() == "ALL" else count, texts.get("OFFSET", "0")


def _listed(items: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{text} AS {quote_name(name)}" for text, name in items)


def _name(item: Item) -> str:
    """The name of a column; one that Spark makes up is not known."""
    named = list(chains(item.tokens))
    if item.alias is not None:
        return item.alias
    if len(named) != 1 or named[0].span != span_of(item.tokens) or any(generators(item.tokens)):
        raise Unfit("a column without a name")
    return named[0].parts[-1]


def _apart(columns: Sequence[str]) -> tuple[str, ...]:
    if len({column.lower() for column in columns}) < len(columns):
        raise Unfit("two columns of one name")
    return tuple(columns)
