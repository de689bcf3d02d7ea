"""Which sessions new rows touch: the event times between which all rows lie that these sessions are made of. And which
of them come too late for theirs.

A session is a chain of rows of one key, none further than the gap from the next. From the rows of a commit the chain is
followed to both sides, over the rows that the stream has, as far as it goes; no row beyond its ends has a say in it.
New rows that join two sessions are links of one chain like any others.
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

#: How many gaps far rows are looked at first, how much further each time, and how often.
FIRST, FURTHER, TIMES = 8, 16, 4
SEEDS = "_seeds"
#: A column that is the same for all keys: sessions without any are those of one key.
ALL = "one"


@dataclass(frozen=True)
class Spans:
    """The keys that rows touch, k0 and so on, each with the times `low` and `high` of the first and the last row of
    what they touch; None for no rows. `within` has all of these; `input` the rows, in which `time` is the event time. A
    row of the answer is from the session that has a row at the time `during`."""

    touched: DataFrame | None
    within: dict[str, Range]
    input: str
    time: str
    during: str


def spans(commit: Commit, view: View, rows: DataFrame) -> Spans | None:
    """The sessions that rows of the input of a view touch; None where the whole keys have to be computed."""
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
        found = followed(commit, view, ends, stream, seeds)
    except duckdb.Error:  # a type that it does not compare as Spark does, say
        return None
    if found is None:
        return _by_spark(commit, view, ends, stream, touched, nothing)
    return replace(nothing, touched=commit.core.spark.createDataFrame(found), within={ends.input: hull_of(found)})


def _by_spark(commit: Commit, view: View, ends: Ends, stream: Stream, seeds: DataFrame, nothing: Spans) -> Spans | None:
    """The same where the keys, or the rows around them, are too many for the driver."""
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
            if whole:  # whoever compares the keys lets them go
                return replace(nothing, touched=chains, within={ends.input: (first, last)})
            chains.unpersist()
            far *= FURTHER
    finally:
        seeds.unpersist()
    return None


def _during(view: View, ends: Ends) -> str:
    """When the first or the last row of the session was that a row of the answer is from."""
    if ends.starts:
        return f"unix_micros(__r.{quote_name(ends.starts[0])})"
    end = ends.columns[0]
    return f"unix_micros(__r.{quote_name(end)}) + {view.progress.times[end] - ends.after}"


def stream_of(commit: Commit, view: View) -> Stream | None:
    """The stream that has the windows of a view, where the files of its rows are all of them and tell their times."""
    ends = view.progress.ends
    id = view.query.streams.get(ends.input) if ends is not None else None
    stream = commit.catalog.stream(id) if id is not None else None
    if ends is None or stream is None or (stream.time or "").lower() != ends.time.lower():
        return None
    if stream.kept_since != 0 and stream.rereadable:
        return None  # what came before is read from its source
    return stream if any(each.name == stream.time and each.type == "timestamp" for each in stream.fields) else None


def columns_of(view: View, ends: Ends) -> list[str]:
    """The columns of the rows of the input that hold the key."""
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


def followed(commit: Commit, view: View, ends: Ends, stream: Stream, seeds: Any) -> Any:
    """Keys with the first and the last time of the chains that their rows are in, followed further and further."""
    from anabranch.engine.driver import connection
    from anabranch.engine.pane_sql import FAR

    duck, after = connection(), commit.after
    low, high = hull_of(seeds)
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
    """For Spark and DuckDB, and each key of `seeds`: the first and the last time `__t` of the chain
    of rows that goes from its low to its high; no further than `far` to each side, and whether that is the `whole`
    of it."""
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


def apart_items(ends: Ends, quote: Callable[[str], str]) -> str:
    """What rows of sessions are kept apart by, a0 and so on."""
    return "".join(f"{quote(name)} AS a{index}, " for index, name in enumerate(ends.apart)) + f"1 AS {ALL}"


def late_sql(ends: Ends, new: str, there: str) -> str:
    """The times t of new rows that come too late for sessions, for Spark and DuckDB; `there` are those that were there.

    Both have what they are kept apart by, times below the progress p before them, and p. A session had closed if the
    gap behind its last row was over by then. A row is late if it is within the gap of a row of one that had, or if its
    own had, made of what is left: rows of open sessions, and those that came with it.
    """
    by = _by(ends)
    both = f"{judged_sql(ends, there)} UNION ALL SELECT DISTINCT {by}, t, p, true AS new, false AS closed FROM {new}"
    shut = "CASE WHEN closed THEN t END"
    window = f"OVER (PARTITION BY {by} ORDER BY t RANGE BETWEEN"
    behind = f"t - max({shut}) {window} UNBOUNDED PRECEDING AND CURRENT ROW) <= {ends.gap}"
    ahead = f"min({shut}) {window} CURRENT ROW AND UNBOUNDED FOLLOWING) - t <= {ends.gap}"
    judged = f"SELECT *, coalesce({behind}, false) OR coalesce({ahead}, false) AS near FROM ({both})"
    left = _closed(ends, f"SELECT {by}, t, p, new FROM near WHERE NOT near")
    return (
        f"WITH near AS ({judged}) SELECT {by}, t FROM near WHERE near AND new"
        f" UNION SELECT {by}, t FROM ({left}) WHERE closed AND new"
    )


def judged_sql(ends: Ends, there: str) -> str:
    """The times of rows that were there, and whether the session of each had closed."""
    return _closed(ends, f"SELECT DISTINCT {_by(ends)}, t, p, false AS new FROM {there}")


def _closed(ends: Ends, rows: str) -> str:
    """Times, and whether the chain that each is in ends so early that it had closed."""
    by = _by(ends)
    steps = f"SELECT *, t - lag(t) OVER (PARTITION BY {by} ORDER BY t) AS step FROM ({rows})"
    first = f"CASE WHEN step <= {ends.gap} THEN 0 ELSE 1 END"
    chains = f"SELECT *, sum({first}) OVER (PARTITION BY {by} ORDER BY t) AS chain FROM ({steps})"
    over = f"max(t) OVER (PARTITION BY {by}, chain) + {ends.after} <= p"
    return f"SELECT {by}, t, p, new, {over} AS closed FROM ({chains})"


def _by(ends: Ends) -> str:
    return ", ".join([*(f"a{index}" for index in range(len(ends.apart))), ALL])


def late_times(commit: Commit, view: View, low: int, before: int) -> Any:
    """The times of new rows that come too late for sessions, from the first new one on, as an Arrow table; None where
    DuckDB cannot tell from the files."""
    import duckdb

    from anabranch.engine.driver import connection
    from anabranch.engine.pane_sql import FAR

    ends, stream = view.progress.ends, stream_of(commit, view)
    if ends is None or stream is None or view.beginning.rows:
        return None
    time, ledger = quoted(stream.time or ""), commit.core.ledger
    columns = f"{apart_items(ends, quoted)}, epoch_us({time}) AS t"

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
    if view.leaves_out:
        there += f" EXCEPT ALL {rows(commit.before.table_paths(ledger, view.left_out_table(ends.input)))}"
    bound = min(before, FAR)
    given = f"(SELECT *, CAST({bound} AS BIGINT) AS p FROM (SELECT {columns} FROM {added}) WHERE t < {bound})"
    there = f"(SELECT *, CAST({bound} AS BIGINT) AS p FROM ({there}) WHERE t >= {since} AND t < {bound})"
    try:
        return connection().sql(late_sql(ends, given, there)).to_arrow_table()
    except duckdb.Error:  # a type that it does not compare as Spark does, say
        return None


def hull_of(spans: Any) -> tuple[int, int]:
    """The first and the last time of an Arrow table of spans."""
    import pyarrow.compute as pc

    return int(pc.min(spans.column("low")).as_py()), int(pc.max(spans.column("high")).as_py())
