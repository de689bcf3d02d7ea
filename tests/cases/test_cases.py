"""Every case folder gives its expected rows: as a finite query over files, and as a view for any cut and order."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch
from anabranch.testing import Harness, shuffled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/query.sql"))
TYPES = {
    "bidtime": "TIMESTAMP",
    "row_time": "TIMESTAMP",
    "price": "DECIMAL(10, 2)",
    "num": "INT",
    "item": "STRING",
    "supplier_id": "STRING",
    "id": "STRING",
}

Texts = list[tuple[str, ...]]


def read(path: Path) -> tuple[list[str], Texts]:
    with path.open(newline="") as lines:
        header, *rows = csv.reader(lines)
    return header, [tuple(row) for row in rows]


def inputs(case: str) -> dict[str, Path]:
    """The streams of a case and their files."""
    return {path.stem.partition("_")[2] or "Bid": path for path in sorted((HERE / case).glob("input*.csv"))}


def create(stream: str, path: Path, source: str = "") -> str:
    header, _ = read(path)
    time = next(name for name in header if TYPES[name] == "TIMESTAMP")
    columns = ", ".join(f"{name} {TYPES[name]}" for name in header)
    return f"CREATE STREAM {stream} ({columns}, WATERMARK FOR {time} AS {time} - INTERVAL '1' SECOND){source};"


def value(name: str, text: str) -> Any:
    """A cell as its column holds it."""
    if text == "":
        return None
    kind = TYPES[name]
    if kind == "TIMESTAMP":
        return datetime.fromisoformat(text)
    if kind == "INT":
        return int(text)
    return Decimal(text) if kind.startswith("DECIMAL") else text


def text(value: Any) -> str:
    """A value as it stands in expected.csv."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        whole, _, fraction = value.replace(tzinfo=None).isoformat(sep=" ").partition(".")
        return f"{whole}.{fraction.rstrip('0')}" if fraction else whole
    return str(value)


def check(case: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    header, wanted = read(HERE / case / "expected.csv")
    assert list(columns) == header
    assert sorted(tuple(text(value) for value in row) for row in rows) == sorted(wanted)


@pytest.mark.parametrize("case", CASES)
def test_as_a_finite_query_over_files(case: str, spark: SparkSession) -> None:
    with anabranch.connect(spark=spark) as session:
        for stream, path in inputs(case).items():
            session.sql(create(stream, path, f" FROM files(path => '{path}', header => true)"))
        table = session.sql((HERE / case / "query.sql").read_text()).toArrow()
    check(case, table.column_names, [tuple(row.values()) for row in table.to_pylist()])


@pytest.mark.parametrize("case", CASES)
def test_as_a_view_for_any_cut_and_order(case: str, spark: SparkSession) -> None:
    query = (HERE / case / "query.sql").read_text()
    chance = random.Random(case)
    with Harness(None, spark) as home:
        for size, mixed in ((1, True), (2, False), (100, True)):
            for stream, path in inputs(case).items():
                home.sql(create(stream, path))
            home.sql(f"CREATE VIEW answer AS {query}")
            for stream, path in inputs(case).items():
                header, cells = read(path)
                rows = [tuple(map(value, header, row)) for row in cells]
                rows = shuffled(rows, chance) if mixed else rows
                home.insert_runs(stream, [rows[at : at + size] for at in range(0, len(rows), size)])
            columns = home.session.sql("SELECT * FROM answer").columns
            check(case, columns, home.table("answer"))
            for stream in inputs(case):
                home.sql(f"DROP STREAM {stream} CASCADE")


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("_sum")])
def test_as_a_view_that_emits_when_a_window_closes(case: str, spark: SparkSession) -> None:
    query = (HERE / case / "query.sql").read_text()
    path = HERE / case / "input.csv"
    header, cells = read(path)
    rows = [tuple(map(value, header, row)) for row in cells]
    with Harness(None, spark) as home:
        home.sql(create("Bid", path))
        home.sql(f"CREATE VIEW answer AS {query} EMIT ON WINDOW CLOSE")
        home.insert_runs("Bid", [[row] for row in shuffled(rows, random.Random(case))])
        home.advance("Bid")
        check(case, home.session.sql("SELECT * FROM answer").columns, home.table("answer"))
        assert home.emitted("answer") == home.table("answer")
