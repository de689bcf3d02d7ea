"""The sessions that new rows touch, with the range of their event times; and new rows that are late for their session.

A session is a chain of rows of one key, each within the gap of the next. From new rows, the chain is followed in both
directions over the rows of the stream; rows beyond its ends do not affect it. New rows that merge two sessions are
links of one chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anabranch.algebra.reach import Range
from anabranch.duck import path_list, quoted, timestamp
from anabranch.engine.writing import collected
from anabranch.ledger import Snapshot
from anabranch.plan.definitions import Stream
from anabranch.plan.view import Ends, View
from anabranch.plan.windows import micros_sql
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.engine.maintain.commit import Commit

#: The range of the first search, in gaps; the factor for each further search; and the number of searches.
FIRST, FURTHER, TIMES = 8, 16, 4
SEEDS = "_seeds"
#: A constant column, so that sessions without a key have one.
ALL = "one"


@dataclass(frozen=True)
class Spans:
    """The touched keys, k0 and so on, with the first and last event time of the touched rows as `low` and `high`; None
    for none. `within` covers all of them. `time` is the event time of a row of `input`; `during` is a time inside the
    session of a row of the answer."""

    touched: DataFrame | None
    within: dict[str, Range]
    input: str
    time: str
    during: str


def spans(commit: Commit, view: View, rows: DataFrame) -> Spans | None:
    """The sessions that rows of the input of a view touch; None if whole keys have to be recomputed."""
    import duckdb

    ends, stream = view.progress.ends, stream_of(commit, view)
    if ends is None or stream is None or not ends.shows_session:
        return None
    place, touched = commit.core.place, _seeds(view, ends, rows)
    nothing = Spans(None, {}, ends.input, micros_sql(f"__r.{quote_name(ends.time)}"), _during(view, ends))
    seeds = collected(touched, place.limits.session_keys) if place.driver else None
    if seeds is None:
        return _by_spark(commit, view, ends, stream, touched, nothing)
    if not seeds.num_rows:
        return nothing
    try:
        found = follow_chains(commit, view, ends, stream, seeds)
    except duckdb.Error:  # for example, a type that it compares differently from Spark
        return None
    if found is None:
        return _by_spark(commit, view, ends, stream, touched, nothing)
    return replace(nothing, touched=commit.core.spark.createDataFrame(found), within={ends.input: range_of(found)})


def _by_spark(commit: Commit, view: View, ends: Ends, stream: Stream, seeds: DataFrame, nothing: Spans) -> Spans | None:
    """The same by Spark, if the keys or the rows around them are too many for the driver."""
    core, far = commit.core, FIRST * ends.gap
    seeds = seeds.persist()
    try:
        low, high = seeds.selectExpr("min(low)", "max(high)").collect()[0]
        if low is None:
            return nothing
        for _ in range(TIMES):
            there = core.table_frame(stream.rows_table, stream.fields, commit.after, low - far, high + far + 1)
            rows = f"(SELECT *, unix_micros({quote_name(stream.time or '')}) AS __t FROM `@rows`)"
            text = chains_sql(rows, columns_of(view, ends), ends.gap, far, "`@seeds`", quote_name)
            chains = core.frames.sql(text, {"@rows": there, "@seeds": seeds}).persist()
            whole, first, last = chains.selectExpr("every(whole)", "min(low)", "max(high)").collect()[0]
            if whole:  # the caller releases the frame
                return replace(nothing, touched=chains, within={ends.input: (first, last)})
            chains.unpersist()
            far *= FURTHER
    finally:
        seeds.unpersist()
    return None


def _during(view: View, ends: Ends) -> str:
    """The time of the first or last row of the session of a row of the answer."""
    if ends.starts:
        return f"unix_micros(__r.{quote_name(ends.starts[0])})"
    end = ends.columns[0]
    return f"unix_micros(__r.{quote_name(end)}) + {view.progress.times[end] - ends.after}"


def stream_of(commit: Commit, view: View) -> Stream | None:
    """The stream of a view's windows, if its files in the ledger have all of its rows, and their event times."""
    ends = view.progress.ends
    id = view.query.streams.get(ends.input) if ends is not None else None
    stream = commit.catalog.stream(id) if id is not None else None
    if ends is None or stream is None or (stream.time or "").lower() != ends.time.lower():
        return None
    if stream.kept_since != 0 and stream.rereadable:
        return None  # earlier rows are read from the source
    return stream if any(each.name == stream.time and each.type == "timestamp" for each in stream.fields) else None


def columns_of(view: View, ends: Ends) -> list[str]:
    """The columns of the input that hold the key."""
    columns = next((each.columns for each in view.keying.narrows if each.input == ends.input), ())
    return [column or "" for column in columns]


def _seeds(view: View, ends: Ends, rows: DataFrame) -> DataFrame:
    """The keys of rows, with the first and the last event time of each."""
    from pyspark.sql.functions import expr

    keys = zip(columns_of(view, ends), view.keying.columns, strict=True)
    items = [f"CAST({quote_name(column)} AS {key.type}) AS k{index}" for index, (column, key) in enumerate(keys)]
    by = [f"k{index}" for index in range(len(items))] + [ALL]
    items += [f"1 AS {ALL}", f"{micros_sql(quote_name(ends.time))} AS __time"]
    timed = rows.selectExpr(*items).where("__time IS NOT NULL")
    return timed.groupBy(*by).agg(expr("min(__time) AS low"), expr("max(__time) AS high"))


def follow_chains(commit: Commit, view: View, ends: Ends, stream: Stream, seeds: Any) -> Any:
    """Keys with the first and last time of the chains of their rows, searched in ever larger ranges."""
    from anabranch.engine.driver import connection
    from anabranch.engine.pane_sql import FAR

    duck, after = connection(), commit.after
    low, high = range_of(seeds)
    time, far = quoted(stream.time or ""), FIRST * ends.gap
    duck.register(SEEDS, seeds)
    try:
        for _ in range(TIMES):
            paths = after.table_paths(commit.core.ledger, stream.rows_table, low - far, high + far + 1)
            known = _rows_within(after, stream, low - far, high + far + 1)
            if not paths or not commit.core.place.takes_sessions(seeds.num_rows, known):
                return None
            files = f"read_parquet({path_list(paths)}, union_by_name = true)"
            since, until = (timestamp(str(each)) for each in (max(low - far, -FAR), min(high + far, FAR)))
            in_range = f"{time} BETWEEN {since} AND {until}"
            rows = f"(SELECT *, epoch_us({time}) AS __t FROM {files} WHERE {in_range})"
            found: Any = duck.sql(chains_sql(rows, columns_of(view, ends), ends.gap, far)).to_arrow_table()
            if all(found.column("whole").to_pylist()):
                return found.drop_columns(["whole"])
            far *= FURTHER
    finally:
        duck.unregister(SEEDS)
    return None


def _rows_within(snapshot: Snapshot, stream: Stream, low: int, high: int) -> int:
    files = snapshot.files.get(stream.rows_table, {}).values()
    return sum(file.rows for file in files if file.may_hold(low, high))


def chains_sql(
    rows: str,
    columns: Sequence[str],
    gap: int,
    far: int,
    seeds: str = SEEDS,
    quote: Callable[[str], str] = quoted,
) -> str:
    """For Spark and DuckDB: by key of `seeds`, the first and last time `__t` of the chain of rows that includes its low
    and high. The search goes no further than `far` in each direction; `whole` says whether it found both ends."""
    same = [f"r.{quote(column)} IS NOT DISTINCT FROM s.k{index}" for index, column in enumerate(columns)]
    keys = ", ".join([*(f"k{index}" for index in range(len(columns))), ALL])
    links = (
        f"SELECT s.*, r.__t AS t FROM {rows} r JOIN {seeds} s ON {' AND '.join(same) or 'true'}"
        f" WHERE r.__t BETWEEN s.low - {far} AND s.high + {far}"
        f" UNION ALL SELECT *, low FROM {seeds} UNION ALL SELECT *, high FROM {seeds}"
    )
    steps = (
        "SELECT *, t - (lag(t) OVER chain) AS behind, (lead(t) OVER chain) - t AS ahead"
        f" FROM ({links}) WINDOW chain AS (PARTITION BY {keys} ORDER BY t)"
    )
    first = f"max(t) FILTER (WHERE t <= low AND (behind IS NULL OR behind > {gap}))"
    last = f"min(t) FILTER (WHERE t >= high AND (ahead IS NULL OR ahead > {gap}))"
    return (
        f"SELECT {keys}, first AS low, last AS high, first - {gap} >= low - {far} AND last + {gap} <= high + {far}"
        f" AS whole FROM (SELECT {keys}, low, high, {first} AS first, {last} AS last FROM ({steps}) GROUP BY ALL)"
    )


def partition_items(ends: Ends, quote: Callable[[str], str]) -> str:
    """The partition columns of sessions, a0 and so on."""
    return "".join(f"{quote(name)} AS a{index}, " for index, name in enumerate(ends.apart)) + f"1 AS {ALL}"


def late_sql(ends: Ends, new: str, there: str) -> str:
    """The times t of new rows that are late for their session, for Spark and DuckDB; `there` has the earlier rows.

    Both have the partition columns, times below the progress p before this commit, and p. A session had closed if p has
    passed the gap after its last row. A row is late if it is within the gap of a row of a closed session; or if its own
    session, of the other new rows and the rows of open sessions, had closed.
    """
    by = _by(ends)
    added = f"SELECT DISTINCT {by}, t, p, true AS new, false AS closed FROM {new}"
    both = f"{closed_sessions_sql(ends, there)} UNION ALL {added}"
    shut = "CASE WHEN closed THEN t END"
    window = f"OVER (PARTITION BY {by} ORDER BY t RANGE BETWEEN"
    behind = f"t - max({shut}) {window} UNBOUNDED PRECEDING AND CURRENT ROW) <= {ends.gap}"
    ahead = f"min({shut}) {window} CURRENT ROW AND UNBOUNDED FOLLOWING) - t <= {ends.gap}"
    judged = f"SELECT *, coalesce({behind}, false) OR coalesce({ahead}, false) AS in_reach FROM ({both})"
    left = _closed(ends, f"SELECT {by}, t, p, new FROM in_reach WHERE NOT in_reach")
    return (
        f"WITH in_reach AS ({judged}) SELECT {by}, t FROM in_reach WHERE in_reach AND new"
        f" UNION SELECT {by}, t FROM ({left}) WHERE closed AND new"
    )


def closed_sessions_sql(ends: Ends, there: str) -> str:
    """The times of earlier rows, and whether the session of each had closed."""
    return _closed(ends, f"SELECT DISTINCT {_by(ends)}, t, p, false AS new FROM {there}")


def _closed(ends: Ends, rows: str) -> str:
    """Times, and whether the chain of each had closed."""
    by = _by(ends)
    steps = f"SELECT *, t - lag(t) OVER (PARTITION BY {by} ORDER BY t) AS step FROM ({rows})"
    first = f"CASE WHEN step <= {ends.gap} THEN 0 ELSE 1 END"
    chains = f"SELECT *, sum({first}) OVER (PARTITION BY {by} ORDER BY t) AS chain FROM ({steps})"
    over = f"max(t) OVER (PARTITION BY {by}, chain) + {ends.after} <= p"
    return f"SELECT {by}, t, p, new, {over} AS closed FROM ({chains})"


def _by(ends: Ends) -> str:
    return ", ".join([*(f"a{index}" for index in range(len(ends.apart))), ALL])


def late_times(commit: Commit, view: View, low: int, before: int) -> Any:
    """The times of new rows that are late for their session, as an Arrow table; None if DuckDB cannot find them in the
    files. `low` is the first new time."""
    import duckdb

    from anabranch.engine.driver import connection
    from anabranch.engine.pane_sql import FAR

    ends, stream = view.progress.ends, stream_of(commit, view)
    if ends is None or stream is None or view.beginning.rows:
        return None
    time, ledger = quoted(stream.time or ""), commit.core.ledger
    columns = f"{partition_items(ends, quoted)}, epoch_us({time}) AS t"

    def rows(paths: list[str]) -> str:
        if not paths:
            return f"SELECT {columns} FROM {added} WHERE false"
        return f"SELECT {columns} FROM read_parquet({path_list(paths)}, union_by_name = true)"

    added = f"read_parquet({path_list(commit.paths(stream.rows_table))}, union_by_name = true)"
    since = low - ends.gap
    new = sum(file.rows for file in commit.added.get(stream.rows_table, ()))
    if not commit.core.place.takes_changes(new, _rows_within(commit.before, stream, since, before)):
        return None
    there = rows(commit.before.table_paths(ledger, stream.rows_table, since, before))
    if view.drops_late_of:
        there += f" EXCEPT ALL {rows(commit.before.table_paths(ledger, view.dropped_table(ends.input)))}"
    bound = min(before, FAR)
    given = f"(SELECT *, CAST({bound} AS BIGINT) AS p FROM (SELECT {columns} FROM {added}) WHERE t < {bound})"
    there = f"(SELECT *, CAST({bound} AS BIGINT) AS p FROM ({there}) WHERE t >= {since} AND t < {bound})"
    try:
        return connection().sql(late_sql(ends, given, there)).to_arrow_table()
    except duckdb.Error:  # for example, a type that it compares differently from Spark
        return None


def range_of(spans: Any) -> tuple[int, int]:
    """The first and last time in an Arrow table of spans."""
    import pyarrow.compute as pc

    return int(pc.min(spans.column("low")).as_py()), int(pc.max(spans.column("high")).as_py())
