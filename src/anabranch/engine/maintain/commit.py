"""What one commit brings, for those that compute the changes of nodes: its rows and files, its clock, what is done."""

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

    def touches(self, view: View) -> bool:
        """Whether this commit brings anything that a node reads."""
        return self.new_rows(view) > 0

    def hold(self, view: View, held: Held) -> None:
        """A view with a budget has come so far; the views above go no further."""
        self.held[view.id] = held
        self.waits[view.id] = self.waits.get(view.id, (None, None))[0], held.bound + 1

    def first_number(self, stream: str) -> int:
        """The number of the first row that this commit can bring to a stream."""
        state = self.before.streams.get(stream)
        return state.rows if state is not None else 0

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
