"""Worked examples from the literature, end to end: rows in disorder, NULLs that merge, a group of nothing, retries."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.testing import Harness, crashing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MIDNIGHT = datetime(2026, 1, 1)
FIVE_MINUTES = """
SELECT window_end, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 5 MINUTES) GROUP BY window_start, window_end
"""
#: Minutes of sixteen rows and, as None, three moments at which progress is declared: 5, 10 and 15.
DISORDER = [1, 3, 2, 4, 3, 1, None, 6, 2, 3, 8, None, 12, 7, 1, 4, 8, 13, None]


def at(minute: int) -> datetime:
    return MIDNIGHT + timedelta(minutes=minute)


def test_sixteen_of_sixteen_rows_count(home: Harness) -> None:
    """A system that drops what is behind its progress counts ten of these rows: six, two and two."""
    home.sql("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 DAY)")
    home.sql(f"CREATE VIEW now_ AS {FIVE_MINUTES}; CREATE VIEW closed AS {FIVE_MINUTES} EMIT ON WINDOW CLOSE")
    home.sql("CREATE VIEW fifteen AS SELECT sum(c) AS c FROM now_")
    progress = iter((5, 10, 15))
    emitted = []
    for minute in DISORDER:
        if minute is None:
            home.advance("s", at(next(progress)))
            emitted.append([(end.minute, count) for end, count in home.table("closed")])
        else:
            home.insert("s", [(at(minute),)])
    assert emitted == [[(5, 6)], [(5, 8), (10, 2)], [(5, 10), (10, 4), (15, 2)]]
    assert home.table("now_") == [(at(5), 10), (at(10), 4), (at(15), 2)]
    assert home.table("fifteen") == [(16,)]
    assert sum(run["late_rows"] for run in home.runs("s")) == 6
    assert sum(change.diff for change in home.changes("closed")) == 3
    assert home.emitted("closed") == home.table("closed")


def test_sixteen_rows_in_four_runs_with_progress_from_the_rows(home: Harness) -> None:
    home.sql("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql(f"CREATE VIEW closed AS {FIVE_MINUTES} EMIT ON WINDOW CLOSE")
    for minutes in ([1, 3, 2, 4, 3, 1, 6], [2, 3, 8, 12], [7, 1, 4, 8, 13], [16]):
        home.insert("s", [(at(minute),) for minute in minutes])
    assert home.table("closed") == [(at(5), 10), (at(10), 4), (at(15), 2)]


#: A query that names its progress and its windows itself, each in a step of its own.
GOALS = """
WITH
  with_watermark AS (SELECT * FROM max_diff_watermark(source => TABLE(events), time_field => DESCRIPTOR(time),
                                                      offset => INTERVAL 5 SECONDS) e),
  with_tumble AS (SELECT * FROM tumble(source => TABLE(with_watermark), time_field => DESCRIPTOR(e.time),
                                       window_length => INTERVAL 1 MINUTE, offset => INTERVAL 0 SECONDS) e),
  counts_per_team AS (SELECT e.window_end, e.team, COUNT(*) as goals FROM with_tumble e GROUP BY e.window_end, e.team
                      TRIGGER ON WATERMARK)
SELECT * FROM counts_per_team cpt ORDER BY cpt.window_end ASC, cpt.goals DESC
"""


def test_goals_per_minute_and_team(home: Harness) -> None:
    home.sql("CREATE STREAM events (team STRING, time TIMESTAMP, WATERMARK FOR time AS time - INTERVAL 5 SECONDS)")
    home.sql(f"CREATE VIEW goals AS {GOALS}")
    runs = [
        [(10, "A"), (20, "B"), (15, "A"), (58, "B")],
        [(62, "A"), (59, "A"), (66, "B")],
        [(50, "B"), (90, "A")],
        [(30, "C"), (130, "B")],
    ]
    seconds = [(MIDNIGHT + timedelta(seconds=second), team) for run in runs for second, team in run]
    shown = []
    for run in runs:
        home.insert("events", [(team, MIDNIGHT + timedelta(seconds=second)) for second, team in run])
        shown.append([(end.minute, team, goals) for end, team, goals in home.table("goals")])
    assert shown == [
        [],
        [(1, "A", 3), (1, "B", 2)],
        [(1, "A", 3), (1, "B", 3)],
        [(1, "A", 3), (1, "B", 3), (1, "C", 1), (2, "A", 2), (2, "B", 1)],
    ]
    home.advance("events")
    assert home.table("goals") == home.batch(GOALS, events=[(team, time) for time, team in seconds])
    # Its state is one row a minute and team, not the rows of the stream.
    plan = "\n".join(row[0] for row in home.query(f"EXPLAIN {GOALS}"))
    assert "pane table events_by_team" in plan and "computed over rows" not in plan


def test_nulls_merge(home: Harness) -> None:
    """A run of nothing but NULLs neither empties a sum nor makes a group twice."""
    home.sql("CREATE STREAM s (g STRING, x INT)")
    home.sql("CREATE VIEW v AS SELECT g, sum(x) AS s, count(x) AS c, count(*) AS n, min(x) AS l, max(x) AS h,"
             " avg(x) AS a FROM s GROUP BY g")  # fmt: skip
    for value in (None, 5, None):
        home.insert("s", [("g", value), (None, value)])
    expected = (5, 1, 3, 5, 5, 5.0)
    assert home.table("v") == [(None, *expected), ("g", *expected)]
    home.compact()
    assert home.table("v") == [(None, *expected), ("g", *expected)]


def test_a_global_aggregate_of_nothing_is_one_row(home: Harness) -> None:
    home.sql("CREATE STREAM s (price DECIMAL(10,2), rate DECIMAL(4,2))")
    home.sql(
        "CREATE VIEW v AS SELECT sum(price * rate) AS revenue, count(*) AS c FROM s WHERE rate BETWEEN 0.05 AND 0.07"
    )
    assert home.table("v") == [(None, 0)]
    home.insert("s", [(Decimal("10.00"), Decimal("0.01"))])
    assert home.table("v") == [(None, 0)]
    home.insert("s", [(Decimal("10.00"), Decimal("0.06")), (Decimal("1.00"), Decimal("0.50"))])
    assert home.table("v") == [(Decimal("0.6000"), 1)]
    home.compact()
    home.insert("s", [(Decimal("99.00"), Decimal("0.01"))])
    assert home.table("v") == [(Decimal("0.6000"), 1)]


SCRIPT = """
CREATE STREAM s (k STRING, n INT) FROM files(path => '{path}/*.csv') KEEP NOTHING;
CREATE VIEW v AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k;
"""


def take_in(home: str, files: str) -> None:
    """What the process that dies does."""
    with Harness(home) as harness:
        harness.session.run(SCRIPT.format(path=files), until_idle=True)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", ["before-record", "after-record"])
def test_a_run_that_is_tried_again_does_not_count_twice(point: str, tmp_path: Path, spark: SparkSession) -> None:
    """Killed on either side of the record, the run is made again or left as it is."""
    files = tmp_path / "in"
    files.mkdir()
    (files / "1.csv").write_text("a,1\na,2\nb,3\n")
    # The first record is that of the stream, the second that of the view, the third that of the run.
    assert crashing(f"{point}:3", take_in, str(tmp_path / "home"), str(files))
    with Harness(tmp_path / "home", spark) as home:
        for _ in range(2):
            home.session.run(SCRIPT.format(path=files), until_idle=True)
            assert home.table("v") == [("a", 2, 3), ("b", 1, 3)]
        assert [run["rows"] for run in home.runs("s")] == [3]
