"""Measures (a) and (b): windows over the whole stream, from the first run to the last written window."""

from __future__ import annotations

from pathlib import Path

from anabranch.bench import peers, subject
from anabranch.bench.figures import Figure, Outcome, Setting, Target, Totals, at_least, at_most, median
from anabranch.bench.peers import Windows
from anabranch.bench.subject import ON_CLOSE, Subject

NATIVE, BATCH, DUCKDB = "Structured Streaming", "Spark batch", "DuckDB"


def tumbling(setting: Setting) -> Outcome:
    """(a) One-minute windows per auction: count, sum and average, late windows corrected."""
    view, windows = subject.PER_MINUTE + ON_CLOSE, peers.PER_MINUTE
    times, phases, totals = _race(setting, "a", view, windows, ("runs", "free", "native", "native free", "batch"))
    speed = {name: setting.rows / median(seconds) for name, seconds in times.items()}
    files = f"{setting.files_a_run} files a run"
    return Outcome(
        (
            _figure("a", f"tumbling, {files}", NATIVE, speed["runs"], speed["native"], at_least(3)),
            _figure("a", "tumbling, runs free to grow", NATIVE, speed["free"], speed["native free"], at_least(6)),
            _figure("a", "tumbling, runs free to grow", BATCH, speed["free"], speed["batch"], at_least(0.4)),
            _figure("a", "tumbling, runs free to grow", DUCKDB, speed["free"], speed["duckdb"], at_least(0.45)),
        ),
        (totals,),
        phases,
    )


def hopping(setting: Setting) -> Outcome:
    """(b) Hopping windows per auction: 60 s every 10 s; and what it costs to capture for finer ones."""
    view, windows = subject.HOPPING + ON_CLOSE, peers.HOPPING
    times, phases, totals = _race(setting, "b", view, windows, ("runs", "native", "batch"))
    speed = {name: setting.rows / median(seconds) for name, seconds in times.items()}
    coarse, fine = [], []
    for number in range(setting.repeat):
        setting.say(f"(b) capturing, {number + 1} of {setting.repeat}")
        coarse.append(_captured(setting, subject.PER_MINUTE))
        fine.append(_captured(setting, subject.HOPPING_FINE))
    return Outcome(
        (
            _figure("b", "hopping 60 s / 10 s", NATIVE, speed["runs"], speed["native"], at_least(8)),
            _figure("b", "hopping 60 s / 10 s", BATCH, speed["runs"], speed["batch"], None),
            _figure("b", "hopping 60 s / 10 s", DUCKDB, speed["runs"], speed["duckdb"], None),
            Figure(
                "b",
                "capturing for 60 s / 1 s",
                "capturing for (a)",
                1000 * median(fine),
                1000 * median(coarse),
                "ms",
                at_most(2),
            ),
        ),
        (totals,),
        phases,
    )


def _figure(measure: str, what: str, peer: str, ours: float, theirs: float, target: Target | None) -> Figure:
    return Figure(measure, what, peer, ours, theirs, "rows/s", target)


def _race(
    setting: Setting, measure: str, view: str, windows: Windows, takes_part: tuple[str, ...]
) -> tuple[dict[str, list[float]], dict[str, dict[str, float]], Totals]:
    """Everybody in turn, `repeat` times, after a warm-up over a part of the files that nobody is timed on."""
    times: dict[str, list[float]] = {}
    phases: dict[str, dict[str, float]] = {}
    shown: list[tuple[int, int, int | None]] = []
    part = setting.work / "part"
    part.mkdir(exist_ok=True)
    for path in sorted(setting.folder.iterdir())[: 3 * setting.files_a_run]:
        if not (part / path.name).exists():
            (part / path.name).hardlink_to(path)

    def ours(folder: Path, name: str, max_rows: int | None, count: bool) -> float:
        with Subject(setting.work / "home", setting.spark, folder, {"v": view}) as home:
            seconds = sum(home.drain(max_rows)) + home.end()
            phases[f"({measure}) {name}"] = home.phases()
            if count:
                total = "sum(total)" if windows.tumbling else "NULL"
                answer = home.ask(f"SELECT count(*) AS w, sum(bids) AS r, {total} AS t FROM v")[0]
                shown.append((answer["w"], answer["r"], answer["t"]))
        return seconds

    native = setting.work / "native"
    for number in range(setting.repeat + 1):
        warm = number > 0
        folder = setting.folder if warm else part
        done = f"{number} of {setting.repeat}" if warm else "warm-up"
        for name in (*takes_part, "duckdb"):
            setting.say(f"({measure}) {name}, {done}")
            if name in ("runs", "free"):
                seconds = ours(folder, name, setting.rows_a_run if name == "runs" else None, warm)
            elif name in ("native", "native free"):
                files = setting.files_a_run if name == "native" else None
                # At the end of this turn stands what the query with equal runs wrote.
                place = native if name == "native" else setting.work / "native-free"
                seconds = peers.native(setting.streaming, folder, place, windows, files).seconds
            elif name == "batch":
                seconds = peers.batch(setting.streaming, folder, setting.work / "batch", windows)
            else:
                seconds = peers.duck(folder, setting.work / "duckdb", windows)
            if warm:
                times.setdefault(name, []).append(seconds)
    truth = peers.truth(setting.folder, windows)
    lost = peers.losses(setting.folder, native, windows)
    exact = all(each == (truth.windows, truth.rows, truth.total) for each in shown)
    return times, phases, Totals(measure, truth.rows, shown[-1][1], exact, lost.dropped, lost.never_emitted)


def _captured(setting: Setting, view: str) -> float:
    with Subject(setting.work / "home", setting.spark, setting.folder, {"v": view}) as home:
        return sum(home.drain(setting.rows_a_run))
