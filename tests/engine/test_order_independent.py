"""Views of advertisements shown, while two servers load side by side and rows come minutes late.

The views and rows are those of the patent "Order-independent stream query processing". There, a window is written as
slices of the stream, and a function gives its close; here it is TUMBLE and window_end. Everything is read after every
run, before and after the reducer, from views that are worked out when read and from views whose changes are kept.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from anabranch.testing import Harness, Row, assert_same_rows

pytestmark = pytest.mark.spark

MIDNIGHT = datetime(2026, 1, 1)
STREAM = "CREATE STREAM impsns (campaign STRING, ts TIMESTAMP, price INT, WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE)"
MINUTES = "TUMBLE(impsns, ts, INTERVAL 1 MINUTE)"
FIVE_MINUTES = "TUMBLE(impsns, ts, INTERVAL 5 MINUTES)"

#: {count} is the name of the view of counts. The sum can be taken of partial counts as they are; the maximum and the
#: threshold cannot, they need the whole count of a group first.
VIEWS = {
    "impsn_count": f"SELECT window_end AS t, campaign, count(*) AS c FROM {MINUTES} GROUP BY window_end, campaign",
    "impsn_sum": "SELECT t, sum(c) AS c FROM {count} GROUP BY t",
    "impsn_max": "SELECT t, max(c) AS c FROM {count} GROUP BY t",
    "impsn_thresh": f"SELECT campaign FROM {FIVE_MINUTES} GROUP BY window_end, campaign HAVING count(*) > 5",
    "impsn_count5min": f"SELECT campaign, count(*) AS c FROM {FIVE_MINUTES} GROUP BY window_end, campaign",
    "impsn_avg5min": f"SELECT campaign, avg(price) AS p FROM {FIVE_MINUTES} GROUP BY window_end, campaign",
}

#: Campaign, second and price: two servers, then rows that are late, then rows that are later still.
RUNS: list[list[tuple[str, int, int]]] = [
    [("A", 5, 10), ("A", 20, 20), ("B", 30, 6), ("A", 70, 30), ("B", 80, 4), ("B", 100, 8)],
    [("A", 15, 12), ("C", 50, 9), ("B", 75, 2), ("C", 130, 5), ("A", 290, 50)],
    [("B", 10, 1), ("B", 40, 3), ("B", 45, 5), ("A", 110, 7)],
    [("C", 55, 2), ("B", 290, 10)],
]

#: What each view shows after each run; a window is the minute of its close.
SHOWN: dict[str, list[list[Row]]] = {
    "impsn_count": [
        [(1, "A", 2), (1, "B", 1), (2, "A", 1), (2, "B", 2)],
        [(1, "A", 3), (1, "B", 1), (1, "C", 1), (2, "A", 1), (2, "B", 3), (3, "C", 1), (5, "A", 1)],
        [(1, "A", 3), (1, "B", 4), (1, "C", 1), (2, "A", 2), (2, "B", 3), (3, "C", 1), (5, "A", 1)],
        [(1, "A", 3), (1, "B", 4), (1, "C", 2), (2, "A", 2), (2, "B", 3), (3, "C", 1), (5, "A", 1), (5, "B", 1)],
    ],
    "impsn_sum": [
        [(1, 3), (2, 3)],
        [(1, 5), (2, 4), (3, 1), (5, 1)],
        [(1, 8), (2, 5), (3, 1), (5, 1)],
        [(1, 9), (2, 5), (3, 1), (5, 2)],
    ],
    "impsn_max": [  # of partial counts as they are, the first two windows would show 2 and 2, then 3 and 2
        [(1, 2), (2, 2)],
        [(1, 3), (2, 3), (3, 1), (5, 1)],
        [(1, 4), (2, 3), (3, 1), (5, 1)],
        [(1, 4), (2, 3), (3, 1), (5, 1)],
    ],
    "impsn_thresh": [[], [], [("A",), ("B",)], [("A",), ("B",)]],
    "impsn_count5min": [
        [("A", 3), ("B", 3)],
        [("A", 5), ("B", 4), ("C", 2)],
        [("A", 6), ("B", 7), ("C", 2)],
        [("A", 6), ("B", 8), ("C", 3)],
    ],
    "impsn_avg5min": [  # sums over counts; the average of the averages of the minutes is another number
        [("A", 60 / 3), ("B", 18 / 3)],
        [("A", 122 / 5), ("B", 20 / 4), ("C", 14 / 2)],
        [("A", 129 / 6), ("B", 29 / 7), ("C", 14 / 2)],
        [("A", 129 / 6), ("B", 39 / 8), ("C", 16 / 3)],
    ],
}


def rows(run: list[tuple[str, int, int]]) -> list[Row]:
    return [(campaign, MIDNIGHT + timedelta(seconds=second), price) for campaign, second, price in run]


def minutes(found: list[Row]) -> list[Row]:
    return [tuple(value.minute if isinstance(value, datetime) else value for value in row) for row in found]


def create(home: Harness, suffix: str, clause: str) -> None:
    for name, query in VIEWS.items():
        home.sql(f"CREATE VIEW {name}{suffix} AS {query.format(count=f'impsn_count{suffix}')} {clause}")


def test_six_views_after_each_run(home: Harness) -> None:
    home.sql(STREAM)
    create(home, "", "")
    for number, run in enumerate(RUNS):
        home.insert("impsns", rows(run))
        for moment in ("before", "after"):
            for name, shown in SHOWN.items():
                assert_same_rows(minutes(home.table(name)), shown[number], f"{name}, run {number + 1}, {moment}")
            home.compact()
        if number == 1:  # a view that is made now has the rows of before, and those that come
            home.sql(f"CREATE VIEW behind AS {VIEWS['impsn_count5min']}")
        if number > 0:
            assert home.table("behind") == SHOWN["impsn_count5min"][number]
    assert [run["late_rows"] for run in home.runs("impsns")] == [0, 1, 4, 1]


def test_the_changes_of_six_views_add_up_after_each_run(home: Harness) -> None:
    home.sql(STREAM)
    create(home, "", "EMIT CHANGES")
    late: list[Row] = []
    for number, run in enumerate(RUNS):
        version = home.session.version
        home.insert("impsns", rows(run))
        for name, shown in SHOWN.items():
            new = [change for change in home.changes(name) if change.version > version]
            before = set(shown[number - 1]) if number else set()
            changed = len(before ^ set(shown[number]))
            assert len(new) == changed, f"{name}, run {number + 1}: nothing is taken back that stays as it is"
            if name == "impsn_count" and number >= 2:
                late += [(change.diff, *minutes([change.row])[0]) for change in new]
        for moment in ("before", "after"):
            for name, shown in SHOWN.items():
                what = f"{name}, run {number + 1}, {moment}"
                assert_same_rows(minutes(home.table(name)), shown[number], what)
                assert_same_rows(minutes(home.emitted(name)), shown[number], f"changes of {what}")
            home.compact()
    assert late == [
        (-1, 1, "B", 1), (-1, 2, "A", 1), (1, 1, "B", 4), (1, 2, "A", 2),
        (-1, 1, "C", 1), (1, 1, "C", 2), (1, 5, "B", 1),
    ]  # fmt: skip


def test_a_threshold_that_only_the_whole_count_passes(home: Harness) -> None:
    """No run has more than fifty of a campaign. B has fifty after the second run, which is not more than fifty."""
    home.sql(STREAM)
    query = VIEWS["impsn_thresh"].replace("> 5", "> 50")
    home.sql(f"CREATE VIEW plain AS {query}; CREATE VIEW kept AS {query} EMIT CHANGES")
    runs = [{"A": 40, "B": 30}, {"A": 11, "B": 20}, {"B": 1}]
    for counts, shown in zip(runs, ([], [("A",)], [("A",), ("B",)]), strict=True):
        home.insert("impsns", rows([(campaign, 7, 1) for campaign, count in counts.items() for _ in range(count)]))
        assert home.table("plain") == home.table("kept") == home.emitted("kept") == shown
        home.compact()
        assert home.table("plain") == home.table("kept") == home.emitted("kept") == shown


def test_aggregates_of_aggregates_before_the_reducer(home: Harness) -> None:
    """Groups in several partials: of these, only the sum of counts and the maximum of maxima could be pushed down.

    After the reducer each group has one partial, and a wrong push would not show.
    """
    home.sql("CREATE STREAM s (k STRING, x INT)")
    counts = "SELECT sum(c) AS s, max(c) AS h, min(c) AS l, count(c) AS n, round(avg(c), 4) AS a FROM"
    queries = {
        "of_counts": f"{counts} (SELECT k, count(*) AS c FROM s GROUP BY k)",
        "of_maxima": f"{counts} (SELECT k, max(x) AS c FROM s WHERE k <> 'C' GROUP BY k)",
        "many": "SELECT k FROM s GROUP BY k HAVING count(*) > 3",
    }
    for name, query in queries.items():
        home.sql(f"CREATE VIEW {name} AS {query}; CREATE VIEW {name}_kept AS {query} EMIT CHANGES")
    home.insert("s", [("A", 3), ("A", 1), ("A", 2), ("B", 9)])
    home.insert("s", [("A", 7), ("B", 2), ("B", 1), ("B", 1), ("B", 1)])
    home.insert("s", [("C", 1), ("C", 1)])
    for _ in range(2):
        for suffix in ("", "_kept"):
            assert home.table(f"of_counts{suffix}") == [(11, 5, 2, 3, 3.6667)]
            assert home.table(f"of_maxima{suffix}") == [(16, 9, 7, 2, 8.0)]
            assert home.table(f"many{suffix}") == [("A",), ("B",)]
        home.compact()


def test_changes_that_are_read_as_a_stream_survive_the_reducer(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {VIEWS['impsn_count']} EMIT STREAM")
    for run in RUNS[:2]:
        home.insert("impsns", rows(run))
    before = home.table("v")
    home.compact()
    assert home.table("v") == before
