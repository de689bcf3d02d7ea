"""Measure (joins): bids with their auctions, in the same window and in a band of time, run after run.

Beside them stands the stream-stream join of Structured Streaming with the same files a run. It takes too long with all
of them, so it is given the first tenth, and its speed is that over those. Both answers are held against DuckDB's:
Anabranch's must be all pairs; what the native join lost to lateness is counted.

Then small runs without a peer: how a run and what a join keeps in memory grow with the windows, the band, and skew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.bench import peers
from anabranch.bench.auctions import BIDS_AN_AUCTION, STREAMS, Auctions, generate
from anabranch.bench.data import HOUR, MINUTE, SECOND, quoted
from anabranch.bench.figures import Curve, Figure, Outcome, Picture, Setting, Totals, at_least, median
from anabranch.bench.subject import Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How far behind the latest row the progress of both streams is, here and there.
WATERMARK = 5 * SECOND
NATIVE = "stream-stream join"
#: The native join is given a tenth of the files, but so many that it has late rows to lose, and so many seconds.
PART, FEWEST, LIMIT = 10, 4, 900.0
WARMING_RUNS = 2


@dataclass(frozen=True)
class Join:
    """A question: the pairs of bids and auctions that are near each other, and in how wide a window or band."""

    name: str
    size: int
    sql: Callable[[int], str]
    native: Callable[[DataFrame, DataFrame, int], DataFrame]
    truth: Callable[[int], str]

    def __str__(self) -> str:
        return f"{self.name} of {_length(self.size)}"

    @property
    def view(self) -> str:
        return f"{self.sql(self.size)} EMIT CHANGES"


def _windows(size: int) -> str:
    tumbling = f"TUMBLE(TABLE {{}}, DESCRIPTOR(ts), INTERVAL {size // SECOND} SECONDS)"
    return (
        "SELECT b.auction, b.price, a.seller, b.window_start AS moment"
        f" FROM {tumbling.format('bid')} AS b JOIN {tumbling.format('auction')} AS a"
        " ON b.auction = a.id AND b.window_start = a.window_start"
    )


def _native_windows(bids: DataFrame, auctions: DataFrame, size: int) -> DataFrame:
    window = f"window(ts, '{size // SECOND} seconds')"
    made = bids.selectExpr("auction", "price", f"{window} AS w")
    opened = auctions.selectExpr("id", "seller", f"{window} AS of")
    return peers.joined(made, opened, "auction = id AND w = of").selectExpr(
        "auction", "price", "seller", "w.start AS moment"
    )


def _true_windows(size: int) -> str:
    window = f"epoch_us({{}}.ts) // {size}"
    return (
        f"SELECT b.auction, b.price, a.seller, make_timestamp({window.format('b')} * {size})::TIMESTAMPTZ AS moment"
        f" FROM bid AS b JOIN auction AS a ON b.auction = a.id AND {window.format('b')} = {window.format('a')}"
    )


def _band(size: int) -> str:
    return (
        "SELECT b.auction, b.price, a.seller, b.ts AS moment FROM bid AS b JOIN auction AS a"
        f" ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL {size // SECOND} SECONDS"
    )


def _native_band(bids: DataFrame, auctions: DataFrame, size: int) -> DataFrame:
    opened = auctions.selectExpr("id", "seller", "ts AS opened")
    within = f"ts BETWEEN opened AND opened + INTERVAL {size // SECOND} SECONDS"
    joined = peers.joined(bids, opened, f"auction = id AND {within}")
    return joined.selectExpr("auction", "price", "seller", "ts AS moment")


WINDOWS = Join("windows", 10 * SECOND, _windows, _native_windows, _true_windows)
BAND = Join("a band", 10 * SECOND, _band, _native_band, _band)
JOINS = (WINDOWS, BAND)


def joins(setting: Setting) -> Outcome:
    """(joins) Pairs in a window and in a band, beside the native join; and how they grow."""
    place = setting.work / "joins"
    stretch = Auctions(setting.rows, setting.files)
    setting.say(f"(joins) generating {stretch.bids:,} bids and {stretch.auctions:,} auctions in {stretch.runs} runs")
    files = generate(place / "all", stretch)
    figures: list[Figure] = []
    totals: list[Totals] = []
    phases: dict[str, dict[str, float]] = {}
    for join in JOINS:
        setting.say(f"(joins) {join}")
        _ours(setting, join, _first(files, WARMING_RUNS))
        seconds, shown, phases[f"(joins) {join}"] = _ours(setting, join, files)
        every, missing, wrong = _compared(join, files, shown)

        given = _first(files, max(FEWEST, stretch.runs // PART))
        setting.say(f"(joins) {join}, {NATIVE}")
        _streamed(setting, join, _first(files, WARMING_RUNS))
        theirs = _streamed(setting, join, given)
        given = _first(files, len(theirs.runs))
        of_given, lost, made_up = _compared(join, given, _written(setting))
        if made_up:
            raise AssertionError(f"{made_up:,} rows are wrong in what Structured Streaming found in {join}")
        note = (
            f"Structured Streaming with RocksDB, appending to Parquet; given {len(theirs.runs)} of the {stretch.runs}"
            " files of each stream, and its speed is that over those"
        )
        figures.append(
            Figure(
                "joins", f"{join}, {stretch.bids:,} bids", NATIVE,
                stretch.rows / seconds, _rows(given) / theirs.seconds, "rows/s", at_least(15), note,
            )
        )  # fmt: skip
        totals.append(
            Totals(
                "joins", every, every - missing, missing == wrong == 0, lost, 0,
                f"pairs in {join}", f" of the {of_given:,} in the files it was given",
            )
        )  # fmt: skip
    return Outcome(tuple(figures), tuple(totals), phases, pictures=_growth(setting))


def _ours(setting: Setting, join: Join, files: dict[str, list[Path]]) -> tuple[float, Path, dict[str, float]]:
    """The seconds of all runs, a folder with what the view shows in the end, and the phases of all runs."""
    shown = setting.work / "joins" / "shown"
    with _subject(setting, join) as home:
        seconds = sum(home.feed(_fed(setting), files))
        home.session.sql("SELECT * FROM v").df.write.mode("overwrite").parquet(str(shown))
        return seconds, shown, home.phases()


def _subject(setting: Setting, join: Join) -> Subject:
    folder = _fed(setting)
    for stream in STREAMS:
        (folder / stream).mkdir(parents=True, exist_ok=True)
    streams = {
        stream: f"CREATE STREAM {stream} ({columns}, WATERMARK FOR ts AS ts - INTERVAL {WATERMARK // SECOND} SECONDS)"
        f" FROM parquet(path => '{folder / stream}/*.parquet')"
        for stream, columns in STREAMS.items()
    }
    return Subject(setting.work / "home", setting.spark, folder, {"v": join.view}, streams)


def _fed(setting: Setting) -> Path:
    return setting.work / "joins" / "fed"


def _streamed(setting: Setting, join: Join, files: dict[str, list[Path]]) -> peers.Streamed:
    folder = setting.work / "joins" / "given"
    shutil.rmtree(folder, ignore_errors=True)
    sides = {}
    for stream, paths in files.items():
        (folder / stream).mkdir(parents=True)
        for path in paths:
            (folder / stream / path.name).hardlink_to(path)
        delay = f"{WATERMARK // SECOND} seconds"
        sides[stream] = peers.files_stream(setting.streaming, folder / stream).withWatermark("ts", delay)
    pairs = join.native(sides["bid"], sides["auction"], join.size)
    return peers.appended(pairs, setting.work / "joins" / "native", "pairs", LIMIT)


def _written(setting: Setting) -> Path:
    """What the native join wrote, of the runs that it finished: those that its log has."""
    work = setting.work / "joins" / "native"
    pairs = setting.streaming.read.parquet(str(work / "pairs"))
    pairs.write.mode("overwrite").parquet(str(work / "finished"))
    return work / "finished"


def _compared(join: Join, files: dict[str, list[Path]], found: Path) -> tuple[int, int, int]:
    """How many pairs there are in files, how many were not found, and how many were found that are none."""
    import duckdb

    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.execute(f"SET temp_directory = {quoted(found.parent / 'spilled')}")
        for stream, paths in files.items():
            listed = ", ".join(map(quoted, paths))
            duck.execute(f"CREATE VIEW {stream} AS SELECT * FROM read_parquet([{listed}])")
        duck.execute(f"CREATE TABLE truth AS {join.truth(join.size)}")
        duck.execute(f"CREATE VIEW found AS SELECT * FROM read_parquet({quoted(found / '*.parquet')})")
        counts = (
            "(SELECT count(*) FROM truth)",
            "(SELECT count(*) FROM (FROM truth EXCEPT ALL FROM found))",
            "(SELECT count(*) FROM (FROM found EXCEPT ALL FROM truth))",
        )
        row = duck.execute(f"SELECT {', '.join(counts)}").fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


def _first(files: dict[str, list[Path]], runs: int) -> dict[str, list[Path]]:
    return {stream: paths[:runs] for stream, paths in files.items()}


def _rows(files: dict[str, list[Path]]) -> int:
    import pyarrow.parquet as parquet

    return sum(parquet.read_metadata(path).num_rows for paths in files.values() for path in paths)


# ------------------------------------------------------------------------------------------------- growth

SIZES = (10 * SECOND, MINUTE, 10 * MINUTE, HOUR)
#: Shares of the bids that go to one auction.
SKEWS = (0.0, 0.1, 0.5)
BIDS_A_RUN, RUNS, LAST_RUNS = 2_000, 40, 10
BRIEF_BIDS_A_RUN, BRIEF_RUNS = 100, 2


def _growth(setting: Setting) -> tuple[Picture, ...]:
    """What a small run takes and what is kept in memory, by how wide a join is and how skewed its rows are."""
    bids, runs = (BRIEF_BIDS_A_RUN, BRIEF_RUNS) if setting.brief else (BIDS_A_RUN, RUNS)
    sizes, skews = (SIZES[::3], SKEWS[::2]) if setting.brief else (SIZES, SKEWS)
    wide = Auctions(bids * runs, runs, 2 * HOUR, late=0)
    # All of it within an hour of the opening of the auction that is bid for most.
    skewed = replace(wide, span=50 * MINUTE)
    by_size = {
        join.name: [(size / SECOND, *_small_runs(setting, replace(join, size=size), wide)) for size in sizes]
        for join in JOINS
    }
    by_skew = {
        join.name: [
            (100 * hot, *_small_runs(setting, replace(join, size=HOUR), replace(skewed, hot=hot))) for hot in skews
        ]
        for join in JOINS
    }
    subtitle = f"the last of {runs} runs of {bids:,} bids and {bids // BIDS_AN_AUCTION} auctions"
    return (
        Picture(
            "joins-size", "How a join grows with its window or band", subtitle,
            _curves("joins-size", "size of the window or band", by_size, tuple(map(_length, sizes)), steps=False),
        ),
        Picture(
            "joins-skew", f"How a join over {_length(HOUR)} goes with skew", subtitle,
            _curves(
                "joins-skew", "share of the bids that go to one auction", by_skew,
                tuple(f"{100 * hot:g} %" for hot in skews), steps=True,
            ),
        ),
    )  # fmt: skip


def _curves(
    name: str, x: str, found: dict[str, list[tuple[float, float, float]]], ticks: Sequence[str], *, steps: bool
) -> tuple[Curve, ...]:
    return tuple(
        Curve(
            f"{name}-{short}", title, x, unit,
            {side: [(point[0], point[at]) for point in points] for side, points in found.items()},
            steps, tuple(ticks),
        )
        for at, short, title, unit in ((1, "run", "A run", "ms"), (2, "memory", "In memory", "rows"))
    )  # fmt: skip


def _small_runs(setting: Setting, join: Join, stretch: Auctions) -> tuple[float, float]:
    """Milliseconds of one of the last runs, and how many rows are in memory after them."""
    setting.say(f"(joins) small runs, {join}, {100 * stretch.hot:g} % of the bids to one auction")
    place = setting.work / "joins" / "small"
    shutil.rmtree(place, ignore_errors=True)
    files = generate(place, stretch)
    with _subject(setting, join) as home:
        seconds = home.feed(_fed(setting), files)
        core = home.session._core
        view = core.catalog().find("v")
        assert view is not None
        shown = setting.work / "joins" / "shown"
        home.session.sql("SELECT * FROM v").df.write.mode("overwrite").parquet(str(shown))
        _, missing, wrong = _compared(join, files, shown)
        if missing or wrong:
            raise AssertionError(f"{missing:,} pairs are missing and {wrong:,} are wrong in small runs of {join}")
        return 1000 * median(seconds[-LAST_RUNS:]), core.table_cache.rows_of(view.id)


def _length(size: int) -> str:
    """
    >>> _length(10 * SECOND), _length(MINUTE), _length(HOUR)
    ('10 s', '1 min', '1 h')
    """
    for unit, name in ((HOUR, "h"), (MINUTE, "min")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size / SECOND:g} s"
