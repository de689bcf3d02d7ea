"""The sizes of the groups of a table before a run, which decide how its rows are kept: by span or by window.

All of it is in the ledger: partials carry how many rows end with their last window, and the size class of their group
when they were computed. So only earlier commits decide on a run, and after a crash the decision is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.algebra.windows.costs import Thresholds
from anabranch.algebra.windows.spans import ENDING, VOLUME, WAS_LARGE, Judging, known_sql
from anabranch.duck import quoted
from anabranch.engine.core import Core
from anabranch.engine.driver import connection
from anabranch.engine.frames import arrow_schema
from anabranch.engine.pane_sql import FAR
from anabranch.engine.table_cache import CachedRange, file_rows
from anabranch.engine.tables import PANE, group_size_fields
from anabranch.ledger import Snapshot
from anabranch.plan.definitions import ROW_NUM, Stream
from anabranch.plan.describe import Groups
from anabranch.plan.states import Panes
from anabranch.plan.types import duckdb_type
from anabranch.sql.lexer import QUOTED, tokenize
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class GroupSizes:
    """The thresholds for the groups of a run, and the known groups with open windows: an Arrow table, or a frame where
    they are too many for the driver."""

    judging: Judging
    known: pa.Table | None
    frame: DataFrame | None = None


def group_sizes_of(core: Core, stream: Stream, panes: Panes, snapshot: Snapshot) -> GroupSizes:
    """The sizes of groups before the next run of a stream."""
    judging = judging_of(core, stream, panes, snapshot)
    frame = _frame(core, panes, snapshot, judging.open_after)
    if frame is not None:
        return GroupSizes(judging, None, frame)
    with core.ledger.commit_lock:  # as those do who use what is in memory
        return GroupSizes(judging, _known(core, panes, snapshot, judging.open_after, in_memory=True))


def sizes_of_history(panes: Panes, *, counted: bool) -> GroupSizes:
    """The sizes of groups whose rows all come at once, as past rows do."""
    assert panes.spans is not None
    judging = Judging(Thresholds.of(panes.spans), None, 0, counted)
    return GroupSizes(judging, arrow_schema(_known_fields(panes)).empty_table())


def judging_of(core: Core, stream: Stream, panes: Panes, snapshot: Snapshot) -> Judging:
    """The thresholds for groups: the later rows may be, the more windows are open."""
    assert panes.spans is not None
    taken = snapshot.streams.get(stream.id)
    bound, high = _reached(core, stream, panes, snapshot)
    spread = max(0, high - bound) if bound is not None and high is not None else 0
    open_after = None if bound is None else bound - panes.spans.size
    return Judging(Thresholds.of(panes.spans, spread), open_after, taken.runs if taken is not None else 0)


def count_groups(core: Core, stream: Stream, panes: Panes, snapshot: Snapshot) -> Groups:
    """How many groups with open windows are large now, and how many are small."""
    judging = judging_of(core, stream, panes, snapshot)
    frame, limits = _frame(core, panes, snapshot, judging.open_after), judging.thresholds
    if frame is not None:
        above = f"{VOLUME} > {limits.up} OR ({WAS_LARGE} AND {VOLUME} >= {limits.down})"
        large, groups = frame.selectExpr(f"count_if({above})", "count(*)").collect()[0]
        return Groups(large, groups - large, limits)
    known = _known(core, panes, snapshot, judging.open_after, in_memory=False)
    pairs = zip(known.column(VOLUME).to_pylist(), known.column(WAS_LARGE).to_pylist(), strict=True)
    large = sum(judging.thresholds.large(was, volume, 0) for volume, was in pairs)
    return Groups(large, known.num_rows - large, judging.thresholds)


def _reached(core: Core, stream: Stream, panes: Panes, snapshot: Snapshot) -> tuple[int | None, int | None]:
    """The progress of the windows' time, and its highest value; None where unknown.

    A key with progress of its own may be ahead: its rows count as long as those of others.
    """
    along = panes.time or ""
    if ROW_NUM in along:
        taken = snapshot.streams.get(stream.id)
        return (taken.rows, taken.rows) if taken is not None else (None, None)
    # In a join, columns are qualified with the stream.
    names = [token.name for token in tokenize(along) if token.kind == QUOTED]
    if stream.time is None or names[-1:] != [stream.time] or not along.startswith("unix_micros"):
        return None, None
    state = core.progress(snapshot, stream.id)
    return state.bound, state.high


def _frame(core: Core, panes: Panes, snapshot: Snapshot, open_after: int | None) -> DataFrame | None:
    """The known groups with open windows, where their partials are too many for the driver."""
    written = {field["name"] for field in snapshot.schemas.get(panes.id, {"fields": ()})["fields"]}
    files = [file for file in snapshot.files.get(panes.id, {}).values() if file.may_hold(open_after, None)]
    if ENDING not in written or not files or core.place.takes_changes(0, sum(file.rows for file in files)):
        return None
    fields = (*(Field(key.name, key.type) for key in panes.keys), Field(PANE, "timestamp"), *group_size_fields(panes))
    text = known_sql("`@partials`", [quote_name(key.name) for key in panes.keys], open_after)
    return core.frames.sql(text, {"@partials": core.table_frame(panes.id, fields, snapshot, open_after)})


def _known(core: Core, panes: Panes, snapshot: Snapshot, open_after: int | None, *, in_memory: bool) -> pa.Table:
    """The known groups with open windows."""
    schema = arrow_schema(_known_fields(panes))
    written = {field["name"] for field in snapshot.schemas.get(panes.id, {"fields": ()})["fields"]}
    if ENDING not in written or (open_after is not None and open_after > FAR):
        return schema.empty_table()
    keys = tuple(Field(key.name, key.type) for key in panes.keys)
    fields = (*keys, Field(PANE, "timestamp"), *group_size_fields(panes))
    if not all(duckdb_type(field.type) for field in fields):
        frame = core.table_frame(panes.id, fields, snapshot, open_after)
        names = [quote_name(key.name) for key in panes.keys]
        found = core.frames.sql(known_sql("`@partials`", names, open_after), {"@partials": frame}).toArrow()
        return found.cast(schema)
    duck = core.table_cache.duck if in_memory else connection()
    if not in_memory:
        source = file_rows(snapshot.table_paths(core.ledger, panes.id, open_after), fields)
    elif open_after is None:
        source = core.table_cache.relation(panes.id, snapshot, fields)
    else:
        share = CachedRange(panes.id, "standing", PANE, open_after)
        source = core.table_cache.within(share, panes.id, snapshot, fields, (open_after, None))
    text = known_sql(source, [quoted(key.name) for key in panes.keys], open_after)
    return duck.sql(text).to_arrow_table().cast(schema)


def _known_fields(panes: Panes) -> tuple[Field, ...]:
    keys = tuple(Field(key.name, key.type) for key in panes.keys)
    return (*keys, Field(VOLUME, "bigint"), Field(WAS_LARGE, "boolean"))
