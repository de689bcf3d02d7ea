"""The folder of records and of snapshot files, which save folding the records from the first.

Reads and publishes records. Knows nothing of Delta, locks or data files. Snapshot files are only an optimisation: a
missing or unreadable one is skipped, and folding starts further back.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from anabranch.errors import LedgerError
from anabranch.ledger import files
from anabranch.ledger.records import Malformed, Record, record_from_bytes, record_to_bytes
from anabranch.ledger.snapshot import Snapshot, fold, snapshot_from_bytes, snapshot_to_bytes

#: A snapshot file is written at every version that this divides.
SNAPSHOT_EVERY = 100

_RECORD = re.compile(r"(\d{20})\.json")
_SNAPSHOT = re.compile(r"snapshot-(\d{20})\.json")


class RecordLog:
    """The records of one home, numbered from 1 without a gap."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, version: int) -> Path:
        return self.folder / f"{version:020}.json"

    def snapshot_path(self, version: int) -> Path:
        return self.folder / f"snapshot-{version:020}.json"

    def newest(self) -> int:
        """The highest version; LedgerError if a lower one is missing."""
        versions = {int(match[1]) for name in self._names() if (match := _RECORD.fullmatch(name))}
        newest = max(versions, default=0)
        if len(versions) != newest or 0 in versions:
            # A record published while the folder was being listed may be missing from the list.
            missing = [v for v in range(1, newest + 1) if v not in versions and not self.path(v).exists()]
            if missing:
                raise LedgerError(
                    f"The record of version {missing[0]} is missing: there is no {self.path(missing[0])}, "
                    f"but there are records up to version {newest}.",
                    hint="restore that file from a copy of the home; nothing was changed",
                )
            if 0 in versions:
                raise LedgerError(
                    f"{self.path(0)} is no record: versions start at 1.",
                    hint="move that file out of the home",
                )
        return newest

    def newest_after(self, known: int) -> int:
        """The highest version, given that `known` exists; checks only later files."""
        while self.path(known + 1).exists():
            known += 1
        return known

    def read(self, version: int) -> Record:
        """One record; LedgerError if it is missing or damaged."""
        path = self.path(version)
        try:
            record = record_from_bytes(path.read_bytes())
            if record.version != version:
                raise Malformed(f"it says it is version {record.version}")
        except FileNotFoundError:
            raise LedgerError(
                f"The record of version {version} is missing: there is no {path}.",
                hint="restore that file from a copy of the home; nothing was changed",
            ) from None
        except OSError as error:
            raise LedgerError(
                f"The record {path} cannot be read: {error.strerror}.",
                hint="check the disk and the permissions",
            ) from error
        except Malformed as error:
            raise self.damaged(version, str(error)) from error
        return record

    def damaged(self, version: int, why: str) -> LedgerError:
        return LedgerError(
            f"The record {self.path(version)} is damaged: {why}.",
            hint="restore that file from a copy of the home; nothing was changed",
        )

    def records(self, first: int, last: int) -> Iterator[Record]:
        """The records of versions `first` to `last`, inclusive."""
        for version in range(max(first, 1), last + 1):
            yield self.read(version)

    def state(self, version: int, known: Snapshot | None = None) -> Snapshot:
        """The snapshot at a version, from the nearest snapshot file, or from `known` if that is nearer."""
        base = Snapshot()
        floor = -1
        if known is not None and known.version <= version:
            base, floor = known, known.version
        if version - max(floor, 0) >= SNAPSHOT_EVERY // 2 or floor < 0:
            for candidate in reversed(self.snapshot_versions()):
                if candidate <= floor:
                    break
                if candidate <= version and (found := self._read_snapshot(candidate)) is not None:
                    base = found
                    break
        return self.apply(base, version)

    def apply(self, base: Snapshot, version: int) -> Snapshot:
        """The snapshot at `version`, from an earlier one."""
        current = base.version

        def following() -> Iterator[Record]:
            nonlocal current
            for record in self.records(base.version + 1, version):
                current = record.version
                yield record

        try:
            return fold(base, following())
        except Malformed as error:
            raise self.damaged(current, str(error)) from error

    def publish(self, record: Record) -> None:
        """Write the record of the next version. Once this returns it is committed for all readers."""
        path = self.path(record.version)
        try:
            files.publish(path, record_to_bytes(record))
        except FileExistsError:
            raise LedgerError(
                f"Version {record.version} already exists: another process wrote {path}, without the lock.",
                hint="close this home and open it again; see that only one process writes to it",
            ) from None

    def holds(self, record: Record) -> bool:
        """Whether exactly this record is published."""
        try:
            return self.path(record.version).read_bytes() == record_to_bytes(record)
        except (OSError, LedgerError):
            return False

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot file, if the disk allows: nothing depends on it."""
        with contextlib.suppress(OSError):
            files.replace(self.snapshot_path(snapshot.version), snapshot_to_bytes(snapshot))

    def snapshot_versions(self) -> list[int]:
        """The versions with a snapshot file, in order."""
        return sorted(int(match[1]) for name in self._names() if (match := _SNAPSHOT.fullmatch(name)))

    def forget_snapshots_before(self, oldest: int) -> None:
        """Delete the snapshot files that no version from `oldest` on needs."""
        usable = [version for version in self.snapshot_versions() if version <= oldest]
        for version in usable[:-1]:
            self.snapshot_path(version).unlink(missing_ok=True)

    def remove_temporary(self) -> None:
        """Delete the leftovers of processes that died while publishing."""
        for name in self._names():
            if name.startswith(files.TEMPORARY):
                (self.folder / name).unlink(missing_ok=True)

    def _read_snapshot(self, version: int) -> Snapshot | None:
        try:
            snapshot = snapshot_from_bytes(self.snapshot_path(version).read_bytes())
        except (OSError, Malformed, AttributeError, TypeError):
            return None
        return snapshot if snapshot.version == version else None

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []
