"""A query in the words that histories are made of: what has none of its own is said with what has.

Each of the steps leaves the query what it is at every moment, and its columns what they are, but for their names.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze, aggregates_in
from anabranch.plan.catalog import Catalog
from anabranch.plan.expanded import AggregatedFirst, Expanded
from anabranch.plan.in_place import query_in_place
from anabranch.plan.inside import Inside, JoinedFirst
from anabranch.plan.joined_values import with_joined_values
from anabranch.plan.keys import INNER
from anabranch.plan.laterals import lateral_views
from anabranch.plan.rewriting import rewritten_throughout
from anabranch.plan.spelled import spelled_out
from anabranch.sql.calls import generators
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Query, Select, SelectStatement

#: The edits of one step for one SELECT; none where there is nothing to say in other words.
_Step = Callable[[Select, Query, Binder], list[Edit]]


def in_other_words(text: str, catalog: Catalog, analyze: Analyze) -> tuple[str, Query]:
    """The query in such words; `Unfit` where there are none."""
    text, query = _parsed(text)
    if query.cte_names() or query.dropped:
        text, query = _parsed(query_in_place(text, query))
    text, query = spelled_out(text, query, catalog, lambda each: each.span)

    def sets(select: Select, owner: Query, binder: Binder) -> list[Edit]:
        several = select.group and not select.group_plain
        return list(Expanded(select, owner, binder, analyze).edits()) if several else []

    for step in (sets, _made_of_aggregates, _laterals):
        text, query = _throughout(text, query, catalog, step)
    return with_joined_values(text, query, catalog, analyze)


def _parsed(text: str) -> tuple[str, Query]:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    return statement.text, statement.query


def _throughout(text: str, query: Query, catalog: Catalog, step: _Step) -> tuple[str, Query]:
    def edits(text: str, query: Query) -> list[Edit]:
        binder = Binder(text, catalog, query)
        found = (step(select, owner, binder) for select, owner in query.selects())
        return next((each for each in found if each), [])

    return rewritten_throughout(text, query, edits)


def _made_of_aggregates(select: Select, owner: Query, binder: Binder) -> list[Edit]:
    """Rows that are made of aggregates."""
    grouped = select.group or aggregates_in(select, owner)
    made = grouped and any(any(generators(item.tokens)) for item in select.items)
    return list(AggregatedFirst(select, owner, binder).edits()) if made else []


def _laterals(select: Select, owner: Query, binder: Binder) -> list[Edit]:
    """LATERAL VIEW over joins that are made first, and aggregates over what it gives."""
    if not lateral_views(select, binder.text):
        return []
    if any(relation.join not in INNER for relation in select.relations):
        return list(JoinedFirst(select, owner, binder).edits())
    grouped = select.group or select.having or aggregates_in(select, owner)
    return list(Inside(select, owner, binder).edits()) if grouped else []
