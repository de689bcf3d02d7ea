"""Measure (smoothing): the run in which very many windows close at once, without a budget and with one.

The watermark is far behind, so that windows pile up; then one run brings rows from much later, and all of them close.
What is timed are runs of the same rows: those before, that one, and as many after it as the budget needs.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from anabranch.bench.data import SECOND, START, in_order, quoted
from anabranch.bench.figures import Figure, Outcome, Setting, at_most, median
from anabranch.bench.subject import ON_CLOSE, Subject

WITHOUT = "no budget"
VIEW = (
    "SELECT k, window_start, window_end, count(*) AS n, sum(x) AS total, min(x) AS least, max(x) AS most"
    " FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 1 SECOND, INTERVAL 10 SECONDS) GROUP BY k, window_start, window_end"
)


@dataclass(frozen=True)
class Burst:
    """So many windows that pile up, of so many keys; runs of so many windows, and a budget of some more."""

    windows: int = 2_000
    keys: int = 600
    windows_a_run: int = 10
    budget: int = 200
    runs_before: int = 5

    @property
    def runs_after(self) -> int:
        """The runs until nothing waits any more, if each of them brings its own windows to a close too."""
        return -(-self.windows // (self.budget - self.windows_a_run)) + 2

    @property
    def emission(self) -> str:
        return f"{ON_CLOSE} AT MOST {self.budget} WINDOWS A RUN"


def one_burst(setting: Setting) -> Outcome:
    """(smoothing) The longest run and the median run around a burst of closing windows."""
    burst = Burst(40, 3, 2, 12, 2) if setting.brief else Burst()
    longest: dict[str, list[float]] = {WITHOUT: [], "budget": []}
    usual: dict[str, list[float]] = {WITHOUT: [], "budget": []}
    phases: dict[str, dict[str, float]] = {}
    for number in range(setting.repeat + 1):
        for kind, emission in ((WITHOUT, ON_CLOSE), ("budget", burst.emission)):
            setting.say(f"(smoothing) {kind}, " + (f"{number} of {setting.repeat}" if number else "warm-up"))
            seconds, of_burst = _runs(setting, burst, emission)
            if number:
                longest[kind].append(1000 * max(seconds))
                usual[kind].append(1000 * median(seconds))
                phases[f"(smoothing) {kind}, run of the burst"] = of_burst
    what = (
        f"of {burst.runs_before + 1 + burst.runs_after} runs, one closes {burst.windows:,} windows of {burst.keys} keys"
    )
    return Outcome(
        (
            _figure(f"longest {what}", longest, 0.5),
            _figure(f"median {what}", usual, None),
        ),
        phases=phases,
    )


def _figure(what: str, found: dict[str, list[float]], most: float | None) -> Figure:
    ours, theirs = median(found["budget"]), median(found[WITHOUT])
    return Figure("smoothing", what, WITHOUT, ours, theirs, "ms", None if most is None else at_most(most))


def _runs(setting: Setting, burst: Burst, emission: str) -> tuple[list[float], dict[str, float]]:
    """The seconds of the runs around a burst, and the phases of the one that brings it."""
    folder, waiting = setting.work / "smoothing", setting.work / "smoothing-waiting"
    for each in (folder, waiting):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    stream = (
        f"CREATE STREAM s (k BIGINT, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL {burst.windows} SECONDS)"
        f" FROM parquet(path => '{folder}/*.parquet')"
    )
    seconds: list[float] = []
    phases: dict[str, float] = {}
    with Subject(setting.work / "home", setting.spark, folder, {"v": VIEW + emission}, {"s": stream}) as home:
        for number, path in enumerate(generate(waiting, burst)):
            path.rename(folder / path.name)
            home.records.clear()
            taken = home.step()
            assert taken is not None
            if number:  # the first only piles windows up
                seconds.append(taken)
            if number == 1 + burst.runs_before:
                phases = home.phases()
        home.end()
        _check(folder, home)
    return seconds, phases


def generate(folder: Path, burst: Burst) -> list[Path]:
    """A file of all windows that pile up, then one a run, the first after those before from much later."""
    import duckdb

    #: First second and seconds of each file; a row a key in each second.
    stretches = [(0, burst.windows)]
    for number in range(burst.runs_before + 1 + burst.runs_after):
        jump = burst.windows if number >= burst.runs_before else 0
        stretches.append((burst.windows + jump + number * burst.windows_a_run, burst.windows_a_run))
    paths = [folder / f"smoothing-{number:05d}.parquet" for number in range(len(stretches))]
    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for path, (first, length) in zip(paths, stretches, strict=True):
            rows = (
                "SELECT k::BIGINT AS k, (hash(k, second) % 1000)::BIGINT AS x,"
                f" make_timestamptz({START} + second * {SECOND} + (hash(second, k) % {SECOND})::BIGINT) AS ts"
                f" FROM range({burst.keys}) AS keys(k), range({first}, {first + length}) AS seconds(second)"
            )
            duck.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")
    in_order(paths)
    return paths


def _check(folder: Path, home: Subject) -> None:
    """Each row is in ten windows, and all of them are shown once."""
    import duckdb

    with duckdb.connect(":memory:") as duck:
        files = quoted(folder / "*.parquet")
        truth = duck.execute(f"SELECT 10 * count(*), 10 * sum(x) FROM read_parquet({files})").fetchone()
    shown = home.ask(
        "SELECT sum(n) AS n, sum(total) AS total, count(DISTINCT k, window_start) AS c, count(*) AS r FROM v"
    )
    (found,) = shown
    if truth != (found["n"], found["total"]) or found["c"] != found["r"]:
        raise AssertionError(f"the windows should count {truth}, and count {found}")
