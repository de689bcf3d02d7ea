"""A table of an SQLite database: `sqlite(path => 'crm.db', table => 'customers')`.

Names are quoted and values are parameters. Each question has a connection of its own that can only read.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from decimal import InvalidOperation
from pathlib import Path
from typing import Any

from anabranch.errors import SourceError
from anabranch.sources.database import INTEGERS, Cursor, RemoteColumn, Row, Sql, order_with_least_nulls, value_of
from anabranch.sources.database_file import FileTable, file_kind
from anabranch.sources.lookup import Unreachable
from anabranch.sources.sqlite_conditions import NUMBERS, Condition, affinity, behind, condition
from anabranch.sources.sqlite_exact import compared, exact_sql, restored, shortened
from anabranch.sources.wanted import All, Order, Test
from anabranch.types import Field

#: How long a question waits for somebody who writes.
PATIENCE = 5.0
#: Longer lists are said by their ends.
MOST_ALTERNATIVES = 100
#: Before the affinity of a column that has values of one kind only.
_STRICT = "strict "
#: A primary key that is the number of a row has no index.
_NO_KEY_INDEX = "SELECT NOT EXISTS (SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk')"
_IS_STRICT = "SELECT strict FROM pragma_table_list(?) WHERE schema = 'main'"


class SqliteTable(FileTable):
    """A table or view of a database file, which keeps whatever it is given in any column."""

    kind = "sqlite"
    quote = "`"  # in double quotes a name would be a text if no column had it
    most_parameters = 900  # SQLite takes so many a statement, however it was built
    values_per_comparison = 4
    rows_word = "VALUES "
    _bytewise = True  # whether texts compare by their bytes in UTF-8

    @property
    def relation(self) -> str:
        return f"main.{self.quoted(self.called)} AS {self.alias}"

    def natural_columns(self) -> list[RemoteColumn]:
        self.check_file()
        with self.open() as cursor:
            named = (self.called,)
            found = _rows(cursor, "SELECT name, type, pk FROM pragma_table_info(?)", named)
            if not found:
                raise self.no_table(name for (name,) in _rows(cursor, "SELECT name FROM sqlite_master"))
            self._bytewise = _rows(cursor, "PRAGMA encoding") == [("UTF-8",)]
            strict = sqlite3.sqlite_version_info >= (3, 37) and _rows(cursor, _IS_STRICT, named) == [(1,)]
            keys = [(name, declared.upper()) for name, declared, key in found if key]
            numbers = [(name, "INTEGER") for name, _ in keys] if _rows(cursor, _NO_KEY_INDEX, named) == [(1,)] else []
        own = keys[0][0] if len(keys) == 1 and keys == numbers else None
        return [self._natural(name, declared, strict or name == own) for name, declared, _ in found]

    def _natural(self, name: str, declared: str, strict: bool) -> RemoteColumn:
        type, kind = spark_type(declared), affinity(declared)
        outside = f"{_STRICT if strict and kind in ('INTEGER', 'REAL') else ''}{kind}"
        return RemoteColumn(name, type, f"{self.alias}.{self.quoted(name)}", outside, _comparable(type, kind))

    def _as(self, column: RemoteColumn, type: str) -> RemoteColumn:
        kind = column.outside.removeprefix(_STRICT)
        return column if type == column.type else replace(
            column, type=type, outside=kind, comparable=_comparable(type, kind)
        )  # fmt: skip

    def value(self, value: Any, field: Field) -> Any:
        return value_of(value, field.type)

    def parameter(self, column: RemoteColumn, value: Any) -> Any:
        return value.isoformat() if isinstance(value, date) else value

    def plain(self, text: str) -> str:
        return shortened(text)

    # ---- comparisons

    def test(self, column: RemoteColumn, test: Test, *, exact: bool) -> Sql | None:
        """Where it has to be exact, a condition that finds more comes first: an index is of use for it."""
        if test.sign == "STARTS WITH":
            (start,) = test.values
            end = behind(start)
            upper = [] if end is None else [Test(column.name, "<", (end,))]
            return self.condition_sql(All((Test(column.name, ">=", (start,)), *upper)), exact=exact)
        value = self.ordered_sql(column)
        certain = value == column.read
        loose = None if certain else self._loose(column, test)
        if value is None or not (exact or certain or test.sign == "IS TRUE"):
            return None if exact else loose
        if test.sign == "IS TRUE":
            return value, []
        values = [compared(each, column.type) for each in test.values]
        marks = ", ".join("?" * len(values))
        text = f"{value} {test.sign} {f'({marks})' if test.sign == 'IN' else marks}"
        if loose is None:
            return text, values
        return f"({loose[0]} AND {text})", [*loose[1], *values]

    def _loose(self, column: RemoteColumn, test: Test) -> Sql | None:
        """What is true of every row for which a test is; None if that says nothing."""
        sign, values = test.sign, test.values
        if sign == "IS TRUE" or any(each != each for each in values):
            return None
        if column.type == "string" and not self._decided(sign, values):
            return None
        tests = [("=", each) for each in values] if sign == "IN" else [(sign, values[0])]
        if len(tests) > MOST_ALTERNATIVES:
            ends = (Test(column.name, ">=", (min(values),)), Test(column.name, "<=", (max(values),)))
            return self.condition_sql(All(ends), exact=False)
        parts = [(self._condition(column, each), value) for each, value in tests]
        text = " OR ".join(found.text.format(*["?"] * found.count) for found, _ in parts)
        given = [one for found, value in parts for one in found.values(value)]
        return f"({text})" if len(parts) > 1 else text, given

    def _decided(self, sign: str, values: Sequence[str]) -> bool:
        """Whether bytes that are no UTF-8 compare with these texts as the signs that stand for them do."""
        if sign in ("=", "IN"):
            return not any("\ufffd" in each for each in values)
        return self._bytewise and all(map(str.isascii, values))

    def _condition(self, column: RemoteColumn, sign: str) -> Condition:
        ranged = sign in ("<", "<=", ">", ">=")
        sign = "<>" if ranged and column.type == "string" and not self._bytewise else sign
        read = column.read.replace("{", "{{").replace("}", "}}")
        return condition(read, column.outside.removeprefix(_STRICT), column.type, sign)

    def exact_sql(self, column: RemoteColumn) -> str | None:
        return None if column.type == "double" else self.ordered_sql(column)

    def ordered_sql(self, column: RemoteColumn) -> str | None:
        if column.outside.startswith(_STRICT):
            return column.read
        if column.type == "string" and not self._bytewise:
            return None
        return exact_sql(column.read, column.name, column.type)

    def exact_value(self, column: RemoteColumn, value: Any) -> Any:
        return restored(value, column.type)

    def sum_sql(self, exact: str) -> tuple[str, ...]:
        """In halves: a sum that is too large, if only for a while, is an error in SQLite."""
        return f"sum(({exact}) >> 32)", f"sum(({exact}) & 4294967295)"

    def total(self, parts: Sequence[Any]) -> Any:
        high, low = parts
        return (high << 32) + low

    def pair_sql(self, left: RemoteColumn, sign: str, right: RemoteColumn) -> str | None:
        """Whole numbers: other pairs SQLite finds by trying each with each."""
        both = super().pair_sql(left, sign, right)
        plain = f"{left.read} {sign} {right.read}"
        if both is None or both == plain:
            return both
        whole = left.type in INTEGERS and left.comparable and right.comparable
        return f"{plain} AND {both}" if whole else None

    def order_sql(self, column: RemoteColumn, order: Order) -> str | None:
        text = self.ordered_sql(column)
        return None if text is None else order_with_least_nulls(column.read, text, order)

    def search_sql(self, comparisons: Sequence[tuple[RemoteColumn, str]], keys: Sequence[tuple[int, Row]]) -> Sql:
        """The keys come first: for each of them an index of the table is of use."""
        tests, names, made = [], ["column1 AS k0"], []
        for column, sign in comparisons:
            found = self._condition(column, sign)
            own = [f"k{len(names) + index}" for index in range(found.count)]
            tests.append(found.text.format(*(f"k.{name}" for name in own)))
            names += [f"column{int(name[1:]) + 1} AS {name}" for name in own]
            made.append(found.values)
        marks = f"({', '.join('?' * len(names))})"
        rows = f"SELECT {', '.join(names)} FROM (VALUES {', '.join([marks] * len(keys))})"
        values: list[Any] = []
        for place, key in keys:
            values.append(place)
            for each, value in zip(made, key, strict=True):
                values += each(value)
        return f"FROM ({rows}) AS k CROSS JOIN {self.relation} WHERE {' AND '.join(tests)}", values

    # ---- connections

    @contextmanager
    def open(self, *, streaming: bool = False) -> Iterator[Cursor]:
        address = f"{Path(os.path.abspath(self.path)).as_uri()}?mode=ro"
        wrong: list[SourceError] = []

        def typed(value: Any, type: str, name: str) -> Any:
            try:
                return compared(value_of(value, type), type)
            except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
                wrong.append(self.wrong_value(Field(name, type), error))
                raise

        try:
            database = sqlite3.connect(address, uri=True, timeout=PATIENCE)
            database.text_factory = lambda raw: raw.decode(errors="replace")
            try:
                database.create_function("typed", 3, typed, deterministic=True)
                yield database.cursor()
            finally:
                database.close()
        except sqlite3.OperationalError as error:
            if wrong:
                raise wrong[0] from None
            if "no such" in str(error):
                hint = "the table was changed outside; put it back, or recreate the table and its views"
                raise SourceError(self.error_text(error), hint=hint) from error
            done = "ask again when whoever writes to it is done"
            raise Unreachable(self.error_text(error), hint=done if "locked" in str(error) else None) from error
        except sqlite3.Error as error:
            other = "name a file that SQLite wrote" if "not a database" in str(error) else None
            raise SourceError(self.error_text(error), hint=other) from error


def _rows(cursor: Cursor, text: str, values: Any = ()) -> list[Row]:
    cursor.execute(text, values)
    return list(cursor.fetchall())


def _comparable(type: str, kind: str) -> bool:
    """Whether equal values of a column are equal in SQLite."""
    return kind in NUMBERS if type in INTEGERS else type == "string" and kind == "TEXT"


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


KINDS = (file_kind(SqliteTable, "a table or view of an SQLite file", "sqlite(path => 'crm.db', table => 'customers')"),)
