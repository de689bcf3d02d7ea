"""TRIGGER COUNTING over queries that can take rows back: the changes of a run are counted together.

The law: a key fires in the run in which its n-th, 2n-th, ... change arrives, and shows its value after that run. A
change is a row of the query below that came or went with the run. Whatever the cut, and if a process dies between runs,
the answer at the end of the streams is that of the batch query.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.testing import Harness, crashing, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]
#: The rows that each stream has, as (id, k, v).
There = Mapping[str, Sequence[Row]]

STREAMS = "".join(f"CREATE STREAM {name} (id INT, k STRING, v INT);" for name in "ab")
N = 3


def left(there: There) -> Iterator[Row]:
    for id, k, _ in there["a"]:
        yield from ((k, v) for v in [v for other, _, v in there["b"] if other == id] or [100])


def largest(there: There) -> Iterator[Row]:
    for k, id in {(k, id) for id, k, _ in there["a"]}:
        yield k, max(v for *key, v in there["a"] if key == [id, k])


def united(there: There) -> Iterator[Row]:
    yield from {(k, v) for name in "ab" for _, k, v in there[name]}


def ranked(there: There) -> Iterator[Row]:
    for k in {k for _, k, _ in there["a"]}:
        found = sorted((-v, id) for id, other, v in there["a"] if other == k)
        yield from ((k, -v * place) for place, (v, _) in enumerate(found, 1))


def first(there: There) -> Iterator[Row]:
    yield from sorted(((k, v) for _, k, v in there["a"]), key=lambda row: (-row[1], row[0]))[:3]


#: The rows below each query, as (k, v); the query adds up v by k.
CASES: dict[str, tuple[Callable[[There], Iterable[Row]], str]] = {
    "left": (left, "SELECT a.k, coalesce(b.v, 100) AS v FROM a LEFT JOIN b ON a.id = b.id"),
    "largest": (largest, "SELECT k, max(v) AS v FROM a GROUP BY k, id"),
    "united": (united, "SELECT k, v FROM a UNION SELECT k, v FROM b"),
    "ranked": (
        ranked,
        "SELECT k, v * row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS v FROM a",
    ),
    "first": (first, "SELECT k, v FROM a ORDER BY v DESC, k LIMIT 3"),
}


def query(below: str) -> str:
    return f"SELECT k, count(*) AS n, sum(v) AS v FROM ({below}) GROUP BY k"


@dataclass
class Oracle:
    """What a view shows after each run, computed from all rows anew."""

    rows: Callable[[There], Iterable[Row]]
    n: int = N
    before: Counter[Row] = field(default_factory=Counter)
    changes: Counter[Any] = field(default_factory=Counter)
    shown: dict[Any, Row | None] = field(default_factory=dict)

    def run(self, there: There) -> list[Row]:
        after = Counter(self.rows(there))
        new = Counter(row[0] for row in ((after - self.before) + (self.before - after)).elements())
        for key, count in new.items():
            if (self.changes[key] + count) // self.n > self.changes[key] // self.n:
                values = [value for k, value in after.elements() if k == key]
                self.shown[key] = (key, len(values), sum(values)) if values else None
        self.changes += new
        self.before = after
        return sorted_rows(row for row in self.shown.values() if row is not None)


def one_insert(path: str, stream: str, rows: list[Row]) -> None:
    with Harness(path) as home:
        home.insert(stream, rows)


@pytest.mark.parametrize(
    ("seed", "crash"), [(1, False), pytest.param(2, True, marks=[pytest.mark.slow, pytest.mark.crash])]
)
def test_a_key_fires_in_the_run_of_its_nth_change(home: Harness, seed: int, crash: bool) -> None:
    chance = random.Random(seed)
    home.sql(STREAMS)
    for name, (_, below) in CASES.items():
        home.sql(f"CREATE VIEW {name} AS {query(below)} TRIGGER COUNTING {N}, ON END OF STREAM")
    oracles = {name: Oracle(rows) for name, (rows, _) in CASES.items()}
    there: dict[str, list[Row]] = {"a": [], "b": []}
    for number, name in enumerate("abab"):
        rows = [(chance.randrange(3), chance.choice("xy"), chance.randrange(8)) for _ in range(chance.randint(1, 4))]
        if crash and number == 2:  # a process that dies with a run leaves nothing of it behind
            home.session.close()
            assert crashing("before-record", one_insert, str(home.path), name, rows)
            home.reopen()
        home.insert(name, rows)
        there[name] += rows
        for view, oracle in oracles.items():
            assert home.table(view) == oracle.run(there), (view, number)
    # All rows in one run.
    home.sql(f"CREATE VIEW behind AS {query(CASES['left'][1])} TRIGGER COUNTING {N}, ON END OF STREAM")
    home.advance("a")
    home.advance("b")
    for name, (_, below) in CASES.items():
        answer = home.batch(query(below), **there)
        assert home.table(name) == answer, name
        assert name != "left" or home.table("behind") == answer


def test_runs_of_one_row_count_record_by_record(tmp_path: Path, spark: SparkSession) -> None:
    """Of the counts of x and y, the key 1 has its second change with the second row, and its fourth with the fourth."""
    for number, k in enumerate("xyzyx"):
        (tmp_path / f"{number}.csv").write_text(f"{k}\n")
    counts = "SELECT n, count(*) AS keys FROM (SELECT k, count(*) AS n FROM s GROUP BY k) GROUP BY n"
    with Harness(tmp_path / "home", spark, run_rows=1) as home:
        home.sql(f"CREATE STREAM s (k STRING) FROM files(path => '{tmp_path}/*.csv')")
        home.sql(f"CREATE VIEW v AS {counts} TRIGGER COUNTING 2")
        assert home.table("v") == [(1, 2), (2, 2)]
        # After y, two keys have one row; after y again, x and z do; after x again, x and y have two.
        assert [change.row for change in home.changes("v") if change.diff > 0] == [(1, 2), (2, 2)]


def test_changes_of_an_answer_without_keys_are_counted(home: Harness) -> None:
    """Rows that are equal are as many changes as there are rows."""
    home.sql(f"{STREAMS} CREATE VIEW v AS SELECT count(b.v) AS n FROM a LEFT JOIN b ON a.id = b.id TRIGGER COUNTING 6")
    home.insert("a", [(1, "x", 0), (1, "x", 0)])
    assert home.table("v") == []
    home.insert("b", [(1, "x", 0)])  # two rows without a partner go, two with one come
    assert home.table("v") == [(2,)]


def test_one_statement_counts_in_several_places(home: Harness) -> None:
    home.sql(
        f"{STREAMS} CREATE VIEW v AS WITH"
        " x AS (SELECT k, count(*) AS n FROM (SELECT DISTINCT k, v FROM a) GROUP BY k TRIGGER COUNTING 2),"
        " y AS (SELECT a.k, count(b.v) AS n FROM a JOIN b ON a.id = b.id GROUP BY a.k TRIGGER COUNTING 3)"
        " SELECT 'x' AS q, * FROM x UNION ALL SELECT 'y', * FROM y"
    )
    home.insert("a", [(1, "p", 1), (1, "p", 1), (2, "p", 2), (3, "p", 3)])
    home.insert("b", [(1, "", 5), (1, "", 6)])
    assert home.table("v") == [("x", "p", 3), ("y", "p", 3)]  # changes of the one run, records one by one


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
