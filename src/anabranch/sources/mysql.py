"""Tables of a MySQL or MariaDB database: `mysql(host => '...', database => '...', user => '...', table => 'orders')`.

PyMySQL is the driver: plain Python, nothing to build. It writes values into statements itself, as literals of the
session's character set. A session speaks UTC and utf8mb4, and can only read.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.database import (
    Cursor,
    RemoteColumn,
    Row,
    Sql,
    decimal_type,
    name_parts,
    order_with_least_nulls,
)
from anabranch.sources.database_server import IS_IT_THERE, ServerTable, port_option
from anabranch.sources.keyed import database_kind
from anabranch.sources.lookup import Unreachable
from anabranch.sources.wanted import Order, Test

if TYPE_CHECKING:
    import pymysql

PORT = 3306
#: How long to wait for a server, in seconds.
PATIENCE = 10
#: Whole numbers by their number in the protocol, signed and unsigned.
_WHOLE = {
    1: ("tinyint", "smallint"), 2: ("smallint", "int"), 9: ("int", "int"), 3: ("int", "bigint"),
    8: ("bigint", "decimal(20,0)"), 13: ("int", "int"),
}  # fmt: skip
_DECIMALS, _BLOBS, _TEXTS = (0, 246), (249, 250, 251, 252), (15, 253, 254)
_SIMPLE = {4: "float", 5: "double", 10: "date", 7: "timestamp", 12: "timestamp", 16: "binary", 255: "binary"}
_UNSIGNED, _BINARY = 32, 63  # a flag, and the character set of bytes
_START = (
    "SET SESSION time_zone = '+00:00',"
    " sql_mode = replace(replace(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), 'PAD_CHAR_TO_FULL_LENGTH', '')",
    "SET SESSION TRANSACTION READ ONLY",
)
#: What the server says when it refuses, and when something is not there.
_REFUSED = (1044, 1045, 1049, 1698)
_NO_TABLE, _NO_COLUMN, _NO_PRIVILEGE = 1146, 1054, 1227


class MysqlTable(ServerTable):
    kind = "mysql"
    quote = "`"
    default_port = PORT
    most_parameters = 30_000

    @contextmanager
    def open(self, *, streaming: bool = False) -> Iterator[Cursor]:
        from pymysql.cursors import SSCursor

        with connected(self.options, self.error_text) as database:
            for statement in _START:
                database.query(statement)
            with database.cursor(SSCursor if streaming else None) as cursor:
                yield cursor

    def natural_columns(self) -> list[RemoteColumn]:
        with self.asking() as cursor:
            if "table" in self.options:
                self._check_table(cursor)
                self._unicode = self._unicode_columns(cursor)
            cursor.execute(f"SELECT * FROM {self.relation} LIMIT 0", ())
            result: Any = cursor
            return [self._natural(field) for field in result._result.fields]

    _unicode: frozenset[str] = frozenset()  # the columns that have any text; of a query nobody knows

    def _unicode_columns(self, cursor: Cursor) -> frozenset[str]:
        *schema, table = name_parts(self.called)
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE character_set_name = 'utf8mb4'"
            " AND table_schema = coalesce(%s, database()) AND table_name = %s",
            [schema[0] if schema else None, table],
        )
        return frozenset(str(row[0]) for row in cursor.fetchall())

    def _check_table(self, cursor: Cursor) -> None:
        *schema, table = name_parts(self.called)
        text = "SELECT table_name FROM information_schema.tables WHERE table_schema = coalesce(%s, database())"
        cursor.execute(text, [schema[0] if schema else None])
        found = [str(row[0]) for row in cursor.fetchall()]
        if table not in found:
            raise self.no_table(found)

    def _natural(self, field: Any) -> RemoteColumn:
        unsigned = bool(field.flags & _UNSIGNED)
        read, outside = f"{self.alias}.{self.quoted(field.name)}", "utf8mb4" if field.name in self._unicode else ""
        code = field.type_code
        type: str | None = _SIMPLE.get(code)
        if code in _WHOLE:
            type = _WHOLE[code][unsigned]
        elif code in _DECIMALS:
            type = decimal_type(field.length - (field.scale > 0) - (not unsigned), field.scale)
        elif code in (*_BLOBS, *_TEXTS):
            type = "binary" if field.charsetnr == _BINARY else "string"
        if type is None:  # times of day, decimals that are too wide, and what else there may be
            return RemoteColumn(field.name, "string", f"CAST({read} AS CHAR)", outside, comparable=False)
        return RemoteColumn(field.name, type, read, outside)

    def as_text(self, column: RemoteColumn) -> str:
        return f"CAST({column.read} AS CHAR)"

    def estimate(self, cursor: Cursor) -> int | None:
        *schema, table = name_parts(self.called)
        of = "table_schema = coalesce(%s, database()) AND table_name = %s"
        text = f"SELECT table_rows FROM information_schema.tables WHERE {of}"
        cursor.execute(text, [schema[0] if schema else None, table])
        found = cursor.fetchall()
        return int(found[0][0]) if found and found[0][0] is not None else None

    def primary_key(self) -> str | None:
        if "query" in self.options:
            return None
        *schema, table = name_parts(self.called)
        found = self.rows(
            "SELECT column_name FROM information_schema.key_column_usage WHERE constraint_name = 'PRIMARY'"
            " AND table_schema = coalesce(%s, database()) AND table_name = %s",
            [schema[0] if schema else None, table],
        )
        return str(found[0][0]) if len(found) == 1 else None

    # ---- comparisons

    def mark(self, column: RemoteColumn) -> str:
        return _mark(column.type)

    def parameter(self, column: RemoteColumn, value: Any) -> Any:
        return _plain(value)

    def key_sql(self, column: RemoteColumn, values: Sequence[Any]) -> str:
        """Texts that a column cannot have, in a character set of its own, must not be compared with it as it is."""
        plain = column.outside == "utf8mb4" or all(value.isascii() for value in values if isinstance(value, str))
        return column.read if plain else f"CONVERT({column.read} USING utf8mb4)"

    def test(self, column: RemoteColumn, test: Test, *, exact: bool) -> Sql | None:
        """Equal texts are equal in any order of a column; others may be too, and its ranges are other ones."""
        if not column.comparable:
            return None
        text = column.type == "string"
        if exact and text and test.sign != "STARTS WITH":
            return self._text_test(column, test)
        if test.sign == "STARTS WITH" and text and not exact:
            return f"{self.key_sql(column, test.values)} LIKE %s", [_escaped(test.values[0]) + "%"]
        if column.type in ("binary", "float", "boolean") or test.sign in ("STARTS WITH", "IS TRUE"):
            return None
        if text and test.sign not in ("=", "IN"):
            return None
        if any(isinstance(value, float) and not math.isfinite(value) for value in test.values):
            return None
        marks = ", ".join([self.mark(column)] * len(test.values))
        values = [self.parameter(column, value) for value in test.values]
        read = self.key_sql(column, test.values)
        return f"{read} {test.sign} {f'({marks})' if test.sign == 'IN' else marks}", values

    def _text_test(self, column: RemoteColumn, test: Test) -> Sql:
        """Byte by byte; where an index may help, also as the order of the column has it, which finds more."""
        marks = ", ".join(["CAST(%s AS BINARY)"] * len(test.values))
        exactly = f"{_bytewise(column)} {test.sign} {f'({marks})' if test.sign == 'IN' else marks}"
        also = self.test(column, test, exact=False)
        if also is None:
            return exactly, list(test.values)
        return f"({also[0]} AND {exactly})", [*also[1], *test.values]

    def exact_sql(self, column: RemoteColumn) -> str | None:
        if not column.comparable or column.type in ("binary", "float", "double", "boolean"):
            return None
        return _bytewise(column) if column.type == "string" else column.read

    def order_sql(self, column: RemoteColumn, order: Order) -> str | None:
        if not column.comparable or column.type in ("binary", "float", "double", "string"):
            return None
        return order_with_least_nulls(column.read, column.read, order)

    def search_sql(self, comparisons: Sequence[tuple[RemoteColumn, str]], keys: Sequence[tuple[int, Row]]) -> Sql:
        tests, marks = [], ["%s AS k0"]
        for index, (column, sign) in enumerate(comparisons):
            example = keys[0][1][index]
            marks.append(f"{_mark_of(example)} AS k{index + 1}")
            tests.append(_search_test(column, sign, f"k.k{index + 1}", example))
        rows = " UNION ALL ".join([f"SELECT {', '.join(marks)}"] * len(keys))
        text = f"FROM ({rows}) AS k STRAIGHT_JOIN {self.relation} ON {' AND '.join(tests)}"
        return text, [value for place, key in keys for value in (place, *map(_plain, key))]


def _search_test(column: RemoteColumn, sign: str, key: str, example: Any) -> str:
    """`column sign key`, or something that is true of more rows."""
    there = f"{column.read} IS NOT NULL"
    if sign == "<>" or not column.comparable or column.type in ("binary", "float", "boolean"):
        return there
    text = column.type == "string"
    if text is not isinstance(example, str) or (column.type in ("date", "timestamp")) is not isinstance(example, date):
        return there
    if not text:
        return f"{column.read} {sign} {key}"
    stored = f"CONVERT({column.read} USING utf8mb4)"
    if sign in ("LIKE", "LIKED BY"):
        pair = [f"{stored} COLLATE utf8mb4_general_ci", f"{key} COLLATE utf8mb4_general_ci"]
        return " LIKE ".join(pair if sign == "LIKE" else reversed(pair))
    return f"CAST({stored} AS BINARY) {sign} CAST({key} AS BINARY)"


def _bytewise(column: RemoteColumn) -> str:
    return f"CAST(CONVERT({column.read} USING utf8mb4) AS BINARY)"


def _mark(type: str) -> str:
    """What stands for a value of a type. Decimals come as texts: as numbers the driver might write them as floats."""
    if type.startswith("decimal"):
        return f"CAST(%s AS DECIMAL(65,{type.rstrip(')').split(',')[1]}))"
    return {"date": "CAST(%s AS DATE)", "timestamp": "CAST(%s AS DATETIME(6))"}.get(type, "%s")


def _mark_of(value: Any) -> str:
    if isinstance(value, Decimal):
        return _mark(f"decimal(38,{max(0, -int(value.as_tuple().exponent))})")
    if isinstance(value, datetime):
        return _mark("timestamp")
    return _mark("date") if isinstance(value, date) else "%s"


def _plain(value: Any) -> Any:
    """A value as the driver writes it: times in UTC without a zone."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, Decimal):
        return format(value, "f")
    return int(value) if isinstance(value, bool) else value


def _escaped(text: str) -> str:
    for sign in ("\\", "%", "_"):
        text = text.replace(sign, f"\\{sign}")
    return text


def settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """How the driver connects to the server of a source or sink."""
    return {
        "host": options.get("host", "localhost"), "port": options.get("port", PORT), "user": options["user"],
        "password": options.get("password", ""), "connect_timeout": PATIENCE, "charset": "utf8mb4",
        "local_infile": False, **_tls(options),
    }  # fmt: skip


@contextmanager
def connected(options: Mapping[str, Any], error_text: Any) -> Iterator[pymysql.connections.Connection[Any]]:
    """A connection by the options of a source or sink; what goes wrong is told without the password."""
    import pymysql

    with translated_errors(error_text):
        database = pymysql.connect(database=options["database"], autocommit=True, **settings(options))
        try:
            yield database
        finally:
            if database.open:
                database.close()


@contextmanager
def translated_errors(error_text: Any) -> Iterator[None]:
    """Errors of the driver are told as ours."""
    import pymysql

    try:
        yield
    except pymysql.Error as error:
        code = error.args[0] if error.args else None
        if code in _REFUSED:
            raise SourceError(error_text(_words(error)), hint="check host, database, user and password") from None
        if code == _NO_PRIVILEGE:
            raise SourceError(error_text(_words(error)), hint="GRANT it to the user, ON *.*") from None
        if code in (_NO_TABLE, _NO_COLUMN):
            hint = "the table was changed outside; put it back, or recreate the table and its views"
            raise SourceError(error_text(_words(error)), hint=hint) from None
        if isinstance(error, pymysql.OperationalError | pymysql.InterfaceError):
            raise Unreachable(error_text(_words(error)), hint=IS_IT_THERE) from None
        raise SourceError(error_text(_words(error))) from None


def _words(error: BaseException) -> str:
    return str(error.args[1]) if len(error.args) > 1 else str(error)


def _tls(options: Mapping[str, Any]) -> dict[str, Any]:
    wanted = options.get("tls", "prefer")
    if wanted in ("prefer", "disable"):
        return {"ssl_disabled": True} if wanted == "disable" else {}
    context = ssl.create_default_context(cafile=options.get("ca") if wanted == "verify-full" else None)
    if wanted == "require":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return {"ssl": context}


PORT_OPTION = port_option(PORT)
KINDS = (database_kind(MysqlTable, PORT_OPTION, "a table, view or query of a MySQL or MariaDB database", "pymysql"),)
