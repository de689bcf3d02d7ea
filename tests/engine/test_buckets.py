"""Changes that Spark's tasks compute in buckets: the answers of Spark over the raw rows, however tasks fare."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from anabranch import kernel
from anabranch.duck import Variable
from anabranch.engine.bucket_files import FilesByBucket, hash_of, lasting
from anabranch.engine.place import Backend
from anabranch.errors import QueryFailed
from anabranch.ledger import Bucket, DataFile
from anabranch.plan.view import View
from anabranch.testing import Harness, assert_same_rows

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
COLUMNS = "id BIGINT, k INT, s STRING, d DECIMAL(9, 2), ts TIMESTAMP"
KINDS = {"id": pa.int64(), "k": pa.int32(), "s": pa.string(), "d": pa.decimal128(9, 2)}
SCHEMA = pa.schema({**KINDS, "ts": pa.timestamp("us", "UTC")})
TUMBLE = "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL 20 SECONDS)"
WINDOW = "(SELECT *, window(ts, '20 seconds').start AS window_start FROM {})"
BAND = "b.ts BETWEEN a.ts - INTERVAL 10 SECONDS AND a.ts + INTERVAL 15 SECONDS"
#: Joins that can be split by a key, of numbers of two widths, of texts, of decimals, with itself; and some that cannot.
JOINS = {
    "band": f"SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k AND {BAND}",
    "wide": f"SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.id AND {BAND}",
    "texts": "SELECT a.id AS i, b.d FROM a JOIN b ON a.s = b.s AND a.k <> b.k WHERE a.ts < b.ts",
    "exact": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.d = b.d",
    "nulls": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k <=> b.k WHERE a.id < 9",
    "itself": "SELECT x.id AS i, y.id AS j FROM a AS x JOIN a AS y ON x.k = y.k AND y.ts > x.ts",
    "crossed": "SELECT x.id AS i, y.id AS j FROM a AS x JOIN a AS y ON x.k = y.id",
    "windows": f"SELECT a.id AS i, b.id AS j FROM {TUMBLE.format('a')} AS a JOIN {TUMBLE.format('b')} AS b"
    " ON a.k = b.k AND a.window_start = b.window_start",
    "named": "SELECT a.id AS i, b.id AS j, n.name FROM a JOIN b ON a.k = b.k LEFT JOIN names AS n ON n.k = b.k",
    "counted": f"SELECT a.s, count(*) AS c, sum(b.k) AS k FROM a JOIN b ON a.k = b.k AND {BAND} GROUP BY a.s",
    "sums": "SELECT x.s, x.n, y.m FROM (SELECT s, count(*) AS n FROM a GROUP BY s) AS x"
    " JOIN (SELECT s, max(k) AS m FROM b GROUP BY s) AS y ON x.s = y.s",
}
#: With keys, and one without.
KEYED = {
    "lefts": f"SELECT a.id AS i, a.k, b.id AS j FROM a LEFT JOIN b ON a.k = b.k AND {BAND}",
    "groups": "SELECT s, k, count(*) AS c, sum(d) AS d, max(ts) AS t FROM a GROUP BY s, k",
    "hops": "SELECT window_start, s, sum(k) AS k FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL 10 SECONDS, INTERVAL 30"
    " SECONDS) GROUP BY window_start, window_end, s",
    "best": "SELECT * FROM (SELECT s, id, row_number() OVER (PARTITION BY s ORDER BY k DESC, id) AS r FROM a)"
    " WHERE r <= 2",
    "whole": "SELECT count(*) AS c, max(a.k) AS k FROM a JOIN b ON a.k = b.k",
}
HOPS = (
    "SELECT w.start AS window_start, s, sum(k) AS k FROM (SELECT window(ts, '30 seconds', '10 seconds') AS w, s, k"
    " FROM a) GROUP BY w, s"
)
NAMES = [(0, "none"), (1, "one"), (2, "two")]


def rows_of(seed: int, count: int) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    return [
        (
            number,
            chance.choice([0, 1, 1, 2, 3, None]),
            chance.choice(["x", "y", "z", "", None]),
            chance.choice([None, *(f"{n}.{n}0" for n in range(4))]),
            START + timedelta(seconds=chance.randrange(100) - (300 if chance.random() < 0.1 else 0)),
        )
        for number in range(count)
    ]


def write(folder: Path, name: str, rows: list[tuple[Any, ...]]) -> None:
    from decimal import Decimal

    folder.mkdir(exist_ok=True)
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[3] = [None if each is None else Decimal(each) for each in columns[3]]
    made = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    parquet.write_table(pa.Table.from_arrays(made, schema=SCHEMA), folder / f".{name}", row_group_size=9)
    (folder / f".{name}").rename(folder / f"{name}.parquet")


def streams(home: Harness, folder: Path, *, fed: bool) -> None:
    """Streams a and b, over Parquet files or from INSERT; every run of theirs is computed in two buckets."""
    home.sql("SET anabranch.bucket_rows = 1; SET anabranch.task_bytes = 1")
    for name in "ab":
        (folder / name).mkdir(parents=True, exist_ok=True)
        files = f" FROM files(path => '{folder / name}/*.parquet', settle => '0s')" if fed else ""
        home.sql(f"CREATE STREAM {name} ({COLUMNS}) WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS{files}")
    home.sql("CREATE TABLE names (k INT, name STRING)")
    home.sql("INSERT INTO names VALUES " + ", ".join(f"({k}, '{name}')" for k, name in NAMES))


def places(home: Harness) -> dict[str, str]:
    """Where the changes of views were computed last."""
    core, found = home.session._core, dict[str, str]()
    for record in core.ledger.records(0):
        found |= record.backends
    return {view.name: found[view.id] for view in core.catalog().of(View) if view.id in found}


def in_buckets(home: Harness) -> dict[str, int]:
    """In how many buckets the state of views is; each of its rows has to be in the one that its file says."""
    from anabranch.duck import DATABASE, in_bucket, take_bucket

    core, found = home.session._core, dict[str, int]()
    snapshot, duck = core.ledger.snapshot(), DATABASE.connect()
    for view in core.catalog().of(View):
        for table in (view.changes_table, *(use.panes for use in view.query.blocks)):
            for file in snapshot.files.get(table, {}).values():
                if file.bucket is not None:
                    take_bucket(duck, file.bucket.number, file.bucket.of)
                    path, hash = core.ledger.table_folder(table) / file.path, file.bucket.by.partition(" of ")[0]
                    inside = f"SELECT bool_and({in_bucket(hash)}) FROM read_parquet('{path}')"
                    assert duck.execute(inside).fetchall() == [(True,)]
                    found[view.name] = max(file.bucket.of, found.get(view.name, 0))
    return found


def check(home: Harness, queries: dict[str, str], rows: dict[str, list[tuple[Any, ...]]]) -> None:
    for name, query in queries.items():
        for stream in "ab":
            query = query.replace(TUMBLE.format(stream), WINDOW.format(stream))
        wanted = home.batch(HOPS if name == "hops" else query, **rows, names=NAMES)
        assert_same_rows(home.emitted(name), wanted, name)
        assert_same_rows(home.table(name), wanted, name)


@pytest.mark.parametrize("fed", [True, False])
def test_buckets_answer_as_spark_does(tmp_path: Path, spark: SparkSession, fed: bool) -> None:
    """Joins and nodes with keys; late rows, keys that are NULL, merged files and a home that is opened again."""
    queries = JOINS if fed else {**JOINS, **KEYED}
    given = {"a": rows_of(1, 36), "b": rows_of(2, 30)}
    cuts = {"a": (0, 14, 15, 36), "b": (0, 10, 22, 30)}
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=fed)
        home.sql("".join(f"CREATE VIEW {name} AS {query} EMIT CHANGES;" for name, query in queries.items()))
        for run in range(3):
            for stream in "ab":
                new = given[stream][slice(*cuts[stream][run : run + 2])]
                if not fed:
                    home.insert(stream, new)
                    continue
                write(tmp_path / "in" / stream, str(run), new)
                home.query("SELECT count(*) FROM band")
            if run == 1:
                home.compact()
                if not fed:
                    assert {"groups", "lefts"} <= in_buckets(home).keys()
                home.reopen()
                home.sql("SET anabranch.bucket_rows = 1; SET anabranch.task_bytes = 1")
        check(home, queries, given)
        found = places(home)
        if not fed:
            assert "2 buckets by k" in found["band"] and "2 buckets by s, k" in found["groups"]
            assert "1 bucket" in found["whole"] and "2 buckets by k, id" in found["crossed"]
        else:
            ahead = {
                name
                for name, place in found.items()
                if name in JOINS and place == "in kernels, with the rows of the run"
            }
            assert ahead == {"band", "wide", "nulls", "itself", "windows"}, found
            assert found["texts"].startswith("in kernels, 2 buckets by s")
            assert "2 buckets by k, id" in found["crossed"]
        told = "\n".join(row[0] for row in home.query("EXPLAIN ANALYZE band"))
        assert "in kernels" in told
    assert not list((tmp_path / "home" / "staging").glob("*/*.parquet"))


#: Of one stream: nodes whose key is columns of its rows, the columns under other names, other columns, or none of them.
OF_RUNS = {
    **{name: KEYED[name] for name in ("groups", "hops", "best")},
    "renamed": "SELECT x.s AS a, k AS b, min(d) AS d FROM a AS x WHERE id <> 4 GROUP BY x.s, k",
    "fewer": "SELECT k, sum(id) AS i, avg(k) AS a FROM a GROUP BY k",
    "computed": "SELECT upper(s) AS s, count(*) AS c FROM a GROUP BY upper(s)",
}


@pytest.mark.parametrize("buckets", [1, 2])
def test_tasks_that_read_a_run_compute_its_changes(tmp_path: Path, spark: SparkSession, buckets: int) -> None:
    """Partials and changes come of one job: of all nodes in one bucket, of those with one hash of the rows in two."""
    given = rows_of(9, 40)
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=True)
        if buckets == 1:
            home.sql("SET anabranch.bucket_rows = 1000")
        home.sql("".join(f"CREATE VIEW {name} AS {query} EMIT CHANGES;" for name, query in OF_RUNS.items()))
        for run, (first, last) in enumerate([(0, 15), (15, 16), (16, 30), (30, 40)]):  # of one row: a bucket has none
            write(tmp_path / "in" / "a", str(run), given[first:last])
            home.query("SELECT count(*) FROM groups")
            if run == 2:
                home.compact()
        ahead = {name for name, place in places(home).items() if place == "in kernels, with the rows of the run"}
        assert ahead == (OF_RUNS.keys() if buckets == 1 else {"groups", "renamed"}), places(home)
        check(home, OF_RUNS, {"a": given})
    assert not list((tmp_path / "home" / "staging").glob("*/*.parquet"))


@pytest.mark.parametrize("late", ["CORRECT", "ARCHIVE"])
def test_windows_close_in_buckets(tmp_path: Path, spark: SparkSession, late: str) -> None:
    """Late rows correct what was shown or are kept for later reads, and are counted as the driver counts them."""
    query = f"SELECT window_start, s, count(*) AS c, max(k) AS k FROM {TUMBLE.format('a')} GROUP BY window_start,"
    query += " window_end, s"
    batch = f"SELECT window_start, s, count(*) AS c, max(k) AS k FROM {WINDOW.format('a')} GROUP BY window_start, s"
    given = rows_of(8, 60)
    counted = list[list[Any]]()
    for backend in ("spark", "driver"):
        with Harness(tmp_path / backend, spark, backend=backend) as home:
            streams(home, tmp_path / "in", fed=False)
            home.sql(f"CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE LATE {late}")
            for start in range(0, 60, 12):
                home.insert("a", given[start : start + 12])
                found = places(home).get("v", "")
                assert backend == "driver" or not start or found.startswith("in kernels, 2 buckets by s"), found
            home.advance("a")
            wanted = home.batch(batch, a=given)
            if late == "CORRECT":
                assert_same_rows(home.emitted("v"), wanted)
            assert_same_rows(home.table("v"), wanted)
            counted.append(home.query("SELECT window_start, sum(rows) FROM sys.late_rows GROUP BY 1 ORDER BY 1"))
    assert counted[0] and counted[0] == counted[1]


@pytest.mark.parametrize("backend", ["spark", "driver"])
def test_a_late_row_fails_a_view_that_says_so(tmp_path: Path, spark: SparkSession, backend: Backend) -> None:
    query = f"SELECT s, count(*) AS c FROM {TUMBLE.format('a')} GROUP BY window_start, window_end, s"
    with Harness(tmp_path / "home", spark, backend=backend) as home:
        streams(home, tmp_path / "in", fed=False)
        home.sql(f"CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE LATE FAIL")
        home.insert("a", [(1, 1, "x", None, START), (2, 1, "y", None, START + timedelta(seconds=60))])
        with pytest.raises(QueryFailed, match="late"):
            home.insert("a", [(3, 1, "x", None, START), (4, 1, "z", None, START + timedelta(seconds=90))])
        assert home.emitted("v") == [("x", 1)]
        snapshot = home.session._core.ledger.snapshot()
        named = {name for table in snapshot.files.values() for name in table}
        assert {path.name for path in (tmp_path / "home").rglob("*.parquet") if "_delta_log" not in path.parts} == named


def test_changes_that_another_commit_overtakes_are_computed_again(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tasks of a run have joined with is the state that they found: by the time of the commit, it is older."""
    from anabranch.engine import run

    given = {"a": rows_of(3, 20), "b": rows_of(4, 20)}
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=True)
        home.sql("CREATE STREAM other (n INT)")
        home.sql(f"CREATE VIEW band AS {JOINS['band']} EMIT CHANGES")
        write(tmp_path / "in" / "a", "0", given["a"])
        home.query("SELECT count(*) FROM band")
        overtaken = list[str]()

        def reach(name: str) -> None:
            if name == "after-files" and not overtaken:
                overtaken.append(name)
                home.insert("other", [(1,)])

        monkeypatch.setattr(run, "reach", reach)
        write(tmp_path / "in" / "b", "0", given["b"])
        home.query("SELECT count(*) FROM band")
        assert overtaken and "with the rows of the run" not in places(home)["band"]
        check(home, {"band": JOINS["band"]}, given)
        snapshot = home.session._core.ledger.snapshot()
        named = {name for table in snapshot.files.values() for name in table}
        assert {path.name for path in (tmp_path / "home").rglob("*.parquet") if "_delta_log" not in path.parts} == named


def test_a_duplicate_of_a_bucket_counts_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with speculation: every task is carried out twice, and the driver hears of one of the two."""
    from anabranch import bucket

    def twice(work: kernel.Work, share: Any) -> Any:
        from anabranch import kernel

        kernel.compute(work, share)
        return kernel.compute(work, share)

    def again(folder: str, memory: int, task: Any) -> Any:
        from anabranch import bucket

        bucket.compute(folder, memory, task)
        return bucket.compute(folder, memory, task)

    monkeypatch.setattr(kernel, "compute", twice)
    monkeypatch.setattr(bucket, "compute", again)
    given = {"a": rows_of(5, 20), "b": rows_of(6, 20)}
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=True)
        queries = {name: JOINS[name] for name in ("band", "texts")}
        home.sql("".join(f"CREATE VIEW {name} AS {query} EMIT CHANGES;" for name, query in queries.items()))
        for stream in "ab":
            write(tmp_path / "in" / stream, "0", given[stream])
            home.query("SELECT count(*) FROM band")
        check(home, queries, given)
        snapshot = home.session._core.ledger.snapshot()
        named = {name for table in snapshot.files.values() for name in table}
        assert {path.name for path in (tmp_path / "home").rglob("*.parquet") if "_delta_log" not in path.parts} == named


def test_a_task_that_declines_leaves_a_node_to_spark(tmp_path: Path, spark: SparkSession) -> None:
    """A text that only Spark sorts and compares as it should: nothing of the other tasks is left."""
    given = {"a": [(0, 1, "ä", None, START), (1, 1, "b", None, START)], "b": rows_of(7, 8)}
    query = "SELECT upper(a.s) AS s, b.id AS j FROM a JOIN b ON a.k = b.k"
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=True)
        home.sql(f"CREATE VIEW v AS {query} EMIT CHANGES")
        for stream in "ba":
            write(tmp_path / "in" / stream, "0", given[stream])
            home.query("SELECT count(*) FROM v")
        check(home, {"v": query}, given)
        assert places(home)["v"].startswith("by Spark")


def test_a_task_reads_the_files_of_its_bucket(tmp_path: Path) -> None:
    """And those that say nothing, or that something else was split by; never none, for their columns."""
    hash = hash_of([("k", "int")])
    buckets = [None, Bucket(lasting(hash), 0, 1), Bucket(lasting(hash), 1, 2), Bucket(lasting(hash), 3, 4)]
    files = [DataFile(f"{n}.parquet", 1, 1, bucket=bucket) for n, bucket in enumerate([*buckets, Bucket("else", 0, 2)])]
    lists = FilesByBucket({"t": hash})
    assert lists.paths("u", tmp_path, files) == [str(tmp_path / file.path) for file in files]
    assert lists.paths("t", tmp_path, files[:1]) == [str(tmp_path / "0.parquet")]
    assert isinstance(lists.paths("t", tmp_path, files), Variable)
    read = {n: [Path(path).stem for path in lists.of(n, 4)["files_0"]] for n in range(4)}
    assert read == {0: ["0", "1", "4"], 1: ["0", "1", "2", "4"], 2: ["0", "1", "4"], 3: ["0", "1", "2", "3", "4"]}
    few = FilesByBucket({"t": hash})
    few.paths("t", tmp_path, files[2:4])
    assert few.of(0, 2) == {"files_0": [str(tmp_path / "2.parquet")]}
