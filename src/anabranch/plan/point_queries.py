"""Point queries: columns of the rows of a view whose columns compare with given values.

Recognised without Spark. None of the user's text is passed on: a comparison becomes a column, an operator and a value.
Spark runs every other query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from anabranch.errors import NotSupported, SqlError
from anabranch.ir.expr import Expr
from anabranch.ir.logic import compared, conjuncts, word
from anabranch.ir.select import SelectBlock
from anabranch.plan.catalog import Catalog
from anabranch.plan.relation_builder import builder
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.sql.syntax import Query, Select
from anabranch.sql.text import quote_name
from anabranch.types import Field

OPERATORS = ("=", "<", "<=", ">", ">=")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2})(\.\d{1,6})?")
_PLAIN_TEXT = re.compile(r"'[^'\\]*'")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Comparison:
    """A column compared with a value: an integer, a text, or microseconds where the column is a time."""

    column: Field
    operator: str
    value: int | str


@dataclass(frozen=True)
class PointQuery:
    """Columns of a view under their names in the answer, of the rows for which all comparisons hold."""

    view: View
    columns: tuple[tuple[str, Field], ...]
    comparisons: tuple[Comparison, ...]

    def window_range(self) -> tuple[int | None, int | None]:
        """The range of window starts that can be in the answer: the lowest, and the first beyond the highest."""
        low: int | None = None
        high: int | None = None
        for each in self.comparisons:
            kind = next(output.kind for output in self.view.query.direct if output.name == each.column.name)
            if kind not in ("window_start", "window_end"):
                continue
            windows = self.view.query.blocks[0].sliding
            assert windows is not None and isinstance(each.value, int)
            start = each.value - (windows.size if kind == "window_end" else 0)
            if each.operator in ("=", ">", ">="):
                low = start if low is None else max(low, start)
            if each.operator in ("=", "<", "<="):
                high = start + 1 if high is None else min(high, start + 1)
        return low, high


def find_point_query(text: str, query: Query, catalog: Catalog) -> PointQuery | None:
    """The point query that a query is, or None."""
    select = query.body
    if not isinstance(select, Select) or query.ctes or query.emission is not None or len(select.relations) != 1:
        return None
    if select.tail or select.lateral:
        return None
    relation = select.relations[0]
    if relation.kind != "name" or relation.window is not None or relation.version_span is not None or relation.reshaped:
        return None
    if relation.watermarks or relation.alias_columns or relation.name is None or len(relation.name.parts) > 1:
        return None
    view = catalog.find(relation.name.last)
    if (
        not isinstance(view, View)
        or view.emission.mode != "close"
        or not view.query.direct
        or view.emission.late == "archive"
    ):
        return None
    if any(duckdb_type(field.type) is None for field in view.fields):
        return None
    try:
        block = builder(text, query, catalog, _no_types).block(query, select, {})
    except SqlError:  # Spark reports it
        return None
    plain = SelectBlock(block.sources, block.items, block.where)
    if block != plain or block.has_subqueries:
        return None
    fields = {field.name: field for field in view.fields}
    columns = _columns(text, block, fields)
    comparisons = _comparisons(block.where, fields) if block.where is not None else ()
    return None if columns is None or comparisons is None else PointQuery(view, columns, comparisons)


def _no_types(text: str, schemas: object) -> list[Field]:
    raise NotSupported("only Spark knows its types")


def _columns(text: str, block: SelectBlock, fields: dict[str, Field]) -> tuple[tuple[str, Field], ...] | None:
    found: list[tuple[str, Field]] = []
    for item in block.items:
        column, origin = item.expr.column, item.expr.origin
        if column is None or item.name is None or column.name not in fields:
            return None
        if origin is not None and origin.of(text).rpartition(".")[2] not in (column.name, quote_name(column.name)):
            return None  # Spark shows the name as written
        found.append((item.name, fields[column.name]))
    names = [name.lower() for name, _ in found]
    return tuple(found) if len(set(names)) == len(names) else None


def _comparisons(condition: Expr, fields: dict[str, Field]) -> tuple[Comparison, ...] | None:
    found = [_comparison(each, fields) for each in conjuncts(condition)]
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) else None


def _comparison(condition: Expr, fields: dict[str, Field]) -> Comparison | None:
    sides = list(compared(condition))
    if len(sides) != 1 or sides[0][1] not in OPERATORS or sides[0][0].column is None:
        return None
    ((left, operator, right),) = sides
    field = fields.get(left.column.name) if left.column is not None else None
    words, last = [word(part) for part in right.parts[:-1]], right.parts[-1]
    if field is None or not isinstance(last, str):
        return None
    if words == ["TIMESTAMP"] and field.type == "timestamp":
        micros = _micros(last[1:-1])
        return None if micros is None else Comparison(field, operator, micros)
    if words:
        return None
    if field.type in _INTEGERS and last.isdecimal() and len(last) <= 18:
        return Comparison(field, operator, int(last))
    if field.type == "string" and operator == "=" and _PLAIN_TEXT.fullmatch(last):
        return Comparison(field, operator, last[1:-1])
    return None


def _micros(text: str) -> int | None:
    """A complete UTC timestamp in microseconds."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, time, fraction = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day} {time}").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(microseconds=1) + (int(fraction[1:].ljust(6, "0")) if fraction else 0)
