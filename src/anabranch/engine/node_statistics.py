"""Statistics of nodes from the records and files of the ledger, for EXPLAIN ANALYZE and sys.nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from anabranch.algebra.progress import END, FOREVER
from anabranch.engine.core import Core
from anabranch.engine.place import IN_WORDS
from anabranch.engine.progress_bounds import progress
from anabranch.ledger import Record, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.describe import Groups, NodeStatistics, PlanNode, tables_of
from anabranch.plan.plane import bounds_of
from anabranch.plan.view import View

#: How many records to read at a time, from the newest back.
_AT_A_TIME = 64
#: Commits that rewrite a table without changing its contents.
_SAME_ANSWER = ("reduce", "separate")


def of_nodes(core: Core, nodes: Iterable[PlanNode], snapshot: Snapshot) -> dict[str, NodeStatistics]:
    """The statistics of streams and views, by id."""
    catalog = core.catalog(snapshot)
    found: dict[str, NodeStatistics] = {}
    waiting: dict[str, Stream | View] = {}
    for node in nodes:
        known = catalog[node.id]
        if isinstance(known, Stream | View):
            waiting[node.id] = known
            tables = [known.rows_table] if isinstance(known, Stream) else tables_of(known, catalog)
            statistics = NodeStatistics(None, 0, None, *state_size(snapshot, tables), *_bounds(core, snapshot, known))
            found[node.id] = replace(statistics, groups=_groups(core, snapshot, known))
    for record in _newest_first(core, snapshot.version):
        for id, each in list(waiting.items()):
            last = _in_stream(each, record) if isinstance(each, Stream) else _in_view(each, catalog, record)
            if last is not None:
                rows, took = last
                where = _where(record) if isinstance(each, Stream) else record.backends.get(id, found[id].where)
                found[id] = replace(found[id], version=record.version, rows=rows, milliseconds=took, where=where)
                del waiting[id]
        if not waiting:
            break
    return found


def view_progress(core: Core, snapshot: Snapshot, view: View) -> int | None:
    """The progress of a view from its last commit; from its streams in older homes, whose commits lack it."""
    known = snapshot.bounds.get(view.id)
    if known is not None:
        return known
    return progress(core, core.catalog(snapshot), view, snapshot, {}, 0)


def _bounds(core: Core, snapshot: Snapshot, each: Stream | View) -> tuple[int | None, dict[str, int]]:
    if isinstance(each, Stream):
        bound = core.progress(snapshot, each.id).bound
        columns = {each.time: bound} if each.time is not None and bound is not None else {}
    else:
        bound = view_progress(core, snapshot, each)
        joint = each.progress.joint is not None  # its columns depend on each of its streams, not only on the slowest
        columns = bounds_of(
            core.catalog(snapshot), each, lambda id: core.progress(snapshot, id).bound if joint else bound
        )
        columns = {name: at for name, at in columns.items() if at > -FOREVER // 2}  # others wait for the end
    ended = bound == END
    return None if ended else bound, {} if ended else columns


def _groups(core: Core, snapshot: Snapshot, each: Stream | View) -> Groups | None:
    """The groups of a view that keeps them by size."""
    from anabranch.engine.group_sizes import count_groups  # here, since it imports this module

    catalog = core.catalog(snapshot)
    for use in each.query.blocks if isinstance(each, View) else ():
        panes = catalog.panes(use.panes)
        if panes.spanned:
            return count_groups(core, catalog.stream(panes.stream), panes, snapshot)
    return None


def state_size(snapshot: Snapshot, tables: Iterable[str]) -> tuple[int, int]:
    """The rows and bytes of tables."""
    files = [file for table in tables for file in snapshot.files.get(table, {}).values()]
    return sum(file.rows for file in files), sum(file.bytes for file in files)


def _newest_first(core: Core, version: int) -> Iterator[Record]:
    while version > 0:
        first = max(1, version - _AT_A_TIME + 1)
        yield from reversed(list(core.ledger.records(first, version)))
        version = first - 1


def _in_stream(stream: Stream, record: Record) -> tuple[int, float | None] | None:
    run = record.streams.get(stream.id)
    return (run.rows, record.milliseconds.get("total")) if run is not None and run.rows else None


def _where(record: Record) -> str:
    """Where the rows of a run were computed; empty if its record lacks it."""
    return next((words for place, words in IN_WORDS.items() if f"partials {place}" in record.milliseconds), "")


def _in_view(view: View, catalog: Catalog, record: Record) -> tuple[int, float | None] | None:
    """The rows of a view's changes; if it keeps none, those of its state."""
    if record.kind in _SAME_ANSWER:
        return None
    tables = (view.changes_table,) if view.kept else tables_of(view, catalog)
    added = [file for table in tables if table in record.tables for file in record.tables[table].add]
    return (sum(file.rows for file in added), record.milliseconds.get(f"changes {view.name}")) if added else None
