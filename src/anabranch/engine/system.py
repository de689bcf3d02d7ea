"""The system tables, as frames: the state of a home, from its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import END, reached
from anabranch.engine import late, node_statistics
from anabranch.engine.core import POST_CUT, Core
from anabranch.engine.frames import arrow_schema
from anabranch.engine.lookup_client import LookupCounts
from anabranch.engine.tables import BAD_ROW_FIELDS, BAD_ROWS
from anabranch.errors import AnabranchError
from anabranch.ledger import Snapshot
from anabranch.ledger.snapshot import StreamState
from anabranch.plan.definitions import Sink, Stream, Table
from anabranch.plan.describe import append_only, keys_of, kind_of, reason_of, tables_of
from anabranch.plan.view import View
from anabranch.sinks.kinds import place_of
from anabranch.sources.base import Lagging
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS: dict[str, tuple[Field, ...]] = {
    "runs": (
        Field("version", "bigint"),
        Field("kind", "string"),
        Field("committed", "timestamp"),
        Field("stream", "string"),
        Field("run", "bigint"),
        Field("rows", "bigint"),
        Field("late_rows", "bigint"),
        Field("bad_rows", "bigint"),
        Field("low", "timestamp"),
        Field("high", "timestamp"),
        Field("progress", "timestamp"),
        Field("ended", "boolean"),
        Field("milliseconds", "map<string,double>"),
        Field("files", "bigint"),
        Field("post_cut_ms", "double"),
    ),
    "progress": (
        Field("stream", "string"),
        Field("partition", "string"),
        Field("progress", "timestamp"),
        Field("ended", "boolean"),
        Field("high", "timestamp"),
        Field("rows", "bigint"),
        Field("late_rows", "bigint"),
        Field("bad_rows", "bigint"),
        Field("kind", "string"),
        Field("view", "string"),
        Field("disorder", "double"),
        Field("ahead_rows", "bigint"),
        Field("idle", "boolean"),
        Field("lag_bytes", "bigint"),
    ),
    "views": (
        Field("name", "string"),
        Field("emits", "string"),
        Field("reads", "array<string>"),
        Field("state", "array<string>"),
        Field("sql", "string"),
        Field("lacks", "bigint"),
        Field("stopped", "string"),
    ),
    "nodes": (
        Field("view", "string"),
        Field("node", "string"),
        Field("kind", "string"),
        Field("keys", "array<string>"),
        Field("append_only", "boolean"),
        Field("reason", "string"),
        Field("state_rows", "bigint"),
        Field("state_bytes", "bigint"),
    ),
    "tables": (
        Field("id", "string"),
        Field("files", "bigint"),
        Field("rows", "bigint"),
        Field("bytes", "bigint"),
        Field("delta_version", "bigint"),
        Field("path", "string"),
    ),
    "sinks": (
        Field("name", "string"),
        Field("view", "string"),
        Field("into", "string"),
        Field("mode", "string"),
        Field("path", "string"),
        Field("version", "bigint"),
        Field("error", "string"),
    ),
    "lookups": (
        Field("table", "string"),
        Field("requests", "bigint"),
        Field("keys", "bigint"),
        Field("rows", "bigint"),
        Field("retries", "bigint"),
        Field("cached", "bigint"),
    ),
    "bad_rows": BAD_ROW_FIELDS,
    "late_rows": late.LATE_ROW_FIELDS,
}
#: The last time that Spark can show; the progress of an ended stream is later.
_LATEST = 253402300799_999_999


_EMITS = {
    "read": "when read",
    "feed": "every change",
    "close": "on window close",
    "triggers": "when triggers fire",
}


def frame(core: Core, name: str, snapshot: Snapshot) -> DataFrame:
    if name == "bad_rows":
        return core.table_frame(BAD_ROWS, BAD_ROW_FIELDS, snapshot)
    if name == "late_rows":
        return late.frame(core, snapshot)
    import pyarrow as pa

    makers = {
        "runs": _runs,
        "progress": _progress,
        "views": _views,
        "nodes": _nodes,
        "tables": _tables,
        "sinks": sinks,
        "lookups": _lookups,
    }
    rows = makers[name](core, snapshot)
    schema = arrow_schema(FIELDS[name])
    columns = [[row[index] for row in rows] for index in range(len(FIELDS[name]))]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    return core.spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))


def _runs(core: Core, snapshot: Snapshot) -> list[tuple[Any, ...]]:
    from datetime import datetime

    names = {each.id: each.name for each in core.catalog(snapshot).of(Stream)}
    rows: list[tuple[Any, ...]] = []
    for record in core.ledger.records(1, snapshot.version):
        files = sum(len(change.add) for change in record.tables.values())
        at = datetime.fromisoformat(record.at)
        times = list(record.milliseconds.items())
        cut = record.milliseconds.get(POST_CUT)
        for stream, run in record.streams.items():
            rows.append(
                (
                    record.version, record.kind, at, names.get(stream, stream), run.run if run.run >= 0 else None,
                    run.rows, run.late, run.bad, run.low, run.high, _shown(run.bound), run.bound == END, times, files,
                    cut,
                )
            )  # fmt: skip
        if not record.streams:
            rows.append((record.version, record.kind, at, *[None] * 9, times, files, cut))
    return rows


def _progress(core: Core, snapshot: Snapshot) -> list[tuple[Any, ...]]:
    """Streams, their partitions or keys if there are several, and views."""
    rows: list[tuple[Any, ...]] = []
    catalog = core.catalog(snapshot)
    for stream in sorted(catalog.of(Stream), key=lambda each: each.name):
        state = core.progress(snapshot, stream.id)
        totals = snapshot.streams.get(stream.id)
        counts = (totals.rows, totals.late, totals.bad) if totals is not None else (0, 0, 0)
        ended = state.bound == END
        bound = _shown(state.bound)
        whole = ("stream", None, _disorder(state.high, bound), state.ahead_rows, state.idle, _lag(core, stream, totals))
        rows.append((stream.name, None, bound, ended, state.high, *counts, *whole))
        kind = "partition" if stream.key is None else "key"
        for name, part in sorted(state.partitions.items()) if len(state.partitions) > 1 or kind == "key" else ():
            own = reached(stream.policy, part)
            shown = name if kind == "partition" else (name[1:] if name else None)
            row = (None, part.late_rows, None, kind, None, _disorder(part.high, own), part.ahead_rows, None, None)
            rows.append((stream.name, shown, own, ended, part.high, *row))
    late = _late_by_view(core, snapshot)
    for view in sorted((each for each in catalog.of(View) if each.owner is None), key=lambda each: each.name):
        bound = node_statistics.view_progress(core, snapshot, view)
        highs = [core.progress(snapshot, id).high for id in catalog.sources_of(view)]
        high = max((each for each in highs if each is not None), default=None)
        shown_bound = _shown(bound)
        disorder = _disorder(high, shown_bound)
        counted = (None, late.get(view.name, 0), None)
        rows.append(
            (None, None, shown_bound, bound == END, high, *counted, "view", view.name, disorder, None, None, None)
        )
    return rows


def _lag(core: Core, stream: Stream, state: StreamState | None) -> int | None:
    """The bytes of an external log that a stream has not read; None if it has no log, or the log cannot be reached."""
    if state is None or state.last is None:
        return None
    try:
        source = core.source(stream)
        return source.lag(state.last.position) if isinstance(source, Lagging) else None
    except AnabranchError:
        return None


def _disorder(high: int | None, bound: int | None) -> float | None:
    """The distance from the latest row back to the progress, in seconds."""
    return None if high is None or bound is None else max(0, high - bound) / 1_000_000


def _late_by_view(core: Core, snapshot: Snapshot) -> dict[str, int]:
    """The number of late rows of each view."""
    from pyarrow import parquet

    found: dict[str, int] = {}
    for path in snapshot.table_paths(core.ledger, late.LATE_ROWS):
        table = parquet.read_table(path, columns=["view", "rows"])
        for view, rows in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found[view] = found.get(view, 0) + rows
    return found


def _views(core: Core, snapshot: Snapshot) -> list[tuple[Any, ...]]:
    catalog = core.catalog(snapshot)
    rows: list[tuple[Any, ...]] = []
    for view in sorted((each for each in catalog.of(View) if each.owner is None), key=lambda each: each.name):
        streams = sorted(catalog.stream(id).name for id in catalog.sources_of(view))
        state = [catalog.kept_panes(use.panes) for use in view.query.blocks] + (
            [view.query.rows] if view.query.rows else []
        )
        rows.append(
            (
                view.name,
                _EMITS[view.emission.mode],
                streams,
                state,
                view.sql,
                view.state.lacks,
                view.state.stopped or None,
            )
        )
    return rows


def _nodes(core: Core, snapshot: Snapshot) -> list[tuple[Any, ...]]:
    """The nodes of each view; shared state is counted for each node."""
    catalog = core.catalog(snapshot)
    rows: list[tuple[Any, ...]] = []
    for view in catalog.in_order():
        owner = catalog.view(view.owner).name if view.owner is not None else view.name
        kept = node_statistics.state_size(snapshot, tables_of(view, catalog))
        keys = list(keys_of(view, catalog))
        rows.append((owner, view.name, kind_of(view), keys, append_only(view, catalog), reason_of(view) or None, *kept))
    return sorted(rows, key=lambda row: row[0])


def _tables(core: Core, snapshot: Snapshot) -> list[tuple[Any, ...]]:
    return [
        (
            id,
            len(files),
            sum(file.rows for file in files.values()),
            sum(file.bytes for file in files.values()),
            snapshot.delta_versions.get(id),
            str(core.ledger.table_folder(id)),
        )
        for id, files in sorted(snapshot.files.items())
    ]


def _lookups(core: Core, snapshot: Snapshot) -> list[tuple[Any, ...]]:
    """The lookups in external tables since the home was opened."""
    rows: list[tuple[Any, ...]] = []
    catalog = core.catalog(snapshot)
    hinted = {lookup.table for view in catalog.of(View) for lookup in view.query.asks}
    tables = [each for each in catalog.of(Table) if each.asked or each.id in hinted]
    for table in sorted(tables, key=lambda each: each.name):
        asker = core.lookup_clients.get(table.id)
        tally = asker.tally if asker is not None else LookupCounts()
        rows.append((table.name, tally.requests, tally.keys, tally.rows, tally.retries, tally.remembered))
    return rows


def sinks(core: Core, snapshot: Snapshot) -> list[tuple[Any, ...]]:
    """The sinks, each with the last version that it has written, according to its target."""
    catalog = core.catalog(snapshot)
    rows: list[tuple[Any, ...]] = []
    for sink in sorted(catalog.of(Sink), key=lambda each: each.name):
        error = core.sinks.errors.get(sink.id)
        version: int | None = None
        try:
            version = core.sinks.position(sink)
        except Exception as problem:
            error = error or str(problem)
        view = catalog.view(sink.view).name
        rows.append(
            (sink.name, view, sink.into, sink.options.get("mode"), place_of(sink.into, sink.options), version, error)
        )
    return rows


def _shown(bound: int | None) -> int | None:
    return None if bound is None or bound > _LATEST else bound
