"""The pane tables of SELECTs that aggregate a stream, shared where the keys are the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd

from anabranch.plan.bind import refuse
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import ROW_NUM, Stream, Table
from anabranch.plan.eager_aggregation import Choice
from anabranch.plan.panes import Analyze, PaneBlock, PaneCall
from anabranch.plan.states import WINDOW_COLUMNS, Above, BlockUse, Key, Panes, PartialColumn, Rows, own_signature
from anabranch.plan.strategy import Loads, fits
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.plan.windows import micros_sql
from anabranch.sql.calls import SESSION, clock_calls, volatile_calls
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import Query
from anabranch.sql.text import Span, quote_name


@dataclass(frozen=True)
class PlanningContext:
    """What planning needs from outside: types from Spark's analyser, and the present state of the ledger."""

    analyze: Analyze
    first_run: Callable[[Stream], int]  # the first run a new view can see
    has_files: Callable[[str], bool]
    table_at: Callable[[str], tuple[int, int]]  # the current version of a static table
    new_id: Callable[[str], str]
    loads: Loads  # the load of the last run on a stream or a pane table
    #: The first run and row of a stream that a new view can read, where it does not start at the beginning.
    begins: Callable[[Stream], tuple[int, int] | None] = lambda _: None
    #: Why rows of a stream that a new view needs are gone; None if they are not.
    gone: Callable[[Stream], str | None] = lambda _: None
    settles: bool = False  # whether derived partials become a view's own where it needs that
    own_panes: bool = False  # whether a view gets pane tables of its own
    own: str = ""  # the id of an existing view, which may have pane tables of its own

    def kept_since(self, stream: Stream) -> int:
        """The first run of kept rows of a stream that starts to keep rows: all that can be read again are kept."""
        return 0 if stream.source is not None else self.first_run(stream)


@dataclass(frozen=True)
class FillFrom:
    """How a pane table gets its first partials from another one, where the rows of the past are gone."""

    panes: str
    keys: Mapping[str, str]  # key -> key of that table
    columns: Mapping[str, str]  # partial -> partial of that table


@dataclass(frozen=True)
class Planned:
    """A view, the definitions to add to the catalog with it, and the state to fill from rows of the past."""

    view: View
    objects: tuple[Panes | Rows | Stream | View, ...]  # nodes below come before those above
    fill_columns: Mapping[str, tuple[str, ...]]  # pane table id -> new columns
    fill_rows: tuple[str, ...]  # ids of new rows tables
    reasons: tuple[str, ...]  # why some subqueries are computed over rows
    fill_from: Mapping[str, FillFrom] = field(default_factory=dict)  # pane table id -> the source of its new columns
    gathers: tuple[str, ...] = ()  # the views that are computed when it is read, and why


def _with_quotes(spark_type: str) -> str:
    """The type of a partial with quotes around its plain names.

    >>> _with_quotes("struct<o:struct<k0:int>,v:double>")
    'struct<`o`:struct<`k0`:int>,`v`:double>'
    """
    return re.sub(r"(?<=[<,])(\w+):", r"`\1`:", spark_type)


def refuse_volatile(text: str, query: Query, *, kept: bool = False) -> None:
    """Refuse functions without a lasting answer: of chance, of the session, of the clock where changes are kept."""
    for token in volatile_calls(query.tokens):
        what = "names the current user" if token.text.lower() in SESSION else "gives another value each time"
        raise refuse(
            text,
            Span(token.start, token.end),
            f"{token.text} {what}, so a view of it has no stable answer",
            "compute it where the rows are produced, or use it in the query that reads the view",
        )
    for sample in (each.sample for each in query.relations()):
        if sample is not None:
            raise refuse(
                text,
                sample.span,
                "TABLESAMPLE picks other rows each time, so a view of it has no stable answer",
                "WHERE pmod(hash(id), 100) < 10 picks the same rows each time; or sample the rows of the view",
            )
    if not kept and not query.emits:
        return
    for name, span in clock_calls(query.tokens):
        raise refuse(
            text,
            span,
            f"{name} changes the answer without new rows, and views only emit changes caused by rows",
            "remove the emission clause, so that it is computed when read; or use the clock when reading it",
        )


@dataclass(frozen=True)
class Placed:
    """A block on its pane table: the text of each call's value, and the column of each of its partials."""

    use: BlockUse
    finals: dict[str, str]
    columns: dict[str, dict[str, str]]


class Placer:
    """Assigns blocks to existing or new pane tables. With `settles`, a pane table with derived partials gets files of
    its own where it needs them."""

    def __init__(self, catalog: Catalog, planning: PlanningContext, settles: bool = True) -> None:
        self.catalog = catalog
        self.planning = planning
        self.settles = settles
        self.panes: dict[str, Panes] = {}
        self._new_columns: dict[str, list[str]] = {}

    def filled(self) -> dict[str, tuple[str, ...]]:
        own = {id: names for id, names in self._new_columns.items() if self.panes[id].above is None}
        return {id: tuple(names) for id, names in own.items() if names}

    def filled_from(self) -> dict[str, FillFrom]:
        """The sources of new columns that derive from other partials, where the rows are gone. Marks these tables."""
        found: dict[str, FillFrom] = {}
        for id, names in self.filled().items():
            panes = self.panes[id]
            if self.planning.gone(self.catalog.stream(panes.stream)) is None:
                continue
            ways = (self._derivation(base, panes, names) for base in self.catalog.of(Panes) if base.id != id)
            way = next((each for each in ways if each is not None), None)
            if way is not None:
                found[id] = way
                self.panes[id] = replace(panes, filled_from=way.panes)
        return found

    def _derivation(self, base: Panes, panes: Panes, names: Sequence[str]) -> FillFrom | None:
        """How columns of a pane table derive from another one: it has the same partials of the same rows, by the same
        keys or more, and its panes divide those of the table."""
        if base.stream != panes.stream or base.from_text != panes.from_text or base.statics or base.above is not None:
            return None
        if any(each.spanned or each.by_value or each.numbered for each in (base, panes)):
            return None
        time = self.catalog.stream(panes.stream).time
        on_event_time = time is not None and base.time == micros_sql(quote_name(time))
        if panes.time is None and base.time is not None and not on_event_time:  # it lacks rows without a time
            return None
        if panes.time is not None:
            apart = panes.grain % base.grain or (panes.origin - base.origin) % base.grain if base.grain else 1
            if base.time != panes.time or apart:
                return None
        known = {normal_form(key.expression): key.name for key in base.keys}
        keys = {key.name: known.get(normal_form(key.expression), "") for key in panes.keys}
        columns = {name: _same_column(base, panes.column(name)) for name in names}
        if not all(keys.values()) or not all(columns.values()):
            return None
        return FillFrom(base.id, keys, columns)

    def place(self, block: PaneBlock, placeholder: str, choice: Choice | None = None) -> Placed:
        """Assign a block; `choice` says whether a join with static tables may go above partials of its stream."""
        choice = choice or Choice()
        table_versions = {id: self.planning.table_at(id) for id in block.statics.values()}
        there = self._shared(block, table_versions, forced=choice.forced)
        base, words = self._base(choice) if there is None else (None, "")
        above = None
        if base is not None and choice.above is not None:
            above = replace(choice.above, panes=base.use.panes)
        if there is None:
            there = self._without_runs(block, table_versions, above) or self._new(block, table_versions, above)
        placed = self._placed(block, placeholder, there)
        if not block.statics:
            return placed
        panes = self.panes[placed.use.panes]
        if base is not None and choice.block is not None and panes.above is not None:
            columns = {placed.use.presence: base.use.presence}
            owns: Sequence[PaneCall] = block.calls
            for own, other in zip(owns, choice.block.calls, strict=True):
                theirs = base.columns[other.key]
                columns |= {name: theirs[suffix] for suffix, name in placed.columns[own.key].items()}
            above = replace(panes.above, columns={**panes.above.columns, **columns})
            self.panes[panes.id] = replace(panes, above=above)
        elif not words and choice.block is not None:
            words = "partials of the join are there already"
        return replace(placed, use=replace(placed.use, joined=words))

    def _base(self, choice: Choice) -> tuple[Placed | None, str]:
        """The partials of the stream alone, if a join goes above them; and why it does or does not."""
        if choice.block is None:
            return None, choice.costs
        there = self._shared(choice.block, {})
        known = self.catalog.objects.get(there.id) if there is not None else None
        kept = isinstance(known, Panes) and bool({None, choice.block.condition} & set(known.conditions))
        if choice.costs and not (kept and choice.safe):
            return None, choice.costs
        words = "the query says JOIN_ABOVE" if choice.forced else choice.reason
        if choice.costs:
            words = "partials of the stream alone are there already, so that a run need not read the table"
        return self._placed(choice.block, "", there or self._new(choice.block, {}, None)), words

    def _placed(self, block: PaneBlock, placeholder: str, panes: Panes) -> Placed:
        """A block on a pane table, with the columns that it needs added."""
        since = self.planning.first_run(block.stream)
        # All rows determine where windows end, those that the condition drops too.
        wanted = block.condition if block.bins is None else None
        conditions = tuple(dict.fromkeys((*panes.conditions, wanted)))
        panes = replace(panes, conditions=conditions)
        presence, panes = self._column(
            panes,
            "rows",
            _filtered("count(*)", block.condition),
            "CAST(sum({c}) AS BIGINT)",
            True,
            None,
            since,
            block,
        )
        used = [presence]
        finals: dict[str, str] = {}
        columns: dict[str, dict[str, str]] = {}
        for each in block.calls:
            reduced: dict[str, str] = {}
            parts = columns.setdefault(each.key, {})
            condition = _both(block.condition, each.condition)
            for part in each.aggregate.parts:
                partial = part.partial_sql(each.arguments, condition)
                wanted = _slug(f"{each.aggregate.name} {' '.join(each.arguments)} {part.suffix}")
                name, panes = self._column(
                    panes, wanted, partial, part.reduce, each.aggregate.duckdb, part.duckdb_reduce, since, block
                )
                used.append(name)
                parts[part.suffix] = name
                reduced[part.suffix] = part.reduce_sql(quote_name(name))
            finals[each.key] = f"CAST({each.aggregate.final_sql(reduced)} AS {each.type})"
        bins = block.bins
        if bins is not None:
            number = f"count_if(({ROW_NUM} + 1) % {bins.every} = 0)"
            text = number if bins.order == "number" and bins.every > 1 else "count(*)"
            reduce = "CAST(sum({c}) AS BIGINT)"
            ends, panes = self._column(panes, "ends", text, reduce, True, None, since, block)
            used.append(ends)
        self.panes[panes.id] = panes
        windows = block.windows
        columns_used = tuple(dict.fromkeys(used))
        chosen = block.strategy
        strategy = (chosen.name, chosen.costs) if chosen is not None else ("panes", {})
        numbers = block.spec is not None and block.spec.rows
        if bins is not None:
            ending = (bins.size, bins.every, bins.order, ends)
            use = BlockUse(placeholder, panes.id, None, presence, columns_used, None, numbers, *strategy, ending)
        elif windows is None:
            use = BlockUse(placeholder, panes.id, None, presence, columns_used, None, False, *strategy)
        else:
            # After the start of window 0 both alignments are the same.
            first = windows.first_start
            sizes = (windows.size, windows.slide, first % windows.slide)
            use = BlockUse(placeholder, panes.id, sizes, presence, columns_used, first, numbers, *strategy)
        return Placed(use, finals, columns)

    def _candidates(self) -> list[Panes]:
        known = {} if self.planning.own_panes else {panes.id: panes for panes in self.catalog.of(Panes)}
        found = list({**known, **self.panes}.values())
        if self.planning.own:  # before tables with rows that the view lacks
            found.sort(key=lambda panes: panes.signature != own_signature(panes.signature, self.planning.own))
        return found

    def _shared(
        self, block: PaneBlock, table_versions: Mapping[str, tuple[int, int]], *, forced: bool = False
    ) -> Panes | None:
        """A pane table with files that a block can live on; `forced`: only one whose partials were once derived."""
        for panes in self._candidates():
            if panes.above is None and (panes.settled or not forced):
                found = self._fitting(panes, block, table_versions)
                if found is not None and (not found.refreshed or self._has_all(found, block)):
                    return found
        return None

    def _has_all(self, panes: Panes, block: PaneBlock) -> bool:
        """Whether a pane table has all columns that a block of an existing view needs. Filling a new column would join
        past rows with other versions of the static tables. A new view starts with the present versions."""
        if not self.settles:
            return False
        trial = Placer(self.catalog, self.planning)
        trial._placed(block, "", panes)
        return not trial.filled()

    def _without_runs(
        self, block: PaneBlock, table_versions: Mapping[str, tuple[int, int]], above: Above | None
    ) -> Panes | None:
        """A pane table with partials derived as `above` says; settled where the block needs files."""
        for panes in self._candidates():
            found = self._fitting(panes, block, table_versions) if panes.above is not None else None
            if found is None or found.above is None:
                continue
            if above is not None and found.above.alike(above):
                return found
            if above is None and self.settles:
                return replace(found, above=None, settled=True)
        return None

    def _fitting(self, panes: Panes, block: PaneBlock, table_versions: Mapping[str, tuple[int, int]]) -> Panes | None:
        """A pane table adapted to a block, if the block can live on it."""
        own = own_signature(block.signature, self.planning.own) if self.planning.own else block.signature
        same = panes.signature in (block.signature, own) and (panes.time is None) == (block.time is None)
        # An unchanged table is the same in any version of the ledger.
        contents = {id: own for id, (_, own) in panes.table_versions.items()}
        if not same or contents != {id: own for id, (_, own) in table_versions.items()}:
            return None
        if block.windows is None or block.spans or fits(block.windows, panes.grain, panes.origin):
            return panes
        files = panes.above.panes if panes.above is not None else panes.id
        if panes.id not in self.panes and self.planning.has_files(files):
            return None
        grain = gcd(panes.grain, block.windows.grain, block.windows.origin - panes.origin)
        return replace(panes, grain=grain, origin=panes.origin % grain)

    def _new(self, block: PaneBlock, table_versions: Mapping[str, tuple[int, int]], above: Above | None) -> Panes:
        by = "_".join(_slug(key.name) for key in block.row_keys) or "all"
        windows = block.windows
        grain, origin = (windows.grain, windows.origin % windows.grain) if windows is not None else (0, 0)
        spans = block.spans
        if spans is not None:
            grain, origin = spans.slide, spans.origin
        if block.bins is not None:
            grain = 1
        return Panes(
            self.planning.new_id(f"{block.stream.name}_by_{by}"),
            block.stream.id,
            block.signature,
            block.from_text,
            block.statics,
            tuple(Key(key.name, key.expression, key.type) for key in block.row_keys),
            block.time,
            grain,
            origin,
            (),
            (),
            0,
            table_versions,
            spans.size if spans is not None else 0,
            block.bins is not None,
            above,
        )

    def _column(
        self,
        panes: Panes,
        wanted: str,
        partial: str,
        reduce: str,
        duckdb: bool,
        duckdb_reduce: str | None,
        since: int,
        block: PaneBlock,
    ) -> tuple[str, Panes]:
        """The column of a partial: an existing one with the same meaning and first run, or a new one."""
        meaning = normal_form(partial)
        for column in panes.columns:
            if normal_form(column.partial) == meaning and column.since == since:
                return column.name, panes
        taken = {column.name for column in panes.columns} | {key.name.lower() for key in panes.keys}
        name = wanted
        # Files still hold the values of dropped columns: their names are not reused.
        gone = panes.made > len(panes.columns)
        while name in taken or name in WINDOW_COLUMNS or (gone and name == wanted):
            name = f"{wanted}_{panes.made}"
            panes = replace(panes, made=panes.made + 1)
        schemas = {"@stream": block.rows}
        for placeholder, id in block.statics.items():
            table = self.catalog[id]
            assert isinstance(table, Table)
            schemas[placeholder] = table.fields
        type = self.planning.analyze(f"SELECT {partial} AS `x` FROM {panes.from_text}", schemas)[0].type
        type = _with_quotes(type) if duckdb else type
        duckdb = duckdb and duckdb_type(type) is not None
        column = PartialColumn(name, partial, reduce, duckdb, duckdb_reduce, type, since)
        self._new_columns.setdefault(panes.id, []).append(name)
        return name, replace(panes, columns=(*panes.columns, column), made=panes.made + 1)


def _same_column(base: Panes, column: PartialColumn) -> str:
    """The equal partial of another table; empty if it has none."""
    meaning = normal_form(column.partial)
    same = (each.name for each in base.columns if normal_form(each.partial) == meaning)
    return next((name for name in same if replace(base.column(name), name=column.name) == column), "")


def _filtered(aggregate: str, condition: str | None) -> str:
    return aggregate if condition is None else f"{aggregate} FILTER (WHERE {condition})"


def _both(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return one if other is None else other
    return f"({one}) AND ({other})"


def _slug(text: str) -> str:
    return re.sub(r"\W+", "_", text.lower()).strip("_")[:40].strip("_") or "x"
