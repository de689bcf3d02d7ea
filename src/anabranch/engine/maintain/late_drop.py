"""Rows that came too late for a view and are left out of it for ever: LATE DROP, and what LATE ARCHIVE emits.

Which rows these are depends on when they came, so it is a fact of the ledger: a table of the view for each of its
inputs has them, written with the run that brought them, in the form of changes. The view is computed from the rows of
the input less those of the table, whatever the run, and so is what it would be if they had never come.
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


def left_out_fields(catalog: Catalog, view: View, input: str) -> tuple[Field, ...]:
    return (*input_fields(catalog, view, input), DIFF)


def without(core: Core, catalog: Catalog, view: View, input: str, rows: DataFrame, snapshot: Snapshot) -> DataFrame:
    """The rows of an input less those that were left out by a snapshot."""
    if input not in view.leaves_out or not snapshot.files.get(view.left_out_table(input)):
        return rows
    left_out = core.table_frame(view.left_out_table(input), left_out_fields(catalog, view, input), snapshot)
    columns = ", ".join(quote_name(field.name) for field in input_fields(catalog, view, input))
    both = f"(SELECT {columns}, 1 AS _diff FROM `@rows` UNION ALL SELECT {columns}, -_diff FROM `@left_out`)"
    copied = "LATERAL VIEW explode(array_repeat(1, CAST(_diff AS INT))) __copies AS __copy"
    text = f"SELECT {columns} FROM ({net_sql(columns, both)}) {copied}"
    return core.frames.sql(text, {"@rows": rows, "@left_out": left_out})


def without_sql(rows: str, left_out: str, columns: list[str]) -> str:
    """The same for DuckDB, of columns of rows that only come: which copy of a row is left out makes no difference."""
    items = ", ".join(quoted(each) for each in columns)
    return f"(SELECT {items} FROM {rows} EXCEPT ALL SELECT {items} FROM {left_out})"


def came(core: Core, table: str, files: Sequence[DataFile]) -> int:
    """How many rows files of a table have that came, and were not taken back."""
    from pyarrow import compute, parquet

    paths = [str(core.ledger.table_folder(table) / file.path) for file in files]
    if paths and not core.place.takes_changes(sum(file.rows for file in files), 0):
        total = core.frames.parquet(paths, (DIFF,)).selectExpr(f"sum(greatest({DIFF.name}, 0))")
        return int(total.collect()[0][0] or 0)
    columns = (parquet.read_table(path, columns=[DIFF.name]).column(DIFF.name) for path in paths)
    return sum(compute.sum(compute.max_element_wise(column, 0)).as_py() or 0 for column in columns)
