"""A table of a DuckDB database: `duckdb(path => 'crm.duckdb', table => 'customers')`.

Names are quoted and values are bound. Each question has a connection of its own that can read this file alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from anabranch.duck import MEMORY
from anabranch.errors import SourceError
from anabranch.sources.database import BATCH_ROWS, INTEGERS, RemoteColumn, Row, Sql
from anabranch.sources.database_file import FileTable, file_kind
from anabranch.sources.lookup import Unreachable, arrow_schema
from anabranch.sources.registry import Option
from anabranch.sources.wanted import Order, Test
from anabranch.types import Field

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

ZONED = "TIMESTAMP WITH TIME ZONE"
_TYPES = {
    "BOOLEAN": "boolean", "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint",
    "UTINYINT": "smallint", "USMALLINT": "int", "UINTEGER": "bigint", "UBIGINT": "decimal(20,0)",
    "HUGEINT": "decimal(38,0)", "UHUGEINT": "decimal(38,0)", "FLOAT": "float", "DOUBLE": "double", "DATE": "date",
    "BLOB": "binary", "TIMESTAMP": "timestamp", "TIMESTAMP_S": "timestamp", "TIMESTAMP_MS": "timestamp",
    "TIMESTAMP_NS": "timestamp", ZONED: "timestamp",
}  # fmt: skip

#: Longer lists are one value.
MOST_MARKS = 100
#: What a key has to be for its comparison with a column to be said; any row may be found for others.
_SIGNS = ("=", "<", "<=", ">", ">=")
_VALUES: dict[str, type] = {
    **dict.fromkeys(INTEGERS, int), "string": str, "double": float, "date": date, "timestamp": datetime,
}  # fmt: skip


class DuckDbTable(FileTable):
    """A table or view of a database file."""

    kind = "duckdb"
    quote = '"'
    most_parameters = 900  # nor does an expression of more than 1,000 levels fit into a statement

    @property
    def schema(self) -> str:
        return str(self.options.get("schema", "main"))

    @property
    def relation(self) -> str:
        return f"{self.quoted(self.schema)}.{self.quoted(self.called)} AS {self.alias}"

    def natural_columns(self) -> list[RemoteColumn]:
        self.check_file()
        own = "database_name = current_database() AND schema_name = ?"
        with self.open() as cursor:
            cursor.execute(
                f"SELECT column_name, data_type FROM duckdb_columns() WHERE {own} AND table_name = ?"
                " ORDER BY column_index",
                (self.schema, self.called),
            )
            found = cursor.fetchall()
            if not found:
                text = f"SELECT DISTINCT table_name FROM duckdb_columns() WHERE {own}"
                cursor.execute(text, (self.schema,))
                raise self.no_table(name for (name,) in cursor.fetchall())
        return [
            RemoteColumn(name, spark_type(type), self._read(name, spark_type(type), type), type) for name, type in found
        ]

    def _as(self, column: RemoteColumn, type: str) -> RemoteColumn:
        if type == column.type:
            return column
        return RemoteColumn(column.name, type, self._read(column.name, type, ""))

    def _read(self, name: str, type: str, outside: str) -> str:
        """A column as one of a Spark type. Texts are compared by their bytes, whatever the order of the column."""
        read = f"{self.alias}.{self.quoted(name)}"
        if outside in (_duckdb_type(type), ZONED):
            return read
        return f"CAST({read} AS {_duckdb_type(type)})"

    def value(self, value: Any, field: Field) -> Any:
        return value

    # ---- comparisons

    def mark(self, column: RemoteColumn) -> str:
        return f"CAST(? AS {ZONED if column.outside == ZONED else _duckdb_type(column.type)})"

    def parameter(self, column: RemoteColumn, value: Any) -> Any:
        if isinstance(value, datetime):
            zoned = value.astimezone(timezone.utc)
            return (zoned if column.outside == ZONED else zoned.replace(tzinfo=None)).isoformat(" ")
        return format(value, "f") if isinstance(value, Decimal) else value

    def test(self, column: RemoteColumn, test: Test, *, exact: bool) -> Sql | None:
        if column.type in ("binary", "float"):
            return None
        read = _bytewise(column)
        if test.sign == "IS TRUE":
            return read, []
        if len(test.values) > MOST_MARKS:
            return self.among([column], [(value,) for value in test.values])
        marks = ", ".join([self.mark(column)] * len(test.values))
        values = [self.parameter(column, value) for value in test.values]
        if test.sign == "STARTS WITH":
            return f"starts_with({read}, {marks})", values
        return f"{read} {test.sign} {f'({marks})' if test.sign == 'IN' else marks}", values

    def exact_sql(self, column: RemoteColumn) -> str | None:
        return None if column.type in ("binary", "float", "double") else _bytewise(column)

    def order_sql(self, column: RemoteColumn, order: Order) -> str | None:
        text = self.ordered_sql(column)
        if text is None:
            return None
        return f"{text} {'DESC' if order.descending else 'ASC'} NULLS {'FIRST' if order.nulls_first else 'LAST'}"

    def among(self, columns: Sequence[RemoteColumn], keys: Sequence[Row]) -> Sql:
        """A list of keys is one value a column, which is made quicker than one a key."""
        lists = [f"unnest(CAST(? AS {_key_type(column)}[]))" for column in columns]
        values = [[self.parameter(column, key[at]) for key in keys] for at, column in enumerate(columns)]
        return f"({', '.join(map(_bytewise, columns))}) IN (SELECT {', '.join(lists)})", values

    def search_sql(self, comparisons: Sequence[tuple[RemoteColumn, str]], keys: Sequence[tuple[int, Row]]) -> Sql:
        example = keys[0][1]
        said = {
            at: column
            for at, (column, sign) in enumerate(comparisons)
            if sign in _SIGNS and type(example[at]) is _VALUES.get(column.type)
        }
        tests = [
            f"{_bytewise(column)} {sign} k.k{at + 1}" if at in said else f"{column.read} IS NOT NULL"
            for at, (column, sign) in enumerate(comparisons)
        ]
        names = ", ".join(["k0", *(f"k{at + 1}" for at in said)])
        marks = ", ".join(["?", *(f"CAST(? AS {_key_type(column)})" for column in said.values())])
        rows = ", ".join([f"({marks})"] * len(keys))
        values: list[Any] = []
        for place, key in keys:
            values += [place, *(self.parameter(column, key[at]) for at, column in said.items())]
        return f"FROM (VALUES {rows}) AS k({names}) JOIN {self.relation} ON {' AND '.join(tests)}", values

    # ---- rows

    def answer(self, query: Sql, columns: Sequence[str]) -> pa.Table:
        with self.open() as cursor:
            return self._typed(cursor.table(query), columns)

    def batches(self, query: Sql, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self.open() as cursor:
            cursor.execute(*query)
            while (found := cursor.batch()) is not None:
                yield from self._typed(found, columns).to_batches()

    def _typed(self, found: pa.Table, columns: Sequence[str]) -> pa.Table:
        import pyarrow as pa

        types = {field.name: field for field in self.fields()}
        fields = [types[name] for name in columns]
        try:
            return found.rename_columns([field.name for field in fields]).cast(arrow_schema(fields))
        except pa.ArrowException as error:
            raise self._wrong(error) from error

    def _wrong(self, error: Exception) -> SourceError:
        hint = "give columns other types: CREATE TABLE t (a STRING, ...) FROM duckdb(...)"
        return SourceError(f"{self.path}: {str(error).splitlines()[0]}", hint=hint)

    @contextmanager
    def open(self, *, streaming: bool = False) -> Iterator[ArrowCursor]:
        import duckdb

        config: dict[str, str | bool | int | float | list[str]] = {
            "enable_external_access": "false",  # a view in the file must not read others
            "memory_limit": f"{MEMORY}B",
            "temp_directory": os.path.join(tempfile.gettempdir(), f"anabranch-spill-{os.getpid()}"),
        }
        try:
            database = duckdb.connect(self.path, read_only=True, config=config)
            try:
                database.execute("SET TimeZone = 'UTC'")
                yield ArrowCursor(database)
            finally:
                database.close()
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            reason = f"{self.path}: {str(error).splitlines()[0]}"
            if "not a valid DuckDB" in reason:
                raise SourceError(reason, hint="name a file that DuckDB wrote") from error
            raise Unreachable(reason, hint="close it in the process that writes to it") from error
        except duckdb.Error as error:
            raise self._wrong(error) from error


class ArrowCursor:
    """A cursor whose rows come by way of Arrow: days and times are whole numbers, as not all are days of Python's."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self.database = database
        self._reader: Any = None

    def execute(self, text: Any, values: Any = (), /) -> None:
        self._reader = self.database.sql(text, params=list(values)).to_arrow_reader(BATCH_ROWS)

    def table(self, query: Sql) -> pa.Table:
        text, values = query
        return self.database.sql(text, params=values).to_arrow_table()

    def batch(self) -> pa.Table | None:
        """Some rows; None behind the last."""
        import pyarrow as pa

        found = next((each for each in self._reader if each.num_rows), None)
        return None if found is None else pa.Table.from_batches([found])

    def fetchmany(self, size: int, /) -> list[Row]:
        found = self.batch()
        return [] if found is None else _rows(found)

    def fetchall(self) -> list[Row]:
        found: list[Row] = []
        while rows := self.fetchmany(BATCH_ROWS):
            found += rows
        return found


def _rows(found: pa.Table) -> list[Row]:
    import pyarrow as pa

    numbers = {pa.date32(): pa.int32()}
    columns = [
        column.cast(pa.int64() if pa.types.is_timestamp(column.type) else numbers.get(column.type, column.type))
        for column in found.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _bytewise(column: RemoteColumn) -> str:
    return f'{column.read} COLLATE "binary"' if column.outside == "VARCHAR" else column.read


def _key_type(column: RemoteColumn) -> str:
    """The type of keys that are compared with a column: whole numbers may be larger than its own."""
    if column.type in INTEGERS:
        return "BIGINT"
    return ZONED if column.outside == ZONED else _duckdb_type(column.type)


def _duckdb_type(type: str) -> str:
    names = {"string": "VARCHAR", "binary": "BLOB", "int": "INTEGER"}
    return names.get(type, type.upper())


def spark_type(type: str) -> str:
    """The type of a column by DuckDB's; what Spark has no plain type for is a text.

    >>> [spark_type(each) for each in ("INTEGER", "DECIMAL(10,2)", "UBIGINT", "VARCHAR", "INTEGER[]")]
    ['int', 'decimal(10,2)', 'decimal(20,0)', 'string', 'string']
    """
    exact = type.startswith("DECIMAL(") and type.endswith(")")
    return type.lower() if exact else _TYPES.get(type, "string")


KINDS = (
    file_kind(
        DuckDbTable,
        "a table or view of a DuckDB file",
        "duckdb(path => 'crm.duckdb', table => 'customers')",
        Option(name="schema", doc="its schema", default="main"),
    ),
)
