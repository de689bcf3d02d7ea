"""The law for changes: whatever the query, the changes of a view add up to the batch answer over all rows.

Queries are made at random from small pieces, one inside the other, so that what a piece reads can take rows back; and
one of the streams has changes, of which some take a row back before it comes. In between a stream is said to be at its
end, and gets rows nevertheless, and a view is altered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing import Harness, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

engine = settings(settings.get_profile("engine"))

STREAMS = (
    "CREATE STREAM a (id INT, c STRING, n INT); CREATE STREAM b (aid INT, p INT);"
    "CREATE STREAM d (k INT, s STRING, v INT, diff INT); CREATE STREAM there (k INT, s STRING, v INT)"
)
ROWS_A = st.tuples(st.sampled_from([1, 2, 3, None]), st.sampled_from(["x", "y", None]), st.integers(0, 4))
ROWS_B = st.tuples(st.sampled_from([1, 2, 4, None]), st.integers(0, 4))
ROWS_D = st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["x", None]), st.integers(0, 1), st.integers(-1, 2))

#: Every piece gives the columns k, s, v; {0} and {1} are pieces or streams.
PIECES = (
    "SELECT k, s, v FROM {0} WHERE v > 1",
    "SELECT v AS k, s, k AS v FROM {0}",
    "SELECT k, max(s) AS s, CAST(sum(v) AS INT) AS v FROM {0} GROUP BY k",
    "SELECT CAST(count(*) AS INT) AS k, s, max(v) AS v FROM {0} GROUP BY s",
    "SELECT CAST(count(DISTINCT v) AS INT) AS k, s, min(v) AS v FROM {0} GROUP BY s HAVING count(*) > 1",
    "SELECT CAST(count(*) AS INT) AS k, max(s) AS s, CAST(sum(v) AS INT) AS v FROM {0}",
    "SELECT k, max(s) AS s, CAST(median(v) * 2 AS INT) AS v FROM {0} GROUP BY k",
    "SELECT DISTINCT k, s, v FROM {0}",
    "SELECT DISTINCT s AS s, k, 1 AS v FROM {0}",
    "SELECT k, s, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, s) AS r FROM {0}) WHERE r <= 2",
    "SELECT k, s, CAST(sum(v) OVER (PARTITION BY s ORDER BY v, k RANGE UNBOUNDED PRECEDING) AS INT) AS v FROM {0}",
    "SELECT k, s, lag(v) OVER (PARTITION BY k ORDER BY v, s) AS v FROM {0}",
    "SELECT k, s, v FROM {0} ORDER BY v DESC, k, s LIMIT 3",
    "SELECT x.k, y.s, x.v FROM {0} AS x JOIN {1} AS y ON x.k = y.k",
    "SELECT x.k, y.s, y.v FROM {0} AS x, {1} AS y WHERE x.k = y.k AND x.v <= y.v",
    "SELECT x.k, y.s, x.v FROM {0} AS x LEFT JOIN {1} AS y ON x.k = y.k AND x.v = y.v",
    "SELECT x.k, y.s, y.v FROM {0} AS x FULL JOIN {1} AS y ON x.k = y.k",
    "SELECT y.k, x.s, y.v FROM {0} AS x RIGHT JOIN {1} AS y ON x.k = y.k",
    "SELECT k, s, v FROM {0} AS x LEFT SEMI JOIN {1} AS y ON x.k = y.k",
    "SELECT k, s, v FROM {0} AS x LEFT ANTI JOIN {1} AS y ON x.k = y.k",
    "SELECT x.k, max(y.s) AS s, CAST(count(y.v) AS INT) AS v FROM {0} AS x JOIN {1} AS y USING (k) GROUP BY x.k",
    "SELECT k, s, v FROM {0} AS x WHERE EXISTS (SELECT 1 FROM {1} AS y WHERE y.k = x.k)",
    "SELECT k, s, v FROM {0} WHERE k IN (SELECT k FROM {1} GROUP BY k HAVING count(*) > 1) AND v >= 0",
    "SELECT k, s, v FROM {0} AS x WHERE v <= (SELECT max(v) FROM {1} AS y WHERE y.k = x.k)",
    "SELECT k, s, v FROM {0} WHERE k NOT IN (SELECT k FROM {1} WHERE k IS NOT NULL)",
    "SELECT k, s, v FROM {0} WHERE v >= (SELECT avg(v) FROM {1})",
    "SELECT k, s, v FROM {0} UNION ALL SELECT k, s, v FROM {1}",
    "SELECT k, s, v FROM {0} UNION SELECT k, s, v FROM {1}",
    "SELECT k, s, v FROM {0} INTERSECT ALL SELECT k, s, v FROM {1}",
    "SELECT k, s, v FROM {0} EXCEPT ALL SELECT k, s, v FROM {1}",
    "SELECT k, s, v FROM {0} EXCEPT SELECT k, s, v FROM {1}",
    "SELECT k, grouping(s) AS g, max(s) AS s, max(v) AS v FROM {0} GROUP BY ROLLUP (k, s)",
    "WITH t AS (SELECT s, k, v FROM {0} WHERE v < 4) SELECT t.k, u.s, t.v FROM t JOIN t AS u ON t.k = u.k",
)
LEAVES = st.sampled_from(
    ["(SELECT id AS k, c AS s, n AS v FROM a)", "(SELECT aid AS k, 'x' AS s, p AS v FROM b)", "NET(d, diff)"]
)


def _piece(below: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def made(text: str) -> st.SearchStrategy[str]:
        filled = st.tuples(below, below).map(lambda pair: text.format(*pair))
        return filled.map(lambda query: f"({query.replace('SELECT k, grouping(s) AS g,', 'SELECT k,')})")

    return st.sampled_from(PIECES).flatmap(made)


QUERIES = (
    st.recursive(LEAVES, _piece, max_leaves=4)
    .filter(lambda text: "FROM (" in text or "FROM NET" in text)
    .map(lambda text: text[1:-1])
)


def expected(
    home: Harness, query: str, rows_a: Sequence[Row], rows_b: Sequence[Row], rows_d: Sequence[Row]
) -> list[Row]:
    """The batch answer, over the rows that are there of those that came and went."""
    net: Counter[Row] = Counter()
    for *row, diff in rows_d:
        net[tuple(row)] += diff
    return home.batch(query.replace("NET(d, diff)", "there"), a=rows_a, b=rows_b, there=list(net.elements()))


@engine
@given(data=st.data())
def test_changes_add_up_to_the_batch_answer(spark: SparkSession, tmp_path_factory, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    folder: Path = tmp_path_factory.mktemp("changes")
    queries = data.draw(st.lists(QUERIES, min_size=4, max_size=6, unique=True))
    rows_a = data.draw(st.lists(ROWS_A, min_size=2, max_size=9))
    rows_b = data.draw(st.lists(ROWS_B, min_size=2, max_size=7))
    rows_d = data.draw(st.lists(ROWS_D, min_size=2, max_size=9))
    cut_a = data.draw(st.integers(0, len(rows_a)))
    cut_b = data.draw(st.integers(0, len(rows_b)))
    cut_d = data.draw(st.integers(0, len(rows_d)))
    ended = data.draw(st.sampled_from(["a", "b", "d", None]))
    altered = data.draw(st.integers(0, len(queries) - 1))
    other = data.draw(QUERIES)
    at = data.draw(st.integers(0, 5))
    with Harness(folder / "home", spark) as home:
        home.sql(STREAMS)
        runs = [("a", rows_a[:cut_a]), ("b", rows_b[:cut_b]), ("d", rows_d[:cut_d])]
        runs += [("a", rows_a[cut_a:]), ("b", rows_b[cut_b:]), ("d", rows_d[cut_d:])]
        for number, query in enumerate(queries[: len(queries) // 2]):
            home.sql(f"CREATE VIEW v{number} AS {query} EMIT CHANGES")
        for index, (stream, rows) in enumerate(runs):
            if rows:
                home.insert(stream, rows)
            if index == 2:
                home.compact()
                home.reopen()
                for number, query in enumerate(queries[len(queries) // 2 :], len(queries) // 2):
                    home.sql(f"CREATE VIEW v{number} AS {query} EMIT CHANGES")
                if ended is not None:  # more rows may come all the same
                    home.sql(f"ADVANCE STREAM {ended} TO END")
            if index == max(at, 2 if altered >= len(queries) // 2 else 0):
                home.sql(f"ALTER VIEW v{altered} AS {other} EMIT CHANGES")
                queries[altered] = other
        for number, query in enumerate(queries):
            wanted = expected(home, query, rows_a, rows_b, rows_d)
            assert home.emitted(f"v{number}") == wanted, query
            assert home.table(f"v{number}") == wanted, query


@pytest.mark.parametrize("text", PIECES)
def test_each_piece_over_rows_that_come_and_go(text: str, home: Harness) -> None:
    """Every kind of query once over rows that come one by one, some taken back before, so that a failure names it."""
    grouped = "(SELECT id AS k, max(c) AS s, max(n) AS v FROM a GROUP BY id)"
    made = text.replace("SELECT k, grouping(s) AS g,", "SELECT k,")
    # What reads one relation reads the changes; what reads two, both.
    query = made.format(grouped, "NET(d, diff)") if "{1}" in made else made.format("NET(d, diff)")
    home.sql(f"{STREAMS}; CREATE VIEW v AS {query} EMIT CHANGES")
    rows_a = [(1, "x", 2), (2, None, 3), (1, "y", 4), (None, "x", 1)]
    rows_d = [(1, "x", 3, -1), (2, "y", 3, 1), (1, "x", 3, 2), (2, "y", 3, -1), (1, None, 2, 2), (2, "z", 2, 1)]
    for stream, rows in (("a", rows_a[:2]), ("d", rows_d[:2]), ("a", rows_a[2:]), ("d", rows_d[2:])):
        if rows[-1] == rows_d[-1]:
            home.sql("ADVANCE STREAM d TO END; ADVANCE STREAM a TO END")  # and rows after it
        home.insert(stream, rows)
    wanted = expected(home, query, rows_a, [], rows_d)
    assert home.emitted("v") == wanted
    assert home.table("v") == wanted
