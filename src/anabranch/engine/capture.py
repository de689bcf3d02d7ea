"""From sources to runs: the next stretch of each stream, one run after the other, and the clock for silent ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from anabranch.algebra import progress as progress_algebra
from anabranch.algebra.progress import END
from anabranch.engine import reduce
from anabranch.engine.core import ATTEMPTS, PAUSE, Core
from anabranch.engine.run import Runner
from anabranch.engine.scan import Incoming
from anabranch.ledger import Record
from anabranch.plan.catalog import Stream
from anabranch.sources.base import Source, SourceChanged, Stretch
from anabranch.sources.files import FilesSource

#: Vacuum every so many runs.
VACUUM_EVERY = 50


@dataclass(frozen=True)
class RunReport:
    """One committed run, for whoever watches."""

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
                try:
                    record = self._take(stream, source, stretch)
                    break
                except SourceChanged:
                    if attempt == ATTEMPTS - 1:
                        raise
                    core.pause()
        self.after_run(record)
        return record

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
            lambda columns: source.at_hand(stretch.captured, columns),
            partial(source.lying, stretch.captured) if isinstance(source, FilesSource) else lambda _, __: None,
            getattr(source, "explain", None),
        )
        record = self.runner.run(stream.id, incoming)
        source.committed(stretch)
        return record

    def after_run(self, record: Record) -> None:
        """Keep the number of files small, piggy-backed on runs, and move the sinks on."""
        reduce.reduce_due(self.core, record.tables)
        self.core.sinks.move()
        self._runs += 1
        if self._runs % VACUUM_EVERY == 0:
            reduce.vacuum(self.core)

    def catch_up(self, stream_ids: Iterable[str], *, end: bool, on_run: OnRun | None = None) -> None:
        """Take everything the sources hold at this moment. With `end`, a finite source is then at its end.

        A read waits for this, and so nothing but an error cuts it short: its answer would be an old one.
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
        """A finite source has nothing more: all its windows close."""
        return self._moved(self.runner.move(stream.id, lambda _, state: progress_algebra.end(state), "end"))

    def tick(self, stream: Stream) -> Record | None:
        """Let the clock move progress past idle partitions, and find a stream idle that is silent as a whole."""
        if not stream.live or not stream.policy.follows_rows:
            return None
        now = self.core.now()
        record = self.runner.move(stream.id, lambda each, state: progress_algebra.tick(each.policy, state, now), "idle")
        return self._moved(record)

    def fire_due(self) -> Record | None:
        """Let the delays of triggers fire that are over."""
        return self._moved(self.runner.fire_due())

    def show_waiting(self, stream: Stream) -> Record | None:
        """Show more of what budgets hold back, while there are no rows to take."""
        return self._moved(self.runner.show_waiting(stream.id))

    def _moved(self, record: Record | None) -> Record | None:
        """Progress has moved, if there is a record: what that showed goes to the sinks."""
        if record is not None:
            self.core.sinks.move()
        return record

    def run_all(self, streams: list[Stream], stop: threading.Event, *, until_idle: bool, on_run: OnRun | None) -> None:
        """Feed several streams at the same time until told to stop, or until their sources have nothing more.

        One that fails stops the others; its error is raised when they have ended.
        """
        errors: list[BaseException] = []

        def feed(stream: Stream) -> None:
            try:
                while not stop.is_set():
                    record = self.step(stream)
                    if record is not None:
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
        except BaseException:  # Ctrl-C: nothing goes on behind the back of whoever catches it
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
