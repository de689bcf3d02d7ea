"""A process that posts versions of changes, and may be killed; light, for it is started often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.sinks.base import Owner
from anabranch.sinks.webhook import Webhook


def changes(*rows: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "_diff": diff} for k, diff in rows])


def post(options: dict[str, Any], folder: str) -> None:
    target = Webhook(options, Owner("home", "sink", Path(folder)))
    for version in range((target.position() or 0) + 1, 5):
        (target.start if version == 1 else target.apply)(version, changes(*((f"{version}{c}", 1) for c in "abc")))
