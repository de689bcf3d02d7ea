"""What the catalog holds: streams, tables, views and sinks, and the state tables under the views. Plain values with a
JSON form; the ledger stores them, ids never change and names in the ledger are ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from anabranch.algebra.plane import Behind, Distances
from anabranch.algebra.progress import END, FOREVER, Delay, Percentile, Policy
from anabranch.algebra.reach import Near, needed, needed_around
from anabranch.algebra.rules import Rule, rule_from_json, rule_to_json
from anabranch.algebra.smoothing import Budget
from anabranch.algebra.windows import SlidingWindows
from anabranch.sources.registry import is_live, reads_once
from anabranch.types import Field as Field

T = TypeVar("T")

#: The columns that a window gives to the rows in it.
WINDOW_COLUMNS = ("window_start", "window_end", "window_time", "window_id")
#: The columns that kept rows have besides those of their stream: their number among all its rows, and when they came.
ROW_NUM, ARRIVAL_TS = "_row_num", "_arrival_ts"
#: The column of a node that asks tables outside: the version whose run asked.
ASKED = "_asked"
#: How placeholders begin behind which the rows of a stream are with these.
NUMBERED = "@n:"


def window_type(column: str, numbers: bool) -> str:
    """The type of a column of a window; its bounds are times, or numbers."""
    return "bigint" if numbers or column == "window_id" else "timestamp"


@dataclass(frozen=True)
class Stream:
    """A named, append-only source of rows."""

    id: str
    name: str
    sql: str
    fields: tuple[Field, ...]
    time: str | None
    rule: Rule | None  # how progress follows the rows; None: it does not
    idle: int | None
    ahead: int | None
    source: str | None  # None: rows come by INSERT and COPY
    options: Mapping[str, Any]
    keep: str  # "all" or "nothing"
    fail_on_bad: bool
    kept_since: int | None = None  # first run whose rows are in the rows table; None: it has none
    key: str | None = None  # the column whose values have progress of their own
    lull: bool = False  # whether the clock moves its progress when it is silent
    on_gap: str = "fail"  # or "skip": when a position is gone
    on_schema_change: str = "ignore"  # or "fail", "add"; older homes have none
    inferred: bool = False  # whether the columns were found out, not declared

    kind = "stream"

    @property
    def live(self) -> bool:
        """Whether rows come as they happen, so that the clock says something about their times."""
        return is_live(self.source)

    @property
    def rereadable(self) -> bool:
        """Whether the rows of its past can be had from its source once more."""
        return self.source is not None and not reads_once(self.source)

    @property
    def policy(self) -> Policy:
        return Policy(self.rule, self.idle, self.ahead, self.live, self.key is not None, self.lull)

    @property
    def rows_table(self) -> str:
        return f"{self.id}.rows"

    @property
    def row_fields(self) -> tuple[Field, ...]:
        """The columns of the table of its rows."""
        return (*self.fields, Field(ROW_NUM, "bigint"), Field(ARRIVAL_TS, "timestamp"))

    def seen_as(self, placeholder: str) -> tuple[Field, ...]:
        """The columns that its rows have behind a placeholder."""
        return self.row_fields if placeholder.startswith(NUMBERED) else self.fields


@dataclass(frozen=True)
class Table:
    """A static table. Views read it once, when made, and again on REFRESH."""

    id: str
    name: str
    sql: str
    fields: tuple[Field, ...]
    source: str | None
    options: Mapping[str, Any]
    query: str | None  # CREATE TABLE AS SELECT: what REFRESH runs again
    every_run: bool = False  # refreshed before each run of a stream that meets it
    asked: str = ""  # why it stays where it is and is asked by key; empty: it is loaded

    kind = "table"


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
    duckdb: bool  # whether DuckDB reduces it with the same result
    duckdb_reduce: str | None  # where its text for that differs
    type: str
    since: int  # first run that is in it

    @property
    def computed(self) -> str:
        """The partial as Spark computes it. Of rows that are not there it is NULL, and so are the fields of a struct
        then, though Spark may hold that they never are: the cast lets them."""
        return f"CAST({self.partial} AS {self.type})" if "struct<" in self.type else self.partial

    def reduce_in_duckdb(self, column: str) -> str:
        return (self.duckdb_reduce or self.reduce).format(c=column)


@dataclass(frozen=True)
class Above:
    """How partials of a join with static tables are had from those of the stream alone, as long as nobody refreshed
    the tables: the join stands above the partials, and no run has to read a table.

    Its texts are over the partials in the place of the stream, which have the columns `names` of the stream under their
    own names and what rows are grouped by as `__k0`, `__k1`, ...
    """

    panes: str  # the pane table of the stream alone
    exposed: str  # what the query calls the stream
    from_text: str
    where: str | None  # what is asked of the joined rows
    names: Mapping[str, str]  # column of the stream -> key of that pane table
    keys: Mapping[str, str]  # key -> its text
    places: tuple[str, ...]  # the keys of that pane table that are __k0, __k1, ...
    columns: Mapping[str, str] = field(default_factory=dict)  # partial -> the one that it is reduced from

    def alike(self, other: Above) -> bool:
        """Whether both are the same but for the partials that they give."""
        return replace(self, columns={}) == replace(other, columns={})


def own_signature(signature: str, view: str) -> str:
    """The signature of a pane table that lacks rows which a view could not compute: no other view can share it."""
    own = f" of {view}"
    return signature if signature.endswith(own) else signature + own


#: What a column begins with that counts the rows for which a condition holds.
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
    conditions: tuple[str | None, ...]  # of the views that share it; a row that none wants is left out
    made: int = 0  # columns made so far, for names that are never used again
    statics_at: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # table id -> (version, version of its own)
    #: The size of its windows, one every grain, where each partial has a span of them; 0: partials are those of panes.
    spanned: int = 0
    by_value: bool = False  # a pane for each value, for windows that end at rows
    above: Above | None = None  # how its partials are had from those of another; no run adds to it then
    settled: bool = False  # it had its partials from another once
    refreshed: bool = False  # its rows have not all met the same static tables
    filled_from: str = ""  # the pane table that it had its first partials from, where the rows were gone

    kind = "panes"

    @property
    def spans(self) -> SlidingWindows | None:
        """The windows that its partials have spans of, if they have."""
        return SlidingWindows(self.spanned, self.grain, self.origin) if self.spanned else None

    @property
    def numbered(self) -> bool:
        """Whether it is the numbers of rows, or the times of their arrival, that panes lie along, or windows end by."""
        texts = [self.time, *(column.partial for column in self.columns if self.by_value)] if self.time else []
        return any(ROW_NUM in text or ARRIVAL_TS in text for text in texts if text is not None)

    def column(self, name: str) -> PartialColumn:
        return next(column for column in self.columns if column.name == name)

    def condition_of(self, presence: str) -> str | None:
        """Which rows a block counts, by the column that says that a group is there; None for all."""
        counted = self.column(presence).partial
        return counted[len(_COUNTED) : -1] if counted.startswith(_COUNTED) else None

    def conditions_of(self, presences: Iterable[str]) -> tuple[str | None, ...]:
        """The conditions of some of its blocks. Where windows end is for all rows to say."""
        return tuple(dict.fromkeys(None if self.by_value else self.condition_of(each) for each in presences))


@dataclass(frozen=True)
class Rows:
    """A table of rows: what a stateless view appends a run."""

    id: str
    stream: str
    text: str  # a SELECT over placeholders
    statics: Mapping[str, str]
    fields: tuple[Field, ...]
    statics_at: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    refreshed: bool = False  # its rows have not all met the same static tables

    kind = "rows"


@dataclass(frozen=True)
class BlockUse:
    """How a view reads a pane table: which windows over it, and which column says that a group is there."""

    placeholder: str
    panes: str
    windows: tuple[int, int, int] | None  # size, slide, origin
    presence: str
    columns: tuple[str, ...]
    first: int | None = None  # the start of window 0, where that is not the origin
    numbers: bool = False  # windows of numbers: their bounds are no times
    strategy: str = "panes"  # or another one; of windows only
    costs: Mapping[str, float] = field(default_factory=dict)  # what each strategy was expected to cost a window
    #: Windows that end at rows: their size, at every how many rows, by "number" or "rank", and the column that says so.
    bins: tuple[int, int, str, str] | None = None
    joined: str = ""  # of a block over static tables: why they are joined above its partials, or why below

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


@dataclass(frozen=True)
class Output:
    """One output column of a view whose changes need no Spark: a key, a bound of the window, or an aggregate."""

    name: str
    type: str
    kind: str  # "key", "window_start", "window_end", "window_time", "value"
    source: str  # key name, or DuckDB's final expression over reduced columns


#: What EMIT STREAM adds: whether a row is taken back, when, and as which change of its key.
STREAM_FIELDS = (Field("undo", "string"), Field("ptime", "timestamp"), Field("ver", "bigint"))


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
class Meets:
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

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Meets:
        behind, closes = (
            {
                name: tuple(tuple(Behind(**each) for each in side) for side in sides)
                for name, sides in values[part].items()
            }
            for part in ("behind", "closes")
        )
        return cls(tuple(values["inputs"]), behind, closes, tuple(values["ends"]), values["inner"])


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
    def told(self) -> bool:
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
class Ask:
    """A table outside that each row asks for its matches: by which columns, and by what of a row named `of`."""

    table: str
    of: str
    expressions: tuple[str, ...]
    by: tuple[str, ...]  # one column for each expression
    columns: tuple[str, ...]  # what is kept of each match
    into: str  # the column that holds the list of them
    signs: tuple[str, ...] = ()  # how each column compares with its expression; empty: all of them are equal
    types: tuple[str, ...] = ()  # of the values of the expressions, where they are not those of the columns


def leading_time(fields: Iterable[Field], times: Mapping[str, int]) -> str:
    """The column of event times that rows are found by: the first, where windows are the one they start at.

    >>> leading_time([Field("e", "timestamp"), Field("s", "timestamp")], {"e": 0, "s": 60})
    's'
    """
    known = [field.name for field in fields if field.type == "timestamp" and field.name in times]
    return max(known, key=lambda name: times[name], default="")


@dataclass(frozen=True)
class Side:
    """An input of a join that changes, for those who are told about it: what the query calls it, and its event time."""

    input: str  # as `near` has it
    name: str
    time: str  # empty: it has none
    versions: bool = False  # of which each ends when the next one begins


@dataclass(frozen=True)
class View:
    """A continuous query with a name. `text` is the query over placeholders: pane tables, rows, tables, other views.

    A view whose changes are kept is a node: `node` says how they are computed. Its subqueries are nodes of their own,
    hidden views that it owns.
    """

    id: str
    name: str
    sql: str
    text: str
    fields: tuple[Field, ...]
    blocks: tuple[BlockUse, ...]
    rows: str | None  # the rows table of a stateless view
    streams: Mapping[str, str]  # placeholder -> stream id, where the query reads a stream's rows
    tables: Mapping[str, str]  # placeholder -> table id
    views: Mapping[str, str]  # placeholder -> view id
    emit: str  # "read": computed when read; "feed": every change is kept; "close": when windows close; "triggers"
    start: str
    direct: tuple[Output, ...] = ()  # set when the changes can be computed on the driver
    ordered: bool = False
    statics_at: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    node: str = ""  # "stateless", "lookup", "join", "keyed", "whole"; empty: no node
    reason: str = ""  # why it is computed as a whole
    keys: tuple[Field, ...] = ()
    touches: tuple[Touch, ...] = ()
    narrows: tuple[Narrow, ...] = ()
    owner: str | None = None
    triggers: Mapping[str, Any] | None = None
    late: str = "correct"
    stream: bool = False  # a read shows the changes themselves
    times: Mapping[str, int] = field(default_factory=dict)  # column -> what to add to it for the end of its window
    counted: str | None = None  # the placeholder of the stream, or of the records, that a trigger counts one by one
    stays: bool = False  # a stateless node inside a view whose rows are kept: they have met static tables, once
    refreshed: bool = False  # a static table that it reads was refreshed, and had changed
    remade: int = 0  # how often its own tables were begun anew, because their columns had changed
    #: What its windows close by: event time, the number of "rows" or of "chunks", or the time of "arrival".
    clock: str = "event"
    cuts: tuple[tuple[str, str], ...] = ()  # streams and the columns whose changes end the chunks that are counted
    closing: str = ""  # the column that says when a window closes, where that is looked at row by row of the answer
    meets: Meets | None = None  # how its columns progress, where it joins
    #: How many "windows" or "rows" a run may show, within how many runs ("delay").
    budget: Mapping[str, int] | None = None
    asks: tuple[Ask, ...] = ()  # the tables outside that a node of kind "lookup" asks
    near: tuple[Near, ...] = ()  # which rows of a join's streams can meet
    nearby: int = 0  # so many steps from new rows all those are that an outer join has to look at; 0: anywhere
    spread: str = ""  # the query as Spark is to run it, where that is not `text`
    #: Of a join, the inputs that pass the rows of one stream on, each on its own: placeholder -> stream id.
    through: Mapping[str, str] = field(default_factory=dict)
    #: And those that have the rows of a view whose changes are kept, as they are or passed on: placeholder -> view id.
    timed: Mapping[str, str] = field(default_factory=dict)
    time: str = ""  # the column of event times by whose range the files of its changes are known; empty: they are not
    sides: tuple[Side, ...] = ()  # of a join, all inputs that change
    partial: bool = False  # a join that gives what the new pairs of each run add up to, and not the pairs
    #: By stream, the first run and the number of the first row that it has; streams that are not here it has from the
    #: beginning.
    begins: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    corrected: bool = False  # its query was another one once, and rows of that were taken back
    included: tuple[str, ...] = ()  # the ids of views whose queries are part of its own
    ends: Ends | None = None  # when its windows end, where other rows than a row's own make them
    ahead: int | None = None  # how long after its time a row can still change; None: it has no window functions
    next_rows: int = 0  # and which of the next rows of its partition it waits for; 0: for none
    final: str = ""  # then the query with one more column, FINAL: the progress at which a row is final
    #: Of a node over a stream for which what it shows and new rows are enough: the columns of the stream, as it shows
    #: them; none where new rows alone are enough. None: it looks at all rows.
    retained: Mapping[str, str] | None = None
    lacks: int = 0  # how many rows it could not compute; they are in no table of its own
    stopped: str = ""  # why it takes no more rows; then it cannot be read

    kind = "view"

    @property
    def pending_table(self) -> str:
        return f"{self.id}.pending{self._remade}"

    @property
    def leaves_out(self) -> tuple[str, ...]:
        """The inputs whose rows stay out of what it emits, for ever, if they come too late: windows that other rows
        make, and joins that show rows without partners, are one answer, and have a row or have it not."""
        if self.closing:
            return (self.ends.input,) if self.late in ("drop", "archive") and self.ends is not None else ()
        return self.inputs if self.late == "drop" and self.emit == "feed" and self.nearby else ()

    def left_out_table(self, input: str) -> str:
        """The table of the rows of an input that were left out."""
        return f"{self.id}.left_out{self.inputs.index(input)}{self._remade}"

    @property
    def own_tables(self) -> tuple[str, ...]:
        """All tables of the ledger that are its own and no other's, whether they are there or not."""
        left_out = (self.left_out_table(input) for input in self.leaves_out)
        return (self.changes_table, self.pending_table, *left_out)

    @property
    def _remade(self) -> str:
        return f"_{self.remade}" if self.remade else ""

    @property
    def kept(self) -> bool:
        """Whether its changes are in the ledger."""
        return self.emit != "read" and (self.stays or not (self.node == "stateless" and self.owner is not None))

    @property
    def goes_on(self) -> bool:
        """Whether its changes follow from what it shows and the new rows: it need not look at those of the past."""
        return self.retained is not None and self.emit == "feed" and self.late == "correct" and self.counted is None

    @property
    def counts_by_run(self) -> bool:
        """Whether its trigger counts the changes of a run together, and not one record after the other."""
        return self.counted is None and self.triggers is not None and (self.triggers["counting"] or 1) > 1

    @property
    def meets_once(self) -> bool:
        """Whether it is of rows that meet static tables when they come, and are kept like that."""
        return self.kept and self.node == "stateless" and (bool(self.streams) or self.stays)

    @property
    def row_by_row(self) -> bool:
        """Whether each row of its answer comes from one row of each input."""
        return self.node in ("stateless", "join")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The placeholders of what a node reads and that changes."""
        return (*(use.placeholder for use in self.blocks), *self.streams, *self.views)

    @property
    def met(self) -> dict[str, str]:
        """The streams of a join, and the views with event times, under the names that `near` has for them: what is read
        twice has two."""
        twice = {name for each in self.near for name in (each.one, each.other)}
        known = {**self.streams, **self.through, **self.timed}
        return {**known, **{name: known[name.partition("#")[0]] for name in sorted(twice)}}

    @property
    def of_streams(self) -> bool:
        """Whether all it reads and that changes are rows of streams, at most filtered and projected on the way."""
        return not self.blocks and self.views.keys() <= self.through.keys()

    @property
    def follows(self) -> bool:
        """Whether it is the rows of one input, each with the next one, which is looked for within bounds."""
        return self.nearby == 1

    @property
    def in_time(self) -> bool:
        """Whether all it reads and that changes are rows of streams, or of views that have event times."""
        return not self.blocks and self.views.keys() <= {**self.through, **self.timed}.keys()

    def needed(self, bounds: Mapping[str, int | None]) -> dict[str, int]:
        """From which time on rows of the inputs of a join can still matter, by how far each of these has come."""
        return needed_around(self.near, bounds, self.nearby) if self.nearby else needed(self.near, bounds)

    def lets_go(self, input: str) -> bool:
        """Whether rows of an input of a join can no longer matter once the others have come so far."""
        kept = self.needed(dict.fromkeys(self.met, 0)) if self.in_time else {}
        return any(input in (name, name.partition("#")[0]) for name in kept)

    @property
    def settles(self) -> Mapping[str, int]:
        """Its times, each with what to add to it for the progress by which all rows of it are final and shown."""
        return dict.fromkeys(self.times, FOREVER) if self.final else self.times

    @property
    def shown_fields(self) -> tuple[Field, ...]:
        """The columns that a reader sees."""
        return (*self.fields, *STREAM_FIELDS) if self.stream else self.fields

    @property
    def hidden(self) -> tuple[Field, ...]:
        """The columns of its key that it does not show."""
        shown = {field.name for field in self.fields}
        return tuple(key for key in self.keys if key.name not in shown)

    @property
    def changes_table(self) -> str:
        return f"{self.id}.changes{self._remade}"

    @property
    def smoothing(self) -> Budget | None:
        """How much of what closes a run may show; None for all of it."""
        return None if self.budget is None else Budget(**self.budget)


@dataclass(frozen=True)
class Sink:
    """A place outside that the changes of a view go to, or what it shows."""

    id: str  # never used again in its home, for folders say whose they are
    name: str
    sql: str
    view: str
    into: str  # "files" or "delta"
    options: Mapping[str, Any]

    kind = "sink"


@dataclass(frozen=True)
class Function:
    """A Python function that queries may call. Processes import it by its name in Python when one does."""

    id: str
    name: str
    sql: str
    reference: str  # package.module.function
    returns: str | None  # None: it is one of Spark's own making, and says itself what it returns

    kind = "function"


Object = Stream | Table | Panes | Rows | View | Sink | Function
_KINDS: dict[str, type[Any]] = {cls.kind: cls for cls in (Stream, Table, Panes, Rows, View, Sink, Function)}
_NESTED: dict[str, type[Any]] = {
    "fields": Field,
    "keys": Key,
    "columns": PartialColumn,
    "blocks": BlockUse,
    "direct": Output,
    "touches": Touch,
    "narrows": Narrow,
    "asks": Ask,
    "near": Near,
    "sides": Side,
}


def to_json(definition: Object) -> dict[str, Any]:
    values = {"kind": definition.kind, **asdict(definition)}
    if isinstance(definition, Stream):
        values["rule"] = rule_to_json(definition.rule)
    return values


#: What older homes have: bands, whose views close by their streams, and what is above counted one by one.
_GONE = ("band", "history", "told", "told_alike", "rounds")


def from_json(values: Mapping[str, Any]) -> Object:
    cls = _KINDS[values["kind"]]
    if cls is Stream:
        values = {**values, "rule": _rule(values)}
        values = {name: value for name, value in values.items() if name not in ("delay", "percentile")}
    values = _counting_by_run(values) if values.get("history") else values
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name in ("kind", *_GONE):
            continue
        nested = Field if name == "keys" and cls is View else _NESTED.get(name)
        if name == "emit" and value == "changes":
            value = "read"  # as homes made before changes could be kept have it
        if name in ("statics_at", "begins"):
            value = {table: tuple(at) for table, at in value.items()}
        if name == "cuts":
            value = tuple(tuple(each) for each in value)
        if isinstance(value, list | tuple) and nested is not None and value and isinstance(value[0], dict):
            value = tuple(nested(**_tuples(each)) for each in value)
        elif isinstance(value, dict) and name == "meets":
            value = Meets.from_json(value)
        elif isinstance(value, dict) and name == "ends":
            value = Ends(**_tuples(value))
        elif isinstance(value, dict) and name == "above":
            value = Above(**_tuples(value))
        elif isinstance(value, list):
            value = tuple(value)
        arguments[name] = value
    return cls(**arguments)  # type: ignore[no-any-return]


def _counting_by_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """A view of an older home that counted what comes and goes one by one: now all of a run, and it shows all of it."""
    none = "CAST(NULL AS BIGINT)"
    columns = [*(f"NULL AS __k{index}" for index in range(len(values["keys"]))), f"{none} AS __upto"]
    text = re.sub(r"\b_(place|left)\b", none, values["text"])
    text = text.replace("`@takes`", f"(SELECT {', '.join(columns)} WHERE false)")
    touches = [
        {**each, "text": each["text"].replace(", _place FROM", " FROM", 1).replace("SELECT _place", "SELECT 1", 1)}
        for each in values["touches"]
    ]
    return {**values, "text": text, "touches": touches, "counted": None}


def _rule(values: Mapping[str, Any]) -> Rule | None:
    """The rule of a stream; older homes have a delay or a percentile in its place."""
    if values.get("percentile") is not None:
        return Percentile(**values["percentile"])
    if values.get("delay") is not None:
        return Delay(values["delay"])
    return rule_from_json(values.get("rule"))


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in values.items()}


class Catalog:
    """The definitions of one version, by id and by name."""

    def __init__(self, definitions: Mapping[str, Mapping[str, Any]]) -> None:
        self.objects: dict[str, Object] = {id: from_json(values) for id, values in definitions.items()}
        self._named = {
            each.name.lower(): each
            for each in self.objects.values()
            if isinstance(each, Stream | Table) or (isinstance(each, View) and each.owner is None)
        }

        self._sinks = {each.name.lower(): each for each in self.objects.values() if isinstance(each, Sink)}
        self.temporary: frozenset[str] = frozenset()  # names of Spark's temporary views that can be read as well

    def with_objects(self, objects: Iterable[Object]) -> Catalog:
        """The same catalog with more definitions, or others in their place."""
        return Catalog({id: to_json(each) for id, each in self.objects.items()} | {o.id: to_json(o) for o in objects})

    def with_temporary(self, names: Iterable[str]) -> Catalog:
        """The same catalog, with temporary views of Spark's."""
        made = copy(self)
        made.temporary = frozenset(names)
        return made

    def __getitem__(self, id: str) -> Object:
        return self.objects[id]

    def find(self, name: str) -> Stream | Table | View | None:
        """What can be read under a name."""
        return self._named.get(name.lower())

    def find_any(self, name: str) -> Stream | Table | View | Sink | None:
        """What has a name; sinks share their names with what can be read."""
        return self.find(name) or self._sinks.get(name.lower())

    def function(self, name: str) -> Function | None:
        """A function of the home; these have names of their own."""
        return next((each for each in self.of(Function) if each.name.lower() == name.lower()), None)

    def names(self) -> list[str]:
        return sorted(each.name for each in self._named.values())

    def of(self, kind: type[T]) -> Iterator[T]:
        for each in self.objects.values():
            if isinstance(each, kind):
                yield each

    def stream(self, id: str) -> Stream:
        return self._as(id, Stream)

    def view(self, id: str) -> View:
        return self._as(id, View)

    def panes(self, id: str) -> Panes:
        return self._as(id, Panes)

    def rows_of(self, id: str) -> tuple[str, str | None]:
        """The table with the rows of a stream or with the changes of a view, and the column of their event times."""
        found = self.objects[id]
        if isinstance(found, Stream):
            return found.rows_table, found.time
        view = self.view(id)
        return view.changes_table, view.time or None

    def _as(self, id: str, kind: type[T]) -> T:
        found = self.objects[id]
        assert isinstance(found, kind), f"{id} is not a {kind.__name__}"
        return found

    def sources_of(self, view: View) -> set[str]:
        """The ids of all streams a view depends on, through other views too."""
        found = set(view.streams.values())
        found |= {self.panes(block.panes).stream for block in view.blocks}
        if view.rows is not None:
            found.add(self._as(view.rows, Rows).stream)
        for id in view.views.values():
            found |= self.sources_of(self.view(id))
        return found

    def below(self, view: View) -> set[str]:
        """The ids of all views that a view reads, through other views too."""
        found = set(view.views.values())
        for id in view.views.values():
            found |= self.below(self.view(id))
        return found

    def readers_of(self, id: str) -> list[View | Sink]:
        """The views that read a stream, table or view, and the sinks that a view goes to."""
        found: list[View | Sink] = [sink for sink in self.of(Sink) if sink.view == id]
        for view in self.of(View):
            used = {*view.streams.values(), *view.tables.values(), *view.views.values(), *view.included}
            for block in view.blocks:
                panes = self.panes(block.panes)
                used |= {panes.stream, *panes.statics.values()}
            if view.rows is not None:
                rows = self._as(view.rows, Rows)
                used |= {rows.stream, *rows.statics.values()}
            if id in used:
                found.append(self.view(view.owner) if view.owner is not None else view)
        distinct = {each.id: each for each in found if each.id != id}
        return sorted(distinct.values(), key=lambda each: each.name)

    def root(self, view: View) -> View:
        """The view that people made, of one of its nodes."""
        return view if view.owner is None else self.view(view.owner)

    def users_of(self, state: Panes | Rows) -> list[View]:
        """The views that people made, and that read a state table: themselves, or through partials had from it."""
        found = {
            self.root(view).id: self.root(view)
            for view in self.of(View)
            if view.rows == state.id or any(state.id in (use.panes, self.kept_panes(use.panes)) for use in view.blocks)
        }
        return list(found.values())

    def all_below(self, view: View) -> list[View]:
        """The views that people made, of a view and all those that it reads; itself first."""
        found: dict[str, View] = {}
        left = [self.root(view)]
        while left:
            root = left.pop(0)
            if root.id not in found:
                found[root.id] = root
                nodes = (root, *self.nodes_of(root))
                left += [self.root(self.view(id)) for node in nodes for id in node.views.values()]
        return list(found.values())

    def nodes_of(self, view: View) -> list[View]:
        """The hidden views that a view owns."""
        return [each for each in self.of(View) if each.owner == view.id]

    def tables_read(self, view: View) -> list[str]:
        """The tables of the ledger that change what a view shows: panes, rows of streams, changes of views below."""
        tables = [self.kept_panes(use.panes) for use in view.blocks]
        tables += [self.stream(id).rows_table for id in dict.fromkeys(view.streams.values())]
        for id in dict.fromkeys(view.views.values()):
            below = self.view(id)
            tables += [below.changes_table] if below.kept else self.tables_read(below)
        return tables

    def in_order(self) -> list[View]:
        """All views, each behind those it reads."""
        done: dict[str, View] = {}

        def add(view: View) -> None:
            if view.id not in done:
                for id in view.views.values():
                    add(self.view(id))
                done[view.id] = view

        for view in self.of(View):
            add(view)
        return list(done.values())

    def kept_panes(self, id: str) -> str:
        """The pane table whose files hold the partials of one: itself, or the one that they are had from."""
        above = self.panes(id).above
        return above.panes if above is not None else id

    def states_of(self, stream_id: str) -> list[Panes | Rows]:
        """The state tables that a run of a stream feeds."""
        states = [each for each in self.objects.values() if isinstance(each, Panes | Rows)]
        return [each for each in states if each.stream == stream_id and getattr(each, "above", None) is None]
