"""One commit, while the changes of its nodes are computed: its new files, its progress, and what is done so far."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.engine.core import Core
from anabranch.engine.late import LateRows
from anabranch.engine.progress_bounds import (
    Held,
    Moves,
    held_back,
)
from anabranch.engine.tables import overlaid
from anabranch.engine.writing import write_frame
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.view import View
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Added = Mapping[str, tuple[DataFile, ...]]


class Commit:
    """The state of one commit while the changes of its nodes are computed."""

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
        self.taken = taken  # number of new rows, by stream
        self.moves = moves
        self.filling = False  # whether all existing rows count as new
        self.recompute = False  # whether a node is recomputed as a whole
        #: For views with triggers or a budget: the end of the first pending window, before and after the commit.
        self.waits: dict[str, tuple[int | None, int | None]] = {}
        for view in catalog.of(View):
            if view.emission.triggers is not None:
                core.timers.pending(view, snapshot)
                earliest = core.timers.earliest(view)
                self.waits[view.id] = earliest, earliest
        for id, end in held_back(catalog, snapshot, {}).items():
            self.waits[id] = end, end
        #: How far views with a budget get in this commit.
        self.held: dict[str, Held] = {}
        #: The progress of views in rows or chunks, with idle streams ignored.
        self.passed: dict[str, int] = {}
        self.late: list[LateRows] = []
        #: The backend that computes each node in this commit, and why.
        self.backends: dict[str, str] = {}
        #: Changes that are computed already, by table.
        self.ready: Mapping[str, tuple[DataFile, ...]] = {}
        #: Of row-by-row views that fail for some rows: the query for the other rows.
        self.computable: dict[str, str] = {}
        self.catalog = catalog
        self.before = snapshot
        self.added = added  # grows: the changes of a node are new rows for the nodes above
        self.now = now

    @property
    def after(self) -> Snapshot:
        return overlaid(self.before, self.added)

    def touches(self, view: View) -> bool:
        """Whether this commit has new rows for a node."""
        return self.new_rows(view) > 0

    def hold(self, view: View, held: Held) -> None:
        """Record how far a view with a budget gets; the views above go no further."""
        self.held[view.id] = held
        self.waits[view.id] = self.waits.get(view.id, (None, None))[0], held.bound + 1

    def first_number(self, stream: str) -> int:
        """The number of the first new row of a stream."""
        state = self.before.streams.get(stream)
        return state.rows if state is not None else 0

    def new_rows(self, view: View) -> int:
        """The number of new rows that a node reads."""
        return sum(file.rows for table in self.catalog.tables_read(view) for file in self.added.get(table, ()))

    def rows_read(self, view: View) -> int:
        """The number of rows that a node reads, once per window: the new rows, or all if the node is recomputed."""
        rows, after = 0, self.after.files if self.filling or self.recompute else None
        for table in self.catalog.tables_read(view):
            windows = [use.sliding for use in view.query.blocks if use.panes == table]
            often = max((-(-each.size // each.slide) for each in windows if each is not None), default=1)
            files = self.added.get(table, ()) if after is None else after.get(table, {}).values()
            rows += often * sum(file.rows for file in files)
        return rows

    def write(self, view: View, changed: DataFrame) -> tuple[DataFile, ...]:
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
        """Whether a view has few changes; or how many count as few, if the number of rows read does not bound them."""
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
