"""What a run leaves behind, and what readers see of it."""

from __future__ import annotations

import threading
from datetime import datetime, timezone

import pytest

from anabranch.errors import AnabranchError
from anabranch.testing import Change, FakeClock, Harness

pytestmark = pytest.mark.spark

SCHEMA = "CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
SUMS = (
    "SELECT window_start, k, sum(n) AS n FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY window_start, window_end, k"
)


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, second // 60, second % 60)


def utc(second: int) -> datetime:
    return at(second).replace(tzinfo=timezone.utc)


def test_sys_runs_has_a_line_a_run(home: Harness) -> None:
    home.sql(f"{SCHEMA}; CREATE VIEW v AS {SUMS}")
    home.insert("s", [("a", 1, at(3)), ("b", 2, at(20)), ("b", 2, None)])
    home.insert("s", [("a", 1, at(14)), ("c", 1, at(2)), ("c", 1, at(16))])
    first, second = home.runs("s")
    figures = ("run", "rows", "late_rows", "bad_rows", "low", "high", "progress", "ended", "kind")
    assert tuple(first[name] for name in figures) == (0, 2, 0, 1, utc(3), utc(20), utc(15), False, "insert")
    assert tuple(second[name] for name in figures) == (1, 3, 2, 0, utc(2), utc(16), utc(15), False, "insert")
    assert second["version"] == first["version"] + 1
    assert first["files"] == 3  # rows, partials, bad rows
    phases = dict(first["milliseconds"])
    assert phases["total"] >= phases["partials"] > 0 < phases["commit"]
    assert home.query("SELECT rows, late_rows, bad_rows FROM sys.progress WHERE stream = 's'") == [(5, 2, 1)]


def test_a_late_row_counts_at_once(home: Harness) -> None:
    home.sql(f"{SCHEMA}; CREATE VIEW v AS {SUMS}")
    home.insert("s", [("a", 1, at(1)), ("a", 1, at(100))])
    home.insert("s", [("a", 10, at(2))])
    assert home.runs("s")[-1]["late_rows"] == 1
    assert home.table("v") == [(at(0), "a", 11), (at(100), "a", 1)]


def test_a_correction_takes_back_the_row_that_was_shown(home: Harness) -> None:
    home.sql(f"{SCHEMA}; CREATE VIEW v AS {SUMS} EMIT ON WINDOW CLOSE")
    home.insert("s", [("a", 1, at(1)), ("b", 5, at(2))])
    assert home.table("v") == []
    home.insert("s", [("a", 1, at(40))])
    closed = home.session.version
    assert home.table("v") == [(at(0), "a", 1), (at(0), "b", 5)]
    home.insert("s", [("a", 10, at(2))])
    corrected = home.session.version
    assert home.changes("v") == [
        Change(closed, 1, (at(0), "a", 1)),
        Change(closed, 1, (at(0), "b", 5)),
        Change(corrected, -1, (at(0), "a", 1)),
        Change(corrected, 1, (at(0), "a", 11)),
    ]
    home.insert("s", [("b", 0, at(3))])  # late, but it changes nothing that is shown
    assert len(home.changes("v")) == 4
    home.insert("s", [("c", 7, at(4))])  # a row of its own, in a window that had none for it
    assert [change.diff for change in home.changes("v")[4:]] == [1]
    assert home.table("v") == [(at(0), "a", 11), (at(0), "b", 5), (at(0), "c", 7)]


def test_a_window_closes_at_its_end_and_not_before(home: Harness) -> None:
    home.sql(f"{SCHEMA}; CREATE VIEW v AS {SUMS} EMIT ON WINDOW CLOSE")
    home.insert("s", [("a", 1, at(9)), ("b", 1, datetime(2026, 1, 1, 0, 0, 14, 999_999))])
    assert home.table("v") == []
    home.insert("s", [("b", 1, at(15))])
    assert home.table("v") == [(at(0), "a", 1)]
    home.advance("s", at(20))
    assert home.table("v") == [(at(0), "a", 1), (at(10), "b", 2)]
    home.advance("s", at(3))  # progress never goes back
    home.insert("s", [("z", 1, at(300))])
    home.advance("s")
    assert home.table("v")[-1] == (at(300), "z", 1)
    assert home.runs("s")[-1]["ended"] is True


def test_as_of_version_reads_the_past(home: Harness) -> None:
    home.sql(f"{SCHEMA}; CREATE VIEW v AS {SUMS}")
    versions = []
    for number in range(3):
        home.insert("s", [("a", 1, at(number))])
        versions.append(home.session.version)
    assert [home.table("v", version) for version in versions] == [[(at(0), "a", n)] for n in (1, 2, 3)]
    assert len(home.table("s", versions[0])) == 1
    joined = f"SELECT o.n, v.n FROM v AS OF VERSION {versions[0]} o JOIN v ON o.k = v.k"
    assert home.query(joined) == [(1, 3)]
    with pytest.raises(AnabranchError, match="version"):
        home.table("v", versions[-1] + 10)


def test_a_reader_sees_whole_runs_only(home: Harness) -> None:
    """Both views count the same rows: a reader that saw half a run would see them differ."""
    home.sql(f"{SCHEMA}; CREATE VIEW one AS SELECT count(*) AS c FROM s")
    home.sql("CREATE VIEW two AS SELECT k, count(*) AS c FROM s GROUP BY k")
    seen: list[tuple[int, int]] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                seen.extend(home.query("SELECT (SELECT c FROM one), (SELECT coalesce(sum(c), 0) FROM two)"))
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(6):
            home.insert("s", [(f"k{i % 3}", i, at(number)) for i in range(7)])
    finally:
        done.set()
        reader.join(60)
    assert not errors
    assert seen and all(one == two and one % 7 == 0 for one, two in seen), seen
    assert seen == sorted(seen)


def test_a_result_stays_at_the_version_it_was_made_at(home: Harness) -> None:
    home.sql(f"{SCHEMA}; CREATE VIEW v AS {SUMS}")
    home.insert("s", [("a", 1, at(1))])
    before = home.session.sql("SELECT n FROM v")
    home.insert("s", [("a", 1, at(1))])
    home.compact()
    assert before.toArrow().to_pylist() == [{"n": 1}]


def test_many_runs_leave_few_files(home: Harness) -> None:
    home.sql(f"{SCHEMA}; CREATE VIEW v AS {SUMS} EMIT ON WINDOW CLOSE")
    for number in range(20):
        home.insert("s", [("a", 1, at(number * 2))])
    for table, files in home.query("SELECT id, files FROM sys.tables"):
        assert files < 16, f"{table} has {files} files"
    assert any(row["kind"] == "reduce" for row in home.session.sql("SELECT kind FROM sys.runs").toArrow().to_pylist())
    home.advance("s")
    assert home.table("v") == home.batch(SUMS, s=[("a", 1, at(number * 2)) for number in range(20)])


def test_the_clock_of_the_home_stamps_its_runs(tmp_path, spark) -> None:  # type: ignore[no-untyped-def]
    clock = FakeClock("2030-05-06 07:08:09")
    with Harness(tmp_path / "home", spark, clock=clock) as home:
        home.sql(SCHEMA)
        home.insert("s", [("a", 1, at(1))])
        clock.forward(minutes=1)
        home.insert("s", [("a", 1, at(1))])
        stamps = [run["committed"].isoformat() for run in home.runs("s")]
    assert stamps == ["2030-05-06T07:08:09+00:00", "2030-05-06T07:09:09+00:00"]
