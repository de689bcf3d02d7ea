"""Views over several streams do not wait for one that is idle: how far they come, whatever happens in what order."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.algebra.progress import END, ProgressState, Seen, advance_to, end, let_go, observe, tick
from anabranch.engine.core import Core
from anabranch.engine.progress_bounds import Moves, Outcome, bounds_after, progress
from anabranch.ledger import Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.plane import progress_of
from plan.test_explain import WINDOW, World, stream

IDLE = 30
SECOND = "INTERVAL 1 MICROSECOND"
VIEWS = {
    "alone": f"SELECT {WINDOW}, count(*) AS c FROM TUMBLE(a, ts, INTERVAL 10 MICROSECONDS) GROUP BY {WINDOW}",
    "both": "SELECT k, n, ts FROM a UNION ALL SELECT k, n, ts FROM b",
    "three": "SELECT k, n, ts FROM a UNION ALL SELECT k, n, ts FROM b UNION ALL SELECT k, n, ts FROM replay",
    "banded": f"SELECT a.k, a.ts, b.n FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - {SECOND} AND a.ts + {SECOND}",
    "above": "SELECT x.k, x.ts, replay.n FROM both AS x JOIN replay ON x.k = replay.k",
}


@cache
def catalog() -> Catalog:
    world = World()
    live = [stream(name, source="rate", idle=IDLE) for name in "ab"]
    world.catalog = world.catalog.with_objects([*live, stream("replay", idle=IDLE)])
    for name, query in VIEWS.items():
        world.make(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
    return world.catalog


class Home:
    """As much of an engine as progress needs: states of streams, and what the records say of views."""

    def __init__(self) -> None:
        self.states: dict[str, ProgressState] = {}
        self.snapshot = Snapshot()
        self.now = 0

    def progress(self, _: Snapshot, stream: str) -> ProgressState:
        return self.states.get(stream, ProgressState())

    @property
    def core(self) -> Core:
        return cast(Core, self)

    def move(self, stream: str, after: ProgressState) -> None:
        """A commit: it is written down, and read again."""
        moves: Moves = {stream: (self.progress(self.snapshot, stream), after)}
        told = json.loads(json.dumps(bounds_after(self.core, catalog(), self.snapshot, moves, Outcome())))
        bounds, passed = {**self.snapshot.bounds, **told["bounds"]}, {**self.snapshot.passed, **told["passed"]}
        self.snapshot = Snapshot(version=self.snapshot.version + 1, bounds=bounds, passed=passed)
        self.states[stream] = ProgressState.from_json(json.loads(json.dumps(after.to_json())))

    def rows(self, stream: str, *times: int) -> None:
        seen = {"": Seen(max(times), max(times), len(times))} if times else {}
        policy = catalog().stream(stream).policy
        self.move(stream, observe(policy, self.progress(self.snapshot, stream), seen, self.now))

    def tick(self, *streams: str) -> None:
        for name in streams:
            self.move(name, tick(catalog().stream(name).policy, self.progress(self.snapshot, name), self.now))

    def reached(self, view: str) -> int | None:
        return progress(self.core, catalog(), catalog().view(view), self.snapshot, {}, 0)

    def bound(self, stream: str) -> int | None:
        return self.progress(self.snapshot, stream).bound


@pytest.fixture
def home() -> Home:
    return Home()


LAG = 5_000_000


def test_a_silent_stream_holds_until_it_is_idle_and_again_when_it_has_rows(home: Home) -> None:
    home.rows("a", LAG + 10)
    home.now = 20
    home.rows("b", LAG + 100)
    home.now = 29
    home.tick("a")
    assert home.reached("both") == 10
    home.now = 30
    home.tick("a")
    assert (home.reached("both"), home.reached("alone")) == (100, 10), "alone it does not move by being silent"
    assert home.reached("banded") == 100
    home.rows("b", LAG + 120)
    assert home.reached("both") == 120
    home.rows("a", LAG + 12)
    assert (home.reached("both"), home.bound("a")) == (120, 12), "what it sends now is late"
    home.rows("b", LAG + 200)
    assert home.reached("both") == 120, "it holds again"
    home.rows("a", LAG + 150)
    assert home.reached("both") == 150


def test_a_stream_that_never_had_a_row_is_idle_after_it_was_looked_for(home: Home) -> None:
    home.rows("b", LAG + 100)
    home.now = 1000
    home.tick("a")
    home.rows("b", LAG + 110)
    assert home.reached("both") is None
    home.now = 1000 + IDLE
    home.rows("b", LAG + 120)
    home.tick("a")
    assert home.reached("both") == 120
    home.rows("a", LAG + 7)
    assert home.reached("both") == 120


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_when_all_are_silent_progress_stays(home: Home, order: str) -> None:
    home.rows("a", LAG + 10)
    home.rows("b", LAG + 100)
    home.now = IDLE
    home.tick(*order)
    assert (home.reached("both"), home.reached("three")) == (10, None)
    assert all(home.states[name].idle for name in order)
    home.rows("b", LAG + 101)
    assert home.reached("both") == 101
    home.now += IDLE
    home.tick(*order)
    assert home.reached("both") == 101, "it stays where it was, and does not fall back"


def test_what_has_ended_leads_nobody_on(home: Home) -> None:
    home.rows("a", LAG + 10)
    home.move("replay", end(ProgressState()))
    home.move("b", end(ProgressState()))
    home.now = IDLE
    home.tick("a", "b")
    assert home.reached("three") == 10
    assert not home.states["b"].idle
    home.move("a", end(home.states["a"]))
    assert home.reached("three") == END


def test_replayed_rows_are_never_idle_and_lead_on(home: Home) -> None:
    home.rows("a", LAG + 10)
    home.rows("b", LAG + 20)
    home.rows("replay", LAG + 1000)
    home.now = 10**9
    home.tick("a", "b", "replay")
    assert home.reached("three") == home.reached("above") == 1000
    assert home.reached("both") == 10
    assert not home.states["replay"].idle


def test_nobody_is_let_go_of_one() -> None:
    policy = catalog().stream("a").policy
    assert let_go({"a": (policy, ProgressState(5, 5, seen_at=0, idle_at=40))}) == frozenset()


names = st.sampled_from(["a", "b", "replay"])
events = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), names, st.integers(0, 300)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 2 * IDLE)),
        st.tuples(st.just("tick"), names, st.just(0)),
        st.tuples(st.just("advance"), names, st.integers(0, 300)),
        st.tuples(st.just("end"), names, st.just(0)),
    ),
    max_size=40,
)  # fmt: skip


@settings(deadline=None)
@given(events)
def test_progress_never_moves_back_and_waits_for_nobody_who_is_idle(script: list[tuple[str, str, int]]) -> None:
    home = Home()
    for kind, name, value in script:
        before = {view: home.reached(view) for view in VIEWS}
        match kind:
            case "wait":
                home.now += value
                continue
            case "rows":
                home.rows(name, LAG + value)
            case "tick":
                home.tick(name)
            case "advance":
                home.move(name, advance_to(home.progress(home.snapshot, name), value))
            case "end":
                home.move(name, end(home.progress(home.snapshot, name)))
        for view in VIEWS:
            after, plain = home.reached(view), progress_of(catalog(), catalog().view(view), home.bound)
            _check(home, view, before[view], after, plain, kind)


def _check(home: Home, view: str, before: int | None, after: int | None, plain: int | None, kind: str) -> None:
    sources = catalog().sources_of(catalog().view(view))
    states: dict[str, Any] = {name: home.progress(home.snapshot, name) for name in sources}
    assert before is None or (after is not None and after >= before), "it never moves back"
    assert plain is None or (after is not None and after >= plain), "nobody is waited for longer than without idleness"
    ended = all(state.bound == END for state in states.values())
    assert (after == END) == ended, "only the end closes everything"
    assert home.snapshot.bounds.get(view) == after, "the record of the commit says so"
    if not any(state.idle for state in states.values()):
        known = [bound for bound in (before, plain) if bound is not None]
        assert after == max(known, default=None), "without idle streams the last one holds"
    open_ones = [state for state in states.values() if state.bound != END]
    awake = [state for state in open_ones if state.seen_at is None or home.now - state.seen_at < IDLE]
    if not awake and kind == "tick":
        assert after == before, "nobody goes on by being silent"
    left = [state.bound for state in open_ones if not state.idle]
    if view in ("both", "three") and awake and all(not state.idle for state in awake) and left and None not in left:
        assert after is not None
        assert after >= min(left), "an idle stream holds nobody back"
        bounds = [state.bound for state in states.values() if state.bound not in (None, END)]
        assert ended or after <= max([*bounds, before or -END]), "and nobody is led on by what has ended"
