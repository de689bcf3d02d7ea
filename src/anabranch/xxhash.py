"""XXH64 with the seed of Spark's xxhash64, for DuckDB, which has no such function."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

SEED = 42
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = (1 << 64) - 1


def xxhash64(data: bytes) -> int:
    """The hash of some bytes, as a signed number.

    >>> xxhash64(b"Spark"), xxhash64((7).to_bytes(8, "little"))
    (-4294468057691064905, -2864211556195259663)
    """
    size, at = len(data), 0
    if size >= 32:
        lanes = [SEED + _P1 + _P2, SEED + _P2, SEED, SEED - _P1]
        for at in range(0, size - 31, 32):
            lanes = [
                _added(lane, data[start : start + 8]) for lane, start in zip(lanes, range(at, at + 32, 8), strict=True)
            ]
        at += 32
        hash = sum(_turned(lane & _ALL, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            hash = (hash & _ALL ^ _added(0, lane.to_bytes(8, "little"))) * _P1 + _P4
    else:
        hash = SEED + _P5
    hash = hash + size & _ALL
    while at + 8 <= size:
        hash = _turned(hash ^ _added(0, data[at : at + 8]), 27) * _P1 + _P4 & _ALL
        at += 8
    if at + 4 <= size:
        word = int.from_bytes(data[at : at + 4], "little")
        hash = _turned(hash ^ word * _P1 & _ALL, 23) * _P2 + _P3 & _ALL
        at += 4
    for byte in data[at:]:
        hash = _turned(hash ^ byte * _P5 & _ALL, 11) * _P1 & _ALL
    hash = (hash ^ hash >> 33) * _P2 & _ALL
    hash = (hash ^ hash >> 29) * _P3 & _ALL
    hash ^= hash >> 32
    return hash - (hash >> 63 << 64)


def _turned(number: int, bits: int) -> int:
    """64 bits, turned to the left."""
    return number << bits & _ALL | number >> 64 - bits


def _added(lane: int, word: bytes) -> int:
    return _turned(lane + int.from_bytes(word, "little") * _P2 & _ALL, 31) * _P1 & _ALL


def arrow_rows() -> bool:
    """Whether DuckDB can call functions of Python's: it wants numpy for them, which few others of us do."""
    return importlib.util.find_spec("numpy") is not None


def register(duck: duckdb.DuckDBPyConnection) -> None:
    """Make the functions known that hash a value as Spark stores it: in 4 bytes, in 8, or as a text."""
    if not arrow_rows():
        return
    from duckdb.func import PythonUDFType

    def hashing(stored: Callable[[Any], bytes]) -> Callable[[Any], Any]:
        def of_rows(values: Any) -> Any:
            import pyarrow as pa

            encoded = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            encoded = encoded.dictionary_encode()  # a value that comes often is hashed once
            return pa.array(_hashes(encoded.dictionary.to_pylist(), stored), pa.int64()).take(encoded.indices)

        return of_rows

    for name, type, stored in (
        ("__xxhash_int", "INTEGER", lambda value: value.to_bytes(4, "little", signed=True)),
        ("__xxhash_bigint", "BIGINT", lambda value: value.to_bytes(8, "little", signed=True)),
        ("__xxhash_text", "VARCHAR", str.encode),
    ):
        duck.create_function(name, hashing(stored), [type], "BIGINT", type=PythonUDFType.ARROW)


def _hashes(values: Iterable[Any], stored: Callable[[Any], bytes]) -> list[int]:
    return [xxhash64(stored(value)) for value in values]
