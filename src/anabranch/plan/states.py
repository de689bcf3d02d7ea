"""The state tables of views: partials by pane and key, and rows. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch.algebra.windows import SlidingWindows
from anabranch.plan.definitions import ARRIVAL_TS, ROW_NUM
from anabranch.types import Field

#: The columns that a window adds to its rows.
WINDOW_COLUMNS = ("window_start", "window_end", "window_time", "window_id")


def window_type(column: str, numbers: bool) -> str:
    """The type of a column of a window; its bounds are times, or numbers."""
    return "bigint" if numbers or column == "window_id" else "timestamp"


@dataclass(frozen=True)
class Key:
    """A column that groups, computed from a row by `expression`."""

    name: str
    expression: str
    type: str


@dataclass(frozen=True)
class PartialColumn:
    """One partial of one aggregate, for the rows that `condition` lets through."""

    name: str
    partial: str
    reduce: str
    duckdb: bool  # whether DuckDB reduces it to the same result
    duckdb_reduce: str | None  # DuckDB's expression, where it differs
    type: str
    since: int  # its first run

    @property
    def computed(self) -> str:
        """The partial as Spark computes it. Over no rows it is NULL, and so are the fields of a struct, which Spark may
        take for not nullable: the cast makes them nullable."""
        return f"CAST({self.partial} AS {self.type})" if "struct<" in self.type else self.partial

    def reduce_in_duckdb(self, column: str) -> str:
        return (self.duckdb_reduce or self.reduce).format(c=column)


@dataclass(frozen=True)
class Above:
    """How partials of a join with static tables derive from those of the stream alone, until the first REFRESH of the
    tables: the join is above the partials, and no run reads a table.

    Its texts read the partials instead of the stream: these have the columns `names` of the stream under their own
    names, and the grouping expressions as `__k0`, `__k1`, ...
    """

    panes: str  # the pane table of the stream alone
    exposed: str  # the qualifier of the stream in the query
    from_text: str
    where: str | None  # the condition on the joined rows
    names: Mapping[str, str]  # column of the stream -> key of that pane table
    keys: Mapping[str, str]  # key -> its text
    places: tuple[str, ...]  # the keys of that pane table for __k0, __k1, ...
    columns: Mapping[str, str] = field(default_factory=dict)  # partial -> the one that it is reduced from

    def alike(self, other: Above) -> bool:
        """Whether both are equal except for their partials."""
        return replace(self, columns={}) == replace(other, columns={})


def own_signature(signature: str, view: str) -> str:
    """The signature of a pane table without the rows that a view could not compute: no other view can share it."""
    own = f" of {view}"
    return signature if signature.endswith(own) else signature + own


#: The prefix of a column that counts the rows for which a condition holds.
_COUNTED = "count(*) FILTER (WHERE "


@dataclass(frozen=True)
class Panes:
    """A table of partials: one row a run, pane and key. Views with the same keys on a stream share it."""

    id: str
    stream: str
    signature: str  # equal for blocks that can share it
    from_text: str
    statics: Mapping[str, str]  # placeholder -> table id
    keys: tuple[Key, ...]
    time: str | None  # the event-time column; None: no panes
    grain: int
    origin: int
    columns: tuple[PartialColumn, ...]
    conditions: tuple[str | None, ...]  # of the views that share it; rows that match none are dropped
    made: int = 0  # columns created so far: names are never reused
    #: The static tables that its rows are joined with: table -> the ledger's version, and the table's own version.
    table_versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: The size of its windows, one every grain, where each partial has a span of them; 0: partials are those of panes.
    spanned: int = 0
    by_value: bool = False  # a pane for each value, for windows that end at rows
    above: Above | None = None  # how its partials derive from another's; then no run adds to it
    settled: bool = False  # its partials once derived from another's
    refreshed: bool = False  # its rows are joined with different versions of static tables
    filled_from: str = ""  # the pane table that its first partials came from, where the rows were gone

    kind = "panes"

    def with_table_versions(self, versions: Mapping[str, tuple[int, int]]) -> Panes:
        return replace(self, table_versions=versions)

    def after_refresh(self) -> Panes:
        return replace(self, refreshed=True)

    @property
    def spans(self) -> SlidingWindows | None:
        """The windows of its partials, if these are spans."""
        return SlidingWindows(self.spanned, self.grain, self.origin) if self.spanned else None

    @property
    def numbered(self) -> bool:
        """Whether its panes, or the ends of its windows, go by the numbers of rows or the times of their arrival."""
        texts = [self.time, *(column.partial for column in self.columns if self.by_value)] if self.time else []
        return any(ROW_NUM in text or ARRIVAL_TS in text for text in texts if text is not None)

    def column(self, name: str) -> PartialColumn:
        return next(column for column in self.columns if column.name == name)

    def condition_of(self, presence: str) -> str | None:
        """The condition on the rows that a block counts in its presence column; None for all."""
        counted = self.column(presence).partial
        return counted[len(_COUNTED) : -1] if counted.startswith(_COUNTED) else None

    def conditions_of(self, presences: Iterable[str]) -> tuple[str | None, ...]:
        """The conditions of some of its blocks. None with windows that end at rows: all rows determine the ends."""
        return tuple(dict.fromkeys(None if self.by_value else self.condition_of(each) for each in presences))


@dataclass(frozen=True)
class Rows:
    """A table of rows: those that a stateless view appends in each run."""

    id: str
    stream: str
    text: str  # a SELECT over placeholders
    statics: Mapping[str, str]
    fields: tuple[Field, ...]
    table_versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    refreshed: bool = False  # its rows are joined with different versions of static tables

    kind = "rows"

    def with_table_versions(self, versions: Mapping[str, tuple[int, int]]) -> Rows:
        return replace(self, table_versions=versions)

    def after_refresh(self) -> Rows:
        return replace(self, refreshed=True)


@dataclass(frozen=True)
class BlockUse:
    """How a view reads a pane table: the windows, and the column that marks a group with rows."""

    placeholder: str
    panes: str
    windows: tuple[int, int, int] | None  # size, slide, origin
    presence: str
    columns: tuple[str, ...]
    first: int | None = None  # the start of window 0, where it is not the origin
    numbers: bool = False  # windows of numbers: their bounds are not times
    strategy: str = "panes"  # or another one; of windows only
    costs: Mapping[str, float] = field(default_factory=dict)  # the predicted cost of each strategy per window
    #: Windows that end at rows: their size, their slide in rows, "number" or "rank", and the column that gives it.
    bins: tuple[int, int, str, str] | None = None
    joined: str = ""  # of a block over static tables: why the join is above its partials, or why below

    def fields(self, panes: Panes) -> tuple[Field, ...]:
        """The columns of the pane table as the view sees it."""
        keys = [Field(key.name, key.type) for key in panes.keys]
        names = WINDOW_COLUMNS if self.windowed else ()
        bounds = [Field(name, window_type(name, self.numbers)) for name in names]
        return (*keys, *(Field(name, panes.column(name).type) for name in self.columns), *bounds)

    @property
    def windowed(self) -> bool:
        """Whether the view sees windows."""
        return self.windows is not None or self.bins is not None

    @property
    def window_zero(self) -> int:
        """The start of window 0."""
        assert self.windows is not None
        return self.windows[2] if self.first is None else self.first

    @property
    def sliding(self) -> SlidingWindows | None:
        return SlidingWindows(*self.windows) if self.windows is not None else None
