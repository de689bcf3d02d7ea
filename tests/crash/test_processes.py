"""Two processes, one home: one writes, the others are refused or read; a reader sees whole runs only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crash_help import Feed, Processes, answers, check_clean, finish, look, same, truth, wait_until

import anabranch
from anabranch.errors import HomeInUse

pytestmark = [pytest.mark.crash, pytest.mark.spark]

#: The same rows through two views, in one statement: equal at every version, or a run was seen in part.
TWICE = "SELECT (SELECT sum(c) FROM bids_total), (SELECT count(*) FROM every_bid)"
EVERY = "CREATE VIEW every_bid AS SELECT id FROM bids;"


@pytest.mark.timeout(300)
def test_one_writer_many_readers(tmp_path: Path, processes: Processes) -> None:
    home, feed = tmp_path / "home", Feed(tmp_path / "in", seed=5)
    feed.add(2)
    order = {"home": home, "run": feed.script + EVERY, "run_rows": 8}
    first = processes.run(order)
    assert first.clean, first.explain()
    feed.add(5)
    writer = processes.start({**order, "hold": True, "after": [answers(at_version=False)]})
    try:
        assert wait_until(lambda: _owner(home) == str(writer.pid), 60)
        refused = processes.run(order)
        assert refused.code == 1 and "HomeInUse" in refused.errors
        with pytest.raises(HomeInUse, match=f"process {writer.pid} "):
            anabranch.connect(home)
        reader = processes.run({"home": home, "read_only": True, "reads": 6, "queries": [TWICE]})
        assert reader.clean, reader.explain()
        for version, [[[one, other]]] in zip(reader.all("version"), reader.all("read"), strict=False):
            assert one == other, f"at version {version}"
        look(home)
        # Held by a process that is killed, the home is free at once.
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(3)]
        assert '"version"' in said[-1], said
    finally:
        writer.kill()
        finish(writer)
    last = processes.run({**order, "after": [answers(at_version=False)]})
    assert last.clean, last.explain()
    same(last.answers("after"), truth(feed.all_files()))
    check_clean(home)


def _owner(home: Path) -> str:
    """The process that has the home, as its lock says; asking for the lock would keep the writer out."""
    text = (home / "writer.lock").read_text()
    return str(json.loads(text)["pid"]) if text else ""
