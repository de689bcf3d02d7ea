"""GROUPING SETS, ROLLUP and CUBE as a union of plain groups, each with keys of its own:

    SELECT k, g, grouping(g) AS all_g, sum(n) AS n FROM s GROUP BY ROLLUP (k, g)

is planned as

    SELECT k, g, CAST(0 AS TINYINT) AS all_g, sum(n) AS n FROM s GROUP BY k, g
    UNION ALL SELECT k, CAST(NULL AS STRING) AS `g`, CAST(1 AS TINYINT) AS all_g, sum(n) AS n FROM s GROUP BY k
    UNION ALL SELECT CAST(NULL AS INT) AS `k`, CAST(NULL AS STRING) AS `g`, ... FROM s GROUP BY (1 = 1)

Over no rows there is no row, in the set without columns neither, as in Spark; only if that is the only set there is
one, and such a query stays as it is. So does one with a name in it that is not clearly one of the columns grouped by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from anabranch.errors import AnabranchError
from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze, grouped_tokens
from anabranch.plan.catalog import Catalog
from anabranch.plan.keys import limited
from anabranch.plan.rewriting import rewritten_throughout
from anabranch.plan.scope import Scope, Unfit, span_of, types_of
from anabranch.sql.calls import (
    Call,
    aggregate_calls,
    chains,
    clock_calls,
    closing,
    generators,
    occurrences,
    split_commas,
    window_calls,
)
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.lexer import Span, Token, normal_form, quote_name
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Expression, Query, Select

#: More sets than these are computed as one query.
MAX_SETS = 16
#: What the set without columns is grouped by: all rows are one group then, and no rows are none.
_ALL = "(1 = 1)"
_Tokens = tuple[Token, ...]


def without_grouping_sets(text: str, query: Query, catalog: Catalog, analyze: Analyze) -> tuple[str, Query]:
    """The query with its sets of groups as unions."""

    def step(text: str, query: Query) -> list[Edit]:
        return _next(text, query, Binder(text, catalog, query), analyze)

    return rewritten_throughout(text, query, step)


def _next(text: str, query: Query, binder: Binder, analyze: Analyze) -> list[Edit]:
    for select, owner in query.selects():
        if select.group and not select.group_plain and owner.body is select:
            try:
                return list(_Sets(text, query, select, owner, binder, analyze).edits())
            except (Unfit, AnabranchError):
                continue
    return []


# ---------------------------------------------------------------------------------------------- the sets


def sets_of(group: Sequence[Expression]) -> list[list[_Tokens]]:
    """The sets of expressions that a GROUP BY clause stands for."""
    parts = [part.tokens for part in group]
    last = parts[-1]
    words = [token.upper for token in last]
    if words[-2:] in (["WITH", "ROLLUP"], ["WITH", "CUBE"]) and len(last) > 2:
        members = [[each] for each in (*parts[:-1], last[:-2])]
        return _expanded(words[-1], members)
    start = next((i for i, word in enumerate(words) if word == "GROUPING" and words[i + 1 : i + 2] == ["SETS"]), 0)
    if start:  # GROUP BY a, b GROUPING SETS ((a), (b))
        return _sets(last[start:])
    return [[each for members in chosen for each in members] for chosen in product(*(_sets(part) for part in parts))]


def _sets(tokens: _Tokens) -> list[list[_Tokens]]:
    """What one part of the clause stands for; an expression is one set of itself."""
    word = tokens[0].upper
    opening = 2 if word == "GROUPING" and len(tokens) > 2 and tokens[1].upper == "SETS" else 1
    if word not in ("ROLLUP", "CUBE", "GROUPING") or len(tokens) <= opening or tokens[opening].text != "(":
        return [[tokens]]
    if closing(tokens, opening) != len(tokens) - 1:
        raise Unfit
    members = [tuple(each) for each in split_commas(tokens[opening + 1 : -1])]
    if word == "GROUPING":
        return [each for member in members for each in _member(member)]
    return _expanded(word, [_columns(member) for member in members])


def _member(tokens: _Tokens) -> list[list[_Tokens]]:
    """What stands in GROUPING SETS (...): a list in brackets, an expression, or sets again."""
    if tokens[0].upper in ("ROLLUP", "CUBE", "GROUPING"):
        return _sets(tokens)
    return [_columns(tokens)]


def _columns(tokens: _Tokens) -> list[_Tokens]:
    if tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1:
        return [tuple(each) for each in split_commas(tokens[1:-1])]
    return [tokens]


def _expanded(word: str, members: list[list[_Tokens]]) -> list[list[_Tokens]]:
    if word == "ROLLUP":
        chosen = [members[:length] for length in range(len(members), -1, -1)]
    else:
        if len(members) > 8:
            raise Unfit
        chosen = [list(each) for length in range(len(members), -1, -1) for each in combinations(members, length)]
    return [[each for member in picked for each in member] for picked in chosen]


# ---------------------------------------------------------------------------------------------- the union


class _Sets:
    """One SELECT that groups by several sets, and the edits that make it a union."""

    def __init__(self, text: str, root: Query, select: Select, owner: Query, binder: Binder, analyze: Analyze) -> None:
        if select.distinct or select.tail or select.lateral or select.subqueries or limited(owner):
            raise Unfit
        self.text = text
        self.root = root
        self.select = select
        self.owner = owner
        self.binder = binder
        self.analyze = analyze
        self.scope = Scope(select, binder)
        self.names = {name for columns in self.scope.columns for name in columns}
        self.sets = [self._distinct(each) for each in sets_of(select.group)]
        if not 1 < len(self.sets) <= MAX_SETS or not any(self.sets):
            raise Unfit
        self.keys = self._distinct(each for members in self.sets for each in members)
        if any(any(window_calls(each)) for each in self.keys):
            raise Unfit
        if any(self._overlaps(one, other) for one in self.keys for other in self.keys if one is not other):
            raise Unfit
        self.places = [item.tokens for item in select.items]
        self.places += [select.having.tokens] if select.having is not None else []
        self.types: dict[str, str] = {}

    def _distinct(self, members: Sequence[_Tokens] | Iterator[_Tokens]) -> list[_Tokens]:
        """Each expression once, with what it stands for in place of aliases and ordinals."""
        found: dict[str, _Tokens] = {}
        for tokens in members:
            meant = grouped_tokens(Expression(span_of(tokens), tokens), self.select, self.names)
            found.setdefault(self._form(meant), meant)
        return list(found.values())

    def _form(self, tokens: _Tokens) -> str:
        """Equal for expressions that are the same; a column is the same with its relation's name before it."""
        column = self._column(tokens)
        return f"#{column[0]}.{column[1]}" if column is not None else normal_form(list(tokens))

    def _column(self, tokens: Sequence[Token]) -> tuple[int, str] | None:
        named = list(chains(tokens))
        if len(named) != 1 or named[0].span != span_of(tokens):
            return None
        parts = [part.lower() for part in named[0].parts]
        found = self.scope.find(parts)
        if found is None or len(parts) != 1 + found[2] or (of_the_language(tokens[0]) and len(parts) == 1):
            raise Unfit
        return found[0], found[1]

    def _overlaps(self, one: _Tokens, other: _Tokens) -> bool:
        """Whether what is grouped by is a part of something else that is."""
        return bool(self._occurrences(one, other))

    # ---- edits

    def edits(self) -> Iterator[Edit]:
        select = self.select
        assert select.from_span is not None
        self._check()
        expressions = [span_of(each).of(self.text) for each in self.keys]
        types = types_of(expressions, select.from_span.of(self.text), self.root, self.binder, self.analyze)
        self.types = {self._form(each): type for each, type in zip(self.keys, types, strict=True)}
        shared, ctes = self._shared()
        first, *others = [[*self._branch(members), *shared] for members in self.sets]
        yield from first
        end = Span(select.span.end, select.span.end)
        for branch in others:
            yield Edit(end, " UNION ALL ", select.span)
            yield Edit(end, splice(self.text, select.span, branch).text, select.span)
        if ctes:
            start = Span(select.span.start, select.span.start)
            if self.owner.ctes:
                behind = Span(self.owner.cte_spans[-1].end, self.owner.cte_spans[-1].end)
                yield Edit(behind, ", " + ", ".join(ctes), select.span)
            else:
                yield Edit(start, f"WITH {', '.join(ctes)} ", select.span)

    def _check(self) -> None:
        """Refuse what is not clearly made of what is grouped by."""
        select = self.select
        for tokens in self.places:
            if any(clock_calls(tokens)) or any(generators(tokens)) or any(token.upper == "OVER" for token in tokens):
                raise Unfit
        if any(item.star for item in select.items):
            raise Unfit
        inner = self.owner is not self.root
        for item in select.items:
            if item.alias is None and inner and self._named(item.tokens) is None:
                raise Unfit  # what Spark calls it would be another name
        shown = {(item.alias or self._named(item.tokens) or "").lower() for item in select.items}
        ordered = self.owner.order_tokens
        starts = {token.start: token for token in ordered}
        for chain in names_in(ordered):
            word = of_the_language(starts[chain.span.start])
            if len(chain.parts) > 1 or (chain.parts[0].lower() not in shown and not word):
                raise Unfit
        if any(aggregate_calls(ordered)):
            raise Unfit

    def _named(self, tokens: Sequence[Token]) -> str | None:
        named = list(chains(tokens))
        return named[0].parts[-1] if len(named) == 1 and named[0].span == span_of(tokens) else None

    def _shared(self) -> tuple[list[Edit], list[str]]:
        """Queries in the FROM clause as common table expressions, so that all sets read one node."""
        edits, ctes = [], []
        number = 0
        for relation in self.select.relations:
            if relation.subquery is None or relation.window is not None or relation.watermarks:
                continue
            if self.owner.dropped or relation.subquery.ctes:
                raise Unfit
            while f"__f{number}" in self.text:
                number += 1
            name = f"__f{number}"
            number += 1
            ctes.append(f"{name} AS ({relation.subquery.span.of(self.text)})")
            edits.append(Edit(relation.span, name))
        return edits, ctes

    def _branch(self, members: Sequence[_Tokens]) -> Iterator[Edit]:
        """The SELECT over the groups of one set."""
        select = self.select
        assert select.group_span is not None
        there = {self._form(each) for each in members}
        for index, item in enumerate(select.items):
            edits = list(self._replaced(item.tokens, there, having=False))
            yield from edits
            if edits and item.alias is None:
                name = self._named(item.tokens) or f"__g{index}"
                yield Edit(Span(item.span.end, item.span.end), f" AS {quote_name(name)}", item.span)
        if select.having is not None:
            yield from self._replaced(select.having.tokens, there, having=True)
        keys = ", ".join(span_of(each).of(self.text) for each in members) or _ALL
        yield Edit(select.group_span, f"GROUP BY {keys}")

    def _replaced(self, tokens: _Tokens, there: set[str], *, having: bool) -> Iterator[Edit]:
        """NULL in place of what is not grouped by, and constants for what asks which that is."""
        calls = list(aggregate_calls(tokens))
        taken: list[Span] = []
        for call in calls:
            taken.append(call.span)
            if call.name in ("grouping", "grouping_id"):
                yield Edit(call.span, self._asked(call, there), call.span)
        for key in sorted(self.keys, key=len, reverse=True):
            form = self._form(key)
            spans = self._occurrences(tokens, key)
            for span in spans:
                if any(each.start < span.end and span.start < each.end for each in taken):
                    continue
                taken.append(span)
                if form not in there:
                    yield Edit(span, f"CAST(NULL AS {self.types[form].upper()})", span)
        starts = {token.start: token for token in tokens}
        given = {item.alias.lower() for item in self.select.items if item.alias is not None} if having else set()
        for chain in names_in(tokens):
            if any(each.start <= chain.span.start < each.end for each in taken):
                continue
            name = chain.parts[0].lower()
            if name in self.names or not (of_the_language(starts[chain.span.start]) or name in given):
                raise Unfit

    def _occurrences(self, tokens: _Tokens, key: _Tokens) -> list[Span]:
        column = self._column(key)
        if column is None:
            return [span for span in occurrences(tokens, key) if stands_alone(tokens, span)]
        found = []
        for chain in names_in(tokens):
            parts = [part.lower() for part in chain.parts]
            place = self.scope.find(parts)
            if place is None or (place[0], place[1]) != column:
                continue
            own = [token for token in tokens if chain.span.start <= token.start < chain.span.end]
            found.append(span_of(own[: 1 + 2 * place[2]]))
        return found

    def _asked(self, call: Call, there: set[str]) -> str:
        """What grouping(k) and grouping_id() are in a set: a 1 for each that is not grouped by."""
        asked = [self._form(each) for each in call.arguments]
        known = [self._form(each) for each in self.keys]
        if call.condition is not None or call.distinct or any(each not in known for each in asked):
            raise Unfit
        if call.name == "grouping":
            if len(asked) != 1:
                raise Unfit
            return f"CAST({int(asked[0] not in there)} AS TINYINT)"
        if asked and asked != known:
            raise Unfit
        bits = "".join(str(int(each not in there)) for each in known)
        return f"CAST({int(bits, 2)} AS BIGINT)"


def stands_alone(tokens: Sequence[Token], span: Span) -> bool:
    """Whether an operator beside an expression cannot take a part of it: a + b is not in a + b * c."""
    before = next((token for token in reversed(tokens) if token.end <= span.start), None)
    after = next((token for token in tokens if token.start >= span.end), None)
    fine = ("(", ")", ",", "=", "==", "<=>", "<", ">", "<=", ">=", "<>", "!=")
    words = ("AND", "OR", "WHEN", "THEN", "ELSE", "END", "CASE")
    return all(each is None or each.text in fine or each.upper in words for each in (before, after))
