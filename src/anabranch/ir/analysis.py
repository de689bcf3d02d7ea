"""Queries over typed empty relations: Spark analyses them and returns the types of expressions, and the names of those
without an alias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.ir.expr import Column, Subquery
from anabranch.ir.scope import Exposed
from anabranch.ir.text import Writer
from anabranch.sql.text import quote_name
from anabranch.types import Field


def analysis_names(relations: Sequence[Exposed]) -> dict[Column, str]:
    """The text of columns in an analysis: their own names, so that Spark names an expression over them as in the user's
    query."""
    names: dict[Column, str] = {}
    for index, relation in enumerate(relations):
        taken: set[str] = set()
        for column in (*relation.columns, *relation.hidden):
            name = column.name if column.name.lower() not in taken else f"{column.name}#{column.id}"
            taken.add(name.lower())
            names.setdefault(column, f"{quote_name(f'r{index}')}.{quote_name(name)}")
    return names


class Analysis(Writer):
    """A query over typed empty relations, whose columns Spark resolves."""

    def __init__(self, names: Mapping[Column, str], relations: Sequence[Exposed]) -> None:
        super().__init__()
        self.names = names
        self.relations = relations

    @property
    def schemas(self) -> dict[str, list[Field]]:
        made: dict[str, list[Field]] = {}
        for index, relation in enumerate(self.relations):
            columns = (*relation.columns, *relation.hidden)
            inner = [self.names[column].partition(".")[2][1:-1].replace("``", "`") for column in columns]
            made[f"@r{index}"] = [Field(name, c.type) for name, c in zip(inner, columns, strict=True)]
        return made

    def sources(self) -> None:
        for index in range(len(self.relations)):
            self.put(" FROM " if index == 0 else " CROSS JOIN ")
            self.put(f"`@r{index}` AS `r{index}`")

    def column(self, column: Column) -> str:
        return self.names.get(column) or f"CAST(NULL AS {column.type})"  # of an enclosing query

    def subquery(self, subquery: Subquery) -> None:
        columns = ", ".join(f"CAST(NULL AS {column.type})" for column in subquery.rel.columns)
        self.put(f"SELECT {columns}", subquery.origin)
