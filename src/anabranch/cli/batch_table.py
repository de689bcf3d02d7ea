"""batch-table: an answer, or the net result of changes, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.cli import tables
from anabranch.cli.console import Console
from anabranch.cli.interface import Result
from anabranch.cli.net import NetTable
from anabranch.cli.ordering import UNORDERED, Order
from anabranch.cli.values import column_texts, is_number


class BatchTable:
    """Aligned columns and the number of rows."""

    def __init__(self, console: Console, order: Order = UNORDERED) -> None:
        self._console = console
        self._order = order

    def show(self, result: Result) -> None:
        if result.kind == "changes":
            net = NetTable.of(result, self._order)
            self.show_net(net, result.columns)
            return
        rows = result.toArrow()
        texts = [column_texts(column) for column in rows.columns]
        self._print(rows.column_names, texts, [is_number(field.type) for field in rows.schema], rows.num_rows)

    def show_net(self, net: NetTable, columns: list[str]) -> None:
        """The net rows of changes."""
        if net.schema is None:
            self._print(columns, [[] for _ in columns], [False] * len(columns), 0)
            return
        cells = [net.texts(row) for row in net.rows()]
        texts = [[row[i] for row in cells] for i in range(len(net.schema))]
        self._print(net.schema.names, texts, [is_number(field.type) for field in net.schema], len(cells))

    def _print(
        self,
        names: list[str],
        texts: Sequence[Iterable[str | None]],
        right: list[bool],
        count: int,
    ) -> None:
        console = self._console
        limit = console.size[0] if console.out_is_terminal else None
        for number, line in enumerate(tables.lines(names, texts, right, limit)):
            console.line(console.style(line, "bold") if number == 0 else line)
        console.line(tables.count_line(count))
