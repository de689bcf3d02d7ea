"""The definitions that users create besides views: streams, tables, sinks and functions. Plain values; ids never
change, and names in the ledger are ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.algebra.progress import Policy
from anabranch.algebra.rules import Rule
from anabranch.sources.registry import is_live, reads_once
from anabranch.types import Field

#: The columns of kept rows besides those of their stream: their number among all its rows, and their arrival time.
ROW_NUM, ARRIVAL_TS = "_row_num", "_arrival_ts"
#: The prefix of placeholders for the rows of a stream with these columns.
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
    key: str | None = None  # the column with progress per value
    lull: bool = False  # whether the clock advances its progress when it is silent
    on_gap: str = "fail"  # or "skip": when a position is gone
    on_schema_change: str = "ignore"  # or "fail", "add"; older homes have none
    inferred: bool = False  # whether the columns were inferred, not declared

    kind = "stream"

    @property
    def live(self) -> bool:
        """Whether rows arrive as they happen, so that the clock bounds their times."""
        return is_live(self.source)

    @property
    def rereadable(self) -> bool:
        """Whether its source can return past rows again."""
        return self.source is not None and not reads_once(self.source)

    @property
    def policy(self) -> Policy:
        return Policy(self.rule, self.idle, self.ahead, self.live, self.key is not None, self.lull)

    @property
    def rows_table(self) -> str:
        return f"{self.id}.rows"

    @property
    def row_fields(self) -> tuple[Field, ...]:
        """The columns of its rows table."""
        return (*self.fields, Field(ROW_NUM, "bigint"), Field(ARRIVAL_TS, "timestamp"))

    def seen_as(self, placeholder: str) -> tuple[Field, ...]:
        """The columns of its rows under a placeholder."""
        return self.row_fields if placeholder.startswith(NUMBERED) else self.fields


@dataclass(frozen=True)
class Table:
    """A static table. Views read it when they are created, and again on REFRESH."""

    id: str
    name: str
    sql: str
    fields: tuple[Field, ...]
    source: str | None
    options: Mapping[str, Any]
    query: str | None  # CREATE TABLE AS SELECT: what REFRESH runs again
    every_run: bool = False  # refreshed before each run of a stream that is joined with it
    asked: str = ""  # why it is looked up by key in its database; empty: it is loaded

    kind = "table"


@dataclass(frozen=True)
class Sink:
    """An external target for the changes of a view, or for what it shows."""

    id: str  # never reused in its home: folders are named by it
    name: str
    sql: str
    view: str
    into: str  # "files" or "delta"
    options: Mapping[str, Any]

    kind = "sink"


@dataclass(frozen=True)
class Function:
    """A Python function that queries may call. A process imports it by its Python name at the first call."""

    id: str
    name: str
    sql: str
    reference: str  # package.module.function
    returns: str | None  # None: a function object of Spark's that declares its own return type

    kind = "function"
