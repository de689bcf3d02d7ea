"""Measure (f): a run of only very late rows, every window of which was shown already, beside an on-time run."""

from __future__ import annotations

from pathlib import Path

from anabranch.bench import subject
from anabranch.bench.data import HOUR, MINUTE, START, Bids, generate
from anabranch.bench.figures import Figure, Outcome, Setting, at_most, median
from anabranch.bench.subject import ON_CLOSE, Subject

KINDS = ("on time", "late stretch", "late scattered")


def late_runs(setting: Setting) -> Outcome:
    """(f) The same number of rows on time, an hour late in one stretch, and late all over the hour."""
    rows = setting.rows_a_run
    span = HOUR * rows // setting.rows
    folder, waiting = setting.work / "late", setting.work / "late-waiting"
    setting.say("(f) filling a home")
    generate(folder, Bids(setting.rows, setting.files))
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    phases: dict[str, dict[str, float]] = {}
    with Subject(setting.work / "home", setting.spark, folder, {"v": subject.PER_MINUTE + ON_CLOSE}) as home:
        home.drain(setting.rows_a_run)
        fed = setting.rows
        for number in range(setting.repeat + 1):
            stretches = {
                "on time": (START + HOUR + number * span, span),
                "late stretch": (START + number * span % (HOUR - span or 1), span),
                "late scattered": (START, 50 * MINUTE),
            }
            for kind, (start, length) in stretches.items():
                setting.say(f"(f) {kind}, " + (f"{number} of {setting.repeat}" if number else "warm-up"))
                bids = Bids(rows, setting.files_a_run, seed=10 * number + len(kind), start=start, span=length, late=0)
                _deliver(generate(waiting, bids), folder, f"{number}-{kind.replace(' ', '-')}")
                home.records.clear()
                taken = home.step()
                assert taken is not None
                fed += rows
                if number:
                    seconds[kind].append(taken)
                    phases[f"(f) {kind}"] = home.phases()
        home.end()
        shown = home.ask("SELECT sum(bids) AS rows FROM v")[0]["rows"]
        if shown != fed:
            raise AssertionError(f"{fed:,} rows went in, and the windows count {shown:,}")
    on_time = 1000 * median(seconds["on time"])
    what = f"run of {rows:,} rows,"
    return Outcome(
        (
            _late(f"{what} all an hour late, in one stretch", seconds["late stretch"], on_time),
            _late(f"{what} all late, over 50 minutes", seconds["late scattered"], on_time),
        ),
        phases=phases,
    )


def _late(what: str, seconds: list[float], on_time: float) -> Figure:
    return Figure("f", what, "on-time run", 1000 * median(seconds), on_time, "ms", at_most(1.5))


def _deliver(paths: list[Path], folder: Path, prefix: str) -> None:
    for path in paths:
        path.rename(folder / f"{prefix}-{path.name}")
