"""State tables in buckets: files of rows by the hash of their keys, so that a task reads only its share of a table.

Files are written in buckets where tasks have such rows anyway, and where merging makes a table large enough; a bucket
that outgrows its size is split in two at the next merge. A table can mix files of any number of buckets and files
without one: a task still checks the bucket of each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from anabranch.duck import Variable, key_hash, quoted
from anabranch.ledger import Bucket, DataFile
from anabranch.plan.states import Panes
from anabranch.plan.types import duckdb_type
from anabranch.types import INTEGERS

#: In place of a file: the new rows of a run in a table, which the tasks that read the run have.
RUN = "__run"

#: Types whose equal values, for Spark and DuckDB, have equal hashes.
_HASHED = ("string", "date", "timestamp", "timestamp_ntz", "boolean", "binary")


def is_hashed(*types: str) -> bool:
    """Whether equal values of these types have equal hashes, however they were computed."""
    return all(type in (*INTEGERS, *_HASHED) or type.startswith("decimal") for type in types)


def hash_of(columns: Iterable[tuple[str, str]]) -> str:
    """The hash of columns with these names and types, with integers of all widths alike; empty if there is none.

    >>> hash_of([("k", "int"), ("x", "double")])
    'hash(CAST("k" AS BIGINT))'
    """
    values = [
        f"CAST({quoted(name)} AS {'BIGINT' if type in INTEGERS else duckdb_type(type)})"
        for name, type in columns
        if is_hashed(type)
    ]
    return key_hash(values) if values else ""


def hash_of_partials(panes: Panes) -> str:
    """The hash of the keys of a table of partials; empty if there is none."""
    return hash_of((key.name, key.type) for key in panes.keys)


def lasting(hash: str) -> str:
    """The name of a hash in the ledger, with DuckDB's version: another version may hash differently."""
    import duckdb

    return f"{hash} of DuckDB {duckdb.__version__}"


class FilesByBucket:
    """The files that tasks read, and those that can have rows of a bucket."""

    def __init__(self, hashes: Mapping[str, str] | None = None) -> None:
        self.hashes = dict(hashes or {})  # of tables
        self._lists: dict[str, tuple[str, list[tuple[str, Bucket | None]]]] = {}

    def paths(self, table: str, folder: Path, files: Iterable[DataFile]) -> list[str] | Variable:
        """Some files of a table, as a text names them that all tasks are given."""
        found = [(str(folder / file.path), file.bucket) for file in files]
        by = lasting(self.hashes[table]) if self.hashes.get(table) else ""
        if not any((bucket is not None and bucket.by == by) or path.endswith(f"/{RUN}") for path, bucket in found):
            return [path for path, _ in found]
        name = f"files_{len(self._lists)}"
        self._lists[name] = (by, found)
        return Variable(name)

    def of(self, number: int, count: int) -> dict[str, list[str]]:
        """The files of each list that a task reads; where none has rows for it one all the same, for its columns."""
        chosen = {}
        for name, (by, files) in self._lists.items():
            own = Bucket(by, number, count)
            chosen[name] = [path for path, bucket in files if bucket is None or own.overlaps(bucket)] or [files[0][0]]
        return chosen


def split(bucket: Bucket, rows: int, most: int) -> Sequence[Bucket]:
    """A bucket of so many rows as some that have about as many as one may.

    >>> [(each.number, each.of) for each in split(Bucket("k", 1, 2), 30, 10)]
    [(1, 8), (3, 8), (5, 8), (7, 8)]
    """
    parts = 1
    while parts * most < rows:
        parts *= 2
    return [Bucket(bucket.by, bucket.number + part * bucket.of, bucket.of * parts) for part in range(parts)]
