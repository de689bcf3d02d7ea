"""What a query that groups leaves unsaid: the columns of GROUP BY ALL, and those of * beside aggregates.

    SELECT * EXCEPT (n), sum(n) AS n FROM s GROUP BY ALL

is planned as

    SELECT `k`, `ts`, sum(n) AS n FROM s GROUP BY `k`, `ts`

so that it has keys like any other query. Where the text does not tell which columns these are, it stays as it is.
"""

from __future__ import annotations

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import aggregates_in
from anabranch.plan.catalog import Catalog
from anabranch.plan.rewriting import rewritten
from anabranch.sql.calls import aggregate_calls, chains
from anabranch.sql.lexer import Span, quote_name
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Item, Query, Select


def in_full(text: str, query: Query, catalog: Catalog) -> tuple[str, Query]:
    """The query with the columns that it groups by, and shows beside aggregates, in its text."""
    selects = [select for select, owner in query.selects() if _by_all(select) or _stars(select, owner)]
    if not selects:
        return text, query
    binder = Binder(text, catalog, query)
    edits = [edit for select in selects for edit in _edits(text, select, binder)]
    return rewritten(text, query, edits) if edits else (text, query)


def _by_all(select: Select) -> bool:
    return [[token.upper for token in part.tokens] for part in select.group] == [["ALL"]]


def _stars(select: Select, owner: Query) -> bool:
    return any(item.star for item in select.items) and bool(select.group or aggregates_in(select, owner))


def _edits(text: str, select: Select, binder: Binder) -> list[Edit]:
    over = any(token.upper == "OVER" for item in select.items for token in item.tokens)
    if over or select.subqueries or select.lateral:
        return []
    edits: list[Edit] = []
    groups: list[str] = []
    for item in select.items:
        if item.star:
            columns = _columns(item, select, binder)
            if not columns:
                return []
            groups += columns
            edits.append(Edit(item.span, ", ".join(columns)))
        elif not any(aggregate_calls(item.tokens)) and any(chains(item.tokens)):
            groups.append(Span(item.tokens[0].start, item.tokens[-1].end).of(text))
    if not _by_all(select):
        return edits
    return [*edits, Edit(select.group[0].span, ", ".join(groups))] if groups else []


def _columns(item: Item, select: Select, binder: Binder) -> list[str]:
    """What * stands for; nothing where that is not certain."""
    if len(select.relations) != 1:
        return []
    names = list(binder.starred(item, select.relations))
    certain = all(names) and len({name.lower() for name in names}) == len(names)
    return [quote_name(name) for name in names] if certain else []
