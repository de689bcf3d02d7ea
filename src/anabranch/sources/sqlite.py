"""A table of an SQLite database: `sqlite(path => 'crm.db', table => 'customers')`.

Names are quoted and keys are parameters. Each request has a connection of its own that can only read.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError, did_you_mean
from anabranch.sources.database import RowsAsArrow
from anabranch.sources.lookup import ASKING_OPTIONS, Comparison, Unreachable, check_asking, chosen
from anabranch.sources.registry import Kind, Option, WrongOption
from anabranch.sources.sqlite_conditions import INTEGERS, NUMBERS, affinity, condition
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

#: SQLite takes so many parameters a statement, however it was built.
MOST_PARAMETERS = 900
#: How long a request waits for somebody who writes.
PATIENCE = 5.0


class SqliteTable(RowsAsArrow):
    """A table or view of a database file."""

    kind = "sqlite"

    def __init__(self, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> None:
        self.path = str(options["path"])
        self.table = str(options["table"])
        self.place, self.called = self.path, self.table
        self._declared = declared
        self._fields: tuple[Field, ...] | None = None
        self._outside: dict[str, str] = {}  # the types that columns were declared as there

    def fields(self) -> tuple[Field, ...]:
        if self._fields is None:
            if not os.path.exists(self.path):
                raise WrongOption("path", f"there is no file {self.path}", hint="a relative path starts here")
            with self._open() as database:
                described = database.execute("SELECT name, type FROM pragma_table_info(?)", (self.table,)).fetchall()
                found = [Field(name, spark_type(type)) for name, type in described]
                self._outside = dict(described)
                if not found:
                    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master")]
                    hint = did_you_mean(self.table, tables)
                    raise WrongOption("table", f"{self.path} has no table {self.table}", hint=hint)
            self._fields = chosen(found, self._declared)
        return self._fields

    def size(self) -> int | None:
        with self._open() as database:
            return int(database.execute(f"SELECT count(*) FROM {quoted(self.table)}").fetchone()[0])

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        if not all(self._kept_as_it_is(field) for field in self.fields() if field.name in by):
            wide, places = self.search((*columns, *by), tuple(Comparison(name, "=") for name in by), keys)
            found = zip(*(wide.column(len(columns) + index).to_pylist() for index in range(len(by))), strict=True)
            own = [row for row, (key, place) in enumerate(zip(found, places, strict=True)) if key == keys[place]]
            return wide.select(list(range(len(columns)))).take(own)
        rows: list[tuple[Any, ...]] = []
        at_once = max(1, MOST_PARAMETERS // len(by))
        with self._open() as database:
            for start in range(0, len(keys), at_once):
                some = keys[start : start + at_once]
                marks = f"({', '.join('?' * len(by))})"
                names = ", ".join(map(quoted, by))
                text = (
                    f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(self.table)}"
                    f" WHERE ({names}) IN (VALUES {', '.join([marks] * len(some))})"
                )
                rows += database.execute(text, [parameter(value) for key in some for value in key]).fetchall()
        return self.arrow(columns, rows)

    def search(
        self, columns: tuple[str, ...], comparisons: tuple[Comparison, ...], keys: Sequence[tuple[Any, ...]]
    ) -> tuple[pa.Table, list[int]]:
        types = {field.name: field.type for field in self.fields()}
        tests, names, values = [], ["k0"], []
        for each in comparisons:
            column = f"t.{quoted(each.column)}".replace("{", "{{").replace("}", "}}")
            test = condition(column, affinity(self._outside[each.column]), types[each.column], each.sign)
            own = [f"k{len(names) + index}" for index in range(test.count)]
            tests.append(test.text.format(*(f"k.{name}" for name in own)))
            names += own
            values.append(test.values)
        # The keys come first: for each of them an index of the table is of use.
        shown = ", ".join(["k.k0", *(f"t.{quoted(column)}" for column in columns)])
        question = f"SELECT {shown} FROM k CROSS JOIN main.{quoted(self.table)} AS t WHERE {' AND '.join(tests)}"
        marks = f"({', '.join('?' * len(names))})"
        at_once = max(1, MOST_PARAMETERS // len(names))
        rows: list[tuple[Any, ...]] = []
        with self._open() as database:
            for start in range(0, len(keys), at_once):
                some = list(enumerate(keys[start : start + at_once], start))
                given: list[Any] = []
                for place, key in some:
                    given.append(place)
                    for made, value in zip(values, key, strict=True):
                        given += made(value)
                text = f"WITH k({', '.join(names)}) AS (VALUES {', '.join([marks] * len(some))}) {question}"
                rows += database.execute(text, given).fetchall()
        return self.arrow(columns, [row[1:] for row in rows]), [row[0] for row in rows]

    def read(self) -> pa.Table:
        names = tuple(field.name for field in self.fields())
        with self._open() as database:
            text = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(self.table)}"
            return self.arrow(names, database.execute(text).fetchall())

    def _kept_as_it_is(self, field: Field) -> bool:
        """Whether equal values of a column are equal in SQLite: they have the type that it was declared as there."""
        kind = affinity(self._outside[field.name])
        if field.type in INTEGERS:
            return kind in NUMBERS
        return spark_type(self._outside[field.name]) == field.type and (field.type != "string" or kind == "TEXT")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        address = f"{Path(os.path.abspath(self.path)).as_uri()}?mode=ro"
        try:
            database = sqlite3.connect(address, uri=True, timeout=PATIENCE)
            database.text_factory = lambda raw: raw.decode(errors="replace")
            try:
                yield database
            finally:
                database.close()
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                hint = "the table was changed outside; put it back, or make the table and its views anew"
                raise SourceError(f"{self.path}: {error}", hint=hint) from error
            raise Unreachable(f"{self.path}: {error}") from error
        except sqlite3.Error as error:
            raise SourceError(f"{self.path}: {error}") from error


def quoted(name: str) -> str:
    """A name as SQLite never takes for anything else; in double quotes it would be a text if no column had it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def parameter(value: Any) -> Any:
    """A value as SQLite keeps it: days are texts."""
    return value.isoformat() if isinstance(value, date) else value


def spark_type(declared: str) -> str:
    """The type of a column by what it was declared as; SQLite itself keeps whatever it is given.

    >>> [spark_type(each) for each in ("INTEGER", "varchar(20)", "DECIMAL(10, 2)", "DATETIME", "")]
    ['bigint', 'string', 'decimal(10,2)', 'timestamp', 'string']
    """
    upper = declared.upper()
    exact = re.fullmatch(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", upper)
    if exact is not None:
        return f"decimal({exact.group(1)},{exact.group(2) or 0})"
    for part, type in (
        ("BOOL", "boolean"), ("DATETIME", "timestamp"), ("TIMESTAMP", "timestamp"), ("DATE", "date"), ("INT", "bigint"),
        ("CHAR", "string"), ("CLOB", "string"), ("TEXT", "string"), ("BLOB", "binary"), ("REAL", "double"),
        ("FLOA", "double"), ("DOUB", "double"), ("DEC", "double"), ("NUM", "double"),
    ):  # fmt: skip
        if part in upper:
            return type
    return "string"


KINDS = (
    Kind(
        name="sqlite",
        doc="a table or view of an SQLite file",
        example="sqlite(path => 'crm.db', table => 'customers')",
        options=(
            Option(name="path", doc="the database file", required=True),
            Option(name="table", doc="a table or view in it", required=True),
            *ASKING_OPTIONS,
        ),
        table=SqliteTable,
        check=check_asking,
        abilities=("read by key", "read by comparison"),
    ),
)
