"""Windows: which windows hold a row, when a window closes, how windows are cut into panes.

A window type is one small class: `base` defines its members, and the other modules have the built-in types.
`strategies`, `spans` and `bins` are plain models of how windows are computed, `costs` a cost model. Nothing here
runs SQL or knows where rows come from.
"""

from anabranch.algebra.windows.base import FUNCTIONS, OPEN, Context, Row, Rows, WindowType, ranks
from anabranch.algebra.windows.by_tuple import SlideByTuple
from anabranch.algebra.windows.chunks import Chunks
from anabranch.algebra.windows.cumulating import CumulatingWindows, cumulating_ends_sql
from anabranch.algebra.windows.landmark import Landmark
from anabranch.algebra.windows.partitioned import Partitioned
from anabranch.algebra.windows.sessions import Sessions, sessions
from anabranch.algebra.windows.sliding import (
    MILLISECOND,
    SlidingWindows,
    first_window_sql,
    last_window_sql,
    pane_number_sql,
    pane_start_sql,
    shared_grain,
    time_before_end,
    window_starts_sql,
    window_time,
)
from anabranch.algebra.windows.sql import Engine

__all__ = [
    "FUNCTIONS",
    "MILLISECOND",
    "OPEN",
    "Chunks",
    "Context",
    "CumulatingWindows",
    "Engine",
    "Landmark",
    "Partitioned",
    "Row",
    "Rows",
    "Sessions",
    "SlideByTuple",
    "SlidingWindows",
    "WindowType",
    "cumulating_ends_sql",
    "first_window_sql",
    "last_window_sql",
    "pane_number_sql",
    "pane_start_sql",
    "ranks",
    "sessions",
    "shared_grain",
    "time_before_end",
    "window_starts_sql",
    "window_time",
]
