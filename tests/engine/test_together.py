"""Changes of nodes that Spark computes: those that do not read each other at the same time, with the same answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.engine.maintain import nodes
from anabranch.engine.maintain.commit import Commit
from anabranch.errors import AnabranchError
from anabranch.plan.view import View
from anabranch.testing import Harness, assert_same_rows

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)"
QUERIES = {
    "sums": "SELECT k, sum(v) AS v FROM s GROUP BY k",
    "lists": "SELECT v, collect_list(k) AS ks FROM s GROUP BY v",
    "each": "SELECT upper(k) AS k, v FROM s WHERE v > 1",
    "firsts": "SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v, ts) = 1",
}
ROWS = [[("a", 1, "2026-01-01 00:00:00"), ("b", 2, "2026-01-01 00:00:01")], [("a", 3, "2026-01-01 00:00:02")],
        [("c", 1, "2026-01-01 00:00:01"), ("a", 0, "2026-01-01 00:00:00")]]  # fmt: skip


@contextmanager
def made(home: Harness) -> Iterator[Harness]:
    home.session.sql("SET anabranch.backend = 'spark'")
    home.session.sql("SET anabranch.kernels = off")
    home.sql(STREAM)
    for name, query in QUERIES.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
    home.sql("CREATE VIEW above AS SELECT count(*) AS n, sum(v) AS v FROM sums EMIT CHANGES")
    yield home


def test_nodes_are_computed_at_the_same_time(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that wait for each other are under way together; what reads one of them comes behind it."""
    meeting, order, changes = threading.Barrier(len(QUERIES), timeout=60), [], nodes.changes

    def met(commit: Commit, view: View) -> Any:
        if view.name in QUERIES:
            meeting.wait()
        found = changes(commit, view)
        order.append(view.name)
        return found

    with made(home):
        monkeypatch.setattr(nodes, "changes", met)
        for rows in ROWS:
            home.insert("s", rows)
        assert order.index("above") > order.index("sums")
        every = [row for rows in ROWS for row in rows]
        for name, query in QUERIES.items():
            assert_same_rows(home.table(name), home.batch(query, s=every))
        assert home.table("above") == [(3, 7)]


def test_what_was_computed_beside_a_failure_is_deleted(
    home: Harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes = nodes.changes

    def failing(commit: Commit, view: View) -> Any:
        if view.name == "lists":
            raise AnabranchError("it cannot be")
        return changes(commit, view)

    with made(home):
        home.insert("s", ROWS[0])
        tables = home.session._core.ledger.home / "tables"
        before = set(tables.rglob("*.parquet"))
        with monkeypatch.context() as patched, pytest.raises(AnabranchError, match="it cannot be"):
            patched.setattr(nodes, "changes", failing)
            home.insert("s", ROWS[1])
        assert set(tables.rglob("*.parquet")) == before
        home.insert("s", ROWS[1])
        assert home.table("sums") == [("a", 4), ("b", 2)]
