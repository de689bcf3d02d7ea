"""A stream of a topic whose view goes to another topic, killed at any step: each message counts once, on both sides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crash_help import Processes

from sources.kafka_help import COLUMNS, VIEWS, Topic, rows, totals, windows
from sources.kafka_server import broker

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

SINK = "CREATE SINK out FROM closed INTO kafka(brokers => '{}', topic => '{}', mode => 'changes', partitions => 2);"
ANSWERS = ["SELECT k, c, s FROM total ORDER BY k", "SELECT k, window_start, c, s FROM closed ORDER BY k, window_start"]


def test_killed_and_started_again_every_message_counts_once(processes: Processes, tmp_path: Path) -> None:
    with broker() as server:
        topic, out = Topic(server), Topic(server, made=False)
        sent = rows(400)
        topic.send(sent)
        script = f"CREATE STREAM s {COLUMNS} FROM {topic.source(format='json')}; {VIEWS.format(s='s')}"
        script += SINK.format(server.brokers, out.name)
        order = {"home": tmp_path / "home", "run": script, "run_rows": 130}
        for place in ("between-files:2", "before-sink-commit", "after-sink-commit"):
            assert processes.run(order, place).killed, place
        done = processes.run({**order, "statements": ["ADVANCE STREAM s TO END"], "after": ANSWERS})
        assert done.clean, done.explain()
        written = out.rows()
    total, closed = done.all("rows")
    assert total == [list(row) for row in totals(sent)]
    assert closed == [[k, f"{at}+00:00", c, s] for k, at, c, s in windows(sent)]
    shown = [{"k": k, "window_start": f"{at.isoformat()}Z", "c": c, "s": s} for k, at, c, s in windows(sent)]
    assert written == sorted(json.dumps(row) for row in shown)
