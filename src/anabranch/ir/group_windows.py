"""Windows that GROUP BY calls, as windows of what the SELECT reads.

    SELECT k, window.start, count(*) FROM s GROUP BY k, window(ts, '10 minutes', '5 minutes')

is the plan of

    SELECT k, window_start AS start, count(*)
    FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 5 MINUTES, INTERVAL 10 MINUTES) AS s
    GROUP BY k, window_start, window_end

and `session_window` that of SESSION over the rows that WHERE lets through, kept apart by the other columns of GROUP BY.
This goes for a SELECT over one relation, with the time in a column of it and lengths that are written out. Of any other
the call is an expression, for Spark to compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.ir.expr import Column, Expr, of_column
from anabranch.ir.read import Reader, composed
from anabranch.ir.rel import Computed, Filter, Project, Rel, Windowed, Written
from anabranch.ir.rewrite import Rewrite
from anabranch.sql.columns import check_window
from anabranch.sql.durations import duration_text
from anabranch.sql.lexer import normal_form, quote_name, quote_string
from anabranch.sql.syntax import GroupWindow, Select

if TYPE_CHECKING:
    from anabranch.ir.build import Builder, From

_WHOLE = "named_struct('start', window_start, 'end', window_end)"
_TIME = "(window_end - INTERVAL '1' MICROSECOND)"  # as Spark has it of a window
#: Parts of a window as others have them.
_PARTS = {"start": "w.start", "end": "w.end", "rowtime": "(w.end - INTERVAL 1 MILLISECOND)"}
#: The types along which Spark makes the same windows.
_TIMES = ("timestamp", "date")


@dataclass(frozen=True)
class InWindows:
    """FROM in windows, with what is left of WHERE and the keys; called, what an expression is over it."""

    source: From
    where: Expr | None
    keys: tuple[Expr, ...]
    calls: Rewrite
    by: Mapping[Column, Expr]

    def __call__(self, expr: Expr) -> Expr:
        made = self.calls(expr)
        alone = self.by.get(made.column) if made.column is not None else None
        return alone if alone is not None else made.substitute(self.by)


def calls_for(builder: Builder, reader: Reader, rel: Rel, window: GroupWindow | None) -> dict[str, Expr]:
    """What the calls of a window and of its parts stand for, and its name."""
    if window is None:
        return {}
    form, function, spec = normal_form(window.call.tokens), window.call.tokens[0].text.lower(), window.spec
    if spec is None:
        made = reader.expr(window.call.tokens)
    else:
        figures = [spec.size, spec.slide, spec.offset][: 3 if spec.offset else 2 if spec.slide != spec.size else 1]
        lengths = "".join(f", {quote_string(duration_text(each))}" for each in figures)
        hint, time = "name the column with the time first: TUMBLE(ts, INTERVAL ...)", reader.expr(window.time)
        time = time if window.time else of_column(builder.event_time(rel, window.call.span, hint))
        made = composed(f"{window.name}(time{lengths})", {"time": time})
    parts = {f"{function}_{part}{form[len(function) :]}": composed(text, {"w": made}) for part, text in _PARTS.items()}
    return {window.name: made, form: made, **parts}


def in_windows(
    builder: Builder, select: Select, call: Expr, source: From, where: Expr | None, keys: Sequence[Expr],
    exprs: Sequence[Expr],
) -> InWindows | None:  # fmt: skip
    """What becomes of a SELECT that groups by a call; None where the call is for Spark to compute."""
    assert select.window is not None
    spec, span, rel = select.window.spec, select.window.call.span, source.rel
    along = call.parts[2] if call.parts[3:4] == (",",) else None
    if spec is None or not isinstance(along, Column) or along not in rel.columns:
        return None
    if len(source.items) != 1 or source.items[0].rel is not rel or isinstance(rel, Windowed) or rel.refreshable:
        return None
    if not select.planned and along.type not in _TIMES:
        return None
    spec = replace(spec, time_column=along.name)
    check_window(builder.text, spec, {column.name: column.type for column in rel.columns})
    whole, start, end, time = (builder.new(name, "") for name in ("whole", "start", "end", "time"))
    calls = Rewrite(keys=list(_parts(call, whole, start, end, time)))
    grouped = [calls(key).column for key in keys]
    others = [column for column in grouped if column not in (whole, start, end)]
    if len(others) == len(grouped) or (where is not None and calls(where) != where):
        return None
    apart = [column for column in others if column in rel.columns] if spec.kind == "session" else []
    if spec.kind == "session":
        if whole not in grouped or len(apart) < len(others):
            return None
        if where is not None:
            rel, where = Project(Filter(rel, where), tuple((each, of_column(each)) for each in rel.columns)), None
    made = builder.windowed(rel, spec, along, [column for column in apart if column is not None])
    made = replace(made, label=source.rel.label, written=Written(builder.text, span, span))
    bounds = {column.name: of_column(column) for column in made.bounds}
    first, last = bounds["window_start"], bounds["window_end"]
    by = {start: first, end: last, whole: composed(_WHOLE, bounds), time: composed(_TIME, bounds)}
    found = InWindows(replace(source, rel=made, items=(replace(source.items[0], rel=made),)), where, (), calls, by)
    both = [(first, last) if column is whole else (found(key),) for column, key in zip(grouped, keys, strict=True)]
    found = replace(found, keys=tuple(dict.fromkeys(each for key in both for each in key)))
    used = [*map(found, exprs), *found.keys, *([where] if where is not None else [])]
    covered = set(rel.columns) - set(made.kept)
    return None if any(expr.columns() & covered for expr in used) else found


def _parts(call: Expr, whole: Column, start: Column, end: Column, time: Column) -> Iterator[Computed]:
    """The ways to speak of a window: of all of it, of its bounds, and of its time."""
    for form in (call.parts, ("(", *call.parts, ")")):
        yield whole, Expr(form)
        yield time, Expr(("window_time", "(", *form, ")"))
        for column in (start, end):
            yield column, Expr((*form, ".", column.name))
            yield column, Expr((*form, ".", quote_name(column.name)))
