"""The size of the next run, so that runs take about a given time: a function of the sizes and times of past runs.

A run has a fixed cost and a cost per row. Both are estimated, with decreasing weights for old runs. While a source has
a backlog, runs may take longer, since fewer runs cost less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: The default time of a run, in milliseconds, and the factor by which it may be longer during a backlog.
TARGET, PATIENCE = 250.0, 16
#: The rows of the first run, the limits of any run, and the maximum ratio between consecutive runs.
FIRST, LEAST, STEP = 100_000, 100, 4
#: The factor on the weight of a run after each later one.
_FADE = 0.7


@dataclass(frozen=True)
class Pace:
    """The maximum number of rows of the next run.

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
        """The pace after a run of `taken` rows."""
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
    """The cost of a run and of a row: the line of least squares through the runs, if it is meaningful."""
    mean_rows, mean_time = rows / weight, time / weight
    spread, together = squares / weight - mean_rows**2, products / weight - mean_rows * mean_time
    plain = max(mean_time, 0.001) / mean_rows
    if spread <= (mean_rows * 0.01) ** 2 or together <= 0:
        return 0.0, plain
    a_row = min(together / spread, plain)
    return mean_time - a_row * mean_rows, max(a_row, plain / 1000)
