"""Files of Avro as streams and in queries: what was written is read, whatever the schemas of the files."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError

fastavro = pytest.importorskip("fastavro", reason="NO AVRO TESTS: pip install 'anabranch[avro]'")
pytestmark = pytest.mark.spark

OPTIONAL = [
    ("k", "string"),
    ("n", "int"),
    ("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("tags", {"type": "array", "items": "string"}),
    ("place", {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]}),
]
TYPES = "k STRING, n INT, d DECIMAL(9,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>, place STRUCT<x: DOUBLE>"


def schema(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Row",
        "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields],
    }


def row(n: int) -> dict[str, Any]:
    return {
        "k": f"ü{n % 3}", "n": n, "d": Decimal(n) / 4 if n % 2 else None, "day": date(2026, 1, 1 + n % 28),
        "at": datetime(2026, 1, 1, 0, 0, n % 60, 5000, timezone.utc), "tags": [str(n)] * (n % 3), "place": {"x": n / 8},
    }  # fmt: skip


def write(path: Path, rows: list[dict[str, Any]], codec: str = "null") -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        fastavro.writer(file, schema(OPTIONAL), rows, codec=codec)


def texts(found: Any) -> Counter[str]:
    return Counter(map(str, found.toArrow().to_pylist()))


def test_files_are_read_in_queries_and_streams(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.avro", [row(n) for n in range(30)], codec="deflate")
    write(folder / "b.avro", [row(n) for n in range(30, 34)])
    expected = spark.createDataFrame([row(n) for n in range(34)], TYPES)
    with anabranch.connect(tmp_path / "home", spark) as ab:
        assert texts(ab.sql(f"SELECT * FROM '{folder}/*.avro'")) == texts(expected)
        assert texts(ab.sql(f"SELECT sum(d) AS s FROM avro('{folder}')")) == texts(expected.selectExpr("sum(d) AS s"))
        # Another file has columns in another order, a wider type, one that is new, one that is none, and one missing.
        ab.sql(f"CREATE STREAM s FROM avro('{folder}', settle => '0') ON SCHEMA CHANGE IGNORE")
        assert texts(ab.sql("SELECT * FROM s")) == texts(expected)
        other = [("other", "long"), ("n", "long"), ("union", "string"), ("k", "string")]
        mixed = schema(other)
        mixed["fields"][2]["type"] = ["null", "string", "long"]
        with (folder / "c.avro").open("wb") as file:
            fastavro.writer(file, mixed, [{"other": 1, "n": 99, "union": 7, "k": "c"}])
        more = spark.createDataFrame([{"k": "c", "n": 99}], TYPES)
        assert texts(ab.sql("SELECT * FROM s")) == texts(expected.union(more))
        assert [r["source"] for r in ab.sql("SELECT source FROM sys.bad_rows").toArrow().to_pylist()] == []
        ab.sql(f"CREATE STREAM declared (n STRING, k STRING) FROM avro('{folder}/b.avro', settle => '0')")
        numbers = [{"n": str(n), "k": f"ü{n % 3}"} for n in range(30, 34)]
        assert texts(ab.sql("SELECT * FROM declared")) == Counter(map(str, numbers))
        with pytest.raises(AnabranchError, match="a union of several types cannot be a column"):
            ab.sql(f"SELECT * FROM '{folder}/c.avro'").toArrow()


def test_what_is_no_whole_file_is_told(spark: SparkSession, tmp_path: Path) -> None:
    whole = tmp_path / "whole.avro"
    write(whole, [row(n) for n in range(3000)])
    (tmp_path / "half.avro").write_bytes(whole.read_bytes()[:-100])
    (tmp_path / "none.avro").write_bytes(b"Obj\x01 nothing of the kind")
    with anabranch.connect(tmp_path / "home", spark) as ab:
        with pytest.raises(AnabranchError, match=r"half\.avro is not a whole Avro file"):
            ab.sql(f"SELECT count(k) FROM '{tmp_path}/half.avro'").toArrow()
        with pytest.raises(AnabranchError, match=r"none\.avro is not a readable Avro file"):
            ab.sql(f"SELECT * FROM '{tmp_path}/none.avro'").toArrow()
        with pytest.raises(AnabranchError, match="Avro files of a store are not read"):
            ab.sql("CREATE STREAM a FROM avro('s3://bucket/a.avro')")
