"""Partials of a join with static tables, computed from the partials of the stream alone (eager aggregation).

A pane table with `above` has no files of its own: its partials are computed here, from those of another pane table.
When it becomes independent of that table, they are written to files, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.algebra.windows import Engine
from anabranch.duck import quoted, timestamp
from anabranch.engine.core import Core
from anabranch.engine.partial_windows import window_position_sql
from anabranch.engine.tables import PANE, pane_fields
from anabranch.engine.writing import write_frame
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Table
from anabranch.plan.panes import STREAM
from anabranch.plan.states import Panes
from anabranch.plan.types import duckdb_type
from anabranch.render.duckdb import driver_sql
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def frame(core: Core, catalog: Catalog, panes: Panes, snapshot: Snapshot) -> DataFrame:
    """The partials of a pane table without files of its own, by Spark."""
    assert panes.above is not None
    base = catalog.panes(panes.above.panes)
    relations = {"@stream": core.table_frame(base.id, pane_fields(base), snapshot)}
    for placeholder, table in _tables(catalog, panes).items():
        relations[placeholder] = core.static_frame(table.id, table.fields, panes.table_versions[table.id])
    return core.frames.sql(_text(panes, "spark") or "", relations)


def local_relation(catalog: Catalog, panes: Panes, base: str, tables: Mapping[str, str]) -> str | None:
    """The same as a relation of DuckDB's, over the relation `base` of the other table's partials, and those of static
    tables by placeholder; None if DuckDB would compute it differently."""
    assert panes.above is not None
    if not all(column.duckdb for column in panes.columns):
        return None
    types = {key.name: key.type for key in catalog.panes(panes.above.panes).keys}
    fields = [Field(name, types[key]) for name, key in panes.above.names.items()]
    fields += [Field(f"__k{index}", types[key]) for index, key in enumerate(panes.above.places)]
    fields += [field for table in _tables(catalog, panes).values() for field in table.fields]
    text = _text(panes, "duckdb", {"@stream": base, **tables}, fields)
    return f"({text})" if text is not None else None


def write_own_files(
    core: Core, catalog: Catalog, panes: Panes, snapshot: Snapshot, staged: list[Path]
) -> tuple[DataFile, ...]:
    """The files of a pane table that becomes independent of another."""
    time = PANE if panes.time is not None else None
    names = [quote_name(field.name) for field in pane_fields(panes)]
    made = frame(core, catalog, panes, snapshot).select(*names)
    return write_frame(core.ledger, panes.id, made, small=False, time=time, staged=staged)


def _tables(catalog: Catalog, panes: Panes) -> dict[str, Table]:
    """The static tables of a pane table, by placeholder."""
    found = {}
    for placeholder, id in panes.statics.items():
        table = catalog[id]
        assert isinstance(table, Table)
        found[placeholder] = table
    return found


def _text(
    panes: Panes, engine: Engine, relations: Mapping[str, str] | None = None, fields: Sequence[Field] = ()
) -> str | None:
    """The partials as a query; for DuckDB over `relations`, and None if DuckDB would compute it differently."""
    above, spark = panes.above, engine == "spark"
    assert above is not None
    quote = quote_name if spark else quoted
    row = quote(above.exposed)

    def written(text: str) -> str | None:
        behind = f" FROM {above.from_text}"
        return text if spark else driver_sql(text, (relations or {}).get, fields, before="SELECT ", behind=behind)

    inside = [f"{quote(key)} AS {quote(name)}" for name, key in above.names.items()]
    inside += [f"{quote(key)} AS {quote(f'__k{index}')}" for index, key in enumerate(above.places)]
    inside += [f"{PANE} AS __pane"] if panes.time is not None else []
    inside += [f"{quote(above.columns[column.name])} AS __p{index}" for index, column in enumerate(panes.columns)]
    rows = f"(SELECT {', '.join(inside)} FROM {STREAM if spark else (relations or {})['@stream']})"
    if spark:
        source: str | None = above.from_text.replace(STREAM, rows)
    else:
        given = {**(relations or {}), "@stream": rows}
        source = driver_sql(above.from_text, given.get, fields, before="SELECT * FROM ")
    keys = [written(above.keys[key.name]) for key in panes.keys]
    where = written(above.where) if above.where is not None else "true"
    if source is None or where is None or None in keys:
        return None
    items = [f"{text} AS {quote(key.name)}" for key, text in zip(panes.keys, keys, strict=True)]
    groups = [f"({text})" for text in keys]
    if panes.time is not None:
        micros = "unix_micros" if spark else "epoch_us"
        start = window_position_sql(panes, f"{micros}({row}.__pane)", engine)[0]
        groups.append(f"({start})")
        items.append(f"{f'timestamp_micros({start})' if spark else timestamp(start)} AS {PANE}")
    for index, column in enumerate(panes.columns):
        part = f"{row}.__p{index}"
        reduced = column.reduce.format(c=part) if spark else column.reduce_in_duckdb(part)
        items.append(f"CAST({reduced} AS {column.type if spark else duckdb_type(column.type)}) AS {quote(column.name)}")
    tail = f" GROUP BY {', '.join(groups)}" if groups else " HAVING count(*) > 0"
    return f"SELECT {', '.join(items)} FROM {source} WHERE {where}{tail}"
