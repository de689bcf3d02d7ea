"""What the runs of each stream captured from their sources, read from the records.

Not part of a snapshot, because the list grows with every run. Knows nothing of what was captured.
"""

from __future__ import annotations

import threading
from typing import Any

from anabranch.ledger.log import RecordLog
from anabranch.ledger.records import Record


class Captured:
    """What runs captured from their sources, by stream; read from the records once, then kept up to date."""

    def __init__(self, log: RecordLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._read = 0
        self._runs: dict[str, list[tuple[int, Any]]] = {}
        self._drops: dict[str, list[int]] = {}

    def add(self, record: Record) -> None:
        with self._lock:
            if self._read == record.version - 1 and self._read:
                self._take(record)

    def upto(self, stream: str, version: int) -> list[Any]:
        with self._lock:
            for record in self._log.records(self._read + 1, version):
                self._take(record)
            since = max((drop for drop in self._drops.get(stream, ()) if drop <= version), default=0)
            return [taken for at, taken in self._runs.get(stream, ()) if since <= at <= version]

    def _take(self, record: Record) -> None:
        for name, definition in record.catalog.items():
            if definition is None:
                self._drops.setdefault(name, []).append(record.version)
        for name, run in record.streams.items():
            if run.captured is not None:
                self._runs.setdefault(name, []).append((record.version, run.captured))
        self._read = record.version
