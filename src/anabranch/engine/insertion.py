"""Rows to insert from Python: Arrow, pandas, Polars and Spark frames, and dicts.

Columns are matched by name and cast as by INSERT. A value that a cast would change is refused, with its column and row.
A Spark frame is never collected.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anabranch.engine.core import Core
from anabranch.engine.frames import arrow_schema, fields_of
from anabranch.errors import UnknownName, UsageError, WrongType, did_you_mean
from anabranch.sql.text import quote_name, quote_string
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_ROW = "__row"


@dataclass(frozen=True)
class Given:
    """Rows to insert: a Spark frame, and the Arrow table that it is made from, if any."""

    make: Callable[[], DataFrame]
    table: Any = None  # pyarrow.Table

    @cached_property
    def frame(self) -> DataFrame:
        return self.make()

    @property
    def bytes(self) -> int:
        return int(self.table.nbytes) if self.table is not None else 0


def rows_to_insert(core: Core, data: Any, name: str, fields: Sequence[Field]) -> Given:
    """The rows of `data`; its columns must be columns of `name`."""
    from pyspark.sql import DataFrame

    if isinstance(data, DataFrame):
        _check_columns(data.columns, name, fields)
        return Given(lambda: bring(core, data))
    _ = core.spark  # its parser reads the types of columns
    table = _arrow(data, name, fields)
    _check_columns(table.column_names, name, fields)
    table = _readable(table)
    return Given(lambda: core.spark.createDataFrame(table), table)


def fitted(given: Given, fields: Sequence[Field]) -> DataFrame:
    """The rows with the columns and types of the target; missing columns are NULL."""
    sources = {field.name.lower(): field for field in fields_of(given.frame)}
    items = []
    for field in fields:
        source = sources.get(field.name.lower())
        item = f"CAST(NULL AS {field.type})" if source is None else _cast(source, field)
        items.append(f"{item} AS {quote_name(field.name)}")
    return given.frame.selectExpr(*items)


def as_given(given: Given, fields: Sequence[Field]) -> Any:
    """The rows as an Arrow table with the columns of the target, if they need no cast; None otherwise."""
    if given.table is None:
        return None
    import pyarrow as pa

    schema = arrow_schema(fields)
    columns = {name.lower(): column for name, column in zip(given.table.column_names, given.table.columns, strict=True)}
    found = [columns.get(each.name.lower(), pa.nulls(given.table.num_rows, each.type)) for each in schema]
    same = all(column.type == each.type for column, each in zip(found, schema, strict=True))
    return pa.table(found, schema=schema) if same else None


def misfit(core: Core, given: Given, fields: Sequence[Field]) -> WrongType | None:
    """The error about the first value that does not fit, once a cast has failed."""
    frame = given.frame
    if given.table is not None:
        import pyarrow as pa

        numbered = given.table.append_column(_ROW, pa.array(range(1, given.table.num_rows + 1), pa.int64()))
        frame = core.spark.createDataFrame(numbered)
    sources = {field.name.lower(): field for field in fields_of(given.frame)}
    for field in fields:
        source = sources.get(field.name.lower())
        if source is None:
            continue
        shown = f"CAST({quote_name(source.name)} AS STRING) AS value"
        row = _ROW if given.table is not None else f"CAST(NULL AS BIGINT) AS {_ROW}"
        bad = frame.where(_misfits(source, field)).selectExpr(shown, row)
        found = (bad.orderBy(_ROW) if given.table is not None else bad).limit(1).collect()
        if found:
            at = "" if found[0][1] is None else f", row {found[0][1]}"
            return WrongType(
                f"column {field.name}{at}: {_short(found[0][0])} does not fit {field.type}", hint="nothing was inserted"
            )
    return None


def bring(core: Core, frame: DataFrame) -> DataFrame:
    """A frame of another session of the same Spark application, in our session."""
    if frame.sparkSession is core.spark:
        return frame
    name = f"__anabranch_{uuid.uuid4().hex}"
    try:
        frame.createGlobalTempView(name)
    except Exception as error:
        raise UsageError("this frame is from another Spark application than this home", hint=str(error)) from error
    try:
        return core.spark.table(f"global_temp.{name}")
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(name)


def _cast(source: Field, field: Field) -> str:
    """A column cast to the target's type. A value that does not fit raises an error, with any setting of ANSI mode."""
    name = quote_name(source.name)
    if source.type == field.type:
        return name
    message = (
        quote_string(f"column {field.name}: "),
        f"CAST({name} AS STRING)",
        quote_string(f" does not fit {field.type}"),
    )
    failed = f"CAST(raise_error(concat({', '.join(message)})) AS {field.type})"
    return f"CASE WHEN {_misfits(source, field)} THEN {failed} ELSE CAST({name} AS {field.type}) END"


def _misfits(source: Field, field: Field) -> str:
    name = quote_name(source.name)
    cast = f"try_cast({name} AS {field.type})"
    lost = f" OR {name} <> {cast}" if _loses_fraction(source, field) else ""
    return f"{name} IS NOT NULL AND ({cast} IS NULL{lost})"


def _loses_fraction(source: Field, field: Field) -> bool:
    """Whether a cast would cut off fractions."""
    return field.type in _WHOLE and (source.type in ("float", "double") or source.type.startswith("decimal"))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_columns(given: Sequence[str], name: str, fields: Sequence[Field]) -> None:
    known = {field.name.lower() for field in fields}
    for each in given:
        if each.lower() not in known:
            raise _no_column(each, name, fields)
    twice = [each for each, count in Counter(each.lower() for each in given).items() if count > 1]
    if twice:
        raise UsageError(f"column {twice[0]} is given twice", hint="column names must differ in more than case")


def _no_column(given: str, name: str, fields: Sequence[Field], at: str = "") -> UnknownName:
    return UnknownName(f"{name} has no column {given}{at}", hint=did_you_mean(given, [field.name for field in fields]))


# ---- to Arrow


def _arrow(data: Any, name: str, fields: Sequence[Field]) -> pa.Table:
    import pyarrow as pa

    try:
        if isinstance(data, pa.Table):
            return data
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if isinstance(data, pa.RecordBatchReader):
            return data.read_all()
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):  # Polars and others
            return pa.table(data)
    except pa.ArrowException as error:
        raise WrongType(f"the rows for {name} cannot be read: {error}", hint="nothing was inserted") from error
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise UsageError(
            f"rows for {name} cannot be read from a {type(data).__name__}",
            hint="give dicts, or a table of Arrow, pandas, Polars or Spark",
        )
    return _of_dicts(data, name, fields)


def _of_dicts(rows: Iterable[Any], name: str, fields: Sequence[Field]) -> pa.Table:
    import pyarrow as pa

    known = {field.name.lower(): index for index, field in enumerate(fields)}
    columns: list[list[Any]] = [[] for _ in fields]
    positions: dict[Any, int] = {}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise UsageError(f"row {number} is a {type(row).__name__}, not a dict", hint="give dicts by column")
        values: list[Any] = [None] * len(fields)
        for key, value in row.items():
            if key not in positions:
                if str(key).lower() not in known:
                    raise _no_column(str(key), name, fields, f" (row {number})")
                positions[key] = known[str(key).lower()]
            values[positions[key]] = value
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    schema = arrow_schema(fields)
    arrays = [_array(*each) for each in zip(columns, fields, schema.types, strict=True)]
    return pa.table(arrays, names=schema.names)


def _array(values: list[Any], field: Field, kind: pa.DataType) -> pa.Array:
    """The values of a column: in its type if Arrow accepts them, otherwise in their own, for Spark to cast."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        values = [list(value.items()) if isinstance(value, Mapping) else value for value in values]
    wrong = (pa.ArrowException, TypeError, ValueError, OverflowError)
    if pa.types.is_nested(kind):
        for row, value in enumerate(values, 1):
            _check_nested(value, kind, f"column {field.name}, row {row}")
    if not any(_means_other(value, kind) for value in values):
        try:
            return pa.array(values, kind)
        except wrong:
            pass
    try:
        return pa.array(values)
    except wrong as error:
        bad = next(_bad(values, kind, wrong), None)
        what = f": {error}" if bad is None else f", row {bad[0]}: {_short(bad[1])} does not fit {field.type}"
        raise WrongType(f"column {field.name}{what}", hint="nothing was inserted") from error


def _bad(values: list[Any], kind: pa.DataType, wrong: tuple[type[Exception], ...]) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa

    for row, value in enumerate(values, 1):
        try:
            pa.array([value], kind)
        except wrong:
            yield row, value


def _means_other(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow converts a value differently from Spark: it truncates fractions, and reads numbers as times in its
    own units."""
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return isinstance(value, float | Decimal)
    return pa.types.is_temporal(kind) and isinstance(value, int)


def _check_nested(value: Any, kind: pa.DataType, where: str) -> None:
    """Refuse what Arrow would drop from a nested value, or change in it."""
    import pyarrow as pa

    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        for key, inner in value.items():
            if kind.get_field_index(str(key)) < 0:
                raise UnknownName(f"{where}: there is no field {key}", hint=f"it is a {kind}")
            _check_nested(inner, kind.field(str(key)).type, where)
    elif pa.types.is_map(kind) and isinstance(value, list):
        for key, inner in value:
            _check_nested(key, kind.key_type, where)
            _check_nested(inner, kind.item_type, where)
    elif pa.types.is_list(kind) and isinstance(value, list | tuple):
        for inner in value:
            _check_nested(inner, kind.value_type, where)
    elif _means_other(value, kind):
        raise WrongType(f"{where}: {_short(value)} does not fit {kind}", hint="nothing was inserted")


def _readable(table: pa.Table) -> pa.Table:
    """The table in types that Spark reads; values that would lose precision are refused."""
    import pyarrow as pa

    types = pa.types

    def readable(kind: pa.DataType) -> pa.DataType:
        if types.is_dictionary(kind):
            return readable(kind.value_type)
        if types.is_unsigned_integer(kind):
            return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(kind.bit_width, pa.decimal128(20, 0))
        if types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if types.is_duration(kind):
            return pa.duration("us")
        if types.is_float16(kind):
            return pa.float32()
        return pa.date32() if types.is_date64(kind) else kind

    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        try:
            columns.append(column.cast(readable(field.type)))
        except pa.ArrowException as error:
            raise WrongType(f"column {field.name}: {error}", hint="nothing was inserted") from error
    return pa.table(columns, names=table.column_names)
