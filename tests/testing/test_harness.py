"""The examples in the public test harness run."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest

from anabranch.testing import harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_examples_in_the_docstrings_run(spark: SparkSession) -> None:
    failed, tried = doctest.testmod(harness)
    assert tried > 5
    assert failed == 0
