"""Snapshots: what a home holds at one version, folded from the records up to it.

Pure values: no file is opened here. A snapshot is immutable; the next one shares what did not change.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch.ledger.records import (
    DataFile,
    Malformed,
    Record,
    StreamRun,
    TableChange,
    check_file_name,
    check_table_id,
    dump,
    expect_count,
    expect_int,
    expect_object,
    expect_text,
    file_from_json,
    file_to_json,
    parse_object,
    ready_from_json,
    run_from_json,
    run_to_json,
)

#: 2: definitions have a format number of their own. Format 1 can be read too.
SNAPSHOT_FORMAT = 2


@dataclass(frozen=True)
class StreamState:
    """A stream at a version: its number of runs, its last run, and totals over all runs."""

    runs: int = 0
    last: StreamRun | None = None
    rows: int = 0
    late: int = 0
    bad: int = 0

    def after(self, run: StreamRun) -> StreamState:
        """The state one run later. A run with the number of the last one only advances the progress (ADVANCE)."""
        return StreamState(
            runs=max(self.runs, run.run + 1),
            last=run,
            rows=self.rows + run.rows,
            late=self.late + run.late,
            bad=self.bad + run.bad,
        )


@dataclass(frozen=True)
class Snapshot:
    """Everything a home holds at one version. Version 0 is the empty home.

    `files` has an entry for every table, even an empty one. `removed` has the files that an older version still
    names, with the version that removed them. `schemas` has each table's schema as Delta's JSON. `bounds` is the
    progress of views; `ready` the progress that the last runs of views with a budget could have reached; `passed` the
    progress of some without idle streams.
    """

    version: int = 0
    catalog: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, dict[str, DataFile]] = field(default_factory=dict)
    streams: dict[str, StreamState] = field(default_factory=dict)
    applied: frozenset[str] = frozenset()
    schemas: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    delta_versions: dict[str, int] = field(default_factory=dict)
    removed: dict[str, dict[str, int]] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    ready: dict[str, tuple[int, ...]] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)

    def table_paths(
        self, home: str | os.PathLike[str], table_id: str, low: int | None = None, high: int | None = None
    ) -> list[str]:
        """The absolute paths of the table's files that may hold a row in [low, high) microseconds.

        `home` is the folder, or the ledger. A table that does not exist has no files.
        """
        folder = Path(home).absolute() / "tables" / table_id
        return [str(folder / file.path) for file in self.files.get(table_id, {}).values() if file.may_hold(low, high)]

    def named_since(self, oldest: int, table_id: str) -> set[str]:
        """The files of a table in any version from `oldest` to this one."""
        gone = self.removed.get(table_id, {})
        return set(self.files.get(table_id, ())) | {name for name, version in gone.items() if version > oldest}

    def without_removed_before(self, oldest: int) -> Snapshot:
        """The same without removed files that no version from `oldest` on names."""
        kept = {
            table: left
            for table, gone in self.removed.items()
            if (left := {name: version for name, version in gone.items() if version > oldest})
        }
        return replace(self, removed=kept)

    def restricted_to(self, tables: set[str]) -> Snapshot:
        """The same with only the files of these tables."""
        return replace(
            self,
            files={table: files for table, files in self.files.items() if table in tables},
            schemas={table: schema for table, schema in self.schemas.items() if table in tables},
            delta_versions={table: version for table, version in self.delta_versions.items() if table in tables},
            removed={},
        )


def fold(base: Snapshot, records: Iterable[Record]) -> Snapshot:
    """The snapshot after these records, which follow `base` without a gap; raises Malformed.

    Dictionaries are copied on first write, so one record on a large home is as cheap as many on a small one.
    Unchanged definitions remain the same dictionary object: caches of decoded definitions rely on that.
    """
    version, catalog = base.version, base.catalog
    made = replace(
        base,
        files=dict(base.files),
        streams=dict(base.streams),
        schemas=dict(base.schemas),
        delta_versions=dict(base.delta_versions),
        removed=dict(base.removed),
        bounds=dict(base.bounds),
        ready=dict(base.ready),
        passed=dict(base.passed),
    )
    applied: set[str] = set()
    own: set[str] = set()
    for record in records:
        if record.version != version + 1:
            raise Malformed(f"version {record.version} follows version {version}")
        version = record.version
        if record.catalog and catalog is base.catalog:
            catalog = dict(catalog)
        for name, definition in record.catalog.items():
            if definition is not None:
                catalog[name] = definition
                continue
            # A stream that is created again under the same id starts at run 0.
            for values in (catalog, made.streams, made.bounds, made.ready, made.passed):
                values.pop(name, None)
        for name, run in record.streams.items():
            made.streams[name] = made.streams.get(name, StreamState()).after(run)
        made.bounds.update(record.bounds)
        made.ready.update(record.ready)
        for name, bound in record.passed.items():
            if bound is None:
                made.passed.pop(name, None)
            else:
                made.passed[name] = bound
        for table, change in record.tables.items():
            if table not in own:
                own.add(table)
                made.files[table] = dict(made.files.get(table, {}))
                made.removed[table] = dict(made.removed.get(table, {}))
            _change_table(made, version, table, change)
        applied.update(record.applied)
    return replace(
        made,
        version=version,
        catalog=catalog,
        applied=base.applied | applied if applied else base.applied,
        removed={table: gone for table, gone in made.removed.items() if gone},
        ready={name: reached for name, reached in made.ready.items() if reached},
    )


def _change_table(made: Snapshot, version: int, table: str, change: TableChange) -> None:
    live, gone = made.files.setdefault(table, {}), made.removed[table]
    for path in live if change.drop else change.remove:
        if path not in live:
            raise Malformed(f"it removes {path} from table {table}, which does not hold that file")
        gone[path] = version
    if change.drop:
        del made.files[table]
        made.schemas.pop(table, None)
        made.delta_versions.pop(table, None)
        return
    for path in change.remove:
        del live[path]
    for file in change.add:
        if file.path in live:
            raise Malformed(f"it adds {file.path} to table {table}, which holds that file already")
        live[file.path] = file
        gone.pop(file.path, None)
    if change.schema is not None:
        made.schemas[table] = change.schema
    if change.delta_version is not None:
        made.delta_versions[table] = change.delta_version


# ---- as a file: a header line with a checksum, then the state


def snapshot_to_bytes(snapshot: Snapshot) -> bytes:
    """The contents of a snapshot file."""
    body = dump(
        {
            "catalog": snapshot.catalog,
            "files": {
                table: [file_to_json(file) for file in files.values()] for table, files in snapshot.files.items()
            },
            "streams": {
                name: {
                    "runs": state.runs,
                    "last": None if state.last is None else run_to_json(state.last),
                    "rows": state.rows,
                    "late": state.late,
                    "bad": state.bad,
                }
                for name, state in snapshot.streams.items()
            },
            "applied": sorted(snapshot.applied),
            "schemas": {table: dict(schema) for table, schema in snapshot.schemas.items()},
            "delta_versions": snapshot.delta_versions,
            "removed": snapshot.removed,
            "bounds": snapshot.bounds,
            "ready": {name: list(reached) for name, reached in snapshot.ready.items()},
            "passed": snapshot.passed,
        }
    )
    digest = hashlib.sha256(body).hexdigest()
    return dump({"format": SNAPSHOT_FORMAT, "version": snapshot.version, "sha256": digest}) + b"\n" + body + b"\n"


def snapshot_from_bytes(data: bytes) -> Snapshot:
    """The snapshot in the contents of a file; raises Malformed."""
    first, _, rest = data.partition(b"\n")
    header = parse_object(first)
    body = rest.removesuffix(b"\n")
    if header.get("format") not in (1, SNAPSHOT_FORMAT):
        raise Malformed(f"its format is {header.get('format')!r:.20}")
    if hashlib.sha256(body).hexdigest() != header.get("sha256"):
        raise Malformed("its checksum does not fit its contents")
    parts = parse_object(body)
    tables = expect_object(parts.get("files"), "files")
    streams = {
        name: expect_object(state, "a stream's state")
        for name, state in expect_object(parts.get("streams"), "streams").items()
    }
    removed = expect_object(parts.get("removed"), "removed")
    return Snapshot(
        version=expect_count(header.get("version"), "version"),
        catalog={
            name: expect_object(definition, "a definition")
            for name, definition in expect_object(parts.get("catalog"), "catalog").items()
        },
        files={
            check_table_id(table): {file.path: file for file in map(file_from_json, files)}
            for table, files in tables.items()
        },
        streams={
            name: StreamState(
                runs=expect_count(state.get("runs"), "runs"),
                last=None if state.get("last") is None else run_from_json(state["last"]),
                rows=expect_count(state.get("rows"), "rows"),
                late=expect_count(state.get("late"), "late"),
                bad=expect_count(state.get("bad"), "bad"),
            )
            for name, state in streams.items()
        },
        applied=frozenset(expect_text(key, "applied") for key in parts.get("applied", [])),
        schemas={
            check_table_id(table): expect_object(schema, "a schema")
            for table, schema in expect_object(parts.get("schemas"), "schemas").items()
        },
        delta_versions={
            check_table_id(table): expect_count(version, "delta_version")
            for table, version in expect_object(parts.get("delta_versions"), "delta_versions").items()
        },
        removed={
            check_table_id(table): {
                check_file_name(name): expect_count(version, "removed")
                for name, version in expect_object(gone, "removed").items()
            }
            for table, gone in removed.items()
        },
        bounds={
            name: expect_int(bound, "a bound")
            for name, bound in expect_object(parts.get("bounds", {}), "bounds").items()
        },
        ready=ready_from_json(parts.get("ready", {})),
        passed={
            name: expect_int(bound, "a bound")
            for name, bound in expect_object(parts.get("passed", {}), "passed").items()
        },
    )
