"""JSON lines that are read without Spark have the columns, types and values that Spark finds in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.cli.values import column_texts
from anabranch.sources import json_rows
from anabranch.sources.csv_grammar import Uncertain
from anabranch.sources.files import FilesSource
from anabranch.sources.parts import Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Values as they stand in a file, by sort; "" is a name that is not there.
VALUES = [
    ["1", "-0", "0", "2147483648", "9223372036854775807", "-9223372036854775808"],
    ["1.5", "-0.0", "1e5", "1E-7", "0.1234567890123456789", "4.9e-324", "1.0", "12345678901234567.5"],
    ["true", "false"],
    ['"a"', '""', '"2026-01-01"', '"2026-01-01T10:00:00Z"', '"1"', '"é \\u00e9 \\ud83d\\ude00"', '"say \\"hi\\"\\n"'],
    ["999999999999999", "1000000000000000", "9223372036854775808", "123456789012345678901234567890"],
    ["[1]", '{"a": 1}', "[]", "{}"],
]


def columns(seed: int, count: int, rows: int) -> list[list[str]]:
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        sorts = chance.sample(VALUES, chance.choice((1, 1, 1, 2)))
        values = [value for sort in sorts for value in sort]
        found.append([chance.choice([*values, "null", ""]) for _ in range(rows)])
    return found


@pytest.mark.spark
def test_json_is_what_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    from anabranch.engine.frames import struct

    path = tmp_path / "x.json"
    given = [*columns(1, 60, 3), *columns(2, 40, 3), ["null", "", "null"], ["", "", "1"], ["1", "1.5", ""]]
    names = [f"{'aBé_Z'[at % 5]}{at}" for at in range(len(given))]
    lines = []
    for row in zip(*given, strict=True):
        items = [f'"{name}": {value}' for name, value in zip(names, row, strict=True) if value]
        random.Random(len(lines)).shuffle(items)
        lines.append("{" + ", ".join(items) + "}\n")
    path.write_text("".join(lines), encoding="utf-8")
    fields, table = json_rows.read([str(path)])
    status = path.stat()
    files = FilesSource({"path": str(path), "format": "json"}, lambda: spark)
    said = files.columns_of([Part(str(path), status.st_size, status.st_mtime_ns)])
    there = {field.name for field in said}  # without columns of nothing but empty objects
    assert [field.name for field in fields if field.name in there] == [field.name for field in said]
    assert all(field.type == json_rows.OTHER for field in fields if field.name not in there)
    sure = [field for field in fields if field.type != json_rows.OTHER]
    assert [field for field in said if field.name in {each.name for each in sure}] == sure
    assert len(sure) > 60
    theirs = spark.read.schema(struct(sure)).json(str(path)).toArrow()
    for field in sure:
        assert list(column_texts(table.column(field.name))) == list(column_texts(theirs.column(field.name)))


@pytest.mark.parametrize(
    "content",
    [
        '{"a": NaN}', '{"a": 1e400}', '{"a": 1, "a": 2}', '{"a": 1}\n\n{"a": 2}', '{"a": 1} x', "[1]", "1", '{"a": 01}',
        '{"a": "\\ud800"}', "{'a': 1}", '{"a": 1}\r{"a": 2}', '\ufeff{"a": 1}', '{"": 1}', '{"_corrupt_record": "x"}',
        "{}", '{"a": "\x01"}',
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_spark(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content.encode() + b"\n")
    with pytest.raises(Uncertain):
        json_rows.read([str(path)])
