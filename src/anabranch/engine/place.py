"""Where work runs: on the driver, or in Spark's jobs.

Spark can do all of it, at any size and on any master. The driver's engine saves Spark jobs over little data: it gets
small work, may decline what it does not compute like Spark, and never changes an answer. For more rows, Spark's tasks
run the same engine on what it does not decline: see kernels.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from anabranch.duck import MEMORY
from anabranch.errors import UsageError, did_you_mean

#: What computes: "auto" decides by size; "driver" at any size, except for what it declines; "spark" everything.
Backend = Literal["auto", "spark", "driver"]
#: Where the rows of a run were computed, as in `sys.runs`.
DRIVER, KERNEL, SPARK = "driver", "kernel", "spark"
IN_WORDS = {DRIVER: "on the driver", KERNEL: "in kernels", SPARK: "by Spark"}
#: The prefix of a session's settings.
PREFIX = "anabranch."

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_AMOUNT = re.compile(r"(\d[\d_,]*)\s*([A-Za-z]*)")


#: With less memory DuckDB fails instead of using temporary files.
LEAST_MEMORY = 64 << 20


def _limit(value: int, about: str, least: int = 0) -> Any:
    return field(default=value, metadata={"about": about, "least": least})


@dataclass(frozen=True)
class Limits:
    """The limits on what the driver computes, keeps and merges; the same for every master, each a session setting.

    A run's bytes are those of its files, or of its rows in memory; those of tables are of their compressed files.
    """

    run_bytes: int = _limit(64 << 20, "a run that the driver takes in as a whole")
    small_run_bytes: int = _limit(4 << 20, "a run of which the driver does what it can, and Spark the rest")
    small_rows: int = _limit(100_000, "rows that Spark hands to the driver, which writes them as one file")
    changes_rows: int = _limit(5_000_000, "new rows of a view whose changes the driver computes")
    state_rows: int = _limit(20_000_000, "rows beside which it computes them")
    closing_rows: int = _limit(20_000_000, "partials that the driver merges where windows close, each once a window")
    answer_rows: int = _limit(20_000_000, "rows that the driver puts an answer together from")
    query_bytes: int = _limit(1 << 30, "files of a query that the driver answers without Spark")
    window_rows: int = _limit(10_000_000, "partials of overlapping windows, each as often as it is in one")
    session_keys: int = _limit(200_000, "sessions that a run touches, for the driver to follow them")
    ordered_rows: int = _limit(1_000_000, "rows of a run whose progress goes by their order of arrival")
    lookup_keys: int = _limit(200_000, "keys of tables outside whose rows are remembered")
    pending_keys: int = _limit(
        1_000_000, "keys of a view that the driver decides about one by one, where triggers fire"
    )
    memory_bytes: int = _limit(MEMORY, "memory of the driver's engine, in the whole process", LEAST_MEMORY)
    held_bytes: int = _limit(2 << 30, "of it, estimated: state of views that stays between runs")
    held_rows: int = _limit(200_000, "changes of one run that stay in memory for the next")
    task_bytes: int = _limit(256 << 20, "rows of a run, uncompressed, that one task of Spark's takes with DuckDB")
    task_memory_bytes: int = _limit(512 << 20, "memory of DuckDB in such a task", LEAST_MEMORY)
    bucket_rows: int = _limit(100_000, "new rows of a node, or ten times as many kept ones, for a bucket of their own")
    file_bytes: int = _limit(256 << 20, "files that the driver merges into one, and a file that is merged at all")

    def with_settings(self, given: Mapping[str, int | str]) -> Limits:
        """The same with other values, by name: numbers, or texts such as '16 MB' for sizes.

        >>> Limits().with_settings({"run_bytes": "16 MB"}).run_bytes
        16777216
        """
        known = {each.name: each.metadata["least"] for each in fields(self)}
        for name in given:
            if name not in known:
                raise UsageError(f"there is no limit {name}", hint=did_you_mean(name, list(known)))
        amounts = {name: _amount(name, value) for name, value in given.items()}
        for name, amount in amounts.items():
            if amount < known[name]:
                raise UsageError(
                    f"the limit {name} is {known[name] >> 20} MB or more, not {amount:,} bytes: DuckDB fails with less",
                    hint=f"to compute without DuckDB on the driver: SET {PREFIX}backend = 'spark'",
                )
        return replace(self, **amounts)


def _amount(name: str, value: int | str) -> int:
    match = _AMOUNT.fullmatch(str(value).strip())
    unit = match[2].upper() if match is not None else ""
    if match is None or unit not in _UNITS or (unit and not name.endswith("_bytes")):
        wanted = "a number of bytes, or a size such as '64 MB'" if name.endswith("_bytes") else "a whole number"
        raise UsageError(f"the limit {name} is {wanted}, not {str(value)!r:.40}")
    return int(match[1].replace(",", "").replace("_", "")) * _UNITS[unit]


@dataclass(frozen=True)
class Verdict:
    """Whether the driver does some work, and if not, why; truthy if it does."""

    driver: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.driver

    def __str__(self) -> str:
        if self.driver:
            return "on the driver"
        return f"by Spark: {self.reason}" if self.reason else "by Spark"


TAKEN = Verdict(True)


class Place:
    """Decides for one open home where work runs."""

    def __init__(self, backend: Backend, limits: Limits | None = None, *, kernels: bool = True) -> None:
        self.backend = backend
        self.kernels = kernels  # whether Spark's tasks may run DuckDB over work that is too large for the driver
        self.limits = limits or Limits()

    @property
    def driver(self) -> bool:
        """Whether the driver may compute anything."""
        return self.backend != "spark"

    def within(self, **sizes: int) -> Verdict:
        """Whether work of these sizes is within the limits of these names; an explicit backend decides by itself."""
        if not self.driver:
            return Verdict(False, f"{PREFIX}backend is spark")
        if self.backend == "driver":
            return TAKEN
        for name, size in sizes.items():
            limit = getattr(self.limits, name)
            if size > limit:
                unit = "bytes" if name.endswith("_bytes") else name.rpartition("_")[2]
                return Verdict(False, f"{size:,} {unit} are more than {PREFIX}{name}, {limit:,}")
        return TAKEN

    def is_small(self, size: int) -> bool:
        """Whether the rows of a run are too few to split."""
        return size <= self.limits.small_run_bytes

    def takes_little(self, size: int) -> bool:
        """Whether the driver computes what it can over the rows of a run, and Spark the rest."""
        return self.driver and self.is_small(size)

    def takes_run(self, size: int) -> Verdict:
        """Whether the driver computes a whole run, if it declines none of it."""
        return self.within(run_bytes=size)

    def takes_changes(self, rows: int, state: int) -> Verdict:
        """Whether the driver computes the changes of a node from so many new rows and rows of state."""
        return self.within(changes_rows=rows, state_rows=state)

    def together(self, plain: bool) -> bool:
        """Whether Spark computes the changes of all plain nodes, so that their jobs can run in parallel."""
        return plain and not self.driver

    def buckets(self, rows: int, state: int, slots: int) -> int:
        """The number of buckets in which tasks compute the changes of a node from so many new rows and rows of state.

        A power of two, so that the files of one bucket are also in one bucket of half as many.
        """
        wanted, count = min(slots, -(-(10 * rows + state) // self.rows_in_bucket)), 1
        while count < wanted:
            count *= 2
        return count

    @property
    def rows_in_bucket(self) -> int:
        """The most rows of a state table in one bucket."""
        return max(1, 10 * self.limits.bucket_rows)

    def takes_closing(self, rows: int) -> Verdict:
        """Whether the driver merges so many partials where windows close or change."""
        return self.within(closing_rows=rows)

    def takes_triggers(self, rows: int, pending: int, firing: int = 0) -> Verdict:
        """Whether the driver decides which keys fire, from so many new rows, pending keys, and firing keys."""
        return self.within(pending_keys=max(rows, firing), state_rows=pending)

    def takes_sessions(self, keys: int, state: int) -> Verdict:
        """Whether the driver follows sessions of so many keys, over so many rows."""
        return self.within(session_keys=keys, state_rows=state)

    def takes_answer(self, rows: int) -> Verdict:
        """Whether the driver answers a query over so many rows."""
        return self.within(answer_rows=rows)

    def takes_merge(self, size: int) -> Verdict:
        """Whether the driver merges files of so many bytes."""
        return self.within(file_bytes=size)

    def takes_files(self, size: int) -> Verdict:
        """Whether the driver answers a query over files of so many bytes alone, without starting Spark."""
        return self.within(query_bytes=size)
