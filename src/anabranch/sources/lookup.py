"""Tables that live outside: asked by key where they are too large to be loaded.

A kind of database is one small class with the methods of `LookupSource`, registered under the name that CREATE TABLE
calls it by. How keys are put into batches, sent, tried again and remembered is the business of `engine.ask`, whatever
the database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.errors import SourceError, did_you_mean
from anabranch.plan.catalog import Field
from anabranch.sql.durations import duration_text, parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

#: A table of more rows than this is asked rather than loaded.
LARGE_ROWS = 1_000_000
#: Options of every kind: whether and how a table is asked. The others are the kind's own.
ASKING_OPTIONS = ("lookup", "batch", "requests", "retries", "cache")
MODES = ("auto", "always", "never")
#: Types by whose values a table can be asked: equal values are equal everywhere.
KEY_TYPES = ("tinyint", "smallint", "int", "bigint", "string", "boolean", "date", "binary")


@dataclass(frozen=True)
class Comparison:
    """How a column compares with its value in a key.

    `sign` is =, <>, <, <=, > or >=, LIKE (the value is the pattern) or LIKED BY (the column is).
    """

    column: str
    sign: str


class LookupSource(Protocol):
    """A table outside. Its methods are called from several threads at once.

    `Unreachable` means that the same question may be answered a moment later; any other error ends the run.
    """

    def fields(self) -> tuple[Field, ...]:
        """Its columns, with Spark's types."""
        ...

    def size(self) -> int | None:
        """About how many rows it has; None if that is not known."""
        ...

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        """The `columns` of the rows whose columns `by` hold one of these keys, which are distinct and without NULL.

        Rows of other keys do no harm. Keys are values of rows: they go as parameters, never into a text.
        """
        ...

    def read(self) -> pa.Table:
        """All rows, for a table that is loaded."""
        ...


class SearchableSource(LookupSource, Protocol):
    """A table outside that can be asked by comparisons other than equality."""

    def search(
        self, columns: tuple[str, ...], comparisons: tuple[Comparison, ...], keys: Sequence[tuple[Any, ...]]
    ) -> tuple[pa.Table, Sequence[int]]:
        """The `columns` of the rows that compare with a key, and for each row the place of that key among `keys`.

        A key has a value for each comparison; all of them hold. A row comes once for each of its keys. Rows that do not
        compare do no harm, those that are missing do: values compare as in Spark, texts byte by byte.
        """
        ...


class Unreachable(SourceError):
    """The table did not answer; it is asked again."""


class NoColumn(SourceError):
    """A column that was declared and is not there."""

    def __init__(self, column: str, *, hint: str | None) -> None:
        super().__init__(f"the table has no column {column}", hint=hint)
        self.column = column


class WrongOption(SourceError):
    """Something wrong with one option of a source."""

    def __init__(self, option: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.option = option


Maker = Callable[[Mapping[str, Any], tuple[Field, ...] | None], LookupSource]
_KINDS: dict[str, Maker] = {}


def register(kind: str, make: Maker) -> None:
    """Let CREATE TABLE know a kind of database: `make(options, declared columns)` opens a table of it."""
    _KINDS[kind.lower()] = make


def kinds() -> tuple[str, ...]:
    """The kinds of databases that tables can live in."""
    return ("sqlite", *(kind for kind in _KINDS if kind != "sqlite"))


def open_source(kind: str, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> LookupSource:
    """A table outside, by the options of its CREATE TABLE; those of asking are left out."""
    if kind == "sqlite" and kind not in _KINDS:
        from anabranch.sources.sqlite import SqliteTable

        register("sqlite", SqliteTable)
    own = {name: value for name, value in options.items() if name not in ASKING_OPTIONS}
    return _KINDS[kind](own, declared)


def searchable(kind: str, options: Mapping[str, Any]) -> bool:
    """Whether tables of this kind can be asked by comparisons."""
    return hasattr(open_source(kind, options), "search")


@dataclass(frozen=True)
class Asking:
    """How a table is asked: so many keys a request, so many requests at once, and for how long an answer holds."""

    mode: str = "auto"
    batch: int = 500
    requests: int = 4
    retries: int = 5
    cache: int | None = None  # microseconds

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Asking:
        """The options of a table that say how it is asked.

        >>> Asking.of({"path": "x.db", "batch": 100, "cache": "10 minutes"})
        Asking(mode='auto', batch=100, requests=4, retries=5, cache=600000000)
        """
        mode = options.get("lookup", "auto")
        if mode not in MODES:
            hint = "it is 'always', 'never' or 'auto', which goes by the size of the table"
            raise WrongOption("lookup", f"lookup cannot be {mode}", hint=hint)
        numbers = {
            name: _whole(options, name, least, most)
            for name, least, most in (("batch", 1, 10_000), ("requests", 1, 256), ("retries", 0, 100))
            if name in options
        }
        return cls(mode, cache=_lasting(options.get("cache")), **numbers)

    def words(self) -> str:
        """How a table is asked, for people.

        >>> Asking(cache=600_000_000).words()
        'batches of 500, at most 4 at once, cache 10 minutes'
        """
        cache = "no cache" if self.cache is None else f"cache {duration_text(self.cache)}"
        return f"batches of {self.batch:,}, at most {self.requests} at once, {cache}"


def why_asked(asking: Asking, size: int | None) -> str:
    """Why a table is asked by key; nothing if it is loaded.

    >>> why_asked(Asking(), 2_000_000)
    'it has about 2,000,000 rows, more than 1,000,000'
    >>> why_asked(Asking(), 500)
    ''
    """
    if asking.mode != "auto":
        return "lookup => 'always'" if asking.mode == "always" else ""
    if size is None:
        return "nobody knows how many rows it has"
    return f"it has about {size:,} rows, more than {LARGE_ROWS:,}" if size > LARGE_ROWS else ""


def check_own(kind: str, options: Mapping[str, Any], known: Sequence[str], needed: Sequence[str]) -> None:
    """Whether the options of a kind are those that it has, and are texts."""
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(name, (*known, *ASKING_OPTIONS))
            raise WrongOption(name, f"{kind} has no option {name}", hint=hint)
        if not isinstance(value, str) or not value or "\0" in value:
            raise WrongOption(name, f"the {name} of {kind} must be a text")
    missing = [name for name in needed if name not in options]
    if missing:
        example = ", ".join(f"{name} => '...'" for name in needed)
        raise SourceError(f"{kind} needs a {missing[0]}", hint=f"as in {kind}({example})")


def chosen(found: Sequence[Field], declared: Sequence[Field] | None) -> tuple[Field, ...]:
    """The columns of a table: those that were declared, where some were, under the names that they have outside."""
    if not declared:
        return tuple(found)
    names = {field.name.lower(): field.name for field in found}
    for field in declared:
        if field.name.lower() not in names:
            raise NoColumn(field.name, hint=did_you_mean(field.name, names.values()))
    return tuple(Field(names[field.name.lower()], field.type) for field in declared)


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    """Plain columns as Arrow has them; needs no Spark."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, _arrow_type(field)) for field in fields])


def _arrow_type(field: Field) -> pa.DataType:
    import pyarrow as pa

    decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", field.type)
    if decimal is not None:
        return pa.decimal128(int(decimal.group(1)), int(decimal.group(2)))
    simple = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    if field.type not in simple:
        hint = "declare it as a plain type, such as STRING"
        raise SourceError(f"the column {field.name} of a table outside cannot be {field.type.upper()}", hint=hint)
    return simple[field.type]


def _whole(options: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = options[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise WrongOption(name, f"{name} must be a whole number from {least} to {most:,}, not {value!r}")
    return value


def _lasting(value: Any) -> int | None:
    if value is None:
        return None
    found = parse_duration(value) if isinstance(value, str) else None
    if found is None or found <= 0:
        raise WrongOption("cache", f"cache must be a length of time, not {value!r}", hint="as in '10 minutes'")
    return found
