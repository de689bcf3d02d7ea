"""Aggregates by value counts: median, percentiles and mode, exactly.

A partial is the sorted distinct values, each with its number of rows; reducing adds up the numbers. So it grows with
the distinct values of a group, not with its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.algebra.parts import FLOATING, INTEGERS, Aggregate, Part, digits, let, numeric


def find(name: str, types: Sequence[str], arguments: Sequence[str]) -> Aggregate | None:
    """The mergeable form of one of these. WITHIN GROUP is given as (value, percentage), with DESC after the name."""
    name, _, order = name.partition(" ")
    turned = order == "desc"
    if order not in ("", "desc") or not types:
        return None
    kind = types[0]
    if name == "mode":
        if len(types) != 1 or not (kind in _COUNTED or digits(kind) is not None):
            return None
        return _made(name, _counts(f"{{x0}}{_ONE_ZERO.get(kind, '')}"), _mode(kind, turned))
    if name == "median" and len(types) == 1 and not order:
        percentage, several = "0.5D", False
    elif name in ("percentile", "percentile_cont", "percentile_disc") and len(types) == len(arguments) == 2:
        percentage, several = arguments[1], types[1].startswith("array")
    else:
        return None
    if not numeric(kind):
        return None
    value, kind = ("CAST({x0} AS DOUBLE)", "double") if kind == "string" else ("{x0}", kind)
    template = _OF_A_ROW if name == "percentile_disc" else _BETWEEN
    return _made(name, _counts(value), _percentile(template, kind, percentage, several, turned))


#: Types for which mode counts equal values, besides decimals.
_COUNTED = (*INTEGERS, *FLOATING, "boolean", "date", "timestamp", "timestamp_ntz", "string")
#: Adding zero gives both zeros one sign.
_ONE_ZERO = {"float": " + CAST(0 AS FLOAT)", "double": " + 0.0D"}


def _made(name: str, part: Part, final: str) -> Aggregate:
    return Aggregate(name, (part,), final, duckdb=False, exact=True, raised=False)


def _counts(value: str) -> Part:
    """Runs of equal values in the sorted list `s`: `b` are their start indexes."""
    one = f"CASE WHEN ({value}) IS NOT NULL THEN named_struct('v', {value}, 'n', 1L) END"
    return Part("counts", _runs(f"collect_list({one}){{filter}}"), _runs("flatten(collect_list({c}))"))


def _runs(pieces: str) -> str:
    begins = "filter(transform(s, (e, i) -> i), i -> i = 0 OR get(s, i - 1).v <> get(s, i).v)"
    run = "slice(s, f + 1, coalesce(get(b, j + 1), size(s)) - f)"
    counted = f"named_struct('v', get(s, f).v, 'n', aggregate({run}, 0L, (a, e) -> a + e.n))"
    return let(f"array_sort({pieces})", "s", let(begins, "b", f"transform(b, (f, j) -> {counted})"))


def _mode(kind: str, turned: bool) -> str:
    """The most frequent value; of several, the lowest."""
    counts = "reverse({counts})" if turned else "{counts}"
    nothing = f"named_struct('n', 0L, 'v', CAST(NULL AS {kind}))"
    more = "CASE WHEN e.n > a.n THEN named_struct('n', e.n, 'v', e.v) ELSE a END"
    return f"aggregate({counts}, {nothing}, (a, e) -> {more}).v"


def _percentile(value: str, kind: str, percentage: str, several: bool, turned: bool) -> str:
    """The values at one percentage or several: `t` is the number of rows, `p` the percentage; NULL without rows."""
    wanted = f"CAST({percentage} AS ARRAY<DOUBLE>)" if several else f"array(CAST({percentage} AS DOUBLE))"
    found = f"transform({_braced(wanted)}, p -> {value.replace('KIND', kind)})"
    value_sql = f"CASE WHEN t > 0 THEN {found} END" if several else f"CASE WHEN t > 0 THEN {found}[0] END"
    counts = "reverse({counts})" if turned else "{counts}"
    return let(counts, "m", let("aggregate(m, 0L, (a, e) -> a + e.n)", "t", value_sql))


def _braced(text: str) -> str:
    """The user's text escaped for a template."""
    return text.replace("{", "{{").replace("}", "}}")


def _at(place: str) -> str:
    """The value of the row at a 0-based index among all rows in order."""
    nothing = "named_struct('c', 0L, 'v', CAST(NULL AS KIND))"
    step = f"CASE WHEN a.c > {place} THEN a ELSE named_struct('c', a.c + e.n, 'v', e.v) END"
    return f"aggregate(m, {nothing}, (a, e) -> {step}).v"


# Between two rows the value is interpolated in the way of Spark, for the same last bit.
_BETWEEN = let(
    "(t - 1) * p",
    "q",
    let(
        f"named_struct('l', {_at('floor(q)')}, 'h', {_at('ceil(q)')})",
        "r",
        "CASE WHEN floor(q) = ceil(q) OR r.l = r.h THEN CAST(r.l AS DOUBLE)"
        " ELSE CAST(r.l AS DOUBLE) + (q - floor(q)) * (CAST(r.h AS DOUBLE) - CAST(r.l AS DOUBLE)) END",
    ),
)
_OF_A_ROW = _at("greatest(ceil(p * t) - 1, 0)")
