"""TRIGGER COUNTING over joins and unions of streams: record by record, in the order in which the records came.

The law: what a key shows is its value over its first n, 2n, ... records. A record of a join comes with the last of its
rows, and of those that come with one row the first is the one whose rows have the lowest numbers, in the order of FROM;
so neither the cut into runs nor a restart nor when the view is made makes a difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from anabranch.testing import Harness

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]
#: What came, in its order: a stream and a row of it.
Events = Sequence[tuple[str, Row]]
#: The records of a query, each a key and a number that is added up, in the order in which they come.
Records = Iterator[tuple[Any, int]]

STREAMS = "".join(f"CREATE STREAM {name} (id INT, k STRING, v INT, ts TIMESTAMP);" for name in "abc")
LABELS = [(0, "x", 1), (0, "y", 10), (0, "x", 100), (1, "x", 1), (1, "x", 1), (2, "y", 3)]
TABLE = f"CREATE TABLE t (id INT, label STRING, w INT); INSERT INTO t VALUES {', '.join(map(str, LABELS))};"


def joined(streams: str, meets: Callable[..., bool], made: Callable[..., tuple[Any, int]], events: Events) -> Records:
    """The records of an inner join: with each row, all combinations with rows that were there."""
    there: list[list[Row]] = [[] for _ in streams]
    for name, row in events:
        before = [len(rows) for rows in there]
        for place, each in enumerate(streams):
            if each == name:
                there[place].append(row)
        for numbers in _combinations([len(rows) for rows in there]):
            new = any(number >= before[place] for place, number in enumerate(numbers))
            rows = [there[place][number] for place, number in enumerate(numbers)]
            if new and meets(*rows):
                yield made(*rows)


def _combinations(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for first in range(sizes[0]):
        yield from ((first, *others) for others in _combinations(sizes[1:]))


def same(*rows: Row) -> bool:
    return len({row[0] for row in rows}) == 1


def near(a: Row, b: Row) -> bool:
    return a[1] == b[1] and a[3] <= b[3] <= a[3] + timedelta(seconds=10)


def of_union(events: Events) -> Records:
    yield from ((row[1], row[2]) for name, row in events if name == "a" or (name == "b" and row[2] > 2))


def of_union_joined(events: Events) -> Records:
    """(a UNION ALL b) JOIN c."""
    there: dict[str, list[Row]] = {"a": [], "b": [], "c": []}
    for name, row in events:
        there[name].append(row)
        if name == "c":
            yield from ((each[1], row[2]) for each in (*there["a"], *there["b"]) if each[0] == row[0])
        else:
            yield from ((row[1], each[2]) for each in there["c"] if each[0] == row[0])


def of_table(events: Events) -> Records:
    """Rows of a static table that come with one row of the stream come in the order of their columns."""
    for name, row in events:
        if name == "a":
            yield from ((label, row[2] * w) for id, label, w in sorted(LABELS) if id == row[0])


@dataclass(frozen=True)
class Case:
    query: str
    records: Callable[[Events], Records]
    below: str = ""


CASES = {
    "band": Case(
        "SELECT a.k, count(*) AS n, sum(a.v) AS v FROM a JOIN b ON a.k = b.k"
        " AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 SECONDS GROUP BY a.k",
        lambda events: joined("ab", near, lambda a, b: (a[1], a[2]), events),
    ),
    "three": Case(
        "SELECT b.k, count(*) AS n, sum(a.v + 7 * b.v + 50 * c.v) AS v FROM a, b, c WHERE a.id = b.id AND b.id = c.id"
        " GROUP BY b.k",
        lambda events: joined("abc", same, lambda a, b, c: (b[1], a[2] + 7 * b[2] + 50 * c[2]), events),
    ),
    "twice": Case(
        "SELECT x.k, count(*) AS n, sum(y.v) AS v FROM a AS x JOIN a AS y USING (id) WHERE x.v < 8 GROUP BY x.k",
        lambda events: joined("aa", lambda x, y: same(x, y) and x[2] < 8, lambda x, y: (x[1], y[2]), events),
    ),
    "union": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b WHERE v > 2)"
        " GROUP BY k",
        of_union,
    ),
    "mixed": Case(
        "WITH u AS (SELECT * FROM a UNION ALL (SELECT * FROM b)) SELECT u.k, count(*) AS n, sum(c.v) AS v"
        " FROM u JOIN c ON u.id = c.id GROUP BY u.k",
        of_union_joined,
    ),
    "through": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM met AS m WHERE m.v <> 5 GROUP BY k",
        lambda events: joined("ab", lambda a, b: same(a, b) and b[2] != 5, lambda a, b: (a[1], b[2]), events),
        "CREATE VIEW met AS SELECT a.k, b.v FROM a JOIN b ON a.id = b.id;",
    ),
    "overlapping": Case(
        "SELECT k, count(*) AS n, sum(v) AS v FROM HOP(a, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) GROUP BY k",
        lambda events: ((row[1], row[2]) for name, row in events for _ in range(2) if name == "a"),
    ),
    "everything": Case(
        "SELECT 'all' AS k, count(*) AS n, sum(b.v) AS v FROM a JOIN b ON a.id = b.id",
        lambda events: joined("ab", same, lambda a, b: ("all", b[2]), events),
    ),
    "static": Case(
        "SELECT label, count(*) AS n, sum(v * w) AS v FROM a JOIN t ON a.id = t.id GROUP BY label", of_table, TABLE
    ),
}


def values(records: Records, n: int) -> dict[Any, list[tuple[Any, int, int]]]:
    """What each key shows in turn: its value at every n-th of its records."""
    states: dict[Any, tuple[int, int]] = {}
    shown: dict[Any, list[tuple[Any, int, int]]] = {}
    for key, value in records:
        count, total = states.get(key, (0, 0))
        states[key] = count + 1, total + value
        if (count + 1) % n == 0:
            shown.setdefault(key, []).append((key, *states[key]))
    return shown


def some_events(chance: random.Random, count: int) -> list[tuple[str, Row]]:
    start = datetime(2026, 1, 1)
    times = [start + timedelta(seconds=chance.randrange(30)) for _ in range(count)]
    return [
        (chance.choice("aabbc"), (chance.randrange(3), chance.choice("xy"), chance.randrange(10), time))
        for time in times
    ]


def play(home: Harness, chance: random.Random, events: Events) -> None:
    """Bring events, neighbours of one stream in one run or in several, with a restart somewhere."""
    runs: list[tuple[str, list[Row]]] = []
    for name, row in events:
        if runs and runs[-1][0] == name and chance.random() < 0.8:
            runs[-1][1].append(row)
        else:
            runs.append((name, [row]))
    again = chance.randrange(len(runs))
    for number, (name, rows) in enumerate(runs):
        home.insert(name, rows)
        if number == again:
            home.compact()
            home.reopen()


@pytest.mark.parametrize(
    ("names", "seed"),
    [
        (("band", "twice", "union"), 324),
        pytest.param(("three", "mixed", "everything"), 332, marks=pytest.mark.slow),
        pytest.param(("overlapping", "through", "static"), 360, marks=pytest.mark.slow),
    ],
)
def test_records_of_joins_and_unions_are_counted_one_by_one(home: Harness, names: tuple[str, ...], seed: int) -> None:
    chance = random.Random(seed)
    events = some_events(chance, 12)
    # Many rows of one stream behind many of another: runs that make several records of a key.
    events = sorted(events[:9], key=lambda each: each[0]) + events[9:]
    home.sql(STREAMS + "".join(CASES[name].below for name in names))
    for name in names:
        home.sql(f"CREATE VIEW {name} AS {CASES[name].query} TRIGGER COUNTING 3")
    play(home, chance, events)
    for name in names:
        home.sql(f"CREATE VIEW {name}_behind AS {CASES[name].query} TRIGGER COUNTING 3")
        expected = values(CASES[name].records(events), 3)
        last = sorted(shown[-1] for shown in expected.values())
        assert last and home.table(name) == last, name
        assert home.table(f"{name}_behind") == last, name
        given = [change.row for change in home.changes(name) if change.diff > 0]
        assert set(given) <= {each for shown in expected.values() for each in shown}, name


def moment(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second)


def test_windows_of_a_join_are_counted_and_close(home: Harness) -> None:
    """Whichever trigger fires first: the second record, and the end of the window with the third."""
    streams = "".join(
        f"CREATE STREAM {name} (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);" for name in "ab"
    )  # fmt: skip
    home.sql(
        f"{streams} CREATE VIEW v AS SELECT a.window_end, count(*) AS n, min(a.ts) AS low, max(a.ts) AS high"
        " FROM TUMBLE(a, ts, INTERVAL 10 SECONDS) JOIN TUMBLE(b, ts, INTERVAL 10 SECONDS)"
        " ON a.window_end = b.window_end AND a.id = b.id GROUP BY a.window_end TRIGGER COUNTING 2, ON WATERMARK"
    )
    home.insert("a", [(1, moment(3)), (1, moment(1)), (1, moment(2))])
    home.insert("b", [(1, moment(5))])
    two = (moment(10), 2, moment(1), moment(3))
    assert home.table("v") == [two]
    home.insert("a", [(1, moment(12))])
    home.insert("b", [(2, moment(11))])
    three = (moment(10), 3, moment(1), moment(3))
    assert home.table("v") == [three]
    assert [(change.diff, change.row) for change in home.changes("v")] == [(1, two), (-1, two), (1, three)]


def test_records_that_are_kept_are_counted_anew_by_another_query(home: Harness) -> None:
    home.sql("CREATE STREAM a (id INT, k STRING); CREATE STREAM b (id INT, v INT)")
    query = "SELECT a.k, count(*) AS n, sum({}) AS v FROM a JOIN b ON a.id = b.id GROUP BY a.k TRIGGER COUNTING {}"
    home.sql(f"CREATE VIEW v AS {query.format('b.v', 2)}")
    home.insert("a", [(1, "x")])
    home.insert("b", [(1, 10), (1, 20), (1, 30)])
    assert home.table("v") == [("x", 2, 30)]
    home.sql(f"ALTER VIEW v AS {query.format('b.v + 1', 3)}")
    assert home.table("v") == [("x", 3, 63)]
    home.insert("b", [(1, number) for number in range(4)])
    assert home.table("v") == [("x", 6, 69)]
