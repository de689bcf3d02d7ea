"""Turns SQL over placeholders into Spark frames, and maps Spark's errors to positions in the user's text."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from anabranch.errors import (
    AnabranchError,
    DataError,
    QueryFailed,
    SqlError,
    UnknownFunction,
    UnknownName,
    WrongType,
    nearest,
)
from anabranch.plan.view import View
from anabranch.sql.calls import MOMENT, clock_calls, closing
from anabranch.sql.functions import builtin
from anabranch.sql.lexer import tokenize
from anabranch.sql.net import COUNTED, EXAMPLE
from anabranch.sql.own_aggregates import OWN_AGGREGATES
from anabranch.sql.splice import Edit, Spliced, splice
from anabranch.sql.text import Span, quote_name, words
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_PLACEHOLDER = re.compile(r"`(@[^`]+)`")


class Frames:
    """Runs SQL in one Spark session. Safe to use from several threads: every temporary view has its own name."""

    def __init__(self, spark: SparkSession, moment: Callable[[], int | None] = lambda: None) -> None:
        self.spark = spark
        self.moment = moment  # the current time in microseconds; None: the machine's clock
        #: Registers a function that Spark lacks; False if the home has none, or Spark has it already.
        self.provide: Callable[[str], bool] = lambda name: False
        self._numbers = itertools.count()
        self._empty: dict[tuple[Field, ...], DataFrame] = {}
        self._unknown: dict[tuple[Field, ...], DataFrame] = {}
        self._asked = threading.local()

    def sql(
        self,
        text: str | Spliced,
        relations: Mapping[str, DataFrame],
        *,
        source: str | None = None,
        moment: int | None = None,
    ) -> DataFrame:
        """Analyse a query over frames by placeholder. `source` is the user's text, for error messages.

        `moment` is the time that clock functions return; None: the current time.
        """
        spliced = text if isinstance(text, Spliced) else Spliced(text, ((0, len(text), 0, len(text)),))
        names: dict[str, str] = {}
        edits: list[Edit] = []
        for match in _PLACEHOLDER.finditer(spliced.text):
            placeholder = match.group(1)
            if placeholder in relations:
                names.setdefault(placeholder, f"__anabranch_{next(self._numbers)}")
                edits.append(Edit(Span(*match.span()), quote_name(names[placeholder])))
        edits += self._times(spliced.text, moment)
        final = splice(spliced.text, Span(0, len(spliced.text)), edits)
        for placeholder, name in names.items():
            relations[placeholder].createOrReplaceTempView(name)
        try:
            while True:
                try:
                    return self.spark.sql(final.text)
                except Exception as error:
                    found = translate(error, source, spliced, final)
                    if not isinstance(found, UnknownFunction) or not self.provide(found.function):
                        raise found from error
        finally:
            for name in names.values():
                self.spark.catalog.dropTempView(name)

    def _times(self, text: str, moment: int | None) -> Iterator[Edit]:
        """Replaces clock functions by their values, if the time is fixed."""
        micros = self.moment() if moment is None else moment
        if micros is None:
            return
        for name, span in clock_calls(tokenize(text)):
            yield Edit(span, moment_sql(name, micros))

    def empty(self, fields: Sequence[Field]) -> DataFrame:
        """A frame with these columns and no rows."""
        key = tuple(fields)
        if key not in self._empty:
            items = ", ".join(f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}" for field in key)
            # Not WHERE false: Spark would evaluate expressions over these columns on NULL, and some fail on it.
            self._empty[key] = self.spark.sql(f"SELECT {items} LIMIT 0") if key else self.spark.range(0).select()
        return self._empty[key]

    def unknown(self, fields: Sequence[Field]) -> DataFrame:
        """A frame with these columns and no rows, which Spark's optimiser cannot know."""
        key = tuple(fields)
        if key not in self._unknown:
            none = self.spark.sparkContext.emptyRDD()
            self._unknown[key] = self.spark.createDataFrame(none, struct(key))
        return self._unknown[key]

    @contextmanager
    def cached_analysis(self) -> Iterator[None]:
        """Cache the answers of Spark's analyser during one definition."""
        self._asked.answers = {}
        try:
            yield
        finally:
            del self._asked.answers

    def analyze(self, text: str | Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        """The columns of a query; nothing runs."""
        answers: dict[Any, list[Field]] = getattr(self._asked, "answers", {})
        key = str(text if isinstance(text, str) else text.text), tuple((n, tuple(f)) for n, f in schemas.items())
        if key not in answers:
            relations = {name: self.empty(fields) for name, fields in schemas.items()}
            answers[key] = fields_of(self.sql(text, relations))
        return list(answers[key])

    def parquet(self, paths: Sequence[str], fields: Sequence[Field]) -> DataFrame:
        """Files of the ledger; columns that a file lacks are NULL."""
        if not paths:
            return self.empty(fields)
        return self.spark.read.schema(struct(fields)).parquet(*paths)


def moment_sql(name: str, micros: int) -> str:
    """The value of a clock function at a time.

    >>> moment_sql("current_date", 0)
    "DATE '1970-01-01'"
    """
    time = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    kind, _, offset = name.partition(" ")
    moment = MOMENT.fullmatch(offset.strip("'"))
    if moment is not None:
        return _moment_sql(kind, moment[1], moment[2], time)
    if name == "unix_timestamp":
        return f"{micros // 1_000_000}L"
    if name in ("current_date", "curdate"):
        return f"DATE '{time:%Y-%m-%d}'"
    if name == "current_time":
        return f"TIME '{time:%H:%M:%S.%f}'"
    return f"{'TIMESTAMP_NTZ' if name == 'localtimestamp' else 'TIMESTAMP'} '{time:%Y-%m-%d %H:%M:%S.%f}'"


def _moment_sql(kind: str, offset: str, zone: str | None, time: datetime) -> str:
    """The value of a literal such as 'today' at a time; a day is its midnight."""
    exact = f"TIMESTAMP '{time:%Y-%m-%d %H:%M:%S.%f}'"
    if offset == "now":
        return exact if kind == "timestamp" else f"CAST({exact} AS {kind.upper()})"
    zone = zone or "UTC"
    days = {"yesterday": -1, "today": 0, "tomorrow": 1}[offset]
    date = f"date_add(CAST(from_utc_timestamp({exact}, '{zone}') AS DATE), {days})"
    if kind == "date":
        return date
    return f"CAST(to_utc_timestamp(CAST({date} AS TIMESTAMP), '{zone}') AS {kind.upper()})"


def struct(fields: Sequence[Field]) -> StructType:
    """The columns as Spark's own type. Spark must be running, as its parser reads the types."""
    return _struct(tuple(fields))


@lru_cache(maxsize=1024)
def _struct(fields: tuple[Field, ...]) -> StructType:
    from pyspark.sql.types import StructType

    made = StructType.fromDDL(", ".join(f"{quote_name(field.name)} {field.type}" for field in fields))
    assert isinstance(made, StructType)
    return made


def fields_of(frame: DataFrame) -> list[Field]:
    return [Field(each.name, each.dataType.simpleString()) for each in frame.schema.fields]


def arrow_schema(fields: Sequence[Field]) -> Any:
    """The Arrow schema of frames with these columns. Spark must be running if one of them is nested."""
    import pyarrow as pa

    plain = [(field.name, _plain_type(field.type)) for field in fields]
    if all(type is not None for _, type in plain):
        return pa.schema([pa.field(name, type) for name, type in plain])
    found = []
    for field, each in zip(fields, struct(fields).fields, strict=True):
        try:
            found.append(pa.field(each.name, _arrow_type(each.dataType)))
        except WrongType as error:
            error.message = f"the column {field.name} is of type {field.type.upper()}, which cannot be stored"
            raise
    return pa.schema(found)


def _plain_type(type: str) -> Any:
    """The Arrow type of a simple type in Spark's spelling; None for others."""
    import pyarrow as pa

    simple = {
        "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    digits = re.fullmatch(r"decimal\((\d+),(\d+)\)", type)
    return pa.decimal128(int(digits[1]), int(digits[2])) if digits is not None else simple.get(type)


def table_of(fields: tuple[Field, ...], rows: Iterable[tuple[Any, ...]]) -> Any:
    """Rows as an Arrow table."""
    import pyarrow as pa

    rows = list(rows)
    schema = arrow_schema(fields)
    arrays = [pa.array([row[index] for row in rows], type=each.type) for index, each in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _arrow_type(kind: DataType) -> Any:
    import pyarrow as pa
    from pyspark.sql import types as t

    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        return pa.list_(_arrow_type(kind.elementType))
    if isinstance(kind, t.MapType):
        return pa.map_(_arrow_type(kind.keyType), _arrow_type(kind.valueType))
    if isinstance(kind, t.StructType):
        return pa.struct([pa.field(each.name, _arrow_type(each.dataType)) for each in kind.fields])
    simple = {
        t.BooleanType: pa.bool_(),
        t.ByteType: pa.int8(),
        t.ShortType: pa.int16(),
        t.IntegerType: pa.int32(),
        t.LongType: pa.int64(),
        t.FloatType: pa.float32(),
        t.DoubleType: pa.float64(),
        t.StringType: pa.string(),
        t.CharType: pa.string(),
        t.VarcharType: pa.string(),
        t.BinaryType: pa.binary(),
        t.DateType: pa.date32(),
        t.TimestampType: pa.timestamp("us", "UTC"),
        t.TimestampNTZType: pa.timestamp("us"),
        t.NullType: pa.null(),
    }
    if type(kind) not in simple:
        raise WrongType(
            f"the type {kind.simpleString()} cannot be stored in a table",
            hint="cast it to a string, CAST(... AS STRING), or to a number",
        )
    return simple[type(kind)]


def hashable(value: Any) -> Any:
    """A value that can be a key in Python, and that Arrow converts like the original.

    Lists, structs and maps become tuples. NaN becomes one object, since it equals only itself.
    """
    if isinstance(value, dict):
        return tuple(hashable(each) for each in value.values())
    if isinstance(value, list | tuple):
        return tuple(hashable(each) for each in value)
    return math.nan if isinstance(value, float) and value != value else value


def translate(
    error: Exception, source: str | None = None, spliced: Spliced | None = None, final: Spliced | None = None
) -> Exception:
    """An error of Spark's as one of ours: without Java's stack trace, at its position in the user's text."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(error, Py4JJavaError):
        cause = _data_error(error)
        if cause is None:
            return QueryFailed(readable(error))
        error = cause
    if isinstance(error, AnabranchError) or not isinstance(error, PySparkException):
        return error
    condition = error.getCondition() or "" if hasattr(error, "getCondition") else ""
    message = readable(error)
    span = _span_of(error, spliced, final) if isinstance(error, AnalysisException | ParseException) else None
    if isinstance(error, AnalysisException | ParseException):
        kind: type[SqlError] = SqlError
        if condition.startswith("UNRESOLVED_ROUTINE"):
            kind = UnknownFunction
        elif condition.startswith(("UNRESOLVED", "TABLE_OR_VIEW_NOT_FOUND")):
            kind = UnknownName
        elif "TYPE" in condition or "DATATYPE" in condition:
            kind = WrongType
        message, hint = _unresolved(error, condition, message)
        if source is not None and span is not None:
            made = kind(message, text=source, start=span.start, end=span.end, hint=hint)
        else:
            made = kind(message, hint=hint)
        if isinstance(made, UnknownFunction):
            made.function = _routine(error)
        return made
    if is_data_error(error):
        return in_text(DataError(_plain_words(message), expression=_fragment(error), condition=condition), source)
    in_arrow = condition == "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION"
    return QueryFailed(message, hint="cast it to a string, CAST(... AS STRING), or to a number" if in_arrow else None)


#: Prefixes of SQLSTATE: values that cannot be computed, duplicate map keys, and errors raised by queries.
_OF_DATA = ("22", "23505", "P0001")


def is_data_error(error: BaseException) -> bool:
    """Whether an error comes from values in rows, and not from the query or the machine."""
    if isinstance(error, DataError) or _data_error(error) is not None:
        return True
    state = error.getSqlState() if hasattr(error, "getSqlState") else None
    return state is not None and state.startswith(_OF_DATA)


def _data_error(error: BaseException) -> Exception | None:
    """The error about rows that caused an error in one of Spark's own threads, which broadcast an input of a join, for
    example."""
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        from pyspark.errors.exceptions.captured import convert_exception

        found: Exception = convert_exception(cause)
        if is_data_error(found):
            return found
        cause = cause.getCause()
    return None


def _plain_words(message: str) -> str:
    """A message without Spark's advice to turn ANSI mode off, which does not apply to views."""
    message = re.sub(r"\s*If necessary set \S+ to \S+ to bypass this error\.", "", message)
    return re.sub(r"^(?:\w+ )?overflow\. ", "overflow: the result is too large for its type. ", message)


def _fragment(error: Any) -> str:
    """The failed expression, as in the text passed to Spark."""
    try:
        return next((context.fragment() for context in error.getQueryContext()), "")
    except Exception:  # no context, or one of another kind
        return ""


def in_text(error: DataError, source: str | None) -> DataError:
    """The error with the position of its expression in a user's text, if it occurs there exactly once."""
    if source is None or error.text is not None:
        return error
    if not error.expression and error.condition in _CALLS:
        return _at_the_call(error, source)
    wanted, text = _bare(error.expression), _bare(source)
    names = [name for name, _ in wanted]
    positions = [
        at for at in range(len(text) - len(names) + 1) if [name for name, _ in text[at : at + len(names)]] == names
    ]
    if not names or len(positions) != 1:
        return error
    span = text[positions[0]][1].to(text[positions[0] + len(names) - 1][1])
    return error.at(source, span.start, span.end)


#: By condition of an error for which Spark gives no position: the functions that raise it.
_CALLS = {
    "ARITHMETIC_OVERFLOW": words("SUM"),
    "CAST_OVERFLOW": words("CAST"),
    "CANNOT_PARSE_TIMESTAMP": words("TO_DATE TO_TIMESTAMP TO_TIMESTAMP_NTZ TO_TIMESTAMP_LTZ TO_UNIX_TIMESTAMP"),
}


def _at_the_call(error: DataError, source: str) -> DataError:
    """An error without an expression, at the only call in a text that can raise it; unchanged if there are more."""
    names = _CALLS[error.condition or ""]
    try:
        tokens = tokenize(source)[:-1]
    except AnabranchError:
        return error
    pairs = enumerate(pairwise(tokens))
    positions = [index for index, (word, behind) in pairs if word.upper in names and behind.text == "("]
    if len(positions) != 1:
        return error
    error.expression = Span(tokens[positions[0]].start, tokens[closing(tokens, positions[0] + 1)].end).of(source)
    return in_text(error, source)


def named(view: View, error: DataError) -> DataError:
    """An error of a view, with the view's name and the position in its text."""
    found = in_text(error, view.sql)
    found.message = f"view {view.name}: {error.message}"
    return found


def _bare(text: str) -> list[tuple[str, Span]]:
    """The tokens of a text, with unquoted and unqualified column names."""
    try:
        tokens = tokenize(text)[:-1]
    except AnabranchError:
        return []
    found: list[tuple[str, Span]] = []
    for index, token in enumerate(tokens):
        if token.text == "." and index and tokens[index - 1].is_name and found:
            continue
        span = token.span
        if token.is_name and index > 1 and tokens[index - 1].text == "." and tokens[index - 2].is_name:
            span = found.pop()[1].to(span)
        found.append((token.name.lower() if token.is_name else token.text, span))
    return found


def _span_of(error: Any, spliced: Spliced | None, final: Spliced | None) -> Span | None:
    start = stop = None
    try:
        for context in error.getQueryContext():
            start, stop = context.startIndex(), context.stopIndex() + 1
            break
    except Exception:  # no context, or one of another kind: the message has to do
        return None
    if start is None and final is not None:
        start, stop = _sole_mention(error, final.text)
    if start is None or stop is None or start < 0:
        match = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
        if match is None or final is None:
            return None
        lines = final.text.split("\n")
        start = sum(len(line) + 1 for line in lines[: int(match.group(1)) - 1]) + int(match.group(2))
        stop = start + 1
    if final is None or spliced is None:
        return None
    middle = final.original(start, stop)
    return spliced.original(middle.start, middle.end)


def _sole_mention(error: Any, text: str) -> tuple[int | None, int | None]:
    """The position of the column that is neither grouped by nor aggregated, if it occurs once: Spark gives none."""
    if not (error.getCondition() or "").startswith("MISSING_AGGREGATION"):
        return None, None
    name = _ungrouped(error.getMessageParameters() or {})
    positions = (
        [match.span() for match in re.finditer(rf"(?<![\w`]){re.escape(name)}(?![\w.`(])", text)] if name else []
    )
    return positions[0] if len(positions) == 1 else (None, None)


def _ungrouped(parameters: Mapping[str, str]) -> str:
    return parameters.get("expression", "").strip('"')


def _unresolved(error: Any, condition: str, message: str) -> tuple[str, str | None]:
    try:
        parameters = error.getMessageParameters() or {}
    except Exception:
        parameters = {}
    if parameters.get("sqlExpr", "").strip('"') == COUNTED:
        return "the count of NET is not a whole number", EXAMPLE
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = parameters.get("objectName", "").replace("`", "").removeprefix("__rows.")
        proposal = parameters.get("proposal", "").replace("`", "")
        names = [each.strip().split(".")[-1] for each in proposal.split(",") if each.strip()]
        shown = [each for each in names if not each.startswith("_")]
        from anabranch.errors import did_you_mean

        return f"there is no column {name}", did_you_mean(name.split(".")[-1], shown)
    if condition.startswith("UNRESOLVED_ROUTINE"):
        name = _routine(error)
        return f"there is no function {name}", _nearest_function(name)
    if condition == "UNRESOLVABLE_TABLE_VALUED_FUNCTION":
        name = parameters.get("name", "").replace("`", "")
        files = "a file is read by its name in quotes, 'x.csv', or by its format: csv('x.csv')"
        return f"there is no function {name} in FROM", files
    if condition.startswith("WRONG_NUM_ARGS") and {"functionName", "expectedNum", "actualNum"} <= parameters.keys():
        name, expected, given = (parameters[each] for each in ("functionName", "expectedNum", "actualNum"))
        many = "argument" if expected == "1" else "arguments"
        return f"{name.replace('`', '')} takes {expected} {many}, not {given}", None
    if condition == "MISSING_GROUP_BY":
        what = "there is no GROUP BY, and not every column is aggregated"
        return what, "GROUP BY the columns that are not, or aggregate them; any_value(...) takes any value of a column"
    if condition.startswith("MISSING_AGGREGATION") and _ungrouped(parameters):
        name = _ungrouped(parameters)
        return (
            f"{name} is neither grouped by nor aggregated",
            f"add it to GROUP BY, aggregate it, or use any_value({name}) if any of its values will do",
        )
    return message, None


def _routine(error: Any) -> str:
    name: str = (error.getMessageParameters() or {}).get("routineName", "")
    return name.replace("`", "").split(".")[-1]


def _nearest_function(name: str) -> str:
    match = nearest(name, [*builtin(), *OWN_AGGREGATES])
    return f"did you mean {match}?" if match else f"CREATE FUNCTION {name} AS 'package.module.function' defines one"


def readable(error: BaseException) -> str:
    """The part of a Spark error that helps a reader."""
    text = str(error)
    caused = re.findall(r"Caused by: [\w.$]+(?:Exception|Error): (.+)", text)
    first = text
    if caused and ("SparkException: Job aborted" in text or "SparkException: Exception thrown in await" in text):
        first = caused[-1]
    for marker in ("\n\tat ", "\nJVM stacktrace", "; line ", "\n== SQL", "\nDriver stacktrace", "\n'"):
        first = first.split(marker)[0]
    first = re.split(r"(?:SQLSTATE: \w+)?;\n", first)[0]  # the plan follows
    first = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", first.strip())
    first = re.sub(r"\s*SQLSTATE: \w+", "", first)
    first = re.sub(r"\s*\(line \d+, pos \d+\)$", "", first)  # in the rewritten text, not the user's
    first = re.sub(r"`__anabranch_\d+`\.?", "", first)
    return first.strip() or type(error).__name__
