"""TRIGGER COUNTING over queries whose rows come and go: outer, semi and anti joins, DISTINCT, set operations and
aggregates of aggregates.

The law: what a key shows is its value after its first n, 2n, ... records, where a record is a row that came or went
with one row of a stream; so neither the cut into runs nor a restart nor when the view is made makes a difference. The
oracle asks the query below anew for each row that comes, in plain Python.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import pytest

from anabranch.engine import counting
from anabranch.engine.maintain import Maintainer
from anabranch.errors import AnabranchError
from anabranch.plan.catalog import View
from anabranch.testing import Harness
from engine.test_counting import Events, Row, play

pytestmark = pytest.mark.spark

STREAMS = "".join(f"CREATE STREAM {name} (id INT, k STRING, v INT);" for name in "ab")
#: The rows that each stream has.
There = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Case:
    """A query that counts, the rows of the one below it, and what of these is its key and what is added up."""

    query: str
    rows: Callable[[There], Iterator[Row]]
    key: Callable[[Row], Any] = lambda row: row[0]
    value: Callable[[Row], int] = lambda row: row[1]
    below: str = ""


def left(there: There) -> Iterator[Row]:
    for id, k, _ in there["a"]:
        met = [v for other, _, v in there["b"] if other == id]
        yield from ((k, v) for v in met or [None])


def full(there: There) -> Iterator[Row]:
    yield from left(there)
    known = {id for id, _, _ in there["a"]}
    yield from ((None, v) for id, _, v in there["b"] if id not in known)


def largest(there: There) -> Iterator[Row]:
    for (k, id), rows in groupby(sorted(there["a"], key=lambda row: (row[1], row[0])), lambda row: (row[1], row[0])):
        found = [v for _, _, v in rows]
        if len(found) > 1:
            yield k, id, max(found)


def latest(there: There) -> Iterator[Row]:
    """Of each k and id, the v with the greatest remainder; of several, the last in the order of all columns."""
    for (k, id), rows in groupby(sorted(there["a"], key=lambda row: (row[1], row[0])), lambda row: (row[1], row[0])):
        yield k, id, max((v for _, _, v in rows), key=lambda v: (v % 5, -v))


def spread(there: There) -> Iterator[Row]:
    """Of each k of a, how many different v it has; with how often b has that k."""
    times = Counter(k for _, k, _ in there["b"])
    for k in {k for _, k, _ in there["a"]}:
        if times[k]:
            yield k, len({v for _, other, v in there["a"] if other == k}), times[k]


def ranked(there: There) -> Iterator[Row]:
    """Of each k of a, the two rows with the greatest v, and their places."""
    for k in "xy":
        found = sorted((-v, id) for id, other, v in there["a"] if other == k)
        yield from ((k, -v, place) for place, (v, _) in enumerate(found[:2], 1))


def together(there: There) -> Iterator[Row]:
    """Of each k of a, how many v are no further than 1 from the next one, for each stretch of them."""
    for k in "xy":
        found = sorted(v for _, other, v in there["a"] if other == k)
        starts = [place for place, v in enumerate(found) if not place or v > found[place - 1] + 1]
        yield from ((k, found[first], end - first) for first, end in pairwise([*starts, len(found)]))


CASES = {
    "ranked": Case(
        "SELECT k, count(*) AS n, sum(v * r) AS v FROM"
        " (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM a) WHERE r <= 2 GROUP BY k",
        ranked,
        value=lambda row: row[1] * row[2],
    ),
    "first": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM first_rows GROUP BY k",
        lambda there: iter(sorted(((k, v) for _, k, v in there["a"]), key=lambda row: (-row[1], row[0]))[1:4]),
        below="CREATE VIEW first_rows AS SELECT k, v FROM a ORDER BY v DESC LIMIT 3 OFFSET 1;",
    ),
    "together": Case(
        "SELECT k, count(*) AS n, sum(m) AS v FROM (SELECT k, window_start, count(*) AS m FROM"
        " SESSION((SELECT k, timestamp_seconds(v) AS ts FROM a) PARTITION BY k, ts, INTERVAL 1 SECOND)"
        " GROUP BY k, window_start) GROUP BY k",
        together,
        value=lambda row: row[2],
    ),
    "more": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM (SELECT k, v FROM a EXCEPT ALL SELECT k, v FROM b) GROUP BY k",
        lambda there: (
            Counter((k, v) for _, k, v in there["a"]) - Counter((k, v) for _, k, v in there["b"])
        ).elements(),
    ),
    "different": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM (SELECT DISTINCT k, v FROM a) GROUP BY k",
        lambda there: iter({(k, v) for _, k, v in there["a"]}),
    ),
    "united": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM"
        " (SELECT k, v FROM a UNION SELECT k, v FROM b WHERE v < 6) GROUP BY k",
        lambda there: iter({(k, v) for _, k, v in there["a"]} | {(k, v) for _, k, v in there["b"] if v < 6}),
    ),
    "except": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM (SELECT k, v FROM a EXCEPT SELECT k, v FROM b) GROUP BY k",
        lambda there: iter({(k, v) for _, k, v in there["a"]} - {(k, v) for _, k, v in there["b"]}),
    ),
    "left": Case(
        "SELECT a.k, count(*) AS n, sum(coalesce(b.v, 100)) AS v FROM a LEFT JOIN b ON a.id = b.id GROUP BY a.k",
        left,
        value=lambda row: 100 if row[1] is None else row[1],
    ),
    "full": Case(
        "SELECT a.k, count(*) AS n, sum(coalesce(b.v, 100)) AS v FROM a FULL JOIN b ON a.id = b.id GROUP BY a.k",
        full,
        value=lambda row: 100 if row[1] is None else row[1],
    ),
    "met": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND b.v < a.v)"
        " GROUP BY k",
        lambda there: (
            (k, v) for id, k, v in there["a"] if any(other == id and less < v for other, _, less in there["b"])
        ),
    ),
    "unmet": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM lonely GROUP BY k",
        lambda there: ((k, v) for id, k, v in there["a"] if all(other != id for other, _, _ in there["b"])),
        below="CREATE VIEW lonely AS SELECT k, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id);",
    ),
    "largest": Case(
        "SELECT k, count(*) AS n, sum(m) AS v FROM"
        " (SELECT k, id, max(v) AS m FROM a GROUP BY k, id HAVING count(*) > 1) GROUP BY k",
        largest,
        value=lambda row: row[2],
    ),
    "latest": Case(
        "SELECT k, count(*) AS n, sum(m) AS v FROM"
        " (SELECT k, id, max_by(v, v % 5) AS m FROM a GROUP BY k, id) GROUP BY k",
        latest,
        value=lambda row: row[2],
    ),
    "spread": Case(
        "SELECT count(*) AS n, sum(d * c) AS v FROM spread_a JOIN spread_b ON spread_a.k = spread_b.k",
        spread,
        key=lambda row: (),
        value=lambda row: row[1] * row[2],
        below="CREATE VIEW spread_a AS SELECT k, count(DISTINCT v) AS d FROM a GROUP BY k;"
        "CREATE VIEW spread_b AS SELECT k, count(*) AS c FROM b GROUP BY k;",
    ),
}


def moves(case: Case, events: Events) -> Iterator[tuple[int, Row]]:
    """What comes (1) and goes (-1), in order: with each row of a stream first what goes, then what comes."""
    there: dict[str, list[Row]] = {"a": [], "b": []}
    before: Counter[Row] = Counter(case.rows(there))
    for name, row in events:
        there[name].append(row)
        after = Counter(case.rows(there))
        for sign, more in ((-1, before - after), (1, after - before)):
            yield from ((sign, each) for each in sorted(more.elements(), key=_nulls_first))
        before = after


def _nulls_first(row: Row) -> list[Any]:
    return [(value is not None, value if value is not None else 0) for value in row]


def values(case: Case, events: Events, n: int) -> dict[Any, list[Row | None]]:
    """What each key shows in turn: its value after every n-th of its records; None while it has no rows."""
    states: dict[Any, tuple[int, int, int]] = {}
    for row in case.rows({"a": [], "b": []}):  # what is always there has never come
        _, rows, total = states.get(case.key(row), (0, 0, 0))
        states[case.key(row)] = 0, rows + 1, total + case.value(row)
    shown: dict[Any, list[Row | None]] = {}
    for sign, row in moves(case, events):
        key = case.key(row)
        records, rows, total = states.get(key, (0, 0, 0))
        states[key] = records + 1, rows + sign, total + sign * case.value(row)
        if (records + 1) % n == 0:
            name = () if key == () else (key,)
            shown.setdefault(key, []).append((*name, *states[key][1:]) if states[key][1] or key == () else None)
    return shown


def by_duckdb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What says whether DuckDB can compute a view, and from now on asserts that it can if it should."""
    fitting = counting._fitting

    def asked(maintainer: Maintainer, view: View) -> Any:
        found = fitting(maintainer, view)
        assert (found is None) == view.name.startswith(("latest", "together")), view.name
        return found

    monkeypatch.setattr(counting, "_fitting", asked)
    return asked


def check(home: Harness, cases: Sequence[tuple[str, Case]], n: int, chance: random.Random, events: Events) -> None:
    """Views that are made before the data and behind it show the values at n-th records, and never any other."""
    home.sql(STREAMS + "".join(case.below for _, case in cases))
    for name, case in cases:
        home.sql(f"CREATE VIEW {name} AS {case.query} TRIGGER COUNTING {n}")
    play(home, chance, events)
    for name, case in cases:
        home.sql(f"CREATE VIEW {name}_behind AS {case.query} TRIGGER COUNTING {n}")
        expected = values(case, events, n)
        last = sorted((shown[-1] for shown in expected.values() if shown[-1] is not None), key=_nulls_first)
        assert last and sorted(home.table(name), key=_nulls_first) == last, name
        assert sorted(home.table(f"{name}_behind"), key=_nulls_first) == last, name
        given = [change.row for change in home.changes(name) if change.diff > 0]
        assert set(given) <= {each for shown in expected.values() for each in shown}, name


@pytest.mark.parametrize(
    ("names", "seed"),
    [
        (("different", "united", "except"), 1),
        (("left", "full"), 2),
        (("met", "unmet"), 19),
        (("largest", "latest", "spread"), 4),
        (("ranked", "first"), 5),
        (("together", "more"), 6),
    ],
)
def test_rows_that_come_and_go_are_counted_one_by_one(
    home: Harness, names: tuple[str, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By DuckDB and by Spark: each step is now left to the one and now to the other."""
    chance = random.Random(seed)
    local, coin = by_duckdb(monkeypatch), random.Random(seed)
    monkeypatch.setattr(counting, "_fitting", lambda *of: local(*of) if coin.random() < 0.7 else None)
    events = [
        (chance.choice("aab"), (chance.randrange(3), chance.choice("xy"), chance.randrange(8))) for _ in range(14)
    ]
    events = sorted(events[:5], key=lambda each: each[0]) + sorted(events[5:11], key=lambda each: each[0]) + events[11:]
    check(home, [(name, CASES[name]) for name in names], 3, chance, events)


def test_a_view_that_starts_now_counts_what_comes_from_then_on(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows from before are none of its own: neither partners of new ones nor records."""
    by_duckdb(monkeypatch)
    query = f"{CASES['left'].query} TRIGGER COUNTING 3"
    home.sql(STREAMS)
    home.insert("a", [(1, "x", 0)])
    home.insert("b", [(1, "x", 5)])
    home.sql(f"CREATE VIEW v AS {query} START AT NOW")
    home.insert("a", [(1, "x", 0)])
    home.insert("b", [(1, "x", 7), (1, "x", 9)])
    assert home.table("v") == [("x", 1, 7)]
    home.reopen()
    home.insert("a", [(1, "x", 0)])
    assert home.table("v") == [("x", 4, 32)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT s, count(*) AS n FROM d LEFT JOIN b ON d.id = b.id GROUP BY s", "the name s, which may be a word"),
        ("SELECT a.k, count(*) AS n FROM a, LATERAL (SELECT a.v + 1 AS w) GROUP BY a.k", "a LATERAL subquery"),
        ("SELECT DISTINCT count(*) AS n FROM a GROUP BY k", "of groups that are not shown"),
        ("SELECT count(*) AS n, (SELECT max(v) FROM b) AS m FROM a", "beside aggregates without GROUP BY"),
        ("SELECT k FROM a WHERE v > (SELECT sum(v) FROM b WHERE b.k = a.k GROUP BY id)", "neither groups nor aggr"),
        (
            "SELECT k, count(*) AS n FROM a WHERE v > (SELECT sum(v) FROM b WHERE b.k = a.k GROUP BY id) GROUP BY k",
            "and groups its rows",
        ),
    ],
)
def test_what_cannot_be_counted_is_named(home: Harness, query: str, reason: str) -> None:
    home.sql(f"{STREAMS} CREATE STREAM d (id INT, s STRING)")
    with pytest.raises(AnabranchError, match=reason):
        home.sql(f"CREATE VIEW v AS {query} TRIGGER COUNTING 3")


def test_several_rows_that_are_made_of_one_are_counted_one_by_one(home: Harness) -> None:
    made = "SELECT k, x FROM s LATERAL VIEW explode(xs) t AS x"
    home.sql(
        "CREATE STREAM s (k STRING, xs ARRAY<INT>); CREATE VIEW v AS"
        f" SELECT k, count(*) AS n, sum(x) AS x FROM ({made}) GROUP BY k TRIGGER COUNTING 2"
    )
    home.sql("INSERT INTO s VALUES ('p', array(4, 2, 1)), ('q', array(7))")
    assert home.table("v") == [("p", 2, 3)]
    home.sql("INSERT INTO s VALUES ('p', array(8)), ('q', array(8, 9))")
    assert home.table("v") == [("p", 4, 15), ("q", 2, 15)]


def test_windows_that_other_rows_make_are_those_at_the_record_that_fires(home: Harness) -> None:
    """Of a key, the rows up to it make the windows; the one behind it, in the same run, would join two of them."""
    home.sql("CREATE STREAM s (k STRING, v INT, ts TIMESTAMP)")
    for name, windows, groups in [
        ("sessions", "SESSION(s PARTITION BY k, ts, INTERVAL 10 SECONDS)", "k, window_start"),
        ("counts", "SLIDING(s PARTITION BY k, DESCRIPTOR(row_num), 2 ROWS, 3 ROWS)", "k, window_start"),
        ("ends", "SLIDE_BY_ROW(s, ts, INTERVAL 10 SECONDS, 1 ROW)", "window_end"),
        ("chunks", "CHUNKS(s, k)", "window_start"),
    ]:
        home.sql(f"CREATE VIEW {name} AS SELECT sum(v) AS v FROM {windows} GROUP BY {groups} TRIGGER COUNTING 2")
    made = "INSERT INTO s SELECT k, v, timestamp_seconds(t) FROM VALUES {} AS r(k, v, t)"
    home.sql(made.format("('x', 1, 0), ('x', 2, 20), ('x', 4, 10)"))
    assert sorted(home.table("sessions")) == [(1,), (2,)]
    assert sorted(home.table("counts")) == [(2,), (3,)]
    assert sorted(home.table("ends")) == [(1,), (2,)]
    assert sorted(home.table("chunks")) == [(3,)]
    home.sql(made.format("('y', 8, 3), ('x', 16, 40)"))
    assert sorted(home.table("sessions")) == [(7,), (16,)]
    assert sorted(home.table("chunks")) == [(7,), (8,)]


def test_sums_that_round_leave_no_row_behind(home: Harness) -> None:
    """What goes is found again, though who kept it may have added up its rows in another order."""
    chance = random.Random(5)
    query = "SELECT count(*) AS n, sum(s) AS s FROM (SELECT k, sum(p) AS s FROM a GROUP BY k) TRIGGER COUNTING 3"
    home.sql(f"CREATE STREAM a (k STRING, p DOUBLE); CREATE VIEW v AS {query}")
    for _ in range(4):
        home.insert("a", [(chance.choice("xyzw"), chance.randrange(1, 9999) / 100) for _ in range(7)])
        assert home.table("v")[0][0] <= 4
    home.sql(f"CREATE VIEW behind AS {query}")
    assert home.table("v")[0] == pytest.approx(home.table("behind")[0])
