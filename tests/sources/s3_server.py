"""A real S3 server for tests: s3proxy from Maven, on the loopback; and the jars by which Spark reads it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.kafka_server import CACHE, free_port, jars_of, java

KEY, SECRET = "a-key-for-tests", "a-secret-for-tests"
_SDK = "2.35.4"
#: Hadoop's file system for S3, with the parts of Amazon's SDK that it needs: all of it would be 600 MB.
SPARK_JARS = (
    "org.apache.hadoop:hadoop-aws:3.5.0:alone",
    *(f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "sts", "s3-transfer-manager", "netty-nio-client")),
    f"software.amazon.awssdk:apache-client:{_SDK}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
SETTINGS = """s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
s3proxy.endpoint={endpoint}
jclouds.provider=filesystem
jclouds.filesystem.basedir={folder}/data
"""


def at_hand() -> bool:
    """Whether nothing has to be fetched."""
    return (CACHE / "s3proxy-2.6.0").is_dir() and (CACHE / "hadoop-aws-3.5.0").is_dir()


def spark_jars() -> Path:
    return jars_of("hadoop-aws-3.5.0", SPARK_JARS, "S3")


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """The endpoint of a server that has one bucket, `tests`; skips the test if it cannot be had."""
    jars = jars_of("s3proxy-2.6.0", ("org.gaul:s3proxy:2.6.0",), "S3")
    endpoint = f"http://127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="anabranch-s3-", ignore_cleanup_errors=True) as folder:
        Path(folder, "data", "tests").mkdir(parents=True)
        settings = Path(folder, "s3proxy.conf")
        settings.write_text(SETTINGS.format(key=KEY, secret=SECRET, endpoint=endpoint, folder=folder))
        quiet = Path(folder, "logback.xml")
        quiet.write_text('<configuration><root level="OFF"/></configuration>')
        command = [java("S3"), "-Xmx256m", f"-Dlogback.configurationFile={quiet}", "-cp", f"{jars}/*"]
        with open(Path(folder, "s3.log"), "wb") as log:
            command += ["org.gaul.s3proxy.Main", "--properties", str(settings)]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(endpoint, process, Path(folder, "s3.log"))
            yield endpoint
        finally:
            process.kill()
            process.wait(20)


def _wait(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(endpoint, timeout=2)
        except urllib.error.HTTPError:  # it asks for a key
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail("the S3 server did not start:\n" + log.read_text()[-3000:])
