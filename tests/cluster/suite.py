"""What is tested on a cluster, in a process of its own: see test_clusters.py, which starts it.

The executors are other processes than the driver: they find the home by its path, and the package by theirs.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch import bucket, kernel
from anabranch.engine import scan
from anabranch.testing import Harness, assert_same_rows, shuffled

sys.path.append(str(Path(__file__).parents[1] / "crash"))

import crash_help
from crash_help import Feed, Processes, answers, check_changes, check_clean, same, truth

from engine.test_buckets import JOINS, KEYED, check, in_buckets, places, rows_of, streams, write
from engine.test_limits import STREAM, VIEWS, at, plain
from nexmark import test_nexmark as nexmark

NOTHING_SMALL = "; ".join(
    f"SET anabranch.{name} = 0"
    for name in ("run_bytes", "small_run_bytes", "small_rows", "changes_rows", "closing_rows", "pending_keys")
)
JOINED = (
    "SELECT x.k, count(*) AS c, sum(x.n * y.n) AS n FROM s AS x JOIN s AS y ON x.k = y.k AND y.ts BETWEEN x.ts AND"
    " x.ts + INTERVAL 20 SECONDS GROUP BY x.k"
)


def test_nobody_computes_on_the_driver_alone(spark: SparkSession) -> None:
    """Tasks run under other Java processes than the driver's, and have the package."""

    def where(_: int) -> tuple[int, str]:
        import os
        from pathlib import Path

        import anabranch

        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        return int(daemon.rpartition(")")[2].split()[1]), anabranch.__name__

    found = spark.sparkContext.parallelize(range(4), 4).map(where).collect()
    driver = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert driver not in {pid for pid, _ in found}
    assert {name for _, name in found} == {"anabranch"}


def test_the_law(tmp_path: Path, spark: SparkSession) -> None:
    """Any order and any cut into runs, live and closed: executors compute and write all of it."""
    chance = random.Random(5)
    rows = [
        (chance.choice(["a", "b", "c", None]), chance.randrange(3), chance.randrange(-5, 9), at(chance.randrange(240)))
        for _ in range(60)
    ]
    views = {name: VIEWS[name] for name in ("live", "closed", "computed")} | {"joined": f"{JOINED} EMIT CHANGES"}
    with Harness(tmp_path / "home", spark) as home:
        home.sql(f"{NOTHING_SMALL}; {STREAM}")
        home.sql("; ".join(f"CREATE VIEW {name} AS {query}" for name, query in views.items()))
        given = shuffled(rows, chance)
        for run in (given[:30], given[30:]):
            home.insert("s", run)
        home.compact()
        home.advance("s")
        for name, query in views.items():
            assert_same_rows(home.emitted(name), home.batch(plain(query), s=rows), query)
    assert not list((tmp_path / "home" / "staging").iterdir())


def losing(computing: str, mark: Path) -> Callable[..., Any]:
    """What tasks compute; if there is a file of this name, one executor is lost with its task, which wrote its rows."""
    name = str(mark)

    def compute(*given: Any) -> Any:
        done = importlib.import_module(computing).compute(*given)
        try:
            os.unlink(name)  # only one can
        except FileNotFoundError:
            return done
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        raise RuntimeError("lost")

    return compute


def test_joins_in_buckets(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors join what a run brings with their buckets, and one is lost with its; the files of runs are merged."""
    mark = tmp_path / "lost"
    monkeypatch.setattr(bucket, "compute", losing("anabranch.bucket", mark))
    queries = {name: JOINS[name] for name in ("band", "texts", "itself", "windows")}
    given = {"a": rows_of(8, 60), "b": rows_of(9, 60)}
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=True)
        home.sql("".join(f"CREATE VIEW {name} AS {query} EMIT CHANGES;" for name, query in queries.items()))
        for run in range(2):
            for stream in "ab":
                write(tmp_path / "in" / stream, str(run), given[stream][30 * run : 30 * run + 30])
                home.query("SELECT count(*) FROM band")
            if run == 0:
                mark.touch()
        assert not mark.exists()
        home.compact()
        check(home, queries, given)
        assert "with the rows of the run" in places(home)["band"] and "2 buckets by s" in places(home)["texts"]
    assert not list((tmp_path / "home" / "staging").iterdir())


@pytest.mark.slow
def test_executors_are_lost_with_buckets(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the job that reads a run, in one of changes, in a merge, and once tables of state are in buckets."""
    in_run, in_changes = tmp_path / "in-run", tmp_path / "in-changes"
    monkeypatch.setattr(kernel, "compute", losing("anabranch.kernel", in_run))
    monkeypatch.setattr(bucket, "compute", losing("anabranch.bucket", in_changes))
    queries = {**{name: JOINS[name] for name in ("band", "texts")}, "groups": KEYED["groups"]}
    given = {"a": rows_of(3, 60), "b": rows_of(4, 60)}
    lost: dict[int, tuple[Path, ...]] = {2: (in_run,), 3: (in_changes,), 6: (in_run, in_changes)}
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=True)
        home.sql("".join(f"CREATE VIEW {name} AS {query} EMIT CHANGES;" for name, query in queries.items()))
        for step in range(8):
            run, stream = step // 2, "ab"[step % 2]
            write(tmp_path / "in" / stream, str(run), given[stream][15 * run : 15 * run + 15])
            for mark in lost.get(step, ()):
                mark.touch()
            home.query("SELECT count(*) FROM band")
            assert not in_run.exists() and not in_changes.exists(), step
            if step == 5:
                in_changes.touch()
                home.compact()
                assert not in_changes.exists() and {"texts", "groups"} & in_buckets(home).keys()
        check(home, queries, given)
        found = places(home)
        assert "with the rows of the run" in found["band"] and all("in kernels" in each for each in found.values())
    check_clean(tmp_path / "home")


@pytest.mark.slow
def test_nexmark_with_the_work_of_executors(tmp_path: Path, spark: SparkSession) -> None:
    """Joins, windows and first rows over rows that are mixed, with merged files in between."""
    names, chance = ("q3", "q4", "q5", "q7", "q9", "q18"), random.Random(9)
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        home.sql("; ".join(map(nexmark.create, nexmark.STREAMS)))
        home.sql(f"SET anabranch.bucket_rows = 1; {nexmark.views(' EMIT CHANGES', names)}")
        mixed = {stream: shuffled(nexmark.rows(stream)[1], chance) for stream in nexmark.STREAMS}
        for half in range(2):
            for stream, rows in mixed.items():
                home.insert(stream, rows[half::2])
            home.compact()
        nexmark.check(home, emitted=True, names=names)
        for name in names:
            assert_same_rows(home.emitted(name), home.batch(nexmark.QUERIES[name], **mixed), name)
    check_clean(tmp_path / "home")


def test_killed_and_started_again(tmp_path: Path, spark: SparkSession) -> None:
    """A driver that dies while executors write leaves nothing behind, and every answer is right after it."""
    home, feed = tmp_path / "home", Feed(tmp_path / "in")
    gateway = spark.sparkContext._gateway.java_parameters  # type: ignore[union-attr]
    found = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.auth_token}
    processes, order = Processes(found), {"home": home, "run": feed.script, "by_executors": True}
    for place in ("after-adopt:3", "after-changes"):
        feed.add(1)
        outcome = processes.run(order, crash_at=place)
        assert outcome.killed, f"{place} was not reached: {outcome.explain()}"
        crash_help.look(home)
    last = processes.run({**order, "after": [answers(at_version=False)]})
    assert last.clean, last.explain()
    same(last.answers("after"), truth(feed.all_files()))
    check_clean(home)
    check_changes(home)


@pytest.mark.skipif("ANABRANCH_TEST_WORKER" not in os.environ, reason="no worker was named that may be killed")
def test_a_worker_is_lost_in_the_middle_of_a_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks are done by the other one: the answers are right, and nothing of its own is left."""
    rows: list[tuple[Any, ...]] = [
        (f"k{n % 1000}", n % 7, n % 13, datetime(2026, 1, 1) + timedelta(milliseconds=n)) for n in range(60_000)
    ]
    views = {name: VIEWS[name] for name in ("live", "closed", "computed")}
    with Harness(tmp_path / "home", spark) as home:
        home.sql(f"{NOTHING_SMALL}; {STREAM}")
        home.sql("; ".join(f"CREATE VIEW {name} AS {query}" for name, query in views.items()))
        home.insert("s", rows[:20_000])
        victim = int(os.environ["ANABRANCH_TEST_WORKER"])
        killed: list[int] = []

        def reach(name: str) -> None:
            if name == "during-files" and not killed:
                killed.append(victim)
                threading.Timer(0.4, os.kill, (victim, signal.SIGKILL)).start()

        monkeypatch.setattr(scan, "reach", reach)
        home.insert("s", rows[20_000:40_000])
        home.insert("s", rows[40_000:])
        home.advance("s")
        assert killed and not crash_help.is_running(victim)
        for name, query in views.items():
            assert_same_rows(home.emitted(name), home.batch(plain(query), s=rows), query)
    assert not list((tmp_path / "home" / "staging").iterdir())
