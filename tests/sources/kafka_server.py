"""A real Kafka broker for tests: one KRaft node from Maven artifacts, on the loopback, gone when the tests are.

The jars are fetched once into the cache folder of the user. Tests that cannot have a broker are skipped, and say why.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

VERSION = "4.0.0"
CACHE = Path(os.environ.get("ANABRANCH_TEST_CACHE", "~/.cache/anabranch-tests")).expanduser()
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>anabranch</groupId><artifactId>server</artifactId><version>1</version><dependencies>{artifacts}</dependencies>
</project>
"""
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{guarded}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_reader="{password}";
log.dirs={folder}/logs
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=2097152
"""
#: The password of the user `reader` at the guarded port.
PASSWORD = "a-password-for-tests"


class Broker:
    """One broker. `brokers` is where it listens, `guarded` where it asks for a password."""

    def __init__(self, jars: Path, folder: Path) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(3)]
        self.brokers, self.guarded = (f"127.0.0.1:{port}" for port in self.ports[:2])
        self._java = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        self._settings = folder / "server.properties"
        port, guarded, controller = self.ports
        self._settings.write_text(
            SETTINGS.format(port=port, guarded=guarded, controller=controller, folder=folder, password=PASSWORD)
        )
        # A name that begins with a dash would be taken for an option.
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        command = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)]
        subprocess.run([*self._java, *command], check=True, capture_output=True, timeout=60)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.folder / "broker.log", "ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._settings)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        from confluent_kafka.admin import AdminClient

        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(Exception):
                AdminClient({"bootstrap.servers": self.brokers, "log_level": 0}).list_topics(timeout=1)
                return
        raise AssertionError("the broker did not start:\n" + (self.folder / "broker.log").read_text()[-3000:])

    def kill(self) -> None:
        """As by kill -9: nothing is said goodbye to."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait(20)
            self._process = None


@contextlib.contextmanager
def broker() -> Iterator[Broker]:
    """A broker that is running; skips the test if it cannot be had."""
    pytest.importorskip("confluent_kafka", reason="NO KAFKA: confluent-kafka is not installed (anabranch[kafka])")
    jars = jars_of(f"kafka-{VERSION}", (f"org.apache.kafka:kafka_2.13:{VERSION}",), "Kafka")
    with tempfile.TemporaryDirectory(prefix="anabranch-kafka-", ignore_cleanup_errors=True) as folder:
        found = Broker(jars, Path(folder))
        try:
            found.start()
            yield found
        finally:
            found.kill()


def jars_of(name: str, artifacts: Sequence[str], server: str) -> Path:
    """A folder of jars with all that they need, fetched if it is not there yet; `:alone` is for what needs no more."""
    target = CACHE / name
    if target.is_dir():
        return target
    if shutil.which("mvn") is None:
        pytest.skip(f"NO {server.upper()}: mvn is not there, which fetches it")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        Path(folder, "pom.xml").write_text(POM.format(artifacts="".join(map(_dependency, artifacts))))
        command = [
            "mvn",
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=jars",
        ]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"NO {server.upper()}: mvn did not fetch it within 4 minutes")
        if done.returncode:
            pytest.skip(f"NO {server.upper()}: mvn could not fetch it: {(done.stdout + done.stderr)[-300:]}")
        with contextlib.suppress(OSError):  # another process was first
            Path(folder, "jars").rename(target)
    return target


def _dependency(artifact: str) -> str:
    group, name, version, *alone = artifact.split(":")
    without = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    named = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{named}{without if alone else ''}</dependency>"


def java(server: str = "Kafka") -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        pytest.skip(f"NO {server.upper()}: java is not there, which runs it")
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
