"""The shared state of the engine: the ledger, the lazily created Spark session, the clock, the sources."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import ProgressState
from anabranch.engine import spark as spark_sessions
from anabranch.engine.frames import Frames
from anabranch.engine.place import Backend, Limits, Place
from anabranch.engine.stopping import Stop
from anabranch.errors import SourceError, did_you_mean
from anabranch.ledger import Ledger, Snapshot
from anabranch.plan.bind import STDIN
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.sources import registry
from anabranch.sources.base import Source
from anabranch.sources.file_kinds import source_class
from anabranch.sources.files import FilesSource
from anabranch.sources.paths import is_pipe
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.engine.driver_changes import DriverChanges
    from anabranch.engine.functions import Functions
    from anabranch.engine.hot import Hot
    from anabranch.engine.kernels import Kernels
    from anabranch.engine.lookup_client import LookupClient
    from anabranch.engine.numbering import Arrivals
    from anabranch.engine.sinks import Sinks
    from anabranch.engine.table_cache import TableCache
    from anabranch.engine.trigger import Timers

#: Seconds to wait before polling again for new rows.
PAUSE = 0.2
#: How often to read a stretch whose source changes meanwhile.
ATTEMPTS = 3
Clock = Callable[[], datetime]
#: The phase of a run from knowing which windows are over to having their changes ready to commit.
POST_CUT = "post cut"


def _of_the_machine() -> datetime:
    return datetime.now(timezone.utc)


class Core(ABC):
    """One open home and its Spark session. `Home` creates its components."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        spark: SparkSession | None,
        master: str | None,
        conf: Mapping[str, str],
        clock: Clock | None,
        run_rows: int | None,
        backend: Backend = "auto",
        limits: Limits | None = None,
        kernels: bool = True,
    ) -> None:
        self.ledger = ledger
        self.place = Place(backend, limits, kernels=kernels)
        self.run_rows = run_rows
        self.stop = Stop()
        self._given = spark
        self._master = master
        self._conf = dict(conf)
        self._own_clock: Clock = clock or _of_the_machine
        self._clock = self._own_clock
        self._frames: Frames | None = None
        self._frames_lock = threading.Lock()
        self._sources: dict[str, Source] = {}
        self.lookup_clients: dict[str, LookupClient] = {}
        self._merging: set[str] = set()
        self._merging_lock = threading.Lock()
        self._stream_locks: dict[str, threading.RLock] = {}
        self._statics: dict[tuple[str, int], DataFrame] = {}
        self._progress: dict[str, tuple[Mapping[str, Any], ProgressState]] = {}
        self._catalog: tuple[Mapping[str, Any], Catalog] | None = None
        self._scratch: Path | None = None
        #: Files with the contents of pipes, by path and number of the pipe.
        self.spools: dict[tuple[str, int], str] = {}
        #: The inferred columns of files that queries named, and which of these files have no bad rows.
        self.inferred: dict[Any, tuple[Field, ...]] = {}
        self.looked_through: set[Any] = set()
        #: Called with warnings.
        self.warn: Callable[[str], None] = lambda text: warnings.warn(text, RuntimeWarning, stacklevel=2)
        #: A context manager around the start of Spark, to show progress.
        self.starting: Callable[[], AbstractContextManager[None]] = nullcontext
        #: Whether the user has the Spark session, and may have changed its settings and functions.
        self.handed_out = False
        #: Why the current query needs Spark.
        self.needs_spark: str | None = None
        #: Called with what a statement is about to do; None: no callback.
        self.notify: Callable[[str], None] | None = None

    # ---- Spark

    @property
    def frames(self) -> Frames:
        with self._frames_lock:
            if self._frames is None:
                if self._given is not None:
                    session = spark_sessions.adopt(self._given)
                else:
                    with self.starting():
                        session = spark_sessions.start(self._master, self._conf)
                self._frames = Frames(session, lambda: None if self._clock is _of_the_machine else self.now())
                self._frames.provide = self.functions.provide
            return self._frames

    @property
    def spark(self) -> SparkSession:
        return self.frames.spark

    @property
    def given(self) -> SparkSession | None:
        """The user's own session, if there is one; the engine's is separate."""
        return self._given

    @property
    def started(self) -> bool:
        """Whether Spark has been started."""
        return self._frames is not None

    @property
    def has_settings(self) -> bool:
        """Whether settings that change Spark's answers were made, or may have been."""
        return self.handed_out or any(key.startswith("spark.sql.") for key in self._conf)

    def cancel(self) -> None:
        """Cancel running Spark jobs, if Spark is started and ours."""
        if self._frames is not None and self._given is None:
            self._frames.spark.sparkContext.cancelAllJobs()

    def set_clock(self, moment: datetime | None) -> None:
        """Stop the clock at a moment; None restarts it."""
        fixed: Clock | None = None if moment is None else lambda: moment
        self._clock = fixed or self._own_clock
        self.ledger.use_clock(self._clock)

    def now(self) -> int:
        """The time, in microseconds."""
        moment = self._clock()
        return int(moment.timestamp()) * 1_000_000 + moment.microsecond

    # ---- components of a home

    @property
    @abstractmethod
    def timers(self) -> Timers:
        """The pending keys of views with triggers."""

    @property
    @abstractmethod
    def table_cache(self) -> TableCache:
        """Ledger tables in memory, for nodes that are computed on the driver."""

    @property
    @abstractmethod
    def hot(self) -> Hot:
        """The groups of views in memory."""

    @property
    @abstractmethod
    def arrivals(self) -> Arrivals:
        """The run of each row."""

    @property
    @abstractmethod
    def driver_changes(self) -> DriverChanges:
        """The nodes that DuckDB can compute."""

    @property
    @abstractmethod
    def kernels(self) -> Kernels:
        """DuckDB inside Spark's tasks."""

    @property
    @abstractmethod
    def functions(self) -> Functions:
        """Python functions that queries may call."""

    @property
    @abstractmethod
    def sinks(self) -> Sinks:
        """The writer of the sinks."""

    def close(self) -> None:
        self.stop.set()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.ledger.close()

    # ---- the catalog

    def snapshot(self) -> Snapshot:
        self.ledger.refresh()
        return self.ledger.snapshot()

    def pinned(self) -> AbstractContextManager[Snapshot]:
        """The newest version, whose files are kept while it is read."""
        return self.ledger.pin(self.snapshot().version)

    def catalog(self, snapshot: Snapshot | None = None) -> Catalog:
        definitions = (snapshot or self.snapshot()).catalog
        if self._catalog is None or self._catalog[0] is not definitions:
            self._catalog = (definitions, Catalog(definitions))
        return self._catalog[1]

    @contextmanager
    def merging(self, tables: Iterable[str]) -> Iterator[list[str]]:
        """Claims tables for merging: yields those that no other thread is merging."""
        with self._merging_lock:
            mine = [table for table in dict.fromkeys(tables) if table not in self._merging]
            self._merging.update(mine)
        try:
            yield mine
        finally:
            with self._merging_lock:
                self._merging.difference_update(mine)

    def stream_lock(self, stream_id: str) -> threading.RLock:  # type: ignore[valid-type,unused-ignore]
        """The lock that serialises the runs of one stream."""
        return self._stream_locks.setdefault(stream_id, threading.RLock())

    def stream_locks(self, streams: set[str]) -> ExitStack:
        """Block the runs of several streams, always in the same order."""
        stack = ExitStack()
        for id in sorted(streams):
            stack.enter_context(self.stream_lock(id))
        return stack

    def progress(self, snapshot: Snapshot, stream_id: str) -> ProgressState:
        state = snapshot.streams.get(stream_id)
        if state is None or state.last is None or not state.last.progress:
            return ProgressState()
        written = state.last.progress
        known = self._progress.get(stream_id)
        if known is None or known[0] is not written:  # progress by key is a long text to parse
            known = self._progress[stream_id] = written, ProgressState.from_json(written)
        return known[1]

    # ---- sources

    def source(self, stream: Stream) -> Source | None:
        """The source of a stream, created once; None for a stream that is fed by INSERT and COPY."""
        if stream.source is None:
            return None
        if stream.id not in self._sources:
            self._sources[stream.id] = self.make_source(
                stream.source, stream.options, stream.fields, lambda: list(self.ledger.captured(stream.id)), stream
            )
        return self._sources[stream.id]

    def past_source(self, stream: Stream) -> Source | None:
        """The source of a stream, if past rows can be read from it."""
        return self.source(stream) if stream.rereadable else None

    def lookup_client(self, table: Table) -> LookupClient:
        """The client of an external table, created once: it caches answers if the table allows it."""
        if table.id not in self.lookup_clients:
            from anabranch.engine.lookup_client import LookupClient
            from anabranch.sources.lookup import Asking, open_source

            source = open_source(str(table.source), table.options, table.fields)
            most = lambda: self.place.limits.lookup_keys  # noqa: E731
            self.lookup_clients[table.id] = LookupClient(
                table.name, source, Asking.of(table.options), self.now, self.stop.wait, most
            )
        return self.lookup_clients[table.id]

    def source_folder(self, id: str) -> Path:
        """The folder of a source's own state, which lives as long as its stream."""
        folder = self.ledger.home / "sources" / id
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def forget_source(self, id: str) -> None:
        self._sources.pop(id, None)
        shutil.rmtree(self.ledger.home / "sources" / id, ignore_errors=True)
        self.lookup_clients.pop(id, None)

    def make_source(
        self,
        kind: str,
        options: Mapping[str, Any],
        fields: tuple[Field, ...] | None = None,
        seen: Callable[[], list[Any]] = list,
        stream: Stream | None = None,
    ) -> Source:
        found = registry.find(kind)
        if found is None or found.stream is None:
            raise SourceError(f"there is no source {kind}", hint=did_you_mean(kind, registry.of_streams()))
        found.check_options(options)
        return found.open_stream(
            registry.Opening(
                options=options,
                fields=fields,
                spark=lambda: self.spark,
                now=self.now,
                scratch=self.scratch,
                folder=lambda: self.scratch() if stream is None else self.source_folder(stream.id),
                seen=seen,
                skips_gaps=stream is not None and stream.on_gap == "skip",
                on_schema_change=stream.on_schema_change if stream is not None else "ignore",
                inferred=stream is not None and stream.inferred,
            )
        )

    def files(
        self,
        options: Mapping[str, Any],
        fields: tuple[Field, ...] | None = None,
        seen: Callable[[], list[Any]] = list,
    ) -> FilesSource:
        if options.get("follow"):
            raise SourceError(
                "only a stream can follow a file", hint="CREATE STREAM s (...) FROM files('...', follow => true)"
            )
        if isinstance(options.get("path"), str):
            options = {**options, "path": self.spooled(options["path"])}
        made = source_class(str(options.get("path")))
        return made(options, lambda: self.spark, fields, seen, now=self.now, scratch=self.scratch)

    def spooled(self, path: str) -> str:
        """The path of a file with the contents of a pipe, which can be read only once; other paths are unchanged."""
        if not is_pipe(path):
            return path
        if path == STDIN and sys.stdin is not None and sys.stdin.isatty():
            raise SourceError("nothing is piped into this command", hint="as in: cat x.csv | anabranch '...'")
        try:
            key = path, os.stat(path).st_ino
            if key not in self.spools:
                target = self.scratch() / f"pipe-{len(self.spools)}"
                with open(path, "rb") as pipe, open(target, "wb") as file:
                    shutil.copyfileobj(pipe, file)
                self.spools[key] = str(target)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}") from error
        return self.spools[key]

    def pause(self) -> None:
        """Wait before polling again for new rows."""
        time.sleep(PAUSE)

    def scratch(self) -> Path:
        """A folder for files that are not needed after this process."""
        if self._scratch is None:
            inside = self.ledger.home / "staging" if self.ledger.writable else None
            self._scratch = Path(tempfile.mkdtemp(prefix="anabranch-", dir=inside))
        return self._scratch

    # ---- ledger tables as frames

    def table_frame(
        self,
        table_id: str,
        fields: tuple[Field, ...],
        snapshot: Snapshot,
        low: int | None = None,
        high: int | None = None,
    ) -> DataFrame:
        return self.frames.parquet(snapshot.table_paths(self.ledger, table_id, low, high), fields)

    def static_frame(self, table_id: str, fields: tuple[Field, ...], at: tuple[int, int]) -> DataFrame:
        """A static table at the version that a view read; cached, since every run joins with it."""
        key = (table_id, at[1])
        if key not in self._statics:
            snapshot = self.ledger.snapshot(at[0])
            self._statics[key] = self.table_frame(table_id, fields, snapshot).persist()
        return self._statics[key]


class Stopwatch:
    """Milliseconds per phase of a run."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self.closes = False  # whether windows close
        self._begin = self._last = self._cut = time.perf_counter()

    def lap(self, phase: str, part: str | None = None) -> None:
        """Add the time since the last lap to a phase; with `part`, to that part of it as well."""
        now = time.perf_counter()
        for name in (phase,) if part is None else (phase, f"{phase} {part}"):
            self.milliseconds[name] = round(self.milliseconds.get(name, 0.0) + (now - self._last) * 1000, 1)
        self._last = now

    def cut(self) -> None:
        """Mark the moment from which it is known which windows are over."""
        self._cut = time.perf_counter()

    def total(self) -> dict[str, float]:
        now = time.perf_counter()
        found = {**self.milliseconds, "total": round((now - self._begin) * 1000, 1)}
        return {**found, POST_CUT: round((now - self._cut) * 1000, 1)} if self.closes else found
