"""A text file is cut at its lines where runs take few rows: any cut gives the rows of the whole file, each once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch
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
