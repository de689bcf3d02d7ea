"""Changes of a node in buckets: Spark's tasks, each with DuckDB over the rows whose keys have the same hash.

The text is the driver's own, over files instead of tables in memory, with a condition that says which rows are in the
bucket of a task. So one job gives all changes of a node: of a join, the pairs of new rows; of a node with keys,
f(state | touched keys) - what was shown for them. What the driver would decline is left to Spark's own engine.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anabranch import bucket, kernel
from anabranch.algebra.reach import Range
from anabranch.bucket import Done, Task
from anabranch.duck import LEFT_TO_SPARK, in_bucket, quoted
from anabranch.engine.core import Core
from anabranch.engine.driver_changes import Query, Touched, since_start
from anabranch.engine.kernels import Ahead, query_of, task_memory
from anabranch.engine.maintain import deltas
from anabranch.engine.table_cache import CachedRange, file_rows, where_within
from anabranch.engine.tables import change_fields
from anabranch.engine.writing import adopt_files
from anabranch.kernel import ROWS, Declined
from anabranch.ledger import DataFile, Snapshot
from anabranch.ledger.crash import reach
from anabranch.plan.definitions import Stream
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.render.join_keys import join_keys
from anabranch.sources.row_groups import InGroups
from anabranch.types import INTEGERS, Field

if TYPE_CHECKING:
    from anabranch.engine.maintain.commit import Commit

#: In place of a file: the new rows of a run, which its tasks have at hand.
RUN = "__run"
#: Types whose equal values have the same hash, in Spark's eyes and DuckDB's.
_HASHED = ("string", "date", "timestamp", "timestamp_ntz", "boolean", "binary")


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
    tasks = [Task(text, tuple(query.statements), number, count) for number in range(count)]
    table, time = view.changes_table, view.time or None
    files = write(core, [(table, time, tasks)])[0]
    if isinstance(files, Declined):
        if LEFT_TO_SPARK in files.reason:
            core.driver_changes.leave(view)
        commit.places[view.id] = f"by Spark: {files.reason}"
        return None
    reason = commit.places.get(view.id, "").removeprefix("by Spark")
    commit.places[view.id] = f"{in_words(count, query.split)}{reason}"
    return files


def available(core: Core) -> bool:
    """Whether executors can compute buckets, and may."""
    return core.place.kernels and core.kernels.unavailable() is None


def in_words(count: int, keys: Sequence[str]) -> str:
    """Where changes were computed that tasks gave."""
    return f"in kernels, {count} buckets by {', '.join(keys)}" if count > 1 else "in kernels, 1 bucket"


def look_ahead(commit: Commit, stream: Stream, rows: InGroups) -> Ahead | None:
    """The joins whose changes the tasks that read a run can give too, for all that they need is in their bucket.

    `commit` is that of the commit to come, as if the rows were in a file RUN.
    """
    core, split, read = commit.core, "", 0
    queries: list[tuple[kernel.Query, str | None]] = []
    for view in commit.catalog.of(View):
        if not _fits_run(view, stream) or not core.driver_changes.fits(commit, view):
            continue
        query = _InBuckets(commit, view, stream)
        if not query.row_condition or query.row_condition != (split or query.row_condition):
            continue
        if core.place.takes_changes(rows.rows, query.state_rows()):
            continue  # on the driver it is sooner done
        with suppress(NotApplicable):
            text = query.text()
            assert text is not None  # there are rows
            split, read = query.row_condition, read + query.files.rows
            queries.append((query_of(view.changes_table, change_fields(view, None), text), view.time or None))
    return Ahead(split, read, tuple(queries)) if queries else None


def _fits_run(view: View, stream: Stream) -> bool:
    """Whether the changes of a node follow from the rows of a stream and tables that no other node changes."""
    if (
        not view.kept
        or view.operator != "join"
        or view.emission.mode != "feed"
        or stream.id not in view.query.streams.values()
    ):
        return False
    return (
        not (view.query.views or view.query.blocks or view.emission.closing or view.query.asks or view.state.stopped)
        and view.emission.late != "drop"
    )


def write(
    core: Core, wanted: Sequence[tuple[str, str | None, Sequence[Task]]]
) -> list[tuple[DataFile, ...] | Declined]:
    """Have the tasks of one job write files of tables; of each, its name, the column of its times and its tasks."""
    context, ledger = core.spark.sparkContext, core.ledger
    tasks = [task for _, _, each in wanted for task in each]
    folder = ledger.stage()
    try:
        reach("during-kernels")
        compute = partial(bucket.compute, str(folder), task_memory(context, core.place.limits))
        done = core.kernels.run(compute, tasks)
        if done is None:
            return [Declined("executors run no kernels")] * len(wanted)
        reach("after-kernels")
        found: list[tuple[DataFile, ...] | Declined] = []
        for table, time, own in wanted:
            results, done = done[: len(own)], done[len(own) :]
            declined = next((each for each in results if isinstance(each, Declined)), None)
            paths = [folder / each.file for each in results if isinstance(each, Done) and each.file is not None]
            found.append(declined or adopt_files(ledger, table, paths, time))
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Files:
    """Tables of the ledger as tasks read them; says how many rows they are."""

    def __init__(self, commit: Commit) -> None:
        self._ledger = commit.core.ledger
        self.rows = 0  # of all that was asked for

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
        folder = self._ledger.table_folder(table)
        kept = file_rows([str(folder / file.path) for file in found if file.path != RUN], fields)
        if all(file.path != RUN for file in found):
            return kept
        return f"(SELECT * FROM {kept} UNION ALL SELECT * FROM {_run_rows(fields)})"


class _InBuckets(Query):
    """The statement of one node for one commit, as each task is given it."""

    def __init__(self, commit: Commit, view: View, run: Stream | None = None) -> None:
        super().__init__(commit, view)
        self._run = run  # the stream whose new rows are in no file yet, but at hand in each task
        self.files = _Files(commit)
        self.table_cache = self.files  # type: ignore[assignment]
        #: What tasks do before they ask.
        self.statements: list[str] = []
        self._columns = self._join_columns() if view.row_by_row else {}
        #: The columns of the key that says which bucket a row is in; none: all rows are in one.
        self.split = tuple(dict.fromkeys(name for name, _ in self._columns.values()))
        self.files.rows = 0 if view.row_by_row else self.state_rows()

    def _join_columns(self) -> dict[str, tuple[str, str]]:
        """By which column each input of a join is split, and its type; inputs that are not here are read by all tasks.

        Of each row that comes out, the rows of the others are those of one bucket: so it comes out once.
        """
        types = {
            input: {field.name: field.type for field in self.fields_of(self.view, input) or ()}
            for input in self.view.inputs
        }
        if deltas.both_ways(self.commit, self.view):
            return {}  # a row that one bucket gives and another takes back is no change
        if self.view.operator == "stateless":
            ((input, columns),) = types.items()
            return next(({input: each} for each in columns.items() if is_hashed(each[1])), {})
        known = tuple((input, tuple(columns)) for input, columns in types.items())
        for equal in join_keys(self.view.query.text, known):
            found = {input: (name, types[input][name]) for input, name in equal.items()}
            kinds = {"bigint" if kind in INTEGERS else kind for _, kind in found.values()}
            if len(kinds) == 1 and is_hashed(*kinds):
                return found
        return {}

    @property
    def row_condition(self) -> str:
        """The condition that a new row of a stream is in the bucket; empty if there is none, or not one for all."""
        inputs = [
            input for input, id in self.view.query.streams.items() if self._run is not None and id == self._run.id
        ]
        columns = {self._columns.get(input) for input in inputs}
        (column,) = columns if len(columns) == 1 else (None,)
        return in_bucket([_value(quoted(column[0]), column[1])]) if column is not None else ""

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
        if self._run is None or view.query.streams.get(placeholder) != self._run.id:
            return self._in_bucket(view, placeholder, super().delta(view, placeholder, sign))
        fields = self._run.row_fields if self._run.id in view.beginning.rows else self._run.seen_as(placeholder)
        return since_start(view, self._run, placeholder, _run_rows(fields)) if sign >= 0 else None

    def _in_bucket(self, view: View, placeholder: str, rows: str | None) -> str | None:
        column = self._columns.get(placeholder) if view is self.view else None
        if column is None or rows is None:
            return rows
        return f"(SELECT * FROM {rows} WHERE {in_bucket([_value(quoted(column[0]), column[1])])})"

    def touch_sessions(self) -> bool | None:
        ends = self.view.progress.ends
        if ends is not None and ends.gap:
            raise NotApplicable("sessions are followed from row to row")
        return None

    def touch_keys(self, text: str) -> bool:
        keys = self.view.keying.columns
        hashed = [(index, key) for index, key in enumerate(keys) if is_hashed(key.type)]
        self.split = tuple(key.name for _, key in hashed)
        where = f" WHERE {in_bucket(_value(f'k{index}', key.type) for index, key in hashed)}" if hashed else ""
        self.statements.append(f"CREATE TEMP TABLE __touched AS SELECT * FROM ({text}){where}")
        self.touched = tuple(_TouchedInTask.of(index, key.type, self.statements) for index, key in enumerate(keys))
        return True


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


def _run_rows(fields: Sequence[Field]) -> str:
    """The new rows of a run as its tasks have them, as a relation with these columns."""
    items = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in fields)
    return f"(SELECT {items} FROM {ROWS})"


def is_hashed(*types: str) -> bool:
    """Whether equal values of a type have one hash, however they came about."""
    return all(type in (*INTEGERS, *_HASHED) or type.startswith("decimal") for type in types)


def _value(column: str, type: str) -> str:
    """A value as it is hashed: a number whatever its width."""
    return f"CAST({column} AS BIGINT)" if type in INTEGERS else f"CAST({column} AS {duckdb_type(type)})"
