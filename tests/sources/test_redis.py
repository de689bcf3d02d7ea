"""Hashes of a real Redis server as rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import redis

from anabranch.errors import SourceError
from anabranch.sources.lookup import Unreachable, open_source
from anabranch.sources.redis import RedisTable
from anabranch.sources.registry import WrongOption
from anabranch.types import Field
from sources.redis_server import PASSWORD, free_port, running

Server = tuple[redis.Redis, dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    with running(tmp_path_factory.mktemp("redis"), port) as client:
        client.hset("user:1", mapping={"name": "ann", "age": 30, "since": "2026-01-02 03:04:05"})
        client.hset("user:2", mapping={"name": "o'hara\n", "Name": "other", "raw": b"\xff"})
        client.hset("user:[3]", mapping={"age": "7", "ok": "true"})
        client.set("user:text", "no hash")
        client.hset("other:1", mapping={"name": "eve"})
        pipeline = client.pipeline(transaction=False)
        for number in range(5000):
            pipeline.hset(f"many:{number}", mapping={"n": number})
        pipeline.execute()
        yield client, {"host": "127.0.0.1", "port": port, "password": PASSWORD}


def test_hashes_are_rows_and_their_fields_columns(server: Server) -> None:
    table = RedisTable({**server[1], "keys": "user:*"})
    names = {field.name.lower() for field in table.fields()}
    assert names == {"key", "name", "age", "since", "raw", "ok"} and {each.type for each in table.fields()} == {
        "string"
    }
    assert {row["key"] for row in table.read().to_pylist()} == {"user:1", "user:2", "user:[3]"}
    declared = (
        Field("key", "string"), Field("age", "int"), Field("since", "timestamp"), Field("ok", "boolean"),
        Field("raw", "binary"), Field("none", "string"),
    )  # fmt: skip
    typed = RedisTable({**server[1], "keys": "user:*"}, declared)
    since = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert sorted((tuple(row.values()) for row in typed.read().to_pylist()), key=str) == [
        ("user:1", 30, since, None, None, None),
        ("user:2", None, None, None, b"\xff", None),
        ("user:[3]", 7, None, True, None, None),
    ]
    many = RedisTable({**server[1], "keys": "many:*"}, (Field("n", "bigint"),))
    assert sorted(many.read().column("n").to_pylist()) == list(range(5000))
    assert (many.size() or 0) >= 5000


def test_keys_are_asked_for_as_they_are(server: Server) -> None:
    declared = (Field("key", "string"), Field("name", "string"), Field("age", "int"))
    table = RedisTable({**server[1], "keys": "user:*"}, declared)
    asked = [
        ("user:1",),
        ("user:*",),
        ("user:[3]",),
        ("user:text",),
        ("other:1",),
        ("user:9",),
        ("* \r\nFLUSHALL\r\n",),
    ]
    assert table.fetch(("age", "key"), ("key",), asked).to_pylist() == [
        {"age": 30, "key": "user:1"},
        {"age": 7, "key": "user:[3]"},
    ]
    assert table.fetch(("key",), ("age",), [(7,), (8,)]).to_pylist() == [{"key": "user:[3]"}]
    some = RedisTable({**server[1], "keys": "user:[0-12]"}, declared)
    asked = [("user:1",), ("user:2",), ("user:[3]",)]
    assert some.fetch(("key",), ("key",), asked).column("key").to_pylist() == ["user:1", "user:2"]
    assert sorted(some.read().column("key").to_pylist()) == ["user:1", "user:2"]


def test_what_is_wrong_is_told_without_the_password(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter2")
    where = {**server[1], "keys": "user:*", "password": {"env": "PW"}}
    with pytest.raises(SourceError, match="refused the login") as caught:
        open_source("redis", where).read()
    assert "hunter2" not in str(caught.value) + str(caught.value.__cause__)
    with pytest.raises(WrongOption, match="must not be written down"):
        open_source("redis", {**where, "password": "hunter2"})
    with pytest.raises(Unreachable, match="refused"):
        RedisTable({**where, "port": free_port()}).size()
    with pytest.raises(SourceError, match="has no hash none:"):
        RedisTable({**server[1], "keys": "none:*"}).fields()
    with pytest.raises(SourceError, match="a value of name is no INT"):
        RedisTable({**server[1], "keys": "user:1"}, (Field("name", "int"),)).read()
    with pytest.raises(SourceError, match="are a STRING, not INT"):
        RedisTable({**server[1], "keys": "user:1"}, (Field("key", "int"),))
