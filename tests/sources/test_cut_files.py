"""A text file is cut at its lines where runs take few rows: any cut gives the rows of the whole file, each once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.sources import row_groups
from anabranch.sources.parts import line_end

CATS = [
    ("Buster", "fluffy"), ("Tiger", "work of art"), ("Lucy", "fat"), ("Pepper", "work of art"), ("Tiger", "amazing"),
    ("Molly", "the best"), ("Precious", "lovely"), ("Nala", "cute"), ("Misty", "amazing"), ("Tiger", "cute"),
]  # fmt: skip


def test_lines_are_counted_as_csv_has_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\n"b\nc"\n"d""\n"\r\n\ne')
    name, size = str(path), path.stat().st_size
    assert [line_end(name, 0, size, count, b'"') for count in range(1, 6)] == [2, 8, 16, 17, size]
    assert [line_end(name, 2, size, count, None) for count in (1, 2, 9)] == [5, 8, size]
    path.write_bytes(b'a\n"b\nc\nd\n')  # a quote that is not closed: nobody knows where a line ends
    assert line_end(str(path), 0, 9, 2, b'"') == 9


@pytest.mark.spark
def test_any_cut_of_files_gives_the_rows_of_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(5)
    texts = ["x", "two\nlines", 'a "quote"', "", "é, ü"]
    rows = [(number, chance.choice(texts)) for number in range(13)]
    (tmp_path / "csv").mkdir()
    (tmp_path / "json").mkdir()
    for name, some in (("a", rows[:9]), ("b", rows[9:])):
        quoted = ['{},"{}"'.format(n, text.replace('"', '""')) for n, text in some]
        (tmp_path / "csv" / f"{name}.csv").write_text("\n".join(["n,t", *quoted]) + "\n" * (name == "a"))
        lines = (json.dumps({"n": n, "t": text}) + "\n" for n, text in some)
        (tmp_path / "json" / f"{name}.json").write_text("".join(lines))
    raw = spark.read.option("header", True).option("multiLine", True).option("escape", '"').csv(str(tmp_path / "csv"))
    expected = sorted((int(row["n"]), row["t"] or "") for row in raw.collect())
    for run_rows in (2, 5):
        with anabranch.connect(tmp_path / f"home{run_rows}", spark, run_rows=run_rows) as ab:
            for format in ("csv", "json"):
                ab.sql(f"CREATE STREAM {format} (n INT, t STRING) FROM {format}('{tmp_path}/{format}', settle => '0')")
            ab.run("", until_idle=True)
        with anabranch.connect(tmp_path / f"home{run_rows}", spark, run_rows=run_rows) as ab:
            for format in ("csv", "json"):
                found = ab.sql(f"SELECT n, coalesce(t, '') AS t FROM {format}").toArrow().to_pylist()
                assert sorted((row["n"], row["t"]) for row in found) == expected
            runs = ab.sql("SELECT count(*) AS c, max(rows) AS m FROM sys.runs WHERE rows > 0").toArrow().to_pylist()
            assert runs[0]["m"] <= run_rows and runs[0]["c"] >= 2 * 13 // run_rows


@pytest.mark.spark
def test_cats_are_counted_one_by_one_inside_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    lines = [f"{name},{text}" for name, text in CATS]
    (tmp_path / "cats.csv").write_text("\n".join(["name,description", *lines]) + "\n")
    with anabranch.connect(None, spark, run_rows=1) as ab:
        ab.sql(f"CREATE STREAM cats (name STRING, description STRING) FROM csv('{tmp_path}/cats.csv', settle => '0')")
        query = "SELECT c.description, count(*) AS n FROM cats c GROUP BY c.description TRIGGER COUNTING 1"
        (result,) = ab.execute(query, live=True)
        changes = [row for batch in result.batches() for row in batch.changes.to_pylist()]
    told = [f"{'+' if row['_diff'] > 0 else '-'}{row['n']} {row['description']}" for row in changes]
    assert told == [
        "+1 fluffy", "+1 work of art", "+1 fat", "-1 work of art", "+2 work of art", "+1 amazing", "+1 the best",
        "+1 lovely", "+1 cute", "-1 amazing", "+2 amazing", "-1 cute", "+2 cute",
    ]  # fmt: skip


@pytest.mark.spark
def test_parquet_is_cut_by_groups_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Runs and restarts within a file; what is read again is what was read; and some are not cut."""
    (tmp_path / "in").mkdir()
    rows = pa.table(
        {
            "n": range(100),
            "t": [None if n % 7 == 0 else f"t{n}" for n in range(100)],
            "at": pa.array([n * 1_000_003 for n in range(100)], pa.timestamp("us", tz="UTC")),
            "many": [[{"a": n, "b": None}] * (n % 3) for n in range(100)],
        }
    )
    parquet.write_table(rows.slice(0, 70), tmp_path / "in" / "a.parquet", row_group_size=10)
    parquet.write_table(rows.slice(70), tmp_path / "in" / "b.parquet", row_group_size=8)
    expected = spark.read.parquet(f"{tmp_path}/in").orderBy("n").toArrow().to_pylist()
    for times in range(2):
        with anabranch.connect(tmp_path / "home", spark, run_rows=20) as ab:
            if not times:
                ab.sql(f"CREATE STREAM s FROM parquet('{tmp_path}/in')")
                ab.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(n) AS n, sum(size(many)) AS m FROM s")
                ab.run("", on_run=lambda run: ab.stop.set() if run.run == 1 else None)
                continue
            assert ab.sql("SELECT * FROM v").toArrow().to_pylist() == [{"c": 100, "n": 4950, "m": 99}]
            assert ab.sql("SELECT * FROM s ORDER BY n").toArrow().to_pylist() == expected
            runs = ab.sql("SELECT rows FROM sys.runs WHERE rows > 0 ORDER BY version").toArrow().to_pylist()
            assert [run["rows"] for run in runs] == [20, 20, 20, 10 + 8, 16, 6]
            ab.sql("CREATE VIEW later AS SELECT max(at) AS at, count(t) AS t FROM s")
            later = ab.sql("SELECT * FROM later").toArrow().to_pylist()
            assert later == [{"at": rows["at"][99].as_py(), "t": 100 - rows["t"].null_count}]
    old = pa.table({"at": pa.array([1, 2], pa.timestamp("ns"))})
    parquet.write_table(old, tmp_path / "old.parquet", row_group_size=1, use_deprecated_int96_timestamps=True)
    assert row_groups.starts(str(tmp_path / "old.parquet")) == {}
    (tmp_path / "odd.parquet").write_bytes(b"PAR1" + b"?" * 50 + b"PAR1")
    assert row_groups.starts(str(tmp_path / "odd.parquet")) == {}


@pytest.mark.spark
def test_runs_take_a_time_and_not_all_there_is(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("".join(f"{number}\n" for number in range(250_000)))
    with anabranch.connect(tmp_path / "home", spark) as ab:
        ab.sql(f"CREATE STREAM s (n INT) FROM csv('{tmp_path}/n.csv', settle => '0')")
        ab.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(n) AS n FROM s")
        taken: list[int] = []
        ab.run("", until_idle=True, run_time=0.25, on_run=lambda run: taken.append(run.rows))
        assert taken[0] == 100_000 and len(taken) > 1 and sum(taken) == 250_000
        assert ab.sql("SELECT * FROM v").toArrow().to_pylist() == [{"c": 250_000, "n": 250_000 * 249_999 // 2}]
        with pytest.raises(anabranch.AnabranchError, match="takes more than 0 seconds"):
            ab.run("", run_time=0)
