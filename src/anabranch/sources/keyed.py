"""A table of a database as a stream, by a key that only grows: the position is the last key that was taken.

A stretch never ends among rows with the same key, so a key may come more than once. What must not happen is that a row
appears with a key that was passed: rows that are committed late need `lag`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError, did_you_mean
from anabranch.sources import secrets
from anabranch.sources.base import CORRUPT, ORIGIN, PARTITION, BadRow, Source, Stretch
from anabranch.sources.database import (
    INTEGERS,
    READING_OPTIONS,
    RemoteColumn,
    check_relation,
)
from anabranch.sources.database_server import MOST_PIECES, SERVER_OPTIONS, ServerTable, read_pieces
from anabranch.sources.lookup import ASKING_OPTIONS, arrow_schema, check_asking
from anabranch.sources.registry import Kind, Opening, Option, WrongOption
from anabranch.sources.schemas import SchemaChange, compare
from anabranch.sources.wanted import EVERYTHING, Wanted
from anabranch.sql.durations import parse_duration
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: What a run takes at the most where nobody says so, and what is read on the driver.
MOST_ROWS, NEAR_ROWS = 1_000_000, 200_000
#: What a row is taken to weigh, in bytes for each column.
_WEIGHT = 12


class KeyedSource(Source):
    """The rows of a table, in the order of a key."""

    def __init__(
        self,
        make: Callable[[tuple[Field, ...] | None], ServerTable],
        opening: Opening,
    ) -> None:
        self._make = make
        self.table = make(opening.fields)
        self.whole = make(None)  # with all columns: the key need not be among those of the stream
        self.declared = opening.fields
        self.spark = opening.spark
        self.scratch = opening.scratch
        self.skips_gaps = opening.skips_gaps
        self.inferred = opening.inferred
        self.fills = opening.on_schema_change == "ignore"  # whether columns that are gone are NULL
        self._key: RemoteColumn | None = None
        self._read: tuple[Any, pa.Table] | None = None  # the rows of the last stretch

    # ---- the key

    @property
    def key(self) -> RemoteColumn:
        if self._key is None:
            columns = self.whole.columns()
            name = self.whole.options.get("key") or self.whole.primary_key()
            if name is None:
                raise SourceError(
                    f"a stream of a table needs a key, and {self.whole.called} has no primary key of one column",
                    hint="key => 'id' names a column that only grows",
                )
            if name not in columns:
                hint = did_you_mean(str(name), columns)
                raise WrongOption("key", f"{self.whole.called} has no column {name}", hint=hint)
            if columns[name].type not in (*INTEGERS, "timestamp"):
                raise WrongOption("key", f"{name} is a {columns[name].type.upper()}", hint="a whole number or a time")
            self._key = columns[name]
        return self._key

    def _lag(self) -> Any:
        """The last key that may be taken now, as SQL; None if any may."""
        given = self.whole.options.get("lag")
        if given is None:
            return None
        if self.key.type == "timestamp":
            length = parse_duration(str(given))
            if length is None:
                raise WrongOption("lag", f"lag must be a length of time, not {given!r}", hint="as in '5 seconds'")
            return datetime.now(timezone.utc) - timedelta(microseconds=length)
        if not str(given).isdigit():
            raise WrongOption("lag", f"lag must be a number of keys, not {given!r}", hint="as in '100'")
        newest = self.table.rows(f"SELECT max({self.key.read}) FROM {self.whole.relation}", [])[0][0]
        return None if newest is None else newest - int(given)

    def _from_json(self, value: Any) -> Any:
        if value is None or self.key.type != "timestamp":
            return value
        return datetime.fromisoformat(value)

    def _to_json(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            return int(value)
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        return zoned.astimezone(timezone.utc).isoformat()

    # ---- the protocol of sources

    def fields(self) -> tuple[Field, ...]:
        _ = self.key
        return self.table.fields()

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        low = None if position is None else position["key"]
        tests, values = self._between(low, None)
        newest = self._lag()
        if newest is not None:
            tests.append(f"{self.key.read} <= {self.table.mark(self.key)}")
            values.append(self.table.parameter(self.key, newest))
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        some = (
            f"SELECT {self.key.read} AS k FROM {self.whole.relation}{where or f' WHERE {self.key.read} IS NOT NULL'}"
            f" ORDER BY {self.key.read} LIMIT {int(max_rows or MOST_ROWS)}"
        )
        high, count = self.table.rows(f"SELECT max(k), count(*) FROM ({some}) AS s", values)[0]
        if not count:
            return self._gap(low)
        if self.fills and self.declared is not None:
            there = {field.name.lower() for field in self._there()}
            self.table = self._make(tuple(field for field in self.declared if field.name.lower() in there))
        ends = [low, self._to_json(high), int(count)]
        return Stretch({"key": ends[1]}, ends, int(count) * _WEIGHT * len(self.table.fields()))

    def _gap(self, low: Any) -> Stretch | None:
        """Nothing comes behind a key: whether that is so because the table was truncated, or is an older one."""
        if low is None:
            return None
        newest = self.table.rows(f"SELECT max({self.key.read}) FROM {self.whole.relation}", [])[0][0]
        at = None if newest is None else self._to_json(newest)
        if newest is not None and self._from_json(at) >= self._from_json(low):
            return None
        has = "the table is empty" if at is None else f"its last key is {at}"
        gone = f"the rows up to key {low}, which was taken last, are gone: {has}"
        if not self.skips_gaps:
            hint = "keep the row with the largest key; ON GAP SKIP in CREATE STREAM continues after the present rows"
            raise SourceError(f"{self.table.place}.{self.table.called}: {gone}", hint=hint)
        bad = BadRow(f"{self.table.place}.{self.table.called}", low if isinstance(low, int) else None, gone, None)
        return Stretch({"key": at}, [at, at, 0], 0, (bad,))

    def schema_changes(self, captured: Any) -> list[SchemaChange]:
        found = compare(self.table.called, self._there(), self.declared or (), inferred=self.inferred)
        return [found] if found is not None else []

    def _there(self) -> list[Field]:
        """The columns of the table as it is now."""
        return [Field(column.name, column.type) for column in self.whole.natural_columns()]

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        if captured[2] > NEAR_ROWS:
            return None
        rows = self._rows(captured)
        return rows if columns is None else rows.select([name for name in rows.column_names if name in columns])

    def read(self, captured: list[Any]) -> DataFrame:
        frames = [self._frame(each) for each in captured]
        whole = frames[0] if frames else self.spark().createDataFrame([], self._schema())
        for frame in frames[1:]:
            whole = whole.unionAll(frame)
        origin = f"{self.table.place}.{self.table.called}".replace("\\", "\\\\").replace("'", "\\'")
        return whole.selectExpr(
            "*", f"CAST(NULL AS STRING) AS {CORRUPT}", f"'{origin}' AS {ORIGIN}", f"'' AS {PARTITION}"
        )

    def committed(self, stretch: Stretch) -> None:
        self._read = None

    # ---- rows

    def _frame(self, captured: Any) -> DataFrame:
        if captured[2] <= NEAR_ROWS:
            return self.spark().createDataFrame(self._rows(captured))
        columns = [field.name for field in self.table.fields()]
        pieces = []
        for low, high in self._cuts(captured):
            tests, values = self._between(low, high)
            text, _ = self.table.question(EVERYTHING, " AND ".join(tests))
            pieces.append((text, values))
        paths = read_pieces(self.spark(), self.table, pieces, columns, self.scratch())
        return self.spark().read.schema(self._schema()).parquet(*paths)

    def _schema(self) -> str:
        return ", ".join(f"{quote_name(field.name)} {field.type}" for field in self.declared or self.table.fields())

    def _rows(self, captured: Any) -> pa.Table:
        if self._read is None or self._read[0] != captured:
            tests, values = self._between(captured[0], captured[1])
            text, _ = self.table.question(Wanted(), " AND ".join(tests))
            found = self.table.rows(f"{text} ORDER BY {self.key.read}", values)
            rows = self.table.arrow([field.name for field in self.table.fields()], found)
            self._read = captured, self._filled(rows)
        return self._read[1]

    def _filled(self, rows: pa.Table) -> pa.Table:
        """Rows with NULL for the columns of the stream that the table has lost."""
        import pyarrow as pa

        there = {name.lower(): name for name in rows.column_names}
        if self.declared is None or len(there) == len(self.declared):
            return rows
        schema = arrow_schema(self.declared)
        columns = [
            rows.column(there[field.name.lower()]) if field.name.lower() in there else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def _cuts(self, captured: Any) -> Sequence[tuple[Any, Any]]:
        """A large stretch in pieces that tasks read at the same time."""
        low, high, count = captured
        if self.key.type == "timestamp":
            return [(low, high)]
        if low is None:
            low = self.table.rows(f"SELECT min({self.key.read}) FROM {self.whole.relation}", ())[0][0] - 1
        parts = max(1, min(MOST_PIECES, count // NEAR_ROWS))
        ends = [*(low + (high - low) * part // parts for part in range(parts)), high]
        return list(pairwise(ends))

    def _between(self, low: Any, high: Any) -> tuple[list[str], list[Any]]:
        """Keys above the one and up to the other, both as in a position."""
        tests, values = [], []
        for sign, end in ((">", low), ("<=", high)):
            if end is not None:
                tests.append(f"{self.key.read} {sign} {self.table.mark(self.key)}")
                values.append(self.table.parameter(self.key, self._from_json(end)))
        return tests, values


def keyed_stream(kind: type[ServerTable]) -> Callable[[Opening], KeyedSource]:
    """How a stream over tables of this kind is opened."""

    def opened(opening: Opening) -> KeyedSource:
        options = secrets.resolve(opening.options)
        return KeyedSource(lambda fields: kind(options, fields), opening)

    return opened


def database_kind(table: type[ServerTable], port: Option, doc: str, driver: str) -> Kind:
    """The kind of the tables of a database on the network: in queries, as lookups, and as streams by a key."""

    def check(options: Mapping[str, Any]) -> None:
        check_relation(options)
        check_asking(options)

    name = table.kind
    return Kind(
        name=name,
        doc=doc,
        example=f"{name}(host => 'db', database => 'shop', user => 'me', password => env('PW'), table => 'orders')",
        options=(*SERVER_OPTIONS, port, *READING_OPTIONS, *ASKING_OPTIONS),
        table=table,
        stream=keyed_stream(table),
        gaps=True,
        on_schema_change=("ignore",),
        check=check,
        modules=(driver,),
        extra=name,
        abilities=(
            "read by key",
            "read by comparison",
            "filters, columns, limits, joins and aggregates go to the server",
        ),
    )
