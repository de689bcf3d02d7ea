"""What is tested on a cluster, in a process of its own: see test_clusters.py, which starts it.

The executors are other processes than the driver: they find the home by its path, and the package by theirs.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.engine import scan
from anabranch.testing import Harness, assert_same_rows, shuffled

sys.path.append(str(Path(__file__).parents[1] / "crash"))

import crash_help
from crash_help import Feed, Processes, answers, check_changes, check_clean, same, truth

from engine.test_limits import STREAM, VIEWS, at, plain

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


def test_joins_in_buckets(tmp_path: Path, spark: SparkSession) -> None:
    """Executors join what a run brings with their buckets, whoever takes which; the files of runs are merged."""
    from engine.test_buckets import JOINS, check, places, rows_of, streams, write

    queries = {name: JOINS[name] for name in ("band", "texts", "itself", "windows")}
    given = {"a": rows_of(8, 60), "b": rows_of(9, 60)}
    with Harness(tmp_path / "home", spark, backend="spark") as home:
        streams(home, tmp_path / "in", fed=True)
        home.sql("".join(f"CREATE VIEW {name} AS {query} EMIT CHANGES;" for name, query in queries.items()))
        for run in range(2):
            for stream in "ab":
                write(tmp_path / "in" / stream, str(run), given[stream][30 * run : 30 * run + 30])
                home.query("SELECT count(*) FROM band")
        home.compact()
        check(home, queries, given)
        assert "with the rows of the run" in places(home)["band"] and "2 buckets by s" in places(home)["texts"]
    assert not list((tmp_path / "home" / "staging").iterdir())


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
