"""Measure (e): reading one window after many runs, beside asking the raw rows; and after ten times as many runs."""

from __future__ import annotations

import time
from datetime import datetime, timezone

from anabranch.bench import peers, subject
from anabranch.bench.data import HOUR, MINUTE, SECOND, START, Bids, generate
from anabranch.bench.figures import Figure, Outcome, Setting, at_least, at_most, median
from anabranch.bench.subject import ON_CLOSE, Subject

FEW, MANY = 200, 2_000
#: The runs after the first 200 are small: it is their number that counts here.
ROWS_OF_LATER_RUNS = 500
#: Up to this many rows the many runs are fewer, so that a quick look stays quick.
QUICK_ROWS, QUICK_RUNS = 1_000_000, 600
READS, UNTIMED_READS = 9, 3
WINDOW = START + 40 * MINUTE


def one_window(setting: Setting) -> Outcome:
    """(e) One window of the view of (a), after 200 runs and after 2,000."""
    few = 4 if setting.brief else FEW
    many = MANY if setting.rows > QUICK_ROWS else min(QUICK_RUNS, 3 * few)
    folder, later = setting.work / "cut", setting.work / "later"
    setting.say("(e) cutting the data into small files")
    paths = generate(folder, Bids(setting.rows, few))
    rows = ROWS_OF_LATER_RUNS * (many - few)
    fresh = generate(later, Bids(rows, many - few, seed=3, start=START + HOUR, late=0.01))
    start = datetime.fromtimestamp(WINDOW // SECOND, timezone.utc)
    question = f"SELECT auction, bids, total FROM v WHERE window_start = TIMESTAMP '{start:%Y-%m-%d %H:%M:%S}'"
    phases: dict[str, dict[str, float]] = {}
    with Subject(setting.work / "home", setting.spark, folder, {"v": subject.PER_MINUTE + ON_CLOSE}) as home:
        _feed(setting, home, Bids(setting.rows, few).rows_a_file, few, 0)
        phases["(e) first runs"] = home.phases()
        reads, answer = _reads(home, question)
        raw: dict[bool, list[float]] = {False: [], True: []}
        for by_hand, taken in raw.items():
            for number in range(READS + UNTIMED_READS):
                # The raw rows lie in few, large files: the batch query is not to suffer from the cut.
                seconds, expected = peers.window_by_batch(setting.streaming, setting.folder, start, by_hand=by_hand)
                if number >= UNTIMED_READS:
                    taken.append(seconds)
            _check(answer, expected)
        for path in fresh:
            path.rename(folder / path.name)
        home.records.clear()
        _feed(setting, home, ROWS_OF_LATER_RUNS, many, len(paths))
        phases["(e) later runs"] = home.phases()
        reads_later, answer_later = _reads(home, question)
        _check(answer_later, expected)
    what = "reading one window"
    return Outcome(
        (
            # A ratio of speeds: reads per second of each.
            Figure(
                "e", f"{what} after {few:,} runs", "batch over raw rows", 1 / median(reads), 1 / median(raw[False]),
                "reads/s", at_least(8),
            ),
            Figure(
                "e", f"{what} after {few:,} runs", "batch, a range of times by hand", 1 / median(reads),
                1 / median(raw[True]), "reads/s", at_least(8),
            ),
            Figure(
                "e", f"{what} after {many:,} runs", f"after {few:,} runs",
                1000 * median(reads_later), 1000 * median(reads), "ms", at_most(1.5),
            ),
        ),
        phases=phases,
    )  # fmt: skip


def _feed(setting: Setting, home: Subject, rows: int, until: int, done: int) -> None:
    while home.step(rows) is not None:
        done += 1
        if done % 50 == 0:
            setting.say(f"(e) run {done:,} of {until:,}")


def _reads(home: Subject, question: str) -> tuple[list[float], list[dict[str, object]]]:
    taken = []
    answer: list[dict[str, object]] = []
    for number in range(READS + UNTIMED_READS):
        begin = time.perf_counter()
        answer = home.ask(question)
        if number >= UNTIMED_READS:
            taken.append(time.perf_counter() - begin)
    return taken, answer


def _check(answer: list[dict[str, object]], expected: list[dict[str, object]]) -> None:
    def ordered(rows: list[dict[str, object]]) -> list[tuple[str, ...]]:
        return sorted(tuple(str(row[name]) for name in ("auction", "bids", "total")) for row in rows)

    if ordered(answer) != ordered(expected):
        raise AssertionError(f"the window has {len(answer)} rows where the raw rows give {len(expected)}, or others")
