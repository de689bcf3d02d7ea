"""Aggregates that can be merged: the partial, the reduce and the final of each, as SQL text.

A partial is an aggregate over rows. A reduce is an aggregate over partials that returns a partial of the same
type; it is associative and commutative, and the partial of no rows changes nothing. A final is a scalar
expression over reduced partials. The planner keeps the rows of an aggregate that
is not found here.

This module only writes text, for Spark and, where the result is the same, for DuckDB; it runs none. The type of
a final may differ: the caller casts it to the type that Spark gives the original query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch.algebra import counts, pairs, picks, sketches
from anabranch.algebra.parts import FLOATING, INTEGERS, SHARED, Aggregate, Part, digits, numeric, storable

__all__ = ["Aggregate", "Part", "find"]


def find(
    name: str, *, distinct: bool, argument_types: Sequence[str], arguments: Sequence[str] = ()
) -> Aggregate | None:
    """The mergeable form of an aggregate, or None if there is none.

    Types are Spark's simple strings, one an argument; none means `*`. The texts of the arguments are only
    needed if the final uses one that is a constant, as in percentile.

    >>> count = find("count", distinct=False, argument_types=[])
    >>> count.parts[0].partial_sql([]), count.final_sql({"count": "n"})
    ('count(*)', 'coalesce(n, 0)')
    >>> find("percentile_approx", distinct=False, argument_types=["int", "double"]) is None
    True
    """
    name = _ALIASES.get(name.lower(), name.lower())
    types = [each.strip().lower() for each in argument_types]
    if name == "count":
        return _count_distinct(types) if distinct else _COUNT
    if name == "collect_set":
        return _collect_set(types)
    if not distinct:
        found = picks.find(name, types) or pairs.find(name, types) or counts.find(name, types, arguments)
        found = found or sketches.find(name, types)
        if found is not None:
            return found
    if len(types) != 1:
        return None
    kind = types[0]
    if name in ("min", "max"):
        return _extreme(name, kind)
    if name in _LOGICAL:
        return _idempotent(name) if kind == "boolean" else None
    if name in _BITWISE:
        # The number of equal values matters only for exclusive or.
        repeats_matter = distinct and name == "bit_xor"
        return _idempotent(name) if kind in INTEGERS and not repeats_matter else None
    if name == "count_if":
        return _COUNT_IF if kind == "boolean" and not distinct else None
    if not numeric(kind):
        return None
    if name == "sum":
        return _sum_distinct(kind) if distinct else _sum(kind)
    if name == "avg":
        return _average_distinct(kind) if distinct else _average(kind)
    if name == "product":
        return None if distinct else _PRODUCT
    if name in _SPREADS and not distinct:
        return Aggregate(name, (_MOMENTS,), _SPREADS[name], duckdb=True, exact=False)
    return None


_ALIASES = {
    "mean": "avg",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "variance": "var_samp",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
}
_LOGICAL = ("bool_and", "bool_or")
_BITWISE = ("bit_and", "bit_or", "bit_xor")

# The cast changes nothing in Spark; DuckDB's sum of BIGINT is a HUGEINT.
_ADD_COUNTS = "CAST(sum({c}) AS BIGINT)"

_COUNT = Aggregate(
    "count",
    (Part("count", "count({x}){filter}", _ADD_COUNTS),),
    "coalesce({count}, 0)",
    duckdb=True,
    exact=True,
)
_COUNT_IF = Aggregate(
    "count_if",
    (Part("count", "count_if({x}){filter}", _ADD_COUNTS),),
    "coalesce({count}, 0)",
    duckdb=True,
    exact=True,
)


def _idempotent(name: str, *, duckdb: bool = True, exact: bool = True) -> Aggregate:
    """An aggregate that is its own reduce."""
    part = Part("value", f"{name}({{x}}){{filter}}", f"{name}({{c}})")
    return Aggregate(name, (part,), "{value}", duckdb=duckdb, exact=exact)


def _extreme(name: str, kind: str) -> Aggregate | None:
    if re.search(r"\b(map|variant|void)\b", kind):
        return None
    # Of 0.0 and -0.0, or of two strings that are equal in a collation, the first one wins.
    exact = not re.search(r"\b(float|double|collate)\b", kind)
    shared = kind in SHARED or digits(kind) is not None
    return _idempotent(name, duckdb=shared, exact=exact)


# --- sums and averages


def _sum(kind: str) -> Aggregate:
    part = Part("sum", "sum({x}){filter}", f"CAST(sum({{c}}) AS {_sum_type(kind)})")
    return Aggregate("sum", (part,), "{sum}", duckdb=True, exact=_exact(kind))


def _average(kind: str) -> Aggregate | None:
    decimal = digits(kind)
    if decimal is not None and decimal[0] > _AVERAGE_DIGITS:
        return None
    # All types but decimals are summed as doubles, as in Spark's own avg: a BIGINT could overflow.
    total = "sum({x}){filter}" if decimal else "sum(CAST({x} AS DOUBLE)){filter}"
    total_type = _sum_type(kind) if decimal else "DOUBLE"
    parts = (
        Part("sum", total, f"CAST(sum({{c}}) AS {total_type})"),
        Part("count", "count({x}){filter}", _ADD_COUNTS),
    )
    # DuckDB divides decimals as doubles.
    return Aggregate("avg", parts, "{sum} / nullif({count}, 0)", duckdb=decimal is None, exact=decimal is not None)


#: Spark cuts digits off the quotient of wider decimals than this, where its own avg keeps them.
_AVERAGE_DIGITS = 24
#: Spark cuts a digit off the sum of two decimals if the running total is wider than 37 digits.
_SUM_DISTINCT_DIGITS = 27


def _sum_type(kind: str) -> str:
    """The type of Spark's own sum."""
    decimal = digits(kind)
    if decimal is not None:
        return f"DECIMAL({min(38, decimal[0] + 10)},{decimal[1]})"
    return "BIGINT" if kind in INTEGERS else "DOUBLE"


_MULTIPLY = "CAST(NULL AS DOUBLE), (a, b) -> coalesce(a, 1D) * b)"
_PRODUCT = Aggregate(
    "product",
    (
        Part(
            "product",
            f"aggregate(collect_list(CAST({{x}} AS DOUBLE)){{filter}}, {_MULTIPLY}",
            f"aggregate(collect_list({{c}}), {_MULTIPLY}",
            "product({c})",
        ),
    ),
    "{product}",
    duckdb=True,
    exact=False,
    raised=False,
)


# --- distinct values: the partial is the set of them


def _set(kinds: Sequence[str]) -> Part | None:
    if not kinds or any(re.search(r"\b(map|variant|void|collate|interval)\b", kind) for kind in kinds):
        return None
    values = []
    for index, kind in enumerate(kinds):
        text = f"{{x{index}}}"
        if kind in FLOATING:
            # Adding zero gives both zeros one sign, which grouping does and collecting does not.
            text = f"CAST({text} AS DOUBLE) + 0.0D"
        elif re.search(r"\b(float|double)\b", kind):
            return None
        values.append(text)
    if len(values) == 1:
        value = values[0]
    else:
        fields = ", ".join(f"'v{index}', {text}" for index, text in enumerate(values))
        present = " AND ".join(f"({{x{index}}}) IS NOT NULL" for index in range(len(values)))
        value = f"CASE WHEN {present} THEN named_struct({fields}) END"
    hashed = len(kinds) == 1 and kinds[0] != "binary" and "<" not in kinds[0]
    return Part(
        "set",
        f"collect_set({value}){{filter}}",
        "array_distinct(flatten(collect_list({c})))" if hashed else _SORTED_UNION,
        "coalesce(array_distinct(flatten(array_agg({c}) FILTER (WHERE {c} IS NOT NULL))), [])",
    )


# Spark's array_distinct compares every pair where values cannot be hashed, as for structs: sorting is
# cheaper. The array of one array gives the sorted values a name.
_SORTED_UNION = (
    "transform(array(array_sort(flatten(collect_list({c})))), s -> filter(s, (v, i) -> i = 0 OR v <> get(s, i - 1)))[0]"
)


def _set_in_duckdb(kinds: Sequence[str]) -> bool:
    """Whether DuckDB represents the set as Spark does; only Spark does sets of structs, for several arguments."""
    return len(kinds) == 1 and all(kind in SHARED or digits(kind) is not None for kind in kinds)


def _count_distinct(kinds: Sequence[str]) -> Aggregate | None:
    part = _set(kinds)
    if part is None:
        return None
    return Aggregate(
        "count",
        (part,),
        "coalesce(size({set}), 0)",
        duckdb=_set_in_duckdb(kinds),
        exact=True,
        duckdb_final="coalesce(len({set}), 0)",
    )


def _collect_set(kinds: Sequence[str]) -> Aggregate | None:
    part = _set(kinds) if len(kinds) == 1 and storable(kinds[0]) else None
    if part is None:
        return None
    # The order of a set is not defined: sorting makes it independent of the order of merging.
    return Aggregate("collect_set", (part,), "array_sort({set})", duckdb=False, exact=True, raised=False)


def _sum_distinct(kind: str) -> Aggregate | None:
    part = _set([kind])
    decimal = digits(kind)
    if part is None or kind == "string" or (decimal is not None and decimal[0] > _SUM_DISTINCT_DIGITS):
        return None
    total = _sum_type(kind)
    return Aggregate(
        "sum",
        (part,),
        _add_up(total),
        duckdb=True,
        exact=_exact(kind),
        duckdb_final=f"CAST(list_sum({{set}}) AS {total})",
    )


def _average_distinct(kind: str) -> Aggregate | None:
    part = _set([kind])
    decimal = digits(kind)
    if part is None or kind == "string" or (decimal is not None and decimal[0] > _AVERAGE_DIGITS):
        return None
    return Aggregate(
        "avg",
        (part,),
        f"{_add_up(_sum_type(kind) if decimal else 'DOUBLE')} / nullif(size({{set}}), 0)",
        duckdb=decimal is None,
        exact=decimal is not None,
        duckdb_final="list_sum(CAST({set} AS DOUBLE[])) / nullif(len({set}), 0)",
    )


def _add_up(total: str) -> str:
    """The sum of a set in Spark: NULL if it is empty."""
    return f"aggregate({{set}}, CAST(NULL AS {total}), (a, v) -> CAST(coalesce(a, CAST(0 AS {total})) + v AS {total}))"


# --- variance and standard deviation

# Count, mean and sum of squared distances from the mean, merged pairwise as Chan, Golub and LeVeque do. Sums
# of squares would be simpler to merge and wrong: they cancel for values that are large and close together.
_MOMENTS = Part(
    "moments",
    "named_struct('n', count({x}){filter}, 'mean', avg(CAST({x} AS DOUBLE)){filter}, "
    "'m2', coalesce(var_pop(CAST({x} AS DOUBLE)){filter} * count({x}){filter}, 0.0D))",
    "aggregate(collect_list({c}), named_struct('n', 0L, 'mean', CAST(NULL AS DOUBLE), 'm2', 0.0D), (a, b) -> "
    "CASE WHEN b.n = 0 THEN a WHEN a.n = 0 THEN b ELSE named_struct("
    "'n', a.n + b.n, "
    "'mean', a.mean + (b.mean - a.mean) * b.n / (a.n + b.n), "
    "'m2', a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * a.n * b.n / (a.n + b.n)) END)",
    "coalesce(list_reduce(list({c}) FILTER (WHERE {c}.n > 0), lambda a, b: struct_pack("
    "n := a.n + b.n, "
    "mean := a.mean + (b.mean - a.mean) * b.n / (a.n + b.n), "
    "m2 := a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * a.n * b.n / (a.n + b.n))), "
    "struct_pack(n := 0, mean := CAST(NULL AS DOUBLE), m2 := CAST(0 AS DOUBLE)))",
)
_POPULATION = "{moments}.m2 / nullif({moments}.n, 0)"
# The spread of a sample of one row is NULL in Spark since 3.1.
_SAMPLE = "CASE WHEN {moments}.n > 1 THEN {moments}.m2 / ({moments}.n - 1) END"
_SPREADS = {
    "var_pop": _POPULATION,
    "var_samp": _SAMPLE,
    "stddev_pop": f"sqrt({_POPULATION})",
    "stddev_samp": f"sqrt({_SAMPLE})",
}


def _exact(kind: str) -> bool:
    return kind in INTEGERS or digits(kind) is not None
