"""Runs of CSV and JSON files that Spark's tasks compute with DuckDB: the answers of Spark over the texts themselves."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.engine import kernels
from anabranch.testing import Harness
from engine.test_kernels import places
from seeds import soaked

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, k STRING, v INT, x DOUBLE, ts TIMESTAMP"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
WORDS = ["a", "b", "c,d", 'say "hi"', "ä", "", " ", "{", "x" * 50]
TUMBLE = "TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
VIEWS = {
    "every": "SELECT k, count(*) AS c, sum(v) AS s, max(x) AS x, min(ts) AS t FROM r GROUP BY k",
    "minutes": f"SELECT window_start, k, count(*) AS c, sum(id) AS s FROM {TUMBLE} GROUP BY window_start, k"
    " EMIT ON WINDOW CLOSE",
    "plain": "SELECT id, k, v + 1 AS z, ts FROM r WHERE v > 20 OR k IS NULL EMIT CHANGES",
}
NUMBERS = (
    "CREATE VIEW {} AS SELECT window_start AS n, max(id) AS id FROM TUMBLE(TABLE r, DESCRIPTOR(row_num), 1 ROWS)"
    " GROUP BY window_start, window_end"
)
#: What makes a file one that Spark reads.
ODD = {
    "csv": [
        '9001,"two\nlines",5,,2026-01-01 00:00:30\n',
        "x,y,z,1,2\n",
        "9002,b,1,,\n",
        '9003,5" disk,1,,2026-01-01\n',
    ],
    "json": ["{}\n", '{"id": "x"}\n', "no\n", '{"id": 9004, "v": 1.0, "ts": "2026-01-01"}\n'],
}


def text(format: str, rows: list[tuple[Any, ...]], chance: random.Random, odd: str = "") -> bytes:
    names = ["id", "k", "v", "x", "ts"]
    if format == "json":
        objects = [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
        return ("".join(json.dumps(each) + "\n" for each in objects) + odd).encode()
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer.writerow(names)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return (out.getvalue() + odd).encode()


def random_rows(chance: random.Random, first: int, count: int) -> list[tuple[Any, ...]]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    return [
        (
            first + at,
            maybe(chance.choice(WORDS)),
            maybe(chance.randrange(50)),
            maybe(chance.randrange(1000) / 8),
            (START + timedelta(seconds=chance.randrange(600))).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        for at in range(count)
    ]


def answers(home: Harness, folder: Path, format: str, files: list[bytes], ending: str) -> dict[str, Any]:
    """What a home has of files that come in two runs."""
    folder.mkdir(exist_ok=True)
    home.sql(
        f"CREATE STREAM r ({COLUMNS}) WATERMARK FOR ts AS ts"
        f" FROM files(path => '{folder}/*', format => '{format}', settle => '0s') KEEP ALL"
    )
    home.sql(f"SET anabranch.task_bytes = 1; {NUMBERS.format('numbers')}")
    home.sql("".join(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items()))
    for at, content in enumerate(files):
        hidden = folder / f".{at}"
        hidden.write_bytes(gzip.compress(content) if ending else content)
        hidden.rename(folder / f"{at}.{format}{ending}")
        if at % 2:
            home.query("SELECT count(*) FROM every")
    home.advance("r")
    found = {name: home.table(name) for name in (*VIEWS, "numbers")}
    home.sql(NUMBERS.format("numbers_kept"))
    found["numbers_kept"] = home.table("numbers_kept")
    found["bad"] = home.query("SELECT source, offset, reason, raw FROM sys.bad_rows ORDER BY source, raw")
    found["runs"] = home.query(
        "SELECT rows, bad_rows, late_rows, low, high FROM sys.runs WHERE rows > 0 ORDER BY version"
    )
    return found


def check(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, format: str) -> None:
    """With kernels and without, the same answers, numbers, bad rows and figures; and those of Spark over the texts."""
    monkeypatch.setattr(kernels, "_LEAST_LINES", 64)
    chance = random.Random(seed)
    ending = chance.choice(["", "", ".gz"])
    files, first, odd = [], 0, []
    for at in range(4):
        count = chance.choice([1, 8, 30])
        odd.append(chance.choice(ODD[format]) if at > 1 and chance.random() < 0.4 else "")
        files.append(text(format, random_rows(chance, first, count), chance, odd[-1]))
        first += count
    found = {}
    for mode in ("on", "off"):
        with Harness(tmp_path / mode, spark, backend="spark") as home:
            home.sql(f"SET anabranch.kernels = {mode}")
            found[mode] = answers(home, tmp_path / "in", format, files, ending)
            where = places(home)
            if mode == "off":
                assert where == ["spark", "spark"]
                continue
            assert where == ["kernel", "spark" if any(odd[2:]) else "kernel"]
            raw = spark.read.schema(COLUMNS).option("mode", "DROPMALFORMED").option("multiLine", format == "csv")
            reader = raw.option("header", True).option("escape", '"').csv if format == "csv" else raw.json
            if not any(odd):
                given = [tuple(row) for row in reader(str(tmp_path / "in")).collect()]
                for name, query in VIEWS.items():
                    wanted = home.batch(query.partition(" EMIT")[0], r=given)
                    assert repr(found[mode][name]) == repr(wanted), name
        for path in (tmp_path / "in").iterdir():
            path.unlink()
    assert {name: repr(each) for name, each in found["on"].items()} == {
        name: repr(each) for name, each in found["off"].items()
    }
    if not any(odd):
        assert found["on"]["numbers"] == found["on"]["numbers_kept"] == [(each, each) for each in range(first)]


@pytest.mark.parametrize(("seed", "format"), [(1, "csv"), (2, "json")])
def test_kernels_answer_as_spark_does(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, format: str
) -> None:
    check(tmp_path, spark, monkeypatch, seed, format)


@pytest.mark.parametrize("seed", soaked(*range(200, 216)))
def test_more_kernels_answer_as_spark_does(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    check(tmp_path, spark, monkeypatch, seed, "csv" if seed % 2 else "json")
