"""Examples in docstrings do what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import anabranch

SOURCE = Path(anabranch.__file__).parent
#: Its examples open homes: tests/testing has them.
WITH_SPARK = "anabranch.testing.harness"
NAMES = [
    ".".join((anabranch.__name__, *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", [name for name in NAMES if name != WITH_SPARK])
def test_examples_are_true(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert failed == 0 and tried > 0
