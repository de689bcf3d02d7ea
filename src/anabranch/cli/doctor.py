"""`anabranch doctor`: is everything installed that Anabranch needs, and does it work?

Each check is a function that returns one finding and changes nothing. Spark starts in its own process, so that its
output and failures do not disturb the report.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from anabranch.cli import tables
from anabranch.cli.console import Console
from anabranch.errors import AnabranchError, HomeInUse

OK, WARN, FAIL = "ok", "warn", "fail"
OLDEST_PYTHON = (3, 10)
LITTLE_DISK = 2 * 1024**3
NO_DISK = 200 * 1024**2
SPARK_SECONDS = 120.0
_STYLES = {OK: "green", WARN: "yellow", FAIL: "red"}

#: Run with the home and key=value settings as arguments; prints a line when the session has started, the number 10 if
#: Spark works, and the reason if its executors cannot run kernels.
_START_SPARK = """
import os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from anabranch.engine.kernels import unavailable
if any(setting.startswith("spark.master=local") for setting in sys.argv):
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = SparkSession.builder.appName("anabranch doctor")
for setting in sys.argv[2:]:
    key, _, value = setting.partition("=")
    builder = builder.config(key, value)
spark = builder.getOrCreate()
print("started", flush=True)
print(spark.range(10).count(), flush=True)
print(unavailable(spark, Path(sys.argv[1])) or "", flush=True)
spark.stop()
"""


@dataclass(frozen=True)
class Finding:
    """The result of one check, and what to do about it."""

    name: str
    state: str
    found: str
    advice: str = ""


def examine(console: Console, home: str, *, start_spark: bool, master: str | None, conf: dict[str, str]) -> int:
    """Run all checks and print a table; returns 1 if any failed."""
    findings = []
    for finding in check_all(Path(home), start_spark=start_spark, master=master, conf=conf):
        findings.append(finding)
        console.status(f"{finding.name} ...")
    console.end_status()
    rows = [(f.name, f.state, f.found, f.advice) for f in findings]
    columns: list[list[str | None]] = [[row[i] for row in rows] for i in range(4)]
    printed = list(tables.lines(["check", "state", "found", "what to do"], columns, [False] * 4))
    for line in printed[:2]:
        console.line(line)
    for finding, line in zip(findings, printed[2:], strict=True):
        console.line(_coloured(console, finding, line))
    return 1 if any(finding.state == FAIL for finding in findings) else 0


def _coloured(console: Console, finding: Finding, line: str) -> str:
    mark = f"| {finding.state}"
    return line.replace(mark, f"| {console.style(finding.state, _STYLES[finding.state])}", 1)


def check_all(home: Path, *, start_spark: bool, master: str | None, conf: dict[str, str]) -> Iterator[Finding]:
    yield check_python()
    java = check_java()
    yield java
    pyspark = check_pyspark()
    yield pyspark
    for package in ("deltalake", "sqlglot", "pyarrow", "duckdb", "rich", "click"):
        yield check_package(package)
    yield from check_kinds()
    yield check_disk("disk of the home", home)
    yield check_disk("disk for temporary files", Path(tempfile.gettempdir()))
    yield check_writable(home)
    yield check_lock(home)
    if not start_spark:
        yield Finding("Spark session", OK, "not started, as requested")
    elif FAIL in (java.state, pyspark.state):
        yield Finding("Spark session", FAIL, "not started", "mend Java and pyspark first")
    else:
        yield from check_spark(master, conf, home)


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if tuple(sys.version_info) < OLDEST_PYTHON:
        return Finding("Python", FAIL, version, "install Python 3.10 or newer")
    return Finding("Python", OK, version)


def check_java() -> Finding:
    from anabranch import java

    try:
        found = java.find()
    except AnabranchError as problem:
        return Finding("Java", FAIL, " ".join(problem.message.split()), problem.hint or "")
    return Finding("Java", OK, f"{found.version} at {found.path}, with {java.NEEDED_MODULE}")


def check_pyspark() -> Finding:
    finding = check_package("pyspark")
    if finding.state == FAIL:
        return finding
    home = os.environ.get("SPARK_HOME")
    if home:
        jars = Path(home) / "jars"
    else:
        spec = importlib.util.find_spec("pyspark")
        jars = Path(spec.origin or "").parent / "jars" if spec else Path("jars")
    count = len(list(jars.glob("spark-core_*.jar")))
    if not count:
        advice = "unset SPARK_HOME, or set it to a whole Spark" if home else "install pyspark again with pip"
        return Finding("pyspark", FAIL, f"{finding.found}, without Spark's jars in {jars}", advice)
    if home:
        return Finding("pyspark", WARN, f"{finding.found}, SPARK_HOME={home}", "its version has to be the same")
    return Finding("pyspark", finding.state, finding.found, finding.advice)


def check_kinds() -> Iterator[Finding]:
    """The packages that sources, and the sinks of the same names, need beyond `pip install anabranch`."""
    from anabranch.sources import registry

    for name, kind in sorted(registry.kinds().items()):
        if kind.extra is None:
            continue
        missing = kind.missing()
        found = f"{missing[0]} is not installed" if missing else ", ".join(kind.modules)
        advice = f"to use {name}(...): pip install 'anabranch[{kind.extra}]'" if missing else ""
        yield Finding(f"{name}(...)", WARN if missing else OK, found, advice)


def check_package(name: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, FAIL, "not installed", f"pip install {name}, or install anabranch again")
    wanted = _wanted(name)
    if wanted and not _fits(version, wanted):
        return Finding(name, WARN, version, f"anabranch is made for {name}{wanted}")
    return Finding(name, OK, version)


def _wanted(name: str) -> str | None:
    """The range of versions that the installed anabranch requires."""
    try:
        requirements = importlib.metadata.requires("anabranch") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return None
    for requirement in requirements:
        text, _, marker = requirement.partition(";")
        if "extra" not in marker and text.strip().startswith(name):
            return text.strip()[len(name) :].strip()
    return None


def _fits(version: str, wanted: str) -> bool:
    """Whether a version is in a range such as >=1.6,<2."""
    have = _numbers(version)
    for bound in wanted.split(","):
        bound = bound.strip()
        if bound.startswith(">=") and have < _numbers(bound[2:]):
            return False
        if bound.startswith("<") and not bound.startswith("<=") and have >= _numbers(bound[1:]):
            return False
    return True


def _numbers(version: str) -> list[int]:
    numbers = []
    for part in version.split("."):
        digits = "".join(c for c in part if c.isdigit())
        numbers.append(int(digits or 0))
    return numbers


def check_disk(name: str, folder: Path) -> Finding:
    at = _existing(folder)
    free = shutil.disk_usage(at).free
    found = f"{free / 1024**3:,.1f} GiB free at {at}"
    if free < NO_DISK:
        return Finding(name, FAIL, found, "make room, or choose another disk with --home and TMPDIR")
    if free < LITTLE_DISK:
        return Finding(name, WARN, found, "runs need room for their Parquet files: keep 2 GiB free")
    return Finding(name, OK, found)


def check_writable(home: Path) -> Finding:
    at = _existing(home)
    if home.exists() and not home.is_dir():
        return Finding("home", FAIL, f"{home} is a file", "choose another folder with --home")
    if not os.access(at, os.W_OK | os.X_OK):
        return Finding("home", FAIL, f"{at} is not writable", "choose another folder with --home")
    found = "is writable" if home.exists() else "does not exist yet; it can be created"
    return Finding("home", OK, f"{home} {found}")


def check_lock(home: Path) -> Finding:
    if not (home / "writer.lock").exists():
        return Finding("writer of the home", OK, "none")
    try:
        from anabranch.ledger.lock import WriterLock

        WriterLock(home, datetime.now(timezone.utc)).release()
    except HomeInUse as problem:
        return Finding("writer of the home", WARN, problem.message, problem.hint or "")
    except (OSError, ImportError) as problem:
        return Finding("writer of the home", WARN, f"unknown: {problem}")
    return Finding("writer of the home", OK, "none")


def check_spark(master: str | None, conf: dict[str, str], home: Path) -> Iterator[Finding]:
    """Whether a session starts, and whether its executors can run DuckDB over the rows of large runs."""
    from anabranch import java

    java.ensure()
    settings = {"spark.master": master or "local[1]", "spark.ui.enabled": "false", **conf}
    command = [
        sys.executable,
        "-c",
        _START_SPARK,
        str(home.absolute()),
        *[f"{key}={value}" for key, value in settings.items()],
    ]
    started = time.monotonic()
    output, problems, code = _within(SPARK_SECONDS, command)
    seconds = time.monotonic() - started
    session, _, answers = output.partition("\n")
    count, counted, kernels = answers.partition("\n")
    if code is None and not counted:  # timed out, at any step
        waited = f"no answer in {SPARK_SECONDS:.0f} s"
        advice = "is the master reachable?" if master else "is the machine very busy?"
        if session:
            waited = f"the session started, but {waited} to a count of 10 rows"
            advice = "is the machine very busy, or can its executors not be started?"
        yield Finding("Spark session", FAIL, waited, advice)
        return
    if count.strip() != "10":
        lines = [line.strip() for line in problems.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "Exception" in line or "Error" in line), None)
        yield Finding("Spark session", FAIL, reason or (lines[-1] if lines else "no result"), "see the message")
        return
    yield Finding("Spark session", OK, f"started and counted in {seconds:.1f} s with {settings['spark.master']}")
    if "\n" not in kernels:
        found = f"no answer in {SPARK_SECONDS:.0f} s" if code is None else "no result"
        yield Finding("kernels", WARN, found, "is the machine very busy? Without kernels large runs are slower")
    elif kernels.strip():
        advice = "large runs are slower without: pip install anabranch for the executors, and a home that they see"
        yield Finding("kernels", WARN, kernels.strip(), advice)
    else:
        yield Finding("kernels", OK, "executors can compute large runs with DuckDB")


def _within(seconds: float, command: list[str]) -> tuple[str, str, int | None]:
    """The output, the errors and the exit code of a command; None if it timed out.

    A timeout ends its child processes too: Spark's Java, and the executors of a local cluster.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for file in (out, err):
            file.seek(0)
        return out.read(), err.read(), code


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
