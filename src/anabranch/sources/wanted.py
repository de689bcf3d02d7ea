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


# ---- what a database computes itself, of tables that are all its own


@dataclass(frozen=True)
class Place:
    """A column of one of the tables, by the place of the table among them."""

    table: int
    column: str


@dataclass(frozen=True)
class Call:
    """An aggregate, COUNT, SUM, MIN, MAX or AVG, of a column; of none: COUNT(*).

    `unscaled`: of decimals as whole numbers, as they are without their point.
    """

    function: str
    of: Place | None = None
    unscaled: bool = False


@dataclass(frozen=True)
class Meets:
    """What pairs rows of two tables. `sign` is =, <, <=, > or >=."""

    left: Place
    sign: str
    right: Place


@dataclass(frozen=True)
class Part:
    """One of several tables: its number in the query, its own condition, and how it joins those before it."""

    reference: int
    condition: Condition | None = None
    outer: bool = False
    on: tuple[Meets, ...] = ()


@dataclass(frozen=True)
class Computed:
    """The columns of joined tables; `grouped`: their columns are keys, beside which stand aggregates.

    Nothing of it is computed again, so that the database has to mean the very same by all of it.
    """

    parts: tuple[Part, ...]
    columns: tuple[Place | Call, ...]
    grouped: bool = False
