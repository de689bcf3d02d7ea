"""A password is nowhere but in the environment: not in the home, in what is shown, or in what is said of errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError
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
