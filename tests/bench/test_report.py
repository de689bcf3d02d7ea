"""Figures as people, programs and browsers see them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from anabranch.bench import _measure_names, main, report
from anabranch.bench.figures import Curve, Figure, Outcome, Totals, at_least, at_most

FAST = Figure("a", "tumbling & more", "Structured Streaming", 1_500_000, 750_000, "rows/s", at_least(1.5))
SLOW = Figure("c", "run of 2,000 rows", "bare foreachBatch", 240, 100, "ms", at_most(1.2))
OTHER = Figure("d", "8 views", "one view", 42.25, 40, "ms")
READ = Figure("e", "reading", "batch", 30.0, 2.0, "reads/s", at_least(8))
TOTALS = Totals("a", 1000, 1000, True, 12, 34)
OUTCOMES = [Outcome((FAST, SLOW), (TOTALS,), {"(a) runs": {"total": 5.0}}), Outcome((OTHER, READ))]
ABOUT = {"rows": 1000, "cores": 2, "repeat": 3, "date": "2026-01-01"}


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (FAST, "met"),
        (SLOW, "missed by 100 %"),
        (OTHER, "reported"),
        (Figure("a", "w", "p", 120, 100, "rows/s", at_least(1.5)), "missed by 20 %"),
        (Figure("a", "w", "p", 150, 100, "rows/s", at_least(1.5)), "met"),
        (Figure("c", "w", "p", 120, 100, "ms", at_most(1.2)), "met"),
    ],
)
def test_a_verdict_says_by_how_much_a_target_was_missed(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_the_table_has_a_line_for_every_figure() -> None:
    lines = report.table([FAST, SLOW, OTHER]).splitlines()
    assert len(lines) == 5
    said = " ".join(lines[2].split())
    assert said == "(a) tumbling & more 1.50 M rows/s Structured Streaming 750 k rows/s 2.00 x ≥ 1.5 x met"
    assert lines[3].endswith("240 ms  bare foreachBatch           100 ms  2.40 x  ≤ 1.2 x  missed by 100 %")
    assert "42.2 ms" in lines[4] and lines[4].endswith("reported")


def test_the_totals_tell_what_was_lost() -> None:
    told = report.totals_text([TOTALS])
    assert "exactly the truth" in told and "dropped 12" in told and "never emitted 34" in told
    joined = Totals("joins", 90, 90, True, 12, 0, "pairs in windows", " of the 30 in the files it was given")
    told = report.totals_text([joined])
    assert "90 pairs in windows;" in told and "dropped 12 of the 30 in the files it was given as late" in told
    assert "NOT the truth" in report.totals_text([Totals("a", 10, 9, False, 0, 0)])


def test_results_are_written_as_json_and_as_a_chart(tmp_path: Path) -> None:
    plain, picture = report.write(tmp_path / "new" / "folder", OUTCOMES, ABOUT)
    found = json.loads(plain.read_text(encoding="utf-8"))
    assert [each["measure"] for each in found["figures"]] == ["a", "c", "d", "e"]
    assert found["figures"][0]["ratio"] == 2.0 and found["figures"][0]["target"] == "≥ 1.5 x"
    assert found["totals"][0]["never_emitted"] == 34
    assert found["phases"] == {"(a) runs": {"total": 5.0}}
    assert picture.name == "chart.svg"


def test_the_chart_is_well_formed_and_has_a_bar_for_every_figure_and_a_mark_for_every_target() -> None:
    root = ElementTree.fromstring(report.chart([FAST, SLOW, OTHER, READ], "1,000 bids"))
    name = "{http://www.w3.org/2000/svg}"
    fills = [each.get("fill") for each in root.iter(f"{name}rect")]
    assert sum(fill in report.COLOURS.values() for fill in fills) == 4
    assert fills.count("#000000") == 3
    texts = [each.text or "" for each in root.iter(f"{name}text")]
    assert any("tumbling & more" in text for text in texts)
    assert any("15.00 x+" in text for text in texts)
    width = float(root.get("width", "0"))
    assert all(float(each.get("x", "0")) + float(each.get("width", "0")) <= width for each in root.iter(f"{name}rect"))


def test_no_label_of_the_chart_is_clipped_or_covered() -> None:
    wide = [
        Figure("a", "x" * 80, "a peer with a long name", 3.0, 2.0, "ms", at_most(2.0)),
        Figure("b", "short", "peer", 1e9, 3.0, "rows/s", at_least(9.9)),
        Figure("c", "even", "peer", 2.0, 2.0, "ms", at_most(1.0)),
    ]
    root = ElementTree.fromstring(report.chart(wide, "1,000 bids"))
    name = "{http://www.w3.org/2000/svg}"
    marks = [(float(each.get("x", "0")), float(each.get("y", "0"))) for each in root.iter(f"{name}rect")
             if each.get("fill") == "#000000"]  # fmt: skip
    for each in root.iter(f"{name}text"):
        x, y, length = float(each.get("x", "0")), float(each.get("y", "0")), report.LETTER * len(each.text or "")
        if each.get("font-size") != "11":
            continue
        start = x - length if each.get("text-anchor") == "end" else x
        assert start >= 0 and start + length <= float(root.get("width", "0"))
        assert not any(start - 2 < mark < start + length for mark, top in marks if top == y - 15)


def test_the_chart_of_the_docs_is_that_of_the_stored_figures() -> None:
    root = Path(__file__).parents[2]
    found = json.loads((root / "bench" / "results.json").read_text(encoding="utf-8"))
    assert (root / "docs" / "speed.svg").read_text(encoding="utf-8") == report.chart_of(found)


def test_notes_are_said_once() -> None:
    noted = [Figure("live", what, "native", 1, 2, "ms", note="update mode") for what in ("one", "two")]
    assert report.notes_text([FAST, *noted]) == "(live) native: update mode."
    also = Figure("live", "three", "batch", 1, 2, "ms", note="update mode")
    assert report.notes_text([*noted, also]) == "(live) native, batch: update mode."


def test_a_curve_is_a_picture_with_a_line_for_each_side(tmp_path: Path) -> None:
    sides = {
        "Anabranch": [(10_000.0, 210.0), (1_000_000.0, 260.0)],
        "native": [(10_000.0, 235.0), (1_000_000.0, 507.0)],
    }
    curve = Curve("keys", "A run & its changes", "keys", "ms", sides)
    plain, _, picture = report.write(tmp_path, [Outcome((), curves=(curve,))], ABOUT)
    assert json.loads(plain.read_text(encoding="utf-8"))["curves"][0]["lines"]["native"][1] == [1_000_000, 507]
    assert picture.name == "keys.svg"
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    name = "{http://www.w3.org/2000/svg}"
    assert len(list(root.iter(f"{name}polyline"))) == 2
    places = [(float(each.get("cx", "0")), float(each.get("cy", "0"))) for each in root.iter(f"{name}circle")]
    assert len(places) == 4 and places[1][1] > places[3][1]  # the slower stands higher
    texts = [each.text for each in root.iter(f"{name}text")]
    assert {"Anabranch", "native", "A run & its changes", "10,000", "1,000,000", "600 ms"} <= set(texts)


@pytest.mark.parametrize(
    ("text", "names"),
    [("a,c", ["a", "c"]), ("ac", ["a", "c"]), ("live", ["live"]), ("F, nexmark", ["f", "nexmark"]), ("lve", ["lve"])],
)
def test_measures_are_chosen_by_letters_and_names(text: str, names: list[str]) -> None:
    assert _measure_names(text) == names


def test_wrong_options_are_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["--only", "a,z"], "no measure z"),
        (
            ["--only", ","],
            "a to f, live, smoothing, nexmark, strategies, policies, joins, epochs, growth, kernels, views,",
        ),
        (["--events", "100"], "events are too few"),
        (["--rows", "100"], "too few for 40 files"),
        (["--rows", "-5"], "not a positive number"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
