"""The parts of a mergeable aggregate, and the types that decide which one fits. Only writes text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.algebra.windows import Engine


@dataclass(frozen=True)
class Part:
    """One column of a partial.

    partial: over rows; {x} is the argument text (all arguments, or *), {x0}, {x1}, ... are the single
    arguments, {filter} is "" or " FILTER (WHERE ...)". reduce: over the column {c}. duckdb_reduce: where
    DuckDB's text differs.
    """

    suffix: str
    partial: str
    reduce: str
    duckdb_reduce: str | None = None

    def partial_sql(self, arguments: Sequence[str], condition: str | None = None) -> str:
        """The aggregate over rows, in Spark SQL; no arguments means `*`."""
        single = {f"x{index}": text for index, text in enumerate(arguments)}
        clause = "" if condition is None else f" FILTER (WHERE {condition})"
        return self.partial.format(x=", ".join(arguments) or "*", filter=clause, **single)

    def reduce_sql(self, column: str, engine: Engine = "spark") -> str:
        """The aggregate over partials."""
        template = self.reduce
        if engine == "duckdb" and self.duckdb_reduce is not None:
            template = self.duckdb_reduce
        return template.format(c=column)


@dataclass(frozen=True)
class Aggregate:
    """A mergeable aggregate.

    final: over the reduced columns, named by their suffixes in braces. duckdb: whether DuckDB can reduce and
    finish it with the same result. exact: whether the answer is the same to the last bit in whatever order
    partials are merged. raised: whether a join with a table may be between partial and reduce; its texts
    are then parsed again as a query, in which names of lambdas could be read as columns.
    """

    name: str
    parts: tuple[Part, ...]
    final: str
    duckdb: bool
    exact: bool
    duckdb_final: str | None = None
    raised: bool = True

    def final_sql(self, columns: Mapping[str, str], engine: Engine = "spark") -> str:
        """The value, given the reduced column of each suffix."""
        template = self.final
        if engine == "duckdb" and self.duckdb_final is not None:
            template = self.duckdb_final
        return template.format(**columns)


INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATING = ("float", "double")
#: Types whose order and equality DuckDB shares with Spark, beside decimals.
SHARED = (*INTEGERS, *FLOATING, "boolean", "date", "timestamp", "timestamp_ntz", "string", "binary")


def digits(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type."""
    match = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    return (int(match[1]), int(match[2])) if match else None


def numeric(kind: str) -> bool:
    # Spark reads a string as a double where it needs a number.
    return kind in INTEGERS or kind in FLOATING or kind == "string" or digits(kind) is not None


def storable(kind: str) -> bool:
    """Whether a column of partials can have a type: the type is stored as text, and parsed again.

    >>> [storable(kind) for kind in ("int", "map<int,array<string>>", "struct<a b:int>", "variant")]
    [True, True, False, False]
    """
    return re.fullmatch(r"[\w<>(),:]+", kind) is not None and not re.search(r"\b(variant|void|geo\w+)\b", kind)


def let(value: str, name: str, body: str) -> str:
    """A value with a name, computed once: Spark SQL has no other way to say it inside an expression."""
    return f"transform(array({value}), {name} -> {body})[0]"
