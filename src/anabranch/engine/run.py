"""The life of a run: rows in, partials and rows out, one commit. The same for a source, INSERT, COPY and a backfill.

    tag (bad, late) -> one scan, observed -> partials and rows to files -> changes of views that emit -> record

Everything before the record can be lost without a trace; the record names all of it at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.algebra import progress as progress_algebra
from anabranch.algebra.progress import ProgressState, Seen
from anabranch.engine import emit
from anabranch.engine.core import Core, Stopwatch
from anabranch.engine.frames import arrow_schema, translate
from anabranch.engine.stream_part import StreamPart
from anabranch.engine.tables import BAD_ROW_FIELDS, BAD_ROWS, PANE, change_fields, pane_fields
from anabranch.engine.writing import SMALL_BYTES, SMALL_ROWS, write_frame, write_table
from anabranch.errors import QueryFailed
from anabranch.ledger import DataFile, Draft, Record, Snapshot, StreamRun, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.blocks import STREAM
from anabranch.plan.catalog import Catalog, Field, Panes, Stream, View
from anabranch.sources.base import CORRUPT, ORIGIN, PARTITION, BadRow
from anabranch.sources.files import FilesSource
from anabranch.sql.lexer import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How many rows of a run are listed as bad one by one; the rest is counted.
LISTED_BAD_ROWS = 1000


@dataclass(frozen=True)
class Incoming:
    """Rows on their way into a run."""

    frame: DataFrame
    position: Any
    captured: Any
    bytes: int
    bad: tuple[BadRow, ...] = ()
    typed: bool = False  # never text that may not parse
    cheap: bool = False  # read again for each output rather than kept in memory
    verify: Callable[[], None] = lambda: None  # raises if the rows are not what they were said to be


@dataclass
class _Output:
    """One table that a run adds to."""

    table: str
    frame: Callable[[DataFrame], DataFrame]
    time: str | None
    small: bool
    fields: tuple[Field, ...]
    observable: bool  # made without a temporary view, through which Spark's observations do not come back
    carrier: Panes | None = None  # small, and sees every row: the figures of the run can be added up from it


class Runner:
    """Makes runs of one home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.stream_part = StreamPart(core)

    def run(
        self,
        stream_id: str,
        incoming: Incoming,
        *,
        kind: str = "run",
        applied: tuple[str, ...] = (),
    ) -> Record:
        """Take rows into a stream as its next run."""
        watch = Stopwatch()
        core = self.core
        with core.stream_lock(stream_id):
            snapshot = core.ledger.snapshot()
            catalog = core.catalog(snapshot)
            stream = catalog.stream(stream_id)
            state = core.progress(snapshot, stream_id)
            staged: list[Path] = []
            files: dict[str, tuple[DataFile, ...]] = {}
            reach("before-job")
            try:
                outputs = self._outputs(stream, catalog, snapshot, incoming.bytes)
                figures, bad = self._scan(stream, incoming, outputs, state, files, staged, watch)
            except Exception as error:
                core.ledger.give_up(files, staged)
                raise translate(error) from error
            if stream.fail_on_bad and bad:
                core.ledger.give_up(files, staged)
                first = bad[0]
                raise QueryFailed(
                    f"stream {stream.name}: {first.reason} in {first.source}"
                    + (f", line {first.offset}" if first.offset is not None else ""),
                    hint="the stream was made with ON ERROR FAIL; mend the row, or make it again with ON ERROR SKIP",
                )
            reach("after-files")
            after = progress_algebra.observe(stream.policy, state, figures.by_partition, core.now())
            try:
                incoming.verify()
                with core.ledger.commit_lock:
                    return self._commit(
                        stream, incoming, files, figures, bad, state, after, kind, applied, outputs, staged, watch
                    )
            except Exception:
                core.ledger.give_up(files, staged)
                raise

    # ---- what a run adds to

    def _outputs(self, stream: Stream, catalog: Catalog, snapshot: Snapshot, size: int) -> list[_Output]:
        outputs: list[_Output] = []
        if stream.kept_since is not None:
            columns = [quote_name(field.name) for field in stream.fields]
            outputs.append(
                _Output(
                    stream.rows_table,
                    lambda good: good.select(*columns),
                    stream.time,
                    size <= SMALL_BYTES,
                    stream.fields,
                    True,
                )
            )
        for state in catalog.states_of(stream.id):
            small = size <= SMALL_BYTES or _was_small(snapshot, state.id)
            if isinstance(state, Panes):
                outputs.append(
                    _Output(
                        state.id,
                        lambda good, panes=state: self.stream_part.partials(panes, catalog, good),  # type: ignore[misc]
                        PANE if state.time is not None else None,
                        small,
                        pane_fields(state),
                        state.from_text == STREAM,
                        state if small and self.stream_part.carries(state, stream) else None,
                    )
                )
            else:
                outputs.append(
                    _Output(
                        state.id,
                        lambda good, rows=state: self.stream_part.rows(rows, catalog, good),  # type: ignore[misc]
                        None,
                        size <= SMALL_BYTES,
                        state.fields,
                        False,
                    )
                )
        return sorted(outputs, key=lambda output: (output.carrier is None, not output.observable))

    # ---- one scan

    def _scan(
        self,
        stream: Stream,
        incoming: Incoming,
        outputs: list[_Output],
        state: ProgressState,
        files: dict[str, tuple[DataFile, ...]],
        staged: list[Path],
        watch: Stopwatch,
    ) -> tuple[Figures, list[BadRow]]:
        from pyspark.sql import Observation

        tagged = incoming.frame
        plain = incoming.typed and "_corrupt" not in tagged.columns
        tagged = tagged if plain else _marked(tagged)
        checks = [] if plain else ["_corrupt IS NULL"]
        if stream.time is not None:
            checks.append(f"{quote_name(stream.time)} IS NOT NULL")
        good_condition = " AND ".join(checks) or "true"
        parts = self._partitions(stream)
        carried = incoming.typed and not stream.live and bool(outputs) and outputs[0].carrier is not None
        metrics = [] if carried else _metrics(stream, good_condition, state, parts, self.core.now())
        observable = bool(outputs) and outputs[0].observable and not carried
        shared = len(outputs) > 1 or not (observable or carried or not outputs)
        kept = shared and not incoming.cheap
        if kept:
            tagged = tagged.persist()
        try:
            values: Mapping[str, Any] = {}
            if not observable and not carried:
                values = tagged.agg(*metrics).collect()[0].asDict()
            if outputs:
                observation = Observation()
                observed = tagged.observe(observation, *metrics) if observable else tagged
                good = [each.where(good_condition) for each in (observed, tagged)]
                reach("during-files")

                def work(index: int) -> None:
                    nonlocal values
                    output = outputs[index]
                    if index == 0 and carried:
                        assert output.carrier is not None
                        frame = self.stream_part.carrying(output.carrier, stream, good_condition, state.bound, tagged)
                        partials, values = _figures_apart(frame.toArrow())
                        files[output.table] = write_table(self.core.ledger, output.table, partials, output.time)
                        reach("between-files")
                        return
                    frame = output.frame(good[0 if index == 0 else 1])
                    files[output.table] = write_frame(
                        self.core.ledger,
                        output.table,
                        frame,
                        small=output.small,
                        time=output.time,
                        staged=staged,
                    )
                    reach("between-files")

                if shared:
                    with ThreadPoolExecutor(max_workers=min(8, len(outputs))) as pool:
                        list(pool.map(work, range(len(outputs))))
                else:
                    work(0)
                if observable:
                    values = observation.get
            watch.lap("partials")
            figures = Figures.of(values, parts)
            bad = list(incoming.bad)
            if figures.bad:
                bad += self._bad_rows(stream, tagged.where(f"NOT ({good_condition})"))
                watch.lap("bad rows")
            return figures, bad
        finally:
            if kept:
                tagged.unpersist()

    def _partitions(self, stream: Stream) -> list[str]:
        source = self.core.source(stream)
        return source.partitions() if source is not None else [""]

    def _bad_rows(self, stream: Stream, frame: DataFrame) -> list[BadRow]:
        columns = [quote_name(field.name) for field in stream.fields]
        as_json = f"to_json(struct({', '.join(columns)}))"
        listed = (
            _marked(frame)
            .selectExpr("_origin", "_corrupt", f"coalesce(_corrupt, {as_json}) AS _raw")
            .limit(LISTED_BAD_ROWS)
            .collect()
        )
        source = self.core.source(stream)
        offsets: dict[tuple[str, str], int] = {}
        if isinstance(source, FilesSource):
            by_origin: dict[str, list[str]] = {}
            for row in listed:
                if row["_corrupt"] is not None:
                    by_origin.setdefault(row["_origin"], []).append(row["_corrupt"])
            for origin, raw in by_origin.items():
                for text, line in source.offset_of(_path(origin), raw).items():
                    offsets[origin, text] = line
        no_time = f"it has no event time ({stream.time} is NULL)"
        return [
            BadRow(
                _path(row["_origin"]) if row["_origin"] else "insert",
                offsets.get((row["_origin"], row["_raw"])),
                "it does not parse as a row of the stream" if row["_corrupt"] is not None else no_time,
                row["_raw"],
            )
            for row in listed
        ]

    # ---- the commit

    def _commit(
        self,
        stream: Stream,
        incoming: Incoming,
        files: Mapping[str, tuple[DataFile, ...]],
        figures: Figures,
        bad: list[BadRow],
        before: ProgressState,
        after: ProgressState,
        kind: str,
        applied: tuple[str, ...],
        outputs: list[_Output],
        staged: list[Path],
        watch: Stopwatch,
    ) -> Record:
        ledger = self.core.ledger
        snapshot = ledger.snapshot()
        catalog = self.core.catalog(snapshot)
        number = snapshot.streams[stream.id].runs if stream.id in snapshot.streams else 0
        tables = {table: TableChange(add=added) for table, added in files.items() if added}
        schemas = {o.table: arrow_schema(o.fields) for o in outputs if o.table in tables and _widens(o, snapshot)}
        if bad:
            table = _bad_table(stream, number, bad)
            tables[BAD_ROWS] = TableChange(add=write_table(ledger, BAD_ROWS, table, None))
            schemas[BAD_ROWS] = table.schema
        run = StreamRun(
            run=number,
            rows=figures.rows,
            late=figures.late,
            bad=figures.bad + len(incoming.bad),
            low=figures.low,
            high=figures.high,
            progress=after.to_json(),
            position=incoming.position,
            captured=incoming.captured,
            bound=after.bound,
        )
        try:
            emit_changes(
                self.core,
                catalog,
                snapshot,
                {stream.id: (before.bound, after.bound)},
                files,
                tables,
                schemas,
                watch,
            )
            reach("after-changes")
            record = ledger.commit(
                Draft(
                    kind,
                    streams={stream.id: run},
                    tables=tables,
                    applied=applied,
                    milliseconds=watch.total(),
                    schemas=schemas,
                    staged=tuple(staged),
                )
            )
        except Exception:
            ledger.give_up({table: change.add for table, change in tables.items()})
            raise
        reach("after-run")
        return record

    # ---- progress without rows

    def move(
        self, stream_id: str, change: Callable[[Stream, ProgressState], ProgressState], kind: str
    ) -> Record | None:
        """Move the progress of a stream by hand, by the clock, or to its end; None if it did not move."""
        core = self.core
        watch = Stopwatch()
        with core.stream_lock(stream_id), core.ledger.commit_lock:
            snapshot = core.ledger.snapshot()
            catalog = core.catalog(snapshot)
            stream = catalog.stream(stream_id)
            before = core.progress(snapshot, stream_id)
            after = change(stream, before)
            if after.bound == before.bound:
                return None
            state = snapshot.streams.get(stream_id)
            last = state.last if state is not None and state.last is not None else StreamRun(run=-1, rows=0)
            run = replace(
                last, rows=0, late=0, bad=0, low=None, high=None,
                progress=after.to_json(), captured=None, bound=after.bound,
            )  # fmt: skip
            tables: dict[str, TableChange] = {}
            schemas: dict[str, Any] = {}
            emit_changes(core, catalog, snapshot, {stream_id: (before.bound, after.bound)}, {}, tables, schemas, watch)
            return core.ledger.commit(
                Draft(kind, streams={stream_id: run}, tables=tables, schemas=schemas, milliseconds=watch.total())
            )


@dataclass(frozen=True)
class Figures:
    """What the scan of a run saw."""

    rows: int
    bad: int
    late: int
    low: int | None
    high: int | None
    by_partition: Mapping[str, Seen]

    @classmethod
    def of(cls, values: Mapping[str, Any], parts: list[str]) -> Figures:
        seen = {
            part: Seen(
                values[f"high_{i}"],
                values[f"highest_{i}"],
                values[f"rows_{i}"] or 0,
                values[f"ahead_{i}"] or 0,
            )
            for i, part in enumerate(parts)
        }
        return cls(values["rows"], values["bad"], values["late"] or 0, values["low"], values["high"], seen)


def _metrics(stream: Stream, good: str, state: ProgressState, parts: list[str], now: int) -> list[Any]:
    """The figures of a run as aggregates over its tagged rows."""
    from pyspark.sql import functions as F

    time = f"unix_micros({quote_name(stream.time)})" if stream.time is not None else "CAST(NULL AS BIGINT)"
    late = "0" if state.bound is None or stream.time is None else f"count_if({good} AND {time} < {state.bound})"
    items = [
        f"count_if({good}) AS rows",
        f"count_if(NOT ({good})) AS bad",
        f"{late} AS late",
        f"min(CASE WHEN {good} THEN {time} END) AS low",
        f"max(CASE WHEN {good} THEN {time} END) AS high",
    ]
    limit = now + stream.ahead if stream.live and stream.ahead is not None else None
    for index, part in enumerate(parts):
        here = good if len(parts) == 1 else f"{good} AND _partition = '{part}'"
        on_time = here if limit is None else f"{here} AND {time} <= {limit}"
        ahead = "0" if limit is None else f"count_if({here} AND {time} > {limit})"
        items += [
            f"max(CASE WHEN {on_time} THEN {time} END) AS high_{index}",
            f"max(CASE WHEN {here} THEN {time} END) AS highest_{index}",
            f"count_if({here}) AS rows_{index}",
            f"{ahead} AS ahead_{index}",
        ]
    # A constant is no aggregate to Spark's observe.
    items = [
        item if "(" in item else f"CAST(max({item.split(' AS ')[0]}) AS BIGINT) AS {item.split(' AS ')[1]}"
        for item in items
    ]
    return [F.expr(item) for item in items]


def emit_changes(
    core: Core,
    catalog: Catalog,
    snapshot: Snapshot,
    bounds: Mapping[str, tuple[int | None, int | None]],
    added: Mapping[str, tuple[DataFile, ...]],
    tables: dict[str, TableChange],
    schemas: dict[str, Any],
    watch: Stopwatch,
) -> None:
    """Add the changes of every view that emits on progress to the tables of a commit."""
    for view in catalog.of(View):
        if view.emit != "close" or not catalog.sources_of(view) & set(bounds):
            continue
        files = emit.changes(core, catalog, view, snapshot, bounds, added)
        if files:
            tables[view.changes_table] = TableChange(add=files)
            panes = catalog.panes(view.blocks[0].panes) if view.blocks else None
            if view.changes_table not in snapshot.files:
                _ = core.frames  # it is Spark's parser that reads the types of columns
                schemas[view.changes_table] = arrow_schema(change_fields(view, panes))
        watch.lap("changes")


def _marked(frame: DataFrame) -> DataFrame:
    """Rows with the columns that a source adds, where this one did not."""
    from pyspark.sql import functions as F

    for name, default in ((CORRUPT, "CAST(NULL AS STRING)"), (ORIGIN, "''"), (PARTITION, "''")):
        if name not in frame.columns:
            frame = frame.withColumn(name, F.expr(default))
    return frame


def _figures_apart(table: Any) -> tuple[Any, dict[str, Any]]:
    """Partials on the one side, the figures of the run that came with them on the other."""
    import pyarrow.compute as compute

    good = table.filter(table.column("_good"))
    total, rows = (compute.sum(each.column("_n")).as_py() or 0 for each in (table, good))
    low, high = compute.min(good.column("_low")).as_py(), compute.max(good.column("_high")).as_py()
    late = compute.sum(good.column("_late")).as_py() or 0
    values = {"rows": rows, "bad": total - rows, "late": late, "low": low, "high": high}
    values |= {"high_0": high, "highest_0": high, "rows_0": rows, "ahead_0": 0}
    return good.drop_columns(["_good", "_n", "_late", "_low", "_high"]), values


def _was_small(snapshot: Snapshot, table: str) -> bool:
    """Whether the last files of a table say that the next will be small too."""
    last = list(snapshot.files.get(table, {}).values())[-2:]
    return bool(last) and sum(file.rows for file in last) <= SMALL_ROWS


def _widens(output: _Output, snapshot: Snapshot) -> bool:
    """Whether a table is not there yet or lacks a column."""
    schema = snapshot.schemas.get(output.table)
    if schema is None:
        return True
    known = {field["name"] for field in schema["fields"]}
    return any(field.name not in known for field in output.fields)


def _bad_table(stream: Stream, run: int, bad: list[BadRow]) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "stream": [stream.name] * len(bad),
            "run": [run] * len(bad),
            "source": [row.source for row in bad],
            "offset": [row.offset for row in bad],
            "reason": [row.reason for row in bad],
            "raw": [row.raw for row in bad],
        },
        schema=arrow_schema(BAD_ROW_FIELDS),
    )


def _path(origin: str) -> str:
    from urllib.parse import unquote

    return unquote(re.sub(r"^file:/+", "/", origin))
