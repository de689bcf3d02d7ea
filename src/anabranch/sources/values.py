"""Values of databases and servers as those of columns: texts, numbers and times that come without Spark's types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.lookup import arrow_schema
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

#: Texts that are numbers, and those that begin with a day.
_NUMBER = re.compile(r"[ \t\n\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\f\r]*")
_DECIMALS = Context(prec=38, rounding=ROUND_HALF_UP)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def table_of(fields: Sequence[Field], rows: Sequence[Sequence[Any]], owner: str, hint: str) -> pa.Table:
    """Rows as a table of Arrow's; a value that is none of its column's type is an error.

    `owner` begins its message and ends before the name of the column, `hint` has a place for it.
    """
    import pyarrow as pa

    schema = arrow_schema(fields)
    arrays = []
    for index, field in enumerate(fields):
        try:
            values = [value_of(row[index], field.type) for row in rows]
            arrays.append(pa.array(values, type=schema.field(index).type))
        except (ValueError, TypeError, InvalidOperation, OverflowError, pa.ArrowException) as error:
            message = f"{owner}{field.name} is no {field.type.upper()}: {error}"
            raise SourceError(message, hint=hint.format(field.name)) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def value_of(value: Any, type: str) -> Any:
    """A value as one of a column's type.

    >>> value_of("2026-01-02 03:04", "date"), value_of(" 12", "int"), value_of(7, "string")
    (datetime.date(2026, 1, 2), 12, '7')
    """
    if value is None:
        return None
    if type == "string":
        if isinstance(value, bool):
            return str(value).lower()
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if type == "binary":
        return value if isinstance(value, bytes) else str(value).encode()
    if type == "boolean":
        return _truth(value)
    if type == "date":
        return date.fromisoformat(_day(value)[:10])
    if type == "timestamp":
        return _moment(value)
    if not isinstance(value, int | float) and not _NUMBER.fullmatch(str(value)):
        raise ValueError(f"{value!r} is no number")
    if type.startswith("decimal"):
        return decimal_of(value, type)
    if type in ("float", "double"):
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is not whole")
    return int(value)


def decimal_of(value: Any, type: str) -> Decimal:
    """A number as a DECIMAL, with all the digits that Spark's has and rounded as Spark rounds.

    >>> decimal_of("2.345", "decimal(10,2)"), decimal_of("9" * 30, "decimal(38,2)")
    (Decimal('2.35'), Decimal('999999999999999999999999999999.00'))
    """
    places = int(type.rstrip(")").split(",")[1])
    return Decimal(str(value)).quantize(Decimal(1).scaleb(-places), context=_DECIMALS)


def _truth(value: Any) -> bool:
    words = {"true": True, "false": False}
    return words[value.lower()] if isinstance(value, str) and value.lower() in words else bool(int(value))


def _moment(value: Any) -> datetime:
    """A text in UTC unless it says otherwise, or seconds since 1970."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, timezone.utc)
    found = datetime.fromisoformat(_day(value).replace("Z", "+00:00"))
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def _day(value: Any) -> str:
    if not isinstance(value, str) or not _DAY.match(value):
        raise ValueError(f"{value!r} does not begin with a day, such as 2026-01-31")
    return value
