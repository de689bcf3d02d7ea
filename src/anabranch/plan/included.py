"""Rows that a trigger counts one by one, through views that only filter and project.

    CREATE VIEW low AS SELECT k, n FROM s WHERE n > 0
    SELECT k, count(*) AS c FROM low GROUP BY k TRIGGER COUNTING 3

The changes of a view have no order inside a run, but the rows of its stream have. So the query of such a view is put in
its place, where it shows all rows of its stream that it ever will: the two are one query then, as in `flat`.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog, Rows, View
from anabranch.plan.describe import kind_of
from anabranch.plan.flat import flat
from anabranch.plan.rewriting import rewritten
from anabranch.sql.cursor import MAX_QUERIES
from anabranch.sql.lexer import quote_name
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import CreateView, Query, Relation, Select, SelectStatement


def include_views(text: str, query: Query, catalog: Catalog) -> tuple[str, Query, tuple[str, ...]]:
    """The query as one over the streams of the views that it counts rows of, and the ids of these; as it is if none."""
    made = text, query
    seen: list[str] = []
    for _ in range(MAX_QUERIES):
        found = list(_views(*made, catalog))
        if not found:
            break
        seen += [view.id for view, _ in found]
        made = rewritten(*made, [edit for _, edit in found])
    if not seen:
        return text, query, ()
    made = flat(*made, catalog)
    # Where the two could not be one, nothing is won.
    binder = Binder(made[0], catalog, made[1])
    if not all(_reads_a_stream(each, binder) for each in _counted(made[1])):
        return text, query, ()
    return (*made, tuple(dict.fromkeys(seen)))


def _counted(query: Query) -> Iterator[Select]:
    """The SELECTs whose rows a trigger counts."""
    for each in query.queries():
        if each.emission is not None and each.emission.counting is not None and isinstance(each.body, Select):
            yield each.body


def _reads_a_stream(select: Select, binder: Binder) -> bool:
    references = [binder.resolve(relation) for relation in select.relations]
    return any(each is not None and each.kind == "stream" for each in references)


def _views(text: str, query: Query, catalog: Catalog) -> Iterator[tuple[View, Edit]]:
    """The views that can be put in place, and how."""
    binder = Binder(text, catalog, query)
    for relation in (each for select in _counted(query) for each in _alone(select)):
        reference = binder.resolve(relation)
        view = catalog.objects.get(reference.target) if reference is not None else None
        if not isinstance(view, View) or not _shows_all(view, catalog):
            continue
        inner = _written(view, query.cte_names())
        if inner is not None:
            name = f" AS {quote_name(relation.exposed or view.name)}" if relation.alias is None else ""
            yield view, Edit(relation.span, f"({inner}){name}", relation.span)


def _alone(select: Select) -> Iterator[Relation]:
    """The relation that a SELECT reads as it is; of a subquery, what that reads."""
    if len(select.relations) != 1:
        return
    (relation,) = select.relations
    changed = relation.alias_columns or relation.reshaped or relation.refreshable or relation.current
    if changed or relation.version is not None or relation.provisional or relation.window is not None:
        return
    if relation.subquery is None:
        yield relation
    elif isinstance(relation.subquery.body, Select):
        yield from _alone(relation.subquery.body)


def _shows_all(view: View, catalog: Catalog) -> bool:
    """Whether a view shows a row, or none, for each row that its stream ever had."""
    if kind_of(view) != "stateless" or view.stream or view.tables or view.start != "beginning":
        return False
    rows = catalog[view.rows] if view.rows is not None else None
    if isinstance(rows, Rows) and rows.statics:
        return False
    streams = [catalog.stream(id) for id in catalog.sources_of(view)]
    return len(streams) == 1 and streams[0].kept_since == 0


def _written(view: View, taken: set[str]) -> str | None:
    """The SELECT of a view; None if it says more, or if a name in it would mean something else."""
    (statement,) = parse(view.sql)
    assert isinstance(statement, CreateView | SelectStatement)
    query = statement.query
    if query.ctes or query.order is not None or not isinstance(query.body, Select):
        return None
    if any(each.name is not None and each.name.last.lower() in taken for each in query.relations()):
        return None
    return query.body.span.of(statement.text)
