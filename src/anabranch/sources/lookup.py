"""Tables that live outside: asked by key where they are too large to be loaded.

A kind of database is one small class with the methods of `LookupSource`, and an entry in the registry of sources. How
keys are put into batches, sent, tried again and remembered is the business of `engine/lookup_client.py`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from anabranch.errors import SourceError, did_you_mean
from anabranch.sources.registry import Option, WrongOption, find, of_tables
from anabranch.sql.durations import duration_text, parse_duration
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: A table of more rows than this is asked rather than loaded.
LARGE_ROWS = 1_000_000
#: Options of every kind of table: whether and how it is looked up by key.
ASKING_OPTIONS = (
    Option(
        name="lookup",
        doc="whether it is looked up by key; 'auto' goes by its size",
        default="auto",
        choices=("auto", "always", "never"),
    ),
    Option(name="batch", doc="keys in one request", type="whole", default=500, low=1, high=10_000),
    Option(name="requests", doc="requests at once", type="whole", default=4, low=1, high=256),
    Option(name="retries", doc="how often a request is tried again", type="whole", default=5, low=0, high=100),
    Option(name="cache", doc="how long an answer holds, as in '10 minutes'"),
)
ASKING_NAMES = tuple(option.name for option in ASKING_OPTIONS)
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

    `Unreachable` means that the same question may be answered a moment later; any other error ends the run. A class
    that has it as its base writes `fields` and `read`, and the others where a table can be too large to be read whole.
    """

    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """Its columns, with Spark's types."""

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, for a table that is loaded."""

    def size(self) -> int | None:
        """About how many rows it has; None if that is not known, so that it is looked up by key."""
        return int(self.read().num_rows)

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        """The `columns` of the rows whose columns `by` hold one of these keys, which are distinct and without NULL.

        Rows of other keys do no harm. Keys are values of rows: they go as parameters, never into a text.
        """
        whole, wanted = self.read(), set(keys)
        found = zip(*(whole.column(name).to_pylist() for name in by), strict=True)
        return whole.select(list(columns)).take([row for row, key in enumerate(found) if key in wanted])


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


@runtime_checkable
class ReadByTasks(Protocol):
    """A table outside that Spark's tasks can read."""

    def by_tasks(self, spark: SparkSession, folder: Path) -> list[str] | None:
        """Parquet files with all rows, written by tasks; None for a table that is small."""
        ...


class Unreachable(SourceError):
    """The table did not answer; it is asked again."""


class NoColumn(SourceError):
    """A column that was declared and is not there."""

    def __init__(self, column: str, *, hint: str | None) -> None:
        super().__init__(f"the table has no column {column}", hint=hint)
        self.column = column


def searchable(kind: str, options: Mapping[str, Any]) -> bool:
    """Whether tables of this kind can be asked by comparisons."""
    return hasattr(open_source(kind, options), "search")


def open_source(kind: str, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> LookupSource:
    """A table outside, by the options of its CREATE TABLE; those of asking are left out."""
    found = find(kind)
    if found is None or found.table is None:
        raise SourceError(f"there is no source of tables {kind}", hint=did_you_mean(kind, of_tables()))
    found.check_options(options)
    return found.open_table({name: value for name, value in options.items() if name not in ASKING_NAMES}, declared)


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
        check_asking(options)
        given = {name: options[name] for name in ("batch", "requests", "retries") if name in options}
        return cls(options.get("lookup", "auto"), cache=_lasting(options.get("cache")), **given)

    def words(self) -> str:
        """How a table is asked, for people.

        >>> Asking(cache=600_000_000).words()
        'batches of 500, at most 4 at once, cache 10 minutes'
        """
        cache = "no cache" if self.cache is None else f"cache {duration_text(self.cache)}"
        return f"batches of {self.batch:,}, at most {self.requests} at once, {cache}"


def why_asked(asking: Asking, size: int | None) -> str:
    """Why a table is looked up by key; nothing if it is loaded.

    >>> why_asked(Asking(), 2_000_000)
    'it has about 2,000,000 rows, more than 1,000,000'
    >>> why_asked(Asking(), 500)
    ''
    """
    if asking.mode != "auto":
        return "lookup => 'always'" if asking.mode == "always" else ""
    if size is None:
        return "its number of rows is not known"
    return f"it has about {size:,} rows, more than {LARGE_ROWS:,}" if size > LARGE_ROWS else ""


def check_asking(options: Mapping[str, Any]) -> None:
    """Raise WrongOption where the options of asking do not fit."""
    for option in ASKING_OPTIONS:
        if option.name in options:
            option.check("a table", options[option.name])
    _lasting(options.get("cache"))


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
        raise SourceError(f"the column {field.name} of an external table cannot be {field.type.upper()}", hint=hint)
    return simple[field.type]


def _lasting(value: Any) -> int | None:
    if value is None:
        return None
    found = parse_duration(value) if isinstance(value, str) else None
    if found is None or found <= 0:
        raise WrongOption("cache", f"cache must be a length of time, not {value!r}", hint="as in '10 minutes'")
    return found
