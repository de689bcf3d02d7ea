"""What a view shows, in a real Redis server: one version as a whole, whatever is killed in between."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark.sql import SparkSession

from anabranch.errors import SinkError, SqlError
from anabranch.sinks.base import Owner
from anabranch.sinks.redis import RedisHashes
from anabranch.testing import Harness, crashing
from anabranch.types import Field
from sources.redis_history import changes, history, write
from sources.redis_server import PASSWORD, free_port, running

Server = tuple[redis.Redis, dict[str, Any]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    port = free_port()
    with running(tmp_path, port) as client:
        yield client, {"host": "127.0.0.1", "port": port, "password": PASSWORD, "keys": "t[:", "key": "K, b"}


def hashes(client: redis.Redis, pattern: str = "t\\[:*") -> dict[bytes, dict[bytes, bytes]]:
    return {key: client.hgetall(key) for key in client.scan_iter(match=pattern)}


def test_killed_anywhere_it_ends_with_what_the_view_shows(server: Server) -> None:
    client, options = server
    for point in ("before-sink-commit", "after-sink-commit:3", "before-sink-commit:4", "never"):
        crashing(point, write, options, 7, 8)
    _, there = history(7, 8)
    shown = {(row.get(b"k"), int(row[b"b"])): row.get(b"n") for row in hashes(client).values()}
    assert shown == {
        (None if k is None else k.encode(), b): None if n is None else str(n).encode() for (k, b), n in there.items()
    }
    assert len(hashes(client)) == len(there)
    assert client.hget("_anabranch:t[:", "version") == b"8"


def test_values_are_texts_and_no_key_is_anothers(server: Server) -> None:
    client, options = server
    target = RedisHashes({**options, "key": "a,b"}, Owner("home", "sink"))
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    rows = [
        {"a": "x:", "b": "y", "at": moment, "l": [1, None], "ok": True, "f": 0.5, "_diff": 1},
        {"a": "x", "b": ":y", "at": None, "l": None, "ok": None, "f": None, "_diff": 1},
        {"a": None, "b": "\\N", "at": None, "l": None, "ok": None, "f": None, "_diff": 1},
    ]
    target.start(3, pa.Table.from_pylist(rows))
    assert hashes(client) == {
        b"t[:x\\::y": {
            b"a": b"x:", b"b": b"y", b"at": b"2026-01-02T03:04:05Z", b"l": b"[1,null]", b"ok": b"true", b"f": b"0.5",
        },
        b"t[:x:\\:y": {b"a": b"x", b"b": b":y"},
        b"t[:\\N:\\\\N": {b"b": b"\\N"},
    }  # fmt: skip


def test_keys_of_others_and_rows_with_the_same_key_are_refused(server: Server) -> None:
    client, options = server
    client.hset("t[:theirs", "x", 1)
    target = RedisHashes(options, Owner("home", "sink"))
    with pytest.raises(SinkError, match="has keys"):
        target.check([Field("k", "string"), Field("b", "int")])
    with pytest.raises(SinkError, match="not those of this sink"):
        target.position()
    client.delete("t[:theirs")
    with pytest.raises(SinkError, match="shows no column b"):
        target.check([Field("k", "string")])
    with pytest.raises(SinkError, match="two rows for the key"):
        target.start(1, changes([("a", 1, 1, 1), ("a", 1, 2, 1)]))
    target.start(1, changes([("a", 1, 1, 1)]))
    with pytest.raises(SinkError, match=r"two rows for the key t\[:a:1"):
        target.apply(2, changes([("a", 1, 2, 1)]))
    target.apply(2, changes([("a", 1, 2, 1), ("a", 1, 1, -1)]))
    target.apply(2, changes([("a", 1, 2, -1)]))  # once more
    assert hashes(client) == {b"t[:a:1": {b"k": b"a", b"b": b"1", b"n": b"2"}}
    with pytest.raises(SinkError, match="not those of this sink"):
        RedisHashes(options, Owner("home", "other")).position()


@pytest.mark.spark
def test_a_view_goes_into_redis_and_a_server_that_lost_all_is_filled_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", PASSWORD)
    port = free_port()
    into = f"redis(port => {port}, keys => 'totals:', key => 'k', password => env('REDIS_PASSWORD'))"
    with Harness(spark=spark) as home:
        home.sql("CREATE STREAM s (k STRING, n INT); CREATE VIEW totals AS SELECT k, sum(n) AS n FROM s GROUP BY k")
        home.insert("s", [("a", 1)])
        with pytest.raises(SqlError, match="refused"):
            home.sql(f"CREATE SINK out FROM totals INTO {into}")
        with running(tmp_path, port) as client:
            home.sql(f"CREATE SINK out FROM totals INTO {into}")
            home.insert("s", [("a", 2), ("b", 5)])
            assert {k: v[b"n"] for k, v in hashes(client, "totals:*").items()} == {b"totals:a": b"3", b"totals:b": b"5"}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            home.insert("s", [("b", 1)])
        assert any("sink out could not be written" in str(each.message) for each in told)
        with running(tmp_path, port) as client:
            home.insert("s", [("c", 1)])
            assert {k: v[b"n"] for k, v in hashes(client, "totals:*").items()} == {
                b"totals:a": b"3", b"totals:b": b"6", b"totals:c": b"1",
            }  # fmt: skip
            assert home.query("SELECT into, path, error FROM sys.sinks") == [
                ("redis", f"redis localhost:{port} totals:*", None)
            ]
            assert "env('REDIS_PASSWORD')" in str(home.query("SHOW CREATE SINK out"))
