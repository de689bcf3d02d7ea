"""Pending keys as a DuckDB table, where they are too many for Python objects. See `algebra.pending`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.algebra.pending import Key
from anabranch.algebra.triggers import Pending
from anabranch.duck import connect, path_list
from anabranch.engine.frames import hashable
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.types import Field

if TYPE_CHECKING:
    import duckdb

_TABLE, _GIVEN = "pending", "__given"
_IS_GIVEN = f"EXISTS (SELECT 1 FROM {_GIVEN} g WHERE"
#: The columns of pending state, after those of the key.
STATE = (
    Field("records", "bigint"),
    Field("deadline", "bigint"),
    Field("armed", "boolean"),
    Field("event_time", "bigint"),
)
_STORED = (*STATE, Field("_version", "bigint"))
WAITS = "(records <> 0 OR deadline IS NOT NULL OR armed OR event_time IS NOT NULL)"


def pending_fields(view: View) -> tuple[Field, ...]:
    return (*(Field(f"k{index}", key.type) for index, key in enumerate(view.keying.columns)), *_STORED)


def ends_of(view: View) -> tuple[tuple[int, int], ...]:
    """The key columns that give the end of a key's window, with their offsets to it."""
    names = [key.name for key in view.keying.columns]
    ends = view.progress.joint.ends if view.progress.joint is not None else ()
    wanted = ends or [name for name in names if name in view.progress.times][:1]
    return tuple((names.index(name), view.progress.times[name]) for name in wanted)


class PendingTable:
    """The pending keys in files of a view's table; the last line of a key counts."""

    def __init__(self, keys: tuple[Field, ...], ends: tuple[tuple[int, int], ...], paths: list[str]) -> None:
        """`ends`: the key columns that are times, with their offsets to the end of the window."""
        self._keys = keys
        self._duck: duckdb.DuckDBPyConnection = connect()
        self._names = [key.name for key in keys]
        self._columns = ", ".join([*self._names, *(field.name for field in STATE)])
        found = [f"{_micros(keys[at])} + {shift}" for at, shift in ends]
        end = f"greatest({', '.join(found)})" if len(found) > 1 else found[0] if found else "CAST(NULL AS BIGINT)"
        self._end = f"CAST({end} AS BIGINT)"
        typed = ", ".join(f"CAST({f.name} AS {duckdb_type(f.type)}) AS {f.name}" for f in (*keys, *STATE))
        partition = f"PARTITION BY {', '.join(self._names)} " if keys else ""
        self._duck.execute(
            f"CREATE TEMP TABLE {_TABLE} AS SELECT {typed}, {self._end} AS ends"
            f" FROM (SELECT *, row_number() OVER ({partition}ORDER BY _version DESC) AS __n"
            f" FROM read_parquet({path_list(paths)}, union_by_name = true)) WHERE __n = 1 AND {WAITS}"
        )
        self._schema = self._duck.sql(f"SELECT {self._columns} FROM {_TABLE} LIMIT 0").to_arrow_table().schema

    def close(self) -> None:
        self._duck.close()

    def __len__(self) -> int:
        return int(self._rows_of("SELECT count(*) FROM pending")[0][0])

    def of(self, keys: Iterable[Key]) -> dict[Key, Pending]:
        given = list(keys)
        if not given:
            return {}
        if not self._keys:  # the only key has no columns
            return self.everything()
        with self._given(given):
            return self._found(f"WHERE {_IS_GIVEN} {self._match()})")

    def touched(self, now: int, after: int | None) -> dict[Key, Pending]:
        return self._found(f"WHERE {_fires(now, after)}")

    def firing(self, now: int, after: int | None) -> int:
        """The number of keys that `touched` returns."""
        return int(self._rows_of(f"SELECT count(*) FROM {_TABLE} p WHERE {_fires(now, after)}")[0][0])

    def everything(self) -> dict[Key, Pending]:
        return self._found("")

    def update(self, changed: Mapping[Key, Pending]) -> None:
        if not changed:
            return
        rows = [(*key, each.records, each.deadline, each.armed, each.event_time) for key, each in changed.items()]
        with self._given(rows, whole=True):
            self._duck.execute(f"DELETE FROM {_TABLE} p USING {_GIVEN} g WHERE {self._match()}")
            self._duck.execute(f"INSERT INTO {_TABLE} SELECT {self._columns}, {self._end} FROM {_GIVEN} WHERE {WAITS}")

    def earliest(self) -> int | None:
        return self._first("ends")

    def due(self, now: int) -> bool:
        first = self._first("deadline")
        return first is not None and first <= now

    def ends(self, before: int | None, after: int, but: Collection[Key]) -> Counter[int]:
        since = "" if before is None else f" AND ends > {before}"
        counted = f"SELECT ends, count(*) FROM {_TABLE} p WHERE armed AND ends <= {after}{since}"
        counts = Counter(dict(self._rows_of(f"{counted} GROUP BY ends")))
        if but:
            with self._given(but):
                counts.subtract(dict(self._rows_of(f"{counted} AND {_IS_GIVEN} {self._match()}) GROUP BY ends")))
        return +counts

    def _first(self, column: str) -> int | None:
        found: int | None = self._rows_of(f"SELECT min({column}) FROM {_TABLE}")[0][0]
        return found

    @contextmanager
    def _given(self, rows: Collection[tuple[Any, ...]], *, whole: bool = False) -> Iterator[None]:
        """Keys, or whole rows, as a relation."""
        import pyarrow as pa

        schema = self._schema if whole else pa.schema(list(self._schema)[: len(self._keys)])
        arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
        self._duck.register(_GIVEN, pa.Table.from_arrays(arrays, schema=schema))
        try:
            yield
        finally:
            self._duck.unregister(_GIVEN)

    def _match(self) -> str:
        return " AND ".join(f"g.{name} IS NOT DISTINCT FROM p.{name}" for name in self._names) or "true"

    def _found(self, where: str) -> dict[Key, Pending]:
        table = self._duck.sql(f"SELECT {self._columns} FROM {_TABLE} p {where}").to_arrow_table()
        width = len(self._keys)
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return {hashable(row[:width]): Pending(*row[width:]) for row in rows}

    def _rows_of(self, text: str) -> list[tuple[Any, ...]]:
        return self._duck.execute(text).fetchall()


def _fires(now: int, after: int | None) -> str:
    reached = "" if after is None else f" OR (armed AND coalesce(ends, event_time) <= {after})"
    return f"deadline <= {now}{reached}"


def _micros(key: Field) -> str:
    """A key in microseconds if it is a time; a number is unchanged."""
    return f"epoch_us({key.name})" if key.type.startswith("timestamp") else key.name
