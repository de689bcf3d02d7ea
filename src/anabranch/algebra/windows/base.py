"""The definition of a window type: three functions of values, and the equivalent SQL relation.

Given some rows, `windows` returns all windows, `extent` the rows that a window holds and `wids` the windows that hold a
row. The extent is the definition, the ids are the implementation: a row is in the extent of a window exactly if the
window is among the row's ids. `relation` writes the ids as Spark SQL. Nothing here runs SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

Context = Literal["CF", "FCF", "FCA"]
W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True)
class Row:
    """A row as windows see it: the value of the window attribute, the arrival number (from 0) and a key; for a type
    with `columns`, their values too."""

    value: int
    number: int
    key: Hashable = None
    columns: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Rows:
    """A relation as windows see it, in SQL.

    source: the relation itself, as written after FROM.
    value:  the window attribute, a BIGINT expression over the alias `__rows`. Where it is NULL, a row has no window.
    number: the arrival number, a BIGINT expression over `__rows`; None if there is none.
    keys:   expressions over `__rows`, for the types that use keys.
    columns: expressions over `__rows`, for the types with `columns`, in that order.
    """

    source: str
    value: str
    number: str | None = None
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def arrival(self, what: str) -> str:
        """The arrival number; raises if there is none."""
        if self.number is None:
            raise ValueError(f"{what} need the arrival numbers of rows, and this relation has none")
        return self.number


#: The end of a window that only the end of its stream closes; the latest time in Python.
OPEN = 253_402_300_799_999_999

#: The types with a SQL function of their own, by its name in capitals.
FUNCTIONS: dict[str, type[WindowType[Any]]] = {}


class WindowType(ABC, Generic[W]):
    """One type of windows. W is the type of the ids: integers, or (integer, key) if each key has its own windows.

    context: the rows that determine the windows of a row. "CF" (context free): only the row. "FCF" (forward context
    free): also the rows before it. "FCA" (forward context aware): also later rows.

    A type can add a function to SQL. It is a dataclass then, and its fields are the arguments of the function after
    the relation and the column: lengths in units of the column, times or numbers, and plain numbers for the fields in
    `counts`. Then the `columns` follow that windows also depend on. `function` is the name; `numbered`: it needs the
    arrival numbers of rows; `shortest` is the minimum length of a window, which determines `window_time`, and
    `longest` the maximum; `closes_after` is how far past the end of a window progress has to be for the window to
    close, unless `closes_by_progress` is false; `ends_at_row`: a window holds the row that it ends at, and its end is
    the value of that row; `cut_by_key`: the column of the call is the key, and windows end where it changes: they are
    ranges of arrival numbers.

    Values, ids and progress are integers of either sign.
    """

    context: ClassVar[Context]
    function: ClassVar[str | None] = None
    counts: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[str, ...]] = ()
    numbered: ClassVar[bool] = False
    closes_after: ClassVar[int] = 0
    closes_by_progress: ClassVar[bool] = True
    ends_at_row: ClassVar[bool] = False
    cut_by_key: ClassVar[bool] = False

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if cls.function is not None:
            FUNCTIONS[cls.function.upper()] = cls

    @property
    def shortest(self) -> int:
        return 1

    @property
    def longest(self) -> int | None:
        """None if a window can be of any length."""
        return None

    @property
    def uniform_length(self) -> int | None:
        """The length of every window; None if lengths differ."""
        return self.longest if self.longest == self.shortest else None

    @property
    def by_row(self) -> bool:
        """Whether a row alone determines its windows in SQL, so that each run can assign its rows to windows."""
        return self.context == "CF"

    @property
    def needs_numbers(self) -> bool:
        """Whether the arrival numbers of rows are needed."""
        return self.numbered

    @abstractmethod
    def wids(self, row: Row, rows: Sequence[Row]) -> Sequence[W]:
        """The ids of the windows that hold a row."""

    @abstractmethod
    def bounds(self, wid: W, rows: Sequence[Row] = ()) -> tuple[int | None, int]:
        """The start (inside) and the end (outside) of a window; no start if it holds everything before its end.

        The rows matter to types whose windows depend on rows.
        """

    @abstractmethod
    def relation(self, rows: Rows) -> str:
        """The relation with one row for each row and window: the row's columns, `__start`, `__end` and `__wid`.

        All three are BIGINT; `__wid` is the integer of the id, and the key, if there is one, is in the row.
        """

    def windows(self, rows: Sequence[Row]) -> list[W]:
        """The ids of the windows that hold any of the rows, by their ends."""
        return self.in_order({wid for row in rows for wid in self.wids(row, rows)}, rows)

    def extent(self, wid: W, rows: Sequence[Row]) -> list[Row]:
        """The rows that a window holds: those with a value between its bounds."""
        start, end = self.bounds(wid, rows)
        return [row for row in rows if (start is None or start <= row.value) and row.value < end]

    def closes(self, wid: W, progress: int, rows: Sequence[Row] = ()) -> bool:
        """Whether no row of the window is expected any more, if none with a value below `progress` is."""
        return progress >= self.bounds(wid, rows)[1] + self.closes_after

    def in_order(self, wids: set[W], rows: Sequence[Row]) -> list[W]:
        """Ids by the ends of their windows."""
        return sorted(wids, key=lambda wid: (self.bounds(wid, rows)[1], str(wid)))


def ranks(rows: Sequence[Row]) -> dict[int, int]:
    """The 0-based position of each row among the rows of its key in arrival order, by its arrival number.

    >>> ranks([Row(5, 0, "a"), Row(5, 1, "b"), Row(5, 2, "a")])
    {0: 0, 1: 0, 2: 1}
    """
    seen: dict[Hashable, int] = {}
    found = {}
    for row in sorted(rows, key=lambda row: row.number):
        found[row.number] = seen.get(row.key, 0)
        seen[row.key] = found[row.number] + 1
    return found


def positive(value: int, what: str) -> None:
    """Refuse a size that is not positive.

    >>> positive(0, "the gap of sessions")
    Traceback (most recent call last):
    ValueError: the gap of sessions must be positive, not 0
    """
    if value <= 0:
        raise ValueError(f"{what} must be positive, not {value}")
