"""A Redis server for tests: on loopback, on a port of its own, with nothing on disk."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

PASSWORD = "open sesame"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(folder: Path, port: int, *arguments: str) -> Iterator[redis.Redis]:
    """A server that ends with the block."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("NO REDIS: redis-server is not installed (apt-get install redis-server)")
    settings = f"bind 127.0.0.1\nport {port}\nsave ''\nappendonly no\nrequirepass '{PASSWORD}'\n"
    (folder / "redis.conf").write_text(settings)
    command = [program, str(folder / "redis.conf"), *arguments]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    client = redis.Redis(host="127.0.0.1", port=port, password=PASSWORD)
    try:
        for _ in range(200):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                assert server.poll() is None, "redis-server did not start"
                time.sleep(0.05)
        yield client
    finally:
        client.close()
        server.kill()
        server.wait()
