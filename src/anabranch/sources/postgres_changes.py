"""The changes of a Postgres table, by logical replication: first the rows that are there, then what happens to them.

Changes are taken from a slot, whole transactions at a time, by `pgoutput`. The slot is moved on when a run has been
committed; what is seen again after a crash is passed over by the position of the run.

Which changes are in the first rows already is told by transactions: those that were over in the snapshot of these rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import secrets
from anabranch.sources.base import Stretch
from anabranch.sources.changes import TableChanges
from anabranch.sources.database import name_parts
from anabranch.sources.database_server import SERVER_OPTIONS
from anabranch.sources.once import COUNT_OPTION
from anabranch.sources.pgoutput import (
    Begin,
    Commit,
    Relation,
    Truncate,
    Tuple,
    decode,
    lsn_number,
    lsn_text,
    visible,
)
from anabranch.sources.postgres import PORT_OPTION, PostgresTable, connected
from anabranch.sources.registry import Kind, Opening, Option, WrongOption

if TYPE_CHECKING:
    import psycopg

#: So many bytes of a log that has nothing for us may be held back by the slot.
MOST_HELD = 16 << 20
_PADDED = 1042  # char(n)
#: The comment of a publication that we made.
_MADE = "made by anabranch"
_SLOT = re.compile("[a-z0-9_]{1,63}")


class PostgresChanges(TableChanges):
    """The changes of one table."""

    table: PostgresTable

    def __init__(self, opening: Opening) -> None:
        options = secrets.resolve(opening.options)
        super().__init__(opening, PostgresTable, options)
        self.slot = str(options["slot"])
        self.publication = str(options.get("publication", self.slot))
        self._relations: dict[int, Relation] = {}
        self._session: tuple[ExitStack, psycopg.Connection[Any]] | None = None

    @property
    def log(self) -> str:
        return f"slot {self.slot}"

    def check(self) -> None:
        with self._database() as database:
            self._check(database)

    # ---- stretches

    def first_rows(self) -> Stretch:
        with self._database() as database:
            return self._first_rows(database)

    def changes(self, position: Any, most: int) -> Stretch | None:
        with self._database() as database:
            return self._changes(database, position, most)

    def _first_rows(self, database: psycopg.Connection[Any]) -> Stretch:
        self._check(database)
        self._make_slot(database)
        with database.transaction():
            database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            snapshot = str(_one(database, "SELECT pg_current_snapshot()::text"))
            names = [field.name for field in self.table.fields()]
            text = f"SELECT {', '.join(self.table.columns()[name].read for name in names)} FROM {self.table.relation}"
            with database.cursor("anabranch") as cursor:
                cursor.execute(text, ())
                return self.taken({"snapshot": snapshot, "lsn": "0/0"}, {"snapshot": snapshot}, self.coming(cursor))

    def _changes(self, database: psycopg.Connection[Any], position: Any, most: int) -> Stretch | None:
        known = lsn_number(position["lsn"])
        self._advance(database, known)
        while True:
            flushed = lsn_number(str(_one(database, "SELECT pg_current_wal_flush_lsn()")))
            rows, end = self._peeked(database, position, most)
            if rows:
                break
            if end is None:  # the log has nothing more for us
                if flushed - known > MOST_HELD:
                    self._advance(database, flushed)
                return None
            self._advance(database, end)
        assert end is not None
        reached = lsn_text(end)
        return self.taken({**position, "lsn": reached}, {"lsn": [position["lsn"], reached]}, [rows])

    def _peeked(
        self, database: psycopg.Connection[Any], position: Any, most: int
    ) -> tuple[list[tuple[Any, ...]], int | None]:
        """The next changes, and where they end; None if there are no transactions at all."""
        peeked = database.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1',"
            " 'publication_names', %s)",
            [self.slot, int(most), '"' + self.publication.replace('"', '""') + '"'],
        ).fetchall()
        rows: list[tuple[Any, ...]] = []
        end: int | None = None
        for messages, xid, over in _transactions(bytes(data) for (data,) in peeked):
            new = over > lsn_number(position["lsn"]) and not visible(xid, position["snapshot"])
            rows += self._rows_of(database, messages, skip=not new)
            end = over
        return rows, end

    def committed(self, stretch: Stretch) -> None:
        with self._database() as database:
            self._advance(database, lsn_number(stretch.position["lsn"]))
        super().committed(stretch)

    def lag(self, position: Any) -> int | None:
        with self._database() as database:
            text = "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
            found = database.execute(text, [self.slot]).fetchone()
        return None if found is None or found[0] is None else int(found[0])

    def left(self) -> None:
        """The slot is ours alone; a publication may be somebody else's, which its comment tells."""
        try:
            with connected(self.table.options, self.table.error_text) as database:
                text = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
                database.execute(text, [self.slot])
                ours = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
                if database.execute(ours, [self.publication]).fetchone() == (_MADE,):
                    database.execute(f"DROP PUBLICATION {self._publication_name}".encode())
        except SourceError as error:
            hint = f"in Postgres: SELECT pg_drop_replication_slot('{self.slot}')"
            reason = f"the slot {self.slot} could not be dropped, and holds back the log of the server: {error.message}"
            raise SourceError(reason, hint=hint) from error

    # ---- rows

    def _rows_of(
        self, database: psycopg.Connection[Any], messages: Sequence[Any], *, skip: bool
    ) -> list[tuple[Any, ...]]:
        """The rows that come and go in a transaction; nothing of one that is known already but its columns."""
        from psycopg.adapt import Transformer

        found: list[tuple[Any, ...]] = []
        loaders = Transformer(database)
        for message in messages:
            if isinstance(message, Relation):
                self._relations[message.id] = message
                continue
            if skip:
                continue
            if isinstance(message, Truncate):
                hint = "recreate the stream and its views; DELETE FROM logs each row"
                raise SourceError(f"{self.table.called} was truncated, and the log lacks the removed rows", hint=hint)
            relation = self._relations[message.relation]
            if (relation.schema, relation.name) == (self._schema, name_parts(self.table.called)[-1]):
                for values, count in ((message.old, -1), (message.new, 1)):
                    if values is not None:
                        found.append((*self._row(loaders, relation, values), count))
        return found

    def _row(self, loaders: Any, relation: Relation, values: Tuple) -> list[Any]:
        from psycopg.pq import Format

        by_name = {name: (type, value) for (name, type), value in zip(relation.columns, values, strict=True)}
        row: list[Any] = []
        for field in self.table.fields():
            if field.name not in by_name:
                hint = "restore it; or recreate the stream and its views"
                raise SourceError(f"the table {self.table.called} has no column {field.name} any more", hint=hint)
            type, value = by_name[field.name]
            if not isinstance(value, bytes):
                row.append(None)
            elif field.type == "string":
                row.append(value.decode().rstrip(" ") if type == _PADDED else value.decode())
            else:
                row.append(loaders.get_loader(type, Format.TEXT).load(value))
        return row

    # ---- the slot

    _schema = ""  # of the table; known when it was looked at

    def _check(self, database: psycopg.Connection[Any]) -> None:
        """Whether changes of the table can be told with the rows as they were before."""
        found = database.execute(
            "SELECT c.relreplident, n.nspname, current_setting('wal_level') FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
            [self.table.plain_name],
        ).fetchall()
        if not found:
            raise SourceError(f"{self.table.place} has no table {self.table.called}")
        identity, self._schema, level = (each.decode() if isinstance(each, bytes) else str(each) for each in found[0])
        if level != "logical":
            raise SourceError(f"{self.table.place} does not log changes: its wal_level is {level}",
                              hint="wal_level = logical in postgresql.conf, and a restart")  # fmt: skip
        if identity != "f":
            raise SourceError(f"changes of {self.table.called} lack the old rows",
                              hint=f"ALTER TABLE {self.table.called} REPLICA IDENTITY FULL")  # fmt: skip

    def _make_slot(self, database: psycopg.Connection[Any]) -> None:
        """A publication and a slot, if they are not there."""
        if not _one(database, "SELECT count(*) FROM pg_publication WHERE pubname = %s", self.publication):
            name = self._publication_name
            with database.transaction():
                database.execute(f"CREATE PUBLICATION {name} FOR TABLE {self.table.plain_name}".encode())
                database.execute(f"COMMENT ON PUBLICATION {name} IS '{_MADE}'".encode())
        if not _one(database, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", self.slot):
            database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.slot])

    @property
    def _publication_name(self) -> str:
        return self.table.quoted(self.publication).replace("%%", "%")

    def _advance(self, database: psycopg.Connection[Any], lsn: int) -> None:
        """Let the server forget what has been taken."""
        found = database.execute(
            "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s", [self.slot]
        ).fetchall()
        if not found or found[0][1] == "lost":
            hint = "changes are missing from here on: recreate the stream and its views"
            reason = f"the slot {self.slot} of {self.table.place} is gone, with all after {lsn_text(lsn)}"
            raise SourceError(reason, hint=hint)
        if lsn_number(found[0][0]) < lsn:
            database.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.slot, lsn_text(lsn)])

    @contextmanager
    def _database(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection that stays: a slot is asked again and again."""
        if self._session is None:
            stack = ExitStack()
            self._session = stack, stack.enter_context(connected(self.table.options, self.table.error_text))
        stack, database = self._session
        try:
            if not self._schema:
                self._check(database)
            yield database
        except BaseException as error:
            self._session = None
            stack.__exit__(type(error), error, error.__traceback__)  # tells it as one of ours
            raise


def _transactions(messages: Iterator[bytes]) -> Iterator[tuple[list[Any], int, int]]:
    """The messages of each transaction, its number, and where in the log it ends."""
    xid, found = 0, list[Any]()
    for data in messages:
        message = decode(data)
        if isinstance(message, Begin):
            xid, found = message.xid, []
        elif isinstance(message, Commit):
            yield found, xid, message.end
        elif message is not None:
            found.append(message)


def _one(database: psycopg.Connection[Any], text: str, *values: Any) -> Any:
    row = database.execute(text.encode(), values).fetchone()
    assert row is not None
    return row[0]


def _open(opening: Opening) -> PostgresChanges:
    return PostgresChanges(opening)


def _check(options: Mapping[str, Any]) -> None:
    name_parts(str(options["table"]))
    if not _SLOT.fullmatch(str(options["slot"])):
        hint = "small letters, digits and underscores, up to 63 of them"
        raise WrongOption("slot", f"a slot of Postgres cannot be called {options['slot']!r}", hint=hint)


KINDS = (
    Kind(
        name="postgres_changes",
        doc="the rows of a Postgres table and what happens to them, by logical replication",
        example="postgres_changes(database => 'shop', user => 'me', password => env('PW'), table => 'orders',"
        " slot => 'shop_orders')",
        options=(
            *SERVER_OPTIONS,
            PORT_OPTION,
            Option(name="table", doc="a table with REPLICA IDENTITY FULL", required=True),
            Option(name="slot", doc="the replication slot; it is made, and is for one stream alone", required=True),
            Option(name="publication", doc="made with the name of the slot, if it is not there"),
            COUNT_OPTION,
        ),
        stream=_open,
        check=_check,
        reads_once=True,
        modules=("psycopg",),
        extra="postgres",
        abilities=("rows that come and go, for NET",),
    ),
)
