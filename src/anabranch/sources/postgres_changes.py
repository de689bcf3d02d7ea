"""The changes of a Postgres table, by logical replication: first the rows that are there, then what happens to them.

Every row has a count, as NET reads it: 1 for a row that comes, -1 for one that goes; an update is one of each. Changes
are taken from a slot, whole transactions at a time, by `pgoutput`. The slot is moved on when a run has been committed;
what is seen again after a crash is passed over by the position of the run.

Which changes are in the first rows already is told by transactions: those that were over in the snapshot of these rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import secrets
from anabranch.sources.base import CORRUPT, ORIGIN, PARTITION, Stretch
from anabranch.sources.database import BATCH_ROWS, SERVER_OPTIONS, name_parts
from anabranch.sources.lookup import arrow_schema
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
from anabranch.sources.registry import Kind, Opening, Option
from anabranch.types import Field

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Changes of a run, about, where nobody says so; and rows that are read on the driver.
MOST_CHANGES, NEAR_ROWS = 100_000, 200_000
#: So many bytes of a log that has nothing for us may be held back by the slot.
MOST_HELD = 16 << 20
_PADDED = 1042  # char(n)
#: The comment of a publication that we made.
_MADE = "made by anabranch"


class PostgresChanges:
    """The changes of one table."""

    endless = False
    idles = True
    typed = True
    cheap = False
    waits = False

    def __init__(self, opening: Opening) -> None:
        options = secrets.resolve(opening.options)
        self.slot = str(options["slot"])
        self.publication = str(options.get("publication", self.slot))
        self.count = str(options.get("count", "diff"))
        own = None if opening.fields is None else tuple(f for f in opening.fields if f.name != self.count)
        self.table = PostgresTable(options, own)
        self.spark = opening.spark
        self.scratch = opening.scratch
        self._relations: dict[int, Relation] = {}
        self._read: tuple[Any, str] | None = None  # the last stretch, and the file with its rows
        self._session: tuple[ExitStack, psycopg.Connection[Any]] | None = None

    def fields(self) -> tuple[Field, ...]:
        found = self.table.fields()
        if any(field.name.lower() == self.count.lower() for field in found):
            hint = "count => 'another_name' calls it something else"
            raise SourceError(f"the table {self.table.called} has a column {self.count} itself", hint=hint)
        with self._database() as database:
            self._check(database)
        return (*found, Field(self.count, "int"))

    def partitions(self) -> list[str]:
        return [""]

    # ---- stretches

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        with self._database() as database:
            if position is None:
                return self._first_rows(database)
            return self._changes(database, position, max_rows or MOST_CHANGES)

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
                rows = iter(lambda: cursor.fetchmany(BATCH_ROWS), [])
                path, count = self._written([(*row, 1) for row in some] for some in rows)
        captured = {"rows": count, "snapshot": snapshot}
        self._read = captured, path
        return Stretch({"snapshot": snapshot, "lsn": "0/0"}, captured, count * 100)

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
        path, _ = self._written([rows])
        captured = {"rows": len(rows), "lsn": [position["lsn"], lsn_text(end)]}
        self._read = captured, path
        return Stretch({**position, "lsn": lsn_text(end)}, captured, len(rows) * 100)

    def _peeked(
        self, database: psycopg.Connection[Any], position: Any, most: int
    ) -> tuple[list[tuple[Any, ...]], int | None]:
        """The next changes, and where they end; None if there are no transactions at all."""
        told = database.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1',"
            " 'publication_names', %s)",
            [self.slot, int(most), '"' + self.publication.replace('"', '""') + '"'],
        ).fetchall()
        rows: list[tuple[Any, ...]] = []
        end: int | None = None
        for messages, xid, over in _transactions(bytes(data) for (data,) in told):
            new = over > lsn_number(position["lsn"]) and not visible(xid, position["snapshot"])
            rows += self._rows_of(database, messages, skip=not new)
            end = over
        return rows, end

    def files_of(self, captured: Any) -> tuple[str, ...]:
        return ()

    def at_hand(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        import pyarrow.parquet as parquet

        if captured["rows"] > NEAR_ROWS:
            return None
        path = self._path(captured)
        return parquet.read_table(path, columns=None if columns is None else [n for n in self._names() if n in columns])

    def read(self, captured: list[Any]) -> DataFrame:
        spark: SparkSession = self.spark()
        types = [*(f"`{f.name.replace('`', '``')}` {f.type}" for f in self.table.fields()), f"`{self.count}` int"]
        reader = spark.read.schema(", ".join(types))
        frame = reader.parquet(*map(self._path, captured)) if captured else spark.createDataFrame([], ", ".join(types))
        return frame.selectExpr(
            "*", f"CAST(NULL AS STRING) AS {CORRUPT}", f"'slot {self.slot}' AS {ORIGIN}", f"'' AS {PARTITION}"
        )

    def verify(self, captured: list[Any]) -> None:
        """What was read is in a file of ours."""

    def committed(self, stretch: Stretch) -> None:
        with self._database() as database:
            self._advance(database, lsn_number(stretch.position["lsn"]))
        if self._read is not None:
            Path(self._read[1]).unlink(missing_ok=True)
            self._read = None

    def lag(self) -> int | None:
        with self._database() as database:
            text = "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
            found = database.execute(text, [self.slot]).fetchone()
        return None if found is None or found[0] is None else int(found[0])

    def left(self) -> None:
        """The slot is ours alone; a publication may be somebody else's, which its comment tells."""
        try:
            with connected(self.table.options, self.table.told) as database:
                text = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
                database.execute(text, [self.slot])
                ours = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
                if database.execute(ours, [self.publication]).fetchone() == (_MADE,):
                    database.execute(f"DROP PUBLICATION {self._publication_name}".encode())
        except SourceError as error:
            hint = f"in Postgres: SELECT pg_drop_replication_slot('{self.slot}')"
            told = f"the slot {self.slot} could not be dropped, and holds back the log of the server: {error.message}"
            raise SourceError(told, hint=hint) from error

    # ---- rows

    def _names(self) -> list[str]:
        return [*(field.name for field in self.table.fields()), self.count]

    def _path(self, captured: Any) -> str:
        if self._read is None or self._read[0] != captured:
            hint = "make the stream with KEEP ALL, as it is without a word"
            raise SourceError(f"changes are read once, and the slot {self.slot} has moved on", hint=hint)
        return self._read[1]

    def _written(self, batches: Any) -> tuple[str, int]:
        """A file with rows that end with their count, and how many they are."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        fields = self.table.fields()
        names = [field.name for field in fields]
        path, count = str(self.scratch() / f"changes-{uuid.uuid4().hex}.parquet"), 0
        schema = arrow_schema((*fields, Field(self.count, "int")))
        with parquet.ParquetWriter(path, schema) as writer:
            for rows in batches:
                counts = pa.array([row[-1] for row in rows], pa.int32())
                table = self.table.arrow(names, [row[:-1] for row in rows])
                writer.write_table(table.append_column(self.count, counts).cast(schema))
                count += len(rows)
        return path, count

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
                hint = "make the stream and its views anew; DELETE FROM tells which rows go"
                raise SourceError(f"{self.table.called} was truncated, which takes back rows unseen", hint=hint)
            relation = self._relations[message.relation]
            if (relation.schema, relation.name) == (self._schema, name_parts(self.table.called)[-1]):
                for values, count in ((message.old, -1), (message.new, 1)):
                    if values is not None:
                        found.append((*self._row(loaders, relation, values), count))
        return found

    def _row(self, loaders: Any, relation: Relation, values: Tuple) -> list[Any]:
        from psycopg.pq import Format

        told = {name: (type, value) for (name, type), value in zip(relation.columns, values, strict=True)}
        row: list[Any] = []
        for field in self.table.fields():
            if field.name not in told:
                hint = "bring it back; or make the stream and its views anew"
                raise SourceError(f"the table {self.table.called} has no column {field.name} any more", hint=hint)
            type, value = told[field.name]
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
            raise SourceError(f"{self.table.place} does not tell changes: its wal_level is {level}",
                              hint="wal_level = logical in postgresql.conf, and a restart")  # fmt: skip
        if identity != "f":
            raise SourceError(f"changes of {self.table.called} do not tell the rows as they were before",
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
            hint = "changes are missing from here on: make the stream and its views anew"
            told = f"the slot {self.slot} of {self.table.place} is gone, with all after {lsn_text(lsn)}"
            raise SourceError(told, hint=hint)
        if lsn_number(found[0][0]) < lsn:
            database.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.slot, lsn_text(lsn)])

    @contextmanager
    def _database(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection that stays: a slot is asked again and again."""
        if self._session is None:
            stack = ExitStack()
            self._session = stack, stack.enter_context(connected(self.table.options, self.table.told))
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
            Option(name="count", doc="the column that says whether a row comes (1) or goes (-1)", default="diff"),
        ),
        stream=_open,
        check=_check,
        reads_once=True,
        modules=("psycopg",),
        extra="postgres",
        abilities=("rows that come and go, for NET",),
    ),
)
