"""Window functions in GROUP BY, rewritten to window functions in FROM.

    SELECT k, window.start, count(*) FROM s GROUP BY k, window(ts, '10 minutes', '5 minutes')

is the plan of

    SELECT k, window_start AS start, count(*)
    FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 5 MINUTES, INTERVAL 10 MINUTES) AS s
    GROUP BY k, window_start, window_end

and `session_window` that of SESSION over the rows that pass WHERE, partitioned by the other columns of GROUP BY.
This works for a SELECT over one relation that has the time as a column, with literal lengths. In any other SELECT
the call is an expression, computed by Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.ir.expr import Column, Expr, of_column
from anabranch.ir.read import Reader, composed
from anabranch.ir.rel import Filter, Project, Windowed, Written
from anabranch.ir.rewrite import Rewrite
from anabranch.sql.columns import check_window
from anabranch.sql.durations import duration_text
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import GroupWindow, Select
from anabranch.sql.text import quote_name, quote_string

if TYPE_CHECKING:
    from anabranch.ir.build import Builder, From

_WHOLE = "named_struct('start', window_start, 'end', window_end)"
_TIME = "(window_end - INTERVAL '1' MICROSECOND)"  # as in Spark
#: Fields of a window by suffix of Flink's functions: TUMBLE_START.
_PARTS = {"start": "w.start", "end": "w.end", "rowtime": "(w.end - INTERVAL 1 MILLISECOND)"}
#: The types of time for which Spark makes the same windows.
_TIMES = ("timestamp", "date")
_HINT = "name the column with the time first: TUMBLE(ts, INTERVAL ...)"


class Grouping:
    """The window that a SELECT groups by. Expressions read it as a column; calling this substitutes it."""

    def __init__(self, builder: Builder, select: Select, window: GroupWindow, reader: Reader, source: From) -> None:
        self.builder, self.window, self.source, self.planned = builder, window, source, select.planned
        self.whole = builder.new(window.name, "")
        self.fields = Rewrite()
        spec = window.spec
        if spec is None:
            self.time = call = reader.expr(window.call.tokens)
        else:
            self.time = reader.expr(window.time)
            if not window.time:
                self.time = of_column(builder.event_time(source.rel, window.call.span, _HINT))
            given = [spec.size, spec.slide, spec.offset][: 3 if spec.offset else 2 if spec.slide != spec.size else 1]
            lengths = "".join(f", {quote_string(duration_text(each))}" for each in given)
            call = composed(f"{window.name}(time{lengths})", {"time": self.time})
        self.by = {self.whole: call}

    @property
    def names(self) -> dict[str, Expr]:
        """The expressions for the name of the window, and for the calls of it and of its fields."""
        call, made = self.window.call.tokens, {"w": of_column(self.whole)}
        form, function = normal_form(call), call[0].text.lower()
        parts = {f"{function}_{part}{form[len(function) :]}": composed(text, made) for part, text in _PARTS.items()}
        return {self.window.name: made["w"], form: made["w"], **parts}

    def __call__(self, expr: Expr) -> Expr:
        made = self.fields(expr)
        alone = self.by.get(made.column) if made.column is not None else None
        return alone if alone is not None else made.substitute(self.by)

    def place(
        self, where: Expr | None, keys: Sequence[Expr], exprs: Sequence[Expr], sets: bool
    ) -> tuple[Expr | None, tuple[Expr, ...]]:
        """The remaining WHERE and the keys, with the windows moved into FROM if possible."""
        start, end, time = (self.builder.new(name, "") for name in ("start", "end", "time"))
        fields = [(time, Expr(("window_time", "(", self.whole, ")")))]
        for column in (start, end):
            fields += [(column, Expr((self.whole, ".", name))) for name in (column.name, quote_name(column.name))]
        rewrite = Rewrite(keys=fields)
        grouped = [rewrite(key).column for key in keys]
        others = [column for column in grouped if column not in (self.whole, start, end)]
        found = [*exprs, *keys, *([where] if where is not None else [])]
        made = None if sets else self._windowed(where, others, {column for expr in found for column in expr.columns()})
        session = made is not None and made.window.kind == "session"
        if made is None or len(others) == len(grouped) or (session and self.whole not in grouped):
            return (None if where is None else self(where)), tuple(map(self, keys))
        bounds = {column.name: of_column(column) for column in made.bounds}
        first, last = bounds["window_start"], bounds["window_end"]
        self.by = {start: first, end: last, self.whole: composed(_WHOLE, bounds), time: composed(_TIME, bounds)}
        self.fields = rewrite
        self.source = replace(self.source, rel=made, items=(replace(self.source.items[0], rel=made),))
        both = [
            [first, last] if column is self.whole else [self(key)] for column, key in zip(grouped, keys, strict=True)
        ]
        return (None if session else where), tuple(dict.fromkeys(each for key in both for each in key))

    def _windowed(self, where: Expr | None, others: Sequence[Column | None], used: set[Column]) -> Windowed | None:
        """The input in windows; None if Spark has to compute the call."""
        spec, along, rel, items = self.window.spec, self.time.column, self.source.rel, self.source.items
        if spec is None or along is None or along not in rel.columns or not (self.planned or along.type in _TIMES):
            return None
        if len(items) != 1 or items[0].rel is not rel or isinstance(rel, Windowed) or rel.refreshable:
            return None
        apart = [column for column in others if column is not None and column in rel.columns]
        session = spec.kind == "session"
        if (session and len(apart) < len(others)) or (where is not None and self.whole in where.columns()):
            return None
        if session and where is not None:
            rel = Project(Filter(rel, where), tuple((column, of_column(column)) for column in rel.columns))
        spec, span = replace(spec, time_column=along.name), self.window.call.span
        check_window(self.builder.text, spec, {column.name: column.type for column in rel.columns})
        made = self.builder.windowed(rel, spec, along, apart if session else ())
        if used & (set(rel.columns) - set(made.kept)):  # a bound of the windows hides a column that the query uses
            return None
        return replace(made, label=items[0].rel.label, written=Written(self.builder.text, span, span))
