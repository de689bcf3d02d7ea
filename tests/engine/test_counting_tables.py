"""TRIGGER COUNTING where static tables stand beside rows that come and go, or below them.

The law: what a key shows is its value at its first n, 2n, ... records, however rows are cut into runs; and that value
is the one that a plain view of the same query has at that moment. So a REFRESH reaches the rows from before where it
does so in a plain view, and there alone: it is no record itself. The oracle asks the query below anew for each row that
comes, in plain Python; each row of `a` remembers the table as it was when it came.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.testing import Harness, sorted_rows
from engine.test_counting import Events, Row, play

pytestmark = pytest.mark.spark

STREAMS = "".join(f"CREATE STREAM {name} (id INT, k STRING, v INT);" for name in "ab")
TABLE = ((0, 1), (0, 10), (0, 10), (1, 2), (1, 30))
OTHER = ((0, 10), (0, 5), (1, 2), (2, 7), (2, 50))
#: The rows of the streams, those of `a` with the table that they met; and the table as it is.
There = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """A query that counts, the rows of the one below it, and what of these is its key and what is added up."""

    query: str
    rows: Callable[[There], Iterator[Row]]
    key: Callable[[Row], Any] = lambda row: row[0]
    value: Callable[[Row], int] = lambda row: row[-1]
    below: str = ""


def left(there: There) -> Iterator[Row]:
    """a LEFT JOIN b LEFT JOIN t: of several streams, a table is met as it is."""
    for id, k, _, _ in there["a"]:
        met = [v for other, _, v in there["b"] if other == id] or [None]
        known = [w for other, w in there["t"] if other == id] or [None]
        yield from ((k, v, w) for v in met for w in known)


def met(there: There) -> Iterator[Row]:
    """a JOIN t, where each row has met the table once."""
    for id, k, _, table in there["a"]:
        yield from ((k, id, w) for other, w in table if other == id)


def sums(there: There) -> Iterator[Row]:
    for (k, id), rows in groupby(sorted(met(there)), lambda row: row[:2]):
        yield k, id, sum(w for _, _, w in rows)


def sums_by_key(there: There) -> Iterator[Row]:
    for k, rows in groupby(sorted(met(there)), lambda row: row[0]):
        yield k, sum(w for _, _, w in rows)


def different(there: There) -> Iterator[Row]:
    yield from {(k, w) for id, k, _, _ in there["a"] for other, w in there["t"] if other == id}


_JOINED = "a JOIN t ON a.id = t.id"
CASES = {
    "left": Case(
        "SELECT a.k, count(*) AS n, sum(coalesce(b.v, 100) + coalesce(t.w, 0)) AS v"
        " FROM a LEFT JOIN b ON a.id = b.id LEFT JOIN t ON a.id = t.id GROUP BY a.k",
        left,
        value=lambda row: (100 if row[1] is None else row[1]) + (row[2] or 0),
    ),
    "groups": Case(
        f"SELECT k, count(*) AS n, sum(w) AS v FROM (SELECT a.k, a.id, sum(t.w) AS w FROM {_JOINED}"
        " GROUP BY a.k, a.id) GROUP BY k",
        sums,
    ),
    "different": Case(
        f"SELECT k, count(*) AS n, sum(w) AS v FROM (SELECT DISTINCT a.k, t.w FROM {_JOINED}) GROUP BY k", different
    ),
    "single": Case(f"SELECT a.k, count(*) AS n, sum(t.w) AS v FROM {_JOINED} GROUP BY a.k", met),
    "through": Case(
        "SELECT k, count(*) AS n, sum(w) AS v FROM (SELECT DISTINCT k, w FROM low) GROUP BY k",
        lambda there: iter({(k, w) for k, _, w in met(there)}),
        below=f"CREATE VIEW low AS SELECT a.k, t.w FROM {_JOINED};",
    ),
    "summed": Case(
        "SELECT count(*) AS n, sum(w) AS v FROM sums WHERE w > 3",
        lambda there: (row for row in sums_by_key(there) if row[1] > 3),
        key=lambda row: (),
        below=f"CREATE VIEW sums AS SELECT a.k, sum(t.w) AS w FROM {_JOINED} GROUP BY a.k;",
    ),
}


def _nulls_first(row: Row) -> list[Any]:
    return [(value is not None, value if value is not None else 0) for value in row]


class Oracle:
    """The rows below a query that counts, one moment after the other, and what its keys show in turn."""

    def __init__(self, case: Case, n: int) -> None:
        self.case = case
        self.n = n
        self.there: dict[str, Any] = {"a": [], "b": [], "t": TABLE}
        self.rows: Counter[Row] = Counter()
        self.records: Counter[Any] = Counter()
        self.shown: dict[Any, list[Row | None]] = {}

    def play(self, events: Events) -> None:
        """With each row of a stream first what goes does so, then what comes."""
        for name, row in events:
            self.there[name].append((*row, self.there["t"]) if name == "a" else row)
            after = Counter(self.case.rows(self.there))
            for sign, more in ((-1, self.rows - after), (1, after - self.rows)):
                for each in sorted(more.elements(), key=_nulls_first):
                    self.rows[each] += sign
                    self._record(self.case.key(each))

    def refresh(self, table: Sequence[Row]) -> None:
        """Rows from before are others then, where the table reaches them; no record tells of it."""
        self.there["t"] = table
        self.rows = Counter(self.case.rows(self.there))

    def _record(self, key: Any) -> None:
        self.records[key] += 1
        if self.records[key] % self.n == 0:
            self.shown.setdefault(key, []).append(self.value(key))

    def value(self, key: Any) -> Row | None:
        rows = [row for row in self.rows.elements() if self.case.key(row) == key]
        total = sum(map(self.case.value, rows)) if rows else None
        if key == ():
            return len(rows), total
        return (key, len(rows), total) if rows else None

    @property
    def last(self) -> list[Row]:
        return sorted_rows(shown[-1] for shown in self.shown.values() if shown[-1] is not None)

    @property
    def all(self) -> list[Row]:
        """What a plain view shows."""
        keys = {self.case.key(row) for row in self.rows.elements()}
        return sorted_rows(found for key in keys if (found := self.value(key)) is not None)


def written(table: Sequence[Row]) -> str:
    return f"INSERT INTO t VALUES {', '.join(map(str, table))};"


def some(chance: random.Random, count: int) -> list[tuple[str, Row]]:
    found = [
        (chance.choice("aaab"), (chance.randrange(3), chance.choice("xy"), chance.randrange(8))) for _ in range(count)
    ]
    return sorted(found, key=lambda each: each[0])


@pytest.mark.parametrize(
    ("names", "seed"), [(("left", "groups", "single"), 7), (("through", "summed", "different"), 398)]
)
def test_rows_beside_static_tables_are_counted_one_by_one(home: Harness, names: tuple[str, ...], seed: int) -> None:
    chance = random.Random(seed)
    first, second = some(chance, 6), some(chance, 4)
    below = "".join(CASES[name].below for name in names)
    home.sql(f"{STREAMS} CREATE TABLE t (id INT, w INT); {written(TABLE)} {below}")
    for name in names:
        home.sql(f"CREATE VIEW {name} AS {CASES[name].query} TRIGGER COUNTING 2")
        home.sql(f"CREATE VIEW {name}_plain AS {CASES[name].query}")
    oracles = {name: Oracle(CASES[name], 2) for name in names}
    play(home, chance, first)
    home.sql(f"CREATE VIEW behind AS {CASES[names[0]].query} TRIGGER COUNTING 2")
    home.sql(f"DELETE FROM t; {written(OTHER)} REFRESH TABLE t")
    play(home, chance, second)
    for name, oracle in oracles.items():
        oracle.play(first)
        oracle.refresh(OTHER)
        oracle.play(second)
        assert oracle.last and home.table(name) == oracle.last, name
        assert home.table(f"{name}_plain") == oracle.all, name
        given = [change.row for change in home.changes(name) if change.diff > 0]
        assert set(given) <= {each for shown in oracle.shown.values() for each in shown}, name
    assert home.table("behind") == oracles[names[0]].last


def test_a_table_that_is_refreshed_before_each_run_is_met_as_it_was_then(home: Harness) -> None:
    """Beside a view that starts now: rows from before are none of its own, and have met nothing."""
    query = f"{CASES['groups'].query} TRIGGER COUNTING 2"
    home.sql(f"{STREAMS} CREATE TABLE t (id INT, w INT) REFRESH EVERY RUN; INSERT INTO t VALUES (1, 10)")
    home.sql(f"CREATE VIEW v AS {query}")
    home.insert("a", [(1, "x", 0)])
    home.sql(f"CREATE VIEW newer AS {query} START AT NOW")
    home.sql("UPDATE t SET w = 100")
    home.insert("a", [(1, "x", 0)])
    assert home.table("v") == [] and home.table("newer") == []  # the second record of x takes its only row
    home.reopen()
    home.sql("UPDATE t SET w = 1000; INSERT INTO t VALUES (2, 7)")
    home.insert("a", [(1, "x", 0), (2, "x", 0)])
    assert home.table("v") == [("x", 2, 1117)]
    assert home.table("newer") == [("x", 2, 1107)]
    home.sql("DROP VIEW v; DROP VIEW newer")
    assert home.query("SELECT * FROM sys.tables WHERE id LIKE 'v%' OR id LIKE 'newer%'") == []


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "SELECT k, count(*) AS n FROM (SELECT DISTINCT k, w FROM low) GROUP BY k",
            "view low has rows that met table t",
        ),
        ("SELECT count(*) AS n FROM sums", "view sums has rows that met table t before it was refreshed"),
        (
            "SELECT a.k, count(*) AS n FROM a LEFT JOIN b USING (id) JOIN t REFRESHABLE ON t.id = a.id GROUP BY a.k",
            "a REFRESHABLE table",
        ),
    ],
)
def test_what_cannot_be_counted_beside_tables_is_named(home: Harness, query: str, reason: str) -> None:
    low = CASES["through"].below.replace(";", " EMIT CHANGES;")
    home.sql(
        f"{STREAMS} CREATE TABLE t (id INT, w INT); {low} {CASES['summed'].below} {written(TABLE)} REFRESH TABLE t"
    )
    with pytest.raises(AnabranchError, match=reason):
        home.sql(f"CREATE VIEW v AS {query} TRIGGER COUNTING 3")


def test_rows_have_met_a_table_once_where_each_record_shows(home: Harness) -> None:
    query = "SELECT k, sum(w) AS w FROM a JOIN t ON a.id = t.id GROUP BY k"
    home.sql(f"{STREAMS} CREATE TABLE t (id INT, w INT); INSERT INTO t VALUES (1, 1), (2, 10)")
    home.sql(f"CREATE VIEW plain AS {query}; CREATE VIEW v AS {query} TRIGGER COUNTING 1")
    home.insert("a", [(1, "x", 0), (2, "x", 0)])
    home.sql("DELETE FROM t; INSERT INTO t VALUES (1, 1000), (2, 10000); REFRESH TABLE t")
    home.insert("a", [(1, "x", 0), (2, "x", 0)])
    assert home.table("v") == home.table("plain") == [("x", 11011)]
