"""What a database computes itself: joins of its tables and aggregates over them, where it means what Spark means.

An average is asked as a sum and a count, and divided here as Spark divides. Sums of floats are Spark's: they depend on
the order of the rows.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.database import BATCH_ROWS, INTEGERS, DatabaseTable, RemoteColumn, Row, Sql
from anabranch.sources.lookup import arrow_schema
from anabranch.sources.wanted import Call, Computed, Place
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
#: Decimal places up to which Spark rounds an average once: it divides to 38 places first.
_MOST_PLACES = 14
#: Whole numbers whose sums are exact as doubles, for any number of rows that fits into memory.
_SMALL = ("tinyint", "smallint", "int")


@dataclass(frozen=True)
class _Column:
    """A column of the answer: its field, the SQL that it takes, and how its value is made of what that gives."""

    field: Field
    sql: tuple[str, ...]
    value: Callable[..., Any]


class Computing:
    """A question that a database can answer as a whole; `of` is None where it cannot."""

    def __init__(self, source: DatabaseTable, query: Sql, columns: Sequence[_Column]) -> None:
        self.source = source
        self.query = query
        self._columns = columns
        self.fields = tuple(column.field for column in columns)

    @classmethod
    def of(cls, computed: Computed, sources: Mapping[int, DatabaseTable]) -> Computing | None:
        given = [sources[part.reference] for part in computed.parts]
        if len({source.database for source in given}) > 1:
            return None
        tables = given if len(given) == 1 else [each.called_by(f"t{n}") for n, each in enumerate(given, 1)]
        columns = [_column(tables, f"c{n}", each, computed) for n, each in enumerate(computed.columns)]
        found = _tables(computed, tables)
        if None in columns or found is None:
            return None
        known = [column for column in columns if column is not None]
        shown = ", ".join(sql for column in known for sql in column.sql) or "1"
        keys = [c.sql[0] for c, each in zip(known, computed.columns, strict=True) if isinstance(each, Place)]
        grouped = f" GROUP BY {', '.join(dict.fromkeys(keys))}" if computed.grouped and keys else ""
        return cls(given[0], (f"SELECT {shown} FROM {found[0]}{grouped}", found[1]), known)

    def batches(self) -> Iterator[pa.Table]:
        """The rows, some at a time; at least one table, if only an empty one."""
        with self.source.open(streaming=True) as cursor:
            cursor.execute(*self.query)
            first = True
            while (rows := cursor.fetchmany(BATCH_ROWS)) or first:
                yield self._arrow(rows)
                first = False

    def _arrow(self, rows: Sequence[Row]) -> pa.Table:
        import pyarrow as pa

        schema = arrow_schema(self.fields)
        arrays, at = [], 0
        for index, column in enumerate(self._columns):
            width = len(column.sql)
            try:
                values = [None if row[at] is None else column.value(*row[at : at + width]) for row in rows]
                arrays.append(pa.array(values, type=schema.field(index).type))
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
                raise SourceError(
                    f"{self.source.place}: {self.source.plain(column.sql[0])} does not fit into"
                    f" {column.field.type.upper()}: {error}",
                    hint="cast the column to a wider type, as in sum(CAST(n AS DECIMAL(38,0)))",
                ) from error
            at += width
        return pa.Table.from_arrays(arrays, schema=schema) if arrays else pa.table({})


def _tables(computed: Computed, tables: Sequence[DatabaseTable]) -> Sql | None:
    """What stands behind FROM, with the conditions."""
    text, values = tables[0].relation, list[Any]()
    for table, part in zip(tables[1:], computed.parts[1:], strict=True):
        tests = []
        for comparison in part.on:
            ends = [tables[place.table].columns()[place.column] for place in (comparison.left, comparison.right)]
            test = tables[0].pair_sql(ends[0], comparison.sign, ends[1])
            if test is None:
                return None
            tests.append(test)
        if part.condition is not None:
            condition_sql = table.condition_sql(part.condition, exact=True)
            if condition_sql is None:
                return None
            tests.append(condition_sql[0])
            values += condition_sql[1]
        on = " AND ".join(f"({test})" if len(tests) > 1 else test for test in tests)
        text += f" {'LEFT ' if part.outer else ''}JOIN {table.relation} ON {on}"
    first = computed.parts[0].condition
    if first is None:
        return text, values
    where = tables[0].condition_sql(first, exact=True)
    return None if where is None else (f"{text} WHERE {where[0]}", [*values, *where[1]])


def _column(tables: Sequence[DatabaseTable], name: str, each: Place | Call, computed: Computed) -> _Column | None:
    if isinstance(each, Call):
        return _call(tables, name, each)
    table = tables[each.table]
    column = table.columns()[each.column]
    if not computed.grouped:
        field = Field(column.name, column.type)
        return _Column(Field(name, column.type), (column.read,), lambda value: table.value(value, field))
    exact = table.exact_sql(column)
    return None if exact is None else _Column(Field(name, column.type), (exact,), partial(table.exact_value, column))


def _call(tables: Sequence[DatabaseTable], name: str, call: Call) -> _Column | None:
    if call.of is None:
        return _Column(Field(name, "bigint"), ("count(*)",), int)
    table = tables[call.of.table]
    column = table.columns()[call.of.column]
    if call.function == "COUNT":
        return _Column(Field(name, "bigint"), (f"count({column.read})",), int)
    if call.function in ("MIN", "MAX"):
        ordered = table.ordered_sql(column)
        if ordered is None or column.type == "boolean":
            return None
        return _Column(
            Field(name, column.type), (f"{call.function.lower()}({ordered})",), partial(table.exact_value, column)
        )
    exact = table.exact_sql(column)
    if exact is None:
        return None
    made = _sum if call.function == "SUM" else _average
    return made(table, name, column, exact, call.unscaled)


def _sum(table: DatabaseTable, name: str, column: RemoteColumn, exact: str, unscaled: bool) -> _Column | None:
    def total(*parts: Any) -> Any:
        return table.exact_value(column, table.total(parts))

    asked = table.sum_sql(exact)
    found = _DECIMAL.fullmatch(column.type)
    if found is None:
        whole = column.type in INTEGERS
        return _Column(Field(name, "bigint"), asked, lambda *parts: int(total(*parts))) if whole else None
    precision, scale = int(found[1]), int(found[2])
    if unscaled:
        return _Column(Field(name, "bigint"), asked, lambda *parts: _unscaled(total(*parts), scale))
    type = f"decimal({min(38, precision + 10)},{scale})"
    return _Column(Field(name, type), asked, lambda *parts: Decimal(total(*parts)))


def _average(table: DatabaseTable, name: str, column: RemoteColumn, exact: str, unscaled: bool) -> _Column | None:
    def average(*parts: Any) -> Any:
        total, count = table.exact_value(column, table.total(parts[:-1])), parts[-1]
        return float(_unscaled(total, scale)) / count if type == "double" else divided(total, count, scale + 4)

    found = _DECIMAL.fullmatch(column.type)
    precision, scale = (int(found[1]), int(found[2])) if found is not None else (0, 0)
    if (found is None and column.type not in _SMALL) or (scale > _MOST_PLACES and not unscaled):
        return None
    type = "double" if unscaled or found is None else f"decimal({min(38, precision + 4)},{scale + 4})"
    return _Column(Field(name, type), (*table.sum_sql(exact), f"count({column.read})"), average)


def _unscaled(value: Any, scale: int) -> int:
    return int(Decimal(value).scaleb(scale, decimal.Context(prec=100)))


def divided(sum: Any, count: int, places: int) -> Decimal:
    """An average as Spark rounds it: half up.

    >>> divided(Decimal("1.0"), 16, 3), divided(Decimal("-1"), 3, 2)
    (Decimal('0.063'), Decimal('-0.33'))
    """
    context = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
    return context.divide(Decimal(sum), Decimal(count)).quantize(Decimal(1).scaleb(-places), context=context)
