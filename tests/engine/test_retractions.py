"""What happens above a row that is taken back: aggregates, groups, DISTINCT, joins and windows.

The rows are those of a stream of changes: +x is a row that comes, -x one that is taken back, and that may come first.
The vectors are those of the OctoSQL thesis (Chomiak, Kuzminski, Lyzwa, Martin), and in all of them a row counts only
while more of it came than went. A row that is taken back early waits, and nobody sees it: where the thesis adds it up
below nothing (a sum that is -5 at first), the sum of signed values says the same, and both are checked.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest

from anabranch.testing import Change, Harness, Row, assert_same_rows

pytestmark = pytest.mark.spark


class Bag:
    """Turns +x and -x into changes (vector, id, value, sign) of a stream; the id counts what comes."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], list[int]] = {}
        self._owed: dict[tuple[str, str], list[int]] = {}
        self._last = 0

    def rows(self, vector: str, operations: str, *, oldest: bool = False) -> list[Row]:
        """Of equal values the one that came last is taken back, or the oldest; if none is there, the next to come."""
        found: list[Row] = []
        for operation in operations.split():
            sign, value = 1 if operation[0] == "+" else -1, operation[1:]
            live = self._live.setdefault((vector, value), [])
            owed = self._owed.setdefault((vector, value), [])
            if sign < 0 and live:
                id = live.pop(0 if oldest else -1)
            elif sign > 0 and owed:
                id = owed.pop(0)
            else:
                self._last += 1
                id = self._last
                (live if sign > 0 else owed).append(id)
            found.append((vector, id, value, sign))
        return found


def stream_of(name: str) -> str:
    """A stream of such changes, and the view of the rows that are there."""
    return (
        f"CREATE STREAM {name}_changes (vector STRING, id INT, value STRING, sign INT);"
        f"CREATE VIEW {name} AS SELECT * FROM NET({name}_changes, sign);"
    )


def net(changes: list[Change], after: int) -> Counter[Row]:
    """The changes after a version, added up."""
    found: Counter[Row] = Counter()
    for change in changes:
        if change.version > after:
            found[change.row] += change.diff
    return Counter({row: count for row, count in found.items() if count})


# ---- aggregates, value by value

EMPTY = "empty"
#: What is added and taken back, the aggregate, and its value after each step. `empty`: the group is gone.
AGGREGATES: list[tuple[str, str, list[float | str]]] = [
    ("+5 +5 +7 -5 -7 -5", "count(v)", [1, 2, 3, 2, 1, EMPTY]),
    ("+5 +5 +7 -5 -7 -5", "sum(v)", [5, 10, 17, 12, 5, EMPTY]),
    ("+5 +5 +8 -5 -8 -5", "avg(v)", [5, 5, 6, 6.5, 5, EMPTY]),
    ("+5 +5 +8 -5 +2 -5 -8", "count(DISTINCT v)", [1, 1, 2, 2, 3, 2, 1]),
    ("+5 +5 +8 -5 +2 -5 -8", "sum(DISTINCT v)", [5, 5, 13, 13, 15, 10, 2]),
    ("+5 +5 +8 -5 +2 -5 -8", "avg(DISTINCT v)", [5, 5, 6.5, 6.5, 5, 5, 2]),
    ("+4 +9 +4 -4 -4 -9", "min(v)", [4, 4, 4, 4, 9, EMPTY]),
    ("+4 +9 +9 -9 -9 -4", "max(v)", [4, 9, 9, 9, 4, EMPTY]),
    # First and last by the id, which counts the additions.
    ("+1 +2 +3 -1 -2 +1", "min_by(v, id)", [1, 1, 1, 2, 3, 3]),
    ("+1 +2 +1 -1", "min_by(v, id)", [1, 1, 1, 1]),
    ("+1 +2 +3 -3 -2", "max_by(v, id)", [1, 2, 3, 2, 1]),
    ("+1 +2 +1 -1", "max_by(v, id)", [1, 2, 1, 1]),
    ("+1 +2 -2 +3 -3 +2", "max_by(v, id)", [1, 2, 1, 3, 1, 2]),
    # What is taken back before it comes.
    ("-5 +5 +5 -5 -5 +5", "count(v)", [EMPTY, EMPTY, 1, EMPTY, EMPTY, EMPTY]),
    ("-5 +7 +3 +5", "sum(v)", [EMPTY, 7, 10, 10]),
    ("-5 +5 +8 -5 +5", "avg(v)", [EMPTY, EMPTY, 8, 8, 8]),
    ("-5 +5 +5", "count(DISTINCT v)", [EMPTY, EMPTY, 1]),
    ("-5 +5 +5 +8", "sum(DISTINCT v)", [EMPTY, EMPTY, 5, 13]),
    ("-5 +8 +5 +5", "avg(DISTINCT v)", [EMPTY, 8, 8, 6.5]),
    ("-2 +2 +6", "min(v)", [EMPTY, EMPTY, 6]),
    ("-9 +9 +6 +9", "max(v)", [EMPTY, EMPTY, 6, 9]),
    ("-1 +1 +2", "min_by(v, id)", [EMPTY, EMPTY, 2]),
    ("-2 +1 +2 +2", "max_by(v, id)", [EMPTY, 1, 1, 2]),
]
#: The vector of a sum, and what the sum of its signed values is after each step.
SIGNED = ("-5 +7 +3 +5", [-5, 2, 5, 10])


def test_aggregates_follow_each_row_that_is_taken_back(home: Harness) -> None:
    home.sql(stream_of("live"))
    names = list(dict.fromkeys(aggregate for _, aggregate, _ in AGGREGATES))
    items = ", ".join(f"CAST({name} AS DOUBLE) AS a{index}" for index, name in enumerate(names))
    query = f"SELECT vector, {items} FROM (SELECT vector, id, CAST(value AS INT) AS v FROM live) GROUP BY vector"
    home.sql(f"CREATE VIEW plain AS {query}; CREATE VIEW kept AS {query} EMIT CHANGES")
    signed = "SELECT vector, sum(CAST(value AS INT) * sign) AS s FROM live_changes GROUP BY vector"
    home.sql(f"CREATE VIEW signed AS {signed} EMIT CHANGES")
    bag = Bag()
    for step in range(max(len(values) for _, _, values in AGGREGATES)):
        rows: list[Row] = []
        for number, (operations, aggregate, _) in enumerate(AGGREGATES):
            one = operations.split()[step : step + 1]
            # Of equal values the thesis knows no first and no last: the other one stays.
            rows += bag.rows(str(number), " ".join(one), oldest=aggregate.startswith("max_by"))
        home.insert("live_changes", rows)
        shown = home.table("plain")
        assert_same_rows(home.table("kept"), shown, f"step {step + 1}")
        assert_same_rows(home.emitted("kept"), shown, f"changes, step {step + 1}")
        groups = {row[0]: row for row in shown}
        for number, (operations, aggregate, values) in enumerate(AGGREGATES):
            if step < len(values):
                group = groups.get(str(number))
                value = group[1 + names.index(aggregate)] if group is not None else EMPTY
                assert value == values[step], f"{aggregate} of {operations}, step {step + 1}"
                if operations == SIGNED[0]:
                    assert dict(home.table("signed"))[str(number)] == SIGNED[1][step]
        if step == 3:
            home.compact()
            home.reopen()


# ---- every aggregate over a view whose rows change, against the batch answer

BELOW = "SELECT id, max(g) AS g, max(v) AS v FROM s GROUP BY id"
ITEMS = """
count(*) AS n, count(v) AS c, sum(v) AS s, avg(v) AS a, min(v) AS l, max(v) AS h,
count(DISTINCT v) AS cd, sum(DISTINCT v) AS sd, avg(DISTINCT v) AS ad,
mode(v, true) AS m, median(v) AS md, percentile(v, 0.25) AS p, percentile_approx(v, 0.5) AS pa,
min_by(v, id) AS f, max_by(v, id) AS t, sort_array(collect_set(v)) AS cs, sort_array(collect_list(v)) AS cl,
stddev(v) AS sp, var_pop(v) AS vp, bool_or(v > 5) AS bo, bit_xor(v) AS bx, count_if(v > 2) AS ci,
sum(v) FILTER (WHERE v > 2) AS sf
"""
RUNS: list[list[Row]] = [
    [(1, "x", 1), (2, "x", 4), (3, "y", 4), (4, None, None)],
    [(1, "x", 4), (3, "y", 9), (5, "y", 2)],  # values grow
    [(2, "y", 4), (4, "x", 3), (5, "y", 9)],  # 2 goes to another group, 4 gets one
    [(1, "z", 1), (4, "z", 7), (6, "x", None)],  # x is left with a NULL
    [(6, "y", None)],  # and is gone
]


def test_all_aggregates_over_rows_that_change(home: Harness) -> None:
    """In one view with what is below, and in a view over another whose changes are kept."""
    home.sql(f"CREATE STREAM s (id INT, g STRING, v INT); CREATE VIEW below AS {BELOW}")
    queries = {
        "grouped": f"SELECT g, {ITEMS} FROM {{below}} GROUP BY g",
        "total": f"SELECT {ITEMS} FROM {{below}} WHERE v > 1",
    }
    for name, query in queries.items():
        home.sql(f"CREATE VIEW {name} AS {query.format(below=f'({BELOW})')}")
        home.sql(f"CREATE VIEW {name}_kept AS {query.format(below='below')} EMIT CHANGES")
    rows: list[Row] = []
    for number, run in enumerate(RUNS, 1):
        home.insert("s", run)
        rows += run
        for name, query in queries.items():
            expected = home.batch(query.format(below=f"({BELOW})"), s=rows)
            for each in (name, f"{name}_kept"):
                assert_same_rows(home.table(each), expected, f"{each}, run {number}")
        if number == 3:
            home.compact()
    for kept in (f"{name}_kept" for name in queries):
        counts: Counter[str] = Counter()  # lists cannot be counted, their texts can
        for change in home.changes(kept):
            counts[repr(change.row)] += change.diff
        assert sorted(counts.elements()) == sorted(map(repr, home.table(kept))), kept
        assert min(counts.values()) >= 0, kept


# ---- groups and distinct rows

PEOPLE: list[tuple[str, list[str]]] = [
    ("+Warsaw,180,2", ["+(Warsaw, 1, 180.0, 2)"]),
    ("+Warsaw,170,5", ["-(Warsaw, 1, 180.0, 2)", "+(Warsaw, 2, 175.0, 5)"]),
    ("+Krakow,160,1", ["+(Krakow, 1, 160.0, 1)"]),
    ("-Warsaw,170,5", ["-(Warsaw, 2, 175.0, 5)", "+(Warsaw, 1, 180.0, 2)"]),
    ("+Warsaw,190,0", ["-(Warsaw, 1, 180.0, 2)", "+(Warsaw, 2, 185.0, 2)"]),
    ("-Krakow,160,1", ["-(Krakow, 1, 160.0, 1)"]),  # the group is gone
]


def test_a_group_goes_with_its_last_row(home: Harness) -> None:
    home.sql(
        f"{stream_of('live')} CREATE VIEW people AS SELECT split(value, ',')[0] AS city,"
        " CAST(split(value, ',')[1] AS INT) AS height, CAST(split(value, ',')[2] AS INT) AS cats FROM live;"
        "CREATE VIEW cities AS SELECT city, count(*) AS n, avg(height) AS h, max(cats) AS c FROM people GROUP BY city"
        " EMIT CHANGES"
    )
    bag = Bag()
    for operation, expected in PEOPLE:
        version = home.session.version
        home.insert("live_changes", bag.rows("", operation))
        new = [change for change in home.changes("cities") if change.version > version]
        assert [f"{'+' if each.diff > 0 else '-'}({', '.join(map(str, each.row))})" for each in new] == expected
    assert home.table("cities") == [("Warsaw", 2, 185.0, 2)]


#: Runs, and what DISTINCT emits after each: only the first of equal rows and the last one count.
DISTINCT: list[tuple[list[str], list[str]]] = [
    (["+x", "+x", "-y", "-x", "+y", "+y", "-x", "+x"], ["+x", "", "", "", "", "+y", "-x", "+x"]),
    (["+x +x -y", "-x +y +z -z", "+y -x", "+x"], ["+x", "", "-x +y", "+x"]),
]


def test_distinct_emits_the_first_and_takes_back_the_last(home: Harness) -> None:
    home.sql(f"{stream_of('live')} CREATE VIEW v AS SELECT DISTINCT vector, value FROM live EMIT CHANGES")
    bag = Bag()
    for step in range(max(len(runs) for runs, _ in DISTINCT)):
        version = home.session.version
        rows: list[Row] = []
        expected: Counter[Row] = Counter()
        for number, (runs, emitted) in enumerate(DISTINCT):
            rows += bag.rows(str(number), " ".join(runs[step : step + 1]))
            for each in " ".join(emitted[step : step + 1]).split():
                expected[(str(number), each[1:])] += 1 if each[0] == "+" else -1
        home.insert("live_changes", rows)
        assert net(home.changes("v"), version) == expected, f"step {step + 1}"
    assert home.table("v") == home.emitted("v") == [("0", "x"), ("0", "y"), ("1", "x"), ("1", "y")]


# ---- joins

#: What each side of a join gains and loses before the answer is looked at, and how the answer has changed then.
JOINS: dict[str, list[tuple[str, str]]] = {
    "J1": [("+L1 +R1", "+L1R1"), ("+L2 +R2", "+L1R2 +L2R1 +L2R2")],
    "J2": [("+L1 +L2 -L1 +R1", "+L2R1")],
    "J3": [("+L1 +L2 +R1", "+L1R1 +L2R1"), ("-L1", "-L1R1")],
    "J4": [("-L1 +R1", ""), ("+L1", ""), ("+L1", "+L1R1")],
    "J5": [("+L1 +R1", "+L1R1"), ("-L1 -R1", "-L1R1")],
    "J6": [
        ("+R1", ""), ("+L1", "+L1R1"), ("+L2", "+L2R1"), ("+R2", "+L1R2 +L2R2"), ("+R3", "+L1R3 +L2R3"),
        ("-L1", "-L1R1 -L1R2 -L1R3"),
    ],
    "J7": [("+L1 +L1 +R1", "+L1R1 +L1R1"), ("-L1", "-L1R1")],
    "J8": [("+L1 +R1", "+L1R1"), ("-L1 +L1", "")],
    "J9": [("+L1 +R1", "+L1R1"), ("-L1 +L2 -R1 +R2", "-L1R1 +L2R2")],
}  # fmt: skip


def test_joins_of_rows_that_are_taken_back(home: Harness) -> None:
    query = "SELECT l.vector, concat(l.value, r.value) AS pair FROM l JOIN r ON l.vector = r.vector"
    home.sql(stream_of("l") + stream_of("r"))
    home.sql(f"CREATE VIEW plain AS {query}; CREATE VIEW kept AS {query} EMIT CHANGES")
    left, right = Bag(), Bag()
    pairs: Counter[Row] = Counter()
    for step in range(max(map(len, JOINS.values()))):
        version = home.session.version
        rows_l: list[Row] = []
        rows_r: list[Row] = []
        expected: Counter[Row] = Counter()
        for vector, steps in JOINS.items():
            operations, emitted = steps[step] if step < len(steps) else ("", "")
            rows_l += left.rows(vector, " ".join(each for each in operations.split() if each[1] == "L"))
            rows_r += right.rows(vector, " ".join(each for each in operations.split() if each[1] == "R"))
            for each in emitted.split():
                expected[(vector, each[1:])] += 1 if each[0] == "+" else -1
        for name, rows in (("l_changes", rows_l), ("r_changes", rows_r)):
            if rows:
                home.insert(name, rows)
        assert net(home.changes("kept"), version) == expected, f"step {step + 1}"
        pairs.update(expected)
        shown = sorted(pairs.elements())
        assert home.table("plain") == home.table("kept") == home.emitted("kept") == shown, f"step {step + 1}"
        if step == 1:
            home.compact()


# ---- windows


def test_windows_of_rows_that_come_and_go(home: Harness) -> None:
    """A row that is taken back after its window was shown corrects it; one that was taken back early is never shown."""
    query = (
        "SELECT window_start, count(*) AS n, sum(v) AS v FROM TUMBLE(TABLE NET(s, sign), DESCRIPTOR(ts),"
        " INTERVAL 10 SECONDS) GROUP BY window_start, window_end"
    )
    home.sql(
        "CREATE STREAM s (v INT, ts TIMESTAMP, sign INT, WATERMARK FOR ts AS ts);"
        f"CREATE VIEW shown AS {query} EMIT ON WINDOW CLOSE; CREATE VIEW all_of_it AS {query}"
    )

    def after(*rows: tuple[int, int, int]) -> list[str]:
        version = home.session.version
        home.insert("s", [(v, datetime(2026, 1, 1) + timedelta(seconds=second), sign) for v, second, sign in rows])
        counts = net(home.changes("shown"), version)
        return sorted(f"{count:+d} at {row[0].second}: {row[1]} of {row[2]}" for row, count in counts.items())

    assert after((1, 1, 1), (2, 2, -1), (3, 3, 2)) == []
    assert after((2, 2, 1), (9, 12, 1)) == ["+1 at 0: 3 of 7"]  # 2 came after it went
    assert after((3, 3, -1)) == ["+1 at 0: 2 of 4", "-1 at 0: 3 of 7"]
    assert after((9, 12, -1), (4, 25, 1)) == []  # nothing is left of the second window
    assert after((1, 1, -1), (3, 3, -1)) == ["-1 at 0: 2 of 4"]
    assert after((5, 14, -1)) == []
    assert after((5, 14, 2)) == ["+1 at 10: 1 of 5"]
    assert [row[1:] for row in home.table("all_of_it")] == [(1, 5), (1, 4)]
