"""What people hold in their hands: a session on a home, and the results of its statements.

    import anabranch
    with anabranch.connect("home") as ab:
        ab.sql("CREATE STREAM s (k STRING, n INT)")
        ab.sql("INSERT INTO s VALUES ('a', 1), ('a', 2)")
        ab.sql("SELECT k, sum(n) AS n FROM s GROUP BY k").toArrow()

Statements are parsed as a whole first; each is then carried out by the part of the engine that it names.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anabranch import temporary as temporary_homes
from anabranch.algebra.pacing import TARGET
from anabranch.duck import DATABASE
from anabranch.engine import answer, oneoff, point_queries, queries, reduce, remote, show, temp_views
from anabranch.engine.alter import Alterer
from anabranch.engine.capture import Capture, OnRun, RunReport
from anabranch.engine.core import Core
from anabranch.engine.create_sink import create_sink
from anabranch.engine.create_stream import create_stream
from anabranch.engine.create_view import ViewMaker
from anabranch.engine.dml import DmlExecutor
from anabranch.engine.drop import drop
from anabranch.engine.feed import Batch
from anabranch.engine.frames import translate
from anabranch.engine.home import Home
from anabranch.engine.live import Live, Subscription
from anabranch.engine.names import Names
from anabranch.engine.place import Backend, Limits
from anabranch.engine.run import Runner
from anabranch.engine.settings import (
    BACKEND_VARIABLE,
    KERNELS_VARIABLE,
    change_setting,
    check_backend,
    check_kernels,
)
from anabranch.engine.static_tables import StaticTables
from anabranch.errors import AnabranchError, SinkError, SqlError, UsageError, did_you_mean
from anabranch.ledger import Ledger, Record
from anabranch.plan.bind import Binder, Bound
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.point_queries import find_point_query
from anabranch.plan.view import View
from anabranch.result import Result
from anabranch.sources.capture_function import Generating, capture
from anabranch.sql.parameters import bind_parameters
from anabranch.sql.parser import parse
from anabranch.sql.syntax import (
    Advance,
    AlterView,
    Copy,
    CopyTo,
    CreateFunction,
    CreateSink,
    CreateStream,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Query,
    Refresh,
    SelectStatement,
    SetClock,
    SetOption,
    Show,
    ShowCreate,
    Statement,
    Subscribe,
    Update,
)
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Batch", "Result", "RunReport", "Session", "connect"]


def connect(
    home: str | Path | None = None,
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    run_rows: int | None = None,
    clock: Callable[[], datetime] | None = None,
    read_only: bool = False,
    backend: Backend | None = None,
    limits: Mapping[str, int | str] | None = None,
) -> Session:
    """Open a home; without one, a temporary home that is removed on closing.

    `spark` is a session of your own; otherwise one is started on first need with `master` and `conf`. Small work is
    done on the driver, without a Spark job, where the answer is the same; `backend="spark"` has Spark compute it all,
    `backend="driver"` the driver whatever the size, but for what it declines. The environment variable
    ANABRANCH_BACKEND says it for sessions that do not. `limits` says what counts as small, as in
    `limits={"run_bytes": "16 MB"}`; docs/how-a-run-works.md has them all. ANABRANCH_KERNELS=off keeps Spark's tasks
    from running DuckDB, as `SET anabranch.kernels = off` does.
    """
    where = check_backend(backend or os.environ.get(BACKEND_VARIABLE) or "auto")
    allowed = Limits().with_settings(limits or {})
    if run_rows is not None and run_rows < 1:
        raise UsageError(f"a run takes at least one row, not {run_rows}")
    temporary: Path | None = None
    if home is None:
        if read_only:
            raise UsageError("a temporary home cannot be opened read-only", hint="name a home")
        temporary = temporary_homes.make()
    elif "://" in str(home) and not str(home).startswith("file://"):
        raise UsageError(f"a home is a local folder, not {home}", hint="a shared file system that is mounted will do")
    path = temporary or Path(str(home).removeprefix("file://"))
    try:
        ledger = Ledger.open(path, write=not read_only, clock=clock)
    except BaseException:
        if temporary is not None:
            temporary_homes.remove(temporary)
        raise
    if limits is not None and "memory_bytes" in limits:
        DATABASE.use_memory(allowed.memory_bytes)
    core = Home(
        ledger,
        spark=spark,
        master=master,
        conf=conf or {},
        clock=clock,
        run_rows=run_rows,
        backend=where,
        limits=allowed,
        kernels=check_kernels(os.environ.get(KERNELS_VARIABLE) or "on"),
    )
    return Session(core, temporary)


class Session:
    """An open home. Use it as a context manager, or close it."""

    def __init__(self, core: Core, temporary: Path | None) -> None:
        self._core = core
        self._temporary = temporary
        self._runner = Runner(core)
        self._names = Names(core)
        self._views = ViewMaker(self._names, self._runner)
        self._tables = StaticTables(self._names, self._runner)
        self._alterer = Alterer(self._names, self._views, self._runner)
        self._changer = DmlExecutor(core, self._runner)
        self._capture = Capture(core, self._runner)
        if core.ledger.writable:
            Live.clean_up(core)

    # ---- what people call

    def sql(self, text: str, /, *positional: Any, **named: Any) -> Result:
        """Carry out statements in order; the result of the last one.

        `ab.sql("... WHERE k = :k AND n > ?", 5, k="a")`: values are bound to parameters, never pasted into the text.
        """
        results = [Result(message="nothing to do"), *self.execute(bind_parameters(text, positional, named))]
        return results[-1]

    def execute(
        self, text: str, *, live: bool = False, dry_run: bool = False, script: bool = False
    ) -> Iterator[Result]:
        """Carry out statements in order, giving the result of each. With `live`, a SELECT on streams gives changes.

        With `dry_run`, ALTER VIEW only says what it would do. A `script` can be carried out again on the same home, as
        by `run`: what it makes is there already, and what it inserts is not inserted twice.
        """
        for statement, key in _with_keys(parse(bind_parameters(text))):
            if dry_run and isinstance(statement, AlterView):
                statement = replace(statement, dry_run=True)
            yield self._carry_out(statement, live=live, script=key if script else None)

    def insert(self, target: str, data: Any) -> Result:
        """Take rows into a stream or table: one run, one commit, all of them or none.

        `data` is a table of Arrow, pandas, Polars or Spark, or an iterable of dicts. Columns go by name, in any order;
        those that are missing are NULL.
        """
        self._must_write()
        try:
            message, record = self._changer.insert_rows(target, data)
        except AnabranchError:
            raise
        except Exception as error:
            raise translate(error) from error
        self._capture.after_run(record)
        return Result(message=message)

    def run(
        self, text: str, *, until_idle: bool = False, on_run: OnRun | None = None, run_time: float | None = None
    ) -> None:
        """Keep the views of a script going until `stop` is set, or until their sources have nothing more.

        Run again on the same home it goes on: what the script makes is there already, and what it inserts is not
        inserted twice. Runs take as many rows as they can in `run_time` seconds, and more while rows wait: a quarter of
        a second, or with `until_idle` all that is there. `connect(run_rows=...)` goes before it.
        """
        if run_time is not None and not run_time > 0:
            raise UsageError(f"a run takes more than {run_time} seconds")
        wanted = run_time * 1000 if run_time is not None else None if until_idle else TARGET
        with self._core.stop.watch() as stop:
            self._run(text, stop, until_idle, on_run, wanted)

    def _run(
        self, text: str, stop: threading.Event, until_idle: bool, on_run: OnRun | None, run_time: float | None
    ) -> None:
        self._must_be_open()
        for statement, key in _with_keys(parse(bind_parameters(text))):
            if stop.is_set():
                return
            if isinstance(statement, SelectStatement | Show | ShowCreate | Describe | Explain | CopyTo):
                continue
            result = self._carry_out(statement, live=False, script=key)
            if isinstance(statement, CreateView):  # nobody reads the answers of a script
                for line in (result.message or "").splitlines()[1:]:
                    self._core.warn(f"{statement.name}: {line}")
        self._core.sinks.move()
        streams = [stream for stream in self._core.catalog().of(Stream) if stream.source is not None]
        if not streams and not until_idle:
            stop.wait()
        self._capture.run_all(streams, stop, until_idle=until_idle, on_run=on_run, run_time=run_time)

    def compact(self) -> str:
        """Reduce every table to as few files as can be, and delete what nobody can ask for any more."""
        self._must_write()
        before = sum(len(files) for files in self._core.snapshot().files.values())
        for table in list(self._core.snapshot().files):
            reduce.reduce_tables(self._core, [table], everything=True)
        self._core.sinks.move()
        deleted = reduce.vacuum(self._core)
        after = sum(len(files) for files in self._core.snapshot().files.values())
        return f"{before:,} files reduced to {after:,}; {deleted:,} old files deleted"

    def cancel(self) -> None:
        """Give up what Spark is doing; for another thread than the one that waits for it."""
        self._core.cancel()

    def names(self) -> list[str]:
        """The names of streams, tables and views, and of their columns."""
        catalog = self._core.catalog()
        things: list[Stream | Table | View] = [*catalog.of(Stream), *catalog.of(Table), *catalog.of(View)]
        seen = [each for each in things if not each.name.startswith("_")]
        return sorted({name for each in seen for name in (each.name, *(field.name for field in each.fields))})

    def capture(self, name: str, *, columns: str, endless: bool = False) -> Callable[[Generating], Generating]:
        """Make a generator a source of streams, `CREATE STREAM s FROM name(...)`; the same as `anabranch.capture`."""
        return capture(name, columns=columns, endless=endless)

    @property
    def stop(self) -> threading.Event:
        """Set it to end what runs or follows at this moment, between two runs; what begins later is not concerned."""
        return self._core.stop

    def on_warning(self, handler: Callable[[str], None]) -> None:
        """Have somebody told of what goes wrong but stops nothing, such as a sink that cannot be written.

        Without it, such things are warnings of Python's.
        """
        self._core.warn = handler

    def on_notice(self, handler: Callable[[str], None]) -> None:
        """Have somebody told of what a statement is about to do, before it is done: what `ALTER VIEW` keeps, say.

        Without it, the result of the statement tells.
        """
        self._core.notify = handler

    def on_start(self, around: Callable[[], AbstractContextManager[None]]) -> None:
        """Have Spark started inside of this, which may say that it takes a while."""
        self._core.starting = around

    @property
    def needs_spark(self) -> str | None:
        """Why the query at hand is not answered without Spark; None where nobody tried."""
        return self._core.needs_spark

    @property
    def version(self) -> int:
        """The number of the last commit."""
        return self._core.snapshot().version

    @property
    def home(self) -> Path:
        return self._core.ledger.home

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started if need be."""
        self._core.handed_out = True
        return self._core.spark

    @property
    def rolled_back(self) -> list[str]:
        """Statements that a crash had cut off, found on opening; nothing of them is left."""
        return self._core.ledger.rolled_back

    def close(self) -> None:
        self._core.close()
        if self._temporary is not None:
            temporary_homes.remove(self._temporary)

    def __repr__(self) -> str:
        ledger = self._core.ledger
        if ledger.closed:
            return f"<Session: {ledger.home}, closed>"
        snapshot = self._core.snapshot()
        catalog = self._core.catalog(snapshot)
        streams = sum(not stream.name.startswith("_") for stream in catalog.of(Stream))
        views = sum(not view.name.startswith("_") for view in catalog.of(View))
        mode = "open" if ledger.writable else "open read-only"
        return f"<Session: {ledger.home}, version {snapshot.version}, streams: {streams}, views: {views}, {mode}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- statements

    def _carry_out(self, statement: Statement, *, live: bool, script: str | None) -> Result:
        self._must_be_open()
        try:
            self._core.functions.settle()
            return self._dispatch(statement, live=live, script=script)
        except AnabranchError:
            raise
        except Exception as error:
            raise translate(error) from error

    def _dispatch(self, statement: Statement, *, live: bool, script: str | None) -> Result:
        if isinstance(statement, SelectStatement):
            return self._select(statement, live)
        if isinstance(statement, CreateView | AlterView | CreateTable | Explain) and statement.query is not None:
            temp_views.refuse(self._core, statement.text, statement.query, "what is kept")
        if isinstance(statement, Explain):
            return Result(table=show.explained(self._names, statement))
        if isinstance(statement, Show):
            return Result(table=show.shown(self._core, statement))
        if isinstance(statement, ShowCreate):
            return Result(table=show.statement_of(self._names, statement))
        if isinstance(statement, Describe):
            return self._describe(statement)
        if isinstance(statement, CopyTo):
            return self._copy_to(statement)
        if isinstance(statement, SetOption):
            return Result(message=change_setting(self._core, statement))
        self._must_write()
        if isinstance(statement, Subscribe):
            return self._subscribe(statement)
        if isinstance(statement, SetClock):
            return Result(message=self._set_clock(statement))
        again = script is not None
        if isinstance(statement, CreateStream):
            return Result(message=create_stream(self._names, statement, again_is_fine=again))
        if isinstance(statement, CreateTable):
            return Result(message=self._tables.create(statement, again_is_fine=again))
        if isinstance(statement, CreateView):
            return Result(message=self._views.create(statement, again_is_fine=again))
        if isinstance(statement, AlterView):
            message = self._alterer.alter(statement)
            self._core.sinks.move()
            return Result(message=message)
        if isinstance(statement, CreateSink):
            return Result(message=create_sink(self._names, self._views, statement, again_is_fine=again))
        if isinstance(statement, CreateFunction):
            return Result(message=self._core.functions.create(statement, again_is_fine=again))
        if isinstance(statement, Drop) and statement.kind == "function":
            return Result(message=self._core.functions.drop(statement))
        if isinstance(statement, Drop):
            return Result(message=drop(self._names, statement))
        if isinstance(statement, Refresh):
            message = self._tables.refresh(statement)
            self._core.sinks.move()
            return Result(message=message)
        if isinstance(statement, Advance):
            message = self._changer.advance(statement)
            self._core.sinks.move()
            return Result(message=message)
        applied: tuple[str, ...] = ()
        if script is not None:
            if script in self._core.snapshot().applied:
                return Result(message="done before")
            applied = (script,)
        message, record = self._change(statement, applied)
        self._capture.after_run(record)
        return Result(message=message)

    def _change(self, statement: Statement, applied: tuple[str, ...]) -> tuple[str, Record]:
        if isinstance(statement, Insert):
            self._catch_up(statement.text, statement.query)
            return self._changer.insert(statement, applied)
        if isinstance(statement, Copy):
            return self._changer.copy(statement, applied)
        if isinstance(statement, Update):
            return self._changer.update(statement, applied)
        assert isinstance(statement, Delete)
        return self._changer.delete(statement, applied)

    def _select(self, statement: SelectStatement, live: bool) -> Result:
        pin = contextlib.ExitStack()
        try:
            return self._answer(statement, live, pin)
        except BaseException:
            pin.close()
            raise

    def _answer(self, statement: SelectStatement, live: bool, pin: contextlib.ExitStack) -> Result:
        core = self._core
        # What a reader binds is what it reads: the writer may commit at any moment.
        snapshot = None if core.ledger.writable else pin.enter_context(core.pinned())
        catalog = temp_views.catalog_for(core, statement.query, snapshot)
        bound = Binder(statement.text, catalog, statement.query).bind()
        looked = find_point_query(statement.text, statement.query, catalog)
        fields: Sequence[Field] = ()
        one_off = oneoff.question(core, statement, bound, catalog) if looked is None else None
        if one_off is not None:
            fields = one_off.fields
        elif looked is None:
            fields = queries.analyze(self._core, bound, catalog, statement.text)
        streams = self._streams(bound, catalog)
        endless = snapshot is None and any(
            (source := core.source(catalog.stream(id))) is not None and source.endless for id in streams
        )

        def follow() -> Live:
            temp_views.refuse(core, statement.text, statement.query, "a query that is followed")
            return Live(core, self._views, self._capture, statement, streams, end=self._temporary is not None)

        emits = statement.query.emits
        if emits and streams:
            self._must_write()
        if (live or emits) and streams and snapshot is None:
            if not live:
                self._capture.fire_due()
            return Result(live=follow(), endless=endless)
        if snapshot is None:
            self._capture.catch_up(streams, end=self._temporary is not None)
            self._capture.fire_due()
            snapshot = pin.enter_context(core.pinned())
        for version in {each.version for each in bound.references.values() if each.version is not None}:
            pin.enter_context(core.ledger.pin(version))

        queries.check_views(core, bound, snapshot)
        explain = partial(queries.located, core, bound, snapshot, statement.text)

        def frame() -> DataFrame:
            return queries.frame(core, bound, snapshot, statement.text)

        answered = partial(Result, fields=fields, endless=endless, follow=follow, pin=pin)
        if looked is not None:
            table = point_queries.rows(core, looked, snapshot)
            fields = [replace(field, name=name) for name, field in looked.columns]
            return answered(table=table, make_frame=frame, fields=fields)
        if one_off is not None:
            find = partial(oneoff.rows, core, one_off, snapshot)
            return answered(make_table=find, make_frame=frame, explain=explain)
        text = answer.text_of(core, statement.query, bound, fields, snapshot)
        if text is None:
            found = queries.remote_query(core, bound, snapshot, statement.text)
            if isinstance(found, remote.RemoteQuery):
                with queries.at_external_table(bound, statement.text):
                    table = answer.of_few(core, bound, fields, found)
                    if table is not None:
                        return Result(table=table, make_frame=frame, fields=fields, pin=pin, explain=explain)
                    found = found.frame(core)
            return answered(frame=found, explain=explain)
        make = partial(answer.rows, text, fields)
        return answered(make_table=make, make_frame=frame, explain=explain)

    def _copy_to(self, statement: CopyTo) -> Result:
        """Write the answer of a query to a file."""
        from anabranch.sinks.exports import place, write_file
        from anabranch.sql.definitions import check_export, wrong

        export = check_export(statement)
        try:
            path = place(str(export.path), export.overwrite, replace="OVERWRITE")
            result = self._select(SelectStatement(statement.text, statement.query.span, statement.query), live=False)
            if result.kind == "changes" and result.endless:
                raise UsageError("this query never ends", hint="COPY ... TO writes one finished answer")
            fields = [Field(name, type) for name, type in zip(result.columns, result.types, strict=True)]
            return Result(message=write_file(replace(export, path=path), result.toArrow(), fields))
        except (SinkError, UsageError) as error:
            raise wrong(statement, statement.path_span, error.message, error.hint) from error

    def _subscribe(self, statement: Subscribe) -> Result:
        view = self._core.catalog().find(statement.target.last)
        if not isinstance(view, View) or len(statement.target.parts) > 1:
            raise self._names.no_such(statement, statement.target, "view", view)
        return Result(live=self._subscription(view, statement.version, versions=True), endless=self._endless(view))

    def subscribe(self, view: str, version: int | None = None, *, follow: bool = False) -> Iterator[Batch]:
        """The changes of a view: its answer first, or, with a version, what came after it. Each batch says its own.

        With `follow` there is no end: more is waited for, until `stop` is set or the session closed, and the streams of
        a temporary home stay open. Without it, the changes end with what the sources hold.
        """
        return iter(self._followed(view, version, follow))

    async def asubscribe(
        self, view: str, version: int | None = None, *, follow: bool = False
    ) -> AsyncGenerator[Batch, None]:
        """What `subscribe` gives, for `async for`. The work is done in a thread; who leaves the loop ends it."""
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1, thread_name_prefix="anabranch-follow")
        followed: Subscription | None = None
        try:
            followed = await loop.run_in_executor(pool, self._followed, view, version, follow)
            batches = iter(followed)
            while (batch := await loop.run_in_executor(pool, next, batches, None)) is not None:
                yield batch
        finally:
            if followed is not None:
                followed.cancel()
                pool.submit(batches.close)  # behind what is under way, for which nobody waits
            pool.shutdown(wait=False)

    def _followed(self, view: str, version: int | None, follow: bool) -> Subscription:
        self._must_be_open()
        catalog = self._core.catalog()
        found = catalog.find(view)
        if not isinstance(found, View):
            what = f"there is no view {view}" if found is None else f"{found.name} is a {found.kind}, not a view"
            hint = f"make a view of it: CREATE VIEW v AS SELECT * FROM {view}" if found is not None else None
            views = [each.name for each in catalog.of(View) if each.owner is None]
            raise UsageError(what, hint=hint or did_you_mean(view, views))
        if not (follow and found.kept):  # the changes of a run that another process makes are there to be read
            if follow and not self._core.ledger.writable:
                raise UsageError(
                    f"the changes of view {found.name} are not stored, and this home is open read-only",
                    hint="follow it in the process that writes to the home, or create it with EMIT CHANGES",
                )
            self._must_write()
        return self._subscription(found, version, follow=follow)

    def _subscription(
        self, view: View, version: int | None, *, versions: bool = False, follow: bool = False
    ) -> Subscription:
        view = self._views.keep_changes(view)
        end = self._temporary is not None
        return Subscription(self._core, self._capture, view, version, end=end, versions=versions, follow=follow)

    def _endless(self, view: View) -> bool:
        catalog = self._core.catalog()
        sources = [self._core.source(catalog.stream(id)) for id in catalog.sources_of(view)]
        return any(source is not None and source.endless for source in sources)

    def _set_clock(self, statement: SetClock) -> str:
        if statement.to is None:
            self._core.set_clock(None)
            return "the clock runs again"
        moment = self._changer.moment(statement, statement.to)
        whole, rest = divmod(moment, 1_000_000)
        self._core.set_clock(datetime.fromtimestamp(whole, timezone.utc).replace(microsecond=rest))
        return "the clock is stopped there"

    def _streams(self, bound: Bound, catalog: Catalog) -> set[str]:
        """The streams a query depends on, through views too; those read at an old version need nothing new."""
        found: set[str] = set()
        for reference in bound.references.values():
            if reference.version is not None:
                continue
            if reference.kind == "stream":
                found.add(reference.target)
            elif reference.kind == "view":
                found |= catalog.sources_of(catalog.view(reference.target))
            elif reference.kind == "system":
                found |= {stream.id for stream in catalog.of(Stream)}
        return found

    def _catch_up(self, text: str, query: Query) -> None:
        catalog = temp_views.catalog_for(self._core, query)
        bound = Binder(text, catalog, query).bind()
        self._capture.catch_up(self._streams(bound, catalog), end=self._temporary is not None)

    def _describe(self, statement: Describe) -> Result:
        import pyarrow as pa

        if not statement.is_file:
            return Result(table=show.described(self._core, statement))
        span = statement.target.span
        try:
            answer = self.sql(f"SELECT * FROM {span.of(statement.text)}")
        except SqlError as error:
            error.text, error.start, error.end = statement.text, span.start, span.end
            raise
        columns = (answer.columns, answer.types, [""] * len(answer.columns))
        answer.close()
        pairs = zip(show.COLUMNS, columns, strict=True)
        return Result(table=pa.table({name: pa.array(values, pa.string()) for name, values in pairs}))

    def _must_be_open(self) -> None:
        if self._core.ledger.closed:  # another process may write to the home by now
            raise UsageError("this session is closed", hint=f"anabranch.connect({str(self.home)!r}) opens another")

    def _must_write(self) -> None:
        self._must_be_open()
        if not self._core.ledger.writable:
            raise AnabranchError(
                "this home is open read-only",
                hint="open it without read_only, when no other process writes to it",
            )


def _with_keys(statements: Iterable[Statement]) -> Iterator[tuple[Statement, str]]:
    """The statements of a script, each with what tells it from the others when the script is carried out again."""
    seen: Counter[str] = Counter()
    for statement in statements:
        normal = statement.normal
        yield statement, f"{hashlib.sha256(normal.encode()).hexdigest()[:24]}:{seen[normal]}"
        seen[normal] += 1
