"""A continuous query in the catalog: a view, or one of the hidden nodes that compute its changes.

Its fields are in groups: its query, the keys that identify its rows, its join, the progress of its columns, its
emission, its beginning, and its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch.algebra.plane import Distances
from anabranch.algebra.progress import END, FOREVER
from anabranch.algebra.reach import JoinBand, needed, needed_around
from anabranch.algebra.smoothing import Budget
from anabranch.algebra.triggers import Triggers
from anabranch.plan.states import BlockUse
from anabranch.types import Field

#: The column of a node that looks up external tables: the version of the run that did.
LOOKUP_VERSION = "_asked"
#: The columns that EMIT STREAM adds: whether a row is retracted, when, and which change of its key it is.
STREAM_FIELDS = (Field("undo", "string"), Field("ptime", "timestamp"), Field("ver", "bigint"))


# ------------------------------------------------------------------------------------------------ the query


@dataclass(frozen=True)
class Output:
    """An output column of a view whose changes need no Spark: a key, a window bound, or an aggregate."""

    name: str
    type: str
    kind: str  # "key", "window_start", "window_end", "window_time", "value"
    source: str  # key name, or DuckDB's final expression over reduced columns


@dataclass(frozen=True)
class TableLookup:
    """An external table in which each row looks up its matches, by columns compared with expressions over a row."""

    table: str
    of: str
    expressions: tuple[str, ...]
    by: tuple[str, ...]  # a column for each expression
    columns: tuple[str, ...]  # the kept columns of each match
    into: str  # the column with the list of matches
    signs: tuple[str, ...] = ()  # how each column compares with its expression; empty: all by =
    types: tuple[str, ...] = ()  # of the expressions, where they differ from those of the columns


@dataclass(frozen=True)
class NodeQuery:
    """What a node computes, as Spark SQL over placeholders, and what these refer to."""

    text: str
    blocks: tuple[BlockUse, ...] = ()
    rows: str | None = None  # the rows table of a stateless view
    streams: Mapping[str, str] = field(default_factory=dict)  # placeholder -> stream, where rows of a stream are read
    tables: Mapping[str, str] = field(default_factory=dict)  # placeholder -> table
    views: Mapping[str, str] = field(default_factory=dict)  # placeholder -> view
    asks: tuple[TableLookup, ...] = ()  # the external tables that a "lookup" node looks up
    direct: tuple[Output, ...] = ()  # set when the changes can be computed on the driver
    ordered: bool = False
    spark_text: str = ""  # the query that Spark runs, where it is not `text`
    included: tuple[str, ...] = ()  # the views whose queries were merged into its own


# ------------------------------------------------------------------------------------------------ keys


@dataclass(frozen=True)
class Touch:
    """The keys that new rows of an input touch: `text` returns them, with the new rows as the placeholder `input`."""

    input: str
    text: str


@dataclass(frozen=True)
class Narrow:
    """The columns of an input for each column of the key; only rows of touched keys are read.

    Where a key column is a window bound, `times` has the time column of the windows, and the range of the distance of
    a window's rows from that bound, in microseconds.
    """

    input: str
    columns: tuple[str | None, ...]
    times: tuple[tuple[str, int, int] | None, ...] = ()


@dataclass(frozen=True)
class NodeKeys:
    """The columns that identify the rows of a node."""

    columns: tuple[Field, ...] = ()
    touches: tuple[Touch, ...] = ()
    narrows: tuple[Narrow, ...] = ()
    #: Of a node over a stream that needs only what it shows and new rows: the columns of the stream, as it shows them;
    #: empty where new rows are enough. None: it reads all rows.
    retained: Mapping[str, str] | None = None
    kept: tuple[Field, ...] = ()  # hidden columns of these rows
    reason: str = ""  # why it has no keys and is recomputed as a whole


# ------------------------------------------------------------------------------------------------ joins


@dataclass(frozen=True)
class JoinInput:
    """A changing input of a join: its name in the query, and its event time."""

    input: str  # as in the bands
    name: str
    time: str  # empty: it has none
    versions: bool = False  # each of which ends when the next begins


@dataclass(frozen=True)
class NodeJoin:
    """Which rows of the inputs of a join can be joined. An input that is read twice has two names: `@s:a`, `@s:a#1`."""

    bands: tuple[JoinBand, ...] = ()
    steps: int = 0  # how many steps from new rows an outer join has to read; 0: all rows
    inputs: tuple[JoinInput, ...] = ()  # all that change
    streams: Mapping[str, str] = field(default_factory=dict)  # inputs that pass on the rows of one stream -> stream
    #: Inputs that are a view whose changes are kept, or pass on its rows -> view.
    views: Mapping[str, str] = field(default_factory=dict)
    aggregated: bool = False  # it returns an aggregate of the new pairs of each run, and not the pairs


# ------------------------------------------------------------------------------------------------ progress


@dataclass(frozen=True)
class JointProgress:
    """How far the columns of a view can be behind the event times of its inputs, by the conditions of its join.

    `behind` has its time columns, `closes` those by which its groups close: the progress that has passed a group is the
    bound of its column, moved to the end of its window. `ends` are the key columns of which the last closes a group,
    where no single column does.
    """

    inputs: tuple[str, ...]  # placeholders
    behind: Mapping[str, Distances]
    closes: Mapping[str, Distances]
    ends: tuple[str, ...] = ()
    inner: bool = True  # it returns no row without partners


@dataclass(frozen=True)
class Ends:
    """When windows that depend on other rows end, by the event times of the input that has them.

    A window ends `after` the time of its last row; or, with `every`, at multiples of it since `origin`, whatever rows
    there are. With a `gap` the windows are sessions: rows with equal columns `apart` and no larger distance; `single`:
    each row of the answer is from one session. `columns` of the answer show the end, `starts` the start of a session.
    """

    input: str
    time: str
    after: int
    every: int = 0
    origin: int = 0
    gap: int = 0
    apart: tuple[str, ...] = ()
    single: bool = False
    columns: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()

    @property
    def shows_session(self) -> bool:
        """Whether a row of the answer identifies its session."""
        return self.single and bool(self.columns or self.starts)

    def renamed(self, name: Callable[[str], str | None]) -> Ends:
        """The same with renamed columns; None: a column that is no longer shown."""
        columns, starts = (
            tuple(new for old in names if (new := name(old)) is not None) for names in (self.columns, self.starts)
        )
        return replace(self, columns=columns, starts=starts)

    def passed(self, bound: int | None) -> int | None:
        """A bound rounded down to the end of the last window that ended by then: all earlier rows are late.

        >>> Ends("@s:s", "ts", 0, every=60).passed(119), Ends("@s:s", "ts", 6, gap=5).passed(119)
        (60, 119)
        """
        if bound is None or bound == END or not self.every:
            return bound
        return self.origin + (bound - self.origin) // self.every * self.every


@dataclass(frozen=True)
class NodeProgress:
    """How the columns of a node progress, and when its windows end."""

    times: Mapping[str, int] = field(default_factory=dict)  # column -> offset to the end of its window
    time: str = ""  # the event time column whose range is known of each file of changes; empty: none
    joint: JointProgress | None = None  # if it is a join
    ends: Ends | None = None  # when its windows end, where they depend on other rows
    #: The clock that closes its windows: event time, the number of "rows" or of "chunks", or the time of "arrival".
    clock: str = "event"
    cuts: tuple[tuple[str, str], ...] = ()  # streams and the columns whose changes end the chunks that are counted
    ahead: int | None = None  # how long after its time a row can still change; None: it has no window functions
    next_rows: int = 0  # which of the next rows of its partition it waits for; 0: none
    final: str = ""  # then the query with one more column, FINAL: the progress at which a row is final


def leading_time(fields: Iterable[Field], times: Mapping[str, int]) -> str:
    """The event time column by which rows are found: the first, of windows their start.

    >>> leading_time([Field("e", "timestamp"), Field("s", "timestamp")], {"e": 0, "s": 60})
    's'
    """
    known = [field.name for field in fields if field.type == "timestamp" and field.name in times]
    return max(known, key=lambda name: times[name], default="")


# ------------------------------------------------------------------------------------------------ emission and state


@dataclass(frozen=True)
class NodeEmission:
    """When a node shows changes, and which."""

    mode: str = "read"  # computed when read; "feed": every change is kept; "close": when windows close; "triggers"
    late: str = "correct"
    as_changes: bool = False  # a read returns the changes themselves
    triggers: Triggers | None = None
    counted: str | None = None  # the placeholder of the stream, or of the records, that a trigger counts one by one
    closing: str = ""  # the column that gives when a window closes, where each row of the answer is checked
    budget: Budget | None = None  # how many closed windows a run may show; None: all


@dataclass(frozen=True)
class Beginning:
    """Where a node begins in its inputs."""

    start: str = ""  # START AT, as it was written
    #: By stream, its first run and the number of its first row; other streams are read from the beginning.
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: The static tables when it was created: table -> the ledger's version, and the table's own version.
    table_versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeState:
    """The state of a node since its creation."""

    generation: int = 0  # how often its own tables were restarted because their columns had changed
    enriched: bool = False  # an inner stateless node whose rows are kept as once joined with static tables
    refreshed: bool = False  # a refresh changed a static table that it reads
    corrected: bool = False  # its query was changed, and rows of the old one were retracted
    lacks: int = 0  # number of rows that it could not compute; none of its tables has them
    stopped: str = ""  # why it takes no more rows; then it cannot be read


# ------------------------------------------------------------------------------------------------ the view


@dataclass(frozen=True)
class View:
    """A continuous query with a name, or one node of it, which the view owns."""

    id: str
    name: str
    sql: str
    owner: str | None
    fields: tuple[Field, ...]
    operator: str  # "stateless", "lookup", "join", "keyed", "whole"; empty: it is computed when it is read
    query: NodeQuery
    keying: NodeKeys = NodeKeys()
    join: NodeJoin = NodeJoin()
    progress: NodeProgress = NodeProgress()
    emission: NodeEmission = NodeEmission()
    beginning: Beginning = Beginning()
    state: NodeState = NodeState()

    kind = "view"

    # ---- its tables

    @property
    def changes_table(self) -> str:
        return f"{self.id}.changes{self._generation}"

    @property
    def pending_table(self) -> str:
        return f"{self.id}.pending{self._generation}"

    def dropped_table(self, input: str) -> str:
        """The table of the dropped rows of an input."""
        return f"{self.id}.left_out{self.inputs.index(input)}{self._generation}"

    @property
    def own_tables(self) -> tuple[str, ...]:
        """All ledger tables that only it uses, whether they exist or not."""
        dropped = (self.dropped_table(input) for input in self.drops_late_of)
        return (self.changes_table, self.pending_table, *dropped)

    @property
    def _generation(self) -> str:
        return f"_{self.state.generation}" if self.state.generation else ""

    # ---- the static tables that it reads

    @property
    def table_versions(self) -> Mapping[str, tuple[int, int]]:
        return self.beginning.table_versions

    def with_table_versions(self, versions: Mapping[str, tuple[int, int]]) -> View:
        return replace(self, beginning=replace(self.beginning, table_versions=versions))

    def after_refresh(self) -> View:
        return replace(self, state=replace(self.state, refreshed=True))

    # ---- its columns

    @property
    def time(self) -> str:
        return self.progress.time

    @property
    def shown_fields(self) -> tuple[Field, ...]:
        """The columns that a reader sees."""
        return (*self.fields, *STREAM_FIELDS) if self.emission.as_changes else self.fields

    @property
    def hidden(self) -> tuple[Field, ...]:
        """The columns that it does not show, of its key and of the rows that it continues from."""
        shown = {field.name for field in self.fields}
        return (*(key for key in self.keying.columns if key.name not in shown), *self.keying.kept)

    @property
    def final_times(self) -> Mapping[str, int]:
        """Its time columns, with the offset to the progress at which rows are final and shown."""
        return dict.fromkeys(self.progress.times, FOREVER) if self.progress.final else self.progress.times

    # ---- how it is computed

    @property
    def kept(self) -> bool:
        """Whether its changes are in the ledger."""
        if self.emission.mode == "read":
            return False
        return self.state.enriched or self.operator != "stateless" or self.owner is None

    @property
    def follows_from_shown(self) -> bool:
        """Whether its changes follow from what it shows and the new rows, without past rows."""
        plain = self.emission.mode == "feed" and self.emission.late == "correct" and self.emission.counted is None
        return self.keying.retained is not None and plain

    @property
    def counts_by_run(self) -> bool:
        """Whether its trigger counts the changes of a run together, and not record by record."""
        triggers = self.emission.triggers
        return self.emission.counted is None and triggers is not None and (triggers.counting or 1) > 1

    @property
    def enriches_at_ingest(self) -> bool:
        """Whether it joins rows with static tables when they arrive, and keeps the result."""
        return self.kept and self.operator == "stateless" and (bool(self.query.streams) or self.state.enriched)

    @property
    def row_by_row(self) -> bool:
        """Whether each row of its answer comes from one row of each input."""
        return self.operator in ("stateless", "join")

    @property
    def drops_late_of(self) -> tuple[str, ...]:
        """The inputs whose rows are dropped for good if they are too late: an answer of windows that depend on other
        rows, or of joins that show rows without partners, cannot be corrected for one row."""
        emission, ends = self.emission, self.progress.ends
        if emission.closing:
            return (ends.input,) if emission.late in ("drop", "archive") and ends is not None else ()
        return self.inputs if emission.late == "drop" and emission.mode == "feed" and self.join.steps else ()

    # ---- its inputs

    @property
    def inputs(self) -> tuple[str, ...]:
        """The placeholders of a node's changing inputs."""
        return (*(use.placeholder for use in self.query.blocks), *self.query.streams, *self.query.views)

    @property
    def join_sources(self) -> dict[str, str]:
        """The streams of a join, and the views with event times, under their names in the bands."""
        twice = {name for band in self.join.bands for name in (band.one, band.other)}
        known = {**self.query.streams, **self.join.streams, **self.join.views}
        return {**known, **{name: known[name.partition("#")[0]] for name in sorted(twice)}}

    @property
    def of_streams(self) -> bool:
        """Whether all its changing inputs are rows of streams, at most filtered and projected."""
        return not self.query.blocks and self.query.views.keys() <= self.join.streams.keys()

    @property
    def in_time(self) -> bool:
        """Whether all its changing inputs are rows of streams, or of views with event times."""
        return not self.query.blocks and self.query.views.keys() <= {**self.join.streams, **self.join.views}.keys()

    @property
    def follows(self) -> bool:
        """Whether it pairs each row of its only input with the next row within bounds."""
        return self.join.steps == 1

    def needed(self, bounds: Mapping[str, int | None]) -> dict[str, int]:
        """By bounded input of a join: the least time of rows that can still matter, from the progress of the inputs."""
        bands, steps = self.join.bands, self.join.steps
        return needed_around(bands, bounds, steps) if steps else needed(bands, bounds)

    def lets_go(self, input: str) -> bool:
        """Whether the progress of the other inputs bounds which rows of an input a join still needs."""
        kept = self.needed(dict.fromkeys(self.join_sources, 0)) if self.in_time else {}
        return any(input in (name, name.partition("#")[0]) for name in kept)
