"""Sources of Structured Streaming: every micro-batch is in one run, whoever forgot that it was done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from anabranch.errors import AnabranchError, SqlError
from anabranch.sources import spark as spark_source
from anabranch.testing import Harness

pytestmark = pytest.mark.spark


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr(spark_source, "POLL", 0.0)
    with Harness(tmp_path / "home", spark) as harness:
        yield harness


def write(folder: Path, name: str, *numbers: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.tmp").write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    (folder / f"{name}.tmp").rename(folder / f"{name}.json")


def test_batches_become_runs_once_each(home: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in"
    write(folder, "a", 1, 2)
    write(folder, "b", 3)
    where = f"spark(format => 'json', path => '{folder}', maxFilesPerTrigger => 1)"
    home.sql(f"CREATE STREAM s (n INT) FROM {where}; CREATE VIEW v AS SELECT count(*) AS c, sum(n) AS n FROM s")
    core = home.session._core
    source = core.source(core.catalog().stream("s"))
    assert source is not None and source.next(None, None) is not None  # Spark's checkpoint has passed both batches
    home.reopen()
    assert home.query("SELECT * FROM v") == [(3, 6)]
    checkpoint = home.session.home / "sources" / "s" / "checkpoint"
    for name in ("1", ".1.crc"):  # Spark was killed before it noted that a batch is done
        (checkpoint / "commits" / name).unlink()
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # we, before we took away what was staged
    write(folder, "c", 10)
    home.reopen()
    assert home.query("SELECT * FROM v") == [(4, 16)]
    monkeypatch.undo()
    home.reopen()
    assert home.query("SELECT * FROM v") == [(4, 16)]
    assert sorted(home.query("SELECT n FROM s")) == [(1,), (2,), (3,), (10,)]
    runs = home.query("SELECT count(*) FROM sys.runs WHERE rows > 0")
    assert runs == [(3,)]
    home.reopen()
    checkpoint.rename(tmp_path / "elsewhere")
    with pytest.raises(AnabranchError, match=r"checkpoint of json .* is gone"):
        home.query("SELECT * FROM v")
    (tmp_path / "elsewhere").rename(checkpoint)
    home.sql("DROP VIEW v; DROP STREAM s")
    assert not checkpoint.exists()


@pytest.mark.slow
def test_a_python_data_source_is_streamed_by_its_name(home: Harness) -> None:
    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
            end = min(start["at"] + 3, 7)
            return iter([(n,) for n in range(start["at"], end)]), {"at": end}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
            return iter([(n,) for n in range(start["at"], end["at"])])

    class Counting(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counting_for_tests"

        def schema(self) -> str:
            return "n int"

        def simpleStreamReader(self, schema: Any) -> Reader:
            return Reader()

    home.session.spark.dataSource.register(Counting)
    home.sql("CREATE STREAM s FROM spark(format => 'counting_for_tests')")
    home.session.run("", until_idle=True)
    assert sorted(home.query("SELECT n FROM s")) == [(n,) for n in range(7)]
    for text, message in (
        ("CREATE STREAM x FROM spark(format => 'nowhere')", "Spark cannot stream nowhere"),
        ("CREATE STREAM x FROM spark(format => 'json', path => '/')", "Spark cannot stream json"),
        ("CREATE STREAM x FROM spark(format => 'rate', checkpointLocation => '/x')", "remove checkpointLocation"),
    ):
        with pytest.raises(SqlError, match=message):
            home.sql(text)
