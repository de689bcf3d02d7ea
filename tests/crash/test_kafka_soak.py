"""Many messages, with kills of the process and of the broker at random moments: nothing is lost, nothing doubled.

ANABRANCH_KAFKA_MESSAGES, ANABRANCH_KAFKA_KILLS and ANABRANCH_KAFKA_BROKER_KILLS say how many of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
from pathlib import Path

import pytest
from crash_help import Processes, finish

from sources.kafka_help import COLUMNS, VIEWS, Topic, rows, totals, windows
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
    sent = rows(MESSAGES, per_second=MESSAGES // 400)
    chance = random.Random(7)
    with broker() as server:
        topic, out = Topic(server), Topic(server, made=False)
        settings = {"enable.idempotence": True, "delivery.timeout.ms": 600_000}
        feeding = threading.Thread(target=topic.send, args=(sent, topic.producer(**settings)), daemon=True)
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
        feeding.join(600)
        assert not feeding.is_alive()
        worker.kill()
        finish(worker)
        last = {**order, "until_idle": True, "statements": ["ADVANCE STREAM s TO END"], "after": ANSWERS}
        done = finish(processes.start(last), 3600)
        assert done.clean, done.explain()
        written = out.rows()
    total, closed = done.all("rows")
    assert total == [list(row) for row in totals(sent)]
    assert closed == [[k, f"{at}+00:00", c, s] for k, at, c, s in windows(sent)]
    shown = [{"k": k, "window_start": f"{at.isoformat()}Z", "c": c, "s": s} for k, at, c, s in windows(sent)]
    assert written == sorted(json.dumps(row) for row in shown)
