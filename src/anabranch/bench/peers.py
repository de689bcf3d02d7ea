"""What Anabranch is measured against: the same questions hand-written for Structured Streaming, Spark batch and DuckDB.

Each writes its windows as Parquet. Knows nothing of Anabranch.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.bench.data import MINUTE, SECOND, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The default file manager forks a process for every file of the log on a local disk.
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
STREAMING_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@dataclass(frozen=True)
class Windows:
    """A question: windows of a size and a slide per auction, and what is asked of each."""

    size: int
    slide: int
    spark: tuple[str, ...]
    duckdb: str

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide


PER_MINUTE = Windows(
    MINUTE,
    MINUTE,
    ("count(*) AS bids", "sum(price) AS total", "avg(price) AS average"),
    "count(*) AS bids, sum(price)::BIGINT AS total, avg(price) AS average",
)
HOPPING = Windows(MINUTE, 10 * SECOND, ("count(*) AS bids",), "count(*) AS bids")


# ------------------------------------------------------------------------------------- Structured Streaming


@dataclass(frozen=True)
class Streamed:
    """What a streaming query took: from the first run to the last, and each run that had rows."""

    seconds: float
    runs: tuple[float, ...]


def streaming_session(spark: SparkSession) -> SparkSession:
    """A session with the settings that a hand-written query would choose here."""
    own = spark.newSession()
    for key, value in STREAMING_SETTINGS.items():
        own.conf.set(key, value)
    return own


def bids_stream(spark: SparkSession, folder: Path, files_a_run: int | None) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema)
    if files_a_run is not None:
        reader = reader.option("maxFilesPerTrigger", str(files_a_run))
    # The native watermark refuses timestamps without a zone.
    return reader.parquet(str(folder)).selectExpr("auction", "bidder", "price", "CAST(ts AS TIMESTAMP) AS ts")


def native(spark: SparkSession, folder: Path, work: Path, windows: Windows, files_a_run: int | None) -> Streamed:
    """Windows by stateful aggregation with a watermark, appended to Parquet files as they close."""
    from pyspark.sql import functions as F

    bids = bids_stream(spark, folder, files_a_run).withWatermark("ts", "5 seconds")
    slide = None if windows.tumbling else f"{windows.slide // SECOND} seconds"
    size = f"{windows.size // SECOND} seconds"
    window = F.window("ts", size) if slide is None else F.window("ts", size, slide)
    grouped = bids.groupBy("auction", window.alias("w")).agg(*(F.expr(each) for each in windows.spark))
    names = [each.split(" AS ")[1] for each in windows.spark]
    closed = grouped.selectExpr("auction", "w.start AS window_start", "w.end AS window_end", *names)
    return appended(closed, work, "windows")


def appended(frame: DataFrame, work: Path, folder: str, limit: float | None = None) -> Streamed:
    """What a query appends, written as Parquet; no longer than `limit` seconds, and then without the run it is in."""
    shutil.rmtree(work, ignore_errors=True)
    query = (
        frame.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(work / folder))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return _finish(query, limit)


def bare_batches(spark: SparkSession, folder: Path, work: Path, files_a_run: int) -> Streamed:
    """No state at all: every micro-batch aggregated by itself and written as Parquet."""
    shutil.rmtree(work, ignore_errors=True)

    def write(batch: DataFrame, number: int) -> None:
        # Frames of a micro-batch live in a session of their own, where re-planning is on by default.
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        minute = f"timestamp_micros(floor(unix_micros(ts) / {MINUTE}) * {MINUTE})"
        grouped = batch.selectExpr("auction", "price", f"{minute} AS window_start").groupBy("auction", "window_start")
        from pyspark.sql import functions as F

        partials = grouped.agg(F.expr("count(*) AS bids"), F.expr("sum(price) AS total"), F.expr("count(price) AS n"))
        partials.write.mode("append").parquet(str(work / "partials"))

    query = (
        bids_stream(spark, folder, files_a_run)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return _finish(query)


def files_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """The rows of a folder, one file a run."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(folder))


def grouped(frame: DataFrame, keys: list[str], aggregates: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.groupBy(*(F.expr(each) for each in keys)).agg(*(F.expr(each) for each in aggregates))


def joined(one: DataFrame, other: DataFrame, condition: str) -> DataFrame:
    from pyspark.sql import functions as F

    return one.join(other, F.expr(condition))


def each_run(frame: DataFrame, work: Path, mode: str) -> Streamed:
    """What every micro-batch of a query gives out, written as Parquet into a folder of its own."""
    shutil.rmtree(work, ignore_errors=True)

    def write(batch: DataFrame, number: int) -> None:
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        batch.write.parquet(str(work / "changes" / f"run={number}"))

    query = (
        frame.writeStream.foreachBatch(write)
        .outputMode(mode)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return _finish(query)


def latest(work: Path, keys: list[str], values: list[str]) -> Any:
    """The last row of every key that `each_run` wrote: what the query says in the end."""
    import duckdb

    written = f"read_parquet({quoted(work / 'changes' / '*' / '*.parquet')}, hive_partitioning = true)"
    items = ", ".join([*keys, *(f"arg_max({name}, run) AS {name}" for name in values)])
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        text = f"SELECT {items} FROM {written} GROUP BY {', '.join(keys)}"
        return connection.sql(text).to_arrow_table()


def _finish(query: Any, limit: float | None = None) -> Streamed:
    if limit is None:
        query.awaitTermination()
    elif not query.awaitTermination(limit):
        query.stop()
    progress = [each for each in query.recentProgress if each["durationMs"].get("addBatch") is not None]
    if not progress:
        raise TimeoutError(f"Structured Streaming finished no run in {limit:g} seconds")
    runs = [each["durationMs"]["triggerExecution"] / 1000 for each in progress]
    begin = datetime.fromisoformat(progress[0]["timestamp"].replace("Z", "+00:00"))
    last = datetime.fromisoformat(progress[-1]["timestamp"].replace("Z", "+00:00"))
    fed = tuple(taken for taken, each in zip(runs, progress, strict=True) if each["numInputRows"])
    return Streamed((last - begin).total_seconds() + runs[-1], fed)


# --------------------------------------------------------------------------------------------- Spark batch


def batch(spark: SparkSession, folder: Path, work: Path, windows: Windows) -> float:
    """The same windows by one query over all files; seconds."""
    from pyspark.sql import functions as F

    begin = time.perf_counter()
    micros = f"floor(unix_micros(CAST(ts AS TIMESTAMP)) / {windows.slide}) * {windows.slide}"
    start = "w" if windows.tumbling else f"explode(sequence(w - {windows.size - windows.slide}, w, {windows.slide}))"
    bids = spark.read.parquet(str(folder)).selectExpr("auction", "price", f"{micros} AS w")
    if not windows.tumbling:
        # Panes first, then windows: the plan a careful author writes for hopping windows in a batch.
        bids = bids.groupBy("auction", "w").agg(F.expr("count(*) AS n")).selectExpr("auction", "n", f"{start} AS w")
        grouped = bids.groupBy("auction", "w").agg(F.expr("sum(n) AS bids"))
    else:
        grouped = bids.groupBy("auction", "w").agg(*(F.expr(each) for each in windows.spark))
    names = [each.split(" AS ")[1] for each in windows.spark]
    bounds = ("timestamp_micros(w) AS window_start", f"timestamp_micros(w + {windows.size}) AS window_end")
    grouped.selectExpr("auction", *bounds, *names).write.mode("overwrite").parquet(str(work / "batch"))
    return time.perf_counter() - begin


def window_by_batch(
    spark: SparkSession, folder: Path, start: datetime, *, by_hand: bool
) -> tuple[float, list[dict[str, Any]]]:
    """One window of one minute, asked of the raw rows; seconds and the rows.

    The same question is the query of all windows with a condition on the window. `by_hand`, it is put into a range of
    event times, which lets Spark skip most of the rows without reading them.
    """
    from pyspark.sql import functions as F

    begin = time.perf_counter()
    bids = spark.read.parquet(str(folder))
    low = f"TIMESTAMP '{start:%Y-%m-%d %H:%M:%S}'"
    aggregates = F.expr("count(*) AS bids"), F.expr("sum(price) AS total")
    if by_hand:
        found = bids.where(f"ts >= {low} AND ts < {low} + INTERVAL 1 MINUTE").groupBy("auction").agg(*aggregates)
    else:
        windows = bids.groupBy("auction", F.window("ts", "1 minute").alias("w")).agg(*aggregates)
        found = windows.where(f"w.start = {low}").drop("w")
    rows = found.toArrow().to_pylist()
    return time.perf_counter() - begin, rows


# -------------------------------------------------------------------------------------------------- DuckDB


def duck(folder: Path, work: Path, windows: Windows) -> float:
    """The same windows by DuckDB: what the machine could do at the most; seconds."""
    import duckdb

    work.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET preserve_insertion_order = false")
        target = quoted(work / "duckdb.parquet")
        connection.execute(f"COPY ({windows_sql(folder, windows)}) TO {target} (FORMAT parquet)")
    return time.perf_counter() - begin


def windows_sql(folder: Path, windows: Windows) -> str:
    """DuckDB's text for the windows over all rows: the truth."""
    rows = f"read_parquet({quoted(str(folder) + '/*.parquet')})"
    pane = f"epoch_us(ts) // {windows.slide} * {windows.slide}"
    if windows.tumbling:
        source, start, items = f"(SELECT auction, price, {pane} AS w FROM {rows})", "w", windows.duckdb
    else:
        counted = f"SELECT auction, {pane} AS p, count(*) AS n FROM {rows} GROUP BY ALL"
        lags = f"range(0, {windows.size}, {windows.slide})"
        source, start = f"(SELECT auction, n, p - unnest({lags}) AS w FROM ({counted}))", "w"
        items = "sum(n)::BIGINT AS bids"
    bounds = f"make_timestamp({start}) AS window_start, make_timestamp({start} + {windows.size}) AS window_end"
    return f"SELECT auction, {bounds}, {items} FROM {source} GROUP BY auction, w"


# --------------------------------------------------------------------------------------- what came out


@dataclass(frozen=True)
class Totals:
    """Windows, rows counted in them, and (where asked) the sum of prices."""

    windows: int
    rows: int
    total: int | None


def truth(folder: Path, windows: Windows) -> Totals:
    total = "sum(total)" if windows.tumbling else "NULL"
    return _totals(f"SELECT count(*), sum(bids), {total} FROM ({windows_sql(folder, windows)})")


@dataclass(frozen=True)
class Losses:
    """What a streaming query did not show of the rows: dropped as late, and never emitted for want of progress."""

    dropped: int
    never_emitted: int


def losses(folder: Path, work: Path, windows: Windows) -> Losses:
    """Compare the windows that a streaming query wrote with all windows."""
    written = f"read_parquet({quoted(str(work / 'windows') + '/*.parquet')})"
    last = f"(SELECT max(window_end) FROM {written})"
    every = windows_sql(folder, windows)
    open_ones = f"SELECT count(*), sum(bids), NULL FROM ({every}) WHERE window_end::TIMESTAMPTZ > {last}"
    never = _totals(open_ones).rows
    shown = _totals(f"SELECT count(*), sum(bids), NULL FROM {written}").rows
    return Losses(truth(folder, windows).rows - never - shown, never)


def _totals(text: str) -> Totals:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        row = connection.execute(text).fetchone()
    assert row is not None
    return Totals(int(row[0]), int(row[1] or 0), None if row[2] is None else int(row[2]))
