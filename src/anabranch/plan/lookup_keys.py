"""The key by which a join looks an external table up: columns of it compared with expressions over one relation.

    ON t.id = s.id                     by equality: each key has rows of its own
    ON t.low <= s.x AND s.x < t.high   by comparisons, where nothing is equal

Spark evaluates all conditions again over the rows that were found, these ones too: a lookup may return more rows than
match, never fewer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.errors import NotSupported
from anabranch.ir.expr import Column, Expr
from anabranch.ir.logic import compared, conjuncts
from anabranch.ir.rel import Rel
from anabranch.ir.select import SelectBlock
from anabranch.plan.bind import refuse
from anabranch.plan.definitions import Table
from anabranch.sources.lookup import KEY_TYPES, searchable
from anabranch.sql.text import Span
from anabranch.types import INTEGERS

#: Operators, and the same with the operands swapped.
_SIGNS = {"=": "=", "==": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<>": "<>", "!=": "<>", "LIKE": "LIKED BY"}
_ALIKE = {"==": "=", "!=": "<>"}
_LITERAL = re.compile(r"[0-9.]|[rR]?['\"]")
_DECIMAL_DIGITS = 38

#: The types of expressions over a relation.
Types = Callable[[Sequence[Expr], Rel], Sequence[str]]


@dataclass(frozen=True)
class Pair:
    """A column of the table compared with an expression over one other relation, or with a constant."""

    live: int | None
    value: Expr
    column: str
    given: str  # the type of the expression
    sign: str = "="


@dataclass(frozen=True)
class LookupKey:
    """The relation whose rows look a table up, and by which columns."""

    live: int
    pairs: tuple[Pair, ...]
    types: tuple[str, ...] = ()  # of the values, where the lookup is by comparisons


def find_lookup_key(text: str, block: SelectBlock, index: int, table: Table, types: Types) -> LookupKey:
    """The key of the lookup of a table, by its index in FROM."""
    return _Search(text, block, index, table, types).key()


class _Search:
    def __init__(self, text: str, block: SelectBlock, index: int, table: Table, types: Types) -> None:
        self.text = text
        self.block = block
        self.index = index
        self.item = block.sources[index]
        self.table = table
        self.columns = {field.name.lower(): _plain(field.type) for field in table.fields}
        self.types = types

    def key(self) -> LookupKey:
        pairs = list(self._pairs())
        equal = [p for p in pairs if p.sign == "=" and p.live is not None and self.columns[p.column] in KEY_TYPES]
        live = _most(equal)
        if live is None:
            return self._by_comparison(pairs)
        first: dict[str, Pair] = {}
        for pair in equal:
            if pair.live == live:
                first.setdefault(pair.column, pair)
        for pair in first.values():
            wanted = self.columns[pair.column]
            if pair.given != wanted and not (pair.given in INTEGERS and wanted in INTEGERS):
                raise self._unlike(pair, f"CAST(... AS {wanted.upper()}) gives both the same type")
        return LookupKey(live, tuple(first.values()))

    def _by_comparison(self, pairs: Sequence[Pair]) -> LookupKey:
        name = self.table.name
        asking = [pair for pair in pairs if pair.live is not None]
        hint = f"compare a column of it with one stream or view on its left: ON {name}.id = s.id"
        if not asking:
            raise refuse(
                self.text, self._span, f"{name} is looked up by key, and no condition of this join contains a key", hint
            )
        if not searchable(str(self.table.source), self.table.options):
            what = f"{name} can only be looked up by equal whole numbers, texts, booleans and days"
            raise refuse(self.text, self._span, what, hint)
        fitting = [pair for pair in pairs if self._value_type(pair)]
        live = _most(fitting)
        if live is None:
            hint = f"{name} can be looked up by numbers, texts, days and times of the same type: add a CAST(...)"
            raise self._unlike(asking[0], hint)
        own = tuple(pair for pair in fitting if pair.live in (live, None))
        return LookupKey(live, own, tuple(map(self._value_type, own)))

    @property
    def _span(self) -> Span:
        """The span of the table and its join condition."""
        scan = self.item.scan
        assert scan is not None and scan.written is not None
        whole = scan.written.whole
        on = self.item.on.origin if self.item.on is not None else None
        return whole if on is None else Span(whole.start, on.end)

    def _unlike(self, pair: Pair, hint: str) -> NotSupported:
        wanted, given = self.columns[pair.column].upper(), pair.given.upper()
        what = f"{pair.column} of {self.table.name} is a {wanted}, and this is a {given}"
        return refuse(self.text, pair.value.origin or self._span, what, hint)

    def _value_type(self, pair: Pair) -> str:
        wanted = self.columns[pair.column]
        return "" if "LIKE" in pair.sign and wanted != "string" else value_type(wanted, pair.given)

    # ---- conditions

    def _pairs(self) -> Iterator[Pair]:
        conditions = (self.item.on, self.block.where if self.item.inner else None)
        for condition in (each for each in conditions if each is not None):
            for conjunct in conjuncts(condition):
                for left, sign, right in compared(conjunct):
                    yield from self._pair(left, sign, right)
                    yield from self._pair(right, _SIGNS[sign], left)

    def _pair(self, column: Expr, sign: str, value: Expr) -> Iterator[Pair]:
        own = self._own_column(self.index, column.column)
        if own is None or any(value.calls()) or any(value.subqueries()):
            return
        owners = {self._asker(each) for each in value.columns()}
        if len(owners) > 1 or None in owners or not (owners or _constant(value)):
            return
        live = owners.pop() if owners else None
        if live is not None and self._may_be_missing(live) and value.column is None:
            return  # an expression over NULLs need not be NULL, and missing rows look nothing up
        rel = self.block.sources[self.index if live is None else live].rel
        (given,) = self.types([value], rel)
        yield Pair(live, value, own.name.lower(), _plain(given), _ALIKE.get(sign, sign))

    def _own_column(self, index: int, column: Column | None) -> Column | None:
        """The column in the rows of a relation for one of its columns; None for columns of its windows."""
        if column is None or self.block.owner.get(column) != index:
            return None
        return self.block.sources[index].row_column(column)

    def _asker(self, column: Column) -> int | None:
        """The index of the relation of a column, if it comes before the table and its rows can look it up."""
        index = self.block.owner.get(column, self.index)
        plain = index < self.index and not self.block.sources[index].static
        return index if plain and self._own_column(index, column) is not None else None

    def _may_be_missing(self, live: int) -> bool:
        """Whether an outer join can replace a row of this relation by NULLs before the table is joined."""
        own, *between = [each.kind for each in self.block.sources[live : self.index]]
        return own in ("left", "full") or any(each in ("right", "full") for each in between)


def value_type(wanted: str, given: str) -> str:
    """The type of values that a database compares with a column of type `wanted` as Spark does; empty if there is none.

    >>> [value_type(*types) for types in (("tinyint", "int"), ("decimal(9,2)", "int"), ("double", "int"))]
    ['bigint', 'decimal(10,0)', 'double']
    >>> value_type("bigint", "double"), value_type("timestamp", "date"), value_type("date", "date")
    ('', '', 'date')
    """
    if wanted in INTEGERS and given in INTEGERS:
        return "bigint"
    if wanted == "double":
        return wanted if given in (*INTEGERS, "float", "double") else ""
    one, other = _digits(wanted), _digits(given)
    if one is not None and other is not None:
        whole, behind = max(one[0] - one[1], other[0] - other[1]), max(one[1], other[1])
        return f"decimal({other[0]},{other[1]})" if whole + behind <= _DECIMAL_DIGITS else ""
    return given if given == wanted and given in ("string", "date", "timestamp") else ""


def _digits(type: str) -> tuple[int, int] | None:
    """Precision and scale of an exact number."""
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", type)
    if found is not None:
        return int(found.group(1)), int(found.group(2))
    whole = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}.get(type)
    return (whole, 0) if whole is not None else None


def _constant(expr: Expr) -> bool:
    """Whether an expression is a number or a text, with a sign or a type name before it."""
    *before, last = expr.parts
    known = before in ([], ["-"], ["+"]) or [str(each).upper() for each in before] in (["DATE"], ["TIMESTAMP"])
    return known and isinstance(last, str) and _LITERAL.match(last) is not None


def _most(pairs: Sequence[Pair]) -> int | None:
    """The relation with the most columns to look up by; the first of several."""
    columns: dict[int, set[str]] = {}
    for pair in pairs:
        if pair.live is not None:
            columns.setdefault(pair.live, set()).add(pair.column)
    return max(columns, key=lambda each: (len(columns[each]), -each), default=None)


def _plain(type: str) -> str:
    return "string" if type.startswith("varchar(") else type
