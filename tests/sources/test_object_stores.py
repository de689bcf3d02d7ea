"""Files of an S3 server, in streams and queries, by a Spark of its own that has the jars; and without them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError
from sources.s3_server import KEY, SECRET, at_hand, s3, spark_jars


@pytest.mark.spark
def test_a_store_without_its_package_says_which_one(spark: SparkSession, tmp_path: Path) -> None:
    with anabranch.connect(tmp_path / "home", spark) as ab:
        for path, package in (
            ("s3://tests/in/*.csv", "org.apache.hadoop:hadoop-aws:"),
            ("s3a://tests/in/*.csv", "org.apache.hadoop:hadoop-aws:"),
            ("gs://b/in/*.csv", "gcs-connector"),
            ("abfss://c@a.dfs.core.windows.net/in/*.csv", "org.apache.hadoop:hadoop-azure:"),
        ):
            with pytest.raises(AnabranchError, match="Spark has no file system for") as caught:
                ab.sql(f"SELECT * FROM csv('{path}')")
            assert package in str(caught.value.hint)
            with pytest.raises(AnabranchError, match=r"(?s)Spark has no file system for.*\^"):
                ab.sql(f"CREATE STREAM s (k INT) FROM csv('{path}')")  # nor is it taken for a place without files
        assert ab.sql("SHOW STREAMS").fetchall() == []
        with pytest.raises(AnabranchError, match="must not have keys in it") as caught:
            ab.sql("SELECT * FROM csv('s3a://key:hidden@b/in')")
        for statement in ("CREATE STREAM s (k INT) FROM files('foo://b/*.csv')", "SELECT * FROM 'foo://b/a.csv'"):
            with pytest.raises(AnabranchError, match="files of foo:// cannot be read"):
                ab.sql(statement)


@pytest.mark.spark
@pytest.mark.skipif(not at_hand(), reason="NO S3: its jars were not fetched yet; the slow test does")
def test_streams_and_queries_over_s3(server: str, tmp_path: Path) -> None:
    _with_spark(server, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(at_hand(), reason="the jars are there: the short test has run")
def test_streams_and_queries_over_s3_with_jars_fetched(server: str, tmp_path: Path) -> None:
    _with_spark(server, tmp_path)


@pytest.fixture
def server() -> Iterator[str]:
    with s3() as endpoint:
        yield endpoint


def _with_spark(endpoint: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-west-1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    command = [sys.executable, __file__, str(spark_jars()), endpoint, str(tmp_path / "home")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    written = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert written and not [path for path in written if SECRET.encode() in path.read_bytes()]


def rows(session: anabranch.Session, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(text).toArrow().to_pylist()]


def put(spark: SparkSession, name: str, content: bytes) -> None:
    """An object, written by Hadoop."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(name)
    out = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).create(path, True)
    out.write(bytearray(content))
    out.close()


def main(jars: str, endpoint: str, home: str) -> None:
    conf = {
        "spark.jars": ",".join(str(path) for path in Path(jars).glob("*.jar")),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.attempts.maximum": "2",
        "spark.hadoop.fs.s3a.retry.limit": "2",
        "spark.ui.enabled": "false",
    }
    for times in range(2):
        with anabranch.connect(home, master="local[2]", conf=conf) as ab:
            if times == 0:
                put(ab.spark, "s3a://tests/in/a.csv", b'k,n\na,1\n"b\nb",2\n')
                put(ab.spark, "s3a://tests/in/.hidden.csv", b"k,n\nz,9\n")
                put(
                    ab.spark, "s3a://tests/odd; isDirectory=true; length=1; modification_time=1;/x y.csv", b"k,n\nc,3\n"
                )
                for part in range(2):
                    out, ids = io.BytesIO(), range(part * 25, part * 25 + 25)
                    parquet.write_table(pa.table({"id": ids, "k": [each % 3 for each in ids]}), out)
                    put(ab.spark, f"s3a://tests/p/{part}.parquet", out.getvalue())
                assert rows(ab, "SELECT k, n FROM csv('s3://tests/in') ORDER BY n") == [("a", 1), ("b\nb", 2)]
                assert rows(ab, "SELECT k, n FROM csv('s3a://tests/odd*/*.csv')") == [("c", 3)]
                assert rows(ab, "SELECT count(*), sum(id) FROM 's3a://tests/p/*.parquet'") == [(50, 1225)]
                ab.sql("CREATE STREAM s (k STRING, n INT) FROM files('s3://tests/in/*.csv')")
                ab.sql("CREATE STREAM p FROM parquet('s3a://tests/p')")
                ab.sql("CREATE VIEW v AS SELECT k, sum(n) AS n FROM s GROUP BY k")
                ab.sql("CREATE VIEW w AS SELECT k, count(*) AS c FROM p GROUP BY k")
                assert rows(ab, "SELECT * FROM v ORDER BY k") == [("a", 1), ("b\nb", 2)]
                read = ab.spark.read.parquet("s3a://tests/p").groupBy("k").count().orderBy("k").collect()
                assert rows(ab, "SELECT * FROM w ORDER BY k") == [tuple(row) for row in read]
                continue
            put(ab.spark, "s3a://tests/in/b.csv", b"n,k\n5,a\nmany,c\n")
            assert rows(ab, "SELECT * FROM v ORDER BY k") == [("a", 6), ("b\nb", 2)]
            assert rows(ab, "SELECT source, raw FROM sys.bad_rows") == [("s3a://tests/in/b.csv", "many,c")]
            assert rows(ab, "SELECT count(*) FROM s") == [(3,)]
            put(ab.spark, "s3a://tests/in/a.csv", b"k,n\nq,100\n")
            assert rows(ab, "SELECT * FROM v ORDER BY k") == [("a", 6), ("b\nb", 2)]
            assert rows(ab, "SELECT count(*) FROM sys.bad_rows WHERE reason LIKE '%changed after it was read%'") == [
                (1,)
            ]
            try:
                ab.sql("SELECT max(n) FROM s").toArrow()
                raise AssertionError("the rows that it had are lost")
            except AnabranchError as error:
                assert "the rows that it had are lost" in str(error)
            try:
                ab.sql("SELECT * FROM csv('s3a://no-such-bucket/x.csv')").toArrow()
                raise AssertionError("there is no such bucket")
            except AnabranchError as error:
                assert "no-such-bucket" in str(error) and "\tat " not in str(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
