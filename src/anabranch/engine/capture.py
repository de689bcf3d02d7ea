"""From sources to runs: the next stretch of each stream, one run after the other, and the clock for silent ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from anabranch.algebra import progress as progress_algebra
from anabranch.algebra.pacing import Pace
from anabranch.algebra.progress import END
from anabranch.engine import reduce
from anabranch.engine.core import ATTEMPTS, PAUSE, Core
from anabranch.engine.frames import arrow_schema
from anabranch.engine.run import Runner
from anabranch.engine.scan import Incoming
from anabranch.errors import SourceError
from anabranch.ledger import Draft, Record, TableChange
from anabranch.plan.definitions import Stream
from anabranch.plan.stored import to_json
from anabranch.sources.base import Source, SourceChanged, Stretch
from anabranch.sources.files import FilesSource
from anabranch.sources.schemas import SchemaChange

#: Vacuum every so many runs.
VACUUM_EVERY = 50


@dataclass(frozen=True)
class RunReport:
    """One committed run, as callbacks get it."""

    stream: str
    run: int
    version: int
    rows: int
    late: int
    bad: int
    milliseconds: float
    progress: int | None
    total_rows: int
    rows_per_second: float


OnRun = Callable[[RunReport], None]


class Capture:
    """Feeds the streams of one home."""

    def __init__(self, core: Core, runner: Runner) -> None:
        self.core = core
        self.runner = runner
        self._runs = 0

    def step(self, stream: Stream, max_rows: int | None = None) -> Record | None:
        """Take the next stretch of a source as a run; None while there is nothing."""
        core = self.core
        source = core.source(stream)
        if source is None:
            return None
        with core.stream_lock(stream.id):
            state = core.ledger.snapshot().streams.get(stream.id)
            position = state.last.position if state is not None and state.last is not None else None
            for attempt in range(ATTEMPTS):
                stretch = source.next(
                    position, _most_rows(stream, max_rows or core.run_rows, core.place.limits.ordered_rows)
                )
                if stretch is None:
                    return None
                self._check_columns(stream, source, stretch)
                try:
                    record = self._take(stream, source, stretch)
                    break
                except SourceChanged:
                    if attempt == ATTEMPTS - 1:
                        raise
                    core.pause()
        self.after_run(record)
        return record

    def _check_columns(self, stream: Stream, source: Source, stretch: Stretch) -> None:
        """Apply the stream's policy on schema changes, before any row of the stretch is read."""
        schema_changes = getattr(source, "schema_changes", None)
        if schema_changes is None or stream.on_schema_change == "ignore":
            return
        changes: list[SchemaChange] = schema_changes(stretch.captured)
        adds = stream.on_schema_change == "add"
        unfit = next((each for each in changes if not adds or each.other), None)
        if unfit is not None:
            raise unfit.error(can_add=hasattr(source, "widen") and not adds)
        if any(each.new for each in changes):
            self._add_columns(stream, cast(FilesSource, source), stretch, changes)

    def _add_columns(
        self, stream: Stream, source: FilesSource, stretch: Stretch, changes: Sequence[SchemaChange]
    ) -> None:
        """Add columns to the stream, in a commit of its own: earlier rows have NULL there."""
        core = self.core
        with core.ledger.commit_lock:
            now = core.catalog(core.ledger.snapshot()).stream(stream.id)
            known = {field.name.lower() for field in now.fields}
            new = tuple(field for field in source.added(stretch.captured, changes) if field.name.lower() not in known)
            for field in new:
                if field.name.startswith("_"):
                    raise SourceError(
                        f"the new column {field.name} cannot be added: a leading underscore marks Anabranch's own",
                        hint="recreate the stream with ON SCHEMA CHANGE IGNORE",
                    )
            wider = replace(now, fields=(*now.fields, *new))
            if new:
                kept = stream.kept_since is not None
                schemas = {wider.rows_table: arrow_schema(wider.row_fields)} if kept else {}
                tables = {wider.rows_table: TableChange()} if kept else {}
                core.ledger.commit(Draft("columns", tables=tables, catalog={wider.id: to_json(wider)}, schemas=schemas))
                added = ", ".join(f"{field.name} {field.type.upper()}" for field in new)
                core.warn(f"stream {stream.name} has new columns: {added}")
            source.widen(wider.fields)

    def _take(self, stream: Stream, source: Source, stretch: Stretch) -> Record:
        incoming = Incoming(
            lambda: source.read([stretch.captured]),
            stretch.position,
            stretch.captured,
            stretch.bytes,
            stretch.bad,
            source.typed,
            source.cheap,
            lambda: source.verify([stretch.captured]),
            stretch.files,
            lambda columns: source.arrow_rows(stretch.captured, columns),
            partial(source.rows_in_files, stretch.captured) if isinstance(source, FilesSource) else lambda _, __: None,
            partial(source.in_groups, stretch.captured) if hasattr(source, "in_groups") else lambda _, __: None,
            getattr(source, "explain", None),
        )
        record = self.runner.run(stream.id, incoming)
        source.committed(stretch)
        return record

    def after_run(self, record: Record) -> None:
        """Merge small files now and then, and advance the sinks."""
        reduce.reduce_due(self.core, record.tables)
        self.core.sinks.move()
        self._runs += 1
        if self._runs % VACUUM_EVERY == 0:
            reduce.vacuum(self.core)

    def catch_up(self, stream_ids: Iterable[str], *, end: bool, on_run: OnRun | None = None) -> None:
        """Take everything that the sources hold now. With `end`, a finite source is then at its end.

        A read waits for this, so only an error ends it early: otherwise the answer would be outdated.
        """
        catalog = self.core.catalog()
        for id in sorted(stream_ids):
            stream = catalog.stream(id)
            source = self.core.source(stream)
            if source is None:
                continue
            steps = 0
            while True:
                record = self.step(stream)
                steps += 1
                if record is None and source.waits:
                    self.core.pause()
                    continue
                if record is None:
                    self.tick(stream)
                if record is None or (source.endless and not source.waits and steps >= 2):
                    break
                if on_run is not None:
                    on_run(self.report(stream, record))
            if end and not source.endless:
                self.end(stream)

    def end(self, stream: Stream) -> Record | None:
        """End a finite source that is exhausted: all its windows close."""
        return self._moved(self.runner.move(stream.id, lambda _, state: progress_algebra.end(state), "end"))

    def tick(self, stream: Stream) -> Record | None:
        """Let the clock advance progress past idle partitions, and mark a silent stream as idle."""
        if not stream.live or not stream.policy.follows_rows:
            return None
        now = self.core.now()
        record = self.runner.move(stream.id, lambda each, state: progress_algebra.tick(each.policy, state, now), "idle")
        return self._moved(record)

    def fire_due(self) -> Record | None:
        """Fire the triggers whose delays are over."""
        return self._moved(self.runner.fire_due())

    def show_waiting(self, stream: Stream) -> Record | None:
        """Show more windows that budgets hold back, while there are no new rows."""
        return self._moved(self.runner.show_waiting(stream.id))

    def _moved(self, record: Record | None) -> Record | None:
        """Advance the sinks after a commit that moved progress, if there is one."""
        if record is not None:
            self.core.sinks.move()
        return record

    def run_all(
        self,
        streams: list[Stream],
        stop: threading.Event,
        *,
        until_idle: bool,
        on_run: OnRun | None,
        run_time: float | None = None,
    ) -> None:
        """Feed several streams in parallel until `stop` is set, or until their sources have no more rows.

        With `run_time`, runs take about so many milliseconds, and longer while rows wait. One that fails stops the
        others; its error is raised when they have ended.
        """
        errors: list[BaseException] = []

        def feed(stream: Stream) -> None:
            pace = None if run_time is None or self.core.run_rows is not None else Pace(run_time)
            try:
                while not stop.is_set():
                    begin = time.perf_counter()
                    record = self.step(stream, None if pace is None else pace.rows)
                    if record is not None:
                        if pace is not None:
                            run = record.streams[stream.id]
                            pace = pace.after(run.rows + run.bad, (time.perf_counter() - begin) * 1000)
                        if on_run is not None:
                            on_run(self.report(stream, record))
                        continue
                    source = self.core.source(stream)
                    if until_idle and (source is None or not (source.waits or (source.endless and not source.idles))):
                        return
                    self.tick(stream)
                    self.fire_due()
                    self.show_waiting(stream)
                    stop.wait(PAUSE)
            except BaseException as error:
                errors.append(error)
                stop.set()

        threads = [threading.Thread(target=feed, args=(stream,), name=f"feed-{stream.name}") for stream in streams]
        try:
            for thread in threads:
                thread.start()
            _join(threads)
        except BaseException:  # Ctrl-C: no thread may continue after the caller catches it
            stop.set()
            _join(threads)
            raise
        if errors:
            raise errors[0]

    def report(self, stream: Stream, record: Record) -> RunReport:
        run = record.streams[stream.id]
        total = self.core.ledger.snapshot().streams[stream.id].rows
        milliseconds = float(record.milliseconds.get("total", 0.0))
        bound = None if run.bound is None or run.bound == END else run.bound
        speed = run.rows / (milliseconds / 1000) if milliseconds else 0.0
        return RunReport(
            stream.name,
            run.run,
            record.version,
            run.rows,
            run.late,
            run.bad,
            milliseconds,
            bound,
            total,
            speed,
        )


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)


def _most_rows(stream: Stream, given: int | None, ordered: int) -> int | None:
    if stream.rule is None or not stream.rule.in_order:
        return given
    return min(given or ordered, ordered)
