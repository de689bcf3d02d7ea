"""Measures (views) and (functions): small runs under many live views, and under views with other functions.

A run's cost must not depend on how a view is spelled, nor grow with each view as if it were alone. Homes take turns run
by run, so that whatever else the machine does falls on all of them. Beside the time, the work of the driver and of
Spark's processes on this machine is told: of a machine that is shared, it says more.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from anabranch.bench.figures import Figure, Outcome, Setting, at_most, median
from anabranch.bench.subject import Subject

#: How many runs are timed, after so many that are not.
RUNS, WARMING_RUNS, BRIEF_RUNS = 25, 8, 2
MANY_ROWS, ROWS = 4_000, 2_000
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
STREAM = {
    "s": "CREATE STREAM s (k STRING, v BIGINT, x DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS)"
}
PLAIN = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k EMIT CHANGES"


def _per_key(items: str) -> str:
    return f"SELECT k, {items} FROM s GROUP BY k EMIT CHANGES"


#: Live views of one stream, each with an aggregate of its own.
VIEWS = {
    "plain": PLAIN,
    "mean": _per_key("avg(v) AS a"),
    "extremes": _per_key("min(v) AS low, max(x) AS high"),
    "filtered": _per_key("count(*) FILTER (WHERE v > 500) AS n"),
    "different": _per_key("count(DISTINCT v) AS n"),
    "spread": _per_key("stddev(x) AS d"),
    "variance": _per_key("var_pop(v) AS d"),
    "latest": _per_key("max_by(v, ts) AS v"),
    "sketch": _per_key("approx_count_distinct(v) AS n"),
    "cases": _per_key("sum(CASE WHEN v % 2 = 0 THEN v ELSE -v END) AS total"),
    "any": _per_key("bool_or(v > 990) AS seen"),
    "upper": "SELECT upper(k) AS k, sum(x) AS total FROM s GROUP BY upper(k) EMIT CHANGES",
    "bits": _per_key("bit_xor(v) AS b"),
}
_SESSIONS = "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '0.05' SECONDS)"
#: Views beside the plain one that differ from it by a function, or by how they group.
SPELLINGS = {
    "upper(k)": "SELECT upper(k) AS k, count(*) AS n, sum(v) AS total FROM s GROUP BY upper(k) EMIT CHANGES",
    "v / 3": _per_key("count(*) AS n, sum(v / 3) AS total"),
    "stddev": _per_key("count(*) AS n, stddev(v) AS d"),
    "max_by": _per_key("count(*) AS n, max_by(v, ts) AS v"),
    "min_by": _per_key("count(*) AS n, min_by(x, v) AS x"),
    "approx_count_distinct": _per_key("count(*) AS n, approx_count_distinct(v) AS d"),
    "LIKE": "SELECT k, count(*) AS n, sum(v) AS total FROM s WHERE k LIKE 'k1%' GROUP BY k EMIT CHANGES",
    "date_trunc": (
        "SELECT date_trunc('MINUTE', ts) AS t, count(*) AS n, sum(v) AS total FROM s"
        " GROUP BY date_trunc('MINUTE', ts) EMIT CHANGES"
    ),
    "CASE": _per_key("count(*) AS n, sum(CASE WHEN v > 500 THEN v ELSE 0 END) AS total"),
    "sessions": (
        f"SELECT k, window_start, window_end, count(*) AS n, sum(v) AS total FROM {_SESSIONS}"
        " GROUP BY k, window_start, window_end EMIT CHANGES"
    ),
    "top-n by an expression": (
        "SELECT k, v, ts FROM (SELECT k, v, ts, row_number() OVER (PARTITION BY k ORDER BY v * 2 + 1 DESC, ts) AS place"
        " FROM s) WHERE place <= 3 EMIT CHANGES"
    ),
}


@dataclass
class Taken:
    """What the timed runs of a home took: seconds, and seconds of work of the driver and of Spark's processes."""

    seconds: list[float] = field(default_factory=list)
    driver: list[float] = field(default_factory=list)
    spark: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        run, driver, spark = (1000 * median(each) for each in (self.seconds, self.driver, self.spark))
        return f"{run:.1f} ms a run, of work {driver:.1f} ms by the driver, {spark:.1f} ms by Spark"


def many_live_views(setting: Setting) -> Outcome:
    """(views) Four and thirteen live views with different aggregates beside one, for runs of some rows and of one."""
    names = list(VIEWS)
    homes = {count: {name: VIEWS[name] for name in names[:count]} for count in (1, 4, len(names))}
    figures = []
    for rows in (MANY_ROWS, 1):
        found = _take_turns(setting, "views", {f"{count} views": views for count, views in homes.items()}, rows)
        ones, *others = found.values()
        for (name, taken), limit in zip(list(found.items())[1:], (None, 4), strict=True):
            setting.say(f"(views) {name}, runs of {rows:,} rows: {taken}; one view: {ones}")
            what = f"{name}, run of {rows:,} row{'s' if rows > 1 else ''}"
            figures.append(_figure("views", what, "one view", taken, ones, limit))
        del others
    return Outcome(tuple(figures))


def functions(setting: Setting) -> Outcome:
    """(functions) Views with other functions beside a plain count and sum."""
    found = _take_turns(
        setting, "functions", {"plain": {"v": PLAIN}, **{n: {"v": v} for n, v in SPELLINGS.items()}}, ROWS
    )
    plain = found.pop("plain")
    figures = []
    for name, taken in found.items():
        setting.say(f"(functions) {name}: {taken}; plain: {plain}")
        figures.append(_figure("functions", f"{name}, run of {ROWS:,} rows", "count and sum", taken, plain, 1.5))
    return Outcome(tuple(figures))


def _figure(measure: str, what: str, peer: str, ours: Taken, theirs: Taken, limit: float | None) -> Figure:
    target = None if limit is None else at_most(limit)
    work = median([a + b for a, b in zip(ours.driver, ours.spark, strict=True)])
    beside = median([a + b for a, b in zip(theirs.driver, theirs.spark, strict=True)])
    note = f"work of all processes {1000 * work:.0f} ms beside {1000 * beside:.0f} ms"
    return Figure(measure, what, peer, 1000 * median(ours.seconds), 1000 * median(theirs.seconds), "ms", target, note)


def _take_turns(setting: Setting, measure: str, homes: Mapping[str, dict[str, str]], count: int) -> dict[str, Taken]:
    """One home for each set of views, and the same run in each of them before the next run."""
    random.seed(7)
    warming, runs = (1, BRIEF_RUNS) if setting.brief else (WARMING_RUNS, RUNS)
    found = {name: Taken() for name in homes}
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(Subject(setting.work / f"home-{at}", setting.spark, setting.work, views, STREAM))
            for at, (name, views) in enumerate(homes.items())
        }
        setting.say(f"({measure}) {len(opened)} homes, {warming + runs} runs of {count:,} rows in each")
        for run in range(warming + runs):
            given = rows(run, count)
            for name, home in opened.items():
                begin, driver, spark = time.perf_counter(), time.process_time(), _work_of_children()
                home.session.insert("s", given)
                if run >= warming:
                    found[name].seconds.append(time.perf_counter() - begin)
                    found[name].driver.append(time.process_time() - driver)
                    found[name].spark.append(_work_of_children() - spark)
    return found


def rows(run: int, count: int) -> Any:
    """The rows of a run: a second of event time, and 200 keys that come again and again."""
    import pyarrow as pa

    begin = START + timedelta(seconds=run)
    times = [begin + timedelta(microseconds=random.randrange(1_000_000)) for _ in range(count)]
    return pa.table(
        {
            "k": [f"k{random.randrange(200)}" for _ in range(count)],
            "v": pa.array([random.randrange(1000) for _ in range(count)], pa.int64()),
            "x": [random.random() for _ in range(count)],
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def _work_of_children() -> float:
    """Seconds that the processes below this one have worked: the JVM of Spark, and what it started."""
    parents, seconds = {}, {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            values = (each / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(each.name)] = int(values[1])
        seconds[int(each.name)] = (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
    below, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        below |= new
    return sum(seconds[pid] for pid in below)
