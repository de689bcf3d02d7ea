"""Views that emit on close, where windows depend on other rows: sessions, windows that end at rows, landmarks.

Each row of the answer is checked for whether its window has closed. The answer is computed only for keys that have a
window which ends between the progress before the commit and the progress after it, and for keys with late rows. All
other new rows are in open windows, which are not shown.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from anabranch.algebra.progress import END
from anabranch.engine import read
from anabranch.engine.closing_bounds import EARLIEST, Closing
from anabranch.engine.core import Core
from anabranch.engine.late import LateRows
from anabranch.engine.maintain import clock, deltas, dropping, keyed, late_drop, sessions
from anabranch.engine.progress_bounds import key_bounds
from anabranch.engine.writing import collected
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.facts.lookahead import FINAL
from anabranch.plan.view import Ends, View
from anabranch.plan.windows import micros_sql
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.engine.maintain.commit import Commit

#: The placeholder of the bounds of keys that are ahead of their stream.
MARKS = "@marks"


def changes(commit: Commit, view: View) -> tuple[DataFile, ...]:
    """The changes of a view that emits when such windows close."""
    if view.progress.ends is None:
        if not commit.touches(view) and clock.progress_of(commit, view, 0) == clock.progress_of(commit, view, 1):
            return ()
        return _whole(commit, view)
    return _Wait(commit, view, view.progress.ends).changes()


def closed(commit: Commit, view: View, frame: DataFrame) -> DataFrame:
    """The rows of an answer whose windows have closed, if the view emits on close; `frame` has all rows of its keys."""
    if not view.emission.closing:
        return frame
    bounds = bounds_of(commit, view)
    if bounds.after == END:
        return frame
    type = next(field.type for field in view.fields if field.name == view.emission.closing)
    column = f"__r.{quote_name(view.emission.closing)}"
    end = f"unix_micros({column})" if type == "timestamp" else column
    _, after, marks = spark_bounds(
        bounds, view.keying.columns[bounds.keys.index].name if bounds.keys is not None else ""
    )
    text = (
        f"SELECT __r.* FROM `@rows` AS __r{marks} WHERE {end} + {view.progress.times[view.emission.closing]} <= {after}"
    )
    if view.progress.final:
        text += f" AND __r.{FINAL} <= {after}"
    return commit.core.frames.sql(text, {"@rows": frame, **marks_frames(commit.core, bounds)})


def bounds_of(commit: Commit, view: View) -> Closing:
    """The bounds up to which windows of a view have closed, before and after the commit, with those of single keys."""
    keys = key_bounds(commit.core, commit.catalog, view, commit.before, commit.moves)
    return Closing(clock.progress_of(commit, view, 0), clock.progress_of(commit, view, 1), keys)


def _whole(commit: Commit, view: View) -> tuple[DataFile, ...]:
    return keyed.minus_shown(commit, view, closed(commit, view, keyed.fresh_rows(commit, view)), None)


def marks_frames(core: Core, bounds: Closing) -> dict[str, DataFrame]:
    """The relations that the text of `spark_bounds` joins."""
    return {} if bounds.keys is None else {MARKS: core.spark.createDataFrame(bounds.marks())}


def spark_bounds(bounds: Closing, column: str) -> tuple[str, str, str]:
    """For a row __r with a key: its bounds before and after the commit, and the join that they need."""
    before, after = (str(EARLIEST if bound is None else bound) for bound in (bounds.before, bounds.after))
    if bounds.keys is None:
        return before, after, ""
    part = f"coalesce('=' || CAST(__r.{quote_name(column)} AS STRING), '')"
    return (
        f"greatest({before}, coalesce(__m.before, {before}))",
        f"greatest({after}, coalesce(__m.after, {after}))",
        f" LEFT JOIN `{MARKS}` AS __m ON __m.part = {part}",
    )


class _Wait:
    """A view that emits when windows close, in one commit."""

    def __init__(self, commit: Commit, view: View, ends: Ends) -> None:
        self.commit = commit
        self.view = view
        self.ends = ends
        self.bounds = bounds_of(commit, view)
        #: The stream that it reads, if the event times in its files are known.
        self.stream = sessions.stream_of(commit, view)

    def changes(self) -> tuple[DataFile, ...]:
        commit, view, late = self.commit, self.view, self._late()
        if self.ends.every:
            # A row can fill earlier windows that were empty, so the whole answer is recomputed.
            passed = [self.ends.passed(bound) for bound in (self.bounds.before, self.bounds.after)]
            if passed[0] == passed[1] and not commit.touches(view):
                return ()
            return _whole(commit, view)
        parts = [rows for rows in (late, self._closing()) if rows is not None]
        if not parts:
            return ()
        columns = [quote_name(each) for each in parts[-1].columns if each != "_diff"]
        rows = reduce(lambda one, other: one.unionAll(other), (each.select(*columns) for each in parts))
        found = sessions.spans(commit, view, rows)
        if found is not None:
            return difference_within(commit, view, found)
        if view.operator != "keyed":
            return () if rows.isEmpty() else _whole(commit, view)
        touched = self._keys(rows)
        keys = collected(touched, commit.core.place.limits.small_rows)
        if keys is not None:
            touched = commit.core.spark.createDataFrame(keys)
        return () if keys is not None and not keys.num_rows else closed_difference(commit, view, touched)

    def _keys(self, rows: DataFrame) -> DataFrame:
        """The keys of rows of the input, with their types."""
        touch = next(each for each in self.view.keying.touches if each.input == self.ends.input)
        return keyed.keys_of(self.commit, self.view, touch, rows)

    # ---- rows that came late

    def _late(self) -> DataFrame | None:
        """The new rows that change closed windows; None for none. They are counted as late, and can fail the run or be
        dropped for good."""
        rows = self._below_progress()
        if rows is None:
            return None
        came, taken = ("_diff > 0", "_diff < 0") if "_diff" in rows.columns else ("true", "false")
        low, gone = self._first(rows, taken)
        if low is None:
            return None
        judged = (
            self._with_lateness(rows, low, came, taken) if self.ends.gap else rows.selectExpr("*", "true AS __late")
        )
        if judged is None:
            return None
        rows = judged
        plain = [quote_name(name) for name in rows.columns if name not in ("__time", "__before", "__late")]
        if not self.view.drops_late_of:
            return self._counted(rows.where(f"__late OR {taken}").select(*plain))
        late = dropping.drop_rows(self.commit, self.view, self.ends.input, rows.where("__late").select(*plain))
        self.commit.late += [LateRows(self.view, None, None, late)] if late else []
        return rows.where(f"NOT __late AND {taken}").select(*plain) if gone else None

    def _counted(self, late: DataFrame) -> DataFrame | None:
        """Late rows, counted; None for none. A retraction corrects shown rows, and does not count as a late row."""
        came, gone = "count(*)", "0"
        if "_diff" in late.columns:
            came, gone = (f"coalesce(sum(abs(_diff)) FILTER (WHERE _diff {sign} 0), 0)" for sign in "><")
        ((rows, taken),) = late.selectExpr(came, gone).collect()
        if not rows and not taken:
            return None
        found = LateRows(self.view, None, None, rows)
        if self.commit.taken:  # without new rows, the query of a view below was changed, and no row is late
            replace(found, rows=rows + taken).check()
        self.commit.late += [found] if rows else []
        return late

    def _below_progress(self) -> DataFrame | None:
        """The new rows below the progress before this commit, with their `__time`, and that progress as `__before`."""
        bound = self.ends.passed(self.bounds.furthest_before)
        if bound is None or not self._any_before(bound):
            return None
        new = deltas.delta(self.commit, self.view, self.ends.input)
        return None if new is None else self._timed(new, str(bound) if self.ends.every else None)

    def _first(self, rows: DataFrame, taken: str) -> tuple[int | None, int]:
        """The first event time of new rows below progress, and the number of retractions among them."""
        if self.stream is not None and self.bounds.keys is None:
            lows = [file.low for file in self.commit.added.get(self.stream.rows_table, ())]
            if None not in lows:
                return min(each for each in lows if each is not None), 0
        ((low, gone),) = rows.selectExpr("min(__time)", f"count_if({taken})").collect()
        return low, gone

    def _timed(self, rows: DataFrame, bound: str | None = None) -> DataFrame:
        """Rows of the input below a bound, or the progress before this commit."""
        before, _, marks = spark_bounds(self.bounds, self._key())
        text = (
            f"SELECT * FROM (SELECT __r.*, {self._time('__r.')} AS __time, {bound or before} AS __before"
            f" FROM `@rows` AS __r{marks}) WHERE __time < __before"
        )
        return self.commit.core.frames.sql(text, {"@rows": rows, **marks_frames(self.commit.core, self.bounds)})

    def _with_lateness(self, new: DataFrame, low: int, came: str, taken: str) -> DataFrame | None:
        """New rows below progress, with whether each is late for its session; None if none is.

        A retraction is late if its row is not in an open session: the row was dropped, or its session was shown.
        """
        core, ends, before = self.commit.core, self.ends, self.bounds.furthest_before
        assert before is not None
        known = sessions.late_times(self.commit, self.view, low, before) if self.bounds.keys is None else None
        if known is not None and not known.num_rows:
            return None
        on = [f"__n.{quote_name(name)} <=> {{0}}.a{index}" for index, name in enumerate(ends.apart)]
        same = " AND ".join([*on, "__n.__time = {0}.t"])
        if known is not None:
            text = f"SELECT __n.*, l.t IS NOT NULL AS __late FROM `@new` AS __n LEFT JOIN `@late` AS l ON {same}"
            return core.frames.sql(text.format("l"), {"@new": new, "@late": core.spark.createDataFrame(known)})
        there = self._between(low - ends.gap, None if before == END else before, self.commit.before)
        times = f"(SELECT {sessions.partition_items(ends, quote_name)}, __time AS t, __before AS p FROM `@{{}}`)".format
        late = sessions.late_sql(ends, f"(SELECT * FROM {times('came')})", times("there"))
        is_open = f"SELECT DISTINCT * FROM ({sessions.closed_sessions_sql(ends, times('there'))}) WHERE NOT closed"
        text = (
            f"SELECT __n.*, CASE WHEN {taken} THEN o.t IS NULL ELSE l.t IS NOT NULL END AS __late FROM `@new` AS __n"
            f" LEFT JOIN ({late}) AS l ON {same.format('l')} LEFT JOIN ({is_open}) AS o ON {same.format('o')}"
        )
        found = {"@new": new, "@came": new.where(came)}
        found["@there"] = self._timed(there) if there is not None else new.where("false")
        return core.frames.sql(text, found)

    def _any_before(self, bound: int) -> bool:
        """Whether new rows may have event times below a bound, according to the statistics of their files."""
        if self.stream is None:
            return True
        files = self.commit.added.get(self.stream.rows_table, ())
        return any(file.low is None or file.low < bound for file in files)

    # ---- windows that close

    def _closing(self) -> DataFrame | None:
        """The last rows of the windows that close in this commit; None for none."""
        least, most = self.bounds.furthest_before, self.bounds.furthest_after
        if most is None or all(before == after for before, after in self.bounds.moves()):
            return None
        if self.bounds.keys is not None:
            least = self.bounds.before
        low = None if least is None else least - self.ends.after + 1
        high = None if most == END else most - self.ends.after + 1
        rows = self._between(low, None if high is None else high + self.ends.gap, self.commit.after)
        if rows is None:
            return None
        before, after, marks = spark_bounds(self.bounds, self._key())
        time = self._time("__r.")
        last = "true"
        if self.ends.gap:
            # The last row of a session: no row follows within the gap.
            apart = ", ".join(f"__r.{quote_name(name)}" for name in self.ends.apart)
            by = f"PARTITION BY {apart} " if apart else ""
            last = f"coalesce(lead({time}) OVER ({by}ORDER BY {time}) - {time} > {self.ends.gap}, true)"
        end = f"__time + {self.ends.after}"
        text = (
            f"SELECT * EXCEPT (__time, __last, __before, __after) FROM (SELECT __r.*, {time} AS __time,"
            f" {last} AS __last, {before} AS __before, {after} AS __after FROM `@rows` AS __r{marks})"
            f" WHERE __last AND {end} > __before AND {end} <= __after"
        )
        return self.commit.core.frames.sql(text, {"@rows": rows, **marks_frames(self.commit.core, self.bounds)})

    def _between(self, low: int | None, high: int | None, at: Snapshot) -> DataFrame | None:
        """The rows of the input with event times in [low, high), at a snapshot; None if no file has any."""
        commit, view, input = self.commit, self.view, self.ends.input
        if input in view.query.streams:
            stream = commit.catalog.stream(view.query.streams[input])
            if self.stream is not None and not at.table_paths(commit.core.ledger, stream.rows_table, low, high):
                return None
            if self.stream is not None or stream.id in view.beginning.rows:
                rows = read.kept_rows(commit.core, view, stream, stream.seen_as(input), at, *self._files(low, high))
            else:
                rows = read.rows_frame(commit.core, stream, input, at)
        else:
            below = commit.catalog.view(view.query.views[input])
            rows = read.view_frame(commit.core, commit.catalog, below, at, emitted=True)
        rows = late_drop.without_dropped(commit.core, commit.catalog, view, input, rows, at)
        time = self._time()
        rows = rows.where(f"{time} >= {low}") if low is not None else rows
        return rows.where(f"{time} < {high}") if high is not None else rows.where(f"{time} IS NOT NULL")

    def _files(self, low: int | None, high: int | None) -> tuple[int | None, int | None]:
        """The range of times by which files are pruned; unbounded if the times in them are not known."""
        return (low, high) if self.stream is not None else (None, None)

    def _time(self, row: str = "") -> str:
        return micros_sql(f"{row}{quote_name(self.ends.time)}")

    def _key(self) -> str:
        """The input's column whose values have a progress of their own; empty if there is none."""
        keys = self.bounds.keys
        if keys is None:
            return ""
        narrow = next(each for each in self.view.keying.narrows if each.input == self.ends.input)
        return narrow.columns[keys.index] or ""


def closed_difference(commit: Commit, view: View, touched: DataFrame) -> tuple[DataFile, ...]:
    """The changes of some keys of a view that emits when windows close."""
    touched = touched.persist()
    try:
        return keyed.minus_shown(commit, view, closed(commit, view, keyed.fresh_rows(commit, view, touched)), touched)
    finally:
        touched.unpersist()


def difference_within(commit: Commit, view: View, spans: sessions.Spans) -> tuple[DataFile, ...]:
    """The changes of the sessions that rows touch."""
    if spans.touched is None:
        return ()
    touched = spans.touched.persist()
    try:
        fresh = closed(commit, view, keyed.fresh_rows(commit, view, touched, spans=spans))
        return keyed.minus_shown(commit, view, fresh, touched, spans.during)
    finally:
        touched.unpersist()
