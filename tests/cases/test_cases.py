"""Every case folder gives its expected rows: as a finite query over files, and as a view for any cut and order."""

from __future__ import annotations

import csv
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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


def streams() -> dict[str, Path]:
    """All streams of all cases in one home: `Bid`, say, is another one where a case gives it other rows."""
    found: dict[str, tuple[str, Path]] = {}
    for case in CASES:
        for stream, path in inputs(case).items():
            found.setdefault(path.read_text(), (f"{stream}{len(found)}", path))
    return dict(found.values())


def query(case: str) -> str:
    """The query of a case, over the streams of that home."""
    names = {path.read_text(): name for name, path in streams().items()}
    text = (HERE / case / "query.sql").read_text()
    for stream, path in inputs(case).items():
        text = re.sub(rf"\b{stream}\b", names[path.read_text()], text)
    return text


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    header, cells = read(path)
    return [tuple(map(value, header, row)) for row in cells]


def check_read(home: Harness, case: str, text: str) -> None:
    table = home.session.sql(text).toArrow()
    check(case, table.column_names, [tuple(row.values()) for row in table.to_pylist()])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Harness]:
    with Harness(tmp_path_factory.mktemp("files") / "home", spark) as home:
        for stream, path in streams().items():
            home.sql(create(stream, path, f" FROM files(path => '{path}', header => true)"))
        yield home


@pytest.mark.parametrize("case", CASES)
def test_as_a_finite_query_over_files(case: str, files: Harness) -> None:
    check_read(files, case, query(case))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A home with two views of every case, to be copied: to plan them takes longer than a few rows do."""
    folder = tmp_path_factory.mktemp("cases") / "home"
    with Harness(folder, spark) as home:
        for stream, path in streams().items():
            home.sql(create(stream, path))
        for case in CASES:
            home.sql(f"CREATE VIEW {case} AS {query(case)}; CREATE VIEW {case}_changes AS {query(case)} EMIT CHANGES")
    return folder


@pytest.mark.parametrize(("size", "mixed"), [pytest.param(2, True, marks=pytest.mark.slow), (5, False), (100, True)])
def test_as_views_for_any_cut_and_order(
    made: Path, tmp_path: Path, spark: SparkSession, size: int, mixed: bool
) -> None:
    """Every case shows its answer, and its changes add up to it."""
    chance = random.Random(size)
    runs = []
    for stream, path in streams().items():
        rows = shuffled(rows_of(path), chance) if mixed else rows_of(path)
        runs += [(stream, rows[at : at + size]) for at in range(0, len(rows), size)]
    shutil.copytree(made, tmp_path / "home")
    with Harness(tmp_path / "home", spark) as home:
        for stream, rows in shuffled(runs, chance) if mixed else runs:
            home.insert(stream, rows)
        for case in CASES:
            check_read(home, case, f"SELECT * FROM {case}")
            check(case, read(HERE / case / "expected.csv")[0], home.emitted(f"{case}_changes"))


def test_as_views_that_emit_when_a_window_closes(home: Harness) -> None:
    cases = [case for case in CASES if case.endswith("_sum")]
    used = {stream: path for stream, path in streams().items() if any(stream in query(case) for case in cases)}
    for stream, path in used.items():
        home.sql(create(stream, path))
    for case in cases:
        home.sql(f"CREATE VIEW {case} AS {query(case)} EMIT ON WINDOW CLOSE")
    for stream, path in used.items():
        home.insert_runs(stream, [[row] for row in shuffled(rows_of(path), random.Random(stream))])
        home.advance(stream)
    for case in cases:
        check_read(home, case, f"SELECT * FROM {case}")
        assert home.emitted(case) == home.table(case)
