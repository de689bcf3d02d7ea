"""The law: whatever the order of rows, their cut into runs, and reads, compactions and restarts in between, a view
shows what the same SQL gives as one batch query over all rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing import Harness, assert_same_rows, cuts, shuffled
from law.queries import QUERIES, SHARING, STREAM, TABLE
from law.rows import EPOCH, Row, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
engine = settings(settings.get_profile("engine"))


def check_law(spark: SparkSession, given: list[Row], seed: int, names: list[str], reads: int) -> None:
    """Feed rows at random and compare what views show with the oracle, on the way and at the end."""
    chance = random.Random(seed)
    order = shuffled(given, chance)
    runs = list(cuts(order, chance, empty=True))[:12]
    order = [row for run in runs for row in run]
    births: dict[int, list[str]] = {}
    for name in names:
        births.setdefault(chance.choice((0, len(runs) // 2, len(runs))), []).append(name)
    read_after = set(chance.sample(range(len(runs)), min(reads, len(runs))))
    views: dict[str, str] = {}
    with Harness(None, spark) as home:
        home.sql(STREAM)
        home.sql(TABLE)

        def compare(name: str, seen: list[Row], when: str) -> None:
            query = QUERIES[name]
            assert_same_rows(home.table(views[name]), home.batch(query, s=seen), f"{name}, {when}: {query}")

        for number, run in enumerate([*runs, None]):
            for name in births.get(number, ()):
                views[name] = f"v{len(views)}"
                home.sql(f"CREATE VIEW {views[name]} AS {QUERIES[name]}")
            if run is None:
                break
            home.insert("s", run)
            if chance.random() < 0.2:
                home.compact()
            if chance.random() < 0.1:
                home.reopen()
            if number in read_after and views:
                seen = [row for each in runs[: number + 1] for row in each]
                compare(chance.choice(sorted(views)), seen, f"after {number + 1} of {len(runs)} runs")
        for name in names:
            compare(name, order, "at the end")


@engine
@given(rows, st.integers(0, 10**6), st.sets(st.sampled_from(sorted(QUERIES)), min_size=4, max_size=4))
def test_a_view_shows_what_a_batch_query_over_all_rows_gives(
    spark: SparkSession, given: list[Row], seed: int, names: set[str]
) -> None:
    """A few questions at a time, over rows of every kind."""
    check_law(spark, given, seed, sorted(names), reads=3)


@pytest.mark.slow
def test_the_law_holds_for_every_question(spark: SparkSession, seed: int) -> None:
    """All questions at once on one stream, so that they share what can be shared."""
    chance = random.Random(seed + 41)
    given = [
        (
            chance.choice([None, "a", "b", "b", "", "It's"]),
            chance.choice([None, 0, 1, 2]),
            chance.choice([None, -5, 0, 1, 7]),
            chance.choice([None, "1.10", "-3.33", "0.00"]),
            chance.choice([None, 0.1, -2.5, 1e10]),
            chance.choice([None, True, False]),
            EPOCH.replace(minute=chance.choice([0, 0, 1]), second=chance.randint(0, 59)),
        )
        for _ in range(40)
    ]
    check_law(spark, given, 7, sorted(QUERIES), reads=0)


@settings(engine, max_examples=max(3, engine.max_examples // 3))
@given(rows, st.integers(0, 10**6), st.permutations(sorted(SHARING)))
def test_views_that_share_partials_stay_apart(
    spark: SparkSession, given: list[Row], seed: int, names: list[str]
) -> None:
    """Views on one table of partials, whatever was made first, show what each would show alone."""
    chance = random.Random(seed)
    order = shuffled(given, chance)
    runs = list(cuts(order, chance))[:5]
    seen = [row for run in runs for row in run]
    with Harness(None, spark) as home:
        home.sql(STREAM)
        for name in names[:3]:
            home.sql(f"CREATE VIEW {name} AS {SHARING[name]}")
        states = home.query("SELECT DISTINCT state FROM sys.views")
        assert len(states) == 1 and len(states[0][0]) == 1, states
        home.insert_runs("s", runs)
        home.sql(f"CREATE VIEW {names[3]} AS {SHARING[names[3]]}")
        for name in names:
            assert_same_rows(home.table(name), home.batch(SHARING[name], s=seen), SHARING[name])
        home.sql(f"DROP VIEW {names[0]}")
        home.compact()
        home.insert("s", given[:2])
        for name in names[1:]:
            assert_same_rows(home.table(name), home.batch(SHARING[name], s=seen + given[:2]), SHARING[name])


@settings(engine, max_examples=max(3, engine.max_examples // 3))
@given(rows, st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 30), st.integers(-20, 20))
def test_windows_are_those_of_sparks_own_window_function(
    spark: SparkSession, given: list[Row], seed: int, slide: int, more: int, offset: int
) -> None:
    """HOP and TUMBLE put a row into the windows into which Spark's `window` puts it, also before the epoch."""
    size = slide + more
    offset %= slide
    runs = list(cuts(shuffled(given, random.Random(seed)), random.Random(seed)))[:4]
    seen = [row for run in runs for row in run]
    hop = (
        f"SELECT window_start, window_end, count(*) AS c, sum(d) AS d FROM HOP(TABLE s, DESCRIPTOR(ts),"
        f" INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND, INTERVAL '{offset}' SECOND)"
        " GROUP BY window_start, window_end"
    )
    tumble = (
        f"SELECT window_start, window_end, count(*) AS c, sum(d) AS d FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL"
        f" '{slide}' SECOND, INTERVAL '{offset}' SECOND) GROUP BY window_start, window_end"
    )
    own = "SELECT w.start, w.end, count(*) AS c, sum(d) AS d FROM (SELECT window(ts, {}) AS w, d FROM s) GROUP BY w"
    with Harness(None, spark) as home:
        home.sql(STREAM)
        home.sql(f"CREATE VIEW hop AS {hop}; CREATE VIEW tumble AS {tumble}")
        home.insert_runs("s", runs)
        seconds = f"'{size} seconds', '{slide} seconds', '{offset} seconds'"
        assert_same_rows(home.table("hop"), home.batch(own.format(seconds), s=seen), hop)
        seconds = f"'{slide} seconds', '{slide} seconds', '{offset} seconds'"
        assert_same_rows(home.table("tumble"), home.batch(own.format(seconds), s=seen), tumble)
