"""The house: no module is imported by one that it imports, at its top or inside of a function."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HOUSE = Path(__file__).parents[2] / "tools" / "house.py"


def test_no_imports_go_round() -> None:
    spec = importlib.util.spec_from_file_location("house", HOUSE)
    assert spec is not None and spec.loader is not None
    house = importlib.util.module_from_spec(spec)
    sys.modules["house"] = house
    spec.loader.exec_module(house)
    known = house.modules()
    graph = {name: set(house.imports(module, known)) - {name} for name, module in known.items()}
    assert len(graph) > 300 and graph["anabranch.cli.outputs"] >= {"anabranch.cli.live"}
    assert house.largest_cycle(graph) == []
