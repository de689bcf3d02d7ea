"""Capture functions: Python generators as sources of streams.

    @anabranch.capture("packets", columns="pid INT, ts TIMESTAMP")
    def packets(position, *, count=10):
        for pid in range(position or 0, count):
            yield {"pid": pid, "ts": datetime(2026, 1, 1)}, pid + 1

    CREATE STREAM p FROM packets(count => 100)

A generator is called with the position after the last row that was committed (None at first), and yields rows with the
position after them. What it gave cannot be read again, so the stream keeps its rows. The stream remembers the function
as module:function, and any process that can import it goes on: `FROM capture(function => 'module:function')`.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.errors import SourceError
from anabranch.sources.base import BadRow, Source, Stretch
from anabranch.sources.registry import Kind, Opening, Option, WrongOption, register_source
from anabranch.sources.values import value_of
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: A run waits so many seconds at the most for more rows than it has, and takes about so many.
PATIENCE, MOST_ROWS = 0.25, 1_000_000
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
Generating = TypeVar("Generating", bound=Callable[..., Iterator[tuple[Any, Any]]])


@dataclass(frozen=True)
class Captured:
    """A function with what was said of it: its columns, and whether a read is not to wait for its end."""

    function: Callable[..., Iterator[tuple[Any, Any]]]
    columns: str | None = None
    endless: bool = False


#: The capture functions of this process, by module:function.
_FUNCTIONS: dict[str, Captured] = {}


def capture(name: str, *, columns: str, endless: bool = False) -> Callable[[Generating], Generating]:
    """Make a generator a source of streams, `FROM name(...)`. Reads do not wait for the end of an `endless` one."""

    def register(function: Generating) -> Generating:
        reference = f"{function.__module__}:{function.__qualname__}"
        _FUNCTIONS[reference] = Captured(function, columns, endless)
        register_source(
            Kind(
                name=name.lower(),
                doc=(inspect.getdoc(function) or "a capture function").splitlines()[0],
                example=f"{name}()",
                options=(),
                open_options=True,
                stored=("capture", {"function": reference}),
                stream=lambda opening: CaptureSource({**opening.options, "function": reference}, opening),
                check=lambda options: _check_arguments(function, options),
                reads_once=True,
            )
        )
        return function

    return register


class CaptureSource(Source):
    """The rows that a generator gives, from a position on."""

    cheap = True

    def __init__(self, options: Mapping[str, Any], opening: Opening) -> None:
        self.reference = str(options["function"])
        self.arguments = {name: value for name, value in options.items() if name != "function"}
        self.found = find(self.reference)
        _check_arguments(self.found.function, self.arguments)
        self.endless = self.found.endless
        self.waits = False
        self.declared = opening.fields
        self.spark: Callable[[], SparkSession] = opening.spark
        self._generator: Iterator[tuple[Any, Any]] | None = None
        self._at: Any = None  # the position of the generator
        self._rows: pa.Table | None = None  # of the stretch that is on its way

    def fields(self) -> tuple[Field, ...]:
        if self.found.columns is None:
            hint = (
                "CREATE STREAM s (a INT, ...) FROM capture(...); or capture(name, columns='a INT, ...') at the function"
            )
            raise SourceError(f"the columns of {self.reference} are not known", hint=hint)
        from anabranch.engine.frames import fields_of

        try:
            found = fields_of(self.spark().createDataFrame([], self.found.columns))
        except Exception as error:
            message = f"the columns of {self.reference} are none of Spark's: {self.found.columns!r}"
            raise SourceError(message, hint="as in columns='pid INT, ts TIMESTAMP'") from error
        return tuple(Field(each.name, "timestamp" if each.type == "timestamp_ntz" else each.type) for each in found)

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        import pyarrow as pa

        before = None if position is None else position["at"]
        if self._generator is None or self._at != before:
            self._generator, self._at = self._call(before), before
        most, until = max_rows or MOST_ROWS, time.monotonic() + PATIENCE
        tables: list[pa.Table] = []
        bad: list[BadRow] = []
        moved = self.waits = False
        while sum(each.num_rows for each in tables) + len(bad) < most and (not moved or time.monotonic() < until):
            given = self._given()
            if given is None:  # its end, for now
                self._generator = None
                break
            rows, self._at = given
            moved = True
            table, wrong = self._table(rows)
            bad += wrong
            if not table.num_rows and not wrong:
                self.waits = not self.endless
                break
            tables.append(table)
        if not moved or (self._at == before and not tables):
            return None
        self._rows = pa.concat_tables(tables) if tables else self._table([])[0]
        return Stretch({"at": self._at}, None, self._rows.nbytes, tuple(bad))

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        if self._rows is None or columns is None:
            return self._rows
        return self._rows.select([name for name in self._rows.column_names if name in columns])

    def read(self, captured: list[Any]) -> DataFrame:
        """The rows on their way; those of the past are kept by the stream."""
        assert self._rows is not None
        return self.spark().createDataFrame(self._rows)

    def committed(self, stretch: Stretch) -> None:
        self._rows = None

    def _call(self, position: Any) -> Iterator[tuple[Any, Any]]:
        try:
            return iter(self.found.function(position, **self.arguments))
        except Exception as error:
            raise self._failed(error) from error

    def _given(self) -> tuple[Any, Any] | None:
        assert self._generator is not None
        try:
            given = next(self._generator, None)
        except Exception as error:
            self._generator = None  # the next try begins where the last run ended
            raise self._failed(error) from error
        if given is None:
            return None
        if not isinstance(given, tuple) or len(given) != 2:
            raise self._wrong(f"yields {given!r:.200}, not rows and the position after them")
        try:
            return given[0], json.loads(json.dumps(given[1], allow_nan=False))
        except (TypeError, ValueError):
            raise self._wrong(f"yields the position {given[1]!r:.200}, which is not plain JSON") from None

    def _table(self, rows: Any) -> tuple[pa.Table, list[BadRow]]:
        """What was yielded as a table of the stream's columns, and the rows that do not fit."""
        import pyarrow as pa

        from anabranch.engine.frames import arrow_schema

        assert self.declared is not None
        self.spark()  # first: it is Spark's parser that reads the types of columns
        schema = arrow_schema(self.declared)
        if isinstance(rows, pa.RecordBatch | pa.Table):
            table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            try:
                return table.select(schema.names).cast(schema), []
            except (KeyError, pa.ArrowException) as error:
                raise self._wrong(f"yields a table that has not the columns of the stream: {error}") from error
        listed = [rows] if isinstance(rows, dict | tuple) else list(rows)
        good: list[dict[str, Any]] = []
        bad: list[BadRow] = []
        for row in listed:
            try:
                good.append(_values(row, schema, self.declared))
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
                bad.append(BadRow(self.reference, None, f"it does not fit the columns: {error}", f"{row!r:.1000}"))
        return pa.Table.from_pylist(good, schema), bad

    def _failed(self, error: Exception) -> SourceError:
        return SourceError(
            f"the capture function {self.reference} failed: {type(error).__name__}: {error}",
            hint="nothing is lost: it is called again with the position after the last row that was committed",
        )

    def _wrong(self, what: str) -> SourceError:
        self._generator = None
        return SourceError(f"the capture function {self.reference} {what}", hint="yield rows, position")


def find(reference: str) -> Captured:
    """A capture function: one of this process, or one that is imported."""
    if reference in _FUNCTIONS:
        return _FUNCTIONS[reference]
    module, _, name = reference.partition(":")
    if not _REFERENCE.fullmatch(reference):
        hint = "write it as 'package.module:function', with a function at the top of a module"
        raise WrongOption("function", f"{reference!r} does not name a capture function", hint=hint)
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        message = f"the capture function {reference} cannot be imported: {error}"
        hint = "it has to be in a module on the Python path of every process that reads from it"
        raise WrongOption("function", message, hint=hint) from error
    if not callable(found):
        raise WrongOption("function", f"{reference} is not a function", hint="name a generator")
    return _FUNCTIONS.get(reference) or Captured(found)


def _check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        names = list(itertools.islice(inspect.signature(function).parameters, 1, None))
        hint = f"it takes {', '.join(names)}" if names else "it takes a position, and nothing else"
        raise SourceError(f"{function.__name__} cannot be called like this: {error}", hint=hint) from error


def _values(row: Any, schema: pa.Schema, fields: tuple[Field, ...]) -> dict[str, Any]:
    """A row that was yielded, as values of columns."""
    names = schema.names
    if isinstance(row, Mapping):
        unknown = next((name for name in row if name not in names), None)
        if unknown is not None:
            raise ValueError(f"there is no column {unknown}")
        values = [row.get(name) for name in names]
    else:
        values = list(row)
        if len(values) != len(names):
            raise ValueError(f"it has {len(values)} values, and there are {len(names)} columns")
    made = (_value(value, each.type, field.type) for value, each, field in zip(values, schema, fields, strict=True))
    return dict(zip(names, made, strict=True))


def _value(value: Any, type: pa.DataType, plain: str) -> Any:
    import pyarrow as pa

    if isinstance(value, str) and type != pa.string():
        return value_of(value, plain)
    if pa.types.is_integer(type) and isinstance(value, float) and not value.is_integer():
        # Arrow would leave out what is behind the point.
        raise ValueError(f"{value!r} is no {plain.upper()}")
    return pa.scalar(value, type).as_py()


KINDS = (
    Kind(
        name="capture",
        doc="a Python generator that is imported",
        example="capture(function => 'package.module:function')",
        options=(Option(name="function", doc="where it is, as package.module:function", required=True),),
        open_options=True,
        stream=lambda opening: CaptureSource(opening.options, opening),
        reads_once=True,
        abilities=("cut by rows",),
    ),
)
