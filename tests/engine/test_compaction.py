"""Files are merged while runs go on: no answer changes, and nothing that was merged in vain is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from anabranch.engine import reduce
from anabranch.engine.reduce import FAN_IN
from anabranch.errors import AnabranchError
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
SUMS = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"
TOP = "SELECT k, v, ts FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v, ts) AS n FROM s) WHERE n <= 1"
WINDOWS = "SELECT k, window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY k, window_start"
QUERIES = {"sums": SUMS, "top": TOP, "windows": WINDOWS}

Row = tuple[str, int, datetime]


def start(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    home.sql(f"CREATE VIEW sums AS {SUMS} EMIT CHANGES; CREATE VIEW top AS {TOP} EMIT CHANGES")
    home.sql(f"CREATE VIEW windows AS {WINDOWS}; CREATE VIEW pairs AS {SUMS} TRIGGER COUNTING 2")


def rows(run: int) -> list[Row]:
    return [(chr(97 + (run + each) % 5), 100 - run * each, START + timedelta(seconds=run + each)) for each in range(4)]


def check(home: Harness, taken: list[Row]) -> None:
    for name, query in QUERIES.items():
        assert home.table(name) == home.batch(query, s=taken), name
    for view in ("sums", "top"):
        assert home.emitted(view) == home.table(view)


def left_over(home: Harness) -> list[str]:
    """Data files that no version names."""
    ledger = home.session._core.ledger
    folders = (ledger.home / "tables").iterdir()
    return [
        str(path)
        for folder in folders
        for path in folder.glob("*.parquet")
        if path.name not in ledger.snapshot().named_since(0, folder.name)
    ]


def at(monkeypatch: pytest.MonkeyPatch, place: str, do: Callable[[], None]) -> list[str]:
    """Do something once, in another thread, when a merge comes to a place; it must not have to wait for the merge."""
    done: list[str] = []

    def reached(name: str) -> None:
        if name == place and not done:
            done.append(name)
            other = threading.Thread(target=do)
            other.start()
            other.join(120)
            assert not other.is_alive(), "a commit waits for a merge"

    monkeypatch.setattr(reduce, "reach", reached)
    return done


def test_runs_commit_while_files_are_merged(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "FAN_IN", 3)
    start(home)
    taken = rows(0) + rows(1)
    home.insert_runs("s", [rows(0), rows(1)])
    done = at(monkeypatch, "after-reduce-files", lambda: home.insert("s", rows(2)))
    home.insert("s", rows(3))
    taken += rows(3) + rows(2)
    assert done
    kinds = [record.kind for record in home.session._core.ledger.records()]
    assert kinds[-1] == "reduce" and kinds.count("reduce") >= 1, "the merge was in vain"
    home.insert("s", rows(4))
    check(home, [*taken, *rows(4)])
    home.reopen()
    home.insert("s", rows(5))
    check(home, [*taken, *rows(4), *rows(5)])
    assert not left_over(home)


def test_what_was_merged_in_vain_is_dropped(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view is dropped while its files are merged: the others are replaced, and its own are gone."""
    monkeypatch.setattr(reduce, "FAN_IN", 3)
    start(home)
    home.sql(f"CREATE VIEW other AS {SUMS} EMIT CHANGES")
    home.insert_runs("s", [rows(0), rows(1)])
    done = at(monkeypatch, "after-reduce-files", lambda: home.sql("DROP VIEW other"))
    home.insert("s", rows(2))
    assert done and [record.kind for record in home.session._core.ledger.records()][-1] == "reduce"
    home.insert("s", rows(3))
    check(home, [row for run in range(4) for row in rows(run)])
    assert not left_over(home)


def test_spark_merges_much_into_several_files(home: Harness) -> None:
    start(home)
    home.sql("SET anabranch.file_bytes = 4000")
    taken = [row for run in range(4) for row in rows(run)]
    home.insert_runs("s", [rows(run) for run in range(4)])
    before = home.session._core.snapshot().files
    assert "files reduced to" in home.session.compact()
    after = home.session._core.snapshot().files
    counts = {table: (len(files), len(after[table])) for table, files in before.items() if len(files) > 1}
    assert all(now < then for then, now in counts.values()) and max(now for _, now in counts.values()) > 1, counts
    check(home, taken)
    home.insert("s", rows(4))
    check(home, taken + rows(4))
    assert not left_over(home)


@pytest.mark.parametrize("merged_by", ["driver", "spark"])
def test_a_sum_that_is_too_large_for_its_type_stays_in_parts(home: Harness, merged_by: str) -> None:
    """Files that add up to more than BIGINT holds stop no run and no compaction. Readers are told until it fits."""
    home.sql("CREATE STREAM s (k STRING, n BIGINT)")
    home.sql("CREATE VIEW v AS SELECT k, sum(n) AS n FROM s GROUP BY k; CREATE VIEW c AS SELECT count(*) AS c FROM s")
    home.sql(f"SET anabranch.file_bytes = {256 << 20 if merged_by == 'driver' else 200_000}")
    for _ in range(FAN_IN + 2):
        home.insert("s", [("a", 2**62), ("b", 1)])
    home.session.compact()
    assert home.table("c") == [(2 * (FAN_IN + 2),)]
    with pytest.raises(AnabranchError, match=r"(?i)overflow"):
        home.table("v")
    home.insert("s", [("a", -(2**62))] * (FAN_IN + 1))
    assert home.table("v") == [("a", 2**62), ("b", FAN_IN + 2)]
    home.session.compact()
    assert home.table("v") == [("a", 2**62), ("b", FAN_IN + 2)]
