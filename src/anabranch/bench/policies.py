"""Measure (policies): progress by slack beside progress by punctuation, and two sources, one behind; on the engine.

The experiments of `disorder` with its rows, through runs of a home:

- windows that close by `WATERMARK ... AS ts - INTERVAL slack`, with late rows left out, and by `FROM PUNCTUATION`: how
  many are wrong, by how much, how long after its end an answer is there, on the clock of arrivals;
- groups that are in memory for a view that gives every change of a count per minute, beside the rows that somebody
  has to hold who puts them in order first, which is the model of `disorder`: no engine here does that.

Bounds hold after a run, so that a row which comes late inside a run is not late: answers are a little better than those
of the models, and come up to a run later.
"""

from __future__ import annotations

import operator
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from anabranch.algebra.windows.strategies import COUNT, ByWindow
from anabranch.bench.data import START, in_order
from anabranch.bench.disorder import (
    AVERAGES,
    COUNTS,
    IN_ORDER,
    MINUTES,
    PUNCTUATION,
    SECOND,
    SKEWS,
    InOrder,
    Judged,
    Question,
    at_random,
    compared,
    hold,
    least_exact,
    picture_of,
)
from anabranch.bench.figures import Curve, Figure, Outcome, Picture, Setting
from anabranch.bench.subject import Subject
from anabranch.plan.view import View
from anabranch.testing.disorder import Arrival, skewed

SLACK = "slack, late rows left out"
GROUPS = "groups in memory"
COLUMNS = "mark BOOLEAN, source STRING, k BIGINT, x BIGINT, ts TIMESTAMP"
BY_MARK = "FROM PUNCTUATION WHERE mark"
ENGINE = "the engine"
#: How long the first row of a run waits for others, in milliseconds.
WAIT = 10 * SECOND


def policies(setting: Setting) -> Outcome:
    """(policies) Both questions of slack or punctuation, and two sources."""
    averages = judged(setting, AVERAGES, run=24)
    counts = judged(setting, COUNTS, run=100)
    sources = two_sources(setting, rate=8 if setting.brief else 168, groups=5 if setting.brief else 100)
    return Outcome(
        (
            _delay(AVERAGES, averages),
            _delay(COUNTS, counts),
            Figure(
                "policies",
                f"groups in memory, a source {SKEWS[-1]} s behind",
                "rows in order (a model)",
                sources[GROUPS][-1],
                sources[IN_ORDER][-1],
                "entries",
            ),
        ),
        pictures=(
            picture_of(AVERAGES, averages, "policies-band", ENGINE),
            picture_of(COUNTS, counts, "policies-blocks", ENGINE),
            _picture_of_sources(sources),
        ),
    )


# ------------------------------------------------------------------------------------------ slack or punctuation


def judged(setting: Setting, question: Question, run: int) -> dict[str, list[Judged]]:
    """Each policy on the same rows, in runs of so many."""
    windows, folder = (4 if setting.brief else 25), setting.work / "policies"
    given = question.given(windows, 0.05 if setting.brief else 1)
    value = "avg(x)" if question.average else "CAST(count(*) AS DOUBLE)"
    hop = f"HOP(s, ts, {_interval(question.windows.slide)}, {_interval(question.windows.size)})"
    view = (
        f"SELECT window_end, {value} AS y FROM {hop} GROUP BY window_start, window_end EMIT ON WINDOW CLOSE LATE DROP"
    )

    def policy(watermark: str, arrivals: list[Arrival]) -> Judged:
        stretches = list(_runs(arrivals, run))
        _write(folder, [rows for _, rows in stretches])
        streams = {"s": f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts {watermark}) FROM parquet(path => '{folder}/*')"}
        with Subject(setting.work / "home", setting.spark, folder, {"v": view}, streams) as home:
            while home.step(max_rows=1) is not None:  # one file a run
                pass
            clock = {record.version: at for record, (at, _) in zip(home.records, stretches, strict=True)}
            found = {}
            for row in home.changes("v").toArrow().to_pylist():
                end = round(row["window_end"].timestamp() * SECOND) - START // SECOND
                wid = (end - question.windows.size) // question.windows.slide
                found[wid] = (row["y"], (clock[row["_version"]] - end) / SECOND)
        return compared(given.truth, found)

    exact = policy(BY_MARK, given.arrivals)
    if exact.wrong:
        raise AssertionError(f"with punctuation {exact.wrong} % of the windows are wrong")
    unmarked = [each for each in given.arrivals if not each.punctuation]
    slack = []
    for seconds in question.slacks:
        setting.say(f"(policies) {question.name}, a slack of {seconds:g} s")
        slack.append(policy(f"AS ts - {_interval(round(seconds * SECOND))}", unmarked))
    return {PUNCTUATION: [exact] * len(slack), SLACK: slack}


def _delay(question: Question, found: dict[str, list[Judged]]) -> Figure:
    seconds, slack = least_exact(question, found[SLACK])
    what = f"delay of {'averages' if question.average else 'counts'} with punctuation"
    return Figure("policies", what, f"slack of {seconds:g} s", found[PUNCTUATION][0].delay, slack.delay, "s")


# ----------------------------------------------------------------------------------------------- two sources


def two_sources(setting: Setting, rate: int, groups: int) -> dict[str, list[float]]:
    """The most groups in memory, in runs of about a second, and rows held in order; by how far one is behind."""
    folder, rows = setting.work / "policies", at_random(150 * SECOND, 2 * rate, groups)
    view = (
        f"SELECT k, window_start, window_end, count(*) AS n FROM TUMBLE(s, ts, {_interval(MINUTES.size)})"
        " GROUP BY k, window_start, window_end EMIT CHANGES"
    )
    stream = (
        f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts {BY_MARK} PER KEY source) FROM parquet(path => '{folder}/*')"
    )
    peaks: dict[str, list[float]] = {GROUPS: [], IN_ORDER: []}
    for seconds in SKEWS if not setting.brief else (SKEWS[0], SKEWS[-1]):
        setting.say(f"(policies) a source {seconds} s behind")
        behind = {"one": 0, "other": seconds * SECOND}
        arrivals = list(skewed(rows, 1, behind, time=operator.itemgetter(0), punctuate=SECOND))
        _write(folder, [rows for _, rows in _runs(arrivals, 2 * rate * (15 if setting.brief else 1))])
        with Subject(setting.work / "home", setting.spark, folder, {"v": view}, {"s": stream}) as home:
            core = home.session._core
            made = core.catalog().find("v")
            assert isinstance(made, View)
            most = 0
            while home.step(max_rows=1) is not None:
                most = max(most, core.hot.groups(made))
        peaks[GROUPS].append(most)
        peaks[IN_ORDER].append(hold(InOrder(ByWindow(MINUTES, COUNT)), arrivals).peak)
    return peaks


def _picture_of_sources(found: dict[str, list[float]]) -> Picture:
    skews = SKEWS if len(found[GROUPS]) == len(SKEWS) else (SKEWS[0], SKEWS[-1])
    lines = {side: [(float(x), y) for x, y in zip(skews, peaks, strict=True)] for side, peaks in found.items()}
    title, of_x = "Groups in memory, and rows that order takes, at the peak", "seconds that one source is behind"
    return Picture(
        "policies-skew",
        "Every change of a count per minute and group over two sources, one behind the other",
        "groups in memory: the engine; rows in order: a model in plain Python",
        (Curve("policies-skew", title, of_x, "", lines, steps=True),),
    )


# ------------------------------------------------------------------------------------------------- what is shared


def _interval(milliseconds: int) -> str:
    return f"INTERVAL {milliseconds} MILLISECONDS"


def _runs(arrivals: Sequence[Arrival], most: int) -> Iterator[tuple[float, Sequence[Arrival]]]:
    """What comes in runs of at most so many, none of which waits long for more; each with when its last row comes."""
    first = 0
    for end, each in enumerate(arrivals):
        if end - first == most or each.at - arrivals[first].at > WAIT:
            yield arrivals[end - 1].at, arrivals[first:end]
            first = end
    yield arrivals[-1].at, arrivals[first:]


def _write(folder: Path, stretches: Sequence[Sequence[Arrival]]) -> None:
    """A file for each stretch, in their order."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    paths = [folder / f"rows-{number:05d}.parquet" for number in range(len(stretches))]
    kinds: list[tuple[str, Any]] = [
        ("mark", pa.bool_()), ("source", pa.string()), ("k", pa.int64()), ("x", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]  # fmt: skip
    for path, arrivals in zip(paths, stretches, strict=True):
        of_rows = [each.payload or (0, 0, 0) for each in arrivals]
        columns: list[list[Any]] = [
            [each.punctuation for each in arrivals],
            [str(each.source) for each in arrivals],
            [k for _, k, _ in of_rows],
            [x for _, _, x in of_rows],
            [START + each.time * SECOND for each in arrivals],
        ]
        parquet.write_table(pa.table([pa.array(c, kind) for c, (_, kind) in zip(columns, kinds, strict=True)],
                                     names=[name for name, _ in kinds]), path)  # fmt: skip
    in_order(paths)
