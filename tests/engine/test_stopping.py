"""Stopping ends what is under way and nothing else: no read after it is an old one, and no later run ends at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from anabranch.engine.stopping import Stop
from anabranch.errors import AnabranchError
from anabranch.session import RunReport
from anabranch.testing import Harness

pytestmark = pytest.mark.spark


def script(tmp_path: Path, clause: str = "") -> str:
    """Two streams of files, and a view on each."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir(exist_ok=True)
        put(tmp_path, name, 0)
    return "".join(
        f"CREATE STREAM {name} (n INT) FROM FILES (path = '{tmp_path}/{name}/*.csv', format = 'csv') {clause};"
        f"CREATE VIEW {name}_sums AS SELECT count(*) AS rows, sum(n) AS total FROM {name};"
        for name in ("a", "b")
    )


def put(tmp_path: Path, stream: str, number: int, text: str | None = None) -> Path:
    path = tmp_path / stream / f"{number:03}.csv"
    path.write_text(f"n\n{number}\n" if text is None else text)
    return path


def test_a_stop_concerns_what_is_under_way_at_that_moment() -> None:
    stop = Stop()
    stop.set()
    assert not stop.is_set()
    with stop.watch() as first:
        assert not first.is_set()
        with stop.watch() as second:
            stop.set()
        with stop.watch() as third:
            assert (first.is_set(), second.is_set(), third.is_set()) == (True, True, False)
        assert stop.is_set()
    assert not stop.is_set()


def test_after_a_stop_reads_catch_up_and_runs_run(home: Harness, tmp_path: Path) -> None:
    session, text = home.session, script(tmp_path)
    fed: list[str] = []

    def on_run(report: RunReport) -> None:
        fed.append(report.stream)
        if len(set(fed)) == 2:  # both streams are being fed
            stopper = threading.Thread(target=session.stop.set)
            stopper.start()
            stopper.join()

    session.run(text, on_run=on_run)
    put(tmp_path, "a", 1)
    assert home.query("SELECT * FROM a_sums") == [(2, 1)]
    session.stop.set()  # while nothing is under way
    put(tmp_path, "b", 2)
    assert home.query("SELECT * FROM b_sums") == [(2, 2)]
    session.stop.set()
    put(tmp_path, "b", 3)
    session.run(text, until_idle=True)
    snapshot = session._core.snapshot()
    assert sum(state.rows for state in snapshot.streams.values()) == 5


def test_a_follower_that_was_stopped_leaves_the_next_one_going(home: Harness, tmp_path: Path) -> None:
    home.sql(script(tmp_path) + "CREATE STREAM r FROM RATE (rows_per_second = 1000)")
    for _ in range(2):
        seen = 0
        for batch in home.session.sql("SELECT count(*) AS n FROM r EMIT CHANGES"):
            seen += batch.changes.num_rows
            if seen >= 2:
                home.session.stop.set()
        assert seen >= 2
    put(tmp_path, "a", 1)
    assert home.query("SELECT * FROM a_sums") == [(2, 1)]


def test_after_a_run_that_failed_a_read_catches_up_or_fails_alike(home: Harness, tmp_path: Path) -> None:
    session, text = home.session, script(tmp_path, "ON ERROR FAIL")
    session.run(text, until_idle=True)
    broken = put(tmp_path, "a", 1, "n\nnot a number\n")
    with pytest.raises(AnabranchError) as failed:
        session.run(text)  # without an end of its own
    put(tmp_path, "b", 2)
    assert home.query("SELECT * FROM b_sums") == [(2, 2)]  # has nothing to do with it
    for _ in range(2):
        with pytest.raises(AnabranchError) as again:
            home.query("SELECT * FROM a_sums")
        assert str(again.value) == str(failed.value)
    with pytest.raises(AnabranchError) as again:
        session.run(text, until_idle=True)
    assert str(again.value) == str(failed.value)
    broken.unlink()
    put(tmp_path, "a", 3)
    assert home.query("SELECT * FROM a_sums") == [(2, 3)]
    session.run(text, until_idle=True)
