"""Aggregates that pick and count: partials of them give what a batch query gives, and ties go the same way."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from anabranch.testing import Harness, assert_same_rows, shuffled

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
TIMED = "CREATE STREAM s (k INT, n INT, v STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"


def at(minute: int, second: int = 0) -> datetime:
    return START + timedelta(minutes=minute, seconds=second)


def test_first_and_last_go_by_event_time(home: Harness) -> None:
    """Whatever came first, and in views of every kind; NULLs count unless they are to be ignored."""
    home.sql(TIMED)
    home.sql("CREATE VIEW below AS SELECT k, v, ts FROM s WHERE k < 9")
    items = "k, first(v) AS f, last(v) AS l, first(v) IGNORE NULLS AS fi, last(v, true) AS li"
    home.sql(f"CREATE VIEW plain AS SELECT {items} FROM s GROUP BY k")
    home.sql(f"CREATE VIEW kept AS SELECT {items} FROM s GROUP BY k EMIT CHANGES")
    home.sql(f"CREATE VIEW above AS SELECT {items} FROM below GROUP BY k EMIT CHANGES")
    home.sql(f"CREATE VIEW over_rows AS SELECT {items}, count(*) FROM s GROUP BY GROUPING SETS ((k))")
    home.sql(
        "CREATE VIEW framed AS SELECT DISTINCT k, first_value(v) OVER (PARTITION BY k) AS f,"
        " last_value(v) OVER (PARTITION BY k) AS l FROM s"
    )
    home.insert("s", [(1, 1, "late", at(59)), (2, 3, None, at(7))])
    home.insert("s", [(1, 9, "early", at(1)), (2, 1, "b", at(3)), (2, 2, "c", at(5)), (2, 5, None, at(1))])
    wanted = [(1, "early", "late", "early", "late"), (2, None, None, "b", "c")]
    for name in ("plain", "kept", "above"):
        assert sorted(home.table(name)) == wanted, name
    assert sorted(row[:5] for row in home.table("over_rows")) == wanted
    assert sorted(home.table("framed")) == [row[:3] for row in wanted]
    assert sorted(home.query(f"SELECT {items} FROM s GROUP BY k")) == wanted


# Of each value, when it comes and when it is taken back; and the first and the last after each step.
VECTORS = {
    "first": ("+a +b +c -a -b +a", ["a", "a", "a", "b", "c", "c"]),
    "first, again": ("+a +b +a -a", ["a", "a", "a", "a"]),
    "first, taken back early": ("-a +a +b", [None, None, "b"]),
    "last": ("+a +b +c -c -b", ["a", "b", "c", "b", "a"]),
    "last, again": ("+a +b +a -a", ["a", "b", "a", "a"]),
    "last, in turns": ("+a +b -b +c -c +b", ["a", "b", "a", "c", "a", "b"]),
}


@pytest.mark.parametrize("together", [False, True])
def test_first_and_last_where_rows_are_taken_back(home: Harness, together: bool) -> None:
    """FIRST and LAST over additions and retractions: read after each step, or only at the end."""
    home.sql("CREATE STREAM c (vector STRING, v STRING, sign INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql("CREATE VIEW live AS SELECT vector, v, ts FROM NET(c, sign)")
    home.sql("CREATE VIEW ends AS SELECT vector, first(v) AS f, last(v) AS l FROM live GROUP BY vector EMIT CHANGES")
    runs: list[list[tuple[Any, ...]]] = [[] for _ in range(6)]
    for vector, (operations, _) in VECTORS.items():
        times: dict[str, list[datetime]] = {}
        for step, operation in enumerate(operations.split()):
            known = times.setdefault(operation[1], [])
            sign = 1 if operation[0] == "+" else -1
            if sign < 0 and known:
                time = known.pop(0 if vector.startswith("last") else -1)
            elif vector == "first, taken back early" and operation == "+a":
                time = at(0)  # the one that was taken back
            else:
                time = at(step)
                known += [time] if sign > 0 else []
            runs[step].append((vector, operation[1], sign, time))
    if together:
        home.insert("c", [row for run in runs for row in run])
        runs = [[]] * 6
    for step, rows in enumerate(runs):
        if not together:
            home.insert("c", rows)
        shown = {row[0]: row for row in home.table("ends")}
        for vector, (_, values) in VECTORS.items():
            place = len(values) - 1 if together else step
            if place < len(values):
                row = shown.get(vector)
                assert (row[2 if vector.startswith("last") else 1] if row else None) == values[place], (vector, place)


TIES = {
    "by": "SELECT k, min_by(v, n) AS a, max_by(v, n) FILTER (WHERE v <> 'd') AS b, mode(n) AS m, mode(v, false) AS w"
    " FROM {0} GROUP BY k",
    "rows": "SELECT k, min_by(v, n) AS a, max_by(v, n) AS b, mode(n) AS m, concat_ws(',', collect_set(v)) AS c"
    " FROM {0} GROUP BY GROUPING SETS ((k))",
}


def test_winners_of_ties_are_the_same_in_any_order(home: Harness) -> None:
    """Three orders and cuts, read and emitted, by DuckDB and by Spark; rows without an order never win."""
    rows = [(1, 5, "b"), (1, 5, "a"), (1, 7, "c"), (1, 7, "d"), (1, None, "z"), (2, None, "y")]
    chance = random.Random(3)
    for stream, clause in (("one", ""), ("two", " EMIT CHANGES"), ("three", " EMIT CHANGES")):
        home.sql(f"CREATE STREAM {stream} (k INT, n INT, v STRING)")
        for name, query in TIES.items():
            home.sql(f"CREATE VIEW {stream}_{name} AS {query.format(stream)}{clause}")
        if stream == "three":
            home.sql("SET anabranch.backend = spark")
        mixed = shuffled(rows, chance)
        home.insert_runs(stream, [mixed[:2], mixed[2:3], mixed[3:]] if stream != "one" else [mixed])
    assert sorted(home.table("one_by")) == [(1, "a", "c", 5, "a"), (2, None, None, None, "y")]
    for name in TIES:
        wanted = home.table(f"one_{name}")
        assert_same_rows(home.table(f"two_{name}"), wanted)
        assert_same_rows(home.emitted(f"three_{name}"), wanted)


ITEMS = (
    "min_by(v, struct(n, v)) AS a, max_by(d, struct(x, d, v)) AS b, median(n) AS c,"
    " percentile(d, array(0.1, 0.9)) AS e, percentile_cont(0.3) WITHIN GROUP (ORDER BY x DESC) AS f,"
    " mode() WITHIN GROUP (ORDER BY v) AS h, sort_array(collect_set(x)) AS j, sort_array(collect_list(v)) AS l,"
    " median(n) FILTER (WHERE v <> 'a') AS m, regr_count(n, x) AS o, regr_avgx(x, d) AS q, corr(n, d) AS r"
)
QUERIES = {
    "grouped": f"SELECT k, {ITEMS} FROM s GROUP BY k",
    "hop": "SELECT window_start, max_by(v, struct(n, v)) AS w, percentile_disc(0.4) WITHIN GROUP (ORDER BY n) AS p,"
    " mode(d, true) AS m FROM HOP(s, ts, INTERVAL 5 SECONDS, INTERVAL 15 SECONDS) GROUP BY window_start, window_end",
    "joined": "SELECT label, median(n) AS m, max_by(v, struct(n, v)) AS w FROM s JOIN t ON s.k = t.k GROUP BY label",
    "kept": "SELECT k, median(n) AS m, max_by(v, struct(n, v)) AS w, mode(x, true) AS o FROM s GROUP BY k",
}


def test_partials_give_the_answer_of_the_batch_query(home: Harness) -> None:
    """NULLs, NaN, both zeros; in panes and without, with FILTER, cut anyhow, before and after partials are merged."""
    chance = random.Random(11)
    columns = "k INT, n INT, d DECIMAL(10,2), x DOUBLE, v STRING, ts TIMESTAMP"
    home.sql(f"CREATE STREAM s ({columns}, WATERMARK FOR ts AS ts)")
    home.sql("CREATE TABLE t (k INT, label STRING); INSERT INTO t VALUES (1, 'one'), (1, 'uno'), (2, 'two')")
    for name, query in QUERIES.items():
        home.sql(f"CREATE VIEW {name} AS {query}{' EMIT CHANGES' if name == 'kept' else ''}")
        assert "partial" in str(home.query(f"EXPLAIN {query}")), name
    rows = [
        (
            chance.choice((1, 2, None)),
            chance.choice((1, 2, 2, -7, None)),
            chance.choice(("1.10", "-3.30", "0.00", None)),
            chance.choice((0.1, -0.0, 0.0, float("nan"), 2.5, None)),
            chance.choice(("a", "b", "", None)),
            at(0, chance.randint(0, 20)),
        )
        for _ in range(40)
    ]
    mixed = shuffled(rows, chance)
    for run in (mixed[:1], mixed[1:17], mixed[17:]):
        home.insert("s", run)
    home.compact()
    for name, query in QUERIES.items():
        wanted = home.batch(query, s=rows, t=[(1, "one"), (1, "uno"), (2, "two")])
        assert_same_rows(home.table(name), wanted, name)


#: Of rows (k, n, v, ts): two of one time, in the order of v against that of n; a NULL; and values twice.
LISTED = [(1, 2, "b", at(3)), (1, 1, "c", at(3)), (1, 9, "a", at(5)), (1, 3, None, at(1)), (1, 4, "b", at(2))]
LISTED += [(2, 1, "z", at(2)), (2, 2, "z", at(1)), (2, 3, "a", at(4))]
ITEMS = (
    "k, collect_list(v) AS cl, array_agg(v) AS aa, string_agg(v, ',') AS sa, listagg(v, ',') AS la,"
    " collect_list(DISTINCT v) AS cd, first(v) AS f, last(v) AS l, any_value(v) AS y, mode(v) AS m"
)


def _expected(timed: bool) -> list[tuple[Any, ...]]:
    """By event time and then by the value, or by all columns; without an event time, by all columns."""
    found = []
    for k in (1, 2):
        rows = [row for row in LISTED if row[0] == k]
        by_value = sorted((row for row in rows if row[2] is not None), key=lambda row: (row[3] if timed else 0, row[2]))
        values = [row[2] for row in by_value]
        picked = [row[2] for row in sorted(rows, key=lambda row: (row[3] if timed else 0, row[1]))]
        texts = [",".join(values)] * 2
        most = min(values, key=lambda value: (-values.count(value), value))
        found.append((k, values, values, *texts, sorted(set(values)), picked[0], picked[-1], picked[0], most))
    return found


@pytest.mark.parametrize("timed", [True, False])
def test_lists_and_picks_are_the_same_everywhere(home: Harness, timed: bool) -> None:
    """In views from partials and over rows, before and after compaction, and in queries that are asked once."""
    clause = ", WATERMARK FOR ts AS ts" if timed else ""
    home.sql(f"CREATE STREAM s (k INT, n INT, v STRING, ts TIMESTAMP{clause})")
    home.sql("CREATE TABLE t (k INT, n INT, v STRING, ts TIMESTAMP)")
    partials = ITEMS.replace(" string_agg(v, ',') AS sa, listagg(v, ',') AS la, collect_list(DISTINCT v) AS cd,", "")
    home.sql(f"CREATE VIEW partials AS SELECT {partials} FROM s GROUP BY k")
    home.sql(f"CREATE VIEW beside AS SELECT {ITEMS}, skewness(n) AS w FROM s GROUP BY k")
    home.sql(f"CREATE VIEW live AS SELECT {ITEMS}, skewness(n) AS w FROM s GROUP BY k EMIT CHANGES")
    for start in (6, 3, 0):
        home.insert("s", LISTED[start : start + 3])
    home.insert("t", LISTED[::-1])
    wanted = _expected(timed)
    for compacted in (False, True):
        if compacted:
            home.compact()
        assert sorted(home.query("SELECT * FROM partials")) == [(*row[:3], *row[6:]) for row in wanted], compacted
        for name in ("beside", "live"):
            assert [row[:-1] for row in sorted(home.query(f"SELECT * FROM {name}"))] == wanted, (name, compacted)
        assert sorted(home.query(f"SELECT {ITEMS} FROM s GROUP BY k")) == wanted, compacted
        assert sorted(row[:-1] for row in home.query(f"SELECT {ITEMS}, skewness(n) FROM s GROUP BY k")) == wanted
    assert sorted(home.query(f"SELECT {ITEMS} FROM t GROUP BY k")) == _expected(False)
