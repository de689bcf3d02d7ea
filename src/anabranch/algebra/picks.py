"""Aggregates that pick rows: min_by and max_by, and the lists of collect_list.

A partial is the value together with its order. So FIRST and LAST can be merged too: the planner writes them as min_by
and max_by over an order that is unique for different rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch.algebra.parts import SHARED, Aggregate, Part, digits, storable

#: A struct of plain columns, the form of an order: the names and types of its fields.
_ORDER = re.compile(r"struct<((?:k\d+:\w+(?:\(\d+,\d+\))?,?)+)>")


def find(name: str, types: Sequence[str]) -> Aggregate | None:
    """The mergeable form of one of these. A list may have a second argument: its order.

    With a plain column as the order, rows may tie, and the first one merged would win; so the order has to be a struct,
    which the planner makes from all columns.
    """
    if name in ("min_by", "max_by") and len(types) == 2 and all(map(storable, types)):
        return _by(name, *types) if types[1].startswith("struct<") and _ordered(types[1]) else None
    if name in ("collect_list", "array_agg") and types and all(storable(kind) and _ordered(kind) for kind in types):
        return _list(len(types))
    return None


def _ordered(kind: str) -> bool:
    return "map<" not in kind


def _by(name: str, value: str, order: str) -> Aggregate:
    """Rows with a NULL order are not picked, nor is a partial that has only such rows."""
    partial = f"{name}(named_struct('o', {{x1}}, 'v', {{x0}}), {{x1}}){{filter}}"
    columns = _plain_columns(order)
    shared = _in_duckdb(value) and bool(columns) and all(_in_duckdb(kind) for _, kind in columns)
    along = ", ".join(nulls_first(f"{{c}}.o.{column}", column) for column, _ in columns)
    by = f"CASE WHEN {{c}}.o IS NOT NULL THEN struct_pack({along}) END"
    part = Part("picked", partial, f"{name}({{c}}, {{c}}.o)", f"{PICKS[name]}({{c}}, {by})" if shared else None)
    final = "struct_extract({picked}, 'v')"
    return Aggregate(name, (part,), "{picked}.v", duckdb=shared, exact=True, duckdb_final=final, raised=False)


def _plain_columns(order: str) -> list[tuple[str, str]]:
    """The columns of an order, if all are plain.

    >>> _plain_columns("struct<k0:bigint,k1:decimal(3,1)>"), _plain_columns("struct<k0:array<int>>")
    ([('k0', 'bigint'), ('k1', 'decimal(3,1)')], [])
    """
    found = _ORDER.fullmatch(order)
    return re.findall(r"(k\d+):(\w+(?:\(\d+,\d+\))?)", found[1]) if found is not None else []


def _in_duckdb(kind: str) -> bool:
    return (kind in SHARED and kind not in ("timestamp_ntz", "binary")) or digits(kind) is not None


#: The functions that pick a row in DuckDB.
PICKS = {"min_by": "arg_min", "max_by": "arg_max"}


def nulls_first(text: str, name: str) -> str:
    """A column of an order for DuckDB: inside a struct, NULL is the greatest value there, and the least in Spark."""
    return f"{name}_there := {text} IS NOT NULL, {name} := {text}"


def _list(arguments: int) -> Aggregate | None:
    """The values, ordered by time and then by value, so that the order of partials does not matter."""
    if arguments > 2:
        return None
    fields = "'o', {x1}, 'v', {x0}" if arguments == 2 else "'v', {x0}"
    partial = f"collect_list(CASE WHEN ({{x0}}) IS NOT NULL THEN named_struct({fields}) END){{filter}}"
    part = Part("list", partial, "flatten(collect_list({c}))")
    final = "transform(array_sort({list}), e -> e.v)"
    return Aggregate("collect_list", (part,), final, duckdb=False, exact=True, raised=False)
