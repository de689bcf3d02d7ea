"""Kernels beside Spark's own engine and the driver: the same runs, with the same partials, by each of them."""

from __future__ import annotations

from anabranch.bench import subject
from anabranch.bench.figures import Figure, Outcome, Setting, at_least, median
from anabranch.bench.subject import Subject

#: Who computes the runs, by the settings that have it do so.
_WAYS = {
    "kernel": "SET anabranch.backend = 'spark'; SET anabranch.kernels = on",
    "spark": "SET anabranch.backend = 'spark'; SET anabranch.kernels = off",
    "driver": "SET anabranch.backend = 'driver'",
}
_NAMES = {"spark": "Spark's own engine", "driver": "DuckDB on the driver"}


def kernels(setting: Setting) -> Outcome:
    """Count, sum and average per minute and auction, in runs of a tenth of the rows and in one run of all."""
    figures: list[Figure] = []
    phases: dict[str, dict[str, float]] = {}
    for rows in (setting.rows_a_run, setting.rows):
        times: dict[str, list[float]] = {way: [] for way in _WAYS}
        for turn in range(setting.repeat + 1):  # the first warms up
            for way in _WAYS:
                setting.say(f"(kernels) {way}, runs of {rows:,} rows, {turn} of {setting.repeat}")
                seconds = _run(setting, way, rows, phases)
                times[way] += [seconds] if turn else []
        for way, peer in _NAMES.items():
            if f"partials {way}" not in phases[_about(way, rows)]:  # more rows than the driver takes
                continue
            speeds = rows / median(times["kernel"]), rows / median(times[way])
            target = at_least(1) if way == "spark" else None
            figures.append(Figure("kernels", f"a run of {rows:,} rows", peer, *speeds, "rows/s", target))
    return Outcome(tuple(figures), (), phases)


def _run(setting: Setting, way: str, rows: int, phases: dict[str, dict[str, float]]) -> float:
    """The seconds of one run of so many rows."""
    with Subject(setting.work / "home", setting.spark, setting.folder, {"v": subject.PER_MINUTE}) as home:
        home.session.sql(_WAYS[way])
        (seconds,) = home.drain(rows, limit=1)
        phases[_about(way, rows)] = home.phases()
    return seconds


def _about(way: str, rows: int) -> str:
    return f"(kernels) {way}, {rows:,} rows"
