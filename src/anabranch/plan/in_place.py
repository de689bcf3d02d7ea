"""Common table expressions in the places of their names, whatever scopes these are in:

    WITH x AS (SELECT k FROM a), y(l) AS (WITH x AS (SELECT k FROM b) SELECT k FROM x) SELECT * FROM x JOIN y ON k = l

is

    SELECT * FROM (SELECT k FROM a) AS `x` JOIN (SELECT k FROM (SELECT k FROM b) AS `x`) AS `y`(`l`) ON k = l

Works on the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from anabranch.plan.inside import Body
from anabranch.plan.scope import Unfit
from anabranch.sql.cursor import Cursor
from anabranch.sql.inline import gaps_between
from anabranch.sql.lexer import Span, quote_name, tokenize
from anabranch.sql.query import parse_query
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Query, Relation, Select, SetOperation


@dataclass(frozen=True)
class _Placed:
    """What stands behind the name of a common table expression, and the names of its columns."""

    text: str
    at: Span
    columns: tuple[str, ...] = ()


def query_in_place(text: str, query: Query) -> str:
    """A whole query without its common table expressions."""
    return _Places(text, query).text_of(_as_written(text, query), {})


def places_in(text: str, query: Query) -> dict[int, list[Edit]]:
    """The edits that put common table expressions in the places of their names, by the places of the relations that
    read them; and those that leave out the WITH clauses of queries inside, by the places of these queries."""
    found = _Places(text, query)
    written = _as_written(text, query)
    edits = {relation.span.start: _put(relation, known) for relation, known in found.read(written, {}, all=True)}
    edits |= {each.span.start: [found.without(each)] for each in written.queries() if each.ctes and each is not written}
    return {place + query.span.start: [_moved(edit, query) for edit in each] for place, each in edits.items()}


def without_ctes(text: str, query: Query) -> Edit:
    """The edit that leaves out the WITH clause of a query whose common table expressions are in place."""
    return _moved(_Places(text, query).without(_as_written(text, query)), query)


def static_in_place(text: str, query: Query, is_static: Callable[[str], bool]) -> list[Edit]:
    """The edits that put those common table expressions in the places of their names whose texts are static, and leave
    them out of the WITH clauses. One that only passes a relation through is that relation already."""
    found, written = _Places(text, query), _as_written(text, query)
    passed = {each.span.start - query.span.start for each in query.relations() if each.cte is not None}
    reads = [each for each in found.read(written, {}, all=True) if is_static(each[1].text)]
    reads = [(relation, known) for relation, known in reads if relation.span.start not in passed]
    placed = {known.at for _, known in reads}
    ctes = [each for each in written.queries() if any(inner.span in placed for _, inner in each.ctes)]
    gaps = [
        gap
        for each in ctes
        for gap in gaps_between(each, [i for i, (_, inner) in enumerate(each.ctes) if inner.span not in placed])
    ]
    edits = [edit for relation, known in reads for edit in _put(relation, known)]
    left = [edit for edit in edits if not any(gap.start <= edit.span.start < gap.end for gap in gaps)]
    return [_moved(edit, query) for edit in (*left, *(Edit(gap, "") for gap in gaps))]


def _put(relation: Relation, known: _Placed) -> list[Edit]:
    """The edits that put what is behind a name in its place."""
    assert relation.name is not None
    # A window function stands around the name, and its windows are called like what they are of.
    columns = f"({', '.join(map(quote_name, known.columns))})" if known.columns and not relation.alias_columns else ""
    name = "" if relation.alias is not None else f" AS {quote_name(relation.exposed or '')}"
    at = relation.alias_span.end if relation.alias_span is not None else relation.span.end
    return [Edit(relation.name.span, f"({known.text})"), Edit(Span(at, at), name + columns, relation.span)]


def _moved(edit: Edit, query: Query) -> Edit:
    by = query.span.start
    origin = edit.origin or edit.span
    return Edit(
        Span(edit.span.start + by, edit.span.end + by), edit.text, Span(origin.start + by, max(origin.end, 1) + by)
    )


def _as_written(text: str, query: Query) -> Query:
    """The query with all its common table expressions, those too that only pass something through."""
    part = query.span.of(text)
    return parse_query(Cursor(part, tokenize(part)), inline=False)


class _Places:
    """The scopes of one query; places are those of its own text."""

    def __init__(self, text: str, query: Query) -> None:
        self.text = query.span.of(text)

    def text_of(self, query: Query, around: Mapping[str, _Placed]) -> str:
        """A query without its WITH clause."""
        edits = [edit for relation, known in self.read(query, around) for edit in _put(relation, known)]
        edits += [self.without(each) for each in query.queries() if each.ctes and each is not query]
        return splice(self.text, Span(self._behind(query), query.span.end), edits).text

    def without(self, query: Query) -> Edit:
        return Edit(Span(query.span.start, self._behind(query)), "")

    def _behind(self, query: Query) -> int:
        """Where a query goes on behind its WITH clause; brackets around its body are not in the span of that."""
        end = query.cte_spans[-1].end if query.ctes else query.span.start
        return end + len(self.text[end:]) - len(self.text[end:].lstrip())

    def read(
        self, query: Query, around: Mapping[str, _Placed], *, all: bool = False
    ) -> Iterator[tuple[Relation, _Placed]]:
        """The relations of a query that read common table expressions; with `all`, those of these expressions too."""
        here = dict(around)
        if query.ctes and tokenize(self.text[query.span.start :])[1].upper == "RECURSIVE":
            raise Unfit("WITH RECURSIVE")
        for (name, inner), columns in zip(query.ctes, query.cte_columns, strict=True):
            if all:
                yield from self.read(inner, here, all=True)
            here[name.lower()] = _Placed(self.text_of(inner, here), inner.span, columns)
        yield from self._of_body(query.body, here)

    def _of_body(self, body: Body, here: Mapping[str, _Placed]) -> Iterator[tuple[Relation, _Placed]]:
        if isinstance(body, Query):
            yield from self.read(body, here)
        elif isinstance(body, SetOperation):
            for operand in body.operands:
                yield from self._of_body(operand, here)
        elif isinstance(body, Select):
            for relation in body.relations:
                if relation.subquery is not None:
                    yield from self.read(relation.subquery, here)
                elif relation.name is not None and len(relation.name.parts) == 1:
                    known = here.get(relation.name.last.lower())
                    if known is not None:
                        yield relation, known
            for inner in body.subqueries:
                yield from self.read(inner, here)
