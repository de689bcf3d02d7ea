"""SQLite files whose columns hold something else than they were declared as: what is computed there is what Spark
would compute of the rows, or the error that reading them is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import date
from decimal import InvalidOperation
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import SourceError, SqlError
from anabranch.sources.database import value_of
from anabranch.sources.lookup import Comparison
from anabranch.sources.sqlite import SqliteTable
from anabranch.sources.sqlite_exact import compared, exact_sql
from anabranch.sources.wanted import Order, Test, Wanted
from anabranch.testing import Harness
from anabranch.types import Field
from sources.database_files import DatabaseFile


@pytest.fixture
def file(tmp_path: Path) -> DatabaseFile:
    return DatabaseFile("sqlite", tmp_path / "lies.db")


def table(file: DatabaseFile, name: str) -> SqliteTable:
    return SqliteTable(file.options(table=name))


STORED: list[Any] = [
    None, 0, 1, -1, 2, 127, 128, -129, 2**31, 2**40, 2**63 - 1, -(2**63), 0.0, 0.5, -2.5, 1e15, 1e300, 9e999, -9e999,
    0.1, 2.675, 99.995, 9.5, 1e-7, "", " ", "1", " 12 ", "+5", "5.", "1e2", "0x10", "12abc", "true", "1_000", "1" * 30,
    "2.675", "abc", "a\0b", "ä", "😀", "\ufffd", "2026-01-02", "2026-01-02 10:00", "2026-02-31", "2026-1-2",
    "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "2026-01-02x", "2026-01-02 03:04:05",
    "2026-01-02T03:04:05", "2026-01-02 24:00:00", "2026-01-02 03:04:60", "2026-02-30 03:04:05",
    "0000-01-01 00:00:00", "0001-01-01 00:00:00",
    "2026-01-02 03:04:05Z", "2026-01-02 03:04:05.123456", "2026-01-02 03:04:05+05:30", "9999-12-31 23:59:59", "now",
    "12:00", "2461041.5", "nan", "inf", "-0.0", b"", b"1", b"a", b"\xff\xfe", b"2026-01-02",
]  # fmt: skip
TYPES = [
    "tinyint",
    "int",
    "bigint",
    "boolean",
    "string",
    "date",
    "timestamp",
    "double",
    "decimal(4,2)",
    "decimal(18,6)",
]


@pytest.mark.parametrize("declared", ["INTEGER", "TEXT COLLATE NOCASE", "", "REAL", "DATE COLLATE RTRIM"])
def test_a_value_is_to_sqlite_what_it_is_read_as(tmp_path: Path, declared: str) -> None:
    path = str(tmp_path / "stored.db")
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, x {declared})")
        database.executemany("INSERT INTO t (x) VALUES (?)", [(value,) for value in STORED])
        for text in ("61ff", "6100ff", "80"):
            database.execute(f"INSERT INTO t (x) VALUES (CAST(x'{text}' AS TEXT))")

    def found(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (SourceError, ValueError, OverflowError, InvalidOperation):
            return "an error"

    for type in TYPES:
        table = SqliteTable({"path": path, "table": "t"}, (Field("id", "bigint"), Field("x", type)))
        text = exact_sql("t.x", "x", type)
        for id, raw in table.rows("SELECT id, x FROM t"):
            own = found(lambda: table.rows(f"SELECT {text} FROM t WHERE id = ?", (id,))[0][0])  # noqa: B023
            assert own == found(lambda: compared(value_of(raw, type), type)), (type, raw)  # noqa: B023


@pytest.mark.spark
def test_a_value_that_is_none_of_its_type_is_an_error_where_it_is_computed_too(
    file: DatabaseFile, home: Harness
) -> None:
    file.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, k TEXT, d DATE, m DECIMAL(4,2), at TIMESTAMP)")
    good = (1, 7, "a", "2026-01-01", 1.5, "2026-01-01 00:00:00")
    bad = (2, "many", "b", "2026-02-31", 100, "0000-01-01 00:00:00")
    file.insert("t", [good, bad])
    source = file.source(table="t")
    for query, column in (
        ("SELECT sum(n) FROM {t}", "n"), ("SELECT max(d) FROM {t}", "d"), ("SELECT m FROM {t} GROUP BY m", "m"),
        ("SELECT min(at) FROM {t}", "at"), ("SELECT id FROM {t} ORDER BY n DESC LIMIT 1", "n"),
        ("SELECT count(*) FROM {t} WHERE n > 8", "n"), ("SELECT id, n FROM {t} WHERE id = 2", "n"),
        ("SELECT a.id, b.k FROM {t} a JOIN {t} b ON a.n = b.n", "n"),
    ):  # fmt: skip
        with pytest.raises(Exception, match=rf"a value of t\.{column} is no ") as caught:
            home.query(query.format(t=source))
        assert "CREATE TABLE t" in str(getattr(caught.value, "hint", "CREATE TABLE t")), query
    assert home.query(f"SELECT id, n, sum(m) FROM {source} WHERE id = 1 GROUP BY id, n")[0][:2] == (1, 7)
    with pytest.raises(SqlError, match="nmae"):
        home.query(f"SELECT nmae FROM {source}")


def test_texts_that_are_not_in_utf_8_are_compared_by_spark(tmp_path: Path) -> None:
    """By their bytes in UTF-16, a letter of a high number may come before one of a low number."""
    path = str(tmp_path / "wide.db")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA encoding = 'UTF-16le'")
        database.execute("CREATE TABLE t (name TEXT, day DATE)")
        database.executemany(
            "INSERT INTO t VALUES (?, ?)", [("b", "2026-01-01"), ("Ā", "2026-01-02 10:00"), ("c", None)]
        )
    found = SqliteTable({"path": path, "table": "t"})
    wanted = Wanted(("name",), Test("name", ">", ("b",)), (Order("name", False, True),), 1)
    assert found.question(wanted) == ("SELECT t.`name` FROM main.`t` AS t", [])
    assert found.read(Wanted(("name",), Test("name", "=", ("Ā",)))).to_pylist() == [{"name": "Ā"}]
    rows, _ = found.search(("name",), (Comparison("name", ">"),), [("b",)])
    assert {row["name"] for row in rows.to_pylist()} >= {"Ā", "c"}
    one = Wanted(("name",), Test("day", ">=", (date(2026, 1, 2),)), (Order("day", False, True),), 1)
    assert found.read(one).to_pylist() == [{"name": "Ā"}]


def test_a_column_that_is_certain_is_asked_as_it_is(file: DatabaseFile) -> None:
    file.run(
        "CREATE TABLE plain (id INTEGER PRIMARY KEY, n INT)", "CREATE TABLE back (id INTEGER PRIMARY KEY DESC, n INT)",
        "CREATE TABLE whole (id INTEGER PRIMARY KEY, n INT) WITHOUT ROWID", "CREATE VIEW seen AS SELECT * FROM plain",
        "CREATE TABLE two (id INTEGER, n INT, PRIMARY KEY (id, n))",
    )  # fmt: skip
    strict = sqlite3.sqlite_version_info >= (3, 37)
    if strict:
        file.run("CREATE TABLE hard (id INT, n ANY, r REAL) STRICT")
    for name, certain in (("plain", True), ("back", False), ("whole", False), ("seen", False), ("two", False),
                          *([("hard", True)] if strict else [])):  # fmt: skip
        found = table(file, name)
        order = found.order_sql(found.columns()["id"], Order("id", False, True))
        assert (order == "t.`id` ASC") is certain, name
        order = found.order_sql(found.columns()["n"], Order("n", False, True))
        assert order is None or "typed" in order


def test_long_lists_are_said_by_their_ends_or_left_to_spark(file: DatabaseFile) -> None:
    file.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT)")
    file.insert("t", [(n, n) for n in range(2000)])
    found = table(file, "t")

    def said(column: str, count: int) -> str:
        return found.question(Wanted(("n",), Test(column, "IN", tuple(range(count)))))[0].partition("WHERE ")[2]

    assert said("n", 3) == " OR ".join(["t.`n` BETWEEN ? AND ?"] * 3).join("()")
    assert said("n", 500) == "(t.`n` >= ?) AND (t.`n` <= ?)"
    assert said("id", 500).count("?") == 500 and said("id", 1000) == ""
    for count in (500, 1000):
        one = Wanted(("n",), Test("n", "IN", tuple(range(count))), (Order("n", True, True),), 1)
        assert found.read(one).to_pylist()[:1] == [{"n": count - 1 if count == 500 else 0}]


def test_days_and_truths_are_found_by_key_however_they_are_written(file: DatabaseFile) -> None:
    file.run("CREATE TABLE t (d DATE, b BOOLEAN)", "INSERT INTO t VALUES ('2026-01-02 10:00', 2), ('2026-01-03', 0)")
    found = table(file, "t")
    assert found.fetch(("b",), ("d",), [(date(2026, 1, 2),)]).to_pylist() == [{"b": True}]
    assert found.fetch(("d",), ("b",), [(True,)]).to_pylist() == [{"d": date(2026, 1, 2)}]


def test_sums_go_beyond_whole_numbers_of_64_bits(file: DatabaseFile, home: Harness) -> None:
    file.run("CREATE TABLE t (n BIGINT, m DECIMAL(18,2), k INT)")
    big = 2**62
    file.insert("t", [(n, m, 1) for n, m in [(big, 5 * 10**15), (big, 5 * 10**15), (-big, -3)] for _ in range(15)])
    query = f"SELECT sum(n), sum(m) FROM {file.source(table='t')} GROUP BY k"
    with pytest.raises(SqlError, match="does not fit into BIGINT"):
        home.query(query)
    file.run(f"INSERT INTO t SELECT {-big}, 0, 1 FROM t LIMIT 15")
    assert [str(each) for each in home.query(query)[0]] == ["0", "149999999999999955.00"]
