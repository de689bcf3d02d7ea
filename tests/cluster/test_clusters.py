"""The law and the crashes where executors are processes of their own: in Spark's own small cluster, and in a real one.

Each cluster is tested by a process of its own, since a process has one Spark.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import spark_classes

SUITE = Path(__file__).with_name("suite.py")
TESTS = Path(__file__).parents[1]
SPARK = Path(pyspark.__file__).parent
SMALL = f'"{spark_classes.options()}"'
#: A cluster of which nothing is heard for so long hangs, in seconds.
PATIENCE = 120


def run(master: str, chosen: list[str], **environment: str) -> None:
    """Run tests on a master, in a process of their own."""
    options = ["-q", "-x", "-v", "-p", "no:cacheprovider", "--timeout", "900", "--durations", "0"]
    python(["pytest", *options, *chosen], {"ANABRANCH_TEST_MASTER": master, **environment})


def python(module: list[str], environment: dict[str, str]) -> None:
    """Run a module of Python that starts Spark; what it says is seen with `pytest -rP`, and if it fails."""
    arguments = f"--driver-java-options {SMALL} --conf spark.executor.extraJavaOptions={SMALL} pyspark-shell"
    started = subprocess.run(
        [sys.executable, "-m", *module],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": arguments,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **environment,
        },
        cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(started.stdout)
    assert started.returncode == 0, f"{started.stdout[-6000:]}\n{started.stderr[-2000:]}"


@pytest.fixture
def work() -> Iterator[None]:
    """Spark's own small cluster leaves the files of its workers in the folder of Spark."""
    folder = SPARK / "work"
    before = set(folder.iterdir()) if folder.exists() else set()
    yield
    for made in set(folder.iterdir()) - before if folder.exists() else ():
        shutil.rmtree(made, ignore_errors=True)


@pytest.mark.timeout(900)
def test_the_law_and_crashes_on_a_local_cluster(work: None) -> None:
    run("local-cluster[2,1,1024]", ["-m", "not slow", str(SUITE)])


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """A master and two workers on the loopback, from the package that pip installed; its address, and their pids."""
    with contextlib.ExitStack() as stack:

        def start(name: str, role: str, *arguments: str) -> tuple[int, Path]:
            log = folder / f"{name}.log"
            environment = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
            environment["SPARK_NO_DAEMONIZE"] = "1"
            command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1"]
            with log.open("w") as out:
                process = subprocess.Popen(
                    [*command, "--webui-port", "0", *arguments], stdout=out, stderr=out, env=environment
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process.pid, log

        _, log = start("master", "master.Master", "--port", "0")
        master = _said(log, r"Starting Spark master at (spark://\S+)")
        workers = []
        for name in ("one", "two"):
            place = ("--work-dir", str(folder / name))
            pid, log = start(name, "worker.Worker", "--cores", "1", "--memory", "1g", *place, master)
            _said(log, r"(Successfully registered with master)")
            workers.append(pid)
        yield master, workers


def _said(log: Path, pattern: str) -> str:
    """What a process says sooner or later."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"no {pattern} in {log.read_text()[-3000:]}")


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_standalone_cluster_loses_a_worker(tmp_path: Path) -> None:
    """The demo, NEXMark with few rows, the law, the crashes, and at last a worker that dies in the middle of a run."""
    nexmark = str(TESTS / "nexmark" / "test_nexmark.py")
    with standalone(tmp_path) as (master, workers):
        demo = ["anabranch", "demo", "--rows", "4000", "--seconds", "1", "--master", master]
        python(demo, {"ANABRANCH_BACKEND": "spark"})
        run(master, [f"{nexmark}::test_views_made_after_the_data"])
        run(master, [str(SUITE)], ANABRANCH_TEST_WORKER=str(workers[0]))
