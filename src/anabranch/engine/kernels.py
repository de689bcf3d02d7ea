"""Kernels: Spark's tasks that run the driver's queries with DuckDB, where the rows of a run are.

Spark schedules the tasks, tries them again and spreads them over its executors; the texts are those that the driver's
engine computes, so they mean the same. Only names of files and a few figures come back. Whatever a kernel does not
compute, and every run in which a task declines, is left to Spark's own engine.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anabranch
from anabranch import kernel
from anabranch.duck import in_bucket, quoted
from anabranch.engine.bucket_files import RUN, FilesByBucket, lasting
from anabranch.engine.core import Core
from anabranch.engine.driver_scan import columns_named, means_the_same, numbered, value_text
from anabranch.engine.frames import arrow_schema
from anabranch.engine.place import Limits
from anabranch.engine.spark import on_one_machine
from anabranch.engine.writing import adopt_files
from anabranch.kernel import Declined, Done, Piece, Query, Share, Work
from anabranch.ledger import Bucket, DataFile
from anabranch.ledger.arrivals import parquet_options
from anabranch.ledger.crash import reach
from anabranch.ledger.tables import plain_schema
from anabranch.plan.definitions import ARRIVAL_TS, ROW_NUM, Stream
from anabranch.sources import row_lines
from anabranch.sources.row_groups import FileGroups, InGroups
from anabranch.sources.row_lines import InLines, Lines
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

    from anabranch.engine.scan import Incoming, Output

#: A task of fewer bytes than this costs more to start than it spares.
_WORTH = 4 << 20
#: A piece of lines is not cut further.
_LEAST_LINES = 1 << 20
#: A task reads its lines into memory, so it takes this many times fewer bytes of them.
_OF_LINES = 4
#: Up to so many tasks are sent along with what they compute.
_FEW = 64
#: What a Python worker needs besides DuckDB's memory, of the memory that Spark leaves to it.
_SHARE = 0.6
_FIGURES = ("rows", "bad", "late", "low", "high")
#: Why the executors of a Spark run no kernels, by its application; None: they do.
_known: dict[str, str | None] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Scanned:
    """What kernels did of a run: the files of tables, and the figures of all rows."""

    files: Mapping[str, tuple[DataFile, ...]]
    values: Mapping[str, Any]
    changes: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)  # of nodes, by their tables


@dataclass(frozen=True)
class Ahead:
    """What the same tasks compute of nodes, if each of them takes one bucket of the rows of a run."""

    split: str  # the hash of a row that says in which bucket it is; empty for one bucket
    buckets: int
    queries: tuple[tuple[Query, str | None], ...]  # and the columns of their times
    lists: FilesByBucket  # the files that they read


@dataclass(frozen=True)
class _Executors:
    """What is known of the executors of a Spark session."""

    spark: SparkSession
    application: str
    memory: int | None  # of DuckDB in one task, at most; None: it is the driver's machine
    numbers: dict[int, RDD[int]] = field(default_factory=dict)  # from 0 on, each a partition, by how many


#: The nodes whose changes can be computed with the rows of a run that are in groups, by tasks that write some tables;
#: None for none.
LookAhead = Callable[[InGroups, frozenset[str]], Ahead | None]


class Kernels:
    """The kernels of one open home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.declined: str | None = None  # why something of the last run was left to Spark, if it was a task that did
        self._executors: _Executors | None = None

    def scan(
        self,
        stream: Stream,
        incoming: Incoming,
        outputs: Sequence[Output],
        first: int,
        at: int,
        bound: int | None,
        look_ahead: LookAhead = lambda *_: None,
    ) -> Scanned | None:
        """Have tasks write what they can of the outputs of a run; None if all of it is Spark's to compute."""
        if not self.core.place.kernels or value_text(stream) != "":
            return None
        texts = {output.table: text for output in outputs if (text := _text(stream, output)) is not None}
        mine = [output for output in outputs if output.table in texts]
        if not mine:
            return None
        columns = columns_named(stream, list(texts.values()))
        rows = incoming.in_groups(columns, stream.time)
        if rows is None or self.unavailable() is not None:
            return None
        if isinstance(rows, InLines):
            # Where Spark has to read the lines anyway, tasks spare nothing.
            spared = len(mine) == len(outputs) and stream.key is None and not (stream.rule and stream.rule.in_order)
            if not spared or not rows.files or not row_lines.looks_certain(rows):
                return None
            return self._job(stream, rows, mine, texts, first, at, bound, None)
        if not rows.rows:
            return None
        if not rows.timed:  # a row without an event time has no number
            mine = [output for output in mine if not numbered(texts[output.table])]
        if rows.low is not None and rows.timed:
            later = {each.table: each.later for each in mine if each.later is not None}
            texts |= {table: text for table, (origin, text) in later.items() if rows.low >= origin}
        if not mine:
            return None
        timed = rows.timed and stream.time is not None  # otherwise rows can be bad
        written = frozenset(each.table for each in mine if timed or each.table != stream.rows_table)
        return self._job(stream, rows, mine, texts, first, at, bound, look_ahead(rows, written))

    def _job(
        self,
        stream: Stream,
        rows: InGroups | InLines,
        outputs: Sequence[Output],
        texts: Mapping[str, str],
        first: int,
        at: int,
        bound: int | None,
        ahead: Ahead | None,
    ) -> Scanned | None:
        ledger, with_numbers = self.core.ledger, any(numbered(texts[each.table]) for each in outputs)
        queries = [query_of(output.table, output.fields, texts[output.table]) for output in outputs]
        if ahead is not None:
            queries = [replace(query, read_as=str(ledger.table_folder(query.table) / RUN)) for query in queries]
        shares = self._shares(rows, first, with_numbers, ahead)
        if shares is None:
            return None
        count = ahead.buckets if ahead is not None else 1
        statistics = _known_statistics(stream, rows, bound)
        folder = ledger.stage()
        work = Work(
            folder=str(folder),
            schema=arrow_schema(rows.fields),
            direct=isinstance(rows, InGroups) and rows.direct,
            time=stream.time if isinstance(rows, InGroups) and not rows.timed else None,
            numbers=(ROW_NUM, ARRIVAL_TS, at) if with_numbers else None,
            statistics=_statistics_text(stream, bound) if statistics is None else None,
            queries=tuple(queries),
            memory=self.task_memory(),
            split=in_bucket(ahead.split) if ahead is not None and ahead.split else None,
            buckets=count,
            changes=tuple(query for query, _ in ahead.queries) if ahead is not None else (),
        )
        try:
            reach("during-kernels")
            done = self._run(work, shares)
            if done is None:
                return None
            reach("after-kernels")
            declined = {table: reason for each in done for table, reason in each.declined}
            self.declined = next(iter(declined.values()), None)

            def adopted(table: str, time: str | None) -> tuple[DataFile, ...]:
                files: list[DataFile] = []
                for share, each in zip(shares, done, strict=True):
                    bucket = None
                    if ahead is not None and ahead.split and table == stream.rows_table:
                        bucket = Bucket(lasting(ahead.split), share.bucket, count)
                    paths = [folder / name for found, name in each.files if found == table]
                    files += adopt_files(ledger, table, paths, time, bucket)
                return tuple(files)

            files, changes = {}, {}
            for output in outputs:
                if output.table not in declined:
                    files[output.table] = adopted(output.table, output.time)
                    reach("between-files")
            whole = len(files) == len(outputs)  # those of nodes are about all of these
            for query, time in ahead.queries if ahead is not None and whole else ():
                if query.table not in declined:
                    changes[query.table] = adopted(query.table, time)
            values = statistics or _added([each.statistics or () for each in done])
            return None if not files else Scanned(files, values, changes)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _shares(
        self, rows: InGroups | InLines, first: int, with_numbers: bool, ahead: Ahead | None
    ) -> list[Share] | None:
        """What each task takes of the rows of a run: rows of its own, or a bucket of all; None if no task can."""
        if isinstance(rows, InLines):
            pieces = self._pieces(rows, first if with_numbers else None)
            return None if pieces is None else [Share(each) for each in pieces]
        if ahead is None:
            tasks = tasks_of(rows.files, first, self.core.spark.sparkContext, self.core.place.limits)
            return [Share(each) for each in tasks]
        every = tuple(piece for each in cut(rows.files, first, 1) for piece in each)
        return [Share(every, number, ahead.lists.of(number, ahead.buckets)) for number in range(ahead.buckets)]

    def _pieces(self, rows: InLines, first: int | None) -> list[tuple[Lines, ...]] | None:
        """Lines for tasks, with the number of the first row of each piece if that of the first of all is given.

        How many rows there are is counted by a job before. None if they cannot be.
        """
        context, limits = self.core.spark.sparkContext, self.core.place.limits
        total = sum(file.end for file in rows.files)
        # Lines are in memory while a task looks at them.
        pieces = row_lines.cut(rows.files, task_count(total, limits.task_bytes // _OF_LINES, context), _LEAST_LINES)
        if first is None:
            return pieces
        counts = self.run(kernel.count, pieces)
        if counts is None or any(isinstance(each, Declined) for each in counts):
            return None
        numbers = accumulate((rows for each in counts for rows in each), initial=first)
        return [tuple(replace(piece, number=next(numbers)) for piece in task) for task in pieces]

    def _run(self, work: Work, tasks: Sequence[Share]) -> list[Done] | None:
        """What the tasks of a job did; None if one declined, or if executors cannot run them after all."""
        found = self.run(partial(kernel.compute, work), tasks)
        if found is None:
            return None
        self.declined = next((each.reason for each in found if isinstance(each, Declined)), None)
        return [each for each in found if isinstance(each, Done)] if self.declined is None else None

    def run(self, compute: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any] | None:
        """What tasks give, one for each of these; None if executors cannot run them after all."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        context, count = self.core.spark.sparkContext, len(tasks)
        executors = self._executors_of(context)
        try:
            if count > _FEW:
                return list(context.parallelize(tasks, count).map(compute).collect())
            # Numbers that Spark has already spare it a good part of a small job: the tasks come with the code.
            if count not in executors.numbers:
                executors.numbers[count] = context.parallelize(range(count), count)
            return list(executors.numbers[count].map(partial(kernel.nth, compute, tasks)).collect())
        except (Py4JError, PySparkException) as error:
            if "cancelled" in str(error).lower():
                raise
            reason = _message_of(error)
            with _lock:
                _known[executors.application] = reason
            self.core.warn(f"kernels are left out from now on, and Spark's own engine computes instead: {reason}")
            return None

    def unavailable(self) -> str | None:
        """Why the executors run no kernels; None if they do. Found out once."""
        executors = self._executors
        if executors is not None and executors.spark is self.core.spark and executors.application in _known:
            return _known[executors.application]
        return unavailable(self.core.spark, self.core.ledger.home)

    def task_memory(self) -> int:
        """What DuckDB may take in one task."""
        most = self._executors_of(self.core.spark.sparkContext).memory
        limit = self.core.place.limits.task_memory_bytes
        return limit if most is None else min(limit, most)

    def _executors_of(self, context: SparkContext) -> _Executors:
        """The executors of this application: each question to the JVM takes a part of what a small job does."""
        spark = self.core.spark
        if self._executors is None or self._executors.spark is not spark:
            self._executors = _Executors(spark, str(context.applicationId), task_memory(context))
        return self._executors


def _text(stream: Stream, output: Output) -> str | None:
    """What to write of an output, as DuckDB is asked for it; None if that is Spark's to say.

    How groups are kept that are judged by their size cannot be said from a part of the rows.
    """
    if output.table == stream.rows_table:
        names = ", ".join(quoted(field.name) for field in output.fields)
        text = f"SELECT {names} FROM {kernel.ROWS}"
    elif output.driver_text is None or output.known is not None:
        return None
    else:
        text = output.driver_text
    return text if means_the_same(stream.row_fields, text, output.fields) else None


def query_of(table: str, fields: tuple[Field, ...], text: str, statements: tuple[str, ...] = ()) -> Query:
    """What adds to a table with these columns."""
    schema = arrow_schema(fields)
    plain = plain_schema(schema)
    return Query(table, text, schema, plain, parquet_options(plain), statements)


# ---- figures


def _known_statistics(stream: Stream, rows: InGroups | InLines, bound: int | None) -> dict[str, Any] | None:
    """What files say themselves of their rows; None if tasks have to look."""
    if isinstance(rows, InLines):
        return None
    if stream.time is None:
        return {"rows": rows.rows, "bad": 0}
    if not rows.timed or (bound is not None and rows.low is not None and rows.low < bound):
        return None
    return {"rows": rows.rows, "bad": 0, "late": 0, "low": rows.low, "high": rows.high}


def _statistics_text(stream: Stream, bound: int | None) -> str:
    if stream.time is None:
        return f"SELECT count(*), 0, 0, NULL, NULL FROM {kernel.ALL}"
    time = quoted(stream.time)
    micros = f"epoch_us({time})"  # a bound can be beyond every time
    late = f"count(*) FILTER ({micros} < {bound})" if bound is not None else "0"
    return f"SELECT count({time}), count(*) - count({time}), {late}, min({micros}), max({micros}) FROM {kernel.ALL}"


def _added(statistics: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The figures of all tasks as those of one."""
    rows, bad, late, lows, highs = zip(*statistics, strict=True)
    low = min((each for each in lows if each is not None), default=None)
    high = max((each for each in highs if each is not None), default=None)
    return dict(zip(_FIGURES, (sum(rows), sum(bad), sum(late), low, high), strict=True))


# ---- tasks


def tasks_of(files: Sequence[FileGroups], first: int, context: SparkContext, limits: Limits) -> list[tuple[Piece, ...]]:
    return cut(files, first, task_count(sum(sum(file.bytes) for file in files), limits.task_bytes, context))


def task_count(total: int, most: int, context: SparkContext) -> int:
    """The number of tasks for so many bytes, each of so many at the most."""
    return max(-(-total // max(1, most)), min(context.defaultParallelism, -(-total // _WORTH)), 1)


def cut(files: Sequence[FileGroups], first: int, tasks: int) -> list[tuple[Piece, ...]]:
    """Groups of rows for tasks, about as many bytes for each; `first` is the number of the first row.

    >>> a, b = FileGroups("a", (5, 5), (100, 100)), FileGroups("b", (8,), (200,))
    >>> [[(piece.path, piece.rows, piece.number) for piece in task] for task in cut([a, b], 50, 2)]
    [[('a', (0, 10), 50)], [('b', (0, 8), 60)]]
    >>> [[(piece.path, piece.rows) for piece in task] for task in cut([a], 0, 9)]
    [[('a', (0, 5))], [('a', (5, 10))]]
    """
    total = sum(sum(file.bytes) for file in files) or 1
    found: dict[int, list[Piece]] = {}
    before = 0
    for file in files:
        row = 0
        for group, (rows, size) in enumerate(zip(file.rows, file.bytes, strict=True)):
            task = min((2 * before + size) * tasks // (2 * total), tasks - 1)
            pieces = found.setdefault(task, [])
            if pieces and pieces[-1].path == file.path:
                last = pieces.pop()
                piece = replace(last, groups=(last.groups[0], group + 1), rows=(last.rows[0], row + rows))
            else:
                piece = Piece(file.path, (group, group + 1), (row, row + rows), False, first)
            pieces.append(replace(piece, whole=piece.groups == (0, len(file.rows))))
            row, before = row + rows, before + size
        first += row
    return [tuple(found[task]) for task in sorted(found)]


def task_memory(context: SparkContext) -> int | None:
    """What DuckDB may take at most in one task: of what executors leave to Python beside the JVM, a share for each.

    None where tasks run on the driver's machine.
    """
    if on_one_machine(str(context.master)):
        return None
    conf = context.getConf()
    mb = 1 << 20
    heap = _megabytes(conf.get("spark.executor.memory", "1g") or "1g")
    given = conf.get("spark.executor.pyspark.memory") or conf.get("spark.executor.memoryOverhead")
    factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.1") or 0.1)
    overhead = _megabytes(given) if given else max(384, int(heap * factor))
    slots = int(conf.get("spark.executor.cores", "1") or 1) // int(conf.get("spark.task.cpus", "1") or 1)
    return max(64 * mb, int(overhead * mb * _SHARE) // max(1, slots))


def _megabytes(text: str) -> int:
    """A size as Spark's settings have it, where a bare number is of megabytes.

    >>> _megabytes("2g"), _megabytes("512m"), _megabytes("384"), _megabytes("1048576k")
    (2048, 512, 384, 1024)
    """
    digits = text.strip().lower().rstrip("b")
    unit = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}.get(digits[-1:])
    return int(float(digits) if unit is None else float(digits[:-1]) * unit)


# ---- whether executors can


def unavailable(spark: SparkSession, home: Path) -> str | None:
    """Why the executors of a Spark run no kernels, found out once by a small job; None if they do.

    They need the same packages as the driver, and to see the files of the home.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
        application = str(context.applicationId)
    except (Py4JError, PySparkException, AttributeError):
        return "this session has no SparkContext, as with Spark Connect"
    with _lock:
        if application not in _known:
            try:
                _known[application] = _probed(context, home)
            except (Py4JError, PySparkException) as error:
                _known[application] = f"a job in Python failed: {_message_of(error)}"
        return _known[application]


def _probed(context: SparkContext, home: Path) -> str | None:
    import duckdb
    import pyarrow

    wanted = {"anabranch": anabranch.__version__, "duckdb": duckdb.__version__, "pyarrow": pyarrow.__version__}
    mark = home.absolute() / "staging" / f"seen-{uuid.uuid4().hex}"
    seen = str(mark)

    # Sent as code, and not by its name: an executor without our package can say so.
    def look(_: int) -> tuple[str, dict[str, str], bool]:
        import importlib
        import os
        import socket

        found = {}
        for name in wanted:
            try:
                found[name] = str(importlib.import_module(name).__version__)
            except ImportError:
                found[name] = ""
        return socket.gethostname(), found, os.path.exists(seen)

    tasks = max(1, context.defaultParallelism)
    try:
        with suppress(OSError):  # of a home that is not made yet, nothing can be seen
            mark.touch()
        there = mark.exists()
        answers = context.parallelize(range(tasks), tasks).map(look).collect()
    finally:
        with suppress(OSError):
            mark.unlink(missing_ok=True)
    for host, found, sees in answers:
        for name, version in wanted.items():
            if not found[name]:
                return f"{name} is not installed in the Python of executors on {host}"
            if found[name] != version:
                return f"executors on {host} have {name} {found[name]}, and the driver has {version}"
        if there and not sees:
            return f"executors on {host} do not see the files in {home}"
    return None


def _message_of(error: Exception) -> str:
    """The line of an error of Spark's that says what happened."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.getMessage()) if cause is not None else str(error)
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("at ")]  # older versions of Spark say where, too
    last = [line for line in lines if "Error" in line or "Exception" in line]
    return (last or lines or [type(error).__name__])[-1][:300]
