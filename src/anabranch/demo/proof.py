"""The proof at the end of the demo: the views against Spark's own batch queries over all rows.

The batch queries do not pass through Anabranch at all: they are Spark SQL over the files, with Spark's own windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.demo.bids import MINUTE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Question:
    """A view, the same question to Spark, the columns to add up, and how far apart its windows start."""

    view: str
    batch: str
    sums: tuple[str, ...]
    slide: int


QUESTIONS = (
    Question(
        "auction_minutes",
        """SELECT window.start AS window_start, window.end AS window_end, auction, bids, turnover FROM (
             SELECT window(ts, '1 minute') AS window, auction, count(*) AS bids, sum(price) AS turnover
             FROM all_bids GROUP BY window(ts, '1 minute'), auction)""",
        ("bids", "turnover"),
        1 * MINUTE,
    ),
    Question(
        "hot_items",
        """SELECT window.start AS window_start, window.end AS window_end, auction, bids, place FROM (
             SELECT *, CAST(rank() OVER (PARTITION BY window ORDER BY bids DESC) AS INT) AS place FROM (
               SELECT window(ts, '5 minutes', '1 minute') AS window, auction, count(*) AS bids
               FROM all_bids GROUP BY window(ts, '5 minutes', '1 minute'), auction))
           WHERE place <= 10""",
        ("bids",),
        1 * MINUTE,
    ),
    Question(
        "highest_price",
        """SELECT window.start AS window_start, window.end AS window_end, price FROM (
             SELECT window(ts, '10 minutes') AS window, max(price) AS price
             FROM all_bids GROUP BY window(ts, '10 minutes'))""",
        ("price",),
        10 * MINUTE,
    ),
)


@dataclass(frozen=True)
class Total:
    """One figure from both sides."""

    name: str
    from_view: Any
    from_batch: Any

    @property
    def equal(self) -> bool:
        return bool(self.from_view == self.from_batch)


@dataclass(frozen=True)
class Verdict:
    """What was found for one view."""

    view: str
    totals: tuple[Total, ...]
    same_rows: bool
    late: int

    @property
    def holds(self) -> bool:
        return self.same_rows and all(total.equal for total in self.totals)


def name_bids(spark: SparkSession, folder: Path) -> None:
    """Let Spark know all files as `all_bids`."""
    spark.read.parquet(str(folder)).createOrReplaceTempView("all_bids")


def judge(question: Question, view: pa.Table, batch: pa.Table, late: int) -> Verdict:
    """Compare the totals, and the rows one by one."""
    import pyarrow.compute as pc

    totals = [Total("rows", view.num_rows, batch.num_rows)]
    totals += [Total(name, pc.sum(view[name]).as_py(), pc.sum(batch[name]).as_py()) for name in question.sums]
    return Verdict(question.view, tuple(totals), same_rows(view, batch), late)


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables hold the same rows, in whatever order."""
    if set(one.column_names) != set(other.column_names):
        return False
    names = sorted(one.column_names)
    order = [(name, "ascending") for name in names]
    one, other = one.select(names).sort_by(order), other.select(names).sort_by(order)
    return all(a.equals(b) for a, b in zip(one.columns, other.columns, strict=True))


@dataclass(frozen=True)
class Arrived:
    """The event times of one run, and the progress there was before it."""

    progress: int | None
    times: Sequence[int]


def arrivals(files: Iterable[Path], runs: Iterable[tuple[int, int | None]]) -> list[Arrived]:
    """What each run took: `runs` has the rows of each and the progress after it, `files` are in order of arrival."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    waiting = iter(files)
    found: list[Arrived] = []
    before: int | None = None
    for rows, after in runs:
        times: list[int] = []
        while len(times) < rows:
            column = parquet.read_table(next(waiting), columns=["ts"])["ts"]
            times += column.cast(pa.int64()).to_pylist()
        found.append(Arrived(before, times))
        before = after
    return found


def count_dropped(arrived: Iterable[Arrived], slide: int) -> int:
    """Rows of which a window had closed before their run: a watermark would have kept them out of it.

    Of the windows a row is in, the one that ends first ends where the next slide begins.

    >>> count_dropped([Arrived(None, [5]), Arrived(20, [9, 10, 19, 20])], slide=10)
    3
    """
    return sum(
        (time // slide + 1) * slide <= run.progress
        for run in arrived
        if run.progress is not None
        for time in run.times
        if time < run.progress
    )
