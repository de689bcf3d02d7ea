"""The examples in the public test harness run."""

from __future__ import annotations

import doctest
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from anabranch.testing import Harness, assert_same_rows, harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_examples_in_the_docstrings_run(spark: SparkSession) -> None:
    failed, tried = doctest.testmod(harness)
    assert tried > 5
    assert failed == 0


@pytest.mark.spark
def test_changes_of_lists_and_of_what_is_no_number_add_up(home: Harness) -> None:
    query = "SELECT k, sort_array(collect_list(x)) AS l, max(x) AS h FROM s GROUP BY k"
    home.sql(f"CREATE STREAM s (k STRING, x DOUBLE); CREATE VIEW v AS {query} EMIT CHANGES")
    rows = [("a", float("nan")), ("a", 1.0), ("b", 2.0)]
    for row in rows:
        home.insert("s", [row])
    assert_same_rows(home.emitted("v"), home.batch(query, s=rows))


def test_decimals_of_all_digits_are_taken() -> None:
    import pyarrow as pa

    digits = Decimal("9" * 28 + "." + "9" * 10)
    assert harness._fitting(digits, pa.decimal128(38, 10)) == digits
