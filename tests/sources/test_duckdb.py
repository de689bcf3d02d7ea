"""Tables of DuckDB files: plain types as they are, all others as texts; read alone, and nothing beside the file."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch.errors import SourceError
from anabranch.sources.duckdb_table import DuckDbTable
from anabranch.sources.lookup import Comparison
from anabranch.sources.wanted import All, Not, Order, Test, Wanted
from anabranch.types import Field


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "crm.duckdb")
    with duckdb.connect(path) as database:
        for text in (
            "CREATE TABLE t (id INTEGER, big HUGEINT, \"na\"\"me\" VARCHAR, d DECIMAL(9,2), ts TIMESTAMP, zoned"
            " TIMESTAMPTZ, day DATE, l INTEGER[], u UUID, e ENUM ('x', 'y'), raw BLOB)",
            "INSERT INTO t VALUES (1, 17014118346046923173168730371588410572, 'o''hara', 1.5, '2026-01-02 03:04:05.5',"
            " '2026-01-02 03:00:00+02', '2026-01-02', [1, NULL], '00000000-0000-0000-0000-000000000001', 'y', 'ab'),"
            " (2, NULL, 'bob', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (NULL, 3, NULL, 2, NULL, NULL, NULL,"
            " NULL, NULL, NULL, NULL)",
            "CREATE VIEW names AS SELECT id AS n FROM t WHERE id IS NOT NULL",
            "CREATE SCHEMA other; CREATE TABLE other.t AS SELECT 7 AS seven",
            f"COPY (SELECT 1 AS one) TO '{tmp_path}/one.csv'",
            f"CREATE VIEW elsewhere AS SELECT * FROM read_csv('{tmp_path}/one.csv')",
        ):  # fmt: skip
            database.execute(text)
    return path


def test_plain_types_stay_and_others_are_texts(path: str) -> None:
    table = DuckDbTable({"path": path, "table": "t"})
    assert [field.type for field in table.fields()] == [
        "int", "decimal(38,0)", "string", "decimal(9,2)", "timestamp", "timestamp", "date", "string", "string",
        "string", "binary",
    ]  # fmt: skip
    first = next(row for row in table.read().to_pylist() if row["id"] == 1)
    assert list(first.values()) == [
        1, Decimal(17014118346046923173168730371588410572), "o'hara", Decimal("1.50"),
        datetime(2026, 1, 2, 3, 4, 5, 500000, tzinfo=timezone.utc), datetime(2026, 1, 2, 1, tzinfo=timezone.utc),
        date(2026, 1, 2), "[1, NULL]", "00000000-0000-0000-0000-000000000001", "y", b"ab",
    ]  # fmt: skip
    assert table.size() == 3 and DuckDbTable({"path": path, "table": "names"}).size() == 2
    assert DuckDbTable({"path": path, "table": "t", "schema": "other"}).read().to_pylist() == [{"seven": 7}]


def test_keys_are_bound_and_found_by_the_types_that_were_declared(path: str) -> None:
    table = DuckDbTable({"path": path, "table": "t"})
    found = table.fetch(("id",), ('na"me', "id"), [("o'hara", 1), ("bob", 1), ("x' OR 1=1 --", 2)])
    assert found.to_pylist() == [{"id": 1}]
    texts = DuckDbTable({"path": path, "table": "t"}, (Field("ID", "string"), Field("d", "double")))
    assert texts.fetch(("d", "id"), ("id",), [("1",), ("01",)]).to_pylist() == [{"d": 1.5, "id": "1"}]


def test_what_cannot_be_read_is_told(path: str, tmp_path: Path) -> None:
    def refused(message: str, declared: tuple[Field, ...] | None = None, **options: str) -> None:
        with pytest.raises(SourceError, match=message):
            DuckDbTable({"path": path, "table": "t", **options}, declared).read()

    refused("has no table u", table="u")
    refused("there is no file", path=str(tmp_path / "none.duckdb"))
    refused("the table has no column nmae", (Field("nmae", "string"),))
    refused("Could not convert", (Field('na"me', "int"),))
    refused("disabled by configuration", table="elsewhere")
    (tmp_path / "text.duckdb").write_text("hello")
    refused("not a valid DuckDB", path=str(tmp_path / "text.duckdb"))


def test_long_lists_are_one_value(path: str) -> None:
    table = DuckDbTable({"path": path, "table": "t"})
    for column, values in (
        ("id", range(2, 4000)),
        ("d", [Decimal(n) for n in range(3, 400)]),
        ('na"me', map(str, range(200))),
    ):
        condition = All((Not(Test(column, "IN", tuple(values))), Test(column, "IS NOT NULL")))
        assert len(table.question(Wanted(("id",), condition))[1]) == 1
        found = table.read(Wanted(("id",), condition, (Order("id", False, False),), 9)).to_pylist()
        assert [row["id"] for row in found] == {"id": [1], "d": [1, None]}.get(column, [1, 2])


SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def test_comparisons_miss_nothing_that_python_finds(tmp_path: Path) -> None:
    path = str(tmp_path / "compared.duckdb")
    utc = timezone.utc
    rows: list[tuple[Any, ...]] = [
        (1, 7, "ann", 1.5, Decimal("1.50"), date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=utc)),
        (2, -(2**31), "Ann", -0.0, Decimal("-2.00"), date(1, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=utc)),
        (3, 0, "a\0", float("inf"), Decimal("1.51"), date(9999, 12, 31), datetime(1999, 12, 31, tzinfo=utc)),
        (4, None, "ä", None, None, None, None), (5, 2**31 - 1, None, 0.0, Decimal(0), None, None),
    ]  # fmt: skip
    with duckdb.connect(path) as database:
        database.execute(
            "CREATE TABLE t (id INTEGER, n INTEGER, name VARCHAR COLLATE NOCASE, r DOUBLE, d DECIMAL(9,2), day DATE,"
            " ts TIMESTAMP)"
        )
        for row in rows:
            plain = [each.replace(tzinfo=None) if isinstance(each, datetime) else each for each in row]
            database.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", plain)
    table = DuckDbTable({"path": path, "table": "t"})
    assert table.fetch(("id",), ("n", "name"), [(7, "ann"), (7, "Ann"), (2**40, "ann")]).to_pylist() == [{"id": 1}]
    names = [field.name for field in table.fields()]
    chance = random.Random(1)
    values: list[list[Any]] = [
        [1], [7, 2**40, Decimal("6.5"), 6.5], ["ann", "ANN", "a\0", "", "ä"], [0.0, 1.5, 1], [Decimal("1.505"), 1],
        [date(2026, 1, 1), date.max], [datetime(2026, 1, 1, tzinfo=utc), datetime.max.replace(tzinfo=utc)],
    ]  # fmt: skip
    for _ in range(100):
        used = chance.sample(range(7), chance.randint(1, 2))
        signs = [chance.choice(list(SIGNS)) for _ in used]
        kinds = [type(chance.choice(values[index])) for index in used]  # a key has one type for all rows
        keys = [
            tuple(chance.choice([v for v in values[i] if type(v) is k]) for i, k in zip(used, kinds, strict=True))
            for _ in "ab"
        ]
        found, places = table.search(
            ("id",), tuple(Comparison(names[i], s) for i, s in zip(used, signs, strict=True)), keys
        )
        got = set(zip(found.column("id").to_pylist(), places, strict=True))
        for place, key in enumerate(keys):
            for row in rows:
                own = [row[index] for index in used]
                if all(v is not None and SIGNS[s](v, k) for v, s, k in zip(own, signs, key, strict=True)):
                    assert (row[0], place) in got, (used, signs, key, row)
    for sign, value in (("LIKE", "an_"), ("LIKED BY", "x")):
        found, _ = table.search(("id",), (Comparison("name", sign),), [(value,)])
        assert set(found.column("id").to_pylist()) == {1, 2, 3, 4}
