"""How far a row looks for the next one, as the text of a SELECT says."""

from __future__ import annotations

import pytest

from anabranch.plan.facts.following import find_following
from ir.plan_help import block

NEXT = "LEAD(q.ts) OVER (PARTITION BY q.k ORDER BY q.ts)"
LAST = "LEAD(q.ts) OVER (ORDER BY q.ts DESC)"
SECOND = 1_000_000


@pytest.mark.parametrize(
    ("items", "distance"),
    [
        (f"q.*, CASE WHEN {NEXT} <= q.ts + INTERVAL 5 SECONDS THEN {NEXT} END AS until", 5 * SECOND),
        (f"q.*, CASE WHEN {LAST} >= q.ts - INTERVAL 1 MINUTE THEN {LAST} END AS until", 60 * SECOND),
        (
            f"CASE WHEN {NEXT} <= q.ts + INTERVAL 1 SECOND THEN {NEXT} END AS a,"
            f" CASE WHEN {LAST} >= q.ts - INTERVAL 2 SECONDS THEN {LAST} END AS b",
            2 * SECOND,
        ),
        (f"{NEXT} AS until", None),
        (f"CASE WHEN {NEXT} <= q.ts + INTERVAL 1 SECOND THEN {NEXT} ELSE q.ts END AS until", None),
        (f"CASE WHEN {NEXT} <= q.ts + INTERVAL 1 SECOND THEN {LAST} END AS until", None),
        (f"CASE WHEN {NEXT} >= q.ts - INTERVAL 1 SECOND THEN {NEXT} END AS until", None),
        (f"CASE WHEN {NEXT} <= q.d + INTERVAL 1 SECOND THEN {NEXT} END AS until", None),
        (f"CASE WHEN {NEXT} <= q.ts - INTERVAL 1 SECOND THEN {NEXT} END AS until", None),
        (
            f"CASE WHEN {NEXT} <= q.ts + INTERVAL 1 SECOND THEN {NEXT} END AS a, count(*) OVER (PARTITION BY k) AS n",
            None,
        ),
        ("CASE WHEN q.ts <= q.ts + INTERVAL 1 SECOND THEN q.ts END AS until", None),
    ],
)
def test_how_far_the_next_row_is_looked_for(items: str, distance: int | None) -> None:
    found = find_following(block(f"SELECT {items} FROM s AS q"))
    assert (None if found is None else (found[0].name, found[1])) == (None if distance is None else ("ts", distance))
