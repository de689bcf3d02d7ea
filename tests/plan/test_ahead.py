"""What a row with window functions waits for, by what its frames look at."""

from __future__ import annotations

import pytest

from anabranch.algebra.progress import FOREVER
from anabranch.ir.expr import Expr
from anabranch.plan.facts.lookahead import looks_ahead
from ir.plan_help import block


def ahead(call: str) -> int | str | None:
    """How long after its own time a row is final, or after how many rows (+n)."""
    select = block(f"SELECT {call} AS x FROM b WINDOW w AS (PARTITION BY k ORDER BY ts)")

    def passes(expr: Expr) -> int | None:
        return {"ts": 1, "m": 0}.get(expr.column.name) if expr.column is not None else None

    found = looks_ahead(select, passes)
    if found is None or not found.rows or found.time == FOREVER:
        return found.time if found is not None else None
    rows = "".join(f"+{each.number}" for each in found.rows)
    return f"{found.time}{rows}" if found.time else rows


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("max(xs)", None),
        ("row_number() OVER (PARTITION BY k ORDER BY ts, xs)", 0),
        ("row_number() OVER (PARTITION BY k ORDER BY xs, ts)", FOREVER),
        ("rank() OVER (PARTITION BY k ORDER BY ts DESC)", FOREVER),
        ("rank() OVER (PARTITION BY k ORDER BY ts ASC NULLS FIRST)", 0),
        ("ntile(2) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("ntile(2) OVER (PARTITION BY k, m ORDER BY xs)", 0),
        ("count(*) OVER (PARTITION BY k)", FOREVER),
        ("count(*) OVER w", 0),
        ("lead(xs, 2) OVER w", "+2"),
        ("lag(xs) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lag(xs, 2, 0) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lag(xs, -1) OVER (PARTITION BY k ORDER BY ts)", "+1"),
        ("lag(xs, p.x) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("lead(xs) OVER (PARTITION BY k ORDER BY ts)", "+1"),
        ("lead(xs, 3, 0) OVER (ORDER BY ts, xs DESC)", "+3"),
        ("lead(xs, -3) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lead(xs, 0) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lead(xs, 1 + 1) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("lead(xs) RESPECT NULLS OVER (PARTITION BY k ORDER BY m)", "+1"),
        ("lead(xs) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("lead(xs) OVER (PARTITION BY k ORDER BY xs, ts)", FOREVER),
        ("lead(xs) OVER (PARTITION BY k ORDER BY ts DESC)", FOREVER),
        ("lead(xs) OVER (PARTITION BY k, m ORDER BY xs)", 0),
        ("1 + sum(xs) FILTER (WHERE xs[0] > 0) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("last_value(xs) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)", 0),
        ("last_value(xs) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING)", 0),
        ("last_value(xs) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)", 0),
        ("nth_value(xs, 2) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)", "+2"),
        ("last_value(xs) IGNORE NULLS OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND 12 FOLLOWING)", "+12"),
        ("sum(xs) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND -2 PRECEDING)", FOREVER),
        ("sum(xs) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '-2' SECONDS PRECEDING)", FOREVER),
        ("sum(xs) OVER (PARTITION BY xs BETWEEN 1 AND 2 ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)", "+2"),
        ("sum(xs) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", FOREVER),
        ("sum(xs) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 SECOND FOLLOWING)", 10**6),
        ("sum(xs) OVER (PARTITION BY k ORDER BY xs RANGE BETWEEN CURRENT ROW AND 5 FOLLOWING)", FOREVER),
        ("lag(xs) OVER (PARTITION BY k ORDER BY ts) + lead(xs) OVER (PARTITION BY k ORDER BY ts)", "+1"),
        ("lead(xs, 2) OVER (ORDER BY ts) + lead(xs) OVER w", "+2+1"),
        ("lead(xs) OVER w + sum(xs) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 SECOND FOLLOWING)",
         "1000000+1"),
        ("lead(xs) OVER w + sum(xs) OVER (PARTITION BY k)", FOREVER),
    ],
)  # fmt: skip
def test_a_row_is_final_when_all_that_its_frames_see_has_passed(call: str, expected: int | str | None) -> None:
    assert ahead(call) == expected
