"""Records, one a version of a home, and their JSON.

Pure values: this module opens no file and knows neither Delta nor Spark. Text from a file is untrusted: every field is
checked, and names that become paths have a narrow alphabet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.errors import LedgerError

if TYPE_CHECKING:
    import pyarrow as pa

#: 2: definitions have a format number of their own.
FORMAT = 2

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*")
_TABLE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]*")

Value = TypeVar("Value")


class Malformed(ValueError):
    """Invalid JSON; the caller, which knows the file, raises a LedgerError from it."""


@dataclass(frozen=True)
class Bucket:
    """The rows of a table for which the hash of some columns has one remainder. `of` is a power of two.

    `by` names the hash: with the same `by`, rows with equal values are in the same bucket.
    """

    by: str
    number: int
    of: int

    def overlaps(self, other: Bucket) -> bool:
        """Whether a row can be in both buckets.

        >>> Bucket("k", 1, 2).overlaps(Bucket("k", 3, 4)), Bucket("k", 1, 2).overlaps(Bucket("k", 2, 4))
        (True, False)
        """
        least = min(self.of, other.of)
        return self.by != other.by or self.number % least == other.number % least


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table. `low` and `high` are its lowest and highest pane or event time in microseconds;
    `bucket` is the bucket of all its rows."""

    path: str
    rows: int
    bytes: int
    low: int | None = None
    high: int | None = None
    bucket: Bucket | None = None

    def may_hold(self, low: int | None, high: int | None) -> bool:
        """Whether a row in [low, high) can be in this file.

        >>> DataFile("a.parquet", 1, 9, low=10, high=20).may_hold(20, 30)
        True
        >>> DataFile("a.parquet", 1, 9, low=10, high=20).may_hold(0, 10)
        False
        """
        if low is not None and self.high is not None and self.high < low:
            return False
        return not (high is not None and self.low is not None and self.low >= high)


@dataclass(frozen=True)
class TableChange:
    """What a version does to one table.

    `drop` removes all of its files and the table. Only versions that create the table or add columns have its `schema`
    (as Delta's JSON). The ledger sets it, and the Delta version after the commit.
    """

    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    delta_version: int | None = None
    drop: bool = False
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StreamRun:
    """A run of a stream: its counts, and the state of the stream after it.

    `progress`, `position` and `captured` are JSON of the engine. `bound` is the progress in microseconds.
    """

    run: int
    rows: int
    late: int = 0
    bad: int = 0
    low: int | None = None
    high: int | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    position: Any = None
    captured: Any = None
    bound: int | None = None


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a version changes, and what is noted of it."""

    streams: Mapping[str, StreamRun] = field(default_factory=dict)
    tables: Mapping[str, TableChange] = field(default_factory=dict)
    catalog: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)
    applied: tuple[str, ...] = ()
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    note: str | None = None
    intent: str | None = None
    bounds: Mapping[str, int] = field(default_factory=dict)  # the progress of views, by id
    ready: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # and what their last runs could have reached
    passed: Mapping[str, int | None] = field(default_factory=dict)  # and past idle streams; None: forget it
    backends: Mapping[str, str] = field(default_factory=dict)  # what computed nodes, and why, by id


@dataclass(frozen=True)
class Record(Contents):
    """One version of a home."""

    version: int
    kind: str
    at: str


@dataclass(frozen=True)
class Draft(Contents):
    """The contents of the next version.

    `schemas` has a schema for each table to create or that may need more columns. `staged` are folders of
    `Ledger.stage` to delete after the commit. The ledger sets `intent` for a commit inside `Ledger.intent` on the
    same thread.
    """

    kind: str
    schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    staged: tuple[Path, ...] = ()


def check_table_id(name: str) -> str:
    """The name, if it is safe as the name of a folder."""
    if not _TABLE_ID.fullmatch(name):
        raise Malformed(f"the table id {name!r} is not made of letters, digits, '_', '-', '.' and '='")
    return name


def check_file_name(name: str) -> str:
    """The name, if it is safe as the name of a file in a table's folder."""
    if not _FILE_NAME.fullmatch(name):
        raise Malformed(f"the path {name!r} is not a plain file name")
    return name


# ---- writing


def file_to_json(file: DataFile) -> list[Any]:
    bucket = [] if file.bucket is None else [[file.bucket.by, file.bucket.number, file.bucket.of]]
    return [file.path, file.rows, file.bytes, file.low, file.high, *bucket]


def run_to_json(run: StreamRun) -> dict[str, Any]:
    return {
        "run": run.run,
        "rows": run.rows,
        "late": run.late,
        "bad": run.bad,
        "low": run.low,
        "high": run.high,
        "progress": dict(run.progress),
        "position": run.position,
        "captured": run.captured,
        "bound": run.bound,
    }


def _change_to_json(change: TableChange) -> dict[str, Any]:
    parts: dict[str, Any] = {"delta_version": change.delta_version}
    if change.add:
        parts["add"] = [file_to_json(file) for file in change.add]
    if change.remove:
        parts["remove"] = list(change.remove)
    if change.drop:
        parts["drop"] = True
    if change.schema is not None:
        parts["schema"] = dict(change.schema)
    return parts


def dump(value: Any) -> bytes:
    """JSON on one line; LedgerError for what JSON cannot hold."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"This cannot be written into the ledger: {error}.",
            hint="definitions, positions and progress must be plain JSON: text, numbers, lists, objects",
        ) from error


def record_to_bytes(record: Record) -> bytes:
    """The contents of a record's file."""
    parts: dict[str, Any] = {
        "format": FORMAT,
        "version": record.version,
        "kind": record.kind,
        "at": record.at,
    }
    if record.streams:
        parts["streams"] = {name: run_to_json(run) for name, run in record.streams.items()}
    if record.tables:
        parts["tables"] = {name: _change_to_json(change) for name, change in record.tables.items()}
    if record.catalog:
        parts["catalog"] = dict(record.catalog)
    if record.applied:
        parts["applied"] = list(record.applied)
    if record.milliseconds:
        parts["milliseconds"] = dict(record.milliseconds)
    if record.note is not None:
        parts["note"] = record.note
    if record.intent is not None:
        parts["intent"] = record.intent
    if record.bounds:
        parts["bounds"] = dict(record.bounds)
    if record.ready:
        parts["ready"] = {name: list(reached) for name, reached in record.ready.items()}
    if record.passed:
        parts["passed"] = dict(record.passed)
    if record.backends:
        parts["places"] = dict(record.backends)
    return dump(parts) + b"\n"


# ---- reading


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is not JSON ({error})") from error
    return expect_object(value, "it")


def expect_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{what} is not a JSON object")
    return value


def expect_int(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{what} is not a whole number: {value!r:.60}")
    return value


def expect_count(value: Any, what: str) -> int:
    if expect_int(value, what) < 0:
        raise Malformed(f"{what} is below zero: {value}")
    return int(value)


def expect_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{what} is not text: {value!r:.60}")
    return value


def _optional(check: Callable[[Any, str], Value], value: Any, what: str) -> Value | None:
    return None if value is None else check(value, what)


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Malformed(f"{what} is not a list")
    return tuple(expect_text(item, what) for item in value)


def file_from_json(value: Any) -> DataFile:
    if not isinstance(value, list) or len(value) not in (5, 6):
        raise Malformed(f"a file is not a list of path, rows, bytes, low, high and bucket: {value!r:.60}")
    path, rows, size, low, high, *bucket = value
    return DataFile(
        check_file_name(expect_text(path, "a file's path")),
        expect_count(rows, "a file's rows"),
        expect_count(size, "a file's bytes"),
        _optional(expect_int, low, "a file's low"),
        _optional(expect_int, high, "a file's high"),
        _bucket_from_json(bucket[0]) if bucket else None,
    )


def _bucket_from_json(value: Any) -> Bucket:
    if not isinstance(value, list) or len(value) != 3:
        raise Malformed(f"a bucket is not a list of hash, number and count: {value!r:.60}")
    by, number, of = value
    return Bucket(
        expect_text(by, "a bucket's hash"), expect_count(number, "its number"), max(1, expect_count(of, "its count"))
    )


def run_from_json(value: Any) -> StreamRun:
    parts = expect_object(value, "a stream's run")
    return StreamRun(
        run=expect_int(parts.get("run"), "run"),
        rows=expect_count(parts.get("rows"), "rows"),
        late=expect_count(parts.get("late", 0), "late"),
        bad=expect_count(parts.get("bad", 0), "bad"),
        low=_optional(expect_int, parts.get("low"), "low"),
        high=_optional(expect_int, parts.get("high"), "high"),
        progress=expect_object(parts.get("progress", {}), "progress"),
        position=parts.get("position"),
        captured=parts.get("captured"),
        bound=_optional(expect_int, parts.get("bound"), "bound"),
    )


def _change_from_json(value: Any) -> TableChange:
    parts = expect_object(value, "a table's change")
    added = parts.get("add", [])
    if not isinstance(added, list):
        raise Malformed("add is not a list")
    return TableChange(
        add=tuple(file_from_json(file) for file in added),
        remove=tuple(check_file_name(name) for name in _texts(parts.get("remove", []), "remove")),
        delta_version=_optional(expect_count, parts.get("delta_version"), "delta_version"),
        drop=parts.get("drop") is True,
        schema=_optional(expect_object, parts.get("schema"), "schema"),
    )


def record_from_bytes(data: bytes) -> Record:
    """The record in the contents of a file; raises Malformed."""
    parts = parse_object(data)
    written = expect_int(parts.get("format"), "format")
    if written > FORMAT:
        raise Malformed(f"its format is {written}, and this version of Anabranch reads up to {FORMAT}")
    catalog = expect_object(parts.get("catalog", {}), "catalog")
    times = expect_object(parts.get("milliseconds", {}), "milliseconds")
    if not all(isinstance(value, int | float) for value in times.values()):
        raise Malformed("milliseconds has a value that is not a number")
    return Record(
        version=expect_count(parts.get("version"), "version"),
        kind=expect_text(parts.get("kind"), "kind"),
        at=expect_text(parts.get("at"), "at"),
        streams={name: run_from_json(run) for name, run in expect_object(parts.get("streams", {}), "streams").items()},
        tables={
            check_table_id(name): _change_from_json(change)
            for name, change in expect_object(parts.get("tables", {}), "tables").items()
        },
        catalog={name: _optional(expect_object, value, f"catalog {name!r}") for name, value in catalog.items()},
        applied=_texts(parts.get("applied", []), "applied"),
        milliseconds=times,
        note=_optional(expect_text, parts.get("note"), "note"),
        intent=_optional(expect_text, parts.get("intent"), "intent"),
        bounds={
            name: expect_int(bound, "a bound")
            for name, bound in expect_object(parts.get("bounds", {}), "bounds").items()
        },
        ready=ready_from_json(parts.get("ready", {})),
        passed={
            name: _optional(expect_int, bound, "a bound")
            for name, bound in expect_object(parts.get("passed", {}), "passed").items()
        },
        backends={
            name: expect_text(place, "a place")
            for name, place in expect_object(parts.get("places", {}), "places").items()
        },
    )


def ready_from_json(value: Any) -> dict[str, tuple[int, ...]]:
    """The progress that the last runs of views could have reached."""
    found: dict[str, tuple[int, ...]] = {}
    for name, reached in expect_object(value, "ready").items():
        if not isinstance(reached, list):
            raise Malformed("ready is not a list")
        found[name] = tuple(expect_int(bound, "a bound") for bound in reached)
    return found
