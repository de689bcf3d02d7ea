"""Windows by difference: a partial is added at its first window, and subtracted after its last.

The running total is the partial of a window, so each partial counts twice, however many windows it is in. Windows
between two such events are equal. Only for partials that can be subtracted.
"""

from __future__ import annotations

from anabranch.algebra.windows import SlidingWindows
from anabranch.algebra.windows.sql import quotient
from anabranch.engine.partial_windows import ends_sql
from anabranch.engine.tables import PANE
from anabranch.plan.states import BlockUse, Panes
from anabranch.sql.text import quote_name


def sliding_text(panes: Panes, use: BlockUse, windows: SlidingWindows) -> str:
    """The partials of sliding windows, from `@panes`; `__start` is the start of a window."""
    first, last = ends_sql(panes, windows, "spark")
    running, values = _running(panes, use, first, f"{last} + {windows.slide}")
    starts = f"explode(sequence(__at, __next - {windows.slide}, CAST({windows.slide} AS BIGINT))) AS __start"
    return f"SELECT {', '.join([*values, starts])} FROM ({running})"


def bins_text(panes: Panes, use: BlockUse) -> str:
    """The partials of windows that end at rows, from `@panes`; `__wid` is the end of a window."""
    assert use.bins is not None
    size, every, order, ends = use.bins
    value = f"unix_micros({PANE})"
    counted = f"SELECT {value} AS wid, sum({quote_name(ends)}) AS n FROM `@panes` GROUP BY {value}"
    found = f"SELECT wid FROM ({counted}) WHERE n > 0"
    if order == "rank" and every > 1:
        ranked = f"SELECT wid, n, sum(n) OVER (ORDER BY wid) AS upto FROM ({counted})"
        found = f"SELECT wid FROM ({ranked}) WHERE upto div {every} > (upto - n) div {every}"
    # A partial leaves within one size: so a window that ends until then is in the bucket of the event, or the next.
    bucket = quotient("wid", size)
    windows = f"SELECT wid, explode(array({bucket} - 1, {bucket})) AS bucket FROM ({found})"
    running, values = _running(panes, use, value, f"{value} + {size}")
    return (
        f"SELECT {', '.join([*values, '__windows.wid AS __wid'])} FROM ({running}) AS __running"
        f" JOIN ({windows}) AS __windows ON __windows.bucket = {quotient('__at', size)}"
        " AND __windows.wid >= __at AND __windows.wid < __next"
    )


def _running(panes: Panes, use: BlockUse, first: str, beyond: str) -> tuple[str, list[str]]:
    """The running totals from `__at` until `__next`, and the texts of keys and partials over them."""
    keys = [quote_name(key.name) for key in panes.keys]
    names = [quote_name(name) for name in use.columns]
    comes = ", ".join(f"{name} AS d{i}, int({name} IS NOT NULL) AS n{i}" for i, name in enumerate(names))
    goes = ", ".join(f"-{name} AS d{i}, -int({name} IS NOT NULL) AS n{i}" for i, name in enumerate(names))
    events = f"inline(array(struct({first} AS __at, {comes}), struct({beyond} AS __at, {goes})))"
    sums = ", ".join(f"sum(d{i}) AS d{i}, sum(n{i}) AS n{i}" for i in range(len(names)))
    grouped = ", ".join([*keys, "__at"])
    netted = f"SELECT {grouped}, {sums} FROM (SELECT {', '.join([*keys, events])} FROM `@panes`) GROUP BY {grouped}"
    order = (f"PARTITION BY {', '.join(keys)} " if keys else "") + "ORDER BY __at"
    running = ", ".join(
        f"sum({letter}{i}) OVER ({order} ROWS UNBOUNDED PRECEDING) AS {letter}{i}"
        for i in range(len(names))
        for letter in "dn"
    )
    summed = f"SELECT {grouped}, lead(__at) OVER ({order}) AS __next, {running} FROM ({netted})"
    types = [panes.column(name).type for name in use.columns]
    values = [
        f"CAST(IF(n{i} > 0, d{i}, NULL) AS {type}) AS {name}"
        for i, (name, type) in enumerate(zip(names, types, strict=True))
    ]
    there = f"d{use.columns.index(use.presence)} > 0"
    return f"SELECT * FROM ({summed}) WHERE __next IS NOT NULL AND {there}", [*keys, *values]
