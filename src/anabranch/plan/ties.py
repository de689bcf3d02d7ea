"""Ties: every order that decides which rows win goes on with all columns, so that the same rows give the same winners.

    row_number() OVER (PARTITION BY k ORDER BY n)      ... ORDER BY n, `ts`, `v`
    SELECT k, n FROM s ORDER BY n LIMIT 3              ... ORDER BY n, 1, 2 LIMIT 3
    first(v)                                           min_by(v, struct(`ts`, `k`, `n`, `v`))

First and last go by event time; then, like the others, by all columns. Rows that are still equal then are equal in
every column, and it does not matter which of them wins. Where rows that tie share their answer (RANK, a frame of RANGE)
nothing is added: there, a tie is part of the question. What cannot be told apart safely stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.plan.bind import Bound
from anabranch.plan.blocks import Block, aggregates_in, columns_apart, grouped_tokens
from anabranch.plan.catalog import Field
from anabranch.plan.winners import (
    LISTS,
    TEXTS,
    SortKey,
    by_time,
    depends_on_order,
    event_times,
    orderable,
    picked,
    sort_keys,
)
from anabranch.sql.calls import Call, aggregate_calls, chains, closing, split_commas
from anabranch.sql.lexer import Span, Token, quote_name, words
from anabranch.sql.splice import Edit, Spliced
from anabranch.sql.syntax import Query, Select
from anabranch.sql.versions import UNTIL

#: Window functions that ask for the place of a row, whatever the frame.
_PLACES = words("row_number ntile lag lead")
#: Those that pick a row of the frame.
_PICKS = words("first_value last_value nth_value first last any_value")
#: Those whose answer is the same for rows that tie.
_SHARED = words("rank dense_rank percent_rank cume_dist")
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


@dataclass(frozen=True)
class Places:
    """What breaking ties asks of whoever plans: stretches of the query as they will run, and their columns."""

    bind: Callable[[Span], str]
    analyze: Callable[[str], Sequence[Field]]
    blocks: Mapping[Span, Block]  # by the place of their SELECT
    skips: Callable[[Span], bool] = lambda _: False  # what will not run as part of this query
    prefix: str = ""  # the WITH clause around
    times: frozenset[str] = frozenset()  # the names of event times

    def columns(self, text: str) -> Sequence[Field]:
        """The columns of a part of the query."""
        return self.analyze(text if text[:4].upper() == "WITH" else self.prefix + text)


def break_ties(text: str, query: Query, places: Places) -> list[Edit]:
    """The edits that make the winners of ties the same whatever way the rows came; none if nothing depends on it."""
    edits: list[Edit] = []
    for select, owner in query.selects():
        if not places.skips(select.span):
            edits += _Breaker(text, select, owner, places).edits()
    for each in query.queries():
        if not places.skips(each.body.span):
            edits += _limited(each, places)
    return edits


def checked(
    ties: list[Edit], bind: Callable[[list[Edit]], str], analyze: Callable[[str], Sequence[Field]]
) -> tuple[str, list[Edit]]:
    """A query with its ties broken, and the edits that do it; as it was if Spark does not take it that way."""
    text = bind(ties)
    if ties:
        try:
            analyze(text)
        except AnabranchError:
            return bind([]), []
    return text, ties


def settle_versions(bound: Bound, analyze: Callable[[str], Sequence[Field]]) -> Spliced:
    """A query that is no view, with the order of versions of one time broken, and that of aggregates which pick or list
    rows: they give what a view of the same query shows.

    Its other ties are its own business.
    """
    binder = bound.binder
    if binder is None:
        return bound.text
    query = binder.query
    settled = [
        select.span
        for select, _ in query.selects()
        if any((item.alias or "").startswith(UNTIL) for item in select.items)
    ]
    settled += [
        select.span for select, owner in query.selects() if any(map(depends_on_order, aggregates_in(select, owner)))
    ]
    if not settled:
        return bound.text

    def bind(span: Span | None, edits: Sequence[Edit] = ()) -> Spliced:
        return type(binder)(binder.text, binder.catalog, query).bind(span, edits).text

    places = Places(
        bind=lambda span: bind(span).text,
        analyze=analyze,
        blocks={},
        skips=lambda span: span not in settled,
        prefix=bind(Span(query.span.start, query.body.span.start)).text if query.ctes else "",
        times=event_times(binder.catalog, [reference.target for reference in bound.references.values()]),
    )
    ties = break_ties(binder.text, query, places)
    _, ties = checked(ties, lambda edits: bind(None, edits).text, analyze)
    return bind(None, ties)


# ---------------------------------------------------------------------------------------------- LIMIT


def _limited(query: Query, places: Places) -> Iterator[Edit]:
    """LIMIT and OFFSET take rows in the order of all columns; by number, for a column may have no name of its own."""
    tokens = query.order_tokens
    cut = next((i for i, token in enumerate(tokens) if _cuts(token, query)), None)
    if cut is None or (cut > 2 and tokens[2].upper == "ALL"):
        return
    try:
        columns = places.columns(places.bind(query.span))
    except AnabranchError:
        return
    numbers = ", ".join(str(index + 1) for index, field in enumerate(columns) if orderable(field.type))
    if not numbers:
        return
    if cut:
        end = tokens[cut - 1].end
        yield Edit(Span(end, end), f", {numbers}")
    else:
        start = tokens[0].start
        yield Edit(Span(start, start), f"ORDER BY {numbers} ")


def _cuts(token: Token, query: Query) -> bool:
    inside = any(each.span.start <= token.start < each.span.end for each in query.order_expressions)
    return token.upper in ("LIMIT", "OFFSET") and not inside


# ---------------------------------------------------------------------------------------------- OVER, first and last


class _Breaker:
    """The edits inside one SELECT."""

    def __init__(self, text: str, select: Select, owner: Query, places: Places) -> None:
        self.text = text
        self.select = select
        self.owner = owner
        self.places = places
        self._keys: list[SortKey] | None = None

    def edits(self) -> Iterator[Edit]:
        named = dict(_named_windows(self.select))
        for tokens in self._expressions():
            for index in _outside_subqueries(tokens):
                if tokens[index].upper == "OVER" and index + 1 < len(tokens):
                    yield from self._over(tokens, index, named)
            if not self._is_block:
                yield from self._any(tokens)

    def _expressions(self) -> Iterator[Sequence[Token]]:
        yield from (item.tokens for item in self.select.items)
        if self.select.having is not None:
            yield self.select.having.tokens
        yield from (expression.tokens for expression in self.select.tail_expressions)
        if self.owner.body is self.select:
            yield self.owner.order_tokens

    def _over(self, tokens: Sequence[Token], index: int, named: Mapping[str, Sequence[Token]]) -> Iterator[Edit]:
        function = _function(tokens, index)
        following = tokens[index + 1]
        if following.text == "(":
            end = closing(tokens, index + 1)
            added = self._added(function, tokens[index + 2 : end])
            if added is not None:
                at = added[0] if added[0] is not None else tokens[end].start
                yield Edit(Span(at, at), added[1])
        elif following.is_name and following.name.lower() in named:
            inside = named[following.name.lower()]
            added = self._added(function, inside)
            if added is not None and inside:
                start, stop = inside[0].start, inside[-1].end
                at = added[0] if added[0] is not None else stop
                spelt = f"({self.text[start:at]}{added[1]}{self.text[at:stop]})"
                yield Edit(following.span, spelt)

    def _added(self, function: str, inside: Sequence[Token]) -> tuple[int | None, str] | None:
        """What to add to the window of a function, and where (None: at its end)."""
        order, frame = _word(inside, "ORDER", "SORT"), _word(inside, "ROWS", "RANGE", "GROUPS")
        by_rows = frame is not None and inside[frame].upper == "ROWS"
        if function in _SHARED or (frame is not None and not by_rows):
            return None
        wanted = function in _PLACES or by_rows or (function in _PICKS and (order is None or function == "first_value"))
        if not wanted or (inside and order is None and inside[0].upper not in ("PARTITION", "DISTRIBUTE", "ROWS")):
            return None
        keys = self._more(inside, self.places.times if order is None else ())
        if not keys:
            return None
        if order is not None:
            last = inside[frame - 1] if frame is not None else inside[-1]
            return last.end, f", {keys}"
        if function in _PLACES:
            return None  # Spark wants an order there
        if frame is not None:
            return inside[frame].start, f"ORDER BY {keys} "
        return None, f" ORDER BY {keys} {_WHOLE}"

    def _more(self, inside: Sequence[Token], times: Iterable[str]) -> str:
        """The columns that a window does not sort or partition by; first of all, what time it is."""
        there = set(_plain_names(inside))
        found = []
        for key in by_time(self.keys(), times):
            last = key.parts[-1:]
            if key.parts and (key.parts in there or (len(key.parts) == 1 and any(each[-1:] == last for each in there))):
                continue
            found.append(key.text)
        return ", ".join(found)

    def _any(self, tokens: Sequence[Token]) -> Iterator[Edit]:
        for call in aggregate_calls(tokens):
            pick = picked(call)
            if pick is None:
                yield from self._counted(call)
                continue
            keys = [key.text for key in by_time(self._columns(), self.places.times)]
            if not keys:
                continue
            end = pick.value[-1].end
            yield Edit(call.name_span, pick.function)
            yield Edit(Span(end, call.arguments[-1][-1].end), f", {pick.sql(keys, self._text)}")
            last = next(i for i, token in enumerate(tokens) if token.end == call.span.end)
            if tokens[last].upper == "NULLS":  # IGNORE NULLS: what picks a row knows no such words
                yield Edit(Span(tokens[last - 2].end, call.span.end), "")

    def _counted(self, call: Call) -> Iterator[Edit]:
        """The lowest of the most frequent values, and lists in the order of event time and sets in that of values."""
        if call.name.split()[0] in TEXTS:
            yield from self._listed(call)
            return
        if not call.arguments or call.name not in (*LISTS, "collect_set", "mode") or not self._sortable(call):
            return
        start, end = call.arguments[0][0].start, call.arguments[0][-1].end
        times = [key.text for key in self._columns() if key.parts[-1] in self.places.times]
        if call.name == "mode":
            if not call.distinct:
                yield Edit(Span(end, call.arguments[-1][-1].end), ", true")
        elif len(call.arguments) != 1:
            return
        elif call.name in LISTS and times and not call.distinct:
            value = self._text(call.arguments[0])
            yield Edit(Span(call.span.start, call.span.start), "transform(array_sort(")
            yield Edit(Span(start, start), f"CASE WHEN ({value}) IS NOT NULL THEN named_struct('o', {times[0]}, 'v', ")
            yield Edit(Span(end, end), ") END")
            yield Edit(Span(call.span.end, call.span.end), "), e -> e.v)")
        else:
            yield Edit(Span(call.span.start, call.span.start), "array_sort(")
            yield Edit(Span(call.span.end, call.span.end), ")")

    def _listed(self, call: Call) -> Iterator[Edit]:
        """Values in one text: in the order that is asked for, or in that of event time, and then in their own."""
        if not call.arguments or not self._sortable(call):
            return
        value = self._text(call.arguments[0])
        if call.order:
            end = call.order[-1].end
            if not call.distinct:
                yield Edit(Span(end, end), f", {value}")
            return
        times = [key.text for key in self._columns() if key.parts[-1] in self.places.times]
        order = [value] if call.distinct else [*times[:1], value]
        end = self.text.index(")", call.arguments[-1][-1].end) + 1
        yield Edit(Span(end, end), f" WITHIN GROUP (ORDER BY {', '.join(order)})")

    def _sortable(self, call: Call) -> bool:
        """Whether the argument of a call is of a type that can be sorted."""
        try:
            return all(orderable(field.type) for field in self._analyzed(f"{self._text(call.arguments[0])} AS `x0`"))
        except AnabranchError:
            return False

    def _text(self, tokens: Sequence[Token]) -> str:
        return self.places.bind(Span(tokens[0].start, tokens[-1].end))

    # ---- what a row is told apart by

    @property
    def _is_block(self) -> bool:
        return self.select.span in self.places.blocks

    def keys(self) -> list[SortKey]:
        """What tells the rows apart that window functions see: columns, or what is grouped by."""
        if self._keys is None:
            try:
                self._keys = self._found()
            except AnabranchError:
                self._keys = []
        return self._keys

    def _found(self) -> list[SortKey]:
        select = self.select
        block = self.places.blocks.get(select.span)
        if block is not None:
            return sort_keys([(SortKey((), quote_name(key.name)), key.type) for key in block.keys])
        if not select.group and not aggregates_in(select, self.owner):
            return self._columns()
        if not select.group_plain:
            return []
        columns = {field.name.lower() for field in self._analyzed("*")}
        grouped = [grouped_tokens(group, select, columns) for group in select.group]
        texts = [self.places.bind(Span(tokens[0].start, tokens[-1].end)) for tokens in grouped]
        types = self._analyzed(", ".join(f"{text} AS `x{index}`" for index, text in enumerate(texts)))
        return sort_keys([(SortKey((), text), field.type) for text, field in zip(texts, types, strict=True)])

    def _columns(self) -> list[SortKey]:
        """The columns of the FROM clause."""
        return columns_apart(self.select, self._analyzed)

    def _analyzed(self, items: str) -> Sequence[Field]:
        if self.select.from_span is None or not items:
            return ()
        return self.places.columns(f"SELECT {items} FROM {self.places.bind(self.select.from_span)}")


def _plain_names(inside: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """The columns that a window is partitioned and ordered by, where they are just columns."""
    order, frame = _word(inside, "ORDER", "SORT"), _word(inside, "ROWS", "RANGE", "GROUPS")
    end = len(inside) if frame is None else frame
    for part in (inside[:order] if order is not None else inside[:end], inside[order:end] if order is not None else ()):
        for piece in split_commas(part[2:]):
            while piece and piece[-1].upper in ("ASC", "DESC", "NULLS", "FIRST", "LAST"):
                piece.pop()
            names = list(chains(piece))
            if len(names) == 1 and names[0].span == Span(piece[0].start, piece[-1].end):
                yield tuple(name.lower() for name in names[0].parts)


def _named_windows(select: Select) -> Iterator[tuple[str, Sequence[Token]]]:
    """WINDOW w AS (...): the name and what stands in the brackets."""
    for expression in select.tail_expressions:
        tokens = expression.tokens
        if names_window(tokens):
            yield tokens[0].name.lower(), tokens[3 : closing(tokens, 2)]


def names_window(tokens: Sequence[Token]) -> bool:
    """w AS (...), of the clause WINDOW."""
    return len(tokens) > 3 and tokens[0].is_name and tokens[1].upper == "AS" and tokens[2].text == "("


def _outside_subqueries(tokens: Sequence[Token]) -> Iterator[int]:
    index = 0
    while index < len(tokens):
        if tokens[index].text == "(" and index + 1 < len(tokens) and tokens[index + 1].upper in ("SELECT", "WITH"):
            index = closing(tokens, index)
        yield index
        index += 1


def _function(tokens: Sequence[Token], over: int) -> str:
    """The function whose OVER this is; what stands between, FILTER and IGNORE NULLS, is stepped over."""
    index = over - 1
    while index > 0:
        if tokens[index].upper == "NULLS":
            index -= 2
            continue
        if tokens[index].text != ")":
            return ""
        depth = 0
        while index > 0:
            depth += (tokens[index].text == ")") - (tokens[index].text == "(")
            if depth == 0:
                break
            index -= 1
        index -= 1
        if index < 0 or tokens[index].upper != "FILTER":
            return tokens[index].text.lower() if index >= 0 else ""
        index -= 1
    return ""


def _word(tokens: Sequence[Token], *wanted: str) -> int | None:
    """The first of some words outside brackets."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "symbol":
            depth += (token.text in "([") - (token.text in ")]")
        if depth == 0 and token.upper in wanted:
            return index
    return None
