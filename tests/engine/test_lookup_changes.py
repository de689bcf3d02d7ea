"""Joins with tables outside that are looked up by key: every row is looked up once, and keeps its matches."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError, NotSupported, SourceError, SqlError
from anabranch.testing import Harness, Row, assert_same_rows, crashing, shuffled
from engine.outside_help import fake

pytestmark = pytest.mark.spark


@pytest.fixture
def home(spark: SparkSession) -> Iterator[Harness]:
    with Harness(spark=spark) as harness:
        yield harness


# ---- the law, for a table that does not change

CUSTOMERS: list[Row] = [
    (1, "ann", "eu", 1), (2, "bob", "us", 5), (3, "o'hara", "eu", 9), (4, None, None, 2), (5, "eve", "eu", None),
]  # fmt: skip
TAGS: list[Row] = [(1, "x"), (1, "y"), (2, "x"), (2, "x"), (None, "z"), (7, "w")]
#: Queries over {o}, {c} and {t}: a stream, and two tables that are asked.
QUERIES = {
    "stars": "SELECT o.*, c.* FROM {o} o JOIN {c} c ON c.cid = o.customer",
    "lefts": "SELECT o.id, c.name, c.since FROM {o} o LEFT OUTER JOIN {c} AS c ON o.customer = c.cid AND since < o.n",
    "both": "SELECT o.id, c.name, t.tag FROM {o} o, {c} c LEFT JOIN {t} t ON t.cid = o.customer AND t.tag < c.name"
    " WHERE c.cid = o.customer AND o.n > 3",
    "shared": "SELECT * FROM (SELECT id, customer AS cid FROM {o}) LEFT JOIN {t} USING (cid)",
    "merged": "SELECT t.*, to_json(struct(*)) AS j FROM (SELECT id, customer AS cid, 'x' AS tag FROM {o}) s"
    " JOIN {t} t USING (cid, tag)",
    "sums": "SELECT c.region, count(*) AS c, sum(o.n) AS n FROM {o} o LEFT JOIN {c} c ON c.cid = o.customer"
    " GROUP BY c.region",
    "pairs": "SELECT a.id, b.id AS other, c.name FROM {o} a JOIN {o} b ON a.customer = b.customer AND a.id < b.id"
    " JOIN {c} c ON c.cid = b.customer",
    "deep": "WITH e AS (SELECT o.id, c.since FROM {o} o JOIN {c} c ON c.cid = o.customer)"
    " SELECT e.id, t.tag FROM e JOIN {t} t ON t.cid = e.since",
    "bands": "SELECT o.id, o.n, c.name, t.tag FROM {o} o JOIN {c} c ON c.since <= o.n AND c.cid > o.customer"
    " LEFT JOIN {t} t ON o.n BETWEEN t.cid AND t.cid + 2",
    "some": "SELECT * FROM {o} o LEFT SEMI JOIN {t} t ON t.cid = o.customer AND tag < 'y'",
    "none": "SELECT o.id, c.name FROM {o} o ANTI JOIN {t} t ON o.customer = t.cid AND t.tag > 'w' LEFT JOIN {c} c"
    " ON c.cid = o.customer",
    "exist": "SELECT id, n FROM {o} WHERE n > 2 AND EXISTS (SELECT 1 FROM {c} WHERE cid = customer AND since < n)",
    "counted": "SELECT n, count(*) AS c FROM {o} o WHERE CAST(customer AS BIGINT) IN (SELECT cid FROM {c} WHERE"
    " region = 'eu') AND NOT EXISTS (SELECT 1 FROM {t} t WHERE t.cid = o.customer AND t.tag = 'x') GROUP BY n",
    "left_over": "SELECT * FROM (SELECT id, customer AS cid FROM {o}) LEFT ANTI JOIN {t} USING (cid)",
    "ranks": "SELECT o.id, t.tag, row_number() OVER (PARTITION BY o.customer ORDER BY o.n) AS r FROM {o} o"
    " JOIN {t} t ON t.cid = o.customer",
}


@pytest.mark.parametrize("seed", [1])
def test_any_cut_gives_the_same_answer_for_a_table_that_does_not_change(home: Harness, seed: int) -> None:
    chance = random.Random(seed)
    fake("customers", [("cid", "bigint"), ("name", "string"), ("region", "string"), ("since", "int")], CUSTOMERS)
    fake("tags", [("cid", "bigint"), ("tag", "string")], TAGS)
    home.sql("CREATE STREAM one (id INT, customer INT, n INT); CREATE STREAM two (id INT, customer INT, n INT)")
    for name in ("customers", "tags"):
        home.sql(f"CREATE TABLE {name} FROM fake(name => '{name}', lookup => 'always', batch => 2)")
        home.sql(f"CREATE TABLE {name}_loaded FROM fake(name => '{name}', lookup => 'never')")
    customers = [None, 1, 2, 2, 3, 4, 5, 6, 7]
    rows = [(id % 12, chance.choice(customers), chance.randrange(10)) for id in range(16)]
    first = rows[:4]
    told: dict[str, list[str]] = {"one": list(QUERIES), "two": ["ranks"]}
    for stream, names in told.items():
        home.insert(stream, first)  # what is there before a view is made is asked for when it is
        for name in names:
            query = QUERIES[name].format(o=stream, c="customers", t="tags")
            home.sql(f"CREATE VIEW {stream}_{name} AS {query}")
        rest, cut = shuffled(rows[len(first) :], chance), chance.randint(1, 6)
        home.insert_runs(stream, [rest[:cut], rest[cut : cut + 3], rest[cut + 3 :]] if stream == "one" else [rest])
    home.compact()
    one = home.query(_all({name: f"SELECT * FROM one_{name}" for name in QUERIES}))
    two = home.query(_all({name: f"SELECT * FROM two_{name}" for name in told["two"]}))
    batch = {name: query.format(o="one", c="customers_loaded", t="tags_loaded") for name, query in QUERIES.items()}
    # Which of equal rows comes first is the view's to say, and the same for any cut.
    assert_same_rows([row for row in one if row[0] in told["two"]], two)
    assert_same_rows([row for row in one if row[0] != "ranks"], home.batch(_all(batch, but="ranks"), one=rows))


TARIFFS = [  # low, high, since, till, pattern
    ("1.50", "9.00", "2026-01-01 00:00:00", "2026-01-02", "a%"),
    ("2.345", "3.10", "2026-01-01T12:00:00+02:00", None, "_"),
    (None, "100", 1767225600, "2026-01-01", "%\\_x"), ("-4", 7, "2025-12-31 23:59:59.999999", "2025-12-31", None),
]  # fmt: skip
#: Queries over {s} and {t}: a stream and a table that has nothing equal.
COMPARING = {
    "within": "SELECT s.id, t.high FROM {s} s LEFT JOIN {t} t ON t.low <= s.amount AND s.amount < t.high",
    "while": "SELECT s.id, t.since, t.till FROM {s} s, {t} t WHERE s.ts - INTERVAL 1 HOUR >= t.since"
    " AND t.till >= CAST(s.ts AS DATE) AND s.id <> 7",
    "named": "SELECT s.id, t.pattern FROM {s} s LEFT JOIN {t} t ON s.name LIKE t.pattern AND t.high > 8",
    "exactly": "SELECT s.id, t.low FROM {s} s JOIN {t} t (high, low, c, d, e) ON t.low = s.amount",
    "missing": "SELECT a.id, t.till FROM {s} a LEFT JOIN {s} b ON b.id = a.id + 1 LEFT JOIN {t} t ON t.high > b.amount",
    "days": "SELECT s.id, t.low FROM {s} s JOIN {t} t ON t.till = CAST(s.ts AS DATE)",
}


@pytest.mark.slow
def test_comparisons_alone_find_what_the_batch_query_finds(home: Harness, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "tariffs.db") as outside:
        outside.execute("CREATE TABLE t (low DECIMAL(9,2), high DECIMAL(9,2), since DATETIME, till DATE, pattern TEXT)")
        outside.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", TARIFFS)
    source = f"sqlite(path => '{tmp_path}/tariffs.db', table => 't', lookup => '{{}}', batch => 2)"
    home.sql("CREATE STREAM s (id INT, amount DECIMAL(10,3), ts TIMESTAMP, name STRING)")
    home.sql(f"CREATE TABLE asked FROM {source.format('always')}; CREATE TABLE loaded FROM {source.format('never')}")
    rows: list[Row] = [
        (1, "1.500", "2026-01-01 01:00:00", "a_x"), (2, "2.340", "2026-01-01 11:00:00", "A"),
        (3, "9.000", "2026-01-02 00:59:59", "b"), (4, None, None, None), (5, "-4.001", "2025-12-31 12:00:00", "%"),
        (6, "7", "2026-01-01 11:00:00", "a"), (7, "2.345", "2026-01-01 01:00:00", "ab_x"), (8, "3.10", None, "_x"),
    ]  # fmt: skip
    home.insert("s", rows[:3])
    for name, query in COMPARING.items():
        home.sql(f"CREATE VIEW {name} AS {query.format(s='s', t='asked')}")
    home.insert("s", rows[3:])
    batch = {name: query.format(s="s", t="loaded") for name, query in COMPARING.items()}
    views = home.query(_all({name: f"SELECT * FROM {name}" for name in COMPARING}))
    assert_same_rows(views, home.batch(_all(batch), s=rows))
    home.sql("INSERT INTO s VALUES (9, 2, TIMESTAMP '+12000-01-01 00:00:00', 'z')")  # not in Python's calendar
    views = home.query(_all({name: f"SELECT * FROM {name}" for name in ("while", "days")}))
    assert_same_rows(views, home.query(_all({name: batch[name] for name in ("while", "days")})))
    told = "\n".join(row[0] for row in home.query(f"EXPLAIN {COMPARING['while'].format(s='s', t='asked')}"))
    how = "since <= s.ts - INTERVAL 1 HOUR and till >= CAST(s.ts AS DATE)"
    assert f"lookup asked by ({how}), batches of 2, at most 4 at once, no cache" in told
    told = "\n".join(row[0] for row in home.query(f"EXPLAIN {COMPARING['named'].format(s='s', t='asked')}"))
    assert "lookup asked by (s.name LIKE pattern and high > 8)" in told


def _all(queries: dict[str, str], but: str = "") -> str:
    """The answers of several queries as texts, by one query."""
    return " UNION ALL ".join(
        f"SELECT '{name}' AS name, to_json(struct(*)) AS row FROM ({query}) AS answer"
        for name, query in queries.items()
        if name != but
    )


# ---- a table that changes

LIVE = """
CREATE STREAM given (id INT, seq INT, v INT);
CREATE VIEW live AS SELECT 1 AS one, v FROM
  (SELECT id, v, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS place FROM given)
  WHERE place = 1 AND v IS NOT NULL;
CREATE TABLE t FROM fake(name => 't', lookup => 'always');
CREATE VIEW less AS SELECT l.v, t.y FROM live l JOIN t ON t.one = l.one AND l.v > t.y;
CREATE VIEW compared AS SELECT l.v, t.y FROM live l JOIN t ON l.v > t.y;
CREATE VIEW counts AS SELECT y, count(*) AS c FROM live l LEFT JOIN t ON t.one = l.one AND t.y > 0 GROUP BY y;
"""


def test_a_row_that_is_taken_back_takes_back_what_was_found_for_it(home: Harness) -> None:
    """First the vector of the OctoSQL thesis: t = {1, 5}, s.v > t.y; 2 comes into t before 3 is taken back."""
    table = fake("t", [("one", "int"), ("y", "int")], [(1, 1), (1, 5)])
    home.sql(LIVE)
    expected: list[tuple[int, Counter[Row]]] = []  # after a version, what is shown

    def insert(*rows: Row, shows: list[Row]) -> None:
        home.insert("given", rows)
        expected.append((home.session.version, Counter(shows)))

    insert((1, 1, 3), shows=[(3, 1)])
    table.rows = [(1, 1), (1, 5), (1, 2)]
    insert((1, 2, None), shows=[])

    # Of equal rows that found different things, the one that was asked for last goes first.
    stack: list[Row] = []
    for id, ys in ((2, [1]), (3, [1, 2]), (4, []), (5, [2, 2])):
        table.rows = [(1, y) for y in ys]
        stack += [(3, y) for y in ys]
        insert((id, 1, 3), shows=stack)
    asked = len(table.asked)
    table.rows = [(1, -7)]
    home.reopen()
    for id, left in ((2, stack[:3]), (5, stack[:3]), (4, stack[:1])):
        insert((id, 2, None), shows=left)
    insert((6, 1, 3), (3, 2, None), shows=stack[:1])  # one comes and one goes: the same rows as before
    assert len(table.asked) == asked, "a row that goes asks nothing, and neither does one in place of its equal"

    changes = home.changes("less")
    for version, shown in expected:
        found: Counter[Row] = Counter()
        for change in changes:
            if change.version <= version:
                found[change.row] += change.diff
        assert {row: count for row, count in found.items() if count} == shown
    assert home.table("less") == home.table("compared") == [(3, 1)] and home.table("counts") == [(1, 1)]


def test_random_histories_keep_to_what_was_found(home: Harness) -> None:
    """Against a model: a stack for each row, of what was found when it came."""
    chance = random.Random(5)
    table = fake("t", [("one", "int"), ("y", "int")], [])
    home.sql(LIVE)
    ids: dict[int, int] = {}
    seq = made = 0
    stacks: dict[int, list[list[int]]] = {}
    for _ in range(7):
        table.rows = [(1, chance.randrange(4)) for _ in range(chance.randrange(4))]
        ys = [y for _, y in table.rows]
        before, rows = Counter(ids.values()), []
        for _ in range(chance.randint(1, 5)):
            seq += 1
            if ids and chance.random() < 0.45:
                id = chance.choice(list(ids))
                del ids[id]
                rows.append((id, seq, None))
            else:
                made += 1
                ids[made] = chance.randint(1, 3)
                rows.append((made, seq, ids[made]))
        home.insert("given", rows)
        now = Counter(ids.values())
        for x in {*before, *now}:
            stack = stacks.setdefault(x, [])
            stack += [ys] * max(0, now[x] - before[x])
            del stack[len(stack) - max(0, before[x] - now[x]) :]
    expected = [(x, y) for x, stack in stacks.items() for found in stack for y in found if x > y]
    assert_same_rows(home.table("less"), expected)
    assert_same_rows(home.table("compared"), expected)
    rows = [y for stack in stacks.values() for found in stack for y in ([z for z in found if z > 0] or [None])]
    assert_same_rows(home.table("counts"), list(Counter(rows).items()))


def test_a_table_that_is_down_fails_the_run_and_the_next_one_asks_again(home: Harness) -> None:
    table = fake("t", [("one", "int"), ("y", "int")], [(1, 1)])
    home.sql("CREATE STREAM s (x INT); CREATE TABLE t FROM fake(name => 't', retries => 0)")
    home.sql("CREATE VIEW v AS SELECT s.x, t.y FROM s LEFT JOIN t ON t.one = s.x")
    table.failures, version = 1, home.session.version
    with pytest.raises(SourceError, match="table t did not answer"):
        home.insert("s", [(1,), (2,)])
    assert home.session.version == version and home.table("s") == []
    home.insert("s", [(1,), (2,)])
    assert home.table("v") == [(1, 1), (2, None)]
    assert table.keys.count((1,)) == 2
    assert home.query("SELECT * FROM sys.lookups") == [("t", 2, 2, 1, 0, 0)]
    table.failures, version = 1, home.session.version
    with pytest.raises(SourceError, match="did not answer"):
        home.sql("CREATE VIEW w AS SELECT s.x, t.y FROM s JOIN t ON t.one = s.x")
    assert home.session.version == version


# ---- SQLite, and a crash


def database(path: Path, rows: list[tuple[Any, ...]]) -> None:
    with sqlite3.connect(path) as outside:
        outside.execute("CREATE TABLE IF NOT EXISTS `the people` (`who is it` TEXT, `to` INTEGER)")
        outside.execute("DELETE FROM `the people`")
        outside.executemany("INSERT INTO `the people` VALUES (?, ?)", rows)


def take_in(home: str) -> None:
    """Take in what the stream has, in a process that is going to die."""
    with Harness(home) as harness:
        harness.query("SELECT count(*) FROM found")


def test_a_run_that_was_not_committed_asks_again_and_one_that_was_never_does(
    tmp_path: Path, spark: SparkSession
) -> None:
    base, files = tmp_path / "people.db", tmp_path / "in"
    files.mkdir()
    database(base, [("a'; --", 1), ("b", 2)])
    (files / "1.json").write_text('{"who": "a\'; --"}\n{"who": "b"}\n{"who": null}\n')
    with Harness(tmp_path / "home", spark=spark) as home:
        home.sql(
            f"CREATE STREAM s (who STRING) FROM files(path => '{files}', format => 'json');"
            f"CREATE TABLE p FROM sqlite(path => '{base}', table => 'the people', lookup => 'always');"
            "CREATE VIEW found AS SELECT s.who, p.`to` FROM s LEFT JOIN p ON p.`who is it` = s.who"
        )
    assert crashing("after-changes", take_in, str(tmp_path / "home"))
    database(base, [("a'; --", 3), ("a'; --", 4)])
    with Harness(tmp_path / "home", spark=spark) as home:
        expected = [(None, None), ("a'; --", 3), ("a'; --", 4), ("b", None)]
        assert home.table("found") == expected
        assert home.query("SELECT requests, keys, rows FROM sys.lookups") == [(1, 2, 2)]
        database(base, [("b", 5)])
        home.reopen()
        home.compact()
        assert home.table("found") == expected
        assert home.query("SELECT requests FROM sys.lookups") == [(0,)]


# ---- what is said


def test_it_is_told_how_a_table_is_asked_and_why(home: Harness) -> None:
    fields = [("id", "bigint"), ("name", "string"), ("x", "double")]
    for name, size in (("small", 1_000_000), ("large", 1_000_001), ("unknown", None)):
        fake(name, fields, [(1, "a", 0.5)], size)
        home.sql(f"CREATE TABLE {name} FROM fake(name => '{name}', cache => '10 minutes')")
    fake("forced", fields, [], 1)
    home.sql("CREATE TABLE forced FROM fake(name => 'forced', lookup => 'always', batch => 9, requests => 2)")
    home.sql("CREATE STREAM s (id INT, name STRING, x DOUBLE)")
    told = []
    for name in ("small", "large", "unknown", "forced"):
        query = f"SELECT s.id, t.name FROM s JOIN {name} t ON t.id = s.id AND t.name = s.name"
        told.append("\n".join(row[0] for row in home.query(f"EXPLAIN {query}")))
    assert "static: read when the view is made" in told[0] and "lookup" not in told[0]
    assert "looked up by key, because it has about 1,000,001 rows, more than 1,000,000" in told[1]
    assert "lookup large by (id, name), batches of 500, at most 4 at once, cache 10 minutes" in told[1]
    assert "because its number of rows is not known" in told[2]
    assert "because it says lookup => 'always'" in told[3]
    assert "lookup forced by (id, name), batches of 9, at most 2 at once, no cache" in told[3]

    hinted = "SELECT /*+ LOOKUP(t), BROADCAST(s) */ s.id, t.name FROM s JOIN small t ON t.id = s.id"
    (line,) = [row[0] for row in home.query(f"EXPLAIN {hinted}") if "looked up by key" in row[0]]
    assert "looked up by key (hint)" in line
    home.sql(f"CREATE VIEW by_hint AS {hinted}; CREATE VIEW by_load AS {hinted.replace('LOOKUP(t), ', '')}")
    home.insert("s", [(1, "a", 0.5), (2, "b", 1.5)])
    assert home.table("by_hint") == home.table("by_load") == [(1, "a")]
    assert ("small", 1, 2) in home.query("SELECT `table`, requests, keys FROM sys.lookups")

    refused: list[tuple[str, str, str]] = [
        (
            "SELECT /*+ LOOKUP(u) */ s.id FROM s JOIN small t ON t.id = s.id",
            "no relation of this SELECT is called",
            "u",
        ),
        (
            "SELECT /*+ LOOKUP(s) */ s.id FROM s JOIN small t ON t.id = s.id",
            "no table that can be looked up by key",
            "s",
        ),
        ("SELECT /*+ NO_LOOKUP(t) */ s.id FROM s JOIN large t ON t.id = s.id", "was never loaded", "t"),
        ("SELECT s.id FROM s JOIN forced t ON t.id + 1 > s.id", "contains a key", "forced t ON t.id + 1 > s.id"),
        ("SELECT s.id FROM s JOIN forced t ON t.id > s.x", "is a BIGINT, and this is a DOUBLE", "s.x"),
        (
            "SELECT s.id FROM s LEFT JOIN s b ON b.id = s.id + 1 JOIN forced t ON t.id = coalesce(b.id, 0)",
            "no condition of this join contains a key",
            "forced t ON t.id = coalesce(b.id, 0)",
        ),
        ("SELECT s.id FROM s JOIN forced t ON t.name > s.id", "is a STRING, and this is a INT", "s.id"),
        ("SELECT s.id FROM forced t JOIN s ON t.id = s.id", "for the rows of a stream", "forced"),
        ("SELECT s.id FROM s RIGHT JOIN forced t ON t.id = s.id", "for the rows of a stream", "forced"),
        ("SELECT s.id FROM s JOIN forced t ON t.id = s.name", "is a BIGINT, and this is a STRING", "s.name"),
        ("SELECT s.id FROM s JOIN forced REFRESHABLE ON forced.id = s.id", "nothing is refreshed", "REFRESHABLE"),
        ("SELECT id FROM s WHERE id IN (SELECT max(id) FROM forced)", "can only be joined", "forced"),
        ("SELECT id FROM s WHERE x = 1 OR EXISTS (SELECT 1 FROM forced t WHERE t.id = s.id)", "can only be", "forced"),
    ]
    for query, message, place in refused:
        with pytest.raises(NotSupported) as caught:
            home.sql(f"CREATE VIEW v AS {query}")
        error = caught.value
        assert message in error.message, query
        assert error.text is not None and error.text[error.start : error.end] == place
    for text, message, place in (
        ("CREATE TABLE b (id INT, nmae INT) FROM sqlite(path => '{}', table => 'm')", "no column nmae", "nmae INT"),
        ("CREATE TABLE b FROM sqlite(path => '{}', table => 'n')", "has no table n", "table => 'n'"),
        ("CREATE TABLE b FROM sqlite(path => '{}', table => 'm', batch => 0)", "batch must be", "batch => 0"),
        ("INSERT INTO forced VALUES (1, 'a', 2)", "can only be queried here", "forced"),
        ("REFRESH TABLE forced", "nothing to reload", "forced"),
    ):
        path = home.path / "m.db"
        with sqlite3.connect(path) as outside:
            outside.execute("CREATE TABLE IF NOT EXISTS m (id INTEGER, name TEXT)")
        with pytest.raises(SqlError) as wrong:
            home.sql(text.format(path))
        assert message in wrong.value.message
        assert wrong.value.text is not None and wrong.value.text[wrong.value.start : wrong.value.end] == place
    with pytest.raises(AnabranchError, match="forced is not loaded"):
        home.query("SELECT * FROM forced")


def test_a_table_of_a_database_is_read_straight_in_a_query(tmp_path: Path, home: Harness) -> None:
    base = tmp_path / "people.db"
    database(base, [("a", 1), ("b", 2)])
    outside = f"sqlite(path => '{base}', table => 'the people')"
    home.sql("CREATE STREAM s (who STRING); INSERT INTO s VALUES ('a'), ('a'), ('c')")
    assert home.query(
        f"SELECT s.who, count(p.`to`) FROM s LEFT JOIN {outside} p ON p.`who is it` = s.who GROUP BY 1"
    ) == [("a", 2), ("c", 0)]
    with pytest.raises(SqlError, match="the people") as caught:
        home.sql(f"SELECT * FROM {outside.replace('the people', 'the peopel')}")
    assert "sqlite(" in caught.value.text[caught.value.start : caught.value.end]
    with pytest.raises(SqlError, match="a view reads streams, views and tables"):
        home.sql(f"CREATE VIEW v AS SELECT * FROM {outside}")


def test_kinds_of_sources_are_listed(home: Harness) -> None:
    rows = {row[0]: row for row in home.query("SHOW SOURCES")}
    assert rows["rate"][1:3] == (True, False) and rows["sqlite"][1:3] == (False, True)
    assert rows["csv"][1:3] == (True, True) and "settle" in rows["csv"][3]
