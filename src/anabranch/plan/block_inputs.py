"""The relations of one SELECT block: what they read, and how their columns progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.algebra.progress import FOREVER
from anabranch.algebra.windows import MILLISECOND, Sessions
from anabranch.ir.expr import Column, Expr
from anabranch.ir.rel import Project
from anabranch.ir.select import FromItem, SelectBlock
from anabranch.plan.definitions import Stream
from anabranch.plan.facts.keys import Keying
from anabranch.plan.name_resolution import placeholder
from anabranch.plan.plane import bounded
from anabranch.plan.view import Ends, View
from anabranch.plan.windows import closing_shift
from anabranch.render.placeholders import window_of
from anabranch.sql.syntax import WindowSpec
from anabranch.types import Field

if TYPE_CHECKING:
    from anabranch.plan.planner import Planner


@dataclass(frozen=True)
class BlockInputs:
    """The relations of a SELECT, whose subqueries are already nodes."""

    block: SelectBlock
    nodes: Planner

    def known(self, item: FromItem) -> object:
        """The stream, view or table that a relation reads."""
        scan = item.scan
        return self.nodes.object(scan.source.target) if scan is not None else None

    def input_of(self, item: FromItem) -> str:
        """The placeholder of a relation."""
        scan = item.scan
        assert scan is not None
        return placeholder(scan, self.nodes.numbered(scan))[1:-1]

    def window(self, item: FromItem) -> WindowSpec | None:
        return window_of(item.window) if item.window is not None else None

    def by_row(self, index: int) -> bool:
        """Whether the windows of a row follow from the row alone: otherwise new rows alone do not determine windows."""
        window = self.block.sources[index].window
        return window is None or window.window.by_row

    def shown(self, fields: Sequence[Field]) -> Iterator[tuple[str, Expr]]:
        """The output columns of a SELECT, with their expressions."""
        return ((field.name, item.expr) for field, item in zip(fields, self.block.items, strict=False))

    def columns_named(self, item: FromItem, names: Iterable[str]) -> frozenset[Column]:
        """The columns of a relation's rows with these names; columns of a window hide them."""
        bounds = item.windowed.bounds if item.windowed is not None else ()
        found = (item.named(name) for name in names)
        return frozenset(column for column in found if column is not None and column not in bounds)

    def own_times(self, item: FromItem) -> list[str]:
        """The columns of an input that are event times, without those of its windows."""
        if isinstance(item.rel, Project):
            return []
        known = self.known(item)
        if isinstance(known, Stream):
            return [known.time.lower()] if known.time is not None else []
        return [name.lower() for name in known.progress.times] if isinstance(known, View) else []

    def bounded_times(self, item: FromItem) -> list[str]:
        """The event times of an input that have progress bounds of their own."""
        known, own = self.known(item), self.own_times(item)
        return own if not isinstance(known, View) else [name.lower() for name in bounded(known) if name.lower() in own]

    def row_times(self, item: FromItem) -> frozenset[str]:
        """The event times of an input's rows, without the bounds of windows that a query put them into.

        Of a view whose changes are kept: the time by which they are found.
        """
        known = self.known(item)
        own = frozenset() if item.static else frozenset(self.own_times(item))
        if isinstance(known, View) and known.kept:
            return own & {known.time.lower()}
        bounds = (
            {name.lower() for name, shift in known.progress.times.items() if shift != 1}
            if isinstance(known, View)
            else ()
        )
        return own.difference(bounds)

    def times(self, fields: tuple[Field, ...]) -> dict[str, int]:
        """The output columns that are window bounds or event times."""
        shown = ((name, expr.column) for name, expr in self.shown(fields))
        found = {name: self.shift(column) for name, column in shown if column is not None}
        return {name: shift for name, shift in found.items() if shift is not None}

    def key_times(self, keying: Keying, names: Sequence[str]) -> dict[str, int]:
        """The key columns that are window bounds."""
        columns = {name: part.expr.column for name, part in zip(names, keying.parts, strict=False)}
        found = {name: self.shift(column) for name, column in columns.items() if column is not None}
        return {name: shift for name, shift in found.items() if shift is not None}

    def times_by_position(self, item: FromItem) -> dict[int, tuple[str, int]]:
        """The output columns of a SELECT over one stream that are its event times, by position."""
        if item.window is not None:
            return {}
        own = self.columns_named(item, self.bounded_times(item))
        found: dict[int, tuple[str, int]] = {}
        for index, shown in enumerate(self.block.items):
            column = shown.expr.column
            shift = self.shift(column) if column is not None and column in own else None
            if column is not None and shift is not None:
                found[index] = column.name.lower(), shift
        return found

    def shift(self, column: Column) -> int | None:
        """The offset from a column to the progress that has passed it; None if it does not progress."""
        index = self.block.owner.get(column)
        if index is None:
            return None
        item = self.block.sources[index]
        window = item.window
        if window is not None and (bound := name_in(item, column)) in {each.name for each in window.bounds}:
            shift, later = closing_shift(window.window, bound), self.later(item)
            return min(shift + later, FOREVER) if shift is not None and later is not None else None
        name = row_name(item, column)
        return self.time_of(item, name.lower()) if name is not None else None

    def later(self, item: FromItem) -> int | None:
        """The lag of progress behind a window's end at which all rows of the window are final; None if the time of the
        windows does not progress, so that they never close."""
        window = self.window(item)
        assert window is not None
        if window.attribute != "column" or window.along_numbers:
            return 0
        if window.rows:
            return None
        known = self.known(item)
        if isinstance(known, Stream) and known.time is None:
            return 0  # ADVANCE sets the progress of its rows, whatever column their windows use
        shift = self.time_of(item, (window.time_column or "").lower())
        # window_time is just before the window's end, which is at most the end of the outer window.
        return (shift - 1 if shift > MILLISECOND else 0) if shift is not None else None

    def time_of(self, item: FromItem, column: str) -> int | None:
        """The offset from a relation's column to the progress that has passed it; None if it does not progress."""
        known = self.known(item)
        if isinstance(known, Stream):
            return 1 if known.time is not None and known.time.lower() == column else None
        times = known.final_times if isinstance(known, View) else {}
        return next((shift for name, shift in times.items() if name.lower() == column), None)

    def clock(self) -> str:
        """The clock by which the windows of a node close."""
        for item in self.block.sources:
            window = self.window(item)
            if window is not None:
                if window.block:
                    return "chunks"
                if window.along_numbers:
                    return "rows"
                if window.attribute == "arrival_ts":
                    return "arrival"
                continue
            known = self.known(item)
            if isinstance(known, View) and known.progress.clock != "event":
                return known.progress.clock
        return "event"

    def cuts(self) -> tuple[tuple[str, str], ...]:
        """The streams whose chunks are counted, and the columns whose changes end a chunk."""
        found: list[tuple[str, str]] = []
        for item in self.block.sources:
            known, window = self.known(item), self.window(item)
            if isinstance(known, Stream) and window is not None and window.block and window.time_column is not None:
                found.append((known.id, window.time_column))
            elif isinstance(known, View):
                found += known.progress.cuts
        return tuple(dict.fromkeys(found))

    def ends(self, view: View, keying: Keying) -> Ends | None:
        """When the windows of a node end, where they depend on other rows and event time closes them."""
        live = self.block.live
        if len(live) != 1 or self.by_row(live[0]) or view.progress.clock != "event" or view.query.blocks:
            return None
        item = self.block.sources[live[0]]
        window = self.window(item)
        windowed = item.windowed
        assert window is not None
        shift = closing_shift(window, "window_end")
        if shift is None or window.rows or window.own or windowed is None or self.later(item) != 0:
            return None
        windows, found = window.type, Ends(self.input_of(item), window.time_column or "", shift)
        if isinstance(windows, Sessions):
            apart = tuple(name.last for name in window.partition)
            found = replace(found, after=windows.gap + shift, gap=windows.gap, apart=apart, single=keying.single)
        elif not windows.ends_at_row:
            found = replace(found, after=0, every=windows.shortest, origin=window.offset)
        start, *others = windowed.bounds[:3]
        shown = [(name, expr.column) for name, expr in self.shown(view.fields) if expr.column is not None]
        ends = [name for name, column in shown if column in others and name in view.progress.times]
        return replace(found, columns=tuple(ends), starts=tuple(name for name, column in shown if column == start))

    def with_windows_passed(self, view: View) -> View:
        """A view whose rows are final once progress passes their windows, which can be long after their own times."""
        windowed = next((each.windowed for each in self.block.sources if each.windowed is not None), None)
        columns = {name: expr.column for name, expr in self.shown(view.fields)}
        keys = {key.name for key in view.keying.columns}
        by = view.progress.times.keys() & {closing_column(view), *keys}
        if windowed is None or not any(columns.get(name) in (None, *windowed.bounds) for name in by):
            return view
        size = windowed.window.type.uniform_length or FOREVER
        own = {name for name, column in columns.items() if column not in windowed.bounds and name not in keys}
        times = {
            name: min(shift + (size if name in own else 0), FOREVER) for name, shift in view.progress.times.items()
        }
        return replace(view, progress=replace(view.progress, times=times))

    def passes_with(self, view: View) -> Callable[[Expr], int | None]:
        """A function of times of the only input that pass together with the column that closes this node's rows: the
        offset to the progress that has passed them, or None."""
        shown = dict(self.shown(view.fields))
        closing = shown.get(closing_column(view) or "")
        closes = closing.column if closing is not None and len(self.block.live) == 1 else None
        if closes is not None and self.shift(closes) is None:
            closes = None
        item = self.block.sources[self.block.owner[closes]] if closes is not None else None
        windowed = item.windowed if item is not None else None
        times: tuple[Column | None, ...] = (closes,)
        if windowed is not None and closes in windowed.bounds:
            times = (*windowed.bounds, *([windowed.along] if windowed.window.by_row else []))

        def passes(expr: Expr) -> int | None:
            column = expr.column if closes is not None else None
            return self.shift(column) if column is not None and column in times else None

        return passes


def name_in(item: FromItem, column: Column | None) -> str:
    """The name of a column before aliases."""
    rel = item.rel
    while isinstance(rel, Project):
        column = next(expr.column for own, expr in rel.items if own == column)
        rel = rel.input
    return column.name if column is not None else ""


def row_name(item: FromItem, column: Column | None) -> str | None:
    """The name of a column in the rows themselves; None for a column of no row."""
    own = item.row_column(column) if column is not None else None
    return own.name if own is not None else None


def closing_column(view: View) -> str | None:
    """The output column that gives when the window of a row closes."""
    return leading_column(view) if view.operator != "stateless" else None


def leading_column(view: View) -> str | None:
    names = [field.name for field in view.fields if field.name in view.progress.times]
    return min(names, key=lambda name: name.lower() != "window_end", default=None)


def waiting(view: View, ahead: int) -> View:
    """A view whose rows can change until so long after their times: these pass that much later."""
    times = {name: min(shift + ahead, FOREVER) for name, shift in view.progress.times.items()}
    return replace(view, progress=replace(view.progress, ahead=ahead, times=times))
