"""CSV columns whose types are certain have the types and the values that Spark finds in them."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from anabranch.cli.values import column_texts
from anabranch.sources.csv_grammar import OTHER, TEXT, Uncertain, certain_types, column_kind, kind_of_cell
from anabranch.sources.files import FilesSource
from anabranch.sources.files_duckdb import relation
from anabranch.sources.parts import Part
from anabranch.sources.quotes import Dialect
from anabranch.sql.text import words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = sorted(
    words("""0 -0 +0 5 +5 -5 007 -007 2147483647 2147483648 -2147483648 -2147483649 1999999999 9999999999
    9223372036854775807 9223372036854775808 123456789012345678 1234567890123456789 0000000000000000005 1.5 .5 -.5 +.5 1.
    -1. 1.0 1e5 1E5 1e-5 1e-05 1.5e-05 1.5e+3 1.234e1 1e-0 1e0 1e99 1e400 1e-400 0x10 0x1p3 1d 1f 1.5d 1_000 1_0.5 NaN
    nan Inf inf Infinity -Inf +Inf -Infinity INF --5 +-5 ٣ １２ 1.5.2 10.0.0.1 1-2 5% $5 1/2 (5) 1e e5
    0.1234567890123456789 0.1234567890123456789012345678901 12345678901234567.5 123456789012345.5 1234567890123456 0.0
    -0.0 00.5 1.50 999999999999999 4.9e-32 0.30000000000000004""")
)
TIMES = [
    "2026-01-01", "2026-1-1", "2026-01", "2026", "0001-01-01", "0000-01-01", "9999-12-31", "10000-01-01", "2026-02-30",
    "2024-02-29", "2023-02-29", "2000-02-29", "1900-02-29", "2026-13-01", "2026-04-31", "1582-10-10", "2026-01-01T",
    "2026-01-01 ", "01/02/2026", "2026/01/01", "20260101", "2026-01-01 10:00:00", "2026-01-01T10:00:00",
    "2026-01-01 10:00", "2026-01-01T10:00", "2026-01-01 10", "2026-01-01 10:00:00.5", "2026-01-01 10:00:00.123456",
    "2026-01-01 10:00:00.1234567", "2026-01-01T10:00:00Z", "2026-01-01T10:00:00.000Z", "2026-01-01 10:00:00+01:00",
    "2026-01-01 10:00:00 UTC", "2026-01-01 10:00:00 Europe/Berlin", "2026-01-01 24:00:00", "2026-01-01 10:60:00",
    "2026-01-01 23:59:59.999999", "1582-10-10 00:00:00", "1000-01-01 00:00:00", "10:00", "T10:00", "t10:00", "1:2",
    "now", "today", "epoch", "2026-01-01  10:00:00", "2026-01-01t10:00:00", "2026-1-1 1:2:3", "2026-01-01 10:00Z",
]  # fmt: skip
WORDS = [
    "true", "false", "True", "FALSE", "tRuE", "t", "f", "yes", "no", "T", "null", "NULL", "None", "abc", "hello world",
    "Ünal", "日本", "ñ5", "e", "E", "d", "x", "inf5", "truex", "UTC", "Z", "T5", "T1 UTC", "3f2a", "12ab", "1 Main St",
    "#5", "/x", "(a)", "@x", "$", "*", "<a>", "[1]", "{1}", "&", "%", "!", "?", "'x'", "~", "^", "|", "\\", "=5", ";",
    "-", "+", "-a", ".", "..", "_5", "5_", " ", "  ", " a", "a ", " 5", "5 ", " 5.5", "–5", "€5", "½", "²", "Ⅷ", "0a",
    "1.2.3", "192.168.0.1", "1..2", "1.2.", "v1", "5m", "12h", "user@x.org", "+49-123", "12-34-56", "a,b", 'say "hi"',
    "TRUE ", "\u00a05", "\u2003", "ⅷ", "Ａ1", "true\u2028", "\x1f", "a\tb",
]  # fmt: skip
CELLS = ["", *NUMBERS, *TIMES, *WORDS]


def spark_types(spark: SparkSession, path: Path, columns: list[list[str]]) -> list[str]:
    _write(path, columns)
    files = FilesSource({"path": str(path), "format": "csv"}, lambda: spark)
    status = path.stat()
    return [field.type for field in files.columns_of([Part(str(path), status.st_size, status.st_mtime_ns)])]


def _write(path: Path, columns: list[list[str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f"c{at}" for at in range(len(columns))])
        writer.writerows(zip(*columns, strict=True))


def random_columns(seed: int, rows: int) -> Iterator[list[str]]:
    """Columns of one sort of cells, mostly, so that many of them are certain."""
    chance = random.Random(seed)
    kinds: dict[str, list[str]] = {}
    for cell in CELLS:
        kinds.setdefault(kind_of_cell(cell), []).append(cell)
    for _ in range(100):
        mixed = chance.sample(list(kinds), chance.choice((1, 1, 2, 3)))
        cells = [cell for kind in mixed for cell in kinds[kind]]
        yield [chance.choice(cells) if chance.random() < 0.9 else "" for _ in range(rows)]


@pytest.mark.spark
def test_types_are_those_that_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    """Each cell alone, and in columns of several: what is certain is what Spark says."""
    alone = [[cell, ""] for cell in CELLS]
    several = [column for seed, rows in enumerate((2, 3, 8, 40)) for column in random_columns(seed, rows)]
    sure = 0
    for columns in (alone, *(several[at : at + 100] for at in range(0, len(several), 100))):
        # One column that is always filled: a line of blanks is no record.
        rows = len(columns[0])
        types = spark_types(spark, tmp_path / "x.csv", [["x"] * rows, *columns])[1:]
        for column, type in zip(columns, types, strict=True):
            kind = column_kind({kind_of_cell(cell) for cell in column})
            if kind is not None:
                sure += 1
                assert (column, {"text": "string", "empty": "string"}.get(kind, kind)) == (column, type)
    assert sure > 350  # of about 640


@pytest.mark.spark
def test_values_are_those_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    from anabranch.engine.frames import struct

    for seed in range(3):
        path = tmp_path / f"{seed}.csv"
        columns = [["x"] * 25, *random_columns(seed, 25)]
        columns = [each for each in columns if _certain(tmp_path, each)]
        _write(path, columns)
        files = FilesSource({"path": str(path), "format": "csv"}, lambda: spark)
        found = relation(files, [str(path)])
        mine = duckdb.sql(f"SELECT * FROM {found.text}").to_arrow_table()
        reader = spark.read.schema(struct(found.fields)).option("header", "true").option("escape", '"')
        theirs = reader.csv(str(path)).toArrow()
        assert mine.column_names == theirs.column_names
        for one, other in zip(mine.columns, theirs.columns, strict=True):
            assert list(column_texts(one)) == list(column_texts(other))


def _certain(folder: Path, column: list[str]) -> bool:
    """Whether a column is certain as the file has it, too."""
    path = folder / "one.csv"
    _write(path, [["x"] * len(column), column])
    try:
        certain_types([str(path)], ["c0", "c1"], Dialect())
    except Uncertain:
        return False
    return True


def types(path: Path, content: str | bytes, names: str, separator: str = ",") -> list[str] | str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    try:
        found = certain_types([str(path)], names.split(), Dialect(separator))
    except Uncertain as reason:
        return str(reason)
    return [type for _, type in found.columns]


def test_what_is_certain_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert types(path, "a,b\n1,x\n2,\n", "a b") == ["int", "string"]
    assert types(path, "a,b\r\n1,x\r\n", "a b") == ["int", "string"]
    assert types(path, 'a,b\n"1","x ""y"", z"\n,""', "a b") == ["int", "string"]
    assert types(path, "a,b\n", "a b") == ["string", "string"]
    # What comes late changes the type of a column: an int, then one that is none.
    late = "a,b\n" + "1,x\n" * 100_000
    assert types(path, late + "2.5,y\n", "a b") == ["double", "string"]
    assert types(path, late + "3000000000,y\n2.5,z\n", "a b") == ["double", "string"]
    assert types(path, late + "z,y\n", "a b") == ["string", "string"]
    for content, names, separator in [
        ("a,b\n1,x\n1,x,y\n", "a b", ","),
        ("a,b\n1,x\n\n2,y\n", "a b", ","),
        (late + "\n1,y\n", "a b", ","),
        (late + "1\n", "a b", ","),
        (late + '1,"y\n', "a b", ","),
        (late + '1,5" disk\n', "a b", ","),
        (late + "1_000,y\n", "a b", ","),
        (late + "1,y\r\n", "a b", ","),
        (late + "1,y\x00\n", "a b", ","),
        (late.encode() + b"1,\xff\n", "a b", ","),
        ('a,b\n1,"two\nlines"\n', "a b", ","),
        ("\ufeffa,b\n1,x\n", "a b", ","),
        ('a,"b\nc"\n1,x\n', "a b", ","),
        ("a\nx\n \ny\n", "a", ","),
        ("a\tb\nx\ty\n\t\n", "a b", "\t"),
        ("a,b\n1,x\r2,y\n", "a b", ","),
    ]:
        assert isinstance(types(path, content, names, separator), str), content[-40:]
    assert kind_of_cell("x") == TEXT and kind_of_cell("1_000") == OTHER
