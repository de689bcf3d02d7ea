"""The chains of rows that sessions are made of, followed from some rows: as the plain function of sessions says."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from anabranch.algebra.windows import sessions
from anabranch.duck import connect
from anabranch.engine.maintain.sessions import ALL, SEEDS, chains_sql

GAP = 5


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_goes_as_far_as_the_sessions_that_rows_touch(seed: int) -> None:
    """Followed far enough it is whole, and reaches from the first session that rows touch to the last one."""
    dice = random.Random(seed)
    rows = [(dice.choice(["a", "b", None]), dice.randrange(200)) for _ in range(60)]
    new = rows[:5]
    touched = {key: [time for each, time in new if each == key] for key, _ in new}
    duck = connect()
    duck.register("r", pa.table({"k": [k for k, _ in rows], "__t": [t for _, t in rows]}))
    duck.register(SEEDS, pa.table({
        "k0": pa.array(list(touched), pa.string()), ALL: [1] * len(touched),
        "low": [min(times) for times in touched.values()], "high": [max(times) for times in touched.values()],
    }))  # fmt: skip
    for far in (GAP, 4 * GAP, 300):
        found = {row[0]: row[2:] for row in duck.sql(chains_sql("(SELECT * FROM r)", ["k"], GAP, far)).fetchall()}
        for key, times in touched.items():
            own = sessions([time for each, time in rows if each == key], GAP)
            low = max(start for start, _ in own if start <= min(times))
            high = min(end - GAP for _, end in own if end - GAP >= max(times))
            *chain, whole = found[key]
            assert whole or far < 300
            if whole:
                assert chain == [low, high]
