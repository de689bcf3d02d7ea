"""Joins of chunks: the queries as their authors print them, closing by the slower stream, corrections, crashes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from anabranch.engine import run
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
HOSTS = "('10.0.0.1', 'alpha'), ('10.0.0.2', 'beta'), ('10.0.0.3', 'beta')"
#: pid, seconds, from, to, bytes
PACKETS = [
    (1, 5, "10.0.0.1", "10.0.0.2", 100), (2, 20, "10.0.0.1", "10.0.0.3", 50), (3, 59, "10.0.0.2", "10.0.0.1", 10),
    (4, 60, "10.0.0.1", "10.0.0.2", 7), (5, 75, "10.0.0.9", "10.0.0.1", 999), (6, 100, "10.0.0.3", "10.0.0.2", 1),
    (7, 185, "10.0.0.2", "10.0.0.1", 4),
]  # fmt: skip
#: pid, seconds, time at the router
RT1 = [(1, 5, 1000), (2, 30, 2000), (3, 58, 3000), (4, 61, 4000), (5, 119, 5000), (6, 150, 6000)]
RT2 = [(1, 5, 1012), (3, 58, 3020), (4, 61, 4005), (5, 119, 5009), (7, 130, 7000), (6, 150, 6100)]
#: caller, callee, seconds, id
CALLS = [
    ("A", "B", "1.000", 1), ("A", "B", "1.150", 2), ("A", "B", "1.200", 3), ("C", "D", "4.900", 4),
    ("C", "D", "5.050", 5), ("C", "D", "5.099", 6), ("C", "D", "5.100", 7), ("E", "F", "6.000", 8),
    ("E", "F", "6.000", 9), ("A", "B", "61.100", 10),
]  # fmt: skip


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def label(moment: datetime, width: int = 60) -> int:
    """Of the chunk that ends at a moment."""
    return round((moment - START).total_seconds()) // width - 1


def test_the_queries_as_printed(home: Harness) -> None:
    home.sql("CREATE STREAM packet_stream (pid INT, t_s INT, from_ip STRING, to_ip STRING, bytes INT);"
             "CREATE STREAM RT1 (pid INT, t_s INT, t_rt INT); CREATE STREAM RT2 (pid INT, t_s INT, t_rt INT);"
             "CREATE STREAM CDRS (caller STRING, callee STRING, t_s DECIMAL(10, 3), id INT);"
             f"CREATE TABLE Hosts AS SELECT * FROM VALUES {HOSTS} AS h(ip, host_id);"
             "CREATE TABLE packet_table (pid INT, t_s INT, from_ip STRING, to_ip STRING, bytes INT)")  # fmt: skip
    home.sql(f"INSERT INTO packet_table VALUES {', '.join(map(str, PACKETS))}")
    for stream, rows in (("packet_stream", PACKETS), ("RT1", RT1), ("RT2", RT2), ("CDRS", CALLS)):
        home.insert(stream, rows)
    assert sorted(home.query(
        """SELECT h1.host_id AS from_host, h2.host_id AS to_host, SUM(T.bytes) FROM packet_table T, Hosts h1, Hosts h2
           WHERE h1.ip = T.from_ip AND h2.ip = T.to_ip GROUP BY from_host, to_host"""
    )) == [("alpha", "beta", 157), ("beta", "alpha", 14), ("beta", "beta", 1)]  # fmt: skip
    assert sorted(home.query(
        """SELECT floor(S.t_s/60) AS minute, h1.host_id AS from_host, h2.host_id AS to_host, SUM(S.bytes)
           FROM STREAM_get_packets(packet_stream, 'CUT ON t_s BY 60 SECS') S, Hosts h1, Hosts h2
           WHERE h1.ip = S.from_ip AND h2.ip = S.to_ip GROUP BY minute, from_host, to_host"""
    )) == [(0, "alpha", "beta", 150), (0, "beta", "alpha", 10), (1, "alpha", "beta", 7), (1, "beta", "beta", 1),
           (3, "beta", "alpha", 4)]  # fmt: skip
    assert sorted(home.query(
        """SELECT floor(S1.t_s/60) AS minute, AVG(S2.t_rt - S1.t_rt)
           FROM STREAM_get_packets(RT1, 'CUT ON t_s BY 60 SECS', 'BLOCK') S1,
                STREAM_get_packets(RT2, 'CUT ON t_s BY 60 SECS', 'BLOCK') S2
           WHERE S1.pid = S2.pid GROUP BY minute"""
    )) == [(0, 16.0), (1, 7.0), (2, 100.0)]  # fmt: skip
    assert [(minute, round(mean, 4)) for minute, mean in sorted(home.query(
        """SELECT floor(t_s/60) AS minute, AVG(S.bytes)
           FROM STREAM_get_packets(packet_stream, 'CUT ON t_s BY 60 SECS') S GROUP BY minute"""
    ))] == [(0, 53.3333), (1, 335.6667), (3, 4.0)]  # fmt: skip
    near = """scf1.caller = scf2.caller AND scf1.callee = scf2.callee
              AND ((scf1.t_s > scf2.t_s AND scf1.t_s - scf2.t_s < 0.2)
                   OR (scf2.t_s > scf1.t_s AND scf2.t_s - scf1.t_s < 0.2))"""
    rows = home.query(
        f"""SELECT DISTINCT * FROM STREAM_get_cdrs(CDRS, 'CUT ON t_s BY 5 SECS', 'BLOCK', 1) scf1,
                                   STREAM_get_cdrs(CDRS, 'CUT ON t_s BY 5 SECS', 'BLOCK', 12) scf2 WHERE {near}"""
    )
    assert len(rows[0]) == 2 * (4 + 3)
    pairs = [(1, 2), (2, 1), (2, 3), (3, 2), (5, 4), (5, 6), (5, 7), (6, 4), (6, 5), (6, 7), (7, 5), (7, 6)]
    assert sorted((row[3], row[10]) for row in rows) == pairs
    assert sorted(home.query(
        """SELECT later.id, earlier.id FROM CDRS later JOIN CDRS earlier USING (caller, callee)
           WHERE later.t_s - earlier.t_s < 0.2 AND (later.t_s, later.id) > (earlier.t_s, earlier.id)"""
    )) == [(2, 1), (3, 2), (5, 4), (6, 4), (6, 5), (7, 5), (7, 6), (9, 8)]  # fmt: skip


def test_what_each_epoch_of_a_self_join_adds(home: Harness) -> None:
    """The newest chunk meets the twelve newest: a pair of two chunks comes in one direction, and never again."""
    home.sql("CREATE STREAM calls (caller STRING, callee STRING, ts TIMESTAMP, id INT, WATERMARK FOR ts AS ts)")
    pairs = ("SELECT {} a.id AS x, b.id AS y, window_end AS e"
             " FROM STREAM(calls, 'CUT ON ts BY 5 SECS', 'BLOCK', 1) a,"
             " STREAM(calls, 'CUT ON ts BY 5 SECS', 'BLOCK', 12) b"
             " WHERE a.caller = b.caller AND a.callee = b.callee")  # fmt: skip
    near = "{0}.ts > {1}.ts AND {0}.ts < {1}.ts + INTERVAL 200 MILLISECONDS"
    doubled = f"{pairs.format('DISTINCT')} AND (({near.format('a', 'b')}) OR ({near.format('b', 'a')}))"
    home.sql(f"CREATE VIEW doubled AS {doubled} EMIT ON WINDOW CLOSE")
    calls = [(caller, callee, at(float(seconds)), id) for caller, callee, seconds, id in CALLS]
    ended = {}
    for epoch, rows in ((None, calls[:4]), (0, calls[4:9]), (1, [("A", "B", at(55), 11)]), (11, calls[9:])):
        home.insert("calls", rows)
        ended[home.session.version] = epoch  # which one these rows end
    # Calls 1 and 3 are 200 ms apart, and so are 4 and 7; 4 is of an older chunk, which the newest one looks back at.
    second = [(5, 4), (5, 6), (5, 7), (6, 4), (6, 5), (6, 7), (7, 5), (7, 6)]
    expected = {0: [(1, 2), (2, 1), (2, 3), (3, 2)], 1: second, 11: []}
    changes = home.changes("doubled")
    assert all((change.diff, label(change.row[2], 5)) == (1, ended[change.version]) for change in changes)
    for epoch, added in expected.items():
        assert sorted(change.row[:2] for change in changes if ended[change.version] == epoch) == added
    met = home.query(f"{pairs.format('')} AND a.caller = 'A' AND a.id > 3")
    seen = [(11, 11, 1), (11, 11, 2), (11, 11, 3), (11, 11, 11), (12, 10, 10), (12, 10, 11)]
    assert sorted((label(end, 5), x, y) for x, y, end in met) == seen  # in epoch 12 chunk 0 is the thirteenth


#: The newest chunks kept of each side, and how many pairs of equal values epochs 0 to 3 give, in both ways.
COUNTS = [
    (1, 1, [1, 1, 1, 0], [1, 1, 1, 0]),
    (2, 1, [1, 3, 1, 1], [1, 3, 1, 1]),
    (1, 2, [1, 2, 2, 0], [1, 2, 2, 0]),
    (1, 4, [1, 2, 2, 2], [1, 2, 2, 2]),
    (2, 2, [1, 5, 3, 2], [1, 4, 2, 1]),
    (4, 4, [1, 5, 7, 11], [1, 4, 2, 4]),
]
#: The pairs of two with two chunks: the value, and the chunks it is in.
PAIRS = {
    "EVERY EPOCH": ["b00", "a01 b00 b01 b10 b11", "a21 b11 c22", "a23 c22"],
    "ONCE": ["b00", "a01 b01 b10 b11", "a21 c22", "a23"],
}


def test_how_many_pairs_each_epoch_gives(home: Harness) -> None:
    """Each epoch comes whole when it ends, and what it gives is that of the windows of chunks that it sees."""
    chunks = {"s": ["ab", "b", "ca", "b"], "t": ["b", "ab", "c", "a"]}
    for stream in chunks:
        home.sql(f"CREATE STREAM {stream} (v STRING, l INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    query = ("SELECT a.v AS v, a.l AS i, b.l AS j, window_end AS e"
             " FROM STREAM(s, 'CUT ON ts BY 10 SECS', 'BLOCK', {}, '{}') a,"
             " STREAM(t, 'CUT ON ts BY 10 SECS', 'BLOCK', {}) b WHERE a.v = b.v")  # fmt: skip
    for mode in PAIRS:
        home.sql(f"CREATE VIEW in_{mode[:4]} AS {query.format(2, mode, 2)} EMIT ON WINDOW CLOSE")
    ended = []
    for number in range(4):
        for stream, values in chunks.items():
            home.insert(stream, [(value, number, at(10 * number + 5)) for value in values[number]])
        ended.append(home.session.version)
    for stream in chunks:
        home.advance(stream, at(40))
    ended = [*ended[1:], home.session.version]
    for mode, expected in PAIRS.items():
        changes = home.changes(f"in_{mode[:4]}")
        assert all((change.diff, change.version) == (1, ended[label(change.row[3], 10)]) for change in changes)
        given = [[change.row[:3] for change in changes if change.version == version] for version in ended]
        assert [" ".join(sorted(f"{v}{i}{j}" for v, i, j in rows)) for rows in given] == expected
    cases = [(m, n, mode) for m, n, *_ in COUNTS for mode in PAIRS]
    found = Counter(home.query(" UNION ALL ".join(
        f"SELECT {m} AS m, {n} AS n, '{mode}' AS mode, e FROM ({query.format(m, mode, n)})" for m, n, mode in cases
    )))  # fmt: skip
    for m, n, *counts in COUNTS:
        for mode, each in zip(PAIRS, counts, strict=True):
            assert [found[m, n, mode, at(10 * epoch + 10)] for epoch in range(4)] == each, f"{m} with {n}, {mode}"
    assert found.total() == sum(sum(every) + sum(once) for _, _, every, once in COUNTS)


def test_an_epoch_closes_with_the_slower_stream_and_late_rows_correct_it(home: Harness) -> None:
    for stream in ("rt1", "rt2"):
        home.sql(f"CREATE STREAM {stream} (pid INT, ts TIMESTAMP, t_rt INT, WATERMARK FOR ts AS ts)")
    query = ("SELECT avg(b.t_rt - a.t_rt) AS d, window_end AS e FROM STREAM({}, 'CUT ON ts BY 60 SECS', 'BLOCK') a,"
             " STREAM(rt2, 'CUT ON ts BY 60 SECS', 'BLOCK') b WHERE a.pid = b.pid")  # fmt: skip
    home.sql(f"CREATE VIEW v AS {query.format('rt1')} EMIT ON WINDOW CLOSE")

    def shown(text: str = "SELECT d, e FROM v") -> list[tuple[int, float]]:
        return sorted((label(end), round(delay, 4)) for delay, end in home.query(text))

    def minute(rows: list[tuple[int, int, int]], which: int) -> list[tuple[Any, ...]]:
        return [(pid, at(seconds), time) for pid, seconds, time in rows if seconds // 60 == which]

    steps: list[tuple[str, list[tuple[Any, ...]], list[tuple[int, float]]]] = [
        ("rt1", minute(RT1, 0)[::2], []),
        ("rt2", [*minute(RT2, 0), (2, at(30), 2044)], []),
        ("rt1", minute(RT1, 1), []),
        ("rt2", minute(RT2, 1), [(0, 16.0)]),
        ("rt1", [*minute(RT1, 2), (8, at(190), 1)], [(0, 16.0)]),  # three minutes on, and the other one is silent
        ("rt2", minute(RT2, 2), [(0, 16.0), (1, 7.0)]),
        ("rt1", minute(RT1, 0)[1:2], [(0, 25.3333), (1, 7.0)]),
    ]
    for stream, rows, expected in steps:
        home.insert(stream, rows)
        assert shown() == expected
    signed = [(change.diff, label(change.row[1]), round(change.row[0], 4)) for change in home.changes("v")]
    assert signed == [(1, 0, 16.0), (1, 1, 7.0), (-1, 0, 16.0), (1, 0, 25.3333)]
    home.advance("rt2", at(180))  # what a silent stream says instead of rows
    assert shown() == [(0, 25.3333), (1, 7.0), (2, 100.0)]
    gap = "(SELECT * FROM rt1 WHERE pid NOT IN (4, 5))"
    assert shown(query.format(gap)) == [(0, 25.3333), (2, 100.0)]
    cut = {stream: [row["post_cut_ms"] is not None for row in home.runs(stream)] for stream in ("rt1", "rt2")}
    assert cut == {"rt1": [False] * 4, "rt2": [False, True, True, True]}


def test_an_epoch_is_shown_whole_or_not_at_all(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql("CREATE STREAM packets (pid INT, ts TIMESTAMP, from_ip STRING, to_ip STRING, bytes INT,"
             " WATERMARK FOR ts AS ts);"
             f"CREATE TABLE kept AS SELECT * FROM VALUES {HOSTS} AS h(ip, host);"
             "CREATE TABLE fresh (ip STRING, host STRING) REFRESH EVERY RUN;"
             f"INSERT INTO fresh VALUES {HOSTS}")  # fmt: skip
    for table in ("kept", "fresh"):
        home.sql(f"""CREATE VIEW by_{table} AS SELECT h1.host AS a, h2.host AS b, sum(s.bytes) AS n, window_end AS e
                     FROM STREAM(packets, 'CUT ON ts BY 60 SECS') s, {table} h1, {table} h2
                     WHERE h1.ip = s.from_ip AND h2.ip = s.to_ip GROUP BY h1.host, h2.host EMIT ON WINDOW CLOSE""")
    home.sql("CREATE VIEW largest AS SELECT max_by(pid, bytes) AS pid, max(bytes) AS n, window_end AS e"
             " FROM STREAM(packets, 'CUT ON ts BY 60 SECS') EMIT ON WINDOW CLOSE")  # fmt: skip
    rows = [(pid, at(seconds), *rest) for pid, seconds, *rest in PACKETS]

    def shown(view: str) -> list[tuple[Any, ...]]:
        return sorted((label(row[-1]), *row[:-1]) for row in home.query(f"SELECT * FROM {view}"))

    first = [(0, "alpha", "beta", 150), (0, "beta", "alpha", 10)]
    home.insert("packets", rows[:3])
    assert shown("by_kept") == []
    home.insert("packets", rows[3:4])  # the first of the next chunk
    assert shown("by_kept") == shown("by_fresh") == first
    for table in ("kept", "fresh"):
        home.sql(f"UPDATE {table} SET host = 'gamma' WHERE ip = '10.0.0.3'")
    with monkeypatch.context() as patched:
        patched.setattr(run, "reach", _die_before_the_record)
        with pytest.raises(KeyboardInterrupt):
            home.insert("packets", rows[4:])
    home.reopen()
    assert shown("by_kept") == shown("by_fresh") == first
    assert shown("largest") == [(0, 1, 100)]
    home.insert("packets", rows[4:])
    assert shown("by_kept") == [*first, (1, "alpha", "beta", 7), (1, "beta", "beta", 1)]
    assert shown("by_fresh") == [*first, (1, "alpha", "beta", 7), (1, "gamma", "beta", 1)]
    assert shown("largest") == [(0, 1, 100), (1, 5, 999)]
    home.insert("packets", [(8, at(30), "10.0.0.9", "10.0.0.9", 500)])
    changed = [(each.diff, label(each.row[2]), *each.row[:2]) for each in home.changes("largest")]
    assert changed[2:] == [(-1, 0, 1, 100), (1, 0, 8, 500)]


def _die_before_the_record(place: str) -> None:
    if place == "after-changes":
        raise KeyboardInterrupt


def test_counted_chunks_and_chunks_of_a_key_close_together(home: Harness) -> None:
    home.sql("CREATE STREAM l (v INT, g STRING); CREATE STREAM r (v INT, g STRING)")
    pairs = "SELECT a.v AS x, b.v AS y, window_end AS e FROM STREAM(l, '{0}') a, STREAM(r, '{0}'{1}) b"
    both = " WHERE a.v <= b.v AND a.v >= b.v"  # no column to hash by: one side is read again for each row of the other
    home.sql(f"CREATE VIEW counted AS {pairs.format('CUT BY 2 ROWS', '')}{both} EMIT ON WINDOW CLOSE")
    home.sql(f"CREATE VIEW changed AS {pairs.format('CUT ON g CHANGE', ', ' + repr('BLOCK') + ', 2')}"
             " EMIT ON WINDOW CLOSE")  # fmt: skip

    def shown(view: str) -> list[tuple[Any, ...]]:
        return sorted((row[2] // (2 if view == "counted" else 1) - 1, *row[:2]) for row in home.table(view))

    home.insert("r", [(v, g) for v, g in enumerate("ppqqrrss", 1)])
    assert shown("counted") == shown("changed") == []
    home.insert("l", [(1, "g"), (2, "h"), (3, "h")])
    assert shown("counted") == [(0, 1, 1), (0, 2, 2)]
    assert shown("changed") == [(0, 1, 1), (0, 1, 2)]
    home.insert("l", [(4, "g")])
    assert shown("counted") == [(0, 1, 1), (0, 2, 2), (1, 3, 3), (1, 4, 4)]
    second = [(1, x, y) for x in (2, 3) for y in (1, 2, 3, 4)]
    assert shown("changed") == [(0, 1, 1), (0, 1, 2), *second]
    home.advance("l")
    assert shown("changed") == [(0, 1, 1), (0, 1, 2), *second, *((2, 4, y) for y in (3, 4, 5, 6))]
