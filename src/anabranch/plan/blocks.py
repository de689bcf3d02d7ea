"""The part of a query that can live on partials: a SELECT that aggregates one stream.

Such a block runs twice in two shapes. Per run, its FROM, WHERE and keys make partials (the stream part). At a read it
is the same SELECT over the table of partials, with each aggregate call replaced by the final of its reduced partials:
everything else (HAVING, ORDER BY, expressions over aggregates, what stands around it) is still the user's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.algebra import aggregates
from anabranch.algebra.aggregates import Aggregate
from anabranch.algebra.windows import SlideByTuple, SlidingWindows
from anabranch.errors import AnabranchError, UnknownName
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import WINDOW_COLUMNS, Field, Stream, Table, window_type
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
from anabranch.plan.windows import needs_numbers, sliding, type_of, value_sql
from anabranch.plan.winners import SortKey, by_time, meant, sort_keys
from anabranch.sql.calls import Call, aggregate_calls, chains, generators, occurrences, session_calls
from anabranch.sql.lexer import Span, Token, normal_form, quote_name, tokenize
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Expression, Query, Relation, Select, WindowSpec

STREAM = "`@stream`"
#: Joins that let each row of the stream find its partners on its own.
_JOINS = ("", ",", "JOIN", "INNER JOIN", "CROSS JOIN")
_LEFT_JOINS = ("LEFT JOIN", "LEFT OUTER JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "SEMI JOIN", "ANTI JOIN")

Analyze = Callable[[str, dict[str, tuple[Field, ...]]], list[Field]]


@dataclass(frozen=True)
class BlockKey:
    """A grouping expression: `name` in the table of partials, `expression` over rows; or a bound of the window."""

    name: str
    expression: str
    window: bool
    tokens: tuple[Token, ...]
    type: str = ""


@dataclass(frozen=True)
class BlockCall:
    call: Call
    arguments: tuple[str, ...]
    condition: str | None
    aggregate: Aggregate
    type: str

    @property
    def key(self) -> str:
        return self.call.key


@dataclass(frozen=True)
class Block:
    select: Select
    owner: Query
    stream: Stream
    relation: Relation
    from_text: str
    statics: dict[str, str]
    keys: tuple[BlockKey, ...]
    windows: SlidingWindows | None
    spec: WindowSpec | None
    condition: str | None
    calls: tuple[BlockCall, ...]
    strategy: Strategy | None = None

    @property
    def bins(self) -> SlideByTuple | None:
        """The windows that end at rows, if that is how they are kept."""
        if self.spec is None or self.strategy is None or self.strategy.name != BINS:
            return None
        found = type_of(self.spec)
        assert isinstance(found, SlideByTuple)
        return found

    @property
    def rows(self) -> tuple[Field, ...]:
        """The columns of the rows that it aggregates."""
        numbered = self.spec is not None and needs_numbers(self.spec)
        return self.stream.row_fields if numbered else self.stream.fields

    @property
    def row_keys(self) -> tuple[BlockKey, ...]:
        return tuple(key for key in self.keys if not key.window)

    @property
    def signature(self) -> str:
        """Blocks with equal signatures can share a table of partials."""
        keys = sorted(f"{key.name}={normal_form(tokenize(key.expression))}" for key in self.row_keys)
        time = (self.time or "").lower()
        windows = self.spans
        spans = [f"{windows.size} every {windows.slide} from {windows.origin}"] if windows is not None else []
        spans += ["by value"] if self.bins is not None else []
        return "|".join([self.stream.id, normal_form(tokenize(self.from_text)), time, *spans, *keys])

    @property
    def spans(self) -> SlidingWindows | None:
        """The windows that partials have spans of, if that is how they are kept; aligned at their start."""
        windows = self.windows
        if windows is None or self.strategy is None or self.strategy.name != ADAPTIVE:
            return None
        return SlidingWindows(windows.size, windows.slide, windows.first_start % windows.slide)

    @property
    def time(self) -> str | None:
        """What the windows lie along, as a BIGINT over the rows."""
        if self.spec is None:
            return None
        row = f"{quote_name(self.relation.exposed or '')}." if len(self.select.relations) > 1 else ""
        return value_sql(self.spec, row)


def aggregates_in(select: Select, owner: Query) -> list[Call]:
    """The aggregate calls of a block: in its items, its HAVING and the ORDER BY behind it."""
    calls = [call for item in select.items for call in aggregate_calls(item.tokens)]
    if select.having is not None:
        calls += aggregate_calls(select.having.tokens)
    if owner.body is select:
        calls += aggregate_calls(owner.order_tokens)
    return calls


def find_block(select: Select, owner: Query, binder: Binder, analyze: Analyze, loads: Loads) -> Block | str:
    """The block of a SELECT, or the reason why it is none."""
    try:
        found = _find_block(select, owner, binder, analyze, loads, differential=True)
        if isinstance(found, str) or found.strategy is None or BY_DIFFERENCE not in found.strategy.costs:
            return found
        # What its aggregates are is known now.
        taken_out = all(_taken_out(each.aggregate) for each in found.calls)
        return found if taken_out else _find_block(select, owner, binder, analyze, loads, differential=False)
    except UnknownName:  # the query as a whole was analysed before
        return "it reads columns of the query around it"


def _taken_out(aggregate: Aggregate) -> bool:
    """Whether a partial can be taken out of a sum again, to the last digit."""
    return aggregate.exact and all("sum({c})" in part.reduce for part in aggregate.parts)


def _find_block(
    select: Select, owner: Query, binder: Binder, analyze: Analyze, loads: Loads, *, differential: bool
) -> Block | str:
    text = binder.text
    calls = aggregates_in(select, owner)
    if not select.group and not calls:
        return "it has no aggregate"
    if not select.group_plain:
        return "GROUPING SETS, ROLLUP, CUBE and GROUP BY ALL are computed over rows"
    if select.distinct or select.lateral or select.tail or select.subqueries:
        return "DISTINCT, LATERAL VIEW, QUALIFY and subqueries in it are computed over rows"
    if any(item.star or any(generators(item.tokens)) for item in select.items):
        return "* and generators beside aggregates are computed over rows"
    found = stream_and_tables(select, binder)
    if isinstance(found, str):
        return found
    relation, stream, tables = found
    window = binder.window_of(relation) if relation.window is not None else None
    bins = window is not None and window.strategy == BINS
    if window is not None and not window.by_row and not bins:
        return "its windows depend on other rows than a row's own"
    if bins and len(select.relations) > 1:
        return "where its windows end is for rows to say that have not met others"
    single = len(select.relations) == 1
    plain = _Plainer(text, relation.exposed if single else None)

    schemas: dict[str, tuple[Field, ...]] = {"@stream": stream.fields}
    from_edits = []
    statics: dict[str, str] = {}
    for other, table in tables:
        placeholder = f"@t:{table.id}"
        statics[placeholder] = table.id
        schemas[placeholder] = table.fields
        alias = "" if other.alias else f" AS {quote_name(other.exposed or table.name)}"
        from_edits.append(Edit(other.span, quote_name(placeholder) + alias))
    columns = {each.name.lower() for each in stream.fields}
    columns |= {each.name.lower() for _, table in tables for each in table.fields}

    keys = tuple(_keys(select, columns, window is not None, plain))
    if any(True for key in keys for _ in session_calls(key.tokens)):
        return "its sessions depend on other rows than a row's own"
    conditions = plain.text_of(select.where) if select.where is not None else None
    uses_window = window is not None and _uses_window(select, calls, keys)
    windows = sliding(window) if window is not None else None
    strategy: Strategy | None = None
    if window is not None and windows is not None and any(key.window for key in keys):
        row_keys = [key.expression for key in keys if not key.window]
        strategy = strategy_of(
            window.strategy, windows, stream, row_keys, binder.catalog, loads, differential=differential
        )
        if strategy.name == ROWS:
            return f"it is asked to look at rows; {cost_words(ROWS, strategy.costs)}"
    if window is not None and bins:
        if uses_window or not any(key.window for key in keys):
            return "its rows are looked at window by window"
        found_type = type_of(window)
        assert isinstance(found_type, SlideByTuple)
        strategy = Strategy(BINS) if window.rows else strategy_of_ends(found_type, stream, loads)
    paned = strategy is not None and strategy.name in (PANES, ADAPTIVE, BINS) and not uses_window
    if not paned and window is not None and needs_numbers(window):
        return "its windows count rows as they came"
    if not paned:
        keys = tuple(BlockKey(k.name, k.expression, False, k.tokens) for k in keys)
        strategy = replace(strategy, name=WINDOWS) if strategy is not None else None
    source = STREAM if paned or window is None else binder.windowed(STREAM, relation)
    if single:
        from_text = source if source == STREAM else f"{source} AS __windowed"
    else:
        alias = "" if relation.alias else f" AS {quote_name(relation.exposed or stream.name)}"
        from_edits.append(Edit(relation.span, source + alias))
        assert select.from_span is not None
        from_text = splice(text, select.from_span, from_edits).text

    probe = _Probe(analyze, schemas, from_text, conditions)
    typed_keys = probe.type_keys(keys, window is not None and window.rows)
    rows = _Apart(probe, select, relation, stream)
    block_calls: list[BlockCall] = []
    for call in _distinct_calls(calls):
        name, arguments = meant(call, plain.text, rows.keys, rows.time)
        types = probe.types(arguments)
        aggregate = aggregates.find(name, distinct=call.distinct, argument_types=types, arguments=arguments)
        if aggregate is None:
            return f"{call.span.of(text)} cannot be merged from partials"
        if bins and not _taken_out(aggregate):
            return f"{call.span.of(text)} cannot be taken out of a sum again"
        filtered = plain.text(call.condition) if call.condition is not None else None
        block_calls.append(BlockCall(call, tuple(arguments), filtered, aggregate, ""))
    final_types = probe.types(tuple(plain.text_at(call.call.span) for call in block_calls))
    block_calls = [
        BlockCall(c.call, c.arguments, c.condition, c.aggregate, type)
        for c, type in zip(block_calls, final_types, strict=True)
    ]
    return Block(
        select,
        owner,
        stream,
        relation,
        from_text,
        statics,
        typed_keys,
        windows if paned else None,
        window if paned else None,
        conditions,
        tuple(block_calls),
        strategy,
    )


def _distinct_calls(calls: Sequence[Call]) -> Iterator[Call]:
    seen: set[str] = set()
    for call in calls:
        if call.key not in seen:
            seen.add(call.key)
            yield call


def stream_and_tables(select: Select, binder: Binder) -> tuple[Relation, Stream, list[tuple[Relation, Table]]] | str:
    stream: tuple[Relation, Stream] | None = None
    tables: list[tuple[Relation, Table]] = []
    for relation in select.relations:
        reference = binder.resolve(relation)
        target = binder.catalog.objects.get(reference.target) if reference is not None else None
        if isinstance(target, Stream) and reference is not None and reference.version is None:
            if stream is not None:
                return "it joins two streams"
            stream = relation, target
        elif isinstance(target, Table) and target.asked:
            return f"it asks {target.name} by key"
        elif isinstance(target, Table) and relation.window is None:
            tables.append((relation, target))
        else:
            return "it reads something other than one stream and static tables"
    if stream is None:
        return "it reads no stream"
    joins = [relation.join for relation in select.relations]
    first = select.relations[0] is stream[0]
    if not all(join in _JOINS or (first and join in _LEFT_JOINS) for join in joins):
        return "a row of the static side without a partner in the stream depends on all rows"
    return stream[0], stream[1], tables


def _keys(select: Select, columns: set[str], windowed: bool, plain: _Plainer) -> Iterator[BlockKey]:
    names: set[str] = set()
    for group in select.group:
        tokens = grouped_tokens(group, select, columns | (set(WINDOW_COLUMNS) if windowed else set()))
        named = list(chains(tokens))
        is_column = len(named) == 1 and named[0].span == Span(tokens[0].start, tokens[-1].end)
        last = named[0].parts[-1].lower() if is_column else ""
        if windowed and last in WINDOW_COLUMNS:
            yield BlockKey(last, plain.text(tokens), True, tokens)
            continue
        wanted = named[0].parts[-1] if is_column else f"key_{len(names)}"
        name = wanted
        while name.lower() in names:
            name = f"{wanted}_{len(names)}"
        names.add(name.lower())
        yield BlockKey(name, plain.text(tokens), False, tokens)


def grouped_tokens(group: Expression, select: Select, columns: set[str]) -> tuple[Token, ...]:
    """What a grouping expression stands for: an ordinal and an alias stand for an item of the SELECT list."""
    tokens = group.tokens
    if len(tokens) == 1:
        token = tokens[0]
        if token.kind == "number" and token.text.isdigit() and 0 < int(token.text) <= len(select.items):
            return select.items[int(token.text) - 1].tokens
        if token.is_name and token.name.lower() not in columns:
            for item in select.items:
                if item.alias is not None and item.alias.lower() == token.name.lower():
                    return item.tokens
    return tokens


def _uses_window(select: Select, calls: Sequence[Call], keys: Sequence[BlockKey]) -> bool:
    """Whether a bound of the window is used where rows, not groups, are looked at."""
    places: list[tuple[Token, ...]] = [key.tokens for key in keys if not key.window]
    places += [argument for call in calls for argument in call.arguments]
    places += [call.condition for call in calls if call.condition is not None]
    if select.where is not None:
        places.append(select.where.tokens)
    return any(token.is_name and token.name.lower() in WINDOW_COLUMNS for place in places for token in place)


class _Plainer:
    """Expression text without the alias of the only relation, so that views that differ only in it share partials."""

    def __init__(self, text: str, alias: str | None) -> None:
        self.source = text
        self.alias = alias.lower() if alias is not None else None

    def text(self, tokens: Sequence[Token]) -> str:
        span = Span(tokens[0].start, tokens[-1].end)
        if self.alias is None:
            return span.of(self.source)
        edits = [
            Edit(Span(token.start, after.start), "")
            for before, token, dot, after in zip((None, *tokens), tokens, tokens[1:], tokens[2:], strict=False)
            if token.is_name
            and token.name.lower() == self.alias
            and dot.text == "."
            and (before is None or before.text != ".")
            and after.is_name
        ]
        return splice(self.source, span, edits).text

    def text_of(self, expression: Expression) -> str:
        return self.text(expression.tokens)

    def text_at(self, span: Span) -> str:
        shifted = [
            Token(t.kind, t.text, t.start + span.start, t.end + span.start)
            for t in tokenize(span.of(self.source))
            if t.text
        ]
        return self.text(shifted)


class _Probe:
    """Types of expressions over the rows of a block, asked of Spark's analyser."""

    def __init__(
        self, analyze: Analyze, schemas: dict[str, tuple[Field, ...]], from_text: str, condition: str | None
    ) -> None:
        self.analyze = analyze
        self.schemas = schemas
        self.tail = f" FROM {from_text}" + (f" WHERE {condition}" if condition else "")

    def types(self, expressions: Sequence[str]) -> list[str]:
        if not expressions:
            return []
        items = ", ".join(f"{expression} AS `x{index}`" for index, expression in enumerate(expressions))
        return [field.type for field in self.analyze(f"SELECT {items}{self.tail}", self.schemas)]

    def type_keys(self, keys: Sequence[BlockKey], numbers: bool) -> tuple[BlockKey, ...]:
        plain = [key for key in keys if not key.window]
        types = iter(self.types([key.expression for key in plain]))
        return tuple(replace(k, type=window_type(k.name, numbers) if k.window else next(types)) for k in keys)


class _Apart:
    """What tells the rows of a block apart: their event time, then all their columns."""

    def __init__(self, probe: _Probe, select: Select, relation: Relation, stream: Stream) -> None:
        self.probe = probe
        self.select = select
        self.relation = relation
        self.stream = stream

    @property
    def time(self) -> str | None:
        """The event time, in text."""
        if self.stream.time is None:
            return None
        own = f"{quote_name(self.relation.exposed or '')}." if len(self.select.relations) > 1 else ""
        return own + quote_name(self.stream.time)

    def keys(self) -> list[SortKey]:
        found = by_time(columns_apart(self.select, self._columns), [(self.stream.time or "").lower()])
        return sorted(found, key=lambda key: key.text != self.time)

    def _columns(self, items: str) -> Sequence[Field]:
        return self.probe.analyze(f"SELECT {items}{self.probe.tail}", self.probe.schemas)


def columns_apart(select: Select, analyzed: Callable[[str], Sequence[Field]]) -> list[SortKey]:
    """The columns of a FROM clause; with the names of their relations where two have the same name."""
    try:
        fields = analyzed("*")
        if len({field.name.lower() for field in fields}) == len(fields):
            return sort_keys([(SortKey((f.name.lower(),), quote_name(f.name)), f.type) for f in fields])
        found: list[tuple[SortKey, str]] = []
        for relation in select.relations:
            if relation.exposed is None:
                return []
            name = quote_name(relation.exposed)
            for field in analyzed(f"{name}.*"):
                parts = (relation.exposed.lower(), field.name.lower())
                found.append((SortKey(parts, f"{name}.{quote_name(field.name)}"), field.type))
    except AnabranchError:
        return []
    return sort_keys(found) if len({key.parts for key, _ in found}) == len(found) else []


def read_edits(block: Block, text: str, source: str, finals: dict[str, str], presence: str) -> list[Edit]:
    """The edits that turn the block into the same SELECT over partials.

    `source` is the relation of partials, `finals` the text of each call's value, `presence` the column that says that
    the view's own rows are in a group.
    """
    select, owner = block.select, block.owner
    assert select.from_span is not None
    edits = [Edit(select.from_span, source)]
    if select.where is not None:
        edits.append(Edit(Span(select.from_span.end, select.where.span.end), ""))
    places: list[tuple[Token, ...]] = [item.tokens for item in select.items]
    places += [group.tokens for group in select.group]
    if select.having is not None:
        places.append(select.having.tokens)
    order = owner.order_tokens if owner.body is select else ()
    if order:
        places.append(order)
    for tokens in places:
        calls = list(aggregate_calls(tokens))
        if tokens is not order:
            edits += [Edit(call.span, finals[call.key]) for call in calls]
        taken = [call.span for call in calls]
        for key in block.keys:
            name = quote_name(key.name)
            if normal_form(list(key.tokens)) == key.name.lower():
                continue
            for span in occurrences(tokens, key.tokens):
                if not any(each.start <= span.start < each.end for each in taken):
                    edits.append(Edit(span, name))
                    taken.append(span)
        for chain in chains(tokens):  # a qualified column that is grouped by without its qualifier, or the reverse
            if len(chain.parts) < 2 or any(each.start <= chain.span.start < each.end for each in taken):
                continue
            for key in block.keys:
                last = [t.name.lower() for t in key.tokens if t.is_name][-1:]
                if last == [chain.parts[-1].lower()] and len(key.tokens) in (1, 3):
                    edits.append(Edit(chain.span, quote_name(key.name)))
                    break
    edits += _output_names(block)
    edits += _ordering(block, finals) if order else ()
    if select.group:
        there = f"sum({quote_name(presence)}) > 0"
        if select.having is None:
            assert select.group_span is not None
            edits.append(Edit(Span(select.group_span.end, select.group_span.end), f" HAVING {there}"))
        else:
            edits.append(Edit(Span(select.having.span.start, select.having.span.start), "("))
            edits.append(Edit(Span(select.having.span.end, select.having.span.end), f") AND {there}"))
    return edits


def _ordering(block: Block, finals: dict[str, str]) -> Iterator[Edit]:
    """Aggregates in ORDER BY become columns that the query around it leaves out: behind HAVING, Spark sorts by columns
    only."""
    select, owner = block.select, block.owner
    calls = list(aggregate_calls(owner.order_tokens))
    if not select.group:
        yield from (Edit(call.span, finals[call.key]) for call in calls)
        return
    names: dict[str, str] = {}
    for call in calls:
        name = names.setdefault(call.key, quote_name(f"__order_{len(names)}"))
        yield Edit(call.span, name)
    if names:
        last, end = select.items[-1].span.end, owner.order_tokens[-1].end
        without = f"SELECT * EXCEPT ({', '.join(names.values())}) FROM ("
        yield Edit(Span(select.span.start, select.span.start), without)
        yield Edit(Span(last, last), "".join(f", {finals[key]} AS {name}" for key, name in names.items()))
        yield Edit(Span(end, end), ")")


def _output_names(block: Block) -> Iterator[Edit]:
    """An item without an alias keeps the name Spark would give it: that of its column, or its text."""
    for item in block.select.items:
        if item.alias is None:
            named = list(chains(item.tokens))
            whole = len(named) == 1 and named[0].span == item.expression
            if whole and len(named[0].parts) > 1:
                end = Span(item.expression.end, item.expression.end)
                yield Edit(end, f" AS {quote_name(named[0].parts[-1])}")
