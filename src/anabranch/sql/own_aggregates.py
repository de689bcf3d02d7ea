"""Aggregates that Spark does not have: each is an expression over aggregates of Spark.

`geomean(price) FILTER (WHERE n > 1)` is `exp(avg(ln(price)) FILTER (WHERE n > 1))`. If those have
partials, so does it. If these would be too large, like the list that `product` is defined over, `algebra` has parts for
the name itself. `own_calls` replaces the calls by expressions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnAggregate:
    """The definition of an aggregate over its parameters; `parts`: `algebra/aggregates.py` has parts for it."""

    parameters: tuple[str, ...]
    text: str
    parts: bool = False


#: By name, in lower case.
OWN_AGGREGATES = {
    "geomean": OwnAggregate(("x",), "exp(avg(ln(x)))"),
    "product": OwnAggregate(
        ("x",), "aggregate(collect_list(CAST(x AS DOUBLE)), CAST(NULL AS DOUBLE), (a, b) -> coalesce(a, 1D) * b)", True
    ),
}
