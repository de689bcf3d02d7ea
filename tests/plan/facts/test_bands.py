"""Bands: what the conditions of a join say about how far apart the times of its sides are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.ir.expr import Column
from anabranch.ir.logic import conjuncts
from anabranch.ir.select import SelectBlock
from anabranch.plan.facts.bands import find_bands
from anabranch.plan.facts.time_differences import TimeDifference, differences
from ir.plan_help import block

SECOND = 1_000_000


def names(column: Column, of: SelectBlock) -> str:
    return of.qualified(column).replace("`", "")


def said(condition: str) -> list[tuple[str, str, TimeDifference]]:
    """The differences that a condition of a join tells, with the names of their columns."""
    joined = block(f"SELECT 1 AS x FROM s JOIN r ON {condition}")
    on = joined.sources[1].on
    assert on is not None
    return [(names(each.one, joined), names(each.other, joined), each) for each in differences(on)]


@pytest.mark.parametrize(
    ("condition", "least", "most"),
    [
        ("r.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 3 SECONDS", -2 * SECOND, 3 * SECOND),
        ("s.k = r.k AND s.ts - INTERVAL '2' SECOND <= r.ts AND r.ts < s.ts + '3 seconds'", -2 * SECOND, 3 * SECOND - 1),
        ("s.ts BETWEEN r.ts - INTERVAL 3 SECONDS AND r.ts + INTERVAL 2 SECONDS", -2 * SECOND, 3 * SECOND),
        ("r.ts >= s.ts AND r.ts <= s.ts + INTERVAL 1 MINUTE", 0, 60 * SECOND),
        ("s.ts = R.TS", 0, 0),
        ("r.ts >= s.ts", 0, None),
        ("(s.k = r.k AND (r.ts >= s.ts)) AND (r.ts <= s.ts)", 0, 0),
        ("r.ts - s.ts BETWEEN INTERVAL -2 SECONDS AND INTERVAL 3 SECONDS", -2 * SECOND, 3 * SECOND),
        ("s.ts - r.ts > INTERVAL '3' SECOND AND INTERVAL '9' SECOND >= s.ts - r.ts", -9 * SECOND, -3 * SECOND - 1),
        (
            "r.ts - INTERVAL 1 SECOND * 5 <= s.ts AND (r.ts + INTERVAL 5 SECONDS) - s.ts > '0 seconds'",
            -5 * SECOND + 1,
            5 * SECOND,
        ),
        ("abs(unix_micros(r.ts) - unix_micros(s.ts)) <= 5000000", -5 * SECOND, 5 * SECOND),
        ("5 * 1000 * 1000 > ABS(unix_micros(s.ts) - unix_micros(r.ts))", 1 - 5 * SECOND, 5 * SECOND - 1),
        ("abs(unix_micros(r.ts) - unix_micros(s.ts)) / 1e6 <= 5", None, None),
        ("(unix_micros(r.ts) - unix_micros(s.ts)) / 1000000 <= 1.5", None, 1_500_000),
        ("unix_micros(r.ts) <= unix_micros(s.ts) + 7", None, 7),
        ("unix_timestamp(r.ts) - unix_timestamp(s.ts) BETWEEN 0 AND 2", 1 - SECOND, 3 * SECOND - 1),
        ("unix_millis(r.ts) = unix_millis(s.ts)", -999, 999),
        ("unix_seconds(r.ts) < unix_seconds(s.ts)", None, SECOND - 2),
        ("CAST(r.ts AS BIGINT) - CAST(s.ts AS LONG) <= 0", None, SECOND - 1),
        ("CAST(r.ts AS DOUBLE) - CAST(s.ts AS DOUBLE) <= 0.5", None, SECOND // 2),
        ("CAST(r.ts AS TIMESTAMP) >= s.ts", 0, None),
        ("timestampdiff(MINUTE, s.ts, r.ts) = 0", 1 - 60 * SECOND, 60 * SECOND - 1),
        ("timestampdiff(DAY, s.ts, r.ts) = 0", None, None),
        ("abs(unix_micros(r.ts) - unix_micros(s.ts)) >= 5", None, None),
        ("unix_timestamp(r.ts, 'yyyy') <= unix_timestamp(s.ts)", None, None),
        ("r.ts - s.ts <= 5", None, None),
        ("r.ts + s.ts <= INTERVAL 5 SECONDS", None, None),
        ("r.ts <=> s.ts", None, None),
        ("r.ts <> s.ts", None, None),
        ("NOT (r.ts >= s.ts)", None, None),
        ("(r.ts >= s.ts OR s.k = 1)", None, None),
        ("CASE WHEN r.ts BETWEEN s.ts AND s.ts THEN true END", None, None),
        ("r.ts > s.ts + n", None, None),
        ("r.ts >= s.ts OR s.k = 1", None, None),
        ("NOT r.ts >= s.ts", None, None),
        ("r.ts NOT BETWEEN s.ts AND s.ts", None, None),
        ("date_trunc('hour', r.ts) >= s.ts", None, None),
        ("r.ts > s.ts = true", None, None),
    ],
)
def test_what_a_condition_says(condition: str, least: int | None, most: int | None) -> None:
    found = [each for one, other, each in said(condition) if (one, other) == ("s.ts", "r.ts")]
    assert max((each.least for each in found if each.least is not None), default=None) == least
    assert min((each.most for each in found if each.most is not None), default=None) == most


#: A condition with a figure in it, and what it means for times in microseconds: s, r, the figure.
MEANINGS: dict[str, Callable[[int, int, int], bool]] = {
    "unix_timestamp(r.ts) - unix_timestamp(s.ts) < {n}": lambda s, r, n: r // SECOND - s // SECOND < n,
    "unix_timestamp(s.ts) >= unix_timestamp(r.ts) + {n}": lambda s, r, n: s // SECOND >= r // SECOND + n,
    "abs(unix_seconds(s.ts) - unix_seconds(r.ts)) <= {n}": lambda s, r, n: abs(s // SECOND - r // SECOND) <= n,
    "unix_timestamp(r.ts) * 1000 > unix_millis(s.ts) - {n}": lambda s, r, n: r // SECOND * 1000 > s // 1000 - n,
    "r.ts - s.ts > INTERVAL {n} SECONDS": lambda s, r, n: r - s > n * SECOND,
    "s.ts BETWEEN r.ts AND r.ts + INTERVAL {n} SECONDS": lambda s, r, n: r <= s <= r + n * SECOND,
    "timestampdiff(SECOND, s.ts, r.ts) <= {n}": lambda s, r, n: int((r - s) / SECOND) <= n,
}


@pytest.mark.parametrize("condition", MEANINGS)
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 4 * SECOND), st.integers(0, 4 * SECOND), st.integers(0, 3))
def test_what_is_told_always_holds(condition: str, s: int, r: int, n: int) -> None:
    """Two times that a condition lets through are as far apart as it was found to say."""
    if not MEANINGS[condition](s, r, n):
        return
    text = condition.format(n=n)
    for first, _, each in said(text):
        one, other = (s, r) if first == "s.ts" else (r, s)
        assert each.least is None or each.least <= other - one
        assert each.most is None or other - one <= each.most


def test_conditions_in_brackets_are_conditions() -> None:
    asked = block("SELECT 1 AS x FROM s WHERE ((k = d AND n BETWEEN 1 AND 2) AND (d = 1 OR n = 2) AND (ts IS NULL))")
    assert asked.where is not None
    found = [asked.sql(each).replace("`s`.", "").replace("`", "") for each in conjuncts(asked.where)]
    assert found == ["k = d", "n BETWEEN 1 AND 2", "(d = 1 OR n = 2)", "ts IS NULL"]


# ---- of a query


def times_of(of: SelectBlock) -> list[frozenset[Column]]:
    times = ((each.named("ts"), each.static) for each in of.sources)
    return [frozenset() if time is None or static else frozenset({time}) for time, static in times]


TUMBLES = "TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL {1} SECONDS) {0}"


@pytest.mark.parametrize(
    ("query", "least", "most"),
    [
        ("FROM s, r WHERE r.ts >= s.ts AND r.ts < s.ts + INTERVAL 3 SECONDS", 0, 3 * SECOND - 1),
        ("FROM s JOIN r ON r.ts >= s.ts WHERE s.ts + INTERVAL 3 SECONDS >= r.ts", 0, 3 * SECOND),
        ("FROM s JOIN r ON s.k = r.k AND r.ts >= s.ts", 0, None),
        ("FROM s JOIN r USING (k, ts)", 0, 0),
        ("FROM s JOIN t ON t.ts = s.ts JOIN r ON r.ts = t.ts", 0, 0),
        ("FROM s JOIN r ON r.ts = s.ts LEFT JOIN names ON names.k = s.k", 0, 0),
        ("FROM s JOIN r ON r.k = s.k LEFT JOIN names ON r.ts = s.ts", None, None),
        ("FROM s JOIN r ON r.k = s.k LEFT JOIN names ON names.k = s.k WHERE r.ts = s.ts", 0, 0),
        ("FROM s JOIN r ON r.k = s.k RIGHT JOIN names ON names.k = s.k WHERE r.ts = s.ts", None, None),
        *((f"FROM s {join} JOIN r ON s.k = r.k AND r.ts = s.ts", 0, 0)
          for join in ("LEFT", "RIGHT OUTER", "FULL", "LEFT SEMI", "LEFT ANTI", "ANTI")),
        ("FROM s LEFT JOIN r ON s.k = r.k WHERE r.ts = s.ts", None, None),
        ("FROM s LEFT JOIN r ON s.k = r.k AND r.ts >= s.ts WHERE r.ts <= s.ts", 0, None),
        (f"FROM {TUMBLES.format('s', 5)} JOIN {TUMBLES.format('r', 5)} ON s.window_start = r.window_start",
         1 - 5 * SECOND, 5 * SECOND - 1),
        (f"FROM {TUMBLES.format('s', 5)} LEFT JOIN {TUMBLES.format('r', 9)} ON s.window_end = r.window_end",
         1 - 9 * SECOND, 5 * SECOND - 1),
        (f"FROM {TUMBLES.format('s', 5)} JOIN {TUMBLES.format('r', 5)} ON s.window_time = r.window_time"
         " AND r.ts >= s.ts", 0, 5 * SECOND - 1),
        (f"FROM {TUMBLES.format('s', 5)} JOIN {TUMBLES.format('r', 5)} USING (window_start, window_end)",
         1 - 5 * SECOND, 5 * SECOND - 1),
        (f"FROM {TUMBLES.format('s', 5)} JOIN r ON r.ts = s.window_end", 1, 5 * SECOND),
        ("FROM CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 2 SECONDS, INTERVAL 6 SECONDS) s JOIN"
         " HOP(TABLE r, SLIDE => INTERVAL 1 SECOND, SIZE => INTERVAL 3 SECONDS) r ON s.window_start = r.window_start",
         1 - 6 * SECOND, 3 * SECOND - 1),
        ("FROM SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL 2 SECONDS) s JOIN r ON s.window_start = r.ts", None, None),
    ],
)  # fmt: skip
def test_the_distance_of_a_join(query: str, least: int | None, most: int | None) -> None:
    for items in ("1 AS x", "count(*) AS n"):
        joined = block(f"SELECT {items} {query}")
        bands = find_bands(joined, times_of(joined))
        found = [each for each in bands if {names(each.one, joined)[0], names(each.other, joined)[0]} == {"s", "r"}]
        assert [(each.least, each.most) for each in found] == ([] if least is most is None else [(least, most)])
        assert find_bands(joined, [frozenset() for _ in joined.sources]) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("FROM s JOIN r ON r.ts = s.ts JOIN t ON t.ts = r.ts", {"sr": (0, 0), "rt": (0, 0), "st": (0, 0)}),
        ("FROM s JOIN r ON r.k = s.k JOIN t ON t.ts = r.ts AND t.ts >= s.ts", {"sr": (0, None), "rt": (0, 0),
                                                                          "st": (0, None)}),
        ("FROM s JOIN r ON r.k = s.k LEFT JOIN t ON t.ts = r.ts AND t.ts = s.ts", {"rt": (0, 0), "st": (0, 0)}),
        ("FROM s LEFT JOIN r ON r.ts = s.ts JOIN t ON t.ts >= s.ts", {"sr": (0, 0), "rt": (0, None), "st": (0, None)}),
        ("FROM s, r, t WHERE s.ts = r.ts AND t.ts > r.ts", {"sr": (0, 0), "rt": (1, None), "st": (1, None)}),
    ],
)  # fmt: skip
def test_three_inputs(query: str, found: dict[str, tuple[int | None, int | None]]) -> None:
    joined = block(f"SELECT 1 AS x {query}")
    bands = find_bands(joined, times_of(joined))
    told = {names(each.one, joined)[0] + names(each.other, joined)[0]: (each.least, each.most) for each in bands}
    assert told == found


def test_both_directions_are_told() -> None:
    found = {(one, other, each.least, each.most) for one, other, each in said("r.ts >= s.ts - INTERVAL 2 SECONDS")}
    assert found == {("s.ts", "r.ts", -2 * SECOND, None), ("r.ts", "s.ts", None, 2 * SECOND)}
