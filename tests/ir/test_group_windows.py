"""Windows that GROUP BY calls, as Spark, Flink and Arroyo spell them: their plans are those of window functions."""

from __future__ import annotations

import pytest

from anabranch.errors import SqlError
from anabranch.ir.show import show
from anabranch.render.blocks import blocks
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement
from ir.plan_help import plan

STRUCT = "named_struct('start', window_start, 'end', window_end)"
FIVE = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 5 MINUTES)"
BOUNDS = "GROUP BY window_start, window_end"
SPARK = {
    "window.start, window.end, window, count(*) FROM s GROUP BY k, window(ts, '5 minutes')":
        f"window_start AS start, window_end AS end, {STRUCT} AS window, count(*) FROM {FIVE} AS s"
        " GROUP BY k, window_start, window_end",
    "window(ts, '5 minutes').start, window(ts, '5 minutes') w, window_time(window) FROM s x GROUP BY 2"
    " HAVING window.end > 1 ORDER BY window, window.end EMIT ON WINDOW CLOSE":
        f"window_start AS `window.start`, {STRUCT} w, (window_end - INTERVAL '1' MICROSECOND) AS `window_time(window)`"
        f" FROM {FIVE} x {BOUNDS} HAVING window_end > 1 ORDER BY {STRUCT}, window_end EMIT ON WINDOW CLOSE",
    "count(*) FROM (SELECT * FROM s) a GROUP BY window(a.ts, 'interval 10 minutes', '4 minutes', '-1 minute')":
        "count(*) FROM HOP(TABLE (SELECT * FROM s), DESCRIPTOR(ts), INTERVAL 4 MINUTES, INTERVAL 10 MINUTES,"
        f" INTERVAL 3 MINUTES) a {BOUNDS}",
    "window(ts, 300000000).start AS window_start FROM s GROUP BY window_start ORDER BY window_start":
        f"window_start AS window_start FROM {FIVE} AS s GROUP BY window_start ORDER BY window_start",
    "s.k, session_window.end FROM s WHERE s.n > 1 GROUP BY session_window(ts, '5 minutes'), s.k":
        "s.k, window_end AS end FROM SESSION(TABLE (SELECT * FROM s WHERE s.n > 1) PARTITION BY k, DESCRIPTOR(ts),"
        " INTERVAL 5 MINUTES) AS s GROUP BY window_start, window_end, s.k",
    "max(window.end) - window.start AS d FROM s WHERE n > 1 GROUP BY window.start, window(ts, '5 minutes')":
        f"max(window_end) - window_start AS d FROM {FIVE} s WHERE n > 1 {BOUNDS}",
    "w.start, count(*) FROM (SELECT window AS w FROM s GROUP BY window(ts, '5 minutes')) GROUP BY w.start":
        f"w.start, count(*) FROM (SELECT {STRUCT} AS w FROM {FIVE} s {BOUNDS}) GROUP BY w.start",
    # Where Spark has to compute it, its name is that of the call.
    "window.start FROM s JOIN r ON s.k = r.k GROUP BY window(s.ts, '5 minutes')":
        "window(s.ts, '5 minutes').`start` AS start FROM s JOIN r ON s.k = r.k GROUP BY window(s.ts, '5 minutes')",
    "session_window.end FROM s GROUP BY session_window(ts, '5 minutes'), n + 1 ORDER BY session_window.end":
        "session_window(ts, '5 minutes').`end` AS end FROM s GROUP BY session_window(ts, '5 minutes'), n + 1"
        " ORDER BY end",
}  # fmt: skip
FLINK = {
    "k, TUMBLE_START(ts, INTERVAL '10' SECOND), count(*) FROM s GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)":
        "k, window_start AS window_start, count(*) FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 10 SECONDS) AS s"
        " GROUP BY k, window_start, window_end",
    "HOP_END(ts, INTERVAL '5' SECOND, INTERVAL '1' MINUTE) AS at, count(*) FROM s AS x"
    " GROUP BY HOP(ts, INTERVAL '5' SECOND, INTERVAL '1' MINUTE)"
    " ORDER BY HOP_END(ts, INTERVAL '5' SECOND, INTERVAL '1' MINUTE)":
        "window_end AS at, count(*) FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 5 SECONDS, INTERVAL 1 MINUTE) AS x"
        f" {BOUNDS} ORDER BY at",
    "k, SESSION_ROWTIME(ts, INTERVAL '5' MINUTE), count(*) FROM s GROUP BY SESSION(ts, INTERVAL '5' MINUTE), k"
    " HAVING SESSION_START(ts, INTERVAL '5' MINUTE) > TIMESTAMP '2026-01-01 00:00:00'":
        "k, (window_end - INTERVAL 1 MILLISECOND) AS rowtime, count(*)"
        " FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL 5 MINUTES) AS s"
        " GROUP BY window_start, window_end, k HAVING window_start > TIMESTAMP '2026-01-01 00:00:00'",
    "count(*) FROM s GROUP BY TUMBLE(INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE":
        f"count(*) FROM TUMBLE(TABLE s, SIZE => INTERVAL 10 SECONDS) AS s {BOUNDS} EMIT ON WINDOW CLOSE",
    "hop(interval '5 seconds', interval '10 seconds') AS w, k, count(*) FROM s GROUP BY w, k":
        f"{STRUCT} AS w, k, count(*) FROM HOP(TABLE s, SLIDE => INTERVAL 5 SECONDS, SIZE => INTERVAL 10 SECONDS) AS s"
        " GROUP BY window_start, window_end, k",
    "k, session(interval '1' minute).start AS since FROM s GROUP BY k, SESSION(INTERVAL '1' MINUTE)":
        "k, window_start AS since FROM SESSION(TABLE s PARTITION BY k, GAP => INTERVAL 1 MINUTE) AS s"
        " GROUP BY k, window_start, window_end",
    "count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' HOUR, INTERVAL '5' MINUTE)":
        f"count(*) FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 HOUR, INTERVAL 5 MINUTES) AS s {BOUNDS}",
    "count(*) FROM t GROUP BY TUMBLE(w, INTERVAL '1' HOUR)":  # seconds since 1970
        f"count(*) FROM TUMBLE(TABLE t, DESCRIPTOR(w), INTERVAL 1 HOUR) AS t {BOUNDS}",
    "count(*) FROM s JOIN r USING (k) GROUP BY TUMBLE(s.ts, INTERVAL '1' HOUR)":  # row by row
        "count(*) FROM s JOIN r USING (k) GROUP BY window(s.ts, '1 hour')",
    "count(*) FROM s GROUP BY window(ts, INTERVAL '01:30' HOUR TO MINUTE)":  # Spark's own function takes no intervals
        f"count(*) FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 90 MINUTES) AS s {BOUNDS}",
}  # fmt: skip


@pytest.mark.parametrize("written", [*SPARK, *FLINK])
def test_windows_of_group_by_are_windows_of_what_is_read(written: str) -> None:
    meant = {**SPARK, **FLINK}[written]
    assert show(plan(f"SELECT {written}")) == show(plan(f"SELECT {meant}"))


@pytest.mark.parametrize("written", [*SPARK, *FLINK])
def test_they_are_shown_as_window_functions(written: str) -> None:
    (statement,) = parse(f"SELECT {written}")
    assert isinstance(statement, SelectStatement)
    made = plan(statement.text)
    shown = blocks(made, statement.text).text
    assert ("(TABLE " in shown) == ("Windowed" in show(made))
    if "Windowed" in show(made):
        assert show(plan(shown)) == show(made)


@pytest.mark.parametrize("written", [*SPARK, *FLINK])
def test_what_spark_cannot_read_reaches_it_as_its_plan(written: str) -> None:
    (statement,) = parse(f"SELECT {written}")
    assert isinstance(statement, SelectStatement)
    assert statement.query.needs_plan == (written in FLINK or "window_time" in written)


@pytest.mark.parametrize(
    "text",
    [
        "window.start, k FROM s GROUP BY ROLLUP (window(ts, '5 minutes'), k)",
        "count(*) FROM s GROUP BY window(ts + INTERVAL 1 HOUR, '5 minutes')",
        "count(*) FROM s GROUP BY session_window(ts, CASE WHEN n > 1 THEN '1 minute' ELSE '2 minutes' END)",
        "count(*) FROM s GROUP BY session_window(ts, '5 minutes').start",
        "count(*) FROM s WHERE window(ts, '5 minutes').start > ts GROUP BY window(ts, '5 minutes')",
        "count(*) FROM names GROUP BY window(label, '5 minutes')",
        "window_end FROM (SELECT ts, ts AS window_end FROM s) GROUP BY window_end, window(ts, '5 minutes')",
        "count(*) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY window(ts, '5 minutes')",
    ],
)
def test_other_calls_are_for_spark_to_compute(text: str) -> None:
    shown = show(plan(f"SELECT {text}"))
    assert "5 minutes along" not in shown and "window(" in shown


def test_a_time_that_is_not_known_has_to_be_named() -> None:
    with pytest.raises(SqlError, match=r"(?s)it is not clear which column has the time.*\^.*TUMBLE\(ts, INTERVAL"):
        plan("SELECT count(*) FROM names GROUP BY TUMBLE(INTERVAL '10' SECOND)")
