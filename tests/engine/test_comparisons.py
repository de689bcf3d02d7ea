"""Tables outside that are asked by comparisons: nothing is missed that the comparison of the values themselves finds,
however SQLite keeps them."""

from __future__ import annotations

import math
import random
import sqlite3
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from anabranch.engine.lookup_client import LookupClient, LookupRequest
from anabranch.ir.expr import Expr
from anabranch.ir.logic import compared
from anabranch.plan.lookup_keys import value_type
from anabranch.sources.lookup import Asking
from anabranch.sources.sqlite import SqliteTable
from anabranch.sql.lexer import tokenize
from anabranch.types import Field
from engine.outside_help import COMPARE, FakeTable

UTC = timezone.utc
SIGNS = ("=", "<>", "<", "<=", ">", ">=")
#: For each type, the types that columns were declared as outside, what may be stored there, and values to compare with.
STORED: dict[str, tuple[tuple[str, ...], list[Any], list[Any]]] = {
    "int": (
        ("INTEGER", "TEXT", "", "REAL", "NUMERIC"),
        [-5, 0, 7, 12, 300, "12", " 7", "012", None],
        [-5, 6, 7, 12, 300, 10**12, Decimal("6.5"), Decimal("7.00")],
    ),
    "double": (
        ("REAL", "NUMERIC", "TEXT", ""),
        [0.1, 0.5, -2, 2**53 + 1, "0.1", "1e3", 0.30000000000000004, -0.0, None],
        [0.1, 0.3, 0.30000000000000004, 0.0, 2.0**53, 1e3, math.inf, -math.inf, math.nan],
    ),
    "decimal(9,2)": (
        ("DECIMAL(9, 2)", "TEXT", "REAL", ""),
        [2.5, 2.345, 2.355, 1, "2.34", "7", 0.1 + 0.2, None],
        [Decimal("2.34"), Decimal("2.345"), Decimal("2.36"), Decimal("0.30"), Decimal(7), Decimal("2.500")],
    ),
    "decimal(18,3)": (
        ("DECIMAL(18, 3)", "TEXT"),
        [123456789012345.678, "123456789012345.678", 123456789012345, "-0.0005", None],
        [Decimal("123456789012345.678"), Decimal("123456789012345.677"), Decimal("-0.001"), Decimal(0)],
    ),
    "string": (
        ("TEXT", "TEXT COLLATE NOCASE", "", "INTEGER", "REAL"),
        ["a", "B", "b", "", "é", "😀", "￿", "12", 12, 1e20, 0.5, b"b", "!", "a\0b", None],
        ["a", "B", "b", "", "é", "😀", "12", "0", "1e+20", "c", "a\0b"],
    ),
    "date": (
        ("DATE", "TEXT", ""),
        ["2026-01-02", "2026-01-02 23:59:59", "2025-12-31", "9999-12-31", "0001-01-01", None],
        [date(2026, 1, 2), date(2026, 1, 1), date.max, date.min, date(2025, 12, 31)],
    ),
    "timestamp": (
        ("DATETIME", "TEXT", ""),
        [
            "2026-01-02 03:04:05", "2026-01-02T03:04:05+12:00", "2026-01-02T03:04:05.250-11:30", "2026-01-02",
            "2026-01-02T03:04:05Z", "0001-01-01 00:00:00", "9999-12-31 23:59:59", None,
        ],
        [
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 1, 1, 15, 4, 5, tzinfo=UTC),
            datetime(2026, 1, 2, 14, 34, 5, 250_000, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
    ),
}  # fmt: skip

NOT_IN_TEXTS: dict[str, list[Any]] = {
    "int": [7.0], "double": [math.inf], "timestamp": [1767323045, 1767323045.5]
}  # fmt: skip


def spark_compares(stored: Any, sign: str, value: Any) -> bool:
    """As Spark does: NULL with nothing, NaN equals NaN and is greater than any number."""
    if stored is None:
        return False
    if isinstance(value, float):
        stored, value = ((math.isnan(each), 0.0 if math.isnan(each) else each) for each in (stored, value))
    return COMPARE[sign](stored, value)


@pytest.mark.parametrize("type", STORED)
def test_nothing_is_missed_however_a_value_is_kept(tmp_path: Path, type: str) -> None:
    declared, stored, values = STORED[type]
    path = str(tmp_path / "kept.db")
    with sqlite3.connect(path) as outside:
        for number, kind in enumerate(declared):
            outside.execute(f"CREATE TABLE t{number} (id INTEGER, `x{{0}}` {kind})")
            own = [*stored, *(NOT_IN_TEXTS.get(type, []) if kind != "TEXT" else [])]
            outside.executemany(f"INSERT INTO t{number} VALUES (?, ?)", list(enumerate(own)))
            if number % 2:
                outside.execute(f"CREATE INDEX i{number} ON t{number} (`x{{0}}`)")
    for number in range(len(declared)):
        table = SqliteTable({"path": path, "table": f"t{number}"}, (Field("id", "bigint"), Field("x{0}", type)))
        rows = [tuple(row.values()) for row in table.read().to_pylist()]
        asker = LookupClient("t", table, Asking(batch=3), lambda: 0, lambda _: False)
        for sign in SIGNS:
            found = asker.matches(LookupRequest(("id",), ("x{0}",), (sign,)), [(value,) for value in values])
            for value in values:
                expected = {id for id, x in rows if spark_compares(x, sign, value)}
                got = {row["id"] for row in found[(value,)].to_pylist()} if (value,) in found else set()
                exact = not (isinstance(value, float) and math.isnan(value))
                assert got == expected if exact else got >= expected, (declared[number], sign, value)


def test_equality_goes_by_the_type_that_a_column_is_given(tmp_path: Path) -> None:
    path = str(tmp_path / "given.db")
    kept = [(7, "012", "2026-01-02 03:04:05", 2, "x"), ("7", " 12", "2026-01-02", 0, b"x"), (0.5, "1", None, 1, None)]
    with sqlite3.connect(path) as outside:
        outside.execute("CREATE TABLE t (s, i TEXT, d DATETIME, b INTEGER, x TEXT)")
        outside.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", kept)
    types = [("s", "string"), ("i", "int"), ("d", "date"), ("b", "boolean"), ("x", "binary")]
    table = SqliteTable({"path": path, "table": "t"}, tuple(Field(*each) for each in types))
    asker = LookupClient("t", table, Asking(), lambda: 0, lambda _: False)
    rows = table.read().to_pylist()
    for by in ("s", "i", "d", "b", "x"):
        keys = list(dict.fromkeys((row[by],) for row in rows if row[by] is not None))
        found = {key: each.num_rows for key, each in asker.matches(LookupRequest(("i",), (by,)), keys).items()}
        assert found == {key: sum(row[by] == key[0] for row in rows) for key in keys}
    assert asker.matches(LookupRequest(("i",), ("s", "i")), [("7", 12), ("0.5", 1), ("7", 1)]).keys() == {
        ("7", 12),
        ("0.5", 1),
    }


LIKES = ["a%", "A_", "\\%", "%", "a\0%b", "_", "12", "é_"]


def test_patterns_are_matched_by_either_side(tmp_path: Path) -> None:
    path = str(tmp_path / "likes.db")
    texts = ["ab", "a", "%", "Ab", "é!", "a\0xb", None]
    with sqlite3.connect(path) as outside:
        outside.execute("CREATE TABLE t (name TEXT, pattern TEXT)")
        outside.executemany("INSERT INTO t VALUES (?, ?)", [(text, None) for text in texts])
        outside.executemany("INSERT INTO t VALUES (?, ?)", [(None, text) for text in LIKES])
    asker = LookupClient("t", SqliteTable({"path": path, "table": "t"}), Asking(), lambda: 0, lambda _: False)
    names = asker.matches(LookupRequest(("name",), ("name",), ("LIKE",)), [(text,) for text in LIKES])
    assert {"ab", "a"} <= {row["name"] for row in names[("a%",)].to_pylist()}
    assert [row["name"] for row in names[("\\%",)].to_pylist() if "\0" not in row["name"]] == ["%"]
    assert "a\0xb" in {row["name"] for row in names[("a\0%b",)].to_pylist()}
    patterns = asker.matches(LookupRequest(("pattern",), ("pattern",), ("LIKED BY",)), [("ab",), ("%",), ("é!",)])
    plain = {key[0]: {row["pattern"] for row in rows.to_pylist()} - {"a\0%b"} for key, rows in patterns.items()}
    assert plain == {"ab": {"a%", "A_", "%"}, "%": {"\\%", "%", "_"}, "é!": {"%", "é_"}}


def test_a_key_gets_all_its_rows_and_each_row_all_its_keys(tmp_path: Path) -> None:
    """Ranges that overlap, in batches, with failures and more rows than asked for, beside SQLite."""
    chance = random.Random(3)
    rows = [(id, *sorted((chance.randrange(40), chance.randrange(40)))) for id in range(60)] + [(60, None, 50)]
    fields = [("id", "bigint"), ("low", "int"), ("high", "int")]
    fake = FakeTable(fields, rows)
    path = str(tmp_path / "ranges.db")
    with sqlite3.connect(path) as outside:
        outside.execute("CREATE TABLE t (id INTEGER, low INTEGER, high INTEGER)")
        outside.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    keys = [(x, x) for x in (None, *range(-2, 43))] * 2
    expected = {
        (x, x): [{"id": id} for id, low, high in rows if low is not None and low <= x < high] for x in range(-2, 43)
    }
    question = LookupRequest(("id",), ("low", "high"), ("<=", ">"))
    for loose in (False, True):
        fake.loose, fake.failures, fake.asked = loose, 3, []
        asker = LookupClient("t", fake, Asking(batch=7, requests=3, cache=10), lambda: 0, lambda _: False)
        found = {key: each.to_pylist() for key, each in asker.matches(question, keys).items()}
        assert found == {key: each for key, each in expected.items() if each}
        assert asker.tally.retries == 3 and asker.tally.keys == 45 and asker.tally.requests == 10
        assert asker.matches(question, keys).keys() == found.keys() and asker.tally.remembered == 45
    sqlite = LookupClient("t", SqliteTable({"path": path, "table": "t"}), Asking(batch=500), lambda: 0, lambda _: False)
    assert {key: each.to_pylist() for key, each in sqlite.matches(question, keys).items()} == found
    many = [(key, key) for key in range(3000)]
    assert len(sqlite.matches(question, many)) == len([key for key in expected if expected[key] and key[0] >= 0])


def test_what_compares_is_found_in_conditions() -> None:
    def told(text: str) -> list[tuple[str, str, str]]:
        condition = Expr(tuple(token.text for token in tokenize(text)[:-1]))
        return [
            ("".join(map(str, left.parts)), sign, "".join(map(str, right.parts)))
            for left, sign, right in compared(condition)
        ]

    assert told("t.a <= s.b + 1") == [("t.a", "<=", "s.b+1")]
    assert told("f(s.a = 1) != t.b") == [("f(s.a=1)", "!=", "t.b")]
    assert told("s.x + 1 BETWEEN t.lo AND t.hi") == [("s.x+1", ">=", "t.lo"), ("s.x+1", "<=", "t.hi")]
    assert told("s.n LIKE t.p") == [("s.n", "LIKE", "t.p")]
    for other in (
        "t.a = s.b IS NULL", "NOT t.a = s.b", "s.n LIKE t.p ESCAPE '!'", "s.n NOT LIKE t.p", "t.a <=> s.b",
        "t.a NOT BETWEEN s.b AND s.c", "t.a < s.b = true", "t.a BETWEEN s.b AND s.c = 1",
        "! s.b = t.a", "t.a = s.b <=> s.c",
    ):  # fmt: skip
        assert told(other) == []
    assert value_type("decimal(30,1)", "decimal(38,10)") == "" and value_type("boolean", "boolean") == ""
    assert value_type("decimal(9,2)", "decimal(12,4)") == "decimal(12,4)" and value_type("float", "float") == ""


def test_days_and_times_at_the_ends_of_the_calendar_have_bounds() -> None:
    from anabranch.sources.sqlite_conditions import condition

    last = condition("c", "TEXT", "date", "<=").values(date.max)[0]
    assert last > "9999-12-31 23:59:59"
    early = condition("c", "TEXT", "timestamp", ">=").values(datetime.min.replace(tzinfo=UTC) + timedelta(days=1))
    assert early[0] == ""
