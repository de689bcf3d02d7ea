"""What the command line needs of the engine, as protocols.

The command line is written and tested against these; no file of it imports the engine or Spark at its top.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol

#: A pyarrow.Table; Any because pyarrow has no types of its own and must not be imported early.
ArrowTable = Any


class Batch(Protocol):
    """The changes of one run."""

    @property
    def version(self) -> int: ...
    @property
    def progress(self) -> int | None:
        """Microseconds since the Unix epoch."""
        ...

    @property
    def rows(self) -> int:
        """Rows its streams have taken in so far, those from before the statement included."""
        ...

    @property
    def late(self) -> int: ...
    @property
    def changes(self) -> ArrowTable:
        """The columns of the result, then `_diff`."""
        ...


class Result(Protocol):
    """The answer to one statement."""

    @property
    def kind(self) -> str:
        """One of `rows`, `changes`, `done`."""
        ...

    @property
    def message(self) -> str | None: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def types(self) -> list[str]: ...
    @property
    def endless(self) -> bool: ...
    @property
    def times(self) -> Mapping[str, int]:
        """The columns that are event times, and how long after each one progress has passed it."""
        ...

    def toArrow(self) -> ArrowTable: ...
    def __iter__(self) -> Iterator[Batch]: ...


class RunReport(Protocol):
    """One committed run."""

    @property
    def stream(self) -> str: ...
    @property
    def run(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def bad(self) -> int: ...
    @property
    def milliseconds(self) -> float: ...
    @property
    def progress(self) -> int | None: ...
    @property
    def total_rows(self) -> int: ...
    @property
    def rows_per_second(self) -> float: ...


class Session(Protocol):
    """An open home."""

    @property
    def stop(self) -> threading.Event: ...
    def cancel(self) -> None: ...
    def execute(self, text: str, *, live: bool, dry_run: bool = False) -> Iterator[Result]: ...
    def run(self, text: str, *, until_idle: bool, on_run: Callable[[RunReport], None]) -> None: ...
    def on_warning(self, tell: Callable[[str], None]) -> None: ...
    def compact(self) -> str: ...
    def names(self) -> list[str]:
        """Streams, tables, views and their columns."""
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Session: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> object: ...
