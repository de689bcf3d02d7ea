"""Tables of DuckDB files: plain types as they are, all others as texts; read alone, and nothing beside the file."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from anabranch.errors import SourceError
from anabranch.sources.duckdb_table import DuckDbTable
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
