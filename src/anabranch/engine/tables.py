"""The columns of each kind of table in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.algebra.windows.spans import COUNT, ENDING, FORM, LAST
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.states import Panes
from anabranch.plan.view import View
from anabranch.types import Field

PANE = LAST
BAD_ROWS = "bad_rows"
BAD_ROW_FIELDS = (
    Field("stream", "string"),
    Field("run", "bigint"),
    Field("source", "string"),
    Field("offset", "bigint"),
    Field("reason", "string"),
    Field("raw", "string"),
    Field("column", "string"),
    Field("view", "string"),
    Field("expression", "string"),
)
DIFF = Field("_diff", "bigint")
VERSION = Field("_version", "bigint")
WINDOW = Field("_window", "timestamp")
AT = Field("_at", "timestamp")
FINAL = Field("_final", "boolean")


def pane_fields(panes: Panes) -> tuple[Field, ...]:
    """The keys, the start of the pane if there are panes, and the partials."""
    keys = tuple(Field(key.name, key.type) for key in panes.keys)
    columns = (Field(column.name, column.type) for column in panes.columns)
    return (*keys, *window_position_fields(panes), *group_size_fields(panes), *columns)


def window_position_fields(panes: Panes) -> tuple[Field, ...]:
    """What says which windows a partial counts in: where its pane starts, or the last window of its span and how many
    windows that is."""
    pane = (Field(PANE, "timestamp"),) if panes.time is not None else ()
    return (*pane, Field(COUNT, "bigint")) if panes.spanned else pane


def group_size_fields(panes: Panes) -> tuple[Field, ...]:
    """The columns with the size of a partial's group, where groups are kept by size."""
    return (Field(ENDING, "bigint"), Field(FORM, "bigint")) if panes.spanned else ()


def hidden_keys(view: View, panes: Panes) -> tuple[Field, ...]:
    """Hidden grouping keys of a view: kept beside its changes to find a row again."""
    shown = {output.source for output in view.query.direct if output.kind == "key"}
    return tuple(Field(f"_key_{key.name}", key.type) for key in panes.keys if key.name not in shown)


def change_fields(view: View, panes: Panes | None) -> tuple[Field, ...]:
    """The columns of a view's changes: those it shows, the signed count, and the version (and time)."""
    if view.operator:
        return (*view.fields, *view.hidden, DIFF, VERSION, AT)
    if view.query.direct and panes is not None:
        return (*view.fields, *hidden_keys(view, panes), WINDOW, DIFF, VERSION)
    return (*view.fields, DIFF, VERSION)


def net_sql(columns: str, changes: str) -> str:
    """The net rows of changes, for Spark and DuckDB; `changes` is a relation with a signed count."""
    total = f"SELECT {columns}, CAST(sum(_diff) AS BIGINT) AS _diff FROM {changes}"
    return f"{total} GROUP BY {columns} HAVING sum(_diff) <> 0"


def overlaid(snapshot: Snapshot, added: Mapping[str, tuple[DataFile, ...]]) -> Snapshot:
    """A snapshot with the files of a pending commit."""
    files = dict(snapshot.files)
    for table, new in list(added.items()):  # to which other threads may add
        files[table] = {**files.get(table, {}), **{file.path: file for file in new}}
    return replace(snapshot, files=files)
