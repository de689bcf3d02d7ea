"""Views over streams and static tables: supplies of stations, calls of customers, the best supplier.

The examples are those of C. Winter, "Managing Dynamic Workloads in Relational Database Systems" (2023). Each is read
from a view that is worked out when read and from one whose changes are kept.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import duckdb
import pytest

from anabranch.engine.hot import Hot
from anabranch.testing import Harness, Row, assert_same_rows

pytestmark = pytest.mark.spark


def create(home: Harness, name: str, query: str) -> None:
    home.sql(f"CREATE VIEW {name} AS {query}; CREATE VIEW {name}_kept AS {query} EMIT CHANGES")


def check(home: Harness, name: str, expected: list[Row]) -> None:
    assert_same_rows(home.table(name), expected, name)
    assert_same_rows(home.table(f"{name}_kept"), expected, f"{name}, kept")
    assert_same_rows(home.emitted(f"{name}_kept"), expected, f"changes of {name}")


# ---- parts that run short

STATIONS = """
CREATE STREAM part_usage (id INT, part STRING, station INT, worker INT);
CREATE STREAM part_restock (id INT, part STRING, station INT, worker INT);
CREATE TABLE station (id INT, location STRING, supplier STRING);
INSERT INTO station VALUES (1, 'Gate 2 - EN', 'Motors'), (2, 'Gate 1 - SE', 'Seats'), (3, 'Gate 3 - WH', 'Wheels');
"""
SHORT = """
WITH used AS (SELECT part, station, count(*) AS count FROM part_usage GROUP BY part, station),
     restocked AS (SELECT part, station, count(*) AS count FROM part_restock GROUP BY part, station)
SELECT r.part, s.location, r.count AS restocked, u.count AS used
FROM station s, used u, restocked r
WHERE s.id = u.station AND u.station = r.station AND u.part = r.part AND r.count - u.count < 5
"""


def test_parts_that_run_short(home: Harness) -> None:
    home.sql(STATIONS)
    create(home, "short", SHORT)
    home.insert("part_usage", [(1, "Wheel", 5, 4), (2, "Seat", 2, 2), (3, "Seat", 2, 2)])
    home.insert("part_restock", [(1, "Wheel", 5, 1), (2, "Seat", 2, 6), (6, "Engine", 1, 3)])
    for _ in range(2):  # station 5 is not known, and no engine was used; a second look counts nothing twice
        check(home, "short", [("Seat", "Gate 1 - SE", 1, 2)])
    home.insert("part_restock", [(number, "Seat", 2, 6) for number in range(7, 13)])
    check(home, "short", [])  # seven less two is not less than five
    home.insert("part_usage", [(4, "Engine", 1, 3)])
    check(home, "short", [("Engine", "Gate 2 - EN", 1, 1)])
    home.compact()
    home.insert("part_usage", [(5, "Seat", 2, 2)])
    check(home, "short", [("Engine", "Gate 2 - EN", 1, 1), ("Seat", "Gate 1 - SE", 7, 3)])
    # A static table is read when a view is made, and again when it is told so: then for all rows there ever were.
    home.sql("UPDATE station SET location = 'Gate 9' WHERE id = 1")
    check(home, "short", [("Engine", "Gate 2 - EN", 1, 1), ("Seat", "Gate 1 - SE", 7, 3)])
    home.sql("REFRESH TABLE station")
    check(home, "short", [("Engine", "Gate 9", 1, 1), ("Seat", "Gate 1 - SE", 7, 3)])


LABELS = """
CREATE STREAM s (k STRING, v INT);
CREATE TABLE names (k STRING, label STRING);
INSERT INTO names VALUES ('a', 'one'), ('b', 'one');
"""
#: Row by row over rows that change, and in groups of what a static table says.
LABELLED = {
    "each": "SELECT m.k, m.v, n.label FROM (SELECT k, max(v) AS v FROM s GROUP BY k) m LEFT JOIN names n ON m.k = n.k",
    "grouped": "SELECT n.label, sum(m.v) AS v FROM (SELECT k, max(v) AS v FROM s GROUP BY k) m"
    " JOIN names n ON m.k = n.k GROUP BY n.label",
}


def test_a_refresh_changes_what_kept_views_show(home: Harness) -> None:
    home.sql(LABELS)
    for name, query in LABELLED.items():
        create(home, name, query)
    home.insert("s", [("a", 1), ("b", 1)])
    home.sql("UPDATE names SET label = 'two' WHERE k = 'b'; REFRESH TABLE names")
    check(home, "each", [("a", 1, "one"), ("b", 1, "two")])
    check(home, "grouped", [("one", 1), ("two", 1)])
    home.insert("s", [("b", 5)])  # what is taken back is what was shown, not what the table says now
    check(home, "each", [("a", 1, "one"), ("b", 5, "two")])
    check(home, "grouped", [("one", 1), ("two", 5)])


# ---- calls of customers

CUSTOMERS = """
CREATE STREAM events (entity_id INT, duration INT, cost INT, local_calls INT, long_distance BOOLEAN,
                      long_distance_cost INT, local_cost INT, week INT);
CREATE TABLE customers (id INT, type INT, category INT, value_type INT, region_id INT, city_zip INT);
INSERT INTO customers VALUES (1, 2, 1, 2, 10, 8000), (2, 2, 1, 1, 10, 8000), (3, 1, 1, 2, 20, 8050),
                             (4, 2, 1, 2, 20, 8050);
"""
#: The current week is the seventh. The third query shows the number of calls as well, to tell its rows apart.
CALLS = {
    "q1": "SELECT avg(t_duration) AS d FROM (SELECT sum(duration) AS t_duration FROM events WHERE week = 7"
    " GROUP BY entity_id HAVING count(local_calls) > 2)",
    "q2": "SELECT max(max_cost) AS c FROM (SELECT max(cost) AS max_cost FROM events WHERE week = 7"
    " GROUP BY entity_id HAVING count(*) > 2)",
    "q3": "SELECT num_calls, sum(t_cost) / sum(t_duration) AS cost_ratio FROM (SELECT sum(cost) AS t_cost,"
    " sum(duration) AS t_duration, count(*) AS num_calls FROM events WHERE week = 7 GROUP BY entity_id)"
    " GROUP BY num_calls LIMIT 100",
    "q4": "SELECT city_zip, avg(num_calls) AS n, sum(calls) AS d FROM (SELECT entity_id, count(*) AS num_calls,"
    " sum(duration) AS calls FROM events WHERE NOT long_distance AND week = 7 GROUP BY entity_id"
    " HAVING count(*) > 4 AND sum(duration) > 25) e, customers c WHERE e.entity_id = c.id GROUP BY city_zip",
    "q5": "SELECT c.region_id, sum(long_distance_cost) AS cost_long, sum(local_cost) AS cost_local"
    " FROM events e, customers c WHERE e.entity_id = c.id AND week = 7 AND c.type = 2 AND c.category = 1"
    " GROUP BY c.region_id",
    "q7": "SELECT sum(cost) / sum(duration) AS r FROM events e, customers c WHERE e.entity_id = c.id AND week = 7"
    " AND c.value_type = 2",
}


def local(entity: int, duration: int, cost: int, week: int = 7) -> Row:
    return (entity, duration, cost, 1, False, 0, cost, week)


def distant(entity: int, duration: int, cost: int) -> Row:
    return (entity, duration, cost, None, True, cost, 0, 7)


def test_calls_of_customers(home: Harness) -> None:
    home.sql(CUSTOMERS)
    for name, query in CALLS.items():
        create(home, name, query)
    first = [local(1, 10, 1), local(1, 20, 2), distant(1, 5, 9), local(2, 30, 3), *[local(3, 10, 4)] * 3,
             local(4, 40, 8, week=6)]  # fmt: skip
    home.insert("events", first)
    shown: dict[str, list[Row]] = {
        "q1": [(30.0,)],
        "q2": [(9,)],
        "q3": [(1, 3 / 30), (3, 24 / 65)],
        "q4": [],
        "q5": [(10, 9, 6)],
        "q7": [(24 / 65,)],
    }
    for name, expected in shown.items():
        check(home, name, expected)
    home.compact()
    second = [*[local(1, 4, 1)] * 3, *[distant(2, 1, 20)] * 2, *[local(3, 1, 1)] * 2, local(4, 6, 3)]
    home.insert("events", second)
    # The second customer has one call in the first run and two in this one: more than two only together.
    shown = {
        "q1": [(39.5,)],
        "q2": [(20,)],
        "q3": [(1, 3 / 6), (3, 43 / 32), (5, 14 / 32), (6, 15 / 47)],
        "q4": [(8000, 5.0, 42), (8050, 5.0, 32)],
        "q5": [(10, 49, 9), (20, 0, 3)],
        "q7": [(32 / 85,)],
    }
    for name, expected in shown.items():
        check(home, name, expected)


# ---- the best supplier

BEST = """
WITH revenue AS (
  SELECT supp, CAST(sum(price * (1 - discount)) AS DECIMAL(12, 2)) AS total FROM lineitem
  WHERE shipdate >= DATE '1996-01-01' AND shipdate < DATE '1996-04-01' GROUP BY supp)
SELECT s.id, total FROM supplier s, revenue r WHERE s.id = r.supp AND total = (SELECT max(total) FROM revenue)
"""


def test_the_best_supplier_with_a_tie(home: Harness) -> None:
    """Decimals: what is equal in one sum is equal in a sum of partial sums."""
    home.sql(
        "CREATE STREAM lineitem (supp INT, price DECIMAL(10,2), discount DECIMAL(4,2), shipdate DATE);"
        "CREATE TABLE supplier (id INT); INSERT INTO supplier VALUES (1), (2), (3)"
    )
    create(home, "best", BEST)
    runs: list[tuple[list[Row], list[Row]]] = [
        (
            # The end of the quarter does not belong to it.
            [(1, 100, 0, date(1996, 1, 1)), (2, 60, 0, date(1996, 2, 1)), (3, 500, 0, date(1996, 4, 1))],
            [(1, Decimal("100.00"))],
        ),
        ([(2, 50, Decimal("0.20"), date(1996, 3, 31))], [(1, Decimal("100.00")), (2, Decimal("100.00"))]),
        ([(2, 1, 0, date(1996, 1, 2))], [(2, Decimal("101.00"))]),
    ]
    for rows, expected in runs:
        home.insert("lineitem", rows)
        check(home, "best", expected)
        home.compact()
        check(home, "best", expected)


# ---- queries that a view must not have there, and those that it may: all of them are views here

QUERIES = {
    "every_row": "SELECT * FROM s",
    "top_rows": "SELECT * FROM s ORDER BY x DESC, k LIMIT 3",
    "rows_with_rows": "SELECT s.k, s.x, z.y FROM s JOIN z ON s.k = z.k",
    "groups_with_rows": "SELECT g.k, g.c, z.y FROM (SELECT k, count(*) AS c FROM s GROUP BY k) g JOIN z ON g.k = z.k",
    "table_with_rows": "SELECT r.k, r.name, s.x FROM r LEFT JOIN s ON r.k = s.k",
    "all_in_one": "SELECT count(*) AS c FROM s",
    "rows_with_table": "SELECT r.name, sum(s.x) AS x FROM s JOIN r ON s.k = r.k GROUP BY r.name",
    "groups_with_groups": "SELECT g.k, g.c, h.y FROM (SELECT k, count(*) AS c FROM s GROUP BY k) g"
    " JOIN (SELECT k, max(y) AS y FROM z GROUP BY k) h ON g.k = h.k",
    "top_groups": "SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY c DESC, k LIMIT 2",
    "rows_with_values": "SELECT s.k, v.l FROM s JOIN (VALUES ('a', 1), ('b', 2)) AS v(k, l) ON s.k = v.k",
    "pairs_of_groups": "SELECT k, count(DISTINCT x, k) AS c FROM s GROUP BY k",
    "sorted_groups": "SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY k",
}


def test_every_query_is_a_view(home: Harness) -> None:
    """Raw rows, a sort of raw rows, joins of them on either side: each has the answer of the batch query."""
    home.sql(
        "CREATE STREAM s (k STRING, x INT); CREATE STREAM z (k STRING, y INT);"
        "CREATE TABLE r (k STRING, name STRING); INSERT INTO r VALUES ('a', 'one'), ('b', 'two'), ('d', 'four')"
    )
    for name, query in QUERIES.items():
        create(home, name, query)
    runs_s: list[list[Row]] = [[("a", 1), ("b", 7), ("c", 3)], [("b", 5), ("a", 1), (None, 9)]]
    runs_z: list[list[Row]] = [[("a", 10), ("b", 20)], [("c", 30), ("a", 5), (None, 1)]]
    rows_s: list[Row] = []
    rows_z: list[Row] = []
    for run_s, run_z in zip(runs_s, runs_z, strict=True):
        home.insert("s", run_s)
        home.insert("z", run_z)
        rows_s += run_s
        rows_z += run_z
        for name, query in QUERIES.items():
            check(home, name, home.batch(query, s=rows_s, z=rows_z))
        home.compact()


def test_what_duckdb_cannot_do_is_done_by_spark_and_told_once(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost where memory of a view is not to be had: its runs take longer, and somebody is told."""
    told: list[str] = []
    home.session.on_warning(told.append)
    query = "SELECT k, sum(x) AS x FROM s GROUP BY k"
    home.sql(f"CREATE STREAM s (k STRING, x INT); CREATE VIEW v AS {query} EMIT CHANGES")
    rows: list[Row] = [("a", 1), ("b", 2), ("a", 3), (None, 4)]
    home.insert("s", rows[:1])

    def fails(*_: object) -> None:
        raise duckdb.BinderException("no such thing")

    monkeypatch.setattr(Hot, "_ready", fails)
    home.insert("s", rows[1:3])
    home.insert("s", rows[3:])
    assert_same_rows(home.emitted("v"), home.batch(query, s=rows))
    assert told == ["view v is computed by Spark from now on, and runs take longer: no such thing"]
