"""Hints after SELECT about external tables:

    SELECT /*+ LOOKUP(c) */ o.id, c.name FROM orders o LEFT JOIN customers c ON c.id = o.customer

looks customers up by key for this query, though the table is small enough to be loaded. Other hints are Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from anabranch.plan.bind import Binder, refuse
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Table
from anabranch.sources import registry
from anabranch.sql.syntax import Query, Relation
from anabranch.sql.text import HINTS, Span

#: The reason for looking up a table that a hint names.
HINT = "the query says LOOKUP"
_CALL = re.compile(r"\b(NO_LOOKUP|LOOKUP)\s*\(([^()]*)\)", re.IGNORECASE)


def with_hints(text: str, query: Query, catalog: Catalog) -> Catalog:
    """A catalog in which the tables that a query's hints name are looked up by key; refuses hints that cannot hold."""
    found: dict[str, Table] = {}
    for wanted, relation, span in _named(text, query):
        reference = Binder(text, catalog, query).resolve(relation)
        table = catalog.objects.get(reference.target) if reference is not None else None
        if not isinstance(table, Table) or not registry.is_table(table.source):
            raise refuse(text, span, "this is no table that can be looked up by key", _how())
        if not wanted and table.asked:
            what = f"{table.name} is looked up by key and was never loaded"
            raise refuse(text, span, what, "load it: CREATE OR REPLACE TABLE ... lookup => 'never'")
        if wanted and not table.asked:
            found[table.id] = replace(table, asked=HINT)
    return catalog.with_objects(found.values()) if found else catalog


def _named(text: str, query: Query) -> Iterator[tuple[bool, Relation, Span]]:
    """What the hints of a query name: whether to look it up, the relation, and the span of the name."""
    for select, _ in query.selects():
        head = Span(select.span.start, select.items[0].span.start) if select.items else select.span
        for hint in HINTS.finditer(text, head.start, head.end):
            for call in _CALL.finditer(text, hint.start(), hint.end()):
                for name in re.finditer(r"[^\s,]+", call[2]):
                    span = Span(call.start(2) + name.start(), call.start(2) + name.end())
                    relations = [each for each in select.relations if called(each) == name[0].strip("`").lower()]
                    if not relations:
                        raise refuse(text, span, f"no relation of this SELECT is called {name[0]}", _how())
                    yield call[1].upper() == "LOOKUP", relations[0], span


def called(relation: Relation) -> str:
    """The name of a relation in hints."""
    return (relation.exposed or "").lower()


def _how() -> str:
    return "as in SELECT /*+ LOOKUP(c) */ ... FROM s JOIN people c ON c.id = s.id, with people from sqlite(...)"
