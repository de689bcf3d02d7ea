"""CREATE SINK."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from anabranch.engine.core import Core
from anabranch.engine.create_view import ViewMaker
from anabranch.engine.names import Names
from anabranch.engine.sinks import target_of
from anabranch.errors import SinkError, SourceError
from anabranch.ledger import Draft
from anabranch.plan.definitions import Sink
from anabranch.plan.stored import to_json
from anabranch.plan.view import View
from anabranch.sinks.base import CHANGE_COLUMNS
from anabranch.sql.definitions import check_sink
from anabranch.sql.syntax import CreateSink


def create_sink(names: Names, views: ViewMaker, statement: CreateSink, *, again_is_fine: bool) -> str:
    """Define a sink, in one commit, and write the present answer."""
    core = names.core
    name = names.free(statement, statement.name, "sink", again_is_fine)
    if name is None:
        return f"sink {statement.name} already exists"
    options = check_sink(statement)
    if "path" in options:
        options["path"] = os.path.abspath(options["path"].removeprefix("file://"))
    view = names.find(statement, statement.view, View)
    # Folders contain the id, so it is not reused for a new sink of the same name.
    id = names.new_id(f"{name[:31]}_{uuid.uuid4().hex[:8]}")
    sink = Sink(id, name, statement.sql, view.id, statement.into.kind, options)
    try:
        _check_columns(view)
        if "path" in options:
            _check_place(core, Path(options["path"]))
        target_of(sink, core.ledger).check(view.fields)
    except (SinkError, SourceError) as error:
        raise error.placed(statement.text, statement.into.span) from error
    views.keep_changes(view)
    with core.ledger.commit_lock:
        core.ledger.commit(Draft("create", catalog={sink.id: to_json(sink)}))
    core.sinks.move()
    return f"sink {name} created"


def _check_columns(view: View) -> None:
    taken = [field.name for field in view.fields if field.name.lower() in CHANGE_COLUMNS]
    if taken:
        raise SinkError(
            f"view {view.name} has a column {taken[0]}, which is the name of a column that the sink adds",
            hint="give it another name with AS",
        )


def _check_place(core: Core, path: Path) -> None:
    """Refuse a folder that overlaps the home or another sink."""
    taken = {core.ledger.home: f"the home {core.ledger.home}"}
    for other in core.catalog().of(Sink):
        if "path" in other.options:
            taken[Path(str(other.options["path"]))] = f"the folder of sink {other.name}"
    for folder, what in taken.items():
        inside = path.resolve().is_relative_to(folder.resolve())
        if inside or folder.resolve().is_relative_to(path.resolve()):
            raise SinkError(f"{path} {'is in' if inside else 'holds'} {what}", hint="give the sink a folder of its own")
