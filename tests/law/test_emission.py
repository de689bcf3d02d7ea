"""The law with EMIT ON WINDOW CLOSE: it holds for what has closed after every run, and for everything at the end.

Rows that come after the end are late like any others, and correct what is shown.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing import Harness, assert_same_rows, cuts, shuffled
from law.queries import STREAM, TABLE, WINDOWED
from law.rows import Row, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
engine = settings(settings.get_profile("engine"))
DELAY = timedelta(seconds=10)


def closed(query: str, progress: datetime) -> str:
    """The query over the windows that have ended by a time."""
    condition = f"window_end <= TIMESTAMP '{progress}'"
    head, tail = query.split(" GROUP BY ")
    return f"{head} {'AND' if ' WHERE ' in head else 'WHERE'} {condition} GROUP BY {tail}"


def check_shown(home: Harness, view: str, query: str, seen: list[Row], progress: datetime | None) -> None:
    shown = home.table(view)
    assert_same_rows(home.emitted(view), shown, f"the changes do not add up to what is shown: {query}")
    wanted = [] if progress is None else home.batch(closed(query, progress), s=seen)
    assert_same_rows(shown, wanted, f"after {len(seen)} rows, progress {progress}: {query}")


def check_emission(
    spark: SparkSession, given: list[Row], seed: int, names: list[str], most_runs: int, often: float
) -> None:
    chance = random.Random(seed)
    runs = list(cuts(shuffled(given, chance), chance, empty=True))[:most_runs]
    after_the_end = list(cuts(shuffled(given, chance), chance))[:2]
    seen: list[Row] = []
    views: dict[str, str] = {}
    late = chance.choice(names)
    born = chance.randrange(len(runs))
    progress: datetime | None = None
    with Harness(None, spark) as home:
        home.sql(STREAM)
        home.sql(TABLE)

        home.sql(f"CREATE VIEW at_once AS {WINDOWED[late]} EMIT CHANGES")

        def create(name: str) -> None:
            views[name] = f"v{len(views)}"
            home.sql(f"CREATE VIEW {views[name]} AS {WINDOWED[name]} EMIT ON WINDOW CLOSE")

        for name in names:
            if name != late:
                create(name)
        for number, run in enumerate(runs):
            if number == born:
                create(late)
            home.insert("s", run)
            seen += run
            if seen:
                progress = max(row[-1] for row in seen) - DELAY
            if chance.random() < 0.2:
                home.compact()
            if chance.random() < 0.1:
                home.reopen()
            for name in sorted(views):
                if chance.random() < often:
                    check_shown(home, views[name], WINDOWED[name], seen, progress)
        home.advance("s")
        for run in (*after_the_end, *after_the_end[:1]):
            home.insert("s", run)
            seen += run
        assert_same_rows(home.emitted("at_once"), home.batch(WINDOWED[late], s=seen), WINDOWED[late])
        for name in names:
            check_shown(home, views[name], WINDOWED[name], seen, datetime(9000, 1, 1))
            held: dict[Row, int] = {}
            for change in home.changes(views[name]):
                held[change.row] = held.get(change.row, 0) + change.diff
                assert held[change.row] >= 0 or change.diff > 0, f"{change} takes back what was not shown"
            assert_same_rows(home.table(views[name]), home.batch(WINDOWED[name], s=seen), WINDOWED[name])


@engine
@given(rows, st.integers(0, 10**6), st.sets(st.sampled_from(sorted(WINDOWED)), min_size=2, max_size=2))
def test_closed_windows_are_shown_as_corrected_and_no_others(
    spark: SparkSession, given: list[Row], seed: int, names: set[str]
) -> None:
    """After every run the changes add up to what is shown, which is the batch answer over the windows closed so far."""
    check_emission(spark, given, seed, sorted(names), most_runs=6, often=0.6)


@pytest.mark.slow
def test_every_windowed_question_can_emit(spark: SparkSession, seed: int) -> None:
    """At the end of the stream each shows the batch answer, and its changes add up to it."""
    chance = random.Random(seed + 2)
    given = [
        (
            chance.choice([None, "a", "b", "It's"]),
            chance.choice([None, 0, 1]),
            chance.choice([None, -5, 0, 1, 7]),
            chance.choice([None, "1.10", "-3.33"]),
            chance.choice([None, 0.1, 0.2, 1e10]),
            chance.choice([None, True, False]),
            datetime(1970, 1, 1) + timedelta(seconds=chance.randint(-20, 60)),
        )
        for _ in range(30)
    ]
    check_emission(spark, given, seed + 10, sorted(WINDOWED), most_runs=4, often=0.1)
