"""What DuckDB has to be told, so that it says what Spark says."""

from __future__ import annotations

import pytest

from anabranch.duck import connect, counting_all


@pytest.mark.parametrize("join", ["LEFT", "FULL"])
def test_what_is_added_up_over_an_outer_join_with_nothing_on_one_side(join: str) -> None:
    duck = connect()
    duck.execute("CREATE TABLE a AS SELECT unnest([1, 2, 3, 4]) AS k; CREATE TABLE b AS SELECT 1 AS k")
    pairs = f"a {join} JOIN (SELECT * FROM b WHERE k > 5) AS b ON b.k < a.k"
    text = (
        f"SELECT k, sum(n) FROM (SELECT a.k, 1 AS n FROM {pairs} UNION ALL SELECT a.k, -1 FROM {pairs} WHERE a.k < 3)"
        " GROUP BY k HAVING sum(n) <> 0 ORDER BY k"
    )
    with counting_all(duck, text):
        assert duck.execute(text).fetchall() == [(3, 1), (4, 1)]
