"""Moves every sink on: what was committed since a sink's position goes to its target, version by version.

A sink that fails holds nobody up: it is reported once, and tried again when the next run has been committed. Until
then the changes that it has not written are kept.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from anabranch.engine import read
from anabranch.engine.core import Core
from anabranch.engine.feed import Feed
from anabranch.engine.frames import arrow_schema, translate
from anabranch.ledger import Ledger, Snapshot
from anabranch.plan.definitions import Sink
from anabranch.plan.view import View
from anabranch.sinks import kinds
from anabranch.sinks.base import Owner, Target
from anabranch.sinks.delta import DeltaChanges, DeltaRows
from anabranch.sinks.files import ChangeFiles, TableFile
from anabranch.types import Field


def target_of(sink: Sink, ledger: Ledger) -> Target:
    """The place a sink writes to."""
    owner = Owner(ledger.id, sink.id, ledger.home / "sinks" / sink.id)
    kind = kinds.find(sink.into)
    if kind is not None:
        return kind.open_sink(sink.options, owner)
    path = Path(str(sink.options["path"]))
    table = sink.options["mode"] == "table"
    if sink.into == "delta":
        return DeltaRows(path, owner) if table else DeltaChanges(path, owner)
    format = str(sink.options["format"])
    return TableFile(path, owner, format) if table else ChangeFiles(path, owner, format)


class Sinks:
    """The sinks of one home, moved by the one process that writes to it."""

    def __init__(self, core: Core) -> None:
        self.core = core
        #: Why a sink could not be moved, by its id; what it could be moved on after is taken out.
        self.errors: dict[str, str] = {}
        self._lock = threading.Lock()
        self._targets: dict[str, Target] = {}
        self._positions: dict[str, int | None] = {}

    def move(self) -> None:
        """Bring every sink up to the newest version."""
        if not any(True for _ in self.core.catalog().of(Sink)):
            return
        with self._lock:
            catalog = self.core.catalog()
            for sink in list(catalog.of(Sink)):
                try:
                    self._move(sink, catalog.view(sink.view))
                    self.errors.pop(sink.id, None)
                except Exception as error:
                    self._failed(sink, error)

    def needed(self) -> int | None:
        """The oldest version whose changes a sink may still have to read; None: there is none."""
        found: list[int] = []
        for sink in self.core.catalog().of(Sink):
            if sink.into == "files" and sink.options["mode"] == "table":
                continue
            # One whose position could not be read yet may need whatever there is.
            position = self._positions.get(sink.id, self.core.ledger.oldest)
            if position is not None:
                found.append(position)
        return min(found, default=None)

    def position(self, sink: Sink) -> int | None:
        """The last version that a sink has written, as its target says."""
        return target_of(sink, self.core.ledger).position()

    def _failed(self, sink: Sink, error: Exception) -> None:
        # What was written may be more than is known here: look again before the next write.
        self._targets.pop(sink.id, None)
        translated = str(translate(error))
        if self.errors.get(sink.id) != translated:
            self.errors[sink.id] = translated
            self.core.warn(
                f"sink {sink.name} could not be written, and is tried again after the next run: {translated}"
            )

    def _move(self, sink: Sink, view: View) -> None:
        core = self.core
        newest = core.snapshot().version
        target = self._targets.get(sink.id)
        if target is None:
            target = target_of(sink, core.ledger)
            target.tidy()
            self._positions[sink.id] = target.position()
            self._targets[sink.id] = target
        position = self._positions[sink.id]
        if position is None:
            self._start(sink, view, target, newest)
            return
        feed = Feed(core, view, None)
        behind = False
        for record in core.ledger.records(position + 1, newest):
            if target.whole:
                change = record.tables.get(view.changes_table)
                behind |= change is not None and bool(change.add) and record.kind != "reduce"
                continue
            changes = feed.changes_of(record)
            if changes is not None:
                target.apply(record.version, changes)
            self._positions[sink.id] = record.version
        if behind:
            self._start(sink, view, target, newest)
        elif target.whole:
            self._positions[sink.id] = newest

    def _start(self, sink: Sink, view: View, target: Target, version: int) -> None:
        with self.core.ledger.pin(version) as snapshot:
            target.start(version, self._answer(view, snapshot))
        self._positions[sink.id] = version

    def _answer(self, view: View, snapshot: Snapshot) -> Any:
        """What a view shows at a version: its rows, and how often each is there."""
        core = self.core
        frame = read.shown_frame(core, core.catalog(snapshot), view, snapshot, counted=True)
        return frame.toArrow().cast(arrow_schema((*view.fields, Field("_diff", "bigint"))))
