"""Changes of the views whose changes are kept, for one commit: each node after those it reads.

    stateless   the changes of its input, through the user's SQL
    join        the changes of each input with the rows of the others: dA x B + A x dB + dA x dB
    keyed       f(state | touched keys) - what was shown for them
    whole       f(state) - what was shown
    sessions    f(rows of the sessions that new rows touch) - what was shown of these
    outer joins whose streams are bound to each other in time, keyed or not: f(state after) - f(state before), of the
                rows that are near new ones

f is the user's own SQL over the state with this commit in it; what was shown is in the ledger and never computed again,
so that each row taken back is one that was given out.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.algebra.pending import Key
from anabranch.algebra.progress import END
from anabranch.algebra.reach import Range, around, hull, reach
from anabranch.algebra.rules import highest
from anabranch.engine import (
    buckets,
    closing,
    driver_changes,
    driver_lookup_changes,
    late_drop,
    lookup_changes,
    read,
    sessions,
)
from anabranch.engine.core import Core
from anabranch.engine.frames import hashable, table_of
from anabranch.engine.late import LateRows, rows_before
from anabranch.engine.numbering import PLACES, with_arrival_numbers
from anabranch.engine.place import Verdict
from anabranch.engine.progress_bounds import (
    Held,
    KeyBounds,
    Moves,
    PairBounds,
    held_back,
    hold,
    input_bounds,
    key_bounds,
    pair_bounds,
    progress,
    resting,
    shown_before,
    state_of,
)
from anabranch.engine.sessions import Spans
from anabranch.engine.set_aside import Checking, computable, of_one_row, placed_anyhow
from anabranch.engine.stream_part import STREAM_ROWS, StreamPart
from anabranch.engine.tables import DIFF, change_fields, net_sql, overlaid
from anabranch.engine.trigger import Fired, Records
from anabranch.engine.trigger_spark import FiringJob
from anabranch.engine.writing import collected, without_time, write_frame
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import NUMBERED, ROW_NUM, Stream
from anabranch.plan.describe import append_only, waits_for_windows
from anabranch.plan.node import PLACE
from anabranch.plan.record_parts import order_sql, parts_of
from anabranch.plan.view import Touch, View
from anabranch.plan.windows import changes_sql
from anabranch.plan.winners import orderable
from anabranch.sources.base import Found
from anabranch.sql.lexer import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A moment behind all others that Spark and DuckDB know.
LAST = 253_402_300_800_000_000

Added = Mapping[str, tuple[DataFile, ...]]


class Maintainer:
    """Computes the changes of nodes for one commit."""

    def __init__(
        self,
        core: Core,
        catalog: Catalog,
        snapshot: Snapshot,
        added: dict[str, tuple[DataFile, ...]],
        moves: Moves,
        now: int,
        taken: Mapping[str, int],
    ) -> None:
        self.core = core
        self.taken = taken  # how many rows this commit brings, by stream
        self.moves = moves
        self.filling = False  # whether all rows there are count as new ones
        self.anew = False  # whether a node is computed as a whole
        #: For views with triggers or a budget, the end of the first window that is still to be shown, before and after.
        self.waits: dict[str, tuple[int | None, int | None]] = {}
        for view in catalog.of(View):
            if view.emission.triggers is not None:
                core.timers.pending(view, snapshot)
                earliest = core.timers.earliest(view)
                self.waits[view.id] = earliest, earliest
        for id, end in held_back(catalog, snapshot, {}).items():
            self.waits[id] = end, end
        #: How far views with a budget have come in this commit.
        self.held: dict[str, Held] = {}
        #: How many rows or chunks views have come to past idle streams.
        self.passed: dict[str, int] = {}
        self.late: list[LateRows] = []
        #: Where the changes of nodes are computed in this commit, and why not elsewhere.
        self.places: dict[str, str] = {}
        #: Changes of nodes that are there already, by their tables.
        self.ready: Mapping[str, tuple[DataFile, ...]] = {}
        #: Of views that look at one row at a time, the rows that they can compute, where some they cannot.
        self.computable: dict[str, str] = {}
        self.catalog = catalog
        self.before = snapshot
        self.added = added  # grows: the changes of a node are new rows for those above
        self.now = now

    @property
    def after(self) -> Snapshot:
        return overlaid(self.before, self.added)

    # ---- a node

    def fill(self, view: View) -> tuple[DataFile, ...]:
        """Everything a new view shows, as its first changes."""
        if view.emission.mode == "triggers" or view.query.asks:
            self.filling = True
            try:
                return self._look_up(view) if view.query.asks else self._fire(view)
            finally:
                self.filling = False
        self.anew = True
        known = self.core.catalog(self.before).objects.get(view.id)
        if isinstance(known, View) and known.query.rows is not None and known.sql == view.sql:
            # What it has shown so far: its rows have met static tables, and stay as they are.
            whole = read.view_query(self.core, self.core.catalog(self.before), known, self.before)
        else:
            narrow = partial(self._computable, view)
            whole = read.view_query(self.core, self.catalog, view, self.after, narrow=narrow, hidden=True)
        return self._write(view, self._signed(closing.closed(self, view, whole)))

    def renew(self, view: View) -> tuple[DataFile, ...]:
        """The changes of a node after something was changed under it that brings no new rows; what waits goes on."""
        if view.emission.mode == "triggers":
            shown = self._shown_windows(view)
            return () if shown is None else self.minus_shown(view, shown, None)
        self.anew = True
        if view.query.asks:
            return self._look_up(view, anew=True)
        return self.minus_shown(view, closing.closed(self, view, self.fresh(view)), None)

    def _shown_windows(self, view: View) -> DataFrame | None:
        """What a view shows now of the windows that it has shown; None if it does not wait for windows alone."""
        bound = self.progress(view, 0)
        if view.emission.budget is not None:
            bound = shown_before(view, self.before, bound)
        time = next((key for key in view.keying.columns if key.name in view.progress.times), None)
        by_key = self._own_bounds(view) is not None
        if not waits_for_windows(view) or view.emission.late != "correct" or bound is None or time is None or by_key:
            return None
        end = f"unix_micros({quote_name(time.name)})" if time.type == "timestamp" else quote_name(time.name)
        return self.fresh(view).where(
            "true" if bound == END else f"{end} + {view.progress.times[time.name]} <= {bound}"
        )

    def changes(self, view: View) -> tuple[DataFile, ...]:
        """What a node shows now and did not, and the other way round."""
        self.anew = False
        if view.emission.mode == "triggers":
            return self._fire(view)
        if view.emission.closing:
            self.places[view.id] = str(Verdict(False, "its windows are made by other rows"))
            return closing.changes(self, view)
        if self.core.table_cache.keeps(view.id):  # whether or not it has anything to do in this commit
            self.core.table_cache.let_go(view.id, self.needed(view))
        if not self.touches(view):
            return ()
        if view.query.asks:
            return self._look_up(view)
        if view.changes_table in self.ready:
            self.places[view.id] = "in kernels, with the rows of the run"
            self.added[view.changes_table] = self.ready[view.changes_table]
            return self.ready[view.changes_table]
        if view.operator == "join" and view.emission.late == "drop":
            self._count_dropped(view)
        elif view.leaves_out:
            self._leave_out_late(view)
        if not (view.operator == "keyed" and view.query.direct) and view.id not in self.computable:
            files = driver_changes.changes(self, view)
            files = buckets.changes(self, view) if files is None else files
            if files is not None:
                self.added[view.changes_table] = files
                return files
        if view.row_by_row:
            changed = self._passed_on(view)
            if changed is None:
                return ()
            return self._write(view, self._net(view, changed) if self.both_ways(view) else changed)
        if view.operator == "keyed" and view.query.direct:
            return self._hot(view)
        if view.progress.ends is not None and view.progress.ends.gap:
            new = self.delta(view, view.progress.ends.input)
            found = sessions.spans(self, view, new) if new is not None else None
            if found is not None:
                return self.difference_within(view, found)
        if view.operator == "whole":
            return self._difference(view, None)
        return self._by_spark(view)

    def both_ways(self, view: View) -> bool:
        """Whether a join can give a row and take it back in one commit: a new row of one input meets one of another
        that goes."""
        return view.operator == "join" and not append_only(view, self.catalog)

    def _net(self, view: View, changed: DataFrame) -> DataFrame:
        """What changes add up to, row by row."""
        columns = ", ".join(self._names(view))
        return self.core.frames.sql(net_sql(columns, "`@changed`"), {"@changed": changed})

    def _look_up(self, view: View, *, anew: bool = False) -> tuple[DataFile, ...]:
        """New rows with the matches that tables outside have for them."""
        files = None if anew else driver_lookup_changes.changes(self, view)
        if files is not None:
            self.added[view.changes_table] = files
            return files
        with lookup_changes.changes(self, view, anew=anew) as changed:
            return () if changed is None else self._write(view, changed)

    def _hot(self, view: View) -> tuple[DataFile, ...]:
        """The changes of a plain aggregate, beside its groups in memory; by Spark where that is not to be had.

        Memory that is not enough may be so the next time. Other reasons stay: the view is Spark's from then on.
        """
        import duckdb

        verdict = self.core.place.takes_changes(self.rows_read(view), 0)
        if verdict and self.core.hot.left(view):
            verdict = Verdict(False, "DuckDB failed for it before")
        self.places[view.id] = str(verdict)
        if not verdict:
            return self._by_spark(view)
        panes = self.catalog.panes(view.query.blocks[0].panes)
        if not all(panes.column(name).duckdb for name in view.query.blocks[0].columns):
            self.places[view.id] = str(Verdict(False, "partials of Spark's own"))
            return self._by_spark(view)
        closed = progress(self.core, self.catalog, view, self.before, self.moves, 1)
        try:
            files = self.core.hot.changes(view, panes, self.before, self.added[panes.id], closed, self.now)
        except duckdb.Error as error:
            self.core.hot.forget(view.id)
            self.places[view.id] = str(Verdict(False, (str(error).splitlines() or [""])[0]))
            files = self._by_spark(view)  # or tells in its own words what is wrong, of an overflow, say
            if not isinstance(error, duckdb.OutOfMemoryException):
                self.core.hot.leave(view)
                reason = (str(error).splitlines() or [""])[0]
                self.core.warn(f"view {view.name} is computed by Spark from now on, and runs take longer: {reason}")
            return files
        if files is None:
            self.places[view.id] = str(Verdict(False, "its groups are more than the driver holds or reads"))
            return self._by_spark(view)
        self.added[view.changes_table] = files
        return files

    def _by_spark(self, view: View) -> tuple[DataFile, ...]:
        files = buckets.changes(self, view) if view.query.direct and view.id not in self.computable else None
        if files is not None:
            self.added[view.changes_table] = files
            return files
        touched = self.touched(view)
        return () if touched is None else self._difference(view, touched)

    def closes(self, view: View) -> bool:
        """Whether a view waits for windows to close, and this commit moves what they close by."""
        if view.emission.mode == "close" and view.progress.clock != "event":
            return True  # to count chunks takes longer than the answer is worth
        waits = view.emission.mode == "close" or (
            view.emission.triggers is not None and view.emission.triggers.watermark
        )
        if not waits or self.progress(view, 0) != self.progress(view, 1):
            return bool(waits)
        own = self._own_bounds(view)
        return own is not None and own.before != own.after

    def _own_bounds(self, view: View) -> KeyBounds | PairBounds | None:
        """The bounds by which the keys of a view close one by one; None if they close together."""
        found = key_bounds(self.core, self.catalog, view, self.before, self.moves)
        return found or pair_bounds(self.core, self.catalog, view, self.before, self.moves)

    def touches(self, view: View) -> bool:
        """Whether this commit brings anything that a node reads."""
        return self.new_rows(view) > 0

    # ---- triggers

    def _fire(self, view: View) -> tuple[DataFile, ...]:
        """The changes of the keys that fire in this commit."""
        before, after = self.progress(view, 0), self.progress(view, 1)
        keys = self._own_bounds(view)
        files = self._fire_by_spark(view, before, after, keys)
        if files is not None:
            return files
        self.places[view.id] = "by Spark; what fires is decided on the driver"
        records = self._records(view)
        if view.emission.budget is not None and after is not None:
            before = shown_before(view, self.before, before)
            ready = self.core.timers.ready(view, self.before, records, before, after)
            self.hold(view, Held(after) if self.filling else hold(view, self.before, after, ready))
            after = self.held[view.id].bound
        fired = self.core.timers.fire(
            view, self.before, records, now=self.now, before=before, after=after, keys=keys,
            on_late=lambda end, count: self.count_late(view, end, count),
        )  # fmt: skip
        self.added[view.pending_table] = fired.files
        if view.emission.budget is None:
            self.waits[view.id] = self.waits[view.id][0], self.core.timers.earliest(view)
        if not fired.keys:
            return ()
        names = tuple(Field(f"k{index}", key.type) for index, key in enumerate(view.keying.columns))
        if not names:
            return self.minus_shown(view, self._limited(view, fired, None), None)
        touched = self.core.spark.createDataFrame(table_of(names, fired.keys))
        return self.minus_shown(view, self._limited(view, fired, touched), touched)

    def _fire_by_spark(
        self, view: View, before: int | None, after: int | None, keys: KeyBounds | PairBounds | None
    ) -> tuple[DataFile, ...] | None:
        """The same where keys are too many for the driver; None where they are not."""
        furthest = highest(after, keys.furthest[1]) if isinstance(keys, KeyBounds) else after
        rows, everything = self.rows_read(view), after == END or isinstance(keys, PairBounds)
        pending = self.core.timers.in_files(view, self.before, rows, self.now, furthest, everything=everything)
        if pending is None:
            return None
        self.places[view.id] = f"by Spark, what fires too: {pending.verdict.reason}"
        job = FiringJob(self, view, pending)
        if view.emission.budget is not None and after is not None:
            before = shown_before(view, self.before, before)
            ready = () if self.filling else job.ready(before, after)
            self.hold(view, Held(after) if self.filling else hold(view, self.before, after, ready))
            after = self.held[view.id].bound
        self.added[view.pending_table], files = job.changes(before, after, keys)
        self.core.timers.written(view, self.after, pending, self.added[view.pending_table])
        if view.emission.budget is None:
            self.waits[view.id] = self.waits[view.id][0], self.core.timers.earliest(view)
        return files

    def hold(self, view: View, held: Held) -> None:
        """A view with a budget has come so far; the views above go no further."""
        self.held[view.id] = held
        self.waits[view.id] = self.waits.get(view.id, (None, None))[0], held.bound + 1

    def progress(self, view: View, which: int) -> int | None:
        """The progress of what a view reads, before this commit (0) or after it (1).

        That of its streams, held back by views below that have rows of a window still to show.
        """
        if view.progress.clock == "arrival":  # nothing that comes later can be late
            return self.now if which else None
        if view.progress.clock == "rows":
            return self._rows_taken(view, which)
        if view.progress.clock == "chunks":
            return self._chunks_closed(view, which)
        waits = {id: end for id, ends in self.waits.items() if (end := ends[which]) is not None}
        return progress(self.core, self.catalog, view, self.before, self.moves, which, waits)

    def _rows_taken(self, view: View, which: int) -> int:
        """How many rows the streams of a view have, the one with the fewest, before this commit or after it."""
        counted = {id for placeholder, id in view.query.streams.items() if placeholder.startswith(NUMBERED)}
        streams = counted or self.catalog.sources_of(view)
        return self._fewest(view, [(stream, self._taken(stream, which)) for stream in streams], which)

    def _fewest(self, view: View, counts: list[tuple[str, int]], which: int) -> int:
        """The least of what is counted of streams; without those that are idle, and no less than it once was."""
        least = min((count for _, count in counts), default=END)
        passed = self.before.passed.get(view.id)
        silent = resting(self.core, self.catalog, self.before, self.moves, {id for id, _ in counts})
        if which and silent:
            passed = highest(passed, min(count for id, count in counts if id not in silent))
            self.passed[view.id] = passed or 0
        return least if passed is None else max(least, passed)

    def _taken(self, stream: str, which: int) -> int:
        if state_of(self.core, self.before, self.moves, stream, which).bound == END:
            return END
        return self._first(stream) + (self.taken.get(stream, 0) if which else 0)

    def _first(self, stream: str) -> int:
        """The number of the first row that this commit can bring to a stream."""
        state = self.before.streams.get(stream)
        return state.rows if state is not None else 0

    def _chunks_closed(self, view: View, which: int) -> int:
        """How many chunks of the streams of a view are over, of the one with the fewest: another one has begun."""
        counts: list[tuple[str, int]] = []
        for id, column in view.progress.cuts:
            if state_of(self.core, self.before, self.moves, id, which).bound == END:
                counts.append((id, END))
                continue
            stream = self.catalog.stream(id)
            at = self.after if which else self.before
            rows = read.kept_rows(self.core, view, stream, stream.row_fields, at)
            ((count,),) = self.core.frames.sql(changes_sql(column), {"@rows": rows}).collect()
            counts.append((id, count))
        return self._fewest(view, counts, which)

    def _records(self, view: View) -> dict[Key, Records]:
        """How many records this commit brings for each key, and their places where these matter."""
        found: dict[Key, Records] = {}
        width = len(view.keying.columns)
        for touch in view.keying.touches:
            rows = self.records_of(view, touch)
            if rows is None:
                continue
            for row in zip(*(column.to_pylist() for column in rows.toArrow().columns), strict=True):
                records = found.setdefault(hashable(row[:width]), Records())
                records.count += row[width] if view.emission.counted is None else 1
                if view.emission.counted is not None:
                    records.places.append(row[width])
        found = {key: records for key, records in found.items() if records.count}
        for records in found.values():
            records.places.sort()
        if not view.keying.touches and self.touches(view):
            found[()] = Records(self.new_rows(view))
        return found

    def records_of(self, view: View, touch: Touch) -> DataFrame | None:
        """The keys of the records that this commit brings to an input, with their places or how many they are; None for
        none."""
        new = self._changed(view, touch.input) if view.counts_by_run else self.delta(view, touch.input)
        if new is None:
            return None
        text = touch.text.replace("SELECT DISTINCT", "SELECT", 1)
        rows = self._keyed(view, self._touching(view, touch, text, new), PLACE)
        if view.emission.counted is None:
            rows = rows.groupBy(*(f"k{index}" for index in range(len(view.keying.columns)))).count()
        return rows

    def _changed(self, view: View, placeholder: str) -> DataFrame | None:
        """The rows behind a placeholder that this commit gives or takes back, each as often as it does."""
        parts = [rows for _, rows in self._split(view, placeholder)]
        return reduce(lambda one, other: one.unionAll(other), parts) if parts else None

    def _limited(self, view: View, fired: Fired, touched: DataFrame | None) -> DataFrame:
        """What the keys that fired show; of this commit, only the rows up to the one that fired."""
        rows = [(*key, place) for key, place in fired.upto.items()]
        takes = self.core.spark.createDataFrame(table_of(read.take_fields(view), rows)) if rows else None
        return self.fresh_upto(view, takes, touched)

    def fresh_upto(self, view: View, takes: DataFrame | None, touched: DataFrame | None) -> DataFrame:
        """What keys show now; with `takes`, of this commit only the rows up to a place."""
        if takes is None or view.emission.counted is None:
            return self.fresh(view, touched)
        new = self.delta(view, view.emission.counted)
        assert new is not None
        if self.filling:
            return self.fresh(view, touched, takes, new)
        both = self._counted_before(view, view.emission.counted).selectExpr("*", f"CAST(NULL AS BIGINT) AS {PLACE}")
        return self.fresh(view, touched, takes, both.unionByName(new))

    def _counted_before(self, view: View, placeholder: str) -> DataFrame:
        """The rows that a trigger has counted before this commit."""
        if placeholder in view.query.streams:
            stream = self.catalog.stream(view.query.streams[placeholder])
            return read.kept_rows(self.core, view, stream, stream.seen_as(placeholder), self.before)
        below = self.catalog.view(view.query.views[placeholder])
        rows = read.view_frame(self.core, self.catalog, below, self.after, emitted=True)
        return rows.where(f"NOT ({self._is_new(below)})")

    def count_late(self, view: View, end: int, count: int) -> None:
        size = max(
            (shift for name, shift in view.progress.times.items() if name in {key.name for key in view.keying.columns}),
            default=0,
        )
        late = LateRows(view, end - size if size else None, end, count)
        late.check()
        self.late.append(late)

    def _count_dropped(self, view: View) -> None:
        """Count the new rows of a join that came too late to meet all their partners, which it has let go."""
        held = self.needed(view)
        ends: dict[str, int] = {}
        for name, id in view.join_sources.items():
            ranges = reach(view.join.bands, name, 0, 0)
            for other, since in held.items():
                low = ranges.get(other, (None, None))[0]
                if other != name and low is not None:
                    ends[id] = max(since - low, ends.get(id, since - low))
        for id, end in ends.items():
            stream = self.catalog.stream(id)
            files = self.added.get(stream.rows_table, ())
            files = tuple(file for file in files if file.low is None or file.low < end)
            count = rows_before(self.core, stream, files, end) if files else 0
            if count:
                self.late.append(LateRows(view, None, end, count))

    def _leave_out_late(self, view: View) -> None:
        """Leave new rows of a join out that are below what it still needs of their own input."""
        held = self.needed(view)
        for input in view.leaves_out:
            since, stream = held.get(input), self.catalog.stream({**view.query.streams, **view.join.streams}[input])
            files = self.added.get(stream.rows_table, ())
            if since is None or not any(file.low is None or file.low < since for file in files):
                continue
            count = self.leave_out(view, input, self._before(view, input, since))
            if count:
                self.late.append(LateRows(view, None, since, count))

    def _before(self, view: View, placeholder: str, time: int) -> DataFrame:
        """The new rows behind a placeholder that are before a moment, by the event time of the stream they are from."""
        new = self.delta(view, placeholder)
        assert new is not None
        if placeholder in view.query.streams:
            stream = self.catalog.stream(view.query.streams[placeholder])
            return new.where(f"{quote_name(stream.time or '')} < timestamp_micros({time})")
        below = self.catalog.view(view.query.views[placeholder])
        rows = self._before(below, below.inputs[0], time)
        relations = {below.inputs[0]: rows, **read.static_frames(self.core, self.catalog, below)}
        return self.core.frames.sql(below.query.spark_text or below.query.text, relations).toDF(
            *(each.name for each in below.fields)
        )

    def leave_out(self, view: View, input: str, rows: DataFrame) -> int:
        """Leave new rows of an input out of a view for ever; how many came, beside those taken back."""
        table = view.left_out_table(input)
        fields = late_drop.left_out_fields(self.catalog, view, input)
        rows = rows if DIFF.name in rows.columns else self._signed(rows)
        rows = rows.selectExpr(
            *(f"CAST({quote_name(each.name)} AS {each.type}) AS {quote_name(each.name)}" for each in fields)
        )
        small = self.new_rows(view) <= self.core.place.limits.small_rows
        staged: list[Path] = []
        self.added[table] = write_frame(self.core.ledger, table, rows, small=small, time=None, staged=staged)
        for folder in staged:
            shutil.rmtree(folder, ignore_errors=True)
        return late_drop.came(self.core, table, self.added[table])

    # ---- new rows

    def delta(self, view: View, placeholder: str) -> DataFrame | None:
        """The new rows behind a placeholder; with a signed count where rows can be taken back."""
        for use in view.query.blocks:
            if use.placeholder == placeholder:
                panes = self.catalog.panes(use.panes)
                paths = self.paths(panes.id)
                return read.pane_frame(self.core, panes, use, paths) if paths else None
        if placeholder in view.query.streams:
            stream = self.catalog.stream(view.query.streams[placeholder])
            paths = self.paths(stream.rows_table)
            if placeholder == view.emission.counted:
                return self._placed(view, stream, placeholder, paths) if paths else None
            rows = self._rows(view, stream, stream.seen_as(placeholder), paths) if paths else None
            return None if rows is None else self._computable(view, placeholder, rows)
        below = self.catalog.view(view.query.views[placeholder])
        if placeholder != view.emission.counted:
            return self.delta_of(below)
        return self._in_order(below)

    def _rows(self, view: View, stream: Stream, fields: tuple[Field, ...], paths: list[str]) -> DataFrame:
        """New rows of a stream; a view that is being filled starts with one of them, maybe."""
        return read.since_start(view, stream, fields, lambda columns: self.core.frames.parquet(paths, columns))

    def _computable(self, view: View, _: str, rows: DataFrame) -> DataFrame:
        """Rows of an input without those that a view cannot compute."""
        text = self.computable.get(view.id)
        return rows if text is None else self.core.frames.sql(text, {STREAM_ROWS: rows})

    def set_aside(self, view: View, *, made: bool) -> tuple[Stream, Found] | None:
        """Have rows left out that a view cannot compute, of this commit or, if it is made, of all; None if there are
        none, or it looks at more than one row at a time."""
        rows = of_one_row(view)
        if rows is None or view.id in self.computable:
            return None
        stream = self.catalog.stream(rows.stream)
        paths = self.after.table_paths(self.core.ledger, stream.rows_table) if made else self.paths(stream.rows_table)
        new = placed_anyhow(self._rows(view, stream, stream.row_fields, paths)).persist()
        checking = Checking(self.core, StreamPart(self.core), stream, new, new)
        try:
            found = checking.failing_in(self.catalog, view, rows)
        finally:
            checking.close()
        if not found.indexes:
            return None
        self.computable[view.id] = computable(rows)
        return stream, found

    def _placed(self, view: View, stream: Stream, placeholder: str, paths: list[str]) -> DataFrame:
        """Rows with their places in the order in which they came. Rows of homes that numbered none are all in one."""
        columns = [quote_name(field.name) for field in stream.seen_as(placeholder)]
        rows = self._rows(view, stream, stream.row_fields, paths)
        return rows.selectExpr(*columns, f"coalesce({ROW_NUM}, 0) AS {PLACE}")

    def _in_order(self, view: View) -> DataFrame | None:
        """The new records of a node with their places in the order in which they came. Records that one row brings with
        the same others, of a static table, come in the order of their columns."""
        names = [field.name for field in view.fields]
        parts = parts_of(names)
        if self.filling:
            rows = read.view_frame(self.core, self.catalog, view, self.after, emitted=True)
            rows = with_arrival_numbers(self.core, rows, parts, self.before)
            places = [PLACES.format(index) for index in range(len(parts))]
        else:
            new = self.delta_of(view)
            if new is None:
                return None
            rows = self._copies(view, new, 1).where(self._is_new(view))
            places = [
                f"CASE WHEN {quote_name(name)} >= {self._first(id)} THEN {quote_name(name)} END"
                for name, id in parts.items()
                if id in self.taken
            ]
        others = [quote_name(each.name) for each in view.fields if each.name not in parts and orderable(each.type)]
        order = ", ".join([*order_sql(list(parts), places or ["CAST(NULL AS BIGINT)"]), *others])
        place = f"CAST(row_number() OVER (ORDER BY {order}) AS BIGINT) AS {PLACE}"
        return rows.selectExpr(*map(quote_name, names), place)

    def _is_new(self, view: View) -> str:
        """What holds for records that this commit brings: one of the rows that they are made of is new."""
        found = [
            f"coalesce({quote_name(name)} >= {self._first(stream)}, false)"
            for name, stream in parts_of([field.name for field in view.fields]).items()
            if stream in self.taken
        ]
        return " OR ".join(found) or "false"

    def delta_of(self, view: View) -> DataFrame | None:
        """The changes of a view in this commit: those it keeps, or what a stateless one passes on."""
        if not view.kept:
            return self._passed_on(view)
        paths = self.paths(view.changes_table)
        return self.core.frames.parquet(paths, self._change_fields(view)) if paths else None

    def _passed_on(self, view: View) -> DataFrame | None:
        """The changes of each input of a node, with the rows of the others, through its SQL.

        Of the inputs in front of it, with those of this commit; so each pair that is new is there once.
        """
        parts: list[DataFrame] = []
        statics = read.static_frames(self.core, self.catalog, view)
        for index, placeholder in enumerate(view.inputs):
            changed = list(self._split(view, placeholder))
            if not changed:
                continue
            within = self.partners(view, placeholder)
            others = {
                other: self._partners(view, other, self.after if place < index else self.before, within.get(other))
                for place, other in enumerate(view.inputs)
                if place != index
            }
            for sign, rows in changed:
                frame = self.core.frames.sql(
                    view.query.spark_text or view.query.text, {placeholder: rows, **others, **statics}
                )
                parts.append(self._signed(frame.toDF(*(field.name for field in view.fields)), sign))
        if not parts:
            return None
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionAll(part)
        return whole

    def _split(self, view: View, placeholder: str) -> Iterator[tuple[int, DataFrame]]:
        """The new rows behind a placeholder with their sign, each as often as it was given or taken back."""
        new = self.delta(view, placeholder)
        if new is None:
            return
        if placeholder not in view.query.views:
            yield 1, new
            return
        below = self.catalog.view(view.query.views[placeholder])
        signs = (1,) if append_only(below, self.catalog) else (1, -1)
        for sign in signs:
            yield sign, self._copies(below, new, sign)

    def _copies(self, view: View, changed: DataFrame, sign: int) -> DataFrame:
        """The rows that changes of a view give (1) or take back (-1), each as often as they do."""
        copied = "LATERAL VIEW explode(array_repeat(1, CAST(abs(_diff) AS INT))) __copies AS __copy"
        condition = "_diff > 0" if sign > 0 else "_diff < 0"
        text = f"SELECT {', '.join(self._names(view))} FROM `@new` {copied} WHERE {condition}"
        return self.core.frames.sql(text, {"@new": changed})

    def _partners(self, view: View, placeholder: str, snapshot: Snapshot, within: Range | None) -> DataFrame:
        """What an input of a join had at a snapshot; where it has event times, the rows with those within bounds."""
        rows = self._rows_within(view, placeholder, snapshot, within)
        return late_drop.without(self.core, self.catalog, view, placeholder, rows, snapshot)

    def _rows_within(self, view: View, placeholder: str, snapshot: Snapshot, within: Range | None) -> DataFrame:
        if placeholder in view.query.views:
            below = self.catalog.view(view.query.views[placeholder])
            if within is None or placeholder not in {**view.join.streams, **view.join.views}:
                return read.view_frame(self.core, self.catalog, below, snapshot, emitted=True)
            if below.kept:
                return read.shown_frame(self.core, self.catalog, below, snapshot, within=within)

            def band_ranges(inner: str, frame: DataFrame) -> DataFrame:
                return frame if inner in below.query.tables else self._partners(below, inner, snapshot, within)

            return read.view_query(self.core, self.catalog, below, snapshot, narrow=band_ranges)
        stream = self.catalog.stream(view.query.streams[placeholder])
        fields = stream.seen_as(placeholder)
        low, high = within or (None, None)
        if stream.time is None or (low is None and high is None):
            return read.kept_rows(self.core, view, stream, fields, snapshot)
        beyond = None if high is None else high + 1
        rows = read.kept_rows(self.core, view, stream, fields, snapshot, low, beyond)
        return read.in_range(rows, stream.time, (low, high))

    def partners(self, view: View, placeholder: str) -> dict[str, Range]:
        """Between which event times the rows of the other inputs lie that new rows of one can meet."""
        below = view.join_sources.get(placeholder)
        times = self._new_times(below) if below is not None else None
        if times is None:
            return {}
        found = reach(view.join.bands, placeholder, *times)
        if view.emission.late == "drop":
            held = self.needed(view)
            found = {name: (highest(low, held.get(name)), high) for name, (low, high) in found.items()}
        return found

    def needed(self, view: View) -> dict[str, int]:
        """From which event time on rows of the inputs of a join can still meet a row that is to come, and in time."""
        if not view.join.bands or not view.in_time:
            return {}
        bounds = input_bounds(self.core, self.catalog, view, self.before, self.moves)
        found: dict[str, int] = {}
        for name, since in view.needed(bounds).items():
            input = name if name in view.inputs else name.partition("#")[0]
            found[input] = min(since, found.get(input, LAST))
        return found

    def band_ranges(self, view: View) -> dict[str, Range]:
        """Between which event times all rows lie that say what an outer join shows of new ones; nothing: anywhere."""
        if not view.join.steps:
            return {}
        new = {name: self._new_times(below) for name, below in view.join_sources.items()}
        starts = {name: times for name, times in new.items() if times is not None}
        # A row of a view that has no time is near no other, and comes out of an outer join all the same.
        if any(None in times for times in starts.values()) or any(
            map(self._without_time, set(view.join.views.values()))
        ):
            return {}
        found: dict[str, Range] = {}
        for name, times in around(view.join.bands, starts, view.join.steps).items():
            placeholder = name.partition("#")[0]
            found[placeholder] = hull(found.get(placeholder, times), times)
        return found

    def _new_times(self, id: str) -> Range | None:
        """From the lowest to the highest event time of the new rows of a stream or view, where that is known; None for
        no rows."""
        files = self.added.get(self.catalog.rows_of(id)[0], ())
        ranges = [(file.low, file.high) for file in files]
        return reduce(hull, ranges) if ranges else None

    def _without_time(self, id: str) -> bool:
        """Whether some of the new rows of a view have no event time."""
        table, time = self.catalog.rows_of(id)
        folder = self.core.ledger.table_folder(table)
        return any(without_time(folder / file.path, time or "") for file in self.added.get(table, ()))

    def touched(self, view: View) -> DataFrame | None:
        """The keys that new rows touch, each once; None for none."""
        parts: list[DataFrame] = []
        for touch in view.keying.touches:
            new = self.delta(view, touch.input)
            if new is not None:
                parts.append(self.keys_of(view, touch, new))
        if not parts:
            return None
        touched = parts[0]
        for part in parts[1:]:
            touched = touched.unionAll(part)
        if len(parts) > 1:
            touched = touched.distinct()
        most = self.core.place.limits.small_rows
        keys = None
        if self.rows_read(view) <= most:
            keys = collected(touched, most) if view.query.tables else touched.toArrow()
        if keys is None:
            return touched
        return self.core.spark.createDataFrame(keys) if keys.num_rows else None

    def keys_of(self, view: View, touch: Touch, rows: DataFrame) -> DataFrame:
        """The keys that rows of an input touch, with their types."""
        return self._keyed(view, self._touching(view, touch, touch.text, rows))

    def _touching(self, view: View, touch: Touch, text: str, new: DataFrame) -> DataFrame:
        """The keys of new rows, whatever their sign."""
        if touch.input in view.query.views:
            names = self._names(self.catalog.view(view.query.views[touch.input]))
            new = new.select(*names, *([PLACE] if touch.input == view.emission.counted else []))
        return self.core.frames.sql(text, {touch.input: new, **read.static_frames(self.core, self.catalog, view)})

    def _names(self, view: View) -> list[str]:
        return [quote_name(field.name) for field in view.fields]

    def _keyed(self, view: View, frame: DataFrame, more: str | None = None) -> DataFrame:
        """The columns of a key with their types; and one more, where it is there.

        A number that is equal to none of its type (of a BIGINT column that is compared with an INT) touches none of its
        keys; as NULL it touches one that is computed anew in vain.
        """
        items = [f"try_cast(`k{i}` AS {key.type}) AS `k{i}`" for i, key in enumerate(view.keying.columns)]
        return frame.selectExpr(*items, *([more] if more is not None and more in frame.columns else []))

    def new_rows(self, view: View) -> int:
        """How many rows this commit brings that a node reads."""
        return sum(file.rows for table in self.catalog.tables_read(view) for file in self.added.get(table, ()))

    def rows_read(self, view: View) -> int:
        """How many rows a node reads in this commit, each once a window: new ones, or all where it is computed anew."""
        rows, after = 0, self.after.files if self.filling or self.anew else None
        for table in self.catalog.tables_read(view):
            windows = [use.sliding for use in view.query.blocks if use.panes == table]
            often = max((-(-each.size // each.slide) for each in windows if each is not None), default=1)
            files = self.added.get(table, ()) if after is None else after.get(table, {}).values()
            rows += often * sum(file.rows for file in files)
        return rows

    # ---- f(state) - shown

    def _difference(self, view: View, touched: DataFrame | None) -> tuple[DataFile, ...]:
        touched = touched.persist() if touched is not None else None
        try:
            within = self.band_ranges(view)
            if not within:
                return self.minus_shown(view, self.fresh(view, touched), touched)
            after, before = (self.fresh(view, touched, within=within, at=at) for at in (self.after, self.before))
            return self._write(view, self._minus(view, after, self._signed(before)))
        finally:
            if touched is not None:
                touched.unpersist()

    def closed_difference(self, view: View, touched: DataFrame) -> tuple[DataFile, ...]:
        """What a view that waits for windows shows now of some keys, and did not, and the other way round."""
        touched = touched.persist()
        try:
            return self.minus_shown(view, closing.closed(self, view, self.fresh(view, touched)), touched)
        finally:
            touched.unpersist()

    def difference_within(self, view: View, spans: Spans) -> tuple[DataFile, ...]:
        """What a node shows now of the sessions that rows touch, and did not, and the other way round."""
        if spans.touched is None:
            return ()
        touched = spans.touched.persist()
        try:
            fresh = closing.closed(self, view, self.fresh(view, touched, spans=spans))
            return self.minus_shown(view, fresh, touched, spans.during)
        finally:
            touched.unpersist()

    def fresh(
        self,
        view: View,
        touched: DataFrame | None = None,
        takes: DataFrame | None = None,
        counted: DataFrame | None = None,
        within: Mapping[str, Range] | None = None,
        at: Snapshot | None = None,
        spans: Spans | None = None,
    ) -> DataFrame:
        """What a node is to show now, for the touched keys; with rows of its own for what a trigger counts.

        Of streams, the rows whose event time is `within` bounds, or in the sessions of `spans`; `at` a snapshot, if not
        now.
        """
        narrows = {each.input: each.columns for each in view.keying.narrows}
        continues_from_shown = at is None and self.continues_from_shown(view)
        at = at or self.after
        within = spans.within if spans is not None else within

        def narrow(placeholder: str, frame: DataFrame) -> DataFrame:
            if within is not None and placeholder not in view.query.tables:
                frame = self._partners(view, placeholder, at, within.get(placeholder))
            if counted is not None and placeholder == view.emission.counted:
                frame = counted
            if touched is not None and continues_from_shown:
                frame = self._retained(view, placeholder)
            if touched is None:
                return frame
            columns = narrows.get(placeholder)
            pairs = [(name, f"k{index}") for index, name in enumerate(columns or ()) if name is not None]
            during = spans.time if spans is not None and placeholder == spans.input else None
            return self._semi(frame, touched, pairs, during)

        whole = read.view_query(self.core, self.catalog, view, at, narrow=narrow, hidden=True, takes=takes)
        if touched is None:
            return whole
        return self._semi(whole, touched, [(key.name, f"k{index}") for index, key in enumerate(view.keying.columns)])

    def continues_from_shown(self, view: View) -> bool:
        """Whether what a view shows and the rows of this commit are enough for its changes."""
        return view.follows_from_shown and not self.filling

    def _retained(self, view: View, placeholder: str) -> DataFrame:
        """What a view shows of the rows of its stream, and those of this commit."""
        new = self.delta(view, placeholder)
        assert new is not None and view.keying.retained is not None
        if not view.keying.retained:
            return new
        shown = read.shown_frame(self.core, self.catalog, view, self.before)
        again = ", ".join(
            f"{quote_name(name)} AS {quote_name(column)}" for column, name in view.keying.retained.items()
        )
        columns = ", ".join(map(quote_name, view.keying.retained))
        both = f"SELECT {again} FROM `@shown` UNION ALL SELECT {columns} FROM `@new`"
        return self.core.frames.sql(both, {"@shown": shown, "@new": new})

    def minus_shown(
        self, view: View, fresh: DataFrame, touched: DataFrame | None, during: str | None = None
    ) -> tuple[DataFile, ...]:
        """What is to be shown now of touched keys and was not, and the other way round, as changes of a view.

        `during` is the time of a row that was shown, where a key is touched between two times only.
        """
        shown = read.changes_frame(self.core, self.catalog, view, self.before)
        if touched is not None:
            pairs = [(key.name, f"k{index}") for index, key in enumerate(view.keying.columns)]
            shown = self._semi(shown, touched, pairs, during)
        return self._write(view, self._minus(view, fresh, shown))

    def _minus(self, view: View, fresh: DataFrame, shown: DataFrame) -> DataFrame:
        """What is to be shown now and was not, and the other way round."""
        columns = ", ".join(quote_name(field.name) for field in (*view.fields, *view.hidden))
        both = f"(SELECT {columns}, 1 AS _diff FROM `@fresh` UNION ALL SELECT {columns}, -_diff FROM `@shown`)"
        return self.core.frames.sql(net_sql(columns, both), {"@fresh": fresh, "@shown": shown})

    def _semi(
        self, frame: DataFrame, touched: DataFrame, pairs: list[tuple[str, str]], during: str | None = None
    ) -> DataFrame:
        """The rows of a frame that have a touched key; NULL is a key like any other. `during`: and that time of it."""
        same = [f"__r.{quote_name(name)} <=> __t.{key}" for name, key in pairs]
        same += [f"{during} BETWEEN __t.low AND __t.high"] if during is not None else []
        if not same:
            return frame
        on = " AND ".join(same)
        text = f"SELECT __r.* FROM `@rows` AS __r LEFT SEMI JOIN `@touched` AS __t ON {on}"
        return self.core.frames.sql(text, {"@rows": frame, "@touched": touched})

    # ---- into the ledger

    def _signed(self, frame: DataFrame, diff: int = 1) -> DataFrame:
        return frame.selectExpr("*", f"CAST({diff} AS BIGINT) AS _diff")

    def _write(self, view: View, changed: DataFrame) -> tuple[DataFile, ...]:
        names = [quote_name(field.name) for field in (*view.fields, *view.hidden)]
        stamped = changed.selectExpr(
            *names,
            "_diff",
            f"CAST({self.before.version + 1} AS BIGINT) AS _version",
            f"timestamp_micros({self.now}) AS _at",
        )
        staged: list[Path] = []
        small, time = self._small(view), view.time or None
        files = write_frame(self.core.ledger, view.changes_table, stamped, small=small, time=time, staged=staged)
        for folder in staged:
            shutil.rmtree(folder, ignore_errors=True)
        self.added[view.changes_table] = files
        return files

    def _small(self, view: View) -> bool | int:
        """Whether the changes of a view are few; or up to how many are, where the rows that it reads do not tell."""
        most = self.core.place.limits.small_rows
        if self.rows_read(view) > most:
            return False
        one_by_one = view.row_by_row and len(view.inputs) == 1 and not view.query.tables
        return True if one_by_one else most

    def paths(self, table: str) -> list[str]:
        if self.filling:
            return self.after.table_paths(self.core.ledger, table)
        folder = self.core.ledger.table_folder(table)
        return [str(folder / file.path) for file in self.added.get(table, ())]

    def _change_fields(self, view: View) -> tuple[Field, ...]:
        panes = self.catalog.panes(view.query.blocks[0].panes) if view.query.blocks else None
        return change_fields(view, panes)
