"""Which strategy windows get: what was asked for, what is there already, or what is expected to cost least."""

from __future__ import annotations

from typing import Any

from anabranch.algebra.windows import SlidingWindows
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.states import Key, Panes
from anabranch.plan.stored import to_json
from anabranch.plan.strategy import ADAPTIVE, BY_DIFFERENCE, PANES, ROWS, WINDOWS, Load, strategy_of

SECOND = 1_000_000
STREAM = Stream("s", "s", "", (), "ts", None, None, None, None, {}, "all", False)
HOP = SlidingWindows(5 * SECOND, SECOND)


def catalog(grain: int = 7 * SECOND, **others: Any) -> Catalog:
    panes = Panes("p", "s", "", "", {}, (Key("k", "k", "string"),), "t", grain, 0, (), (), **others)
    return Catalog({each.id: to_json(each) for each in (STREAM, panes)})


def chosen(asked: str, loads: dict[str, Load], known: Catalog | None = None, keys: tuple[str, ...] = ("k",)) -> str:
    return strategy_of(asked, HOP, STREAM, keys, known or catalog(), loads.get).name


def dense(groups: int) -> dict[str, Load]:
    """A run of 100 seconds with 20 rows a second, in so many groups a pane of seven seconds."""
    return {"s": Load(2_000, 0, 100 * SECOND), "p": Load(groups * 100 // 7, 0, 100 * SECOND)}


def test_what_is_asked_for_is_taken() -> None:
    for asked in (PANES, WINDOWS, ADAPTIVE, ROWS):
        assert chosen(asked, {}) == chosen(asked, dense(1)) == asked


def test_without_anything_known_it_is_panes() -> None:
    assert chosen("auto", {}) == PANES
    assert chosen("auto", {"s": Load(2_000, 0, 100 * SECOND)}) == PANES
    assert chosen("auto", dense(1), keys=("other",)) == PANES


def test_the_cheaper_one_is_taken() -> None:
    loads = {"s": Load(2_000, 0, 100 * SECOND), "p": Load(10, 0, 70 * SECOND)}
    found = strategy_of("auto", HOP, STREAM, ("k",), catalog(), loads.get)
    assert found.name == PANES and found.costs == {PANES: 26.0, WINDOWS: 100.0, ADAPTIVE: 26.0, ROWS: 100.0}
    assert chosen("auto", dense(13)) == PANES
    assert chosen("auto", dense(14)) == WINDOWS


def test_panes_by_difference_pay_where_panes_do_not() -> None:
    """Many groups in many panes: to add up all panes costs more than the rows, to add one and take one out does not."""
    many = SlidingWindows(60 * SECOND, SECOND)
    loads = {"s": Load(2_000, 0, 100 * SECOND), "p": Load(1_000, 0, 100 * SECOND)}
    found = {
        differential: strategy_of("auto", many, STREAM, ("k",), catalog(), loads.get, differential=differential)
        for differential in (False, True)
    }
    assert found[False].name == WINDOWS and BY_DIFFERENCE not in found[False].costs
    assert found[True].name == PANES and found[True].costs[BY_DIFFERENCE] < found[True].costs[WINDOWS]
    few = strategy_of("auto", HOP, STREAM, ("k",), catalog(), loads.get, differential=True)
    assert BY_DIFFERENCE not in few.costs  # so few panes are added up


def test_panes_that_are_there_already_are_shared() -> None:
    assert chosen("auto", dense(100), catalog(grain=SECOND)) == PANES


def test_spans_and_values_are_no_panes_that_others_could_share() -> None:
    for others in ({"spanned": 5 * SECOND}, {"by_value": True}):
        assert chosen("auto", dense(100), catalog(grain=SECOND, **others)) == PANES  # nothing is known, then
        found = strategy_of("auto", HOP, STREAM, ("k",), catalog(grain=SECOND, **others), dense(100).get)
        assert not found.costs


def test_adaptive_is_expected_to_cost_what_the_better_one_does_and_is_never_chosen() -> None:
    for groups in (1, 13, 14, 100):
        found = strategy_of(ADAPTIVE, HOP, STREAM, ("k",), catalog(), dense(groups).get)
        assert found.name == ADAPTIVE and found.costs[ADAPTIVE] == min(found.costs[PANES], found.costs[WINDOWS])
        assert chosen("auto", dense(groups)) != ADAPTIVE
