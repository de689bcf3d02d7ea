"""The memory budget for what views keep between runs: one for all sessions of this process.

Sizes are estimated from rows and types before anything is loaded. Knows nothing of what is kept, or where.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable

from anabranch.plan.types import duckdb_type

#: Bytes of a value in memory, by the prefix of its type; texts and the like are assumed to be short.
_WIDTHS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "DATE": 4, "FLOAT": 4, "BIGINT": 8, "DOUBLE": 8}
_WIDTHS |= {"TIMESTAMP": 8, "HUGEINT": 16, "DECIMAL": 16}
_TEXT = 40


def estimated(rows: int, types: Iterable[str]) -> int:
    """The estimated bytes of rows with columns of these types as a table in memory.

    >>> estimated(1_000_000, ["bigint", "int", "string"])
    52000000
    """
    kinds = [duckdb_type(each) or "" for each in types]
    return rows * sum(next((w for name, w in _WIDTHS.items() if kind.startswith(name)), _TEXT) for kind in kinds)


class Budget:
    """The estimated memory of each owner."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Hashable, int] = {}

    def take(self, owner: Hashable, size: int, limit: int) -> bool:
        """Set the size of an owner, if the total is within a limit.

        One owner may hold half of it, or the first would leave nothing for the others.
        """
        with self._lock:
            others = sum(held for each, held in self._held.items() if each != owner)
            fits = size <= limit // 2 and size + others <= limit
            if fits:
                self._held[owner] = size
            else:
                self._held.pop(owner, None)
            return fits

    def release(self, owner: Hashable) -> None:
        with self._lock:
            self._held.pop(owner, None)

    @property
    def total(self) -> int:
        with self._lock:
            return sum(self._held.values())


#: The budget of this process.
BUDGET = Budget()
