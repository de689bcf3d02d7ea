"""Tables of real servers of Postgres and MariaDB: types, lookups by key and by comparison, messages without secrets."""

from __future__ import annotations

import operator
import os
import random
import subprocess
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.errors import SourceError
from anabranch.sources.database import DatabaseTable
from anabranch.sources.lookup import Comparison, Unreachable, open_source
from anabranch.sources.registry import WrongOption
from anabranch.sources.wanted import Test, Wanted
from anabranch.types import Field
from sources import mysql_server, postgres_server
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer

Server = PostgresServer | MysqlServer


@pytest.fixture(params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest) -> Server:
    return cast(Server, request.getfixturevalue(request.param))


def table(server: Server, declared: tuple[Field, ...] | None = None, **options: Any) -> DatabaseTable:
    kind = "postgres" if isinstance(server, PostgresServer) else "mysql"
    return cast(DatabaseTable, open_source(kind, server.options(**options), declared))


# ---- types


def test_every_type_of_postgres_comes_exactly_or_as_its_text(postgres: PostgresServer) -> None:
    postgres.run(
        "DROP TABLE IF EXISTS kinds; DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TABLE kinds (a smallint, b int, c bigint, d numeric(12,3), e numeric, f real, g float8, h boolean,"
        " i text, j varchar(9), k char(4), l bytea, m date, n timestamp, o timestamptz, p uuid, q jsonb, r int[],"
        " s mood, t interval, u time, v numeric(60,2), w numeric(3,-2))",
        "INSERT INTO kinds VALUES (-1, 2, 3, 1.5, 0.000000000000000001, 0.5, 'NaN', true, 'ä', 'v', 'c', '\\x00ff',"
        " '2026-01-02', '2026-01-02 03:04:05.678901', '2026-01-02 03:04:05+02', '6f0f2a4e-0000-4000-8000-0123456789ab',"
        " '{\"a\": 1}', '{1,2}', 'glad', '1 day', '10:00', 12345678901234567890123456789012345678901234567890.12,"
        " 1200)",
        "INSERT INTO kinds (a) VALUES (NULL)",
    )
    found = table(postgres, table="kinds")
    assert [field.type for field in found.fields()] == [
        "smallint", "int", "bigint", "decimal(12,3)", "decimal(38,18)", "float", "double", "boolean", *["string"] * 3,
        "binary", "date", "timestamp", "timestamp", *["string"] * 7, "decimal(5,0)",
    ]  # fmt: skip
    rows = found.read().to_pylist()
    first = next(row for row in rows if row["a"] == -1)
    assert first["d"] == Decimal("1.500") and first["e"] == Decimal("0.000000000000000001") and first["g"] != first["g"]
    assert (first["h"], first["i"], first["k"], first["l"]) == (True, "ä", "c", b"\x00\xff")
    assert first["n"] == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
    assert first["o"] == datetime(2026, 1, 2, 1, 4, 5, tzinfo=timezone.utc)
    assert first["m"] == date(2026, 1, 2) and first["p"] == "6f0f2a4e-0000-4000-8000-0123456789ab"
    assert (first["q"], first["r"], first["s"], first["t"], first["u"]) == (
        '{"a": 1}',
        "{1,2}",
        "glad",
        "1 day",
        "10:00:00",
    )
    assert first["v"] == "12345678901234567890123456789012345678901234567890.12" and first["w"] == 1200
    assert set(next(row for row in rows if row["a"] is None).values()) == {None}
    by_id = found.fetch(("a",), ("p",), [("6f0f2a4e-0000-4000-8000-0123456789ab",), ("no uuid",)])
    assert by_id.to_pylist() == [{"a": -1}]


def test_every_type_of_mysql_comes_exactly_or_as_its_text(mysql: MysqlServer) -> None:
    mysql.run(
        "DROP TABLE IF EXISTS kinds",
        "CREATE TABLE kinds (a tinyint, b smallint, c mediumint, d int, e bigint, f tinyint unsigned, g int unsigned,"
        " h bigint unsigned, i decimal(12,3), j decimal(60,2), k float, l double, m boolean, n varchar(9), o text,"
        " p char(4), q blob, r varbinary(4), s date, t datetime(6), u timestamp NULL, v time, w year, x json,"
        " y enum('sad', 'glad'), z decimal(5,0) unsigned)",
        "SET time_zone = '+02:00'",
        "INSERT INTO kinds VALUES (-1, 2, 3, 4, 5, 255, 4294967295, 18446744073709551615, 1.5, 1234567890.12, 0.5,"
        " 1e300, true, 'ä', 'o', 'c', x'00ff', x'01', '2026-01-02', '2026-01-02 03:04:05.678901',"
        " '2026-01-02 03:04:05', '10:00', 2026, '{\"a\": 1}', 'glad', 12345)",
    )
    mysql.run("UPDATE kinds SET u = from_unixtime(1767315845)", "INSERT INTO kinds (a) VALUES (NULL)")
    found = table(mysql, table="kinds")
    assert [field.type for field in found.fields()] == [
        "tinyint", "smallint", "int", "int", "bigint", "smallint", "bigint", "decimal(20,0)", "decimal(12,3)", "string",
        "float", "double", "tinyint", *["string"] * 3, "binary", "binary", "date", "timestamp", "timestamp", "string",
        "int", "string", "string", "decimal(5,0)",
    ]  # fmt: skip
    rows = found.read().to_pylist()
    first = next(row for row in rows if row["a"] == -1)
    assert (first["f"], first["g"], first["h"]) == (255, 4294967295, Decimal(18446744073709551615))
    assert (first["i"], first["j"], first["l"], first["m"]) == (Decimal("1.500"), "1234567890.12", 1e300, 1)
    assert (first["n"], first["q"], first["r"], first["v"]) == ("ä", b"\x00\xff", b"\x01", "10:00:00")
    assert first["t"] == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
    assert first["u"] == datetime.fromtimestamp(1767315845, timezone.utc)
    assert (first["w"], first["x"], first["y"], first["z"]) == (2026, '{"a": 1}', "glad", 12345)
    assert set(next(row for row in rows if row["a"] is None).values()) == {None}


def test_declared_columns_are_read_as_they_were_declared(server: Server) -> None:
    server.run("DROP TABLE IF EXISTS told", "CREATE TABLE told (a int, b varchar(20))")
    server.run("INSERT INTO told VALUES (1, ' 7'), (2, NULL)")
    found = table(server, (Field("B", "bigint"), Field("a", "string")), table="told")
    assert sorted(map(str, found.read().to_pylist())) == ["{'b': 7, 'a': '1'}", "{'b': None, 'a': '2'}"]
    assert found.fetch(("a",), ("b",), [(7,)]).to_pylist() == [{"a": "1"}]
    server.run("INSERT INTO told VALUES (3, 'x')")
    with pytest.raises(SourceError, match=r"a value of told.b is no BIGINT: 'x' is no number"):
        found.read()


def test_what_does_not_fit_is_refused(postgres: PostgresServer) -> None:
    postgres.run("DROP TABLE IF EXISTS wide; CREATE TABLE wide (n numeric, t timestamp)")
    postgres.run("INSERT INTO wide VALUES (1e-19, NULL)")
    with pytest.raises(SourceError, match=r"a value of wide.n is no DECIMAL\(38,18\)"):
        table(postgres, table="wide").read()
    postgres.run("DELETE FROM wide; INSERT INTO wide VALUES (1, 'infinity')")
    with pytest.raises(SourceError, match=r"timestamp too large"):
        table(postgres, table="wide").read()
    text = table(postgres, (Field("t", "string"),), table="wide").read().to_pylist()
    assert text == [{"t": "infinity"}]


# ---- asking

ROWS: list[tuple[Any, ...]] = [
    (1, "ann", Decimal("1.50"), date(2026, 1, 1), datetime(2026, 1, 1, 12)),
    (2, "Ann", Decimal("-2.00"), date(2026, 1, 2), datetime(2026, 1, 2, 0, 0, 0, 1)),
    (3, "ann ", None, None, None), (4, None, Decimal("9.99"), date(1999, 12, 31), datetime(1999, 12, 31)),
    (5, "ä%_\\'\"`%s", Decimal("1.50"), date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59)),
    (6, "", Decimal(0), date(2026, 1, 1), datetime(2026, 1, 1, 12)), (None, "b", Decimal(1), None, None),
]  # fmt: skip
TYPES = {
    "postgres": '"id %" int, name text, "am""t" numeric(9,2), d date, ts timestamp',
    "mysql": '`id %` int, name varchar(20), `am"t` decimal(9,2), d date, ts datetime(6)',
}


@pytest.fixture
def people(server: Server) -> DatabaseTable:
    own = "postgres" if isinstance(server, PostgresServer) else "mysql"
    server.run("DROP TABLE IF EXISTS people", f"CREATE TABLE people ({TYPES[own]})")
    with server.connect() as database, database.cursor() as cursor:
        cursor.executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s)", ROWS)
    return table(server, table="people")


def test_keys_find_their_rows_and_are_never_read_as_sql(people: DatabaseTable) -> None:
    assert people.size() == len(ROWS)
    found = people.fetch(("id %",), ("name",), [("ann",), ("ä%_\\'\"`%s",), ("'; DROP TABLE people; --",), ("a\0b",)])
    assert {row["id %"] for row in found.to_pylist()} >= {1, 5} and people.size() == len(ROWS)
    both = people.fetch(("name", 'am"t'), ("id %", "d"), [(1, date(2026, 1, 1)), (2, date(2026, 1, 1)), (99, date.max)])
    assert both.to_pylist() == [{"name": "ann", 'am"t': Decimal("1.50")}]


SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def test_comparisons_miss_nothing_that_python_finds(people: DatabaseTable) -> None:
    chance = random.Random(1)
    names = ["id %", "name", 'am"t', "d", "ts"]
    values: list[list[Any]] = [
        [0, 1, 5, 2**40], ["ann", "ANN", "ann ", "", "z", "ä", "a\0"],
        [Decimal("1.5"), Decimal("-2"), Decimal("1.505")], [date(2026, 1, 1), date.min],
        [each.replace(tzinfo=timezone.utc) for each in (datetime(2026, 1, 1, 12), datetime.max)],
    ]  # fmt: skip
    for _ in range(60):
        used = chance.sample(range(5), chance.randint(1, 2))
        signs = [chance.choice(list(SIGNS)) for _ in used]
        keys = [tuple(chance.choice(values[index]) for index in used) for _ in range(3)]
        found, places = people.search(("id %",), tuple(map(Comparison, (names[i] for i in used), signs)), keys)
        got = set(zip((row["id %"] for row in found.to_pylist()), places, strict=True))
        for place, key in enumerate(keys):
            for row in ROWS:
                own = [
                    row[index].replace(tzinfo=timezone.utc) if index == 4 and row[4] else row[index] for index in used
                ]
                if all(v is not None and SIGNS[s](v, k) for v, s, k in zip(own, signs, key, strict=True)):
                    assert (row[0], place) in got, (used, signs, key, row)
    for sign, value, wanted in (("LIKE", "an_", {1}), ("LIKE", "%\\%%", {5}), ("LIKED BY", "x", set())):
        found, _ = people.search(("id %",), (Comparison("name", sign),), [(value,)])
        assert {row["id %"] for row in found.to_pylist()} >= wanted


def test_texts_that_a_character_set_lacks_are_compared_all_the_same(mysql: MysqlServer) -> None:
    mysql.run("DROP TABLE IF EXISTS old", "CREATE TABLE old (id int, name varchar(9) CHARACTER SET latin1)")
    mysql.run("INSERT INTO old VALUES (1, 'é'), (2, 'x')")
    for found in (table(mysql, table="old"), table(mysql, query="SELECT * FROM old")):
        rows = found.fetch(("id",), ("name",), [("é",), ("中",), ("😀",)]).to_pylist()
        assert rows == [{"id": 1}]
        for sign, values in (("=", ("中",)), ("IN", ("中", "x")), ("STARTS WITH", ("中",))):
            asked = found.read(Wanted(("id",), Test("name", sign, values))).to_pylist()
            assert asked == ([{"id": 2}] if sign == "IN" else [])


def test_a_query_of_the_database_is_a_table(server: Server) -> None:
    server.run(
        "DROP TABLE IF EXISTS q", "CREATE TABLE q (a int, b varchar(9))", "INSERT INTO q VALUES (1, 'x%'), (2, 'y')"
    )
    found = table(server, query="SELECT a + 1 AS n, b FROM q WHERE b LIKE '%\\%' -- all\n;")
    assert found.read().to_pylist() == [{"n": 2, "b": "x%"}] and found.size() == 1
    assert found.fetch(("b",), ("n",), [(2,), (3,)]).to_pylist() == [{"b": "x%"}]
    with pytest.raises(SourceError):
        table(server, query="SELECT a FROM q; DROP TABLE q").fields()
    with pytest.raises(SourceError):
        table(server, query="INSERT INTO q VALUES (3, 'z')").fields()
    assert len(server.rows("SELECT * FROM q")) == 2


# ---- messages


def test_what_is_wrong_is_said_and_the_password_is_not(server: Server) -> None:
    server.run("DROP TABLE IF EXISTS orders", "CREATE TABLE orders (a int)")
    name, password = (
        (postgres_server.VARIABLE, postgres_server.PASSWORD)
        if isinstance(server, PostgresServer)
        else (mysql_server.VARIABLE, mysql_server.PASSWORD)
    )
    with pytest.raises(WrongOption, match="has no table order") as caught:
        table(server, table="order").fields()
    assert caught.value.hint is not None and "orders" in caught.value.hint
    with pytest.raises(SourceError, match="give a table"):
        table(server)
    with pytest.raises(SourceError, match="not the name of a table"):
        table(server, table="a..b")
    with pytest.raises(Unreachable) as gone:
        table(server, table="orders", port=1).fields()
    assert gone.value.hint == "is the server running, and are host and port right?"
    with pytest.raises(SourceError, match=r"(?i)ssl"):
        table(server, table="orders", tls="require").fields()
    os.environ[name] = f"wrong-{password}"
    with pytest.raises(SourceError) as refused:
        table(server, table="orders").fields()
    assert not isinstance(refused.value, Unreachable)
    for error in (caught, gone, refused):
        assert password not in str(error.value) and error.value.__cause__ is None


# ---- encrypted


def test_certificates_of_postgres_are_checked(postgres: PostgresServer, tmp_path: Path) -> None:
    """The server has a certificate of its own making, for localhost."""
    data = postgres.folder / "data"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "2", "-subj", "/CN=localhost"]  # fmt: skip
    for name in ("own", "other"):
        files = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.crt")]
        subprocess.run([*made, *files, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    owner = data.stat()
    for ending in ("key", "crt"):
        there = data / f"server.{ending}"
        there.write_bytes((tmp_path / f"own.{ending}").read_bytes())
        there.chmod(0o600)
        os.chown(there, owner.st_uid, owner.st_gid)
    postgres.run("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
    try:
        encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        for tls, expected in (("disable", False), ("require", True)):
            assert table(postgres, query=encrypted, tls=tls).read().to_pylist() == [{"ssl": expected}]
        checked = {"tls": "verify-full", "query": encrypted}
        own, other = (str(tmp_path / f"{name}.crt") for name in ("own", "other"))
        assert table(postgres, host="localhost", ca=own, **checked).read().to_pylist() == [{"ssl": True}]
        for wrong in ({"host": "localhost", "ca": other}, {"host": "127.0.0.1", "ca": own}):
            with pytest.raises(SourceError, match="certificate"):
                table(postgres, **wrong, **checked).read()
    finally:
        postgres.run("ALTER SYSTEM RESET ssl", "SELECT pg_reload_conf()")
