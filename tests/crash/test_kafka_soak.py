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
from pathlib import Path

import pytest
from crash_help import Processes, finish

from sources.kafka_help import COLUMNS, START, VIEWS, Message, Topic, generate, totals, windows
from sources.kafka_server import broker

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

MESSAGES, KILLS, BROKER_KILLS = (
    int(os.environ.get(f"ANABRANCH_KAFKA_{name}", default))
    for name, default in (("MESSAGES", 200_000), ("KILLS", 5), ("BROKER_KILLS", 2))
)
SINK = "CREATE SINK out FROM closed INTO kafka(brokers => '{}', topic => '{}', partitions => 2);"
ANSWERS = ["SELECT k, c, s FROM total ORDER BY k", "SELECT k, window_start, c, s FROM closed ORDER BY k, window_start"]


@pytest.mark.timeout(7200)
def test_kills_of_the_process_and_of_the_broker(processes: Processes, tmp_path: Path) -> None:
    def sent() -> Iterator[Message]:
        return generate(MESSAGES, per_second=MESSAGES // 400)

    chance = random.Random(7)
    with broker() as server:
        topic, out = Topic(server), Topic(server, made=False)
        settings = {"enable.idempotence": True, "delivery.timeout.ms": 600_000}
        feeding = threading.Thread(target=topic.send, args=(sent(), topic.producer(**settings)), daemon=True)
        script = f"CREATE STREAM s {COLUMNS} FROM {topic.source(format='json')}; {VIEWS.format(s='s')}"
        script += SINK.format(server.brokers, out.name)
        order = {"home": tmp_path / "home", "run": script, "run_rows": max(100, MESSAGES // 30), "until_idle": False}
        assert processes.run({**order, "until_idle": True}).clean
        feeding.start()
        ends = ["process"] * KILLS + ["broker"] * BROKER_KILLS
        chance.shuffle(ends)
        worker = processes.start(order)
        for victim in ends:
            with contextlib.suppress(Exception):
                worker.wait(chance.uniform(5, 15))
            assert worker.poll() is None, finish(worker).explain()
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
    assert total == [list(row) for row in totals(sent())]
    truth = windows(sent())
    assert closed == [[k, f"{at}+00:00", c, s] for k, at, c, s in truth]
    shown = [{"k": k, "window_start": f"{at.isoformat()}Z", "c": c, "s": s} for k, at, c, s in truth]
    assert written == sorted(json.dumps(row) for row in shown)


@pytest.mark.timeout(3600)
def test_a_sink_that_is_killed_at_random_writes_what_the_view_shows(processes: Processes, tmp_path: Path) -> None:
    """Every run of the view is a transaction of the sink: kills come in the middle of many."""
    kills, chance = max(KILLS, 20), random.Random(3)
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
