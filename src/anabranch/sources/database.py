"""What tables of databases have in common: statements with quoted names and bound values, and rows as Arrow.

A kind of database says how it connects, which columns a table has, and how its SQL compares with values of Spark's.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from anabranch.errors import SourceError, did_you_mean
from anabranch.sources.lookup import LARGE_ROWS, Comparison, arrow_schema, chosen
from anabranch.sources.registry import Option, WrongOption
from anabranch.sources.values import decimal_of
from anabranch.sources.wanted import EVERYTHING, All, Condition, Not, Order, Some, Test, Wanted
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from typing_extensions import Self

Row: TypeAlias = tuple[Any, ...]
#: A piece of SQL and the values of its marks.
Sql: TypeAlias = tuple[str, list[Any]]
#: Rows that are sent at once.
BATCH_ROWS = 10_000
#: Rows that are asked for at once where it is not known how many there are.
FEW_ROWS = 20_000
INTEGERS = ("tinyint", "smallint", "int", "bigint")
#: Values that are read as they come, whatever the database.
_UNCHANGED = {**dict.fromkeys(INTEGERS, int), "string": str, "double": float, "binary": bytes}
#: Texts that are numbers, and those that begin with a day.
_NUMBER = re.compile(r"[ \t\n\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\f\r]*")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAME = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')

READING_OPTIONS = (
    Option(name="table", doc="a table or view, with its schema if need be: 'sales.orders'"),
    Option(name="query", doc="a query in the words of the database, in the place of a table"),
    Option(name="key", doc="a column that only grows: streams go by it, and reads of large tables are cut by it"),
    Option(name="lag", doc="of a stream: so many keys, or so long, it stays behind, for rows that are committed late"),
)


@dataclass(frozen=True)
class RemoteColumn:
    """A column outside: its type in Spark, the SQL that reads it, and whether SQL compares it as Spark does."""

    name: str
    type: str
    read: str
    outside: str = ""  # the type there, where it matters
    comparable: bool = True


class Cursor(Protocol):
    """What the cursors of all drivers have in common."""

    def execute(self, text: Any, values: Any = ..., /) -> Any: ...
    def fetchall(self) -> Any: ...
    def fetchmany(self, size: int, /) -> Any: ...


class RowsAsArrow(ABC):
    """Rows of a driver as Arrow, by the types of the columns."""

    kind: str
    place: str  # where the table is, for messages
    called: str  # what it is called, for messages

    @abstractmethod
    def fields(self) -> tuple[Field, ...]: ...

    def arrow(self, columns: Sequence[str], rows: Sequence[Row]) -> pa.Table:
        import pyarrow as pa

        types = {field.name: field for field in self.fields()}
        fields = [types[name] for name in columns]
        schema = arrow_schema(fields)
        arrays = []
        for index, field in enumerate(fields):
            try:
                values = [row[index] for row in rows]
                if not {_UNCHANGED.get(field.type), type(None)}.issuperset(map(type, values)):
                    values = [self.value(each, field) for each in values]
                arrays.append(pa.array(values, type=schema.field(index).type))
            except (ValueError, TypeError, InvalidOperation, OverflowError, pa.ArrowException) as error:
                raise self.wrong_value(field, error) from error
        return pa.Table.from_arrays(arrays, schema=schema)

    def wrong_value(self, field: Field, error: object) -> SourceError:
        return SourceError(
            f"{self.place}: a value of {self.called}.{field.name} is no {field.type.upper()}: {error}",
            hint=f"give the column another type: CREATE TABLE t ({field.name} STRING, ...) FROM {self.kind}(...)",
        )

    def value(self, value: Any, field: Field) -> Any:
        """A value as one of a column's type."""
        return value_of(value, field.type)


class DatabaseTable(RowsAsArrow, ABC):
    """A table, view or query of a database that computes what queries want of it."""

    quote: str
    marks = "%s"  # what stands for a value in a statement
    most_parameters: int
    values_per_comparison = 1  # at the most, of `search_sql`
    rows_word = ""  # what stands before rows of values
    alias = "t"  # what a statement calls the table
    near = False  # whether only this machine is sure to reach it

    def __init__(
        self, options: Mapping[str, Any], declared: tuple[Field, ...] | None, place: str, database: tuple[Any, ...]
    ) -> None:
        self.options = dict(options)
        self.place = place
        self.database = database  # what is the same for tables that one statement can join
        self.called = str(options.get("table", "the query"))
        self._declared = declared
        self._columns: dict[str, RemoteColumn] = {}

    # ---- what a kind of database says

    @abstractmethod
    def open(self, *, streaming: bool = False) -> AbstractContextManager[Cursor]:
        """A cursor of a connection of its own, which can only read; errors are told as ours."""

    def asking(self) -> AbstractContextManager[Cursor]:
        """A cursor for a question or a few, of a connection that may stay for others."""
        return self.open()

    @abstractmethod
    def natural_columns(self) -> list[RemoteColumn]:
        """The columns with the types that are theirs by nature."""

    @abstractmethod
    def as_text(self, column: RemoteColumn) -> str:
        """The SQL that reads a column as a text."""

    @abstractmethod
    def size(self) -> int | None: ...

    @abstractmethod
    def test(self, column: RemoteColumn, test: Test, *, exact: bool) -> Sql | None:
        """A comparison; `exact`, or true of rows too many. None if it cannot be said."""

    @abstractmethod
    def order_sql(self, column: RemoteColumn, order: Order) -> str | None: ...

    @abstractmethod
    def exact_sql(self, column: RemoteColumn) -> str | None:
        """A column as values that are equal, less and greater as those in Spark are; None if there is no such thing."""

    @abstractmethod
    def search_sql(self, comparisons: Sequence[tuple[RemoteColumn, str]], keys: Sequence[tuple[int, Row]]) -> Sql:
        """FROM and WHERE with the keys as `k`, whose places are `k.k0`, and the table as `t`."""

    # ---- names

    def quoted(self, name: str) -> str:
        """A name as a name and nothing else; in a per cent sign a driver may see a mark."""
        text = self.quote + name.replace(self.quote, self.quote * 2) + self.quote
        return text.replace("%", "%%") if self.marks == "%s" else text

    @property
    def relation(self) -> str:
        """What stands behind FROM."""
        if "query" in self.options:
            query = str(self.options["query"]).strip().removesuffix(";").replace("%", "%%")
            return f"({query}\n) AS {self.alias}"
        return f"{'.'.join(map(self.quoted, name_parts(self.called)))} AS {self.alias}"

    def called_by(self, alias: str) -> Self:
        """The same table under another name in statements."""
        found = copy(self)
        found.alias, found._columns = alias, {}
        return found

    def columns(self) -> dict[str, RemoteColumn]:
        if not self._columns:
            natural = {column.name: column for column in self.natural_columns()}
            found = chosen([Field(column.name, column.type) for column in natural.values()], self._declared)
            self._columns = {field.name: self._as(natural[field.name], field.type) for field in found}
        return self._columns

    def _as(self, column: RemoteColumn, type: str) -> RemoteColumn:
        if type == column.type:
            return column
        read = self.as_text(column) if type == "string" else column.read
        return RemoteColumn(column.name, type, read, "", comparable=False)

    # ---- the protocol of tables outside

    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(column.name, column.type) for column in self.columns().values())

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[Row]) -> pa.Table:
        known = self.columns()
        if not all(known[name].comparable for name in by):
            wide, places = self.search((*columns, *by), tuple(Comparison(name, "=") for name in by), keys)
            found = zip(*(wide.column(len(columns) + index).to_pylist() for index in range(len(by))), strict=True)
            own = [row for row, (key, place) in enumerate(zip(found, places, strict=True)) if key == keys[place]]
            return wide.select(list(range(len(columns)))).take(own)
        keys = [key for key in keys if all(map(self.can_equal, (known[name] for name in by), key))]
        rows: list[Row] = []
        at_once = max(1, self.most_parameters // len(by))
        with self.asking() as cursor:
            for start in range(0, len(keys), at_once):
                text, values = self.among([known[name] for name in by], keys[start : start + at_once])
                cursor.execute(f"{self._select(columns)} WHERE {text}", values)
                rows += cursor.fetchall()
        return self.arrow(columns, rows)

    def search(
        self, columns: tuple[str, ...], comparisons: tuple[Comparison, ...], keys: Sequence[Row]
    ) -> tuple[pa.Table, list[int]]:
        known = self.columns()
        shown = ", ".join(["k.k0", *(known[name].read for name in columns)])
        pairs = [(known[each.column], each.sign) for each in comparisons]
        at_once = max(1, self.most_parameters // (len(pairs) * self.values_per_comparison + 1))
        rows: list[Row] = []
        with self.asking() as cursor:
            for start in range(0, len(keys), at_once):
                text, values = self.search_sql(pairs, [*enumerate(keys[start : start + at_once], start)])
                cursor.execute(f"SELECT {shown} {text}", values)
                rows += cursor.fetchall()
        return self.arrow(columns, [row[1:] for row in rows]), [int(row[0]) for row in rows]

    def read(self, wanted: Wanted = EVERYTHING) -> pa.Table:
        return self.answer(self.question(wanted), self.wanted_columns(wanted))

    def few(self, wanted: Wanted) -> pa.Table | None:
        """What is wanted by a condition, if these are few rows: one statement, where counting first would be two."""
        if wanted.condition is None or wanted.limit is not None:
            return None
        text, values = self.question(wanted)
        found = self.answer((f"{text} LIMIT {FEW_ROWS + 1}", values), self.wanted_columns(wanted))
        return found if len(found) <= FEW_ROWS else None

    # ---- what kinds of databases say otherwise where they have to

    def mark(self, column: RemoteColumn) -> str:
        """What stands for a value of this column in a statement."""
        return self.marks

    def ordered_sql(self, column: RemoteColumn) -> str | None:
        """A column as values that are less and greater as those in Spark are; equal ones may differ there."""
        return column.read if column.comparable and column.type == "double" else self.exact_sql(column)

    def pair_sql(self, left: RemoteColumn, sign: str, right: RemoteColumn) -> str | None:
        """A comparison of columns of two tables, exactly; None if it cannot be said."""
        one, other = self.exact_sql(left), self.exact_sql(right)
        return None if one is None or other is None or left.type != right.type else f"{one} {sign} {other}"

    def sum_sql(self, exact: str) -> tuple[str, ...]:
        """What `total` makes the sum of a column of."""
        return (f"sum({exact})",)

    def total(self, parts: Sequence[Any]) -> Any:
        return parts[0]

    def exact_value(self, column: RemoteColumn, value: Any) -> Any:
        """What a value of `exact_sql`, or a sum of such, is in Spark; texts that are compared may come as bytes."""
        return value.decode() if isinstance(value, bytes) and column.type == "string" else value

    def value(self, value: Any, field: Field) -> Any:
        return value if self.columns()[field.name].comparable else super().value(value, field)

    def can_equal(self, column: RemoteColumn, value: Any) -> bool:
        """Whether a value can be one of a column: one that cannot be sent equals nothing."""
        return True

    def parameter(self, column: RemoteColumn, value: Any) -> Any:
        return value

    def key_sql(self, column: RemoteColumn, values: Sequence[Any]) -> str:
        """A column as it is compared with these values."""
        return column.read

    def among(self, columns: Sequence[RemoteColumn], keys: Sequence[Row]) -> Sql:
        """Whether columns have the values of one of these keys."""
        names = ", ".join(self.key_sql(each, [key[at] for key in keys]) for at, each in enumerate(columns))
        marks = ", ".join(map(self.mark, columns))
        values = [self.parameter(each, value) for key in keys for each, value in zip(columns, key, strict=True)]
        return f"({names}) IN ({self.rows_word}{', '.join([f'({marks})'] * len(keys))})", values

    # ---- what is asked

    def question(self, wanted: Wanted, also: str = "") -> Sql:
        """The statement that gives what is wanted, of the rows of which `also` holds, and its values."""
        where, values = self._where(wanted.condition) or ("", [])
        order, limit = "", ""
        if wanted.limit is not None:
            found = [self.order_sql(self.columns()[each.column], each) for each in wanted.order]
            exact = None if wanted.condition is None else self.condition_sql(wanted.condition, exact=True)
            if None not in found and (exact is not None or wanted.condition is None):
                where, values = exact or ("", [])
                order = f" ORDER BY {', '.join(map(str, found))}" if found else ""
                limit = f" LIMIT {int(wanted.limit)}"
        where = f"({where}) AND {also}" if where and also else where or also
        return f"{self._select(self.wanted_columns(wanted))}{f' WHERE {where}' if where else ''}{order}{limit}", values

    def count(self, wanted: Wanted) -> int:
        """About how many rows are wanted; of more than are loaded at once, whether there are more."""
        if wanted.limit is not None or wanted.condition is None:
            size = self.size() or 0
            return size if wanted.limit is None else min(size, wanted.limit)
        text, values = self.question(Wanted(tuple(self.columns())[:1], wanted.condition))
        found = self.rows(f"SELECT count(*) FROM ({text} LIMIT {LARGE_ROWS + 1}) AS c", values)[0][0]
        return int(found) if found <= LARGE_ROWS else max(self.size() or 0, LARGE_ROWS + 1)

    def shown(self, query: Sql) -> str:
        """A statement and its values, for people."""
        text, values = query
        listed = ", ".join(repr(value) if isinstance(value, str | bytes) else str(value) for value in values)
        return f"{self.plain(text)}{f' with {listed}' if listed else ''}"

    def plain(self, text: str) -> str:
        """A piece of SQL as it reaches the database."""
        return text.replace("%%", "%") if self.marks == "%s" else text

    def answer(self, query: Sql, columns: Sequence[str]) -> pa.Table:
        """The rows of a statement."""
        return self.arrow(columns, self.rows(*query))

    def batches(self, query: Sql, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a statement, some at a time."""
        with self.open(streaming=True) as cursor:
            cursor.execute(*query)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield from self.arrow(columns, rows).to_batches()

    def into_files(self, spark: SparkSession, wanted: Wanted, rows: int, folder: Path) -> list[str]:
        """Parquet files with what is wanted, of which there are about so many rows."""
        return [self.into_file(self.question(wanted), self.wanted_columns(wanted), folder)]

    def into_file(self, query: Sql, columns: Sequence[str], folder: Path) -> str:
        import pyarrow.parquet as parquet

        path = str(folder / f"outside-{uuid.uuid4().hex}.parquet")
        with parquet.ParquetWriter(path, self.arrow(columns, []).schema) as writer:
            for batch in self.batches(query, columns):
                writer.write_batch(batch)
        return path

    def wanted_columns(self, wanted: Wanted) -> tuple[str, ...]:
        return tuple(self.columns()) if wanted.columns is None else wanted.columns

    def _select(self, columns: Iterable[str]) -> str:
        known = self.columns()
        return f"SELECT {', '.join(known[name].read for name in columns) or '1'} FROM {self.relation}"

    def _where(self, condition: Condition | None) -> Sql | None:
        return None if condition is None else self.condition_sql(condition, exact=False)

    def condition_sql(self, condition: Condition, *, exact: bool) -> Sql | None:
        """A condition in the words of the database; `exact`, or true of rows too many. None if it cannot be said."""
        found = self._condition_sql(condition, exact=exact)
        return found if found is not None and len(found[1]) <= self.most_parameters else None

    def _condition_sql(self, condition: Condition, *, exact: bool) -> Sql | None:
        if isinstance(condition, Not):
            inner = self.condition_sql(condition.part, exact=True)
            return None if inner is None else (f"NOT ({inner[0]})", inner[1])
        if isinstance(condition, All | Some):
            parts = [self.condition_sql(part, exact=exact) for part in condition.parts]
            if None in parts and (exact or isinstance(condition, Some)):
                return None
            known = [part for part in parts if part is not None]
            word = " AND " if isinstance(condition, All) else " OR "
            text = word.join(f"({text})" if len(known) > 1 else text for text, _ in known)
            return (text, [value for _, values in known for value in values]) if known else None
        column = self.columns()[condition.column]
        if condition.sign in ("IS NULL", "IS NOT NULL"):
            return f"{column.read} {condition.sign}", []
        return self.test(column, condition, exact=exact)

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """The answer to a statement."""
        with self.asking() as cursor:
            cursor.execute(text, values)
            return list(cursor.fetchall())

    # ---- messages

    def error_text(self, error: object) -> str:
        return f"{self.place}: {' '.join(str(error).split())}"

    def no_table(self, tables: Iterable[str]) -> WrongOption:
        hint = did_you_mean(self.called, tables)
        return WrongOption("table", f"{self.place} has no table {self.called}", hint=hint)


def order_with_least_nulls(column: str, value: str, order: Order) -> str:
    """ORDER BY where NULL is less than all: it needs a word only where Spark has it elsewhere.

    >>> [order_with_least_nulls("c", "c", Order("c", True, nulls_first)) for nulls_first in (False, True)]
    ['c DESC', 'c IS NULL DESC, c DESC']
    """
    as_it_is = order.descending != order.nulls_first
    nulls = "" if as_it_is else f"{column} IS NULL {'DESC' if order.nulls_first else 'ASC'}, "
    return f"{nulls}{value} {'DESC' if order.descending else 'ASC'}"


def check_relation(options: Mapping[str, Any]) -> None:
    """Raise unless the options name a table or a query, and one of the two."""
    if ("table" in options) == ("query" in options):
        raise SourceError("give a table => '...' or a query => '...'", hint="one of the two")
    if "table" in options:
        name_parts(str(options["table"]))


def name_parts(name: str) -> list[str]:
    """The parts of a name with dots; what is in double quotes is one part.

    >>> name_parts('sales.orders'), name_parts('"a.b"')
    (['sales', 'orders'], ['a.b'])
    """
    found, at = [], 0
    while True:
        match = _NAME.match(name, at)
        if match is None:
            raise WrongOption("table", f"{name} is not the name of a table", hint="as in 'orders' or 'sales.orders'")
        found.append(match.group(1).replace('""', '"') if match.group(1) else match.group(2))
        if match.end() == len(name):
            return found
        if name[match.end()] != ".":
            raise WrongOption("table", f"{name} is not the name of a table", hint="as in 'orders' or 'sales.orders'")
        at = match.end() + 1


def decimal_type(precision: int, scale: int) -> str | None:
    """Spark's type for a decimal that is declared elsewhere; None where Spark has none so wide.

    >>> decimal_type(10, 2), decimal_type(3, -2), decimal_type(2, 4), decimal_type(60, 0)
    ('decimal(10,2)', 'decimal(5,0)', 'decimal(4,4)', None)
    """
    whole, places = max(precision - scale, 0), max(scale, 0)
    return f"decimal({whole + places},{places})" if 0 < whole + places <= 38 else None


def value_of(value: Any, type: str) -> Any:
    """A value of a driver as one of a column's type.

    >>> value_of("2026-01-02 03:04", "date"), value_of(" 12", "int"), value_of(7, "string")
    (datetime.date(2026, 1, 2), 12, '7')
    """
    if value is None:
        return None
    if type == "string":
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if type == "binary":
        return value if isinstance(value, bytes) else str(value).encode()
    if type == "boolean":
        return bool(int(value))
    if type == "date":
        if isinstance(value, date):
            return value.date() if isinstance(value, datetime) else value
        return date.fromisoformat(_day(value)[:10])
    if type == "timestamp":
        return _moment(value)
    if not isinstance(value, int | float | Decimal) and not _NUMBER.fullmatch(str(value)):
        raise ValueError(f"{value!r} is no number")
    if type.startswith("decimal"):
        return decimal_of(value, type)
    if type in ("float", "double"):
        return float(value)
    if isinstance(value, float | Decimal) and value != int(value):
        raise ValueError(f"{value} is not whole")
    return int(value)


def _moment(value: Any) -> datetime:
    """A time: a text in UTC unless it says otherwise, or seconds since 1970."""
    if isinstance(value, int | float):
        try:
            return datetime.fromtimestamp(value, timezone.utc)
        except OSError as error:  # of some numbers that are too large
            raise ValueError(f"{value} is not a time in seconds") from error
    found = value if isinstance(value, datetime) else datetime.fromisoformat(_day(value).replace("Z", "+00:00"))
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def _day(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str) or not _DAY.match(value):
        raise ValueError(f"{value!r} does not begin with a day, such as 2026-01-31")
    return value
