"""A statement that was under way when the process was killed is done, or it is undone and reported: never half.

Statement i puts 2**i into the home, so one sum tells exactly which ones are in, and how often.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_help import Processes, check_changes, check_clean

pytestmark = [pytest.mark.crash, pytest.mark.spark]

MADE = [
    "CREATE STREAM s (ts TIMESTAMP, n BIGINT) WATERMARK FOR ts AS ts",
    "CREATE TABLE t (n BIGINT)",
    "CREATE VIEW total AS SELECT sum(n) AS n FROM s",
    "CREATE VIEW closed AS SELECT window_start, sum(n) AS n"
    " FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start EMIT ON WINDOW CLOSE",
]
SUMS = (
    "SELECT (SELECT coalesce(sum(n), 0) FROM s), (SELECT coalesce(n, 0) FROM total),"
    " (SELECT coalesce(sum(n), 0) FROM t)"
)
INSERT, COPY, TABLE = "insert", "copy", "table"
#: What is killed where, and whether it is done by then.
KILLS = [
    (INSERT, "during-replace", False),
    (INSERT, "after-intent", False),
    (INSERT, "before-job", False),
    (INSERT, "during-files", False),
    (INSERT, "between-files:2", False),
    (INSERT, "after-changes", False),
    (INSERT, "after-first-table-commit", False),
    (INSERT, "before-record", False),
    (INSERT, "during-record", False),
    (INSERT, "after-record", True),
    (INSERT, "after-run", True),
    (COPY, "between-files", False),
    (COPY, "after-next-table-commit", False),
    (COPY, "before-record", False),
    (COPY, "after-record", True),
    (TABLE, "after-intent", False),
    (TABLE, "before-record", False),
    (TABLE, "after-record", True),
]


def statement(kind: str, number: int, folder: Path) -> str:
    value = 2**number
    if kind == TABLE:
        return f"INSERT INTO t VALUES ({value})"
    if kind == INSERT:
        return f"INSERT INTO s VALUES (TIMESTAMP '2024-01-01 00:00:{number:02}', {value})"
    file = folder / f"{number}.csv"
    file.write_text(f"ts,n\n2024-01-01T00:00:{number:02}Z,{value}\n")
    return f"COPY s FROM '{file}' WITH (header => true)"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_statements_in_flight(tmp_path: Path, processes: Processes) -> None:
    home = tmp_path / "home"
    made = processes.run({"home": home, "statements": MADE})
    assert made.clean, made.explain()
    in_stream = in_table = 0
    reported: list[str] = []
    for number, (kind, place, done) in enumerate(KILLS):
        text = statement(kind, number, tmp_path)
        outcome = processes.run({"home": home, "before": [SUMS], "statements": [text]}, crash_at=place)
        assert outcome.killed, f"{kind} at {place}: {outcome.explain()}"
        # What is left of the one before.
        assert outcome.first("rolled_back") == reported, place
        assert outcome.first("rows") == [[in_stream, in_stream, in_table]], place
        # A statement that is killed while it is being noted has not begun.
        reported = [] if done or place == "during-replace" else [text]
        if done:
            in_stream += 2**number if kind != TABLE else 0
            in_table += 2**number if kind == TABLE else 0
    last = processes.run({"home": home, "before": [SUMS], "after": ["SELECT sum(n) FROM closed"]})
    assert last.clean, last.explain()
    assert last.first("rolled_back") == reported
    assert last.first("rows") == [[in_stream, in_stream, in_table]]
    check_clean(home)
    check_changes(home)


def test_a_script_that_is_run_again_inserts_once(tmp_path: Path, processes: Processes) -> None:
    """Killed before the insert's record it is made by the next run; killed after it, it is not made again."""
    home = tmp_path / "home"
    insert = "INSERT INTO s VALUES (1), (2)"
    script = f"CREATE STREAM s (n BIGINT); CREATE VIEW v AS SELECT count(*) AS c, sum(n) AS n FROM s; {insert};"
    order = {"home": home, "run": script}
    assert processes.run(order, crash_at="before-record:3").killed
    second = processes.run(order, crash_at="after-record")
    assert second.killed and second.first("rolled_back") == [insert]
    last = processes.run({**order, "after": ["SELECT c, n FROM v"]})
    assert last.clean, last.explain()
    assert last.first("rolled_back") == []
    assert last.first("rows") == [[2, 3]]


def test_a_query_that_was_being_followed_leaves_nothing(tmp_path: Path, processes: Processes) -> None:
    home, file = tmp_path / "home", tmp_path / "in.csv"
    file.write_text("n\n1\n2\n")
    made = f"CREATE STREAM s (n BIGINT) FROM files('{file}', format => 'csv', header => true)"
    query = "SELECT count(*) AS c FROM s"
    outcome = processes.run({"home": home, "statements": [made], "live": query}, crash_at="after-run")
    assert outcome.killed, outcome.explain()
    last = processes.run({"home": home, "after": [query, "SHOW VIEWS"]})
    assert last.clean, last.explain()
    assert [line["rows"] for line in last.lines if "after" in line] == [[[2]], []]
    check_clean(home)


@pytest.mark.slow
def test_a_refresh_settles_the_partials_of_a_join_whole_or_not_at_all(tmp_path: Path, processes: Processes) -> None:
    home = tmp_path / "home"
    read = "SELECT k, label, c FROM v ORDER BY k, label"
    made = processes.run({"home": home, "statements": [
        "CREATE STREAM s (k STRING) KEEP NOTHING", "CREATE TABLE t (k STRING, label STRING)",
        "INSERT INTO t VALUES ('a', 'x')",
        "CREATE VIEW v AS SELECT s.k, label, count(*) AS c FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k, label",
        "INSERT INTO s VALUES ('a'), ('b')", "UPDATE t SET label = 'y'",
    ]})  # fmt: skip
    assert made.clean, made.explain()
    met, refresh = [["a", "x", 1], ["b", None, 1]], ["REFRESH TABLE t"]
    for place in ("after-adopt", "after-first-table-commit", "before-record"):
        outcome = processes.run({"home": home, "before": [read], "statements": refresh}, crash_at=place)
        assert outcome.killed and outcome.first("rows") == met, f"{place}: {outcome.explain()}"
    insert = "INSERT INTO s VALUES ('a'), ('b')"
    once = processes.run({"home": home, "before": [read], "statements": [insert, *refresh]}, crash_at="after-record:2")
    assert once.killed and once.first("rows") == met, once.explain()
    last = processes.run({"home": home, "statements": [insert], "after": [read]})
    assert last.clean, last.explain()
    assert last.first("rows") == [["a", "x", 2], ["a", "y", 1], ["b", None, 3]]
    check_clean(home)
