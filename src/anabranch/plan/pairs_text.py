"""A join of streams within a time, grouped where it is joined, as two nodes: what the new pairs of a run add up to, and
what that adds up to.

    SELECT a.k, count(*) AS n, sum(b.v) AS v FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR
    GROUP BY a.k

is planned as

    SELECT `__k0` AS `k`, coalesce(sum(`__p0`), 0) AS n, sum(`__p1`) AS v FROM
      (SELECT a.k AS `__k0`, count(*) AS `__p0`, sum(b.v) AS `__p1` FROM a JOIN b ON ... GROUP BY a.k) AS `__pairs0`
    GROUP BY `__k0`

The query inside is a join: its new pairs come from new rows and those that can still meet them, and each run leaves one
row a key. So nothing has to be computed anew from all rows of the streams. It is not the answer of that query that is
kept but what it gave run by run; only rows that nobody takes back can be added up like this, and only by aggregates
that can be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from anabranch.algebra import aggregates
from anabranch.algebra.weighted import merged
from anabranch.plan.blocks import aggregates_in, grouped_tokens
from anabranch.plan.catalog import View
from anabranch.plan.inputs import INNER, Input, Place, limited, place_of
from anabranch.plan.memory import bounded, unbounded
from anabranch.sql.calls import Call, chains, generators, occurrences, span_of
from anabranch.sql.columns import names_in
from anabranch.sql.lexer import Span, Token, quote_name
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Query, Select

#: The query inside, and its columns: what it is grouped by, and its partials.
PAIRS, KEY, PARTIAL = "__pairs{}", "__k{}", "__p{}"

#: The types of expressions over the FROM clause of a SELECT.
Types = Callable[[Sequence[str]], list[str]]


def worth_it(select: Select, owner: Query, inputs: Sequence[Input], view: View) -> bool:
    """Whether a node looks at all rows of streams, and its pairs alone would look at those within bounds."""
    if view.node not in ("keyed", "whole") or view.emit != "feed" or view.clock != "event" or view.counted:
        return False
    if any(each.relation.join not in INNER or each.relation.reshaped for each in inputs) or limited(owner):
        return False
    if any(each.relation.window is not None and not each.relation.window.by_row for each in inputs):
        return False
    joined = replace(view, node="join", nearby=0)
    return (
        len(view.sides) > 1 and view.of_streams and bounded(joined) and (view.node == "whole" or bool(unbounded(view)))
    )


class _Unfit(Exception):
    """Why the pairs of a join cannot be added up run by run."""


def added_up(text: str, select: Select, owner: Query, inputs: Sequence[Input], types: Types, name: str,
             outermost: bool) -> list[Edit]:  # fmt: skip
    """The edits that make two queries of one; none where that cannot be."""
    try:
        return list(_Pairs(text, select, owner, inputs, types, name, outermost).edits())
    except _Unfit:
        return []


@dataclass
class _Inside:
    """The columns of the query inside, by their texts."""

    keys: dict[str, str] = field(default_factory=dict)
    partials: dict[str, str] = field(default_factory=dict)

    def key(self, text: str) -> str:
        return self.keys.setdefault(text, quote_name(KEY.format(len(self.keys))))

    def partial(self, text: str) -> str:
        return self.partials.setdefault(text, quote_name(PARTIAL.format(len(self.partials))))


class _Pairs:
    def __init__(
        self, text: str, select: Select, owner: Query, inputs: Sequence[Input], types: Types, name: str, outermost: bool
    ) -> None:
        self.text = text
        self.select = select
        self.owner = owner
        self.inputs = inputs
        self.types = types
        self.name = name
        self.outermost = outermost
        self.inside = _Inside()
        self.places: dict[Place, str] = {}  # columns that are grouped by
        self.computed: list[tuple[tuple[Token, ...], str]] = []  # other expressions that are
        self.done: list[Edit] = []

    def edits(self) -> Iterator[Edit]:
        select = self.select
        if not select.group_plain or select.lateral or select.tail or select.subqueries:
            raise _Unfit
        tokens = [token for item in select.items for token in item.tokens] + list(self.owner.order_tokens)
        if any(token.upper == "OVER" for token in tokens) or any(generators(tokens)):
            raise _Unfit
        calls = aggregates_in(select, self.owner)
        if not select.group and not calls:
            yield from self._distinct()
            return
        if any(item.star for item in select.items):
            raise _Unfit
        self._groups()
        self._calls(calls)
        for item in select.items:
            self._item(item.tokens, item.alias, item.span)
        aliases = {item.alias.lower() for item in select.items if item.alias is not None}
        if select.having is not None:
            self._names(select.having.tokens, aliases)
        if self.owner.body is select:
            self._names(self.owner.order_tokens, aliases)
        keys = [f"{text} AS {name}" for text, name in self.inside.keys.items()]
        partials = [f"{text} AS {name}" for text, name in self.inside.partials.items()]
        grouped = f" GROUP BY {', '.join(self.inside.keys)}" if keys else " HAVING count(*) > 0"
        yield from self.done
        yield self._instead(f"SELECT {', '.join([*keys, *partials])} FROM ", grouped)

    def _instead(self, before: str, behind: str) -> Edit:
        """The query inside, in the place of FROM and WHERE."""
        select = self.select
        assert select.from_span is not None
        where = "" if select.where is None else f" WHERE {select.where.span.of(self.text)}"
        span = Span(select.from_span.start, (select.where.span if select.where is not None else select.from_span).end)
        inner = f"{before}{select.from_span.of(self.text)}{where}{behind}"
        return Edit(span, f"({inner}) AS {quote_name(self.name)}", select.from_span)

    def _distinct(self) -> Iterator[Edit]:
        """SELECT DISTINCT: each run leaves the rows that its pairs give, each once."""
        select = self.select
        if not select.distinct or self.owner.order_tokens or select.having is not None:
            raise _Unfit
        first, last = select.items[0].span, select.items[-1].span
        items = Span(first.start, last.end)
        yield Edit(items, "*")
        yield self._instead(f"SELECT DISTINCT {items.of(self.text)} FROM ", "")

    def _groups(self) -> None:
        columns = {name for each in self.inputs for name in each.columns}
        for group in self.select.group:
            tokens = grouped_tokens(group, self.select, columns)
            name = self.inside.key(span_of(tokens).of(self.text))
            place = self._place(tokens)
            if place is not None:
                self.places[place] = name
            else:
                self.computed.append((tokens, name))
            self.done.append(Edit(group.span, name))

    def _calls(self, calls: Sequence[Call]) -> None:
        """Aggregates become those of partials; what one with DISTINCT looks at becomes a key."""
        arguments = [span_of(argument).of(self.text) for call in calls for argument in call.arguments]
        types = self.types([*arguments, *(call.span.of(self.text) for call in calls)])
        given, results = iter(types), types[len(arguments) :]
        for call, result in zip(calls, results, strict=True):
            kinds = [next(given) for _ in call.arguments]
            if call.order:
                raise _Unfit
            if call.distinct:
                for part in (*call.arguments, *([call.condition] if call.condition is not None else [])):
                    self.done.append(Edit(span_of(part), self.inside.key(span_of(part).of(self.text))))
                continue
            aggregate = aggregates.find(call.name, distinct=False, argument_types=kinds)
            if aggregate is None:
                raise _Unfit
            texts = [span_of(argument).of(self.text) for argument in call.arguments]
            condition = None if call.condition is None else span_of(call.condition).of(self.text)
            columns = {part.suffix: self.inside.partial(part.partial_sql(texts, condition)) for part in aggregate.parts}
            self.done.append(Edit(call.span, f"CAST({merged(aggregate, columns, None)} AS {result})"))

    def _item(self, tokens: Sequence[Token], alias: str | None, span: Span) -> None:
        self._names(tokens, set())
        if alias is not None:
            return
        named = list(chains(tokens))
        if len(named) == 1 and named[0].span == span_of(tokens):
            self.done.append(Edit(Span(span.end, span.end), f" AS {quote_name(named[0].parts[-1])}"))
        elif not self.outermost:  # what Spark calls it would be another name
            raise _Unfit

    def _names(self, tokens: Sequence[Token], aliases: set[str]) -> None:
        """What is grouped by, under its name inside; nothing else is there behind the groups."""
        calls = [call.span for call in aggregates_in(self.select, self.owner)]
        taken = list(calls)
        for known, name in self.computed:
            for span in occurrences(tokens, known):
                if stands_alone(tokens, span) and not _within(span, taken):
                    self.done.append(Edit(span, name))
                    taken.append(span)
        for chain in names_in(tokens):
            parts = tuple(part.lower() for part in chain.parts)
            if _within(chain.span, taken) or (len(parts) == 1 and parts[0] in aliases):
                continue
            place = place_of(parts, self.inputs)
            if place in self.places:
                self.done.append(Edit(chain.span, self.places[place]))
            elif any(parts[0] in each.columns or parts[0] == each.exposed for each in self.inputs):
                raise _Unfit

    def _place(self, tokens: Sequence[Token]) -> Place | None:
        named = list(chains(tokens))
        if len(named) != 1 or named[0].span != span_of(tokens):
            return None
        return place_of(tuple(part.lower() for part in named[0].parts), self.inputs)


def _within(span: Span, others: Sequence[Span]) -> bool:
    return any(each.start <= span.start and span.end <= each.end for each in others)


#: Words that may bind a part of an expression beside them more tightly than it holds together.
_BINDING = ("NOT", "AND", "OR", "BETWEEN", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV", "OVER")
_FINE = ("(", ")", ",", "=", "==", "<=>", "<", ">", "<=", ">=", "<>", "!=")


def stands_alone(tokens: Sequence[Token], span: Span) -> bool:
    """Whether an operator beside an expression cannot take a part of it: a + b is not in a + b * c."""
    before = next((token for token in reversed(tokens) if token.end <= span.start), None)
    after = next((token for token in tokens if token.start >= span.end), None)
    return all(
        token is None or (token.text in _FINE if token.kind == "symbol" else token.upper not in _BINDING)
        for token in (before, after)
    )
