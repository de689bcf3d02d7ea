"""Views as plans of the progress plane: how far they have come, and whose windows close key by key."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.algebra.progress import END
from anabranch.plan.catalog import Catalog
from anabranch.plan.plane import bounds_of, key_of_progress, progress_of
from anabranch.plan.stored import to_json
from plan.test_explain import TUMBLE, WINDOW, World, stream

MINUTE = 60_000_000


@pytest.fixture
def world() -> World:
    found = World()
    found.catalog = found.catalog.with_objects([stream("by_key", key="k")])
    return found


def bounds(catalog: Catalog, view: str, **streams: int | None) -> tuple[int | None, dict[str, int]]:
    made = catalog.view(view)
    return progress_of(catalog, made, streams.__getitem__), bounds_of(catalog, made, streams.__getitem__)


def test_a_view_over_windows(world: World) -> None:
    world.make(f"CREATE VIEW v AS {TUMBLE} EMIT ON WINDOW CLOSE")
    assert bounds(world.catalog, "v", s=None) == (None, {})
    assert bounds(world.catalog, "v", s=90_000_000) == (
        90_000_000, {"window_start": MINUTE, "window_end": 2 * MINUTE},
    )  # fmt: skip
    assert bounds(world.catalog, "v", s=END)[1]["window_end"] == END


def test_a_join_is_as_far_as_the_slower_side(world: World) -> None:
    world.make("CREATE VIEW v AS SELECT s.k, s.ts, r.n FROM s JOIN r ON s.k = r.k EMIT CHANGES")
    assert bounds(world.catalog, "v", s=7, r=5) == (5, {}), "a new row of r may meet an old one of s"
    assert bounds(world.catalog, "v", s=7, r=None)[0] is None


def test_the_pairs_of_a_band_come_within_it(world: World) -> None:
    world.make(
        "CREATE VIEW pairs AS SELECT s.k, s.ts AS a, r.ts AS b FROM s JOIN r ON s.k = r.k"
        " AND r.ts BETWEEN s.ts - INTERVAL 2 MICROSECONDS AND s.ts + INTERVAL 3 MICROSECONDS EMIT CHANGES"
    )
    found = [bounds(world.catalog, "pairs", s=s, r=r)[1] for s, r in [(6, 8), (12, 8), (12, 15), (20, 15)]]
    assert found == [{"a": 5, "b": 4}, {"a": 5, "b": 8}, {"a": 12, "b": 10}, {"a": 12, "b": 15}]
    again = Catalog({id: json.loads(json.dumps(to_json(each))) for id, each in world.catalog.objects.items()})
    assert again.view("pairs").progress.joint == world.catalog.view("pairs").progress.joint is not None


PAIRS = "SELECT s.k, s.ts AS a, r.ts AS b, greatest(s.ts, r.ts) AS later, least(s.ts, r.ts) AS earlier FROM s JOIN r"
BAND = "r.ts BETWEEN s.ts - INTERVAL 2 MICROSECONDS AND s.ts + INTERVAL 3 MICROSECONDS"


@pytest.mark.parametrize(
    ("query", "progress", "ends"),
    [
        ("SELECT a, count(*) AS c FROM pairs GROUP BY a", 12, ()),
        ("SELECT b, count(*) AS c FROM pairs GROUP BY b", 10, ()),
        ("SELECT later, count(*) AS c FROM pairs GROUP BY later", 12, ()),
        ("SELECT earlier, count(*) AS c FROM pairs GROUP BY earlier", 10, ()),
        ("SELECT a, b, count(*) AS c FROM pairs GROUP BY a, b", 12, ("a", "b")),
        ("SELECT k, count(*) AS c FROM pairs GROUP BY k", 10, ()),
        ("SELECT a, count(*) AS c FROM (SELECT a, k FROM pairs WHERE k > 'b') GROUP BY a", 12, ()),
        ("SELECT b, count(*) AS c FROM (SELECT b, k FROM pairs WHERE k > 'b') GROUP BY b", 10, ()),
        (f"WITH p AS (SELECT b, k FROM ({PAIRS} ON s.k = r.k AND {BAND})) SELECT b FROM p GROUP BY b", 10, ()),
        (f"SELECT {WINDOW} FROM TUMBLE(pairs, b, INTERVAL 1 MINUTE) GROUP BY {WINDOW}", 10, tuple(WINDOW.split(", "))),
        (f"SELECT {WINDOW} FROM HOP(pairs, later, '1 minute', '2 minutes') GROUP BY {WINDOW}", 12,
         tuple(WINDOW.split(", "))),
        (f"SELECT {WINDOW} FROM SESSION(TABLE pairs, DESCRIPTOR(a), INTERVAL 1 MINUTE) GROUP BY {WINDOW}", 10, ()),
        # Without a view of the pairs.
        (f"SELECT s.ts, count(*) AS c FROM s JOIN r ON s.k = r.k AND {BAND} GROUP BY s.ts", 12, ()),
        (f"SELECT r.ts, s.k, count(*) AS c FROM s JOIN r ON s.k = r.k AND {BAND} GROUP BY r.ts, s.k", 10, ()),
        (f"SELECT {WINDOW}, s.k FROM s JOIN TUMBLE(r, ts, INTERVAL 1 MINUTE) r ON s.k = r.k AND {BAND}"
         f" GROUP BY {WINDOW}, s.k", 10, ()),
        # Where nothing tells how long a row waits, its windows close with the streams.
        (f"SELECT {WINDOW}, s.k FROM s JOIN TUMBLE(r, ts, INTERVAL 1 MINUTE) r ON s.k = r.k GROUP BY {WINDOW}, s.k",
         12, ()),
    ],
)  # fmt: skip
def test_what_reads_pairs_goes_by_the_time_it_asks_for(
    world: World, query: str, progress: int, ends: tuple[str, ...]
) -> None:
    world.make(f"CREATE VIEW pairs AS {PAIRS} ON s.k = r.k AND {BAND} EMIT CHANGES")
    clause = "EMIT ON WINDOW CLOSE" if " s JOIN " in query.rsplit("SELECT", 1)[1] else "EMIT CHANGES"
    view = world.make(f"CREATE VIEW v AS {query} {clause}")
    assert bounds(world.catalog, "v", s=12, r=15)[0] == progress
    assert (view.progress.joint.ends if view.progress.joint is not None else ()) == ends
    assert bounds(world.catalog, "v", s=END, r=END)[0] == END


def test_groups_of_both_times_close_with_both_streams(world: World) -> None:
    world.make(f"CREATE VIEW pairs AS {PAIRS} ON s.k = r.k AND {BAND} EMIT CHANGES")
    world.make("CREATE VIEW one AS SELECT a, count(*) AS c FROM pairs GROUP BY a EMIT CHANGES")
    world.make("CREATE VIEW both AS SELECT a, b, count(*) AS c FROM pairs GROUP BY a, b EMIT CHANGES")
    found = [
        [bounds(world.catalog, view, s=s, r=r)[0] for view in ("one", "both")] for s, r in [(6, 8), (2, 1), (3, 2)]
    ]
    assert found == [[5, 6], [-2, 1], [-1, 2]]


TUMBLES = "TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL 10 MICROSECONDS, INTERVAL 3 MICROSECONDS) {0}"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (f"{PAIRS} ON s.k = r.k", {"later": 24}),
        (f"{PAIRS} ON s.k = r.k AND r.ts >= s.ts", {"b": 24, "later": 24}),
        (f"{PAIRS} ON s.k = r.k AND r.ts - s.ts > INTERVAL 4 MICROSECONDS", {"b": 27, "later": 27}),
        (f"{PAIRS.replace('JOIN r', 'LEFT JOIN r')} ON s.k = r.k AND {BAND}", {"a": 24, "b": 22}),
        (f"SELECT s.ts AS a FROM s LEFT ANTI JOIN r ON s.k = r.k AND {BAND}", {"a": 24}),
        (f"SELECT DISTINCT s.ts AS a FROM s, r WHERE {BAND}", {"a": 24}),
        (f"SELECT s.ts AS a, r.ts AS b, s.window_start AS w FROM {TUMBLES.format('s')} JOIN {TUMBLES.format('r')}"
         " ON s.window_start = r.window_start", {"a": 23, "b": 23, "w": 23}),
        (f"SELECT s.ts AS a, r.ts AS b, s.window_end AS w FROM {TUMBLES.format('s')} LEFT JOIN {TUMBLES.format('r')}"
         " ON s.window_start = r.window_start", {"a": 23, "b": 23, "w": 33}),
        ("SELECT x.ts AS a, y.ts AS b FROM s x JOIN s y ON x.k = y.k AND y.ts BETWEEN x.ts AND x.ts + '5 microseconds'",
         {"a": 19, "b": 24}),
        ("SELECT s.ts AS a, t.ts AS c, greatest(s.ts, r.ts, t.ts) AS later FROM s JOIN r ON r.ts = s.ts JOIN s t"
         " ON t.ts = r.ts - INTERVAL 1 MICROSECOND", {"a": 24, "c": 23, "later": 24}),
        (f"SELECT s.ts AS a FROM s JOIN r ON {BAND} LEFT JOIN s t ON t.k = s.k", {}),
        ("SELECT s.k AS a FROM s JOIN r ON s.k = r.k AND r.ts = s.ts", {}),
        ("SELECT s.ts, count(*) AS c FROM s JOIN r ON s.k = r.k GROUP BY s.ts", {}),
        ("SELECT s.ts, row_number() OVER (PARTITION BY s.k ORDER BY s.n) AS c FROM s JOIN r ON s.ts = r.ts", {}),
        ("SELECT s.ts FROM s JOIN r ON s.k = r.k AND r.ts = s.ts ORDER BY s.n LIMIT 3", {}),
    ],
)  # fmt: skip
def test_the_bounds_of_joins(world: World, query: str, found: dict[str, int]) -> None:
    """Streams have come to 24 and 27."""
    world.make(f"CREATE VIEW v AS {query} EMIT CHANGES")
    assert bounds(world.catalog, "v", s=24, r=27)[1] == found


def test_unions_progress_with_the_last_of_their_inputs(world: World) -> None:
    world.make("CREATE VIEW u AS SELECT k, ts FROM s UNION ALL SELECT k, ts AS t FROM r WHERE n > 1 EMIT CHANGES")
    assert bounds(world.catalog, "u", s=24, r=27) == (24, {"ts": 24})
    world.make("CREATE VIEW n AS SELECT k, ts FROM s UNION ALL SELECT k, TIMESTAMP '2026-01-01 00:00:00' FROM r"
               " EMIT CHANGES")  # fmt: skip
    assert bounds(world.catalog, "n", s=24, r=27) == (24, {})
    world.make("CREATE VIEW j AS SELECT u.ts AS a, r.ts AS b FROM u JOIN r ON u.k = r.k AND r.ts BETWEEN"
               " u.ts - INTERVAL 2 MICROSECONDS AND u.ts + INTERVAL 3 MICROSECONDS EMIT CHANGES")  # fmt: skip
    assert bounds(world.catalog, "j", s=24, r=27)[1] == {"a": 24, "b": 22}


def test_a_join_of_windows_is_shown_as_it_was_read(world: World) -> None:
    found = world.explain(
        "SELECT s.k, s.ts FROM s [RANGE 3 SECONDS, WA ts], r [RANGE 2 SECONDS, WA ts] WHERE s.k = r.k"
    )
    band = "r.ts >= `s`.ts - INTERVAL 2 SECONDS AND r.ts <= `s`.ts + INTERVAL 3 SECONDS"
    assert found.canonical == f"SELECT `s`.k, `s`.ts FROM s CROSS JOIN r WHERE {band} AND `s`.k = r.k"


#: The condition of a join, which rows meet by it, and the columns that are to have bounds.
MEETINGS = {
    "r.ts BETWEEN s.ts - INTERVAL 2 MICROSECONDS AND s.ts + INTERVAL 3 MICROSECONDS": (
        lambda a, b: a - 2 <= b <= a + 3, {"a", "b", "later", "earlier"},
    ),
    "r.ts > s.ts + INTERVAL 2 MICROSECONDS AND abs(unix_micros(s.ts) - unix_micros(r.ts)) < 6": (
        lambda a, b: 2 < b - a < 6, {"a", "b", "later", "earlier"},
    ),
    "r.ts <= s.ts": (lambda a, b: b <= a, {"a", "later"}),
    "s.k = r.k": (lambda a, b: True, {"later"}),
    "s.w = r.w": (lambda a, b: (a - 3) // 10 == (b - 3) // 10, {"a", "b", "later", "earlier"}),
}  # fmt: skip


@pytest.mark.parametrize("condition", MEETINGS)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("sr"), st.booleans(), st.integers(0, 8)), min_size=4, max_size=16))
def test_no_later_pair_breaks_a_bound(condition: str, script: list[tuple[str, bool, int]]) -> None:
    """Rows that keep to the progress of their streams never make a pair below a bound that its view had."""
    meets, columns = MEETINGS[condition]
    catalog = _pairs_of(condition)
    progress: dict[str, int | None] = {"s": None, "r": None}
    rows: dict[str, list[int]] = {"s": [], "r": []}
    promised: dict[str, int] = {}
    for name, moves, amount in script:
        time = (progress[name] or 0) + amount
        if moves:
            progress[name] = time
        else:
            rows[name].append(time)
            for other in rows["r" if name == "s" else "s"]:
                a, b = (time, other) if name == "s" else (other, time)
                pair = {"a": a, "b": b, "later": max(a, b), "earlier": min(a, b)}
                assert not meets(a, b) or all(pair[column] >= bound for column, bound in promised.items())
        now = bounds(catalog, "v", **progress)[1]
        assert set(now) == (columns if None not in progress.values() else set())
        assert all(now[column] >= bound for column, bound in promised.items()), "no bound moves back"
        promised = now


@cache
def _pairs_of(condition: str) -> Catalog:
    world = World()
    tables = f"{TUMBLES.format('s')} JOIN {TUMBLES.format('r')}" if "w" in condition else "s JOIN r"
    on = condition.replace(".w ", ".window_start ").replace("r.w", "r.window_start")
    world.make(f"CREATE VIEW v AS {PAIRS.replace('s JOIN r', tables)} ON {on} EMIT CHANGES")
    return world.catalog


def test_which_columns_have_bounds(world: World) -> None:
    world.make("CREATE VIEW kept AS SELECT k, ts FROM s WHERE n > 1 EMIT CHANGES")
    assert bounds(world.catalog, "kept", s=7) == (7, {"ts": 7})
    world.make("CREATE VIEW days AS SELECT ts, count(*) AS c FROM s GROUP BY ts EMIT CHANGES")
    assert bounds(world.catalog, "days", s=7) == (7, {"ts": 7})
    world.make("CREATE VIEW firsts AS SELECT k, ts, row_number() OVER (PARTITION BY k ORDER BY n) AS place FROM s"
               " EMIT CHANGES")  # fmt: skip
    assert bounds(world.catalog, "firsts", s=7) == (7, {}), "a new row changes the places of old ones"


def test_a_view_that_waits_holds_back_those_above_it(world: World) -> None:
    world.make(f"CREATE VIEW v AS {TUMBLE} HAVING sum(n) > 0 EMIT ON WINDOW CLOSE")
    world.make("CREATE VIEW above AS SELECT window_end, sum(n) AS n FROM v GROUP BY window_end EMIT CHANGES")
    above, streams = world.catalog.view("above"), {"s": 150_000_000}
    assert progress_of(world.catalog, above, streams.__getitem__, {}) == 150_000_000
    assert progress_of(world.catalog, above, streams.__getitem__, {"v": 2 * MINUTE}) == 2 * MINUTE - 1
    assert progress_of(world.catalog, above, lambda _: END, {"v": 2 * MINUTE}) == END


@pytest.mark.parametrize(
    ("query", "closes"),
    [
        (f"SELECT {WINDOW}, k, sum(n) AS n FROM TUMBLE(by_key, ts, INTERVAL 1 MINUTE) GROUP BY {WINDOW}, k", True),
        (f"SELECT {WINDOW}, K AS x, min(n) AS n FROM TUMBLE(by_key, ts, '1 day') b GROUP BY {WINDOW}, b.K", True),
        (f"SELECT {WINDOW}, sum(n) AS n FROM TUMBLE(by_key, ts, INTERVAL 1 MINUTE) GROUP BY {WINDOW}", False),
        (f"SELECT {WINDOW}, upper(k) AS k, sum(n) AS n FROM TUMBLE(by_key, ts, INTERVAL 1 MINUTE)"
         f" GROUP BY {WINDOW}, upper(k)", False),
        (f"SELECT {WINDOW}, k, sum(n) AS n FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY {WINDOW}, k", False),
        (f"SELECT {WINDOW}, k, sum(n) + 1 AS n FROM TUMBLE(by_key, ts, INTERVAL 1 MINUTE)"
         f" GROUP BY {WINDOW}, k HAVING sum(n) > 0", True),
        (f"SELECT {WINDOW}, t.k, sum(t.n) AS n FROM TUMBLE(by_key, ts, INTERVAL 1 MINUTE) t JOIN names m ON m.k = t.k"
         f" GROUP BY {WINDOW}, t.k", False),
    ],
)  # fmt: skip
def test_whose_windows_close_key_by_key(world: World, query: str, closes: bool) -> None:
    view = world.make(f"CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE")
    found = key_of_progress(world.catalog, view)
    assert (found is not None) == closes
    if found is not None:
        assert found[0].id == "by_key"


def test_an_archive_goes_by_the_stream(world: World) -> None:
    view = world.make(
        f"CREATE VIEW v AS {TUMBLE.replace('TUMBLE(s', 'TUMBLE(by_key')} EMIT ON WINDOW CLOSE LATE ARCHIVE"
    )
    assert key_of_progress(world.catalog, view) is None
