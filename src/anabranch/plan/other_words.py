"""A query in the words that histories are made of: what has none of its own is said with what has.

Each of the steps leaves the query what it is at every moment, and its columns what they are, but for their names.
"""

from __future__ import annotations

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze
from anabranch.plan.catalog import Catalog
from anabranch.plan.expanded import Expanded
from anabranch.plan.joined_values import with_joined_values
from anabranch.plan.rewriting import rewritten_throughout
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Query, SelectStatement


def in_other_words(text: str, catalog: Catalog, analyze: Analyze) -> tuple[str, Query]:
    """The query in such words; `Unfit` where there are none."""
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    text, query = statement.text, statement.query

    def expanded(text: str, query: Query) -> list[Edit]:
        for select, owner in query.selects():
            if select.group and not select.group_plain:
                return list(Expanded(select, owner, Binder(text, catalog, query), analyze).edits())
        return []

    text, query = rewritten_throughout(text, query, expanded)
    return with_joined_values(text, query, catalog, analyze)
