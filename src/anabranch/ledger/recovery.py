"""Recovery when a home is opened for writing, and the parts of it that vacuum shares.

Deletes all that no record names, and keeps all that a record names. Each step may be interrupted and repeated. Knows
the layout of a home, and nothing of what the tables mean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import LedgerError
from anabranch.ledger import crash, delta_log, files
from anabranch.ledger.log import RecordLog
from anabranch.ledger.records import Malformed, dump, expect_count, expect_text, parse_object
from anabranch.ledger.snapshot import Snapshot
from anabranch.ledger.tables import DeltaTables


@dataclass(frozen=True)
class Kept:
    """The readable versions: all from `oldest` on, and some tables at single versions before it."""

    oldest: int = 0
    pinned: frozenset[tuple[str, int]] = frozenset()


def read_kept(home: Path) -> Kept:
    """The versions that vacuum left readable, from `oldest.json`; all if it never ran."""
    path = home / "oldest.json"
    try:
        parts = parse_object(path.read_bytes())
        pairs = parts.get("pinned", [])
        if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise Malformed("pinned is not a list of tables and versions")
        return Kept(
            expect_count(parts.get("oldest"), "oldest"),
            frozenset((expect_text(table, "a table"), expect_count(version, "a version")) for table, version in pairs),
        )
    except FileNotFoundError:
        return Kept()
    except Malformed as error:
        raise LedgerError(
            f"{path} is damaged: {error}.",
            hint='write {"oldest": n} into it, with n the oldest version whose files are all there',
        ) from error


def write_kept(home: Path, kept: Kept) -> None:
    pairs = [[table, version] for table, version in sorted(kept.pinned)]
    files.replace(home / "oldest.json", dump({"oldest": kept.oldest, "pinned": pairs}) + b"\n")


def named_files(log: RecordLog, snapshot: Snapshot, kept: Kept) -> Callable[[str], set[str]]:
    """A function from a table to its files in readable versions."""
    single: dict[str, set[str]] = {}
    for table, version in kept.pinned:
        single.setdefault(table, set()).update(log.state(version).files.get(table, {}))
    return lambda table: snapshot.named_since(kept.oldest, table) | single.get(table, set())


def sweep(
    tables: DeltaTables,
    snapshot: Snapshot,
    named: Callable[[str], set[str]],
    spare: Callable[[str], Collection[str]] = lambda table: (),
) -> int:
    """Delete the data files that are neither named nor spared, and the folders of dropped tables."""
    deleted = 0
    for table in tables.ids():
        keep = named(table) | set(spare(table))
        folder = tables.path(table)
        names = {entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)}
        for name in sorted(names - keep):
            if name.endswith(".parquet") or name.startswith(files.TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
                    deleted += 1
                crash.reach("in-vacuum")
        if table not in snapshot.files and not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return deleted


def recover(home: Path, log: RecordLog, tables: DeltaTables, snapshot: Snapshot, kept: Kept) -> list[str]:
    """Bring a home to the state of its newest record; returns the interrupted statements that this undoes."""
    log.remove_temporary()
    for leftover in home.glob(f"{files.TEMPORARY}*"):
        leftover.unlink(missing_ok=True)
    crash.reach("in-recovery")
    shutil.rmtree(home / "staging", ignore_errors=True)
    crash.reach("in-recovery")
    _check_files(tables, snapshot)
    _settle_all(tables, snapshot)
    crash.reach("in-recovery")
    sweep(tables, snapshot, named_files(log, snapshot, kept))
    crash.reach("in-recovery")
    # Last: a statement must be reported even if this process dies before this line.
    return _undone(home / "intents", log, snapshot.version)


def _check_files(tables: DeltaTables, snapshot: Snapshot) -> None:
    for table, live in snapshot.files.items():
        folder = tables.path(table)
        try:
            there = {entry.name: entry.stat().st_size for entry in os.scandir(folder) if entry.name in live}
        except FileNotFoundError:
            there = {}
        missing = sorted(live.keys() - there.keys())
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise LedgerError(
                f"Table {table} lacks the file {folder / missing[0]}{more}, which version {snapshot.version} names.",
                hint="restore it from a copy of the home; the home can still be opened for reading",
            )
        # Spark silently skips an empty file, and its rows would be missing from answers.
        for name, size in there.items():
            if size != live[name].bytes:
                raise LedgerError(
                    f"The file {folder / name} is damaged: it has {size:,} bytes, and was written with"
                    f" {live[name].bytes:,}.",
                    hint="restore it from a copy of the home; nothing was changed",
                )


def _settle_all(tables: DeltaTables, snapshot: Snapshot) -> None:
    gone = [table for table in tables.ids() if table not in snapshot.files]
    for table in gone:
        if (tables.path(table) / delta_log.FOLDER).exists():
            tables.forget(table)
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="anabranch-recovery") as pool:
        for done in [pool.submit(tables.settle, table, snapshot) for table in snapshot.files]:
            done.result()
            crash.reach("in-recovery")


def _undone(folder: Path, log: RecordLog, newest: int) -> list[str]:
    try:
        paths = sorted(folder.iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
    except FileNotFoundError:
        return []
    statements = []
    for path in paths:
        if path.name.startswith(files.TEMPORARY):
            continue
        try:
            parts = parse_object(path.read_bytes())
            after = expect_count(parts.get("after"), "after")
            statement = expect_text(parts.get("statement"), "statement")
        except (OSError, Malformed):
            statements.append(f"(a statement whose text was lost: {path.name})")
            continue
        # After a crash between the record and the end of the statement, it is done and not undone.
        if all(record.intent != path.stem for record in log.records(after + 1, newest)):
            statements.append(statement)
    for path in paths:
        path.unlink(missing_ok=True)
    return statements
