"""The users of a home: the lock of its only writer, and the pins of its readers.

Both are files under `flock`, which the system releases when the process ends, however it ends. That is safer than
checking whether a process id is alive: ids are reused, and differ between containers. The ids in the files are for
people. Nothing here knows what a version holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from anabranch.errors import HomeInUse
from anabranch.ledger import files

#: A pin without a name after so long was abandoned.
_ABANDONED_SECONDS = 3600


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(descriptor: int) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(os.pread(descriptor, 4096, 0))
        if isinstance(value, dict):
            return value
    return {}


class WriterLock:
    """The right to write to a home, held from `__init__` to `release`."""

    def __init__(self, home: Path, since: datetime) -> None:
        self._descriptor = os.open(home / "writer.lock", os.O_RDWR | os.O_CREAT, 0o644)
        if not _try_lock(self._descriptor):
            owner = _owner(self._descriptor)
            os.close(self._descriptor)
            raise HomeInUse(
                f"The home {home} is open for writing by process {owner.get('pid', 'unknown')} "
                f"on {owner.get('host', 'an unknown host')} since {owner.get('since', 'an unknown time')}.",
                hint="SELECT works meanwhile (--read-only, connect(read_only=True)); to write, stop that process first",
            )
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since.isoformat()})
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)

    def release(self) -> None:
        # The file is kept: after deleting it two processes could lock two files of one name.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


@contextlib.contextmanager
def unlocked(home: Path) -> Iterator[bool]:
    """Whether no process has a home open for writing; if so, none can open it inside the block."""
    try:
        descriptor = os.open(home / "writer.lock", os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


class Pin:
    """A reader's claim on a version, held from `__init__` to `release`."""

    def __init__(self, folder: Path, version: int) -> None:
        """Raises OSError where the home cannot be written to; a reader then has no pin."""
        self.version = version
        self._path = folder / f"{os.getpid()}-{uuid.uuid4().hex}.json"
        temporary = folder / f"{files.TEMPORARY}{uuid.uuid4().hex}"
        folder.mkdir(exist_ok=True)
        self._descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            # Locked before it has its name, so that it never looks like the pin of a dead process.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "version": version})
            os.pwrite(self._descriptor, text.encode(), 0)
            os.rename(temporary, self._path)
        except BaseException:
            os.close(self._descriptor)
            temporary.unlink(missing_ok=True)
            raise

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def pinned_versions(folder: Path) -> list[int]:
    """The versions that live readers have pinned; deletes the pins of dead ones."""
    versions = []
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(folder.iterdir()):
            version = _living(path)
            if version is not None:
                versions.append(version)
    return versions


def _living(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        if path.name.startswith(files.TEMPORARY):
            # Its reader is creating it, and will check it against the oldest version; or the reader died.
            if time.time() - os.fstat(descriptor).st_mtime > _ABANDONED_SECONDS:
                path.unlink(missing_ok=True)
            return None
        if _try_lock(descriptor):
            path.unlink(missing_ok=True)
            return None
        version = _owner(descriptor).get("version")
        # An unreadable pin of a live reader: keep everything rather than guess.
        return version if isinstance(version, int) else 0
    finally:
        os.close(descriptor)
