"""The bounds up to which windows close in a commit, and the partials to read for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.algebra.rules import highest
from anabranch.algebra.windows import SlidingWindows
from anabranch.engine.core import Core
from anabranch.engine.progress_bounds import KeyBounds
from anabranch.ledger import DataFile, Snapshot

#: DuckDB's table of the bounds of keys that are ahead of their stream.
MARKS = "_marks"
#: Before all times.
EARLIEST = -(2**62)
Added = Mapping[str, tuple[DataFile, ...]]


@dataclass(frozen=True)
class Closing:
    """The bounds up to which windows were closed before and after a commit; some keys have their own."""

    before: int | None
    after: int | None
    keys: KeyBounds | None = None

    @property
    def floor(self) -> int:
        return EARLIEST if self.before is None else self.before

    @property
    def furthest_before(self) -> int | None:
        return self.before if self.keys is None else highest(self.before, self.keys.furthest[0])

    @property
    def furthest_after(self) -> int | None:
        return self.after if self.keys is None else highest(self.after, self.keys.furthest[1])

    def moves(self) -> Iterable[tuple[int | None, int | None]]:
        """The bounds of the stream, and of each key with its own."""
        yield self.before, self.after
        for part in self.keys.parts() if self.keys is not None else ():
            assert self.keys is not None
            yield highest(self.before, self.keys.before.get(part)), highest(self.after, self.keys.after.get(part))

    def marks(self) -> Any:
        """The bounds of keys as an Arrow table."""
        import pyarrow as pa

        assert self.keys is not None
        parts = self.keys.parts()
        columns = [[bounds.get(part) for part in parts] for bounds in (self.keys.before, self.keys.after)]
        return pa.table(
            {
                "part": pa.array(parts, pa.string()),
                "before": pa.array(columns[0], pa.int64()),
                "after": pa.array(columns[1], pa.int64()),
            }
        )

    def sql(self) -> tuple[str, str, str]:
        """For a row with keys: the expressions of its bounds before and after, and the join that they need."""
        before, after = (str(EARLIEST if bound is None else bound) for bound in (self.before, self.after))
        if self.keys is None:
            return before, after, ""
        key = f"coalesce('=' || CAST(k{self.keys.index} AS VARCHAR), '')"
        join = f" LEFT JOIN {MARKS} m ON m.part = {key}"
        return (
            f"greatest({before}, coalesce(m.before, {before}))",
            f"greatest({after}, coalesce(m.after, {after}))",
            join,
        )


@dataclass(frozen=True)
class Scope:
    """The partials that a commit of a view reads: its own, and earlier ones of panes in [low, high).

    `late`: some of its own may be in windows that were already shown.
    """

    panes: str
    windows: SlidingWindows
    new: tuple[DataFile, ...]
    low: int | None
    high: int | None
    late: bool = False

    @property
    def size(self) -> int:
        return self.windows.size

    def without_late(self, closing: Closing) -> Scope:
        """The same where late rows change nothing."""
        return replace(self, low=closing.floor - self.windows.size, late=False)

    def files(self, snapshot: Snapshot) -> list[DataFile]:
        there = snapshot.files.get(self.panes, {}).values()
        return [*(each for each in there if each.may_hold(self.low, self.high)), *self.new]

    def rows(self, snapshot: Snapshot) -> int:
        """The number of these partials, each counted once per window."""
        return sum(file.rows for file in self.files(snapshot)) * -(-self.windows.size // self.windows.slide)

    def paths(self, core: Core, snapshot: Snapshot) -> list[str]:
        return snapshot.table_paths(core.ledger, self.panes, self.low, self.high) + self.new_paths(core)

    def new_paths(self, core: Core) -> list[str]:
        folder = core.ledger.table_folder(self.panes)
        return [str(folder / file.path) for file in self.new]
