"""The progress plane: the bounds of each node from those of its inputs, and that no later row breaks them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.algebra.plane import (
    Aggregate,
    BandJoin,
    DupElim,
    Input,
    Join,
    Meld,
    Node,
    Project,
    Select,
    TumblingJoin,
    Union,
    Window,
    box,
    evaluate,
    needed,
)
from anabranch.algebra.progress import END
from anabranch.algebra.windows import SlidingWindows, window_time

S, R = Input("s", "ts"), Input("r", "ts")
LEFT, RIGHT = Input("s0", "a"), Input("s1", "b")


def band(left: int, right: int) -> BandJoin:
    return BandJoin(LEFT, RIGHT, "a", "b", left, right)


def tumbling(size: int) -> TumblingJoin:
    return TumblingJoin(LEFT, RIGHT, "a", "b", size)


# ---- nodes


@pytest.mark.parametrize(
    ("node", "bounds"),
    [
        (S, {"ts": 150}),
        (Select(S), {"ts": 150}),
        (DupElim(S), {"ts": 150}),
        (Project(S, {"time": ("ts", 0), "later": ("ts", 5), "n": ("n", 0)}), {"time": 150, "later": 155}),
        (Project(S, {"n": ("n", 0)}), {}),
        (Union((S, Input("t", "ts"))), {"ts": 100}),
        (Union((S, Project(Input("t", "ts"), {"other": ("ts", 0)}))), {}),
        (Aggregate(S, ("k", "ts")), {"ts": 150}),
        (Aggregate(S, ("k",)), {}),
    ],
)
def test_the_bounds_of_a_node(node: Node, bounds: dict[str, int]) -> None:
    assert evaluate(node, {"s": 150, "t": 100}) == bounds
    assert evaluate(node, {"s": None, "t": None}) == {}
    assert set(evaluate(node, {"s": END, "t": END}).values()) <= {END}


def test_a_window_is_open_until_its_end() -> None:
    hop = Window(S, "ts", SlidingWindows(600, 60))
    assert evaluate(hop, {"s": 660}) == {
        "ts": 660, "window_id": 2, "window_start": 120, "window_end": 720, "window_time": 720 - 1,
    }  # fmt: skip
    assert evaluate(Aggregate(hop, ("window_end",)), {"s": 659}) == {"window_end": 660}
    nested = Window(Aggregate(hop, ("window_time",)), "window_time", SlidingWindows(6_000_000, 6_000_000))
    assert evaluate(nested, {"s": 660})["window_start"] == 0
    assert evaluate(hop, {"s": END})["window_end"] == END


# ---- unions


def test_a_meld_tells_what_is_new() -> None:
    meld = Meld(2, reported=19)
    meld.report(0, 20)
    assert [meld.report(1, bound) for bound in (20, 21, 22)] == [20, None, None]
    assert meld.report(0, 25) == 22


def test_three_inputs_wait_for_the_silent_one() -> None:
    union = Union((Input("main1", "ts"), Input("main2", "ts"), Input("control", "ts")))
    counts = Aggregate(Window(union, "ts", SlidingWindows(60, 60)), ("window_end",))
    minute = {"main1": 5 * 60, "main2": 4 * 60, "control": 60}
    assert evaluate(counts, minute) == {"window_end": 2 * 60}, "the minute from 12:01 on is open"
    assert evaluate(counts, {**minute, "control": 4 * 60}) == {"window_end": 5 * 60}
    assert evaluate(counts, {**minute, "control": None}) == {}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 20)), max_size=30))
def test_a_meld_only_grows(script: list[tuple[int, int]]) -> None:
    """What a meld tells is strictly increasing, and never more than any input has said."""
    meld, last, said = Meld(3), -END, [-END] * 3
    for index, bound in script:
        said[index] = max(said[index], bound)
        told = meld.report(index, said[index])
        if told is not None:
            assert last < told <= min(said)
            last = told


# ---- joins


def joined(join: Join, script: list[tuple[int, int]]) -> Iterator[tuple[dict[str, int], tuple[int, int] | None]]:
    """The individual and the joint bounds after each punctuation: (side, bound)."""
    bounds: list[int | None] = [None, None]
    for side, bound in script:
        bounds[side] = bound
        given = {"s0": bounds[0], "s1": bounds[1]}
        yield evaluate(join, given), box(join, *bounds)


def test_the_bounds_of_a_band_join() -> None:
    found = list(joined(band(3, 2), [(0, 6), (1, 8), (0, 12), (1, 15), (0, 20)]))
    assert found == [
        ({}, None),
        ({"a": 5, "b": 4}, (6, 8)),
        ({"a": 5, "b": 8}, None),
        ({"a": 12, "b": 10}, (12, 15)),
        ({"a": 12, "b": 15}, None),
    ]


def test_the_bounds_of_a_tumbling_join() -> None:
    found = list(joined(tumbling(5), [(0, 5), (1, 7), (0, 10), (1, 10)]))
    assert found == [
        ({}, None),
        ({"a": 5, "b": 5}, (5, 7)),
        ({"a": 5, "b": 7}, None),
        ({"a": 10, "b": 10}, (10, 10)),
    ]


def test_a_joint_bound_comes_before_the_individual_ones() -> None:
    found = list(joined(band(2, 2), [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]))
    assert found[2][1] == (2, 1)
    assert [bounds.get("b") for bounds, _ in found] == [None, -1, 0, 0, 1]


# ---- rounding down


def test_a_bound_is_rounded_down_to_what_somebody_needs() -> None:
    minutes, halves = SlidingWindows(60, 60), SlidingWindows(60, 30, origin=10)
    assert [needed(bound, [minutes]) for bound in (59, 60, 61, 119, 120)] == [0, 60, 60, 60, 120]
    assert [needed(bound, [minutes, halves]) for bound in (60, 69, 70, 71, 100, 119, 120)] == [
        60, 60, 70, 70, 100, 100, 120,
    ]  # fmt: skip
    assert (needed(None, [minutes]), needed(END, [minutes]), needed(5, [])) == (None, END, None)


@given(st.integers(-200, 200), st.integers(1, 40), st.integers(1, 40), st.integers(-5, 5))
def test_between_rounded_bounds_no_window_closes(bound: int, size: int, slide: int, origin: int) -> None:
    """A bound and what it is rounded down to close the same windows, and one closes just there."""
    windows = SlidingWindows(size, slide, origin)
    rounded = needed(bound, [windows])
    assert rounded is not None and rounded <= bound
    assert windows.closed_before(rounded) == windows.closed_before(bound) > windows.closed_before(rounded - 1)


# ---- the law of all of them

Row = dict[str, int]


class Streams:
    """Random rows with punctuation that they keep to, and all that a node puts out for them, as soon as it can."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.bounds: dict[str, int | None] = {}
        self.rows: dict[str, list[Row]] = {}
        self.out: list[tuple[Row, ...]] = []

    def output(self, node: Node) -> list[Row]:
        """All rows of a node's output so far, as a batch query over the rows so far would have them."""
        match node:
            case Input(name, _):
                return self.rows.get(name, [])
            case Select(input):
                return [row for row in self.output(input) if next(iter(row.values())) % 3]
            case DupElim(input):
                return [dict(row) for row in dict.fromkeys(tuple(row.items()) for row in self.output(input))]
            case Project(input, columns):
                return [{n: row[o] + d for n, (o, d) in columns.items()} for row in self.output(input)]
            case Union(inputs):
                return [row for each in inputs for row in self.output(each)]
            case Window(input, time, windows):
                found = []
                for row in self.output(input):
                    for wid in windows.at(row[time]):
                        start, stop = windows.bounds(wid)
                        found.append({
                            **row, "window_id": wid, "window_start": start, "window_end": stop,
                            "window_time": window_time(stop, windows.size),
                        })  # fmt: skip
                return found
            case Aggregate(input, by):
                bounds = evaluate(input, self.bounds)
                groups: dict[tuple[int, ...], int] = {}
                for row in self.output(input):
                    key = tuple(row[name] for name in by)
                    # A group comes out when one of its columns is below the bound: no row of it can come any more.
                    if any(name in bounds and row[name] < bounds[name] for name in by):
                        groups[key] = groups.get(key, 0) + 1
                return [{**dict(zip(by, key, strict=True)), "n": count} for key, count in groups.items()]
            case BandJoin() | TumblingJoin():
                return [
                    {**one, **other}
                    for one in self.output(node.left)
                    for other in self.output(node.right)
                    if self._pair(node, one[node.left_time], other[node.right_time])
                ]

    @staticmethod
    def _pair(join: Join, one: int, other: int) -> bool:
        if isinstance(join, BandJoin):
            return one - join.right_range <= other <= one + join.left_range
        return one // join.size == other // join.size


def plans() -> dict[str, st.SearchStrategy[Node]]:
    windows = st.builds(SlidingWindows, st.integers(1, 9), st.integers(1, 9), st.integers(0, 3))
    single = st.sampled_from(
        [S, Select(S), DupElim(S), Union((S, R)), Project(Union((S, Select(R))), {"ts": ("ts", 4)})]
    )
    windowed = st.builds(lambda below, each: Window(below, "ts", each), single, windows)
    grouped = st.builds(
        lambda below, by: Aggregate(below, by), windowed, st.sampled_from([("window_end",), ("ts", "window_id")])
    )
    nested = st.builds(
        lambda below, each: Aggregate(Window(Project(below, {"w": ("window_end", -1)}), "w", each), ("window_start",)),
        st.builds(lambda below: Aggregate(below, ("window_end",)), windowed),
        windows,
    )
    left, right = Project(S, {"a": ("ts", 0)}), Project(R, {"b": ("ts", 0)})
    joins = st.one_of(
        st.builds(lambda x, y: BandJoin(left, right, "a", "b", x, y), st.integers(0, 6), st.integers(0, 6)),
        st.builds(lambda size: TumblingJoin(left, right, "a", "b", size), st.integers(1, 6)),
    )
    over_join = st.builds(lambda join, each: Aggregate(Window(join, "a", each), ("window_start",)), joins, windows)
    return {
        "one row": single, "windows": windowed, "groups": grouped, "groups of groups": nested, "joins": joins,
        "groups of joins": over_join,
    }  # fmt: skip


steps = st.lists(st.tuples(st.sampled_from("sr"), st.booleans(), st.integers(0, 8)), min_size=8, max_size=16)


@pytest.mark.parametrize("family", plans())
@settings(max_examples=100, deadline=None)
@given(st.data(), steps)
def test_no_later_row_breaks_a_bound(family: str, data: st.DataObject, script: list[tuple[str, bool, int]]) -> None:
    """Rows that keep to the punctuation of their streams never make a node put out a row below a bound it gave, nor a
    pair below a joint bound."""
    node = data.draw(plans()[family])
    streams = Streams(node)
    streams.bounds = {"s": None, "r": None}
    promised: dict[str, int] = {}
    before: list[tuple[tuple[str, int], ...]] = []
    boxes: list[tuple[int, int]] = []
    for name, marks, amount in script:
        bound = streams.bounds[name]
        least = 0 if bound is None else bound
        if marks:
            streams.bounds[name] = least + amount
        else:
            streams.rows.setdefault(name, []).append({"ts": least + amount})
        after = sorted(tuple(sorted(row.items())) for row in streams.output(node))
        left = list(before)
        for row in after:
            if row in left:
                left.remove(row)
                continue
            assert all(dict(row)[column] >= least for column, least in promised.items())
            assert not any(dict(row)["a"] < one and dict(row)["b"] < other for one, other in boxes)
        assert not left, "a row that came out is not taken back"
        now = evaluate(node, streams.bounds)
        assert all(now[column] >= least for column, least in promised.items()), "no bound moves back"
        promised, before = now, after
        if isinstance(node, BandJoin | TumblingJoin):
            boxes += [each for each in [box(node, streams.bounds["s"], streams.bounds["r"])] if each is not None]
