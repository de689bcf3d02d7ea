"""The check of expressions: finds what is malformed, and never refuses what Spark takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.errors import SyntaxProblem
from anabranch.sql.functions import builtin
from anabranch.sql.parser import parse
from anabranch.sql.text import words

SPARK = Path(__file__).parent / "spark"
FUNCTIONS = sorted(builtin())
KEYWORDS = SPARK.joinpath("keywords.txt").read_text().split()
EXAMPLES = [line.rstrip(";") for line in SPARK.joinpath("examples.sql").read_text().splitlines()[1:]]

#: Words that cannot be a name without backquotes, here and in the SQL standard.
RESERVED = words(
    "ALL AND ANY AS BETWEEN CASE COLLATE DISTINCT DIV ELSE EXCEPT FOR FROM GROUP HAVING ILIKE INTERSECT LATERAL LIKE"
    " LIMIT MINUS NOT OFFSET ON OR ORDER QUALIFY SELECT THEN UNION USING WHEN WHERE WITH"
)

VALID = r"""
transform(a, x -> x + 1), aggregate(a, 0, (acc, x) -> acc + x), map_filter(m, (k, v) -> k > v)
s.a.b, arr[0], m['k'], f(x)[0].y, arr[0].z, a.`b`.c[1]['x'].d
a::int, a :: decimal(10,2), a::array<int>, (a + b)::string || 'x', a::map<string,array<int>> m
a::interval day to second, a::timestamp_ntz
INTERVAL '1' DAY, INTERVAL 1 DAY 2 HOURS, INTERVAL '1-2' YEAR TO MONTH, INTERVAL -1 DAY x, ts - INTERVAL 5 SECONDS
INTERVAL a DAY, INTERVAL (1 + 1) DAY, INTERVAL '10 minutes' y
CASE WHEN a THEN b ELSE c END, CASE a WHEN 1 THEN 2 END x, CASE WHEN a IS NULL THEN CASE b WHEN 1 THEN 2 END END = 4
a IS DISTINCT FROM b, a IS NOT DISTINCT FROM b, a IS NOT NULL, a IS TRUE, a IS NOT UNKNOWN
a LIKE ANY ('a', 'b'), a NOT LIKE ALL ('a'), a LIKE 'x!%' ESCAPE '!', a ILIKE 'b', a RLIKE 'c', a NOT RLIKE 'd'
a BETWEEN 1 AND 2, a NOT BETWEEN b AND c, a IN (1, 2), a NOT IN (SELECT b FROM u), EXISTS (SELECT 1)
percentile_cont(0.5) WITHIN GROUP (ORDER BY a DESC), mode() WITHIN GROUP (ORDER BY a) FILTER (WHERE a > 0)
sum(a) OVER (PARTITION BY b ORDER BY c DESC NULLS LAST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
sum(a) OVER w, row_number() OVER (w ORDER BY a), sum(a) OVER ()
sum(a) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND 1 FOLLOWING) s
count(*) FILTER (WHERE a > 1), count(DISTINCT a, b), first(a) IGNORE NULLS, lag(a) IGNORE NULLS OVER (ORDER BY b)
mask('abc', lowerChar => 'x'), f(a => 1, b => x -> x + 1)
X'1F', X '1F', r'\d', R"a", 'It''s', "dq", 'a' 'b', '\''
1L, 1.5BD, 2Y, 3S, 1e10, .5, 1., 1.5D, 1F
DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP_NTZ'2020-01-01', date > DATE '2020-01-01', TIME '10:00:00'
a.b.c, `a b`.`c``d`, t.*
try_cast(a AS INT), CAST(a AS STRUCT<x: INT, y: ARRAY<STRING>>), CAST(a + 1 AS INTERVAL DAY TO SECOND)
CAST((a, b) AS STRING), CAST(CAST(a AS INT) AS STRING)
EXTRACT(YEAR FROM ts), position('a' IN b), trim(BOTH 'x' FROM y), trim(LEADING FROM y), trim(y)
overlay(a PLACING 'x' FROM 1 FOR 2), substring(a FROM 2 FOR 3)
v:a.b, v:['a'].b::int, v:a[0]::string x
1 !> 2, 1 !< 2, a <=> b, a == b, a != b, a <> b, ! a, ~a, a ^ b, a & b | c, a >> 1, a >>> 1, a << 2, a % b, a DIV b
* EXCEPT (a, b), t.* EXCEPT (c)
struct(a AS x, b), named_struct('a', 1).a, array(1,2)[0], map('a', 1)['a']
a COLLATE UTF8_LCASE, a COLLATE UTF8_LCASE = b x
if(a, 1, 2), left(a, 1), right(b, 2), date(a), timestamp(b), char(65), first(a), any(a), some(a), every(b), int(a)
NOT a AND NOT (b OR c), - a, + a, -(-a), a - -1
(SELECT max(x) FROM u WHERE u.k = t.k) AS m, a IN (SELECT y FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE))
(SELECT max(x) FROM 'a.csv'), (SELECT max(x) FROM v AS OF VERSION 3)
(a, b) IN ((1, 2), (3, 4)), (a, b) = (1, 2)
date_add(DAY, 1, d), timestampdiff(HOUR, a, b), datediff(d, e), dateadd(MONTH, -1, d)
listagg(a, ',') WITHIN GROUP (ORDER BY a), string_agg(DISTINCT a)
filter(a, x -> x IS NOT NULL AND x > 1), exists(a, x -> x = 1), forall(a, x -> NOT x)
f(), f(*), count(t.*), f(DISTINCT *)
/*+ BROADCAST(t) */ a -- why
"""


@pytest.mark.parametrize("items", VALID.strip().splitlines())
def test_valid_expressions_pass(items: str) -> None:
    parse(f"SELECT {items}\n FROM t")


def test_every_function_of_spark_passes() -> None:
    names = [
        name
        for name in FUNCTIONS
        if name.isidentifier() and name not in ("and", "or", "not", "between", "case", "in", "when")
    ]
    assert len(names) > 500
    for name in names:
        sql = f"SELECT {name}(a), {name}(a, b) x, 1 + {name}(DISTINCT a) FROM t WHERE {name}(a) > 1 GROUP BY {name}(b)"
        parse(sql)


def test_every_example_of_sparks_own_documentation_passes() -> None:
    assert len(EXAMPLES) > 1000
    for sql in EXAMPLES:
        parse(sql)


@pytest.mark.parametrize("word", sorted(set(KEYWORDS) - RESERVED))
def test_keywords_can_be_columns(word: str) -> None:
    """In Spark nearly every keyword can be a column."""
    for sql in ("SELECT {0} FROM t", "SELECT {0} + 1 AS y FROM t", "SELECT a AS {0} FROM t", "SELECT f({0}) FROM t",
                "SELECT a FROM t WHERE {0} > 1", "SELECT a FROM t WHERE (a = {0}) AND b"):  # fmt: skip
        parse(sql.format(word.lower()))
    for name in (word, word.lower()):
        parse(f"SELECT `{name}`, t.{name} FROM t ORDER BY t.{name}")


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_reserved_words_are_names_in_backquotes_or_behind_a_dot(word: str) -> None:
    parse(f"SELECT `{word}` + 1, t.{word} FROM t WHERE `{word}` > 1 ORDER BY `{word}`")


ERRORS = [
    # sql, the words underlined, a part of the message, a part of the hint
    ("SELECT a FORM b", "FORM", "does not fit", "FROM"),
    ("SELECT count(*) FORM t", "FORM", "does not fit", "FROM"),
    ("SELECT * FORM t", "FORM", "does not fit", "FROM"),
    ("SELECT a AS b FORM t", "FORM", "does not fit", "FROM"),
    ("SELECT a FORM t JOIN u ON a = b", "FORM", "does not fit", "FROM"),
    ("SELECT a FROM (SELECT a FORM t)", "FORM", "does not fit", "FROM"),
    ("SELECT a FRM t", "FRM", "does not fit", "FROM"),
    ("SELECT a FROM t WEHRE x = 1", "WEHRE", "does not fit", "WHERE"),
    ("SELECT a FROM t WEHRE (x = 1)", "WEHRE", "names of columns", "WHERE"),
    ("SELECT a FROM t GRUOP BY a", "GRUOP", "does not fit", "GROUP"),
    ("SELECT a FROM t WHERE x > 1 GRUOP BY a", "GRUOP", "does not fit", "GROUP"),
    ("SELECT a FROM t ODER BY 1", "ODER", "does not fit", "ORDER"),
    ("SELECT a FROM t WHERE x > 1 ODER BY 1", "ODER", "does not fit", "ORDER"),
    ("SELECT a FROM t LIMT 5", "LIMT", "does not fit", "LIMIT"),
    ("SELECT a FROM t ORDER BY a DESC LIMT 5", "LIMT", "does not fit", "LIMIT"),
    ("SELECT a FROM t GROUP BY a HAVNG count(*) > 1", "HAVNG", "does not fit", "HAVING"),
    ("SELECT a FROM t JION u ON t.a = u.a", "JION", "does not fit", "JOIN"),
    ("SELECT sum(a) OVER (PARTITON BY b) FROM t", "PARTITON", "does not fit", "PARTITION"),
    ("DELETE FROM t WEHRE a = 1", "WEHRE", "does not fit", "WHERE"),
    ("UPDATE t SETT a = 1", "SETT", "expected SET", "SET"),
    ("SELCT a FROM t", "SELCT", "expected a statement", "SELECT"),
    ("CREATE STRAEM s (a INT)", "STRAEM", "expected STREAM", "STREAM"),
    ("CREATE STREAM s (a INTT)", "INTT", "the type of a", "INT"),
    ("SELECT a b c FROM t", "c", "c does not fit here", None),
    ("SELECT a FROM t x y", "y", "should end here", None),
    ("SELECT a + FROM t", "+", "missing", None),
    ("SELECT (a + ) FROM t", ")", "missing", None),
    ("SELECT a, FROM t", "FROM", "expected an expression", None),
    ("SELECT f(a b) FROM t", "b", "expected )", None),
    ("SELECT f(a, ) FROM t", ", )", "missing", None),
    ("SELECT a FROM t WHERE a = = 1", "=", "missing", None),
    ("SELECT a FROM t WHERE a LIKE", "LIKE", "missing", None),
    ("SELECT a FROM t JOIN u ON a = ", "=", "missing", None),
    ("SELECT CAST(a AS INTT) FROM t", "INTT", "no type INTT", "INT"),
    ("SELECT CAST(a AS) FROM t", ")", "expected a type", None),
    ("SELECT CAST(a INT) FROM t", "INT", "expected )", None),
    ("SELECT a FROM t JOIN u ON a = b JION w ON c = d", "JION", "does not fit", "JOIN"),
    ("SELECT a NOT b FROM t", "NOT", "does not fit", None),
    ("INSERT INTO t VALUES (1, 2,)", ",)", "missing", None),
    ("UPDATE t SET a = 1 +", "+", "missing", None),
    ("SELECT a FROM t WHERE a IN (1, 2", "(", "not closed", "add )"),
    ("SELECT a FROM t WHERE a)", ")", "closes nothing", None),
    ("SELECT (a] FROM t", "]", "closes nothing", "expected )"),
    ("SELECT 'abc", "'", "not closed", "closing '"),
    ("SELECT /* abc", "/*", "not closed", "*/"),
    ("SELECT from-ip FROM t", "from-ip", "not a plain name", "`from-ip`"),
    ("SELECT a FROM web-log", "web-log", "not a plain name", "`web-log`"),
    ("SELECT a FROM t ORDER a", "a", "expected BY", None),
    ("SELECT a FROM t GROUP a", "a", "expected GROUP BY", None),
    ("SELECT \u2018a\u2019", "\u2018", "no meaning", "straight quote"),
    ("SELECT * FROM TUMBLE(s, ts, INTERVAL 1 MONTH)", "INTERVAL 1 MONTH", "size of the window", "no fixed length"),
    ("SELECT * FROM TUMBLE(s, ts, INTERVAL 0 SECONDS)", "INTERVAL 0 SECONDS", "must be positive", None),
    ("SELECT * FROM HOP(s, ts, INTERVAL 1 SECOND)", "HOP(s, ts, INTERVAL 1 SECOND)", "needs a size", "HOP(TABLE t"),
    ("SELECT * FROM TUMBLE(s, ts, SLIDE => '1 s')", "SLIDE", "has no parameter SLIDE", "SIZE"),
    ("CREATE STREAM s (a INT, A INT)", "A", "two columns", None),
    ("CREATE STREAM s (_a INT)", "_a", "leading underscore", None),
    ("CREATE STREAM s", "s", "needs columns", None),
]


@pytest.mark.parametrize(("sql", "underlined", "message", "hint"), ERRORS, ids=[error[0] for error in ERRORS])
def test_errors_say_what_where_and_what_to_do(sql: str, underlined: str, message: str, hint: str | None) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse(f"SELECT 1;\n  {sql}")
    error = caught.value
    assert message in error.message
    assert (hint or "") in (error.hint or "")
    assert error.start is not None and error.end is not None and error.text is not None
    if sql != "CREATE STREAM s":
        assert error.text[error.start : error.end] == underlined
    assert "line 2" in str(error)


def test_an_error_as_it_is_printed() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse("SELECT price\nFROM bids\nWEHRE price > 100")
    assert str(caught.value) == (
        "WEHRE does not fit here\n"
        "  line 3: WEHRE price > 100\n"
        "          ^^^^^\n"
        "  did you mean WHERE?"
    )  # fmt: skip


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a form FROM t",
        "SELECT a form, b FROM t",
        "SELECT a FROM form WHERE form.a = 1",
        "SELECT a FROM t form",
        "SELECT a FROM t form JOIN u wher ON form.a = wher.a",
        "SELECT a FROM t oder EMIT CHANGES",
        "SELECT a AS limt FROM t ORDER BY limt",
        "CREATE VIEW v AS SELECT a FROM t wehre START AT NOW",
        "SELECT CASE WHEN form THEN wher END gruop FROM t",
    ],
)
def test_names_that_look_like_clauses_are_names_where_they_can_be(sql: str) -> None:
    parse(sql)


def test_a_simple_statement_loads_nothing_heavy() -> None:
    program = (
        "import sys; from anabranch.sql.parser import parse;"
        " parse('SELECT a, b.c FROM s; INSERT INTO s VALUES (1, 2)');"
        "print([m for m in ('sqlglot', 'pyspark', 'pyarrow', 'deltalake', 'duckdb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
