"""The work of the commands on an open home: run SQL once, keep views going, check, compact.

Heavy imports happen here, inside functions, after the text has been parsed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.cli.console import Console
from anabranch.cli.exports import STDOUT, ExportOutput, check_single, prepare
from anabranch.cli.interface import Result, RunReport, Session
from anabranch.cli.options import INTERRUPTED
from anabranch.cli.ordering import UNORDERED, Order, order_of
from anabranch.cli.outputs import LIVE, Lines, Output, make_output
from anabranch.cli.stopping import Interrupts
from anabranch.cli.tables import clean
from anabranch.cli.values import timestamp_text
from anabranch.errors import HomeInUse, UsageError
from anabranch.sinks.exports import Export, place, write_text

if TYPE_CHECKING:
    from anabranch.sql.syntax import Statement

STARTING = "starting Spark ..."
SECONDS_BETWEEN_REPORTS = 1.0
SECONDS_BETWEEN_STATUSES = 0.1


@dataclass(frozen=True)
class Settings:
    """How to open a home."""

    home: str | None = None
    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    run_rows: int | None = None
    read_only: bool = False
    backend: str | None = None


@dataclass(frozen=True)
class Target:
    """The output of results, and their file if they are not printed."""

    output: str | None = None
    to: str | None = None
    overwrite: bool = False
    dry_run: bool = False  # ALTER VIEW only reports what it would do
    script: bool = False  # the statements may have been run before


def open_session(settings: Settings, console: Console, *, reads: bool = False) -> Session:
    """Open the engine; with `reads`, read-only while another process writes."""
    import anabranch

    def connect(read_only: bool) -> Session:
        return anabranch.connect(
            settings.home,
            master=settings.master,
            conf=dict(settings.conf),
            run_rows=settings.run_rows,
            read_only=read_only,
            backend=settings.backend,  # type: ignore[arg-type]
        )

    try:
        session = connect(settings.read_only)
    except HomeInUse as in_use:
        if not reads:
            raise
        console.message(f"{in_use.message} Answers are read at its newest version.")
        session = connect(read_only=True)
    session.on_warning(console.warning)
    session.on_notice(console.message)
    session.on_start(lambda: starting(console, session.needs_spark))
    return session


def starting(console: Console, reason: str | None) -> AbstractContextManager[None]:
    """Shows that Spark starts; on a terminal with the reason why a query needs it."""
    if reason is not None and console.err_is_terminal:
        console.message(f"left to Spark: {clean(reason)}")
    return console.waiting(STARTING)


def parse_all(text: str) -> list[Statement]:
    """Parse the whole text, so that an error anywhere in it is reported before Spark starts."""
    from anabranch.sql.parser import parse

    return parse(text)


def only_reads(statements: list[Statement]) -> bool:
    """Whether no statement changes a home, or needs one to follow its result."""
    from anabranch.sql.syntax import Describe, Explain, SelectStatement, SetOption, Show, ShowCreate

    return all(
        not each.query.emits
        if isinstance(each, SelectStatement)
        else isinstance(each, Describe | Explain | SetOption | Show | ShowCreate)
        for each in statements
    )


def execute(console: Console, text: str, target: Target, settings: Settings) -> int:
    """Run statements in order and print or write their answers."""
    statements = parse_all(text)
    if not statements:
        raise UsageError("there is no statement in the text", hint='give one, such as: anabranch "SELECT 1"')
    export = prepare(console, target.output, target.to, target.overwrite)
    if export is not None:
        check_single(export, statements)
    with (
        open_session(settings, console, reads=only_reads(statements)) as session,
        Interrupts(console, session.stop, session.cancel, graceful=False) as interrupts,
    ):
        if show_results(console, session, text, target, interrupts, export):
            return INTERRUPTED
    return 0


def show_results(
    console: Console,
    session: Session,
    text: str,
    target: Target,
    interrupts: Interrupts,
    export: Export | None = None,
) -> bool:
    """Run statements and print their answers; True if Ctrl-C ended a continuous one."""
    statements = parse_all(text)
    results = session.execute(text, live=target.output in LIVE, dry_run=target.dry_run, script=target.script)
    for number, result in enumerate(results):
        # Spark has started by now, and has replaced the signal handler.
        interrupts.install()
        if result.message:
            console.message(result.message)
        if result.kind != "done":
            statement = statements[number] if number < len(statements) else None
            if export is not None:
                ExportOutput(console, export, order_for(console, export.format, result, statement)).show(result)
            else:
                printer, interrupts.graceful = choose_output(console, target.output, result, statement)
                printer.show(result)
            console.flush()
        if interrupts.requested:
            return True
        interrupts.graceful = False
    return False


def choose_output(
    console: Console, name: str | None, result: Result, statement: Statement | None = None
) -> tuple[Output, bool]:
    """The output to use, and whether it follows changes until it is stopped."""
    from anabranch.sql.syntax import ShowCreate, Subscribe

    if name is None and isinstance(statement, ShowCreate):
        return Lines(console), False
    if name is None and isinstance(statement, Subscribe):
        name = "stream-json"
    if name is None:
        name = "live-table" if result.endless and console.out_is_terminal else "batch-table"
    follows = name in LIVE and (result.kind == "changes" or result.endless)
    return make_output(name, console, order=order_for(console, name, result, statement)), follows


def order_for(console: Console, name: str, result: Result, statement: Statement | None) -> Order:
    """The order of a query, for outputs that add up changes or hold them back."""
    from anabranch.sql.syntax import SelectStatement

    live = result.kind == "changes" or (result.endless and name == "live-table")
    if not live or not isinstance(statement, SelectStatement):
        return UNORDERED
    order = order_of(statement.text, statement.query, result.columns)
    if order.unsortable is not None and name not in ("stream-json", "live-csv"):
        console.warning(f"{name} cannot sort by {clean(order.unsortable)}: it is no column of the answer")
    return order


def run(console: Console, text: str, until_idle: bool, settings: Settings, run_time: float | None = None) -> int:
    """Keep the views of a script going until Ctrl-C, or until its sources are exhausted."""
    if not parse_all(text):
        raise UsageError("there is no statement in the script")
    reporter = Reporter(console)
    with (
        open_session(settings, console) as session,
        Interrupts(console, session.stop, session.cancel, graceful=True) as interrupts,
    ):

        @contextmanager
        def at_once() -> Iterator[None]:
            """Before Spark has started there is no run to finish: Ctrl-C ends the process at once."""
            interrupts.graceful = False
            with starting(console, session.needs_spark):
                yield
            interrupts.graceful = True

        session.on_start(at_once)

        def on_run(report: RunReport) -> None:
            interrupts.install()
            reporter.report(report)

        if not until_idle:
            console.status("waiting for rows; Ctrl-C ends it")
        session.run(text, until_idle=until_idle, on_run=on_run, run_time=run_time)
    reporter.finish()
    return 0


class Reporter:
    """Reports runs on stderr: one changing line on a terminal, elsewhere a line a second and stream."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._reported_at: dict[str, float] = {}
        self._unreported: dict[str, RunReport] = {}
        self._runs = 0
        self._rows = 0
        self._late = 0
        self._bad = 0

    def report(self, run: RunReport) -> None:
        self._runs += 1
        self._rows += run.rows
        self._late += run.late
        self._bad += run.bad
        terminal = self._console.err_is_terminal
        pause = SECONDS_BETWEEN_STATUSES if terminal else SECONDS_BETWEEN_REPORTS
        now = self._clock()
        self._unreported[run.stream] = run
        if run.stream in self._reported_at and now - self._reported_at[run.stream] < pause:
            return
        self._reported_at[run.stream] = now
        del self._unreported[run.stream]
        (self._console.status if terminal else self._console.message)(run_line(run))

    def finish(self) -> None:
        """Print the remaining reports, and the totals."""
        for run in self._unreported.values():
            self._console.message(run_line(run))
        self._unreported.clear()
        self._console.end_status()
        runs = "1 run" if self._runs == 1 else f"{self._runs:,} runs"
        bad = f", {self._bad:,} bad (see sys.bad_rows)" if self._bad else ""
        self._console.message(f"{runs}, {self._rows:,} rows, {self._late:,} late{bad}")


def run_line(run: RunReport) -> str:
    """One run in one line."""
    progress = "none yet" if run.progress is None else timestamp_text(run.progress)
    bad = f", {run.bad:,} bad" if run.bad else ""
    return (
        f"{run.stream}: run {run.run}, version {run.version}, {run.rows:,} rows, {run.late:,} late{bad}, "
        f"{run.milliseconds:,.0f} ms, {run.total_rows:,} rows in all, {run.rows_per_second:,.0f} rows/s, "
        f"progress {progress}"
    )


def check(console: Console, text: str) -> int:
    """Parse and bind a script without Spark; print all of its errors."""
    from anabranch.sql import problems

    wrong, warnings = problems(text)
    for problem in wrong:
        console.error(str(problem))
    for warning in warnings:
        console.warning(warning)
    if wrong:
        console.message(f"{len(wrong)} errors" if len(wrong) > 1 else "1 error")
        return wrong[0].exit_code
    count = len(parse_all(text))
    console.line("ok: 1 statement" if count == 1 else f"ok: {count} statements")
    return 0


#: The options of EXPLAIN for each format.
_EXPLAIN = {"text": "FORMAT TEXT", "json": "FORMAT JSON"}


def describe(console: Console, text: str, form: str, target: Target, settings: Settings) -> int:
    """Print or write the plan of a query or a view. Runs the statements before it first."""
    from anabranch.sql.lexer import split_statements, tokenize

    statements = split_statements(tokenize(text))  # the last one may be the name of a view
    if not statements:
        raise UsageError("there is nothing to describe", hint='give a query: anabranch describe "SELECT ..."')
    at = statements[-1][0].start
    before = text[:at]
    statement = f"{before}EXPLAIN ({_EXPLAIN.get(form, f'GRAPH {form}')}) {text[at:]}"
    reads = only_reads(parse_all(statement))
    named = target.to if target.to != STDOUT else None
    path = place(named, target.overwrite) if named is not None else None
    with (
        open_session(settings, console, reads=reads) as session,
        Interrupts(console, session.stop, session.cancel, graceful=False) as interrupts,
    ):
        for result in session.execute(statement, live=False):
            interrupts.install()
            if result.message:
                console.message(result.message)
        answer = "\n".join(result.toArrow().column("plan").to_pylist())
    if form == "json":
        answer = json.dumps(json.loads(answer), indent=2, ensure_ascii=False)
    if path is None:
        console.line(answer)
    else:
        write_text(path, answer + "\n", overwrite=target.overwrite)
    return 0


def compact(console: Console, settings: Settings) -> int:
    """Reduce the tables of a home now."""
    with open_session(settings, console) as session:
        console.message(session.compact())
    return 0
