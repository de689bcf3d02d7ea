"""Looking only at the keys that time or progress has come to decides what looking at all of them decides."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from anabranch.algebra.pending import Key, PendingIndex, PendingKeys
from anabranch.algebra.triggers import IDLE, Decision, Pending, Triggers, decide
from anabranch.engine.pending_table import PendingTable
from anabranch.types import Field

KEYS = (Field("k0", "string"), Field("k1", "bigint"))
LENGTH = 10


def end_of(key: Key) -> int | None:
    return None if key[1] is None else int(key[1]) + LENGTH


def table(folder: Path) -> PendingTable:
    """An empty one: the file says that a key waits for nothing any more."""
    lines = {"k0": ["x"], "k1": [1], "records": [0], "armed": [False], "_version": [2]}
    types = {"k0": pa.string(), "armed": pa.bool_()}
    arrays = {name: pa.array(values, types.get(name, pa.int64())) for name, values in lines.items()}
    empty = pa.array([None], pa.int64())
    parquet.write_table(pa.table({**arrays, "deadline": empty, "event_time": empty}), folder / "a.parquet")
    return PendingTable(KEYS, ((1, LENGTH),), [str(folder / "a.parquet")])


def some_triggers(chance: random.Random) -> Triggers:
    return Triggers(
        chance.choice([None, 2, 3]), chance.choice([None, 0, 4]), chance.random() < 0.5,
        chance.random() < 0.7, chance.random() < 0.3,
    )  # fmt: skip


def decided(
    triggers: Triggers, pending: dict[Key, Pending], records: Counter[Key], when: dict[str, Any]
) -> dict[Key, Decision]:
    every = {**records, **pending}
    return {key: decide(triggers, pending.get(key), records[key], end_of(key), **when) for key in every}


@pytest.mark.parametrize("kind", ["index", "table"])
@pytest.mark.parametrize("seed", range(6))
def test_what_fires_is_what_a_scan_of_all_keys_finds(kind: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    triggers = some_triggers(chance)
    kept: PendingKeys = PendingIndex(end_of) if kind == "index" else table(tmp_path)
    scanned: dict[Key, Pending] = {}
    now, before, looked, there = 0, None, 0, 0
    for run in range(60):
        now += chance.choice([0, 1, 3])
        moved = chance.choice([0, 1, 6])
        after = before if not moved else moved + (before if before is not None else -LENGTH)
        ended = run == 59
        keys: list[Key] = [
            (chance.choice("ab"), None if chance.random() < 0.1 else chance.randrange(80)) for _ in range(3)
        ]
        records = Counter(keys)
        when = {"now": now, "before": before, "after": after, "ended": ended}

        first = min((end for key in scanned if (end := end_of(key)) is not None), default=None)
        assert len(kept) == len(scanned) and kept.earliest() == first
        assert kept.due(now) == any(each.deadline is not None and each.deadline <= now for each in scanned.values())
        if after is not None:
            ends = Counter(
                end for key, each in scanned.items()
                if each.armed and key not in records and (end := end_of(key)) is not None
                and (before is None or before < end) and end <= after
            )  # fmt: skip
            assert kept.ends(before, after, set(records)) == ends
        found = kept.everything() if ended else kept.touched(now, after)
        found |= kept.of(key for key in records if key not in found)
        looked, there = looked + len(found), there + len(scanned)
        all_of_them, some = decided(triggers, scanned, records, when), decided(triggers, found, records, when)
        assert {k for k, each in all_of_them.items() if each.fires} == {k for k, each in some.items() if each.fires}
        kept.update({key: each.after or IDLE for key, each in some.items()})
        scanned = {key: each.after for key, each in all_of_them.items() if each.after is not None}
        assert kept.everything() == scanned
        before = after
    assert looked < max(there, 60), "all keys were looked at"
