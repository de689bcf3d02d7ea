"""An open home: the engine's only way to read and write stored data.

    with Ledger.open(Path("home"), write=True) as ledger:
        file = ledger.write_arrow("bids", table)
        ledger.commit(Draft("insert", tables={"bids": TableChange(add=(file,))}, schemas={"bids": table.schema}))

Knows the layout of a home and the order of a commit, and not what tables, definitions and positions mean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anabranch.errors import LedgerError
from anabranch.ledger import commit as steps
from anabranch.ledger import crash, files, recovery
from anabranch.ledger.arrivals import Arrivals, Written
from anabranch.ledger.captured import Captured
from anabranch.ledger.lock import Pin, WriterLock, pinned_versions
from anabranch.ledger.log import SNAPSHOT_EVERY, RecordLog
from anabranch.ledger.records import (
    FORMAT,
    DataFile,
    Draft,
    Malformed,
    Record,
    check_table_id,
    dump,
    expect_int,
    expect_text,
    parse_object,
    record_from_bytes,
    record_to_bytes,
)
from anabranch.ledger.snapshot import Snapshot, fold
from anabranch.ledger.tables import DeltaTables, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Ledger:
    """A home open for writing (one process at a time) or for reading (any number); see `Ledger.open`."""

    def __init__(self, home: Path, *, write: bool, keep_versions: int, clock: Callable[[], datetime]) -> None:
        """Opens nothing: use `Ledger.open`."""
        self.home = home
        self.writable = write
        self.keep_versions = keep_versions
        #: Identifies this home, also after it was moved.
        self.id = ""
        #: Statements that were running when the last writer died, and that were rolled back.
        self.rolled_back: list[str] = []
        self._clock = clock
        self._commit_lock = threading.RLock()
        self._log = RecordLog(home / "runs")
        self._tables = DeltaTables(home / "tables", lambda: int(self._clock().timestamp() * 1000))
        self._snapshot = Snapshot()
        self._kept = recovery.Kept()
        self._writer: WriterLock | None = None
        self._pin: Pin | None = None
        self._arrivals = Arrivals(home, self._tables)
        #: Tables whose Delta log could not be repaired after a failed commit.
        self._unsettled: set[str] = set()
        self._syncing = files.Syncing()
        self._captured = Captured(self._log)
        self._intents = threading.local()
        self._closed = False

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str],
        *,
        write: bool,
        create: bool = True,
        keep_versions: int = 100,
        clock: Callable[[], datetime] | None = None,
    ) -> Ledger:
        """Open a home. For writing, take the lock and recover first; for reading, change nothing."""
        if keep_versions < 1:
            raise LedgerError("keep_versions must be at least 1: the newest version is always kept.")
        path = Path(home).absolute()
        ledger = cls(path, write=write, keep_versions=keep_versions, clock=clock or _utc_now)
        try:
            if write:
                ledger._open_for_writing(create)
            else:
                ledger._open_for_reading()
        except BaseException:
            ledger.close()
            raise
        return ledger

    # ---- opening and closing

    def _open_for_writing(self, create: bool) -> None:
        with files.explained("opening for writing", self.home):
            marker = self.home / "home.json"
            if not marker.exists():
                self._check_can_be_made(create)
                self.home.mkdir(parents=True, exist_ok=True)
            self._writer = WriterLock(self.home, self._clock())
            crash.reach("in-opening")
            if not marker.exists():
                identity = {"format": FORMAT, "id": str(uuid.uuid4()), "created": self._now()}
                files.replace(marker, dump(identity) + b"\n")
            self._check_format()
            crash.reach("in-opening")
            for name in ("runs", "tables", "intents", "readers"):
                (self.home / name).mkdir(exist_ok=True)
            self._load()
            self.rolled_back = recovery.recover(self.home, self._log, self._tables, self._snapshot, self._kept)
            (self.home / "staging").mkdir(exist_ok=True)

    def _check_can_be_made(self, create: bool) -> None:
        if not create:
            raise self._no_home()
        if self.home.exists() and not self.home.is_dir():
            raise LedgerError(f"{self.home} is a file, not a folder.", hint="give the path of a folder")
        # Recovery deletes files that no record names: never run it in a folder with anything else.
        if self.home.is_dir():
            foreign = [
                name for name in os.listdir(self.home) if name != "writer.lock" and not name.startswith(files.TEMPORARY)
            ]
            if foreign:
                raise LedgerError(
                    f"{self.home} is not a home, and not empty: it holds {sorted(foreign)[0]}.",
                    hint="give the path of a home, of an empty folder, or of one that does not exist yet",
                )

    def _no_home(self) -> LedgerError:
        return LedgerError(
            f"There is no home at {self.home}.", hint="check the path; opening it for writing creates one"
        )

    def _open_for_reading(self) -> None:
        if not (self.home / "home.json").exists():
            raise self._no_home()
        self._check_format()
        self._load()
        self._hold(self._snapshot.version)

    def _check_format(self) -> None:
        path = self.home / "home.json"
        try:
            parts = parse_object(path.read_bytes())
            written = expect_int(parts.get("format"), "format")
            self.id = expect_text(parts.get("id", ""), "id")
        except Malformed as error:
            raise LedgerError(
                f"{path} is damaged: {error}.", hint=f'write {{"format": {FORMAT}}} into it if this is a home'
            ) from error
        if written > FORMAT:
            raise LedgerError(
                f"The home {self.home} has format {written}; this version of Anabranch reads up to {FORMAT}.",
                hint="open it with a newer version of Anabranch",
            )

    def _load(self) -> None:
        self._kept = recovery.read_kept(self.home)
        self._snapshot = self._log.state(self._log.newest()).without_removed_before(self._kept.oldest)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Release the lock or the pin. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._syncing.close()
        if self._pin is not None:
            self._pin.release()
        if self._writer is not None:
            self._writer.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __fspath__(self) -> str:
        return str(self.home)

    # ---- reading

    @property
    def commit_lock(self) -> threading.RLock:  # type: ignore[valid-type,unused-ignore]
        """The lock to hold from reading state to the record; `commit` takes it too, and it is reentrant."""
        return self._commit_lock

    @property
    def version(self) -> int:
        """The newest version that this ledger has read."""
        return self._snapshot.version

    def use_clock(self, clock: Callable[[], datetime]) -> None:
        """Use another clock for the time of commits."""
        self._clock = clock

    @property
    def oldest(self) -> int:
        """The oldest version that can still be read."""
        return self._kept.oldest

    def has(self, table: str, version: int) -> bool:
        """Whether a table can still be read as of a version."""
        return version >= self._kept.oldest or (table, version) in self._kept.pinned

    def refresh(self) -> int:
        """Read versions that the writer has committed since; returns the newest."""
        if self.writable:
            return self._snapshot.version
        with self._commit_lock:
            newest = self._log.newest_after(self._snapshot.version)
            if newest > self._snapshot.version:
                self._kept = recovery.read_kept(self.home)
                state = self._log.state(newest, self._snapshot)
                self._snapshot = state.without_removed_before(self._kept.oldest)
                self._hold(newest)
            return self._snapshot.version

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The snapshot of a version, by default of the newest that this ledger has read."""
        current = self._snapshot
        if version is None or version == current.version:
            return current
        if version > current.version:
            raise LedgerError(
                f"There is no version {version}: the newest is {current.version}, the oldest {self._kept.oldest}.",
                hint="sys.runs lists the versions",
            )
        if not self.writable:
            self._kept = recovery.read_kept(self.home)
        kept = self._kept
        single = {table for table, at in kept.pinned if at == version}
        if version < kept.oldest and not single:
            raise LedgerError(
                f"Version {version} can no longer be read: the oldest is {kept.oldest}, the newest {current.version}.",
                hint="keep more versions when vacuuming to read further back",
            )
        found = self._log.state(version)
        return found.restricted_to(single) if version < kept.oldest else found

    def records(self, first: int = 0, last: int | None = None) -> Iterator[Record]:
        """The records from version `first` to `last`, inclusive; by default to the newest."""
        newest = self._snapshot.version
        return self._log.records(first, newest if last is None else min(last, newest))

    def captured(self, stream_id: str, upto_version: int | None = None) -> Iterator[Any]:
        """What each run of a stream captured from its source, in order, up to a version, and since it was last
        dropped."""
        newest = self._snapshot.version
        return iter(self._captured.upto(stream_id, newest if upto_version is None else min(upto_version, newest)))

    def table_folder(self, table_id: str) -> Path:
        """The folder of the Delta table, for other tools."""
        return self._tables.path(steps.checked(check_table_id, table_id))

    def table_schema(self, table_id: str, snapshot: Snapshot | None = None) -> pa.Schema:
        """The Arrow schema of a table, even if it is empty."""
        schema = (snapshot or self._snapshot).schemas.get(table_id)
        if schema is None:
            raise LedgerError(f"There is no table {table_id} at version {(snapshot or self._snapshot).version}.")
        return arrow_schema(schema)

    @contextlib.contextmanager
    def pin(self, version: int) -> Iterator[Snapshot]:
        """Keep the files of a version from being deleted inside the block; yields its snapshot."""
        pin = self._new_pin(version)
        try:
            # Read after the pin exists: vacuum either saw the pin, or we see what it left.
            yield self.snapshot(version)
        finally:
            if pin is not None:
                pin.release()

    def _new_pin(self, version: int) -> Pin | None:
        try:
            return Pin(self.home / "readers", version)
        except OSError:
            return None

    def _hold(self, version: int) -> None:
        """Move this reader's own pin; one that a vacuum overtook moves on to the newest version."""
        earlier, self._pin = self._pin, self._new_pin(version)
        if earlier is not None:
            earlier.release()
        self._kept = recovery.read_kept(self.home)
        if version < self._kept.oldest:
            newest = self._log.newest_after(version)
            if newest == version:
                raise LedgerError(
                    f"{self.home / 'oldest.json'} says that versions before {self._kept.oldest} are gone, "
                    f"but the newest record is version {version}.",
                    hint="restore the missing records from a copy of the home",
                )
            self._snapshot = self._log.state(newest, self._snapshot)
            self._hold(newest)

    # ---- pending files

    def stage(self) -> Path:
        """A new folder for uncommitted files; it does not outlive this process."""
        self._must_write()
        return self._arrivals.stage()

    def adopt(
        self, table_id: str, staged_file: Path, rows: int, low: int | None = None, high: int | None = None
    ) -> DataFile:
        """Move a staged Parquet file into a table's folder, for a later commit."""
        self._must_write()
        return self._arrivals.adopt(table_id, staged_file, rows, low, high)

    def write_arrow(self, table_id: str, table: pa.Table, low: int | None = None, high: int | None = None) -> DataFile:
        """Write a small Arrow table as one Parquet file into a table's folder, for a later commit."""
        self._must_write()
        return self._arrivals.write_arrow(table_id, table, low, high)

    def write(self, table_id: str, write: Callable[[Path], Written]) -> DataFile:
        """Have `write` write a Parquet file into a table's folder, for a later commit."""
        self._must_write()
        return self._arrivals.write(table_id, write)

    def discard(self, table_id: str, file: DataFile) -> None:
        """Delete a written or adopted file that will not be committed."""
        self._arrivals.discard(table_id, file.path)

    def give_up(self, written: Mapping[str, Iterable[DataFile]], staged: Iterable[Path] = ()) -> None:
        """Delete the files of a failed commit: a full disk needs their space."""
        with self._commit_lock:
            if self._log.newest_after(self._snapshot.version) > self._snapshot.version:
                return  # a record may have been published after all and name them
            for table, new in written.items():
                # After an interrupt right after the commit they are needed.
                committed = self._snapshot.files.get(table, {})
                for file in new:
                    if file.path not in committed:
                        self._arrivals.discard(table, file.path)
        for folder in staged:
            shutil.rmtree(folder, ignore_errors=True)

    # ---- committing

    def commit(self, draft: Draft, *, intended: bool = True) -> Record:
        """Commit the draft as the next version: in all its tables, or not at all.

        `intended`: inside `intent`, whether it completes the statement, and is not one of its earlier steps.
        """
        self._must_write()
        with self._commit_lock:
            before, begin = self._snapshot, time.perf_counter()
            stack: list[str] = getattr(self._intents, "stack", [])
            record = steps.prepare(draft, before, self._tables, self._now(), stack[-1] if stack and intended else None)
            try:
                with files.explained(f"committing version {record.version}", self.home):
                    for table in sorted(self._unsettled):
                        self._tables.settle(table, before)
                        self._unsettled.discard(table)
                    crash.reach("before-table-commits")
                    record = replace(record, tables=steps.commit_tables(draft, before, self._tables))
                    self._syncing.sync([*self._arrivals.unsynced(record), *self._tables.unsynced(record.tables)])
                    self._tables.synced(record.tables)
                    took = (time.perf_counter() - begin) * 1000
                    record = replace(record, milliseconds=steps.with_commit(record.milliseconds, took))
                    # Encode and decode, so that the snapshot shares nothing with the caller.
                    record = record_from_bytes(record_to_bytes(record))
                    crash.reach("before-record")
                    self._log.publish(record)
            except BaseException:
                # An interrupt can come right after the record was published: it is committed.
                if self._log.holds(record):
                    self._committed(record, draft)
                else:
                    self._take_back(draft, before)
                raise
            crash.reach("after-record")
            self._committed(record, draft)
            return record

    def _take_back(self, draft: Draft, before: Snapshot) -> None:
        """Undo a failed commit in the Delta tables; what fails now is undone next time."""
        for table in steps.touched(draft):
            try:
                self._tables.settle(table, before)
            except Exception:
                self._unsettled.add(table)

    def _committed(self, record: Record, draft: Draft) -> None:
        self._snapshot = fold(self._snapshot, [record])
        self._captured.add(record)
        for table, change in record.tables.items():
            if change.drop:
                self._tables.forget(table)
        self._arrivals.arrived(record)
        for folder in draft.staged:
            shutil.rmtree(folder, ignore_errors=True)
        if record.version % SNAPSHOT_EVERY == 0:
            self._log.write_snapshot(self._snapshot)
        # The record is published: a failure to sync its name does not undo it.
        with contextlib.suppress(OSError):
            files.sync_folder(self._log.folder)

    @contextlib.contextmanager
    def intent(self, statement: str) -> Iterator[str]:
        """Wraps a statement that commits once: if the process dies before its record, the next writer reports it."""
        self._must_write()
        name = uuid.uuid4().hex
        path = self.home / "intents" / f"{name}.json"
        contents = {"statement": statement, "at": self._now(), "after": self._snapshot.version}
        with files.explained("noting a statement", self.home):
            files.replace(path, dump(contents) + b"\n")
        crash.reach("after-intent")
        stack: list[str] = self._intents.__dict__.setdefault("stack", [])
        stack.append(name)
        try:
            yield name
        finally:
            stack.remove(name)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    # ---- vacuum

    def vacuum(
        self,
        keep_versions: int | None = None,
        pinned: Callable[[int], Iterable[tuple[str, int]]] = lambda oldest: (),
    ) -> int:
        """Delete data files that no needed version names; returns their number.

        Needed are the last `keep_versions` versions, all from the oldest pinned one on, and for single tables the
        (table id, version) pairs that `pinned` returns for the oldest kept version.
        """
        self._must_write()
        keep = self.keep_versions if keep_versions is None else keep_versions
        if keep < 1:
            raise LedgerError("vacuum must keep at least 1 version: the newest.")
        with self._commit_lock, files.explained("vacuuming", self.home):
            old, readers = self._kept, self.home / "readers"
            oldest = max(0, self._snapshot.version - keep + 1)
            # First record what will be gone, then check again for new pins: a reader pins first and then reads what is
            # kept, so one of the two sees the other.
            for _ in range(2):
                oldest = max(old.oldest, min([oldest, *pinned_versions(readers)]))
                wanted = self._checked(pinned(oldest))
                recovery.write_kept(self.home, recovery.Kept(oldest, wanted))
            self._kept = recovery.Kept(oldest, wanted)
            crash.reach("in-vacuum")
            named = recovery.named_files(self._log, self._snapshot, self._kept)
            with self._arrivals.lock:
                deleted = recovery.sweep(self._tables, self._snapshot, named, self._arrivals.of)
            self._snapshot = self._snapshot.without_removed_before(oldest)
            self._log.forget_snapshots_before(oldest)
            return deleted

    def _checked(self, pinned: Iterable[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """These tables at these versions, after a check that all can still be read."""
        wanted, oldest, newest = frozenset(pinned), self._kept.oldest, self._snapshot.version
        for table, version in wanted:
            if version > newest or (version < oldest and (table, version) not in self._kept.pinned):
                raise LedgerError(
                    f"Version {version} of table {table} cannot be kept: it is not there any more, or not yet.",
                    hint=f"the oldest version is {oldest}, the newest {newest}",
                )
        return wanted

    # ---- helpers

    def _now(self) -> str:
        return self._clock().astimezone(timezone.utc).isoformat()

    def _must_write(self) -> None:
        if self._closed:
            raise LedgerError(f"The home {self.home} is closed.", hint="open it again")
        if not self.writable:
            raise LedgerError(f"The home {self.home} is open for reading.", hint="open it with write=True")
