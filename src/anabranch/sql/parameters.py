"""Parameters: `:name` and `?` in a text become typed literals, before anything is parsed.

    SELECT * FROM bids WHERE item = :item AND price > ?

A value is never pasted: `literal` alone writes it, as one value for every parser of the text. Parameters are found
among tokens, so those in strings and comments do not count, nor do `a::int` and `v:field`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from anabranch.errors import Rewritten, SqlError, UnknownName, UsageError, did_you_mean
from anabranch.sql.lexer import WORD, Token, tokenize
from anabranch.sql.splice import Edit, splice
from anabranch.sql.terms import CLAUSES, ends_value
from anabranch.sql.text import Span, quote_string

#: Words that look like names, but start a value.
_BEFORE_VALUES = CLAUSES | {"SELECT", "BY", "VERSION", "CLOCK", "VALUES", "SLIDE", "RETURN"}
#: Names of our own that are searched for in the text of a query.
_OWN_NAMES = ("window_id", "_row_num", "_arrival_ts", "_came", "__")
#: The maximum nesting of lists and dicts.
_MAX_DEPTH = 20
#: The digits of Spark's longest decimal.
_MAX_DIGITS = 38
#: The longest interval of Spark's, in days.
_MAX_DAYS = 106_751_991


def bind_parameters(text: str, positional: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> str:
    """The text with a literal in place of each parameter. Errors in it point into the original text.

    >>> bind_parameters("SELECT :a, ':a', b::int, c:a, ?", [None], {"a": "it's"})
    "SELECT 'it\\\\'s', ':a', b::int, c:a, NULL"
    """
    named = named or {}
    if not positional and not named and ":" not in text and "?" not in text:
        return text
    edits: list[Edit] = []
    used: set[str] = set()
    count = 0
    for name, span in _parameters(tokenize(text), named):
        if name is None and count >= len(positional):
            what = f"parameter {count + 1} has no value"
            raise _missing(text, span, what, f"{len(positional)} values are given in order")
        if name is not None and name not in named:
            hint = (
                did_you_mean(name, named)
                if named
                else f"give it by name: {name}=... in Python, -p {name}=... at the command line"
            )
            raise _missing(text, span, f"parameter :{name} has no value", hint)
        value = positional[count] if name is None else named[name]
        try:
            edits.append(Edit(span, literal(value)))
        except UsageError as error:
            called = f"parameter {count + 1}" if name is None else f"parameter :{name}"
            raise SqlError(f"{called}: {error.message}", text=text, at=span, hint=error.hint) from error
        count += name is None
        used |= {name} if name is not None else set()
    if count < len(positional):
        raise UsageError(f"{len(positional)} values are given in order, but the text has {count} parameters ?")
    surplus = [name for name in named if name not in used]
    if surplus:
        raise UsageError(f"the text has no parameter :{surplus[0]}", hint=did_you_mean(surplus[0], used))
    if not edits:
        return text
    made = splice(text, Span(0, len(text)), edits)

    def place(start: int, end: int) -> tuple[int, int]:
        there = made.original(start, end)
        return there.start, there.end

    return Rewritten(made.text, text, place)


def _parameters(tokens: list[Token], named: Mapping[str, Any]) -> Iterator[tuple[str | None, Span]]:
    """The parameters of a text: the name of each (None for ?) and its span."""
    for index, token in enumerate(tokens[:-1]):
        if token.text == "?":
            yield None, token.span
        following, before = tokens[index + 1], tokens[index - 1] if index else None
        if token.text != ":" or following.kind != WORD or following.start != token.end:
            continue
        # After a value, a colon reads a field of it. Users write a blank before a parameter.
        starts = before is None or not ends_value(before) or before.upper in _BEFORE_VALUES
        if starts or (before is not None and before.end < token.start and following.text in named):
            yield following.text, Span(token.start, following.end)


def _missing(text: str, span: Span, message: str, hint: str | None) -> UnknownName:
    return UnknownName(message, text=text, at=span, hint=hint)


def literal(value: Any, depth: int = 0) -> str:
    """A Python value as a literal of Spark SQL.

    Negative values are in brackets: `1 -:n` must not become a comment, nor `:n::string` lose its sign. Times
    without a zone are in UTC, as everywhere.

    >>> literal(-1), literal(b"\\x00\\xff"), literal([1, None]), literal(timedelta(hours=-1))
    ('(-1)', "X'00FF'", 'array(1, NULL)', "INTERVAL '-0 01:00:00.000000' DAY TO SECOND")
    """
    if depth > _MAX_DEPTH:
        raise UsageError(f"the value nests deeper than {_MAX_DEPTH} levels")
    kind = type(value)
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "item"):
        value = _plain(value)
    if value is None or _is_missing(value):
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return _double(float(value))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"X'{bytes(value).hex().upper()}'"
    if isinstance(value, datetime):
        return _timestamp(value)
    if isinstance(value, date):
        return f"DATE '{date(value.year, value.month, value.day).isoformat()}'"
    if isinstance(value, timedelta):
        return _interval(value)
    if isinstance(value, list | tuple):
        return f"array({', '.join(literal(each, depth + 1) for each in value)})"
    if isinstance(value, Mapping):
        return f"map({', '.join(literal(each, depth + 1) for item in value.items() for each in item)})"
    raise UsageError(
        f"a value of the type {kind.__name__} cannot be written in SQL", hint="give a str, a number, a date or a list"
    )


def _plain(value: Any) -> Any:
    """A scalar of NumPy as a Python value; its times are integers of some unit."""
    if type(value).__name__ in ("ndarray", "datetime64", "timedelta64"):
        raise UsageError(f"a value of NumPy's type {type(value).__name__} is not taken", hint="give Python's own type")
    return value.item()


def _is_missing(value: Any) -> bool:
    """Whether a value is a NULL of pandas."""
    return type(value).__name__ in ("NAType", "NaTType")


def _string(value: str) -> str:
    text = str.__str__(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError("the text is not valid Unicode: it has half of a surrogate pair") from error
    written = quote_string(text).replace("`", "\\u0060")  # placeholders are backquoted names
    # The text is searched for these names; in a value they are not names.
    return written.replace("_", "\\u005f") if any(name in text.lower() for name in _OWN_NAMES) else written


def _integer(value: int) -> str:
    if abs(value) >= 10**_MAX_DIGITS:
        raise UsageError(f"the number has more than {_MAX_DIGITS} digits", hint="give it as a float or a str")
    digits = str(abs(value)) + ("" if -(2**63) <= value < 2**63 else "BD")
    return f"(-{digits})" if value < 0 else digits


def _double(value: float) -> str:
    if not math.isfinite(value):
        name = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS DOUBLE)"
    return f"(-{-value!r}D)" if math.copysign(1, value) < 0 else f"{value!r}D"


def _decimal(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise UsageError(f"the decimal {value} is no number", hint="give it as a float, or None for NULL")
    scale, whole = max(0, -exponent), max(0, value.adjusted() + 1)
    if scale + whole > _MAX_DIGITS:
        raise UsageError(f"the decimal has more than {_MAX_DIGITS} digits", hint="give it as a float or a str")
    digits = f"{value.copy_abs():f}BD"  # abs() would round to the digits of Python's context
    return f"(-{digits})" if value < 0 else digits


def _timestamp(value: datetime) -> str:
    if getattr(value, "nanosecond", 0):
        raise UsageError("the time has nanoseconds, and times are kept in microseconds", hint="round it")
    try:
        moment = value.astimezone(timezone.utc) if value.tzinfo is not None else value
    except OverflowError as error:
        raise UsageError(f"the time {value} is outside of the years 1 to 9999 in UTC") from error
    parts = (moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond)
    return f"TIMESTAMP '{datetime(*parts).isoformat(sep=' ')}'"


def _interval(value: timedelta) -> str:
    if getattr(value, "nanoseconds", 0):
        raise UsageError("the interval has nanoseconds, and times are kept in microseconds", hint="round it")
    whole = timedelta(value.days, value.seconds, value.microseconds)
    if abs(whole) > timedelta(_MAX_DAYS):
        raise UsageError(f"the interval is longer than {_MAX_DAYS:,} days")
    length = abs(whole)
    minutes, seconds = divmod(length.seconds, 60)
    time = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{length.microseconds:06}"
    return f"INTERVAL '{'-' if whole < timedelta() else ''}{length.days} {time}' DAY TO SECOND"
