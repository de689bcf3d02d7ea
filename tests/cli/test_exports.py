"""arrow and parquet: what is written, that it is whole or not there, and what is refused before anything starts."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch
from anabranch.cli.console import Console
from anabranch.cli.exports import ExportOutput, prepare
from anabranch.cli.main import Front, cli
from anabranch.errors import AnabranchError, QueryFailed, UsageError
from anabranch.sinks.exports import Export, in_utc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
PLACE = pa.struct({"x": pa.int32(), "at": pa.list_(pa.timestamp("us", "UTC"))})
ROWS = pa.table(
    {
        "price": pa.array([Decimal("12.30"), None], pa.decimal128(18, 2)),
        "at": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
        "local": pa.array([datetime(2026, 1, 1), None], pa.timestamp("us")),
        "day": pa.array([date(2026, 1, 1), None], pa.date32()),
        "took": pa.array([timedelta(seconds=3), None], pa.duration("us")),
        "tags": pa.array([["a", None], None], pa.list_(pa.string())),
        "counts": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "place": pa.array([{"x": 1, "at": [MOMENT]}, None], PLACE),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "nothing": pa.nulls(2),
    }
)


def read(path: Path) -> pa.Table:
    return pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["-o", "parquet", "x.parquet", "SELECT 1"], ["query", "-o", "parquet", "--to", "x.parquet", "SELECT 1"]),
        (["SELECT 1", "--output", "arrow", "-"], ["query", "SELECT 1", "--output", "arrow", "--to", "-"]),
        (["-o", "arrow", "SELECT 1"], ["query", "-o", "arrow", "SELECT 1"]),
        (["-o", "arrow", "-f", "a.sql"], ["query", "-o", "arrow", "-f", "a.sql"]),
        (["-o", "parquet", "--to", "x.p", "SELECT 1"], ["query", "-o", "parquet", "--to", "x.p", "SELECT 1"]),
        (["-o", "batch-csv", "x", "SELECT 1"], ["query", "-o", "batch-csv", "x", "SELECT 1"]),
    ],
)
def test_a_file_can_stand_behind_its_format(given: list[str], read: list[str]) -> None:
    assert isinstance(cli, Front)
    assert cli.arrange(given) == read


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_a_file_holds_the_rows_and_their_types(
    run_cli: Any, session: Any, make: Any, tmp_path: Path, format: str
) -> None:
    session.results = [make.result("done", "stream bids created"), make.result("rows", table=ROWS)]
    path = tmp_path / f"out.{format}"
    ended = run_cli("CREATE STREAM s (a INT); SELECT 1", "-o", format, "--to", str(path))
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == f"stream bids created\n2 rows written to {path}\n"
    assert session.live is False
    written = read(path)
    assert written.schema.equals(ROWS.schema)
    assert written.equals(ROWS)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_an_answer_without_rows_keeps_its_columns(
    run_cli: Any, session: Any, make: Any, tmp_path: Path, format: str
) -> None:
    session.results = [make.result("rows", table=ROWS.slice(0, 0))]
    path = tmp_path / f"out.{format}"
    assert run_cli("SELECT 1", "-o", format, "--to", str(path), "--quiet").err == ""
    assert read(path).schema.equals(ROWS.schema)


def test_moments_are_written_in_utc_at_any_depth() -> None:
    zone = "Asia/Tokyo"
    kind = pa.struct({"t": pa.timestamp("us", zone), "m": pa.map_(pa.string(), pa.list_(pa.timestamp("us", zone)))})
    rows = pa.table({"s": pa.array([{"t": MOMENT, "m": [("a", [MOMENT])]}], kind), "n": [1]})
    written = in_utc(rows)
    assert zone not in str(written.schema)
    assert written.to_pylist() == [{"s": {"t": MOMENT, "m": [("a", [MOMENT])]}, "n": 1}]


@pytest.mark.parametrize("to", [[], ["--to", "-"]])
def test_arrow_goes_to_stdout_as_a_stream(
    capfdbinary: pytest.CaptureFixture[bytes], session: Any, make: Any, to: list[str]
) -> None:
    from anabranch.cli.main import main

    session.results = [make.result("done", "made"), make.result("rows", table=ROWS)]
    assert main(["SELECT 1", "-o", "arrow", *to]) == 0
    out, err = capfdbinary.readouterr()
    assert pa.ipc.open_stream(out).read_all().equals(ROWS)
    assert err == b"made\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_no_arrow_stream() -> None:
    with pytest.raises(UsageError, match="cannot be printed to a terminal"):
        prepare(Console(Terminal(), io.StringIO()), "arrow", None, False)
    with pytest.raises(UsageError, match="takes text only"):
        ExportOutput(Console(io.StringIO(), io.StringIO()), Export("arrow", None)).show(_result(ROWS))


def _result(table: pa.Table) -> Any:
    class Result:
        kind, message, endless, times = "rows", None, False, {}

        def toArrow(self) -> pa.Table:
            return table

    return Result()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "parquet"], "--to FILE"),
        (["-o", "parquet", "--to", "-"], "--to FILE"),
        (["--to", "x.parquet"], "-o parquet"),
        (["-o", "batch-csv", "--to", "x.csv"], "> FILE"),
        (["--overwrite"], "--to FILE"),
        (["-o", "arrow", "--overwrite"], "--to FILE"),
        (["-o", "parquet", "--to", "no/such/x.parquet"], "there is no folder"),
        (["-o", "parquet", "--to", "."], "is a folder"),
        (["-o", "parquet", "--to", "old.parquet"], "--overwrite"),
        (["-o", "parquet", "--to", "link.parquet"], "--overwrite"),
        (["-o", "arrow", "--to", os.devnull, "--overwrite"], "no plain file"),
        (["-o", "parquet", "--to", "x.parquet", "-f", "two.sql"], "there would be 2"),
        (["-o", "parquet", "--to", "x.parquet", "-f", "none.sql"], "there is none"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    run_cli: Any, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.parquet").write_text("old")
    (tmp_path / "link.parquet").symlink_to("old.parquet")
    (tmp_path / "two.sql").write_text("SELECT 1; SHOW STREAMS")
    (tmp_path / "none.sql").write_text("CREATE STREAM s (a INT)")
    ended = run_cli(*arguments, *([] if "-f" in arguments else ["SELECT 1"]))
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert session.opened_with is None
    assert (tmp_path / "old.parquet").read_text() == "old"


def test_changes_that_end_are_written_as_their_sum_in_order(
    run_cli: Any, session: Any, make: Any, tmp_path: Path
) -> None:
    table = pa.table({"a": [1, None, 3], "at": pa.array([MOMENT] * 3, pa.timestamp("us", "UTC"))})
    session.results = [make.result("changes", table=table)]
    path = tmp_path / "x.parquet"
    assert run_cli("SELECT a, at FROM t ORDER BY a DESC", "-o", "parquet", str(path)).code == 0
    assert read(path)["a"].to_pylist() == [3, 1, None]


@pytest.mark.parametrize("kind", ["rows", "changes"])
def test_an_endless_answer_is_refused(run_cli: Any, session: Any, make: Any, tmp_path: Path, kind: str) -> None:
    session.results = [make.result(kind, table=ROWS, endless=True)]
    ended = run_cli("SELECT 1", "-o", "parquet", "--to", str(tmp_path / "x.parquet"))
    assert ended.code == 1
    assert "this query never ends" in ended.err
    assert "stream-json" in ended.err
    assert os.listdir(tmp_path) == []


def test_a_file_is_replaced_if_asked_for_and_its_mode_stays(
    run_cli: Any, session: Any, make: Any, tmp_path: Path
) -> None:
    session.results = [make.rows(a=[1])]
    old, link = tmp_path / "old.parquet", tmp_path / "link.parquet"
    old.write_text("old")
    old.chmod(0o600)
    link.symlink_to(old)
    assert run_cli("SELECT 1", "-o", "parquet", "--to", str(link), "--overwrite").code == 0
    assert link.is_symlink()
    assert pq.read_table(old).to_pylist() == [{"a": 1}]
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["link.parquet", "old.parquet"]


def test_a_file_that_appears_in_the_meantime_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    console = Console(io.StringIO(), io.StringIO())
    export = prepare(console, "arrow", str(path), False)
    assert export is not None
    path.write_text("somebody else's")
    with pytest.raises(UsageError, match="already exists"):
        ExportOutput(console, export).show(_result(ROWS))
    assert path.read_text() == "somebody else's"
    assert os.listdir(tmp_path) == ["x.arrow"]


@pytest.mark.parametrize("error", [QueryFailed("division by zero"), KeyboardInterrupt()])
def test_a_failing_query_leaves_nothing(run_cli: Any, session: Any, tmp_path: Path, error: BaseException) -> None:
    class Failing:
        kind, message, endless, times = "rows", None, False, {}

        def toArrow(self) -> Any:
            raise error

    session.results = [Failing()]
    code = run_cli("SELECT 1", "-o", "parquet", "--to", str(tmp_path / "x.parquet")).code
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pa.table({"s": pa.array([{}], pa.struct([]))}), "cannot be written as Parquet"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), "two columns a"),
    ],
)
def test_what_parquet_cannot_hold_leaves_the_old_file(tmp_path: Path, table: pa.Table, says: str) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("old")
    output = ExportOutput(Console(io.StringIO(), io.StringIO()), Export("parquet", path, overwrite=True))
    with pytest.raises(AnabranchError, match=says):
        output.show(_result(table))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.parquet"]


def test_a_full_disk_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "x.parquet"
    with pytest.raises(AnabranchError, match=r"x.parquet cannot be written: No space left on device"):
        ExportOutput(Console(io.StringIO(), io.StringIO()), Export("parquet", path)).show(_result(ROWS))
    assert os.listdir(tmp_path) == []


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    code = """
import sys, threading
import pyarrow as pa
import anabranch
from anabranch.cli.main import main
class Result:
    kind, message, endless, times = "rows", None, False, {}
    def toArrow(self): return pa.table({"a": list(range(2_000_000))})
class Session:
    stop = threading.Event()
    def execute(self, text, live, dry_run, script): yield Result()
    def cancel(self): pass
    def on_warning(self, tell): pass
    def on_notice(self, tell): pass
    def on_start(self, around): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
anabranch.connect = lambda *a, **k: Session()
sys.exit(main(["SELECT 1", "-o", "arrow"]))
"""
    source = str(Path(anabranch.__file__).parents[1])
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | head -c 8 | wc -c; echo ${PIPESTATUS[0]}', sys.executable, code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": source},
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["8", "0"], "")


@pytest.mark.spark
def test_the_types_of_spark_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    sql = """SELECT 1.50BD AS price, TIMESTAMP '2026-01-01 12:00:00' AS at,
        TIMESTAMP_NTZ '2026-01-01 00:00:00' AS local,
        DATE '2026-01-01' AS day, array('a', NULL) AS tags, map('a', 1) AS counts,
        named_struct('x', 1, 'at', TIMESTAMP '2026-01-01 12:00:00') AS place, CAST('x' AS BINARY) AS raw, 1.5F AS f"""
    utc = pa.timestamp("us", "UTC")
    with anabranch.connect(spark=spark) as session:
        for format in ("arrow", "parquet"):
            path = tmp_path / f"x.{format}"
            ExportOutput(Console(io.StringIO(), io.StringIO()), Export(format, path)).show(session.sql(sql))
            rows = read(path)
            assert rows.schema.types == [
                pa.decimal128(3, 2),
                utc,
                pa.timestamp("us"),
                pa.date32(),
                pa.list_(pa.field("element", pa.string())),
                pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
                pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("at", utc, nullable=False)]),
                pa.binary(),
                pa.float32(),
            ]
            [row] = rows.to_pylist()
            assert row["place"] == {"x": 1, "at": MOMENT}
            assert row["counts"] == [("a", 1)]
