"""Tables of databases on the network: what says where they are, and connections that stay for the next question."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from anabranch.errors import SourceError
from anabranch.sources.database import INTEGERS, Cursor, DatabaseTable, RemoteColumn, Sql
from anabranch.sources.lookup import LARGE_ROWS
from anabranch.sources.registry import Option
from anabranch.sources.wanted import Wanted
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What to look at where nobody answers.
IS_IT_THERE = "is the server running, and are host and port right?"
#: Rows that a task reads of a large table.
PIECE_ROWS, MOST_PIECES = 250_000, 64
#: How long a connection that nobody uses is kept.
KEPT_SECONDS = 10.0
#: Options of every database that is asked over the network.
SERVER_OPTIONS = (
    Option(name="host", doc="where the server is", default="localhost"),
    Option(name="database", doc="which one of it", required=True),
    Option(name="user", doc="who asks", required=True),
    Option(name="password", doc="of the user, as env('NAME') or secret('name')", secret=True),
    Option(
        name="tls",
        doc="whether the connection is encrypted",
        default="prefer",
        choices=("disable", "prefer", "require", "verify-full"),
    ),
    Option(
        name="ca", doc="a file with the certificates that are trusted, with tls => 'verify-full'; else the driver's"
    ),
)


def port_option(port: int) -> Option:
    return Option(name="port", doc="of the server", type="whole", default=port, low=1, high=65535)


class Connections(list[tuple[float, ExitStack, Cursor]]):
    """Connections to a server that nobody uses now, since when; gone with the last table that asks there."""


_CONNECTIONS: WeakValueDictionary[tuple[Any, ...], Connections] = WeakValueDictionary()


class ServerTable(DatabaseTable):
    """A table, view or query of a database on the network."""

    default_port: int

    def __init__(self, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> None:
        self.password = str(options.get("password", ""))
        self.port = int(options.get("port", self.default_port))
        place = f"{options.get('host', 'localhost')}:{self.port}/{options['database']}"
        server = (self.kind, *((option.name, options.get(option.name)) for option in SERVER_OPTIONS), self.port)
        super().__init__(options, declared, place, server)
        self._kept = _CONNECTIONS.setdefault(server, Connections())

    @abstractmethod
    def estimate(self, cursor: Cursor) -> int | None:
        """How many rows the server thinks there are, without counting."""

    @abstractmethod
    def primary_key(self) -> str | None:
        """The column that is the primary key, if it is one."""

    def __getstate__(self) -> dict[str, Any]:
        """Tasks connect for themselves."""
        return {**self.__dict__, "_kept": Connections()}

    @contextmanager
    def asking(self) -> Iterator[Cursor]:
        """A cursor of a connection that stays for the next question: making one takes longer than most answers.

        One that nobody has used for a while may be gone at the other end, and is not used again.
        """
        stack = ExitStack()
        cursor = None
        while cursor is None and self._kept:
            with suppress(IndexError, SourceError):  # somebody else was quicker, or the server is gone
                since, kept, found = self._kept.pop()
                if monotonic() - since < KEPT_SECONDS:
                    stack, cursor = kept, found
                else:
                    kept.close()
        if cursor is None:
            cursor = stack.enter_context(self.open())
        try:
            yield cursor
        except BaseException as error:
            stack.__exit__(type(error), error, error.__traceback__)  # tells it as one of ours
            raise
        self._kept.append((monotonic(), stack, cursor))

    def size(self) -> int | None:
        with self.asking() as cursor:
            guess = None if "query" in self.options else self.estimate(cursor)
            if guess is not None and guess > LARGE_ROWS:
                return guess
            text = f"SELECT count(*) FROM (SELECT 1 FROM {self.relation} LIMIT {LARGE_ROWS + 1}) AS c"
            cursor.execute(text, ())
            return int(cursor.fetchall()[0][0])

    def into_files(self, spark: SparkSession, wanted: Wanted, rows: int, folder: Path) -> list[str]:
        return read_pieces(spark, self, self.pieces(wanted, rows), self.wanted_columns(wanted), folder)

    def pieces(self, wanted: Wanted, rows: int) -> list[Sql]:
        """What is wanted, cut by the key so that several can read at once; one piece where that cannot be."""
        key = self._cutting_column()
        if key is None or wanted.limit is not None:
            return [self.question(wanted)]
        low, high = self.rows(f"SELECT min({key.read}), max({key.read}) FROM {self.relation}")[0]
        if low is None:
            return [self.question(wanted)]
        count = max(1, min(MOST_PIECES, -(-rows // PIECE_ROWS), high - low + 1))
        found: list[Sql] = []
        for index in range(count):
            first = None if index == 0 else low + (high - low + 1) * index // count
            last = None if index == count - 1 else low + (high - low + 1) * (index + 1) // count
            tests = [] if first is None else [f"{key.read} >= {int(first)}"]
            tests += [] if last is None else [f"{key.read} < {int(last)}"]
            # Where the key is NULL a row is in the first piece.
            own = " AND ".join(tests) or "TRUE"
            own = f"({own} OR {key.read} IS NULL)" if first is None else own
            found.append(self.question(wanted, own))
        return found

    def _cutting_column(self) -> RemoteColumn | None:
        name = self.options.get("key") or self.primary_key()
        column = self.columns().get(str(name)) if name else None
        return column if column is not None and column.comparable and column.type in INTEGERS else None

    def error_text(self, error: object) -> str:
        """What went wrong, without the password."""
        text = str(error)
        return super().error_text(text.replace(self.password, "***") if self.password else text)


def read_pieces(
    spark: SparkSession, source: DatabaseTable, pieces: Sequence[Sql], columns: Sequence[str], folder: Path
) -> list[str]:
    """Parquet files with the rows of statements, each read by a task."""

    def read(number: int) -> str:
        return source.into_file(pieces[number], columns, folder)

    found: list[str] = spark.sparkContext.parallelize(range(len(pieces)), len(pieces)).map(read).collect()
    return found
