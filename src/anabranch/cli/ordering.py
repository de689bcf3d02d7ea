"""The order of a query, as columns of its answer.

Changes have no order, so outputs that add them up have to sort. An expression of ORDER BY that is no column of the
answer cannot be computed from it; `order_of` returns the columns before it, and the first such expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.cli.values import plain_values

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.sql.lexer import Token
    from anabranch.sql.syntax import Query, Select

Row = tuple[Any, ...]
Words = tuple[str, ...]


@dataclass(frozen=True)
class SortColumn:
    """A column to sort by."""

    index: int
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True)
class Order:
    """Columns to sort by, and the text of the first expression that is no column."""

    columns: tuple[SortColumn, ...] = ()
    unsortable: str | None = None

    def key(self, row: Row) -> tuple[Any, ...]:
        """The sort key of a row; ties are broken by all columns, so that rows do not jump."""
        own = tuple(_placed(row[each.index], each) for each in self.columns)
        return (*own, tuple(map(_rank, row)))

    def sort(self, rows: pa.Table) -> pa.Table:
        """The rows of a table in the order."""
        if not self.columns:
            return rows
        values = list(zip(*[plain_values(column) for column in rows.columns], strict=True))
        return rows.take(sorted(range(len(values)), key=lambda place: self.key(values[place])))


UNORDERED = Order()


def _placed(value: Any, column: SortColumn) -> tuple[int, Any]:
    if value is None:
        return (1 if column.nulls_last else -1, None)
    return (0, _Backwards(_rank(value)) if column.descending else _rank(value))


def _rank(value: Any) -> tuple[Any, ...]:
    """A key that compares as in Spark: NULL comes first, also inside a value, and NaN is greater than any number."""
    if value is None:
        return (0,)
    if value != value:
        return (2,)
    return (1, tuple(map(_rank, value))) if isinstance(value, tuple) else (1, value)


class _Backwards:
    """Reverses the comparison."""

    __slots__ = ("rank",)

    def __init__(self, rank: tuple[Any, ...]) -> None:
        self.rank = rank

    def __lt__(self, other: _Backwards) -> bool:
        return other.rank < self.rank

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backwards) and other.rank == self.rank


def order_of(text: str, query: Query, columns: Sequence[str]) -> Order:
    """The order of a query whose answer has these columns."""
    from anabranch.sql.syntax import Query, Select

    while query.order is None and isinstance(query.body, Query):
        query = query.body
    body = query.body
    while isinstance(body, Query):
        body = body.body
    expressions = _Expressions(columns, body if isinstance(body, Select) else None)
    found: list[SortColumn] = []
    for tokens in _keys(query.order_tokens):
        expression, descending, nulls_last = _direction(tokens)
        indices = expressions.find(expression)
        if not indices:
            return Order(tuple(found), text[expression[0].start : expression[-1].end])
        found += [SortColumn(index, descending, nulls_last) for index in indices]
    return Order(tuple(found))


def _keys(tokens: Sequence[Token]) -> list[list[Token]]:
    """The expressions of ORDER BY a, b LIMIT n, each with its direction."""
    from anabranch.sql.lexer import CLOSING, OPENING

    if not tokens or tokens[0].upper != "ORDER":
        return []
    keys: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[2:]:
        if depth == 0 and token.upper in ("LIMIT", "OFFSET"):
            break
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if depth == 0 and token.text == ",":
            keys.append([])
        else:
            keys[-1].append(token)
    return [key for key in keys if key]


def _direction(tokens: list[Token]) -> tuple[list[Token], bool, bool]:
    """An expression, whether it is descending, and whether NULL comes last: as in Spark, it is the least value."""
    nulls: str | None = None
    if len(tokens) > 2 and tokens[-2].upper == "NULLS":
        nulls, tokens = tokens[-1].upper, tokens[:-2]
    descending = False
    if len(tokens) > 1 and tokens[-1].upper in ("ASC", "DESC"):
        descending, tokens = tokens[-1].upper == "DESC", tokens[:-1]
    return tokens, descending, descending if nulls is None else nulls == "LAST"


class _Expressions:
    """Finds the columns of an answer that expressions of ORDER BY refer to."""

    def __init__(self, columns: Sequence[str], select: Select | None) -> None:
        self.names = [name.lower() for name in columns]
        self.relations: set[str] = set()
        self.items: list[Words] = []
        self.starred = False
        if select is not None:
            self.relations = {each.exposed.lower() for each in select.relations if each.exposed is not None}
            self.items = [_words(item.tokens) for item in select.items]
            # The columns of a star are not in the list: items and columns do not correspond.
            self.starred = len(self.items) != len(columns) or any(item[-1:] == ("*",) for item in self.items)

    def find(self, tokens: Sequence[Token]) -> list[int]:
        words = _words(tokens)
        if words == ("all",):
            return list(range(len(self.names)))
        if len(words) == 1 and words[0].isdigit():
            return [int(words[0]) - 1] if 0 < int(words[0]) <= len(self.names) else []
        named = self._named(words)
        if named or not self.items:
            return named
        bare = self._without_relation(words)
        if self.starred:
            return self._named(bare) if bare is not None else []
        for index, item in enumerate(self.items):
            if words in (item, self._without_relation(item)) or bare == item:
                return [index]
        return []

    def _named(self, words: Words) -> list[int]:
        return [self.names.index(words[0])] if len(words) == 1 and self.names.count(words[0]) == 1 else []

    def _without_relation(self, words: Words) -> Words | None:
        """`b.price` as `price`, if b is a relation and not a column with fields."""
        return words[2:] if len(words) > 2 and words[1] == "." and words[0] in self.relations else None


def _words(tokens: Sequence[Token]) -> Words:
    """An expression, equal if only blanks and the case of words differ."""
    return tuple(token.name.lower() if token.is_name else token.text for token in tokens)
