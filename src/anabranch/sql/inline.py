"""A CTE that only passes a relation through is that relation.

    WITH w AS (SELECT * FROM TUMBLE(TABLE s, ...)) SELECT ... FROM w GROUP BY ...

reads the windows of s and can use their partials, which a separate query w would prevent. The text does not change:
CTEs that nothing reads any more are marked as dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch.sql.syntax import Opaque, Query, Relation, Select, SetOperation
from anabranch.sql.text import Span


def inline_ctes(query: Query) -> Query:
    """The query with such CTEs inlined."""
    # A SELECT inside an expression (in ORDER BY, say) may read a CTE too.
    written = {token.start for token in query.tokens if token.upper == "SELECT"}
    if not query.cte_names() or written != {each.span.start for each, _ in query.selects() if not each.implied}:
        return query
    return _Inliner(query).query(query, {})


class _Inliner:
    def __init__(self, query: Query) -> None:
        self.names = query.cte_names()
        relations = list(query.relations())
        self.versioned = {_plain_name(each) for each in relations if each.version is not None}
        self.windowed = {_plain_name(each) for each in relations if each.window is not None}

    def query(self, query: Query, known: Mapping[str, Relation]) -> Query:
        """`known` are the relations that outer CTEs pass through, by name."""
        here = dict(known)
        kept: list[int] = []
        ctes: list[tuple[str, Query]] = []
        for index, (name, inner) in enumerate(query.ctes):
            inner = self.query(inner, here)
            here.pop(name.lower(), None)
            passed = None if query.cte_columns[index] else self._passed(name.lower(), inner)
            if passed is not None:
                here[name.lower()] = passed
            else:
                kept.append(index)
                ctes.append((name, inner))
        return replace(
            query,
            body=self._body(query.body, here),
            ctes=tuple(ctes),
            cte_columns=tuple(query.cte_columns[index] for index in kept),
            cte_spans=tuple(query.cte_spans[index] for index in kept),
            dropped=tuple(gaps_between(query, kept)),
        )

    def _passed(self, name: str, query: Query) -> Relation | None:
        """The relation that a CTE passes through; None if it does more, or cannot be inlined."""
        select = query.body
        if query.ctes or query.order is not None or query.emission is not None:
            return None
        if not isinstance(select, Select) or len(select.relations) != 1:
            return None
        if select.where or select.group or select.having or select.distinct or select.tail or select.lateral:
            return None
        relation = select.relations[0]
        tokens = select.items[0].tokens
        star = [token.text for token in tokens] == ["*"] or (
            len(tokens) == 3
            and tokens[0].is_name
            and tokens[0].name.lower() == (relation.exposed or "").lower()
            and [token.text for token in tokens[1:]] == [".", "*"]
        )
        if not star or len(select.items) > 1 or relation.alias_columns or relation.reshaped or relation.name is None:
            return None
        # The name may resolve differently where the CTE is read.
        if _plain_name(relation) in self.names or name in self.versioned:
            return None
        return None if relation.window is not None and name in self.windowed else relation

    def _body(
        self, body: Select | SetOperation | Query | Opaque, known: Mapping[str, Relation]
    ) -> Select | SetOperation | Query | Opaque:
        if isinstance(body, Select):
            return self._select(body, known)
        if isinstance(body, Query):
            return self.query(body, known)
        if isinstance(body, SetOperation):
            operands = tuple(self._body(operand, known) for operand in body.operands)
            return replace(body, operands=operands)  # type: ignore[arg-type]
        return body

    def _select(self, select: Select, known: Mapping[str, Relation]) -> Select:
        relations = tuple(self._relation(relation, known) for relation in select.relations)
        subqueries = tuple(self.query(inner, known) for inner in select.subqueries)
        return replace(select, relations=relations, subqueries=subqueries)

    def _relation(self, relation: Relation, known: Mapping[str, Relation]) -> Relation:
        if relation.subquery is not None:
            return replace(relation, subquery=self.query(relation.subquery, known))
        passed = known.get(_plain_name(relation) or "")
        if passed is None or relation.name is None:
            return relation
        return replace(
            relation,
            name=passed.name,
            version=passed.version,
            window=relation.window or passed.window,
            watermarks=(*passed.watermarks, *relation.watermarks),
            cte=relation.name.last,
        )


def _plain_name(relation: Relation) -> str | None:
    """The name of a relation that may be a CTE."""
    if relation.name is None or len(relation.name.parts) > 1:
        return None
    return relation.name.last.lower()


def gaps_between(query: Query, kept: Sequence[int]) -> list[Span]:
    """The spans to cut from a WITH clause so that these entries remain, separated by commas."""
    spans = query.cte_spans
    if len(kept) == len(spans):
        return []
    if not kept:
        return [Span(query.span.start, spans[-1].end)]
    return [
        Span(span.start, spans[index + 1].start) if index < kept[-1] else Span(spans[index - 1].end, span.end)
        for index, span in enumerate(spans)
        if index not in kept
    ]
