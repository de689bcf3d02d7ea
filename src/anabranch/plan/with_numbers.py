"""The queries that records come from with the numbers of the rows that each record is made of, as columns of their own.

    SELECT a.k, b.v FROM a JOIN b ON a.id = b.id

gets `a`._row_num AS `__part0_a` and `b`._row_num AS `__part1_b`. Whatever gives a row and takes it back, or makes one
of several rows of a stream, raises `Unfit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from anabranch.plan.bind import Binder
from anabranch.plan.catalog import ROW_NUM, Stream, Table
from anabranch.plan.inputs import INNER
from anabranch.plan.inside import Body, apart, check_plain, columns_of, qualified, using
from anabranch.plan.parts import PART
from anabranch.plan.scope import Unfit
from anabranch.plan.windows import needs_numbers
from anabranch.sql.calls import aggregate_calls, generators
from anabranch.sql.lexer import Span, quote_name, tokenize
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Item, Query, Relation, Select, SetOperation

#: Joins with a static table that leave a row of the relations before it as it is, or leave it out.
BESIDE = ("LEFT JOIN", "LEFT OUTER JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "SEMI JOIN", "ANTI JOIN")


class Numbered:
    """What adds the numbers of rows to the queries that records come from."""

    def __init__(self, binder: Binder) -> None:
        self.text = binder.text
        self.binder = binder
        self.numbers = count()
        self.streams: dict[int, str] = {}  # the columns for streams, by the places of these in the text
        self.columns: dict[Span, list[str]] = {}  # those of queries

    def edits(self, relations: Sequence[Relation]) -> Iterator[Edit]:
        for relation in relations:
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
            joins = (*INNER, *BESIDE) if not here and index and found else INNER
            if relation.join not in joins:
                raise Unfit
            found += here
        if not found:
            raise Unfit
        return found

    def _of_relation(self, relation: Relation) -> list[str]:
        check_plain(relation)
        if not apart(relation.window) or (relation.window is not None and needs_numbers(relation.window)):
            raise Unfit
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
            found = [sources.get(name, quote_name(name)) if name in own else "CAST(NULL AS BIGINT)" for name in wanted]
            items = [f"{row} AS {quote_name(name)}" for row, name in zip(found, wanted, strict=True)]
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
        if using(select.relations):
            raise Unfit
        star = next(index for index, token in enumerate(item.tokens) if token.text == "*")
        qualifier = item.tokens[0].name.lower() if star else None
        found = [
            qualified(relation, name)
            for relation in select.relations
            if qualifier is None or (relation.exposed or "").lower() == qualifier
            for name in columns_of(relation, self.binder)
            if name.lower() not in item.left_out
        ]
        if not found:
            raise Unfit
        return ", ".join(found)
