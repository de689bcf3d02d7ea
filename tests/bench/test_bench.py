"""The whole bench, tried out on so few rows that its figures mean nothing: it runs, and the totals are the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.bench import main

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_measure_gives_figures_and_exact_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--rows", "20000", "--files", "20", "--repeat", "1", "--events", "20000"]
    assert main([*tiny, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "exactly the truth" in said.out and "NOT" not in said.out
    assert "(f) late scattered, 1 of 1" in said.err
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    every = {
        *"abcdef",
        "live",
        "smoothing",
        "nexmark",
        "strategies",
        "policies",
        "joins",
        "epochs",
        "growth",
        "kernels",
        "views",
        "functions",
        "disorder",
    }
    assert {each["measure"] for each in found["figures"]} == every
    assert all(each["ours"] > 0 and each["theirs"] > 0 for each in found["figures"])
    for totals in found["totals"]:
        assert totals["exact"] and totals["ours"] == totals["rows"]
        # A pair is given out when both of its rows are there: no window has to close for it.
        assert totals["dropped"] > 0 and (totals["never_emitted"] > 0) == (totals["measure"] != "joins")
    pictures = (
        "chart",
        "keys",
        "strategies",
        "strategies-groups",
        "joins-size",
        "joins-skew",
        "epochs",
        "growth",
        "policies-skew",
        "disorder-skew",
    )
    for picture in (f"{name}.svg" for name in (*pictures, "strategies-groups")):
        assert (tmp_path / picture).read_text(encoding="utf-8").startswith("<svg")
