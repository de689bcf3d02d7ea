"""`anabranch demo`: a stream of bids, three views that stay right, and the proof of it.

The bids and the feeder that hands them out are in `bids`, the stream and the views in demo.sql, Spark and its runs in
`flow`, what people see meanwhile in `screen`, and the comparison with Spark's own batch queries in `proof`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from anabranch.cli.console import Console
from anabranch.cli.options import FAILED, INTERRUPTED, spark_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.demo.flow import Flow
    from anabranch.demo.screen import Lines, Picture

SECONDS_BETWEEN_PAINTS = 0.2
#: In a minute the second compiler of the JVM costs more than it gives: without it the demo takes two thirds of the CPU.
CONF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
#: How long a Ctrl-C waits for the run that is under way.
SECONDS_TO_STOP = 10.0


@dataclass(frozen=True)
class Options:
    """What to show."""

    rows: int = 300_000
    seconds: float = 15.0
    keep: bool = False
    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)


def main(arguments: list[str]) -> int:
    """Run the demo as a command line asks for it; the exit code."""
    code = command.main(args=arguments, prog_name="anabranch demo", standalone_mode=False)
    return int(code or 0)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", metavar="N", type=click.IntRange(1), default=Options.rows, show_default=True, help="Bids.")
@click.option(
    "--seconds",
    metavar="S",
    type=click.FloatRange(0),
    default=Options.seconds,
    show_default=True,
    help="How long the bids take to arrive.",
)
@click.option("--keep", is_flag=True, help="Keep the bids and the home, and say where they are.")
@spark_options
def command(rows: int, seconds: float, keep: bool, master: str | None, conf: dict[str, str]) -> int:
    """A live bid stream, three views, and the proof that no row is lost."""
    console = Console()
    console.prepare()
    with _signals(_end, "SIGTERM", "SIGHUP"):
        return play(console, Options(rows, seconds, keep, master, conf))


def script_in(folder: Path) -> str:
    """demo.sql, with the bids of this folder."""
    text = resources.files(__package__).joinpath("demo.sql").read_text(encoding="utf-8")
    place = "'bids/*.parquet'"
    assert text.count(place) == 1
    path = str(folder / "bids" / "*.parquet").replace("\\", "\\\\").replace("'", "\\'")
    return text.replace(place, f"'{path}'")


def play(console: Console, options: Options, spark: SparkSession | None = None) -> int:
    """The whole demo: 0 if the views are right, 1 if not, 130 after Ctrl-C."""
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-demo-"))
    kept = False
    try:
        from anabranch.demo import screen
        from anabranch.demo.bids import Bids, Feeder
        from anabranch.demo.flow import Flow

        view = screen.make(console)
        script = script_in(folder)
        view.opening(
            "Anabranch demo",
            f"{options.rows:,} bids arrive in {options.seconds:g} seconds, out of order, 1 % of them 10 to 60 minutes"
            " late; three views stay right.",
            resources.files(__package__).joinpath("demo.sql").read_text(encoding="utf-8"),
        )
        files = min(Bids.files, max(4, options.rows // 1_000))
        feeder = Feeder(Bids(options.rows, files), folder, options.seconds)
        conf = {**CONF, **options.conf}
        flow = Flow(script, folder / "home", feeder, spark=spark, master=options.master, conf=conf)
        if not _watch(flow, view):
            console.line("stopped; nothing is left of the demo")
            return INTERRUPTED
        holds = _conclude(console, flow)
        console.line(f"{time.monotonic() - started:.0f} seconds in all.")
        console.line()
        if options.keep:
            (folder / "demo.sql").write_text(script, encoding="utf-8")
            kept = True
            console.line(f"The bids, demo.sql and the home are kept in {folder}")
        _suggest(console, folder if kept else None)
        return 0 if holds else FAILED
    finally:
        if not kept:
            with _undisturbed():
                shutil.rmtree(folder, ignore_errors=True)


def _watch(flow: Flow, view: Lines | Picture) -> bool:
    """Paint until the work is done; False if somebody pressed Ctrl-C."""
    try:
        with view:
            flow.feeder.start()
            flow.start()
            while flow.busy:
                if flow.feeder.error is not None:
                    flow.cancel()
                view.paint(flow)
                flow.wait(SECONDS_BETWEEN_PAINTS)
            error = flow.feeder.error or flow.error
            if error is not None:
                raise error
            view.last(flow)
    except BaseException as error:
        with _undisturbed():
            flow.cancel()
            flow.wait(SECONDS_TO_STOP)
        if isinstance(error, KeyboardInterrupt):
            return False
        raise
    return True


def _end(number: int, frame: FrameType | None) -> None:
    """A closed terminal or a kill ends the demo as an exception does, so that it cleans up after itself."""
    sys.exit(128 + number)


def _undisturbed() -> contextlib.AbstractContextManager[None]:
    """Cleaning up takes a moment; a second Ctrl-C must not leave half of it."""
    return _signals(signal.SIG_IGN, "SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def _signals(handler: signal.Handlers | Callable[[int, FrameType | None], None], *names: str) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _conclude(console: Console, flow: Flow) -> bool:
    from anabranch.demo.screen import show_verdicts

    verdicts = flow.verdicts
    console.line()
    show_verdicts(console, verdicts)
    console.line()
    if all(verdict.holds for verdict in verdicts):
        rows = sum(verdict.totals[0].from_view for verdict in verdicts)
        most = max(verdict.late for verdict in verdicts)
        console.line(f"All {rows:,} rows of the three views are those of Spark's batch queries over all bids.")
        console.line(f"Up to {most:,} of those bids came when a window of theirs had closed already:")
        console.line("they are in the views, and a watermark would have dropped them.")
        return True
    wrong = ", ".join(verdict.view for verdict in verdicts if not verdict.holds)
    console.error(f"these views differ from Spark's batch queries: {wrong}")
    return False


def _suggest(console: Console, folder: Path | None) -> None:
    program = _program()
    if folder is None:
        tries = [
            (f"{program} demo --keep", "keep the home and look around in it"),
            (f"{program} demo --rows 2000000", "more bids in the same time"),
            (f"{program} --help", "your own streams and views"),
        ]
    else:
        home = f"{program} --home {shlex.quote(str(folder / 'home'))}"
        tries = [
            (f'{home} "SELECT * FROM highest_price ORDER BY window_start"', ""),
            (f'{home} "EXPLAIN SELECT * FROM hot_items"', ""),
            (f'{home} "SELECT run, rows, late_rows, progress FROM sys.runs WHERE run >= 0"', ""),
        ]
    console.line("Try next:")
    width = max(len(text) for text, _ in tries)
    for text, purpose in tries:
        console.line(f"  {text.ljust(width)}   {console.style(purpose, 'dim')}" if purpose else f"  {text}")


def _program() -> str:
    """How this program was called, so that what is suggested can be typed."""
    called = sys.argv[0]
    if os.path.basename(called) != "anabranch" or shutil.which("anabranch") == os.path.abspath(called):
        return "anabranch"
    relative = os.path.relpath(called)
    return shlex.quote(called if relative.startswith("..") else relative)
