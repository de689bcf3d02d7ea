"""Where work runs: on the driver, or in Spark's jobs.

Spark can do all of it, at any size and on any master. The driver's engine spares jobs over little data: it is asked
where the work is small, it may decline what it does not compute as Spark does, and every answer is the same without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

#: Who computes: "auto" goes by size; "driver" whatever the size, but for what it declines; "spark" all of it.
Backend = Literal["auto", "spark", "driver"]


@dataclass(frozen=True)
class Limits:
    """Up to how much the driver takes on."""

    run_bytes: int  # of the rows of a run
    rows: int  # new rows of a node
    state_rows: int  # rows that they are computed beside


#: Beside machines of a cluster; and where Spark has this machine alone, so that the driver has as many cores.
BESIDE_OTHERS = Limits(4 << 20, 200_000, 20_000_000)
ALONE = Limits(64 << 20, 5_000_000, 100_000_000)
#: Rows of a run up to this size are little: nobody gains by splitting them.
LITTLE_BYTES = BESIDE_OTHERS.run_bytes


class Place:
    """Decides for one open home where work runs."""

    def __init__(self, backend: Backend, is_single_machine: Callable[[], bool]) -> None:
        self.backend = backend
        self._is_single_machine = is_single_machine

    @property
    def driver(self) -> bool:
        """Whether the driver may compute anything."""
        return self.backend != "spark"

    @property
    def limits(self) -> Limits:
        return ALONE if self._is_single_machine() else BESIDE_OTHERS

    def takes_little(self, size: int) -> bool:
        """Whether the driver takes what it can of the rows of a run, and leaves the rest of the run to Spark."""
        return self.driver and size <= LITTLE_BYTES

    def takes_run(self, size: int) -> bool:
        """Whether the driver takes all of a run, if it declines none of it."""
        return self.driver and (self.backend == "driver" or size <= self.limits.run_bytes)

    def takes_changes(self, rows: int, state: int) -> bool:
        """Whether the driver computes the changes of a node: so many new rows, beside so many that are kept."""
        if not self.driver:
            return False
        limits = self.limits
        return self.backend == "driver" or (rows <= limits.rows and state <= limits.state_rows)

    def takes_answer(self, rows: int) -> bool:
        """Whether the driver answers a question about so many rows."""
        if self.backend == "driver":
            return True
        return self.driver and self._is_single_machine() and rows <= ALONE.state_rows
