"""The net table: the sum of a sequence of changes.

Each distinct row is kept with the sum of its `_diff`, and returned in the order of the query. Knows nothing of
terminals.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from anabranch.cli.interface import Batch
from anabranch.cli.ordering import UNORDERED, Order, Row
from anabranch.cli.values import Formatter, plain_values, text_formatter

if TYPE_CHECKING:
    import pyarrow as pa


class NetTable:
    """Rows with counts; a row whose count becomes zero is removed."""

    def __init__(self, order: Order = UNORDERED) -> None:
        #: Without one, rows are sorted by their columns from left to right, NULL first.
        self.order = order
        self._counts: dict[Row, int] = {}
        self._shown = 0
        self._schema: pa.Schema | None = None
        self._formatters: list[Formatter] = []

    @classmethod
    def of(cls, batches: Iterable[Batch], order: Order) -> NetTable:
        """The net rows of all batches of an answer."""
        net = cls(order)
        for batch in batches:
            net.apply(batch.changes)
        return net

    @property
    def schema(self) -> pa.Schema | None:
        """The columns without `_diff`; None before the first changes."""
        return self._schema

    def __len__(self) -> int:
        """The number of rows, with multiplicity."""
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
        # A row with a negative count waits for its insertion and is not shown.
        self._shown += max(after, 0) - max(before, 0)

    def rows(self) -> list[Row]:
        """All rows in order, repeated by their counts."""
        counted = sorted(self._present(), key=self.order.key)
        return [row for row in counted for _ in range(self._counts[row])]

    def part(self, limit: int) -> list[Row]:
        """At most `limit` rows, without sorting all.

        The first rows if the query has an order. Otherwise the last: with windows in front, these are the newest.
        """
        if self.order.columns:
            found = heapq.nsmallest(limit, self._present(), key=self.order.key)
        else:
            found = heapq.nlargest(limit, self._present(), key=self.order.key)[::-1]
        repeated = [row for row in found for _ in range(min(self._counts[row], limit))]
        if self.order.columns:
            return repeated[:limit]
        return repeated[-limit:] if limit else []

    def _present(self) -> Iterator[Row]:
        return (row for row, count in self._counts.items() if count > 0)

    def texts(self, row: Row) -> list[str | None]:
        """The cells of a row as text; NULL is None."""
        return [
            None if value is None else formatter(value) for value, formatter in zip(row, self._formatters, strict=True)
        ]
