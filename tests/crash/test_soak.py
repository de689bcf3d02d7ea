"""Killed fifty times at moments that nobody chose. Takes minutes: asked for with `pytest -m slow tests/crash`."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from crash_help import (
    Feed,
    Processes,
    answers,
    captured,
    check_changes,
    check_clean,
    finish,
    look,
    records_of,
    same,
    truth,
)

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("ANABRANCH_KILLS", "50"))


@pytest.fixture(autouse=True)
def only_when_asked_for(request: pytest.FixtureRequest) -> None:
    if "slow" not in str(request.config.option.markexpr):
        pytest.skip("takes minutes: pytest -m slow tests/crash")


@pytest.mark.timeout(3600)
def test_kills_at_random_moments(tmp_path: Path, processes: Processes, seed: int) -> None:
    chance = random.Random(seed)
    home, feed = tmp_path / "home", Feed(tmp_path / "in", seed=seed)
    feed.add(1)
    first = processes.run({"home": home, "run": feed.script, "run_rows": 8})
    assert first.clean, first.explain()
    killed = 0
    for _ in range(KILLS):
        feed.add(chance.randrange(1, 4))
        before = [answers(at_version=True)] if chance.random() < 0.3 else []
        process = processes.start({"home": home, "run": feed.script, "run_rows": 8, "before": before})
        # Mostly after the process is up, which takes a second or two.
        time.sleep(chance.uniform(0.5, 9.0))
        process.kill()
        outcome = finish(process)
        assert outcome.killed or outcome.clean, outcome.explain()
        killed += outcome.killed
        look(home)
        if outcome.all("before"):
            opened = outcome.first("opened")
            same(outcome.answers("before"), truth(captured([r for r in records_of(home) if r.version <= opened])))
    last = processes.run({"home": home, "run": feed.script, "run_rows": 8, "after": [answers(at_version=False)]})
    assert last.clean, last.explain()
    assert killed
    same(last.answers("after"), truth(feed.all_files()))
    assert {name: sorted(files) for name, files in look(home).items()} == feed.all_files()
    check_clean(home)
    check_changes(home)
