"""Measure (epochs): packets at two routers, joined chunk by chunk; from the cut to the answer of the epoch.

A chunk is a minute of packets and comes in several files from each router. A live view has joined all but the last of
them when the cut comes, which is the last file of the second router. Beside it stands a batch query over the files of
the chunk, launched at the cut in a session that is warm.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.bench.data import MINUTE, SECOND, START, in_order, quoted
from anabranch.bench.figures import Curve, Figure, Outcome, Setting, at_most, median
from anabranch.bench.subject import Subject

ROUTERS = ("rt1", "rt2")
COLUMNS = "pid BIGINT, ts TIMESTAMP, t_rt BIGINT"
CHUNKS = "STREAM({}, 'CUT ON ts BY 60 SECS', 'BLOCK')"
VIEW = (
    "SELECT s1.window_start AS minute, count(*) AS packets, avg(s2.t_rt - s1.t_rt) AS delay"
    f" FROM {CHUNKS.format('rt1')} AS s1, {CHUNKS.format('rt2')} AS s2 WHERE s1.pid = s2.pid EMIT CHANGES"
)
BATCH = "a batch query a chunk"
NOTE = "Spark over the files of the chunk, written as Parquet; the session is warm"
#: Chunks that are not timed come first.
WARMING, COUNT, FILES_A_CHUNK = 2, 5, 10
SIZES = (10_000, 30_000, 100_000)
#: One packet of so many does not come to the second router.
LOST = 50


@dataclass(frozen=True)
class Chunks:
    """So many chunks, of so many packets at the first router, each in so many files."""

    packets: int
    count: int
    files: int

    def __str__(self) -> str:
        return f"chunks of {self.packets:,} packets"


@dataclass(frozen=True)
class Cuts:
    """Seconds from each cut to the answer: if the last file of one router came before, and if both came at once."""

    one: list[float]
    both: list[float]


def epochs(setting: Setting) -> Outcome:
    """(epochs) The average time between two routers, chunk by chunk, for small and large chunks."""
    few = 100 if setting.brief else 1
    sizes = [Chunks(size // few, 1 + COUNT // few + WARMING, FILES_A_CHUNK if few == 1 else 2) for size in SIZES]
    figures: list[Figure] = []
    phases: dict[str, dict[str, float]] = {}
    lines: dict[str, list[tuple[float, float]]] = {"Anabranch": [], "both files at once": [], BATCH: []}
    for chunks in sizes:
        setting.say(f"(epochs) {chunks}")
        place = setting.work / "epochs"
        shutil.rmtree(place, ignore_errors=True)
        files = generate(place / "all", chunks)
        ours, phases[f"(epochs) {chunks}"] = _ours(setting, chunks, files)
        theirs = _batches(setting, chunks, files)
        cost = [1000 * median(each) for each in (ours.one, ours.both, theirs)]
        for line, each in zip(lines.values(), cost, strict=True):
            line.append((chunks.packets, each))
        figures.append(
            Figure("epochs", f"cut to answer, {chunks}", BATCH, cost[0], cost[2], "ms", at_most(1 / 3), NOTE)
        )
    timed = f"{sizes[0].count - WARMING} chunks"
    curve = Curve("epochs", "From the cut to the answer of an epoch", "packets a chunk", "ms", lines, medians=timed)
    return Outcome(tuple(figures), phases=phases, curves=(curve,))


def _ours(setting: Setting, chunks: Chunks, files: dict[str, list[Path]]) -> tuple[Cuts, dict[str, float]]:
    folder = setting.work / "epochs" / "fed"
    for router in ROUTERS:
        (folder / router).mkdir(parents=True)
    streams = {
        router: f"CREATE STREAM {router} ({COLUMNS}, WATERMARK FOR ts AS ts)"
        f" FROM parquet(path => '{folder / router}/*.parquet')"
        for router in ROUTERS
    }
    cuts = Cuts([], [])
    with Subject(setting.work / "home", setting.spark, folder, {"v": VIEW}, streams) as home:
        for number, paths in enumerate(zip(*files.values(), strict=True)):
            taken = []
            for router, path in zip(ROUTERS, paths, strict=True):
                (folder / router / path.name).hardlink_to(path)
                taken.append(home.step(stream=router) or 0.0)
            if (number + 1) % chunks.files == 0 and number >= WARMING * chunks.files:
                cuts.one.append(taken[-1])
                cuts.both.append(sum(taken))
                _check(f"the view of Anabranch, {chunks}", files, number + 1, home.session.sql(SHOWN).toArrow())
        return cuts, home.phases()


SHOWN = "SELECT minute, packets, delay FROM v"


def _batches(setting: Setting, chunks: Chunks, files: dict[str, list[Path]]) -> list[float]:
    """Seconds of one query for each chunk."""
    spark, written = setting.streaming, setting.work / "epochs" / "batch"
    schema = spark.read.parquet(str(files["rt1"][0])).schema
    seconds: list[float] = []
    for number in range(chunks.count):
        first, last = number * chunks.files, (number + 1) * chunks.files
        begin = time.perf_counter()
        one, other = (
            spark.read.schema(schema).parquet(*map(str, files[router][first:last])).alias(alias)
            for router, alias in zip(ROUTERS, ("s1", "s2"), strict=True)
        )
        pairs = one.join(other, on="pid").selectExpr(
            "window(s1.ts, '60 seconds').start AS minute", "s2.t_rt - s1.t_rt AS d"
        )
        pairs.createOrReplaceTempView("pairs")
        answer = spark.sql("SELECT minute, count(*) AS packets, avg(d) AS delay FROM pairs GROUP BY minute")
        answer.write.mode("append" if number else "overwrite").parquet(str(written))
        if number >= WARMING:
            seconds.append(time.perf_counter() - begin)
    _check(f"{BATCH}, {chunks}", files, len(files["rt1"]), spark.read.parquet(str(written)).toArrow())
    return seconds


def generate(folder: Path, chunks: Chunks) -> dict[str, list[Path]]:
    """The files of both routers, in the order of arrival; as many for each chunk."""
    import duckdb

    paths: dict[str, list[Path]] = {}
    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for number, router in enumerate(ROUTERS):
            (folder / router).mkdir(parents=True)
            count = chunks.count * chunks.files
            paths[router] = [folder / router / f"{router}-{file:05d}.parquet" for file in range(count)]
            for file, path in enumerate(paths[router]):
                low, high = (chunks.packets * at // chunks.files for at in (file, file + 1))
                sent = f"i * {MINUTE} // {chunks.packets}"
                rows = (
                    f"SELECT i AS pid, make_timestamp({START} + {sent})::TIMESTAMPTZ AS ts,"
                    f" ({sent} + 1000 + {number} * 9000 + hash(i, {number}) % 5000)::BIGINT AS t_rt"
                    f" FROM range({low}, {high}) AS numbers(i) WHERE {number} = 0 OR hash(i) % {LOST} > 0"
                )
                duck.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")
            in_order(paths[router])
    return paths


def _check(what: str, files: dict[str, list[Path]], taken: int, found: Any) -> None:
    """The answers of all epochs must be the truth, by DuckDB over the files that were taken."""
    import duckdb

    one, other = (f"read_parquet([{', '.join(map(quoted, files[router][:taken]))}])" for router in ROUTERS)
    minute = f"make_timestamp(epoch_us(s1.ts) // {60 * SECOND} * {60 * SECOND})::TIMESTAMPTZ"
    truth = (
        f"SELECT {minute} AS minute, count(*) AS packets, round(avg(s2.t_rt - s1.t_rt), 4) AS delay"
        f" FROM {one} AS s1 JOIN {other} AS s2 ON s1.pid = s2.pid GROUP BY ALL"
    )
    shown = "SELECT minute, packets, round(delay, 4) AS delay FROM found"
    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("found", found)
        for text, against, verdict in ((truth, shown, "missing"), (shown, truth, "wrong")):
            row = duck.execute(f"SELECT count(*) FROM (({text}) EXCEPT ALL ({against}))").fetchone()
            assert row is not None
            if row[0]:
                raise AssertionError(f"{row[0]:,} epochs are {verdict} in {what}")
