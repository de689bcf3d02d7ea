"""The reducer: many small files of a table into few, partials of a group into one. Never changes an answer.

Files are merged by size, as in an LSM tree: when there are enough files of about one size they become one file of the
next, up to a top size. So a table has few files however many runs it had, and a row is rewritten a few times, not once
a run. Runs go on while files are merged. Files of one bucket are merged with each other, and a table too large for the
driver is split into buckets.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.algebra.windows import Engine
from anabranch.algebra.windows.spans import COUNT, ENDING, FORM, WEIGHT
from anabranch.bucket import Task
from anabranch.duck import in_bucket, path_list, quoted
from anabranch.engine import buckets
from anabranch.engine.bucket_files import hash_of, hash_of_partials, lasting, split
from anabranch.engine.buckets import Wanted
from anabranch.engine.core import Core, Stopwatch
from anabranch.engine.driver import connection, copy_to_table
from anabranch.engine.frames import is_data_error
from anabranch.engine.pane_sql import pane_source
from anabranch.engine.partial_windows import kept_partials_sql
from anabranch.engine.pending_table import pending_fields
from anabranch.engine.place import Limits
from anabranch.engine.tables import PANE, pane_fields, window_position_fields
from anabranch.engine.writing import adopt_folder
from anabranch.kernel import Declined
from anabranch.ledger import Bucket, DataFile, Draft, Snapshot, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.describe import append_only
from anabranch.plan.states import Panes
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

#: Files that lack a column have NULL for it.
BY_NAME = "union_by_name = true"
#: So many files of one size are merged.
FAN_IN = 8
#: A file of less than this is of the smallest size; each size is FAN_IN times the one before.
SMALLEST = 64 << 10


def due(files: Iterable[DataFile], top: int = Limits.file_bytes) -> list[DataFile]:
    """The files to merge now: all up to the largest size of which there are enough; none if there is no such size.

    Files of the top size stay as they are: to write them again would cost more than it spares.

    >>> due([DataFile(str(n), 1, 1000) for n in range(7)])
    []
    >>> len(due([DataFile(str(n), 1, 1000) for n in range(9)]))
    9
    >>> due([DataFile(str(n), 1, 1000) for n in range(9)], top=1000)
    []
    """
    levels: dict[int, list[DataFile]] = {}
    for file in files:
        if file.bytes >= top:
            continue
        level, limit = 0, SMALLEST
        while file.bytes >= limit:
            level, limit = level + 1, limit * FAN_IN
        levels.setdefault(level, []).append(file)
    full = [level for level, members in levels.items() if len(members) >= FAN_IN]
    if not full:
        return []
    return [file for level, members in levels.items() if level <= max(full) for file in members]


@dataclass(frozen=True)
class _Merge:
    """Files of a table, all in one bucket or in none, to merge into one file, or into one for each bucket of `into`."""

    table: str
    files: list[DataFile]
    hash: str = ""
    into: Sequence[Bucket] = ()

    @property
    def size(self) -> int:
        return sum(file.bytes for file in self.files)


def reduce_due(core: Core, tables: Iterable[str]) -> int:
    """Reduce the tables that need it; how many were."""
    snapshot = core.ledger.snapshot()
    wanting = [table for table in tables if _chosen(core, snapshot, table, everything=False)]
    return reduce_tables(core, wanting) if wanting else 0


def reduce_tables(core: Core, tables: Iterable[str], *, everything: bool = False) -> int:
    """Merge files of tables, and end with one record for all of them. How many were merged.

    Runs go on meanwhile: files are merged as a snapshot has them, and the commit lock is taken to see whether they are
    all there still. What was merged in vain is deleted; the next run tries again.
    """
    watch = Stopwatch()
    with core.merging(tables) as mine, core.pinned() as snapshot:
        changes: dict[str, TableChange] = {}
        try:
            chosen = [each for table in mine for each in _chosen(core, snapshot, table, everything)]
            for merge, added in _merged(core, chosen, snapshot):
                before = changes.get(merge.table, TableChange())
                removed = (*before.remove, *(file.path for file in merge.files))
                changes[merge.table] = TableChange(add=(*before.add, *added), remove=removed)
            watch.lap("reduce")
            reach("after-reduce-files")
            return _commit(core, snapshot, changes, watch) if changes else 0
        except BaseException:
            core.ledger.give_up({table: change.add for table, change in changes.items()})
            raise


def _chosen(core: Core, snapshot: Snapshot, table: str, everything: bool) -> list[_Merge]:
    files, top = snapshot.files.get(table, {}).values(), core.place.limits.file_bytes
    groups: dict[Bucket | None, list[DataFile]] = {}
    for file in files:
        groups.setdefault(file.bucket, []).append(file)
    found = []
    for bucket, group in groups.items():
        merged = [file for file in group if file.bytes < top] if everything else due(group, top)
        if len(merged) > 1:
            found.append(_into_buckets(core, snapshot, _Merge(table, merged), bucket))
    return found


def _into_buckets(core: Core, snapshot: Snapshot, merge: _Merge, bucket: Bucket | None) -> _Merge:
    """A merge, split into buckets if its table is too large for the driver."""
    hash = _state_hash(core, merge.table, snapshot)
    whole = Bucket(lasting(hash), 0, 1)
    if not hash or (bucket is not None and bucket.by != whole.by) or not buckets.available(core):
        return merge
    if core.place.takes_changes(0, sum(file.rows for file in snapshot.files[merge.table].values())):
        return merge
    into = split(bucket or whole, sum(file.rows for file in merge.files), core.place.rows_in_bucket)
    return replace(merge, hash=hash, into=into) if len(into) > 1 else merge


def _state_hash(core: Core, table: str, snapshot: Snapshot) -> str:
    """The hash by which tasks find the rows of a table of state; empty if there is none."""
    catalog = core.catalog(snapshot)
    found = catalog.objects.get(table)
    if isinstance(found, Panes):
        return hash_of_partials(found)
    keyed = (view for view in catalog.of(View) if view.changes_table == table and view.operator == "keyed")
    return next((hash_of((key.name, key.type) for key in view.keying.columns) for view in keyed), "")


def _commit(core: Core, merged_at: Snapshot, changes: dict[str, TableChange], watch: Stopwatch) -> int:
    """Replace the files that were merged, of the tables in which they are all there still; of how many tables."""
    with core.ledger.commit_lock:
        snapshot = core.ledger.snapshot()
        valid = {
            table: change
            for table, change in changes.items()
            if set(change.remove) <= snapshot.files.get(table, {}).keys()
            and _definition(core, table, snapshot) == _definition(core, table, merged_at)
        }
        core.ledger.give_up({table: change.add for table, change in changes.items() if table not in valid})
        if not valid:
            return 0
        core.ledger.commit(Draft("reduce", tables=valid, milliseconds=watch.total()))
        reach("after-reduce")
        for table, change in valid.items():
            for holder in (core.hot, core.table_cache, core.timers):
                holder.merged(table, change.remove, change.add)
        return len(valid)


def _definition(core: Core, table: str, snapshot: Snapshot) -> Any:
    """What says which columns of a pane table are needed: those that are not are gone from what is merged."""
    return core.catalog(snapshot).objects.get(table)


def _merged(core: Core, chosen: Sequence[_Merge], snapshot: Snapshot) -> Iterator[tuple[_Merge, tuple[DataFile, ...]]]:
    """Files of tables as others that say the same: by the driver or by a task each if they become one file, or one for
    each bucket, by Spark as several otherwise."""
    in_tasks: list[tuple[_Merge, str]] = []
    by_spark: list[_Merge] = []
    for merge in chosen:
        text = _one_file(core, merge, snapshot)
        if text is not None and core.place.takes_merge(merge.size) and not merge.hash:
            reach("before-reduce")
            time = _time_column(core, merge.table, snapshot)
            if (added := _fitting(partial(copy_to_table, core, connection(), text, merge.table, time))) is not None:
                yield merge, _in_its_bucket(merge, added)
        elif text is not None and (merge.hash or merge.size <= core.place.limits.file_bytes):
            in_tasks.append((merge, text))
        else:
            by_spark.append(merge)
    if in_tasks and buckets.available(core):
        reach("before-reduce")
        wanted = [
            Wanted(merge.table, _time_column(core, merge.table, snapshot), _tasks(merge, text), merge.hash)
            for merge, text in in_tasks
        ]
        for (merge, _), found in zip(in_tasks, buckets.write(core, wanted), strict=True):
            if isinstance(found, Declined):
                by_spark.append(merge)
            else:
                yield merge, found if merge.hash else _in_its_bucket(merge, found)
    else:
        by_spark += [merge for merge, _ in in_tasks]
    for merge in by_spark:
        reach("before-reduce")
        if (added := _fitting(partial(_merged_by_spark, core, merge, snapshot))) is not None:
            yield merge, _in_its_bucket(merge, added)


def _tasks(merge: _Merge, text: str) -> list[Task]:
    """One for each bucket, or one for all rows."""
    if not merge.hash:
        return [Task(text)]
    return [Task(text, (), bucket.number, bucket.of) for bucket in merge.into]


def _in_its_bucket(merge: _Merge, added: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    """Merged files, in the same bucket as the files they replace."""
    bucket = merge.files[0].bucket
    return tuple(replace(file, bucket=bucket) for file in added)


def _fitting(merge: Callable[[], T]) -> T | None:
    """What files become when they are merged; None where a sum is too large for its type.

    Its parts stay apart then: it may fit again with rows to come, and until then whoever adds them up is told.
    """
    import duckdb

    try:
        return merge()
    except duckdb.DataError:
        return None
    except Exception as error:
        if not is_data_error(error):
            raise
        return None


def _one_file(core: Core, merge: _Merge, snapshot: Snapshot) -> str | None:
    """What files are as one, or a bucket of it, as DuckDB is asked for it; None where that is Spark's to say."""
    folder = core.ledger.table_folder(merge.table)
    paths = [str(folder / file.path) for file in merge.files]
    where = f" WHERE {in_bucket(merge.hash)}" if merge.hash else ""
    panes = core.catalog(snapshot).objects.get(merge.table)
    if isinstance(panes, Panes):
        known = all(duckdb_type(field.type) for field in pane_fields(panes))
        return _reduce_text(panes, paths, where) if known and all(column.duckdb for column in panes.columns) else None
    files = f"(SELECT * FROM read_parquet({path_list(paths)}, {BY_NAME}){where})"
    return _merged_text(core, merge.table, merge.files, snapshot, "duckdb", files)


def _merged_by_spark(core: Core, merge: _Merge, snapshot: Snapshot) -> tuple[DataFile, ...]:
    table_id, chosen = merge.table, merge.files
    folder = core.ledger.table_folder(table_id)
    paths = [str(folder / file.path) for file in chosen]
    time = _time_column(core, table_id, snapshot)
    parts = -(-merge.size // core.place.limits.file_bytes) if core.place.limits.file_bytes > 0 else 1
    frame = _by_spark(core, table_id, chosen, snapshot, paths)
    if time is not None:
        column = quote_name(time)
        frame = frame.repartitionByRange(parts, column) if parts > 1 else frame.coalesce(1)
        frame = frame.sortWithinPartitions(column)
    else:
        frame = frame.coalesce(parts)
    staged = core.ledger.stage()
    try:
        frame.write.mode("append").parquet(str(staged))
        return adopt_folder(core.ledger, table_id, staged, time)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _by_spark(core: Core, table_id: str, chosen: list[DataFile], snapshot: Snapshot, paths: list[str]) -> DataFrame:
    from pyspark.sql.types import StructType

    panes = core.catalog(snapshot).objects.get(table_id)
    if isinstance(panes, Panes):
        partials = [
            f"CAST({column.reduce.format(c=quote_name(column.name))} AS {column.type}) AS {quote_name(column.name)}"
            for column in panes.columns
        ]
        text = _grouped(panes, [quote_name(key.name) for key in panes.keys], partials, "`@files`", "spark")
        return core.frames.sql(text, {"@files": core.frames.parquet(paths, pane_fields(panes))})
    schema = StructType.fromJson(dict(snapshot.schemas[table_id]))
    text = _merged_text(core, table_id, chosen, snapshot, "spark", "`@files`")
    return core.frames.sql(text, {"@files": core.spark.read.schema(schema).parquet(*paths)})


def _merged_text(
    core: Core, table_id: str, chosen: list[DataFile], snapshot: Snapshot, engine: Engine, files: str
) -> str:
    """The rows of files, or what they add up to; of a table that is not one of partials."""
    catalog, quote = core.catalog(snapshot), quoted if engine == "duckdb" else quote_name
    time = _time_column(core, table_id, snapshot)
    order = f" ORDER BY {quote(time)}" if time is not None and engine == "duckdb" else ""
    for view in catalog.of(View):
        if (
            table_id == view.changes_table
            and view.operator
            and not view.emission.as_changes
            and not append_only(view, catalog)
        ):
            if engine == "spark" and any("map<" in field.type for field in view.fields):  # it groups by none
                break
            return _net_text([quote(field.name) for field in (*view.fields, *view.hidden)], files) + order
        if table_id == view.pending_table:
            whole = len(chosen) == len(snapshot.files[table_id])
            return _last_text(view, files, whole)
    return f"SELECT * FROM {files}{order}"


def _net_text(names: list[str], files: str) -> str:
    """Changes added up: a row that was given out and taken back is gone. Who follows them reads the files of old."""
    columns = ", ".join(names)
    return (
        f"SELECT {columns}, CAST(sum(_diff) AS BIGINT) AS _diff, max(_version) AS _version, max(_at) AS _at"
        f" FROM {files} GROUP BY {columns} HAVING sum(_diff) <> 0"
    )


def _last_text(view: View, files: str, whole: bool) -> str:
    """The last line of each key; of a whole table without keys that wait for nothing any more."""
    names = [field.name for field in pending_fields(view)]
    keys = ", ".join(names[: len(view.keying.columns)])
    partition = f"PARTITION BY {keys} " if keys else ""
    waits = "(records <> 0 OR deadline IS NOT NULL OR armed OR event_time IS NOT NULL)" if whole else "true"
    numbered = f"SELECT *, row_number() OVER ({partition}ORDER BY _version DESC) AS __n FROM {files}"
    return f"SELECT {', '.join(names)} FROM ({numbered}) WHERE __n = 1 AND {waits}"


def _reduce_text(panes: Panes, paths: list[str], where: str = "") -> str:
    """The reduce of every column, by DuckDB; columns that no view needs any more are left behind."""
    partials = []
    for column in panes.columns:
        name = quoted(column.name)
        partials.append(f"CAST({column.reduce_in_duckdb(name)} AS {duckdb_type(column.type)}) AS {name}")
    source = pane_source(panes, [column.name for column in panes.columns], paths)
    source = f"(SELECT * FROM {source}{where})" if where else source
    # Sorted by pane, so that a reader of one window skips the rest of the file by its row groups.
    order = f" ORDER BY {PANE}" if panes.time is not None else ""
    return _grouped(panes, [quoted(key.name) for key in panes.keys], partials, source, "duckdb") + order


def _grouped(panes: Panes, keys: list[str], partials: list[str], source: str, engine: Engine) -> str:
    """The partials of each group and pane as one; of groups that have become large, those of each window."""
    position = [field.name for field in window_position_fields(panes)]
    group = f" GROUP BY {', '.join([*keys, *position])}" if keys or position else ""
    if not panes.spanned:
        return f"SELECT {', '.join([*keys, *position, *partials])} FROM {source}{group}"
    group_size_items = [f"coalesce(sum({ENDING}), 0) AS {WEIGHT}", f"max({FORM}) AS {FORM}"]
    items = ", ".join([*keys, f"unix_micros({PANE}) AS {PANE}", COUNT, *group_size_items, *partials])
    # What is grouped by is the column, and not the number that takes its name.
    merged = f"(SELECT {items} FROM {source} AS __merged GROUP BY {', '.join([*keys, f'__merged.{PANE}', COUNT])})"
    return kept_partials_sql(panes, panes.columns, merged, engine)


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
            return "_window" if view.query.direct and not view.operator else view.time or None
    return None


def pinned(core: Core, oldest: int) -> set[tuple[str, int]]:
    """The versions of static tables that views still read, and those they read at the oldest version to be kept."""
    ledger, catalogs = core.ledger, [core.catalog()]
    if ledger.oldest <= oldest < ledger.version:
        catalogs.append(Catalog(ledger.snapshot(oldest).catalog))
    found: set[tuple[str, int]] = set()
    for number, catalog in enumerate(catalogs):
        for each in catalog.objects.values():
            if isinstance(each, Panes | View) or hasattr(each, "table_versions"):
                pins = {(table, at[0]) for table, at in each.table_versions.items()}
                found |= {pin for pin in pins if not number or ledger.has(*pin)}
    return found


def vacuum(core: Core) -> int:
    """Delete files that nobody can ask for any more; those that a sink has still to read stay."""
    needed = core.sinks.needed()
    keep = core.ledger.keep_versions
    if needed is not None:
        keep = max(keep, core.ledger.version - needed + 1)
    return core.ledger.vacuum(keep, lambda oldest: pinned(core, oldest))
