"""Backfill of past partials and rows: a view created late equals one created early."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import ProgressState
from anabranch.engine import joined_partials, numbering, read
from anabranch.engine.core import ATTEMPTS, Core, Stopwatch
from anabranch.engine.frames import arrow_schema, named
from anabranch.engine.group_sizes import sizes_of_history
from anabranch.engine.partial_windows import window_position_sql
from anabranch.engine.progress_bounds import bounds_after
from anabranch.engine.run import emit_changes, list_bad_rows
from anabranch.engine.set_aside import Checking, Losses, Stopped, refuse, with_cached_positions
from anabranch.engine.stream_part import StreamPart
from anabranch.engine.tables import PANE, pane_fields
from anabranch.engine.writing import write_frame
from anabranch.ledger import DataFile, Draft, Snapshot, TableChange
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import ROW_NUM, Stream
from anabranch.plan.placer import FillFrom, Planned
from anabranch.plan.states import Panes, Rows
from anabranch.plan.stored import to_json
from anabranch.plan.view import View
from anabranch.sources.base import Found, SourceChanged
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    History = Callable[[Panes | Rows | Stream], DataFrame | None]
    Begins = Callable[[Stream], tuple[int, int] | None]


def draft(
    core: Core,
    stream_part: StreamPart,
    planned: Planned,
    catalog: Catalog,
    snapshot: Snapshot,
    begins: Begins,
    *,
    sieve: bool = False,
) -> Draft:
    """The commit that creates a planned view with its first state.

    With `sieve`, rows that it cannot compute are set aside; then it must not share state tables.
    """
    merged = catalog.with_objects((*planned.objects, planned.view))
    staged: list[Path] = []
    files: dict[str, tuple[DataFile, ...]] = {}
    schemas: dict[str, Any] = {}

    def history(each: Panes | Rows | Stream, numbered: bool = False) -> DataFrame | None:
        # The stream before the commit: one that keeps its rows from now on has no past rows.
        if isinstance(each, Stream):
            return numbering.past_rows(core, catalog.stream(each.id), snapshot)
        stream = catalog.stream(each.stream)
        begin = begins(stream)
        numbered = numbered or (isinstance(each, Panes) and each.numbered)
        if numbered and begin is None:
            return numbering.past_rows(core, stream, snapshot)
        return _history(core, stream, snapshot, begin, numbered=numbered)

    rows = Sieve(core, stream_part, planned, merged, partial(history, numbered=True)) if sieve else None
    try:
        fill(core, stream_part, planned, merged, history, files, schemas, staged, rows)
        reach("after-backfill")
        tables = {table: TableChange(add=added) for table, added in files.items()}
        made = frozenset(each.id for each in (*planned.objects, planned.view) if isinstance(each, View))
        moves = {id: (ProgressState(), core.progress(snapshot, id)) for id in merged.sources_of(planned.view)}
        outcome = emit_changes(core, merged, snapshot, moves, files, tables, schemas, Stopwatch(), made)
        aside = {**outcome.aside, **(rows.found() if rows is not None else {})}
        for (_, stream), found in aside.items():
            list_bad_rows(core.ledger, merged.stream(stream), None, found.rows, tables, schemas)
    except BaseException:
        core.ledger.give_up(files, staged)
        raise
    finally:
        if rows is not None:
            rows.close()
    lacks = sum(len(found.indexes) for found in aside.values())
    changed = Losses({planned.view.id: lacks} if lacks else {}).changes(merged)
    definitions = {each.id: to_json(each) for each in (*planned.objects, planned.view, *changed)}
    return Draft(
        "create",
        tables=tables,
        catalog=definitions,
        schemas=schemas,
        staged=tuple(staged),
        **bounds_after(core, merged, snapshot, moves, outcome),
    )


def fill(
    core: Core,
    stream_part: StreamPart,
    planned: Planned,
    catalog: Catalog,
    history: History,
    files: dict[str, tuple[DataFile, ...]],
    schemas: dict[str, Any],
    staged: list[Path],
    sieve: Sieve | None = None,
) -> None:
    """Write the first contents of the state tables of a plan; `history` returns the past rows for each."""
    for attempt in range(ATTEMPTS):
        try:
            _fill(core, stream_part, planned, catalog, history, files, schemas, staged, sieve)
            for id in catalog.sources_of(planned.view):
                source = core.source(catalog.stream(id))
                if source is not None:
                    source.verify(list(core.ledger.captured(id)))
            return
        except SourceChanged:
            if attempt == ATTEMPTS - 1:
                raise
            core.ledger.give_up(files, staged)
            files.clear()
            staged.clear()
            if sieve is not None:
                sieve.close()


def _fill(
    core: Core,
    stream_part: StreamPart,
    planned: Planned,
    catalog: Catalog,
    history: History,
    files: dict[str, tuple[DataFile, ...]],
    schemas: dict[str, Any],
    staged: list[Path],
    sieve: Sieve | None,
) -> None:
    for each in planned.objects:
        if isinstance(each, View) or (isinstance(each, Panes) and each.above is not None):
            continue
        time, rows = None, None
        make: Callable[[DataFrame], DataFrame] = _as_they_are
        if isinstance(each, Stream):
            table, fields, time, rows = each.rows_table, each.row_fields, each.time, history(each)
        elif isinstance(each, Rows):
            table, fields, rows = each.id, each.fields, history(each)
            make = partial(stream_part.rows, each, catalog)
        else:
            table, fields, time = each.id, pane_fields(each), PANE if each.time is not None else None
            columns = planned.fill_columns.get(each.id, ())
            way = planned.fill_from.get(each.id)
            if way is not None:
                schemas[table] = arrow_schema(fields)
                files[table] = write_frame(
                    core.ledger, table, _from_partials(core, each, way), small=False, time=time, staged=staged
                )
                continue
            rows = history(each) if columns else None
            # Rows that are read again for later columns were counted when they came.
            group_sizes = sizes_of_history(each, counted=len(columns) == len(each.columns)) if each.spanned else None
            make = partial(stream_part.partials, each, catalog, columns=columns, group_sizes=group_sizes)
        schemas[table] = arrow_schema(fields)
        files[table] = _settled(core, each, staged) if isinstance(each, Panes) else ()
        if rows is None:
            continue

        def write(rows: DataFrame, table: str = table, make: Any = make, time: str | None = time) -> Any:
            return write_frame(core.ledger, table, make(rows), small=False, time=time, staged=staged)

        files[table] += write(rows) if sieve is None or isinstance(each, Stream) else sieve.write(each, table, write)


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


class Sieve:
    """The past rows of a new view, without those that it cannot compute."""

    def __init__(
        self, core: Core, stream_part: StreamPart, planned: Planned, catalog: Catalog, history: History
    ) -> None:
        self.core = core
        self.stream_part = stream_part
        self.view = planned.view
        self.catalog = catalog
        self.history = history
        self.states = [each for each in planned.objects if isinstance(each, Panes | Rows)]
        self._checked: dict[str, tuple[Checking, Found]] = {}

    def write(
        self, state: Panes | Rows, table: str, write: Callable[[DataFrame], tuple[DataFile, ...]]
    ) -> tuple[DataFile, ...]:
        """Write the first contents of a state table."""
        checking, found = self._rows_of(state.stream)
        halves = not (isinstance(state, Panes) and state.spanned)
        try:
            files, row_errors = checking.written(table, checking.without(found.indexes), write, halves=halves)
        except Stopped as stopped:
            raise named(self.view, stopped.error) from stopped
        if row_errors and len(self.states) > 1:  # the row's contributions to other tables are already written
            raise named(self.view, next(iter(row_errors.values())))
        checking.add(self.view, row_errors, found)
        refuse(checking.stream, [found])
        return files

    def _rows_of(self, id: str) -> tuple[Checking, Found]:
        if id not in self._checked:
            own = [each for each in self.states if each.stream == id]
            rows = self.history(own[0])
            assert rows is not None
            placed = with_cached_positions(rows).persist()
            checking = Checking(self.core, self.stream_part, self.catalog.stream(id), placed, placed)
            found = checking.failing(self.catalog, [self.view], own).get(self.view.id) or Found()
            self._checked[id] = checking, found
        return self._checked[id]

    def found(self) -> dict[tuple[str, str], Found]:
        """The rows that the view lacks, by the ids of the view and of streams."""
        return {(self.view.id, id): found for id, (_, found) in self._checked.items() if found.indexes}

    def close(self) -> None:
        for checking, _ in self._checked.values():
            checking.close()
        self._checked.clear()


def _from_partials(core: Core, panes: Panes, way: FillFrom) -> DataFrame:
    """The new columns of a pane table, derived from the partials of another one."""
    snapshot = core.ledger.snapshot()
    base = core.catalog(snapshot).panes(way.panes)
    keys = {quote_name(name): quote_name(key) for name, key in way.keys.items()}
    items, groups = [f"{key} AS {name}" for name, key in keys.items()], list(keys.values())
    if panes.time is not None:
        start = window_position_sql(panes, f"unix_micros({PANE})", "spark")[0]
        items.append(f"timestamp_micros({start}) AS {PANE}")
        groups.append(start)
    for name, theirs in way.columns.items():
        column = panes.column(name)
        items.append(f"CAST({column.reduce.format(c=quote_name(theirs))} AS {column.type}) AS {quote_name(name)}")
    tail = f"GROUP BY {', '.join(groups)}" if groups else "HAVING count(*) > 0"
    partials = core.table_frame(base.id, pane_fields(base), snapshot)
    return core.frames.sql(f"SELECT {', '.join(items)} FROM `@partials` {tail}", {"@partials": partials})


def _settled(core: Core, panes: Panes, staged: list[Path]) -> tuple[DataFile, ...]:
    """The first files of a pane table whose partials derived from another so far."""
    snapshot = core.ledger.snapshot()
    before = core.catalog(snapshot).objects.get(panes.id)
    if not isinstance(before, Panes) or before.above is None:
        return ()
    return joined_partials.write_own_files(core, core.catalog(snapshot), before, snapshot, staged)


def _history(
    core: Core, stream: Stream, snapshot: Snapshot, begin: tuple[int, int] | None, *, numbered: bool
) -> DataFrame | None:
    """The past rows of a stream for a new view; None if there are none."""
    state = snapshot.streams.get(stream.id)
    if state is None or state.runs <= (begin[0] if begin is not None else 0):
        return None
    source = core.past_source(stream)
    if begin is None:
        if source is None and stream.kept_since is None:
            return None
        return read.stream_frame(core, stream, snapshot)
    if source is not None and not numbered:
        return read.source_frame(core, stream, source, snapshot, begin[0])
    return rows_since(core, stream, snapshot, begin)


def rows_since(core: Core, stream: Stream, snapshot: Snapshot, begin: tuple[int, int]) -> DataFrame | None:
    """The past rows from the first one of a view on."""
    rows = numbering.past_rows(core, stream, snapshot)
    return None if rows is None else rows.where(f"coalesce({ROW_NUM}, 0) >= {begin[1]}")
