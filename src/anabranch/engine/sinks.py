"""Advances the sinks: commits since a sink's position go to its target, version by version.

A sink that fails holds nobody up: it is reported once, and tried again when the next run has been committed. Until
then the changes that it has not written are kept.
"""

from __future__ import annotations

import threading
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
from anabranch.types import Field


def target_of(sink: Sink, ledger: Ledger) -> Target:
    """The target of a sink."""
    owner = Owner(ledger.id, sink.id, ledger.home / "sinks" / sink.id)
    kind = kinds.find(sink.into)
    assert kind is not None, f"there is no sink {sink.into}"
    return kind.open_sink(sink.options, owner)


class Sinks:
    """The sinks of one home, which its writing process advances."""

    def __init__(self, core: Core) -> None:
        self.core = core
        #: Errors of sinks that could not advance, by id, until they do.
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
        """The oldest version whose changes a sink may still need; None for none."""
        found: list[int] = []
        for sink in self.core.catalog().of(Sink):
            if sink.into == "files" and sink.options["mode"] == "table":
                continue
            # A sink whose position could not be read yet may need all versions.
            position = self._positions.get(sink.id, self.core.ledger.oldest)
            if position is not None:
                found.append(position)
        return min(found, default=None)

    def position(self, sink: Sink) -> int | None:
        """The last version that a sink has written, read from its target."""
        return target_of(sink, self.core.ledger).position()

    def _failed(self, sink: Sink, error: Exception) -> None:
        # More may have been written than is known here: read the position again before the next write.
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
        """The answer of a view at a version: its rows, with their counts."""
        core = self.core
        frame = read.shown_frame(core, core.catalog(snapshot), view, snapshot, counted=True)
        return frame.toArrow().cast(arrow_schema((*view.fields, Field("_diff", "bigint"))))
