"""Servers of databases, one of each kind a process, with their passwords in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sources import mysql_server as mysql_servers
from sources import postgres_server as postgres_servers
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[PostgresServer]:
    with postgres_servers.postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def mysql_process() -> Iterator[MysqlServer]:
    with mysql_servers.mysql_server() as server:
        yield server


@pytest.fixture
def postgres(postgres_process: PostgresServer) -> PostgresServer:
    os.environ[postgres_servers.VARIABLE] = postgres_servers.PASSWORD
    return postgres_process


@pytest.fixture
def mysql(mysql_process: MysqlServer) -> MysqlServer:
    os.environ[mysql_servers.VARIABLE] = mysql_servers.PASSWORD
    return mysql_process
