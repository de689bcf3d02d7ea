"""Questions that are a look at the rows of a view: some of its columns, where columns compare so with given values.

Recognised from the syntax alone. Nothing of the user's text is passed on: a comparison becomes a column, an operator
and a value. Whatever is not plainly of this form is Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from anabranch.plan.catalog import Catalog, Field, View
from anabranch.plan.views import duckdb_type
from anabranch.sql.lexer import NUMBER, STRING, Token
from anabranch.sql.syntax import Query, Select

OPERATORS = ("=", "<", "<=", ">", ">=")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2})(\.\d{1,6})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Comparison:
    """A column compared with a value: an integer, a text, or microseconds where the column is a time."""

    column: Field
    operator: str
    value: int | str


@dataclass(frozen=True)
class Lookup:
    """Columns of a view under their names in the answer, of the rows that all comparisons hold for."""

    view: View
    columns: tuple[tuple[str, Field], ...]
    comparisons: tuple[Comparison, ...]

    def window_range(self) -> tuple[int | None, int | None]:
        """The lowest start of a window that can be in the answer, and the first one above that cannot be."""
        low: int | None = None
        high: int | None = None
        for each in self.comparisons:
            kind = next(output.kind for output in self.view.direct if output.name == each.column.name)
            if kind not in ("window_start", "window_end"):
                continue
            windows = self.view.blocks[0].sliding
            assert windows is not None and isinstance(each.value, int)
            start = each.value - (windows.size if kind == "window_end" else 0)
            if each.operator in ("=", ">", ">="):
                low = start if low is None else max(low, start)
            if each.operator in ("=", "<", "<="):
                high = start + 1 if high is None else min(high, start + 1)
        return low, high


def find_lookup(query: Query, catalog: Catalog) -> Lookup | None:
    """The look that a query is, or None."""
    select = query.body
    if not isinstance(select, Select) or query.ctes or query.order is not None or query.emission is not None:
        return None
    if select.distinct or select.group or select.having or select.tail or select.subqueries or select.lateral:
        return None
    if not select.group_plain or len(select.relations) != 1:
        return None
    relation = select.relations[0]
    if relation.kind != "name" or relation.window is not None or relation.version_span is not None or relation.reshaped:
        return None
    if relation.watermarks or relation.alias_columns or relation.name is None or len(relation.name.parts) > 1:
        return None
    view = catalog.find(relation.name.last)
    if not isinstance(view, View) or view.emit != "close" or not view.direct or view.late == "archive":
        return None
    if any(duckdb_type(field.type) is None for field in view.fields):
        return None
    fields = {field.name: field for field in view.fields}
    columns = _columns(select, fields)
    comparisons = _comparisons(select.where.tokens, fields) if select.where is not None else ()
    return None if columns is None or comparisons is None else Lookup(view, columns, comparisons)


def _columns(select: Select, fields: dict[str, Field]) -> tuple[tuple[str, Field], ...] | None:
    found: list[tuple[str, Field]] = []
    for item in select.items:
        if len(item.tokens) != 1:
            return None
        token = item.tokens[0]
        if token.text == "*" and item.alias is None:
            found += fields.items()
        elif token.is_name and token.name in fields:
            found.append((item.alias or token.name, fields[token.name]))
        else:
            return None
    names = [name.lower() for name, _ in found]
    return tuple(found) if len(set(names)) == len(names) else None


def _comparisons(tokens: Sequence[Token], fields: dict[str, Field]) -> tuple[Comparison, ...] | None:
    found = [_comparison(piece, fields) for piece in _split(tokens)]
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) else None


def _split(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    piece: list[Token] = []
    for token in tokens:
        if token.upper == "AND":
            yield piece
            piece = []
        else:
            piece.append(token)
    yield piece


def _comparison(tokens: list[Token], fields: dict[str, Field]) -> Comparison | None:
    if len(tokens) not in (3, 4) or not tokens[0].is_name or tokens[1].text not in OPERATORS:
        return None
    field, operator, last = fields.get(tokens[0].name), tokens[1].text, tokens[-1]
    if field is None:
        return None
    if len(tokens) == 4:
        if tokens[2].upper != "TIMESTAMP" or last.kind != STRING or field.type != "timestamp":
            return None
        micros = _micros(last.value)
        return None if micros is None else Comparison(field, operator, micros)
    if field.type in _INTEGERS and last.kind == NUMBER and last.text.isdecimal() and len(last.text) <= 18:
        return Comparison(field, operator, int(last.text))
    if field.type == "string" and operator == "=" and last.kind == STRING and last.text == f"'{last.value}'":
        return Comparison(field, operator, last.value)
    return None


def _micros(text: str) -> int | None:
    """A time of UTC in full, in microseconds."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, time, fraction = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day} {time}").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(microseconds=1) + (int(fraction[1:].ljust(6, "0")) if fraction else 0)
