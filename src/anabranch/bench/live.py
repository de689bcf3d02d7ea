"""Measure (live): every change of a count and a sum per key, beside the native update mode with the same runs.

Each key has come once before anything is timed. What is timed is a run: from its rows to its changes in files.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch.bench import peers
from anabranch.bench.data import in_order, quoted
from anabranch.bench.figures import Curve, Figure, Outcome, Setting, Target, at_most, median
from anabranch.bench.subject import Subject

VIEW = "SELECT k, count(*) AS n, sum(x) AS total FROM s GROUP BY k EMIT CHANGES"
NATIVE = "Structured Streaming"
NOTE = "update mode with RocksDB, the changed rows of each run written as Parquet"
#: Runs after the one that brings every key: so many that are not timed, so many that are.
WARMING_RUNS, RUNS = 3, 10
BRIEF_RUNS = 2
SMALL_ROWS = 2_000


@dataclass(frozen=True)
class Load:
    """So many rows a run, on so many keys that have all come before."""

    rows: int
    keys: int
    target: Target | None = None

    def __str__(self) -> str:
        return f"run of {self.rows:,} rows on {self.keys:,} keys"

    def tried_out(self) -> Load:
        """The same with a thousandth of the keys and a hundredth of the rows."""
        return replace(self, rows=max(100, self.rows // 100), keys=self.keys // 1000)


#: Eight times as fast as native.
_LIMIT = at_most(0.125)
LOADS = (
    Load(SMALL_ROWS, 10_000, _LIMIT),
    Load(SMALL_ROWS, 100_000, _LIMIT),
    Load(SMALL_ROWS, 1_000_000, _LIMIT),
    Load(20_000, 1_000_000, _LIMIT),
    Load(1_000_000, 10_000, _LIMIT),
    Load(1_000_000, 1_000_000, _LIMIT),
)


def live_changes(setting: Setting) -> Outcome:
    """(live) The changes of a count and a sum per key, for few and many rows on few and many keys."""
    loads = [each.tried_out() for each in LOADS] if setting.brief else list(LOADS)
    ours: dict[Load, list[float]] = {load: [] for load in loads}
    theirs: dict[Load, list[float]] = {load: [] for load in loads}
    phases: dict[str, dict[str, float]] = {}
    # All loads in each turn, or the first of them would be measured on a colder machine than the last.
    for number in range(setting.repeat + 1):
        for load in loads if number else loads[:1]:
            setting.say(f"(live) {load}, " + (f"{number} of {setting.repeat}" if number else "warm-up"))
            mine, native, of_mine = _race(setting, load, number)
            if number:
                ours[load] += mine
                theirs[load] += native
                phases[f"(live) {load}"] = of_mine
    cost = {load: (1000 * median(ours[load]), 1000 * median(theirs[load])) for load in loads}
    small = [load for load, planned in zip(loads, LOADS, strict=True) if planned.rows == SMALL_ROWS]
    return Outcome(
        tuple(Figure("live", str(load), NATIVE, *cost[load], "ms", load.target, NOTE) for load in loads),
        phases=phases,
        curves=(
            Curve(
                "keys",
                f"A run of {small[0].rows:,} rows that gives out every change",
                "keys that came before",
                "ms",
                {
                    side: [(load.keys, cost[load][at]) for load in small]
                    for at, side in enumerate(("Anabranch", NATIVE))
                },
            ),
        ),
    )


def _race(setting: Setting, load: Load, seed: int) -> tuple[list[float], list[float], dict[str, float]]:
    """One side after the other on the same files; the seconds of each run of both, and the phases of ours."""
    warming, count = (1, BRIEF_RUNS) if setting.brief else (WARMING_RUNS, RUNS)
    folder, waiting, work = setting.work / "live", setting.work / "live-waiting", setting.work / "live-native"
    for each in (folder, waiting):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    stream = f"CREATE STREAM s (k BIGINT, x BIGINT) FROM parquet(path => '{folder}/*.parquet')"
    ours: list[float] = []
    with Subject(setting.work / "home", setting.spark, folder, {"v": VIEW}, {"s": stream}) as home:
        for at, path in enumerate(generate(waiting, load, warming + count, seed=seed)):
            path.rename(folder / path.name)
            if at == 1 + warming:
                home.records.clear()
            taken = home.step()
            assert taken is not None
            if at > warming:
                ours.append(taken)
        phases = {name: round(value / count, 1) for name, value in home.phases().items()}
        _check("the view of Anabranch", folder, home.session.sql("SELECT k, n, total FROM v").toArrow())
        # Each change takes back what the one before it put in: added up, they are what is shown.
        added_up = "sum(_diff * n) AS n", "sum(_diff * total) AS total"
        _check("the changes of Anabranch", folder, peers.grouped(home.changes("v"), ["k"], added_up).toArrow())
    sums = peers.grouped(peers.files_stream(setting.streaming, folder), ["k"], ("count(*) AS n", "sum(x) AS total"))
    theirs = peers.each_run(sums, work, "update").runs[1 + warming :]
    _check("the changes of Structured Streaming", folder, peers.latest(work, ["k"], ["n", "total"]))
    return ours, list(theirs), phases


def generate(folder: Path, load: Load, runs: int, *, seed: int) -> list[Path]:
    """A file with every key once, then one for each run; the paths, in the order of arrival."""
    import duckdb

    paths = [folder / f"live-{number:05d}.parquet" for number in range(runs + 1)]
    with duckdb.connect(":memory:") as duck:
        for number, path in enumerate(paths):
            low = number * load.rows
            key = f"(hash(i, {seed}) % {load.keys})::BIGINT" if number else "i"
            source = f"range({low}, {low + load.rows})" if number else f"range({load.keys})"
            rows = f"SELECT {key} AS k, (hash(i, {seed}, 1) % 1000)::BIGINT AS x FROM {source} AS numbers(i)"
            duck.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")
    in_order(paths)
    return paths


def _check(what: str, folder: Path, found: Any) -> None:
    """Both sides must come to the same: the truth, by DuckDB over all files."""
    import duckdb

    rows = f"read_parquet({quoted(folder / '*.parquet')})"
    truth = f"SELECT k, count(*)::HUGEINT AS n, sum(x)::HUGEINT AS total FROM {rows} GROUP BY k"
    with duckdb.connect(":memory:") as duck:
        duck.register("found", found)
        shown = "SELECT k, n::HUGEINT AS n, total::HUGEINT AS total FROM found"
        for one, other, verdict in ((truth, shown, "missing"), (shown, truth, "wrong")):
            row = duck.execute(f"SELECT count(*) FROM (({one}) EXCEPT ALL ({other}))").fetchone()
            assert row is not None
            if row[0]:
                raise AssertionError(f"{row[0]:,} keys are {verdict} in {what}")
