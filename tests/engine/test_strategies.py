"""What the strategy 'adaptive' holds, and what it says of itself: as many partials as its model, run by run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.algebra.windows import Row, SlidingWindows
from anabranch.algebra.windows.costs import Thresholds
from anabranch.algebra.windows.spans import COUNT as WINDOWS_OF_SPAN
from anabranch.algebra.windows.spans import ENDING, FORM, LAST, Groups, Spans, reduced, spans
from anabranch.algebra.windows.strategies import COUNT
from anabranch.duck import connect, path_list
from anabranch.plan.view import View
from anabranch.testing import Harness, crashing
from crash.worker import attach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1)
SECOND = 1_000_000
#: The size of the second is no whole number of its slides.
WINDOWS = {"hop": SlidingWindows(10 * SECOND, SECOND), "odd": SlidingWindows(10 * SECOND, 4 * SECOND)}
#: How many groups have how many rows in a stretch of ten seconds.
SIZES = {1: 20, 4: 6, 60: 2}


def skewed(stretch: int) -> list[tuple[str, datetime]]:
    """Many groups of one row and two large ones; a group that is large in one run is small in the next."""
    dice = Random(stretch)
    names = [f"g{number}" for number in range(sum(SIZES.values()))]
    dice.shuffle(names)
    made = []
    for size, groups in SIZES.items():
        for name in (names.pop() for _ in range(groups)):
            for _ in range(size):
                micros = 10 * SECOND * stretch + dice.randrange(10 * SECOND)
                made.append((name, EPOCH + timedelta(microseconds=micros)))
    dice.shuffle(made)
    return made


def rows_of(given: list[tuple[str, datetime]]) -> list[Row]:
    return [Row((time - EPOCH) // timedelta(microseconds=1), number, name) for number, (name, time) in enumerate(given)]


def query(windows: SlidingWindows, strategy: str, key: str = "k", items: str = "count(*) AS c") -> str:
    slide, size = (f"INTERVAL {each // SECOND} SECONDS" for each in (windows.slide, windows.size))
    return (
        f"SELECT {key} AS k, window_start, {items} FROM HOP(s, ts, {slide}, {size}, STRATEGY => '{strategy}')"
        f" GROUP BY {key}, window_start, window_end"
    )


def held(home: Harness, view: str) -> int:
    """How many rows the state of a view has, as the system tables say."""
    ((count,),) = home.query(f"SELECT state_rows FROM sys.nodes WHERE view = '{view}'")
    return int(count)


def partials(home: Harness, view: str) -> list[tuple[Any, ...]]:
    """The partials of a view: key, span, how many rows end with it, and what the group was."""
    core = home.session._core
    snapshot = core.snapshot()
    found = core.catalog(snapshot).find(view)
    assert isinstance(found, View)
    paths = snapshot.table_paths(core.ledger, found.query.blocks[0].panes)
    columns = f"k, epoch_us({LAST}) // {SECOND}, {WINDOWS_OF_SPAN}, {ENDING}, {FORM}"
    if not paths:
        return []
    with connect() as duck:
        return duck.sql(f"SELECT {columns} FROM read_parquet({path_list(paths)}) AS t(k) ORDER BY ALL").fetchall()


def modelled(windows: SlidingWindows, runs: Sequence[Sequence[tuple[str, datetime]]], delay: int) -> list[Spans[int]]:
    """What runs add to the state, by the model, with a watermark so far behind the highest time."""
    groups, parts = Groups(windows), list[Spans[int]]()
    high: int | None = None
    for run in runs:
        rows = rows_of(list(run))
        large: set[Hashable] = groups.take(rows, Thresholds.of(windows, 0 if high is None else delay))
        parts.append(spans(windows, rows, COUNT, large))
        high = max([row.value for row in rows] + ([] if high is None else [high]))
        groups.advance(high - delay)
    return parts


def test_as_many_partials_as_the_model_and_no_more_than_windows(home: Harness) -> None:
    """By DuckDB, and by Spark, which has to say what initcap is; another process goes on where the first stopped."""
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 6 SECONDS)")
    for name, windows in WINDOWS.items():
        for strategy in ("adaptive", "windows"):
            home.sql(f"CREATE VIEW {name}_{strategy} AS {query(windows, strategy)}")
    home.sql(f"CREATE VIEW spark_adaptive AS {query(WINDOWS['hop'], 'adaptive', 'initcap(k)')}")
    stretches = [skewed(stretch) for stretch in range(2)]
    few = sorted(row for row in skewed(2) if row[0] < "g2")
    runs = [*stretches, few[::2], few[1::2], skewed(1)[:15]]
    parts = {name: modelled(windows, runs, 6 * SECOND) for name, windows in WINDOWS.items()}
    parts["spark"] = parts["hop"]
    for number, run in enumerate(runs):
        home.insert("s", run)
        for name, own in parts.items():
            assert len(partials(home, f"{name}_adaptive")) == sum(map(len, own[: number + 1])), (name, number)
        if number == 2:
            home.reopen()
    for name in WINDOWS:
        assert held(home, f"{name}_adaptive") == sum(map(len, parts[name])) <= held(home, f"{name}_windows")
    alike = [(k.lower(), *rest) for k, *rest in partials(home, "spark_adaptive")]
    assert sorted(alike) == partials(home, "hop_adaptive")
    # Made after the rows, its state comes in one piece, from Spark.
    home.sql(f"CREATE VIEW after AS {query(WINDOWS['odd'], 'adaptive', 'upper(k)')}")
    together = rows_of([row for run in runs for row in run])
    large = Groups(WINDOWS["odd"]).take(together, Thresholds.of(WINDOWS["odd"]))
    assert held(home, "after") == len(spans(WINDOWS["odd"], together, COUNT, large))
    home.compact()
    for name in WINDOWS:
        assert held(home, f"{name}_adaptive") == len(reduced(parts[name], COUNT)) <= held(home, f"{name}_windows")
    # A view that asks for more of the same partials fills a column of its own beside theirs, and no row counts twice.
    before = sum(ending for *_, ending, _ in partials(home, "odd_adaptive"))
    assert before == sum(map(len, runs))
    home.sql(f"CREATE VIEW more AS {query(WINDOWS['odd'], 'adaptive', items='max(ts) AS t, count(*) AS c')}")
    assert sum(ending for *_, ending, _ in partials(home, "more")) == before
    expected = sorted(home.query(query(WINDOWS["odd"], "rows", items="max(ts) AS t, count(*) AS c")))
    assert sorted(home.query("SELECT * FROM more")) == expected
    counts = [(k, start, count) for k, start, _, count in expected]
    assert sorted((k.lower(), *rest) for k, *rest in home.query("SELECT * FROM after")) == counts


#: Runs of 20 rows: at which second, how many rows of it are of one group, how many rows of the group were in open
#: windows (10 s every second) before, and whether it is large with them: above 10, and until there are fewer than 8.
BURST = (
    (0, 3, 0, False), (1, 3, 3, False), (2, 3, 6, False), (3, 3, 9, True), (10, 1, 12, True), (11, 1, 10, True),
    (12, 1, 8, True), (13, 1, 6, False), (14, 5, 4, False), (15, 1, 9, False), (16, 1, 10, True),
)  # fmt: skip


def second(number: int, brought: int) -> list[tuple[str, datetime]]:
    """A run of 20 rows: those of the group, and others of as many groups that have no other rows."""
    at = EPOCH + timedelta(seconds=number, milliseconds=500)
    return [("large", at)] * brought + [(f"small {number}, {each}", at) for each in range(20 - brought)]


def test_a_group_grows_large_over_small_runs_and_small_again_when_its_windows_close(home: Harness) -> None:
    """No run says by itself that the group is large. Between the thresholds it stays what it is; nobody remembers that
    but the ledger."""
    home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql(f"CREATE VIEW v AS {query(WINDOWS['hop'], 'adaptive')}")
    for number, (at, brought, before, large) in enumerate(BURST):
        made = partials(home, "v")
        open_after = BURST[number - 1][0] - 10 if number else -10  # seconds; the windows of a row start at whole ones
        assert sum(ending for k, last, _, ending, _ in made if k == "large" and last > open_after) == before
        home.insert("s", second(at, brought))
        added = [each for each in partials(home, "v") if each[0] == "large" and each[-1] // 2 == number]
        assert {windows for _, _, windows, *_ in added} == {1 if large else 10}, at
        assert {form % 2 for *_, form in added} == {int(large)}
        if number < 7:  # what the reducer merges later is in memory as it came
            in_memory = home.session._core.table_cache.rows_of("s_by_k")
            assert in_memory == sum(last > open_after for _, last, *_ in made)
        if number in (2, 5, 7):
            home.reopen()
        if number == 6:
            told = "\n".join(line for (line,) in home.query("EXPLAIN ANALYZE v"))
            assert "groups with open windows: 0 by window, 75 by span" in told
    plan = "\n".join(line for (line,) in home.query("EXPLAIN ANALYZE v"))
    assert "strategy adaptive" in plan
    assert "a group with more than 10 rows in open windows by window, until it has fewer than 8" in plan
    assert "groups with open windows: 1 by window, 129 by span; large above 10 rows, small below 8" in plan
    expected = home.query(query(WINDOWS["hop"], "rows"))
    assert sorted(home.query("SELECT * FROM v")) == sorted(expected)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_any_rows_cuts_restarts_and_failures_give_the_batch_answer(
    home: Harness, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Groups grow and shrink, rows come late, commits fail on the way: what is kept by span or by window adds up."""
    dice = Random(seed)
    items = "count(*) AS c, sum(n) AS n, max(n) AS m"
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS)")
    queries = {name: query(windows, "adaptive", items=items) for name, windows in WINDOWS.items()}
    queries["spark"] = query(WINDOWS["odd"], "adaptive", "initcap(k) COLLATE UTF8_LCASE", items)
    for name, text in queries.items():
        home.sql(f"CREATE VIEW {name} AS {text}{' EMIT CHANGES' if name == 'hop' else ''}")
    rows = []
    for number in range(160):
        key = dice.choice(["burst" if number % 60 < 30 else None, "a", f"g{number}", f"g{dice.randrange(40)}"])
        at = max(0.0, number / 5 - dice.choice([0, 0, 0, 1, 2, 20]))
        rows.append((key, dice.choice([None, *range(9)]), EPOCH + timedelta(seconds=at)))
    at, grown = 0, 0
    while at < len(rows):
        run = rows[at : at + dice.choice([3, 12, 20])]
        if dice.random() < 0.3:
            with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="as asked"):
                patch.setattr("anabranch.engine.run.reach", fail)
                home.insert("s", run)
        home.insert("s", run)
        at += len(run)
        grown += any(form % 2 for *_, form in partials(home, "hop") if form is not None)
        if dice.random() < 0.15:
            dice.choice([home.reopen, home.compact])()
    assert grown
    for name, text in queries.items():
        assert home.table(name) == home.batch(text, s=rows), name


def fail(point: str) -> None:
    if point == "after-changes":
        raise RuntimeError("as asked")


def feed(home: str, runs: list[list[tuple[str, datetime]]]) -> None:
    """What the process that dies does, in the JVM of the one that does not."""
    with Harness(home, attach()) as harness:
        for run in runs:
            harness.insert("s", run)


@pytest.mark.crash
def test_a_run_that_is_taken_in_again_after_a_kill_writes_what_it_had_written(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = spark.sparkContext._gateway.java_parameters
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", str(gateway.port))
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", gateway.auth_token)
    runs = [second(at, brought) for at, brought, *_ in BURST[:6]]
    found = []
    for name, kill in (("whole", None), ("killed", "after-changes:4")):
        with Harness(tmp_path / name, spark) as home:
            home.sql("CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
            home.sql(f"CREATE VIEW v AS {query(WINDOWS['hop'], 'adaptive')}")
        if kill is not None:
            assert crashing(kill, feed, str(tmp_path / name), runs)
        with Harness(tmp_path / name, spark) as home:
            for run in runs[len(home.runs("s")) :]:
                home.insert("s", run)
            found.append(partials(home, "v"))
    assert found[0] == found[1]
