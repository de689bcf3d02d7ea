"""A password is nowhere but in the environment: not in the home, in what is shown, or in what is said of errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError
from anabranch.sinks import kinds
from anabranch.sources import kafka_client, registry
from anabranch.testing import Harness
from sources import mysql_server, postgres_server
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer

pytestmark = pytest.mark.spark


def test_no_password_is_written_or_said(
    postgres: PostgresServer,
    mysql: MysqlServer,
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    passwords = (postgres_server.PASSWORD, mysql_server.PASSWORD)
    with Harness(tmp_path / "home", spark) as home:
        for name, server in {"pg": postgres, "my": mysql}.items():
            server.run("DROP TABLE IF EXISTS people", "DROP TABLE IF EXISTS counts")
            server.run(
                "CREATE TABLE people (id int primary key, name varchar(9))", "INSERT INTO people VALUES (1, 'a')"
            )
            home.sql(f"CREATE TABLE {name}_people FROM {server.source(table='people', lookup='always')}")
            home.sql(f"CREATE STREAM {name}_s FROM {server.source(table='people')}")
            home.sql(
                f"CREATE VIEW {name}_v AS SELECT p.name, count(*) AS c FROM {name}_s s JOIN {name}_people p"
                " ON p.id = s.id GROUP BY p.name"
            )
            home.sql(f"CREATE SINK {name}_k FROM {name}_v INTO {server.source(table='counts')}")
            asked = f"SELECT * FROM {server.source(table='people')} WHERE id = 1"
            assert home.query(asked) == [(1, "a")] and home.query(f"SELECT * FROM {name}_v") == [("a", 1)]
            assert server.rows("SELECT name, c FROM counts") == [("a", 1)]
            for query in (
                f"EXPLAIN {asked}", f"EXPLAIN FORMAT JSON {asked}", f"EXPLAIN {name}_v", "SHOW SOURCES",
                f"SHOW CREATE TABLE {name}_people", f"SHOW CREATE STREAM {name}_s", "SELECT * FROM sys.sinks",
                "SELECT * FROM sys.runs", "SHOW SINKS",
            ):  # fmt: skip
                try:
                    said.append(str(home.query(query)))
                except AnabranchError as error:
                    said.append(str(error))
        for server in (postgres, mysql):
            for options in ({"table": "nothing"}, {"table": "people", "port": 1}, {"query": "SELECT no"}):
                with pytest.raises(AnabranchError) as caught:
                    home.query(f"SELECT * FROM {server.source(**options)}")
                said += [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
        os.environ[postgres_server.VARIABLE] = f"{postgres_server.PASSWORD} wrong"
        with pytest.raises(AnabranchError) as caught:
            home.query(f"SELECT * FROM {postgres.source(table='people')}")
        said += [str(caught.value), repr(caught.value), json.dumps([str(each) for each in caught.value.args])]
    said += [*capfd.readouterr()]
    assert any("asks 127.0.0.1" in text and "WHERE" in text for text in said)
    for password in passwords:
        assert not any(password in text for text in said), [text for text in said if password in text]
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or password.encode() not in path.read_bytes(), path


#: Values of options by their names, for servers where nobody answers.
NOWHERE = {
    "host": "127.0.0.1", "port": 1, "brokers": "127.0.0.1:1", "url": "http://127.0.0.1:1/", "topic": "t",
    "registry": "http://127.0.0.1:1", "database": "d", "user": "u", "username": "u", "registry_user": "u", "table": "t",
    "slot": "s", "keys": "k:", "key": "k", "format": "avro", "retries": 0, "timeout": 1,
}  # fmt: skip


def written(kind: str, options: dict[str, str]) -> str:
    return f"{kind}({', '.join(f'{name} => {value}' for name, value in options.items())})"


def test_every_kind_that_has_a_secret_keeps_it(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the registries have, now and later: definitions, errors, what is shown, and the files of the home."""
    monkeypatch.setattr(kafka_client, "ANSWER", 0.5)
    sources = [kind for kind in registry.kinds().values() if any(option.secret for option in kind.options)]
    sinks = [kind for name in kinds.names() if (kind := kinds.find(name)) and any(o.secret for o in kind.options)]
    assert {"kafka", "postgres", "mysql", "postgres_changes", "mysql_changes", "redis"} <= {k.name for k in sources}
    assert {"kafka", "postgres", "mysql", "redis", "webhook"} <= {kind.name for kind in sinks}
    said: list[str] = []

    def tried(statement: str) -> None:
        try:
            said.append(str(home.session.sql(statement).fetchall()))
        except AnabranchError as error:
            said.extend([str(error), repr(error), str(error.__cause__)])

    with Harness(tmp_path / "home", spark) as home:
        home.sql("CREATE STREAM s (k STRING); CREATE VIEW v AS SELECT k, count(*) AS c FROM s GROUP BY k")
        home.insert("s", [("a",)])
        for number, kind in enumerate([*sources, *sinks]):
            monkeypatch.setenv(f"SECRET_{number}", f"hidden-{number}-secret")
            values = NOWHERE | ({"database": 3} if kind.name == "redis" else {})
            given = {option.name: values[option.name] for option in kind.options if option.name in values}
            made = {name: f"'{value}'" if isinstance(value, str) else str(value) for name, value in given.items()}
            hidden = [option.name for option in kind.options if option.secret]
            made |= dict.fromkeys(hidden, f"env('SECRET_{number}')")
            call = written(kind.name, made)
            first = f"CREATE {'STREAM' if kind.stream else 'TABLE'} x{number} (k STRING) FROM {call}"
            if number >= len(sources):
                first = f"CREATE SINK x{number} FROM v INTO {call}"
            tried(first)
            if number < len(sources):
                for statement in (
                    f"CREATE TABLE y{number} (k STRING) FROM {call}", f"SELECT * FROM {call}", "SHOW SOURCES",
                    f"EXPLAIN SELECT * FROM {call}", f"SELECT * FROM x{number}", f"SHOW CREATE STREAM x{number}",
                ):  # fmt: skip
                    tried(statement)
            for name in hidden:
                bare = written(kind.name, {**made, name: f"'hidden-{number}-secret'"})
                with pytest.raises(AnabranchError, match=f"the {name} of {kind.name} must not be written down"):
                    home.sql(first.replace(call, bare).replace(f"x{number}", f"z{number}"))
        for statement in ("INSERT INTO s VALUES ('b')", "SELECT * FROM v", "SHOW SINKS", "SELECT * FROM sys.sinks"):
            tried(statement)
    said += [*capfd.readouterr()]
    assert len(said) > 6 * len(sources)
    files = [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("SECRET_0" in text for text in files)  # the reference is kept
    assert not [text for text in (*said, *files) if "hidden-" in text]
