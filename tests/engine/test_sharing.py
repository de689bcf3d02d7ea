"""One scan and one table of partials for many views; a row a pane, not a row a window."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from anabranch.testing import Harness

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
STREAM = "CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
WINDOW = "window_start, window_end"
TUMBLE = f"SELECT {WINDOW}, k, sum(n) AS n FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY {WINDOW}, k"
HOP = f"SELECT {WINDOW}, k, count(*) AS c FROM HOP(s, ts, INTERVAL 10 SECONDS, INTERVAL 1 MINUTE) GROUP BY {WINDOW}, k"


def rows(*seconds: int) -> list[tuple[str, int, datetime]]:
    return [("a", 1, START + timedelta(seconds=second)) for second in seconds]


def explained(home: Harness, query: str) -> str:
    return "\n".join(line for (line,) in home.query(f"EXPLAIN {query}"))


def partials(home: Harness) -> dict[str, int]:
    """The tables of partials and how many rows each has."""
    used = {table for (state,) in home.query("SELECT state FROM sys.views") for table in state}
    return {id: count for id, count in home.query("SELECT id, rows FROM sys.tables") if id in used}


def test_a_hopping_window_stores_a_row_a_pane(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {HOP}")
    home.insert("s", rows(1, 2, 3, 15))
    assert list(partials(home).values()) == [2]
    assert len(home.table("v")) == 7
    home.insert("s", rows(4))
    home.compact()
    assert list(partials(home).values()) == [2]
    assert home.table("v") == home.batch(HOP, s=rows(1, 2, 3, 4, 15))


def test_explain_tells_panes_and_sharing(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW hopping AS {HOP}")
    told = explained(home, TUMBLE)
    assert "partial aggregate of stream s" in told
    assert "shared with hopping" in told
    assert "6 panes a window" in told
    assert "emits every change" in told
    assert "emits when a window closes" in explained(home, f"{TUMBLE} EMIT ON WINDOW CLOSE")
    assert "computed over rows at each read, because" in explained(home, "SELECT DISTINCT k FROM s")
    assert "stateless" in explained(home, "SELECT k FROM s WHERE n > 1")
    assert "batch query: it reads no stream" in explained(home, "SELECT 1 AS one")


def test_views_with_the_same_keys_share_one_table(home: Harness) -> None:
    filtered = (
        f"SELECT {WINDOW}, k, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 20 SECONDS) WHERE n > 1 GROUP BY {WINDOW}, k"
    )
    home.sql(f"{STREAM}; CREATE VIEW a AS {HOP}; CREATE VIEW b AS {TUMBLE}; CREATE VIEW c AS {filtered}")
    home.sql(f"CREATE VIEW d AS {TUMBLE} EMIT ON WINDOW CLOSE")
    assert len(partials(home)) == 1
    home.sql(f"CREATE VIEW e AS SELECT {WINDOW}, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY {WINDOW}")
    assert len(partials(home)) == 2
    home.insert("s", rows(1, 12, 70))
    home.sql("DROP VIEW a; DROP VIEW d")
    assert home.table("b") == home.batch(TUMBLE, s=rows(1, 12, 70))
    assert home.table("c") == []
    home.sql("DROP VIEW b; DROP VIEW c; DROP VIEW e")
    assert partials(home) == {}


def test_a_view_made_late_joins_the_table_with_its_own_past(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW a AS {HOP}")
    home.insert("s", rows(1, 2))
    home.sql(f"CREATE VIEW b AS {TUMBLE}; CREATE VIEW c AS {TUMBLE} START AT NOW")
    home.insert("s", rows(3))
    home.compact()
    assert len(partials(home)) == 1
    assert [row[-1] for row in home.table("b")] == [3]
    assert [row[-1] for row in home.table("c")] == [1]
    assert home.table("a") == home.batch(HOP, s=rows(1, 2, 3))


def test_views_with_different_keys_are_right_together(home: Harness) -> None:
    views = {
        "by_k": "SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k",
        "by_n": "SELECT n, count(*) AS c, max(k) AS k FROM s GROUP BY n",
        "by_both": "SELECT k, n, count(n) AS c FROM s GROUP BY k, n",
        "other_order": "SELECT k, n % 2 AS odd, count(*) AS c FROM s GROUP BY n % 2, k",
        "one_order": "SELECT k, n % 2 AS odd, count(*) AS c FROM s GROUP BY k, n % 2",
        "by_none": "SELECT count(*) AS c, min(n) AS n FROM s",
        "by_parity": "SELECT n % 2 AS odd, count(*) AS c FROM s GROUP BY n % 2",
        "by_window": TUMBLE,
    }
    home.sql(f"{STREAM}; " + "; ".join(f"CREATE VIEW {name} AS {query}" for name, query in views.items()))
    at = START + timedelta(seconds=1)
    given = [("a", 1, at), (None, 1, at), ("a", None, at), (None, None, at), ("b", 4, at), ("x", 9, None)]
    home.insert("s", given)
    home.insert("s", [("b", 3, START + timedelta(minutes=2))])
    for name, query in views.items():
        assert sorted(map(str, home.query(f"SELECT * FROM {name}"))) == sorted(map(str, home.query(query))), name
    assert home.query("SELECT sum(c) FROM by_k") == [(6,)]
    assert home.query("SELECT odd, c FROM by_parity ORDER BY odd NULLS FIRST") == [(None, 2), (0, 1), (1, 3)]
    assert [(run["rows"], run["bad_rows"]) for run in home.runs("s")] == [(5, 1), (1, 0)]


def test_keys_that_differ_in_a_text_only_are_not_shared(home: Harness) -> None:
    home.sql(
        f"{STREAM}; CREATE VIEW big AS SELECT k = 'A' AS found, count(*) AS c FROM s GROUP BY k = 'A';"
        "CREATE VIEW small AS SELECT k = 'a' AS found, count(*) AS c FROM s GROUP BY k = 'a';"
        "CREATE VIEW wide AS SELECT count(*) FILTER (WHERE k = 'a  a') AS c FROM s;"
        "CREATE VIEW narrow AS SELECT count(*) FILTER (WHERE k = 'a a') AS c FROM s"
    )
    home.insert("s", [("a", 1, START), ("a a", 1, START)])
    assert home.table("big") == [(False, 2)]
    assert home.table("small") == [(False, 1), (True, 1)]
    assert home.table("wide") == [(0,)]
    assert home.table("narrow") == [(1,)]


def test_partials_that_were_dropped_and_are_made_again_count_once(home: Harness) -> None:
    counted, added = "SELECT k, count(*) AS c FROM s GROUP BY k", "SELECT k, sum(n) AS n FROM s GROUP BY k"
    home.sql(f"{STREAM}; CREATE VIEW one AS {counted}; CREATE VIEW two AS {added}")
    home.insert("s", rows(1, 2))
    home.sql(f"DROP VIEW two; CREATE VIEW two AS {added}; ALTER VIEW one AS {added} HAVING n > 0")
    home.insert("s", rows(3))
    assert home.table("one") == home.table("two") == home.batch(added, s=rows(1, 2, 3))
