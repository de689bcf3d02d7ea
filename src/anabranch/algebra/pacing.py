"""How many rows the next run takes, so that runs take about a given time: a function of the sizes and times of runs.

A run costs something whatever it takes, and something a row. Both are estimated, old runs counting less and less. While
a source has more than runs take, runs may take longer: fewer of them cost less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: The time of a run if nobody says one, in milliseconds, and how many times as long it may be while rows wait.
TARGET, PATIENCE = 250.0, 16
#: What the first run takes, what any run may take, and by how much one may differ from the one before.
FIRST, LEAST, STEP = 100_000, 100, 4
#: What a run counts after each one that follows.
_FADE = 0.7


@dataclass(frozen=True)
class Pace:
    """How many rows the next run takes at the most.

    >>> pace = Pace(250.0)
    >>> for _ in range(9):
    ...     pace = pace.after(5_000, 100.0)
    >>> pace.rows
    12500
    """

    target: float = TARGET
    rows: int = FIRST
    patience: int = 1
    _sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)  # of 1, rows, time, rows², rows * time

    def after(self, taken: int, milliseconds: float) -> Pace:
        """The pace after a run of so many rows that took so long."""
        if taken <= 0:
            return self
        seen = (1.0, float(taken), milliseconds, float(taken) ** 2, taken * milliseconds)
        sums = tuple(old * _FADE + new for old, new in zip(self._sums, seen, strict=True))
        patience = min(self.patience * 2, PATIENCE) if taken * 2 >= self.rows else 1
        fixed, a_row = _costs(*sums)
        aim = self.target * patience
        wanted = max(aim - fixed, aim / 2) / a_row
        rows = min(max(wanted, self.rows / STEP), self.rows * STEP)
        return replace(self, rows=max(LEAST, round(rows)), patience=patience, _sums=sums)


def _costs(weight: float, rows: float, time: float, squares: float, products: float) -> tuple[float, float]:
    """What a run costs, and what a row costs: the line that is nearest to the runs, if it says something."""
    mean_rows, mean_time = rows / weight, time / weight
    spread, together = squares / weight - mean_rows**2, products / weight - mean_rows * mean_time
    plain = max(mean_time, 0.001) / mean_rows
    if spread <= (mean_rows * 0.01) ** 2 or together <= 0:
        return 0.0, plain
    a_row = min(together / spread, plain)
    return mean_time - a_row * mean_rows, max(a_row, plain / 1000)
