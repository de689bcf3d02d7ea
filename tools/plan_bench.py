"""How long CREATE VIEW takes, for ten kinds of views: the median of five of each, in one session that is warm.

    .venv/bin/python tools/plan_bench.py
    PYTHONPATH=/another/checkout/src .venv/bin/python tools/plan_bench.py

It asks nothing of the code but `connect` and SQL, so that it runs over older commits too.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time

import anabranch

STREAMS = """
CREATE STREAM s (k STRING, n INT, d DECIMAL(12,2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE STREAM r (k STRING, p INT, rts TIMESTAMP, WATERMARK FOR rts AS rts - INTERVAL 5 SECONDS)
"""
TUMBLE = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
KINDS = {
    "filter": "SELECT k, n, ts FROM s WHERE n > 0",
    "tumbling count": f"SELECT window_start, window_end, k, count(*) AS c FROM {TUMBLE}"
    " GROUP BY window_start, window_end, k EMIT ON WINDOW CLOSE",
    "hop": "SELECT window_start, window_end, sum(d) AS d FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND,"
    " INTERVAL '1' MINUTE) GROUP BY window_start, window_end",
    "join of streams": "SELECT s.k, n, p FROM s JOIN r ON s.k = r.k AND rts BETWEEN ts AND ts + INTERVAL 1 MINUTE"
    " EMIT CHANGES",
    "outer join": "SELECT s.k, n, p FROM s LEFT JOIN r ON s.k = r.k AND rts BETWEEN ts AND ts + INTERVAL 1 MINUTE"
    " EMIT CHANGES",
    "top-n per key": "SELECT k, n, d, ts FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC) <= 3"
    " EMIT CHANGES",
    "IN subquery": "SELECT k, n FROM s WHERE k IN (SELECT k FROM r GROUP BY k HAVING count(*) > 2) EMIT CHANGES",
    "nested aggregate": "SELECT c, count(*) AS m FROM (SELECT k, count(*) AS c FROM s GROUP BY k) GROUP BY c"
    " EMIT CHANGES",
    "window function": "SELECT k, n, lag(n) OVER (PARTITION BY k ORDER BY ts) AS before FROM s EMIT CHANGES",
    "counting trigger": "SELECT k, count(*) AS c FROM s GROUP BY k TRIGGER COUNTING 3",
}


def main() -> None:
    rounds = int(os.environ.get("ROUNDS", "5"))
    with tempfile.TemporaryDirectory() as folder, anabranch.connect(f"{folder}/home") as ab:
        ab.sql(STREAMS)
        for query in KINDS.values():  # what is compiled, loaded and cached once
            ab.sql(f"CREATE VIEW warm AS {query}; DROP VIEW warm")
        times: dict[str, list[float]] = {name: [] for name in KINDS}
        for _ in range(rounds):
            for name, query in KINDS.items():
                start = time.perf_counter()
                ab.sql(f"CREATE VIEW v AS {query}")
                times[name].append(1000 * (time.perf_counter() - start))
                ab.sql("DROP VIEW v")
    print(f"anabranch of {os.path.dirname(anabranch.__file__)}; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    for name, found in times.items():
        print(f"{name:18} {statistics.median(found):8.0f} ms   (least {min(found):.0f})")


if __name__ == "__main__":
    main()
