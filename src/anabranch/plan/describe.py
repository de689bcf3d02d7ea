"""A description of each node of a plan: how it is kept up to date, its keys, the state that it needs and why.

Plain values from definitions: starts nothing, opens nothing, renders nothing. The nodes come in topological order:
streams and tables first, then their readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.algebra.progress import FOREVER, Delay, Lagging, Percentile, Punctuation, Rule
from anabranch.algebra.triggers import Triggers
from anabranch.algebra.windows import SlidingWindows
from anabranch.algebra.windows.costs import Thresholds
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import ROW_NUM, Stream, Table
from anabranch.plan.join_state import in_memory, unbounded, words
from anabranch.plan.plane import key_of_progress
from anabranch.plan.states import BlockUse, Panes, Rows
from anabranch.plan.strategy import BY_DIFFERENCE, PANES, by_difference, cost_words
from anabranch.plan.view import TableLookup, View
from anabranch.sources.lookup import Asking
from anabranch.sql.durations import duration_text
from anabranch.sql.syntax import Query, WindowSpec

#: Policies under which late rows do not change what was shown.
LEFT_ALONE = ("drop", "archive", "fail")
UNTIL_THE_END = (
    "emits at the end of its streams: its window functions look at rows that may still come; a frame by event time that"
    " ends in ROWS ... n FOLLOWING or RANGE ... INTERVAL ... FOLLOWING, or PARTITION BY window_start, window_end,"
    " bounds what they see"
)
WHEN_READ = "computed when read"
SETTLED = "it stood above them until they were settled"


@dataclass(frozen=True)
class State:
    """State of a node: what it holds, its table in the ledger, and its bound."""

    table: str
    what: str
    bounded: bool


@dataclass(frozen=True)
class PlanNode:
    """One node. `kind`: stream, table, stateless, lookup, keyed, partial (kept as partials) or recomputed (and why)."""

    id: str
    name: str
    kind: str
    inputs: tuple[str, ...]
    append_only: bool
    keys: tuple[str, ...] = ()
    event_time: tuple[str, ...] = ()
    progress: str = ""
    emits: str = ""
    reason: str = ""
    state: tuple[State, ...] = ()
    how: tuple[str, ...] = ()  # how it is computed, in sentences
    sql: str = ""  # of a nested query: its text, on one line

    @property
    def bounded(self) -> bool:
        return all(each.bounded for each in self.state)


@dataclass(frozen=True)
class Groups:
    """How many groups with open windows are large, how many are small, and the thresholds between them."""

    large: int
    small: int
    thresholds: Thresholds


@dataclass(frozen=True)
class NodeStatistics:
    """What a node did in the last commit that changed it, and its present state."""

    version: int | None = None
    rows: int = 0
    milliseconds: float | None = None
    state_rows: int = 0
    state_bytes: int = 0
    bound: int | None = None  # its progress; None: unknown, or at its end
    bounds: Mapping[str, int] = field(default_factory=dict)  # by column: no later row has less
    groups: Groups | None = None  # where groups are kept by their size
    where: str = ""  # where the rows of a run were computed, in words


def describe(
    catalog: Catalog,
    roots: Iterable[View],
    reasons: Mapping[str, str] | None = None,
    gathers: Mapping[str, Sequence[str]] | None = None,
) -> list[PlanNode]:
    """The nodes of views and all that they read, each after its inputs.

    Of views that are computed when read, `reasons` has why they do not live on partials, and `gathers` the views whose
    partials they do not read, and why.
    """
    describer = _Describer(catalog, reasons or {}, gathers or {})
    for view in roots:
        describer.add(view)
    return list(describer.done.values())


def kind_of(view: View) -> str:
    """How the answer of a view is kept up to date."""
    if view.operator == "stateless" or view.query.rows is not None:
        return "stateless"
    if view.operator == "lookup":
        return "lookup"
    if view.query.blocks and not view.query.streams:
        return "partial"
    if by_session(view):
        return "keyed"
    return view.operator if view.operator in ("keyed", "join") else "recomputed"


def by_session(view: View) -> bool:
    """Whether a run recomputes only the sessions that new rows touch."""
    return (
        view.progress.ends is not None
        and view.progress.ends.shows_session
        and bool(view.query.streams)
        and view.emission.mode != "triggers"
    )


def pushed_down(view: View) -> bool:
    """Whether it reads the partials of the views whose queries were merged into its own."""
    return bool(view.query.included) and view.emission.mode == "read"


def reason_of(view: View) -> str:
    """Why a view is recomputed as a whole, if it is."""
    return "" if by_session(view) else view.keying.reason


def keys_of(view: View, catalog: Catalog) -> tuple[str, ...]:
    """The columns by which new rows touch its answers; none for a session."""
    if view.operator:
        columns = tuple(_shown_key(view, index) for index in range(len(view.keying.columns)))
        return (*columns, "session") if by_session(view) else columns
    found: dict[str, None] = {}
    for use in view.query.blocks if not view.query.streams else ():
        if use.windowed:
            found.update(dict.fromkeys(("window_start", "window_end")))
        found.update({key.name: None for key in catalog.panes(use.panes).keys})
    return tuple(found)


def append_only(view: View, catalog: Catalog) -> bool:
    """Whether a view never retracts a row, and did not when its query was changed."""
    if view.state.corrected:
        return False
    if kind_of(view) in ("stateless", "join"):
        below = [catalog.view(id) for id in view.query.views.values()]
        # Rows of a stream are joined with a static table once; those of a view again when it is refreshed.
        again = (below or view.operator == "join") and not view.state.enriched
        if again and (view.query.tables or any(each.query.tables and not each.kept for each in below)):
            return False
        return all(append_only(each, catalog) for each in below)
    if view.operator == "lookup":
        return all(append_only(catalog.view(id), catalog) for id in view.query.views.values())
    # Windows that depend on other rows are recomputed, and a sum of doubles may differ in its last digits.
    return waits_for_windows(view) and view.emission.late in LEFT_ALONE and not view.emission.closing


def tables_of(view: View, catalog: Catalog) -> tuple[str, ...]:
    """The ledger tables that a view owns or shares with other views, without the rows of streams."""
    found = [catalog.kept_panes(use.panes) for use in view.query.blocks]
    if view.query.rows is not None:
        found.append(view.query.rows)
    if view.kept:
        found.append(view.changes_table)
    if view.emission.mode == "triggers":
        found.append(view.pending_table)
    found += [view.dropped_table(input) for input in view.drops_late_of]
    return tuple(dict.fromkeys(found))


def progress_rule(stream: Stream) -> str:
    """How the progress of a stream follows from its rows."""
    if stream.time is None:
        return "none: the stream has no event time"
    if stream.rule is None:
        return "moves only by ADVANCE: the stream has no WATERMARK"
    rule = _rule_words(stream.rule, stream.time)
    if stream.key is not None:
        rule += f"; for each {stream.key} on its own, the least of them for the stream"
    if stream.idle is not None and (stream.live or stream.key is not None):
        part = "partition" if stream.key is None else stream.key
        part += ", or the stream beside others," if stream.live else ""
        rule += f"; a {part} that is silent for {duration_text(stream.idle)} is not waited for"
        if stream.lull:
            rule += ", and if all is silent the clock moves it, as far behind as that"
    if stream.live and stream.ahead is not None:
        rule += f"; a row more than {duration_text(stream.ahead)} ahead of the clock does not move it"
    return rule


def _rule_words(rule: Rule, time: str) -> str:
    if isinstance(rule, Delay):
        return f"{duration_text(rule.micros)} behind the highest {time}" if rule.micros else f"the highest {time}"
    if isinstance(rule, Percentile):
        every = rule.frequency
        again = "with each row" if every == 1 else f"every {every} rows"
        return f"{rule.percentile:g} percent of the last {rule.events} rows lie above it, taken anew {again}"
    if isinstance(rule, Lagging):
        return f"the highest {time} of all rows but the last {rule.rows}"
    if isinstance(rule, Punctuation):
        return f"the highest {time} of the rows where {rule.predicate}, which are no data"
    return f"the highest {rule.expression}"


def waits_for_windows(view: View) -> bool:
    """Whether a key is shown when its window closes, and again only for late rows."""
    if view.emission.mode == "close":
        return True
    triggers = view.emission.triggers
    if view.emission.mode != "triggers" or triggers is None:
        return False
    return triggers.watermark and triggers.counting is None and triggers.delay is None


def _until_the_end(view: View) -> bool:
    """Whether only the end of its streams closes the windows that it waits for."""
    names = [view.emission.closing] if view.emission.closing else [key.name for key in view.keying.columns]
    return waits_for_windows(view) and any(view.progress.times.get(name, 0) >= FOREVER for name in names)


def _shown_key(view: View, index: int) -> str:
    """The name of a key column; a hidden one has the name that its input gives it."""
    key = view.keying.columns[index]
    if key not in view.hidden:
        return key.name
    return next((each.columns[index] or key.name for each in view.keying.narrows if each.columns[index]), key.name)


def waiting(view: View, catalog: Catalog) -> list[str]:
    """A warning for a view whose windows no row will ever close."""
    if _until_the_end(view):
        return [f"{view.name} {UNTIL_THE_END}"]
    if not waits_for_windows(view) or view.progress.clock != "event":
        return []
    ids = dict.fromkeys([*(catalog.panes(use.panes).stream for use in view.query.blocks), *view.query.streams.values()])
    return [
        f"stream {stream.name} has no WATERMARK: windows of {view.name} close at its end, or by ADVANCE STREAM"
        f" {stream.name}"
        for stream in map(catalog.stream, ids)
        if stream.rule is None
    ]


def _comparison(column: str, sign: str, expression: str) -> str:
    return f"{expression} LIKE {column}" if sign == "LIKED BY" else f"{column} {sign} {expression}"


class _Describer:
    def __init__(self, catalog: Catalog, reasons: Mapping[str, str], gathers: Mapping[str, Sequence[str]]) -> None:
        self.catalog = catalog
        self.reasons = reasons
        self.gathers = gathers
        self.done: dict[str, PlanNode] = {}

    # ---- what a node reads

    def add(self, view: View) -> None:
        if view.id in self.done:
            return
        inputs: list[str] = []
        for use in view.query.blocks:
            panes = self.catalog.panes(use.panes)
            inputs += [self._stream(panes.stream), *map(self._table, panes.statics.values())]
        if view.query.rows is not None:
            rows = self._rows(view)
            inputs += [self._stream(rows.stream), *map(self._table, rows.statics.values())]
        inputs += [self._stream(id) for id in view.query.streams.values()]
        inputs += [self._table(id, hinted=bool(view.query.asks)) for id in view.query.tables.values()]
        for id in view.query.views.values():
            self.add(self.catalog.view(id))
            inputs.append(id)
        self.done[view.id] = self._node(view, tuple(dict.fromkeys(inputs)))

    def _rows(self, view: View) -> Rows:
        rows = self.catalog[view.query.rows or ""]
        assert isinstance(rows, Rows)
        return rows

    def _stream(self, id: str) -> str:
        stream = self.catalog.stream(id)
        state: tuple[State, ...] = ()
        if stream.kept_since is not None:
            since = f" since run {stream.kept_since}" if stream.kept_since else ""
            state = (State(stream.rows_table, f"the rows of stream {stream.name}{since}, UNBOUNDED", False),)
        time = (stream.time,) if stream.time is not None else ()
        source = f"rows come from {stream.source}" if stream.source is not None else "rows come by INSERT and COPY"
        self.done[id] = PlanNode(
            id, stream.name, "stream", (), True, event_time=time, progress=progress_rule(stream), state=state,
            how=(source,),
        )  # fmt: skip
        return id

    def _table(self, id: str, *, hinted: bool = False) -> str:
        table = self.catalog[id]
        assert isinstance(table, Table)
        how = ("static: read when the view is made, and again on REFRESH",)
        state: tuple[State, ...] = (State(id, "its rows; they change by statements alone", True),)
        if table.asked:
            how, state = (f"lives in {table.source}(...) and is looked up by key, because {because(table.asked)}",), ()
        elif hinted:
            how = (f"lives in {table.source}(...) and is looked up by key (hint), though it was loaded as well",)
        self.done[id] = PlanNode(id, table.name, "table", (), True, state=state, how=how)
        return id

    # ---- a description of it

    def _node(self, view: View, inputs: tuple[str, ...]) -> PlanNode:
        return PlanNode(
            view.id,
            view.name,
            kind_of(view),
            inputs,
            append_only(view, self.catalog),
            keys_of(view, self.catalog),
            tuple(view.progress.times),
            self._progress(inputs) + (", up to the last window shown" if view.emission.budget is not None else ""),
            _emits(view, self.catalog),
            reason_of(view) or self.reasons.get(view.id, ""),
            tuple(self._state(view)),
            tuple(self._how(view)),
            " ".join(view.sql.split()) if view.owner is not None else "",
        )

    def _progress(self, inputs: tuple[str, ...]) -> str:
        names = [self.done[id].name for id in inputs if self._progresses(id)]
        if len(names) == 1:
            return f"that of {names[0]}"
        return f"the least of {words(names)}" if names else ""

    def _progresses(self, id: str) -> bool:
        found = self.catalog[id]
        return isinstance(found, Stream) or (isinstance(found, View) and bool(self.catalog.sources_of(found)))

    def _how(self, view: View) -> list[str]:
        lines = _context_lines(view) if view.owner is None else []
        for id, (run, _) in view.beginning.rows.items():
            lines.append(f"starts with run {run} of stream {self.catalog.stream(id).name}: rows before it do not count")
        for use in view.query.blocks:
            lines += self._panes_lines(view, use, self.catalog.panes(use.panes))
        if view.follows_from_shown:
            lines.append("continues from what it shows: the rows of the past are not read again")
        kind = kind_of(view)
        read = self._read_names(view)
        if kind == "stateless":
            lines.append(f"each row of {words(read)} is filtered and projected on its own")
            lines += (
                ["keeps its rows as they were joined with static tables: REFRESH changes none of them"]
                if view.state.enriched
                else []
            )
        elif kind == "lookup":
            lines.append(f"each row of {words(read)} is looked up once, and kept with its matches")
            lines += [self._lookup_line(lookup) for lookup in view.query.asks]
        elif not view.operator:
            if view.emission.mode == "close":
                how = "on the driver, beside the files of the ledger" if view.query.direct else "by Spark"
                lines.append(f"changes computed {how}")
            for id in view.query.views.values():
                lines.append(f"over view {self.catalog.view(id).name}: computed when read, from its state")
        elif view.operator == "join":
            lines.append(f"each new row of {words(read)} is joined with the stored rows of the others: each pair once")
            if view.join.aggregated:
                lines.append("what the new pairs of a run add up to is kept, and added up for what reads it")
        elif view.operator == "keyed" or by_session(view):
            where = "in memory, on the driver" if view.query.direct and view.emission.mode == "feed" else "by Spark"
            within_band = ", from the rows near them in time" if view.join.steps else ""
            within_band = ", from the rows of the sessions they are in" if by_session(view) else within_band
            touched = (
                "have late rows or windows that close"
                if view.emission.closing and view.progress.ends
                else "its rows touch"
            )
            touched = "have windows that close" if view.emission.closing and view.drops_late_of else touched
            lines.append(f"after a run, the keys that {touched} are computed anew{within_band}, {where}")
        elif view.join.steps:
            lines.append("after a run, the rows near its own in time are joined anew, with it and without it")
        else:
            when = "when it fires, and only then" if view.emission.mode == "triggers" else "after a run that touches it"
            when = when if self._progresses(view.id) else "after a REFRESH TABLE that touches it"
            lines.append(f"{when}, its whole answer is computed anew and compared with the last")
        lines += [f"gather {each}" for each in self.gathers.get(view.id, ())]
        for id in view.query.included:
            included = self.catalog.view(id)
            if pushed_down(view):
                lines.append(f"pushed down to the partials of {included.name}")
            else:
                lines.append(f"view {included.name} is part of it: the rows of its stream are counted one by one")
        lines += self._static_lines(view)
        lines += [*in_memory(view, self.catalog), *unbounded(view)]
        by_key = key_of_progress(self.catalog, view) if waits_for_windows(view) else None
        if by_key is not None:
            lines.append(f"windows of a {by_key[0].key} close by its own progress")
        return lines

    def _lookup_line(self, lookup: TableLookup) -> str:
        table = self.catalog[lookup.table]
        assert isinstance(table, Table)
        by = ", ".join(lookup.by)
        if lookup.signs:
            by = " and ".join(map(_comparison, lookup.by, lookup.signs, lookup.expressions))
        return f"lookup {table.name} by ({by}), {Asking.of(table.options).words()}"

    def _static_lines(self, view: View) -> list[str]:
        """Static tables that are joined whenever the state is read, and not once with each row."""
        if not view.query.tables or view.query.asks or (view.operator == "stateless" and view.query.streams):
            return []
        if not self._progresses(view.id):
            return []
        below = [self.catalog.view(id) for id in view.query.views.values()]
        if view.query.streams:
            over = f"the kept rows of {words([self.catalog.stream(id).name for id in view.query.streams.values()])}"
        elif below:
            what = "partials" if all(kind_of(each) == "partial" for each in below) else "rows"
            over = f"the {what} of {words([each.name for each in below])}"
        else:
            over = "its partials"
        tables = dict.fromkeys(getattr(self.catalog[id], "name", id) for id in view.query.tables.values())
        which = f"static table{'' if len(tables) == 1 else 's'} {words(list(tables))}"
        return [f"{which} joined above {over}, so that REFRESH reaches old rows"]

    def _read_names(self, view: View) -> list[str]:
        found = [self._rows(view).stream] if view.query.rows is not None else list(view.query.streams.values())
        names = [self.catalog.stream(id).name for id in found]
        return names + [self.catalog.view(id).name for id in view.query.views.values()]

    def _panes_lines(self, view: View, use: BlockUse, panes: Panes) -> list[str]:
        stream = self.catalog.stream(panes.stream)
        kept = self.catalog.panes(self.catalog.kept_panes(panes.id))
        keys = ", ".join(key.name for key in kept.keys) or "none"
        lines = [f"partial aggregate of stream {stream.name} in pane table {kept.id}: keys {keys}"]
        windows = use.sliding
        if windows is not None:
            kind = "TUMBLE" if windows.tumbling else "HOP"
            slide = "" if windows.tumbling else f" every {_length(windows.slide, use, panes)}"
            count = windows.size // kept.grain
            how = f"pane {_length(kept.grain, use, panes)}, {count} pane{'' if count == 1 else 's'} a window"
            if panes.spanned:
                how = _by_size(windows)
            lines.append(f"{kind} {_length(windows.size, use, panes)}{slide}; {how}")
        if use.bins is not None:
            size = f"{use.bins[0]:,}" if use.numbers else duration_text(use.bins[0])
            lines.append(f"a row comes in with the windows that end at it or behind it, and goes out {size} later")
        if windows is not None or use.strategy != PANES:
            name = BY_DIFFERENCE if use.strategy == PANES and by_difference(panes, use) else use.strategy
            lines.append(f"strategy {name}; {cost_words(name, use.costs)}")
        own = use.columns if panes.above is None else [panes.above.columns[name] for name in use.columns]
        lines += [f"{name} = {kept.column(name).partial}" for name in dict.fromkeys(own)]
        family = view.owner or view.id
        users = [view for view in self.catalog.of(View) for use in view.query.blocks if self._is_kept_in(use, kept)]
        shared = sorted(self.catalog.view(id).name for id in {each.owner or each.id for each in users} - {family})
        if kept.filled_from:
            lines.append(f"rows of the past were gone: filled from the partials of pane table {kept.filled_from}")
        if shared:
            lines.append(f"shared with {', '.join(shared)}")
        return [*lines, *self._join_lines(use, panes)]

    def _is_kept_in(self, use: BlockUse, panes: Panes) -> bool:
        return self.catalog.kept_panes(use.panes) == panes.id

    def _join_lines(self, use: BlockUse, panes: Panes) -> list[str]:
        """Where the static tables of a pane table are joined, and why."""
        tables = dict.fromkeys(getattr(self.catalog[id], "name", id) for id in panes.statics.values())
        if not tables:
            return []
        which = f"static table{'' if len(tables) == 1 else 's'} {words(list(tables))}"
        if panes.above is not None:
            return [
                f"{which} joined above the partials: {use.joined}",
                "a REFRESH settles them: what is there is joined with the table as it was, and runs join from there on",
            ]
        why = SETTLED if panes.settled else use.joined
        return [f"{which} joined below the partials, read once{f': {why}' if why else ''}"]

    # ---- state

    def _state(self, view: View) -> Iterable[State]:
        for use in view.query.blocks:
            if use.windowed:
                place = "window or span" if self.catalog.panes(use.panes).spanned else "pane"
                place = place if use.bins is None else "value"
                what = f"one row a run, {place} and key, reduced to one a {place} and key; grows with time"
            else:
                what = "one row a run and key, reduced to one a key; bounded by the number of keys"
            yield State(self.catalog.kept_panes(use.panes), what, not use.windowed)
        for id in dict.fromkeys(view.query.streams.values()):
            stream = self.catalog.stream(id)
            yield State(stream.rows_table, f"the rows of stream {stream.name}, UNBOUNDED", False)
        if view.query.rows is not None:
            yield State(view.query.rows, "the rows of the view itself, UNBOUNDED", False)
        if view.kept:
            yield self._shown(view)
        if view.emission.mode == "triggers":
            bound = "grows with time" if view.progress.times else "bounded by the number of keys"
            yield State(view.pending_table, f"what waits to fire: one row a key; {bound}", not view.progress.times)
        for input in view.drops_late_of:
            yield State(view.dropped_table(input), "the late rows that were left out; grows with them", False)

    def _shown(self, view: View) -> State:
        """The state of what a view shows: its changes, which are compacted where nothing reads them one by one."""
        what, bounded = self._shown_rows(view)
        if not append_only(view, self.catalog) and (view.emission.as_changes or not view.operator):
            what, bounded = f"{what}, and every change of them", False
        return State(view.changes_table, f"what is shown: {what}", bounded)

    def _shown_rows(self, view: View) -> tuple[str, bool]:
        if kind_of(view) == "stateless":
            return "every row, UNBOUNDED", False
        if kind_of(view) == "lookup":
            return "every row with its matches, UNBOUNDED", False
        if view.join.aggregated:
            return "one row a run and key; grows with time", False
        if view.progress.times:
            return "the rows of each window; grows with time", False
        if kind_of(view) == "partial":
            return "one row a key; bounded by the number of keys", True
        return "its rows; as many as its answer has", False


_CONTEXTS = {
    "CF": "by the row alone",
    "FCF": "by the row and those before it",
    "FCA": "by the rows around it, those still to come among them",
}


def _context_lines(view: View) -> list[str]:
    """What determines the windows of a row, for each kind of windows in a view's query."""
    from anabranch.sql.parser import parse  # here, since the parser imports plans

    query = next((getattr(each, "query", None) for each in parse(view.sql)), None)
    selects = [select for select, _ in query.selects()] if isinstance(query, Query) else []
    windows = [each.window for select in selects for each in select.relations]
    windows += [each.window.spec for each in selects if each.window is not None]
    found = [each for each in windows if each is not None]
    return list(dict.fromkeys(f"{_name(each)}: windows told {_CONTEXTS[each.type.context]}" for each in found))


def _name(window: WindowSpec) -> str:
    """The SQL function of a kind of windows."""
    if window.own is not None:
        return str(window.own.function)
    rows = " of each key's rows" if window.counts_by_key else ""
    return f"{window.kind.upper()}{rows}"


def _by_size(windows: SlidingWindows) -> str:
    """The sentence on groups that are kept by their size."""
    limits = Thresholds.of(windows)
    return (
        f"a group with more than {limits.up:g} rows in open windows by window, until it has fewer than"
        f" {limits.down:g}; others by span (all windows of a row together)"
    )


def _length(value: int, use: BlockUse, panes: Panes) -> str:
    """A length in words, in the units of the windows: a time, a number of rows, or a plain number."""
    if not use.numbers:
        return duration_text(value)
    if panes.time is not None and ROW_NUM in panes.time:
        return f"{value:,} row{'' if value == 1 else 's'}"
    return f"{value:,}"


def because(reason: str) -> str:
    """Why a table is looked up by key, as the text after "because"."""
    return f"it says {reason}" if reason.startswith("lookup") else reason


# ---- when it emits


def _emits(view: View, catalog: Catalog) -> str:
    if view.emission.mode == "read":
        return WHEN_READ
    if view.emission.mode == "feed":
        return "emits every change; a read shows the state after the last run"
    if _until_the_end(view):
        return UNTIL_THE_END
    if view.emission.closing and view.progress.final:
        past = f"{duration_text(view.progress.ahead)} past it and " if view.progress.ahead else ""
        row = f"the {_ordinal(view.progress.next_rows)}next row of its partition"
        return f"emits a row when progress is {past}past {row}; {_late(view)}"
    if view.emission.mode == "close":
        later = (
            f", {duration_text(view.progress.ahead)} after it: so far its window functions look"
            if view.progress.ahead
            else ""
        )
        return f"{closing_words(view)}{later if view.emission.closing else ''}; {_late(view)}"
    triggers = view.emission.triggers or Triggers()
    fires: list[str] = []
    if triggers.watermark:
        fires.append("when its window closes")
    if triggers.counting is not None:
        count = triggers.counting
        fires.append("with every record" if count == 1 else _counting(view, count, catalog))
    if triggers.delay is not None:
        since = "the first change since it was shown" if triggers.first else "its last change"
        fires.append(f"{duration_text(triggers.delay)} after {since}")
    if triggers.end:
        fires.append("at the end of the stream")
    key = "a key" if view.keying.columns else "the answer"
    if triggers.watermark and len(fires) == 1:
        return f"{closing_words(view)}; {_late(view)}"
    words = f"emits {key} {', '.join(fires[:-1])}{' and ' if len(fires) > 1 else ''}{fires[-1]}" if fires else ""
    return f"{words}; {_late(view)}" if triggers.watermark else words


def _ordinal(number: int) -> str:
    """The ordinal of one of the next rows, with a space after it; empty for the first.

    >>> [_ordinal(number) for number in (1, 2, 13, 21)]
    ['', '2nd ', '13th ', '21st ']
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending} " if number > 1 else ""


def _counting(view: View, count: int, catalog: Catalog) -> str:
    """The sentence on how a trigger counts: record by record, or all changes of a run together, and why."""
    if not view.counts_by_run:
        return f"with every {count} records, one by one{_COMES if view.emission.counted in view.query.views else ''}"
    return f"with every {count} changes, run by run ({_no_order(view, catalog)}; runs of one row count one by one)"


_COMES = ": each comes with the last of its rows"


def _no_order(view: View, catalog: Catalog) -> str:
    """Why the records that a view counts have no order within a run."""
    below = [catalog.view(id) for id in view.query.views.values()]
    waiting = next((each for each in below if each.emission.mode in ("close", "triggers")), None)
    if waiting is not None:
        return f"{waiting.name} shows its answers when they are ready"
    back = next((each for each in below if not append_only(each, catalog)), None)
    return f"{back.name} can take rows back" if back is not None else "its records are not numbered rows of streams"


def closing_words(view: View) -> str:
    """When a view emits that only waits for its windows, and how much at a time."""
    words = "emits when a window closes"
    budget = view.emission.budget
    if budget is None:
        return words
    count, unit = (budget.windows, "window") if budget.windows is not None else (budget.rows, "row")
    words += f", at most {count:,} {unit}{'' if count == 1 else 's'} a run"
    if budget.delay is not None:
        words += f" and within {budget.delay} run{'' if budget.delay == 1 else 's'}"
    return words


_LATE = {
    "correct": "late rows correct it: retract the row shown, insert the new one",
    "drop": "late rows are left out (LATE DROP)",
    "archive": "late rows change what a read shows, and emit nothing (LATE ARCHIVE)",
    "fail": "a late row stops the run (LATE FAIL)",
}


def _late(view: View) -> str:
    return _LATE[view.emission.late]
