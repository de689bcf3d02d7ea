"""Where random tests get their seeds.

Every run of `make test` has the same ones. ANABRANCH_SEED=7 has others, the same for the same number: `make soak` takes
a number that nobody chose, and a run that fails says it again.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

VARIABLE = "ANABRANCH_SEED"
_given = os.environ.get(VARIABLE)
SEED: int | None = None if _given is None else int(_given)
#: The seed of a test that has only one.
FIRST = 1 if SEED is None else SEED


def soaked(*seeds: int) -> list[Any]:
    """Seeds of cases that only the soak has; with ANABRANCH_SEED, as many others."""
    return [pytest.param(each + (SEED or 0), marks=pytest.mark.slow, id=str(each)) for each in seeds]
