"""What order costs, tried out on a little: the shape of every finding, without Spark."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from anabranch.algebra.windows.sliding import SlidingWindows
from anabranch.algebra.windows.strategies import COUNT, ByWindow
from anabranch.bench import disorder, main
from anabranch.bench.disorder import ADAPTIVE, CONSISTENT, EAGER, GENEROUS, IN_ORDER, PANES, PARTIALS, PUNCTUATION
from anabranch.testing import skewed

PICTURES = ("disorder-band", "disorder-blocks", "disorder-skew", "disorder-groups")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a brief bench of nothing but this."""
    folder = tmp_path_factory.mktemp("bench")
    assert main(["--only", "disorder", "--rows", "1000", "--files", "10", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def found(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def curves(found: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """The heights of every line of every curve."""
    return {
        curve["name"]: {side: [y for _, y in line] for side, line in curve["lines"].items()}
        for curve in found["curves"]
    }


def test_no_spark_is_started(found: dict[str, Any]) -> None:
    assert found["about"]["cores"] and "spark" not in found["about"]


def test_the_figures_are_costs_beside_a_named_baseline(found: dict[str, Any]) -> None:
    assert len(found["figures"]) == 7
    for figure in found["figures"]:
        assert figure["measure"] == "disorder" and 0 < figure["ratio"] < 1 and figure["peer"]
        assert figure["note"] == disorder.MODEL


@pytest.mark.parametrize("name", PICTURES)
def test_every_experiment_has_a_picture(out: Path, name: str) -> None:
    root = ElementTree.fromstring((out / f"{name}.svg").read_text(encoding="utf-8"))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(each.get("x", "-1")) <= width and 0 <= float(each.get("y", "-1")) <= height


@pytest.mark.parametrize("name", ["disorder-band", "disorder-blocks"])
def test_punctuation_is_exact_and_generous_slack_no_worse_than_consistent(
    curves: dict[str, dict[str, list[float]]], name: str
) -> None:
    for measure in ("error", "wrong"):
        lines = curves[f"{name}-{measure}"]
        assert set(lines[PUNCTUATION]) == {0}
        assert all(one <= other for one, other in zip(lines[GENEROUS], lines[CONSISTENT], strict=True))
        assert lines[GENEROUS][0] < lines[CONSISTENT][0] or measure == "wrong"
        assert lines[GENEROUS][-1] == lines[CONSISTENT][-1] == 0


def test_no_slack_that_is_exact_answers_as_early_as_punctuation(curves: dict[str, dict[str, list[float]]]) -> None:
    for name in ("disorder-band", "disorder-blocks"):
        delays, wrong = curves[f"{name}-delay"], curves[f"{name}-wrong"][GENEROUS]
        slack = next(line for side, line in delays.items() if side != PUNCTUATION)
        assert slack == sorted(slack)
        assert all(mine > delays[PUNCTUATION][0] for mine, share in zip(slack, wrong, strict=True) if not share)


def test_counts_in_blocks_are_wrong_below_the_length_of_a_block(curves: dict[str, dict[str, list[float]]]) -> None:
    lines = curves["disorder-blocks-wrong"]
    for slack, generous, consistent in zip(disorder.COUNTS.slacks, lines[GENEROUS], lines[CONSISTENT], strict=True):
        assert (generous > 0) == (consistent > 0) == (slack < 490)


def test_rows_in_order_grow_with_the_skew_and_partials_do_not(curves: dict[str, dict[str, list[float]]]) -> None:
    lines = curves["disorder-skew"]
    assert lines[IN_ORDER] == sorted(set(lines[IN_ORDER]))
    assert lines[IN_ORDER][-1] > 5 * lines[IN_ORDER][0]
    # One window is open, or with a source behind, two.
    assert lines[PARTIALS][0] <= lines[PARTIALS][-1] <= 2 * lines[PARTIALS][0]


def test_adaptive_holds_less_than_partials_the_more_so_the_more_groups_are_small_and_panes_hold_least(
    curves: dict[str, dict[str, list[float]]],
) -> None:
    for measure in ("peak", "mean"):
        lines = curves[f"disorder-groups-{measure}"]
        ratios = [one / other for one, other in zip(lines[ADAPTIVE], lines[EAGER], strict=True)]
        assert ratios == sorted(ratios, reverse=True) and ratios[0] < 1
        assert all(panes <= adaptive for panes, adaptive in zip(lines[PANES], lines[ADAPTIVE], strict=True))


def test_rows_that_are_put_in_order_give_the_same_answers() -> None:
    windows = SlidingWindows(10, 5)
    rows = [(time, time % 3, 1) for time in range(50)]
    arrivals = list(skewed(rows, 1, {"a": 0, "b": 12}, time=lambda row: row[0], punctuate=2))
    ours = disorder.hold(ByWindow(windows, COUNT), arrivals)
    theirs = disorder.hold(disorder.InOrder(ByWindow(windows, COUNT)), arrivals)
    assert ours.results == theirs.results and len(ours.results) > 20
    assert theirs.peak > 0
