"""Lets the tests of this folder import `crash_help` by name, and gives them one Spark for all workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from crash_help import Processes, spark_host


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Starts workers that share a JVM: it outlives them, warm, and with the jobs that they leave behind."""
    with spark_host() as environment:
        yield Processes(environment)


@pytest.fixture
def alone() -> Processes:
    """Starts workers that have a JVM of their own, as people do."""
    return Processes({})
