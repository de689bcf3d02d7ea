"""Temporary homes: made for a session that names none, and removed with it, at exit, or by a later process.

A process that is killed removes nothing. Its homes go when the next one is made: a lock that can be taken says that
the process that had it is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from anabranch.ledger.lock import unlocked

PREFIX = "anabranch-home-"
#: What is no home after so many seconds never becomes one.
ABANDONED_SECONDS = 3600

#: Those of this process, with its number: a process that it forks leaves them alone.
_ours: set[tuple[Path, int]] = set()


def make() -> Path:
    """A new folder for a home. Those that processes left behind are removed on the way."""
    remove_abandoned(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    _ours.add((path, os.getpid()))
    return path


def remove(path: Path) -> None:
    """Remove a home that this process has made."""
    _ours.discard((path, os.getpid()))
    shutil.rmtree(path, ignore_errors=True)


@atexit.register
def _remove_ours() -> None:
    for path, process in list(_ours):
        if process == os.getpid():
            remove(path)


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary homes in a folder whose process is gone; never one that somebody has open."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    there = path.lstat()
    # In a folder that everybody writes to, a name alone says nothing.
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.getuid():
        return
    # Until the home has its mark, its process may not have come to the lock yet.
    if not (path / "home.json").exists() and time.time() - there.st_mtime < ABANDONED_SECONDS:
        return
    with unlocked(path) as gone:
        if gone:
            shutil.rmtree(path, ignore_errors=True)
