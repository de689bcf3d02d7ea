"""Joins of chunks as the plain joins that they stand for."""

from __future__ import annotations

import pytest

from anabranch.errors import SqlError
from anabranch.sql.parser import parse
from sql.same_plan import plans


def same(written: str, meant: str) -> None:
    one, other = plans(written, meant)
    assert one == other


def test_chunks_of_two_streams_meet_where_they_end_together() -> None:
    text = (
        "SELECT floor(S1.t_s/60) AS minute, AVG(S2.t_rt - S1.t_rt)"
        " FROM STREAM_get_packets(RT1, 'CUT ON t_s BY 60 SECS', 'BLOCK') S1,"
        " STREAM_get_packets(RT2, 'CUT ON t_s BY 60 SECS', 'BLOCK') S2 WHERE S1.pid = S2.pid GROUP BY minute"
    )
    same(
        text,
        "SELECT floor(S1.t_s/60) AS minute, AVG(S2.t_rt - S1.t_rt)"
        " FROM TUMBLE(TABLE RT1, DESCRIPTOR(t_s), INTERVAL 1 MINUTE) S1,"
        " TUMBLE(TABLE RT2, DESCRIPTOR(t_s), INTERVAL 1 MINUTE) S2"
        " WHERE S1.window_end = S2.window_end AND S1.pid = S2.pid"
        " GROUP BY minute, S1.window_start, S1.window_end, S1.window_time",
    )


def test_the_current_chunk_meets_those_before_it() -> None:
    text = (
        "SELECT DISTINCT * FROM STREAM_get_cdrs(CDRS, 'CUT ON t_s BY 5 SECS', 'BLOCK', 1) scf1,"
        " STREAM_get_cdrs(CDRS, 'CUT ON t_s BY 5 SECS', 'BLOCK', 12) scf2 WHERE scf1.caller = scf2.caller"
        " AND ((scf1.t_s > scf2.t_s AND scf1.t_s - scf2.t_s < 0.2) OR scf2.t_s - scf1.t_s < 0.2)"
    )
    same(
        text,
        "SELECT DISTINCT * FROM TUMBLE(TABLE CDRS, DESCRIPTOR(t_s), INTERVAL 5 SECONDS) scf1,"
        " SLIDING(TABLE CDRS, DESCRIPTOR(t_s), INTERVAL 5 SECONDS, INTERVAL 1 MINUTE) scf2"
        " WHERE scf1.window_end = scf2.window_end AND scf1.caller = scf2.caller"
        " AND ((scf1.t_s > scf2.t_s AND scf1.t_s - scf2.t_s < 0.2) OR scf2.t_s - scf1.t_s < 0.2)",
    )


BOTH = "a.window_end = b.window_end AND (a.__newest OR b.__newest)"
SLIDES = "SLIDING(TABLE s, DESCRIPTOR(row_num), 5 ROWS, 10 ROWS, PAIRS => 'every')"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT a.x FROM STREAM(s, 'CUT BY 5 ROWS', 'BLOCK', 2) a, STREAM(t, 'CUT BY 5 ROWS', 'BLOCK', 3) b",
            f"SELECT a.x FROM {SLIDES} a,"
            f" SLIDING(TABLE t, DESCRIPTOR(row_num), 5 ROWS, 15 ROWS, PAIRS => 'every') b WHERE {BOTH}",
        ),
        (
            "SELECT a.x FROM STREAM(s, 'CUT ON g CHANGE', 'BLOCK', 2) a"
            " JOIN STREAM(t, 'CUT ON h CHANGE', 'BLOCK', 2, 'once') b ON a.x = b.x WHERE a.x > 1 OR b.x > 1",
            "SELECT a.x FROM CHUNKS(TABLE s, DESCRIPTOR(g), BLOCK => 2, PAIRS => 'once') a"
            " JOIN CHUNKS(TABLE t, DESCRIPTOR(h), BLOCK => 2, PAIRS => 'once') b ON a.x = b.x"
            f" WHERE {BOTH} AND (a.x > 1 OR b.x > 1)",
        ),
        (
            "SELECT a.x FROM STREAM(s, 'CUT ON g CHANGE') a, STREAM(t, 'CUT ON g CHANGE') b",
            "SELECT a.x FROM CHUNKS(TABLE s, DESCRIPTOR(g), BLOCK => 1) a,"
            " CHUNKS(TABLE t, DESCRIPTOR(g), BLOCK => 1) b WHERE a.window_end = b.window_end",
        ),
        (
            "SELECT count(*), cq_close(*), window_start w FROM a CUT BY 5 ROWS LEFT JOIN b CUT BY 5 ROWS"
            " ON a.x = b.x OR b.x IS NULL",
            "SELECT count(*), a.window_end AS cq_close, a.window_start w"
            " FROM TUMBLE(TABLE a, DESCRIPTOR(row_num), 5 ROWS) AS a"
            " LEFT JOIN TUMBLE(TABLE b, DESCRIPTOR(row_num), 5 ROWS) AS b"
            " ON a.window_end = b.window_end AND (a.x = b.x OR b.x IS NULL)"
            " GROUP BY a.window_start, a.window_end, a.window_time",
        ),
        (
            "SELECT DISTINCT 1, a.x y, floor(b.x) AS z, window_id() FROM a CUT BY 5 ROWS, b CUT BY 5 ROWS",
            "SELECT 1, a.x y, floor(b.x) AS z, a.window_id FROM TUMBLE(TABLE a, DESCRIPTOR(row_num), 5 ROWS) AS a,"
            " TUMBLE(TABLE b, DESCRIPTOR(row_num), 5 ROWS) AS b WHERE a.window_end = b.window_end"
            " GROUP BY a.x, floor(b.x), a.window_id, a.window_start, a.window_end, a.window_time",
        ),
        (
            "SELECT count(*) FROM STREAM(s, 'CUT ON ts BY 5 SECS', 'BLOCK', 12)",
            "SELECT count(*) FROM SLIDING(TABLE s, DESCRIPTOR(ts), INTERVAL 5 SECONDS, INTERVAL 1 MINUTE) AS s"
            " GROUP BY window_start, window_end, window_time",
        ),
        (
            "SELECT count(*) FROM STREAM(s, 'CUT ON g CHANGE', 'BLOCK', 2), h WHERE s.x = h.x",
            "SELECT count(*) FROM CHUNKS(TABLE s, DESCRIPTOR(g), BLOCK => 2, PAIRS => 'every') AS s, h"
            " WHERE s.__newest AND s.x = h.x GROUP BY window_start, window_end, window_time",
        ),
    ],
)
def test_every_kind_of_chunks(text: str, expected: str) -> None:
    same(text, expected)


CUT = "STREAM(s, 'CUT BY 5 ROWS', 'BLOCK', 2) a"


@pytest.mark.parametrize(
    ("source", "message", "place"),
    [
        (f"{CUT}, STREAM(t, 'CUT BY 6 ROWS') b", "this cut differs", "STREAM(t, 'CUT BY 6 ROWS')"),
        (f"{CUT}, STREAM(t, 'CUT ON ts BY 5 SECS') b", "this cut differs", "STREAM(t, 'CUT ON ts BY 5 SECS')"),
        (f"{CUT}, STREAM(t, 'CUT ON g CHANGE') b", "this cut differs", "STREAM(t, 'CUT ON g CHANGE')"),
        (f"{CUT}, STREAM(t, 'CUT BY 5 ROWS') a", "two streams of this join are called a", "STREAM(t, 'CUT BY 5 ROWS')"),
        (f"{CUT} FULL JOIN STREAM(t, 'CUT BY 5 ROWS') b ON true", "inner joins", "STREAM(t, 'CUT BY 5 ROWS')"),
        (f"{CUT} LEFT JOIN STREAM(t, 'CUT BY 5 ROWS') b ON true", "inner joins", "STREAM(t, 'CUT BY 5 ROWS')"),
        (f"{CUT}, STREAM(t, 'CUT BY 5 ROWS FILLED') b", "nothing to join", "STREAM(t, 'CUT BY 5 ROWS FILLED')"),
        ("STREAM(s, 'CUT BY 5 ROWS', 'BLOCK', 2, 'ONCE')", "this is not a join", "'ONCE'"),
        ("STREAM(s, 'CUT BY 5 ROWS', 'BLOCK', 2, 'TWICE')", "'ONCE', or in 'EVERY EPOCH'", "'TWICE'"),
        (
            "STREAM(s, 'CUT BY 5 ROWS', 'BLOCK', 2, 'ONCE') a, STREAM(t, 'CUT BY 5 ROWS', 'BLOCK', 2, 'EVERY EPOCH') b",
            "has another setting",
            "'EVERY EPOCH'",
        ),
        ("STREAM(s, 'CUT BY 5 ROWS', 'BLOCK', 0)", "at least 1 chunk", "0"),
        (f"{CUT}, t <SLICES '5 rows'>", "joins of windows", "<SLICES '5 rows'>"),
    ],
)
def test_what_does_not_pair_up(source: str, message: str, place: str) -> None:
    text = f"SELECT a.x FROM {source}"
    with pytest.raises(SqlError) as caught:
        parse(text)
    error = caught.value
    assert message in str(error)
    assert error.start is not None and error.end is not None
    assert text[error.start : error.end] == place
