"""What a query wants of a table outside: which columns, which rows, in which order, how many.

Spark applies every condition again, so a database may send rows too many, never too few; only where rows are counted
off, by a limit, the condition has to be the very same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Test:
    """A column compared with values. `sign` is =, <, <=, >, >=, IN, IS NULL, IS NOT NULL, IS TRUE or STARTS WITH."""

    __test__ = False  # for pytest

    column: str
    sign: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class All:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Some:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Not:
    part: Condition


Condition: TypeAlias = Test | All | Some | Not


@dataclass(frozen=True)
class Order:
    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Wanted:
    """`columns` are those that are read; None: all. `limit` counts only if `condition` is all that decides."""

    columns: tuple[str, ...] | None = None
    condition: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None


EVERYTHING = Wanted()
