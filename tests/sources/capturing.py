"""Capture functions for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

import anabranch

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: Places at which the next call fails, once each.
FAILURES: list[int] = []


def row(number: int) -> tuple[int, str, datetime]:
    return number, "abc"[number % 3], START + timedelta(seconds=number * 7 % 50)


@anabranch.capture("numbers", columns="n INT, k STRING, ts TIMESTAMP")
def numbers(position: int | None, *, upto: int, step: int = 1) -> Iterator[tuple[Any, int]]:
    """Numbered rows, a step at a time, in every form that there is."""
    at = position or 0
    upto = int(os.environ.get("UPTO", upto))
    while at < upto:
        if at in FAILURES:
            FAILURES.remove(at)
            raise ConnectionError("gone")
        rows = [row(number) for number in range(at, min(at + step, upto))]
        at += len(rows)
        if at % 3 == 0:
            yield rows, at
        elif at % 3 == 1:
            yield [dict(zip(("n", "k", "ts"), each, strict=True)) for each in rows], at
        else:
            yield pa.Table.from_pylist([dict(zip(("n", "k", "ts"), each, strict=True)) for each in rows]), at
        if at % 5 == 0:
            yield [], at


@anabranch.capture("odd", columns="a INT, b STRING")
def odd(position: int | None, *, what: str = "rows") -> Iterator[Any]:
    given: dict[str, list[Any]] = {
        "rows": [({"a": 1}, 1), ((2, "x"), 2), ([("3", "y"), (4.5, "z"), {"c": 1}, (1,)], [3, {"deep": None}])],
        "no position": [[(1, "x")]],
        "no json": [((1, "x"), object())],
        "other columns": [(pa.table({"z": [1]}), 1)],
    }
    if position is None:
        yield from given[what]


def plain(position: int | None) -> Iterator[tuple[Any, int]]:
    yield [(number,) for number in range(position or 0, 3)], 3
