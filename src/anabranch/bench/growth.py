"""Measure (growth): what a small run costs after many others, beside what it cost near the beginning.

Event times and keys move on with each run, as those of auctions do: what a run touches stays the same, and only what
lies behind it grows. Rows are inserted, so that no source has a say in it.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from anabranch.bench.figures import Curve, Figure, Outcome, Setting, at_most, median
from anabranch.bench.subject import Subject

ROWS = 200
#: The runs that the last ones are held against, and how many the last ones are.
FIRST, LAST = slice(50, 150), 100
BRIEF_RUNS = 20
LIMIT = 1.15
PEER = "runs 50 to 150"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_COLUMNS = "k BIGINT, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS"
STREAMS = {name: f"CREATE STREAM {name} ({_COLUMNS})" for name in ("s", "r")}
_WINDOWS = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 10 SECONDS)"
VIEWS = {
    "window": (
        f"SELECT k, window_start, window_end, count(*) AS n, sum(x) AS total FROM {_WINDOWS}"
        " GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE"
    ),
    "aggregate": "SELECT k, count(*) AS n, sum(x) AS total FROM s GROUP BY k EMIT CHANGES",
    "top 3": (
        "SELECT k, x, ts FROM (SELECT k, x, ts, row_number() OVER (PARTITION BY k ORDER BY x DESC, ts) AS place"
        " FROM s) WHERE place <= 3 EMIT CHANGES"
    ),
    "join": (
        "SELECT s.k, s.x, r.x AS y FROM s JOIN r ON s.k = r.k"
        " AND r.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 2 SECONDS EMIT CHANGES"
    ),
}


def growth(setting: Setting) -> Outcome:
    """(growth) The last of many small runs beside the early ones, for a window view, a plain aggregate, a top-n and a
    join; and the memory of the driver."""
    figures: list[Figure] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    phases: dict[str, dict[str, float]] = {}
    runs = BRIEF_RUNS if setting.brief else setting.runs
    for name, view in VIEWS.items():
        setting.say(f"(growth) {name}, {runs:,} runs")
        seconds, memory, phases[f"(growth) {name}"] = _runs(setting, name, view, runs)
        first, last = (seconds, seconds) if setting.brief else (seconds[FIRST], seconds[-LAST:])
        early, late = 1000 * median(first), 1000 * median(last)
        what = f"{name}, last {LAST} of {runs:,} runs of {ROWS} rows"
        figures.append(Figure("growth", what, PEER, late, early, "ms", at_most(LIMIT)))
        begin, end = memory[min(FIRST.start, len(memory) - 1)], memory[-1]
        figures.append(Figure("growth", f"{name}, memory of the driver", PEER, end, begin, "MiB", at_most(LIMIT)))
        setting.say(f"(growth) {name}: {early:.1f} ms, then {late:.1f} ms; {begin:,.0f} MiB, then {end:,.0f} MiB")
        part = max(1, len(seconds) // 20)
        lines[name] = [(at + part, 1000 * median(seconds[at : at + part])) for at in range(0, len(seconds), part)]
    curve = Curve("growth", f"A run of {ROWS} rows", "runs before it", "ms", lines, steps=True, medians="runs")
    return Outcome(tuple(figures), phases=phases, curves=(curve,))


def _runs(setting: Setting, name: str, view: str, runs: int) -> tuple[list[float], list[float], dict[str, float]]:
    """The seconds of each run, the memory after it, and the mean milliseconds of the phases of the last ones."""
    random.seed(7)
    names = ("s", "r") if name == "join" else ("s",)
    seconds: list[float] = []
    busy: list[float] = []
    memory: list[float] = []
    streams = {each: STREAMS[each] for each in names}
    with Subject(setting.work / "home", setting.spark, setting.work, {"v": view}, streams) as home:
        for run in range(runs):
            brought = [rows(run) for _ in names]
            begin, used = time.perf_counter(), time.process_time()
            for stream, given in zip(names, brought, strict=True):
                home.session.insert(stream, given)
            seconds.append(time.perf_counter() - begin)
            busy.append(time.process_time() - used)
            memory.append(resident())
        if not setting.brief:
            early, late = (1000 * median(part) for part in (busy[FIRST], busy[-LAST:]))
            setting.say(f"(growth) {name}: the driver's own work {early:.1f} ms, then {late:.1f} ms")
        last = list(home.session._core.ledger.records(max(1, home.session.version - LAST)))
        sums: dict[str, float] = {}
        for record in last:
            for phase, value in record.milliseconds.items():
                sums[phase] = sums.get(phase, 0.0) + value
        return seconds, memory, {phase: round(value / LAST, 1) for phase, value in sums.items()}


def rows(run: int) -> Any:
    """The rows of a run: a second of event time, and keys of which each is there for about 20 runs."""
    import pyarrow as pa

    begin = START + timedelta(seconds=run)
    keys = [10 * run + random.randrange(200) for _ in range(ROWS)]
    times = [begin + timedelta(microseconds=random.randrange(1_000_000)) for _ in range(ROWS)]
    values = [random.randrange(1000) for _ in range(ROWS)]
    times_type = pa.timestamp("us", "UTC")
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "x": pa.array(values, pa.int64()), "ts": pa.array(times, times_type)}
    )


def resident() -> float:
    """MiB of memory that this process holds."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1024
    # At least the most it ever held; in bytes on macOS, in KiB elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
