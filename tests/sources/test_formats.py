"""Formats besides CSV, JSON and Parquet, and compressed files: a stream has what Spark reads of them."""

from __future__ import annotations

import bz2
import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError
from anabranch.sources import paths
from anabranch.sources.files import FilesSource
from anabranch.types import Field


def rows(session: anabranch.Session, text: str) -> list[dict[str, Any]]:
    return session.sql(text).toArrow().to_pylist()


def compressed(name: Path, content: bytes) -> None:
    if name.suffix == ".zst":
        with pa.CompressedOutputStream(str(name), "zstd") as out:
            out.write(content)
    else:
        name.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress}[name.suffix](content))


@pytest.mark.spark
def test_streams_and_queries_read_what_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(20).selectExpr("id", "concat('t', id) AS t", "named_struct('a', id) AS s")
    frame.coalesce(1).write.orc(f"{tmp_path}/orc")
    frame.selectExpr("id * 2 AS id", "t").coalesce(1).write.mode("append").orc(f"{tmp_path}/orc")  # another shape
    frame.coalesce(1).write.option("rowTag", "row").xml(f"{tmp_path}/xml")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.log").write_text('one, "two\n\nthree\n')
    with anabranch.connect(tmp_path / "home", spark) as ab:
        schema = "id BIGINT, t STRING, s STRUCT<a: BIGINT>"
        ab.sql(f"CREATE STREAM o ({schema}) FROM orc('{tmp_path}/orc') ON SCHEMA CHANGE IGNORE")
        expected = spark.read.schema(schema).orc(f"{tmp_path}/orc").toArrow().to_pylist()
        found = rows(ab, "SELECT * FROM o")
        assert len(found) == 40 and sorted(map(str, found)) == sorted(map(str, expected))
        assert rows(ab, f"SELECT count(*) AS c FROM orc('{tmp_path}/orc')") == [{"c": 40}]
        ab.sql(f"CREATE STREAM x FROM xml('{tmp_path}/xml', rowTag => 'row', settle => '0')")
        (tmp_path / "xml" / "bad.xml").write_text("<rows><row><id>7</id><row><id>many</id></row></rows>")
        read = spark.read.option("rowTag", "row").xml(f"{tmp_path}/xml/part-*")
        assert rows(ab, "SELECT * FROM x WHERE t IS NOT NULL ORDER BY id") == read.orderBy("id").toArrow().to_pylist()
        assert rows(ab, "SELECT count(*) > 0 AS some FROM sys.bad_rows WHERE stream = 'x'") == [{"some": True}]
        read = spark.read.option("rowTag", "row").xml(f"{tmp_path}/xml/part-*").selectExpr("sum(s.a) AS s")
        query = f"SELECT sum(s.a) AS s FROM xml('{tmp_path}/xml/part-*', rowTag => 'row')"
        assert rows(ab, query) == read.toArrow().to_pylist()
        ab.sql(f"CREATE STREAM lines (line STRING) FROM text('{tmp_path}/text', settle => '0')")
        assert [row["line"] for row in rows(ab, "SELECT * FROM lines")] == ['one, "two', "", "three"]
        with (tmp_path / "text" / "a.log").open("a") as file:
            file.write("four\n")
        assert [row["line"] for row in rows(ab, "SELECT * FROM lines")][3:] == ["four"]
        assert rows(ab, f"SELECT count(*) AS c FROM '{tmp_path}/text/a.log' WHERE value = 'four'") == [{"c": 1}]
        for ending in ("gz", "bz2", *(() if pyspark.__version__ < "4.1" else ("zst",))):  # Spark 4.0 reads no zstd
            name = tmp_path / f"c.csv.{ending}"
            compressed(name, b'n,k\n1,a\n2,"b\nc"\n')
            ab.sql(f"CREATE STREAM {ending} (k STRING, n INT) FROM files('{name}', settle => '0')")
            assert sorted((row["k"], row["n"]) for row in rows(ab, f"SELECT * FROM {ending}")) == [
                ("a", 1),
                ("b\nc", 2),
            ]
            assert rows(ab, f"SELECT sum(n) AS n FROM '{name}'") == [{"n": 3}]
        for text, told in (
            (f"CREATE STREAM a FROM xml('{tmp_path}/xml')", "xml needs a rowTag"),
            (f"CREATE STREAM a (x INT) FROM files('{tmp_path}', format => 'word')", "there is no format word"),
        ):
            with pytest.raises(AnabranchError, match=told):
                ab.sql(text)


def test_an_orc_file_is_whole_with_its_postscript(tmp_path: Path) -> None:
    from pyarrow import orc

    orc.write_table(pa.table({"n": [1, 2]}), tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "x.orc").write_bytes(whole[:-1])
    now = [os.stat(tmp_path / "x.orc").st_mtime]
    source = FilesSource(
        {"path": str(tmp_path / "*.orc")},
        lambda: pytest.fail("no Spark here"),
        (Field("n", "int"),),
        now=lambda: int(now[0] * 1e6),
        elapsed=lambda: now[0],
    )
    assert source.next(None, None) is None and source.waits
    now[0] += 2
    stretch = source.next(None, None)
    assert stretch is not None and [row.reason[:25] for row in stretch.bad] == ["it is not a whole ORC fil"]
    with (tmp_path / "x.orc").open("ab") as file:
        file.write(whole[-1:])
    stretch = source.next(stretch.position, None)
    assert stretch is not None and stretch.captured[0][1] == len(whole)


def test_names_tell_formats() -> None:
    found = [paths.format_of(name) for name in ("a.orc", "a.txt.gz", "b.log", "c.XML", "d.csv.zst")]
    assert found == ["orc", "text", "text", "xml", "csv"]
