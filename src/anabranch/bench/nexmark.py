"""Measure (nexmark): five queries of NEXMark as live views, run after run, beside what else can answer them.

Where Structured Streaming runs a query in some form, that is the peer, with the same runs: q5 and q7 as written and
rewritten by hand without their join, each appending a window when it closes; q18 as an aggregate in update mode. It
starts neither q4 nor q9: there the peer is the batch query, asked again after every run over all rows so far. For
these two a run is one of auctions and one of bids, with one batch query after both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.bench import peers
from anabranch.bench.events import STREAMS, Events, generate
from anabranch.bench.figures import Figure, Outcome, Setting, Target, at_least
from anabranch.bench.subject import Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS, BRIEF_RUNS, WARMING_RUNS = 100, 10, 3
#: The batch query is timed at the first run and at every so many.
TIMED_EVERY = 10
#: Below this many events a bench is only tried out.
BRIEF_EVENTS = 100_000
WATERMARK = "4 SECONDS"

HOP = "HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
TUMBLE = "TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)"
#: As in tests/nexmark/queries.sql.
QUERIES = {
    "q4": """
SELECT Q.category, avg(Q.final) AS avg FROM (SELECT max(B.price) AS final, A.category
FROM auction AS A, bid AS B WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
GROUP BY A.id, A.category) AS Q GROUP BY Q.category""",
    "q5": f"""
SELECT AuctionBids.auction, AuctionBids.num
FROM (SELECT bid.auction, count(*) AS num, window_start AS starttime
FROM {HOP}
GROUP BY window_start, bid.auction) AS AuctionBids
JOIN (SELECT max(CountBids.num) AS maxn, CountBids.starttime_c
FROM (SELECT count(*) AS num, window_start AS starttime_c
FROM {HOP}
GROUP BY bid.auction, window_start) AS CountBids GROUP BY CountBids.starttime_c) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime_c AND AuctionBids.num >= MaxBids.maxn""",
    "q7": f"""
SELECT B.auction, B.price, B.bidder, B.date_time FROM bid AS B
JOIN (SELECT max(price) AS maxprice, window_end AS date_time
FROM {TUMBLE} GROUP BY window_end) AS B1
ON B.price = B1.maxprice WHERE B.date_time BETWEEN B1.date_time - INTERVAL '10' SECOND AND B1.date_time""",
    "q9": """
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, auction, bidder,
  price, bid_date_time
FROM (SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_date_time, ROW_NUMBER() OVER (PARTITION BY A.id
ORDER BY B.price DESC NULLS FIRST, B.date_time ASC NULLS LAST) AS rownum FROM auction AS A, bid AS B
WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires) AS tmp WHERE rownum <= 1""",
    "q18": """
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction
ORDER BY date_time DESC NULLS FIRST, extra NULLS LAST) AS rank_number FROM bid) WHERE rank_number <= 1""",
}
Bids = Callable[[], "DataFrame"]


# ------------------------------------------------------------------------------------------ the native forms


def _counts(bids: Bids) -> DataFrame:
    hop = "window(date_time, '10 seconds', '2 seconds') AS w"
    return peers.grouped(bids(), ["auction", hop], ("count(*) AS num",))


def q5_as_written(bids: Bids) -> DataFrame:
    highest = peers.grouped(_counts(bids), ["w"], ("max(num) AS maxn",)).withColumnRenamed("w", "of")
    return peers.joined(_counts(bids), highest, "w = of AND num >= maxn").select("auction", "num")


def q5_by_hand(bids: Bids) -> DataFrame:
    gathered = peers.grouped(_counts(bids), ["w"], ("max(num) AS maxn", "collect_list(struct(auction, num)) AS counts"))
    return gathered.selectExpr("inline(filter(counts, each -> each.num >= maxn))")


def q7_as_written(bids: Bids) -> DataFrame:
    windows = peers.grouped(bids(), ["window(date_time, '10 seconds') AS w"], ("max(price) AS maxprice",))
    within = "date_time BETWEEN w.end - INTERVAL 10 SECONDS AND w.end"
    return peers.joined(bids(), windows, f"price = maxprice AND {within}").select(
        "auction", "price", "bidder", "date_time"
    )


def q7_by_hand(bids: Bids) -> DataFrame:
    rows = "collect_list(struct(auction, price, bidder, date_time)) AS rows"
    prices = peers.grouped(bids(), ["window(date_time, '10 seconds') AS w", "price"], (rows,))
    return peers.grouped(prices, ["w"], ("max_by(rows, price) AS rows",)).selectExpr("inline(rows)")


def q18_by_hand(bids: Bids) -> DataFrame:
    newest = "min_by(struct(price, channel, url, date_time, extra), struct(-unix_micros(date_time), extra)) AS newest"
    return peers.grouped(bids(), ["auction", "bidder"], (newest,)).select("auction", "bidder", "newest.*")


@dataclass(frozen=True)
class Native:
    """A form of a query that Structured Streaming runs, and what is asked of Anabranch beside it."""

    query: str
    peer: str
    form: Callable[[Bids], DataFrame]
    mode: str
    target: Target | None


NATIVE = (
    Native("q5", "native, as written", q5_as_written, "append", None),
    Native("q5", "native, without the join", q5_by_hand, "append", at_least(2)),
    Native("q7", "native, as written", q7_as_written, "append", None),
    Native("q7", "native, without the join", q7_by_hand, "append", at_least(2)),
    Native("q18", "native, as an aggregate", q18_by_hand, "update", at_least(2)),
)
NOTES = {
    "append": "Structured Streaming, each window once, when it closes, where Anabranch gives out every change",
    "update": "Structured Streaming in update mode",
}
BATCH = "batch over all rows so far"
BATCH_NOTE = f"timed at the first run and at every {TIMED_EVERY}th; the time of the others is interpolated"


# ---------------------------------------------------------------------------------------------- the measure


def five_queries(setting: Setting) -> Outcome:
    """(nexmark) q4, q5, q7, q9 and q18, each by itself."""
    brief = setting.events < BRIEF_EVENTS
    runs = BRIEF_RUNS if brief else RUNS
    place = setting.work / "nexmark"
    setting.say(f"(nexmark) generating {setting.events:,} events in {runs} runs")
    files = generate(place / "all", Events(setting.events, runs))
    few = {stream: _linked(paths[:WARMING_RUNS], place / "few" / stream) for stream, paths in files.items()}
    figures: list[Figure] = []
    phases: dict[str, dict[str, float]] = {}
    for query in QUERIES:
        setting.say(f"(nexmark) {query}")
        truth = batch(setting.streaming, query, files).toArrow()
        _ours(setting, query, few)
        ours, shown, phases[f"(nexmark) {query}"] = _ours(setting, query, files)
        _check(f"{query} of Anabranch", shown, truth, whole=True)

        what = f"{query}, {setting.events:,} events"
        forms = [each for each in NATIVE if each.query == query]
        for form in forms:
            setting.say(f"(nexmark) {query}, {form.peer}")
            _streamed(setting, form, place / "few" / "bid")
            theirs = _streamed(setting, form, place / "all" / "bid")
            _check(f"{query}, {form.peer}", _written(setting, form), truth, whole=form.mode == "update")
            note = NOTES[form.mode]
            figures.append(Figure("nexmark", what, form.peer, runs / ours, runs / theirs, "runs/s", form.target, note))
        if not forms:
            setting.say(f"(nexmark) {query}, {BATCH}")
            theirs = _again_and_again(setting, query, files, runs)
            figures.append(
                Figure("nexmark", what, BATCH, runs / ours, runs / theirs, "runs/s", at_least(5), BATCH_NOTE)
            )
    return Outcome(tuple(figures), phases=phases)


def _ours(setting: Setting, query: str, files: dict[str, list[Path]]) -> tuple[float, Any, dict[str, float]]:
    """The seconds of all runs, what the view shows in the end, and the milliseconds of the phases of all runs."""
    folder = setting.work / "nexmark" / "fed"
    read = streams_of(query)
    for stream in read:
        (folder / stream).mkdir(parents=True, exist_ok=True)
    streams = {
        stream: f"CREATE STREAM {stream} ({STREAMS[stream]},"
        f" WATERMARK FOR date_time AS date_time - INTERVAL {WATERMARK})"
        f" FROM parquet(path => '{folder / stream}/*.parquet')"
        for stream in read
    }
    view = f"{QUERIES[query]} EMIT CHANGES"
    with Subject(setting.work / "home", setting.spark, folder, {"v": view}, streams) as home:
        seconds = sum(home.feed(folder, {stream: files[stream] for stream in read}))
        return seconds, home.session.sql("SELECT * FROM v").toArrow(), home.phases()


def _streamed(setting: Setting, form: Native, folder: Path) -> float:
    def bids() -> DataFrame:
        return peers.files_stream(setting.streaming, folder).withWatermark("date_time", WATERMARK)

    return peers.each_run(form.form(bids), setting.work / "nexmark" / "native", form.mode).seconds


def _written(setting: Setting, form: Native) -> Any:
    work = setting.work / "nexmark" / "native"
    if form.mode == "update":
        values = ["price", "channel", "url", "date_time", "extra"]
        return peers.latest(work, ["auction", "bidder"], values)
    return setting.streaming.read.parquet(str(work / "changes")).drop("run").toArrow()


def _again_and_again(setting: Setting, query: str, files: dict[str, list[Path]], runs: int) -> float:
    """Seconds of the batch query after each of the runs, over the rows so far."""
    taken: dict[int, float] = {}
    timed = [1, *range(TIMED_EVERY, runs + 1, TIMED_EVERY)]
    for run in (1, *timed):  # the first time it only gets warm
        begin = time.perf_counter()
        asked = batch(setting.streaming, query, {stream: paths[:run] for stream, paths in files.items()})
        asked.write.mode("overwrite").parquet(str(setting.work / "nexmark" / "batch"))
        taken[run] = time.perf_counter() - begin
    return interpolated(taken)


def interpolated(taken: dict[int, float]) -> float:
    """The sum over all runs of what was timed at some of them, with straight lines between.

    >>> interpolated({1: 1.0, 3: 3.0, 4: 3.0})
    9.0
    """
    runs = sorted(taken)
    total = taken[runs[0]]
    for low, high in pairwise(runs):
        slope = (taken[high] - taken[low]) / (high - low)
        total += sum(taken[low] + slope * step for step in range(1, high - low + 1))
    return total


def streams_of(query: str) -> list[str]:
    """The streams that a query reads, an auction before the bids for it."""
    return ["auction", "bid"] if "auction AS A" in QUERIES[query] else ["bid"]


def batch(spark: SparkSession, query: str, files: dict[str, list[Path]]) -> DataFrame:
    """The query in Spark's own spelling over the rows of some files."""
    for stream in streams_of(query):
        spark.read.parquet(*map(str, files[stream])).createOrReplaceTempView(stream)
    text = QUERIES[query]
    for windows, arguments in ((HOP, "'10 seconds', '2 seconds'"), (TUMBLE, "'10 seconds'")):
        named = f"SELECT *, window(date_time, {arguments}) AS w FROM bid"
        text = text.replace(windows, f"(SELECT *, w.start AS window_start, w.end AS window_end FROM ({named})) AS bid")
    return spark.sql(text)


def _linked(paths: list[Path], folder: Path) -> list[Path]:
    folder.mkdir(parents=True)
    for path in paths:
        (folder / path.name).hardlink_to(path)
    return [folder / path.name for path in paths]


def _check(what: str, found: Any, truth: Any, *, whole: bool) -> None:
    """What came out must be the truth; of a query whose last windows stay open, a part of it."""
    import duckdb

    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("found", found)
        duck.register("truth", truth)
        # Averages of the same rows may differ in their last bits.
        columns = ", ".join(
            f"round({field.name}, 4) AS {field.name}" if str(field.type) == "double" else field.name
            for field in truth.schema
        )
        sides = (("found", "truth", "wrong"), ("truth", "found", "missing"))
        for one, other, verdict in sides if whole else sides[:1]:
            text = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}"
            row = duck.execute(f"SELECT count(*) FROM ({text})").fetchone()
            assert row is not None
            if row[0]:
                raise AssertionError(f"{row[0]:,} of {truth.num_rows:,} rows are {verdict} in {what}")
