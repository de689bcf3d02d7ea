"""Hashes of a Redis server: `redis(keys => 'user:*')` has a row for each, with its key and its fields as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from anabranch.sources.lookup import ASKING_OPTIONS, LookupSource, check_asking
from anabranch.sources.redis_server import AT_ONCE, SERVER_OPTIONS, Server, matcher
from anabranch.sources.registry import Kind, Option, WrongOption
from anabranch.sources.values import table_of
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

#: So many hashes are looked at for their fields where no columns are declared.
SAMPLED = 1000
HINT = "give the column another type: CREATE TABLE t ({} STRING, ...) FROM redis(...)"

#: A key, and the fields of its hash.
Found = tuple[bytes, Mapping[bytes, bytes]]


class RedisTable(LookupSource):
    """The hashes under keys that match a pattern. Values of other types are left out."""

    def __init__(self, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> None:
        self.server = Server(options)
        self.pattern = str(options["keys"])
        self.key = str(options.get("key", "key"))
        self._fields = declared
        for field in declared or ():
            if field.name == self.key and field.type != "string":
                hint = "or give the column of keys another name: key => '...'"
                raise WrongOption("keys", f"the keys of Redis are a STRING, not {field.type.upper()}", hint=hint)

    def fields(self) -> tuple[Field, ...]:
        if self._fields is None:
            names = {self.key: None}
            for _, values in islice(self._all(), SAMPLED):
                names |= dict.fromkeys(name.decode(errors="replace") for name in values)
            lower: dict[str, str] = {}
            for name in names:
                lower.setdefault(name.lower(), name)  # columns have names in any case
            if len(lower) == 1:
                hint = "name the columns: CREATE TABLE t (key STRING, name STRING, ...) FROM redis(...)"
                raise WrongOption("keys", f"Redis at {self.server.name} has no hash {self.pattern}", hint=hint)
            self._fields = tuple(Field(name, "string") for name in lower.values())
        return self._fields

    def size(self) -> int | None:
        with self.server.open() as client:
            return int(client.dbsize())

    def fetch(self, columns: tuple[str, ...], by: tuple[str, ...], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        if self.key in by:  # rows that differ elsewhere do no harm
            place, own = by.index(self.key), matcher(self.pattern)
            wanted = dict.fromkeys(str(key[place]).encode() for key in keys)
            return self._table(columns, self._hashes([key for key in wanted if own.fullmatch(key)]))
        return super().fetch(columns, by, keys)

    def read(self) -> pa.Table:
        return self._table([field.name for field in self.fields()], self._all())

    def _all(self) -> Iterator[Found]:
        """Every hash there is, found by a cursor, which may come past a key more than once."""
        with self.server.open() as client:
            seen: set[bytes] = set()
            found = client.scan_iter(match=self.pattern, count=AT_ONCE, _type="hash")
            while some := list(islice(found, AT_ONCE)):
                fresh = [key for key in dict.fromkeys(some) if key not in seen]
                seen.update(fresh)
                yield from self._hashes(fresh)

    def _hashes(self, keys: Sequence[bytes]) -> Iterator[Found]:
        with self.server.open() as client:
            for start in range(0, len(keys), AT_ONCE):
                some = keys[start : start + AT_ONCE]
                pipeline = client.pipeline(transaction=False)
                for key in some:
                    pipeline.hgetall(key)
                for key, values in zip(some, pipeline.execute(raise_on_error=False), strict=True):
                    if isinstance(values, dict) and values:  # neither gone, nor of another type
                        yield key, values
                    elif isinstance(values, Exception) and "WRONGTYPE" not in str(values):
                        raise values

    def _table(self, columns: Sequence[str], found: Iterable[Found]) -> pa.Table:
        types = {field.name: field for field in self.fields()}
        names = [(name, name.encode()) for name in columns]
        rows = [[_text(key if name == self.key else values.get(raw), types[name].type) for name, raw in names]
                for key, values in found]  # fmt: skip
        return table_of([types[name] for name in columns], rows, f"Redis at {self.server.name}: a value of ", HINT)


def _text(value: bytes | None, type: str) -> Any:
    return value if value is None or type == "binary" else value.decode(errors="replace")


KINDS = (
    Kind(
        name="redis",
        doc="the hashes of a Redis server, a row each",
        example="redis(keys => 'user:*')",
        options=(
            Option(name="keys", doc="a pattern of keys, as in 'user:*'", required=True),
            *SERVER_OPTIONS,
            Option(name="key", doc="the name of the column with the key", default="key"),
            *ASKING_OPTIONS,
        ),
        table=RedisTable,
        check=check_asking,
        modules=("redis",),
        extra="redis",
        abilities=("read by key",),
    ),
)
