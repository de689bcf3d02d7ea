"""JSON that the driver reads is what Spark's from_json reads; all else it declines."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.sources.json_values import columns_of
from anabranch.types import Field

TYPES = {
    "id": "bigint",
    "i": "int",
    "ts": "timestamp",
    "k": "string",
    "d": "double",
    "b": "boolean",
    "y": "date",
}
FIELDS = tuple(Field(name, type) for name, type in TYPES.items())
HOSTILE = r"""
{"id":1}
{"id":1}{"id":2}
{"id":1},{"id":2}
{"id":1}]
{"id":1,}
{"id":"1"}
{"id":1.0}
{"id":1e2}
{"id":99999999999999999999}
{"id":9223372036854775807,"i":2147483647}
{"i":2147483648}
{"id":-9223372036854775808}
{"id":1,"id":2}
{"id":null}
{"id":01}
{"id":-0}
{"id":+1}
{"d":1}
{"d":1e5}
{"d":-0.0}
{"d":-0}
{"d":NaN}
{"d":nan}
{"d":1e400}
{"d":"NaN"}
{"d":12345678901234567.12345678901234567}
{"d":.5}
{"k":5}
{"k":{"a":1}}
{"k":"a\nb\u0041\/\"\\"}
{"k":"\ud800"}
{"k":"\ud83d\ude00"}
{"k":"é"}
{"k":""}
{"k":"}{"}
{"\u006b":"x"}
{"K":"x"}
{"ts":"2024-02-30T00:00:00Z"}
{"ts":"2024-02-03T24:00:00Z"}
{"ts":"2024-02-03 01:02:03.5"}
{"ts":"2024-02-03T01:02:03.123456Z"}
{"ts":"2024-02-03T01:02:03.1234567Z"}
{"ts":"2024-02-03T01:02:03+02:00"}
{"ts":"2024-02-03"}
{"ts":"1582-10-10T00:00:00Z"}
{"ts":1}
{"b":true}
{"b":"true"}
{"b":1}
{"y":"2024-02-03"}
{"y":"2024-2-3"}
{"y":"2024-02-03T00:00:00"}
{"y":"1000-01-01"}
[{"id":1}]
null
{"id":1}/*x*/
{'id':1}
{id:1}
{"x":[1,2,],"id":1}
{"x":[-Infinity],"id":1}
{"x":[inf],"id":1}
{"x":{"y":[]},"id":1}
{"x":5.,"id":1}
""".strip().split("\n")


@pytest.mark.spark
def test_what_the_driver_reads_is_what_spark_reads(spark: SparkSession) -> None:
    schema = ", ".join(f"{field.name} {field.type}" for field in FIELDS)
    parsed = f"from_json(t, '{schema}, _corrupt string', map('columnNameOfCorruptRecord', '_corrupt'))"
    texts = [*HOSTILE, "", ' {"id": 7} ', '{"k":"a\tb"}', '{"id":1}\x00', '{"x": ' + "1" * 1100 + "}"]
    frame = spark.createDataFrame([(at, text) for at, text in enumerate(texts)], "at int, t string")
    truth = frame.selectExpr("at", f"{parsed} AS r").selectExpr("at", "r.*").orderBy("at").toArrow().to_pylist()
    taken = 0
    for text, expected in zip(texts, truth, strict=True):
        found = columns_of(pa.chunked_array([[text.encode()]], pa.binary()), FIELDS)
        if found is not None:
            taken += 1
            wanted = {field.name: expected[field.name] for field in FIELDS}
            assert expected["_corrupt"] is None and repr(found.to_pylist()[0]) == repr(wanted), text
    assert taken >= 20


def test_one_odd_value_leaves_all_to_spark(spark: SparkSession) -> None:
    plain = [json.dumps({"id": id, "k": "x"}).encode() for id in range(100)]
    found = columns_of(pa.chunked_array([plain, plain], pa.binary()), FIELDS)
    assert found is not None and found.column("id").to_pylist() == [*range(100), *range(100)]
    for odd in (None, b"", b"\xff{}", b'{"id":1}{"id":2}', b'{"id":"1"}', b'{"id":1\n}'):
        assert columns_of(pa.chunked_array([[*plain, odd]], pa.binary()), FIELDS) is None
    # What would be as many objects as there are values.
    assert columns_of(pa.chunked_array([[b'{"id":1}{"id":2}', b" "]], pa.binary()), FIELDS) is None
    assert columns_of(pa.chunked_array([[b'{"id":1', b',"k":"x"}']], pa.binary()), FIELDS) is None
