"""Reads inputs without the late rows that a view has dropped: LATE DROP, and the views of LATE ARCHIVE.

Which rows are dropped depends on when they arrived, so the ledger stores them: per input, the view has a table of
dropped rows, in the form of changes, written with the run of these rows. The view is always computed from the input
minus this table, as if the rows had never arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.duck import quoted
from anabranch.engine.core import Core
from anabranch.engine.tables import DIFF, net_sql
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.view import View
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def input_fields(catalog: Catalog, view: View, input: str) -> tuple[Field, ...]:
    """The columns of an input of a view."""
    if input in view.query.streams:
        return catalog.stream(view.query.streams[input]).seen_as(input)
    return catalog.view(view.query.views[input]).fields


def dropped_fields(catalog: Catalog, view: View, input: str) -> tuple[Field, ...]:
    return (*input_fields(catalog, view, input), DIFF)


def without_dropped(
    core: Core, catalog: Catalog, view: View, input: str, rows: DataFrame, snapshot: Snapshot
) -> DataFrame:
    """The rows of an input without those that were dropped up to a snapshot."""
    if input not in view.drops_late_of or not snapshot.files.get(view.dropped_table(input)):
        return rows
    dropped = core.table_frame(view.dropped_table(input), dropped_fields(catalog, view, input), snapshot)
    columns = ", ".join(quote_name(field.name) for field in input_fields(catalog, view, input))
    both = f"(SELECT {columns}, 1 AS _diff FROM `@rows` UNION ALL SELECT {columns}, -_diff FROM `@dropped`)"
    copied = "LATERAL VIEW explode(array_repeat(1, CAST(_diff AS INT))) __copies AS __copy"
    text = f"SELECT {columns} FROM ({net_sql(columns, both)}) {copied}"
    return core.frames.sql(text, {"@rows": rows, "@dropped": dropped})


def without_dropped_sql(rows: str, dropped: str, columns: list[str]) -> str:
    """The same for DuckDB, for append-only rows, where it does not matter which copy of a row is dropped."""
    items = ", ".join(quoted(each) for each in columns)
    return f"(SELECT {items} FROM {rows} EXCEPT ALL SELECT {items} FROM {dropped})"


def count_insertions(core: Core, table: str, files: Sequence[DataFile]) -> int:
    """The number of rows in files of a table, without retractions."""
    from pyarrow import compute, parquet

    paths = [str(core.ledger.table_folder(table) / file.path) for file in files]
    if paths and not core.place.takes_changes(sum(file.rows for file in files), 0):
        total = core.frames.parquet(paths, (DIFF,)).selectExpr(f"sum(greatest({DIFF.name}, 0))")
        return int(total.collect()[0][0] or 0)
    columns = (parquet.read_table(path, columns=[DIFF.name]).column(DIFF.name) for path in paths)
    return sum(compute.sum(compute.max_element_wise(column, 0)).as_py() or 0 for column in columns)
