"""`check`: what a script gets wrong, found without Spark; and nothing that would run is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.errors import NotSupported, SqlError, UnknownFunction, UnknownName, WrongType
from anabranch.sql import check, problems

OBJECTS = """\
CREATE STREAM bids (auction BIGINT, price DECIMAL(18,2), ts TIMESTAMP, s STRUCT<a: INT>, d DATE,
                    WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE TABLE hosts (id BIGINT, name STRING);
"""

GOOD = [
    "SELECT auction, count(*) FROM bids GROUP BY auction",
    "SELECT b.price * 2 AS p, p + 1, b.s.a, s.a FROM bids b WHERE b.auction = 1 ORDER BY p",
    "SELECT window_start, window_end, auction, sum(price) AS total"
    " FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
    " GROUP BY window_start, window_end, auction HAVING total > 1 ORDER BY total",
    "CREATE VIEW v AS SELECT auction, count(*) AS n FROM bids GROUP BY auction; SELECT n FROM v; SELECT v.n FROM v",
    "CREATE VIEW v AS SELECT auction, count(*) FROM bids GROUP BY auction; SELECT whatever FROM v",
    "CREATE VIEW v AS SELECT auction FROM bids; ALTER VIEW v AS SELECT price AS p FROM bids b; SELECT p FROM v",
    "CREATE VIEW v AS SELECT auction FROM bids; ALTER VIEW v AS SELECT price FROM bids DRY RUN; SELECT auction FROM v",
    "WITH c AS (SELECT auction AS a FROM bids) SELECT a FROM c",
    "WITH c(z) AS (SELECT auction AS a FROM bids) SELECT z FROM c",
    "SELECT transform(array(1), x -> x + auction) FROM bids",
    "SELECT (SELECT max(id) FROM hosts WHERE id = auction) FROM bids",
    "SELECT * FROM bids WHERE EXISTS (SELECT 1 FROM hosts h WHERE h.id = bids.auction)",
    "SELECT CAST(price AS DOUBLE), price::int, INTERVAL 1 DAY, DATE '2020-01-01',"
    " extract(YEAR FROM ts), date_add(DAY, 1, d) FROM bids",
    "SELECT name FROM bids JOIN hosts ON auction = id",
    "SELECT name FROM bids JOIN hosts h ON bids.auction = h.id WHERE h.name IS NOT NULL",
    "SELECT anything FROM 'x.csv'",
    "SELECT a, b FROM (SELECT auction a, price b FROM bids) x WHERE x.a > 1",
    "SELECT k, v FROM bids LATERAL VIEW explode(map(1,2)) e AS k, v",
    "SELECT x FROM bids, LATERAL (SELECT auction AS x)",
    "INSERT INTO hosts VALUES (1, 'a'), (2, 'b'); INSERT INTO hosts (id) VALUES (3);"
    " INSERT INTO hosts SELECT auction, 'x' FROM bids",
    "UPDATE hosts SET name = upper(name) WHERE id = 1; DELETE FROM hosts WHERE name IS NULL",
    "ADVANCE STREAM bids TO TIMESTAMP '2026-01-01'",
    "SELECT row_number() OVER (PARTITION BY auction ORDER BY price DESC NULLS LAST"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) rn FROM bids",
    "SELECT count(*) FILTER (WHERE price > 1) AS c, percentile_cont(0.5) WITHIN GROUP (ORDER BY price) FROM bids",
    "SELECT * FROM sys.runs; DESCRIBE bids; SHOW STREAMS; EXPLAIN bids",
    "SELECT window.start, count(*) FROM bids GROUP BY window(ts, '1 minute') HAVING window.end > ts ORDER BY window",
    "CREATE VIEW v AS SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), HOUR(TUMBLE_END(ts, INTERVAL '1' MINUTE)) AS h"
    " FROM bids GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE; SELECT window_start, h FROM v",
    "SELECT count(*) FROM bids GROUP BY SESSION(INTERVAL '1' MINUTE)",
    "CREATE VIEW v AS SELECT auction FROM bids; CREATE SINK k FROM v INTO files('out/', format => 'csv');"
    " CREATE SINK IF NOT EXISTS k FROM v INTO delta(path => 'out/'); SELECT version FROM sys.sinks; SHOW SINKS;"
    " DROP SINK k; DROP VIEW v",
    "SELECT auction AS a FROM bids GROUP BY a",
    "SELECT mask('x', lowerChar => 'y'), current_date, `count(1)` FROM (SELECT count(1) FROM bids)",
    "SELECT auction FROM bids UNION ALL SELECT id FROM hosts ORDER BY auction",
    "DROP TABLE hosts; DROP STREAM IF EXISTS nix; CREATE TABLE hosts (a INT); SELECT a FROM hosts",
    "CREATE STREAM r FROM rate(rows_per_second => 5, rows => 10); SELECT timestamp, value FROM r",
    "SELECT a.auction, b.auction FROM bids a, bids b WHERE a.auction = b.auction",
    "SELECT t.x FROM bids AS t(x, y, z, s, d)",
    "SELECT count(*) AS n, n + 1, max(price) - min(bids.price), 'x' FROM bids",
    "SELECT auction + 1, (auction + 1) * 2, count(*) FROM bids GROUP BY auction + 1",
    "SELECT bids.auction, max(price) FROM bids GROUP BY auction",
    "SELECT auction AS a, d, count(*) FROM bids GROUP BY 1, bids.d",
    "SELECT auction, sum(price) OVER (PARTITION BY auction) FROM bids",
    "SELECT auction, count(*) FROM bids GROUP BY ALL",
    "SELECT (SELECT count(*) FROM hosts WHERE id = auction), auction FROM bids",
    "SELECT count(DISTINCT auction, price) FROM bids",
    "SELECT trim(BOTH ' ' FROM 'x'), position('a' IN 'b'), substr('abc' FROM 2)",
    "CREATE FUNCTION fee AS 'shop.fee'; SELECT fee(price), Fee(auction) FROM bids; SHOW FUNCTIONS LIKE 'f*'",
    "SELECT sum(price) OVER w FROM bids WINDOW w AS (PARTITION BY auction)",
    "CREATE VIEW w AS SELECT window_start, auction, count(*) AS n"
    " FROM HOP(bids, ts, INTERVAL 1 SECOND, INTERVAL 10 SECONDS)"
    " GROUP BY window_start, window_end, auction EMIT ON WINDOW CLOSE; SELECT n, window_start FROM w",
    "CREATE VIEW a AS SELECT ts, price FROM bids; SELECT * FROM TUMBLE(a, ts, INTERVAL 1 MINUTE)",
    "SELECT bids.* FROM bids; SELECT b.* EXCEPT (price) FROM bids b",
    "COPY hosts FROM 'x.csv' (header => true)",
]
BAD = [
    # sql, what is underlined, kind of error, part of the message, part of the hint
    (
        "SELECT b FROM bids",
        "b",
        UnknownName,
        "there is no column b",
        "there is: auction, d, price, s, ts",
    ),
    (
        "SELECT pirce FROM bids",
        "pirce",
        UnknownName,
        "there is no column pirce",
        "did you mean price?",
    ),
    (
        "SELECT count(*) FROM bid",
        "bid",
        UnknownName,
        "there is no stream, view or table bid",
        "did you mean bids?",
    ),
    (
        "SELECT x.price FROM bids b",
        "x.price",
        UnknownName,
        "there is no column or relation x here",
        "there is: auction, b, d, price, s, ts",
    ),
    (
        "SELECT b.pirce FROM bids b",
        "b.pirce",
        UnknownName,
        "there is no column b.pirce",
        "did you mean b.price?",
    ),
    (
        "SELECT price AS p FROM bids WHERE p > 1",
        "p",
        UnknownName,
        "there is no column p",
        "names given in the SELECT list cannot be used in WHERE",
    ),
    (
        "SELECT 1 FROM bids GROUP BY acution",
        "acution",
        UnknownName,
        "there is no column acution",
        "did you mean auction?",
    ),
    (
        "SELECT 1 FROM bids ORDER BY acution",
        "acution",
        UnknownName,
        "there is no column acution",
        "did you mean auction?",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(tss), INTERVAL 1 MINUTE)",
        "tss",
        UnknownName,
        "there is no column tss",
        "did you mean ts?",
    ),
    (
        "SELECT count(*) FROM bids GROUP BY TUMBLE(tss, INTERVAL '1' MINUTE)",
        "tss",
        UnknownName,
        "there is no column tss",
        "did you mean ts?",
    ),
    (
        "SELECT count(*) FROM bids GROUP BY TUMBLE(s, INTERVAL '1' MINUTE)",
        "s",
        WrongType,
        "s is a STRUCT<A: INT>, and windows need a TIMESTAMP",
        "the time of a window is window_time(s)",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(s), INTERVAL 1 MINUTE)",
        "s",
        WrongType,
        "s is a STRUCT<A: INT>, and windows need a TIMESTAMP",
        "the time of a window is window_time(s)",
    ),
    (
        "SELECT auction, count(*) FROM bids GROUP BY auction EMIT ON WINDOW CLOSE",
        "EMIT ON WINDOW CLOSE",
        NotSupported,
        "no window closes in this query",
        "EMIT ON WINDOW CLOSE needs GROUP BY window_start, window_end over TUMBLE, HOP or other windows",
    ),
    (
        "ALTER VIEW bids AS SELECT 1 AS a FROM bids",
        "bids",
        SqlError,
        "bids is a stream, not a view",
        None,
    ),
    (
        "CREATE VIEW v AS SELECT auction FROM bids; CREATE VIEW w AS SELECT * FROM v; ALTER VIEW v AS SELECT * FROM w",
        "v",
        SqlError,
        "view v would read itself",
        None,
    ),
    (
        "CREATE STREAM bids (a INT)",
        "bids",
        SqlError,
        "stream bids already exists",
        "DROP STREAM bids first, or use CREATE OR REPLACE",
    ),
    *(
        (
            f"CREATE {words} bids AS SELECT 1 AS a",
            "bids",
            SqlError,
            "stream bids already exists",
            "DROP STREAM bids first, or take another name",
        )
        for words in ("OR REPLACE VIEW", "VIEW IF NOT EXISTS")
    ),
    (
        "CREATE STREAM f (a INT) FROM files(paht => 'in/*.csv')",
        "paht => 'in/*.csv'",
        UnknownName,
        "files has no option paht",
        "did you mean path?",
    ),
    (
        "CREATE STREAM b2 (a DATE, WATERMARK FOR a AS a - INTERVAL 1 DAY)",
        "WATERMARK FOR a AS a - INTERVAL 1 DAY",
        WrongType,
        "the event time a is a DATE, not a TIMESTAMP",
        "declare it as TIMESTAMP: (a TIMESTAMP, ...); a day is the time at which it starts",
    ),
    (
        "CREATE STREAM b2 (a TIMESTAMP, WATERMARK FOR b AS b - INTERVAL 1 DAY)",
        "WATERMARK FOR b AS b - INTERVAL 1 DAY",
        UnknownName,
        "the stream has no column b",
        "there is: a",
    ),
    (
        "CREATE STREAM b2 FROM filse(path => 'x')",
        "filse",
        UnknownName,
        "there is no source filse",
        "did you mean files?",
    ),
    (
        "CREATE STREAM b2 FROM rate(row_per_second => 4)",
        "row_per_second => 4",
        UnknownName,
        "rate has no option row_per_second",
        "did you mean rows_per_second?",
    ),
    (
        "CREATE STREAM b2 FROM rate(rows_per_second => 'x')",
        "rows_per_second => 'x'",
        SqlError,
        "rows_per_second must be a whole number of at least 1, not 'x'",
        None,
    ),
    (
        "CREATE STREAM b2 FROM files(path => 'x.csv', haeder => true)",
        "haeder => true",
        UnknownName,
        "files has no option haeder",
        "did you mean header?",
    ),
    (
        "CREATE STREAM b2 FROM files(header => true)",
        "files(header => true)",
        SqlError,
        "files needs the option path",
        "as in files(path => 'in/*.csv')",
    ),
    (
        "CREATE VIEW v AS SELECT rand() FROM bids",
        "rand",
        NotSupported,
        "rand gives another value each time, so a view of it has no stable answer",
        "compute it where the rows are produced, or use it in the query that reads the view",
    ),
    (
        "CREATE VIEW v AS SELECT * FROM 'x.csv'",
        "'x.csv'",
        NotSupported,
        "a view reads streams, views and tables",
        "make a table of the file first: CREATE TABLE t FROM files(path => '...')",
    ),
    (
        "CREATE VIEW v AS SELECT * FROM sqlite(path => 'x.db', table => 't')",
        "sqlite(path => 'x.db', table => 't')",
        NotSupported,
        "a view reads streams, views and tables",
        "make a table of it first: CREATE TABLE t FROM sqlite(...)",
    ),
    (
        "SELECT * FROM postgress(user => 'u', password => env('PW'), table => 't')",
        "postgress(user => 'u', password => env('PW'), table => 't')",
        SqlError,
        "there is no source postgress",
        "did you mean postgres?",
    ),
    (
        "SELECT * FROM kafka(brokers => 'h', topic => 't')",
        "kafka(brokers => 'h', topic => 't')",
        SqlError,
        "kafka is a source of streams",
        "CREATE STREAM s FROM kafka(...), and read s",
    ),
    (
        "CREATE STREAM c FROM postgres_changes(database => 'd', user => 'u', table => 't', slot => 'My-Slot')",
        "slot => 'My-Slot'",
        SqlError,
        "a slot of Postgres cannot be called 'My-Slot'",
        "small letters, digits and underscores, up to 63 of them",
    ),
    (
        "CREATE VIEW v AS SELECT auction FROM bids; DROP STREAM bids",
        "bids",
        SqlError,
        "bids is read by v",
        "drop them first, or add CASCADE to drop them too",
    ),
    (
        "DROP VIEW bids",
        "bids",
        SqlError,
        "bids is a stream, not a view",
        None,
    ),
    (
        "DROP TABLE nix",
        "nix",
        UnknownName,
        "there is no table nix",
        "there is: hosts",
    ),
    (
        "INSERT INTO hosts VALUES (1, 'a'), (2)",
        "(2)",
        SqlError,
        "1 value for 2 columns",
        "the columns of hosts are id, name",
    ),
    (
        "INSERT INTO hosts (id, nmae) VALUES (1, 'a')",
        "nmae",
        UnknownName,
        "hosts has no column nmae",
        "did you mean name?",
    ),
    (
        "INSERT INTO hosts SELECT id FROM hosts",
        "id",
        SqlError,
        "1 value for 2 columns",
        "the columns of hosts are id, name",
    ),
    (
        "INSERT INTO nix VALUES (1)",
        "nix",
        UnknownName,
        "there is no stream or table nix",
        "there is: bids, hosts",
    ),
    (
        "CREATE VIEW v AS SELECT auction FROM bids; INSERT INTO v VALUES (1)",
        "v",
        SqlError,
        "v is a view, not a stream or table",
        None,
    ),
    (
        "UPDATE bids SET price = 1",
        "bids",
        SqlError,
        "bids is a stream, not a table",
        "a stream is append-only: it only takes new rows",
    ),
    (
        "UPDATE hosts SET nmae = 'x'",
        "nmae",
        UnknownName,
        "hosts has no column nmae",
        "did you mean name?",
    ),
    (
        "UPDATE hosts SET name = idd",
        "idd",
        UnknownName,
        "there is no column idd",
        "did you mean id?",
    ),
    (
        "DELETE FROM hosts WHERE nmae = 'x'",
        "nmae",
        UnknownName,
        "there is no column nmae",
        "did you mean name?",
    ),
    (
        "REFRESH TABLE bids",
        "bids",
        SqlError,
        "bids is a stream, not a table",
        None,
    ),
    (
        "ADVANCE STREAM hosts TO END",
        "hosts",
        SqlError,
        "hosts is a table, not a stream",
        None,
    ),
    (
        "COPY nix FROM 'x.csv'",
        "nix",
        UnknownName,
        "there is no stream or table nix",
        "there is: bids, hosts",
    ),
    (
        "COPY hosts FROM 'x.csv' (haeder => true)",
        "haeder => true",
        UnknownName,
        "files has no option haeder",
        "did you mean header?",
    ),
    (
        "DESCRIBE nix",
        "nix",
        UnknownName,
        "there is no stream, view or table nix",
        "there is: bids, hosts",
    ),
    (
        "SELECT * FROM bids JOIN hosts ON auction = idd",
        "idd",
        UnknownName,
        "there is no column idd",
        "did you mean id?",
    ),
    (
        "SELECT (SELECT max(idd) FROM hosts) FROM bids",
        "idd",
        UnknownName,
        "there is no column idd",
        "did you mean id?",
    ),
    (
        "WITH c AS (SELECT auction AS a FROM bids) SELECT b FROM c",
        "b",
        UnknownName,
        "there is no column b",
        "there is: a",
    ),
    (
        "SELECT * FROM data.csv",
        "data.csv",
        UnknownName,
        "there is no stream, view or table data.csv",
        "a file is named in quotes: 'data.csv'",
    ),
    (
        "SELECT * FROM sys.run",
        "sys.run",
        UnknownName,
        "there is no stream, view or table sys.run",
        "did you mean sys.runs?",
    ),
    (
        "CREATE VIEW v AS SELECT auction FROM bids; CREATE SINK k FROM v INTO delta(path => 'o', format => 'csv')",
        "format => 'csv'",
        UnknownName,
        "delta has no option format",
        "there is: mode, path",
    ),
    (
        "CREATE VIEW v AS SELECT auction FROM bids; CREATE SINK k FROM v INTO delta('o'); DROP VIEW v",
        "v",
        SqlError,
        "v is read by k",
        "drop them first, or add CASCADE to drop them too",
    ),
    (
        "CREATE SINK k FROM bids INTO delta('o')",
        "bids",
        SqlError,
        "bids is a stream, not a view",
        None,
    ),
    (
        "SELECT * FROM csv('x.csv', haeder => true)",
        "haeder => true",
        UnknownName,
        "files has no option haeder",
        "did you mean header?",
    ),
    ("SELECT coalece(price, 0) FROM bids", "coalece", UnknownFunction, "no function coalece", "did you mean coalesce?"),
    ("SELECT 1 FROM bids WHERE nope(price) > 1", "nope", UnknownFunction, "no function nope", "CREATE FUNCTION nope"),
    (
        "CREATE VIEW v AS SELECT (SELECT max(f(id)) FROM hosts) AS x FROM bids",
        "f",
        UnknownFunction,
        "no function f",
        None,
    ),
    ("SELECT date_add(d) FROM bids", "date_add(d)", SqlError, "date_add takes 2 arguments, not 1 argument", None),
    ("SELECT upper() FROM hosts", "upper()", SqlError, "upper takes 1 argument, not 0 arguments", None),
    ("SELECT nullif(1, 2, 3)", "nullif(1, 2, 3)", SqlError, "nullif takes 2 arguments, not 3 arguments", None),
    (
        "SELECT auction, count(*) FROM bids",
        "auction",
        SqlError,
        "auction is neither grouped by nor aggregated",
        "add it to GROUP BY",
    ),
    ("SELECT b.price + sum(auction) FROM bids b", "b.price", SqlError, "b.price is neither grouped", "any_value"),
    ("SELECT auction, price FROM bids GROUP BY auction", "price", SqlError, "price is neither grouped", None),
]


@pytest.mark.parametrize("sql", GOOD)
def test_nothing_that_would_run_is_refused(sql: str) -> None:
    check(OBJECTS + sql)


@pytest.mark.parametrize(("sql", "underlined", "kind", "message", "hint"), BAD, ids=[case[0] for case in BAD])
def test_mistakes_are_found_with_their_place(
    sql: str, underlined: str, kind: type[SqlError], message: str, hint: str | None
) -> None:
    with pytest.raises(SqlError) as caught:
        check(OBJECTS + sql)
    error = caught.value
    assert type(error) is kind
    assert message in error.message
    assert (hint or "") in (error.hint or "")
    assert error.text is not None and error.start is not None
    assert error.text[error.start : error.end] == underlined


def test_warnings() -> None:
    assert check(OBJECTS + "SELECT auction FROM bids") == []
    assert check(OBJECTS) == ["nothing reads stream bids"]
    closing = (
        "CREATE STREAM s (a INT, ts TIMESTAMP); CREATE VIEW w AS SELECT window_start, count(*) AS n"
        " FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;"
    )
    (warning,) = check(closing)
    assert "view w waits for windows to close, but stream s has no WATERMARK" in warning
    assert check(closing + "ADVANCE STREAM s TO END") == []
    assert check("CREATE STREAM s (a INT); create stream s (a int); SELECT a FROM s") == [
        "stream s is created twice in the same way"
    ]


def test_all_that_is_wrong_is_told_in_order() -> None:
    """What a wrong CREATE was to make is there for the statements after it."""
    script = """\
CREATE STREAM s (a INT, b STRNG);
CREATE VIEW v AS SELECT aa, summ(b), lenth(c) FROM s;
CREATE VIEW w AS SELECT auctoin, uper(price) FROM bids;
SELECT x FROM v; SELECT whatever FROM w; SELECT 1 FROM nowhere;
SELECT price, nope FROM bids WHERE pric > 1;
SELECT ) FROM bids"""
    found, _ = problems(OBJECTS + script)
    assert [error.message for error in found] == [
        "expected the type of b, found STRNG",
        "there is no function summ",
        "there is no function lenth",
        "there is no column auctoin",
        "there is no function uper",
        "there is no stream, view or table nowhere",
        "there is no column nope",
        "there is no column pric",
        found[-1].message,
    ]
    assert all("^" in str(error) for error in found)
    assert "line 9" in str(found[-1])


def test_none_of_sparks_own_examples_is_refused() -> None:
    examples = Path(__file__).with_name("spark").joinpath("examples.sql").read_text().splitlines()[1:]
    for example in examples:
        wrong, _ = problems(example)
        assert not [each for each in wrong if type(each) in (UnknownFunction, SqlError)], example


def test_columns_nobody_declared_are_not_checked() -> None:
    check("CREATE STREAM s FROM files(path => 'nowhere/*.csv'); SELECT whatever, s.more FROM s WHERE other > 1")
    check("CREATE TABLE t FROM csv('nowhere.csv', header => true); SELECT whatever FROM t")


def test_check_starts_nothing_heavy() -> None:
    program = (
        "import sys; from anabranch.sql import check; check('CREATE STREAM s (a INT); SELECT a + 1 FROM s');"
        "print([m for m in ('pyspark', 'deltalake', 'duckdb', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
