"""Window ids, extents and panes, and the SQL that computes them."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.algebra.windows import (
    Engine,
    SlidingWindows,
    first_window_sql,
    last_window_sql,
    pane_start_sql,
    shared_grain,
    window_starts_sql,
    window_time,
)
from anabranch.algebra.windows.sql import multiple

times = st.integers(-10_000, 10_000)
windows_strategy = st.builds(
    SlidingWindows,
    size=st.integers(1, 120),
    slide=st.integers(1, 120),
    origin=st.integers(-300, 300),
    aligned=st.sampled_from(["start", "end"]),
)


def ended(size: int, slide: int) -> SlidingWindows:
    return SlidingWindows(size, slide, aligned="end")


def from_zero(windows: SlidingWindows, time: int) -> set[int]:
    """The published vectors start counting windows at 0."""
    return {wid for wid in windows.at(time) if wid >= 0}


def test_ten_minutes_every_minute() -> None:
    windows = ended(600, 60)
    assert from_zero(windows, 5) == set(range(0, 10))
    assert from_zero(windows, 60) == set(range(1, 11))
    assert windows.bounds(10) == (60, 660)
    assert windows.bounds(0) == (-540, 60)


@pytest.mark.parametrize(
    ("size", "slide", "expected"),
    [
        (10, 4, {0: {0, 1}, 2: {0, 1, 2}, 4: {1, 2}, 5: {1, 2}, 6: {1, 2, 3}, 8: {2, 3}, 10: {2, 3, 4},
                 12: {3, 4}}),
        (9, 6, {0: {0}, 2: {0}, 3: {0, 1}, 5: {0, 1}, 6: {1}, 9: {1, 2}, 14: {2}, 15: {2, 3}, 17: {2, 3},
                18: {3}}),
        (4, 10, {0: set(), 5: set(), 6: {0}, 9: {0}, 10: set(), 15: set(), 16: {1}, 19: {1}}),
    ],
)  # fmt: skip
def test_window_ids_of_an_instant(size: int, slide: int, expected: dict[int, set[int]]) -> None:
    assert {time: from_zero(ended(size, slide), time) for time in expected} == expected


@pytest.mark.parametrize(
    ("size", "slide", "expected"),
    [
        (4, 2, {0: 2, 1: 3, 2: 2, 3: 2, 4: 3, 5: 3, 6: 1}),
        (5, 3, {0: 2, 1: 3, 2: 4, 3: 4, 4: 1}),
        (4, 4, {0: 3, 1: 2, 2: 3}),
        (2, 5, {0: 2, 1: 2}),
    ],
)
def test_counts_per_window(size: int, slide: int, expected: dict[int, int]) -> None:
    windows = ended(size, slide)
    times = [0, 1, 3, 4, 7, 8, 8, 11]
    assert Counter(wid for time in times for wid in from_zero(windows, time)) == expected


def test_a_row_of_the_eleventh_minute_and_the_bound_after_it() -> None:
    windows = SlidingWindows(600, 60, origin=43_200, aligned="end")
    assert list(windows.at(43_200 + 10 * 60 + 17)) == list(range(10, 20))
    assert windows.closed_before(43_200 + 11 * 60) == 11
    assert windows.closes(10, 43_200 + 11 * 60)
    assert not windows.closes(11, 43_200 + 11 * 60)


def test_disordered_rows_are_counted_when_their_window_closes() -> None:
    windows = ended(4, 2)
    state: Counter[tuple[int, str]] = Counter()
    emitted = []
    script: list[tuple[str, int] | int] = [
        ("a", 0), ("a", 3), ("b", 1), 2, ("a", 5), ("b", 2), 4, ("b", 4), 8,
    ]  # fmt: skip
    for step in script:
        if isinstance(step, tuple):
            state.update((wid, step[0]) for wid in from_zero(windows, step[1]))
            continue
        closed = {key: count for key, count in state.items() if windows.closes(key[0], step)}
        for key in closed:
            del state[key]
        emitted.append((closed, dict(state)))
    assert emitted == [
        ({(0, "a"): 1, (0, "b"): 1}, {(1, "a"): 2, (1, "b"): 1, (2, "a"): 1}),
        ({(1, "a"): 2, (1, "b"): 2}, {(2, "a"): 2, (2, "b"): 1, (3, "a"): 1}),
        ({(2, "a"): 2, (2, "b"): 2, (3, "a"): 1, (3, "b"): 1}, {}),
    ]


def test_panes_give_the_windows_that_rows_give() -> None:
    windows = ended(9, 6)
    rows = [(0, 5), (2, 9), (4, 1), (7, 3), (8, 8), (10, 2), (13, 6), (17, 4)]
    assert windows.grain == 3
    assert [sorted(w for w in windows.pane_windows(p * 3) if w >= 0) for p in range(6)] == [
        [0], [0, 1], [1], [1, 2], [2], [2, 3],
    ]  # fmt: skip
    panes: dict[int, int] = {}
    for time, value in rows:
        start = windows.pane(time)
        panes[start] = max(value, panes.get(start, value))
    assert {start // 3: value for start, value in panes.items()} == {0: 9, 1: 1, 2: 8, 3: 2, 4: 6, 5: 4}
    from_panes: dict[int, list[int]] = defaultdict(list)
    for start, value in panes.items():
        for wid in windows.pane_windows(start):
            from_panes[wid].append(value)
    assert {wid: max(v) for wid, v in from_panes.items() if wid >= 0} == {0: 9, 1: 8, 2: 6, 3: 4}


def test_wrong_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="size of a window must be positive"):
        SlidingWindows(0, 1)
    with pytest.raises(ValueError, match="slide of a window must be positive"):
        SlidingWindows(1, -1)
    with pytest.raises(ValueError, match="several windows"):
        SlidingWindows(2, 1).start_of(0)
    with pytest.raises(ValueError, match="the grain must divide 2"):
        last_window_sql("t", SlidingWindows(4, 2), 3, "spark")
    with pytest.raises(ValueError, match="at least one"):
        shared_grain([])


def test_tumbling_windows_have_one_start() -> None:
    day = SlidingWindows(10, 10, origin=3)
    assert day.tumbling
    assert [day.start_of(time) for time in (-8, -7, 2, 3, 12, 13)] == [-17, -7, -7, 3, 3, 13]


def test_window_time_is_a_millisecond_before_the_end() -> None:
    assert window_time(60_000_000, 60_000_000) == 59_999_000


@given(windows_strategy, times, st.integers(-200, 200))
def test_an_instant_is_in_a_window_iff_the_window_is_one_of_its_ids(
    windows: SlidingWindows, time: int, wid: int
) -> None:
    for each in (wid, (time - windows.first_start) // windows.slide, windows.closed_before(time)):
        start, end = windows.bounds(each)
        assert (start <= time < end) == (each in windows.at(time))


@given(windows_strategy, times)
def test_windows_below_the_first_open_one_are_closed(windows: SlidingWindows, progress: int) -> None:
    first = windows.closed_before(progress)
    assert windows.closes(first - 1, progress)
    assert not windows.closes(first, progress)


@given(windows_strategy, st.integers(-50, 50))
def test_a_window_is_the_union_of_its_panes(windows: SlidingWindows, wid: int) -> None:
    start, end = windows.bounds(wid)
    panes = {windows.pane(time) for time in range(start, end)}
    assert sorted(panes) == list(range(start, end, windows.grain))
    assert all(wid in windows.pane_windows(pane) for pane in panes)
    assert wid not in windows.pane_windows(windows.pane(start - 1))
    assert wid not in windows.pane_windows(windows.pane(end))


@given(st.lists(windows_strategy, min_size=1, max_size=4), st.integers(-50, 50))
def test_shared_panes_divide_all_windows(several: list[SlidingWindows], wid: int) -> None:
    grain, origin = shared_grain(several)
    assert 0 <= origin < grain
    for windows in several:
        assert windows.grain % grain == 0
        start, end = windows.bounds(wid)
        assert (start - origin) % grain == 0
        assert (end - origin) % grain == 0


# --- the SQL texts, evaluated by DuckDB


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE MACRO pmod(a, b) AS ((a % b) + b) % b")
    # Spark's sequence, as far as it is used: an empty range is an error there.
    connection.execute(
        "CREATE MACRO sequence(a, b, step) AS "
        "CASE WHEN a <= b THEN range(a, b + 1, step) ELSE error('empty sequence') END"
    )
    return connection


def in_duckdb(sql: str) -> str:
    return re.sub(r"CAST\(array\(\) AS ARRAY<BIGINT>\)", "CAST([] AS BIGINT[])", sql)


def random_windows(chooser: random.Random) -> SlidingWindows:
    unit = chooser.choice([1, 1, 7, 60_000_000])
    return SlidingWindows(
        size=unit * chooser.randint(1, 40),
        slide=unit * chooser.randint(1, 40),
        origin=chooser.randint(-100, 100) * chooser.choice([1, unit]),
        aligned=chooser.choice(["start", "end"]),
    )


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
@pytest.mark.parametrize("seed", range(40))
def test_sql_agrees_with_the_functions(database: duckdb.DuckDBPyConnection, engine: Engine, seed: int) -> None:
    chooser = random.Random(seed)
    windows = random_windows(chooser)
    reach = 50 * (windows.size + windows.slide)
    times = [chooser.randint(-reach, reach) for _ in range(40)] + list(windows.bounds(3)) + [0, -1]
    grain = chooser.choice([windows.grain, 1, shared_grain([windows, random_windows(chooser)])[0]])
    origin = windows.origin % grain
    columns = [
        pane_start_sql("t.micros", grain, windows.origin, engine),
        pane_start_sql("micros - 1 + 1", grain, origin, engine),
    ]
    rows = database.execute(
        f"SELECT micros, {', '.join(columns)} FROM (SELECT unnest(?::BIGINT[]) AS micros) t", [times]
    ).fetchall()
    panes = []
    for time, pane, same in rows:
        assert pane == same == time - (time - windows.origin) % grain
        panes.append(pane)
    columns = [
        first_window_sql("pane", windows, grain, engine),
        last_window_sql("pane", windows, grain, engine),
        window_starts_sql("pane", windows, grain, engine),
    ]
    text = in_duckdb(f"SELECT pane, {', '.join(columns)} FROM (SELECT unnest(?::BIGINT[]) AS pane) t")
    for pane, first, last, starts in database.execute(text, [panes]).fetchall():
        expected = [windows.bounds(wid)[0] for wid in windows.pane_windows(pane)]
        assert starts == expected
        assert (first > last) if not expected else (first, last) == (expected[0], expected[-1])


def test_sql_texts() -> None:
    hop = SlidingWindows(10, 4, origin=1)
    assert pane_start_sql("ts", 2, 1, "spark") == "(ts - pmod(ts - 1, 2))"
    assert pane_start_sql("ts", 4, 1, "duckdb") == "(" + multiple("ts - 1", 4) + " + 1)"
    assert multiple("a + b", 2) == "(CASE WHEN (a + b) >= 0 THEN (a + b) ELSE (a + b) - 1 END // 2 * 2)"
    assert first_window_sql("p", hop, 2, "spark") == "(p - 8 + pmod(1 - (p - 8), 4))"
    assert last_window_sql("p", hop, 2, "spark") == "(p - pmod(p - 1, 4))"
    assert "CASE" not in window_starts_sql("p", hop, 2, "spark")
    assert "CASE" in window_starts_sql("p", SlidingWindows(4, 10), 2, "spark")
    with pytest.raises(ValueError, match="'spark' or 'duckdb'"):
        pane_start_sql("t", 2, 0, "postgres")  # type: ignore[arg-type]
