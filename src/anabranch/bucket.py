"""What one of Spark's tasks does for the changes of a node: DuckDB over one bucket of the rows that it reads.

A bucket holds the rows whose key has a hash with one remainder, so that rows which meet are in the same one. All tasks
of a job are given the same texts; which bucket is theirs, and of how many, is said by variables. As in kernel.py, a
task can run twice, and the files whose names reach the driver count.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anabranch.duck import DATABASE, counting_all, quoted_text, take_bucket
from anabranch.kernel import Declined, first_line, scratch

#: How changes are written, here and on the driver.
COPY_OPTIONS = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 100000"


@dataclass(frozen=True)
class Task:
    """A query over one bucket of so many; `statements` come before it, and `paths` are lists of files that it names."""

    query: str
    statements: tuple[str, ...] = ()
    bucket: int = 0
    buckets: int = 1
    paths: Mapping[str, list[str]] = field(default_factory=dict)
    counted: str = ""  # a query whose few rows go to the driver


@dataclass(frozen=True)
class Done:
    """The name of the file that a task wrote, None for no rows; and the rows of its `counted` query."""

    file: str | None
    rows: tuple[tuple[Any, ...], ...] = ()


def compute(folder: str, memory: int, task: Task) -> Done | Declined:
    """Write what the query of a task gives as a file of a folder."""
    import duckdb

    DATABASE.confine(memory, 1, scratch())
    name = f"{uuid.uuid4().hex}.parquet"
    path = os.path.join(folder, name)
    try:
        duck = DATABASE.connect()
        try:
            take_bucket(duck, task.bucket, task.buckets, task.paths)
            with counting_all(task.query):
                for statement in task.statements:
                    duck.execute(statement)
                rows = tuple(duck.execute(task.counted).fetchall()) if task.counted else ()
                done = duck.execute(f"COPY ({task.query}) TO {quoted_text(path)} ({COPY_OPTIONS})").fetchone()
        finally:
            duck.close()
    except (duckdb.Error, OSError) as error:
        DATABASE.close()  # some errors leave it unusable
        return Declined(first_line(error))
    if done is not None and done[0]:
        return Done(name, rows)
    with suppress(OSError):
        os.unlink(path)
    return Done(None, rows)
