"""A continuous query as the catalog holds it: a view, or one of the hidden nodes that its changes are computed by.

What is known of it stands in groups: what it computes and reads, the keys that its rows are found again by, how the
inputs of a join can meet, how its columns progress, when it shows changes, where it begins, and what became of it.
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

#: The column of a node that asks tables outside: the version whose run asked.
ASKED = "_asked"
#: What EMIT STREAM adds: whether a row is taken back, when, and as which change of its key.
STREAM_FIELDS = (Field("undo", "string"), Field("ptime", "timestamp"), Field("ver", "bigint"))


# ------------------------------------------------------------------------------------------------ the query


@dataclass(frozen=True)
class Output:
    """One output column of a view whose changes need no Spark: a key, a bound of the window, or an aggregate."""

    name: str
    type: str
    kind: str  # "key", "window_start", "window_end", "window_time", "value"
    source: str  # key name, or DuckDB's final expression over reduced columns


@dataclass(frozen=True)
class TableLookup:
    """A table outside that each row asks for its matches: by which columns, and by what of a row named `of`."""

    table: str
    of: str
    expressions: tuple[str, ...]
    by: tuple[str, ...]  # one column for each expression
    columns: tuple[str, ...]  # what is kept of each match
    into: str  # the column that holds the list of them
    signs: tuple[str, ...] = ()  # how each column compares with its expression; empty: all of them are equal
    types: tuple[str, ...] = ()  # of the values of the expressions, where they are not those of the columns


@dataclass(frozen=True)
class NodeQuery:
    """What a node computes, as Spark SQL over placeholders, and what stands behind these."""

    text: str
    blocks: tuple[BlockUse, ...] = ()
    rows: str | None = None  # the rows table of a stateless view
    streams: Mapping[str, str] = field(default_factory=dict)  # placeholder -> stream, where rows of a stream are read
    tables: Mapping[str, str] = field(default_factory=dict)  # placeholder -> table
    views: Mapping[str, str] = field(default_factory=dict)  # placeholder -> view
    asks: tuple[TableLookup, ...] = ()  # the tables outside that a node of kind "lookup" asks
    direct: tuple[Output, ...] = ()  # set when the changes can be computed on the driver
    ordered: bool = False
    spark_text: str = ""  # the query as Spark is to run it, where that is not `text`
    included: tuple[str, ...] = ()  # the views whose queries are part of its own


# ------------------------------------------------------------------------------------------------ keys


@dataclass(frozen=True)
class Touch:
    """Which keys new rows of an input touch: `text` gives them, with the new rows behind the placeholder `input`."""

    input: str
    text: str


@dataclass(frozen=True)
class Narrow:
    """Columns of an input that hold the key, one entry a column of the key; only rows of touched keys are read.

    Where a column of the key is a bound of windows, `times` has the column that these lie along, and how far a row of a
    window is from that bound, in microseconds.
    """

    input: str
    columns: tuple[str | None, ...]
    times: tuple[tuple[str, int, int] | None, ...] = ()


@dataclass(frozen=True)
class NodeKeys:
    """The columns that the rows of a node are found again by."""

    columns: tuple[Field, ...] = ()
    touches: tuple[Touch, ...] = ()
    narrows: tuple[Narrow, ...] = ()
    #: Of a node over a stream for which what it shows and new rows are enough: the columns of the stream, as it shows
    #: them; none where new rows alone are enough. None: it looks at all rows.
    retained: Mapping[str, str] | None = None
    kept: tuple[Field, ...] = ()  # columns of these rows that it does not show
    reason: str = ""  # why it has no keys, and is computed as a whole


# ------------------------------------------------------------------------------------------------ joins


@dataclass(frozen=True)
class JoinInput:
    """An input of a join that changes: what the query calls it, and its event time."""

    input: str  # as the bands have it
    name: str
    time: str  # empty: it has none
    versions: bool = False  # of which each ends when the next one begins


@dataclass(frozen=True)
class NodeJoin:
    """How the rows of the inputs of a join can meet. What is read twice has two names: `@s:a` and `@s:a#1`."""

    bands: tuple[JoinBand, ...] = ()
    steps: int = 0  # so many steps from new rows all those are that an outer join has to look at; 0: anywhere
    inputs: tuple[JoinInput, ...] = ()  # all that change
    streams: Mapping[str, str] = field(default_factory=dict)  # inputs that pass the rows of one stream on -> stream
    #: Inputs with the rows of a view whose changes are kept, as they are or passed on -> view.
    views: Mapping[str, str] = field(default_factory=dict)
    aggregated: bool = False  # it gives what the new pairs of each run add up to, and not the pairs


# ------------------------------------------------------------------------------------------------ progress


@dataclass(frozen=True)
class JointProgress:
    """How far the columns of a view are behind the event times of what it reads, as the conditions of its join say.

    `behind` has columns that are times, `closes` those by which its groups close: the progress that has passed a group
    is the bound of its column, brought to the end of its window. `ends` are the columns of its key the last of which
    closes a group, where that is not any one alone.
    """

    inputs: tuple[str, ...]  # placeholders
    behind: Mapping[str, Distances]
    closes: Mapping[str, Distances]
    ends: tuple[str, ...] = ()
    inner: bool = True  # no row of it comes out without partners


@dataclass(frozen=True)
class Ends:
    """When windows end that other rows than a row's own make, by the event times of the one input that has them.

    A window ends `after` the time of its last row; or, with `every`, where so much has gone by since `origin`, whatever
    rows there are. With a `gap` these are sessions: rows of one value of the columns `apart` that are not further from
    each other; `single`: each row of the answer is from one of them. `columns` of the answer show the end, `starts` the
    start of a session.
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
        """Whether a row of the answer tells the session that it is from."""
        return self.single and bool(self.columns or self.starts)

    def renamed(self, name: Callable[[str], str | None]) -> Ends:
        """The same under other names; None: a column that is not shown any more."""
        columns, starts = (
            tuple(new for old in names if (new := name(old)) is not None) for names in (self.columns, self.starts)
        )
        return replace(self, columns=columns, starts=starts)

    def passed(self, bound: int | None) -> int | None:
        """A bound rounded down to where a row can be in a window that has ended by then: all earlier ones are late.

        >>> Ends("@s:s", "ts", 0, every=60).passed(119), Ends("@s:s", "ts", 6, gap=5).passed(119)
        (60, 119)
        """
        if bound is None or bound == END or not self.every:
            return bound
        return self.origin + (bound - self.origin) // self.every * self.every


@dataclass(frozen=True)
class NodeProgress:
    """How the columns of a node progress, and when its windows end."""

    times: Mapping[str, int] = field(default_factory=dict)  # column -> what to add to it for the end of its window
    time: str = ""  # the column of event times by whose range the files of its changes are known; empty: they are not
    joint: JointProgress | None = None  # where it joins
    ends: Ends | None = None  # when its windows end, where other rows than a row's own make them
    #: What its windows close by: event time, the number of "rows" or of "chunks", or the time of "arrival".
    clock: str = "event"
    cuts: tuple[tuple[str, str], ...] = ()  # streams and the columns whose changes end the chunks that are counted
    ahead: int | None = None  # how long after its time a row can still change; None: it has no window functions
    next_rows: int = 0  # and which of the next rows of its partition it waits for; 0: for none
    final: str = ""  # then the query with one more column, FINAL: the progress at which a row is final


def leading_time(fields: Iterable[Field], times: Mapping[str, int]) -> str:
    """The column of event times that rows are found by: the first, where windows are the one they start at.

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
    as_changes: bool = False  # a read shows the changes themselves
    triggers: Triggers | None = None
    counted: str | None = None  # the placeholder of the stream, or of the records, that a trigger counts one by one
    closing: str = ""  # the column that says when a window closes, where that is looked at row by row of the answer
    budget: Budget | None = None  # how much of what closes a run may show; None: all of it


@dataclass(frozen=True)
class Beginning:
    """What a node has of the past."""

    start: str = ""  # START AT, as it was written
    #: By stream, the first run and the number of the first row that it has; streams that are not here it has from the
    #: beginning.
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: The static tables as they were when it was made: table -> the version, and the version of the table's own.
    table_versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeState:
    """What has become of a node since it was made."""

    generation: int = 0  # how often its own tables were begun anew, because their columns had changed
    enriched: bool = False  # a stateless node inside a view whose rows are kept: they have met static tables, once
    refreshed: bool = False  # a static table that it reads was refreshed, and had changed
    corrected: bool = False  # its query was another one once, and rows of that were taken back
    lacks: int = 0  # how many rows it could not compute; they are in no table of its own
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

    def left_out_table(self, input: str) -> str:
        """The table of the rows of an input that were left out."""
        return f"{self.id}.left_out{self.inputs.index(input)}{self._generation}"

    @property
    def own_tables(self) -> tuple[str, ...]:
        """All tables of the ledger that are its own and no other's, whether they are there or not."""
        left_out = (self.left_out_table(input) for input in self.leaves_out)
        return (self.changes_table, self.pending_table, *left_out)

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
        """The columns of its key, and of the rows that it goes on from, that it does not show."""
        shown = {field.name for field in self.fields}
        return (*(key for key in self.keying.columns if key.name not in shown), *self.keying.kept)

    @property
    def final_times(self) -> Mapping[str, int]:
        """Its times, each with what to add to it for the progress by which all rows of it are final and shown."""
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
        """Whether its changes follow from what it shows and the new rows: it need not look at those of the past."""
        plain = self.emission.mode == "feed" and self.emission.late == "correct" and self.emission.counted is None
        return self.keying.retained is not None and plain

    @property
    def counts_by_run(self) -> bool:
        """Whether its trigger counts the changes of a run together, and not one record after the other."""
        triggers = self.emission.triggers
        return self.emission.counted is None and triggers is not None and (triggers.counting or 1) > 1

    @property
    def enriches_at_ingest(self) -> bool:
        """Whether it is of rows that meet static tables when they come, and are kept like that."""
        return self.kept and self.operator == "stateless" and (bool(self.query.streams) or self.state.enriched)

    @property
    def row_by_row(self) -> bool:
        """Whether each row of its answer comes from one row of each input."""
        return self.operator in ("stateless", "join")

    @property
    def leaves_out(self) -> tuple[str, ...]:
        """The inputs whose rows stay out of what it emits, for ever, if they come too late: windows that other rows
        make, and joins that show rows without partners, are one answer, and have a row or have it not."""
        emission, ends = self.emission, self.progress.ends
        if emission.closing:
            return (ends.input,) if emission.late in ("drop", "archive") and ends is not None else ()
        return self.inputs if emission.late == "drop" and emission.mode == "feed" and self.join.steps else ()

    # ---- its inputs

    @property
    def inputs(self) -> tuple[str, ...]:
        """The placeholders of what a node reads and that changes."""
        return (*(use.placeholder for use in self.query.blocks), *self.query.streams, *self.query.views)

    @property
    def join_sources(self) -> dict[str, str]:
        """The streams of a join, and the views with event times, under the names that its bands have for them."""
        twice = {name for band in self.join.bands for name in (band.one, band.other)}
        known = {**self.query.streams, **self.join.streams, **self.join.views}
        return {**known, **{name: known[name.partition("#")[0]] for name in sorted(twice)}}

    @property
    def of_streams(self) -> bool:
        """Whether all it reads and that changes are rows of streams, at most filtered and projected on the way."""
        return not self.query.blocks and self.query.views.keys() <= self.join.streams.keys()

    @property
    def in_time(self) -> bool:
        """Whether all it reads and that changes are rows of streams, or of views that have event times."""
        return not self.query.blocks and self.query.views.keys() <= {**self.join.streams, **self.join.views}.keys()

    @property
    def follows(self) -> bool:
        """Whether it is the rows of one input, each with the next one, which is looked for within bounds."""
        return self.join.steps == 1

    def needed(self, bounds: Mapping[str, int | None]) -> dict[str, int]:
        """From which time on rows of the inputs of a join can still matter, by how far each of these has come."""
        bands, steps = self.join.bands, self.join.steps
        return needed_around(bands, bounds, steps) if steps else needed(bands, bounds)

    def lets_go(self, input: str) -> bool:
        """Whether rows of an input of a join can no longer matter once the others have come so far."""
        kept = self.needed(dict.fromkeys(self.join_sources, 0)) if self.in_time else {}
        return any(input in (name, name.partition("#")[0]) for name in kept)
