"""The changes of a MySQL or MariaDB table, by the binary log: first the rows that are there, then what happens to them.

`mysql-replication` reads the log: plain Python over PyMySQL. The position is a file of the log, a place in it between
two transactions, and the time at which the file was begun: a log that was made anew may have files of the same names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, SourceError
from anabranch.sources import secrets
from anabranch.sources.base import Stretch
from anabranch.sources.binlog import LoggedColumn, rewritten
from anabranch.sources.changes import TableChanges
from anabranch.sources.database import BATCH_ROWS, Cursor, Row, name_parts
from anabranch.sources.database_server import SERVER_OPTIONS
from anabranch.sources.mysql import PORT_OPTION, MysqlTable, connected, settings, translated_errors
from anabranch.sources.once import COUNT_OPTION
from anabranch.sources.registry import Kind, Opening, Option

if TYPE_CHECKING:
    from pymysqlreplication import BinLogStreamReader

#: So many bytes of a log without anything for us are read again after a restart, at the most.
MOST_PASSED = 16 << 20
#: What the server must have set, and what it must not.
_WANTED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
_UNWANTED = ("log_bin_compress", "binlog_transaction_compression")
#: Error of the server: a place of the log is not there.
_GONE = 1236
#: Events by their numbers: of files, which begin a transaction, and which hold rows that the library cannot read.
_BEGINS, _COMPRESSED = (33, 34, 162), (40, *range(165, 172))
_ROTATE, _FILE_HEAD = 4, 15
#: Where the first event of a file begins, and the events about the file itself end.
FIRST_EVENT, MOST_HEAD = 4, 1024
_SNAPSHOT = "binlog_snapshot"  # the status of MariaDB that tells the position of a transaction


class MysqlChanges(TableChanges):
    """The changes of one table."""

    table: MysqlTable

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening, MysqlTable, secrets.resolve(opening.options))
        self._columns: dict[str, LoggedColumn] = {}
        self._schema = self._name = ""  # as the server calls the table
        self._passed: tuple[Any, Any] | None = None  # between these positions the log has nothing for us

    @property
    def log(self) -> str:
        return f"log of {self.table.place}"

    # ---- stretches

    def first_rows(self) -> Stretch:
        self.check()
        fields = self.table.fields()
        columns = [self.table.columns()[field.name].read for field in fields]
        # A float is shown with six digits, and has more in the log.
        read = [
            f"{column} * 1e0" if field.type in ("float", "double") else column
            for column, field in zip(columns, fields, strict=True)
        ]
        with self.table.open(streaming=True) as cursor:
            position = self._snapshot(cursor)
            cursor.execute(f"SELECT {', '.join(read)} FROM {self.table.relation}", ())
            return self.taken(position, {"log": position}, self.coming(cursor))

    def _snapshot(self, cursor: Cursor) -> dict[str, Any]:
        """Begin a transaction that sees the table as of a position, and tell which.

        MariaDB tells it. MySQL does not: there nobody may write to the table for the moment in which we ask.
        """
        cursor.execute("SHOW STATUS LIKE %s", [f"{_SNAPSHOT}_file"])
        if cursor.fetchall():
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            cursor.execute("SHOW STATUS LIKE %s", [f"{_SNAPSHOT}_%"])
            variables = {str(name).lower(): value for name, value in cursor.fetchall()}
            file, at = str(variables["binlog_snapshot_file"]), int(variables["binlog_snapshot_position"])
        else:
            with connected(self.table.options, self.table.error_text) as other, other.cursor() as locking:
                locking.execute(f"LOCK TABLES {self.table.relation} READ", ())
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                file, at = self._log_files(locking)[-1]
        return {"file": file, "at": at, "begun": self._begun(file)}

    def changes(self, position: Any, most: int) -> Stretch | None:
        if not self._columns:
            self.check()
        start = self._passed[1] if self._passed is not None and self._passed[0] == position else position
        with self.table.asking() as cursor:
            end = self._log_files(cursor)
        if end[-1] == (start["file"], start["at"]):
            return None
        reached = dict(start)
        batches = self._rows(reached, end[-1], most)
        first = next(batches, None)
        if first is None and _between(end, position, reached) < MOST_PASSED:
            self._passed = position, reached
            return None
        whole = batches if first is None else chain([first], batches)
        return self.taken(reached, {"log": [position, reached]}, whole)

    def lag(self, position: Any) -> int | None:
        with self.table.asking() as cursor:
            files = self._log_files(cursor)
        file, at = files[-1]
        return _between(files, position, {"file": file, "at": at})

    # ---- the log

    def _rows(self, reached: dict[str, Any], end: tuple[str, int], most: int) -> Iterator[list[Row]]:
        """Rows that come and go, in whole transactions, some at a time; `reached` moves on to where they end."""
        rows: list[Row] = []
        start, begun, count, within = dict(reached), None, 0, False
        before = 0  # rows before the transaction that is open
        with self._reader(start["file"], start["at"]) as reader:
            for event in reader:
                if event.event_type == _ROTATE:
                    begun = None
                if event.event_type == _FILE_HEAD:
                    begun = event.timestamp
                    if reader.log_file == start["file"] and begun != start["begun"]:
                        raise self._gone(start, "the file was started again")
                found, within = self._taken(event, within, touched=count > before)
                rows += found
                count += len(found)
                before = before if within else count
                if not within and begun is not None:
                    self._move(reached, reader.log_file, reader.log_pos, begun)
                    if count >= most or _order(reached["file"], reached["at"]) >= _order(*end):
                        break
                if len(rows) >= BATCH_ROWS:
                    yield rows
                    rows = []
        if within:
            reason = f"{self.table.place}: the log ended within a transaction, after {reached['file']}:{reached['at']}"
            raise SourceError(reason, hint="try again; the position is that of the transaction before")
        if rows:
            yield rows

    def _move(self, reached: dict[str, Any], file: str, at: int, begun: int) -> None:
        """The head of a file that is read from its middle comes first, with the place behind it, or none."""
        if file == reached["file"] and at < reached["at"]:
            if at > MOST_HEAD:
                raise SourceError(f"{self.table.place}: {file} is larger than 4 GB, and has no positions beyond")
            return
        reached.update(file=file, at=at, begun=begun)

    def _taken(self, event: Any, within: bool, *, touched: bool) -> tuple[list[Row], bool]:
        """The rows of an event, and whether a transaction is open behind it; `touched` if it had rows already."""
        from pymysqlreplication.event import QueryEvent, XAPrepareEvent, XidEvent
        from pymysqlreplication.row_event import RowsEvent

        if isinstance(event, RowsEvent):
            return list(self._changed(event)), True
        if event.event_type in _COMPRESSED:
            hint = f"turn off {' and '.join(_UNWANTED)}, and recreate the stream and its views"
            raise SourceError(f"{self.table.place}: the log is compressed, and cannot be read", hint=hint)
        if isinstance(event, XAPrepareEvent) and touched and not event.one_phase:
            hint = "whether it is committed is not known in time: recreate the stream and its views"
            raise SourceError(f"{self.table.called} was changed by a transaction in two phases (XA)", hint=hint)
        if isinstance(event, QueryEvent):
            return [], self._opens(event, touched)
        return [], event.event_type in _BEGINS or (within and not isinstance(event, XidEvent | XAPrepareEvent))

    def _opens(self, event: Any, touched: bool) -> bool:
        """Whether a statement in the log leaves a transaction open; what changes rows unseen is refused."""
        statement, schema = _text(event.query), _text(event.schema)
        word, second = (*statement.upper().split(None, 2)[:2], "", "")[:2]
        if word in ("BEGIN", "SAVEPOINT", "RELEASE") or (word == "XA" and second in ("START", "BEGIN", "END")):
            return True
        if word == "ROLLBACK":  # in the log with rows where a table without transactions was changed as well
            if touched:
                hint = "recreate the stream and its views, and change tables without transactions by themselves"
                raise SourceError(f"{self.table.called} was changed, but rolled back too late in the log", hint=hint)
            return second == "TO"
        reason = rewritten(statement, schema, self._schema, self._name)
        if reason is not None:
            hint = "recreate the stream and its views; DELETE FROM logs each row"
            raise SourceError(f"{self.table.called} {reason}", hint=hint)
        return False

    def _changed(self, event: Any) -> Iterator[Row]:
        try:
            for row in event.rows:
                if "values" in row:
                    count = 1 if type(event).__name__ == "WriteRowsEvent" else -1
                    yield (*self._row(row["values"], row["none_sources"]), count)
                else:
                    yield (*self._row(row["before_values"], row["before_none_sources"]), -1)
                    yield (*self._row(row["after_values"], row["after_none_sources"]), 1)
        except AnabranchError:
            raise
        except Exception as error:  # whatever the library says about bytes that it cannot read
            reason = f"{self.table.place}: a change of {self.table.called} cannot be read: {error}"
            raise SourceError(reason, hint="recreate the stream and its views, without this column") from error

    def _row(self, values: Mapping[str, Any], absent: Mapping[str, str]) -> list[Any]:
        missing = [name for name in self._columns if name not in values]
        if missing:
            named = not any(str(name).startswith("UNKNOWN_COL") for name in values)
            hint = "restore it; or recreate the stream and its views"
            reason = f"the table {self.table.called} has no column {missing[0]} any more"
            raise SourceError(reason if named else f"{self.table.place} logs rows without names", hint=hint)
        return [column.value(values, absent) for column in self._columns.values()]

    @contextmanager
    def _reader(self, file: str, at: int) -> Iterator[BinLogStreamReader]:
        """The log from a place on, to its present end."""
        import pymysql
        from pymysqlreplication import BinLogStreamReader

        reader = BinLogStreamReader(
            settings(self.table.options), random.randrange(1 << 31, 1 << 32), resume_stream=True, log_file=file,
            log_pos=at, only_tables=[self._name], only_schemas=[self._schema], filter_non_implemented_events=False,
            enable_logging=False,
        )  # fmt: skip
        with translated_errors(self.table.error_text):
            try:
                yield reader
            except pymysql.Error as error:
                if error.args[:1] == (_GONE,):
                    raise self._gone({"file": file, "at": at}, str(error.args[1])) from None
                raise
            finally:
                reader.close()

    def _gone(self, position: Mapping[str, Any], why: str) -> SourceError:
        hint = "changes are missing from here on: recreate the stream and its views"
        place = f"{position['file']}:{position['at']}"
        return SourceError(f"the position {place} of the log of {self.table.place} is gone: {why}", hint=hint)

    def _begun(self, file: str) -> int:
        """When a file of the log was begun."""
        with self._reader(file, FIRST_EVENT) as reader:
            return next(int(event.timestamp) for event in reader if event.event_type == _FILE_HEAD)

    def _log_files(self, cursor: Cursor) -> list[tuple[str, int]]:
        """The files of the log and their sizes; the last one ends where the log does."""
        cursor.execute("SHOW BINARY LOGS")
        return [(_text(row[0]), int(row[1])) for row in cursor.fetchall()]

    # ---- what a table must be like

    def check(self) -> None:
        with self.table.asking() as cursor:
            self._check_server(cursor)
            self._check_table(cursor)

    def _check_server(self, cursor: Cursor) -> None:
        names = (*_WANTED, *_UNWANTED)
        marks = ", ".join(["%s"] * len(names))
        cursor.execute(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({marks})", names)
        found = {_text(name).lower(): _text(value).upper() for name, value in cursor.fetchall()}
        wanted = {**_WANTED, **{name: "OFF" for name in _UNWANTED if name in found}}
        for name, value in wanted.items():
            if found.get(name) != value:
                reason = f"{self.table.place} does not log changes: its {name} is {found.get(name, 'unknown')}"
                raise SourceError(reason, hint=f"{name} = {value} in the configuration of the server, and a restart")

    def _check_table(self, cursor: Cursor) -> None:
        *schema, table = name_parts(self.table.called)
        own = [schema[0] if schema else None, table]
        cursor.execute(
            "SELECT t.table_schema, t.table_name, e.transactions FROM information_schema.tables t LEFT JOIN"
            " information_schema.engines e ON e.engine = t.engine WHERE t.table_type LIKE '%%BASE TABLE'"
            " AND t.table_schema = coalesce(%s, database()) AND t.table_name = %s",
            own,
        )
        found = cursor.fetchall()
        if not found:
            raise SourceError(f"{self.table.place} has no table {self.table.called}")
        self._schema, self._name = _text(found[0][0]), _text(found[0][1])
        if _text(found[0][2]) != "YES":
            raise SourceError(f"{self.table.called} has no transactions", hint="ALTER TABLE ... ENGINE = InnoDB")
        cursor.execute(
            "SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = %s"
            " AND table_name = %s AND (delete_rule NOT IN ('RESTRICT', 'NO ACTION')"
            " OR update_rule NOT IN ('RESTRICT', 'NO ACTION'))",
            [self._schema, self._name],
        )
        if cascading := cursor.fetchall():
            reason = f"the log lacks what the foreign key {_text(cascading[0][0])} does to {self.table.called}"
            raise SourceError(reason, hint="have it RESTRICT, and change the rows by statements of their own")
        self._columns = self._logged(cursor)

    def _logged(self, cursor: Cursor) -> dict[str, LoggedColumn]:
        """The columns of the stream, if the log tells their values as a SELECT does."""
        cursor.execute(
            "SELECT column_name, data_type, column_type, character_set_name, character_octet_length, extra"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            [self._schema, self._name],
        )
        there = {
            _text(name): LoggedColumn(_text(name), _text(kind), _text(whole), letters, octets, _text(extra))
            for name, kind, whole, letters, octets, extra in cursor.fetchall()
        }
        natural = {column.name: column.type for column in self.table.natural_columns()}
        found: dict[str, LoggedColumn] = {}
        for field in self.table.fields():
            column = there[field.name]
            refusal = column.refusal()
            if refusal is None and natural[field.name] != field.type:
                refusal = f"{field.name} is a {natural[field.name].upper()}, not a {field.type.upper()}"
            if refusal is not None:
                hint = f"name the columns to take: CREATE STREAM s (..., {self.count} INT) FROM mysql_changes(...)"
                raise SourceError(f"changes of {self.table.called} cannot be read: {refusal}", hint=hint)
            found[field.name] = column
        return found


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _order(file: str, at: int) -> tuple[int, int]:
    """A place in the log as numbers that grow.

    >>> _order("bin.000009", 4) < _order("bin.1000000", 4)
    True
    """
    return int(file.rpartition(".")[2]), at


def _between(files: list[tuple[str, int]], start: Mapping[str, Any], end: Mapping[str, Any]) -> int:
    """How many bytes of the log are between two positions.

    >>> _between([("b.1", 100), ("b.2", 50), ("b.3", 30)], {"file": "b.1", "at": 90}, {"file": "b.3", "at": 10})
    70
    """
    low, high = _order(start["file"], start["at"])[0], _order(end["file"], end["at"])[0]
    before = sum(size for file, size in files if low <= _order(file, 0)[0] < high)
    return max(0, int(before - start["at"] + end["at"]))


def _check(options: Mapping[str, Any]) -> None:
    name_parts(str(options["table"]))


KINDS = (
    Kind(
        name="mysql_changes",
        doc="the rows of a MySQL or MariaDB table and what happens to them, by the binary log",
        example="mysql_changes(database => 'shop', user => 'me', password => env('PW'), table => 'orders')",
        options=(
            *SERVER_OPTIONS,
            PORT_OPTION,
            Option(name="table", doc="a table of InnoDB", required=True),
            COUNT_OPTION,
        ),
        stream=MysqlChanges,
        check=_check,
        reads_once=True,
        modules=("pymysql", "pymysqlreplication"),
        extra="mysql",
        abilities=("rows that come and go, for NET",),
    ),
)
