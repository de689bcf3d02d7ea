"""DROP and OR REPLACE: what goes with an object, and state that nothing needs any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.engine.core import Core
from anabranch.engine.names import Names
from anabranch.errors import AnabranchError, SqlError
from anabranch.ledger import Draft, TableChange
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Sink, Stream, Table
from anabranch.plan.states import Panes, Rows
from anabranch.plan.stored import to_json
from anabranch.plan.view import View
from anabranch.sinks import kinds
from anabranch.sources.base import Leaving
from anabranch.sql.syntax import Drop


def drop(names: Names, statement: Drop) -> str:
    core = names.core
    snapshot = core.snapshot()
    catalog = core.catalog(snapshot)
    found = catalog.find_any(statement.name.last)
    if found is None or found.kind != statement.kind:
        if statement.if_exists:
            return f"there is no {statement.kind} {statement.name}"
        raise names.no_such(statement, statement.name, statement.kind, found)
    readers = catalog.readers_of(found.id)
    if readers and not statement.cascade:
        listed = ", ".join(reader.name for reader in readers)
        raise SqlError(
            f"{found.name} is read by {listed}",
            text=statement.text,
            at=statement.name.span,
            hint="drop them first, or add CASCADE to drop them too",
        )
    streams = catalog.sources_of(found) if isinstance(found, View) else {s.id for s in catalog.of(Stream)}
    if isinstance(found, Sink):
        core.ledger.commit(drop_draft(core, catalog, found))
        return f"sink {found.name} dropped; what it wrote stays in {kinds.place_of(found.into, found.options)}"
    with core.stream_locks(streams), core.ledger.commit_lock:
        core.ledger.commit(drop_draft(core, core.catalog(), found))
    if isinstance(found, Stream):
        _leave(core, found)
    core.forget_source(found.id)
    return f"{statement.kind} {found.name} dropped"


def drop_draft(
    core: Core, catalog: Catalog, found: Stream | Table | View | Sink, *, keep_readers: bool = False
) -> Draft:
    """Drop an object, its readers (unless `keep_readers`), and state that is no longer needed."""
    doomed: dict[str, Any] = {}

    def doom(each: Stream | Table | View | Sink) -> None:
        if each.id not in doomed:
            doomed[each.id] = each
            for reader in () if keep_readers else catalog.readers_of(each.id):
                doom(reader)
            for node in catalog.nodes_of(each) if isinstance(each, View) else ():
                doom(node)

    doom(found)
    snapshot = core.snapshot()
    left = [view for view in catalog.of(View) if view.id not in doomed]
    changes: dict[str, Any] = {**dict.fromkeys(doomed), **unneeded(catalog, left)}
    tables = {
        id: TableChange(drop=True)
        for id, definition in changes.items()
        if definition is None and isinstance(catalog[id], Panes | Rows)
    }
    for each in doomed.values():
        own = [each.id] if isinstance(each, Table) else []
        own += [each.rows_table] if isinstance(each, Stream) else []
        own += each.own_tables if isinstance(each, View) else []
        for table in own:
            tables[table] = TableChange(drop=True)
    tables = {id: change for id, change in tables.items() if id in snapshot.files}
    return Draft("drop", tables=tables, catalog=changes)


def replace_or_commit(core: Core, statement: Any, draft: Draft) -> None:
    """Commit a definition; OR REPLACE drops the old one in the same commit."""
    with core.ledger.commit_lock:
        snapshot = core.snapshot()
        catalog = core.catalog(snapshot)
        found = catalog.find(statement.name.last) if statement.or_replace else None
        if found is not None:
            readers = catalog.readers_of(found.id)
            if readers:
                names = ", ".join(view.name for view in readers)
                raise SqlError(
                    f"{found.name} cannot be replaced: it is read by {names}",
                    text=statement.text,
                    at=statement.name.span,
                    hint="drop them first",
                )
            gone = drop_draft(core, catalog, found)
            draft = replace(
                draft,
                tables={**gone.tables, **draft.tables},
                catalog={**gone.catalog, **draft.catalog},
            )
        core.ledger.commit(draft)
        if found is not None:
            core.forget_source(found.id)


def without(core: Core, catalog: Catalog, name: str) -> Catalog:
    """The catalog without an object that is being replaced."""
    found = catalog.find(name)
    if found is None:
        return catalog
    draft = drop_draft(core, catalog, found)
    return catalog.after(draft.catalog)


def tidied(core: Core, draft: Draft, catalog: Catalog) -> Draft:
    """A commit that also drops partials that others derived from until now, if they are no longer needed."""
    bases = {each.above.panes for each in catalog.of(Panes) if each.above is not None}
    if not bases:
        return draft
    after = catalog.after(draft.catalog)
    gone = {id: values for id, values in unneeded(after, list(after.of(View))).items() if id in bases}
    files = core.ledger.snapshot().files
    drops = {id: TableChange(drop=True) for id, values in gone.items() if values is None and id in files}
    return replace(draft, catalog={**draft.catalog, **gone}, tables={**draft.tables, **drops})


def unneeded(catalog: Catalog, left: list[View]) -> dict[str, Any]:
    """State that the remaining views do not need: None for a whole table, or a pane table with fewer columns."""
    changes: dict[str, Any] = {}
    used: dict[str, set[str]] = {}
    presences: dict[str, list[str]] = {}
    for use in (use for view in left for use in view.query.blocks):
        used.setdefault(use.panes, set()).update(use.columns)
        presences.setdefault(use.panes, []).append(use.presence)
    for state in catalog.of(Panes):
        if state.above is not None and state.id in used:  # the columns that its partials derive from are used too
            below = state.above.columns
            used.setdefault(state.above.panes, set()).update(below[name] for name in used[state.id])
            presences.setdefault(state.above.panes, []).extend(below[name] for name in presences[state.id])
    for state in catalog.of(Panes):
        if state.id not in used:
            changes[state.id] = None
            continue
        columns = tuple(column for column in state.columns if column.name in used[state.id])
        # A condition of dropped views may fail for rows that the others can compute.
        kept = replace(state, columns=columns, conditions=state.conditions_of(presences[state.id]))
        if (kept.columns, set(kept.conditions)) != (state.columns, set(state.conditions)):
            changes[state.id] = to_json(kept)
    for rows in catalog.of(Rows):
        if not any(view.query.rows == rows.id for view in left):
            changes[rows.id] = None
    return changes


def _leave(core: Core, stream: Stream) -> None:
    """Remove what the source of a stream created outside, or warn that it remains."""
    try:
        source = core.source(stream)
        if isinstance(source, Leaving):
            source.left()
    except AnabranchError as error:
        core.warn(f"stream {stream.name} is dropped, but {error.message}{f'; {error.hint}' if error.hint else ''}")
