"""Sinks that write a table of a database: the rows that a view shows, or its changes, version by version.

A version is one transaction, and the transaction moves the position of the sink, a row of `anabranch_sinks` in the same
database: rows and position come together, and two processes that write the same version wait for one another.

Rows are matched whole, as often as they are there, by a digest in the column `_row`: a view needs no key for it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from hashlib import blake2b
from typing import Any, ClassVar

from anabranch.errors import SinkError
from anabranch.ledger.crash import reach
from anabranch.sinks.base import CHANGE_COLUMNS, Owner, with_version
from anabranch.sinks.kinds import SinkKind
from anabranch.sources import mysql, postgres
from anabranch.sources.database import name_parts
from anabranch.sources.database_server import SERVER_OPTIONS
from anabranch.sources.registry import Option
from anabranch.types import Field

#: The table with the positions of all sinks of a database.
POSITIONS = "anabranch_sinks"
#: The digest of a row.
ROW = "_row"
_AT_ONCE = 1000


class DatabaseSink(ABC):
    """A table of a database that belongs to one sink."""

    whole = False
    kind: str
    quote: str
    types: ClassVar[Mapping[str, str]]
    digest_type: str
    default_port: int

    def __init__(self, options: Mapping[str, Any], owner: Owner) -> None:
        self.options = options
        self.owner = owner
        self.table = str(options["table"])
        self.shows = options.get("mode", "table") == "table"
        self.parts = name_parts(self.table)

    # ---- what a kind of database says

    @abstractmethod
    def transaction(self) -> Any:
        """A cursor in a transaction, which ends well or not at all."""

    @abstractmethod
    def insert(self, cursor: Any, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None: ...

    @abstractmethod
    def delete(self, cursor: Any, digests: Mapping[str, int]) -> int:
        """Delete so many copies of rows; returns how many were there."""

    @abstractmethod
    def exists(self, cursor: Any, parts: Sequence[str]) -> bool: ...

    @abstractmethod
    def value(self, value: Any) -> Any:
        """A value as the driver takes it."""

    # ---- a target

    def check(self, fields: Sequence[Field]) -> None:
        columns = [f"{self.quoted(field.name)} {self._type(field)}" for field in fields]
        if self.shows:
            columns.append(f"{self.quoted(ROW)} {self.digest_type} NOT NULL")
        else:
            columns += [f"{self.quoted(name)} bigint NOT NULL" for name in CHANGE_COLUMNS]
        names = [*(field.name for field in fields), *([ROW] if self.shows else CHANGE_COLUMNS)]
        with self.transaction() as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.positions} (sink varchar(150) PRIMARY KEY, version bigint NOT NULL)"
                f"{self.engine}"
            )
            if self.exists(cursor, self.parts):
                cursor.execute(f"SELECT * FROM {self.name} LIMIT 1")
                if cursor.fetchall() or [column[0] for column in cursor.description] != names:
                    raise SinkError(
                        f"{self.place} has a table {self.table} already",
                        hint="a sink creates its own: give another name, or drop that table",
                    )
                return  # made for a sink that never came to be
            cursor.execute(f"CREATE TABLE {self.name} ({', '.join(columns)}){self.engine}")
            if self.shows:
                cursor.execute(f"CREATE INDEX {self.index} ON {self.name} ({self.quoted(ROW)})")

    def position(self) -> int | None:
        with self.transaction() as cursor:
            for parts in (self.parts, [*self.parts[:-1], POSITIONS]):
                if not self.exists(cursor, parts):
                    hint = "restore it, or drop the sink"
                    raise SinkError(f"{self.place} has no table {'.'.join(parts)} any more", hint=hint)
            cursor.execute(f"SELECT version FROM {self.positions} WHERE sink = %s", [self.owner.application])
            found = cursor.fetchall()
            return int(found[0][0]) if found else None

    def tidy(self) -> None:
        """A transaction that was cut off left nothing."""
        return

    def start(self, version: int, rows: Any) -> None:
        with self.transaction() as cursor:
            cursor.execute(f"SELECT version FROM {self.positions} WHERE sink = %s", [self.owner.application])
            if cursor.fetchall():
                return
            values = [self.owner.application, version]
            cursor.execute(f"INSERT INTO {self.positions} (sink, version) VALUES (%s, %s)", values)
            self._write(cursor, version, rows)
            reach("before-sink-commit")
        reach("after-sink-commit")

    def apply(self, version: int, changes: Any) -> None:
        with self.transaction() as cursor:
            values = [version, self.owner.application, version]
            cursor.execute(f"UPDATE {self.positions} SET version = %s WHERE sink = %s AND version < %s", values)
            if not cursor.rowcount:
                return  # it is there already
            self._write(cursor, version, changes)
            reach("before-sink-commit")
        reach("after-sink-commit")

    def _write(self, cursor: Any, version: int, changes: Any) -> None:
        if not self.shows:
            rows = with_version(changes, version)
            self.insert(cursor, rows.column_names, list(self._rows(rows)))
            return
        names = [name for name in changes.column_names if name != "_diff"]
        net: Counter[str] = Counter()
        known: dict[str, tuple[Any, ...]] = {}
        for *row, count in self._rows(changes.select([*names, "_diff"])):
            key = digest(row)
            known[key] = tuple(row)
            net[key] += count
        gone = {key: -count for key, count in net.items() if count < 0}
        keys = list(gone)
        for start in range(0, len(keys), _AT_ONCE):
            some = {key: gone[key] for key in keys[start : start + _AT_ONCE]}
            if self.delete(cursor, some) != sum(some.values()):
                raise SinkError(
                    f"the table {self.table} of {self.place} lacks rows that version {version} retracts:"
                    " another process changed it",
                    hint="restore it; or drop the sink, and recreate it with another table",
                )
        self.insert(
            cursor, [*names, ROW], [(*known[key], key) for key, count in net.items() for _ in range(max(0, count))]
        )

    def _rows(self, rows: Any) -> Iterator[tuple[Any, ...]]:
        columns = [[self.value(value) for value in column.to_pylist()] for column in rows.columns]
        return zip(*columns, strict=True)

    # ---- names

    engine = ""

    def quoted(self, name: str) -> str:
        return (self.quote + name.replace(self.quote, self.quote * 2) + self.quote).replace("%", "%%")

    @property
    def name(self) -> str:
        return ".".join(map(self.quoted, self.parts))

    @property
    def positions(self) -> str:
        return ".".join(map(self.quoted, [*self.parts[:-1], POSITIONS]))

    @property
    def index(self) -> str:
        return self.quoted(f"anabranch_{blake2b(self.table.encode(), digest_size=6).hexdigest()}")

    @property
    def place(self) -> str:
        return where(self.options, self.default_port)

    def error_text(self, error: object) -> str:
        """What went wrong, without the password."""
        text, password = " ".join(str(error).split()), str(self.options.get("password", ""))
        return f"{self.place}: {text.replace(password, '***') if password else text}"

    def _type(self, field: Field) -> str:
        found = field.type if field.type.startswith("decimal(") else self.types.get(field.type)
        if found is None:
            raise SinkError(
                f"the column {field.name} is {field.type.upper()}, for which {self.kind} has no type",
                hint=f"turn it into a string: to_json({field.name}) AS {field.name}",
            )
        return found


def digest(row: Sequence[Any]) -> str:
    """The same text for the same row, and no other.

    >>> digest([1, "a"]) == digest([1, "a"]), digest([1, None]) == digest([1, "None"])
    (True, False)
    """
    error_text = [None if value is None else f"{type(value).__name__} {_text(value)}" for value in row]
    return blake2b(json.dumps(error_text).encode(), digest_size=16).hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date) else str(value)


def where(options: Mapping[str, Any], port: int) -> str:
    return f"{options.get('host', 'localhost')}:{options.get('port', port)}/{options['database']}"


class PostgresSink(DatabaseSink):
    kind = "postgres"
    quote = '"'
    default_port = postgres.PORT
    digest_type = "text"
    types: ClassVar[Mapping[str, str]] = {
        "boolean": "boolean", "tinyint": "smallint", "smallint": "smallint", "int": "int", "bigint": "bigint",
        "float": "real", "double": "double precision", "string": "text", "binary": "bytea", "date": "date",
        "timestamp": "timestamptz",
    }  # fmt: skip

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with postgres.connected(self.options, self.error_text) as database, database.transaction():
            yield database.cursor()

    def exists(self, cursor: Any, parts: Sequence[str]) -> bool:
        cursor.execute("SELECT to_regclass(%s)", [".".join(map(self.quoted, parts)).replace("%%", "%")])
        return cursor.fetchall()[0][0] is not None

    def insert(self, cursor: Any, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        names = ", ".join(map(self.quoted, columns))
        with cursor.copy(f"COPY {self.name} ({names}) FROM STDIN".replace("%%", "%")) as copy:
            for row in rows:
                copy.write_row(row)

    def delete(self, cursor: Any, digests: Mapping[str, int]) -> int:
        cursor.execute(
            f"DELETE FROM {self.name} WHERE ctid IN (SELECT place FROM (SELECT t.ctid AS place, g.count, row_number()"
            f" OVER (PARTITION BY t.{ROW}) AS number FROM {self.name} AS t JOIN unnest(%s::text[], %s::int8[])"
            f" AS g(digest, count) ON t.{ROW} = g.digest) AS f WHERE number <= count)",
            [list(digests), list(digests.values())],
        )
        return int(cursor.rowcount)

    def value(self, value: Any) -> Any:
        return value


class MysqlSink(DatabaseSink):
    kind = "mysql"
    quote = "`"
    default_port = mysql.PORT
    digest_type = "char(32) CHARACTER SET ascii COLLATE ascii_bin"
    engine = " ENGINE=InnoDB"
    types: ClassVar[Mapping[str, str]] = {
        "boolean": "boolean", "tinyint": "tinyint", "smallint": "smallint", "int": "int", "bigint": "bigint",
        "float": "float", "double": "double", "string": "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "binary": "longblob", "date": "date", "timestamp": "datetime(6)",
    }  # fmt: skip

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with mysql.connected(self.options, self.error_text) as database, database.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES'")
            database.begin()
            yield cursor
            database.commit()  # without it the connection is closed, and nothing was done

    def exists(self, cursor: Any, parts: Sequence[str]) -> bool:
        of = "table_schema = coalesce(%s, database()) AND table_name = %s"
        values = [parts[0] if len(parts) > 1 else None, parts[-1]]
        cursor.execute(f"SELECT 1 FROM information_schema.tables WHERE {of}", values)
        return bool(cursor.fetchall())

    def insert(self, cursor: Any, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        if rows:
            names = ", ".join(map(self.quoted, columns))
            marks = ", ".join(["%s"] * len(columns))
            cursor.executemany(f"INSERT INTO {self.name} ({names}) VALUES ({marks})", rows)

    def delete(self, cursor: Any, digests: Mapping[str, int]) -> int:
        found = 0
        for key, count in digests.items():
            found += cursor.execute(f"DELETE FROM {self.name} WHERE {ROW} = %s LIMIT {int(count)}", [key])
        return found

    def value(self, value: Any) -> Any:
        return value.astimezone(timezone.utc).replace(tzinfo=None) if isinstance(value, datetime) else value


_OPTIONS = (
    Option(name="table", doc="the table that it makes, with its schema if need be: 'sales.totals'", required=True),
    Option(
        name="mode",
        doc="the rows that the view shows, or its changes with _diff and _version",
        default="table",
        choices=("table", "changes"),
    ),
)


def _check(options: Mapping[str, Any]) -> None:
    name_parts(str(options["table"]))


def _kind(sink: type[DatabaseSink], doc: str, port: Option) -> SinkKind:
    return SinkKind(
        name=sink.kind,
        doc=doc,
        example=f"{sink.kind}(database => 'shop', user => 'me', password => env('PW'), table => 'totals')",
        options=(*SERVER_OPTIONS, port, *_OPTIONS),
        check=_check,
        modules=("psycopg",) if sink is PostgresSink else ("pymysql",),
        extra=sink.kind,
        open=sink,
        where=lambda options: f"{where(options, sink.default_port)}, table {options['table']}",
    )


KINDS = (
    _kind(PostgresSink, "a table of a Postgres database", postgres.PORT_OPTION),
    _kind(MysqlSink, "a table of a MySQL or MariaDB database", mysql.PORT_OPTION),
)
