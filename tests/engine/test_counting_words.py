"""TRIGGER COUNTING over queries that are counted in other words: with subqueries in expressions, several sets of
groups, natural joins, rows that are made of one row.

The law is that of `test_counting_changes`. The oracle asks DuckDB for the rows below anew for each row that comes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import duckdb
import pytest

from anabranch.testing import Harness
from engine.test_counting import Row
from engine.test_counting_changes import STREAMS, Case, There, check

pytestmark = pytest.mark.spark


def asked(below: str) -> Callable[[There], Iterator[Row]]:
    """The rows of a query over what is there."""

    def rows(there: There) -> Iterator[Row]:
        with duckdb.connect() as duck:
            for name in "ab":
                duck.execute(f"CREATE TABLE {name} (id INT, k VARCHAR, v INT)")
                if there[name]:
                    duck.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [list(row) for row in there[name]])
            yield from duck.sql(below).fetchall()

    return rows


COUNT = "SELECT k, count(*) AS n, sum(v) AS v FROM"
CASES = {
    "compared": Case(
        f"WITH m AS (SELECT * FROM b), n(w) AS (SELECT v FROM m WHERE v > 1) {COUNT} (SELECT k, (SELECT count(*) FROM n"
        " WHERE w < a.v) AS v FROM a WHERE v > (SELECT min(v) FROM m) OR v IN (SELECT v FROM m)) GROUP BY k",
        asked(
            "SELECT k, (SELECT count(*) FROM b WHERE b.v > 1 AND b.v < a.v) AS v FROM a"
            " WHERE v > (SELECT min(v) FROM b) OR v IN (SELECT v FROM b)"
        ),
    ),
    "rolled_up": Case(
        "SELECT concat_ws('.', k, id, grouping_id()) AS k, count(*) AS n, sum(v) AS v FROM a GROUP BY ROLLUP (k, id)",
        asked(
            "SELECT concat_ws('.', k, id, 0) AS k, v FROM a UNION ALL SELECT concat_ws('.', k, 1), v FROM a"
            " UNION ALL SELECT '3', v FROM a"
        ),
    ),
    "natural": Case(
        f"{COUNT} (SELECT * EXCEPT (id) FROM a NATURAL LEFT JOIN (SELECT k, v, id + 1 FROM b)) GROUP BY k",
        asked("SELECT a.k, a.v, b.id FROM a LEFT JOIN b ON a.k = b.k AND a.v = b.v"),
    ),
    "beside": Case(
        "SELECT k, count(*) AS n, max((SELECT count(*) FROM b)) * count(*) AS v FROM a GROUP BY k"
        " HAVING count(*) >= (SELECT min(id) FROM a)",
        asked("SELECT k, (SELECT count(*) FROM b) AS c, (SELECT min(id) FROM a) AS m FROM a"),
    ),
    "made": Case(
        "SELECT k, count(*) AS n, sum(x) AS v FROM a LATERAL VIEW explode(array(v, id, 10 - v)) t AS x WHERE x > 1"
        " GROUP BY k",
        asked("SELECT k, x FROM (SELECT k, unnest([v, id, 10 - v]) AS x FROM a) WHERE x > 1"),
    ),
    "always": Case(
        f"{COUNT} (SELECT k, v, id, id + 1 FROM a UNION ALL VALUES ('x', 5, 1, 1), ('z', 1, 1, 2)) GROUP BY k",
        asked("SELECT k, v, id, id FROM a UNION ALL SELECT * FROM (VALUES ('x', 5, 1, 1), ('z', 1, 1, 2))"),
    ),
}


@pytest.mark.parametrize(
    ("names", "seed"), [(("compared", "rolled_up", "natural"), 1), (("beside", "made", "always"), 2)]
)
def test_other_words_are_counted_one_by_one(home: Harness, names: tuple[str, ...], seed: int) -> None:
    chance = random.Random(seed)
    events = [(chance.choice("aab"), (chance.randrange(3), chance.choice("xy"), chance.randrange(8))) for _ in range(9)]
    events = sorted(events[:4], key=lambda each: each[0]) + sorted(events[4:], key=lambda each: each[0])
    check(home, [(name, CASES[name]) for name in names], 2, chance, events)


def test_one_statement_counts_in_several_places(home: Harness) -> None:
    home.sql(
        f"{STREAMS} CREATE VIEW v AS WITH"
        " x AS (SELECT k, count(*) AS n FROM (SELECT DISTINCT k, v FROM a) GROUP BY k TRIGGER COUNTING 2),"
        " y AS (SELECT a.k, count(b.v) AS n FROM a LEFT JOIN b ON a.id = b.id GROUP BY a.k TRIGGER COUNTING 3)"
        " SELECT 'x' AS q, * FROM x UNION ALL SELECT 'y', * FROM y"
    )
    home.insert("a", [(1, "p", 1), (1, "p", 1), (2, "p", 2)])
    assert home.table("v") == [("x", "p", 2), ("y", "p", 0)]
    home.insert("b", [(1, "", 5)])
    # Two rows without a partner go, and as many with one come: the sixth record is the first of these.
    assert home.table("v") == [("x", "p", 2), ("y", "p", 1)]
