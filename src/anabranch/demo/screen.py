"""How the demo looks: a picture that is repainted on a terminal, plain lines elsewhere. Starts nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anabranch.cli import tables
from anabranch.cli.console import Console
from anabranch.cli.live import Status
from anabranch.cli.values import timestamp_text
from anabranch.demo.bids import MINUTE, SECOND
from anabranch.demo.flow import Flow
from anabranch.demo.proof import Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS_BETWEEN_LINES = 2.0
HOT_ROWS = 10
BAR = 44
Clock = Callable[[], float]


class Lines:
    """For pipes and logs: a line when something begins, and a status line every two seconds."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._phase = ""
        self._printed_at = 0.0
        self._printed_rows = -1

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def opening(self, title: str, sentence: str, script: str) -> None:
        self._print(title, sentence, "", script.strip(), "")

    def paint(self, flow: Flow) -> None:
        if flow.phase != self._phase:
            self._phase = flow.phase
            self._print(f"{flow.phase} ...")
        now = self._clock()
        if flow.rows not in (0, self._printed_rows) and now - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._status(flow, now)

    def last(self, flow: Flow) -> None:
        """The final status, if it was not the last one told."""
        if flow.rows != self._printed_rows:
            self._status(flow, self._clock())

    def _status(self, flow: Flow, now: float) -> None:
        self._printed_at, self._printed_rows = now, flow.rows
        self._print(status(flow).text())

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.line(line)
        self._console.flush()


class Picture:
    """For terminals: the hot items and the status line, repainted in place."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live

        self._clock = clock
        self._started = clock()
        self._terminal = RichConsole(file=console.out, highlight=False)
        # Transient: what is worth keeping is printed at the end.
        self._live = Live(console=self._terminal, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> Picture:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def opening(self, title: str, sentence: str, script: str) -> None:
        from rich.syntax import Syntax

        self._terminal.print(title, style="bold")
        self._terminal.print(sentence)
        self._terminal.print()
        self._terminal.print(Syntax(script.strip(), "sql", theme="ansi_dark", background_color="default"))
        self._terminal.print()

    def paint(self, flow: Flow) -> None:
        self._live.update(self._picture(flow), refresh=True)

    def last(self, flow: Flow) -> None:
        """The status stays on the screen; the picture goes."""
        self._live.update("", refresh=True)
        self._terminal.print(status(flow).text(), style="bold")

    def _picture(self, flow: Flow) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        seconds = Text(f"  {self._clock() - self._started:.0f} s", style="dim")
        phase = Text(f"{flow.phase} ...", style="cyan", no_wrap=True, overflow="ellipsis") + seconds
        if flow.started_feeding is None:
            return phase
        line = Text(status(flow).text(), style="bold", no_wrap=True, overflow="ellipsis")
        return Group(*self._hot(flow), Text(), line, phase)

    def _hot(self, flow: Flow) -> list[RenderableType]:
        """Always as many lines, so that nothing below them moves."""
        from rich.text import Text

        places: list[tuple[int, int, int]] = []
        heading = "hot items: none yet"
        if flow.hot is not None and flow.hot_end is not None:
            places = list(zip(*(column.to_pylist() for column in flow.hot.columns), strict=True))
            since, until = (timestamp_text(at)[11:16] for at in (flow.hot_end - 5 * MINUTE, flow.hot_end))
            heading = f"hot items, {since} to {until}"
        most = max((bids for _, _, bids in places), default=1)
        lines: list[RenderableType] = [Text(heading, style="bold"), Text(), Text("place  auction    bids", style="dim")]
        for place, auction, bids in places:
            bar = Text("━" * max(1, round(BAR * bids / most)), style="cyan" if place > 3 else "bright_cyan")
            lines.append(Text(f"{place:>5}  {auction:>7}  {bids:>6,}  ", no_wrap=True) + bar)
        lines += [Text() for _ in range(HOT_ROWS - len(places))]
        return lines


def make(console: Console) -> Lines | Picture:
    return Picture(console) if console.out_is_terminal else Lines(console)


def status(flow: Flow) -> Status:
    progress = None if flow.progress is None else flow.progress // SECOND * SECOND
    return Status(flow.rows, flow.late, progress, flow.feeding_seconds)


def show_verdicts(console: Console, verdicts: list[Verdict]) -> None:
    """The table of the proof."""
    good, bad = ("✓", "✗") if "utf" in (getattr(console.out, "encoding", None) or "utf-8").lower() else ("yes", "NO")
    header = ["view", "total", "from the view", "Spark batch query", "equal", "late rows in it"]
    cells: list[list[str]] = [[] for _ in header]
    for verdict in verdicts:
        for number, total in enumerate(verdict.totals):
            equal = total.equal and (number > 0 or verdict.same_rows)
            first = number == 0
            row = [
                verdict.view if first else "",
                total.name,
                _figure(total.from_view),
                _figure(total.from_batch),
                good if equal else bad,
                f"{verdict.late:,}" if first else "",
            ]
            for column, text in zip(cells, row, strict=True):
                column.append(text)
    right = [False, False, True, True, False, True]
    limit = console.size[0] if console.out_is_terminal else None
    styles = {good: "green", bad: "red"}
    for number, line in enumerate(tables.lines(header, cells, right, limit)):
        for mark, style in styles.items() if number > 1 else ():
            line = line.replace(f"| {mark} ", f"| {console.style(mark, style)} ")
        console.line(console.style(line, "bold") if number == 0 else line)


def _figure(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | Decimal) else str(value)
