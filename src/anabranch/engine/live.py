"""Live changes: a query that is kept up to date run by run, or a subscription to a view.

A query on streams gets a view of its own while it is followed, whose changes are kept like those of any other. Where
that is not possible (it reads a file, or an old version), its whole answer is compared with the one before.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from anabranch.engine import queries, read
from anabranch.engine.capture import Capture
from anabranch.engine.core import PAUSE, Core
from anabranch.engine.create_view import ViewMaker
from anabranch.engine.drop import drop_draft
from anabranch.engine.feed import Batch, Feed
from anabranch.engine.frames import arrow_schema, hashable, translate
from anabranch.engine.tables import VERSION
from anabranch.plan.bind import Binder
from anabranch.plan.view import View
from anabranch.sql.syntax import SelectStatement
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.ledger import Snapshot

PREFIX = "_live_"


class Following(ABC):
    """Runs some streams, and yields the followed changes after each run."""

    fields: tuple[Field, ...]
    times: Mapping[str, int] = MappingProxyType({})

    def __init__(self, core: Core, capture: Capture, streams: set[str], *, end: bool, follow: bool = False) -> None:
        """With `end`, the streams end when their sources have no more rows; with `follow`, they never end: it waits for
        more rows, from the sources and from other writers."""
        self.core = core
        self.capture = capture
        self.streams = streams
        self.end = end and not follow
        self.follow = follow
        self._stop = threading.Event()

    def __iter__(self) -> Generator[Batch, None, None]:
        try:
            yield from self._batches()
        except Exception as error:
            raise translate(error) from error

    def cancel(self) -> None:
        """End the iteration, from another thread."""
        self._stop.set()

    def final(self) -> Any:
        """Follow to the end; returns the final answer."""
        import pyarrow as pa

        counts: Counter[Any] = Counter()
        rows: dict[Any, tuple[Any, ...]] = {}
        for batch in self:
            columns = [column.to_pylist() for column in batch.changes.columns]
            for *row, diff in zip(*columns, strict=True):
                key = tuple(hashable(value) for value in row)
                counts[key] += diff
                rows.setdefault(key, tuple(row))
        left = [rows[key] for key, count in counts.items() for _ in range(count)]
        schema = arrow_schema(self.fields)
        arrays = [pa.array([row[i] for row in left], type=each.type) for i, each in enumerate(schema)]
        return pa.Table.from_arrays(arrays, schema=schema)

    @abstractmethod
    def _changes(self) -> Iterator[Batch]:
        """The changes since the last call."""

    def _batches(self) -> Iterator[Batch]:
        with self.core.stop.watch(self._stop) as stop:
            yield from self._batches_until(stop)

    def _batches_until(self, stop: threading.Event) -> Iterator[Batch]:
        catalog, writes = self.core.catalog(), self.core.ledger.writable
        streams = [catalog.stream(id) for id in sorted(self.streams)] if writes else []
        yield from self._changes()
        while not stop.is_set():
            moved = False
            for stream in streams:
                record = self.capture.step(stream) or self.capture.tick(stream)
                if record is not None:
                    moved = True
                    yield from self._changes()
            if writes and self.capture.fire_due() is not None:
                yield from self._changes()
            if moved:
                continue
            sources = [self.core.source(each) for each in streams]
            if self.follow:
                yield from self._changes()
            elif not any(source is not None and (source.endless or source.waits) for source in sources):
                break
            for stream in streams:
                if self.capture.show_waiting(stream) is not None:
                    yield from self._changes()
            stop.wait(PAUSE)
        if self.end and not stop.is_set():
            for stream in streams:
                self.capture.end(stream)
            yield from self._changes()


class Subscription(Following):
    """A view that is followed from a version on. With `versions`, each change has its version."""

    def __init__(
        self,
        core: Core,
        capture: Capture,
        view: View,
        position: int | None,
        *,
        end: bool,
        versions: bool,
        follow: bool = False,
    ) -> None:
        super().__init__(core, capture, core.catalog().sources_of(view), end=end, follow=follow)
        self.feed = Feed(core, view, position)
        self._pin = contextlib.ExitStack()
        self._held: int | None = None
        self.versions = versions
        self.fields = (*view.fields, VERSION) if versions else view.fields
        self.times = view.progress.times

    def _batches(self) -> Iterator[Batch]:
        try:
            yield from super()._batches()
        finally:
            self._pin.close()

    def _hold(self) -> None:
        """Pin the files of future changes: others may reduce and vacuum before they are read."""
        at = self.feed.position
        if at is not None and at != self._held:
            pin = contextlib.ExitStack()
            pin.enter_context(self.core.ledger.pin(max(at, self.core.ledger.oldest)))
            self._pin.close()
            self._pin, self._held = pin, at

    def _changes(self) -> Iterator[Batch]:
        import pyarrow as pa

        self._hold()
        for batch in self.feed.batches():
            changes = batch.changes
            if self.versions:
                column = pa.array([batch.version] * changes.num_rows, pa.int64())
                changes = changes.add_column(changes.num_columns - 1, VERSION.name, column)
            yield replace(batch, changes=changes)
        self._hold()


class Live(Following):
    """A followed query."""

    def __init__(
        self,
        core: Core,
        views: ViewMaker,
        capture: Capture,
        statement: SelectStatement,
        streams: set[str],
        *,
        end: bool,
    ) -> None:
        super().__init__(core, capture, streams, end=end)
        self.statement = statement
        catalog = core.catalog()
        bound = Binder(statement.text, catalog, statement.query).bind()
        self.view: View | None = None
        self.feed: Feed | None = None
        shown = [catalog[r.target] for r in bound.references.values() if r.kind == "view"]
        logs = any(isinstance(each, View) and each.emission.as_changes for each in shown)
        if not logs and all(reference.plain for reference in bound.references.values()):
            name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
            position = core.snapshot().version
            self.view = views.make(name, statement, feed=True)
            self.fields = self.view.shown_fields
            self.times = self.view.progress.times
            if not self.view.emission.as_changes:
                self.feed = Feed(core, self.view, position)
        else:
            self.fields = tuple(queries.analyze(core, bound, catalog, statement.text))
        self._given: Counter[Any] = Counter()
        self._rows: dict[Any, tuple[Any, ...]] = {}
        self._since = 0

    @staticmethod
    def clean_up(core: Core) -> None:
        """Drop the views of queries whose follower died."""
        for view in list(core.catalog().of(View)):
            if view.name.startswith(PREFIX) and view.owner is None:
                core.ledger.commit(drop_draft(core, core.catalog(), view))

    def __iter__(self) -> Generator[Batch, None, None]:
        try:
            yield from super().__iter__()
        finally:
            self._drop()

    def _changes(self) -> Iterator[Batch]:
        if self.feed is not None:
            yield from self.feed.batches()
        else:
            yield from self._difference()

    def _difference(self) -> Iterator[Batch]:
        """The difference of the answer since the last batch."""
        import pyarrow as pa

        snapshot = self.core.snapshot()
        table = self._answer(snapshot).toArrow()
        fresh: Counter[Any] = Counter()
        columns = [column.to_pylist() for column in table.columns]
        for row in zip(*columns, strict=True):
            key = tuple(hashable(value) for value in row)
            fresh[key] += 1
            self._rows.setdefault(key, row)
        lost = self._given - fresh
        gained = fresh - self._given
        rows = [(*self._rows[key], -count) for key, count in lost.items()]
        rows += [(*self._rows[key], count) for key, count in gained.items()]
        self._given = fresh
        if not rows and self._since == snapshot.version:
            return
        self._since = snapshot.version
        schema = arrow_schema(self.fields).append(pa.field("_diff", pa.int64()))
        arrays = [pa.array([row[i] for row in rows], type=each.type) for i, each in enumerate(schema)]
        yield Batch.at(self.core, snapshot, self.streams, pa.Table.from_arrays(arrays, schema=schema))

    def _answer(self, snapshot: Snapshot) -> DataFrame:
        catalog = self.core.catalog(snapshot)
        if self.view is not None:
            return read.view_frame(self.core, catalog, catalog.view(self.view.id), snapshot)
        bound = Binder(self.statement.text, catalog, self.statement.query).bind()
        return queries.frame(self.core, bound, snapshot, self.statement.text)

    def _drop(self) -> None:
        if self.view is None:
            return
        with self.core.stream_locks(self.streams), self.core.ledger.commit_lock:
            catalog = self.core.catalog()
            if self.view.id in catalog.objects:
                self.core.ledger.commit(drop_draft(self.core, catalog, catalog.view(self.view.id)))
        self.view = None
