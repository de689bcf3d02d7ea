"""Capture functions: the rows of a generator, each once, for any cut into runs and whatever fails in between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError, SourceError, SqlError
from anabranch.testing import Harness, crashing
from sources import capturing

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (WATERMARK FOR ts AS ts - INTERVAL 60 SECONDS) FROM numbers(upto => 23, step => 2)"
VIEW = "CREATE VIEW v AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k"


def answer(upto: int) -> list[tuple[Any, ...]]:
    """In plain Python."""
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for n, k, _ in map(capturing.row, range(upto)):
        count[k] += 1
        total[k] += n
    return sorted((k, count[k], total[k]) for k in count)


def rows(ab: anabranch.Session, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(each.values()) for each in ab.sql(f"SELECT * FROM {name}").toArrow().to_pylist())


def test_any_cut_and_any_failure_give_the_same_answer(spark: SparkSession, tmp_path: Path) -> None:
    for seed in (1, 2):
        chance = random.Random(seed)
        capturing.FAILURES[:] = sorted(chance.sample(range(0, 22, 2), 3))
        with anabranch.connect(tmp_path / str(seed), spark, run_rows=chance.choice([1, 5])) as ab:
            ab.sql(f"{STREAM}; {VIEW}")
        for _ in range(4):  # it fails three times, and goes on where the last run ended
            with anabranch.connect(tmp_path / str(seed), spark, run_rows=chance.choice([3, 7, 100])) as ab:
                try:
                    ab.run("", until_idle=True)
                except SourceError as error:
                    assert "capturing:numbers failed: ConnectionError: gone" in error.message
        assert not capturing.FAILURES
        with anabranch.connect(tmp_path / str(seed), spark) as ab:
            assert rows(ab, "v") == answer(23)
            ab.sql(VIEW.replace("VIEW v", "VIEW later"))  # of rows that the stream keeps
            assert rows(ab, "later") == answer(23)
            assert len(rows(ab, "s")) == 23


@pytest.mark.slow
@pytest.mark.crash
def test_a_process_that_is_killed_is_gone_on_after(spark: SparkSession, tmp_path: Path) -> None:
    for point in ("before-job", "after-files:2", "after-record:3", "never"):
        crashing(point, _feed, str(tmp_path / "home"))
    with anabranch.connect(tmp_path / "home", spark) as ab:
        assert rows(ab, "v") == answer(23)


def _feed(home: str) -> None:
    with anabranch.connect(home, master="local[1]", run_rows=4) as ab:
        ab.run(f"{STREAM}; {VIEW}", until_idle=True)


@pytest.fixture
def home(spark: SparkSession) -> Iterator[Harness]:
    with Harness(spark=spark) as harness:
        yield harness


def test_rows_that_do_not_fit_are_bad_rows_and_wrong_functions_are_told(home: Harness) -> None:
    home.sql("CREATE STREAM o FROM odd(); CREATE VIEW v AS SELECT * FROM o")
    assert sorted(home.query("SELECT * FROM v"), key=str) == [(1, None), (2, "x"), (3, "y")]
    bad = sorted(row[0] for row in home.query("SELECT reason FROM sys.bad_rows"))
    assert [text.removeprefix("it does not fit the columns: ") for text in bad] == [
        "4.5 is no INT", "it has 1 values, and there are 2 columns", "there is no column c",
    ]  # fmt: skip
    for number, (what, message) in enumerate(
        {
            "no position": "not rows and the position after them",
            "no json": "which is not plain JSON",
            "other columns": "has not the columns of the stream",
        }.items()
    ):
        home.sql(f"CREATE STREAM w{number} FROM odd(what => '{what}')")
        with pytest.raises(AnabranchError, match=message):
            home.query(f"SELECT * FROM w{number}")
    home.sql("CREATE STREAM p (n BIGINT) FROM capture(function => 'sources.capturing:plain')")
    assert sorted(home.query("SELECT n FROM p")) == [(0,), (1,), (2,)]
    (made,) = home.query("SHOW CREATE STREAM o")
    assert "capture(function => 'sources.capturing:odd')" in made[0]
    for text, message in (
        ("CREATE STREAM x FROM numbers(up => 3)", "cannot be called like this"),
        ("CREATE STREAM x FROM odd() KEEP NOTHING", "cannot be read again"),
        ("CREATE STREAM x FROM capture(function => 'os.path')", "does not name a capture function"),
        ("CREATE STREAM x FROM capture(function => 'sources.capturing:none')", "cannot be imported"),
        ("CREATE STREAM x FROM capture(function => 'sources.capturing:plain')", "capturing:plain are not known"),
    ):
        with pytest.raises(SqlError, match=message):
            home.sql(text)
