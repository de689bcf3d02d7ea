"""Subqueries in conditions, and sets of groups: as keyed as joins and unions of groups are, with the batch answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from anabranch.testing import Harness
from engine.engines_help import compute_with

pytestmark = pytest.mark.spark

STREAMS = (
    "CREATE STREAM a (k INT, g STRING, n INT); CREATE STREAM b (k INT, p INT);"
    "CREATE STREAM d (k INT, p INT, diff INT); CREATE STREAM there (k INT, p INT)"
)
#: {d} is a stream of changes, some of which take a row back before it comes.
QUERIES = {
    "any_row": "SELECT * FROM a WHERE n > 0 AND EXISTS (SELECT 1 FROM {d} AS x WHERE x.k = a.k AND p <= n)",
    "no_row": "SELECT k, g FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k AND p > 1)",
    "both": "SELECT n FROM a WHERE k IN (SELECT k FROM b WHERE p > 0) AND NOT EXISTS (SELECT 1 FROM {d} AS x WHERE"
    " x.p = n)",
    "often": "SELECT k, n FROM a WHERE k IN (SELECT k FROM {d} GROUP BY k HAVING count(*) > 1)",
    "pairs": "SELECT g FROM a WHERE (k, n) IN (SELECT k, max(p) FROM b GROUP BY k)",
    "sums": "SELECT g, sum(n) AS n FROM a WHERE k IN (SELECT k + 1 FROM {d}) GROUP BY g",
    "joined": "SELECT a.n, b.p FROM a, b WHERE a.k = b.k AND EXISTS (SELECT 1 FROM {d} AS x WHERE x.k = b.p)",
    "not_in": "SELECT k, n FROM a WHERE k IS NOT NULL AND k NOT IN (SELECT k FROM {d} WHERE k IS NOT NULL)",
    "or_null": "SELECT k, n FROM a WHERE k NOT IN (SELECT k FROM b WHERE p > 2)",
    "most": "SELECT * FROM a WHERE n >= (SELECT max(p) FROM {d} AS x WHERE x.k = a.k)",
    "counts": "SELECT k, n, (SELECT count(*) FROM {d} AS x WHERE x.k = a.k) AS c FROM a",
    "cube": "SELECT k, coalesce(g, '-') AS g, grouping_id() AS i, sum(n) AS n, max(k) AS m FROM a GROUP BY CUBE (k, g)",
    "rolled": "SELECT k, grouping(p) AS q, count(*) FROM {d} AS x WHERE p > 0 GROUP BY k, p WITH ROLLUP"
    " HAVING count(*) > 1",
    "sets": "SELECT g, n + 1 AS m, count(k) AS k FROM a GROUP BY g, GROUPING SETS ((n + 1), ()) ORDER BY g",
    "own": "SELECT g, count(*) AS c FROM a WHERE n > (SELECT avg(n) FROM a AS x WHERE x.k = a.k) GROUP BY g",
    "aside": "SELECT a.k, n, m FROM a LEFT JOIN LATERAL (SELECT max(p) AS m FROM {d} AS x WHERE x.k = a.k) ON m > n",
}
#: Those that are computed whole, and why.
WHOLE = {"or_null": "NOT IN looks at all rows", "aside": "a LATERAL subquery looks at a stream"}


def _rows(pick: random.Random) -> dict[str, list[tuple[Any, ...]]]:
    keys = [1, 2, 3, None]
    return {
        "a": [(pick.choice(keys), pick.choice(["x", "y", None]), pick.choice([0, 1, 2, 3, None])) for _ in range(16)],
        "b": [(pick.choice([1, 2, 4, None]), pick.choice([0, 1, 2, None])) for _ in range(10)],
        "d": [(pick.choice(keys), pick.choice([0, 1, 2]), pick.choice([-1, 1, 1, 2])) for _ in range(14)],
    }


@pytest.mark.parametrize("engine", ["duckdb", "buckets", pytest.param("spark", marks=pytest.mark.slow)])
def test_the_changes_add_up_to_the_batch_answer(engine: str, home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    compute_with(engine, monkeypatch)
    by_spark = ("both", "counts", "rolled")
    queries = {name: text for name, text in QUERIES.items() if engine == "duckdb" or name in by_spark}
    home.sql(STREAMS)
    for name, text in queries.items():
        home.sql(f"CREATE VIEW {name} AS {text.format(d='NET(d, diff)')} EMIT CHANGES")
        view = home.session._core.catalog().find(name)
        assert view is not None and (view.operator in ("keyed", "join")) == (name not in WHOLE), name
        assert name not in WHOLE or view.keying.reason.startswith(WHOLE[name])
    pick = random.Random(5)
    rows = _rows(pick)
    parts = 2 if engine == "duckdb" else 1
    runs = [(name, each[part::parts]) for name, each in rows.items() for part in range(parts)]
    pick.shuffle(runs)
    for index, (stream, run) in enumerate(runs):
        home.insert(stream, run)
        if index == len(runs) // 2:
            home.compact()
            home.reopen()
    net: Counter[tuple[Any, ...]] = Counter()
    for *row, diff in rows["d"]:
        net[tuple(row)] += diff
    there = list(net.elements())
    for name, text in queries.items():
        expected = home.batch(text.format(d="there"), a=rows["a"], b=rows["b"], there=there)
        assert home.emitted(name) == expected, name
        assert home.table(name) == expected, name
