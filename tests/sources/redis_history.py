"""A history of changes for tests, and a process that writes it to Redis; light, for it is started and killed often."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from anabranch.sinks.base import Owner
from anabranch.sinks.redis import RedisHashes

SCHEMA = pa.schema([("k", pa.string()), ("b", pa.int64()), ("n", pa.int64()), ("_diff", pa.int64())])
Change = tuple[str | None, int, int | None, int]


def changes(rows: list[Change]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def history(seed: int, versions: int) -> tuple[list[list[Change]], dict[tuple[str | None, int], int | None]]:
    """Changes of versions, a row a key at any time; and what is there at the end."""
    chance, there = random.Random(seed), dict[tuple[str | None, int], int | None]()
    found: list[list[Change]] = []
    for _ in range(versions):
        some: list[Change] = []
        keys = [(chance.choice([None, "", "a:", "a", "\\", "é\n"]), chance.randrange(2)) for _ in range(4)]
        for key in dict.fromkeys(keys):
            if key in there:
                some.append((*key, there.pop(key), -1))
            if chance.random() < 0.7:
                there[key] = chance.choice([None, 1, 2, 3])
                some.append((*key, there[key], 1))
        found.append(chance.sample(some, len(some)))
    return found, there


def write(options: dict[str, Any], seed: int, versions: int) -> None:
    """As a process does that goes on from where the target is."""
    target = RedisHashes(options, Owner("home", "sink"))
    position = target.position()
    for version, some in enumerate(history(seed, versions)[0], start=1):
        if position is None:
            target.start(version, changes(some))
            position = version
        else:
            target.apply(version, changes(some))
