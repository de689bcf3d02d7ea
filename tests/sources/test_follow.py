"""A file that is followed: every ended line is a row once, over rotations and restarts; what is lost is told."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError
from anabranch.sources.follow import FollowSource
from anabranch.sources.registry import Opening
from anabranch.types import Field

SECOND = 1_000_000


class Tail:
    """A source with a clock of its own, opened anew at every look, as after a crash."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.position, self.ahead = folder, folder / "app.log", None, 0
        self.rows: list[str] = []
        self.told: list[str] = []

    def look(self, max_rows: int | None = None, *, commit: bool = True) -> bool:
        import time

        source = FollowSource(
            Opening(
                options={"path": str(self.log), "format": "text"},
                fields=(Field("line", "string"),),
                spark=lambda: pytest.fail("no Spark here"),
                now=lambda: time.time_ns() // 1000 + self.ahead,
                scratch=lambda: self.folder.parent,
                folder=lambda: self.folder.parent,
            )
        )
        stretch = source.next(self.position, max_rows)
        if stretch is None:
            return source.waits
        assert source._read is not None
        if commit:
            copy = source._read[1]
            self.rows += [] if copy is None else Path(copy.name).read_text().splitlines()
            self.told += [row.reason for row in stretch.bad]
            self.position = stretch.position
        source.committed(stretch)
        return True

    def all(self, max_rows: int | None = None) -> None:
        self.ahead += 10 * SECOND
        while self.look(max_rows):
            pass

    def write(self, text: str, mode: str = "a") -> None:
        with self.log.open(mode) as file:
            file.write(text)


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    (tmp_path / "in").mkdir()
    return Tail(tmp_path / "in")


def test_lines_come_when_they_are_ended(tail: Tail) -> None:
    tail.all()
    tail.write("a\nb\nhalf")
    tail.all(max_rows=1)
    assert tail.rows == ["a", "b"]
    tail.write(" done\n")
    tail.look(commit=False)  # a run that was lost is read again
    tail.all()
    assert tail.rows == ["a", "b", "half done"] and tail.told == []


def test_the_rest_of_a_file_that_was_renamed_comes_first(tail: Tail) -> None:
    tail.write("a\n")
    tail.all()
    tail.write("b\nlast")
    os.rename(tail.log, tail.folder / "app.log.1")
    tail.all()
    assert tail.rows == ["a", "b"]  # until there is a new file, it may go on
    with (tail.folder / "app.log.1").open("a") as file:
        file.write(" line")
    tail.write("c\n")
    tail.ahead = 0
    assert tail.look()  # it may still be written to
    assert tail.rows == ["a", "b"]
    tail.all()
    assert tail.rows == ["a", "b", "last line", "c"] and tail.told == []


def test_what_is_lost_is_told(tail: Tail) -> None:
    tail.write("a\nb\n")
    tail.all()
    tail.write("x\n", "w")
    tail.all()
    assert tail.rows == ["a", "b", "x"] and len(tail.told) == 1 and "cut off below byte 4" in tail.told[0]
    tail.write("a longer one\n", "w")  # as long as before, and something else
    tail.all()
    assert tail.rows[3:] == ["a longer one"] and len(tail.told) == 2
    (tail.folder / "new").write_text("c\n")
    os.replace(tail.folder / "new", tail.log)
    tail.all()
    assert tail.rows[4:] == ["c"] and "is gone" in tail.told[2]
    tail.all()
    assert len(tail.told) == 3


def test_rotations_at_random_lose_and_double_nothing(tail: Tail) -> None:
    chance, written = random.Random(7), list[str]()
    for number in range(300):
        tail.write(f"row {number}\n")
        written.append(f"row {number}")
        if chance.random() < 0.2:
            for old in range(9, 0, -1):
                if (tail.folder / f"app.log.{old}").exists():
                    os.rename(tail.folder / f"app.log.{old}", tail.folder / f"app.log.{old + 1}")
            os.rename(tail.log, tail.folder / "app.log.1")
            tail.write("")
        if chance.random() < 0.25:
            tail.look(chance.choice([None, 1, 3]), commit=chance.random() < 0.8)
        if number % 25 == 0:
            tail.all()
    tail.all()
    assert tail.rows == written and tail.told == []


@pytest.mark.spark
def test_a_stream_follows_a_file_over_rotation_and_restart(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text('k,n\na,1\n"b\nb",2\n')
    for number in range(3):
        with anabranch.connect(tmp_path / "home", spark) as ab:

            def rows(session: anabranch.Session = ab) -> list[Any]:
                return [
                    tuple(row.values()) for row in session.sql("SELECT k, n FROM s ORDER BY n").toArrow().to_pylist()
                ]

            if number == 0:
                ab.sql(f"CREATE STREAM s FROM csv('{log}', follow => true, settle => '0')")
                ab.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(n) AS n FROM s")
                assert rows() == [("a", 1), ("b\nb", 2)]
                with log.open("a") as file:
                    file.write("c,3\nd,many\n")
                assert rows()[2:] == [("c", 3)]
                bad = ab.sql("SELECT source, raw FROM sys.bad_rows").toArrow().to_pylist()
                assert bad == [{"source": str(log), "raw": "d,many"}]
            elif number == 1:
                with log.open("a") as file:
                    file.write("e,4\n")
                os.rename(log, tmp_path / "app.csv.1")
                log.write_text("k,n\nf,5\n")
                assert rows()[3:] == [("e", 4), ("f", 5)]
            else:
                assert rows()[4:] == [("f", 5)]
                assert ab.sql("SELECT * FROM v").toArrow().to_pylist() == [{"c": 5, "n": 15}]
                for text in (
                    f"SELECT * FROM csv('{log}', follow => true)",
                    f"CREATE STREAM t (k STRING) FROM csv('{tmp_path}', follow => true)",
                ):
                    with pytest.raises(AnabranchError, match="follow"):
                        ab.sql(text)
