"""A table outside for tests: it counts who asks, can be slow, and fails when it is told to."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from anabranch.sources.lookup import ASKING_OPTIONS, Comparison, Unreachable, arrow_schema, check_asking
from anabranch.sources.registry import Kind, Option, register_source
from anabranch.types import Field

Rows = list[tuple[Any, ...]]
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "LIKE": lambda *_: True, "LIKED BY": lambda *_: True,
}  # fmt: skip


class FakeTable:
    """Rows that a test may change at any time."""

    def __init__(self, fields: Sequence[tuple[str, str]], rows: Rows, size: int | None = None) -> None:
        self.columns = tuple(Field(name, type) for name, type in fields)
        self.rows = rows
        self.rows_told = size
        self.asked: list[tuple[tuple[str, ...], list[tuple[Any, ...]]]] = []
        self.loose = False  # whether a search finds everything
        self.failures = 0  # so many requests to come fail
        self.meet: Callable[[], None] = lambda: None  # called inside every request
        self.most = self._now = 0  # requests at once
        self._lock = threading.Lock()

    def fields(self) -> tuple[Field, ...]:
        return self.columns

    def size(self) -> int | None:
        return self.rows_told

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        with self._request(by, keys):
            places = [self._place(name) for name in by]
            wanted = set(keys)
            return self._table(columns, [row for row in self.rows if tuple(row[i] for i in places) in wanted])

    def search(
        self, columns: tuple[str, ...], comparisons: tuple[Comparison, ...], keys: Sequence[tuple[Any, ...]]
    ) -> tuple[pa.Table, list[int]]:
        """Everything for each key, if it is loose: rows too many do no harm."""
        with self._request(tuple(each.column for each in comparisons), keys):
            tests = [(self._place(each.column), COMPARE[each.sign]) for each in comparisons]
            found = [
                (row, number)
                for number, key in enumerate(keys)
                for row in self.rows
                if self.loose
                or all(row[i] is not None and test(row[i], v) for (i, test), v in zip(tests, key, strict=True))
            ]
            return self._table(columns, [row for row, _ in found]), [number for _, number in found]

    @contextmanager
    def _request(self, by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> Iterator[None]:
        with self._lock:
            self.asked.append((by, list(keys)))
            self._now += 1
            self.most = max(self.most, self._now)
            fails, self.failures = self.failures > 0, max(0, self.failures - 1)
        try:
            self.meet()
            if fails:
                raise Unreachable("nobody is there")
            yield
        finally:
            with self._lock:
                self._now -= 1

    def read(self) -> pa.Table:
        return self._table([field.name for field in self.columns], self.rows)

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """Every key that was asked for, in the order of asking."""
        return [key for _, keys in self.asked for key in keys]

    def _place(self, name: str) -> int:
        return [field.name for field in self.columns].index(name)

    def _table(self, columns: Sequence[str], rows: Rows) -> pa.Table:
        names = [field.name for field in self.columns]
        schema = arrow_schema([self.columns[names.index(name)] for name in columns])
        arrays = [
            pa.array([row[names.index(name)] for row in rows], schema.field(i).type) for i, name in enumerate(columns)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


TABLES: dict[str, FakeTable] = {}


def _open(options: Mapping[str, Any], declared: tuple[Field, ...] | None) -> FakeTable:
    return TABLES[str(options["name"])]


register_source(
    Kind(
        name="fake",
        doc="for tests",
        example="fake(name => 't')",
        options=(Option(name="name", doc="which", required=True), *ASKING_OPTIONS),
        table=_open,
        check=check_asking,
    )
)


def fake(name: str, fields: Sequence[tuple[str, str]], rows: Rows, size: int | None = None) -> FakeTable:
    """A table that CREATE TABLE finds as fake(name => '...')."""
    TABLES[name] = FakeTable(fields, rows, size)
    return TABLES[name]
