"""The Spark session of the process, created lazily with defaults that the user's settings override."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from anabranch import java
from anabranch.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of the SQL session; with a session of the user's, they apply to a separate one.
SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # runs are small and planned here; re-planning costs more than it saves
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Dictionaries and Bloom filters skip row groups, and take 0.0 and -0.0 for different numbers.
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
    # Minimum and maximum statistics skip cached rows, and NaN is in neither.
    "spark.sql.inMemoryColumnarStorage.partitionPruning": "false",
}


#: Settings for runs on one machine; on a cluster, its owner decides on the parallelism.
SHAPE = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")
_ZONE = "spark.sql.session.timeZone"


def check_setting(key: str, value: str) -> None:
    """Refuse another time zone: views store results of times, so the zone has to be the same for all readers."""
    if key == _ZONE and value.upper() not in ("UTC", "ETC/UTC", "GMT", "Z", "+00:00"):
        raise UsageError(
            f"{_ZONE} cannot be {value}: times are in UTC, in every view and every answer",
            hint=f"from_utc_timestamp(ts, '{value}') shows a time in another zone, and to_utc_timestamp reads one",
        )


def start(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Start Spark, or use the session that is already running in this process."""
    for key, value in conf.items():
        check_setting(key, value)
    java.use(java.find())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of packages that we do not use
        from pyspark.sql import SparkSession

    # The engine reports Spark's errors; Spark's own log would print them again.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    cores = os.cpu_count() or 2
    defaults = {
        "spark.app.name": "anabranch",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{driver_memory_mb()}m",
        "spark.sql.shuffle.partitions": str(min(cores, 8)),
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.hadoop.parquet.enable.summary-metadata": "false",
        # Over TCP, a small task in Python waits 40 ms for an acknowledgement that its peer delays.
        "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
        **SESSION_SETTINGS,
    }
    chosen = master or conf.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    if not chosen.startswith("local"):
        # Executors elsewhere must be able to reach the driver: the user's network, not the loopback.
        del defaults["spark.driver.host"], defaults["spark.driver.bindAddress"]
    else:
        # Python functions run in this interpreter, which has their packages, and not in the first one on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not on_one_machine(chosen):
        for key in SHAPE:
            del defaults[key]
    builder = SparkSession.builder.master(chosen)
    for key, value in {**defaults, **conf}.items():
        builder = builder.config(key, value)
    handler = signal.getsignal(signal.SIGINT) if in_main_thread() else None
    with quiet_start() as log:
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            last_lines = [line for line in log() if line.strip()][-3:]
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise EnvironmentProblem(
                "\n  ".join([f"Spark did not start: {reason}", *last_lines]),
                hint="run `anabranch doctor` to see what is missing",
            ) from error
        finally:
            if handler is not None:  # Spark takes Ctrl-C for itself; whoever had it before keeps it
                signal.signal(signal.SIGINT, handler)
    _name_classes(spark)
    return spark


def _name_classes(spark: SparkSession) -> None:
    """Keep the classes that PySpark names in every query: py4j would search hundreds of jars for them each time."""
    jvm = spark._jvm
    for name in ("PythonUtils", "PythonSQLUtils", "functions"):
        setattr(jvm, name, getattr(jvm, name))


def on_one_machine(master: str) -> bool:
    """Whether Spark's tasks run in the process of the driver.

    >>> [on_one_machine(each) for each in ("local", "local[*]", "local-cluster[2,1,1024]", "yarn")]
    [True, True, False, False]
    """
    return master == "local" or master.startswith("local[")


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def quiet_start() -> Iterator[Callable[[], list[str]]]:
    """Keep the banners of the JVM off the terminal: its output goes to a file that is shown if it does not start.

    Only the JVM that is started inside inherits the file; ANABRANCH_SPARK_LOG names one that is to be kept.
    """
    with _spark_log() as log:
        begun = os.fstat(log).st_size
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(log, 2)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield lambda: os.pread(log, 1 << 20, begun).decode("utf-8", "replace").splitlines()
        finally:
            os.dup2(saved, 2)
            os.close(saved)


@contextlib.contextmanager
def _spark_log() -> Iterator[int]:
    """An open file: the given one, or a nameless temporary one, which leaves nothing behind."""
    wanted = os.environ.get("ANABRANCH_SPARK_LOG")
    if not wanted:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
        return
    handle = os.open(wanted, os.O_CREAT | os.O_APPEND | os.O_RDWR)
    try:
        yield handle
    finally:
        os.close(handle)


def adopt(spark: SparkSession) -> SparkSession:
    """A separate session in the user's Spark, to keep our settings and temporary views out of theirs."""
    own = spark.newSession()
    keep = () if on_one_machine(spark.conf.get("spark.master", "local") or "local") else SHAPE
    for key, value in SESSION_SETTINGS.items():
        if key not in keep:
            own.conf.set(key, value)
    return own


def driver_memory_mb() -> int:
    """A quarter of the memory, between 1 and 8 GiB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
    except (ValueError, OSError, AttributeError):
        total = 4096
    return max(1024, min(8192, total // 4))
