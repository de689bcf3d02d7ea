"""Measures (c) and (d): what a small run costs, and what many views cost beside one."""

from __future__ import annotations

from pathlib import Path

from anabranch.bench import peers, subject
from anabranch.bench.data import Bids, generate
from anabranch.bench.figures import Figure, Outcome, Setting, at_most, median
from anabranch.bench.subject import ON_CLOSE, TUMBLE, Subject

SMALL_ROWS = 2_000
#: How many small runs are timed, after so many that are not.
SMALL_RUNS, WARMING_RUNS = 40, 15
BRIEF_RUNS = 2


def small_runs(setting: Setting) -> Outcome:
    """(c) Runs of 2,000 rows beside a micro-batch that only aggregates and writes."""
    folder = _small_files(setting)
    ours: list[float] = []
    emitting: list[float] = []
    bare: list[float] = []
    phases: dict[str, dict[str, float]] = {}
    for number in range(setting.repeat):
        setting.say(f"(c) small runs, {number + 1} of {setting.repeat}")
        for name, seconds, view in (
            ("view", ours, subject.PER_MINUTE),
            ("view that emits", emitting, subject.PER_MINUTE + ON_CLOSE),
        ):
            taken, phases[f"(c) {name}"] = _timed(setting, folder, {"v": view})
            seconds += taken
        streamed = peers.bare_batches(setting.streaming, folder, setting.work / "bare", 1)
        bare += streamed.runs[_warming(setting) :]
    peer = "bare foreachBatch"
    return Outcome(
        (
            _cost("c", "run of 2,000 rows", peer, ours, bare, 1.2),
            _cost("c", "run of 2,000 rows, closing windows", peer, emitting, bare, None),
        ),
        phases=phases,
    )


def _timed(setting: Setting, folder: Path, views: dict[str, str]) -> tuple[list[float], dict[str, float]]:
    """The seconds of each small run once they are warm, and the mean milliseconds of their phases."""
    with Subject(setting.work / "home", setting.spark, folder, views) as home:
        home.drain(SMALL_ROWS, limit=_warming(setting))
        home.records.clear()
        seconds = home.drain(SMALL_ROWS)
        return seconds, {name: round(value / len(seconds), 1) for name, value in home.phases().items()}


def _warming(setting: Setting) -> int:
    return BRIEF_RUNS if setting.brief else WARMING_RUNS


def _small_files(setting: Setting) -> Path:
    folder = setting.work / "small"
    if not folder.exists():
        count = _warming(setting) + (BRIEF_RUNS if setting.brief else SMALL_RUNS)
        # As dense in time as the large stream, or a run would be spread over many more windows than there.
        span = 3_600_000_000 * SMALL_ROWS * count // max(setting.rows, SMALL_ROWS * count)
        generate(folder, Bids(SMALL_ROWS * count, count, seed=2, span=span))
    return folder


# --------------------------------------------------------------------------------------------- many views


def _view(keys: str, items: str, where: str = "", source: str = TUMBLE) -> str:
    columns = f"{keys}, window_start" if keys else "window_start"
    condition = f" WHERE {where}" if where else ""
    return f"SELECT {columns}, {items} FROM {source}{condition} GROUP BY {columns}"


def _hop(slide: int, size: int) -> str:
    return f"HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL {slide} MINUTES, INTERVAL {size} MINUTES)"


TWO_KEY_SETS = {
    "v": subject.PER_MINUTE,
    "v2": _view("auction", "max(price) AS highest", source=_hop(1, 5)),
    "v3": _view("auction", "count(*) AS bids", "channel = 'web'"),
    "v4": _view("auction", "min(price) AS lowest, count(*) AS bids", "price > 1000", _hop(2, 10)),
    "v5": _view("channel", "count(*) AS bids, sum(price) AS total"),
    "v6": _view("channel", "avg(price) AS average", source=_hop(1, 15)),
    "v7": _view("channel", "max(price) AS highest", "auction < 100"),
    "v8": _view("channel", "stddev(price) AS spread", source=_hop(5, 60)),
}
_KEY_SETS = ("auction", "channel", "bidder", "auction, channel", "bidder, channel", "auction, bidder", "", "price")
EIGHT_KEY_SETS = {
    f"v{number}": _view(keys, "count(*) AS bids, sum(price) AS total") for number, keys in enumerate(_KEY_SETS)
}
ONE_VIEW = {"v": subject.PER_MINUTE}


def many_views(setting: Setting) -> Outcome:
    """(d) Eight views beside one, with two key sets and with eight, in large runs and in small ones."""
    large: dict[str, list[float]] = {"one": [], "two": [], "eight": []}
    small: dict[str, list[float]] = {"one": [], "eight": []}
    phases: dict[str, dict[str, float]] = {}
    sets = {"one": ONE_VIEW, "two": TWO_KEY_SETS, "eight": EIGHT_KEY_SETS}
    for number in range(setting.repeat + 1):
        for name, views in sets.items():
            setting.say(f"(d) large runs, {name}, " + (f"{number} of {setting.repeat}" if number else "warm-up"))
            with Subject(setting.work / "home", setting.spark, setting.folder, views) as home:
                # The eight key sets take long and have no target: a few runs of them say enough.
                taken = home.drain(setting.rows_a_run, limit=2 if number == 0 else 4 if name == "eight" else None)
                if number:
                    large[name].append(median(taken))
                    phases[f"(d) large, {name}"] = home.phases()
    folder = _small_files(setting)
    for number in range(setting.repeat):
        setting.say(f"(d) small runs, {number + 1} of {setting.repeat}")
        for name, seconds in small.items():
            taken, phases[f"(d) small, {name}"] = _timed(setting, folder, sets[name])
            seconds += taken
    rows = f"{setting.rows_a_run:,}-row runs"
    return Outcome(
        (
            _cost("d", f"8 views, 2 key sets, {rows}", "one view", large["two"], large["one"], 2),
            _cost("d", "8 views, 8 key sets, 2,000-row runs", "one view", small["eight"], small["one"], 3),
            _cost("d", f"8 views, 8 key sets, {rows}", "one view", large["eight"], large["one"], None),
        ),
        phases=phases,
    )


def _cost(measure: str, what: str, peer: str, ours: list[float], theirs: list[float], limit: float | None) -> Figure:
    target = None if limit is None else at_most(limit)
    return Figure(measure, what, peer, 1000 * median(ours), 1000 * median(theirs), "ms", target)
