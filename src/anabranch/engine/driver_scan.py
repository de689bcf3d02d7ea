"""The scan of a run on the driver: its rows as an Arrow table, its partials by DuckDB, without a Spark job.

A small run mostly waits for Spark to plan and start, and even larger runs are faster here. DuckDB computes what it
computes like Spark; Spark computes everything else, and every run with a bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import EVERY_KEY, MOST_KEYS
from anabranch.algebra.rules import Computed, Punctuation
from anabranch.algebra.windows import pane_number_sql
from anabranch.algebra.windows.spans import COUNT, WEIGHT, Judging
from anabranch.duck import path_list, places_for, quoted, timestamp
from anabranch.engine.driver import connection
from anabranch.engine.frames import arrow_schema
from anabranch.engine.numbering import number_table
from anabranch.engine.partial_windows import kept_partials_sql, window_position_sql
from anabranch.engine.row_conditions import punctuation_sql
from anabranch.engine.tables import PANE
from anabranch.kernel import ROWS
from anabranch.plan.definitions import ARRIVAL_TS, ROW_NUM, Stream
from anabranch.plan.panes import STREAM
from anabranch.plan.states import Panes, Rows
from anabranch.plan.types import duckdb_type
from anabranch.plan.windows import micros_sql
from anabranch.render.duckdb import driver_sql
from anabranch.sources.base import PARTITION
from anabranch.sources.parquet_rows import InFiles
from anabranch.sources.row_groups import InGroups
from anabranch.sources.row_lines import InLines
from anabranch.sql.text import quote_name
from anabranch.types import INTEGERS, Field

if TYPE_CHECKING:
    import pyarrow as pa

#: The prefix of a FROM clause as a query.
_FROM = "SELECT * FROM "
#: The column with the position of a row in a query of this module, and the table of the bounds of keys.
_PLACE, _BOUNDS = "__place", "__bounds"
#: Types whose values have the same text in DuckDB as in Spark; dates of far years, say, do not.
_SAME_AS_TEXT = ("string", "boolean", *INTEGERS)
#: The table of what is known of the groups of the rows, for queries that read it.
KNOWN = "__known"

#: Returns columns of a run's rows (None: all) without a Spark job; None where that is not possible.
ReadArrow = Callable[[Collection[str] | None], "pa.Table | None"]
#: Returns files with columns of a run's rows that DuckDB can read directly, with the statistics of an event time.
ReadInFiles = Callable[[Collection[str], str | None], InFiles | None]
#: Returns columns of a run's rows by the row groups or the lines of their files, and an event time.
ReadInGroups = Callable[[Collection[str], str | None], InGroups | InLines | None]


class DriverScan:
    """The rows of one run, without bad ones, and the statistics for progress."""

    def __init__(self, stream: Stream, came: Any, plain: Any, first: int, at: int, counted: dict[str, Any]) -> None:
        self.stream = stream
        self.came = came  # including rows that only mark progress
        self.plain = plain
        self._first, self._at = first, at
        self._counted = counted

    @classmethod
    def of(
        cls,
        stream: Stream,
        arrow_rows: ReadArrow,
        first: int,
        at: int,
        parts: Sequence[str],
        limit: int | None,
        bound: int | None,
        columns: Collection[str] | None,
    ) -> DriverScan | None:
        """Columns of a run's rows, if they are available without Spark and so are all statistics.

        With several `parts`, or a `limit` to how far ahead times may be, rows are counted by partition.
        """
        import pyarrow as pa

        value, counts_by_part = value_text(stream), len(parts) > 1 or limit is not None
        if value is None or (stream.key is not None and _type_of_key(stream) not in _SAME_AS_TEXT):
            return None
        if counts_by_part and (value or stream.key is not None or (stream.rule is not None and stream.rule.in_order)):
            return None
        every = columns if columns is not None else [field.name for field in stream.fields]
        rows = arrow_rows([*every, PARTITION] if counts_by_part else columns)
        if rows is None or (stream.time is not None and rows.column(stream.time).null_count):
            return None
        if counts_by_part and PARTITION not in rows.column_names:
            rows = rows.append_column(PARTITION, pa.repeat(pa.scalar(parts[0], pa.string()), rows.num_rows))
        if counts_by_part:
            plain = rows.drop_columns([PARTITION])
            counted = {} if stream.time is None else _by_part(rows, stream.time, parts, limit, bound)
            return cls(stream, plain, plain, first, at, counted)
        if not value:
            return cls(stream, rows, rows, first, at, {})
        data = _without_punctuation(stream, rows, value)
        return None if data is None else cls(stream, rows, data[0], first, at, data[1])

    @cached_property
    def rows(self) -> Any:
        """The rows with their numbers."""
        return number_table(self.plain, self._first, self._at)

    def statistics(self, bound: int | None) -> dict[str, Any]:
        """What a scan by Spark would have counted."""
        import pyarrow.compute as compute

        values: dict[str, Any] = {"rows": self.plain.num_rows, "bad": 0}
        if self.stream.time is not None:
            times = self.plain.column(self.stream.time).cast("int64")
            ends = compute.min_max(times)
            late = compute.sum(compute.less(times, bound)).as_py() if bound is not None else 0
            values |= {"low": ends["min"].as_py(), "high": ends["max"].as_py(), "late": late or 0}
        return values | self._counted

    def times(self, part: str) -> dict[str, list[int]]:
        """The event times of the rows in order of arrival: of the only partition, or of each key."""
        times: list[int] = self.plain.column(self.stream.time).cast("int64").to_pylist()
        if self.stream.key is None:
            return {part: times}
        found: dict[str, list[int]] = {}
        for value, time in zip(self.plain.column(self.stream.key).cast("string").to_pylist(), times, strict=True):
            found.setdefault("" if value is None else f"={value}", []).append(time)
        return found

    def keys(self, bound: int, own: Mapping[str, int]) -> dict[str, Mapping[str, Any]]:
        """The statistics of each key; rows below a bound, or below that of their key, are late."""
        import pyarrow as pa

        value, time = value_text(self.stream) or "", f"epoch_us({quoted(self.stream.time or '')})"
        marked = isinstance(self.stream.rule, Punctuation)
        data, key = f"NOT ({value})" if marked else "true", quoted(self.stream.key or "")
        part = f"coalesce('=' || CAST({key} AS VARCHAR), '')"
        if marked:
            part = f"CASE WHEN {key} IS NULL AND {value} THEN '{EVERY_KEY}' ELSE {part} END"
        reached = f"CASE WHEN {value} THEN {time} END" if marked else f"epoch_us({value})" if value else "NULL"
        bounds = pa.table({"__part": pa.array(own, pa.string()), "__own": pa.array(own.values(), pa.int64())})
        duck = connection()
        duck.register(ROWS, self.came)
        duck.register(_BOUNDS, bounds)
        try:
            groups = duck.sql(
                f"WITH came AS (SELECT {part} AS __part, {time} AS t, {reached} AS reached, {data} AS data FROM {ROWS})"
                " SELECT __part AS key, max(t) AS highest, count(*) AS rows, max(reached) AS highest_value,"
                f" count(*) FILTER (data AND t < coalesce(__own, {bound})) AS late"
                f" FROM came LEFT JOIN {_BOUNDS} USING (__part) GROUP BY __part LIMIT {MOST_KEYS + 2}"
            ).to_arrow_table()
        finally:
            duck.unregister(ROWS)
            duck.unregister(_BOUNDS)
        return {group.pop("key"): group for group in groups.to_pylist()}

    def query(self, text: str, fields: tuple[Field, ...], known: Any = None) -> Any:
        """What a text of this module gives; None if that is Spark's to say."""
        import duckdb
        import pyarrow as pa

        rows = self.rows if numbered(text) else self.plain
        try:
            with _bound({ROWS: rows, KNOWN: known}, text, fields) as made:
                return _found(made, fields)
        except (duckdb.Error, pa.ArrowInvalid):
            return None  # an overflow, say: Spark tells of it in its own words


class FileScan:
    """The rows of one run in files with the needed statistics: a single query streams them.

    So they are never all in memory, and not copied; and DuckDB uses the statistics of the files. Where several queries
    read the rows, or their order matters, use `DriverScan`.
    """

    def __init__(self, stream: Stream, rows_in_files: InFiles, columns: Collection[str], late: int) -> None:
        self.stream = stream
        self._files, self._columns, self._late = rows_in_files, columns, late

    @classmethod
    def of(
        cls, stream: Stream, rows_in_files: ReadInFiles, columns: Collection[str], text: str, bound: int | None
    ) -> FileScan | None:
        """The rows of a run for one query of this module, if their files have all needed statistics."""
        in_order = stream.rule is not None and stream.rule.in_order
        if stream.live or in_order or stream.key is not None or value_text(stream) != "" or numbered(text):
            return None
        found = rows_in_files(columns, stream.time)
        if found is None:
            return None
        rows = cls(stream, found, columns, 0)
        if bound is None or found.low is None or found.low >= bound:
            return rows
        late = rows._below(bound)
        return None if late is None else cls(stream, found, columns, late)

    def _below(self, bound: int) -> int | None:
        """How many rows have an event time below a bound."""
        import duckdb

        below = f"{quoted(self.stream.time or '')} < {timestamp(str(bound))}"
        try:
            return int(connection().sql(self._over(f"SELECT count(*) FROM {ROWS} WHERE {below}")).fetchall()[0][0])
        except duckdb.Error:
            return None

    def _over(self, text: str) -> str:
        files = f"read_parquet({path_list(list(self._files.paths))}, hive_partitioning = false)"
        rows = f"SELECT {', '.join(map(quoted, self._columns))} FROM {files}"
        return f"WITH {ROWS} AS NOT MATERIALIZED ({rows}) SELECT * FROM ({text})"

    def statistics(self, _: int | None) -> dict[str, Any]:
        """What a scan by Spark would have counted."""
        values: dict[str, Any] = {"rows": self._files.rows, "bad": 0}
        if self.stream.time is not None:
            values |= {"low": self._files.low, "high": self._files.high, "late": self._late}
        return values

    def query(self, text: str, fields: tuple[Field, ...], known: Any = None) -> Any:
        """What a text of this module gives; None if that is Spark's to say."""
        import duckdb
        import pyarrow as pa

        try:
            with places_for(self._files.rows), _bound({KNOWN: known}, self._over(text), fields) as made:
                return _found(made, fields)
        except (duckdb.Error, pa.ArrowInvalid):
            return None


def numbered(text: str) -> bool:
    """Whether a query of this module may use row numbers."""
    return ROW_NUM in text or ARRIVAL_TS in text


def _found(made: Any, fields: tuple[Field, ...]) -> Any:
    """DuckDB's result in the types of these fields."""
    if made is None:
        return None
    return made.to_arrow_table().rename_columns([field.name for field in fields]).cast(arrow_schema(fields))


def value_text(stream: Stream) -> str | None:
    """The DuckDB expression of the rule of a stream over a row; empty without one, None if Spark has to compute it."""
    if isinstance(stream.rule, Computed):
        return driver_sql(f"CAST({stream.rule.expression} AS TIMESTAMP)", _nothing, stream.row_fields)
    marks = punctuation_sql(stream)
    return "" if marks is None else driver_sql(marks, _nothing, stream.row_fields)


def _type_of_key(stream: Stream) -> str:
    return next(field.type for field in stream.fields if field.name == stream.key)


def _without_punctuation(stream: Stream, rows: Any, value: str) -> tuple[Any, dict[str, Any]] | None:
    """The data rows, and the statistics of all rows; None if Spark has to compute them."""
    import duckdb
    import pyarrow as pa

    assert stream.time is not None
    marked = isinstance(stream.rule, Punctuation)
    micros = f"epoch_us({quoted(stream.time)})"
    numbered = rows.append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
    found = f"max({micros}) FILTER ({value}), list({_PLACE}) FILTER ({value})" if marked else f"max(epoch_us({value}))"
    duck = connection()
    duck.register(ROWS, numbered)
    try:
        highest, reached, *marks = duck.sql(f"SELECT max({micros}), {found} FROM {ROWS}").fetchall()[0]
    except duckdb.Error:
        return None
    finally:
        duck.unregister(ROWS)
    counted = {"highest_0": highest, "rows_0": rows.num_rows, "highest_value_0": reached}
    if marks and marks[0]:
        data = [True] * rows.num_rows
        for place in marks[0]:
            data[place] = False
        rows = rows.filter(pa.array(data))
    return rows, counted


_OF_PART = ("highest", "rows", "high", "ahead", "late")


def _by_part(rows: Any, time: str, parts: Sequence[str], limit: int | None, bound: int | None) -> dict[str, Any]:
    """The statistics of each partition, by position."""
    honest = f"t <= {limit}" if limit is not None else "true"
    late = f"t < {bound}" if bound is not None else "false"
    duck = connection()
    duck.register(ROWS, rows.select([PARTITION, time]))
    try:
        groups = duck.sql(
            f"WITH came AS (SELECT {PARTITION} AS part, epoch_us({quoted(time)}) AS t FROM {ROWS})"
            f" SELECT part, max(t), count(*), max(t) FILTER ({honest}), count(*) FILTER (NOT ({honest})),"
            f" count(*) FILTER ({late}) FROM came GROUP BY part"
        ).fetchall()
    finally:
        duck.unregister(ROWS)
    found = {part: statistics for part, *statistics in groups}
    counted: dict[str, Any] = {}
    for index, part in enumerate(parts):
        statistics = found.get(part, (None, 0, None, 0, 0))
        counted |= {f"{name}_{index}": value for name, value in zip(_OF_PART, statistics, strict=True)}
    return counted


@lru_cache(maxsize=256)
def means_the_same(columns: tuple[Field, ...], text: str, fields: tuple[Field, ...], known: Any = None) -> bool:
    """Whether DuckDB can bind a query of this module over rows with some columns, and returns `fields` for it.

    `known` is the schema of the table of known groups.
    """
    import duckdb

    try:
        groups = known.empty_table() if known is not None else None
        with _bound({ROWS: arrow_schema(columns).empty_table(), KNOWN: groups}, text, fields) as made:
            return made is not None
    except duckdb.Error:
        return False


@contextmanager
def _bound(given: Mapping[str, Any], text: str, fields: tuple[Field, ...]) -> Iterator[Any]:
    """A query that DuckDB has bound over the given relations with these columns; None if it returns others."""
    duck = connection()
    relations = {name: relation for name, relation in given.items() if relation is not None}
    for name, relation in relations.items():
        duck.register(name, relation)
    try:
        made = duck.sql(text)
        yield made if len(made.columns) == len(fields) and all(map(_alike, made.types, fields)) else None
    finally:
        for name in relations:
            duck.unregister(name)


def columns_named(stream: Stream, texts: Sequence[str]) -> list[str]:
    """The columns of a stream that queries of this module may name, and its event time; at least one."""
    words = " ".join(texts).lower()
    named = [f.name for f in stream.fields if f.name == stream.time or quoted(f.name).lower() in words]
    return named or [stream.fields[0].name]


def partials_text(
    stream: Stream, panes: Panes, judging: Judging | None = None, *, since_origin: bool = False
) -> str | None:
    """The query over rows for the partials that they add to a pane table; None if Spark has to compute them.

    With `since_origin` no row is before the origin of panes; None where that makes no difference.
    """

    def written(text: str) -> str | None:
        return driver_sql(text, _nothing, stream.row_fields, before="SELECT ", behind=f" FROM {panes.from_text}")

    keys = [written(key.expression) for key in panes.keys]
    along = _along(stream, panes)
    if any(key is None for key in keys) or (panes.time is not None and along is None):
        return None
    items = [
        f"{_one_zero(key or '', each.type)} AS {quoted(each.name)}" for key, each in zip(keys, panes.keys, strict=True)
    ]
    own = stream.time is not None and along == f"epoch_us({quoted(stream.time)})"  # every row here has one
    if since_origin and (not own or panes.spanned):
        return None
    position, start = window_position_sql(panes, along or "", "duckdb"), PANE
    if panes.spanned:
        items += [f"{text} AS {name}" for text, name in zip(position, (PANE, COUNT), strict=True)]
    elif position:
        number, start = pane_number_sql(along or "", panes.grain, panes.origin, since_origin=since_origin)
        items.append(f"{number} AS {PANE}")
    for column in panes.columns:
        text, kind = written(column.partial), duckdb_type(column.type)
        if text is None or kind is None or not column.duckdb:
            return None
        items.append(f"CAST({text} AS {kind}) AS {quoted(column.name)}")
    wanted = [] if None in panes.conditions else [written(each or "") for each in panes.conditions]
    if None in wanted:
        return None
    where = "true" if along is None or own else f"{along} IS NOT NULL"
    if panes.spanned:
        items.append(f"count(*) AS {WEIGHT}")
        where += f" AND {position[1]} > 0"
    if wanted:
        where += " AND (" + " OR ".join(f"({each})" for each in wanted) + ")"
    group = [str(index + 1) for index in range(len(keys) + len(position))]
    having = f" GROUP BY {', '.join(group)}" if group else " HAVING count(*) > 0"
    source: str | None = ROWS
    if panes.from_text != STREAM:
        around = _over(stream, panes.from_text, "", _FROM)
        columns = columns_named(stream, [*items, where, around or ""])
        source = _over(stream, panes.from_text, _plain(columns), _FROM)
    if source is None:
        return None
    text = f"SELECT {', '.join(items)} FROM {source} WHERE {where}{having}"
    if panes.spanned:
        return kept_partials_sql(panes, panes.columns, f"({text})", "duckdb", judging, KNOWN)
    # A number for each row, and a time for each pane: there are fewer of them.
    return f"SELECT * REPLACE ({timestamp(start.format(PANE))} AS {PANE}) FROM ({text})" if position else text


def _one_zero(key: str, type: str) -> str:
    """A key in which -0.0 is 0.0, as Spark groups them."""
    return f"CASE WHEN {key} = 0 THEN CAST(0 AS {type}) ELSE {key} END" if type in ("double", "float") else key


def selected_text(stream: Stream, rows: Rows) -> str | None:
    """The query over rows for those that a stateless view appends; None if Spark has to compute them."""
    return _over(stream, rows.text, _plain([field.name for field in stream.fields]))


def _plain(columns: Sequence[str]) -> str:
    return f"(SELECT {', '.join(map(quoted, columns))} FROM {ROWS})"


def _over(stream: Stream, text: str, rows: str, before: str = "") -> str | None:
    return driver_sql(text, lambda each: rows if quote_name(each) == STREAM else None, stream.row_fields, before=before)


def _along(stream: Stream, panes: Panes) -> str | None:
    """The time column of panes, if it is a column of the stream."""
    for field in stream.row_fields:
        name = quote_name(field.name) if field in stream.fields else field.name
        if field.type == "timestamp" and panes.time == micros_sql(name):
            return f"epoch_us({quoted(field.name)})"
        if field.type in INTEGERS and panes.time in (name, f"CAST({name} AS BIGINT)"):
            return f"CAST({quoted(field.name)} AS BIGINT)"
    return None


def _nothing(_: str) -> None:
    return None


def _alike(kind: Any, field: Field) -> bool:
    # DuckDB quotes the names in a struct where it must.
    given = str(kind).replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ").replace('"', "")
    return given == (duckdb_type(field.type) or "").replace('"', "")
