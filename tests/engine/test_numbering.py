"""Numbers of rows: in the order in which they came, the same however Spark cuts them and whenever they are made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.engine.numbering import number_frame
from anabranch.sources.base import ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Rows a file: Spark would begin with the largest.
SIZES = {"b.json": 40, "a.json": 7, "d.json": 300, "c.json": 1}


@pytest.mark.parametrize("bytes_a_partition", [200, 1_000, 1 << 20])
def test_rows_are_numbered_file_by_file_whatever_the_partitions(
    spark: SparkSession, tmp_path: Path, bytes_a_partition: int
) -> None:
    expected, number = {}, 10
    for name, size in SIZES.items():
        lines = []
        for place in range(size):
            expected[name, place] = number, 5 if name < "c" else 6
            number += 1
            lines.append(f'{{"name": "{name}", "place": {place}}}\n')
        (tmp_path / name).write_text("".join(lines))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    open_cost = spark.conf.get("spark.sql.files.openCostInBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(bytes_a_partition))
    spark.conf.set("spark.sql.files.openCostInBytes", "10")
    try:
        rows = spark.read.schema("name STRING, place BIGINT").json(str(tmp_path))
        files = [str(tmp_path / name) for name in SIZES]
        at = {path: 5 if Path(path).name < "c" else 6 for path in files}
        rows = rows.selectExpr("*", f"input_file_name() AS {ORIGIN}").where("place % 10 <> 3 OR name <> 'd.json'")
        left = {key: value for key, value in expected.items() if not (key[0] == "d.json" and key[1] % 10 == 3)}
        dense = {key: (10 + index, left[key][1]) for index, key in enumerate(left)}
        numbered = number_frame(rows, files, 10, at)
        found = numbered.selectExpr("name", "place", "_row_num", "unix_micros(_arrival_ts)").collect()
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before or "")
        spark.conf.set("spark.sql.files.openCostInBytes", open_cost or "")
    assert {(name, place): (row, when) for name, place, row, when in found} == dense


def test_no_rows_have_no_numbers(spark: SparkSession) -> None:
    numbered = number_frame(spark.range(0), (), 7, 5)
    assert numbered.columns == ["id", "_row_num", "_arrival_ts"]
    assert numbered.collect() == []
