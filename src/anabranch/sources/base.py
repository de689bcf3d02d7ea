"""What a source is: positions, and frames between them.

A position is plain JSON, committed with the run that ends there, so that the ledger alone says what was read: a run
without a record never happened and is read again. Reading the same stretch twice gives the same rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from anabranch.errors import DataError, SourceError
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Columns a source adds to the stream's own: the text of a row that does not parse, and where it came from.
CORRUPT, ORIGIN, PARTITION = "_corrupt", "_origin", "_partition"


@dataclass(frozen=True)
class BadRow:
    """Something that could not be taken in, or not by a view: then with the expression that failed."""

    source: str
    offset: int | None
    reason: str
    raw: str | None
    column: str | None = None
    view: str | None = None
    expression: str | None = None


@dataclass
class Found:
    """The rows that a view cannot compute: the places of all, and what is known of the first."""

    indexes: set[int] = field(default_factory=set)
    rows: list[BadRow] = field(default_factory=list)
    errors: list[DataError] = field(default_factory=list)  # one for each row that is listed


@dataclass(frozen=True)
class Stretch:
    """The next piece of a source: where it ends, what it holds, and about how much it is.

    `files` are those that it is read from, in the order in which they count as having come.
    """

    position: Any
    captured: Any
    bytes: int
    bad: tuple[BadRow, ...] = ()
    files: tuple[str, ...] = ()


class Source(Protocol):
    """A place rows come from. A class that has it as its base writes `fields`, `next` and `read`; the rest holds for
    rows that end, come with types, in one partition and in no files, and that Spark reads."""

    endless: bool = False
    typed: bool = True  # whether rows come with types, so that none can fail to parse
    cheap: bool = False  # whether reading a stretch a second time costs less than keeping it
    waits: bool = False  # whether more is there: left for the next stretch, or not to be read yet; known after `next`
    idles: bool = True  # whether an endless one has nothing more to give at times: a topic, not a generator

    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The columns, found out once when the stream is made without any."""

    @abstractmethod
    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        """What comes after a position, None at first; None while there is nothing."""

    @abstractmethod
    def read(self, captured: list[Any]) -> DataFrame:
        """The rows of stretches, with CORRUPT, ORIGIN and PARTITION columns. What is captured can be read at any time:
        by views that are made later, too, unless the kind `reads_once`."""

    def partitions(self) -> list[str]:
        """Names of the partitions that hold progress back each on its own, as in the PARTITION column."""
        return [""]

    def files_of(self, captured: Any) -> tuple[str, ...]:
        """The files that a stretch is read from, in the order in which they came; none where rows are in no files."""
        return ()

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        """Columns of the rows of a stretch that is not large, in their order; None for columns asks for all.

        Without a Spark job, and only where that gives the same rows.
        """
        return None

    def verify(self, captured: list[Any]) -> None:
        """Raise SourceChanged if what was read of stretches is not what was captured."""
        return None

    def committed(self, stretch: Stretch) -> None:
        """A run with this stretch has been committed."""
        return None


@runtime_checkable
class Lagging(Protocol):
    """A source of a log outside."""

    def lag(self, position: Any) -> int | None:
        """How many bytes of it are kept for us, or not read yet; None if nothing is."""
        ...


@runtime_checkable
class Leaving(Protocol):
    """A source that made something outside for its stream."""

    def left(self) -> None:
        """The stream was dropped: take away what was made for it."""
        ...


class SourceChanged(SourceError):
    """A source changed while it was being read: the run is thrown away, and read again."""
