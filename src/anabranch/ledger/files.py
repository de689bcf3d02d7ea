"""Atomic writes of files, and clear errors when the disk fails.

Knows nothing of records or tables.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from anabranch.errors import LedgerError
from anabranch.ledger import crash

#: The prefix of temporary names: leftovers, if their process has died.
TEMPORARY = ".tmp-"

#: More in parallel gain nothing: one write of the journal then covers many files.
SYNCED_AT_ONCE = 8

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_FULL = {errno.ENOSPC, errno.EDQUOT}


def sync_file(path: Path) -> None:
    """Wait until the contents of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Syncing:
    """Syncs files and folders in parallel: one write of the disk's journal then covers several."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def sync(self, paths: Iterable[Path]) -> None:
        """Wait until the contents of files, and the names in folders, are on the disk."""
        wanted = list(paths)
        if len(wanted) > 1:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=SYNCED_AT_ONCE, thread_name_prefix="anabranch-sync")
            list(self._pool.map(sync_file, wanted))
        elif wanted:
            sync_file(wanted[0])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def write_temporary(folder: Path, data: bytes) -> Path:
    """A new, synced file in `folder` with these contents, under a temporary name."""
    path = folder / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise
    return path


def replace(path: Path, data: bytes) -> None:
    """Write or overwrite a file: a reader sees the old contents or the new ones."""
    temporary = write_temporary(path.parent, data)
    crash.reach("during-replace")
    try:
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def publish(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet: raises FileExistsError, and changes nothing, if it does.

    The name appears with all of the contents at once. A failure to sync the folder afterwards is not reported here,
    because readers may have seen the file by then and it cannot be undone; see `sync_folder`.
    """
    temporary = write_temporary(path.parent, data)
    crash.reach("during-record")
    try:
        give_name(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def give_name(temporary: Path, path: Path) -> None:
    """Give a finished file its name; raises FileExistsError if the name is taken. The old name may remain."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links: the home has one writer, so checking first is enough.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.rename(temporary, path)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error means that no space is left, also when a library has only its text."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    text = str(error)
    return "No space left on device" in text or "os error 28" in text


@contextlib.contextmanager
def explained(doing: str, where: Path) -> Iterator[None]:
    """Turn errors of the disk while `doing` something into a LedgerError that says what to do."""
    try:
        yield
    except LedgerError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise LedgerError(
                f"The disk is full: {doing} in {where} failed, and nothing of it was committed.",
                hint="make space, or vacuum the home, and do it again",
            ) from error
        if isinstance(error, PermissionError):
            raise LedgerError(
                f"No permission: {doing} in {where} failed ({error}).",
                hint="give this user write access to the home, or open it for reading",
            ) from error
        if isinstance(error, OSError):
            raise LedgerError(
                f"The disk refused: {doing} in {where} failed ({error}), and nothing of it was committed.",
                hint="check the disk, then do it again",
            ) from error
        raise
