"""What a view has shown, in memory: as the ledger has it after merges and after commits that failed."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from anabranch.errors import AnabranchError
from anabranch.ledger.log import RecordLog
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
NEWEST = """SELECT k, v, ts FROM
    (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts DESC, v) AS n FROM a) WHERE n <= 1"""


def test_merges_and_failed_commits_change_nothing(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql("CREATE STREAM a (k INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)")
    home.sql(f"CREATE VIEW newest AS {NEWEST} EMIT CHANGES")
    home.sql("CREATE VIEW above AS SELECT v, count(*) AS c FROM newest GROUP BY v EMIT CHANGES")
    pick, taken = random.Random(7), []
    held: set[tuple[str, str]] = set()
    core = home.session._core
    for run in range(12):
        rows = [(pick.randrange(6), pick.randrange(3), START + timedelta(seconds=pick.randrange(90))) for _ in range(5)]
        if run == 5:
            with monkeypatch.context() as patched:
                patched.setattr(RecordLog, "publish", lambda *_: (_ for _ in ()).throw(OSError("no disk")))
                with pytest.raises(AnabranchError, match="no disk"):
                    home.insert("a", [(1, 1, START + timedelta(days=1))])
        home.insert("a", rows)
        taken += rows
        if run % 4 == 3:
            home.compact()
        if run > 6:
            held |= {(str(key), warm.name) for key, warm in core.table_cache._tables.items() if "_diff" in str(key)}
    assert held, "nothing that was shown is in memory"
    assert len({key for key, _ in held}) == len(held), "what was shown was loaded anew"
    assert home.table("newest") == home.batch(NEWEST, a=taken)
    assert home.table("above") == home.batch(f"SELECT v, count(*) AS c FROM ({NEWEST}) GROUP BY v", a=taken)
