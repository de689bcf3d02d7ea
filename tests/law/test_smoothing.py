"""The law with a budget: what is shown is late by some runs at the most, and never another answer."""

from __future__ import annotations

import random
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing import Harness, assert_same_rows, cuts, shuffled
from law.queries import STREAM, TABLE, WINDOWED
from law.rows import Row, rows
from law.test_emission import DELAY, closed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
engine = settings(settings.get_profile("engine"))

#: Some that DuckDB computes on the driver, and some that wait as keys with a trigger.
QUERIES = sorted(
    {
        "tumble by key",
        "hop",
        "hop by key",
        "hop, slide larger than the size",
        "window of a filter",
        "window having",
        "window of exact spreads",
        "window joined with a table",
    }
)
END = datetime(9000, 1, 1)


def bound_of(home: Harness, view: str) -> datetime | None:
    ((bound, ended),) = home.query(f"SELECT progress, ended FROM sys.progress WHERE view = '{view}'")
    return END if ended else bound


@engine
@given(
    rows,
    st.integers(0, 10**6),
    st.sampled_from(QUERIES),
    st.sampled_from(["1 WINDOW", "2 WINDOWS", "1 ROW", "3 ROWS"]),
    st.sampled_from([None, 1, 2, 3]),
)
def test_a_budget_delays_windows_and_changes_none(
    spark: SparkSession, given: list[Row], seed: int, name: str, most: str, delay: int | None
) -> None:
    """After every run the batch answer over the windows up to the view's own progress is shown, which is behind that of
    the stream by the windows of so many runs at the most; at the end it is that of the same view without a budget."""
    chance = random.Random(seed)
    query = WINDOWED[name]
    within = "" if delay is None else f" WITHIN {delay} RUNS"
    runs = list(cuts(shuffled(given, chance), chance, empty=True))
    runs = [*runs[:5], [row for run in runs[5:] for row in run]]
    seen: list[Row] = []
    reached: list[datetime | None] = []
    with Harness(None, spark) as home:
        home.sql(STREAM)
        home.sql(TABLE)
        home.sql(f"CREATE VIEW plain AS {query} EMIT ON WINDOW CLOSE")
        home.sql(f"CREATE VIEW v AS {query} EMIT ON WINDOW CLOSE AT MOST {most} A RUN{within}")
        for run in runs:
            home.insert("s", run)
            seen += run
            reached.append(max(row[-1] for row in seen) - DELAY if seen else None)
            if chance.random() < 0.2:
                home.compact()
            if chance.random() < 0.2:
                home.reopen()
            shown, bound = home.table("v"), bound_of(home, "v")
            if reached[-1] is None:
                assert bound is None and shown == []
                continue
            assert bound is not None and bound <= reached[-1], "a window is shown before its end has passed"
            assert_same_rows(shown, home.batch(closed(query, bound), s=seen), f"up to {bound}: {query}")
            due = reached[-1 - delay] if delay is not None and len(reached) > delay else None
            if due is not None:
                assert_same_rows(shown, home.batch(closed(query, max(bound, due)), s=seen), "a window waits too long")
        home.advance("s")
        assert bound_of(home, "v") == END
        wanted = home.batch(query, s=seen)
        for view in ("plain", "v"):
            assert_same_rows(home.table(view), wanted, query)
            assert_same_rows(home.emitted(view), wanted, query)
