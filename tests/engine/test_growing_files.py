"""A file is read when it is whole; what is appended later is read too; and all views of a stream have the same rows."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from anabranch.errors import AnabranchError, SourceError
from anabranch.sources import listing
from anabranch.sources.files import FilesSource
from anabranch.sources.parts import last_line_end
from anabranch.sources.paths import settle_of
from anabranch.testing import Harness
from anabranch.types import Field

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


class Watched:
    """A folder of files that are written by hand, and a source that looks at it with a clock of its own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.now, self.position = folder, NOW, None
        self.source = FilesSource(
            {"path": str(folder), "format": "csv", **options},
            lambda: pytest.fail("no Spark here"),
            (Field("k", "string"), Field("n", "int")),
            now=lambda: self.now,
            scratch=lambda: folder.parent,
            elapsed=lambda: self.now / SECOND,
        )

    def write(self, name: str, text: str | bytes, *, append: bool = False, ago: float = 0) -> Path:
        path = self.folder / name
        with path.open("ab" if append else "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        written = (self.now - int(ago * SECOND)) * 1000
        os.utime(path, ns=(written, written))
        return path

    def take(self) -> tuple[list[tuple[str, int, int]], list[str]]:
        """What a run would take (file, from, to), and what it would report."""
        stretch = self.source.next(self.position, None)
        if stretch is None:
            return [], []
        self.source.committed(stretch)
        self.position = stretch.position
        return [(Path(each[0]).name, each[3], each[1]) for each in stretch.captured], [
            row.reason for row in stretch.bad
        ]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    (tmp_path / "in").mkdir()
    return Watched(tmp_path / "in")


def test_a_text_file_is_taken_when_it_has_not_changed_for_a_while(watched: Watched) -> None:
    watched.write("old.csv", "a,1\n", ago=60)
    watched.write("new.csv", "b,2\n")
    assert watched.take() == ([("old.csv", 0, 4)], [])
    assert watched.source.waits
    watched.now += 1 * SECOND
    watched.write("new.csv", "c,3\n", append=True)
    watched.now += 1 * SECOND
    assert watched.take() == ([], [])
    watched.now += 1 * SECOND
    assert watched.take() == ([("new.csv", 0, 8)], [])
    assert not watched.source.waits


def test_a_line_that_is_not_ended_is_waited_for_longer(watched: Watched) -> None:
    watched.write("x.csv", "a,1\nb,")
    watched.now += 5 * SECOND
    assert watched.take() == ([], [])
    watched.write("x.csv", "2\n", append=True)
    watched.now += 2 * SECOND
    assert watched.take() == ([("x.csv", 0, 8)], [])
    watched.write("y.csv", "c,3")
    watched.now += 10 * SECOND
    assert watched.take() == ([("y.csv", 0, 3)], [])


def test_whole_lines_of_a_file_that_never_settles_are_taken(watched: Watched) -> None:
    taken = []
    for number in range(30):
        watched.write("log.csv", f"a,{number}\nb", append=True)
        taken += watched.take()[0]
        watched.now += 1 * SECOND
    assert len(taken) == 2 and taken[0][1] == 0 and taken[0][2] == taken[1][1]
    text = (watched.folder / "log.csv").read_bytes()
    assert all(text[end - 1 : end] == b"\n" for _, _, end in taken)
    assert taken[-1][2] < len(text)


def test_no_time_to_settle_for_producers_that_rename(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    watched = Watched(tmp_path / "in", settle=0)
    watched.write("x.csv", "a,1")
    assert watched.take() == ([("x.csv", 0, 3)], [])


def test_a_file_settles_although_the_clock_stands_still(watched: Watched) -> None:
    watched.write("x.csv.gz", gzip.compress(b"a,1\n"))
    watched.source._now = lambda: NOW
    assert watched.take() == ([], [])
    watched.now += 2 * SECOND
    assert len(watched.take()[0]) == 1


def test_settle_is_a_length_of_time() -> None:
    assert [settle_of(given) for given in (None, 0, "0", "500 ms", "3 SECONDS")] == [
        2_000_000,
        0,
        0,
        500_000,
        3_000_000,
    ]
    for given in (5, "soon", True, False, "-1 second"):
        with pytest.raises(SourceError, match="length of time"):
            settle_of(given)


def test_a_parquet_file_is_whole_with_its_footer(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    watched = Watched(tmp_path / "in", format="parquet")
    parquet.write_table(pa.table({"k": ["a"], "n": [1]}), tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    watched.write("x.parquet", whole[:50])
    assert watched.take() == ([], []) and watched.source.waits
    watched.write("x.parquet", whole)  # nothing to wait for
    assert watched.take() == ([("x.parquet", 0, len(whole))], [])
    watched.write("y.parquet", whole[:-1])
    watched.now += 2 * SECOND
    assert watched.take() == ([], ["it is not a whole Parquet file; it is read when it is"])
    assert watched.take() == ([], []) and not watched.source.waits
    watched.write("y.parquet", whole[-1:], append=True)
    assert watched.take() == ([("y.parquet", 0, len(whole))], [])


def test_what_is_appended_is_a_part_of_its_own(watched: Watched) -> None:
    watched.write("x.csv", "k,n\na,1\n", ago=60)
    assert watched.take() == ([("x.csv", 0, 8)], [])
    watched.write("x.csv", "b,2\n", append=True)
    assert watched.take() == ([], [])
    watched.now += 2 * SECOND
    assert watched.take() == ([("x.csv", 8, 12)], [])
    watched.write("x.csv", "k,n\na,1\nb,2\n", ago=3)  # the same bytes, written again
    assert watched.take() == ([], [])


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ("a,1\nb,2\n", "a,1\nb,3\n", "changed after it was read"),
        ("a,1\nb,2\n", "a,9\nb,2\nc,3\n", "changed after it was read"),
        ("a,1\nb,2\n", "a,1\n", "changed after it was read"),
        ("a,1\nb,2", "a,1\nb,25\n", "was continued later"),
    ],
)
def test_other_changes_are_reported_once(watched: Watched, first: str, then: str, told: str) -> None:
    watched.write("x.csv", first, ago=60)
    watched.take()
    watched.write("x.csv", then, ago=30)
    taken, (reason,) = watched.take()
    assert taken == [] and told in reason
    assert watched.take() == ([], [])


def test_a_line_that_was_not_ended_is_ended_by_what_is_appended(watched: Watched) -> None:
    watched.write("x.csv", "a,1", ago=60)
    watched.take()
    watched.write("x.csv", "\nb,2", append=True, ago=30)
    assert watched.take() == ([("x.csv", 3, 7)], [])


def test_a_compressed_file_that_grows_is_reported(watched: Watched) -> None:
    watched.write("x.csv.gz", gzip.compress(b"a,1\n"), ago=60)
    assert len(watched.take()[0]) == 1
    watched.write("x.csv.gz", gzip.compress(b"b,2\n"), append=True, ago=30)
    assert watched.take() == (
        [],
        ["the file grew after it was read, and cannot be read from there on; its new part is not read"],
    )


def test_a_line_ends_outside_of_quotes(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'a,"1\n2"\nb,"say ""hi""\n')
    assert last_line_end(str(path), 0, path.stat().st_size, b'"') == 8
    assert last_line_end(str(path), 0, path.stat().st_size, None) == path.stat().st_size
    assert last_line_end(str(path), 0, 5, b'"') == 0


# ---- with Spark

COLUMNS = "(k STRING, n INT)"
TOTALS = "SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k"
ROWS = "SELECT k, n FROM s WHERE n > 0"


def answers(home: Harness) -> tuple[Any, ...]:
    return tuple(sorted(home.query(f"SELECT * FROM {view}")) for view in ("totals", "positive"))


def made_now(home: Harness, number: int) -> tuple[Any, ...]:
    """The same views made at this moment, from the rows: an expression that no view has had shares nothing."""
    totals = TOTALS.replace("sum(n)", f"sum(n + {number} - {number})")
    home.sql(f"CREATE VIEW totals_{number} AS {totals}; CREATE VIEW positive_{number} AS {ROWS}")
    return tuple(sorted(home.query(f"SELECT * FROM {view}_{number}")) for view in ("totals", "positive"))


@pytest.fixture
def growing(home: Harness, tmp_path: Path) -> Iterator[tuple[Harness, Path]]:
    (tmp_path / "in").mkdir()
    home.sql(f"CREATE STREAM s {COLUMNS} FROM files(path => '{tmp_path}/in/*.csv')")
    home.sql(f"CREATE VIEW totals AS {TOTALS}; CREATE VIEW positive AS {ROWS}")
    yield home, tmp_path / "in"


@pytest.mark.spark
def test_views_made_before_and_after_a_file_grew_are_the_same(growing: tuple[Harness, Path]) -> None:
    home, folder = growing
    (folder / "x.csv").write_text("n,k\n1,a\n2,b\n")
    expected: list[tuple[str, int]] = [("a", 1), ("b", 2)]
    for number in range(2):
        assert answers(home) == made_now(home, number)
        assert answers(home)[1] == sorted(home.query("SELECT k, n FROM s")) == sorted(expected)
        with (folder / "x.csv").open("a") as file:
            file.write(f"{number + 10},c\nmany,d\n")
        expected.append(("c", number + 10))
        home.reopen()
    assert answers(home)[1] == sorted(expected)
    found = home.query("SELECT source, offset, raw FROM sys.bad_rows ORDER BY offset")
    assert found == [(str(folder / "x.csv"), line, "many,d") for line in (5, 7)]
    assert not [path for path in (home.path / "staging").rglob("*") if path.is_file() and "/run" in str(path)]


@pytest.mark.spark
def test_what_was_appended_after_a_look_is_for_the_next_run(growing: tuple[Harness, Path]) -> None:
    """Rows are numbered by the run that brought them, in a copy as in the file itself."""
    home, folder = growing
    (folder / "x.csv").write_text("a,1\n")
    assert answers(home)[1] == [("a", 1)]
    (folder / "y.csv").write_text("b,2\n")
    assert answers(home)[1] == [("a", 1), ("b", 2)]
    with (folder / "x.csv").open("a") as file:
        file.write("c,3\n")
    assert answers(home)[1] == [("a", 1), ("b", 2), ("c", 3)]
    home.sql("CREATE VIEW numbered AS SELECT window_end, max(n) AS n FROM HOP(s, ROW_NUM, 1, 1) GROUP BY window_end")
    assert [n for _, n in sorted(home.query("SELECT * FROM numbered"))] == [1, 2, 3]


@pytest.mark.spark
def test_rows_that_are_gone_are_an_error_and_no_other_answer(growing: tuple[Harness, Path]) -> None:
    home, folder = growing
    (folder / "x.csv").write_text("a,1\n")
    before = answers(home)
    (folder / "x.csv").write_text("a,2\n")
    assert answers(home) == before
    home.sql(f"CREATE VIEW shared AS {TOTALS}")  # needs no rows
    for statement in ("SELECT * FROM s", "CREATE VIEW least AS SELECT min(n) AS n FROM s GROUP BY k"):
        with pytest.raises(AnabranchError, match="changed after it was read: the rows that it had are lost"):
            home.query(statement)


@pytest.mark.spark
def test_a_file_that_grows_while_it_is_read_is_taken_in_two_parts(
    growing: tuple[Harness, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = growing
    (folder / "x.csv").write_text("a,1\n")
    more = iter("bc")

    def written_meanwhile(read: Callable[..., Any], *given: Any) -> Any:
        rows = read(*given)
        with (folder / "x.csv").open("a") as file:
            file.write("".join(f"{k},2\n" for k in [next(more, "")] if k))
        return rows

    for name in ("read", "arrow_rows"):  # by Spark, or on the driver
        read = getattr(FilesSource, name)
        monkeypatch.setattr(FilesSource, name, lambda *given, read=read: written_meanwhile(read, *given))
    assert answers(home)[1] == [("a", 1), ("b", 2), ("c", 2)]
    monkeypatch.undo()
    assert made_now(home, 1) == answers(home)


@pytest.mark.spark
def test_a_query_waits_for_a_file_that_was_written_just_now(tmp_path: Path, spark: Any) -> None:
    from anabranch import connect

    (tmp_path / "in").mkdir()
    with connect(tmp_path / "home", spark=spark) as session:
        session.sql(f"CREATE STREAM s {COLUMNS} FROM files('{tmp_path}/in/*.csv', settle => INTERVAL 200 MILLISECONDS)")
        (tmp_path / "in" / "x.csv").write_text("a,1\n")
        (tmp_path / "in" / "y.csv").write_text("b,2")
        assert session.sql("SELECT count(*) AS c FROM s").toArrow().to_pylist() == [{"c": 2}]
        assert time.time() - (tmp_path / "in" / "y.csv").stat().st_mtime >= 1


def test_a_parquet_file_that_was_read_is_not_looked_at_for_every_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    watched = Watched(tmp_path / "in", format="parquet")
    parquet.write_table(pa.table({"k": ["a"], "n": [1]}), tmp_path / "in" / "x.parquet")
    assert len(watched.take()[0]) == 1 and watched.take() == ([], [])
    looks: list[str] = []
    monkeypatch.setattr(listing, "_changed", lambda place, folder: looks.append(place) or [])
    for _ in range(9):
        watched.now += SECOND
        assert watched.take() == ([], []) and not watched.source.waits
    assert not looks
    watched.now += 2 * SECOND
    assert watched.take() == ([], []) and looks
