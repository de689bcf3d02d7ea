"""Killed at any step and started again, every answer is that of a plain count over the input files.

One home goes through all crash points in turn, with new files before each start, so that each start recovers from the
last kill, goes on, and is killed again. What it recovered to is compared each time with the files that its records
name; what it ends with, with all files.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crash_help import (
    DELAY,
    WINDOW,
    Feed,
    Processes,
    answers,
    captured,
    check_changes,
    check_clean,
    descendants,
    finish,
    is_running,
    look,
    read_rows,
    records_of,
    same,
    truth,
    wait_until,
)

pytestmark = [pytest.mark.crash, pytest.mark.spark]

#: In the order in which one home meets them; `:n` is the n-th time the place is reached.
PLACES = [
    # A new home, its streams and its views.
    "in-opening",
    "in-opening:2",
    "during-replace",
    "before-table-commits",
    "after-record:3",
    # A run of one of two streams that commit at the same time.
    "before-job",
    "during-files",
    "between-files:2",
    "after-adopt",
    "after-adopt:3",
    "after-files:2",
    "after-changes",
    "after-changes:3",
    "before-table-commits:2",
    "after-first-table-commit",
    "in-recovery",
    "in-recovery:2",
    "after-next-table-commit",
    "in-recovery:4",
    "after-next-table-commit:2",
    "in-vacuum",
    "before-record:2",
    "in-recovery:9",
    "during-record",
    "after-record",
    "after-run:2",
    # The reducer, which has a commit of its own, vacuum and the snapshot file.
    "before-reduce",
    "after-reduce-files",
    "after-reduce",
    "in-vacuum:2",
    "during-replace",
]
#: One of each kind, for every day.
SOME = [
    "in-opening",
    "before-table-commits",
    "during-files",
    "after-adopt",
    "after-changes:3",
    "after-first-table-commit",
    "in-recovery:2",
    "in-vacuum",
    "after-record",
    "after-reduce-files",
    "during-replace",
]
#: Places that are met while executors write the files, as they do when there is more to write.
BY_EXECUTORS = {"between-files:2", "after-adopt", "after-adopt:3", "after-next-table-commit:2", "before-record:2"}
#: Places that are met every third or fifth run only: six runs or more come to them, whatever the kills left over.
SELDOM = {"in-vacuum", "in-vacuum:2", "during-replace"}


def order(home: Path, feed: Feed, **more: object) -> dict[str, object]:
    return {"home": home, "run": feed.script, "run_rows": 8, **more}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> tuple[Path, Feed]:
    """A home after a few clean runs, to be copied; and what feeds it."""
    folder = tmp_path_factory.mktemp("grown")
    feed = Feed(folder / "in", seed=7)
    feed.add(4)
    outcome = processes.run(order(folder / "home", feed, after=[answers(at_version=False)]))
    assert outcome.clean, outcome.explain()
    same(outcome.answers("after"), truth(feed.all_files()))
    return folder / "home", feed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("places", [SOME, pytest.param(PLACES, marks=pytest.mark.slow)], ids=["some", "all"])
def test_every_step_of_a_run_and_of_the_reducer(tmp_path: Path, processes: Processes, places: list[str]) -> None:
    home, feed = tmp_path / "home", Feed(tmp_path / "in")
    ready = False
    taken = 0
    for place in places:
        # Always something new to take, and never much: what the kills leave over waits for the next start.
        feed.add(3 if place in SELDOM else max(0, 2 - (feed.files - taken)))
        before = [answers(at_version=True)] if ready else []
        more = {"before": before, "by_executors": place in BY_EXECUTORS, "keep_versions": 6}
        outcome = processes.run(order(home, feed, **more), crash_at=place)
        assert outcome.killed, f"{place} was not reached: {outcome.explain()}"
        if not (home / "home.json").exists():
            continue
        found = look(home)
        if outcome.all("before"):
            version = outcome.first("opened")
            same(outcome.answers("before"), truth(taken_by(home, version)))
        ready = ready or bool(found)
        taken = min(len(found.get(name, ())) for name in ("bids", "clicks"))
    feed.add(1)
    last = processes.run(order(home, feed, before=[answers(at_version=True)], after=[answers(at_version=False)]))
    assert last.clean, last.explain()
    same(last.answers("before"), truth(taken_by(home, last.first("opened"))))
    same(last.answers("after"), truth(feed.all_files()))
    assert {name: sorted(files) for name, files in look(home).items()} == feed.all_files()
    assert {"create", "run", "reduce"} <= {record.kind for record in records_of(home)}
    check_clean(home)
    check_changes(home)


def taken_by(home: Path, version: int) -> dict[str, list[str]]:
    return captured([record for record in records_of(home) if record.version <= version])


def test_whatever_is_not_truth_can_be_deleted(tmp_path: Path, processes: Processes, grown: tuple[Path, Feed]) -> None:
    """Snapshot files and Delta logs repeat the records; locks, pins and staged files are of the moment."""
    home, feed = tmp_path / "home", grown[1]
    shutil.copytree(grown[0], home)
    assert list((home / "runs").glob("snapshot-*.json"))
    for path in [*(home / "runs").glob("snapshot-*.json"), home / "writer.lock"]:
        path.unlink()
    for folder in [*(home / "tables").glob("*/_delta_log"), home / "staging", home / "readers", home / "intents"]:
        shutil.rmtree(folder)
    outcome = processes.run(order(home, feed, after=[answers(at_version=False)]))
    assert outcome.clean, outcome.explain()
    same(outcome.answers("after"), truth(feed.all_files()))
    assert look(home) == look(grown[0])
    check_clean(home)


def test_damaged_snapshot_files_are_passed_over(tmp_path: Path, processes: Processes, grown: tuple[Path, Feed]) -> None:
    home = tmp_path / "home"
    shutil.copytree(grown[0], home)
    for path in (home / "runs").glob("snapshot-*.json"):
        path.write_bytes(path.read_bytes()[:-40])
    assert look(home) == look(grown[0])
    outcome = processes.run({"home": home, "read_only": True, "before": [answers(at_version=True)]})
    same(outcome.answers("before"), truth(grown[1].all_files()))


@pytest.mark.timeout(300)
def test_a_view_that_is_being_made(tmp_path: Path, processes: Processes, grown: tuple[Path, Feed]) -> None:
    """A view with its past is there whole, or not at all and can be made again."""
    home, feed = tmp_path / "home", grown[1]
    shutil.copytree(grown[0], home)
    view = (
        "CREATE VIEW late_made AS SELECT k, window_start, min(n) AS low FROM"
        " TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start EMIT ON WINDOW CLOSE"
    )
    count = "SELECT count(*), sum(low) FROM late_made"
    for place in ("after-backfill", "before-table-commits", "after-first-table-commit", "before-record"):
        outcome = processes.run({"home": home, "statements": [view]}, crash_at=place)
        assert outcome.killed, outcome.explain()
        assert look(home) == look(grown[0])
    outcome = processes.run({"home": home, "statements": [view]}, crash_at="after-record")
    assert outcome.killed, outcome.explain()
    windows: dict[tuple[str | None, int], int] = {}
    rows = read_rows(feed.all_files()["bids"])
    progress = max(second for _, second, _, _ in rows) - DELAY
    for _, second, key, n in rows:
        at = second // WINDOW * WINDOW
        if at + WINDOW <= progress:
            windows[key, at] = min(n, windows.get((key, at), n))
    outcome = processes.run(order(home, feed, after=[count, answers(at_version=False)]))
    assert outcome.clean, outcome.explain()
    assert outcome.lines[1]["rows"] == [[len(windows), sum(windows.values())]]
    check_clean(home)
    check_changes(home)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_process_takes_its_spark_along(tmp_path: Path, alone: Processes) -> None:
    """With a JVM of its own, as people run it: killed in the middle of a run, nothing stays behind."""
    home, feed = tmp_path / "home", Feed(tmp_path / "in", seed=3)
    feed.add(2)
    process = alone.start(order(home, feed), crash_at="between-files:3")
    below: set[int] = set()
    while process.poll() is None:
        below |= set(descendants(process.pid))
        wait_until(lambda: process.poll() is not None, 0.3)
    assert finish(process).killed
    assert below, "no JVM was seen"
    assert wait_until(lambda: not any(map(is_running, below))), "the JVM outlived its process"
    look(home)
    last = alone.run(order(home, feed, after=[answers(at_version=False)]))
    assert last.clean, last.explain()
    same(last.answers("after"), truth(feed.all_files()))
    check_clean(home)
    check_changes(home)
