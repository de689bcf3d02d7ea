"""All 26 NEXMark queries as live views: made after the data, before it, and with mixed rows in small runs and a kill.

Rows and answers are those of RisingWave's end-to-end tests (Apache-2.0), the queries in Spark's spelling. A line of an
answer has its columns separated by blanks, in PostgreSQL's manner.
"""

from __future__ import annotations

import csv
import random
import re
import shutil
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.testing import Harness, crashing, shuffled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
QUERIES = dict(re.findall(r"-- (q\d+)\n(.*?);\n", (HERE / "queries.sql").read_text(), re.S))
TYPES = {
    "date_time": "TIMESTAMP",
    "expires": "TIMESTAMP",
    **dict.fromkeys(("id", "auction", "bidder", "price", "seller", "category", "initial_bid", "reserve"), "BIGINT"),
}
STREAMS = ("person", "auction", "bid")
#: Those whose changes need no Spark job.
CHEAP = tuple(f"q{number}" for number in (0, 2, 3, 4, 5, 6, 7, 8, 9, 18, 19, 20, 101, 105, 106))
#: How many rows of a stream are there when the views are made.
THERE = 8
Row = tuple[Any, ...]


def rows(stream: str) -> tuple[list[str], list[Row]]:
    """The columns and rows of a stream."""
    with (HERE / f"{stream}.csv").open(newline="") as lines:
        header, *cells = csv.reader(lines)
    kinds = [TYPES.get(name, "STRING") for name in header]
    make = {"TIMESTAMP": datetime.fromisoformat, "BIGINT": int, "STRING": str}
    return header, [tuple(make[kind](cell) for kind, cell in zip(kinds, row, strict=True)) for row in cells]


def create(stream: str) -> str:
    header, _ = rows(stream)
    columns = ", ".join(f"{name} {TYPES.get(name, 'STRING')}" for name in header)
    return f"CREATE STREAM {stream} ({columns}, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)"


def views(clause: str = "", names: Iterable[str] = tuple(QUERIES)) -> str:
    return "; ".join(f"CREATE VIEW {name} AS {QUERIES[name]}{clause}" for name in names)


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        whole, _, fraction = value.replace(tzinfo=None).isoformat(sep=" ").partition(".")
        return f"{whole}.{fraction.rstrip('0')}" if fraction else whole
    if isinstance(value, float | Decimal):
        return number(str(value))
    return str(value)


def number(text: str) -> str:
    """A number to four decimals, without trailing zeros."""
    shown = f"{Decimal(text):.4f}"
    return shown.rstrip("0").rstrip(".")


def line(text: str) -> str:
    """A line with folded blanks, its decimals as `number` has them, its times without zeros at their end."""
    words = [number(word) if re.fullmatch(r"-?\d+\.\d+", word) else word for word in text.split()]
    return " ".join(re.sub(r"(:\d\d\.\d*?)0+$", r"\1", word) for word in words)


def check(home: Harness, *, emitted: bool = False, names: Iterable[str] = tuple(QUERIES)) -> None:
    """Every view shows its answer; or its changes add up to it."""
    wrong = []
    for name in names:
        wanted = sorted(line(each) for each in (HERE / f"{name}.txt").read_text().splitlines())
        rows_now = home.emitted(name) if emitted else home.table(name)
        got = sorted(line(" ".join(map(cell, row))) for row in rows_now)
        if got != wanted:
            wrong.append((name, sorted(set(got) - set(wanted))[:3], sorted(set(wanted) - set(got))[:3]))
    assert not wrong, wrong


def test_views_made_after_the_data(home: Harness) -> None:
    home.sql("; ".join(map(create, STREAMS)))
    for stream in STREAMS:
        home.insert_runs(stream, [rows(stream)[1][:7], rows(stream)[1][7:]])
    home.sql(views())
    check(home)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A home with all views and a few rows, to be copied: to plan the views takes longer than rows do."""
    folder = tmp_path_factory.mktemp("nexmark") / "home"
    with Harness(folder, spark) as home:
        home.sql("; ".join(map(create, STREAMS)))
        for stream in STREAMS:
            home.insert(stream, rows(stream)[1][:THERE])
        home.sql(views(" EMIT CHANGES"))
    return folder


@pytest.mark.parametrize("size", [4, *(pytest.param(size, marks=pytest.mark.slow) for size in (14, 25, 50))])
def test_changes_add_up_to_the_answers_whatever_the_size_of_runs(
    made: Path, tmp_path: Path, spark: SparkSession, size: int
) -> None:
    """The quick ones in small runs; all 26 in larger ones in the soak. Rows and streams are mixed."""
    names = CHEAP if size == 4 else tuple(QUERIES)
    chance = random.Random(size)
    runs = []
    for stream in STREAMS:
        mixed = shuffled(rows(stream)[1][THERE:], chance)
        runs += [(stream, mixed[start : start + size]) for start in range(0, len(mixed), size)]
    shutil.copytree(made, tmp_path / "home")
    with Harness(tmp_path / "home", spark) as home:
        home.sql("; ".join(f"DROP VIEW {name}" for name in QUERIES if name not in names))
        for stream, given in shuffled(runs, chance):
            home.insert(stream, given)
        check(home, emitted=True, names=names)
        if size == 50:
            check(home)


def mixed_runs() -> list[tuple[str, list[Row]]]:
    """The rows of all streams that are not there, shuffled, cut at random into runs, in any order of the streams."""
    chance = random.Random(26)
    runs = []
    for stream in STREAMS:
        mixed = shuffled(rows(stream)[1][THERE:], chance)
        while mixed:
            size = chance.randint(1, 20)
            runs.append((stream, mixed[:size]))
            mixed = mixed[size:]
    return shuffled(runs, chance)


def one_insert(home: str, stream: str, given: list[Row]) -> None:
    with Harness(home) as harness:
        harness.insert(stream, given)


@pytest.mark.crash
@pytest.mark.slow
def test_mixed_rows_small_runs_compactions_and_a_kill(made: Path, tmp_path: Path, spark: SparkSession) -> None:
    """Killed half way, with changes written and not yet recorded; a run once more, and then the others."""
    home = tmp_path / "home"
    shutil.copytree(made, home)
    runs = mixed_runs()
    middle = len(runs) // 2

    def insert(harness: Harness, some: list[tuple[str, list[Row]]]) -> None:
        for at, (stream, given) in enumerate(some):
            harness.insert(stream, given)
            if at % 3 == 2:
                harness.compact()

    with Harness(home, spark) as harness:
        insert(harness, runs[:middle])
    assert crashing("before-record", one_insert, str(home), *runs[middle])
    with Harness(home, spark) as harness:
        insert(harness, runs[middle:])
        check(harness)
        check(harness, emitted=True)
        harness.compact()
        check(harness, emitted=True)
