"""Lines of CSV and JSON that are read without Spark are the rows that Spark reads; all else is declined."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from anabranch.sources import row_lines
from anabranch.sources.csv_grammar import Uncertain
from anabranch.sources.files import FilesSource
from anabranch.sources.parts import Part
from anabranch.types import Field
from seeds import soaked
from sources.test_csv_grammar import CELLS
from sources.test_json_values import HOSTILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PLAIN = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "double", "date", "timestamp")
TYPES = (*PLAIN, "decimal(10,2)", "decimal(4,4)", "decimal(38,0)", "decimal(20,6)")
NUMBERS = ["127", "128", "-128", "119", "120", "32767", "32768", "29999", "8999999999999999999", "9000000000000000000"]
NUMBERS += ["12345678.90", "123456789.00", "0.1234", "-0.1234", "0.12345", ".1234", "1.0", "12345678901234.123456"]


def source(path: Path, fields: Sequence[Field], spark: SparkSession, **options: Any) -> FilesSource:
    return FilesSource({"path": str(path), "settle": "0s", **options}, lambda: spark, tuple(fields))


def part(path: Path) -> list[Any]:
    status = path.stat()
    return Part(str(path), status.st_size, status.st_mtime_ns).to_json()


def found(
    files: FilesSource, path: Path, fields: Sequence[Field], *, tasks: int = 1, time: str | None = None
) -> pa.Table | None:
    """The rows of a file as tasks read them; None if they are Spark's."""
    given = files.in_groups([part(path)], [field.name for field in fields], time)
    if given is None:
        return None
    assert isinstance(given, row_lines.InLines)
    if not given.files:
        return None
    tables = []
    for piece in (piece for task in row_lines.cut(given.files, tasks, 1) for piece in task):
        try:
            tables.append(row_lines.read(piece, piece.form.schema))
        except Uncertain:
            return None
        assert row_lines.count(piece) == tables[-1].num_rows
    return pa.concat_tables(tables)


def truth(files: FilesSource, path: Path) -> pa.Table:
    """The rows of a file as Spark reads them, with the text of bad ones."""
    return files.read([[part(path)]]).drop("_origin", "_partition").toArrow()


def texts(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]


def test_cells_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    """Each cell as each type, with and without quotes: what is read is what Spark reads."""
    for type in TYPES:
        fields = (Field("a", "string"), Field("c", type))
        rows, taken = [], []
        one = tmp_path / "one.csv"
        for cell in sorted({*CELLS, *NUMBERS}):
            line = io.StringIO()
            csv.writer(line, lineterminator="\n").writerow(["x", cell])
            for written in (line.getvalue(), 'x,"' + cell.replace('"', '""') + '"\n'):
                one.write_text("a,c\n" + written)
                made = found(source(one, fields, spark), one, fields)
                if made is not None:
                    rows.append(written)
                    taken += texts(made)
        whole = tmp_path / f"{type}.csv"
        whole.write_text("a,c\n" + "".join(rows))
        theirs = truth(source(whole, fields, spark), whole)
        assert theirs.column("_corrupt").null_count == theirs.num_rows, type
        assert taken == texts(theirs.drop_columns(["_corrupt"])), type
        assert len(rows) >= 8, type


MORE = r"""
{"d":0}
{"d":-0 }
{"d":1e-5}
{"d":12345678901234567890}
{"i":-0}
{"ts":""}
{"ts":null}
{"k":null}
{}
{"x":{"id":2},"id":1}
{"x":[{"id":2},[{}]],"id":1}
{"x":{"y":{"z":{}}},"id":1}
{"x":{"y":{"z":{"a":{}}}},"id":1}
{"x":1,"x":2,"id":1}
{"x":"\ud800","id":1}
{"x":"\q","id":1}
{"x":01,"id":1}
{"x":1.,"id":1}
{"x":+1,"id":1}
{"x":tru,"id":1}
{"x":"a"b","id":1}
{"k":"\u0000"}
{"k":"\ud83d"}
{"k":"\/\b\f\n\r\t"}
{"k":"{}{"}
{"k":"}\"{"}
{"_corrupt":"x","id":1}
{"b":False}
{"b":null}
{"id":1.}
{"id":1} x
{"id":1}}
{"y":"2024-02-29"}
{"y":"2023-02-29"}
{"y":"2024-02-03 "}
{"d":Infinity}
{"d":-Infinity}
{"d":+1.0}
{"d":1E5}
{"d":1e+05}
{"d":"1.5"}
{"id":2,}
{"i":1e0}
{"ts":"2024-02-03T01:02:03 "}
{"ts":"1900-01-01 00:00:00"}
{"ts":"2024-02-03t01:02:03"}
""".strip().split("\n")


def test_lines_of_json(spark: SparkSession, tmp_path: Path) -> None:
    names = {"id": "bigint", "i": "int", "ts": "timestamp", "k": "string", "d": "double", "b": "boolean", "y": "date"}
    fields = tuple(Field(name, type) for name, type in names.items())
    more = ["", " ", ' {"id": 7}\t', '{"k":"a\tb"}', '{"id":1\r}', '{"id":1}\r', '{"k":"\u2028é"}', "\ufeff{}"]
    numbers = [f'{{"x": {"1" * 1100}}}', f'{{"d": 0.{"1" * 1100}}}']
    long = [f'{{"k": "{"x" * 2000}"}}', f'{{"{"x" * 60000}":1}}']
    lines, taken, one = [], [], tmp_path / "one.json"
    for line in [*HOSTILE, *MORE, *more, *numbers, *long]:
        one.write_bytes(line.encode() + b"\n")
        made = found(source(one, fields, spark), one, fields)
        if made is not None:
            lines.append(line + "\n")
            taken += texts(made)
    whole = tmp_path / "whole.json"
    whole.write_text("".join(lines))
    theirs = truth(source(whole, fields, spark), whole)
    assert [each for each in theirs.column("_corrupt").to_pylist() if each is not None] == []
    assert taken == texts(theirs.drop_columns(["_corrupt"]))
    assert len(lines) > 45


FIELDS = (
    Field("id", "bigint"), Field("ts", "timestamp"), Field("s", "string"), Field("x", "double"), Field("y", "date"),
    Field("b", "boolean"), Field("d", "decimal(12,3)"), Field("gone", "int"),
)  # fmt: skip
WORDS = ["", "a", "b,c", 'say "hi"', "ä", " ", " a ", "'", "\\", "#", "{", "null", "x" * 300, "日本", "\t", ";"]


def random_rows(chance: random.Random, count: int) -> list[dict[str, str]]:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def maybe(value: Any) -> str:
        return "" if chance.random() < 0.1 else str(value)

    zone = chance.choice(["", "Z"])
    return [
        {
            "id": maybe(chance.randrange(-(10**18), 10**18)),
            "ts": (start + timedelta(microseconds=chance.randrange(10**9))).strftime(f"%Y-%m-%d %H:%M:%S.%f{zone}"),
            "s": chance.choice(WORDS),
            "x": maybe(chance.choice([1.5, -0.0, 1e-9, 3, 12345.678901])),
            "y": maybe(f"2026-02-{chance.randrange(1, 29):02}"),
            "b": maybe(chance.choice(["true", "false", "True"])),
            "d": maybe(f"{chance.randrange(-(10**9), 10**9)}.{chance.randrange(1000):03}"),
            "other": chance.choice(WORDS),
        }
        for _ in range(count)
    ]


def csv_text(rows: Sequence[dict[str, str]], chance: random.Random, separator: str, *, header: bool) -> str:
    names = list(rows[0])
    if not header:
        names = [field.name for field in FIELDS]
    quoting = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    out = io.StringIO(newline="")
    end = chance.choice(["\n", "\r\n"])
    writer = csv.writer(out, delimiter=separator, lineterminator=end, quoting=quoting)
    if header:
        chance.shuffle(names)
        writer.writerow([name.upper() if chance.random() < 0.2 else name for name in names])
    for row in rows:
        writer.writerow([row.get(name, "") for name in names])
    text = out.getvalue()
    return text.removesuffix(end) if chance.random() < 0.3 else text


def json_text(rows: Sequence[dict[str, str]], chance: random.Random) -> str:
    lines = []
    for row in rows:
        made: dict[str, Any] = {name: row[name] for name in ("ts", "s", "other")}
        made |= {"id": int(row["id"]) if row["id"] else None, "x": float(row["x"]) if row["x"] else None}
        made |= {"y": row["y"]} if row["y"] else {}
        made["b"] = {"": None, "true": True}.get(row["b"], False)
        names = list(made)
        if chance.random() < 0.3:
            chance.shuffle(names)
        made = {name: made[name] for name in names if made[name] is not None or chance.random() < 0.5}
        lines.append(json.dumps(made, ensure_ascii=chance.random() < 0.5))
    return "\n".join(lines) + chance.choice(["", "\n"])


ODD = {
    "csv": [",,,\n", "x\n", '"two\nlines",,\n', '5" disk,\n', "\n"],
    "json": ["{}{}\n", "[]\n", '{"id": "x"}\n', "\n", "{\n"],
}


def check_random(tmp_path: Path, spark: SparkSession, seed: int) -> bool:
    """Whether a random file was read without Spark; if so, as Spark reads it, wherever it is cut."""
    chance = random.Random(seed)
    format = chance.choice(["csv", "csv", "json"])
    rows = random_rows(chance, chance.choice([1, 5, 60]))
    header = chance.random() < 0.8
    separator = chance.choice(row_lines.SEPARATORS)
    text = json_text(rows, chance) if format == "json" else csv_text(rows, chance, separator, header=header)
    if chance.random() < 0.15:
        text = text.rstrip("\r\n") + "\n" + chance.choice(ODD[format])
    ending = chance.choice(["", "", ".gz", ".bz2"])
    path = tmp_path / f"{seed}.{format}{ending}"
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    path.write_bytes(pack(text.encode()))
    options = {"sep": separator, "header": header} if format == "csv" else {}
    fields = tuple(field for field in FIELDS if format == "csv" or field.name != "d")
    files = source(path, fields, spark, **options)
    made = found(files, path, fields, tasks=chance.choice([1, 2, 7, 40]), time=chance.choice([None, "ts"]))
    if made is None:
        return False
    theirs = truth(files, path)
    assert theirs.column("_corrupt").null_count == theirs.num_rows
    assert texts(made) == texts(theirs.drop_columns(["_corrupt"]))
    at_hand = files.arrow_rows([part(path)], None)
    assert at_hand is not None and at_hand.equals(made)
    return True


def test_random_files(tmp_path: Path, spark: SparkSession) -> None:
    assert sum(check_random(tmp_path, spark, seed) for seed in range(25)) > 12


@pytest.mark.parametrize("seed", soaked(*range(100, 110)))
def test_more_random_files(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    assert sum(check_random(tmp_path, spark, seed * 1000 + each) for each in range(20)) > 8


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", b"id,s\n1,a\n", {"nullValue": "a"}),
        ("a.csv", b"id,s\n1,a\n", {"sep": "||"}),
        ("a.csv", b"\xef\xbb\xbfid,s\n1,a\n", {}),
        ("a.csv", b"id,s\n1,\xff\n", {}),
        ("a.csv", b"id,s\n1,a\rb\n", {}),
        ("a.csv", b'id,s\n1,"a\nb"\n', {}),
        ("a.csv", b"id,s\n1,a\n", {"quote": "'"}),
        ("a.csv", b"\nid,s\n1,a\n", {}),
        ("a.csv", b'id,"s\nt"\n1,a\n', {"header": True}),
        ("a.csv", b"\n", {}),
        ("a.json.gz", gzip.compress(b'{"id":1}\n' * 99, mtime=0)[:-20], {}),
        ("a.json.zst", b'{"id":1}\n', {}),
        ("a.csv.lz4", b"id,s\n1,a\n", {}),
        ("a.json", b'{"id":1}\n', {"allowComments": True}),
        ("a.json", b"", {}),
        ("a.json", b'\xef\xbb\xbf{"id":1}\n', {}),
        ("a.json", b'{"id":1,"s":"\xff"}\n', {}),
        ("a.txt", b"x\n", {}),
    ],
)
def test_what_is_left_to_spark(
    tmp_path: Path, spark: SparkSession, name: str, content: bytes, options: dict[str, Any]
) -> None:
    path, fields = tmp_path / name, (Field("id", "bigint"), Field("s", "string"))
    path.write_bytes(content)
    assert found(source(path, fields, spark, **options), path, fields) is None


def test_columns_of_other_types_are_left_to_spark(tmp_path: Path, spark: SparkSession) -> None:
    for name, content in {"a.csv": "id,f\n1,1.5\n", "a.json": '{"id":1,"f":1.5}\n'}.items():
        (tmp_path / name).write_text(content)
        for type, taken in {"double": True, "float": False, "array<int>": False}.items():
            fields = (Field("id", "bigint"), Field("f", type))
            files = source(tmp_path / name, fields, spark)
            assert (found(files, tmp_path / name, fields) is not None) == taken
