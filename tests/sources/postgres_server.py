"""A Postgres server for tests: a cluster of its own in a temporary folder, on loopback, gone at the end."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD, DATABASE = "postgres", "pg-Secret-4711", "shop"
#: Where the environment has the password while a server runs.
VARIABLE = "ANABRANCH_TEST_PG_PASSWORD"


@dataclass(frozen=True)
class PostgresServer:
    port: int
    folder: Path
    programs: Path
    again: Callable[[], None]  # starts it

    def die(self) -> None:
        """Killed at once, and started again."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split("\n")[0])
        os.kill(pid, signal.SIGKILL)
        self.again()

    def connect(self, **more: Any) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname=DATABASE, user=USER, password=PASSWORD, autocommit=True, **more
        )

    def run(self, *statements: str) -> None:
        with self.connect() as database:
            for statement in statements:
                database.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as database:
            return list(database.execute(query).fetchall())

    def source(self, **options: Any) -> str:
        """The source as SQL."""
        given = {"host": "127.0.0.1", "port": self.port, "database": DATABASE, "user": USER, **options}
        return f"postgres({_options(given)}, password => env('{VARIABLE}'))"

    def options(self, **options: Any) -> dict[str, Any]:
        own = {"host": "127.0.0.1", "port": self.port, "database": DATABASE, "user": USER}
        return {**own, "password": {"env": VARIABLE}, **options}


def _options(given: dict[str, Any]) -> str:
    return ", ".join(f"{name} => {_literal(value)}" for name, value in given.items())


def _literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).lower()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server; the test is skipped, and says so, where none is installed."""
    pytest.importorskip("psycopg", reason="NO POSTGRES TESTS: pip install 'anabranch[postgres]'")
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")) or [shutil.which("initdb") or ""]
    if not found[-1]:
        pytest.skip("NO POSTGRES TESTS: there is no server here; apt-get install postgresql")
    programs = Path(found[-1]).parent
    # The server refuses to run as root.
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="anabranch-postgres-"))
    try:
        if as_user:
            shutil.chown(folder, "postgres")
        secret = folder / "password"
        secret.write_text(PASSWORD)
        data, port = folder / "data", free_port()
        made = [*as_user, str(programs / "initdb"), "-D", str(data), "-U", USER, f"--pwfile={secret}"]
        made += ["--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder)
        settings = {
            "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "wal_level": "logical",
            "fsync": "off", "max_connections": 40, "max_replication_slots": 10, "shared_buffers": "32MB",
        }  # fmt: skip
        command = [*as_user, str(programs / "postgres"), "-D", str(data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        processes: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            for tries in range(100):  # after a kill, children of the old one may still be there
                with open(folder / "log", "ab") as log:
                    processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))
                try:
                    _wait(port, processes[-1], folder / "log")
                    return
                except RuntimeError:
                    if not tries < 99 or len(processes) == 1:
                        raise
                    time.sleep(0.1)

        try:
            start()
            yield PostgresServer(port, folder, programs, start)
        finally:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((data / "postmaster.pid").read_text().split("\n")[0]), signal.SIGINT)
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    end = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(
                host="127.0.0.1", port=port, user=USER, password=PASSWORD, dbname="postgres", autocommit=True
            ) as database:
                if not database.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchall():
                    database.execute(f"CREATE DATABASE {DATABASE}")
                return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(log.read_text()) from error
            time.sleep(0.05)
