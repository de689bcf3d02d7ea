"""Aggregates of pairs of numbers: covariance, correlation and linear regression.

A partial holds the count of the pairs, the means of both numbers, and the sums of squares and products of the distances
from the means, merged pairwise as for the variance. A pair with a NULL is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.algebra.parts import Aggregate, Part, let, numeric


def find(name: str, types: Sequence[str]) -> Aggregate | None:
    """The mergeable form of one of these."""
    if name not in _FINALS or len(types) != 2 or not all(map(numeric, types)):
        return None
    final = let("{comoments}", "m", _FINALS[name])
    return Aggregate(name, (_COMOMENTS,), final, duckdb=False, exact=False)


def _side(index: int) -> str:
    pair = "({x0}) IS NOT NULL AND ({x1}) IS NOT NULL"
    return f"CASE WHEN {pair} THEN CAST({{x{index}}} AS DOUBLE) END"


def _mean(side: str) -> str:
    # The mean of equal values must be exact: a correlation with them is NULL, not a rounding error.
    return f"CASE WHEN var_pop({side}){{filter}} = 0 THEN min({side}){{filter}} ELSE avg({side}){{filter}} END"


def _squares(aggregate: str) -> str:
    return f"coalesce({aggregate}{{filter}} * count({{x}}){{filter}}, 0.0D)"


def _merged(sums: str, one: str, other: str) -> str:
    apart = f"(b.{one} - a.{one}) * (b.{other} - a.{other})"
    return f"'{sums}', a.{sums} + b.{sums} + {apart} * a.n * b.n / (a.n + b.n)"


_Y, _X = _side(0), _side(1)
_COMOMENTS = Part(
    "comoments",
    f"named_struct('n', count({{x}}){{filter}}, 'y', {_mean(_Y)}, 'x', {_mean(_X)}, "
    f"'yy', {_squares(f'var_pop({_Y})')}, 'xx', {_squares(f'var_pop({_X})')}, "
    f"'xy', {_squares(f'covar_pop({_Y}, {_X})')})",
    "aggregate(collect_list({c}), named_struct('n', 0L, 'y', CAST(NULL AS DOUBLE), 'x', CAST(NULL AS DOUBLE), "
    "'yy', 0.0D, 'xx', 0.0D, 'xy', 0.0D), (a, b) -> "
    "CASE WHEN b.n = 0 THEN a WHEN a.n = 0 THEN b ELSE named_struct('n', a.n + b.n, "
    "'y', a.y + (b.y - a.y) * b.n / (a.n + b.n), 'x', a.x + (b.x - a.x) * b.n / (a.n + b.n), "
    + ", ".join([_merged("yy", "y", "y"), _merged("xx", "x", "x"), _merged("xy", "y", "x")])
    + ") END)",
)
_FINALS = {
    "covar_pop": "m.xy / nullif(m.n, 0)",
    "covar_samp": "CASE WHEN m.n > 1 THEN m.xy / (m.n - 1) END",
    "corr": "m.xy / nullif(sqrt(m.xx * m.yy), 0)",
    "regr_r2": "CASE WHEN m.xx = 0 THEN NULL WHEN m.yy = 0 THEN 1.0D ELSE m.xy * m.xy / (m.xx * m.yy) END",
    "regr_slope": "m.xy / nullif(m.xx, 0)",
    "regr_intercept": "m.y - m.xy / nullif(m.xx, 0) * m.x",
    "regr_sxx": "CASE WHEN m.n > 0 THEN m.xx END",
    "regr_syy": "CASE WHEN m.n > 0 THEN m.yy END",
    "regr_sxy": "CASE WHEN m.n > 0 THEN m.xy END",
}
