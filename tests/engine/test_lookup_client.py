"""Asking a table outside: batches of distinct keys, at most so many at once, again after a while, remembered for a
while. And SQLite, where strange names and hostile values are only ever names and values."""

from __future__ import annotations

import sqlite3
import threading
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from anabranch.engine.lookup_client import LookupClient, LookupRequest
from anabranch.errors import SourceError
from anabranch.sources.lookup import Asking, NoColumn, open_source, why_asked
from anabranch.sources.registry import WrongOption
from anabranch.sources.sqlite import SqliteTable
from anabranch.types import Field
from engine.outside_help import FakeTable

FIELDS = [("id", "bigint"), ("name", "string")]


class Sleeps:
    """Waits that take no time."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.taken.append(round(seconds, 3))
        return False


def asker(table: FakeTable, asking: Asking, now: Any = lambda: 0, sleep: Any = None) -> LookupClient:
    return LookupClient("customers", table, asking, now, sleep or Sleeps())


def names(asked: LookupClient, keys: list[Any]) -> dict[int, list[str]]:
    """The names that are found for ids."""
    found = asked.matches(LookupRequest(("name",), ("id",)), [(key,) for key in keys])
    return {key: rows.column("name").to_pylist() for (key,), rows in found.items()}


def test_keys_are_asked_for_once_in_batches_and_null_is_not_asked_for() -> None:
    table = FakeTable(FIELDS, [(1, "a"), (1, "b"), (3, "c"), (None, "nobody")])
    asked = asker(table, Asking(batch=2, requests=1))
    assert names(asked, [1, 3, None, 1, 2, 3, 4, 5]) == {1: ["a", "b"], 3: ["c"]}
    assert [keys for _, keys in table.asked] == [[(1,), (3,)], [(2,), (4,)], [(5,)]]
    assert (asked.tally.requests, asked.tally.keys, asked.tally.rows) == (3, 5, 3)
    assert names(asked, [None]) == {} and asked.tally.requests == 3


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_than_so_many_requests_are_under_way_at_once(most: int) -> None:
    table = FakeTable(FIELDS, [(key, str(key)) for key in range(12)])
    together = threading.Barrier(most)
    table.meet = lambda: together.wait(10) and None  # each waits until so many are there
    assert len(names(asker(table, Asking(batch=1, requests=most)), list(range(12)))) == 12
    assert table.most == most


def test_a_table_that_does_not_answer_is_asked_again_after_longer_and_longer_waits() -> None:
    table, sleeps = FakeTable(FIELDS, [(1, "a")]), Sleeps()
    table.failures = 4
    asked = asker(table, Asking(retries=5), sleep=sleeps)
    assert names(asked, [1]) == {1: ["a"]}
    assert sleeps.taken == [0.1, 0.2, 0.4, 0.8]
    assert (asked.tally.requests, asked.tally.retries, asked.tally.keys) == (5, 4, 1)


def test_waits_have_an_end_and_then_the_error_says_what_happens() -> None:
    table, sleeps = FakeTable(FIELDS, []), Sleeps()
    table.failures = 1000
    with pytest.raises(SourceError, match="customers did not answer after 11 attempts: nobody is there") as caught:
        names(asker(table, Asking(retries=10), sleep=sleeps), [1])
    assert caught.value.hint == "nothing of this run was committed; the next run tries again"
    assert sleeps.taken[-4:] == [6.4, 10, 10, 10]
    with pytest.raises(SourceError, match="after 1 attempt:"):
        names(asker(table, Asking(retries=9), sleep=lambda _: True), [1])  # the home is being closed


def test_an_answer_is_remembered_for_as_long_as_the_table_says() -> None:
    table, clock = FakeTable(FIELDS, [(1, "a")]), [0]
    asked = asker(table, Asking(cache=600_000_000), now=lambda: clock[0])
    assert names(asked, [1, 2]) == {1: ["a"]}
    table.rows = [(1, "z"), (2, "y")]
    clock[0] = 599_999_999
    assert names(asked, [1, 2, 3]) == {1: ["a"]}, "that nothing was found is remembered too"
    assert table.keys == [(1,), (2,), (3,)] and asked.tally.remembered == 2
    clock[0] = 600_000_000
    assert names(asked, [1, 2]) == {1: ["z"], 2: ["y"]}
    assert asked.matches(LookupRequest(("id",), ("name",)), [("z",)])[("z",)].to_pylist() == [{"id": 1}], (
        "another question"
    )


def test_options_say_how_a_table_is_asked_and_its_size_whether() -> None:
    assert Asking.of({"path": "x"}) == Asking("auto", 500, 4, 5, None)
    given = {"lookup": "always", "batch": 9, "requests": 2, "retries": 0, "cache": "1 hour 30 min"}
    assert Asking.of(given) == Asking("always", 9, 2, 0, 5_400_000_000)
    assert Asking.of(given).words() == "batches of 9, at most 2 at once, cache 90 minutes"
    for name, value in (("batch", 0), ("batch", "9"), ("requests", True), ("cache", "soon"), ("lookup", "often")):
        with pytest.raises(WrongOption) as caught:
            Asking.of({name: value})
        assert caught.value.option == name
    assert why_asked(Asking("never"), 10**9) == "" == why_asked(Asking(), 1_000_000)
    assert why_asked(Asking(), 1_000_001) and why_asked(Asking(), None) and why_asked(Asking("always"), 0)


# ---- SQLite

ODD_TABLE, ODD_COLUMN, ODD_KEY = 'a "table"; DROP--`x`', "na`m\"e' [1]", "select"
HOSTILE = ["'; DROP TABLE t; --", "a' OR '1'='1", "`x`", '"id"', "?", "\\", "%", "naïve ☃", ""]


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "odd #1?.db")
    outside = sqlite3.connect(path)
    odd_table, odd_column, odd_key = (name.replace("`", "``") for name in (ODD_TABLE, ODD_COLUMN, ODD_KEY))
    outside.execute(f"CREATE TABLE `{odd_table}` (`{odd_key}` TEXT, `{odd_column}` INTEGER, day DATE, ok BOOLEAN)")
    rows = [(text, index, "2026-01-02", index % 2) for index, text in enumerate(HOSTILE)]
    outside.executemany(f"INSERT INTO `{odd_table}` VALUES (?, ?, ?, ?)", rows)
    outside.execute(
        "CREATE TABLE typed (i INTEGER, t VARCHAR(9), r REAL, d DECIMAL(9, 2), b BLOB, m DATETIME, n INT, x)"
    )
    outside.execute("INSERT INTO typed VALUES (1, 't', 0.5, 2.5, x'00ff', '2026-01-02 03:04:05', NULL, 7)")
    outside.commit()
    outside.close()
    return path


def test_strange_names_and_hostile_values_are_only_names_and_values(database: str) -> None:
    table = SqliteTable({"path": database, "table": ODD_TABLE})
    assert table.fields()[:2] == (Field(ODD_KEY, "string"), Field(ODD_COLUMN, "bigint"))
    assert table.size() == len(HOSTILE)
    asked = LookupClient("t", table, Asking(batch=4), lambda: 0, Sleeps())
    found = asked.matches(LookupRequest((ODD_COLUMN,), (ODD_KEY,)), [(text,) for text in (*HOSTILE, "no such")])
    assert {key: rows.to_pylist() for key, rows in found.items()} == {
        (text,): [{ODD_COLUMN: index}] for index, text in enumerate(HOSTILE)
    }
    both = asked.matches(
        LookupRequest(("ok",), (ODD_KEY, ODD_COLUMN)), [(HOSTILE[0], 0), (HOSTILE[1], 0), (HOSTILE[3], 3)]
    )
    assert {key: rows.to_pylist() for key, rows in both.items()} == {
        (HOSTILE[0], 0): [{"ok": False}],
        (HOSTILE[3], 3): [{"ok": True}],
    }
    days = asked.matches(LookupRequest(("day",), ("day", "ok")), [(date(2026, 1, 2), True), (date(2026, 1, 3), True)])
    assert {key: rows.num_rows for key, rows in days.items()} == {(date(2026, 1, 2), True): 4}
    assert table.size() == len(HOSTILE)


def test_many_keys_fit_into_what_sqlite_takes(database: str) -> None:
    table = SqliteTable({"path": database, "table": "typed"})
    assert table.fetch(("t",), ("i", "t"), [(key, "t") for key in range(5000)]).to_pylist() == [{"t": "t"}]


def test_values_have_the_types_of_their_columns(database: str) -> None:
    table = SqliteTable({"path": database, "table": "typed"})
    types = ["bigint", "string", "double", "decimal(9,2)", "binary", "timestamp", "bigint", "string"]
    assert [field.type for field in table.fields()] == types
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert list(table.read().to_pylist()[0].values()) == [
        1, "t", 0.5, Decimal("2.50"), b"\x00\xff", moment, None, "7",
    ]  # fmt: skip
    narrow = SqliteTable({"path": database, "table": "typed"}, (Field("X", "int"), Field("t", "string")))
    assert narrow.fields() == (Field("x", "int"), Field("t", "string"))
    assert narrow.read().to_pylist() == [{"x": 7, "t": "t"}]
    wrong = SqliteTable({"path": database, "table": "typed"}, (Field("t", "int"),))
    with pytest.raises(SourceError, match=r"a value of typed\.t is no INT"):
        wrong.read()


def test_what_is_not_there_is_told_at_once(database: str) -> None:
    with pytest.raises(WrongOption, match="has no table typo") as no_table:
        open_source("sqlite", {"path": database, "table": "typo", "batch": 3}).fields()
    assert no_table.value.option == "table" and "typed" in str(no_table.value.hint)
    with pytest.raises(WrongOption, match="no file"):
        open_source("sqlite", {"path": "/no/such.db", "table": "t"}).fields()
    with pytest.raises(NoColumn):
        open_source("sqlite", {"path": database, "table": "typed"}, (Field("j", "int"),)).fields()
    with pytest.raises(SourceError, match="sqlite needs the option table"):
        open_source("sqlite", {"path": database})
    with pytest.raises(WrongOption, match="no option tabel"):
        open_source("sqlite", {"path": database, "tabel": "t"})


def test_a_column_that_is_gone_is_an_error_and_a_database_that_is_locked_is_asked_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.sources.sqlite.PATIENCE", 0.0)
    table, sleeps = SqliteTable({"path": database, "table": "typed"}), Sleeps()
    table.fields()
    other = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")

    def sleep(seconds: float) -> bool:
        if len(sleeps.taken) == 1:
            other.execute("COMMIT")
        return sleeps(seconds)

    asked = LookupClient("typed", table, Asking(), lambda: 0, sleep)
    assert asked.matches(LookupRequest(("t",), ("i",)), [(1,)])[(1,)].to_pylist() == [{"t": "t"}]
    assert sleeps.taken == [0.1, 0.2]
    other.execute("ALTER TABLE typed RENAME COLUMN t TO u")
    with pytest.raises(SourceError, match="no such column"):
        asked.matches(LookupRequest(("t",), ("i",)), [(1,)])
    assert len(sleeps.taken) == 2
