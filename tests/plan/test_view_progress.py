"""Views as plans of the progress plane: how far they have come, and whose windows close key by key."""

from __future__ import annotations

import json

import pytest

from anabranch.algebra.progress import END
from anabranch.plan.catalog import Catalog, to_json
from anabranch.plan.plane import bounds_of, key_of_progress, progress_of
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
    world.make("CREATE VIEW counted AS SELECT a, count(*) AS c FROM pairs GROUP BY a EMIT CHANGES")
    assert bounds(world.catalog, "counted", s=12, r=15)[0] == 10, "what reads the pairs waits for the later of both"
    again = Catalog({id: json.loads(json.dumps(to_json(each))) for id, each in world.catalog.objects.items()})
    assert again.view("pairs").band == world.catalog.view("pairs").band is not None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT s.ts FROM s JOIN r ON s.k = r.k AND r.ts >= s.ts",
        "SELECT s.ts, count(*) AS c FROM s JOIN r ON s.k = r.k AND r.ts = s.ts GROUP BY s.ts",
        "SELECT s.k FROM s JOIN r ON s.k = r.k AND r.ts = s.ts",
        "SELECT s.ts FROM s JOIN r ON s.k = r.k AND r.ts = s.ts ORDER BY s.n LIMIT 3",
    ],
)
def test_what_is_no_band(world: World, query: str) -> None:
    assert world.make(f"CREATE VIEW v AS {query} EMIT CHANGES").band is None


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
