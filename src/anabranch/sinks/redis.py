"""A sink that keeps what a view shows in Redis: a hash for each key, `INTO redis(keys => 'totals:', key => 'k')`.

A version goes in by one transaction (MULTI), and so does its number: what is there is one version as a whole, and the
number says which. A server that lost its data, or went back to older ones, says so by it, and is brought up to date.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import SinkError, did_you_mean
from anabranch.ledger.crash import reach
from anabranch.sinks.base import Owner
from anabranch.sinks.formats import json_text
from anabranch.sinks.kinds import SinkKind
from anabranch.sources.redis_server import AT_ONCE, SERVER_OPTIONS, Server, literally
from anabranch.sources.registry import Option
from anabranch.types import Field

if TYPE_CHECKING:
    from redis import Redis

#: Begins the name of the hash that says whose keys a prefix is of, and at which version they are.
MARKER = "_anabranch:"
#: The fields of a row, by name; those that are NULL are not there.
Fields = tuple[tuple[str, bytes], ...]
#: A hash has a field at least.
NOTHING: Fields = (("_null", b""),)


class RedisHashes:
    """The hashes under one prefix, which belong to one sink."""

    whole = False

    def __init__(self, options: Mapping[str, Any], owner: Owner) -> None:
        self.server = Server(options)
        self.prefix = str(options["keys"])
        self.key = [name.strip() for name in str(options["key"]).split(",")]
        self.marker = MARKER + self.prefix
        self.owner = owner

    def check(self, fields: Sequence[Field]) -> None:
        names = {field.name.lower(): field.name for field in fields}
        missing = next((name for name in self.key if name.lower() not in names), None)
        if missing is not None:
            raise SinkError(f"the view shows no column {missing}", hint=did_you_mean(missing, names.values()))
        with self.server.open() as client:
            taken = client.exists(self.marker) or next(self._keys(client), None) is not None
        if taken:
            hint = "give each sink a prefix of its own, with nothing under it"
            raise SinkError(f"Redis at {self.server.name} has keys {self.prefix}* already", hint=hint)

    def position(self) -> int | None:
        with self.server.open() as client:
            recorded = client.hgetall(self.marker)
            if not recorded and next(self._keys(client), None) is None:
                return None
        if {name: recorded.get(name.encode()) for name in self._owner} != self._owner:
            raise SinkError(
                f"the keys {self.prefix}* of Redis at {self.server.name} are not those of this sink",
                hint="delete them, and the whole answer is written again; or drop the sink",
            )
        return int(recorded[b"version"]) if b"version" in recorded else None

    def tidy(self) -> None:
        """Nothing is left unfinished but an answer without a version, which is written anew."""

    def start(self, version: int, rows: Any) -> None:
        self.position()  # whose keys they are
        with self.server.open() as client:
            client.hset(self.marker, mapping=self._owner)
            client.hdel(self.marker, "version")
            old = list(self._keys(client))
            for begin in range(0, len(old), AT_ONCE):
                client.delete(*old[begin : begin + AT_ONCE])
            there = list(self._changed(rows).items())
            for begin in range(0, len(there), AT_ONCE):
                pipeline = client.pipeline(transaction=False)
                for key, (fields, _) in there[begin : begin + AT_ONCE]:
                    pipeline.hset(key, mapping=dict(fields or ()))
                pipeline.execute()
            reach("before-sink-commit")
            client.hset(self.marker, "version", version)
            reach("after-sink-commit")

    def apply(self, version: int, changes: Any) -> None:
        position = self.position()
        if position is None:
            hint = "the whole answer is written there next"
            raise SinkError(f"Redis at {self.server.name} has lost the keys {self.prefix}*", hint=hint)
        if position >= version:
            return
        changed = self._changed(changes)
        with self.server.open() as client:
            fresh = [key for key, (fields, replaced) in changed.items() if fields is not None and not replaced]
            for begin in range(0, len(fresh), AT_ONCE):
                some = fresh[begin : begin + AT_ONCE]
                if client.exists(*some):
                    raise self._twice(next(key for key in some if client.exists(key)))
            transaction = client.pipeline(transaction=True)
            for key, (fields, _) in changed.items():
                transaction.delete(key)
                if fields is not None:
                    transaction.hset(key, mapping=dict(fields))
            transaction.hset(self.marker, "version", version)
            reach("before-sink-commit")
            transaction.execute()
            reach("after-sink-commit")

    def _changed(self, changes: Any) -> dict[bytes, tuple[Fields | None, bool]]:
        """The row that each key has afterwards, None for no row; and whether it had another one before."""
        names = {name.lower(): name for name in changes.column_names}
        own = [names[name.lower()] for name in self.key]
        net: dict[bytes, Counter[Fields]] = defaultdict(Counter)
        for row in changes.to_pylist():
            count = row.pop("_diff")
            fields = tuple((name, value_bytes(value)) for name, value in row.items() if value is not None)
            net[self._key([row[name] for name in own])][fields or NOTHING] += count
        found: dict[bytes, tuple[Fields | None, bool]] = {}
        for key, counts in net.items():
            rows = list(counts.elements())  # those that are there more often than before
            if len(rows) > 1:
                raise self._twice(key)
            taken = any(count < 0 for count in counts.values())
            if rows or taken:
                found[key] = rows[0] if rows else None, taken
        return found

    def _key(self, values: Sequence[Any]) -> bytes:
        """The key of a row: the prefix and the values, with colons between them; in values they have a \\ before."""
        texts = [b"\\N" if value is None else value_bytes(value).replace(b"\\", b"\\\\") for value in values]
        if len(texts) > 1:
            texts = [text.replace(b":", b"\\:") for text in texts]
        return self.prefix.encode() + b":".join(texts)

    def _keys(self, client: Redis) -> Iterator[bytes]:
        found: Iterator[bytes] = client.scan_iter(match=literally(self.prefix), count=AT_ONCE)
        return found

    def _twice(self, key: bytes) -> SinkError:
        columns = ", ".join(self.key)
        hint = f"{columns} must tell the rows of the view apart: drop the sink, and name other columns in key => '...'"
        return SinkError(f"the view shows two rows for the key {key.decode(errors='replace')}", hint=hint)

    @property
    def _owner(self) -> dict[Any, Any]:
        return {name: value.encode() for name, value in self.owner.to_json().items()}


def value_bytes(value: Any) -> bytes:
    """A value as Redis keeps it: texts and bytes as they are, lists and the like as JSON, times in UTC.

    >>> value_bytes("a"), value_bytes(True), value_bytes([1, None])
    (b'a', b'true', b'[1,null]')
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    text = json_text(value)
    return (text if isinstance(value, list | dict | tuple) else text.strip('"')).encode()


KINDS = (
    SinkKind(
        name="redis",
        doc="a hash for each key of what the view shows",
        example="redis(keys => 'totals:', key => 'k')",
        options=(
            Option(name="keys", doc="what keys begin with", required=True),
            Option(name="key", doc="the columns that tell rows apart, as in 'a, b'", required=True),
            *SERVER_OPTIONS,
        ),
        modules=("redis",),
        extra="redis",
        open=RedisHashes,
        where=lambda options: f"redis {Server(options).name} {options['keys']}*",
    ),
)
