"""The checks of `anabranch doctor`, except for starting Spark."""

from __future__ import annotations

import fcntl
import json
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch import java
from anabranch.cli import doctor
from anabranch.errors import EnvironmentProblem


@pytest.fixture
def with_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find", lambda: java.JavaFound(Path("/j/bin/java"), Path("/j"), "17.0.1"))


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> java.JavaFound:
        raise EnvironmentProblem("no Java was found", hint="to get one: brew")

    monkeypatch.setattr(java, "find", find)


@pytest.mark.usefixtures("with_java")
def test_all_well(run_cli: Any, tmp_path: Path) -> None:
    ended = run_cli("doctor", "--no-spark", "--home", str(tmp_path / "new"))
    assert ended.code == 0, ended.out
    for word in (
        "Python",
        "17.0.1 at /j/bin/java",
        "pyspark",
        "deltalake",
        "GiB free",
        "can be created",
        "not started",
        "kafka(...)",
    ):
        assert word in ended.out
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("without_java")
def test_a_missing_java_fails_and_spark_is_not_tried(run_cli: Any, tmp_path: Path) -> None:
    ended = run_cli("doctor", "--home", str(tmp_path))
    assert ended.code == 1
    assert "to get one: brew" in ended.out
    assert "mend Java and pyspark first" in ended.out


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert doctor.check_writable(tmp_path / "home").state == doctor.FAIL


def test_the_writer_of_a_home_is_named(tmp_path: Path) -> None:
    assert doctor.check_lock(tmp_path).found == "none"
    with open(tmp_path / "writer.lock", "w") as lock:
        json.dump({"pid": 4711, "host": "box", "since": "2026-01-01"}, lock)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        finding = doctor.check_lock(tmp_path)
    assert finding.state == doctor.WARN
    assert "4711" in finding.found
    assert doctor.check_lock(tmp_path).found == "none"


def test_little_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, state in ((10 * 1024**3, doctor.OK), (1024**3, doctor.WARN), (1024, doctor.FAIL)):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _, usage=usage: usage)
        assert doctor.check_disk("disk", tmp_path / "not" / "there").state == state


def test_version_ranges() -> None:
    assert doctor._fits("1.6.6", ">=1.6,<2")
    assert not doctor._fits("2.0.0", ">=1.6,<2")
    assert not doctor._fits("1.5.9", ">=1.6,<2")
    assert doctor._fits("4.3.0", "<4.4,>=4.3")


def test_a_missing_package() -> None:
    assert doctor.check_package("no-such-package-at-all").state == doctor.FAIL


def test_spark_home_without_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    finding = doctor.check_pyspark()
    assert finding.state == doctor.FAIL
    assert "SPARK_HOME" in finding.advice


def test_what_a_source_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    found = {finding.name: finding for finding in doctor.check_kinds()}
    assert found["excel(...)"].state == doctor.WARN and "python_calamine is not installed" in found["excel(...)"].found
    assert found["excel(...)"].advice == "to use excel(...): pip install 'anabranch[excel]'"


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("", ["Spark session: fail: no answer in 1 s"]),
        ("started", ["Spark session: fail: the session started, but no answer in 1 s to a count of 10 rows"]),
        ("started\n10", ["Spark session: ok: started and counted", "kernels: warn: no answer in 1 s"]),
    ],
)
def test_a_spark_that_does_not_answer_is_told_within_a_time_and_ended(
    printed: str, found: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And so is what it has started, such as the executors of a local cluster."""
    program = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
print({printed!r}, end={chr(10) if printed else ""!r}, flush=True)
time.sleep(100)
"""
    monkeypatch.setattr(doctor, "_START_SPARK", program)
    monkeypatch.setattr(doctor, "SPARK_SECONDS", 1.0)
    monkeypatch.setattr(java, "ensure", lambda: None)
    findings = list(doctor.check_spark("local-cluster[2,1,1024]", {}, tmp_path))
    told = [f"{each.name}: {each.state}: {each.found}" for each in findings]
    assert len(told) == len(found) and all(map(str.startswith, told, found)), told
    state = Path(f"/proc/{(tmp_path / 'child').read_text()}/stat")
    until = time.monotonic() + 30
    while state.exists() and state.read_text().split()[2] not in ("Z", "X"):
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.05)
