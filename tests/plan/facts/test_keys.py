"""What queries are keyed by: shown as kind, columns and where each relation has them."""

from __future__ import annotations

import pytest

from anabranch.plan.facts.keys import find_keys, joined_by_equals
from ir.plan_help import block


def keying(query: str) -> str:
    """`keyed k = s.k, t.k` : the key as it is shown (or computed), and the columns of the relations that hold it."""
    of = block(query)
    found = find_keys(of)
    if found.kind == "whole":
        return f"whole: {found.reason}"
    if found.every_column:
        return "keyed by every column"
    parts = []
    for part in found.parts:
        name = part.shown or of.sql(part.expr).replace("`", "")
        columns = [of.qualified(column).replace("`", "") for column in part.columns if column is not None]
        parts.append(f"{name} = {', '.join(columns)}" if columns else name)
    return " ".join([found.kind, *(["single"] if found.single else []), "; ".join(parts)]).strip()


SESSION = "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL 5 SECONDS)"
TUMBLE = "TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL 5 SECONDS) {0}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k, n + 1 AS m FROM s WHERE n > 1", "stateless"),
        ("SELECT k, explode(xs) AS x FROM b", "stateless"),
        ("SELECT s.k, label FROM s LEFT JOIN names ON s.k = names.k", "stateless"),
        ("SELECT s.k, x FROM s JOIN LATERAL (SELECT s.n + 1 AS x)", "stateless"),
        ("SELECT s.k FROM s JOIN r ON s.k = r.k", "join"),
        ("SELECT s.k FROM s NATURAL JOIN r", "join"),
        ("SELECT k, count(*) AS c FROM s GROUP BY k", "keyed k = s.k"),
        ("SELECT upper(k) AS u, count(*) AS c FROM s GROUP BY 1", "keyed u"),
        ("SELECT count(*) AS c FROM s GROUP BY upper(s.k), n", "keyed upper(s.k); s.n = s.n"),
        ("SELECT count(*) AS c FROM s", "whole: it aggregates everything into one row"),
        ("SELECT DISTINCT k FROM s", "keyed by every column"),
        ("SELECT k FROM s ORDER BY k LIMIT 3", "whole: LIMIT looks at all rows"),
        ("SELECT k, rank() OVER (PARTITION BY k, n ORDER BY ts) AS x, row_number() OVER w AS y FROM s"
         " WINDOW w AS (PARTITION BY s.n ORDER BY ts)", "keyed s.n = s.n"),
        ("SELECT k, rank() OVER (ORDER BY ts) AS x FROM s", "whole: a window function in it has no PARTITION BY"),
        ("SELECT r.k, count(*) AS c FROM s JOIN r ON s.k = r.k GROUP BY r.k", "keyed k = s.k, r.k"),
        ("SELECT k, count(*) AS c FROM s NATURAL JOIN r GROUP BY k", "keyed k = s.k, r.k"),
        ("SELECT k, count(*) AS c FROM s JOIN r USING (k) JOIN t USING (k) GROUP BY k", "keyed k = s.k, r.k, t.k"),
        ("SELECT s.n, count(*) AS c FROM s JOIN r ON s.k = r.k GROUP BY s.n",
         "whole: no column is equal in all of its streams and grouped by"),
        ("SELECT s.k, r.v FROM s LEFT JOIN r ON s.k = r.k", "keyed k = s.k, r.k"),
        ("SELECT r.k, r.v FROM s RIGHT JOIN r ON s.k = r.k", "keyed coalesce(s.k, r.k) = s.k, r.k"),
        ("SELECT k, r.v FROM s FULL JOIN r USING (k) FULL JOIN t USING (k)",
         "keyed coalesce(s.k, r.k, t.k) = s.k, r.k, t.k"),
        ("SELECT s.k FROM s LEFT SEMI JOIN r ON s.k = r.k", "keyed k = s.k, r.k"),
        ("SELECT label, s.n FROM names LEFT JOIN s ON s.k = names.k", "keyed names.k = names.k, s.k"),
        ("SELECT label FROM names LEFT ANTI JOIN s ON s.k = names.k", "keyed names.k = names.k, s.k"),
        ("SELECT names.k, count(n) AS c FROM names LEFT JOIN s ON s.k = names.k GROUP BY names.k",
         "keyed k = names.k, s.k"),
        ("SELECT label, s.n FROM names LEFT JOIN s ON s.n > 3",
         "whole: a row of a static table without a partner depends on all rows"),
        ("SELECT label, s.n FROM s RIGHT JOIN names ON s.k = names.k",
         "whole: a row of a static table without a partner depends on all rows"),
        (f"SELECT k, window_start, count(*) AS c FROM {SESSION} GROUP BY k, window_start, window_end",
         "keyed single k = s.k"),
        (f"SELECT window_start, count(*) AS c FROM {SESSION} GROUP BY window_start, window_end",
         "whole: nothing keys it"),
        (f"SELECT s.window_end AS e, count(*) AS c FROM {TUMBLE.format('s')} JOIN {TUMBLE.format('r')}"
         " ON s.window_end = r.window_end GROUP BY s.window_end", "keyed e = s.window_end, r.window_end"),
        ("SELECT k, x, count(*) AS c FROM b LATERAL VIEW explode(xs) g AS x GROUP BY k, x",
         "whole: it makes rows of others, and looks at several of them"),
        ("SELECT k FROM s WHERE k NOT IN (SELECT k FROM r)",
         "whole: NOT IN looks at all rows of its subquery, for one NULL in it leaves nothing; where no NULL can be,"
         " x IS NOT NULL AND x NOT IN (SELECT y ... WHERE y IS NOT NULL) says so"),
        ("SELECT s.k FROM s JOIN LATERAL (SELECT max(v) AS m FROM r WHERE r.k = s.k) x",
         "whole: a LATERAL subquery looks at a stream for each row"),
    ],
)  # fmt: skip
def test_what_a_query_is_keyed_by(query: str, expected: str) -> None:
    assert keying(query) == expected


def test_streams_that_are_joined_by_equals() -> None:
    assert joined_by_equals(block("SELECT 1 AS x FROM s JOIN r ON s.k = r.k"))
    assert not joined_by_equals(block("SELECT 1 AS x FROM s JOIN r ON s.ts < r.ts JOIN names ON names.k = s.k"))
