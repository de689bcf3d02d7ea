"""Measure (strategies): the same windows from panes, from windows and from rows; from the first run to the answer.

One curve goes with how many windows a row is in. Two figures are the case of a few rows a pane and a few panes a
window, where panes have the least to save: as it is, and less what it takes to scan the same rows for one group, which
both have to pay and which is what those who first measured panes left out; the target is theirs. There are so many rows
that most of the time goes with them: a run and its commit take some milliseconds whatever there is in it, and those say
nothing about strategies. The other curve and the other figures are how many partials the ledger holds where groups are
of very unequal size, in the mixtures of `disorder`, which counts what models hold.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from anabranch.bench.data import START, in_order, quoted
from anabranch.bench.disorder import SHARES, SIZES
from anabranch.bench.figures import Curve, Figure, Outcome, Setting, at_most, median
from anabranch.bench.subject import Subject
from anabranch.plan.strategy import ADAPTIVE, PANES, ROWS, WINDOWS

STRATEGIES = (PANES, WINDOWS, ROWS)
#: Not a strategy: one group of all rows, which costs what a run and a read cost in any case. The time and the value of
#: every row are looked at: what files say of them in their footers is no answer to it.
SCAN = "scan"
HELD = (PANES, WINDOWS, ADAPTIVE)
RATIOS = (1, 10, 60, 600)
RUNS = 5
COLUMNS = "k BIGINT, x BIGINT, ts TIMESTAMP"
STREAM = f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts) FROM parquet(path => '{{}}/*.parquet')"


@dataclass(frozen=True)
class Shape:
    """Rows at an even pace, on so many keys; windows of `ratio` seconds every second."""

    rows: int
    a_second: int
    keys: int
    ratio: int
    aggregate: str

    def view(self, strategy: str) -> str:
        """No two strategies share a table: each has its own query."""
        if strategy == SCAN:
            return "SELECT max(x + unix_micros(ts)) AS y FROM s"
        windows = f"HOP(s, ts, INTERVAL 1 SECOND, INTERVAL {self.ratio} SECONDS, STRATEGY => '{strategy}')"
        key = "k, " if self.keys != 1 else ""  # one group needs none
        return f"SELECT {key}window_start, {self.aggregate} AS y FROM {windows} GROUP BY {key}window_start, window_end"


def strategies(setting: Setting) -> Outcome:
    """(strategies) Panes beside windows and rows, over how many windows a row is in."""
    few = 100 if setting.brief else 1
    shapes = [Shape(100_000 // few, 100, 10, ratio, "count(*)") for ratio in RATIOS]
    lines: dict[str, list[tuple[float, float]]] = {strategy: [] for strategy in STRATEGIES}
    for shape in shapes:
        times = _race(setting, shape, STRATEGIES)
        for strategy in STRATEGIES:
            lines[strategy].append((shape.ratio, 1000 * median(times[strategy])))
    small = Shape(8_000_000 // few // few, 20, 1, 5, "max(x)")
    # These are short, and their differences shorter: so they are timed more often.
    times = _race(setting, small, (PANES, WINDOWS, SCAN), 1 if setting.brief else 5)
    ours, theirs, scan = (1000 * median(times[strategy]) for strategy in (PANES, WINDOWS, SCAN))
    what = f"{small.a_second} rows a pane, {small.ratio} panes a window"
    held = {mixture: partials_held(setting, mixture, 1 if setting.brief else 20) for mixture in SHARES}
    return Outcome(
        (
            Figure("strategies", what, "a partial for each window", ours, theirs, "ms", at_most(0.35)),
            Figure(
                "strategies",
                f"{what}, less a scan",
                "a partial for each window, less a scan",
                max(0.0, ours - scan),
                max(1.0, theirs - scan),
                "ms",
                at_most(0.35),
            ),
            *(
                Figure(
                    "strategies",
                    f"adaptive, {SHARES[mixture][0]} % of groups with one row",
                    "a partial for each window",
                    held[mixture][ADAPTIVE],
                    held[mixture][WINDOWS],
                    "partials",
                )
                for mixture in (min(SHARES), max(SHARES))
            ),
        ),
        curves=(
            Curve(
                "strategies",
                f"{shapes[0].rows:,} rows, from the first run to the answer",
                "windows that a row is in",
                "ms",
                lines,
            ),
            Curve(
                "strategies-groups",
                "Partials in the ledger, sums over 10 s every second of groups of unequal size",
                "mixture of groups with 1, 15 and 300 rows (how many have 1)",
                "",
                {
                    strategy: [(float(place), float(held[mixture][strategy])) for place, mixture in enumerate(SHARES)]
                    for strategy in HELD
                },
                steps=True,
                ticks=tuple(f"{name} ({small} %)" for name, (small, _, _) in SHARES.items()),
                medians="one",
            ),
        ),
    )


def partials_held(setting: Setting, mixture: str, hundreds: int) -> dict[str, int]:
    """How many partials each strategy keeps of the same rows: some hundred groups in a run, and others in the next."""
    setting.say(f"(strategies) partials of {mixture}")
    folder = setting.work / "groups"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    in_order([unequal(folder, mixture, hundreds, number) for number in range(RUNS)])
    shape = Shape(0, 0, 0, 10, "sum(x)")
    views, streams = {strategy: shape.view(strategy) for strategy in HELD}, {"s": STREAM.format(folder)}
    with Subject(setting.work / "home", setting.spark, folder, views, streams) as home:
        while home.step(max_rows=1) is not None:  # one file a run
            pass
        answers = {str(home.ask(f"SELECT count(*) AS n, sum(y) AS y FROM {name}")) for name in views}
        if len(answers) != 1:
            raise AssertionError(f"strategies do not agree: {answers}")
        found = home.ask("SELECT view, state_rows FROM sys.nodes")
    return {each["view"]: each["state_rows"] for each in found if each["view"] in views}


def unequal(folder: Path, mixture: str, hundreds: int, number: int) -> Path:
    """A file with the rows of a run: 10 s of groups of three sizes, each with its rows anywhere in that time."""
    import duckdb

    small, medium, _ = SHARES[mixture]
    one, some, many = SIZES
    size = f"CASE WHEN g % 100 < {small} THEN {one} WHEN g % 100 < {small + medium} THEN {some} ELSE {many} END"
    path = folder / f"rows-{number:05d}.parquet"
    rows = (
        f"SELECT {number * hundreds * 100} + g AS k, (hash(g, i) % 1000)::BIGINT AS x,"
        f" make_timestamp({START} + {number} * 10000000 + (hash({number}, g, i) % 10000000)::BIGINT)::TIMESTAMPTZ AS ts"
        f" FROM range({hundreds * 100}) AS groups(g), range({many}) AS numbers(i) WHERE i < {size}"
    )
    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")
    return path


def _race(
    setting: Setting, shape: Shape, takes_part: tuple[str, ...], times_as_often: int = 1
) -> dict[str, list[float]]:
    """One strategy after the other on the same files, after a warm-up; all must give the same answer."""
    folder = setting.work / "strategies"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    generate(folder, shape)
    times: dict[str, list[float]] = {strategy: [] for strategy in takes_part}
    answers = set()
    repeat = times_as_often * setting.repeat
    for number in range(repeat + 1):
        for strategy in takes_part:
            done = f"{number} of {repeat}" if number else "warm-up"
            setting.say(f"(strategies) {strategy}, {shape.ratio} windows a row, {done}")
            views, streams = {"v": shape.view(strategy)}, {"s": STREAM.format(folder)}
            with Subject(setting.work / "home", setting.spark, folder, views, streams) as home:
                taken = sum(home.drain(-(-shape.rows // RUNS)))
                begin = time.perf_counter()
                (answer,) = home.ask("SELECT count(*) AS n, sum(y) AS y FROM v")
                if strategy != SCAN:
                    answers.add((answer["n"], answer["y"]))
                if number:
                    times[strategy].append(taken + time.perf_counter() - begin)
    if len(answers) != 1:
        raise AssertionError(f"strategies do not agree: {answers}")
    return times


def generate(folder: Path, shape: Shape) -> list[Path]:
    """The rows of a shape in one file a run, in order of time."""
    import duckdb

    paths = [folder / f"rows-{number:05d}.parquet" for number in range(RUNS)]
    with duckdb.connect(":memory:") as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for number, path in enumerate(paths):
            low, high = (shape.rows * at // RUNS for at in (number, number + 1))
            rows = (
                f"SELECT (i % {shape.keys})::BIGINT AS k, (hash(i) % 1000)::BIGINT AS x,"
                f" make_timestamp({START} + i * 1000000 // {shape.a_second})::TIMESTAMPTZ AS ts"
                f" FROM range({low}, {high}) AS numbers(i)"
            )
            duck.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")
    in_order(paths)
    return paths
