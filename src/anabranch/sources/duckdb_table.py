"""A table of a DuckDB database: `duckdb(path => 'crm.duckdb', table => 'customers')`.

Names are quoted and keys are bound. Each request has a connection of its own that can read this file, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.duck import quoted
from anabranch.errors import SourceError, did_you_mean
from anabranch.sources.lookup import ASKING_OPTIONS, Unreachable, arrow_schema, check_asking, chosen
from anabranch.sources.registry import Kind, Option, WrongOption
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


class DuckDbTable:
    """A table or view of a database file."""

    def __init__(self, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> None:
        self.path = str(options["path"])
        self.table = str(options["table"])
        self.schema = str(options.get("schema", "main"))
        self._declared = declared
        self._fields: tuple[Field, ...] | None = None
        self._outside: dict[str, str] = {}  # the types that columns have there

    def fields(self) -> tuple[Field, ...]:
        if self._fields is None:
            if not os.path.exists(self.path):
                raise WrongOption("path", f"there is no file {self.path}", hint="a relative path starts here")
            with self._open() as database:
                own = "database_name = current_database() AND schema_name = ?"
                found = database.execute(
                    f"SELECT column_name, data_type FROM duckdb_columns() WHERE {own} AND table_name = ?"
                    " ORDER BY column_index",
                    [self.schema, self.table],
                ).fetchall()
                if not found:
                    text = f"SELECT DISTINCT table_name FROM duckdb_columns() WHERE {own}"
                    tables = [row[0] for row in database.execute(text, [self.schema]).fetchall()]
                    hint = did_you_mean(self.table, tables)
                    raise WrongOption("table", f"{self.path} has no table {self.table}", hint=hint)
            self._outside = dict(found)
            self._fields = chosen([Field(name, spark_type(type)) for name, type in found], self._declared)
        return self._fields

    def size(self) -> int | None:
        with self._open() as database:
            row = database.execute(f"SELECT count(*) FROM {self._name}").fetchone()
            return int(row[0]) if row is not None else None

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        import pyarrow as pa

        types = {field.name: field for field in self.fields()}
        own = [Field(f"k{index}", types[name].type) for index, name in enumerate(by)]
        asked = pa.Table.from_arrays(
            [pa.array([key[index] for key in keys], each.type) for index, each in enumerate(arrow_schema(own))],
            schema=arrow_schema(own),
        )
        same = " AND ".join(f"{self._value(types[name])} = keys.k{index}" for index, name in enumerate(by))
        return self._rows(columns, f" SEMI JOIN keys ON {same}", asked)

    def read(self) -> pa.Table:
        return self._rows(tuple(field.name for field in self.fields()))

    def _rows(self, columns: Sequence[str], condition: str = "", keys: pa.Table | None = None) -> pa.Table:
        import pyarrow as pa

        types = {field.name: field for field in self.fields()}
        fields = [types[name] for name in columns]
        text = f"SELECT {', '.join(map(self._value, fields))} FROM {self._name} AS t{condition}"
        with self._open() as database:
            if keys is not None:
                database.register("keys", keys)
            found = database.sql(text).to_arrow_table()
            try:
                return found.rename_columns([field.name for field in fields]).cast(arrow_schema(fields))
            except pa.ArrowException as error:
                raise self._wrong(error) from error

    @property
    def _name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def _value(self, field: Field) -> str:
        """A column as one of a Spark type; a time without a zone is in UTC."""
        name = f"t.{quoted(field.name)}"
        if field.type == "timestamp" and self._outside[field.name] == ZONED:
            return name
        type = {"string": "VARCHAR", "binary": "BLOB"}.get(field.type, field.type.upper())
        return f"CAST({name} AS {type})"

    def _wrong(self, error: Exception) -> SourceError:
        hint = "give columns other types: CREATE TABLE t (a STRING, ...) FROM duckdb(...)"
        return SourceError(f"{self.path}: {str(error).splitlines()[0]}", hint=hint)

    @contextmanager
    def _open(self) -> Iterator[duckdb.DuckDBPyConnection]:
        import duckdb

        try:
            # A view in the file must not read others.
            database = duckdb.connect(self.path, read_only=True, config={"enable_external_access": "false"})
            try:
                database.execute("SET TimeZone = 'UTC'")
                yield database
            finally:
                database.close()
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            reason = f"{self.path}: {str(error).splitlines()[0]}"
            if "not a valid DuckDB" in reason:
                raise SourceError(reason, hint="name a file that DuckDB wrote") from error
            raise Unreachable(reason, hint="whoever writes to it has to close it first") from error
        except duckdb.Error as error:
            raise self._wrong(error) from error


def spark_type(type: str) -> str:
    """The type of a column by DuckDB's; what Spark has no plain type for is a text.

    >>> [spark_type(each) for each in ("INTEGER", "DECIMAL(10,2)", "UBIGINT", "VARCHAR", "INTEGER[]")]
    ['int', 'decimal(10,2)', 'decimal(20,0)', 'string', 'string']
    """
    exact = type.startswith("DECIMAL(") and type.endswith(")")
    return type.lower() if exact else _TYPES.get(type, "string")


KINDS = (
    Kind(
        name="duckdb",
        doc="a table or view of a DuckDB file",
        example="duckdb(path => 'crm.duckdb', table => 'customers')",
        options=(
            Option(name="path", doc="the database file", required=True),
            Option(name="table", doc="a table or view in it", required=True),
            Option(name="schema", doc="its schema", default="main"),
            *ASKING_OPTIONS,
        ),
        table=DuckDbTable,
        check=check_asking,
        abilities=("read by key",),
    ),
)
