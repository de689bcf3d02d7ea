"""Aggregates that pick rows: min_by and max_by, and the lists of collect_list.

A partial is the value together with what it was picked by. So FIRST and LAST are merged, too: whoever plans writes them
as min_by and max_by of an order that no two different rows share.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.algebra.parts import Aggregate, Part, storable


def find(name: str, types: Sequence[str]) -> Aggregate | None:
    """The mergeable form of one of these. A list may have a second argument: what it is sorted by.

    By a plain column, rows may tie, and the winner would be the one that is merged first; so the order has to be a
    struct, which whoever plans makes of all columns.
    """
    if name in ("min_by", "max_by") and len(types) == 2 and all(map(storable, types)):
        return _by(name) if types[1].startswith("struct<") and _ordered(types[1]) else None
    if name in ("collect_list", "array_agg") and types and all(storable(kind) and _ordered(kind) for kind in types):
        return _list(len(types))
    return None


def _ordered(kind: str) -> bool:
    return "map<" not in kind


def _by(name: str) -> Aggregate:
    """Rows whose order is NULL are not picked; nor is then a partial of no other rows."""
    partial = f"{name}(named_struct('o', {{x1}}, 'v', {{x0}}), {{x1}}){{filter}}"
    part = Part("picked", partial, f"{name}({{c}}, {{c}}.o)")
    return Aggregate(name, (part,), "{picked}.v", duckdb=False, exact=True, raised=False)


def _list(arguments: int) -> Aggregate | None:
    """The values in an order that does not depend on the order of the partials: that of a time, and then their own."""
    if arguments > 2:
        return None
    fields = "'o', {x1}, 'v', {x0}" if arguments == 2 else "'v', {x0}"
    partial = f"collect_list(CASE WHEN ({{x0}}) IS NOT NULL THEN named_struct({fields}) END){{filter}}"
    part = Part("list", partial, "flatten(collect_list({c}))")
    final = "transform(array_sort({list}), e -> e.v)"
    return Aggregate("collect_list", (part,), final, duckdb=False, exact=True, raised=False)
