"""Aggregates over weighted rows: a row counts as many times as its weight.

    sum(y) over w copies of a row each     sum(y * w)
    count(y)                               the sum of w where y is not NULL
    max(y)                                 max(y)

Built from the partials of `aggregates`: a row of weight w is the partial of w equal rows, and partials are reduced as
usual. This module only writes text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anabranch.algebra.aggregates import Aggregate, Part

#: The minimum digits of a weight beside a decimal; wider decimals leave no room for it.
_LEAST_DIGITS = 10
_REPEATS_DO_NOT_MATTER = ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or")


def merged(aggregate: Aggregate, columns: Mapping[str, str], condition: str | None) -> str:
    """The value of an aggregate from columns of partials, by suffix, over the rows where the condition holds."""
    chosen = {suffix: _where(condition, column) for suffix, column in columns.items()}
    return aggregate.final_sql({part.suffix: part.reduce_sql(chosen[part.suffix]) for part in aggregate.parts})


def weighted(
    aggregate: Aggregate, arguments: Sequence[str], types: Sequence[str], weight: str, condition: str | None
) -> str | None:
    """The value of an aggregate over weighted rows, in Spark SQL; None if there is no such form.

    >>> from anabranch.algebra.aggregates import find
    >>> weighted(find("sum", distinct=False, argument_types=["int"]), ["y"], ["int"], "w", None)
    'CAST(sum(CASE WHEN w > 0 THEN CAST(y AS BIGINT) * w END) AS BIGINT)'
    """
    columns: dict[str, str] = {}
    for part in aggregate.parts:
        found = _copies(aggregate.name, part, arguments, types, weight)
        if found is None:
            return None
        guard, value = found
        present = " AND ".join(each for each in (f"{weight} > 0", guard) if each)
        columns[part.suffix] = f"CASE WHEN {present} THEN {value} END"
    return merged(aggregate, columns, condition)


def _where(condition: str | None, value: str) -> str:
    return value if condition is None else f"CASE WHEN {condition} THEN {value} END"


def _copies(
    name: str, part: Part, arguments: Sequence[str], types: Sequence[str], weight: str
) -> tuple[str, str] | None:
    """The partial of `weight` equal rows, and the condition under which it is not the empty partial."""
    there = " AND ".join(f"({argument}) IS NOT NULL" for argument in arguments)
    if part.suffix == "count":
        return (f"({arguments[0]})" if name == "count_if" else there), weight
    if len(arguments) != 1:
        return None
    if part.suffix == "sum":
        product = times(arguments[0], types[0], weight, as_double=name == "avg")
        return ("", product) if product is not None else None
    if part.suffix == "moments":
        mean = f"CAST({arguments[0]} AS DOUBLE)"
        return there, f"named_struct('n', {weight}, 'mean', {mean}, 'm2', 0.0D)"
    if part.suffix == "value" and name in _REPEATS_DO_NOT_MATTER:
        return "", f"({arguments[0]})"
    return None


def times(value: str, type: str, weight: str, *, as_double: bool = False) -> str | None:
    """A value times its weight, exact if its sum is exact; None for decimals that leave no room for the weight."""
    decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", type)
    if decimal is not None:
        digits = min(19, 37 - int(decimal[1]))
        return f"({value}) * CAST({weight} AS DECIMAL({digits},0))" if digits >= _LEAST_DIGITS else None
    integer = type in ("tinyint", "smallint", "int", "bigint") and not as_double
    return f"CAST({value} AS {'BIGINT' if integer else 'DOUBLE'}) * {weight}"
