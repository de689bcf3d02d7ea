"""The net table: what is left of a sequence of changes.

Each distinct row is kept with the sum of its `_diff`. Pure bookkeeping: knows nothing of terminals.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from anabranch.cli.values import Formatter, plain_values, text_formatter

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]


class NetTable:
    """Rows with counts; a row whose count comes to zero is gone."""

    def __init__(self) -> None:
        self._counts: dict[Row, int] = {}
        self._shown = 0
        self._schema: pa.Schema | None = None
        self._formatters: list[Formatter] = []

    @property
    def schema(self) -> pa.Schema | None:
        """The columns without `_diff`; None before the first changes."""
        return self._schema

    def __len__(self) -> int:
        """Rows, counting a row as often as it is there."""
        return self._shown

    def apply(self, changes: pa.Table) -> None:
        """Add the changes of one run; the last column is `_diff`."""
        last = changes.num_columns - 1
        columns = changes.select(list(range(last)))
        self._learn(columns.schema)
        diffs = changes.column(last).to_pylist()
        values = [plain_values(column) for column in columns.columns]
        rows = zip(*values, strict=True) if values else (() for _ in diffs)
        for row, diff in zip(rows, diffs, strict=True):
            self._add(row, diff)

    def insert(self, rows: pa.Table) -> None:
        """Add plain rows, once each."""
        self._learn(rows.schema)
        for row in zip(*[plain_values(column) for column in rows.columns], strict=True):
            self._add(row, 1)

    def _learn(self, schema: pa.Schema) -> None:
        if self._schema is None:
            self._schema = schema
            self._formatters = [text_formatter(field.type) for field in schema]

    def _add(self, row: Row, diff: int) -> None:
        before = self._counts.get(row, 0)
        after = before + diff
        if after:
            self._counts[row] = after
        else:
            self._counts.pop(row, None)
        # A count below zero waits for its other half and shows nothing.
        self._shown += max(after, 0) - max(before, 0)

    def rows(self) -> list[Row]:
        """All rows in the order of their columns, NULL first, as often as they are there."""
        counted = [(row, count) for row, count in self._counts.items() if count > 0]
        try:
            counted.sort(key=lambda pair: _order(pair[0]))
        except TypeError:
            counted.sort(key=lambda pair: self.texts(pair[0]).__repr__())
        return [row for row, count in counted for _ in range(count)]

    def last(self, limit: int) -> list[Row]:
        """The last rows of that order, without sorting them all: with windows first, these are the newest."""
        live = (row for row, count in self._counts.items() if count > 0)
        try:
            top = heapq.nlargest(limit, live, key=_order)
        except TypeError:
            return self.rows()[-limit:] if limit else []
        top.reverse()
        repeated = [row for row in top for _ in range(self._counts[row])]
        return repeated[-limit:] if limit else []

    def texts(self, row: Row) -> list[str | None]:
        """The cells of a row as text; NULL stays None."""
        return [
            None if value is None else formatter(value) for value, formatter in zip(row, self._formatters, strict=True)
        ]


def _order(row: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is not None, value) for value in row)
