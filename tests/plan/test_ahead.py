"""How long after its own time a row with window functions can still change, by what its frames look at."""

from __future__ import annotations

import pytest

from anabranch.plan.ahead import FOREVER, looks_ahead
from anabranch.sql.lexer import Token
from anabranch.sql.parser import parse
from anabranch.sql.syntax import Select, SelectStatement


def ahead(call: str) -> int | None:
    (statement,) = parse(f"SELECT {call} AS x FROM s")
    assert isinstance(statement, SelectStatement)
    select = statement.query.body
    assert isinstance(select, Select)

    def passes(tokens: list[Token]) -> bool:
        return [token.text for token in tokens] in (["ts"], ["window_end"])

    return looks_ahead(select, statement.query, passes, statement.text)  # type: ignore[arg-type]


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
        ("count(*) OVER w", FOREVER),
        ("lag(v) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lag(v, 2, 0) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts)", 0),
        ("lag(v, -1) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("lead(v) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
        ("1 + sum(v) FILTER (WHERE v > 0) OVER (PARTITION BY k ORDER BY ts)", 0),
        ("last_value(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)", 0),
        ("last_value(v) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING)", 0),
        ("last_value(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)", 0),
        ("nth_value(v, 2) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)", FOREVER),
        ("sum(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", FOREVER),
        ("sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 SECOND FOLLOWING)", 10**6),
        ("sum(v) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN CURRENT ROW AND 5 FOLLOWING)", FOREVER),
        ("lag(v) OVER (PARTITION BY k ORDER BY ts) + lead(v) OVER (PARTITION BY k ORDER BY ts)", FOREVER),
    ],
)  # fmt: skip
def test_a_row_is_final_when_all_that_its_frames_see_has_passed(call: str, expected: int | None) -> None:
    assert ahead(call) == expected
