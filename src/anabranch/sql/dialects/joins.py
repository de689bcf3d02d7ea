"""Joins of windows in Li's notation, and windows over joins.

    FROM a [RANGE 3 MINUTES, WA ts], b [RANGE 2 MINUTES, WA ts]

joins a row of a with those of b up to 3 minutes after it, and one of b with those of a up to 2 minutes after it:

    FROM a, b WHERE b.ts >= a.ts - INTERVAL 2 MINUTES AND b.ts <= a.ts + INTERVAL 3 MINUTES

The bounds of a band are inclusive; OPEN in a bracket makes its bound exclusive. FROM a, b [RANGE TUMBLING 5 MINUTES,
WA ts] joins rows of equal windows. A window after an aggregate over a join is over the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from anabranch.errors import NotSupported, problem
from anabranch.sql.calls import chains, only_name
from anabranch.sql.dialects.windows import Bracket, SpelledWindow
from anabranch.sql.lexer import QUOTED, Token
from anabranch.sql.syntax import Expression, ImpliedCondition, Item, Name, Query, Relation, Select
from anabranch.sql.text import Span, quote_name
from anabranch.sql.window_arguments import WindowArgument

_INNER = ("", ",", "JOIN", "INNER JOIN", "CROSS JOIN")
_HINT = "as in FROM a [RANGE 3 MINUTES, WA ts], b [RANGE 2 MINUTES, WA ts]"


def join_inputs(text: str, select: Select) -> Select:
    """Rewrite a SELECT in which brackets follow some relations."""
    sources = list(select.relations)
    for each in sources:
        if each.spelled is not None:
            raise problem(text, each.spelled.span, "this window does not fit those of the other inputs", _HINT)
        if each.bracket is not None:
            _check(text, each.bracket)
    windowed = [index for index, each in enumerate(sources) if each.bracket is not None]
    last = sources[windowed[-1]].bracket
    assert last is not None
    conditions: dict[int, ImpliedCondition] = {}
    if last.tumbling:
        behind = windowed[-1] + 1
        sources[:behind] = _tumbling(text, sources[:behind], last)
        starts = [Name((_exposed(text, each), "window_start"), last.span) for each in sources[:behind]]
        conditions = {
            index: ImpliedCondition("n0 = n1", (start, starts[0])) for index, start in enumerate(starts) if index
        }
    else:
        one, other = _sliding(text, sources, windowed)
        conditions[other] = _band(text, sources[one], sources[other])
    outside: list[ImpliedCondition] = []
    for index, condition in conditions.items():
        if sources[index].condition_tokens and sources[index].condition_tokens[0].upper == "ON":
            sources[index] = replace(sources[index], implied_conditions=(condition,))
        else:
            _check_inner(text, sources, index)
            outside.append(condition)
    plain = tuple(replace(each, bracket=None) for each in sources)
    return replace(select, relations=plain, implied_conditions=tuple(outside))


def _check(text: str, found: Bracket) -> None:
    """Refuse anything but a RANGE over a column in a bracket after an input."""
    for name, why in (("SLIDE", "the window of an input moves with its rows"), ("PA", "put it into the conditions"),
                      ("RATTR", "use WA"), ("SATTR", "use WA")):  # fmt: skip
        if name in found.seen:
            raise problem(text, found.seen[name], f"{name} is for the windows of aggregates", why)
    if found.range is None or found.range == "all":
        span = found.span if found.range is None else found.seen["RANGE"]
        raise problem(text, span, "the window of an input has a RANGE: how long its rows are joined", _HINT)
    if found.range.unit == "rows" or (found.attribute is not None and _special(found.attribute.last)):
        span = found.range.span if found.range.unit == "rows" else found.seen["WA"]
        raise NotSupported(
            "inputs are joined by one of their columns, not by the order of arrival",
            text=text, at=span, hint=_HINT)  # fmt: skip
    if found.origin is not None and not found.tumbling:
        raise problem(text, found.seen["ORIGIN"], "ORIGIN is for windows that tumble", "remove it")
    if found.tumbling and found.open:
        raise problem(text, found.seen.get("OPEN", found.seen["RANGE"]), "OPEN is for windows that slide")


def _special(name: str) -> bool:
    return name.lower().replace("-", "_") in ("row_num", "arrival_ts")


def _exposed(text: str, relation: Relation) -> str:
    if relation.exposed is None:
        raise problem(text, relation.span, "this input needs a name", "add AS and a name")
    return relation.exposed


# ---- bands


def _sliding(text: str, sources: Sequence[Relation], windowed: list[int]) -> tuple[int, int]:
    brackets = [each.bracket for each in sources if each.bracket is not None]
    for each in brackets:
        if each.tumbling:
            raise problem(text, each.span, "windows that slide are not joined with windows that tumble")
    if len(windowed) == 1:
        raise problem(text, brackets[0].span, "all inputs of a join need windows, and only this one has", _HINT)
    if len(windowed) > 2:
        span = brackets[2].span
        raise NotSupported(
            "windows that slide are joined two at a time", text=text, at=span,
            hint="create a view of the first two, and join that")  # fmt: skip
    return windowed[0], windowed[1]


def _band(text: str, one: Relation, other: Relation) -> ImpliedCondition:
    assert one.bracket is not None and other.bracket is not None
    left, right = _time(text, one, one.bracket), _time(text, other, other.bracket)
    pieces = []
    for bracket, sign, shift in ((other.bracket, ">", "-"), (one.bracket, "<", "+")):
        assert isinstance(bracket.range, WindowArgument)
        pieces.append(f"n1 {sign if bracket.open else f'{sign}='} n0 {shift} {bracket.range.sql}")
    return ImpliedCondition(" AND ".join(pieces), (left, right))


def _time(text: str, relation: Relation, bracket: Bracket) -> Name:
    if bracket.attribute is None:
        raise problem(text, bracket.span, "this window does not say which column has the times", _HINT)
    name = _exposed(text, relation)
    parts = bracket.attribute.parts
    if len(parts) > 1 and parts[-2].lower() != name.lower():
        raise problem(text, bracket.attribute.span, f"a window after {name} uses a column of it")
    return Name((name, parts[-1]), bracket.attribute.span)


# ---- equal windows


def _tumbling(text: str, sources: Sequence[Relation], last: Bracket) -> list[Relation]:
    """The inputs up to the last bracket, each with its window; one without a bracket has that of the next one."""
    found: list[Relation] = []
    bracket = last
    for relation in reversed(sources):
        bracket = relation.bracket or bracket
        size = bracket.range
        assert isinstance(size, WindowArgument) and isinstance(last.range, WindowArgument)
        if not bracket.tumbling:
            raise problem(text, bracket.span, "windows that slide are not joined with windows that tumble")
        if size.value != last.range.value or _origin(bracket) != _origin(last):
            raise problem(text, bracket.span, "windows that tumble are joined if they are equally long")
        attribute = bracket.attribute
        time = None if attribute is None else Name(attribute.parts[-1:], attribute.span)
        offset = replace(size, value=_origin(bracket) % size.value)
        arguments = {"size": size, **({"offset": offset} if offset.value else {})}
        found.insert(0, SpelledWindow(bracket.span, "TUMBLE", time, arguments).over(text, relation))
    return found


def _origin(bracket: Bracket) -> int:
    return 0 if bracket.origin is None else bracket.origin.value


def _check_inner(text: str, sources: Sequence[Relation], index: int) -> None:
    """Refuse outer joins: the conditions go into WHERE, which is equivalent only for inner joins."""
    joins = [each.join for each in sources]
    if joins[index] not in _INNER or any(join not in _INNER and "LEFT" not in join for join in joins):
        span = sources[index].span
        raise problem(text, span, "the windows of an outer join need a condition after ON", "as in ON a.k = b.k")


# ---- windows over joins


def pairs(text: str, query: Query, select: Select, window: SpelledWindow) -> tuple[Query, Select]:
    """FROM and WHERE of a join as a query of the columns that the rest needs, with the window around it."""
    if window.partition:
        span = window.partition[0].span
        raise problem(text, span, "PA is not for windows over a join", "put the column into GROUP BY")
    if window.time is None or _special(window.time.last):
        raise NotSupported(
            "a window over a join uses a column of one of its inputs",
            text=text, at=window.span, hint="name it, as in WA a.ts")  # fmt: skip
    columns = _Columns({each.exposed.lower() for each in select.relations if each.exposed is not None})
    along = columns.name(window.time.parts, window.time.span)
    items = tuple(_renamed_item(item, columns) for item in select.items)
    given = {item.alias.lower() for item in select.items if item.alias is not None}
    for group in select.group:
        token = group.tokens[0]
        plain = len(group.tokens) == 1 and token.is_name and token.name.lower() not in given
        if plain and not token.name.lower().startswith("window_"):
            columns.name((token.name,), token.span)

    def renamed(expressions: Sequence[Expression]) -> tuple[Expression, ...]:
        return tuple(Expression(each.span, columns.renamed(each.tokens)) for each in expressions)

    groups, order = renamed(select.group), renamed(query.order_expressions)
    having = renamed([select.having] if select.having is not None else [])
    first, last = select.relations[0].span, select.where or select.relations[-1]
    end = max([last.span.end, *(each.condition.end for each in select.relations if each.condition is not None)])
    span = Span(first.start, end)
    here = [each.span.start < end for each in select.subqueries]
    inner = replace(
        select, span=span, items=tuple(columns.items()), group=(), group_span=None, having=None, having_span=None,
        subqueries=tuple(each for each, inside in zip(select.subqueries, here, strict=True) if inside), implied=True,
    )  # fmt: skip
    around = replace(window, time=Name((along,), window.time.span))
    relation = Relation("subquery", span, alias="__pairs", subquery=Query(span, inner))
    outer = replace(
        select, items=items, relations=(around.over(text, relation),), where=None, group=groups, implied_conditions=(),
        having=having[0] if having else None,
        subqueries=tuple(each for each, inside in zip(select.subqueries, here, strict=True) if not inside),
    )  # fmt: skip
    tokens = columns.renamed(query.order_tokens)
    return replace(query, order_tokens=tokens, order_expressions=order), outer


class _Columns:
    """The columns of pairs: each under a name with its input."""

    def __init__(self, inputs: set[str]) -> None:
        self.inputs = inputs
        self.found: dict[tuple[str, ...], tuple[str, tuple[str, ...], Span]] = {}

    def name(self, parts: tuple[str, ...], span: Span) -> str:
        key = tuple(part.lower() for part in parts)
        if key not in self.found:
            name = "_".join(parts[-2:])
            while name.lower() in {known.lower() for known, _, _ in self.found.values()}:
                name += "_"
            self.found[key] = (name, parts, span)
        return self.found[key][0]

    def items(self) -> Iterator[Item]:
        for name, parts, span in self.found.values():
            tokens: list[Token] = []
            for index, part in enumerate(parts):
                start = span.start + 2 * index
                tokens += [Token("symbol", ".", start - 1, start)] if index else []
                end = span.end if index == len(parts) - 1 else start + 1
                tokens.append(Token(QUOTED, quote_name(part), start, end))
            yield Item(span, span, name, tuple(tokens))

    def renamed(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        """Tokens with the columns of inputs renamed to those of pairs."""
        made: list[Token] = []
        done = 0
        places = {token.start: index for index, token in enumerate(tokens)}
        for chain in chains(tokens):
            if len(chain.parts) > 1 and chain.parts[0].lower() in self.inputs:
                at = places[chain.span.start]
                name = self.name(tuple(chain.parts), chain.span)
                made += [*tokens[done:at], Token(QUOTED, quote_name(name), chain.span.start, chain.span.end)]
                done = at + 2 * len(chain.parts) - 1
        return (*made, *tokens[done:])


def _renamed_item(item: Item, columns: _Columns) -> Item:
    """An item of the SELECT list over pairs, with its original name."""
    named = only_name(item.tokens)
    tokens = columns.renamed(item.tokens)
    if named is not None and tokens == item.tokens and not named.parts[-1].lower().startswith("window_"):
        columns.name(named.parts, named.span)
    alias = item.alias or (named.parts[-1] if named is not None and tokens != item.tokens else None)
    return replace(item, tokens=tokens, alias=alias)
