"""Changes of a node in buckets: Spark's tasks, each with DuckDB over the rows whose keys have the same hash.

The text is the driver's own, over files instead of tables in memory, with a condition that says which rows are in the
bucket of a task. So one job gives all changes of a node: of a join, the pairs of new rows; of a node with keys,
f(state | touched keys) - what was shown for them. What the driver would decline is left to Spark's own engine.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch import bucket
from anabranch.algebra.reach import Range
from anabranch.bucket import Task
from anabranch.duck import LEFT_TO_SPARK, Variable, in_bucket, quoted
from anabranch.engine.bucket_files import RUN, FilesByBucket, hash_of, is_hashed, lasting
from anabranch.engine.core import Core
from anabranch.engine.driver_changes import Query, Touched, since_start
from anabranch.engine.kernels import Ahead, query_of
from anabranch.engine.maintain import deltas
from anabranch.engine.table_cache import CachedRange, file_rows, where_within
from anabranch.engine.tables import change_fields
from anabranch.engine.writing import adopt_files
from anabranch.kernel import ROWS, Declined
from anabranch.ledger import Bucket, DataFile, Snapshot
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.render.join_keys import join_keys
from anabranch.sql.text import quote_name
from anabranch.types import INTEGERS, Field

if TYPE_CHECKING:
    from anabranch.engine.maintain.commit import Commit


def changes(commit: Commit, view: View) -> tuple[DataFile, ...] | None:
    """The changes of a node for a commit; None if they are left to Spark's own engine."""
    core = commit.core
    if not available(core) or not core.driver_changes.fits(commit, view):
        return None
    query = _InBuckets(commit, view)
    try:
        text = query.text()
    except NotApplicable:
        return None
    if text is None:
        return ()
    slots = core.spark.sparkContext.defaultParallelism
    rows, state = commit.new_rows(view), query.files.rows
    count = core.place.buckets(rows, state, slots) if query.split else 1
    if not query.split and rows + state > core.place.limits.state_rows:
        return None
    statements, lists = tuple(query.statements), query.files.lists
    tasks = [Task(text, statements, number, count, lists.of(number, count)) for number in range(count)]
    table, time = view.changes_table, view.time or None
    files = write(core, [Wanted(table, time, tasks, query.hash_of_changes)])[0]
    if isinstance(files, Declined):
        if LEFT_TO_SPARK in files.reason:
            core.driver_changes.leave(view)
        commit.backends[view.id] = f"by Spark: {files.reason}"
        return None
    reason = commit.backends.get(view.id, "").removeprefix("by Spark")
    commit.backends[view.id] = f"{in_words(count, query.split)}{reason}"
    return files


def available(core: Core) -> bool:
    """Whether executors can compute buckets, and may."""
    return core.place.kernels and core.kernels.unavailable() is None


def in_words(count: int, keys: Sequence[str]) -> str:
    """Where changes were computed that tasks gave."""
    return f"in kernels, {count} buckets by {', '.join(keys)}" if count > 1 else "in kernels, 1 bucket"


def look_ahead(commit: Commit, stream: Stream, rows: int, written: frozenset[str]) -> Ahead | None:
    """The nodes whose changes the tasks that read the rows of a run can compute too: all they need is in one bucket.

    `commit` is the one to come, as if the tables that the tasks write had a file RUN each.
    """
    core, lists = commit.core, FilesByBucket()
    found: list[tuple[View, _InBuckets, str]] = []
    for view in commit.catalog.of(View):
        if not fits_run(commit.catalog, view, stream, written) or not core.driver_changes.fits(commit, view):
            continue
        query = _InBuckets(commit, view, stream, lists)
        if core.place.takes_changes(rows, 0 if view.query.direct else query.state_rows()):
            continue  # the driver takes less time
        with suppress(NotApplicable):
            text = query.text()
            assert text is not None  # there are rows
            found.append((view, query, text))
    slots, split = core.spark.sparkContext.defaultParallelism, ""
    count = core.place.buckets(rows, sum(query.files.rows for _, query, _ in found), slots)
    if count > 1:
        split = next((query.row_hash for _, query, _ in found if query.row_hash), "")
        found = [each for each in found if each[1].row_hash == split]
    if not found or (count > 1 and not split):
        return None
    queries = [
        (query_of(view.changes_table, change_fields(view, None), text, tuple(query.statements)), view.time or None)
        for view, query, text in found
    ]
    return Ahead(split, count, tuple(queries), lists)


def fits_run(catalog: Catalog, view: View, stream: Stream, written: frozenset[str]) -> bool:
    """Whether the changes of a node follow from the rows of a run and tables that no other node changes.

    `written` are the tables that the tasks of the run write.
    """
    query, emission = view.query, view.emission
    if not view.kept or emission.mode != "feed" or emission.closing or emission.late == "drop":
        return False
    if query.views or query.asks or view.drops_late_of or view.state.stopped:
        return False
    if view.operator == "join":
        return stream.rows_table in written and stream.id in query.streams.values() and not query.blocks
    return (
        view.operator == "keyed"
        and not view.join.steps
        and bool(view.inputs)
        and written >= {*catalog.tables_read(view)}
    )


@dataclass(frozen=True)
class Wanted:
    """A table that tasks add files to, its time column, and the hash by which each task writes one bucket of it.

    `rows` collects the rows that tasks return to the driver, unless one declines.
    """

    table: str
    time: str | None
    tasks: Sequence[Task]
    hash: str = ""
    rows: list[tuple[Any, ...]] = field(default_factory=list)


def write(core: Core, wanted: Sequence[Wanted]) -> list[tuple[DataFile, ...] | Declined]:
    """Have the tasks of one job write files of tables."""
    ledger = core.ledger
    tasks = [task for each in wanted for task in each.tasks]
    folder = ledger.stage()
    try:
        reach("during-kernels")
        compute = partial(bucket.compute, str(folder), core.kernels.task_memory())
        done = core.kernels.run(compute, tasks)
        if done is None:
            return [Declined("executors run no kernels")] * len(wanted)
        reach("after-kernels")
        found: list[tuple[DataFile, ...] | Declined] = []
        for each in wanted:
            results, done = done[: len(each.tasks)], done[len(each.tasks) :]
            declined = next((result for result in results if isinstance(result, Declined)), None)
            files: list[DataFile] = []
            for task, result in zip(each.tasks, results, strict=True) if declined is None else ():
                each.rows.extend(result.rows)
                if result.file is not None:
                    own = Bucket(lasting(each.hash), task.bucket, task.buckets) if each.hash else None
                    files += adopt_files(ledger, each.table, [folder / result.file], each.time, own)
            found.append(declined or tuple(files))
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Files:
    """Tables of the ledger as tasks read them; says how many rows they are."""

    def __init__(self, commit: Commit, lists: FilesByBucket | None) -> None:
        self._ledger = commit.core.ledger
        self.rows = 0  # of all that was asked for
        self.lists = FilesByBucket() if lists is None else lists

    def relation(self, table: str, snapshot: Snapshot, fields: Sequence[Field]) -> str:
        return self._relation(table, snapshot, fields, None, None)

    def within(self, share: CachedRange, table: str, snapshot: Snapshot, fields: Sequence[Field], times: Range) -> str:
        low, high = times
        found = self._relation(table, snapshot, fields, low, None if high is None else high + 1)
        return f"(SELECT * FROM {found}{where_within(share.time, low, high)})"

    def _relation(
        self, table: str, snapshot: Snapshot, fields: Sequence[Field], low: int | None, beyond: int | None
    ) -> str:
        found = [file for file in snapshot.files.get(table, {}).values() if file.may_hold(low, beyond)]
        self.rows += sum(file.rows for file in found)
        kept = file_rows(self.paths(table, [file for file in found if file.path != RUN]), fields)
        if all(file.path != RUN for file in found):
            return kept
        return f"(SELECT * FROM {kept} UNION ALL SELECT * FROM {_run_rows(fields)})"

    def paths(self, table: str, files: Iterable[DataFile]) -> list[str] | Variable:
        return self.lists.paths(table, self._ledger.table_folder(table), files)


class _InBuckets(Query):
    """The statement of one node for one commit, as each task is given it."""

    def __init__(
        self, commit: Commit, view: View, run: Stream | None = None, lists: FilesByBucket | None = None
    ) -> None:
        super().__init__(commit, view)
        self._run = run  # the stream whose new rows are in no file yet, but at hand in each task
        self.files = _Files(commit, lists)
        self.table_cache = self.files  # type: ignore[assignment]
        #: What tasks do before they ask.
        self.statements: list[str] = []
        self._columns = self._join_columns() if view.row_by_row else {}
        #: The columns of the key that says which bucket a row is in; none: all rows are in one.
        self.split = tuple(dict.fromkeys(name for name, _ in self._columns.values()))
        self._add_hashes((self._table_of(input), hash_of([column])) for input, column in self._columns.items())
        self.files.rows = 0 if view.row_by_row else self.state_rows()

    def _join_columns(self) -> dict[str, tuple[str, str]]:
        """By which column each input of a join is split, and its type; inputs that are not here are read by all tasks.

        Of each row that comes out, the rows of the others are those of one bucket: so it comes out once.
        """
        types = {
            input: {field.name: field.type for field in self.fields_of(self.view, input) or ()}
            for input in self.view.inputs
        }
        if deltas.may_cancel_out(self.commit, self.view):
            return {}  # a row that one bucket gives and another takes back is no change
        if self.view.operator == "stateless":
            ((input, columns),) = types.items()
            return next(({input: each} for each in columns.items() if is_hashed(each[1])), {})
        known = tuple((input, tuple(columns)) for input, columns in types.items())
        for equal in join_keys(self.view.query.text, known):
            found = {input: (name, types[input][name]) for input, name in equal.items()}
            kinds = {_kind(type) for _, type in found.values()}
            if len(kinds) == 1 and is_hashed(*kinds):
                return found
        return {}

    def _table_of(self, input: str) -> str:
        """The table that stores the rows of an input unchanged; empty if there is none."""
        query, catalog = self.view.query, self.catalog
        if input in query.streams:
            return catalog.stream(query.streams[input]).rows_table
        if input in query.views and catalog.view(query.views[input]).kept:
            return catalog.view(query.views[input]).changes_table
        return next((use.panes for use in query.blocks if use.placeholder == input), "")

    def _add_hashes(self, hashes: Iterable[tuple[str, str]]) -> None:
        """Record the hash by which tasks split each table; none for a table that two inputs split in different ways."""
        known = self.files.lists.hashes
        for table, hash in hashes:
            known[table] = hash if known.get(table, hash) == hash else ""

    def paths(self, table: str, snapshot: Snapshot) -> list[str] | Variable:
        return self.files.paths(table, snapshot.files.get(table, {}).values())

    @property
    def hash_of_changes(self) -> str:
        """The hash by which tasks split the changes; empty if they do not."""
        return self.files.lists.hashes.get(self.view.changes_table, "") if not self.view.row_by_row else ""

    @property
    def row_hash(self) -> str:
        """The hash that assigns a new row of the stream to a bucket; empty if there is none for all inputs."""
        assert self._run is not None
        if not self.view.row_by_row:
            types = {field.name: field.type for field in self._run.row_fields}
            return hash_of((name, types[name]) for name in self._columns_of_keys().values())
        columns = {self._columns.get(input) for input, id in self.view.query.streams.items() if id == self._run.id}
        (column,) = columns if len(columns) == 1 else (None,)
        return hash_of([column]) if column is not None else ""

    def _columns_of_keys(self) -> dict[int, str]:
        """The columns of a key, by number, that are columns of the new rows; the same of each input."""
        assert self._run is not None
        types = {field.name: field.type for field in self._run.row_fields}
        names_of = {text: name for name in types for text in (name, quote_name(name))}
        uses = {use.placeholder: self.catalog.panes(use.panes) for use in self.view.query.blocks}
        keys, found = self.view.keying.columns, list[dict[int, str]]()
        narrows = {narrow.input: narrow.columns for narrow in self.view.keying.narrows}
        for input in self.view.inputs:
            columns = {name: name for name in types}
            if input in uses:
                columns = {key.name: names_of.get(key.expression, "") for key in uses[input].keys}
            own = {index: columns.get(name or "", "") for index, name in enumerate(narrows.get(input, ()))}
            # Equal values of different types can have different hashes.
            alike = (index for index, name in own.items() if name and _kind(types[name]) == _kind(keys[index].type))
            found.append({index: own[index] for index in alike if is_hashed(keys[index].type)})
        return found[0] if all(each == found[0] for each in found) else {}

    def relation(
        self,
        view: View,
        placeholder: str,
        snapshot: Snapshot,
        within: Range | None = None,
        kept_by: tuple[View, str] | None = None,
    ) -> str | None:
        return self._in_bucket(view, placeholder, super().relation(view, placeholder, snapshot, within, kept_by))

    def delta(self, view: View, placeholder: str, sign: int) -> str | None:
        for use in view.query.blocks if self._run is not None else ():
            if use.placeholder == placeholder:
                added = self.commit.added[use.panes]
                return self._panes(use, self.files.paths(use.panes, added)) if sign >= 0 else None
        if self._run is None or view.query.streams.get(placeholder) != self._run.id:
            return self._in_bucket(view, placeholder, super().delta(view, placeholder, sign))
        fields = self._run.row_fields if self._run.id in view.beginning.rows else self._run.seen_as(placeholder)
        return since_start(view, self._run, placeholder, _run_rows(fields)) if sign >= 0 else None

    def _in_bucket(self, view: View, placeholder: str, rows: str | None) -> str | None:
        column = self._columns.get(placeholder) if view is self.view else None
        if column is None or rows is None:
            return rows
        return f"(SELECT * FROM {rows} WHERE {in_bucket(hash_of([column]))})"

    def touch_sessions(self) -> bool | None:
        ends = self.view.progress.ends
        if ends is not None and ends.gap:
            raise NotApplicable("sessions are followed from row to row")
        return None

    def touch_keys(self, text: str) -> bool:
        keys = self.view.keying.columns
        hashed = [index for index, key in enumerate(keys) if is_hashed(key.type)]
        if self._run is not None:
            hashed = sorted(self._columns_of_keys())
        self.split = tuple(keys[index].name for index in hashed)
        where = f" WHERE {in_bucket(hash_of((f'k{index}', keys[index].type) for index in hashed))}" if hashed else ""
        self._add_hashes(self._hashes_of_keys(hashed))
        self.statements.append(f"CREATE OR REPLACE TEMP TABLE __touched AS SELECT * FROM ({text}){where}")
        self.touched = tuple(_TouchedInTask.of(index, key.type, self.statements) for index, key in enumerate(keys))
        return True

    def _hashes_of_keys(self, hashed: Sequence[int]) -> Iterator[tuple[str, str]]:
        """The tables whose rows are found by the touched keys, each with the hash of the columns that hold them."""
        keys = self.view.keying.columns
        yield self.view.changes_table, hash_of((keys[index].name, keys[index].type) for index in hashed)
        narrowed = {narrow.input: narrow.columns for narrow in self.view.keying.narrows}
        for input in self.view.inputs:
            columns, types = narrowed.get(input, ()), {f.name: f.type for f in self.fields_of(self.view, input) or ()}
            own = [columns[index] if index < len(columns) else None for index in hashed]
            known = [(name, types[name]) for name in own if name is not None and name in types]
            kinds = [_kind(type) for _, type in known]
            # Equal values of different types can have different hashes.
            alike = kinds == [_kind(keys[index].type) for index in hashed]
            yield self._table_of(input), hash_of(known) if alike else ""


class _TouchedInTask(Touched):
    """What a task finds out about a column of the touched keys, as variables."""

    @classmethod
    def of(cls, index: int, type: str, statements: list[str]) -> _TouchedInTask:
        along = {"timestamp": f"epoch_us(k{index})"}.get(type, f"k{index}" if type in INTEGERS else "NULL")
        low, high = f"k{index}_low", f"k{index}_high"
        missing = f"(SELECT count(*) FROM __touched WHERE k{index} IS NULL) > 0"
        for name, least in ((low, "min"), (high, "max")):
            statements.append(
                f"SET VARIABLE {name} = (SELECT CASE WHEN {missing} THEN NULL ELSE {least}({along}) END FROM __touched)"
            )
        return cls(type, 1, low, high)  # type: ignore[arg-type]

    def within(self, column: str, least: int = 0, most: int = 0) -> list[str]:
        if self.type not in (*INTEGERS, "timestamp"):
            return []
        low, high = f"getvariable('{self.low}') + {least}", f"getvariable('{self.high}') + {most}"
        if self.type == "timestamp":
            low, high = f"make_timestamptz({low})", f"make_timestamptz({high})"
        return [f"({column} BETWEEN {low} AND {high} OR getvariable('{self.low}') IS NULL)"]


def _kind(type: str) -> str:
    """A type, the same for all whole numbers: their hash does not depend on their width."""
    return "bigint" if type in INTEGERS else type


def _run_rows(fields: Sequence[Field]) -> str:
    """The new rows of a run as its tasks have them, as a relation with these columns."""
    items = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in fields)
    return f"(SELECT {items} FROM {ROWS})"
