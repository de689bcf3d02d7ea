"""Pairs of two streams by their windows: a band around each row, or the same tumbling window; each pair once."""

from __future__ import annotations

import pytest

from anabranch.testing import Harness

pytestmark = pytest.mark.spark

#: Left rows reach 3 on, right rows 2: a pair is at most so far apart.
BAND = [(5, 4), (5, 8), (7, 8), (7, 9), (7, 9), (11, 9), (11, 9), (11, 14), (12, 14)]
TUMBLING = [(1, 3), (7, 6), (7, 7), (7, 8), (9, 6), (9, 7), (9, 8)]


@pytest.mark.parametrize("turn", [1, -1])
def test_pairs_within_a_band_come_once_in_any_order(home: Harness, turn: int) -> None:
    home.sql("CREATE STREAM l (a INT)")
    home.sql("CREATE STREAM r (a INT)")
    home.sql("CREATE VIEW v AS SELECT l.a AS x, r.a AS y FROM l, r WHERE r.a BETWEEN l.a - 2 AND l.a + 3 EMIT CHANGES")
    home.sql("CREATE VIEW b AS SELECT l.a AS x, r.a AS y FROM l [RANGE 3, WA a], r [RANGE 2, WA a] EMIT CHANGES")
    home.sql(
        "CREATE VIEW o AS SELECT l.a AS x, r.a AS y FROM l [RANGE 3 OPEN, WA a] JOIN r [RANGE 2, WA a, OPEN] ON true"
    )
    runs = [("l", [5, 7]), ("r", [4, 9]), ("r", [8, 14]), ("l", [11, 12]), ("r", [9])]
    for stream, values in runs[::turn]:
        home.insert(stream, [(value,) for value in values])
    assert sorted(home.query("SELECT * FROM v")) == sorted(home.query("SELECT * FROM b")) == BAND
    assert sorted(home.query("SELECT * FROM o")) == [(x, y) for x, y in BAND if -2 < y - x < 3]


@pytest.mark.parametrize("turn", [1, -1])
def test_pairs_of_one_window_come_once_in_any_order(home: Harness, turn: int) -> None:
    home.sql("CREATE STREAM l (a INT)")
    home.sql("CREATE STREAM r (a INT)")
    home.sql("CREATE VIEW v AS SELECT l.a AS x, r.a AS y FROM TUMBLE(l, a, 5) AS l JOIN TUMBLE(r, a, 5) AS r"
             " ON l.window_start = r.window_start EMIT CHANGES")  # fmt: skip
    home.sql("CREATE VIEW b AS SELECT l.a AS x, r.a AS y FROM l, r [RANGE TUMBLING 5, WA a] EMIT CHANGES")
    runs = [("l", [1, 7]), ("r", [3, 6, 8]), ("l", [9]), ("r", [7, 12])]
    for stream, values in runs[::turn]:
        home.insert(stream, [(value,) for value in values])
    assert sorted(home.query("SELECT * FROM v")) == sorted(home.query("SELECT * FROM b")) == TUMBLING
