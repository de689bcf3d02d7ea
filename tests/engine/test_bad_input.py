"""Rows and files that cannot be taken in are named, counted and left out; or they stop the stream, if told so."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError, NotSupported, QueryFailed, SourceError, UnknownName, WrongType
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

COLUMNS = "(k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
GOOD = "a,1,2026-01-01 00:00:01\nb,2,2026-01-01 00:00:02\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def bad_rows(home: Harness) -> list[tuple[object, ...]]:
    return home.query("SELECT source, offset, reason, raw FROM sys.bad_rows ORDER BY source, offset")


def test_lines_that_do_not_parse_are_listed_with_their_numbers(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text(f"{GOOD}c,many,2026-01-01 00:00:03\nd,4,2026-01-01 00:00:04\ne,5,noon\n")
    home.sql(f"CREATE STREAM s {COLUMNS} FROM files(path => '{folder}')")
    home.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(n) AS n FROM s")
    assert home.table("v") == [(3, 7)]
    found = bad_rows(home)
    assert [(row[0], row[1], row[3]) for row in found] == [
        (str(folder / "x.csv"), 3, "c,many,2026-01-01 00:00:03"),
        (str(folder / "x.csv"), 5, "e,5,noon"),
    ]
    assert home.runs("s")[0]["bad_rows"] == 2


def test_json_that_does_not_parse_is_listed(home: Harness, folder: Path) -> None:
    (folder / "x.json").write_text(
        '{"k": "a", "n": 1, "ts": "2026-01-01T00:00:01Z"}\n{"k": "b", "n":\n{"k": "c", "n": "x"}\n'
    )
    home.sql(f"CREATE STREAM s {COLUMNS} FROM files(path => '{folder}/*.json')")
    assert [row[:2] for row in home.query("SELECT k, n FROM s")] == [("a", 1)]
    assert [(row[1], row[3]) for row in bad_rows(home)] == [(2, '{"k": "b", "n":'), (3, '{"k": "c", "n": "x"}')]


def test_a_row_without_an_event_time_is_bad(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text(f"{GOOD}c,3,\n")
    home.sql(f"CREATE STREAM s {COLUMNS} FROM files(path => '{folder}/*.csv')")
    assert len(home.table("s")) == 2
    ((source, _, reason, raw),) = bad_rows(home)
    assert source == str(folder / "x.csv")
    assert "no event time" in reason and "ts" in reason
    assert '"k":"c"' in raw


def test_on_error_fail_stops_and_takes_nothing(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text(f"{GOOD}c,many,2026-01-01 00:00:03\n")
    home.sql(f"CREATE STREAM s {COLUMNS} FROM files(path => '{folder}/*.csv') ON ERROR FAIL")
    with pytest.raises(QueryFailed, match=r"x\.csv, line 3"):
        home.table("s")
    (folder / "x.csv").write_text(GOOD)
    assert len(home.table("s")) == 2
    assert [run["rows"] for run in home.runs("s")] == [2]


def test_insert_with_a_null_time_is_bad_and_can_fail(home: Harness) -> None:
    home.sql(f"CREATE STREAM s {COLUMNS}; CREATE STREAM strict {COLUMNS} ON ERROR FAIL")
    home.insert("s", [("a", 1, "2026-01-01 00:00:01"), ("b", 2, None)])
    assert [row[0] for row in home.table("s")] == ["a"]
    assert [(row[0], row[1]) for row in bad_rows(home)] == [("insert", None)]
    with pytest.raises(QueryFailed, match="no event time"):
        home.insert("strict", [("a", 1, "2026-01-01 00:00:01"), ("b", 2, None)])
    assert home.table("strict") == []
    with pytest.raises(QueryFailed, match=r"^Division by zero"):  # and no stack of Java's
        home.query("SELECT 1 AS x FROM s WHERE 1 > (SELECT count(*) div count(DISTINCT n) FROM strict)")


def test_a_file_that_is_written_again_is_reported_once(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text(GOOD)
    home.sql(
        f"CREATE STREAM s {COLUMNS} FROM files(path => '{folder}/*.csv'); CREATE VIEW v AS SELECT count(*) AS c FROM s"
    )
    assert home.table("v") == [(2,)]
    (folder / "x.csv").write_text(GOOD.replace("a,1", "a,9") + GOOD)
    assert home.table("v") == [(2,)]
    reported = [(str(folder / "x.csv"), "the file was changed after it was read; its new contents are not read")]
    assert [(row[0], row[2]) for row in bad_rows(home)] == reported
    home.reopen()
    (folder / "y.csv").write_text(GOOD)
    assert home.table("v") == [(4,)]
    assert [(row[0], row[2]) for row in bad_rows(home)] == reported


def test_a_file_of_long_ago_is_read(home: Harness, folder: Path) -> None:
    (folder / "new.csv").write_text(GOOD)
    home.sql(
        f"CREATE STREAM s {COLUMNS} FROM files(path => '{folder}/*.csv'); CREATE VIEW v AS SELECT count(*) AS c FROM s"
    )
    assert home.table("v") == [(2,)]
    (folder / "old.csv").write_text(GOOD)
    ages_ago = time.time() - 20 * 365 * 86400
    os.utime(folder / "old.csv", (ages_ago, ages_ago))
    assert home.table("v") == [(4,)]


def test_a_file_that_has_disappeared_is_named(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text(GOOD)
    home.sql(f"CREATE STREAM s {COLUMNS} FROM files(path => '{folder}/*.csv') KEEP NOTHING")
    home.sql("CREATE VIEW v AS SELECT count(*) AS c FROM s")
    assert home.table("v") == [(2,)]
    (folder / "x.csv").unlink()
    with pytest.raises(SourceError, match=r"x\.csv has disappeared"):
        home.table("s")
    assert home.table("v") == [(2,)]  # what was counted is counted
    (folder / "y.csv").write_text(GOOD)
    assert home.table("v") == [(4,)]


def test_the_name_of_a_file_that_is_not_there_gets_the_nearest_one(home: Harness, folder: Path) -> None:
    (folder / "good.csv").write_text(GOOD)
    (folder / "notes.md").write_text("goood.csv")
    home.sql("CREATE TABLE t (k STRING)")
    for name, hint in (
        ("goood.csv", "did you mean good.csv?"),
        ("good.tsv", "did you mean good.csv?"),
        ("good.xyz", "did you mean good.csv?"),
        ("2*.parquet", "there is: good.csv"),
    ):
        for statement in (
            f"SELECT * FROM '{folder}/{name}'",
            f"CREATE TABLE u FROM csv('{folder}/{name}')",
            f"COPY t FROM '{folder}/{name}' CSV",
        ):
            with pytest.raises(AnabranchError) as caught:
                home.query(statement)
            assert (caught.value.hint, "^^^" in str(caught.value)) == (hint, True), statement


def test_inserts_that_do_not_fit_are_refused(home: Harness) -> None:
    home.sql(f"CREATE STREAM s {COLUMNS}; CREATE VIEW v AS SELECT count(*) AS c FROM s")
    for statement, error, words in [
        ("INSERT INTO s VALUES (1, 2)", WrongType, "3 columns are filled, but the query gives 2"),
        ("INSERT INTO t VALUES (1)", UnknownName, "there is no stream or table t"),
        ("INSERT INTO s (k, m) VALUES ('a', 1)", UnknownName, "no column m"),
        ("INSERT INTO v VALUES (1)", AnabranchError, "v is a view"),
        ("INSERT INTO s SELECT k, array(1), ts FROM s", WrongType, ""),
        ("UPDATE s SET n = 1", NotSupported, "s is a stream"),
        ("DELETE FROM s", NotSupported, "s is a stream"),
        ("COPY s FROM '/no/such/file.csv'", AnabranchError, "no file matches"),
    ]:
        with pytest.raises(error) as caught:
            home.sql(statement)
        assert words in str(caught.value), statement
    with pytest.raises(AnabranchError):
        home.sql("INSERT INTO s VALUES ('a', 'not a number', TIMESTAMP '2026-01-01 00:00:00')")
    home.sql("INSERT INTO s (ts, k) VALUES (TIMESTAMP '2026-01-01 00:00:00', 'a')")
    assert [row[:2] for row in home.table("s")] == [("a", None)]
    assert home.table("v") == [(1,)]


def test_a_query_over_what_is_no_file_of_rows_says_so(home: Harness, folder: Path) -> None:
    (folder / "none").mkdir()
    (folder / "half.parquet").write_bytes(b"PAR1" + b"x" * 50)
    (folder / "empty.csv").write_text("")
    for query, words, hint in [
        (f"FROM '{folder}/none'", "the folder .*none has no files", "put a file there first"),
        (f"FROM '{folder}/half.parquet'", "half.parquet is not a whole Parquet file", "wait until it is written"),
        (f"FROM '{folder}/empty.csv'", "empty.csv has no columns: there is no row in it", ""),
        (f"FROM read_csv('{folder}/half.csv')", "there is no function read_csv in FROM", "its name in quotes"),
        ("FROM stdin", "there is no stream, view or table stdin", "stdin.csv"),
    ]:
        with pytest.raises(AnabranchError, match=words) as error:
            home.query(f"SELECT * {query}")
        assert hint in (error.value.hint or "")
    with pytest.raises(AnabranchError, match="no file matches") as error:
        home.query(f"DESCRIBE '{folder}/nope.csv'")
    assert "line 1: DESCRIBE" in str(error.value)


def test_copy_takes_a_file_in_as_one_run(home: Harness, folder: Path) -> None:
    (folder / "x.csv").write_text(f"{GOOD}c,many,2026-01-01 00:00:03\n")
    home.sql(f"CREATE STREAM s {COLUMNS}; COPY s FROM '{folder / 'x.csv'}'")
    assert [row[:2] for row in home.table("s")] == [("a", 1), ("b", 2)]
    assert [(run["kind"], run["rows"], run["bad_rows"]) for run in home.runs("s")] == [("copy", 2, 1)]
    home.insert("s", [("m", n, "2026-01-01 00:00:00") for n in range(1000)])
    assert len(home.table("s")) == 1002


def test_an_expression_that_fails_for_a_bad_row_only_does_not_stop_the_stream(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    home.sql("CREATE VIEW v AS SELECT sum(10 div n) AS total FROM s")
    home.sql("INSERT INTO s VALUES (0, NULL), (5, TIMESTAMP '2026-01-01 00:00:00')")
    assert home.table("v") == [(2,)]
    assert [(run["rows"], run["bad_rows"]) for run in home.runs("s")] == [(1, 1)]


def test_a_row_without_a_time_is_in_no_window(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT, ts TIMESTAMP)")
    windows = [
        "SELECT window_start, sum(n) AS n FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY window_start",
        "SELECT window_start, sum(n) AS n FROM SESSION(s, ts, INTERVAL 1 MINUTE) GROUP BY window_start",
        "SELECT window_start, n FROM TUMBLE(s, ts, INTERVAL 1 MINUTE)",
    ]
    for number, query in enumerate(windows):
        home.sql(f"CREATE VIEW before_{number} AS {query}")
    home.sql("INSERT INTO s VALUES (1, NULL), (5, TIMESTAMP '2026-01-01 00:00:00')")
    for number, query in enumerate(windows):
        home.sql(f"CREATE VIEW after_{number} AS {query}")
        shown = [(datetime(2026, 1, 1), 5)]
        assert home.table(f"before_{number}") == home.table(f"after_{number}") == home.query(query) == shown
    assert home.query("SELECT count(*) FROM s") == [(2,)]


def test_a_path_that_cannot_be_looked_into_is_an_error(home: Harness, folder: Path) -> None:
    locked = folder / "locked"
    locked.mkdir()
    for path, words in [
        ("ftp://host/*.csv", "files of ftp:// cannot be read"),
        ("hdfs://host/in", "files of hdfs:// cannot be read"),
        (f"{folder}/missing/*.csv", f"there is no folder {folder}/missing"),
        (f"{folder}/missing/*/*.csv", f"there is no folder {folder}/missing"),
        (f"{folder}/missing/x.csv", f"there is no folder {folder}/missing"),
        (f"{folder}/missing", f"there is no file or folder {folder}/missing"),
    ]:
        for statement in (
            f"CREATE STREAM s (k STRING) FROM csv('{path}')",
            f"CREATE TABLE t (k STRING) FROM csv('{path}')",
            f"SELECT * FROM csv('{path}')",
        ):
            with pytest.raises(AnabranchError) as caught:
                home.sql(statement)
            assert words in str(caught.value) and "^" in str(caught.value), statement
    assert home.query("SELECT count(*) FROM sys.progress") == [(0,)]
    with pytest.raises(AnabranchError, match="no file matches"):
        home.sql(f"SELECT * FROM csv('{folder}/*.csv')")
    home.sql(f"CREATE STREAM s {COLUMNS} FROM csv('{folder}/*.csv'); CREATE STREAM t {COLUMNS} FROM csv('{locked}')")
    assert home.table("s") == home.table("t") == []


def test_a_folder_that_may_not_be_read_is_an_error(
    home: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)  # whoever runs the tests may be allowed to read everything
    with pytest.raises(AnabranchError, match="in cannot be read: Permission denied"):
        home.sql(f"CREATE STREAM s {COLUMNS} FROM csv('{folder}/*.csv')")
