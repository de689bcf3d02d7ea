"""What all tests share: one Spark session a process, a home of its own for each test, and how hard to search.

ANABRANCH_TEST_MASTER has all of it on another master than local[2]: see `cluster`.

The examples of the property tests are the same in every run, and few. ANABRANCH_SEED=7 has others (`seeds` says of
what else); ANABRANCH_EXAMPLES=200 looks at as many, at random if no seed is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis.core
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings

import spark_classes
from seeds import FIRST, SEED, VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.testing import Harness

_EXAMPLES = os.environ.get("ANABRANCH_EXAMPLES")
#: An example of the engine's laws takes a second or more: making a failing one smaller is worth it only when asked for.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate] + ([Phase.shrink] if os.environ.get("ANABRANCH_SHRINK") else [])

_FIXED = _EXAMPLES is None and SEED is None
if SEED is not None:
    hypothesis.core.global_force_seed = SEED

hypothesis_settings.register_profile(
    "engine",
    deadline=None,
    max_examples=int(_EXAMPLES or 3),
    derandomize=_FIXED,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=_PHASES,
)


# An example that takes long on a busy machine is no failure.
hypothesis_settings.register_profile("unhurried", deadline=None, derandomize=_FIXED, print_blob=True)
hypothesis_settings.load_profile("unhurried")

# For those of the command line and of processes to be killed, too.
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f'--driver-java-options "{spark_classes.options()}" pyspark-shell')

#: Files that take a minute or more, the longest first: one that starts last would be waited for alone.
_LONG = (
    "law/test_changes.py",
    "nexmark/test_nexmark.py",
    "engine/test_stream_joins.py",
    "law/test_windows.py",
    "crash/test_exactly_once.py",
    "engine/test_progress_plane.py",
    "law/test_joins.py",
    "engine/test_triggers.py",
    "cluster/test_clusters.py",
    "algebra/test_aggregates_spark.py",
    "sources/test_pushdown.py",
    "engine/test_subqueries.py",
    "cases/test_cases.py",
    "engine/test_lookup_changes.py",
    "engine/test_buckets.py",
    "ledger/test_older_homes.py",
    "engine/test_sessions.py",
    "engine/test_picks.py",
    "docs/test_docs.py",
    "engine/test_late_drop.py",
    "law/test_smoothing.py",
    "law/test_emission.py",
    "engine/test_counting_changes.py",
    "engine/test_alter.py",
    "engine/test_maintained_views.py",
    "crash/test_growing_files.py",
)

#: Folders whose tests start processes of their own.
_PROCESSES = ("bench", "cli", "cluster", "crash", "demo", "docs", "sinks")
#: Fixtures that start Spark or a server.
_STARTS = {"spark", "home", "postgres", "mysql", "broker", "server"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pure", action="store_true", help="only tests that start neither Spark nor a server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    root = Path(__file__).parent
    place = {root / name: at for at, name in enumerate(_LONG)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    if not config.getoption("--pure"):
        return
    pure = [
        item
        for item in items
        if item.path.relative_to(root).parts[0] not in _PROCESSES
        and not _STARTS & set(getattr(item, "fixturenames", ()))
    ]
    kept = set(pure)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = pure


def pytest_report_header() -> str | None:
    return None if SEED is None else f"{VARIABLE}={SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if SEED is not None and (terminalreporter.stats.get("failed") or terminalreporter.stats.get("error")):
        terminalreporter.write_line(f"the same once more: {VARIABLE}={SEED}")


@pytest.fixture
def seed() -> int:
    """The seed of a test that kills or asks at random."""
    return FIRST


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of the process."""
    from anabranch.engine import spark as sessions

    # Thousands of queries over a few rows each: compiling them never pays. The tests of the command line, the demo and
    # the crashes run with the settings that people have.
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    session = sessions.start(os.environ.get("ANABRANCH_TEST_MASTER", "local[2]"), settings)
    yield session
    session.stop()


@pytest.fixture
def home(tmp_path: Path, spark: SparkSession) -> Iterator[Harness]:
    """A home of its own, in the shared Spark session."""
    from anabranch.testing import Harness

    with Harness(tmp_path / "home", spark) as harness:
        yield harness


@pytest.fixture(autouse=True)
def environment_as_it_was() -> Iterator[None]:
    """A test that chooses a Java must not choose it for the processes of the tests after it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
