"""How much of the memory of this process goes to what views keep between runs: one budget for all sessions.

Sizes are estimated from rows and types before anything is loaded. It knows nothing of what is kept, or where.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable

from anabranch.plan.types import duckdb_type

#: Bytes of a value in memory, by the beginning of its type; texts and the like are taken to be short.
_WIDTHS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "DATE": 4, "FLOAT": 4, "BIGINT": 8, "DOUBLE": 8}
_WIDTHS |= {"TIMESTAMP": 8, "HUGEINT": 16, "DECIMAL": 16}
_TEXT = 40


def estimated(rows: int, types: Iterable[str]) -> int:
    """About how many bytes rows with columns of these types take as a table in memory.

    >>> estimated(1_000_000, ["bigint", "int", "string"])
    52000000
    """
    kinds = [duckdb_type(each) or "" for each in types]
    return rows * sum(next((w for name, w in _WIDTHS.items() if kind.startswith(name)), _TEXT) for kind in kinds)


class Budget:
    """Who holds how much, by estimate."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Hashable, int] = {}

    def take(self, owner: Hashable, size: int, limit: int) -> bool:
        """Let somebody hold so much, in place of what they hold, if all together stay within a limit.

        One may hold half of it, or the first to come would leave nothing to the others.
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


#: The one of this process.
BUDGET = Budget()
