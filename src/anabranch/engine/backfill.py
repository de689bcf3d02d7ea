"""Partials and rows of the past: a view made late is the same as one made early."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.engine import read
from anabranch.engine.core import Core, Stopwatch
from anabranch.engine.frames import arrow_schema
from anabranch.engine.run import emit_changes
from anabranch.engine.stream_part import StreamPart
from anabranch.engine.tables import PANE, pane_fields
from anabranch.engine.writing import write_frame
from anabranch.errors import NotSupported
from anabranch.ledger import DataFile, Draft, Snapshot, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import Catalog, Field, Panes, Rows, Stream, View, to_json
from anabranch.plan.views import Planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def draft(
    core: Core, stream_part: StreamPart, planned: Planned, catalog: Catalog, snapshot: Snapshot, start: str | int
) -> Draft:
    """The commit that makes a planned view, with what it starts with."""
    merged = Catalog(
        {
            **{id: to_json(each) for id, each in catalog.objects.items()},
            **{each.id: to_json(each) for each in (*planned.objects, planned.view)},
        }
    )
    staged: list[Path] = []
    files: dict[str, tuple[DataFile, ...]] = {}
    schemas: dict[str, Any] = {}
    try:
        for each in planned.objects:
            if isinstance(each, View):
                continue
            table, fields, time, frame = _past(core, stream_part, planned, merged, snapshot, start, each)
            schemas[table] = arrow_schema(fields)
            files[table] = ()
            if frame is not None:
                files[table] = write_frame(core.ledger, table, frame, small=False, time=time, staged=staged)
        reach("after-backfill")
        tables = {table: TableChange(add=added) for table, added in files.items()}
        made = frozenset(each.id for each in (*planned.objects, planned.view) if isinstance(each, View))
        bounds = {id: (None, core.progress(snapshot, id).bound) for id in merged.sources_of(planned.view)}
        emit_changes(core, merged, snapshot, bounds, files, tables, schemas, Stopwatch(), made)
    except BaseException:
        core.ledger.give_up(files, staged)
        raise
    definitions = {each.id: to_json(each) for each in (*planned.objects, planned.view)}
    return Draft("create", tables=tables, catalog=definitions, schemas=schemas, staged=tuple(staged))


def _past(
    core: Core,
    stream_part: StreamPart,
    planned: Planned,
    catalog: Catalog,
    snapshot: Snapshot,
    start: str | int,
    each: Panes | Rows | Stream,
) -> tuple[str, tuple[Field, ...], str | None, DataFrame | None]:
    """A table that a view needs: its id, its columns, its time, and the rows of the past that go into it."""
    if isinstance(each, Stream):
        return each.rows_table, each.fields, each.time, _history(core, each, snapshot, "beginning")
    history = _history(core, catalog.stream(each.stream), snapshot, start)
    if isinstance(each, Rows):
        return each.id, each.fields, None, None if history is None else stream_part.rows(each, catalog, history)
    columns = planned.fill_columns.get(each.id, ())
    frame = stream_part.partials(each, catalog, history, columns) if history is not None and columns else None
    return each.id, pane_fields(each), PANE if each.time is not None else None, frame


def _history(core: Core, stream: Stream, snapshot: Snapshot, start: str | int) -> DataFrame | None:
    """The rows of a stream that a new view starts with; None if there are none."""
    state = snapshot.streams.get(stream.id)
    if state is None or state.runs == 0 or start == "now":
        return None
    source = core.source(stream)
    if start == "beginning":
        if source is None and stream.kept_since is None:
            return None
        return read.stream_frame(core, stream, snapshot)
    earlier = core.ledger.snapshot(int(start)).streams.get(stream.id)
    first = earlier.runs if earlier is not None else 0
    if source is None:
        raise NotSupported("START AT VERSION needs a stream whose source can be read again")
    return read.source_frame(core, stream, source, snapshot, first)
