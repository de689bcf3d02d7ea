"""What people make besides views: streams, tables, sinks and functions. Plain values; ids never change, and names in
the ledger are ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.algebra.progress import Policy
from anabranch.algebra.rules import Rule
from anabranch.sources.registry import is_live, reads_once
from anabranch.types import Field

#: The columns that kept rows have besides those of their stream: their number among all its rows, and when they came.
ROW_NUM, ARRIVAL_TS = "_row_num", "_arrival_ts"
#: How placeholders begin behind which the rows of a stream are with these.
NUMBERED = "@n:"


@dataclass(frozen=True)
class Stream:
    """A named, append-only source of rows."""

    id: str
    name: str
    sql: str
    fields: tuple[Field, ...]
    time: str | None
    rule: Rule | None  # how progress follows the rows; None: it does not
    idle: int | None
    ahead: int | None
    source: str | None  # None: rows come by INSERT and COPY
    options: Mapping[str, Any]
    keep: str  # "all" or "nothing"
    fail_on_bad: bool
    kept_since: int | None = None  # first run whose rows are in the rows table; None: it has none
    key: str | None = None  # the column whose values have progress of their own
    lull: bool = False  # whether the clock moves its progress when it is silent
    on_gap: str = "fail"  # or "skip": when a position is gone
    on_schema_change: str = "ignore"  # or "fail", "add"; older homes have none
    inferred: bool = False  # whether the columns were found out, not declared

    kind = "stream"

    @property
    def live(self) -> bool:
        """Whether rows come as they happen, so that the clock says something about their times."""
        return is_live(self.source)

    @property
    def rereadable(self) -> bool:
        """Whether the rows of its past can be had from its source once more."""
        return self.source is not None and not reads_once(self.source)

    @property
    def policy(self) -> Policy:
        return Policy(self.rule, self.idle, self.ahead, self.live, self.key is not None, self.lull)

    @property
    def rows_table(self) -> str:
        return f"{self.id}.rows"

    @property
    def row_fields(self) -> tuple[Field, ...]:
        """The columns of the table of its rows."""
        return (*self.fields, Field(ROW_NUM, "bigint"), Field(ARRIVAL_TS, "timestamp"))

    def seen_as(self, placeholder: str) -> tuple[Field, ...]:
        """The columns that its rows have behind a placeholder."""
        return self.row_fields if placeholder.startswith(NUMBERED) else self.fields


@dataclass(frozen=True)
class Table:
    """A static table. Views read it once, when made, and again on REFRESH."""

    id: str
    name: str
    sql: str
    fields: tuple[Field, ...]
    source: str | None
    options: Mapping[str, Any]
    query: str | None  # CREATE TABLE AS SELECT: what REFRESH runs again
    every_run: bool = False  # refreshed before each run of a stream that meets it
    asked: str = ""  # why it stays where it is and is looked up by key; empty: it is loaded

    kind = "table"


@dataclass(frozen=True)
class Sink:
    """A place outside that the changes of a view go to, or what it shows."""

    id: str  # never used again in its home, for folders say whose they are
    name: str
    sql: str
    view: str
    into: str  # "files" or "delta"
    options: Mapping[str, Any]

    kind = "sink"


@dataclass(frozen=True)
class Function:
    """A Python function that queries may call. Processes import it by its name in Python when one does."""

    id: str
    name: str
    sql: str
    reference: str  # package.module.function
    returns: str | None  # None: it is one of Spark's own making, and says itself what it returns

    kind = "function"
