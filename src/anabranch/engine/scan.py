"""The scan of a run: good rows to the files of its outputs, bad rows set aside, and the statistics of the run.

The statistics (rows, late rows, the range of event times) come in the cheapest of three ways:

    carried    a small run: the groups of its outputs carry them, and they are added up on the driver
    observed   a source that is dear to read: Spark watches the rows on their way into the first output
    counted    a columnar source: a job of its own, beside the others, over the one column of the event time

A stream whose progress depends on the order of its rows needs their event times one by one: `in_order` collects them.
A stream with progress by key has the figures of each key, from a job of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import END, EVERY_KEY, MOST_KEYS, Computed, ProgressState, Seen, own_bounds
from anabranch.duck import quoted
from anabranch.engine.core import Core, Stopwatch
from anabranch.engine.driver_scan import (
    DriverScan,
    FileScan,
    ReadArrow,
    ReadInFiles,
    ReadInGroups,
    columns_named,
    means_the_same,
    value_text,
)
from anabranch.engine.frames import is_data_error
from anabranch.engine.kernels import LookAhead
from anabranch.engine.numbering import number_frame, number_table
from anabranch.engine.place import DRIVER, KERNEL, SPARK
from anabranch.engine.row_conditions import good_rows, parsed_rows, punctuation_sql
from anabranch.engine.stream_part import STREAM_ROWS, CombinedPartials
from anabranch.engine.writing import write_frame, write_table
from anabranch.ledger import DataFile, Ledger
from anabranch.ledger.crash import reach
from anabranch.plan.definitions import ROW_NUM, Stream
from anabranch.plan.states import Panes
from anabranch.sources.base import CORRUPT, ORIGIN, PARTITION, BadRow
from anabranch.sources.parts import file_and_start, path_of
from anabranch.sources.why import Why
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How many rows of a run are listed as bad one by one; the rest is counted.
LISTED_BAD_ROWS = 1000
#: How many outputs are written at the same time.
WRITERS = 8


Explain = Callable[[Sequence[tuple[str, str]]], list[Why]]


@dataclass(frozen=True)
class Incoming:
    """The incoming rows of a run."""

    read: Callable[[], DataFrame]
    position: Any
    captured: Any
    bytes: int
    bad: tuple[BadRow, ...] = ()
    typed: bool = False  # never text that may not parse
    cheap: bool = False  # read again for each output rather than cached
    verify: Callable[[], None] = lambda: None  # raises if the rows differ from their description
    files: tuple[str, ...] = ()  # that they are read from, in the order in which they came
    arrow_rows: ReadArrow = lambda _: None  # the rows in order, if they need no Spark job
    rows_in_files: ReadInFiles = lambda _, __: (
        None
    )  # the rows in their files, if they can be read from there as they are
    in_groups: ReadInGroups = lambda _, __: None  # the rows by groups of their files, if tasks can read them from there
    explain: Explain | None = None  # the lines of texts that are no rows, and why they are none


@dataclass(frozen=True)
class Output:
    """One output table of a run."""

    table: str
    frame: Callable[[DataFrame], DataFrame]
    time: str | None
    small: bool
    fields: tuple[Field, ...]
    observable: bool  # made without a temporary view, through which Spark's observations do not come back
    numbered: bool = False  # its rows carry their numbers
    carrier: Panes | None = None  # sees every row: the figures of the run can be added up from its groups
    driver_text: str | None = (
        None  # what to write of rows at hand, as DuckDB is asked for it; None if that is Spark's to say
    )
    later: tuple[int, str] | None = None  # the same for rows none of which is before a time; quicker
    known: Any = None  # what is known of its groups, where that decides how they are kept


@dataclass
class Scanned:
    """The files and statistics of a scan; filled as it proceeds, so that a failed scan can be cleaned up."""

    files: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)
    staged: list[Path] = field(default_factory=list)
    #: Changes of nodes that were computed on the way, by table; they hold if nothing else is committed first.
    changes: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)
    bad: list[BadRow] = field(default_factory=list)
    failed: dict[str, Exception] = field(default_factory=dict)  # tables that a row failed
    statistics: RunStatistics = field(default_factory=lambda: RunStatistics(0, 0, 0, None, None, {}))

    def give_up(self, ledger: Ledger) -> None:
        """Delete all that was written: there will be no commit."""
        ledger.give_up({**self.files, **self.changes}, self.staged)

    def give_up_changes(self, ledger: Ledger) -> None:
        """Delete the changes of nodes, which are computed again."""
        ledger.give_up(self.changes)
        self.changes = {}


@dataclass(frozen=True)
class RunStatistics:
    """The statistics of the scan of a run."""

    rows: int
    bad: int
    late: int
    low: int | None
    high: int | None
    by_partition: Mapping[str, Seen]

    @classmethod
    def of(cls, values: Mapping[str, Any], parts: list[str], times: Mapping[str, list[int]]) -> RunStatistics:
        """The figures from the values of the metrics; what is not among them follows from those that are."""
        rows, high = values["rows"] or 0, values.get("high")
        seen = {}
        for index, part in enumerate(parts):
            own = {name: values[f"{name}_{index}"] for name in _SEEN if f"{name}_{index}" in values}
            seen[part] = _seen({"rows": rows, "highest": high, **own}, times.get(part, ()))
        return cls(rows, values["bad"] or 0, values.get("late") or 0, values.get("low"), high, seen)


class Scan:
    """One scan over the rows of a run."""

    def __init__(
        self,
        core: Core,
        stream: Stream,
        incoming: Incoming,
        outputs: list[Output],
        state: ProgressState,
        first: int,
        look_ahead: LookAhead = lambda *_: None,
    ) -> None:
        self.core = core
        self.look_ahead = look_ahead
        self.first = first  # the number of its first row
        self.at = core.now()  # when its rows came
        self.stream = stream
        self.incoming = incoming
        self.state = state
        self.outputs = sorted(outputs, key=lambda output: not output.observable)
        self.keys: dict[str, Mapping[str, Any]] | None = None
        self.values: Mapping[str, Any] = {}
        self.times: Mapping[str, list[int]] = {}

    @cached_property
    def rows(self) -> DataFrame:
        """The rows as a Spark frame; not needed if they are in memory."""
        frame = self.incoming.read()
        return frame if self.incoming.typed and CORRUPT not in frame.columns else marked(frame)

    @cached_property
    def good(self) -> str:
        return good_rows(self.stream, self.rows.columns)

    @cached_property
    def parsed(self) -> str:
        return parsed_rows(self.stream, self.rows.columns)

    def _carried(self) -> CombinedPartials | None:
        """The outputs whose groups carry the statistics, if the run is small enough."""
        incoming = self.incoming
        carriers = [output.carrier for output in self.outputs if output.carrier is not None and output.small]
        if not incoming.typed or self.stream.live or not carriers or not self._small:
            return None
        if self.stream.key is not None or _value_sql(self.stream) is not None:
            return None
        # Spark multiplies the rows by the number of the grouping sets.
        most = max(1, self.core.place.limits.small_run_bytes // (incoming.bytes + 1))
        carried = CombinedPartials(carriers[:most], self.stream, self.good, self.state.bound)
        return carried if carried.fits else None

    def run(self, scanned: Scanned, watch: Stopwatch) -> None:
        """Write the outputs, and fill in their files and the statistics."""
        source = self.core.source(self.stream)
        parts = source.partitions() if source is not None else [""]
        limit = _limit(self.stream, self.core.now())
        driver_scan: DriverScan | FileScan | None = None
        if self.core.place.takes_little(self.incoming.bytes) or self._all_on_driver:
            driver_scan = self._file_scan() if len(parts) == 1 and limit is None else None
            driver_scan = driver_scan or DriverScan.of(
                self.stream,
                self.incoming.arrow_rows,
                self.first,
                self.at,
                parts,
                limit,
                self.state.bound,
                self._columns,
            )
        kernels = (
            self._in_kernels(scanned, parts) if driver_scan is None and len(parts) == 1 and limit is None else None
        )
        if driver_scan is not None:
            tasks, where = self._tasks_on_driver(driver_scan, scanned, parts[0]), DRIVER
        else:
            tasks, where = (self._tasks(scanned, parts), SPARK) if kernels is None else (kernels, KERNEL)
        kept = len(tasks) > 1 and not self.incoming.cheap
        if kept:
            self.rows.persist()
        try:
            reach("during-files")
            if len(tasks) == 1:
                tasks[0]()
            elif tasks:
                with ThreadPoolExecutor(max_workers=WRITERS) as pool:
                    list(pool.map(lambda task: task(), tasks))
            watch.lap("partials", where)
            scanned.statistics = RunStatistics.of(self.values, parts, self.times)
            if self.keys is not None:
                seen = {key: _seen(values, self.times.get(key, ())) for key, values in self.keys.items()}
                late = sum(values["late"] for values in self.keys.values())
                scanned.statistics = replace(scanned.statistics, late=late, by_partition=seen)
            scanned.bad += self.incoming.bad
            if scanned.statistics.bad:
                scanned.bad += self._bad_rows()
                watch.lap("bad rows")
        finally:
            if kept:
                self.rows.unpersist()

    @property
    def _small(self) -> bool:
        return self.core.place.is_small(self.incoming.bytes)

    @property
    def _all_on_driver(self) -> bool:
        """Whether the driver computes the whole run, without Spark."""
        if not self.outputs or not self.core.place.takes_run(self.incoming.bytes):
            return False
        return all(
            output.table == self.stream.rows_table
            or (output.driver_text is not None and self._means_the_same(output, output.driver_text))
            for output in self.outputs
        )

    def _means_the_same(self, output: Output, text: str) -> bool:
        known = output.known.schema if output.known is not None else None
        return means_the_same(self.stream.row_fields, text, output.fields, known)

    @property
    def _columns(self) -> list[str] | None:
        """The columns that are needed of rows at hand; None if that is all of them."""
        texts = [output.driver_text for output in self.outputs if output.driver_text is not None]
        if self._small or len(texts) < len(self.outputs):
            return None
        key = "" if self.stream.key is None else quoted(self.stream.key)
        return columns_named(self.stream, [*texts, value_text(self.stream) or "", key])

    def _file_scan(self) -> FileScan | None:
        """The rows where they lie, if there is one thing to do with them: for more, they are better read once."""
        text, columns = self.outputs[0].driver_text if len(self.outputs) == 1 else None, self._columns
        if text is None or columns is None:
            return None
        return FileScan.of(self.stream, self.incoming.rows_in_files, columns, text, self.state.bound)

    def _tasks_on_driver(
        self, driver_scan: DriverScan | FileScan, scanned: Scanned, part: str
    ) -> list[Callable[[], None]]:
        """Write the outputs that need no Spark; returns the remaining ones."""
        self.values = driver_scan.statistics(self.state.bound)
        if isinstance(driver_scan, DriverScan) and self.stream.rule is not None and self.stream.rule.in_order:
            self.times = driver_scan.times(part)
        if isinstance(driver_scan, DriverScan) and self.stream.key is not None:
            own = own_bounds(self.stream.policy, self.state)
            self.keys = driver_scan.keys(-END if self.state.bound is None else self.state.bound, own)
        left: list[Output] = []
        for output in self.outputs:
            text, table = output.driver_text, None
            if isinstance(driver_scan, DriverScan) and output.table == self.stream.rows_table:
                table = driver_scan.rows
            if output.later is not None and self.values.get("low") is not None:
                text = output.later[1] if self.values["low"] >= output.later[0] else text
            if text is not None:
                table = driver_scan.query(text, output.fields, output.known)
            if table is None:
                left.append(output)
                continue
            scanned.files[output.table] = write_table(self.core.ledger, output.table, table, output.time)
            reach("between-files")
        if left and self._small and isinstance(driver_scan, DriverScan):
            self.rows = marked(self.core.spark.createDataFrame(driver_scan.rows))
        return [partial(self._write, output, self.rows, scanned) for output in left]

    def _in_kernels(self, scanned: Scanned, parts: list[str]) -> list[Callable[[], None]] | None:
        """Have Spark's tasks write what they can with DuckDB; what is left to do, or None if that is all."""
        done = self.core.kernels.scan(
            self.stream, self.incoming, self.outputs, self.first, self.at, self.state.bound, self.look_ahead
        )
        if done is None:
            return None
        self.values = done.values
        scanned.files |= done.files
        scanned.changes |= done.changes
        left = [output for output in self.outputs if output.table not in done.files]
        return [*(partial(self._write, output, self.rows, scanned) for output in left), *self._collecting(parts)]

    def _tasks(self, scanned: Scanned, parts: list[str]) -> list[Callable[[], None]]:
        carried, rest = self._carried(), self.outputs
        metrics = _metrics(self.stream, self.good, self.parsed, self.state, parts, self.core.now())
        if carried is not None:
            tables = {panes.id for panes in carried.tables}
            mine = [output for output in rest if output.table in tables]
            first = partial(self._carry, carried, mine, metrics, scanned)
            rest = [output for output in rest if output.table not in tables]
        else:
            columnar = self.incoming.cheap and not self._small
            if rest and rest[0].observable and not columnar:
                first, rest = partial(self._observe, rest[0], metrics, scanned), rest[1:]
            else:
                first = partial(self._count, metrics)
        tasks: list[Callable[[], None]] = [first]
        tasks += [partial(self._write, output, self.rows, scanned) for output in rest]
        return tasks + self._collecting(parts)

    def _collecting(self, parts: list[str]) -> list[Callable[[], None]]:
        """What progress needs besides the statistics."""
        tasks: list[Callable[[], None]] = []
        if self.stream.rule is not None and self.stream.rule.in_order:
            tasks.append(partial(self._collect_times, parts))
        if self.stream.key is not None:
            tasks.append(self._collect_keys)
        return tasks

    def _count(self, metrics: list[str]) -> None:
        self.values = self.rows.selectExpr(*metrics).collect()[0].asDict()

    def _collect_times(self, parts: list[str]) -> None:
        """The event times of all rows of the run, on the driver, for each partition in the order in which they came.

        All of them, although only the last are kept: at which rows a percentile is taken depends on those before.
        """
        files = self.incoming.files if len(self.incoming.files) > 1 else ()
        columns = [f"{_time_sql(self.stream)} AS time"]
        if self.stream.key is not None:
            columns.append(f"{_key_sql(self.stream)} AS {PARTITION}")
        elif len(parts) > 1:
            columns.append(PARTITION)
        columns += [ORIGIN] if files else []
        rows = self.rows.where(self.good).selectExpr(*columns).toArrow()
        self.times = in_order(rows, parts, files)

    def _collect_keys(self) -> None:
        """The statistics of each key of the run, with late rows by the key's own bound."""
        import pyarrow as pa
        from pyspark.sql import functions as F

        columns = [f"{_key_sql(self.stream)} AS key", f"{_time_sql(self.stream)} AS time", f"{self.good} AS data"]
        value = _value_sql(self.stream)
        columns += [f"{value} AS value"] if value is not None else []
        rows = self.rows.where(self.parsed).selectExpr(*columns)
        own = own_bounds(self.stream.policy, self.state)
        bound = str(-END if self.state.bound is None else self.state.bound)
        if own:
            bounds = pa.table({"key": pa.array(own, pa.string()), "own": pa.array(own.values(), pa.int64())})
            rows = rows.join(F.broadcast(self.core.spark.createDataFrame(bounds)), "key", "left")
            bound = f"coalesce(own, {bound})"
        statistics = _of_part(
            "true", "time", "value" if value is not None else None, _limit(self.stream, self.core.now())
        )
        statistics["late"] = f"count_if(data AND time < {bound})"
        found = rows.groupBy("key").agg(*(F.expr(text).alias(name) for name, text in statistics.items()))
        # One more than can be kept, and the one for all keys: that there are too many is for the policy to say.
        groups = found.limit(MOST_KEYS + 2).toArrow().to_pylist()
        self.keys = {group.pop("key"): group for group in groups}

    def _observe(self, output: Output, metrics: list[str], scanned: Scanned) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        observation = Observation()
        self._write(output, self.rows.observe(observation, *map(F.expr, metrics)), scanned)
        if output.table in scanned.failed:  # what was observed until then is not all
            self._count(metrics)
        else:
            self.values = observation.get

    def _carry(self, carried: CombinedPartials, outputs: list[Output], metrics: list[str], scanned: Scanned) -> None:
        try:
            groups = self.core.frames.sql(carried.text(), {STREAM_ROWS: self.rows}).toArrow()
        except Exception:
            # Bad rows are in these groups: an expression may fail for one of them, where it would not for a good row.
            self._count(metrics)
            for output in outputs:
                self._write(output, self.rows, scanned)
            return
        partials, self.values = carried.split(groups)
        for output in outputs:
            added = write_table(self.core.ledger, output.table, partials[output.table], output.time)
            scanned.files[output.table] = added
            reach("between-files")

    def _write(self, output: Output, rows: DataFrame, scanned: Scanned) -> None:
        """Write an output; that it cannot be computed of some row is told, and keeps no other from being written."""
        try:
            self._write_all(output, rows, scanned)
        except Exception as error:
            if output.table == self.stream.rows_table or not is_data_error(error):
                raise
            scanned.failed[output.table] = error

    def _write_all(self, output: Output, rows: DataFrame, scanned: Scanned) -> None:
        good = rows.where(self.good)
        if output.small and output.table == self.stream.rows_table:
            added = write_table(self.core.ledger, output.table, self._numbered(good), output.time)
            scanned.files[output.table] = added
            reach("between-files")
            return
        if output.numbered and ROW_NUM not in good.columns:
            good = number_frame(good, self.incoming.files, self.first, self.at)
        frame = output.frame(good)
        scanned.files[output.table] = write_frame(
            self.core.ledger, output.table, frame, small=output.small, time=output.time, staged=scanned.staged
        )
        reach("between-files")

    def _numbered(self, good: DataFrame) -> Any:
        """Rows on the driver in order of arrival, with their numbers."""
        columns = [quote_name(field.name) for field in self.stream.fields]
        if len(self.incoming.files) > 1:
            rows = by_file(good.select(*columns, ORIGIN).toArrow(), self.incoming.files).drop_columns([ORIGIN])
        else:
            rows = good.select(*columns).toArrow()
        return number_table(rows, self.first, self.at)

    def _bad_rows(self) -> list[BadRow]:
        columns = [quote_name(field.name) for field in self.stream.fields]
        as_json = f"to_json(struct({', '.join(columns)}))"
        listed = (
            marked(self.rows.where(f"NOT ({self.parsed})"))
            .selectExpr(ORIGIN, CORRUPT, f"coalesce({CORRUPT}, {as_json}) AS _raw")
            .limit(LISTED_BAD_ROWS)
            .collect()
        )
        corrupt = [(row[ORIGIN], row[CORRUPT]) for row in listed if row[CORRUPT] is not None]
        explain = self.incoming.explain or (lambda rows: [Why()] * len(rows))
        reasons = iter(explain(corrupt))
        no_time = Why(f"it has no event time ({self.stream.time} is NULL)", self.stream.time)
        found = [(row, next(reasons) if row[CORRUPT] is not None else no_time) for row in listed]
        return [
            BadRow(
                file_and_start(row[ORIGIN])[0] if row[ORIGIN] else "insert",
                why.line,
                why.reason,
                row["_raw"],
                why.column,
            )
            for row, why in found
        ]


def _metrics(stream: Stream, good: str, parsed: str, state: ProgressState, parts: list[str], now: int) -> list[str]:
    """The statistics of a run as aggregates over its rows, without those that follow from others: each costs time."""
    items = [f"count_if({good}) AS rows", f"count_if(NOT ({parsed})) AS bad"]
    if stream.time is None:
        return items
    time, value, limit = _time_sql(stream), _value_sql(stream), _limit(stream, now)
    if state.bound is not None and stream.key is None:
        items.append(f"count_if({good} AND {time} < {state.bound}) AS late")
    items += [f"min(CASE WHEN {good} THEN {time} END) AS low", f"max(CASE WHEN {good} THEN {time} END) AS high"]
    if stream.key is not None or (len(parts) == 1 and limit is None and value is None):
        return items
    for index, part in enumerate(parts):
        here = parsed if len(parts) == 1 else f"{parsed} AND {PARTITION} = '{part}'"
        statistics = _of_part(here, time, value, limit)
        if state.bound is not None and len(parts) > 1:
            statistics["late"] = f"count_if({good} AND {PARTITION} = '{part}' AND {time} < {state.bound})"
        items += [f"{text} AS {name}_{index}" for name, text in statistics.items()]
    return items


#: What is told of a part: `Seen` without the times.
_SEEN = ("high", "highest", "rows", "ahead", "value", "highest_value", "late")


def _of_part(here: str, time: str, value: str | None, limit: int | None) -> dict[str, str]:
    """What is seen of the rows for which something holds, as aggregates; rows that mark progress are among them."""
    found = {"highest": f"max(CASE WHEN {here} THEN {time} END)", "rows": f"count_if({here})"}
    if value is not None:
        found["highest_value"] = f"max(CASE WHEN {here} THEN {value} END)"
    if limit is not None:
        honest = f"{here} AND {time} <= {limit}"
        found["high"] = f"max(CASE WHEN {honest} THEN {time} END)"
        found["ahead"] = f"count_if({here} AND {time} > {limit})"
        if value is not None:
            found["value"] = f"max(CASE WHEN {honest} THEN {value} END)"
    return found


def _seen(values: Mapping[str, Any], times: Sequence[int]) -> Seen:
    """What was seen of a part, from aggregates; without a limit to how far ahead rows may be, none is."""
    highest, value = values["highest"], values.get("highest_value")
    return Seen(
        values.get("high", highest),
        highest,
        values["rows"] or 0,
        values.get("ahead") or 0,
        times,
        values.get("value", value),
        value,
        values.get("late") or 0,
    )


def _limit(stream: Stream, now: int) -> int | None:
    """The time beyond which a row is ahead of the clock."""
    return now + stream.ahead if stream.live and stream.ahead is not None else None


def _time_sql(stream: Stream) -> str:
    assert stream.time is not None
    return f"unix_micros({quote_name(stream.time)})"


def _value_sql(stream: Stream) -> str | None:
    """What the rule of a stream has computed of each row; None: nothing."""
    if isinstance(stream.rule, Computed):
        return f"unix_micros(CAST(({stream.rule.expression}) AS TIMESTAMP))"
    marks = punctuation_sql(stream)
    return None if marks is None else f"CASE WHEN {marks} THEN {_time_sql(stream)} END"


def _key_sql(stream: Stream) -> str:
    """The name of the part that a row is in: its key as text behind an equals sign, nothing for NULL."""
    assert stream.key is not None
    column, marks = quote_name(stream.key), punctuation_sql(stream)
    name = f"coalesce(concat('=', CAST({column} AS STRING)), '')"
    return name if marks is None else f"CASE WHEN {column} IS NULL AND {marks} THEN '{EVERY_KEY}' ELSE {name} END"


def in_order(rows: Any, parts: list[str], files: Sequence[str]) -> dict[str, list[int]]:
    """The event times of each partition, or key, as they came: file by file in the order given, row by row in each."""
    rows = by_file(rows, files) if files else rows
    times = rows.column("time").to_pylist()
    if PARTITION not in rows.column_names:
        return {parts[0]: times}
    found: dict[str, list[int]] = {part: [] for part in parts}
    for part, time in zip(rows.column(PARTITION).to_pylist(), times, strict=True):
        found.setdefault(part, []).append(time)
    return found


def by_file(rows: Any, files: Sequence[str]) -> Any:
    """Rows in the order of the files they are from.

    Spark hands out the rows of a file in their order, but begins with the largest file.
    """
    import pyarrow as pa
    import pyarrow.compute as compute

    place = {name: index for index, name in enumerate(files)}
    origins = rows.column(ORIGIN).combine_chunks().dictionary_encode()
    named = origins.dictionary.to_pylist()
    places = pa.array([place.get(path_of(origin), len(files)) for origin in named], pa.int64())
    return rows.take(compute.array_sort_indices(places.take(origins.indices)))


def marked(frame: DataFrame) -> DataFrame:
    """Rows with the columns that a source adds, where this one did not."""
    from pyspark.sql import functions as F

    for name, default in ((CORRUPT, "CAST(NULL AS STRING)"), (ORIGIN, "''"), (PARTITION, "''")):
        if name not in frame.columns:
            frame = frame.withColumn(name, F.expr(default))
    return frame
