"""The bench: Anabranch beside Structured Streaming, Spark batch and DuckDB, on one machine, in one run.

    anabranch bench --quick --only a,c
    anabranch bench --only live,smoothing
    anabranch bench --only nexmark --events 20000
    anabranch bench --only joins,epochs
    anabranch bench --only policies,disorder
    anabranch bench --only growth --runs 10000
    anabranch bench --only kernels
    anabranch bench --only views,functions

Nothing heavy is imported before the options are known to be right.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.bench.figures import Measure, Outcome

#: Those on bids have letters; the others bring their own rows.
ON_BIDS = "abcdef"
WITH_SPARK = (
    *ON_BIDS, "live", "smoothing", "nexmark", "strategies", "policies", "joins", "epochs", "growth", "kernels", "views",
    "functions", "kafka",
)  # fmt: skip
MEASURES = (*WITH_SPARK, "disorder")
#: What needs a server is measured when it is asked for.
BY_DEFAULT = tuple(name for name in MEASURES if name != "kafka")
ROWS, QUICK_ROWS, FILES, REPEAT = 10_000_000, 1_000_000, 40, 3
EVENTS, QUICK_EVENTS, FEWEST_EVENTS = 1_000_000, 100_000, 5_000
RUNS, QUICK_RUNS, FEWEST_RUNS = 2_000, 500, 250
ALL = (
    "a to f, live, smoothing, nexmark, strategies, policies, joins, epochs, growth, kernels, views, functions and"
    " disorder;"
    " kafka needs a broker"
)


def main(arguments: list[str]) -> int:
    """Measure what the options ask for, print the table and write the results; 0 also where a target is missed."""
    options = _options(arguments)
    from anabranch.bench import report

    # Told to stop, it still cleans up: the data of a bench are gigabytes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcomes, about = measure(options, _say)
    figures = [figure for outcome in outcomes for figure in outcome.figures]
    print(report.table(figures))
    notes = report.notes_text(figures)
    if notes:
        print(f"\n{notes}")
    totals = report.totals_text([each for outcome in outcomes for each in outcome.totals])
    if totals:
        print(f"\n{totals}")
    for path in report.write(Path(options.out), outcomes, about):
        print(f"wrote {path}", file=sys.stderr)
    return 0 if all(each.exact for outcome in outcomes for each in outcome.totals) else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="anabranch bench",
        description="Measure Anabranch beside hand-written Structured Streaming, Spark batch and DuckDB.",
    )
    parser.add_argument("--rows", type=_positive, help=f"bids to generate (default {ROWS:,})")
    parser.add_argument("--files", type=_positive, default=FILES, help=f"files they come in (default {FILES})")
    parser.add_argument("--events", type=_positive, help=f"events of NEXMark to generate (default {EVENTS:,})")
    parser.add_argument("--runs", type=_positive, help=f"runs of growth (default {RUNS:,})")
    parser.add_argument(
        "--only", default=",".join(BY_DEFAULT), help=f"measures to take, as in a,live (default: all, {ALL})"
    )
    parser.add_argument("--out", default="bench", help="folder for results.json and the charts (default bench)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} bids, {QUICK_EVENTS:,} events")
    parser.add_argument("--repeat", type=_positive, default=REPEAT, help=f"medians of so many (default {REPEAT})")
    parser.add_argument("--master", help="where Spark runs (default local[*])")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    options.runs = options.runs or (QUICK_RUNS if options.quick else RUNS)
    options.events = options.events or (QUICK_EVENTS if options.quick else EVENTS)
    options.only = _measure_names(options.only)
    unknown = sorted(set(options.only) - set(MEASURES))
    if unknown or not options.only:
        parser.error(f"there is no measure {', '.join(unknown) or 'of that name'}: the measures are {ALL}")
    if options.rows < 10 * options.files:
        parser.error(f"{options.rows:,} rows are too few for {options.files} files")
    if options.events < FEWEST_EVENTS:
        parser.error(f"{options.events:,} events are too few: NEXMark wants {FEWEST_EVENTS:,}")
    if options.runs < FEWEST_RUNS:
        parser.error(f"{options.runs:,} runs are too few: growth wants {FEWEST_RUNS:,}")
    return options


def _measure_names(text: str) -> list[str]:
    """The names in a list; letters can also stand together.

    >>> _measure_names("ac, live")
    ['a', 'c', 'live']
    """
    words = text.replace(",", " ").lower().split()
    return [name for word in words for name in ([word] if word in MEASURES or set(word) - set(ON_BIDS) else word)]


def _positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _say(text: str) -> None:
    print(f"bench {time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def measures() -> dict[str, Measure]:
    from anabranch.bench import (
        epochs,
        functions,
        growth,
        joins,
        kafka,
        kernels,
        late,
        live,
        nexmark,
        policies,
        reading,
        smoothing,
        strategies,
        views,
        windows,
    )

    return {
        "a": windows.tumbling,
        "b": windows.hopping,
        "c": views.small_runs,
        "d": views.many_views,
        "e": reading.one_window,
        "f": late.late_runs,
        "live": live.live_changes,
        "smoothing": smoothing.one_burst,
        "nexmark": nexmark.five_queries,
        "strategies": strategies.strategies,
        "policies": policies.policies,
        "joins": joins.joins,
        "epochs": epochs.epochs,
        "growth": growth.growth,
        "kernels": kernels.kernels,
        "views": functions.many_live_views,
        "functions": functions.functions,
        "kafka": kafka.tumbling_count,
    }


def measure(options: argparse.Namespace, say: Callable[[str], None]) -> tuple[list[Outcome], dict[str, Any]]:
    """Take the measures; Spark is started for those that need it."""
    from anabranch.bench.disorder import disorder
    from anabranch.bench.figures import BRIEF_ROWS

    begin = time.perf_counter()
    about: dict[str, Any] = {
        "date": date.today().isoformat(),
        "rows": options.rows,
        "events": options.events,
        "files": options.files,
        "repeat": options.repeat,
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    outcomes: list[Outcome] = []
    if set(options.only) & set(WITH_SPARK):
        outcomes, of_spark = measure_with_spark(options, say)
        about.update(of_spark)
    if "disorder" in options.only:
        outcomes.append(disorder(options.rows < BRIEF_ROWS, say))
    about["seconds"] = round(time.perf_counter() - begin, 1)
    return outcomes, about


def measure_with_spark(options: argparse.Namespace, say: Callable[[str], None]) -> tuple[list[Outcome], dict[str, Any]]:
    """Generate the data, take the measures, clean up; and what is to be known of Spark."""
    from anabranch.bench.data import Bids, generate
    from anabranch.bench.figures import Setting
    from anabranch.bench.peers import streaming_session
    from anabranch.engine import spark as spark_sessions

    work = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    try:
        if set(options.only) & {*ON_BIDS, "kernels"}:
            say(f"generating {options.rows:,} bids in {options.files} files")
            generate(work / "bids", Bids(options.rows, options.files))
        spark = spark_sessions.start(options.master, {"spark.sql.shuffle.partitions": "2"})
        setting = Setting(
            spark, streaming_session(spark), options.rows, options.events, options.files, options.repeat,
            work / "bids", work, say, options.runs,
        )  # fmt: skip
        outcomes = [measures()[name](setting) for name in WITH_SPARK if name in options.only]
        return outcomes, {"cores": spark.sparkContext.defaultParallelism, "spark": spark.version}
    finally:
        shutil.rmtree(work, ignore_errors=True)
