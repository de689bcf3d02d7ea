"""Tables of databases that are files: this machine reads them, and nothing of them stays open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anabranch.sources.database import DatabaseTable, RemoteColumn
from anabranch.sources.lookup import ASKING_OPTIONS, check_asking
from anabranch.sources.registry import Kind, Option, WrongOption
from anabranch.types import Field


class FileTable(DatabaseTable):
    """A table or view of a database file."""

    marks = "?"

    def __init__(self, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> None:
        self.path = str(options["path"])
        super().__init__(options, declared, self.path, (self.kind, os.path.realpath(self.path)))

    def check_file(self) -> None:
        if not os.path.exists(self.path):
            raise WrongOption("path", f"there is no file {self.path}", hint="a relative path starts here")

    def as_text(self, column: RemoteColumn) -> str:
        return column.read

    def size(self) -> int | None:
        return int(self.rows(f"SELECT count(*) FROM {self.relation}")[0][0])


def file_kind(table: type[FileTable], doc: str, example: str, *options: Option) -> Kind:
    """The kind of the tables of database files: in queries, and as lookups."""
    return Kind(
        name=table.kind,
        doc=doc,
        example=example,
        options=(
            Option(name="path", doc="the database file", required=True),
            Option(name="table", doc="a table or view in it", required=True),
            *options,
            *ASKING_OPTIONS,
        ),
        table=table,
        check=check_asking,
        abilities=(
            "read by key",
            "read by comparison",
            "filters, columns, limits, joins and aggregates go to the database",
        ),
    )
