"""Answers of views by DuckDB on the driver, from the ledger's files.

For a query of one view that is computed from partials when it is read, if DuckDB computes both like Spark. Such an
answer would mostly wait for Spark to plan and start. Spark runs every other query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.duck import counting_all, grouped, places_for, quoted
from anabranch.engine import remote
from anabranch.engine.core import Core
from anabranch.engine.driver import connection
from anabranch.engine.driver_changes import alike
from anabranch.engine.frames import arrow_schema
from anabranch.engine.joined_partials import local_relation
from anabranch.engine.pane_sql import pane_source, window_rows, windows_shown
from anabranch.engine.table_cache import file_rows
from anabranch.engine.tables import DIFF, net_sql
from anabranch.ledger import Snapshot
from anabranch.plan.bind import Bound
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Table
from anabranch.plan.states import BlockUse, Panes
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.render.duckdb import driver_sql
from anabranch.sql.syntax import Query, Select
from anabranch.types import Field

#: The DuckDB name of rows of a database table.
_FEW = "__few_rows"


@dataclass(frozen=True)
class DriverQuery:
    """A query for DuckDB, and the number of partials that it reduces, each counted once per window."""

    text: str
    placed: int


def text_of(core: Core, query: Query, bound: Bound, fields: Sequence[Field], snapshot: Snapshot) -> DriverQuery | None:
    """A query in DuckDB's SQL, if it means the same there; None if Spark has to run it."""
    catalog = core.catalog(snapshot)
    view = _plain_view(query, bound, catalog)
    if view is None or not core.place.driver or any(duckdb_type(field.type) is None for field in fields):
        return None
    tables = [catalog.kept_panes(use.panes) for use in view.query.blocks]
    if not core.place.takes_answer(_rows_in(snapshot, tables)):
        return None
    source = _view(core, catalog, view, snapshot)
    text = driver_sql(bound.text.text, lambda _: source, view.shown_fields) if source is not None else None
    placed = sum(_placed(use, table, snapshot) for use, table in zip(view.query.blocks, tables, strict=True))
    return DriverQuery(text, placed) if text is not None else None


def rows(query: DriverQuery, fields: Sequence[Field]) -> Any:
    """The answer as a pyarrow.Table; None if DuckDB returns other columns, or fails: Spark then reports the error."""
    import duckdb
    import pyarrow as pa

    duck = connection()
    wanted = [duckdb_type(field.type) or "" for field in fields]
    try:
        with counting_all(query.text), places_for(query.placed):
            made = duck.sql(query.text)
            if len(made.types) != len(wanted) or not all(map(alike, map(str, made.types), wanted)):
                return None
            found = made.to_arrow_table()
        return found.rename_columns([field.name for field in fields]).cast(arrow_schema(fields))
    except (duckdb.Error, pa.ArrowInvalid):
        return None


def relation(core: Core, id: str, snapshot: Snapshot) -> str | None:
    """The contents of a view or table as a relation; None if Spark has to read it."""
    catalog = core.catalog(snapshot)
    found = catalog.objects.get(id)
    if isinstance(found, Table):
        known = not found.asked and all(duckdb_type(field.type) for field in found.fields)
        fits = core.place.takes_answer(_rows_in(snapshot, [id]))
        return file_rows(snapshot.table_paths(core.ledger, id), found.fields) if known and fits else None
    if not isinstance(found, View):
        return None
    if found.kept:
        return _emitted(core, found, snapshot)
    tables = [catalog.kept_panes(use.panes) for use in found.query.blocks]
    return _view(core, catalog, found, snapshot) if core.place.takes_answer(_rows_in(snapshot, tables)) else None


def _emitted(core: Core, view: View, snapshot: Snapshot) -> str | None:
    """The net rows that a view has shown: each as often as its changes add up to."""
    archive = view.emission.late == "archive" and view.progress.clock == "event"
    if view.emission.as_changes or archive or (view.query.ordered and view.emission.mode == "feed"):
        return None
    if any(duckdb_type(field.type) is None for field in view.fields):
        return None
    if not core.place.takes_answer(_rows_in(snapshot, [view.changes_table])):
        return None
    paths = snapshot.table_paths(core.ledger, view.changes_table)
    changes = file_rows(paths, (*view.fields, DIFF))
    columns = ", ".join(quoted(field.name) for field in view.fields)
    net = net_sql(", ".join(grouped(field.name, field.type) for field in view.fields), changes)
    return f"(SELECT {columns} FROM (SELECT *, unnest(range(_diff)) FROM ({net}) AS __n({columns}, _diff)))"


def _rows_in(snapshot: Snapshot, tables: Iterable[str]) -> int:
    return sum(file.rows for table in tables for file in snapshot.files.get(table, {}).values())


def of_few(core: Core, bound: Bound, fields: Sequence[Field], remote_query: remote.RemoteQuery) -> Any:
    """The answer to a query of one database table with few rows, as a pyarrow.Table; None if Spark has to run it."""
    if (
        not (core.place.driver and remote_query.plain)
        or core.has_settings
        or remote_query.parts
        or len(bound.references) != 1
        or not bound.text.text
    ):
        return None
    ((placeholder, source),) = remote_query.given.items()
    own = source.fields()
    if any(duckdb_type(field.type) in (None, "FLOAT") for field in (*own, *fields)):
        return None
    items = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in own)
    text = driver_sql(bound.text.text, lambda _: f"(SELECT {items} FROM {_FEW})", own)
    found = remote_query.few(placeholder) if text is not None else None
    if text is None or found is None:
        return None
    duck = connection()
    for field in own:
        if field.name not in found.column_names:  # not read
            found = found.append_column(field.name, [[None] * len(found)])
    duck.register(_FEW, found)
    try:
        return rows(DriverQuery(text, 0), fields)
    finally:
        duck.unregister(_FEW)


def _plain_view(query: Query, bound: Bound, catalog: Catalog) -> View | None:
    """The view that a query reads, if it reads only one."""
    select = query.body
    if not isinstance(select, Select) or query.ctes or select.subqueries or len(select.relations) != 1:
        return None
    references, relation = list(bound.references.values()), select.relations[0]
    if len(references) != 1 or not references[0].plain:
        return None
    if query.needs_plan or relation.subquery is not None or relation.window is not None or relation.watermarks:
        return None
    found = catalog.objects.get(references[0].target)
    return found if isinstance(found, View) else None


def _view(core: Core, catalog: Catalog, view: View, snapshot: Snapshot) -> str | None:
    """The answer of a view that only reduces partials, as a relation."""
    if (
        view.kept
        or view.emission.as_changes
        or view.emission.late == "archive"
        or view.query.rows is not None
        or not view.query.blocks
    ):
        return None
    if view.query.ordered or view.query.spark_text:
        return None
    relations: dict[str, str] = {}
    fields: list[Field] = []
    for use in view.query.blocks:
        panes = catalog.panes(use.panes)
        seen = use.fields(panes)
        fields += seen
        known = all(duckdb_type(field.type) for field in seen) and all(panes.column(n).duckdb for n in use.columns)
        if not known or use.bins is not None or _many(core, use, catalog.kept_panes(use.panes), snapshot):
            return None
        if not snapshot.files.get(catalog.kept_panes(use.panes)):
            relations[use.placeholder] = file_rows([], seen)
            continue
        source = _partials(core, catalog, panes, use, snapshot)
        if source is None:
            return None
        relations[use.placeholder] = window_rows(panes, use, source)
    text = driver_sql(view.query.text, relations.get, fields)
    if text is None or any(duckdb_type(field.type) is None for field in view.fields):
        return None
    if len(view.query.blocks) == 1:
        panes, paths = catalog.panes(use.panes), snapshot.table_paths(core.ledger, use.panes)
        shown = windows_shown(view, panes, use, paths) if paths else None
        if shown is not None:
            return shown
    named = ", ".join(quoted(field.name) for field in view.fields)
    items = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in view.fields)
    return f"(SELECT {items} FROM ({text}) AS __f({named}))"


def _partials(core: Core, catalog: Catalog, panes: Panes, use: BlockUse, snapshot: Snapshot) -> str | None:
    """The partials of a pane table as a relation; if they derive from another one, joined with static tables."""
    if panes.above is None:
        return pane_source(panes, use.columns, snapshot.table_paths(core.ledger, panes.id))
    base, tables = catalog.panes(panes.above.panes), {}
    for placeholder, id in panes.statics.items():
        table = catalog[id]
        assert isinstance(table, Table)
        if any(duckdb_type(field.type) in (None, "FLOAT") for field in table.fields):
            return None
        at = core.ledger.snapshot(panes.table_versions[id][0])
        tables[placeholder] = file_rows(at.table_paths(core.ledger, id), table.fields)
    if any(duckdb_type(key.type) in (None, "FLOAT") for key in base.keys):
        return None
    columns = dict.fromkeys(panes.above.columns[column.name] for column in panes.columns)
    paths = snapshot.table_paths(core.ledger, base.id)
    return local_relation(catalog, panes, pane_source(base, columns, paths), tables)


def _many(core: Core, use: BlockUse, table: str, snapshot: Snapshot) -> bool:
    """Whether computing windows from the ones before them is cheaper than from all of their panes."""
    windows = use.sliding
    if windows is None or windows.tumbling:
        return False
    return _placed(use, table, snapshot) > core.place.limits.window_rows


def _placed(use: BlockUse, table: str, snapshot: Snapshot) -> int:
    """The number of partials, each counted once per window."""
    windows = use.sliding
    panes = _rows_in(snapshot, [table])
    return panes if windows is None else panes * -(-windows.size // windows.slide)
