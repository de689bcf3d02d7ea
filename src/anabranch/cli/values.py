"""Values as text, for all outputs.

A column is first turned into plain hashable Python values (`plain_values`), then a formatter for its
type writes each of them: `text_formatter` as Spark shows them, `json_formatter` as JSON. Times are kept as integers
in between, so that years outside of Python's calendar work. This module knows Arrow types, nothing of outputs.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from anabranch.sinks.exports import rebuild

if TYPE_CHECKING:
    import pyarrow as pa

Formatter = Callable[[Any], str]
NULL = "NULL"

_DAY = 86_400_000_000
#: NaN is unequal to itself; rows are added up by equality, so every NaN has to be this one.
_NAN = float("nan")


def plain_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column as hashable values: times as integers, nested values as tuples, NULL as None."""
    import pyarrow as pa

    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        # Batch by batch: a column of many batches is never copied into one.
        return [value for chunk in column.chunks for value in plain_values(chunk)]
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    target = _storage(kind)
    if target != kind:
        column = column.cast(_in_micros(kind), safe=False).cast(target, safe=False)
    freeze = _freezer(kind)
    values: list[Any] = column.to_pylist()
    return values if freeze is None else [None if value is None else freeze(value) for value in values]


def _in_micros(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    def leaf(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if pa.types.is_duration(kind):
            return pa.duration("us")
        if pa.types.is_time(kind):
            return pa.time64("us")
        if pa.types.is_date(kind):
            return pa.date32()
        return kind

    return rebuild(kind, leaf)


def _storage(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    def leaf(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
            return pa.int64()
        return pa.int32() if pa.types.is_date(kind) else kind

    return rebuild(kind, leaf)


def _freezer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """The function that makes a value hashable and equal to its equals; None if it is already."""
    import pyarrow as pa

    types = pa.types
    if types.is_floating(kind):
        return lambda value: _NAN if value != value else value
    if types.is_struct(kind):
        parts = [(field.name, _freezer(field.type)) for field in kind]
        return lambda value: tuple(_frozen(value[name], freeze) for name, freeze in parts)
    if types.is_map(kind):
        key, item = _freezer(kind.key_type), _freezer(kind.item_type)
        return lambda value: tuple((_frozen(k, key), _frozen(v, item)) for k, v in value)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = _freezer(kind.value_type)
        return lambda value: tuple(_frozen(v, element) for v in value)
    return None


def _frozen(value: Any, freeze: Callable[[Any], Any] | None) -> Any:
    return value if value is None or freeze is None else freeze(value)


def text_formatter(kind: pa.DataType) -> Formatter:
    """The function that writes a plain value as Spark shows it; the caller handles NULL, except inside values."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return text_formatter(kind.value_type)
    if types.is_struct(kind):
        parts = [text_formatter(field.type) for field in kind]
        return lambda value: f"{{{', '.join(_or_null(v, f) for v, f in zip(value, parts, strict=True))}}}"
    if types.is_map(kind):
        key, item = text_formatter(kind.key_type), text_formatter(kind.item_type)
        return lambda value: f"{{{', '.join(f'{_or_null(k, key)} -> {_or_null(v, item)}' for k, v in value)}}}"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = text_formatter(kind.value_type)
        return lambda value: f"[{', '.join(_or_null(v, element) for v in value)}]"
    if types.is_timestamp(kind):
        return timestamp_text
    if types.is_date(kind):
        return date_text
    if types.is_time(kind):
        return time_text
    if types.is_duration(kind):
        return interval_text
    if types.is_boolean(kind):
        return _boolean_text
    if types.is_decimal(kind):
        return decimal_text
    if types.is_float32(kind) or types.is_float16(kind):
        return float_text
    if types.is_floating(kind):
        return double_text
    if _is_binary(kind):
        return binary_text
    return str


def _or_null(value: Any, formatter: Formatter, null: str = NULL) -> str:
    return null if value is None else formatter(value)


def json_formatter(kind: pa.DataType) -> Formatter:
    """The function that writes a plain value as JSON; the caller handles NULL, except inside values."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return json_formatter(kind.value_type)
    if types.is_struct(kind):
        parts = [(json_text(field.name), json_formatter(field.type)) for field in kind]
        return lambda value: (
            "{" + ", ".join(f"{n}: {_or_null(v, f, 'null')}" for v, (n, f) in zip(value, parts, strict=True)) + "}"
        )
    if types.is_map(kind):
        key, item = text_formatter(kind.key_type), json_formatter(kind.item_type)
        return lambda value: (
            "{" + ", ".join(f"{json_text(_or_null(k, key))}: {_or_null(v, item, 'null')}" for k, v in value) + "}"
        )
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = json_formatter(kind.value_type)
        return lambda value: "[" + ", ".join(_or_null(v, element, "null") for v in value) + "]"
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return lambda value: f'"{timestamp_text(value, "T")}{zone}"'
    if types.is_floating(kind):
        number = double_text if types.is_float64(kind) else float_text
        # JSON has no literals for these; Spark's to_json also writes them as text.
        return lambda value: number(value) if math.isfinite(value) else f'"{number(value)}"'
    if _is_binary(kind):
        return lambda value: f'"{base64.b64encode(value).decode("ascii")}"'
    if types.is_integer(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return text_formatter(kind)
    plain = text_formatter(kind)
    return lambda value: json_text(plain(value))


def json_text(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def _is_binary(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type is aligned to the right."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def column_texts(column: pa.ChunkedArray) -> Iterable[str | None]:
    """A whole column as Spark shows it; NULL is None."""
    formatter = text_formatter(column.type)
    for value in plain_values(column):
        yield None if value is None else formatter(value)


def timestamp_text(micros: int, separator: str = " ") -> str:
    """Microseconds since the Unix epoch as a UTC time.

    >>> timestamp_text(1_767_225_600_000_000), timestamp_text(-1)
    ('2026-01-01 00:00:00', '1969-12-31 23:59:59.999999')
    """
    days, rest = divmod(micros, _DAY)
    return f"{date_text(days)}{separator}{time_text(rest)}"


def time_text(micros: int) -> str:
    """Microseconds since midnight; trailing zeros of a fraction are dropped, as in Spark."""
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def date_text(days: int) -> str:
    """Days since the Unix epoch in the Gregorian calendar, for any year.

    >>> date_text(0), date_text(20_454), date_text(2_932_897)
    ('1970-01-01', '2026-01-01', '+10000-01-01')
    """
    # Years start in March here, so that the leap day is the last day of one.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (month <= 2)
    if year > 9999:
        return f"+{year}-{month:02}-{day:02}"
    return f"{year:04}-{month:02}-{day:02}" if year >= 0 else f"-{-year:04}-{month:02}-{day:02}"


def interval_text(micros: int) -> str:
    """A length of time as Spark writes a day-time interval."""
    sign = "-" if micros < 0 else ""
    days, rest = divmod(abs(micros), _DAY)
    return f"INTERVAL '{sign}{days} {time_text(rest)}' DAY TO SECOND"


def decimal_text(value: Decimal) -> str:
    """A decimal in full, never with an exponent."""
    return format(value, "f")


def double_text(value: float) -> str:
    """The shortest text that reads back as the same double."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def float_text(value: float) -> str:
    """The shortest text that reads back as the same 32-bit float.

    >>> float_text(0.10000000149011612)
    '0.1'
    """
    if not math.isfinite(value):
        return double_text(value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if _as_float32(float(text)) == value:
            return repr(float(text))
    return repr(value)


def _as_float32(value: float) -> float:
    try:
        packed: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:  # rounding up the largest floats leaves their range
        return math.inf
    return packed


def binary_text(value: bytes) -> str:
    """Bytes as Spark shows them.

    >>> binary_text(b"\\x01\\xff")
    '[01 FF]'
    """
    return f"[{value.hex(' ').upper()}]"


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"
