"""A join with static tables above the partials of its stream, chosen by cost.

    SELECT s.k, label, count(*) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k, label

A row of a stream is joined with a static table as it is in the run that takes the row in. Until a REFRESH all rows are
joined with the same version, and it makes no difference when. So the pane table of such a block needs no files: its
partials derive from those of the stream alone,

    SELECT s.k, label, sum(rows) FROM (SELECT k, count(*) AS rows FROM s GROUP BY k) AS s LEFT JOIN t ... GROUP BY ...

and a run reads no table. The first REFRESH that changes the table settles them: the partials, joined with the table as
it was, become files of the pane table, and from then on each run joins its rows. The readers of the pane table see no
difference.

It pays where there are no more partials than before, and is never chosen where the partials would be settled at once.
Hints choose either way: SELECT /*+ JOIN_ABOVE(t) */ ..., SELECT /*+ JOIN_BELOW(t) */ ...
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError
from anabranch.ir.expr import Column, Expr, of_column
from anabranch.ir.logic import conjunction, conjuncts
from anabranch.ir.rel import Scan
from anabranch.ir.select import SelectBlock, ShownItem
from anabranch.plan.bind import refuse
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.panes import PaneBlock, PaneCall, PaneContext, find_panes, stream_and_tables, text_over_rows
from anabranch.plan.states import Above
from anabranch.sql.text import HINTS, Span, quote_name

_HINT = re.compile(r"\bJOIN_(ABOVE|BELOW)\s*\(([^()]*)\)", re.IGNORECASE)
#: Types whose equal values can differ.
_NOT_ALIKE = re.compile(r"\b(float|double|map|variant|void|collate)\b")
#: Aggregates that take values of any type.
_ANY_TYPE = ("count", "min", "max")
_EXAMPLE = "as in SELECT /*+ JOIN_ABOVE(t) */ ... FROM s JOIN t ON t.k = s.k, with a static table t"


@dataclass(frozen=True)
class Choice:
    """Whether a block over static tables derives from partials of its stream.

    `block` are these partials. The join is below without them, or where `costs` says why it does not pay unless they
    exist already; `reason` says why it pays.
    """

    asked: str = ""  # "above", "below", or nothing
    block: PaneBlock | None = None
    above: Above | None = None  # over a pane table that is not chosen yet, without columns
    reason: str = ""
    costs: str = ""
    safe: bool = False  # whether nothing in it can fail for rows that the join drops

    @property
    def forced(self) -> bool:
        return self.asked == "above"


def choose(block: SelectBlock, panes: PaneBlock, context: PaneContext, text: str) -> Choice:
    """Whether the join of a SELECT can go above the partials of its stream, and whether that pays. `text` is the
    user's, with the hints."""
    if not panes.statics:
        return Choice()
    asked, span = _hint(block, text)
    if asked == "below":
        return Choice(asked, costs="the query says JOIN_BELOW")
    try:
        return _Raising(block, panes, context).choice(asked)
    except NotApplicable as why:
        if asked and span is not None:
            what = f"this join cannot be computed above partials of the stream: {why}"
            raise refuse(text, span, what, "remove the hint") from None
        return Choice(asked, costs=str(why))


def _hint(block: SelectBlock, text: str) -> tuple[str, Span | None]:
    """The choice of a hint, and its span."""
    found: tuple[str, Span | None] = ("", None)
    tables = {(each.label or "").lower() for each in block.sources if _table(each.rel) is not None}
    for hint in HINTS.finditer(text, block.head.start, block.head.end) if block.head is not None else ():
        for call in _HINT.finditer(text, hint.start(), hint.end()):
            for name in re.finditer(r"[^\s,]+", call[2]):
                span = Span(call.start(2) + name.start(), call.start(2) + name.end())
                if name[0].strip("`").lower() not in tables:
                    raise refuse(text, span, f"no static table of this SELECT is called {name[0]}", _EXAMPLE)
                found = call[1].lower(), span
    return found


def _table(rel: object) -> Scan | None:
    return rel if isinstance(rel, Scan) and rel.source.kind == "table" else None


class _Raising:
    """One SELECT over a stream and static tables, to be derived from partials of the stream."""

    def __init__(self, block: SelectBlock, panes: PaneBlock, context: PaneContext) -> None:
        found = stream_and_tables(block, context.catalog)
        assert not isinstance(found, str), found
        at, _, self.tables = found
        self.block = block
        self.panes = panes
        self.context = context
        self.item = block.sources[at]
        self.text = text_over_rows(block, at)
        self.own = frozenset(self.item.columns)
        conditions = conjuncts(block.where) if block.where is not None else []
        self.below = [each for each in conditions if self._is_below(each)]
        self.above = [each for each in conditions if not self._is_below(each)]

    def choice(self, asked: str) -> Choice:
        self._fit()
        needed = self._needed()
        plain: dict[str, Column] = {}  # grouping expressions of the stream alone, by name: its columns,
        computed: dict[str, Expr] = {}  # and expressions over them
        for key in self.panes.row_keys:
            if key.expr.columns() and self._is_below(key.expr):
                if key.expr.column is not None:
                    plain[key.name] = key.expr.column
                else:
                    computed[key.name] = key.expr
        columns = list(dict.fromkeys((*needed, *plain.values())))
        self._check_columns(columns, needed)
        base = self._base(columns, list(computed.values()))
        names = {column.name: key.name for column, key in zip(columns, base.keys, strict=False)}
        places = [key.name for key in base.keys[len(columns) : len(columns) + len(computed)]]
        exposed = self.item.label or self.panes.stream.name
        keys = {key.name: key.expression for key in self.panes.row_keys}
        keys |= {name: f"{quote_name(exposed)}.`__k{index}`" for index, name in enumerate(computed)}
        where = conjunction(self.above)
        asks = self.text.expr(where) if where is not None else None
        above = Above("", exposed, self.panes.from_text, asks, names, keys, tuple(places))
        more = [column.name for column in needed if column not in plain.values()]
        costs = "" if asked else self._costs(more)
        safe = not computed and all(map(self._safe, self.panes.calls))
        return Choice(asked, base, above, _reason(needed), costs, safe)

    def _is_below(self, expr: Expr) -> bool:
        """Whether an expression reads only the stream."""
        return expr.columns() <= self.own

    # ---- whether it is possible

    def _fit(self) -> None:
        for table in self.tables:
            if table.every_run:
                raise NotApplicable(f"{table.name} is refreshed before each run")
            if any(field.name.startswith("__") for field in table.fields):
                raise NotApplicable(f"{table.name} has columns whose names start with __")
        windowed, panes = self.item.windowed, self.panes
        kept = panes.windows is not None and panes.spec is not None and not panes.spec.needs_numbers
        if windowed is not None and (not kept or panes.spans or panes.bins):
            raise NotApplicable("its windows are not kept as panes")
        for each in panes.calls:
            self._check(each)

    def _check(self, each: PaneCall) -> None:
        """Check that an aggregate of the stream can be merged above the join: a partial counts once per partner."""
        if not all(map(self._is_below, each.call.exprs())):
            raise NotApplicable(f"{each.written} is not of the stream alone")
        as_written = tuple(self.text.exprs(each.call.args))
        if not each.aggregate.raised or each.call.order or each.arguments != as_written:
            raise NotApplicable(f"{each.written} cannot be merged behind a join")

    @staticmethod
    def _check_columns(columns: Sequence[Column], needed: Sequence[Column]) -> None:
        """Check that rows which a group takes as equal are equal to the join: it comes after the grouping."""
        for column in columns:
            if column.name.startswith("__"):
                raise NotApplicable(f"the name of {column.name} starts with __")
            if column in needed and _NOT_ALIKE.search(column.type):
                raise NotApplicable(f"equal values of {column.name} can differ")

    @staticmethod
    def _safe(each: PaneCall) -> bool:
        """Whether an aggregate cannot fail for rows that the join would have dropped."""
        columns = [arg.column for arg in each.call.args]
        if each.call.filter is not None or None in columns:
            return False
        texts = any(column is not None and column.type == "string" for column in columns)
        return each.aggregate.name in _ANY_TYPE or not texts

    # ---- the partials

    def _needed(self) -> list[Column]:
        """The stream's columns that are read above its partials."""
        exprs = [each.on for each in self.block.sources if each.on is not None]
        exprs += [*self.above, *(key.expr for key in self.panes.row_keys if not self._is_below(key.expr))]
        found = (column for expr in exprs for column in sorted(expr.columns() & self.own, key=lambda c: c.id))
        return list(dict.fromkeys(found))

    def _base(self, columns: Sequence[Column], computed: Sequence[Expr]) -> PaneBlock:
        """The partials of the stream alone."""
        keys = [*map(of_column, columns), *computed]
        keys += list(dict.fromkeys(key.expr for key in self.panes.keys if key.window))
        calls = tuple(each.call for each in self.panes.calls)
        items = [*keys, *(Expr((call,), call.type) for call in calls)]
        stream_only = SelectBlock(
            (replace(self.item, kind="cross", on=None),),
            tuple(ShownItem(expr, None, expr.type) for expr in items),
            conjunction(self.below),
            tuple(keys) if keys else None,
            calls=calls,
        )
        try:
            found = find_panes(stream_only, self.context)
        except AnabranchError:
            raise NotApplicable("its stream cannot be aggregated on its own") from None
        if isinstance(found, str):
            raise NotApplicable(found)
        if (
            found.windows != self.panes.windows
            or len(found.calls) != len(self.panes.calls)
            or len(found.keys) != len(keys)
        ):
            raise NotApplicable("its stream cannot be aggregated on its own in the same way")
        return found

    # ---- whether it pays

    def _costs(self, more: Sequence[str]) -> str:
        """Why there would be more partials than with the join below them; empty if there would not."""
        if more:
            return f"partials of the stream would be grouped by {', '.join(more)} as well, and be more"
        first, *others = self.block.sources
        if first is not self.item or self.above or any(each.kind != "left" for each in others):
            return "it leaves rows out, and partials of the stream would be kept for them, too"
        return ""


def _reason(needed: Sequence[Column]) -> str:
    by = f"by {', '.join(column.name for column in needed)} " if needed else ""
    return f"rows are grouped {by}anyway, so that a run need not read the table"
