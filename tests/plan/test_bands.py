"""Bands: what the conditions of a join say about how far apart the times of its sides are."""

from __future__ import annotations

import pytest

from anabranch.plan.bands import Apart, differences
from anabranch.sql.lexer import tokenize

S, R = ("s", "ts"), ("r", "ts")
SECOND = 1_000_000


@pytest.mark.parametrize(
    ("condition", "least", "most"),
    [
        ("r.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 3 SECONDS", -2 * SECOND, 3 * SECOND),
        ("s.k = r.k AND s.ts - INTERVAL '2' SECOND <= r.ts AND r.ts < s.ts + '3 seconds'", -2 * SECOND, 3 * SECOND),
        ("s.ts BETWEEN r.ts - INTERVAL 3 SECONDS AND r.ts + INTERVAL 2 SECONDS", -2 * SECOND, 3 * SECOND),
        ("r.ts >= s.ts AND r.ts <= s.ts + INTERVAL 1 MINUTE", 0, 60 * SECOND),
        ("s.ts = R.TS", 0, 0),
        ("r.ts >= s.ts", 0, None),
        ("r.ts > s.ts + n", None, None),
        ("r.ts >= s.ts OR s.k = 1", None, None),
        ("NOT r.ts >= s.ts", None, None),
        ("r.ts NOT BETWEEN s.ts AND s.ts", None, None),
        ("date_trunc('hour', r.ts) >= s.ts", None, None),
        ("r.ts > s.ts = true", None, None),
    ],
)
def test_what_a_condition_says(condition: str, least: int | None, most: int | None) -> None:
    found = [each for each in differences([tokenize(condition)[:-1]], condition) if (each.one, each.other) == (S, R)]
    assert max((each.least for each in found if each.least is not None), default=None) == least
    assert min((each.most for each in found if each.most is not None), default=None) == most


def test_both_directions_are_told() -> None:
    text = "r.ts >= s.ts - INTERVAL 2 SECONDS"
    found = set(differences([tokenize(text)[:-1]], text))
    assert found == {Apart(S, R, least=-2 * SECOND), Apart(R, S, most=2 * SECOND)}
