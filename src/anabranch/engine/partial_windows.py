"""The windows of a partial, as SQL over the columns of its table: those of its pane, or those of its span."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.algebra.windows import (
    Engine,
    SlidingWindows,
    first_window_sql,
    last_window_sql,
    pane_start_sql,
    window_starts_sql,
)
from anabranch.algebra.windows.spans import Judging, first_of_span_sql, settled_sql, span_sql, span_starts_sql
from anabranch.duck import quoted
from anabranch.engine.tables import PANE
from anabranch.plan.states import Panes, PartialColumn
from anabranch.plan.types import duckdb_type
from anabranch.sql.text import quote_name

_MICROS = {"spark": f"unix_micros({PANE})", "duckdb": f"epoch_us({PANE})"}


def window_position_sql(panes: Panes, along: str, engine: Engine) -> list[str]:
    """The columns that position the partial of a row, from the row's value for windows; none without windows."""
    if panes.time is None:
        return []
    if panes.spans is not None:
        return list(span_sql(along, panes.spans, engine))
    return [pane_start_sql(along, panes.grain, panes.origin, engine)]


def starts_sql(panes: Panes, windows: SlidingWindows, engine: Engine) -> str:
    """The starts of the windows that a partial counts in, as an array of BIGINT."""
    pane = _MICROS[engine]
    if panes.spanned:
        return span_starts_sql(pane, windows.slide, engine)
    return window_starts_sql(pane, windows, panes.grain, engine)


def ends_sql(panes: Panes, windows: SlidingWindows, engine: Engine) -> tuple[str, str]:
    """The start of the first window that a partial counts in, and of the last one."""
    pane = _MICROS[engine]
    if panes.spanned:
        return first_of_span_sql(pane, windows.slide), pane
    first = first_window_sql(pane, windows, panes.grain, engine)
    return first, last_window_sql(pane, windows, panes.grain, engine)


def kept_partials_sql(
    panes: Panes,
    columns: Iterable[PartialColumn],
    source: str,
    engine: Engine,
    judging: Judging | None = None,
    known: str | None = None,
) -> str:
    """The partials to keep of a relation of partials with weights: by span for small groups, else by window."""
    quote = quote_name if engine == "spark" else quoted
    reduces, types = {}, {}
    for column in columns:
        name = quote(column.name)
        reduces[name] = column.reduce.format(c=name) if engine == "spark" else column.reduce_in_duckdb(name)
        types[name] = column.type if engine == "spark" else duckdb_type(column.type) or ""
    keys = [quote(key.name) for key in panes.keys]
    return settled_sql(source, panes.grain, keys, reduces, types, engine, judging, known)
