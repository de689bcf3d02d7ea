"""Many messages, with kills of the process and of the broker at random moments: nothing is lost, nothing doubled.

ANABRANCH_KAFKA_MESSAGES, ANABRANCH_KAFKA_KILLS and ANABRANCH_KAFKA_BROKER_KILLS say how many of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crash_help import Processes, finish

from anabranch.ledger import Ledger
from sources.kafka_help import COLUMNS, START, VIEWS, Topic
from sources.kafka_server import broker

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

MESSAGES, KILLS, BROKER_KILLS = (
    int(os.environ.get(f"ANABRANCH_KAFKA_{name}", default))
    for name, default in (("MESSAGES", 200_000), ("KILLS", 5), ("BROKER_KILLS", 2))
)
SINK = "CREATE SINK out FROM closed INTO kafka(brokers => '{}', topic => '{}', partitions => 2);"
KEYS, SECONDS = "ab", 400
ANSWERS = ["SELECT k, c, s FROM total ORDER BY k", "SELECT k, window_start, c, s FROM closed ORDER BY k, window_start"]


def blocks() -> Iterator[tuple[Any, ...]]:
    """Partitions, ids, seconds, places of keys and numbers: out of order, the last partition 40 s behind."""
    chance = np.random.default_rng(1)
    for start in range(0, MESSAGES, 10_000):
        ids = np.arange(start, min(start + 10_000, MESSAGES))
        partitions = chance.choice([0, 0, 1, 1, 2], len(ids))
        late = 40 * (partitions == 2) + chance.choice([0, 0, 0, 3, 15], len(ids))
        seconds = np.maximum(0, ids * SECONDS // MESSAGES - late)
        yield partitions, ids, seconds, chance.integers(len(KEYS), size=len(ids)), chance.integers(9, size=len(ids))


def texts() -> Iterator[tuple[int, str]]:
    """The messages with their partitions."""
    times = [f"{(START + timedelta(seconds=second)).isoformat()}Z" for second in range(SECONDS)]
    for block in blocks():
        for partition, id, second, key, n in zip(*(each.tolist() for each in block), strict=True):
            yield partition, f'{{"id": {id}, "ts": "{times[second]}", "k": "{KEYS[key]}", "n": {n}}}'


def plain_counts() -> Any:
    """By key and window: how many messages, and the sum of their numbers."""
    found = np.zeros((len(KEYS), SECONDS // 10, 2), int)
    for _, _, seconds, keys, numbers in blocks():
        np.add.at(found, (keys, seconds // 10, 0), 1)
        np.add.at(found, (keys, seconds // 10, 1), numbers)
    return found


def taken(home: Path) -> int:
    """How many messages are counted in a home."""
    with contextlib.closing(Ledger.open(home, write=False)) as ledger:
        return sum(stream.rows for stream in ledger.snapshot().streams.values())


@pytest.mark.timeout(7200)
def test_kills_of_the_process_and_of_the_broker(processes: Processes, tmp_path: Path) -> None:
    chance = random.Random(7)
    with broker() as server:
        topic, out = Topic(server), Topic(server, made=False)
        settings = {"enable.idempotence": True, "delivery.timeout.ms": 600_000}
        feeding = threading.Thread(target=topic.send, args=(texts(), topic.producer(**settings)), daemon=True)
        script = f"CREATE STREAM s {COLUMNS} FROM {topic.source(format='json')}; {VIEWS.format(s='s')}"
        script += SINK.format(server.brokers, out.name)
        home = tmp_path / "home"
        order = {"home": home, "run": script, "run_rows": max(100, MESSAGES // 30), "until_idle": False}
        assert processes.run({**order, "until_idle": True}).clean
        feeding.start()
        ends = ["process"] * KILLS + ["broker"] * BROKER_KILLS
        chance.shuffle(ends)
        worker = processes.start(order)
        for number, victim in enumerate(ends):  # spread over all messages
            while taken(home) < MESSAGES * (number + chance.random()) / (len(ends) + 1):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(0.5)
                assert worker.poll() is None, finish(worker).explain()
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(chance.uniform(0, 5))
            assert worker.poll() is None, finish(worker).explain()
            print(f"{victim} killed, {taken(home):,} messages taken", flush=True)
            if victim == "broker":
                server.kill()
                server.start()
            else:
                worker.kill()
                finish(worker)
                worker = processes.start(order)
        feeding.join(3600)
        assert not feeding.is_alive()
        worker.kill()
        finish(worker)
        last = {**order, "until_idle": True, "statements": ["ADVANCE STREAM s TO END"], "after": ANSWERS}
        done = finish(processes.start(last), 3600)
        assert done.clean, done.explain()
        written = out.rows()
    total, closed = done.all("rows")
    counts = plain_counts()
    assert total == [
        [key, int(counts[place, :, 0].sum()), int(counts[place, :, 1].sum())] for place, key in enumerate(KEYS)
    ]
    truth = [
        (key, START + timedelta(seconds=10 * window), int(c), int(s))
        for place, key in enumerate(KEYS)
        for window, (c, s) in enumerate(counts[place])
        if c
    ]
    assert closed == [[k, f"{at}+00:00", c, s] for k, at, c, s in truth]
    shown = [{"k": k, "window_start": f"{at.isoformat()}Z", "c": c, "s": s} for k, at, c, s in truth]
    assert written == sorted(json.dumps(row) for row in shown)


@pytest.mark.timeout(3600)
def test_a_sink_that_is_killed_at_random_writes_what_the_view_shows(
    processes: Processes, tmp_path: Path, seed: int
) -> None:
    """Every run of the view is a transaction of the sink: kills come in the middle of many."""
    kills, chance = max(KILLS, 20), random.Random(seed)
    count = 300 * kills
    with broker() as server:
        topic, out = Topic(server), Topic(server, made=False)
        topic.send(
            (id % 3, {"id": id, "ts": f"{START.isoformat()}Z", "k": str(id % 97), "n": id}) for id in range(count)
        )
        script = f"""CREATE STREAM s {COLUMNS} FROM {topic.source(format="json")};
            CREATE VIEW v AS SELECT k, count(*) AS c, sum(n) AS s FROM s GROUP BY k EMIT CHANGES;
            CREATE SINK out FROM v INTO kafka(brokers => '{server.brokers}', topic => '{out.name}', partitions => 2)"""
        order = {"home": tmp_path / "home", "run": script, "run_rows": 20}
        for _ in range(kills):
            worker = processes.start(order)
            assert worker.stdout is not None
            assert "opened" in worker.stdout.readline(), finish(worker).explain()
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(chance.uniform(0.5, 4))
            worker.kill()
            finish(worker)
        done = processes.run({**order, "run_rows": 2000, "after": ["SELECT k, c, s FROM v"]})
        assert done.clean, done.explain()
        written = out.rows()
    (shown,) = done.all("rows")
    truth = {str(key): range(key, count, 97) for key in range(97)}
    assert sorted(shown) == sorted([key, len(ids), sum(ids)] for key, ids in truth.items())
    assert written == sorted(json.dumps({"k": k, "c": c, "s": s}) for k, c, s in shown)
