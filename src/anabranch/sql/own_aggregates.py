"""Aggregates under names that Spark does not have: each is an expression over aggregates that it has.

`geomean(price) FILTER (WHERE n > 1)` is `exp(avg(ln(price)) FILTER (WHERE n > 1))`. Whatever lives on the partials of
those lives on partials here. Where they would be larger than need be, as the list that `product` is over, `algebra` has
parts for the name itself. `own_calls` puts expressions in the place of the calls.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnAggregate:
    """What an aggregate is, over its parameters; `parts` says that `algebra/aggregates.py` has parts for it."""

    parameters: tuple[str, ...]
    text: str
    parts: bool = False


#: By name, in small letters.
OWN_AGGREGATES = {
    "geomean": OwnAggregate(("x",), "exp(avg(ln(x)))"),
    "product": OwnAggregate(
        ("x",), "aggregate(collect_list(CAST(x AS DOUBLE)), CAST(NULL AS DOUBLE), (a, b) -> coalesce(a, 1D) * b)", True
    ),
}
