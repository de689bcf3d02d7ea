"""What a row with window functions waits for, by what its frames look at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anabranch.algebra.progress import FOREVER
from anabranch.plan.ahead import looks_ahead
from anabranch.sql.lexer import Token
from anabranch.sql.parser import parse
from anabranch.sql.syntax import Select, SelectStatement


def ahead(call: str) -> int | str | None:
    """How long after its own time a row is final, or after how many rows (+n)."""
    (statement,) = parse(f"SELECT {call} AS x FROM s WINDOW w AS (PARTITION BY k ORDER BY ts)")
    assert isinstance(statement, SelectStatement)
    select = statement.query.body
    assert isinstance(select, Select)

    def passes(tokens: Sequence[Token]) -> int | None:
        return {"ts": 1, "window_end": 0}.get(" ".join(token.text for token in tokens))

    found = looks_ahead(select, statement.query, passes)
    if found is None or not found.rows or found.time == FOREVER:
        return found.time if found is not None else None
    rows = "".join(f"+{each.number}" for each in found.rows)
    return f"{found.time}{rows}" if found.time else rows


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("max(v)", None),
        ("row_number() OVER (PARTITION BY k ORDER BY ts, v)", 0),
        ("row_number() OVER (PARTITION BY k ORDER BY v, ts)", FOREVER),
        ("rank() OVER (PARTITION BY k ORDER BY ts DESC)", FOREVER),
        ("rank() OVER (PARTITION BY k ORDER BY ts ASC NULLS FIRST)", 0),
        ("ntile(2) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("ntile(2) OVER (PARTITION BY k, window_end ORDER BY v)", 0),
        ("count(*) OVER (PARTITION BY k)", FOREVER),
        ("count(*) OVER w", 0),
        ("lead(v, 2) OVER w", "+2"),
        ("count(*) OVER missing", FOREVER),
        ("lag(v) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lag(v, 2, 0) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lag(v, -1) OVER (PARTITION BY k ORDER BY ts)", "+1"),
        ("lag(v, n) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("lead(v) OVER (PARTITION BY k ORDER BY ts)", "+1"),
        ("lead(v, 3, 0) OVER (ORDER BY ts, v DESC)", "+3"),
        ("lead(v, -3) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lead(v, 0) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lead(v, 1 + 1) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("lead(v) RESPECT NULLS OVER (PARTITION BY k ORDER BY window_end)", "+1"),
        ("lead(v) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("lead(v) OVER (PARTITION BY k ORDER BY v, ts)", FOREVER),
        ("lead(v) OVER (PARTITION BY k ORDER BY ts DESC)", FOREVER),
        ("lead(v) OVER (PARTITION BY k, window_end ORDER BY v)", 0),
        ("1 + sum(v) FILTER (WHERE v > 0) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("last_value(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)", 0),
        ("last_value(v) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING)", 0),
        ("last_value(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)", 0),
        ("nth_value(v, 2) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)", "+2"),
        ("last_value(v) IGNORE NULLS OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND 12 FOLLOWING)", "+12"),
        ("sum(v) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND -2 PRECEDING)", FOREVER),
        ("sum(v) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '-2' SECONDS PRECEDING)", FOREVER),
        ("sum(v) OVER (PARTITION BY v BETWEEN 1 AND 2 ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)", "+2"),
        ("sum(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", FOREVER),
        ("sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 SECOND FOLLOWING)", 10**6),
        ("sum(v) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN CURRENT ROW AND 5 FOLLOWING)", FOREVER),
        ("lag(v) OVER (PARTITION BY k ORDER BY ts) + lead(v) OVER (PARTITION BY k ORDER BY ts)", "+1"),
        ("lead(v, 2) OVER (ORDER BY ts) + lead(v) OVER w", "+2+1"),
        ("lead(v) OVER w + sum(v) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 SECOND FOLLOWING)",
         "1000000+1"),
        ("lead(v) OVER w + sum(v) OVER (PARTITION BY k)", FOREVER),
    ],
)  # fmt: skip
def test_a_row_is_final_when_all_that_its_frames_see_has_passed(call: str, expected: int | str | None) -> None:
    assert ahead(call) == expected
