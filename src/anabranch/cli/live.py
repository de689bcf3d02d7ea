"""live-table: the current answer, repainted as runs commit.

On a terminal the rows that fit and a status line are repainted at most ten times a second; at the end the final table
is printed like any other. Elsewhere only the final table is printed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.cli.batch_table import BatchTable
from anabranch.cli.console import Console
from anabranch.cli.interface import Batch, Result
from anabranch.cli.net import NetTable
from anabranch.cli.ordering import Order
from anabranch.cli.tables import clean, cut, fit
from anabranch.cli.values import NULL, is_number, timestamp_text

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

LEAST_SECONDS_BETWEEN_PAINTS = 0.1
#: Painting may take this share of the time, for any number of rows.
PAINTING_SHARE = 0.2
#: Lines without rows: header, rule, "more", blank, status, and one for the cursor.
OTHER_LINES = 6
#: The window in seconds for the rate of rows; it is zero after as long without rows.
SECONDS_OF_RATE = 10.0


@dataclass(frozen=True)
class Status:
    """The content of the status line."""

    rows: int = 0
    late: int = 0
    progress: int | None = None
    rate: float = 0.0

    def text(self, limit: int | None = None) -> str:
        """The line, in at most `limit` columns of a terminal."""
        progress = "none yet" if self.progress is None else timestamp_text(self.progress)
        line = f"{self.rows:,} rows   {self.rate:,.0f} rows/s   progress {progress}   {self.late:,} late"
        return line if limit is None else cut(line, limit)


class Meter:
    """Counts the rows of batches; the caller passes the time."""

    def __init__(self) -> None:
        self._rows, self._late = 0, 0
        self._progress: int | None = None
        #: Times and numbers of rows taken in. Counting starts at the first batch: a home may have rows that were taken
        #: in long before.
        self._samples: deque[tuple[float, int]] = deque()

    def count(self, batch: Batch, now: float) -> None:
        self._rows, self._late = batch.rows, batch.late
        if batch.progress is not None:  # None for a stream that has ended: the last progress is kept
            self._progress = batch.progress
        self._samples.append((now, batch.rows))
        # The newest sample before the window is kept: it has the number of rows at the start of the window.
        while len(self._samples) > 1 and self._samples[1][0] <= now - SECONDS_OF_RATE:
            self._samples.popleft()

    def status(self, now: float) -> Status:
        rate = 0.0
        if self._samples:
            (since, before), (until, after) = self._samples[0], self._samples[-1]
            if since < until and now - until < SECONDS_OF_RATE:
                rate = (after - before) / (until - since)
        return Status(self._rows, self._late, self._progress, rate)


class Pace:
    """The limiter of repaints."""

    def __init__(self) -> None:
        self._next: float | None = None

    def due(self, now: float) -> bool:
        return self._next is None or now >= self._next

    def painted(self, began: float, ended: float) -> None:
        self._next = began + max(LEAST_SECONDS_BETWEEN_PAINTS, (ended - began) / PAINTING_SHARE)


def render(net: NetTable, columns: list[str], status: Status, size: tuple[int, int]) -> RenderableType:
    """The screen: the rows that fit, the number of others, the status line."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    room = max(1, size[1] - OTHER_LINES)
    shown = net.part(room)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    fields = [] if net.schema is None else list(net.schema)
    names = [field.name for field in fields] or columns
    cells = [[Text(NULL, style="dim") if t is None else Text(clean(t)) for t in net.texts(row)] for row in shown]
    headers = [Text(clean(name), style="bold") for name in names]
    # By default, rich shrinks narrow columns to make room for a wide one.
    widths = [max(cell.cell_len for cell in column) for column in zip(headers, *cells, strict=True)]
    for number, (header, width) in enumerate(zip(headers, fit(widths, size[0]), strict=True)):
        right = bool(fields) and is_number(fields[number].type)
        justify: JustifyMethod = "right" if right else "left"
        table.add_column(header, justify=justify, width=width, no_wrap=True, overflow="ellipsis")
    for row_cells in cells:
        table.add_row(*row_cells)
    more = len(net) - len(shown)
    note = Text(f"... {more:,} more" if more > 0 else "", style="dim")
    line = Text(status.text(size[0]), style="bold", no_wrap=True)
    return Group(table, note, Text(""), line)


class Screen:
    """The net table and its painting. Batches come from one thread, ticks from another."""

    def __init__(
        self,
        net: NetTable,
        columns: list[str],
        size: Callable[[], tuple[int, int]],
        paint: Callable[[RenderableType], None],
        clock: Callable[[], float],
    ) -> None:
        self._net = net
        self._columns = columns
        self._size = size
        self._paint = paint
        self._clock = clock
        self._meter = Meter()
        self._pace = Pace()
        self._lock = threading.Lock()
        self._stale = True
        self._painted_status: str | None = None
        self._failed: Exception | None = None

    def apply(self, batch: Batch) -> None:
        """Add the changes of a run; they are painted now, or by a later tick."""
        with self._lock:
            if self._failed is not None:
                raise self._failed
            self._net.apply(batch.changes)
            self._meter.count(batch, self._clock())
            self._stale = True
            self._repaint()

    def tick(self) -> None:
        """Paint pending changes if it is time: after a burst of runs there may be no other batch."""
        with self._lock:
            try:
                if self._failed is None:
                    self._repaint()
            except Exception as error:  # the terminal is gone; the reader of the answer gets the error
                self._failed = error

    def status(self) -> Status:
        with self._lock:
            return self._meter.status(self._clock())

    def _repaint(self) -> None:
        began = self._clock()
        status = self._meter.status(began)
        if not self._pace.due(began) or (not self._stale and status.text() == self._painted_status):
            return
        self._paint(render(self._net, self._columns, status, self._size()))
        self._stale, self._painted_status = False, status.text()
        self._pace.painted(began, self._clock())


@contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call `tick` periodically from a separate thread."""
    done = threading.Event()

    def loop() -> None:
        while not done.wait(LEAST_SECONDS_BETWEEN_PAINTS):
            tick()

    thread = threading.Thread(target=loop, name="live-table", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class LiveTable:
    """Keeps the net table and repaints it."""

    def __init__(self, console: Console, clock: Callable[[], float], order: Order) -> None:
        self._console = console
        self._clock = clock
        self._order = order

    def show(self, result: Result) -> None:
        final = BatchTable(self._console)
        if result.kind == "rows" and not result.endless:
            final.show(result)
            return
        net = NetTable(self._order)
        if self._console.out_is_terminal:
            status = self._watch(result, net)
            final.show_net(net, result.columns)
            self._console.line(self._console.style(status.text(self._console.size[0]), "bold"))
            return
        for batch in result:
            net.apply(batch.changes)
        final.show_net(net, result.columns)

    def _watch(self, result: Result, net: NetTable) -> Status:
        from rich.console import Console as RichConsole
        from rich.live import Live

        terminal = RichConsole(file=self._console.out)
        # Transient: the final table replaces the screen.
        with Live(console=terminal, auto_refresh=False, transient=True, redirect_stdout=False) as live:
            screen = Screen(
                net,
                result.columns,
                lambda: self._console.size,
                lambda picture: live.update(picture, refresh=True),
                self._clock,
            )
            screen.tick()
            with ticking(screen.tick):
                for batch in result:
                    screen.apply(batch)
            return screen.status()
