"""Avro in Kafka, written by fastavro: with a schema of the stream's own, and with those of a registry.

No registry can be had as a package here; a small server speaks the part of Confluent's REST API that is asked for.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, SourceError, SqlError
from anabranch.sources import avro_values
from anabranch.sql.checking import check_script
from anabranch.testing import Harness
from anabranch.types import Field
from sources.kafka_help import Topic
from sources.kafka_server import Broker, broker

fastavro = pytest.importorskip("fastavro", reason="NO AVRO: fastavro is not installed (anabranch[kafka])")
SCHEMA = {
    "type": "record",
    "name": "bid",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
WIDER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "more", "type": "int", "default": 0}]}
NARROWER = {**SCHEMA, "fields": SCHEMA["fields"][:3]}
AT = datetime(2024, 5, 1, tzinfo=timezone.utc)


def record(id: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "ts": AT, "price": Decimal("1.50"), "tags": ["a", "b"], "note": None, **more}


def written(schema: Any, row: dict[str, Any], id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return (b"" if id is None else b"\0" + id.to_bytes(4, "big")) + out.getvalue()


class Registry(ThreadingHTTPServer):
    """Schemas by number, and the newest for a subject; with a user and a password."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: dict[int, Any] = {}
        self.latest: dict[str, int] = {}
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        id = self.server.latest.get(parts[1]) if parts[0] == "subjects" else int(parts[-1])
        schema = self.server.schemas.get(id or 0)
        allowed = self.headers.get("Authorization") == "Basic bWU6c2VjcmV0LXdvcmQ="  # me:secret-word
        code = 401 if not allowed else 200 if schema is not None else 404
        body = json.dumps({"id": id, "schema": json.dumps(schema)} if code == 200 else {"error_code": code}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as found:
        yield found


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("format => 'avro'", "either a schema or a registry"),
        ("format => 'avro', schema => '{}', registry => 'http://x'", "either a schema or a registry"),
        ("format => 'avro', schema => '{'", "the schema is not JSON"),
        ("format => 'avro', registry => 'file:///etc/passwd'", "not a registry's address"),
        ("format => 'json', registry => 'http://x'", "for format => 'avro'"),
        ("format => 'protobuf'", "format cannot be 'protobuf'"),
        ("format => 'avro', registry => 'http://x', registry_password => 'p'", "must not be written down"),
    ],
)
def test_options_of_avro(options: str, message: str) -> None:
    found = check_script(f"CREATE STREAM s (a INT) FROM kafka(brokers => 'b', topic => 't', {options})")[0]
    assert message in found[0].message


def test_a_batch_of_values(registry: Registry) -> None:
    """Decoded as a task of Spark does it: one bad value among others is bad alone."""
    values = [written(SCHEMA, record(1), 7), b"", None, b"\0\0\0\0\x63abc", written(SCHEMA, record(2, note="n"), 7)]
    values += [values[0][:-4], values[0] + b"\0", b"\0\0\0\0\x07" + b"\xff" * 40]
    registry.schemas[7] = SCHEMA
    places = {"topic": ["t"] * 8, "partition": [0] * 8, "offset": list(range(8)), "value": values}
    columns = pa.schema([("ID", pa.int64()), ("note", pa.string()), ("gone", pa.int32())])
    fields = (Field("ID", "bigint"), Field("note", "string"), Field("gone", "int"))
    decoding = avro_values.Decoding(None, registry.address, "me:secret-word", fields, False, False)
    found = avro_values.decoded(pa.RecordBatch.from_pydict(places), decoding, columns).to_pydict()
    assert found["v0"] == [1, None, None, None, 2, None, None, None]
    assert found["v1"] == [None, None, None, None, "n", None, None, None] and set(found["v2"]) == {None}
    bad = [at for at, text in enumerate(found["wrong"]) if text is not None]
    assert bad == [1, 3, 5, 6, 7] and bytes.fromhex(found["wrong"][6]) == values[6]
    assert avro_values.why(values[3], decoding, columns)[0] == "the registry has no schema 99"
    # A type that no value fits is a bad row, too, and names its column.
    odd = pa.schema([("note", pa.int64())])
    found = avro_values.decoded(pa.RecordBatch.from_pydict(places), decoding, odd).to_pydict()
    assert [at for at, text in enumerate(found["wrong"]) if text is not None] == [1, 3, 4, 5, 6, 7]
    assert avro_values.why(values[4], decoding, odd) == ("its value does not fit the type of the column", "note")
    strict = replace(decoding, strict=True)
    with pytest.raises(SourceError, match=r"t/0 at offset 0, written with schema 7, .* missing: gone INT"):
        avro_values.decoded(pa.RecordBatch.from_pydict(places), strict, columns)
    names = {field.name: field.type for field in replace(decoding, schema=json.dumps(SCHEMA)).columns("t")}
    assert names == {
        "id": "bigint", "ts": "timestamp", "price": "decimal(9,2)", "tags": "array<string>", "note": "string"
    }  # fmt: skip


@pytest.mark.spark
def test_values_of_one_schema(home: Harness, server: Broker) -> None:
    topic = Topic(server, 1)
    good = [written(SCHEMA, record(id, note="x" if id % 2 else None)) for id in range(3)]
    topic.send([(0, value) for value in (*good, b"", good[0][:-3], good[0] + b"\0", None)])
    text = json.dumps(SCHEMA)
    home.sql(f"CREATE STREAM s FROM {topic.source(format='avro', schema=text)}")
    home.sql(f"CREATE STREAM few (ID INT, note STRING, _offset BIGINT) FROM {topic.source(format='avro', schema=text)}")
    home.sql(f"CREATE STREAM odd (note BIGINT) FROM {topic.source(format='avro', schema=text)}")
    whole = (1, AT.replace(tzinfo=None), Decimal("1.50"), ["a", "b"], "x")
    assert home.query("SELECT * FROM s WHERE id = 1") == [whole]
    rows = home.query("SELECT ID, note, _offset FROM few ORDER BY _offset")
    assert rows == [(0, None, 0), (1, "x", 1), (2, None, 2), (None, None, 6)]
    assert home.query("SELECT count(*), count(note) FROM odd") == [(3, 0)]
    bad = home.query("SELECT offset, reason, `column` FROM sys.bad_rows WHERE stream = 'odd' ORDER BY offset")
    assert [row[0] for row in bad] == [1, 3, 4, 5] and bad[0][2] == "note"
    assert "it has more than its schema" in bad[3][1]
    with pytest.raises(SqlError, match="Avro schema"):
        home.sql(f"CREATE STREAM x FROM {topic.source(format='avro', schema='[]')}")


@pytest.mark.spark
def test_schemas_of_a_registry(
    home: Harness, server: Broker, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret-word")
    topic = Topic(server, 1)
    registry.schemas |= {7: SCHEMA, 8: WIDER, 9: NARROWER}
    registry.latest[f"{topic.name}-value"] = 7
    options = {"format": "avro", "registry": registry.address, "registry_user": "me"}
    source = topic.source(**options, registry_password="env('REGISTRY_PASSWORD')")
    topic.send([(0, written(SCHEMA, record(1), 7)), (0, b"\0\0\0\0\x63abc"), (0, b"{}")])
    for name, policy in (("strict", "FAIL"), ("loose", "IGNORE")):
        home.sql(f"CREATE STREAM {name} FROM {source} ON SCHEMA CHANGE {policy}")
        assert home.query(f"SELECT id, price, tags FROM {name}") == [(1, Decimal("1.50"), ["a", "b"])]
    bad = home.query("SELECT reason FROM sys.bad_rows WHERE stream = 'strict' ORDER BY offset")
    assert "no schema 99" in bad[0][0] and "does not begin with the number" in bad[1][0]
    home.sql(f"CREATE STREAM chosen (id BIGINT) FROM {source}; CREATE VIEW c AS SELECT id FROM chosen")
    topic.send([(0, written(WIDER, record(2, more=5), 8)), (0, written(NARROWER, record(3), 9))])
    assert home.query("SELECT id, tags FROM loose ORDER BY id") == [(1, ["a", "b"]), (2, ["a", "b"]), (3, None)]
    assert home.query("SELECT id FROM c ORDER BY id") == [(1,), (2,), (3,)]
    with pytest.raises(AnabranchError, match=r"offset 3, written with schema 8, has other columns .* new: more"):
        home.query("SELECT count(*) FROM strict")
    monkeypatch.setenv("REGISTRY_PASSWORD", "wrong-word")
    with pytest.raises(AnabranchError, match="HTTP 401") as refused:
        home.sql(f"CREATE STREAM other FROM {source}")
    assert "wrong-word" not in str(refused.value)
