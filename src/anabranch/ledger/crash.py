"""Crash points: named points at which a test can kill the process.

Knows nothing of the ledger. In normal use `reach` costs one lookup in the environment.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "ANABRANCH_CRASH_AT"

_lock = threading.Lock()
_reached: dict[str, int] = {}


def reach(name: str) -> None:
    """Die here, without any clean-up, if the environment says so.

    `ANABRANCH_CRASH_AT=before-record` kills the first time that point is reached, `before-record:3` the third time.
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    place, _, times = wanted.partition(":")
    if place != name:
        return
    with _lock:
        _reached[name] = _reached.get(name, 0) + 1
        now = _reached[name] == int(times or "1")
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
