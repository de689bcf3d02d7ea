"""Views as plans of the progress plane: how far they have come, and whose windows close key by key."""

from __future__ import annotations

import pytest

from anabranch.algebra.progress import END
from anabranch.plan.catalog import Catalog
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
    assert bounds(world.catalog, "v", s=7, r=5)[0] == 5
    assert bounds(world.catalog, "v", s=7, r=None)[0] is None


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
