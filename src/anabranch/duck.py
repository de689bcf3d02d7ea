"""DuckDB as Anabranch uses it: set up as Spark is, reading nothing but the files it is told; and its spelling."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch import xxhash
from anabranch.algebra import sketches

if TYPE_CHECKING:
    import duckdb


#: How many bytes DuckDB may hold in memory if nothing else is said.
MEMORY = 4 << 30
#: Groups that DuckDB finds by their place, and not by a hash: 2 to the power of this; and at the most.
FEW_PLACES, MOST_PLACES = 12, 20


#: Functions of Spark's that a text for DuckDB may use; remainders are of divisions by a number above 0.
SPARK_FUNCTIONS = {
    "unix_micros(a)": "epoch_us(a)",
    "timestamp_micros(a)": "make_timestamptz(a)",
    "pmod(a, b)": "a - CASE WHEN a >= 0 THEN a ELSE a - (b - 1) END // b * b",
    "__floor_divide(a, b)": "CASE WHEN a >= 0 THEN a ELSE a - (b - 1) END // b",
    "__not_zero(a)": "CASE WHEN a = 0 THEN error('a division by zero') ELSE a END",
}
#: What DuckDB says where a node is better left to Spark from then on.
LEFT_TO_SPARK = "this is left to Spark"
#: Texts of plain ASCII: of others, Spark knows more about upper case and the order of letters.
ASCII = {"__ascii(a)": f"CASE WHEN strlen(a) <> length(a) THEN error({LEFT_TO_SPARK!r}) ELSE a END"}

#: DuckDB's types of whole numbers that Spark has too, and the one that sums of them have.
WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
#: A sum of whole numbers, where it is a BIGINT as in Spark.
TOTAL = {
    "__total(a)": "CASE WHEN typeof(a) = 'HUGEINT' AND a IS NOT NULL AND TRY_CAST(a AS BIGINT) IS NULL"
    " THEN error('a sum of more than BIGINT holds') ELSE a END"
}
#: The values of a list, as Spark's collect_set has them.
SET = {"__set(a)": "coalesce(list_filter(a, lambda each: each IS NOT NULL), [])"}


#: Settings that are not DuckDB's own where nobody needs another.
_USUAL = {"preserve_insertion_order": "false"}


class Database:
    """A DuckDB in memory, with one limit for all of its connections; what does not fit goes to temporary files."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._lock = threading.RLock()
        self._memory = memory
        self._threads: int | None = None  # as many as there are cores
        self._scratch: Path | None = None
        self._root: duckdb.DuckDBPyConnection | None = None
        #: Settings of the whole database that somebody needs right now, and the values they need.
        self._needed: dict[str, list[Any]] = {}

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own. What others make is not seen by it, as long as they make it TEMP."""
        with self._lock:
            if self._root is None:
                self._root = self._opened()
            return self._root.cursor()

    def _opened(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        # DuckDB would put it into the folder that the user happens to be in. It makes the folder when it needs it.
        spill = (self._scratch or Path(tempfile.gettempdir())) / f"anabranch-spill-{os.getpid()}"
        duck = duckdb.connect(":memory:")
        for setting in (
            "TimeZone = 'UTC'",
            *(f"{name} = {value}" for name, value in _USUAL.items()),
            f"memory_limit = '{self._memory}B'",
            *([f"threads = {self._threads}"] if self._threads is not None else []),
            "autoinstall_known_extensions = false",
            "enable_external_file_cache = false",  # it remembers each file of thousands that is read once
            "default_null_order = 'nulls_first_on_asc_last_on_desc'",  # as in Spark
            f"temp_directory = {quoted_text(str(spill))}",
        ):
            duck.execute(f"SET GLOBAL {setting}")
        for name, text in (SPARK_FUNCTIONS | ASCII | TOTAL | SET | sketches.macros()).items():
            duck.execute(f"CREATE MACRO {name} AS {text}")
        xxhash.register(duck)
        return duck

    def use_memory(self, size: int) -> None:
        """Hold no more than so many bytes in memory from now on."""
        with self._lock:
            self._memory = size
            if self._root is not None:
                self._root.execute(f"SET GLOBAL memory_limit = '{size}B'")

    def confine(self, memory: int, threads: int, scratch: Path) -> None:
        """Work within these bounds, and with temporary files in a folder; from the next time on that it is opened."""
        with self._lock:
            if (memory, threads, scratch) != (self._memory, self._threads, self._scratch):
                self.close()
            self._memory, self._threads, self._scratch = memory, threads, scratch

    def close(self) -> None:
        """Let go of everything, and of the temporary files; a later connection starts anew."""
        with self._lock:
            if self._root is not None:
                self._root.close()
                self._root = None

    @contextmanager
    def needing(self, setting: str, value: Any) -> Iterator[None]:
        """Have a setting of the whole database while others may need it too: the greatest value that anybody needs."""
        needed = self._needed.setdefault(setting, [])
        with self._lock:
            needed.append(value)
            self._set(setting)
        try:
            yield
        finally:
            with self._lock:
                needed.remove(value)
                self._set(setting)

    def _set(self, setting: str) -> None:
        needed = self._needed[setting]
        if self._root is not None:
            usual = f"SET GLOBAL {setting} = {_USUAL[setting]}" if setting in _USUAL else f"RESET GLOBAL {setting}"
            self._root.execute(f"SET GLOBAL {setting} = {max(needed)!r}" if needed else usual)


#: The one of this process.
DATABASE = Database()
atexit.register(DATABASE.close)


def connect() -> duckdb.DuckDBPyConnection:
    """A connection to the DuckDB of this process: one memory for all, and tables that are TEMP are its own."""
    return DATABASE.connect()


_OUTER = re.compile(r"\b(LEFT|RIGHT|FULL)\b", re.IGNORECASE)


@contextmanager
def counting_all(text: str) -> Iterator[None]:
    """For a statement with an outer join in it.

    DuckDB 2.0 takes such a join for empty if its right side is known to be, and what is added up over it for 0. So it
    is not to go by what it knows of tables.
    """
    if _OUTER.search(text) is None:
        yield
        return
    with DATABASE.needing("disabled_optimizers", "statistics_propagation"):
        yield


@contextmanager
def places_for(rows: int) -> Iterator[None]:
    """For a statement that groups so many rows, by numbers of which it knows how far they are apart.

    A place for each number that a group can have is quicker than a hash table, as long as there are fewer places than
    rows: all of them are made, taken or not.
    """
    places = min(rows.bit_length() - 1, MOST_PLACES)
    if places <= FEW_PLACES:
        yield
        return
    with DATABASE.needing("perfect_ht_threshold", places):
        yield


@dataclass(frozen=True)
class Variable:
    """A list of paths that differs from bucket to bucket, by the name that `take_bucket` gives it."""

    name: str


def key_hash(values: Iterable[str]) -> str:
    """What says in which bucket a row is, by the values of its key: rows that meet have the same."""
    return f"hash({', '.join(values)})"


def in_bucket(hash: str) -> str:
    """The condition that a row is in the bucket that is taken.

    >>> in_bucket(key_hash(["k"]))
    "hash(k) % getvariable('buckets') = getvariable('bucket')"
    """
    return f"{hash} % getvariable('buckets') = getvariable('bucket')"


def take_bucket(
    duck: duckdb.DuckDBPyConnection, bucket: int, buckets: int, paths: Mapping[str, list[str]] | None = None
) -> None:
    """Have `in_bucket` hold for one bucket of so many, in what is asked of a connection from now on, and lists of paths
    be those of this bucket."""
    duck.execute(f"SET VARIABLE buckets = {buckets}::UBIGINT")
    duck.execute(f"SET VARIABLE bucket = {bucket}::UBIGINT")
    for name, each in (paths or {}).items():
        duck.execute(f"SET VARIABLE {name} = {path_list(each)}")


def timestamp(micros: str) -> str:
    """Microseconds as a time of DuckDB's: the one way to it that asks no calendar, and is many times as fast."""
    return f"make_timestamptz({micros})"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def grouped(name: str, type: str) -> str:
    """A column as Spark groups by it: of the two zeros of floating-point numbers, the one without a sign."""
    column = quoted(name)
    return f"CASE WHEN {column} = 0 THEN 0 ELSE {column} END" if type in ("float", "double") else column


def quoted_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def path_list(paths: list[str] | Variable) -> str:
    if isinstance(paths, Variable):
        return f"getvariable({quoted_text(paths.name)})"
    return "[" + ", ".join(quoted_text(path) for path in paths) + "]"
