"""What planning is told of a home: types, and the present state of its streams and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.engine.names import Names
from anabranch.errors import NotSupported
from anabranch.ledger import Snapshot
from anabranch.plan.alter import missing
from anabranch.plan.definitions import Stream
from anabranch.plan.placer import PlanningContext
from anabranch.plan.strategy import Load


def context_of_explain(names: Names) -> PlanningContext:
    """The context for a plan that is only explained: its ids remain free."""
    given = set(names.given)
    context = planning_context(names, names.core.snapshot(), "beginning")
    return replace(context, new_id=lambda name: names.new_id(name, given))


def planning_context(
    names: Names, snapshot: Snapshot, start: str | int, known: Mapping[str, tuple[int, int]] | None = None
) -> PlanningContext:
    """The planning context; `known` are the beginnings of an existing view."""
    core = names.core

    def first_run(stream: Stream) -> int:
        begin = begins(stream)
        return 0 if begin is None else begin[0]

    def gone(stream: Stream) -> str | None:
        state = snapshot.streams.get(stream.id)
        if state is None or not state.rows or begins(stream) is not None:
            return None
        return missing(stream, state.runs, 0)

    def begins(stream: Stream) -> tuple[int, int] | None:
        if known is not None and stream.id in known:
            return known[stream.id]
        if start == "beginning":
            return None
        at = snapshot if start == "now" else core.ledger.snapshot(int(start))
        state = at.streams.get(stream.id)
        begin = (state.runs, state.rows) if state is not None else (0, 0)
        _check_start(stream, snapshot, start, begin[0])
        return begin

    return PlanningContext(
        lambda text, schemas: core.frames.analyze(text, schemas),
        first_run,
        lambda id: bool(snapshot.files.get(id)),
        lambda id: (snapshot.version, snapshot.delta_versions.get(id, 0)),
        names.new_id,
        lambda id: _load(snapshot, id),
        begins,
        gone,
    )


def _check_start(stream: Stream, snapshot: Snapshot, start: str | int, run: int) -> None:
    """Refuse to start with past rows that are gone."""
    state = snapshot.streams.get(stream.id)
    kept = stream.kept_since is not None and stream.kept_since <= run
    if state is not None and state.runs > run and not stream.rereadable and not kept:
        raise NotSupported(
            f"START AT VERSION {start} needs the rows that stream {stream.name} has had since, and it keeps them"
            + (" not" if stream.kept_since is None else f" from run {stream.kept_since} on, not from run {run}"),
            hint="create the stream with KEEP ALL, or start with new rows: START AT NOW",
        )


def _load(snapshot: Snapshot, id: str) -> Load | None:
    """The load of the last run on a stream or a pane table."""
    state = snapshot.streams.get(id)
    if state is not None and state.last is not None:
        last = state.last
        return Load(last.rows, last.low, last.high) if last.low is not None and last.high is not None else None
    for file in reversed(list(snapshot.files.get(id, {}).values())):
        if file.low is not None and file.high is not None:
            return Load(file.rows, file.low, file.high)
    return None
