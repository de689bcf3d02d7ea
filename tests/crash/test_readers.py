"""Processes that read a home in a loop while another one writes to it, reduces it and vacuums it."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_help import Processes, finish

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

READERS, SECONDS = 4, 120
#: Rows of one round; a reader that sees another number of them sees half a round.
ROWS = 7
SETUP = """
CREATE STREAM s (k STRING, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE TABLE weights (k STRING, w BIGINT);
INSERT INTO weights VALUES ('k0', 1), ('k1', 1), ('k2', 1);
CREATE VIEW one AS SELECT count(*) AS c FROM s;
CREATE VIEW two AS SELECT k, count(*) AS c FROM s GROUP BY k;
CREATE VIEW closed AS SELECT window_start, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 1 HOUR)
  GROUP BY window_start EMIT ON WINDOW CLOSE;
CREATE VIEW weighted AS SELECT s.k, sum(w.w) AS total, count(*) AS c FROM s JOIN weights w ON w.k = s.k GROUP BY s.k;
"""
ROUND = [
    "INSERT INTO s SELECT concat('k', id % 3), id, TIMESTAMP '2026-01-01' + make_interval(0, 0, 0, 0, {n})"
    f" FROM range({ROWS})",
    "UPDATE weights SET w = {n}",
    "REFRESH TABLE weights",
]
#: By DuckDB; by Spark, several views at once; rows; closed windows; what a version that may be gone soon showed.
READS = [
    "SELECT c FROM one",
    "SELECT (SELECT c FROM one), (SELECT coalesce(sum(c), 0) FROM two), (SELECT count(*) FROM s),"
    " (SELECT coalesce(sum(c), 0) FROM weighted)",
    "SELECT coalesce(sum(c), 0) FROM closed",
    "SELECT coalesce(sum(c), 0) FROM two AS OF VERSION @",
]


@pytest.mark.timeout(1200)
def test_a_home_is_read_for_minutes_while_it_is_written_and_vacuumed(tmp_path: Path, processes: Processes) -> None:
    home, busy = tmp_path / "home", tmp_path / "busy"
    order = {"home": home, "keep_versions": 3}
    made = processes.run({**order, "statements": [each for each in SETUP.split(";\n") if each.strip()]})
    assert made.clean, made.explain()
    busy.touch()
    looking = [
        processes.start({"home": home, "read_only": True, "while": busy, "queries": READS}) for _ in range(READERS)
    ]
    try:
        writer = processes.run({**order, "churn": ROUND, "seconds": SECONDS})
    finally:
        busy.unlink()
        seen = [finish(each) for each in looking]
    assert writer.clean, writer.explain()
    rounds, answers = writer.all("round")[-1], 0
    for reader in seen:
        assert reader.clean, reader.explain()
        reads = reader.all("read")
        answers += len(reads) * len(READS)
        for [[one]], [[a, b, c, d]], [[closed]], [[old]] in reads:
            assert a == b == c == d, (a, b, c, d)
            assert all(count % ROWS == 0 for count in (one, a, closed, old)), (one, a, closed, old)
        for each in zip(*([read[0][0][0], read[1][0][0], read[2][0][0], read[3][0][0]] for read in reads), strict=True):
            assert list(each) == sorted(each), "a reader went back"
        assert len({read[0][0][0] for read in reads}) > 1, "a reader did not follow"
    print(
        f"{rounds} rounds, {writer.all('version')[-1]} versions, {len(writer.all('compacted'))} vacuums,"
        f" {READERS} readers, {answers} answers"
    )
    assert not list((home / "readers").iterdir())
