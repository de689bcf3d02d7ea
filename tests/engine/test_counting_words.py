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
from engine.test_counting import Row, play
from engine.test_counting_changes import STREAMS, Case, There, _nulls_first, values

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
    "above_all": Case(
        f"{COUNT} a WHERE v > (SELECT min(v) FROM b) OR v IN (SELECT v FROM b) GROUP BY k",
        asked("SELECT k, v FROM a WHERE v > (SELECT min(v) FROM b) OR v IN (SELECT v FROM b)"),
    ),
    "compared": Case(
        f"WITH m AS (SELECT * FROM b WHERE v > 1) {COUNT}"
        " (SELECT k, (SELECT count(*) FROM m WHERE m.v < a.v) AS v FROM a) GROUP BY k",
        asked("SELECT k, (SELECT count(*) FROM b WHERE b.v < a.v AND b.v > 1) AS v FROM a"),
    ),
    "beside": Case(
        "SELECT k, count(*) AS n, max((SELECT count(*) FROM b)) * count(*) AS v FROM a GROUP BY k"
        " HAVING count(*) >= (SELECT min(id) FROM a)",
        asked("SELECT k, (SELECT count(*) FROM b) AS c, (SELECT min(id) FROM a) AS m FROM a"),
    ),
    "rolled_up": Case(
        "SELECT concat_ws('.', k, id, grouping_id()) AS k, count(*) AS n, sum(v) AS v FROM a GROUP BY ROLLUP (k, id)",
        asked(
            "SELECT concat_ws('.', k, id, 0) AS k, v FROM a UNION ALL SELECT concat_ws('.', k, 1), v FROM a"
            " UNION ALL SELECT '3', v FROM a"
        ),
    ),
    "sets": Case(
        f"{COUNT} (SELECT k, count(*) AS v FROM a GROUP BY GROUPING SETS ((k), (v), ())) GROUP BY k",
        asked("SELECT k, count(*) AS v FROM a GROUP BY GROUPING SETS ((k), (v), ()) HAVING count(*) > 0"),
    ),
}


@pytest.mark.parametrize(
    ("names", "seed"),
    [(("above_all", "compared", "beside"), 1), (("rolled_up", "sets"), 2)],
)
def test_other_words_are_counted_one_by_one(home: Harness, names: tuple[str, ...], seed: int) -> None:
    chance = random.Random(seed)
    events = [
        (chance.choice("aab"), (chance.randrange(3), chance.choice("xy"), chance.randrange(8))) for _ in range(12)
    ]
    events = sorted(events[:6], key=lambda each: each[0]) + sorted(events[6:], key=lambda each: each[0])
    home.sql(STREAMS + "".join(CASES[name].below for name in names))
    for name in names:
        home.sql(f"CREATE VIEW {name} AS {CASES[name].query} TRIGGER COUNTING 3")
    play(home, chance, events)
    for name in names:
        home.sql(f"CREATE VIEW {name}_behind AS {CASES[name].query} TRIGGER COUNTING 3")
        expected = values(CASES[name], events, 3)
        last = sorted((shown[-1] for shown in expected.values() if shown[-1] is not None), key=_nulls_first)
        assert last and sorted(home.table(name), key=_nulls_first) == last, name
        assert sorted(home.table(f"{name}_behind"), key=_nulls_first) == last, name
        given = [change.row for change in home.changes(name) if change.diff > 0]
        assert set(given) <= {each for shown in expected.values() for each in shown}, name
