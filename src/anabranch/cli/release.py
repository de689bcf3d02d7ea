"""Changes in the order of their event time: held back until progress has passed them.

For a query whose ORDER BY begins with its event time, ascending. Only changes ahead of progress are kept; a change
to an emitted row follows at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.cli.interface import Batch
from anabranch.cli.ordering import Order, Row
from anabranch.cli.values import plain_values

if TYPE_CHECKING:
    import pyarrow as pa


class InOrder:
    """The changes of one query that are held back."""

    def __init__(self, order: Order, shift: int) -> None:
        self._order = order
        self._index = order.columns[0].index
        self._shift = shift
        self._held: Counter[Row] = Counter()
        self._raw: dict[Row, tuple[Any, ...]] = {}
        self._passed: int | None = None
        self._schema: pa.Schema | None = None

    @classmethod
    def of(cls, order: Order, columns: Sequence[str], times: Mapping[str, int]) -> InOrder | None:
        """None if the order does not begin with an event time. `times` are the event time columns."""
        if not order.columns or order.columns[0].descending or order.unsortable is not None:
            return None
        name = columns[order.columns[0].index]
        return cls(order, times[name]) if name in times else None

    def take(self, batch: Batch) -> Iterator[pa.Table]:
        """The changes to emit after a run."""
        changes = batch.changes
        self._schema = changes.schema
        moments = changes.column(self._index).cast("int64").to_pylist() if changes.num_rows else []
        plain = list(zip(*[plain_values(column) for column in changes.columns], strict=True))
        raw = list(zip(*[column.to_pylist() for column in changes.columns], strict=True))
        out: list[tuple[Any, ...]] = []
        for moment, values, given in zip(moments, plain, raw, strict=True):
            if moment is None or (self._passed is not None and moment + self._shift <= self._passed):
                out.append(given)
                continue
            row = values[:-1]
            self._held[row] += given[-1]
            self._raw[row] = (moment, *given[:-1])
        if out:
            yield self._table(out)
        if batch.progress is not None and (self._passed is None or batch.progress > self._passed):
            self._passed = batch.progress
            yield from self._release(self._passed)

    def rest(self) -> Iterator[pa.Table]:
        """The remaining changes at the end."""
        yield from self._release(None)

    def _release(self, passed: int | None) -> Iterator[pa.Table]:
        due = [row for row in self._held if passed is None or self._raw[row][0] + self._shift <= passed]
        out = []
        for row in sorted(due, key=self._order.key):
            count, given = self._held.pop(row), self._raw.pop(row)
            if count:
                out.append((*given[1:], count))
        if out:
            yield self._table(out)

    def _table(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        import pyarrow as pa

        assert self._schema is not None
        arrays = [pa.array([row[i] for row in rows], type=each.type) for i, each in enumerate(self._schema)]
        return pa.Table.from_arrays(arrays, schema=self._schema)
