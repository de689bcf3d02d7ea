"""Every spelling of windows is read as one: the plan of each, and errors in the text as it was written."""

from __future__ import annotations

import pytest

from anabranch.errors import NotSupported, SqlError, SyntaxProblem
from anabranch.sql import check
from anabranch.sql.columns import Resolver
from anabranch.sql.parser import parse
from anabranch.sql.syntax import Query, SelectStatement, WindowSpec
from sql.same_plan import plans, query_of

SECOND, MINUTE = 1_000_000, 60_000_000
BOUNDS = "window_start, window_end, window_time"


def same(written: str, meant: str) -> None:
    """Two spellings of one query."""
    one, other = plans(written, meant)
    assert one == other


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    return statement.query


def window(text: str) -> WindowSpec:
    """The only window of a query."""
    (found,) = [relation.window for relation in query(text).relations() if relation.window is not None]
    return found


def refusal(text: str, kind: type[SqlError] = SyntaxProblem) -> tuple[str, str]:
    """The message, and the part of the text it points at, as the user wrote it."""
    with pytest.raises(kind) as caught:
        parse(text)
    error = caught.value
    assert error.text == text and error.start is not None and error.end is not None
    return error.message, text[error.start : error.end]


# ------------------------------------------------------------------------------------------------------- Li

#: No window at all.
PLAIN = 'SELECT srcIP, ts, count (*) FROM Main1 WHERE srcIP = "202.101.0.0" or srcIP = "202.101.0.1" GROUP BY srcIP, ts'
#: The queries of "Window Queries Over Data Streams" that have SQL and no join, and what they stand for.
THESIS = {
    "Q1-1": (
        "SELECT srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts] FROM M GROUP BY srcIP",
        f"SELECT srcIP, count(*), {BOUNDS}"
        " FROM SLIDING(TABLE M, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 10 MINUTES) AS M"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q5-1": (
        "Select srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WATTR ts] From Main Group By srcIP",
        f"Select srcIP, count(*), {BOUNDS}"
        " From SLIDING(TABLE Main, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 10 MINUTES) AS Main"
        f" Group By srcIP, {BOUNDS}",
    ),
    "Q1-2": (
        "SELECT count (*) [RANGE 1 minute, SLIDE 1 minute, WA ts] FROM Control union Main1 union Main2",
        f"SELECT count (*), {BOUNDS} FROM SLIDING(TABLE (SELECT * FROM Control UNION ALL SELECT * FROM Main1"
        " UNION ALL SELECT * FROM Main2), DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 1 MINUTE) AS __union"
        f" GROUP BY {BOUNDS}",
    ),
    "Q2-1": (
        PLAIN,
        PLAIN,
    ),
    "Q5-2": (
        "SELECT srcIP, max(length) [RANGE 1000 rows, SLIDE 10 rows, WA row-num, PA srcIP] FROM Main",
        f"SELECT srcIP, max(length), {BOUNDS}"
        " FROM SLIDING(TABLE Main PARTITION BY srcIP, DESCRIPTOR(row_num), 10 ROWS, 1000 ROWS) AS Main"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q5-3": (
        "SELECT srcIP, max(length) [RANGE 1000 rows, SLIDE 10 rows, WA row-num] FROM Main GROUP-BY srcIP",
        f"SELECT srcIP, max(length), {BOUNDS} FROM SLIDING(TABLE Main, DESCRIPTOR(row_num), 10 ROWS, 1000 ROWS) AS Main"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q5-4": (
        "SELECT srcIP, count(*) [RANGE ALL, SLIDE 1 minute, WA ts] FROM Main1 GROUP BY srcIP",
        f"SELECT srcIP, count(*), {BOUNDS} FROM LANDMARK(TABLE Main1, DESCRIPTOR(ts), INTERVAL 1 MINUTE) AS Main1"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q5-5": (
        "SELECT max(length) [RANGE 5 minutes, RATTR ts, SLIDE 1 row, SATTR row-num] FROM Main",
        f"SELECT max(length), {BOUNDS} FROM SLIDE_BY_ROW(TABLE Main, DESCRIPTOR(ts), INTERVAL 5 MINUTES, 1 ROW) AS Main"
        f" GROUP BY {BOUNDS}",
    ),
    "Q5-6": (
        "SELECT count(*) [RANGE 5 minutes, RATTR ts, SLIDE 5 rows, SATTR rank(ts)] FROM Main",
        f"SELECT count(*), {BOUNDS}"
        " FROM SLIDE_BY_ROW(TABLE Main, DESCRIPTOR(ts), INTERVAL 5 MINUTES, 5 ROWS, BY => 'rank') AS Main"
        f" GROUP BY {BOUNDS}",
    ),
    "Q6-2": (
        "SELECT max(length) [RANGE 4 minutes, SLIDE 1 minute, WA ts] FROM Main",
        f"SELECT max(length), {BOUNDS}"
        " FROM SLIDING(TABLE Main, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 4 MINUTES) AS Main"
        f" GROUP BY {BOUNDS}",
    ),
    "Q6-3": (
        "SELECT count(*) [RANGE 4 minutes, SLIDE 1 minute, WA ts] FROM packets GROUP BY srcIP",
        f"SELECT count(*), {BOUNDS}"
        " FROM SLIDING(TABLE packets, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 4 MINUTES) AS packets"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q6-5": (
        "SELECT srcIP, count(*) [RANGE 5 minutes, SLIDE 1 minute, WA ts] FROM M1 GROUP BY srcIP",
        f"SELECT srcIP, count(*), {BOUNDS}"
        " FROM SLIDING(TABLE M1, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 5 MINUTES) AS M1"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q6-6": (
        "SELECT srcIP, sum(len) [RANGE 10 seconds, SLIDE 1 second, WA ts] FROM packets GROUPBY srcIP",
        f"SELECT srcIP, sum(len), {BOUNDS}"
        " FROM SLIDING(TABLE packets, DESCRIPTOR(ts), INTERVAL 1 SECOND, INTERVAL 10 SECONDS) AS packets"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q6-7": (
        "SELECT srcIP, sum(len) [RANGE 1 second, SLIDE 1 second, WA ts] FROM Main GROUP-BY srcIP",
        f"SELECT srcIP, sum(len), {BOUNDS}"
        " FROM SLIDING(TABLE Main, DESCRIPTOR(ts), INTERVAL 1 SECOND, INTERVAL 1 SECOND) AS Main"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q6-8": (
        "SELECT count(*) [RANGE 10 sec, SLIDE 1 sec, WA ts] FROM (Main2 U (Main1 U Control)) GROUP-BY srcIP",
        f"SELECT count(*), {BOUNDS} FROM SLIDING(TABLE (SELECT * FROM Main2 UNION ALL SELECT * FROM Main1"
        " UNION ALL SELECT * FROM Control), DESCRIPTOR(ts), INTERVAL 1 SECOND, INTERVAL 10 SECONDS) AS __union"
        f" GROUP BY srcIP, {BOUNDS}",
    ),
    "Q8-1": (
        "SELECT srcIP, destIP, count(*) [RANGE 1 minute, SLIDE 1 minute, WA ts] FROM Main GROUP BY srcIP, destIP",
        f"SELECT srcIP, destIP, count(*), {BOUNDS}"
        " FROM SLIDING(TABLE Main, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 1 MINUTE) AS Main"
        f" GROUP BY srcIP, destIP, {BOUNDS}",
    ),
    "Q8-2": (
        "SELECT srcIP, destIP, count(*) [RANGE 1 minute, SLIDE 1 minute, WA ts] FROM M1 UNION M2"
        " GROUP BY srcIP, destIP",
        f"SELECT srcIP, destIP, count(*), {BOUNDS} FROM SLIDING(TABLE (SELECT * FROM M1 UNION ALL SELECT * FROM M2),"
        f" DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 1 MINUTE) AS __union GROUP BY srcIP, destIP, {BOUNDS}",
    ),
    "Q8-5": (
        "SELECT count(*) [RANGE 5 minutes, SLIDE 1 minute, WA ts] FROM M1 UNION M2 UNION C",
        f"SELECT count(*), {BOUNDS} FROM SLIDING(TABLE (SELECT * FROM M1 UNION ALL SELECT * FROM M2"
        " UNION ALL SELECT * FROM C), DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 5 MINUTES) AS __union"
        f" GROUP BY {BOUNDS}",
    ),
}
FLOWS = "M1.srcIP = M2.destIP and M1.destIP = M2.srcIP and M1.srcPort = M2.destPort and M1.destPort = M2.srcPort"
BAND = "{1}.ts >= {0}.ts - INTERVAL 2 MINUTES AND {1}.ts <= {0}.ts + INTERVAL 3 MINUTES"
TUMBLE = "TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL {1}) {2}"
MAINS = "SELECT Main1.srcIP, Main1.destIP, Main2.srcIP, Main2.destIP, Main2.ts FROM "
MINUTES = {name: TUMBLE.format(name, "1 MINUTE", f"AS {name}") for name in "abc"}
#: Those with joins of windows.
JOINS = {
    "Q3-1": (
        "SELECT * FROM Main1 [WA ts, RANGE 3 min], Main2 [WA ts, RANGE 2 min] WHERE Main1.srcIP = Main2.destIP;",
        f"SELECT * FROM Main1, Main2 WHERE {BAND.format('Main1', 'Main2')} AND Main1.srcIP = Main2.destIP",
    ),
    "Q5-7": (
        f"{MAINS}Main1, Main2 [RANGE TUMBLING 5 minutes, WA ts], WHERE Main1.srcIP = Main2.destIP",
        f"{MAINS}{TUMBLE.format('Main1', '5 MINUTES', 'AS Main1')}, {TUMBLE.format('Main2', '5 MINUTES', 'AS Main2')}"
        " WHERE Main2.window_start = Main1.window_start AND Main1.srcIP = Main2.destIP",
    ),
    "Q5-8": (
        f"{MAINS}Main1 [RANGE 3 minutes, WA ts], Main2 [RANGE 2 minutes, WA ts] WHERE Main1.srcIP = Main2.destIP",
        f"{MAINS}Main1, Main2 WHERE {BAND.format('Main1', 'Main2')} AND Main1.srcIP = Main2.destIP",
    ),
    "Q7-2": (
        "SELECT count(*) [RANGE 1 minute, SLIDE 1 minute, WA M1.ts]"
        f" FROM M1 [RANGE 3 minutes, WA ts], M2 [RANGE 2 minutes, WA ts] WHERE {FLOWS}",
        f"SELECT count(*), {BOUNDS} FROM SLIDING(TABLE (SELECT M1.ts AS M1_ts FROM M1, M2"
        f" WHERE {BAND.format('M1', 'M2')} AND {FLOWS}), DESCRIPTOR(M1_ts), INTERVAL 1 MINUTE, INTERVAL 1 MINUTE)"
        f" AS __pairs GROUP BY {BOUNDS}",
    ),
    "Q8-3": (
        "SELECT M1.srcIP, M1.destIP, M1.ts"
        f" FROM A UNION B as M1, C UNION D as M2 [RANGE TUMBLING 10 seconds, WA ts], WHERE {FLOWS}",
        "SELECT M1.srcIP, M1.destIP, M1.ts FROM"
        f" {TUMBLE.format('(SELECT * FROM A UNION ALL SELECT * FROM B)', '10 SECONDS', 'as M1')},"
        f" {TUMBLE.format('(SELECT * FROM C UNION ALL SELECT * FROM D)', '10 SECONDS', 'as M2')}"
        f" WHERE M2.window_start = M1.window_start AND {FLOWS}",
    ),
    "Q8-4": (
        f"SELECT M1.ts FROM M1, M2 Union C as M3 [RANGE TUMBLING 1 minute, WA ts] WHERE {FLOWS.replace('M2', 'M3')}",
        f"SELECT M1.ts FROM {TUMBLE.format('M1', '1 MINUTE', 'AS M1')},"
        f" {TUMBLE.format('(SELECT * FROM M2 UNION ALL SELECT * FROM C)', '1 MINUTE', 'as M3')}"
        f" WHERE M3.window_start = M1.window_start AND {FLOWS.replace('M2', 'M3')}",
    ),
    "open": (
        "SELECT * FROM a [RANGE 3 minutes OPEN, WA ts], b [RANGE 2 minutes, WA ts, OPEN]",
        "SELECT * FROM a, b WHERE b.ts > a.ts - INTERVAL 2 MINUTES AND b.ts < a.ts + INTERVAL 3 MINUTES",
    ),
    "half open": (
        "SELECT * FROM a [RANGE 3 minutes OPEN, WA ts], b [RANGE 2 minutes, WA ts]",
        "SELECT * FROM a, b WHERE b.ts >= a.ts - INTERVAL 2 MINUTES AND b.ts < a.ts + INTERVAL 3 MINUTES",
    ),
    "aliases": (
        "SELECT * FROM a [RANGE 3 min, WA ts] AS x, `b b` [RANGE 2 min, WA y.ts] y, c WHERE x.k = 1 OR y.k = 2",
        f"SELECT * FROM a AS x, `b b` y, c WHERE {BAND.format('x', 'y')} AND (x.k = 1 OR y.k = 2)",
    ),
    "outer": (
        "SELECT * FROM a [RANGE 3 min, WA ts] LEFT JOIN b [RANGE 2 min, WA ts] ON a.k = b.k OR a.n = 0 WHERE a.n > 1",
        f"SELECT * FROM a LEFT JOIN b ON {BAND.format('a', 'b')} AND (a.k = b.k OR a.n = 0) WHERE a.n > 1",
    ),
    "inner": (
        "SELECT * FROM a [RANGE 3 min, WA ts] JOIN b [RANGE 2 min, WA ts] ON a.k = b.k JOIN c ON c.k = b.k",
        f"SELECT * FROM a JOIN b ON {BAND.format('a', 'b')} AND a.k = b.k JOIN c ON c.k = b.k",
    ),
    "using": (
        "SELECT * FROM a [RANGE 3 min, WA ts] JOIN b [RANGE 2 min, WA ts] USING (k) LEFT JOIN c ON c.k = b.k",
        "SELECT * FROM a JOIN b USING (k) LEFT JOIN c ON c.k = b.k WHERE " + BAND.format("a", "b"),
    ),
    "numbers": (
        "SELECT * FROM a [RANGE 3, WA seq], A UNION B AS u [RANGE 2, WA seq]",
        "SELECT * FROM a, (SELECT * FROM A UNION ALL SELECT * FROM B) AS u"
        " WHERE u.seq >= a.seq - 2 AND u.seq <= a.seq + 3",
    ),
    "three": (
        "SELECT * FROM a, b JOIN c [RANGE TUMBLING 1 minute, WA ts] ON c.k = a.k, d",
        f"SELECT * FROM {MINUTES['a']}, {MINUTES['b']} JOIN {MINUTES['c']} ON c.window_start = a.window_start"
        " AND c.k = a.k, d WHERE b.window_start = a.window_start",
    ),
    "own times": (
        "SELECT * FROM a [RANGE TUMBLING 1 min, WA t, ORIGIN TIMESTAMP '1970-01-01 00:01:20'] x"
        " FULL JOIN b [RANGE TUMBLING 1 min, ORIGIN TIMESTAMP '1970-01-01 00:01:20'] ON x.k = b.k",
        "SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL 1 MINUTE, `OFFSET` => INTERVAL 20 SECONDS) x"
        " FULL JOIN TUMBLE(TABLE b, SIZE => INTERVAL 1 MINUTE, `OFFSET` => INTERVAL 20 SECONDS) AS b"
        " ON b.window_start = x.window_start AND x.k = b.k",
    ),
    "over a join": (
        "SELECT a.k, b.k AS other, m, sum(b.n) [RANGE 1 min, SLIDE 1 min, WA b.ts] AS n FROM a JOIN b ON a.x = b.x"
        " WHERE a.n > 1 GROUP BY a.k, other, m, window_start HAVING max(a.n) > 2 ORDER BY a.k",
        "SELECT a_k AS k, b_k AS other, m, sum(b_n) AS n, window_start, window_end, window_time FROM"
        " SLIDING(TABLE (SELECT b.ts AS b_ts, a.k AS a_k, b.k AS b_k, m, b.n AS b_n, a.n AS a_n FROM a JOIN b"
        " ON a.x = b.x WHERE a.n > 1), DESCRIPTOR(b_ts), INTERVAL 1 MINUTE, INTERVAL 1 MINUTE) AS __pairs"
        " GROUP BY a_k, other, m, window_start, window_end, window_time HAVING max(a_n) > 2 ORDER BY a_k",
    ),
    "over windows": (
        "SELECT count(*) [RANGE 2 min, SLIDE 1 min, WA a.ts] FROM a, b [RANGE TUMBLING 1 min, WA ts]",
        f"SELECT count(*), {BOUNDS} FROM SLIDING(TABLE (SELECT a.ts AS a_ts FROM {MINUTES['a']}, {MINUTES['b']}"
        " WHERE b.window_start = a.window_start), DESCRIPTOR(a_ts), INTERVAL 1 MINUTE, INTERVAL 2 MINUTES)"
        f" AS __pairs GROUP BY {BOUNDS}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), THESIS.values(), ids=THESIS)
def test_queries_of_the_thesis(text: str, expected: str) -> None:
    same(text, expected)


@pytest.mark.parametrize(("text", "expected"), JOINS.values(), ids=JOINS)
def test_joins_of_windows(text: str, expected: str) -> None:
    same(text, expected)


def test_what_a_bracket_means() -> None:
    sliding = window(
        "SELECT count(*) [RANGE 10 min, SLIDE 30 secs, WA M.ts, ORIGIN TIMESTAMP '1970-01-01 00:01:00'] FROM M"
    )
    assert (sliding.kind, sliding.time_column, sliding.attribute) == ("sliding", "ts", "column")
    assert (sliding.size, sliding.slide, sliding.offset, sliding.rows) == (10 * MINUTE, 30 * SECOND, MINUTE, False)
    counted = window("SELECT count(*) [RANGE 100 rows, SLIDE 1 row, WA ROW_NUM, PA (a, b)] FROM M")
    assert (counted.attribute, counted.time_column, counted.rows) == ("row_num", None, True)
    assert (counted.size, counted.slide, [name.last for name in counted.partition]) == (100, 1, ["a", "b"])
    arrival = window("SELECT count(*) [RANGE '10 minutes', SLIDE INTERVAL '1' MINUTE, WA arrival-ts] FROM M")
    assert (arrival.attribute, arrival.time_column, arrival.size) == ("arrival_ts", None, 10 * MINUTE)
    numbers = window("SELECT count(*) [RANGE 100, SLIDE 10, WA seq, ORIGIN -5] FROM M")
    assert (numbers.time_column, numbers.rows, numbers.size, numbers.offset) == ("seq", True, 100, -5)
    event_time = window("SELECT count(*) [RANGE 2 hours, SLIDE 1 hour] FROM M")
    assert (event_time.time_column, event_time.attribute, event_time.rows) == (None, "column", False)
    landmark = window("SELECT count(*) [RANGE ALL, SLIDE 1 minute, WA ts] FROM M")
    assert (landmark.kind, landmark.slide, landmark.by_row) == ("landmark", MINUTE, False)
    by_row = window("SELECT count(*) [RANGE 5 min, RATTR ts, SLIDE 5 rows, SATTR rank(ts)] FROM M")
    assert (by_row.kind, by_row.size, by_row.every, by_row.by) == ("slide_by_row", 5 * MINUTE, 5, "rank")
    assert not by_row.by_row and not by_row.rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Aliases, versions and names.
        ("FROM M AS m", "SLIDING(TABLE M, DESCRIPTOR(ts), SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE) AS m"),
        ("FROM M m", "SLIDING(TABLE M, DESCRIPTOR(ts), SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE) m"),
        (
            "FROM M AS OF VERSION 3",
            "SLIDING(TABLE M AS OF VERSION 3, DESCRIPTOR(ts), SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE)"
            " AS M",
        ),
        (
            "FROM `a b`",
            "SLIDING(TABLE `a b`, DESCRIPTOR(ts), SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE) AS `a b`",
        ),
        (
            "FROM 'x.csv'",
            "SLIDING(TABLE 'x.csv', DESCRIPTOR(ts), SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE)",
        ),
        (
            "FROM (SELECT * FROM a) q",
            "SLIDING(TABLE (SELECT * FROM a), DESCRIPTOR(ts), SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE) q",
        ),
        (
            "FROM A UNION B AS u",
            "SLIDING(TABLE (SELECT * FROM A UNION ALL SELECT * FROM B), DESCRIPTOR(ts), SLIDE => INTERVAL 1 MINUTE,"
            " SIZE => INTERVAL 1 MINUTE) AS u",
        ),
    ],
)
def test_relations_under_a_bracket(text: str, expected: str) -> None:
    meant = f"SELECT count(*), {BOUNDS} FROM {expected} GROUP BY {BOUNDS}"
    same(f"SELECT count(*) [RANGE 1 min, SLIDE 1 min, WA ts] {text}", meant)


def test_brackets_in_expressions_and_queries() -> None:
    bracket = "[RANGE 1 min, SLIDE 1 min, WA ts]"
    made = "SLIDING(TABLE {0}, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 1 MINUTE) AS {0}"
    s = made.format("s")
    same(
        f"SELECT round(avg(x) {bracket} / 2, 1) AS r, count(*) FROM s WHERE x > 1 HAVING count(*) > 2",
        f"SELECT round(avg(x) / 2, 1) AS r, count(*), {BOUNDS} FROM {s} WHERE x > 1"
        f" GROUP BY {BOUNDS} HAVING count(*) > 2",
    )
    same(
        f"SELECT sum(x) FILTER (WHERE x > 1) {bracket} a, sum(x) {bracket} b FROM s",
        f"SELECT sum(x) FILTER (WHERE x > 1) a, sum(x) b, {BOUNDS} FROM {s} GROUP BY {BOUNDS}",
    )
    same(
        f"SELECT window_end AS t, sum(x) {bracket} FROM s GROUP BY window_end",
        f"SELECT window_end AS t, sum(x), window_start, window_time FROM {s}"
        " GROUP BY window_end, window_start, window_time",
    )
    same(
        f"CREATE VIEW v AS WITH c AS (SELECT k, max(x) {bracket} AS m FROM s GROUP BY k) SELECT * FROM c EMIT CHANGES",
        f"CREATE VIEW v AS WITH c AS (SELECT k, max(x) AS m, {BOUNDS} FROM {s} GROUP BY k, {BOUNDS})"
        " SELECT * FROM c EMIT CHANGES",
    )
    same(
        f"SELECT max(x) {bracket} FROM s UNION ALL SELECT min(x) {bracket} FROM t ORDER BY 1 LIMIT 3",
        f"SELECT max(x), {BOUNDS} FROM {s} GROUP BY {BOUNDS}"
        f" UNION ALL SELECT min(x), {BOUNDS} FROM {made.format('t')} GROUP BY {BOUNDS} ORDER BY 1 LIMIT 3",
    )
    same(
        "SELECT a x, b.c, max(d) [RANGE 2 rows, SLIDE 1 row, PA k] FROM b",
        f"SELECT a x, b.c, max(d), {BOUNDS} FROM SLIDING(TABLE b PARTITION BY k, DESCRIPTOR(row_num), 1 ROW, 2 ROWS)"
        f" AS b GROUP BY a, b.c, k, {BOUNDS}",
    )


# -------------------------------------------------------------------------------------------------- Truviso


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT campaign, count(*) AS c, cq_close(*) AS t FROM impsns <slices '1 minute'> GROUP BY campaign",
            "SELECT campaign, count(*) AS c, window_end AS t"
            " FROM SLIDING(TABLE impsns, SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE) AS impsns"
            f" GROUP BY campaign, {BOUNDS}",
        ),
        (
            "SELECT count(*), cq_close(*) FROM s <VISIBLE '5 minutes' ADVANCE '1 minute'> WHERE a < 3",
            "SELECT count(*), window_end AS cq_close"
            " FROM SLIDING(TABLE s, SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 5 MINUTES) AS s"
            f" WHERE a < 3 GROUP BY {BOUNDS}",
        ),
        (
            "SELECT * FROM s <VISIBLE '5 minutes' ADVANCE '1 minute'> x",
            "SELECT * FROM SLIDING(TABLE s, SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 5 MINUTES) x",
        ),
        (
            "SELECT h.name, sum(x.v) FROM s x <SLICES '1 hour'> JOIN h ON h.k = x.k AND h.a < x.b GROUP BY h.name",
            "SELECT h.name, sum(x.v) FROM SLIDING(TABLE s, SLIDE => INTERVAL 1 HOUR, SIZE => INTERVAL 1 HOUR) x"
            f" JOIN h ON h.k = x.k AND h.a < x.b GROUP BY h.name, {BOUNDS}",
        ),
        (
            "SELECT cq_close(*), window_id(), count(*) FROM s <SLICES '1 hour'>"
            " GROUP BY cq_close(*) ORDER BY cq_close(*)",
            "SELECT window_end AS cq_close, window_id, count(*)"
            " FROM SLIDING(TABLE s, SLIDE => INTERVAL 1 HOUR, SIZE => INTERVAL 1 HOUR) AS s"
            " GROUP BY window_end, window_id, window_start, window_time ORDER BY window_end",
        ),
        (
            "SELECT count(*) FROM s <VISIBLE 100 ROWS ADVANCE 10 ROWS> EMIT ON WINDOW CLOSE",
            f"SELECT count(*) FROM SLIDING(TABLE s, DESCRIPTOR(row_num), 10 ROWS, 100 ROWS) AS s GROUP BY {BOUNDS}"
            " EMIT ON WINDOW CLOSE",
        ),
        (
            "ALTER VIEW v AS SELECT count(*) FROM s <SLICES '1 minute'> DRY RUN",
            "ALTER VIEW v AS SELECT count(*)"
            " FROM SLIDING(TABLE s, SLIDE => INTERVAL 1 MINUTE, SIZE => INTERVAL 1 MINUTE) AS s"
            f" GROUP BY {BOUNDS}",
        ),
    ],
)
def test_windows_of_truviso(text: str, expected: str) -> None:
    same(text, expected)


# ------------------------------------------------------------------------------------------------------ ECQ


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("STREAM(s, 'CUT ON ts BY 60 SECS')", "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE) AS s"),
        ("STREAM(s, 'CUT BY 1000 ROWS', 'BLOCK', 1) x", "TUMBLE(TABLE s, DESCRIPTOR(row_num), 1000 ROWS) x"),
        ("stream(s, 'cut on id change', 'block')", "CHUNKS(TABLE s, DESCRIPTOR(id)) AS s"),
        ("STREAM_get_packets(s, 'CUT ON t_s BY 60') S", "TUMBLE(TABLE s, DESCRIPTOR(t_s), 60) S"),
        ("s CUT ON ts BY 60 SECONDS", "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE) AS s"),
        ("s AS x CUT ON arrival-ts BY '1 minute'", "TUMBLE(TABLE s, DESCRIPTOR(arrival_ts), INTERVAL 1 MINUTE) AS x"),
        ("s CUT BY 10 ROWS WHERE a = 1", "TUMBLE(TABLE s, DESCRIPTOR(row_num), 10 ROWS) AS s WHERE a = 1"),
        (
            "STREAM(s, 'CUT ON ts BY 60 SECS FILLED')",
            "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, FILLED => true) AS s",
        ),
        ("STREAM(s, 'CUT ON ts BY 60 SECS EMPTY SKIPPED')", "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE) AS s"),
    ],
)
def test_chunks(text: str, expected: str) -> None:
    """Each chunk is a query of its own."""
    same(f"SELECT count(*) FROM {text}", f"SELECT count(*) FROM {expected} GROUP BY {BOUNDS}")


def test_a_stream_in_chunks_beside_tables() -> None:
    text = (
        "SELECT floor(S.t_s/60) AS minute, h1.host_id AS from_host, h2.host_id AS to_host, SUM(S.bytes)"
        " FROM {} S, Hosts h1, Hosts h2"
        " WHERE h1.ip = S.from_ip AND h2.ip = S.to_ip GROUP BY minute, from_host, to_host{}"
    )
    same(
        text.format("STREAM_get_packets(packet_stream, 'CUT ON t_s BY 60 SECS')", ""),
        text.format("TUMBLE(TABLE packet_stream, DESCRIPTOR(t_s), INTERVAL 1 MINUTE)", f", {BOUNDS}"),
    )


def test_what_a_cut_means() -> None:
    filled = window("SELECT count(*) FROM STREAM(s, 'CUT ON ts BY 60 SECS EMPTY FILLED')")
    assert (filled.kind, filled.size, filled.slide, filled.filled) == ("tumble", MINUTE, MINUTE, True)
    assert not window("SELECT count(*) FROM STREAM(s, 'CUT ON ts BY 60 SECS')").filled
    chunks = window("SELECT count(*) FROM STREAM(s, 'CUT ON id CHANGE')")
    assert (chunks.kind, chunks.time_column, chunks.by_row) == ("chunks", "id", False)


# ------------------------------------------------------------------------------------------------------- Spark


@pytest.mark.parametrize(
    ("call", "place", "message"),
    [
        ("session_window(ts, '0 minutes')", "'0 minutes'", "the gap of session_window() must be positive"),
        ("window(ts, '-5 minutes')", "'-5 minutes'", "the size of window() must be positive"),
        ("window(ts, '5 minutes', '0 seconds')", "'0 seconds'", "the slide of window() must be positive"),
        ("window(ts, '5 minutes', '6 minutes')", "'6 minutes'", "the slide of window() is at most as long"),
        ("window(ts, '5 minutes', '1 minute', '-1 minute')", "'-1 minute'", "the start of window() is less than"),
    ],
)
def test_windows_of_spark_that_make_no_sense(call: str, place: str, message: str) -> None:
    found, where = refusal(f"SELECT count(*) FROM s GROUP BY {call}")
    assert message in found and where == place


# ------------------------------------------------------------------------------------------- what stays as it is


@pytest.mark.parametrize(
    "text",
    [
        "SELECT arr[0], arr[range], arr[slide + 1], m['RANGE 5'], arr[wa], arr[range - 5], arr[range IS NULL] FROM t",
        "SELECT arr[slide(x)], arr[pa.x], arr[origin], arr[range DIV 2] FROM t",
        "SELECT a < visible, a <slices FROM t WHERE a < visible AND b > slices OR visible < 'x'",
        "SELECT a FROM b JOIN c cut ON cut.id = b.id",
        "SELECT cut, stream, u FROM cut U",
        "SELECT a FROM x UNION SELECT b FROM y",
        "SELECT k, count(*) FROM s GROUP BY k WINDOW w AS (ORDER BY k)",
        "SELECT * FROM stream_rows('x')",
        "SELECT '[RANGE 1 minute, WA ts]' FROM s -- <VISIBLE '1 minute'>",
        "CREATE STREAM s (a INT, ts TIMESTAMP)",
    ],
)
def test_everything_else_is_left_alone(text: str) -> None:
    (statement,) = parse(text)
    assert not getattr(statement, "query", None) or not query_of(text).needs_plan


def test_only_the_statement_with_a_notation_needs_its_plan() -> None:
    script = "SELECT arr[0] FROM a; SELECT count(*) FROM s <SLICES '1 minute'>; SELECT 2"
    statements = parse(script)
    assert all(statement.text is script for statement in statements)
    queries = [statement.query for statement in statements if isinstance(statement, SelectStatement)]
    assert [query.needs_plan for query in queries] == [False, True, False]


# ------------------------------------------------------------------------------------------------------- functions


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("TUMBLE(TABLE s, DESCRIPTOR(row-num), 10 ROWS)", ("tumble", None, "row_num", True, 10, 10)),
        ("HOP(TABLE s, DESCRIPTOR(`row_num`), 10 ROWS, 100 ROWS)", ("hop", None, "row_num", True, 100, 10)),
        ("CUMULATE(s, seq, 10, 100)", ("cumulate", "seq", "column", True, 100, 10)),
        ("SESSION(TABLE s PARTITION BY k, DESCRIPTOR(seq), 5)", ("session", "seq", "column", True, 5, 5)),
        ("TUMBLE(TABLE s, DESCRIPTOR(ARRIVAL_TS), 1 MINUTE)", ("tumble", None, "arrival_ts", False, MINUTE, MINUTE)),
        ("TUMBLE(TABLE s, SIZE => INTERVAL 1 MINUTE)", ("tumble", None, "column", False, MINUTE, MINUTE)),
        ("SLIDING(DATA => s, SIZE => 1 MINUTE, SLIDE => 1 SECOND)", ("sliding", None, "column", False, MINUTE, SECOND)),
        ("LANDMARK(TABLE s, DESCRIPTOR(ts), 1 MINUTE)", ("landmark", "ts", "column", False, 0, MINUTE)),
        ("SLIDE_BY_ROW(TABLE s, DESCRIPTOR(ts), 1 MINUTE, 5 ROWS)", ("slide_by_row", "ts", "column", False, MINUTE, 0)),
        ("CHUNKS(TABLE s, DESCRIPTOR(id))", ("chunks", "id", "column", True, 0, 0)),
    ],
)  # fmt: skip
def test_window_functions(text: str, fields: tuple[object, ...]) -> None:
    found = window(f"SELECT * FROM {text}")
    assert (found.kind, found.time_column, found.attribute, found.rows, found.size, found.slide) == fields


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("TUMBLE(TABLE s, DESCRIPTOR(row_num), INTERVAL 1 MINUTE)", "INTERVAL 1 MINUTE", "are counted in rows"),
        ("TUMBLE(TABLE s, DESCRIPTOR(arrival_ts), 10 ROWS)", "10 ROWS", "ARRIVAL_TS is a time"),
        ("TUMBLE(TABLE s, SIZE => 10 ROWS)", "10 ROWS", "event time is a time"),
        ("TUMBLE(s, ts, 5 ROWS)", "5 ROWS", "rows are counted by ROW_NUM, and ts is a column"),
        ("HOP(TABLE s, DESCRIPTOR(ts), 10 ROWS, 1 MINUTE)", "1 MINUTE", "all lengths of time, or all numbers"),
        ("SLIDE_BY_ROW(TABLE s, DESCRIPTOR(ts), 1 MINUTE, 1 MINUTE)", "1 MINUTE", "moves by rows"),
        (
            "SLIDING(TABLE s, DESCRIPTOR(row_num), 0 ROWS, 5 ROWS)",
            "0 ROWS",
            "the slide of the window must be positive",
        ),
        ("SLIDING(TABLE s, DESCRIPTOR(ts), 1 MINUTE, -5 MINUTES)", "-5 MINUTES", "must be positive"),
        ("LANDMARK(TABLE s PARTITION BY a, DESCRIPTOR(ts), 1 MINUTE)", "PARTITION BY a", "takes no PARTITION BY"),
        ("CHUNKS(TABLE s)", "CHUNKS(TABLE s)", "CHUNKS needs a column"),
        ("SLIDE_BY_ROW(TABLE s, DESCRIPTOR(ts), 1 MINUTE, 1 ROW, BY => 'size')", "'size'", "expected row_num or rank"),
        ("SLIDE_BY_ROW(TABLE s, DESCRIPTOR(ts), 1 MINUTE, 1 ROW, STRATEGY => 'panes')", "'panes'", "have no panes"),
        ("TUMBLE(TABLE s, DESCRIPTOR(ts), 1 MINUTE, STRATEGY => 'bins')", "'bins'", "for windows that end at rows"),
        ("TUMBLE(TABLE s, DESCRIPTOR(ts), 1 MINUTE, STRATEGY => 'lazy')", "'lazy'", "windows, adaptive, rows or bins"),
    ],
)
def test_calls_that_make_no_sense(text: str, place: str, message: str) -> None:
    said, where = refusal(f"SELECT * FROM {text}")
    assert message in said
    assert where == place


# ------------------------------------------------------------------------------------------------------- errors


def test_places_in_a_script() -> None:
    script = "SELECT 1;\n  SELECT count(*)\n  [RANGE 1 minute, SLIDE 1 minute, WA ts]\n  FROM s ORDER BUY 1"
    with pytest.raises(SyntaxProblem) as caught:
        parse(script)
    assert str(caught.value).splitlines()[1:3] == ["  line 4:   FROM s ORDER BUY 1", " " * 25 + "^^^"]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("[RANGE 0 minutes, SLIDE 1 minute, WA ts] FROM s", "0 minutes", "the RANGE of the window must be positive"),
        ("[RANGE -5 minutes, SLIDE 1 minute, WA ts] FROM s", "-5 minutes", "must be positive"),
        ("[RANGE 10 rows, SLIDE 0 rows] FROM s", "0 rows", "the SLIDE of the window must be positive"),
        ("[RANGE 10 minutes, SLIDE 5 rows, WA ts] FROM s", "5 rows", "both lengths of time, or both numbers"),
        ("[RANGE 10 rows, SLIDE 1 minute, WA row-num] FROM s", "1 minute", "both lengths of time, or both numbers"),
        (
            "[RANGE 10 minutes, SLIDE 1 minute, WA row-num] FROM s",
            "10 minutes",
            "windows over ROW_NUM are counted in rows",
        ),
        ("[RANGE 10 rows, SLIDE 1 row, WA arrival-ts] FROM s", "10 rows", "ARRIVAL_TS is a time"),
        ("[RANGE 5 rows, SLIDE 5 rows, WA ts] FROM s", "5 rows", "rows are counted by ROW_NUM, and ts is a column"),
        ("[RANGE 5 rows, SLIDE 5 rows, WA ts, PA k] FROM s", "5 rows", "rows are counted by ROW_NUM"),
        ("[RANGE 10 minutes, SLIDDE 1 minute] FROM s", "SLIDDE", "expected RANGE, SLIDE"),
        ("[RANGE 10 minutes, RANGE 1 minute] FROM s", "RANGE", "RANGE is given twice"),
        ("[RANGE 10 minuets, SLIDE 1 minute] FROM s", "10 minuets", "expected the RANGE of the window"),
        ("[SLIDE 1 minute, WA ts] FROM s", "[SLIDE 1 minute, WA ts]", "this window has no RANGE"),
        ("[RANGE 1 minute, WA ts] FROM s", "[RANGE 1 minute, WA ts]", "this window has no SLIDE"),
        ("[RANGE TUMBLING 1 minute, SLIDE 1 minute] FROM s", "RANGE TUMBLING 1 minute", "TUMBLING is for the inputs"),
        ("[RANGE 1 minute, SLIDE 1 row, RATTR ts] FROM s", "RATTR ts", "RATTR and SATTR go together"),
        ("[RANGE 1 min, SLIDE 1 min, RATTR ts, SATTR row-num] FROM s", "1 min", "with SATTR windows move by rows"),
        ("[RANGE 1 min, SLIDE 1 row, RATTR ts, SATTR rank(b)] FROM s", "b", "by the rank of ts"),
        ("[RANGE 1 min, SLIDE 1 row, RATTR ts, SATTR b] FROM s", "b", "SATTR is ROW_NUM or rank(column)"),
        ("[RANGE 1 min, SLIDE 1 row, RATTR ts, SATTR row-num, PA k] FROM s", "PA k", "PA does not go with RATTR"),
        ("[RANGE ALL, SLIDE 1 min, PA k] FROM s", "k", "takes no PARTITION BY"),
        ("[RANGE 1 min, SLIDE 1 min, ORIGIN 'noon'] FROM s", "'noon'", "'noon' is not a time"),
        ("[RANGE 1 min, SLIDE 1 min, WA from-ip] FROM s", "from-ip", "from-ip is not a plain name"),
        ("[RANGE 1 min, SLIDE 1 min]", "[RANGE", "a window needs a relation"),
        (
            "[RANGE 1 min, SLIDE 1 min], max(a) [RANGE 2 min, SLIDE 1 min] FROM s",
            "[RANGE 2 min, SLIDE 1 min]",
            "all aggregates of a SELECT have the same window, and this one differs",
        ),
    ],
)
def test_brackets_that_make_no_sense(text: str, place: str, message: str) -> None:
    said, where = refusal(f"SELECT count(*) {text}")
    assert message in said
    assert where == place


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (
            "SELECT upper(a) [RANGE 1 min, SLIDE 1 min] FROM s",
            "[RANGE",
            "a window follows an aggregate, and upper is none",
        ),
        ("SELECT a FROM s HAVING count(*) [RANGE 1 min, SLIDE 1 min] > 1", "[RANGE", "an aggregate of the SELECT list"),
        ("SELECT count(*) FROM s [RANGE 1 min, WA ts]", "[RANGE 1 min, WA ts]", "is only for the inputs of a join"),
        ("SELECT count(*) FROM s <VISIBLE '0 minutes'>", "'0 minutes'", "what is VISIBLE must be positive"),
        ("SELECT count(*) FROM s <VISIBLE '1 minute' ADVANCE 'x'>", "'x'", "expected the ADVANCE of the window"),
        ("SELECT count(*) FROM s <SLICES '1 minute'> <SLICES '1 minute'>", "<SLICES '1 minute'>", "a window already"),
        (
            "SELECT count(*) FROM STREAM(s, 'CUT ON ts BY 0 SECS')",
            "0 SECS",
            "the length of the chunks must be positive",
        ),
        ("SELECT count(*) FROM STREAM(s, 'CUT OR ts BY 60 SECS')", "OR", "expected BY"),
        ("SELECT count(*) FROM STREAM(s, 'CUT ON ts BY 60 SECS FILED')", "FILED", "the statement should end here"),
        ("SELECT count(*) FROM STREAM(s, 'CUT BY 60 SECS')", "60 SECS", "are cut ON a column"),
        ("SELECT count(*) FROM STREAM(s, 'CUT ON id CHANGE FILLED')", "FILLED", "there are no empty ones"),
        ("SELECT count(*) FROM STREAM(s, 'CUT BY 6 ROWS', 'BLOCKS')", "'BLOCKS'", "expected 'BLOCK'"),
        # Joins.
        ("SELECT * FROM a [RANGE 1 min, WA ts], b", "[RANGE 1 min, WA ts]", "only this one has"),
        ("SELECT * FROM a [RANGE 1 min], b [RANGE 1 min, WA ts]", "[RANGE 1 min]", "which column has the times"),
        ("SELECT * FROM a [RANGE 1 min, WA b.ts], b [RANGE 1 min, WA ts]", "b.ts", "uses a column of it"),
        ("SELECT * FROM a [RANGE ALL, WA ts], b [RANGE 1 min, WA ts]", "RANGE ALL", "has a RANGE"),
        ("SELECT * FROM a [WA ts], b [RANGE 1 min, WA ts]", "[WA ts]", "has a RANGE"),
        ("SELECT * FROM a [RANGE 1 min, SLIDE 1 min, WA ts], b", "SLIDE 1 min", "SLIDE is for the windows of aggr"),
        ("SELECT * FROM a [RANGE 1 min, WA ts, PA k], b", "PA k", "PA is for the windows of aggregates"),
        ("SELECT * FROM a [RANGE 1 min, WA ts, ORIGIN 5], b", "ORIGIN 5", "ORIGIN is for windows that tumble"),
        ("SELECT * FROM a, b [RANGE TUMBLING 1 min OPEN, WA ts]", "RANGE TUMBLING 1 min OPEN", "OPEN is for windows"),
        (
            "SELECT * FROM a [RANGE TUMBLING 1 min, WA ts], b [RANGE 2 min, WA ts]",
            "[RANGE TUMBLING 1 min, WA ts]",
            "not joined with windows that tumble",
        ),
        (
            "SELECT * FROM a [RANGE 1 min, WA ts], b [RANGE TUMBLING 1 min, WA ts]",
            "[RANGE 1 min, WA ts]",
            "not joined with windows that tumble",
        ),
        (
            "SELECT * FROM a [RANGE TUMBLING 1 min, WA ts], b [RANGE TUMBLING 2 min]",
            "[RANGE TUMBLING 1 min, WA ts]",
            "equally long",
        ),
        ("SELECT * FROM a [RANGE 1 min, WA ts] LEFT JOIN b [RANGE 1 min, WA ts] USING (k)", "b", "after ON"),
        ("SELECT * FROM (SELECT 1) [RANGE 1 min, WA ts], b [RANGE 1 min, WA ts]", "(SELECT 1)", "needs a name"),
        ("SELECT * FROM a <SLICES '1 minute'>, b [RANGE 1 min, WA ts]", "<SLICES '1 minute'>", "does not fit"),
        ("SELECT count(*) [RANGE 1 min, SLIDE 1 min, WA a.ts, PA k] FROM a, b", "k", "PA is not for windows over"),
        (
            "SELECT 1 FROM TUMBLE(TABLE s <SLICES '1 minute'>, DESCRIPTOR(ts), INTERVAL 1 HOUR)",
            "<SLICES '1 minute'>",
            "not an argument of a function",
        ),
        ("SELECT 1 FROM NET(s CUT BY 5 ROWS, n)", "CUT BY 5 ROWS", "not an argument of a function"),
        # What is wrong elsewhere is shown where it was written.
        (
            "SELECT * FROM a [RANGE 1 min, WA ts], b [RANGE 1 min, WA ts] WHERE a.k = ORDER BY 1",
            "=",
            "something is missing",
        ),
        ("SELECT k, sum(x + ) [RANGE 1 min, SLIDE 1 min] FROM s", ")", "something is missing"),
        ("SELECT sum(x) [RANGE 1 min, SLIDE 1 min] FROM s WHERE x > 1 ORDER BUY x", "BUY", "expected BY"),
        ("SELECT sum(x) FROM s <SLICES '1 minute'> GROUP BY a +", "+", "something is missing"),
    ],
)
def test_places_are_those_of_the_text_as_written(text: str, place: str, message: str) -> None:
    said, where = refusal(text)
    assert message in said
    assert where == place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT count(*) [RANGE 1 min, SLIDE 1 min] FROM a JOIN b ON a.x = b.x", "a window over a join uses"),
        ("SELECT count(*) [RANGE 9 rows, SLIDE 1 row, WA row-num] FROM a, b", "a window over a join uses"),
        ("SELECT count(*) [RANGE 1 min, SLIDE 1 min, WA a.ts] FROM a <SLICES '1 minute'>, b", "over another window"),
        ("SELECT * FROM a [RANGE 1 row, WA x], b [RANGE 1 row, WA x]", "not by the order of arrival"),
        ("SELECT * FROM a [RANGE 1 min, WA arrival-ts], b [RANGE 1 min, WA ts]", "not by the order"),
        ("SELECT * FROM a [RANGE 1 min, WA t], b [RANGE 1 min, WA t], c [RANGE 1 min, WA t]", "two at a time"),
        ("SELECT count(*) [RANGE 1 min, SLIDE 1 min] FROM a <SLICES '1 minute'>", "a window over another window"),
        ("SELECT count(*) FROM a <SLICES '1 minute'>, b <SLICES '1 minute'>", "joins of windows"),
        ("SELECT DISTINCT a FROM s <SLICES '1 minute'>", "DISTINCT in each window"),
        ("SELECT a, count(*) FROM s <SLICES '1 minute'> GROUP BY ROLLUP (a)", "only plain columns"),
    ],
)
def test_what_is_understood_and_not_there_yet(text: str, message: str) -> None:
    assert message in refusal(text, NotSupported)[0]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT count(*) [RANGE 1 min, SLIDE 1 min, WA tss] FROM s", "tss", "there is no column tss"),
        ("SELECT count(*) [RANGE 2 rows, SLIDE 1 row, PA kk] FROM s", "kk", "there is no column kk"),
        ("SELECT count(*) [RANGE 10, SLIDE 1, WA ts] FROM s", "ts", "ts is a TIMESTAMP, and windows of numbers"),
        ("SELECT count(*) FROM STREAM(s, 'CUT ON k BY 60 SECS')", "k", "k is a STRING, and windows need a"),
        ("SELECT nope, count(*) FROM s <SLICES '1 minute'>", "nope", "there is no column nope"),
        ("SELECT 1 FROM s [RANGE 1 min, WA tss], s AS r [RANGE 1 min, WA ts]", "tss", "there is no column s.tss"),
        ("SELECT 1 FROM s, s AS r [RANGE TUMBLING 1 min, WA tss]", "tss", "there is no column tss"),
        ("SELECT a.x, count(*) [RANGE 1 min, SLIDE 1 min, WA a.ts] FROM s a, s b GROUP BY a.x", "a.x", "no column a.x"),
    ],
)
def test_columns_of_windows(text: str, place: str, message: str) -> None:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    resolver = Resolver(statement.text, {"s": {"k": "string", "ts": "timestamp", "seq": "bigint"}})
    with pytest.raises(SqlError) as caught:
        resolver.query(statement.query)
    error = caught.value
    assert message in error.message and error.text == text
    assert error.start is not None and text[error.start : error.end] == place


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT count(*) FROM s <SLICES '1 minute'>", "<SLICES '1 minute'>",
         "it is not clear which column has the time"),
        ("SELECT count(*) FROM STREAM((SELECT n FROM s) q, 'CUT BY 9 ROWS')", "CUT BY 9 ROWS",
         "the order of arrival is known of the rows of a stream only"),
        ("SELECT count(*) FROM TUMBLE(TABLE v, DESCRIPTOR(ARRIVAL_TS), INTERVAL 1 HOUR)", "ARRIVAL_TS",
         "the time of arrival is known of the rows of a stream only"),
    ],
)  # fmt: skip
def test_windows_that_cannot_be_computed(text: str, place: str, message: str) -> None:
    script = f"CREATE STREAM s (n BIGINT, ts TIMESTAMP); CREATE VIEW v AS SELECT n, ts FROM s; {text}"
    with pytest.raises(NotSupported) as caught:
        check(script)
    error = caught.value
    assert error.message == message and error.text == script
    assert error.start is not None and script[error.start : error.end] == place


def test_bounds_of_windows_over_numbers_are_numbers() -> None:
    (statement,) = parse("SELECT * FROM TUMBLE(TABLE s, DESCRIPTOR(seq), 100)")
    assert isinstance(statement, SelectStatement)
    columns = Resolver(statement.text, {"s": {"seq": "bigint"}}).query(statement.query)
    assert columns == {"seq": "bigint", **dict.fromkeys(("window_start", "window_end", "window_time"), "bigint")}
