"""Runs that Spark's tasks compute with DuckDB: the answers of Spark over the raw rows, however tasks fare."""

from __future__ import annotations

import random
import textwrap
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch import kernel
from anabranch.engine import kernels
from anabranch.errors import AnabranchError, UsageError
from anabranch.render.duckdb import driver_sql
from anabranch.testing import Harness
from render.driver_help import COLUMNS, FIELDS, Expressions, table
from seeds import soaked

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
EACH = ", ".join(f"min({name}) AS min_{name}, max({name}) AS max_{name}, count({name}) AS n_{name}" for name in COLUMNS)
HOP = "HOP(TABLE r, DESCRIPTOR(ts), INTERVAL 20 SECONDS, INTERVAL 60 SECONDS)"
VIEWS = {
    "every": f"SELECT {EACH}, sum(k) AS total, sum(d) AS exact FROM r",
    "closed": "SELECT window_start, k, count(*) AS c, sum(d) AS d, max(x) AS x FROM"
    " TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL 1 MINUTE) GROUP BY window_start, k EMIT ON WINDOW CLOSE",
    "hops": f"SELECT window_start, s, count(*) AS c, min(f) AS f FROM {HOP} GROUP BY window_start, window_end, s",
    "doubles": "SELECT y, count(*) AS c, avg(k) AS a FROM r GROUP BY y",
    "texts": "SELECT upper(u) AS u, count(DISTINCT s) AS c, stddev(k) AS v FROM r WHERE x > 1 OR b GROUP BY upper(u)",
    "live": "SELECT a, m, count(*) AS c, sum(e) AS e FROM r GROUP BY a, m EMIT CHANGES",
    "plain": "SELECT id, k + 1 AS z, x, w, ts FROM r WHERE s <> 'a' OR s IS NULL EMIT CHANGES",
    "soundex": "SELECT soundex(s) AS s, count(*) AS c FROM r GROUP BY soundex(s)",
}

#: The number of each row, as partials have it and, made after the runs, as the kept rows have it.
NUMBERS = (
    "CREATE VIEW numbers{} AS SELECT window_start AS n, max(id) AS id FROM TUMBLE(TABLE r, DESCRIPTOR(row_num), 1 ROWS)"
    " GROUP BY window_start, window_end;"
)


def rows_with_times(count: int, seed: int, *, without: int = 0) -> pa.Table:
    """Hostile rows with event times out of order; some of the last have none."""
    chance = random.Random(seed)
    times: list[datetime | None] = [START + timedelta(seconds=chance.randrange(600)) for _ in range(count)]
    times[count - without :] = [None] * without
    return table(count, seed).append_column("ts", pa.array(times, pa.timestamp("us", "UTC")))


def stream_of(home: Harness, folder: Path, *, keep: str = "") -> None:
    """Streams over Parquet files, whose runs are cut into as many tasks as there are groups of rows."""
    columns = ", ".join(f"{field.name} {field.type}" for field in FIELDS)
    folder.mkdir(exist_ok=True)
    home.sql(
        f"CREATE STREAM r ({columns}, ts TIMESTAMP) WATERMARK FOR ts AS ts"
        f" FROM files(path => '{folder}/*.parquet', settle => '0s'){keep}"
    )
    home.sql("SET anabranch.task_bytes = 1")


def write(folder: Path, name: str, rows: pa.Table, group: int = 9) -> None:
    folder.mkdir(exist_ok=True)
    parquet.write_table(rows, folder / f".{name}", row_group_size=group)
    (folder / f".{name}").rename(folder / f"{name}.parquet")


def places(home: Harness) -> list[str]:
    """Where the runs of a home were computed, in their order."""
    found = home.query("SELECT milliseconds FROM sys.runs WHERE rows > 0 ORDER BY version")
    return [key.removeprefix("partials ") for (times,) in found for key, _ in times if key.startswith("partials ")]


def check(home: Harness, views: dict[str, str], given: list[tuple[Any, ...]]) -> None:
    home.advance("r")
    for name, query in views.items():
        wanted = home.batch(query.partition(" EMIT")[0], r=given)
        assert _texts(home.table(name)) == _texts(wanted), name


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


def _texts(rows: list[tuple[Any, ...]]) -> str:
    """Rows to be compared, NaN with NaN; which zero is the least of two is anybody's guess."""
    return repr(rows).replace("-0.0,", "0.0,").replace("-0.0)", "0.0)")


@pytest.mark.slow
def test_tasks_answer_as_spark_does(tmp_path: Path, spark: SparkSession) -> None:
    """Views over values of every type at which engines differ, several files and groups of rows, and late rows."""
    rows = rows_with_times(90, 5)
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        stream_of(home, tmp_path / "in", keep=" KEEP ALL")
        home.sql(NUMBERS.format("") + "".join(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items()))
        for name, (start, end) in {"a": (0, 40), "b": (40, 50), "c": (50, 90)}.items():
            write(tmp_path / "in", name, rows.slice(start, end - start))
            if name != "a":  # a run of two files, and one of one
                home.query("SELECT count(*) FROM every")
        assert places(home) == ["kernel", "kernel"]
        check(home, VIEWS, _tuples(rows))
        home.sql(NUMBERS.format("_kept"))
        numbers = home.table("numbers"), home.table("numbers_kept")
        late = home.query("SELECT sum(late_rows) FROM sys.runs")[0][0]
    assert numbers == ([(number, number) for number in range(90)],) * 2
    before = max(rows["ts"].slice(0, 50).to_pylist())
    assert late == sum(each < before for each in rows["ts"].slice(50).to_pylist())


def check_random(tmp_path: Path, spark: SparkSession, seed: int, views: int) -> None:
    rows = rows_with_times(60, seed)
    given = _tuples(rows)
    chance = Expressions(seed)
    with Harness(tmp_path / f"home{seed}", spark, backend="spark") as home:
        stream_of(home, tmp_path / f"in{seed}")
        made = {"known": "SELECT id, count(*) AS c FROM r GROUP BY id"}
        while len(made) <= views:
            value, condition = chance.column(*chance.same()), chance.condition(1)
            query = f"SELECT {value} AS z, count(*) AS c, max(k) AS m FROM r WHERE {condition} GROUP BY {value}"
            try:
                home.batch(query, r=given)
            except (AnabranchError, PySparkException):  # Spark refuses it, some only when they meet a row
                continue
            if driver_sql(condition, lambda _: None, FIELDS) is not None or len(made) % 3 == 2:
                made[f"v{len(made)}"] = query
        home.sql("".join(f"CREATE VIEW {name} AS {query};" for name, query in made.items()))
        write(tmp_path / f"in{seed}", "a", rows.slice(0, 35))
        write(tmp_path / f"in{seed}", "b", rows.slice(35))
        check(home, made, given)
        assert places(home) == ["kernel"]


def test_random_conditions(tmp_path: Path, spark: SparkSession) -> None:
    check_random(tmp_path, spark, 7, 3)


@pytest.mark.parametrize("seed", soaked(*range(40, 44)))
def test_more_random_conditions(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    check_random(tmp_path, spark, seed, 12)


def test_bad_rows_are_set_aside_as_by_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Rows without an event time, and a number that does not fit into its type."""
    rows = rows_with_times(40, 9, without=3)
    views = {
        "counts": "SELECT k, count(*) AS c, max(id) AS i FROM r GROUP BY k",
        "large": "SELECT k, max(n + 1) AS n FROM r GROUP BY k",
    }
    write(tmp_path / "in", "a", rows.slice(0, 20))
    write(tmp_path / "in", "b", rows.slice(20))
    found = {}
    for mode in ("on", "off"):
        for name in views:
            with Harness(tmp_path / f"{mode}-{name}", spark, backend="spark") as home:
                home.sql(f"SET anabranch.kernels = {mode}")
                stream_of(home, tmp_path / "in", keep=" KEEP ALL")
                home.sql(f"CREATE VIEW {name} AS {views[name]}")
                home.sql(NUMBERS.format(""))
                answer = home.table(name)
                bad = home.query("SELECT source, offset, reason, raw, view FROM sys.bad_rows ORDER BY raw, view")
                runs = home.query("SELECT rows, bad_rows, low, high FROM sys.runs WHERE rows > 0")
                home.sql(NUMBERS.format("_kept"))
                kept = home.table("numbers"), home.table("numbers_kept")
                lacks = home.query("SELECT lacks FROM sys.views")
                found[mode, name] = answer, bad, runs, kept, lacks
                if name == "counts":
                    assert places(home) == ["kernel" if mode == "on" else "spark"]
                    assert runs[0][:2] == (37, 3) and len(bad) == 3
                else:
                    assert lacks != [(0,)] * 3
    for name in views:
        assert found["on", name] == found["off", name]


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        (pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int64())}), "kernel"),
        (pa.table({"N": pa.array([9, 9], pa.int64()), "k": ["a", "b"], "n": pa.array([1, 2], pa.int64())}), "spark"),
        (pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int64()), "file_row_number": [7, 7]}), "kernel"),
        (pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int32())}), "spark"),  # read with a cast
        (pa.table({"k": ["a", "b"]}), "spark"),
        (pa.table({"k": ["a"], "n": pa.array([1], pa.int64())}).slice(0, 0), "spark"),
    ],
)
def test_files_of_other_shapes(tmp_path: Path, spark: SparkSession, rows: pa.Table, place: str) -> None:
    """Columns are found by their names; a file that has them with other types is read by Spark."""
    parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=1)
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        files = f"files(path => '{tmp_path}/*.parquet', settle => '0s')"
        home.sql(f"CREATE STREAM r (k STRING, n BIGINT) FROM {files} ON SCHEMA CHANGE IGNORE")
        home.sql("SET anabranch.task_bytes = 1; CREATE VIEW v AS SELECT k, sum(n) AS n FROM r GROUP BY k")
        try:
            answer = home.table("v")
        except AnabranchError:  # Spark does not tell n and N apart
            assert "N" in rows.column_names
            return
        values = rows["n"].to_pylist() if "n" in rows.column_names else [None] * rows.num_rows
        assert answer == list(zip(rows["k"].to_pylist(), values, strict=True))
        assert places(home) == ([place] if rows.num_rows else [])


def test_where_runs_are_computed(tmp_path: Path, spark: SparkSession) -> None:
    """Kernels take what the driver does not, and are switched off by a setting."""
    rows = rows_with_times(30, 3)
    with Harness(tmp_path / "home", spark) as home:
        stream_of(home, tmp_path / "in")
        home.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(k) AS k FROM r")
        for setting in ("run_bytes = '1 GB'", "run_bytes = 0; SET anabranch.small_run_bytes = 0", "kernels = off"):
            home.sql(f"SET anabranch.{setting}")
            write(tmp_path / "in", setting[-3:], rows)
            home.table("v")
        assert places(home) == ["driver", "kernel", "spark"]
        assert home.query("SELECT c FROM v") == [(90,)]
        home.sql("SET anabranch.kernels = 'ON'")
        write(tmp_path / "in", "last", rows)
        home.table("v")
        told = "\n".join(row[0] for row in home.query("EXPLAIN ANALYZE v"))
        assert "in kernels" in told
        with pytest.raises(UsageError, match=r"anabranch\.kernels is 'on' or 'off', not 'yes'"):
            home.sql("SET anabranch.kernels = yes")


def test_a_task_that_fails_leaves_the_run_to_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once; later runs do not try again, and nothing is left of the first."""

    def failing(work: kernel.Work, pieces: Any) -> Any:
        from anabranch import kernel

        kernel.compute(work, pieces)
        raise RuntimeError("out of order")

    monkeypatch.setattr(kernels, "_known", {})
    monkeypatch.setattr(kernel, "compute", failing)
    rows = rows_with_times(30, 4)
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        stream_of(home, tmp_path / "in")
        home.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(k) AS k FROM r")
        write(tmp_path / "in", "a", rows)
        with pytest.warns(RuntimeWarning, match="kernels are left out from now on.*out of order"):
            home.table("v")
        write(tmp_path / "in", "b", rows)
        assert home.query("SELECT c FROM v") == [(60,)]
        assert places(home) == ["spark", "spark"]
        assert not list((tmp_path / "home" / "staging").glob("*/*.parquet"))


def test_a_duplicate_counts_once(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with speculation: every task is carried out twice, and the driver hears of one of the two."""

    def twice(work: kernel.Work, pieces: Any) -> Any:
        from anabranch import kernel

        kernel.compute(work, pieces)
        return kernel.compute(work, pieces)

    monkeypatch.setattr(kernel, "compute", twice)
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        stream_of(home, tmp_path / "in", keep=" KEEP ALL")
        home.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(k) AS k FROM r")
        rows = rows_with_times(30, 6)
        write(tmp_path / "in", "a", rows)
        assert home.table("v") == home.batch("SELECT count(*) AS c, sum(k) AS k FROM r", r=_tuples(rows))
        assert home.query("SELECT count(*) FROM r") == [(30,)] and places(home) == ["kernel"]
        snapshot = home.session._core.ledger.snapshot()
        named = {name for table in snapshot.files.values() for name in table}
        assert {path.name for path in (tmp_path / "home").rglob("*.parquet") if "_delta_log" not in path.parts} == named


def test_who_runs_no_kernels(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executors' packages and files are looked at once; without a SparkContext there is nobody to ask."""
    monkeypatch.setattr(kernels, "_known", {})
    assert kernels.unavailable(spark, tmp_path) is None
    monkeypatch.setattr(kernels, "_known", {})
    monkeypatch.setattr("anabranch.__version__", "9.9")
    assert "have anabranch 0.1.0, and the driver has 9.9" in str(kernels.unavailable(spark, tmp_path))
    assert "no SparkContext" in str(kernels.unavailable(object(), tmp_path))  # type: ignore[arg-type]


CLUSTER = """
    import json, sys
    from pathlib import Path
    import pyarrow as pa, pyarrow.parquet as parquet
    import anabranch
    from anabranch import kernel
    from anabranch.engine import spark as sessions

    folder, master, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = sessions.start(master, {})

    def faulty(work, pieces):
        import os, signal
        from anabranch import kernel
        from pyspark import TaskContext

        context = TaskContext.get()
        done = kernel.compute(work, pieces)
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("once")
        return done

    rows = {"k": [n % 7 for n in range(400)], "n": list(range(400))}
    parquet.write_table(pa.table(rows), folder / "a.parquet", row_group_size=100)
    kernel.compute = faulty
    with anabranch.connect(folder / "home", spark=spark, backend="spark") as ab:
        files = f"files(path => '{folder}/*.parquet', settle => '0s')"
        ab.sql(f"CREATE STREAM r (k BIGINT, n BIGINT) FROM {files} KEEP ALL")
        ab.sql("SET anabranch.task_bytes = 1; CREATE VIEW v AS SELECT k, count(*) AS c, sum(n) AS n FROM r GROUP BY k")
        answer = ab.sql("SELECT k, c, n FROM v ORDER BY k").toArrow().to_pylist()
        windows = "TUMBLE(TABLE r, DESCRIPTOR(row_num), 1 ROWS) GROUP BY window_start, window_end"
        ab.sql(f"CREATE VIEW w AS SELECT window_start AS n, max(n) AS m FROM {windows}")
        numbers = sorted((row["n"], row["m"]) for row in ab.sql("SELECT * FROM w").toArrow().to_pylist())
        times = ab.sql("SELECT milliseconds FROM sys.runs").toArrow().to_pylist()
        ledger = ab._core.ledger
        named = {name for table in ledger.snapshot().files.values() for name in table}
        files = {path.name for path in (folder / "home").rglob("*.parquet") if "_delta_log" not in path.parts}
        print(json.dumps({
            "right": answer == [{"k": k, "c": len(range(k, 400, 7)), "n": sum(range(k, 400, 7))} for k in range(7)],
            "numbered": numbers == [(n, n) for n in range(400)], "strays": sorted(files - named),
            "kernel": any(key == "partials kernel" for row in times for key, _ in row["milliseconds"]),
        }))
    spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("master", "how"),
    [("local[2,4]", "raises"), ("local[2,4]", "dies"), ("local-cluster[2,1,1024]", "dies")],
)
def test_a_task_that_runs_twice(tmp_path: Path, master: str, how: str) -> None:
    """A task that fails after it wrote its files: its rows count once, and nothing of the first attempt is left."""
    import json
    import subprocess
    import sys

    script = tmp_path / "cluster.py"
    script.write_text(textwrap.dedent(CLUSTER))
    command = [sys.executable, str(script), str(tmp_path), master, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {"right": True, "numbered": True, "strays": [], "kernel": True}
