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
from anabranch.ledger import Draft, Snapshot, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import Catalog, Panes, Rows, Stream, View, to_json
from anabranch.plan.views import Planned
from anabranch.sql.lexer import quote_name

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
    files: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for each in planned.objects:
        if isinstance(each, Panes):
            schemas[each.id] = arrow_schema(pane_fields(each))
            files[each.id] = ()
            columns = planned.fill_columns.get(each.id, ())
            history = _history(core, merged.stream(each.stream), snapshot, start)
            if history is not None and columns:
                frame = stream_part.partials(each, merged, history, columns)
                time = PANE if each.time is not None else None
                files[each.id] = write_frame(core.ledger, each.id, frame, small=False, time=time, staged=staged)
        elif isinstance(each, Rows):
            schemas[each.id] = arrow_schema(each.fields)
            files[each.id] = ()
            history = _history(core, merged.stream(each.stream), snapshot, start)
            if history is not None:
                frame = stream_part.rows(each, merged, history)
                files[each.id] = write_frame(core.ledger, each.id, frame, small=False, time=None, staged=staged)
        else:
            schemas[each.rows_table] = arrow_schema(each.fields)
            files[each.rows_table] = ()
            history = _history(core, catalog.stream(each.id), snapshot, "beginning")
            if history is not None:
                files[each.rows_table] = write_frame(
                    core.ledger, each.rows_table, history, small=False, time=each.time, staged=staged
                )
    reach("after-backfill")
    tables = {id: TableChange(add=added) for id, added in files.items()}
    if planned.view.emit == "close":
        bounds = {id: (None, core.progress(snapshot, id).bound) for id in merged.sources_of(planned.view)}
        only = Catalog(
            {
                **{
                    id: to_json(o)
                    for id, o in merged.objects.items()
                    if not isinstance(o, View) or o.id == planned.view.id
                }
            }
        )
        emit_changes(core, only, snapshot, bounds, files, tables, schemas, Stopwatch())
    definitions = {each.id: to_json(each) for each in (*planned.objects, planned.view)}
    return Draft("create", tables=tables, catalog=definitions, schemas=schemas, staged=tuple(staged))


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
    captured = [each for each in list(core.ledger.captured(stream.id, snapshot.version))[first:] if each]
    good = "_corrupt IS NULL" + (f" AND {quote_name(stream.time)} IS NOT NULL" if stream.time else "")
    frame = source.read(captured).where(good)
    return frame.select(*(quote_name(field.name) for field in stream.fields))
