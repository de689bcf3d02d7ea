"""When results come out: triggers, delays, changes as a stream, late rows, on a clock that stands still."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from anabranch.engine import late
from anabranch.engine.maintain import keyed
from anabranch.errors import AnabranchError
from anabranch.testing import Change, Harness

pytestmark = pytest.mark.spark

COUNTS = "SELECT k, count(*) AS n FROM s GROUP BY k"


def shown(changes: list[Change]) -> list[str]:
    """Changes as text, those of one commit in one piece: '-(a,2) +(a,4)'."""
    pieces: dict[int, list[str]] = {}
    for change in changes:
        row = ",".join(str(value) for value in change.row)
        pieces.setdefault(change.version, []).append(f"{'+' if change.diff > 0 else '-'}({row})")
    return [" ".join(each) for each in pieces.values()]


def insert(home: Harness, text: str) -> None:
    """A row for each letter."""
    home.insert("s", [(letter,) for letter in text.split()])


# ---- COUNTING


@pytest.mark.parametrize(
    ("n", "runs", "expected"),
    [
        (2, "a b a a b | a a b | a b", ["+(a,2) +(b,2)", "-(a,2) +(a,4)", "-(a,4) -(b,2) +(a,6) +(b,4)"]),
        (3, "a b a a b | a a b | a b", ["+(a,3)", "+(b,3)", "-(a,3) +(a,6)"]),
        (2, "a b a a b a a b a b", ["+(a,6) +(b,4)"]),
        (1, "a | b | a", ["+(a,1)", "+(b,1)", "-(a,1) +(a,2)"]),
        (10, "a a a | a a", []),
    ],
)
def test_counting_is_exact_inside_a_run(home: Harness, n: int, runs: str, expected: list[str]) -> None:
    home.sql(f"CREATE STREAM s (k STRING); CREATE VIEW v AS {COUNTS} TRIGGER COUNTING {n}")
    for run in runs.split("|"):
        insert(home, run)
    assert shown(home.changes("v")) == expected
    assert home.table("v") == home.emitted("v")


def test_counting_does_not_depend_on_the_cut_or_on_when_the_view_is_made(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT)")
    rows = [(("a", "b")[number % 3 == 0], number) for number in range(11)]
    query = "SELECT k, sum(n) AS n, count(*) AS rows FROM s WHERE n <> 4 GROUP BY k TRIGGER COUNTING 3"
    home.sql(f"CREATE VIEW before AS {query}")
    for start, end in ((0, 1), (1, 6), (6, 7), (7, 11)):
        home.insert("s", rows[start:end])
    home.sql(f"CREATE VIEW behind AS {query}")
    expected = []
    for key in "ab":
        numbers = [n for k, n in rows if k == key and n != 4]
        whole = len(numbers) // 3 * 3
        expected.append((key, sum(numbers[:whole]), whole))
    assert home.table("before") == home.table("behind") == [row for row in expected if row[2]]


def test_counting_over_everything_and_over_windows(home: Harness) -> None:
    home.sql(
        "CREATE STREAM s (k STRING, ts TIMESTAMP);"
        "CREATE VIEW everything AS SELECT count(*) AS n FROM s TRIGGER COUNTING 3;"
        "CREATE VIEW windows AS SELECT window_start, count(*) AS n FROM HOP(s, ts, INTERVAL 5 SECONDS,"
        " INTERVAL 10 SECONDS) GROUP BY window_start TRIGGER COUNTING 2"
    )
    times = [datetime(2026, 1, 1, 0, 0, second) for second in (1, 6, 7, 11)]
    home.insert("s", [("a", time) for time in times])
    assert home.table("everything") == [(3,)]
    start = datetime(2026, 1, 1, 0, 0, 0)
    # [0, 10) has the rows of 1, 6 and 7 and shows two; [5, 15) those of 6, 7 and 11 and shows two.
    assert home.table("windows") == [(start, 2), (start.replace(second=5), 2)]


LOW = "CREATE VIEW low AS SELECT k, n FROM s WHERE n > 0"


@pytest.mark.parametrize(
    ("made", "query"),
    [
        ("", "SELECT k, count(*) AS n FROM (SELECT k, n FROM s WHERE n > 0) GROUP BY k"),
        ("", "WITH t AS (SELECT lower(k) AS k FROM s WHERE n > 0) SELECT k, count(*) AS n FROM t GROUP BY k"),
        (f"{LOW};", "SELECT k, count(*) AS n FROM low GROUP BY k"),
        (
            f"{LOW} EMIT CHANGES; CREATE VIEW lower AS SELECT * FROM low WHERE n < 9;",
            "SELECT x.k, count(*) AS n FROM (SELECT k FROM lower) AS x GROUP BY x.k",
        ),
    ],
)
def test_counting_is_exact_over_what_only_filters_and_projects(home: Harness, made: str, query: str) -> None:
    home.sql(f"CREATE STREAM s (k STRING, n INT); {made} CREATE VIEW v AS {query} TRIGGER COUNTING 3")
    home.insert("s", [("a", 0), *[("a", 1)] * 5, ("b", 1)])
    assert home.table("v") == [("a", 3)]
    home.insert("s", [("a", 1), ("a", 0), ("a", 1)])
    assert home.table("v") == [("a", 6)]
    home.sql(f"CREATE VIEW behind AS {query} TRIGGER COUNTING 3")
    assert home.table("behind") == [("a", 6)]


def test_a_view_whose_rows_are_counted_stays_as_it_is(home: Harness) -> None:
    home.sql(f"CREATE STREAM s (k STRING, n INT); {LOW}")
    home.sql("CREATE VIEW v AS SELECT k, count(*) AS n FROM low GROUP BY k TRIGGER COUNTING 3")
    with pytest.raises(AnabranchError, match="v counts them one by one"):
        home.sql("ALTER VIEW low AS SELECT k, n FROM s WHERE n > 1")
    with pytest.raises(AnabranchError, match="read by v"):
        home.sql("DROP VIEW low")
    assert "view low is part of it" in str(home.query("EXPLAIN v"))
    home.sql("DROP VIEW low CASCADE")
    with pytest.raises(AnabranchError):
        home.table("v")


def test_a_view_that_shows_less_than_its_stream_is_counted_run_by_run(home: Harness) -> None:
    home.sql(f"CREATE STREAM s (k STRING, n INT); {LOW} START AT NOW")
    home.insert("s", [("a", 1)])
    for name, below in (("one", "low"), ("two", "(SELECT k FROM s UNION ALL SELECT k FROM low)")):
        query = f"SELECT k, count(*) AS n FROM {below} GROUP BY k TRIGGER COUNTING 3"
        assert "run by run" in str(home.query(f"EXPLAIN {query}"))
        home.sql(f"CREATE VIEW {name} AS {query}")
    home.insert("s", [("a", 1)] * 3)
    assert (home.table("one"), home.table("two")) == ([("a", 4)], [("a", 8)])


def test_answers_that_wait_are_counted_as_they_are_shown(home: Harness) -> None:
    home.sql(
        "CREATE STREAM s (k STRING); CREATE VIEW twos AS SELECT k, count(*) AS n FROM s GROUP BY k TRIGGER COUNTING 2"
    )
    query = "SELECT n, count(*) AS keys FROM twos GROUP BY n TRIGGER COUNTING 2"
    assert "run by run (twos shows its answers when they are ready" in str(home.query(f"EXPLAIN {query}"))
    home.sql(f"CREATE VIEW v AS {query}")
    home.insert("s", [("a",), ("b",), ("a",), ("b",)])
    assert home.table("v") == [(2, 2)]


# ---- AFTER DELAY, and all of them together


def at(second: int) -> str:
    return f"TIMESTAMP '2026-01-01 00:{second // 60:02}:{second % 60:02}'"


def test_a_delay_starts_anew_with_each_row(home: Harness) -> None:
    home.sql(f"CREATE STREAM s (k STRING); CREATE VIEW v AS {COUNTS} TRIGGER AFTER DELAY INTERVAL 10 SECONDS")
    arrivals = {0: "a", 3: "b", 4: "a", 20: "a"}
    fired = {}
    known = 0
    for second in (0, 3, 4, 12, 13, 14, 20, 29, 30, 31):
        home.sql(f"SET CLOCK {at(second)}")
        if second in arrivals:
            insert(home, arrivals[second])
        home.table("v")
        new = shown(home.changes("v"))[known:]
        if new:
            fired[second] = new[0]
            known += 1
    assert fired == {13: "+(b,1)", 14: "+(a,2)", 30: "-(a,2) +(a,3)"}


def test_one_trigger_resets_the_others_and_pending_keys_survive(home: Harness) -> None:
    home.sql(
        f"CREATE STREAM s (k STRING); CREATE VIEW v AS {COUNTS} TRIGGER COUNTING 3, AFTER DELAY INTERVAL 10 SECONDS"
    )
    for second in (0, 1, 2, 3):
        home.sql(f"SET CLOCK {at(second)}")
        insert(home, "a")
    home.compact()
    home.reopen()
    for second in (12, 13):
        home.sql(f"SET CLOCK {at(second)}")
        home.table("v")
    assert shown(home.changes("v")) == ["+(a,3)", "-(a,3) +(a,4)"]
    home.sql(f"SET CLOCK {at(60)}")
    assert home.table("v") == [("a", 4)]


def test_a_query_without_a_key_is_computed_only_when_it_fires(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be computed as a whole after every run waits for its trigger; a read can still ask for the rest."""
    query = "SELECT k, n FROM s ORDER BY n DESC LIMIT 2"
    home.sql(f"CREATE STREAM s (k STRING, n INT); CREATE VIEW v AS {query} TRIGGER COUNTING 4, ON END OF STREAM")
    computed = []
    fresh = keyed.fresh_rows
    monkeypatch.setattr(keyed, "fresh_rows", lambda *given: computed.append(1) or fresh(*given))
    for number in range(5):
        home.insert("s", [("a", number), ("b", number)])
    assert len(computed) == 2
    assert home.table("v") == [("a", 3), ("b", 3)]
    provisional = home.query("SELECT k, n, _final FROM v INCLUDING PROVISIONAL")
    assert sorted(provisional) == [("a", 4, False), ("b", 4, False)]
    home.advance("s")
    assert len(computed) == 3
    assert home.table("v") == home.emitted("v") == [("a", 4), ("b", 4)]
    told = [line for (line,) in home.query("EXPLAIN v")]
    assert "  when it fires, and only then, its whole answer is computed anew and compared with the last" in told


# ---- ON WATERMARK

GOALS = (
    "CREATE STREAM s (team STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
    "CREATE VIEW v AS SELECT window_end, team, count(*) AS goals FROM TUMBLE(s, ts, INTERVAL 1 MINUTE)"
    " GROUP BY window_end, team"
)
EVENTS = [
    (10, "A"), (20, "B"), (15, "A"), (58, "B"), (62, "A"), (59, "A"), (66, "B"), (50, "B"), (90, "A"), (30, "C"),
    (130, "B"),
]  # fmt: skip


def moment(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, second // 60, second % 60)


def play(home: Harness, clause: str, cuts: tuple[int, ...]) -> list[str]:
    home.sql(f"{GOALS} {clause}")
    for start, end in zip((0, *cuts), (*cuts, len(EVENTS)), strict=True):
        home.insert("s", [(team, moment(second)) for second, team in EVENTS[start:end]])
    home.advance("s")
    return [line.replace("2026-01-01 00:", "").replace(":00,", ",") for line in shown(home.changes("v"))]


@pytest.mark.parametrize(
    "clause",
    ["TRIGGER ON WATERMARK", pytest.param("TRIGGER ON WATERMARK, ON END OF STREAM", marks=pytest.mark.slow)],
)
def test_goals_per_minute_row_by_row(home: Harness, clause: str) -> None:
    assert play(home, clause, tuple(range(1, 11))) == [
        "+(01,A,3) +(01,B,2)",
        "-(01,B,2) +(01,B,3)",
        "+(01,C,1)",
        "+(02,A,2) +(02,B,1)",
        "+(03,B,1)",
    ]


def test_goals_per_minute_in_runs(home: Harness) -> None:
    assert play(home, "TRIGGER ON WATERMARK", (4, 7, 9)) == [
        "+(01,A,3) +(01,B,2)",
        "-(01,B,2) +(01,B,3)",
        "+(01,C,1) +(02,A,2) +(02,B,1)",
        "+(03,B,1)",
    ]


@pytest.mark.parametrize("more", ["", " HAVING count(*) > 0"])
def test_late_rows_that_are_left_out_are_counted(home: Harness, more: str) -> None:
    expected = ["+(01,A,3) +(01,B,2)", "+(02,A,2) +(02,B,1)", "+(03,B,1)"]
    assert play(home, f"{more} EMIT ON WINDOW CLOSE LATE DROP", tuple(range(1, 11))) == expected
    counted = home.query("SELECT view, window_end, rows, policy FROM sys.late_rows ORDER BY version")
    assert counted == [("v", moment(60), 1, "drop")] * 2
    assert home.table("v") == home.emitted("v")


def test_late_rows_are_listed_where_they_can_be_read_again(home: Harness, tmp_path: Path) -> None:
    """From what a stream keeps, or from its source; of a stream that keeps nothing there are counts only."""
    (tmp_path / "in").mkdir()
    home.sql(
        "CREATE STREAM kept (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts);"
        "CREATE STREAM gone (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) KEEP NOTHING;"
        f"CREATE STREAM files (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM csv(path => '{tmp_path}/in/*.csv')"
    )
    for stream in ("kept", "gone", "files"):
        home.sql(
            f"CREATE VIEW v_{stream} AS SELECT window_end, k, count(*) AS n"
            f" FROM TUMBLE({stream}, ts, INTERVAL 10 SECONDS) GROUP BY window_end, k EMIT ON WINDOW CLOSE"
        )
    runs = [[("a", 1), ("a", 25)], [("b", 2), ("a", 26), ("c", 12), ("d", 13)], [("e", 3)]]
    for number, run in enumerate(runs):
        rows = [(k, moment(second)) for k, second in run]
        home.insert("kept", rows)
        home.insert("gone", rows)
        (tmp_path / "in" / f"{number}.csv").write_text("".join(f"{k},{ts}\n" for k, ts in rows))
        home.query("SELECT * FROM v_files")
    home.compact()

    def listed(view: str) -> list[tuple[object, ...]]:
        columns = "window_end, rows, transform(listed, r -> get_json_object(r, '$.k'))"
        return home.query(f"SELECT {columns} FROM sys.late_rows WHERE view = '{view}' ORDER BY version, window_end")

    wanted = [(moment(10), 1, ["b"]), (moment(20), 2, ["c", "d"]), (moment(10), 1, ["e"])]
    assert listed("v_kept") == wanted
    assert listed("v_files") == wanted
    assert listed("v_gone") == [(end, rows, None) for end, rows, _ in wanted]


def test_no_more_late_rows_of_a_run_are_listed_than_somebody_would_read(
    home: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "LISTED", 3)
    home.sql(GOALS + " EMIT ON WINDOW CLOSE")
    home.insert("s", [("A", moment(1)), ("A", moment(90))])
    home.insert("s", [("B", moment(second)) for second in range(10)])
    assert home.query("SELECT rows, size(listed) FROM sys.late_rows") == [(10, 3)]


@pytest.mark.parametrize("more", ["", " HAVING count(*) > 0"])
def test_late_rows_that_are_archived_are_read_but_not_emitted(home: Harness, more: str) -> None:
    changes = play(home, f"{more} EMIT ON WINDOW CLOSE LATE ARCHIVE", tuple(range(1, 11)))
    assert changes == ["+(01,A,3) +(01,B,2)", "+(02,A,2) +(02,B,1)", "+(03,B,1)"]
    rows = [(row[0].minute, *row[1:]) for row in home.table("v")]
    assert rows == [(1, "A", 3), (1, "B", 3), (1, "C", 1), (2, "A", 2), (2, "B", 1), (3, "B", 1)]


@pytest.mark.parametrize("more", ["", " HAVING count(*) > 0"])
def test_a_view_can_refuse_late_rows(home: Harness, more: str) -> None:
    with pytest.raises(AnabranchError, match="late row"):
        play(home, f"{more} EMIT ON WINDOW CLOSE LATE FAIL", tuple(range(1, 11)))
    assert sum(run["rows"] for run in home.runs("s")) == 7  # nothing of the run is kept


def test_a_clause_inside_a_query(home: Harness) -> None:
    """OctoSQL's own example: what stands above reads what has fired."""
    home.sql(
        "CREATE STREAM s (team STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
        "CREATE VIEW v AS WITH counts_per_team AS (SELECT e.window_end, e.team, COUNT(*) AS goals"
        " FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE) e GROUP BY e.window_end, e.team TRIGGER ON WATERMARK)"
        " SELECT * FROM counts_per_team cpt ORDER BY cpt.window_end ASC, cpt.goals DESC"
    )
    home.insert("s", [(team, moment(second)) for second, team in EVENTS])
    minutes = [(row[0].minute, *row[1:]) for row in home.query("SELECT * FROM v")]
    assert [row[::2] for row in minutes] == [(1, 3), (1, 3), (1, 1), (2, 2), (2, 1)]
    assert sorted(minutes) == [(1, "A", 3), (1, "B", 3), (1, "C", 1), (2, "A", 2), (2, "B", 1)]


def test_progress_waits_for_rows_that_are_still_to_be_shown(home: Harness) -> None:
    """A view above one with a delay closes a window only when that one has shown it; so nothing is late there."""
    home.sql(
        f"SET CLOCK {at(0)};"
        "CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
        "CREATE VIEW quiet AS SELECT window_end, k, count(*) AS n FROM TUMBLE(s, ts, INTERVAL 10 SECONDS)"
        " GROUP BY window_end, k TRIGGER AFTER DELAY INTERVAL 1 MINUTE;"
        "CREATE VIEW total AS SELECT window_end, sum(n) AS n FROM quiet GROUP BY window_end"
        " EMIT ON WINDOW CLOSE LATE DROP"
    )
    home.insert("s", [("a", moment(1)), ("b", moment(2))])
    home.insert("s", [("a", moment(40))])  # progress is far behind the first window
    assert home.table("total") == []
    home.sql(f"SET CLOCK {at(60)}")
    assert home.table("quiet") == [(moment(10), "a", 1), (moment(10), "b", 1), (moment(50), "a", 1)]
    assert home.table("total") == [(moment(10), 2)]
    assert home.query("SELECT * FROM sys.late_rows") == []


# ---- finite queries

CATS = [
    ("Buster", "fluffy"), ("Tiger", "work of art"), ("Lucy", "fat"), ("Pepper", "work of art"), ("Tiger", "amazing"),
    ("Molly", "the best"), ("Precious", "lovely"), ("Nala", "cute"), ("Misty", "amazing"), ("Tiger", "cute"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("n", "last"),
    [
        (1, {"fat": 1, "fluffy": 1, "lovely": 1, "the best": 1, "amazing": 2, "cute": 2, "work of art": 2}),
        (2, {"amazing": 2, "cute": 2, "work of art": 2}),
        (3, {}),
    ],
)
def test_cats_by_description(home: Harness, n: int, last: dict[str, int]) -> None:
    home.sql("CREATE STREAM cats (name STRING, description STRING)")
    query = f"SELECT c.description, COUNT(*) AS n FROM cats c GROUP BY c.description TRIGGER COUNTING {n}"
    home.sql(f"CREATE VIEW v AS {query}")
    made = home.session.version
    for cat in CATS:
        home.insert("cats", [cat])
    expected = sorted(last.items())
    assert home.table("v") == expected
    assert sorted(home.query(query)) == expected  # a finite query shows what has fired
    if n == 1:
        assert sum(batch.changes.num_rows for batch in home.session.subscribe("v", made)) == 13


def test_times_of_changes_are_those_of_the_clock(home: Harness) -> None:
    home.sql(f"SET CLOCK {at(7)}; CREATE STREAM s (k STRING); CREATE VIEW v AS {COUNTS} EMIT STREAM")
    insert(home, "a")
    assert home.query("SELECT ptime FROM v") == [(datetime(2026, 1, 1, 0, 0, 7),)]
    home.sql("SET CLOCK SYSTEM")
    insert(home, "b")
    (last,) = home.query("SELECT max(ptime) FROM v")
    assert abs((datetime.now(timezone.utc).replace(tzinfo=None) - last[0]).total_seconds()) < 600
