"""Values of Avro as columns: schemas from an option or a registry, messages decoded where they are read.

With a registry a value begins with a zero and the number of the schema that it was written with, in four bytes. What is
here runs on the driver and in Spark's tasks alike.
"""

from __future__ import annotations

import base64
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import secrets
from anabranch.sources.registry import Option
from anabranch.sources.schemas import compare
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = (
    Option(name="schema", doc="of avro: the schema of all values, as JSON"),
    Option(name="registry", doc="of avro: the address of a schema registry, as in 'http://registry:8081'"),
    Option(name="registry_user", doc="who asks the registry"),
    Option(name="registry_password", doc="of that user", secret=True),
)
#: How long the registry is waited for, in seconds, and how often it is asked while it does not answer.
PATIENCE, TRIES = 10, 5
_PLAIN = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "bytes": "binary", "fixed": "binary", "string": "string", "enum": "string",
}  # fmt: skip
_LOGICAL = {
    "date": "date", "timestamp-millis": "timestamp", "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp", "local-timestamp-micros": "timestamp", "uuid": "string",
    "time-millis": "string", "time-micros": "string",
}  # fmt: skip


class Undecodable(Exception):
    """Why a value is no row."""


@dataclass(frozen=True)
class Decoding:
    """What is needed to decode the values of a stream."""

    schema: str | None
    registry: str | None
    credentials: str | None
    fields: tuple[Field, ...]
    strict: bool  # ON SCHEMA CHANGE FAIL
    inferred: bool

    @classmethod
    def of(cls, options: Mapping[str, Any], fields: Sequence[Field], *, strict: bool, inferred: bool) -> Decoding:
        names = ("registry_user", "registry_password")
        known = secrets.resolve({name: options[name] for name in names if name in options})
        user = f"{known.get('registry_user', '')}:{known.get('registry_password', '')}" if known else None
        return cls(options.get("schema"), options.get("registry"), user, tuple(fields), strict, inferred)

    def columns(self, topic: str | None) -> tuple[Field, ...]:
        """The columns of the schema; with a registry, of the newest one for values of the topic."""
        if self.schema is not None:
            return fields_of(_parsed(self.schema))
        subject = urllib.parse.quote(f"{topic}-value", safe="")
        found = self._fetch(f"/subjects/{subject}/versions/latest")
        if found is None:
            raise SourceError(f"the registry at {self.registry} has no schema {topic}-value", hint="name the columns")
        return fields_of(_parsed(_text_of(found)))

    def by_id(self, id: int) -> Any:
        """The schema of a number; None if the registry has none."""
        key = self.registry, id
        if key not in _KNOWN:
            found = self._fetch(f"/schemas/ids/{id}")
            if found is None:
                return None
            _KNOWN[key] = _parsed(_text_of(found))
        return _KNOWN[key]

    def _fetch(self, path: str) -> Any:
        """An answer of the registry; None if what was asked for is not there."""
        request = urllib.request.Request(f"{str(self.registry).rstrip('/')}{path}")
        if self.credentials is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(self.credentials.encode()).decode()}")
        detail = ""
        for attempt in range(TRIES):
            try:
                with _OPENER.open(request, timeout=PATIENCE) as answer:
                    return json.loads(answer.read(16 << 20))
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                detail = f"HTTP {error.code}"
                if error.code < 500:
                    break
            except (OSError, ValueError) as error:
                detail = type(error).__name__
            time.sleep(0.2 * attempt)
        hint = "check registry, registry_user and registry_password"
        raise SourceError(f"the registry at {self.registry} does not answer: {detail}", hint=hint)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A password is for the address that was given, and for no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)
_KNOWN: dict[tuple[str | None, int], Any] = {}


def check(options: Mapping[str, Any]) -> None:
    """Raise SourceError unless it is clear what values are written with."""
    given = [name for name in ("schema", "registry") if name in options]
    if options.get("format") != "avro":
        if any(option.name in options for option in OPTIONS):
            raise SourceError("a schema and a registry are for format => 'avro'")
        return
    if len(given) != 1:
        raise SourceError("avro needs either a schema or a registry", hint='schema => \'{"type": "record", ...}\'')
    if "registry" in options and not str(options["registry"]).startswith(("http://", "https://")):
        raise SourceError(f"{options['registry']!r} is not a registry's address", hint="as in 'http://registry:8081'")
    if "schema" in options:
        try:
            json.loads(str(options["schema"]))
        except ValueError as error:
            raise SourceError(f"the schema is not JSON: {error}") from None


def _text_of(found: Any) -> str:
    kind = found.get("schemaType", "AVRO")
    if kind != "AVRO" or found.get("references"):
        what = "refers to others" if found.get("references") else f"is one of {str(kind)[:20]}"
        raise SourceError(f"the schema in the registry {what}: only Avro schemas that stand alone are read")
    return str(found["schema"])


def _parsed(text: str) -> Any:
    import fastavro

    try:
        schema = fastavro.parse_schema(json.loads(text))
    except Exception as error:  # whatever a hostile schema does to it
        raise SourceError(f"the Avro schema cannot be read: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SourceError("the Avro schema is not that of a record", hint="values have to be records of named fields")
    return schema


def fields_of(schema: Any) -> tuple[Field, ...]:
    """The columns of a record.

    >>> fields_of({"fields": [{"name": "a", "type": ["null", "long"]}]})
    (Field(name='a', type='bigint'),)
    """
    return tuple(Field(each["name"], _type_of(each["type"], {})) for each in schema["fields"])


def _type_of(kind: Any, named: dict[str, Any]) -> str:
    if isinstance(kind, list):
        some = [each for each in kind if each != "null"]
        if len(some) != 1:
            raise SourceError("a union of several types cannot be a column", hint="name the columns that are")
        return _type_of(some[0], named)
    if isinstance(kind, str):
        if kind not in _PLAIN:
            raise SourceError(f"the Avro type {kind} cannot be a column", hint="name the columns that are")
        return _PLAIN[kind]
    if kind.get("logicalType") == "decimal":
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    if kind.get("logicalType") in _LOGICAL:
        return _LOGICAL[kind["logicalType"]]
    inner = kind["type"]
    if inner == "record":
        return f"struct<{','.join(f'{f.name}:{f.type}' for f in fields_of(kind))}>"
    if inner == "array":
        return f"array<{_type_of(kind['items'], named)}>"
    if inner == "map":
        return f"map<string,{_type_of(kind['values'], named)}>"
    return _type_of(inner, named)


def record_of(value: bytes, decoding: Decoding, fixed: Any, where: str) -> dict[str, Any]:
    """The record in a value; raises Undecodable if there is none, SourceError if columns changed."""
    import fastavro

    schema = fixed
    if fixed is None:
        if len(value) < 5 or value[0]:
            raise Undecodable("it does not begin with the number of a schema of the registry")
        id, value = int.from_bytes(value[1:5], "big"), value[5:]
        schema = decoding.by_id(id)
        if schema is None:
            raise Undecodable(f"the registry has no schema {id}")
        if decoding.strict:
            written = f"{where}, written with schema {id},"
            change = compare(written, readable_fields(schema), decoding.fields, inferred=decoding.inferred)
            if change is not None:
                raise change.error()
    rest = io.BytesIO(value)
    try:
        record: Any = fastavro.schemaless_reader(rest, schema, None)
    except Exception as error:  # whatever hostile bytes do to it
        raise Undecodable(f"it does not match its schema: {type(error).__name__}") from None
    if rest.tell() != len(value):
        raise Undecodable("it has more than its schema")
    return {name.lower(): each for name, each in record.items()}


def readable_fields(schema: Any) -> tuple[Field, ...]:
    """The columns of a schema; one that no column has the type of has none."""
    found = []
    for each in schema["fields"]:
        try:
            found.append(Field(each["name"], _type_of(each["type"], {})))
        except SourceError:
            found.append(Field(each["name"], ""))
    return tuple(found)


def decoded(batch: pa.RecordBatch, decoding: Decoding, columns: pa.Schema) -> pa.RecordBatch:
    """Messages with the fields of their values in the place of these; of one that has none, all of it in hex."""
    import pyarrow as pa

    fixed = None if decoding.schema is None else _parsed(decoding.schema)
    values = batch.column("value").to_pylist()
    topics, numbers, offsets = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    rows: list[dict[str, Any]] = []
    wrong: list[str | None] = [None] * len(values)
    for at, value in enumerate(values):
        try:
            where = f"the message {topics[at]}/{numbers[at]} at offset {offsets[at]}"
            rows.append({} if value is None else record_of(value, decoding, fixed, where))
        except Undecodable:
            rows.append({})
            wrong[at] = value.hex()
    try:
        arrays = arrays_of(rows, columns)
    except _UNFIT:
        for at, row in enumerate(rows):
            if misfit(row, columns) is not None:
                rows[at], wrong[at] = {}, values[at].hex()
        arrays = arrays_of(rows, columns)
    kept = [(name, batch.column(name)) for name in batch.schema.names if name != "value"]
    made = [*kept, *((f"v{at}", array) for at, array in enumerate(arrays)), ("wrong", pa.array(wrong, pa.string()))]
    return pa.RecordBatch.from_arrays([each for _, each in made], names=[name for name, _ in made])


def why(value: bytes, decoding: Decoding, columns: pa.Schema) -> tuple[str, str | None]:
    """Why a value is no row, and the column that is to blame, if one is."""
    fixed = None if decoding.schema is None else _parsed(decoding.schema)
    try:
        column = misfit(record_of(value, decoding, fixed, "it"), columns)
    except (Undecodable, SourceError) as error:
        return str(error), None
    return "its value does not fit the type of the column", column


def misfit(row: Mapping[str, Any], columns: pa.Schema) -> str | None:
    """The first column whose value in a row is of another type."""
    import pyarrow as pa

    for each in columns:
        try:
            arrays_of([row], pa.schema([each]))
        except _UNFIT:
            return str(each.name)
    return None


#: What Arrow raises for values that are not of a type; its own errors are among them.
_UNFIT = (ValueError, TypeError, OverflowError, ArithmeticError)


def arrays_of(rows: Sequence[Mapping[str, Any]], columns: pa.Schema) -> list[Any]:
    import pyarrow as pa

    return [pa.array([_plain(row.get(each.name.lower())) for row in rows], each.type) for each in columns]


def _plain(value: Any) -> Any:
    """What Arrow has no type of, as a text."""
    import datetime
    import uuid

    return str(value) if isinstance(value, uuid.UUID | datetime.time) else value


def decode_all(batches: Iterable[pa.RecordBatch], decoding: Decoding, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            yield decoded(batch, decoding, columns)
    except SourceError as error:  # says all; a traceback of this file adds nothing
        raise RuntimeError(str(error)) from None
