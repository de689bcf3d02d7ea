"""Tie breaking: all columns extend every order that decides which rows win, so that the same rows give the same answer.

    row_number() OVER (PARTITION BY k ORDER BY n)      ... ORDER BY n, ts, v
    SELECT k, n FROM s ORDER BY n LIMIT 3              ... ORDER BY n, k LIMIT 3
    first(v)                                           min_by(v, struct(ts, k, n, v))

First and last sort by event time; then, like the others, by all columns. Rows that still tie are equal in every column,
and it does not matter which wins. Where tied rows share their answer (RANK, a RANGE frame) nothing is added: there, the
tie is part of the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from anabranch.ir.expr import Call, Column, Expr, Over, Part, SortKey, of_column
from anabranch.ir.select import SelectBlock, SetBlock
from anabranch.plan.picks import LISTS, TEXTS, Pick, orderable, picked, sort_keys
from anabranch.sql.text import words

#: Window functions of the position of a row, whatever the frame.
_POSITIONAL = words("row_number ntile lag lead")
#: Window functions that pick a row of the frame.
_PICKS = words("first_value last_value nth_value first last any_value")
#: Window functions with the same answer for tied rows.
_SHARED = words("rank dense_rank percent_rank cume_dist")
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
#: Columns that * does not show: row numbers, and matches in external tables.
_UNSHOWN = re.compile(r"_row_num|_arrival_ts|_matches_[0-9]+|__half")

#: The types of expressions over the relations of a SELECT.
Types = Callable[[Sequence[Expr]], Sequence[str]]


def break_ties(
    block: SelectBlock, times: Iterable[str], types: Types, partial_keys: Sequence[Column] | None = None
) -> SelectBlock:
    """The SELECT with winners that do not depend on the order of arrival. `times` are the names of event times;
    `partial_keys` is the key of the groups where the SELECT is over partials."""
    breaker = _Breaker(block, frozenset(times), types, partial_keys)
    items = tuple(replace(item, expr=breaker.expr(item.expr)) for item in block.items)
    made = replace(
        block,
        items=items,
        having=breaker.optional(block.having),
        qualify=breaker.optional(block.qualify),
        order=tuple(replace(key, expr=breaker.expr(key.expr)) for key in block.order),
    )
    if not block.limited:
        return made
    known = {key.expr for key in made.order}
    more = [SortKey(item.expr) for item in items if orderable(item.type) and item.expr not in known]
    return replace(made, order=(*made.order, *more))


def tied_window(call: Call, block: SelectBlock, times: Iterable[str]) -> Over:
    """The OVER clause of a call in a SELECT over rows, with ties broken."""
    assert call.over is not None
    return _Breaker(block, frozenset(times), lambda _: (), None).window(call, call.over)


def break_ties_of_set(block: SetBlock) -> SetBlock:
    """A set operation whose LIMIT applies in the order of all columns."""
    if block.limit is None and block.offset is None:
        return block
    known = {key.expr.column for key in block.order}
    more = [SortKey(of_column(each)) for each in block.columns if each not in known and orderable(each.type)]
    return replace(block, order=(*block.order, *more))


@dataclass(frozen=True)
class _Breaker:
    block: SelectBlock
    times: frozenset[str]
    types: Types
    partial_keys: Sequence[Column] | None

    def optional(self, expr: Expr | None) -> Expr | None:
        return None if expr is None else self.expr(expr)

    def expr(self, expr: Expr) -> Expr:
        return expr.map(self._part)

    def _part(self, part: Part) -> Part | Expr:
        if not isinstance(part, Call):
            return part
        if part.over is not None:
            inner = part.map(self.expr)
            assert inner.over is not None
            return replace(inner, over=self.window(part, inner.over))
        return part if self.partial_keys is not None else self._aggregate(part)

    # ---- window functions

    def window(self, call: Call, over: Over) -> Over:
        """The OVER clause of a function, with more sort keys where ties matter."""
        by_rows = over.frame.upper().startswith("ROWS")
        if call.name in _SHARED or (over.frame and not by_rows):
            return over
        picks = call.name in _PICKS and (not over.order or call.name == "first_value")
        if not (call.name in _POSITIONAL or by_rows or picks):
            return over
        there = {expr.column for expr in (*over.partition, *(key.expr for key in over.order))}
        keys = tuple(
            SortKey(key) for key in self._rows_apart(first=self.times if not over.order else ())
            if key.column is None or key.column not in there
        )  # fmt: skip
        if not keys:
            return over
        if over.order:
            return replace(over, order=(*over.order, *keys))
        if call.name in _POSITIONAL:
            return over  # Spark requires an order there
        return replace(over, order=keys, frame=over.frame or _WHOLE)

    def _rows_apart(self, first: Iterable[str]) -> list[Expr]:
        """The expressions that distinguish the rows under window functions: columns, or grouping expressions."""
        if self.partial_keys is not None:
            return _sortable([(of_column(column), column.type) for column in self.partial_keys])
        if not self.block.aggregated:
            return self._columns(first)
        if self.block.sets:
            return []
        keys = self.block.keys or ()
        types = [key.type or (key.column.type if key.column is not None else "") for key in keys]
        if not all(types):
            types = list(self.types(keys))
        return _sortable(list(zip(keys, types, strict=True)))

    def _columns(self, first: Iterable[str]) -> list[Expr]:
        """All columns of FROM, event times first."""
        columns = [
            column
            for item in self.block.sources
            if item.kind not in ("semi", "anti")
            for column in item.columns
            if not _UNSHOWN.fullmatch(column.name)
        ]
        columns += [column for each in self.block.generators for column in each.made]
        known = frozenset(first)
        columns.sort(key=lambda column: column.name.lower() not in known)
        return _sortable([(of_column(column), column.type) for column in columns])

    # ---- aggregates

    def _aggregate(self, call: Call) -> Part | Expr:
        pick = picked(call)
        if pick is not None:
            keys = self._columns(self.times)
            if not keys:
                return call
            return replace(call, name=pick.function, args=(pick.value, _order(pick, keys)), nulls="")
        if not call.args or call.name not in (*LISTS, *TEXTS, "collect_set", "mode"):
            return call
        value = call.args[0]
        type = value.column.type if value.column is not None else self.types([value])[0]
        if not orderable(type):
            return call
        times = [key for key in self._columns(self.times) if key.column and key.column.name.lower() in self.times]
        if call.name in TEXTS:
            return self._text(call, value, times)
        if call.name == "mode":
            return call if call.distinct or call.order else replace(call, args=(value, Expr(("true",))))
        if len(call.args) != 1 or call.order:
            return call
        if call.name in LISTS and times and not call.distinct:
            entry = Expr(
                ("CASE", "WHEN", "(", *value.parts, ")", "IS", "NOT", "NULL", "THEN", "named_struct", "(", "'o'", ",",
                 *times[0].parts, ",", "'v'", ",", *value.parts, ")", "END")
            )  # fmt: skip
            listed = replace(call, args=(entry,))
            parts = ("transform", "(", "array_sort", "(", listed, ")", ",", "e", "->", "e", ".", "v", ")")
            return Expr(parts, call.type)
        return Expr(("array_sort", "(", call, ")"), call.type)

    @staticmethod
    def _text(call: Call, value: Expr, times: Sequence[Expr]) -> Call:
        """Values concatenated in the order of the call, or else of event time, and then of the values."""
        if call.order:
            return call if call.distinct else replace(call, order=(*call.order, SortKey(value)))
        order = [value] if call.distinct else [*times[:1], value]
        return replace(call, order=tuple(map(SortKey, order)))


def _sortable(keys: Sequence[tuple[Expr, str]]) -> list[Expr]:
    return sort_keys(keys, lambda key: Expr(("struct", "(", *key.parts, ")")))


def _order(pick: Pick, keys: Sequence[Expr]) -> Expr:
    """The order that a row is picked by."""
    parts: list[Part] = ["struct", "("]
    for index, key in enumerate([*([pick.order] if pick.order is not None else []), *keys]):
        parts += [*([","] if index else []), *key.parts]
    parts.append(")")
    if pick.present is not None:
        parts = ["CASE", "WHEN", "(", *pick.present.parts, ")", "IS", "NOT", "NULL", "THEN", *parts, "END"]
    return Expr(tuple(parts))
