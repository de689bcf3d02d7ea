"""Questions of TPC-H whose outer query is about static tables: what they ask of the stream lives on partials."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from anabranch.testing import Harness, assert_same_rows, cuts, shuffled

pytestmark = pytest.mark.spark

LINEITEM = """
CREATE STREAM lineitem (l_orderkey INT, l_partkey INT, l_suppkey INT, l_quantity DECIMAL(12,2), l_shipdate DATE,
                        l_commitdate DATE, l_receiptdate DATE, ts TIMESTAMP,
                        WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)
"""
TABLES = """
CREATE TABLE orders (o_orderkey INT, o_orderpriority STRING, o_orderdate DATE);
CREATE TABLE part (p_partkey INT, p_name STRING);
CREATE TABLE partsupp (ps_partkey INT, ps_suppkey INT, ps_availqty INT);
CREATE TABLE supplier (s_suppkey INT, s_name STRING, s_nationkey INT);
CREATE TABLE nation (n_nationkey INT, n_name STRING);
INSERT INTO orders SELECT id, concat(id % 3, '-', if(id % 3 = 0, 'URGENT', 'LOW')), DATE '1993-06-25' + CAST(id AS INT)
  FROM range(12);
INSERT INTO orders VALUES (NULL, '1-LOW', DATE '1993-07-02'), (3, '2-LOW', DATE '1993-07-03'), (4, NULL, NULL);
INSERT INTO part SELECT id, concat(if(id % 2 = 0, 'forest ', 'red '), id) FROM range(4);
INSERT INTO partsupp SELECT p.id, s.id, (p.id + s.id) % 5 * 4 FROM range(4) p, range(4) s;
INSERT INTO partsupp VALUES (0, 1, NULL), (NULL, 2, 10), (2, 3, 100), (2, 3, 100);
INSERT INTO supplier SELECT id, concat('Supplier#', id), id % 2 FROM range(5);
INSERT INTO nation VALUES (0, 'PERU'), (1, 'CANADA'), (1, 'CANADA');
"""
LATE = "l_commitdate < l_receiptdate"
OF_PART = "l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01'"
#: Q4 and Q20 as they stand in TPC-H, and other forms of such questions.
QUERIES = {
    "q4": "SELECT o_orderpriority, count(*) AS order_count FROM orders WHERE o_orderdate >= DATE '1993-07-01' AND"
    " o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey ="
    f" o_orderkey AND {LATE}) GROUP BY o_orderpriority ORDER BY o_orderpriority",
    "q20": "SELECT s_name FROM supplier, nation WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp WHERE ps_partkey IN"
    " (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%') AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM"
    f" lineitem WHERE {OF_PART})) AND s_nationkey = n_nationkey AND n_name = 'CANADA' ORDER BY s_name",
    "never_late": "SELECT o_orderkey FROM orders WHERE NOT EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey ="
    f" o_orderkey AND {LATE})",
    "large": "SELECT o_orderkey, o_orderdate FROM orders WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY"
    " l_orderkey HAVING sum(l_quantity) > 40)",
    "not_in": "SELECT ps_partkey, ps_suppkey FROM partsupp WHERE ps_suppkey IS NOT NULL AND ps_suppkey NOT IN (SELECT"
    " l_suppkey FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey IS NOT NULL)",
    "counted": "SELECT ps_partkey, ps_suppkey, (SELECT count(*) + coalesce(sum(l_quantity), 0) FROM lineitem WHERE"
    f" {OF_PART}) AS c FROM partsupp",
    "few": f"SELECT ps_partkey, ps_availqty FROM partsupp WHERE 3 > (SELECT count(*) FROM lineitem WHERE {OF_PART})",
    "of_suppliers": "SELECT s_name FROM supplier WHERE s_nationkey IN (SELECT l_suppkey % 2 FROM lineitem WHERE"
    " l_suppkey = s_suppkey GROUP BY l_suppkey % 2, l_partkey HAVING count(*) > 1)",
    "both": "SELECT o_orderpriority, count(*) AS c FROM orders WHERE EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey ="
    f" o_orderkey AND {LATE}) AND NOT EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_partkey = 1)"
    " AND o_orderkey < (SELECT max(l_quantity) FROM lineitem WHERE l_orderkey = o_orderkey) GROUP BY o_orderpriority",
}
#: Those whose changes are computed anew as a whole: they group rows that have no partner.
WHOLE = ("both",)


def rows(count: int, chance: random.Random) -> list[tuple[Any, ...]]:
    def day(year: int) -> date | None:
        return chance.choice([None, *(date(year, 12, 25) + timedelta(days) for days in range(14))])

    def key(end: int) -> int | None:
        return chance.choice([None, *range(end)])

    at = datetime(2026, 1, 1)
    return [
        (
            key(12), key(5), key(5), chance.choice([None, Decimal("1.50"), Decimal(7), Decimal("19.99")]), day(1993),
            day(1994), day(1994), at + timedelta(seconds=chance.randint(0, 90)),
        )
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("backend", ["auto", pytest.param("spark", marks=pytest.mark.slow)])
def test_views_and_their_changes_equal_the_batch_answer(home: Harness, backend: str) -> None:
    chance = random.Random(backend)
    home.sql(f"SET anabranch.backend = '{backend}'")
    home.sql(LINEITEM + ";" + TABLES)
    for name, query in QUERIES.items():
        home.sql(f"CREATE VIEW {name} AS {query}; CREATE VIEW {name}_changes AS {query} EMIT CHANGES")
    given = shuffled(rows(60, chance), chance)
    seen: list[tuple[Any, ...]] = []
    runs = list(cuts(given, chance))[:3]
    for number, run in enumerate(runs):
        home.insert("lineitem", run)
        seen += run
        if number == 1:
            continue
        for name, query in QUERIES.items():
            wanted = home.batch(query, lineitem=seen)
            assert_same_rows(home.table(name), wanted, f"{name} after {number + 1} runs")
            assert_same_rows(home.table(f"{name}_changes"), wanted, f"changes of {name} after {number + 1} runs")
            assert_same_rows(home.emitted(f"{name}_changes"), wanted, f"what {name} has emitted")
    home.sql("INSERT INTO orders VALUES (5, 'new', DATE '1993-07-09'); INSERT INTO part VALUES (1, 'forest too')")
    home.sql("REFRESH TABLE orders; REFRESH TABLE part")
    for name, query in QUERIES.items():
        wanted = home.batch(query, lineitem=seen)
        assert_same_rows(home.table(name), wanted, f"{name} after REFRESH")
        assert_same_rows(home.table(f"{name}_changes"), wanted, f"changes of {name} after REFRESH")
        assert_same_rows(home.emitted(f"{name}_changes"), wanted, f"what {name} has emitted after REFRESH")


def test_explain_says_that_the_stream_lives_on_partials(home: Harness) -> None:
    home.sql(LINEITEM + ";" + TABLES)
    keys = {"q20": "l_partkey, l_suppkey", "not_in": "l_suppkey, l_partkey"}
    keys["of_suppliers"] = "key_0, l_partkey, l_suppkey"
    keys |= dict.fromkeys(("counted", "few"), "l_partkey, l_suppkey")
    for name, query in QUERIES.items():
        for clause in ("", " EMIT CHANGES"):
            said = "\n".join(row[0] for row in home.query(f"EXPLAIN CREATE VIEW {name} AS {query}{clause}"))
            assert "partial aggregate of stream lineitem in pane table" in said, said
            assert f"keys {keys.get(name, 'l_orderkey')}" in said, said
            assert "over the kept rows of lineitem" not in said and "computed over rows" not in said, said
        assert ("recomputed" in said) == (name in WHOLE), said
