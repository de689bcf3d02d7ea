"""The history of a SELECT that aggregates, given that of its rows: what the groups are from moment to moment.

Over rows that only come, an aggregate is a running one, with a row for each moment at which its group grows:

    sum(v) OVER (PARTITION BY k ORDER BY __from RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)

Where rows go too, or where Spark has no running form of an aggregate, the time of each group is cut at the moments at
which its rows come and go, and the aggregate is computed over the rows of each stretch. One row for everything is there
before any row is: that of the aggregates over nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from anabranch.plan.blocks import grouped_tokens
from anabranch.plan.intervals import BEFORE, FROM, OPEN, TO, History, in_stretches, names
from anabranch.plan.scope import Unfit, span_of
from anabranch.plan.winners import LISTS, TEXTS, depends_on_order
from anabranch.sql.calls import Call, aggregate_calls, generators, window_calls
from anabranch.sql.columns import names_in
from anabranch.sql.lexer import Span, Token, quote_name, words
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Item, Select

#: Aggregates that skip NULLs and take one value of a row, so that a row that does not count can be NULL instead.
_RUNNING = words(
    """any avg bit_and bit_or bit_xor bool_and bool_or count every kurtosis max mean min skewness some std stddev
    stddev_pop stddev_samp count_if sum try_avg try_sum var_pop var_samp variance approx_count_distinct"""
)
#: Those with two values, which run as long as all rows count.
_RUNNING_PAIRS = words(
    "corr covar_pop covar_samp max_by min_by regr_avgx regr_avgy regr_count regr_slope regr_sxx regr_sxy regr_syy"
)
#: Aggregates that pick a row by an order, and those whose value depends on one that nothing can say.
BY_ORDER = ("min_by", "max_by")
_UNORDERED = words("histogram_numeric approx_top_k grouping grouping_id")
_SO_FAR = f"ORDER BY {FROM} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


class Groups:
    """One such SELECT, over rows that are a relation of a name; `names` are the edits that find its columns there."""

    def __init__(
        self,
        text: str,
        select: Select,
        rows: History,
        name: str,
        known: set[str],
        edits: Callable[[Sequence[Token]], Iterator[Edit]],
        shown: Sequence[tuple[Item, str]],
    ) -> None:
        if not select.group_plain:
            raise Unfit("several sets of groups")
        self.text = text
        self.select = select
        self.rows = rows
        self.name = quote_name(name)
        self.known = known
        self.edits = edits
        self.shown = shown
        self.columns = tuple(name for _, name in shown)
        if len({name.lower() for name in self.columns}) < len(self.columns):
            raise Unfit("two columns of one name")
        having = select.having.tokens if select.having is not None else ()
        self.calls = [
            call for tokens in (*(item.tokens for item, _ in shown), having) for call in aggregate_calls(tokens)
        ]
        self.keys = [self._plain(grouped_tokens(group, select, known)) for group in select.group]
        self._check()

    def _check(self) -> None:
        for group in self.select.group:
            if any(window_calls(group.tokens)):
                raise Unfit("the function window in GROUP BY")
        if any(any(generators(item.tokens)) for item, _ in self.shown):
            raise Unfit("a function that makes rows beside an aggregate")
        places = [item.tokens for item, _ in self.shown]
        places += [self.select.having.tokens] if self.select.having is not None else []
        for tokens in places:
            for call in aggregate_calls(tokens):
                if call.name.split()[0] in _UNORDERED or (depends_on_order(call) and not _ordered(call, tokens)):
                    raise Unfit(f"{call.name}, which depends on the order of rows")

    def history(self) -> History:
        if self.select.group and not self.calls and self.rows.appends:
            text = f"SELECT {self._items()}, min({self.name}.{FROM}) AS {FROM}, {OPEN} AS {TO} FROM {self._rows()}"
            return History(f"{text} GROUP BY {self._groups()}{self._having()}", self.columns, True, True)
        running = self.rows.appends and all(_running(call) for call in self.calls)
        text = self._running() if running else self._in_stretches()
        if not self.select.group:
            text = f"({text}) UNION ALL ({self._at_first()})"
        return History(text, self.columns, appends=False, tidy=False)

    # ---- forms

    def _at_first(self) -> str:
        """The aggregates over nothing, until the first row comes."""
        first = f"min({self.name}.{FROM})"
        nothing = self._filters("false")
        having = self._having(nothing, f"coalesce({first}, 0) > -1")
        shown = f"{self._items(nothing)}, {BEFORE} AS {FROM}, {first} AS {TO}"
        return f"SELECT {shown} FROM {self._rows()}{having}"

    def _running(self) -> str:
        """The aggregates of all rows so far, at each moment at which there are more."""
        apart = f"PARTITION BY {', '.join(self.keys)} " if self.keys else ""
        columns = names(self.rows.columns, self.name)
        calls = {call.key: call for call in self.calls}
        values = {key: f"__a{index}" for index, key in enumerate(calls)}
        so_far = [f"{self._over(call)} OVER ({apart}{_SO_FAR}) AS {values[key]}" for key, call in calls.items()]
        moments = ", ".join([*self.keys, f"{self.name}.{FROM}"])
        number = f"row_number() OVER (PARTITION BY {moments} ORDER BY {FROM}) AS __n"
        inner = f"SELECT {', '.join([columns, f'{self.name}.{FROM}', *so_far, number])} FROM {self._rows()}"
        last = f"lead({FROM}) OVER ({apart}ORDER BY {FROM}) AS {TO}"
        kept = ", ".join([columns, *values.values(), FROM, last])
        middle = f"SELECT {kept} FROM ({inner}) AS {self.name} WHERE __n = 1"
        instead = [Edit(call.span, f"{self.name}.{values[call.key]}") for call in self.calls]
        where = f" WHERE {self._condition(instead)}" if self.select.having is not None else ""
        shown = f"{self._items(instead)}, {self.name}.{FROM}, {self.name}.{TO}"
        return f"SELECT {shown} FROM ({middle}) AS {self.name}{where}"

    def _in_stretches(self) -> str:
        """The aggregates over the rows of each stretch of time in which none of a group comes or goes.

        Without keys a row is there once more, behind its end, and not counted: the aggregates over nothing are a row,
        too.
        """
        source = in_stretches(self._rows(), self.rows.columns, self.name, self.keys, beyond=not self.keys)
        filters = [] if self.keys else self._filters(f"{self.name}.__here")
        groups = ", ".join([*([self._groups()] if self.keys else []), f"{self.name}.__p", f"{self.name}.__q"])
        shown = f"{self._items(filters)}, {self.name}.__p AS {FROM}, {self.name}.__q AS {TO}"
        return f"SELECT {shown} FROM ({source}) AS {self.name} GROUP BY {groups}{self._having(filters)}"

    # ---- texts

    def _rows(self) -> str:
        return f"({self.rows.text}) AS {self.name}"

    def _plain(self, tokens: Sequence[Token], more: Iterable[Edit] = ()) -> str:
        return splice(self.text, span_of(tokens), [*self.edits(tokens), *more]).text

    def _items(self, more: Sequence[Edit] = ()) -> str:
        return ", ".join(
            f"{self._plain(item.tokens, more_in(item.tokens, more))} AS {quote_name(name)}" for item, name in self.shown
        )

    def _groups(self) -> str:
        return ", ".join(self._plain(group.tokens) for group in self.select.group)

    def _having(self, more: Sequence[Edit] = (), also: str = "") -> str:
        found = [also] if also else []
        found += [self._condition(more)] if self.select.having is not None else []
        return f" HAVING {' AND '.join(found)}" if found else ""

    def _condition(self, more: Sequence[Edit]) -> str:
        """The condition behind HAVING, with what the names of the SELECT list stand for in their places."""
        assert self.select.having is not None
        tokens = self.select.having.tokens
        given = {item.alias.lower(): item for item, _ in self.shown if item.alias is not None}
        edits: list[Edit] = []
        inside = [call.span for call in self.calls]
        for chain in names_in(tokens):
            item = given.get(chain.parts[0].lower())
            if item is None or any(span.start <= chain.span.start < span.end for span in inside):
                continue
            if chain.parts[0].lower() in self.known:
                if item.tokens[-1].name.lower() != chain.parts[0].lower():
                    raise Unfit(f"the name {chain.parts[0]}, which is that of a column as well")
                continue
            start = Span(
                chain.span.start,
                chain.span.start + next(t.end - t.start for t in tokens if t.start == chain.span.start),
            )
            edits.append(Edit(start, f"({self._plain(item.tokens, more_in(item.tokens, more))})"))
        return f"({self._plain(tokens, [*more_in(tokens, more), *edits])})"

    def _over(self, call: Call) -> str:
        """A call that can be a window function: of rows that do not count, it takes nothing."""
        if call.condition is None:
            return self._plain_span(call.span, call)
        condition = self._plain(call.condition)
        value = self._plain(call.arguments[0]) if call.arguments else "1"
        return f"{call.name}(CASE WHEN {condition} THEN {value} END)"

    def _plain_span(self, span: Span, call: Call) -> str:
        edits = [edit for argument in call.arguments for edit in self.edits(argument)]
        return splice(self.text, span, edits).text

    def _filters(self, condition: str) -> list[Edit]:
        """What leaves rows out of all aggregates."""
        found: list[Edit] = []
        for call in self.calls:
            if call.condition is None:
                found.append(Edit(Span(call.span.end, call.span.end), f" FILTER (WHERE {condition})"))
                continue
            start, end = call.condition[0].start, call.condition[-1].end
            found += [Edit(Span(start, start), "("), Edit(Span(end, end), f") AND {condition}")]
        return found


def more_in(tokens: Sequence[Token], edits: Sequence[Edit]) -> list[Edit]:
    """The edits of an expression."""
    whole = span_of(tokens)
    return [edit for edit in edits if whole.start <= edit.span.start and edit.span.end <= whole.end]


def _ordered(call: Call, tokens: Sequence[Token]) -> bool:
    """Whether such an aggregate says itself in which order, as it is written where ties are broken."""
    if call.name in BY_ORDER:
        return any(token.upper == "STRUCT" for token in call.arguments[1])
    if call.name == "mode":
        return len(call.arguments) == 2
    if call.name.split()[0] in TEXTS:
        return bool(call.order)
    before = [token.text for token in tokens if token.end <= call.span.start][-2:]
    return call.name in (*LISTS, "collect_set") and before == ["array_sort", "("]


def _running(call: Call) -> bool:
    """Whether Spark takes a call as a window function over a frame that grows."""
    if call.distinct or call.order:
        return False
    if call.name in _RUNNING_PAIRS and len(call.arguments) == 2:
        return call.condition is None
    return call.name in _RUNNING and len(call.arguments) <= 1
