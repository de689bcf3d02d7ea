"""Tables of a Postgres database: `postgres(host => '...', database => '...', user => '...', table => 'orders')`.

psycopg 3 is the driver: values go to the server apart from the statement. A session speaks UTC and can only read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.database import (
    INTEGERS,
    Cursor,
    RemoteColumn,
    Row,
    Sql,
    decimal_type,
    name_parts,
)
from anabranch.sources.database_server import IS_IT_THERE, ServerTable, port_option
from anabranch.sources.keyed import database_kind
from anabranch.sources.lookup import Unreachable
from anabranch.sources.wanted import Order, Test

if TYPE_CHECKING:
    import psycopg

PORT = 5432
#: How long to wait for a server, in seconds.
PATIENCE = 10
#: Types that Spark has, by their number in Postgres; every other one is read as its text.
_TYPES = {
    16: "boolean", 17: "binary", 20: "bigint", 21: "smallint", 23: "int", 25: "string", 700: "float", 701: "double",
    1043: "string", 1082: "date", 1114: "timestamp", 1184: "timestamp",
}  # fmt: skip
_NUMERIC, _WITHOUT_ZONE, _UUID = 1700, 1114, 2950
#: A numeric without a precision has any; a value that does not fit in here is refused.
_ANY_NUMERIC = "decimal(38,18)"
_CASTS = {
    "boolean": "boolean", "binary": "bytea", "string": "text", "float": "float4", "double": "float8", "date": "date",
    "timestamp": "timestamptz", **dict.fromkeys(INTEGERS, "int8"),
}  # fmt: skip
_START = (
    "SET TimeZone TO 'UTC'; SET DateStyle TO 'ISO'; SET bytea_output TO 'hex'; SET extra_float_digits TO 1;"
    " SET client_encoding TO 'UTF8'"
)


#: A table, and its columns where texts that are equal are the same; Postgres 11 had no others.
_TABLE = (
    "SELECT t, ARRAY(SELECT a.attname::text FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation"
    " WHERE a.attrelid = t AND coalesce(to_jsonb(c)->>'collisdeterministic', 'true') = 'true')"
    " FROM (SELECT to_regclass(%s) AS t) AS named"
)


class PostgresTable(ServerTable):
    kind = "postgres"
    quote = '"'
    default_port = PORT
    most_parameters = 30_000
    rows_word = "VALUES "

    @contextmanager
    def open(self, *, streaming: bool = False) -> Iterator[Cursor]:
        with connected(self.options, self.error_text) as database:
            database.execute("SET default_transaction_read_only TO on")
            if not streaming:
                yield database.cursor()
                return
            with database.transaction(), database.cursor("anabranch") as cursor:
                yield cursor

    def natural_columns(self) -> list[RemoteColumn]:
        import psycopg

        with self.asking() as cursor:
            assert isinstance(cursor, psycopg.Cursor)
            if "table" in self.options:
                self._check_table(cursor)
            cursor.execute(f"SELECT * FROM {self.relation} LIMIT 0", ())
            return [self._natural(column) for column in cursor.description or ()]

    _searchable: frozenset[str] = frozenset()  # columns that starts_with takes as they are; of a query nobody knows

    def _check_table(self, cursor: Cursor) -> None:
        cursor.execute(_TABLE, [self.plain_name])
        ((found, names),) = cursor.fetchall()
        self._searchable = frozenset(names)
        if found is None:
            cursor.execute(
                "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN relname ELSE nspname || '.' || relname END"
                " FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN"
                " ('r', 'p', 'v', 'm', 'f') AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
            )
            raise self.no_table(row[0] for row in cursor.fetchall())

    @property
    def plain_name(self) -> str:
        """The name of the table as Postgres reads it in a text."""
        return ".".join(self.quoted(part).replace("%%", "%") for part in name_parts(self.called))

    def _natural(self, column: psycopg.Column) -> RemoteColumn:
        read = f"{self.alias}.{self.quoted(column.name)}"
        type, exact = _TYPES.get(column.type_code), True
        if column.type_code == _NUMERIC:
            exact = column.precision is not None and column.scale is not None
            type = decimal_type(column.precision or 0, column.scale or 0) if exact else _ANY_NUMERIC
        outside = {_WITHOUT_ZONE: "timestamp", _UUID: "uuid"}.get(column.type_code, "")
        if type == _ANY_NUMERIC and not exact:
            outside = "numeric"
        if type is None:
            return RemoteColumn(column.name, "string", f"{read}::text", outside)
        return RemoteColumn(column.name, type, read, outside)

    def as_text(self, column: RemoteColumn) -> str:
        return f"{column.read.removesuffix('::text')}::text"

    def estimate(self, cursor: Cursor) -> int | None:
        cursor.execute("SELECT reltuples::int8 FROM pg_class WHERE oid = to_regclass(%s)", [self.plain_name])
        return int(cursor.fetchall()[0][0])

    def primary_key(self) -> str | None:
        if "query" in self.options:
            return None
        found = self.rows(
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            " AND a.attnum = ANY(i.indkey) WHERE i.indisprimary AND i.indrelid = to_regclass(%s)",
            [self.plain_name],
        )
        return str(found[0][0]) if len(found) == 1 else None

    # ---- comparisons

    def mark(self, column: RemoteColumn) -> str:
        if column.outside:
            return f"%s::{column.outside}"
        return f"%s::{_CASTS.get(column.type, 'numeric')}"

    def parameter(self, column: RemoteColumn, value: Any) -> Any:
        if column.outside == "timestamp" and isinstance(value, datetime):
            return value.astimezone(timezone.utc).replace(tzinfo=None)
        return value

    def key_sql(self, column: RemoteColumn, values: Sequence[Any]) -> str:
        return column.read.removesuffix("::text") if column.outside == "uuid" else column.read

    def can_equal(self, column: RemoteColumn, value: Any) -> bool:
        if isinstance(value, str) and "\0" in value:
            return False
        return column.outside != "uuid" or _is_uuid(value)

    def among(self, columns: Sequence[RemoteColumn], keys: Sequence[Row]) -> Sql:
        if len(columns) > 1:
            return super().among(columns, keys)
        # A list is one value, which costs client and server half of what a value a key does.
        (column,) = columns
        values = [self.parameter(column, value) for (value,) in keys]
        return f"{self.key_sql(column, values)} = ANY({self.mark(column)}[])", [values]

    def test(self, column: RemoteColumn, test: Test, *, exact: bool) -> Sql | None:
        if not column.comparable:
            return None
        if test.sign == "IS TRUE":
            return column.read, []
        if column.type == "string":
            return self._text_test(column, test, exact=exact)
        if test.sign == "STARTS WITH" or column.type in ("binary", "float"):
            return None
        values = [self.parameter(column, value) for value in test.values]
        marks = ", ".join([self.mark(column)] * len(values))
        return f"{column.read} {test.sign} {f'({marks})' if test.sign == 'IN' else marks}", values

    def _text_test(self, column: RemoteColumn, test: Test, *, exact: bool) -> Sql | None:
        """Texts compare byte by byte in Spark; an index is of use where the order of the column does no harm."""
        if any("\0" in value for value in test.values):
            return None
        marks = ", ".join(["%s::text"] * len(test.values))
        if test.sign == "STARTS WITH":
            text = column.read if column.name in self._searchable else _bytewise(column)
            return f"starts_with({text}, {marks})", list(test.values)
        marks = f"({marks})" if test.sign == "IN" else marks
        if test.sign in ("=", "IN") and not exact:
            if column.outside == "uuid" and all(map(_is_uuid, test.values)):
                return f"{self.key_sql(column, test.values)} {test.sign} {marks.replace('::text', '::uuid')}", list(
                    test.values
                )
            return f"{column.read} {test.sign} {marks}", list(test.values)
        return f"{_bytewise(column)} {test.sign} {marks}", list(test.values)

    def exact_sql(self, column: RemoteColumn) -> str | None:
        if not column.comparable or column.type in ("binary", "float", "double") or column.outside == "numeric":
            return None
        return _bytewise(column) if column.type == "string" else column.read

    def order_sql(self, column: RemoteColumn, order: Order) -> str | None:
        if not column.comparable or column.type in ("binary", "float", "double"):
            return None
        text = _bytewise(column) if column.type == "string" else column.read
        return f"{text} {'DESC' if order.descending else 'ASC'} NULLS {'FIRST' if order.nulls_first else 'LAST'}"

    def search_sql(self, comparisons: Sequence[tuple[RemoteColumn, str]], keys: Sequence[tuple[int, Row]]) -> Sql:
        tests, casts = [], []
        for index, (column, sign) in enumerate(comparisons):
            example = keys[0][1][index]
            casts.append(_cast_of(example))
            tests.append(_search_test(column, sign, f"k.k{index + 1}", example))
        marks = ", ".join(["%s::int8", *(f"%s::{cast}" for cast in casts)])
        names = ", ".join(f"k{index}" for index in range(len(casts) + 1))
        rows = ", ".join([f"({marks})"] * len(keys))
        text = f"FROM (VALUES {rows}) AS k({names}) JOIN {self.relation} ON {' AND '.join(tests)}"
        signs = [sign for _, sign in comparisons]
        return text, [value for place, key in keys for value in (place, *map(_without_zero, key, signs))]


def _search_test(column: RemoteColumn, sign: str, key: str, example: Any) -> str:
    """`column sign key`, or something that is true of more rows."""
    there = f"{column.read} IS NOT NULL"
    if sign == "<>" or not column.comparable or _class_of(column.type) != _class_of_value(example):
        return there
    if column.type != "string":
        return f"{column.read} {sign} {key}"
    if sign == "LIKE":
        return f"{_bytewise(column)} LIKE {key}"
    if sign == "LIKED BY":
        return f"{key} LIKE {_bytewise(column)}"
    return f"{_bytewise(column)} {'<=' if sign == '<' else sign} {key}"


def _bytewise(column: RemoteColumn) -> str:
    return f'({column.read}) COLLATE "C"'


def _class_of(type: str) -> str:
    if type in ("date", "timestamp"):
        return "time"
    return type if type in ("string", "boolean", "binary") else "number"


def _class_of_value(value: Any) -> str:
    for classes, name in (((bool,), "boolean"), ((str,), "string"), ((bytes,), "binary"), ((date,), "time")):
        if isinstance(value, classes):
            return name
    return "number"


def _cast_of(value: Any) -> str:
    for kind, name in (
        (bool, "boolean"), (int, "int8"), (float, "float8"), (Decimal, "numeric"), (str, "text"), (bytes, "bytea"),
        (datetime, "timestamptz"), (date, "date"),
    ):  # fmt: skip
        if isinstance(value, kind):
            return name
    raise SourceError(f"a table of Postgres cannot be looked up by {value!r}")


def _without_zero(value: Any, sign: str) -> Any:
    """Postgres has no zero byte in texts. The text before one is less than all with it, and greater than all else; a
    pattern takes any byte for another."""
    if not isinstance(value, str) or "\0" not in value:
        return value
    return value.replace("\0", "\1") if sign == "LIKED BY" else value.partition("\0")[0]


def _is_uuid(value: str) -> bool:
    try:
        return str(uuid.UUID(value)) == value
    except ValueError:
        return False


@contextmanager
def connected(options: Mapping[str, Any], error_text: Any) -> Iterator[psycopg.Connection[Any]]:
    """A connection by the options of a source or sink; what goes wrong is told without the password."""
    import psycopg

    try:
        with psycopg.connect(
            host=options.get("host", "localhost"), port=options.get("port", PORT), dbname=options["database"],
            user=options["user"], password=options.get("password"), sslmode=options.get("tls", "prefer"),
            sslrootcert=options.get("ca"),
            connect_timeout=PATIENCE, application_name="anabranch", autocommit=True,
            prepare_threshold=None,  # a table may be altered while a connection is kept
        ) as database:  # fmt: skip
            database.execute(_START)
            yield database
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        words = ("authentication failed", "no password supplied")
        refused = (error.sqlstate or "").startswith("28") or any(each in str(error) for each in words)
        if refused or "does not exist" in str(error):
            raise SourceError(error_text(error), hint="check host, database, user and password") from None
        raise Unreachable(error_text(error), hint=IS_IT_THERE) from None
    except psycopg.errors.UndefinedTable as error:
        hint = "the table was changed outside; put it back, or recreate the table and its views"
        raise SourceError(error_text(error), hint=hint) from None
    except psycopg.DataError as error:
        raise SourceError(error_text(error), hint="CREATE TABLE t (c STRING, ...) reads a column as its text") from None
    except psycopg.Error as error:
        raise SourceError(error_text(error)) from None


PORT_OPTION = port_option(PORT)
KINDS = (database_kind(PostgresTable, PORT_OPTION, "a table, view or query of a Postgres database", "psycopg"),)
