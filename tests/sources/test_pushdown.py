"""What a query wants of a database goes to the server, and the answer is the one without that."""

from __future__ import annotations

import math
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from anabranch.engine import remote
from anabranch.sources import database, database_server
from anabranch.sources.lookup import open_source
from anabranch.testing import Harness
from seeds import soaked
from sources.database_files import DatabaseFile
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer

pytestmark = pytest.mark.spark
Server = PostgresServer | MysqlServer | DatabaseFile
TYPES = {
    # In names the order is that of a language, and nicknames are equal that differ in case or accents.
    "postgres": 'id int primary key, big bigint, name text COLLATE "de-x-icu", nick varchar(9) COLLATE blind,'
    " amount numeric(12,3), ratio float8, day date, at timestamptz, plain timestamp, ok boolean, code char(3),"
    " small numeric(5,2), wide numeric(38,6)",
    "mysql": "id int primary key, big bigint, name varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,"
    " nick varchar(9) CHARACTER SET latin1, amount decimal(12,3), ratio double, day date, at timestamp(6) NULL,"
    " plain datetime(6), ok tinyint, code char(3), small decimal(5,2), wide decimal(38,6)",
    "sqlite": "id INTEGER PRIMARY KEY, big BIGINT, name TEXT COLLATE NOCASE, nick VARCHAR(9) COLLATE RTRIM,"
    " amount DECIMAL(12,3), ratio DOUBLE, day DATE, at TIMESTAMP, plain DATETIME, ok BOOLEAN, code CHAR(3),"
    " small NUMERIC(5,2), wide DECIMAL(38,6)",
    "duckdb": "id INTEGER PRIMARY KEY, big BIGINT, name VARCHAR COLLATE NOCASE, nick VARCHAR COLLATE NOACCENT,"
    ' amount DECIMAL(12,3), ratio DOUBLE, day DATE, "at" TIMESTAMPTZ, plain TIMESTAMP, ok BOOLEAN, code VARCHAR,'
    " small DECIMAL(5,2), wide DECIMAL(38,6)",
}
NAMES = ["", "a", "A", "a ", "b", "ä", "Ä", "z", "aa", "a_b", "a%b", "o'hara", "back\\slash", "ß", "ss", "😀", None]
NUMBERS = [None, 0, 1, -1, 5, 2**31, -(2**53) - 1, 2**62]
DECIMALS = [None, Decimal("0"), Decimal("1.5"), Decimal("1.500"), Decimal("-0.001"), Decimal("999999999.999")]
WIDE = [None, Decimal("0.000001"), Decimal("-1.5"), Decimal(10**27), Decimal("-123456789012345678901234567.123456")]
RATIOS = [None, 0.0, -0.0, 0.1, 1e300, -2.5, 1.5]
DAYS = [None, date(1970, 1, 1), date(2026, 1, 1), date(2026, 1, 2), date(9999, 12, 31), date(1001, 1, 1)]
PATTERNS = ["a%", "A%", "%b", "a\\\\_%", "%"]
#: The last ones are about the hours that New York leaves out and has twice.
TIMES = [
    None, *(datetime(2026, 1, 1) + timedelta(microseconds=each) for each in (0, 1, -1, 86_400_000_000)),
    datetime(2026, 3, 8, 2, 30), datetime(2026, 3, 8, 7), datetime(2026, 11, 1, 5, 30), datetime(2026, 11, 1, 6, 30),
]  # fmt: skip


def rows(chance: random.Random, count: int) -> list[tuple[Any, ...]]:
    pick = chance.choice
    return [
        (id, pick(NUMBERS), pick(NAMES), pick(["x", "X", "é", "e", "xa", None]), pick(DECIMALS), pick(RATIOS),
         pick(DAYS), pick(TIMES), pick(TIMES), pick([None, True, False]), pick(["c", "cd ", "C", None]),
         pick([None, Decimal("1.05"), Decimal("-999.99")]), pick(WIDE))
        for id in range(count)
    ]  # fmt: skip


def kept(chance: random.Random, row: tuple[Any, ...]) -> list[Any]:
    """The values of a row as somebody may have put them into SQLite."""
    return [value if value is None else chance.choice(_spellings(value)) for value in row]


def _spellings(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [value, 2 * value, float(value)]
    if isinstance(value, datetime):
        away = value.replace(tzinfo=timezone.utc).astimezone(timezone(timedelta(hours=5, minutes=30)))
        seconds = value.replace(tzinfo=timezone.utc).timestamp()
        return [str(value), value.isoformat() + "Z", away.isoformat(), seconds if value.microsecond else int(seconds)]
    if isinstance(value, date):
        return [str(value), str(value), f"{value} 23:59:59", f"{value}T00:00:00+05:00"]
    if isinstance(value, str):
        return [value, value, value.encode()]
    if isinstance(value, Decimal):
        return [str(value), float(value), f" {value}"]
    return [value, f"{value}", f" {value} "]


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, date):
        return f"DATE '{value}'"
    if isinstance(value, float):
        return f"{value}D" if math.isfinite(value) else f"double('{value}')"
    return str(value)


def predicate(chance: random.Random, ok: str, depth: int = 2) -> str:
    """A random condition over the columns of the table."""
    pick = chance.choice
    if depth and chance.random() < 0.55:
        one, other = predicate(chance, ok, depth - 1), predicate(chance, ok, depth - 1)
        return pick([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})", f"({one} AND {other})"])
    values: dict[str, list[Any]] = {
        "id": [1, 3, 2.5, None, 10**12], "big": NUMBERS, "name": [*NAMES, "a\ufffd"],
        "nick": ["x", "X", "é", "E", "中"],
        "amount": [*DECIMALS, 1, 1.5, Decimal("1.5001"), 10**12], "wide": [*WIDE, 1, Decimal("0.0000011")],
        "small": [Decimal("1.05"), Decimal("1.050"), Decimal("1.051"), 1000, 1],
        "ratio": [*RATIOS, 1, math.nan, -math.inf], "day": [*DAYS, datetime(2026, 1, 1, 12)],
        "at": [*TIMES, date(2026, 1, 1)], "plain": TIMES, "code": ["c", "cd", "cd ", "c  "],
        "CAST(at AS DATE)": [date(2026, 3, 8), date(2025, 12, 31)], "hour(at)": [2, 5, 23], "hour(plain)": [2, 7],
    }  # fmt: skip
    column = pick(list(values))
    one, other = literal(pick(values[column])), literal(pick(values[column]))
    if column in ("at", "plain") and one.startswith("TIMESTAMP") and chance.random() < 0.3:
        one = f"{one[:-1]} {pick(['America/New_York', '+05:30', 'Z'])}'"
    return pick(
        [
            f"{column} {pick(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {one}", f"{one} {pick(['<', '='])} {column}",
            f"{column} IN ({one}, {other})", f"{column} BETWEEN {one} AND {other}", f"{column} IS NULL",
            f"{column} IS NOT NULL", f"{column} NOT IN ({one}, {literal(values[column][1])})", ok,
            f"name LIKE '{pick(PATTERNS)}'", f"nick LIKE '{pick(['x%', 'X%', 'é%', '%a'])}'",
            "length(name) > 1", "id % 3 = 1",
        ]
    )  # fmt: skip


def aggregate(chance: random.Random, ok: str) -> str:
    """A random query over {t} with aggregates, a join of {t} with itself, or both; up to three columns, as texts."""
    pick = chance.choice
    keys = chance.sample(
        ["name", "nick", "day", "at", "plain", "code", "big", "amount", "wide", "id % 3", ok], pick([0, 1, 1, 2])
    )
    sums = [f"{each}({c})" for each in ("sum", "avg") for c in ("id", "amount", "small", "wide", "id + 1")]
    ends = [
        f"{each}({c})"
        for each in ("min", "max", "count")
        for c in ("id", "big", "name", "nick", "ratio", "day", "at", "code", "wide")
    ]
    calls = ["count(*)", "count(DISTINCT name)", "sum(id) FILTER (WHERE id > 9)", *ends, *sums, *sums]
    shown = [*keys, *chance.sample(calls, 3 - len(keys))]
    where = pick(["", f" WHERE {predicate(chance, ok, 1)}"])
    source = "{t}"
    if chance.random() < 0.5:
        on = pick(
            ["x.big = y.big", "x.name = y.name", "x.id = y.id AND x.at < y.plain", "x.code = y.code AND x.day = y.day",
             "x.amount = y.amount", "x.id = y.id AND x.name < y.nick", "x.nick = y.nick", "x.id < y.id",
             "x.ratio = y.ratio"]
        )  # fmt: skip
        other = pick(["{t}", "{t}", f"(SELECT * FROM {{t}} WHERE {predicate(chance, ok, 1)})"])
        source = f"(SELECT x.* FROM {{t}} x {pick(['', 'LEFT '])}JOIN {other} y ON {on}) AS j"
    if not keys and chance.random() < 0.3:
        shown, keys = ["id", "name", "amount"], []
        return f"SELECT {texts(shown)} FROM {source}{where}"
    grouped = f" GROUP BY {', '.join(keys)}{pick(['', ' HAVING count(*) > 1'])}" if keys else ""
    return f"SELECT {texts(shown)} FROM {source}{where}{grouped}"


def texts(items: list[str]) -> str:
    """As texts, which show the scale of a decimal; of 0.0 and -0.0 an aggregate may give either."""
    plain = [each.replace("n(ratio)", "n(ratio) + 0D").replace("x(ratio)", "x(ratio) + 0D") for each in items]
    return ", ".join(f"CAST({each} AS STRING) AS c{n}" for n, each in enumerate(plain))


#: What says to each server that it is elsewhere, and that it is not.
ELSEWHERE = {
    "postgres": ("ALTER DATABASE shop SET timezone TO 'America/New_York'", "ALTER DATABASE shop RESET timezone"),
    "mysql": ("SET GLOBAL time_zone = '+05:30'", "SET GLOBAL time_zone = 'SYSTEM'"),
}


#: Texts of SQLite that are no UTF-8, and what DuckDB has besides.
MORE = {
    "sqlite": [
        *(f"UPDATE things SET name = CAST(x'{text}' AS TEXT) WHERE id = {50 + n}"
          for n, text in enumerate(["61ff", "80", "6100ff", "c3", "610062"])),
        "UPDATE things SET ratio = 9e999 WHERE id = 7", "UPDATE things SET ratio = -9e999 WHERE id = 8",
    ],
    "duckdb": [
        f"UPDATE things SET ratio = '{ratio}' WHERE id = {50 + n}" for n, ratio in enumerate(["nan", "inf", "-inf"])
    ],
}  # fmt: skip


@pytest.fixture(params=["postgres", "mysql", "sqlite", "duckdb"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param not in ELSEWHERE:
        file = DatabaseFile(request.param, tmp_path / "things.db")
        file.run(f"CREATE TABLE things ({TYPES[file.kind]})")
        chance = random.Random(7)
        made = rows(chance, 60)
        file.insert("things", [kept(chance, each) for each in made] if file.kind == "sqlite" else made)
        file.run(*MORE[file.kind])
        yield file
        return
    found = cast(PostgresServer | MysqlServer, request.getfixturevalue(request.param))
    away, back = ELSEWHERE[request.param]
    found.run(away)
    os.environ["TZ"] = "Asia/Kolkata"  # and so are we
    time.tzset()
    if request.param == "postgres":
        blind = "(provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        found.run(f"CREATE COLLATION IF NOT EXISTS blind {blind}")
    found.run("DROP TABLE IF EXISTS things", f"CREATE TABLE things ({TYPES[request.param]})")
    with found.connect() as opened, opened.cursor() as cursor:
        cursor.execute("SET TimeZone TO 'UTC'" if request.param == "postgres" else "SET time_zone = '+00:00'")
        marks = ", ".join(["%s"] * 13)
        cursor.executemany(f"INSERT INTO things VALUES ({marks})", rows(random.Random(7), 60))
    yield found
    found.run(back)
    del os.environ["TZ"]
    time.tzset()


def kind_of(server: Server) -> str:
    if isinstance(server, DatabaseFile):
        return server.kind
    return "postgres" if isinstance(server, PostgresServer) else "mysql"


def compare(home: Harness, server: Server, spark: SparkSession, seed: int, count: int) -> None:
    """Against Spark over all rows: conditions, then aggregates and joins."""
    chance = random.Random(seed)
    whole = open_source(kind_of(server), server.options(table="things")).read()
    ok = "ok = 1" if isinstance(server, MysqlServer) else "ok"
    spark.createDataFrame(whole).createOrReplaceTempView("all_things")
    conditions = [predicate(chance, ok) for _ in range(count)]

    def asked(of: str) -> str:
        parts = (f"SELECT {n} AS q, id, name, big FROM {of} WHERE {each}" for n, each in enumerate(conditions))
        return " UNION ALL ".join(parts)

    found = Counter(home.query(asked(server.source(table="things"))))
    expected = Counter(map(tuple, spark.sql(asked("all_things")).collect()))
    wrong = {row[0] for row in (found - expected) + (expected - found)}
    assert not wrong, [conditions[number] for number in wrong]
    # One at a time, the driver answers where it can: with the rows that it was given, and without a job.
    near = 0
    plain = ("id = 3", "name = 'a' AND id > 5", "big < 5 OR day < DATE '2026-01-02'")
    for condition in (*conditions[:7], *plain):
        query = f"SELECT *, id + 1 AS more, length(name) AS long FROM {{}} WHERE {condition} ORDER BY id"
        result = home.session.sql(query.format(server.source(table="things")))
        near += result._frame is None
        expected_rows = spark.sql(query.format("all_things")).toArrow()
        assert str(result.toArrow().to_pylist()) == str(expected_rows.to_pylist()), condition
        assert result.types == [f.dataType.simpleString() for f in spark.sql(query.format("all_things")).schema]
    assert near >= len(plain)
    joined = "{t} x LEFT JOIN {t} y ON x.id = y.big GROUP BY x.big"
    queries = [aggregate(chance, ok) for _ in range(min(count, 25))]
    queries.append(f"SELECT {texts(['x.big', 'count(*)', 'sum(y.id)'])} FROM {joined}")

    def all_of(table: str) -> str:
        return " UNION ALL ".join(
            f"SELECT {n} AS q, * FROM ({each.replace('{t}', table)})" for n, each in enumerate(queries)
        )

    found = Counter(home.query(all_of(server.source(table="things"))))
    expected = Counter(map(tuple, spark.sql(all_of("all_things")).collect()))
    wrong = {row[0] for row in (found - expected) + (expected - found)}
    assert not wrong, [(queries[n], found - expected, expected - found) for n in wrong]
    told = "\n".join(row[0] for row in home.query(f"EXPLAIN {all_of(server.source(table='things'))}"))
    assert " GROUP BY " in told and " JOIN " in told


def test_random_conditions_give_the_same_rows_with_and_without(
    home: Harness, server: Server, spark: SparkSession
) -> None:
    compare(home, server, spark, 1, 10)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", soaked(*range(2, 12)))
def test_many_random_conditions(home: Harness, server: Server, spark: SparkSession, seed: int) -> None:
    compare(home, server, spark, seed, 50)


#: Queries over {t}, what Postgres is asked, and what MySQL is.
ASKED = {
    "SELECT id FROM {t} WHERE id > 5 AND name = 'a' AND length(name) > 0": (
        """WHERE (t."id" IS NOT NULL) AND (t."name" IS NOT NULL) AND (t."id" > %s::int8) AND (t."name" = %s::text)"""
        " with 5, 'a'",
        "WHERE (t.`id` IS NOT NULL) AND (t.`name` IS NOT NULL) AND (t.`id` > %s) AND (t.`name` = %s) with 5, 'a'",
    ),
    "SELECT name FROM {t} WHERE NOT (day <= DATE '2026-01-01') OR amount = 1.5": (
        """SELECT t."name", t."amount", t."day" FROM "things" AS t WHERE (t."day" > %s::date) OR"""
        """ (t."amount" = %s::numeric) with 2026-01-01, 1.500""",
        "WHERE (t.`day` > CAST(%s AS DATE)) OR (t.`amount` = CAST(%s AS DECIMAL(65,3))) with 2026-01-01, '1.500'",
    ),
    "SELECT id, big FROM {t} WHERE id < 9 ORDER BY big DESC NULLS FIRST, id LIMIT 3": (
        """SELECT t."id", t."big" FROM "things" AS t WHERE (t."id" IS NOT NULL) AND (t."id" < %s::int8)"""
        """ ORDER BY t."big" DESC NULLS FIRST, t."id" ASC NULLS FIRST LIMIT 3 with 9""",
        "ORDER BY t.`big` IS NULL DESC, t.`big` DESC, t.`id` ASC LIMIT 3 with 9",
    ),
    "SELECT name FROM {t} ORDER BY name LIMIT 2 OFFSET 1": (
        """ORDER BY (t."name") COLLATE "C" ASC NULLS FIRST LIMIT 3""", "SELECT t.`name` FROM `things` AS t",
    ),
    "SELECT count(*) FROM {t}": ("""SELECT count(*) FROM "things" AS t""", "SELECT count(*) FROM `things` AS t"),
    "SELECT name AS n, round(avg(amount), 1) + 1, max(day) FROM {t} WHERE id > 5 GROUP BY name HAVING count(*) > 1": (
        """SELECT (t."name") COLLATE "C", sum(t."amount"), count(t."amount"), max(t."day"), count(*)"""
        """ FROM "things" AS t WHERE (t."id" IS NOT NULL) AND (t."id" > %s::int8) GROUP BY"""
        """ (t."name") COLLATE "C" with 5""",
        "SELECT CAST(CONVERT(t.`name` USING utf8mb4) AS BINARY), sum(t.`amount`), count(t.`amount`), max(t.`day`),"
        " count(*) FROM `things` AS t WHERE (t.`id` IS NOT NULL) AND (t.`id` > %s) GROUP BY"
        " CAST(CONVERT(t.`name` USING utf8mb4) AS BINARY) with 5",
    ),
    "SELECT sum(ratio), avg(big), count(*) FROM {t}": (  # the order of rows matters
        """SELECT t."big", t."ratio" FROM "things" AS t""", "SELECT t.`big`, t.`ratio` FROM `things` AS t",
    ),
    "SELECT try_sum(id), count(*) FROM {t}": ("""SELECT t."id" FROM""", "SELECT t.`id` FROM"),
    "SELECT count(*) FROM {t} WHERE length(name) > 1": ("""SELECT t."name" FROM""", "SELECT t.`name` FROM"),
    "SELECT id FROM {t} WHERE big > (SELECT avg(id) FROM {t})": ("""SELECT t."id" FROM""", "SELECT t.`id` FROM"),
    "SELECT a.name, sum(b.id), count(*) FROM {t} a LEFT JOIN {t} b ON a.id = b.id AND b.big > 3 WHERE a.nick = 'x'"
    " GROUP BY a.name": (
        """(t1."nick" IS NOT NULL) AND ((t1."nick") COLLATE "C" = %s::text) GROUP BY (t1."name") COLLATE "C" with"""
        " 3, 'x'",
        "(t1.`nick` IS NOT NULL) AND ((t1.`nick` = %s AND CAST(CONVERT(t1.`nick` USING utf8mb4) AS BINARY) = CAST("
        "%s AS BINARY))) GROUP BY",
    ),
    "SELECT a.id, b.name, r.id AS r FROM {t} a JOIN {t} b ON a.big = b.big JOIN range(9) r ON r.id = a.id": (
        """FROM "things" AS t1 JOIN "things" AS t2 ON""", "FROM `things` AS t1 JOIN `things` AS t2 ON",
    ),
    "WITH c AS (SELECT * FROM {t}) SELECT a.id FROM c a JOIN c b ON a.id = b.big WHERE a.id = 1 AND b.id = 2": (
        """SELECT t."id", t."big" FROM "things" AS t WHERE""", "SELECT t.`id`, t.`big` FROM `things` AS t WHERE",
    ),
    "SELECT t.id FROM {t} t JOIN range(5) r ON t.id = r.id AND r.id IN (1, 3)": (
        """t."id" IN (%s::int8, %s::int8)""", "t.`id` IN (%s, %s)",
    ),
    "SELECT id FROM {t} WHERE id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) AND length(name) = 1 LIMIT 1": (
        "with 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12", "with 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
    ),
}  # fmt: skip


#: The same of SQLite and DuckDB.
ASKED_OF_FILES = {
    "SELECT id FROM {t} WHERE id > 5 AND name = 'a' AND length(name) > 0": (
        "(t.`id` > ?) AND ((t.`name` COLLATE BINARY = ? OR t.`name` >= x'')) with 5, 'a'",
        """(t."id" > CAST(? AS INTEGER)) AND (t."name" COLLATE "binary" = CAST(? AS VARCHAR)) with 5, 'a'""",
    ),
    "SELECT name FROM {t} WHERE NOT (day <= DATE '2026-01-01') OR amount = 1.5": (
        "SELECT t.`name`, t.`amount`, t.`day` FROM main.`things` AS t WHERE (t.`day` COLLATE BINARY >= ?) OR"
        " (t.`amount` BETWEEN ? AND ?) with '2026-01-02', 1.498",
        """(t."day" > CAST(? AS DATE)) OR (t."amount" = CAST(? AS DECIMAL(12,3))) with 2026-01-01, '1.500'""",
    ),
    "SELECT id, big FROM {t} WHERE id < 9 ORDER BY big DESC NULLS FIRST, id LIMIT 3": (
        "(t.`id` < ?) ORDER BY t.`big` IS NULL DESC, typed(t.`big`) DESC, t.`id` ASC LIMIT 3 with 9",
        """(t."id" < CAST(? AS INTEGER)) ORDER BY t."big" DESC NULLS FIRST, t."id" ASC NULLS FIRST LIMIT 3 with 9""",
    ),
    "SELECT name FROM {t} ORDER BY name LIMIT 2 OFFSET 1": (
        "ORDER BY typed(t.`name`) ASC LIMIT 3", """ORDER BY t."name" COLLATE "binary" ASC NULLS FIRST LIMIT 3""",
    ),
    "SELECT name AS n, round(avg(amount), 1) + 1, max(day) FROM {t} WHERE id > 5 GROUP BY name HAVING count(*) > 1": (
        "SELECT typed(t.`name`), sum((typed(t.`amount`)) >> 32), sum((typed(t.`amount`)) & 4294967295),"
        " count(t.`amount`), max(typed(t.`day`)), count(*) FROM main.`things` AS t WHERE (t.`id` IS NOT NULL) AND"
        " (t.`id` > ?) GROUP BY typed(t.`name`) with 5",
        """SELECT t."name" COLLATE "binary", sum(t."amount"), count(t."amount"), max(t."day"), count(*) FROM"""
        """ "main"."things" AS t WHERE (t."id" IS NOT NULL) AND (t."id" > CAST(? AS INTEGER)) GROUP BY"""
        """ t."name" COLLATE "binary" with 5""",
    ),
    "SELECT sum(ratio), avg(big), count(*) FROM {t} WHERE abs(ratio) < 9": (
        "SELECT t.`big`, t.`ratio` FROM main.`things` AS t", """SELECT t."big", t."ratio" FROM "main"."things" AS t""",
    ),
    "SELECT a.id, b.name, r.id AS r FROM {t} a JOIN {t} b ON a.big = b.big JOIN range(9) r ON r.id = a.id": (
        "(t1.`big` = t2.`big` AND typed(t1.`big`) = typed(t2.`big`))", """(t1."big" = t2."big")""",
    ),
    "SELECT a.id, b.id AS other FROM {t} a JOIN {t} b ON a.name = b.name": (  # SQLite would try each with each
        "SELECT t.`id`, t.`name` FROM", """(t1."name" COLLATE "binary" = t2."name" COLLATE "binary")""",
    ),
}  # fmt: skip


def test_explain_shows_what_the_database_is_asked(home: Harness, server: Server) -> None:
    own = int(isinstance(server, MysqlServer) or kind_of(server) == "duckdb")
    source = server.source(table="things")
    home.sql(f"CREATE TABLE all_of_it FROM {server.source(table='things', lookup='always')}")
    home.sql(f"CREATE TABLE loaded FROM {server.source(table='things', lookup='never')}")
    for query, expected in (ASKED_OF_FILES if isinstance(server, DatabaseFile) else ASKED).items():
        told = "\n".join(row[0] for row in home.query("EXPLAIN " + query.format(t=source)))
        assert expected[own] in told, (query, told)
        limited = " LIMIT " in query and "ORDER" not in query  # which rows are shown is anybody's choice
        for each in (source, "all_of_it") if "ORDER BY big" in query else (source,):
            found, wanted = (home.query(query.format(t=of)) for of in (each, "loaded"))
            assert len(found) == len(wanted) if limited else Counter(found) == Counter(wanted), query


def test_a_large_table_is_read_by_tasks(home: Harness, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (remote, database, database_server):
        monkeypatch.setattr(module, "LARGE_ROWS", 20)
    monkeypatch.setattr(database_server, "PIECE_ROWS", 10)
    monkeypatch.setattr(database, "FEW_ROWS", 5)
    found = home.query(f"SELECT * FROM {server.source(table='things')}")
    assert sorted(row[0] for row in found) == list(range(60))
    some = home.query(f"SELECT id, name FROM {server.source(table='things')} WHERE id > 20 OR name IS NULL")
    assert Counter(some) == Counter((row[0], row[2]) for row in found if row[0] > 20 or row[2] is None)
    # Few rows come with the first statement: a table without an index is gone through once.
    monkeypatch.setattr(database.DatabaseTable, "count", lambda *_: pytest.fail("counted first"))
    assert home.query(f"SELECT id FROM {server.source(table='things')} WHERE id IN (3, 7)") == [(3,), (7,)]
