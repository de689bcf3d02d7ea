"""Plans as text for users and for the fixtures of rules: one node a line, its inputs indented below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.ir.expr import Call, Column, Expr, Subquery
from anabranch.ir.rel import (
    Aggregate,
    Emit,
    Filter,
    Generate,
    Join,
    OverRows,
    Project,
    Rel,
    Sampled,
    Scan,
    SetOp,
    TableFunction,
    TopN,
    Values,
    Windowed,
)
from anabranch.ir.text import Shown
from anabranch.sql.durations import duration_text


def show(rel: Rel, *, types: bool = False) -> str:
    """The text tree of a plan. Columns are numbered in order of appearance, so that equal plans have equal texts."""
    return "\n".join(_Tree(types).lines(rel, 0))


class _Tree:
    def __init__(self, types: bool) -> None:
        self.types = types
        self.numbers: dict[int, int] = {}

    def lines(self, rel: Rel, depth: int) -> Iterator[str]:
        below = [line for each in rel.inputs for line in self.lines(each, depth + 1)]
        self.queries: list[Subquery] = []
        text = self._text_of(rel)
        queries = self.queries
        indent = "  " * depth
        yield f"{indent}{type(rel).__name__}{' ' if text else ''}{text}"
        for number, query in enumerate(queries, 1):
            yield f"{indent}  {query.kind} {number}:"
            yield from self.lines(query.rel, depth + 2)
        yield from below

    def _text_of(self, rel: Rel) -> str:
        if isinstance(rel, Scan):
            return f"{rel.source.kind} {rel.source.name} ({self._columns(rel.columns)})"
        if isinstance(rel, Values):
            return f"{', '.join(map(self._expr, rel.rows))} ({self._columns(rel.columns)})"
        if isinstance(rel, TableFunction):
            return f"{self._expr(rel.call)} ({self._columns(rel.columns)})"
        if isinstance(rel, Filter):
            return self._expr(rel.condition)
        if isinstance(rel, Project):
            return ", ".join(
                self._column(column) if expr.column == column else f"{self._column(column)} = {self._expr(expr)}"
                for column, expr in rel.items
            )
        if isinstance(rel, Windowed):
            window, along = rel.window, rel.window.attribute if rel.along is None else self._column(rel.along)
            lengths = (window.size, 0 if window.slide == window.size else window.slide, window.offset)
            shown = [str(each) if window.rows else duration_text(each) for each in lengths if each]
            shown += [str(each) for each in (window.every, window.block, window.own) if each]
            apart = f" by {self._columns(rel.apart)}" if rel.apart else ""
            apart += f" by the values of {self._columns(rel.besides)}" if rel.besides else ""
            return f"{window.kind} {', '.join(shown)} along {along}{apart} ({self._columns(rel.bounds)})"
        if isinstance(rel, Sampled):
            return rel.text
        if isinstance(rel, Generate):
            return f"{'outer ' if rel.outer else ''}{self._expr(rel.call)} ({self._columns(rel.made)})"
        if isinstance(rel, Aggregate):
            keys = ", ".join(
                self._column(column) if expr.column == column else f"{self._column(column)} = {self._expr(expr)}"
                for column, expr in rel.keys
            )
            sets = f" sets {', '.join(str(list(each)) for each in rel.sets)}" if rel.sets else ""
            return f"by {keys or 'nothing'}{sets}: {self._calls(rel.calls)}"
        if isinstance(rel, OverRows):
            return self._calls(rel.calls)
        if isinstance(rel, TopN):
            order = ", ".join(f"{self._expr(key.expr)}{' ' if key.order else ''}{key.order}" for key in rel.order)
            limit = f" limit {self._expr(rel.limit)}" if rel.limit is not None else ""
            offset = f" offset {self._expr(rel.offset)}" if rel.offset is not None else ""
            return f"{order}{limit}{offset}".strip()
        if isinstance(rel, Join):
            on = f" on {self._expr(rel.on)}" if rel.on is not None else ""
            return f"{rel.kind}{' lateral' if rel.lateral else ''}{on}"
        if isinstance(rel, SetOp):
            return f"{rel.kind}{' all' if rel.all else ''} ({self._columns(rel.columns)})"
        return rel.emission.mode if isinstance(rel, Emit) else ""

    def _calls(self, calls: Sequence[tuple[Column, Call]]) -> str:
        return ", ".join(f"{self._column(column)} = {self._expr(Expr((call,)))}" for column, call in calls)

    def _columns(self, columns: Sequence[Column]) -> str:
        return ", ".join(map(self._column, columns))

    def _column(self, column: Column) -> str:
        number = self.numbers.setdefault(column.id, len(self.numbers) + 1)
        return f"{column.name}#{number}" + (f" {column.type}" if self.types else "")

    def _expr(self, expr: Expr) -> str:
        shown = Shown(self._column)
        shown.subqueries = self.queries
        shown.expr(expr)
        return shown.written.text
