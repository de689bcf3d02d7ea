"""GROUPING SETS, ROLLUP and CUBE as plain groups, of rows that are there once for each set:

    SELECT k, g, grouping(g) AS all_g, sum(n) AS n FROM s GROUP BY ROLLUP (k, g)

in other words:

    SELECT `__g0` AS `k`, `__g1` AS `g`, CAST(shiftright(`__set`, 0) & 1 AS TINYINT) AS all_g, sum(`__r0`) AS n
    FROM (SELECT `s`.`n` AS `__r0`, k AS `__g0`, g AS `__g1`, 0 AS `__set` FROM s
          UNION ALL SELECT `s`.`n` AS `__r0`, k AS `__g0`, CAST(NULL AS STRING) AS `__g1`, 1 AS `__set` FROM s
          UNION ALL ...) AS `__records`
    GROUP BY `__g0`, `__g1`, `__set`

So each group counts its own rows, which a union of aggregates (`grouping_sets`) could not say of a trigger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze, grouped_tokens
from anabranch.plan.grouping_sets import MAX_SETS, sets_of, stands_alone
from anabranch.plan.inside import RECORDS, Inside
from anabranch.plan.scope import Unfit, span_of, types_of
from anabranch.sql.calls import Call, aggregate_calls, chains, generators, occurrences, window_calls
from anabranch.sql.columns import names_in
from anabranch.sql.lexer import Span, Token, normal_form, quote_name
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Expression, Item, Query, Select

_KEY, _SET = "__g{}", "`__set`"
_Tokens = tuple[Token, ...]


class _Keyed(Inside):
    """A SELECT with what it groups by, each expression once."""

    def __init__(self, select: Select, owner: Query, binder: Binder) -> None:
        super().__init__(select, owner, binder)
        self.known = {name.lower() for names in self.columns for name in names}
        self.keys: dict[str, _Tokens] = {}

    def _meant(self, tokens: _Tokens) -> _Tokens:
        return grouped_tokens(Expression(span_of(tokens), tokens), self.select, self.known)

    def _group(self, keys: Iterable[_Tokens]) -> None:
        for each in keys:
            self.keys.setdefault(self._form(each), each)
        if any(any(window_calls(each)) for each in self.keys.values()):
            raise Unfit("the function window in GROUP BY")
        for form, key in self.keys.items():
            for other in self.keys.values():
                if other is not key and any(self._places(other, form, key, behind=False)):
                    raise Unfit("groups by something and by a part of it")

    def _form(self, tokens: Sequence[Token]) -> str:
        """Equal for expressions that are the same; a column is the same with its relation's name before it."""
        named = list(chains(tokens))
        if len(named) == 1 and named[0].span == span_of(tokens):
            found = self._column([part.lower() for part in named[0].parts])
            if found is not None and found[1] == len(named[0].parts):
                return found[0]
        return normal_form(list(tokens))

    def _places(self, tokens: Sequence[Token], form: str, key: _Tokens, *, behind: bool) -> Iterator[Span]:
        """Where something that is grouped by stands in an expression."""
        starts = {token.start: index for index, token in enumerate(tokens)}
        for chain in names_in(tokens):
            parts = [part.lower() for part in chain.parts]
            found = None if behind and self._is_alias(parts) else self._column(parts)
            if found is not None and found[0] == form:
                index = starts[chain.span.start]
                yield Span(chain.span.start, tokens[index + 2 * (found[1] - 1)].end)
        if len(key) > 1:
            yield from (span for span in occurrences(tokens, key) if stands_alone(tokens, span))

    def _by_keys(self, tokens: Sequence[Token], taken: list[Span], *, behind: bool) -> Iterator[Edit]:
        """What is grouped by in the columns of its own; what was found is `taken` then."""
        for index, (form, key) in sorted(enumerate(self.keys.items()), key=lambda each: -len(each[1][1])):
            for span in self._places(tokens, form, key, behind=behind):
                if not any(each.start < span.end and span.start < each.end for each in taken):
                    taken.append(span)
                    yield Edit(span, quote_name(_KEY.format(index)), span)


class AggregatedFirst(_Keyed):
    """A SELECT that makes rows of aggregates, over a query inside that has these:

        SELECT k, explode(collect_list(v)) AS v FROM s GROUP BY k

    is `SELECT __g0 AS k, explode(__a0) AS v FROM (SELECT k AS __g0, collect_list(v) AS __a0 FROM s GROUP BY k)`.
    """

    def edits(self) -> Iterator[Edit]:
        select = self.select
        assert select.from_span is not None
        ordered = self.owner.body is select and self.owner.order_tokens
        if select.subqueries or select.tail or not select.group_plain or ordered:
            raise Unfit("a function that makes rows beside aggregates")
        self._group(self._meant(each.tokens) for each in select.group)
        calls = [call for item in select.items for call in aggregate_calls(item.tokens)]
        names = {call.key: quote_name(f"__a{index}") for index, call in enumerate(calls)}
        for item in select.items:
            taken = [call.span for call in aggregate_calls(item.tokens)]
            edits = [Edit(call.span, names[call.key], call.span) for call in aggregate_calls(item.tokens)]
            edits += self._by_keys(item.tokens, taken, behind=False)
            yield from edits
            named = list(chains(item.tokens))
            if edits and item.alias is None and named and not any(generators(item.tokens)):
                yield Edit(Span(item.span.end, item.span.end), f" AS {quote_name(named[-1].parts[-1])}", item.span)
        keys = [
            f"{span_of(key).of(self.text)} AS {quote_name(_KEY.format(index))}"
            for index, key in enumerate(self.keys.values())
        ]
        made = [f"{call.span.of(self.text)} AS {names[call.key]}" for call in {c.key: c for c in calls}.values()]
        rest = self.text[select.from_span.end : select.span.end]
        if select.group_span is not None:
            groups = ", ".join(span_of(key).of(self.text) for key in self.keys.values())
            rest = f"{self.text[select.from_span.end : select.group_span.start]}GROUP BY {groups}"
            rest += self.text[select.group_span.end : select.span.end]
        inner = f"SELECT {', '.join([*keys, *made])} FROM {select.from_span.of(self.text)}{rest}"
        yield Edit(Span(select.from_span.start, select.span.end), f"({inner}) AS {quote_name(RECORDS)}", select.span)


class Expanded(_Keyed):
    """A SELECT that groups by several sets, over a query inside that has each row once for each of them."""

    def __init__(self, select: Select, owner: Query, binder: Binder, analyze: Analyze) -> None:
        super().__init__(select, owner, binder)
        self.binder = binder
        self.analyze = analyze
        self.sets = [[self._meant(each) for each in members] for members in sets_of(select.group)]
        if not 1 < len(self.sets) <= MAX_SETS or not any(self.sets):
            raise Unfit(f"one set of groups without columns, or more than {MAX_SETS} sets")
        self._group(each for members in self.sets for each in members)

    def edits(self) -> Iterator[Edit]:
        select = self.select
        assert select.from_span is not None
        assert select.group_span is not None
        self._prepare()
        for item in select.items:
            yield from self._item(item)
        behind = [select.having.tokens] if select.having is not None else []
        for tokens in [*behind, *([self.owner.order_tokens] if self.owner.body is select else [])]:
            yield from self._names(tokens, behind=True)
        numbers = [quote_name(_KEY.format(index)) for index in range(len(self.keys))]
        yield Edit(select.group_span, f"GROUP BY {', '.join([*numbers, _SET])}", select.group_span)
        texts = [span_of(each).of(self.text) for each in self.keys.values()]
        types = types_of(texts, select.from_span.of(self.text), self.binder.query, self.binder, self.analyze)
        where = "" if select.where is None else f" WHERE {select.where.span.of(self.text)}"
        span = Span(select.from_span.start, (select.where.span if select.where is not None else select.from_span).end)
        source = f"{select.from_span.of(self.text)}{where}"
        read = [f"{column} AS {name}" for column, name in self.read.items()]
        rows = []
        for members in self.sets:
            there = {self._form(each) for each in members}
            known = zip(self.keys, texts, types, numbers, strict=True)
            shown = [
                f"{text if form in there else f'CAST(NULL AS {type.upper()})'} AS {name}"
                for form, text, type, name in known
            ]
            rows.append(f"SELECT {', '.join([*read, *shown])}, {self._number(there)} AS {_SET} FROM {source}")
        yield Edit(span, f"({' UNION ALL '.join(rows)}) AS {quote_name(RECORDS)}", select.from_span)

    def _number(self, there: set[str]) -> int:
        """The number of a set: a 1 for each expression that is not in it, the first one leftmost."""
        return int("".join(str(int(form not in there)) for form in self.keys), 2)

    def _item(self, item: Item) -> Iterator[Edit]:
        edits = list(self._names(item.tokens))
        yield from edits
        if item.alias is None and edits:
            named = list(chains(item.tokens))
            plain = len(named) == 1 and named[0].span == span_of(item.tokens)
            if not plain and not self.outermost:
                raise Unfit("a column without a name")
            if plain:
                yield Edit(Span(item.span.end, item.span.end), f" AS {quote_name(named[0].parts[-1])}", item.span)

    def _names(self, tokens: Sequence[Token], *, behind: bool = False, taken: Sequence[Span] = ()) -> Iterator[Edit]:
        """What is grouped by in the columns of its own, but inside aggregates, which are over the rows as they were."""
        calls = list(aggregate_calls(tokens))
        asks = [call for call in calls if call.name in ("grouping", "grouping_id")]
        for call in asks:
            yield Edit(call.span, self._asked(call), call.span)
        found = [*taken, *(call.span for call in calls)]
        inside = len(found)
        yield from self._by_keys(tokens, found, behind=behind)
        yield from super()._names(tokens, behind=behind, taken=[*taken, *(call.span for call in asks), *found[inside:]])

    def _asked(self, call: Call) -> str:
        """What grouping(k) and grouping_id() are: a 1 for each that is not grouped by."""
        asked = [self._form(each) for each in call.arguments]
        known = list(self.keys)
        if call.condition is not None or call.distinct or any(each not in known for each in asked):
            raise Unfit(f"{call.name} of something that is not grouped by")
        if call.name == "grouping_id" and (not asked or asked == known):
            return f"CAST({_SET} AS BIGINT)"
        if call.name == "grouping" and len(asked) == 1:
            return f"CAST(shiftright({_SET}, {len(known) - 1 - known.index(asked[0])}) & 1 AS TINYINT)"
        raise Unfit(f"{call.name} of some of what is grouped by")
