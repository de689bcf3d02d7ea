"""What a measure gives: a figure for Anabranch beside one for a peer, and the target it is held to.

Plain values; knows nothing of how they were measured or how they are shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Target:
    """A bound on the ratio of Anabranch's figure to the peer's."""

    ratio: float
    at_least: bool

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.ratio:.3g} x"


def at_least(ratio: float) -> Target:
    return Target(ratio, True)


def at_most(ratio: float) -> Target:
    return Target(ratio, False)


@dataclass(frozen=True)
class Figure:
    """One line of the report."""

    measure: str
    what: str
    peer: str
    ours: float
    theirs: float
    unit: str  # something a second, of which more is better, or "ms" and the like, of which less is
    target: Target | None = None
    note: str = ""

    @property
    def speed(self) -> bool:
        """Whether more is better."""
        return self.unit.endswith("/s")

    @property
    def ratio(self) -> float:
        """How many times the peer's speed (targets from below), or the peer's cost (targets from above)."""
        return self.ours / self.theirs if self.theirs else float("inf")

    @property
    def verdict(self) -> str:
        """Whether the target was met, and if not, by how much it was missed.

        >>> Figure("a", "windows", "native", 75.0, 100.0, "rows/s", at_least(1.5)).verdict
        'missed by 50 %'
        """
        if self.target is None:
            return "reported"
        if self.target.met_by(self.ratio):
            return "met"
        short = 1 - self.ratio / self.target.ratio if self.target.at_least else self.ratio / self.target.ratio - 1
        return f"missed by {100 * short:.0f} %"

    def to_json(self) -> dict[str, Any]:
        target = None if self.target is None else str(self.target)
        return {**asdict(self), "target": target, "ratio": round(self.ratio, 4), "verdict": self.verdict}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Figure:
        given = {each.name: values[each.name] for each in fields(cls)}
        if values["target"] is not None:
            sign, ratio, _ = values["target"].split()
            given["target"] = Target(float(ratio), sign == "≥")
        return cls(**given)


@dataclass(frozen=True)
class Totals:
    """Whether what came out is the truth, and what the native query left out."""

    measure: str
    rows: int
    ours: int
    exact: bool
    dropped: int
    never_emitted: int
    what: str = "row counts in all windows"
    #: Of how many it dropped some, where it was not given all that Anabranch was.
    given: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Curve:
    """How a figure goes with another: a line of (x, y) for each side.

    steps: whether x goes in equal steps, and not in powers of ten.
    ticks: what stands at an x, where that is not the number.
    medians: what its figures are medians of, where that is not the repeats of the bench.
    """

    name: str
    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    steps: bool = False
    ticks: tuple[str, ...] = ()
    medians: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Picture:
    """Several curves over the same x, one above the other."""

    name: str
    title: str
    subtitle: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Outcome:
    """All that one measure found."""

    figures: tuple[Figure, ...]
    totals: tuple[Totals, ...] = ()
    #: Milliseconds per phase of Anabranch's runs, for whoever wants to make them faster.
    phases: dict[str, dict[str, float]] | None = None
    curves: tuple[Curve, ...] = ()
    pictures: tuple[Picture, ...] = ()


#: Below this many rows a bench is only tried out.
BRIEF_ROWS = 100_000


@dataclass(frozen=True)
class Setting:
    """What the measures share: Spark, the data, a place to work in, and somebody to tell how far they are."""

    spark: SparkSession
    streaming: SparkSession
    rows: int
    events: int
    files: int
    repeat: int
    folder: Path
    work: Path
    say: Callable[[str], None]
    runs: int

    @property
    def files_a_run(self) -> int:
        """Runs are a tenth of the files: 4 of 40."""
        return max(1, self.files // 10)

    @property
    def rows_a_run(self) -> int:
        return -(-self.rows // self.files) * self.files_a_run

    @property
    def brief(self) -> bool:
        """Too few rows for the figures to mean anything: enough to see that everything works."""
        return self.rows < BRIEF_ROWS


Measure = Callable[[Setting], Outcome]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
