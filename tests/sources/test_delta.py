"""A Delta table as a stream: each version once, compaction brings nothing, and what goes is told or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError


def rows(session: anabranch.Session, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(text).toArrow().to_pylist()]


def table(path: Path) -> list[tuple[Any, ...]]:
    found = pa.table(DeltaTable(str(path)).to_pyarrow_table())
    return sorted(tuple(row.values()) for row in found.select(["k", "n"]).to_pylist())


@pytest.mark.spark
def test_commits_of_a_table_are_rows_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    plain, fed = tmp_path / "plain", tmp_path / "it's fed"

    def append(path: Path, first: int, **options: Any) -> None:
        some = pa.table({"k": [f"k{n % 3}" for n in range(first, first + 5)], "n": list(range(first, first + 5))})
        write_deltalake(str(path), some, mode="append", **options)

    append(plain, 0, partition_by=["k"])
    append(fed, 0, configuration={"delta.enableChangeDataFeed": "true"})
    named = str(fed).replace("'", "''")
    for times in range(2):
        with anabranch.connect(tmp_path / "home", spark) as ab:
            if times == 0:
                ab.sql(
                    f"CREATE STREAM p FROM delta('{plain}'); CREATE VIEW v AS SELECT k, sum(n) AS n FROM p GROUP BY k"
                )
                ab.sql(f"CREATE STREAM c FROM delta('{named}', changes => true)")
                ab.sql("CREATE VIEW now AS SELECT k, n FROM NET(c, diff)")
                assert sorted(rows(ab, "SELECT k, n FROM p")) == table(plain)
                assert sorted(rows(ab, "SELECT k, n FROM now")) == table(fed)
            append(plain, 10 + times * 5)
            append(plain, 20 + times * 5)
            DeltaTable(str(plain)).optimize.compact()
            append(fed, 10 + times * 5)
            DeltaTable(str(fed)).update({"n": "n + 100"}, predicate=f"n = {10 + times * 5}")
            DeltaTable(str(fed)).delete(f"k = 'k{times}'")
            DeltaTable(str(fed)).optimize.compact()
            assert sorted(rows(ab, "SELECT k, n FROM p")) == table(plain)
            assert sorted(rows(ab, "SELECT k, n FROM now")) == table(fed)
            totals = spark.createDataFrame(table(plain), "k STRING, n BIGINT").groupBy("k").sum("n").collect()
            assert sorted(rows(ab, "SELECT k, n FROM v")) == sorted(tuple(row) for row in totals)
    with anabranch.connect(tmp_path / "home", spark) as ab:
        DeltaTable(str(plain)).delete("n = 11")
        version = DeltaTable(str(plain)).version()
        with pytest.raises(AnabranchError, match=f"version {version} of .* removes rows"):
            rows(ab, "SELECT * FROM p")
        with pytest.raises(AnabranchError, match="has no change data feed"):
            ab.sql(f"CREATE STREAM x FROM delta('{plain}', changes => true)")
        with pytest.raises(AnabranchError, match="is not a readable Delta table"):
            ab.sql(f"CREATE STREAM x FROM delta('{tmp_path}/none')")
