"""The windows of a query as SQL: a relation with a row for each pair of a row and one of its windows."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.algebra.windows import (
    Rows,
    SlidingWindows,
    last_window_sql,
    time_before_end,
    window_starts_sql,
)
from anabranch.algebra.windows.sql import all_between_sql
from anabranch.plan.definitions import ARRIVAL_TS, ROW_NUM
from anabranch.sql.syntax import NEWEST, WindowSpec
from anabranch.sql.text import quote_name

ID = "window_id"


def sliding(window: WindowSpec) -> SlidingWindows | None:
    """Windows of a fixed size and slide that follow from the row alone; None for all others."""
    found = window.type
    return found if isinstance(found, SlidingWindows) else None


def value_sql(window: WindowSpec, row: str = "") -> str:
    """The value by which rows go into windows, as a BIGINT: microseconds, or a number. `row` qualifies the column."""
    if window.along_numbers:
        return f"{row}{ROW_NUM}"
    if window.attribute == "arrival_ts":
        return micros_sql(f"{row}{ARRIVAL_TS}")
    assert window.time_column is not None, "found where names are resolved"
    column = f"{row}{quote_name(window.time_column)}"
    return f"CAST({column} AS BIGINT)" if window.rows else micros_sql(column)


def micros_sql(column: str) -> str:
    """An event time in microseconds; a time without a zone is read as UTC."""
    return f"unix_micros(CAST({column} AS TIMESTAMP))"


def windowed_sql(
    source: str, window: WindowSpec, *, with_id: bool = False, closed: bool = False, covered: Sequence[str] = ()
) -> str:
    """A relation with a row for each window of each row, and the bounds of that window. NULL is in no window.

    With `closed`, only full windows of counted rows. `covered` are columns of the rows with the names of window
    columns: those of the new window hide them.
    """
    value = value_sql(window, "__rows.")
    windows = window.type
    simple = not window.rows and not with_id and not window.needs_numbers and window.pairs == "none"
    if isinstance(windows, SlidingWindows) and simple:
        return _plain(source, windows, value, f" EXCEPT ({', '.join(covered)})" if covered else "")
    keys, columns = (
        tuple(f"__rows.{quote_name(name.last)}" for name in names) for names in (window.partition, window.columns)
    )
    if windows.cut_by_key:
        assert window.time_column is not None
        keys = (f"__rows.{quote_name(window.time_column)}",)
    numbered = window.needs_numbers
    hidden = ["__start", "__end", "__wid", *([ROW_NUM, ARRIVAL_TS] if numbered else []), *covered]
    where = ""
    if closed:
        apart = ", ".join(keys)
        source = f"(SELECT __rows.*, count(*) OVER (PARTITION BY {apart}) AS __count FROM {source} AS __rows)"
        hidden, where = [*hidden, "__count"], " WHERE __end <= __count"
    found = windows.relation(Rows(source, value, f"__rows.{ROW_NUM}" if numbered else None, keys, columns))
    if window.block:
        found = blocks_sql(found, window.block)
        hidden.append("__label")
    bounds = window_columns_sql(window, "__start", "__end")
    bounds += newest_sql(window)
    id = f", __wid AS {ID}" if with_id else ""
    return f"(SELECT * EXCEPT ({', '.join(hidden)}), {bounds}{id} FROM {found}{where})"


def blocks_sql(chunks: str, count: int) -> str:
    """A relation of chunks as one of the newest `count` chunks of each epoch, both counted in chunks.

    It includes epochs that have no chunk yet: the other input of a join may have begun them.
    """
    epoch = "__label + __later"
    return (
        f"(SELECT * EXCEPT (__later), {epoch} - {count - 1} AS __start, {epoch} + 1 AS __end, {epoch} AS __wid"
        f" FROM (SELECT * EXCEPT (__start, __end, __wid), __wid AS __label FROM {chunks})"
        f" LATERAL VIEW explode(sequence(0, {count - 1})) __epochs AS __later)"
    )


def changes_sql(column: str) -> str:
    """How often a column of `@rows` has changed so far, in order of arrival."""
    key = f"struct({quote_name(column)})"
    changed = f"NOT (lag({key}) OVER (ORDER BY {ROW_NUM}) <=> {key}) AND lag({ROW_NUM}) OVER (ORDER BY {ROW_NUM}) >= 0"
    return f"SELECT count_if(__changed) FROM (SELECT {changed} AS __changed FROM `@rows`)"


def newest_sql(window: WindowSpec) -> str:
    """NEWEST as a window column, where the window needs it."""
    if window.pairs == "none":
        return ""
    new = "__label = __wid" if window.block else f"{value_sql(window)} >= __end - {window.slide}"
    return f", {new if window.pairs == 'once' else f'bool_or({new}) OVER (PARTITION BY __wid)'} AS {NEWEST}"


#: The column of FILLED windows that marks real rows.
HERE = "__here"


def _start(window: WindowSpec) -> int:
    """The start of window 0."""
    windows = sliding(window)
    assert windows is not None, "only tumbling windows are filled"
    return windows.first_start


def filled_sql(rows: str, window: WindowSpec, *, with_id: bool = False) -> str:
    """A relation of tumbling windows with a row of NULLs for each empty window between the first and the last."""
    start = "window_start" if window.rows else "unix_micros(window_start)"
    every = all_between_sql(start, window.size)
    bounds = bounds_sql("start", f"start + {window.size}", window.size, number=window.rows)
    if with_id:
        bounds += f", (start - {_start(window)}) div {window.size} AS {ID}"
    windows = f"SELECT {bounds} FROM (SELECT explode({every}) AS start FROM {rows})"
    names = ["window_start", "window_end", "window_time", *([ID] if with_id else [])]
    came = f"(SELECT *, true AS {HERE} FROM {rows}) AS __came"
    return (
        f"(SELECT __came.* EXCEPT ({', '.join(names)}), __windows.* FROM ({windows}) AS __windows"
        f" LEFT JOIN {came} ON __came.window_start = __windows.window_start)"
    )


def _plain(source: str, windows: SlidingWindows, value: str, but: str) -> str:
    """The relation of the most common windows, as simple as possible."""
    if windows.tumbling:
        start = last_window_sql(value, windows, 1, "spark")
        bounds = bounds_sql(start, f"{start} + {windows.size}", windows.size)
        return f"(SELECT __rows.*{but}, {bounds} FROM {source} AS __rows WHERE {value} IS NOT NULL)"
    starts = window_starts_sql(value, windows, 1, "spark")
    bounds = bounds_sql("__starts.start", f"__starts.start + {windows.size}", windows.size)
    return f"(SELECT __rows.*{but}, {bounds} FROM {source} AS __rows LATERAL VIEW explode({starts}) __starts AS start)"


def window_columns_sql(window: WindowSpec, start: str, end: str) -> str:
    """The three columns of a window. A window that ends at a row has that row's value as its end, inclusive."""
    if window.type.ends_at_row:
        return ending_columns_sql(f"{start} - 1", f"{end} - 1", number=window.rows)
    return bounds_sql(start, end, window.type.shortest, number=window.rows)


def ending_columns_sql(start: str, end: str, *, number: bool) -> str:
    """The three columns of a window that ends at a row: its end is inclusive, its start exclusive."""
    names = {"window_start": start, "window_end": end, "window_time": end}
    return ", ".join(
        f"({text}) AS {name}" if number else f"timestamp_micros({text}) AS {name}" for name, text in names.items()
    )


def bounds_sql(start: str, end: str, size: int, *, number: bool = False) -> str:
    """The three columns of a window of a size, from its start and end in microseconds, or as numbers."""
    if number:
        return f"{start} AS window_start, {end} AS window_end, {end} - 1 AS window_time"
    return (
        f"timestamp_micros({start}) AS window_start, timestamp_micros({end}) AS window_end,"
        f" timestamp_micros({end} - {time_before_end(size)}) AS window_time"
    )


def closing_shift(window: WindowSpec, column: str) -> int | None:
    """The offset from a window's column to the progress that closes the window; None if there is none."""
    windows = window.type
    if not windows.closes_by_progress:
        return None
    after = windows.closes_after + windows.ends_at_row if not window.block else 0
    if column == "window_end":
        return after
    if column == "window_time":
        return 1 if window.rows or windows.ends_at_row else time_before_end(windows.shortest) + after
    return windows.uniform_length if column == "window_start" else None
