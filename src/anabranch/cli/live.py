"""live-table: the answer as it stands, repainted as runs commit.

On a terminal the last rows that fit and a status line are repainted at most ten times a second; at the end
the final table is printed like any other. Elsewhere only the final table is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.cli.console import Console
from anabranch.cli.interface import Batch, Result
from anabranch.cli.net import NetTable
from anabranch.cli.outputs import BatchTable
from anabranch.cli.tables import clean, fit
from anabranch.cli.values import NULL, is_number, timestamp_text

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

LEAST_SECONDS_BETWEEN_PAINTS = 0.1
#: Painting may take this share of the time, however many rows there are to look through.
PAINTING_SHARE = 0.2
#: Lines that are not rows: header, rule, "more", blank, status, and one for the cursor.
OTHER_LINES = 6


@dataclass(frozen=True)
class Status:
    """What the status line says."""

    rows: int
    late: int
    progress: int | None
    seconds: float

    def text(self) -> str:
        rate = self.rows / self.seconds if self.seconds > 0 else 0.0
        progress = "none yet" if self.progress is None else timestamp_text(self.progress)
        return f"{self.rows:,} rows   {rate:,.0f} rows/s   progress {progress}   {self.late:,} late"


def render(net: NetTable, columns: list[str], status: Status, size: tuple[int, int]) -> RenderableType:
    """The picture: the last rows that fit, how many more there are, the status line."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    room = max(1, size[1] - OTHER_LINES)
    shown = net.last(room)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    fields = [] if net.schema is None else list(net.schema)
    names = [field.name for field in fields] or columns
    cells = [[Text(NULL, style="dim") if t is None else Text(clean(t)) for t in net.texts(row)] for row in shown]
    headers = [Text(clean(name), style="bold") for name in names]
    # Left to itself, rich takes the room for a wide column away from the narrow ones.
    widths = [max(cell.cell_len for cell in column) for column in zip(headers, *cells, strict=True)]
    for number, (header, width) in enumerate(zip(headers, fit(widths, size[0]), strict=True)):
        right = bool(fields) and is_number(fields[number].type)
        justify: JustifyMethod = "right" if right else "left"
        table.add_column(header, justify=justify, width=width, no_wrap=True, overflow="ellipsis")
    for row_cells in cells:
        table.add_row(*row_cells)
    more = len(net) - len(shown)
    note = Text(f"... {more:,} more" if more > 0 else "", style="dim")
    line = Text(status.text(), style="bold", no_wrap=True, overflow="ellipsis")
    return Group(table, note, Text(""), line)


class LiveTable:
    """Keeps the net table and repaints it."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock

    def show(self, result: Result) -> None:
        final = BatchTable(self._console)
        if result.kind == "rows" and not result.endless:
            final.show(result)
            return
        net = NetTable()
        if self._console.out_is_terminal:
            status = self._watch(result, net)
            final.show_net(net, result.columns)
            self._console.line(self._console.style(status.text(), "bold"))
            return
        for batch in result:
            net.apply(batch.changes)
        final.show_net(net, result.columns)

    def _watch(self, result: Result, net: NetTable) -> Status:
        from rich.console import Console as RichConsole
        from rich.live import Live

        started = self._clock()
        status = Status(0, 0, None, 0.0)
        terminal = RichConsole(file=self._console.out)
        next_paint = started
        # Transient: the picture goes when the final table is printed in its place.
        with Live(console=terminal, auto_refresh=False, transient=True, redirect_stdout=False) as live:
            live.update(render(net, result.columns, status, self._console.size), refresh=True)
            for batch in result:
                net.apply(batch.changes)
                before = self._clock()
                status = _status(batch, before - started)
                if before < next_paint:
                    continue
                live.update(render(net, result.columns, status, self._console.size), refresh=True)
                after = self._clock()
                next_paint = before + max(LEAST_SECONDS_BETWEEN_PAINTS, (after - before) / PAINTING_SHARE)
        return status


def _status(batch: Batch, seconds: float) -> Status:
    return Status(batch.rows, batch.late, batch.progress, seconds)
