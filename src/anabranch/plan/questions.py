"""What the conditions of a join ask of a table outside: columns of it that compare with expressions over one relation.

    ON t.id = s.id                     by equality: each key has rows of its own
    ON t.low <= s.x AND s.x < t.high   by comparisons, where nothing is equal

Whatever is not found here is Spark's to compute, over what was found. So is everything that is found here, once more:
a question may bring more rows than it should, never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import NotSupported, SqlError
from anabranch.plan.bind import refuse
from anabranch.plan.catalog import Table
from anabranch.plan.inputs import INNER, Input, place_of
from anabranch.plan.lookup_keys import value_type
from anabranch.sources.lookup import KEY_TYPES, searchable
from anabranch.sql.calls import chains, conjuncts, outside_brackets
from anabranch.sql.lexer import SYMBOL, Span, Token, quote_name
from anabranch.sql.syntax import Relation, Select
from anabranch.types import INTEGERS

if TYPE_CHECKING:
    from anabranch.plan.build import Build

#: Signs, and what they are from the other side.
_SIGNS = {"=": "=", "==": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<>": "<>", "!=": "<>", "LIKE": "LIKED BY"}
_ALIKE = {"==": "=", "!=": "<>"}
#: Words that bind less than a comparison does, or make a comparison of an expression.
_LOOSE = frozenset({"NOT", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "AND", "OR", "ESCAPE", "EXISTS"})


@dataclass(frozen=True)
class Pair:
    """A column of the table that compares with an expression over one other relation; with a constant, over none."""

    live: int | None
    expression: Span
    column: str
    given: str  # the type of the expression
    sign: str = "="


@dataclass(frozen=True)
class Found:
    """The relation whose rows ask a table, and by what."""

    live: int
    pairs: tuple[Pair, ...]
    types: tuple[str, ...] = ()  # of the values, where the table is asked by comparisons


class Questions:
    """What the relations of a FROM clause ask each other."""

    def __init__(self, build: Build, select: Select, inputs: Sequence[Input]) -> None:
        self.build = build
        self.text = build.text
        self.select = select
        self.inputs = inputs

    def find(self, index: int, table: Table) -> Found:
        """What asks the table at a place of the FROM clause."""
        pairs = list(self._pairs(index))
        equal = [p for p in pairs if p.sign == "=" and p.live is not None and _types(table)[p.column] in KEY_TYPES]
        live = _most(equal)
        self._check_shared(index, table, [pair.column for pair in equal if pair.live == live])
        if live is None:
            return self._by_comparison(index, table, pairs)
        first: dict[str, Pair] = {}
        for pair in equal:
            if pair.live == live:
                first.setdefault(pair.column, pair)
        for pair in first.values():
            wanted = _types(table)[pair.column]
            if pair.given != wanted and not (pair.given in INTEGERS and wanted in INTEGERS):
                raise self._unlike(table, pair, f"CAST(... AS {wanted.upper()}) makes them alike")
        return Found(live, tuple(first.values()))

    def _check_shared(self, index: int, table: Table, asked: Sequence[str]) -> None:
        """All columns of USING have to be asked by: nobody compares them once more."""
        for name in shared_names(self.select.relations[index]):
            if self._own_name(index, name) not in asked:
                raise refuse(
                    self.text,
                    self.select.relations[index].condition or self.select.relations[index].span,
                    f"{table.name} is asked by columns of one relation that are alike, and {name} is not among them",
                    f"write the condition with ON: ON {table.name}.{name} = s.{name}",
                )

    def _by_comparison(self, index: int, table: Table, pairs: Sequence[Pair]) -> Found:
        relation = self.select.relations[index]
        whole = Span(relation.span.start, relation.condition.end if relation.condition else relation.span.end)
        asking = [pair for pair in pairs if pair.live is not None]
        hint = f"compare a column of it with one stream or view on its left: ON {table.name}.id = s.id"
        if not asking:
            raise refuse(self.text, whole, f"{table.name} is asked by key, and nothing here says by which", hint)
        if not searchable(str(table.source), table.options):
            what = f"{table.name} is only asked by equal whole numbers, texts, booleans and days"
            raise refuse(self.text, whole, what, hint)
        fitting = [pair for pair in pairs if _value_type(table, pair)]
        live = _most(fitting)
        if live is None:
            hint = f"{table.name} is asked by numbers, texts, days and times of one type; CAST(...) makes them alike"
            raise self._unlike(table, asking[0], hint)
        own = tuple(pair for pair in fitting if pair.live in (live, None))
        return Found(live, own, tuple(_value_type(table, pair) for pair in own))

    def _unlike(self, table: Table, pair: Pair, hint: str) -> NotSupported:
        wanted, given = _types(table)[pair.column].upper(), pair.given.upper()
        what = f"{pair.column} of {table.name} is a {wanted}, and this is a {given}"
        return refuse(self.text, pair.expression, what, hint)

    # ---- conditions

    def _pairs(self, index: int) -> Iterator[Pair]:
        relation = self.select.relations[index]
        tokens: Sequence[Token] = relation.condition_tokens
        conditions: list[Sequence[Token]] = []
        if tokens and tokens[0].upper == "USING":
            for token in (each for each in tokens[1:] if each.is_name):
                live = self._one_relation([token], index, inputs=self.inputs[:index])
                if live is not None:
                    yield from self._typed(live, token.span, self._own_name(index, token.name.lower()), "=")
        elif tokens:
            conditions.append(tokens[1:] if tokens[0].upper == "ON" else tokens)
        if self.select.where is not None and relation.join in INNER:
            conditions.append(self.select.where.tokens)
        for condition in conditions:
            for conjunct in conjuncts(condition):
                for left, sign, right in compared(conjunct):
                    yield from self._pair(index, left, sign, right)
                    yield from self._pair(index, right, _SIGNS[sign], left)

    def _pair(self, index: int, column: Sequence[Token], sign: str, value: Sequence[Token]) -> Iterator[Pair]:
        place = self._column(column)
        if place is None or place[0] != index or not value or any(token.upper in ("SELECT", "OVER") for token in value):
            return
        live = self._one_relation(value, index)
        if live is None and not _constant(value):
            return
        if live is not None and self._may_be_missing(live, index) and self._column(value) is None:
            return  # what is made of NULLs need not be NULL, and rows that are not there ask nothing
        span = Span(value[0].start, value[-1].end)
        yield from self._typed(live, span, self._own_name(index, place[1]), _ALIKE.get(sign, sign))

    def _typed(self, live: int | None, expression: Span, column: str, sign: str) -> Iterator[Pair]:
        """A pair, unless Spark finds something in the expression that the rows of the relation do not have."""
        text, fields = f"SELECT {expression.of(self.text)} AS `x`", {}
        if live is not None:
            relation = self.select.relations[live]
            fields["@rows"] = self.build.fields_of(relation)
            text += f" FROM `@rows` AS {quote_name(relation.exposed or '__rows')}"
        try:
            given = self.build.tree.world.analyze(text, fields)[0].type
        except SqlError:
            return
        yield Pair(live, expression, column, _plain(given), sign)

    def _own_name(self, index: int, column: str) -> str:
        """The name that a column has in its table, whatever it is called here."""
        place = list(self.inputs[index].columns).index(column)
        return self.build.fields_of(self.select.relations[index])[place].name.lower()

    def _may_be_missing(self, live: int, before: int) -> bool:
        """Whether an outer join can put NULLs in place of a row of this relation, before a table is joined."""
        joins = [self.select.relations[live].join, *(each.join for each in self.select.relations[live + 1 : before])]
        return joins[0].startswith(("LEFT", "FULL")) or any(each.startswith(("RIGHT", "FULL")) for each in joins[1:])

    def _column(self, tokens: Sequence[Token]) -> tuple[int, str] | None:
        named = list(chains(tokens))
        if len(named) != 1 or not tokens or named[0].span != Span(tokens[0].start, tokens[-1].end):
            return None
        return place_of(tuple(part.lower() for part in named[0].parts), self.inputs)

    def _one_relation(self, tokens: Sequence[Token], before: int, inputs: Sequence[Input] = ()) -> int | None:
        """The only relation whose columns an expression is made of; the columns of its windows are not in its rows."""
        inputs = inputs or self.inputs
        places = []
        for each in chains(tokens):
            parts = tuple(part.lower() for part in each.parts)
            place = place_of(parts, inputs)
            if place is not None:
                places.append(place)
            elif len(parts) > 1 or any(parts[0] in other.columns for other in inputs):
                return None
        if len({place[0] for place in places}) != 1:
            return None
        live = places[0][0]
        own = {field.name.lower() for field in self.build.fields_of(self.select.relations[live])}
        inside = all(place[1] in own for place in places)
        return live if live < before and not self.inputs[live].static and inside else None


def shared_names(relation: Relation) -> list[str]:
    """The columns of USING."""
    tokens = relation.condition_tokens
    return [t.name.lower() for t in tokens[1:] if t.is_name] if tokens and tokens[0].upper == "USING" else []


def compared(conjunct: Sequence[Token]) -> Iterator[tuple[Sequence[Token], str, Sequence[Token]]]:
    """What a condition compares with what.

    >>> from anabranch.sql.lexer import tokenize
    >>> text = "a.x + 1 BETWEEN t.lo AND t.hi"
    >>> [(left[0].text, sign, right[-1].text) for left, sign, right in compared(tokenize(text)[:-1])]
    [('a', '>=', 'lo'), ('a', '<=', 'hi')]
    """
    outside = list(outside_brackets(conjunct))
    words = [(index, conjunct[index].upper) for index in outside if conjunct[index].upper in _LOOSE]
    at = [index for index in outside if conjunct[index].kind == SYMBOL and conjunct[index].text in _SIGNS]
    if not words and len(at) == 1:
        yield conjunct[: at[0]], conjunct[at[0]].text, conjunct[at[0] + 1 :]
    elif not at and [word for _, word in words] == ["BETWEEN", "AND"]:
        (middle, _), (end, _) = words
        yield conjunct[:middle], ">=", conjunct[middle + 1 : end]
        yield conjunct[:middle], "<=", conjunct[end + 1 :]
    elif not at and [word for _, word in words] == ["LIKE"]:
        yield conjunct[: words[0][0]], "LIKE", conjunct[words[0][0] + 1 :]


def _constant(tokens: Sequence[Token]) -> bool:
    """A number or a text, with a sign or the word for a type before it."""
    kinds = [token.kind for token in tokens]
    if kinds[-1] not in ("number", "string") or len(tokens) > 2:
        return False
    return len(tokens) == 1 or tokens[0].text in ("-", "+") or tokens[0].upper in ("DATE", "TIMESTAMP")


def _value_type(table: Table, pair: Pair) -> str:
    wanted = _types(table)[pair.column]
    return "" if "LIKE" in pair.sign and wanted != "string" else value_type(wanted, pair.given)


def _types(table: Table) -> dict[str, str]:
    return {field.name.lower(): _plain(field.type) for field in table.fields}


def _most(pairs: Sequence[Pair]) -> int | None:
    """The relation that has most columns to ask by; the first of several."""
    columns: dict[int, set[str]] = {}
    for pair in pairs:
        if pair.live is not None:
            columns.setdefault(pair.live, set()).add(pair.column)
    return max(columns, key=lambda each: (len(columns[each]), -each), default=None)


def _plain(type: str) -> str:
    return "string" if type.startswith("varchar(") else type
