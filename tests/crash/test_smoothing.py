"""A view with a budget goes on after a kill where its last record says: no window is left out, and none shown twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_help import Processes, check_changes, check_clean

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

MADE = [
    "CREATE STREAM s (ts TIMESTAMP, n BIGINT) WATERMARK FOR ts AS ts",
    "CREATE VIEW v AS SELECT window_start, sum(n) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND)"
    " GROUP BY window_start EMIT ON WINDOW CLOSE AT MOST 2 WINDOWS A RUN WITHIN 4 RUNS",
    "INSERT INTO s VALUES " + ", ".join(f"(TIMESTAMP '2024-01-01 00:00:{second:02}', 1)" for second in range(20)),
]
#: Where a run is killed, and whether it is done by then.
KILLS = [("after-changes", False), ("after-record", True)]
SHOWN = "SELECT count(*), sum(n) FROM v"


@pytest.mark.timeout(400)
def test_windows_that_wait_outlive_their_process(tmp_path: Path, processes: Processes) -> None:
    home = tmp_path / "home"
    made = processes.run({"home": home, "statements": MADE, "after": [SHOWN]})
    assert made.clean, made.explain()
    assert made.first("rows") == [[2, 2]]
    windows = 2
    more = "INSERT INTO s VALUES (TIMESTAMP '2024-01-01 00:00:19', 1)"
    for place, done in KILLS:
        outcome = processes.run({"home": home, "before": [SHOWN], "statements": [more]}, crash_at=place)
        assert outcome.killed, f"{place}: {outcome.explain()}"
        assert outcome.first("rows") == [[windows, windows]], place
        windows += 2 if done else 0
    order = {"home": home, "before": [SHOWN], "statements": [more, more, more], "after": [SHOWN]}
    last = processes.run(order)
    assert last.clean, last.explain()
    assert last.first("rows") == [[4, 4]]
    # The second, third and fourth run after that of the burst: the last of them shows what has waited for four runs.
    assert [each["rows"] for each in last.lines if "after" in each] == [[[19, 19]]]
    end = processes.run({"home": home, "statements": ["ADVANCE STREAM s TO END"], "after": [SHOWN]})
    assert end.clean and end.first("rows") == [[20, 24]]
    check_changes(home)
    check_clean(home)
