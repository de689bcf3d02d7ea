"""A MariaDB server for tests: a data folder of its own in a temporary folder, on loopback, gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sources.postgres_server import _options, free_port

USER, PASSWORD, DATABASE = "clerk", "my-Secret-4712", "shop"
#: Where the environment has the password while a server runs.
VARIABLE = "ANABRANCH_TEST_MYSQL_PASSWORD"


@dataclass(frozen=True)
class MysqlServer:
    port: int
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list, compare=False)
    again: Callable[[], None] = field(default=lambda: None, compare=False)  # starts it

    def die(self) -> None:
        """Killed at once, and started again."""
        self.processes[-1].kill()
        self.processes[-1].wait()
        self.again()

    def connect(self, **more: Any) -> Any:
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, database=DATABASE, user=USER, password=PASSWORD, autocommit=True, **more
        )

    def run(self, *statements: str) -> None:
        with self.connect() as database, database.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as database, database.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def source(self, **options: Any) -> str:
        """The source as SQL."""
        given = {"host": "127.0.0.1", "port": self.port, "database": DATABASE, "user": USER, **options}
        return f"mysql({_options(given)}, password => env('{VARIABLE}'))"

    def options(self, **options: Any) -> dict[str, Any]:
        own = {"host": "127.0.0.1", "port": self.port, "database": DATABASE, "user": USER}
        return {**own, "password": {"env": VARIABLE}, **options}


@contextlib.contextmanager
def mysql_server() -> Iterator[MysqlServer]:
    """A server; the test is skipped, and says so, where none is installed.

    It is MariaDB, or the MySQL in the folder that ANABRANCH_TEST_MYSQL names: `mysqld`, its tables in `data/mysql`.
    """
    pytest.importorskip("pymysql", reason="NO MYSQL TESTS: pip install 'anabranch[mysql]'")
    given = os.environ.get("ANABRANCH_TEST_MYSQL")
    program = f"{given}/mysqld" if given else shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    install = shutil.which("mariadb-install-db")
    if program is None or (install is None and not given):
        pytest.skip("NO MYSQL TESTS: there is no server here; apt-get install mariadb-server")
    as_user = ["--user=mysql"] if os.getuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="anabranch-mysql-"))
    try:
        if as_user:
            shutil.chown(folder, "mysql")
        data, port = folder / "data", free_port()
        made = ["cp", "-r", f"{given}/data/mysql", str(data)]
        if not given:
            made = [str(install), "--no-defaults", f"--datadir={data}", "--skip-test-db", *as_user]
        subprocess.run(made, check=True, capture_output=True)
        if as_user:
            subprocess.run(["chown", "-R", "mysql", str(data)], check=True)
        start = folder / "start.sql"
        start.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n"
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
        )
        start.chmod(0o644)
        command = [program, "--no-defaults", f"--datadir={data}", *as_user, f"--port={port}", "--skip-name-resolve"]
        command += ["--bind-address=127.0.0.1", f"--socket={folder}/s", f"--pid-file={folder}/pid"]
        command += ["--log-bin=changes", "--server-id=1", "--binlog-format=ROW"]
        command += [f"--lc-messages-dir={given}/share"] if given else ["--binlog-row-metadata=FULL"]
        command += ["--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M", f"--init-file={start}"]
        processes: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            with open(folder / "log", "ab") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))
            _wait(server, processes[-1], folder / "log")

        server = MysqlServer(port, folder, processes, start)
        try:
            start()
            yield server
        finally:
            for process in processes:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: MysqlServer, process: subprocess.Popen[bytes], log: Path) -> None:
    import pymysql

    end = time.monotonic() + 60
    while True:
        try:
            server.rows("SELECT 1")
            return
        except pymysql.Error as error:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(log.read_text()) from error
            time.sleep(0.05)
