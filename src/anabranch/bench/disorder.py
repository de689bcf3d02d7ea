"""Measure (disorder): what order costs those who need it, by the models of window strategies; no Spark, no clock.

Rows come in the disorder of `anabranch.testing.disorder`. Three experiments:

- progress by slack beside progress by punctuation: how many windows are wrong, by how much, how late answers are;
- two sources, one behind: what is held by partials of open windows, and by a buffer that puts rows in order first;
- groups of unequal size: what is held by partials of windows, by panes, and by a choice for each group.

Times are milliseconds. The figures are those of the models, the same on every machine.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeVar

from anabranch.algebra.progress import combine
from anabranch.algebra.windows.base import Row
from anabranch.algebra.windows.costs import Thresholds
from anabranch.algebra.windows.sliding import SlidingWindows
from anabranch.algebra.windows.strategies import (
    COUNT,
    Adaptive,
    Buffering,
    ByPane,
    ByWindow,
    Fold,
    Punctuation,
    Results,
    Strategy,
    answers,
)
from anabranch.bench.figures import Curve, Figure, Outcome, Picture
from anabranch.testing.disorder import Arrival, band, block_sorted, skewed

P = TypeVar("P")
Late = Literal["generous", "consistent"]
Say = Callable[[str], None]
#: A row as the generators get it: its time, its group and a number to add up.
Given = tuple[int, Hashable, int]

SECOND = 1_000
MODEL = "models in plain Python, not the engine"
PUNCTUATION, GENEROUS, CONSISTENT = "punctuation", "slack, generous", "slack, consistent"


def disorder(brief: bool, say: Say) -> Outcome:
    """(disorder) All three experiments; if brief, on so little that only their shape means anything."""
    say("(disorder) averages in a band")
    averages = judged(AVERAGES, windows=10 if brief else 100, density=0.4 if brief else 1)
    say("(disorder) counts in blocks")
    counts = judged(COUNTS, windows=10 if brief else 100, density=0.1 if brief else 1)
    say("(disorder) two sources")
    sources = two_sources(rate=8 if brief else 168, groups=5 if brief else 100)
    say("(disorder) groups")
    groups = unequal_groups(stretches=2 if brief else 6)
    return Outcome(
        (
            _delay(AVERAGES, averages),
            _delay(COUNTS, counts),
            _held(
                f"held, a source {SKEWS[-1]} s behind", "rows in order", sources[PARTIALS][-1], sources[IN_ORDER][-1]
            ),
            *(
                _held(f"held, {name}, {side}", EAGER, groups[side][place].peak, groups[EAGER][place].peak)
                for place, name in ((0, "DS1"), (-1, "DS5"))
                for side in (ADAPTIVE, PANES)
            ),
        ),
        pictures=(
            picture_of(AVERAGES, averages, AVERAGES.name, MODEL),
            picture_of(COUNTS, counts, COUNTS.name, MODEL),
            _picture_of_sources(sources),
            _picture_of_groups(groups),
        ),
    )


def _held(what: str, peer: str, ours: float, theirs: float) -> Figure:
    return Figure("disorder", what, peer, ours, theirs, "entries", note=MODEL)


# ------------------------------------------------------------------------------------------ slack or punctuation


@dataclass(frozen=True)
class Question:
    """A windowed aggregate over rows in some disorder, and the slacks to try."""

    name: str
    title: str
    windows: SlidingWindows
    rows_a_second: float
    arrive: Callable[[list[Given]], Iterable[Arrival]]
    average: bool
    slacks: tuple[float, ...]

    def given(self, windows: int, density: float = 1) -> Asked:
        """Rows for so many windows that are judged, as they come, and what is right."""
        judge_until = self.windows.size + windows * self.windows.slide
        # Rows go on after the last window that is judged, so that every policy gets to close it.
        rows = at_random(judge_until + 3 * self.windows.size, density * self.rows_a_second)
        arrivals = list(self.arrive(rows))
        steps, numbers = _steps(arrivals)
        fold: Fold[Any] = _average(numbers) if self.average else COUNT
        value: Callable[[Any], float] = _quotient if self.average else float
        steps_of_rows = [step for _, step in steps if isinstance(step, Row)]
        truth = {
            wid: value(found)
            for (wid, _), found in answers(self.windows, steps_of_rows, fold).items()
            if wid >= 0 and self.windows.bounds(wid)[1] <= judge_until
        }
        return Asked(arrivals, steps, fold, value, truth)


@dataclass(frozen=True)
class Asked:
    """What a question is asked of: what comes, the same as strategies take it, how to add it up, and what is right."""

    arrivals: list[Arrival]
    steps: list[tuple[float, Row | Punctuation]]
    fold: Fold[Any]
    value: Callable[[Any], float]
    truth: dict[int, float]


AVERAGES = Question(
    "disorder-band",
    "An average over 64 s every 6.4 s, rows up to 3.2 s out of order",
    SlidingWindows(64 * SECOND, 6_400),
    10,
    lambda rows: band(rows, 1, 3_200, time=operator.itemgetter(0), punctuate=6_400),
    True,
    (0, 0.32, 0.64, 1.28, 2.56, 3.2),
)
COUNTS = Question(
    "disorder-blocks",
    "A count over 600 s every 60 s, rows in shuffled blocks of 490 s",
    SlidingWindows(600 * SECOND, 60 * SECOND),
    2,
    lambda rows: block_sorted(rows, 1, 490 * SECOND, time=operator.itemgetter(0)),
    False,
    (0, 54.4, 109.1, 218.2, 327.3, 434.2, 490.9, 600),
)


@dataclass(frozen=True)
class Judged:
    """What a policy came to: the mean error and the wrong windows in percent, the mean delay in seconds.

    The delay of an answer is what the clock of arrivals shows when it comes, less the end of its window.
    """

    error: float
    wrong: float
    delay: float


def compared(truth: dict[int, float], found: dict[int, tuple[float, float]]) -> Judged:
    """Answers, each with its delay, beside those that are right."""
    errors = [abs(right - found[wid][0]) / right if wid in found else 1.0 for wid, right in truth.items()]
    delays = [found[wid][1] for wid in truth if wid in found]
    wrong = sum(error > 1e-9 for error in errors)
    return Judged(_percent(sum(errors), len(errors)), _percent(wrong, len(errors)), _mean(delays))


def judged(question: Question, windows: int, density: float = 1) -> dict[str, list[Judged]]:
    """Each policy on the same rows, at each slack; punctuation knows no slack, and comes to the same for all."""
    given = question.given(windows, density)
    rows_alone = [(at, step) for at, step in given.steps if isinstance(step, Row)]

    def policy(strategy: Strategy[Any], steps_of_rows: Sequence[tuple[float, Row | Punctuation]]) -> Judged:
        found: dict[int, tuple[float, float]] = {}
        for at, step in steps_of_rows:
            closed = strategy.add(step) if isinstance(step, Row) else strategy.punctuate(step)
            for (wid, _), answer in closed.items():
                found[wid] = (given.value(answer), (at - question.windows.bounds(wid)[1]) / SECOND)
        return compared(given.truth, found)

    def slack(late: Late) -> list[Judged]:
        return [
            policy(Buffering(question.windows, given.fold, round(seconds * SECOND), late), rows_alone)
            for seconds in question.slacks
        ]

    exact = policy(ByWindow(question.windows, given.fold), given.steps)
    if exact.wrong:
        raise AssertionError(f"with punctuation {exact.wrong} % of the windows are wrong")
    return {
        PUNCTUATION: [exact] * len(question.slacks),
        GENEROUS: slack("generous"),
        CONSISTENT: slack("consistent"),
    }


def least_exact(question: Question, slacks: list[Judged]) -> tuple[float, Judged]:
    """The least slack with which no window is wrong, and what it came to."""
    pairs = zip(question.slacks, slacks, strict=True)
    return next((seconds, each) for seconds, each in pairs if not each.wrong)


def _delay(question: Question, found: dict[str, list[Judged]]) -> Figure:
    seconds, slack = least_exact(question, found[GENEROUS])
    what = f"delay of {'averages' if question.average else 'counts'} with punctuation"
    return Figure(
        "disorder", what, f"slack of {seconds:g} s", found[PUNCTUATION][0].delay, slack.delay, "s", note=MODEL
    )


def picture_of(question: Question, found: dict[str, list[Judged]], name: str, who: str) -> Picture:
    """How much is wrong, and how late it is, over the slack."""

    def curve(measure: str, title: str, unit: str) -> Curve:
        lines = {
            side: [(x, getattr(each, measure)) for x, each in zip(question.slacks, policies, strict=True)]
            for side, policies in found.items()
        }
        if GENEROUS in lines and lines[GENEROUS] == lines[CONSISTENT]:
            lines = {PUNCTUATION: lines[PUNCTUATION], "slack, either way": lines[GENEROUS]}
        return Curve(f"{name}-{measure}", title, "slack in seconds", unit, lines, steps=True)

    return Picture(
        name,
        question.title,
        f"mean of the windows; {who}",
        (
            curve("error", "Mean error", "%"),
            curve("wrong", "Wrong windows", "%"),
            curve("delay", "Delay of the answer after the end of the window", "s"),
        ),
    )


# ----------------------------------------------------------------------------------------------- two sources

SKEWS = tuple(range(0, 41, 5))
PARTIALS, IN_ORDER = "partials of windows", "rows in order"
MINUTES = SlidingWindows(60 * SECOND, 60 * SECOND)


class InOrder(Strategy[P]):
    """Rows are held until no earlier one can come, and then told in order to a strategy that answers at punctuation."""

    def __init__(self, inner: Strategy[P]) -> None:
        self.inner = inner
        self.rows: list[Row] = []

    def add(self, row: Row) -> Results[P]:
        self.rows.append(row)
        return {}

    def punctuate(self, punctuation: Punctuation) -> Results[P]:
        self.rows.sort(key=lambda row: row.value)
        ready = [row for row in self.rows if row.value < punctuation.value]
        self.rows = self.rows[len(ready) :]
        for row in ready:
            self.inner.add(row)
        return self.inner.punctuate(punctuation)

    @property
    def held(self) -> int:
        return len(self.rows) + self.inner.held


def two_sources(rate: int, groups: int) -> dict[str, list[float]]:
    """The most that is held by a count per minute and group, for each length of time that one source is behind."""
    rows = at_random(150 * SECOND, 2 * rate, groups)
    peaks: dict[str, list[float]] = {PARTIALS: [], IN_ORDER: []}
    for seconds in SKEWS:
        behind = {"one": 0, "other": seconds * SECOND}
        arrivals = list(skewed(rows, 1, behind, time=operator.itemgetter(0), punctuate=SECOND))
        ours, theirs = hold(ByWindow(MINUTES, COUNT), arrivals), hold(InOrder(ByWindow(MINUTES, COUNT)), arrivals)
        _check_same(ours, theirs)
        peaks[PARTIALS].append(ours.peak)
        peaks[IN_ORDER].append(theirs.peak)
    return peaks


def _picture_of_sources(found: dict[str, list[float]]) -> Picture:
    lines = {side: [(float(x), y) for x, y in zip(SKEWS, peaks, strict=True)] for side, peaks in found.items()}
    return Picture(
        "disorder-skew",
        "A count per minute and group over two sources, one behind the other",
        MODEL,
        (
            Curve(
                "disorder-skew",
                "Rows and partials held at the peak",
                "seconds that one source is behind",
                "",
                lines,
                steps=True,
            ),
        ),
    )


# --------------------------------------------------------------------------------------------- groups of all sizes

#: How many of 100 groups are small, medium and large, and how many rows these have.
SHARES = {"DS1": (39, 51, 10), "DS2": (66, 28, 6), "DS3": (77, 19, 4), "DS4": (82, 15, 3), "DS5": (87, 11, 2)}
SIZES = (1, 15, 300)
PANES, EAGER, ADAPTIVE = "panes", "partials of windows", "adaptive"


@dataclass(frozen=True)
class Held:
    """The most that was held and the mean, in rows and partials; and the answers."""

    peak: float
    mean: float
    results: Results[Any]


def unequal_groups(stretches: int) -> dict[str, list[Held]]:
    """What a sum over 10 s every second holds for each mixture of groups.

    A hundred groups live in each stretch of 10 s, with their rows anywhere in it, and others in the next.
    """
    windows = SlidingWindows(10 * SECOND, SECOND)
    limits = Thresholds.of(windows)
    found: dict[str, list[Held]] = {PANES: [], EAGER: [], ADAPTIVE: []}
    for shares in SHARES.values():
        chance = random.Random(1)
        rows: list[Given] = [
            (
                stretch * windows.size + chance.randrange(windows.size),
                (stretch, size, number),
                chance.randrange(40, 1500),
            )
            for stretch in range(stretches)
            for size, share in zip(SIZES, shares, strict=True)
            for number in range(share)
            for _ in range(size)
        ]
        arrivals = list(band(rows, 1, 0, time=operator.itemgetter(0), punctuate=SECOND))
        _, numbers = _steps(arrivals)
        fold: Fold[int] = Fold(0, lambda row, of=numbers: of[row.number], operator.add, operator.sub)  # type: ignore[misc]
        # Until the first groups have gone, there are fewer than there will be.
        since = windows.size
        found[EAGER].append(hold(ByWindow(windows, fold), arrivals, since))
        found[ADAPTIVE].append(hold(Adaptive(windows, fold, limits.up, limits.down), arrivals, since))
        found[PANES].append(hold(ByPane(windows, fold), arrivals, since))
    for ways in zip(*found.values(), strict=True):
        for one, other in pairwise(ways):
            _check_same(one, other)
    return found


def _picture_of_groups(found: dict[str, list[Held]]) -> Picture:
    ticks = tuple(f"{name} ({small} %)" for name, (small, _, _) in SHARES.items())
    of_x = "mixture of groups with 1, 15 and 300 rows (how many have 1)"

    def curve(measure: str, title: str) -> Curve:
        lines = {
            side: [(float(place), getattr(each, measure)) for place, each in enumerate(ways)]
            for side, ways in found.items()
        }
        return Curve(f"disorder-groups-{measure}", title, of_x, "", lines, True, ticks)

    return Picture(
        "disorder-groups",
        "A sum over 10 s every second, of groups of unequal size",
        MODEL,
        (curve("peak", "Rows and partials held at the peak"), curve("mean", "Rows and partials held on average")),
    )


# ------------------------------------------------------------------------------------------------- what is shared


def hold(strategy: Strategy[P], arrivals: list[Arrival], since: float = 0) -> Held:
    """Tell a strategy all that comes; progress is the least of what the sources promise."""
    bounds: dict[Hashable, int | None] = {each.source: None for each in arrivals}
    sizes: list[int] = []
    results: Results[Any] = {}
    number = 0
    progress: int | None = None
    for each in arrivals:
        if each.punctuation:
            bounds[each.source] = each.time
            together = combine(bounds.values())
            if together is not None and together != progress:
                progress = together
                results.update(strategy.punctuate(Punctuation(together)))
        else:
            results.update(strategy.add(Row(each.time, number, each.payload[1])))
            number += 1
        if each.at >= since:
            sizes.append(strategy.held)
    return Held(max(sizes), _mean(sizes), results)


def _check_same(one: Held, other: Held) -> None:
    if one.results != other.results:
        raise AssertionError("two ways to compute the same windows have given different answers")


def at_random(until: int, rows_a_second: float, groups: int = 1) -> list[Given]:
    """Rows anywhere in the time from 0 to an end."""
    chance = random.Random(1)
    count = round(until / SECOND * rows_a_second)
    return [(chance.randrange(until), chance.randrange(groups), chance.randrange(1, 200)) for _ in range(count)]


def _steps(arrivals: Iterable[Arrival]) -> tuple[list[tuple[float, Row | Punctuation]], list[int]]:
    """What comes as strategies take it, each with its time of arrival, of one key; and the numbers of the rows."""
    steps: list[tuple[float, Row | Punctuation]] = []
    numbers: list[int] = []
    for each in arrivals:
        if each.punctuation:
            steps.append((each.at, Punctuation(each.time)))
        else:
            steps.append((each.at, Row(each.time, len(numbers))))
            numbers.append(each.payload[2])
    return steps, numbers


def _average(numbers: list[int]) -> Fold[tuple[int, int]]:
    return Fold((0, 0), lambda row: (numbers[row.number], 1), lambda one, other: (one[0] + other[0], one[1] + other[1]))


def _quotient(found: tuple[int, int]) -> float:
    return found[0] / found[1]


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)


def _percent(part: float, whole: int) -> float:
    return 100 * part / whole
