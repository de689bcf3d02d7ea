"""SELECTs that can live on partials: they aggregate a stream, alone or joined with static tables.

Such a block runs in two forms. In each run, its FROM, WHERE and keys produce partials (the stream part). A read runs
the same SELECT over the table of partials, with each aggregate call replaced by the final value of its reduced
partials: everything else (HAVING, ORDER BY, expressions over aggregates, the query around it) is still the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from anabranch.algebra import aggregates
from anabranch.algebra.aggregates import Aggregate
from anabranch.algebra.windows import SlideByTuple, SlidingWindows
from anabranch.ir.expr import Call, Column, Expr, Part, SortKey, of_column
from anabranch.ir.logic import conjunction, word
from anabranch.ir.rel import Project, Scan, Source, Windowed
from anabranch.ir.rewrite import Rewrite
from anabranch.ir.select import Derived, FromItem, SelectBlock, ShownItem
from anabranch.ir.text import shown_call
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.picks import meant, sort_keys
from anabranch.plan.strategy import (
    ADAPTIVE,
    BINS,
    BY_DIFFERENCE,
    PANES,
    ROWS,
    WINDOWS,
    Loads,
    Strategy,
    cost_words,
    strategy_of,
    strategy_of_ends,
)
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import Output
from anabranch.plan.windows import ID, sliding, value_sql
from anabranch.render.placeholders import FromText, PlaceholderWriter, window_of
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import WindowSpec
from anabranch.sql.text import quote_name
from anabranch.types import Field

STREAM = "`@stream`"

Analyze = Callable[[str, dict[str, tuple[Field, ...]]], list[Field]]


@dataclass(frozen=True)
class PaneKey:
    """A grouping expression, `name` in the table of partials and `expression` over rows; or a bound of the window."""

    name: str
    expression: str
    window: bool
    expr: Expr
    type: str


@dataclass(frozen=True)
class PaneCall:
    """A call of an aggregate, with the texts of its partials."""

    call: Call
    written: str
    key: str  # equal for calls that mean the same
    arguments: tuple[str, ...]
    condition: str | None
    aggregate: Aggregate
    type: str


@dataclass(frozen=True)
class PaneBlock:
    """A SELECT on partials: what a run computes from its rows."""

    stream: Stream
    from_text: str
    statics: dict[str, str]
    keys: tuple[PaneKey, ...]
    windows: SlidingWindows | None
    spec: WindowSpec | None
    condition: str | None
    calls: tuple[PaneCall, ...]
    strategy: Strategy | None
    exposed: str  # the qualifier of the stream's columns; empty where the stream is alone

    @property
    def bins(self) -> SlideByTuple | None:
        """The windows that end at rows, if partials are bins of them."""
        if self.spec is None or self.strategy is None or self.strategy.name != BINS:
            return None
        found = self.spec.type
        assert isinstance(found, SlideByTuple)
        return found

    @property
    def rows(self) -> tuple[Field, ...]:
        """The columns of the aggregated rows."""
        numbered = self.spec is not None and self.spec.needs_numbers
        return self.stream.row_fields if numbered else self.stream.fields

    @property
    def row_keys(self) -> tuple[PaneKey, ...]:
        return tuple(key for key in self.keys if not key.window)

    @cached_property
    def signature(self) -> str:
        """Blocks with equal signatures can share a table of partials."""
        keys = sorted(f"{key.name}={normal_form(key.expression)}" for key in self.row_keys)
        time = (self.time or "").lower()
        windows = self.spans
        spans = [f"{windows.size} every {windows.slide} from {windows.origin}"] if windows is not None else []
        spans += ["by value"] if self.bins is not None else []
        return "|".join([self.stream.id, normal_form(self.from_text), time, *spans, *keys])

    @property
    def spans(self) -> SlidingWindows | None:
        """The windows, aligned at their start, if partials are spans of them."""
        windows = self.windows
        if windows is None or self.strategy is None or self.strategy.name != ADAPTIVE:
            return None
        return SlidingWindows(windows.size, windows.slide, windows.first_start % windows.slide)

    @property
    def time(self) -> str | None:
        """The time or number of a row that windows use, as a BIGINT expression."""
        return None if self.spec is None else value_sql(self.spec, self.exposed)


@dataclass(frozen=True)
class PaneContext:
    """What finding panes needs from the planner."""

    catalog: Catalog
    analyze: Analyze
    loads: Loads


def find_panes(block: SelectBlock, context: PaneContext) -> PaneBlock | str:
    """The partials that a SELECT can live on, or why there are none."""
    found = _find(block, context, differential=True)
    if isinstance(found, str) or found.strategy is None or BY_DIFFERENCE not in found.strategy.costs:
        return found
    # Its aggregates are only known now.
    taken_out = all(_taken_out(each.aggregate) for each in found.calls)
    return found if taken_out else _find(block, context, differential=False)


def _taken_out(aggregate: Aggregate) -> bool:
    """Whether a partial can be subtracted from a sum without rounding."""
    return aggregate.exact and all("sum({c})" in part.reduce for part in aggregate.parts)


def _find(block: SelectBlock, context: PaneContext, *, differential: bool) -> PaneBlock | str:
    if not block.aggregated:
        return "it has no aggregate"
    if block.sets:
        return "GROUPING SETS, ROLLUP, CUBE and GROUP BY ALL are computed over rows"
    if block.distinct or block.generates or block.qualify is not None or block.has_subqueries:
        return "DISTINCT, LATERAL VIEW, QUALIFY and subqueries in it are computed over rows"
    read = {column for expr in block.exprs() for column in expr.columns()}
    if not read <= block.owner.keys() | block.merged.keys():
        return "it reads columns of the query around it"
    found = stream_and_tables(block, context.catalog)
    if isinstance(found, str):
        return found
    at, stream, tables = found
    item = block.sources[at]
    windowed = item.rel if isinstance(item.rel, Windowed) else None
    window = window_of(windowed) if windowed is not None else None
    bins = window is not None and window.strategy == BINS
    if window is not None and not window.by_row and not bins:
        return "its windows depend on other rows than a row's own"
    if bins and tables:
        return "its windows end at rows of the stream itself, before any join"
    if any(word(part) == "SESSION_WINDOW" for key in block.keys or () for part in key.parts):
        return "its sessions depend on other rows than a row's own"
    bounds = frozenset(windowed.bounds) if windowed is not None else frozenset()
    inside = [*([block.where] if block.where is not None else []), *(each.on for each in block.sources if each.on)]
    inside += [key for key in block.keys or () if key.column not in bounds]
    inside += [expr for call in block.calls for expr in call.exprs()]
    uses_window = any(expr.columns() & bounds for expr in inside)
    windows = sliding(window) if window is not None else None
    by_window = any(key.column in bounds for key in block.keys or ())
    search = _Search(block, context, at, stream, {f"@t:{table.id}": table for table in tables})
    strategy: Strategy | None = None
    if window is not None and windows is not None and by_window:
        rows = [search.text.expr(key) for key in block.keys or () if key.column not in bounds]
        strategy = strategy_of(
            window.strategy, windows, stream, rows, context.catalog, context.loads, differential=differential
        )
        if strategy.name == ROWS:
            return f"strategy 'rows' was requested; {cost_words(ROWS, strategy.costs)}"
    if window is not None and bins:
        if uses_window or not by_window:
            return "its rows are looked at window by window"
        found_type = window.type
        assert isinstance(found_type, SlideByTuple)
        strategy = Strategy(BINS) if window.rows else strategy_of_ends(found_type, stream, context.loads)
    paned = strategy is not None and strategy.name in (PANES, ADAPTIVE, BINS) and not uses_window
    if not paned and window is not None and window.needs_numbers:
        return "its windows count rows as they came"
    if not paned and strategy is not None:
        strategy = replace(strategy, name=WINDOWS)
    return search.block(windows if paned else None, window if paned else None, strategy)


def stream_and_tables(block: SelectBlock, catalog: Catalog) -> tuple[int, Stream, list[Table]] | str:
    """The only stream of a SELECT, with its index, and the static tables that it is joined with."""
    stream: tuple[int, Stream] | None = None
    tables: list[Table] = []
    for index, item in enumerate(block.sources):
        rel = item.rel.input if isinstance(item.rel, Windowed) else item.rel
        if isinstance(rel, Project):
            return "its relations have other names for their columns"
        target = catalog.objects.get(rel.source.target) if isinstance(rel, Scan) else None
        if isinstance(rel, Scan) and isinstance(target, Stream) and rel.source.version is None:
            if stream is not None:
                return "it joins two streams"
            stream = index, target
        elif isinstance(target, Table) and isinstance(rel, Scan) and rel.source.looked_up:
            return f"it looks up {target.name} by key"
        elif isinstance(target, Table) and rel is item.rel:
            tables.append(target)
        else:
            return "it reads something other than one stream and static tables"
    if stream is None:
        return "it reads no stream"
    lefts = ("left", "semi", "anti") if stream[0] == 0 else ()
    if not all(each.inner or each.kind in lefts for each in block.sources):
        return "a row of the static side without a partner in the stream depends on all rows"
    return *stream, tables


def text_over_rows(block: SelectBlock, at: int) -> FromText:
    """A SELECT as text, over the plain rows of a stream instead of those in windows."""
    item = block.sources[at]
    rel = item.rel.input if isinstance(item.rel, Windowed) else item.rel
    sources = (*block.sources[:at], replace(item, rel=rel), *block.sources[at + 1 :])
    return FromText(replace(block, sources=sources), lambda: PlaceholderWriter(_scan))


def _scan(scan: Scan) -> str:
    return STREAM if scan.source.kind == "stream" else quote_name(f"@t:{scan.source.target}")


class _Search:
    """The partials of one SELECT over a stream and static tables."""

    def __init__(
        self, block: SelectBlock, context: PaneContext, at: int, stream: Stream, tables: Mapping[str, Table]
    ) -> None:
        self.block_ = block
        self.context = context
        self.at = at
        self.stream = stream
        self.tables = tables
        self.paned = False

    @cached_property
    def text(self) -> FromText:
        return FromText(self.block_, lambda: PlaceholderWriter(_scan))

    @cached_property
    def row_text(self) -> FromText:
        return text_over_rows(self.block_, self.at)

    def block(
        self, windows: SlidingWindows | None, window: WindowSpec | None, strategy: Strategy | None
    ) -> PaneBlock | str:
        block = self.block_
        self.paned = window is not None
        item = block.sources[self.at]
        text = self.row_text if self.paned else self.text
        bounds = item.rel.bounds if isinstance(item.rel, Windowed) and self.paned else ()
        from_text = text.from_clause
        if len(block.sources) == 1:
            from_text = STREAM if self.paned or not isinstance(item.rel, Windowed) else f"{_bare(text)} AS __windowed"
        where = text.expr(block.where) if block.where is not None else None
        keys = self._keys(text, bounds, from_text)
        calls: list[PaneCall] = []
        exposed = f"{quote_name(item.label or self.stream.name)}." if len(block.sources) > 1 else ""
        time = f"{exposed}{quote_name(self.stream.time)}" if self.stream.time is not None else None
        readings = [meant(call, text.expr, lambda: self._apart(text, bounds), time) for call in block.calls]
        types = self._types([each for _, arguments in readings for each in arguments], from_text, where)
        for call, (name, arguments) in zip(block.calls, readings, strict=True):
            kinds, types = types[: len(arguments)], types[len(arguments) :]
            found = aggregates.find(name, distinct=call.distinct, argument_types=kinds, arguments=arguments)
            written = shown_call(call)
            if found is None:
                return f"{written} cannot be merged from partials"
            if strategy is not None and strategy.name == BINS and not _taken_out(found):
                return f"{written} cannot be subtracted from a sum"
            condition = text.expr(call.filter) if call.filter is not None else None
            calls.append(PaneCall(call, written, _key(call), tuple(arguments), condition, found, call.type))
        return PaneBlock(
            self.stream, from_text, {name: table.id for name, table in self.tables.items()}, keys,
            windows, window, where, tuple(calls), strategy, exposed,
        )  # fmt: skip

    def _keys(self, text: FromText, bounds: Sequence[Column], from_text: str) -> tuple[PaneKey, ...]:
        names: set[str] = set()
        found: list[PaneKey] = []
        for expr in self.block_.keys or ():
            column = expr.column
            if column is not None and column in bounds:
                found.append(PaneKey(column.name, text.expr(Expr((column.name,))), True, expr, column.type))
                continue
            wanted = name = column.name if column is not None else f"key_{len(names)}"
            while name.lower() in names:
                name = f"{wanted}_{len(names)}"
            names.add(name.lower())
            type = expr.type or (column.type if column is not None else "")
            found.append(PaneKey(name, text.expr(expr), False, expr, type))
        return tuple(found)

    def _types(self, expressions: Sequence[str], from_text: str, where: str | None) -> list[str]:
        """The types of texts over the rows."""
        known = {quote_name(each.name): each.type for each in self.stream.fields} if not self.tables else {}
        known |= {each.name: each.type for each in self.stream.fields} if not self.tables else {}
        asked = [each for each in dict.fromkeys(expressions) if each not in known]
        if asked:
            listed = ", ".join(f"{expression} AS `x{index}`" for index, expression in enumerate(asked))
            schemas = {"@stream": self.stream.fields, **{name: table.fields for name, table in self.tables.items()}}
            tail = f" WHERE {where}" if where is not None else ""
            fields = self.context.analyze(f"SELECT {listed} FROM {from_text}{tail}", schemas)
            known |= {each: field.type for each, field in zip(asked, fields, strict=True)}
        return [known[each] for each in expressions]

    def _apart(self, text: FromText, bounds: Sequence[Column]) -> list[str]:
        """The total order of the block's rows: their event time, then all their columns."""
        columns = [
            column
            for item in self.block_.sources
            if item.kind not in ("semi", "anti")
            for column in item.columns
            if column not in bounds and column.name not in ("_row_num", "_arrival_ts")
        ]
        plain = len({column.name.lower() for column in columns}) == len(columns)
        time = (self.stream.time or "").lower()
        keys = []
        for column in sorted(columns, key=lambda column: column.name.lower() != time):
            name = quote_name(column.name) if plain else _quoted(text.expr(of_column(column)), column.name)
            keys.append((name, column.type))
        return sort_keys(keys, "struct({})".format)


def _quoted(text: str, name: str) -> str:
    """A qualified column with quotes around its names."""
    qualifier = text.rpartition(".")[0].strip("`")
    return f"{quote_name(qualifier)}.{quote_name(name)}"


def _bare(text: FromText) -> str:
    """The only relation of FROM without its alias."""
    (item,) = text.block.sources
    writer = text.writer()
    writer.leaf(item.rel)
    return writer.written.text


def _key(call: Call) -> str:
    """The key of a call: equal for equivalent calls."""
    return shown_call(call.normal, str)


# ------------------------------------------------------------------------------------------------ over partials


def over_partials(
    block: SelectBlock,
    panes: PaneBlock,
    scan: Scan,
    finals: Mapping[str, str],
    presence: str,
    new: Callable[[str, str], Column],
) -> SelectBlock:
    """The same SELECT over partials. `finals` has the text of each call's value; `presence` is the column that marks
    groups with rows of the SELECT."""
    named = {column.name.lower(): column for column in scan.columns}
    keys = [named[key.name.lower()] for key in panes.keys]
    values: dict[Call, Part] = {each.call.normal: finals[each.key] for each in panes.calls}
    pairs = zip(keys, panes.keys, strict=True)
    rewrite = Rewrite(values, [(column, key.expr) for column, key in pairs])

    def over(expr: Expr | None) -> Expr | None:
        return None if expr is None else rewrite(expr)

    conditions = [rewrite(block.having)] if block.having is not None else []
    if block.keys is not None:
        conditions.append(Expr((f"sum({quote_name(presence)})", ">", "0")))
    made = replace(
        block,
        sources=(FromItem(scan, None, static=False),),
        items=tuple(replace(item, expr=rewrite(item.expr)) for item in block.items),
        where=None,
        keys=tuple(map(of_column, keys)) if block.keys is not None else None,
        having=conjunction(conditions),
        qualify=over(block.qualify),
        calls=(),
        over=tuple(call.map(rewrite) for call in block.over),
        order=tuple(replace(key, expr=rewrite(key.expr)) for key in block.order),
    )
    return sorted_by_columns(made, set(values.values()), new)


def sorted_by_columns(block: SelectBlock, values: set[Part], new: Callable[[str, str], Column]) -> SelectBlock:
    """A SELECT whose aggregates in ORDER BY are columns that an outer query drops: after HAVING, Spark sorts only by
    columns."""
    shown = {item.expr for item in block.items}
    hidden = [key for key in block.order if key.expr not in shown and set(key.expr.parts) & values]
    if not hidden or block.having is None:
        return block
    inner: list[ShownItem] = list(block.items)
    order: list[SortKey] = []
    columns = [new(item.name or "", item.type) for item in block.items]
    for key in block.order:
        at = next((index for index, item in enumerate(inner) if item.expr == key.expr), None)
        if at is None:
            at = len(inner)
            inner.append(ShownItem(key.expr, f"__order_{at}", key.expr.type))
            columns.append(new(f"__order_{at}", key.expr.type))
        order.append(replace(key, expr=of_column(columns[at])))
    below = replace(block, items=tuple(inner), order=(), limit=None, offset=None, limited=False, emission=None)
    items = tuple(
        ShownItem(of_column(column), item.name, item.type) for column, item in zip(columns, block.items, strict=False)
    )
    source = FromItem(Derived(below, tuple(columns)), None)
    return SelectBlock(
        (source,), items, order=tuple(order), limited=block.limited, limit=block.limit, offset=block.offset,
        emission=block.emission,
    )  # fmt: skip


def partial_scan(placeholder: str, fields: Sequence[Field], new: Callable[[str, str], Column]) -> Scan:
    """A scan of partials."""
    return Scan(Source("partials", placeholder, placeholder), tuple(new(each.name, each.type) for each in fields))


def direct_outputs(
    block: SelectBlock, panes: PaneBlock, columns: Mapping[str, Mapping[str, str]], used: Sequence[str],
    fields: Sequence[Field],
) -> tuple[Output, ...]:  # fmt: skip
    """The outputs of a query that is one SELECT on partials with plain items, so that its changes need no Spark job.

    Outside Spark only Anabranch's own arithmetic runs, never an expression of the user's.
    """
    if block.order or block.limited or block.having is not None or block.over:
        return ()
    if panes.bins is not None or any(duckdb_type(key.type) is None for key in panes.keys):
        return ()
    if (panes.spec is not None and panes.spec.rows) or any(key.name == ID for key in panes.keys if key.window):
        return ()
    by_call = {each.call.normal: each for each in panes.calls}
    index = {name: f"r{position}" for position, name in enumerate(used)}
    outputs: list[Output] = []
    for item, shown in zip(block.items, fields, strict=True):
        target = duckdb_type(shown.type)
        part = item.expr.parts[0] if len(item.expr.parts) == 1 else None
        if target is None or part is None:
            return ()
        if isinstance(part, Call):
            each = by_call.get(part.normal)
            if each is None or not each.aggregate.duckdb:
                return ()
            reduced = {suffix: index[name] for suffix, name in columns[each.key].items()}
            final = each.aggregate.final_sql(reduced, "duckdb")
            outputs.append(Output(shown.name, shown.type, "value", f"CAST({final} AS {target})"))
            continue
        key = next((key for key in panes.keys if key.expr.column is not None and key.expr.column == part), None)
        if key is None:
            return ()
        outputs.append(Output(shown.name, shown.type, key.name if key.window else "key", key.name))
    return tuple(outputs)
