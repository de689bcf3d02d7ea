"""The outputs: one class each, all made from a result and a console.

`batch-*`, `csv` and `json` print an answer once; `stream-json` and `live-*` print changes as runs commit. An output
takes either kind of result: rows count as insertions, and outputs of a whole answer add up changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.cli.batch_table import BatchTable
from anabranch.cli.console import Console
from anabranch.cli.interface import ArrowTable, Result
from anabranch.cli.live import LiveTable
from anabranch.cli.net import NetTable
from anabranch.cli.ordering import UNORDERED, Order
from anabranch.cli.release import InOrder
from anabranch.cli.values import column_texts, json_formatter, json_text, plain_values

if TYPE_CHECKING:
    import pyarrow as pa

DIFF = "_diff"
BATCH = ("batch-table", "batch-csv", "csv", "json")
LIVE = ("stream-json", "live-table", "live-csv")
NAMES = BATCH + LIVE


class Output(Protocol):
    """Prints results."""

    def show(self, result: Result) -> None: ...


def make_output(
    name: str, console: Console, clock: Callable[[], float] = time.monotonic, order: Order = UNORDERED
) -> Output:
    """The output with this name; `order` is that of the query, for outputs that have to sort."""
    if name == "batch-table":
        return BatchTable(console, order)
    if name in ("batch-csv", "csv"):
        return BatchCsv(console, order)
    if name == "json":
        return BatchJson(console, order)
    if name == "stream-json":
        return StreamJson(console, order)
    if name == "live-csv":
        return LiveCsv(console, order)
    return LiveTable(console, clock, order)


def _deltas(result: Result, order: Order) -> Iterator[ArrowTable]:
    """The changes of a result of either kind, run by run; `_diff` is the last column.

    Changes of a query that is ordered by event time are emitted in that order, as progress passes.
    """
    if result.kind == "changes" or result.endless:
        held = InOrder.of(order, result.columns, result.times) if order.columns else None
        for batch in result:
            if held is None:
                yield batch.changes
            else:
                yield from held.take(batch)
        if held is not None:
            yield from held.rest()
        return
    import pyarrow as pa

    rows = result.toArrow()
    yield rows.append_column(DIFF, pa.array([1] * rows.num_rows, pa.int64()))


class Lines:
    """The texts of an answer with one column, unchanged, for users to copy."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, result: Result) -> None:
        for text in column_texts(result.toArrow().column(0)):
            self._console.line(text or "")


class _Printed:
    def __init__(self, console: Console, order: Order = UNORDERED) -> None:
        self._console = console
        self._order = order


class BatchCsv(_Printed):
    """A header and rows only, for programs."""

    def show(self, result: Result) -> None:
        if result.kind == "changes":
            net = NetTable.of(result, self._order)
            self._console.line(csv_line(result.columns))
            for row in net.rows():
                self._console.line(csv_line(net.texts(row)))
            return
        rows = result.toArrow()
        self._console.line(csv_line(rows.column_names))
        _write_csv(self._console, rows)


class BatchJson(_Printed):
    """One JSON object a row, a line each, for programs."""

    def show(self, result: Result) -> None:
        if result.kind != "changes":
            for line in json_lines(result.toArrow()):
                self._console.line(line)
            return
        net = NetTable.of(result, self._order)
        if net.schema is not None:
            for line in _json_rows(net.schema, net.rows()):
                self._console.line(line)


class LiveCsv(_Printed):
    """A header, then changes as they arrive, with `_diff` as the last column."""

    def show(self, result: Result) -> None:
        self._console.line(csv_line([*result.columns, DIFF]))
        self._console.flush()
        for changes in _deltas(result, self._order):
            _write_csv(self._console, changes)
            self._console.flush()


class StreamJson(_Printed):
    """One JSON object a change, a line each."""

    def show(self, result: Result) -> None:
        for changes in _deltas(result, self._order):
            for line in json_lines(changes):
                self._console.line(line)
            self._console.flush()


def _write_csv(console: Console, rows: pa.Table) -> None:
    # Batch by batch, so that a long result is never in memory as text.
    for batch in rows.to_batches(max_chunksize=10_000):
        for cells in zip(*[column_texts(column) for column in batch.columns], strict=True):
            console.line(csv_line(cells))


def csv_line(cells: Iterable[str | None]) -> str:
    """A line of RFC 4180; NULL is empty, and an empty text is quoted to distinguish it."""
    return ",".join("" if cell is None else _csv_cell(cell) for cell in cells)


def _csv_cell(text: str) -> str:
    if text and not any(c in text for c in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def json_lines(rows: pa.Table) -> Iterator[str]:
    """The rows of a table as JSON objects with the keys in the order of its columns."""
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from _json_rows(rows.schema, zip(*[plain_values(column) for column in batch.columns], strict=True))


def _json_rows(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    keys = [json_text(name) + ": " for name in schema.names]
    formatters = [json_formatter(field.type) for field in schema]
    for row in rows:
        cells = (
            key + ("null" if value is None else formatter(value))
            for key, value, formatter in zip(keys, row, formatters, strict=True)
        )
        yield "{" + ", ".join(cells) + "}"
