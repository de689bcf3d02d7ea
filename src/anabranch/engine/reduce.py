"""The reducer: many small files of a table into few, partials of a group into one. Never changes an answer.

Files are merged by size, as in an LSM tree: when there are enough files of about one size they become one file of the
next. So a table has few files however many runs it had, and a row is rewritten a few times, not once a run.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.algebra.windows import Engine
from anabranch.algebra.windows.spans import COUNT, ENDING, FORM, WEIGHT
from anabranch.duck import path_list, quoted
from anabranch.engine.core import Core, Stopwatch
from anabranch.engine.emit import connection, copy_to_table, pane_source
from anabranch.engine.places import settle_sql
from anabranch.engine.tables import PANE, pane_fields, place_fields
from anabranch.engine.writing import adopt_folder
from anabranch.ledger import DataFile, Draft, Snapshot, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import Catalog, Panes, Stream, View
from anabranch.plan.describe import append_only
from anabranch.plan.views import duckdb_type
from anabranch.sql.lexer import quote_name

#: So many files of one size are merged.
FAN_IN = 8
#: A file of less than this is of the smallest size; each size is FAN_IN times the one before.
SMALLEST = 64 << 10


def due(files: Iterable[DataFile]) -> list[DataFile]:
    """The files to merge now: all up to the largest size of which there are enough; none if there is no such size.

    >>> due([DataFile(str(n), 1, 1000) for n in range(7)])
    []
    >>> len(due([DataFile(str(n), 1, 1000) for n in range(9)]))
    9
    """
    levels: dict[int, list[DataFile]] = {}
    for file in files:
        level, limit = 0, SMALLEST
        while file.bytes >= limit:
            level, limit = level + 1, limit * FAN_IN
        levels.setdefault(level, []).append(file)
    full = [level for level, members in levels.items() if len(members) >= FAN_IN]
    if not full:
        return []
    return [file for level, members in levels.items() if level <= max(full) for file in members]


def reduce_due(core: Core, tables: Iterable[str]) -> int:
    """Reduce the tables that need it; how many were."""
    files = core.ledger.snapshot().files
    wanting = [table for table in tables if due(files.get(table, {}).values())]
    return reduce_tables(core, wanting) if wanting else 0


def reduce_tables(core: Core, tables: Iterable[str], *, everything: bool = False) -> int:
    """Merge files of tables; holds the commit lock, and ends with one record for all of them. How many were merged."""
    watch = Stopwatch()
    with core.ledger.commit_lock:
        snapshot = core.ledger.snapshot()
        changes: dict[str, TableChange] = {}
        for table in tables:
            files = list(snapshot.files.get(table, {}).values())
            chosen = files if everything else due(files)
            if len(chosen) < 2:
                continue
            reach("before-reduce")
            added = _merge(core, table, chosen, snapshot)
            changes[table] = TableChange(add=added, remove=tuple(file.path for file in chosen))
        if not changes:
            return 0
        watch.lap("reduce")
        reach("after-reduce-files")
        core.ledger.commit(Draft("reduce", tables=changes, milliseconds=watch.total()))
        reach("after-reduce")
        for table, change in changes.items():
            core.hot.merged(table, change.remove, change.add)
            core.warm.merged(table, change.remove, change.add)
        return len(changes)


def _merge(core: Core, table_id: str, chosen: list[DataFile], snapshot: Snapshot) -> tuple[DataFile, ...]:
    catalog = core.catalog(snapshot)
    folder = core.ledger.table_folder(table_id)
    paths = [str(folder / file.path) for file in chosen]
    panes = catalog.objects.get(table_id)
    time = _time_column(core, table_id, snapshot)
    for view in catalog.of(View):
        if table_id == view.changes_table and view.node and not view.stream and not append_only(view, catalog):
            order = f" ORDER BY {quoted(time)}" if time is not None else ""
            return copy_to_table(core, connection(), _net_text(view, paths) + order, table_id, time)
        if table_id == view.pending_table:
            return copy_to_table(core, connection(), _last_text(view, paths), table_id, time)
    if not isinstance(panes, Panes):
        order = f" ORDER BY {quoted(time)}" if time is not None else ""
        text = f"SELECT * FROM read_parquet({path_list(paths)}, union_by_name = true){order}"
        return copy_to_table(core, connection(), text, table_id, time)
    known = all(duckdb_type(field.type) for field in pane_fields(panes))
    if known and all(column.duckdb for column in panes.columns):
        return copy_to_table(core, connection(), _reduce_text(panes, paths), table_id, time)
    partials = [
        f"CAST({column.reduce.format(c=quote_name(column.name))} AS {column.type}) AS {quote_name(column.name)}"
        for column in panes.columns
    ]
    text = _grouped(panes, [quote_name(key.name) for key in panes.keys], partials, "`@panes`", "spark")
    frame = core.frames.sql(text, {"@panes": core.frames.parquet(paths, pane_fields(panes))}).coalesce(1)
    if panes.time is not None:
        frame = frame.sortWithinPartitions(PANE)
    staged = core.ledger.stage()
    frame.write.mode("append").parquet(str(staged))
    return adopt_folder(core.ledger, table_id, staged, time)


def _net_text(view: View, paths: list[str]) -> str:
    """Changes added up: a row that was given out and taken back is gone. Who follows them reads the files of old."""
    columns = ", ".join(quoted(field.name) for field in (*view.fields, *view.hidden))
    return (
        f"SELECT {columns}, CAST(sum(_diff) AS BIGINT) AS _diff, max(_version) AS _version, max(_at) AS _at"
        f" FROM read_parquet({path_list(paths)}, union_by_name = true) GROUP BY {columns} HAVING sum(_diff) <> 0"
    )


def _last_text(view: View, paths: list[str]) -> str:
    """The last line of each key."""
    keys = ", ".join(f"k{index}" for index in range(len(view.keys)))
    apart = f"PARTITION BY {keys} " if keys else ""
    files = f"read_parquet({path_list(paths)}, union_by_name = true)"
    return f"SELECT * FROM {files} QUALIFY row_number() OVER ({apart}ORDER BY _version DESC) = 1"


def _reduce_text(panes: Panes, paths: list[str]) -> str:
    """The reduce of every column, by DuckDB; columns that no view needs any more are left behind."""
    partials = []
    for column in panes.columns:
        name = quoted(column.name)
        partials.append(f"CAST({column.reduce_in_duckdb(name)} AS {duckdb_type(column.type)}) AS {name}")
    source = pane_source(panes, [column.name for column in panes.columns], paths)
    # Sorted by pane, so that a reader of one window skips the rest of the file by its row groups.
    order = f" ORDER BY {PANE}" if panes.time is not None else ""
    return _grouped(panes, [quoted(key.name) for key in panes.keys], partials, source, "duckdb") + order


def _grouped(panes: Panes, keys: list[str], partials: list[str], source: str, engine: Engine) -> str:
    """The partials of each group and pane as one; of groups that have become large, those of each window."""
    place = [field.name for field in place_fields(panes)]
    group = f" GROUP BY {', '.join([*keys, *place])}" if keys or place else ""
    if not panes.spanned:
        return f"SELECT {', '.join([*keys, *place, *partials])} FROM {source}{group}"
    standing = [f"coalesce(sum({ENDING}), 0) AS {WEIGHT}", f"max({FORM}) AS {FORM}"]
    items = ", ".join([*keys, f"unix_micros({PANE}) AS {PANE}", COUNT, *standing, *partials])
    # What is grouped by is the column, and not the number that takes its name.
    merged = f"(SELECT {items} FROM {source} AS __merged GROUP BY {', '.join([*keys, f'__merged.{PANE}', COUNT])})"
    return settle_sql(panes, panes.columns, merged, engine)


def _time_column(core: Core, table_id: str, snapshot: Snapshot) -> str | None:
    catalog = core.catalog(snapshot)
    found = catalog.objects.get(table_id)
    if isinstance(found, Panes):
        return PANE if found.time is not None else None
    for stream in catalog.of(Stream):
        if stream.rows_table == table_id:
            return stream.time
    for view in catalog.of(View):
        if view.changes_table == table_id:
            return "_window" if view.direct and not view.node else view.time or None
    return None


def pinned(core: Core, oldest: int) -> set[tuple[str, int]]:
    """The versions of static tables that views still read, and those they read at the oldest version to be kept."""
    ledger, catalogs = core.ledger, [core.catalog()]
    if ledger.oldest <= oldest < ledger.version:
        catalogs.append(Catalog(ledger.snapshot(oldest).catalog))
    found: set[tuple[str, int]] = set()
    for number, catalog in enumerate(catalogs):
        for each in catalog.objects.values():
            if isinstance(each, Panes | View) or hasattr(each, "statics_at"):
                pins = {(table, at[0]) for table, at in each.statics_at.items()}
                found |= {pin for pin in pins if not number or ledger.has(*pin)}
    return found


def vacuum(core: Core) -> int:
    """Delete files that nobody can ask for any more; those that a sink has still to read stay."""
    needed = core.sinks.needed()
    keep = core.ledger.keep_versions
    if needed is not None:
        keep = max(keep, core.ledger.version - needed + 1)
    return core.ledger.vacuum(keep, lambda oldest: pinned(core, oldest))
