"""Late rows for windows that were shown: counted in `sys.late_rows`, and refused where a view is made to fail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.engine.core import Core
from anabranch.engine.trigger import table_of
from anabranch.engine.writing import write_table
from anabranch.errors import QueryFailed
from anabranch.ledger import DataFile
from anabranch.plan.catalog import Field, View

LATE_ROWS = "late_rows"
LATE_ROW_FIELDS = (
    Field("view", "string"),
    Field("window_start", "timestamp"),
    Field("window_end", "timestamp"),
    Field("rows", "bigint"),
    Field("policy", "string"),
    Field("version", "bigint"),
    Field("at", "timestamp"),
)


@dataclass(frozen=True)
class LateRows:
    """Rows of one commit that came for a window of a view after it was shown."""

    view: View
    start: int | None
    end: int
    rows: int

    def check(self) -> None:
        """Raise if the view does not let such rows in."""
        if self.view.late == "fail":
            raise QueryFailed(
                f"view {self.view.name}: {self.rows:,} late row{'' if self.rows == 1 else 's'} for a window that was"
                " shown",
                hint="the view was made with LATE FAIL; LATE CORRECT, ARCHIVE or DROP let such rows in",
            )


def write(core: Core, late: Iterable[LateRows], version: int, now: int) -> tuple[DataFile, ...]:
    """The late rows of a commit as a file."""
    rows = [(each.view.name, each.start, each.end, each.rows, each.view.late, version, now) for each in late]
    return write_table(core.ledger, LATE_ROWS, table_of(LATE_ROW_FIELDS, rows), None)
